//! Rendering requests of OpenAI's Chat Completions.

use rath_record::Step;
use rath_record::chunk::{Assistant, Image, Instructions};
use serde_json::value::RawValue;

use super::{MissingPayload, RenderedCall, RequestBuilder, RequestTarget, loaded_text, sidecar};
use crate::provider::assemble::{REASONING_MEMBERS, json_list, json_members};
use crate::provider::report::{ReportPart, Treatment};
use crate::provider::settings::Streaming;

pub(super) fn open(
    builder: &mut RequestBuilder,
    target: RequestTarget<'_>,
    instructions: Option<(&Step, &Instructions)>,
) -> Result<(), MissingPayload> {
    builder.raw(r#"{"model":"#);
    builder.text(&target.identity.model);
    if let Some((step, instructions)) = instructions
        && !instructions.tools.is_empty()
    {
        builder.raw(r#","tools":["#);
        for (nth, (name, description, schema)) in builder.tools(step, &instructions.tools).into_iter().enumerate() {
            builder.raw(if nth > 0 { "," } else { "" });
            builder.raw(r#"{"type":"function","function":{"name":"#);
            builder.text(&name);
            builder.raw(r#","description":"#);
            builder.text(description);
            builder.raw(r#","parameters":"#);
            builder.raw(&schema);
            builder.raw("}}");
        }
        builder.raw("]");
    }
    builder.raw(r#","messages":["#);
    if let Some((step, instructions)) = instructions {
        let text = loaded_text(step, &instructions.text)?;
        if !text.trim().is_empty() {
            builder.raw(r#"{"role":"system","content":"#);
            builder.text(text);
            builder.raw("}");
            builder.has_messages = true;
        }
    }
    Ok(())
}

pub(super) fn user_text(builder: &mut RequestBuilder, text: &str) {
    builder.raw(r#"{"role":"user","content":"#);
    builder.text(text);
    builder.raw("}");
}

pub(super) fn user(
    builder: &mut RequestBuilder,
    step: &Step,
    text: &str,
    images: &[Image],
) -> Result<(), MissingPayload> {
    if images.is_empty() {
        user_text(builder, text);
        return Ok(());
    }
    builder.raw(r#"{"role":"user","content":["#);
    let mut comma = "";
    if !text.trim().is_empty() {
        builder.raw(r#"{"type":"text","text":"#);
        builder.text(text);
        builder.raw("}");
        comma = ",";
    }
    for image in images {
        builder.raw(comma);
        comma = ",";
        match builder.image(step, image)? {
            Some((media_type, data)) => {
                builder.raw(r#"{"type":"image_url","image_url":{"url":"data:"#);
                builder.raw(media_type);
                builder.raw(";base64,");
                builder.base64(data);
                builder.raw(r#""}}"#);
            }
            None => {
                builder.raw(r#"{"type":"text","text":"#);
                builder.text(&super::image_placeholder(image));
                builder.raw("}");
            }
        }
    }
    builder.raw("]}");
    Ok(())
}

pub(super) fn answer(
    builder: &mut RequestBuilder,
    target: RequestTarget<'_>,
    step: &Step,
    answer: &Assistant,
    text: &str,
    calls: &[RenderedCall<'_>],
) -> Result<(), MissingPayload> {
    builder.raw(r#"{"role":"assistant","content":"#);
    if text.trim().is_empty() {
        builder.raw("null");
    } else {
        builder.text(text);
    }
    reasoning(builder, target, step, answer, calls)?;
    let extras = call_extras(target, answer, calls.len());
    if !calls.is_empty() {
        builder.raw(r#","tool_calls":["#);
        for (nth, call) in calls.iter().enumerate() {
            builder.raw(if nth > 0 { "," } else { "" });
            builder.raw(r#"{"id":"#);
            builder.text(&call.id);
            builder.raw(r#","type":"function","function":{"name":"#);
            builder.text(&call.tool);
            builder.raw(r#","arguments":"#);
            builder.text(&call.arguments);
            builder.raw("}");
            if let Some(extra) = extras.get(nth).filter(|extra| extra.get().starts_with('{')) {
                builder.raw(r#","extra_content":"#);
                builder.raw(extra.get());
            }
            builder.raw("}");
        }
        builder.raw("]");
    }
    builder.raw("}");
    for call in calls {
        builder.raw(r#",{"role":"tool","tool_call_id":"#);
        builder.text(&call.id);
        builder.raw(r#","content":"#);
        match call.images {
            [] => builder.text(call.output),
            images => {
                let text = with_images_named(builder, step, call.output, images);
                builder.text(&text);
            }
        }
        builder.raw("}");
    }
    Ok(())
}

/// Returns the extra content of each call, which only its provider reads; none if the sidecar does not fit the calls.
fn call_extras<'a>(target: RequestTarget<'_>, answer: &'a Assistant, calls: usize) -> Vec<&'a RawValue> {
    let [extras] = json_members(sidecar(target, answer).unwrap_or_default(), ["calls"]);
    let is_state = |extra: &&RawValue| extra.get().starts_with('{');
    let fits = |extras: &Vec<&RawValue>| extras.len() == calls && extras.iter().any(is_state);
    extras.and_then(json_list).filter(fits).unwrap_or_default()
}

/// Returns the text of a result with a line for each image: a message of a tool holds text only.
fn with_images_named(builder: &mut RequestBuilder, step: &Step, text: &str, images: &[Image]) -> String {
    let mut text = text.to_owned();
    for image in images {
        builder.report(step.id(), ReportPart::ToolImage, Treatment::Rewritten);
        text.push_str(if text.is_empty() || text.ends_with('\n') { "" } else { "\n" });
        let bytes = image.blob.bytes();
        text.push_str(&format!("[image: {}, {bytes} bytes, not shown to this model]", image.media_type));
    }
    text
}

/// Writes reasoning into the member that it was received in, and Google's signature of the message.
///
/// Plain text is sent with calls only: models need it while they work through a turn, and some servers refuse it elsewhere.
fn reasoning(
    builder: &mut RequestBuilder,
    target: RequestTarget<'_>,
    step: &Step,
    answer: &Assistant,
    calls: &[RenderedCall<'_>],
) -> Result<(), MissingPayload> {
    let sidecar = sidecar(target, answer).unwrap_or_default();
    let [details, name, signature] = json_members(sidecar, ["reasoning_details", "reasoning", "signature"]);
    let mut sent = !call_extras(target, answer, calls.len()).is_empty();
    let details = details.filter(|details| details.get().starts_with('['));
    if let Some(details) = details {
        builder.raw(r#","reasoning_details":"#);
        builder.raw(details.get());
        sent = true;
    }
    let name = name.and_then(|name| serde_json::from_str::<String>(name.get()).ok());
    let name = name.filter(|name| REASONING_MEMBERS.contains(&&**name));
    let reasoning = loaded_text(step, &answer.reasoning)?;
    let has_details = details.is_some();
    if let Some(name) = name.filter(|_| !has_details && !calls.is_empty() && !reasoning.is_empty()) {
        builder.raw(",");
        builder.text(&name);
        builder.raw(":");
        builder.text(reasoning);
        sent = true;
    }
    if let Some(signature) = signature.filter(|signature| signature.get().starts_with('"')) {
        builder.raw(r#","extra_content":{"google":{"thought_signature":"#);
        builder.raw(signature.get());
        builder.raw("}}");
        sent = true;
    }
    if sent || !reasoning.is_empty() || answer.sidecar.is_some() {
        builder.report(step.id(), ReportPart::Reasoning, if sent { Treatment::Kept } else { Treatment::Dropped });
    }
    Ok(())
}

pub(super) fn close(builder: &mut RequestBuilder, target: RequestTarget<'_>) {
    builder.raw("]");
    // Servers refuse options about tools in a request without tools.
    let has_tools = builder.has_tools;
    builder.options(target, |name| !has_tools && matches!(name, "tool_choice" | "parallel_tool_calls"));
    if target.settings.stream == Streaming::Pieces {
        builder.raw(r#","stream":true,"stream_options":{"include_usage":true}"#);
    }
    builder.raw("}");
}
