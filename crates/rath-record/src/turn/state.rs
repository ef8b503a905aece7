//! The state of the conversation at the end of a line, updated with every step.

use super::calls::OpenCalls;
use crate::chunk::{Choice, Chunk};

/// The work that comes next on a line. Unlike [`Next`](super::Next) it does not list the calls, so that it is known from
/// the last step alone.
///
/// Part of [`Totals`](crate::Totals).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PendingWork {
    /// The model has to be asked.
    Model,
    /// Some calls have no result yet.
    Tools {
        /// The number of calls.
        open: u64,
    },
    /// The model has answered, or the conversation is empty.
    #[default]
    Nothing,
}

/// The state of the conversation at the end of a line.
#[derive(Clone, Default)]
pub(crate) struct TurnState {
    phase: Phase,
    /// The number of calls without a result.
    open: u64,
}

/// The last event of a conversation that decides who acts next.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Phase {
    /// The conversation is empty.
    #[default]
    Empty,
    /// Something was said that the model has to answer.
    Asked,
    /// The model has answered.
    Answered,
    /// The model has answered, and a selector chose who continues.
    Routed,
}

impl Phase {
    /// Returns the number that stands for the phase in stored totals. It must never change.
    fn to_number(self) -> u64 {
        match self {
            Phase::Empty => 0,
            Phase::Asked => 1,
            Phase::Answered => 2,
            Phase::Routed => 3,
        }
    }

    fn from_number(number: u64) -> Option<Self> {
        match number {
            0 => Some(Phase::Empty),
            1 => Some(Phase::Asked),
            2 => Some(Phase::Answered),
            3 => Some(Phase::Routed),
            _ => None,
        }
    }
}

impl TurnState {
    pub(crate) fn pending_work(&self) -> PendingWork {
        match self.phase {
            _ if self.open > 0 => PendingWork::Tools { open: self.open },
            Phase::Asked | Phase::Routed => PendingWork::Model,
            Phase::Empty | Phase::Answered => PendingWork::Nothing,
        }
    }

    pub(crate) fn has_open_calls(&self) -> bool {
        self.open > 0
    }

    /// Encodes the state as two numbers: the phase, and the number of open calls.
    pub(crate) fn to_numbers(&self) -> [u64; 2] {
        [self.phase.to_number(), self.open]
    }

    pub(crate) fn from_numbers([phase, open]: [u64; 2]) -> Option<Self> {
        Some(TurnState { phase: Phase::from_number(phase)?, open })
    }

    /// Updates the state and the open calls by one step.
    pub(crate) fn append(&mut self, chunk: &Chunk, open: &mut OpenCalls) {
        let closes_a_call = open.append(chunk);
        match chunk {
            Chunk::User(_) => self.phase = Phase::Asked,
            // A new agent takes over a conversation; in an empty one it has nothing to answer.
            Chunk::Instructions(_) if matches!(self.phase, Phase::Answered | Phase::Routed) => {
                self.phase = Phase::Asked;
            }
            Chunk::Selected(selected) => match (&selected.choice, self.phase) {
                (Choice::Chosen { .. }, Phase::Answered) => self.phase = Phase::Routed,
                (Choice::Done, Phase::Routed) => self.phase = Phase::Answered,
                _ => {}
            },
            // A paused answer is not over: the model is asked to go on with it.
            Chunk::Assistant(answer) if answer.is_paused() => self.phase = Phase::Asked,
            Chunk::Assistant(_) => self.phase = Phase::Answered,
            // The model does not see a result that belongs to no open call.
            Chunk::ToolResult(_) if closes_a_call => self.phase = Phase::Asked,
            _ => {}
        }
        self.open = open.count();
    }

    /// Updates the state by a whole line that is read after this one.
    pub(crate) fn append_line(&mut self, theirs: &TurnState, open: &mut OpenCalls, their_open: &OpenCalls) {
        if theirs.phase != Phase::Empty {
            self.phase = theirs.phase;
        }
        open.add(their_open);
        self.open = open.count();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_of_stored_phases_never_change() {
        let numbers = [(Phase::Empty, 0), (Phase::Asked, 1), (Phase::Answered, 2), (Phase::Routed, 3)];
        for (phase, number) in numbers {
            assert_eq!((phase.to_number(), Phase::from_number(number)), (number, Some(phase)));
        }
        assert_eq!(Phase::from_number(4), None);
        let state = TurnState { phase: Phase::Routed, open: 7 };
        assert_eq!(state.to_numbers(), [3, 7]);
        assert_eq!(TurnState::from_numbers([3, 7]).map(|state| state.to_numbers()), Some([3, 7]));
    }
}
