//! Hiding secrets in a text that arrives in pieces.

use super::Secrets;

/// A text that arrives in pieces, from which secrets are removed: see [`Secrets::stream`].
///
/// A piece that may be the beginning of a secret is held back until more has arrived. Together, the pieces that are passed on
/// are the text without the secrets that [`Secrets::hide`] finds in the whole.
///
/// ```
/// use rath::Secrets;
///
/// let mut secrets = Secrets::default();
/// let _ = secrets.add("DB_PASSWORD", "correct horse");
/// let mut stream = secrets.stream();
/// let shown: Vec<_> = ["log in with corr", "ect ho", "rse, then"].map(|piece| stream.push(piece)).into();
/// assert_eq!(shown, ["log in with ", "", "[secret DB_PASSWORD], then"]);
/// assert_eq!(stream.finish(), "");
/// ```
#[derive(Clone, Debug)]
pub struct SecretStream {
    secrets: Secrets,
    /// The end of the text that was passed on, which tells what follows, and the text that is held back.
    buffer: String,
    /// The length of the part of the buffer that was passed on.
    passed: usize,
    /// True if the beginning of what may be a secret was passed on already.
    is_begun: bool,
}

/// The most bytes of text that was passed on and is kept: no pattern looks back further.
const CONTEXT_BYTES: usize = 256;
/// The most bytes of a secret that may be passed on to keep the order of pieces.
const MAX_RELEASED_BYTES: usize = 3;
/// The most bytes that are held back. A text without an end is no secret.
const MAX_HELD_BYTES: usize = 64 << 10;

impl SecretStream {
    pub(super) fn new(secrets: &Secrets) -> Self {
        SecretStream { secrets: secrets.clone(), buffer: String::new(), passed: 0, is_begun: false }
    }

    /// Adds a piece, and returns the text that can be shown.
    pub fn push(&mut self, piece: &str) -> String {
        self.buffer.push_str(piece);
        let length = self.buffer.len();
        let unfinished = self.secrets.unfinished_from(&self.buffer);
        self.is_begun = unfinished < self.passed;
        self.pass(if length - unfinished > MAX_HELD_BYTES { length } else { unfinished })
    }

    /// Returns the text that is held back, if it is so short that it reveals nothing. The text continues.
    ///
    /// So the last letter of a word is not shown after another text that came later.
    pub(crate) fn release_short(&mut self) -> String {
        let is_short = self.buffer.len() - self.passed <= MAX_RELEASED_BYTES && !self.is_begun;
        if is_short { self.pass(self.buffer.len()) } else { String::new() }
    }

    /// Returns the text that was held back. The next piece begins a new text.
    pub fn finish(&mut self) -> String {
        let shown = self.pass(self.buffer.len());
        (self.buffer, self.passed, self.is_begun) = (String::new(), 0, false);
        shown
    }

    /// Passes the text on up to `end`, or up to a secret across it.
    fn pass(&mut self, end: usize) -> String {
        let SecretStream { secrets, buffer, passed, .. } = self;
        let found = secrets.find_disjoint(buffer);
        let across = found.iter().find(|found| found.range.start < end && end < found.range.end);
        let end = across.map_or(end, |across| across.range.start).max(*passed);
        let shown = secrets.replace(buffer, *passed..end, found);
        let context = buffer.floor_char_boundary(end.saturating_sub(CONTEXT_BYTES));
        *passed = end - context;
        buffer.drain(..context);
        shown
    }
}
