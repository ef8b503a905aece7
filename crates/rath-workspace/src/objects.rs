//! Git objects in a folder: blobs and trees, each in a file of its own or in a pack.

mod open;

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::{self, BufRead as _, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;

use crate::change::Digest;
use crate::disk;
use crate::error::{Error, ErrorKind, Result};
use crate::folder_lock::FolderLock;
use crate::forgotten;
use crate::pack::Pack;
use crate::temporaries::Temporaries;
use crate::tree::{EMPTY_TREE, ObjectId};

/// Versions of directories, stored as git objects in a folder.
///
/// The folder is a bare git repository without references, so `git --git-dir FOLDER diff TREE TREE` works on it; this
/// crate never runs git. Clones share one handle, and several processes may use one folder at the same time: an object
/// is written to a temporary file and then renamed, and objects are never changed. One whose content does not match its id is
/// written anew. Objects are removed by [`Collector`](crate::Collector) only, while no handle on the folder exists.
///
/// Opening a folder removes the temporary files of processes that were killed.
///
/// ```
/// use rath_workspace::{Objects, Workspace};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let temp = tempfile::tempdir()?;
/// # let project = temp.path().join("project");
/// # std::fs::create_dir(&project)?;
/// # std::fs::write(project.join("notes.txt"), "one\n")?;
///
/// let objects = Objects::open(&temp.path().join("versions"))?;
/// let mut workspace = Workspace::open(&project, &objects, &temp.path().join("index"))?;
/// let tree = workspace.snapshot()?.tree;
/// objects.sync()?;
/// assert_eq!(objects.read(tree, "notes.txt")?.as_deref(), Some(&b"one\n"[..]));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Objects(Arc<ObjectsInner>);

/// The state that all clones of a handle share.
#[derive(Debug)]
struct ObjectsInner {
    folder: PathBuf,
    /// Identifies this folder; another folder at the same path has another identity.
    identity: [u8; 16],
    storing: Storing,
    temporaries: Temporaries,
    /// Held as long as the handle: objects are removed only while no other handle exists.
    _lock: Option<FolderLock>,
    packs: RwLock<Packs>,
    /// The written files that may not have reached the disk.
    unsynced: Mutex<PendingSync>,
    /// True if this process has synced the names of the directories that objects lie in.
    are_directories_synced: AtomicBool,
    /// True if an overlay can be mounted in this folder; found by the first fork.
    #[cfg(target_os = "linux")]
    can_mount_overlay: std::sync::OnceLock<bool>,
    /// The base versions of forks that this process made, or found to be as their tree.
    intact_bases: Mutex<HashSet<ObjectId>>,
    /// A cache of the digests of blobs.
    digests: Mutex<HashMap<ObjectId, Digest>>,
    /// The objects that this process wrote or found intact.
    intact: Mutex<HashSet<ObjectId>>,
}

/// The treatment of objects that are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Storing {
    Write,
    /// The folder was opened for reading only.
    Refuse,
    /// Trees of directories are computed, and not stored.
    Discard,
}

/// The packs that are known.
#[derive(Debug, Default)]
struct Packs {
    list: Vec<Arc<Pack>>,
    /// The modification time of the folder of packs when it was last listed.
    seen: Option<std::time::SystemTime>,
}

/// The files that the next sync has to make durable.
#[derive(Debug)]
enum PendingSync {
    /// These files, and the folders that contain them.
    Files(Vec<PathBuf>),
    /// More files than are worth listing: the whole file system is synced.
    Everything,
}

/// The kinds of object that trees are made of.
///
/// Part of [`WalkedObject`](crate::WalkedObject).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ObjectKind {
    /// The content of a file, or the target of a link.
    Blob,
    /// The entries of a directory.
    Tree,
}

/// The compression level of objects: the lowest, since most objects are read again soon or never.
pub(crate) const COMPRESSION_LEVEL: Compression = Compression::new(1);

/// With more unsynced files than this, syncing the whole file system costs less than syncing each file.
const MAX_SINGLE_SYNCS: usize = 64;

/// The number of digests in the cache; a full cache is emptied.
const MAX_CACHED_DIGESTS: usize = 100_000;

/// The number of objects that are remembered as intact; a full list is emptied.
const MAX_INTACT_OBJECTS: usize = 1_000_000;

