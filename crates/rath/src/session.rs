//! The session: the value that programs pass around.

mod ask;
mod blame;
mod branch_dirs;
mod certificate;
mod changed_paths;
mod check_inputs;
mod conflicts;
mod decide;
mod error;
mod event;
mod files;
mod guest;
mod ignored_files;
mod join;
mod limits;
mod live;
mod merged_files;
mod mirror;
mod occupant;
mod paused;
mod place_with_files;
mod placement;
mod put_back;
mod recorder;
pub(crate) mod recording;
mod resume;
mod scope;
mod seen_files;
pub(crate) mod spans;
mod store_list;
mod update_note;
mod version_folders;
mod versions;
mod work_lock;
mod write_turn;

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

use rath_record::chunk::{Chunk, Detached, Forked, Placed};
use rath_record::graph::{self, Ids};
use rath_record::lineage::Lineage;
use rath_record::{BranchId, CounterId, Digest, Record, Stamp, Step, StepId, Text, Timestamp, Usage, draw, turn, view};

use crate::budget::Budget;
use crate::cancel::Cancel;
use crate::error::ErrorKind;
use crate::place::{Place, SandboxKinds};
use crate::policy::{ActivePolicy, Policy};
use crate::provider::{self, Cost, Prices, ProviderError, Request, RequestCache, RequestTarget};
use crate::sandbox::{Registry, Sandbox};
use crate::secrets::Secrets;
use guest::Ownership;
use live::Live;
use placement::Placement;

pub use ask::Ask;
pub(crate) use ask::{check_rebuild, note_losses, rebuild};
pub use blame::{Author, Blame, Certainty, Line, Origin};
pub(crate) use branch_dirs::{BranchDir, BranchDirs, CallChanges};
pub use certificate::{Certificate, Difference, Resumed, ToolChange};
pub(crate) use changed_paths::{ChangedPaths, NameGuards};
pub use error::{Error, Result};
pub(crate) use event::{Callback, EventQueue, Hub, ProgressTracker};
pub use event::{Event, EventKind};
pub(crate) use files::checked;
pub use files::{Bisected, CheckoutReport};
pub use ignored_files::{UnsharedPath, UnsharedReason};
pub(crate) use limits::{StopReason, stop_reason, within_limits};
pub(crate) use mirror::{dir_of_stored_place, remove_copies};
pub(crate) use occupant::{occupant_branch, occupant_file};
pub use place_with_files::PlacedFiles;
pub(crate) use put_back::PutBackReport;
pub use recording::{CallDifference, Divergence};
pub(crate) use recording::{FilesAfter, Replay, ReplayDirs, is_aside, is_by_program, recorded_failure};
pub use resume::StoredSession;
pub(crate) use scope::{ModuleId, Scope};
pub(crate) use seen_files::is_of_workspace;
pub(crate) use store_list::{ListedStore, StoreList, StoreUri};
pub(crate) use version_folders::{open_versions, versions_in};
pub(crate) use versions::lossy_path;
pub(crate) use work_lock::WorkLock;
pub(crate) use write_turn::{WriteGuard, WriteTurn};

/// An agent's run as one value: every step that was taken, and a branch to append to.
///
/// A session is cheap to clone, and a step that is appended to one session is never visible in another. [`fork`](Session::fork)
/// continues in a second direction: a clone is another handle on the same branch, and the lineage shows the steps of two
/// clones as one branch.
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
    branch: SessionBranch,
    /// The path of the module that appends steps.
    by: Option<Arc<str>>,
    /// The budget that the session shares with its forks, and the number of forks between its owner and this session.
    budget: Option<(Budget, u32)>,
    /// The reusable part of the last request.
    rendered: RequestCache,
    /// The place of the session, computed on first use.
    placed: Arc<OnceLock<Option<Place>>>,
    live: Live,
}

