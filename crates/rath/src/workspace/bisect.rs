//! Which of a row of trees was the first that is bad.

use rath_record::StepId;

/// A search for the first bad one of a row of trees, of which the last is bad.
///
/// ```
/// use rath::workspace::{Bisect, Verdict};
///
/// // Of a hundred, the one with the number 70 broke it.
/// let (mut bisect, mut runs) = (Bisect::new(100), 0);
/// while let Some(at) = bisect.next() {
///     bisect.tell(at, if at >= 70 { Verdict::Bad } else { Verdict::Good });
///     runs += 1;
/// }
/// assert_eq!((bisect.first_bad(), runs), (Some(70), 8));
/// ```
#[derive(Clone, Debug)]
pub struct Bisect {
    /// The first bad one is one of these; where nothing was looked at, the last has to be seen first.
    from: usize,
    to: usize,
    state: State,
}

#[derive(Clone, Debug, PartialEq)]
enum State {
    /// Whether the last is bad is not known.
    Begun,
    Searching,
    /// The last is good, or nobody can tell.
    NotFound,
}

/// What a run on a tree showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All well.
    Good,
    /// Not well.
    Bad,
}

/// What a search came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bisected {
    /// The first step after which the command fails; none if it does not fail at the newest.
    pub step: Option<StepId>,
    /// How many trees there were.
    pub trees: u64,
    /// How often the command was run.
    pub runs: u64,
}

impl Bisect {
    /// A search in a row of so many.
    pub fn new(count: usize) -> Self {
        let state = if count == 0 { State::NotFound } else { State::Begun };
        Bisect { from: 0, to: count.saturating_sub(1), state }
    }

    /// Which one is to be looked at next; none when it is over.
    pub fn next(&self) -> Option<usize> {
        match self.state {
            State::Begun => Some(self.to),
            State::Searching if self.from < self.to => Some(self.from + (self.to - self.from) / 2),
            State::Searching | State::NotFound => None,
        }
    }

    /// Tells what was seen there.
    pub fn tell(&mut self, at: usize, verdict: Verdict) {
        match (&self.state, verdict) {
            (State::Begun, Verdict::Bad) => self.state = State::Searching,
            (State::Begun, Verdict::Good) => self.state = State::NotFound,
            (State::Searching, Verdict::Bad) => self.to = self.to.min(at),
            (State::Searching, Verdict::Good) => self.from = self.from.max(at + 1),
            (State::NotFound, _) => {}
        }
    }

    /// The first bad one, if it is found; none when the last is good.
    pub fn first_bad(&self) -> Option<usize> {
        (self.state == State::Searching && self.from == self.to).then_some(self.to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_first_bad_one_is_found_in_few_runs() {
        for count in 1..=200_usize {
            let most = count.next_power_of_two().trailing_zeros() as usize + 1;
            for bad in 0..count {
                let (mut bisect, mut runs) = (Bisect::new(count), 0);
                while let Some(at) = bisect.next() {
                    bisect.tell(at, if at >= bad { Verdict::Bad } else { Verdict::Good });
                    runs += 1;
                }
                assert_eq!(bisect.first_bad(), Some(bad), "of {count}");
                assert!(runs <= most, "{runs} runs for {bad} of {count}");
            }
        }
    }

    #[test]
    fn where_the_last_is_good_nothing_is_found() {
        for count in 0..5 {
            let mut bisect = Bisect::new(count);
            bisect.next().into_iter().for_each(|at| bisect.tell(at, Verdict::Good));
            assert_eq!((bisect.next(), bisect.first_bad()), (None, None), "of {count}");
        }
    }
}
