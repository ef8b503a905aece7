//! The diff of two texts by lines: git's histogram diff, with the same result.

mod myers;

use std::collections::HashMap;
use std::ops::Range;

/// Numbers for lines: equal lines get equal ids.
#[derive(Default)]
pub(crate) struct LineIds<'a> {
    known: HashMap<&'a [u8], u32>,
}

/// A run of lines that was removed, and the run that replaced it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hunk {
    pub(crate) before: Range<usize>,
    pub(crate) after: Range<usize>,
}

/// The number of occurrences from which on a line is not used to align the texts.
const MAX_OCCURRENCES: usize = 64;

/// The number of steps after which a diff stops: all remaining lines count as changed.
const MAX_DIFF_STEPS: usize = 200_000_000;

impl<'a> LineIds<'a> {
    /// Returns the ids of lines.
    pub(crate) fn assign(&mut self, lines: &[&'a [u8]]) -> Vec<u32> {
        let number = |line: &&'a [u8]| {
            let next = self.known.len() as u32;
            *self.known.entry(line).or_insert(next)
        };
        lines.iter().map(number).collect()
    }
}

/// Returns true if content is binary.
pub(crate) fn is_binary(content: &[u8]) -> bool {
    memchr::memchr(0, &content[..content.len().min(8000)]).is_some()
}

/// Splits a text after every line break.
pub(crate) fn lines(text: &[u8]) -> Vec<&[u8]> {
    text.split_inclusive(|byte| *byte == b'\n').collect()
}

/// Returns the pairs of positions of lines that two sequences have in common.
pub(crate) fn common(before: &[u32], after: &[u32]) -> Vec<(usize, usize)> {
    let mut common = Vec::new();
    let (mut one, mut other) = (0, 0);
    let end = Hunk { before: before.len()..before.len(), after: after.len()..after.len() };
    for hunk in diff(before, after).into_iter().chain([end]) {
        common.extend((one..hunk.before.start).zip(other..hunk.after.start));
        (one, other) = (hunk.before.end, hunk.after.end);
    }
    common
}

/// Returns the changes from one sequence to the other.
pub(crate) fn diff(before: &[u32], after: &[u32]) -> Vec<Hunk> {
    let changed = (vec![false; before.len()], vec![false; after.len()]);
    let mut diff = HistogramDiff { before, after, changed, steps: MAX_DIFF_STEPS };
    diff.run();
    let (mut one, mut other) = diff.changed;
    slide(before, &mut one, &other);
    slide(after, &mut other, &one);
    hunks(&one, &other)
}

/// Returns the hunks from flags for changed lines.
fn hunks(before: &[bool], after: &[bool]) -> Vec<Hunk> {
    let mut hunks = Vec::new();
    let (mut one, mut other) = (0, 0);
    while one < before.len() || other < after.len() {
        let (start, also) = (one, other);
        while before.get(one) == Some(&true) {
            one += 1;
        }
        while after.get(other) == Some(&true) {
            other += 1;
        }
        if (start, also) != (one, other) {
            hunks.push(Hunk { before: start..one, after: also..other });
        }
        (one, other) = (one + 1, other + 1);
    }
    hunks
}

/// One diff.
struct HistogramDiff<'a> {
    before: &'a [u32],
    after: &'a [u32],
    changed: (Vec<bool>, Vec<bool>),
    steps: usize,
}

/// The occurrences of a line in the current region of `before`.
struct Occurrences {
    first: usize,
    count: usize,
}

/// The longest run of common lines around a line that is as rare as possible.
#[derive(Clone, Copy, Default)]
struct CommonRun {
    before: (usize, usize),
    after: (usize, usize),
}

