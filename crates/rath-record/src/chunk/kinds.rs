//! The kinds of chunk, one struct each.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::workspace::{Effect, Tree};
use crate::id::{CallId, Digest, StepId, Timestamp};
use crate::payload::{Blob, Payload, Text};

/// An agent's prompt with its tools and provider identity.
///
/// ```
/// use rath_record::chunk::{Identity, Instructions, ToolSpec};
///
/// let list = ToolSpec::new("list", "Lists a folder.", serde_json::json!({ "type": "object" }));
/// let model = Identity { provider: "openai".to_owned(), model: "gpt-5".to_owned() };
/// let instructions = Instructions::new("You are brief.").with_tools([list]).with_provider(model);
/// assert_eq!(instructions.tools[0].name, "list");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Instructions {
    /// The prompt.
    pub text: Text,
    /// The tools the model may call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ToolSpec>,
    /// The provider that answers under these instructions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<Identity>,
}

/// The description of a tool that is sent to the model.
///
/// See [`Instructions`] for an example.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ToolSpec {
    /// The name that the model calls the tool by.
    pub name: String,
    /// The purpose of the tool, for the model to read.
    pub description: String,
    /// The JSON schema of the arguments.
    pub parameters: Json,
}

/// The name of a provider and its model: something to compare, never a credential.
///
/// See [`Instructions`] for an example.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Identity {
    /// The kind of provider: `openai`, `anthropic`, `script`, ..
    pub provider: String,
    /// The name of the model, as it is requested.
    pub model: String,
}

/// A message from the user.
///
/// ```
/// use rath_record::chunk::{Chunk, Image, User};
///
/// let user = User::new("What is this?").with_images([Image::new("image/png", [0x89, 0x50])]);
/// assert_eq!(Chunk::from(user.clone()).payloads().len(), 1);
/// assert_eq!(user.images[0].blob.bytes(), 2);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct User {
    /// The text of the message.
    pub text: Text,
    /// The images in the message.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<Image>,
}

/// An image. The chunk holds its digest; the bytes are stored as a payload.
///
/// See [`User`] for an example.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Image {
    /// The media type, for example `image/png`.
    pub media_type: String,
    /// The image's bytes.
    pub blob: Blob,
}

/// An answer of the model.
///
/// ```
/// use rath_record::chunk::{Assistant, Call, Finish};
///
/// let answer = Assistant::new("I will look.")
///     .with_calls([Call::new("c1", "list", r#"{"path":"."}"#)])
///     .with_finish(Finish::Calls);
/// assert_eq!(&*answer.calls[0].tool, "list");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Assistant {
    /// The text of the answer.
    #[serde(default, skip_serializing_if = "Text::is_empty")]
    pub text: Text,
    /// The reasoning, as far as the provider shows it.
    #[serde(default, skip_serializing_if = "Text::is_empty")]
    pub reasoning: Text,
    /// The tool calls that the model asks for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<Call>,
    /// The reason why the model stopped.
    pub finish: Finish,
    /// The digest of the request, exactly as it was sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<Digest>,
    /// The parts of the request that are not on the record: its wire format and its options.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settings: Option<Json>,
    /// The provider and model that answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<Identity>,
    /// Facts about the answer as the provider reports them: its id, the model that served it, its own token count, ..
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub facts: Option<Json>,
    /// State that only this provider can read (signatures, encrypted reasoning); never sent to another provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sidecar: Option<Json>,
}

/// A tool call, as the model wrote it.
///
/// See [`Assistant`] for an example.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Call {
    /// The id that the provider gave the call.
    pub id: CallId,
    /// The name of the tool.
    pub tool: Arc<str>,
    /// The arguments exactly as the model wrote them, which need not be valid JSON.
    #[serde(default, skip_serializing_if = "Text::is_empty")]
    pub arguments: Text,
}

