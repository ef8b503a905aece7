//! The parts of a request that do not come from the record.

use std::collections::BTreeMap;

use rath_record::chunk::Json;
use serde::{Deserialize, Serialize};

use super::error::{ProviderError, ProviderErrorKind};
use super::output_limit::{LoweredLimit, UNKNOWN_OUTPUT_TOKENS};

/// The parts of a request that do not come from the record.
///
/// They are stored with every answer, so that its request can be rebuilt.
///
/// ```
/// use rath::provider::{Settings, Shape};
///
/// let mut settings = Settings::new(Shape::Chat);
/// settings.set("temperature", 0.2)?;
/// assert!(settings.set("messages", "mine").is_err()); // the renderer writes this member
/// # Ok::<(), rath::provider::ProviderError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// The shape of the request.
    pub shape: Shape,
    /// Requests an answer in pieces, or as a whole.
    pub stream: Streaming,
    /// The time that the provider is asked to cache the prompt, for providers that have to be asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<PromptCache>,
    /// The change that a budget made to the options of this request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) lowered: Option<LoweredLimit>,
    /// Further members of the request, as JSON.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    options: BTreeMap<String, Json>,
}

/// The shape of requests and answers: the API that a server speaks.
///
/// A change to the bytes that a renderer writes is a new shape, because old requests must stay rebuildable.
///
/// Passed to [`Settings::new`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Shape {
    /// OpenAI's Chat Completions, which most servers understand.
    #[serde(rename = "chat/1")]
    Chat,
    /// Anthropic's Messages.
    #[serde(rename = "messages/1")]
    Messages,
    /// OpenAI's Responses, without state at the server.
    #[serde(rename = "responses/1")]
    Responses,
    /// Gemini's generateContent.
    #[serde(rename = "gemini/1")]
    Gemini,
}

/// The delivery of an answer.
///
/// Part of [`Settings`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Streaming {
    /// In pieces, as the model writes them.
    Pieces,
    /// The whole answer at once.
    Whole,
}

/// The time that a provider is asked to cache a prompt.
///
/// Part of [`Settings`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PromptCache {
    /// Five minutes from its last use.
    Minutes,
    /// An hour from its last use; writing costs more.
    Hour,
}

/// Members of a request that the renderer writes itself.
const RESERVED_MEMBERS: [&str; 7] =
    ["cache_control", "messages", "model", "stream", "stream_options", "system", "tools"];

/// Further ones of [`Shape::Gemini`].
const RESERVED_FOR_GEMINI: [&str; 3] = ["contents", "systemInstruction", "system_instruction"];

/// The option of [`Shape::Gemini`] whose members are options themselves.
const GENERATION_CONFIG: &str = "generationConfig";

/// Further ones of [`Shape::Responses`]: with a state at the server, the session would not have everything.
pub(super) const RESERVED_FOR_RESPONSES: [&str; 5] =
    ["background", "input", "instructions", "previous_response_id", "store"];

impl Settings {
    /// Returns settings for answers in pieces, without options.
    ///
    /// [`Shape::Messages`] gets a prompt cache of minutes, and a limit of answer tokens, which it requires.
    pub fn new(shape: Shape) -> Self {
        let (cache, options) = match shape {
            Shape::Chat | Shape::Responses | Shape::Gemini => (None, BTreeMap::new()),
            Shape::Messages => (
                Some(PromptCache::Minutes),
                BTreeMap::from([("max_tokens".to_owned(), to_json(&UNKNOWN_OUTPUT_TOKENS))]),
            ),
        };
        Settings { shape, stream: Streaming::Pieces, cache, lowered: None, options }
    }

    /// Sets a further member of the request: `temperature`, `tool_choice`, ..
    ///
    /// In [`Shape::Gemini`], the members of `generationConfig` are set by their own names, or all together by its name.
    pub fn set(&mut self, name: &str, value: impl Serialize) -> Result<(), ProviderError> {
        let reserved: &[&str] = match self.shape {
            Shape::Responses => &RESERVED_FOR_RESPONSES,
            Shape::Gemini => &RESERVED_FOR_GEMINI,
            Shape::Chat | Shape::Messages => &[],
        };
        if RESERVED_MEMBERS.contains(&name) || reserved.contains(&name) {
            let message = format!("`{name}` cannot be an option: it follows from the session and the provider");
            return Err(ProviderError::new(ProviderErrorKind::Setup, message));
        }
        let text = serde_json::to_string(&value).map_err(|error| {
            let message = format!("the option `{name}` cannot be written as JSON");
            ProviderError::new(ProviderErrorKind::Setup, message).because(error)
        })?;
        if self.shape == Shape::Gemini && name == GENERATION_CONFIG {
            let members: BTreeMap<String, Json> = serde_json::from_str(&text).map_err(|error| {
                let message = format!("the option `{name}` is not an object");
                ProviderError::new(ProviderErrorKind::Setup, message).because(error)
            })?;
            self.options.extend(members);
            return Ok(());
        }
        let value = Json::parse(&text).expect("serde_json writes JSON");
        self.options.insert(name.to_owned(), value);
        Ok(())
    }

    /// Sets a further member that the renderer does not write, unless it is set.
    #[cfg(feature = "http")]
    pub(super) fn set_default(&mut self, name: &str, value: impl Serialize) {
        self.options.entry(name.to_owned()).or_insert_with(|| to_json(&value));
    }

    /// Removes a further member, and returns it.
    pub(super) fn take(&mut self, name: &str) -> Option<Json> {
        self.options.remove(name)
    }

    /// Returns the further members, by name.
    pub fn options(&self) -> impl Iterator<Item = (&str, &Json)> {
        self.options.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// Returns one of the further members.
    pub(crate) fn option(&self, name: &str) -> Option<&Json> {
        self.options.get(name)
    }

    /// Returns the JSON that is stored with an answer.
    pub(crate) fn to_json(&self) -> Json {
        to_json(self)
    }

    pub(crate) fn from_json(json: &Json) -> Result<Self, serde_json::Error> {
        serde_json::from_str(json.as_str())
    }
}

fn to_json(value: &impl Serialize) -> Json {
    let text = serde_json::to_string(value).expect("settings have string keys");
    Json::parse(&text).expect("serde_json writes JSON")
}
