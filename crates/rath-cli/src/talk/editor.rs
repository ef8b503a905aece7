//! The line that a person types: editing, earlier lines, completion.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use rath::record::draw::one_line;
use tui_input::{Input, InputRequest};

use crate::styled::{FAINT, Line, columns_of};
use crate::terminal::CursorPosition;

/// The most characters that a line takes. More is refused, not cut: nobody sees what is missing.
pub(crate) const MAX_CHARS: usize = 200_000;
/// The most rows of a long line that are shown.
const MAX_ROWS: usize = 10;

/// A line that is being typed.
#[derive(Default)]
pub(crate) struct Editor {
    input: Input,
    /// The lines that were sent before, oldest first.
    earlier: Vec<String>,
    /// The position in `earlier`, while one of them is shown, and the line that was typed before.
    recalled: Option<(usize, String)>,
}

/// The effect of a key.
#[derive(Debug, PartialEq)]
pub(crate) enum Edit {
    /// The line may have changed.
    Changed,
    /// The person sent the line.
    Sent(String),
    /// Ctrl-C.
    Stop,
    /// Ctrl-D in an empty line.
    End,
    /// Ctrl-Z.
    Suspend,
    /// Ctrl-L.
    Clear,
    /// Tab: the text before the cursor can be completed.
    Complete,
    Nothing,
}

impl Editor {
    /// Makes an editor that recalls these lines, oldest first.
    pub(crate) fn with_earlier(earlier: Vec<String>) -> Self {
        Editor { earlier, ..Editor::default() }
    }

    pub(crate) fn text(&self) -> &str {
        self.input.value()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.text().is_empty()
    }

    /// Replaces the line.
    pub(crate) fn set(&mut self, text: impl Into<String>) {
        self.input = Input::new(text.into());
        self.recalled = None;
    }

    /// Inserts a text that was pasted. Returns false if it is too long.
    pub(crate) fn paste(&mut self, text: &str) -> bool {
        let text = text.replace("\r\n", "\n").replace('\r', "\n");
        let (before, after) = self.around_cursor();
        if before.chars().count() + text.chars().count() + after.chars().count() > MAX_CHARS {
            return false;
        }
        let cursor = before.chars().count() + text.chars().count();
        self.input = Input::new(format!("{before}{text}{after}")).with_cursor(cursor);
        true
    }

    /// Returns the text before the cursor, and that behind it.
    pub(crate) fn around_cursor(&self) -> (String, String) {
        let text = self.text();
        let at = text.char_indices().nth(self.input.cursor()).map_or(text.len(), |(at, _)| at);
        (text[..at].to_owned(), text[at..].to_owned())
    }

    /// Replaces the text before the cursor.
    pub(crate) fn replace_before(&mut self, before: &str) {
        let (_, after) = self.around_cursor();
        self.input = Input::new(format!("{before}{after}")).with_cursor(before.chars().count());
    }

    /// Applies a key.
    pub(crate) fn key(&mut self, key: KeyEvent) -> Edit {
        use InputRequest::*;
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        let alt = key.modifiers.contains(KeyModifiers::ALT);
        let request = match key.code {
            KeyCode::Enter if alt || key.modifiers.contains(KeyModifiers::SHIFT) => InsertChar('\n'),
            KeyCode::Enter => return self.send(),
            // A line feed, as programs send it that type in a terminal.
            KeyCode::Char('j') if control => return self.send(),
            KeyCode::Char('c') if control => return Edit::Stop,
            KeyCode::Char('d') if control && self.is_empty() => return Edit::End,
            KeyCode::Char('z') if control => return Edit::Suspend,
            KeyCode::Char('l') if control => return Edit::Clear,
            KeyCode::Tab => return Edit::Complete,
            KeyCode::Up => return self.recall(-1),
            KeyCode::Down => return self.recall(1),
            KeyCode::Char('p') if control => return self.recall(-1),
            KeyCode::Char('n') if control => return self.recall(1),
            KeyCode::Backspace if alt || control => DeletePrevWord,
            KeyCode::Backspace => DeletePrevChar,
            KeyCode::Char('h') if control => DeletePrevChar,
            KeyCode::Char('w') if control => DeletePrevWord,
            KeyCode::Delete if control => DeleteNextWord,
            KeyCode::Delete => DeleteNextChar,
            KeyCode::Char('d') if control => DeleteNextChar,
            KeyCode::Char('d') if alt => DeleteNextWord,
            KeyCode::Left if control || alt => GoToPrevWord,
            KeyCode::Right if control || alt => GoToNextWord,
            KeyCode::Char('b') if alt => GoToPrevWord,
            KeyCode::Char('f') if alt => GoToNextWord,
            KeyCode::Left => GoToPrevChar,
            KeyCode::Right => GoToNextChar,
            KeyCode::Char('b') if control => GoToPrevChar,
            KeyCode::Char('f') if control => GoToNextChar,
            KeyCode::Home => GoToStart,
            KeyCode::End => GoToEnd,
            KeyCode::Char('a') if control => GoToStart,
            KeyCode::Char('e') if control => GoToEnd,
            KeyCode::Char('k') if control => DeleteTillEnd,
            KeyCode::Char('u') if control => DeleteFromStart,
            KeyCode::Char('y') if control => Yank,
            KeyCode::Char(c) if !control && !alt && self.text().len() < MAX_CHARS => InsertChar(c),
            _ => return Edit::Nothing,
        };
        self.input.handle(request);
        Edit::Changed
    }

