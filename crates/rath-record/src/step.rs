//! One immutable thing that happened.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use crate::chunk::{Chunk, ChunkError, Merged, Strategy};
use crate::id::{BranchId, Digest, StepId, Timestamp};
use crate::line::Line;
use crate::lineage::{self, Split};
use crate::shelf::{Kept, Mark, Shelved};
use crate::turn::OpenCalls;
use crate::usage::Usage;

/// One immutable thing that happened, with its parents.
///
/// A step is a shared pointer: cloning one costs a counter, and a million forks of a long line share it.
#[derive(Clone)]
pub struct Step(Arc<Node>);

struct Node {
    id: StepId,
    parents: Parents,
    chunk: Chunk,
    /// The chunk as it was read, where writing it anew would give other bytes (members this version does not know).
    json: Option<Box<str>>,
    /// The digest that the id was made with, where the chunk is only what is left of the one that was said.
    withheld: Option<Box<Digest>>,
    stamp: Stamp,
    line: Line,
    mark: Mark,
}

/// Who, what it cost and when: outside the content hash, so that a replay can equal its original.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The branch that the step was appended to.
    pub branch: BranchId,
    /// The path of the module that appended it, `readme.agent` for one.
    pub by: Option<Arc<str>>,
    /// What the model call behind it cost.
    pub usage: Option<Usage>,
    /// When it was appended.
    pub at: Option<Timestamp>,
}

impl Stamp {
    /// A stamp that only says which branch.
    pub fn on(branch: BranchId) -> Self {
        Stamp { branch, by: None, usage: None, at: None }
    }

    /// Adds what the model call cost.
    pub fn usage(mut self, usage: Usage) -> Self {
        self.usage = Some(usage);
        self
    }

    /// Adds the module that appends.
    pub fn by(mut self, module: impl Into<Arc<str>>) -> Self {
        self.by = Some(module.into());
        self
    }

    /// Adds the time.
    pub fn at(mut self, at: Timestamp) -> Self {
        self.at = Some(at);
        self
    }
}

/// What a step says, as it was read.
pub struct Stored<'a> {
    /// The chunk.
    pub chunk: Chunk,
    /// Its JSON, from which it was decoded.
    pub json: &'a str,
    /// The digest of the JSON that the step was named by, where this is only what is left of it.
    pub withheld: Option<Digest>,
}

/// The same, as a step holds it.
struct Said {
    chunk: Chunk,
    json: Option<Box<str>>,
    withheld: Option<Box<Digest>>,
}

impl Stored<'_> {
    /// The digest that the step is named by.
    fn digest(&self) -> Digest {
        self.withheld.unwrap_or_else(|| Digest::of(self.json.as_bytes()))
    }

    fn into_said(self) -> Said {
        let mut again = Vec::with_capacity(self.json.len());
        self.chunk.encode(&mut again);
        let json = (again != self.json.as_bytes()).then(|| self.json.into());
        Said { chunk: self.chunk, json, withheld: self.withheld.map(Box::new) }
    }
}

/// A parent: the step itself or, where its row was lost, its name.
#[derive(Clone)]
pub enum Link {
    /// The step.
    Step(Step),
    /// A step that is kept elsewhere and fetched when it is looked at.
    Shelved(Arc<Shelved>),
    /// A step that is named and not here. Boxed, since nearly every parent is.
    Gone(Box<StepId>),
}

impl Link {
    /// The parent's name.
    pub fn id(&self) -> StepId {
        match self {
            Link::Step(step) => step.id(),
            Link::Shelved(shelved) => shelved.id(),
            Link::Gone(id) => **id,
        }
    }

    /// The parent, where it is here.
    pub fn step(&self) -> Option<&Step> {
        match self {
            Link::Step(step) => Some(step),
            Link::Shelved(shelved) => shelved.step(),
            Link::Gone(_) => None,
        }
    }

    /// Whether a shelf keeps it, found out without fetching it.
    pub fn kept_by(&self, shelf: u64) -> Kept {
        match self {
            Link::Step(step) => step.kept_by(shelf),
            Link::Shelved(shelved) => match shelved.place_on(shelf) {
                Some(place) => Kept::At(place),
                None => shelved.step().map_or(Kept::No, |step| step.kept_by(shelf)),
            },
            Link::Gone(_) => Kept::No,
        }
    }
}