/// The branch that a session appends to.
#[derive(Clone)]
struct SessionBranch {
    id: BranchId,
    /// The count of the forks that were made at the head. Shared by clones, so that no two forks get the same number.
    forks: Arc<ForkCounter>,
    /// The first step of a fork. It is written before the next step, or when the session is saved or exported, so that merging
    /// an untouched fork is the identity.
    opening: Option<Forked>,
}

/// The count of the forks that left a head.
#[derive(Default)]
pub(crate) struct ForkCounter {
    /// The id of the counter, if other programs can count forks of the same head: the head comes from a store or a file.
    pub(crate) id: Option<CounterId>,
    /// The number of forks so far.
    pub(crate) count: AtomicU64,
}

impl Session {
    /// Creates a session that begins with a message of the user.
    pub fn user(text: impl Into<Text>) -> Self {
        Session::empty().with(Chunk::user(text))
    }

    /// Creates a session that begins with instructions for an agent.
    pub fn system(text: impl Into<Text>) -> Self {
        Session::empty().with(Chunk::instructions(text))
    }

    /// Creates a session without steps.
    pub fn empty() -> Self {
        Session::on(Record::new(), SessionBranch::new())
    }

    /// Places the session in a sandbox. From here on its tools run there.
    ///
    /// The place is recorded at once; the sandbox is opened when a tool first needs it. Each fork works in a directory of its
    /// own that begins with the same files.
    pub fn to(self, sandbox: impl Into<Sandbox>) -> Self {
        let sandbox = sandbox.into();
        let mut session = self.with(Placed::new(sandbox.uri()));
        session.live.place = Placement::placed(sandbox);
        session
    }

    /// Limits the usage of this session and all its forks. Usage before this call counts.
    pub fn within(mut self, budget: Budget) -> Self {
        let same = self.budget.as_ref().is_some_and(|(known, _)| known.is_same(&budget));
        if !same {
            budget.start(&self.record);
            self.budget = Some((budget, 0));
        }
        self
    }

    /// Sets the module path that new steps carry, such as `readme.agent`.
    pub fn by(mut self, module: impl Into<Arc<str>>) -> Self {
        self.set_by(Some(module.into()));
        self
    }

    /// Lets `cancel` stop all runs of this session and its forks.
    pub fn until(mut self, cancel: &Cancel) -> Self {
        self.live.cancel = Some(cancel.clone());
        self
    }

    /// Lets a policy decide about the calls of this session, its forks and its sub-agents.
    ///
    /// The policy is not recorded: a program that opens a stored session sets it again. Its decisions are recorded.
    pub fn under(mut self, policy: Policy) -> Self {
        self.live.policy = Some(Arc::new(ActivePolicy::new(policy)));
        self
    }

    /// Hides a file from the commands of this session and its forks, as far as their sandbox can: the file that the session is saved
    /// in, for example.
    ///
    /// ```
    /// use rath::prelude::*;
    ///
    /// let session = Session::user("hello").keep_out("/srv/sessions/hello.rath");
    /// # drop(session);
    /// ```
    pub fn keep_out(mut self, path: impl Into<PathBuf>) -> Self {
        self.live.kept_out.push(path.into());
        self
    }

    /// Opens the place of this session and its forks with these kinds of sandbox.
    ///
    /// A stored session names its sandbox by URI, and the built-in kinds are known. A program that has a kind of its own passes a
    /// registry with it when it opens the session again: here, or for all sessions of a store with [`Store::sandboxes`]. Without it,
    /// a run of an agent with tools fails with an error of the kind [`Place`](ErrorKind::Place).
    ///
    /// ```
    /// use rath::prelude::*;
    /// use rath::sandbox::Registry;
    ///
    /// // Directories of this project, by name.
    /// let kinds = Registry::new().with("project", |name| Ok(Sandbox::local(format!("/srv/projects/{name}"))));
    /// let session = Session::user("hello").sandboxes(kinds);
    /// # drop(session);
    /// ```
    ///
    /// [`Store::sandboxes`]: crate::Store::sandboxes
    pub fn sandboxes(mut self, kinds: Registry) -> Self {
        self.live.sandboxes = SandboxKinds::new(kinds);
        self
    }

