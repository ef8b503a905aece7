//! Three-way merges of trees, with the result of git's `ort` strategy.
//!
//! Renames are followed, files that one side adds to a directory which the other renamed are moved with it (and
//! reported), and contents are merged line by line. For a conflict, the tree contains what git would write: text with
//! conflict markers, or both versions under different names. The list of conflicts names the paths.

mod moves;
mod resolve;
mod text;

use std::collections::{BTreeMap, HashMap};

use crate::batch::Batch;
use crate::changes::{Version, join_path};
use crate::error::{Error, ErrorKind, Result};
use crate::limits::TreeWalk;
use crate::objects::{ObjectKind, Objects};
use crate::paths;
use crate::queries::TreeFile;
use crate::rename::{Relevance, Renamable, RenameQuery};
use crate::tree::{self, Mode, ObjectId, TreeId};

use self::moves::PathMove;

/// The result of merging two trees.
///
/// Returned by [`Objects::merge`]. See [`Conflict`] for an example.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MergeResult {
    /// The merged tree. For a conflict it contains what git would write: text with conflict markers, or both versions.
    pub tree: TreeId,
    /// The conflicts, by path; empty if the merge is clean.
    pub conflicts: Vec<Conflict>,
}

/// A path that both sides changed in ways that cannot be merged.
///
/// ```
/// use rath_workspace::{ConflictKind, Labels};
/// # use rath_workspace::{Objects, Workspace};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let temp = tempfile::tempdir()?;
/// # let project = temp.path().join("project");
/// # std::fs::create_dir(&project)?;
/// # let objects = Objects::open(&temp.path().join("versions"))?;
/// # let mut workspace = Workspace::open(&project, &objects, &temp.path().join("index"))?;
/// # let mut version = |content: &str| -> Result<_, Box<dyn std::error::Error>> {
/// #     std::fs::write(project.join("notes.txt"), content)?;
/// #     Ok(workspace.snapshot()?.tree)
/// # };
///
/// let (base, ours, theirs) = (version("one\n")?, version("two\n")?, version("three\n")?);
/// let merged = objects.merge(base, ours, theirs, Labels { ours: "ours", theirs: "theirs" })?;
/// assert_eq!(merged.conflicts[0].path, "notes.txt");
/// assert_eq!(merged.conflicts[0].kind, ConflictKind::Content);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The path, in the merged tree if it exists there.
    pub path: String,
    /// The kind of conflict.
    pub kind: ConflictKind,
    /// The version in the merge base.
    pub base: Option<TreeFile>,
    /// Our version.
    pub ours: Option<TreeFile>,
    /// Their version.
    pub theirs: Option<TreeFile>,
}

/// The kinds of conflict.
///
/// Part of [`Conflict`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConflictKind {
    /// Both changed the same lines, or a binary file. A text contains conflict markers; for a binary file, the tree
    /// contains our version.
    Content,
    /// Both added a file at this path.
    BothAdded,
    /// One side changed a file that the other deleted. The tree contains the changed file.
    ModifiedDeleted,
    /// One side renamed a file that the other deleted. The tree contains the renamed file.
    RenamedDeleted,
    /// Both renamed the file, to different paths. The tree contains both.
    RenamedApart,
    /// A file was renamed to a path where the other side has another file.
    RenamedTogether,
    /// One side has a file where the other has a directory. The file gets another name.
    FileAndDirectory,
    /// One side has a file, the other a link. The tree contains both, one under another name.
    FileAndLink,
    /// One side added the file to a directory that the other renamed. The file was moved with the directory, which may
    /// not be intended.
    Moved,
    /// A directory was split into several others, or a file is in the way at its new path. Files that the other side
    /// added stay where they are.
    Unmoved,
}

/// The names of the two sides, in conflict markers and in the names of files that had to be renamed.
///
/// Passed to [`Objects::merge`]. See [`Conflict`] for an example.
#[derive(Clone, Copy, Debug)]
pub struct Labels<'a> {
    /// The first side.
    pub ours: &'a str,
    /// The second side.
    pub theirs: &'a str,
}

/// The limit for rename detection in a merge, as in git: with more pairs of candidates than its square, they are not
/// compared.
const MERGE_RENAME_LIMIT: usize = 7000;

