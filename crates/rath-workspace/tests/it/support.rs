//! What tests of workspaces use: a place, and git to ask.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use rath_workspace::{ChangeKind, FileChange, UntrackedReason};
use rath_workspace::{Objects, Workspace};

/// A directory, and a folder for its versions that is not in it.
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

    /// The tree that git makes of the directory, with no rules but those in it.
    pub(crate) fn tree_of_git(&self) -> String {
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

/// Asks git about a folder of versions.
pub(crate) fn git(objects: &Objects, args: &[&str]) -> Vec<u8> {
    run(rath_test_support::git().arg("--git-dir").arg(objects.folder()).args(args))
}

pub(crate) fn run(command: &mut Command) -> Vec<u8> {
    let output = command.output().expect("git starts");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// Effects as text. A digest stands as the beginning of what the test files say, where it is one of theirs.
pub(crate) fn told(effects: &[FileChange]) -> String {
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
    let line = |effect: &FileChange| {
        let change = match &effect.kind {
            ChangeKind::Created => format!("created {}", effect.path),
            ChangeKind::Modified => format!("modified {}", effect.path),
            ChangeKind::Deleted => format!("deleted {}", effect.path),
            ChangeKind::Renamed { from } => format!("renamed {} from {from}", effect.path),
        };
        let why = match effect.untracked {
            None => "",
            Some(UntrackedReason::Ignored) => " (ignored)",
            Some(UntrackedReason::TooLarge) => " (too large)",
            Some(UntrackedReason::EmptyDirectory) => " (empty directory)",
            Some(UntrackedReason::Special) => " (special)",
        };
        format!("{change} {} -> {}{why}\n", name(effect.before), name(effect.after))
    };
    effects.iter().map(line).collect()
}

/// What somebody sees who reads everything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) what: What,
    /// What changes whenever anything about it does.
    pub(crate) stamp: (u64, i64, i64),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    File { content: Vec<u8>, executable: bool },
    Link(Vec<u8>),
    Directory { is_empty: bool },
    Special,
}

/// Walks a directory and reads all of it, the plain way.
pub(crate) fn observe(root: &Path) -> BTreeMap<Vec<u8>, Seen> {
    let mut seen = BTreeMap::new();
    let mut rest = vec![root.to_owned()];
    while let Some(dir) = rest.pop() {
        for entry in fs::read_dir(&dir).expect("a list") {
            let path = entry.expect("an entry").path();
            let metadata = fs::symlink_metadata(&path).expect("metadata");
            let kind = metadata.file_type();
            let what = if kind.is_dir() {
                rest.push(path.clone());
                What::Directory { is_empty: fs::read_dir(&path).expect("a list").next().is_none() }
            } else if kind.is_symlink() {
                What::Link(fs::read_link(&path).expect("a link").into_os_string().into_vec())
            } else if kind.is_fifo() {
                What::Special
            } else {
                let executable = metadata.mode() & 0o100 != 0;
                What::File { content: fs::read(&path).expect("read"), executable }
            };
            let stamp = (metadata.ino(), metadata.ctime(), metadata.ctime_nsec());
            let name = path.strip_prefix(root).expect("below").as_os_str().as_bytes().to_vec();
            seen.insert(name, Seen { what, stamp });
        }
    }
    seen
}

pub(crate) fn path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

/// Removes a directory that may be nested deeper than paths are long.
pub(crate) fn remove_deep(root: &Path) {
    use rustix::fs::{AtFlags, Mode, OFlags, openat, renameat, unlinkat};
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW;
    let top = rustix::fs::open(root, flags, Mode::empty()).expect("open");
    for nth in 0.. {
        let Ok(dir) = openat(&top, "deeper", flags, Mode::empty()) else { break };
        let _ = unlinkat(&dir, "twig", AtFlags::REMOVEDIR);
        let _ = unlinkat(&dir, "file", AtFlags::empty());
        // What is below moves up, and the level that is left is empty.
        let moved = renameat(&dir, "deeper", &top, "next");
        unlinkat(&top, "deeper", AtFlags::REMOVEDIR).expect("an empty directory");
        if moved.is_err() || nth > 10_000 {
            break;
        }
        renameat(&top, "next", &top, "deeper").expect("renamed");
    }
}
