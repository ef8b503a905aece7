//! The parts of chunks that describe files: trees, the changes between them, and merge conflicts.

use serde::{Deserialize, Serialize};

use crate::id::{CallId, Digest, StepId};

/// The change of one path.
///
/// See [`ToolResult`](super::ToolResult) for an example.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Effect {
    /// The path, relative to the workspace.
    pub path: String,
    /// The kind of change.
    pub change: Change,
    /// The digest of the file before the change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Digest>,
    /// The digest of the file after the change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Digest>,
    /// The reason why no version of the file is kept, if none is. Then only the fact of the change is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unkept: Option<UnkeptReason>,
}

/// The reason why no version of a path is kept.
///
/// Part of [`Effect`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum UnkeptReason {
    /// A `.gitignore` file matches the path, or the path belongs to version control itself.
    Ignored,
    /// The file is too large.
    TooLarge,
    /// The path is an empty directory.
    EmptyDirectory,
    /// The path is a pipe, a socket or a device, or it cannot be read.
    Special,
    /// The file holds a secret.
    Secret,
}

/// A kind of change to a path.
///
/// Part of [`Effect`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Change {
    /// The path is new.
    Created,
    /// The content or the mode changed.
    Modified,
    /// The path was deleted.
    Deleted,
    /// The path was moved here from another one.
    Renamed {
        /// The old path.
        from: String,
    },
}

/// The identity of a workspace tree.
///
/// See [`Trees`](crate::view::Trees) for an example.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Tree(pub String);

/// The workspace was found in this state, and no call on this record is known to have caused it.
///
/// Part of [`Chunk`](super::Chunk).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Observed {
    /// The workspace tree.
    pub tree: Tree,
    /// The differences from the state that the record knew; empty if it knew none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub effects: Vec<Effect>,
    /// The calls that may have made these changes: they were started before, and their end was not observed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<CallId>,
}

/// A person resolved a file conflict of a merge.
///
/// Part of [`Chunk`](super::Chunk).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Decided {
    /// The path of the conflict.
    pub path: String,
    /// The version that was chosen.
    pub taken: Resolution,
    /// The workspace tree after the resolution.
    pub tree: Tree,
    /// The changes to files that the resolution made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub effects: Vec<Effect>,
}

/// The files were brought back to those of an earlier step.
///
/// Part of [`Chunk`](super::Chunk).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Restored {
    /// The step.
    pub to: StepId,
    /// The workspace tree, which is that of the step.
    pub tree: Tree,
    /// The changes to files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub effects: Vec<Effect>,
}

/// The version of a file that resolves a conflict.
///
/// Part of [`Decided`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resolution {
    /// Our version.
    Ours,
    /// Their version.
    Theirs,
    /// Another version, edited by a person.
    Edited,
    /// Both versions with conflict markers between them, as the merge left the file.
    Markers,
}

/// A path that both sides of a merge changed in ways that cannot be combined.
///
/// Part of [`Merged`](super::Merged).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Conflict {
    /// The path.
    pub path: String,
    /// The kind of conflict, in a word or two.
    pub what: String,
    /// The file in the merge base; `None` if it did not exist there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<FileVersion>,
    /// The file on our side; `None` if it does not exist there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ours: Option<FileVersion>,
    /// The file on their side; `None` if it does not exist there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub theirs: Option<FileVersion>,
}

/// One version of a file.
///
/// Part of [`Conflict`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileVersion {
    /// The path of the file in this version.
    pub path: String,
    /// The id of the content in the workspace's object store.
    pub object: String,
    /// The file mode as git writes it: `100644`, `100755` for an executable, `120000` for a symlink.
    pub mode: String,
}
