//! Files that other programs run later on this machine, outside of every sandbox: hooks, build scripts, settings of editors
//! and CI. A run that changed one says so.

/// Names of files, in any directory.
const FILES: [&str; 44] = [
    ".bash_profile",
    ".bashrc",
    ".dir-locals.el",
    ".envrc",
    ".exrc",
    ".gitattributes",
    ".gitconfig",
    ".gitlab-ci.yml",
    ".gitmodules",
    ".lldbinit",
    ".gdbinit",
    ".npmrc",
    ".nvim.lua",
    ".nvimrc",
    ".pre-commit-config.yaml",
    ".profile",
    ".tool-versions",
    ".vimrc",
    ".yarnrc.yml",
    ".zprofile",
    ".zshenv",
    ".zshrc",
    "azure-pipelines.yml",
    "build.gradle",
    "build.gradle.kts",
    "build.rs",
    "cmakelists.txt",
    "conftest.py",
    "docker-compose.yml",
    "dockerfile",
    "gemfile",
    "gnumakefile",
    "jenkinsfile",
    "justfile",
    "makefile",
    "mise.toml",
    "noxfile.py",
    "package.json",
    "pyproject.toml",
    "rakefile",
    "setup.py",
    "sitecustomize.py",
    "taskfile.yml",
    "tox.ini",
];

/// Directories, at any depth, by their last names.
const DIRECTORIES: [&str; 12] = [
    ".buildkite",
    ".cargo",
    ".circleci",
    ".devcontainer",
    ".git",
    ".github/actions",
    ".github/workflows",
    ".husky",
    ".idea",
    ".mvn",
    ".vscode",
    ".zed",
];

/// Returns true if other programs may run what a file says.
pub(crate) fn is_guarded(path: &str) -> bool {
    let path = path.to_lowercase();
    let name = path.rsplit('/').next().unwrap_or_default();
    let is_in = |directory: &&str| {
        path.match_indices(*directory).any(|(start, _)| {
            let (before, after) = (&path[..start], &path[start + directory.len()..]);
            (before.is_empty() || before.ends_with('/')) && (after.is_empty() || after.starts_with('/'))
        })
    };
    FILES.contains(&name) || DIRECTORIES.iter().any(is_in)
}

#[cfg(test)]
mod tests {
    use super::{DIRECTORIES, FILES, is_guarded};

    #[test]
    fn files_that_run_later_are_known_at_any_depth_and_in_any_case() {
        for name in FILES {
            assert!(is_guarded(name) && is_guarded(&format!("a/b/{}", name.to_uppercase())), "{name}");
        }
        for directory in DIRECTORIES {
            assert!(is_guarded(directory) && is_guarded(&format!("a/{directory}/b/c")), "{directory}");
        }
        for path in ["src/main.rs", "makefile.md", "git/hooks", "a.git/x", ".github/README.md", "x.vscode/y", ""] {
            assert!(!is_guarded(path), "{path}");
        }
    }
}
