//! Texts with their escapes undone and their long lines joined.

/// A text with its escapes undone, and the position in the original that each byte comes from.
///
/// Undone are the escapes of URLs (`%2F`), of JSON and of shells (`\n`, `\"`, `\u002F`, `\x2F`, a line break behind a
/// backslash), and the breaks between lines as long as those of Base64 in mail and in certificates.
struct DecodedText {
    bytes: Vec<u8>,
    /// The position of each byte, and of the end.
    origins: Vec<usize>,
}

/// The most times that escapes are undone: JSON in JSON in JSON.
const MAX_DECODINGS: usize = 3;
/// The fewest characters before a line break that is left out: programs break Base64 at 60, 64 or 76 characters.
const MIN_LINE_BYTES: usize = 40;
/// The longest escape: two units of UTF-16.
const MAX_ESCAPE_BYTES: usize = 12;

/// A text with its escapes undone once, twice and three times, as far as it has any.
pub(super) struct DecodedLayers(Vec<DecodedText>);

/// The treatment of line breaks behind lines as long as those of Base64.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum LineBreaks {
    /// Left out: a value may continue in the next line.
    Joined,
    Kept,
}

/// The end of a text.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum TextEnd {
    Final,
    /// The text continues. The beginning of an escape at its end is left out.
    Open,
}

impl DecodedLayers {
    pub(super) fn new(text: &[u8], breaks: LineBreaks, end: TextEnd) -> Self {
        let mut layers: Vec<DecodedText> = Vec::new();
        while layers.len() < MAX_DECODINGS
            && let Some(next) = DecodedText::new(layers.last().map_or(text, |layer| &layer.bytes), breaks, end)
        {
            layers.push(next);
        }
        DecodedLayers(layers)
    }

    /// Returns the bytes of each layer.
    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, &[u8])> {
        self.0.iter().enumerate().map(|(nth, layer)| (nth, &*layer.bytes))
    }

    /// Returns the position in the original of a position in a layer.
    pub(super) fn origin(&self, layer: usize, at: usize) -> usize {
        self.0[..=layer].iter().rev().fold(at, |at, layer| layer.origins[at])
    }
}

impl DecodedText {
    /// Decodes a text. Returns `None` if it has neither an escape that not all writers use, nor a break to leave out.
    fn new(text: &[u8], breaks: LineBreaks, end: TextEnd) -> Option<Self> {
        let whole = match end {
            TextEnd::Final => text,
            TextEnd::Open => &text[..unfinished_escape(text).unwrap_or(text.len())],
        };
        let mut hits = memchr::memchr3_iter(b'%', b'\\', b'\n', whole);
        let is_decoded = whole.len() < text.len() || hits.any(|at| is_decoded(whole, at, breaks));
        is_decoded.then(|| DecodedText::decode(whole, breaks))
    }

    fn decode(text: &[u8], breaks: LineBreaks) -> Self {
        let mut decoded = DecodedText { bytes: Vec::with_capacity(text.len()), origins: Vec::new() };
        let is_joined = |at: usize| breaks == LineBreaks::Joined && follows_long_line(text, at);
        let mut at = 0;
        while at < text.len() {
            let (unit, length) = match text[at] {
                b'%' => decode_percent(&text[at..]),
                b'\\' if is_joined(at) => decode_break(&text[at..]).or(decode_backslash(&text[at..])),
                b'\\' => decode_backslash(&text[at..]),
                b'\r' | b'\n' if is_joined(at) => decode_break(&text[at..]),
                _ => None,
            }
            .unwrap_or((Unit::Byte(text[at]), 1));
            match unit {
                Unit::Nothing => {}
                Unit::Byte(byte) => decoded.push(&[byte], at),
                Unit::Char(c) => decoded.push(c.encode_utf8(&mut [0; 4]).as_bytes(), at),
            }
            at += length;
        }
        decoded.origins.push(text.len());
        decoded
    }

    fn push(&mut self, bytes: &[u8], origin: usize) {
        self.bytes.extend_from_slice(bytes);
        self.origins.extend(bytes.iter().map(|_| origin));
    }
}

/// A part of a decoded text.
enum Unit {
    Nothing,
    Byte(u8),
    Char(char),
}

