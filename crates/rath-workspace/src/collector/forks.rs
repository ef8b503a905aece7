//! The directories of forks: what is in them, and their removal.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::{CollectMode, Collector, FileCount, count_files};
use crate::error::Result;
use crate::fork_share::SHARED_SUFFIX;
use crate::objects::io_error;
use crate::tree::TreeId;
use crate::{ForkShare, UntrackedReason, Workspace, disk, overlay, paths};

/// The files in a fork as they are now.
///
/// Returned by [`Collector::fork_files`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForkFiles {
    /// The tree of the tracked files.
    pub tree: TreeId,
    /// The files that no tree holds: ignored ones, those that are too large, and all below such a directory. Only the first ones are
    /// listed.
    pub untracked: Vec<String>,
    /// The number of all such files.
    pub untracked_count: u64,
}

/// The number of untracked files of a fork that are listed.
const MAX_UNTRACKED_LISTED: usize = 10;

impl Collector {
    /// Returns the files in a fork as they are now. Nothing is stored.
    pub fn fork_files(&self, fork: &Path) -> Result<ForkFiles> {
        let name = fork.file_name().unwrap_or_default();
        let index = self.objects.folder().join("index").join(name);
        let mut workspace = Workspace::open_fork(fork, &self.objects, &index)?;
        let share = ForkShare::of(fork);
        workspace.leave_out(&share.directories())?;
        let snapshot = workspace.snapshot()?;
        let (mut untracked, mut untracked_count) = (Vec::new(), 0);
        let mut count = |path: &Path| {
            untracked_count += 1;
            if untracked.len() < MAX_UNTRACKED_LISTED {
                untracked.push(paths::path_text(path.as_os_str().as_encoded_bytes()).into_owned());
            }
        };
        let places = snapshot.untracked().into_iter().filter(|(_, reason)| *reason != UntrackedReason::EmptyDirectory);
        // A snapshot does not look at `.rath`.
        for place in places
            .map(|(path, _)| fork.join(disk::path_from_bytes(&paths::path_bytes(&path))))
            .chain([fork.join(".rath")])
        {
            let in_fork = |path: &Path| count(path.strip_prefix(fork).unwrap_or(path));
            each_file(&place, in_fork).map_err(|error| io_error(&place, "list", error))?;
        }
        // A fork lies in `.rath/work` of the directory that it was forked from.
        if let Some(original) = fork.ancestors().nth(3) {
            share.own_files(original, &mut count);
        }
        // The mount ends with the workspace.
        drop(workspace);
        Ok(ForkFiles { tree: snapshot.tree, untracked, untracked_count })
    }

    /// Returns true for the directory of a fork that a collection left which was killed: it is empty, and the changes that were mounted
    /// there are gone.
    pub fn is_remnant(fork: &Path) -> bool {
        let is_empty = match fs::read_dir(fork) {
            Ok(mut entries) => entries.next().is_none(),
            Err(error) => error.kind() == io::ErrorKind::NotFound && ForkShare::of(fork).folder().exists(),
        };
        !overlay::layers_dir(fork).exists() && is_empty
    }

    /// Returns the bytes of a fork's own files.
    pub fn fork_bytes(fork: &Path) -> u64 {
        count_own_files(fork).bytes
    }

    /// Removes a fork and its changes, and returns the number of its own files.
    pub fn remove_fork(&self, fork: &Path) -> Result<FileCount> {
        let count = count_own_files(fork);
        if self.mode == CollectMode::Remove {
            overlay::unmount_fork(fork);
            for path in [overlay::layers_dir(fork), fork.to_owned(), ForkShare::of(fork).folder().to_owned()] {
                self.remove_directory(&path)?;
            }
        }
        Ok(count)
    }
}

/// Returns the directory of the fork whose changes are in a directory, if it has the name of one.
///
/// ```
/// use std::path::Path;
///
/// use rath_workspace::fork_of_layers;
///
/// assert_eq!(fork_of_layers(Path::new("work/one.layers")).as_deref(), Some(Path::new("work/one")));
/// assert_eq!(fork_of_layers(Path::new("work/one.shared")).as_deref(), Some(Path::new("work/one")));
/// assert_eq!(fork_of_layers(Path::new("work/one")), None);
/// ```
pub fn fork_of_layers(directory: &Path) -> Option<PathBuf> {
    let name = directory.file_name()?.to_str()?;
    let name = name.strip_suffix(overlay::LAYERS_SUFFIX).or_else(|| name.strip_suffix(SHARED_SUFFIX))?;
    // These would be the directory of all forks, and the one above it.
    Some(directory.with_file_name(name)).filter(|_| !matches!(name, "" | "." | ".."))
}

/// Counts the files of a fork that it does not share.
fn count_own_files(fork: &Path) -> FileCount {
    let mut own = overlay::upper_layer(fork).map_or_else(|| count_files(fork), |upper| count_files(&upper));
    own.add(count_files(ForkShare::of(fork).folder()));
    own
}

/// Calls `each` with a path, or with all files below it if it is a directory: all that is no directory. Links are not followed.
fn each_file(path: &Path, mut each: impl FnMut(&Path)) -> io::Result<()> {
    let mut rest = vec![path.to_owned()];
    while let Some(path) = rest.pop() {
        let is_directory = match fs::symlink_metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            metadata => metadata?.is_dir(),
        };
        if !is_directory {
            each(&path);
            continue;
        }
        for entry in fs::read_dir(&path)? {
            rest.push(entry?.path());
        }
    }
    Ok(())
}
