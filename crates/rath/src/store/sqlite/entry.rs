//! The entries of the log, each with a seal.
//!
//! ```text
//! entry   length u32 · length of the head u32 · place u64 · kind u8 · flags u8 · fields · seal 16   (the head)
//!         the JSON of a step                                                                         (the rest)
//! ```
//!
//! Numbers are little-endian. The seal covers the head before it. The head names the rest by its digest: a step's id is made
//! of its chunk.

use rath_record::{BranchId, Digest, Parent, Seal, Stamp, Step, StepId, Timestamp, Totals, Usage};

use super::branch::BranchRow;

const STEP: u8 = 1;
const BRANCH: u8 = 2;
const GONE: u8 = 3;
const WRITER: u8 = 4;

const PARENTS: u8 = 0b11;
const MOVES: u8 = 1 << 2;
const ELSEWHERE: [u8; 2] = [1 << 3, 1 << 4];
const WITHHELD: u8 = 1 << 5;
const AT: u8 = 1 << 6;
const USAGE: u8 = 1 << 7;

/// The length of the fixed fields at the beginning of an entry, in bytes.
pub(super) const ENTRY_PREFIX_BYTES: usize = 18;
pub(super) const SEAL: usize = 16;

/// An entry of the log.
pub(super) enum LogEntry {
    /// A step.
    Step(StepRow),
    /// The whole state of a branch from here on.
    Branch(BranchRow),
    /// A branch that was deleted.
    Gone(BranchId),
    /// A writer and the time at which its lease expires. The number of the writer is the place of the entry.
    Writer(String, i64),
}

/// A step as it is in the log.
#[derive(Clone)]
pub(super) struct StepRow {
    pub(super) place: u64,
    pub(super) id: StepId,
    /// The ids and places of the parents, ours first; place 0 for a parent that was lost before it was stored here.
    pub(super) parents: Vec<(StepId, u64)>,
    /// True for each parent that is on another branch.
    pub(super) elsewhere: [bool; 2],
    /// True if the step becomes the head of its branch.
    pub(super) moves: bool,
    pub(super) stamp: Stamp,
    /// The totals of the record up to this step.
    pub(super) totals: Vec<u8>,
    /// The digest of the original chunk, if the chunk was erased.
    pub(super) withheld: Option<Digest>,
    pub(super) chunk: String,
}

/// The fault of an entry, with its step, if that is known.
pub(super) struct EntryFault {
    pub(super) step: Option<StepId>,
    pub(super) what: String,
}

impl EntryFault {
    pub(super) fn new(what: impl Into<String>) -> Self {
        EntryFault { step: None, what: what.into() }
    }
}

/// The position of a step in the log and in its branch.
pub(super) struct StepPlacement {
    /// The places of the parents.
    pub(super) places: [u64; 2],
    pub(super) elsewhere: [bool; 2],
    pub(super) moves: bool,
}

/// Appends entries to a buffer.
pub(super) struct EntryEncoder<'a>(pub(super) &'a mut Vec<u8>);

