//! Rendering requests of Gemini's generateContent.
//!
//! User and model take turns: what follows a message of the user, or the results of calls, is a further part of the same content.
//! Such a content stays open until the model speaks, so that every request begins with the bytes of the one before.

use std::borrow::Cow;

use rath_record::Step;
use rath_record::chunk::{Assistant, Image, Instructions};
use serde_json::value::RawValue;

use super::{MissingPayload, RenderedCall, RequestBuilder, RequestTarget, Role, loaded_text, sidecar};
use crate::provider::assemble::{each_member, json_list, json_members};
use crate::provider::report::{ReportPart, Treatment};

/// The options that are members of the request. All others are members of its `generationConfig`.
const REQUEST_OPTIONS: [&str; 6] = ["cachedContent", "labels", "safetySettings", "serviceTier", "store", "toolConfig"];

/// The signature that the API documents for calls of other models, which have none.
const NO_SIGNATURE: &str = r#","thoughtSignature":"skip_thought_signature_validator""#;

/// The first letters of the models that know neither signatures that are required nor pictures in results.
const BEFORE_GEMINI_3: [&str; 6] = ["gemini-1", "gemini-2", "gemini-pro", "gemma", "learnlm", "text-"];

/// Writes everything before the first content.
pub(super) fn open(
    builder: &mut RequestBuilder,
    instructions: Option<(&Step, &Instructions)>,
) -> Result<(), MissingPayload> {
    builder.raw("{");
    if let Some((step, instructions)) = instructions {
        let tools = builder.tools(step, &instructions.tools);
        for (nth, (name, description, schema)) in tools.iter().enumerate() {
            builder.raw(if nth > 0 { "," } else { r#""tools":[{"functionDeclarations":["# });
            builder.raw(r#"{"name":"#);
            builder.text(name);
            builder.raw(r#","description":"#);
            builder.text(description);
            builder.raw(r#","parametersJsonSchema":"#);
            builder.raw(schema);
            builder.raw(if nth + 1 == tools.len() { "}]}]," } else { "}" });
        }
        let text = loaded_text(step, &instructions.text)?;
        if !text.trim().is_empty() {
            builder.raw(r#""systemInstruction":{"parts":["#);
            text_part(builder, text);
            builder.raw("]},");
        }
    }
    builder.raw(r#""contents":["#);
    Ok(())
}

/// Begins a part of the user's content, or closes that content for an answer.
pub(super) fn separate(builder: &mut RequestBuilder, role: Role) {
    match (builder.has_open_content, role) {
        (true, Role::User) => builder.raw(","),
        (true, _) => {
            close_content(builder);
            builder.raw(",");
        }
        (false, role) => {
            builder.raw(if builder.has_messages { "," } else { "" });
            if role == Role::User {
                builder.raw(r#"{"role":"user","parts":["#);
                builder.has_open_content = true;
            }
        }
    }
}

fn close_content(builder: &mut RequestBuilder) {
    builder.raw(if builder.has_open_content { "]}" } else { "" });
    builder.has_open_content = false;
}

pub(super) fn text_part(builder: &mut RequestBuilder, text: &str) {
    builder.raw(r#"{"text":"#);
    builder.text(text);
    builder.raw("}");
}

pub(super) fn user(
    builder: &mut RequestBuilder,
    step: &Step,
    text: &str,
    images: &[Image],
) -> Result<(), MissingPayload> {
    let mut comma = "";
    if !text.trim().is_empty() {
        text_part(builder, text);
        comma = ",";
    }
    for image in images {
        builder.raw(comma);
        comma = ",";
        if !image_part(builder, step, image)? {
            text_part(builder, &super::image_placeholder(image));
        }
    }
    Ok(())
}

/// Writes an image, unless models cannot read it. Returns true if it is written.
fn image_part(builder: &mut RequestBuilder, step: &Step, image: &Image) -> Result<bool, MissingPayload> {
    let Some((media_type, data)) = builder.image(step, image)? else { return Ok(false) };
    builder.raw(r#"{"inlineData":{"mimeType":"#);
    builder.text(media_type);
    builder.raw(r#","data":""#);
    builder.base64(data);
    builder.raw(r#""}}"#);
    Ok(true)
}

pub(super) fn answer(
    builder: &mut RequestBuilder,
    target: RequestTarget<'_>,
    step: &Step,
    answer: &Assistant,
    text: &str,
    calls: &[RenderedCall<'_>],
) -> Result<(), MissingPayload> {
    let sidecar = sidecar(target, answer);
    // Reasoning is needed only where the sidecar says which part of it is signed.
    let reasoning = sidecar.map(|_| loaded_text(step, &answer.reasoning)).transpose()?.unwrap_or_default();
    let layout = sidecar.and_then(|sidecar| PartLayout::parse(sidecar, text, reasoning, calls.len()));
    if layout.is_some() || answer.sidecar.is_some() || !answer.reasoning.is_empty() {
        let treatment = if layout.is_some() { Treatment::Kept } else { Treatment::Dropped };
        builder.report(step.id(), ReportPart::Reasoning, treatment);
    }
    let is_foreign = answer.provider.as_ref().is_some_and(|provider| provider != target.identity);
    let layout = layout.unwrap_or_else(|| PartLayout::plain(text, calls.len()));
    let takes_newest = !is_before_gemini_3(&target.identity.model);
    let mut ids = vec![false; calls.len()];
    let mut is_first_call = true;
    builder.raw(r#"{"role":"model","parts":["#);
    for (nth, part) in layout.parts.iter().enumerate() {
        builder.raw(if nth > 0 { "," } else { "" });
        match part {
            LayoutPart::Opaque(json) => builder.raw(json),
            LayoutPart::Text { text, is_thought, others } => {
                builder.raw(r#"{"text":"#);
                builder.text(text);
                builder.raw(if *is_thought { r#","thought":true"# } else { "" });
                members(builder, others);
                builder.raw("}");
            }
            LayoutPart::Call { nth, has_id, call_others, others } => {
                let call = &calls[*nth];
                ids[*nth] = *has_id;
                builder.raw(r#"{"functionCall":{"#);
                id_and_name(builder, call, *has_id);
                builder.raw(r#","args":"#);
                builder.raw(&call.arguments);
                members(builder, call_others);
                builder.raw("}");
                members(builder, others);
                // Without a signature on the first call of an answer, the request is refused.
                let is_signed = others.iter().any(|(name, _)| name == "thoughtSignature");
                builder.raw(if takes_newest && is_first_call && !is_signed { NO_SIGNATURE } else { "" });
                builder.raw("}");
                is_first_call = false;
            }
        }
    }
    builder.raw("]}");
    for has_id in &ids {
        if *has_id || is_foreign {
            let treatment = if *has_id { Treatment::Kept } else { Treatment::Dropped };
            builder.report(step.id(), ReportPart::CallId, treatment);
        }
    }
    results(builder, step, calls, &ids, takes_newest)
}

/// Writes the results of the calls of an answer, in one content that stays open.
fn results(
    builder: &mut RequestBuilder,
    step: &Step,
    calls: &[RenderedCall<'_>],
    ids: &[bool],
    takes_newest: bool,
) -> Result<(), MissingPayload> {
    if calls.is_empty() {
        return Ok(());
    }
    builder.raw(r#",{"role":"user","parts":["#);
    builder.has_open_content = true;
    for (nth, call) in calls.iter().enumerate() {
        builder.raw(if nth > 0 { "," } else { "" });
        builder.raw(r#"{"functionResponse":{"#);
        id_and_name(builder, call, ids[nth]);
        if takes_newest {
            image_parts(builder, step, call.images)?;
        }
        builder.raw(if call.failed { r#","response":{"error":"# } else { r#","response":{"output":"# });
        let text = with_unreadable_named(builder, step, call);
        builder.text(&text);
        builder.raw("}}}");
    }
    if takes_newest {
        return Ok(());
    }
    // Older models read pictures beside the results only.
    for image in calls.iter().flat_map(|call| call.images) {
        if builder.image_type(image).is_some() {
            builder.raw(",");
            image_part(builder, step, image)?;
        }
    }
    Ok(())
}

/// Returns the text of a result with a line for each image that models do not read.
fn with_unreadable_named<'a>(builder: &mut RequestBuilder, step: &Step, call: &RenderedCall<'a>) -> Cow<'a, str> {
    let mut text = Cow::Borrowed(call.output);
    for image in call.images {
        if builder.image_type(image).is_some() {
            continue;
        }
        builder.report(step.id(), ReportPart::Image, Treatment::Rewritten);
        let text = text.to_mut();
        text.push_str(if text.is_empty() || text.ends_with('\n') { "" } else { "\n" });
        text.push_str(&super::image_placeholder(image));
    }
    text
}

/// Writes those images of a result that models read.
fn image_parts(builder: &mut RequestBuilder, step: &Step, images: &[Image]) -> Result<(), MissingPayload> {
    let mut comma = r#","parts":["#;
    for image in images {
        if builder.image_type(image).is_some() {
            builder.raw(comma);
            comma = ",";
            image_part(builder, step, image)?;
        }
    }
    builder.raw(if comma == "," { "]" } else { "" });
    Ok(())
}

fn id_and_name(builder: &mut RequestBuilder, call: &RenderedCall<'_>, has_id: bool) {
    if has_id {
        builder.raw(r#""id":"#);
        builder.text(&call.id);
        builder.raw(",");
    }
    builder.raw(r#""name":"#);
    builder.text(&call.tool);
}

fn members(builder: &mut RequestBuilder, members: &[(String, &RawValue)]) {
    for (name, value) in members {
        builder.raw(",");
        builder.text(name);
        builder.raw(":");
        builder.raw(value.get());
    }
}

pub(super) fn close(builder: &mut RequestBuilder, target: RequestTarget<'_>) {
    close_content(builder);
    builder.raw("]");
    // Servers refuse options about tools in a request without tools.
    let has_tools = builder.has_tools;
    let is_omitted = |name: &str| !REQUEST_OPTIONS.contains(&name) || (!has_tools && name == "toolConfig");
    builder.options(target, is_omitted);
    let mut comma = r#","generationConfig":{"#;
    for (name, value) in target.settings.options().filter(|(name, _)| !REQUEST_OPTIONS.contains(name)) {
        builder.raw(comma);
        comma = ",";
        builder.text(name);
        builder.raw(":");
        builder.raw(value.as_str());
    }
    builder.raw(if comma == "," { "}}" } else { "}" });
}

/// Returns true for a model of a version before the one that requires signatures.
fn is_before_gemini_3(model: &str) -> bool {
    let name = model.rsplit('/').next().unwrap_or_default();
    BEFORE_GEMINI_3.iter().any(|start| name.starts_with(start))
}

/// The order of the parts of an answer.
///
/// A model expects its signatures back on the parts that had them.
struct PartLayout<'a> {
    parts: Vec<LayoutPart<'a>>,
}

/// Further members of a part: its signature, and others that only the provider reads.
type Members<'a> = Vec<(String, &'a RawValue)>;

enum LayoutPart<'a> {
    /// A part that only its provider reads.
    Opaque(&'a str),
    /// A piece of the text, or of the reasoning.
    Text { text: &'a str, is_thought: bool, others: Members<'a> },
    /// A call, by its index.
    Call { nth: usize, has_id: bool, call_others: Members<'a>, others: Members<'a> },
}

impl<'a> PartLayout<'a> {
    /// Returns the layout of an answer without a sidecar: the text, then the calls.
    fn plain(text: &'a str, calls: usize) -> Self {
        let text = Some(text).filter(|text| !text.trim().is_empty());
        let text = text.map(|text| LayoutPart::Text { text, is_thought: false, others: Vec::new() });
        let call = |nth| LayoutPart::Call { nth, has_id: false, call_others: Vec::new(), others: Vec::new() };
        PartLayout { parts: text.into_iter().chain((0..calls).map(call)).collect() }
    }

    /// Parses the layout in the sidecar. Returns `None` if it does not fit the text, the reasoning and the calls.
    fn parse(sidecar: &'a str, mut text: &'a str, mut reasoning: &'a str, calls: usize) -> Option<Self> {
        let [list] = json_members(sidecar, ["parts"]);
        let mut parts = Vec::new();
        let mut call_count = 0;
        for json in json_list(list?)? {
            let (mut bytes, mut call, mut is_thought, mut others) = (None, None, false, Vec::new());
            let mut is_ours = true;
            let read = each_member(json.get(), |name, value| match name {
                "text" => bytes = Some(value),
                "functionCall" => call = Some(value),
                "thought" => is_thought = value.get() == "true",
                // No answer contains such a part, so the sidecar is not ours.
                "functionResponse" => is_ours = false,
                _ => others.push((name.to_owned(), value)),
            });
            read.ok().filter(|()| is_ours)?;
            match (bytes, call) {
                (Some(bytes), None) => {
                    let rest = if is_thought { &mut reasoning } else { &mut text };
                    let (piece, after) = rest.split_at_checked(bytes.get().parse().ok()?)?;
                    *rest = after;
                    // Without a signature, the summary of a thought tells the model nothing.
                    let is_sent = if is_thought { !others.is_empty() } else { !piece.trim().is_empty() };
                    if is_sent || !others.is_empty() {
                        parts.push(LayoutPart::Text { text: piece, is_thought, others });
                    }
                }
                (None, Some(call)) => {
                    let (mut has_id, mut call_others) = (false, Vec::new());
                    let read = each_member(call.get(), |name, value| match name {
                        "id" => has_id = value.get() == "true",
                        "name" | "args" => is_ours = false,
                        _ => call_others.push((name.to_owned(), value)),
                    });
                    read.ok().filter(|()| is_ours)?;
                    parts.push(LayoutPart::Call { nth: call_count, has_id, call_others, others });
                    call_count += 1;
                }
                (None, None) if !others.is_empty() => parts.push(LayoutPart::Opaque(json.get())),
                _ => return None,
            }
        }
        let fits = text.is_empty() && reasoning.is_empty() && call_count == calls && !parts.is_empty();
        fits.then_some(PartLayout { parts })
    }
}
