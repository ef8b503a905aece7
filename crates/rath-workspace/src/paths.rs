//! Paths as text. A path is any sequence of bytes, and each has exactly one text form.

use std::borrow::Cow;
use std::fmt::Write as _;

use crate::error::{Error, ErrorKind, Result};

/// Returns a path as text.
///
/// A path that is UTF-8 is its own text. Other paths are quoted as git does it, with invalid bytes as three octal
/// digits. A path that begins with a quotation mark is quoted too, so that no two paths have the same text.
///
/// ```
/// use rath_workspace::{path_bytes, path_text};
///
/// assert_eq!(path_text(b"src/main.rs"), "src/main.rs");
/// assert_eq!(path_text(b"caf\xe9"), r#""caf\351""#);
/// assert_eq!(*path_bytes(r#""caf\351""#), *b"caf\xe9");
/// ```
pub fn path_text(path: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(path) {
        Ok(text) if !text.starts_with('"') => Cow::Borrowed(text),
        _ => Cow::Owned(quote(path)),
    }
}

fn quote(path: &[u8]) -> String {
    let mut text = String::with_capacity(path.len() + 8);
    text.push('"');
    for chunk in path.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '"' | '\\' => text.extend(['\\', character]),
                _ => text.push(character),
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(text, "\\{byte:03o}");
        }
    }
    text.push('"');
    text
}

/// Returns the path that a text stands for; none if [`path_text`] cannot return such a text.
pub(crate) fn decode(text: &str) -> Option<Cow<'_, [u8]>> {
    if !text.starts_with('"') {
        return Some(Cow::Borrowed(text.as_bytes()));
    }
    let inside = text[1..].strip_suffix('"')?;
    let mut path = Vec::with_capacity(inside.len());
    let mut bytes = inside.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => match bytes.next()? {
                byte @ (b'"' | b'\\') => path.push(byte),
                high @ b'0'..=b'3' => {
                    let (middle, low) = (octal(bytes.next()?)?, octal(bytes.next()?)?);
                    path.push((high - b'0') << 6 | middle << 3 | low);
                }
                _ => return None,
            },
            b'"' => return None,
            _ => path.push(byte),
        }
    }
    Some(Cow::Owned(path))
}

/// Returns the path that a text stands for, or an error for the user.
pub(crate) fn parse_path(text: &str) -> Result<Vec<u8>> {
    let no_path = || Error::new(ErrorKind::Format, format_args!("wanted a path, found `{text}`"));
    decode(text).map(Cow::into_owned).ok_or_else(no_path)
}

/// Returns the bytes of a path from its text form; a text that is not quoted correctly stands for itself.
///
/// See [`path_text`] for an example.
pub fn path_bytes(text: &str) -> Cow<'_, [u8]> {
    decode(text).unwrap_or(Cow::Borrowed(text.as_bytes()))
}

/// Returns a path as a patch contains it, with the prefix of a side or without.
///
/// Git accepts no line break in a path without quotation marks.
pub(crate) fn patch_path(side: &str, text: &str) -> String {
    let path = decode(text).unwrap_or(Cow::Borrowed(text.as_bytes()));
    let slash = if side.is_empty() { "" } else { "/" };
    let is_odd = |byte: &u8| byte.is_ascii_control() || matches!(byte, b'"' | b'\\');
    if !path.iter().any(is_odd) && std::str::from_utf8(&path).is_ok() {
        return format!("{side}{slash}{text}");
    }
    let mut quoted = format!("\"{side}{slash}");
    for byte in path.iter() {
        let _ = match byte {
            b'"' | b'\\' => write!(quoted, "\\{}", char::from(*byte)),
            b' '..=b'~' => write!(quoted, "{}", char::from(*byte)),
            _ => write!(quoted, "\\{byte:03o}"),
        };
    }
    quoted + "\""
}

fn octal(byte: u8) -> Option<u8> {
    matches!(byte, b'0'..=b'7').then(|| byte - b'0')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_path_that_is_not_utf8_is_quoted() {
        let rows: [(&[u8], &str); 6] = [
            (b"src/lib.rs", "src/lib.rs"),
            ("caf\u{e9}".as_bytes(), "caf\u{e9}"),
            (b"caf\xe9", r#""caf\351""#),
            (b"\"a\"", r#""\"a\"""#),
            (b"a\\b", r"a\b"),
            (b"\xff\\\"\n", "\"\\377\\\\\\\"\n\""),
        ];
        for (path, text) in rows {
            assert_eq!(path_text(path), text);
        }
    }

    proptest! {
        #![proptest_config(rath_test_support::property(256))]

        #[test]
        fn every_path_is_read_back_from_its_text(path in proptest::collection::vec(any::<u8>(), 0..20)) {
            let text = path_text(&path);
            let again = decode(&text);
            prop_assert_eq!(again.as_deref(), Some(&*path));
        }

        #[test]
        fn any_text_is_a_path_or_rejected(text in "\"?[\\\\\"0-9a]{0,12}\"?") {
            let _ = decode(&text);
        }
    }
}
