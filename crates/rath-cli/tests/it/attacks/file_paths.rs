//! Paths that lead a file tool out of its directory, or into `.rath` and `.git`.
//!
//! With the guard, each path is given to every tool that takes one. Without it, to `std::fs`, joined to the directory.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use rath::chunk::Call;
use rath::prelude::*;
use rath::tool::builtin;
use serde_json::json;

use super::place::{CANARY, EVIL, Place};
use super::{Attack, Guard, HoldsIn, Observation, Plane, SandboxKind, Trial};

pub(super) fn attacks() -> Vec<Attack> {
    let paths = PATHS.iter().map(|(name, path, prepare)| {
        Attack::new(name, Plane::FileTools, HoldsIn::Both, move |trial| try_path(trial, path, *prepare))
    });
    let pipes = PIPES.iter().map(|(name, path, prepare)| {
        Attack::new(name, Plane::FileTools, HoldsIn::Both, move |trial| try_pipe(trial, path, *prepare))
    });
    paths.chain(pipes).collect()
}

type Prepare = fn(&Place);
type PathRow = (&'static str, &'static str, Prepare);

const NONE: Prepare = |_| {};

/// Paths, and what is prepared in the project. `{fd}` is the number of an open file outside.
const PATHS: &[PathRow] = &[
    ("up and out", "../outside/secret", NONE),
    ("up and out from below", "below/../../outside/secret", NONE),
    ("up and out after a dot", "./../outside/secret", NONE),
    ("up and out with doubled slashes", ".//..//outside//secret", NONE),
    ("up and out, and a new file", "../outside/new", NONE),
    ("out and in again by the name of the project", "../work/../outside/secret", NONE),
    ("up and out after many turns", "{round}../outside/secret", NONE),
    ("a directory beside that begins with the same name", "../workx/secret", |place| {
        place.write("workx/secret", CANARY);
    }),
    ("an absolute path", "{out}/secret", NONE),
    ("an absolute path to a new file", "{out}/new", NONE),
    ("an absolute path with doubled slashes", "//{out}//secret", NONE),
    ("an absolute path from inside and up", "{in}/../outside/secret", NONE),
    ("an absolute path that begins with that of the project", "{in}x/secret", |place| {
        place.write("workx/secret", CANARY);
    }),
    ("the root directory of the process", "/proc/self/root{out}/secret", NONE),
    ("the root directory of the thread", "/proc/thread-self/root{out}/secret", NONE),
    ("an open file of the process", "/proc/self/fd/{fd}", NONE),
    ("an open file by its device", "/dev/fd/{fd}", NONE),
    ("a link to a file outside", "l", |place| place.link("l", "../outside/secret")),
    ("a link to an absolute path", "l", |place| place.link("l", "{out}/secret")),
    ("a link with doubled slashes and dots", "l", |place| place.link("l", ".//..//./outside//secret")),
    ("a link to a directory outside", "l/secret", |place| place.link("l", "../outside")),
    ("a link to a directory with a slash at its end", "l/secret", |place| place.link("l", "{out}/")),
    ("a link to the parent directory", "l/outside/secret", |place| place.link("l", "..")),
    ("a link to the root directory", "l{out}/secret", |place| place.link("l", "/")),
    ("up from a link to a directory outside", "l/../secret", |place| place.link("l", "../outside/sub")),
    ("a link below a directory", "below/l/secret", |place| place.link("below/l", "../../outside")),
    ("a link with three dots for its name", ".../secret", |place| place.link("...", "../outside")),
    ("a link to a link to a link", "one", |place| {
        place.link("one", "two");
        place.link("two", "below/three");
        place.link("below/three", "../../outside/secret");
    }),
    ("links that each go one directory up", "one/secret", |place| {
        place.link("one", "below/two");
        place.link("below/two", "../../outside");
    }),
    ("a chain of thirty links", "0", |place| {
        (0..30).for_each(|nth| place.link(&nth.to_string(), &(nth + 1).to_string()));
        place.link("30", "../outside/secret");
    }),
    ("a link to a file that is not there", "l", |place| place.link("l", "../outside/new")),
    ("a link to a directory with a new file", "l/new", |place| place.link("l", "{out}")),
    ("a link by the root directory of the process", "l/secret", |place| place.link("l", "/proc/self/root{out}")),
    ("a link to an open file", "l", |place| place.link("l", "/proc/self/fd/{fd}")),
    ("a link out and in again", "l/../outside/secret", |place| place.link("l", "../work")),
    ("another name of a file outside", "hard", |place| {
        fs::hard_link(place.path("outside/file"), place.path("work/hard")).expect("another name");
    }),
    ("another name of a file outside by a link", "l", |place| {
        fs::hard_link(place.path("outside/file"), place.path("work/hard")).expect("another name");
        place.link("l", "hard");
    }),
    ("the store", ".rath/secret", NONE),
    ("a new file in the store", ".rath/new", NONE),
    ("the store with dots and slashes", "./below/..//.rath//secret", NONE),
    ("the store by its absolute path", "{in}/.rath/secret", NONE),
    ("the store in capitals, which some file systems do not tell apart", ".RATH/secret", |place| {
        place.write("work/.RATH/secret", CANARY);
    }),
    ("the store of a project below", "below/.rath/secret", |place| place.write("work/below/.rath/secret", CANARY)),
    ("a link to the store", "l/secret", |place| place.link("l", ".rath")),
    ("a link to a file of the store", "below/l", |place| place.link("below/l", "../.rath/secret")),
    ("a link to the store of a project below", "l", |place| {
        place.write("work/below/.rath/secret", CANARY);
        place.link("l", "below/.rath/secret");
    }),
    ("a new hook", ".git/hooks/pre-commit", NONE),
    ("the settings of the repository", ".git/config", NONE),
    ("the settings of the repository in capitals", ".GIT/config", |place| place.write("work/.GIT/config", "[core]")),
    ("the settings of a repository below", "below/.git/config", |place| {
        place.write("work/below/.git/config", "[core]");
    }),
    ("a hook by a link to the repository", "l/hooks/post-merge", |place| place.link("l", ".git")),
    ("a hook by the absolute path", "{in}/.git/hooks/pre-push", NONE),
    ("a file that says where another repository is", "below/.git", |place| {
        place.write("work/below/.git", "gitdir: ../.git");
    }),
];

