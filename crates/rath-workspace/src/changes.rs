//! What is different between two snapshots, or two trees.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::change::{ChangeKind, FileChange, Untracked};
use rustix::fs::FileType;

use super::dir::{Dir, Entry, Kind, Stat};
use super::objects::{self, Objects};
use super::quote;
use super::rename::{self, Renamable};
use super::tree::{self, Mode, ObjectId};
use crate::error::Result;

/// A file as it is kept.
pub(super) type Version = (Mode, ObjectId);

/// A path whose kept version differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Changed {
    pub(super) path: Vec<u8>,
    pub(super) before: Option<Version>,
    pub(super) after: Option<Version>,
}

/// When more paths than this changed in one ignored directory, that directory is named instead of them.
pub(super) const COLLAPSED: usize = 20;

/// With more candidates than the square of this, only renames without a change are found.
const EFFECTS: usize = 400;

/// A path that changed, of which no version is kept before, after or at all.
struct Noticed {
    path: Vec<u8>,
    before: Option<Leaf>,
    after: Option<Leaf>,
    /// The ignored directory that it lies in.
    ignored: Option<usize>,
}

/// Anything but a directory that was looked into; an empty one is a leaf too.
#[derive(Clone, Copy, PartialEq)]
enum Leaf {
    Kept(Version),
    Unkept(Untracked, Stat),
}

/// An ignored directory, and whether it is there before and after.
struct Ignored {
    path: Vec<u8>,
    before: bool,
    after: bool,
    /// It is named as one path, whatever changed in it.
    is_git: bool,
}

/// A directory on both sides, and the ignored one that it lies in.
struct Pair<'a> {
    path: Vec<u8>,
    before: Option<&'a Dir>,
    after: Option<&'a Dir>,
    ignored: Option<usize>,
}

#[derive(Default)]
struct Comparison<'a> {
    rest: Vec<Pair<'a>>,
    changed: Vec<Changed>,
    noticed: Vec<Noticed>,
    ignored: Vec<Ignored>,
}

/// What changed between two snapshots: kept files, and those that are not.
pub(super) fn between(objects: &Objects, before: Option<&Arc<Dir>>, after: &Arc<Dir>) -> Result<Vec<FileChange>> {
    if before.is_some_and(|before| Arc::ptr_eq(before, after)) {
        return Ok(Vec::new());
    }
    let mut comparison = Comparison::default();
    let (before, after) = (before.map(|dir| &**dir), Some(&**after));
    comparison.rest.push(Pair { path: Vec::new(), before, after, ignored: None });
    while let Some(pair) = comparison.rest.pop() {
        comparison.compare(&pair);
    }
    let mut effects = effects(objects, comparison.changed)?;
    notice(objects, comparison.noticed, &comparison.ignored, &mut effects)?;
    effects.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(effects)
}

/// The files that are different between two trees.
pub(super) fn of_trees(objects: &Objects, before: Option<ObjectId>, after: ObjectId) -> Result<Vec<Changed>> {
    let mut changed = Vec::new();
    let mut rest = vec![(Vec::new(), before, Some(after))];
    while let Some((path, before, after)) = rest.pop() {
        if before == after {
            continue;
        }
        let get = |id: Option<ObjectId>| id.map_or(Ok(Vec::new()), |id| objects.get(id, objects::Kind::Tree));
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
            let below = join(&path, entry.name);
            if entry.mode == Mode::Directory {
                rest.push((below, one.map(|entry| entry.id), other.map(|entry| entry.id)));
                continue;
            }
            let version = |entry: Option<&tree::Entry<'_>>| entry.map(|entry| (entry.mode, entry.id));
            if version(one) != version(other) {
                changed.push(Changed { path: below, before: version(one), after: version(other) });
            }
        }
    }
    Ok(by_path(changed))
}

/// A file that gave way to a directory of its name, or the other way round, is told before what is in there.
fn by_path(mut changed: Vec<Changed>) -> Vec<Changed> {
    changed.sort_by(|one, other| one.path.cmp(&other.path));
    changed
}

