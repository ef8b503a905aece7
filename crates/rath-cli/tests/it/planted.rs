//! A directory `.rath` that came from elsewhere: rath follows no link in it, and writes nothing outside.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use super::{printed, rath};

const SCRIPT: &str = r#"{"calls": [{"name": "shell", "arguments": {"command": "echo two > a.txt"}}]}
{"text": "Done."}
"#;

/// Creates a project, and beside it a directory of the user's that nothing may change.
fn project() -> rath_test_support::TempDir {
    let folder = rath_test_support::temp_dir();
    for directory in ["project", "victim", "victim/objects", "victim/objects/pack"] {
        std::fs::create_dir(folder.path().join(directory)).expect("made");
    }
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("written");
    write("victim/file", "precious\n");
    write("victim/tmp_old", "precious\n");
    write("project/a.txt", "one\n");
    write("project/script.jsonl", SCRIPT);
    folder
}

fn contents(folder: &Path) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            all.push((path.clone(), Vec::new()));
            all.extend(contents(&path));
        } else {
            all.push((path.clone(), std::fs::read(&path).expect("a file")));
        }
    }
    all.sort();
    all
}

/// Commands that open the store or the versions of the project.
const COMMANDS: [&[&str]; 6] = [
    &["run", "go", "--model", "script:script.jsonl", "--sandbox", "local:."],
    &["run", "go", "--model", "script:script.jsonl", "--sandbox", "local:.", "--store", "jsonl:.rath/sessions"],
    &["run", "go", "--model", "script:script.jsonl", "--sandbox", "local:.", "--store", "memory:"],
    &["ls"],
    &["verify"],
    &["gc"],
];

#[test]
fn no_planted_link_is_followed() {
    // The links, each by its path in `.rath` and its target beside the project.
    let planted = [
        ("", "victim"),
        ("rath.db", "victim/file"),
        ("rath.db", "victim/new"),
        ("rath.db-wal", "victim/file"),
        ("rath.db-shm", "victim/new"),
        ("rath.db-journal", "victim/file"),
        (".gitignore", "victim/file"),
        ("sessions", "victim"),
        ("sessions/01a1e4b8-c88a-75db-b768-3630c01321da.jsonl", "victim/file"),
        ("sessions/01a1e4b8-c88a-75db-b768-3630c01321da.0.tmp", "victim/file"),
        ("work", "victim"),
        ("workspace", "victim"),
        ("workspace/tenant", "victim/file"),
        ("workspace/tenant", "victim/new"),
        ("workspace/updates", "victim"),
        ("workspace/updates/root", "victim/file"),
        ("workspace/updates/root", "victim/new"),
        ("workspace/work.lock", "victim/new"),
        ("workspace/identity", "victim/file"),
        ("workspace/config", "victim/new"),
        ("workspace/HEAD", "victim/new"),
        ("workspace/objects", "victim/objects"),
        ("workspace/objects/pack", "victim/objects/pack"),
        ("workspace/objects/info", "victim/objects"),
        ("workspace/objects/00", "victim/objects"),
        ("workspace/index", "victim"),
        ("workspace/index/root", "victim/file"),
        ("workspace/versions", "victim"),
        ("work/01a1e4b8-c88a-75db-b768-3630c01321da.layers/upper", "victim"),
        ("work/01a1e4b8-c88a-75db-b768-3630c01321da.layers/work", "victim"),
        ("work/01a1e4b8-c88a-75db-b768-3630c01321da.layers/work/work", "victim"),
        ("work/01a1e4b8-c88a-75db-b768-3630c01321da.layers/lock", "victim/new"),
        ("work/01a1e4b8-c88a-75db-b768-3630c01321da.shared", "victim"),
        ("work/01a1e4b8-c88a-75db-b768-3630c01321da.shared/directories", "victim/new"),
        ("work/01a1e4b8-c88a-75db-b768-3630c01321da.shared/node_modules", "victim"),
        ("work/01a1e4b8-c88a-75db-b768-3630c01321da.shared/node_modules/upper", "victim"),
        ("work/01a1e4b8-c88a-75db-b768-3630c01321da.shared/node_modules/work", "victim"),
        ("work/01a1e4b8-c88a-75db-b768-3630c01321da.shared/node_modules/work/work", "victim"),
        ("workspace/versions/1111111111111111111111111111111111111111/files", "victim"),
        ("put-back/01a1e4b8-c88a-75db-b768-3630c01321da", "victim"),
    ];
    for (link, target) in planted {
        let folder = project();
        let (project, victim) = (folder.path().join("project"), folder.path().join("victim"));
        let path = if link.is_empty() { project.join(".rath") } else { project.join(".rath").join(link) };
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        symlink(folder.path().join(target), &path).expect("a link");
        let before = contents(&victim);
        for command in COMMANDS {
            let output = rath(&project, command);
            let error = String::from_utf8_lossy(&output.stderr);
            assert!(contents(&victim) == before, "{link} -> {target}: {command:?} wrote outside: {error}");
            if command[0] == "run" {
                assert!(!output.status.success(), "{link} -> {target}: {command:?}");
                assert!(error.contains("is a link"), "{link} -> {target}: {command:?}: {error}");
            }
        }
    }
}

