//! What a request holds beside what is in the record.

use std::collections::BTreeMap;

use rath_record::chunk::Json;
use serde::{Deserialize, Serialize};

use crate::error::ErrorKind;
use crate::session::{Error, Result};

/// What a request holds beside what is in the record. Stored with every answer, so that its request can be rebuilt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// The shape of the request.
    pub shape: Shape,
    /// Whether the answer comes piece by piece.
    pub stream: Streaming,
    /// How long the provider is asked to keep the prompt, where it wants to be asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<Cache>,
    /// Further members of the request, as they are.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    options: BTreeMap<String, Json>,
}

/// The shape of a request. A change to the bytes that a renderer makes is a new shape: old requests must stay rebuildable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Shape {
    /// OpenAI's Chat Completions, which most servers understand.
    #[serde(rename = "chat/1")]
    Chat,
    /// Anthropic's Messages.
    #[serde(rename = "messages/1")]
    Messages,
}

/// Whether an answer comes piece by piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Streaming {
    /// Piece by piece.
    Pieces,
    /// At once.
    Whole,
}

/// How long a provider is asked to keep a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cache {
    /// Five minutes from its last use.
    Minutes,
    /// An hour from its last use; writing costs more.
    Hour,
}

/// Members that the renderer writes itself.
const RESERVED: [&str; 7] = ["cache_control", "messages", "model", "stream", "stream_options", "system", "tools"];

impl Settings {
    /// Pieces, no options, and for [`Shape::Messages`] a cache and a limit of answer tokens, which it demands.
    pub fn new(shape: Shape) -> Self {
        let (cache, options) = match shape {
            Shape::Chat => (None, BTreeMap::new()),
            Shape::Messages => (Some(Cache::Minutes), BTreeMap::from([("max_tokens".to_owned(), json(&8192))])),
        };
        Settings { shape, stream: Streaming::Pieces, cache, options }
    }

    /// Sets a further member of the request: `temperature`, `tool_choice`, ..
    pub fn set(&mut self, name: &str, value: impl Serialize) -> Result<()> {
        if RESERVED.contains(&name) {
            let message = format!("`{name}` is not an option: it follows from the session and the provider");
            return Err(Error::new(ErrorKind::Provider, message));
        }
        let text = serde_json::to_string(&value).map_err(|error| {
            Error::new(ErrorKind::Provider, format_args!("the option `{name}` cannot be written as JSON: {error}"))
        })?;
        let value = Json::parse(&text).expect("serde_json writes JSON");
        self.options.insert(name.to_owned(), value);
        Ok(())
    }

    /// The further members, by name.
    pub fn options(&self) -> impl Iterator<Item = (&str, &Json)> {
        self.options.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// One of them.
    pub(crate) fn option(&self, name: &str) -> Option<&Json> {
        self.options.get(name)
    }

    /// As it is stored with an answer.
    pub(crate) fn to_json(&self) -> Json {
        json(self)
    }

    pub(crate) fn from_json(json: &Json) -> Result<Self, serde_json::Error> {
        serde_json::from_str(json.as_str())
    }
}

fn json(value: &impl Serialize) -> Json {
    let text = serde_json::to_string(value).expect("settings have string keys");
    Json::parse(&text).expect("serde_json writes JSON")
}
