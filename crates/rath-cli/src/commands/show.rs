//! `rath show`: one step, whole.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;

use rath::chunk::{Chunk, Finish};
use rath::record::draw::{self, BranchNames, printable};
use rath::record::lineage;
use rath::record::{BranchId, Digest, Parent, Payload, SHORT_ID_DIGITS, Step, StepId, Usage};
use serde_json::value::RawValue;

use super::render;
use crate::output::{self, BRANCH, Done, Failure};
use crate::sessions::{Named, SessionArg};

/// Show one step, whole
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    session: SessionArg,
    /// The step: the first digits of its id, the name of a branch for its newest step, or `head` for the newest of all
    step: String,
    /// Print the request that the answer came of, byte for byte as it was sent
    #[arg(long, conflicts_with = "json")]
    as_sent: bool,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Done {
    let named = args.session.read()?;
    let exit = named.warn();
    let names = BranchNames::new(&named.lineage);
    let step = find(&named, &args.step)?;
    if args.as_sent {
        let request = render::as_sent(&named, step, &format!(" {}", args.step))?;
        output::data(|out| out.write_all(request.body()))?;
    } else if args.json {
        output::data(|out| output::json_line(out, &StepJson::of(step, Some(&names))))?;
    } else {
        output::text(|out| print(out, step, &names))?;
    }
    Ok(exit)
}

/// A step as JSON: what its row says, and what people call its branch.
#[derive(serde::Serialize)]
pub(crate) struct StepJson<'a> {
    id: StepId,
    parents: Vec<StepId>,
    branch: BranchId,
    #[serde(skip_serializing_if = "Option::is_none")]
    branch_name: Option<&'a str>,
    by: Option<&'a str>,
    usage: Option<Usage>,
    at: Option<String>,
    chunk: Box<RawValue>,
    /// What stands beside the row, by digest: texts that are too long for it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    payloads: BTreeMap<String, String>,
}

impl<'a> StepJson<'a> {
    pub(crate) fn of(step: &'a Step, names: Option<&'a BranchNames>) -> Self {
        let stamp = step.stamp();
        StepJson {
            id: step.id(),
            parents: step.parents().iter().map(Parent::id).collect(),
            branch: stamp.branch,
            branch_name: names.map(|names| names.name_of_step(step)),
            by: stamp.by.as_deref(),
            usage: stamp.usage,
            at: stamp.at.map(output::time),
            chunk: RawValue::from_string(step.json().into_owned()).expect("a chunk is JSON"),
            payloads: long_texts(step).map(|(digest, text)| (digest.to_string(), text.to_string())).collect(),
        }
    }
}

/// The step that a person means.
pub(crate) fn find<'a>(named: &'a Named, wanted: &str) -> Result<&'a Step, Failure> {
    let (lineage, name) = (&named.lineage, named.name());
    let told = |what: String, hint: &str| Err(Failure::told(what, hint));
    let list = format!("{} lists the steps", named.command("log", ""));
    let Some(newest) = lineage.heads().last() else {
        return told(format!("{name} holds no step"), "a session file that was cut at its beginning holds none");
    };
    if wanted == "head" {
        return Ok(newest);
    }
    let walk = lineage.walk();
    if let Some(branch) = lineage::branches(&walk).into_iter().find(|branch| branch.name == wanted) {
        return Ok(branch.head);
    }
    let digits = wanted.to_lowercase();
    if digits.is_empty() || !digits.chars().all(|c| c.is_ascii_hexdigit()) {
        let what = format!("wanted the first digits of a step's id, a branch, or `head`, found `{wanted}`");
        return told(what, &list);
    }
    let begins = |id: StepId| id.to_string().starts_with(&digits);
    let mut found = walk.iter().filter(|step| begins(step.id()));
    match (found.next(), found.next()) {
        (Some(step), None) => Ok(step),
        (Some(one), Some(other)) => told(
            format!("`{wanted}` begins the ids of several steps: {:.12}, {:.12}, ..", one.id(), other.id()),
            "give more digits",
        ),
        (None, _) => match lineage.missing().into_iter().find(|id| begins(*id)) {
            Some(lost) => told(
                format!("step {lost:.SHORT_ID_DIGITS$} is named as a parent, and its row is damaged or missing"),
                &format!("{} says which", named.command("verify", "")),
            ),
            None => told(format!("no step `{wanted}` in {name}"), &list),
        },
    }
}

