//! `rath show`: show one step in full.

use std::io::{self, Write};

use rath::Text;
use rath::chunk::{Call, Choice, Chunk, Effect, Finish, Image, MemoryEvent, Resolution, Strategy, Verdict};
use rath::record::Step;
use rath::record::draw::{self, BranchNames, count, one_line, printable};
use serde_json::{Map, Value};

use crate::json::{StepJson, text_payloads};
use crate::output::pager::PagerArg;
use crate::output::{self, BRANCH, CommandResult, patch};
use crate::sessions::{LoadedSession, StepArg};

/// Show one step in full
///
/// For a step that changed files, the changed lines are shown too. Without a step it is the newest one.
#[derive(clap::Args)]
pub(crate) struct ShowArgs {
    #[command(flatten)]
    step: StepArg,
    /// Print the request that the answer came from, byte for byte as it was sent
    #[arg(long, conflicts_with = "json")]
    as_sent: bool,
    #[command(flatten)]
    pager: PagerArg,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: &ShowArgs) -> CommandResult {
    let named = args.step.read().await?;
    let (loaded, step) = (&named.loaded, named.step_or_head()?);
    let exit = loaded.warn();
    let names = BranchNames::new(&loaded.lineage);
    if args.as_sent {
        let request = loaded.sent_request(step, &named.typed)?;
        output::data(|out| out.write_all(request.body()))?;
    } else if args.json {
        output::data(|out| output::json_line(out, &StepJson::new(step, Some(&names))))?;
    } else {
        let changes = changes(loaded, step).await;
        args.pager.text(|out| {
            print(out, step, &names)?;
            changes.iter().try_for_each(|changes| {
                writeln!(out)?;
                patch::print(out, changes)
            })
        })?;
    }
    Ok(exit)
}

/// Returns the changes of files that a step recorded, as a patch; none if there are none, or their versions are not here.
async fn changes(loaded: &LoadedSession, step: &Step) -> Option<String> {
    let effects = step.chunk().effects();
    let before = step.parents().first().and_then(|parent| parent.step()).filter(|_| !effects.is_empty())?;
    let at = |step: &Step| loaded.session.at(step.id()).ok();
    let (before, after) = at(before).zip(at(step))?;
    match before.patch(&after).await {
        Ok(all) => {
            // Calls that ran at the same time are in one version of the files.
            let paths: Vec<_> = effects.iter().map(|effect| effect.path.as_str()).collect();
            Some(patch::of_files(&all, &paths)).filter(|part| !part.is_empty())
        }
        Err(error) => {
            output::note(&format!("the changed lines cannot be shown: {}", error.message()));
            None
        }
    }
}

/// Prints a step in full.
pub(super) fn print(out: &mut dyn Write, step: &Step, names: &BranchNames) -> io::Result<()> {
    let stamp = step.stamp();
    writeln!(out, "step     {}", step.id())?;
    writeln!(out, "kind     {}", kind(step.chunk()))?;
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
            writeln!(out, "facts    {}", one_line(&describe_facts(facts.as_str())))?;
        }
        if answer.finish != Finish::Stop {
            writeln!(out, "finish   {}", draw::finish_text(answer.finish))?;
        }
    }
    writeln!(out, "\n{}", printable(&body(step)))
}

/// Returns the kind of a step in the words of a user; the JSON of a step has the name that is stored.
fn kind(chunk: &Chunk) -> String {
    match chunk {
        Chunk::Observed(it) if it.effects.is_empty() => "files recorded".to_owned(),
        Chunk::Observed(_) => "files changed".to_owned(),
        Chunk::Placed(_) => "sandbox".to_owned(),
        other => one_line(other.kind()),
    }
}

/// Describes the facts that a provider gave with an answer: those that hold by their name, others with their value.
fn describe_facts(json: &str) -> String {
    let Ok(facts) = serde_json::from_str::<Map<String, Value>>(json) else { return json.to_owned() };
    let facts = facts.iter().map(|(name, value)| match value {
        Value::Bool(true) => name.replace('_', " "),
        Value::String(text) => format!("{}: {text}", name.replace('_', " ")),
        value => format!("{}: {value}", name.replace('_', " ")),
    });
    facts.collect::<Vec<_>>().join(", ")
}

/// Returns a line for each image.
fn describe_images(images: &[Image]) -> String {
    images.iter().map(|image| format!("\nimage {}: {:?}", image.media_type, image.blob)).collect()
}

