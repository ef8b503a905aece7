//! The events of a run, printed as they happen.

use std::io::{self, Write};

use anstyle::Style;
use rath::Event;
use rath::chunk::{Assistant, Call, Denied, Finish, Outcome, ToolResult};
use rath::prelude::*;
use rath::record::draw::{self, one_line, preview};
use serde_json::json;

use crate::agent::session_of;
use crate::changed_files::shorten_list;
use crate::hints;
use crate::json::StepJson;
use crate::output::{self, BRANCH};

/// Prints the events of a run as they happen.
pub(crate) struct EventPrinter {
    json: bool,
    /// True if text is printed as it arrives: to a terminal. Elsewhere only answers that are whole are printed.
    is_live: bool,
    /// Set while the last line printed is an answer that is not yet ended.
    answering: bool,
    /// True if the next answer continues the text of the last one.
    is_continued: bool,
    /// The calls of the last answer.
    calls: Vec<Call>,
}

const FAINT: Style = Style::new().dimmed();

impl EventPrinter {
    pub(crate) fn new(json: bool) -> Self {
        EventPrinter { json, is_live: output::is_terminal(), answering: false, is_continued: false, calls: Vec::new() }
    }

    pub(crate) fn print(&mut self, event: &Event) -> io::Result<()> {
        if self.json {
            return output::data(|out| write_json_event(out, event));
        }
        match &event.kind {
            EventKind::Text(text) if self.is_live => self.text(text),
            EventKind::Turn { .. } if self.is_continued => Ok(()),
            EventKind::Turn { .. } => self.end_line(),
            EventKind::ToolStarted(call) => {
                let argument = output::main_argument(&call.tool, call.arguments.as_str().unwrap_or_default());
                self.note(&format!("{BRANCH}{}{BRANCH:#} {argument}", preview(&call.tool)))
            }
            EventKind::Step(step) => self.step(step.chunk()),
            EventKind::Retry { attempt, of, error, .. } => {
                let void = if self.answering { "; the text above is void" } else { "" };
                self.note(&format!("attempt {attempt} of {of} failed: {}{void}", preview(error)))
            }
            _ => Ok(()),
        }
    }

    /// Prints a call that a rule refused: it is never started, so no other event tells.
    fn step(&mut self, chunk: &Chunk) -> io::Result<()> {
        match chunk {
            Chunk::Assistant(answer) => {
                self.calls = answer.calls.clone();
                return self.answer(answer);
            }
            Chunk::Denied(Denied { call, rule: Some(rule), .. }) => {
                let Some(call) = self.calls.iter().find(|known| known.id == *call) else { return Ok(()) };
                let argument = output::main_argument(&call.tool, call.arguments.as_str().unwrap_or_default());
                let (tool, rule) = (preview(&call.tool), preview(rule));
                return self.note(&format!("{BRANCH}{tool}{BRANCH:#} {argument}: refused ({rule})"));
            }
            Chunk::ToolResult(result) => return self.result(result),
            _ => {}
        }
        Ok(())
    }

    /// Prints the text of an answer that has ended, if it was not printed as it arrived. A withheld answer is not data.
    fn answer(&mut self, answer: &Assistant) -> io::Result<()> {
        self.is_continued = answer.is_paused() || (answer.finish == Finish::Length && answer.calls.is_empty());
        let text = answer.text.as_str().unwrap_or_default();
        match answer.finish {
            _ if self.is_live || text.trim().is_empty() => Ok(()),
            Finish::Filtered => self.note(&format!("withheld, after this text: {}", preview(text))),
            _ => self.text(text),
        }
    }

    fn text(&mut self, text: &str) -> io::Result<()> {
        self.answering = true;
        output::data(|out| out.write_all(text.as_bytes()))
    }

