//! Hiding secrets: known values, and texts with the pattern of a key.
//!
//! Every step that a session appends is searched, so text without secrets has to cost next to nothing: one pass over it for
//! all patterns, and one for each set of known values, of which there is rarely more than one.

mod decoded;
mod known;
mod patterns;
mod stream;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use rath_record::chunk::{Chunk, Effect, Merged, Strategy, TextKind};
use secrecy::{ExposeSecret, SecretString};

use decoded::{DecodedLayers, LineBreaks, TextEnd};
use known::KnownValues;

pub use stream::SecretStream;

/// The secrets that must never be recorded.
///
/// [`Secrets::default`] hides texts with the pattern of a key: keys of well-known services, private keys, tokens, passwords
/// in URLs. Values that were added are hidden too, literally and as they are written in JSON, URLs, Base64 and hex.
///
/// ```
/// use rath::secrets::AddOutcome;
/// use rath::Secrets;
///
/// let mut secrets = Secrets::default();
/// assert_eq!(secrets.add("DB_PASSWORD", "correct horse"), AddOutcome::Added);
/// let hidden = secrets.hide("login with correct horse, or with postgres://me:battery@db/staple");
/// let expected = "login with [secret DB_PASSWORD], or with postgres://me:[secret: url password]@db/staple";
/// assert_eq!(hidden.as_deref(), Some(expected));
/// assert_eq!(secrets.hide("nothing to see here"), None);
/// ```
#[derive(Clone, Default)]
pub struct Secrets(Option<Arc<Vec<Arc<KnownValues>>>>);

/// The outcome of adding a value.
///
/// Returned by [`Secrets::add`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a value that was not added is not hidden"]
pub enum AddOutcome {
    /// The value is hidden from now on.
    Added,
    /// The value was not added: it is so short that it would be found in ordinary text.
    TooShort,
}

/// The length in bytes of the shortest value that can be added.
const MIN_VALUE_BYTES: usize = 8;
/// The replacement for a secret whose name would reveal something.
const NAMELESS: &str = "[secret]";
/// The most times that a text is searched again after secrets were replaced.
const MAX_PASSES: usize = 16;

impl Secrets {
    /// Adds a value to hide. `name` is shown in its place.
    ///
    /// A value of fewer than eight bytes, white space around it aside, is not added.
    pub fn add(&mut self, name: &str, value: impl Into<String>) -> AddOutcome {
        let value = SecretString::from(value.into());
        let trimmed = value.expose_secret().trim();
        if trimmed.len() < MIN_VALUE_BYTES || NAMELESS.contains(trimmed) {
            return AddOutcome::TooShort;
        }
        let value = SecretString::from(trimmed);
        if !self.contains(&value) {
            let sets = Arc::make_mut(self.0.get_or_insert_default());
            // A set that is shared must not change: sets are compared by their address.
            match sets.last_mut().and_then(Arc::get_mut) {
                Some(own) => own.add(name, value),
                None => sets.push(Arc::new(KnownValues::new(name, value))),
            }
        }
        AddOutcome::Added
    }

    /// Adds the values of `others`. This costs nothing if they are there already.
    pub fn with(mut self, others: &Secrets) -> Self {
        self.add_all(others);
        self
    }

    /// Returns true if there are values to hide.
    pub(crate) fn has_values(&self) -> bool {
        self.0.is_some()
    }

    /// Returns the text with all secrets replaced, or `None` if it has none.
    ///
    /// Hiding secrets in the returned text changes nothing.
    pub fn hide(&self, text: &str) -> Option<String> {
        let matches = self.find_disjoint(text);
        if matches.is_empty() {
            return None;
        }
        let mut hidden = self.replace(text, 0..text.len(), matches);
        // A replacement can complete the pattern of another secret.
        for _ in 0..MAX_PASSES {
            let matches = self.find_disjoint(&hidden);
            if matches.is_empty() {
                return Some(hidden);
            }
            hidden = self.replace(&hidden, 0..hidden.len(), matches);
        }
        Some(NAMELESS.to_owned())
    }