/// The reason why a model stopped.
///
/// Part of [`Assistant`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Finish {
    /// The model was done.
    #[default]
    Stop,
    /// The model asks for tool calls.
    Calls,
    /// The model reached its token limit.
    Length,
    /// The provider withheld the rest of the answer.
    Filtered,
}

/// A tool call is about to take effect.
///
/// This is recorded before the effect starts, so that a crash cannot hide a call that ran.
///
/// Part of [`Chunk`](super::Chunk).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ToolStarted {
    /// The call that starts.
    pub call: CallId,
    /// The idempotency key: a tool that supports one may run again under it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The rule of a policy that allowed the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
}

/// A tool call ended.
///
/// ```
/// use rath_record::chunk::{Change, Effect, Outcome, ToolResult};
///
/// let result = ToolResult::new("c1", Outcome::Ok, "written").with_effects([Effect::new("a.txt", Change::Created)]);
/// assert_eq!(result.effects[0].path, "a.txt");
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ToolResult {
    /// The call that ended.
    pub call: CallId,
    /// The way in which the call ended.
    pub outcome: Outcome,
    /// The output that the model reads.
    pub output: Text,
    /// The full output of the tool, if the model reads only a part of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub whole: Option<Text>,
    /// The changes to files in the workspace, as observed after the call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub effects: Vec<Effect>,
    /// The workspace tree after the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<Tree>,
    /// The files that the call changed and that were put back as before, since the policy does not allow it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub put_back: Vec<String>,
    /// The files that the call changed against the policy and that could not be put back, so the change is still there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_put_back: Vec<String>,
    /// The images in the output.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<Image>,
    /// The output as a value for programs, if the tool gives one. The model does not read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub structured: Option<Json>,
}

/// The way in which a tool call ended.
///
/// Part of [`ToolResult`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Outcome {
    /// The tool succeeded.
    Ok,
    /// There is no such tool.
    UnknownTool,
    /// The arguments were not JSON.
    BadJson,
    /// The arguments do not match the schema.
    BadArguments,
    /// The tool reported an error.
    Failed,
    /// The call reached its time limit.
    TimedOut,
    /// A person or a rule denied the call.
    Denied,
    /// The run was stopped before the call ended.
    Cancelled,
    /// The call may or may not have taken effect: the process died before the result was recorded.
    Unknown,
}

/// The session was bound to a sandbox.
///
/// Part of [`Chunk`](super::Chunk).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Placed {
    /// The sandbox's URI, for example `local:./`.
    pub place: String,
    /// The workspace tree in the sandbox, if it is known already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<Tree>,
}

/// Something was written to a memory or read from one.
///
/// Part of [`Chunk`](super::Chunk).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Memory {
    /// The memory's URI.
    pub memory: String,
    /// The operation on the memory.
    pub event: MemoryEvent,
}

/// The URI of a [`Memory`] that is none: what is recalled from it are facts about the project in which a session began.
///
/// Models read them as the project's words, and not as the user's.
pub const PROJECT_CONTEXT: &str = "project:";

/// An operation on a memory.
///
/// Part of [`Memory`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum MemoryEvent {
    /// A fact was added.
    Remember {
        /// The fact.
        text: Text,
        /// The path of the fact in the memory, if it is not the usual one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        path: Option<String>,
        /// The steps that say it, if it was found in them.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        steps: Vec<String>,
    },
    /// The memory was searched.
    Recall {
        /// The search text.
        query: Text,
        /// The entries that were found, best first.
        found: Vec<RecalledEntry>,
        /// The position of the memory up to which entries of others were searched.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        position: Option<u32>,
        /// The reason why a part of the memory was not searched, or not in every way.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        notice: Option<String>,
    },
    /// The facts added so far were made durable.
    Commit {
        /// The names of the entries that were written.
        entries: Vec<String>,
        /// The position of the memory up to which entries of others are known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        position: Option<u32>,
    },
    /// Entries were removed.
    Forget {
        /// The names of the entries.
        entries: Vec<String>,
    },
}

