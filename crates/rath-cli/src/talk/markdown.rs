//! Markdown as lines for a terminal, block by block while it arrives.

use anstyle::{AnsiColor, Style};
use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};
use rath::record::draw::one_line;

use crate::styled::{BOLD, FAINT, Line};

const CODE: Style = AnsiColor::Cyan.on_default();

/// A text in Markdown of which more and more arrives.
#[derive(Default)]
pub(crate) struct MarkdownStream {
    /// The text that is not part of a complete block yet.
    rest: String,
    has_blocks: bool,
}

impl MarkdownStream {
    /// Adds a piece of text, and returns the lines of the blocks that are complete now.
    pub(crate) fn push(&mut self, text: &str, columns: usize) -> Vec<Line> {
        self.rest.push_str(text);
        let end = end_of_blocks(&self.rest);
        let complete: String = self.rest.drain(..end).collect();
        self.blocks(&complete, columns)
    }

    /// Ends the text, and returns the lines of its last blocks.
    pub(crate) fn finish(&mut self, columns: usize) -> Vec<Line> {
        let rest = std::mem::take(&mut self.rest);
        let lines = self.blocks(&rest, columns);
        self.has_blocks = false;
        lines
    }

    /// Returns true if a block of the text was returned.
    pub(crate) fn has_blocks(&self) -> bool {
        self.has_blocks
    }

    /// Drops what has not been returned.
    pub(crate) fn clear(&mut self) {
        *self = MarkdownStream::default();
    }

    /// Returns the lines of the text that is not complete yet.
    pub(crate) fn incomplete(&self, columns: usize) -> Vec<Line> {
        render(&self.rest, columns)
    }

    fn blocks(&mut self, text: &str, columns: usize) -> Vec<Line> {
        let mut lines = render(text, columns);
        if !lines.is_empty() && std::mem::replace(&mut self.has_blocks, true) {
            lines.insert(0, Line::default());
        }
        lines
    }
}

/// Returns the length of the blocks at the beginning of a text that are complete: a line that is not indented follows a blank one, and
/// no fence is open.
fn end_of_blocks(text: &str) -> usize {
    let (mut fence, mut end, mut at, mut after_blank) = (None::<String>, 0, 0, false);
    for line in text.split_inclusive('\n') {
        let content = line.trim();
        let is_indented = line.starts_with([' ', '\t']);
        if fence.is_none() && after_blank && !is_indented && !content.is_empty() {
            end = at;
        }
        let marks = |mark: char| content.chars().take_while(|c| *c == mark).count();
        let mark = ['`', '~'].into_iter().find(|mark| marks(*mark) >= 3);
        fence = match (fence, mark) {
            (None, Some(mark)) => Some(mark.to_string().repeat(marks(mark))),
            (Some(open), Some(mark)) if open.starts_with(mark) && marks(mark) >= open.len() => {
                if marks(mark) == content.chars().count() { None } else { Some(open) }
            }
            (fence, _) => fence,
        };
        after_blank = content.is_empty() && line.ends_with('\n');
        at += line.len();
    }
    end
}

/// Returns the lines of a text in Markdown.
pub(crate) fn render(text: &str, columns: usize) -> Vec<Line> {
    let mut renderer = Renderer { columns, ..Renderer::default() };
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    Parser::new_ext(text, options).for_each(|event| renderer.event(event));
    renderer.end_line();
    renderer.lines
}

#[derive(Default)]
struct Renderer {
    columns: usize,
    lines: Vec<Line>,
    /// The line that is being put together.
    line: Line,
    styles: Vec<Style>,
    /// The lists that are open, each with the number of its next item.
    lists: Vec<Option<u64>>,
    /// The number of quotes that are open.
    quotes: usize,
    /// The mark of an item whose first line is not written yet.
    mark: Option<String>,
    in_code: bool,
    link: Option<(String, usize)>,
    table: Option<Vec<Vec<String>>>,
    /// True if a blank line comes before the next block.
    gap: bool,
}

