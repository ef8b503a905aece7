//! The files and directories that git ignores, as they are now.

use std::path::{Path, PathBuf};

use crate::changes::join_path;
use crate::dir::FileType;
use crate::disk::{self, Handle};
use crate::error::Result;
use crate::ignore::IgnoreRules;
use crate::listing::Listing;
use crate::objects;
use crate::walk::MAX_DEPTH;

/// The paths in a directory that its `.gitignore` files ignore. An ignored directory is one path, without its contents.
///
/// ```
/// use rath_workspace::IgnoredPaths;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let project = tempfile::tempdir()?;
/// # let project = project.path();
/// std::fs::write(project.join(".gitignore"), "node_modules/\n.env\n")?;
/// std::fs::create_dir_all(project.join("packages/a/node_modules/b"))?;
/// std::fs::write(project.join(".env"), "KEY=1\n")?;
/// let ignored = IgnoredPaths::find(project)?;
/// assert_eq!(ignored.directories, ["packages/a/node_modules"].map(std::path::PathBuf::from));
/// assert_eq!(ignored.files, [".env"].map(std::path::PathBuf::from));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IgnoredPaths {
    /// The directories, outermost ones first.
    pub directories: Vec<PathBuf>,
    /// The files that are in no ignored directory: a bounded number of them.
    pub files: Vec<PathBuf>,
}

/// The most ignored files that are listed.
const MAX_LISTED_FILES: usize = 1_000;

/// The most directories that are looked into.
const MAX_DIRECTORIES: usize = 200_000;

/// The most bytes of a `.gitignore`.
const MAX_GITIGNORE_BYTES: u64 = 1 << 20;

impl IgnoredPaths {
    /// Looks at the names in a directory. No link is followed, and nothing is read but `.gitignore` files. `.git` and `.rath` are not
    /// looked at.
    pub fn find(root: &Path) -> Result<Self> {
        let failed = |error| objects::io_error(root, "list", error);
        let mut found = IgnoredPaths::default();
        let (mut listing, mut seen) = (Listing::default(), 0);
        let root = disk::open_root(root).map_err(failed)?;
        let mut rest = vec![(Vec::new(), IgnoreRules::default(), 0)];
        while let Some((path, above, depth)) = rest.pop() {
            seen += 1;
            let Ok(dir) = disk::open_path(&root, &path) else { continue };
            if seen > MAX_DIRECTORIES || disk::list(&dir, &mut listing).is_err() {
                continue;
            }
            let rules = match read_gitignore(&dir) {
                Some(content) => above.with_gitignore(&path, &content),
                None => above,
            };
            for (nth, (_, _, file_type)) in listing.entries.iter().enumerate() {
                let name = listing.name(nth);
                if name.eq_ignore_ascii_case(b".git") || name.eq_ignore_ascii_case(b".rath") {
                    continue;
                }
                let file_type = match file_type {
                    FileType::Unknown => disk::stat(&dir, name).map_or(FileType::Special, |stat| stat.file_type()),
                    known => *known,
                };
                let (child, is_directory) = (join_path(&path, name), file_type == FileType::Directory);
                match (rules.ignores(&child, is_directory), file_type) {
                    (true, FileType::Directory) => found.directories.push(disk::path_from_bytes(&child)),
                    (true, FileType::File | FileType::Link) if found.files.len() < MAX_LISTED_FILES => {
                        found.files.push(disk::path_from_bytes(&child));
                    }
                    (false, FileType::Directory) if depth < MAX_DEPTH => rest.push((child, rules.clone(), depth + 1)),
                    _ => {}
                }
            }
        }
        found.directories.sort_by_cached_key(|path| (path.components().count(), path.clone()));
        found.files.sort();
        Ok(found)
    }
}

/// Reads the `.gitignore` of a directory; none if there is none, or it is no ordinary file.
fn read_gitignore(dir: &Handle) -> Option<Vec<u8>> {
    let file = disk::open_file(dir, b".gitignore").ok()?;
    let stat = disk::stat_open(&file).ok()?;
    let mut content = Vec::new();
    disk::read_all(&file, &mut content, MAX_GITIGNORE_BYTES).ok()?;
    (stat.file_type() == FileType::File && content.len() as u64 <= MAX_GITIGNORE_BYTES).then_some(content)
}
