//! The kinds of chunk, one struct each.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::workspace::{Conflict, Effect, Tree};
use crate::id::{CallId, Digest, StepId};
use crate::payload::{Blob, Payload, Text};

/// An agent's prompt with its tools and provider identity.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Instructions {
    /// The prompt.
    pub text: Text,
    /// The tools the model may call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ToolSpec>,
    /// The provider that will be asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<Identity>,
}

/// A tool as the model is told about it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// The JSON schema of its arguments.
    pub parameters: Json,
}

/// Which provider and model: a name to compare, never a credential.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Identity {
    /// The kind of provider: `openai`, `anthropic`, `script`, ..
    pub provider: String,
    /// The model asked for.
    pub model: String,
}

/// What the user said.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct User {
    /// The words.
    pub text: Text,
    /// The pictures.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<Image>,
}

/// A picture, by digest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Image {
    /// Its media type, `image/png` for one.
    pub media_type: String,
    /// Its bytes.
    pub blob: Blob,
}

/// What the model answered.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Assistant {
    /// The words.
    #[serde(default, skip_serializing_if = "Text::is_empty")]
    pub text: Text,
    /// The reasoning that the provider let us see.
    #[serde(default, skip_serializing_if = "Text::is_empty")]
    pub reasoning: Text,
    /// The tool calls it asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<Call>,
    /// Why it stopped.
    pub finish: Finish,
    /// The digest of the request as sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<Digest>,
    /// What the request held beside what is in the record: its shape and its options.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settings: Option<Json>,
    /// Who answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<Identity>,
    /// What the provider said about its answer: its id, the model that served it, its own count of tokens, ..
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub facts: Option<Json>,
    /// State that only this provider can read (signatures, encrypted reasoning), never sent to another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sidecar: Option<Json>,
}

/// A tool call, as the model asked for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Call {
    /// The provider's name for it.
    pub id: CallId,
    /// The tool.
    pub tool: Arc<str>,
    /// The arguments exactly as the model wrote them, which need not be valid JSON.
    #[serde(default, skip_serializing_if = "Text::is_empty")]
    pub arguments: Text,
}

/// Why the model stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    /// It was done.
    #[default]
    Stop,
    /// It wants tools to run.
    Calls,
    /// It ran out of tokens.
    Length,
    /// The provider withheld the rest.
    Filtered,
}

/// A tool call is about to take effect. Written before the effect starts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolStarted {
    /// The call.
    pub call: CallId,
    /// The key under which an idempotent tool may run again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// A tool call ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolResult {
    /// The call.
    pub call: CallId,
    /// How it ended.
    pub outcome: Outcome,
    /// What the model reads.
    pub output: Text,
    /// All that the tool said, where the model reads only a part of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub whole: Option<Text>,
    /// What changed in the workspace, as observed there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub effects: Vec<Effect>,
    /// The workspace tree afterwards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<Tree>,
}

/// How a tool call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It did what it was asked.
    Ok,
    /// There is no such tool.
    UnknownTool,
    /// The arguments were not JSON.
    BadJson,
    /// The arguments did not fit the schema.
    BadArguments,
    /// It failed inside.
    Failed,
    /// It ran out of time.
    TimedOut,
    /// A person refused it.
    Denied,
    /// The run was stopped before it ended.
    Cancelled,
    /// Whether it took effect is not known: the process died on the way.
    Unknown,
}

/// The session was bound to a sandbox.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Placed {
    /// The sandbox's URI, `local:./` for one.
    pub place: String,
    /// The workspace tree there, where that is known already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<Tree>,
}

/// Something went into a memory or came out of one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Memory {
    /// The memory's URI.
    pub memory: String,
    /// What happened.
    pub event: MemoryEvent,
}

/// What happened to a memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryEvent {
    /// A fact was handed over.
    Remember {
        /// The fact.
        text: Text,
    },
    /// The memory was asked.
    Recall {
        /// The question.
        query: Text,
        /// What it gave back, best first.
        found: Vec<Recalled>,
    },
    /// What was handed over was made durable.
    Commit {
        /// The entries that came of it.
        entries: Vec<String>,
    },
    /// Entries were removed.
    Forget {
        /// Which.
        entries: Vec<String>,
    },
}

/// One thing that a memory gave back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Recalled {
    /// The memory's name for it.
    pub entry: String,
    /// What it says.
    pub text: Text,
}

/// Earlier steps were folded into a summary. Nothing is removed: the views hide what is named here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Compressed {
    /// The steps that the model no longer sees.
    pub hidden: Vec<StepId>,
    /// The steps that were looked at and stay visible.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<StepId>,
    /// What the model reads instead, where the first hidden step stood.
    pub summary: Text,
}

/// A selector was asked for a route.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Selected {
    /// The routes on offer.
    pub menu: Vec<Route>,
    /// The model's raw reply.
    pub reply: Text,
    /// What came of it.
    pub choice: Choice,
    /// The digest of the request as sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<Digest>,
}

/// One route on a selector's menu.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// Its name.
    pub name: String,
    /// What the selector was told about it.
    pub description: String,
}

/// What came of a selection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Choice {
    /// This route.
    Chosen {
        /// Its name.
        route: String,
    },
    /// No further route is needed.
    Done,
    /// The reply names a route that is not on the menu.
    OutOfRange,
    /// The reply could not be read.
    Unparseable,
    /// There was no reply.
    Empty,
}

/// A check ran.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Checked {
    /// The command or the name of the check.
    pub check: String,
    /// What it found.
    pub verdict: Verdict,
    /// What it printed.
    #[serde(default, skip_serializing_if = "Text::is_empty")]
    pub output: Text,
    /// The workspace tree it saw.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<Tree>,
    /// The files and directories it declares to depend on; none means all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<String>,
}

