//! Reading the lines of a file back into steps.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use super::CodecError;
use super::damage::{Fault, Report};
use super::objects::{ObjectSink, SkipObjects, add_missing, hand_over};
use super::row::{Signature, WriterInfo};
use super::scanner::{AppendPosition, IntactRow, IntactStep, RowLocation, RowScanner};
use crate::id::{BranchId, Digest, StepId};
use crate::lineage::StepSet;
use crate::payload::Payload;
use crate::record::Record;
use crate::step::{Parent, Parents, Step, StoredChunk};
use crate::turn::OpenCalls;

/// Reads a whole file.
///
/// ```
/// use rath_record::codec::{self, Encoder};
/// # use rath_record::{BranchId, Chunk, Record, Stamp};
///
/// # let mut record = Record::new();
/// # record.push(Chunk::user("Hello"), Stamp::on(BranchId([1; 16])));
/// let file = Encoder::encode_record(&record)?;
/// let contents = codec::read(&file)?;
/// assert!(contents.report.is_whole());
/// assert_eq!(contents.record.head(), record.head());
/// # Ok::<(), codec::CodecError>(())
/// ```
pub fn read(bytes: &[u8]) -> Result<FileContents, CodecError> {
    let mut reader = Reader::new();
    reader.feed(bytes);
    reader.finish()
}

/// The contents of a file.
///
/// Returned by [`read`] and [`Reader::finish`].
#[derive(Debug)]
#[non_exhaustive]
pub struct FileContents {
    /// The record up to the newest step.
    pub record: Record,
    /// Every step without children, oldest first.
    ///
    /// There are several if the file holds several branches, or if a lost row separates two parts of a line.
    pub heads: Vec<Step>,
    /// Every step in the file, in the order of its rows.
    pub steps: Vec<Step>,
    /// The result of checking the file.
    pub report: Report,
    /// The location at which the file can be continued; `None` if it has no row.
    pub position: Option<AppendPosition>,
    /// The last writer, if the file names one.
    pub writer: Option<WriterInfo>,
    /// The digests of the payloads in the file.
    pub payloads: Vec<Digest>,
    /// The signatures in the file, by the branch of a step and its id.
    pub signatures: HashMap<(BranchId, StepId), Signature>,
}

/// Reads a file block by block into steps, and checks all of it.
///
/// ```
/// use rath_record::codec::{Encoder, Reader};
///
/// let file = Encoder::new().finish();
/// let mut reader = Reader::new();
/// for block in file.chunks(4096) {
///     reader.feed(block);
/// }
/// assert_eq!(reader.finish()?.report.steps, 0);
/// # Ok::<(), rath_record::codec::CodecError>(())
/// ```
#[derive(Default)]
pub struct Reader {
    scanner: RowScanner,
    linker: StepLinker,
}

impl Reader {
    /// Makes a reader at the beginning of a file.
    pub fn new() -> Self {
        Reader::default()
    }

    /// Processes the next bytes. Versions of files are passed over.
    pub fn feed(&mut self, block: &[u8]) {
        self.feed_with(block, &mut SkipObjects);
    }

    /// Processes the next bytes, and hands the versions of files to `sink`.
    pub fn feed_with(&mut self, block: &[u8], sink: &mut dyn ObjectSink) {
        let linker = &mut self.linker;
        self.scanner
            .feed(block, &mut |report, row| hand_over(report, row, sink).into_iter().for_each(|row| linker.add(row)));
    }

    /// Sets the function that finds steps in the files of other sessions.
    pub fn with_step_finder(mut self, find: impl FnMut(StepId, BranchId) -> Option<Step> + Send + 'static) -> Self {
        self.linker.find_elsewhere = Some(Box::new(find));
        self
    }

    /// Returns a step that was read already.
    pub fn step(&self, id: StepId) -> Option<&Step> {
        self.linker.known.get(&id).map(|(_, step)| step)
    }

    /// Processes the end of the file and returns its contents.
    pub fn finish(self) -> Result<FileContents, CodecError> {
        self.finish_with(&mut SkipObjects)
    }