impl Renderer {
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) if self.in_code => text.lines().for_each(|line| self.code_line(line)),
            Event::Text(text) => self.text(&text, self.style()),
            Event::Code(text) => self.text(&text, CODE),
            Event::InlineHtml(text) | Event::Html(text) => self.text(text.trim_end(), self.style()),
            Event::SoftBreak => self.text(" ", self.style()),
            Event::HardBreak => self.end_line(),
            Event::Rule => {
                self.begin_block();
                let rule = "─".repeat(self.columns.min(40));
                self.line.push(FAINT, rule);
                self.end_block();
            }
            Event::TaskListMarker(done) => self.text(if done { "[x] " } else { "[ ] " }, self.style()),
            _ => {}
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Paragraph => self.begin_block(),
            Tag::Heading { .. } => {
                self.begin_block();
                self.styles.push(BOLD);
            }
            Tag::BlockQuote(_) => {
                self.begin_block();
                self.quotes += 1;
            }
            Tag::CodeBlock(kind) => {
                self.begin_block();
                self.in_code = true;
                if let CodeBlockKind::Fenced(language) = kind
                    && !language.is_empty()
                {
                    self.line.push(FAINT, one_line(&language));
                    self.end_line();
                }
            }
            Tag::HtmlBlock => self.begin_block(),
            Tag::List(first) => {
                self.end_line();
                if self.lists.is_empty() {
                    self.begin_block();
                }
                self.lists.push(first);
            }
            Tag::Item => {
                self.end_line();
                // The items of a list are apart if blank lines are between them.
                if std::mem::take(&mut self.gap) {
                    self.lines.push(self.blank_line());
                }
                self.mark = Some(match self.lists.last_mut() {
                    Some(Some(number)) => {
                        *number += 1;
                        format!("{}. ", *number - 1)
                    }
                    _ => "• ".to_owned(),
                });
            }
            Tag::Emphasis => self.styles.push(self.style().italic()),
            Tag::Strong => self.styles.push(self.style().bold()),
            Tag::Strikethrough => self.styles.push(self.style().strikethrough()),
            Tag::Link { dest_url, .. } => self.link = Some((dest_url.to_string(), self.line.plain().len())),
            Tag::Image { dest_url, .. } => self.text(&format!("image {dest_url} "), FAINT),
            Tag::Table(_) => {
                self.begin_block();
                self.table = Some(Vec::new());
            }
            Tag::TableHead | Tag::TableRow => self.table.iter_mut().for_each(|rows| rows.push(Vec::new())),
            Tag::TableCell => self.cell(String::new()),
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Paragraph | TagEnd::HtmlBlock => self.end_block(),
            TagEnd::Heading(_) => {
                self.end_block();
                self.styles.pop();
            }
            TagEnd::BlockQuote(_) => {
                self.quotes -= 1;
                self.end_block();
            }
            TagEnd::CodeBlock => {
                self.in_code = false;
                self.end_block();
            }
            TagEnd::List(_) => {
                self.end_line();
                self.lists.pop();
                self.gap = self.lists.is_empty();
            }
            TagEnd::Item => {
                self.end_line();
                // An item without a text has a mark all the same.
                if self.mark.is_some() {
                    self.write(Line::default());
                }
            }
            TagEnd::Emphasis | TagEnd::Strong | TagEnd::Strikethrough => _ = self.styles.pop(),
            TagEnd::Link => {
                if let Some((url, at)) = self.link.take() {
                    let shown = self.line.plain();
                    if shown.get(at..) != Some(one_line(&url).as_str()) {
                        self.text(&format!(" ({url})"), FAINT);
                    }
                }
            }
            TagEnd::Table => {
                self.end_table();
                self.end_block();
            }
            _ => {}
        }
    }

    fn style(&self) -> Style {
        self.styles.last().copied().unwrap_or_default()
    }

    fn text(&mut self, text: &str, style: Style) {
        let text = visible(text);
        match self.table.as_mut().and_then(|rows| rows.last_mut()?.last_mut()) {
            Some(cell) => cell.push_str(&text),
            None => self.line.push(style, text),
        }
    }

    fn cell(&mut self, text: String) {
        if let Some(row) = self.table.as_mut().and_then(|rows| rows.last_mut()) {
            row.push(text);
        }
    }

    fn begin_block(&mut self) {
        self.end_line();
        if std::mem::take(&mut self.gap) && self.mark.is_none() {
            self.lines.push(self.blank_line());
        }
    }

    fn blank_line(&self) -> Line {
        Line::default().with(FAINT, "│ ".repeat(self.quotes))
    }

    fn end_block(&mut self) {
        self.end_line();
        self.gap = true;
    }

    /// Returns the beginning of a line: the marks of quotes, and the indent of lists.
    fn margin(&self) -> Line {
        let quotes = Line::default().with(FAINT, "│ ".repeat(self.quotes));
        let depth = self.lists.len().saturating_sub(usize::from(self.mark.is_some()));
        quotes.with(Style::new(), "  ".repeat(depth))
    }

    fn end_line(&mut self) {
        if !self.line.is_empty() {
            let line = std::mem::take(&mut self.line);
            self.write(line);
        }
    }

    /// Writes a line, behind the mark of its item if it is the first.
    fn write(&mut self, line: Line) {
        let mut first = self.margin();
        if let Some(mark) = self.mark.take() {
            first.push(FAINT, mark);
        }
        let indent = self.margin();
        self.lines.extend(first.join(line).wrap(self.columns, &indent));
    }

    /// Writes a line of code as it is: blanks matter in it, and it is not broken between words.
    fn code_line(&mut self, line: &str) {
        let indent = self.margin().with(Style::new(), "    ");
        let room = self.columns.saturating_sub(indent.columns()).max(1);
        let line = Line::default().with(CODE, visible(line));
        self.mark = None;
        self.lines.extend(line.split(room).into_iter().map(|part| indent.clone().join(part)));
    }

    fn end_table(&mut self) {
        let rows = self.table.take().unwrap_or_default();
        let margin = self.margin();
        let room = self.columns.saturating_sub(margin.columns());
        let lines = match column_widths(&rows, room) {
            Some(widths) => rows.iter().enumerate().flat_map(|(nth, row)| table_row(row, &widths, nth == 0)).collect(),
            None => table_entries(&rows, room),
        };
        self.lines.extend(lines.into_iter().map(|line: Line| margin.clone().join(line)));
    }
}

