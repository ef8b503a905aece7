//! The directory of a mirror: copies of files, and the list of the files that they are copies of. All calls block.

use std::fs::{self, File, Metadata};
use std::io;
#[cfg(unix)]
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rath_workspace::read_at_most;

use super::plan::{CopiedEntry, Copies, FetchPlan, FileStat, KnownFile, KnownFiles, is_file_path, join};
use crate::sandbox::{RATH_DIR, Root};
use crate::session::Result;
use crate::store::{make_folder, rath_dir};

/// The most bytes of the list of a mirror.
const MAX_LIST_BYTES: u64 = 256 << 20;

/// A file to be copied.
pub(super) struct NewCopy {
    pub(super) path: String,
    pub(super) mark: Option<String>,
    pub(super) content: Vec<u8>,
}

/// The treatment of entries whose names are no text: no sandbox lists such a name, and none can be given one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Strays {
    Remove,
    List,
}

/// The directory of a mirror.
#[derive(Clone, Debug)]
pub(super) struct CopiesDir {
    root: PathBuf,
}

impl CopiesDir {
    pub(super) fn new(root: PathBuf) -> Self {
        CopiesDir { root }
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Locks the mirror: one fetch at a time changes it, and what is fetched is looked at before the next one.
    pub(super) fn lock(&self) -> io::Result<MirrorLock> {
        rath_dir::check(&self.own("mirror.lock"))?;
        make_folder(&self.root.join(RATH_DIR))?;
        let file = File::options().read(true).write(true).create(true).truncate(false).open(self.own("mirror.lock"))?;
        file.lock()?;
        Ok(MirrorLock(file))
    }

    /// Returns the known files, as the list on the disk has them; those in `verified` need no second look at their content.
    ///
    /// After a crash, a copy may have other content than was written, so each is compared with its digest once in a process.
    pub(super) fn read_known(&self, verified: &KnownFiles) -> KnownFiles {
        let bytes = read_at_most(&self.own("mirror.json"), MAX_LIST_BYTES).unwrap_or_default();
        // Without the list, all files are read again.
        let mut known: KnownFiles = serde_json::from_slice(&bytes).unwrap_or_default();
        known.files.retain(|path, _| is_file_path(path));
        for (path, file) in &mut known.files {
            let Ok(target) = self.path_of(path) else { continue };
            let Ok(metadata) = fs::symlink_metadata(&target) else { continue };
            let stat = metadata.is_file().then(|| stat_of(&metadata));
            let is_verified = verified.files.get(path).is_some_and(|it| it.copy == stat && it.digest == file.digest);
            let is_intact = || match &file.digest {
                Some(digest) => fs::read(&target).is_ok_and(|content| digest_of(&content) == *digest),
                None => true,
            };
            if stat.is_some() && (is_verified || is_intact()) {
                file.copy = stat;
            }
        }
        known
    }

    /// Writes the list of the known files.
    pub(super) fn write_known(&self, known: &KnownFiles) -> io::Result<()> {
        let (path, new) = (self.own("mirror.json"), self.own("mirror.json.new"));
        fs::write(&new, serde_json::to_vec(known)?)?;
        fs::rename(new, path)
    }

    /// Returns the metadata of the list; none if there is none.
    pub(super) fn list_stat(&self) -> Option<FileStat> {
        fs::symlink_metadata(self.own("mirror.json")).ok().map(|metadata| stat_of(&metadata))
    }

    /// Returns all entries of the mirror. No link is followed. Entries whose names are no text are removed if `strays` says so.
    pub(super) fn read_copies(&self, strays: Strays) -> io::Result<Copies> {
        let mut copies = Copies::new();
        let mut directories = vec![String::new()];
        while let Some(directory) = directories.pop() {
            for entry in fs::read_dir(self.root.join(&directory))? {
                let entry = entry?;
                let Ok(name) = entry.file_name().into_string() else {
                    match strays {
                        Strays::Remove => remove_any(&entry.path())?,
                        Strays::List => {
                            let name = entry.file_name().to_string_lossy().into_owned();
                            copies.insert(join(&directory, &name), CopiedEntry::Other);
                        }
                    }
                    continue;
                };
                if directory.is_empty() && name == RATH_DIR {
                    continue;
                }
                let (path, metadata) = (join(&directory, &name), entry.metadata()?);
                let copy = match metadata.file_type() {
                    kind if kind.is_dir() => {
                        directories.push(path.clone());
                        CopiedEntry::Directory
                    }
                    kind if kind.is_file() => CopiedEntry::File(stat_of(&metadata)),
                    _ => CopiedEntry::Other,
                };
                copies.insert(path, copy);
            }
        }
        Ok(copies)
    }

    /// Removes entries, makes directories, and makes the copies without content.
    pub(super) fn prepare(&self, plan: &FetchPlan, known: &mut KnownFiles) -> io::Result<()> {
        for path in &plan.remove {
            remove_any(&self.path_of(path)?)?;
            known.remove(path);
        }
        plan.forget.iter().for_each(|path| known.remove(path));
        plan.make.iter().try_for_each(|path| fs::create_dir(self.path_of(path)?))?;
        plan.large.iter().try_for_each(|(path, bytes, mark)| self.write_large(path, *bytes, mark.clone(), known))
    }

    /// Makes the copy of a file that is too large to have versions: it has the same length, and takes no space.
    pub(super) fn write_large(
        &self,
        path: &str,
        bytes: u64,
        mark: Option<String>,
        known: &mut KnownFiles,
    ) -> io::Result<()> {
        let target = self.path_of(path)?;
        remove_any(&target)?;
        File::create_new(&target)?.set_len(bytes)?;
        self.note(path, KnownFile { mark, digest: None, copy: None }, known)
    }

    /// Writes copies. One that has this content already stays as it is.
    pub(super) fn write_copies(&self, files: Vec<NewCopy>, known: &mut KnownFiles) -> Result<()> {
        let root = Root::open(&self.root)?;
        for NewCopy { path, mark, content } in files {
            let digest = Some(digest_of(&content));
            let target = self.path_of(&path)?;
            let now = fs::symlink_metadata(&target).ok().map(|metadata| stat_of(&metadata));
            if let Some(file) = known.files.get_mut(&path)
                && now.is_some()
                && (file.copy == now && file.digest == digest)
            {
                file.mark = mark;
                continue;
            }
            root.write(&path, &content)?;
            self.note(&path, KnownFile { mark, digest, copy: None }, known)?;
        }
        Ok(())
    }

    /// Removes the copy of a file that is gone.
    pub(super) fn remove(&self, path: &str, known: &mut KnownFiles) -> io::Result<()> {
        remove_any(&self.path_of(path)?)?;
        known.remove(path);
        Ok(())
    }

    /// Removes all copies, and the list of them.
    pub(super) fn clear(&self) -> io::Result<()> {
        remove_any(&self.own("mirror.json"))?;
        for entry in fs::read_dir(&self.root)? {
            let entry = entry?;
            if entry.file_name() != RATH_DIR {
                remove_any(&entry.path())?;
            }
        }
        Ok(())
    }

    /// Returns the content of a copy.
    pub(super) fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        fs::read(self.path_of(path)?)
    }

