//! Git objects in a folder: blobs and trees, loose or in packs.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use crate::change::Digest;
use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;

use super::pack::Pack;
use super::tree::{EMPTY, ObjectId};
use crate::error::{Error, ErrorKind, Result};

/// Versions of directories, as git objects in a folder.
///
/// The folder is a bare git repository with no references, so `git --git-dir FOLDER diff TREE TREE` works on it; nothing
/// here ever runs git. Handles are shared, and several processes may use one folder: an object is written under another name
/// and then renamed, and nothing is ever changed or removed.
#[derive(Clone, Debug)]
pub struct Objects(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    folder: PathBuf,
    /// What tells this folder from another at the same path, later.
    identity: [u8; 16],
    packs: RwLock<Packs>,
    /// What was written and may not have reached the disk.
    unsynced: Mutex<Unsynced>,
    /// Whether directories can be mounted over others here.
    #[cfg(target_os = "linux")]
    can_layer: std::sync::OnceLock<bool>,
    /// Digests of blobs that were read or written lately.
    digests: Mutex<HashMap<ObjectId, Digest>>,
}

#[derive(Debug, Default)]
struct Packs {
    list: Vec<Arc<Pack>>,
    /// When the folder of packs last changed, as far as it was looked at.
    seen: Option<std::time::SystemTime>,
}

#[derive(Debug)]
enum Unsynced {
    /// These files, and the folders that they lie in.
    Files(Vec<PathBuf>),
    /// So many that the whole file system is synced.
    Anything,
}

/// The kinds of object that trees are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Blob,
    Tree,
}

/// How hard objects are compressed: the least, since most are read again soon or never.
pub(super) const LEVEL: Compression = Compression::new(1);

/// Past this many files, syncing the file system costs less than syncing each.
const MANY: usize = 64;

/// How many digests are remembered.
const DIGESTS: usize = 100_000;

/// What makes a folder a git repository whose objects git never removes, though nothing refers to them.
const CONFIG: &str = "[core]\n\trepositoryformatversion = 1\n\tbare = true\n\tlogallrefupdates = false\n\
                      [extensions]\n\tpreciousObjects = true\n[gc]\n\tauto = 0\n";

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Blob => "blob",
            Kind::Tree => "tree",
        }
    }

    /// Its number in a pack.
    pub(super) fn number(self) -> u8 {
        match self {
            Kind::Tree => 2,
            Kind::Blob => 3,
        }
    }
}

impl Objects {
    /// Opens the folder, and makes it where it is missing.
    pub fn open(folder: &Path) -> Result<Self> {
        let failed = |error| at(folder, "open the versions in", error);
        for part in ["objects/pack", "objects/info", "refs"] {
            fs::create_dir_all(folder.join(part)).map_err(failed)?;
        }
        for (name, text) in [("config", CONFIG), ("HEAD", "ref: refs/heads/none\n")] {
            let path = folder.join(name);
            if !path.exists() {
                write_new(folder, &path, text.as_bytes()).map_err(failed)?;
            }
        }
        sweep(folder);
        let identity = identity(folder).map_err(failed)?;
        let objects = Objects(Arc::new(Inner {
            folder: folder.to_owned(),
            identity,
            packs: RwLock::default(),
            unsynced: Mutex::new(Unsynced::Files(Vec::new())),
            #[cfg(target_os = "linux")]
            can_layer: std::sync::OnceLock::new(),
            digests: Mutex::default(),
        }));
        objects.look_for_packs()?;
        Ok(objects)
    }

    /// The folder that they lie in.
    pub fn folder(&self) -> &Path {
        &self.0.folder
    }