    fn send(&mut self) -> Edit {
        // As in a shell, a backslash at the end goes on in the next line.
        let (before, after) = self.around_cursor();
        if after.is_empty() && before.ends_with('\\') {
            self.set(format!("{}\n", &before[..before.len() - 1]));
            return Edit::Changed;
        }
        self.recalled = None;
        let text = self.input.value_and_reset();
        if !text.trim().is_empty() && self.earlier.last() != Some(&text) {
            self.earlier.push(text.clone());
        }
        Edit::Sent(text)
    }

    /// Shows an earlier line, or a later one.
    fn recall(&mut self, step: isize) -> Edit {
        let (at, typed) = self.recalled.take().unwrap_or_else(|| (self.earlier.len(), self.text().to_owned()));
        let to = at.saturating_add_signed(step).min(self.earlier.len());
        let text = self.earlier.get(to).unwrap_or(&typed).clone();
        self.set(text);
        self.recalled = (to < self.earlier.len()).then_some((to, typed));
        Edit::Changed
    }

    /// Returns the rows in which the line is shown behind a prompt, and the position of the cursor in them.
    pub(crate) fn rows(&self, prompt: &Line, columns: usize) -> (Vec<Line>, CursorPosition) {
        let indent = " ".repeat(prompt.columns());
        let room = columns.saturating_sub(prompt.columns() + 1).max(2);
        let cursor_at = self.input.cursor();
        let mut rows = vec![prompt.clone()];
        let (mut used, mut cursor) = (0, CursorPosition { line: 0, column: prompt.columns() });
        for (at, c) in self.text().chars().enumerate() {
            let shown = if c == '\n' { String::new() } else { one_line(&c.to_string()) };
            let width: usize = shown.chars().map(columns_of).sum();
            if at == cursor_at {
                cursor = CursorPosition { line: rows.len() - 1, column: prompt.columns() + used };
            }
            if c == '\n' || used + width > room {
                rows.push(indent.as_str().into());
                used = 0;
            }
            used += width;
            if let Some(row) = rows.last_mut() {
                row.push(anstyle::Style::new(), shown);
            }
        }
        if cursor_at >= self.text().chars().count() {
            cursor = CursorPosition { line: rows.len() - 1, column: prompt.columns() + used };
        }
        // Of many rows those around the cursor are shown.
        let skipped = (cursor.line + 1).saturating_sub(MAX_ROWS);
        let shown: Vec<_> = rows.drain(skipped..rows.len().min(skipped + MAX_ROWS)).collect();
        (shown, CursorPosition { line: cursor.line - skipped, ..cursor })
    }
}

/// Returns the rows of an editor that waits behind others, in few words.
pub(crate) fn waiting_row(text: &str) -> Line {
    Line::default().with(FAINT, format!("next: {}", one_line(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(editor: &mut Editor, text: &str) {
        text.chars().for_each(|c| _ = editor.key(KeyEvent::new(KeyCode::Char(c), KeyModifiers::NONE)));
    }

    fn press(editor: &mut Editor, code: KeyCode, modifiers: KeyModifiers) -> Edit {
        editor.key(KeyEvent::new(code, modifiers))
    }

    #[test]
    fn lines_are_edited_sent_and_recalled() {
        let mut editor = Editor::default();
        typed(&mut editor, "first line");
        press(&mut editor, KeyCode::Char('w'), KeyModifiers::CONTROL);
        assert_eq!(editor.text(), "first ");
        typed(&mut editor, "word");
        assert_eq!(press(&mut editor, KeyCode::Enter, KeyModifiers::NONE), Edit::Sent("first word".to_owned()));
        typed(&mut editor, "draft");
        press(&mut editor, KeyCode::Up, KeyModifiers::NONE);
        assert_eq!(editor.text(), "first word");
        press(&mut editor, KeyCode::Down, KeyModifiers::NONE);
        assert_eq!(editor.text(), "draft", "what was typed comes back");
    }

    #[test]
    fn a_line_has_several_lines_after_a_backslash_or_a_paste() {
        let mut editor = Editor::default();
        typed(&mut editor, "one\\");
        assert_eq!(press(&mut editor, KeyCode::Enter, KeyModifiers::NONE), Edit::Changed);
        assert!(editor.paste("two\r\nthree"));
        assert_eq!(editor.text(), "one\ntwo\nthree");
        let (rows, cursor) = editor.rows(&"> ".into(), 20);
        let plain: Vec<_> = rows.iter().map(Line::plain).collect();
        assert_eq!(plain, ["> one", "  two", "  three"]);
        assert_eq!(cursor, CursorPosition { line: 2, column: 7 });
    }

    #[test]
    fn a_long_line_is_shown_in_rows_of_the_width_around_the_cursor() {
        let mut editor = Editor::default();
        editor.set("日本語 ".repeat(100));
        for columns in [4, 10, 80] {
            let (rows, cursor) = editor.rows(&"> ".into(), columns);
            assert!(rows.len() <= MAX_ROWS && cursor.line < rows.len(), "{columns}");
            assert!(rows.iter().all(|row| row.columns() <= columns.max(5)), "{columns}");
        }
    }

    #[test]
    fn too_long_a_text_is_refused_whole() {
        let mut editor = Editor::default();
        assert!(!editor.paste(&"x".repeat(MAX_CHARS + 1)));
        assert!(editor.is_empty());
    }
}
