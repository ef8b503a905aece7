//! Text whose characters may arrive in parts.

/// Text that is collected from bytes, which may be split within a character.
#[derive(Default)]
pub(super) struct TextBuffer {
    text: String,
    /// The first bytes of an incomplete character.
    incomplete: Vec<u8>,
}

impl TextBuffer {
    /// Appends bytes. Returns the text that they complete.
    pub(super) fn push(&mut self, bytes: &[u8]) -> &str {
        let begin = self.text.len();
        match std::str::from_utf8(bytes) {
            Ok(text) if self.incomplete.is_empty() => self.text.push_str(text),
            _ => {
                self.incomplete.extend_from_slice(bytes);
                self.decode();
            }
        }
        &self.text[begin..]
    }

    pub(super) fn is_empty(&self) -> bool {
        self.text.is_empty() && self.incomplete.is_empty()
    }

    pub(super) fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the whole text. An incomplete character at its end becomes the replacement character.
    pub(super) fn finish(mut self) -> String {
        if !self.incomplete.is_empty() {
            self.text.push(char::REPLACEMENT_CHARACTER);
        }
        self.text
    }

    fn decode(&mut self) {
        let bytes = std::mem::take(&mut self.incomplete);
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let (valid, bad) = match std::str::from_utf8(rest) {
                Ok(valid) => (valid, None),
                Err(error) => {
                    let (valid, _) = rest.split_at(error.valid_up_to());
                    (std::str::from_utf8(valid).unwrap_or_default(), Some(error.error_len()))
                }
            };
            self.text.push_str(valid);
            rest = &rest[valid.len()..];
            let Some(bad) = bad else { break };
            // The two surrogates of a pair may arrive in different pieces.
            match (parse_surrogates(rest), bad) {
                (Surrogates::Pair(c), _) => {
                    self.text.push(c);
                    rest = &rest[6..];
                }
                (Surrogates::First, _) | (Surrogates::None, None) => {
                    self.incomplete = rest.to_owned();
                    break;
                }
                (Surrogates::None, Some(length)) => {
                    self.text.push(char::REPLACEMENT_CHARACTER);
                    rest = &rest[length..];
                }
            }
        }
    }
}

enum Surrogates {
    None,
    /// The first of a pair, whose second may still arrive.
    First,
    Pair(char),
}

/// Parses a pair of surrogates, each encoded by itself, as a JSON parser returns them.
fn parse_surrogates(bytes: &[u8]) -> Surrogates {
    let unit = |bytes: &[u8]| match bytes {
        [0xED, b @ 0xA0..=0xBF, c @ 0x80..=0xBF, ..] => Some(0xD000 | u32::from(b & 0x3F) << 6 | u32::from(c & 0x3F)),
        _ => None,
    };
    let Some(high @ 0xD800..=0xDBFF) = unit(bytes) else { return Surrogates::None };
    match unit(&bytes[3..]) {
        Some(low @ 0xDC00..=0xDFFF) => char::from_u32(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00))
            .map_or(Surrogates::None, Surrogates::Pair),
        None if matches!(bytes[3..], [] | [0xED] | [0xED, 0xB0..=0xBF]) => Surrogates::First,
        _ => Surrogates::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pieces: &[&[u8]], expected: &str) {
        let mut buffer = TextBuffer::default();
        let mut shown = String::new();
        for piece in pieces {
            shown.push_str(buffer.push(piece));
        }
        let all = buffer.finish();
        assert!(all.starts_with(&shown), "{all:?} begins with {shown:?}");
        assert_eq!(all, expected);
    }

    #[test]
    fn a_character_may_arrive_in_parts() {
        check(&[b"a", "ü".as_bytes()], "aü");
        check(&["ü".as_bytes(), b"\xC3", b"\xBC", b"!"], "üü!");
        check(&[b"\xF0\x9F", b"\x98", b"\x80"], "😀");
        // The two parts of a surrogate pair, as `\ud83d` and `\ude00` in two pieces.
        check(&[b"\xED\xA0\xBD", b"\xED\xB8\x80!"], "😀!");
        check(&[b"x\xED\xA0\xBD\xED\xB8\x80"], "x😀");
    }

    #[test]
    fn invalid_bytes_are_replaced_and_nothing_else_is_lost() {
        check(&[b"a\xFFb"], "a\u{FFFD}b");
        check(&[b"\xC3", b"a"], "\u{FFFD}a");
        check(&[b"\xC3"], "\u{FFFD}");
        check(&[b"\xED\xA0\xBD", b"a"], "\u{FFFD}\u{FFFD}\u{FFFD}a");
        check(&[b"\xED\xB8\x80"], "\u{FFFD}\u{FFFD}\u{FFFD}");
    }
}
