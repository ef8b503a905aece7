//! What a recorded session carries: where its steps go, and how far they are.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use rath_record::chunk::Strategy;
use rath_record::lineage::{self, Lineage};
use rath_record::{BranchId, Chunk, Kept, Link, Step, StepId};

use super::desk::{Desk, again};
use super::{FIRST, Listed, Right, Rows, Store, Write, fenced, moved, not_kept, title};
use crate::error::ErrorKind;
use crate::session::Session;
use crate::session::{Error, Result};

/// Where the steps of a session go, and how far they are.
#[derive(Clone)]
pub(crate) struct Recorder {
    /// Before the store, which is let go after it: giving back the right to write is the last thing that is written.
    line: Arc<Line>,
    store: Store,
    /// The branch that the session began with.
    family: BranchId,
    /// The number of what was handed over last.
    number: u64,
    /// Whether another handle went on with the branch: what this one does since is kept nowhere.
    astray: bool,
}

/// A branch that this process writes. All handles on the branch share it; the last one closes the branch.
pub(super) struct Line {
    desk: Arc<Desk>,
    branch: BranchId,
    state: Mutex<State>,
}

struct State {
    right: Right,
    /// The newest step that was handed over.
    head: Option<StepId>,
    titled: bool,
    /// Why it cannot be written any further.
    lost: Option<Error>,
}

impl Recorder {
    /// For a branch that is not in the store yet.
    fn new(store: &Store, family: BranchId, branch: BranchId) -> Self {
        let right = Right::New(store.desk().holder().clone());
        let line = Line::new(store, branch, State { right, head: None, titled: false, lost: None });
        Recorder { store: store.clone(), family, line, number: 0, astray: false }
    }

    /// For a branch that is in the store, held by the right of this number.
    pub(super) fn resumed(store: &Store, listed: &Listed, epoch: u64, head: Option<&Step>) -> Self {
        let titled = is_titled(listed.branch, head);
        let state = State { right: Right::Held(epoch), head: Some(listed.head), titled, lost: None };
        let line = Line::new(store, listed.branch, state);
        Recorder { store: store.clone(), family: listed.family, line, number: 0, astray: false }
    }

    /// Hands over what leads to the new head of a branch and is not in the store yet; with the head's JSON, where it is at
    /// hand.
    pub(crate) fn keep(&mut self, branch: BranchId, head: &Step, json: Option<Vec<u8>>) {
        if self.line.branch != branch {
            *self = Recorder { number: self.number, ..Recorder::new(&self.store, self.family, branch) };
        }
        let rows = self.store.rows();
        let steps = unkept(head, rows);
        let mut state = self.line.lock();
        let goes_on = match state.head {
            None => true,
            Some(known) => steps.iter().any(|step| step.parents().first().is_some_and(|link| link.id() == known)),
        };
        if self.astray || !goes_on || state.lost.is_some() {
            self.astray = true;
            return;
        }
        steps.iter().for_each(|step| rows.set(step, Kept::Soon));
        let title = match (state.titled, state.head) {
            (true, _) => None,
            (false, None) => about(branch, head, &steps),
            // A branch that was made before anything was said on it is about what is said first.
            (false, Some(_)) => said_on(branch, &steps),
        };
        state.titled |= said_on(branch, &steps).is_some();
        let (right, after) = (state.right.clone(), state.head.replace(head.id()));
        if let Right::New(_) = right {
            state.right = Right::Held(FIRST);
        }
        // Under the lock: what is handed over first is written first.
        let write = Write { family: self.family, branch, right, after, steps, title, said: json };
        self.number = self.store.desk().write(write, self.line.clone());
    }

    /// Writes down which steps of theirs are in the store because ours are: a copy that was read from elsewhere does not
    /// say so itself, and would be written again.
    pub(crate) fn recognise(&self, ours: &Step, theirs: &Step) {
        let rows = self.store.rows();
        if self.has(theirs) || lineage::common_ancestor(ours, theirs).is_none() {
            return;
        }
        let (ours, theirs) = (Lineage::of([ours.clone()]), Lineage::of([theirs.clone()]));
        let kept: HashMap<StepId, Kept> = ours.walk().into_iter().map(|step| (step.id(), rows.of_step(step))).collect();
        for step in theirs.walk().into_iter().filter(|step| rows.of_step(step) == Kept::No) {
            kept.get(&step.id()).into_iter().for_each(|kept| rows.set_copies(step.id(), *kept));
        }
    }

    /// Whether a step is in the store, or on its way there.
    pub(crate) fn has(&self, step: &Step) -> bool {
        self.store.rows().of_step(step) != Kept::No
    }

