//! What a model sees.

use std::collections::{HashMap, HashSet};

use crate::chunk::{Assistant, Call, Chunk, Compressed, Instructions, MemoryEvent, Recalled, ToolResult, User};
use crate::id::{CallId, StepId};
use crate::lineage;
use crate::naming;
use crate::pairing::Waiting;
use crate::payload::Text;
use crate::record::Record;
use crate::step::Step;

/// What a model sees of a record.
///
/// A call and its result are one value here, so no view can hold one without the other.
#[derive(Clone, Debug, PartialEq)]
pub struct Messages<'a> {
    /// The head it reflects.
    pub head: Option<StepId>,
    /// The newest instructions on our side of every merge: what theirs was told is not what ours is told. Where ours has
    /// none, the newest of all.
    pub instructions: Option<(&'a Step, &'a Instructions)>,
    /// The conversation.
    pub list: Vec<Message<'a>>,
    /// What whoever goes on from it has to know.
    pub carry: Carry,
}

/// One message, with the step it comes from, whose stamp says on which branch it was said.
#[derive(Clone, Debug, PartialEq)]
pub enum Message<'a> {
    /// The user speaks.
    User(&'a Step, &'a User),
    /// A memory gave this back. It is data: never sent as system.
    Recalled(&'a Step, &'a [Recalled]),
    /// A summary stands for what it hides.
    Summary(&'a Step, &'a Text),
    /// The model answered, and this came of its calls.
    Assistant(&'a Step, &'a Assistant, Vec<Exchange<'a>>),
}

impl<'a> Message<'a> {
    /// The step it comes from.
    pub fn step(&self) -> &'a Step {
        match self {
            Message::User(step, _)
            | Message::Recalled(step, _)
            | Message::Summary(step, _)
            | Message::Assistant(step, ..) => step,
        }
    }
}

/// A call and what closed it.
#[derive(Clone, Debug, PartialEq)]
pub struct Exchange<'a> {
    /// The call's name, unique in the view: providers refuse a request that uses one twice.
    pub id: CallId,
    /// The call.
    pub call: &'a Call,
    /// What closed it.
    pub closing: Closing<'a>,
}

/// What closed a call.
#[derive(Clone, Debug, PartialEq)]
pub enum Closing<'a> {
    /// Its result.
    Result(&'a ToolResult),
    /// Nothing was recorded: the model is to be told so.
    Nothing,
}

/// What a model sees of `record`.
pub fn messages(record: &Record) -> Messages<'_> {
    let steps = record.steps();
    let folds = Folds::of(&steps);
    let mut seen = Seen::default();
    for (at, step) in steps.iter().enumerate() {
        for (fold, compressed) in folds.at(at) {
            seen.list.push(Message::Summary(fold, &compressed.summary));
        }
        seen.follow(step, folds.hidden.contains(&step.id()));
    }
    let instructions = newest_instructions(&steps, &folds.hidden);
    Messages { head: record.head().map(Step::id), instructions, list: seen.list, carry: Carry { ids: seen.ids } }
}

/// What a model sees of the steps that are read after a head at which no call was open; `carry` is from the view there.
///
/// `None` where more than the end of the view changes: instructions are given or steps hidden.
pub fn messages_after<'a>(steps: &[&'a Step], carry: Carry) -> Option<(Vec<Message<'a>>, Carry)> {
    let mut seen = Seen { ids: carry.ids, ..Seen::default() };
    for step in steps {
        if matches!(step.chunk(), Chunk::Instructions(_) | Chunk::Compressed(_)) {
            return None;
        }
        seen.follow(step, false);
    }
    Some((seen.list, Carry { ids: seen.ids }))
}

/// What has to be known of a view to go on from it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Carry {
    /// The names of its calls, with how often each was asked for.
    ids: HashMap<CallId, u64>,
}

/// What a model that goes on from `record` is told.
pub fn instructions(record: &Record) -> Option<(&Step, &Instructions)> {
    let steps = record.steps();
    newest_instructions(&steps, &Folds::of(&steps).hidden)
}

/// Our newest instructions; where there are none, the newest of all.
fn newest_instructions<'a>(steps: &[&'a Step], hidden: &HashSet<StepId>) -> Option<(&'a Step, &'a Instructions)> {
    let visible = |step: &'a Step| match step.chunk() {
        Chunk::Instructions(instructions) if !hidden.contains(&step.id()) => Some((step, instructions)),
        _ => None,
    };
    let mut ours = std::iter::successors(steps.last().copied(), |step| our_side(step));
    ours.find_map(visible).or_else(|| steps.iter().rev().copied().find_map(visible))
}