impl Objects {
    /// Merges two trees that come from a common one.
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

/// The number of the merge base among the three sides.
const BASE: usize = 0;

/// A merge in progress. Sides are numbered: 0 is the base, 1 ours, 2 theirs.
struct Merge<'a> {
    objects: &'a Objects,
    batch: &'a Batch<'a>,
    labels: Labels<'a>,
    /// All paths that are not equal on all three sides.
    paths: BTreeMap<Vec<u8>, PathInfo>,
    /// Directories that are equal on all three sides. They stay as they are, unless a file is moved into them.
    unchanged_dirs: BTreeMap<Vec<u8>, ObjectId>,
    /// The deleted and added files of each side.
    sides: [SideChanges; 2],
    /// The files and directories of the result.
    result: BTreeMap<Vec<u8>, Version>,
    conflicts: Vec<Conflict>,
    /// New blobs, which cannot be read from the objects before the batch is finished.
    new_blobs: HashMap<ObjectId, Vec<u8>>,
}

/// The state of a path, on all three sides.
#[derive(Clone, Debug, Default)]
struct PathInfo {
    /// The versions, by side.
    stages: [Option<Version>; 3],
    /// The original path on each side.
    names: [Vec<u8>; 3],
    /// The sides on which the path is a directory, as a mask.
    directories: u8,
    /// The sides with equal versions, as a mask.
    same: u8,
    /// A conflict about the path itself, for any content.
    path_conflict: Option<ConflictKind>,
    /// The result, once it is decided; the inner value is none for a deleted file.
    resolved: Option<Option<Version>>,
}

/// The deleted and added files of one side, and its renames.
#[derive(Debug, Default)]
struct SideChanges {
    deleted: Vec<(Vec<u8>, Version)>,
    added: Vec<(Vec<u8>, Version)>,
    renames: RenameQuery,
    moves: Vec<PathMove>,
}

/// A directory on all three sides.
struct MergeLevel {
    path: Vec<u8>,
    trees: [Option<ObjectId>; 3],
    /// The side that has a directory which the other removed, as a mask; all bits if the new place of the directory
    /// matters.
    kept_by: u8,
}

/// The mask of all three sides.
const ALL_SIDES: u8 = 7;

/// The entries of a directory, by name.
type NamedEntries = Vec<(Vec<u8>, Version)>;

impl PathInfo {
    /// Returns the sides on which the path is a file, as a mask.
    fn files(&self) -> u8 {
        (0..3).filter(|side| self.stages[*side].is_some()).map(|side| 1 << side).sum()
    }
}

