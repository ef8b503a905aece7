//! Which checks ran, and whether they still cover the current state.

use std::collections::BTreeMap;

use super::workspace;
use crate::chunk::{Change, Checked, Chunk, Effect, Tree};
use crate::id::StepId;
use crate::lineage;
use crate::record::Record;
use crate::step::Step;
use crate::turn::{self, Progress};

/// The newest run of every check.
#[derive(Clone, Debug, PartialEq)]
pub struct Checks<'a> {
    /// The head it reflects.
    pub head: Option<StepId>,
    /// The checks, by name.
    pub list: BTreeMap<&'a str, Check<'a>>,
}

/// The newest run of one check.
#[derive(Clone, Debug, PartialEq)]
pub struct Check<'a> {
    /// The step that recorded it.
    pub step: &'a Step,
    /// What it found.
    pub checked: &'a Checked,
    /// Whether it covers the current state.
    pub freshness: Freshness,
}

/// Whether a check covers the current state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// The workspace is as the check saw it, or what it declares to depend on is.
    Fresh,
    /// The workspace changed after it, or on a branch that it did not see, or a call is running that may change it.
    Stale,
}

/// The newest run of every check up to the head of `record`.
pub fn checks(record: &Record) -> Checks<'_> {
    let mut list = BTreeMap::new();
    let steps = record.lineage_order();
    let newest: BTreeMap<&str, &Step> = steps
        .iter()
        .filter_map(|step| match step.chunk() {
            Chunk::Checked(checked) => Some((checked.check.as_str(), *step)),
            _ => None,
        })
        .collect();
    let now = (!newest.is_empty()).then(|| Now::of(record));
    for (name, step) in newest {
        let (Chunk::Checked(checked), Some(now)) = (step.chunk(), &now) else { continue };
        let freshness = if now.is_covered_by(step, checked) { Freshness::Fresh } else { Freshness::Stale };
        list.insert(name, Check { step, checked, freshness });
    }
    Checks { head: record.head().map(Step::id), list }
}

/// The state that checks are held against.
struct Now<'a> {
    head: Option<&'a Step>,
    tree: Option<Tree>,
    /// A call that was started may be changing anything right now.
    running: bool,
}

impl<'a> Now<'a> {
    fn of(record: &'a Record) -> Self {
        let head = record.head();
        let running = |head| turn::open_calls(head).iter().any(|pending| pending.progress == Progress::Unknown);
        Now { head, tree: workspace::tree(record), running: head.is_some_and(running) }
    }

    fn is_covered_by(&self, step: &Step, checked: &Checked) -> bool {
        let Some(head) = self.head.filter(|_| !self.running) else { return false };
        // The changes behind a check are among those behind the head: equal in number, they are the same.
        if step.line().changes == head.line().changes {
            return true;
        }
        let (Some(saw), Some(tree)) = (&checked.tree, &self.tree) else { return false };
        saw == tree || (!checked.inputs.is_empty() && self.spares(head, step, &checked.inputs))
    }

    /// Whether all that changed since, or elsewhere, is none of what a check depends on.
    fn spares(&self, head: &Step, check: &Step, inputs: &[String]) -> bool {
        let depends_on = |path: &str| inputs.iter().any(|input| covers(input, path));
        let touches = |effect: &Effect| match &effect.change {
            Change::Renamed { from } => depends_on(from) || depends_on(&effect.path),
            _ => depends_on(&effect.path),
        };
        let since = lineage::diff(head, check).ours;
        // What nobody looked at may have changed anything.
        since.iter().all(|step| {
            let chunk = step.chunk();
            let seen = !chunk.changes_workspace() || chunk.tree().is_some();
            seen && !chunk.effects().iter().any(touches)
        })
    }
}

/// Whether a path is what a check names as something that it depends on, or is below it.
pub fn covers(input: &str, path: &str) -> bool {
    let input = input.trim_start_matches("./").trim_end_matches('/');
    let below = path.strip_prefix(input).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    below || matches!(input, "" | ".")
}
