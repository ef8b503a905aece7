//! Verification of a file of any length in constant memory.

use std::collections::HashMap;

use super::CodecError;
use super::damage::{Damage, Fault, Report};
use super::objects::{ObjectSink, SkipObjects, add_missing, hand_over};
use super::scanner::{IntactRow, IntactStep, RowScanner};
use crate::id::{Digest, StepId};

/// The number of names that are searched for in one pass.
const MAX_NAMES_PER_PASS: usize = 1 << 16;
/// The number of payload rows before a step that are remembered, so that its payloads need no second pass.
const MAX_RECENT_PAYLOADS: usize = 1 << 10;

/// Verifies a file of any length in constant memory.
///
/// Nearly every row can be checked where it stands: its bytes, its chain, its id, and that its parent is the step just
/// before. A parent or payload from further up is searched for by reading the file again, tens of thousands of names
/// at a time, rather than by remembering every name in it.
///
/// If several rows refer to the same missing name, the first of them is reported.
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
    scanner: RowScanner,
    references: ReferenceTracker,
    /// The report of the first pass; later passes only search for names.
    report: Option<Report>,
}

/// The id of a step or the digest of a payload. No two are equal.
type Name = [u8; 32];

struct ReferenceTracker {
    /// The names searched for in this pass, each with the first row that refers to it.
    searched: HashMap<Name, Damage>,
    /// The names to search for in the next pass.
    next_pass: HashMap<Name, Damage>,
    /// The number of passes so far.
    pass: u64,
    /// The references of rows from this number on have not been collected yet.
    collected_up_to: u64,
    full: bool,
    /// The previous step, and the payloads after it.
    last_step: Option<StepId>,
    recent_payloads: Vec<Digest>,
}

impl Verifier {
    /// Makes a verifier at the beginning of a file.
    pub fn new() -> Self {
        Verifier {
            scanner: RowScanner::default(),
            references: ReferenceTracker {
                searched: HashMap::new(),
                next_pass: HashMap::new(),
                pass: 0,
                collected_up_to: 0,
                full: false,
                last_step: None,
                recent_payloads: Vec::new(),
            },
            report: None,
        }
    }

    /// Processes the next bytes. Versions of files are passed over.
    pub fn feed(&mut self, block: &[u8]) {
        self.feed_with(block, &mut SkipObjects);
    }

    /// Processes the next bytes, and hands the versions of files to `sink`, once each.
    pub fn feed_with(&mut self, block: &[u8], sink: &mut dyn ObjectSink) {
        let (references, is_first_pass) = (&mut self.references, self.report.is_none());
        self.scanner.feed(block, &mut |report, row| {
            let row = if is_first_pass { hand_over(report, row, sink) } else { Some(row) };
            row.into_iter().for_each(|row| references.add(&row));
        });
    }

    /// Processes the end of the file.
    ///
    /// Returns the report, or `None` if the file has to be read again from its beginning.
    pub fn end(&mut self) -> Result<Option<Report>, CodecError> {
        self.end_with(&mut SkipObjects)
    }

    /// Processes the end of a file that is read with [`Verifier::feed_with`].
    pub fn end_with(&mut self, sink: &mut dyn ObjectSink) -> Result<Option<Report>, CodecError> {
        let (references, is_first_pass) = (&mut self.references, self.report.is_none());
        self.scanner.finish(&mut |report, row| {
            let row = if is_first_pass { hand_over(report, row, sink) } else { Some(row) };
            row.into_iter().for_each(|row| references.add(&row));
        })?;
        if let Some(line) = self.scanner.cut_line() {
            self.references.next_pass.retain(|_, damage| damage.line < line);
        }
        let mut scanned = std::mem::take(&mut self.scanner).report;
        if is_first_pass {
            add_missing(&mut scanned, sink);
        }
        let report = self.report.get_or_insert(scanned);
        let mut missing = self.references.end_pass();
        missing.sort_by_key(|damage| (damage.line, damage.fault.to_string()));
        for damage in missing {
            report.add(damage);
        }
        if !self.references.searched.is_empty() {
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

impl ReferenceTracker {
    fn add(&mut self, row: &IntactRow<'_>) {
        match row {
            IntactRow::Payload(location, digest, _) => {
                self.found(digest.0, location.n);
                if self.recent_payloads.len() < MAX_RECENT_PAYLOADS {
                    self.recent_payloads.push(*digest);
                }
            }
            IntactRow::Gone(location, name, _) => self.found(name.0, location.n),
            IntactRow::Object(..) => {}
            IntactRow::Step(IntactStep { location, id, parents, chunk, .. }) => {
                self.found(id.0, location.n);
                if !self.full && (self.pass == 0 || location.n >= self.collected_up_to) {
                    let distant = parents.as_slice().iter().filter(|parent| Some(**parent) != self.last_step);
                    let parents = distant.map(|parent| (parent.0, Fault::MissingParent(*parent)));
                    let distant =
                        chunk.payload_digests().into_iter().filter(|digest| !self.recent_payloads.contains(digest));
                    let payloads = distant.map(|digest| (digest.0, Fault::MissingPayload(digest)));
                    for (name, fault) in parents.chain(payloads).collect::<Vec<_>>() {
                        self.next_pass.entry(name).or_insert_with(|| location.damage(Some(*id), fault));
                    }
                    self.collected_up_to = self.collected_up_to.max(location.n + 1);
                    self.full = self.next_pass.len() >= MAX_NAMES_PER_PASS;
                }
                self.last_step = Some(*id);
                self.recent_payloads.clear();
            }
        }
    }

    /// Handles a name in row `n`: it counts if it stands before the row that refers to it.
    fn found(&mut self, name: Name, n: u64) {
        if self.searched.get(&name).is_some_and(|damage| damage.row > Some(n)) {
            self.searched.remove(&name);
        }
    }

    /// Ends a pass, and returns the damage for names that were not found.
    fn end_pass(&mut self) -> Vec<Damage> {
        let missing = std::mem::replace(&mut self.searched, std::mem::take(&mut self.next_pass));
        self.pass += 1;
        self.full = false;
        self.last_step = None;
        self.recent_payloads.clear();
        missing.into_values().collect()
    }
}
