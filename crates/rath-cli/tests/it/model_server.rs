//! A model server on loopback that counts the answers it gives.
//!
//! A prompt is a name, a colon and a JSON list of calls. The server asks for these calls, and then answers with the name.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

/// The tokens of one answer.
pub(crate) const TOKENS: u64 = 6;

pub(crate) struct ModelServer {
    url: String,
    /// The number of answers to each prompt.
    answers: Arc<Mutex<HashMap<String, u64>>>,
}

impl ModelServer {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}/v1", listener.local_addr().expect("an address"));
        let answers = Arc::<Mutex<HashMap<String, u64>>>::default();
        let counted = answers.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let counted = counted.clone();
                std::thread::spawn(move || serve(stream, &counted));
            }
        });
        ModelServer { url, answers }
    }

    /// Returns the base URL.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Lets a command use the server, as `openai:m`.
    pub(crate) fn connect(&self, command: &mut Command) {
        command.env("OPENAI_BASE_URL", &self.url).env("OPENAI_API_KEY", "sk-test");
    }

    /// Returns the number of answers that were given to a prompt.
    pub(crate) fn answers_to(&self, prompt: &str) -> u64 {
        self.answers.lock().expect("no panic").get(prompt).copied().unwrap_or_default()
    }
}

/// Answers the requests of one connection. A client that was killed is no error.
fn serve(mut stream: TcpStream, answers: &Mutex<HashMap<String, u64>>) {
    while let Some(request) = read_request(&mut stream) {
        let messages = request["messages"].as_array().expect("messages");
        let is_user = |message: &Value| message["role"] == "user";
        let last = messages.iter().rposition(is_user).expect("a prompt");
        let prompt = messages[last]["content"].as_str().expect("a text");
        let is_called = messages[last..].iter().any(|message| message["role"] == "tool");
        let (name, calls) = prompt.split_once(": ").expect("a name and calls");
        let calls: Vec<Value> = serde_json::from_str(calls).expect("a list of calls");
        let (message, finish) = if is_called || calls.is_empty() {
            (json!({"role": "assistant", "content": name}), "stop")
        } else {
            let call = |(nth, call): (usize, &Value)| {
                let (tool, arguments) = (&call["name"], call["arguments"].to_string());
                let function = json!({"name": tool, "arguments": arguments});
                json!({"id": format!("call_{}_{nth}", messages.len()), "type": "function", "function": function})
            };
            let calls: Vec<_> = calls.iter().enumerate().map(call).collect();
            (json!({"role": "assistant", "content": null, "tool_calls": calls}), "tool_calls")
        };
        let usage = json!({"prompt_tokens": TOKENS - 1, "completion_tokens": 1, "total_tokens": TOKENS});
        let choice = json!({"index": 0, "message": message, "finish_reason": finish});
        let body = json!({"id": "1", "model": "m", "choices": [choice], "usage": usage}).to_string();
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n";
        let answer = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
        if stream.write_all(answer.as_bytes()).is_err() {
            return;
        }
        *answers.lock().expect("no panic").entry(prompt.to_owned()).or_default() += 1;
    }
}

/// Reads the JSON of one request. None if the connection ends before.
pub(crate) fn read_request(stream: &mut TcpStream) -> Option<Value> {
    let (mut bytes, mut piece) = (Vec::new(), [0; 16 << 10]);
    let mut more = |bytes: &mut Vec<u8>| {
        let length = stream.read(&mut piece).ok().filter(|length| *length > 0)?;
        bytes.extend_from_slice(&piece[..length]);
        Some(())
    };
    let head = loop {
        match bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            Some(end) => break end + 4,
            None => more(&mut bytes)?,
        }
    };
    let lines = String::from_utf8_lossy(&bytes[..head]).to_ascii_lowercase();
    let length = lines.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
    let end = head + length.unwrap_or(0_usize);
    while bytes.len() < end {
        more(&mut bytes)?;
    }
    serde_json::from_slice(&bytes[head..end]).ok()
}
