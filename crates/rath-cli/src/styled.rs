//! Lines of styled text, which can be cut and wrapped by the columns of a terminal.

use anstyle::Style;
use unicode_width::UnicodeWidthChar;

/// A piece of a line, in one style.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Span {
    pub(crate) style: Style,
    pub(crate) text: String,
}

/// A line of styled text, without a line break.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Line(Vec<Span>);

/// The style of what matters less.
pub(crate) const FAINT: Style = Style::new().dimmed();
/// The style of what matters most.
pub(crate) const BOLD: Style = Style::new().bold();

impl From<String> for Line {
    fn from(text: String) -> Self {
        Line::default().with(Style::new(), text)
    }
}

impl From<&str> for Line {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl Line {
    /// Adds a piece at the end.
    pub(crate) fn with(mut self, style: Style, text: impl Into<String>) -> Self {
        self.push(style, text);
        self
    }

    /// Adds a piece at the end.
    pub(crate) fn push(&mut self, style: Style, text: impl Into<String>) {
        let text = text.into();
        match self.0.last_mut() {
            _ if text.is_empty() => {}
            Some(last) if last.style == style => last.text.push_str(&text),
            _ => self.0.push(Span { style, text }),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the text without styles.
    pub(crate) fn plain(&self) -> String {
        self.0.iter().map(|span| span.text.as_str()).collect()
    }

    /// Returns the text with the escape sequences of its styles.
    pub(crate) fn styled(&self) -> String {
        let styled = |span: &Span| match span.style == Style::new() {
            true => span.text.clone(),
            false => format!("{}{}{:#}", span.style, span.text, span.style),
        };
        self.0.iter().map(styled).collect()
    }

    /// Returns the number of columns.
    pub(crate) fn columns(&self) -> usize {
        self.chars().map(|(_, c)| columns_of(c)).sum()
    }

    /// Cuts the line to this number of columns. A cut line ends with `…`.
    pub(crate) fn cut(&self, columns: usize) -> Line {
        if self.columns() <= columns {
            return self.clone();
        }
        let mut cut = Line::default();
        let mut used = 1;
        for (style, c) in self.chars() {
            used += columns_of(c);
            if used > columns {
                break;
            }
            cut.push(style, c);
        }
        cut.with(Style::new(), if columns > 0 { "…" } else { "" })
    }

    /// Breaks the line between words into lines of at most this number of columns. All but the first begin with `indent`.
    pub(crate) fn wrap(&self, columns: usize, indent: &Line) -> Vec<Line> {
        let columns = columns.max(indent.columns() + 2);
        let chars: Vec<_> = self.chars().collect();
        let (mut lines, mut at) = (Vec::new(), 0);
        loop {
            let begin = if lines.is_empty() { Line::default() } else { indent.clone() };
            let mut used = begin.columns();
            let fitting = chars[at..].iter().take_while(|(_, c)| {
                used += columns_of(*c);
                used <= columns
            });
            let mut end = at + fitting.count();
            // A character that is wider than the terminal is shown all the same.
            end = end.max((at + 1).min(chars.len()));
            if end < chars.len() && chars[end].1 != ' ' {
                let space = chars[at..end].iter().rposition(|(_, c)| *c == ' ');
                end = space.map_or(end, |space| at + space + 1);
            }
            let mut line = begin;
            chars[at..end].iter().for_each(|(style, c)| line.push(*style, *c));
            lines.push(line);
            at = end;
            while at > 0 && at < chars.len() && chars[at].1 == ' ' {
                at += 1;
            }
            if at >= chars.len() {
                return lines;
            }
        }
    }

    /// Appends another line.
    pub(crate) fn join(mut self, other: Line) -> Line {
        other.0.into_iter().for_each(|span| self.push(span.style, span.text));
        self
    }

    /// Splits the line into parts of at most this number of columns, also within words.
    pub(crate) fn split(&self, columns: usize) -> Vec<Line> {
        let (mut parts, mut used) = (vec![Line::default()], 0);
        for (style, c) in self.chars() {
            if used > 0 && used + columns_of(c) > columns {
                parts.push(Line::default());
                used = 0;
            }
            used += columns_of(c);
            if let Some(last) = parts.last_mut() {
                last.push(style, c);
            }
        }
        parts
    }

    fn chars(&self) -> impl Iterator<Item = (Style, char)> {
        self.0.iter().flat_map(|span| span.text.chars().map(|c| (span.style, c)))
    }
}

/// Returns the number of columns of a character.
pub(crate) fn columns_of(c: char) -> usize {
    c.width().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_wrapped_between_words_and_cut_by_columns() {
        let rows = [
            ("", 10, vec![""], ""),
            ("one two three", 20, vec!["one two three"], "one two three"),
            ("one two three", 8, vec!["one two ", "  three"], "one two…"),
            ("averyveryverylongword", 8, vec!["averyver", "  yveryl", "  ongwor", "  d"], "averyve…"),
            ("日本語のテキスト", 8, vec!["日本語の", "  テキス", "  ト"], "日本語…"),
        ];
        for (text, columns, wrapped, cut) in rows {
            let line = Line::from(text);
            let plain: Vec<_> = line.wrap(columns, &"  ".into()).iter().map(Line::plain).collect();
            assert_eq!(plain, wrapped, "{text}");
            assert_eq!(line.cut(columns).plain(), cut, "{text}");
        }
    }

    #[test]
    fn no_width_loses_a_character() {
        for columns in 0..30 {
            for text in ["one two  three", "日本 語のテ キスト", " begins with a blank", "e\u{301}a\u{200b}b"] {
                let wrapped = Line::from(text).wrap(columns, &Line::default());
                let all: String = wrapped.iter().map(Line::plain).collect();
                let without_blanks = |text: &str| text.replace(' ', "");
                assert_eq!(without_blanks(&all), without_blanks(text), "{columns}");
            }
        }
    }
}
