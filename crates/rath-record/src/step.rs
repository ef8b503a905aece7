//! Steps: the immutable nodes of the record.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use crate::chunk::{Chunk, ChunkError, Merged, Strategy};
use crate::id::{BranchId, Digest, StepId, Timestamp};
use crate::lazy::{LazyStep, StorageMark, StorageState};
use crate::lineage::{self, Comparison};
use crate::totals::LineTotals;
use crate::turn::OpenCalls;
use crate::usage::Usage;

/// One immutable thing that happened, with its parents.
///
/// A step is a shared pointer: cloning one increments a counter, and a million forks of a long history share it.
///
/// ```
/// use rath_record::{BranchId, Chunk, Parent, Parents, Stamp, Step};
///
/// let stamp = Stamp::on(BranchId([1; 16]));
/// let first = Step::new(Parents::None, Chunk::user("Hello"), stamp.clone());
/// let second = Step::new(Parents::One(Parent::Loaded(first.clone())), Chunk::assistant("Hi!"), stamp);
/// assert_eq!(second.parents()[0].step(), Some(&first));
/// ```
#[derive(Clone)]
pub struct Step(Arc<Node>);

struct Node {
    id: StepId,
    parents: Parents,
    chunk: Chunk,
    /// The chunk's JSON as it was read, if encoding the chunk again would give other bytes: it has members that this
    /// version does not know.
    json: Option<Box<str>>,
    /// The digest of the original chunk, which the id was computed from, if the chunk here is a redacted copy.
    withheld: Option<Box<Digest>>,
    stamp: Stamp,
    totals: LineTotals,
    storage: StorageMark,
}

/// The author, cost and time of a step.
///
/// The stamp is outside the content hash, so that a replay can have the same ids as its original.
///
/// ```
/// use rath_record::{BranchId, Stamp, Timestamp, Usage};
///
/// let stamp = Stamp::on(BranchId([1; 16])).by("readme.agent").usage(Usage::new(20, 5)).at(Timestamp(0));
/// assert_eq!(stamp.by.as_deref(), Some("readme.agent"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stamp {
    /// The branch that the step was appended to.
    pub branch: BranchId,
    /// The path of the module that appended the step, for example `readme.agent`.
    pub by: Option<Arc<str>>,
    /// The token usage of the model call behind the step.
    pub usage: Option<Usage>,
    /// The time at which the step was appended.
    pub at: Option<Timestamp>,
}

impl Stamp {
    /// Makes a stamp with only a branch.
    pub fn on(branch: BranchId) -> Self {
        Stamp { branch, by: None, usage: None, at: None }
    }

    /// Sets the token usage of the model call.
    pub fn usage(mut self, usage: Usage) -> Self {
        self.usage = Some(usage);
        self
    }

    /// Sets the module that appends the step.
    pub fn by(mut self, module: impl Into<Arc<str>>) -> Self {
        self.by = Some(module.into());
        self
    }

    /// Sets the time.
    pub fn at(mut self, at: Timestamp) -> Self {
        self.at = Some(at);
        self
    }
}

/// A chunk as it was read from a file or a store.
///
/// Passed to [`Step::from_store`].
pub struct StoredChunk<'a> {
    /// The decoded chunk.
    pub chunk: Chunk,
    /// The JSON that the chunk was decoded from.
    pub json: &'a str,
    /// The digest of the original JSON, which the step's id was computed from, if this is a redacted copy.
    pub withheld: Option<Digest>,
}

/// The chunk of a step as its node holds it.
struct NodeChunk {
    chunk: Chunk,
    json: Option<Box<str>>,
    withheld: Option<Box<Digest>>,
}

impl StoredChunk<'_> {
    /// The digest that the step's id is computed from.
    fn digest(&self) -> Digest {
        self.withheld.unwrap_or_else(|| Digest::compute(self.json.as_bytes()))
    }

    /// Returns the chunk without its content, if it is a redacted copy: the id does not show what such a copy says.
    fn without_unproven_content(mut self) -> Self {
        if self.withheld.is_some() {
            self.chunk = self.chunk.redacted();
        }
        self
    }

    fn into_node_chunk(self) -> NodeChunk {
        let mut encoded = Vec::with_capacity(self.json.len());
        self.chunk.encode(&mut encoded);
        let json = (encoded != self.json.as_bytes()).then(|| self.json.into());
        NodeChunk { chunk: self.chunk, json, withheld: self.withheld.map(Box::new) }
    }
}

