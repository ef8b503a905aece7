//! Conversations as JSON, in the form of OpenTelemetry's conventions for generative AI.

use rath_record::Text;
use rath_record::chunk::{Assistant, Call, Image};
use rath_record::view::{CallResult, Message};
use serde_json::{Value, json};

use super::finish_name;

/// Returns the value of `gen_ai.system_instructions`.
pub(super) fn instructions(text: &Text) -> String {
    json!([text_part(text)]).to_string()
}

/// Returns the value of `gen_ai.input.messages`.
pub(super) fn conversation(messages: &[Message<'_>]) -> String {
    Value::Array(messages.iter().flat_map(message).collect()).to_string()
}

/// Returns the value of `gen_ai.output.messages`.
pub(super) fn answer(answer: &Assistant) -> String {
    let calls = answer.calls.iter().map(|call| call_part(&call.id.0, call));
    let parts = said_parts(answer).chain(calls).collect::<Vec<_>>();
    json!([{"role": "assistant", "parts": parts, "finish_reason": finish_name(answer.finish)}]).to_string()
}

/// Returns a message, and one for each result of its calls.
fn message(message: &Message<'_>) -> Vec<Value> {
    match message {
        Message::User(_, user) => {
            let images = user.images.iter().map(image_part);
            vec![role("user", std::iter::once(text_part(&user.text)).chain(images).collect())]
        }
        Message::Recalled(_, entries) => {
            vec![role("user", entries.iter().map(|entry| text_part(&entry.text)).collect())]
        }
        Message::Summary(_, summary) => vec![role("user", vec![text_part(summary)])],
        Message::Assistant(_, answer, exchanges) => {
            let calls = exchanges.iter().map(|exchange| call_part(&exchange.id.0, exchange.call));
            let results = exchanges.iter().filter_map(|exchange| match &exchange.result {
                CallResult::Recorded(result) => {
                    let response = loaded(&result.output);
                    let part = json!({"type": "tool_call_response", "id": *exchange.id.0, "response": response});
                    Some(role("tool", std::iter::once(part).chain(result.images.iter().map(image_part)).collect()))
                }
                CallResult::Missing => None,
            });
            std::iter::once(role("assistant", said_parts(answer).chain(calls).collect())).chain(results).collect()
        }
    }
}

fn role(role: &str, parts: Vec<Value>) -> Value {
    json!({"role": role, "parts": parts})
}

/// Returns the parts of an answer without its calls.
fn said_parts(answer: &Assistant) -> impl Iterator<Item = Value> {
    let reasoning = Some(loaded(&answer.reasoning)).filter(|reasoning| !reasoning.is_empty());
    let text = Some(&answer.text).filter(|text| !text.is_empty());
    let reasoning = reasoning.map(|reasoning| json!({"type": "reasoning", "content": reasoning}));
    reasoning.into_iter().chain(text.map(text_part))
}

fn text_part(text: &Text) -> Value {
    json!({"type": "text", "content": loaded(text)})
}

/// Returns a call. Arguments that are not JSON are a text.
fn call_part(id: &str, call: &Call) -> Value {
    let arguments = loaded(&call.arguments);
    let arguments = serde_json::from_str(arguments).unwrap_or_else(|_| Value::from(arguments));
    json!({"type": "tool_call", "id": id, "name": *call.tool, "arguments": arguments})
}

/// Returns an image without its bytes.
fn image_part(image: &Image) -> Value {
    json!({"type": "blob", "modality": "image", "mime_type": image.media_type})
}

/// Returns a text, or an empty one if it is not loaded.
fn loaded(text: &Text) -> &str {
    text.as_str().unwrap_or_default()
}
