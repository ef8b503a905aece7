//! Text that others wrote cannot control a terminal, whichever command prints it and wherever it stands.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;

use rath::Usage;
use rath::chunk::{
    Assistant, Call, Change, Checked, Effect, Failed, Identity, Instructions, Interrupted, Outcome, Placed, Retry,
    ToolResult, ToolSpec, ToolStarted, Verdict,
};
use rath::prelude::*;
use rath::record::draw::is_visible;

/// The clipboard, the title, a cleared screen, a forged line, text that runs backwards, and text without width.
const HOSTILE: &str =
    "a\u{1b}]52;c;ZXZpbA==\u{7}\u{1b}]0;t\u{1b}\\\u{9b}2J\r\n\nhint: x\u{202e}b\u{200b}c\u{feff}\u{e0041}\u{7f}d";

/// Fails if a terminal would not show all of the bytes.
#[track_caller]
fn check_visible(bytes: &[u8], whose: &str) {
    let text = std::str::from_utf8(bytes).unwrap_or_else(|error| panic!("{whose}: {error}"));
    let mut previous = None;
    for (at, c) in text.char_indices() {
        let is_shown = matches!(c, '\n' | '\t') || is_visible(c, previous);
        let before = || text[..at].chars().rev().take(100).collect::<Vec<_>>().into_iter().rev().collect::<String>();
        assert!(is_shown, "{whose} prints {c:?} after {:?}", before());
        previous = Some(c);
    }
}

fn run(folder: &Path, args: &[&str]) -> Vec<u8> {
    let output = super::rath(folder, args);
    check_visible(&output.stdout, &format!("stdout of {args:?}"));
    check_visible(&output.stderr, &format!("stderr of {args:?}"));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!stderr.lines().any(|line| line.starts_with("hint: x")), "{args:?} prints a forged hint:\n{stderr}");
    output.stdout
}

/// Creates a session with hostile text in every place that takes text.
fn hostile_session() -> Session {
    let tool = ToolSpec::new(HOSTILE, HOSTILE, serde_json::json!({"type": "object", "description": HOSTILE}));
    let identity = Identity { provider: HOSTILE.to_owned(), model: HOSTILE.to_owned() };
    let mut session = Session::user(HOSTILE).by(HOSTILE).fork_named(HOSTILE);
    session.push(Placed::new(format!("local:{HOSTILE}")));
    session.push(Instructions::new(HOSTILE).with_tools(vec![tool]).with_provider(identity.clone()));
    let calls = vec![Call::new(HOSTILE, HOSTILE, serde_json::json!({"command": HOSTILE}).to_string())];
    let answer = Assistant::new(HOSTILE).with_reasoning(HOSTILE).with_calls(calls).with_provider(identity);
    session.push_with_usage(answer, Usage::new(1, 1));
    session.push(ToolStarted::new(HOSTILE).with_key(Some(HOSTILE.to_owned())));
    let effects = vec![Effect::new(HOSTILE, Change::Renamed { from: HOSTILE.to_owned() })];
    session.push(ToolResult::new(HOSTILE, Outcome::Failed, HOSTILE).with_effects(effects));
    session.push(Retry::new(1, 2, HOSTILE));
    session.push(Failed::new(HOSTILE, HOSTILE));
    session.push(Interrupted::new(HOSTILE));
    let mut checked = Checked::new(HOSTILE, Verdict::Failed);
    checked.output = HOSTILE.into();
    session.push(checked);
    session.push(Chunk::note(HOSTILE));
    session.push(Chunk::calls([Call::new(HOSTILE, HOSTILE, HOSTILE)]));
    session
}

