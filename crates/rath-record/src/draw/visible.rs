//! Texts of others on a line or a screen: shortened, and without anything that a terminal would not show.

use unicode_width::UnicodeWidthStr;

/// The number of columns that a preview of a text may take.
const PREVIEW_COLUMNS: usize = 60;

/// Shortens a text to one line: white space folded, invisible characters escaped, cut after sixty columns.
///
/// ```
/// assert_eq!(rath_record::draw::preview("two\n   lines"), "two lines");
/// ```
pub fn preview(text: &str) -> String {
    shorten(text, PREVIEW_COLUMNS)
}

/// Shortens a text to one line, as [`preview`] does, cut after this many columns.
///
/// ```
/// assert_eq!(rath_record::draw::shorten("two\n   lines", 6), "two l…");
/// ```
pub fn shorten(text: &str, columns: usize) -> String {
    let mut line = String::new();
    let mut width = 0;
    // The place to cut if the next piece does not fit: one column is left for the ellipsis.
    let mut cut = 0;
    let words = text.split_whitespace().enumerate();
    // Only as much as fits is read: a text of ten megabytes must not be folded for one line.
    let chars = words.flat_map(|(nth, word)| (nth > 0).then_some(' ').into_iter().chain(word.chars()));
    let mut previous = None;
    for c in chars {
        let end = line.len();
        push_visible(&mut line, c, previous);
        previous = Some(c);
        width += UnicodeWidthStr::width(&line[end..]);
        if width > columns {
            line.truncate(cut);
            line.push('…');
            break;
        }
        if width < columns {
            cut = line.len();
        }
    }
    line
}

/// Escapes the invisible characters of a text, except line breaks and tabs: the output of a model must not control a
/// terminal.
///
/// ```
/// assert_eq!(rath_record::draw::printable("red: \u{1b}[31m"), r"red: \u{1b}[31m");
/// ```
pub fn printable(text: &str) -> String {
    escape_all(text, |c| matches!(c, '\n' | '\t'))
}

/// Escapes the invisible characters of a text, line breaks and tabs too: a name must not look like several lines.
///
/// ```
/// assert_eq!(rath_record::draw::one_line("a.txt\nhint: b"), r"a.txt\nhint: b");
/// ```
pub fn one_line(text: &str) -> String {
    escape_all(text, |_| false)
}

/// Returns true if a terminal shows a character, and shows it where it stands. `previous` is the character before it.
///
/// Control characters are not visible, nor are marks that change the direction of text, so that a line could be read as
/// another, nor characters without width, so that two texts could look alike. Joiners and selectors are part of a picture
/// or of a word in some scripts, and one is visible after such a character.
///
/// ```
/// use rath_record::draw::is_visible;
///
/// assert!(is_visible('é', None));
/// assert!(!is_visible('\u{202e}', None));
/// assert!(is_visible('\u{200d}', Some('👩')) && !is_visible('\u{200d}', Some('a')));
/// assert!(!is_visible('\u{200d}', Some('\u{200d}')) && !is_visible('\u{200c}', Some('é')));
/// ```
pub fn is_visible(c: char, previous: Option<char>) -> bool {
    match c {
        ' '..='~' => true,
        '\u{200c}' => previous.is_some_and(is_joining_letter),
        '\u{200d}' => previous.is_some_and(|previous| is_joining_letter(previous) || is_picture(previous)),
        '\u{fe0e}' | '\u{fe0f}' => previous.is_some_and(|previous| {
            let is_shown = !previous.is_ascii() && !previous.is_control() && !is_ignorable(previous);
            is_shown || previous.is_ascii_digit() || "#*".contains(previous)
        }),
        _ => !c.is_control() && !is_ignorable(c),
    }
}

/// Returns true for letters and marks of scripts in which a joiner changes how a word is written.
fn is_joining_letter(c: char) -> bool {
    let is_of_script = matches!(c,
        '\u{600}'..='\u{109f}' | '\u{1780}'..='\u{18af}' | '\u{1900}'..='\u{1cff}' | '\u{a840}'..='\u{abff}'
        | '\u{fb50}'..='\u{fdff}' | '\u{fe70}'..='\u{fefc}' | '\u{10a00}'..='\u{11fff}' | '\u{1e900}'..='\u{1e95f}');
    is_of_script && !c.is_control() && !c.is_numeric() && !is_ignorable(c)
}

/// Returns true for pictures and their selector, which a joiner joins.
fn is_picture(c: char) -> bool {
    matches!(c, '\u{2190}'..='\u{2bff}' | '\u{fe0f}' | '\u{1f000}'..='\u{1faff}')
}

/// Returns true for the characters that Unicode lets a program leave out, for line and paragraph separators, and for
/// characters of annotations.
fn is_ignorable(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}'
        | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

fn escape_all(text: &str, stays: impl Fn(char) -> bool) -> String {
    let mut escaped = String::with_capacity(text.len());
    let mut previous = None;
    for c in text.chars() {
        match stays(c) {
            true => escaped.push(c),
            false => push_visible(&mut escaped, c, previous),
        }
        previous = Some(c);
    }
    escaped
}

/// Appends a character, or its escape if it is not visible.
fn push_visible(text: &mut String, c: char, previous: Option<char>) {
    match is_visible(c, previous) {
        true => text.push(c),
        false => text.extend(c.escape_default()),
    }
}
