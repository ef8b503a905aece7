//! The recorder of a session: the store that its steps go to, and the writes that are not durable yet.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use rath_record::lineage::{self, Lineage};
use rath_record::{BranchId, Parent, Step, StepId, StorageState};

use super::guest::Ownership;
use super::{Error, Result, Session};
use crate::blocking::run_blocking;
use crate::error::ErrorKind;
use crate::store::{
    BranchSummary, BranchWriter, BranchWriterState, FIRST_EPOCH, StepKey, StepPlaces, Store, StoreError, Write,
    WriteRight, branch_moved, branch_title, first_message, has_message, key_of, parent_not_stored, right_lost,
};

/// The store that the steps of a session go to, and the newest write that was handed over.
#[derive(Clone)]
pub(crate) struct Recorder {
    /// Dropped before the store: releasing the right to write is the last write.
    branch_writer: Arc<BranchWriter>,
    store: Store,
    /// The branch that the session began with.
    family: BranchId,
    /// The number of the newest job that was handed to the writer thread.
    number: u64,
    /// True if another handle has continued the branch: the steps of this handle are not stored since then.
    diverged: bool,
}

impl Recorder {
    /// Creates a recorder for a branch that is not in the store yet.
    fn new(store: &Store, family: BranchId, branch: BranchId) -> Self {
        let right = WriteRight::New(store.writer_thread().holder().clone());
        let state = BranchWriterState { right, head: None, has_title: false, failure: None };
        let branch_writer = BranchWriter::new(store.writer_thread(), branch, state);
        Recorder { store: store.clone(), family, branch_writer, number: 0, diverged: false }
    }

    /// Creates a recorder for a stored branch whose right was claimed.
    pub(super) fn resumed(store: &Store, family: BranchId, branch_writer: Arc<BranchWriter>) -> Self {
        Recorder { store: store.clone(), family, branch_writer, number: 0, diverged: false }
    }

    /// Hands over the steps up to the new head of a branch that are not in the store yet. `json` is the JSON of the head,
    /// if it was encoded already.
    pub(crate) fn write(&mut self, branch: BranchId, head: &Step, json: Option<Vec<u8>>, ownership: Ownership) {
        if self.branch_writer.branch() != branch {
            *self = Recorder { number: self.number, ..Recorder::new(&self.store, self.family, branch) };
        }
        let _queueing = self.store.rows().lock_queueing();
        let rows = self.store.rows();
        let mut state = self.branch_writer.lock();
        self.diverged |= state.failure.is_some();
        if self.diverged {
            return;
        }
        let steps = steps_to_write(head, state.head, rows);
        let continues = match state.head {
            None => true,
            Some(known) => steps.iter().any(|step| step.parents().first().is_some_and(|link| link.id() == known)),
        };
        if !continues {
            self.diverged = true;
            return;
        }
        rows.mark_pending(&steps);
        let title = match (state.has_title, state.head) {
            (true, _) => None,
            (false, None) => branch_title(branch, head, &steps),
            // A branch that was stored before its first message gets the title from that message.
            (false, Some(_)) => first_message(branch, &steps),
        };
        state.has_title = state.has_title || first_message(branch, &steps).is_some();
        let (right, after) = (state.right.clone(), state.head.replace(head.id()));
        if let WriteRight::New(_) = right {
            state.right = WriteRight::Held(FIRST_EPOCH);
        }
        // Under the lock: writes are queued in the order in which heads were set.
        let signer = (ownership == Ownership::Own).then(|| self.store.signer().clone());
        let adopted = steps.iter().rposition(Step::voids_earlier_decisions).unwrap_or_default();
        let unsigned = steps[..adopted].iter().map(Step::id).collect();
        let write =
            Write { family: self.family, branch, right, after, steps, title, newest_json: json, signer, unsigned };
        self.number = self.store.writer_thread().write(write, self.branch_writer.clone());
    }

    /// Notes which steps of `theirs` are in the store because equal steps of `ours` are.
    ///
    /// A copy that was read from elsewhere does not know its place in this store, and would be written again.
    pub(crate) fn recognise(&self, ours: &Step, theirs: &Step) {
        let rows = self.store.rows();
        if self.has(theirs) || lineage::common_ancestor(ours, theirs).is_none() {
            return;
        }
        let (ours, theirs) = (Lineage::new([ours.clone()]), Lineage::new([theirs.clone()]));
        recognise_copies(rows, &by_key(&ours), &theirs);
    }