/// Changes of kept files as effects, with renames found.
pub(super) fn effects(objects: &Objects, changed: Vec<Changed>) -> Result<Vec<FileChange>> {
    let side = |version: fn(&Changed) -> (Option<Version>, Option<Version>)| {
        let files = changed.iter().enumerate().filter_map(move |(nth, one)| match version(one) {
            (Some((mode, id)), None) => Some((nth, Renamable { path: &one.path, mode, id })),
            _ => None,
        });
        files.unzip::<_, _, Vec<usize>, Vec<Renamable<'_>>>()
    };
    let (gone, sources) = side(|one| (one.before, one.after));
    let (new, targets) = side(|one| (one.after, one.before));
    let pairs = rename::find(objects, &sources, &targets, EFFECTS, None)?;
    let mut from = vec![None; changed.len()];
    let mut moved = vec![false; changed.len()];
    for pair in pairs {
        from[new[pair.target]] = Some(gone[pair.source]);
        moved[gone[pair.source]] = true;
    }
    let mut effects = Vec::with_capacity(changed.len());
    let digest = |version: Option<Version>| version.map(|(_, id)| objects.digest(id)).transpose();
    for (nth, one) in changed.iter().enumerate().filter(|(nth, _)| !moved[*nth]) {
        let from = from[nth].map(|from: usize| &changed[from]);
        let change = match (from, one.before, one.after) {
            (Some(from), ..) => ChangeKind::Renamed { from: quote::shown(&from.path).into_owned() },
            (None, None, _) => ChangeKind::Created,
            (None, _, None) => ChangeKind::Deleted,
            (None, _, _) => ChangeKind::Modified,
        };
        let before = digest(from.map_or(one.before, |from| from.before))?;
        let after = digest(one.after)?;
        effects.push(FileChange {
            path: quote::shown(&one.path).into_owned(),
            kind: change,
            before,
            after,
            untracked: None,
        });
    }
    Ok(effects)
}

fn notice(objects: &Objects, noticed: Vec<Noticed>, ignored: &[Ignored], effects: &mut Vec<FileChange>) -> Result<()> {
    let lost = |one: &Noticed| matches!(one.before, Some(Leaf::Kept(_))) || matches!(one.after, Some(Leaf::Kept(_)));
    let mut counts = vec![0; ignored.len()];
    for root in noticed.iter().filter(|one| !lost(one)).filter_map(|one| one.ignored) {
        counts[root] += 1;
    }
    let collapsed = |root: usize| counts[root] > COLLAPSED || (ignored[root].is_git && counts[root] > 0);
    for (_, root) in ignored.iter().enumerate().filter(|(nth, _)| collapsed(*nth)) {
        let change = change(root.before, root.after);
        let path = quote::shown(&root.path).into_owned();
        effects.push(FileChange { path, kind: change, before: None, after: None, untracked: Some(Untracked::Ignored) });
    }
    // A version of what is kept is never left out of the list.
    for one in noticed.iter().filter(|one| lost(one) || !one.ignored.is_some_and(collapsed)) {
        let digest = |leaf: Option<Leaf>| match leaf {
            Some(Leaf::Kept((_, id))) => objects.digest(id).map(Some),
            _ => Ok(None),
        };
        let unkept = match (one.before, one.after) {
            (_, Some(Leaf::Unkept(why, _))) | (Some(Leaf::Unkept(why, _)), None) => Some(why),
            _ => None,
        };
        let (before, after) = (digest(one.before)?, digest(one.after)?);
        let change = change(one.before.is_some(), one.after.is_some());
        effects.push(FileChange {
            path: quote::shown(&one.path).into_owned(),
            kind: change,
            before,
            after,
            untracked: unkept,
        });
    }
    Ok(())
}

fn change(before: bool, after: bool) -> ChangeKind {
    match (before, after) {
        (false, _) => ChangeKind::Created,
        (_, false) => ChangeKind::Deleted,
        _ => ChangeKind::Modified,
    }
}

