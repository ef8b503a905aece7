//! A binary search for the first bad tree in a history.

/// A search for the first bad tree in a history.
///
/// Every tree that descends from a bad tree counts as bad. A history of `n` trees in a line takes at most ⌈log2 n⌉ + 1
/// runs. In a history with merges, the search follows both sides.
///
/// ```
/// use rath_workspace::{Bisect, Verdict};
///
/// // A hundred trees in a line; the one at position 70 broke the build.
/// let history = (0..100).map(|at: usize| at.checked_sub(1).into_iter().collect());
/// let (mut bisect, mut runs) = (Bisect::new(history), 0);
/// while let Some(at) = bisect.next() {
///     bisect.report(at, if at >= 70 { Verdict::Bad } else { Verdict::Good });
///     runs += 1;
/// }
/// assert_eq!((bisect.first_bad(), runs), (Some(70), 8));
/// ```
#[derive(Clone, Debug)]
pub struct Bisect {
    /// For each tree, the positions of its parents.
    parents: Vec<Vec<usize>>,
    /// Flags for the trees that may be the first bad one. The ancestors of a cleared tree are cleared too.
    suspects: Vec<bool>,
    /// The earliest tree that is known to be bad; none before the last tree was tested.
    bad: Option<usize>,
}

/// The result of testing a tree.
///
/// Passed to [`Bisect::report`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The test passed.
    Good,
    /// The test failed.
    Bad,
}

impl Bisect {
    /// Starts a search in a history that ends with its last tree. Each item is the positions of a tree's parents, which
    /// come before it.
    pub fn new(history: impl IntoIterator<Item = Vec<usize>>) -> Self {
        let parents: Vec<Vec<usize>> = history.into_iter().collect();
        let suspects = vec![true; parents.len()];
        Bisect { parents, suspects, bad: None }
    }

    /// Returns the position of the tree to test next; none when the search is over.
    pub fn next(&self) -> Option<usize> {
        let Some(bad) = self.bad else { return self.suspects.iter().rposition(|suspect| *suspect) };
        let total = self.suspects.iter().filter(|suspect| **suspect).count();
        // The best tree leaves the fewest suspects for either result. The known bad tree would tell nothing new.
        let others = self.weights().into_iter().enumerate().filter(|(at, weight)| *weight > 0 && *at != bad);
        others.rev().max_by_key(|(_, weight)| (*weight).min(total - weight)).map(|(at, _)| at)
    }

    /// Adds the result of testing a tree.
    pub fn report(&mut self, at: usize, verdict: Verdict) {
        let is_ancestor = self.ancestors(at);
        match verdict {
            Verdict::Bad => {
                self.bad = Some(at);
                self.suspects.iter_mut().zip(is_ancestor).for_each(|(suspect, is_ancestor)| *suspect &= is_ancestor);
            }
            Verdict::Good => {
                self.suspects.iter_mut().zip(is_ancestor).for_each(|(suspect, is_ancestor)| *suspect &= !is_ancestor);
            }
        }
    }

    /// Returns the first bad tree once the search is over; none if the last tree is good.
    pub fn first_bad(&self) -> Option<usize> {
        self.bad.filter(|_| self.next().is_none())
    }

    /// Returns the number of suspects among the ancestors of each suspect, itself included; 0 for the others.
    fn weights(&self) -> Vec<usize> {
        let mut weights = vec![0; self.parents.len()];
        for at in (0..self.parents.len()).filter(|at| self.suspects[*at]) {
            let mut parents = self.parents[at].iter().filter(|parent| self.suspects[**parent]);
            weights[at] = match (parents.next(), parents.next()) {
                (None, _) => 1,
                (Some(one), None) => weights[*one] + 1,
                // Common ancestors of both parents count once.
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

    /// Returns flags for the ancestors of a tree, itself included.
    fn ancestors(&self, at: usize) -> Vec<bool> {
        let mut is_ancestor = vec![false; self.parents.len()];
        let mut open = vec![at];
        while let Some(at) = open.pop() {
            if !std::mem::replace(&mut is_ancestor[at], true) {
                open.extend(&self.parents[at]);
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

    /// Searches a history in which all descendants of `planted` are bad, and returns the result and the number of runs.
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
    fn every_first_bad_tree_in_a_line_is_found_in_few_runs() {
        for count in 1..=200_usize {
            let max = count.next_power_of_two().trailing_zeros() as usize + 1;
            for planted in 0..count {
                let (found, runs) = search(&line(count), planted);
                assert_eq!(found, Some(planted), "of {count}");
                assert!(runs <= max, "{runs} runs for {planted} of {count}");
            }
        }
    }

    #[test]
    fn every_first_bad_tree_is_found_in_a_history_with_merges() {
        // 0, then 1-2-3 parallel to 4-5, merged by 6; then 7 and 8 in parallel, merged by 9, and 10, merged by 11.
        let trees: &[&[usize]] = &[&[], &[0], &[1], &[2], &[0], &[4], &[3, 5], &[6], &[6], &[7, 8], &[6], &[9, 10]];
        let trees: Vec<Vec<usize>> = trees.iter().map(|before| before.to_vec()).collect();
        for planted in 0..trees.len() {
            let (found, runs) = search(&trees, planted);
            assert_eq!(found, Some(planted));
            assert!(runs <= 6, "{runs} runs for {planted}");
        }
    }

    #[test]
    fn nothing_is_found_if_the_last_tree_is_good() {
        for count in 0..5 {
            let mut bisect = Bisect::new(line(count));
            bisect.next().into_iter().for_each(|at| bisect.report(at, Verdict::Good));
            assert_eq!((bisect.next(), bisect.first_bad()), (None, None), "of {count}");
        }
    }
}
