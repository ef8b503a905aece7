//! An explanation as text for people.

use std::io::{self, Write};

use rath::StepId;
use rath::chunk::PROJECT_CONTEXT;
use rath::record::SHORT_ID_DIGITS;
use rath::record::draw::{count, describe_effect, one_line, preview, shorten};

use super::{CallOfStep, ExplainedTurn, Explanation};
use crate::output::{self, BRANCH};

/// The columns before the text of a line that begins with a step: two spaces, the id, a space.
const STEP_COLUMNS: usize = 2 + SHORT_ID_DIGITS + 1;
/// The number of messages that the explanation of a turn lists.
const MAX_LISTED_MESSAGES: usize = 20;
/// The fewest columns that a text is shortened to.
const MIN_TEXT_COLUMNS: usize = 20;

impl Explanation {
    /// Prints the answers, a section for each question that the record can answer.
    pub(crate) fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        let name = one_line(&self.branch_name);
        let headline = fitting(&self.headline, SHORT_ID_DIGITS + 1 + name.chars().count() + 2);
        self.turn.iter().try_for_each(|turn| print_turn(out, turn))?;
        writeln!(out, "{} {BRANCH}{name}{BRANCH:#}  {headline}", output::short(&self.step))?;
        self.call.iter().try_for_each(|call| print_call(out, call))?;
        self.print_answer(out)?;
        self.print_seen(out)?;
        if let Some(place) = &self.place {
            writeln!(out, "tools run in: {}", one_line(place))?;
        }
        self.print_files(out)?;
        self.print_memory(out)?;
        self.print_choices(out)?;
        self.print_cost(out)
    }

    fn print_answer(&self, out: &mut dyn Write) -> io::Result<()> {
        let Some(answer) = &self.answer else { return Ok(()) };
        let model = answer.model.as_deref().map_or_else(|| "a model that is not recorded".to_owned(), preview);
        let usage = answer.usage.map(|usage| format!(", {usage}")).unwrap_or_default();
        let is_usual = ["stop", "calls"].contains(&answer.finish);
        let finish = if is_usual { String::new() } else { format!(", {}", answer.finish) };
        writeln!(out, "answered by: {model}")?;
        writeln!(out, "answered in: {}{usage}{finish}", output::short(&answer.step))?;
        answer.request.iter().try_for_each(|request| writeln!(out, "request: {request}"))
    }

    fn print_seen(&self, out: &mut dyn Write) -> io::Result<()> {
        let messages = count(self.seen.messages.len() as u64, "message");
        let seen = match &self.seen.instructions {
            Some(_) => format!("instructions and {messages}"),
            None => messages,
        };
        match self.answer {
            Some(_) => writeln!(out, "the model saw {seen}:")?,
            None => writeln!(out, "no model was asked here; one asked now would see {seen}:")?,
        }
        if let Some(instructions) = &self.seen.instructions {
            let text = fitting(&format!("instructions: {}", instructions.text), STEP_COLUMNS);
            writeln!(out, "  {} {text}", output::short(&instructions.step))?;
            let tools: Vec<_> = instructions.tools.iter().map(|tool| preview(tool)).collect();
            if !tools.is_empty() {
                print_list(out, "    tools: ", &tools)?;
            }
        }
        // Of a turn the user wants to know what was new.
        let hidden = match self.turn {
            Some(_) => self.seen.messages.len().saturating_sub(MAX_LISTED_MESSAGES),
            None => 0,
        };
        if hidden > 0 {
            writeln!(out, "  … {} before", count(hidden as u64, "message"))?;
        }
        self.seen.messages.iter().skip(hidden).try_for_each(|message| {
            let results = match message.calls {
                0 => String::new(),
                1 => " (and the result)".to_owned(),
                calls => format!(" (and {calls} results)"),
            };
            let line = fitting(&message.line, STEP_COLUMNS + results.len());
            writeln!(out, "  {} {line}{results}", output::short(&message.step))
        })
    }

    fn print_files(&self, out: &mut dyn Write) -> io::Result<()> {
        if !self.changes.is_empty() {
            writeln!(out, "changed files:")?;
        }
        for change in &self.changes {
            let by = match (&change.call, &change.tool) {
                (Some(call), Some(tool)) => {
                    format!("  during {} {}", preview(tool), preview(&call.to_string()))
                }
                _ => String::new(),
            };
            writeln!(out, "  {} {}{by}", output::short(&change.step), describe_effect(&change.effect))?;
        }
        let Some(files) = &self.files else { return Ok(()) };
        let source = "the files come from: ";
        let headline = fitting(&files.headline, source.len() + SHORT_ID_DIGITS + 1);
        writeln!(out, "{source}{} {headline}", output::short(&files.step))?;
        let conflicts: Vec<_> = files.conflicts.iter().map(|path| preview(path)).collect();
        match &conflicts[..] {
            [] => Ok(()),
            conflicts => print_list(out, "undecided conflicts: ", conflicts),
        }
    }

    fn print_memory(&self, out: &mut dyn Write) -> io::Result<()> {
        if !self.memory.is_empty() {
            writeln!(out, "memory:")?;
        }
        for memory in &self.memory {
            let text = memory.text.as_ref().map(|text| format!(": {text}")).unwrap_or_default();
            let seen = if memory.is_seen { ", seen by the model" } else { "" };
            let notes = count(memory.notes as u64, "note");
            // What the project says is recalled like the notes of a memory.
            let source = match &*memory.memory {
                PROJECT_CONTEXT => "the files of the project".to_owned(),
                uri => preview(uri),
            };
            let line = fitting(&format!("{}{text}", memory.operation), STEP_COLUMNS);
            writeln!(out, "  {} {line}", output::short(&memory.step))?;
            writeln!(out, "    {notes} in {source}{seen}")?;
        }
        if !self.compression.is_empty() {
            writeln!(out, "replaced by summaries:")?;
        }
        self.compression.iter().try_for_each(|fold| {
            let hidden: Vec<_> = fold.hidden.iter().map(StepId::short).collect();
            let steps = count(fold.hidden.len() as u64, "step");
            writeln!(out, "  {} {}", output::short(&fold.step), fitting(&fold.summary, STEP_COLUMNS))?;
            print_list(out, &format!("    {steps}: "), &hidden)
        })
    }

    fn print_choices(&self, out: &mut dyn Write) -> io::Result<()> {
        if !self.routes.is_empty() {
            writeln!(out, "routes:")?;
        }
        for route in &self.routes {
            let menu: Vec<_> = route.menu.iter().map(|name| preview(name)).collect();
            writeln!(out, "  {} {}", output::short(&route.step), preview(&route.choice))?;
            print_list(out, "    of: ", &menu)?;
        }
        if !self.checks.is_empty() {
            writeln!(out, "checks:")?;
        }
        self.checks.iter().try_for_each(|check| {
            let current = if check.is_current { "on these files" } else { "on other files" };
            let state = format!("{} {current}", check.verdict);
            let name = fitting(&check.check, STEP_COLUMNS + state.len() + 1);
            writeln!(out, "  {} {name} {state}", output::short(&check.step))
        })
    }

    fn print_cost(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "cost up to this step: {}, {}", self.cost.usage, self.cost.money)?;
        if self.cost.has_unpriced {
            writeln!(out, "  without models that have no price")?;
        }
        if self.cost.branches.len() < 2 {
            return Ok(());
        }
        let mut branches = self.cost.branches.iter();
        branches.try_for_each(|branch| writeln!(out, "  on {}: {}", one_line(&branch.branch_name), branch.money))
    }
}

