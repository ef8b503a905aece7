//! The payloads of chunk rows.

use std::sync::Arc;

use rath_record::Text;
use rath_record::chunk::{Assistant, Call, Chunk, Instructions, Outcome, ToolResult};
use serde_json::value::RawValue;

use crate::interchange::extras::Extras;
use crate::interchange::notes::{NoteCode, Notes};
use crate::interchange::object::ObjectReader;

/// Reads the payload of a chunk row; none if the kind is unknown.
pub(super) fn read_payload(kind: &str, payload: &mut ObjectReader<'_>, notes: &Notes) -> Option<(Chunk, Extras)> {
    let extras: Extras = payload.take("rath", "what rath writes there").unwrap_or_default();
    Some(match kind {
        "system" => read_system(payload, extras),
        "user" => (Chunk::user(take_content(payload)), extras),
        "assistant" => read_assistant(payload, extras, notes),
        "tool_result" => read_result(payload, extras),
        _ => return None,
    })
}

/// Takes the text of a row, and notes a missing one.
fn take_content(payload: &mut ObjectReader<'_>) -> Text {
    match payload.take_raw("content") {
        Some(raw) => parse_text(&raw, payload),
        None => {
            payload.note(NoteCode::Invalid, "there is no `content`");
            Text::default()
        }
    }
}

/// Parses a string. Any other JSON is noted and kept as the text.
fn parse_text(raw: &RawValue, payload: &ObjectReader<'_>) -> Text {
    serde_json::from_str::<String>(raw.get()).map(Text::from).unwrap_or_else(|_| {
        payload.note(NoteCode::Invalid, "wanted a string as `content`: its JSON is kept as the text");
        raw.get().into()
    })
}

fn read_system(payload: &mut ObjectReader<'_>, mut extras: Extras) -> (Chunk, Extras) {
    let (tools, provider) = (extras.tools.take().unwrap_or_default(), extras.provider.take());
    (Chunk::Instructions(Instructions::new(take_content(payload)).with_tools(tools).with_provider(provider)), extras)
}

fn read_assistant(payload: &mut ObjectReader<'_>, mut extras: Extras, notes: &Notes) -> (Chunk, Extras) {
    let calls: Vec<Call> = payload
        .take_list("tool_calls")
        .iter()
        .zip(1_u64..)
        .filter_map(|(raw, nth)| {
            let location = format!("{}, call {nth}", payload.location());
            read_call(ObjectReader::parse_or_note(location, raw, notes)?, nth)
        })
        .collect();
    // An answer may consist of calls only, so a missing text is not noted.
    let text = payload.take_raw("content").map(|raw| parse_text(&raw, payload)).unwrap_or_default();
    let reasoning = extras.reasoning.take().map(Text::from).unwrap_or_default();
    let mut answer = Assistant::new(text).with_reasoning(reasoning).with_calls(calls);
    extras.fill_answer(&mut answer);
    (Chunk::Assistant(answer), extras)
}

/// Reads a call; none if it has no function.
fn read_call(mut call: ObjectReader<'_>, nth: u64) -> Option<Call> {
    let id = call.take_string("id").unwrap_or_else(|| {
        call.note(NoteCode::Invalid, "there is no `id`, so no result belongs to it");
        format!("call-{nth}")
    });
    if call.take_string("type").is_none_or(|kind| kind != "function") {
        call.note(NoteCode::Invalid, "wanted `function` as `type`");
    }
    let Some(mut function) = call.take_object("function") else {
        call.note(NoteCode::LeftOut, "there is no `function`: the call is left out");
        return None;
    };
    let name = function.take_string("name").unwrap_or_else(|| {
        function.note(NoteCode::Invalid, "there is no `name`");
        String::new()
    });
    // Some models omit the arguments of a tool that takes none, and some servers send an object instead of a string.
    let arguments = function.take_raw("arguments").map(|raw| match serde_json::from_str::<String>(raw.get()) {
        Ok(arguments) => arguments,
        Err(_) => raw.get().to_owned(),
    });
    function.finish();
    call.finish();
    Some(Call::new(id, Arc::<str>::from(name), arguments.unwrap_or_default()))
}

fn read_result(payload: &mut ObjectReader<'_>, mut extras: Extras) -> (Chunk, Extras) {
    let call = payload.take_string("tool_call_id").unwrap_or_else(|| {
        payload.note(NoteCode::Invalid, "there is no `tool_call_id`, so it belongs to no call");
        String::new()
    });
    // The call names the tool.
    payload.take_string("name");
    let output = take_content(payload);
    let mut result = ToolResult::new(call, output.as_str().map_or(Outcome::Ok, parse_outcome), output.clone());
    extras.fill_result(&mut result);
    (Chunk::ToolResult(result), extras)
}

/// Parses the outcome of a call from its output, where the Python OpenRath reports failures to the model.
fn parse_outcome(output: &str) -> Outcome {
    #[derive(serde::Deserialize)]
    struct FailureOutput {
        ok: bool,
        error_kind: String,
    }
    match serde_json::from_str::<FailureOutput>(output) {
        Ok(FailureOutput { ok: false, error_kind }) => match error_kind.as_str() {
            "unknown_tool" => Outcome::UnknownTool,
            "invalid_tool_arguments" => Outcome::BadJson,
            _ => Outcome::Failed,
        },
        _ => Outcome::Ok,
    }
}