/// Returns the project of a row. The secrets are where every row looks for them.
fn place_for(prepare: Prepare) -> Place {
    let place = Place::new();
    place.write("work/.rath/secret", CANARY);
    place.write("work/.git/config", "[core]\n");
    fs::create_dir_all(place.path("work/.git/hooks")).expect("made");
    prepare(&place);
    place
}

/// Returns everything that no file tool may change.
fn protected(place: &Place) -> Vec<std::collections::BTreeMap<std::path::PathBuf, String>> {
    // A session keeps its versions in `.rath`.
    let own = [".rath/secret", ".rath/new", ".RATH", ".git", ".GIT", "below/.rath", "below/.git"];
    let own = own.iter().map(|name| place.survey(&format!("work/{name}")));
    own.chain(["outside", "workx"].iter().map(|name| place.survey(name))).collect()
}

fn try_path(trial: Trial, path: &str, prepare: Prepare) -> Observation {
    let place = place_for(prepare);
    let open = fs::File::open(place.path("outside/secret")).expect("a file");
    let fd = std::os::fd::AsRawFd::as_raw_fd(&open).to_string();
    let path = place.fill(path).replace("{fd}", &fd).replace("{round}", &"below/../".repeat(300));
    if let Ok(target) = fs::read_link(place.path("work/l")).map(|target| target.display().to_string())
        && target.contains("{fd}")
    {
        fs::remove_file(place.path("work/l")).expect("removed");
        symlink(target.replace("{fd}", &fd), place.path("work/l")).expect("a link");
    }
    let before = protected(&place);
    let text = match trial.guard {
        Guard::On => use_tools(&place, trial.sandbox, &path).concat(),
        Guard::Off => {
            let path = place.path("work").join(&path);
            let read = fs::read_to_string(&path);
            format!("{read:?} {:?}", fs::write(&path, EVIL))
        }
    };
    Observation::new(text.contains(CANARY) || protected(&place) != before, text)
}