impl ObjectKind {
    /// Returns git's name for this kind.
    pub(crate) fn name(self) -> &'static str {
        match self {
            ObjectKind::Blob => "blob",
            ObjectKind::Tree => "tree",
        }
    }

    /// Returns the number that stands for this kind in a pack.
    pub(crate) fn number(self) -> u8 {
        match self {
            ObjectKind::Tree => 2,
            ObjectKind::Blob => 3,
        }
    }
}

/// The most bytes of an object that is read. Files are stored up to a size that is far below.
pub(crate) const MAX_OBJECT_BYTES: u64 = 1 << 30;
/// The most bytes of the header of an object.
const MAX_HEADER_BYTES: u64 = 64;

/// Returns the error for an object of more than `max` bytes.
pub(crate) fn too_large(max: u64) -> Error {
    Error::new(
        ErrorKind::TooLarge,
        format_args!("wanted a version of a file of at most {} MiB, found a larger one", max >> 20),
    )
}

impl Objects {
    /// Returns the folder that holds the objects.
    pub fn folder(&self) -> &Path {
        &self.0.folder
    }

    /// Makes durable all objects that were written through this handle, and those that it found written by other
    /// processes.
    pub fn sync(&self) -> Result<()> {
        let failed = |error| io_error(&self.0.folder, "sync the versions in", error);
        let mut unsynced = self.0.unsynced.lock().unwrap_or_else(PoisonError::into_inner);
        // The list is cleared only after a successful sync: after an error, the next call tries again.
        match &*unsynced {
            PendingSync::Files(files) if files.is_empty() => return Ok(()),
            PendingSync::Files(files) if files.len() <= MAX_SINGLE_SYNCS => {
                sync_files(files).map_err(failed)?;
                // The process that created the directories may not have come to its first sync.
                if !self.0.are_directories_synced.load(Relaxed) {
                    sync_directories(&self.0.folder).map_err(failed)?;
                    self.0.are_directories_synced.store(true, Relaxed);
                }
            }
            _ => disk::sync_file_system(&self.0.folder).map_err(failed)?,
        }
        *unsynced = PendingSync::Files(Vec::new());
        Ok(())
    }

    /// Returns true if an overlay can be mounted in this folder.
    #[cfg(target_os = "linux")]
    pub(crate) fn can_mount_overlay(&self) -> bool {
        *self
            .0
            .can_mount_overlay
            .get_or_init(|| self.0.temporaries.path().is_ok_and(|trial| crate::overlay::can_mount(&trial)))
    }

    /// Returns true if this process made a base version, or found it to be as its tree.
    #[cfg(target_os = "linux")]
    pub(crate) fn has_intact_base(&self, tree: ObjectId) -> bool {
        self.0.intact_bases.lock().unwrap_or_else(PoisonError::into_inner).contains(&tree)
    }

    /// Notes that a base version is as its tree.
    pub(crate) fn add_intact_base(&self, tree: ObjectId) {
        self.0.intact_bases.lock().unwrap_or_else(PoisonError::into_inner).insert(tree);
    }

    /// Returns the identity of the folder.
    pub(crate) fn identity(&self) -> [u8; 16] {
        self.0.identity
    }

    /// Returns true if all objects that were written or found are durable.
    pub(crate) fn is_synced(&self) -> bool {
        let unsynced = self.0.unsynced.lock().unwrap_or_else(PoisonError::into_inner);
        matches!(&*unsynced, PendingSync::Files(files) if files.is_empty())
    }

    /// Makes the next sync cover the whole file system, because an earlier process may not have synced objects that are
    /// in use.
    pub(crate) fn mark_unsynced(&self) {
        *self.0.unsynced.lock().unwrap_or_else(PoisonError::into_inner) = PendingSync::Everything;
    }

    /// Adds a file to those that the next sync makes durable.
    pub(crate) fn add_unsynced(&self, file: PathBuf) {
        match &mut *self.0.unsynced.lock().unwrap_or_else(PoisonError::into_inner) {
            PendingSync::Files(files) if files.len() > MAX_SINGLE_SYNCS => {}
            PendingSync::Files(files) => files.push(file),
            PendingSync::Everything => {}
        }
    }

    /// Returns the content of an object, checked against its id.
    pub(crate) fn get(&self, id: ObjectId, kind: ObjectKind) -> Result<Vec<u8>> {
        self.get_at_most(id, kind, MAX_OBJECT_BYTES)
    }

