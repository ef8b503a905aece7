//! Secrets that a model, a tool or a server repeats. They reach neither the record nor the terminal.
//!
//! Without the guard the value is not known to rath: no variable of the environment holds it.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use serde_json::{Value, json};

use super::place::{Place, printed, shell, tool};
use super::{Attack, Guard, HoldsIn, Observation, Plane, SandboxKind, Trial};

/// A key without a pattern that is known for keys.
const KEY: &str = "the-key-of-the-house-4711";
const KEY_IN_BASE64: &str = "dGhlLWtleS1vZi10aGUtaG91c2UtNDcxMQ==";

pub(super) fn attacks() -> Vec<Attack> {
    let turns = TURNS.iter().map(|(name, form, turn)| {
        Attack::new(name, Plane::Secrets, HoldsIn::Both, move |trial| try_turn(trial, form, &turn()))
    });
    let row = |name, holds_in, attempt: fn(Trial) -> Observation| Attack::new(name, Plane::Secrets, holds_in, attempt);
    let others = [
        row("a key in the id of a call", HoldsIn::None, try_call_id),
        row("a key in the message of a server", HoldsIn::None, try_server),
        row("a key in the prompt", HoldsIn::None, try_prompt),
        row("a key in a version of a file", HoldsIn::Both, try_version),
        row("a key in a file that was there before", HoldsIn::Both, try_version_before),
        row("a key in the environment of a command", HoldsIn::Both, try_environment),
        row("a text that looks like a key", HoldsIn::None, try_pattern),
    ];
    turns.chain(others).collect()
}

/// Puts the key together from two parts, so that no whole key is in the line.
const PARTS: &str = "k=the-key-of; k=$k-the-house-4711";

type TurnRow = (&'static str, &'static str, fn() -> Value);

/// Answers of a model: the form of the key that must not be found, and the turn.
const TURNS: &[TurnRow] = &[
    ("a key in an answer", KEY, || json!({"text": format!("It is {KEY}.")})),
    ("a key in the reasoning", KEY, || json!({"text": "Well.", "reasoning": format!("It is {KEY}.")})),
    ("a key that arrives letter by letter", KEY, || json!({"text": format!("It is {KEY}."), "chunks": 40})),
    ("a key in the name of a tool", KEY, || json!({"calls": [tool(KEY, json!({}))]})),
    ("a key in an argument", KEY, || json!({"calls": [shell(&format!("true {KEY}"))]})),
    ("a key in the output of a command", KEY, || json!({"calls": [shell(&format!("{PARTS}; echo $k"))]})),
    ("a key in the messages of a command", KEY, || json!({"calls": [shell(&format!("{PARTS}; echo $k >&2; false"))]})),
    ("a key in the name of a file", KEY, || json!({"calls": [shell(&format!("{PARTS}; touch \"$k\""))]})),
    (
        "a key in the name of a directory",
        KEY,
        || json!({"calls": [shell(&format!("{PARTS}; mkdir \"$k\"; touch \"$k/a\""))]}),
    ),
    ("a key in Base64", KEY_IN_BASE64, || json!({"calls": [shell(&format!("{PARTS}; printf %s $k | base64"))]})),
    ("a key with its slashes and dashes encoded", KEY, || json!({"text": format!("see http://x/?q={KEY}&r=1")})),
    (
        "a key in a file that a tool writes",
        KEY,
        || json!({"calls": [tool("write_file", json!({"path": "a", "text": format!("key={KEY}")}))]}),
    ),
];

/// Lets rath know the key, if the guard is on.
fn with_key(trial: Trial, command: &mut std::process::Command) -> &mut std::process::Command {
    match trial.guard {
        Guard::On => command.env("HOUSE_API_KEY", KEY),
        Guard::Off => command,
    }
}

/// Looks for a text in what was printed, and in every file of the store. The versions of files are looked at by a checkout.
fn find(place: &Place, printed: &str, text: &str) -> Observation {
    let stored: Vec<_> = place
        .survey("work/.rath/s")
        .into_iter()
        .filter(|(path, content)| content.contains(text) || path.to_string_lossy().contains(text))
        .collect();
    Observation::new(printed.contains(text) || !stored.is_empty(), format!("{printed}{stored:?}"))
}

fn run(trial: Trial, place: &Place, turns: &[Value]) -> String {
    let [model, script] = place.script(turns);
    let run =
        ["run", "Go.", &model, &script, "--sandbox", trial.sandbox.uri(), "--mode", "full", "--store", "jsonl:.rath/s"];
    let json = [&run[..], &["--json"]].concat();
    let first = with_key(trial, &mut place.command(&run)).output().expect("rath runs");
    let second = with_key(trial, &mut place.command(&json)).output().expect("rath runs");
    printed(&first) + &printed(&second)
}

fn try_turn(trial: Trial, form: &str, turn: &Value) -> Observation {
    let place = Place::new();
    let text = run(trial, &place, std::slice::from_ref(turn));
    find(&place, &text, form)
}