    /// Returns true if a step is in the store, or queued to be written.
    pub(crate) fn has(&self, step: &Step) -> bool {
        self.store.rows().lookup_step(step) != StorageState::NotStored
    }

    /// Completes when all steps that were handed over are durable, or have failed.
    pub(crate) async fn durable(&self) -> Result<(), StoreError> {
        self.store.writer_thread().wait_async(self.number).await;
        self.outcome()
    }

    pub(crate) fn poll_durable(&self, context: &mut Context<'_>) -> Poll<Result<(), StoreError>> {
        self.store.writer_thread().poll_wait(self.number, context).map(|()| self.outcome())
    }

    /// Blocks until all steps that were handed over are durable, or have failed.
    pub(crate) fn wait(&self) -> Result<(), StoreError> {
        self.store.writer_thread().wait(self.number);
        self.outcome()
    }

    fn outcome(&self) -> Result<(), StoreError> {
        match &self.branch_writer.lock().failure {
            Some(error) => Err(error.duplicate()),
            None if self.diverged => Err(branch_moved(self.branch_writer.branch())),
            None => Ok(()),
        }
    }

    /// Waits for the steps of another recorder as well, from now on.
    pub(crate) fn wait_for(&mut self, other: &Recorder) {
        if Arc::ptr_eq(self.store.writer_thread(), other.store.writer_thread()) {
            self.number = self.number.max(other.number);
        }
    }

    pub(crate) fn store(&self) -> &Store {
        &self.store
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Recorder").field(&self.store.uri()).finish()
    }
}

/// Returns the steps of a lineage by their keys.
fn by_key(lineage: &Lineage) -> HashMap<StepKey, &Step> {
    lineage.walk().into_iter().map(|step| (key_of(step), step)).collect()
}

/// Lets those steps of a lineage that are not in the store have the places of the originals that they are copies of.
fn recognise_copies(rows: &StepPlaces, originals: &HashMap<StepKey, &Step>, copies: &Lineage) {
    for step in copies.walk().into_iter().filter(|step| rows.lookup_step(step) == StorageState::NotStored) {
        originals.get(&key_of(step)).into_iter().for_each(|original| rows.copy_place(original));
    }
}

/// Returns the steps that lead to a head and are not in the store, parents first; and those after the newest step of the branch:
/// what was stored only for another branch is not on this one yet.
fn steps_to_write(head: &Step, newest: Option<StepId>, rows: &StepPlaces) -> Vec<Step> {
    let after = newest.map_or_else(HashSet::new, |newest| ids_after(newest, head));
    let is_stored = |link: &Parent| {
        matches!(link, Parent::Missing(_))
            || (rows.lookup(link) != StorageState::NotStored && !after.contains(&link.id()))
    };
    if head.parents().iter().all(is_stored) {
        return vec![head.clone()];
    }
    // Depth first: a step is pushed again below its parents, and taken when it is popped the second time.
    let mut steps = Vec::new();
    let mut is_taken: HashMap<StepKey, bool> = HashMap::new();
    let mut stack = vec![head];
    while let Some(step) = stack.pop() {
        match is_taken.entry(key_of(step)) {
            Entry::Vacant(entry) => {
                entry.insert(false);
                stack.push(step);
                let parents = step.parents().iter().rev().filter(|link| !is_stored(link));
                stack.extend(parents.filter_map(Parent::step).filter(|parent| !is_taken.contains_key(&key_of(parent))));
            }
            Entry::Occupied(mut taken) => {
                if !taken.insert(true) {
                    steps.push(step.clone());
                }
            }
        }
    }
    steps
}

/// Returns the ids of the steps between two steps of a line; none if the line does not lead from one to the other.
fn ids_after(from: StepId, to: &Step) -> HashSet<StepId> {
    let mut between = HashSet::new();
    let mut link = to.parents().first();
    while let Some(parent) = link.filter(|parent| parent.id() != from) {
        between.insert(parent.id());
        link = parent.step().and_then(|step| step.parents().first());
    }
    if link.is_some() { between } else { HashSet::new() }
}

