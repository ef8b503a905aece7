//! Steps that are not in memory: a store loads them when they are first read.
//!
//! The record does no IO. It knows that there is a source, where in the source a step is stored, and how to ask for it.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::id::StepId;
use crate::step::Step;

/// A store that steps can be loaded from.
///
/// ```
/// use std::sync::Arc;
///
/// use rath_record::{BranchId, Chunk, LazyStep, Parents, Stamp, Step, StepId, StepSource};
///
/// struct Steps(Vec<Step>);
///
/// impl StepSource for Steps {
///     fn token(&self) -> u64 {
///         1
///     }
///
///     fn fetch(&self, location: u64, _: StepId) -> Option<Step> {
///         self.0.get(location as usize).cloned()
///     }
/// }
///
/// let step = Step::new(Parents::None, Chunk::user("Hello"), Stamp::on(BranchId([1; 16])));
/// let lazy = LazyStep::new(step.id(), 0, Arc::new(Steps(vec![step.clone()])));
/// assert_eq!(lazy.step(), Some(&step));
/// ```
pub trait StepSource: Send + Sync {
    /// A number that identifies this source among all in the process.
    fn token(&self) -> u64;

    /// Loads the step `id`, which is stored at `location`.
    ///
    /// Returns `None` if the step is lost or damaged; the source remembers why.
    fn fetch(&self, location: u64, id: StepId) -> Option<Step>;
}

/// A step that is loaded when it is first read.
///
/// See [`StepSource`] for an example.
pub struct LazyStep {
    id: StepId,
    location: u64,
    source: Arc<dyn StepSource>,
    step: OnceLock<Option<Step>>,
}

impl LazyStep {
    /// Refers to the step `id`, which `source` stores at `location`.
    pub fn new(id: StepId, location: u64, source: Arc<dyn StepSource>) -> Self {
        LazyStep { id, location, source, step: OnceLock::new() }
    }

    /// The id of the step.
    pub fn id(&self) -> StepId {
        self.id
    }

    /// Returns the location of the step, if it belongs to the source with this token.
    pub fn location_in(&self, source: u64) -> Option<u64> {
        (self.source.token() == source).then_some(self.location)
    }

    /// Returns the step, and loads it first if it is not in memory.
    pub fn step(&self) -> Option<&Step> {
        self.step.get_or_init(|| self.source.fetch(self.location, self.id)).as_ref()
    }

    /// Returns the step; if it has to be loaded, it is not kept in memory.
    pub(crate) fn load_once(&self) -> Option<Step> {
        match self.step.get() {
            Some(step) => step.clone(),
            None => self.source.fetch(self.location, self.id),
        }
    }

    pub(crate) fn into_step(self) -> Option<Step> {
        self.step.into_inner().flatten()
    }
}

impl fmt::Debug for LazyStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} (not loaded)", self.id)
    }
}

/// The storage state of a step, held in the step itself: an append must know at once which steps are stored already.
///
/// There is room for one source: its token, and the location in it.
#[derive(Default)]
pub(crate) struct StorageMark(OnceLock<(u64, AtomicU64)>);

/// Tells whether a source has stored a step.
///
/// Returned by [`Step::storage_state`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StorageState {
    /// The source does not have the step.
    NotStored,
    /// The step was handed to the source, and its location is not known yet.
    Pending,
    /// The source has the step at this location.
    At(u64),
}

// Locations and states share one atomic number, so no location is one of these two.
const NOT_STORED: u64 = 0;
const PENDING: u64 = u64::MAX;

impl StorageMark {
    pub(crate) fn get(&self, source: u64) -> StorageState {
        let location = self.0.get().filter(|(token, _)| *token == source);
        match location.map_or(NOT_STORED, |(_, location)| location.load(Ordering::Acquire)) {
            NOT_STORED => StorageState::NotStored,
            PENDING => StorageState::Pending,
            location => StorageState::At(location),
        }
    }

    /// Sets the state, and returns false if the mark belongs to another source.
    pub(crate) fn set(&self, source: u64, state: StorageState) -> bool {
        let (token, location) = self.0.get_or_init(|| (source, AtomicU64::new(NOT_STORED)));
        if *token != source {
            return false;
        }
        let number = match state {
            StorageState::NotStored => NOT_STORED,
            StorageState::Pending => PENDING,
            StorageState::At(location) => location,
        };
        location.store(number, Ordering::Release);
        true
    }
}
