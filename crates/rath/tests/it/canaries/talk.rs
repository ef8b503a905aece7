//! A conversation with a server, in which every text has canaries.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use rath::Event;
use rath::chunk::ToolSpec;
use rath::prelude::*;
use rath::provider::Retry;
use rath::tool::Output;
use serde_json::{Value, json};

use super::channels::Medium;
use super::plant::{Random, Round};
use super::{Evidence, describe_error};
use crate::server::{Reply, TestServer};
use crate::support::script;

/// The texts of a tool and of the agent that it runs.
struct Chatty {
    report: (String, String),
    output: String,
    long_output: String,
    error: String,
    helper: Agent,
}

impl Tool for Chatty {
    fn spec(&self) -> ToolSpec {
        let parameters = json!({"type": "object", "properties": {"do": {"type": "string"}}, "required": ["do"]});
        ToolSpec::new("chatty", "Talks.", parameters)
    }

    async fn call(&self, cx: &ToolCx, arguments: Value) -> Result<Output> {
        match arguments["do"].as_str() {
            Some("report") => {
                cx.output(self.report.0.clone());
                cx.output(self.report.1.clone());
                Ok(self.output.clone().into())
            }
            Some("long") => Ok(self.long_output.clone().into()),
            Some("delegate") => cx.run(&self.helper, "Help.").await.map(|_| Output::default()),
            _ => Err(Error::new(ErrorKind::Tool, &self.error)),
        }
    }
}

