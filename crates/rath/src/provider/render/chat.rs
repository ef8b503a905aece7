//! Requests in the shape of OpenAI's Chat Completions.

use rath_record::Step;
use rath_record::chunk::{Assistant, Image, Instructions};

use super::{Away, Page, Sent, Target, here, members, sidecar};
use crate::provider::assemble::REASONING;
use crate::provider::report::{Fate, Part};
use crate::provider::settings::Streaming;

pub(super) fn open(
    page: &mut Page,
    target: Target<'_>,
    instructions: Option<(&Step, &Instructions)>,
) -> Result<(), Away> {
    page.raw(r#"{"model":"#);
    page.text(&target.identity.model);
    if let Some((step, instructions)) = instructions
        && !instructions.tools.is_empty()
    {
        page.raw(r#","tools":["#);
        for (nth, (name, description, schema)) in page.tools(step, &instructions.tools).into_iter().enumerate() {
            page.raw(if nth > 0 { "," } else { "" });
            page.raw(r#"{"type":"function","function":{"name":"#);
            page.text(&name);
            page.raw(r#","description":"#);
            page.text(description);
            page.raw(r#","parameters":"#);
            page.raw(&schema);
            page.raw("}}");
        }
        page.raw("]");
    }
    page.raw(r#","messages":["#);
    if let Some((step, instructions)) = instructions {
        let text = here(step, &instructions.text)?;
        if !text.trim().is_empty() {
            page.raw(r#"{"role":"system","content":"#);
            page.text(text);
            page.raw("}");
            page.begun = true;
        }
    }
    Ok(())
}

pub(super) fn words(page: &mut Page, text: &str) {
    page.raw(r#"{"role":"user","content":"#);
    page.text(text);
    page.raw("}");
}

pub(super) fn user(page: &mut Page, step: &Step, text: &str, images: &[Image]) -> Result<(), Away> {
    if images.is_empty() {
        words(page, text);
        return Ok(());
    }
    page.raw(r#"{"role":"user","content":["#);
    let mut comma = "";
    if !text.trim().is_empty() {
        page.raw(r#"{"type":"text","text":"#);
        page.text(text);
        page.raw("}");
        comma = ",";
    }
    for image in images {
        page.raw(comma);
        comma = ",";
        match page.image(step, image)? {
            Some((media_type, data)) => {
                page.raw(r#"{"type":"image_url","image_url":{"url":"data:"#);
                page.raw(media_type);
                page.raw(";base64,");
                page.base64(data);
                page.raw(r#""}}"#);
            }
            None => {
                page.raw(r#"{"type":"text","text":"#);
                page.text(&super::no_image(image));
                page.raw("}");
            }
        }
    }
    page.raw("]}");
    Ok(())
}

pub(super) fn answer(
    page: &mut Page,
    target: Target<'_>,
    step: &Step,
    answer: &Assistant,
    text: &str,
    calls: &[Sent<'_>],
) -> Result<(), Away> {
    page.raw(r#"{"role":"assistant","content":"#);
    if text.trim().is_empty() {
        page.raw("null");
    } else {
        page.text(text);
    }
    reasoning(page, target, step, answer, calls)?;
    if !calls.is_empty() {
        page.raw(r#","tool_calls":["#);
        for (nth, call) in calls.iter().enumerate() {
            page.raw(if nth > 0 { "," } else { "" });
            page.raw(r#"{"id":"#);
            page.text(&call.id);
            page.raw(r#","type":"function","function":{"name":"#);
            page.text(&call.tool);
            page.raw(r#","arguments":"#);
            page.text(&call.arguments);
            page.raw("}}");
        }
        page.raw("]");
    }
    page.raw("}");
    for call in calls {
        page.raw(r#",{"role":"tool","tool_call_id":"#);
        page.text(&call.id);
        page.raw(r#","content":"#);
        page.text(call.output);
        page.raw("}");
    }
    Ok(())
}

/// Sends reasoning back under the name it came under. Plain text goes with calls only: models want it while they work
/// through a turn, and some servers refuse it elsewhere.
fn reasoning(
    page: &mut Page,
    target: Target<'_>,
    step: &Step,
    answer: &Assistant,
    calls: &[Sent<'_>],
) -> Result<(), Away> {
    let sidecar = sidecar(target, answer).and_then(members).unwrap_or_default();
    let mut sent = false;
    if let Some(details) = sidecar.get("reasoning_details").filter(|details| details.get().starts_with('[')) {
        page.raw(r#","reasoning_details":"#);
        page.raw(details.get());
        sent = true;
    }
    let name = sidecar.get("reasoning").and_then(|name| serde_json::from_str::<String>(name.get()).ok());
    let name = name.filter(|name| REASONING.contains(&&**name));
    let reasoning = here(step, &answer.reasoning)?;
    if let Some(name) = name.filter(|_| !sent && !calls.is_empty() && !reasoning.is_empty()) {
        page.raw(",");
        page.text(&name);
        page.raw(":");
        page.text(reasoning);
        sent = true;
    }
    if sent || !reasoning.is_empty() || answer.sidecar.is_some() {
        page.note(step.id(), Part::Reasoning, if sent { Fate::Kept } else { Fate::Dropped });
    }
    Ok(())
}

pub(super) fn close(page: &mut Page, target: Target<'_>) {
    page.raw("]");
    // Servers refuse what is said about tools where there are none.
    let tools = page.tools;
    page.options(target, |name| !tools && matches!(name, "tool_choice" | "parallel_tool_calls"));
    if target.settings.stream == Streaming::Pieces {
        page.raw(r#","stream":true,"stream_options":{"include_usage":true}"#);
    }
    page.raw("}");
}
