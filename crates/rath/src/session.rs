//! The value that programs pass around.

mod ask;
mod blame;
mod branch_dirs;
mod certificate;
mod conflicts;
mod decide;
mod error;
mod event;
mod files;
mod join;
mod limits;
mod live;
mod placement;
mod recorder;
pub(crate) mod recording;
mod resume;
mod scope;
mod versions;

use std::borrow::Cow;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

use rath_record::chunk::{Chunk, Detached, Forked, Placed};
use rath_record::graph::{self, Ids};
use rath_record::lineage::Lineage;
use rath_record::{BranchId, Record, Stamp, Step, StepId, Text, Timestamp, Usage, draw, turn, view};

use crate::budget::Budget;
use crate::cancel::Cancel;
use crate::error::ErrorKind;
use crate::place::Place;
use crate::provider::{self, Cost, Prices, ProviderError, Request, RequestCache, RequestTarget};
use crate::sandbox::Sandbox;
use crate::secrets::Secrets;
use live::Live;
use placement::Placement;

pub use ask::Ask;
pub(crate) use ask::{note_losses, rebuild};
pub use blame::{Author, Blame, Line, Origin};
pub(crate) use branch_dirs::{BranchDir, BranchDirs};
pub use certificate::{Certificate, Difference, Resumed};
pub use error::{Error, Result};
pub(crate) use event::{Callback, EventQueue, Hub, ProgressTracker};
pub use event::{Event, EventKind};
pub use files::Bisected;
pub(crate) use files::checked;
pub(crate) use limits::{StopReason, stop_reason, within_limits};
pub(crate) use placement::{blocking, is_of_workspace};
pub use recording::Divergence;
pub(crate) use recording::{Replay, is_aside, recorded_failure};
pub use resume::StoredSession;
pub(crate) use scope::{ModuleId, Scope};

/// Everything that happened, as one value.
///
/// A session is cheap to copy, and nothing done to one is ever visible in another: what they have in common is shared,
/// what they do next is their own. To go on in two directions, [`fork`](Session::fork): a clone is another handle on the
/// same branch, and the graph shows what two clones do as the work of one.
///
/// ```
/// use rath::prelude::*;
///
/// let session = Session::user("hello");
/// let mut fork = session.fork();
/// fork.push(Chunk::assistant("hi"));
/// assert_eq!(fork.text(), Some("hi"));
/// assert_eq!(session.text(), None);
/// ```
#[derive(Clone)]
pub struct Session {
    record: Record,
    branch: Branch,
    /// The module that appends.
    by: Option<Arc<str>>,
    /// What this and everything that forks from it may use, and how many forks deep this one lies.
    budget: Option<(Budget, u32)>,
    /// What can be reused of the last request.
    rendered: RequestCache,
    /// Where tools run, once it has been looked for.
    placed: Arc<OnceLock<Option<Place>>>,
    live: Live,
}

/// The line of work that a session appends to.
#[derive(Clone)]
struct Branch {
    id: BranchId,
    /// How many branches have left it at its head. Shared by clones, so that no two of them take the same number.
    left: Arc<AtomicU64>,
    /// Written before the first step, or when the session is saved or exported: merging an untouched fork is the identity.
    opening: Option<Forked>,
}

impl Session {
    /// A session that begins with what the user says.
    pub fn user(text: impl Into<Text>) -> Self {
        Session::empty().and(Chunk::user(text))
    }

    /// A session that begins with what an agent is told.
    pub fn system(text: impl Into<Text>) -> Self {
        Session::empty().and(Chunk::instructions(text))
    }

    /// A session in which nothing has happened.
    pub fn empty() -> Self {
        Session::on(Record::new(), Branch::new())
    }

    /// Places the session in a sandbox. From here on its tools run there.
    ///
    /// It is recorded at once, and opened when a tool first needs it. What forks from here works in a directory of its own,
    /// which holds the same files.
    pub fn to(self, sandbox: impl Into<Sandbox>) -> Self {
        let sandbox = sandbox.into();
        let mut session = self.and(Placed { place: sandbox.uri().to_owned(), tree: None });
        session.live.place = Placement::placed(sandbox);
        session
    }

    /// Limits what this session, and everything that forks from it, may use from here on. What it has used before counts.
    pub fn within(mut self, budget: Budget) -> Self {
        let same = self.budget.as_ref().is_some_and(|(known, _)| known.is_same(&budget));
        if !same {
            budget.start(&self.record);
            self.budget = Some((budget, 0));
        }
        self
    }

    /// Says on whose behalf steps are appended from here on: the path of a module, `readme.agent` for one.
    pub fn by(mut self, module: impl Into<Arc<str>>) -> Self {
        self.by = Some(module.into());
        self
    }