    /// Processes the end of a file that was read with [`Reader::feed_with`], and returns its contents.
    pub fn finish_with(mut self, sink: &mut dyn ObjectSink) -> Result<FileContents, CodecError> {
        let linker = &mut self.linker;
        self.scanner
            .finish(&mut |report, row| hand_over(report, row, sink).into_iter().for_each(|row| linker.add(row)))?;
        if let Some(line) = self.scanner.cut_line() {
            self.linker.remove_from(line);
        }
        let (position, writer) = (self.scanner.position(), self.scanner.writer().cloned());
        let mut report = self.scanner.report;
        self.linker.link_deferred(&mut report);
        add_missing(&mut report, sink);
        report.damage.sort_by_key(|damage| damage.line);
        let payloads = self.linker.payloads.keys().copied().collect();
        let steps = self.linker.steps_in_order();
        let signatures = std::mem::take(&mut self.linker.signatures);
        let signatures = signatures.into_iter().map(|(step, (_, signature))| (step, signature)).collect();
        let heads = self.linker.heads();
        let record = heads.last().cloned().map(Record::at).unwrap_or_default();
        Ok(FileContents { record, heads, steps, report, position, writer, payloads, signatures })
    }
}

/// Finds a step in the file of another session.
type FindStep = Box<dyn FnMut(StepId, BranchId) -> Option<Step> + Send>;

/// Links rows into steps.
#[derive(Default)]
struct StepLinker {
    /// The steps by id, with the locations of their rows.
    known: HashMap<StepId, (RowLocation, Step)>,
    /// Those of `known` that have their rows in this file. They may be ancestors of steps in other files, which continue from them.
    own: HashSet<StepId>,
    /// Steps with an id that is known already from another branch.
    repeated: HashMap<(BranchId, StepId), (RowLocation, Step)>,
    /// The step that was read last, and the open calls after it.
    last: Option<(StepId, OpenCalls)>,
    with_children: StepSet,
    /// The payloads, with the locations of their rows.
    payloads: HashMap<Digest, (RowLocation, Payload)>,
    /// The signatures under steps, with the locations of their rows.
    signatures: HashMap<(BranchId, StepId), (RowLocation, Signature)>,
    /// The ids and digests that are declared as absent, with the locations of the rows that say so.
    gone: HashMap<Digest, RowLocation>,
    find_elsewhere: Option<FindStep>,
    /// Steps that stand before one of their parents or payloads: rows were swapped, or one is lost.
    deferred: Vec<IntactStep<'static>>,
}

impl StepLinker {
    fn add(&mut self, row: IntactRow<'_>) {
        if let IntactRow::Step(step) = &row
            && let Some(signature) = step.signature
        {
            self.signatures.entry((step.stamp.branch, step.id)).or_insert((step.location, signature));
        }
        match row {
            IntactRow::Payload(location, digest, payload) => {
                _ = self.payloads.entry(digest).or_insert((location, payload));
            }
            IntactRow::Gone(location, name, elsewhere) => {
                let id = StepId(name.0);
                let step = elsewhere.and_then(|file| self.find_elsewhere.as_mut()?(id, file));
                match step {
                    Some(step) => _ = self.known.entry(id).or_insert((location, step)),
                    None => _ = self.gone.entry(name).or_insert(location),
                }
            }
            // Versions are handed to a sink.
            IntactRow::Object(..) => {}
            IntactRow::Step(step) if self.missing_references(&step).is_empty() => self.link(step),
            IntactRow::Step(step) => {
                self.deferred.push(IntactStep { json: Cow::Owned(step.json.into_owned()), ..step });
            }
        }
    }

    /// Links the deferred steps, in the order of their row numbers.
    fn link_deferred(&mut self, report: &mut Report) {
        let mut deferred = std::mem::take(&mut self.deferred);
        deferred.sort_by_key(|step| step.location.n);
        for step in deferred {
            for fault in self.missing_references(&step) {
                report.add(step.location.damage(Some(step.id), fault));
            }
            self.link(step);
        }
    }