    /// Prints why a call failed, and the files that were put back after it or could not be.
    fn result(&mut self, result: &ToolResult) -> io::Result<()> {
        // A call that was denied was told of already, or is the person's own decision.
        let is_told = matches!(result.outcome, Outcome::Ok | Outcome::Denied);
        if let Some(call) = self.calls.iter().find(|call| call.id == result.call).filter(|_| !is_told) {
            let (tool, outcome) = (preview(&call.tool), draw::outcome_text(result.outcome));
            let output = result.output.as_str().unwrap_or_default();
            let why = output.strip_prefix(outcome).unwrap_or(output).trim_start_matches(':').trim();
            let why = if why.is_empty() { String::new() } else { format!(": {}", preview(why)) };
            // A call that was not understood is never started, so its argument was not printed before.
            let argument = match result.outcome {
                Outcome::UnknownTool | Outcome::BadJson | Outcome::BadArguments => {
                    let arguments = call.arguments.as_str().unwrap_or_default();
                    format!("{}: ", output::main_argument(&call.tool, arguments))
                }
                _ => String::new(),
            };
            self.note(&format!("{BRANCH}{tool}{BRANCH:#} {argument}{outcome}{why}"))?;
        }
        if !result.put_back.is_empty() {
            let files: Vec<_> = result.put_back.iter().map(|path| one_line(path)).collect();
            let files = shorten_list(&files);
            self.note(&format!("put back as before: {files} (what was there is in .rath/put-back)"))?;
        }
        if !result.not_put_back.is_empty() {
            let files: Vec<_> = result.not_put_back.iter().map(|path| one_line(path)).collect();
            let files = shorten_list(&files);
            self.note(&format!("changed against your rules, and could not be put back: {files}"))?;
        }
        Ok(())
    }

    /// Prints a line on stderr, after the answer's line is ended.
    fn note(&mut self, text: &str) -> io::Result<()> {
        self.end_line()?;
        output::message!("{FAINT}·{FAINT:#} {text}");
        Ok(())
    }

    pub(crate) fn end_line(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.answering) {
            output::data(|out| out.write_all(b"\n"))?;
        }
        Ok(())
    }

    pub(crate) fn finish(&mut self, result: &rath::Result<Session>) -> io::Result<()> {
        self.end_line()?;
        if !self.json {
            return Ok(());
        }
        let id = session_of(result).filter(|session| session.store().is_some()).map(Session::id);
        let last = match result {
            Ok(session) => {
                let head = session.head().map(|step| step.id());
                json!({"event": "done", "session": id, "head": head, "text": session.text(), "usage": session.usage()})
            }
            Err(error) => {
                json!({"event": "error", "session": id, "message": error.message(), "hint": hints::hint(error)})
            }
        };
        output::data(|out| output::json_line(out, &last))
    }
}

/// An appended step as an event in JSON.
#[derive(serde::Serialize)]
struct StepEventJson<'a> {
    event: &'static str,
    step: StepJson<'a>,
}

fn write_json_event(out: &mut dyn Write, event: &Event) -> io::Result<()> {
    let by = event.session.module();
    let json = match &event.kind {
        EventKind::Turn { turn } => json!({"event": "turn", "by": by, "turn": turn}),
        EventKind::Text(text) => json!({"event": "text", "by": by, "text": text}),
        EventKind::Reasoning(text) => json!({"event": "reasoning", "by": by, "text": text}),
        EventKind::Retry { attempt, of, error, wait } => {
            json!({"event": "retry", "by": by, "attempt": attempt, "of": of, "error": error, "wait_ms": wait.as_millis() as u64})
        }
        EventKind::ToolStarted(call) => json!({"event": "tool_started", "by": by, "call": call}),
        EventKind::ToolOutput { call, text } => json!({"event": "tool_output", "by": by, "call": call, "text": text}),
        EventKind::ToolFinished { call, outcome } => {
            json!({"event": "tool_finished", "by": by, "call": call.id, "outcome": outcome})
        }
        EventKind::Step(step) => {
            return output::json_line(out, &StepEventJson { event: "step", step: StepJson::new(step, None) });
        }
        EventKind::Budget { tokens, turns, .. } => {
            json!({"event": "budget", "by": by, "tokens": tokens, "turns": turns})
        }
        _ => return Ok(()),
    };
    output::json_line(out, &json)
}