/// A parent of a step: the step itself or, if its row was lost, its id.
///
/// See [`Step`] for an example.
#[derive(Clone)]
pub enum Parent {
    /// The step is in memory.
    Loaded(Step),
    /// The step is loaded from a store when it is first read.
    Lazy(Arc<LazyStep>),
    /// Only the id is known. Boxed, since nearly every parent is present.
    Missing(Box<StepId>),
}

impl Parent {
    /// The id of the parent.
    pub fn id(&self) -> StepId {
        match self {
            Parent::Loaded(step) => step.id(),
            Parent::Lazy(lazy) => lazy.id(),
            Parent::Missing(id) => **id,
        }
    }

    /// Returns the parent, unless it is missing; a lazy one is loaded.
    pub fn step(&self) -> Option<&Step> {
        match self {
            Parent::Loaded(step) => Some(step),
            Parent::Lazy(lazy) => lazy.step(),
            Parent::Missing(_) => None,
        }
    }

    /// Returns whether the source with this token has stored the parent.
    ///
    /// A lazy parent of the same source is not loaded for this.
    pub fn storage_state(&self, source: u64) -> StorageState {
        match self {
            Parent::Loaded(step) => step.storage_state(source),
            Parent::Lazy(lazy) => match lazy.location_in(source) {
                Some(location) => StorageState::At(location),
                None => lazy.step().map_or(StorageState::NotStored, |step| step.storage_state(source)),
            },
            Parent::Missing(_) => StorageState::NotStored,
        }
    }
}

/// The parents of a step: none for the first step of a record, two for a merge, one for every other step.
///
/// See [`Step`] for an example.
#[derive(Clone)]
pub enum Parents {
    /// No parent: a first step.
    None,
    /// The previous step.
    One(Parent),
    /// The heads that a merge joins: ours, then theirs.
    Two([Parent; 2]),
}

impl Parents {
    /// The parents as a slice, ours first.
    pub fn as_slice(&self) -> &[Parent] {
        match self {
            Parents::None => &[],
            Parents::One(parent) => std::slice::from_ref(parent),
            Parents::Two(parents) => parents,
        }
    }

    /// Returns ours and theirs, if there are two parents and both are present.
    pub(crate) fn both(&self) -> Option<(&Step, &Step)> {
        match self {
            Parents::Two([ours, theirs]) => Some((ours.step()?, theirs.step()?)),
            _ => None,
        }
    }
}

impl Step {
    /// Makes a step with this content after `parents`.
    pub fn new(parents: Parents, chunk: Chunk, stamp: Stamp) -> Self {
        let mut open = OpenCalls::before(&parents);
        Self::next(parents, chunk, stamp, &mut open).0
    }

    /// Makes a step from the JSON of its chunk, which is kept as it is written.
    pub fn from_json(parents: Parents, json: &str, stamp: Stamp) -> Result<Self, ChunkError> {
        let mut open = OpenCalls::before(&parents);
        Ok(Self::from_stored_chunk(
            parents,
            StoredChunk { chunk: Chunk::decode(json)?, json, withheld: None },
            stamp,
            &mut open,
        ))
    }

    /// Makes a step, and returns it with its JSON.
    ///
    /// `open` holds the calls without a result before the step, and is updated to those after it.
    pub(crate) fn next(parents: Parents, chunk: Chunk, stamp: Stamp, open: &mut OpenCalls) -> (Self, Vec<u8>) {
        let mut json = Vec::with_capacity(chunk.size_hint());
        chunk.encode(&mut json);
        let totals = Self::totals_before(&parents, &chunk, open);
        let content = NodeChunk { chunk, json: None, withheld: None };
        (Self::build(parents, content, Digest::compute(&json), stamp, totals, open), json)
    }

    /// Makes a step from a chunk that was read.
    pub(crate) fn from_stored_chunk(
        parents: Parents,
        stored: StoredChunk<'_>,
        stamp: Stamp,
        open: &mut OpenCalls,
    ) -> Self {
        let stored = stored.without_unproven_content();
        let totals = Self::totals_before(&parents, &stored.chunk, open);
        let digest = stored.digest();
        Self::build(parents, stored.into_node_chunk(), digest, stamp, totals, open)
    }