#[test]
fn a_planted_pipe_does_not_make_rath_wait() {
    for name in [
        "rath.db",
        "workspace/tenant",
        "workspace/identity",
        "workspace/updates/root",
        "workspace/work.lock",
        "workspace/index/root",
        "work/x.layers/lock",
        "put-back/x",
    ] {
        let folder = project();
        let path = folder.path().join("project/.rath").join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        let made = rath_test_support::program("mkfifo").arg(&path).status().expect("mkfifo runs");
        assert!(made.success());
        let output = rath(&folder.path().join("project"), COMMANDS[0]);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(error.contains("neither a file nor a directory"), "{name}: {error}");
    }
}

/// A memory may have any name in `.rath`.
#[test]
fn a_planted_memory_is_neither_followed_nor_waited_for() {
    let memory = ["--memory", "local:.rath/notes"];
    let commands: [&[&str]; 3] = [&["memory", "remember", "a"], &["memory", "ls"], COMMANDS[0]];
    let kinds = [("victim/file", "is a link"), ("victim/new", "is a link"), ("pipe", "neither a file nor a directory")];
    for name in ["notes.db", "notes.db-wal", "notes.db-shm", "notes.db-journal"] {
        for (target, message) in kinds {
            let folder = project();
            let (project, victim) = (folder.path().join("project"), folder.path().join("victim"));
            let path = project.join(".rath/notes").join(name);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            // An empty file is a new memory.
            std::fs::write(path.with_file_name("notes.db"), "").expect("written");
            let _ = std::fs::remove_file(&path);
            match target {
                "pipe" => assert!(rath_test_support::program("mkfifo").arg(&path).status().expect("it runs").success()),
                target => symlink(folder.path().join(target), &path).expect("a link"),
            }
            let before = contents(&victim);
            for command in commands {
                let output = rath(&project, &[command, &memory].concat());
                let error = String::from_utf8_lossy(&output.stderr);
                assert!(contents(&victim) == before, "{name} -> {target}: {command:?} wrote outside: {error}");
                let is_refused = !output.status.success() && error.contains(message);
                // A link that leads nowhere is no memory to read.
                assert!(
                    is_refused || error.contains("there is no memory here"),
                    "{name} -> {target}: {command:?}: {error}"
                );
            }
        }
    }
}

#[test]
fn a_planted_object_is_neither_followed_nor_waited_for() {
    for plant in ["link", "pipe"] {
        let folder = project();
        let project = folder.path().join("project");
        assert!(rath(&project, COMMANDS[0]).status.success());
        let list = printed(&project, &["ls"]);
        let id = list.split(' ').next().expect("an id");
        let objects = project.join(".rath/workspace/objects");
        let parts = std::fs::read_dir(&objects).expect("objects").map(|part| part.expect("a part").path());
        for part in parts.filter(|part| part.file_name().is_some_and(|name| name.len() == 2)) {
            for object in std::fs::read_dir(part).expect("a part").map(|object| object.expect("an object").path()) {
                let moved = folder.path().join("victim").join(object.file_name().expect("a name"));
                std::fs::rename(&object, &moved).expect("moved");
                match plant {
                    "link" => symlink(&moved, &object).expect("a link"),
                    _ => assert!(
                        rath_test_support::program("mkfifo").arg(&object).status().expect("mkfifo runs").success()
                    ),
                }
            }
        }
        let output = rath(&project, &["checkout", id, "../out"]);
        assert!(!output.status.success(), "{plant}: {output:?}");
    }
}

