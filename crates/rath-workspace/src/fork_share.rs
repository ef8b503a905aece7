//! The directories that a fork shares with the directory that it was forked from: those that git ignores, which are part of no tree.
//!
//! Next to a fork lies `<fork>.shared`. The file `directories` in it lists them: no version is made of what is there. A folder for each of
//! them holds the changes of the fork, if a sandbox shows it by an overlay: `upper` and `work`. Otherwise the fork has a copy, whose files
//! share their blocks with the originals if the file system can.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::dir::FileType;
use crate::dir_copy::{DirCopy, MAX_COPIED_DEPTH, names_paths};
use crate::disk::{self, Handle};
use crate::error::Result;
use crate::listing::Listing;
use crate::objects::{self, Objects};
use crate::regular_file;
use crate::rename::{directory, last_name};

/// The shared directories of a fork.
///
/// ```
/// use std::path::{Path, PathBuf};
///
/// use rath_workspace::{ForkShare, Objects};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// let objects = Objects::open(&folder.path().join("versions"))?;
/// let fork = folder.path().join("fork");
/// std::fs::create_dir(&fork)?;
/// let share = ForkShare::of(&fork);
/// let changes = share.prepare(&objects, Path::new("node_modules"))?.expect("the fork has no such directory of its own");
/// assert!(fork.join("node_modules").is_dir() && changes.join("upper").is_dir());
/// assert_eq!(share.directories(), [PathBuf::from("node_modules")]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ForkShare {
    fork: PathBuf,
    folder: PathBuf,
    /// The path at which programs see the fork.
    seen_at: PathBuf,
}

/// The number of files and bytes that are still copied for a fork.
///
/// Passed to [`ForkShare::copy`].
#[derive(Clone, Copy, Debug)]
pub struct CopyBudget {
    files: u64,
    bytes: u64,
    shares_blocks: bool,
}

/// The outcome of copying a directory to a fork.
///
/// Returned by [`ForkShare::copy`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyOutcome {
    /// The fork has a copy.
    Copied,
    /// The directory has more files or bytes than the budget allows, or cannot be listed.
    TooLarge,
    /// The fork has files at the path already.
    InTheWay,
    /// Programs in it would use the files of the original, under a name that cannot be replaced.
    NamesOriginal,
}

/// The end of the name of the folder.
pub(crate) const SHARED_SUFFIX: &str = ".shared";

/// The file that lists the directories, each with a NUL byte behind it.
const LIST_FILE: &str = "directories";

/// The most bytes of the list.
const MAX_LIST_BYTES: u64 = 1 << 20;

/// The longest name of a folder for changes that holds the path of its directory, in bytes.
const MAX_ENCODED_BYTES: usize = 120;

impl CopyBudget {
    /// The most files that are copied for a fork.
    pub const MAX_FILES: u64 = 20_000;
    /// The most files that are copied for a fork where copies share their blocks.
    pub const MAX_FILES_WITH_SHARED_BLOCKS: u64 = 200_000;
    /// The most bytes that are copied for a fork.
    pub const MAX_BYTES: u64 = 512 << 20;

    /// Returns the budget for forks in a directory, by trying whether its files can share blocks.
    pub fn detect(directory: &Path) -> Self {
        match disk::can_share_blocks(directory) {
            true => CopyBudget { files: Self::MAX_FILES_WITH_SHARED_BLOCKS, bytes: u64::MAX, shares_blocks: true },
            false => CopyBudget { files: Self::MAX_FILES, bytes: Self::MAX_BYTES, shares_blocks: false },
        }
    }
}

impl ForkShare {
    /// Returns the shared directories of a fork, whether or not there are any.
    pub fn of(fork: &Path) -> Self {
        let mut folder = fork.as_os_str().to_owned();
        folder.push(SHARED_SUFFIX);
        ForkShare::within(fork, folder.as_ref())
    }

    /// Returns the shared directories of a directory that is no fork, whose list and changes are in a folder of their own.
    pub fn within(directory: &Path, folder: &Path) -> Self {
        ForkShare { fork: directory.to_owned(), folder: folder.to_owned(), seen_at: directory.to_owned() }
    }

    /// Returns the same, for programs that see the fork at another path than its own.
    pub fn seen_at(self, path: &Path) -> Self {
        ForkShare { seen_at: path.to_owned(), ..self }
    }

    /// Returns the fork.
    pub fn fork(&self) -> &Path {
        &self.fork
    }

    /// Returns the folder with the list and the changes.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns true if the file system of the fork can store the changes of an overlay that a user mounts.
    pub fn can_overlay(&self) -> bool {
        self.folder.parent().is_some_and(disk::can_store_layers)
    }

