//! A check of a file of any length, in memory that does not grow with it.

use std::collections::HashMap;

use super::CodecError;
use super::damage::{Damage, Fault, Report};
use super::lines::{Found, FoundStep, Lines};
use crate::id::{Digest, StepId};

/// How many names are looked for in one pass.
const WANTED_MAX: usize = 1 << 16;
/// How many payload rows a step may follow and still find its own without a second pass.
const RECENT_MAX: usize = 1 << 10;

/// Checks a file of any length.
///
/// Of several rows that want the same missing name, the first is reported.
///
/// Nearly every row can be checked where it stands: its bytes, its chain, its id, and that its parent is the step just
/// before. Only a parent or payload from further up has to be looked for, and that is done by reading the file again,
/// some tens of thousands of names at a time, rather than by remembering every name in it.
///
/// ```
/// # use rath_record::codec::{Encoder, Verifier};
/// # let file = Encoder::new().finish();
/// let mut verifier = Verifier::new();
/// let report = loop {
///     for block in file.chunks(4096) {
///         verifier.feed(block);
///     }
///     if let Some(report) = verifier.end()? {
///         break report;
///     }
///     // Not yet: the file has to be read again from its beginning.
/// };
/// assert!(report.is_whole());
/// # Ok::<(), rath_record::codec::CodecError>(())
/// ```
pub struct Verifier {
    lines: Lines,
    names: Names,
    /// What the first pass found; the later ones only look for names.
    report: Option<Report>,
}

/// The name of a step or a payload: no digest is both.
type Name = [u8; 32];

struct Names {
    /// What is looked for in this pass, with the first row that wants it.
    sought: HashMap<Name, Damage>,
    /// What will be looked for in the next.
    wanted: HashMap<Name, Damage>,
    /// How often the file has been read.
    pass: u64,
    /// Rows from this one on have not been asked yet what they want.
    asked_to: u64,
    full: bool,
    /// The step before, and the payloads since.
    step: Option<StepId>,
    recent: Vec<Digest>,
}

impl Verifier {
    /// A verifier at the beginning of a file.
    pub fn new() -> Self {
        Verifier {
            lines: Lines::default(),
            names: Names {
                sought: HashMap::new(),
                wanted: HashMap::new(),
                pass: 0,
                asked_to: 0,
                full: false,
                step: None,
                recent: Vec::new(),
            },
            report: None,
        }
    }

    /// Takes in the next bytes.
    pub fn feed(&mut self, block: &[u8]) {
        self.lines.feed(block, &mut |_, found| self.names.take(&found));
    }

    /// Takes in the end of the file. Gives the report, or nothing if the file has to be read again from its beginning.
    pub fn end(&mut self) -> Result<Option<Report>, CodecError> {
        self.lines.finish(&mut |_, found| self.names.take(&found))?;
        let pass = std::mem::take(&mut self.lines).report;
        let report = self.report.get_or_insert(pass);
        let mut missing = self.names.turn();
        missing.sort_by_key(|damage| (damage.line, damage.fault.to_string()));
        for damage in missing {
            report.add(damage);
        }
        if !self.names.sought.is_empty() {
            return Ok(None);
        }
        report.damage.sort_by_key(|damage| damage.line);
        Ok(self.report.take())
    }
}

impl Default for Verifier {
    fn default() -> Self {
        Verifier::new()
    }
}

impl Names {
    fn take(&mut self, found: &Found<'_>) {
        match found {
            Found::Payload(place, digest, _) => {
                self.met(digest.0, place.n);
                if self.recent.len() < RECENT_MAX {
                    self.recent.push(*digest);
                }
            }
            Found::Gone(place, name, _) => self.met(name.0, place.n),
            Found::Step(FoundStep { place, id, parents, chunk, .. }) => {
                self.met(id.0, place.n);
                if !self.full && (self.pass == 0 || place.n >= self.asked_to) {
                    let far = parents.as_slice().iter().filter(|parent| Some(**parent) != self.step);
                    let parents = far.map(|parent| (parent.0, Fault::MissingParent(*parent)));
                    let away = chunk.references().into_iter().filter(|digest| !self.recent.contains(digest));
                    let payloads = away.map(|digest| (digest.0, Fault::MissingPayload(digest)));
                    for (name, fault) in parents.chain(payloads).collect::<Vec<_>>() {
                        self.wanted.entry(name).or_insert_with(|| place.damage(Some(*id), fault));
                    }
                    self.asked_to = self.asked_to.max(place.n + 1);
                    self.full = self.wanted.len() >= WANTED_MAX;
                }
                self.step = Some(*id);
                self.recent.clear();
            }
        }
    }

    /// A name counts if it stands before the row that wants it.
    fn met(&mut self, name: Name, n: u64) {
        if self.sought.get(&name).is_some_and(|wanting| wanting.row > Some(n)) {
            self.sought.remove(&name);
        }
    }

    /// Ends a pass: what is still sought is missing, what is wanted is sought next.
    fn turn(&mut self) -> Vec<Damage> {
        let missing = std::mem::replace(&mut self.sought, std::mem::take(&mut self.wanted));
        self.pass += 1;
        self.full = false;
        self.step = None;
        self.recent.clear();
        missing.into_values().collect()
    }
}
