//! The graph of branches as data: one JSON line per branch, with the member names of the Python OpenRath's export.

mod verify;

use std::collections::HashMap;

use serde::Serialize;

use crate::chunk::{Chunk, Strategy};
use crate::id::{BranchId, Seal, StepId};
use crate::lineage::{self, Lineage};
use crate::step::Step;
use crate::usage::Usage;

pub use verify::{GraphFault, GraphProblem, GraphReport, verify};

/// The ids that an export shows.
///
/// Passed to [`export`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ids {
    /// The ids of the branches.
    Original,
    /// Ids derived from the recorded content: the same program run twice exports the same bytes.
    Canonical,
}

/// Exports the branches of `lineage`, parents first, one JSON line each.
///
/// ```
/// use rath_record::graph::{self, Ids};
/// # use rath_record::{BranchId, Chunk, Record, Stamp};
///
/// # let mut record = Record::new();
/// # record.push(Chunk::user("Hello"), Stamp::on(BranchId([1; 16])));
/// let export = graph::export(&record.lineage(), Ids::Canonical);
/// assert_eq!(export.lines().count(), 1);
/// assert!(graph::verify(export.as_bytes()).problems.is_empty());
/// ```
pub fn export(lineage: &Lineage, ids: Ids) -> String {
    let walk = lineage.walk();
    let branches = lineage::branches(&walk);
    let canonical_ids: HashMap<BranchId, BranchId> = match ids {
        Ids::Original => HashMap::new(),
        Ids::Canonical => branches.iter().map(|branch| (branch.id, BranchId::canonical(branch.first.id()))).collect(),
    };
    let exported_id = |id: BranchId| canonical_ids.get(&id).copied().unwrap_or(id);
    // By id: of two equal steps that two branches recorded, the walk holds only one.
    let branch_of: HashMap<StepId, BranchId> = walk.iter().map(|step| (step.id(), step.stamp().branch)).collect();
    let mut out = String::new();
    for branch in &branches {
        let origin = Origin::from_first_step(branch.first, &branch_of);
        let row = BranchRow {
            id: exported_id(branch.id),
            parent_session_ids: origin.parents.into_iter().map(exported_id).collect(),
            lineage_operator: origin.operator,
            lineage_kind: origin.kind,
            lineage_extras: origin.extras,
            chunk_count: branch.head.chunk_count(),
            cumulative_usage: TokenUsage::from_usage(branch.head.cumulative_usage()),
            head: branch.head.id(),
        };
        push_sealed(&mut out, &row);
    }
    out
}

/// The row of one branch in an export.
#[derive(Serialize)]
struct BranchRow {
    id: BranchId,
    parent_session_ids: Vec<BranchId>,
    lineage_operator: &'static str,
    lineage_kind: &'static str,
    lineage_extras: Vec<(&'static str, serde_json::Value)>,
    chunk_count: u64,
    cumulative_usage: Option<TokenUsage>,
    head: StepId,
}

#[derive(Serialize)]
struct TokenUsage {
    prompt_tokens: u64,
    completion_tokens: u64,
    total_tokens: u64,
}

impl TokenUsage {
    /// Returns `None` if no model was called.
    fn from_usage(usage: Usage) -> Option<Self> {
        (usage != Usage::default()).then(|| TokenUsage {
            prompt_tokens: usage.input,
            completion_tokens: usage.output,
            total_tokens: usage.total(),
        })
    }
}

/// The origin of a branch, taken from its first step.
struct Origin {
    parents: Vec<BranchId>,
    operator: &'static str,
    kind: &'static str,
    extras: Vec<(&'static str, serde_json::Value)>,
}

impl Origin {
    fn from_first_step(first: &Step, branch_of: &HashMap<StepId, BranchId>) -> Self {
        let mut parents: Vec<BranchId> = Vec::new();
        for parent in first.parents().iter().filter_map(|parent| branch_of.get(&parent.id()).copied()) {
            if !parents.contains(&parent) {
                parents.push(parent);
            }
        }
        let mut extras = Vec::new();
        let (operator, kind) = match first.chunk() {
            Chunk::Forked(forked) if !first.parents().is_empty() => {
                extras.extend(first.parents().first().map(|at| ("at", at.id().to_string().into())));
                extras.extend(forked.name.as_ref().map(|name| ("name", name.as_str().into())));
                ("Session.fork", "op_fork")
            }
            Chunk::Detached(_) => {
                extras.extend(first.parents().first().map(|at| ("at", at.id().to_string().into())));
                parents.clear();
                ("Session.detach", "op_detach")
            }
            Chunk::Merged(merged) => {
                let strategy = match merged.strategy {
                    Strategy::Ancestor => "ancestor",
                    Strategy::Concat => "concat",
                    Strategy::Aside => "aside",
                };
                extras.push(("strategy", strategy.into()));
                ("Session.merge", "op_merge")
            }
            // Two handles on one branch, or two branches that begin with the same steps.
            _ if !first.parents().is_empty() => ("implicit", "unknown"),
            Chunk::User(_) => ("Session.user", "leaf_user"),
            Chunk::Instructions(_) => ("Session.system", "leaf_system"),
            _ => ("Session.empty", "op_create"),
        };
        Origin { parents, operator, kind, extras }
    }
}

/// The start of the last member of a row, up to the digits of the seal. The seal covers everything before it.
const SEAL_MEMBER: &str = r#","seal":""#;

fn push_sealed(out: &mut String, row: &BranchRow) {
    let start = out.len();
    out.push_str(&serde_json::to_string(row).expect("a row has string keys and finite numbers"));
    out.pop();
    let seal = Seal::compute(&out.as_bytes()[start..]);
    out.push_str(&format!("{SEAL_MEMBER}{seal}\"}}\n"));
}