    /// Lets `cancel` stop whatever is done with this session, and with everything that forks from it.
    pub fn until(mut self, cancel: &Cancel) -> Self {
        self.live.cancel = Some(cancel.clone());
        self
    }

    /// Keeps these values out of every step that this session, and everything that forks from it, appends from here on.
    ///
    /// What has the shape of a key is kept out in any case, and so are the keys of a provider once it is asked. Steps that
    /// are there already do not change: hide first, then speak.
    pub fn hiding(mut self, secrets: Secrets) -> Self {
        self.hide_also(&secrets);
        self
    }

    /// Appends a step.
    ///
    /// Whatever is said is recorded, a result that no call waits for included; views leave out what makes no sense.
    pub fn push(&mut self, chunk: impl Into<Chunk>) -> StepId {
        self.append(chunk.into(), None)
    }

    /// Appends a step that a model call stands behind, with what the call cost.
    pub fn push_with_usage(&mut self, chunk: impl Into<Chunk>, usage: Usage) -> StepId {
        self.append(chunk.into(), Some(usage))
    }

    /// A session that goes on from here by itself.
    pub fn fork(&self) -> Self {
        self.leave(None).deeper()
    }

    /// A fork with a name that the log shows.
    pub fn fork_named(&self, name: impl Into<String>) -> Self {
        self.leave(Some(name.into())).deeper()
    }

    /// A session that goes on from here and counts as a new beginning: it keeps what was said, and has no parent in the
    /// graph of sessions. It draws on the same budget, and lies no deeper.
    pub fn detach(&self) -> Self {
        let Forked { nth, from, .. } = self.parting(None);
        let mut session = Session { branch: Branch::new(), ..self.clone() };
        session.live.place = self.live.place.for_fork();
        session.and(Detached { nth, from })
    }

    /// A session that goes on from an earlier step, as a fork.
    pub fn at(&self, step: StepId) -> Result<Self> {
        let found = self.find(step)?;
        let mut session = self.leave(None).deeper();
        if self.head() != Some(found) {
            session.record = Record::at(found.clone());
            session.placed = Arc::default();
            if let Some(opening) = &mut session.branch.opening {
                opening.from = opening.from.or(self.head().map(Step::id));
            }
        }
        Ok(session)
    }

    /// The id of the branch that this session appends to.
    pub fn id(&self) -> BranchId {
        self.branch.id
    }

    /// The newest step.
    pub fn head(&self) -> Option<&Step> {
        self.record.head()
    }

    /// The record behind the session.
    pub fn as_record(&self) -> &Record {
        &self.record
    }

    /// What was said and done, oldest first, without the marks of forks and merges.
    pub fn chunks(&self) -> impl Iterator<Item = &Chunk> {
        self.record.steps().into_iter().map(Step::chunk).filter(|chunk| !chunk.is_marker())
    }

    /// How many chunks there are.
    pub fn chunk_count(&self) -> u64 {
        self.record.chunk_count()
    }

    /// The graph of steps behind the session. Displayed, it is the log.
    pub fn lineage(&self) -> Lineage {
        self.record.lineage()
    }

    /// The path of the module that appends, `readme.agent` for one.
    pub fn module(&self) -> Option<&str> {
        self.by.as_deref()
    }

    /// The model's last words.
    pub fn text(&self) -> Option<&str> {
        self.record.newest_first().find_map(|step| match step.chunk() {
            Chunk::Assistant(answer) => answer.text.as_str().filter(|text| !text.trim().is_empty()),
            _ => None,
        })
    }

    /// What the model said last, if anything: its words, which may be none.
    pub(crate) fn last_words(&self) -> Option<&str> {
        self.record.newest_first().find_map(|step| match step.chunk() {
            Chunk::Assistant(answer) => Some(answer.text.as_str().unwrap_or_default()),
            _ => None,
        })
    }

    /// What all model calls cost together, each counted once however many branches contain it.
    pub fn usage(&self) -> Usage {
        self.record.usage()
    }

    /// Where tools run.
    pub fn place(&self) -> Option<Place> {
        let look = || {
            self.record.find_newest(|step| match step.chunk() {
                Chunk::Placed(placed) => Some(Place::from_record(&placed.place)),
                _ => None,
            })
        };
        self.placed.get_or_init(look).clone()
    }

    /// What an agent has to do next.
    pub fn next(&self) -> turn::Next {
        turn::next(&self.record)
    }