    /// Makes durable whatever was written through this handle, or found written by others.
    pub fn sync(&self) -> Result<()> {
        let failed = |error| at(&self.0.folder, "sync the versions in", error);
        let mut unsynced = self.0.unsynced.lock().unwrap_or_else(PoisonError::into_inner);
        // Nothing is forgotten before it is synced: after an error, the next call tries again.
        match &*unsynced {
            Unsynced::Files(files) if files.is_empty() => return Ok(()),
            Unsynced::Files(files) if files.len() <= MANY => sync_files(files).map_err(failed)?,
            _ => sync_file_system(&self.0.folder).map_err(failed)?,
        }
        *unsynced = Unsynced::Files(Vec::new());
        Ok(())
    }

    /// Whether directories can be mounted over others here.
    #[cfg(target_os = "linux")]
    pub(super) fn can_layer(&self) -> bool {
        *self.0.can_layer.get_or_init(|| super::layers::can(&self.0.folder))
    }

    pub(super) fn identity(&self) -> [u8; 16] {
        self.0.identity
    }

    /// Whether everything that was written or found is durable.
    pub(super) fn is_synced(&self) -> bool {
        let unsynced = self.0.unsynced.lock().unwrap_or_else(PoisonError::into_inner);
        matches!(&*unsynced, Unsynced::Files(files) if files.is_empty())
    }

    /// Says that objects are in use which an earlier process may not have synced.
    pub(super) fn doubt(&self) {
        *self.0.unsynced.lock().unwrap_or_else(PoisonError::into_inner) = Unsynced::Anything;
    }

    pub(super) fn unsynced(&self, file: PathBuf) {
        match &mut *self.0.unsynced.lock().unwrap_or_else(PoisonError::into_inner) {
            Unsynced::Files(files) if files.len() > MANY => {}
            Unsynced::Files(files) => files.push(file),
            Unsynced::Anything => {}
        }
    }

    /// The content of an object, checked against its name.
    pub(super) fn get(&self, id: ObjectId, kind: Kind) -> Result<Vec<u8>> {
        if id == EMPTY && kind == Kind::Tree {
            return Ok(Vec::new());
        }
        let (found, content) = self.find(id)?.ok_or_else(|| {
            let message = format!("the {} {id} is missing from the versions of the workspace", kind.name());
            Error::new(ErrorKind::Damaged, message).with_hint(
                "versions are kept in `.rath` where the session works, which is looked for from here if it is relative",
            )
        })?;
        if found != kind.name() {
            let message = format!("wanted the {} {id}, found a {found}", kind.name());
            return Err(Error::new(ErrorKind::Damaged, message));
        }
        if hash(kind, &content) != Some(id) {
            let message = format!("the {} {id} is damaged: its bytes do not fit its name", kind.name());
            return Err(Error::new(ErrorKind::Damaged, message));
        }
        Ok(content)
    }

    /// The digest of a blob's content.
    pub(super) fn digest(&self, id: ObjectId) -> Result<Digest> {
        if let Some(digest) = self.0.digests.lock().unwrap_or_else(PoisonError::into_inner).get(&id) {
            return Ok(*digest);
        }
        let digest = Digest::of(&self.get(id, Kind::Blob)?);
        self.remember(id, digest);
        Ok(digest)
    }

    pub(super) fn remember(&self, id: ObjectId, digest: Digest) {
        let mut digests = self.0.digests.lock().unwrap_or_else(PoisonError::into_inner);
        if digests.len() >= DIGESTS {
            digests.clear();
        }
        digests.insert(id, digest);
    }

    /// Whether an object is there. One that others wrote is synced with ours, since nobody knows whether they did.
    pub(super) fn contains(&self, id: ObjectId) -> bool {
        if self.pack_of(id).is_some() {
            return true;
        }
        let path = self.loose(id);
        let there = path.exists();
        if there {
            self.unsynced(path);
        }
        there
    }

