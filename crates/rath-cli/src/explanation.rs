//! Answers about a step from the record alone: what the model saw, where tools ran, what changed, and what it cost.

mod text;

use std::collections::HashSet;

use rath::chunk::{Call, Choice, Chunk, Effect, Finish, MemoryEvent, Verdict};
use rath::provider::{Money, Prices};
use rath::record::draw::{self, BranchNames, EntryKind, shorten};
use rath::record::lineage::Lineage;
use rath::record::{BranchId, Digest, Record, Step};
use rath::view::{self, CallResult, Freshness, Message};
use rath::{CallId, Session, StepId, Usage};
use serde::{Serialize, Serializer};

use crate::commands::log::Turn;

/// The columns of a text that are kept: more than a terminal has.
const MAX_TEXT_COLUMNS: usize = 400;

/// The answers about a step.
///
/// Everything but the changes of an answer's calls is as of the step: what came later does not count.
#[derive(Serialize)]
pub(crate) struct Explanation {
    step: StepId,
    /// The step on one line, as in the log.
    headline: String,
    branch: BranchId,
    branch_name: String,
    /// The turn that is explained; none if one step is.
    #[serde(skip_serializing_if = "Option::is_none")]
    turn: Option<ExplainedTurn>,
    /// The module that appended the step.
    by: Option<String>,
    at: Option<String>,
    /// The call that the step is about, if it is about one.
    call: Option<CallOfStep>,
    /// The answer that the step is, or that asked for its call; none if there is no such answer.
    answer: Option<AnswerSource>,
    /// The request's content: that of the answer, or else that of a model which would be asked now.
    seen: SeenContext,
    /// The sandbox that tools run in.
    place: Option<String>,
    changes: Vec<FileChange>,
    files: Option<FilesSource>,
    memory: Vec<MemoryUse>,
    compression: Vec<FoldedSteps>,
    routes: Vec<RouteChoice>,
    checks: Vec<CheckState>,
    cost: CostToStep,
}

/// A message of the user and all that followed it.
#[derive(Serialize)]
struct ExplainedTurn {
    first: StepId,
    last: StepId,
    steps: usize,
    /// The beginning of the user's message.
    said: Option<String>,
    /// The calls by tool and the number of changed files, as in the log.
    summary: String,
    usage: Usage,
}

/// A call, and the reason why it was made or not.
#[derive(Serialize)]
struct CallOfStep {
    id: CallId,
    tool: String,
    arguments: String,
    /// The rule or the mode of the policy that allowed the call.
    allowed_by: Option<String>,
    /// The person who approved or denied the call.
    decided_by: Option<String>,
}

/// An answer of a model, and the request that it came from.
#[derive(Serialize)]
struct AnswerSource {
    step: StepId,
    /// The model, as `provider:model`.
    model: Option<String>,
    /// The digest of the request as it was sent.
    request: Option<Digest>,
    finish: &'static str,
    usage: Option<Usage>,
}

/// The part of the record that a model sees.
#[derive(Serialize)]
struct SeenContext {
    instructions: Option<SeenInstructions>,
    messages: Vec<SeenMessage>,
}

#[derive(Serialize)]
struct SeenInstructions {
    step: StepId,
    text: String,
    tools: Vec<String>,
}

/// A message that a model sees.
#[derive(Serialize)]
struct SeenMessage {
    step: StepId,
    /// The step that the message comes from, on one line.
    line: String,
    /// The number of calls in an answer that have a result.
    calls: usize,
}

/// The change of a file, and the step that recorded it.
#[derive(Serialize)]
struct FileChange {
    #[serde(flatten)]
    effect: Effect,
    step: StepId,
    /// The call after which the change was seen, with its tool; none if no call is known.
    call: Option<CallId>,
    tool: Option<String>,
}

/// The step that the present state of the files comes from.
#[derive(Serialize)]
struct FilesSource {
    tree: String,
    step: StepId,
    headline: String,
    /// The files of a merge that nobody decided about.
    conflicts: Vec<String>,
}

