//! Which of many trees was the first that is bad.

/// A search for the first bad tree among those that is_ancestor to a bad one. What came of a bad tree is bad as well.
///
/// A line of `n` trees takes at most ⌈log2 n⌉ + 1 runs. Where branches were joined it goes into both.
///
/// ```
/// use rath_workspace::{Bisect, Verdict};
///
/// // Of a hundred, one after the other, the one with the number 70 broke it.
/// let line = (0..100).map(|at: usize| at.checked_sub(1).into_iter().collect());
/// let (mut bisect, mut runs) = (Bisect::new(line), 0);
/// while let Some(at) = bisect.next() {
///     bisect.report(at, if at >= 70 { Verdict::Bad } else { Verdict::Good });
///     runs += 1;
/// }
/// assert_eq!((bisect.first_bad(), runs), (Some(70), 8));
/// ```
#[derive(Clone, Debug)]
pub struct Bisect {
    /// For each tree, those that it came from.
    before: Vec<Vec<usize>>,
    /// Which may be the first bad one. Where one is not, none that it came from is.
    suspects: Vec<bool>,
    /// The earliest that is known to be bad; none where not even the last was looked at.
    bad: Option<usize>,
}

/// What a run on a tree showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All well.
    Good,
    /// Not well.
    Bad,
}

impl Bisect {
    /// A search among trees that is_ancestor to the last of them. For each, in order: those before it that it came from.
    pub fn new(trees: impl IntoIterator<Item = Vec<usize>>) -> Self {
        let before: Vec<Vec<usize>> = trees.into_iter().collect();
        let suspects = vec![true; before.len()];
        Bisect { before, suspects, bad: None }
    }

    /// Which one is to be looked at next; none when it is over.
    pub fn next(&self) -> Option<usize> {
        let Some(bad) = self.bad else { return self.suspects.iter().rposition(|suspect| *suspect) };
        let total = self.suspects.iter().filter(|suspect| **suspect).count();
        // The best one leaves the fewest whatever it shows. The bad one itself would show nothing.
        let others = self.weights().into_iter().enumerate().filter(|(at, weight)| *weight > 0 && *at != bad);
        others.rev().max_by_key(|(_, weight)| (*weight).min(total - weight)).map(|(at, _)| at)
    }

    /// Tells what was seen there.
    pub fn report(&mut self, at: usize, verdict: Verdict) {
        let is_ancestor = self.ancestors(at);
        match verdict {
            Verdict::Bad => {
                self.bad = Some(at);
                self.suspects.iter_mut().zip(is_ancestor).for_each(|(suspect, is_ancestor)| *suspect &= is_ancestor);
            }
            Verdict::Good => {
                self.suspects.iter_mut().zip(is_ancestor).for_each(|(suspect, is_ancestor)| *suspect &= !is_ancestor)
            }
        }
    }

    /// The first bad one, if it is found; none when the last is good.
    pub fn first_bad(&self) -> Option<usize> {
        self.bad.filter(|_| self.next().is_none())
    }

    /// How many suspects is_ancestor to each suspect, itself included; nothing for the others.
    fn weights(&self) -> Vec<usize> {
        let mut weights = vec![0; self.before.len()];
        for at in (0..self.before.len()).filter(|at| self.suspects[*at]) {
            let mut before = self.before[at].iter().filter(|before| self.suspects[**before]);
            weights[at] = match (before.next(), before.next()) {
                (None, _) => 1,
                (Some(one), None) => weights[*one] + 1,
                // What is_ancestor to both counts once.
                (Some(_), Some(_)) => self
                    .ancestors(at)
                    .iter()
                    .zip(&self.suspects)
                    .filter(|(is_ancestor, suspect)| **is_ancestor && **suspect)
                    .count(),
            };
        }
        weights
    }

    /// Which trees is_ancestor to one, itself included.
    fn ancestors(&self, at: usize) -> Vec<bool> {
        let mut is_ancestor = vec![false; self.before.len()];
        let mut open = vec![at];
        while let Some(at) = open.pop() {
            if !std::mem::replace(&mut is_ancestor[at], true) {
                open.extend(&self.before[at]);
            }
        }
        is_ancestor
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(count: usize) -> Vec<Vec<usize>> {
        (0..count).map(|at: usize| at.checked_sub(1).into_iter().collect()).collect()
    }

    /// Searches where everything that came of one is bad: what is found, and in how many runs.
    fn search(trees: &[Vec<usize>], planted: usize) -> (Option<usize>, usize) {
        let (mut bisect, mut runs) = (Bisect::new(trees.to_vec()), 0);
        while let Some(at) = bisect.next() {
            let verdict = if bisect.ancestors(at)[planted] { Verdict::Bad } else { Verdict::Good };
            bisect.report(at, verdict);
            runs += 1;
        }
        (bisect.first_bad(), runs)
    }

    #[test]
    fn every_first_bad_one_of_a_line_is_found_in_few_looks() {
        for count in 1..=200_usize {
            let most = count.next_power_of_two().trailing_zeros() as usize + 1;
            for planted in 0..count {
                let (found, runs) = search(&line(count), planted);
                assert_eq!(found, Some(planted), "of {count}");
                assert!(runs <= most, "{runs} runs for {planted} of {count}");
            }
        }
    }

    #[test]
    fn every_first_bad_one_is_found_where_branches_were_joined() {
        // 0, then 1-2-3 beside 4-5, joined by 6; then 7 beside 8 and 9, joined one after the other.
        let trees: &[&[usize]] = &[&[], &[0], &[1], &[2], &[0], &[4], &[3, 5], &[6], &[6], &[7, 8], &[6], &[9, 10]];
        let trees: Vec<Vec<usize>> = trees.iter().map(|before| before.to_vec()).collect();
        for planted in 0..trees.len() {
            let (found, runs) = search(&trees, planted);
            assert_eq!(found, Some(planted));
            assert!(runs <= 6, "{runs} runs for {planted}");
        }
    }

    #[test]
    fn where_the_last_is_good_nothing_is_found() {
        for count in 0..5 {
            let mut bisect = Bisect::new(line(count));
            bisect.next().into_iter().for_each(|at| bisect.report(at, Verdict::Good));
            assert_eq!((bisect.next(), bisect.first_bad()), (None, None), "of {count}");
        }
    }
}
