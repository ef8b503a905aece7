//! The lists of sessions that clients page through. Pure.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use rath::record::BranchId;
use rath::store::BranchSummary;
use rath::{Digest, StepId};

/// The number of lists that are held. The one that was not asked for longest is dropped.
const MAX_LISTS: usize = 16;

/// The sessions of an answer, newest first, as they were for its first page.
///
/// A session that goes on becomes the newest, and a fork takes the place of its origin. So the pages after the first are cut from
/// this list, and not from that of the store.
#[derive(Debug)]
pub(super) struct SessionList {
    /// The first digits of its digest: the same sessions have the same name.
    name: String,
    pub(super) sessions: Vec<SessionHead>,
}

/// A session and its newest step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct SessionHead {
    pub(super) branch: BranchId,
    pub(super) head: StepId,
}

impl SessionList {
    /// Creates the list of these sessions, which come newest last.
    pub(super) fn new<'a>(summaries: impl DoubleEndedIterator<Item = &'a BranchSummary>) -> Self {
        let heads = summaries.rev().map(|summary| SessionHead { branch: summary.branch, head: summary.head });
        SessionList::of(heads.collect())
    }

    fn of(sessions: Vec<SessionHead>) -> Self {
        let bytes: Vec<u8> =
            sessions.iter().flat_map(|session| [&session.branch.0[..], &session.head.0]).flatten().copied().collect();
        SessionList { name: format!("{:.8}", Digest::compute(&bytes)), sessions }
    }

    /// Returns the name of a session of this list in cursors.
    pub(super) fn part(&self, branch: BranchId) -> String {
        format!("{}/{branch}", self.name)
    }
}

/// The lists that cursors name.
#[derive(Debug, Default)]
pub(super) struct SessionLists(Mutex<VecDeque<Arc<SessionList>>>);

impl SessionLists {
    /// Returns the list of a part that a cursor names.
    pub(super) fn find(&self, part: &str) -> Option<Arc<SessionList>> {
        let name = part.split('/').next();
        let lists = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lists.iter().find(|list| Some(&*list.name) == name).cloned()
    }

    /// Holds a list for the next page.
    pub(super) fn keep(&self, list: Arc<SessionList>) {
        let mut lists = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lists.retain(|other| other.name != list.name);
        lists.push_back(list);
        while lists.len() > MAX_LISTS {
            lists.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lists_that_are_asked_for_are_held() {
        let list = |nth: u8| {
            let head = StepId::compute(&[], Digest::compute(&[nth]));
            Arc::new(SessionList::of(vec![SessionHead { branch: BranchId([nth; 16]), head }]))
        };
        let lists = SessionLists::default();
        let part = list(0).part(BranchId([0; 16]));
        for nth in 0..100 {
            lists.keep(list(nth));
            lists.keep(list(0));
            assert_eq!(lists.find(&part).expect("it was asked for").sessions, list(0).sessions);
        }
        assert_eq!(lists.0.lock().expect("no panic").len(), MAX_LISTS);
        assert!(lists.find(&list(1).part(BranchId([1; 16]))).is_none());
        assert!(lists.find("").is_none());
    }
}
