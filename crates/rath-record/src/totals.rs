//! The running totals of a line, carried in every step so that reading them costs nothing.
//!
//! The line of a step is everything that is read up to it, the step included.

use crate::chunk::{Chunk, Strategy};
use crate::lineage::{self, Comparison, ReadingOrder};
use crate::step::{Parent, Parents, Step};
use crate::turn::{OpenCalls, PendingWork, TurnState};
use crate::usage::Usage;

/// The length of the longest line that a concatenating merge may make, in steps: repeated concatenation doubles it.
pub const MAX_CONCAT_STEPS: u64 = 1 << 24;

/// The totals of a line that are readable without loading any of its steps.
///
/// ```
/// use rath_record::{BranchId, Chunk, Parents, Stamp, Step, Totals};
///
/// let step = Step::new(Parents::None, Chunk::user("Hello"), Stamp::on(BranchId([1; 16])));
/// let totals = Totals::decode(&step.encode_totals()).expect("these are totals");
/// assert_eq!(totals.chunks, 1);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Totals {
    /// The number of chunks, without markers.
    pub chunks: u64,
    /// The usage of all model calls, each counted once.
    pub usage: Usage,
    /// The work that comes next.
    pub pending: PendingWork,
    /// The number of conflicts in merges, resolved or not.
    pub conflicts: u64,
    /// True if a step that the line depends on was lost.
    pub gap: bool,
}

impl Totals {
    /// Decodes what [`Step::encode_totals`] returned.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let totals = LineTotals::decode(bytes)?;
        let LineTotals { chunks, usage, conflicts, gap, .. } = totals;
        Some(Totals { chunks, usage, pending: totals.turn.pending_work(), conflicts, gap })
    }

    /// Splits bytes into the totals at their beginning, still encoded, and the rest.
    pub fn split_encoded(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
        let (_, rest) = LineTotals::decode_first(bytes)?;
        Some(bytes.split_at(bytes.len() - rest.len()))
    }
}

/// The totals of the line up to a step.
#[derive(Clone, Default)]
pub(crate) struct LineTotals {
    /// One more than the largest generation of the parents, so that every present ancestor has a smaller one.
    pub(crate) generation: u64,
    /// The number of steps in reading order, including those that a merge repeats.
    pub(crate) steps: u64,
    /// The number of those steps that are not markers.
    pub(crate) chunks: u64,
    /// The number of conflicts in merges, resolved or not.
    pub(crate) conflicts: u64,
    /// The usage of all model calls, each counted once.
    pub(crate) usage: Usage,
    /// The state of the conversation at the end of the line.
    pub(crate) turn: TurnState,
    /// True if the line has a merge that reads both sides.
    pub(crate) merged: bool,
    /// True if a merge on the line keeps a branch aside.
    pub(crate) asides: bool,
    /// True if a step of the line is lost, so that generations cannot be relied on.
    pub(crate) gap: bool,
    /// True if the last step is a merge that reads all of theirs, shared steps included.
    pub(crate) repeats: bool,
    /// True if the last step is a merge that keeps theirs aside.
    pub(crate) aside: bool,
}

