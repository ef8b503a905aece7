//! Walking through directories, as far as the rules in `.gitignore` files let one.

use std::sync::Arc;

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

use crate::sandbox::{Entry, Kind, Part, Sandbox};
use crate::session::Result;

/// How long a file with rules can be.
const RULES_MOST: u64 = 256 * 1024;
/// How many directories deep one walks.
pub(super) const DEPTH_MOST: u64 = 64;

/// A directory that is walked through.
#[derive(Clone)]
pub(super) struct Directory {
    /// As the sandbox knows it.
    path: String,
    /// As it is shown, with a slash at the end unless it is empty.
    pub(super) shown: String,
    /// How many directories above it are walked through as well.
    pub(super) depth: u64,
    rules: Option<Arc<Rules>>,
}

/// What is in a directory.
pub(super) struct Child {
    pub(super) entry: Entry,
    /// As the sandbox knows it.
    pub(super) path: String,
    pub(super) shown: String,
    /// Whether the rules leave it out.
    pub(super) ignored: bool,
}

/// The rules of a directory and of those above it.
struct Rules {
    above: Option<Arc<Rules>>,
    /// How the directory is called, with a slash at the end unless it is empty.
    at: String,
    own: Gitignore,
}

impl Directory {
    /// A directory to begin with. The rules of those above it hold too, as far as its path says which they are.
    pub(super) async fn open(sandbox: &Sandbox, path: &str) -> Self {
        let mut directory = Directory { path: path.to_owned(), shown: String::new(), depth: 0, rules: None };
        let parts: Vec<_> = path.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
        if path.starts_with('/') || parts.contains(&"..") {
            return directory;
        }
        let mut above = String::new();
        for part in &parts {
            directory.add_rules(sandbox, &above).await;
            above.push_str(part);
            above.push('/');
        }
        directory.path = above.trim_end_matches('/').to_owned();
        directory
    }

    /// What is in it, by name.
    pub(super) async fn children(&mut self, sandbox: &Sandbox) -> Result<Vec<Child>> {
        let entries = sandbox.list(&self.path).await?;
        let prefix = if self.path.is_empty() { String::new() } else { format!("{}/", self.path) };
        if entries.iter().any(|entry| entry.name == ".gitignore" && entry.kind == Kind::File) {
            self.add_rules(sandbox, &prefix).await;
        }
        let child = |entry: Entry| {
            let path = format!("{prefix}{}", entry.name);
            let is_directory = entry.kind == Kind::Directory;
            let rules = self.rules.as_ref();
            let ignored = entry.name == ".git" || rules.is_some_and(|rules| rules.ignore(&path, is_directory));
            Child { shown: format!("{}{}", self.shown, entry.name), path, ignored, entry }
        };
        Ok(entries.into_iter().map(child).collect())
    }

    /// A directory in it.
    pub(super) fn below(&self, child: &Child) -> Self {
        Directory {
            path: child.path.clone(),
            shown: format!("{}/", child.shown),
            depth: self.depth + 1,
            rules: self.rules.clone(),
        }
    }

    async fn add_rules(&mut self, sandbox: &Sandbox, at: &str) {
        let Ok(text) = sandbox.read(&format!("{at}.gitignore"), Part { from: 0, most: RULES_MOST }).await else {
            return;
        };
        let mut builder = GitignoreBuilder::new("");
        for line in String::from_utf8_lossy(&text).lines() {
            // As for git: a rule that cannot be read is none.
            let _ = builder.add_line(None, line);
        }
        if let Ok(own) = builder.build() {
            self.rules = Some(Arc::new(Rules { above: self.rules.take(), at: at.to_owned(), own }));
        }
    }
}

impl Rules {
    fn ignore(&self, path: &str, is_directory: bool) -> bool {
        let own = path.strip_prefix(&self.at).map(|path| self.own.matched(path, is_directory));
        match own {
            Some(Match::Ignore(_)) => true,
            Some(Match::Whitelist(_)) => false,
            _ => self.above.as_ref().is_some_and(|above| above.ignore(path, is_directory)),
        }
    }
}
