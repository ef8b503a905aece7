//! The paths that the decision about a call is about, and the files that they lead to.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use crate::blocking::run_blocking;
use crate::sandbox::Root;
use crate::session::Result;

/// The paths that a decision about a call is about: of files that a tool touches, of redirections, of files outside.
///
/// The decision holds for the files that they lead to. [`have_moved`](DecidedPaths::have_moved) looks again before the call starts.
#[derive(Clone, Default)]
pub(super) struct DecidedPaths {
    /// The directory that relative paths are in; none if it is not on this machine.
    root: Option<Arc<SeenRoot>>,
    paths: Vec<DecidedPath>,
}

/// A directory, and the path at which commands see it.
pub(super) struct SeenRoot {
    pub(super) root: Root,
    pub(super) seen_at: PathBuf,
}

#[derive(Clone)]
struct DecidedPath {
    given: String,
    /// The path without links, relative to the directory if it is in it.
    target: String,
}

impl DecidedPaths {
    pub(super) fn new(root: Option<Arc<SeenRoot>>) -> Self {
        DecidedPaths { root, paths: Vec::new() }
    }

    /// Adds paths, and returns the paths that they lead to.
    pub(super) async fn add(&mut self, given: Vec<String>) -> Result<Vec<String>> {
        let targets = follow_all(self.root.clone(), given.clone()).await?;
        let paths = given.into_iter().zip(&targets);
        self.paths.extend(paths.map(|(given, target)| DecidedPath { given, target: target.clone() }));
        Ok(targets)
    }

    /// Forgets the paths: the decision holds for all.
    pub(super) fn clear(&mut self) {
        self.paths.clear();
    }

    /// Returns the paths that were decided about, without links.
    pub(super) fn targets(&self) -> Vec<&String> {
        self.paths.iter().map(|path| &path.target).collect()
    }

    /// Returns true if a link leads one of the paths elsewhere than its text says.
    pub(super) fn lead_elsewhere(&self) -> bool {
        fn names(path: &str) -> impl Iterator<Item = &str> {
            path.split('/').filter(|name| !matches!(*name, "" | "."))
        }
        self.paths.iter().any(|path| !names(&path.given).eq(names(&path.target)))
    }

    /// Returns true if one of the paths leads to another file now than when it was decided about.
    pub(super) async fn have_moved(&self) -> Result<bool> {
        if self.paths.is_empty() {
            return Ok(false);
        }
        let given = self.paths.iter().map(|path| path.given.clone()).collect();
        let targets = follow_all(self.root.clone(), given).await?;
        Ok(!self.paths.iter().map(|path| &path.target).eq(&targets))
    }
}

/// Returns the paths that paths lead to.
async fn follow_all(root: Option<Arc<SeenRoot>>, given: Vec<String>) -> Result<Vec<String>> {
    if given.is_empty() {
        return Ok(Vec::new());
    }
    run_blocking(move || Ok(given.iter().map(|path| target(root.as_deref(), path)).collect())).await
}

/// Returns the path that a path leads to, relative to the directory if it is in it.
fn target(seen: Option<&SeenRoot>, given: &str) -> String {
    let root = seen.map(|seen| &seen.root);
    // Commands see the directory at a path that may be another one, as those of a fork do.
    let inside = seen.and_then(|seen| Path::new(given).strip_prefix(&seen.seen_at).ok()?.to_str());
    let given = inside.unwrap_or(given);
    if let Some(name) = root.and_then(|root| root.canonical_name(given)) {
        return name;
    }
    let path = match root {
        Some(root) => root.path().join(given),
        None if Path::new(given).is_absolute() => PathBuf::from(given),
        None => return given.to_owned(),
    };
    // What is there depends on the process, as `/dev/stderr` does.
    let is_plain = path.components().all(|part| part != Component::ParentDir);
    if is_plain && ["/dev", "/proc"].iter().any(|system| path.starts_with(system)) {
        return given.to_owned();
    }
    let target = follow(&path, MAX_LINKS);
    let inside = root.and_then(|root| target.strip_prefix(root.path()).ok());
    inside.unwrap_or(&target).to_string_lossy().into_owned()
}

/// The largest path that a system call takes, in bytes.
const MAX_PATH_BYTES: usize = 4096;
/// The largest number of links in the place of missing files that are followed.
const MAX_LINKS: u32 = 40;

/// Returns a path without links. A part of it that is missing stays as it is given.
fn follow(path: &Path, links: u32) -> PathBuf {
    if path.as_os_str().len() > MAX_PATH_BYTES {
        return path.to_owned();
    }
    if let Ok(found) = path.canonicalize() {
        return found;
    }
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return path.to_owned() };
    let parent = follow(parent, links);
    let path = parent.join(name);
    match path.read_link() {
        // Writing through a link creates the file that it leads to.
        Ok(link) if links > 0 => follow(&parent.join(link), links - 1),
        _ => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_of_any_length_is_followed() {
        let long = format!("/none/{}", "a/".repeat(40_000));
        assert_eq!(target(None, &long), long);
        let folder = rath_test_support::temp_dir();
        let root = Root::open(folder.path()).expect("a directory");
        let seen = SeenRoot { root, seen_at: PathBuf::from("/seen") };
        assert!(target(Some(&seen), &"a/".repeat(40_000)).ends_with("/a/a"));
        assert_eq!(target(Some(&seen), "/seen/a/b"), "a/b");
    }
}