impl<'a> Comparison<'a> {
    fn compare(&mut self, pair: &Pair<'a>) {
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

    fn entry(&mut self, pair: &Pair<'a>, one: Option<(&'a Dir, &'a Entry)>, other: Option<(&'a Dir, &'a Entry)>) {
        let child = |side: Option<(&'a Dir, &'a Entry)>| {
            side.and_then(|(dir, entry)| dir.child(entry)).filter(|child| !child.entries.is_empty())
        };
        let (before, after) = (child(one), child(other));
        if let (Some(before), Some(after)) = (before, after)
            && Arc::ptr_eq(before, after)
        {
            return;
        }
        let leaf =
            |side: Option<(&'a Dir, &'a Entry)>| side.filter(|_| child(side).is_none()).map(|(_, entry)| entry.leaf());
        let (mut was, mut is) = (leaf(one), leaf(other));
        // That there is another reason why something is not kept is no change of it.
        let same = match (was, is) {
            (Some(Leaf::Unkept(_, was)), Some(Leaf::Unkept(_, is))) => was == is,
            _ => was == is,
        };
        if same && before.is_none() && after.is_none() {
            return;
        }
        let Some((dir, entry)) = one.or(other) else { return };
        let path = join(&pair.path, dir.name(entry));
        let is_git = dir.name(entry).eq_ignore_ascii_case(b".git");
        let root = |side: Option<(&Dir, &Entry)>| {
            side.is_some_and(|(_, entry)| {
                entry.kind == Kind::Unkept(Untracked::Ignored) && (is_git || entry.child.is_some())
            })
        };
        let mut ignored = pair.ignored;
        if (is_git || ignored.is_none()) && (root(one) || root(other)) {
            ignored = Some(self.ignored.len());
            let (before, after) = (one.is_some(), other.is_some());
            self.ignored.push(Ignored { path: path.clone(), before, after, is_git });
        }
        // A directory with nothing in it is not gone, or new, when something comes into it or goes.
        let is_directory = |side: Option<(&Dir, &Entry)>| side.is_some_and(|(_, entry)| entry.child.is_some());
        if is_directory(one) && is_directory(other) {
            (was, is) = (None, None);
        }
        // One that holds too much to be looked into, now or before: it changed, and that is all that is known.
        let uncounted = |leaf: Option<Leaf>| matches!(leaf, Some(Leaf::Unkept(Untracked::Ignored, stat)) if stat.file_type() == FileType::Directory);
        if (uncounted(was) && after.is_some()) || (uncounted(is) && before.is_some()) {
            let some = Some(Leaf::Unkept(Untracked::Ignored, Stat::default()));
            self.noticed.push(Noticed { path, before: some, after: some, ignored });
            return;
        }
        match (was, is) {
            (None, None) => {}
            (None | Some(Leaf::Kept(_)), None | Some(Leaf::Kept(_))) => {
                let version = |leaf| match leaf {
                    Some(Leaf::Kept(version)) => Some(version),
                    _ => None,
                };
                let (before, after) = (version(was), version(is));
                self.changed.push(Changed { path: path.clone(), before, after });
            }
            _ => self.noticed.push(Noticed { path: path.clone(), before: was, after: is, ignored }),
        }
        if before.is_some() || after.is_some() {
            let (before, after) = (before.map(|dir| &**dir), after.map(|dir| &**dir));
            self.rest.push(Pair { path, before, after, ignored });
        }
    }
}

impl Entry {
    fn leaf(&self) -> Leaf {
        match self.kind {
            Kind::Kept(Mode::Directory) => Leaf::Unkept(Untracked::EmptyDirectory, Stat::default()),
            Kind::Kept(mode) => Leaf::Kept((mode, self.id)),
            Kind::Unkept(why) if self.child.is_some() => Leaf::Unkept(why, Stat::default()),
            Kind::Unkept(why) => Leaf::Unkept(why, self.stat),
        }
    }
}

pub(super) fn join(path: &[u8], name: &[u8]) -> Vec<u8> {
    let mut joined = Vec::with_capacity(path.len() + name.len() + 1);
    joined.extend_from_slice(path);
    if !path.is_empty() {
        joined.push(b'/');
    }
    joined.extend_from_slice(name);
    joined
}
