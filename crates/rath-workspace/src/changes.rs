//! What is different between two snapshots, or two trees.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::change::{ChangeKind, FileChange, UntrackedReason};
use rustix::fs::FileType;

use super::dir::{Dir, DirEntry, EntryKind, Stat};
use super::objects::{self, Objects};
use super::paths;
use super::rename::{self, Renamable};
use super::tree::{self, Mode, ObjectId};
use crate::error::Result;

/// A file as it is kept.
pub(super) type Version = (Mode, ObjectId);

/// A path whose kept version differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TreeChange {
    pub(super) path: Vec<u8>,
    pub(super) before: Option<Version>,
    pub(super) after: Option<Version>,
}

/// When more paths than this changed in one ignored directory, that directory is named instead of them.
pub(super) const MAX_IGNORED_CHANGES: usize = 20;

/// With more candidates than the square of this, only renames without a change are found.
const DIFF_RENAME_LIMIT: usize = 400;

/// A path that changed, of which no version is kept before, after or at all.
struct UntrackedChange {
    path: Vec<u8>,
    before: Option<Leaf>,
    after: Option<Leaf>,
    /// The ignored directory that it lies in.
    ignored: Option<usize>,
}

/// Anything but a directory that was looked into; an empty one is a leaf too.
#[derive(Clone, Copy, PartialEq)]
enum Leaf {
    Tracked(Version),
    Untracked(UntrackedReason, Stat),
}

/// An ignored directory, and whether it is there before and after.
struct IgnoredDir {
    path: Vec<u8>,
    before: bool,
    after: bool,
    /// It is named as one path, whatever changed in it.
    is_git: bool,
}

/// A directory on both sides, and the ignored one that it lies in.
struct DirPair<'a> {
    path: Vec<u8>,
    before: Option<&'a Dir>,
    after: Option<&'a Dir>,
    ignored: Option<usize>,
}

#[derive(Default)]
struct SnapshotDiff<'a> {
    rest: Vec<DirPair<'a>>,
    changed: Vec<TreeChange>,
    untracked: Vec<UntrackedChange>,
    ignored: Vec<IgnoredDir>,
}

/// What changed between two snapshots: kept files, and those that are not.
pub(super) fn diff_snapshots(
    objects: &Objects,
    before: Option<&Arc<Dir>>,
    after: &Arc<Dir>,
) -> Result<Vec<FileChange>> {
    if before.is_some_and(|before| Arc::ptr_eq(before, after)) {
        return Ok(Vec::new());
    }
    let mut comparison = SnapshotDiff::default();
    let (before, after) = (before.map(|dir| &**dir), Some(&**after));
    comparison.rest.push(DirPair { path: Vec::new(), before, after, ignored: None });
    while let Some(pair) = comparison.rest.pop() {
        comparison.compare(&pair);
    }
    let mut file_changes = file_changes(objects, comparison.changed)?;
    add_untracked(objects, comparison.untracked, &comparison.ignored, &mut file_changes)?;
    file_changes.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(file_changes)
}

/// The files that are different between two trees.
pub(super) fn diff_trees(objects: &Objects, before: Option<ObjectId>, after: ObjectId) -> Result<Vec<TreeChange>> {
    let mut changed = Vec::new();
    let mut rest = vec![(Vec::new(), before, Some(after))];
    while let Some((path, before, after)) = rest.pop() {
        if before == after {
            continue;
        }
        let get = |id: Option<ObjectId>| id.map_or(Ok(Vec::new()), |id| objects.get(id, objects::ObjectKind::Tree));
        let (before_bytes, after_bytes) = (get(before)?, get(after)?);
        let entries = |id: Option<ObjectId>, bytes| tree::entries(id.unwrap_or(tree::EMPTY), bytes);
        let (before, after) = (entries(before, &before_bytes)?, entries(after, &after_bytes)?);
        let (mut before, mut after) = (before.as_slice(), after.as_slice());
        // In the order of trees a file and a directory of one name are apart: they are two entries, as they should be.
        loop {
            let (one, other) = match (before.first(), after.first()) {
                (None, None) => break,
                (one, None) => (one, None),
                (None, other) => (None, other),
                (Some(one), Some(other)) => match tree::order(one, other) {
                    Ordering::Less => (Some(one), None),
                    Ordering::Greater => (None, Some(other)),
                    Ordering::Equal => (Some(one), Some(other)),
                },
            };
            before = &before[usize::from(one.is_some())..];
            after = &after[usize::from(other.is_some())..];
            let Some(entry) = one.or(other) else { break };
            let below = join_path(&path, entry.name);
            if entry.mode == Mode::Directory {
                rest.push((below, one.map(|entry| entry.id), other.map(|entry| entry.id)));
                continue;
            }
            let version = |entry: Option<&tree::TreeEntry<'_>>| entry.map(|entry| (entry.mode, entry.id));
            if version(one) != version(other) {
                changed.push(TreeChange { path: below, before: version(one), after: version(other) });
            }
        }
    }
    Ok(sort_by_path(changed))
}

