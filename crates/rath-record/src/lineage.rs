//! The graph of steps: reading order, ancestry, and the comparison of two heads.
//!
//! Nothing here recurses, and a walk visits every step once, so that a line of a million steps and a chain of diamonds
//! both take linear time.

use std::collections::{BinaryHeap, HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

use crate::chunk::Chunk;
use crate::id::{BranchId, StepId};
use crate::naming;
use crate::step::{Parent, Step};

/// A set of steps that are present, by id.
pub(crate) type StepSet = HashSet<StepId, BuildHasherDefault<IdHasher>>;

/// Uses the first bytes of a step id as its hash: the id is a hash already.
///
/// Only for ids of present steps, which were computed here. Ids that a file gives could be chosen to collide.
#[derive(Default)]
pub(crate) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        if let Some(first) = bytes.first_chunk() {
            self.0 = u64::from_le_bytes(*first);
        }
    }

    /// Ignores the length of an id, which is always the same.
    fn write_usize(&mut self, _: usize) {}

    fn finish(&self) -> u64 {
        self.0
    }
}

/// The lineage of one or more heads: everything that they descend from.
///
/// ```
/// use rath_record::chunk::Forked;
/// use rath_record::lineage::{Lineage, branches};
/// use rath_record::{BranchId, Chunk, Record, Stamp};
///
/// let mut ours = Record::new();
/// let first = ours.push(Chunk::user("Plan a trip"), Stamp::on(BranchId([1; 16]))).id();
/// let mut theirs = ours.clone();
/// theirs.push(Forked::new(1).with_name("sea".to_owned()).into(), Stamp::on(BranchId([2; 16])));
///
/// let lineage = Lineage::new([ours.head(), theirs.head()].into_iter().flatten().cloned());
/// assert_eq!(lineage.descendants(first).len(), 1);
/// let names: Vec<_> = branches(&lineage.walk()).into_iter().map(|branch| branch.name).collect();
/// assert_eq!(names, ["main", "sea"]);
/// ```
#[derive(Clone)]
pub struct Lineage {
    heads: Vec<Step>,
}

impl Lineage {
    /// Makes the lineage of `heads`.
    pub fn new(heads: impl IntoIterator<Item = Step>) -> Self {
        Lineage { heads: heads.into_iter().collect() }
    }

    /// The heads of the lineage.
    pub fn heads(&self) -> &[Step] {
        &self.heads
    }

    /// Returns every step once, parents before children, and at a merge ours before theirs.
    pub fn walk(&self) -> Vec<&Step> {
        ReadingOrder::each_once(self.heads.iter()).collect()
    }

    /// Returns the step with this id.
    pub fn find(&self, id: StepId) -> Option<&Step> {
        self.walk().into_iter().find(|step| step.id() == id)
    }

    /// Returns every step that `id` descends from, oldest first; nothing if there is no such step.
    pub fn ancestors(&self, id: StepId) -> Vec<&Step> {
        let Some(step) = self.find(id) else { return Vec::new() };
        let mut ancestors = ReadingOrder::each_once([step].into_iter()).collect();
        ancestors.pop();
        ancestors
    }

    /// Returns every step that descends from `id`, oldest first.
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

    /// Returns the ids of parents that are not present, because their rows were lost.
    pub fn missing(&self) -> Vec<StepId> {
        let mut seen = HashSet::new();
        let parents = self.walk().into_iter().flat_map(Step::parents);
        let missing = parents.filter(|parent| parent.step().is_none()).map(Parent::id);
        missing.filter(|id| seen.insert(*id)).collect()
    }
}

/// Returns the nearest common ancestor: of all common ancestors, the one furthest from the start.
///
/// See [`diff`] for an example.
pub fn common_ancestor<'a>(ours: &'a Step, theirs: &'a Step) -> Option<&'a Step> {
    compare(ours, theirs).base
}

