//! A session rebuilt from its steps alone.

use std::collections::HashMap;
use std::fmt;

use rath_record::chunk::Chunk;
use rath_record::codec::{self, Encoder};
use rath_record::{Record, Step, StepId, draw, turn, view};

use crate::provider;
use crate::session::Session;

/// What came of rebuilding a session from its steps.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rebuilt {
    /// The head of the session.
    pub head: Option<StepId>,
    /// How many steps were encoded, decoded and compared, with those that are kept aside.
    pub steps: u64,
    /// How many requests were rendered again and compared.
    pub requests: u64,
    /// What is not as the session has it, in the order of the steps; what concerns the whole comes last.
    pub differences: Vec<Difference>,
}

/// Something that is not as the session has it when it is rebuilt.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Difference {
    /// Where; for what is read of all steps together, the head.
    pub step: Option<StepId>,
    /// What differs: `id`, `usage`, `messages`, `request`, ..
    pub what: &'static str,
    /// What the session has.
    pub expected: String,
    /// What is rebuilt.
    pub found: String,
}

impl Session {
    /// Rebuilds everything that can be rebuilt from the steps alone, and compares it with what the session has. No model and
    /// no tool is needed for it.
    ///
    /// Every step is encoded and decoded anew: its id, its stamp, and the totals up to it. So is what is read of all of them:
    /// what is next, what a model sees, files, checks and spending. And for every answer that names its request, the request
    /// is rendered again: on merged branches, and in what is kept aside.
    ///
    /// ```
    /// use rath::prelude::*;
    ///
    /// # async fn example() -> Result<()> {
    /// let provider = Provider::from(Script::of([r#"{"text": "The Seine."}"#])?);
    /// let session = provider.ask(Session::user("Which river runs through Paris?")).await?;
    /// let rebuilt = session.rebuild();
    /// assert!(rebuilt.is_exact());
    /// assert_eq!((rebuilt.steps, rebuilt.requests), (2, 1));
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(example()).unwrap();
    /// ```
    pub fn rebuild(&self) -> Rebuilt {
        let lineage = self.lineage();
        let walk = lineage.walk();
        let mut rebuilt =
            Rebuilt { head: self.head().map(Step::id), steps: walk.len() as u64, requests: 0, differences: Vec::new() };
        // One for all, so that a request costs what it adds to the one before.
        let mut before = Session::empty();
        match reread(self.as_record()) {
            Ok(record) => {
                let again = record.lineage();
                let again: HashMap<StepId, &Step> = again.walk().into_iter().map(|step| (step.id(), step)).collect();
                for step in &walk {
                    rebuilt.compare_step(step, again.get(&step.id()).copied());
                    rebuilt.compare_request(&mut before, step);
                }
                rebuilt.compare_views(self.as_record(), &record);
            }
            Err(error) => rebuilt.note(rebuilt.head, "steps", "a record that can be written", &error),
        }
        rebuilt
    }
}

/// The same record from its bytes.
fn reread(record: &Record) -> Result<Record, codec::CodecError> {
    if record.head().is_none() {
        return Ok(Record::new());
    }
    Ok(codec::read(&Encoder::encode_record(record)?)?.record)
}

impl Rebuilt {
    /// Whether everything is as the session has it.
    pub fn is_exact(&self) -> bool {
        self.differences.is_empty()
    }

    fn note(&mut self, step: Option<StepId>, what: &'static str, expected: impl ToString, found: impl ToString) {
        let (expected, found) = (expected.to_string(), found.to_string());
        self.differences.push(Difference { step, what, expected, found });
    }

    fn expect<T: PartialEq>(
        &mut self,
        step: Option<StepId>,
        what: &'static str,
        (expected, found): (T, T),
        say: impl Fn(&T) -> String,
    ) {
        if expected != found {
            self.note(step, what, say(&expected), say(&found));
        }
    }

    fn compare_step(&mut self, step: &Step, again: Option<&Step>) {
        let at = Some(step.id());
        let Some(again) = again else { return self.note(at, "id", step.id(), "no such step") };
        self.expect(at, "chunk", (step.json(), again.json()), |json| json.to_string());
        self.expect(at, "stamp", (step.stamp(), again.stamp()), |stamp| format!("{stamp:?}"));
        self.expect(at, "chunk count", (step.chunk_count(), again.chunk_count()), u64::to_string);
        self.expect(at, "usage", (step.cumulative_usage(), again.cumulative_usage()), ToString::to_string);
    }

    fn compare_request(&mut self, before: &mut Session, step: &Step) {
        let Chunk::Assistant(answer) = step.chunk() else { return };
        let Some(digest) = answer.request else { return };
        self.requests += 1;
        if !before.go_before(step) {
            return self.note(
                Some(step.id()),
                "request",
                digest,
                "nothing before it that a model could have been asked",
            );
        }
        if let Err(error) = provider::rebuild(before, answer) {
            self.note(Some(step.id()), "request", digest, error.message());
        }
    }

    fn compare_views(&mut self, ours: &Record, again: &Record) {
        let at = self.head;
        self.expect(at, "head", (at, again.head().map(Step::id)), |head| format!("{head:?}"));
        self.expect(at, "next", (turn::next(ours), turn::next(again)), |next| format!("{next:?}"));
        self.expect(at, "messages", (view::messages(ours), view::messages(again)), |view| format!("{view:?}"));
        self.expect(at, "files", (view::files(ours), view::files(again)), |view| format!("{view:?}"));
        self.expect(at, "checks", (view::checks(ours), view::checks(again)), |view| format!("{view:?}"));
        self.expect(at, "spending", (view::spending(ours), view::spending(again)), |view| format!("{view:?}"));
    }
}

/// One line where everything is the same, and otherwise every difference.
impl fmt::Display for Rebuilt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(head) = self.head else { return f.write_str("exact: nothing happened") };
        let (steps, requests) = (draw::count(self.steps, "step"), draw::count(self.requests, "request"));
        if self.is_exact() {
            return write!(f, "exact: {steps}, {requests}, ends at {}", head.short());
        }
        let differences = draw::count(self.differences.len() as u64, "difference");
        write!(f, "{differences} in {steps} and {requests}")?;
        for difference in &self.differences {
            write!(f, "\n{difference}")?;
        }
        Ok(())
    }
}

/// Where, what was expected, what was found.
impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let step = self.step.map(|step| format!("step {}, ", step.short())).unwrap_or_default();
        let (expected, found) = super::differ::shown(&self.expected, &self.found);
        write!(f, "{step}{}\n  expected: {expected}\n  found:    {found}", self.what)
    }
}
