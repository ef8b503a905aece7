//! Regular expressions of schemas: those of ECMAScript, with a bound on their work.

use fancy_regex::{Regex, RegexBuilder};

/// The most bytes that a compiled pattern may take.
const MAX_PATTERN_BYTES: usize = 2 * 1024 * 1024;
/// The longest pattern, in bytes.
const MAX_PATTERN_LENGTH: usize = 16 * 1024;
/// The most steps back that a match may take. Only patterns that look around or refer back take any.
const MAX_BACKTRACKS: usize = 200_000;

/// A compiled pattern.
#[derive(Debug)]
pub(super) struct SchemaPattern {
    pub(super) text: String,
    regex: Regex,
}

impl SchemaPattern {
    pub(super) fn new(text: &str) -> Result<Self, String> {
        if text.len() > MAX_PATTERN_LENGTH {
            return Err(format!("wanted a pattern of at most {MAX_PATTERN_LENGTH} bytes, found {}", text.len()));
        }
        let translated = translate(text).ok_or_else(|| format!("wanted a regular expression, found `{text}`"))?;
        let mut builder = RegexBuilder::new(&translated);
        let builder = builder.backtrack_limit(MAX_BACKTRACKS).delegate_size_limit(MAX_PATTERN_BYTES);
        let regex = builder.build().map_err(|error| {
            let error = error.to_string();
            let error = error.lines().last().unwrap_or_default();
            format!("wanted a regular expression, found `{text}`: {}", error.strip_prefix("error: ").unwrap_or(error))
        })?;
        Ok(SchemaPattern { text: text.to_owned(), regex })
    }

    /// Returns none if the match takes too many steps.
    pub(super) fn matches(&self, text: &str) -> Option<bool> {
        self.regex.is_match(text).ok()
    }
}

/// Writes a pattern of ECMAScript as one of `regex`; none if it has an escape that ECMAScript does not know.
fn translate(pattern: &str) -> Option<String> {
    const DIGITS: &str = "0-9";
    const WORDS: &str = "0-9A-Za-z_";
    const SPACES: &str =
        "\\t\\n\\x0B\\x0C\\r \\u{A0}\\u{1680}\\u{2000}-\\u{200A}\\u{2028}\\u{2029}\\u{202F}\\u{205F}\\u{3000}\\u{FEFF}";
    let mut out = String::with_capacity(pattern.len() + 16);
    let (mut rest, mut in_class) = (pattern, false);
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        match c {
            '\\' => {
                let escaped = rest.chars().next()?;
                rest = &rest[escaped.len_utf8()..];
                let class = match escaped {
                    'd' | 'D' => Some(DIGITS),
                    'w' | 'W' => Some(WORDS),
                    's' | 'S' => Some(SPACES),
                    _ => None,
                };
                if let Some(class) = class {
                    let negated = if escaped.is_ascii_uppercase() { "^" } else { "" };
                    out.push_str(&format!("[{negated}{class}]"));
                    continue;
                }
                match escaped {
                    'c' => {
                        let letter = rest.chars().next().filter(char::is_ascii_alphabetic)?;
                        rest = &rest[1..];
                        out.push_str(&format!("\\x{:02X}", letter as u8 % 32));
                    }
                    'u' => rest = unicode(rest, &mut out)?,
                    'p' | 'P' => {
                        let name = &rest[..=rest.find('}').filter(|_| rest.starts_with('{'))?];
                        rest = &rest[name.len()..];
                        out.push_str(&format!("\\{escaped}{name}"));
                    }
                    '0' => out.push_str("\\x00"),
                    'b' if in_class => out.push_str("\\x08"),
                    'a' | 'z' | 'A' | 'Z' | 'h' | 'H' | 'G' | 'K' | 'R' | 'X' | 'Q' | 'E' | 'C' | 'e' | 'g' => {
                        return None;
                    }
                    c if c.is_alphanumeric() || regex_syntax::is_meta_character(c) => {
                        out.push('\\');
                        out.push(c);
                    }
                    c => push_literal(c, &mut out),
                }
            }
            '[' if in_class => out.push_str("\\["),
            '&' | '~' if in_class => push_literal(c, &mut out),
            '[' => match rest.strip_prefix("^]").map(|rest| (rest, "(?s:.)")).or_else(|| {
                // An empty class matches nothing.
                rest.strip_prefix(']').map(|rest| (rest, "[^\\x00-\\u{10FFFF}]"))
            }) {
                Some((after, class)) => {
                    out.push_str(class);
                    rest = after;
                }
                None => {
                    in_class = true;
                    out.push('[');
                    if let Some(after) = rest.strip_prefix('^') {
                        out.push('^');
                        rest = after;
                    }
                }
            },
            ']' if in_class => {
                in_class = false;
                out.push(']');
            }
            ']' => out.push_str("\\]"),
            '{' if !in_class && !is_repetition(rest) => out.push_str("\\{"),
            c => out.push(c),
        }
    }
    (!in_class).then_some(out)
}

/// Writes a character that stands for itself, in or outside a class.
fn push_literal(c: char, out: &mut String) {
    out.push_str(&format!("\\x{{{:X}}}", c as u32));
}

/// Writes the code point of an escape with `\u`, which may be half of a pair; returns what follows.
fn unicode<'a>(rest: &'a str, out: &mut String) -> Option<&'a str> {
    if let Some(rest) = rest.strip_prefix('{') {
        let (hex, rest) = rest.split_once('}')?;
        push_literal(char::from_u32(u32::from_str_radix(hex, 16).ok()?)?, out);
        return Some(rest);
    }
    let unit = |text: &str| u16::from_str_radix(text.get(..4)?, 16).ok();
    let first = unit(rest)?;
    let mut rest = &rest[4..];
    let second = rest.strip_prefix("\\u").and_then(unit).filter(|second| (0xDC00..0xE000).contains(second));
    let units = match second {
        Some(second) if (0xD800..0xDC00).contains(&first) => {
            rest = &rest[6..];
            vec![first, second]
        }
        _ => vec![first],
    };
    push_literal(char::decode_utf16(units).next()?.ok()?, out);
    Some(rest)
}

/// Returns true if what follows a brace makes it one of `{2}`, `{2,}` and `{2,3}`.
fn is_repetition(rest: &str) -> bool {
    let Some((inner, _)) = rest.split_once('}') else { return false };
    let (from, to) = inner.split_once(',').unwrap_or((inner, ""));
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    !from.is_empty() && is_number(from) && is_number(to)
}