/// Gives a path to every tool that takes one.
pub(super) fn use_tools(place: &Place, sandbox: SandboxKind, path: &str) -> Vec<String> {
    let sandbox = match sandbox {
        SandboxKind::Local => Sandbox::local(place.path("work")),
        SandboxKind::Isolated => Sandbox::isolated(place.path("work")),
    };
    let cx = ToolCx::new(Session::user("go").to(sandbox), Call::new("c", "tool", "{}"));
    super::super::block_on(async {
        let all = json!({"path": path, "depth": 9, "pattern": "C.NARY", "text": EVIL});
        let pick = |names: &[&str]| names.iter().map(|name| (*name, all[*name].clone())).collect::<serde_json::Value>();
        let harmless = json!({"path": path, "old": "harmless", "new": EVIL, "all": true});
        let kept = json!({"path": path, "old": "kept", "new": EVIL, "all": true});
        let core = json!({"path": path, "old": "[core]", "new": EVIL, "all": true});
        let results = [
            builtin::ReadFile.call(&cx, pick(&["path"])).await,
            builtin::ListFiles.call(&cx, pick(&["path", "depth"])).await,
            builtin::SearchFiles.call(&cx, pick(&["path", "pattern"])).await,
            builtin::SearchFiles.call(&cx, pick(&["pattern"])).await,
            builtin::EditFile.call(&cx, harmless).await,
            builtin::EditFile.call(&cx, kept).await,
            builtin::EditFile.call(&cx, core).await,
            builtin::WriteFile.call(&cx, pick(&["path", "text"])).await,
        ];
        let texts = results.map(|result| result.map_or_else(|error| format!("{error:?}\n"), |output| output.text));
        texts.into()
    })
}

/// Files that are never read to their end: a program that opens them waits.
const PIPES: &[PathRow] = &[
    ("a pipe without a writer", "pipe", |place| place.pipe("work/pipe")),
    ("a link to a pipe", "l", |place| {
        place.pipe("work/below/pipe");
        place.link("l", "below/pipe");
    }),
    ("a link to a device without an end", "l", |place| place.link("l", "/dev/zero")),
    ("a pipe of another project", "l", |place| {
        place.pipe("outside/pipe");
        place.link("l", "../outside/pipe");
    }),
];

/// The harm is that a reader is still reading after a while, or has read more than any text.
fn try_pipe(trial: Trial, path: &str, prepare: Prepare) -> Observation {
    const MAX_WAIT: Duration = Duration::from_millis(if cfg!(debug_assertions) { 2_000 } else { 1_000 });
    const MAX_BYTES: u64 = 1 << 20;
    let place = std::sync::Arc::new(place_for(prepare));
    let (sender, receiver) = std::sync::mpsc::channel();
    let (reader, path) = (place.clone(), path.to_owned());
    let thread = std::thread::spawn(move || {
        let text = match trial.guard {
            Guard::On => use_tools(&reader, trial.sandbox, &path).concat(),
            Guard::Off => {
                let mut bytes = Vec::new();
                let file = fs::File::open(reader.path("work").join(&path)).expect("it is opened");
                let read = file.take(MAX_BYTES).read_to_end(&mut bytes);
                if read.is_ok_and(|read| read as u64 == MAX_BYTES) { "endless".to_owned() } else { String::new() }
            }
        };
        let _ = sender.send(text);
    });
    let wait = if trial.guard == Guard::On { rath_test_support::LIMIT } else { MAX_WAIT / 8 };
    let text = receiver.recv_timeout(wait);
    // A writer that comes and goes ends the wait.
    for pipe in ["work/pipe", "work/below/pipe", "outside/pipe"].map(|name| place.path(name)) {
        release(&pipe, &thread);
    }
    thread.join().expect("it has ended");
    Observation::new(text.as_ref().map_or(true, |text| text == "endless"), text)
}

fn release(pipe: &Path, reader: &std::thread::JoinHandle<()>) {
    while pipe.exists() && !reader.is_finished() {
        drop(fs::OpenOptions::new().read(true).write(true).open(pipe));
        std::thread::sleep(Duration::from_millis(1));
    }
}
