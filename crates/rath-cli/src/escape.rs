//! The filter for all output that people read: only this program's own styles control a terminal.

use std::io::{self, Write};

use rath::record::draw::is_visible;
use serde_json::ser::Formatter;

/// The escape sequences of this program's styles, and of its help.
const OWN_STYLES: [&str; 10] =
    ["\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[3m", "\x1b[4m", "\x1b[9m", "\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[36m"];

/// A writer that escapes what a terminal would not show: control characters, marks that change the direction of text,
/// characters without width, and bytes that are not UTF-8. Line breaks and tabs pass.
pub(crate) struct EscapingWriter<W> {
    out: W,
    /// The escape sequences that pass.
    styles: &'static [&'static str],
    /// The beginning of a character or of an escape sequence, until more is written.
    pending: Vec<u8>,
    previous: Option<char>,
}

impl<W: Write> EscapingWriter<W> {
    /// Creates a writer that lets this program's styles pass.
    pub(crate) fn with_styles(out: W) -> Self {
        EscapingWriter { out, styles: &OWN_STYLES, pending: Vec::new(), previous: None }
    }

    /// Creates a writer that lets no escape sequence pass.
    pub(crate) fn without_styles(out: W) -> Self {
        EscapingWriter { styles: &[], ..EscapingWriter::with_styles(out) }
    }

    /// Writes all that is pending, as it is.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        let pending = std::mem::take(&mut self.pending);
        self.pass(&pending, IsEnd::Yes)?;
        self.out.flush()
    }

    /// Writes as much of the bytes as is decided, and returns its length.
    fn pass(&mut self, bytes: &[u8], is_end: IsEnd) -> io::Result<usize> {
        let mut passed = 0;
        for chunk in bytes.utf8_chunks() {
            let end = passed + chunk.valid().len() + chunk.invalid().len();
            let may_continue = end == bytes.len() && is_end == IsEnd::No;
            let length = self.pass_text(chunk.valid(), may_continue && chunk.invalid().is_empty())?;
            passed += length;
            if length < chunk.valid().len() || (may_continue && !chunk.invalid().is_empty()) {
                return Ok(passed);
            }
            for byte in chunk.invalid() {
                write!(self.out, "\\x{byte:02x}")?;
                self.previous = None;
            }
            passed = end;
        }
        Ok(passed)
    }

    /// Writes a text up to an escape sequence that may continue, and returns the length of what is written.
    fn pass_text(&mut self, text: &str, may_continue: bool) -> io::Result<usize> {
        // The beginning of the visible characters that are not written yet.
        let mut visible = 0;
        let mut after_style = 0;
        for (at, c) in text.char_indices() {
            if at < after_style || matches!(c, '\n' | '\t') || is_visible(c, self.previous) {
                self.previous = Some(c);
                continue;
            }
            let rest = &text[at..];
            if let Some(style) = self.styles.iter().find(|style| rest.starts_with(**style)) {
                after_style = at + style.len();
                continue;
            }
            self.out.write_all(&text.as_bytes()[visible..at])?;
            if may_continue && self.styles.iter().any(|style| style.starts_with(rest)) {
                return Ok(at);
            }
            write!(self.out, "{}", c.escape_default())?;
            self.previous = Some(c);
            visible = at + c.len_utf8();
        }
        self.out.write_all(&text.as_bytes()[visible..])?;
        Ok(text.len())
    }
}

/// Tells whether more is written after some bytes.
#[derive(Clone, Copy, PartialEq)]
enum IsEnd {
    Yes,
    No,
}

impl<W: Write> Write for EscapingWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.pending.extend_from_slice(bytes);
        let pending = std::mem::take(&mut self.pending);
        let passed = self.pass(&pending, IsEnd::No)?;
        self.pending = pending[passed..].to_vec();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// JSON on one line, in whose strings everything that a terminal would not show is escaped.
pub(crate) struct VisibleJson;

