//! The objects inside a trajectory: the agent, tools, calls, messages and metrics.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use rath_record::chunk::{Call, Identity, Image, Json, ToolSpec};
use rath_record::{Usage, draw};
use serde_json::value::RawValue;

use crate::interchange::extras::Extras;
use crate::interchange::notes::{NoteCode, Notes};
use crate::interchange::object::ObjectReader;

/// The agent of a trajectory.
#[derive(Default)]
pub(super) struct AgentInfo {
    pub(super) name: Option<String>,
    pub(super) version: Option<String>,
    pub(super) model: Option<String>,
    pub(super) tools: Vec<ToolSpec>,
}

impl AgentInfo {
    pub(super) fn read(mut agent: ObjectReader<'_>, notes: &Notes) -> Self {
        let [name, version, model] = ["name", "version", "model_name"].map(|name| agent.take_string(name));
        if agent.take_raw("extra").is_some() {
            agent.note(NoteCode::LeftOut, "its `extra` is left out");
        }
        let location = agent.location().to_owned();
        let tools = agent.take_list("tool_definitions");
        let tools = tools.iter().zip(1_u64..).filter_map(|(raw, nth)| {
            read_tool(ObjectReader::parse_or_note(format!("{location}, tool {nth}"), raw, notes)?)
        });
        let tools = tools.collect();
        agent.finish();
        AgentInfo { name, version, model, tools }
    }
}

/// Reads a tool in the form of the OpenAI or the Anthropic API.
fn read_tool(mut tool: ObjectReader<'_>) -> Option<ToolSpec> {
    let function = tool.take_object("function");
    let mut spec = function.unwrap_or(tool);
    let Some(name) = spec.take_string("name") else {
        spec.note(NoteCode::LeftOut, "there is no `name`: the tool is left out");
        return None;
    };
    let description = spec.take_string("description").unwrap_or_default();
    let parameters = spec.take_raw("parameters").or_else(|| spec.take_raw("input_schema")).map(Json::from);
    let any = || Json::from(serde_json::json!({ "type": "object" }));
    Some(ToolSpec::new(name, description, parameters.unwrap_or_else(any)))
}

/// Reads a call; none if it does not name a function.
pub(super) fn read_call(mut call: ObjectReader<'_>, nth: u64, notes: &Notes) -> Option<Call> {
    let extras = take_extras(&mut call, notes);
    let id = call.take_string("tool_call_id").unwrap_or_else(|| {
        call.note(NoteCode::Invalid, "there is no `tool_call_id`");
        format!("call-{nth}")
    });
    let Some(name) = call.take_string("function_name") else {
        call.note(NoteCode::LeftOut, "there is no `function_name`: the call is left out");
        return None;
    };
    let raw = call.take_raw("arguments");
    if !raw.as_ref().is_some_and(|raw| raw.get().starts_with('{')) {
        call.note(NoteCode::Invalid, "wanted an object as `arguments`");
    }
    let arguments = extras.arguments.or(raw.map(|raw| raw.get().to_owned())).unwrap_or_default();
    call.finish();
    Some(Call::new(id, Arc::<str>::from(name), arguments))
}

/// The cost of a model call.
#[derive(Default)]
pub(super) struct StepMetrics {
    pub(super) usage: Option<Usage>,
    /// In US dollars.
    pub(super) cost: Option<f64>,
}

impl StepMetrics {
    pub(super) fn read(mut metrics: ObjectReader<'_>, notes: &Notes) -> Self {
        let [input, output, cached] =
            ["prompt_tokens", "completion_tokens", "cached_tokens"].map(|name| metrics.take_number(name));
        let cost = metrics.take("cost_usd", "an amount");
        for name in ["prompt_token_ids", "completion_token_ids", "logprobs"] {
            if metrics.take_raw(name).is_some() {
                notes.count(NoteCode::LeftOut, "list of tokens", "left out: a session holds text");
            }
        }
        let reasoning = metrics.take_object("extra").and_then(|mut extra| extra.take_number("reasoning_tokens"));
        let usage = Usage {
            cached_read: cached.unwrap_or_default(),
            reasoning: reasoning.unwrap_or_default(),
            ..Usage::new(input.unwrap_or_default(), output.unwrap_or_default())
        };
        metrics.finish();
        StepMetrics { usage: (input.is_some() || output.is_some()).then_some(usage), cost }
    }
}

/// Takes what rath wrote into the `extra` of an object.
pub(super) fn take_extras(object: &mut ObjectReader<'_>, notes: &Notes) -> Extras {
    let Some(mut extra) = object.take_object("extra") else { return Extras::default() };
    let extras = extra.take("rath", "what rath writes there");
    if !extra.is_empty() {
        notes.count(NoteCode::LeftOut, "`extra` member", "left out");
    }
    extras.unwrap_or_default()
}

/// Takes a member that is a text or a list of texts and pictures.
pub(super) fn take_content(object: &mut ObjectReader<'_>, name: &str, notes: &Notes) -> Option<(String, Vec<Image>)> {
    let raw = object.take_raw(name)?;
    if let Ok(text) = serde_json::from_str::<String>(raw.get()) {
        return Some((text, Vec::new()));
    }
    let Ok(parts) = serde_json::from_str::<Vec<Box<RawValue>>>(raw.get()) else {
        object.note(
            NoteCode::Invalid,
            format_args!("wanted a string or a list of parts as `{name}`: its JSON is kept as the text"),
        );
        return Some((raw.get().to_owned(), Vec::new()));
    };
    let (mut texts, mut images) = (Vec::new(), Vec::new());
    for (raw, nth) in parts.iter().zip(1_u64..) {
        let location = format!("{}, part {nth}", object.location());
        let Some(mut part) = ObjectReader::parse_or_note(location, raw, notes) else { continue };
        let kind = part.take_string("type");
        texts.extend(part.take_string("text"));
        if let Some(mut source) = part.take_object("source") {
            let media_type = source.take_string("media_type").unwrap_or_default();
            let path = source.take_string("path").unwrap_or_default();
            source.take_raw("duration_sec");
            match decode_image(&media_type, &path).filter(|_| kind.as_deref() == Some("image")) {
                Some(image) => images.push(image),
                None => {
                    part.note(
                        NoteCode::Elsewhere,
                        format_args!("left out, because it is not in the document: {}", draw::preview(&path)),
                    );
                }
            }
            source.finish();
        }
        part.finish();
    }
    Some((texts.join("\n"), images))
}

/// Parses the name of a model, with or without `provider/` before it.
pub(super) fn parse_identity(model: &str) -> Identity {
    let (provider, model) = model.split_once('/').unwrap_or(("unknown", model));
    Identity { provider: provider.to_owned(), model: model.to_owned() }
}

/// Decodes a picture from a `data:` URL; none for any other path.
fn decode_image(media_type: &str, path: &str) -> Option<Image> {
    let data = path.strip_prefix("data:")?.strip_prefix(media_type)?.strip_prefix(";base64,")?;
    Some(Image::new(media_type, BASE64.decode(data).ok()?))
}
