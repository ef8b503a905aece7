//! The versions of a session's files, in the words of the record.
//!
//! `rath-workspace` knows no record: it has types of its own for trees, changes and conflicts. This is the one place where
//! the two meet.

use std::path::Path;

use rath_record::Digest;
use rath_record::chunk::{Change, Conflict, Effect, FileVersion, Tree, UnkeptReason};
use rath_workspace::{
    ChangeKind, CheckedOut, ConflictKind, FileChange, Labels, Mode, ObjectId, Objects, Snapshot, TempCheckout,
    TreeFile, TreeId, UntrackedReason,
};

use super::{Error, Result};
use crate::error::ErrorKind;
use crate::sandbox::RATH_DIR;

/// The stored versions of a session's files.
#[derive(Clone)]
pub(crate) struct Versions(Objects);

impl From<Objects> for Versions {
    fn from(objects: Objects) -> Self {
        Versions(objects)
    }
}

impl Versions {
    /// Opens the directory that holds the versions.
    pub(crate) fn open(directory: &Path) -> Result<Self> {
        Ok(Versions(Objects::open(directory)?))
    }

    /// Opens a directory that holds versions, for reading only.
    pub(crate) fn open_read_only(directory: &Path) -> Result<Self> {
        Ok(Versions(Objects::open_read_only(directory)?))
    }

    /// Returns the objects behind the versions.
    pub(crate) fn objects(&self) -> &Objects {
        &self.0
    }

    /// Returns the directory that the versions are of, in whose `.rath` they are; none if they are elsewhere.
    pub(crate) fn project_dir(&self) -> Option<&Path> {
        let own = self.0.folder().parent().filter(|own| own.file_name().is_some_and(|name| name == RATH_DIR))?;
        own.parent().map(|root| if root.as_os_str().is_empty() { Path::new(".") } else { root })
    }

    /// Makes all versions durable.
    pub(crate) fn sync(&self) -> Result<()> {
        Ok(self.0.sync()?)
    }

    /// Returns the changes from one tree to another; from an empty directory if there is none before.
    pub(crate) fn diff(&self, before: Option<&Tree>, after: &Tree) -> Result<Vec<Effect>> {
        let before = before.map(tree_id).transpose()?;
        Ok(effects(self.0.diff(before, tree_id(after)?)?))
    }

    /// Returns the changes from one tree to another as a patch.
    pub(crate) fn patch(&self, before: &Tree, after: &Tree) -> Result<String> {
        Ok(self.0.patch(tree_id(before)?, tree_id(after)?)?)
    }

    /// Returns the files of a tree, by path.
    pub(crate) fn files(&self, tree: &Tree) -> Result<Vec<TreeFile>> {
        Ok(self.0.files(tree_id(tree)?)?)
    }

    /// Writes a tree to a new or empty directory, as far as it is stored.
    pub(crate) fn checkout(&self, tree: &Tree, into: &Path) -> Result<CheckedOut> {
        Ok(self.0.checkout(tree_id(tree)?, into)?)
    }

    /// Writes a tree to a directory that is removed when the result is dropped.
    pub(crate) fn temp_checkout(&self, tree: &Tree) -> Result<TempCheckout> {
        Ok(self.0.temp_checkout(tree_id(tree)?)?)
    }

    /// Merges two trees that come from a common one. With conflicts, the tree holds what git would leave.
    pub(crate) fn merge(&self, base: &Tree, ours: &Tree, theirs: &Tree) -> Result<(Tree, Vec<Conflict>)> {
        let labels = Labels { ours: "ours", theirs: "theirs" };
        let joined = self.0.merge(tree_id(base)?, tree_id(ours)?, tree_id(theirs)?, labels)?;
        Ok((tree(joined.tree), joined.conflicts.into_iter().map(recorded_conflict).collect()))
    }

    /// Returns a tree in which the paths that these effects changed are as in another, and all others as they were.
    pub(crate) fn with_changes(&self, tree: &Tree, after: &Tree, effects: &[Effect]) -> Result<Tree> {
        let paths = effects.iter().flat_map(|effect| match &effect.change {
            Change::Renamed { from } => vec![&**from, &*effect.path],
            _ => vec![&*effect.path],
        });
        Ok(self::tree(self.0.with_paths(tree_id(tree)?, tree_id(after)?, paths)?))
    }

    /// Returns a tree in which the path of a conflict holds one of its versions, or nothing.
    pub(crate) fn with_version(&self, tree: &Tree, conflict: &Conflict, version: Option<&FileVersion>) -> Result<Tree> {
        let version = version.map(kept).transpose()?;
        let sides = sides(conflict)?;
        Ok(self::tree(self.0.with_version(tree_id(tree)?, &conflict.path, &sides, version.as_ref())?))
    }

    /// Returns a tree in which the path of a conflict holds this content.
    pub(crate) fn with_content(&self, tree: &Tree, conflict: &Conflict, content: &[u8]) -> Result<Tree> {
        let sides = sides(conflict)?;
        Ok(self::tree(self.0.with_content(tree_id(tree)?, &conflict.path, &sides, content)?))
    }

