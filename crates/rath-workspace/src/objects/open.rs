//! Opening a folder of objects: for use by many processes, for reading, or for one process alone.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, RwLock};

use super::{MAX_SMALL_FILE_BYTES, Objects, ObjectsInner, PendingSync, Storing, io_error};
use crate::collector::CollectMode;
use crate::disk;
use crate::error::Result;
use crate::folder_lock::FolderLock;
use crate::regular_file::read_at_most;
use crate::temporaries::{self, Temporaries};

/// The configuration of the repository. It tells git never to remove objects, though no reference names them.
const CONFIG: &str = "[core]\n\trepositoryformatversion = 1\n\tbare = true\n\tlogallrefupdates = false\n\
                      [extensions]\n\tpreciousObjects = true\n[gc]\n\tauto = 0\n";

impl Objects {
    /// Opens the folder, and creates it if it is missing.
    ///
    /// Fails with [`ErrorKind::Directory`](crate::ErrorKind::Directory) on a platform other than Unix.
    pub fn open(folder: &Path) -> Result<Self> {
        disk::check_platform()?;
        Objects::open_locked(folder, FolderLock::share(folder)?)
    }

    /// Opens a folder that exists. No other process uses it as long as the handle exists, and what is written through the handle
    /// is not stored. None while the folder is in use.
    pub(crate) fn open_exclusive(folder: &Path, mode: CollectMode) -> Result<Option<Self>> {
        disk::check_platform()?;
        let lock = FolderLock::try_exclusive(folder).map_err(|error| io_error(folder, "lock", error))?;
        let Some(lock) = lock else { return Ok(None) };
        let temporaries = Temporaries::new(folder);
        if mode == CollectMode::Remove {
            temporaries::sweep(folder);
            remove_stale_files(folder);
        }
        // A folder without an identity has no indexes.
        let identity = read_identity(folder).unwrap_or_default();
        Objects::with_identity(folder, (identity, Storing::Discard), temporaries, Some(lock)).map(Some)
    }

    fn open_locked(folder: &Path, lock: FolderLock) -> Result<Self> {
        let failed = |error| io_error(folder, "open the versions in", error);
        for part in ["objects/pack", "objects/info", "refs"] {
            fs::create_dir_all(folder.join(part)).map_err(failed)?;
        }
        temporaries::sweep(folder);
        remove_stale_files(folder);
        let temporaries = Temporaries::new(folder);
        for (name, text) in [("config", CONFIG), ("HEAD", "ref: refs/heads/none\n")] {
            let path = folder.join(name);
            // A power cut may leave a name without its content.
            if fs::metadata(&path).map_or(0, |file| file.len()) < text.len() as u64 {
                temporaries.write_new(&path, text.as_bytes()).map_err(failed)?;
            }
        }
        let identity = identity(folder, &temporaries).map_err(failed)?;
        Objects::with_identity(folder, (identity, Storing::Write), temporaries, Some(lock))
    }

    /// Opens a folder that exists, for reading only.
    pub fn open_read_only(folder: &Path) -> Result<Self> {
        disk::check_platform()?;
        let lock = FolderLock::share_existing(folder)?;
        Objects::with_identity(folder, ([0; 16], Storing::Refuse), Temporaries::new(folder), lock)
    }

    fn with_identity(
        folder: &Path,
        (identity, storing): ([u8; 16], Storing),
        temporaries: Temporaries,
        lock: Option<FolderLock>,
    ) -> Result<Self> {
        let objects = Objects(Arc::new(ObjectsInner {
            folder: folder.to_owned(),
            identity,
            storing,
            temporaries,
            _lock: lock,
            packs: RwLock::default(),
            unsynced: Mutex::new(PendingSync::Files(Vec::new())),
            are_directories_synced: AtomicBool::new(false),
            intact_bases: Mutex::default(),
            #[cfg(target_os = "linux")]
            can_mount_overlay: std::sync::OnceLock::new(),
            digests: Mutex::default(),
            intact: Mutex::default(),
        }));
        objects.refresh_packs()?;
        Ok(objects)
    }

    /// Returns the temporaries of this opening.
    pub(crate) fn temporaries(&self) -> &Temporaries {
        &self.0.temporaries
    }

    /// Returns a directory for temporary files, which the next opening of the folder removes if this process is killed.
    ///
    /// A file `NAME.note` in it that holds the path of a file `.rath-UUID.tmp` makes the next opening remove that file too.
    pub fn temp_directory(&self) -> Result<PathBuf> {
        self.check_writable()?;
        self.0.temporaries.directory().map_err(|error| io_error(&self.0.folder, "write to", error))
    }

    /// Writes a file, which appears as a whole or not at all.
    pub fn write_file(&self, path: &Path, content: &[u8]) -> Result<()> {
        self.check_writable()?;
        self.0.temporaries.write_new(path, content).map_err(|error| io_error(path, "write", error))
    }

    /// Cleans up the forks that killed processes left in a directory: an unfinished fork is removed, and one that no process uses is
    /// unmounted. Forks in use are left alone.
    pub fn sweep_forks(&self, directory: &Path) {
        crate::overlay::sweep(directory);
        remove_old_temporaries(directory);
    }
}

fn identity_file(folder: &Path) -> PathBuf {
    folder.join("identity")
}

/// Reads the identity of a folder; none if it is missing or damaged.
fn read_identity(folder: &Path) -> Option<[u8; 16]> {
    let bytes = read_at_most(&identity_file(folder), MAX_SMALL_FILE_BYTES).ok()?;
    Some(uuid::Uuid::try_parse_ascii(bytes.trim_ascii()).ok()?.into_bytes())
}

/// Reads the identity of a folder, and creates it if it is missing.
fn identity(folder: &Path, temporaries: &Temporaries) -> io::Result<[u8; 16]> {
    let path = identity_file(folder);
    for _ in 0..2 {
        if let Some(identity) = read_identity(folder) {
            return Ok(identity);
        }
        temporaries.write_new(&path, format!("{}\n", uuid::Uuid::now_v7()).as_bytes())?;
    }
    Err(io::Error::other("the file `identity` cannot be read back"))
}

/// Removes temporary files that an earlier version of this crate left.
fn remove_stale_files(folder: &Path) {
    ["", "objects", "objects/pack", "versions"].iter().for_each(|part| remove_old_temporaries(&folder.join(part)));
}

/// Removes temporaries of earlier versions of this crate. Their names do not tell whose they are; no write takes a day.
fn remove_old_temporaries(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let is_old = || {
            let modified = entry.metadata().and_then(|metadata| metadata.modified()).ok()?;
            Some(modified.elapsed().ok()?.as_secs() > 24 * 60 * 60)
        };
        let name = entry.file_name();
        let name = name.as_encoded_bytes();
        if (name.starts_with(b"tmp_") || name.starts_with(b".rath-")) && is_old() == Some(true) {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                crate::overlay::unmount_trial(&entry.path());
            }
            let _ = fs::remove_file(entry.path()).or_else(|_| fs::remove_dir_all(entry.path()));
        }
    }
}
