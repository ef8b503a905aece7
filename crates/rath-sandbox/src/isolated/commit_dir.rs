//! The `.git` that a command sees which commits: a copy of its own, in which the parts that a commit changes are the real ones.
//!
//! Git runs the hooks and settings of a repository later, outside of the sandbox, and looks for them under many names: `hooks`,
//! `config`, `commondir`. It also creates and renames files in `.git` whenever it commits, so `.git` cannot be read-only. Hence the
//! command has another directory in its place. Objects, refs and logs are mounted in there from the repository; settings are
//! copies. Of the other files, two are taken over when the command has succeeded: `index` and `HEAD`. All else that it leaves is
//! removed with the directory.

use std::fs::{File, Metadata};
use std::io::{ErrorKind as ErrorKindIo, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use crate::error::{Error, ErrorKind, Result};
use crate::temp_dir::TempDir;

/// The directory that stands for the `.git` of a workspace while a command commits.
#[derive(Debug)]
pub(super) struct CommitDir {
    /// Removed on drop.
    _temp: TempDir,
    path: PathBuf,
    /// The repository, without links.
    repository: PathBuf,
    published: [PublishedFile; 2],
}

/// A file that is taken over from the directory of a command.
#[derive(Debug)]
struct PublishedFile {
    name: &'static str,
    /// The file of the repository when it was copied; none if it was missing.
    original: Option<FileVersion>,
    copy: Option<FileVersion>,
}

/// The metadata by which a change of a file is noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileVersion {
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// The directories of a repository that a commit writes.
const WRITTEN_DIRS: [&str; 4] = ["objects", "refs", "logs", "reftable"];
/// Other directories of a repository that git reads to commit. The hooks are not among them.
const READ_DIRS: [&str; 6] = ["info", "modules", "worktrees", "rebase-merge", "rebase-apply", "sequencer"];
/// The files of a repository that git reads to commit, besides those that are taken over.
const READ_FILES: [&str; 15] = [
    "config",
    "config.worktree",
    "packed-refs",
    "shallow",
    "ORIG_HEAD",
    "MERGE_HEAD",
    "MERGE_MSG",
    "MERGE_MODE",
    "CHERRY_PICK_HEAD",
    "REVERT_HEAD",
    "REBASE_HEAD",
    "SQUASH_MSG",
    "AUTO_MERGE",
    "BISECT_LOG",
    "COMMIT_EDITMSG",
];
/// The beginning of the names of files that hold a part of the index.
const SHARED_INDEX: &str = "sharedindex.";
/// The size of the largest `HEAD`, in bytes.
const MAX_HEAD_BYTES: u64 = 4096;

impl CommitDir {
    /// Prepares a directory for a repository, which is given without links. Returns none if the repository is not all in there, such as
    /// that of a second working tree.
    pub(super) fn prepare(repository: &Path) -> Result<Option<Self>> {
        let is_directory = |name: &str| repository.join(name).symlink_metadata().is_ok_and(|file| file.is_dir());
        let is_complete = ["objects", "refs"].into_iter().all(is_directory);
        if !is_complete || repository.join("commondir").symlink_metadata().is_ok() {
            return Ok(None);
        }
        let failed = |error: std::io::Error| {
            Error::new(ErrorKind::Io, "cannot prepare a copy of `.git` for a commit").because(error)
        };
        refuse_locked(repository, "index")?;
        match std::fs::create_dir(repository.join("logs")) {
            Err(error) if error.kind() != ErrorKindIo::AlreadyExists => return Err(failed(error)),
            _ => {}
        }
        let temp = TempDir::create_blocking("git").map_err(failed)?;
        let path = temp.path().canonicalize().map_err(failed)?;
        for name in WRITTEN_DIRS.into_iter().chain(READ_DIRS).filter(|name| is_directory(name)) {
            std::fs::create_dir(path.join(name)).map_err(failed)?;
        }
        let copy = |name: &str| copy_file(&repository.join(name), &path.join(name)).map_err(failed);
        for name in READ_FILES {
            copy(name)?;
        }
        for entry in std::fs::read_dir(repository).map_err(failed)?.flatten() {
            if let Some(name) = entry.file_name().to_str().filter(|name| name.starts_with(SHARED_INDEX)) {
                copy(name)?;
            }
        }
        let mut published = ["HEAD", "index"].map(|name| PublishedFile { name, original: None, copy: None });
        for file in &mut published {
            // Before it is copied: a change meanwhile is noticed later.
            file.original = FileVersion::of(&repository.join(file.name));
            copy(file.name)?;
            file.copy = FileVersion::of(&path.join(file.name));
        }
        Ok(Some(CommitDir { _temp: temp, path, repository: repository.to_owned(), published }))
    }

    /// Returns the path of the directory on this machine.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the repository, without links.
    pub(super) fn repository(&self) -> &Path {
        &self.repository
    }

    /// Returns the names of the directories that the command shares with the repository and can write.
    pub(super) fn written_dirs(&self) -> impl Iterator<Item = &'static str> {
        WRITTEN_DIRS.into_iter().filter(|name| self.path.join(name).is_dir())
    }

    /// Returns the names of the directories that the command shares with the repository and can read.
    pub(super) fn read_dirs(&self) -> impl Iterator<Item = &'static str> {
        READ_DIRS.into_iter().filter(|name| self.path.join(name).is_dir())
    }

    /// Takes over the index and the head that the command has left, as git does: by a lock and a rename.
    pub(super) fn publish(&self) -> Result<()> {
        for file in &self.published {
            if FileVersion::of(&self.path.join(file.name)) != file.copy {
                self.publish_file(file)?;
            }
        }
        Ok(())
    }

    fn publish_file(&self, file: &PublishedFile) -> Result<()> {
        let name = file.name;
        let failed = |error: std::io::Error| {
            let message = format!("the commit was made, and `.git/{name}` could not be written");
            Error::new(ErrorKind::Io, message).because(error)
        };
        // The command may have left a link or a pipe under the name.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened =
            rustix::fs::open(self.path.join(name), flags, Mode::empty()).map_err(|errno| failed(errno.into()))?;
        let mut written = File::from(opened);
        let metadata = written.metadata().map_err(failed)?;
        if !metadata.is_file() {
            return Err(Error::new(ErrorKind::Io, format_args!("wanted a file as `.git/{name}`, found another kind")));
        }
        let mut head = String::new();
        if name == "HEAD" {
            (&mut written).take(MAX_HEAD_BYTES).read_to_string(&mut head).map_err(failed)?;
            if !is_head(&head) {
                return Err(Error::new(
                    ErrorKind::Io,
                    format_args!("wanted a branch or a commit as `.git/HEAD`, found `{}`", head.escape_debug()),
                ));
            }
        }
        let (target, lock) = (self.repository.join(name), self.repository.join(format!("{name}.lock")));
        let mut locked = match File::options().write(true).create_new(true).open(&lock) {
            Err(error) if error.kind() == ErrorKindIo::AlreadyExists => return Err(locked_error(name)),
            locked => locked.map_err(failed)?,
        };
        let mut replace = || -> Result<()> {
            if FileVersion::of(&target) != file.original {
                let message =
                    format!("the commit was made, and `.git/{name}` was changed meanwhile by another program");
                return Err(
                    Error::new(ErrorKind::Io, message).with_hint("`git reset` makes the index match the commit")
                );
            }
            let copied = match name {
                "HEAD" => std::io::Write::write_all(&mut locked, head.as_bytes()),
                _ => std::io::copy(&mut written, &mut locked).map(drop),
            };
            copied.map_err(failed)?;
            if let Ok(original) = target.symlink_metadata() {
                locked.set_permissions(original.permissions()).map_err(failed)?;
            }
            // Git compares the time of the index with those of files.
            locked.set_modified(metadata.modified().map_err(failed)?).map_err(failed)?;
            std::fs::rename(&lock, &target).map_err(failed)
        };
        let replaced = replace();
        if replaced.is_err() {
            let _ = std::fs::remove_file(&lock);
        }
        replaced
    }
}