    /// Returns the content of an object, and fails if it has more than `max` bytes. No more than that is unpacked: a small file can
    /// stand for a large one.
    pub(crate) fn get_at_most(&self, id: ObjectId, kind: ObjectKind, max: u64) -> Result<Vec<u8>> {
        if id == EMPTY_TREE && kind == ObjectKind::Tree {
            return Ok(Vec::new());
        }
        let missing = || {
            if kind == ObjectKind::Blob && self.forgotten_files().contains_key(&id) {
                return forgotten::forgotten_content();
            }
            let message = format!("these files are not in this copy: {} {id} is missing", kind.name());
            Error::new(ErrorKind::Missing, message).with_hint("run this in the project's directory")
        };
        let check = |(stored_kind, content): (&'static str, Vec<u8>)| {
            if stored_kind != kind.name() {
                let message = format!("wanted {} {id}, found a {stored_kind}", kind.name());
                return Err(Error::new(ErrorKind::Damaged, message));
            }
            if hash_object(kind, &content) != Some(id) {
                let message = format!("{} {id} is damaged: its content does not match its id", kind.name());
                return Err(Error::new(ErrorKind::Damaged, message));
            }
            Ok(content)
        };
        match self.find(id, max).and_then(|found| found.ok_or_else(missing)).and_then(check) {
            // An object that is damaged in one place was written anew to another.
            Err(error) if error.kind() != ErrorKind::Io => {
                self.find_all(id, max).into_iter().find_map(|found| check(found).ok()).ok_or(error)
            }
            content => content,
        }
    }

    /// Returns the digest of a blob's content.
    pub(crate) fn digest(&self, id: ObjectId) -> Result<Digest> {
        if let Some(digest) = self.0.digests.lock().unwrap_or_else(PoisonError::into_inner).get(&id) {
            return Ok(*digest);
        }
        let digest = match self.get(id, ObjectKind::Blob) {
            Err(error) if error.kind() == ErrorKind::Forgotten => {
                self.forgotten_files().get(&id).map(|file| file.digest).ok_or(error)?
            }
            content => Digest::compute(&content?),
        };
        self.cache_digest(id, digest);
        Ok(digest)
    }

    /// Stores the digest of a blob in the cache.
    pub(crate) fn cache_digest(&self, id: ObjectId, digest: Digest) {
        let mut digests = self.0.digests.lock().unwrap_or_else(PoisonError::into_inner);
        if digests.len() >= MAX_CACHED_DIGESTS {
            digests.clear();
        }
        digests.insert(id, digest);
    }

    /// Returns true if an object exists.
    ///
    /// An object in a file of its own is added to the next sync: another process may have written it, and may not have
    /// synced it.
    pub(crate) fn contains(&self, id: ObjectId) -> bool {
        if self.find_in_packs(id).is_some() {
            return true;
        }
        let path = self.loose_path(id);
        let exists = path.exists();
        if exists {
            self.add_unsynced(path);
        }
        exists
    }

    /// Returns true if an object exists and has the content that its id stands for. An object is read once by each process:
    /// the folder may have come from elsewhere.
    pub(crate) fn contains_intact(&self, id: ObjectId, kind: ObjectKind) -> bool {
        let is_known = || self.0.intact.lock().unwrap_or_else(PoisonError::into_inner).contains(&id);
        let is_intact = self.contains(id) && (is_known() || self.get(id, kind).is_ok());
        if is_intact {
            self.mark_intact(id);
        }
        is_intact
    }

    /// Remembers an object as intact.
    pub(crate) fn mark_intact(&self, id: ObjectId) {
        let mut intact = self.0.intact.lock().unwrap_or_else(PoisonError::into_inner);
        if intact.len() >= MAX_INTACT_OBJECTS {
            intact.clear();
        }
        intact.insert(id);
    }

    /// Fails if the folder was opened for reading only.
    pub(crate) fn check_writable(&self) -> Result<()> {
        match self.0.storing {
            Storing::Write | Storing::Discard => Ok(()),
            Storing::Refuse => {
                Err(io_error(&self.0.folder, "write versions to", io::ErrorKind::ReadOnlyFilesystem.into()))
            }
        }
    }

    /// Returns true if objects that are written are not stored.
    pub(crate) fn discards(&self) -> bool {
        self.0.storing == Storing::Discard
    }

    /// Returns the packs that are known.
    pub(crate) fn packs(&self) -> Vec<Arc<Pack>> {
        self.0.packs.read().unwrap_or_else(PoisonError::into_inner).list.clone()
    }

