//! Entries in `.rath` that came with a directory from elsewhere.
//!
//! Without the guard a program writes to them by their path, or the entry is an ordinary file of the user.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::place::{CANARY, EVIL, Place, printed, shell};
use super::{Attack, Guard, HoldsIn, Observation, Plane, Trial, Users};

pub(super) fn attacks() -> Vec<Attack> {
    let links = LINKS.iter().map(|(name, link, target)| {
        Attack::new(name, Plane::Planted, HoldsIn::Both, move |trial| try_link(trial, link, target))
    });
    let pipes = PIPES
        .iter()
        .map(|(name, pipe)| Attack::new(name, Plane::Planted, HoldsIn::None, move |trial| try_pipe(trial, pipe)));
    let others = [
        Attack::new("a store that another user owns", Plane::Planted, HoldsIn::Both, try_owner)
            .by(Users::RootOnly("only root can give a directory away")),
        Attack::new("a database where tools write", Plane::Planted, HoldsIn::Both, |trial| {
            try_store(trial, "sqlite:s.db", "s.db")
        }),
        Attack::new("a store of lines where tools write", Plane::Planted, HoldsIn::Both, |trial| {
            try_store(trial, "jsonl:sessions", "sessions")
        }),
        Attack::new("a version that is a link", Plane::Planted, HoldsIn::None, try_object),
    ];
    links.chain(pipes).chain(others).collect()
}

/// The path in `.rath`, and its target beside the project. What ends with `/` is a directory.
const LINKS: &[(&str, &str, &str)] = &[
    ("a link for all of .rath", "", "victim/"),
    ("a link for the database", "rath.db", "victim/file"),
    ("a dangling link for the database", "rath.db", "victim/new"),
    ("a link for the log of the database", "rath.db-wal", "victim/file"),
    ("a link for the index of the log", "rath.db-shm", "victim/new"),
    ("a link for the journal of the database", "rath.db-journal", "victim/file"),
    ("a link for the file beside the database", "rath.db-steps.new", "victim/new"),
    ("a link for the ignored files", ".gitignore", "victim/file"),
    ("a link for the store of lines", "sessions", "victim/"),
    ("a link for a session of lines", "sessions/01a1e4b8-c88a-75db-b768-3630c01321da.jsonl", "victim/file"),
    ("a link for a new session of lines", "sessions/01a1e4b8-c88a-75db-b768-3630c01321da.0.tmp", "victim/file"),
    ("a link for the directories of branches", "work", "victim/"),
    ("a link for the versions", "workspace", "victim/"),
    ("a link for the owner of the versions", "workspace/tenant", "victim/file"),
    ("a dangling link for the owner of the versions", "workspace/tenant", "victim/new"),
    ("a link for the identity of the versions", "workspace/identity", "victim/file"),
    ("a link for the settings of the versions", "workspace/config", "victim/new"),
    ("a link for the head of the versions", "workspace/HEAD", "victim/new"),
    ("a link for the objects", "workspace/objects", "victim/objects/"),
    ("a link for the packs", "workspace/objects/pack", "victim/objects/pack/"),
    ("a link for the notes about objects", "workspace/objects/info", "victim/objects/"),
    ("a link for one directory of objects", "workspace/objects/00", "victim/objects/"),
    ("a link for the index of files", "workspace/index", "victim/"),
    ("a link for one index of files", "workspace/index/root", "victim/file"),
    ("a link for what is put back", "put-back", "victim/"),
    ("a link for the layer that a fork writes", "work/01a1e4b8-c88a-75db-b768-3630c01321da.layers/upper", "victim/"),
    (
        "a link for the layer that the system works in",
        "work/01a1e4b8-c88a-75db-b768-3630c01321da.layers/work",
        "victim/",
    ),
    ("a link inside that layer", "work/01a1e4b8-c88a-75db-b768-3630c01321da.layers/work/work", "victim/"),
    ("a link for the folder of what a fork shares", "work/01a1e4b8-c88a-75db-b768-3630c01321da.shared", "victim/"),
    (
        "a link for the list of what a fork shares",
        "work/01a1e4b8-c88a-75db-b768-3630c01321da.shared/directories",
        "victim/new",
    ),
    (
        "a link for the changes to what a fork shares",
        "work/01a1e4b8-c88a-75db-b768-3630c01321da.shared/node_modules/upper",
        "victim/",
    ),
    (
        "a link for what the system works in there",
        "work/01a1e4b8-c88a-75db-b768-3630c01321da.shared/node_modules/work",
        "victim/",
    ),
    ("a link for the lock of a fork", "work/01a1e4b8-c88a-75db-b768-3630c01321da.layers/lock", "victim/new"),
    (
        "a link for the files of a base version",
        "workspace/versions/1111111111111111111111111111111111111111/files",
        "victim/",
    ),
    (
        "a link for one directory of files that were moved aside",
        "put-back/01a1e4b8-c88a-75db-b768-3630c01321da",
        "victim/",
    ),
];

/// Creates a directory of the user's beside the project that nothing may change.
fn place_with_victim() -> Place {
    let place = Place::new();
    std::fs::create_dir_all(place.path("victim/objects/pack")).expect("made");
    place.write("victim/file", "precious\n");
    place.write("victim/tmp_old", "precious\n");
    place
}

