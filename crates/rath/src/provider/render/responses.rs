//! Rendering requests of OpenAI's Responses.

use rath_record::Step;
use rath_record::chunk::{Assistant, Image, Instructions};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{MissingPayload, RenderedCall, RequestBuilder, RequestTarget, loaded_text, sidecar};
use crate::provider::assemble::json_members;
use crate::provider::report::{ReportPart, Treatment};
use crate::provider::settings::{RESERVED_FOR_RESPONSES, Streaming};

/// Writes everything before the first item.
pub(super) fn open(
    builder: &mut RequestBuilder,
    target: RequestTarget<'_>,
    instructions: Option<(&Step, &Instructions)>,
) -> Result<(), MissingPayload> {
    builder.raw(r#"{"model":"#);
    builder.text(&target.identity.model);
    if let Some((step, instructions)) = instructions {
        let tools = builder.tools(step, &instructions.tools);
        for (nth, (name, description, schema)) in tools.iter().enumerate() {
            builder.raw(if nth > 0 { "," } else { r#","tools":["# });
            builder.raw(r#"{"type":"function","name":"#);
            builder.text(name);
            builder.raw(r#","description":"#);
            builder.text(description);
            builder.raw(r#","parameters":"#);
            builder.raw(schema);
            // Otherwise the server makes every member required.
            builder.raw(if nth + 1 == tools.len() { r#","strict":false}]"# } else { r#","strict":false}"# });
        }
        let text = loaded_text(step, &instructions.text)?;
        if !text.trim().is_empty() {
            builder.raw(r#","instructions":"#);
            builder.text(text);
        }
    }
    builder.raw(r#","input":["#);
    Ok(())
}

pub(super) fn user_text(builder: &mut RequestBuilder, text: &str) {
    builder.raw(r#"{"type":"message","role":"user","content":["#);
    text_part(builder, text);
    builder.raw("]}");
}

pub(super) fn user(
    builder: &mut RequestBuilder,
    step: &Step,
    text: &str,
    images: &[Image],
) -> Result<(), MissingPayload> {
    builder.raw(r#"{"type":"message","role":"user","content":"#);
    parts(builder, step, text, images)?;
    builder.raw("}");
    Ok(())
}

/// Writes a list of a text, unless it is empty, and images.
fn parts(builder: &mut RequestBuilder, step: &Step, text: &str, images: &[Image]) -> Result<(), MissingPayload> {
    builder.raw("[");
    let mut comma = "";
    if !text.trim().is_empty() {
        text_part(builder, text);
        comma = ",";
    }
    for image in images {
        builder.raw(comma);
        comma = ",";
        match builder.image(step, image)? {
            Some((media_type, data)) => {
                builder.raw(r#"{"type":"input_image","image_url":"data:"#);
                builder.raw(media_type);
                builder.raw(";base64,");
                builder.base64(data);
                builder.raw(r#""}"#);
            }
            None => text_part(builder, &super::image_placeholder(image)),
        }
    }
    builder.raw("]");
    Ok(())
}

fn text_part(builder: &mut RequestBuilder, text: &str) {
    builder.raw(r#"{"type":"input_text","text":"#);
    builder.text(text);
    builder.raw("}");
}

pub(super) fn answer(
    builder: &mut RequestBuilder,
    target: RequestTarget<'_>,
    step: &Step,
    answer: &Assistant,
    text: &str,
    calls: &[RenderedCall<'_>],
) -> Result<(), MissingPayload> {
    let layout = sidecar(target, answer).and_then(|sidecar| ItemLayout::parse(sidecar, text, calls.len()));
    if layout.is_some() || answer.sidecar.is_some() || !answer.reasoning.is_empty() {
        let treatment = if layout.is_some() { Treatment::Kept } else { Treatment::Dropped };
        builder.report(step.id(), ReportPart::Reasoning, treatment);
    }
    let layout = layout.unwrap_or_else(|| ItemLayout::plain(text, calls.len()));
    for (nth, item) in layout.items.iter().enumerate() {
        builder.raw(if nth > 0 { "," } else { "" });
        match item {
            LayoutItem::Opaque { json, .. } => builder.raw(json),
            LayoutItem::Message { phase, parts } => message(builder, *phase, parts),
            LayoutItem::Call(nth) => {
                let call = &calls[*nth];
                builder.raw(r#"{"type":"function_call","call_id":"#);
                builder.text(&call.id);
                builder.raw(r#","name":"#);
                builder.text(&call.tool);
                builder.raw(r#","arguments":"#);
                builder.text(&call.arguments);
                builder.raw("}");
            }
        }
    }
    for call in calls {
        builder.raw(r#",{"type":"function_call_output","call_id":"#);
        builder.text(&call.id);
        builder.raw(r#","output":"#);
        match call.images {
            [] => builder.text(call.output),
            images => parts(builder, step, call.output, images)?,
        }
        builder.raw("}");
    }
    Ok(())
}

fn message(builder: &mut RequestBuilder, phase: Option<&RawValue>, parts: &[MessagePart<'_>]) {
    builder.raw(r#"{"type":"message","role":"assistant""#);
    if let Some(phase) = phase {
        builder.raw(r#","phase":"#);
        builder.raw(phase.get());
    }
    builder.raw(r#","content":["#);
    for (nth, part) in parts.iter().enumerate() {
        builder.raw(if nth > 0 { "," } else { "" });
        builder.raw(if part.is_refusal {
            r#"{"type":"refusal","refusal":"#
        } else {
            r#"{"type":"output_text","text":"#
        });
        builder.text(part.text);
        if let Some(annotations) = part.annotations {
            builder.raw(r#","annotations":"#);
            builder.raw(annotations.get());
        }
        builder.raw("}");
    }
    builder.raw("]}");
}

pub(super) fn close(builder: &mut RequestBuilder, target: RequestTarget<'_>) {
    builder.raw("]");
    // Servers refuse options about tools in a request without tools.
    let has_tools = builder.has_tools;
    let is_about_tools = |name: &str| matches!(name, "tool_choice" | "parallel_tool_calls");
    builder.options(target, |name| RESERVED_FOR_RESPONSES.contains(&name) || (!has_tools && is_about_tools(name)));
    // The session is the state: the server keeps none.
    builder.raw(r#","store":false"#);
    if target.settings.stream == Streaming::Pieces {
        builder.raw(r#","stream":true"#);
    }
    builder.raw("}");
}

/// The order of the items of an answer.
///
/// A model expects its encrypted reasoning back at the same position, before the item that it led to.
struct ItemLayout<'a> {
    items: Vec<LayoutItem<'a>>,
}

enum LayoutItem<'a> {
    /// An item that only its provider reads.
    Opaque { json: &'a str, is_reasoning: bool },
    /// A message, with the part of the answer that it is.
    Message { phase: Option<&'a RawValue>, parts: Vec<MessagePart<'a>> },
    /// A call, by its index.
    Call(usize),
}

struct MessagePart<'a> {
    text: &'a str,
    is_refusal: bool,
    annotations: Option<&'a RawValue>,
}

impl<'a> ItemLayout<'a> {
    /// Returns the layout of an answer without a sidecar: the text, then the calls.
    fn plain(text: &'a str, calls: usize) -> Self {
        let part = Some(text).filter(|text| !text.trim().is_empty());
        let part = part.map(|text| MessagePart { text, is_refusal: false, annotations: None });
        let message = part.map(|part| LayoutItem::Message { phase: None, parts: vec![part] });
        ItemLayout { items: message.into_iter().chain((0..calls).map(LayoutItem::Call)).collect() }
    }

    /// Parses the layout in the sidecar. Returns `None` if it does not fit the text and the calls.
    fn parse(sidecar: &'a str, mut text: &'a str, calls: usize) -> Option<Self> {
        #[derive(Deserialize)]
        struct SidecarItems<'a> {
            #[serde(borrow)]
            items: Vec<&'a RawValue>,
        }
        #[derive(Deserialize)]
        struct SidecarItem<'a> {
            #[serde(default)]
            gap: usize,
            #[serde(borrow, default)]
            parts: Vec<SidecarPart<'a>>,
            #[serde(borrow)]
            phase: Option<&'a RawValue>,
            #[serde(borrow)]
            encrypted_content: Option<&'a RawValue>,
        }
        #[derive(Deserialize)]
        struct SidecarPart<'a> {
            bytes: usize,
            #[serde(default)]
            refusal: bool,
            #[serde(borrow)]
            annotations: Option<&'a RawValue>,
        }
        let is_text = |json: &RawValue| json.get().starts_with('"') && json.get() != r#""""#;
        let sidecar: SidecarItems<'a> = serde_json::from_str(sidecar).ok()?;
        let mut items = Vec::with_capacity(sidecar.items.len());
        let mut call_count = 0;
        for json in sidecar.items {
            // Items of other kinds have members of their own.
            let kind = json_members(json.get(), ["type"])[0]?;
            match &*serde_json::from_str::<String>(kind.get()).ok()? {
                "message" => {
                    let item: SidecarItem<'_> = serde_json::from_str(json.get()).ok()?;
                    text = text.split_at_checked(item.gap)?.1;
                    let mut parts = Vec::with_capacity(item.parts.len());
                    for SidecarPart { bytes, refusal: is_refusal, annotations } in item.parts {
                        let (piece, rest) = text.split_at_checked(bytes)?;
                        text = rest;
                        if !piece.trim().is_empty() {
                            let annotations = annotations.filter(|json| json.get().starts_with('['));
                            parts.push(MessagePart { text: piece, is_refusal, annotations });
                        }
                    }
                    if !parts.is_empty() {
                        items.push(LayoutItem::Message { phase: item.phase.filter(|phase| is_text(phase)), parts });
                    }
                }
                "function_call" => {
                    items.push(LayoutItem::Call(call_count));
                    call_count += 1;
                }
                "reasoning" => {
                    let item: SidecarItem<'_> = serde_json::from_str(json.get()).ok()?;
                    item.encrypted_content.filter(|content| is_text(content))?;
                    items.push(LayoutItem::Opaque { json: json.get(), is_reasoning: true });
                }
                // No answer contains these items, so the sidecar is not ours.
                "function_call_output" | "item_reference" => return None,
                _ => items.push(LayoutItem::Opaque { json: json.get(), is_reasoning: false }),
            }
        }
        // An answer that was cut off may end with reasoning, but what it led to has to follow it.
        while matches!(items.last(), Some(LayoutItem::Opaque { is_reasoning: true, .. })) {
            items.pop();
        }
        (text.is_empty() && call_count == calls && !items.is_empty()).then_some(ItemLayout { items })
    }
}
