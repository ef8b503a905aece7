//! What a step says. One closed enum; a kind or field that this version does not know survives as its exact JSON.

mod json;
mod kinds;
mod rewrite;
mod wire;
mod workspace;

use crate::id::CallId;
use crate::payload::Text;

pub use kinds::*;
pub use rewrite::Part;
pub use wire::ChunkError;
pub use workspace::*;

/// What a step says.
///
/// In JSON a chunk is an object whose first member, `kind`, is the variant's name in snake case.
#[derive(Clone, Debug, PartialEq)]
pub enum Chunk {
    /// An agent's prompt with its tools and provider: the frame in which the model reads what follows.
    Instructions(Instructions),
    /// What the user said.
    User(User),
    /// What the model answered.
    Assistant(Assistant),
    /// A tool call is about to take effect.
    ToolStarted(ToolStarted),
    /// A tool call ended, and what it changed.
    ToolResult(ToolResult),
    /// The session was bound to a sandbox.
    Placed(Placed),
    /// The workspace was found like this, and no call on this record left it so.
    Observed(Observed),
    /// Something went into a memory or came out of one.
    Memory(Memory),
    /// Earlier steps were folded into a summary.
    Compressed(Compressed),
    /// A selector chose a route.
    Selected(Selected),
    /// A check ran.
    Checked(Checked),
    /// A branch left its parent here.
    Forked(Forked),
    /// Two branches were joined here.
    Merged(Merged),
    /// A person said what a file that two branches changed is to be.
    Decided(Decided),
    /// A branch cut its lineage here.
    Detached(Detached),
    /// A model call failed and will be tried again.
    Retry(Retry),
    /// The run was stopped from outside.
    Interrupted(Interrupted),
    /// A person let a call go ahead.
    Approved(Approved),
    /// A person refused a call.
    Denied(Denied),
    /// The run failed.
    Failed(Failed),
    /// A person went on though something was not as it was left.
    Resumed(Resumed),
    /// A remark that no model sees.
    Note(Note),
    /// A chunk this version cannot read, kept as it was written.
    Other(Other),
}

impl Chunk {
    /// The user says `text`.
    pub fn user(text: impl Into<Text>) -> Self {
        Chunk::User(User { text: text.into(), images: Vec::new() })
    }

    /// The agent is told `text`.
    pub fn instructions(text: impl Into<Text>) -> Self {
        Chunk::Instructions(Instructions { text: text.into(), ..Instructions::default() })
    }

    /// The model answers `text` and is done.
    pub fn assistant(text: impl Into<Text>) -> Self {
        Chunk::Assistant(Assistant { text: text.into(), ..Assistant::default() })
    }

    /// The model asks for `calls`.
    pub fn calls(calls: impl IntoIterator<Item = Call>) -> Self {
        let calls = calls.into_iter().collect();
        Chunk::Assistant(Assistant { calls, finish: Finish::Calls, ..Assistant::default() })
    }

    /// A call did what it was asked, and this is what the model reads.
    pub fn result(call: impl Into<CallId>, output: impl Into<Text>) -> Self {
        Chunk::ToolResult(ToolResult::new(call, Outcome::Ok, output))
    }

    /// A remark that no model sees.
    pub fn note(text: impl Into<Text>) -> Self {
        Chunk::Note(Note { text: text.into() })
    }

    /// Whether this only marks where branches part or meet: views of the content pass over it.
    pub fn is_marker(&self) -> bool {
        matches!(self, Chunk::Forked(_) | Chunk::Merged(_) | Chunk::Detached(_))
    }

    /// Whether the workspace may differ after this step, so that earlier checks no longer cover it.
    pub fn changes_workspace(&self) -> bool {
        match self {
            // What a call changed is observed; only where nobody was left to look, anything may have.
            Chunk::ToolResult(result) => !result.effects.is_empty() || result.outcome == Outcome::Unknown,
            Chunk::Placed(_) | Chunk::Other(_) => true,
            _ => !self.effects().is_empty(),
        }
    }

    /// What changed in the workspace, as observed there.
    pub fn effects(&self) -> &[Effect] {
        match self {
            Chunk::ToolResult(it) => &it.effects,
            Chunk::Observed(it) => &it.effects,
            Chunk::Merged(it) => &it.effects,
            Chunk::Decided(it) => &it.effects,
            _ => &[],
        }
    }

    /// The workspace tree after this step, where the step says it.
    pub fn tree(&self) -> Option<&Tree> {
        match self {
            Chunk::ToolResult(it) => it.tree.as_ref(),
            Chunk::Placed(it) => it.tree.as_ref(),
            Chunk::Observed(it) => Some(&it.tree),
            Chunk::Merged(it) => it.tree.as_ref(),
            Chunk::Decided(it) => Some(&it.tree),
            _ => None,
        }
    }
}
