//! Pairing results with the calls they belong to.

use std::collections::{HashMap, VecDeque};

use crate::id::CallId;

/// The calls that wait for a result, each with a value of the caller's.
///
/// Several turns may use the same id, and so may several calls of one turn. A result closes a call of the newest turn
/// that used its id, and among those the first.
pub(crate) struct CallQueue<'a, T> {
    by_id: HashMap<&'a CallId, VecDeque<T>>,
}

impl<'a, T> CallQueue<'a, T> {
    /// Adds the calls of a turn, which is newer than all turns added before.
    pub(crate) fn add_turn(&mut self, calls: impl DoubleEndedIterator<Item = (&'a CallId, T)>) {
        for (id, call) in calls.rev() {
            self.by_id.entry(id).or_default().push_front(call);
        }
    }

    /// Removes and returns the call that a result with this id closes.
    pub(crate) fn close(&mut self, id: &CallId) -> Option<T> {
        self.by_id.get_mut(id).and_then(VecDeque::pop_front)
    }

    /// The waiting calls with this id, in the order in which results close them.
    pub(crate) fn with_id(&self, id: &CallId) -> impl Iterator<Item = &T> {
        self.by_id.get(id).into_iter().flatten()
    }
}

impl<T> Default for CallQueue<'_, T> {
    fn default() -> Self {
        CallQueue { by_id: HashMap::new() }
    }
}