    /// Makes files of the folder durable.
    pub(crate) fn sync_files(&self, files: &[PathBuf]) -> Result<()> {
        sync_files(files).map_err(|error| io_error(&self.0.folder, "sync the versions in", error))
    }

    /// Writes one object to a file of its own.
    pub(crate) fn put_loose(&self, id: ObjectId, kind: ObjectKind, content: &[u8]) -> Result<()> {
        self.check_writable()?;
        let path = self.loose_path(id);
        let write = || -> io::Result<()> {
            let mut encoder = ZlibEncoder::new(Vec::with_capacity(content.len() / 2 + 64), COMPRESSION_LEVEL);
            encoder.write_all(header(kind, content.len()).as_bytes())?;
            encoder.write_all(content)?;
            let bytes = encoder.finish()?;
            match self.0.temporaries.write_new(&path, &bytes) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    fs::create_dir_all(path.parent().unwrap_or(&path))?;
                    self.0.temporaries.write_new(&path, &bytes)
                }
                done => done,
            }
        };
        write().map_err(|error| io_error(&self.0.folder, "write an object to", error))?;
        self.mark_intact(id);
        self.add_unsynced(path);
        Ok(())
    }

    /// Adds a pack that was just written.
    pub(crate) fn add_pack(&self, pack: Pack) {
        for file in pack.files() {
            self.add_unsynced(file);
        }
        self.0.packs.write().unwrap_or_else(PoisonError::into_inner).list.push(Arc::new(pack));
    }

    /// Returns the kind and the content of an object; none if there is no such object.
    fn find(&self, id: ObjectId, max: u64) -> Result<Option<(&'static str, Vec<u8>)>> {
        for attempt in 0..2 {
            if let Some((pack, offset)) = self.find_in_packs(id) {
                return pack.read(offset, max).map(Some);
            }
            if let Some(object) = self.read_loose(id, max)? {
                return Ok(Some(object));
            }
            // Another process may have written a pack since.
            if attempt == 0 && !self.refresh_packs()? {
                break;
            }
        }
        Ok(None)
    }

    /// Returns the contents that all packs, and the file of its own, have for an object.
    fn find_all(&self, id: ObjectId, max: u64) -> Vec<(&'static str, Vec<u8>)> {
        let packs = self.0.packs.read().unwrap_or_else(PoisonError::into_inner).list.clone();
        let packed = packs.iter().filter_map(|pack| pack.read(pack.offset_of(id)?, max).ok());
        packed.chain(self.read_loose(id, max).ok().flatten()).collect()
    }

    /// Returns the pack that holds an object, and the offset in that pack.
    fn find_in_packs(&self, id: ObjectId) -> Option<(Arc<Pack>, u64)> {
        let packs = self.0.packs.read().unwrap_or_else(PoisonError::into_inner);
        // The newest pack is the most likely one.
        packs.list.iter().rev().find_map(|pack| Some((pack.clone(), pack.offset_of(id)?)))
    }

    /// Returns true if an object has a file of its own.
    pub(crate) fn has_loose(&self, id: ObjectId) -> bool {
        self.loose_path(id).exists()
    }

    /// Returns the path of an object that has a file of its own.
    fn loose_path(&self, id: ObjectId) -> PathBuf {
        let hex = id.to_string();
        let mut path = self.0.folder.join("objects");
        path.push(&hex[..2]);
        path.push(&hex[2..]);
        path
    }

    /// Reads an object that has a file of its own, of at most `max` bytes.
    fn read_loose(&self, id: ObjectId, max: u64) -> Result<Option<(&'static str, Vec<u8>)>> {
        let file = match disk::open_plain_file(&self.loose_path(id)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(io_error(&self.0.folder, "read an object from", error)),
        };
        let damaged = || Error::new(ErrorKind::Damaged, format_args!("object {id} is damaged"));
        let mut decoder = io::BufReader::new(ZlibDecoder::new(file));
        let mut header = Vec::new();
        let read = decoder.by_ref().take(MAX_HEADER_BYTES).read_until(0, &mut header);
        read.map_err(|error| damaged().because(error))?;
        let header = header.strip_suffix(&[0]).ok_or_else(damaged)?;
        let (kind, length) = std::str::from_utf8(header).ok().and_then(|it| it.split_once(' ')).ok_or_else(damaged)?;
        let kind = parse_kind(kind).ok_or_else(damaged)?;
        let length: u64 = length.parse().map_err(|_| damaged())?;
        if length > max {
            return Err(too_large(max));
        }
        let mut bytes = Vec::new();
        decoder.take(length + 1).read_to_end(&mut bytes).map_err(|error| damaged().because(error))?;
        if bytes.len() as u64 == length { Ok(Some((kind, bytes))) } else { Err(damaged()) }
    }

    /// Reads the indexes of packs that are not known yet, and returns true if there are any.
    fn refresh_packs(&self) -> Result<bool> {
        let folder = self.0.folder.join("objects/pack");
        let failed = |error| io_error(&folder, "list the packs in", error);
        let changed = fs::metadata(&folder).and_then(|metadata| metadata.modified()).map_err(failed)?;
        let mut packs = self.0.packs.write().unwrap_or_else(PoisonError::into_inner);
        if packs.seen == Some(changed) && changed.elapsed().is_ok_and(|passed| passed.as_secs() > 2) {
            return Ok(false);
        }
        let before = packs.list.len();
        for entry in fs::read_dir(&folder).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let known = |pack: &Arc<Pack>| pack.index() == path;
            if path.extension().is_some_and(|extension| extension == "idx") && !packs.list.iter().any(known) {
                // A pack that a power cut left incomplete was never synced, so no step names its objects. They are written anew.
                let pack = match Pack::open(&path) {
                    Err(error) if error.kind() == ErrorKind::Damaged => continue,
                    pack => pack?,
                };
                for file in pack.files() {
                    self.add_unsynced(file);
                }
                packs.list.push(Arc::new(pack));
            }
        }
        packs.seen = Some(changed);
        Ok(packs.list.len() > before)
    }
}