impl FileVersion {
    fn of(path: &Path) -> Option<Self> {
        path.symlink_metadata().ok().as_ref().map(FileVersion::from)
    }
}

impl From<&Metadata> for FileVersion {
    fn from(file: &Metadata) -> Self {
        FileVersion {
            inode: file.ino(),
            bytes: file.len(),
            modified: (file.mtime(), file.mtime_nsec()),
            changed: (file.ctime(), file.ctime_nsec()),
        }
    }
}

/// Fails if another program has locked a file of a repository.
fn refuse_locked(repository: &Path, name: &str) -> Result<()> {
    match repository.join(format!("{name}.lock")).symlink_metadata() {
        Ok(_) => Err(locked_error(name)),
        Err(_) => Ok(()),
    }
}

fn locked_error(name: &str) -> Error {
    let message = format!("another git process has locked `.git/{name}`");
    Error::new(ErrorKind::Io, message).with_hint(format!("if there is none, remove `.git/{name}.lock`"))
}

/// Copies a file with its time. One that is missing, or no file, is left out.
///
/// Git tells by the time of the index which files may have changed after they were compared.
fn copy_file(from: &Path, to: &Path) -> std::io::Result<()> {
    match from.symlink_metadata() {
        Ok(file) if file.is_file() => {
            std::fs::copy(from, to)?;
            File::open(to)?.set_modified(file.modified()?)
        }
        _ => Ok(()),
    }
}

/// Returns true for the text of a `HEAD`: a branch, or a commit.
fn is_head(text: &str) -> bool {
    let Some(line) = text.strip_suffix('\n') else { return false };
    let is_branch = |name: &str| {
        name.starts_with("refs/")
            && !name.contains("..")
            && name.chars().all(|it| !it.is_control() && !it.is_whitespace())
    };
    let is_commit = [40, 64].contains(&line.len()) && line.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_commit || line.strip_prefix("ref: ").is_some_and(is_branch)
}
