//! The directory on this machine through which a container and rath find each other.
//!
//! It holds the container's first process, the socket that this process connects to, and empty files that stand for hidden ones. The
//! file `ID.lock` beside it is locked as long as a rath process owns the container. The system releases the lock when the process
//! ends, also if it is killed: a later process finds the container by its label, and takes it over or removes it.

use std::fs::{self, DirBuilder, File};
use std::io::{Error as IoError, ErrorKind as IoErrorKind, Result as IoResult};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rath_sandbox::backend::drop_on_pool;
use rath_sandbox::{Error, ErrorKind, Result, own_data_directory};
use rustix::fs::{Mode, OFlags};
use uuid::Uuid;

use crate::mounts::{EMPTY_DIR, EMPTY_FILE};

/// The first process of containers, which `build.rs` compiles.
#[cfg(has_init)]
const INIT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/init"));
#[cfg(not(has_init))]
const INIT: &[u8] = &[];

/// The names in the directory.
pub(crate) const INIT_NAME: &str = "init";
pub(crate) const SOCKET_NAME: &str = "control";

/// The number of attempts to create a lock file that another process removes at the same time.
const MAX_TRIES: usize = 16;

/// A control directory that this process owns. It is removed on drop, with the lock file.
#[derive(Debug)]
pub(crate) struct ControlDir {
    id: Uuid,
    files: Option<OwnedFiles>,
}

/// The directory and its lock, which the removal needs.
#[derive(Debug)]
struct OwnedFiles {
    path: PathBuf,
    lock_path: PathBuf,
    _lock: File,
}

impl ControlDir {
    /// Creates a directory. Blocks.
    pub(crate) fn create() -> Result<Self> {
        if INIT.is_empty() {
            let message = "a sandbox `container:` needs Linux on a processor of the kind x86_64";
            return Err(Error::new(ErrorKind::Unavailable, message));
        }
        let failed = |error: IoError| {
            let message = "cannot create the directory of a container in your data directory";
            Error::new(ErrorKind::Io, message).with_hint("`XDG_DATA_HOME` names another data directory").because(error)
        };
        let folder = folder()?;
        let create = || {
            DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
            let (id, files) = OwnedFiles::create(&folder)?;
            let write = |name: &str, content: &[u8], mode: u32| {
                fs::write(files.path.join(name), content)?;
                fs::set_permissions(files.path.join(name), fs::Permissions::from_mode(mode))
            };
            write(INIT_NAME, INIT, 0o555)?;
            write(EMPTY_FILE, b"", 0o444)?;
            DirBuilder::new().mode(0o555).create(files.path.join(EMPTY_DIR))?;
            Ok(ControlDir { id, files: Some(files) })
        };
        create().map_err(failed)
    }

    /// Takes over the directory of a process that has died; none if it is gone, or its process lives. Blocks.
    pub(crate) fn take_over(id: Uuid) -> Option<Self> {
        let (path, lock_path) = paths(&folder().ok()?, id);
        let lock = lock_free(&lock_path).ok()?;
        path.is_dir().then(|| ControlDir { id, files: Some(OwnedFiles { path, lock_path, _lock: lock }) })
    }

    pub(crate) fn id(&self) -> Uuid {
        self.id
    }

    pub(crate) fn path(&self) -> &Path {
        self.files.as_ref().map_or(Path::new(""), |files| &files.path)
    }

    /// Listens on the socket that the first process connects to. Blocks.
    pub(crate) fn listen(&self) -> IoResult<UnixListener> {
        let _ = fs::remove_file(self.path().join(SOCKET_NAME));
        // The path of a socket has 107 bytes at most, and the data directory may have more.
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(self.path(), flags, Mode::empty())?;
        let listener = UnixListener::bind(format!("/proc/self/fd/{}/{SOCKET_NAME}", directory.as_raw_fd()))?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    }

    /// Removes the socket, so that nothing else can connect. Blocks.
    pub(crate) fn stop_listening(&self) {
        let _ = fs::remove_file(self.path().join(SOCKET_NAME));
    }
}

impl OwnedFiles {
    /// Creates a directory with a locked lock file. Blocks.
    fn create(folder: &Path) -> IoResult<(Uuid, Self)> {
        for _ in 0..MAX_TRIES {
            let id = Uuid::now_v7();
            let (path, lock_path) = paths(folder, id);
            drop(File::options().append(true).create_new(true).mode(0o600).open(&lock_path)?);
            // Another process may have found the file before it was locked, and removed it.
            if let Ok(lock) = lock_free(&lock_path) {
                let files = OwnedFiles { path, lock_path, _lock: lock };
                DirBuilder::new().mode(0o700).create(&files.path)?;
                return Ok((id, files));
            }
        }
        Err(IoError::other("the lock file of a container is removed again and again"))
    }
}

impl Drop for ControlDir {
    fn drop(&mut self) {
        self.files.take().into_iter().for_each(drop_on_pool);
    }
}

impl Drop for OwnedFiles {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
        let _ = fs::remove_file(&self.lock_path);
    }
}

/// Returns true if a process of this user that has died left a control directory, which is in this data directory. Blocks.
///
/// A directory that is not there may be in another data directory, and its process may live: its container is left alone.
pub(crate) fn is_left(id: Uuid) -> bool {
    folder().is_ok_and(|folder| lock_free(&paths(&folder, id).1).is_ok())
}

/// Removes control directories whose processes have died, unless a container has the id. Blocks.
pub(crate) fn sweep(is_in_use: impl Fn(Uuid) -> bool) {
    let Ok(folder) = folder() else { return };
    for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(id) = name.to_str().and_then(|name| name.strip_suffix(".lock")).and_then(parse_id) else { continue };
        if let (false, (path, lock_path)) = (is_in_use(id), paths(&folder, id))
            && let Ok(lock) = lock_free(&lock_path)
        {
            drop(OwnedFiles { path, lock_path, _lock: lock });
        }
    }
}

/// Parses an id from a label or a name; none if it is not written as this module does.
pub(crate) fn parse_id(text: &str) -> Option<Uuid> {
    Uuid::try_parse(text).ok().filter(|id| id.hyphenated().to_string() == text)
}

/// Opens and locks a lock file of this user.
fn lock_free(path: &Path) -> IoResult<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let lock = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let (open, own) = (lock.metadata()?, rustix::process::geteuid().as_raw());
    if !open.is_file() || open.uid() != own {
        return Err(IoErrorKind::PermissionDenied.into());
    }
    lock.try_lock()?;
    // Its owner may have removed it meanwhile.
    let named = fs::symlink_metadata(path)?;
    if (open.dev(), open.ino()) == (named.dev(), named.ino()) { Ok(lock) } else { Err(IoErrorKind::NotFound.into()) }
}

fn paths(folder: &Path, id: Uuid) -> (PathBuf, PathBuf) {
    (folder.join(id.to_string()), folder.join(format!("{id}.lock")))
}

/// Returns the folder of the control directories of this user.
fn folder() -> Result<PathBuf> {
    own_data_directory().map(|directory| directory.join("containers")).ok_or_else(|| {
        let message = "wanted a data directory for the files of containers, found none";
        Error::new(ErrorKind::Unavailable, message).with_hint("set `HOME` or `XDG_DATA_HOME`")
    })
}