    /// Removes these values from every step that this session and its forks append.
    ///
    /// Texts that look like keys are always removed, and so are the keys of a provider once it is asked. Earlier steps do not
    /// change, so call this before the first step.
    pub fn hiding(mut self, secrets: Secrets) -> Self {
        self.hide_also(&secrets);
        self
    }

    /// Appends a step.
    ///
    /// Every chunk is recorded, even a result without a call; views leave out what does not fit.
    pub fn push(&mut self, chunk: impl Into<Chunk>) -> StepId {
        self.append(chunk.into(), None)
    }

    /// Appends the step of a model call, with the usage of the call.
    pub fn push_with_usage(&mut self, chunk: impl Into<Chunk>, usage: Usage) -> StepId {
        self.append(chunk.into(), Some(usage))
    }

    /// Creates a fork: a session that continues from here on a branch of its own.
    ///
    /// Its files are those on the record: [`record_files`](Session::record_files) first records what changed outside the session.
    pub fn fork(&self) -> Self {
        self.new_fork(None).deeper()
    }

    /// Creates a fork with a name that the log shows.
    pub fn fork_named(&self, name: impl Into<String>) -> Self {
        self.new_fork(Some(name.into())).deeper()
    }

    /// Creates a session that keeps the steps and has no parent in the graph of sessions.
    ///
    /// It shares the budget, and does not count as a fork for limits of depth.
    pub fn detach(&self) -> Self {
        let Forked { nth, counter, from, .. } = self.fork_chunk(None);
        let mut session = Session { branch: SessionBranch::new(), ..self.clone() };
        session.live.place = self.live.place.for_fork();
        session.with(Detached::new(nth).with_counter(counter).with_from(from))
    }

    /// Creates a fork that continues from an earlier step.
    pub fn at(&self, step: StepId) -> Result<Self> {
        let found = self.find(step)?;
        let mut session = self.new_fork(None).deeper();
        if self.head() != Some(found) {
            session.record = Record::at(found.clone());
            session.placed = Arc::default();
            session.live.ownership = self.ownership_at(found);
            if let Some(opening) = &mut session.branch.opening {
                opening.from = opening.from.or(self.head().map(Step::id));
            }
        }
        Ok(session)
    }

    /// Returns the id of the branch that this session appends to.
    pub fn id(&self) -> BranchId {
        self.branch.id
    }

    /// Returns the newest step.
    pub fn head(&self) -> Option<&Step> {
        self.record.head()
    }

    /// Returns the record behind the session.
    pub fn as_record(&self) -> &Record {
        &self.record
    }

    /// Returns the chunks, oldest first, without the markers of forks and merges.
    pub fn chunks(&self) -> impl Iterator<Item = &Chunk> {
        self.record.steps().into_iter().map(Step::chunk).filter(|chunk| !chunk.is_marker())
    }

    /// Returns the number of chunks.
    pub fn chunk_count(&self) -> u64 {
        self.record.chunk_count()
    }

    /// Returns the graph of steps behind the session. Its `Display` is the log.
    pub fn lineage(&self) -> Lineage {
        self.record.lineage()
    }

    /// Returns the path of the module that appends steps, such as `readme.agent`.
    pub fn module(&self) -> Option<&str> {
        self.by.as_deref()
    }

    /// Returns the last text of the model that is not blank.
    pub fn text(&self) -> Option<&str> {
        self.record.newest_first().find_map(|step| match step.chunk() {
            Chunk::Assistant(answer) => answer.text.as_str().filter(|text| !text.trim().is_empty()),
            _ => None,
        })
    }