    /// Returns a tree in which these paths are as in another, and all others as they were.
    pub(crate) fn with_paths_of(&self, tree: &Tree, after: &Tree, paths: &[String]) -> Result<Tree> {
        Ok(self::tree(self.0.with_paths(tree_id(tree)?, tree_id(after)?, paths.iter().map(|path| &**path))?))
    }

    /// Copies all objects of a tree from other versions.
    pub(crate) fn take_from(&self, other: &Versions, tree: &Tree) -> Result<()> {
        Ok(self.0.copy_tree_from(&other.0, tree_id(tree)?)?)
    }
}

/// Returns the name of a tree on the record.
pub(crate) fn tree(id: TreeId) -> Tree {
    Tree(id.to_string())
}

/// Returns the id that the name of a tree on the record stands for.
pub(crate) fn tree_id(tree: &Tree) -> Result<TreeId> {
    Ok(tree.0.parse()?)
}

/// Returns a path on the record as rules see it: a name that is no Unicode is quoted on the record, and would fit no rule.
pub(crate) fn lossy_path(path: &str) -> String {
    String::from_utf8_lossy(&rath_workspace::path_bytes(path)).into_owned()
}

/// Returns changes of files as effects.
pub(crate) fn effects(changes: Vec<FileChange>) -> Vec<Effect> {
    changes.into_iter().map(effect).collect()
}

/// Reduces the effects on untracked paths to one for each path, where a directory was observed several times.
pub(crate) fn untracked(effects: &[Effect]) -> Vec<Effect> {
    let mut untracked: Vec<Effect> = Vec::new();
    for next in effects.iter().filter(|effect| effect.unkept.is_some()) {
        let Some(at) = untracked.iter().position(|known| known.path == next.path) else {
            untracked.push(next.clone());
            continue;
        };
        let existed = untracked[at].change != Change::Created;
        let exists = next.change != Change::Deleted;
        match (existed, exists) {
            (false, false) => _ = untracked.remove(at),
            (false, true) => untracked[at].change = Change::Created,
            (true, false) => untracked[at].change = Change::Deleted,
            (true, true) => untracked[at].change = Change::Modified,
        }
    }
    untracked
}

fn effect(change: FileChange) -> Effect {
    let digest = |digest: rath_workspace::Digest| Digest(digest.0);
    let kind = match change.kind {
        ChangeKind::Created => Change::Created,
        ChangeKind::Modified => Change::Modified,
        ChangeKind::Deleted => Change::Deleted,
        ChangeKind::Renamed { from } => Change::Renamed { from },
    };
    let unkept = change.untracked.map(unkept);
    let (before, after) = (change.before.map(digest), change.after.map(digest));
    Effect::new(change.path, kind).with_before(before).with_after(after).with_unkept(unkept)
}

fn unkept(reason: UntrackedReason) -> UnkeptReason {
    match reason {
        UntrackedReason::Ignored => UnkeptReason::Ignored,
        UntrackedReason::TooLarge => UnkeptReason::TooLarge,
        UntrackedReason::EmptyDirectory => UnkeptReason::EmptyDirectory,
        UntrackedReason::Special => UnkeptReason::Special,
        UntrackedReason::Secret => UnkeptReason::Secret,
    }
}

/// Returns an effect for each file whose present content is not kept.
pub(super) fn outdated_effects(snapshot: &Snapshot) -> Vec<Effect> {
    let effect = |(path, reason)| Effect::new(path, Change::Modified).with_unkept(Some(unkept(reason)));
    snapshot.outdated().into_iter().map(effect).collect()
}

fn recorded_conflict(conflict: rath_workspace::Conflict) -> Conflict {
    let what = match conflict.kind {
        ConflictKind::BothAdded => "both added",
        ConflictKind::ModifiedDeleted => "modified and deleted",
        ConflictKind::RenamedDeleted => "renamed and deleted",
        ConflictKind::RenamedApart => "renamed apart",
        ConflictKind::RenamedTogether => "renamed together",
        ConflictKind::FileAndDirectory => "file and directory",
        ConflictKind::FileAndLink => "file and link",
        ConflictKind::Moved => "moved along",
        ConflictKind::Unmoved => "not moved along",
        // `ConflictKind::Content`, and kinds that a later version of the crate adds.
        _ => "content",
    };
    let version = |kept: TreeFile| FileVersion {
        path: kept.path,
        object: kept.id.to_string(),
        mode: kept.mode.octal().to_owned(),
    };
    Conflict::new(conflict.path, what)
        .with_base(conflict.base.map(version))
        .with_ours(conflict.ours.map(version))
        .with_theirs(conflict.theirs.map(version))
}

/// Returns the versions of both sides of a conflict.
fn sides(conflict: &Conflict) -> Result<Vec<TreeFile>> {
    [&conflict.ours, &conflict.theirs].into_iter().flatten().map(kept).collect()
}

fn kept(version: &FileVersion) -> Result<TreeFile> {
    let id = ObjectId::from_hex(&version.object);
    let mode = Mode::from_octal(version.mode.as_bytes()).filter(|mode| *mode != Mode::Directory);
    let (Some(id), Some(mode)) = (id, mode) else {
        let message = format!("a version of `{}` cannot be read", version.path);
        return Err(Error::new(ErrorKind::Damaged, message));
    };
    Ok(TreeFile { path: version.path.clone(), mode, id })
}
