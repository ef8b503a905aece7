//! Sizes and shapes that others choose so that a program takes for ever, or all of the machine.
//!
//! Without the guard the same shape is below the bound and is accepted, the limit is not set, or the algorithm is a naive one.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rath::chunk::Strategy;
use rath::prelude::*;
use rath::record::{Parent, Parents, Step};
use rath::sandbox::{Command, Isolated, Local};
use rath::workspace::{ObjectId, Objects, Revision, TreeId};
use serde_json::{Value, json};

use super::super::block_on;
use super::place::{Place, printed, tool};
use super::{Attack, Guard, HoldsIn, Observation, Plane, SandboxKind, Trial};

pub(super) fn attacks() -> Vec<Attack> {
    let row = |name, holds_in, attempt: fn(Trial) -> Observation| Attack::new(name, Plane::Limits, holds_in, attempt);
    vec![
        row("a hundred thousand calls in one answer", HoldsIn::None, try_calls),
        row("a .gitignore of 700 bytes that takes exponential time", HoldsIn::Both, try_gitignore),
        row("a pattern with many stars", HoldsIn::None, try_rule_pattern),
        row("trees that stand for 2^40 files", HoldsIn::None, |trial| try_tree(trial, 40)),
        row("a file traced line by line that is too large for it", HoldsIn::None, try_blame),
        row("eight thousand branches in an import", HoldsIn::None, try_branches),
        row("merges that double the session", HoldsIn::None, try_concat),
        row("a file too large to edit", HoldsIn::Both, try_edit),
        row("a configuration of many megabytes", HoldsIn::None, try_large_configuration),
        row("a project with thousands of rules", HoldsIn::None, try_many_rules),
        row("output without an end", HoldsIn::Both, |trial| {
            try_limit(trial, "head -c 8M /dev/zero", |local| local.output(1 << 20), |isolated| isolated.output(1 << 20))
        }),
        row("a file without an end", HoldsIn::Both, |trial| {
            let line = "head -c 8M /dev/zero > large; stat -c %s large";
            try_limit(trial, line, |local| local.file_size(1 << 20), |isolated| isolated.file_size(1 << 20))
        }),
        row("processor time without an end", HoldsIn::Both, |trial| {
            const SECOND: Duration = Duration::from_secs(1);
            let line = "perl -e '1 while (times)[0] < 1.5; print \"x\" x 8_000_000'";
            try_limit(trial, line, |local| local.cpu_time(SECOND), |isolated| isolated.cpu_time(SECOND))
        }),
        row("a command that never ends", HoldsIn::Both, try_time),
    ]
}

/// Serves one answer with many calls. The bound is a thousand.
fn try_calls(trial: Trial) -> Observation {
    let count = if trial.guard == Guard::On { 100_000 } else { 900 };
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let call =
        |nth: usize| format!(r#"{{"id":"c{nth}","type":"function","function":{{"name":"none","arguments":"{{}}"}}}}"#);
    let calls = (0..count).map(call).collect::<Vec<_>>().join(",");
    let body = format!(
        r#"{{"id":"1","model":"m","choices":[{{"index":0,"finish_reason":"tool_calls","message":{{"role":"assistant","tool_calls":[{calls}]}}}}]}}"#
    );
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let (mut request, mut piece) = (Vec::new(), [0; 4096]);
            while !request.windows(4).any(|window| window == b"\r\n\r\n") {
                let Ok(length @ 1..) = stream.read(&mut piece) else { break };
                request.extend_from_slice(&piece[..length]);
            }
            let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n";
            let _ = stream.write_all(format!("{head}content-length: {}\r\n\r\n{body}", body.len()).as_bytes());
        }
    });
    let place = Place::new();
    let run = ["run", "hi", "--model", "openai:m", "--sandbox", trial.sandbox.uri(), "--turns", "1", "--json"];
    let mut command = place.command(&run);
    command.env("OPENAI_BASE_URL", format!("http://{address}/v1")).env("OPENAI_API_KEY", "sk-test");
    let output = command.output().expect("rath runs");
    let steps = String::from_utf8_lossy(&output.stdout).into_owned();
    let results = steps.lines().filter(|line| line.contains("\"kind\":\"tool_result\"")).count();
    Observation::new(results > 0, String::from_utf8_lossy(&output.stderr))
}