    /// Comes when all that was handed over is durable, or is known not to be.
    pub(crate) async fn durable(&self) -> Result<()> {
        self.store.desk().settled(self.number).await;
        self.verdict()
    }

    pub(crate) fn poll_durable(&self, context: &mut Context<'_>) -> Poll<Result<()>> {
        self.store.desk().poll_settled(self.number, context).map(|()| self.verdict())
    }

    /// The same for a thread that may wait.
    pub(crate) fn wait(&self) -> Result<()> {
        self.store.desk().wait(self.number);
        self.verdict()
    }

    fn verdict(&self) -> Result<()> {
        match &self.line.lock().lost {
            Some(error) => Err(again(error)),
            None if self.astray => Err(moved(self.line.branch)),
            None => Ok(()),
        }
    }

    /// Counts as durable only when what another handed over is, too.
    pub(crate) fn wait_for(&mut self, other: &Recorder) {
        if Arc::ptr_eq(self.store.desk(), other.store.desk()) {
            self.number = self.number.max(other.number);
        }
    }

    pub(crate) fn store(&self) -> &Store {
        &self.store
    }
}

impl Line {
    fn new(store: &Store, branch: BranchId, state: State) -> Arc<Self> {
        store.desk().hold();
        Arc::new(Line { desk: store.desk().clone(), branch, state: Mutex::new(state) })
    }