impl Formatter for VisibleJson {
    fn write_string_fragment<W: ?Sized + Write>(&mut self, out: &mut W, fragment: &str) -> io::Result<()> {
        // Nearly all texts.
        if fragment.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
            return out.write_all(fragment.as_bytes());
        }
        let mut visible = 0;
        let mut previous = None;
        for (at, c) in fragment.char_indices() {
            if !is_visible(c, previous) {
                out.write_all(&fragment.as_bytes()[visible..at])?;
                c.encode_utf16(&mut [0; 2]).iter().try_for_each(|unit| write!(out, "\\u{unit:04x}"))?;
                visible = at + c.len_utf8();
            }
            previous = Some(c);
        }
        out.write_all(&fragment.as_bytes()[visible..])
    }

    /// Writes a part that is JSON already. Only its strings can have characters that are not visible, except white space.
    fn write_raw_fragment<W: ?Sized + Write>(&mut self, out: &mut W, fragment: &str) -> io::Result<()> {
        for (nth, line) in fragment.split(['\n', '\r', '\t']).enumerate() {
            out.write_all(if nth > 0 { b" " } else { b"" })?;
            self.write_string_fragment(out, line)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use anstyle::{AnsiColor, Style};
    use serde::Serialize;

    use super::*;

    fn escaped(bytes: &[u8], piece: usize) -> String {
        let mut out = Vec::new();
        let mut writer = EscapingWriter::with_styles(&mut out);
        bytes.chunks(piece).for_each(|piece| writer.write_all(piece).expect("a vector takes it"));
        writer.finish().expect("a vector takes it");
        String::from_utf8(out).expect("bytes that are not UTF-8 are escaped")
    }

    #[test]
    fn only_own_styles_control_a_terminal() {
        let rows: [(&[u8], &str); 14] = [
            (b"plain\ttext\n", "plain\ttext\n"),
            (b"\x1b[1m\x1b[31merror\x1b[0m", "\x1b[1m\x1b[31merror\x1b[0m"),
            // The clipboard, the title, a link, a cleared screen, hidden text, an answer that is typed.
            (b"\x1b]52;c;ZXZpbA==\x07", "\\u{1b}]52;c;ZXZpbA==\\u{7}"),
            (b"\x1b]0;title\x1b\\", "\\u{1b}]0;title\\u{1b}\\"),
            (b"\x1b]8;;http://a\x1b\\b", "\\u{1b}]8;;http://a\\u{1b}\\b"),
            (b"\x1b[2Jgone", "\\u{1b}[2Jgone"),
            (b"\x1b[8mhidden\x1b[31;8m", "\\u{1b}[8mhidden\\u{1b}[31;8m"),
            (b"\x1b[6n\x1bP$q\x1b\\", "\\u{1b}[6n\\u{1b}P$q\\u{1b}\\"),
            ("\u{9b}31m\u{9d}52;c;".as_bytes(), "\\u{9b}31m\\u{9d}52;c;"),
            (b"a\rb\x08c\x7f\x00\x0b", "a\\rb\\u{8}c\\u{7f}\\u{0}\\u{b}"),
            (
                "a\u{202e}b\u{2066}c\u{200b}d\u{feff}e\u{ad}".as_bytes(),
                "a\\u{202e}b\\u{2066}c\\u{200b}d\\u{feff}e\\u{ad}",
            ),
            ("pass\u{200d}word\u{2028}\u{e0041}".as_bytes(), "pass\\u{200d}word\\u{2028}\\u{e0041}"),
            // Scripts and pictures that need a joiner or a selector.
            (
                "می\u{200c}خواهم 👩\u{200d}💻 ❤\u{fe0f} 1\u{fe0f}\u{20e3}".as_bytes(),
                "می\u{200c}خواهم 👩\u{200d}💻 ❤\u{fe0f} 1\u{fe0f}\u{20e3}",
            ),
            (b"\xff\xc3(\xe2\x82", "\\xff\\xc3(\\xe2\\x82"),
        ];
        for (bytes, expected) in rows {
            for piece in 1..=bytes.len() {
                assert_eq!(escaped(bytes, piece), expected, "{bytes:?} in pieces of {piece}");
            }
        }
        assert_eq!(escaped(b"\x1b[3", 1), "\\u{1b}[3", "a style that is not completed");
    }

    #[test]
    fn every_style_that_the_program_names_passes() {
        use AnsiColor::*;
        let plain = Style::new();
        let effects = [
            ("bold()", plain.bold()),
            ("dimmed()", plain.dimmed()),
            ("italic()", plain.italic()),
            ("underline()", plain.underline()),
            ("blink()", plain.blink()),
            ("invert()", plain.invert()),
            ("strikethrough()", plain.strikethrough()),
        ];
        let colors = [
            Black,
            Red,
            Green,
            Yellow,
            Blue,
            Magenta,
            Cyan,
            White,
            BrightBlack,
            BrightRed,
            BrightGreen,
            BrightYellow,
            BrightBlue,
            BrightMagenta,
            BrightCyan,
            BrightWhite,
        ];
        let colors = colors.map(|color| (format!("AnsiColor::{color:?}."), color.on_default()));
        let effects = effects.map(|(name, style)| (format!(".{name}"), style));
        let source = source_in(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
        let named: Vec<_> = effects.into_iter().chain(colors).filter(|(name, _)| source.contains(name)).collect();
        assert!(named.len() > 5, "{named:?}");
        for (name, style) in named {
            let text = format!("{style}text{style:#}");
            assert_eq!(escaped(text.as_bytes(), 1), text, "{name} is missing in OWN_STYLES");
        }
        for other in ["RgbColor", "Ansi256Color", "bg_color("] {
            assert!(!source.contains(other), "{other} is missing in OWN_STYLES");
        }
    }

    /// Returns the source of the program without that of this file.
    fn source_in(directory: &Path) -> String {
        let entries = std::fs::read_dir(directory).expect("a directory").map(|entry| entry.expect("an entry").path());
        let files = entries.filter(|path| !path.ends_with("src/escape.rs"));
        let texts = files.map(|path| match path.is_dir() {
            true => source_in(&path),
            false => std::fs::read_to_string(&path).unwrap_or_default(),
        });
        texts.collect()
    }

    #[test]
    fn data_has_no_styles() {
        let mut out = Vec::new();
        let mut writer = EscapingWriter::without_styles(&mut out);
        writer.write_all(b"\x1b[31mred").expect("a vector takes it");
        writer.finish().expect("a vector takes it");
        assert_eq!(out, b"\\u{1b}[31mred");
    }

    #[test]
    fn json_is_the_same_value_with_everything_visible() {
        let text = "a\u{9b}\u{7f}\u{202e}\u{e0041}\u{200b}\u{1b}\n\"é";
        let json = written(&text);
        assert_eq!(json, r#""a\u009b\u007f\u202e\udb40\udc41\u200b\u001b\n\"é""#);
        assert_eq!(serde_json::from_str::<String>(&json).expect("it is JSON"), text);
        let raw = serde_json::value::RawValue::from_string("{\n\t\"a\": \"\u{9b}\"}".to_owned()).expect("JSON");
        assert_eq!(written(&raw), r#"{  "a": "\u009b"}"#);
    }

    fn written(value: &impl Serialize) -> String {
        let mut out = Vec::new();
        value.serialize(&mut serde_json::Serializer::with_formatter(&mut out, VisibleJson)).expect("JSON");
        String::from_utf8(out).expect("JSON is UTF-8")
    }
}
