//! Myers' diff, with the heuristics of git: it gives up the shortest result where finding it would take too long.

use std::collections::HashMap;

/// The cost from which on a long run of common lines is good enough to split a region.
const HEURISTIC_MIN_COST: isize = 256;
/// The length of such a run.
const HEURISTIC_MIN_RUN: isize = 20;
/// The number of lines around a frequent line that are examined.
const FREQUENCY_WINDOW: usize = 100;
/// The largest number of occurrences that can make a line frequent.
const MAX_FREQUENCY_LIMIT: usize = 1024;

/// Returns flags for the lines of each side that have no counterpart on the other.
pub(super) fn diff(before: &[u32], after: &[u32], steps: &mut usize) -> (Vec<bool>, Vec<bool>) {
    let changed = (vec![false; before.len()], vec![false; after.len()]);
    let start = before.iter().zip(after).take_while(|(one, other)| one == other).count();
    let end =
        before[start..].iter().rev().zip(after[start..].iter().rev()).take_while(|(one, other)| one == other).count();
    let (one, other) = (DiffSide::new(before, after, start, end), DiffSide::new(after, before, start, end));
    let mut search = MyersSearch { one: &one, other: &other, changed, steps };
    for (side, changed) in [(&one, &mut search.changed.0), (&other, &mut search.changed.1)] {
        side.dropped.iter().for_each(|at| changed[*at] = true);
    }
    search.run();
    search.changed
}

/// The lines of one side that are compared, and their positions.
struct DiffSide {
    lines: Vec<u32>,
    places: Vec<usize>,
    /// The positions of lines that the other side does not have, or that are too frequent to align anything.
    dropped: Vec<usize>,
}

/// The number of occurrences of a line on the other side.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LineFrequency {
    Absent,
    Normal,
    Frequent,
}

impl DiffSide {
    fn new(lines: &[u32], other: &[u32], start: usize, end: usize) -> Self {
        let mut counts: HashMap<u32, usize> = HashMap::new();
        other.iter().for_each(|line| *counts.entry(*line).or_default() += 1);
        let limit = root(lines.len()).min(MAX_FREQUENCY_LIMIT);
        let frequency = |line: &u32| match counts.get(line).copied().unwrap_or(0) {
            0 => LineFrequency::Absent,
            count if count >= limit => LineFrequency::Frequent,
            _ => LineFrequency::Normal,
        };
        let frequency: Vec<LineFrequency> = lines.iter().map(frequency).collect();
        let range = start..lines.len() - end;
        let mut side = DiffSide { lines: Vec::new(), places: Vec::new(), dropped: Vec::new() };
        for at in range.clone() {
            let keep = match frequency[at] {
                LineFrequency::Absent => false,
                LineFrequency::Normal => true,
                LineFrequency::Frequent => !is_isolated(&frequency, at, range.start, range.end),
            };
            if keep {
                side.lines.push(lines[at]);
                side.places.push(at);
            } else {
                side.dropped.push(at);
            }
        }
        side
    }
}

/// Returns true if a frequent line stands among lines that the other side does not have.
fn is_isolated(frequency: &[LineFrequency], at: usize, start: usize, end: usize) -> bool {
    let count = |lines: &mut dyn Iterator<Item = &LineFrequency>| {
        let (mut absent, mut frequent) = (0, 1);
        for frequency in lines.take(FREQUENCY_WINDOW) {
            match frequency {
                LineFrequency::Absent => absent += 1,
                LineFrequency::Frequent => frequent += 1,
                LineFrequency::Normal => break,
            }
        }
        (absent, frequent)
    };
    let (absent, frequent) = count(&mut frequency[start..at].iter().rev());
    if absent == 0 {
        return false;
    }
    let (absent_after, frequent_after) = count(&mut frequency[at + 1..end].iter());
    if absent_after == 0 {
        return false;
    }
    let (absent, frequent) = (absent + absent_after, frequent + frequent_after);
    frequent * 4 < frequent + absent
}

/// Returns an approximate square root, as git computes it.
fn root(mut number: usize) -> usize {
    let mut root = 1;
    while number > 0 {
        (root, number) = (root << 1, number >> 2);
    }
    root
}

/// One search.
struct MyersSearch<'a> {
    one: &'a DiffSide,
    other: &'a DiffSide,
    changed: (Vec<bool>, Vec<bool>),
    steps: &'a mut usize,
}

/// A region of both sides. With `minimal`, the shortest result has to be found.
#[derive(Clone, Copy)]
struct DiffRegion {
    off1: isize,
    lim1: isize,
    off2: isize,
    lim2: isize,
    minimal: bool,
}

