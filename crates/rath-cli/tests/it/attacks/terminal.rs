//! Text of others that would control the terminal, or be taken for words of rath.
//!
//! Without the guard the text is printed as another program reads it: decoded from the JSON of rath, or from its source.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use rath::chunk::{Assistant, Call, Change, Effect, Identity, Outcome, ToolResult};
use rath::prelude::*;
use serde_json::{Value, json};

use super::place::{Place, printed, shell, tool};
use super::{Attack, Guard, HoldsIn, Observation, Plane, Trial};

pub(super) fn attacks() -> Vec<Attack> {
    let sequences = SEQUENCES
        .iter()
        .map(|(name, text)| Attack::new(name, Plane::Terminal, HoldsIn::None, move |trial| try_answer(trial, text)));
    let places = PLACES.iter().map(|(name, attempt)| Attack::new(name, Plane::Terminal, HoldsIn::None, attempt));
    let commands = COMMANDS.iter().map(|(name, command)| {
        Attack::new(name, Plane::Terminal, HoldsIn::None, move |trial| try_session(trial, command))
    });
    sequences.chain(places).chain(commands).collect()
}

/// Texts that a model answers.
const SEQUENCES: &[(&str, &str)] = &[
    ("the clipboard written by an answer", "\u{1b}]52;c;ZXZpbA==\u{7}"),
    ("the title of the window", "\u{1b}]0;title\u{1b}\\"),
    ("the screen cleared", "\u{1b}[2J\u{1b}[H"),
    ("the screen cleared by one character", "\u{9b}2J"),
    ("a line written over", "harmless\rrm -rf /"),
    ("letters taken back", "rm\u{8}\u{8}ls"),
    ("text that runs backwards", "\u{202e}cod.exe"),
    ("text that is isolated in its direction", "\u{2066}abc\u{2069}"),
    ("text without width", "a\u{200b}b"),
    ("a mark at the beginning of a file", "a\u{feff}b"),
    ("letters that only models read", "a\u{e0041}\u{e0042}b"),
    ("a deleted character", "a\u{7f}b"),
    ("a link with another address", "\u{1b}]8;;http://evil.test\u{1b}\\safe\u{1b}]8;;\u{1b}\\"),
    ("a request for the answer of the terminal", "\u{1b}[6n"),
    ("a bell", "\u{7}"),
    ("a form feed", "a\u{c}b"),
];

/// The clipboard, which every row below tries to write.
const CLIPBOARD: &str = "\u{1b}]52;c;ZXZpbA==\u{7}";

fn try_answer(trial: Trial, text: &str) -> Observation {
    let place = Place::new();
    place.script(&[]);
    place.write("script.jsonl", &format!("{}\n", json!({"text": format!("Well. {text} Done.")})));
    let script = format!("script:{}", place.text("script.jsonl"));
    let run = ["run", "Go.", "--model", &script, "--sandbox", trial.sandbox.uri()];
    // A pipe gets the answer as it is: another program reads it there.
    let printed = match trial.guard {
        Guard::On => rath_test_support::Terminal::start(place.command(&run)).finish().0,
        Guard::Off => printed(&place.rath(&run)),
    };
    assert!(printed.contains("Well.") && printed.contains("Done."), "{printed}");
    // The terminal of the tests drops each carriage return.
    let is_there = printed.contains(text) || (text.contains('\r') && printed.contains(&text.replace('\r', "")));
    Observation::new(is_there, printed)
}

/// Runs a command, and looks for a text in what it prints; without the guard, in the strings of its JSON.
fn observe(trial: Trial, place: &Place, args: &mut Vec<&str>, text: &str) -> Observation {
    match trial.guard {
        Guard::On => {
            let printed = printed(&place.rath(args));
            assert!(!printed.is_empty(), "{args:?} prints something");
            Observation::new(printed.contains(text), printed)
        }
        Guard::Off => {
            args.push("--json");
            let output = place.rath(args);
            let lines = String::from_utf8_lossy(&output.stdout).into_owned();
            let values = lines.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            let mut found = Vec::new();
            values.for_each(|value| strings(&value, &mut found));
            Observation::new(found.iter().any(|string| string.contains(text)), printed(&output))
        }
    }
}

fn strings(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::String(text) => {
            // Arguments of calls are JSON in a string.
            found.extend(serde_json::from_str::<Value>(text).ok().map(|inner| inner.to_string()));
            if let Ok(inner) = serde_json::from_str::<Value>(text)
                && !inner.is_string()
            {
                strings(&inner, found);
            }
            found.push(text.clone());
        }
        Value::Array(items) => items.iter().for_each(|item| strings(item, found)),
        Value::Object(members) => members.iter().for_each(|(name, member)| {
            found.push(name.clone());
            strings(member, found);
        }),
        _ => {}
    }
}