    /// Writes one object as a file of its own.
    pub(super) fn put_loose(&self, id: ObjectId, kind: Kind, content: &[u8]) -> Result<()> {
        let path = self.loose(id);
        let write = || -> io::Result<()> {
            let mut encoder = ZlibEncoder::new(Vec::with_capacity(content.len() / 2 + 64), LEVEL);
            encoder.write_all(header(kind, content.len()).as_bytes())?;
            encoder.write_all(content)?;
            let bytes = encoder.finish()?;
            match write_new(&self.0.folder.join("objects"), &path, &bytes) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    fs::create_dir_all(path.parent().unwrap_or(&path))?;
                    write_new(&self.0.folder.join("objects"), &path, &bytes)
                }
                done => done,
            }
        };
        write().map_err(|error| at(&self.0.folder, "write a version to", error))?;
        self.unsynced(path);
        Ok(())
    }

    /// Takes in a pack that was just written.
    pub(super) fn add_pack(&self, pack: Pack) {
        for file in pack.files() {
            self.unsynced(file);
        }
        self.0.packs.write().unwrap_or_else(PoisonError::into_inner).list.push(Arc::new(pack));
    }

    fn find(&self, id: ObjectId) -> Result<Option<(&'static str, Vec<u8>)>> {
        for attempt in 0..2 {
            if let Some((pack, offset)) = self.pack_of(id) {
                return pack.read(offset).map(Some);
            }
            if let Some(found) = self.read_loose(id)? {
                return Ok(Some(found));
            }
            // Another process may have written a pack since.
            if attempt == 0 && !self.look_for_packs()? {
                break;
            }
        }
        Ok(None)
    }

    fn pack_of(&self, id: ObjectId) -> Option<(Arc<Pack>, u64)> {
        let packs = self.0.packs.read().unwrap_or_else(PoisonError::into_inner);
        // The newest is the likeliest.
        packs.list.iter().rev().find_map(|pack| Some((pack.clone(), pack.offset_of(id)?)))
    }

    fn loose(&self, id: ObjectId) -> PathBuf {
        let hex = id.to_string();
        let mut path = self.0.folder.join("objects");
        path.push(&hex[..2]);
        path.push(&hex[2..]);
        path
    }

    fn read_loose(&self, id: ObjectId) -> Result<Option<(&'static str, Vec<u8>)>> {
        let file = match File::open(self.loose(id)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(at(&self.0.folder, "read a version from", error)),
        };
        let damaged = || Error::new(ErrorKind::Damaged, format_args!("the object {id} is damaged"));
        let mut bytes = Vec::new();
        ZlibDecoder::new(file).read_to_end(&mut bytes).map_err(|error| damaged().because(error))?;
        let end = memchr::memchr(0, &bytes).ok_or_else(damaged)?;
        let (kind, length) =
            std::str::from_utf8(&bytes[..end]).ok().and_then(|it| it.split_once(' ')).ok_or_else(damaged)?;
        let kind = kind_named(kind).ok_or_else(damaged)?;
        let length: usize = length.parse().map_err(|_| damaged())?;
        bytes.drain(..=end);
        if bytes.len() == length { Ok(Some((kind, bytes))) } else { Err(damaged()) }
    }

    /// Reads the indexes of packs that are not known yet, and says whether there were any.
    fn look_for_packs(&self) -> Result<bool> {
        let folder = self.0.folder.join("objects/pack");
        let failed = |error| at(&folder, "list the packs in", error);
        let changed = fs::metadata(&folder).and_then(|found| found.modified()).map_err(failed)?;
        let mut packs = self.0.packs.write().unwrap_or_else(PoisonError::into_inner);
        if packs.seen == Some(changed) && changed.elapsed().is_ok_and(|passed| passed.as_secs() > 2) {
            return Ok(false);
        }
        let before = packs.list.len();
        for entry in fs::read_dir(&folder).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let known = |pack: &Arc<Pack>| pack.index() == path;
            if path.extension().is_some_and(|extension| extension == "idx") && !packs.list.iter().any(known) {
                let pack = Pack::open(&path)?;
                for file in pack.files() {
                    self.unsynced(file);
                }
                packs.list.push(Arc::new(pack));
            }
        }
        packs.seen = Some(changed);
        Ok(packs.list.len() > before)
    }
}

