//! A shortcut for events that differ in their text alone.

/// The bytes before and after the text in an event that holds text only.
///
/// Most events of a stream differ from the one before in their text alone. An event with the same bytes around a plain
/// string means the same with that string, and need not be parsed.
#[derive(Default)]
pub(super) struct EventFrame {
    before: Vec<u8>,
    after: Vec<u8>,
}

impl EventFrame {
    /// Learns the frame of an event. Returns false if `text` is not a plain string within the bytes of the event.
    pub(super) fn learn(&mut self, event: &[u8], text: &[u8]) -> bool {
        let begin = (text.as_ptr() as usize).wrapping_sub(event.as_ptr() as usize);
        let (Some(before), Some(after)) = (event.get(..begin), event.get(begin.saturating_add(text.len())..)) else {
            return false;
        };
        let plain = !text.is_empty() && before.ends_with(b"\"") && after.starts_with(b"\"");
        if plain {
            self.before.clear();
            self.before.extend_from_slice(before);
            self.after.clear();
            self.after.extend_from_slice(after);
        }
        plain
    }

    /// Returns the text of an event with this frame, or `None` if the frame is another or the text is not plain.
    pub(super) fn text<'a>(&self, event: &'a [u8]) -> Option<&'a [u8]> {
        if self.before.is_empty() {
            return None;
        }
        let text = event.strip_prefix(&self.before[..])?.strip_suffix(&self.after[..])?;
        let plain = |byte: &u8| *byte >= b' ' && !matches!(byte, b'"' | b'\\');
        text.iter().all(plain).then_some(text)
    }
}