    /// Makes a step from a store, with the totals that were stored with it, so that no earlier step is loaded.
    ///
    /// The store has checked that `id` is that of the parents and the chunk. Returns `None` if `totals` cannot be decoded.
    pub fn from_store(
        id: StepId,
        parents: Parents,
        stored: StoredChunk<'_>,
        stamp: Stamp,
        totals: &[u8],
    ) -> Option<Self> {
        debug_assert_eq!(id, Self::compute_id(&parents, stored.digest()), "the store has checked it");
        let totals = LineTotals::decode(totals)?;
        let NodeChunk { chunk, json, withheld } = stored.without_unproven_content().into_node_chunk();
        let storage = StorageMark::default();
        Some(Step(Arc::new(Node { id, parents, chunk, json, withheld, stamp, totals, storage })))
    }

    /// Makes the merge of two steps that have been compared already.
    pub(crate) fn merge(ours: &Step, theirs: &Step, merged: Merged, stamp: Stamp, comparison: Comparison<'_>) -> Self {
        let strategy = merged.strategy;
        let chunk = Chunk::Merged(merged);
        let mut json = Vec::new();
        chunk.encode(&mut json);
        let parents = Parents::Two([Parent::Loaded(ours.clone()), Parent::Loaded(theirs.clone())]);
        let (totals, mut open) = LineTotals::before_merge(ours, theirs, strategy, comparison);
        let content = NodeChunk { chunk, json: None, withheld: None };
        Self::build(parents, content, Digest::compute(&json), stamp, totals, &mut open)
    }

    /// Returns the totals of the line that a step with these parents continues, and sets `open` for a merge.
    fn totals_before(parents: &Parents, chunk: &Chunk, open: &mut OpenCalls) -> LineTotals {
        let strategy = match chunk {
            Chunk::Merged(merged) => merged.strategy,
            _ => Strategy::Ancestor,
        };
        let Some((ours, theirs)) = parents.both() else {
            return match (strategy, parents) {
                (Strategy::Aside, Parents::Two(_)) => LineTotals::before_incomplete_aside(parents),
                _ => LineTotals::before_step(parents),
            };
        };
        let comparison = lineage::compare(ours, theirs);
        let (totals, open_on_both) = LineTotals::before_merge(ours, theirs, strategy, comparison);
        *open = open_on_both;
        totals
    }

    fn build(
        parents: Parents,
        NodeChunk { chunk, json, withheld }: NodeChunk,
        digest: Digest,
        stamp: Stamp,
        mut totals: LineTotals,
        open: &mut OpenCalls,
    ) -> Self {
        let id = Self::compute_id(&parents, digest);
        totals.append(&chunk, stamp.usage, open);
        Step(Arc::new(Node { id, parents, chunk, json, withheld, stamp, totals, storage: StorageMark::default() }))
    }

    fn compute_id(parents: &Parents, digest: Digest) -> StepId {
        match parents {
            Parents::None => StepId::compute(&[], digest),
            Parents::One(parent) => StepId::compute(&[parent.id()], digest),
            Parents::Two([ours, theirs]) => StepId::compute(&[ours.id(), theirs.id()], digest),
        }
    }

    /// The id of the step.
    pub fn id(&self) -> StepId {
        self.0.id
    }

    /// The parents of the step, ours before theirs.
    pub fn parents(&self) -> &[Parent] {
        self.0.parents.as_slice()
    }

    /// The content of the step.
    pub fn chunk(&self) -> &Chunk {
        &self.0.chunk
    }

