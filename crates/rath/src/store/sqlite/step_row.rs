//! The rows of steps.
//!
//! ```text
//! head   place u64 · flags u8 · id 32 · branch 16 · parents, each: id 32, place u64 · digests of an erased chunk 2 × 32
//!        time i64 · usage 5 × u64 · length of the author plus one u32 · author · totals · seal 16
//! json   the chunk
//! ```
//!
//! Numbers are little-endian, and the flags say which fields are there. The place is the rowid. The seal covers the head before
//! it; the JSON is covered by the id, which is made of the parents and the chunk.

use rath_record::{BranchId, Digest, Parent, Seal, Stamp, Step, StepId, Timestamp, Totals, Usage};

const PARENTS: u8 = 0b11;
const WITHHELD: u8 = 1 << 2;
const AT: u8 = 1 << 3;
const USAGE: u8 = 1 << 4;

pub(super) const SEAL_BYTES: usize = 16;

/// A step as it is in the table.
#[derive(Clone)]
pub(super) struct StepRow {
    /// The rowid. A step has a higher place than its parents.
    pub(super) place: u64,
    pub(super) id: StepId,
    /// The ids and places of the parents, ours first; place 0 for a parent that was lost before it was stored here.
    pub(super) parents: Vec<(StepId, u64)>,
    pub(super) stamp: Stamp,
    /// The totals of the record up to this step.
    pub(super) totals: Vec<u8>,
    /// The digest of the original chunk, if the chunk was erased.
    pub(super) withheld: Option<Digest>,
    pub(super) json: String,
}

/// The fault of a row, with its step, if that is known.
pub(super) struct RowFault {
    pub(super) step: Option<StepId>,
    pub(super) what: String,
}

impl RowFault {
    pub(super) fn new(what: impl Into<String>) -> Self {
        RowFault { step: None, what: what.into() }
    }

    /// Creates the fault of a row that SQLite cannot read.
    pub(super) fn unreadable(error: &rusqlite::Error) -> Self {
        RowFault::new(format!("the row cannot be read: {error}"))
    }
}

/// Encodes the head of a step. `places` are the places of its parents.
pub(super) fn encode(out: &mut Vec<u8>, place: u64, step: &Step, json: &[u8], totals: &[u8], places: [u64; 2]) {
    let parents = step.parents().iter().map(Parent::id).zip(places);
    let erased = step.withheld().map(|withheld| (withheld, Digest::compute(json)));
    encode_head(out, (place, step.id()), parents, step.stamp(), erased);
    out.extend_from_slice(totals);
    seal(out);
}

impl StepRow {
    /// Encodes the head.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let erased = self.withheld.map(|withheld| (withheld, Digest::compute(self.json.as_bytes())));
        encode_head(&mut out, (self.place, self.id), self.parents.iter().copied(), &self.stamp, erased);
        out.extend_from_slice(&self.totals);
        seal(&mut out);
        out
    }

    /// Decodes a row, and checks its seal and its id.
    pub(super) fn decode(place: u64, head: &[u8], json: &[u8]) -> Result<Self, RowFault> {
        let fields =
            unseal(place, head).ok_or_else(|| RowFault::new("the row was changed: its seal does not match"))?;
        let row = StepRow::decode_fields(place, fields, json);
        row.ok_or_else(|| RowFault::new("the row cannot be read"))?
    }

    fn decode_fields(place: u64, fields: &[u8], json: &[u8]) -> Option<Result<Self, RowFault>> {
        let mut fields = FieldReader(fields);
        let [flags] = fields.array()?;
        let (id, branch) = (StepId(fields.array()?), BranchId(fields.array()?));
        let parents = (0..flags & PARENTS).map(|_| Some((StepId(fields.array()?), fields.u64()?)));
        let parents: Vec<_> = parents.collect::<Option<_>>()?;
        let mut erased = None;
        if flags & WITHHELD != 0 {
            erased = Some((Digest(fields.array()?), Digest(fields.array()?)));
        }
        let mut stamp = Stamp::on(branch);
        if flags & AT != 0 {
            stamp.at = Some(Timestamp(fields.i64()?));
        }
        if flags & USAGE != 0 {
            let mut number = || fields.u64();
            let [input, output, cached_read, cache_write, reasoning] =
                [number()?, number()?, number()?, number()?, number()?];
            stamp.usage = Some(Usage { input, output, cached_read, cache_write, reasoning });
        }
        if let Some(length) = fields.u32()?.checked_sub(1) {
            stamp.by = Some(std::str::from_utf8(fields.take(length as usize)?).ok()?.into());
        }
        let totals = fields.0.to_vec();
        Totals::decode(&totals)?;
        let fault = |what: &str| Some(Err(RowFault { step: Some(id), what: what.to_owned() }));
        let digest = Digest::compute(json);
        if erased.is_some_and(|(_, erased)| erased != digest) {
            return fault("the row was changed: its seal does not match");
        }
        let (mut ids, withheld) = ([StepId([0; 32]); 3], erased.map(|(withheld, _)| withheld));
        ids.iter_mut().zip(&parents).for_each(|(to, (id, _))| *to = *id);
        if StepId::compute(&ids[..parents.len()], withheld.unwrap_or(digest)) != id {
            return fault("the step's id does not match its parents and its chunk");
        }
        let Ok(json) = std::str::from_utf8(json) else { return fault("the row cannot be read") };
        Some(Ok(StepRow { place, id, parents, stamp, totals, withheld, json: json.to_owned() }))
    }
}

/// Reads the id and the branch of a step from its head, if the seal matches.
pub(super) fn step_and_branch(place: u64, head: &[u8]) -> Option<(StepId, BranchId)> {
    let mut fields = FieldReader(unseal(place, head)?);
    let [_]: [u8; 1] = fields.array()?;
    Some((StepId(fields.array()?), BranchId(fields.array()?)))
}

fn encode_head(
    out: &mut Vec<u8>,
    (place, id): (u64, StepId),
    parents: impl ExactSizeIterator<Item = (StepId, u64)>,
    stamp: &Stamp,
    erased: Option<(Digest, Digest)>,
) {
    let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
    let flags = parents.len() as u8 & PARENTS
        | flag(erased.is_some(), WITHHELD)
        | flag(stamp.at.is_some(), AT)
        | flag(stamp.usage.is_some(), USAGE);
    out.extend_from_slice(&place.to_le_bytes());
    out.push(flags);
    out.extend_from_slice(&id.0);
    out.extend_from_slice(&stamp.branch.0);
    for (id, place) in parents {
        out.extend_from_slice(&id.0);
        out.extend_from_slice(&place.to_le_bytes());
    }
    if let Some((withheld, erased)) = erased {
        out.extend_from_slice(&withheld.0);
        out.extend_from_slice(&erased.0);
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
}

fn seal(out: &mut Vec<u8>) {
    let seal = Seal::compute(out);
    out.extend_from_slice(&seal.0);
}

/// Returns the fields between the place and the seal, if both match.
fn unseal(place: u64, head: &[u8]) -> Option<&[u8]> {
    let (sealed, seal) = head.split_at_checked(head.len().checked_sub(SEAL_BYTES)?)?;
    let (own, fields) = sealed.split_at_checked(8)?;
    (own == place.to_le_bytes() && Seal::compute(sealed).0 == *seal).then_some(fields)
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

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(super) fn i64(&mut self) -> Option<i64> {
        self.array().map(i64::from_le_bytes)
    }
}
