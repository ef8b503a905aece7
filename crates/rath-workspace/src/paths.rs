//! Paths as text: any bytes, one text each.

use std::borrow::Cow;
use std::fmt::Write as _;

use crate::error::{Error, ErrorKind, Result};

/// A path as it stands in the record.
///
/// What is UTF-8 stands as it is. What is not stands in quotes, as git writes it: bytes that are no text as three octal
/// digits. So does what begins with a quote, that no two paths have one text.
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

/// The path that a text of the record stands for, if it is one that [`shown`] makes.
pub(super) fn decode(text: &str) -> Option<Cow<'_, [u8]>> {
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

/// The path that somebody names, or an error that says what is wrong with it.
pub(super) fn parse_path(text: &str) -> Result<Vec<u8>> {
    let no_path = || Error::new(ErrorKind::Format, format_args!("wanted a path, found `{text}`"));
    decode(text).map(Cow::into_owned).ok_or_else(no_path)
}

/// Returns the bytes of a path from its text: the text itself, or what a quoted text stands for.
pub fn path_bytes(text: &str) -> Cow<'_, [u8]> {
    decode(text).unwrap_or(Cow::Borrowed(text.as_bytes()))
}

/// A path of the record as it stands in a patch, on one of two sides or on none: git reads no line break in a bare one.
pub(super) fn patch_path(side: &str, text: &str) -> String {
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
    fn a_path_that_is_no_text_is_shown_in_quotes() {
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
        fn any_text_is_a_path_or_refused(text in "\"?[\\\\\"0-9a]{0,12}\"?") {
            let _ = decode(&text);
        }
    }
}
