//! The differences between two snapshots, or between two trees.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::change::{ChangeKind, FileChange, UntrackedReason};
use crate::dir::{Dir, DirEntry, EntryKind, FileType, Stat};
use crate::error::Result;
use crate::limits::TreeWalk;
use crate::objects::{self, Objects};
use crate::paths;
use crate::rename::{self, Renamable};
use crate::tree::{self, Mode, ObjectId};

/// A version of a file: its mode and its blob.
pub(crate) type Version = (Mode, ObjectId);

/// A path whose tracked version differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TreeChange {
    pub(crate) path: Vec<u8>,
    pub(crate) before: Option<Version>,
    pub(crate) after: Option<Version>,
}

/// The number of changes that are listed in one ignored directory. With more, the directory is reported instead.
pub(crate) const MAX_IGNORED_CHANGES: usize = 20;

/// The limit for rename detection: with more pairs of candidates than its square, only renames without a change of
/// content are found.
const DIFF_RENAME_LIMIT: usize = 400;

/// A change of a path that is untracked before, after, or both.
struct UntrackedChange {
    path: Vec<u8>,
    before: Option<Leaf>,
    after: Option<Leaf>,
    /// The position of the ignored directory that contains the path.
    ignored: Option<usize>,
}

/// A path that is not a directory with contents; an empty directory is a leaf too.
#[derive(Clone, Copy, PartialEq)]
enum Leaf {
    Tracked(Version),
    Untracked(UntrackedReason, Stat),
}

/// An ignored directory, with flags for its existence before and after.
struct IgnoredDir {
    path: Vec<u8>,
    before: bool,
    after: bool,
    /// True for a `.git` directory, which is always reported as one path.
    is_git: bool,
}

/// A directory on both sides, and the position of the ignored directory that contains it.
struct DirPair<'a> {
    path: Vec<u8>,
    before: Option<&'a Dir>,
    after: Option<&'a Dir>,
    ignored: Option<usize>,
}

/// The diff of two snapshots.
#[derive(Default)]
struct SnapshotDiff<'a> {
    rest: Vec<DirPair<'a>>,
    changed: Vec<TreeChange>,
    untracked: Vec<UntrackedChange>,
    ignored: Vec<IgnoredDir>,
}

/// Returns the changes between two snapshots, of tracked and of untracked paths. Those in ignored directories for which
/// `is_listed` returns true are listed however many there are.
pub(crate) fn diff_snapshots(
    objects: &Objects,
    before: Option<&Arc<Dir>>,
    after: &Arc<Dir>,
    is_listed: &dyn Fn(&str) -> bool,
) -> Result<Vec<FileChange>> {
    if before.is_some_and(|before| Arc::ptr_eq(before, after)) {
        return Ok(Vec::new());
    }
    let mut diff = SnapshotDiff::default();
    let (before, after) = (before.map(|dir| &**dir), Some(&**after));
    diff.rest.push(DirPair { path: Vec::new(), before, after, ignored: None });
    while let Some(pair) = diff.rest.pop() {
        diff.compare(&pair);
    }
    let mut file_changes = file_changes(objects, diff.changed)?;
    add_untracked(objects, diff.untracked, &diff.ignored, is_listed, &mut file_changes)?;
    file_changes.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(file_changes)
}

/// Returns the tracked files whose metadata differs between two snapshots although their versions are the same: they were written to.
pub(crate) fn rewritten(objects: &Objects, before: &Arc<Dir>, after: &Arc<Dir>) -> Result<Vec<FileChange>> {
    let (mut changes, mut rest) = (Vec::new(), vec![(Vec::new(), before, after)]);
    while let Some((path, before, after)) = rest.pop() {
        for entry in &after.entries {
            let Some(earlier) = before.find(after.name(entry)) else { continue };
            let path = join_path(&path, after.name(entry));
            match (entry.kind, before.child(earlier), after.child(entry)) {
                (_, Some(before), Some(after)) if !Arc::ptr_eq(before, after) => rest.push((path, before, after)),
                (EntryKind::Tracked(_), None, None)
                    if (earlier.kind, earlier.id) == (entry.kind, entry.id) && earlier.stat != entry.stat =>
                {
                    let digest = Some(objects.digest(entry.id)?);
                    changes.push(FileChange {
                        path: paths::path_text(&path).into_owned(),
                        kind: ChangeKind::Modified,
                        before: digest,
                        after: digest,
                        untracked: None,
                    });
                }
                _ => {}
            }
        }
    }
    changes.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(changes)
}

