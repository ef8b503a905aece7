//! The tool calls of a run, as cards: the call, its output while it runs, its time, and what it changed.

use std::collections::VecDeque;
use std::path::Path;
use std::time::{Duration, Instant};

use anstyle::{AnsiColor, Style};
use rath::chunk::{Call, Denied, Outcome, ToolResult};
use rath::prelude::*;
use rath::record::draw::{self, one_line, preview};
use rath::record::{Record, Step};
use rath::{CallId, Event};

use crate::changed_files::shorten_list;
use crate::output::{self, BRANCH};
use crate::styled::{FAINT, Line};

/// The lines of output that are shown of a running call, and of one that has ended.
const LIVE_LINES: usize = 4;
const OUTPUT_LINES: usize = 4;
const FAILURE_LINES: usize = 8;
/// The lines of a patch that are shown.
const PATCH_LINES: usize = 24;
/// The most bytes of a line of output that are kept.
const MAX_LINE_BYTES: usize = 1_000;
/// The time from which on it is shown.
const MIN_SHOWN_TIME: Duration = Duration::from_millis(100);

const GOOD: Style = AnsiColor::Green.on_default();
const BAD: Style = AnsiColor::Red.on_default();

/// The calls of a run that have no result yet.
#[derive(Default)]
pub(crate) struct Cards {
    running: Vec<Card>,
    /// The time that each call took which has ended and has no result on the record yet.
    ended: Vec<(CallId, Duration)>,
}

/// A call that runs.
struct Card {
    call: Call,
    started: Instant,
    /// The newest lines of output, of which the last may not be complete.
    output: VecDeque<String>,
}

impl Cards {
    /// Follows an event, and returns the lines that it adds: the card of a call that has ended, or that a rule refused, in so many
    /// columns. `project` is the directory with the versions of the files.
    pub(crate) async fn follow(&mut self, event: &Event, project: &Path, columns: usize) -> Vec<Line> {
        let lines = self.lines_of(event, project, columns).await;
        lines.iter().map(|line| line.cut(columns)).collect()
    }

    async fn lines_of(&mut self, event: &Event, project: &Path, columns: usize) -> Vec<Line> {
        match &event.kind {
            EventKind::ToolStarted(call) => self.started(call),
            EventKind::ToolOutput { call, text } => self.printed(call, text),
            EventKind::ToolFinished { call, .. } => self.finished(&call.id),
            EventKind::Step(step) => match step.chunk() {
                Chunk::Denied(denied) => return refused(event.session.as_record(), denied, columns),
                Chunk::ToolResult(result) => {
                    let patch = match result.effects.is_empty() {
                        true => None,
                        false => patch_of(&event.session, step, project).await,
                    };
                    return self.result(event.session.as_record(), result, patch.as_deref(), columns);
                }
                _ => {}
            },
            _ => {}
        }
        Vec::new()
    }

    fn started(&mut self, call: &Call) {
        self.running.push(Card { call: call.clone(), started: Instant::now(), output: VecDeque::new() });
    }

    fn printed(&mut self, call: &CallId, text: &str) {
        let Some(card) = self.running.iter_mut().find(|card| card.call.id == *call) else { return };
        for (nth, piece) in text.split('\n').enumerate() {
            if nth > 0 || card.output.is_empty() {
                card.output.push_back(String::new());
            }
            if let Some(last) = card.output.back_mut().filter(|last| last.len() + piece.len() <= MAX_LINE_BYTES) {
                last.push_str(piece);
            }
            while card.output.len() > LIVE_LINES + 1 {
                card.output.pop_front();
            }
        }
    }

    fn finished(&mut self, call: &CallId) {
        if let Some(at) = self.running.iter().position(|card| card.call.id == *call) {
            let card = self.running.remove(at);
            self.ended.push((card.call.id, card.started.elapsed()));
        }
    }

    /// Drops what is not known any more, at the end of a run.
    pub(crate) fn clear(&mut self) {
        *self = Cards::default();
    }

    /// Returns the calls that run now, with their newest output.
    pub(crate) fn live(&self, columns: usize) -> Vec<Line> {
        let mut lines = Vec::new();
        for card in &self.running {
            let time = Line::default().with(FAINT, format!("  {}", duration(card.started.elapsed())));
            lines.push(head(&card.call, Line::default().with(FAINT, "● "), time, columns));
            let shown = card.output.iter().filter(|line| !line.trim().is_empty());
            let skipped = shown.clone().count().saturating_sub(LIVE_LINES);
            lines.extend(shown.skip(skipped).map(|line| output_line(line)));
        }
        lines
    }

