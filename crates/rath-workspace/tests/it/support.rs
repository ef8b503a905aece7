//! Helpers for the tests: a temporary workspace, and git to compare with.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use rath_workspace::{ChangeKind, FileChange, UntrackedReason};
use rath_workspace::{Objects, Snapshot, TreeId, Workspace};

/// A directory, and a folder for its versions outside of it.
pub(crate) struct Scratch {
    pub(crate) folder: rath_test_support::TempDir,
    pub(crate) root: PathBuf,
    pub(crate) objects: Objects,
}

impl Scratch {
    pub(crate) fn new() -> Self {
        let folder = rath_test_support::temp_dir();
        let root = folder.path().join("root");
        fs::create_dir(&root).expect("a directory");
        let objects = Objects::open(&folder.path().join("versions")).expect("versions");
        Scratch { folder, root, objects }
    }

    pub(crate) fn index(&self) -> PathBuf {
        self.folder.path().join("index")
    }

    pub(crate) fn workspace(&self) -> Workspace {
        Workspace::open(&self.root, &self.objects, &self.index()).expect("a workspace")
    }

    /// Returns the tree that git makes of the directory, with no ignore rules but those in it.
    pub(crate) fn git_tree(&self) -> String {
        let own = self.folder.path().join("git");
        if !own.exists() {
            run(rath_test_support::git().args(["init", "--quiet", "--bare"]).arg(&own));
        }
        let git = |args: &[&str]| {
            let mut git = rath_test_support::git();
            git.arg("--git-dir").arg(&own).arg("--work-tree").arg(&self.root);
            for setting in ["core.excludesFile=", "core.attributesFile=", "core.autocrlf=false", "core.bare=false"] {
                git.args(["-c", setting]);
            }
            run(git.args(args).current_dir(&self.root))
        };
        let _ = fs::remove_file(own.join("index"));
        git(&["add", "--all", "."]);
        String::from_utf8(git(&["write-tree"])).expect("text").trim().to_owned()
    }
}

/// Runs git on a folder of versions.
pub(crate) fn git(objects: &Objects, args: &[&str]) -> Vec<u8> {
    run(rath_test_support::git().arg("--git-dir").arg(objects.folder()).args(args))
}

pub(crate) fn run(command: &mut Command) -> Vec<u8> {
    let output = command.output().expect("git starts");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// Returns changes as text. A digest is shown as the first line of the content, if it is a known one.
pub(crate) fn changes_text(changes: &[FileChange]) -> String {
    let known: [&str; 25] = [
        "out\n",
        "one",
        "two",
        "bye",
        "hello",
        "a file",
        "inside",
        "elsewhere",
        "below",
        "file",
        "#!",
        "small",
        "1",
        "2",
        "3",
        "4",
        "c\n",
        "*.log\nout/\n",
        "text",
        "latin",
        "quoted",
        "odd",
        "of the fork",
        super::STORY,
        "",
    ];
    let twice = super::STORY.replace("once", "twice");
    let name = |digest: Option<rath_workspace::Digest>| match digest {
        None => "-".to_owned(),
        Some(digest) => {
            let text = known
                .iter()
                .copied()
                .chain([&*twice])
                .find(|text| rath_workspace::Digest::compute(text.as_bytes()) == digest);
            text.map_or_else(
                || digest.to_string(),
                |text| match text.split_once('\n') {
                    Some((line, _)) => format!("{line}.."),
                    None => text.to_owned(),
                },
            )
        }
    };
    let line = |change: &FileChange| {
        let kind = match &change.kind {
            ChangeKind::Created => format!("created {}", change.path),
            ChangeKind::Modified => format!("modified {}", change.path),
            ChangeKind::Deleted => format!("deleted {}", change.path),
            ChangeKind::Renamed { from } => format!("renamed {} from {from}", change.path),
        };
        let reason = match change.untracked {
            None => "",
            Some(UntrackedReason::Ignored) => " (ignored)",
            Some(UntrackedReason::TooLarge) => " (too large)",
            Some(UntrackedReason::EmptyDirectory) => " (empty directory)",
            Some(UntrackedReason::Special) => " (special)",
            Some(UntrackedReason::Secret) => " (secret)",
        };
        format!("{kind} {} -> {}{reason}\n", name(change.before), name(change.after))
    };
    changes.iter().map(line).collect()
}

/// The state of a path, found by reading everything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PathState {
    pub(crate) kind: PathKind,
    /// Metadata that differs after any change.
    pub(crate) stamp: (u64, i64, i64),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PathKind {
    File { content: Vec<u8>, executable: bool },
    Link(Vec<u8>),
    Directory { is_empty: bool },
    Special,
}

/// Reads a directory completely, without any cache.
pub(crate) fn observe(root: &Path) -> BTreeMap<Vec<u8>, PathState> {
    let mut states = BTreeMap::new();
    let mut rest = vec![root.to_owned()];
    while let Some(dir) = rest.pop() {
        for entry in fs::read_dir(&dir).expect("a list") {
            let path = entry.expect("an entry").path();
            let metadata = fs::symlink_metadata(&path).expect("metadata");
            let file_type = metadata.file_type();
            let kind = if file_type.is_dir() {
                rest.push(path.clone());
                PathKind::Directory { is_empty: fs::read_dir(&path).expect("a list").next().is_none() }
            } else if file_type.is_symlink() {
                PathKind::Link(fs::read_link(&path).expect("a link").into_os_string().into_vec())
            } else if file_type.is_fifo() {
                PathKind::Special
            } else {
                let executable = metadata.mode() & 0o100 != 0;
                PathKind::File { content: fs::read(&path).expect("read"), executable }
            };
            let stamp = (metadata.ino(), metadata.ctime(), metadata.ctime_nsec());
            let name = path.strip_prefix(root).expect("below").as_os_str().as_bytes().to_vec();
            states.insert(name, PathState { kind, stamp });
        }
    }
    states
}

pub(crate) fn path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

/// Removes a directory that may be nested deeper than paths can be long.
pub(crate) fn remove_deep(root: &Path) {
    use rustix::fs::{AtFlags, Mode, OFlags, openat, renameat, unlinkat};
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW;
    let top = rustix::fs::open(root, flags, Mode::empty()).expect("open");
    for nth in 0.. {
        let Ok(dir) = openat(&top, "deeper", flags, Mode::empty()) else { break };
        let _ = unlinkat(&dir, "twig", AtFlags::REMOVEDIR);
        let _ = unlinkat(&dir, "file", AtFlags::empty());
        // The contents move up, and the empty level is removed.
        let moved = renameat(&dir, "deeper", &top, "next");
        unlinkat(&top, "deeper", AtFlags::REMOVEDIR).expect("an empty directory");
        if moved.is_err() || nth > 10_000 {
            break;
        }
        renameat(&top, "next", &top, "deeper").expect("renamed");
    }
}

/// Makes the files equal to a tree, as they are now.
pub(crate) fn restore(workspace: &mut Workspace, tree: TreeId) -> rath_workspace::Result<Snapshot> {
    let now = workspace.snapshot()?;
    workspace.restore(&now, tree)
}