/// Returns the paths of the files that were tracked in one snapshot and are not in another.
pub(crate) fn removed_paths(before: &Arc<Dir>, after: &Arc<Dir>) -> Vec<Vec<u8>> {
    let (mut removed, mut rest) = (Vec::new(), vec![(Vec::new(), before, Some(after))]);
    while let Some((path, before, after)) = rest.pop() {
        if after.is_some_and(|after| Arc::ptr_eq(before, after)) {
            continue;
        }
        for entry in &before.entries {
            let found = after.and_then(|after| Some((after, after.find(before.name(entry))?)));
            let is_tracked = |entry: &DirEntry| !matches!(entry.kind, EntryKind::Untracked(_));
            match before.child(entry) {
                Some(child) if is_tracked(entry) => {
                    let path = join_path(&path, before.name(entry));
                    rest.push((path, child, found.and_then(|(after, entry)| after.child(entry))));
                }
                None if is_tracked(entry) && !found.is_some_and(|(_, entry)| is_tracked(entry)) => {
                    removed.push(join_path(&path, before.name(entry)));
                }
                _ => {}
            }
        }
    }
    removed
}

/// Returns the files that differ between two trees, sorted by path.
pub(crate) fn diff_trees(objects: &Objects, before: Option<ObjectId>, after: ObjectId) -> Result<Vec<TreeChange>> {
    let mut changed = Vec::new();
    let mut rest = vec![(Vec::new(), before, Some(after))];
    let mut walk = TreeWalk::new(objects, before.into_iter().chain([after]));
    while let Some((path, before, after)) = rest.pop() {
        if before == after {
            continue;
        }
        let get = |id: Option<ObjectId>| id.map_or(Ok(Vec::new()), |id| objects.get(id, objects::ObjectKind::Tree));
        let (before_bytes, after_bytes) = (get(before)?, get(after)?);
        let entries = |id: Option<ObjectId>, bytes| tree::entries(id.unwrap_or(tree::EMPTY_TREE), bytes);
        let (before, after) = (entries(before, &before_bytes)?, entries(after, &after_bytes)?);
        let (mut before, mut after) = (before.as_slice(), after.as_slice());
        walk.add_names(before.len() + after.len())?;
        // In the order of a tree, a file and a directory of the same name are two entries.
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
            let child_path = join_path(&path, entry.name);
            if entry.mode == Mode::Directory {
                rest.push((child_path, one.map(|entry| entry.id), other.map(|entry| entry.id)));
                continue;
            }
            let version = |entry: Option<&tree::TreeEntry<'_>>| entry.map(|entry| (entry.mode, entry.id));
            if version(one) != version(other) {
                changed.push(TreeChange { path: child_path, before: version(one), after: version(other) });
            }
        }
    }
    Ok(sort_by_path(changed))
}

/// Sorts by path: a file that was replaced by a directory comes before the files in that directory.
fn sort_by_path(mut changed: Vec<TreeChange>) -> Vec<TreeChange> {
    changed.sort_by(|one, other| one.path.cmp(&other.path));
    changed
}