/// Runs an agent on a session, asks its model alone, and folds, selects and remembers.
pub(super) async fn converse(round: &Round, secrets: Secrets, random: &mut Random, evidence: &mut Evidence) -> Session {
    let server = start_server(round, random).await;
    let openai = OpenAi::new("m").key("no-canary-but-a-key").base_url(&format!("{}/v1", server.url));
    let retry = Retry { attempts: 2, first: Duration::ZERO, longest: Duration::ZERO };
    let provider = Provider::from(openai.expect("it is a URL")).retry(retry);

    let pieces = Arc::new(Mutex::new([const { String::new() }; 5]));
    let heard = pieces.clone();
    let ask = provider.ask(Session::user("go").hiding(secrets.clone())).each(move |delta| {
        let mut heard = heard.lock().expect("no thread panics");
        match delta {
            Delta::Text(piece) => heard[0] += piece,
            Delta::Reasoning(piece) => heard[1] += piece,
            Delta::Call { id, tool, arguments, .. } => {
                heard[2] += &format!("{id}\n{tool}\n");
                heard[3] += arguments;
            }
            Delta::Retry { error, .. } => heard[4] += error,
            _ => {}
        }
    });
    let asked = ask.await.expect("an answer");
    evidence.add(Medium::Events, "the pieces of an answer", pieces.lock().expect("no thread panics").join("\n"));

    let report = round.text("report of a tool, in two pieces");
    let (first, second) = report.split_at(report.floor_char_boundary(report.len() / 3));
    let helper = Agent::new("Help.", &script([r#"{"text": "I helped."}"#])).named(round.text("name of a sub-agent"));
    let chatty = Chatty {
        report: (first.to_owned(), second.to_owned()),
        output: round.text("output of a tool"),
        long_output: format!("{}{}", "words ".repeat(8_000), round.text("long output of a tool")),
        error: round.text("error of a tool"),
        helper,
    };
    let agent = Agent::new("Work.", &provider).tool(chatty).named(round.text("agent name"));
    let events = Arc::new(Mutex::new([const { String::new() }; 5]));
    let log = events.clone();
    let each = move |event: &Event| {
        let mut log = log.lock().expect("no thread panics");
        log[0] += &format!("{:?}\n{:?}\n", event.kind, event.session.module());
        match &event.kind {
            EventKind::Text(piece) => log[1] += piece,
            EventKind::Reasoning(piece) => log[2] += piece,
            EventKind::ToolOutput { text, .. } => log[3] += text,
            EventKind::Retry { error, .. } => log[4] += error,
            _ => {}
        }
    };
    let error = agent.run(Session::user("go").hiding(secrets.clone())).on_event(each).await.expect_err("it is refused");
    evidence.add(Medium::Errors, "the error of a run", describe_error(&error));
    evidence.add(Medium::Events, "the events of a run", events.lock().expect("no thread panics").join("\n"));
    let session = error.into_session().expect("it is kept");
    add_errors(round, &session, evidence);

    let mut other = other_flows(round, secrets).await;
    other.keep_aside(&asked);
    other.keep_aside(&session);
    other
}

/// Folds, selects and remembers.
async fn other_flows(round: &Round, secrets: Secrets) -> Session {
    let answer = |text: String| json!({ "text": text }).to_string();
    let mut session = Session::user("How are you?").hiding(secrets);
    session.push(Chunk::assistant("Well."));
    session.push(Chunk::user("And now?"));
    session.push(Chunk::assistant("Still well."));
    let summary = script([answer(round.text("summary of a compressor"))]);
    let mut session = Compressor::new(&summary).keep(0).run(session).await.expect("a summary");
    session.push(Chunk::user("Who is next?"));
    let clerk = Agent::new("Work.", &script(["{}"])).named("clerk");
    let selector = Selector::new(&script([answer(format!("1 {}", round.text("reply to a selector")))]));
    let _ = selector.pick(&mut session, &[&clerk]).await;
    let keeper = Agent::new("Work.", &script(["{}"])).memory(&Memory::in_process("facts"));
    keeper.remember(&mut session, round.text("fact of an agent")).await.expect("a fact");
    keeper.commit(&mut session).await.expect("a commit");
    let mut aside = session.aside(round.text("name of an aside"));
    aside.push(Chunk::note("aside"));
    session.keep_aside(&aside);
    session
}

fn add_errors(round: &Round, session: &Session, evidence: &mut Evidence) {
    let cause = std::io::Error::other(round.text("cause of an error"));
    let error = Error::new(ErrorKind::Other, "it failed").with_hint(round.text("hint of an error")).because(cause);
    evidence.add(Medium::Errors, "an error with a session", describe_error(&error.with_session(session)));
}

/// Starts a server: two streamed answers, one failure before the second; answers with calls; and a refusal.
async fn start_server(round: &Round, random: &mut Random) -> TestServer {
    let streamed = streamed_answer(round, random);
    let header = format!("x-request-id: {}", round.name("header of an answer"));
    let failure = json!({"error": {"message": round.text("error of a server, tried again")}}).to_string();
    let refusal = json!({"error": {"message": round.text("error of a server")}}).to_string();
    let call = |what: &str| {
        let function = json!({"name": "chatty", "arguments": json!({"do": what}).to_string()});
        json!({"index": 0, "id": what, "type": "function", "function": function})
    };
    let calls: Vec<String> = ["report", "long", "fail", "delegate"]
        .map(|what| events(&[json!({"tool_calls": [call(what)]})], "tool_calls"))
        .to_vec();
    TestServer::start(move |nth, _| match nth {
        0 | 2 => Reply::stream(streamed.clone()).header(&header),
        1 => Reply::json(503, &failure),
        nth if nth - 3 < calls.len() => Reply::stream(calls[nth - 3].clone()),
        _ => Reply::json(400, &refusal),
    })
    .await
}

/// Returns an answer whose text arrives letter by letter and in pieces, with a call that arrives in pieces.
fn streamed_answer(round: &Round, random: &mut Random) -> String {
    let letters = round.text("text, letter by letter");
    let mut deltas: Vec<Value> = letters.chars().map(|letter| json!({"content": letter.to_string()})).collect();
    for (member, channel) in [("content", "text, in pieces"), ("reasoning_content", "reasoning, in pieces")] {
        deltas.extend(in_pieces(&round.text(channel), random).into_iter().map(|piece| json!({ member: piece })));
    }
    let (id, name) = (round.text("id of a streamed call"), round.text("tool of a streamed call"));
    for (nth, piece) in in_pieces(&name, random).into_iter().enumerate() {
        let id = if nth == 0 { json!(id) } else { Value::Null };
        deltas.push(json!({"tool_calls": [{"index": 0, "id": id, "function": {"name": piece, "arguments": ""}}]}));
    }
    let text = round.text("arguments, in pieces");
    let arguments = json!({ text.as_str(): text }).to_string();
    let call = |piece: String| json!({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]});
    deltas.extend(in_pieces(&arguments, random).into_iter().map(call));
    events(&deltas, "tool_calls")
}

fn events(deltas: &[Value], finish: &str) -> String {
    let event = |choice: Value| format!("data: {}\n\n", json!({"id": "1", "model": "m", "choices": [choice]}));
    let mut body: String = deltas.iter().map(|delta| event(json!({"index": 0, "delta": delta}))).collect();
    body += &event(json!({"index": 0, "delta": {}, "finish_reason": finish}));
    body + "data: [DONE]\n\n"
}

/// Cuts a text at random places.
fn in_pieces(text: &str, random: &mut Random) -> Vec<String> {
    let mut pieces = vec![String::new()];
    for letter in text.chars() {
        if random.below(4) == 0 {
            pieces.push(String::new());
        }
        pieces.last_mut().expect("there is one").push(letter);
    }
    pieces
}