/// A file that gave way to a directory of its name, or the other way round, is told before what is in there.
fn sort_by_path(mut changed: Vec<TreeChange>) -> Vec<TreeChange> {
    changed.sort_by(|one, other| one.path.cmp(&other.path));
    changed
}

/// Changes of kept files as file_changes, with renames found.
pub(super) fn file_changes(objects: &Objects, changed: Vec<TreeChange>) -> Result<Vec<FileChange>> {
    let side = |version: fn(&TreeChange) -> (Option<Version>, Option<Version>)| {
        let files = changed.iter().enumerate().filter_map(move |(nth, one)| match version(one) {
            (Some((mode, id)), None) => Some((nth, Renamable { path: &one.path, mode, id })),
            _ => None,
        });
        files.unzip::<_, _, Vec<usize>, Vec<Renamable<'_>>>()
    };
    let (gone, sources) = side(|one| (one.before, one.after));
    let (new, targets) = side(|one| (one.after, one.before));
    let pairs = rename::find(objects, &sources, &targets, DIFF_RENAME_LIMIT, None)?;
    let mut from = vec![None; changed.len()];
    let mut moved = vec![false; changed.len()];
    for pair in pairs {
        from[new[pair.target]] = Some(gone[pair.source]);
        moved[gone[pair.source]] = true;
    }
    let mut file_changes = Vec::with_capacity(changed.len());
    let digest = |version: Option<Version>| version.map(|(_, id)| objects.digest(id)).transpose();
    for (nth, one) in changed.iter().enumerate().filter(|(nth, _)| !moved[*nth]) {
        let from = from[nth].map(|from: usize| &changed[from]);
        let change = match (from, one.before, one.after) {
            (Some(from), ..) => ChangeKind::Renamed { from: paths::path_text(&from.path).into_owned() },
            (None, None, _) => ChangeKind::Created,
            (None, _, None) => ChangeKind::Deleted,
            (None, _, _) => ChangeKind::Modified,
        };
        let before = digest(from.map_or(one.before, |from| from.before))?;
        let after = digest(one.after)?;
        file_changes.push(FileChange {
            path: paths::path_text(&one.path).into_owned(),
            kind: change,
            before,
            after,
            untracked: None,
        });
    }
    Ok(file_changes)
}

fn add_untracked(
    objects: &Objects,
    untracked: Vec<UntrackedChange>,
    ignored: &[IgnoredDir],
    file_changes: &mut Vec<FileChange>,
) -> Result<()> {
    let lost = |one: &UntrackedChange| {
        matches!(one.before, Some(Leaf::Tracked(_))) || matches!(one.after, Some(Leaf::Tracked(_)))
    };
    let mut counts = vec![0; ignored.len()];
    for root in untracked.iter().filter(|one| !lost(one)).filter_map(|one| one.ignored) {
        counts[root] += 1;
    }
    let collapsed = |root: usize| counts[root] > MAX_IGNORED_CHANGES || (ignored[root].is_git && counts[root] > 0);
    for (_, root) in ignored.iter().enumerate().filter(|(nth, _)| collapsed(*nth)) {
        let change = change_kind(root.before, root.after);
        let path = paths::path_text(&root.path).into_owned();
        file_changes.push(FileChange {
            path,
            kind: change,
            before: None,
            after: None,
            untracked: Some(UntrackedReason::Ignored),
        });
    }
    // A version of what is kept is never left out of the list.
    for one in untracked.iter().filter(|one| lost(one) || !one.ignored.is_some_and(collapsed)) {
        let digest = |leaf: Option<Leaf>| match leaf {
            Some(Leaf::Tracked((_, id))) => objects.digest(id).map(Some),
            _ => Ok(None),
        };
        let reason = match (one.before, one.after) {
            (_, Some(Leaf::Untracked(why, _))) | (Some(Leaf::Untracked(why, _)), None) => Some(why),
            _ => None,
        };
        let (before, after) = (digest(one.before)?, digest(one.after)?);
        let change = change_kind(one.before.is_some(), one.after.is_some());
        file_changes.push(FileChange {
            path: paths::path_text(&one.path).into_owned(),
            kind: change,
            before,
            after,
            untracked: reason,
        });
    }
    Ok(())
}

fn change_kind(before: bool, after: bool) -> ChangeKind {
    match (before, after) {
        (false, _) => ChangeKind::Created,
        (_, false) => ChangeKind::Deleted,
        _ => ChangeKind::Modified,
    }
}