    /// Returns the card of a call whose result is on the record now. `patch` is what it changed.
    fn result(&mut self, record: &Record, result: &ToolResult, patch: Option<&str>, columns: usize) -> Vec<Line> {
        let time = self.ended.iter().position(|(call, _)| *call == result.call).map(|at| self.ended.remove(at).1);
        self.running.retain(|card| card.call.id != result.call);
        // A call that was denied was shown when a rule refused it, or is the person's own decision.
        let Some(call) = find_call(record, &result.call).filter(|_| result.outcome != Outcome::Denied) else {
            return Vec::new();
        };
        let is_good = result.outcome == Outcome::Ok;
        let mark = Line::default().with(if is_good { GOOD } else { BAD }, if is_good { "✓ " } else { "✗ " });
        let mut end = Line::default();
        if !is_good {
            end.push(BAD, format!("  {}", draw::outcome_text(result.outcome)));
        }
        if let Some(time) = time.filter(|time| *time >= MIN_SHOWN_TIME) {
            end.push(FAINT, format!("  {}", duration(time)));
        }
        let mut lines = vec![head(call, mark, end, columns)];
        let text = result.output.as_str().unwrap_or_default();
        lines.extend(match patch {
            Some(patch) if is_good => patch_lines(patch),
            _ if is_good && is_quiet(&call.tool) => Vec::new(),
            _ if is_good => last_lines(text, OUTPUT_LINES),
            _ => last_lines(without_outcome(text, result.outcome), FAILURE_LINES),
        });
        if let Some(patch) = patch.filter(|_| !is_good) {
            lines.extend(patch_lines(patch));
        }
        lines.extend(put_back_lines(result));
        lines
    }
}

/// Returns an output without the name of its outcome, which the head of a card has already.
fn without_outcome(text: &str, outcome: Outcome) -> &str {
    text.strip_prefix(draw::outcome_text(outcome)).and_then(|rest| rest.strip_prefix(": ")).unwrap_or(text)
}

/// Returns the newest call of a record with this id. Its answer may be older than the run.
fn find_call<'a>(record: &'a Record, id: &CallId) -> Option<&'a Call> {
    record.newest_first().find_map(|step| match step.chunk() {
        Chunk::Assistant(answer) => answer.calls.iter().find(|call| call.id == *id),
        _ => None,
    })
}

/// Returns the card of a call that a rule refused.
fn refused(record: &Record, denied: &Denied, columns: usize) -> Vec<Line> {
    let Some(rule) = &denied.rule else { return Vec::new() };
    let Some(call) = find_call(record, &denied.call) else { return Vec::new() };
    let end = Line::default().with(BAD, format!("  refused ({})", preview(rule)));
    vec![head(call, Line::default().with(BAD, "✗ "), end, columns)]
}

/// Returns the lines about files that were put back after a call, or could not be.
fn put_back_lines(result: &ToolResult) -> Vec<Line> {
    let line = |text: String| Line::default().with(BAD, format!("  {text}"));
    let list = |paths: &[String]| shorten_list(&paths.iter().map(|path| one_line(path)).collect::<Vec<_>>());
    let mut lines = Vec::new();
    if !result.put_back.is_empty() {
        lines.push(line(format!("put back as before: {}", list(&result.put_back))));
        lines.push(line("what was there is in .rath/put-back".to_owned()));
    }
    if !result.not_put_back.is_empty() {
        let files = list(&result.not_put_back);
        lines.push(line(format!("changed against your rules, and could not be put back: {files}")));
    }
    lines
}

/// Returns what a step changed, as a patch.
async fn patch_of(session: &Session, step: &Step, project: &Path) -> Option<String> {
    let before = Session::resume(Record::at(step.parents().first()?.step()?.clone())).with_files_in(project);
    before.patch(session).await.ok()
}

/// Returns the first line of a card: the tool of a call, its main argument, as far as there is room, and its end or its time.
fn head(call: &Call, mark: Line, end: Line, columns: usize) -> Line {
    let argument = output::main_argument(&call.tool, call.arguments.as_str().unwrap_or_default());
    let title = mark.with(BRANCH, preview(&call.tool)).with(Style::new(), format!(" {argument}"));
    title.cut(columns.saturating_sub(end.columns())).join(end)
}

/// Returns true if the output of a tool is what a person has before them anyway.
fn is_quiet(tool: &str) -> bool {
    ["read_file", "list_files", "file_exists", "search_files", "write_file", "edit_file", "apply_patch"].contains(&tool)
}

fn output_line(line: &str) -> Line {
    Line::default().with(FAINT, format!("  │ {}", one_line(line.trim_end())))
}