/// The rule, and the name of a file that almost fits.
fn hostile_rule() -> (String, String) {
    ("**/a*".repeat(140), "a/".repeat(100) + "b")
}

/// The time that rath has for a directory with such a rule, and the steps that a naive matcher has.
const MAX_TIME: Duration = Duration::from_secs(30);
const MAX_STEPS: u64 = 2_000_000;

fn try_gitignore(trial: Trial) -> Observation {
    let (rule, name) = hostile_rule();
    if trial.guard == Guard::Off {
        let mut steps = 0;
        matches_naively(rule.as_bytes(), name.as_bytes(), &mut steps);
        return Observation::new(steps > MAX_STEPS, steps);
    }
    let place = Place::new();
    place.write("work/.gitignore", &format!("{rule}\n"));
    place.write(&format!("work/{name}"), "x");
    let [model, script] = place.script(&[json!({"calls": [tool("list_files", json!({"depth": 64}))]})]);
    let run = ["run", "Go.", &model, &script, "--sandbox", trial.sandbox.uri()];
    let mut child = place.command(&run).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("rath runs");
    let start = Instant::now();
    while child.try_wait().expect("a status").is_none() && start.elapsed() < MAX_TIME {
        std::thread::sleep(Duration::from_millis(5));
    }
    let is_over = child.try_wait().expect("a status").is_some();
    let _ = child.kill();
    let _ = child.wait();
    Observation::new(!is_over, start.elapsed())
}

/// Tries one way after the other, as a simple matcher does. Stops after [`MAX_STEPS`].
fn matches_naively(pattern: &[u8], name: &[u8], steps: &mut u64) -> bool {
    *steps += 1;
    if *steps > MAX_STEPS {
        return false;
    }
    match pattern.first() {
        None => name.is_empty(),
        Some(b'*') => (0..=name.len()).any(|skipped| matches_naively(&pattern[1..], &name[skipped..], steps)),
        Some(letter) => name.first() == Some(letter) && matches_naively(&pattern[1..], &name[1..], steps),
    }
}

/// A rule of the user's project with many stars, and a command that almost fits.
fn try_rule_pattern(trial: Trial) -> Observation {
    let (pattern, line) = ("a*".repeat(200) + "b", "a".repeat(400));
    if trial.guard == Guard::Off {
        let mut steps = 0;
        matches_naively(pattern.as_bytes(), line.as_bytes(), &mut steps);
        return Observation::new(steps > MAX_STEPS, steps);
    }
    let place = Place::new();
    place.write("work/rath.toml", &format!("[permissions]\ndeny = [\"command {pattern}\"]\n"));
    let start = Instant::now();
    let output = place.agent(trial.sandbox, &[super::place::shell(&line)], &["--mode", "full"]);
    Observation::new(start.elapsed() > MAX_TIME, printed(&output))
}

/// Stores an object, and returns its id.
fn object(objects: &Objects, kind: &str, bytes: &[u8]) -> Vec<u8> {
    let mut git = rath_test_support::git();
    git.arg("--git-dir").arg(objects.folder()).args(["hash-object", "-w", "--literally", "--stdin", "-t", kind]);
    let mut child = git.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("git starts");
    child.stdin.take().expect("its input").write_all(bytes).expect("written");
    let hex = String::from_utf8(child.wait_with_output().expect("it ends").stdout).expect("text");
    (0..40).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex")).collect()
}

fn entry(mode: &str, name: &str, id: &[u8]) -> Vec<u8> {
    [mode.as_bytes(), b" ", name.as_bytes(), b"\0", id].concat()
}

