//! Two trees joined by what they have in common, as git's own merge does it.
//!
//! This is the `ort` strategy of git, case by case: renames are followed, files that one side adds to a directory which the
//! other renamed are moved along (and reported), contents are merged line by line. Where it stops being clear, the tree holds
//! what git would leave: text with markers, or both versions side by side; and the list says where.

mod moves;
mod resolve;
mod text;

use std::collections::{BTreeMap, HashMap};

use crate::tree::TreeId;

use self::moves::PathMove;
use super::batch::Batch;
use super::changes::{Version, join_path};
use super::objects::{ObjectKind, Objects};
use super::paths;
use super::queries::TreeFile;
use super::rename::{Relevance, Renamable, RenameQuery};
use super::tree::{self, Mode, ObjectId};
use crate::error::{Error, ErrorKind, Result};

/// What came of joining two trees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MergeResult {
    /// The tree. With conflicts, it holds what git would leave: text with markers, or both versions.
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
    pub base: Option<TreeFile>,
    /// Our version.
    pub ours: Option<TreeFile>,
    /// Their version.
    pub theirs: Option<TreeFile>,
}

/// What two sides disagree about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConflictKind {
    /// Both changed the same lines, or something that has no lines. The text has markers; of what is no text it is our version.
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

/// What the two sides are called in markers, and in the names of files that had to give way.
#[derive(Clone, Copy, Debug)]
pub struct Labels<'a> {
    /// The first side.
    pub ours: &'a str,
    /// The second side.
    pub theirs: &'a str,
}

/// More candidates for renames than the square of this are not compared with each other; git's number.
const MERGE_RENAME_LIMIT: usize = 7000;

impl Objects {
    /// Joins two trees that come from a common one.
    pub fn merge(&self, base: TreeId, ours: TreeId, theirs: TreeId, labels: Labels<'_>) -> Result<MergeResult> {
        let batch = Batch::new(self);
        let mut merge = Merge {
            objects: self,
            batch: &batch,
            labels,
            paths: BTreeMap::new(),
            unchanged_dirs: BTreeMap::new(),
            sides: [SideChanges::default(), SideChanges::default()],
            result: BTreeMap::new(),
            conflicts: Vec::new(),
            new_blobs: HashMap::new(),
        };
        merge.collect([base.0, ours.0, theirs.0])?;
        let moved = merge.find_moves()?;
        merge.apply_moves(moved)?;
        merge.resolve_all()?;
        let tree = TreeId(merge.write()?);
        let mut conflicts = merge.conflicts;
        batch.finish()?;
        conflicts.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(MergeResult { tree, conflicts })
    }
}

const BASE: usize = 0;

/// A merge on its way.
struct Merge<'a> {
    objects: &'a Objects,
    batch: &'a Batch<'a>,
    labels: Labels<'a>,
    /// Everything that is not the same in all three.
    paths: BTreeMap<Vec<u8>, PathInfo>,
    /// DirectoryRenames that are: they stay as they are, unless something moves into them.
    unchanged_dirs: BTreeMap<Vec<u8>, ObjectId>,
    /// What each side deleted and added.
    sides: [SideChanges; 2],
    /// What is in the result.
    result: BTreeMap<Vec<u8>, Version>,
    conflicts: Vec<Conflict>,
    /// MergedContent that were made here, and may not be there to be read yet.
    new_blobs: HashMap<ObjectId, Vec<u8>>,
}

/// What is known of a path: base, ours and theirs, in this order, everywhere.
#[derive(Clone, Debug, Default)]
struct PathInfo {
    stages: [Option<Version>; 3],
    /// The names under which it was there.
    names: [Vec<u8>; 3],
    /// On which sides it is a directory.
    directories: u8,
    /// Which two are the same.
    same: u8,
    /// It conflicts by where it is, whatever it holds.
    path_conflict: Option<ConflictKind>,
    /// There is a file and a directory of this name.
    with_directory: bool,
    /// What became of it, if that is clear.
    resolved: Option<Option<Version>>,
}

