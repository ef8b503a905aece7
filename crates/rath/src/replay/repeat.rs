//! Making the recorded calls of a session again, without the program that asked for them.

use std::collections::BTreeMap;
use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;

use rath_record::chunk::Chunk;
use rath_record::{StepId, draw};

use super::rebuild::RebuildDifference;
use crate::sandbox::Sandbox;
use crate::session::{CallDifference, Replay, ReplayDirs, Result, Session, UnsharedPath};
use crate::tool::{ReadOutput, ToolHandle, Tools, repeat_call};

impl Session {
    /// Renders the recorded requests again and makes the recorded calls again, with these tools and in this sandbox. Await the
    /// builder for the report.
    ///
    /// No program and no model is needed: each request is rendered for the model that answered it, and each call starts from the
    /// files that it was recorded with, on every branch. So a call that differs changes nothing for the calls after it. The
    /// outcome, the output and the changed files of each call are compared; files that git ignores are not.
    ///
    /// The directories that git ignores are not recorded. The calls see those of the session's directory as they are now, and its `.git`,
    /// as forks do: what they change there stays in the sandbox.
    ///
    /// The files are restored in the sandbox if its directory is empty. Otherwise the calls work with the files that are there, and
    /// their changes are compared.
    ///
    /// ```
    /// use rath::prelude::*;
    /// use rath::tool::builtin::{self, Shell};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> rath::Result<()> {
    /// # let (project, fresh) = (tempfile::tempdir()?, tempfile::tempdir()?);
    /// # let script = Script::of([
    /// #     r#"{"calls": [{"name": "shell", "arguments": {"command": "echo two >> notes.txt"}}]}"#,
    /// #     r#"{"text": "Done."}"#,
    /// # ])?;
    /// # let agent = Agent::new("You edit files.", &script.into()).tool(Shell);
    /// std::fs::write(project.path().join("notes.txt"), "one\n")?;
    /// let session = agent.run(Session::user("Add a line.").to(Sandbox::local(project.path()))).await?;
    ///
    /// let report = session.repeat(builtin::all(), Sandbox::local(fresh.path())).await?;
    /// assert_eq!(report.to_string(), "exact: 2 requests, 1 call, 1 file");
    /// # Ok(())
    /// # }
    /// ```
    pub fn repeat(&self, tools: Tools, sandbox: impl Into<Sandbox>) -> RepeatBuilder {
        RepeatBuilder { session: self.clone(), tools, sandbox: sandbox.into(), stops_at_difference: false }
    }
}

/// A repetition that has not begun. Awaiting it runs it.
///
/// Returned by [`Session::repeat`].
#[must_use = "nothing is repeated until the builder is awaited"]
pub struct RepeatBuilder {
    session: Session,
    tools: Tools,
    sandbox: Sandbox,
    stops_at_difference: bool,
}

impl RepeatBuilder {
    /// Stops at the first difference.
    pub fn stop_at_first(mut self) -> Self {
        self.stops_at_difference = true;
        self
    }

    async fn run(self) -> Result<RepeatReport> {
        let RepeatBuilder { session, tools, sandbox, stops_at_difference } = self;
        let dirs = ReplayDirs::open(&session, sandbox).await?;
        let rebuilt = session.rebuild();
        let mut report = RepeatReport {
            requests: rebuilt.same_requests(),
            forgotten_requests: rebuilt.forgotten_requests,
            calls: 0,
            files: 0,
            record_differences: rebuilt.differences,
            call_differences: Vec::new(),
            not_made: Vec::new(),
            unshared: Vec::new(),
        };
        if stops_at_difference && !report.record_differences.is_empty() {
            report.record_differences.truncate(1);
            return Ok(report);
        }
        let mut tools: Vec<ToolHandle> = tools.into_handles();
        tools.push(ToolHandle::new(ReadOutput));
        let replay = Replay::new(&session, Some(dirs), stops_at_difference);
        let lineage = session.lineage();
        let results = lineage.walk().into_iter().filter(|step| matches!(step.chunk(), Chunk::ToolResult(_)));
        for step in results {
            match repeat_call(&replay, &tools, step).await {
                Ok(not_made) => report.not_made.extend(not_made.map(|reason| (step.id(), reason))),
                Err(_) if !replay.call_differences().is_empty() && stops_at_difference => break,
                Err(error) => return Err(error.with_session(&session)),
            }
        }
        (report.calls, report.files) = replay.same_calls();
        report.call_differences = replay.call_differences();
        report.unshared = replay.unshared_paths();
        Ok(report)
    }
}