/// Returns the nearest step that both heads have read: the base of a merge of their files.
///
/// It differs from the [`common_ancestor`] if that one is kept aside by a head.
///
/// ```
/// use rath_record::chunk::{Forked, Strategy};
/// use rath_record::{BranchId, Chunk, Record, Stamp, lineage};
///
/// let on = |branch| Stamp::on(BranchId([branch; 16]));
/// let mut ours = Record::new();
/// let first = ours.push(Chunk::user("Plan a trip"), on(1)).clone();
/// let mut theirs = ours.clone();
/// theirs.push(Forked::new(1).into(), on(2));
/// let ours = ours.merge(&theirs, Strategy::Aside, on(1))?;
///
/// let (ours, theirs) = (ours.head().unwrap(), theirs.head().unwrap());
/// assert_eq!(lineage::common_ancestor(ours, theirs), Some(theirs));
/// assert_eq!(lineage::merge_base(ours, theirs), Some(&first));
/// # Ok::<(), rath_record::MergeError>(())
/// ```
pub fn merge_base<'a>(ours: &'a Step, theirs: &'a Step) -> Option<&'a Step> {
    if !ours.totals().asides && !theirs.totals().asides {
        return common_ancestor(ours, theirs);
    }
    let theirs: StepSet = ReadingOrder::read_once(theirs).collect().into_iter().map(Step::id).collect();
    let common = ReadingOrder::read_once(ours).collect().into_iter().filter(|step| theirs.contains(&step.id()));
    common.max_by_key(|step| (step.totals().generation, step.id()))
}

/// Returns the steps that each of two heads has and the other has not.
///
/// ```
/// use rath_record::{BranchId, Chunk, Record, Stamp, lineage};
///
/// let mut ours = Record::new();
/// ours.push(Chunk::user("Plan a trip"), Stamp::on(BranchId([1; 16])));
/// let mut theirs = ours.clone();
/// ours.push(Chunk::user("to the sea"), Stamp::on(BranchId([1; 16])));
/// theirs.push(Chunk::user("to the hills"), Stamp::on(BranchId([2; 16])));
///
/// let (ours, theirs) = (ours.head().unwrap(), theirs.head().unwrap());
/// let diff = lineage::diff(ours, theirs);
/// assert_eq!((diff.ours, diff.theirs), (vec![ours], vec![theirs]));
/// assert_eq!(diff.base, lineage::common_ancestor(ours, theirs));
/// ```
pub fn diff<'a>(ours: &'a Step, theirs: &'a Step) -> Diff<'a> {
    let comparison = compare(ours, theirs);
    Diff {
        base: comparison.base,
        ours: ReadingOrder::subset(ours, comparison.ours.iter().map(|step| step.id()).collect()).collect(),
        theirs: ReadingOrder::subset(theirs, comparison.theirs).collect(),
    }
}

/// The difference between two heads.
///
/// Returned by [`diff`].
pub struct Diff<'a> {
    /// The nearest common ancestor.
    pub base: Option<&'a Step>,
    /// The steps that only the first head has, oldest first.
    pub ours: Vec<&'a Step>,
    /// The steps that only the second head has, oldest first.
    pub theirs: Vec<&'a Step>,
}

/// A branch of a lineage.
///
/// Returned by [`branches`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Branch<'a> {
    /// The stable id.
    pub id: BranchId,
    /// The name given to the branch; without one, `main` for the first branch and `b` with its number for others.
    pub name: String,
    /// The first step of the branch.
    pub first: &'a Step,
    /// The newest step of the branch.
    pub head: &'a Step,
}

/// Returns the branches that the steps of a walk belong to, in order of appearance.
///
/// A walk that continues a shorter one gives the branches of the shorter one the same names.
///
/// See [`Lineage`] for an example.
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
        let given_name = match step.chunk() {
            Chunk::Forked(forked) => forked.name.clone(),
            _ => None,
        };
        let name = given_name.unwrap_or_else(|| if nth == 0 { "main".to_owned() } else { format!("b{nth}") });
        let name = naming::make_unique(&mut names, name);
        index.insert(id, nth);
        branches.push(Branch { id, name, first: step, head: step });
    }
    branches
}

/// The steps that two heads share, and those that they do not.
pub(crate) struct Comparison<'a> {
    pub(crate) base: Option<&'a Step>,
    /// The steps that only ours has, in no particular order.
    pub(crate) ours: Vec<&'a Step>,
    /// The steps that only theirs has.
    pub(crate) theirs: StepSet,
    /// The number of steps that were visited.
    visited: usize,
}

