//! The end of a run: its summary, its warnings, and the hint to continue.

use std::io;
use std::time::Instant;

use rath::chunk::MemoryEvent;
use rath::prelude::*;
use rath::record::draw::{count, one_line};
use rath::{StepId, Usage};

use super::AgentArgs;
use crate::changed_files::{changed_files, list_run_later};
use crate::events::EventPrinter;
use crate::output::{self, Exit, Failure};
use crate::sandboxes;
use crate::sessions::store_option;

/// The state at the start of a run, which its summary is compared with.
pub(super) struct RunStart {
    head: Option<StepId>,
    tokens: u64,
    time: Instant,
}

impl RunStart {
    pub(super) fn new(session: &Session) -> Self {
        RunStart { head: session.head().map(|step| step.id()), tokens: tokens(session), time: Instant::now() }
    }
}

/// Prints the failures of a memory since a step. The run went on without it.
fn warn_of_memory(session: &Session, since: Option<StepId>) {
    let new = session.as_record().newest_first().take_while(|step| Some(step.id()) != since);
    let mut failures: Vec<String> = new
        .filter_map(|step| match step.chunk() {
            Chunk::Failed(failed) => Some(failed.message.to_string()),
            Chunk::Memory(memory) => match &memory.event {
                MemoryEvent::Recall { notice, .. } => notice.clone(),
                _ => None,
            },
            _ => None,
        })
        .collect();
    failures.reverse();
    failures.iter().for_each(|failure| output::warning(&format!("memory: {}", one_line(failure))));
}

/// The outcome of an agent's run.
pub(crate) struct RunOutcome {
    pub(crate) result: Result<Session>,
    pub(super) start: RunStart,
    pub(super) printed: io::Result<()>,
    pub(super) printer: EventPrinter,
}

impl RunOutcome {
    /// Returns the session, which a failed run leaves behind too.
    pub(crate) fn session(&self) -> Option<&Session> {
        session_of(&self.result)
    }

    /// Prints the last event, and on success a summary on stderr.
    pub(crate) fn finish(mut self) -> Result<Result<Session>, Failure> {
        let printed = std::mem::replace(&mut self.printed, Ok(()));
        printed.and_then(|()| self.printer.finish(&self.result))?;
        if let Ok(session) = &self.result {
            output::message!("{}", summary(&self.start, session));
            warn_of_memory(session, self.start.head);
        }
        // After a failed run too: what it wrote is there.
        let changed = self.session().map(|session| changed_files(session, self.start.head)).unwrap_or_default();
        if let Some(list) = list_run_later(changed) {
            output::warning(&format!("other programs run these changed files: {list}"));
        }
        let unshared = self.session().map(Session::unshared_paths).unwrap_or_default();
        sandboxes::note_unshared("this branch works", &unshared);
        Ok(self.result)
    }

    /// Prints how the run on a stored session ended, and the name under which it is stored.
    pub(crate) fn finish_stored(self, args: &AgentArgs, option: &str) -> Result<Exit, Failure> {
        let session = self.session().cloned();
        let branch = session.as_ref().map(|session| session.id().short()).unwrap_or_default();
        let result = self.finish()?;
        let is_unwritten = result.as_ref().is_err_and(|error| error.kind() == ErrorKind::Store);
        let how_far = if is_unwritten { ", up to the step that could not be written" } else { "" };
        if option != store_option("memory:") {
            output::message!("saved as {branch}{how_far}; `rath log {branch}{option}` shows the steps");
        }
        let error = match result {
            Ok(_) => return Ok(Exit::Success),
            Err(error) => error,
        };
        let (kind, is_without_hint) = (error.kind(), error.hint().is_none());
        let needs_price = error.hint().is_some_and(|hint| hint.contains("prices("));
        let failure = Failure::from(error);
        let resume = format!("`rath resume {branch}{}{option}`", args.options_for(session.as_ref()));
        Err(match kind {
            ErrorKind::Approval => {
                let hint = format!("`rath review {branch}{option}` shows what is waiting for you");
                failure.with_hint(hint).with_exit(Exit::Waiting)
            }
            ErrorKind::Budget if needs_price => {
                failure.with_hint("limit tokens in the place of money; `rath config show` says where a limit is set")
            }
            ErrorKind::Budget => {
                let limits: Vec<_> = args.limits()?.iter().map(|limit| limit.doubled().to_string()).collect();
                match limits.is_empty() {
                    true => failure,
                    false => {
                        failure.with_hint(args.resume_with_budget(&branch, &limits.join(","), session.as_ref(), option))
                    }
                }
            }
            ErrorKind::Cancelled | ErrorKind::Limit => failure.with_hint(format!("{resume} continues from there")),
            ErrorKind::Store if is_without_hint => {
                failure.with_hint(format!("when the store can be written again, {resume} continues from there"))
            }
            _ => failure,
        })
    }
}

pub(crate) fn session_of(result: &Result<Session>) -> Option<&Session> {
    result.as_ref().ok().or_else(|| result.as_ref().err().and_then(rath::Error::session))
}

/// Summarises a run: its time, the files that it changed and the tokens that it used.
fn summary(start: &RunStart, session: &Session) -> String {
    let files = changed_files(session, start.head);
    let tokens = output::grouped(tokens(session).saturating_sub(start.tokens));
    let elapsed = start.time.elapsed();
    let time = match elapsed.as_secs() {
        0..60 => format!("{:.1} s", elapsed.as_secs_f64()),
        seconds => format!("{} min {} s", seconds / 60, seconds % 60),
    };
    let files = match files.len() as u64 {
        0 => String::new(),
        number => format!("{} changed, ", count(number, "file")),
    };
    format!("done in {time}: {files}{tokens} tokens")
}

fn tokens(session: &Session) -> u64 {
    let Usage { input, output, .. } = session.usage();
    input.saturating_add(output)
}
