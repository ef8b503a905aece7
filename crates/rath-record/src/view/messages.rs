//! The conversation that a model sees.

use std::collections::{HashMap, HashSet};

use crate::call_queue::CallQueue;
use crate::chunk::{Assistant, Call, Chunk, Compressed, Instructions, MemoryEvent, RecalledEntry, ToolResult, User};
use crate::id::{CallId, StepId};
use crate::naming;
use crate::payload::Text;
use crate::record::Record;
use crate::step::Step;

/// The conversation that a model sees of a record.
///
/// A call and its result are one value here, so that no view can hold one without the other.
///
/// ```
/// use rath_record::view::{self, Message};
/// use rath_record::{BranchId, Chunk, Record, Stamp};
///
/// let mut record = Record::new();
/// record.push(Chunk::instructions("You are brief."), Stamp::on(BranchId([1; 16])));
/// record.push(Chunk::user("Hello"), Stamp::on(BranchId([1; 16])));
/// record.push(Chunk::note("No model sees this."), Stamp::on(BranchId([1; 16])));
/// let messages = view::messages(&record);
/// assert!(messages.instructions.is_some());
/// assert!(matches!(messages.list[..], [Message::User(..)]));
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Messages<'a> {
    /// The head that the view reflects.
    pub head: Option<StepId>,
    /// The newest instructions on our line; if it has none, the newest of all.
    ///
    /// A step is on our line if it has read the line up to it. The instructions of a branch that was merged in do not apply
    /// to ours, unless the branch went on from all of ours.
    pub instructions: Option<(&'a Step, &'a Instructions)>,
    /// The conversation.
    pub list: Vec<Message<'a>>,
    /// The state that is needed to continue this view.
    pub continuation: Continuation,
}

/// One message, with the step it comes from.
///
/// Part of [`Messages`].
#[derive(Clone, Debug, PartialEq)]
pub enum Message<'a> {
    /// A message of the user.
    User(&'a Step, &'a User),
    /// Entries that a memory returned. They are data, and never sent as system text.
    Recalled(&'a Step, &'a [RecalledEntry]),
    /// A summary that stands for the steps it hides.
    Summary(&'a Step, &'a Text),
    /// An answer of the model, with its calls and their results.
    Assistant(&'a Step, &'a Assistant, Vec<Exchange<'a>>),
}

impl<'a> Message<'a> {
    /// Returns the step that the message comes from.
    pub fn step(&self) -> &'a Step {
        match self {
            Message::User(step, _)
            | Message::Recalled(step, _)
            | Message::Summary(step, _)
            | Message::Assistant(step, ..) => step,
        }
    }
}

/// A call and its result.
///
/// Part of [`Message::Assistant`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Exchange<'a> {
    /// The id of the call, unique in the view: providers refuse a request that uses an id twice.
    pub id: CallId,
    /// The call.
    pub call: &'a Call,
    /// The result of the call.
    pub result: CallResult<'a>,
}

/// The end of a call, as far as it is recorded.
///
/// Part of [`Exchange`].
#[derive(Clone, Debug, PartialEq)]
pub enum CallResult<'a> {
    /// The result that was recorded.
    Recorded(&'a ToolResult),
    /// No result was recorded; the model has to be told so.
    Missing,
}

/// Returns the conversation that a model sees of `record`.
///
/// See [`Messages`] for an example.
pub fn messages(record: &Record) -> Messages<'_> {
    let steps = record.steps();
    let folds = FoldIndex::new(&steps);
    let mut builder = MessageBuilder::default();
    for (index, step) in steps.iter().enumerate() {
        for (fold, compressed) in folds.summaries_before(index) {
            builder.list.push(Message::Summary(fold, &compressed.summary));
        }
        builder.append(step, folds.hidden.contains(&step.id()));
    }
    let instructions = newest_instructions(&steps, &folds.hidden);
    Messages {
        head: record.head().map(Step::id),
        instructions,
        list: builder.list,
        continuation: Continuation { ids: builder.ids },
    }
}

