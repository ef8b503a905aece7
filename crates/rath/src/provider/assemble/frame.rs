//! The part that the events of a stream have in common.

/// What stands around the words in an event that holds nothing but words.
///
/// Most events of a stream differ from the one before in their words alone. An event that begins and ends as one that was
/// read, with a plain string in between, says the same with that string: it need not be read again.
#[derive(Default)]
pub(super) struct Frame {
    before: Vec<u8>,
    after: Vec<u8>,
}

impl Frame {
    /// Learns from an event and the words in it, which must be a part of it as it stands. Says whether it could.
    pub(super) fn learn(&mut self, event: &[u8], words: &[u8]) -> bool {
        let begin = (words.as_ptr() as usize).wrapping_sub(event.as_ptr() as usize);
        let (Some(before), Some(after)) = (event.get(..begin), event.get(begin.saturating_add(words.len())..)) else {
            return false;
        };
        let plain = !words.is_empty() && before.ends_with(b"\"") && after.starts_with(b"\"");
        if plain {
            self.before.clear();
            self.before.extend_from_slice(before);
            self.after.clear();
            self.after.extend_from_slice(after);
        }
        plain
    }

    /// The words of an event that has this frame. None if it has not, or if they are not plain.
    pub(super) fn words<'a>(&self, event: &'a [u8]) -> Option<&'a [u8]> {
        if self.before.is_empty() {
            return None;
        }
        let words = event.strip_prefix(&self.before[..])?.strip_suffix(&self.after[..])?;
        let plain = |byte: &u8| *byte >= b' ' && !matches!(byte, b'"' | b'\\');
        words.iter().all(plain).then_some(words)
    }
}
