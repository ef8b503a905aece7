//! Limits: a workspace opened at `/` by mistake fails early instead of being copied, and a few trees of others that stand for
//! countless files are not walked.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::error::{Error, ErrorKind, Result};
use crate::objects::{ObjectKind, Objects};
use crate::tree::{self, Mode, ObjectId, TreeEntry};
use crate::walk::MAX_DEPTH;

/// The limits for one snapshot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SnapshotLimits {
    /// The number of names that are not ignored.
    pub(crate) names: u64,
    /// The number of bytes in files that have to be read.
    pub(crate) bytes: u64,
}

/// The names and bytes that a snapshot has found so far.
pub(crate) struct SnapshotUsage {
    limits: SnapshotLimits,
    names: AtomicU64,
    bytes: AtomicU64,
}

/// The most names that a snapshot may have, and so a tree.
const MAX_NAMES: u64 = 1_000_000;

impl Default for SnapshotLimits {
    fn default() -> Self {
        SnapshotLimits { names: MAX_NAMES, bytes: 8 << 30 }
    }
}

impl SnapshotUsage {
    pub(crate) fn new(limits: SnapshotLimits) -> Self {
        SnapshotUsage { limits, names: AtomicU64::new(0), bytes: AtomicU64::new(0) }
    }

    /// Counts names, and fails if there are too many.
    pub(crate) fn add_names(&self, more: usize) -> Result<()> {
        let max = self.limits.names;
        if self.names.fetch_add(more as u64, Relaxed) + more as u64 > max {
            return Err(too_large(format_args!("more than {max} files and directories")));
        }
        Ok(())
    }

    /// Counts bytes, and fails if there are too many.
    pub(crate) fn add_bytes(&self, more: usize) -> Result<()> {
        let max = self.limits.bytes;
        if self.bytes.fetch_add(more as u64, Relaxed) + more as u64 > max {
            return Err(too_large(format_args!("more than {} MiB in new or changed files", max >> 20)));
        }
        Ok(())
    }
}

/// The number of names in a walk from which on the trees are measured before the walk continues.
const MAX_UNMEASURED_NAMES: usize = 20_000;

/// A walk over trees that may be made to never end.
///
/// A tree that contains another one twice, and so on forty times, stands for 2^40 files in forty small objects.
pub(crate) struct TreeWalk<'a> {
    objects: &'a Objects,
    roots: Vec<ObjectId>,
    /// The number of names so far; none once the trees are measured.
    names: Option<usize>,
}

impl<'a> TreeWalk<'a> {
    pub(crate) fn new(objects: &'a Objects, roots: impl IntoIterator<Item = ObjectId>) -> Self {
        TreeWalk { objects, roots: roots.into_iter().collect(), names: Some(0) }
    }

    /// Counts names, and fails if the trees have more than snapshots could have.
    pub(crate) fn add_names(&mut self, more: usize) -> Result<()> {
        let Some(names) = &mut self.names else { return Ok(()) };
        *names += more;
        if *names > MAX_UNMEASURED_NAMES {
            self.names = None;
            self.roots.iter().try_for_each(|tree| check_tree(self.objects, *tree))?;
        }
        Ok(())
    }
}

/// Reads every directory of a tree once. Fails if one is damaged, or if the tree has more names or levels than a snapshot could
/// have.
pub(crate) fn check_tree(objects: &Objects, tree: ObjectId) -> Result<()> {
    match measure_tree(objects, tree)?.into_values().next() {
        None => Ok(()),
        Some(error) => Err(error),
    }
}

