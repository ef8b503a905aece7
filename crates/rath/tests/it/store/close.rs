//! Dropping a store does not wait, and loses nothing that was queued; closing it waits for all of it.

use std::sync::{Arc, Condvar, Mutex};

use futures_util::FutureExt;
use rath::BranchId;
use rath::prelude::*;
use rath::record::{Step, StepId};
use rath::store::{
    BranchSummary, CheckReport, Deletion, ErasedStep, FreedSpace, Holder, Result, Sqlite, StepPlaces, Store,
    StoreBackend, StoreError, StoreErrorKind, StoredBranch, Write,
};
use rath_test_support::wait_until;

use crate::support::block_on;

/// A disk that can be stopped, and the calls that reached it.
#[derive(Clone, Default)]
struct Disk(Arc<(Mutex<DiskState>, Condvar)>);

#[derive(Default)]
struct DiskState {
    is_stopped: bool,
    calls: Vec<&'static str>,
    /// The number of releases that fail.
    failing_releases: u64,
}

impl Disk {
    fn stop(&self, is_stopped: bool) {
        let mut state = self.0.0.lock().expect("no panic");
        state.is_stopped = is_stopped;
        state.calls.clear();
        self.0.1.notify_all();
    }

    /// Blocks while the disk is stopped, then notes the call.
    fn call(&self, name: &'static str) {
        let mut state = self.0.1.wait_while(self.0.0.lock().expect("no panic"), |state| state.is_stopped);
        state.as_mut().expect("no panic").calls.push(name);
    }

    fn fail_releases(&self, count: u64) {
        self.0.0.lock().expect("no panic").failing_releases = count;
    }

    /// Fails if a release is to fail.
    fn release(&self) -> Result<()> {
        self.call("release");
        let mut state = self.0.0.lock().expect("no panic");
        match state.failing_releases.checked_sub(1) {
            Some(left) => {
                state.failing_releases = left;
                Err(StoreError::new(StoreErrorKind::Store, "the disk is full"))
            }
            None => Ok(()),
        }
    }

    fn calls(&self) -> Vec<&'static str> {
        self.0.0.lock().expect("no panic").calls.clone()
    }
}

/// A store in memory on such a disk.
struct OnDisk(Sqlite, Disk);

impl StoreBackend for OnDisk {
    fn uri(&self) -> &str {
        self.0.uri()
    }

    fn write(&self, group: &[Write], rows: &StepPlaces) -> Result<Vec<Result<()>>> {
        self.1.call("write");
        self.0.write(group, rows)
    }

    fn claim(&self, branch: BranchId, holder: &Holder) -> Result<u64> {
        self.0.claim(branch, holder)
    }

    fn release(&self, rights: &[(BranchId, u64)]) -> Result<()> {
        self.1.release()?;
        self.0.release(rights)
    }

    fn renew(&self, holder: &Holder) -> Result<()> {
        self.0.renew(holder)
    }

    fn list(&self) -> Result<Vec<BranchSummary>> {
        self.0.list()
    }

    fn summary(&self, branch: BranchId) -> Result<Option<BranchSummary>> {
        self.0.summary(branch)
    }

    fn read(&self, branch: BranchId, rows: &Arc<StepPlaces>) -> Result<StoredBranch> {
        self.0.read(branch, rows)
    }

    fn pieces(&self, branch: BranchId, rows: &Arc<StepPlaces>) -> Result<Vec<Step>> {
        self.0.pieces(branch, rows)
    }

    fn check(&self) -> Result<CheckReport> {
        self.0.check()
    }

    fn forget(&self, branch: BranchId, step: StepId) -> Result<ErasedStep> {
        self.0.forget(branch, step)
    }

    fn delete(&self, families: &[BranchId]) -> Result<Deletion> {
        self.0.delete(families)
    }

    fn measure_delete(&self, families: &[BranchId]) -> Result<Deletion> {
        self.0.measure_delete(families)
    }

    fn compact(&self) -> Result<FreedSpace> {
        self.0.compact()
    }
}

impl Drop for OnDisk {
    fn drop(&mut self) {
        self.1.call("closed");
    }
}

/// A store whose disk has just been stopped, and a session with a step that waits for it.
fn stopped() -> (Disk, Store, Session) {
    let disk = Disk::default();
    let store = Store::new(OnDisk(Sqlite::in_memory().expect("a store"), disk.clone())).expect("a store");
    let mut session = block_on(Session::user("hello").record(&store)).expect("recorded");
    disk.stop(true);
    session.push(Chunk::assistant("hi"));
    (disk, store, session)
}

#[test]
fn a_drop_does_not_wait_and_loses_nothing() {
    let (disk, store, session) = stopped();
    let dropped = std::thread::spawn(move || drop((session, store)));
    wait_until("the handles are dropped", || dropped.is_finished());
    assert!(disk.calls().is_empty(), "the disk is stopped");
    disk.stop(false);
    wait_until("all that was queued is done", || disk.calls() == ["write", "release", "closed"]);
}

#[test]
fn a_close_waits_for_all_that_is_queued() {
    let (disk, store, session) = stopped();
    drop(session);
    let mut close = Box::pin(store.close());
    assert!(close.as_mut().now_or_never().is_none(), "the disk is stopped");
    disk.stop(false);
    block_on(close).expect("it is closed");
    assert_eq!(disk.calls(), ["write", "release", "closed"]);
}

#[test]
fn a_close_with_other_handles_waits_for_what_is_durable_and_leaves_the_store_open() {
    let (disk, store, mut session) = stopped();
    disk.stop(false);
    block_on(store.close()).expect("all is durable");
    assert_eq!(disk.calls(), ["write"], "the session holds its right");
    session.push(Chunk::user("more"));
    block_on(session.durable()).expect("the store is open");
    assert_eq!(disk.calls(), ["write", "write"]);
}

/// A right that could not be released is released before the next job, and not forgotten: the lease of a process that lives and holds
/// other rights does not end.
#[test]
fn a_right_that_could_not_be_released_is_released_later() {
    let disk = Disk::default();
    let store = Store::new(OnDisk(Sqlite::in_memory().expect("a store"), disk.clone())).expect("a store");
    let held = block_on(Session::user("goes on").record(&store)).expect("recorded");
    let session = block_on(Session::user("hello").record(&store)).expect("recorded");
    let id = session.id();
    disk.fail_releases(1);
    drop(session);
    wait_until("the release has failed", || disk.calls().contains(&"release"));
    let again = block_on(store.resume(id)).expect("the right was released");
    drop((again, held));
    block_on(store.close()).expect("all rights are released");
}

#[test]
fn a_right_that_cannot_be_released_is_reported_when_the_store_is_closed() {
    let disk = Disk::default();
    let store = Store::new(OnDisk(Sqlite::in_memory().expect("a store"), disk.clone())).expect("a store");
    let session = block_on(Session::user("hello").record(&store)).expect("recorded");
    let id = session.id().short();
    disk.fail_releases(u64::MAX);
    drop(session);
    let error = block_on(store.close()).expect_err("the right was not released");
    assert_eq!(error.message(), format!("the right to append to {id} could not be released: the disk is full"));
    assert!(error.hint().is_some());
}
