//! The endings of answers, and what a run makes of each: the record, the streams and the exit code. A row of
//! `endings/rows.txt` has the bytes that a server sends, and `endings/expected.txt` has what follows from them.

use std::collections::BTreeSet;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use expect_test::expect_file;
use rath::prelude::*;
use rath::record::draw;
use serde_json::Value;

use crate::fixture::without_call_times;
use crate::model_server::read_request;

/// An ending: the replies of a server, of which the last is repeated.
struct Row<'a> {
    name: &'a str,
    replies: Vec<Reply>,
}

struct Reply {
    status: u16,
    content_type: &'static str,
    body: String,
    /// True if the connection breaks before the end that was announced.
    breaks: bool,
}

fn rows(text: &str) -> Vec<Row<'_>> {
    let rows = text.split("\n# ").skip(1).map(|row| {
        let (name, replies) = row.split_once("\n> ").expect("a row has replies");
        Row { name, replies: replies.split("\n> ").map(Reply::parse).collect() }
    });
    rows.collect()
}

impl Reply {
    fn parse(text: &str) -> Self {
        let (kind, body) = text.split_once('\n').expect("a reply has a body");
        match kind.split_once(' ') {
            Some(("json", status)) => {
                let status = status.parse().expect("a status");
                Reply { status, content_type: "application/json", body: body.trim_end().to_owned(), breaks: false }
            }
            _ => {
                let body = body.trim_end().lines().map(|line| format!("data: {line}\n\n")).collect();
                Reply { status: 200, content_type: "text/event-stream", body, breaks: kind == "stream break" }
            }
        }
    }

    fn send(&self, stream: &mut TcpStream) -> std::io::Result<()> {
        let length = self.body.len() + if self.breaks { 1 } else { 0 };
        let head = format!("HTTP/1.1 {} Status\r\ncontent-type: {}\r\n", self.status, self.content_type);
        // Another attempt follows at once.
        let head = format!("{head}content-length: {length}\r\nretry-after: 0\r\nconnection: close\r\n\r\n");
        stream.write_all(head.as_bytes())?;
        stream.write_all(self.body.as_bytes())
    }
}

impl Row<'_> {
    /// Runs the program against a server with these replies, and describes what followed.
    fn play(self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let (name, replies) = (self.name.to_owned(), self.replies);
        let requests = Arc::<Mutex<Vec<Value>>>::default();
        let received = requests.clone();
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let Some(request) = read_request(&mut stream) else { continue };
                let nth = {
                    let mut received = received.lock().expect("no panic");
                    received.push(request);
                    received.len() - 1
                };
                // The program may be gone.
                let _ = replies[nth.min(replies.len() - 1)].send(&mut stream);
            }
        });
        let folder = rath_test_support::temp_dir();
        let shape = name.split_once(':').expect("a shape").0;
        let model = if shape == "messages" { "anthropic:m" } else { "openai:m" };
        let path = if shape == "responses" { "/responses" } else { "" };
        let mut command = rath_test_support::program(crate::program_path());
        command.args(["run", "What is the weather?", "--model", model, "--store", "file:s.rath", "--no-context"]);
        command.args(["--sandbox", "local:.", "--system", "Be brief."]);
        command.env("OPENAI_BASE_URL", format!("http://{address}/v1{path}")).env("OPENAI_API_KEY", "sk-test");
        command.env("ANTHROPIC_BASE_URL", format!("http://{address}")).env("ANTHROPIC_API_KEY", "sk-test");
        let output = command.current_dir(folder.path()).output().expect("rath runs");
        let mut told = format!("# {name}\n");
        let requests = requests.lock().expect("no panic");
        told.push_str(&format!("asked: {}, the last time with {}\n", requests.len(), roles(requests.last())));
        let session = Session::open_blocking(folder.path().join("s.rath")).expect("the session is stored").session;
        for step in session.as_record().steps() {
            let kind = step.chunk().kind();
            if ["user", "assistant", "tool_result", "retry", "failed", "interrupted"].contains(&kind) {
                let mut line = draw::headline(step);
                if kind != "assistant" && step.stamp().usage.is_some() {
                    // The estimate of the input depends on the tools.
                    let begin = line.rfind('(').expect("the usage");
                    let end = line[begin..].find(" in").expect("the input") + begin;
                    line.replace_range(begin + 1..end, "N");
                }
                told.push_str(&format!("record: {line}\n"));
            }
        }
        let calls = std::fs::read_to_string(folder.path().join("calls.txt")).unwrap_or_default();
        if !calls.is_empty() {
            told.push_str(&format!("calls made: {}\n", calls.lines().count()));
        }
        let out = String::from_utf8_lossy(&output.stdout);
        let err = without_call_times(&String::from_utf8_lossy(&output.stderr));
        told.extend(out.lines().map(|line| format!("stdout: {line}\n")));
        let is_told = |line: &&str| {
            ["·", "✓", "✗", "  │ not made", "error:", "hint:"].iter().any(|start| line.starts_with(start))
        };
        let err = err.lines().filter(is_told).map(|line| line.replace(&address.to_string(), "ADDRESS"));
        let saved = session.id().short().to_string();
        told.extend(err.map(|line| format!("stderr: {}\n", line.replace(&saved, "ID"))));
        told.push_str(&format!("exit {}\n", output.status.code().expect("an exit code")));
        told
    }
}

/// Returns the roles of the messages in a request; of items that have none, the types.
fn roles(request: Option<&Value>) -> String {
    let list = request.and_then(|request| request.get("messages").or(request.get("input"))?.as_array());
    let role = |message: &Value| message["role"].as_str().or(message["type"].as_str()).unwrap_or_default().to_owned();
    list.into_iter().flatten().map(role).collect::<Vec<_>>().join(" ")
}

#[test]
fn every_ending_is_recorded_printed_and_told_by_the_exit_code() {
    let rows = rows(include_str!("endings/rows.txt"));
    let names: BTreeSet<_> = rows.iter().map(|row| row.name).collect();
    assert_eq!(names.len(), rows.len(), "two rows have one name");
    let count = rows.len();
    let (rows, next) = (Mutex::new(rows.into_iter().map(Some).collect::<Vec<_>>()), AtomicUsize::new(0));
    let played = Mutex::new(vec![String::new(); count]);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let nth = next.fetch_add(1, Ordering::Relaxed);
                    let Some(row) = rows.lock().expect("no panic").get_mut(nth).and_then(Option::take) else { break };
                    let told = row.play();
                    played.lock().expect("no panic")[nth] = told;
                }
            });
        }
    });
    let played = played.into_inner().expect("no panic").join("\n");
    expect_file!["endings/expected.txt"].assert_eq(&played);
}