/// Returns the messages of the steps that are read after a head at which no call was open.
///
/// `continuation` is from the view at that head.
///
/// Returns `None` if more than the end of the view changes: there are new instructions, or steps are hidden.
///
/// ```
/// use rath_record::{BranchId, Chunk, Record, Stamp, view};
///
/// let mut record = Record::new();
/// let earlier = record.push(Chunk::user("Hello"), Stamp::on(BranchId([1; 16]))).clone();
/// let continuation = view::messages(&record).continuation;
/// record.push(Chunk::assistant("Hi!"), Stamp::on(BranchId([1; 16])));
///
/// let steps = record.steps_after(&earlier).expect("the record continues");
/// let (messages, _) = view::messages_after(&steps, continuation).expect("nothing is hidden");
/// assert_eq!(messages.len(), 1);
/// ```
pub fn messages_after<'a>(steps: &[&'a Step], continuation: Continuation) -> Option<(Vec<Message<'a>>, Continuation)> {
    let mut builder = MessageBuilder { ids: continuation.ids, ..MessageBuilder::default() };
    for step in steps {
        if matches!(step.chunk(), Chunk::Instructions(_) | Chunk::Compressed(_)) {
            return None;
        }
        builder.append(step, false);
    }
    Some((builder.list, Continuation { ids: builder.ids }))
}

/// The state of a view that is needed to continue it.
///
/// Part of [`Messages`]. See [`messages_after`] for an example.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Continuation {
    /// The ids of the calls, with the number of times each was used.
    ids: HashMap<CallId, u64>,
}

/// Returns the instructions for a model that continues `record`.
///
/// ```
/// use rath_record::{BranchId, Chunk, Record, Stamp, view};
///
/// let mut record = Record::new();
/// record.push(Chunk::instructions("You are brief."), Stamp::on(BranchId([1; 16])));
/// let (_, instructions) = view::instructions(&record).expect("there are some");
/// assert_eq!(instructions.text.as_str(), Some("You are brief."));
/// ```
pub fn instructions(record: &Record) -> Option<(&Step, &Instructions)> {
    let steps = record.steps();
    newest_instructions(&steps, &FoldIndex::new(&steps).hidden)
}

/// Returns the newest instructions on our line; if there are none, the newest of all.
fn newest_instructions<'a>(steps: &[&'a Step], hidden: &HashSet<StepId>) -> Option<(&'a Step, &'a Instructions)> {
    let visible = |step: &'a Step| match step.chunk() {
        Chunk::Instructions(instructions) if !hidden.contains(&step.id()) => Some((step, instructions)),
        _ => None,
    };
    let newest = steps.iter().rev().copied().find_map(visible);
    // Without a merge, every step is on our line.
    if !steps.last()?.totals().merged {
        return newest;
    }
    let mut line = OurLine::default();
    let on_line = steps.iter().copied().filter(|step| line.extend(step));
    on_line.filter_map(visible).last().or(newest)
}

/// Our line of a record that has merges: it begins with the first step, and a step that has read the line so far
/// extends it.
///
/// The line depends on the steps and on what each of them has read, and not on the merges themselves: merging sessions in
/// another order reads the same steps in the same order, so the line is the same too.
#[derive(Default)]
struct OurLine<'a> {
    newest: Option<&'a Step>,
    /// Steps that are known not to have read the newest step of the line.
    outside: HashSet<StepId>,
}

impl<'a> OurLine<'a> {
    /// Extends the line by `step`, if `step` has read the line. Returns whether it has.
    fn extend(&mut self, step: &'a Step) -> bool {
        if matches!(step.chunk(), Chunk::Merged(_)) || self.newest.is_some_and(|newest| !self.is_read(newest, step)) {
            return false;
        }
        self.newest = Some(step);
        self.outside.clear();
        true
    }

