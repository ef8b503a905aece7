//! The graph of steps: order, ancestry, and what two heads have in common.
//!
//! Nothing here recurses, and a walk visits every step once, so a line of a million steps and a chain of diamonds both
//! take linear time.

use std::collections::{BinaryHeap, HashMap, HashSet};
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};

use crate::chunk::Chunk;
use crate::draw;
use crate::id::{BranchId, StepId};
use crate::naming;
use crate::step::{Link, Step};

/// A set of steps that are here, by name.
pub(crate) type StepSet = HashSet<StepId, BuildHasherDefault<IdHasher>>;

/// Takes the first bytes of a step's name for its hash: it is one already.
///
/// Only for names of steps that are here, which were computed. Names that a file gives could be chosen to collide.
#[derive(Default)]
pub(crate) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        if let Some(first) = bytes.first_chunk() {
            self.0 = u64::from_le_bytes(*first);
        }
    }

    /// The length of a name, which is always the same.
    fn write_usize(&mut self, _: usize) {}

    fn finish(&self) -> u64 {
        self.0
    }
}

/// The lineage of one or more heads: everything they descend from.
#[derive(Clone)]
pub struct Lineage {
    heads: Vec<Step>,
}

impl Lineage {
    /// The lineage of `heads`.
    pub fn of(heads: impl IntoIterator<Item = Step>) -> Self {
        Lineage { heads: heads.into_iter().collect() }
    }

    /// The heads it was made of.
    pub fn heads(&self) -> &[Step] {
        &self.heads
    }

    /// Every step once, parents before children, a merge's ours before its theirs.
    pub fn walk(&self) -> Vec<&Step> {
        Order::once(self.heads.iter()).collect()
    }

    /// The step with this id.
    pub fn find(&self, id: StepId) -> Option<&Step> {
        self.walk().into_iter().find(|step| step.id() == id)
    }

    /// Every step that `id` descends from, oldest first. Empty where there is no such step.
    pub fn ancestors(&self, id: StepId) -> Vec<&Step> {
        let Some(step) = self.find(id) else { return Vec::new() };
        let mut ancestors = Order::once([step].into_iter()).collect();
        ancestors.pop();
        ancestors
    }

    /// Every step that descends from `id`, oldest first.
    pub fn descendants(&self, id: StepId) -> Vec<&Step> {
        let mut line = HashSet::from([id]);
        let mut descendants = Vec::new();
        for step in self.walk() {
            if step.parents().iter().any(|parent| line.contains(&parent.id())) {
                line.insert(step.id());
                descendants.push(step);
            }
        }
        descendants
    }

    /// The steps that are named as parents and not here, because their rows were lost.
    pub fn missing(&self) -> Vec<StepId> {
        let mut seen = HashSet::new();
        let links = self.walk().into_iter().flat_map(Step::parents);
        let gone = links.filter(|link| link.step().is_none()).map(Link::id);
        gone.filter(|id| seen.insert(*id)).collect()
    }
}

/// The graph as text, newest first.
impl fmt::Display for Lineage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(draw::graph(self).trim_end())
    }
}

impl fmt::Debug for Lineage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Returns the nearest step that both descend from: of all that qualify, the one furthest from the start.
pub fn common_ancestor<'a>(ours: &'a Step, theirs: &'a Step) -> Option<&'a Step> {
    compare(ours, theirs).base
}

/// Says what each of two heads has that the other has not.
pub fn diff<'a>(ours: &'a Step, theirs: &'a Step) -> Diff<'a> {
    let split = compare(ours, theirs);
    Diff {
        base: split.base,
        ours: Order::part(ours, split.ours.iter().map(|step| step.id()).collect()).collect(),
        theirs: Order::part(theirs, split.theirs).collect(),
    }
}

/// What each of two heads has that the other has not.
pub struct Diff<'a> {
    /// The nearest step both descend from.
    pub base: Option<&'a Step>,
    /// What only the first has, oldest first.
    pub ours: Vec<&'a Step>,
    /// What only the second has, oldest first.
    pub theirs: Vec<&'a Step>,
}

/// One branch, as the record tells it.
#[derive(Clone, Debug)]
pub struct Branch<'a> {
    /// Its stable id.
    pub id: BranchId,
    /// The name its maker gave it, `main` for the first, and otherwise `b` with its place among the branches.
    pub name: String,
    /// The step that opened it.
    pub first: &'a Step,
    /// Its newest step.
    pub head: &'a Step,
}

