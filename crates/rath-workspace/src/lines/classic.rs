//! The diff of Myers, with the shortcuts that git takes: what it does not find in reasonable time, it does not look for.

use std::collections::HashMap;

/// From this many steps apart on, a good run of common lines is good enough.
const ENOUGH: isize = 256;
/// How long a run of common lines has to be for that.
const RUN: isize = 20;
/// How far lines are looked at around one that occurs often.
const WINDOW: usize = 100;
/// Lines that occur more often than this are frequent in any text.
const FREQUENT: usize = 1024;

/// Which lines of each side have no counterpart on the other.
pub(super) fn diff(before: &[u32], after: &[u32], steps: &mut usize) -> (Vec<bool>, Vec<bool>) {
    let changed = (vec![false; before.len()], vec![false; after.len()]);
    let start = before.iter().zip(after).take_while(|(one, other)| one == other).count();
    let end =
        before[start..].iter().rev().zip(after[start..].iter().rev()).take_while(|(one, other)| one == other).count();
    let (one, other) = (Side::new(before, after, start, end), Side::new(after, before, start, end));
    let mut search = Search { one: &one, other: &other, changed, steps };
    for (side, changed) in [(&one, &mut search.changed.0), (&other, &mut search.changed.1)] {
        side.dropped.iter().for_each(|at| changed[*at] = true);
    }
    search.run();
    search.changed
}