fn print_turn(out: &mut dyn Write, turn: &ExplainedTurn) -> io::Result<()> {
    let said = turn.said.as_deref().unwrap_or("(no message of the user)");
    writeln!(out, "the newest turn: {}", fitting(said, "the newest turn: ".len()))?;
    let (first, last) = (output::short(&turn.first), output::short(&turn.last));
    writeln!(out, "  {} from {first} to {last}, {}", count(turn.steps as u64, "step"), turn.usage)?;
    if turn.summary.is_empty() { Ok(()) } else { writeln!(out, "  {}", fitting(&turn.summary, "  ".len())) }
}

fn print_call(out: &mut dyn Write, call: &CallOfStep) -> io::Result<()> {
    let text = format!("{} {} {}", preview(&call.id.to_string()), preview(&call.tool), call.arguments);
    writeln!(out, "call: {}", fitting(&text, "call: ".len()))?;
    call.allowed_by.iter().try_for_each(|rule| writeln!(out, "allowed by: {}", preview(rule)))?;
    call.decided_by.iter().try_for_each(|person| writeln!(out, "decided by: {}", preview(person)))
}

/// Shortens a text to the end of a line of the terminal that begins with so many columns. Paths, addresses and digests are not
/// shortened: they are copied.
fn fitting(text: &str, columns_before: usize) -> String {
    shorten(text, output::columns().saturating_sub(columns_before).max(MIN_TEXT_COLUMNS))
}

/// Prints all items of a list. The lines after the first one are indented.
fn print_list(out: &mut dyn Write, begin: &str, items: &[String]) -> io::Result<()> {
    let mut line = begin.to_owned();
    for (nth, item) in items.iter().enumerate() {
        let separator = if nth + 1 < items.len() { "," } else { "" };
        if line.chars().count() + item.chars().count() + separator.len() > output::columns() && nth > 0 {
            writeln!(out, "{}", line.trim_end())?;
            line = "      ".to_owned();
        }
        line.push_str(&format!("{item}{separator} "));
    }
    writeln!(out, "{}", line.trim_end())
}