    /// Notes that the sandbox has the file of a copy.
    pub(super) fn note(&self, path: &str, file: KnownFile, known: &mut KnownFiles) -> io::Result<()> {
        let copy = Some(stat_of(&fs::symlink_metadata(self.path_of(path)?)?));
        known.files.insert(path.to_owned(), KnownFile { copy, ..file });
        Ok(())
    }

    /// Returns the path of a copy. Fails for a path that could lead out of the mirror: joining an absolute path, or one with `..`, does.
    ///
    /// Paths are checked where they are listed. This is the last wall before files are removed.
    fn path_of(&self, path: &str) -> io::Result<PathBuf> {
        let is_name = |name: &str| !matches!(name, "" | "." | "..") && !name.contains('\0');
        match path.split('/').all(is_name) {
            true => Ok(self.root.join(path)),
            false => Err(io::Error::other(format!("`{path}` is no path of a file in a mirror"))),
        }
    }

    fn own(&self, name: &str) -> PathBuf {
        self.root.join(RATH_DIR).join(name)
    }
}

/// The right to change a mirror. Released when it is dropped, and at the end of the process.
pub(super) struct MirrorLock(File);

impl Drop for MirrorLock {
    fn drop(&mut self) {
        // Closing the file is not enough: a process that another thread is just starting has a copy of it.
        let _ = self.0.unlock();
    }
}

/// Returns the digest of a content, in hexadecimal.
pub(super) fn digest_of(content: &[u8]) -> String {
    blake3::hash(content).to_hex().to_string()
}

fn stat_of(metadata: &Metadata) -> FileStat {
    FileStat { bytes: metadata.len(), modified: metadata.modified().ok(), inode: inode(metadata) }
}

#[cfg(unix)]
fn inode(metadata: &Metadata) -> u64 {
    metadata.ino()
}

#[cfg(not(unix))]
fn inode(_: &Metadata) -> u64 {
    0
}

/// Removes an entry, if there is one; a directory with all that is in it.
fn remove_any(path: &Path) -> io::Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}