/// The position where a region is split, and flags for the halves that have to be minimal.
struct Split {
    at: (isize, isize),
    minimal: (bool, bool),
}

/// The furthest positions on each diagonal, forwards and backwards.
struct Frontiers {
    forward: Vec<isize>,
    backward: Vec<isize>,
    /// The position of diagonal zero.
    zero: isize,
}

impl MyersSearch<'_> {
    fn run(&mut self) {
        let (before_len, after_len) = (self.one.lines.len(), self.other.lines.len());
        let diagonals = before_len + after_len + 3;
        let max_cost = (root(diagonals) as isize).max(256);
        let mut frontiers = Frontiers {
            forward: vec![0; diagonals + 2],
            backward: vec![0; diagonals + 2],
            zero: after_len as isize + 2,
        };
        let all = DiffRegion { off1: 0, lim1: before_len as isize, off2: 0, lim2: after_len as isize, minimal: false };
        let mut rest = vec![all];
        while let Some(mut region) = rest.pop() {
            while region.off1 < region.lim1 && region.off2 < region.lim2 && self.same(region.off1, region.off2) {
                (region.off1, region.off2) = (region.off1 + 1, region.off2 + 1);
            }
            while region.off1 < region.lim1 && region.off2 < region.lim2 && self.same(region.lim1 - 1, region.lim2 - 1)
            {
                (region.lim1, region.lim2) = (region.lim1 - 1, region.lim2 - 1);
            }
            if region.off1 == region.lim1 || region.off2 == region.lim2 || *self.steps == 0 {
                (region.off1..region.lim1).for_each(|at| self.changed.0[self.one.places[at as usize]] = true);
                (region.off2..region.lim2).for_each(|at| self.changed.1[self.other.places[at as usize]] = true);
                continue;
            }
            let split = self.split(region, &mut frontiers, max_cost);
            let (at1, at2) = split.at;
            rest.push(DiffRegion { lim1: at1, lim2: at2, minimal: split.minimal.0, ..region });
            rest.push(DiffRegion { off1: at1, off2: at2, minimal: split.minimal.1, ..region });
        }
    }

    /// Returns true if two lines are equal.
    fn same(&self, one: isize, other: isize) -> bool {
        self.one.lines[one as usize] == self.other.lines[other as usize]
    }

    /// Searches from both corners until the two frontiers meet, or the cost is too high.
    fn split(&mut self, region: DiffRegion, frontiers: &mut Frontiers, max_cost: isize) -> Split {
        let DiffRegion { off1, lim1, off2, lim2, minimal } = region;
        let at = |diagonal: isize| (diagonal + frontiers.zero) as usize;
        let (dmin, dmax) = (off1 - lim2, lim1 - off2);
        let (fmid, bmid) = (off1 - off2, lim1 - lim2);
        let odd = (fmid - bmid) & 1 != 0;
        let (mut fmin, mut fmax, mut bmin, mut bmax) = (fmid, fmid, bmid, bmid);
        frontiers.forward[at(fmid)] = off1;
        frontiers.backward[at(bmid)] = lim1;
        for cost in 1.. {
            let mut good_run = false;
            *self.steps = self.steps.saturating_sub((fmax - fmin + bmax - bmin + 2) as usize);
            if fmin > dmin {
                fmin -= 1;
                frontiers.forward[at(fmin - 1)] = -1;
            } else {
                fmin += 1;
            }
            if fmax < dmax {
                fmax += 1;
                frontiers.forward[at(fmax + 1)] = -1;
            } else {
                fmax -= 1;
            }
            for d in (fmin..=fmax).rev().step_by(2) {
                let (below, above) = (frontiers.forward[at(d - 1)], frontiers.forward[at(d + 1)]);
                let mut i1 = if below >= above { below + 1 } else { above };
                let before = i1;
                while i1 < lim1 && i1 - d < lim2 && self.same(i1, i1 - d) {
                    i1 += 1;
                }
                good_run |= i1 - before > HEURISTIC_MIN_RUN;
                frontiers.forward[at(d)] = i1;
                if odd && (bmin..=bmax).contains(&d) && frontiers.backward[at(d)] <= i1 {
                    return Split { at: (i1, i1 - d), minimal: (true, true) };
                }
            }
            if bmin > dmin {
                bmin -= 1;
                frontiers.backward[at(bmin - 1)] = isize::MAX;
            } else {
                bmin += 1;
            }
            if bmax < dmax {
                bmax += 1;
                frontiers.backward[at(bmax + 1)] = isize::MAX;
            } else {
                bmax -= 1;
            }
            for d in (bmin..=bmax).rev().step_by(2) {
                let (below, above) = (frontiers.backward[at(d - 1)], frontiers.backward[at(d + 1)]);
                let mut i1 = if below < above { below } else { above - 1 };
                let before = i1;
                while i1 > off1 && i1 - d > off2 && self.same(i1 - 1, i1 - d - 1) {
                    i1 -= 1;
                }
                good_run |= before - i1 > HEURISTIC_MIN_RUN;
                frontiers.backward[at(d)] = i1;
                if !odd && (fmin..=fmax).contains(&d) && i1 <= frontiers.forward[at(d)] {
                    return Split { at: (i1, i1 - d), minimal: (true, true) };
                }
            }
            let given_up = *self.steps == 0;
            if minimal && !given_up {
                continue;
            }
            if good_run
                && cost > HEURISTIC_MIN_COST
                && let Some(split) = self.good_enough(region, frontiers, (fmin, fmax), (bmin, bmax), cost)
            {
                return split;
            }
            if cost >= max_cost || given_up {
                return furthest(region, frontiers, (fmin, fmax), (bmin, bmax));
            }
        }
        Split { at: (off1, off2), minimal: (false, false) }
    }

    /// Returns a split far from a corner, at the end of a long run of common lines.
    fn good_enough(
        &self,
        region: DiffRegion,
        frontiers: &Frontiers,
        forward: (isize, isize),
        backward: (isize, isize),
        cost: isize,
    ) -> Option<Split> {
        let DiffRegion { off1, lim1, off2, lim2, .. } = region;
        let at = |diagonal: isize| (diagonal + frontiers.zero) as usize;
        let (mut best, mut split) = (0, None);
        for d in (forward.0..=forward.1).rev().step_by(2) {
            let i1 = frontiers.forward[at(d)];
            let i2 = i1 - d;
            let gain = (i1 - off1) + (i2 - off2) - (d - (off1 - off2)).abs();
            let inside = off1 + HEURISTIC_MIN_RUN <= i1 && i1 < lim1 && off2 + HEURISTIC_MIN_RUN <= i2 && i2 < lim2;
            if gain > 4 * cost && gain > best && inside && (1..=HEURISTIC_MIN_RUN).all(|k| self.same(i1 - k, i2 - k)) {
                (best, split) = (gain, Some(Split { at: (i1, i2), minimal: (true, false) }));
            }
        }
        if split.is_some() {
            return split;
        }
        for d in (backward.0..=backward.1).rev().step_by(2) {
            let i1 = frontiers.backward[at(d)];
            let i2 = i1.wrapping_sub(d);
            let inside = off1 < i1 && i1 <= lim1 - HEURISTIC_MIN_RUN && off2 < i2 && i2 <= lim2 - HEURISTIC_MIN_RUN;
            if !inside {
                continue;
            }
            let gain = (lim1 - i1) + (lim2 - i2) - (d - (lim1 - lim2)).abs();
            if gain > 4 * cost && gain > best && (0..HEURISTIC_MIN_RUN).all(|k| self.same(i1 + k, i2 + k)) {
                (best, split) = (gain, Some(Split { at: (i1, i2), minimal: (false, true) }));
            }
        }
        split
    }
}