/// The blanks between two columns of a table.
const COLUMN_GAP: usize = 2;
/// The narrowest column that a text is broken into.
const MIN_COLUMN_WIDTH: usize = 6;

/// Returns the widths of the columns of a table in so much room: the widest give way. None if there are too many columns for it.
fn column_widths(rows: &[Vec<String>], room: usize) -> Option<Vec<usize>> {
    let count = rows.iter().map(Vec::len).max().unwrap_or_default();
    let width = |nth: usize| rows.iter().filter_map(|row| Some(Line::from(row.get(nth)?.as_str()).columns())).max();
    let mut widths: Vec<usize> = (0..count).map(|nth| width(nth).unwrap_or_default()).collect();
    let room = room.saturating_sub(COLUMN_GAP * count.saturating_sub(1));
    while widths.iter().sum::<usize>() > room {
        let widest = widths.iter_mut().max().filter(|width| **width > MIN_COLUMN_WIDTH)?;
        *widest -= 1;
    }
    Some(widths)
}

/// Returns the lines of a row, whose cells are broken to the widths of their columns.
fn table_row(row: &[String], widths: &[usize], is_head: bool) -> Vec<Line> {
    let style = if is_head { BOLD } else { Style::new() };
    let broken = |(cell, width): (&String, &usize)| {
        Line::default().with(style, cell.as_str()).wrap((*width).max(1), &Line::default())
    };
    let cells: Vec<_> = row.iter().zip(widths).map(broken).collect();
    let height = cells.iter().map(Vec::len).max().unwrap_or_default();
    let line = |at: usize| {
        let mut line = Line::default();
        for (nth, (cell, width)) in cells.iter().zip(widths).enumerate() {
            let part = cell.get(at).cloned().unwrap_or_default();
            let gap = if nth + 1 < cells.len() { width.saturating_sub(part.columns()) + COLUMN_GAP } else { 0 };
            line = line.join(part).with(Style::new(), " ".repeat(gap));
        }
        line
    };
    (0..height).map(line).collect()
}

/// Returns the rows of a table that is too wide as entries, a line for each cell behind the name of its column.
fn table_entries(rows: &[Vec<String>], room: usize) -> Vec<Line> {
    let Some((head, rows)) = rows.split_first() else { return Vec::new() };
    let mut lines = Vec::new();
    for (nth, row) in rows.iter().enumerate() {
        if nth > 0 {
            lines.push(Line::default());
        }
        for (at, cell) in row.iter().enumerate() {
            let name = head.get(at).filter(|name| !name.is_empty()).map(|name| format!("{name}: "));
            let line = Line::default().with(BOLD, name.unwrap_or_default()).with(Style::new(), cell.as_str());
            lines.extend(line.wrap(room, &"  ".into()));
        }
    }
    lines
}