    /// Returns the directories on the list, relative to the fork.
    pub fn directories(&self) -> Vec<PathBuf> {
        let bytes = regular_file::read_at_most(&self.folder.join(LIST_FILE), MAX_LIST_BYTES).unwrap_or_default();
        bytes.split(|byte| *byte == 0).filter(|path| !path.is_empty()).map(disk::path_from_bytes).collect()
    }

    /// Prepares a directory to be shown at a path of the fork, and returns the folder for its changes. None if the fork has files of its
    /// own at the path.
    pub fn prepare(&self, objects: &Objects, path: &Path) -> Result<Option<PathBuf>> {
        if !self.is_free(path) {
            return Ok(None);
        }
        self.add(objects, path)?;
        let changes = self.folder.join(encoded(path));
        let create = || {
            ["upper", "work"].iter().try_for_each(|part| fs::create_dir_all(changes.join(part)))?;
            create_dirs(&disk::open_root(&self.fork)?, &path_bytes(path)).map(drop)
        };
        create().map_err(|error| objects::io_error(&self.folder, "share a directory with", error))?;
        Ok(Some(changes))
    }

    /// Prepares a path of the fork at which a file or a directory is shown that nothing can change, and returns false if the fork has files
    /// of its own there.
    pub fn prepare_read_only(&self, objects: &Objects, original: &Path, path: &Path) -> Result<bool> {
        if !self.is_free(path) {
            return Ok(false);
        }
        let Ok(metadata) = original.join(path).symlink_metadata() else { return Ok(false) };
        if !metadata.is_dir() && !metadata.is_file() {
            return Ok(false);
        }
        self.add(objects, path)?;
        let create = || -> io::Result<()> {
            let (root, path) = (disk::open_root(&self.fork)?, path_bytes(path));
            if metadata.is_dir() {
                return create_dirs(&root, &path).map(drop);
            }
            let parent = create_dirs(&root, directory(&path))?;
            match disk::create_file(&parent, last_name(&path), false) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
                created => created.map(drop),
            }
        };
        create().map_err(|error| objects::io_error(&self.folder, "share a directory with", error))?;
        Ok(true)
    }

    /// Copies a directory of `original` to the fork, if the fork has none, and the budget allows.
    ///
    /// Links are copied as links; one that leads to a path in `original` leads to that path in the fork. So do the paths in the files in
    /// which tools write them, such as the scripts in `bin`. No copy is a hard link: a program that writes in place would write to both.
    /// Pipes, sockets and devices are left out.
    pub fn copy(
        &self,
        objects: &Objects,
        original: &Path,
        path: &Path,
        budget: &mut CopyBudget,
    ) -> Result<CopyOutcome> {
        let failed = |error| objects::io_error(&original.join(path), "copy", error);
        if !self.is_free(path) {
            return Ok(CopyOutcome::InTheWay);
        }
        let root = disk::open_root(original).map_err(failed)?;
        let Ok(source) = disk::open_path(&root, &path_bytes(path)) else { return Ok(CopyOutcome::TooLarge) };
        let mut left = *budget;
        if !left.take_directory(&source, 0) {
            return Ok(CopyOutcome::TooLarge);
        }
        let copy = DirCopy::new(original, &self.seen_at, budget.shares_blocks);
        // A directory is listed once by each opening.
        let again = || disk::open_dir(&source, b".").map_err(failed);
        if copy.leads_back(&again()?, &path_bytes(path), 0).map_err(failed)? {
            return Ok(CopyOutcome::NamesOriginal);
        }
        self.add(objects, path)?;
        // The copy appears as a whole: one that is there is complete.
        let (root, bytes) = (disk::open_root(&self.fork).map_err(failed)?, path_bytes(path));
        create_dirs(&root, directory(&bytes)).map_err(failed)?;
        let place = self.fork.join(path);
        let _ = fs::remove_dir(&place);
        objects
            .temporaries()
            .place(&place, |temporary: &Path| -> io::Result<()> {
                fs::create_dir(temporary)?;
                copy.run(&disk::open_dir(&source, b".")?, &disk::open_root(temporary)?, &path_bytes(path), 0)
            })
            .map_err(failed)?;
        *budget = left;
        Ok(CopyOutcome::Copied)
    }

    /// Gives the fork a repository of its own that has the history of the one in `original`: the objects are those of the original, and
    /// all that is written stays in the fork. Hooks are left out. Returns false if the `.git` there is no whole repository.
    pub fn copy_repository(&self, objects: &Objects, original: &Path) -> Result<bool> {
        const FILES: [&str; 6] = ["HEAD", "config", "index", "packed-refs", "shallow", "description"];
        let failed = |error| objects::io_error(&self.fork, "copy `.git` to", error);
        let (path, git) = (Path::new(".git"), original.join(".git"));
        if !self.is_free(path) {
            return Ok(true);
        }
        let is_directory = |name: &str| git.join(name).symlink_metadata().is_ok_and(|found| found.is_dir());
        let is_whole = is_directory("") && is_directory("objects") && is_directory("refs");
        let git = git.canonicalize().map_err(failed)?;
        let Some(alternate) = git.join("objects").to_str().map(str::to_owned).filter(|path| !path.contains('\n'))
        else {
            return Ok(false);
        };
        // The files of such a repository are elsewhere: git would write them there.
        let config = regular_file::read_at_most(&git.join("config"), MAX_LIST_BYTES).unwrap_or_default();
        if !is_whole || names_worktree(&String::from_utf8_lossy(&config)) || git.join("commondir").exists() {
            return Ok(false);
        }
        self.add(objects, path)?;
        let copy = DirCopy::new(original, &self.seen_at, false);
        let mut budget =
            CopyBudget { files: CopyBudget::MAX_FILES, bytes: CopyBudget::MAX_BYTES, shares_blocks: false };
        let refs = disk::open_root(&git.join("refs")).map_err(failed)?;
        if !budget.take_directory(&refs, 0) {
            return Ok(false);
        }
        let _ = fs::remove_dir(self.fork.join(path));
        objects
            .temporaries()
            .place(&self.fork.join(path), |temporary: &Path| -> io::Result<()> {
                ["objects/info", "objects/pack", "refs"]
                    .iter()
                    .try_for_each(|part| fs::create_dir_all(temporary.join(part)))?;
                fs::write(temporary.join("objects/info/alternates"), format!("{alternate}\n"))?;
                copy.run(&disk::open_dir(&refs, b".")?, &disk::open_root(&temporary.join("refs"))?, b".git/refs", 0)?;
                for name in FILES {
                    if git.join(name).symlink_metadata().is_ok_and(|found| found.is_file()) {
                        fs::copy(git.join(name), temporary.join(name))?;
                    }
                }
                Ok(())
            })
            .map_err(failed)?;
        Ok(true)
    }

    /// Gives the fork a `.git` that leads nowhere, so that git does not find the repository of a directory above it.
    pub fn close_repository(&self, objects: &Objects) -> Result<()> {
        let (path, failed) = (Path::new(".git"), |error| objects::io_error(&self.fork, "write `.git` to", error));
        if !self.is_free(path) {
            return Ok(());
        }
        self.add(objects, path)?;
        let _ = fs::remove_dir(self.fork.join(path));
        fs::write(self.fork.join(path), "gitdir: nowhere\n").map_err(failed)
    }

    /// Calls `each` with every file in the shared directories that is the fork's own: in the folders for changes, and of copies those
    /// that differ from the originals by their metadata. The paths are relative to the fork.
    pub(crate) fn own_files(&self, original: &Path, each: &mut dyn FnMut(&Path)) {
        for shared in self.directories() {
            let upper = self.folder.join(encoded(&shared)).join("upper");
            each_file(&upper, &mut |path, metadata| {
                // A device is the mark of a removed file.
                if metadata.is_file() || metadata.is_symlink() {
                    each(&shared.join(path));
                }
            });
            let is_git = shared == Path::new(".git");
            let copied = if is_git { self.fork.join(".git/objects") } else { self.fork.join(&shared) };
            each_file(&copied, &mut |path, metadata| {
                let original = original.join(&shared).join(path).symlink_metadata();
                let is_same = |original: &fs::Metadata| {
                    // In some files, the path of the original was replaced.
                    let has_length = original.len() == metadata.len() || names_paths(&path_bytes(&shared.join(path)));
                    original.file_type() == metadata.file_type()
                        && (metadata.is_symlink() || has_length && original.modified().ok() == metadata.modified().ok())
                };
                let is_known =
                    if is_git { path == Path::new("info/alternates") } else { original.is_ok_and(|it| is_same(&it)) };
                if !is_known {
                    each(&shared.join(path));
                }
            });
        }
    }

    /// Returns true if the fork has nothing at a path, or an empty directory or file at which something was shown before.
    fn is_free(&self, path: &Path) -> bool {
        let Ok(root) = disk::open_root(&self.fork) else { return false };
        let path = path_bytes(path);
        let parent = match disk::open_path(&root, directory(&path)) {
            Ok(parent) => parent,
            // A directory on the way that is missing can be created; one that is a file or a link cannot.
            Err(error) => return error.kind() == io::ErrorKind::NotFound,
        };
        match disk::stat(&parent, last_name(&path)) {
            Err(error) => error.kind() == io::ErrorKind::NotFound,
            Ok(stat) => match stat.file_type() {
                FileType::Directory => {
                    let mut listing = Listing::default();
                    let dir = disk::open_dir(&parent, last_name(&path));
                    dir.and_then(|dir| disk::list(&dir, &mut listing)).is_ok() && listing.entries.is_empty()
                }
                FileType::File => stat.size == 0 && last_name(&path) == b".git",
                _ => false,
            },
        }
    }

    /// Adds a directory to the list.
    fn add(&self, objects: &Objects, path: &Path) -> Result<()> {
        let mut listed: BTreeSet<PathBuf> = self.directories().into_iter().collect();
        if !listed.insert(path.to_owned()) {
            return Ok(());
        }
        let write = || {
            fs::create_dir_all(&self.folder)?;
            let lines: Vec<u8> = listed.iter().flat_map(|path| [path_bytes(path), vec![0]].concat()).collect();
            objects.temporaries().write_new(&self.folder.join(LIST_FILE), &lines)
        };
        write().map_err(|error| objects::io_error(&self.folder, "write to", error))
    }
}