/// Returns the split that is furthest from its corner.
fn furthest(region: DiffRegion, frontiers: &Frontiers, forward: (isize, isize), backward: (isize, isize)) -> Split {
    let DiffRegion { off1, lim1, off2, lim2, .. } = region;
    let at = |diagonal: isize| (diagonal + frontiers.zero) as usize;
    let (mut max_sum, mut from_start) = (-1, -1);
    for d in (forward.0..=forward.1).rev().step_by(2) {
        let mut i1 = frontiers.forward[at(d)].min(lim1);
        if lim2 < i1 - d {
            i1 = lim2 + d;
        }
        if max_sum < i1 + i1 - d {
            (max_sum, from_start) = (i1 + i1 - d, i1);
        }
    }
    let (mut min_sum, mut from_end) = (isize::MAX, isize::MAX);
    for d in (backward.0..=backward.1).rev().step_by(2) {
        let mut i1 = frontiers.backward[at(d)].max(off1);
        if i1.wrapping_sub(d) < off2 {
            i1 = off2 + d;
        }
        if i1.saturating_add(i1 - d) < min_sum {
            (min_sum, from_end) = (i1 + i1 - d, i1);
        }
    }
    if (lim1 + lim2).saturating_sub(min_sum) < max_sum - (off1 + off2) {
        Split { at: (from_start, max_sum - from_start), minimal: (true, false) }
    } else {
        Split { at: (from_end, min_sum - from_end), minimal: (false, true) }
    }
}
