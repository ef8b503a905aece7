//! One immutable thing that happened.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use crate::chunk::{Chunk, Merged, Strategy};
use crate::id::{BranchId, Digest, StepId, Timestamp};
use crate::lineage::{self, Order};
use crate::turn;
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
    stamp: Stamp,
    line: Line,
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

/// A parent: the step itself or, where its row was lost, its name.
#[derive(Clone)]
pub enum Link {
    /// The step.
    Step(Step),
    /// A step that is named and not here. Boxed, since nearly every parent is.
    Gone(Box<StepId>),
}

impl Link {
    /// The parent's name.
    pub fn id(&self) -> StepId {
        match self {
            Link::Step(step) => step.id(),
            Link::Gone(id) => **id,
        }
    }

    /// The parent, where it is here.
    pub fn step(&self) -> Option<&Step> {
        match self {
            Link::Step(step) => Some(step),
            Link::Gone(_) => None,
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
}

/// What is known of the whole line up to a step, folded forward so that reading it costs nothing.
#[derive(Clone, Default)]
pub(crate) struct Line {
    /// One more than the largest of the parents': every ancestor has a smaller one.
    pub(crate) generation: u64,
    /// How many chunks the line has, markers left out.
    pub(crate) chunks: u64,
    /// How many of its steps may have changed the workspace.
    pub(crate) changes: u64,
    /// What its model calls cost, each counted once.
    pub(crate) usage: Usage,
    /// Whose turn it is.
    pub(crate) turn: turn::State,
    /// Whether two branches meet anywhere on it.
    pub(crate) merged: bool,
}

impl Line {
    fn follow(&mut self, id: StepId, chunk: &Chunk, usage: Option<Usage>) {
        self.chunks = self.chunks.saturating_add(u64::from(!chunk.is_marker()));
        self.changes += u64::from(chunk.changes_workspace());
        self.usage += usage.unwrap_or_default();
        self.turn.follow(id, chunk);
    }

    fn follow_step(&mut self, step: &Step) {
        self.follow(step.id(), step.chunk(), step.stamp().usage);
    }
}

impl Step {
    /// The step that says `chunk` after `parents`.
    pub fn new(parents: Parents, chunk: Chunk, stamp: Stamp) -> Self {
        let mut json = Vec::with_capacity(256);
        chunk.encode(&mut json);
        Self::with_digest(parents, chunk, Digest::of(&json), None, stamp)
    }

    /// A step as it was read: `json` is the chunk's stored text, `chunk` what it was decoded to.
    pub fn stored(parents: Parents, chunk: Chunk, json: &str, stamp: Stamp) -> Self {
        let mut again = Vec::with_capacity(json.len());
        chunk.encode(&mut again);
        let kept = (again != json.as_bytes()).then(|| json.into());
        Self::with_digest(parents, chunk, Digest::of(json.as_bytes()), kept, stamp)
    }

    fn with_digest(parents: Parents, chunk: Chunk, digest: Digest, json: Option<Box<str>>, stamp: Stamp) -> Self {
        let id = match &parents {
            Parents::None => StepId::of(&[], digest),
            Parents::One(parent) => StepId::of(&[parent.id()], digest),
            Parents::Two([ours, theirs]) => StepId::of(&[ours.id(), theirs.id()], digest),
        };
        let line = line_after(&parents, id, &chunk, &stamp);
        Step(Arc::new(Node { id, parents, chunk, json, stamp, line }))
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

    /// The parent whose line comes first, of those that are here.
    pub(crate) fn first_parent(&self) -> Option<&Step> {
        self.parents().iter().find_map(Link::step)
    }

    /// The two parents of a merge, where both are here.
    pub(crate) fn joined(&self) -> Option<(&Step, &Step)> {
        match &self.0.parents {
            Parents::Two([Link::Step(ours), Link::Step(theirs)]) => Some((ours, theirs)),
            _ => None,
        }
    }

    /// How a merge joined its parents; every other step counts as an ordinary one.
    pub(crate) fn strategy(&self) -> Strategy {
        match self.chunk() {
            Chunk::Merged(Merged { strategy }) => *strategy,
            _ => Strategy::Ancestor,
        }
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

fn line_after(parents: &Parents, id: StepId, chunk: &Chunk, stamp: &Stamp) -> Line {
    let mut line = match parents.as_slice() {
        [Link::Step(ours), Link::Step(theirs)] => joined_line(ours, theirs, chunk),
        // With a parent lost, what is left is all that can be counted.
        links => links.iter().find_map(Link::step).map_or_else(Line::default, |parent| {
            let mut line = parent.line().clone();
            if let Chunk::Assistant(_) = chunk {
                line.turn.settle(parent);
            }
            line
        }),
    };
    line.generation += 1;
    line.follow(id, chunk, stamp.usage);
    line
}

/// Folds what only theirs has over ours. Costs the steps that differ, not the steps they share.
fn joined_line(ours: &Step, theirs: &Step, chunk: &Chunk) -> Line {
    let split = lineage::compare(ours, theirs);
    let mut line = ours.line().clone();
    for step in Order::part(theirs, split.theirs).collect() {
        line.follow_step(step);
    }
    if let Chunk::Merged(Merged { strategy: Strategy::Concat }) = chunk {
        line.chunks = ours.line().chunks.saturating_add(theirs.line().chunks);
    }
    line.generation = ours.line().generation.max(theirs.line().generation);
    line.merged = true;
    line
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
        Link::Gone(_) => None,
    }
}
