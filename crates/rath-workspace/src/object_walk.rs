//! Reading everything that some trees consist of, each object once.

use std::collections::HashSet;
use std::rc::Rc;

use crate::change::Digest;
use crate::error::{Error, ErrorKind, Result};
use crate::forgotten::{AbsenceList, ForgottenFile};
use crate::objects::{MAX_OBJECT_BYTES, ObjectKind, Objects};
use crate::paths;
use crate::tree::{self, EMPTY_TREE, ObjectId};

/// The objects that some trees and files consist of: each once, a directory before its entries, read and compared with its id.
///
/// Returned by [`Objects::walk`].
pub struct ObjectWalk<'a> {
    /// The folders that are looked in, in this order.
    folders: &'a [Objects],
    absences: Vec<AbsenceList>,
    seen: HashSet<(ObjectId, ObjectKind)>,
    rest: Vec<PendingObject>,
    /// Returns true for the paths that are not read.
    hides: Option<&'a dyn Fn(&str) -> bool>,
    /// The objects at these paths. One that is at another path too is read there.
    hidden: Vec<PendingObject>,
}

/// An object that is to be read.
struct PendingObject {
    id: ObjectId,
    kind: ObjectKind,
    root: ObjectId,
    path: Option<Rc<PathNode>>,
}

/// A path as a list of names, from the last one on. Millions of files share the nodes of their directories.
struct PathNode {
    parent: Option<Rc<PathNode>>,
    name: Box<[u8]>,
}

/// An object that a walk came to.
///
/// Returned by [`ObjectWalk`].
#[derive(Debug)]
pub struct WalkedObject {
    /// The id.
    pub id: ObjectId,
    /// The kind that the name of the object says it has.
    pub kind: ObjectKind,
    /// The tree or file of the walk's own list that it is a part of.
    pub root: ObjectId,
    /// The path below the root at which it was found first; empty for the root itself.
    pub path: String,
    /// The content, or the reason why there is none.
    pub content: WalkedContent,
}

/// The content of an object that a walk came to.
///
/// Part of [`WalkedObject`].
#[derive(Debug)]
pub enum WalkedContent {
    /// The content, which is what the id stands for.
    Intact(Vec<u8>),
    /// The object is not stored.
    Missing,
    /// The object is not stored, and was not in the copy that it should have come with.
    Absent,
    /// The content of the file was removed on purpose.
    Forgotten {
        /// The size of the content, in bytes.
        size: u64,
        /// The digest of the content.
        digest: Digest,
    },
    /// The object is stored, and is damaged.
    Damaged(Error),
    /// The object was not read: see [`ObjectWalk::hiding`].
    Hidden,
}

impl Objects {
    /// Returns all that some trees and files consist of. Each object is looked for in the folders in turn; one that is damaged in a
    /// folder may be intact in the next.
    ///
    /// ```
    /// use rath_workspace::{ObjectKind, Objects, WalkedContent, Workspace};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let temp = tempfile::tempdir()?;
    /// # let project = temp.path().join("project");
    /// # std::fs::create_dir(&project)?;
    ///
    /// std::fs::write(project.join("notes.txt"), "one\n")?;
    /// let objects = Objects::open(&temp.path().join("versions"))?;
    /// let tree = Workspace::open(&project, &objects, &temp.path().join("index"))?.snapshot()?.tree;
    /// let walked: Vec<_> = Objects::walk(&[objects], [(tree.0, ObjectKind::Tree)]).collect();
    /// assert_eq!(walked[1].path, "notes.txt");
    /// assert!(matches!(&walked[1].content, WalkedContent::Intact(content) if content == b"one\n"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn walk(folders: &[Objects], roots: impl IntoIterator<Item = (ObjectId, ObjectKind)>) -> ObjectWalk<'_> {
        let absences = folders.iter().map(Objects::absences).collect();
        let pending = |(id, kind)| PendingObject { id, kind, root: id, path: None };
        let mut rest: Vec<_> = roots.into_iter().map(pending).collect();
        rest.reverse();
        ObjectWalk { folders, absences, seen: HashSet::new(), rest, hides: None, hidden: Vec::new() }
    }
}

impl<'a> ObjectWalk<'a> {
    /// Does not read what is only at paths for which `hides` returns true. These objects come last.
    pub fn hiding(mut self, hides: Option<&'a dyn Fn(&str) -> bool>) -> Self {
        self.hides = hides;
        self
    }
}