/// Walks back from both heads until all steps that are left are known to be shared.
///
/// Steps are taken by descending generation: when a step is taken, all its descendants have been, so it is final which
/// sides it belongs to. The cost is the number of steps that differ; the shared history is not visited.
pub(crate) fn compare<'a>(ours: &'a Step, theirs: &'a Step) -> Comparison<'a> {
    // After a lost row generations start again from zero, so they do not order the steps.
    if ours.totals().gap || theirs.totals().gap {
        return compare_fully(ours, theirs);
    }
    let mut comparison = Comparison { base: None, ours: Vec::new(), theirs: StepSet::default(), visited: 0 };
    let mut frontier = Frontier::default();
    frontier.mark(ours, Sides::OURS);
    frontier.mark(theirs, Sides::THEIRS);
    while frontier.undecided > 0 {
        let Some((step, sides)) = frontier.pop() else { break };
        match sides {
            Sides::OURS => comparison.ours.push(step),
            Sides::THEIRS => _ = comparison.theirs.insert(step.id()),
            _ => comparison.base = comparison.base.or(Some(step)),
        }
        for parent in step.parents().iter().filter_map(Parent::step) {
            frontier.mark(parent, sides);
        }
    }
    comparison.base = comparison.base.or_else(|| frontier.pop().map(|(step, _)| step));
    comparison.visited = frontier.sides.len();
    comparison
}

/// Compares two heads by walking all of both.
fn compare_fully<'a>(ours: &'a Step, theirs: &'a Step) -> Comparison<'a> {
    let walk = |head: &'a Step| ReadingOrder::each_once([head].into_iter()).collect();
    let (our_steps, their_steps) = (walk(ours), walk(theirs));
    let ids = |steps: &[&Step]| steps.iter().map(|step| step.id()).collect::<StepSet>();
    let (our_ids, their_ids) = (ids(&our_steps), ids(&their_steps));
    let shared = our_steps.iter().copied().filter(|step| their_ids.contains(&step.id()));
    Comparison {
        base: shared.max_by_key(|step| (step.totals().generation, step.id())),
        ours: our_steps.iter().copied().filter(|step| !their_ids.contains(&step.id())).collect(),
        theirs: their_ids.difference(&our_ids).copied().collect(),
        visited: our_steps.len() + their_steps.len(),
    }
}

/// Returns whether the reading order of `longer` begins with that of `shorter`.
pub(crate) fn has_prefix(longer: &Step, shorter: &Step) -> bool {
    let is_later = |step: &&Step| step.totals().generation >= shorter.totals().generation;
    let mut first_parents = std::iter::successors(Some(longer), |step| step.first_parent()).take_while(is_later);
    first_parents.any(|step| step.id() == shorter.id())
}

/// The set of sides that a step is known to belong to.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Sides(u8);

impl Sides {
    const OURS: Sides = Sides(1);
    const THEIRS: Sides = Sides(2);
    const BOTH: Sides = Sides(3);
}

/// The steps that a walk back from two heads has reached and not yet taken.
#[derive(Default)]
struct Frontier<'a> {
    queue: BinaryHeap<QueuedStep<'a>>,
    sides: HashMap<StepId, Sides, BuildHasherDefault<IdHasher>>,
    /// The number of queued steps that belong to one side only.
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
            self.queue.push(QueuedStep { key: (step.totals().generation, step.id()), step });
            self.undecided += usize::from(after != Sides::BOTH);
        } else {
            self.undecided -= 1;
        }
    }

    fn pop(&mut self) -> Option<(&'a Step, Sides)> {
        let QueuedStep { step, .. } = self.queue.pop()?;
        let sides = self.sides[&step.id()];
        self.undecided -= usize::from(sides != Sides::BOTH);
        Some((step, sides))
    }
}

/// A step in the queue: the highest generation first, ties by id, so that the order does not depend on which side is
/// ours.
struct QueuedStep<'a> {
    key: (u64, StepId),
    step: &'a Step,
}

impl PartialEq for QueuedStep<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl Eq for QueuedStep<'_> {}

impl PartialOrd for QueuedStep<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for QueuedStep<'_> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key.cmp(&other.key)
    }
}

