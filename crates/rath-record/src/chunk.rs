//! The content of a step, as one closed enum.
//!
//! A kind or field that this version does not know survives as its exact JSON.

mod branching;
mod build;
mod json;
mod kinds;
mod objects;
mod rewrite;
mod wire;
mod workspace;

pub use branching::*;
pub use kinds::*;
pub use objects::NamedObjects;
pub use rewrite::TextKind;
pub use wire::ChunkError;
pub use workspace::*;

use crate::id::CallId;
use crate::money::Money;

/// The content of a step: one thing that happened.
///
/// In JSON a chunk is an object whose first member, `kind`, is the variant's name in snake case.
///
/// ```
/// use rath_record::Chunk;
///
/// let chunk = Chunk::user("What is in this folder?");
/// let mut json = Vec::new();
/// chunk.encode(&mut json);
/// assert_eq!(json, br#"{"kind":"user","text":"What is in this folder?"}"#);
/// assert_eq!(Chunk::decode(r#"{"kind":"user","text":"What is in this folder?"}"#)?, chunk);
/// # Ok::<(), rath_record::chunk::ChunkError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Chunk {
    /// An agent's prompt with its tools and its provider: the context in which the model reads the steps that follow.
    Instructions(Instructions),
    /// A message from the user.
    User(User),
    /// An answer of the model.
    Assistant(Assistant),
    /// A tool call is about to take effect.
    ToolStarted(ToolStarted),
    /// A tool call ended; holds its result and the changes it made.
    ToolResult(ToolResult),
    /// The session was bound to a sandbox.
    Placed(Placed),
    /// The workspace was found in this state, and no call on this record caused it.
    Observed(Observed),
    /// Something was written to a memory or read from one.
    Memory(Memory),
    /// Earlier steps were folded into a summary.
    Compressed(Compressed),
    /// A selector chose a route.
    Selected(Selected),
    /// A check ran.
    Checked(Checked),
    /// A branch was forked from its parent here.
    Forked(Forked),
    /// Two branches were merged here.
    Merged(Merged),
    /// A person resolved a file conflict of a merge.
    Decided(Decided),
    /// The files were brought back to those of an earlier step.
    Restored(Restored),
    /// A branch was detached from its parent branch here.
    Detached(Detached),
    /// A model call failed and will be tried again.
    Retry(Retry),
    /// The run was stopped from outside.
    Interrupted(Interrupted),
    /// A call waits for a person.
    Asked(Asked),
    /// A person approved a call.
    Approved(Approved),
    /// A person denied a call.
    Denied(Denied),
    /// The run failed.
    Failed(Failed),
    /// A person continued the session although something had changed since it was left.
    Resumed(Resumed),
    /// A person took over a session that others made.
    Adopted(Adopted),
    /// A remark that no model sees.
    Note(Note),
    /// A chunk that this version cannot read, kept exactly as it was written.
    Other(Other),
}

impl Chunk {
    /// Returns whether this chunk only marks where branches part or meet.
    ///
    /// Views of the content skip markers.
    pub fn is_marker(&self) -> bool {
        matches!(self, Chunk::Forked(_) | Chunk::Merged(_) | Chunk::Detached(_))
    }

    /// Returns whether the workspace may differ after this step, so that earlier checks no longer cover it.
    pub fn changes_workspace(&self) -> bool {
        match self {
            // The changes of a call are observed when it ends; after an unknown outcome anything may have changed.
            Chunk::ToolResult(result) => !result.effects.is_empty() || result.outcome == Outcome::Unknown,
            Chunk::Placed(_) | Chunk::Other(_) => true,
            _ => !self.effects().is_empty(),
        }
    }

    /// The call that this step is about: its start, its result, a question or a decision.
    pub fn call(&self) -> Option<&CallId> {
        match self {
            Chunk::ToolStarted(it) => Some(&it.call),
            Chunk::ToolResult(it) => Some(&it.call),
            Chunk::Asked(it) => Some(&it.call),
            Chunk::Approved(it) => Some(&it.call),
            Chunk::Denied(it) => Some(&it.call),
            _ => None,
        }
    }

    /// The changes to files in the workspace that this step recorded.
    pub fn effects(&self) -> &[Effect] {
        match self {
            Chunk::ToolResult(it) => &it.effects,
            Chunk::Observed(it) => &it.effects,
            Chunk::Merged(it) => &it.effects,
            Chunk::Decided(it) => &it.effects,
            Chunk::Restored(it) => &it.effects,
            _ => &[],
        }
    }

    /// The workspace tree after this step, if the step records it.
    pub fn tree(&self) -> Option<&Tree> {
        match self {
            Chunk::ToolResult(it) => it.tree.as_ref(),
            Chunk::Placed(it) => it.tree.as_ref(),
            Chunk::Observed(it) => Some(&it.tree),
            Chunk::Merged(it) => it.tree.as_ref(),
            Chunk::Decided(it) => Some(&it.tree),
            Chunk::Restored(it) => Some(&it.tree),
            _ => None,
        }
    }

    /// Returns the cost that the record states for the model call: the amount `cost_usd` among the facts of an answer, in dollars.
    ///
    /// The answers of an imported file have one if the file states it.
    pub fn recorded_cost(&self) -> Option<Money> {
        #[derive(serde::Deserialize)]
        struct CostFacts {
            cost_usd: f64,
        }
        let Chunk::Assistant(answer) = self else { return None };
        // Most facts state no cost, and are not parsed.
        let facts = answer.facts.as_ref().map(Json::as_str).filter(|facts| facts.contains("\"cost_usd\""))?;
        let facts: CostFacts = serde_json::from_str(facts).ok()?;
        (facts.cost_usd.is_finite() && facts.cost_usd >= 0.0).then(|| Money::dollars(facts.cost_usd))
    }
}
