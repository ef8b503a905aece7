//! What is known of a whole line of steps, folded forward so that reading it costs nothing.

use crate::chunk::{Chunk, Strategy};
use crate::lineage::{self, Order, Split};
use crate::record::CONCAT_MAX;
use crate::step::{Link, Parents, Step};
use crate::turn::{Due, OpenCalls, State};
use crate::usage::Usage;

/// What is known of a whole line from its last step alone, as a shelf keeps it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// How many chunks there are, markers left out.
    pub chunks: u64,
    /// What all model calls cost together, each counted once.
    pub usage: Usage,
    /// What is to be done next.
    pub due: Due,
    /// Whether something that it rests on was lost.
    pub gap: bool,
}

impl Totals {
    /// Reads what [`Step::totals`] gave.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let line = Line::decode(bytes)?;
        Some(Totals { chunks: line.chunks, usage: line.usage, due: line.turn.due(), gap: line.gap })
    }
}

/// What is known of the whole line up to a step.
#[derive(Clone, Default)]
pub(crate) struct Line {
    /// One more than the largest of the parents': every ancestor that is here has a smaller one.
    pub(crate) generation: u64,
    /// How many steps are read on it, what merges repeat included.
    pub(crate) steps: u64,
    /// How many of those are chunks and not markers.
    pub(crate) chunks: u64,
    /// How many of its steps may have changed the workspace, each counted once.
    pub(crate) changes: u64,
    /// How many conflicts merges on it met, decided or not.
    pub(crate) conflicts: u64,
    /// What its model calls cost, each counted once.
    pub(crate) usage: Usage,
    /// Whose turn it is.
    pub(crate) turn: State,
    /// Whether two branches meet anywhere on it, to be read together.
    pub(crate) merged: bool,
    /// Whether anything on it was kept aside.
    pub(crate) asides: bool,
    /// Whether a step of it is lost, so that generations are not to be relied on.
    pub(crate) gap: bool,
    /// Whether the step that ends it is a merge that shows all of theirs, shared or not.
    pub(crate) repeats: bool,
    /// Whether the step that ends it keeps theirs aside.
    pub(crate) aside: bool,
}

impl Line {
    /// As bytes, for a shelf: numbers of seven bits a byte, the lowest first.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let Usage { input, output, cached_read, cache_write, reasoning } = self.usage;
        let flags = [self.merged, self.asides, self.gap, self.repeats, self.aside];
        let flags = flags.iter().enumerate().fold(0, |all, (bit, flag)| all | u64::from(*flag) << bit);
        let [tail, open] = self.turn.numbers();
        let counts = [self.generation, self.steps, self.chunks, self.changes, self.conflicts];
        let numbers =
            counts.into_iter().chain([tail, open, flags]).chain([input, output, cached_read, cache_write, reasoning]);
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
        let [generation, steps, chunks, changes, conflicts] = [number()?, number()?, number()?, number()?, number()?];
        let turn = State::from_numbers([number()?, number()?])?;
        let flags = number()?;
        let flag = |bit: u64| flags >> bit & 1 == 1;
        let [input, output, cached_read, cache_write, reasoning] =
            [number()?, number()?, number()?, number()?, number()?];
        let usage = Usage { input, output, cached_read, cache_write, reasoning };
        let [merged, asides, gap, repeats, aside] = [flag(0), flag(1), flag(2), flag(3), flag(4)];
        Some(Line { generation, steps, chunks, changes, conflicts, usage, turn, merged, asides, gap, repeats, aside })
    }

    /// The line that a step with these parents goes on from. Of a merge only the part that is here.
    pub(crate) fn before(parents: &Parents) -> Self {
        let parent = parents.as_slice().iter().find_map(Link::step);
        let mut line = parent.map(|parent| parent.line().clone()).unwrap_or_default();
        line.gap |= parents.as_slice().iter().any(|link| link.step().is_none());
        line.repeats = false;
        line.aside = false;
        line
    }

    /// The line that a step goes on from which keeps theirs aside, though one of its parents is lost.
    pub(crate) fn before_aside(parents: &Parents) -> Self {
        let ours = parents.as_slice().first().and_then(Link::step);
        let line = ours.map(|ours| ours.line().clone()).unwrap_or_default();
        Line { gap: true, repeats: false, aside: true, asides: true, ..line }
    }

    /// The line that a merge of two goes on from: what only theirs has, folded over ours.
    ///
    /// Costs the steps that differ, not the steps they share.
    pub(crate) fn joining(ours: &Step, theirs: &Step, strategy: Strategy, split: Split<'_>) -> (Self, OpenCalls) {
        let mut open = OpenCalls::at(ours);
        let mut line = ours.line().clone();
        let steps = ours.line().steps.saturating_add(theirs.line().steps);
        line.repeats = strategy == Strategy::Concat && steps < CONCAT_MAX;
        line.aside = strategy == Strategy::Aside;
        let asides = ours.line().asides || theirs.line().asides;
        let is_read = !line.repeats && !line.aside;
        for step in Order::part(theirs, split.theirs).collect() {
            line.cost(step.chunk(), step.stamp().usage);
            if is_read && !asides {
                line.read(step.chunk(), &mut open);
            }
        }
        if is_read && asides {
            for step in lineage::read_by_theirs_only(ours, theirs) {
                line.read(step.chunk(), &mut open);
            }
        }
        if line.repeats {
            line.steps = steps;
            line.chunks = ours.line().chunks.saturating_add(theirs.line().chunks);
            line.turn.go_on(&theirs.line().turn, &mut open, &OpenCalls::at(theirs));
        }
        line.generation = ours.line().generation.max(theirs.line().generation);
        line.gap |= theirs.line().gap;
        line.merged |= theirs.line().merged || !line.aside;
        line.asides |= theirs.line().asides || line.aside;
        (line, open)
    }

    /// Goes on by one step.
    pub(crate) fn follow(&mut self, chunk: &Chunk, usage: Option<Usage>, open: &mut OpenCalls) {
        self.generation += 1;
        self.read(chunk, open);
        self.cost(chunk, usage);
    }

    /// What counts as often as it is read.
    fn read(&mut self, chunk: &Chunk, open: &mut OpenCalls) {
        self.steps = self.steps.saturating_add(1);
        self.chunks = self.chunks.saturating_add(u64::from(!chunk.is_marker()));
        self.turn.follow(chunk, open);
    }

    /// What counts once, however often it is read.
    fn cost(&mut self, chunk: &Chunk, usage: Option<Usage>) {
        self.changes += u64::from(chunk.changes_workspace());
        if let Chunk::Merged(merged) = chunk {
            self.conflicts += merged.conflicts.len() as u64;
        }
        self.usage += usage.unwrap_or_default();
    }
}