/// A step that read or wrote a memory.
#[derive(Serialize)]
struct MemoryUse {
    step: StepId,
    memory: String,
    operation: &'static str,
    /// The text that was looked for or written.
    text: Option<String>,
    notes: usize,
    /// True if the model saw the notes.
    is_seen: bool,
}

/// Steps that a summary stands for.
#[derive(Serialize)]
struct FoldedSteps {
    step: StepId,
    hidden: Vec<StepId>,
    summary: String,
}

/// A choice between routes.
#[derive(Serialize)]
struct RouteChoice {
    step: StepId,
    choice: String,
    menu: Vec<String>,
}

/// The newest run of a check.
#[derive(Serialize)]
struct CheckState {
    check: String,
    verdict: &'static str,
    /// True if the files are as the check saw them.
    is_current: bool,
    step: StepId,
}

#[derive(Serialize)]
struct CostToStep {
    /// The usage of the step itself.
    step: Option<Usage>,
    /// The usage of all model calls up to the step.
    usage: Usage,
    #[serde(rename = "dollars", serialize_with = "as_dollars")]
    money: Money,
    branches: Vec<BranchCost>,
    /// True if a model without a price was asked, so that the cost is higher.
    has_unpriced: bool,
}

#[derive(Serialize)]
struct BranchCost {
    branch: BranchId,
    branch_name: String,
    #[serde(rename = "dollars", serialize_with = "as_dollars")]
    money: Money,
}

fn as_dollars<S: Serializer>(money: &Money, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(money.as_dollars())
}

/// Explains the newest turn by its newest answer, with the changes of all its calls.
///
/// Returns none if there is no turn.
pub(crate) fn explain_newest_turn(lineage: &Lineage, prices: &Prices) -> Option<Explanation> {
    let entries = draw::entries(lineage);
    let entry = entries.iter().rev().find(|entry| entry.kind == EntryKind::Turn)?;
    let is_answer = |step: &&&Step| matches!(step.chunk(), Chunk::Assistant(_));
    let answer = entry.steps.iter().rev().find(is_answer).unwrap_or(entry.steps.last()?);
    let turn = Turn::of(&entry.steps);
    let usages = entry.steps.iter().filter_map(|step| step.stamp().usage);
    let explained = ExplainedTurn {
        first: entry.steps.first()?.id(),
        last: entry.newest().id(),
        steps: entry.steps.len(),
        said: turn.said(usize::MAX),
        summary: turn.folded().into_iter().next().unwrap_or_default(),
        usage: usages.fold(Usage::default(), |sum, usage| sum + usage),
    };
    let changes = entry.steps.iter().flat_map(|step| changes_by(step)).collect();
    Some(Explanation { turn: Some(explained), changes, ..explain(answer, lineage, prices) })
}

/// Explains a step. `lineage` has the names of the branches, and the results of calls that came after the step.
pub(crate) fn explain(step: &Step, lineage: &Lineage, prices: &Prices) -> Explanation {
    let (record, names) = (Record::at(step.clone()), BranchNames::new(lineage));
    let call_id = step.chunk().call();
    let found = call_id.and_then(|id| find_answer(&record, id));
    let answer = match step.chunk() {
        Chunk::Assistant(_) => Some(step),
        _ => found.map(|(_, answer)| answer),
    };
    let before = match answer {
        Some(answer) => answer.parents().first().and_then(|parent| parent.step()).cloned().map(Record::at),
        None => Some(record.clone()),
    };
    let before = before.unwrap_or_default();
    let seen = SeenContext::of(&before);
    let stamp = step.stamp();
    Explanation {
        step: step.id(),
        headline: draw::headline(step),
        branch: stamp.branch,
        branch_name: names.name_of_step(step).to_owned(),
        turn: None,
        by: stamp.by.as_deref().map(str::to_owned),
        at: stamp.at.map(crate::output::time),
        call: found.map(|(call, _)| CallOfStep::new(call, &record)),
        answer: answer.map(AnswerSource::of),
        memory: memory_uses(&record, &seen),
        seen,
        place: Session::resume(record.clone()).place().map(|place| place.to_string()),
        changes: changes(step, lineage),
        files: FilesSource::of(&record),
        compression: view::folds(&record).iter().map(FoldedSteps::of).collect(),
        routes: routes(&record),
        checks: checks(&record),
        cost: CostToStep::new(&record, &names, prices),
    }
}

