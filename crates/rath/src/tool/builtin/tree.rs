//! Walking through directories, as far as the rules in `.gitignore` files let one.

use crate::sandbox::{ByteRange, DirEntry, FileKind, Sandbox};
use crate::session::Result;
use crate::workspace::IgnoreRules;

/// The size of the largest file with ignore rules that is read.
const MAX_RULES_BYTES: u64 = 256 * 1024;
/// The depth of the deepest directory that is walked.
pub(super) const MAX_DEPTH: u64 = 64;

/// A directory that is walked through.
#[derive(Clone)]
pub(super) struct Directory {
    /// As the sandbox knows it.
    path: String,
    /// As it is shown, with a slash at the end unless it is empty.
    pub(super) shown: String,
    /// The number of directories above it that are walked as well.
    pub(super) depth: u64,
    rules: IgnoreRules,
}

/// An entry of a directory.
pub(super) struct Child {
    pub(super) entry: DirEntry,
    /// As the sandbox knows it.
    pub(super) path: String,
    pub(super) shown: String,
    /// True if ignore rules exclude the entry.
    pub(super) ignored: bool,
}

impl Directory {
    /// A directory to begin with. The rules of those above it hold too, as far as its path says which they are.
    pub(super) async fn open(sandbox: &Sandbox, path: &str) -> Self {
        let mut directory =
            Directory { path: path.to_owned(), shown: String::new(), depth: 0, rules: IgnoreRules::default() };
        let parts: Vec<_> = path.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
        if path.starts_with('/') || parts.contains(&"..") {
            return directory;
        }
        let mut above = String::new();
        for part in &parts {
            directory.add_rules(sandbox, &above).await;
            if !above.is_empty() {
                above.push('/');
            }
            above.push_str(part);
        }
        directory.path = above;
        directory
    }

    /// Returns the entries, by name.
    pub(super) async fn children(&mut self, sandbox: &Sandbox) -> Result<Vec<Child>> {
        let entries = sandbox.list(&self.path).await?;
        let prefix = if self.path.is_empty() { String::new() } else { format!("{}/", self.path) };
        if entries.iter().any(|entry| entry.name == ".gitignore") {
            self.add_rules(sandbox, &self.path.clone()).await;
        }
        let child = |entry: DirEntry| {
            let path = format!("{prefix}{}", entry.name);
            let is_directory = entry.kind == FileKind::Directory;
            let is_git = entry.name.eq_ignore_ascii_case(".git");
            let ignored = is_git || self.rules.ignores(path.as_bytes(), is_directory);
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

    /// Adds the rules in the `.gitignore` of a directory. As for git, only an ordinary file holds rules.
    async fn add_rules(&mut self, sandbox: &Sandbox, directory: &str) {
        let path = if directory.is_empty() { ".gitignore".to_owned() } else { format!("{directory}/.gitignore") };
        match sandbox.stat(&path).await {
            Ok(Some(entry)) if entry.kind == FileKind::File => {}
            _ => return,
        }
        if let Ok(content) = sandbox.read(&path, ByteRange { offset: 0, max_len: MAX_RULES_BYTES }).await {
            self.rules = self.rules.with_gitignore(directory.as_bytes(), &content);
        }
    }
}