    /// Returns whether `reader` has read `newest`, the newest step of the line.
    fn is_read(&mut self, newest: &Step, reader: &'a Step) -> bool {
        let mut unvisited = vec![reader];
        while let Some(step) = unvisited.pop() {
            if step == newest {
                return true;
            }
            // Descendants have larger generations, unless steps are lost.
            let may_descend = step.totals().generation > newest.totals().generation || step.totals().gap;
            if !may_descend || !self.outside.insert(step.id()) {
                continue;
            }
            match step.merged_parents() {
                Some((ours, theirs)) => unvisited.extend([theirs, ours]),
                None => unvisited.extend(step.first_parent()),
            }
        }
        false
    }
}

/// The hidden steps, and the summaries that stand for them.
struct FoldIndex<'a> {
    hidden: HashSet<StepId>,
    /// The summaries, by the index of the step that they stand before.
    summaries: HashMap<usize, Vec<(&'a Step, &'a Compressed)>>,
}

impl<'a> FoldIndex<'a> {
    fn new(steps: &[&'a Step]) -> Self {
        let compressed = || {
            steps.iter().enumerate().filter_map(|(at, step)| match step.chunk() {
                Chunk::Compressed(compressed) => Some((at, *step, compressed)),
                _ => None,
            })
        };
        // Hidden steps stay hidden when a later summary hides the summary that hid them. A summary hides only steps
        // that are read before it: steps that a merge adds later must not change what was shown before.
        let hidden_ids: HashSet<StepId> =
            compressed().flat_map(|(_, _, compressed)| &compressed.hidden).copied().collect();
        let mut first_positions: HashMap<StepId, usize> = HashMap::new();
        if !hidden_ids.is_empty() {
            for (at, step) in steps.iter().enumerate().filter(|(_, step)| hidden_ids.contains(&step.id())) {
                first_positions.entry(step.id()).or_insert(at);
            }
        }
        let is_before = |id: &&StepId, at: usize| first_positions.get(id).is_some_and(|first| *first < at);
        let hidden: HashSet<StepId> = compressed()
            .flat_map(|(at, _, compressed)| compressed.hidden.iter().filter(move |id| is_before(id, at)))
            .copied()
            .collect();
        let mut positions = first_positions.clone();
        let mut summaries: HashMap<usize, Vec<_>> = HashMap::new();
        for (at, step, compressed) in compressed() {
            let position =
                compressed.hidden.iter().filter_map(|id| positions.get(id)).min().copied().unwrap_or(at).min(at);
            // A later summary that hides this one takes its place.
            positions.insert(step.id(), position);
            if !hidden.contains(&step.id()) {
                summaries.entry(position).or_default().push((step, compressed));
            }
        }
        FoldIndex { hidden, summaries }
    }

    fn summaries_before(&self, index: usize) -> &[(&'a Step, &'a Compressed)] {
        self.summaries.get(&index).map(Vec::as_slice).unwrap_or_default()
    }
}

/// The view while it is built.
#[derive(Default)]
struct MessageBuilder<'a> {
    list: Vec<Message<'a>>,
    /// The calls without a result, each with the message of its exchange and the index in it. Calls of hidden answers
    /// have neither; they wait too, so that their results are not taken for those of another call.
    open: CallQueue<'a, Option<(usize, usize)>>,
    /// The ids of all calls, with the number of times each was used.
    ids: HashMap<CallId, u64>,
}

impl<'a> MessageBuilder<'a> {
    fn append(&mut self, step: &'a Step, hidden: bool) {
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
        let positions = answer.calls.iter().enumerate();
        self.open.add_turn(positions.map(|(nth, call)| (&call.id, (!hidden).then_some((message, nth)))));
        if !hidden {
            let exchanges = answer.calls.iter().map(|call| Exchange {
                id: naming::make_unique(&mut self.ids, call.id.clone()),
                call,
                result: CallResult::Missing,
            });
            self.list.push(Message::Assistant(step, answer, exchanges.collect()));
        }
    }

    fn close(&mut self, result: &'a ToolResult) {
        if let Some(Some((message, nth))) = self.open.close(&result.call)
            && let Message::Assistant(_, _, exchanges) = &mut self.list[message]
        {
            exchanges[nth].result = CallResult::Recorded(result);
        }
    }
}
