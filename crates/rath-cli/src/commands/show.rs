//! `rath show`: one step, whole.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use rath::Session;
use rath::chunk::Chunk;
use rath::record::draw::{self, Names};
use rath::record::lineage::Lineage;
use rath::record::{BranchId, Link, Step, StepId, Usage};
use serde_json::value::RawValue;

use crate::output::{self, BRANCH, Done, Failure};

/// Show one step, whole
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A session file
    file: PathBuf,
    /// The step: the first digits of its id, or `head` for the newest
    step: String,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Done {
    let opened = Session::open(&args.file)?;
    let names = Names::of(&opened.lineage);
    let step = find(&opened.lineage, &args.step, &args.file)?;
    output::to_stdout(|out| {
        if args.json { output::json_line(out, &StepJson::of(step, &names)) } else { print(out, step, &names) }
    })?;
    Ok(output::warn(&args.file, &opened.report))
}

/// A step as JSON: what its row says, and what people call its branch.
#[derive(serde::Serialize)]
pub(crate) struct StepJson<'a> {
    id: StepId,
    parents: Vec<StepId>,
    branch: BranchId,
    branch_name: &'a str,
    by: Option<&'a str>,
    usage: Option<Usage>,
    at: Option<String>,
    chunk: Box<RawValue>,
}

impl<'a> StepJson<'a> {
    pub(crate) fn of(step: &'a Step, names: &'a Names) -> Self {
        let stamp = step.stamp();
        StepJson {
            id: step.id(),
            parents: step.parents().iter().map(Link::id).collect(),
            branch: stamp.branch,
            branch_name: names.of_step(step),
            by: stamp.by.as_deref(),
            usage: stamp.usage,
            at: stamp.at.map(output::time),
            chunk: RawValue::from_string(step.json().into_owned()).expect("a chunk is JSON"),
        }
    }
}

fn find<'a>(lineage: &'a Lineage, wanted: &str, file: &Path) -> Result<&'a Step, Failure> {
    let hint = format!("`rath log {}` lists the steps", file.display());
    let none = || Failure::Told(format!("no step `{wanted}` in {}", file.display()), hint.clone());
    if wanted == "head" {
        return lineage.heads().last().ok_or_else(none);
    }
    let walk = lineage.walk();
    let mut found = walk.iter().filter(|step| !wanted.is_empty() && step.id().to_string().starts_with(wanted));
    match (found.next(), found.next()) {
        (Some(step), None) => Ok(step),
        (None, _) => Err(none()),
        (Some(one), Some(other)) => Err(Failure::Told(
            format!("`{wanted}` begins the ids of several steps: {:.12}, {:.12}, ..", one.id(), other.id()),
            "give more digits".to_owned(),
        )),
    }
}

fn print(out: &mut dyn Write, step: &Step, names: &Names) -> io::Result<()> {
    let stamp = step.stamp();
    writeln!(out, "step     {}", step.id())?;
    writeln!(out, "kind     {}", printable(step.chunk().kind()))?;
    writeln!(out, "branch   {BRANCH}{}{BRANCH:#} {}", printable(names.of_step(step)), stamp.branch)?;
    for parent in step.parents() {
        let lost = if parent.step().is_none() { " (not in the file)" } else { "" };
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
            let effects = it.effects.iter().map(|effect| format!("\n{}", draw::changed(effect)));
            let head = format!("call {}: {}{}", it.call, draw::outcome(it.outcome), effects.collect::<String>());
            format!("{head}\n{}", it.output)
        }
        Chunk::Note(it) => it.text.to_string(),
        _ => step.json().into_owned(),
    }
}

/// Makes control characters visible, but for those that lay out a text: what a model wrote must not drive the terminal.
fn printable(text: &str) -> String {
    let shown = |c: char| {
        if c.is_control() && !matches!(c, '\n' | '\t') { c.escape_default().to_string() } else { c.to_string() }
    };
    text.chars().map(shown).collect()
}