fn try_prompt(trial: Trial) -> Observation {
    let place = Place::new();
    let [model, script] = place.script(&[]);
    let prompt = format!("Use {KEY}.");
    let run = ["run", &prompt, &model, &script, "--sandbox", trial.sandbox.uri(), "--store", "jsonl:.rath/s", "--json"];
    let text = printed(&with_key(trial, &mut place.command(&run)).output().expect("rath runs"));
    find(&place, &text, KEY)
}

/// Answers all requests with a status and a body, and runs rath with this server.
fn with_server(trial: Trial, status: &str, body: &Value) -> Observation {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let reply = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.to_string().len()
    );
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let (mut request, mut piece) = (Vec::new(), [0; 4096]);
            while !request.windows(4).any(|window| window == b"\r\n\r\n") {
                let Ok(length @ 1..) = stream.read(&mut piece) else { break };
                request.extend_from_slice(&piece[..length]);
            }
            let _ = stream.write_all(reply.as_bytes());
        }
    });
    let place = Place::new();
    let run = [
        "run",
        "hi",
        "--model",
        "openai:m",
        "--sandbox",
        SandboxKind::Local.uri(),
        "--store",
        "jsonl:.rath/s",
        "--turns",
        "1",
    ];
    let mut command = place.command(&run);
    command.env("OPENAI_BASE_URL", format!("http://{address}/v1")).env("OPENAI_API_KEY", "sk-test");
    let text = printed(&with_key(trial, &mut command).output().expect("rath runs"));
    find(&place, &text, KEY)
}

fn try_call_id(trial: Trial) -> Observation {
    let call = json!({"id": KEY, "type": "function", "function": {"name": "none", "arguments": "{}"}});
    let message = json!({"role": "assistant", "tool_calls": [call]});
    let body =
        json!({"id": "1", "model": "m", "choices": [{"index": 0, "finish_reason": "tool_calls", "message": message}]});
    with_server(trial, "200 OK", &body)
}

fn try_server(trial: Trial) -> Observation {
    with_server(trial, "400 Bad Request", &json!({"error": {"message": format!("{KEY} is not allowed")}}))
}

/// Checks the last version of the files out, and looks for the key.
fn find_in_versions(place: &Place, text: &str) -> Observation {
    let list = place.rath(&["ls", "--json", "--store", "jsonl:.rath/s"]);
    let list = String::from_utf8_lossy(&list.stdout).into_owned();
    let listed: Value = serde_json::from_str(list.lines().next().expect("a session")).expect("JSON");
    let id = listed["session"].as_str().expect("an id");
    let output = place.rath(&["checkout", id, &place.text("copy"), "--store", "jsonl:.rath/s"]);
    assert!(place.path("copy/file").exists(), "{}", printed(&output));
    let found = place
        .survey("copy")
        .into_iter()
        .any(|(path, content)| content.contains(KEY) || path.to_string_lossy().contains(KEY));
    Observation::new(found || text.contains(KEY), text)
}

fn try_version(trial: Trial) -> Observation {
    let place = Place::new();
    let text = run(trial, &place, &[json!({"calls": [shell(&format!("{PARTS}; echo \"key=$k\" > config"))]})]);
    assert!(place.read("work/config").contains(KEY), "the file itself has it: {text}");
    find_in_versions(&place, &text)
}

fn try_version_before(trial: Trial) -> Observation {
    let place = Place::new();
    place.write("work/config", KEY);
    let text = run(trial, &place, &[json!({"calls": [shell("echo more > other")]})]);
    find_in_versions(&place, &text)
}

/// Only variables of a list reach a command. Without the guard the variable has a name of that list.
fn try_environment(trial: Trial) -> Observation {
    let place = Place::new();
    let [model, script] =
        place.script(&[json!({"calls": [shell("env > dump; cat /proc/self/environ >> dump; export -p >> dump")]})]);
    let run = ["run", "Go.", &model, &script, "--sandbox", trial.sandbox.uri(), "--mode", "full"];
    let name = if trial.guard == Guard::On { "HOUSE_API_KEY" } else { "LC_HOUSE" };
    let output = place.command(&run).env(name, KEY).output().expect("rath runs");
    assert!(place.read("work/dump").contains("PATH="), "{}", printed(&output));
    Observation::new(place.read("work/dump").contains(KEY), printed(&output))
}

/// A value that rath was not told about. Without the guard it does not look like a key either.
fn try_pattern(trial: Trial) -> Observation {
    let place = Place::new();
    // In two parts: no key is in this file.
    let value =
        if trial.guard == Guard::On { ["AKIAIOSF", "ODNN7EXAMPLE"] } else { ["akiaiosf", "odnn7example"] }.concat();
    let text = run(Trial { guard: Guard::Off, ..trial }, &place, &[json!({"text": format!("It is {value}.")})]);
    find(&place, &text, &value)
}
