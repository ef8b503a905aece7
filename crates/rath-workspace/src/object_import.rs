//! Taking over objects that others packed: each is compared with its id, and must have been named before it comes.
//!
//! Nothing is stored before [`ObjectImport::finish`]: until then all objects are in a temporary pack, which is removed if the
//! import is dropped.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::io::{self, Read as _};

use flate2::bufread::ZlibDecoder;
use flate2::write::ZlibEncoder;

use crate::change::Digest;
use crate::error::{Error, Result};
use crate::forgotten::{AbsenceList, ForgottenFile};
use crate::objects::{COMPRESSION_LEVEL, MAX_OBJECT_BYTES, ObjectKind, Objects, hash_object, io_error};
use crate::pack::{PackWriter, PackedObject};
use crate::tree::{self, EMPTY_TREE, ObjectId};

/// An import of objects into a folder, or only a check of them.
///
/// ```
/// use rath_workspace::{ObjectImport, ObjectKind, Objects, WalkedContent, Workspace, pack_content};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let temp = tempfile::tempdir()?;
/// # let project = temp.path().join("project");
/// # std::fs::create_dir(&project)?;
/// # std::fs::write(project.join("notes.txt"), "one\n")?;
/// # let objects = Objects::open(&temp.path().join("versions"))?;
/// # let tree = Workspace::open(&project, &objects, &temp.path().join("index"))?.snapshot()?.tree;
///
/// let copy = Objects::open(&temp.path().join("copy"))?;
/// let mut import = ObjectImport::default();
/// import.store_in(&copy);
/// import.expect(tree.0, ObjectKind::Tree)?;
/// for object in Objects::walk(&[objects], [(tree.0, ObjectKind::Tree)]) {
///     let WalkedContent::Intact(content) = object.content else { panic!("it is stored") };
///     let packed = pack_content(&content)?;
///     import.add(object.id, object.kind, content.len() as u64, &packed)?;
/// }
/// assert_eq!(import.finish()?.objects, 2);
/// assert_eq!(copy.read(tree, "notes.txt")?.as_deref(), Some(&b"one\n"[..]));
/// # Ok(())
/// # }
/// ```
#[derive(Default)]
pub struct ObjectImport {
    target: Option<ImportTarget>,
    named: HashMap<ObjectId, NamedObject>,
    /// The files whose content was removed where they come from.
    forgotten: Vec<(ObjectId, ForgottenFile)>,
    /// True if something was said not to come.
    has_gone: bool,
    /// The trees and files that are named by others than those whose objects come.
    named_here: Vec<(ObjectId, ObjectKind)>,
}

/// The folder of an import.
struct ImportTarget {
    objects: Objects,
    absences: AbsenceList,
    /// The objects that are not stored yet.
    pack: Option<PackWriter>,
    added: HashSet<ObjectId>,
    counts: ImportCounts,
}

/// The state of an object that was named.
struct NamedObject {
    /// The name that led to it.
    root: ObjectId,
    is_tree: bool,
    is_blob: bool,
    has_come: bool,
}

/// The result of an import of objects.
///
/// Returned by [`ObjectImport::finish`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImportCounts {
    /// The objects that were stored.
    pub objects: u64,
    /// The objects that were stored before.
    pub known: u64,
    /// The files that stay without their content: it was removed here on purpose.
    pub forgotten_here: u64,
    /// The named objects that neither came nor are stored here, without those whose content was removed on purpose.
    pub absent: u64,
}

/// The reason why an object is not taken over.
///
/// Returned by [`ObjectImport::add`].
#[derive(Debug)]
#[non_exhaustive]
pub enum ImportError {
    /// Nothing that came before names the object.
    Unnamed,
    /// The content cannot be unpacked, is not what the id stands for, or is no directory that can be written.
    Mismatch,
    /// The object, or the number of all objects, is above what is taken over.
    TooLarge,
    /// The object cannot be stored.
    Store(Error),
}

impl From<Error> for ImportError {
    fn from(error: Error) -> Self {
        ImportError::Store(error)
    }
}

impl fmt::Display for ImportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ImportError::Unnamed => f.write_str("nothing names this version of a file"),
            ImportError::Mismatch => f.write_str("the version of a file does not match its id"),
            ImportError::TooLarge => f.write_str("the version of a file is too large"),
            ImportError::Store(error) => fmt::Display::fmt(error, f),
        }
    }
}