    /// Says that nothing further is written, and why.
    pub(super) fn lose(&self, error: Error) {
        self.lock().lost.get_or_insert(error);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Line {
    /// Nobody is left who could go on.
    fn drop(&mut self) {
        self.desk.let_go();
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let (Right::Held(epoch), None) = (&state.right, &state.lost) {
            self.desk.release(self.branch, *epoch);
        }
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Recorder").field(&self.store.uri()).finish()
    }
}

/// The steps that lead to a head and are not in the store, parents first.
fn unkept(head: &Step, rows: &Rows) -> Vec<Step> {
    let is_kept = |link: &Link| matches!(link, Link::Gone(_)) || rows.of(link) != Kept::No;
    if head.parents().iter().all(is_kept) {
        return vec![head.clone()];
    }
    // Every step once, after all of its parents: it is put back under them, and taken when it comes up again.
    let mut found = Vec::new();
    let mut seen: HashMap<StepId, bool> = HashMap::new();
    let mut open = vec![head];
    while let Some(step) = open.pop() {
        match seen.entry(step.id()) {
            Entry::Vacant(entry) => {
                entry.insert(false);
                open.push(step);
                let parents = step.parents().iter().rev().filter(|link| !is_kept(link));
                open.extend(parents.filter_map(Link::step).filter(|parent| !seen.contains_key(&parent.id())));
            }
            Entry::Occupied(mut taken) => {
                if !taken.insert(true) {
                    found.push(step.clone());
                }
            }
        }
    }
    found
}

/// What a branch is about: the first thing that the user says on it, or its name, or what was said last before it.
pub(super) fn about(branch: BranchId, head: &Step, steps: &[Step]) -> Option<Arc<str>> {
    let named = || {
        steps.iter().filter(|step| step.stamp().branch == branch).find_map(|step| match step.chunk() {
            Chunk::Forked(forked) => forked.name.as_deref().map(Into::into),
            _ => None,
        })
    };
    said_on(branch, steps).or_else(named).or_else(|| said_before(head))
}

/// The first thing that the user says on a branch.
fn said_on(branch: BranchId, steps: &[Step]) -> Option<Arc<str>> {
    steps.iter().filter(|step| step.stamp().branch == branch).find_map(said)
}

/// Whether the user has said something on a branch that is in the store; of a long one that is taken for granted.
fn is_titled(branch: BranchId, head: Option<&Step>) -> bool {
    let line = std::iter::successors(head, |step| step.parents().first().and_then(Link::step));
    let own: Vec<_> = line.take(BACK).take_while(|step| step.stamp().branch == branch).collect();
    own.len() == BACK || own.into_iter().any(|step| said(step).is_some())
}

/// What the user said last on the line that led to a step. What came of a merge is about what its sides have in common.
fn said_before(head: &Step) -> Option<Arc<str>> {
    let line = std::iter::successors(Some(head), |step| match (step.parents(), step.chunk()) {
        ([ours, theirs], Chunk::Merged(merged)) if merged.strategy != Strategy::Aside => {
            let shared =
                ours.step().zip(theirs.step()).and_then(|(ours, theirs)| lineage::common_ancestor(ours, theirs));
            shared.or(ours.step())
        }
        (parents, _) => parents.first().and_then(Link::step),
    });
    line.take(BACK).find_map(said)
}

/// How far back somebody looks for what a branch is about.
const BACK: usize = 256;

fn said(step: &Step) -> Option<Arc<str>> {
    match step.chunk() {
        Chunk::User(user) => title(&user.text),
        _ => None,
    }
}

impl Session {
    /// Keeps the session in a store: all that it is now, and every step that it, and everything that forks from it, goes on
    /// with.
    ///
    /// A step is on its way as soon as it is appended. Whatever is awaited with a session (a run, an answer) comes back
    /// when its steps are durable; after a bare `push`, await [`durable`](Session::durable).
    pub async fn record(mut self, store: &Store) -> Result<Self> {
        let recorder = self.recorder().filter(|known| Arc::ptr_eq(known.store.desk(), store.desk()));
        if recorder.is_none() {
            // What a store lists has a step of its own, which is for this store only.
            let begun = self.clone().recorded_by(None).begun();
            let recorder = begun.place_in(store).await.map_err(|error| error.with_session(&self))?;
            self = begun.heard_by(self.hub().clone()).recorded_by(Some(recorder));
            self.make_versions_durable().await?;
        }
        self.durable().await?;
        Ok(self)
    }

    /// Comes when every step of this session is durable in the store that it is recorded in; at once if it is in none.
    pub async fn durable(&self) -> Result<()> {
        match self.recorder() {
            None => Ok(()),
            Some(recorder) => {
                let durable = recorder.durable().await;
                let durable = durable.and_then(|()| match self.head().filter(|head| !recorder.has(head)) {
                    // It came in from a session whose own write was refused.
                    Some(head) => Err(not_kept(head.id())),
                    None => Ok(()),
                });
                durable.map_err(|error| error.with_session(self))
            }
        }
    }

    /// The store that the session is recorded in.
    pub fn store(&self) -> Option<&Store> {
        self.recorder().map(Recorder::store)
    }

    /// Finds out what of this session a store has already, and hands over the rest.
    async fn place_in(&self, store: &Store) -> Result<Recorder> {
        let Some(head) = self.head().cloned() else { return Ok(Recorder::new(store, self.id(), self.id())) };
        let walk = Lineage::of([head.clone()]);
        // What was handed over before is there to be read by then.
        store.desk().ask(|_| Ok(())).await?;
        let mut family = None;
        let mut kept: HashMap<StepId, Kept> = HashMap::new();
        let mut branches = std::collections::HashSet::new();
        for step in walk.walk() {
            let branch = step.stamp().branch;
            if !branches.insert(branch) {
                continue;
            }
            let Some(listed) = store.listed(branch)? else { continue };
            family.get_or_insert(listed.family);
            let stored = store.read(branch)?.session.lineage();
            let here = stored.walk().into_iter().map(|step| (step.id(), store.rows().of_step(step)));
            kept.extend(here);
        }
        for step in walk.walk() {
            // What it had once may have been deleted.
            store.rows().set(step, kept.get(&step.id()).copied().unwrap_or(Kept::No));
        }
        let first = walk.walk().first().map_or(self.id(), |step| step.stamp().branch);
        let family = family.unwrap_or(first);
        let Some(listed) = store.listed(self.id())? else {
            let mut recorder = Recorder::new(store, family, self.id());
            recorder.keep(self.id(), &head, None);
            return Ok(recorder);
        };
        let Some(known) = walk.find(listed.head).filter(|known| kept.contains_key(&known.id())) else {
            return Err(moved(self.id()));
        };
        let (branch, holder) = (self.id(), store.desk().holder().clone());
        let epoch = store.desk().ask(move |backend| backend.claim(branch, &holder)).await?;
        let mut recorder = Recorder::resumed(store, &listed, epoch, Some(known));
        match store.listed(branch)? {
            Some(now) if now.head == listed.head => {}
            now => return Err(now.map_or_else(|| fenced(branch, None), |_| moved(branch))),
        }
        if listed.head != head.id() {
            recorder.keep(branch, &head, None);
        }
        Ok(recorder)
    }

    /// What of an error a caller may go on from.
    pub(crate) async fn settled(result: Result<Session>) -> Result<Session> {
        match result {
            Ok(session) => session.durable().await.map(|()| session),
            Err(error) => {
                let lost = match error.session() {
                    Some(session) => session.durable().await.err(),
                    None => None,
                };
                // The first error is the reason; that its steps are not kept has to be said as well.
                Err(match lost {
                    Some(lost) if error.kind() != ErrorKind::Store && error.kind() != ErrorKind::Conflict => {
                        let message = format!("{}; and it is not kept: {}", error.message(), lost.message());
                        let told = Error::new(lost.kind(), message);
                        let told = lost.hint().map(str::to_owned).into_iter().fold(told, Error::with_hint);
                        error.session().into_iter().fold(told, Error::with_session)
                    }
                    _ => error,
                })
            }
        }
    }
}