/// The order in which a record is read: parents before children; at a merge all of ours, then the steps that only
/// theirs has.
///
/// A merge therefore only appends to what ours has read, which keeps a provider's prompt cache valid. Because later
/// steps never move earlier ones, nesting merges one way or the other gives the same order: this is why every view is
/// associative.
///
/// Branches that are kept aside are skipped in the reading order of a line, and included where every step is wanted.
pub(crate) struct ReadingOrder<'a> {
    tasks: Vec<Task<'a>>,
    only: Option<StepSet>,
    asides: Asides,
}

/// Tells whether branches that are kept aside are walked.
#[derive(Clone, Copy, PartialEq)]
enum Asides {
    Skipped,
    Included,
}

/// Tells whether a concatenating merge shows shared steps twice.
#[derive(Clone, Copy, PartialEq)]
enum Repeats {
    Shown,
    Hidden,
}

enum Task<'a> {
    /// Emit the line up to this step, then the step.
    Visit(&'a Step, Repeats),
    /// Emit the step; its parents have been emitted.
    Emit(&'a Step),
    /// Start a new set of emitted steps, so that earlier ones are emitted again.
    PushEmitted,
    /// Join the newest set of emitted steps with the one before.
    PopEmitted,
}

impl<'a> ReadingOrder<'a> {
    /// Walks the line that ends at `head` in reading order.
    pub(crate) fn new(head: &'a Step) -> Self {
        ReadingOrder { tasks: vec![Task::Visit(head, Repeats::Shown)], only: None, asides: Asides::Skipped }
    }

    /// Walks every step behind `heads` once, even if merges repeat it, including branches kept aside.
    pub(crate) fn each_once(heads: impl DoubleEndedIterator<Item = &'a Step>) -> Self {
        let tasks = heads.rev().map(|head| Task::Visit(head, Repeats::Hidden));
        ReadingOrder { tasks: tasks.collect(), only: None, asides: Asides::Included }
    }

    /// Walks the steps that are read on the line that ends at `head`, each once.
    pub(crate) fn read_once(head: &'a Step) -> Self {
        ReadingOrder { tasks: vec![Task::Visit(head, Repeats::Hidden)], only: None, asides: Asides::Skipped }
    }

    /// Walks the steps of `head`'s line that are in `steps`, each once.
    ///
    /// With a step, `steps` must hold its descendants on the line, as the sides of a [`Comparison`] do.
    pub(crate) fn subset(head: &'a Step, steps: StepSet) -> Self {
        ReadingOrder { tasks: vec![Task::Visit(head, Repeats::Hidden)], only: Some(steps), asides: Asides::Included }
    }

    /// Returns the steps in order.
    pub(crate) fn collect(mut self) -> Vec<&'a Step> {
        if let [Task::Visit(head, _)] = self.tasks[..]
            && self.only.is_none()
            && !head.totals().merged
            && (self.asides == Asides::Skipped || !head.totals().asides)
        {
            return unmerged_line(head);
        }
        let mut out = Vec::new();
        // One set for the whole, and one more for each `PushEmitted` without its `PopEmitted`.
        let mut emitted_sets = vec![StepSet::default()];
        while let Some(task) = self.tasks.pop() {
            let emitted = emitted_sets.last_mut().expect("every `PopEmitted` has its `PushEmitted`");
            match task {
                Task::Visit(step, repeats) => {
                    if self.only.as_ref().is_some_and(|only| !only.contains(&step.id())) || !emitted.insert(step.id()) {
                        continue;
                    }
                    self.tasks.push(Task::Emit(step));
                    match (step.merged_parents(), repeats, step.totals().repeats) {
                        (Some((ours, theirs)), Repeats::Shown, true) => self.tasks.extend([
                            Task::PopEmitted,
                            Task::Visit(theirs, Repeats::Shown),
                            Task::PushEmitted,
                            Task::Visit(ours, Repeats::Shown),
                        ]),
                        (Some((ours, theirs)), _, _) => {
                            self.tasks.extend([Task::Visit(theirs, Repeats::Hidden), Task::Visit(ours, repeats)]);
                        }
                        (None, _, _) => {
                            let aside = step.aside_head().filter(|_| self.asides == Asides::Included);
                            self.tasks.extend(aside.map(|aside| Task::Visit(aside, Repeats::Hidden)));
                            self.tasks.extend(step.first_parent().map(|parent| Task::Visit(parent, repeats)));
                        }
                    }
                }
                Task::Emit(step) => out.push(step),
                Task::PushEmitted => emitted_sets.push(StepSet::default()),
                Task::PopEmitted => {
                    let newest = emitted_sets.pop().unwrap_or_default();
                    emitted_sets.last_mut().expect("every `PopEmitted` has its `PushEmitted`").extend(newest);
                }
            }
        }
        out
    }
}