/// None for the first step of a record, two for a merge (ours, theirs), one for every other step.
#[derive(Clone)]
pub enum Parents {
    /// A first step.
    None,
    /// The step before.
    One(Link),
    /// Ours and theirs.
    Two([Link; 2]),
}

impl Parents {
    /// The parents as a slice, ours first.
    pub fn as_slice(&self) -> &[Link] {
        match self {
            Parents::None => &[],
            Parents::One(link) => std::slice::from_ref(link),
            Parents::Two(links) => links,
        }
    }

    /// Ours and theirs, where there are two and both are here.
    pub(crate) fn both(&self) -> Option<(&Step, &Step)> {
        match self {
            Parents::Two([ours, theirs]) => Some((ours.step()?, theirs.step()?)),
            _ => None,
        }
    }
}

impl Step {
    /// The step that says `chunk` after `parents`.
    pub fn new(parents: Parents, chunk: Chunk, stamp: Stamp) -> Self {
        let mut open = OpenCalls::before(&parents);
        Self::next(parents, chunk, stamp, &mut open).0
    }

    /// The step that says the chunk whose JSON is `json` after `parents`, kept as it is written.
    pub fn read(parents: Parents, json: &str, stamp: Stamp) -> Result<Self, ChunkError> {
        let mut open = OpenCalls::before(&parents);
        Ok(Self::stored(parents, Stored { chunk: Chunk::decode(json)?, json, withheld: None }, stamp, &mut open))
    }

    /// A new step, and its JSON. `open` holds the calls that wait on the line it goes on from, and is brought up to date.
    pub(crate) fn next(parents: Parents, chunk: Chunk, stamp: Stamp, open: &mut OpenCalls) -> (Self, Vec<u8>) {
        let mut json = Vec::with_capacity(chunk.size_hint());
        chunk.encode(&mut json);
        let line = Self::line_before(&parents, &chunk, open);
        let said = Said { chunk, json: None, withheld: None };
        (Self::make(parents, said, Digest::of(&json), stamp, line, open), json)
    }

    /// A step as it was read.
    pub(crate) fn stored(parents: Parents, said: Stored<'_>, stamp: Stamp, open: &mut OpenCalls) -> Self {
        let line = Self::line_before(&parents, &said.chunk, open);
        let digest = said.digest();
        Self::make(parents, said.into_said(), digest, stamp, line, open)
    }

    /// A step as a shelf keeps it, with what was known of its line when it was put there: nothing before it is looked at.
    ///
    /// None where `totals` cannot be read.
    pub fn shelved(parents: Parents, said: Stored<'_>, stamp: Stamp, totals: &[u8]) -> Option<Self> {
        let line = Line::decode(totals)?;
        let id = Self::name(&parents, said.digest());
        let Said { chunk, json, withheld } = said.into_said();
        Some(Step(Arc::new(Node { id, parents, chunk, json, withheld, stamp, line, mark: Mark::default() })))
    }

    /// The merge of two, whose difference is known.
    pub(crate) fn merge(ours: &Step, theirs: &Step, how: Merged, stamp: Stamp, split: Split<'_>) -> Self {
        let strategy = how.strategy;
        let chunk = Chunk::Merged(how);
        let mut json = Vec::new();
        chunk.encode(&mut json);
        let parents = Parents::Two([Link::Step(ours.clone()), Link::Step(theirs.clone())]);
        let (line, mut open) = Line::joining(ours, theirs, strategy, split);
        Self::make(parents, Said { chunk, json: None, withheld: None }, Digest::of(&json), stamp, line, &mut open)
    }

    fn line_before(parents: &Parents, chunk: &Chunk, open: &mut OpenCalls) -> Line {
        let strategy = match chunk {
            Chunk::Merged(merged) => merged.strategy,
            _ => Strategy::Ancestor,
        };
        let Some((ours, theirs)) = parents.both() else {
            return match (strategy, parents) {
                (Strategy::Aside, Parents::Two(_)) => Line::before_aside(parents),
                _ => Line::before(parents),
            };
        };
        let (line, joined) = Line::joining(ours, theirs, strategy, lineage::compare(ours, theirs));
        *open = joined;
        line
    }

    fn make(
        parents: Parents,
        Said { chunk, json, withheld }: Said,
        digest: Digest,
        stamp: Stamp,
        mut line: Line,
        open: &mut OpenCalls,
    ) -> Self {
        let id = Self::name(&parents, digest);
        line.follow(&chunk, stamp.usage, open);
        Step(Arc::new(Node { id, parents, chunk, json, withheld, stamp, line, mark: Mark::default() }))
    }