/// What a check found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// All well.
    Passed,
    /// Not well.
    Failed,
    /// It could not be run.
    Broken,
}

/// A branch left its parent here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forked {
    /// How many branches had left the session from the same head before, plus one: keeps twins that do the same apart.
    pub nth: u64,
    /// The head of the session at that moment, where the branch goes on from an earlier step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<StepId>,
    /// The name its maker gave it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// Two branches were joined here: the first parent is ours, the second theirs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Merged {
    /// How.
    pub strategy: Strategy,
    /// As for [`Forked::nth`], of ours: keeps two merges of the same sides apart.
    #[serde(default = "first", skip_serializing_if = "is_first")]
    pub nth: u64,
    /// As for [`Forked::from`], of ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<StepId>,
    /// The workspace tree that came of it, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<Tree>,
    /// What is neither as ours left it nor as theirs did.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub effects: Vec<Effect>,
    /// What both changed in ways that do not fit together.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conflicts: Vec<Conflict>,
}

fn first() -> u64 {
    1
}

fn is_first(nth: &u64) -> bool {
    *nth == 1
}

/// The first merge of its sides.
impl From<Strategy> for Merged {
    fn from(strategy: Strategy) -> Self {
        Merged { strategy, nth: 1, from: None, tree: None, effects: Vec::new(), conflicts: Vec::new() }
    }
}

/// How two branches are joined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// What both share once, then ours, then theirs.
    #[default]
    Ancestor,
    /// All of ours, then all of theirs, so what they share is there twice.
    Concat,
    /// Only ours is read. Theirs is kept aside: what it cost and what it changed counts, and the log shows it.
    Aside,
}

/// A branch cut its lineage here: it keeps what was said and has no parent branch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Detached {
    /// As for [`Forked::nth`].
    pub nth: u64,
    /// As for [`Forked::from`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<StepId>,
}

/// A model call failed and will be tried again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Retry {
    /// Which attempt failed, from 1.
    pub attempt: u32,
    /// How many there may be.
    pub of: u32,
    /// What went wrong.
    pub error: Text,
}

/// The run was stopped from outside.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interrupted {
    /// By whom or what.
    pub reason: Text,
}

/// A person let a call go ahead.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Approved {
    /// The call.
    pub call: CallId,
}

/// A person refused a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Denied {
    /// The call.
    pub call: CallId,
    /// Why, for the model to read.
    pub reason: Text,
}

/// The run failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Failed {
    /// The kind of failure.
    pub error: String,
    /// What a person should read.
    pub message: Text,
}

/// A person went on though something was not as it was left.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Resumed {
    /// What was different, each in words.
    pub differences: Vec<String>,
}

/// A remark that no model sees.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Note {
    /// The remark.
    pub text: Text,
}

/// A chunk this version cannot read: its kind is newer, or its members do not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Other {
    pub(super) kind: String,
    pub(super) json: String,
    /// Whatever stood beside its row, as far as can be told: it is kept, and never missed.
    pub(super) payloads: Vec<(Digest, Payload)>,
}

/// JSON kept as written, but on one line. Two are equal when their texts are.
#[derive(Clone, Serialize)]
#[serde(transparent)]
pub struct Json(Arc<RawValue>);

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        Json::parse(raw.get()).map_err(serde::de::Error::custom)
    }
}

impl Json {
    /// Takes in a JSON text.
    pub fn parse(text: &str) -> Result<Self, serde_json::Error> {
        // In valid JSON a raw line break can only be space between tokens, and a row must be one line.
        RawValue::from_string(text.trim().replace(['\n', '\r'], " ")).map(|json| Json(json.into()))
    }

    /// The JSON text.
    pub fn as_str(&self) -> &str {
        self.0.get()
    }
}

impl PartialEq for Json {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// As it is written.
impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Taken as it is, if it is on one line already.
impl From<Box<RawValue>> for Json {
    fn from(json: Box<RawValue>) -> Self {
        if json.get().contains(['\n', '\r']) || json.get().starts_with([' ', '\t']) {
            return Json::parse(json.get()).expect("it is JSON already");
        }
        Json(json.into())
    }
}

impl From<serde_json::Value> for Json {
    fn from(value: serde_json::Value) -> Self {
        Json::parse(&value.to_string()).expect("a value is written as JSON")
    }
}

impl ToolSpec {
    /// A tool with the JSON schema of its arguments.
    pub fn new(name: impl Into<String>, description: impl Into<String>, parameters: impl Into<Json>) -> Self {
        ToolSpec { name: name.into(), description: description.into(), parameters: parameters.into() }
    }
}

impl Image {
    /// A picture from its bytes.
    pub fn new(media_type: impl Into<String>, bytes: impl Into<Arc<[u8]>>) -> Self {
        Image { media_type: media_type.into(), blob: Blob::new(bytes) }
    }
}

impl ToolResult {
    /// A result that changed nothing in the workspace.
    pub fn new(call: impl Into<CallId>, outcome: Outcome, output: impl Into<Text>) -> Self {
        let (call, output) = (call.into(), output.into());
        ToolResult { call, outcome, output, whole: None, effects: Vec::new(), tree: None }
    }
}

/// As in a URI: `openai:gpt-5`.
impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.provider, self.model)
    }
}

impl Call {
    /// A call of `tool`.
    pub fn new(id: impl Into<CallId>, tool: impl Into<Arc<str>>, arguments: impl Into<Text>) -> Self {
        Call { id: id.into(), tool: tool.into(), arguments: arguments.into() }
    }
}

impl Other {
    /// The name of its kind.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// The chunk as it was written.
    pub fn json(&self) -> &str {
        &self.json
    }
}