/// An entry that a search of a memory returned.
///
/// Part of [`MemoryEvent`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RecalledEntry {
    /// The name of the entry in its memory.
    pub entry: String,
    /// The text of the entry.
    pub text: Text,
    /// The score of the entry for the search text, in thousandths.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<u32>,
    /// The name of the person or agent who said it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub said_by: Option<String>,
    /// The time at which it was said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    /// The session that it came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The steps of that session that hold what the entry says.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<String>,
}

/// Earlier steps were folded into a summary.
///
/// Nothing is removed from the record: views hide the steps that are named here.
///
/// See [`Fold`](crate::view::Fold) for an example.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Compressed {
    /// The steps that the model no longer sees.
    pub hidden: Vec<StepId>,
    /// The steps that the fold considered and left visible.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<StepId>,
    /// The summary, which the model reads at the place of the first hidden step.
    pub summary: Text,
}

/// A selector asked a model to choose a route.
///
/// Part of [`Chunk`](super::Chunk).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Selected {
    /// The routes on offer.
    pub menu: Vec<Route>,
    /// The model's raw reply.
    pub reply: Text,
    /// The choice that the reply was parsed into.
    pub choice: Choice,
    /// The digest of the request, exactly as it was sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<Digest>,
}

/// One route on a selector's menu.
///
/// Part of [`Selected`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Route {
    /// The name of the route.
    pub name: String,
    /// The description that the selector reads.
    pub description: String,
}

/// The result of parsing a selector's reply.
///
/// Part of [`Selected`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Choice {
    /// A route was chosen.
    Chosen {
        /// The name of the route.
        route: String,
    },
    /// No further route is needed.
    Done,
    /// The reply names a route that is not on the menu.
    OutOfRange,
    /// The reply could not be parsed.
    Unparseable,
    /// The reply was empty.
    Empty,
}

/// A check ran.
///
/// See [`Checks`](crate::view::Checks) for an example.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Checked {
    /// The check's command, or its name.
    pub check: String,
    /// The result of the check.
    pub verdict: Verdict,
    /// The output of the check.
    #[serde(default, skip_serializing_if = "Text::is_empty")]
    pub output: Text,
    /// The workspace tree that the check ran on; none if files changed while it ran, or are not observed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<Tree>,
    /// The files and directories that the check depends on; an empty list means all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<String>,
}

/// The result of a check.
///
/// Part of [`Checked`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Verdict {
    /// The check passed.
    Passed,
    /// The check ran and failed.
    Failed,
    /// The check could not be run.
    Broken,
}

/// A model call failed and will be retried.
///
/// Part of [`Chunk`](super::Chunk).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Retry {
    /// The number of the attempt that failed, from 1.
    pub attempt: u32,
    /// The number of attempts allowed.
    pub of: u32,
    /// The error of the attempt.
    pub error: Text,
    /// The model that was asked, if the attempt used tokens: those of the step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<Identity>,
}

/// The run was stopped from outside.
///
/// Part of [`Chunk`](super::Chunk).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Interrupted {
    /// The reason for stopping, and what stopped the run.
    pub reason: Text,
    /// The text of an answer that had arrived by then, if there is some. No model reads it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partial: Option<Text>,
    /// The model that was asked, if the attempt used tokens: those of the step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<Identity>,
}

/// A person is asked about a call. The run ended because of that, unless the decision follows.
///
/// Part of [`Chunk`](super::Chunk).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Asked {
    /// The call that waits.
    pub call: CallId,
    /// The reason why a person has to decide.
    pub why: String,
    /// The rule or the mode of the policy that asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// A digest of the files and hosts that the question is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<Digest>,
}

/// The answer that asked for a call, and the position of the call in it.
///
/// Ids of calls come from models, which use them again: a decision names the one call that it is about.
///
/// Part of [`Approved`] and [`Denied`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallOrigin {
    /// The step of the answer.
    pub answer: StepId,
    /// The position among the calls of the answer, from 0.
    pub index: u32,
}

