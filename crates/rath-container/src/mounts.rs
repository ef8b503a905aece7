//! The mounts of a container: the workspace, and over it what commands may not see or change.

use std::path::{Component, Path, PathBuf};

use rath_sandbox::backend::ProtectedPaths;
use rath_sandbox::{Error, ErrorKind, Result};

use crate::options::GitAccess;

/// The path in a container of the directory with its first process.
pub(crate) const CONTROL_PATH: &str = "/.rath-sandbox";
/// The home directory of commands.
pub(crate) const HOME: &str = "/home/rath";
/// The names in the control directory of what stands for hidden directories and files.
pub(crate) const EMPTY_DIR: &str = "empty";
pub(crate) const EMPTY_FILE: &str = "empty-file";

/// The most mounts of a container: each costs time at its start.
const MAX_MOUNTS: usize = 512;
/// The directories that belong to the container, and in which nothing can be mounted.
const SYSTEM_TREES: [&str; 4] = ["/proc", "/sys", "/dev", CONTROL_PATH];
/// The directories that an image consists of: a workspace in their place would be seen instead.
const SYSTEM_DIRS: [&str; 15] = [
    "/", "/bin", "/boot", "/etc", "/home", "/lib", "/lib32", "/lib64", "/opt", "/root", "/run", "/sbin", "/tmp",
    "/usr", "/var",
];

/// The input of [`plan`].
pub(crate) struct MountRequest<'a> {
    /// The workspace on this machine, without links.
    pub(crate) workspace: &'a Path,
    /// The path at which commands see the workspace.
    pub(crate) seen_at: &'a Path,
    pub(crate) git: GitAccess,
    pub(crate) protected: &'a ProtectedPaths,
    /// Further paths in the workspace that are hidden, relative to it and without links.
    pub(crate) hidden: &'a [HiddenPath],
}

/// A path in the workspace that is hidden.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct HiddenPath {
    pub(crate) path: PathBuf,
    pub(crate) is_dir: bool,
}

