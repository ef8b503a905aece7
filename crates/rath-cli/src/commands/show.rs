//! `rath show`: show one step in full.

use std::io::{self, Write};

use rath::chunk::{Chunk, Finish, Image};
use rath::record::Step;
use rath::record::draw::{self, BranchNames, one_line, printable};

use crate::json::{StepJson, text_payloads};
use crate::output::{self, BRANCH, CommandResult};
use crate::sessions::SessionArg;

/// Show one step in full
#[derive(clap::Args)]
pub(crate) struct ShowArgs {
    #[command(flatten)]
    session: SessionArg,
    /// The step: the first digits of its id, a branch for its newest step, or `head` for the newest step of all
    step: String,
    /// Print the request that the answer came from, byte for byte as it was sent
    #[arg(long, conflicts_with = "json")]
    as_sent: bool,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: &ShowArgs) -> CommandResult {
    let loaded = args.session.read().await?;
    let exit = loaded.warn();
    let names = BranchNames::new(&loaded.lineage);
    let step = loaded.find_step(&args.step)?;
    if args.as_sent {
        let request = loaded.sent_request(step, &format!(" {}", output::quote(&args.step)))?;
        output::data(|out| out.write_all(request.body()))?;
    } else if args.json {
        output::data(|out| output::json_line(out, &StepJson::new(step, Some(&names))))?;
    } else {
        output::text(|out| print(out, step, &names))?;
    }
    Ok(exit)
}

/// Prints a step in full.
pub(super) fn print(out: &mut dyn Write, step: &Step, names: &BranchNames) -> io::Result<()> {
    let stamp = step.stamp();
    writeln!(out, "step     {}", step.id())?;
    writeln!(out, "kind     {}", one_line(step.chunk().kind()))?;
    writeln!(out, "branch   {BRANCH}{}{BRANCH:#} {}", names.display_name(step), stamp.branch)?;
    for parent in step.parents() {
        let missing = if parent.step().is_none() { " (missing)" } else { "" };
        writeln!(out, "parent   {}{missing}", output::short(&parent.id()))?;
    }
    if let Some(by) = &stamp.by {
        writeln!(out, "by       {}", one_line(by))?;
    }
    if let Some(usage) = stamp.usage {
        writeln!(out, "usage    {usage}")?;
    }
    if let Some(at) = stamp.at {
        writeln!(out, "at       {}", output::time(at))?;
    }
    if let Chunk::Assistant(answer) = step.chunk() {
        if let Some(identity) = &answer.provider {
            writeln!(out, "provider {}", one_line(&identity.to_string()))?;
        }
        if let Some(request) = answer.request {
            writeln!(out, "request  {request}")?;
        }
        if let Some(facts) = &answer.facts {
            writeln!(out, "facts    {}", facts.as_str())?;
        }
        if answer.finish != Finish::Stop {
            writeln!(out, "finish   {}", draw::finish_text(answer.finish))?;
        }
    }
    writeln!(out, "\n{}", printable(&body(step)))
}

/// Returns a line for each image.
fn describe_images(images: &[Image]) -> String {
    images.iter().map(|image| format!("\nimage {}: {:?}", image.media_type, image.blob)).collect()
}

/// Returns the content of a step for people; kinds that are more data than text are shown as their stored JSON.
pub(crate) fn body(step: &Step) -> String {
    match step.chunk() {
        Chunk::Instructions(it) => {
            let tools = it.tools.iter().map(|tool| format!("\ntool {}: {}", tool.name, tool.description));
            format!("{}{}", it.text, tools.collect::<String>())
        }
        Chunk::User(it) => {
            format!("{}{}", it.text, describe_images(&it.images))
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
            let value = it.structured.iter().map(|value| format!("\nvalue: {}", value.as_str())).collect::<String>();
            format!("{head}\n{}{}{value}", it.whole.as_ref().unwrap_or(&it.output), describe_images(&it.images))
        }
        Chunk::ToolStarted(it) => {
            let rule = it.rule.iter().map(|rule| format!("\nallowed by: {rule}")).collect::<String>();
            format!("call {}{rule}", it.call)
        }
        Chunk::Asked(it) => {
            let rule = it.rule.iter().map(|rule| format!(" ({rule})")).collect::<String>();
            format!("call {}\nasked: {}{rule}", it.call, it.why)
        }
        Chunk::Approved(it) => {
            let by = it.by.iter().map(|by| format!("\napproved by: {by}")).collect::<String>();
            let rules = it.rules.iter().map(|rule| format!("\nfrom here on: {rule}")).collect::<String>();
            format!("call {}{by}{rules}", it.call)
        }
        Chunk::Denied(it) => {
            let by = it.by.iter().map(|by| format!("\ndenied by: {by}")).collect::<String>();
            let rule = it.rule.iter().map(|rule| format!("\nrule: {rule}")).collect::<String>();
            format!("call {}{by}{rule}\n{}", it.call, it.reason)
        }
        Chunk::Adopted(it) => format!("by {}", it.by),
        Chunk::Resumed(it) => it.differences.join("\n"),
        Chunk::Note(it) => it.text.to_string(),
        Chunk::Failed(it) => format!("{}: {}{}", it.error, it.message, partial(it.partial.as_ref())),
        Chunk::Retry(it) => format!("attempt {} of {} failed: {}", it.attempt, it.of, it.error),
        Chunk::Interrupted(it) => format!("{}{}", it.reason, partial(it.partial.as_ref())),
        _ => {
            let texts = text_payloads(step).map(|(digest, text)| format!("\n\n{digest}:\n{text}"));
            format!("{}{}", step.json(), texts.collect::<String>())
        }
    }
}

/// Describes the part of an answer that had arrived.
fn partial(text: Option<&rath::Text>) -> String {
    text.map(|text| format!("\nthe answer had begun:\n{text}")).unwrap_or_default()
}