/// The lines of one side that are worth a comparison, and where they stand.
struct Side {
    lines: Vec<u32>,
    places: Vec<usize>,
    /// Lines that the other side does not have, or that are too frequent to mean anything where they are.
    dropped: Vec<usize>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Often {
    Never,
    Sometimes,
    Very,
}

impl Side {
    fn new(lines: &[u32], other: &[u32], start: usize, end: usize) -> Self {
        let mut counts: HashMap<u32, usize> = HashMap::new();
        other.iter().for_each(|line| *counts.entry(*line).or_default() += 1);
        let limit = root(lines.len()).min(FREQUENT);
        let often = |line: &u32| match counts.get(line).copied().unwrap_or(0) {
            0 => Often::Never,
            count if count >= limit => Often::Very,
            _ => Often::Sometimes,
        };
        let often: Vec<Often> = lines.iter().map(often).collect();
        let range = start..lines.len() - end;
        let mut side = Side { lines: Vec::new(), places: Vec::new(), dropped: Vec::new() };
        for at in range.clone() {
            let keep = match often[at] {
                Often::Never => false,
                Often::Sometimes => true,
                Often::Very => !is_lost(&often, at, range.start, range.end),
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

/// Whether a frequent line stands among lines that the other side does not have.
fn is_lost(often: &[Often], at: usize, start: usize, end: usize) -> bool {
    let count = |lines: &mut dyn Iterator<Item = &Often>| {
        let (mut never, mut very) = (0, 1);
        for often in lines.take(WINDOW) {
            match often {
                Often::Never => never += 1,
                Often::Very => very += 1,
                Often::Sometimes => break,
            }
        }
        (never, very)
    };
    let (never, very) = count(&mut often[start..at].iter().rev());
    if never == 0 {
        return false;
    }
    let (also_never, also_very) = count(&mut often[at + 1..end].iter());
    if also_never == 0 {
        return false;
    }
    let (never, very) = (never + also_never, very + also_very);
    very * 4 < very + never
}

/// About the root of a number, the way git counts.
fn root(mut number: usize) -> usize {
    let mut root = 1;
    while number > 0 {
        (root, number) = (root << 1, number >> 2);
    }
    root
}

struct Search<'a> {
    one: &'a Side,
    other: &'a Side,
    changed: (Vec<bool>, Vec<bool>),
    steps: &'a mut usize,
}

/// A part of both sides, and whether the shortest way has to be found.
#[derive(Clone, Copy)]
struct Part {
    off1: isize,
    lim1: isize,
    off2: isize,
    lim2: isize,
    minimal: bool,
}

/// Where a part is cut in two, and which of the two has to be minimal.
struct Split {
    at: (isize, isize),
    minimal: (bool, bool),
}

/// How far each diagonal got, forwards and backwards.
struct Ways {
    forward: Vec<isize>,
    backward: Vec<isize>,
    /// Where diagonal zero is.
    zero: isize,
}

impl Search<'_> {
    fn run(&mut self) {
        let (many, more) = (self.one.lines.len(), self.other.lines.len());
        let diagonals = many + more + 3;
        let most = (root(diagonals) as isize).max(256);
        let mut ways =
            Ways { forward: vec![0; diagonals + 2], backward: vec![0; diagonals + 2], zero: more as isize + 2 };
        let all = Part { off1: 0, lim1: many as isize, off2: 0, lim2: more as isize, minimal: false };
        let mut rest = vec![all];
        while let Some(mut part) = rest.pop() {
            while part.off1 < part.lim1 && part.off2 < part.lim2 && self.same(part.off1, part.off2) {
                (part.off1, part.off2) = (part.off1 + 1, part.off2 + 1);
            }
            while part.off1 < part.lim1 && part.off2 < part.lim2 && self.same(part.lim1 - 1, part.lim2 - 1) {
                (part.lim1, part.lim2) = (part.lim1 - 1, part.lim2 - 1);
            }
            if part.off1 == part.lim1 || part.off2 == part.lim2 || *self.steps == 0 {
                (part.off1..part.lim1).for_each(|at| self.changed.0[self.one.places[at as usize]] = true);
                (part.off2..part.lim2).for_each(|at| self.changed.1[self.other.places[at as usize]] = true);
                continue;
            }
            let split = self.split(part, &mut ways, most);
            let (at1, at2) = split.at;
            rest.push(Part { lim1: at1, lim2: at2, minimal: split.minimal.0, ..part });
            rest.push(Part { off1: at1, off2: at2, minimal: split.minimal.1, ..part });
        }
    }

    fn same(&self, one: isize, other: isize) -> bool {
        self.one.lines[one as usize] == self.other.lines[other as usize]
    }

    /// Goes from both corners at once until the two ways meet, or it takes too long.
    fn split(&mut self, part: Part, ways: &mut Ways, most: isize) -> Split {
        let Part { off1, lim1, off2, lim2, minimal } = part;
        let at = |diagonal: isize| (diagonal + ways.zero) as usize;
        let (dmin, dmax) = (off1 - lim2, lim1 - off2);
        let (fmid, bmid) = (off1 - off2, lim1 - lim2);
        let odd = (fmid - bmid) & 1 != 0;
        let (mut fmin, mut fmax, mut bmin, mut bmax) = (fmid, fmid, bmid, bmid);
        ways.forward[at(fmid)] = off1;
        ways.backward[at(bmid)] = lim1;
        for cost in 1.. {
            let mut good_run = false;
            *self.steps = self.steps.saturating_sub((fmax - fmin + bmax - bmin + 2) as usize);
            if fmin > dmin {
                fmin -= 1;
                ways.forward[at(fmin - 1)] = -1;
            } else {
                fmin += 1;
            }
            if fmax < dmax {
                fmax += 1;
                ways.forward[at(fmax + 1)] = -1;
            } else {
                fmax -= 1;
            }
            for d in (fmin..=fmax).rev().step_by(2) {
                let (below, above) = (ways.forward[at(d - 1)], ways.forward[at(d + 1)]);
                let mut i1 = if below >= above { below + 1 } else { above };
                let before = i1;
                while i1 < lim1 && i1 - d < lim2 && self.same(i1, i1 - d) {
                    i1 += 1;
                }
                good_run |= i1 - before > RUN;
                ways.forward[at(d)] = i1;
                if odd && (bmin..=bmax).contains(&d) && ways.backward[at(d)] <= i1 {
                    return Split { at: (i1, i1 - d), minimal: (true, true) };
                }
            }
            if bmin > dmin {
                bmin -= 1;
                ways.backward[at(bmin - 1)] = isize::MAX;
            } else {
                bmin += 1;
            }
            if bmax < dmax {
                bmax += 1;
                ways.backward[at(bmax + 1)] = isize::MAX;
            } else {
                bmax -= 1;
            }
            for d in (bmin..=bmax).rev().step_by(2) {
                let (below, above) = (ways.backward[at(d - 1)], ways.backward[at(d + 1)]);
                let mut i1 = if below < above { below } else { above - 1 };
                let before = i1;
                while i1 > off1 && i1 - d > off2 && self.same(i1 - 1, i1 - d - 1) {
                    i1 -= 1;
                }
                good_run |= before - i1 > RUN;
                ways.backward[at(d)] = i1;
                if !odd && (fmin..=fmax).contains(&d) && i1 <= ways.forward[at(d)] {
                    return Split { at: (i1, i1 - d), minimal: (true, true) };
                }
            }
            let given_up = *self.steps == 0;
            if minimal && !given_up {
                continue;
            }
            if good_run
                && cost > ENOUGH
                && let Some(split) = self.good_enough(part, ways, (fmin, fmax), (bmin, bmax), cost)
            {
                return split;
            }
            if cost >= most || given_up {
                return furthest(part, ways, (fmin, fmax), (bmin, bmax));
            }
        }
        Split { at: (off1, off2), minimal: (false, false) }
    }

    /// A place far from a corner, at the end of a long run of common lines.
    fn good_enough(
        &self,
        part: Part,
        ways: &Ways,
        forward: (isize, isize),
        backward: (isize, isize),
        cost: isize,
    ) -> Option<Split> {
        let Part { off1, lim1, off2, lim2, .. } = part;
        let at = |diagonal: isize| (diagonal + ways.zero) as usize;
        let (mut best, mut found) = (0, None);
        for d in (forward.0..=forward.1).rev().step_by(2) {
            let i1 = ways.forward[at(d)];
            let i2 = i1 - d;
            let worth = (i1 - off1) + (i2 - off2) - (d - (off1 - off2)).abs();
            let inside = off1 + RUN <= i1 && i1 < lim1 && off2 + RUN <= i2 && i2 < lim2;
            if worth > 4 * cost && worth > best && inside && (1..=RUN).all(|k| self.same(i1 - k, i2 - k)) {
                (best, found) = (worth, Some(Split { at: (i1, i2), minimal: (true, false) }));
            }
        }
        if found.is_some() {
            return found;
        }
        for d in (backward.0..=backward.1).rev().step_by(2) {
            let i1 = ways.backward[at(d)];
            let i2 = i1.wrapping_sub(d);
            let inside = off1 < i1 && i1 <= lim1 - RUN && off2 < i2 && i2 <= lim2 - RUN;
            if !inside {
                continue;
            }
            let worth = (lim1 - i1) + (lim2 - i2) - (d - (lim1 - lim2)).abs();
            if worth > 4 * cost && worth > best && (0..RUN).all(|k| self.same(i1 + k, i2 + k)) {
                (best, found) = (worth, Some(Split { at: (i1, i2), minimal: (false, true) }));
            }
        }
        found
    }
}

/// The place that is furthest from its corner.
fn furthest(part: Part, ways: &Ways, forward: (isize, isize), backward: (isize, isize)) -> Split {
    let Part { off1, lim1, off2, lim2, .. } = part;
    let at = |diagonal: isize| (diagonal + ways.zero) as usize;
    let (mut most, mut from_start) = (-1, -1);
    for d in (forward.0..=forward.1).rev().step_by(2) {
        let mut i1 = ways.forward[at(d)].min(lim1);
        if lim2 < i1 - d {
            i1 = lim2 + d;
        }
        if most < i1 + i1 - d {
            (most, from_start) = (i1 + i1 - d, i1);
        }
    }
    let (mut least, mut from_end) = (isize::MAX, isize::MAX);
    for d in (backward.0..=backward.1).rev().step_by(2) {
        let mut i1 = ways.backward[at(d)].max(off1);
        if i1.wrapping_sub(d) < off2 {
            i1 = off2 + d;
        }
        if i1.saturating_add(i1 - d) < least {
            (least, from_end) = (i1 + i1 - d, i1);
        }
    }
    if (lim1 + lim2).saturating_sub(least) < most - (off1 + off2) {
        Split { at: (from_start, most - from_start), minimal: (true, false) }
    } else {
        Split { at: (from_end, least - from_end), minimal: (false, true) }
    }
}