impl Session {
    /// Records the session in a store: all its steps, and every step that is appended to it or to a fork of it from now on.
    ///
    /// A step is queued when it is appended. A run or an answer that is awaited returns when its steps are durable; after a
    /// bare `push`, await [`durable`](Session::durable).
    pub async fn record(mut self, store: &Store) -> Result<Self> {
        self.hide_also(store.secrets());
        self.use_sandboxes_of(store);
        self.move_mirror().await?;
        let is_same = |known: &&Recorder| Arc::ptr_eq(known.store.writer_thread(), store.writer_thread());
        if self.recorder().filter(is_same).is_none() {
            // A listed session has a step of its own, which is for this store only.
            let begun = self.clone().recorded_by(None).with_opening();
            // Before its steps are there: from then on the store names versions.
            self.list_store(store).await?;
            let recorder = begun.place_in(store).await.map_err(|error| error.with_session(&self))?;
            self = begun.heard_by(self.hub().clone()).recorded_by(Some(recorder));
            self.make_versions_durable().await?;
        }
        // A fork of a recorded session, which has no step of its own yet.
        self.begin();
        self.durable().await?;
        Ok(self)
    }

    /// Completes when every step of this session is durable in its store; at once if the session is not recorded.
    pub async fn durable(&self) -> Result<()> {
        let Some(recorder) = self.recorder() else { return Ok(()) };
        let durable = recorder.durable().await;
        let durable = durable.and_then(|()| match self.head().filter(|head| !recorder.has(head)) {
            // The head came from a session whose own write was refused.
            Some(head) => Err(parent_not_stored(head.id())),
            None => Ok(()),
        });
        durable.map_err(|error| Error::from(error).with_session(self))
    }

    /// Returns the store that the session is recorded in.
    pub fn store(&self) -> Option<&Store> {
        self.recorder().map(Recorder::store)
    }

    /// Finds the steps of this session that a store has already, and hands over the others.
    async fn place_in(&self, store: &Store) -> Result<Recorder> {
        let Some(head) = self.head().cloned() else { return Ok(Recorder::new(store, self.id(), self.id())) };
        let walk = Lineage::new([head.clone()]);
        let mut seen = HashSet::new();
        let branches = walk.walk().into_iter().map(|step| step.stamp().branch).chain([self.id()]);
        let branches: Vec<BranchId> = branches.filter(|branch| seen.insert(*branch)).collect();
        let first = branches[0];
        let noted = NotedPlaces::of(&walk, store);
        let summaries = store.summaries(branches).await?;
        let places = read_places(store, &summaries).await?;
        noted.compare(&summaries, &places);
        let family = summaries.first().map_or(first, |summary| summary.family);
        let branch = self.id();
        let Some(summary) = summaries.into_iter().find(|summary| summary.branch == branch) else {
            let mut recorder = Recorder::new(store, family, branch);
            recorder.write(branch, &head, None, self.live.ownership);
            return Ok(recorder);
        };
        let Some(known) = walk.find(summary.head).filter(|known| places.contains_key(&key_of(known))) else {
            return Err(branch_moved(branch).into());
        };
        let (branch_writer, _) = store.writer_thread().claim(branch).await?;
        branch_writer.set_head(summary.head, has_message(branch, Some(known)));
        let mut recorder = Recorder::resumed(store, summary.family, branch_writer);
        match store.writer_thread().call(move |backend| backend.summary(branch)).await? {
            Some(now) if now.head == summary.head => {}
            Some(_) => return Err(branch_moved(branch).into()),
            None => return Err(right_lost(branch, None).into()),
        }
        if summary.head != head.id() {
            recorder.write(branch, &head, None, self.live.ownership);
        }
        Ok(recorder)
    }

    /// Waits until the session of a result, or of its error, is durable.
    ///
    /// The first error stays the reason; that its steps are not stored is added to it.
    pub(crate) async fn wait_until_durable(result: Result<Session>) -> Result<Session> {
        match result {
            Ok(session) => session.durable().await.map(|()| session),
            Err(error) => {
                let lost = match error.session() {
                    Some(session) => session.durable().await.err(),
                    None => None,
                };
                Err(match lost {
                    Some(lost) if error.kind() != ErrorKind::Store && error.kind() != ErrorKind::Conflict => {
                        let message = format!("{}; and it is not kept: {}", error.message(), lost.message());
                        let both = Error::new(lost.kind(), message);
                        let both = lost.hint().map(str::to_owned).into_iter().fold(both, Error::with_hint);
                        error.session().into_iter().fold(both, Error::with_session)
                    }
                    _ => error,
                })
            }
        }
    }
}