    fn name(parents: &Parents, digest: Digest) -> StepId {
        match parents {
            Parents::None => StepId::of(&[], digest),
            Parents::One(parent) => StepId::of(&[parent.id()], digest),
            Parents::Two([ours, theirs]) => StepId::of(&[ours.id(), theirs.id()], digest),
        }
    }

    /// The step's name.
    pub fn id(&self) -> StepId {
        self.0.id
    }

    /// The steps it came after, ours before theirs.
    pub fn parents(&self) -> &[Link] {
        self.0.parents.as_slice()
    }

    /// What it says.
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

    /// The digest of the chunk that was said, where only a part of it is left.
    pub fn withheld(&self) -> Option<Digest> {
        self.0.withheld.as_deref().copied()
    }

    /// The same step with what it says forgotten: its name, its place and its shape stay.
    pub fn without_words(&self) -> Self {
        let mut json = Vec::new();
        self.encode_chunk(&mut json);
        let withheld = Some(Box::new(self.withheld().unwrap_or_else(|| Digest::of(&json))));
        let (id, parents, chunk) = (self.0.id, self.0.parents.clone(), self.0.chunk.forgotten());
        let (stamp, line) = (self.0.stamp.clone(), self.0.line.clone());
        Step(Arc::new(Node { id, parents, chunk, json: None, withheld, stamp, line, mark: Mark::default() }))
    }

    /// What is known of the line up to this step, for a shelf that gives it back without what is before it.
    pub fn totals(&self) -> Vec<u8> {
        self.0.line.encode()
    }

    /// Whether a shelf keeps this step.
    pub fn kept_by(&self, shelf: u64) -> Kept {
        self.0.mark.get(shelf)
    }

    /// Writes down whether a shelf keeps this step. False if another shelf does, which is remembered here already.
    pub fn keep(&self, shelf: u64, kept: Kept) -> bool {
        self.0.mark.set(shelf, kept)
    }

    /// Who, what it cost and when.
    pub fn stamp(&self) -> &Stamp {
        &self.0.stamp
    }

    /// How many chunks the line up to this step has, markers left out.
    pub fn chunk_count(&self) -> u64 {
        self.0.line.chunks
    }

    /// What the model calls up to this step cost, each counted once.
    pub fn cumulative_usage(&self) -> Usage {
        self.0.line.usage
    }

    pub(crate) fn line(&self) -> &Line {
        &self.0.line
    }

    /// Appends the JSON of the chunk to `out`.
    pub(crate) fn encode_chunk(&self, out: &mut Vec<u8>) {
        match &self.0.json {
            Some(json) => out.extend_from_slice(json.as_bytes()),
            None => self.0.chunk.encode(out),
        }
    }

    /// The parent whose line comes first, of those that are here to be read.
    pub(crate) fn first_parent(&self) -> Option<&Step> {
        let read = if self.line().aside { &self.parents()[..1] } else { self.parents() };
        read.iter().find_map(Link::step)
    }

    /// The two parents of a merge that are read together, where both are here.
    pub(crate) fn joined(&self) -> Option<(&Step, &Step)> {
        if self.line().aside { None } else { self.0.parents.both() }
    }

    /// The head of what this step keeps aside, where it is here.
    pub(crate) fn kept_aside(&self) -> Option<&Step> {
        self.line().aside.then(|| self.parents().get(1).and_then(Link::step)).flatten()
    }
}

/// Equal ids: equal content and equal history.
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

/// Unlinks a line step by step: a recursive drop of a million parents would overflow the stack.
impl Drop for Node {
    fn drop(&mut self) {
        let mut open = Vec::new();
        unlink(&mut self.parents, &mut open);
        while let Some(step) = open.pop() {
            if let Some(mut node) = Arc::into_inner(step.0) {
                unlink(&mut node.parents, &mut open);
            }
        }
    }
}

fn unlink(parents: &mut Parents, open: &mut Vec<Step>) {
    match std::mem::replace(parents, Parents::None) {
        Parents::None => {}
        Parents::One(link) => open.extend(into_step(link)),
        Parents::Two(links) => open.extend(links.into_iter().filter_map(into_step)),
    }
}

fn into_step(link: Link) -> Option<Step> {
    match link {
        Link::Step(step) => Some(step),
        Link::Shelved(shelved) => Arc::into_inner(shelved).and_then(Shelved::into_step),
        Link::Gone(_) => None,
    }
}