/// A person approved a call.
///
/// Part of [`Chunk`](super::Chunk).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Approved {
    /// The call that may run.
    pub call: CallId,
    /// The origin of the call. A decision without it belongs to the first call with the id that it fits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<CallOrigin>,
    /// A digest of the files and hosts that the person was shown. The approval is about these, and no others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<Digest>,
    /// The person who approved it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The rules that the person gave with the approval. They hold for later calls of this session.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<String>,
}

/// A person or a rule denied a call.
///
/// Part of [`Chunk`](super::Chunk).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Denied {
    /// The call that must not run.
    pub call: CallId,
    /// The origin of the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<CallOrigin>,
    /// The reason, for the model to read.
    pub reason: Text,
    /// The person who denied it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The rule of a policy that denied it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
}

/// The run failed.
///
/// Part of [`Chunk`](super::Chunk).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Failed {
    /// The kind of failure.
    pub error: String,
    /// The message for a person to read.
    pub message: Text,
    /// The text of an answer that had arrived by then, if there is some. No model reads it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partial: Option<Text>,
    /// The model that was asked, if the attempt used tokens: those of the step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<Identity>,
}

/// A person continued the session although something had changed since it was left.
///
/// Part of [`Chunk`](super::Chunk).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Resumed {
    /// The differences, each as a short text.
    pub differences: Vec<String>,
    /// True if the session was copied from a damaged file: it may lack steps or files that the file had.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_incomplete: bool,
}

/// A person took over a session that others made.
///
/// Places and decisions before this step are not in force after it: the session is placed anew, and calls that are open
/// are made only if they are approved.
///
/// Part of [`Chunk`](super::Chunk).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Adopted {
    /// The name of the person.
    pub by: String,
}

/// A remark that no model sees.
///
/// Part of [`Chunk`](super::Chunk).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Note {
    /// The text of the remark.
    pub text: Text,
}

/// A chunk that this version cannot read: its kind is newer, or its members do not match.
///
/// ```
/// use rath_record::Chunk;
///
/// let json = r#"{"kind":"applause","volume":11}"#;
/// let Chunk::Other(other) = Chunk::decode(json)? else { panic!("this version knows the kind") };
/// assert_eq!((other.kind(), other.json()), ("applause", json));
/// # Ok::<(), rath_record::chunk::ChunkError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Other {
    pub(super) kind: String,
    pub(super) json: String,
    /// The payloads of the chunk, found by looking for quoted digests. They are kept, and never reported as missing.
    pub(super) payloads: Vec<(Digest, Payload)>,
}

/// JSON text, kept as written except that it is on one line.
///
/// Two values are equal if their texts are.
///
/// ```
/// use rath_record::chunk::Json;
///
/// let json = Json::parse("{ \"b\": 1.0, \"a\": 2 }")?;
/// assert_eq!(json.as_str(), "{ \"b\": 1.0, \"a\": 2 }");
/// # Ok::<(), serde_json::Error>(())
/// ```
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
    /// Parses a JSON text.
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

/// Shows the JSON text as it is written.
impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Takes the text without parsing it again, if it is on one line already.
impl From<Box<RawValue>> for Json {
    fn from(json: Box<RawValue>) -> Self {
        let has_line_break = memchr::memchr2(b'\n', b'\r', json.get().as_bytes()).is_some();
        if has_line_break || json.get().starts_with([' ', '\t']) {
            return Json::parse(json.get()).expect("it is valid JSON already");
        }
        Json(json.into())
    }
}

impl From<serde_json::Value> for Json {
    fn from(value: serde_json::Value) -> Self {
        Json::parse(&value.to_string()).expect("a value is written as JSON")
    }
}

/// Shows the identity as in a URI: `openai:gpt-5`.
impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.provider, self.model)
    }
}

impl Other {
    /// The name of the chunk's kind.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// The chunk's JSON, exactly as it was written.
    pub fn json(&self) -> &str {
        &self.json
    }
}
