//! The lines that the demo prints while agents work.

use std::fmt::Display;

use anstyle::{AnsiColor, Style};
use rath::Event;
use rath::chunk::{Call, MemoryEvent, Outcome, Verdict};
use rath::prelude::*;
use rath::record::draw::{one_line, outcome_text, shorten};

use crate::output::{self, BRANCH};

pub(super) const HEADING: Style = Style::new().bold();
const GOOD: Style = AnsiColor::Green.on_default();
const BAD: Style = AnsiColor::Red.on_default();

/// The width of the column with the names of agents.
const NAME_COLUMNS: usize = 9;
/// The columns behind it, on a terminal of 80.
const TEXT_COLUMNS: usize = 80 - 2 - NAME_COLUMNS;

/// Prints the heading of a scene.
pub(super) fn heading(number: u32, text: &str) {
    print(format_args!("\n{HEADING}{number}. {text}{HEADING:#}"));
}

/// Prints a line below the name of an agent, or of another part of the program.
pub(super) fn line(name: &str, text: impl Display) {
    print(format_args!("  {BRANCH}{name:NAME_COLUMNS$}{BRANCH:#}{text}"));
}

/// Prints a text of others in such a line.
pub(super) fn say(name: &str, text: &str) {
    line(name, shorten(text, TEXT_COLUMNS));
}

/// Describes a verdict, in its colour.
pub(super) fn verdict_text(verdict: Verdict) -> String {
    match verdict {
        Verdict::Passed => format!("{GOOD}passed{GOOD:#}"),
        Verdict::Failed => format!("{BAD}failed{BAD:#}"),
        _ => format!("{BAD}could not run{BAD:#}"),
    }
}

/// Prints a line. The demo works on when its output cannot be written.
fn print(text: impl Display) {
    let _ = output::text(|out| writeln!(out, "{text}"));
}

/// Prints the events of one agent.
pub(super) struct EventLines {
    agent: &'static str,
    /// The calls that run.
    calls: Vec<Call>,
}

impl EventLines {
    pub(super) fn of(agent: &'static str) -> Self {
        EventLines { agent, calls: Vec::new() }
    }

    pub(super) fn print(&mut self, event: &Event) {
        match &event.kind {
            EventKind::ToolStarted(call) => self.started(call),
            EventKind::Step(step) => self.step(step.chunk()),
            _ => {}
        }
    }

    fn started(&mut self, call: &Call) {
        // A check is told of with its verdict.
        if &*call.tool != "check" {
            let argument = output::main_argument(&call.tool, call.arguments.as_str().unwrap_or_default());
            say(self.agent, &format!("{} {argument}", call.tool));
        }
        self.calls.push(call.clone());
    }

    fn step(&mut self, chunk: &Chunk) {
        match chunk {
            Chunk::Assistant(answer) if answer.calls.is_empty() => {
                say(self.agent, answer.text.as_str().unwrap_or_default());
            }
            Chunk::Memory(memory) => {
                if let MemoryEvent::Recall { found, .. } = &memory.event {
                    let texts = found.iter().filter_map(|entry| entry.text.as_str());
                    texts.for_each(|text| say(self.agent, &format!("recalls: {text}")));
                }
            }
            Chunk::Checked(checked) => {
                // The last line of the output says why a check failed.
                let why = checked.output.as_str().filter(|_| checked.verdict != Verdict::Passed);
                let why = why.and_then(|output| output.lines().next_back());
                let why = why.map(|why| format!(": {why}")).unwrap_or_default();
                let columns = TEXT_COLUMNS.saturating_sub("check  failed".len() + checked.check.chars().count());
                let (check, why) = (one_line(&checked.check), shorten(&why, columns));
                line(self.agent, format_args!("check {check} {}{why}", verdict_text(checked.verdict)));
            }
            Chunk::ToolResult(result) if result.outcome != Outcome::Ok => {
                let call = self.calls.iter().find(|call| call.id == result.call);
                let tool = call.map(|call| call.tool.to_string()).unwrap_or_default();
                say(self.agent, &format!("{tool} {}", outcome_text(result.outcome)));
            }
            _ => {}
        }
    }
}
