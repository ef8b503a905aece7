//! Copies of directories for forks, in which no path leads back to the original.

use std::io;
use std::path::{Component, Path, PathBuf};

use crate::changes::join_path;
use crate::dir::{FileType, Stat};
use crate::disk::{self, Handle};
use crate::listing::Listing;
use crate::rename::{directory, last_name};

/// The most levels of directories that are copied.
pub(crate) const MAX_COPIED_DEPTH: usize = 128;

/// The most bytes of a file in which paths are replaced.
const MAX_SCRIPT_BYTES: u64 = 256 << 10;

/// The most bytes of a line that names an interpreter: the kernel reads no more.
const MAX_SHEBANG_BYTES: usize = 255;

/// A copy of directories of `original` for a fork that programs see at the path `fork`. Both paths have no links.
pub(crate) struct DirCopy<'a> {
    original: &'a Path,
    fork: &'a Path,
    shares_blocks: bool,
}

impl<'a> DirCopy<'a> {
    pub(crate) fn new(original: &'a Path, fork: &'a Path, shares_blocks: bool) -> Self {
        DirCopy { original, fork, shares_blocks }
    }

    /// Copies the contents of a directory, which is at `path` in the original, to an empty one.
    pub(crate) fn run(&self, source: &Handle, into: &Handle, path: &[u8], depth: usize) -> io::Result<()> {
        let (mut listing, mut content) = (Listing::default(), Vec::new());
        disk::list(source, &mut listing)?;
        for nth in 0..listing.entries.len() {
            let name = listing.name(nth);
            let stat = match disk::stat(source, name) {
                Err(error) if disk::is_gone(&error) => continue,
                stat => stat?,
            };
            let child = join_path(path, name);
            match stat.file_type() {
                FileType::Directory if depth < MAX_COPIED_DEPTH => {
                    disk::create_dir(into, name)?;
                    let (from, to) = (disk::open_dir(source, name)?, disk::open_dir(into, name)?);
                    self.run(&from, &to, &child, depth + 1)?;
                    finish(&to, &stat, 0o700)?;
                }
                FileType::Link => {
                    let Some(target) = disk::read_link(source, name)? else { continue };
                    disk::create_link(into, name, &self.target(path, target))?;
                }
                FileType::File => {
                    let from = disk::open_file(source, name)?;
                    let to = disk::create_file(into, name, false)?;
                    if let Some(script) = self.script(&from, &stat, &child)? {
                        disk::write_all(&to, &script)?;
                    } else if !(self.shares_blocks && disk::share_blocks(&from, &to)) {
                        content.clear();
                        disk::read_all(&from, &mut content, u64::MAX)?;
                        disk::write_all(&to, &content)?;
                    }
                    finish(&to, &stat, 0o200)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns true if a script in a directory would lead to the original, or would not run, although paths were replaced.
    pub(crate) fn leads_back(&self, source: &Handle, path: &[u8], depth: usize) -> io::Result<bool> {
        let mut listing = Listing::default();
        disk::list(source, &mut listing)?;
        for nth in 0..listing.entries.len() {
            let (name, child) = (listing.name(nth), join_path(path, listing.name(nth)));
            let Ok(stat) = disk::stat(source, name) else { continue };
            let leads_back = match stat.file_type() {
                FileType::Directory if depth < MAX_COPIED_DEPTH => {
                    self.leads_back(&disk::open_dir(source, name)?, &child, depth + 1)?
                }
                FileType::File if names_paths(&child) => {
                    let script = self.script(&disk::open_file(source, name)?, &stat, &child)?;
                    let text = script.as_deref().map(str::from_utf8);
                    text.is_some_and(|text| text.is_ok_and(|text| self.is_bound_to_original(text)))
                }
                _ => false,
            };
            if leads_back {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns the content of a file that may name paths, with the path of the original replaced by that of the fork if it is a text; none
    /// if it is no such file, and was not read.
    fn script(&self, file: &Handle, stat: &Stat, path: &[u8]) -> io::Result<Option<Vec<u8>>> {
        if self.fork == self.original || stat.size > MAX_SCRIPT_BYTES || !names_paths(path) {
            return Ok(None);
        }
        let mut content = Vec::new();
        disk::read_all(file, &mut content, MAX_SCRIPT_BYTES)?;
        let (Ok(text), Some(original), Some(fork)) =
            (str::from_utf8(&content), self.original.to_str(), self.fork.to_str())
        else {
            return Ok(Some(content));
        };
        Ok(Some(replace_path(text, original, fork).into_bytes()))
    }

    /// Returns true if the interpreter of a script, or a line that is a path, is in the original under another name, or if the line with
    /// the interpreter is too long.
    fn is_bound_to_original(&self, script: &str) -> bool {
        let is_in_original = |path: &str| {
            let path = Path::new(path.trim());
            // The interpreter of a virtual environment is a link to one outside.
            let above = path.parent().filter(|_| path.is_absolute() && !path.starts_with(self.fork));
            above.is_some_and(|above| resolved(above).starts_with(self.original))
        };
        match script.strip_prefix("#!").and_then(|rest| rest.lines().next()) {
            Some(line) => line.len() + 2 > MAX_SHEBANG_BYTES || line.split_whitespace().any(is_in_original),
            None => script.lines().any(|line| is_in_original(line.rsplit_once('=').map_or(line, |(_, value)| value))),
        }
    }

    /// Returns the target of a copied link in the directory at `path`. A link that stays in the original by the names in it, up and down,
    /// does the same in the fork.
    fn target(&self, path: &[u8], target: Vec<u8>) -> Vec<u8> {
        let place = disk::path_from_bytes(path);
        let named = disk::path_from_bytes(&target);
        if self.fork == self.original || stays_inside(&place, &named) {
            return target;
        }
        let leads_to = resolved(&self.original.join(place).join(&named));
        match leads_to.strip_prefix(self.original) {
            Ok(inside) => self.fork.join(inside).as_os_str().as_encoded_bytes().to_vec(),
            Err(_) if named.is_absolute() => target,
            // From the fork, the way up would lead elsewhere.
            Err(_) => leads_to.as_os_str().as_encoded_bytes().to_vec(),
        }
    }
}

/// Returns true if tools write paths of the project into a file: the settings of a virtual environment, the scripts beside its interpreter
/// and those of packages, and the lists of directories that Python imports from.
pub(crate) fn names_paths(path: &[u8]) -> bool {
    let (name, above) = (last_name(path), last_name(directory(path)));
    [&b"bin"[..], b".bin"].contains(&above)
        || name == b"pyvenv.cfg"
        || name.ends_with(b".pth")
        || name.starts_with(b"__editable__")
}

/// Replaces a path in a text, where it is not a part of another name.
fn replace_path(text: &str, path: &str, with: &str) -> String {
    let is_name = |found: char| found.is_alphanumeric() || "._-".contains(found);
    let (mut replaced, mut rest) = (String::new(), text);
    while let Some(at) = rest.find(path) {
        let (before, after) = (&rest[..at], &rest[at + path.len()..]);
        let is_apart = !before.chars().next_back().is_some_and(is_name) && !after.chars().next().is_some_and(is_name);
        replaced.push_str(before);
        replaced.push_str(if is_apart { with } else { path });
        rest = after;
    }
    replaced + rest
}

/// Returns true if a relative path never leaves the top directory by its names, from a place in it.
fn stays_inside(place: &Path, path: &Path) -> bool {
    let mut depth = place.components().count();
    path.components().all(|component| match component {
        Component::Normal(_) => {
            depth += 1;
            true
        }
        Component::CurDir => true,
        Component::ParentDir if depth > 0 => {
            depth -= 1;
            true
        }
        _ => false,
    })
}

/// Returns a path without links. The end of it need not be there.
fn resolved(path: &Path) -> PathBuf {
    let found = path.ancestors().find_map(|above| Some((above, above.canonicalize().ok()?)));
    match found.map(|(above, found)| (found, path.strip_prefix(above))) {
        Some((found, Ok(missing))) => found.join(missing).components().collect(),
        _ => path.to_owned(),
    }
}

/// Gives a copy the permissions and the time of its original. The user can write it.
fn finish(file: &Handle, stat: &Stat, own_mode: u32) -> io::Result<()> {
    disk::set_mode(file, stat.mode & 0o777 | own_mode)?;
    disk::set_modified(file, stat.modified)
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_replaced_where_it_is_not_a_part_of_another() {
        for (text, replaced) in [
            ("#!/a/b/.venv/bin/python\n", "#!/f/.venv/bin/python\n"),
            ("x='/a/b' y=/a/b:/a/b/c z=/a/b", "x='/f' y=/f:/f/c z=/f"),
            ("/a/b2 /a/b-c /x/a/b /a/b.d", "/a/b2 /a/b-c /x/a/b /a/b.d"),
        ] {
            assert_eq!(replace_path(text, "/a/b", "/f"), replaced);
        }
    }

    #[test]
    fn a_file_that_names_no_path_is_copied_as_it_is() {
        let folder = tempfile::tempdir().expect("a directory");
        let top = folder.path().canonicalize().expect("a path");
        let (original, fork) = (top.join("project"), top.join("fork"));
        let files: [(&str, &[u8]); 5] = [
            ("tools/bin/program", b"\x7fELF\xff\xfe\x00"),
            ("tools/bin/script", b"#!/bin/sh\nexit 1\n"),
            ("tools/bin/empty", b""),
            ("tools/lib/data", b"\xff\x00"),
            ("tools/pyvenv.cfg", b"home = \xff\n"),
        ];
        for (path, content) in files {
            std::fs::create_dir_all(original.join(path).parent().expect("above")).expect("a directory");
            std::fs::write(original.join(path), content).expect("a file");
        }
        std::fs::create_dir_all(fork.join("tools")).expect("a directory");
        let [from, to] = [&original, &fork].map(|path| disk::open_root(&path.join("tools")).expect("opened"));
        DirCopy::new(&original, &fork, false).run(&from, &to, b"tools", 0).expect("copied");
        for (path, content) in files {
            assert_eq!(std::fs::read(fork.join(path)).expect("a copy"), content, "{path}");
        }
    }

    #[test]
    fn a_link_leads_to_the_fork_or_where_it_led() {
        let folder = tempfile::tempdir().expect("a directory");
        let top = folder.path().canonicalize().expect("a path");
        std::fs::create_dir_all(top.join("real/project/node_modules/dep")).expect("a directory");
        std::fs::create_dir_all(top.join("real/project/pk")).expect("a directory");
        std::fs::create_dir_all(top.join("outside")).expect("a directory");
        #[cfg(unix)]
        std::os::unix::fs::symlink("real/project", top.join("project")).expect("a link");
        let (original, fork) = (top.join("real/project"), top.join("real/project/.rath/work/fork"));
        let copy = DirCopy::new(&original, &fork, false);
        let (in_fork, outside) = (fork.join("pk").display().to_string(), top.join("outside").display().to_string());
        for (target, wanted) in [
            ("../pk".to_owned(), "../pk"),
            ("dep/../../pk".to_owned(), "dep/../../pk"),
            (original.join("pk").display().to_string(), &*in_fork),
            (top.join("project/pk").display().to_string(), &*in_fork),
            (top.join("real/../real/project/pk").display().to_string(), &*in_fork),
            ("../../project/pk".to_owned(), &*in_fork),
            ("../../../outside".to_owned(), &*outside),
            (outside.clone(), &*outside),
            ("/usr/bin/python3".to_owned(), "/usr/bin/python3"),
        ] {
            let found = copy.target(b"node_modules", target.clone().into_bytes());
            assert_eq!(String::from_utf8_lossy(&found), wanted, "{target}");
        }
    }
}