/// Returns the id of an object; none if the content is part of a known SHA-1 collision attack.
pub(crate) fn hash_object(kind: ObjectKind, content: &[u8]) -> Option<ObjectId> {
    let mut hasher = sha1dc::Hasher::new();
    hasher.update(header(kind, content.len()).as_bytes());
    hasher.update(content);
    hasher.finalize().ok().map(|digest| ObjectId(digest.into()))
}

/// Returns the SHA-1 of bytes that are not an object.
pub(crate) fn checksum(parts: &[&[u8]]) -> [u8; 20] {
    let mut hasher = sha1dc::Hasher::new();
    parts.iter().for_each(|part| hasher.update(part));
    match hasher.finalize() {
        Ok(digest) => digest.into(),
        Err(collision) => collision.digest().into(),
    }
}

/// Returns the header that git hashes and stores in front of an object's content.
fn header(kind: ObjectKind, length: usize) -> String {
    format!("{} {length}\0", kind.name())
}

/// Returns the static name of a kind, for all kinds that git has.
fn parse_kind(name: &str) -> Option<&'static str> {
    ["blob", "tree", "commit", "tag"].into_iter().find(|kind| *kind == name)
}

/// Returns the error of a failed operation on a path; `operation` is a verb, as in "cannot open".
pub(crate) fn io_error(path: &Path, operation: &str, error: io::Error) -> Error {
    Error::new(ErrorKind::Io, format_args!("cannot {operation} `{}`", path.display())).because(error)
}

/// The most bytes of a file that holds an id or a path.
pub(crate) const MAX_SMALL_FILE_BYTES: u64 = 16 << 10;
/// The most bytes of an index: of a directory, or of a pack.
pub(crate) const MAX_INDEX_BYTES: u64 = 256 << 20;

/// Makes the names of the directories durable that objects lie in, up to that of the folder itself.
fn sync_directories(folder: &Path) -> io::Result<()> {
    let directories = [Some(&*folder.join("objects")), Some(folder), folder.parent()].map(|directory| {
        directory.filter(|directory| !directory.as_os_str().is_empty()).map_or(Ok(()), |it| File::open(it)?.sync_all())
    });
    directories.into_iter().collect()
}

fn sync_files(files: &[PathBuf]) -> io::Result<()> {
    let mut folders: Vec<&Path> = files.iter().filter_map(|file| file.parent()).collect();
    // The folder of a loose object may be new itself.
    let parents: Vec<&Path> = folders.iter().filter_map(|folder| folder.parent()).collect();
    folders.extend(parents);
    folders.sort_unstable();
    folders.dedup();
    for path in files.iter().map(PathBuf::as_path).chain(folders) {
        File::open(path)?.sync_all()?;
    }
    Ok(())
}
