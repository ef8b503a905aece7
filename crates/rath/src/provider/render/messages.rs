//! Rendering requests of Anthropic's Messages.

use rath_record::Step;
use rath_record::chunk::{Assistant, Image, Instructions};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{MissingPayload, RenderedCall, RequestBuilder, RequestTarget, Role, loaded_text, sidecar};
use crate::provider::report::{ReportPart, Treatment};
use crate::provider::settings::{PromptCache, Streaming};

/// The tool that is declared if a conversation has calls and there are no tools: a request with calls must name tools.
const PLACEHOLDER_TOOL: &str = r#","tools":[{"name":"none","description":"There is no tool.","input_schema":{"type":"object","properties":{}}}],"tool_choice":{"type":"none"}"#;

/// Writes everything before the first message.
///
/// The cache marker on the last tool or on the instructions covers the part that all conversations of an agent have in
/// common. The marker that moves with the conversation stands after the messages, so that it changes none of them.
pub(super) fn open(
    builder: &mut RequestBuilder,
    target: RequestTarget<'_>,
    instructions: Option<(&Step, &Instructions)>,
) -> Result<(), MissingPayload> {
    builder.raw(r#"{"model":"#);
    builder.text(&target.identity.model);
    if let Some((step, instructions)) = instructions {
        let text = loaded_text(step, &instructions.text)?;
        let text = Some(text).filter(|text| !text.trim().is_empty());
        let tools = builder.tools(step, &instructions.tools);
        let last = tools.len().saturating_sub(1);
        for (nth, (name, description, schema)) in tools.iter().enumerate() {
            builder.raw(if nth > 0 { "," } else { r#","tools":["# });
            builder.raw(r#"{"name":"#);
            builder.text(name);
            builder.raw(r#","description":"#);
            builder.text(description);
            builder.raw(r#","input_schema":"#);
            builder.raw(schema);
            if nth == last && text.is_none() {
                cache_control(builder, target);
            }
            builder.raw(if nth == last { "}]" } else { "}" });
        }
        if let Some(text) = text {
            builder.raw(r#","system":[{"type":"text","text":"#);
            builder.text(text);
            cache_control(builder, target);
            builder.raw("}]");
        }
    }
    builder.raw(r#","messages":["#);
    Ok(())
}

pub(super) fn user_text(builder: &mut RequestBuilder, text: &str) {
    builder.raw(r#"{"role":"user","content":[{"type":"text","text":"#);
    builder.text(text);
    builder.raw("}]}");
}

pub(super) fn user(
    builder: &mut RequestBuilder,
    step: &Step,
    text: &str,
    images: &[Image],
) -> Result<(), MissingPayload> {
    builder.raw(r#"{"role":"user","content":["#);
    let mut comma = "";
    for image in images {
        builder.raw(comma);
        comma = ",";
        image_block(builder, step, image)?;
    }
    if !text.trim().is_empty() {
        builder.raw(comma);
        text_block(builder, text);
    }
    builder.raw("]}");
    Ok(())
}

/// Writes the blocks of a result: the text, then the images.
fn text_and_images(
    builder: &mut RequestBuilder,
    step: &Step,
    text: &str,
    images: &[Image],
) -> Result<(), MissingPayload> {
    let mut comma = "";
    if !text.trim().is_empty() {
        text_block(builder, text);
        comma = ",";
    }
    for image in images {
        builder.raw(comma);
        comma = ",";
        image_block(builder, step, image)?;
    }
    Ok(())
}

fn image_block(builder: &mut RequestBuilder, step: &Step, image: &Image) -> Result<(), MissingPayload> {
    match builder.image(step, image)? {
        Some((media_type, data)) => {
            builder.raw(r#"{"type":"image","source":{"type":"base64","media_type":"#);
            builder.text(media_type);
            builder.raw(r#","data":""#);
            builder.base64(data);
            builder.raw(r#""}}"#);
        }
        None => text_block(builder, &super::image_placeholder(image)),
    }
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
    builder.raw(r#"{"role":"assistant","content":["#);
    let layout = sidecar(target, answer).and_then(|sidecar| BlockLayout::parse(sidecar, text, calls.len()));
    if layout.is_some() || answer.sidecar.is_some() || !answer.reasoning.is_empty() {
        builder.report(
            step.id(),
            ReportPart::Reasoning,
            if layout.is_some() { Treatment::Kept } else { Treatment::Dropped },
        );
    }
    let layout = layout.unwrap_or_else(|| BlockLayout::plain(text, calls.len()));
    builder.begins_with_reasoning.get_or_insert(layout.begins_with_reasoning());
    let mut comma = "";
    for piece in layout.blocks {
        builder.raw(comma);
        comma = ",";
        match piece {
            LayoutBlock::Opaque { json, .. } => builder.raw(json),
            LayoutBlock::Text(text) => text_block(builder, text),
            LayoutBlock::Call(nth) => {
                builder.raw(r#"{"type":"tool_use","id":"#);
                builder.text(&calls[nth].id);
                builder.raw(r#","name":"#);
                builder.text(&calls[nth].tool);
                builder.raw(r#","input":"#);
                builder.raw(&calls[nth].arguments);
                builder.raw("}");
            }
        }
    }
    builder.raw("]}");
    for (nth, call) in calls.iter().enumerate() {
        builder.raw(if nth > 0 { "," } else { r#",{"role":"user","content":["# });
        builder.raw(r#"{"type":"tool_result","tool_use_id":"#);
        builder.text(&call.id);
        builder.raw(r#","content":"#);
        match call.images {
            [] => builder.text(call.output),
            images => {
                builder.raw("[");
                text_and_images(builder, step, call.output, images)?;
                builder.raw("]");
            }
        }
        builder.raw(if call.failed { r#","is_error":true}"# } else { "}" });
    }
    builder.raw(if calls.is_empty() { "" } else { "]}" });
    Ok(())
}

pub(super) fn close(builder: &mut RequestBuilder, target: RequestTarget<'_>) {
    builder.raw("]");
    // Reasoning cannot begin in the middle of a turn: it is not requested after calls that were made without it.
    let may_reason = builder.begins_with_reasoning == Some(true) || builder.last_role != Some(Role::Results);
    let has_tools = builder.has_tools;
    if let Some(step) = builder.last_answer.filter(|_| !may_reason && target.settings.option("thinking").is_some()) {
        builder.report(step, ReportPart::Thinking, Treatment::Dropped);
    }
    builder.options(target, |name| (!may_reason && name == "thinking") || (!has_tools && name == "tool_choice"));
    if !has_tools && builder.has_calls {
        builder.raw(PLACEHOLDER_TOOL);
    }
    cache_control(builder, target);
    if target.settings.stream == Streaming::Pieces {
        builder.raw(r#","stream":true"#);
    }
    builder.raw("}");
}

fn text_block(builder: &mut RequestBuilder, text: &str) {
    builder.raw(r#"{"type":"text","text":"#);
    builder.text(text);
    builder.raw("}");
}

fn cache_control(builder: &mut RequestBuilder, target: RequestTarget<'_>) {
    match target.settings.cache {
        None => {}
        Some(PromptCache::Minutes) => builder.raw(r#","cache_control":{"type":"ephemeral"}"#),
        Some(PromptCache::Hour) => builder.raw(r#","cache_control":{"type":"ephemeral","ttl":"1h"}"#),
    }
}

/// The order of the blocks of an answer.
///
/// A model that signs its reasoning expects it back at the same position.
struct BlockLayout<'a> {
    blocks: Vec<LayoutBlock<'a>>,
}

enum LayoutBlock<'a> {
    /// A block that only its provider reads.
    Opaque { json: &'a str, is_reasoning: bool },
    /// A part of the text.
    Text(&'a str),
    /// A call, by its index.
    Call(usize),
}

impl<'a> BlockLayout<'a> {
    /// Returns the layout of an answer without a sidecar: the text, then the calls.
    fn plain(text: &'a str, calls: usize) -> Self {
        let text = Some(text).filter(|text| !text.trim().is_empty()).map(LayoutBlock::Text);
        BlockLayout { blocks: text.into_iter().chain((0..calls).map(LayoutBlock::Call)).collect() }
    }

    /// Parses the layout in the sidecar. Returns `None` if it does not fit the text and the calls.
    fn parse(sidecar: &'a str, mut text: &'a str, calls: usize) -> Option<Self> {
        #[derive(Deserialize)]
        struct SidecarContent<'a> {
            #[serde(borrow)]
            content: Vec<&'a RawValue>,
        }
        #[derive(Deserialize)]
        struct SidecarBlock<'a> {
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
        let is_nonempty = |json: Option<&RawValue>| is_text(json) && json.is_some_and(|json| json.get() != r#""""#);
        let sidecar: SidecarContent<'a> = serde_json::from_str(sidecar).ok()?;
        let mut blocks = Vec::with_capacity(sidecar.content.len());
        let mut call_count = 0;
        for json in sidecar.content {
            let block: SidecarBlock<'_> = serde_json::from_str(json.get()).ok()?;
            let opaque = |is_reasoning| LayoutBlock::Opaque { json: json.get(), is_reasoning };
            match (&*block.r#type, block.bytes) {
                ("text", Some(bytes)) => {
                    let (piece, rest) = text.split_at_checked(bytes)?;
                    text = rest;
                    if !piece.trim().is_empty() {
                        blocks.push(LayoutBlock::Text(piece));
                    }
                }
                ("tool_use", _) => {
                    blocks.push(LayoutBlock::Call(call_count));
                    call_count += 1;
                }
                // No answer contains these blocks, so the sidecar is not ours.
                ("text" | "tool_result" | "image" | "document", _) => return None,
                _ if block.cache_control.is_some() => return None,
                ("thinking", _) if is_text(block.thinking) && is_nonempty(block.signature) => blocks.push(opaque(true)),
                ("redacted_thinking", _) if is_nonempty(block.data) => blocks.push(opaque(true)),
                ("thinking" | "redacted_thinking", _) => return None,
                _ => blocks.push(opaque(false)),
            }
        }
        // An answer that was cut off may end with reasoning, but a message in a request may not.
        while matches!(blocks.last(), Some(LayoutBlock::Opaque { is_reasoning: true, .. })) {
            blocks.pop();
        }
        (text.is_empty() && call_count == calls).then_some(BlockLayout { blocks })
    }

    fn begins_with_reasoning(&self) -> bool {
        matches!(self.blocks.first(), Some(LayoutBlock::Opaque { is_reasoning: true, .. }))
    }
}