    /// What a model sees.
    pub fn messages(&self) -> view::Messages<'_> {
        view::messages(&self.record)
    }

    /// What was folded into summaries, each with all that it stands for.
    pub fn folds(&self) -> Vec<view::Fold<'_>> {
        view::folds(&self.record)
    }

    /// What changed in the workspace, and by which call.
    pub fn files(&self) -> view::ChangedFiles<'_> {
        view::files(&self.record)
    }

    /// Which checks ran, and whether they still hold.
    pub fn checks(&self) -> view::Checks<'_> {
        view::checks(&self.record)
    }

    /// What the model calls cost, by branch and by module.
    pub fn spending(&self) -> view::Spending {
        view::spending(&self.record)
    }

    /// The graph of sessions behind this one, one JSON line each, under the names that the Python OpenRath uses.
    ///
    /// [`Ids::Original`] for the ids that the sessions have; [`Ids::Canonical`] for ids that follow from what was recorded,
    /// so that two runs of one program can be compared.
    pub fn export(&self, ids: Ids) -> String {
        graph::export(&self.begun().lineage(), ids)
    }

    /// What the model calls cost in money, each counted once however many branches contain it.
    pub fn cost(&self, prices: &Prices) -> Cost {
        provider::cost(&self.record, prices)
    }

    /// The request that an answer in this session came of, byte for byte as it was sent.
    pub fn request(&self, answer: StepId) -> Result<Request> {
        let step = self.find(answer)?;
        let wrong = |what: &str| Error::new(ErrorKind::Request, format_args!("step {} {what}", answer.short()));
        let request = match (step.chunk(), Session::before(step)) {
            (Chunk::Assistant(answer), Some(earlier)) => rebuild(&earlier, answer),
            (Chunk::Assistant(_), None) => Err(wrong("has nothing before it that a model could have been asked")),
            _ => Err(wrong("is not a model's answer").with_hint("the log says `assistant` where one is")),
        };
        request.map_err(|error| error.with_session(self))
    }

    /// What this session and its kin may use, if that is limited.
    pub fn budget(&self) -> Option<&Budget> {
        self.budget.as_ref().map(|(budget, _)| budget)
    }

    /// The budget, and how many forks below the session that was given it this one lies.
    pub(crate) fn budget_and_depth(&self) -> Option<(Budget, u32)> {
        self.budget.clone()
    }

    /// The request that asks `target` to go on from here.
    pub(crate) fn render(&self, target: RequestTarget<'_>) -> Result<Request> {
        let rendered = self.rendered.render(&self.record, target, self.by.clone());
        rendered.map_err(|missing| Error::from(ProviderError::from(missing)).with_session(self))
    }

    /// The session as it was when the model gave an answer.
    pub(crate) fn before(answer: &Step) -> Option<Self> {
        let parent = answer.parents().first().and_then(|link| link.step())?;
        Some(Session::on(Record::at(parent.clone()), Branch::new()))
    }

    /// Goes to where a model gave an answer, and keeps what can be reused of the last request. False if nothing is there.
    pub(crate) fn go_before(&mut self, answer: &Step) -> bool {
        let parent = answer.parents().first().and_then(|link| link.step());
        self.record = parent.cloned().map(Record::at).unwrap_or_default();
        parent.is_some()
    }

    /// The session that ends at the head of `record`, on that head's branch.
    pub fn resume(record: Record) -> Self {
        let Some(head) = record.head() else { return Session::empty() };
        let id = head.stamp().branch;
        Session::on(record, Branch { id, ..Branch::new() })
    }

    /// A session as a recorded run found it: how many forks had left its head, and the fork that it was, if any.
    pub(crate) fn replayed(from: Option<&Step>, left: u64, opening: Option<Forked>, replay: &Arc<Replay>) -> Self {
        let record = from.cloned().map(Record::at).unwrap_or_default();
        let mut session = Session::resume(record);
        session.branch = Branch { id: session.branch.id, left: Arc::new(AtomicU64::new(left)), opening };
        session.live.replay = Some(replay.clone());
        session.hide_also(replay.secrets());
        session
    }

    /// Goes on by what a recorded step says, with what it cost.
    pub(crate) fn go_on_by(&mut self, step: &Step) {
        // One that this version cannot write as it was would get another name.
        if let Cow::Borrowed(_) = step.json() {
            self.begin();
            self.record = Record::at(step.clone());
            return self.tell(step.clone());
        }
        self.append(step.chunk().clone(), step.stamp().usage);
    }

    fn on(record: Record, branch: Branch) -> Self {
        Session {
            record,
            branch,
            by: None,
            budget: None,
            rendered: RequestCache::default(),
            placed: Arc::default(),
            live: Live::here(),
        }
    }

    /// The same, one fork deeper below the session that was given the budget.
    fn deeper(mut self) -> Self {
        self.budget = self.budget.map(|(budget, depth)| (budget, depth.saturating_add(1)));
        self
    }

    fn find(&self, step: StepId) -> Result<&Step> {
        self.record.find(step).ok_or_else(|| {
            Error::new(ErrorKind::NoSuchStep, format_args!("no step {} in this session", step.short()))
                .with_hint("`lineage` lists the steps; a step of another session is not among them")
                .with_session(self)
        })
    }

    /// The same with its opening on the record, for those who look at it from outside.
    pub(crate) fn begun(&self) -> Self {
        // Only looked at: nobody is told, and nothing is kept of it.
        let mut session = self.quiet().recorded_by(None);
        session.live.replay = None;
        session.begin();
        session
    }

    fn and(mut self, chunk: impl Into<Chunk>) -> Self {
        self.push(chunk);
        self
    }

    fn append(&mut self, chunk: Chunk, usage: Option<Usage>) -> StepId {
        self.begin();
        if matches!(chunk, Chunk::Placed(_)) {
            self.placed = Arc::default();
        }
        let stamp = self.stamp(&self.branch, usage);
        self.write(chunk, stamp)
    }

    /// Appends a step, without what must not be recorded, and tells whoever listens.
    fn write(&mut self, mut chunk: Chunk, stamp: Stamp) -> StepId {
        self.live.secrets.hide_in(&mut chunk);
        let (step, json) = self.record.push_with_json(chunk, stamp);
        let step = step.clone();
        let id = step.id();
        self.tell_said(step, Some(json));
        id
    }

    /// Tells whoever listens of a step that joins two lines.
    fn tell(&mut self, step: Step) {
        self.tell_said(step, None);
    }

    /// Tells whoever listens of a step, whose JSON may be at hand.
    fn tell_said(&mut self, step: Step, json: Option<Vec<u8>>) {
        if let Some(replay) = &self.live.replay {
            replay.compare_step(&step);
        }
        self.hand_to_recorder(json);
        self.emit(|| EventKind::Step(step));
    }

    /// Leaves the head that others may fork from: what forks from the next one is counted anew.
    fn begin(&mut self) {
        if let Some(opening) = self.branch.opening.take() {
            let stamp = self.stamp(&self.branch, None);
            self.write(opening.into(), stamp);
        }
        if Arc::strong_count(&self.branch.left) > 1 || self.branch.left.load(Ordering::Relaxed) > 0 {
            self.branch.left = Arc::default();
        }
    }

    fn stamp(&self, branch: &Branch, usage: Option<Usage>) -> Stamp {
        Stamp { branch: branch.id, by: self.by.clone(), usage, at: now() }
    }

    /// A fork at the head. Until it has a step of its own, what leaves it is counted where this was.
    fn leave(&self, name: Option<String>) -> Self {
        let branch = Branch { left: self.branch.left.clone(), opening: Some(self.parting(name)), ..Branch::new() };
        let mut session = Session { branch, ..self.clone() };
        session.live.place = self.live.place.for_fork();
        session
    }

    /// What tells a branch that leaves here from every other: a number, and the head where it was counted if that is not
    /// the step it leaves from.
    fn parting(&self, name: Option<String>) -> Forked {
        let nth = self.branch.left.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        Forked { nth, from: self.branch.opening.as_ref().and_then(|opening| opening.from), name }
    }
}

impl Branch {
    fn new() -> Self {
        let id = BranchId(uuid::Uuid::now_v7().into_bytes());
        Branch { id, left: Arc::default(), opening: None }
    }
}

/// One line: where it stands, how much there is, where tools run, what it cost, what is next.
impl fmt::Display for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(head) = self.head() else { return f.write_str("empty session") };
        write!(f, "session {}", head.id().short())?;
        write!(f, ": {}", draw::count(self.chunk_count(), "chunk"))?;
        if let Some(place) = self.place() {
            write!(f, ", placed at {}", draw::preview(place.as_str()))?;
        }
        if self.usage() != Usage::default() {
            write!(f, ", {}", self.usage())?;
        }
        match self.next() {
            turn::Next::AskModel => f.write_str(", next: ask the model"),
            turn::Next::RunTools(calls) => write!(f, ", next: run {}", draw::count(calls.len() as u64, "tool call")),
            turn::Next::Done if self.text().is_some() => f.write_str(", done"),
            turn::Next::Done => f.write_str(", nothing to answer"),
        }
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A clock that stands before 1970 or far ahead gives no time rather than a wrong one.
fn now() -> Option<Timestamp> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    i64::try_from(since.as_micros()).ok().map(Timestamp)
}
