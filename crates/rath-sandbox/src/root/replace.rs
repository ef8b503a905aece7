//! Replacing a file: the new content is complete before it gets its name.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use rustix::fs::{AtFlags, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::resolve::PathError;
use super::to_errno;
use crate::files::temporary_name;

/// The new content of a file.
pub(super) struct NewContent<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) is_cancelled: &'a AtomicBool,
    /// A directory for temporary files, which is swept if this process is killed.
    pub(super) staging: Option<&'a Path>,
}

/// A new file under a temporary name. It is removed on drop unless it was renamed.
struct TempFile<'a> {
    directory: BorrowedFd<'a>,
    name: String,
    file: File,
    /// The file in the staging directory that says where this one is.
    note: Option<PathBuf>,
}

impl NewContent<'_> {
    /// Writes a new file and renames it over the old one, if there is one.
    pub(super) fn replace(&self, directory: BorrowedFd<'_>, name: &OsStr, old: Option<&Stat>) -> Result<(), PathError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let staging = self.staging.and_then(|path| rustix::fs::open(path, flags, Mode::empty()).ok());
        match staging.filter(|staging| can_stage(staging, directory)) {
            Some(staging) => self.replace_from(staging.as_fd(), directory, name, old),
            None => self.write(TempFile::create(directory, self.staging, mode(old))?, directory, name, old),
        }
    }

    /// Writes a new file in a staging directory and moves it. If that cannot be, it is written beside the old one.
    fn replace_from(
        &self,
        staging: BorrowedFd<'_>,
        directory: BorrowedFd<'_>,
        name: &OsStr,
        old: Option<&Stat>,
    ) -> Result<(), PathError> {
        let staged = TempFile::create(staging, None, mode(old)).map_err(PathError::from);
        match staged.and_then(|temp| self.write(temp, directory, name, old)) {
            // The staging directory is on another file system, or was removed after it was opened.
            Err(PathError::Errno(Errno::XDEV | Errno::NOENT)) => {
                self.write(TempFile::create(directory, self.staging, mode(old))?, directory, name, old)
            }
            done => done,
        }
    }

    fn write(
        &self,
        mut temp: TempFile<'_>,
        directory: BorrowedFd<'_>,
        name: &OsStr,
        old: Option<&Stat>,
    ) -> Result<(), PathError> {
        temp.file.write_all(self.bytes).map_err(to_errno)?;
        if let Some(old) = old {
            let new = rustix::fs::fstat(&temp.file)?;
            if (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid) {
                let owner = (rustix::fs::Uid::from_raw(old.st_uid), rustix::fs::Gid::from_raw(old.st_gid));
                let _ = rustix::fs::fchown(&temp.file, Some(owner.0), Some(owner.1));
            }
            rustix::fs::fchmod(&temp.file, Mode::from_raw_mode(old.st_mode & 0o777))?;
        }
        if self.is_cancelled.load(SeqCst) {
            return Err(Errno::CANCELED.into());
        }
        rustix::fs::renameat(temp.directory, &temp.name, directory, name)?;
        Ok(())
    }
}

/// Returns the permissions of a temporary file. The old file may be private, so the new one is until it has the same permissions.
fn mode(old: Option<&Stat>) -> Mode {
    Mode::from_raw_mode(if old.is_some() { 0o600 } else { 0o666 })
}

/// Returns true if a file that is created in the staging directory and moved is the same as one that is created in the directory:
/// both are on one file system, and the directory gives its files neither a group nor access rights.
fn can_stage(staging: &OwnedFd, directory: BorrowedFd<'_>) -> bool {
    const SET_GROUP_ID: u32 = 0o2000;
    let (Ok(staging), Ok(target)) = (rustix::fs::fstat(staging), rustix::fs::fstat(directory)) else { return false };
    #[allow(clippy::unnecessary_cast, reason = "the types differ between systems")]
    let sets_group = target.st_mode as u32 & SET_GROUP_ID != 0;
    staging.st_dev == target.st_dev && !sets_group && !has_default_acl(directory)
}

#[cfg(target_os = "linux")]
fn has_default_acl(directory: BorrowedFd<'_>) -> bool {
    let found = rustix::fs::getxattr(fd_path(directory), "system.posix_acl_default", &mut [0_u8; 0]);
    matches!(found, Ok(_) | Err(Errno::RANGE))
}

#[cfg(not(target_os = "linux"))]
fn has_default_acl(_directory: BorrowedFd<'_>) -> bool {
    false
}

/// Returns a path that leads to an open directory.
#[cfg(target_os = "linux")]
fn fd_path(directory: BorrowedFd<'_>) -> PathBuf {
    use std::os::fd::AsRawFd as _;

    format!("/proc/self/fd/{}", directory.as_raw_fd()).into()
}