/// Returns a text on one line, with blanks for tabs.
fn visible(text: &str) -> String {
    one_line(&text.replace('\t', "    "))
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn check(text: &str, columns: usize, expected: Expect) {
        let lines: Vec<_> = render(text, columns).iter().map(|line| line.plain().trim_end().to_owned()).collect();
        expected.assert_eq(&(lines.join("\n") + "\n"));
    }

    #[test]
    fn markdown_is_readable_in_narrow_columns() {
        let text = "# A title\n\nSome *text* with `code` and a [link](https://example.org) that is longer than a line.\n\n\
            - one\n- two, which is so long that it has to be broken\n  1. inner\n  2. second\n\n> quoted words\n\n\
            ```rust\nfn main() {\n    hello();\n}\n```\n\n| a | bb |\n|---|---|\n| 1 | two |\n\n---\nend\n";
        check(
            text,
            30,
            expect![[r#"
                A title

                Some text with code and a link
                (https://example.org) that is
                longer than a line.

                • one
                • two, which is so long that
                  it has to be broken
                  1. inner
                  2. second

                │ quoted words

                rust
                    fn main() {
                        hello();
                    }

                a  bb
                1  two

                ──────────────────────────────

                end
            "#]],
        );
    }

    #[test]
    fn a_table_loses_no_word_however_narrow_the_terminal_is() {
        let text = "> | name | what it does |\n> |---|---|\n> | one | a long text about the first of them |\n> | two | short |\n";
        check(
            text,
            30,
            expect![[r#"
                │ name  what it does
                │ one   a long text about the
                │       first of them
                │ two   short
            "#]],
        );
        check(
            text,
            14,
            expect![[r#"
                │ name  what
                │       it
                │       does
                │ one   a long
                │       text
                │       about
                │       the
                │       first
                │       of
                │       them
                │ two   short
            "#]],
        );
        for columns in 3..60 {
            let lines = render(text, columns);
            let shown: String = lines.iter().map(Line::plain).collect();
            for word in ["name", "first", "short"] {
                let letters = |text: &str| text.chars().filter(|c| c.is_alphabetic()).collect::<String>();
                assert!(columns < 12 || letters(&shown).contains(word), "{columns}: {shown}");
            }
            assert!(columns < 8 || lines.iter().all(|line| line.columns() <= columns), "{columns}: {lines:?}");
        }
    }

    #[test]
    fn a_tab_is_shown_as_blanks() {
        for text in ["a\tb", "`a\tb`", "```\na\tb\n```", "*a\tb*", "| a\tb |\n|---|\n"] {
            let lines: Vec<_> = render(text, 40).iter().map(Line::plain).collect();
            assert!(lines.concat().contains("a    b"), "{text:?}: {lines:?}");
        }
    }

    #[test]
    fn a_text_gives_the_same_lines_however_it_arrives() {
        let text = "One\ntwo.\n\n1. a\n\n   more\n\n2. b\n\n```\nx\n\ny\n```\n\nLast *words*.";
        let mut whole = MarkdownStream::default();
        let mut expected = whole.push(text, 40);
        expected.extend(whole.finish(40));
        for size in 1..text.len() {
            let (mut stream, mut lines) = (MarkdownStream::default(), Vec::new());
            for piece in text.as_bytes().chunks(size) {
                lines.extend(stream.push(std::str::from_utf8(piece).expect("ASCII"), 40));
            }
            lines.extend(stream.finish(40));
            assert_eq!(lines, expected, "in pieces of {size}");
        }
    }

    #[test]
    fn what_a_model_writes_controls_no_terminal() {
        for text in ["\u{1b}[2J", "`\u{1b}]0;x\u{7}`", "```\n\u{1b}[31m\n```", "| \u{9b}1m |\n|---|\n| \r |"] {
            let lines = render(text, 40);
            let all: String = lines.iter().map(Line::plain).collect();
            assert!(all.chars().all(|c| !c.is_control()), "{all:?}");
        }
    }
}
