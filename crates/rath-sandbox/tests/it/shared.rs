//! Directories of a workspace that a sandbox in another directory shows: commands read and change them, and the workspace stays as it is.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use rath_sandbox::{ByteRange, Command, ErrorKind, ExitStatus, Isolated, Sandbox, SharedDir, SharedDirs};

use super::{block_on, printed, sh};

const WHOLE: ByteRange = ByteRange { offset: 0, max_len: u64::MAX };

/// A project with dependencies and a `.git`, and a fork of it.
struct Fork {
    folder: rath_test_support::TempDir,
}

impl Fork {
    fn new() -> Self {
        let fork = Fork { folder: rath_test_support::temp_dir() };
        for (path, text) in [
            ("project/src/a", "a\n"),
            ("project/node_modules/dep/index.js", "module\n"),
            ("project/node_modules/dep/other.js", "other\n"),
            ("project/node_modules/dep/sub/deep.js", "deep\n"),
            ("project/node_modules/secret", "secret\n"),
            ("project/node_modules/vendored/.rath/note", "private\n"),
            ("project/.git/HEAD", "ref: refs/heads/main\n"),
            ("fork/src/a", "changed\n"),
        ] {
            let path = fork.path(path);
            std::fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
            std::fs::write(path, text).expect("a file");
        }
        std::os::unix::fs::symlink("../src/a", fork.path("project/node_modules/out")).expect("a link");
        std::os::unix::fs::symlink("dep/index.js", fork.path("project/node_modules/in")).expect("a link");
        std::fs::hard_link(fork.path("project/node_modules/dep/other.js"), fork.path("project/hard")).expect("a link");
        for directory in ["fork/node_modules", "fork/.git", "changes/upper", "changes/work"] {
            std::fs::create_dir_all(fork.path(directory)).expect("a directory");
        }
        fork
    }

    fn path(&self, path: &str) -> PathBuf {
        self.folder.path().canonicalize().expect("a folder").join(path)
    }

    fn sandbox(&self, settings: impl FnOnce(Isolated) -> Isolated) -> Sandbox {
        let sandbox = Sandbox::new(settings(Isolated::new(self.path("project"))));
        let shared = SharedDirs {
            original: self.path("project"),
            directories: vec![
                SharedDir { path: "node_modules".into(), changes: Some(self.path("changes")) },
                SharedDir { path: ".git".into(), changes: None },
            ],
        };
        sandbox.with_shared(&self.path("fork"), &shared).expect("namespaces can show directories")
    }

    /// Returns every file of the project, with its content and the metadata that a command could change.
    fn project(&self) -> BTreeMap<PathBuf, (u64, u32, i64, Vec<u8>)> {
        let (mut found, mut below) = (BTreeMap::new(), vec![self.path("project")]);
        while let Some(directory) = below.pop() {
            for entry in std::fs::read_dir(directory).expect("listed").flatten() {
                let (path, metadata) = (entry.path(), entry.metadata().expect("metadata"));
                if metadata.is_dir() {
                    below.push(path.clone());
                }
                let content = if metadata.is_file() { std::fs::read(&path).expect("read") } else { Vec::new() };
                found.insert(path, (metadata.ino(), metadata.mode(), metadata.mtime(), content));
            }
        }
        found
    }
}

#[test]
fn commands_read_shared_directories_at_their_paths() {
    let fork = Fork::new();
    let sandbox = fork.sandbox(|it| it);
    let line = "pwd; cat src/a node_modules/dep/index.js node_modules/in node_modules/out .git/HEAD";
    let expected =
        format!("{}\nchanged\nmodule\nmodule\nchanged\nref: refs/heads/main\n", fork.path("project").display());
    assert_eq!(printed(&sh(&sandbox, line)), expected);
}