/// Reads every directory of a tree once, and returns those that are missing or damaged. Fails if the tree itself is, if one has a name
/// that is not allowed, or if the tree has more names or levels than a snapshot could have.
pub(crate) fn measure_tree(objects: &Objects, tree: ObjectId) -> Result<HashMap<ObjectId, Error>> {
    /// The number of names in a tree, and its number of levels.
    type Size = (u64, usize);
    let (mut sizes, mut unreadable): (HashMap<ObjectId, Size>, HashMap<ObjectId, Error>) = Default::default();
    // The trees to read, and those that were read, whose size is known after that of their directories.
    let mut rest: Vec<(ObjectId, Option<Content>)> = vec![(tree, None)];
    while let Some((id, content)) = rest.pop() {
        if let Some((own, directories)) = content {
            let below = directories.iter().filter_map(|id| sizes.get(id));
            let size =
                below.fold((own, 0), |(names, levels), below| (names.saturating_add(below.0), levels.max(below.1 + 1)));
            sizes.insert(id, size);
        } else if !sizes.contains_key(&id) {
            let content = match objects.get(id, ObjectKind::Tree) {
                Err(error) if id != tree && error.kind() != ErrorKind::Io => {
                    unreadable.insert(id, error);
                    Content::default()
                }
                bytes => read_names(id, &bytes?)?,
            };
            let unread: Vec<_> = content.1.iter().map(|id| (*id, None)).collect();
            rest.push((id, Some(content)));
            rest.extend(unread);
        }
    }
    let (names, levels) = sizes[&tree];
    if levels > MAX_DEPTH {
        let message = format!("tree {tree} is nested deeper than {MAX_DEPTH} directories");
        return Err(Error::new(ErrorKind::Damaged, message));
    }
    if names > MAX_NAMES {
        let message = format!("tree {tree} has more than {MAX_NAMES} files and directories, which no snapshot has");
        return Err(Error::new(ErrorKind::Damaged, message));
    }
    Ok(unreadable)
}

/// The number of names of a tree itself, and its directories.
type Content = (u64, Vec<ObjectId>);

fn read_names(id: ObjectId, bytes: &[u8]) -> Result<Content> {
    let entries = tree::entries(id, bytes)?;
    let is_directory = |entry: &&TreeEntry<'_>| entry.mode == Mode::Directory;
    let directories = entries.iter().filter(is_directory).map(|entry| entry.id).collect();
    Ok((entries.len() as u64, directories))
}

fn too_large(found: std::fmt::Arguments<'_>) -> Error {
    Error::new(ErrorKind::Directory, format_args!("the directory is too large for a workspace: found {found}"))
        .with_hint("work in the directory of one project, and list generated files in its `.gitignore`")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Batch;
    use crate::merge::Labels;
    use crate::tree::TreeId;

    /// Writes a tree that contains another one twice, and so on: 2^levels files.
    fn doubling_tree(objects: &Objects, content: &[u8], levels: usize) -> TreeId {
        let batch = Batch::new(objects);
        let put = |kind, content: &[u8]| -> ObjectId { batch.put(kind, content).expect("written").expect("an id") };
        let mut id = put(ObjectKind::Blob, content);
        let mut mode = Mode::File;
        for _ in 0..levels {
            let mut entries = [b"a", b"b"].map(|name| TreeEntry { mode, name, id });
            id = put(ObjectKind::Tree, &tree::encode(&mut entries));
            mode = Mode::Directory;
        }
        batch.finish().expect("written");
        TreeId(id)
    }

    #[test]
    fn a_few_objects_that_stand_for_countless_files_are_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let objects = Objects::open(&folder.path().join("versions")).expect("versions");
        let (small, large) = (doubling_tree(&objects, b"1\n", 3), doubling_tree(&objects, b"1\n", 40));
        let other = doubling_tree(&objects, b"2\n", 40);
        assert_eq!(objects.files(small).expect("a tree").len(), 8);
        let into = folder.path().join("into");
        let failures = [
            objects.files(large).map(|_| ()),
            objects.diff(None, large).map(|_| ()),
            objects.diff(Some(large), other).map(|_| ()),
            objects.diff(Some(large), small).map(|_| ()),
            objects.checkout(large, &into).map(drop),
            objects.merge(small, large, other, Labels { ours: "o", theirs: "t" }).map(|_| ()),
        ];
        for (nth, failure) in failures.into_iter().enumerate() {
            let message = failure.expect_err("it is refused").message();
            assert!(message.contains("more than 1000000 files"), "{nth}: {message}");
        }
        assert!(!into.exists(), "nothing is written");
        // Each object is copied once.
        let copy = Objects::open(&folder.path().join("copy")).expect("versions");
        copy.copy_tree_from(&objects, large).expect("copied");
        assert!(copy.diff(Some(large), large).expect("the same tree").is_empty());
    }
}