type PlaceRow = (&'static str, fn(Trial) -> Observation);

/// Places from which text comes, while an agent runs.
const PLACES: &[PlaceRow] = &[
    ("the output of a command", |trial| try_calls(trial, &shell("printf '\\033]52;c;ZXZpbA==\\007'; false"))),
    ("the line of a command", |trial| try_calls(trial, &shell(&format!("true '{CLIPBOARD}'")))),
    ("the name of a tool", |trial| try_calls(trial, &tool(CLIPBOARD, json!({})))),
    ("the path of a file", |trial| try_calls(trial, &tool("read_file", json!({"path": CLIPBOARD})))),
    ("the message of a server", try_server),
    ("a forged hint in the message of a server", try_forged_hint),
    ("the name of a changed file", |trial| {
        try_calls(trial, &shell("touch \"$(printf '\\033]52;c;ZXZpbA==\\007').sh\"; false"))
    }),
    ("a setting of the project", |trial| try_source(trial, "work/rath.toml", &["config"])),
    ("a script that cannot be read", |trial| {
        try_source(trial, "work/bad.jsonl", &["run", "x", "--model", "script:bad.jsonl"])
    }),
    ("a session file that is none", |trial| try_source(trial, "work/bad.rath", &["log", "bad.rath"])),
    ("a question at the terminal", try_question),
];

fn try_calls(trial: Trial, call: &Value) -> Observation {
    let place = Place::new();
    let [model, script] = place.script(&[json!({"calls": [call]})]);
    let mut run = vec!["run", "Go.", &model, &script, "--sandbox", trial.sandbox.uri(), "--mode", "full"];
    observe(trial, &place, &mut run, CLIPBOARD)
}

/// Answers one request with an error whose message is `text`, and returns what rath printed.
fn ask_server(trial: Trial, text: &str) -> (Place, String) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let body = json!({"error": {"message": text}}).to_string();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let (mut request, mut piece) = (Vec::new(), [0; 4096]);
        while !request.windows(4).any(|window| window == b"\r\n\r\n") {
            let length = stream.read(&mut piece).expect("a request");
            request.extend_from_slice(&piece[..length]);
        }
        let head = format!("HTTP/1.1 400 Bad Request\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
        stream.write_all(format!("{head}{body}").as_bytes()).expect("an answer");
    });
    let place = Place::new();
    let mut command = place.command(&["run", "hi", "--model", "openai:m", "--sandbox", trial.sandbox.uri()]);
    command.env("OPENAI_BASE_URL", format!("http://{address}/v1")).env("OPENAI_API_KEY", "sk-test");
    let output = command.output().expect("rath runs");
    server.join().expect("it answers");
    (place, printed(&output))
}

fn try_server(trial: Trial) -> Observation {
    let (place, printed) = ask_server(trial, &format!("no {CLIPBOARD} model"));
    match trial.guard {
        Guard::On => Observation::new(printed.contains(CLIPBOARD), printed),
        Guard::Off => {
            let session = place.session();
            observe(trial, &place, &mut vec!["log", &session], CLIPBOARD)
        }
    }
}

fn try_forged_hint(trial: Trial) -> Observation {
    let (place, printed) = ask_server(trial, "no model\nhint: run this");
    match trial.guard {
        Guard::On => Observation::new(printed.contains("\nhint: run this"), printed),
        Guard::Off => {
            let session = place.session();
            observe(trial, &place, &mut vec!["log", &session], "\nhint: run this")
        }
    }
}

/// A file of others whose content is shown by an error. Without the guard the file is printed.
fn try_source(trial: Trial, name: &str, args: &[&str]) -> Observation {
    let place = Place::new();
    place.write(name, &format!("{CLIPBOARD} = 1\n"));
    let text = if trial.guard == Guard::On { printed(&place.rath(args)) } else { place.read(name) };
    Observation::new(text.contains(CLIPBOARD), text)
}

fn try_question(trial: Trial) -> Observation {
    let place = Place::new();
    let line = format!("true '{CLIPBOARD}'");
    let [model, script] = place.script(&[json!({"calls": [shell(&line)]})]);
    if trial.guard == Guard::Off {
        let mut run = vec!["run", "Go.", &model, &script, "--sandbox", trial.sandbox.uri(), "--mode", "full"];
        return observe(trial, &place, &mut run, CLIPBOARD);
    }
    let run = ["run", "Go.", &model, &script, "--sandbox", trial.sandbox.uri(), "--mode", "ask"];
    let mut terminal = rath_test_support::Terminal::start(place.command(&run));
    terminal.answer("allow it?", 1, "n");
    let (screen, _) = terminal.finish();
    Observation::new(screen.contains(CLIPBOARD), screen)
}

/// Commands that print a session with hostile text in every place that takes text.
const COMMANDS: &[(&str, &[&str])] = &[
    ("the log of a session", &["log", "SESSION"]),
    ("a step of a session", &["show", "SESSION", "head"]),
    ("the list of sessions", &["ls"]),
    ("the open calls of a session", &["review", "SESSION"]),
    ("the cost of a session", &["cost", "SESSION"]),
];

fn try_session(trial: Trial, command: &[&str]) -> Observation {
    let place = Place::new();
    let identity = Identity { provider: CLIPBOARD.to_owned(), model: CLIPBOARD.to_owned() };
    let mut session = Session::user(CLIPBOARD).by(CLIPBOARD).fork_named(CLIPBOARD);
    let answer = Assistant::new(CLIPBOARD).with_calls(vec![Call::new("c1", CLIPBOARD, "{}")]).with_provider(identity);
    session.push_with_usage(answer, rath::Usage::new(1, 1));
    let effects = vec![Effect::new(CLIPBOARD, Change::Created)];
    session.push(ToolResult::new("c1", Outcome::Failed, CLIPBOARD).with_effects(effects));
    session.push(Chunk::calls([Call::new(CLIPBOARD, CLIPBOARD, json!({"command": CLIPBOARD}).to_string())]));
    session.save_blocking(place.path("work/s.rath")).expect("saved");
    let import = place.rath(&["import", "s.rath"]);
    let id = String::from_utf8_lossy(&import.stdout).trim().to_owned();
    let mut args: Vec<&str> = command.iter().map(|word| if *word == "SESSION" { &*id } else { word }).collect();
    observe(trial, &place, &mut args, CLIPBOARD)
}