    /// Returns a fault for every parent and payload that should stand before a step and does not.
    fn missing_references(&self, step: &IntactStep<'_>) -> Vec<Fault> {
        let is_before = |row: Option<RowLocation>, name: Digest| {
            row.or_else(|| self.gone.get(&name).copied()).is_some_and(|row| row.n < step.location.n)
        };
        let parents = step
            .parents
            .as_slice()
            .iter()
            .filter(|id| !is_before(self.known.get(id).map(|(row, _)| *row), Digest(id.0)));
        let payloads = step.chunk.payload_digests().into_iter();
        let payloads = payloads.filter(|digest| !is_before(self.payloads.get(digest).map(|(row, _)| *row), *digest));
        parents.copied().map(Fault::MissingParent).chain(payloads.map(Fault::MissingPayload)).collect()
    }

    fn link(&mut self, step: IntactStep<'_>) {
        let IntactStep { location, id, parents, stamp, mut chunk, json, withheld, .. } = step;
        // Two branches may begin with the same step; a row that repeats a step of the same branch is a copy.
        let is_known = match self.known.get(&id) {
            // It was found in another file before, and is in this one too.
            Some((_, known)) if known.stamp().branch == stamp.branch && !self.own.contains(&id) => false,
            Some((_, known)) if known.stamp().branch == stamp.branch => return,
            Some(_) if self.repeated.contains_key(&(stamp.branch, id)) => return,
            known => known.is_some(),
        };
        chunk.fill_payloads(|digest| self.payloads.get(digest).map(|(_, payload)| payload.clone()));
        // Of equal steps, that of the own branch comes first.
        let parent = |id: &StepId| match self.repeated.get(&(stamp.branch, *id)).or_else(|| self.known.get(id)) {
            Some((_, step)) => Parent::Loaded(step.clone()),
            None => Parent::Missing(Box::new(*id)),
        };
        let parents = match parents.as_slice() {
            [] => Parents::None,
            [id] => Parents::One(parent(id)),
            [ours, theirs, ..] => Parents::Two([parent(ours), parent(theirs)]),
        };
        // Nearly every step follows the one just read; only then are its open calls known.
        let follows_last =
            matches!((&parents, &self.last), (Parents::One(parent), Some((last, _))) if parent.id() == *last);
        let mut open = match self.last.take() {
            Some((_, open)) if follows_last => open,
            _ => OpenCalls::before(&parents),
        };
        self.with_children.extend(parents.as_slice().iter().filter_map(Parent::step).map(Step::id));
        let step = Step::from_stored_chunk(parents, StoredChunk { chunk, json: &json, withheld }, stamp, &mut open);
        self.last = Some((id, open));
        match is_known {
            true => _ = self.repeated.insert((step.stamp().branch, id), (location, step)),
            false => {
                self.own.insert(id);
                self.known.insert(id, (location, step));
            }
        }
    }

    /// Removes everything from a line on, which was never acknowledged.
    fn remove_from(&mut self, line: u64) {
        self.known.retain(|_, (row, _)| row.line < line);
        self.own.retain(|id| self.known.contains_key(id));
        self.repeated.retain(|_, (row, _)| row.line < line);
        self.payloads.retain(|_, (row, _)| row.line < line);
        self.signatures.retain(|_, (row, _)| row.line < line);
        self.gone.retain(|_, row| row.line < line);
        self.deferred.retain(|step| step.location.line < line);
        let parents = self.known.values().flat_map(|(_, step)| step.parents()).filter_map(Parent::step);
        let with_children: StepSet = parents.map(Step::id).collect();
        self.with_children = with_children;
    }

    fn steps_in_order(&self) -> Vec<Step> {
        let own = self.known.values().filter(|(_, step)| self.own.contains(&step.id()));
        let mut steps: Vec<_> = own.chain(self.repeated.values()).collect();
        steps.sort_by_key(|(row, _)| row.n);
        steps.into_iter().map(|(_, step)| step.clone()).collect()
    }

    fn heads(self) -> Vec<Step> {
        let mut heads: Vec<_> =
            self.known.into_values().filter(|(_, step)| !self.with_children.contains(&step.id())).collect();
        heads.sort_by_key(|(row, _)| row.n);
        heads.into_iter().map(|(_, step)| step).collect()
    }
}