/// Turns changes of tracked files into public ones, and detects renames.
pub(crate) fn file_changes(objects: &Objects, changed: Vec<TreeChange>) -> Result<Vec<FileChange>> {
    let side = |version: fn(&TreeChange) -> (Option<Version>, Option<Version>)| {
        let files = changed.iter().enumerate().filter_map(move |(nth, one)| match version(one) {
            (Some((mode, id)), None) => Some((nth, Renamable { path: &one.path, mode, id })),
            _ => None,
        });
        files.unzip::<_, _, Vec<usize>, Vec<Renamable<'_>>>()
    };
    let (deleted, sources) = side(|one| (one.before, one.after));
    let (new, targets) = side(|one| (one.after, one.before));
    let pairs = rename::find(objects, &sources, &targets, DIFF_RENAME_LIMIT, None)?;
    let mut from = vec![None; changed.len()];
    let mut moved = vec![false; changed.len()];
    for pair in pairs {
        from[new[pair.target]] = Some(deleted[pair.source]);
        moved[deleted[pair.source]] = true;
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

/// Adds the changes of untracked paths, with one change for each ignored directory that has too many.
fn add_untracked(
    objects: &Objects,
    untracked: Vec<UntrackedChange>,
    ignored: &[IgnoredDir],
    is_listed: &dyn Fn(&str) -> bool,
    file_changes: &mut Vec<FileChange>,
) -> Result<()> {
    let has_tracked_side = |one: &UntrackedChange| {
        matches!(one.before, Some(Leaf::Tracked(_))) || matches!(one.after, Some(Leaf::Tracked(_)))
    };
    let mut counts = vec![0; ignored.len()];
    for root in untracked.iter().filter(|one| !has_tracked_side(one)).filter_map(|one| one.ignored) {
        counts[root] += 1;
    }
    let collapsed = |root: usize| counts[root] > MAX_IGNORED_CHANGES || (ignored[root].is_git && counts[root] > 0);
    for (_, root) in ignored.iter().enumerate().filter(|(nth, _)| collapsed(*nth)) {
        let kind = change_kind(root.before, root.after);
        let path = paths::path_text(&root.path).into_owned();
        file_changes.push(FileChange {
            path,
            kind,
            before: None,
            after: None,
            untracked: Some(UntrackedReason::Ignored),
        });
    }
    let is_left_out = |one: &UntrackedChange| {
        let is_collapsed =
            |root: usize| collapsed(root) && (ignored[root].is_git || !is_listed(&paths::path_text(&one.path)));
        one.ignored.is_some_and(is_collapsed)
    };
    // A change of a tracked version is always listed.
    for one in untracked.iter().filter(|one| has_tracked_side(one) || !is_left_out(one)) {
        let digest = |leaf: Option<Leaf>| match leaf {
            Some(Leaf::Tracked((_, id))) => objects.digest(id).map(Some),
            _ => Ok(None),
        };
        let reason = match (one.before, one.after) {
            (_, Some(Leaf::Untracked(reason, _))) | (Some(Leaf::Untracked(reason, _)), None) => Some(reason),
            _ => None,
        };
        let (before, after) = (digest(one.before)?, digest(one.after)?);
        let kind = change_kind(one.before.is_some(), one.after.is_some());
        file_changes.push(FileChange {
            path: paths::path_text(&one.path).into_owned(),
            kind,
            before,
            after,
            untracked: reason,
        });
    }
    Ok(())
}

/// Returns the kind of change of a path that existed before, after, or both.
fn change_kind(before: bool, after: bool) -> ChangeKind {
    match (before, after) {
        (false, _) => ChangeKind::Created,
        (_, false) => ChangeKind::Deleted,
        _ => ChangeKind::Modified,
    }
}

impl<'a> SnapshotDiff<'a> {
    /// Compares two directories entry by entry.
    fn compare(&mut self, pair: &DirPair<'a>) {
        let (mut before, mut after) = (0, 0);
        loop {
            let one = pair.before.and_then(|dir| Some((dir, dir.entries.get(before)?)));
            let other = pair.after.and_then(|dir| Some((dir, dir.entries.get(after)?)));
            let order = match (one, other) {
                (None, None) => return,
                (_, None) => Ordering::Less,
                (None, _) => Ordering::Greater,
                (Some((dir, one)), Some((other_dir, other))) => dir.name(one).cmp(other_dir.name(other)),
            };
            let one = one.filter(|_| order != Ordering::Greater);
            let other = other.filter(|_| order != Ordering::Less);
            before += usize::from(one.is_some());
            after += usize::from(other.is_some());
            self.entry(pair, one, other);
        }
    }

    /// Compares one name.
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
        let is_unread = |dir: Option<&Arc<Dir>>| dir.is_some_and(|dir| dir.is_unread());
        if is_unread(after)
            && before.is_some()
            && !is_unread(before)
            && !pair.after.is_some_and(Dir::is_unread)
            && let Some((dir, entry)) = other
        {
            // What else is in it now is not known.
            let unread = Some(Leaf::Untracked(UntrackedReason::Special, Stat::default()));
            let path = join_path(&pair.path, dir.name(entry));
            self.untracked.push(UntrackedChange { path, before: unread, after: unread, ignored: pair.ignored });
        }
        let leaf = |side: Option<(&'a Dir, &'a DirEntry)>| {
            side.filter(|_| child(side).is_none()).map(|(_, entry)| entry.leaf())
        };
        let (mut was, mut is) = (leaf(one), leaf(other));
        // A new reason for being untracked is not a change of the file.
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
        // An empty directory that gets contents is not deleted, and one that loses its contents is not created.
        let is_directory = |side: Option<(&Dir, &DirEntry)>| side.is_some_and(|(_, entry)| entry.child.is_some());
        if is_directory(one) && is_directory(other) {
            (was, is) = (None, None);
        }
        let is_ignored = |side: Option<(&Dir, &DirEntry)>| {
            side.is_some_and(|(_, entry)| entry.kind == EntryKind::Untracked(UntrackedReason::Ignored))
        };
        // A directory with too many names, before or after: it changed, and no more is known.
        let was_not_read = |leaf: Option<Leaf>| matches!(leaf, Some(Leaf::Untracked(UntrackedReason::Ignored, stat)) if stat.file_type() == FileType::Directory);
        if was_not_read(was) && after.is_some() && !is_ignored(other) {
            // It is no longer ignored: all its files are new ones of the tree.
            was = None;
        }
        if (was_not_read(was) && after.is_some()) || (was_not_read(is) && before.is_some()) {
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
    /// Returns the entry as a leaf.
    fn leaf(&self) -> Leaf {
        match self.kind {
            EntryKind::Tracked(Mode::Directory) => Leaf::Untracked(UntrackedReason::EmptyDirectory, Stat::default()),
            EntryKind::Tracked(mode) => Leaf::Tracked((mode, self.id)),
            EntryKind::Outdated(_, reason) => Leaf::Untracked(reason, self.stat),
            EntryKind::Untracked(reason) if self.child.is_some() => Leaf::Untracked(reason, Stat::default()),
            EntryKind::Untracked(reason) => Leaf::Untracked(reason, self.stat),
        }
    }
}

/// Joins a path and a name with a slash.
pub(crate) fn join_path(path: &[u8], name: &[u8]) -> Vec<u8> {
    let mut joined = Vec::with_capacity(path.len() + name.len() + 1);
    joined.extend_from_slice(path);
    if !path.is_empty() {
        joined.push(b'/');
    }
    joined.extend_from_slice(name);
    joined
}