/// The branches that steps in `walk` order belong to, in order of appearance.
///
/// A longer walk that begins with a shorter one gives the branches of the shorter one the same names.
pub fn branches<'a>(walk: &[&'a Step]) -> Vec<Branch<'a>> {
    let mut index: HashMap<BranchId, usize> = HashMap::new();
    let mut names: HashMap<String, u64> = HashMap::new();
    let mut branches: Vec<Branch<'a>> = Vec::new();
    for step in walk {
        let id = step.stamp().branch;
        if let Some(&at) = index.get(&id) {
            branches[at].head = step;
            continue;
        }
        let nth = branches.len();
        let given = match step.chunk() {
            Chunk::Forked(forked) => forked.name.clone(),
            _ => None,
        };
        let name = given.unwrap_or_else(|| if nth == 0 { "main".to_owned() } else { format!("b{nth}") });
        let name = naming::unique(&mut names, name);
        index.insert(id, nth);
        branches.push(Branch { id, name, first: step, head: step });
    }
    branches
}

/// What two heads share and what they do not.
pub(crate) struct Split<'a> {
    pub(crate) base: Option<&'a Step>,
    /// What only ours has, in no order worth knowing.
    pub(crate) ours: Vec<&'a Step>,
    /// What only theirs has.
    pub(crate) theirs: StepSet,
    /// How many steps were looked at to find out.
    visited: usize,
}

/// Walks back from both heads until everything left is known to be shared.
///
/// Steps are taken by falling generation, so when one is taken all its descendants have been, and which side it
/// belongs to is final. The cost is the steps that differ; the shared line below is not touched.
pub(crate) fn compare<'a>(ours: &'a Step, theirs: &'a Step) -> Split<'a> {
    // Behind a lost row generations start anew, so a step may have two of them.
    if ours.line().gap || theirs.line().gap {
        return compare_whole(ours, theirs);
    }
    let mut split = Split { base: None, ours: Vec::new(), theirs: StepSet::default(), visited: 0 };
    let mut frontier = Frontier::default();
    frontier.mark(ours, Sides::OURS);
    frontier.mark(theirs, Sides::THEIRS);
    while frontier.undecided > 0 {
        let Some((step, sides)) = frontier.take() else { break };
        match sides {
            Sides::OURS => split.ours.push(step),
            Sides::THEIRS => _ = split.theirs.insert(step.id()),
            _ => split.base = split.base.or(Some(step)),
        }
        for parent in step.parents().iter().filter_map(Link::step) {
            frontier.mark(parent, sides);
        }
    }
    split.base = split.base.or_else(|| frontier.take().map(|(step, _)| step));
    split.visited = frontier.sides.len();
    split
}

/// The same by walking all of both.
fn compare_whole<'a>(ours: &'a Step, theirs: &'a Step) -> Split<'a> {
    let walk = |head: &'a Step| Order::once([head].into_iter()).collect();
    let (our_steps, their_steps) = (walk(ours), walk(theirs));
    let ids = |steps: &[&Step]| steps.iter().map(|step| step.id()).collect::<StepSet>();
    let (our_ids, their_ids) = (ids(&our_steps), ids(&their_steps));
    let shared = our_steps.iter().copied().filter(|step| their_ids.contains(&step.id()));
    Split {
        base: shared.max_by_key(|step| (step.line().generation, step.id())),
        ours: our_steps.iter().copied().filter(|step| !their_ids.contains(&step.id())).collect(),
        theirs: their_ids.difference(&our_ids).copied().collect(),
        visited: our_steps.len() + their_steps.len(),
    }
}

/// Whether the reading order of `longer` begins with that of `shorter`.
pub(crate) fn begins_with(longer: &Step, shorter: &Step) -> bool {
    let ends_later = |step: &&Step| step.line().generation >= shorter.line().generation;
    let mut ends = std::iter::successors(Some(longer), |step| step.first_parent()).take_while(ends_later);
    ends.any(|step| step.id() == shorter.id())
}

/// Whether everything behind `part` is behind `whole` too.
pub(crate) fn contains(whole: &Step, part: &Step) -> bool {
    compare(whole, part).theirs.is_empty()
}

/// The sides that a step is known to belong to.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Sides(u8);