impl LineTotals {
    /// Encodes the totals for a store, as numbers of seven bits per byte, the lowest bits first.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let Usage { input, output, cached_read, cache_write, reasoning } = self.usage;
        let flags = [self.merged, self.asides, self.gap, self.repeats, self.aside];
        let flags = flags.iter().enumerate().fold(0, |all, (bit, flag)| all | u64::from(*flag) << bit);
        let [phase, open] = self.turn.to_numbers();
        // The zero was a count that stored totals still have.
        let counts = [self.generation, self.steps, self.chunks, 0, self.conflicts];
        let numbers =
            counts.into_iter().chain([phase, open, flags]).chain([input, output, cached_read, cache_write, reasoning]);
        let mut bytes = Vec::with_capacity(24);
        for mut number in numbers {
            while number > 0x7f {
                bytes.push(number as u8 | 0x80);
                number >>= 7;
            }
            bytes.push(number as u8);
        }
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        LineTotals::decode_first(bytes).map(|(totals, _)| totals)
    }

    /// Decodes the totals at the beginning of `bytes`, and returns the rest.
    fn decode_first(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let mut bytes = bytes.iter();
        let mut number = || {
            let mut number = 0;
            for shift in (0..64).step_by(7) {
                let byte = *bytes.next()?;
                number |= u64::from(byte & 0x7f) << shift;
                if byte & 0x80 == 0 {
                    return Some(number);
                }
            }
            None
        };
        let [generation, steps, chunks, _, conflicts] = [number()?, number()?, number()?, number()?, number()?];
        let turn = TurnState::from_numbers([number()?, number()?])?;
        let flags = number()?;
        let flag = |bit: u64| flags >> bit & 1 == 1;
        let [input, output, cached_read, cache_write, reasoning] =
            [number()?, number()?, number()?, number()?, number()?];
        let usage = Usage { input, output, cached_read, cache_write, reasoning };
        let [merged, asides, gap, repeats, aside] = [flag(0), flag(1), flag(2), flag(3), flag(4)];
        let totals =
            LineTotals { generation, steps, chunks, conflicts, usage, turn, merged, asides, gap, repeats, aside };
        Some((totals, bytes.as_slice()))
    }

    /// Returns the totals before a step with these parents: those of the first parent that is present.
    pub(crate) fn before_step(parents: &Parents) -> Self {
        let parent = parents.as_slice().iter().find_map(Parent::step);
        let mut totals = parent.map(|parent| parent.totals().clone()).unwrap_or_default();
        totals.gap |= parents.as_slice().iter().any(|parent| parent.step().is_none());
        totals.repeats = false;
        totals.aside = false;
        totals
    }

    /// Returns the totals before a merge that keeps theirs aside and has lost one of its parents.
    pub(crate) fn before_incomplete_aside(parents: &Parents) -> Self {
        let ours = parents.as_slice().first().and_then(Parent::step);
        let totals = ours.map(|ours| ours.totals().clone()).unwrap_or_default();
        LineTotals { gap: true, repeats: false, aside: true, asides: true, ..totals }
    }

    /// Returns the totals before a merge: ours, with the steps that only theirs has added.
    ///
    /// The cost is the number of steps that differ, not of those that are shared.
    pub(crate) fn before_merge(
        ours: &Step,
        theirs: &Step,
        strategy: Strategy,
        comparison: Comparison<'_>,
    ) -> (Self, OpenCalls) {
        let mut open = OpenCalls::at(ours);
        let mut totals = ours.totals().clone();
        let steps = ours.totals().steps.saturating_add(theirs.totals().steps);
        totals.repeats = strategy == Strategy::Concat && steps < MAX_CONCAT_STEPS;
        totals.aside = strategy == Strategy::Aside;
        let asides = ours.totals().asides || theirs.totals().asides;
        let is_read = !totals.repeats && !totals.aside;
        for step in ReadingOrder::subset(theirs, comparison.theirs).collect() {
            totals.add_once(step.chunk(), step.stamp().usage);
            if is_read && !asides {
                totals.add_read(step.chunk(), &mut open);
            }
        }
        if is_read && asides {
            for step in lineage::read_by_theirs_only(ours, theirs) {
                totals.add_read(step.chunk(), &mut open);
            }
        }
        if totals.repeats {
            totals.steps = steps;
            totals.chunks = ours.totals().chunks.saturating_add(theirs.totals().chunks);
            totals.turn.append_line(&theirs.totals().turn, &mut open, &OpenCalls::at(theirs));
        }
        totals.generation = ours.totals().generation.max(theirs.totals().generation);
        totals.gap |= theirs.totals().gap;
        totals.merged |= theirs.totals().merged || !totals.aside;
        totals.asides |= theirs.totals().asides || totals.aside;
        (totals, open)
    }

    /// Adds one step at the end of the line.
    pub(crate) fn append(&mut self, chunk: &Chunk, usage: Option<Usage>, open: &mut OpenCalls) {
        self.generation = self.generation.saturating_add(1);
        self.add_read(chunk, open);
        self.add_once(chunk, usage);
    }

    /// Updates the totals that count a step every time it is read.
    fn add_read(&mut self, chunk: &Chunk, open: &mut OpenCalls) {
        self.steps = self.steps.saturating_add(1);
        self.chunks = self.chunks.saturating_add(u64::from(!chunk.is_marker()));
        self.turn.append(chunk, open);
    }

    /// Updates the totals that count a step once, however often it is read.
    fn add_once(&mut self, chunk: &Chunk, usage: Option<Usage>) {
        match chunk {
            Chunk::Merged(merged) => self.conflicts = self.conflicts.saturating_add(merged.conflicts.len() as u64),
            Chunk::Resumed(resumed) => self.gap |= resumed.is_incomplete,
            _ => {}
        }
        self.usage += usage.unwrap_or_default();
    }
}
