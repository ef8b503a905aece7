//! An explanation as text for people.

use std::io::{self, Write};

use rath::record::draw::{count, describe_effect, one_line, preview};

use super::{CallOfStep, Explanation};
use crate::output::{self, BRANCH};

impl Explanation {
    /// Prints the answers, a section for each question that the record can answer.
    pub(crate) fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        let name = one_line(&self.branch_name);
        writeln!(out, "{} {BRANCH}{name}{BRANCH:#}  {}", output::short(&self.step), self.headline)?;
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
        writeln!(out, "answered by: {model} in step {}{usage}{finish}", output::short(&answer.step))?;
        answer.request.iter().try_for_each(|request| writeln!(out, "request: {request}"))
    }

    fn print_seen(&self, out: &mut dyn Write) -> io::Result<()> {
        let messages = count(self.seen.messages.len() as u64, "message");
        match self.answer {
            Some(_) => writeln!(out, "the model saw {messages}:")?,
            None => writeln!(out, "no model was asked in this step; one that is asked now sees {messages}:")?,
        }
        if let Some(instructions) = &self.seen.instructions {
            let tools: Vec<_> = instructions.tools.iter().map(|tool| preview(tool)).collect();
            let tools = if tools.is_empty() { String::new() } else { format!(" (tools: {})", tools.join(", ")) };
            writeln!(out, "  {} instructions: {}{tools}", output::short(&instructions.step), instructions.text)?;
        }
        self.seen.messages.iter().try_for_each(|message| {
            let calls = match message.calls {
                0 => String::new(),
                1 => " (and the result)".to_owned(),
                calls => format!(" (and {calls} results)"),
            };
            writeln!(out, "  {} {}{calls}", output::short(&message.step), message.line)
        })
    }

    fn print_files(&self, out: &mut dyn Write) -> io::Result<()> {
        if !self.changes.is_empty() {
            writeln!(out, "changed files:")?;
        }
        for change in &self.changes {
            let by = match (&change.call, &change.tool) {
                (Some(call), Some(tool)) => {
                    format!("  while call {} of {} ran", preview(&call.to_string()), preview(tool))
                }
                _ => String::new(),
            };
            writeln!(out, "  {} {}{by}", output::short(&change.step), describe_effect(&change.effect))?;
        }
        let Some(files) = &self.files else { return Ok(()) };
        writeln!(out, "the files come from: {} {}", output::short(&files.step), files.headline)?;
        let conflicts: Vec<_> = files.conflicts.iter().map(|path| preview(path)).collect();
        match &conflicts[..] {
            [] => Ok(()),
            conflicts => writeln!(out, "undecided conflicts: {}", conflicts.join(", ")),
        }
    }

    fn print_memory(&self, out: &mut dyn Write) -> io::Result<()> {
        if !self.memory.is_empty() {
            writeln!(out, "memory:")?;
        }
        for memory in &self.memory {
            let text = memory.text.as_ref().map(|text| format!(": {text}")).unwrap_or_default();
            let seen = if memory.is_seen { ", seen by the model" } else { "" };
            let (notes, uri) = (count(memory.notes as u64, "note"), preview(&memory.memory));
            writeln!(out, "  {} {}{text} ({notes} in {uri}{seen})", output::short(&memory.step), memory.operation)?;
        }
        if !self.compression.is_empty() {
            writeln!(out, "replaced by summaries:")?;
        }
        self.compression.iter().try_for_each(|fold| {
            let hidden: Vec<_> = fold.hidden.iter().map(output::short).collect();
            let steps = count(fold.hidden.len() as u64, "step");
            writeln!(out, "  {} {steps} ({}): {}", output::short(&fold.step), hidden.join(" "), fold.summary)
        })
    }

    fn print_choices(&self, out: &mut dyn Write) -> io::Result<()> {
        if !self.routes.is_empty() {
            writeln!(out, "routes:")?;
        }
        for route in &self.routes {
            let menu: Vec<_> = route.menu.iter().map(|name| preview(name)).collect();
            writeln!(out, "  {} {} of {}", output::short(&route.step), preview(&route.choice), menu.join(", "))?;
        }
        if !self.checks.is_empty() {
            writeln!(out, "checks:")?;
        }
        self.checks.iter().try_for_each(|check| {
            let current = if check.is_current { "on these files" } else { "on other files" };
            writeln!(out, "  {} {} {} {current}", output::short(&check.step), preview(&check.check), check.verdict)
        })
    }

    fn print_cost(&self, out: &mut dyn Write) -> io::Result<()> {
        let unpriced = if self.cost.has_unpriced { ", without models that have no price" } else { "" };
        writeln!(out, "cost up to this step: {}, {}{unpriced}", self.cost.usage, self.cost.money)?;
        if self.cost.branches.len() < 2 {
            return Ok(());
        }
        let mut branches = self.cost.branches.iter();
        branches.try_for_each(|branch| writeln!(out, "  on {}: {}", one_line(&branch.branch_name), branch.money))
    }
}

fn print_call(out: &mut dyn Write, call: &CallOfStep) -> io::Result<()> {
    writeln!(out, "call: {} {} {}", preview(&call.id.to_string()), preview(&call.tool), call.arguments)?;
    call.allowed_by.iter().try_for_each(|rule| writeln!(out, "allowed by: {}", preview(rule)))?;
    call.decided_by.iter().try_for_each(|person| writeln!(out, "decided by: {}", preview(person)))
}
