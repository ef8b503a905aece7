//! Rebuilding a session from its steps alone.

use std::collections::HashMap;
use std::fmt;

use rath_record::chunk::Chunk;
use rath_record::codec::{self, Encoder};
use rath_record::{Record, Step, StepId, turn, view};

use super::repeat::{Compared, ComparisonEnd};
use crate::session;
use crate::session::Session;

/// The result of rebuilding a session from its steps.
///
/// ```
/// use rath::prelude::*;
///
/// let mut session = Session::user("hello");
/// session.push(Chunk::assistant("hi"));
/// let report = session.rebuild();
/// assert!(report.is_exact());
/// assert_eq!(report.steps, 2);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RebuildReport {
    /// The head of the session.
    pub head: Option<StepId>,
    /// The number of steps that were encoded, decoded and compared, with those of asides.
    pub steps: u64,
    /// The number of requests that were rendered again and compared.
    pub requests: u64,
    /// The number of requests that cannot be compared: a text before them was forgotten.
    pub forgotten_requests: u64,
    /// The differences in the order of the steps; those of whole-session views come last.
    pub differences: Vec<RebuildDifference>,
}

/// A difference between a session and its rebuilt copy.
///
/// Part of [`RebuildReport`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RebuildDifference {
    /// The step that differs; the head, for a view of all steps.
    pub step: Option<StepId>,
    /// The part that differs: `id`, `usage`, `messages`, `request`, ..
    pub part: &'static str,
    /// The value in the session.
    pub expected: String,
    /// The rebuilt value.
    pub found: String,
}

impl Session {
    /// Rebuilds everything that follows from the steps alone, and compares it with the session. No model or tool is needed.
    ///
    /// Every step is encoded and decoded: its id, its stamp, and the totals up to it are compared. So are the views of all
    /// steps: the next action, the messages that a model sees, files, checks and spending. For every answer that names its
    /// request, the request is rendered again, on merged branches and in asides too.
    ///
    /// ```
    /// use rath::prelude::*;
    ///
    /// # async fn example() -> Result<()> {
    /// let provider = Provider::from(Script::of([r#"{"text": "The Seine."}"#])?);
    /// let session = provider.ask(Session::user("Which river runs through Paris?")).await?;
    /// let report = session.rebuild();
    /// assert!(report.is_exact());
    /// assert_eq!((report.steps, report.requests), (2, 1));
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(example()).unwrap();
    /// ```
    pub fn rebuild(&self) -> RebuildReport {
        let lineage = self.lineage();
        let walk = lineage.walk();
        let mut report = RebuildReport {
            head: self.head().map(Step::id),
            steps: walk.len() as u64,
            requests: 0,
            forgotten_requests: 0,
            differences: Vec::new(),
        };
        // One session is used for all requests, so that rendering a request costs only what it adds to the one before.
        let mut before = Session::empty();
        match encode_and_decode(self.as_record()) {
            Ok(record) => {
                let decoded = record.lineage();
                let decoded: HashMap<StepId, &Step> =
                    decoded.walk().into_iter().map(|step| (step.id(), step)).collect();
                for step in &walk {
                    report.compare_step(step, decoded.get(&step.id()).copied());
                    report.compare_request(&mut before, step);
                }
                report.compare_views(self.as_record(), &record);
            }
            Err(error) => report.add_difference(report.head, "steps", "a record that can be written", &error),
        }
        report
    }
}

/// Encodes a record and decodes it from the bytes.
fn encode_and_decode(record: &Record) -> Result<Record, codec::CodecError> {
    if record.head().is_none() {
        return Ok(Record::new());
    }
    Ok(codec::read(&Encoder::encode_record(record)?)?.record)
}

impl RebuildReport {
    /// Returns whether the rebuilt session equals the original.
    pub fn is_exact(&self) -> bool {
        self.differences.is_empty()
    }

    /// Returns the number of requests that are equal to the recorded ones.
    pub(super) fn same_requests(&self) -> u64 {
        let differing = self.differences.iter().filter(|difference| difference.part == "request").count();
        self.requests.saturating_sub(differing as u64)
    }

    fn add_difference(
        &mut self,
        step: Option<StepId>,
        part: &'static str,
        expected: impl ToString,
        found: impl ToString,
    ) {
        let (expected, found) = (expected.to_string(), found.to_string());
        self.differences.push(RebuildDifference { step, part, expected, found });
    }

    /// Adds a difference if the two values differ.
    fn expect_equal<T: PartialEq>(
        &mut self,
        step: Option<StepId>,
        part: &'static str,
        (expected, found): (T, T),
        text: impl Fn(&T) -> String,
    ) {
        if expected != found {
            self.add_difference(step, part, text(&expected), text(&found));
        }
    }

    fn compare_step(&mut self, step: &Step, decoded: Option<&Step>) {
        let at = Some(step.id());
        let Some(decoded) = decoded else { return self.add_difference(at, "id", step.id(), "no such step") };
        self.expect_equal(at, "chunk", (step.json(), decoded.json()), |json| json.to_string());
        self.expect_equal(at, "stamp", (step.stamp(), decoded.stamp()), |stamp| format!("{stamp:?}"));
        self.expect_equal(at, "chunk count", (step.chunk_count(), decoded.chunk_count()), u64::to_string);
        self.expect_equal(at, "usage", (step.cumulative_usage(), decoded.cumulative_usage()), ToString::to_string);
    }

    fn compare_request(&mut self, before: &mut Session, step: &Step) {
        let Chunk::Assistant(answer) = step.chunk() else { return };
        let Some(digest) = answer.request else { return };
        if !before.rewind_before(step) {
            self.requests += 1;
            return self.add_difference(Some(step.id()), "request", digest, "no steps before it");
        }
        let rebuilt = session::check_rebuild(before, answer);
        if rebuilt.is_err() && before.has_forgotten() {
            self.forgotten_requests += 1;
            return;
        }
        self.requests += 1;
        if let Err(error) = rebuilt {
            self.add_difference(Some(step.id()), "request", digest, error.message());
        }
    }

    fn compare_views(&mut self, original: &Record, decoded: &Record) {
        let at = self.head;
        self.expect_equal(at, "head", (at, decoded.head().map(Step::id)), |head| format!("{head:?}"));
        self.expect_equal(at, "next", (turn::next(original), turn::next(decoded)), |next| format!("{next:?}"));
        self.expect_equal(at, "messages", (view::messages(original), view::messages(decoded)), |view| {
            format!("{view:?}")
        });
        self.expect_equal(at, "files", (view::files(original), view::files(decoded)), |view| format!("{view:?}"));
        self.expect_equal(at, "checks", (view::checks(original), view::checks(decoded)), |view| format!("{view:?}"));
        self.expect_equal(at, "spending", (view::spending(original), view::spending(decoded)), |view| {
            format!("{view:?}")
        });
    }
}

/// Writes every difference, then what was compared.
impl fmt::Display for RebuildReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.differences.iter().try_for_each(|difference| writeln!(f, "{difference}"))?;
        let compared = Compared { requests: self.same_requests(), forgotten: self.forgotten_requests, calls: None };
        compared.write(f, if self.is_exact() { ComparisonEnd::Nothing } else { ComparisonEnd::Differences })
    }
}

/// Writes the step and the part, then the expected and the found value.
impl fmt::Display for RebuildDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let step = self.step.map(|step| format!("step {}, ", step.short())).unwrap_or_default();
        let (expected, found) = crate::session::recording::json_diff::preview_pair(&self.expected, &self.found);
        write!(f, "{step}{}\n  expected: {expected}\n  found:    {found}", self.part)
    }
}