/// Returns the content of a step for people; kinds that this version does not know are shown as their stored JSON.
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
            reasoning.into_iter().chain(text).chain(it.calls.iter().map(call)).collect::<Vec<_>>().join("\n")
        }
        Chunk::ToolResult(it) => {
            let head = format!("call {}: {}{}", it.call, draw::outcome_text(it.outcome), effects(&it.effects));
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
        Chunk::Placed(it) => {
            let tree = it.tree.iter().map(|tree| format!("\nfiles: {}", tree.0)).collect::<String>();
            format!("sandbox: {}{tree}", it.place)
        }
        Chunk::Observed(it) => {
            let by = match &it.calls[..] {
                _ if it.effects.is_empty() => String::new(),
                [] => "\nchanged outside the agent:".to_owned(),
                calls => format!("\nchanged by {}, or outside the agent:", join(calls)),
            };
            format!("files: {}{by}{}", it.tree.0, effects(&it.effects))
        }
        Chunk::Checked(it) => {
            let verdict = match it.verdict {
                Verdict::Passed => "passed",
                Verdict::Failed => "failed",
                _ => "could not run",
            };
            let inputs =
                if it.inputs.is_empty() { String::new() } else { format!("\ninputs: {}", it.inputs.join(", ")) };
            let tree = it.tree.iter().map(|tree| format!("\nfiles: {}", tree.0)).collect::<String>();
            format!("check: {}\nresult: {verdict}{inputs}{tree}\n{}", it.check, it.output)
        }
        Chunk::Compressed(it) => {
            let steps = count(it.hidden.len() as u64, "step");
            let hidden: Vec<_> = it.hidden.iter().map(|id| id.short()).collect();
            format!("stands for {steps}: {}\n\n{}", join(&hidden), it.summary)
        }
        Chunk::Selected(it) => {
            let choice = match &it.choice {
                Choice::Chosen { route } => route.as_str(),
                Choice::Done => "none: the work is done",
                Choice::OutOfRange => "none: the reply names a route that is not offered",
                Choice::Unparseable => "none: the reply could not be read",
                _ => "none: the reply was empty",
            };
            let routes = it.menu.iter().map(|route| format!("\nroute {}: {}", route.name, route.description));
            format!("choice: {choice}{}\nreply: {}", routes.collect::<String>(), it.reply)
        }
        Chunk::Memory(it) => format!("memory: {}\n{}", it.memory, memory(&it.event)),
        Chunk::Merged(it) => {
            let how = match it.strategy {
                Strategy::Ancestor => "the steps of both branches, the common ones once",
                Strategy::Concat => "all steps of one branch, then all of the other",
                _ => "separate work: it is recorded and paid for, and no model of this branch reads it",
            };
            let tree = it.tree.iter().map(|tree| format!("\nfiles: {}", tree.0)).collect::<String>();
            let conflicts = it.conflicts.iter().map(|it| format!("\nconflict: {} ({})", it.path, it.what));
            format!("{how}{tree}{}{}", effects(&it.effects), conflicts.collect::<String>())
        }
        Chunk::Decided(it) => {
            let taken = match it.taken {
                Resolution::Ours => "our version",
                Resolution::Theirs => "their version",
                Resolution::Edited => "an edited version",
                Resolution::Markers => "both versions, with conflict markers",
            };
            format!("conflict in {}: {taken}\nfiles: {}{}", it.path, it.tree.0, effects(&it.effects))
        }
        Chunk::Restored(it) => format!("to step {}\nfiles: {}{}", it.to, it.tree.0, effects(&it.effects)),
        Chunk::Forked(it) => {
            let name = it.name.iter().map(|name| format!(", named {name}")).collect::<String>();
            format!("fork {} of the step before{name}", it.nth)
        }
        Chunk::Detached(_) => "without a parent branch from here on".to_owned(),
        _ => {
            let texts = text_payloads(step).map(|(digest, text)| format!("\n\n{digest}:\n{text}"));
            format!("{}{}", step.json(), texts.collect::<String>())
        }
    }
}

/// Describes a call: an edit by its lines, others by their arguments.
fn call(call: &Call) -> String {
    let head = format!("call {}: {}", call.id, call.tool);
    let arguments = call.arguments.as_str().unwrap_or_default();
    let Ok(object) = serde_json::from_str::<Map<String, Value>>(arguments) else {
        return format!("{head} {}", call.arguments);
    };
    let text = |name: &str| object.get(name).and_then(Value::as_str);
    let signed = |sign: char, text: &str| text.lines().map(|line| format!("\n  {sign}{line}")).collect::<String>();
    match (&*call.tool, text("path"), text("old"), text("new"), text("text")) {
        ("edit_file", Some(path), Some(old), Some(new), _) => {
            let all = if object.get("all") == Some(&Value::Bool(true)) { ", wherever it is" } else { "" };
            format!("{head} {path}{all}{}{}", signed('-', old), signed('+', new))
        }
        ("write_file", Some(path), _, _, Some(text)) => format!("{head} {path}{}", signed('+', text)),
        // A short call is clear as it was written.
        _ if !object.values().any(|value| value.as_str().is_some_and(|text| text.contains('\n'))) => {
            format!("{head} {arguments}")
        }
        _ => {
            let value =
                |value: &Value| value.as_str().map_or_else(|| value.to_string(), |text| text.replace('\n', "\n    "));
            let members = object.iter().map(|(name, it)| format!("\n  {name}: {}", value(it)));
            format!("{head}{}", members.collect::<String>())
        }
    }
}

/// Describes changes of files, a line each.
fn effects(effects: &[Effect]) -> String {
    effects.iter().map(|effect| format!("\n{}", draw::describe_effect(effect))).collect()
}

/// Describes an operation on a memory.
fn memory(event: &MemoryEvent) -> String {
    match event {
        MemoryEvent::Remember { text, path, .. } => {
            let path = path.iter().map(|path| format!("path: {path}\n")).collect::<String>();
            format!("{path}remembered: {text}")
        }
        MemoryEvent::Recall { query, found, notice, .. } => {
            let notice = notice.iter().map(|notice| format!("\n{notice}")).collect::<String>();
            let entries = found.iter().map(|found| format!("\n\n{}: {}", found.entry, found.text));
            format!("looked for: {query}\nfound: {}{notice}{}", found.len(), entries.collect::<String>())
        }
        MemoryEvent::Commit { entries, .. } => format!("stored: {}", entries.join(", ")),
        MemoryEvent::Forget { entries } => format!("forgot: {}", entries.join(", ")),
        _ => String::new(),
    }
}

fn join(words: &[impl ToString]) -> String {
    words.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Describes the part of an answer that had arrived.
fn partial(text: Option<&Text>) -> String {
    text.map(|text| format!("\nthe answer had begun:\n{text}")).unwrap_or_default()
}