impl HistogramDiff<'_> {
    fn run(&mut self) {
        let mut rest = vec![(0..self.before.len(), 0..self.after.len())];
        while let Some((before, after)) = rest.pop() {
            if before.is_empty() || after.is_empty() || self.steps == 0 {
                self.replace(before, after);
                continue;
            }
            match self.find_run(&before, &after) {
                RunSearch::NoRun => self.replace(before, after),
                RunSearch::TooFrequent => self.myers(before, after),
                RunSearch::Run(run) => {
                    rest.push((before.start..run.before.0, after.start..run.after.0));
                    rest.push((run.before.1 + 1..before.end, run.after.1 + 1..after.end));
                }
            }
        }
    }

    /// Marks two regions as changed.
    fn replace(&mut self, before: Range<usize>, after: Range<usize>) {
        self.changed.0[before].fill(true);
        self.changed.1[after].fill(true);
    }

    /// Finds the run of common lines that splits two regions best.
    fn find_run(&mut self, before: &Range<usize>, after: &Range<usize>) -> RunSearch {
        let mut occurrences: HashMap<u32, Occurrences> = HashMap::new();
        // For each position, the next position of the same line.
        let mut next = vec![usize::MAX; before.len()];
        for at in before.clone().rev() {
            let occurrence = occurrences.entry(self.before[at]).or_insert(Occurrences { first: usize::MAX, count: 0 });
            next[at - before.start] = occurrence.first;
            (occurrence.first, occurrence.count) = (at, occurrence.count + 1);
        }
        let count = |at: usize| occurrences[&self.before[at]].count;
        let (mut rarest, mut any, mut best) = (MAX_OCCURRENCES + 1, false, None::<CommonRun>);
        let mut at = after.start;
        while at < after.end {
            let mut next_at = at + 1;
            if let Some(occurrence) = occurrences.get(&self.after[at]) {
                any = true;
                let mut position = if occurrence.count > rarest { usize::MAX } else { occurrence.first };
                while position != usize::MAX {
                    let (mut from, mut to) = ((position, at), (position, at));
                    let mut rare = occurrence.count;
                    while from.0 > before.start
                        && from.1 > after.start
                        && self.before[from.0 - 1] == self.after[from.1 - 1]
                    {
                        from = (from.0 - 1, from.1 - 1);
                        rare = rare.min(count(from.0));
                    }
                    while to.0 + 1 < before.end && to.1 + 1 < after.end && self.before[to.0 + 1] == self.after[to.1 + 1]
                    {
                        to = (to.0 + 1, to.1 + 1);
                        rare = rare.min(count(to.0));
                    }
                    self.steps = self.steps.saturating_sub(to.0 - from.0 + 1);
                    next_at = next_at.max(to.1 + 1);
                    let length = best.map_or(0, |best| best.before.1 - best.before.0);
                    if length < to.0 - from.0 || rare < rarest {
                        best = Some(CommonRun { before: (from.0, to.0), after: (from.1, to.1) });
                        rarest = rare;
                    }
                    position = next[position - before.start];
                    while position != usize::MAX && position <= to.0 {
                        position = next[position - before.start];
                    }
                }
            }
            at = next_at;
        }
        self.steps = self.steps.saturating_sub(before.len() + after.len());
        match best {
            _ if any && rarest > MAX_OCCURRENCES => RunSearch::TooFrequent,
            Some(run) => RunSearch::Run(run),
            None => RunSearch::NoRun,
        }
    }

    /// Compares regions that have only very frequent lines in common.
    fn myers(&mut self, before: Range<usize>, after: Range<usize>) {
        let (one, other) = (&self.before[before.clone()], &self.after[after.clone()]);
        let changed = myers::diff(one, other, &mut self.steps);
        self.changed.0[before].copy_from_slice(&changed.0);
        self.changed.1[after].copy_from_slice(&changed.1);
    }
}

/// The result of the search for a common run.
enum RunSearch {
    Run(CommonRun),
    NoRun,
    /// There are common lines, but each is too frequent.
    TooFrequent,
}

/// A run of changed lines, possibly empty, between unchanged lines.
#[derive(Clone, Copy)]
struct ChangedRun {
    start: usize,
    end: usize,
}

impl ChangedRun {
    fn first(changed: &[bool]) -> Self {
        ChangedRun { start: 0, end: run_from(changed, 0) }
    }

    fn next(&mut self, changed: &[bool]) -> bool {
        if self.end == changed.len() {
            return false;
        }
        self.start = self.end + 1;
        self.end = run_from(changed, self.start);
        true
    }

    fn previous(&mut self, changed: &[bool]) -> bool {
        if self.start == 0 {
            return false;
        }
        self.end = self.start - 1;
        self.start = self.end;
        while self.start > 0 && changed[self.start - 1] {
            self.start -= 1;
        }
        true
    }

    fn slide_down(&mut self, lines: &[u32], changed: &mut [bool]) -> bool {
        if self.end >= lines.len() || lines[self.start] != lines[self.end] {
            return false;
        }
        (changed[self.start], changed[self.end]) = (false, true);
        self.start += 1;
        self.end = run_from(changed, self.end + 1);
        true
    }

    fn slide_up(&mut self, lines: &[u32], changed: &mut [bool]) -> bool {
        if self.start == 0 || lines[self.start - 1] != lines[self.end - 1] {
            return false;
        }
        (self.start, self.end) = (self.start - 1, self.end - 1);
        (changed[self.start], changed[self.end]) = (true, false);
        while self.start > 0 && changed[self.start - 1] {
            self.start -= 1;
        }
        true
    }

    fn is_empty(&self) -> bool {
        self.start == self.end
    }
}

/// Returns the end of the run of changed lines that starts at a position.
fn run_from(changed: &[bool], start: usize) -> usize {
    start + changed[start.min(changed.len())..].iter().take_while(|changed| **changed).count()
}

/// Moves runs of changed lines, where the result is equivalent, to changes of the other side, or else down.
fn slide(lines: &[u32], changed: &mut [bool], other: &[bool]) {
    let (mut run, mut other_run) = (ChangedRun::first(changed), ChangedRun::first(other));
    loop {
        if !run.is_empty() {
            let (mut size, mut earliest, mut matching);
            loop {
                size = run.end - run.start;
                matching = false;
                while run.slide_up(lines, changed) {
                    if !other_run.previous(other) {
                        return;
                    }
                }
                earliest = run.end;
                matching |= !other_run.is_empty();
                while run.slide_down(lines, changed) {
                    if !other_run.next(other) {
                        return;
                    }
                    matching |= !other_run.is_empty();
                }
                if size == run.end - run.start {
                    break;
                }
            }
            if run.end != earliest && matching {
                while other_run.is_empty() {
                    if !run.slide_up(lines, changed) || !other_run.previous(other) {
                        return;
                    }
                }
            }
        }
        if !run.next(changed) || !other_run.next(other) {
            return;
        }
    }
}
