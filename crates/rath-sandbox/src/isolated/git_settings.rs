//! The files and directories that the settings of a repository name, and from which git takes hooks and further settings.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::private_paths::home_directories;
use crate::root::is_git_dir;

/// The largest file of settings that is read, in bytes.
const MAX_CONFIG_BYTES: u64 = 1 << 20;
/// The most files of settings that are read for one working tree.
const MAX_CONFIG_FILES: usize = 64;
/// The most further working trees of a repository whose settings are read.
const MAX_WORKING_TREES: usize = 256;

/// Returns the directories of hooks and templates, and the included files, of a repository and of all its working trees, with
/// those that the settings of the user name for all repositories. They need not exist.
///
/// `git` is the directory of the repository, and `worktree` the directory with its files: `git` itself if it has none.
pub(super) fn named_paths(worktree: &Path, git: &Path) -> BTreeSet<PathBuf> {
    // The directory of a further working tree names the one with the settings and the other working trees.
    let common = read(&git.join("commondir")).map_or_else(|| git.to_owned(), |common| git.join(common.trim()));
    let main_tree = common.parent().filter(|_| common.file_name().is_some_and(is_git_dir)).unwrap_or(&common);
    let further = std::fs::read_dir(common.join("worktrees")).into_iter().flatten().flatten().map(|entry| entry.path());
    let further = further.take(MAX_WORKING_TREES).map(|git| {
        let tree = read(&git.join("gitdir")).and_then(|path| Some(git.join(path.trim()).parent()?.to_owned()));
        (tree.unwrap_or_else(|| git.clone()), git)
    });
    let trees = [(worktree.to_owned(), git.to_owned()), (main_tree.to_owned(), common.clone())];
    trees.into_iter().chain(further).flat_map(|(tree, git)| named_by_tree(&tree, &git, &common)).collect()
}

/// Returns what the settings of one working tree name. `common` is the directory with the settings of all working trees.
fn named_by_tree(worktree: &Path, git: &Path, common: &Path) -> BTreeSet<PathBuf> {
    let mut configs = vec![git.join("config"), git.join("config.worktree"), common.join("config")];
    let homes = home_directories();
    configs.push("/etc/gitconfig".into());
    configs.extend(homes.iter().flat_map(|home| [home.join(".gitconfig"), home.join(".config/git/config")]));
    configs.extend(std::env::var_os("XDG_CONFIG_HOME").map(|path| PathBuf::from(path).join("git/config")));
    let resolve = |base: &Path, value: &str| match value.strip_prefix("~/") {
        Some(below) => homes.iter().map(|home| home.join(below)).collect(),
        None => vec![base.join(value)],
    };
    let (mut named, mut seen) = (BTreeSet::new(), BTreeSet::new());
    // Hooks run in the working tree, and without one in the directory of the repository.
    let (mut hooks, mut bases) = (Vec::new(), vec![worktree.to_owned(), git.to_owned()]);
    while let Some(config) = configs.pop().filter(|_| seen.len() < MAX_CONFIG_FILES) {
        if !seen.insert(config.clone()) {
            continue;
        }
        let text = read(&config).unwrap_or_default();
        for (section, name, value) in settings(&text) {
            match (&*section, &*name) {
                ("core", "hookspath") | ("init", "templatedir") => hooks.push(value),
                ("core", "worktree") => bases.push(git.join(value)),
                // A condition may hold later, and is not looked at.
                ("include" | "includeif", "path") => {
                    let paths = resolve(config.parent().unwrap_or(worktree), &value);
                    named.extend(paths.iter().cloned());
                    configs.extend(paths);
                }
                _ => {}
            }
        }
    }
    let in_bases = |value: &String| bases.iter().flat_map(|base| resolve(base, value)).collect::<Vec<_>>();
    named.extend(hooks.iter().flat_map(in_bases));
    named
}

fn read(path: &Path) -> Option<String> {
    let is_small = std::fs::metadata(path).is_ok_and(|file| file.is_file() && file.len() <= MAX_CONFIG_BYTES);
    let bytes = is_small.then(|| std::fs::read(path).ok()).flatten()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns the settings of a file, each with its section and its name in lower case. Sections have no second name here.
fn settings(text: &str) -> Vec<(String, String, String)> {
    let (mut found, mut section) = (Vec::new(), String::new());
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let mut rest = line.trim_start_matches('\u{feff}').trim();
        if let Some(header) = rest.strip_prefix('[') {
            let end = end_of_header(header);
            let name = header[..end].split(|it: char| it.is_whitespace() || it == '"' || it == '.').next();
            section = name.unwrap_or_default().to_lowercase();
            rest = header[end..].trim_start_matches(']').trim();
        }
        let Some((name, value)) = rest.split_once('=').filter(|(name, _)| !name.starts_with(['#', ';'])) else {
            continue;
        };
        let mut value = value.to_owned();
        // A line goes on after a backslash at its end.
        while value.ends_with('\\') && !value.ends_with("\\\\") {
            value.pop();
            value.push_str(lines.next().unwrap_or_default());
        }
        found.push((section.clone(), name.trim().to_lowercase(), unquote(&value)));
    }
    found
}

/// Returns the position of the bracket that ends a header: the first outside of quotes.
fn end_of_header(header: &str) -> usize {
    let (mut is_quoted, mut is_escaped) = (false, false);
    for (at, it) in header.char_indices() {
        match it {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => is_quoted = !is_quoted,
            ']' if !is_quoted => return at,
            _ => {}
        }
    }
    header.len()
}

/// Returns a value without quotes, escapes and comments.
fn unquote(value: &str) -> String {
    let (mut plain, mut is_quoted, mut quoted_bytes) = (String::new(), false, 0);
    let mut chars = value.trim().chars();
    while let Some(it) = chars.next() {
        match it {
            '"' => {
                is_quoted = !is_quoted;
                quoted_bytes = plain.len();
            }
            '\\' => plain.extend(chars.next()),
            '#' | ';' if !is_quoted => break,
            _ => plain.push(it),
        }
    }
    // Spaces at the end count only in quotes.
    let end = plain.trim_end().len().max(quoted_bytes.min(plain.len()));
    plain.truncate(end);
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_as_git_reads_them() {
        let text = "\u{feff}[core]\n\thooksPath = .githooks ; mine\n# path = no\n[include] path = \"a b\"\n\
                    [includeIf \"gitdir:~/x]y/\"]\n  PATH=../c\\\n d\n[Core]HOOKSPATH=x\n[a \"include\"]\npath = e\nflag\n";
        let found: Vec<_> = settings(text).iter().map(|(a, b, c)| format!("{a}.{b}={c}")).collect();
        let expected =
            ["core.hookspath=.githooks", "include.path=a b", "includeif.path=../c d", "core.hookspath=x", "a.path=e"];
        assert_eq!(found, expected);
    }

    #[test]
    fn included_files_are_followed() {
        let folder = tempfile::tempdir().expect("a directory");
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
            std::fs::write(path, text).expect("a file");
        };
        write(".git/config", "[include]\npath = ../one\n");
        write("one", "[includeIf \"onbranch:x\"]\npath = two\n[include]\npath = one\n");
        write("two", "[core]\nhooksPath = below/hooks\n");
        let named = named_paths(folder.path(), &folder.path().join(".git"));
        let relative = |path: &PathBuf| {
            let path = path.strip_prefix(folder.path()).ok()?;
            Some(path.display().to_string())
        };
        let named: Vec<_> = named.iter().filter_map(relative).collect();
        assert_eq!(named, [".git/../one", ".git/../two", ".git/below/hooks", "below/hooks"]);
    }
}