/// Writes trees of which each has the one before it under some names. Returns the last one.
fn nested(objects: &Objects, levels: usize, names: &[&str]) -> TreeId {
    let blob = object(objects, "blob", b"x");
    let mut id = object(objects, "tree", &entry("100644", "f", &blob));
    for _ in 0..levels {
        let entries: Vec<u8> = names.iter().flat_map(|name| entry("40000", name, &id)).collect();
        id = object(objects, "tree", &entries);
    }
    TreeId(ObjectId(id.try_into().expect("20 bytes")))
}

fn try_tree(trial: Trial, levels: usize) -> Observation {
    let folder = rath_test_support::temp_dir();
    let objects = Objects::open(&folder.path().join("objects")).expect("objects");
    let tree = nested(&objects, if trial.guard == Guard::On { levels } else { 8 }, &["a", "b"]);
    let files = objects.files(tree).map(|files| files.len());
    let checkout = objects.checkout(tree, &folder.path().join("copy")).map(|_| ());
    Observation::new(files.is_ok() || checkout.is_ok(), (files, checkout))
}

/// The bound is 32 MiB. The file is a stored object, as it may come with a session of others.
fn try_blame(trial: Trial) -> Observation {
    let folder = rath_test_support::temp_dir();
    let objects = Objects::open(&folder.path().join("objects")).expect("objects");
    let size = if trial.guard == Guard::On { 33 << 20 } else { 33 << 10 };
    let mut content = b"first\n".to_vec();
    content.resize(size, 0);
    let blob = object(&objects, "blob", &content);
    let tree = object(&objects, "tree", &entry("100644", "large", &blob));
    let tree = TreeId(ObjectId(tree.try_into().expect("20 bytes")));
    let lines = objects
        .blame(&[Revision { tree, parents: Vec::new() }], 0, "large")
        .map(|lines| lines.map(|lines| lines.len()));
    Observation::new(lines.is_ok(), lines)
}

/// The number of branches, and the time that their import has. One import for each would take longer.
const BRANCHES: u32 = 8_000;
const MAX_IMPORT_TIME: Duration = Duration::from_secs(60);

fn try_branches(trial: Trial) -> Observation {
    let place = Place::new();
    let session = Session::user("begin");
    let save = |count: u32, name: &str| {
        let heads = (0..count).map(|nth| {
            let mut fork = session.fork();
            fork.push(Chunk::user(format!("{name} {nth}")));
            fork.head().expect("a step").clone()
        });
        let lineage = rath::record::lineage::Lineage::new(heads);
        rath::salvage_blocking(&lineage, place.path("work").join(name)).expect("written");
    };
    let sample = 4;
    let (names, factor) = match trial.guard {
        Guard::On => {
            save(BRANCHES, "many.rath");
            (vec!["many.rath".to_owned()], 1)
        }
        Guard::Off => {
            let names: Vec<_> = (0..sample).map(|nth| format!("one-{nth}.rath")).collect();
            names.iter().for_each(|name| save(1, name));
            (names, BRANCHES / sample)
        }
    };
    let start = Instant::now();
    for name in names {
        let output = place.rath(&["import", &name]);
        assert!(output.status.success(), "{}", printed(&output));
    }
    let time = start.elapsed() * factor;
    Observation::new(time > MAX_IMPORT_TIME, time)
}