/// Returns the last lines of an output, and how many came before.
pub(crate) fn last_lines(text: &str, most: usize) -> Vec<Line> {
    let lines: Vec<_> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let skipped = lines.len().saturating_sub(most);
    let more = (skipped > 0).then(|| Line::default().with(FAINT, format!("  │ … {skipped} lines before")));
    more.into_iter().chain(lines[skipped..].iter().map(|line| output_line(line))).collect()
}

/// Returns the lines of a patch: its files, and what was removed and added, coloured.
pub(crate) fn patch_lines(patch: &str) -> Vec<Line> {
    // A removed line may look like the header of a file: `--- a`.
    let mut is_header = true;
    let of_content = patch.lines().filter(|line| {
        is_header = line.starts_with("diff --git ") || (is_header && !line.starts_with("@@"));
        let is_shown = ["diff --git ", "rename ", "Binary ", "new file", "deleted file"];
        !is_header || is_shown.iter().any(|begin| line.starts_with(begin))
    });
    let mut lines: Vec<_> = of_content.map(patch_line).collect();
    if lines.len() > PATCH_LINES {
        let more = lines.len() - PATCH_LINES;
        lines.truncate(PATCH_LINES);
        lines.push(Line::default().with(FAINT, format!("  … {more} more lines")));
    }
    lines
}

fn patch_line(line: &str) -> Line {
    let style = match line.chars().next() {
        Some('+') => GOOD,
        Some('-') => BAD,
        Some(' ') => Style::new(),
        _ => FAINT,
    };
    let file = line.strip_prefix("diff --git ").and_then(|files| Some(files.split_once(" b/")?.1));
    let mode = ["new file", "deleted file"].into_iter().find(|it| line.starts_with(&format!("{it} mode ")));
    let shown = file.or(mode).unwrap_or(line).replace('\t', "    ");
    Line::default().with(style, format!("  {}", one_line(&shown)))
}

/// Returns a time in few characters.
pub(crate) fn duration(time: Duration) -> String {
    match time.as_secs() {
        0..10 => format!("{:.1} s", time.as_secs_f64()),
        seconds @ 10..60 => format!("{seconds} s"),
        seconds => format!("{} min {} s", seconds / 60, seconds % 60),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use rath::chunk::Assistant;

    use super::*;

    fn plain(lines: &[Line]) -> String {
        lines.iter().map(|line| format!("|{}\n", line.plain())).collect()
    }

    #[test]
    fn a_patch_is_shown_without_what_only_git_reads() {
        let patch = "diff --git a/a.txt b/a.txt\nindex 1..2 100644\n--- a/a.txt\n+++ b/a.txt\n@@ -1,2 +1,2 @@\n one\n--- two\n+\tthree\n\
            diff --git a/new b/new\nnew file mode 100644\nindex 0..1\n--- /dev/null\n+++ b/new\n@@ -0,0 +1 @@\n+x\u{1b}[2J\n";
        expect![[r#"
            |  a.txt
            |  @@ -1,2 +1,2 @@
            |   one
            |  --- two
            |  +    three
            |  new
            |  new file
            |  @@ -0,0 +1 @@
            |  +x\u{1b}[2J
        "#]]
        .assert_eq(&plain(&patch_lines(patch)));
        assert_eq!(patch_lines(&format!("@@ -0,0 +1 @@\n{}", "+x\n".repeat(1_000))).len(), PATCH_LINES + 1);
    }

    #[test]
    fn a_card_shows_the_newest_output_while_it_runs_and_the_end_of_it_after() {
        let call = Call::new("c1", "shell", r#"{"command":"make\nall"}"#);
        let mut session = Session::user("Go.");
        let mut answer = Assistant::new("");
        answer.calls.push(call.clone());
        session.push(answer);
        let mut cards = Cards::default();
        cards.started(&call);
        for nth in 0..50 {
            cards.printed(&call.id, &format!("line {nth}\nl"));
            cards.printed(&call.id, "ate ");
        }
        let live = cards.live(80);
        assert_eq!(live.len(), LIVE_LINES + 1);
        assert!(live[0].plain().starts_with("● shell make"), "{:?}", live[0]);
        cards.finished(&call.id);
        assert!(cards.live(80).is_empty());
        let output: String = (0..50).map(|nth| format!("line {nth}\n")).collect();
        let result = ToolResult::new(call.id.clone(), Outcome::Failed, output);
        let lines = cards.result(session.as_record(), &result, None, 80);
        assert!(lines[0].plain().starts_with("✗ shell make"), "{:?}", lines[0]);
        let narrow = cards.result(session.as_record(), &result, None, 20);
        assert_eq!(narrow[0].plain(), "✗ shell mak…  failed", "the end of a call is shown in any width");
        assert_eq!(lines.len(), 2 + FAILURE_LINES);
    }
}