/// Finds the newest answer that asks for a call.
fn find_answer<'a>(record: &'a Record, id: &CallId) -> Option<(&'a Call, &'a Step)> {
    record.newest_first().find_map(|step| match step.chunk() {
        Chunk::Assistant(answer) => Some((answer.calls.iter().find(|call| call.id == *id)?, step)),
        _ => None,
    })
}

impl CallOfStep {
    fn new(call: &Call, record: &Record) -> Self {
        let (mut allowed_by, mut decided_by) = (None, None);
        for step in record.newest_first() {
            match step.chunk() {
                Chunk::ToolStarted(it) if it.call == call.id => allowed_by = allowed_by.or(it.rule.clone()),
                Chunk::Approved(it) if it.call == call.id => decided_by = decided_by.or(it.by.clone()),
                Chunk::Denied(it) if it.call == call.id => {
                    decided_by = decided_by.or(it.by.clone()).or(it.rule.clone());
                }
                // Ids of calls are used again: what is before the answer is about another call.
                Chunk::Assistant(answer) if answer.calls.iter().any(|asked| asked.id == call.id) => break,
                _ => {}
            }
        }
        CallOfStep {
            id: call.id.clone(),
            tool: call.tool.to_string(),
            arguments: call.arguments.as_str().map(|text| shorten(text, MAX_TEXT_COLUMNS)).unwrap_or_default(),
            allowed_by,
            decided_by,
        }
    }
}

impl AnswerSource {
    fn of(step: &Step) -> Self {
        let mut source = AnswerSource {
            step: step.id(),
            model: None,
            request: None,
            finish: draw::finish_text(Finish::Stop),
            usage: step.stamp().usage,
        };
        if let Chunk::Assistant(answer) = step.chunk() {
            source.model = answer.provider.as_ref().map(ToString::to_string);
            (source.request, source.finish) = (answer.request, draw::finish_text(answer.finish));
        }
        source
    }
}

impl SeenContext {
    /// Returns the context of a model that is asked at the head of `record`.
    fn of(record: &Record) -> Self {
        let messages = view::messages(record);
        let instructions = messages.instructions.map(|(step, it)| SeenInstructions {
            step: step.id(),
            text: text_preview(&it.text),
            tools: it.tools.iter().map(|tool| tool.name.clone()).collect(),
        });
        SeenContext { instructions, messages: messages.list.iter().map(SeenMessage::of).collect() }
    }
}

impl SeenMessage {
    fn of(message: &Message<'_>) -> Self {
        let calls = match message {
            Message::Assistant(_, _, exchanges) => {
                exchanges.iter().filter(|exchange| exchange.result != CallResult::Missing).count()
            }
            Message::User(..) | Message::Recalled(..) | Message::Summary(..) => 0,
        };
        let chunk = message.step().chunk();
        let line = match chunk {
            Chunk::User(it) if it.images.is_empty() => format!("{}: {}", chunk.kind(), text_preview(&it.text)),
            Chunk::Assistant(it) if it.calls.is_empty() && it.finish == Finish::Stop => {
                format!("{}: {}", chunk.kind(), text_preview(&it.text))
            }
            _ => draw::describe(chunk),
        };
        SeenMessage { step: message.step().id(), line, calls }
    }
}

/// Returns the beginning of a text, or says that the text is not there.
fn text_preview(text: &rath::Text) -> String {
    text.as_str().map_or_else(|| "(its text is missing)".to_owned(), |text| shorten(text, MAX_TEXT_COLUMNS))
}

/// Returns the changes of files by a step: for an answer, those that its calls made later.
fn changes(step: &Step, lineage: &Lineage) -> Vec<FileChange> {
    if !matches!(step.chunk(), Chunk::Assistant(answer) if !answer.calls.is_empty()) {
        return changes_by(step);
    }
    let is_of_step = |result: &Step| view::find_call(result).is_some_and(|(_, answer)| answer.id() == step.id());
    let later = lineage.descendants(step.id());
    let results = later.into_iter().filter(|later| matches!(later.chunk(), Chunk::ToolResult(_)));
    results.filter(|result| is_of_step(result)).flat_map(changes_by).collect()
}