impl Sides {
    const OURS: Sides = Sides(1);
    const THEIRS: Sides = Sides(2);
    const BOTH: Sides = Sides(3);
}

/// The steps that a walk back from two heads has reached and not yet passed.
#[derive(Default)]
struct Frontier<'a> {
    queue: BinaryHeap<Queued<'a>>,
    sides: HashMap<StepId, Sides, BuildHasherDefault<IdHasher>>,
    /// How many queued steps belong to one side only.
    undecided: usize,
}

impl<'a> Frontier<'a> {
    fn mark(&mut self, step: &'a Step, sides: Sides) {
        let before = self.sides.get(&step.id()).copied();
        let after = Sides(before.map_or(0, |before| before.0) | sides.0);
        if before == Some(after) {
            return;
        }
        self.sides.insert(step.id(), after);
        if before.is_none() {
            self.queue.push(Queued { key: (step.line().generation, step.id()), step });
            self.undecided += usize::from(after != Sides::BOTH);
        } else {
            self.undecided -= 1;
        }
    }

    fn take(&mut self) -> Option<(&'a Step, Sides)> {
        let Queued { step, .. } = self.queue.pop()?;
        let sides = self.sides[&step.id()];
        self.undecided -= usize::from(sides != Sides::BOTH);
        Some((step, sides))
    }
}

/// A step that waits for its turn: the furthest from the start first, ties by id so that both ways round agree.
struct Queued<'a> {
    key: (u64, StepId),
    step: &'a Step,
}

impl PartialEq for Queued<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl Eq for Queued<'_> {}

impl PartialOrd for Queued<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Queued<'_> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key.cmp(&other.key)
    }
}

/// The order in which a record is read: parents before children; at a merge all of ours, then what only theirs has.
///
/// Merging therefore appends to what ours already said, which is what keeps a provider's prompt cache warm. And
/// because what comes later in the order never moves what came before, nesting merges one way or the other gives the
/// same order: that is why every view is associative.
///
/// What is kept aside is passed over where a line is read, and given where every step is wanted.
pub(crate) struct Order<'a> {
    tasks: Vec<Task<'a>>,
    only: Option<StepSet>,
    wanted: Wanted,
}

#[derive(Clone, Copy, PartialEq)]
enum Wanted {
    /// Only what is read.
    Read,
    /// What is kept aside too.
    All,
}

/// Whether a concatenating merge shows what both its sides have twice, as it was asked to.
#[derive(Clone, Copy, PartialEq)]
enum Repeats {
    Shown,
    Hidden,
}