impl<'a> SnapshotDiff<'a> {
    fn compare(&mut self, pair: &DirPair<'a>) {
        let (mut before, mut after) = (0, 0);
        loop {
            let one = pair.before.and_then(|dir| Some((dir, dir.entries.get(before)?)));
            let other = pair.after.and_then(|dir| Some((dir, dir.entries.get(after)?)));
            let order = match (one, other) {
                (None, None) => return,
                (_, None) => Ordering::Less,
                (None, _) => Ordering::Greater,
                (Some((dir, one)), Some((there, other))) => dir.name(one).cmp(there.name(other)),
            };
            let one = one.filter(|_| order != Ordering::Greater);
            let other = other.filter(|_| order != Ordering::Less);
            before += usize::from(one.is_some());
            after += usize::from(other.is_some());
            self.entry(pair, one, other);
        }
    }

    fn entry(
        &mut self,
        pair: &DirPair<'a>,
        one: Option<(&'a Dir, &'a DirEntry)>,
        other: Option<(&'a Dir, &'a DirEntry)>,
    ) {
        let child = |side: Option<(&'a Dir, &'a DirEntry)>| {
            side.and_then(|(dir, entry)| dir.child(entry)).filter(|child| !child.entries.is_empty())
        };
        let (before, after) = (child(one), child(other));
        if let (Some(before), Some(after)) = (before, after)
            && Arc::ptr_eq(before, after)
        {
            return;
        }
        let leaf = |side: Option<(&'a Dir, &'a DirEntry)>| {
            side.filter(|_| child(side).is_none()).map(|(_, entry)| entry.leaf())
        };
        let (mut was, mut is) = (leaf(one), leaf(other));
        // That there is another reason why something is not kept is no change of it.
        let same = match (was, is) {
            (Some(Leaf::Untracked(_, was)), Some(Leaf::Untracked(_, is))) => was == is,
            _ => was == is,
        };
        if same && before.is_none() && after.is_none() {
            return;
        }
        let Some((dir, entry)) = one.or(other) else { return };
        let path = join_path(&pair.path, dir.name(entry));
        let is_git = dir.name(entry).eq_ignore_ascii_case(b".git");
        let root = |side: Option<(&Dir, &DirEntry)>| {
            side.is_some_and(|(_, entry)| {
                entry.kind == EntryKind::Untracked(UntrackedReason::Ignored) && (is_git || entry.child.is_some())
            })
        };
        let mut ignored = pair.ignored;
        if (is_git || ignored.is_none()) && (root(one) || root(other)) {
            ignored = Some(self.ignored.len());
            let (before, after) = (one.is_some(), other.is_some());
            self.ignored.push(IgnoredDir { path: path.clone(), before, after, is_git });
        }
        // A directory with nothing in it is not gone, or new, when something comes into it or goes.
        let is_directory = |side: Option<(&Dir, &DirEntry)>| side.is_some_and(|(_, entry)| entry.child.is_some());
        if is_directory(one) && is_directory(other) {
            (was, is) = (None, None);
        }
        // One that holds too much to be looked into, now or before: it changed, and that is all that is known.
        let uncounted = |leaf: Option<Leaf>| matches!(leaf, Some(Leaf::Untracked(UntrackedReason::Ignored, stat)) if stat.file_type() == FileType::Directory);
        if (uncounted(was) && after.is_some()) || (uncounted(is) && before.is_some()) {
            let some = Some(Leaf::Untracked(UntrackedReason::Ignored, Stat::default()));
            self.untracked.push(UntrackedChange { path, before: some, after: some, ignored });
            return;
        }
        match (was, is) {
            (None, None) => {}
            (None | Some(Leaf::Tracked(_)), None | Some(Leaf::Tracked(_))) => {
                let version = |leaf| match leaf {
                    Some(Leaf::Tracked(version)) => Some(version),
                    _ => None,
                };
                let (before, after) = (version(was), version(is));
                self.changed.push(TreeChange { path: path.clone(), before, after });
            }
            _ => self.untracked.push(UntrackedChange { path: path.clone(), before: was, after: is, ignored }),
        }
        if before.is_some() || after.is_some() {
            let (before, after) = (before.map(|dir| &**dir), after.map(|dir| &**dir));
            self.rest.push(DirPair { path, before, after, ignored });
        }
    }
}

impl DirEntry {
    fn leaf(&self) -> Leaf {
        match self.kind {
            EntryKind::Tracked(Mode::Directory) => Leaf::Untracked(UntrackedReason::EmptyDirectory, Stat::default()),
            EntryKind::Tracked(mode) => Leaf::Tracked((mode, self.id)),
            EntryKind::Untracked(why) if self.child.is_some() => Leaf::Untracked(why, Stat::default()),
            EntryKind::Untracked(why) => Leaf::Untracked(why, self.stat),
        }
    }
}

pub(super) fn join_path(path: &[u8], name: &[u8]) -> Vec<u8> {
    let mut joined = Vec::with_capacity(path.len() + name.len() + 1);
    joined.extend_from_slice(path);
    if !path.is_empty() {
        joined.push(b'/');
    }
    joined.extend_from_slice(name);
    joined
}
