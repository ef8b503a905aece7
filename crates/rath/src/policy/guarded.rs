//! Files that other programs run later on this machine, outside of every sandbox: hooks, settings of shells, editors and CI,
//! build scripts.

/// The occasion on which other programs run what a file says.
///
/// Returned by [`runs_later`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunsLater {
    /// Without being asked to: when a directory is entered, opened in an editor, committed or pushed.
    Unasked,
    /// When the user builds or tests the project.
    OnBuild,
}

/// Names of files, in any directory, that are run unasked.
const UNASKED_FILES: [&str; 41] = [
    ".bash_login",
    ".bash_logout",
    ".bash_profile",
    ".bashrc",
    ".dir-locals.el",
    ".drone.yml",
    ".envrc",
    ".exrc",
    ".gdbinit",
    ".gitattributes",
    ".gitconfig",
    ".gitlab-ci.yml",
    ".gitmodules",
    ".lefthook.yml",
    ".lldbinit",
    ".lvimrc",
    ".mcp.json",
    ".mise.toml",
    ".npmrc",
    ".nvim.lua",
    ".nvimrc",
    ".pnpmfile.cjs",
    ".pre-commit-config.yaml",
    ".profile",
    ".rvmrc",
    ".tool-versions",
    ".travis.yml",
    ".vimrc",
    ".woodpecker.yml",
    ".yarnrc.yml",
    ".zlogin",
    ".zprofile",
    ".zshenv",
    ".zshrc",
    "azure-pipelines.yml",
    "bitbucket-pipelines.yml",
    "jenkinsfile",
    "lefthook.yaml",
    "lefthook.yml",
    "mise.toml",
    "rath.toml",
];

/// Directories, at any depth, by their last names, of which every file is run unasked.
const UNASKED_DIRECTORIES: [&str; 19] = [
    ".buildkite",
    ".cargo",
    ".circleci",
    ".claude",
    ".cursor",
    ".devcontainer",
    ".forgejo/workflows",
    ".git",
    ".gitea/workflows",
    ".github/actions",
    ".github/workflows",
    ".hg",
    ".husky",
    ".idea",
    ".jj",
    ".mvn",
    ".svn",
    ".vscode",
    ".zed",
];

/// Names of files, in any directory, that are run by builds and tests.
const BUILD_FILES: [&str; 19] = [
    "build.gradle",
    "build.gradle.kts",
    "build.rs",
    "cmakelists.txt",
    "conftest.py",
    "docker-compose.yml",
    "dockerfile",
    "gemfile",
    "gnumakefile",
    "justfile",
    "makefile",
    "noxfile.py",
    "package.json",
    "pyproject.toml",
    "rakefile",
    "setup.py",
    "sitecustomize.py",
    "taskfile.yml",
    "tox.ini",
];

/// Returns the occasion on which other programs run what a file in the workspace says, if they do.
///
/// ```
/// use rath::policy::{RunsLater, runs_later};
///
/// assert_eq!(runs_later("app/.envrc"), Some(RunsLater::Unasked));
/// assert_eq!(runs_later("Makefile"), Some(RunsLater::OnBuild));
/// assert_eq!(runs_later("src/main.rs"), None);
/// ```
pub fn runs_later(path: &str) -> Option<RunsLater> {
    // Some file systems do not tell `.ENVRC` from `.envrc`.
    let path = path.to_lowercase();
    let name = path.rsplit('/').next().unwrap_or_default();
    let is_in = |directory: &&str| {
        path.match_indices(*directory).any(|(start, _)| {
            let (before, after) = (&path[..start], &path[start + directory.len()..]);
            (before.is_empty() || before.ends_with('/')) && (after.is_empty() || after.starts_with('/'))
        })
    };
    if UNASKED_FILES.contains(&name) || UNASKED_DIRECTORIES.iter().any(is_in) {
        return Some(RunsLater::Unasked);
    }
    BUILD_FILES.contains(&name).then_some(RunsLater::OnBuild)
}

/// Returns true if other programs do not run a file although its name is listed, because it is in this ignored directory.
///
/// They run what is in the directory that they are used in, and no one uses them among dependencies and build results. An ignored
/// `.vscode` is different: the directory itself is what they look for. Git keeps a directory `.git` by itself.
pub(crate) fn is_inert(path: &str, ignored_dir: &str) -> bool {
    let name = ignored_dir.rsplit('/').next().unwrap_or_default();
    let below = path.strip_prefix(ignored_dir).and_then(|rest| rest.strip_prefix('/'));
    below.is_some_and(|below| name.eq_ignore_ascii_case(".git") || runs_later(below) == Some(RunsLater::Unasked))
}

/// Returns true for a directory that is on the list or in one that is, or whose subdirectories can be on it.
pub(crate) fn may_contain_unasked(directory: &str) -> bool {
    unasked_below(directory).next().is_some() || runs_later(directory) == Some(RunsLater::Unasked)
}

/// Returns the number of each directory on the list whose first name is that of this directory.
pub(crate) fn unasked_below(directory: &str) -> impl Iterator<Item = usize> {
    let name = directory.rsplit('/').next().unwrap_or_default().to_lowercase();
    let is_first = move |known: &&str| known.split('/').next() == Some(&*name);
    UNASKED_DIRECTORIES.iter().enumerate().filter(move |(_, known)| is_first(known)).map(|(nth, _)| nth)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_run_later_are_known_at_any_depth_and_in_any_case() {
        let check = |name: &str, expected: RunsLater| {
            assert_eq!(runs_later(name), Some(expected), "{name}");
            assert_eq!(runs_later(&format!("a/b/{}", name.to_uppercase())), Some(expected), "{name}");
        };
        UNASKED_FILES.iter().for_each(|name| check(name, RunsLater::Unasked));
        BUILD_FILES.iter().for_each(|name| check(name, RunsLater::OnBuild));
        for directory in UNASKED_DIRECTORIES {
            check(directory, RunsLater::Unasked);
            check(&format!("{directory}/b/c"), RunsLater::Unasked);
        }
        for path in ["src/main.rs", "makefile.md", "git/hooks", "a.git/x", ".github/README.md", "x.vscode/y", ""] {
            assert_eq!(runs_later(path), None, "{path}");
        }
    }
}