impl EntryEncoder<'_> {
    pub(super) fn step(&mut self, place: u64, step: &Step, json: &[u8], totals: &[u8], placement: &StepPlacement) {
        let parents = step.parents();
        let ids = || parents.iter().map(Parent::id).zip(placement.places);
        let left = step.withheld().map(|withheld| (withheld, Digest::compute(json)));
        self.encode_step(place, step.id(), ids(), step.stamp(), (totals, left, json), placement);
    }

    /// Encodes a step that was read from the log.
    pub(super) fn row(&mut self, row: &StepRow) {
        let left = row.withheld.map(|withheld| (withheld, Digest::compute(row.chunk.as_bytes())));
        let placement = StepPlacement { places: [0; 2], elsewhere: row.elsewhere, moves: row.moves };
        let parents = row.parents.iter().copied();
        self.encode_step(row.place, row.id, parents, &row.stamp, (&row.totals, left, row.chunk.as_bytes()), &placement);
    }

    fn encode_step(
        &mut self,
        place: u64,
        id: StepId,
        parents: impl ExactSizeIterator<Item = (StepId, u64)>,
        stamp: &Stamp,
        (totals, left, json): (&[u8], Option<(Digest, Digest)>, &[u8]),
        placement: &StepPlacement,
    ) {
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        let flags = parents.len() as u8 & PARENTS
            | flag(placement.moves, MOVES)
            | flag(placement.elsewhere[0], ELSEWHERE[0])
            | flag(placement.elsewhere[1], ELSEWHERE[1])
            | flag(left.is_some(), WITHHELD)
            | flag(stamp.at.is_some(), AT)
            | flag(stamp.usage.is_some(), USAGE);
        self.entry(place, STEP, flags, json, |out| {
            out.extend_from_slice(&id.0);
            out.extend_from_slice(&stamp.branch.0);
            for (id, place) in parents {
                out.extend_from_slice(&id.0);
                out.extend_from_slice(&place.to_le_bytes());
            }
            if let Some((withheld, left)) = left {
                out.extend_from_slice(&withheld.0);
                out.extend_from_slice(&left.0);
            }
            stamp.at.iter().for_each(|at| out.extend_from_slice(&at.0.to_le_bytes()));
            if let Some(Usage { input, output, cached_read, cache_write, reasoning }) = stamp.usage {
                let numbers = [input, output, cached_read, cache_write, reasoning];
                numbers.iter().for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
            }
            // The length plus one, so that none and an empty text differ.
            let by = stamp.by.as_deref();
            out.extend_from_slice(&by.map_or(0, |by| by.len() as u32 + 1).to_le_bytes());
            out.extend_from_slice(by.unwrap_or_default().as_bytes());
            out.extend_from_slice(totals);
        });
    }

    pub(super) fn branch(&mut self, place: u64, row: &BranchRow) {
        self.entry(place, BRANCH, 0, &[], |out| row.pack(out));
    }

    pub(super) fn gone(&mut self, place: u64, branch: BranchId) {
        self.entry(place, GONE, 0, &[], |out| out.extend_from_slice(&branch.0));
    }

    pub(super) fn writer(&mut self, place: u64, who: &str, expires: i64) {
        self.entry(place, WRITER, 0, &[], |out| {
            out.extend_from_slice(&expires.to_le_bytes());
            out.extend_from_slice(who.as_bytes());
        });
    }

    fn entry(&mut self, place: u64, kind: u8, flags: u8, rest: &[u8], fields: impl FnOnce(&mut Vec<u8>)) {
        let out = &mut *self.0;
        let start = out.len();
        out.extend_from_slice(&[0; 8]);
        out.extend_from_slice(&place.to_le_bytes());
        out.extend_from_slice(&[kind, flags]);
        fields(out);
        let head = out.len() - start;
        let length = head + SEAL + rest.len();
        // The length was checked before the entry was appended.
        out[start..start + 4].copy_from_slice(&(length as u32).to_le_bytes());
        out[start + 4..start + 8].copy_from_slice(&(head as u32).to_le_bytes());
        let seal = Seal::compute(&out[start..]);
        out.extend_from_slice(&seal.0);
        out.extend_from_slice(rest);
    }
}

/// Reads the length of an entry, and of its head with the seal; none if the bytes do not begin an entry of this place.
pub(super) fn lengths(first: &[u8], place: u64) -> Option<(usize, usize)> {
    let mut fields = FieldReader(first);
    let (length, head, own) = (fields.u32()? as usize, fields.u32()? as usize, fields.u64()?);
    (own == place && head >= ENTRY_PREFIX_BYTES && head + SEAL <= length).then_some((length, head + SEAL))
}

/// Returns true if the seal of a head fits.
pub(super) fn is_sealed(head: &[u8]) -> bool {
    let (fields, seal) = head.split_at(head.len() - SEAL);
    Seal::compute(fields).0 == *seal
}

