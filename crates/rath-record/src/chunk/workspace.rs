//! What is said of files: trees, what changed from one to the next, and what two branches disagree on.

use serde::{Deserialize, Serialize};

use crate::id::Digest;

/// One path that a tool call changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Effect {
    /// The path, relative to the workspace.
    pub path: String,
    /// What happened to it.
    pub change: Change,
    /// The digest of the file before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Digest>,
    /// The digest of the file after.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Digest>,
    /// Why no version of it is kept, where none is: that it changed is all that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unkept: Option<Unkept>,
}

/// Why no version of a path is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unkept {
    /// A `.gitignore` names it, or it belongs to version control itself.
    Ignored,
    /// It is too large.
    TooLarge,
    /// It is a directory with nothing in it.
    EmptyDirectory,
    /// It is a pipe, a socket or a device, or it cannot be read.
    Special,
}

/// What happened to a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// It is new.
    Created,
    /// It differs.
    Modified,
    /// It is gone.
    Deleted,
    /// It stood elsewhere before.
    Renamed {
        /// Where.
        from: String,
    },
}

/// The identity of a workspace tree.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Tree(pub String);

/// The workspace was found like this, and no call on this record left it so.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Observed {
    /// The workspace tree.
    pub tree: Tree,
    /// What is different from what the record knew of it; nothing, where it was not known before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub effects: Vec<Effect>,
}

/// A person said what a file that two branches changed is to be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decided {
    /// The path of the conflict.
    pub path: String,
    /// Which version was taken.
    pub taken: Taken,
    /// The workspace tree afterwards.
    pub tree: Tree,
    /// What that changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub effects: Vec<Effect>,
}

/// Which version of a file was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Taken {
    /// Ours.
    Ours,
    /// Theirs.
    Theirs,
    /// Another, which somebody wrote.
    Edited,
    /// Both, with marks between them, as the merge left it.
    Markers,
}

/// A path that both sides of a merge changed in ways that do not fit together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conflict {
    /// The path.
    pub path: String,
    /// What does not fit, in a word or two.
    pub what: String,
    /// The file as both had it before; none if it was not there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<Version>,
    /// As ours left it; none if it is gone there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ours: Option<Version>,
    /// As theirs left it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub theirs: Option<Version>,
}

/// One version of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// Where it stood.
    pub path: String,
    /// The name of its content among the objects of the workspace.
    pub object: String,
    /// What git calls its mode: `100644`, `100755` for what can be run, `120000` for a link.
    pub mode: String,
}
