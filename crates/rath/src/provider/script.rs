//! A provider that says what it was told to say. Tests, examples and the demo run on it.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rath_record::Usage;
use rath_record::chunk::{Call, Finish, Identity};
use serde::Deserialize;
use serde_json::Value;

use super::answer::{Answer, Delta, Failure, Sink};
use super::assemble::reported;
use super::render::Request;
use super::settings::{Settings, Shape};
use super::{Provider, ProviderBackend};
use crate::error::ErrorKind;
use crate::session::{Error, Result};

/// A script: one JSON object a line, one line a turn.
///
/// | member | meaning |
/// |---|---|
/// | `text`, `reasoning` | what the model says |
/// | `calls` | what it calls: a list of `{"name", "arguments"}` |
/// | `finish` | why it stops, if not because it is done or wants tools to run: `length` or `filtered` |
/// | `usage` | what it costs: `{"input", "output", "cached_read", "cache_write", "reasoning"}` |
/// | `error` | what goes wrong instead: `{"status", "message"}`; 429 and 5xx are tried again, on the next line |
/// | `delay_ms` | how long it takes |
/// | `chunks` | in how many pieces the text comes |
/// | `agent` | whose turn it is, by module path; without it anybody's |
/// | `expect` | `{"contains": TEXT}` or a list of them: what the request must hold |
///
/// Turns are taken in order. Empty lines and lines that begin with `#` are passed over.
#[derive(Clone, Debug)]
pub struct Script {
    name: String,
    turns: Vec<Turn>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Turn {
    #[serde(default)]
    text: String,
    #[serde(default)]
    reasoning: String,
    #[serde(default)]
    calls: Vec<Scripted>,
    finish: Option<Finish>,
    usage: Option<Used>,
    error: Option<Wrong>,
    #[serde(default)]
    delay_ms: u64,
    chunks: Option<usize>,
    agent: Option<String>,
    expect: Option<Expect>,
    /// Where it stands in the file.
    #[serde(skip)]
    line: usize,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Scripted {
    name: String,
    #[serde(default)]
    arguments: Value,
}

/// Tokens, under our names or under those of the providers.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Used {
    #[serde(alias = "input_tokens", alias = "prompt_tokens")]
    input: u64,
    #[serde(alias = "output_tokens", alias = "completion_tokens")]
    output: u64,
    cached_read: u64,
    cache_write: u64,
    reasoning: u64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wrong {
    status: u16,
    #[serde(default)]
    message: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Expect {
    contains: OneOrMany,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl Script {
    /// Reads a script from a file.
    pub fn read(file: impl AsRef<Path>) -> Result<Self> {
        let file = file.as_ref();
        if file.as_os_str().is_empty() {
            return Err(Error::new(ErrorKind::Script, "no script is named").with_hint("write `script:FILE`"));
        }
        let text = std::fs::read_to_string(file).map_err(|error| {
            Error::new(ErrorKind::Io, format_args!("cannot read the script {}", file.display())).because(error)
        })?;
        // The path is not part of its name: where a file lies on this machine is nobody's business.
        let name = file.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        Script::parse(name, text.lines())
    }

    /// Gives it another name, by which the record knows it.
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// A script of these lines.
    pub fn of(lines: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Self> {
        Script::parse("script".to_owned(), lines)
    }

    fn parse(name: String, lines: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Self> {
        let mut turns = Vec::new();
        for (nth, line) in lines.into_iter().enumerate() {
            let text = line.as_ref().trim();
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            let wrong = |error: &dyn std::fmt::Display| {
                Error::new(
                    ErrorKind::Script,
                    format_args!("line {} of the script `{name}` is no turn: {error}", nth + 1),
                )
                .with_hint(r#"a turn is a JSON object on one line: {"text": "hello"}"#)
            };
            let mut turn: Turn = serde_json::from_str(text).map_err(|error| {
                let error = error.to_string();
                // The line that it names is always the first.
                wrong(&error.split(" at line ").next().unwrap_or_default())
            })?;
            if turn.chunks == Some(0) {
                return Err(wrong(&"`chunks` is at least 1"));
            }
            if turn.error.is_some() && (!turn.text.is_empty() || !turn.calls.is_empty()) {
                return Err(wrong(&"with `error` there is no `text` and there are no `calls`"));
            }
            turn.line = nth + 1;
            turns.push(turn);
        }
        if turns.is_empty() {
            return Err(Error::new(ErrorKind::Script, format_args!("the script `{name}` has no turns")));
        }
        Ok(Script { name, turns })
    }
}

impl From<Script> for Provider {
    fn from(script: Script) -> Self {
        let identity = Identity { provider: "script".to_owned(), model: script.name };
        let turns = Mutex::new(script.turns.into_iter().map(Some).collect());
        Provider::new(Backend { identity, settings: Arc::new(Settings::new(Shape::Chat)), turns })
    }
}

struct Backend {
    identity: Identity,
    settings: Arc<Settings>,
    /// The turns that are left.
    turns: Mutex<Vec<Option<Turn>>>,
}

impl ProviderBackend for Backend {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn settings(&self) -> &Arc<Settings> {
        &self.settings
    }

    async fn send(&self, request: &Request, sink: &mut Sink<'_>) -> Result<Answer, Failure> {
        let turn = self.take(request.by.as_deref())?;
        turn.check(request, &self.identity.model)?;
        if turn.delay_ms > 0 {
            tokio::time::sleep(Duration::from_millis(turn.delay_ms)).await;
        }
        if let Some(Wrong { status, message }) = &turn.error {
            return Err(reported(&Value::String(message.clone()), Some(*status), ErrorKind::Refused));
        }
        Ok(turn.play(sink))
    }
}

impl Backend {
    /// The next turn that is the agent's or anybody's.
    fn take(&self, agent: Option<&str>) -> Result<Turn, Failure> {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        let theirs = |turn: &Turn| turn.agent.is_none() || turn.agent.as_deref() == agent;
        let next = turns.iter_mut().find(|turn| turn.as_ref().is_some_and(theirs));
        next.and_then(Option::take).ok_or_else(|| {
            let left = turns.iter().flatten().count();
            let whose = agent.map(|agent| format!(" for `{agent}`")).unwrap_or_default();
            let message = format!("the script `{}` has no turn left{whose}", self.identity.model);
            let hint = match left {
                0 => format!(
                    "it has {}: add a line for each model call",
                    rath_record::draw::count(turns.len() as u64, "turn")
                ),
                left => format!("for other agents there is still {}", rath_record::draw::count(left as u64, "turn")),
            };
            Failure::new(ErrorKind::Script, message).with_hint(hint)
        })
    }
}

impl Turn {
    fn check(&self, request: &Request, script: &str) -> Result<(), Failure> {
        let wanted = match &self.expect {
            None => return Ok(()),
            Some(Expect { contains: OneOrMany::One(text) }) => std::slice::from_ref(text),
            Some(Expect { contains: OneOrMany::Many(texts) }) => texts,
        };
        let body: Value = serde_json::from_slice(&request.bytes).unwrap_or_default();
        match wanted.iter().find(|text| !contains(&body, text)) {
            None => Ok(()),
            Some(text) => {
                let message = format!("line {} of the script `{script}` expects `{text}` in the request", self.line);
                let body = rath_record::draw::preview(&String::from_utf8_lossy(&request.bytes));
                Err(Failure::new(ErrorKind::Script, message).with_hint(format!("the request is {body}")))
            }
        }
    }

    fn play(self, sink: &mut Sink<'_>) -> Answer {
        if !self.reasoning.is_empty() {
            sink(Delta::Reasoning(&self.reasoning));
        }
        for piece in pieces(&self.text, self.chunks.unwrap_or(1)) {
            sink(Delta::Text(piece));
        }
        let calls = self.calls.into_iter().enumerate().map(|(nth, call)| {
            let arguments = match call.arguments {
                Value::Null => "{}".to_owned(),
                Value::String(text) => text,
                arguments => arguments.to_string(),
            };
            Call::new(format!("call_{}_{}", self.line, nth + 1), call.name, arguments)
        });
        let calls: Vec<_> = calls.collect();
        for (nth, call) in calls.iter().enumerate() {
            let arguments = call.arguments.as_str().unwrap_or_default();
            sink(Delta::Call { nth, id: &call.id.0, tool: &call.tool, arguments });
        }
        let finish = self.finish.unwrap_or(if calls.is_empty() { Finish::Stop } else { Finish::Calls });
        sink(Delta::Finish(finish));
        let usage = self.usage.map(|Used { input, output, cached_read, cache_write, reasoning }| Usage {
            input,
            output,
            cached_read,
            cache_write,
            reasoning,
        });
        usage.into_iter().for_each(|usage| sink(Delta::Usage(usage)));
        let (text, reasoning) = (self.text, self.reasoning);
        Answer { text, reasoning, calls, finish, usage, ..Answer::default() }
    }
}

/// The text in about equal parts, none of them empty and no character cut.
fn pieces(text: &str, count: usize) -> Vec<&str> {
    let count = count.min(text.len());
    let mut pieces = Vec::new();
    let mut begin = 0;
    for nth in 1..=count {
        let end = text.floor_char_boundary(text.len() * nth / count);
        if end > begin {
            pieces.push(&text[begin..end]);
            begin = end;
        }
    }
    pieces
}

/// Whether any text in a JSON value contains these words.
fn contains(value: &Value, words: &str) -> bool {
    match value {
        Value::String(text) => text.contains(words),
        Value::Array(list) => list.iter().any(|value| contains(value, words)),
        Value::Object(members) => members.values().any(|value| contains(value, words)),
        _ => false,
    }
}