fn plant(place: &Place, name: &str) -> PathBuf {
    let path = if name.is_empty() { place.path("work/.rath") } else { place.path("work/.rath").join(name) };
    std::fs::create_dir_all(path.parent().expect("a directory")).expect("made");
    path
}

/// A command that changes a file, and leaves one that is put back.
const LINE: &str = "echo two > file; echo two > .envrc";

fn try_link(trial: Trial, link: &str, target: &str) -> Observation {
    let place = place_with_victim();
    let path = plant(&place, link);
    symlink(place.path(target.trim_end_matches('/')), &path).expect("a link");
    let before = place.survey("victim");
    let mut text = String::new();
    match trial.guard {
        Guard::On => {
            for store in ["sqlite:.rath/rath.db", "jsonl:.rath/sessions", "memory:"] {
                let options = ["--store", store, "--mode", if store == "memory:" { "workspace" } else { "full" }];
                text += &String::from_utf8_lossy(&place.agent(trial.sandbox, &[shell(LINE)], &options).stderr);
            }
            text += &printed(&place.rath(&["verify"]));
            text += &printed(&place.rath(&["gc"]));
        }
        Guard::Off => {
            let file = if target.ends_with('/') { path.join("file") } else { path };
            text += &format!("{:?}", std::fs::write(file, EVIL));
        }
    }
    Observation::new(place.survey("victim") != before, text)
}

/// Files whose readers wait, if they are pipes.
const PIPES: &[(&str, &str)] = &[
    ("a pipe for the database", "rath.db"),
    ("a pipe for the owner of the versions", "workspace/tenant"),
    ("a pipe for the identity of the versions", "workspace/identity"),
    ("a pipe for an index of files", "workspace/index/root"),
    ("a pipe for the lock of a fork", "work/01a1e4b8-c88a-75db-b768-3630c01321da.layers/lock"),
];

fn try_pipe(trial: Trial, name: &str) -> Observation {
    let place = place_with_victim();
    let path = plant(&place, name);
    place.pipe(&format!("work/.rath/{name}"));
    match trial.guard {
        Guard::On => {
            let [model, script] = place.script(&[]);
            let mut command = place.command(&["run", "Go.", &model, &script, "--sandbox", trial.sandbox.uri()]);
            let mut child = command.stderr(std::process::Stdio::null()).stdout(std::process::Stdio::null()).spawn();
            let child = child.as_mut().expect("rath runs");
            let ended = wait(rath_test_support::LIMIT / 4, || child.try_wait().expect("a status").is_some());
            let _ = child.kill();
            let _ = child.wait();
            Observation::new(!ended, "rath waits for a writer")
        }
        Guard::Off => {
            let reader = path.clone();
            let thread = std::thread::spawn(move || std::fs::read(reader).is_ok());
            let ended = wait(Duration::from_millis(200), || thread.is_finished());
            while !thread.is_finished() {
                drop(std::fs::OpenOptions::new().read(true).write(true).open(&path));
            }
            thread.join().expect("it has ended");
            Observation::new(!ended, "std::fs waits for a writer")
        }
    }
}

/// Waits for a condition, and returns false if it does not hold in time.
fn wait(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let start = std::time::Instant::now();
    while start.elapsed() < limit {
        if condition() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    false
}

fn try_owner(trial: Trial) -> Observation {
    let place = Place::new();
    let own = plant(&place, "x").parent().expect("a directory").to_owned();
    std::fs::set_permissions(&own, std::os::unix::fs::PermissionsExt::from_mode(0o777)).expect("open to all");
    if trial.guard == Guard::On {
        std::os::unix::fs::chown(&own, Some(12_345), None).expect("given away");
    }
    let output = place.agent(trial.sandbox, &[shell("true")], &[]);
    Observation::new(std::fs::read_dir(&own).expect("a directory").count() > 0, printed(&output))
}

/// Names a store in the directory of the tools. Without the guard the tools work below it.
fn try_store(trial: Trial, store: &str, name: &str) -> Observation {
    let place = Place::new();
    let below = format!("{}below", trial.sandbox.uri().trim_end_matches('.'));
    let sandbox = if trial.guard == Guard::On { trial.sandbox.uri() } else { &below };
    let [model, script] = place.script(&[]);
    let output = place.rath(&["run", "Go.", &model, &script, "--sandbox", sandbox, "--store", store]);
    Observation::new(place.path("work").join(name).exists(), printed(&output))
}

/// A file with the canary stands behind links in the place of all objects. Without the guard the objects are files.
fn try_object(trial: Trial) -> Observation {
    let place = place_with_victim();
    place.write("work/file", CANARY);
    let run = place.agent(trial.sandbox, &[shell("echo more > other")], &["--mode", "full"]);
    let session = place.session();
    if trial.guard == Guard::On {
        move_behind_links(&place.path("work/.rath/workspace/objects"), &place.path("victim"));
    }
    let output = place.rath(&["checkout", &session, &place.text("copy")]);
    Observation::new(place.read("copy/file").contains(CANARY), printed(&run) + &printed(&output))
}

fn move_behind_links(objects: &Path, victim: &Path) {
    for part in std::fs::read_dir(objects).expect("objects").flatten() {
        for object in std::fs::read_dir(part.path()).into_iter().flatten().flatten() {
            let moved = victim.join(object.file_name());
            std::fs::rename(object.path(), &moved).expect("moved");
            symlink(&moved, object.path()).expect("a link");
        }
    }
}