    /// The chunk's JSON, exactly as it is hashed and stored.
    pub fn json(&self) -> Cow<'_, str> {
        match &self.0.json {
            Some(json) => Cow::Borrowed(json),
            None => {
                let mut json = Vec::new();
                self.0.chunk.encode(&mut json);
                Cow::Owned(String::from_utf8(json).expect("JSON is UTF-8"))
            }
        }
    }

    /// The digest of the original chunk, if this step is a redacted copy.
    pub fn withheld(&self) -> Option<Digest> {
        self.0.withheld.as_deref().copied()
    }

    /// Returns true if no place and no decision from before this step is in force after it.
    ///
    /// A person adopted the session here, or the step was forgotten: its id does not show what it said, so it may have been
    /// an adoption.
    pub fn voids_earlier_decisions(&self) -> bool {
        self.0.withheld.is_some() || matches!(self.0.chunk, Chunk::Adopted(_))
    }

    /// Returns a copy of the step without its content: id, parents and the shape of the chunk stay.
    pub fn redacted(&self) -> Self {
        let mut json = Vec::new();
        self.encode_chunk(&mut json);
        let withheld = Some(Box::new(self.withheld().unwrap_or_else(|| Digest::compute(&json))));
        let (id, parents, chunk) = (self.0.id, self.0.parents.clone(), self.0.chunk.redacted());
        let (stamp, totals) = (self.0.stamp.clone(), self.0.totals.clone());
        let storage = StorageMark::default();
        Step(Arc::new(Node { id, parents, chunk, json: None, withheld, stamp, totals, storage }))
    }

    /// Encodes the totals of the line up to this step, for a store that loads the step without the steps before it.
    ///
    /// [`Step::from_store`] and [`Totals::decode`](crate::Totals::decode) read them.
    pub fn encode_totals(&self) -> Vec<u8> {
        self.0.totals.encode()
    }

    /// Returns whether the source with this token has stored the step.
    pub fn storage_state(&self, source: u64) -> StorageState {
        self.0.storage.get(source)
    }

    /// Sets whether the source with this token has stored the step.
    ///
    /// Returns false, and changes nothing, if the step remembers another source already.
    pub fn set_storage_state(&self, source: u64, state: StorageState) -> bool {
        self.0.storage.set(source, state)
    }

    /// The author, cost and time of the step.
    pub fn stamp(&self) -> &Stamp {
        &self.0.stamp
    }

    /// The number of chunks on the line up to this step, without markers.
    pub fn chunk_count(&self) -> u64 {
        self.0.totals.chunks
    }

    /// The usage of all model calls up to this step, each counted once.
    pub fn cumulative_usage(&self) -> Usage {
        self.0.totals.usage
    }

    pub(crate) fn totals(&self) -> &LineTotals {
        &self.0.totals
    }

    /// Appends the JSON of the chunk to `out`.
    pub(crate) fn encode_chunk(&self, out: &mut Vec<u8>) {
        match &self.0.json {
            Some(json) => out.extend_from_slice(json.as_bytes()),
            None => self.0.chunk.encode(out),
        }
    }

    /// Returns the parent that this step is read after: the first one that is present and not kept aside.
    pub(crate) fn first_parent(&self) -> Option<&Step> {
        let readable = if self.totals().aside { &self.parents()[..1] } else { self.parents() };
        readable.iter().find_map(Parent::step)
    }

    /// Returns the two parents of a merge that reads both, if both are present.
    pub(crate) fn merged_parents(&self) -> Option<(&Step, &Step)> {
        if self.totals().aside { None } else { self.0.parents.both() }
    }

    /// Returns the head of the branch that this step keeps aside, if it is present.
    pub(crate) fn aside_head(&self) -> Option<&Step> {
        self.totals().aside.then(|| self.parents().get(1).and_then(Parent::step)).flatten()
    }
}

/// Two steps are equal if their ids are: then content and history are equal too.
impl PartialEq for Step {
    fn eq(&self, other: &Self) -> bool {
        self.id() == other.id()
    }
}

impl Eq for Step {}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {:?}", self.id(), self.chunk())
    }
}

/// Drops ancestors in a loop: a recursive drop of a million parents would overflow the stack.
impl Drop for Node {
    fn drop(&mut self) {
        let mut queue = Vec::new();
        take_parents(&mut self.parents, &mut queue);
        while let Some(step) = queue.pop() {
            if let Some(mut node) = Arc::into_inner(step.0) {
                take_parents(&mut node.parents, &mut queue);
            }
        }
    }
}

/// Moves the parents that are in memory to `queue`.
fn take_parents(parents: &mut Parents, queue: &mut Vec<Step>) {
    match std::mem::replace(parents, Parents::None) {
        Parents::None => {}
        Parents::One(parent) => queue.extend(into_step(parent)),
        Parents::Two(parents) => queue.extend(parents.into_iter().filter_map(into_step)),
    }
}

fn into_step(parent: Parent) -> Option<Step> {
    match parent {
        Parent::Loaded(step) => Some(step),
        Parent::Lazy(lazy) => Arc::into_inner(lazy).and_then(LazyStep::into_step),
        Parent::Missing(_) => None,
    }
}
