//! A provider that plays a script. Tests, examples and the demo use it.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rath_record::Usage;
use rath_record::chunk::{Call, Finish, Identity};
use serde::Deserialize;
use serde_json::Value;

use super::answer::{Answer, Delta, DeltaSink};
use super::assemble::reported_error;
use super::error::{ProviderError, ProviderErrorKind};
use super::render::Request;
use super::settings::{Settings, Shape};
use super::{Provider, ProviderBackend};

/// A script with the answers of a model: one JSON object on each line, one line for each turn.
///
/// | member | meaning |
/// |---|---|
/// | `text`, `reasoning` | the text and the reasoning of the answer |
/// | `calls` | the calls: a list of `{"name", "arguments"}` |
/// | `finish` | the reason to stop, if not the end of the answer or its calls: `length` or `filtered` |
/// | `usage` | the tokens used: `{"input", "output", "cached_read", "cache_write", "reasoning"}` |
/// | `error` | an error instead of an answer: `{"status", "message"}`; 429 and 5xx are tried again, on the next line |
/// | `delay_ms` | the time before the answer, in milliseconds |
/// | `chunks` | the number of pieces in which the text arrives |
/// | `agent` | the module path of the agent that the turn is for; without it the turn is for any agent |
/// | `expect` | `{"contains": TEXT}`, or a list of texts: the request must contain them |
///
/// Turns are taken in order. Empty lines and lines that begin with `#` are skipped.
///
/// ```
/// use rath::prelude::*;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> rath::Result<()> {
/// let script = Script::of([r#"{"text": "The Seine.", "usage": {"input": 12, "output": 3}}"#])?;
/// let session = Provider::from(script).ask(Session::user("Which river runs through Paris?")).await?;
/// assert_eq!((session.text(), session.usage().output), (Some("The Seine."), 3));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Script {
    name: String,
    turns: Vec<ScriptTurn>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ScriptTurn {
    #[serde(default)]
    text: String,
    #[serde(default)]
    reasoning: String,
    #[serde(default)]
    calls: Vec<ScriptCall>,
    finish: Option<Finish>,
    usage: Option<ScriptUsage>,
    error: Option<ScriptError>,
    #[serde(default)]
    delay_ms: u64,
    chunks: Option<usize>,
    agent: Option<String>,
    expect: Option<ScriptExpectation>,
    /// The line number in the file, from 1.
    #[serde(skip)]
    line: usize,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ScriptCall {
    name: String,
    #[serde(default)]
    arguments: Value,
}

/// Token counts, under our names or under those of the providers.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ScriptUsage {
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
struct ScriptError {
    status: u16,
    #[serde(default)]
    message: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ScriptExpectation {
    contains: OneOrMany,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl Script {
    /// Reads a script from a file, on the current thread. [`Provider::open`](super::Provider::open) reads it on another.
    pub fn read_blocking(file: impl AsRef<Path>) -> Result<Self, ProviderError> {
        let file = file.as_ref();
        if file.as_os_str().is_empty() {
            return Err(
                ProviderError::new(ProviderErrorKind::Script, "no script is named").with_hint("write `script:FILE`")
            );
        }
        let text = std::fs::read_to_string(file).map_err(|error| {
            ProviderError::new(ProviderErrorKind::Io, format_args!("cannot read the script {}", file.display()))
                .because(error)
        })?;
        // The name is recorded, so it must not contain a path of this machine.
        let name = file.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        Script::parse(name, text.lines())
    }

    /// Sets the name that is recorded as the model.
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Parses a script from its lines.
    pub fn of(lines: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Self, ProviderError> {
        Script::parse("script".to_owned(), lines)
    }

    fn parse(name: String, lines: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Self, ProviderError> {
        let mut turns = Vec::new();
        for (nth, line) in lines.into_iter().enumerate() {
            let text = line.as_ref().trim();
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            let invalid = |error: &dyn std::fmt::Display| {
                ProviderError::new(
                    ProviderErrorKind::Script,
                    format_args!("line {} of the script `{name}` is not a turn: {error}", nth + 1),
                )
                .with_hint(r#"a turn is a JSON object on one line: {"text": "hello"}"#)
            };
            let mut turn: ScriptTurn = serde_json::from_str(text).map_err(|error| {
                let error = error.to_string();
                // The line number in the message is always 1, since each line is parsed alone.
                invalid(&error.split(" at line ").next().unwrap_or_default())
            })?;
            if turn.chunks == Some(0) {
                return Err(invalid(&"`chunks` must be at least 1"));
            }
            if turn.error.is_some() && (!turn.text.is_empty() || !turn.calls.is_empty()) {
                return Err(invalid(&"a turn with `error` cannot have `text` or `calls`"));
            }
            turn.line = nth + 1;
            turns.push(turn);
        }
        if turns.is_empty() {
            return Err(ProviderError::new(
                ProviderErrorKind::Script,
                format_args!("the script `{name}` has no turns"),
            ));
        }
        Ok(Script { name, turns })
    }
}

impl From<Script> for Provider {
    fn from(script: Script) -> Self {
        let identity = Identity { provider: "script".to_owned(), model: script.name };
        let turns = Mutex::new(script.turns.into_iter().map(Some).collect());
        Provider::new(ScriptBackend { identity, settings: Arc::new(Settings::new(Shape::Chat)), turns })
    }
}

struct ScriptBackend {
    identity: Identity,
    settings: Arc<Settings>,
    /// The turns; those that were played are `None`.
    turns: Mutex<Vec<Option<ScriptTurn>>>,
}

impl ProviderBackend for ScriptBackend {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn settings(&self) -> &Arc<Settings> {
        &self.settings
    }

    async fn send(&self, request: &Request, sink: &mut DeltaSink<'_>) -> Result<Answer, ProviderError> {
        let turn = self.take_turn(request.by.as_deref())?;
        turn.check_request(request, &self.identity.model)?;
        if turn.delay_ms > 0 {
            tokio::time::sleep(Duration::from_millis(turn.delay_ms)).await;
        }
        if let Some(ScriptError { status, message }) = &turn.error {
            let message = Value::from(&**message).to_string();
            return Err(reported_error(&message, Some(*status), ProviderErrorKind::Refused));
        }
        Ok(turn.play(sink))
    }
}

impl ScriptBackend {
    /// Takes the next turn for this agent, or for any.
    fn take_turn(&self, agent: Option<&str>) -> Result<ScriptTurn, ProviderError> {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        let is_for_agent = |turn: &ScriptTurn| turn.agent.is_none() || turn.agent.as_deref() == agent;
        let next = turns.iter_mut().find(|turn| turn.as_ref().is_some_and(is_for_agent));
        next.and_then(Option::take).ok_or_else(|| {
            let remaining = turns.iter().flatten().count();
            let for_agent = agent.map(|agent| format!(" for `{agent}`")).unwrap_or_default();
            let message = format!("the script `{}` has no turn left{for_agent}", self.identity.model);
            let hint = match remaining {
                0 => format!(
                    "it has {}: add a line for each model call",
                    rath_record::draw::count(turns.len() as u64, "turn")
                ),
                _ => format!("left for other agents: {}", rath_record::draw::count(remaining as u64, "turn")),
            };
            ProviderError::new(ProviderErrorKind::Script, message).with_hint(hint)
        })
    }
}

impl ScriptTurn {
    fn check_request(&self, request: &Request, script: &str) -> Result<(), ProviderError> {
        let wanted = match &self.expect {
            None => return Ok(()),
            Some(ScriptExpectation { contains: OneOrMany::One(text) }) => std::slice::from_ref(text),
            Some(ScriptExpectation { contains: OneOrMany::Many(texts) }) => texts,
        };
        let body: Value = serde_json::from_slice(&request.bytes).unwrap_or_default();
        match wanted.iter().find(|text| !contains(&body, text)) {
            None => Ok(()),
            Some(text) => {
                let message = format!("line {} of the script `{script}` expects `{text}` in the request", self.line);
                let body = rath_record::draw::preview(&String::from_utf8_lossy(&request.bytes));
                Err(ProviderError::new(ProviderErrorKind::Script, message).with_hint(format!("the request is {body}")))
            }
        }
    }

    fn play(self, sink: &mut DeltaSink<'_>) -> Answer {
        if !self.reasoning.is_empty() {
            sink(Delta::Reasoning(&self.reasoning));
        }
        for piece in split(&self.text, self.chunks.unwrap_or(1)) {
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
        let usage = self.usage.map(|ScriptUsage { input, output, cached_read, cache_write, reasoning }| Usage {
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

/// Splits a text into about equal parts, none of them empty, at the boundaries of characters.
fn split(text: &str, count: usize) -> Vec<&str> {
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

/// Returns true if any string in a JSON value contains these words.
fn contains(value: &Value, words: &str) -> bool {
    match value {
        Value::String(text) => text.contains(words),
        Value::Array(list) => list.iter().any(|value| contains(value, words)),
        Value::Object(members) => members.values().any(|value| contains(value, words)),
        _ => false,
    }
}
