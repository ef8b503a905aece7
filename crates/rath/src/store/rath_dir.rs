//! The directory `.rath`, which belongs to rath.
//!
//! It may come from elsewhere, with a repository or an archive. So before anything in it is used, it is looked at: it has to
//! belong to this user, and rath's own parts of it have to be plain files and directories. A link would lead rath to write
//! somewhere else, and a pipe would make it wait for ever.

use std::fs::{FileType, Metadata};
use std::io::{self, ErrorKind as IoKind};
use std::path::{Path, PathBuf};

use crate::sandbox::{RATH_DIR, resolved};

/// The directories in `.rath` whose entries rath opens by name. Below `work` and `workspace/versions` are users' files, and between
/// them directories of rath's own: see [`inner_dirs`].
const OWN_DIRS: [&str; 14] = [
    "",
    "memory",
    "put-back",
    "remote",
    "sessions",
    "work",
    "workspace",
    "workspace/index",
    "workspace/objects",
    "workspace/objects/info",
    "workspace/objects/pack",
    "workspace/tmp",
    "workspace/updates",
    "workspace/versions",
];

/// The directories in `.rath` that hold no sessions.
pub(crate) const NO_STORES: [&str; 5] = ["memory", "put-back", "remote", "work", "workspace"];

/// Checks the `.rath` that a path leads through, if there is one and it exists.
pub(crate) fn check(path: &Path) -> io::Result<()> {
    let path = std::path::absolute(path)?;
    let is_rath_dir = |path: &&Path| path.file_name().is_some_and(|name| name == RATH_DIR);
    path.ancestors().filter(is_rath_dir).try_for_each(check_rath_dir)
}

fn check_rath_dir(directory: &Path) -> io::Result<()> {
    match std::fs::symlink_metadata(directory) {
        Err(error) if error.kind() == IoKind::NotFound => return Ok(()),
        metadata => {
            let metadata = metadata?;
            check_type(directory, metadata.file_type())?;
            check_owner(directory, &metadata)?;
        }
    }
    OWN_DIRS.iter().try_for_each(|name| check_entries(&directory.join(name)))?;
    inner_dirs(directory)?.iter().try_for_each(|directory| check_entries(directory))
}

/// Returns the directories of forks and of base versions that hold users' files: the layers of each fork, with the one in which the
/// system works, and each base version.
fn inner_dirs(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = |name: &str| match std::fs::read_dir(directory.join(name)) {
        Err(error) if matches!(error.kind(), IoKind::NotFound | IoKind::NotADirectory) => Ok(Vec::new()),
        entries => entries?.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<Vec<_>>>(),
    };
    // A name that is only the suffix is one of them.
    let has_suffix = |path: &PathBuf, suffix: &str| {
        path.file_name().is_some_and(|name| name.as_encoded_bytes().ends_with(suffix.as_bytes()))
    };
    let work = entries("work")?;
    let layers = work.iter().filter(|path| has_suffix(path, ".layers"));
    let mut inner: Vec<PathBuf> = layers.flat_map(|path| [path.join("work"), path.clone()]).collect();
    // The folders for changes of the directories that a fork shares.
    for path in work.iter().filter(|path| has_suffix(path, ".shared")) {
        let name = path.file_name().unwrap_or_default();
        let folders = entries(&Path::new("work").join(name).to_string_lossy())?;
        inner.extend(folders.into_iter().flat_map(|folder| [folder.join("work"), folder]).chain([path.clone()]));
    }
    inner.extend(entries("workspace/versions")?);
    Ok(inner)
}

/// Checks that a file of rath's is no link, pipe or device, if it exists.
pub(crate) fn check_file(path: &Path) -> io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == IoKind::NotFound => Ok(()),
        metadata => check_type(path, metadata?.file_type()),
    }
}

/// Checks that all entries of a directory are files and directories.
pub(crate) fn check_entries(directory: &Path) -> io::Result<()> {
    match std::fs::read_dir(directory) {
        Err(error) if matches!(error.kind(), IoKind::NotFound | IoKind::NotADirectory) => Ok(()),
        entries => entries?.try_for_each(|entry| {
            let entry = entry?;
            check_type(&entry.path(), entry.file_type()?)
        }),
    }
}

fn check_type(path: &Path, kind: FileType) -> io::Result<()> {
    if kind.is_dir() || kind.is_file() {
        return Ok(());
    }
    let what = if kind.is_symlink() { "a link" } else { "neither a file nor a directory" };
    Err(io::Error::other(format!("{} is {what}, and rath uses no such thing of its own", path.display())))
}

#[cfg(unix)]
fn check_owner(path: &Path, metadata: &Metadata) -> io::Result<()> {
    match super::owner::is_this_user(metadata) {
        true => Ok(()),
        false => Err(io::Error::other(format!("another user owns {}", path.display()))),
    }
}

#[cfg(not(unix))]
fn check_owner(_: &Path, _: &Metadata) -> io::Result<()> {
    Ok(())
}

/// Returns the path of a store relative to a directory, if tools that write in the directory could write the store. None if the
/// store is elsewhere, or in a `.rath`.
///
/// The store need not exist.
///
/// ```
/// use std::path::Path;
///
/// use rath::store::path_within_reach;
///
/// # let project = tempfile::tempdir()?;
/// let project = project.path();
/// assert_eq!(path_within_reach(&project.join("s.db"), project).as_deref(), Some(Path::new("s.db")));
/// assert_eq!(path_within_reach(&project.join(".rath/s.db"), project), None);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn path_within_reach(store: &Path, directory: &Path) -> Option<PathBuf> {
    let (store, directory) = (std::path::absolute(store).ok()?, directory.canonicalize().ok()?);
    let store = resolved(&store);
    let inside = store.strip_prefix(directory).ok()?;
    inside.components().all(|part| part.as_os_str() != RATH_DIR).then(|| inside.to_owned())
}

/// Returns true if tools that write in a directory could write a file of the user's home directory, such as the configuration of
/// rath: the file is in the directory, or a link leads from its place into the directory.
///
/// `hidden` is the place in the home directory that sandboxes hide where the whole home directory is a workspace.
///
/// ```
/// use std::path::Path;
///
/// use rath::store::home_file_within_reach;
///
/// # let home = tempfile::tempdir()?;
/// let (home, hidden) = (home.path(), Path::new(".config/rath"));
/// let file = home.join(".config/rath/config.toml");
/// # std::fs::create_dir_all(home.join(".config/rath"))?;
/// assert!(home_file_within_reach(&file, home, hidden, &home.join(".config")));
/// assert!(!home_file_within_reach(&file, home, hidden, home));
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn home_file_within_reach(file: &Path, home: &Path, hidden: &Path, directory: &Path) -> bool {
    let (home, directory) = (resolved(home), resolved(directory));
    // The place of a link, and the file that it leads to: either can be replaced.
    let places = file.ancestors().take_while(|above| *above != home).filter(|above| above.is_symlink()).chain([file]);
    let is_hidden = |place: &Path| home.starts_with(&directory) && place.starts_with(home.join(hidden));
    places.into_iter().any(|place| {
        let parent = place.parent().map(resolved).unwrap_or_default();
        let named = parent.join(place.file_name().unwrap_or_default());
        [named, resolved(place)].iter().any(|place| path_within_reach(place, &directory).is_some() && !is_hidden(place))
    })
}