/// Returns true if the text is decoded because of the byte at `at`. The escapes of most writers of JSON are not
/// enough: those forms are searched for as they are.
fn is_decoded(text: &[u8], at: usize, breaks: LineBreaks) -> bool {
    let rest = &text[at..];
    let is_joined = || breaks == LineBreaks::Joined && follows_long_line(text, at);
    match rest[0] {
        b'%' => decode_percent(rest).is_some(),
        b'\\' if matches!(rest.get(1), Some(b'u' | b'x' | b'\\' | b'\n' | b'\r')) => decode_backslash(rest).is_some(),
        b'\\' => matches!(rest.get(1), Some(b'n' | b'r')) && is_joined(),
        _ => is_joined(),
    }
}

fn decode_percent(rest: &[u8]) -> Option<(Unit, usize)> {
    Some((Unit::Byte(hex(rest.get(1..3)?)? as u8), 3))
}

fn decode_backslash(rest: &[u8]) -> Option<(Unit, usize)> {
    Some(match rest.get(1)? {
        b'n' => (Unit::Byte(b'\n'), 2),
        b'r' => (Unit::Byte(b'\r'), 2),
        b't' => (Unit::Byte(b'\t'), 2),
        b'b' => (Unit::Byte(8), 2),
        b'f' => (Unit::Byte(12), 2),
        byte @ (b'"' | b'\'' | b'\\' | b'/') => (Unit::Byte(*byte), 2),
        b'\n' => (Unit::Nothing, 2),
        b'\r' if rest.get(2) == Some(&b'\n') => (Unit::Nothing, 3),
        b'x' => (Unit::Byte(hex(rest.get(2..4)?)? as u8), 4),
        b'u' => {
            let first = hex(rest.get(2..6)?)?;
            let second = rest.get(6..8).filter(|mark| mark == b"\\u").and_then(|_| hex(rest.get(8..12)?));
            let mut chars = char::decode_utf16([Some(first), second].into_iter().flatten());
            let c = chars.next()?.ok()?;
            (Unit::Char(c), if c.len_utf16() == 2 { 12 } else { 6 })
        }
        _ => return None,
    })
}

/// Decodes a line break, raw or as in JSON, and the indent after it.
fn decode_break(rest: &[u8]) -> Option<(Unit, usize)> {
    let breaks: [&[u8]; 4] = [b"\r\n", b"\n", b"\\r\\n", b"\\n"];
    let length = breaks.iter().find(|it| rest.starts_with(it))?.len();
    let indent = rest[length..].iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    Some((Unit::Nothing, length + indent))
}

/// Returns true if so many digits of Base64 stand before `at` that they are a line of it.
fn follows_long_line(text: &[u8], at: usize) -> bool {
    let is_digit = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/-_=".contains(byte);
    let before = text[..at].strip_suffix(b"\r").unwrap_or(&text[..at]);
    let line = before.get(before.len().wrapping_sub(MIN_LINE_BYTES)..);
    line.is_some_and(|line| line.iter().rev().all(is_digit))
}

fn hex(digits: &[u8]) -> Option<u16> {
    let digit = |number: u16, digit: &u8| Some(number << 4 | char::from(*digit).to_digit(16)? as u16);
    digits.iter().try_fold(0, digit)
}

/// Returns the start of an escape that the end of the text cuts off.
fn unfinished_escape(text: &[u8]) -> Option<usize> {
    let from = text.len().saturating_sub(MAX_ESCAPE_BYTES - 1);
    let is_cut = |rest: &[u8]| match rest {
        [b'%'] | [b'\\'] | [b'\r'] | [b'\\', b'\r'] => true,
        [b'%', digits @ ..] => digits.len() < 2 && hex(digits).is_some(),
        [b'\\', b'x', digits @ ..] => digits.len() < 2 && hex(digits).is_some(),
        [b'\\', b'u', digits @ ..] if digits.len() < 4 => hex(digits).is_some(),
        [b'\\', b'u', a, b, c, d, second @ ..] => {
            let is_first = hex(&[*a, *b, *c, *d]).is_some_and(|unit| (0xd800..0xdc00).contains(&unit));
            is_first && second.len() < 6 && second.iter().zip(b"\\u").all(|(byte, mark)| byte == mark)
        }
        _ => false,
    };
    (from..text.len()).find(|start| is_cut(&text[*start..]))
}