enum Task<'a> {
    /// Emit the line of this step, then the step.
    Visit(&'a Step, Repeats),
    /// Its parents are out: emit it.
    Emit(&'a Step),
    /// Forget for a while what was emitted before.
    Again,
    /// Remember it.
    Enough,
}

impl<'a> Order<'a> {
    /// The reading order of the line that ends at `head`.
    pub(crate) fn of(head: &'a Step) -> Self {
        Order { tasks: vec![Task::Visit(head, Repeats::Shown)], only: None, wanted: Wanted::Read }
    }

    /// Every step behind `heads` once, whatever the merges on the way repeat.
    pub(crate) fn once(heads: impl DoubleEndedIterator<Item = &'a Step>) -> Self {
        let tasks = heads.rev().map(|head| Task::Visit(head, Repeats::Hidden));
        Order { tasks: tasks.collect(), only: None, wanted: Wanted::All }
    }

    /// What is read on the line that ends at `head`, each step once.
    fn read_once(head: &'a Step) -> Vec<&'a Step> {
        Order { tasks: vec![Task::Visit(head, Repeats::Hidden)], only: None, wanted: Wanted::Read }.collect()
    }

    /// The part of `head`'s line that is in `steps`, each step once. With a step `steps` holds its descendants on the
    /// line, as the sides of a [`Split`] do.
    pub(crate) fn part(head: &'a Step, steps: StepSet) -> Self {
        Order { tasks: vec![Task::Visit(head, Repeats::Hidden)], only: Some(steps), wanted: Wanted::All }
    }

    /// The steps, in order.
    pub(crate) fn collect(mut self) -> Vec<&'a Step> {
        if let [Task::Visit(head, _)] = self.tasks[..]
            && self.only.is_none()
            && !head.line().merged
            && (self.wanted == Wanted::Read || !head.line().asides)
        {
            return straight(head);
        }
        let mut out = Vec::new();
        // One set for each `Again` that waits for its `Enough`, and one for the whole.
        let mut seen = vec![StepSet::default()];
        while let Some(task) = self.tasks.pop() {
            let emitted = seen.last_mut().expect("every `Enough` has its `Again`");
            match task {
                Task::Visit(step, repeats) => {
                    if self.only.as_ref().is_some_and(|only| !only.contains(&step.id())) || !emitted.insert(step.id()) {
                        continue;
                    }
                    self.tasks.push(Task::Emit(step));
                    match (step.joined(), repeats, step.line().repeats) {
                        (Some((ours, theirs)), Repeats::Shown, true) => self.tasks.extend([
                            Task::Enough,
                            Task::Visit(theirs, Repeats::Shown),
                            Task::Again,
                            Task::Visit(ours, Repeats::Shown),
                        ]),
                        (Some((ours, theirs)), _, _) => {
                            self.tasks.extend([Task::Visit(theirs, Repeats::Hidden), Task::Visit(ours, repeats)]);
                        }
                        (None, _, _) => {
                            let aside = step.kept_aside().filter(|_| self.wanted == Wanted::All);
                            self.tasks.extend(aside.map(|aside| Task::Visit(aside, Repeats::Hidden)));
                            self.tasks.extend(step.first_parent().map(|parent| Task::Visit(parent, repeats)));
                        }
                    }
                }
                Task::Emit(step) => out.push(step),
                Task::Again => seen.push(StepSet::default()),
                Task::Enough => {
                    let again = seen.pop().unwrap_or_default();
                    seen.last_mut().expect("every `Enough` has its `Again`").extend(again);
                }
            }
        }
        out
    }
}

/// What is read on their line and not on ours, oldest first, where something was kept aside on either.
///
/// What ours keeps aside theirs may read, and what both have may be read by neither: only a look at all of it tells.
pub(crate) fn read_by_theirs_only<'a>(ours: &Step, theirs: &'a Step) -> Vec<&'a Step> {
    let ours: StepSet = Order::read_once(ours).into_iter().map(Step::id).collect();
    Order::read_once(theirs).into_iter().filter(|step| !ours.contains(&step.id())).collect()
}

/// The line of a head on which no two branches are read together.
fn straight(head: &Step) -> Vec<&Step> {
    let mut out = Vec::with_capacity(usize::try_from(head.line().generation).unwrap_or_default());
    out.extend(std::iter::successors(Some(head), |step| step.first_parent()));
    out.reverse();
    out
}

/// The reading order backwards, as far as it is asked for: the last turns of a long line cost only themselves.
pub struct Newest<'a> {
    next: Option<&'a Step>,
    /// What stands before `next`, oldest first: what a merge brought in.
    rest: Vec<&'a Step>,
    given: usize,
    /// How many steps were looked at to find out what merges brought in.
    visited: usize,
}

/// How many steps a backward walk may look at beyond those it gives, before it reads the line forwards instead.
const LOOKED_AT: usize = 1 << 12;

impl<'a> Newest<'a> {
    pub(crate) fn of(head: Option<&'a Step>) -> Self {
        Newest { next: head, rest: Vec::new(), given: 0, visited: 0 }
    }

    /// What comes before a merge.
    fn before(&mut self, step: &'a Step, ours: &'a Step, theirs: &'a Step) -> Option<&'a Step> {
        if step.line().repeats {
            self.rest = Order::of(theirs).collect();
            return Some(ours);
        }
        // A few merges are best looked into one by one; very many would each look through those before, and where something
        // was kept aside each would look through everything.
        if self.visited > self.given + LOOKED_AT || step.line().asides {
            self.rest = Order::of(step).collect();
            self.rest.pop();
            return None;
        }
        let split = compare(ours, theirs);
        self.visited += split.visited;
        self.rest = Order::part(theirs, split.theirs).collect();
        Some(ours)
    }
}

impl<'a> Iterator for Newest<'a> {
    type Item = &'a Step;

    fn next(&mut self) -> Option<&'a Step> {
        self.given += 1;
        if let Some(step) = self.rest.pop() {
            return Some(step);
        }
        let step = self.next?;
        self.next = match step.joined() {
            Some((ours, theirs)) => self.before(step, ours, theirs),
            None => step.first_parent(),
        };
        Some(step)
    }
}