    /// Returns the text of the newest answer, which may be empty.
    pub(crate) fn last_answer(&self) -> Option<&str> {
        self.record.newest_first().find_map(|step| match step.chunk() {
            Chunk::Assistant(answer) => Some(answer.text.as_str().unwrap_or_default()),
            _ => None,
        })
    }

    /// Returns the usage of all model calls. A call counts once, however many branches contain it.
    pub fn usage(&self) -> Usage {
        self.record.usage()
    }

    /// Returns the place where tools run.
    pub fn place(&self) -> Option<Place> {
        let find = || {
            self.record.find_newest(|step| match step.chunk() {
                // The author of a session that was adopted does not say where its tools run.
                _ if step.voids_earlier_decisions() => Some(None),
                Chunk::Placed(placed) => Some(Some(Place::from_record(&placed.place))),
                _ => None,
            })
        };
        self.placed.get_or_init(|| find().flatten()).clone()
    }

    /// Returns the next action of an agent: ask the model, run tools, or done.
    pub fn next(&self) -> turn::Next {
        turn::next(&self.record)
    }

    /// Returns the messages that a model sees.
    pub fn messages(&self) -> view::Messages<'_> {
        view::messages(&self.record)
    }

    /// Returns the summaries, each with the steps that it stands for.
    pub fn folds(&self) -> Vec<view::Fold<'_>> {
        view::folds(&self.record)
    }

    /// Returns the changed files, each with the call that changed it.
    pub fn files(&self) -> view::ChangedFiles<'_> {
        view::files(&self.record)
    }

    /// Returns the checks, and whether they cover the current files.
    pub fn checks(&self) -> view::Checks<'_> {
        view::checks(&self.record)
    }

    /// Returns the usage by branch and by module.
    pub fn spending(&self) -> view::Spending {
        view::spending(&self.record)
    }

    /// Exports the graph of sessions behind this one, a JSON line for each, with the field names of the Python OpenRath.
    ///
    /// [`Ids::Original`] keeps the ids of the sessions; [`Ids::Canonical`] derives ids from the record, so that two runs of one
    /// program can be compared.
    pub fn export(&self, ids: Ids) -> String {
        graph::export(&self.with_opening().lineage(), ids)
    }

    /// Returns the cost of all model calls in money. A call counts once, however many branches contain it.
    pub fn cost(&self, prices: &Prices) -> Cost {
        provider::cost(&self.record, prices)
    }

    /// Rebuilds the request that an answer belongs to, byte for byte as it was sent.
    pub fn request(&self, answer: StepId) -> Result<Request> {
        let step = self.find(answer)?;
        let wrong = |what: &str| Error::new(ErrorKind::Request, format_args!("step {} {what}", answer.short()));
        let request = match (step.chunk(), Session::before(step)) {
            (Chunk::Assistant(answer), Some(earlier)) => rebuild(&earlier, answer),
            (Chunk::Assistant(_), None) => Err(wrong("has no step before it")),
            _ => Err(wrong("is not an answer of a model").with_hint("answers are marked `assistant` in the log")),
        };
        request.map_err(|error| error.with_session(self))
    }

    /// Returns the budget that this session shares with its forks.
    pub fn budget(&self) -> Option<&Budget> {
        self.budget.as_ref().map(|(budget, _)| budget)
    }

    /// Returns the budget, and the number of forks between its owner and this session.
    pub(crate) fn budget_and_depth(&self) -> Option<(Budget, u32)> {
        self.budget.clone()
    }

    /// Renders the request that asks `target` to continue the session.
    pub(crate) fn render(&self, target: RequestTarget<'_>) -> Result<Request> {
        let rendered = self.rendered.render(&self.record, target, self.by.clone());
        rendered.map_err(|missing| Error::from(ProviderError::from(missing)).with_session(self))
    }

    /// Returns the digest of that request.
    pub(crate) fn request_digest(&self, target: RequestTarget<'_>) -> Result<Digest> {
        let digest = self.rendered.digest(&self.record, target);
        digest.map_err(|missing| Error::from(ProviderError::from(missing)).with_session(self))
    }

    /// Returns the session as it was before an answer of a model.
    pub(crate) fn before(answer: &Step) -> Option<Self> {
        let parent = answer.parents().first().and_then(|link| link.step())?;
        Some(Session::on(Record::at(parent.clone()), SessionBranch::new()))
    }

    /// Moves the session to the step before an answer, and keeps the request cache. Returns false if there is no such step.
    pub(crate) fn rewind_before(&mut self, answer: &Step) -> bool {
        let parent = answer.parents().first().and_then(|link| link.step());
        self.record = parent.cloned().map(Record::at).unwrap_or_default();
        parent.is_some()
    }

    /// Creates a session at the head of `record`, on the branch of that head.
    ///
    /// Nothing shows who made the record, so the session is a [guest](Session::is_guest).
    pub fn resume(record: Record) -> Self {
        let Some(head) = record.head() else { return Session::empty() };
        let id = head.stamp().branch;
        let forks = Arc::new(ForkCounter { id: Some(CounterId(new_uuid())), ..ForkCounter::default() });
        let mut session = Session::on(record, SessionBranch { id, forks, opening: None });
        session.live.ownership = Ownership::Guest;
        session
    }

    /// Creates a session at the head of a record that this program made, or has from a place where only its user writes.
    ///
    /// For programs that keep records by themselves. Unlike [`resume`](Session::resume), its place and its open calls are in
    /// force.
    pub fn resume_own(record: Record) -> Self {
        Session::resume(record).owned_if(true)
    }

    /// Creates a session as a recorded run found it: with the count of forks made at its head, and its own first step if it
    /// was a fork.
    pub(crate) fn replayed(
        from: Option<&Step>,
        forks: ForkCounter,
        opening: Option<Forked>,
        replay: &Arc<Replay>,
    ) -> Self {
        let record = from.cloned().map(Record::at).unwrap_or_default();
        // A replay runs nothing of a guest: that was refused before it began.
        let mut session = Session::resume_own(record);
        session.branch = SessionBranch { id: session.branch.id, forks: Arc::new(forks), opening };
        session.live.replay = Some(replay.clone());
        session.live.policy = replay.policy().cloned();
        session.hide_also(replay.secrets());
        session
    }

    /// Returns true if the text of a step was forgotten.
    pub(crate) fn has_forgotten(&self) -> bool {
        self.record.newest_first().any(|step| step.withheld().is_some())
    }

    /// Appends a copy of a recorded step, with its usage.
    pub(crate) fn append_recorded(&mut self, step: &Step) {
        // A chunk that this version cannot write byte for byte would get another id.
        if matches!(step.json(), Cow::Borrowed(_)) || step.withheld().is_some() {
            self.begin();
            self.branch.count_forks_anew();
            self.record = Record::at(step.clone());
            return self.publish(step.clone());
        }
        self.append(step.chunk().clone(), step.stamp().usage);
    }

    fn on(record: Record, branch: SessionBranch) -> Self {
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

    /// Adds one fork to the depth in the budget.
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

    /// Returns a copy for export, with the first step of a fork on the record.
    pub(crate) fn with_opening(&self) -> Self {
        // The copy is only read: it emits no events and is not recorded.
        let mut session = self.quiet().recorded_by(None);
        session.live.replay = None;
        session.begin();
        session
    }

    /// Appends a step and returns the session.
    fn with(mut self, chunk: impl Into<Chunk>) -> Self {
        self.push(chunk);
        self
    }

    fn append(&mut self, chunk: Chunk, usage: Option<Usage>) -> StepId {
        self.begin();
        self.branch.count_forks_anew();
        if matches!(chunk, Chunk::Placed(_) | Chunk::Adopted(_)) {
            self.placed = Arc::default();
        }
        let stamp = self.stamp(&self.branch, usage);
        self.write(chunk, stamp)
    }

    /// Appends a step without secrets, and hands it to the recorder and the listeners.
    fn write(&mut self, mut chunk: Chunk, stamp: Stamp) -> StepId {
        self.live.secrets.hide_in(&mut chunk);
        let (step, json) = self.record.push_with_json(chunk, stamp);
        let step = step.clone();
        let replay = self.live.replay.as_ref();
        if let Some(recorded) = replay.and_then(|replay| replay.forgotten_instead_of(&step, &json)).cloned() {
            self.record = Record::at(recorded.clone());
            let id = recorded.id();
            self.publish(recorded);
            return id;
        }
        let id = step.id();
        self.publish_with_json(step, Some(json));
        id
    }

    /// Hands a merge step to the recorder and the listeners.
    fn publish(&mut self, step: Step) {
        self.publish_with_json(step, None);
    }

    /// Hands a step to the replay, the recorder and the listeners, with its JSON if there is one.
    fn publish_with_json(&mut self, step: Step, json: Option<Vec<u8>>) {
        if let Some(replay) = &self.live.replay {
            replay.compare_step(&step);
        }
        self.hand_to_recorder(json);
        self.emit(|| EventKind::Step(step));
    }

    /// Writes the first step of a fork.
    fn begin(&mut self) {
        if let Some(opening) = self.branch.opening.take() {
            let stamp = self.stamp(&self.branch, None);
            self.write(opening.into(), stamp);
            self.branch.count_forks_anew();
        }
    }

    fn stamp(&self, branch: &SessionBranch, usage: Option<Usage>) -> Stamp {
        let mut stamp = Stamp::on(branch.id);
        (stamp.by, stamp.usage, stamp.at) = (self.by.clone(), usage, now());
        stamp
    }

    /// Creates a fork at the head. Until it has a step of its own, its forks are counted with those of this session.
    fn new_fork(&self, name: Option<String>) -> Self {
        let branch = SessionBranch {
            forks: self.branch.forks.clone(),
            opening: Some(self.fork_chunk(name)),
            ..SessionBranch::new()
        };
        let mut session = Session { branch, ..self.clone() };
        session.live.place = self.live.place.for_fork();
        session
    }

    /// Returns true if this is a fork whose first step is not written yet.
    pub(crate) fn is_unwritten_fork(&self) -> bool {
        self.branch.opening.is_some()
    }

    /// Returns the chunk that distinguishes a new fork from all others: a number with its counter, and the head where forks
    /// were counted if that is not the step before it.
    fn fork_chunk(&self, name: Option<String>) -> Forked {
        let forks = &self.branch.forks;
        let nth = forks.count.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let from = self.branch.opening.as_ref().and_then(|opening| opening.from);
        Forked::new(nth).with_counter(forks.id).with_from(from).with_name(name)
    }
}

impl SessionBranch {
    fn new() -> Self {
        SessionBranch { id: BranchId(new_uuid()), forks: Arc::default(), opening: None }
    }

    /// Starts the count of forks for a head that this program appends.
    fn count_forks_anew(&mut self) {
        let forks = &self.forks;
        if Arc::strong_count(forks) > 1 || forks.id.is_some() || forks.count.load(Ordering::Relaxed) > 0 {
            self.forks = Arc::default();
        }
    }
}

fn new_uuid() -> [u8; 16] {
    uuid::Uuid::now_v7().into_bytes()
}

/// Prints one line: the head, the number of steps without those of forks and merges, the place, the usage and the next action.
impl fmt::Display for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(head) = self.head() else { return f.write_str("empty session") };
        write!(f, "session {}", head.id().short())?;
        write!(f, ": {}", draw::count(self.chunk_count(), "step"))?;
        if let Some(place) = self.place() {
            write!(f, ", sandbox {}", draw::preview(place.as_str()))?;
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

/// Returns the current time, or none if the clock is before 1970 or too far ahead.
fn now() -> Option<Timestamp> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    i64::try_from(since.as_micros()).ok().map(Timestamp)
}