impl std::error::Error for ImportError {}

/// The most bytes of a directory that is taken over: a million names, as many as a snapshot may have.
const MAX_TREE_BYTES: u64 = 64 << 20;
/// The most objects that are taken over at once.
const MAX_NAMED_OBJECTS: usize = 1 << 22;

/// Returns content as a zlib stream.
///
/// See [`ObjectImport`] for an example.
pub fn pack_content(content: &[u8]) -> io::Result<Vec<u8>> {
    use io::Write as _;
    let mut encoder = ZlibEncoder::new(Vec::with_capacity(content.len() / 2 + 32), COMPRESSION_LEVEL);
    encoder.write_all(content)?;
    encoder.finish()
}

impl ObjectImport {
    /// Sets the folder. Without one, objects are checked only. Called before the first object is added.
    pub fn store_in(&mut self, objects: &Objects) {
        let (objects, absences) = (objects.clone(), objects.absences());
        let (pack, added, counts) = (None, HashSet::new(), ImportCounts::default());
        self.target = Some(ImportTarget { objects, absences, pack, added, counts });
    }

    /// Returns true if there is a folder.
    pub fn has_folder(&self) -> bool {
        self.target.is_some()
    }

    /// Names an object that may come from now on, with all that it consists of.
    pub fn expect(&mut self, id: ObjectId, kind: ObjectKind) -> Result<(), ImportError> {
        self.name(id, kind, id)
    }

    fn name(&mut self, id: ObjectId, kind: ObjectKind, root: ObjectId) -> Result<(), ImportError> {
        // The empty tree is not stored: git knows it without.
        if id == EMPTY_TREE && kind == ObjectKind::Tree {
            return Ok(());
        }
        if self.named.len() >= MAX_NAMED_OBJECTS && !self.named.contains_key(&id) {
            return Err(ImportError::TooLarge);
        }
        let new = NamedObject { root, is_tree: false, is_blob: false, has_come: false };
        let named = self.named.entry(id).or_insert(new);
        match kind {
            ObjectKind::Tree => named.is_tree = true,
            ObjectKind::Blob => named.is_blob = true,
        }
        Ok(())
    }

    /// Adds an object: `zlib` is its content of `size` bytes as one zlib stream. Returns the content.
    pub fn add(&mut self, id: ObjectId, kind: ObjectKind, size: u64, zlib: &[u8]) -> Result<Vec<u8>, ImportError> {
        let named = self.named.get(&id).ok_or(ImportError::Unnamed)?;
        let (is_named, max) = match kind {
            ObjectKind::Tree => (named.is_tree, MAX_TREE_BYTES),
            ObjectKind::Blob => (named.is_blob, MAX_OBJECT_BYTES),
        };
        if !is_named {
            return Err(ImportError::Unnamed);
        }
        if size > max {
            return Err(ImportError::TooLarge);
        }
        let content = unpack(zlib, size).ok_or(ImportError::Mismatch)?;
        if hash_object(kind, &content) != Some(id) {
            return Err(ImportError::Mismatch);
        }
        let root = named.root;
        if kind == ObjectKind::Tree {
            for entry in tree::entries(id, &content).map_err(|_| ImportError::Mismatch)? {
                self.name(entry.id, entry.kind(), root)?;
            }
        }
        if let Some(target) = &mut self.target {
            target.add(id, kind, &content, zlib)?;
        }
        self.named.get_mut(&id).into_iter().for_each(|named| named.has_come = true);
        Ok(content)
    }

    /// Notes that an object does not come: it was missing where the objects come from, or the content of a file was removed there.
    pub fn add_gone(&mut self, id: ObjectId, forgotten: Option<(u64, Digest)>) -> Result<(), ImportError> {
        let named = self.named.get_mut(&id).ok_or(ImportError::Unnamed)?;
        if forgotten.is_some() && !named.is_blob {
            return Err(ImportError::Unnamed);
        }
        if !named.has_come {
            let file = |(size, digest)| (id, ForgottenFile { size, digest });
            self.forgotten.extend(forgotten.map(file));
        }
        named.has_come = true;
        self.has_gone = true;
        Ok(())
    }

    /// Returns true if not everything came that was named.
    pub fn is_incomplete(&self) -> bool {
        self.has_gone || self.missing().next().is_some()
    }

