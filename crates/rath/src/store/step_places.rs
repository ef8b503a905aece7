//! The places of steps in one store.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rath_record::{BranchId, Parent, Step, StepId, StorageState};

/// The branch of a step, and its id. Branches that begin alike have steps with equal ids, each its own.
pub(crate) type StepKey = (BranchId, StepId);

/// Returns the key of a step.
pub(crate) fn key_of(step: &Step) -> StepKey {
    (step.stamp().branch, step.id())
}

/// The places of steps in one store.
///
/// A step notes its place in the first store that holds it; places in further stores are noted here.
///
/// Passed to [`StoreBackend::write`](super::StoreBackend::write).
pub struct StepPlaces {
    token: u64,
    others: Mutex<HashMap<StepKey, StorageState>>,
    /// False while `others` is empty, as it nearly always is: then no lock is taken.
    has_others: AtomicBool,
    queueing: Mutex<()>,
}

impl StepPlaces {
    pub(super) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        StepPlaces {
            token: NEXT.fetch_add(1, Ordering::Relaxed),
            others: Mutex::default(),
            has_others: AtomicBool::new(false),
            queueing: Mutex::default(),
        }
    }

    /// Locks the choice of the steps that a write has. It is held from then on until the write is queued.
    ///
    /// Otherwise two sessions with the same steps would both write them, or one would be queued before the steps that it
    /// continues from.
    pub(crate) fn lock_queueing(&self) -> MutexGuard<'_, ()> {
        self.queueing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a number that identifies this store in the process.
    pub fn token(&self) -> u64 {
        self.token
    }

    /// Returns the place of a parent in this store, without loading the parent.
    pub fn lookup(&self, link: &Parent) -> StorageState {
        match link.storage_state(self.token) {
            StorageState::NotStored => link.step().map_or(StorageState::NotStored, |step| self.lookup_other(step)),
            kept => kept,
        }
    }

    /// Returns the place of a step in this store.
    pub fn lookup_step(&self, step: &Step) -> StorageState {
        match step.storage_state(self.token) {
            StorageState::NotStored => self.lookup_other(step),
            kept => kept,
        }
    }

    /// Notes the place of a step.
    pub fn set(&self, step: &Step, kept: StorageState) {
        let is_noted = step.set_storage_state(self.token, kept);
        // With the fence of `copy_place`: either this sees that there are others, or that sees the new place.
        fence(Ordering::SeqCst);
        if is_noted && !self.has_others.load(Ordering::Relaxed) {
            return;
        }
        let mut others = self.lock();
        match others.get_mut(&key_of(step)) {
            Some(copies) => *copies = kept,
            None if is_noted => {}
            None => {
                self.has_others.store(true, Ordering::Release);
                others.insert(key_of(step), kept);
            }
        }
    }

    /// Marks the steps of a write that is queued. Those that are stored already, and are stored again for their own branch, keep
    /// their places until then.
    pub(crate) fn mark_pending(&self, steps: &[Step]) {
        let new = steps.iter().filter(|step| self.lookup_step(step) == StorageState::NotStored);
        new.for_each(|step| self.set(step, StorageState::Pending));
    }

    /// Takes back [`mark_pending`](StepPlaces::mark_pending) for a write that was refused before it changed anything.
    pub(crate) fn unmark_pending(&self, steps: &[Step]) {
        let marked = steps.iter().filter(|step| self.lookup_step(step) == StorageState::Pending);
        marked.for_each(|step| self.set(step, StorageState::NotStored));
    }

    /// Notes the place of a step for all its copies, until [`StepPlaces::set`] is called for one of them.
    ///
    /// The writer thread may change the place at the same time: then the copies get the new one.
    pub(crate) fn copy_place(&self, original: &Step) {
        let mut others = self.lock();
        self.has_others.store(true, Ordering::Release);
        fence(Ordering::SeqCst);
        let kept = original.storage_state(self.token);
        // A step that does not note its own place shares that of its copies already.
        if kept != StorageState::NotStored {
            others.insert(key_of(original), kept);
        }
    }

    fn lookup_other(&self, step: &Step) -> StorageState {
        if !self.has_others.load(Ordering::Acquire) {
            return StorageState::NotStored;
        }
        self.lock().get(&key_of(step)).copied().unwrap_or(StorageState::NotStored)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<StepKey, StorageState>> {
        self.others.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;
    use crate::Session;

    #[test]
    fn copies_have_the_place_of_a_step_that_is_being_written() {
        for nth in 0..2000 {
            let (places, session) = (StepPlaces::new(), Session::user("one"));
            let step = session.head().expect("a step");
            places.set(step, StorageState::Pending);
            let both = Barrier::new(2);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    both.wait();
                    places.set(step, StorageState::At(7));
                });
                both.wait();
                places.copy_place(step);
            });
            assert_eq!(places.lookup_other(step), StorageState::At(7), "attempt {nth}");
        }
    }
}