impl Merge<'_> {
    /// Reads the three trees where they differ.
    fn collect(&mut self, trees: [ObjectId; 3]) -> Result<()> {
        let mut rest = vec![MergeLevel { path: Vec::new(), trees: trees.map(Some), kept_by: 0 }];
        let mut walk = TreeWalk::new(self.objects, trees);
        while let Some(level) = rest.pop() {
            let mut bytes = [Vec::new(), Vec::new(), Vec::new()];
            for (side, id) in level.trees.iter().enumerate() {
                if let Some(id) = id {
                    bytes[side] = self.objects.get(*id, ObjectKind::Tree)?;
                }
            }
            let mut names: BTreeMap<&[u8], [Option<Version>; 3]> = BTreeMap::new();
            for (side, bytes) in bytes.iter().enumerate() {
                for entry in tree::entries(level.trees[side].unwrap_or(tree::EMPTY_TREE), bytes)? {
                    names.entry(entry.name).or_default()[side] = Some((entry.mode, entry.id));
                }
            }
            walk.add_names(names.len())?;
            let mut kept_by = level.kept_by;
            let is_file = |version: &Option<Version>| version.is_some_and(|(mode, _)| mode != Mode::Directory);
            let mask = |versions: &[Option<Version>; 3], is: &dyn Fn(&Option<Version>) -> bool| -> u8 {
                (0..3).filter(|side| is(&versions[*side])).map(|side| 1 << side).sum()
            };
            // A new file in a directory that the other side removed: the new place of the directory matters.
            if names.values().any(|versions| kept_by != 0 && mask(versions, &is_file) == kept_by) {
                kept_by = ALL_SIDES;
            }
            for (name, versions) in names {
                let path = join_path(&level.path, name);
                let files = mask(&versions, &is_file);
                let directories = mask(&versions, &|version| version.is_some()) & !files;
                if let Some(level) = self.collect_path(&level.path, path, versions, (files, directories), kept_by) {
                    rest.push(level);
                }
            }
        }
        for side in &mut self.sides {
            side.deleted.sort();
            side.added.sort();
        }
        Ok(())
    }

    /// Adds one name, and returns the directory if it has to be read.
    fn collect_path(
        &mut self,
        parent: &[u8],
        path: Vec<u8>,
        versions: [Option<Version>; 3],
        (files, directories): (u8, u8),
        mut kept_by: u8,
    ) -> Option<MergeLevel> {
        let [base, ours, theirs] = versions;
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
        let stages = versions.map(|version| version.filter(|(mode, _)| *mode != Mode::Directory));
        let mut info = PathInfo { stages, same, directories, resolved: clear, ..PathInfo::default() };
        info.names = [path.clone(), path.clone(), path.clone()];
        if clear.is_none() {
            self.collect_rename_candidates(parent, &path, &info, (files, directories), &mut kept_by);
        }
        let tree = |side: usize| versions[side].filter(|(mode, _)| *mode == Mode::Directory).map(|(_, id)| id);
        let level =
            (directories != 0).then(|| MergeLevel { path: path.clone(), trees: [tree(0), tree(1), tree(2)], kept_by });
        self.paths.insert(path, info);
        level
    }

    /// Adds a path to the candidates for renames.
    fn collect_rename_candidates(
        &mut self,
        parent: &[u8],
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
            self.sides[other].renames.directories.insert(parent.to_vec(), Relevance::ForItself);
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

    /// Writes the tree objects of the result.
    fn write(&mut self) -> Result<ObjectId> {
        // A directory that no file was moved into is used as it is.
        for (path, id) in std::mem::take(&mut self.unchanged_dirs) {
            let mut inside = path.clone();
            inside.push(b'/');
            let entered = self.result.range(inside.clone()..).next().is_some_and(|(path, _)| path.starts_with(&inside));
            if !entered {
                self.result.insert(path, (Mode::Directory, id));
                continue;
            }
            for file in crate::changes::diff_trees(self.objects, None, id)? {
                let Some(version) = file.after else { continue };
                self.result.entry(join_path(&path, &file.path)).or_insert(version);
            }
        }
        let mut open: Vec<(Vec<u8>, NamedEntries)> = vec![(Vec::new(), Vec::new())];
        for (path, version) in std::mem::take(&mut self.result) {
            let (directory, name) = (crate::rename::directory(&path), crate::rename::last_name(&path));
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

    /// Writes a complete directory, and adds it to its parent.
    fn close_dir(&mut self, open: &mut Vec<(Vec<u8>, NamedEntries)>) -> Result<()> {
        let Some((path, entries)) = open.pop() else { return Ok(()) };
        let id = self.put_tree(&entries)?;
        if let Some((_, parent)) = open.last_mut() {
            parent.push((crate::rename::last_name(&path).to_vec(), (Mode::Directory, id)));
        }
        Ok(())
    }

    /// Writes one tree object.
    fn put_tree(&self, named: &NamedEntries) -> Result<ObjectId> {
        let mut names: Vec<&[u8]> = named.iter().map(|(name, _)| &**name).collect();
        names.sort_unstable();
        // No case is known that leads here. A tree with two entries of the same name would lose one of them.
        if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            let message = format!("the merge would write two entries with the name `{}`", paths::path_text(pair[0]));
            return Err(Error::new(ErrorKind::Merge, message));
        }
        let mut entries: Vec<_> =
            named.iter().map(|(name, (mode, id))| tree::TreeEntry { mode: *mode, name, id: *id }).collect();
        self.batch.put(ObjectKind::Tree, &tree::encode(&mut entries))?.ok_or_else(collides)
    }

    /// Returns the content of a blob, which may be new.
    fn content(&self, id: ObjectId) -> Result<Vec<u8>> {
        match self.new_blobs.get(&id) {
            Some(content) => Ok(content.clone()),
            None => self.objects.get(id, ObjectKind::Blob),
        }
    }

    /// Adds a conflict.
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
    Error::new(ErrorKind::Merge, "the result of the merge is part of a SHA-1 collision attack and cannot be stored")
}

/// Returns true if a directory is another one or lies in it.
fn is_in(directory: &[u8], parent: &[u8]) -> bool {
    parent.is_empty()
        || directory.strip_prefix(parent).is_some_and(|rest| rest.is_empty() || rest.first() == Some(&b'/'))
}

/// Returns files as candidates for renames.
fn renamable(files: &[(Vec<u8>, Version)]) -> Vec<Renamable<'_>> {
    files.iter().map(|(path, (mode, id))| Renamable { path, mode: *mode, id: *id }).collect()
}
