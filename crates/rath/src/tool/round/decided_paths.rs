//! The paths that the decision about a call is about, and the files that they lead to.

use std::path::{Path, PathBuf};
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
    if let Some(name) = seen.and_then(|seen| seen.root.canonical_name(given)) {
        return name;
    }
    let is_known = given.len() <= MAX_PATH_BYTES && !is_stream(given);
    if !is_known || (seen.is_none() && !Path::new(given).is_absolute()) {
        return given.to_owned();
    }
    let target = follow(seen, given);
    let inside = seen.and_then(|seen| target.strip_prefix(&seen.seen_at).ok());
    inside.unwrap_or(&target).to_string_lossy().into_owned()
}

/// Returns true if a path names a device, or a stream that each process has its own of.
fn is_stream(given: &str) -> bool {
    const NAMES: [&str; 9] = ["null", "zero", "full", "random", "urandom", "tty", "stdin", "stdout", "stderr"];
    let Some(name) = given.strip_prefix("/dev/") else { return false };
    NAMES.contains(&name) || name == "fd" || name.strip_prefix("fd/").is_some_and(|fd| fd.parse::<u32>().is_ok())
}

/// The largest path that a system call takes, in bytes.
const MAX_PATH_BYTES: usize = 4096;
/// The largest number of links that are followed.
const MAX_LINKS: u32 = 40;

/// Returns a path without links, as commands see it. A part of it that is missing stays as it is given.
///
/// Names are followed one by one: what stands above the directory, and where a link leads, depends on where commands see it.
fn follow(seen: Option<&SeenRoot>, given: &str) -> PathBuf {
    let names = |path: &Path| path.components().rev().map(|part| part.as_os_str().to_owned()).collect::<Vec<_>>();
    let mut at = seen.map_or_else(|| PathBuf::from("/"), |seen| seen.seen_at.clone());
    let (mut rest, mut links) = (names(Path::new(given)), 0);
    while let Some(name) = rest.pop() {
        let path = match name.to_str() {
            Some(".") => continue,
            Some("..") => {
                at.pop();
                continue;
            }
            // The root replaces what stands before it.
            _ => at.join(name),
        };
        let on_machine = seen.and_then(|seen| Some(seen.root.path().join(path.strip_prefix(&seen.seen_at).ok()?)));
        match on_machine.as_deref().unwrap_or(&path).read_link() {
            Ok(link) if links < MAX_LINKS => {
                links += 1;
                rest.extend(names(&link));
            }
            _ => at = path,
        }
    }
    at
}

#[cfg(test)]
mod tests {
    #[cfg(unix)]
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_path_of_any_length_is_followed() {
        let long = format!("/none/{}", "a/".repeat(40_000));
        assert_eq!(target(None, &long), long);
        let folder = rath_test_support::temp_dir();
        let root = Root::open(folder.path()).expect("a directory");
        let seen = SeenRoot { root, seen_at: PathBuf::from("/seen") };
        assert!(target(Some(&seen), &"a/".repeat(40_000)).ends_with("a/a/"));
        assert_eq!(target(Some(&seen), "/seen/a/b"), "a/b");
        assert_eq!(target(Some(&seen), "../seen/a"), "a");
        assert_eq!(target(Some(&seen), "../other/a"), "/other/a");
        assert_eq!(target(Some(&seen), "/dev/stderr"), "/dev/stderr");
    }

    #[cfg(unix)]
    #[test]
    fn a_link_is_followed_where_commands_see_it() {
        let folder = rath_test_support::temp_dir();
        for (link, to) in
            [("out", "../other"), ("up", ".."), ("back", "../seen/a"), ("own", "/seen/a"), ("far", "/none")]
        {
            symlink(to, folder.path().join(link)).expect("a link");
        }
        let root = Root::open(folder.path()).expect("a directory");
        let seen = SeenRoot { root, seen_at: PathBuf::from("/seen") };
        for (given, expected) in [
            ("out/x", "/other/x"),
            ("./out/../x", "/x"),
            ("up/other/x", "/other/x"),
            ("up/seen/x", "x"),
            ("back/x", "a/x"),
            ("own/x", "a/x"),
            ("/seen/out/x", "/other/x"),
            ("far/x", "/none/x"),
        ] {
            assert_eq!(target(Some(&seen), given), expected, "{given}");
        }
    }
}