impl Iterator for ObjectWalk<'_> {
    type Item = WalkedObject;

    fn next(&mut self) -> Option<WalkedObject> {
        let (pending, is_hidden) = loop {
            let (pending, is_hidden) = match self.rest.pop() {
                Some(pending) => (pending, false),
                None => (self.hidden.pop()?, true),
            };
            let is_empty_tree = pending.id == EMPTY_TREE && pending.kind == ObjectKind::Tree;
            if !is_empty_tree && self.seen.insert((pending.id, pending.kind)) {
                break (pending, is_hidden);
            }
        };
        let content = if is_hidden { WalkedContent::Hidden } else { self.read(&pending) };
        let content = match (content, pending.kind) {
            (WalkedContent::Intact(content), ObjectKind::Tree) => match self.add_entries(&pending, &content) {
                Ok(()) => WalkedContent::Intact(content),
                Err(error) => WalkedContent::Damaged(error),
            },
            (content, _) => content,
        };
        let PendingObject { id, kind, root, path } = pending;
        Some(WalkedObject { id, kind, root, path: path_text(path.as_deref()), content })
    }
}

impl ObjectWalk<'_> {
    /// Reads an object from the first folder that has it intact.
    fn read(&self, pending: &PendingObject) -> WalkedContent {
        let (id, kind) = (pending.id, pending.kind);
        let mut damaged = None;
        for objects in self.folders {
            match objects.find_intact(id, kind, MAX_OBJECT_BYTES) {
                Ok(Some(content)) => return WalkedContent::Intact(content),
                Ok(None) => {}
                Err(error) => damaged = damaged.or(Some(error)),
            }
        }
        if let Some(error) = damaged {
            return WalkedContent::Damaged(error);
        }
        let mut forgotten = self.absences.iter().filter_map(|list| list.forgotten.get(&id));
        match forgotten.next().filter(|_| kind == ObjectKind::Blob) {
            Some(ForgottenFile { size, digest, .. }) => WalkedContent::Forgotten { size: *size, digest: *digest },
            None if self.absences.iter().any(|list| list.absent.contains(&id)) => WalkedContent::Absent,
            None => WalkedContent::Missing,
        }
    }

    /// Adds the entries of a directory to those that are to be read.
    fn add_entries(&mut self, pending: &PendingObject, content: &[u8]) -> Result<()> {
        let first = self.rest.len();
        for entry in tree::entries(pending.id, content)? {
            let kind = entry.kind();
            if !self.seen.contains(&(entry.id, kind)) {
                let node = PathNode { parent: pending.path.clone(), name: entry.name.into() };
                let path = Some(Rc::new(node));
                let is_hidden = self.hides.is_some_and(|hides| hides(&path_text(path.as_deref())));
                let object = PendingObject { id: entry.id, kind, root: pending.root, path };
                if is_hidden { self.hidden.push(object) } else { self.rest.push(object) }
            }
        }
        self.rest[first..].reverse();
        Ok(())
    }
}

/// Drops a path without recursion: a tree of others may be nested as deep as it likes.
impl Drop for PathNode {
    fn drop(&mut self) {
        let mut parent = self.parent.take();
        while let Some(mut node) = parent.and_then(Rc::into_inner) {
            parent = node.parent.take();
        }
    }
}

/// The most bytes of a path that is told.
const MAX_PATH_BYTES: usize = 4096;

/// Returns the text of a path. Of a longer one than any file system has, the end.
fn path_text(mut path: Option<&PathNode>) -> String {
    let (mut names, mut bytes) = (Vec::new(), 0);
    while let Some(node) = path.filter(|_| bytes < MAX_PATH_BYTES) {
        names.push(&*node.name);
        bytes += node.name.len();
        path = node.parent.as_deref();
    }
    names.reverse();
    paths::path_text(&names.join(&b'/')).into_owned()
}

impl Objects {
    /// Returns the content of an object, compared with its id; none if it is not stored. Fails if it is damaged.
    fn find_intact(&self, id: ObjectId, kind: ObjectKind, max: u64) -> Result<Option<Vec<u8>>> {
        match self.get_at_most(id, kind, max) {
            Ok(content) => Ok(Some(content)),
            Err(error) if matches!(error.kind(), ErrorKind::Missing | ErrorKind::Forgotten) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
