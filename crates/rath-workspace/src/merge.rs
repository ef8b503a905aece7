//! Two trees joined by what they have in common, as git's own merge does it.
//!
//! This is the `ort` strategy of git, case by case: renames are followed, files that one side adds to a directory which the
//! other renamed are moved along (and reported), contents are merged line by line. Where it stops being clear, the tree holds
//! what git would leave: text with marks, or both versions side by side; and the list says where.

mod entry;
mod moves;
mod text;

use std::collections::{BTreeMap, HashMap};

use crate::tree::TreeId;

use self::moves::Moved;
use super::batch::Batch;
use super::changes::{Version, join};
use super::objects::{Kind, Objects};
use super::quote;
use super::rename::{Relevance, Renamable, Wanted};
use super::tree::{self, Mode, ObjectId};
use super::versions::Kept;
use crate::error::{Error, ErrorKind, Result};

/// What came of joining two trees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joined {
    /// The tree. With conflicts, it holds what git would leave: text with marks, or both versions.
    pub tree: TreeId,
    /// Where the two sides disagree, by path; none if they do not.
    pub conflicts: Vec<Conflict>,
}

/// A path that two sides disagree about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The path, in the joined tree if it is there.
    pub path: String,
    /// What they disagree about.
    pub kind: ConflictKind,
    /// What both came from.
    pub base: Option<Kept>,
    /// Our version.
    pub ours: Option<Kept>,
    /// Their version.
    pub theirs: Option<Kept>,
}

/// What two sides disagree about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConflictKind {
    /// Both changed the same lines, or something that has no lines. The text has marks; of what is no text it is our version.
    Content,
    /// Both made a file of this name.
    BothAdded,
    /// One changed what the other deleted. It is kept.
    ModifiedDeleted,
    /// One renamed what the other deleted. It is kept.
    RenamedDeleted,
    /// Both renamed it, each to another name. It is kept under both.
    RenamedApart,
    /// Something was renamed to where the other side has something else.
    RenamedTogether,
    /// One has a file where the other has a directory. The file is kept under another name.
    FileAndDirectory,
    /// One has a file, the other a link. Both are kept, one under another name.
    FileAndLink,
    /// One side made it in a directory that the other renamed. It was moved along, which may not be what was meant.
    Moved,
    /// A directory was renamed to several others, or something is where it went: what the other side made there stays.
    Unmoved,
}

/// What the two sides are called in marks, and in the names of files that had to give way.
#[derive(Clone, Copy, Debug)]
pub struct Labels<'a> {
    /// The first side.
    pub ours: &'a str,
    /// The second side.
    pub theirs: &'a str,
}

/// More candidates for renames than the square of this are not compared with each other; git's number.
const RENAMES: usize = 7000;

impl Objects {
    /// Joins two trees that come from a common one.
    pub fn merge(&self, base: TreeId, ours: TreeId, theirs: TreeId, labels: Labels<'_>) -> Result<Joined> {
        let batch = Batch::new(self);
        let mut merge = Merge {
            objects: self,
            batch: &batch,
            labels,
            paths: BTreeMap::new(),
            whole: BTreeMap::new(),
            sides: [Changes::default(), Changes::default()],
            done: BTreeMap::new(),
            conflicts: Vec::new(),
            fresh: HashMap::new(),
        };
        merge.collect([base.0, ours.0, theirs.0])?;
        let moved = merge.find_moves()?;
        merge.apply_moves(moved)?;
        merge.process()?;
        let tree = TreeId(merge.write()?);
        let mut conflicts = merge.conflicts;
        batch.finish()?;
        conflicts.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(Joined { tree, conflicts })
    }
}

const BASE: usize = 0;

/// A merge on its way.
struct Merge<'a> {
    objects: &'a Objects,
    batch: &'a Batch<'a>,
    labels: Labels<'a>,
    /// Everything that is not the same in all three.
    paths: BTreeMap<Vec<u8>, Info>,
    /// Directories that are: they stay as they are, unless something moves into them.
    whole: BTreeMap<Vec<u8>, ObjectId>,
    /// What each side deleted and added.
    sides: [Changes; 2],
    /// What is in the result.
    done: BTreeMap<Vec<u8>, Version>,
    conflicts: Vec<Conflict>,
    /// Contents that were made here, and may not be there to be read yet.
    fresh: HashMap<ObjectId, Vec<u8>>,
}

/// What is known of a path: base, ours and theirs, in this order, everywhere.
#[derive(Clone, Debug, Default)]
struct Info {
    stages: [Option<Version>; 3],
    /// The names under which it was there.
    names: [Vec<u8>; 3],
    /// On which sides it is a directory.
    directories: u8,
    /// Which two are the same.
    same: u8,
    /// It conflicts by where it is, whatever it holds.
    misplaced: Option<ConflictKind>,
    /// There is a file and a directory of this name.
    with_directory: bool,
    /// What became of it, if that is clear.
    clean: Option<Option<Version>>,
}