    /// Returns a stream that hides the secrets of a text that arrives in pieces, and of which a piece may end in the middle of
    /// a secret.
    pub fn stream(&self) -> SecretStream {
        SecretStream::new(self)
    }

    /// Replaces the secrets in a chunk.
    pub(crate) fn hide_in(&self, chunk: &mut Chunk) {
        chunk.rewrite_texts(|part, text| match part {
            TextKind::Plain => self.hide(text),
            // Signatures are random text, in which any pattern may occur by chance.
            TextKind::Sidecar => self.has_known_value(text).then(String::new),
        });
    }

    /// Replaces the secrets in the step of a merge.
    pub(crate) fn hide_in_merge(&self, merged: Merged) -> Merged {
        let mut chunk = Chunk::from(merged);
        self.hide_in(&mut chunk);
        match chunk {
            Chunk::Merged(merged) => merged,
            _ => unreachable!("hiding secrets keeps the kind of a chunk"),
        }
    }

    /// Replaces the secrets in the paths of changed files.
    pub(crate) fn hide_in_effects(&self, effects: Vec<Effect>) -> Vec<Effect> {
        self.hide_in_merge(Merged::new(Strategy::Ancestor).with_effects(effects)).effects
    }

    /// Adds the values of `others`, in place.
    pub(crate) fn add_all(&mut self, others: &Secrets) {
        let Some(theirs) = &others.0 else { return };
        let Some(ours) = &mut self.0 else {
            self.0 = Some(theirs.clone());
            return;
        };
        if Arc::ptr_eq(ours, theirs) {
            return;
        }
        for set in theirs.iter() {
            let is_known = ours.iter().any(|known| Arc::ptr_eq(known, set))
                || set.values().all(|value| ours.iter().any(|known| known.contains(value)));
            if !is_known {
                Arc::make_mut(ours).push(set.clone());
            }
        }
    }

    fn sets(&self) -> impl Iterator<Item = &KnownValues> {
        self.0.iter().flat_map(|sets| sets.iter()).map(|set| &**set)
    }

    fn contains(&self, value: &SecretString) -> bool {
        self.sets().any(|set| set.contains(value))
    }

    /// Returns true if a text holds one of the values that were added, in any of the forms in which they are hidden.
    pub fn has_known_value(&self, text: &str) -> bool {
        let mut is_found = false;
        self.find_known(text.as_bytes(), &mut |_, _| is_found = true);
        is_found
    }

    fn find<'a>(&'a self, text: &str) -> Vec<SecretMatch<'a>> {
        let mut matches = Vec::new();
        if text.len() >= MIN_VALUE_BYTES {
            let add = &mut |range, source| add_match(&mut matches, range, source);
            self.find_known(text.as_bytes(), add);
            search(text.as_bytes(), LineBreaks::Kept, &mut |text, add| patterns::find(text, add), add);
        }
        matches
    }

    fn find_known<'a>(&'a self, text: &[u8], add: &mut AddMatch<'_, 'a>) {
        if self.has_values() {
            let find = &mut |text: &[u8], add: &mut AddMatch<'_, 'a>| self.sets().for_each(|set| set.find(text, add));
            search(text, LineBreaks::Joined, find, add);
        }
    }

    /// Returns the start of the longest end of the text that may be the beginning of a secret, or the length of the text.
    fn unfinished_from(&self, text: &str) -> usize {
        let text = text.as_bytes();
        let known = |text: &[u8]| self.sets().map(|set| set.unfinished_from(text)).min().unwrap_or(text.len());
        let start = unfinished(text, LineBreaks::Kept, patterns::unfinished_from);
        if self.has_values() { start.min(unfinished(text, LineBreaks::Joined, known)) } else { start }
    }

    /// Finds all secrets in a text, in order. Secrets that overlap are one.
    fn find_disjoint(&self, text: &str) -> Vec<SecretMatch<'_>> {
        let mut matches = self.find(text);
        matches.sort_by_key(|found| (found.range.start, std::cmp::Reverse(found.range.end)));
        let mut disjoint: Vec<SecretMatch<'_>> = Vec::with_capacity(matches.len());
        for found in matches {
            match disjoint.last_mut().filter(|last| found.range.start < last.range.end) {
                Some(last) => last.merge(found),
                None => disjoint.push(found),
            }
        }
        disjoint
    }

    /// Returns a part of a text with the secrets in it replaced.
    fn replace(&self, text: &str, part: Range<usize>, disjoint: Vec<SecretMatch<'_>>) -> String {
        let mut hidden = String::with_capacity(part.len());
        let mut from = part.start;
        let is_inside = |range: &Range<usize>| range.end > part.start && range.start < part.end;
        for SecretMatch { range, source } in disjoint.into_iter().filter(|found| is_inside(&found.range)) {
            hidden.push_str(&text[from..range.start.max(from)]);
            let name = source.to_string();
            // A name may contain the value, as `PASSWORD` does if that is the password.
            hidden.push_str(if self.find(&name).is_empty() { &name } else { NAMELESS });
            from = range.end;
        }
        hidden.push_str(&text[from.min(part.end)..part.end]);
        hidden
    }
}