#[test]
fn the_project_itself_is_out_of_sight_and_out_of_reach_with_every_setting() {
    let options = [
        "show=ABOVE",
        "at=/tmp/w&show=ABOVE",
        "write=ABOVE",
        "at=/tmp/w&write=ABOVE",
        "at=/tmp/w&write=ABOVE/project/node_modules",
        "at=/tmp/w&show=ABOVE/project/node_modules",
        "at=ABOVE&write=ABOVE",
        "walls=landlock",
        "walls=landlock&show=ABOVE",
        "walls=landlock&write=ABOVE",
        "walls=landlock&write=ABOVE/project/node_modules",
    ];
    let mut harmful = Vec::new();
    for options in options {
        let fork = Fork::new();
        let above = fork.path("");
        let above = above.to_str().expect("a path").trim_end_matches('/');
        let uri = format!("isolated:{above}/project?{}", options.replace("ABOVE", above));
        let sandbox = Sandbox::open(&uri).expect("a sandbox");
        let shared = SharedDirs { original: fork.path("project"), directories: Vec::new() };
        let sandboxes = [
            sandbox.with_shared(&fork.path("fork"), &shared).expect("a sandbox over the fork"),
            sandbox.with_directory(&fork.path("fork")).expect("a sandbox over the fork"),
        ];
        for sandbox in sandboxes {
            let before = fork.project();
            let line = format!(
                "cat src/a; cd '{above}/project' 2>/dev/null && {{ cat hard node_modules/secret; echo x > src/a; \
                 echo x > node_modules/dep/index.js; echo x > new; echo x > .git/HEAD; }} 2>/dev/null; \
                 mv '{above}/project' '{above}/moved' 2>/dev/null; cat '{above}/moved/hard' 2>/dev/null; :"
            );
            let out = printed(&sh(&sandbox, &line));
            if out != "changed\n" || !fork.path("project").exists() || fork.project() != before {
                harmful.push(format!("{options}: {out}"));
                break;
            }
            // The fork is shown at the path of the project.
            std::fs::write(fork.path("fork/src/a"), "changed\n").expect("written");
        }
    }
    assert!(harmful.is_empty(), "{harmful:#?}");
}

#[test]
fn changes_stay_in_the_fork_and_the_next_command_sees_them() {
    let fork = Fork::new();
    let (sandbox, before) = (fork.sandbox(|it| it), fork.project());
    let line = "cd node_modules && echo new > dep/new && echo more >> dep/index.js && rm dep/sub/deep.js && rm -r dep/sub \
                && mv dep/other.js dep/renamed.js && mkdir made && : > made/file && chmod 600 dep/renamed.js \
                && ln dep/index.js made/hard && rm in && ln -s made in";
    assert_eq!(printed(&sh(&sandbox, line)), "");
    let seen = printed(&sh(
        &sandbox,
        "cd node_modules && cat dep/new dep/index.js && ls dep made in/ && stat -c %a dep/renamed.js",
    ));
    assert_eq!(
        seen,
        "new\nmodule\nmore\ndep:\nindex.js\nnew\nrenamed.js\n\nin/:\nfile\nhard\n\nmade:\nfile\nhard\n600\n"
    );
    assert_eq!(fork.project(), before);
    assert_eq!(std::fs::read_dir(fork.path("fork/node_modules")).expect("listed").count(), 0);
    // File operations see the same files.
    let read =
        |path: &str| block_on(sandbox.read(path, WHOLE)).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert_eq!(read("node_modules/dep/index.js").expect("read"), "module\nmore\n");
    assert_eq!(read("node_modules/secret").expect("read"), "secret\n");
    assert!(read("node_modules/dep/other.js").is_err() && read("node_modules/dep/sub/deep.js").is_err());
    let listed = block_on(sandbox.list("node_modules/dep")).expect("listed");
    let names: Vec<_> = listed.into_iter().map(|entry| entry.name).collect();
    assert_eq!(names, ["index.js", "new", "renamed.js"]);
    assert_eq!(block_on(sandbox.stat("node_modules/dep/sub")).expect("looked at"), None);
    assert!(block_on(sandbox.stat("node_modules/dep")).expect("looked at").is_some());
}