/// The side that a step goes on from. Of a merge that is ours, unless theirs is ours and more: merging sessions one way or
/// the other must show the same, and this way round ours would just have been theirs.
fn our_side(step: &Step) -> Option<&Step> {
    let Some((ours, mut theirs)) = step.joined() else { return step.first_parent() };
    while let Some((first, second)) = theirs.joined()
        && lineage::contains(ours, first)
    {
        theirs = second;
    }
    Some(if lineage::begins_with(theirs, ours) { theirs } else { ours })
}

/// Which steps are hidden, and where what stands for them goes.
struct Folds<'a> {
    hidden: HashSet<StepId>,
    /// The summaries that stand before each place.
    summaries: HashMap<usize, Vec<(&'a Step, &'a Compressed)>>,
}

impl<'a> Folds<'a> {
    fn of(steps: &[&'a Step]) -> Self {
        let compressed = || {
            steps.iter().enumerate().filter_map(|(at, step)| match step.chunk() {
                Chunk::Compressed(compressed) => Some((at, *step, compressed)),
                _ => None,
            })
        };
        // What is hidden stays hidden when a later summary hides the one that hid it. Only what is read before a summary
        // can be hidden by it: what a merge brings in later must not change what was shown before.
        let named: HashSet<StepId> = compressed().flat_map(|(_, _, compressed)| &compressed.hidden).copied().collect();
        let mut first: HashMap<StepId, usize> = HashMap::new();
        if !named.is_empty() {
            for (at, step) in steps.iter().enumerate().filter(|(_, step)| named.contains(&step.id())) {
                first.entry(step.id()).or_insert(at);
            }
        }
        let before = |id: &&StepId, at: usize| first.get(id).is_some_and(|first| *first < at);
        let hidden: HashSet<StepId> = compressed()
            .flat_map(|(at, _, compressed)| compressed.hidden.iter().filter(move |id| before(id, at)))
            .copied()
            .collect();
        let mut places = first.clone();
        let mut summaries: HashMap<usize, Vec<_>> = HashMap::new();
        for (at, step, compressed) in compressed() {
            let place = compressed.hidden.iter().filter_map(|id| places.get(id)).min().copied().unwrap_or(at).min(at);
            // What hides this summary later stands where it stood.
            places.insert(step.id(), place);
            if !hidden.contains(&step.id()) {
                summaries.entry(place).or_default().push((step, compressed));
            }
        }
        Folds { hidden, summaries }
    }

    fn at(&self, place: usize) -> &[(&'a Step, &'a Compressed)] {
        self.summaries.get(&place).map(Vec::as_slice).unwrap_or_default()
    }
}

/// The view as far as it has been built.
#[derive(Default)]
struct Seen<'a> {
    list: Vec<Message<'a>>,
    /// Calls that wait for their result, with where their exchange stands: message and place in it. Hidden ones stand
    /// nowhere, and wait too, lest their results be taken for another's.
    waiting: Waiting<'a, Option<(usize, usize)>>,
    /// Every call's name, with how often it was asked for.
    ids: HashMap<CallId, u64>,
}

impl<'a> Seen<'a> {
    fn follow(&mut self, step: &'a Step, hidden: bool) {
        match step.chunk() {
            Chunk::Assistant(answer) => self.answer(step, answer, hidden),
            Chunk::ToolResult(result) => self.close(result),
            _ if hidden => {}
            Chunk::User(user) => self.list.push(Message::User(step, user)),
            Chunk::Memory(memory) => {
                if let MemoryEvent::Recall { found, .. } = &memory.event
                    && !found.is_empty()
                {
                    self.list.push(Message::Recalled(step, found));
                }
            }
            _ => {}
        }
    }

    fn answer(&mut self, step: &'a Step, answer: &'a Assistant, hidden: bool) {
        let message = self.list.len();
        let places = answer.calls.iter().enumerate();
        self.waiting.ask(places.map(|(nth, call)| (&call.id, (!hidden).then_some((message, nth)))));
        if !hidden {
            let exchanges = answer.calls.iter().map(|call| Exchange {
                id: naming::unique(&mut self.ids, call.id.clone()),
                call,
                closing: Closing::Nothing,
            });
            self.list.push(Message::Assistant(step, answer, exchanges.collect()));
        }
    }

    fn close(&mut self, result: &'a ToolResult) {
        if let Some(Some((message, nth))) = self.waiting.close(&result.call)
            && let Message::Assistant(_, _, exchanges) = &mut self.list[message]
        {
            exchanges[nth].closing = Closing::Result(result);
        }
    }
}
