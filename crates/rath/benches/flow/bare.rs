//! An agent loop with nothing but an HTTP client and JSON: it keeps its messages in a list, sends them, parses the answer
//! and makes the calls.

use bytes::Bytes;
use rath::prelude::*;
use reqwest::Client;
use serde::Serialize;
use serde_json::Value;

use crate::run;

pub(crate) struct Bare {
    client: Client,
    url: String,
    /// A request up to the end of the user's message, and the part after its last message.
    head: Vec<u8>,
    tail: Vec<u8>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Message {
    Call { role: &'static str, content: (), tool_calls: [CallRecord; 1] },
    Result { role: &'static str, tool_call_id: String, content: String },
}

#[derive(Serialize)]
struct CallRecord {
    id: String,
    r#type: &'static str,
    function: Function,
}

#[derive(Default, Serialize)]
struct Function {
    name: String,
    arguments: String,
}

impl Bare {
    /// Creates a loop that sends the same bytes as an agent, and checks that it does.
    pub(crate) fn like(url: &str, agent: &Agent) -> Self {
        let runtime = crate::one_thread();
        let session = runtime.block_on(run(agent));
        let steps = session.as_record().steps();
        let sent = steps.iter().filter_map(|step| match step.chunk() {
            Chunk::Assistant(answer) => answer.request,
            _ => None,
        });
        let mut first = Session::empty();
        steps.iter().take(2).for_each(|step| _ = first.push(step.chunk().clone()));
        let request = agent.provider().request(&first).expect("a request");
        let (head, tail) = request.body().split_at(request.messages_end());
        let client = Client::builder().no_proxy().build().expect("a client");
        let url = format!("{url}/v1/chat/completions");
        let bare = Bare { client, url, head: head.to_vec(), tail: tail.to_vec() };
        let mut bodies = Vec::new();
        runtime.block_on(bare.run_with(|| {}, |body| bodies.push(rath::Digest::compute(body))));
        assert_eq!(bodies, sent.collect::<Vec<_>>(), "these are not the bytes that the agent sends");
        bare
    }

    pub(crate) async fn run(&self) {
        self.run_with(|| {}, |_| {}).await;
    }

    /// Sends a prepared request.
    pub(crate) async fn send(&self, body: impl Into<Bytes>) -> Bytes {
        let request = self.client.post(&self.url).header("content-type", "application/json").bearer_auth("sk-mock");
        let answer = request.body(body.into()).send().await.expect("an answer");
        assert!(answer.status().is_success());
        answer.bytes().await.expect("a body")
    }

    /// Runs, and calls `asks` before each request and `sends` with its body.
    pub(crate) async fn run_with(&self, mut asks: impl FnMut(), mut sends: impl FnMut(&[u8])) {
        let mut messages: Vec<Message> = Vec::new();
        loop {
            asks();
            let mut body = self.head.clone();
            for message in &messages {
                body.push(b',');
                serde_json::to_writer(&mut body, message).expect("JSON");
            }
            body.extend_from_slice(&self.tail);
            sends(&body);
            let Some((id, function)) = parse_call(&self.send(body).await) else { return };
            let arguments: Value = serde_json::from_str(&function.arguments).expect("arguments");
            let sum = arguments["a"].as_i64().unwrap_or_default() + arguments["b"].as_i64().unwrap_or_default();
            let tool_calls = [CallRecord { id: id.clone(), r#type: "function", function }];
            messages.push(Message::Call { role: "assistant", content: (), tool_calls });
            messages.push(Message::Result { role: "tool", tool_call_id: id, content: sum.to_string() });
        }
    }
}

/// Parses the call that an answer asks for, streamed or not.
fn parse_call(answer: &[u8]) -> Option<(String, Function)> {
    let call = |text: &[u8], of: &str| {
        let mut json: Value = serde_json::from_slice(text).expect("JSON");
        json.pointer_mut(&format!("/choices/0/{of}/tool_calls/0")).map(Value::take).unwrap_or_default()
    };
    let pieces: Vec<Value> = if answer.starts_with(b"{") {
        vec![call(answer, "message")]
    } else {
        let events = answer.split(|byte| *byte == b'\n').filter_map(|line| line.strip_prefix(b"data: "));
        let events = events.filter(|event| *event != b"[DONE]");
        events.map(|event| call(event, "delta")).collect()
    };
    let mut found: Option<(String, Function)> = None;
    for piece in &pieces {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        if let Some(id) = piece["id"].as_str() {
            found.get_or_insert_default().0 = id.to_owned();
        }
        if let (Some((_, function)), Value::Object(_)) = (&mut found, &piece["function"]) {
            function.name += &text(&piece["function"]["name"]);
            function.arguments += &text(&piece["function"]["arguments"]);
        }
    }
    found
}