#[test]
fn a_file_that_a_tool_writes_in_a_shared_directory_is_there_for_commands() {
    let fork = Fork::new();
    let (sandbox, before) = (fork.sandbox(|it| it), fork.project());
    for path in ["node_modules/dep/index.js", "node_modules/new/file"] {
        block_on(sandbox.write(path, b"written\n")).expect("written");
    }
    assert_eq!(printed(&sh(&sandbox, "cat node_modules/dep/index.js node_modules/new/file")), "written\nwritten\n");
    assert_eq!(printed(&sh(&sandbox, "cat node_modules/dep/other.js")), "other\n");
    assert_eq!(fork.project(), before);
}

#[test]
fn no_command_changes_the_project_through_what_is_shared() {
    let fork = Fork::new();
    let before = fork.project();
    for line in [
        "echo x > node_modules/dep/index.js",
        ": > node_modules/dep/other.js",
        "chmod 777 node_modules/dep node_modules/secret",
        "touch -d @1 node_modules/dep/index.js node_modules",
        "rm -rf node_modules/*",
        "mv node_modules/dep node_modules/other",
        "ln node_modules/dep/other.js node_modules/x && echo x > node_modules/x",
        "ln -s dep/index.js node_modules/l && echo x > node_modules/l",
        "echo x > node_modules/in",
        "echo x > /proc/self/cwd/node_modules/dep/index.js",
        "mount --bind node_modules /mnt; umount node_modules; echo x > node_modules/dep/index.js",
        "echo x > .git/HEAD",
        "echo x > .git/new",
        "rm -rf .git; mv .git other; ln -s x .git/y",
        "chmod 777 .git/HEAD; umount .git; echo x > .git/HEAD",
    ] {
        let sandbox = fork.sandbox(|it| it.writable_git());
        sh(&sandbox, line);
        assert_eq!(fork.project(), before, "{line}");
    }
}

#[test]
fn hidden_files_and_those_of_rath_are_hidden_in_shared_directories() {
    let fork = Fork::new();
    let sandbox = fork.sandbox(|it| it.hide("node_modules/secret"));
    let line = "cat node_modules/secret; ls -A node_modules/vendored/.rath; mv node_modules/secret x; cp node_modules/dep/index.js x && cat x";
    let seen = printed(&sh(&sandbox, line));
    assert!(!seen.contains("secret\n") && !seen.contains("note") && seen.contains("module"), "{seen}");
    let read = block_on(sandbox.read("node_modules/secret", WHOLE)).map_err(|error| error.kind());
    assert_eq!(read, Err(ErrorKind::OutsideWorkspace));
    let read = block_on(sandbox.read("node_modules/vendored/.rath/note", WHOLE)).map_err(|error| error.kind());
    assert_eq!(read, Err(ErrorKind::OutsideWorkspace));
    // A path in the project, given as a whole.
    let sandbox = fork.sandbox(|it| it.hide(fork.path("project/node_modules/secret")));
    assert!(!printed(&sh(&sandbox, "cat node_modules/secret")).contains("secret\n"));
}

#[test]
fn a_link_in_the_place_of_a_shared_directory_is_not_followed() {
    let fork = Fork::new();
    let outside = fork.path("outside");
    std::fs::create_dir(&outside).expect("a directory");
    std::fs::write(outside.join("key"), "private\n").expect("a file");
    let sandbox = fork.sandbox(|it| it);
    assert_eq!(printed(&sh(&sandbox, "cat node_modules/in")), "module\n");
    std::fs::rename(fork.path("project/node_modules"), fork.path("project/moved")).expect("renamed");
    std::os::unix::fs::symlink(&outside, fork.path("project/node_modules")).expect("a link");
    assert!(!printed(&sh(&sandbox, "cat node_modules/key")).contains("private"));
    assert!(block_on(sandbox.read("node_modules/key", WHOLE)).is_err());
    // The same for the folder with the changes, and for the place where the directory is shown.
    std::fs::remove_file(fork.path("project/node_modules")).expect("removed");
    std::fs::rename(fork.path("project/moved"), fork.path("project/node_modules")).expect("renamed");
    std::fs::rename(fork.path("changes/upper"), fork.path("changes/moved")).expect("renamed");
    std::os::unix::fs::symlink(&outside, fork.path("changes/upper")).expect("a link");
    sh(&fork.sandbox(|it| it), "echo x > node_modules/new; echo x > node_modules/key");
    assert_eq!(std::fs::read_to_string(outside.join("key")).expect("read"), "private\n");
    assert!(!outside.join("new").exists());
}

