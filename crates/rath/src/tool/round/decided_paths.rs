//! The paths that the decision about a call is about, and the files that they lead to.

use std::sync::Arc;

use crate::blocking::run_blocking;
use crate::links::{FollowedPath, SeenRoot, follow};
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

#[derive(Clone)]
struct DecidedPath {
    given: String,
    followed: FollowedPath,
}

impl DecidedPaths {
    pub(super) fn new(root: Option<Arc<SeenRoot>>) -> Self {
        DecidedPaths { root, paths: Vec::new() }
    }

    /// Adds paths, and returns them with the paths that they lead to.
    pub(super) async fn add(&mut self, given: Vec<String>) -> Result<Vec<FollowedPath>> {
        let all = follow_all(self.root.clone(), given.clone()).await?;
        let paths = given.into_iter().zip(all.iter().cloned());
        self.paths.extend(paths.map(|(given, followed)| DecidedPath { given, followed }));
        Ok(all)
    }

    /// Forgets the paths: the decision holds for all.
    pub(super) fn clear(&mut self) {
        self.paths.clear();
    }

    /// Returns the paths that were decided about, without links.
    pub(super) fn targets(&self) -> Vec<&String> {
        self.paths.iter().map(|path| &path.followed.target).collect()
    }

    /// Returns true if a link leads one of the paths elsewhere than its text says.
    pub(super) fn lead_elsewhere(&self) -> bool {
        fn names(path: &str) -> impl Iterator<Item = &str> {
            path.split('/').filter(|name| !matches!(*name, "" | "."))
        }
        self.paths.iter().any(|path| !names(&path.given).eq(names(&path.followed.target)))
    }

    /// Returns true if one of the paths leads to another file, or on another way, now than when it was decided about.
    pub(super) async fn have_moved(&self) -> Result<bool> {
        if self.paths.is_empty() {
            return Ok(false);
        }
        let given = self.paths.iter().map(|path| path.given.clone()).collect();
        let all = follow_all(self.root.clone(), given).await?;
        Ok(!self.paths.iter().map(|path| &path.followed).eq(&all))
    }
}

/// Follows paths to their targets.
async fn follow_all(root: Option<Arc<SeenRoot>>, given: Vec<String>) -> Result<Vec<FollowedPath>> {
    if given.is_empty() {
        return Ok(Vec::new());
    }
    run_blocking(move || Ok(given.iter().map(|path| follow(root.as_deref(), path)).collect())).await
}