impl CopyBudget {
    /// Takes the files of a directory from the budget, and returns false if there are too many.
    fn take_directory(&mut self, dir: &Handle, depth: usize) -> bool {
        let mut listing = Listing::default();
        if depth > MAX_COPIED_DEPTH || disk::list(dir, &mut listing).is_err() {
            return false;
        }
        for nth in 0..listing.entries.len() {
            let Ok(stat) = disk::stat(dir, listing.name(nth)) else { continue };
            let Some(files) = self.files.checked_sub(1) else { return false };
            self.files = files;
            if stat.file_type() == FileType::File && !self.shares_blocks {
                let Some(bytes) = self.bytes.checked_sub(stat.size) else { return false };
                self.bytes = bytes;
            }
            if stat.file_type() == FileType::Directory
                && !disk::open_dir(dir, listing.name(nth)).is_ok_and(|child| self.take_directory(&child, depth + 1))
            {
                return false;
            }
        }
        true
    }
}

/// Returns true if the settings of a repository say where its files are: `worktree` in the section `core`.
fn names_worktree(config: &str) -> bool {
    let mut is_core = false;
    config.lines().any(|line| {
        let mut line = line.trim();
        if let Some((section, rest)) = line.strip_prefix('[').and_then(|line| line.split_once(']')) {
            (is_core, line) = (section.trim().eq_ignore_ascii_case("core"), rest.trim_start());
        }
        let name = line.split(|end: char| end == '=' || end.is_whitespace()).next();
        is_core && name.is_some_and(|name| name.eq_ignore_ascii_case("worktree"))
    })
}