/// Returns the steps that are read on their line and not on ours, oldest first.
pub(crate) fn read_by_theirs_only<'a>(ours: &Step, theirs: &'a Step) -> Vec<&'a Step> {
    if !ours.totals().asides && !theirs.totals().asides {
        let only = compare(ours, theirs).theirs;
        return ReadingOrder::subset(theirs, only).collect();
    }
    // Theirs may read what ours keeps aside, and neither may read a step that both have, so all steps are visited.
    let ours: StepSet = ReadingOrder::read_once(ours).collect().into_iter().map(Step::id).collect();
    ReadingOrder::read_once(theirs).collect().into_iter().filter(|step| !ours.contains(&step.id())).collect()
}

/// Returns the line of a head that has no merge of two branches.
fn unmerged_line(head: &Step) -> Vec<&Step> {
    // The totals of a stored step are no more than what its store says.
    let mut out = Vec::with_capacity(usize::try_from(head.totals().generation).unwrap_or_default().min(1 << 16));
    out.extend(std::iter::successors(Some(head), |step| step.first_parent()));
    out.reverse();
    out
}

/// The reading order backwards, computed on demand: the last steps of a long line cost only themselves.
///
/// Returned by [`Record::newest_first`](crate::Record::newest_first).
pub struct NewestFirst<'a> {
    /// The merge that was returned last. The steps before it are found when they are asked for.
    merge: Option<&'a Step>,
    /// The steps that a merge added, oldest first: they come before `next`.
    rest: Vec<&'a Step>,
    next: Option<&'a Step>,
    /// The heads of the lines before the one that is walked, the nearest last: a merge that repeats shared steps reads two
    /// whole lines, one after the other.
    lines_before: Vec<&'a Step>,
    returned: usize,
    /// The number of steps that comparisons at merges visited.
    visited: usize,
}

/// The number of steps that a backward walk may visit beyond those it returns, before it reads the line forwards
/// instead.
const MAX_EXTRA_VISITS: usize = 1 << 12;

impl<'a> NewestFirst<'a> {
    pub(crate) fn new(head: Option<&'a Step>) -> Self {
        NewestFirst { merge: None, rest: Vec::new(), next: head, lines_before: Vec::new(), returned: 0, visited: 0 }
    }

    /// Returns the step before a merge, and queues the steps that the merge added.
    fn step_before_merge(&mut self, step: &'a Step, ours: &'a Step, theirs: &'a Step) -> Option<&'a Step> {
        if step.totals().repeats {
            self.lines_before.push(ours);
            return Some(theirs);
        }
        // A few merges are compared one by one. With very many each comparison would visit the merges before it, and
        // with branches kept aside each would visit everything.
        if self.visited > self.returned + MAX_EXTRA_VISITS || step.totals().asides {
            self.rest = ReadingOrder::new(step).collect();
            self.rest.pop();
            return None;
        }
        let comparison = compare(ours, theirs);
        self.visited += comparison.visited;
        self.rest = ReadingOrder::subset(theirs, comparison.theirs).collect();
        Some(ours)
    }
}

impl<'a> Iterator for NewestFirst<'a> {
    type Item = &'a Step;

    fn next(&mut self) -> Option<&'a Step> {
        self.returned += 1;
        if let Some(merge) = self.merge.take()
            && let Some((ours, theirs)) = merge.merged_parents()
        {
            self.next = self.step_before_merge(merge, ours, theirs);
        }
        if let Some(step) = self.rest.pop() {
            return Some(step);
        }
        let step = self.next.or_else(|| self.lines_before.pop())?;
        match step.merged_parents() {
            Some(_) => self.merge = Some(step),
            None => self.next = step.first_parent(),
        }
        Some(step)
    }
}
