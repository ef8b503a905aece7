//! The file of a database, read beside SQLite.
//!
//! When a process closes any handle of a file, the system drops all POSIX locks of that process on the file, also those that SQLite
//! holds through handles of its own. Another program would then take the store for closed and delete its WAL. So a process opens
//! the file once, and closes it after the last connection.

use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::io::{self, Read, Seek, SeekFrom};
#[cfg(unix)]
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The files that this process has open.
static OPEN_FILES: Mutex<Option<HashMap<FileId, SharedFile>>> = Mutex::new(None);

/// The number of a file: its device and its inode.
type FileId = (u64, u64);

struct SharedFile {
    file: Arc<Mutex<File>>,
    users: usize,
    /// Handles that were opened while the file was being replaced by another one.
    others: Vec<File>,
}

/// A handle of the file, which this process shares.
pub(super) struct DatabaseFile {
    id: FileId,
    /// None only while the handle is dropped.
    file: Option<Arc<Mutex<File>>>,
}

impl DatabaseFile {
    /// Opens a file, or shares the handle that this process has.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let mut open_files = lock();
        let open_files = open_files.get_or_insert_default();
        let metadata = std::fs::metadata(path)?;
        // Opening a pipe would wait for its other end.
        if !metadata.is_file() {
            return Err(io::Error::other("it is not a regular file"));
        }
        let mut id = file_id(&metadata);
        if !open_files.contains_key(&id) {
            let file = rath_workspace::open_regular_file(path)?;
            id = file_id(&file.metadata()?);
            match open_files.get_mut(&id) {
                Some(known) => known.others.push(file),
                None => {
                    let file = Arc::new(Mutex::new(file));
                    open_files.insert(id, SharedFile { file, users: 0, others: Vec::new() });
                }
            }
        }
        let open_file = open_files.get_mut(&id).expect("it is there or was inserted");
        open_file.users += 1;
        Ok(DatabaseFile { id, file: Some(open_file.file.clone()) })
    }

    /// Reads the first bytes, at most `length`.
    pub(super) fn read_start(&self, length: u64) -> io::Result<Vec<u8>> {
        let mut file = self.lock();
        let mut bytes = Vec::new();
        file.rewind()?;
        (&mut *file).take(length).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Fills a buffer from an offset.
    pub(super) fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let mut file = self.lock();
        file.seek(SeekFrom::Start(offset))?;
        file.read_exact(buffer)
    }

    /// Returns the length of the file, in bytes.
    pub(super) fn length(&self) -> io::Result<u64> {
        Ok(self.lock().metadata()?.len())
    }

    fn lock(&self) -> MutexGuard<'_, File> {
        let file = self.file.as_ref().expect("it is not being dropped");
        file.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for DatabaseFile {
    fn drop(&mut self) {
        // The file is closed under the lock: a store that opens it now would lose its locks otherwise.
        let mut open_files = lock();
        self.file = None;
        if let Some(open_files) = &mut *open_files
            && let Some(open_file) = open_files.get_mut(&self.id)
        {
            open_file.users -= 1;
            if open_file.users == 0 {
                open_files.remove(&self.id);
            }
        }
    }
}

fn lock() -> MutexGuard<'static, Option<HashMap<FileId, SharedFile>>> {
    OPEN_FILES.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(unix)]
fn file_id(metadata: &Metadata) -> FileId {
    (metadata.dev(), metadata.ino())
}

/// Returns a new number each time: other systems drop only the locks of the handle that is closed.
#[cfg(not(unix))]
fn file_id(_: &Metadata) -> FileId {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    (0, NEXT.fetch_add(1, Relaxed))
}