/// Opens a directory below another one, and creates those that are missing. Fails if a name on the way is a link.
fn create_dirs(root: &Handle, path: &[u8]) -> io::Result<Handle> {
    let mut dir = disk::open_dir(root, b".")?;
    for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
        match disk::create_dir(&dir, name) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => dir = disk::open_dir(&dir, name)?,
        }
    }
    Ok(dir)
}

/// Returns a path relative to a directory as bytes, with slashes.
fn path_bytes(path: &Path) -> Vec<u8> {
    let names: Vec<_> = path.iter().map(|name| name.as_encoded_bytes()).collect();
    names.join(&b'/')
}

/// Returns the name of the folder for the changes of a directory.
fn encoded(path: &Path) -> PathBuf {
    let mut name = Vec::new();
    for byte in path_bytes(path) {
        match byte {
            b'/' => name.extend(b"%2F"),
            b'%' => name.extend(b"%25"),
            byte => name.push(byte),
        }
    }
    if name.len() > MAX_ENCODED_BYTES || name == LIST_FILE.as_bytes() {
        name = format!("%{}", blake3::hash(&name).to_hex()).into_bytes();
    }
    disk::path_from_bytes(&name)
}

/// Calls `each` with everything below a directory that is no directory, relative to it. Links are not followed.
fn each_file(directory: &Path, each: &mut dyn FnMut(&Path, &fs::Metadata)) {
    let mut rest = vec![PathBuf::new()];
    while let Some(below) = rest.pop() {
        for entry in fs::read_dir(directory.join(&below)).into_iter().flatten().flatten() {
            let path = below.join(entry.file_name());
            match entry.metadata() {
                Ok(metadata) if metadata.is_dir() => rest.push(path),
                Ok(metadata) => each(&path, &metadata),
                Err(_) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_setting_of_the_section_core_says_where_the_files_are() {
        for (config, is_elsewhere) in [
            ("[core]\n\tbare = false\n\tworktree = ../elsewhere\n", true),
            ("[CORE]\nWorkTree=/elsewhere\n", true),
            ("[core] worktree = /elsewhere\n", true),
            ("[core]\n\t# worktree = /elsewhere\n", false),
            ("[extensions]\n\tworktreeConfig = true\n[branch \"worktree\"]\n\tremote = worktree\n", false),
            ("[core]\n\tbare = false\n[alias]\n\tworktree = worktree list\n", false),
        ] {
            assert_eq!(names_worktree(config), is_elsewhere, "{config}");
        }
    }
}