/// Each merge has all steps of both sides, and the bound is 2^24 steps. The merges are in a file that others made; one more is
/// asked for.
fn try_concat(trial: Trial) -> Observation {
    let place = Place::new();
    let doublings = if trial.guard == Guard::On { 60 } else { 4 };
    let mut head = Session::user("begin").head().expect("a step").clone();
    for _ in 0..doublings {
        let merged = Chunk::decode(r#"{"kind":"merged","strategy":"concat"}"#).expect("a chunk");
        let parents = Parents::Two([Parent::Loaded(head.clone()), Parent::Loaded(head.clone())]);
        head = Step::new(parents, merged, head.stamp().clone());
    }
    let lineage = rath::record::lineage::Lineage::new([head]);
    rath::salvage_blocking(&lineage, place.path("work/s.rath")).expect("written");
    let session = Session::open_blocking(place.path("work/s.rath")).expect("it can be read").session;
    let mut other = Session::user("other");
    other.push(Chunk::user("more"));
    let merged = block_on(other.merge_by(&session, Strategy::Concat)).map(|merged| merged.chunk_count());
    Observation::new(merged.is_ok(), merged)
}

/// The bound is 16 MiB.
fn try_edit(trial: Trial) -> Observation {
    let place = Place::new();
    let size: u64 = if trial.guard == Guard::On { 40 << 20 } else { 1 << 20 };
    place.write("work/large", "harmless\n");
    std::fs::File::options()
        .write(true)
        .open(place.path("work/large"))
        .and_then(|file| file.set_len(size))
        .expect("a size");
    let call = tool("edit_file", json!({"path": "large", "old": "harmless", "new": "changed!"}));
    let output = place.agent(trial.sandbox, &[call], &["--mode", "full", "--store", "memory:"]);
    let mut start = [0; 7];
    std::fs::File::open(place.path("work/large")).and_then(|mut file| file.read_exact(&mut start)).expect("a file");
    Observation::new(&start == b"changed", super::place::results(&output))
}

/// Returns true if rath runs with a configuration of the project.
fn is_accepted(trial: Trial, configuration: &str) -> Observation {
    let place = Place::new();
    place.write("work/rath.toml", configuration);
    let output = place.agent(trial.sandbox, &[], &[]);
    Observation::new(output.status.success(), String::from_utf8_lossy(&output.stderr))
}

fn try_large_configuration(trial: Trial) -> Observation {
    let lines = if trial.guard == Guard::On { 200_000 } else { 100 };
    is_accepted(trial, &format!("[permissions]\n{}", "# a comment that is long\n".repeat(lines)))
}

fn try_many_rules(trial: Trial) -> Observation {
    let count = if trial.guard == Guard::On { 5_000 } else { 900 };
    let rules: Vec<Value> = (0..count).map(|nth| json!(format!("command {nth}"))).collect();
    is_accepted(trial, &format!("[permissions]\ndeny = {}\n", json!(rules)))
}

/// Runs a line of shell with a limit, and without it if the guard is off. The harm is more than four megabytes.
fn try_limit(trial: Trial, line: &str, local: fn(Local) -> Local, isolated: fn(Isolated) -> Isolated) -> Observation {
    const MAX_BYTES: u64 = 4 << 20;
    let place = Place::new();
    let work = place.path("work");
    let sandbox: Sandbox = match (trial.sandbox, trial.guard) {
        (SandboxKind::Local, Guard::On) => local(Local::new(work)).into(),
        (SandboxKind::Local, Guard::Off) => Local::new(work).into(),
        (SandboxKind::Isolated, Guard::On) => isolated(Isolated::new(work)).into(),
        (SandboxKind::Isolated, Guard::Off) => Isolated::new(work).into(),
    };
    let output = block_on(sandbox.run(&Command::shell(line))).expect("it runs");
    let file = std::fs::metadata(place.path("work/large")).map_or(0, |about| about.len());
    let details = format!("{:?}, {} bytes, a file of {file}", output.status, output.stdout.total_bytes);
    Observation::new(output.stdout.total_bytes > MAX_BYTES || file > MAX_BYTES, details)
}

/// A command that would go on after its time. Without the guard it has enough of it.
fn try_time(trial: Trial) -> Observation {
    let place = Place::new();
    let sandbox = match trial.sandbox {
        SandboxKind::Local => Sandbox::local(place.path("work")),
        SandboxKind::Isolated => Sandbox::isolated(place.path("work")),
    };
    let mut command = Command::shell("sleep 0.6; echo late > late");
    command.timeout = if trial.guard == Guard::On { Duration::from_millis(100) } else { Duration::from_secs(60) };
    let output = block_on(sandbox.run(&command)).expect("it runs");
    if trial.guard == Guard::On {
        std::thread::sleep(Duration::from_millis(800));
    }
    Observation::new(place.path("work/late").exists(), output.status)
}
