//! What must never be recorded: values that are known, and texts that have the shape of a key.
//!
//! Every step that a session appends is searched, so text in which nothing is to be hidden has to cost next to nothing: one
//! pass over it for all shapes, and one for each set of known values, of which there is rarely more than one.

mod known;
mod shapes;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use rath_record::chunk::{Chunk, TextKind};
use secrecy::{ExposeSecret, SecretString};

use known::Known;

/// What must never be recorded.
///
/// [`Secrets::default`] hides what has the shape of a key: those of well-known services, private keys, tokens, passwords in
/// URLs. Values that are known are hidden too, as they are and as JSON, URLs and Base64 write them.
///
/// ```
/// use rath::{Secrets, secrets::Taken};
///
/// let mut secrets = Secrets::default();
/// assert_eq!(secrets.known("DB_PASSWORD", "correct horse"), Taken::Yes);
/// let hidden = secrets.hide("login with correct horse, or with postgres://me:battery@db/staple");
/// let expected = "login with [secret DB_PASSWORD], or with postgres://me:[secret: url password]@db/staple";
/// assert_eq!(hidden.as_deref(), Some(expected));
/// assert_eq!(secrets.hide("nothing to see here"), None);
/// ```
#[derive(Clone, Default)]
pub struct Secrets(Option<Arc<Vec<Arc<Known>>>>);

/// Whether a value is hidden from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a value that is not taken is not hidden"]
pub enum Taken {
    /// It is.
    Yes,
    /// It is not: it is so short that it would be found in ordinary text.
    TooShort,
}

/// A value of fewer bytes is not taken.
const SHORTEST: usize = 8;
/// What stands for a secret whose name would give something away.
const NAMELESS: &str = "[secret]";
/// How often what is left after hiding is searched again.
const PASSES: usize = 16;

impl Secrets {
    /// Hides a value from now on. `name` is what is shown in its place.
    ///
    /// A value of fewer than eight bytes, spaces around it aside, is not taken.
    pub fn known(&mut self, name: &str, value: impl Into<SecretString>) -> Taken {
        let value = value.into();
        let trimmed = value.expose_secret().trim();
        if trimmed.len() < SHORTEST || NAMELESS.contains(trimmed) {
            return Taken::TooShort;
        }
        let value = SecretString::from(trimmed);
        if !self.knows(&value) {
            let sets = Arc::make_mut(self.0.get_or_insert_default());
            // A set that others hold too stays as it is: they recognise it by where it lies.
            match sets.last_mut().and_then(Arc::get_mut) {
                Some(own) => own.add(name, value),
                None => sets.push(Arc::new(Known::of(name, value))),
            }
        }
        Taken::Yes
    }

    /// Hides what `others` hide as well. Costs nothing where it is so already.
    pub fn and(mut self, others: &Secrets) -> Self {
        self.join(others);
        self
    }

    /// The text without what must not be recorded, or nothing if there is nothing to hide.
    ///
    /// What comes of it has nothing to hide.
    pub fn hide(&self, text: &str) -> Option<String> {
        let found = self.find(text);
        if found.is_empty() {
            return None;
        }
        let mut hidden = self.replace(text, found);
        // What stood beside a secret may have the shape of one only now.
        for _ in 0..PASSES {
            let found = self.find(&hidden);
            if found.is_empty() {
                return Some(hidden);
            }
            hidden = self.replace(&hidden, found);
        }
        Some(NAMELESS.to_owned())
    }

    /// Hides what is in a chunk.
    pub(crate) fn hide_in(&self, chunk: &mut Chunk) {
        chunk.rewrite_texts(|part, text| match part {
            TextKind::Plain => self.hide(text),
            // Signatures are noise, in which any shape may come up by chance.
            TextKind::Sidecar => self.has_known(text).then(String::new),
        });
    }

    /// The same as [`and`](Secrets::and), in place.
    pub(crate) fn join(&mut self, others: &Secrets) {
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
                || set.values().all(|value| ours.iter().any(|known| known.has(value)));
            if !is_known {
                Arc::make_mut(ours).push(set.clone());
            }
        }
    }

    fn sets(&self) -> impl Iterator<Item = &Known> {
        self.0.iter().flat_map(|sets| sets.iter()).map(|set| &**set)
    }

    fn knows(&self, value: &SecretString) -> bool {
        self.sets().any(|set| set.has(value))
    }

    fn has_known(&self, text: &str) -> bool {
        let mut found = Vec::new();
        self.sets().for_each(|set| set.find(text, &mut found));
        !found.is_empty()
    }

    fn find(&self, text: &str) -> Vec<Found<'_>> {
        let mut found = Vec::new();
        if text.len() >= SHORTEST {
            self.sets().for_each(|set| set.find(text, &mut found));
            shapes::find(text, &mut found);
        }
        found
    }

    fn replace(&self, text: &str, mut found: Vec<Found<'_>>) -> String {
        found.sort_by_key(|found| (found.at.start, std::cmp::Reverse(found.at.end)));
        let mut apart: Vec<Found<'_>> = Vec::with_capacity(found.len());
        for found in found {
            match apart.last_mut().filter(|last| found.at.start < last.at.end) {
                Some(last) => last.take_in(found),
                None => apart.push(found),
            }
        }
        let mut hidden = String::with_capacity(text.len());
        let mut from = 0;
        for Found { at, what } in apart {
            hidden.push_str(&text[from..at.start]);
            let name = what.to_string();
            // A name may hold the very value, as `PASSWORD` does if that is the password.
            hidden.push_str(if self.find(&name).is_empty() { &name } else { NAMELESS });
            from = at.end;
        }
        hidden.push_str(&text[from..]);
        hidden
    }
}

/// Names, and never a value.
impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secrets")?;
        f.debug_set().entries(self.sets().flat_map(Known::names)).finish()
    }
}

/// Something to hide. Both ends lie between characters.
struct Found<'a> {
    at: Range<usize>,
    what: What<'a>,
}

#[derive(Clone, Copy, PartialEq)]
enum What<'a> {
    /// A value, by the name it was given.
    Known(&'a str),
    /// A shape, by what has it.
    Shape(&'static str),
}

impl<'a> Found<'a> {
    /// Covers another one that overlaps it. A name that somebody gave says more than a shape.
    fn take_in(&mut self, other: Found<'a>) {
        self.at.end = self.at.end.max(other.at.end);
        if let (What::Shape(_), What::Known(_)) = (self.what, other.what) {
            self.what = other.what;
        }
    }
}

/// What stands where it was.
impl fmt::Display for What<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            What::Known(name) => write!(f, "[secret {name}]"),
            What::Shape(name) => write!(f, "[secret: {name}]"),
        }
    }
}