impl<'a> TempFile<'a> {
    /// Creates a file in a directory. With a staging directory, its path is noted there first.
    fn create(directory: BorrowedFd<'a>, staging: Option<&Path>, mode: Mode) -> Result<Self, Errno> {
        let name = temporary_name();
        let note = staging.and_then(|staging| write_note(directory, staging, &name));
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(directory, &name, flags, mode)?.into();
        Ok(TempFile { directory, name, file, note })
    }
}

/// Writes the path of a temporary file to the staging directory. Without a note the file is written all the same.
fn write_note(directory: BorrowedFd<'_>, staging: &Path, name: &str) -> Option<PathBuf> {
    #[cfg(target_os = "linux")]
    {
        let path = std::fs::read_link(fd_path(directory)).ok()?.join(name);
        let note = staging.join(format!("{name}.note"));
        std::fs::write(&note, path.as_os_str().as_encoded_bytes()).ok()?;
        Some(note)
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (directory, staging, name);
        None
    }
}

impl Drop for TempFile<'_> {
    fn drop(&mut self) {
        // Fails after the rename, since the name is gone.
        let _ = rustix::fs::unlinkat(self.directory, &self.name, AtFlags::empty());
        let _ = self.note.as_ref().map(std::fs::remove_file);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::Root;

    /// Writes a file many times, and returns all names that were seen in its directory meanwhile.
    fn names_seen(root: &Root, staging: Option<&Path>) -> BTreeSet<String> {
        let is_done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let looking = scope.spawn(|| {
                let mut seen = BTreeSet::new();
                while !is_done.load(SeqCst) {
                    let entries = std::fs::read_dir(root.path().join("sub")).into_iter().flatten().flatten();
                    seen.extend(entries.map(|entry| entry.file_name().to_string_lossy().into_owned()));
                }
                seen
            });
            for _ in 0..1_000 {
                root.write_unless("sub/a.txt", b"text", &AtomicBool::new(false), staging).expect("written");
            }
            is_done.store(true, SeqCst);
            looking.join().expect("no panic")
        })
    }

    #[test]
    fn a_staged_write_has_no_temporary_file_beside_it() {
        let folder = tempfile::tempdir().expect("a directory");
        let (project, staging) = (folder.path().join("project"), folder.path().join("staging"));
        std::fs::create_dir_all(project.join("sub")).expect("a directory");
        std::fs::create_dir(&staging).expect("a directory");
        let root = Root::open(&project).expect("a root");
        assert_eq!(names_seen(&root, Some(&staging)), BTreeSet::from(["a.txt".to_owned()]));
        assert_eq!(std::fs::read_dir(&staging).expect("listed").count(), 0, "nothing is left");
        let beside = names_seen(&root, None);
        assert!(beside.iter().any(|name| crate::is_temporary_name(name.as_ref())), "without staging: {beside:?}");
    }

    #[test]
    fn a_staging_directory_that_was_removed_does_not_keep_a_file_from_being_written() {
        let folder = tempfile::tempdir().expect("a directory");
        let (project, staging) = (folder.path().join("project"), folder.path().join("staging"));
        [&project, &staging].iter().for_each(|directory| std::fs::create_dir(directory).expect("a directory"));
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let [directory, removed] =
            [&project, &staging].map(|path| rustix::fs::open(path, flags, Mode::empty()).expect("opened"));
        // As if it was removed between its opening and its use.
        std::fs::remove_dir(&staging).expect("removed");
        let error = TempFile::create(removed.as_fd(), None, mode(None)).err();
        assert_eq!(error, Some(Errno::NOENT));
        let (is_cancelled, bytes) = (AtomicBool::new(false), b"text");
        for staging in [None, Some(&*staging)] {
            let content = NewContent { bytes, is_cancelled: &is_cancelled, staging };
            assert!(content.replace_from(removed.as_fd(), directory.as_fd(), OsStr::new("a.txt"), None).is_ok());
            assert_eq!(std::fs::read(project.join("a.txt")).expect("read"), bytes);
        }
    }

    #[test]
    fn a_file_in_a_directory_with_a_group_is_created_there() {
        let folder = tempfile::tempdir().expect("a directory");
        let (project, staging) = (folder.path().join("project"), folder.path().join("staging"));
        std::fs::create_dir_all(project.join("sub")).expect("a directory");
        std::fs::create_dir(&staging).expect("a directory");
        std::fs::set_permissions(project.join("sub"), std::fs::Permissions::from_mode(0o2755)).expect("permitted");
        let root = Root::open(&project).expect("a root");
        root.write_unless("sub/a.txt", b"text", &AtomicBool::new(false), Some(&staging)).expect("written");
        assert_eq!(std::fs::read_dir(project.join("sub")).expect("listed").count(), 1);
        assert_eq!(std::fs::read_dir(&staging).expect("listed").count(), 0, "its note is removed");
    }
}
