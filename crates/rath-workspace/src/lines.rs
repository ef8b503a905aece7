//! Which lines of two texts are the same: the histogram diff of git, line for line.

mod myers;

use std::collections::HashMap;
use std::ops::Range;

/// Lines as ids: equal lines have equal ids.
#[derive(Default)]
pub(super) struct LineIds<'a> {
    known: HashMap<&'a [u8], u32>,
}

/// A run of lines that was taken away, and what came instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hunk {
    pub(super) before: Range<usize>,
    pub(super) after: Range<usize>,
}

/// Lines that occur more often than this are no good to begin with.
const MAX_OCCURRENCES: usize = 64;

/// A diff that takes more steps than this is given up where it is: what is left counts as changed.
const MAX_DIFF_STEPS: usize = 200_000_000;

impl<'a> LineIds<'a> {
    pub(super) fn assign(&mut self, lines: &[&'a [u8]]) -> Vec<u32> {
        let number = |line: &&'a [u8]| {
            let next = self.known.len() as u32;
            *self.known.entry(line).or_insert(next)
        };
        lines.iter().map(number).collect()
    }
}

/// Whether a file is no text.
pub(super) fn is_binary(content: &[u8]) -> bool {
    memchr::memchr(0, &content[..content.len().min(8000)]).is_some()
}

/// Takes a text apart after every line break.
pub(super) fn lines(text: &[u8]) -> Vec<&[u8]> {
    text.split_inclusive(|byte| *byte == b'\n').collect()
}

/// The lines that two sequences have in common, by their places in the one and the other.
pub(super) fn common(before: &[u32], after: &[u32]) -> Vec<(usize, usize)> {
    let mut common = Vec::new();
    let (mut one, mut other) = (0, 0);
    let end = Hunk { before: before.len()..before.len(), after: after.len()..after.len() };
    for hunk in diff(before, after).into_iter().chain([end]) {
        common.extend((one..hunk.before.start).zip(other..hunk.after.start));
        (one, other) = (hunk.before.end, hunk.after.end);
    }
    common
}

/// What has to be changed in one sequence to get the other.
pub(super) fn diff(before: &[u32], after: &[u32]) -> Vec<Hunk> {
    let changed = (vec![false; before.len()], vec![false; after.len()]);
    let mut diff = HistogramDiff { before, after, changed, steps: MAX_DIFF_STEPS };
    diff.run();
    let (mut one, mut other) = diff.changed;
    slide(before, &mut one, &other);
    slide(after, &mut other, &one);
    hunks(&one, &other)
}

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

struct HistogramDiff<'a> {
    before: &'a [u32],
    after: &'a [u32],
    changed: (Vec<bool>, Vec<bool>),
    steps: usize,
}

/// Where a line occurs in the part of `before` that is looked at.
struct Occurrences {
    first: usize,
    count: usize,
}

/// The longest run of common lines around one that is as rare as can be.
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

    fn replace(&mut self, before: Range<usize>, after: Range<usize>) {
        self.changed.0[before].fill(true);
        self.changed.1[after].fill(true);
    }

    fn find_run(&mut self, before: &Range<usize>, after: &Range<usize>) -> RunSearch {
        let mut occurrences: HashMap<u32, Occurrences> = HashMap::new();
        // The next place of the same line, for every place.
        let mut next = vec![usize::MAX; before.len()];
        for at in before.clone().rev() {
            let found = occurrences.entry(self.before[at]).or_insert(Occurrences { first: usize::MAX, count: 0 });
            next[at - before.start] = found.first;
            (found.first, found.count) = (at, found.count + 1);
        }
        let count = |at: usize| occurrences[&self.before[at]].count;
        let (mut rarest, mut any, mut best) = (MAX_OCCURRENCES + 1, false, None::<CommonRun>);
        let mut at = after.start;
        while at < after.end {
            let mut then = at + 1;
            if let Some(found) = occurrences.get(&self.after[at]) {
                any = true;
                let mut place = if found.count > rarest { usize::MAX } else { found.first };
                while place != usize::MAX {
                    let (mut from, mut to) = ((place, at), (place, at));
                    let mut rare = found.count;
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
                    then = then.max(to.1 + 1);
                    let length = best.map_or(0, |best| best.before.1 - best.before.0);
                    if length < to.0 - from.0 || rare < rarest {
                        best = Some(CommonRun { before: (from.0, to.0), after: (from.1, to.1) });
                        rarest = rare;
                    }
                    place = next[place - before.start];
                    while place != usize::MAX && place <= to.0 {
                        place = next[place - before.start];
                    }
                }
            }
            at = then;
        }
        self.steps = self.steps.saturating_sub(before.len() + after.len());
        match best {
            _ if any && rarest > MAX_OCCURRENCES => RunSearch::TooFrequent,
            Some(run) => RunSearch::Run(run),
            None => RunSearch::NoRun,
        }
    }

    /// For parts that have nothing but very frequent lines in common.
    fn myers(&mut self, before: Range<usize>, after: Range<usize>) {
        let (one, other) = (&self.before[before.clone()], &self.after[after.clone()]);
        let changed = myers::diff(one, other, &mut self.steps);
        self.changed.0[before].copy_from_slice(&changed.0);
        self.changed.1[after].copy_from_slice(&changed.1);
    }
}

enum RunSearch {
    Run(CommonRun),
    NoRun,
    /// There are common lines, but each is too frequent.
    TooFrequent,
}

/// A run of changed lines, which may be empty, between lines that are not changed.
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

fn run_from(changed: &[bool], start: usize) -> usize {
    start + changed[start.min(changed.len())..].iter().take_while(|changed| **changed).count()
}

/// Moves runs of changed lines, as far as that makes no difference, to where the other side changed too, or down.
fn slide(lines: &[u32], changed: &mut [bool], other: &[bool]) {
    let (mut group, mut there) = (ChangedRun::first(changed), ChangedRun::first(other));
    loop {
        if !group.is_empty() {
            let (mut size, mut earliest, mut matching);
            loop {
                size = group.end - group.start;
                matching = false;
                while group.slide_up(lines, changed) {
                    if !there.previous(other) {
                        return;
                    }
                }
                earliest = group.end;
                matching |= !there.is_empty();
                while group.slide_down(lines, changed) {
                    if !there.next(other) {
                        return;
                    }
                    matching |= !there.is_empty();
                }
                if size == group.end - group.start {
                    break;
                }
            }
            if group.end != earliest && matching {
                while there.is_empty() {
                    if !group.slide_up(lines, changed) || !there.previous(other) {
                        return;
                    }
                }
            }
        }
        if !group.next(changed) || !there.next(other) {
            return;
        }
    }
}