/// Reads an entry whose seal fits.
pub(super) fn read(place: u64, head: &[u8], rest: &[u8]) -> Result<LogEntry, EntryFault> {
    let unread = || EntryFault::new("the entry cannot be read");
    let fields = head.get(16..head.len() - SEAL).ok_or_else(unread)?;
    let (kind, flags) = (fields[0], fields[1]);
    let mut fields = FieldReader(&fields[2..]);
    let entry = match kind {
        STEP => return step(place, flags, fields, rest).ok_or_else(unread)?.map(LogEntry::Step),
        BRANCH => BranchRow::unpack(fields.0).map(LogEntry::Branch),
        GONE => fields.array().map(|id| LogEntry::Gone(BranchId(id))),
        WRITER => fields.i64().and_then(|expires| Some(LogEntry::Writer(fields.text()?, expires))),
        _ => None,
    };
    entry.ok_or_else(unread)
}

fn step(place: u64, flags: u8, mut fields: FieldReader<'_>, rest: &[u8]) -> Option<Result<StepRow, EntryFault>> {
    let (id, branch) = (StepId(fields.array()?), BranchId(fields.array()?));
    let parents = (0..flags & PARENTS).map(|_| Some((StepId(fields.array()?), fields.u64()?)));
    let parents: Vec<_> = parents.collect::<Option<_>>()?;
    let mut withheld = None;
    if flags & WITHHELD != 0 {
        withheld = Some((Digest(fields.array()?), Digest(fields.array()?)));
    }
    let at = if flags & AT != 0 { Some(Timestamp(fields.i64()?)) } else { None };
    let mut usage = None;
    if flags & USAGE != 0 {
        let mut number = || fields.u64();
        let [input, output, cached_read, cache_write, reasoning] =
            [number()?, number()?, number()?, number()?, number()?];
        usage = Some(Usage { input, output, cached_read, cache_write, reasoning });
    }
    let by = match fields.u32()? {
        0 => None,
        length => Some(std::str::from_utf8(fields.take(length as usize - 1)?).ok()?.into()),
    };
    let totals = fields.0.to_vec();
    Totals::decode(&totals)?;
    let fault = |what: &str| Some(Err(EntryFault { step: Some(id), what: what.to_owned() }));
    let said = Digest::compute(rest);
    if withheld.is_some_and(|(_, left)| left != said) {
        return fault("the row was changed: its seal does not match");
    }
    let (ids, digest) = (parents.iter().map(|(id, _)| *id).collect::<Vec<_>>(), withheld.map_or(said, |(it, _)| it));
    if StepId::compute(&ids, digest) != id {
        return fault("the step's id does not match its parents and its chunk");
    }
    let Ok(chunk) = std::str::from_utf8(rest) else { return fault("the row cannot be read") };
    let mut stamp = Stamp::on(branch);
    (stamp.by, stamp.usage, stamp.at) = (by, usage, at);
    Some(Ok(StepRow {
        place,
        id,
        parents,
        elsewhere: ELSEWHERE.map(|flag| flags & flag != 0),
        moves: flags & MOVES != 0,
        stamp,
        totals,
        withheld: withheld.map(|(digest, _)| digest),
        chunk: chunk.to_owned(),
    }))
}

/// Reads the id and the branch of a step from a sealed head; none for other entries.
pub(super) fn step_and_branch(head: &[u8]) -> Option<(StepId, BranchId)> {
    let mut fields = FieldReader(head.get(16..)?);
    let [kind, _]: [u8; 2] = fields.array()?;
    (kind == STEP).then_some(())?;
    Some((StepId(fields.array()?), BranchId(fields.array()?)))
}

/// Reads packed fields one after the other.
pub(super) struct FieldReader<'a>(pub(super) &'a [u8]);

impl<'a> FieldReader<'a> {
    pub(super) fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(super) fn i64(&mut self) -> Option<i64> {
        self.array().map(i64::from_le_bytes)
    }

    /// Returns all remaining bytes as a text.
    pub(super) fn text(&mut self) -> Option<String> {
        std::str::from_utf8(std::mem::take(&mut self.0)).ok().map(str::to_owned)
    }
}
