//! The events of a run, printed as they happen.

use std::io::{self, Write};
use std::path::PathBuf;

use anstyle::Style;
use rath::Event;
use rath::chunk::{Assistant, Finish};
use rath::prelude::*;
use rath::record::draw::preview;
use serde_json::json;

use crate::agent::session_of;
use crate::cards::Cards;
use crate::hints;
use crate::json::StepJson;
use crate::output;
use crate::terminal;

/// Prints the events of a run as they happen: what the model says on stdout, its calls as cards on stderr.
pub(crate) struct EventPrinter {
    json: bool,
    /// True if the answer is JSON, which is printed once it was checked, and not as it arrives.
    has_answer_at_end: bool,
    /// True if text is printed as it arrives: to a terminal. Elsewhere only answers that are whole are printed.
    is_live: bool,
    /// Set while the last line printed is an answer that is not yet ended.
    answering: bool,
    /// True if the next answer continues the text of the last one.
    is_continued: bool,
    cards: Cards,
    /// The directory with the versions of the files.
    project: PathBuf,
}

const FAINT: Style = Style::new().dimmed();
/// The columns of a line of a card where there is no terminal.
const MAX_COLUMNS: usize = 200;

impl EventPrinter {
    pub(crate) fn new(json: bool, project: PathBuf) -> Self {
        EventPrinter {
            json,
            has_answer_at_end: false,
            is_live: output::is_terminal(),
            answering: false,
            is_continued: false,
            cards: Cards::default(),
            project,
        }
    }

    /// Prints the answer of JSON at the end, in the place of texts as they arrive.
    pub(crate) fn with_answer_at_end(self) -> Self {
        EventPrinter { has_answer_at_end: true, ..self }
    }

    pub(crate) async fn print(&mut self, event: &Event) -> io::Result<()> {
        if self.json {
            return output::data(|out| write_json_event(out, event));
        }
        match &event.kind {
            EventKind::Text(text) if self.is_live && !self.has_answer_at_end => return self.text(text),
            EventKind::Text(_) => {}
            EventKind::Turn { .. } if self.is_continued => {}
            EventKind::Turn { .. } => self.end_line()?,
            EventKind::Retry { attempt, of, error, .. } => {
                let void = if self.answering { "; the text above is void" } else { "" };
                self.end_line()?;
                output::message!("{FAINT}·{FAINT:#} attempt {attempt} of {of} failed: {}{void}", preview(error));
            }
            _ => {
                match &event.kind {
                    EventKind::ToolStarted(_) => self.end_line()?,
                    EventKind::Step(step) => {
                        if let Chunk::Assistant(answer) = step.chunk() {
                            self.answer(answer)?;
                        }
                    }
                    _ => {}
                }
                let columns = output::message_columns().unwrap_or(MAX_COLUMNS);
                for line in self.cards.follow(event, &self.project, columns).await {
                    self.end_line()?;
                    output::message!("{}", line.styled());
                }
            }
        }
        self.show_live();
        Ok(())
    }

    /// Prints the text of an answer that has ended, if it was not printed as it arrived. A withheld answer is not data.
    fn answer(&mut self, answer: &Assistant) -> io::Result<()> {
        self.is_continued = answer.is_paused() || (answer.finish == Finish::Length && answer.calls.is_empty());
        let text = answer.text.as_str().unwrap_or_default();
        if self.is_live || self.has_answer_at_end || text.trim().is_empty() {
            return Ok(());
        }
        if answer.finish == Finish::Filtered {
            output::message!("{FAINT}·{FAINT:#} withheld, after this text: {}", preview(text));
            return Ok(());
        }
        self.text(text)
    }

    fn text(&mut self, text: &str) -> io::Result<()> {
        // A line that has begun ends where the text goes on.
        terminal::show_live(Vec::new());
        self.answering = true;
        output::data(|out| out.write_all(text.as_bytes()))
    }

    /// Shows the calls that run now, with their newest output and their time, if a person sees them.
    pub(crate) fn show_live(&self) {
        if !self.json && !self.answering && output::is_watched() {
            terminal::show_live(self.cards.live(terminal::columns().saturating_sub(1)));
        }
    }

    /// Ends the line of an answer, and takes away the calls that run: something else is printed.
    pub(crate) fn pause(&mut self) -> io::Result<()> {
        terminal::show_live(Vec::new());
        self.end_line()
    }

    fn end_line(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.answering) {
            output::data(|out| out.write_all(b"\n"))?;
        }
        Ok(())
    }

    pub(crate) fn finish(&mut self, result: &rath::Result<Session>) -> io::Result<()> {
        self.pause()?;
        let answer = result.as_ref().ok().filter(|_| self.has_answer_at_end).and_then(Session::answer_json);
        if !self.json {
            return answer.map_or(Ok(()), |answer| output::data(|out| writeln!(out, "{answer}")));
        }
        let id = session_of(result).filter(|session| session.store().is_some()).map(Session::id);
        let mut last = match result {
            Ok(session) => {
                let head = session.head().map(|step| step.id());
                json!({"event": "done", "session": id, "head": head, "text": session.text(), "usage": session.usage()})
            }
            Err(error) => {
                json!({"event": "error", "session": id, "message": error.message(), "hint": hints::hint(error)})
            }
        };
        if let Some(value) = answer.and_then(|answer| serde_json::from_str::<serde_json::Value>(&answer).ok()) {
            last["answer"] = value;
        }
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