/// A function that takes a secret that was found.
type AddMatch<'f, 'a> = dyn FnMut(Range<usize>, SecretSource<'a>) + 'f;

/// Searches a text, and the text with its escapes undone.
fn search<'a>(
    text: &[u8],
    breaks: LineBreaks,
    find: &mut dyn FnMut(&[u8], &mut AddMatch<'_, 'a>),
    add: &mut AddMatch<'_, 'a>,
) {
    find(text, add);
    let layers = DecodedLayers::new(text, breaks, TextEnd::Final);
    for (nth, decoded) in layers.iter() {
        find(decoded, &mut |range, source| add(layers.origin(nth, range.start)..layers.origin(nth, range.end), source));
    }
}

/// Returns the earliest start of a secret that a text cuts off, also in the text with its escapes undone.
fn unfinished(text: &[u8], breaks: LineBreaks, find: impl Fn(&[u8]) -> usize) -> usize {
    let layers = DecodedLayers::new(text, breaks, TextEnd::Open);
    let decoded = layers.iter().map(|(nth, text)| layers.origin(nth, find(text)));
    decoded.fold(find(text), usize::min)
}

/// Adds a match, or extends the last one if it has the same source and overlaps.
fn add_match<'a>(matches: &mut Vec<SecretMatch<'a>>, range: Range<usize>, source: SecretSource<'a>) {
    match matches
        .last_mut()
        .filter(|last| last.source == source && range.start <= last.range.end && last.range.start <= range.end)
    {
        Some(last) => last.range = last.range.start.min(range.start)..last.range.end.max(range.end),
        None => matches.push(SecretMatch { range, source }),
    }
}

/// Prints the names, and never a value.
impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secrets")?;
        f.debug_set().entries(self.sets().flat_map(KnownValues::names)).finish()
    }
}

/// A secret in a text. The range begins and ends at the boundaries of characters.
struct SecretMatch<'a> {
    range: Range<usize>,
    source: SecretSource<'a>,
}

#[derive(Clone, Copy, PartialEq)]
enum SecretSource<'a> {
    /// A known value, with the name that it was added under.
    Known(&'a str),
    /// A pattern, with its name.
    Pattern(&'static str),
}

impl<'a> SecretMatch<'a> {
    /// Extends the match over an overlapping one. The name of a known value is preferred to that of a pattern.
    fn merge(&mut self, other: SecretMatch<'a>) {
        self.range.end = self.range.end.max(other.range.end);
        if let (SecretSource::Pattern(_), SecretSource::Known(_)) = (self.source, other.source) {
            self.source = other.source;
        }
    }
}

/// Prints the replacement for the secret.
impl fmt::Display for SecretSource<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SecretSource::Known(name) => write!(f, "[secret {name}]"),
            SecretSource::Pattern(name) => write!(f, "[secret: {name}]"),
        }
    }
}