#[test]
fn without_an_overlay_a_shared_directory_is_read_only() {
    let fork = Fork::new();
    // No overlay can be mounted without a directory for the kernel to work in.
    std::fs::remove_dir(fork.path("changes/work")).expect("removed");
    let (sandbox, before) = (fork.sandbox(|it| it), fork.project());
    assert_eq!(printed(&sh(&sandbox, "cat node_modules/dep/index.js")), "module\n");
    assert_ne!(sh(&sandbox, "echo x > node_modules/dep/index.js").status, ExitStatus::Exit(0));
    assert_eq!(fork.project(), before);
    assert_eq!(sandbox.read_only_dirs(), [PathBuf::from("node_modules")]);
}

#[test]
fn commands_that_change_a_shared_directory_run_one_after_the_other() {
    let fork = Fork::new();
    let sandboxes = [fork.sandbox(|it| it), fork.sandbox(|it| it)];
    std::fs::write(fork.path("changes/upper/count"), "0\n").expect("written");
    let line = Command::shell("read n < node_modules/count; sleep 0.3; echo $((n + 1)) > node_modules/count");
    let [one, two] = &sandboxes;
    let both = block_on(async { tokio::join!(one.run(&line), two.run(&line), one.run(&line)) });
    assert!([both.0, both.1, both.2].iter().all(Result::is_ok));
    assert_eq!(printed(&sh(one, "cat node_modules/count")), "3\n");
    assert!(one.read_only_dirs().is_empty());
}

#[test]
fn nothing_is_left_mounted_and_the_folder_with_the_changes_can_be_used_again() {
    let fork = Fork::new();
    for nth in 0..3 {
        let sandbox = fork.sandbox(|it| it);
        assert_eq!(
            printed(&sh(&sandbox, &format!("echo {nth} >> node_modules/log; wc -l < node_modules/log"))).trim(),
            (nth + 1).to_string()
        );
    }
    let mounts = std::fs::read_to_string("/proc/self/mounts").expect("mounts");
    assert!(!mounts.contains(&*fork.path("").to_string_lossy()), "{mounts}");
}

#[test]
fn the_folder_of_changes_can_be_copied_and_removed_by_its_owner() {
    let fork = Fork::new();
    let sandbox = fork.sandbox(|it| it);
    for line in ["echo new > node_modules/new", "rm -r node_modules/dep", "true"] {
        assert_eq!(sh(&sandbox, line).status, ExitStatus::Exit(0));
        let mut below = vec![fork.path("changes")];
        while let Some(path) = below.pop() {
            let metadata = path.symlink_metadata().expect("metadata");
            // The mark of a removed file is a device.
            let needed = if metadata.is_dir() {
                0o700
            } else if metadata.is_file() {
                0o600
            } else {
                0
            };
            assert_eq!(metadata.mode() & needed, needed, "{} after `{line}`", path.display());
            if metadata.is_dir() {
                below.extend(std::fs::read_dir(path).expect("listed").map(|entry| entry.expect("an entry").path()));
            }
        }
    }
    assert_eq!(
        printed(&sh(&sandbox, "cat node_modules/new; ls node_modules")),
        "new\nin\nnew\nout\nsecret\nvendored\n"
    );
}