    /// Notes trees and files that were named here before. That something of them is missing is damage: what is said about it where
    /// the objects come from is not about the folder.
    pub fn note_named_here(&mut self, roots: impl IntoIterator<Item = (ObjectId, ObjectKind)>) {
        self.named_here.extend(roots);
    }

    /// Returns the objects that were named and did not come, each with the name that led to it.
    pub fn missing(&self) -> impl Iterator<Item = (ObjectId, ObjectId)> + '_ {
        self.named.iter().filter(|(_, named)| !named.has_come).map(|(id, named)| (*id, named.root))
    }

    /// Stores all objects durably. What was named and is not here is on a list after that, so that it is not taken for damage, unless it
    /// [was named here](ObjectImport::note_named_here) before.
    pub fn finish(self) -> Result<ImportCounts> {
        let Some(mut target) = self.target else { return Ok(ImportCounts::default()) };
        let objects = &target.objects;
        if let Some(pack) = target.pack {
            objects.note_stored_again(&target.added)?;
            objects.add_pack(pack.finish()?);
            target.added.iter().for_each(|id| objects.mark_intact(*id));
        }
        let is_listed =
            |id: &ObjectId| target.absences.absent.contains(id) || target.absences.forgotten.contains_key(id);
        let mut lacking: HashSet<_> = self.named.into_keys().filter(|id| !objects.contains(*id)).collect();
        let absent_before = lacking.iter().filter(|id| target.absences.absent.contains(id)).count();
        lacking.retain(|id| !is_listed(id));
        let lost = find_named(objects, self.named_here, &lacking);
        lacking.retain(|id| !lost.contains(id));
        let mut forgotten = self.forgotten;
        forgotten.retain(|(id, _)| lacking.remove(id));
        target.counts.absent = (absent_before + lost.len() + lacking.len()) as u64;
        objects.add_forgotten(&forgotten)?;
        objects.add_absent(lacking)?;
        objects.sync()?;
        Ok(target.counts)
    }
}

impl ImportTarget {
    /// Adds an object to the pack, unless it is stored, or was removed on purpose.
    fn add(&mut self, id: ObjectId, kind: ObjectKind, content: &[u8], zlib: &[u8]) -> Result<()> {
        if self.added.contains(&id) {
            return Ok(());
        }
        if self.objects.contains_intact(id, kind) {
            self.counts.known += 1;
            return Ok(());
        }
        if self.absences.forgotten.contains_key(&id) {
            self.counts.forgotten_here += 1;
            return Ok(());
        }
        let failed = |error| io_error(self.objects.folder(), "write versions to", error);
        let pack = match &mut self.pack {
            Some(pack) => pack,
            none => {
                self.objects.check_writable()?;
                none.insert(PackWriter::create(&self.objects).map_err(failed)?)
            }
        };
        pack.add(id, &PackedObject::from_zlib(kind, content.len(), zlib)).map_err(failed)?;
        self.added.insert(id);
        self.counts.objects += 1;
        Ok(())
    }
}

/// Returns those of some objects that trees and files consist of, as far as the trees can be read.
fn find_named(objects: &Objects, roots: Vec<(ObjectId, ObjectKind)>, wanted: &HashSet<ObjectId>) -> HashSet<ObjectId> {
    let (mut found, mut seen, mut rest) = (HashSet::new(), HashSet::new(), roots);
    if wanted.is_empty() {
        return found;
    }
    while let Some((id, kind)) = rest.pop() {
        found.extend(wanted.get(&id));
        if kind == ObjectKind::Tree
            && seen.insert(id)
            && let Ok(content) = objects.get(id, kind)
            && let Ok(entries) = tree::entries(id, &content)
        {
            rest.extend(entries.iter().map(|entry| (entry.id, entry.kind())));
        }
    }
    found
}

/// Returns the content that a zlib stream stands for; none if it is not one whole stream of `size` bytes.
fn unpack(zlib: &[u8], size: u64) -> Option<Vec<u8>> {
    let mut decoder = ZlibDecoder::new(zlib);
    let mut content = Vec::new();
    decoder.by_ref().take(size + 1).read_to_end(&mut content).ok()?;
    // The end of the stream is read with its checksum, and nothing follows it.
    (content.len() as u64 == size && decoder.read(&mut [0]).ok()? == 0 && decoder.into_inner().is_empty())
        .then_some(content)
}

#[cfg(all(test, unix))]
mod tests;
