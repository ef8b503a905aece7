//! Requests in the shape of Anthropic's Messages.

use rath_record::Step;
use rath_record::chunk::{Assistant, Image, Instructions};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Away, Page, Role, Sent, Target, here, sidecar};
use crate::provider::report::{Fate, Part};
use crate::provider::settings::{Cache, Streaming};

/// What is declared where a conversation holds calls and there is no tool: a request with calls must name tools.
const NO_TOOLS: &str = r#","tools":[{"name":"none","description":"There is no tool.","input_schema":{"type":"object","properties":{}}}],"tool_choice":{"type":"none"}"#;

/// The marks on the last tool or the instructions hold what every conversation of an agent begins with. The one that
/// moves with the conversation stands after the messages, so that it changes none of them.
pub(super) fn open(
    page: &mut Page,
    target: Target<'_>,
    instructions: Option<(&Step, &Instructions)>,
) -> Result<(), Away> {
    page.raw(r#"{"model":"#);
    page.text(&target.identity.model);
    if let Some((step, instructions)) = instructions {
        let text = here(step, &instructions.text)?;
        let text = Some(text).filter(|text| !text.trim().is_empty());
        let tools = page.tools(step, &instructions.tools);
        let last = tools.len().saturating_sub(1);
        for (nth, (name, description, schema)) in tools.iter().enumerate() {
            page.raw(if nth > 0 { "," } else { r#","tools":["# });
            page.raw(r#"{"name":"#);
            page.text(name);
            page.raw(r#","description":"#);
            page.text(description);
            page.raw(r#","input_schema":"#);
            page.raw(schema);
            if nth == last && text.is_none() {
                cache_control(page, target);
            }
            page.raw(if nth == last { "}]" } else { "}" });
        }
        if let Some(text) = text {
            page.raw(r#","system":[{"type":"text","text":"#);
            page.text(text);
            cache_control(page, target);
            page.raw("}]");
        }
    }
    page.raw(r#","messages":["#);
    Ok(())
}

pub(super) fn words(page: &mut Page, text: &str) {
    page.raw(r#"{"role":"user","content":[{"type":"text","text":"#);
    page.text(text);
    page.raw("}]}");
}

pub(super) fn user(page: &mut Page, step: &Step, text: &str, images: &[Image]) -> Result<(), Away> {
    page.raw(r#"{"role":"user","content":["#);
    let mut comma = "";
    for image in images {
        page.raw(comma);
        comma = ",";
        match page.image(step, image)? {
            Some((media_type, data)) => {
                page.raw(r#"{"type":"image","source":{"type":"base64","media_type":"#);
                page.text(media_type);
                page.raw(r#","data":""#);
                page.base64(data);
                page.raw(r#""}}"#);
            }
            None => block(page, &super::no_image(image)),
        }
    }
    if !text.trim().is_empty() {
        page.raw(comma);
        block(page, text);
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
    page.raw(r#"{"role":"assistant","content":["#);
    let layout = sidecar(target, answer).and_then(|sidecar| Layout::read(sidecar, text, calls.len()));
    if layout.is_some() || answer.sidecar.is_some() || !answer.reasoning.is_empty() {
        page.note(step.id(), Part::Reasoning, if layout.is_some() { Fate::Kept } else { Fate::Dropped });
    }
    let layout = layout.unwrap_or_else(|| Layout::plain(text, calls.len()));
    page.reasons.get_or_insert(layout.reasons());
    let mut comma = "";
    for piece in layout.pieces {
        page.raw(comma);
        comma = ",";
        match piece {
            Piece::Opaque { json, .. } => page.raw(json),
            Piece::Text(text) => block(page, text),
            Piece::Call(nth) => {
                page.raw(r#"{"type":"tool_use","id":"#);
                page.text(&calls[nth].id);
                page.raw(r#","name":"#);
                page.text(&calls[nth].tool);
                page.raw(r#","input":"#);
                page.raw(&calls[nth].arguments);
                page.raw("}");
            }
        }
    }
    page.raw("]}");
    for (nth, call) in calls.iter().enumerate() {
        page.raw(if nth > 0 { "," } else { r#",{"role":"user","content":["# });
        page.raw(r#"{"type":"tool_result","tool_use_id":"#);
        page.text(&call.id);
        page.raw(r#","content":"#);
        page.text(call.output);
        page.raw(if call.failed { r#","is_error":true}"# } else { "}" });
    }
    page.raw(if calls.is_empty() { "" } else { "]}" });
    Ok(())
}

pub(super) fn close(page: &mut Page, target: Target<'_>) {
    page.raw("]");
    // Reasoning cannot begin in the middle of a turn: after calls that were made without it, it is not asked for.
    let thinking = page.reasons == Some(true) || page.last != Some(Role::Results);
    let tools = page.tools;
    if let Some(step) = page.answered.filter(|_| !thinking && target.settings.option("thinking").is_some()) {
        page.note(step, Part::Thinking, Fate::Dropped);
    }
    page.options(target, |name| (!thinking && name == "thinking") || (!tools && name == "tool_choice"));
    if !tools && page.calls {
        page.raw(NO_TOOLS);
    }
    cache_control(page, target);
    if target.settings.stream == Streaming::Pieces {
        page.raw(r#","stream":true"#);
    }
    page.raw("}");
}

fn block(page: &mut Page, text: &str) {
    page.raw(r#"{"type":"text","text":"#);
    page.text(text);
    page.raw("}");
}

fn cache_control(page: &mut Page, target: Target<'_>) {
    match target.settings.cache {
        None => {}
        Some(Cache::Minutes) => page.raw(r#","cache_control":{"type":"ephemeral"}"#),
        Some(Cache::Hour) => page.raw(r#","cache_control":{"type":"ephemeral","ttl":"1h"}"#),
    }
}

/// The order in which the pieces of an answer stood: a model that signs its reasoning wants it back where it was.
struct Layout<'a> {
    pieces: Vec<Piece<'a>>,
}

enum Piece<'a> {
    /// A block that only its provider reads.
    Opaque { json: &'a str, reasons: bool },
    /// A part of the text.
    Text(&'a str),
    /// A call, by its place.
    Call(usize),
}

impl<'a> Layout<'a> {
    /// The words, then the calls.
    fn plain(text: &'a str, calls: usize) -> Self {
        let text = Some(text).filter(|text| !text.trim().is_empty()).map(Piece::Text);
        Layout { pieces: text.into_iter().chain((0..calls).map(Piece::Call)).collect() }
    }

    /// As the sidecar has it, if that fits the text and the calls.
    fn read(sidecar: &'a str, mut text: &'a str, calls: usize) -> Option<Self> {
        #[derive(Deserialize)]
        struct Sidecar<'a> {
            #[serde(borrow)]
            content: Vec<&'a RawValue>,
        }
        #[derive(Deserialize)]
        struct Block<'a> {
            r#type: String,
            bytes: Option<usize>,
            #[serde(borrow)]
            thinking: Option<&'a RawValue>,
            #[serde(borrow)]
            signature: Option<&'a RawValue>,
            #[serde(borrow)]
            data: Option<&'a RawValue>,
            #[serde(borrow)]
            cache_control: Option<&'a RawValue>,
        }
        let is_text = |json: Option<&RawValue>| json.is_some_and(|json| json.get().starts_with('"'));
        let says = |json: Option<&RawValue>| is_text(json) && json.is_some_and(|json| json.get() != r#""""#);
        let sidecar: Sidecar<'a> = serde_json::from_str(sidecar).ok()?;
        let mut pieces = Vec::with_capacity(sidecar.content.len());
        let mut called = 0;
        for json in sidecar.content {
            let block: Block<'_> = serde_json::from_str(json.get()).ok()?;
            let opaque = |reasons| Piece::Opaque { json: json.get(), reasons };
            match (&*block.r#type, block.bytes) {
                ("text", Some(bytes)) => {
                    let (piece, rest) = text.split_at_checked(bytes)?;
                    text = rest;
                    if !piece.trim().is_empty() {
                        pieces.push(Piece::Text(piece));
                    }
                }
                ("tool_use", _) => {
                    pieces.push(Piece::Call(called));
                    called += 1;
                }
                // What no answer holds: somebody else wrote it.
                ("text" | "tool_result" | "image" | "document", _) => return None,
                _ if block.cache_control.is_some() => return None,
                ("thinking", _) if is_text(block.thinking) && says(block.signature) => pieces.push(opaque(true)),
                ("redacted_thinking", _) if says(block.data) => pieces.push(opaque(true)),
                ("thinking" | "redacted_thinking", _) => return None,
                _ => pieces.push(opaque(false)),
            }
        }
        // An answer that was cut off may end with reasoning; a message may not.
        while matches!(pieces.last(), Some(Piece::Opaque { reasons: true, .. })) {
            pieces.pop();
        }
        (text.is_empty() && called == calls).then_some(Layout { pieces })
    }

    fn reasons(&self) -> bool {
        matches!(self.pieces.first(), Some(Piece::Opaque { reasons: true, .. }))
    }
}