/// A file or directory of this machine, or of the control directory, that a container shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BindMount {
    pub(crate) source: MountSource,
    pub(crate) target: PathBuf,
    pub(crate) is_read_only: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MountSource {
    /// A path of this machine.
    Host(PathBuf),
    /// A name in the control directory.
    Control(&'static str),
}

/// Plans the mounts over a workspace, each behind those that it lies in.
pub(crate) fn plan(request: &MountRequest<'_>) -> Result<Vec<BindMount>> {
    check_target(request.seen_at)?;
    let host = |path: &Path, is_read_only: bool| BindMount {
        source: MountSource::Host(request.workspace.join(path)),
        target: request.seen_at.join(path),
        is_read_only,
    };
    let workspace = BindMount {
        source: MountSource::Host(request.workspace.to_owned()),
        target: request.seen_at.to_owned(),
        is_read_only: false,
    };
    let found = request
        .protected
        .hidden
        .iter()
        .map(|path| HiddenPath { path: path.clone(), is_dir: request.workspace.join(path).is_dir() });
    let mut hidden: Vec<_> = found.chain(request.hidden.iter().cloned()).collect();
    hidden.sort();
    hidden.dedup_by(|one, other| one.path == other.path);
    // What is in a hidden directory is hidden with it.
    let is_below = |path: &Path| hidden.iter().any(|above| path != above.path && path.starts_with(&above.path));
    let is_hidden = |path: &Path| hidden.iter().any(|above| path.starts_with(&above.path));
    let outermost: Vec<_> = hidden.iter().filter(|it| !is_below(&it.path)).collect();
    let mut pinned: Vec<PathBuf> = outermost.iter().flat_map(|it| parents(&it.path)).collect();
    let mut read_only: Vec<&PathBuf> = Vec::new();
    if request.git == GitAccess::ReadOnly {
        pinned.extend(request.protected.pinned.iter().cloned());
        read_only.extend(request.protected.read_only.iter().filter(|path| !is_hidden(path)));
    }
    pinned.sort();
    pinned.dedup();
    pinned.retain(|path| !is_hidden(path) && !read_only.iter().any(|above| path.starts_with(above)));
    let mut mounts = vec![workspace];
    mounts.extend(pinned.iter().map(|path| host(path, false)));
    mounts.extend(read_only.into_iter().map(|path| host(path, true)));
    mounts.extend(outermost.into_iter().map(|it| BindMount {
        source: MountSource::Control(if it.is_dir { EMPTY_DIR } else { EMPTY_FILE }),
        target: request.seen_at.join(&it.path),
        is_read_only: true,
    }));
    // Engines mount in their own order, by the number of names; those that do not take this one.
    mounts.sort_by_key(|mount| mount.target.components().count());
    if mounts.len() > MAX_MOUNTS {
        let message = format!("wanted at most {MAX_MOUNTS} protected paths in the workspace, found {}", mounts.len());
        let hint = "choose a smaller directory as the workspace";
        return Err(Error::new(ErrorKind::Unavailable, message).with_hint(hint));
    }
    mounts.iter().try_for_each(check_text)?;
    Ok(mounts)
}

/// Returns the directories above a relative path.
fn parents(path: &Path) -> impl Iterator<Item = PathBuf> {
    path.ancestors().skip(1).filter(|above| !above.as_os_str().is_empty()).map(Path::to_owned)
}

/// Fails if a workspace cannot be mounted at a path.
fn check_target(path: &Path) -> Result<()> {
    let is_plain = path.is_absolute() && path.components().all(|part| part != Component::ParentDir);
    let is_system = SYSTEM_DIRS.iter().any(|system| path == Path::new(system))
        || SYSTEM_TREES.iter().any(|system| path.starts_with(system))
        || path == Path::new(HOME);
    if is_plain && !is_system {
        return Ok(());
    }
    let message = format!("a container cannot show the workspace at `{}`", path.display());
    Err(Error::new(ErrorKind::Config, message).with_hint("`at=/work` shows it at another absolute path"))
}

/// Fails if a path has characters with a meaning in requests: podman writes mounts as lists with commas.
fn check_text(mount: &BindMount) -> Result<()> {
    let source = match &mount.source {
        MountSource::Host(path) => path,
        MountSource::Control(_) => &mount.target,
    };
    let is_plain = |path: &Path| {
        path.to_str().is_some_and(|path| !path.contains([',', '"', '\\', ':']) && !path.contains(char::is_control))
    };
    match [source, &mount.target].into_iter().find(|path| !is_plain(path)) {
        None => Ok(()),
        Some(path) => {
            let message = format!("a container cannot show `{}`", path.display().to_string().escape_debug());
            let hint = "the path has a comma, a colon, a quote, a backslash or a character that is no text: rename it";
            Err(Error::new(ErrorKind::Config, message).with_hint(hint))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(paths: &[&str], git: GitAccess, hidden: &[(&str, bool)], expected: &str) {
        let folder = rath_test_support::temp_dir();
        for path in paths {
            std::fs::create_dir_all(folder.path().join(path)).expect("a directory");
        }
        let protected = ProtectedPaths::find(folder.path()).expect("found");
        let hidden: Vec<_> =
            hidden.iter().map(|(path, is_dir)| HiddenPath { path: path.into(), is_dir: *is_dir }).collect();
        let request = MountRequest {
            workspace: folder.path(),
            seen_at: Path::new("/work"),
            git,
            protected: &protected,
            hidden: &hidden,
        };
        let mounts = plan(&request).expect("planned");
        let text = |mount: &BindMount| {
            let source = match &mount.source {
                MountSource::Host(path) => path.strip_prefix(folder.path()).expect("inside").display().to_string(),
                MountSource::Control(name) => format!("<{name}>"),
            };
            let access = if mount.is_read_only { "ro" } else { "rw" };
            format!("{}={source} {access}", mount.target.display())
        };
        assert_eq!(mounts.iter().map(text).collect::<Vec<_>>().join("\n"), expected);
    }

    #[test]
    fn repositories_are_read_only_and_cannot_be_moved() {
        check(
            &[".git", ".rath/work", "a/b/.git"],
            GitAccess::ReadOnly,
            &[],
            "/work= rw\n/work/a=a rw\n/work/.git=.git ro\n/work/.rath=<empty> ro\n/work/a/b=a/b rw\n/work/a/b/.git=a/b/.git ro",
        );
    }

    #[test]
    fn a_writable_git_has_no_mount_and_rath_is_hidden() {
        check(&[".git", ".rath"], GitAccess::Writable, &[], "/work= rw\n/work/.rath=<empty> ro");
    }

    #[test]
    fn what_is_in_a_hidden_directory_is_hidden_with_it() {
        check(
            &["a/.git", "a/b"],
            GitAccess::ReadOnly,
            &[("a", true), ("a/b", true), ("c/.env", false)],
            "/work= rw\n/work/c=c rw\n/work/a=<empty> ro\n/work/c/.env=<empty-file> ro",
        );
    }

    #[test]
    fn a_workspace_is_not_shown_in_the_place_of_the_system() {
        for path in ["/", "/usr", "/proc/self", "/dev/x", "relative", "/a/../b", "/home/rath", "/.rath-sandbox/x"] {
            assert!(check_target(Path::new(path)).is_err(), "{path}");
        }
        for path in ["/work", "/home/ann/app", "/tmp/x", "/home/rath/app", "/var/www"] {
            check_target(Path::new(path)).expect(path);
        }
    }

    #[test]
    fn paths_that_an_engine_would_read_otherwise_are_refused() {
        for path in ["/a,ro", "/a:b", "/a\"b", "/a\nb", "/a\\b"] {
            let mount =
                BindMount { source: MountSource::Host(path.into()), target: "/work".into(), is_read_only: false };
            assert!(check_text(&mount).is_err(), "{path:?}");
        }
    }
}