/// The name of an object, or none where its bytes are made to collide with others.
pub(super) fn hash(kind: Kind, content: &[u8]) -> Option<ObjectId> {
    let mut hasher = sha1dc::Hasher::new();
    hasher.update(header(kind, content.len()).as_bytes());
    hasher.update(content);
    hasher.finalize().ok().map(|digest| ObjectId(digest.into()))
}

/// The SHA-1 of something that is no object.
pub(super) fn checksum(parts: &[&[u8]]) -> [u8; 20] {
    let mut hasher = sha1dc::Hasher::new();
    parts.iter().for_each(|part| hasher.update(part));
    match hasher.finalize() {
        Ok(digest) => digest.into(),
        Err(collision) => collision.digest().into(),
    }
}

fn header(kind: Kind, length: usize) -> String {
    format!("{} {length}\0", kind.name())
}

/// A kind by its name, among all that git has.
fn kind_named(name: &str) -> Option<&'static str> {
    ["blob", "tree", "commit", "tag"].into_iter().find(|kind| *kind == name)
}

/// What was tried with a path, and why it failed.
pub(super) fn at(path: &Path, tried: &str, error: io::Error) -> Error {
    Error::new(ErrorKind::Io, format_args!("cannot {tried} `{}`", path.display())).because(error)
}

/// A name that nobody else writes to, in this process or another.
pub(super) fn temporary(folder: &Path) -> PathBuf {
    static NTH: AtomicU64 = AtomicU64::new(0);
    folder.join(format!("tmp_{}_{}", unique_name(), NTH.fetch_add(1, Relaxed)))
}

/// Returns a name that no other process has made.
pub(super) fn unique_name() -> String {
    uuid::Uuid::now_v7().simple().to_string()
}

/// Writes a file under another name in `folder`, then puts it where it belongs.
pub(super) fn write_new(folder: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = temporary(folder);
    let written = fs::write(&temporary, bytes).and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// Removes what processes left behind that ended while they wrote. Nobody writes for a day.
fn sweep(folder: &Path) {
    for part in ["", "objects", "objects/pack", "versions"] {
        for entry in fs::read_dir(folder.join(part)).into_iter().flatten().flatten() {
            let is_old = || {
                let modified = entry.metadata().and_then(|found| found.modified()).ok()?;
                Some(modified.elapsed().ok()?.as_secs() > 24 * 60 * 60)
            };
            if entry.file_name().as_encoded_bytes().starts_with(b"tmp_") && is_old() == Some(true) {
                let _ = fs::remove_file(entry.path()).or_else(|_| fs::remove_dir_all(entry.path()));
            }
        }
    }
}

fn identity(folder: &Path) -> io::Result<[u8; 16]> {
    let path = folder.join("identity");
    for _ in 0..2 {
        if let Ok(text) = fs::read_to_string(&path)
            && let Ok(identity) = uuid::Uuid::parse_str(text.trim())
        {
            return Ok(identity.into_bytes());
        }
        write_new(folder, &path, format!("{}\n", uuid::Uuid::now_v7()).as_bytes())?;
    }
    Err(io::Error::other("its identity cannot be read back"))
}

fn sync_files(files: &[PathBuf]) -> io::Result<()> {
    let mut folders: Vec<&Path> = files.iter().filter_map(|file| file.parent()).collect();
    // A folder of loose objects may be new itself.
    let above: Vec<&Path> = folders.iter().filter_map(|folder| folder.parent()).collect();
    folders.extend(above);
    folders.sort_unstable();
    folders.dedup();
    for path in files.iter().map(PathBuf::as_path).chain(folders) {
        File::open(path)?.sync_all()?;
    }
    Ok(())
}

#[cfg(target_os = "linux")]
fn sync_file_system(folder: &Path) -> io::Result<()> {
    Ok(rustix::fs::syncfs(File::open(folder)?)?)
}

#[cfg(not(target_os = "linux"))]
fn sync_file_system(_folder: &Path) -> io::Result<()> {
    rustix::fs::sync();
    Ok(())
}