/// What one side deleted and added.
#[derive(Debug, Default)]
struct SideChanges {
    deleted: Vec<(Vec<u8>, Version)>,
    added: Vec<(Vec<u8>, Version)>,
    renames: RenameQuery,
    moves: Vec<PathMove>,
}

/// A directory that is walked on all three sides.
struct MergeLevel {
    path: Vec<u8>,
    trees: [Option<ObjectId>; 3],
    /// Which side kept a directory that the other removed, as a mask; all bits if it matters where it went.
    kept_by: u8,
}

const ALL_SIDES: u8 = 7;

/// What is in a directory, by name.
type NamedEntries = Vec<(Vec<u8>, Version)>;

impl PathInfo {
    /// On which sides there is a file.
    fn files(&self) -> u8 {
        (0..3).filter(|side| self.stages[*side].is_some()).map(|side| 1 << side).sum()
    }
}

impl Merge<'_> {
    /// Reads the three trees as far as they differ.
    fn collect(&mut self, trees: [ObjectId; 3]) -> Result<()> {
        let mut rest = vec![MergeLevel { path: Vec::new(), trees: trees.map(Some), kept_by: 0 }];
        while let Some(level) = rest.pop() {
            let mut bytes = [Vec::new(), Vec::new(), Vec::new()];
            for (side, id) in level.trees.iter().enumerate() {
                if let Some(id) = id {
                    bytes[side] = self.objects.get(*id, ObjectKind::Tree)?;
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
                kept_by = ALL_SIDES;
            }
            for (name, found) in names {
                let path = join_path(&level.path, name);
                let files = mask(&found, &is_file);
                let directories = mask(&found, &|version| version.is_some()) & !files;
                if let Some(below) = self.collect_path(&level.path, path, found, (files, directories), kept_by) {
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
    fn collect_path(
        &mut self,
        above: &[u8],
        path: Vec<u8>,
        found: [Option<Version>; 3],
        (files, directories): (u8, u8),
        mut kept_by: u8,
    ) -> Option<MergeLevel> {
        let [base, ours, theirs] = found;
        let same = match (
            base.is_some() && base == ours,
            base.is_some() && base == theirs,
            ours.is_some() && ours == theirs,
        ) {
            (true, true, _) => ALL_SIDES,
            (true, false, _) => 3,
            (false, true, _) => 5,
            (false, false, true) => 6,
            _ => 0,
        };
        if same == ALL_SIDES && directories == ALL_SIDES {
            self.unchanged_dirs.insert(path, base?.1);
            return None;
        }
        let clear = match (same, files) {
            (ALL_SIDES, _) => Some(base),
            (3, ALL_SIDES) => Some(theirs),
            (5 | 6, ALL_SIDES) => Some(ours),
            _ => None,
        };
        let stages = found.map(|version| version.filter(|(mode, _)| *mode != Mode::Directory));
        let mut info = PathInfo { stages, same, directories, resolved: clear, ..PathInfo::default() };
        info.names = [path.clone(), path.clone(), path.clone()];
        info.with_directory = files != 0 && directories != 0;
        if clear.is_none() {
            self.collect_rename_candidates(above, &path, &info, (files, directories), &mut kept_by);
        }
        let tree = |side: usize| found[side].filter(|(mode, _)| *mode == Mode::Directory).map(|(_, id)| id);
        let below =
            (directories != 0).then(|| MergeLevel { path: path.clone(), trees: [tree(0), tree(1), tree(2)], kept_by });
        self.paths.insert(path, info);
        below
    }

    /// Notes what the search for renames has to know of a path.
    fn collect_rename_candidates(
        &mut self,
        above: &[u8],
        path: &[u8],
        info: &PathInfo,
        (files, directories): (u8, u8),
        kept_by: &mut u8,
    ) {
        if *kept_by != ALL_SIDES && matches!(directories, 3 | 5) {
            *kept_by = directories & !1;
        }
        if matches!(directories, 1 | 3 | 5) {
            let relevance = if *kept_by == ALL_SIDES { Relevance::ForAncestor } else { Relevance::None };
            for side in [1, 2].into_iter().filter(|side| directories & 1 << side == 0) {
                self.sides[side - 1].renames.directories.insert(path.to_vec(), relevance);
            }
        }
        if *kept_by == ALL_SIDES && matches!(files, 2 | 4) {
            let other = if files == 2 { 1 } else { 0 };
            self.sides[other].renames.directories.insert(above.to_vec(), Relevance::ForItself);
        }
        if files == 0 || files == ALL_SIDES {
            return;
        }
        for side in [1, 2] {
            let changes = &mut self.sides[side - 1];
            match (info.stages[BASE], info.stages[side]) {
                (Some(version), None) => {
                    let for_content = info.same & files == 0;
                    if for_content || *kept_by == ALL_SIDES {
                        changes.renames.sources.insert(path.to_vec(), for_content);
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
        for (path, id) in std::mem::take(&mut self.unchanged_dirs) {
            let mut inside = path.clone();
            inside.push(b'/');
            let entered = self.result.range(inside.clone()..).next().is_some_and(|(path, _)| path.starts_with(&inside));
            if !entered {
                self.result.insert(path, (Mode::Directory, id));
                continue;
            }
            for file in super::changes::diff_trees(self.objects, None, id)? {
                let Some(version) = file.after else { continue };
                self.result.entry(join_path(&path, &file.path)).or_insert(version);
            }
        }
        let mut open: Vec<(Vec<u8>, NamedEntries)> = vec![(Vec::new(), Vec::new())];
        let done = std::mem::take(&mut self.result);
        for (path, version) in done {
            let (directory, name) = (super::rename::directory(&path), super::rename::last_name(&path));
            while open.last().is_some_and(|(at, _)| !is_in(directory, at)) {
                self.close_dir(&mut open)?;
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
            self.close_dir(&mut open)?;
        }
        let (_, entries) = open.pop().unwrap_or_default();
        self.put_tree(&entries)
    }

    /// Writes a directory that nothing more comes into, and puts it in the one above.
    fn close_dir(&mut self, open: &mut Vec<(Vec<u8>, NamedEntries)>) -> Result<()> {
        let Some((path, entries)) = open.pop() else { return Ok(()) };
        let id = self.put_tree(&entries)?;
        if let Some((_, above)) = open.last_mut() {
            above.push((super::rename::last_name(&path).to_vec(), (Mode::Directory, id)));
        }
        Ok(())
    }

    fn put_tree(&self, named: &NamedEntries) -> Result<ObjectId> {
        let mut names: Vec<&[u8]> = named.iter().map(|(name, _)| &**name).collect();
        names.sort_unstable();
        // No case is known that leads here; a tree with two entries of one name would lose one of them.
        if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            let message = format!("the merge has two things that are called `{}`", paths::path_text(pair[0]));
            return Err(Error::new(ErrorKind::Merge, message));
        }
        let mut entries: Vec<_> =
            named.iter().map(|(name, (mode, id))| tree::TreeEntry { mode: *mode, name, id: *id }).collect();
        self.batch.put(ObjectKind::Tree, &tree::encode(&mut entries))?.ok_or_else(collides)
    }

    /// The content of a blob, be it one that was just made.
    fn content(&self, id: ObjectId) -> Result<Vec<u8>> {
        match self.new_blobs.get(&id) {
            Some(content) => Ok(content.clone()),
            None => self.objects.get(id, ObjectKind::Blob),
        }
    }

    fn add_conflict(&mut self, path: &[u8], kind: ConflictKind, info: Option<&PathInfo>) {
        let version = |side: usize| {
            let info = info?;
            let (mode, id) = info.stages[side]?;
            Some(TreeFile { path: paths::path_text(&info.names[side]).into_owned(), mode, id })
        };
        let (base, ours, theirs) = (version(0), version(1), version(2));
        self.conflicts.push(Conflict { path: paths::path_text(path).into_owned(), kind, base, ours, theirs });
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