impl IntoFuture for RepeatBuilder {
    type Output = Result<RepeatReport>;
    type IntoFuture = Pin<Box<dyn Future<Output = Result<RepeatReport>> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

/// The result of a repetition.
///
/// See [`Session::repeat`] for an example.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RepeatReport {
    /// The number of requests that are equal to the recorded ones byte for byte.
    pub requests: u64,
    /// The number of requests that cannot be compared: a text before them was forgotten.
    pub forgotten_requests: u64,
    /// The number of calls that did the same as when they were recorded.
    pub calls: u64,
    /// The number of files that those calls changed, each change counted.
    pub files: u64,
    /// The differences of requests, and of everything else that follows from the record alone.
    pub record_differences: Vec<RebuildDifference>,
    /// The differences of calls.
    pub call_differences: Vec<CallDifference>,
    /// The steps with the results of the calls that were not made, each with the reason.
    pub not_made: Vec<(StepId, String)>,
    /// The files that git ignores in the session's directory and that the calls did not see.
    pub unshared: Vec<UnsharedPath>,
}

impl RepeatReport {
    /// Returns whether something was compared, and nothing differs.
    pub fn is_exact(&self) -> bool {
        self.requests + self.calls > 0 && !self.has_differences()
    }

    /// Returns whether something differs.
    pub fn has_differences(&self) -> bool {
        !self.record_differences.is_empty() || !self.call_differences.is_empty()
    }
}

/// Writes every difference, then what was compared, then which calls were not made.
impl fmt::Display for RepeatReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.record_differences.iter().try_for_each(|difference| writeln!(f, "{difference}"))?;
        CallDifference::write_all(&self.call_differences, f)?;
        let compared = Compared {
            requests: self.requests,
            forgotten: self.forgotten_requests,
            calls: Some((self.calls, self.files)),
        };
        compared.write(f, if self.has_differences() { ComparisonEnd::Differences } else { ComparisonEnd::Nothing })?;
        let mut reasons: BTreeMap<&str, u64> = BTreeMap::new();
        self.not_made.iter().for_each(|(_, reason)| *reasons.entry(reason).or_default() += 1);
        reasons
            .iter()
            .try_for_each(|(reason, calls)| write!(f, "\nnot made: {} ({reason})", draw::count(*calls, "call")))
    }
}

/// The things that were compared and are the same.
pub(super) struct Compared {
    pub(super) requests: u64,
    /// The number of requests that cannot be compared: a text before them was forgotten.
    pub(super) forgotten: u64,
    /// The number of calls, and of the files that they changed; none if calls are not made.
    pub(super) calls: Option<(u64, u64)>,
}

/// The end of a comparison, besides what is the same.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum ComparisonEnd {
    Nothing,
    Differences,
    /// The comparison has ended at a difference.
    Divergence,
}

impl Compared {
    /// Writes one line.
    pub(super) fn write(&self, f: &mut fmt::Formatter<'_>, end: ComparisonEnd) -> fmt::Result {
        let forgotten = match self.forgotten {
            0 => String::new(),
            count => format!("{} cannot be compared: a text was forgotten", draw::count(count, "request")),
        };
        if self.requests + self.calls.unwrap_or_default().0 == 0 {
            if end == ComparisonEnd::Nothing && self.forgotten > 0 {
                return f.write_str(&forgotten);
            }
            return f.write_str(match end {
                ComparisonEnd::Nothing => "nothing to compare: the session has no recorded requests",
                ComparisonEnd::Differences => "nothing is the same",
                ComparisonEnd::Divergence => "nothing before that was compared",
            });
        }
        f.write_str(match end {
            ComparisonEnd::Nothing => "exact: ",
            ComparisonEnd::Differences => "the same: ",
            ComparisonEnd::Divergence => "the same before that: ",
        })?;
        f.write_str(&draw::count(self.requests, "request"))?;
        match self.calls {
            Some((calls, files)) => write!(f, ", {}, {}", draw::count(calls, "call"), draw::count(files, "file")),
            None => Ok(()),
        }?;
        if forgotten.is_empty() { Ok(()) } else { write!(f, "; {forgotten}") }
    }
}
