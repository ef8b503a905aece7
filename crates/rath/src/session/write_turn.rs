//! The turn to change files in a directory in which several sub-agents work at the same time.

use std::sync::Arc;

use tokio::sync::{Mutex, OwnedMutexGuard};

use super::Session;

/// The turn to change files in a directory: one for all sub-agents that the calls of a round run, and for these calls.
///
/// Files are compared before and after a call. So the changes of two calls can be told apart only if one has ended before the other
/// begins. Held by a round while calls of it run that may change files; models are asked without it.
#[derive(Clone, Default)]
pub(crate) struct WriteTurn(Arc<Mutex<()>>);

/// The right to change files. The turn goes to the next round when this is dropped.
pub(crate) type WriteGuard = OwnedMutexGuard<()>;

impl WriteTurn {
    /// Takes the turn, if no other round has it.
    pub(crate) fn try_take(&self) -> Option<WriteGuard> {
        self.0.clone().try_lock_owned().ok()
    }

    /// Waits for the turn.
    pub(crate) async fn take(&self) -> WriteGuard {
        self.0.clone().lock_owned().await
    }
}

impl Session {
    /// Returns the turn that the calls of this session take: that of the call whose work it does, or one of its own.
    pub(crate) fn write_turn(&self) -> WriteTurn {
        self.live.place.write_turn.clone().unwrap_or_default()
    }

    /// Lets the workflows that are run in this session take a turn.
    pub(crate) fn taking_turns(mut self, turn: WriteTurn) -> Self {
        self.live.place.write_turn = Some(turn);
        self
    }
}
