//! The graph of branches as data: one JSON line a branch, under the names that the Python OpenRath exports.

mod verify;

use std::collections::HashMap;

use serde::Serialize;

use crate::chunk::{Chunk, Strategy};
use crate::id::{BranchId, Seal, StepId};
use crate::lineage::{self, Lineage};
use crate::step::Step;
use crate::usage::Usage;

pub use verify::{GraphFault, GraphReport, Problem, verify};

/// Which ids an export shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ids {
    /// Those that the branches have.
    Given,
    /// Ids that follow from what was recorded: the same program run twice exports the same bytes.
    Canonical,
}

/// Exports the branches of `lineage`, parents first, one JSON line each.
pub fn export(lineage: &Lineage, ids: Ids) -> String {
    let walk = lineage.walk();
    let branches = lineage::branches(&walk);
    let renamed: HashMap<BranchId, BranchId> = match ids {
        Ids::Given => HashMap::new(),
        Ids::Canonical => branches.iter().map(|branch| (branch.id, BranchId::canonical(branch.first.id()))).collect(),
    };
    let shown = |id: BranchId| renamed.get(&id).copied().unwrap_or(id);
    // By the step's name: of twins that two branches made alike, the walk holds one.
    let on: HashMap<StepId, BranchId> = walk.iter().map(|step| (step.id(), step.stamp().branch)).collect();
    let mut out = String::new();
    for branch in &branches {
        let origin = Origin::of(branch.first, &on);
        let row = Row {
            id: shown(branch.id),
            parent_session_ids: origin.parents.into_iter().map(shown).collect(),
            lineage_operator: origin.operator,
            lineage_kind: origin.kind,
            lineage_extras: origin.extras,
            chunk_count: branch.head.chunk_count(),
            cumulative_usage: TokenUsage::of(branch.head.cumulative_usage()),
            head: branch.head.id(),
        };
        push_sealed(&mut out, &row);
    }
    out
}

/// One branch, as it is exported.
#[derive(Serialize)]
struct Row {
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
    /// Nothing where no model was asked.
    fn of(usage: Usage) -> Option<Self> {
        (usage != Usage::default()).then(|| TokenUsage {
            prompt_tokens: usage.input,
            completion_tokens: usage.output,
            total_tokens: usage.total(),
        })
    }
}

/// Where a branch comes from, told by the step that opened it.
struct Origin {
    parents: Vec<BranchId>,
    operator: &'static str,
    kind: &'static str,
    extras: Vec<(&'static str, serde_json::Value)>,
}

impl Origin {
    fn of(first: &Step, on: &HashMap<StepId, BranchId>) -> Self {
        let mut parents: Vec<BranchId> = Vec::new();
        for parent in first.parents().iter().filter_map(|parent| on.get(&parent.id()).copied()) {
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
            // Two handles on one branch, or the same beginning made twice.
            _ if !first.parents().is_empty() => ("implicit", "unknown"),
            Chunk::User(_) => ("Session.user", "leaf_user"),
            Chunk::Instructions(_) => ("Session.system", "leaf_system"),
            _ => ("Session.empty", "op_create"),
        };
        Origin { parents, operator, kind, extras }
    }
}

/// The last member of a row, up to the seal of all that stands before it.
const SEAL_LAST: &str = r#","seal":""#;

fn push_sealed(out: &mut String, row: &Row) {
    let start = out.len();
    out.push_str(&serde_json::to_string(row).expect("a row has string keys and finite numbers"));
    out.pop();
    let seal = Seal::of(&out.as_bytes()[start..]);
    out.push_str(&format!("{SEAL_LAST}{seal}\"}}\n"));
}
