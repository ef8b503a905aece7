//! Steps that are kept elsewhere: in a store, fetched when somebody looks at them.
//!
//! The record does no IO. It knows only that there is a shelf, what the shelf calls a step, and that it can be asked.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::id::StepId;
use crate::step::Step;

/// Whoever keeps steps, and can be asked for one.
pub trait Shelf: Send + Sync {
    /// What tells this shelf from every other in the process.
    fn token(&self) -> u64;

    /// The step `id`, which is kept at `place`. None if it is lost or damaged: the shelf remembers why.
    fn fetch(&self, place: u64, id: StepId) -> Option<Step>;
}

/// A step on a shelf, there once it has been looked at.
pub struct Shelved {
    id: StepId,
    place: u64,
    shelf: Arc<dyn Shelf>,
    step: OnceLock<Option<Step>>,
}

impl Shelved {
    /// The step `id`, which `shelf` keeps at `place`.
    pub fn new(id: StepId, place: u64, shelf: Arc<dyn Shelf>) -> Self {
        Shelved { id, place, shelf, step: OnceLock::new() }
    }

    /// The step's name.
    pub fn id(&self) -> StepId {
        self.id
    }

    /// Where this shelf keeps it.
    pub fn place_on(&self, shelf: u64) -> Option<u64> {
        (self.shelf.token() == shelf).then_some(self.place)
    }

    /// The step, fetched if it is not here yet.
    pub fn step(&self) -> Option<&Step> {
        self.step.get_or_init(|| self.shelf.fetch(self.place, self.id)).as_ref()
    }

    /// The step, fetched for this once if it is not here.
    pub(crate) fn look(&self) -> Option<Step> {
        match self.step.get() {
            Some(step) => step.clone(),
            None => self.shelf.fetch(self.place, self.id),
        }
    }

    pub(crate) fn into_step(self) -> Option<Step> {
        self.step.into_inner().flatten()
    }
}

impl fmt::Debug for Shelved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} (on a shelf)", self.id)
    }
}

/// Where a step is kept, written down in the step itself: whoever appends has to know at once what is kept already.
#[derive(Default)]
pub(crate) struct Mark(OnceLock<(u64, AtomicU64)>);

/// Whether a shelf keeps a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// It does not.
    No,
    /// It has been told to, and has not said yet where.
    Soon,
    /// It does, there.
    At(u64),
}

const NO: u64 = 0;
const SOON: u64 = u64::MAX;

impl Mark {
    pub(crate) fn get(&self, shelf: u64) -> Kept {
        match self.0.get().filter(|(by, _)| *by == shelf).map_or(NO, |(_, place)| place.load(Ordering::Acquire)) {
            NO => Kept::No,
            SOON => Kept::Soon,
            place => Kept::At(place),
        }
    }

    /// Whether this shelf could be written down: there is room for one.
    pub(crate) fn set(&self, shelf: u64, kept: Kept) -> bool {
        let (by, place) = self.0.get_or_init(|| (shelf, AtomicU64::new(NO)));
        if *by != shelf {
            return false;
        }
        let kept = match kept {
            Kept::No => NO,
            Kept::Soon => SOON,
            Kept::At(at) => at,
        };
        place.store(kept, Ordering::Release);
        true
    }
}