impl Store {
    /// Records many sessions at once: those whose branches are new to the store are written in few groups, and durable
    /// together.
    ///
    /// As with [`Session::record`], steps that the store has already are not written again. On an error, some of the sessions
    /// may be stored.
    pub async fn record_all(&self, sessions: Vec<Session>) -> Result<()> {
        let sessions: Vec<_> = sessions.into_iter().map(|session| session.recorded_by(None).with_opening()).collect();
        let lineage = Lineage::new(sessions.iter().filter_map(Session::head).cloned());
        let branches: HashSet<BranchId> = lineage.walk().into_iter().map(|step| step.stamp().branch).collect();
        // Writing one session writes the steps of other branches that it has, and so begins those branches.
        let mut others = branches_with_forks(&lineage);
        others.extend(self.summaries(branches.iter().copied().collect()).await?.iter().map(|summary| summary.branch));
        let (mut one_by_one, together): (Vec<_>, Vec<_>) =
            sessions.into_iter().partition(|session| others.contains(&session.id()));
        // In the order in which they began: the later steps of a branch, stored first for one that continues from them, would be
        // stored again for itself.
        one_by_one.sort_by_key(Session::id);
        for session in one_by_one {
            session.record(self).await?;
        }
        for session in &together {
            session.list_store(self).await?;
        }
        let noted = NotedPlaces::of(&lineage, self);
        let summaries = self.summaries(branches.into_iter().collect()).await?;
        noted.compare(&summaries, &read_places(self, &summaries).await?);
        let families: HashMap<BranchId, BranchId> =
            summaries.into_iter().map(|summary| (summary.branch, summary.family)).collect();
        let (mut recorders, originals) = (Vec::new(), by_key(&lineage));
        for session in together {
            let Some(head) = session.head() else { continue };
            let steps = Lineage::new([head.clone()]);
            recognise_copies(self.rows(), &originals, &steps);
            let branches: Vec<_> = steps.walk().into_iter().map(|step| step.stamp().branch).collect();
            let known = branches.iter().find_map(|branch| families.get(branch));
            let family = *known.or(branches.first()).unwrap_or(&session.id());
            let mut recorder = Recorder::new(self, family, session.id());
            recorder.write(session.id(), head, None, session.live.ownership);
            recorders.push((session, recorder));
        }
        let mut refused = Vec::new();
        for (session, recorder) in recorders {
            if recorder.durable().await.is_err() {
                refused.push(session);
            }
        }
        // Forks that begin with equal steps, or another writer at the same time: the error of a second try is the one to report.
        for session in refused {
            session.record(self).await?;
        }
        Ok(())
    }

    /// Returns the entries of those branches that the store has.
    async fn summaries(&self, branches: Vec<BranchId>) -> Result<Vec<BranchSummary>, StoreError> {
        // On the writer thread: steps that are queued now are stored by then.
        let summaries = self.writer_thread().call(move |backend| {
            branches.into_iter().filter_map(|branch| backend.summary(branch).transpose()).collect()
        });
        summaries.await
    }
}

/// Returns the branches that other branches continue from.
fn branches_with_forks(lineage: &Lineage) -> HashSet<BranchId> {
    let walk = lineage.walk();
    let links = walk.iter().flat_map(|step| step.parents().iter().map(|link| (step.stamp().branch, link.id())));
    let branch_of: HashMap<StepId, BranchId> = walk.iter().map(|step| (step.id(), step.stamp().branch)).collect();
    let parents = links.filter_map(|(child, parent)| Some((child, *branch_of.get(&parent)?)));
    parents.filter(|(child, parent)| child != parent).map(|(_, parent)| parent).collect()
}

/// The places of steps in a store, as they were noted before the store was read.
struct NotedPlaces<'a> {
    rows: &'a StepPlaces,
    places: Vec<(&'a Step, StorageState)>,
}

impl<'a> NotedPlaces<'a> {
    fn of(lineage: &'a Lineage, store: &'a Store) -> Self {
        let rows = store.rows();
        NotedPlaces { rows, places: lineage.walk().into_iter().map(|step| (step, rows.lookup_step(step))).collect() }
    }

