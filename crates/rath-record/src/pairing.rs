//! Which call a result belongs to.

use std::collections::{HashMap, VecDeque};

use crate::id::CallId;

/// Calls that wait for a result, each with what its keeper wants to know of it.
///
/// Turns may reuse a name, and so may one turn: a result means the newest turn's call, and there the first.
pub(crate) struct Waiting<'a, T> {
    by_name: HashMap<&'a CallId, VecDeque<T>>,
}

impl<'a, T> Waiting<'a, T> {
    /// Adds the calls of a turn, newer than all before.
    pub(crate) fn ask(&mut self, calls: impl DoubleEndedIterator<Item = (&'a CallId, T)>) {
        for (name, call) in calls.rev() {
            self.by_name.entry(name).or_default().push_front(call);
        }
    }

    /// Takes out the call that a result of this name closes.
    pub(crate) fn close(&mut self, name: &CallId) -> Option<T> {
        self.by_name.get_mut(name).and_then(VecDeque::pop_front)
    }

    /// The calls of this name, the one that will be closed next first.
    pub(crate) fn named(&self, name: &CallId) -> impl Iterator<Item = &T> {
        self.by_name.get(name).into_iter().flatten()
    }
}

impl<T> Default for Waiting<'_, T> {
    fn default() -> Self {
        Waiting { by_name: HashMap::new() }
    }
}