/// What one side deleted and added.
#[derive(Debug, Default)]
struct Changes {
    deleted: Vec<(Vec<u8>, Version)>,
    added: Vec<(Vec<u8>, Version)>,
    wanted: Wanted,
    moves: Vec<Moved>,
}

/// A directory that is walked on all three sides.
struct Level {
    path: Vec<u8>,
    trees: [Option<ObjectId>; 3],
    /// Which side kept a directory that the other removed, as a mask; all bits if it matters where it went.
    kept_by: u8,
}

const ALL: u8 = 7;

/// What is in a directory, by name.
type Named = Vec<(Vec<u8>, Version)>;

impl Info {
    /// On which sides there is a file.
    fn files(&self) -> u8 {
        (0..3).filter(|side| self.stages[*side].is_some()).map(|side| 1 << side).sum()
    }
}

impl Merge<'_> {
    /// Reads the three trees as far as they differ.
    fn collect(&mut self, trees: [ObjectId; 3]) -> Result<()> {
        let mut rest = vec![Level { path: Vec::new(), trees: trees.map(Some), kept_by: 0 }];
        while let Some(level) = rest.pop() {
            let mut bytes = [Vec::new(), Vec::new(), Vec::new()];
            for (side, id) in level.trees.iter().enumerate() {
                if let Some(id) = id {
                    bytes[side] = self.objects.get(*id, Kind::Tree)?;
                }
            }
            let mut names: BTreeMap<&[u8], [Option<Version>; 3]> = BTreeMap::new();
            for (side, bytes) in bytes.iter().enumerate() {
                for entry in tree::entries(level.trees[side].unwrap_or(tree::EMPTY), bytes)? {
                    names.entry(entry.name).or_default()[side] = Some((entry.mode, entry.id));
                }
            }
            let mut kept_by = level.kept_by;
            let is_file = |version: &Option<Version>| version.is_some_and(|(mode, _)| mode != Mode::Directory);
            let mask = |found: &[Option<Version>; 3], is: &dyn Fn(&Option<Version>) -> bool| -> u8 {
                (0..3).filter(|side| is(&found[*side])).map(|side| 1 << side).sum()
            };
            // Something new in a directory that the other side removed: it matters where to.
            if names.values().any(|found| kept_by != 0 && mask(found, &is_file) == kept_by) {
                kept_by = ALL;
            }
            for (name, found) in names {
                let path = join(&level.path, name);
                let files = mask(&found, &is_file);
                let directories = mask(&found, &|version| version.is_some()) & !files;
                if let Some(below) = self.enter(&level.path, path, found, (files, directories), kept_by) {
                    rest.push(below);
                }
            }
        }
        for side in &mut self.sides {
            side.deleted.sort();
            side.added.sort();
        }
        Ok(())
    }

    /// Takes in one name on all three sides; says what has to be looked into.
    fn enter(
        &mut self,
        above: &[u8],
        path: Vec<u8>,
        found: [Option<Version>; 3],
        (files, directories): (u8, u8),
        mut kept_by: u8,
    ) -> Option<Level> {
        let [base, ours, theirs] = found;
        let same = match (
            base.is_some() && base == ours,
            base.is_some() && base == theirs,
            ours.is_some() && ours == theirs,
        ) {
            (true, true, _) => ALL,
            (true, false, _) => 3,
            (false, true, _) => 5,
            (false, false, true) => 6,
            _ => 0,
        };
        if same == ALL && directories == ALL {
            self.whole.insert(path, base?.1);
            return None;
        }
        let clear = match (same, files) {
            (ALL, _) => Some(base),
            (3, ALL) => Some(theirs),
            (5 | 6, ALL) => Some(ours),
            _ => None,
        };
        let stages = found.map(|version| version.filter(|(mode, _)| *mode != Mode::Directory));
        let mut info = Info { stages, same, directories, clean: clear, ..Info::default() };
        info.names = [path.clone(), path.clone(), path.clone()];
        info.with_directory = files != 0 && directories != 0;
        if clear.is_none() {
            self.note(above, &path, &info, (files, directories), &mut kept_by);
        }
        let tree = |side: usize| found[side].filter(|(mode, _)| *mode == Mode::Directory).map(|(_, id)| id);
        let below =
            (directories != 0).then(|| Level { path: path.clone(), trees: [tree(0), tree(1), tree(2)], kept_by });
        self.paths.insert(path, info);
        below
    }

    /// Notes what the search for renames has to know of a path.
    fn note(&mut self, above: &[u8], path: &[u8], info: &Info, (files, directories): (u8, u8), kept_by: &mut u8) {
        if *kept_by != ALL && matches!(directories, 3 | 5) {
            *kept_by = directories & !1;
        }
        if matches!(directories, 1 | 3 | 5) {
            let relevance = if *kept_by == ALL { Relevance::ForAncestor } else { Relevance::None };
            for side in [1, 2].into_iter().filter(|side| directories & 1 << side == 0) {
                self.sides[side - 1].wanted.directories.insert(path.to_vec(), relevance);
            }
        }
        if *kept_by == ALL && matches!(files, 2 | 4) {
            let other = if files == 2 { 1 } else { 0 };
            self.sides[other].wanted.directories.insert(above.to_vec(), Relevance::ForItself);
        }
        if files == 0 || files == ALL {
            return;
        }
        for side in [1, 2] {
            let changes = &mut self.sides[side - 1];
            match (info.stages[BASE], info.stages[side]) {
                (Some(version), None) => {
                    let for_content = info.same & files == 0;
                    if for_content || *kept_by == ALL {
                        changes.wanted.sources.insert(path.to_vec(), for_content);
                    }
                    changes.deleted.push((path.to_vec(), version));
                }
                (None, Some(version)) => changes.added.push((path.to_vec(), version)),
                _ => {}
            }
        }
    }

    /// Writes the result, directory by directory.
    fn write(&mut self) -> Result<ObjectId> {
        // A directory that nothing came into is taken as it is.
        for (path, id) in std::mem::take(&mut self.whole) {
            let mut inside = path.clone();
            inside.push(b'/');
            let entered = self.done.range(inside.clone()..).next().is_some_and(|(path, _)| path.starts_with(&inside));
            if !entered {
                self.done.insert(path, (Mode::Directory, id));
                continue;
            }
            for file in super::changes::of_trees(self.objects, None, id)? {
                let Some(version) = file.after else { continue };
                self.done.entry(join(&path, &file.path)).or_insert(version);
            }
        }
        let mut open: Vec<(Vec<u8>, Named)> = vec![(Vec::new(), Vec::new())];
        let done = std::mem::take(&mut self.done);
        for (path, version) in done {
            let (directory, name) = (super::rename::directory(&path), super::rename::last_name(&path));
            while open.last().is_some_and(|(at, _)| !is_in(directory, at)) {
                self.close(&mut open)?;
            }
            while let Some((at, _)) = open.last()
                && at != directory
            {
                let from = if at.is_empty() { 0 } else { at.len() + 1 };
                let until = memchr::memchr(b'/', &directory[from..]).map_or(directory.len(), |slash| from + slash);
                let next = directory[..until].to_vec();
                open.push((next, Vec::new()));
            }
            if let Some((_, entries)) = open.last_mut() {
                entries.push((name.to_vec(), version));
            }
        }
        while open.len() > 1 {
            self.close(&mut open)?;
        }
        let (_, entries) = open.pop().unwrap_or_default();
        self.put_tree(&entries)
    }

    /// Writes a directory that nothing more comes into, and puts it in the one above.
    fn close(&mut self, open: &mut Vec<(Vec<u8>, Named)>) -> Result<()> {
        let Some((path, entries)) = open.pop() else { return Ok(()) };
        let id = self.put_tree(&entries)?;
        if let Some((_, above)) = open.last_mut() {
            above.push((super::rename::last_name(&path).to_vec(), (Mode::Directory, id)));
        }
        Ok(())
    }

    fn put_tree(&self, named: &Named) -> Result<ObjectId> {
        let mut names: Vec<&[u8]> = named.iter().map(|(name, _)| &**name).collect();
        names.sort_unstable();
        // No case is known that leads here; a tree with two entries of one name would lose one of them.
        if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            let message = format!("the merge has two things that are called `{}`", quote::shown(pair[0]));
            return Err(Error::new(ErrorKind::Merge, message));
        }
        let mut entries: Vec<_> =
            named.iter().map(|(name, (mode, id))| tree::Entry { mode: *mode, name, id: *id }).collect();
        self.batch.put(Kind::Tree, &tree::encode(&mut entries))?.ok_or_else(collides)
    }

    /// The content of a blob, be it one that was just made.
    fn content(&self, id: ObjectId) -> Result<Vec<u8>> {
        match self.fresh.get(&id) {
            Some(content) => Ok(content.clone()),
            None => self.objects.get(id, Kind::Blob),
        }
    }

    fn report(&mut self, path: &[u8], kind: ConflictKind, info: Option<&Info>) {
        let version = |side: usize| {
            let info = info?;
            let (mode, id) = info.stages[side]?;
            Some(Kept { path: quote::shown(&info.names[side]).into_owned(), mode, id })
        };
        let (base, ours, theirs) = (version(0), version(1), version(2));
        self.conflicts.push(Conflict { path: quote::shown(path).into_owned(), kind, base, ours, theirs });
    }
}

fn collides() -> Error {
    Error::new(ErrorKind::Merge, "what the merge would write is made to collide with something else")
}

/// Whether a directory is another one, or lies in it.
fn is_in(directory: &[u8], above: &[u8]) -> bool {
    above.is_empty() || directory.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.first() == Some(&b'/'))
}

fn renamable(files: &[(Vec<u8>, Version)]) -> Vec<Renamable<'_>> {
    files.iter().map(|(path, (mode, id))| Renamable { path, mode: *mode, id: *id }).collect()
}