#[test]
fn no_command_passes_control_characters_of_a_session_on() {
    let folder = rath_test_support::temp_dir();
    let session = hostile_session();
    session.save_blocking(folder.path().join("s.rath")).expect("saved");
    let run = |args: &[&str]| run(folder.path(), args);
    let id = String::from_utf8(run(&["import", "s.rath"])).expect("an id").trim().to_owned();
    assert!(!id.is_empty(), "the session is imported");
    for target in ["s.rath", &*id] {
        for command in
            ["log", "cost", "verify", "review", "render", "replay", "diff", "check", "blame", "bisect", "export"]
        {
            let rest: &[&str] = match command {
                "blame" => &[target, HOSTILE],
                "bisect" => &[target, "--", "true"],
                "export" => &[target, "--json"],
                _ => &[target],
            };
            run(&[&[command], rest].concat());
            run(&[&[command, "--json"], rest].concat());
        }
        for step in session.as_record().steps() {
            run(&["show", target, &step.id().to_string()]);
            run(&["show", target, &step.id().to_string(), "--json"]);
        }
    }
    run(&["ls"]);
    run(&["ls", "--json"]);
    run(&["fork", &id]);
    run(&["resume", &id, "go", "--model", "script:missing.jsonl"]);
    run(&["checkout", &id, HOSTILE]);
    run(&["restore", &id]);
    run(&["merge", &id, &id]);
    run(&["salvage", "s.rath", "copy.rath"]);
    // Wrong use repeats the words of the command line, on as many lines as the user wrote.
    let word = &*HOSTILE.replace('\n', "");
    run(&["log", "-v", word]);
    run(&[word]);
    run(&["log", "-v", "--store", word, "x"]);
    run(&["run", "x", "--model", word]);
    run(&["run", "x", "--sandbox", word, "--model", "script:missing.jsonl"]);
}

#[test]
fn the_message_of_a_server_cannot_reach_the_clipboard_or_forge_a_hint() {
    let folder = rath_test_support::temp_dir();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let mut request = Vec::new();
        let mut piece = [0; 4096];
        while !request.windows(4).any(|window| window == b"\r\n\r\n") {
            let length = stream.read(&mut piece).expect("a request");
            request.extend_from_slice(&piece[..length]);
        }
        let body = serde_json::json!({"error": {"message": HOSTILE}}).to_string();
        let head = format!("HTTP/1.1 400 Bad Request\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
        stream.write_all(format!("{head}{body}").as_bytes()).expect("an answer");
    });
    let output = rath_test_support::program(env!("CARGO_BIN_EXE_rath"))
        .args(["run", "hi", "--model", "openai:m", "--sandbox", "local:."])
        .env("OPENAI_BASE_URL", format!("http://{address}/v1"))
        .env("OPENAI_API_KEY", "sk-test")
        .current_dir(folder.path())
        .output()
        .expect("rath runs");
    server.join().expect("it answers");
    check_visible(&output.stderr, "stderr");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains(r"\u{1b}]52;c;"), "the message is shown: {stderr}");
    assert!(stderr.contains("\n  hint: x") && !stderr.contains("\nhint: x"), "{stderr}");
}

/// A note is written by programs, by the model and by files of others.
#[test]
fn a_note_cannot_control_the_terminal() {
    let folder = rath_test_support::temp_dir();
    let uri = format!("local:{}", folder.path().join(".rath/memory").display());
    let source = rath::memory::Source::new(HOSTILE, vec![HOSTILE.to_owned()]);
    let note = rath::memory::Note::new(format!("\u{1b}[31m{HOSTILE}")).said_by(HOSTILE).thread(HOSTILE).source(source);
    let memory = super::block_on(Memory::open(&uri)).expect("a memory");
    let id = super::block_on(memory.remember(note)).expect("written");
    let id = id.as_str();
    for args in [&["ls"][..], &["recall", "hint"], &["read", id], &["forget", "--query", "hint"], &["forget", id]] {
        let text = run(folder.path(), &[&["memory"], args].concat());
        assert!(!text.is_empty() && !text.contains(&0x1b), "{args:?}");
        run(folder.path(), &[&["memory"], args, &["--json"]].concat());
    }
    let line = serde_json::json!({"text": "a", "id": HOSTILE}).to_string();
    std::fs::write(folder.path().join("notes.jsonl"), line).expect("written");
    run(folder.path(), &["memory", "import", "notes.jsonl"]);
    run(folder.path(), &["memory", "read", HOSTILE.split('\n').next().expect("a line")]);
}