    /// Notes what was read since, except for steps that another session has queued: their places are not known yet.
    fn compare(self, branches: &[BranchSummary], read: &HashMap<StepKey, StorageState>) {
        let stored: HashSet<BranchId> = branches.iter().map(|summary| summary.branch).collect();
        let _queueing = self.rows.lock_queueing();
        for (step, noted) in self.places {
            let now = self.rows.lookup_step(step);
            let is_deleted = now == noted && !stored.contains(&step.stamp().branch);
            match read.get(&key_of(step)) {
                _ if now == StorageState::Pending => {}
                Some(place) => self.rows.set(step, *place),
                // A branch does not lead to those of its steps that were stored only for another one.
                None if is_deleted => self.rows.set(step, StorageState::NotStored),
                None => {}
            }
        }
    }
}

/// Reads branches, and returns the places of all their steps.
async fn read_places(store: &Store, summaries: &[BranchSummary]) -> Result<HashMap<StepKey, StorageState>> {
    if summaries.is_empty() {
        return Ok(HashMap::new());
    }
    let (store, branches): (_, Vec<_>) = (store.clone(), summaries.iter().map(|summary| summary.branch).collect());
    run_blocking(move || {
        let mut places = HashMap::new();
        for branch in branches {
            let stored = Lineage::new(store.read_branch(branch)?.head);
            places.extend(stored.walk().into_iter().map(|step| (key_of(step), store.rows().lookup_step(step))));
        }
        Ok(places)
    })
    .await
}

#[cfg(all(test, feature = "sqlite"))]
mod tests {
    use rath_record::Chunk;

    use super::*;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
    }

    /// Stores a session without its newest step, and that step only for another session, which continues from it.
    async fn store_apart(store: &Store) -> (Session, Session) {
        let mut session = Session::user("begin");
        let stored = session.clone().record(store).await.expect("recorded");
        session.push(Chunk::user("stored for the other session"));
        let other = Session::user("another").record(store).await.expect("recorded");
        let merged = other.merge(&session).await.expect("merged");
        merged.durable().await.expect("durable");
        drop(stored);
        (session, merged)
    }

    async fn open(kind: &str, folder: &std::path::Path) -> Store {
        Store::open(&format!("{kind}:{}", folder.join("store").display())).await.expect("a store")
    }

    #[test]
    fn a_write_that_is_refused_changes_no_place_of_a_stored_step() {
        for kind in ["sqlite", "jsonl"] {
            let folder = rath_test_support::temp_dir();
            runtime().block_on(async {
                let store = open(kind, folder.path()).await;
                let (mut session, _other) = store_apart(&store).await;
                let shared = session.head().expect("a step").clone();
                let place = store.rows().lookup_step(&shared);
                assert!(matches!(place, StorageState::At(_)), "{kind}: {place:?}");

                session.push(Chunk::user("refused"));
                let refused = session.head().expect("a step");
                let not_held = BranchWriter::claimed(store.writer_thread(), session.id(), 99);
                not_held.set_head(shared.parents()[0].id(), true);
                let mut recorder = Recorder::resumed(&store, session.id(), not_held);
                recorder.write(session.id(), refused, None, Ownership::Own);
                assert!(recorder.durable().await.is_err(), "{kind}");
                let states = [&shared, refused].map(|step| store.rows().lookup_step(step));
                assert_eq!(states, [place, StorageState::NotStored], "{kind}");
            });
        }
    }

    #[test]
    fn a_step_is_stored_again_if_the_session_that_had_it_is_deleted() {
        for kind in ["sqlite", "jsonl"] {
            let folder = rath_test_support::temp_dir();
            runtime().block_on(async {
                let store = open(kind, folder.path()).await;
                let (mut session, other) = store_apart(&store).await;
                let deleted = other.lineage().walk()[0].stamp().branch;
                drop(other);
                // By another process: the first one does not know of it.
                store.summaries(vec![deleted]).await.expect("the writer thread answers");
                open(kind, folder.path()).await.delete(deleted).await.expect("deleted");
                session.push(Chunk::user("newest"));
                let session = session.record(&store).await.unwrap_or_else(|error| panic!("{kind}: {error}"));
                let found = open(kind, folder.path()).await.read(session.id()).await.expect("it is there");
                assert_eq!((found.damage.len(), found.session.chunks().count()), (0, 3), "{kind}");
            });
        }
    }
}
