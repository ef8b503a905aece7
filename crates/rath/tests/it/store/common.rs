//! Helpers for tests of stores: child processes, random numbers with a seed, and dumps of whole stores.

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use rath::StepId;
use rath::prelude::*;
use rath::record::Step;
use rath::store::{BranchSummary, Damage, Store};

/// The kinds of store that outlive a process.
pub(crate) const KINDS: [&str; 2] = ["sqlite", "jsonl"];

/// The URI of a store of this kind in a folder.
pub(crate) fn uri(kind: &str, folder: &Path) -> String {
    format!("{kind}:{}", folder.join("store").display())
}

pub(crate) use rath_test_support::{Chance, exhaustive};

/// A setting that a child was started with.
pub(crate) fn setting(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is set for a child"))
}

/// This program again, running one of its ignored tests: `store::kill::child` for one.
pub(crate) fn child(test: &str, settings: &[(&str, &str)]) -> Command {
    rath_test_support::this_test(test, settings)
}

/// Appends a line to a file in one go.
pub(crate) fn append_line(path: impl AsRef<Path>, line: &str) {
    let mut file = OpenOptions::new().append(true).create(true).open(path).expect("a file");
    file.write_all(format!("{line}\n").as_bytes()).expect("a line");
}

/// The whole lines of a file; a process that was killed may have left part of one.
pub(crate) fn lines(path: impl AsRef<Path>) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')).map(str::to_owned).collect()
}

/// Everything in a store.
pub(crate) struct All {
    pub(crate) list: Vec<BranchSummary>,
    /// Every step behind any branch, work kept aside included.
    pub(crate) steps: HashMap<StepId, Step>,
    pub(crate) damage: Vec<Damage>,
}

impl All {
    pub(crate) async fn of(store: &Store) -> Result<Self> {
        let list = store.list().await?;
        let (mut steps, mut damage) = (HashMap::new(), store.check().await?.damage);
        for listed in &list {
            let found = store.read(listed.branch).await?;
            damage.extend(found.damage);
            if found.session.head().map(Step::id) != Some(listed.head) {
                let what = "its newest step cannot be read".to_owned();
                damage.push(Damage { place: listed.branch.to_string(), step: Some(listed.head), what });
            }
            steps.extend(found.session.lineage().walk().into_iter().map(|step| (step.id(), step.clone())));
        }
        Ok(All { list, steps, damage })
    }

    /// The branch that the most was said on.
    pub(crate) fn longest(&self) -> Option<&BranchSummary> {
        self.list.iter().max_by_key(|listed| listed.totals.chunks)
    }
}