#[test]
fn a_directory_of_another_user_is_not_used() {
    let folder = project();
    let own = folder.path().join("project/.rath");
    std::fs::create_dir(&own).expect("made");
    std::fs::set_permissions(&own, std::fs::Permissions::from_mode(0o777)).expect("open to all");
    // Only root can give a directory away.
    if let Err(error) = std::os::unix::fs::chown(&own, Some(12_345), None) {
        eprintln!("skipped: {error}");
        return;
    }
    let output = rath(&folder.path().join("project"), COMMANDS[0]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("another user owns"), "{error}");
    assert_eq!(std::fs::read_dir(&own).expect("a folder").count(), 0);
}

#[test]
fn a_store_is_not_put_where_tools_write() {
    let folder = project();
    let project = folder.path().join("project");
    for store in ["sqlite:s.db", "jsonl:sessions"] {
        let run = ["run", "go", "--model", "script:script.jsonl", "--sandbox", "local:.", "--store", store];
        let output = rath(&project, &run);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(error.contains("tools could write the store"), "{store}: {error}");
        assert!(!project.join("s.db").exists() && !project.join("sessions").exists(), "nothing is made");
        assert_eq!(std::fs::read_to_string(project.join("a.txt")).expect("a file"), "one\n");
    }
    assert!(printed(&project, COMMANDS[0]).contains("Done."));
    let hinted =
        ["run", "go", "--model", "script:script.jsonl", "--sandbox", "local:.", "--store", "sqlite:.rath/s.db"];
    assert!(printed(&project, &hinted).contains("Done."));
}

/// A collection keeps a list beside its store. As a link it would lead to any file of the user's.
#[test]
fn a_link_for_the_list_of_a_collection_is_not_followed() {
    for store in ["sqlite:../s.db", "jsonl:../sessions"] {
        let folder = project();
        let (project, victim) = (folder.path().join("project"), folder.path().join("victim"));
        let run = ["run", "go", "--model", "script:script.jsonl", "--sandbox", "local:.", "--store", store];
        assert!(rath(&project, &run).status.success());
        let list = folder.path().join(if store.starts_with("sqlite") { "s.db.gc" } else { "sessions.gc" });
        let _ = std::fs::remove_file(&list);
        symlink(victim.join("file"), &list).expect("a link");
        let before = contents(&victim);
        let output = rath(&project, &["gc", "--store", store]);
        assert!(contents(&victim) == before, "{output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("is a link"), "{output:?}");
    }
}

/// A list of directories that came with a store leads no collection into a directory that the store never worked in.
#[test]
fn a_planted_list_leads_no_collection_into_another_project() {
    let folder = project();
    let project = folder.path().join("project");
    let other = folder.path().join("other");
    std::fs::create_dir(&other).expect("made");
    std::fs::write(other.join("script.jsonl"), SCRIPT).expect("written");
    for directory in [&project, &other] {
        assert!(rath(directory, COMMANDS[0]).status.success());
    }
    // A fork that no session names.
    std::fs::create_dir_all(other.join(".rath/work/01a1e4b8-c88a-75db-b768-3630c01321da")).expect("made");
    std::fs::write(other.join(".rath/work/01a1e4b8-c88a-75db-b768-3630c01321da/mine.txt"), "mine").expect("written");
    let before = contents(&other);
    let line = format!("{}\n", serde_json::json!({"added": other}));
    std::fs::write(project.join(".rath/rath.db.gc"), line).expect("written");
    assert!(rath(&project, &["gc", "--force"]).status.success());
    assert!(contents(&other) == before);
}

/// The name of a fork's layers without the name of the fork would be the directory of all forks.
#[test]
fn layers_without_a_fork_do_not_take_the_other_forks_along() {
    for name in [".layers", "..layers", "...layers"] {
        let folder = project();
        let project = folder.path().join("project");
        assert!(rath(&project, COMMANDS[0]).status.success());
        let list = printed(&project, &["ls"]);
        let fork = printed(&project, &["fork", list.split(' ').next().expect("an id")]);
        let resume = ["resume", fork.trim(), "go", "--model", "script:script.jsonl", "--anyway"];
        let resumed = rath(&project, &resume);
        assert!(resumed.status.success(), "{resumed:?}");
        let forks = || contents(&project.join(".rath/work")).into_iter().filter(|(path, _)| !path.ends_with(name));
        let before: Vec<_> = forks().collect();
        assert!(!before.is_empty());
        std::fs::create_dir(project.join(".rath/work").join(name)).expect("made");
        rath(&project, &["gc", "--force"]);
        assert_eq!(forks().collect::<Vec<_>>(), before, "{name}");
    }
}