/// Returns the changes of files that a step recorded.
fn changes_by(step: &Step) -> Vec<FileChange> {
    let effects = step.chunk().effects();
    let call = if effects.is_empty() { None } else { view::find_call(step).map(|(call, _)| call) };
    let change = |effect: &Effect| FileChange {
        effect: effect.clone(),
        step: step.id(),
        call: call.map(|call| call.id.clone()),
        tool: call.map(|call| call.tool.to_string()),
    };
    effects.iter().map(change).collect()
}

impl FilesSource {
    fn of(record: &Record) -> Option<Self> {
        let tree = view::tree(record)?;
        let source = |step: &Step| step.chunk().tree().map(|_| (step.id(), draw::headline(step)));
        let (step, headline) = record.find_newest(source)?;
        let conflicts = view::conflicts(record).iter().map(|conflict| conflict.path.clone()).collect();
        Some(FilesSource { tree: tree.0, step, headline, conflicts })
    }
}

fn memory_uses(record: &Record, seen: &SeenContext) -> Vec<MemoryUse> {
    let seen: HashSet<StepId> = seen.messages.iter().map(|message| message.step).collect();
    let uses = record.steps().into_iter().filter_map(|step| {
        let Chunk::Memory(memory) = step.chunk() else { return None };
        let (operation, text, notes) = match &memory.event {
            MemoryEvent::Remember { text, .. } => ("remember", Some(text_preview(text)), 1),
            MemoryEvent::Recall { query, found, .. } => ("recall", Some(text_preview(query)), found.len()),
            MemoryEvent::Commit { entries, .. } => ("commit", None, entries.len()),
            MemoryEvent::Forget { entries } => ("forget", None, entries.len()),
            _ => return None,
        };
        let is_seen = seen.contains(&step.id());
        Some(MemoryUse { step: step.id(), memory: memory.memory.clone(), operation, text, notes, is_seen })
    });
    uses.collect()
}

impl FoldedSteps {
    fn of(fold: &view::Fold<'_>) -> Self {
        FoldedSteps {
            step: fold.step.id(),
            hidden: fold.compressed.hidden.clone(),
            summary: text_preview(&fold.compressed.summary),
        }
    }
}

fn routes(record: &Record) -> Vec<RouteChoice> {
    let routes = record.steps().into_iter().filter_map(|step| {
        let Chunk::Selected(selected) = step.chunk() else { return None };
        let choice = match &selected.choice {
            Choice::Chosen { route } => route.clone(),
            Choice::Done => "(done)".to_owned(),
            Choice::OutOfRange => "(a route that is not on the menu)".to_owned(),
            Choice::Unparseable => "(a reply that could not be read)".to_owned(),
            _ => "(an empty reply)".to_owned(),
        };
        let menu = selected.menu.iter().map(|route| route.name.clone()).collect();
        Some(RouteChoice { step: step.id(), choice, menu })
    });
    routes.collect()
}

fn checks(record: &Record) -> Vec<CheckState> {
    let checks = view::checks(record);
    let state = |(name, check): (&&str, &view::Check<'_>)| CheckState {
        check: (*name).to_owned(),
        verdict: match check.checked.verdict {
            Verdict::Passed => "passed",
            Verdict::Failed => "failed",
            _ => "could not run",
        },
        is_current: check.freshness == Freshness::Fresh,
        step: check.step.id(),
    };
    checks.list.iter().map(state).collect()
}

impl CostToStep {
    fn new(record: &Record, names: &BranchNames, prices: &Prices) -> Self {
        let cost = Session::resume(record.clone()).cost(prices);
        let branch = |(branch, money): &(BranchId, Money)| BranchCost {
            branch: *branch,
            branch_name: names.name_of(*branch).to_owned(),
            money: *money,
        };
        CostToStep {
            step: record.head().and_then(|step| step.stamp().usage),
            usage: record.usage(),
            money: cost.total,
            branches: cost.by_branch.iter().map(branch).collect(),
            has_unpriced: cost.by_model.iter().any(|(_, _, money)| money.is_none()),
        }
    }
}