fn print(out: &mut dyn Write, step: &Step, names: &BranchNames) -> io::Result<()> {
    let stamp = step.stamp();
    writeln!(out, "step     {}", step.id())?;
    writeln!(out, "kind     {}", printable(step.chunk().kind()))?;
    writeln!(out, "branch   {BRANCH}{}{BRANCH:#} {}", names.display_name(step), stamp.branch)?;
    for parent in step.parents() {
        let lost = if parent.step().is_none() { " (not there)" } else { "" };
        writeln!(out, "parent   {}{lost}", output::short(&parent.id()))?;
    }
    if let Some(by) = &stamp.by {
        writeln!(out, "by       {}", printable(by))?;
    }
    if let Some(usage) = stamp.usage {
        writeln!(out, "usage    {usage}")?;
    }
    if let Some(at) = stamp.at {
        writeln!(out, "at       {}", output::time(at))?;
    }
    if let Chunk::Assistant(answer) = step.chunk() {
        if let Some(identity) = &answer.provider {
            writeln!(out, "provider {}", printable(&identity.to_string()))?;
        }
        if let Some(request) = answer.request {
            writeln!(out, "request  {request}")?;
        }
        if let Some(facts) = &answer.facts {
            writeln!(out, "facts    {}", printable(facts.as_str()))?;
        }
        if answer.finish != Finish::Stop {
            writeln!(out, "finish   {}", draw::finish_text(answer.finish))?;
        }
    }
    writeln!(out, "\n{}", printable(&body(step)))
}

/// What the step says as a person reads it; kinds that are more data than words, as the JSON that is stored.
fn body(step: &Step) -> String {
    match step.chunk() {
        Chunk::Instructions(it) => {
            let tools = it.tools.iter().map(|tool| format!("\ntool {}: {}", tool.name, tool.description));
            format!("{}{}", it.text, tools.collect::<String>())
        }
        Chunk::User(it) => {
            let images = it.images.iter().map(|image| format!("\nimage {}: {:?}", image.media_type, image.blob));
            format!("{}{}", it.text, images.collect::<String>())
        }
        Chunk::Assistant(it) => {
            let reasoning = Some(format!("reasoning: {}", it.reasoning)).filter(|_| !it.reasoning.is_empty());
            let text = Some(it.text.to_string()).filter(|text| !text.is_empty());
            let calls = it.calls.iter().map(|call| format!("call {}: {} {}", call.id, call.tool, call.arguments));
            reasoning.into_iter().chain(text).chain(calls).collect::<Vec<_>>().join("\n")
        }
        Chunk::ToolResult(it) => {
            let effects = it.effects.iter().map(|effect| format!("\n{}", draw::describe_effect(effect)));
            let head = format!("call {}: {}{}", it.call, draw::outcome_text(it.outcome), effects.collect::<String>());
            format!("{head}\n{}", it.whole.as_ref().unwrap_or(&it.output))
        }
        Chunk::Resumed(it) => it.differences.join("\n"),
        Chunk::Note(it) => it.text.to_string(),
        Chunk::Failed(it) => format!("{}: {}", it.error, it.message),
        Chunk::Retry(it) => format!("attempt {} of {} failed: {}", it.attempt, it.of, it.error),
        Chunk::Interrupted(it) => it.reason.to_string(),
        _ => {
            let texts = long_texts(step).map(|(digest, text)| format!("\n\n{digest}:\n{text}"));
            format!("{}{}", step.json(), texts.collect::<String>())
        }
    }
}

fn long_texts(step: &Step) -> impl Iterator<Item = (Digest, Arc<str>)> {
    step.chunk().payloads().into_iter().filter_map(|(digest, payload)| match payload {
        Payload::Text(text) => Some((digest, text)),
        Payload::Bytes(_) => None,
    })
}
