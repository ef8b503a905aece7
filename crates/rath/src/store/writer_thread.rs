//! The one thread that writes to a store. All writes that wait are written together.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use rath_record::{BranchId, StorageState};
use tokio::sync::oneshot;

use super::branch_writer::BranchWriter;
use super::error::{Result, StoreError, StoreErrorKind};
use super::{Holder, StepPlaces, StoreBackend, Write, WriteRight};

/// The number of writes in one group.
const MAX_GROUP_WRITES: usize = 4096;

/// The number that is reached when the thread has ended.
const END: u64 = u64::MAX;

/// The time without writes after which the backend is told that it is idle.
const IDLE_BEFORE_HOUSEKEEPING: Duration = Duration::from_millis(250);

/// A queue of jobs, and the thread that does them in order.
pub(crate) struct WriterThread {
    queue: Mutex<WriterQueue>,
    /// Signalled when there is a job, or the store is closed.
    job_added: Condvar,
    /// Signalled when jobs are done.
    jobs_done: Condvar,
    holder: Arc<Holder>,
}

#[derive(Default)]
struct WriterQueue {
    jobs: VecDeque<WriterJob>,
    /// The number of the newest job.
    newest: u64,
    /// The number up to which all jobs are done.
    done: u64,
    waiting: Vec<(u64, Waker)>,
    /// True while the thread sleeps and has to be woken.
    is_idle: bool,
    /// The number of branches that this process holds.
    held_branches: u64,
    /// True if the last handle on the store is gone: the thread ends when the queue is empty.
    is_closing: bool,
    /// True if the thread has ended, and has dropped the backend.
    has_ended: bool,
    /// The reason why nothing further is written.
    failure: Option<StoreError>,
}

/// The state of the work that is done between writes.
struct Housekeeping {
    /// The time at which the lease was renewed last.
    renewed: Instant,
    /// True if something was written since the backend was told last that it is idle.
    is_due: bool,
    /// True if rights are still to be released, because an attempt failed.
    has_unreleased: bool,
}

/// A branch that was claimed, and the holder that wrote it last and did not close it.
pub(crate) type ClaimedBranch = (Arc<BranchWriter>, Option<Arc<Holder>>);

/// A call to the backend that is made between writes.
type BackendCall = Box<dyn FnOnce(&dyn StoreBackend) + Send>;

enum WriterJob {
    Write(Write, Arc<BranchWriter>),
    Release(BranchId, u64),
    Call(BackendCall),
}

impl WriterThread {
    pub(super) fn start(backend: Arc<dyn StoreBackend>, rows: Arc<StepPlaces>) -> Result<Arc<Self>> {
        let writer = Arc::new(WriterThread {
            queue: Mutex::default(),
            job_added: Condvar::new(),
            jobs_done: Condvar::new(),
            holder: Arc::new(Holder::this_process()),
        });
        let on_thread = writer.clone();
        let work = move || {
            // Waiters are told of the end also after a panic.
            let _ = catch_unwind(AssertUnwindSafe(|| on_thread.work(&*backend, &rows)));
            let _ = catch_unwind(AssertUnwindSafe(|| drop((backend, rows))));
            on_thread.end();
        };
        // The thread is not joined: `drained` tells when it has ended.
        match thread::Builder::new().name("rath store".to_owned()).spawn(work) {
            Ok(_) => Ok(writer),
            Err(error) => Err(StoreError::new(StoreErrorKind::Store, "cannot start the writer thread").because(error)),
        }
    }

    /// Returns the holder of all rights that this thread writes by.
    pub(crate) fn holder(&self) -> &Arc<Holder> {
        &self.holder
    }

    /// Queues a write. Returns the number to wait for.
    pub(crate) fn write(&self, write: Write, branch: Arc<BranchWriter>) -> u64 {
        self.push(WriterJob::Write(write, branch))
    }

    /// Queues the release of a right.
    pub(crate) fn release(&self, branch: BranchId, epoch: u64) {
        self.push(WriterJob::Release(branch, epoch));
    }

    /// Makes a call to the backend between writes, after all that is queued now.
    pub(crate) async fn call<T: Send + 'static>(
        &self,
        call: impl FnOnce(&dyn StoreBackend) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (sender, receiver) = oneshot::channel();
        self.push(WriterJob::Call(Box::new(move |backend| _ = sender.send(call(backend)))));
        receiver.await.map_err(closed)?
    }

    /// Claims the right to append to a stored branch, after all that is queued now.
    ///
    /// Returns the right, and the holder that wrote the branch last and did not close it. Dropping the right releases it; so
    /// does dropping this future, before the next job.
    pub(crate) async fn claim(self: &Arc<Self>, branch: BranchId) -> Result<ClaimedBranch> {
        let (sender, receiver) = oneshot::channel();
        let writer_thread = self.clone();
        let claim = move |backend: &dyn StoreBackend| -> Result<ClaimedBranch> {
            let left_open_by = backend.summary(branch)?.and_then(|summary| summary.holder);
            let epoch = backend.claim(branch, &writer_thread.holder)?;
            Ok((BranchWriter::claimed(&writer_thread, branch, epoch), left_open_by))
        };
        self.push(WriterJob::Call(Box::new(move |backend| {
            if sender.is_closed() {
                return;
            }
            // The next job may be a second try of a caller that is gone: it must find the branch free.
            if let Err(Ok((unwanted, _))) = sender.send(claim(backend))
                && let WriteRight::Held(epoch) = unwanted.lock().right
            {
                // The drop of the right releases it once more, and reports.
                let _ = backend.release(&[(branch, epoch)]);
            }
        })));
        receiver.await.map_err(closed)?
    }

    /// Completes when all jobs up to a number are done.
    pub(crate) fn wait_async(&self, number: u64) -> impl Future<Output = ()> + Send + '_ {
        poll_fn(move |context| self.poll_wait(number, context))
    }

    pub(crate) fn poll_wait(&self, number: u64, context: &mut Context<'_>) -> Poll<()> {
        let mut queue = self.lock();
        if queue.done >= number || queue.has_ended {
            return Poll::Ready(());
        }
        // A task that polls again before the job is done is woken once.
        let is_known = |(known, waker): &(u64, Waker)| *known == number && waker.will_wake(context.waker());
        if !queue.waiting.last().is_some_and(is_known) {
            queue.waiting.push((number, context.waker().clone()));
        }
        Poll::Pending
    }

    /// Blocks until all jobs up to a number are done.
    pub(crate) fn wait(&self, number: u64) {
        let queue = self.lock();
        drop(
            self.jobs_done
                .wait_while(queue, |queue| queue.done < number && !queue.has_ended)
                .unwrap_or_else(PoisonError::into_inner),
        );
    }

    /// Tells the thread to end when the queue is empty. Does not wait.
    pub(super) fn finish_and_end(&self) {
        self.lock().is_closing = true;
        self.job_added.notify_all();
    }

    /// Completes when all that is queued now is done; after the last handle on the store was dropped, when the thread has
    /// ended. Returns the failure after which nothing was written, if there was one.
    pub(super) async fn drained(&self) -> Result<()> {
        let number = {
            let queue = self.lock();
            if queue.is_closing { END } else { queue.newest }
        };
        self.wait_async(number).await;
        match &self.lock().failure {
            Some(error) => Err(error.duplicate()),
            None => Ok(()),
        }
    }

    /// Reports that the thread has ended.
    fn end(&self) {
        let mut queue = self.lock();
        queue.has_ended = true;
        let woken = std::mem::take(&mut queue.waiting);
        drop(queue);
        self.jobs_done.notify_all();
        woken.into_iter().for_each(|(_, waker)| waker.wake());
    }

    fn push(&self, job: WriterJob) -> u64 {
        let mut queue = self.lock();
        queue.jobs.push_back(job);
        queue.newest += 1;
        let number = queue.newest;
        if std::mem::take(&mut queue.is_idle) {
            drop(queue);
            self.job_added.notify_one();
        }
        number
    }

    /// Does jobs until the store is closed and the queue is empty.
    fn work(&self, backend: &dyn StoreBackend, rows: &StepPlaces) {
        // After a failure the state of the disk is unknown: nothing further is written.
        let mut failure: Option<StoreError> = None;
        let mut housekeeping = Housekeeping { renewed: Instant::now(), is_due: false, has_unreleased: false };
        let mut batch = WriteBatch::default();
        while let Some((jobs, number)) = self.next(backend, &mut housekeeping) {
            for job in jobs {
                match job {
                    WriterJob::Write(write, branch) => {
                        batch.writes.push((write, branch));
                        if batch.writes.len() >= MAX_GROUP_WRITES {
                            batch.commit(backend, rows, &mut failure);
                        }
                    }
                    // Releases come after the writes of the batch: no write to a branch follows its release.
                    WriterJob::Release(branch, epoch) => batch.releases.push((branch, epoch)),
                    WriterJob::Call(call) => {
                        batch.commit(backend, rows, &mut failure);
                        let _ = catch_unwind(AssertUnwindSafe(|| call(backend)));
                    }
                }
            }
            batch.commit(backend, rows, &mut failure);
            housekeeping.has_unreleased = batch.release_error.is_some();
            if let Some(error) = &failure {
                self.lock().failure.get_or_insert_with(|| error.duplicate());
            }
            self.finish(number);
        }
        batch.commit(backend, rows, &mut failure);
        if let Some(error) = batch.release_error {
            self.lock().failure.get_or_insert(not_released(&batch.releases, &error));
        }
    }

    /// Waits for jobs and takes all of them; none when the store is closed and the queue is empty.
    fn next(&self, backend: &dyn StoreBackend, housekeeping: &mut Housekeeping) -> Option<(VecDeque<WriterJob>, u64)> {
        let mut queue = self.lock();
        loop {
            // Also while there is much to write: without it the lease expires and others may take the rights.
            if housekeeping.renewed.elapsed() >= backend.lease() / 3 {
                let held_branches = queue.held_branches;
                drop(queue);
                housekeeping.renewed = Instant::now();
                if held_branches > 0 {
                    let _ = catch_panic(|| backend.renew(&self.holder));
                }
                queue = self.lock();
            }
            if !queue.jobs.is_empty() {
                housekeeping.is_due = true;
                return Some((std::mem::take(&mut queue.jobs), queue.newest));
            }
            if queue.is_closing {
                return None;
            }
            let timeout = if housekeeping.is_due { IDLE_BEFORE_HOUSEKEEPING } else { backend.lease() / 3 };
            queue.is_idle = true;
            let (woken, result) = self.job_added.wait_timeout(queue, timeout).unwrap_or_else(PoisonError::into_inner);
            queue = woken;
            queue.is_idle = false;
            if result.timed_out() && std::mem::take(&mut housekeeping.is_due) && queue.jobs.is_empty() {
                drop(queue);
                let _ = catch_panic(|| backend.idle());
                queue = self.lock();
            }
            if result.timed_out() && housekeeping.has_unreleased && queue.jobs.is_empty() {
                return Some((VecDeque::new(), queue.newest));
            }
        }
    }

    /// Marks all jobs up to a number as done, and wakes those who wait for them.
    fn finish(&self, number: u64) {
        let mut queue = self.lock();
        queue.done = number;
        let woken: Vec<_> = queue.waiting.extract_if(.., |(wanted, _)| *wanted <= number).collect();
        drop(queue);
        self.jobs_done.notify_all();
        woken.into_iter().for_each(|(_, waker)| waker.wake());
    }

    /// Counts one more branch whose lease has to be renewed.
    pub(super) fn add_held_branch(&self) {
        self.lock().held_branches += 1;
    }

    /// Counts one branch less.
    pub(super) fn remove_held_branch(&self) {
        let mut queue = self.lock();
        queue.held_branches = queue.held_branches.saturating_sub(1);
    }

    fn lock(&self) -> MutexGuard<'_, WriterQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes and releases that go to the backend together.
#[derive(Default)]
struct WriteBatch {
    writes: Vec<(Write, Arc<BranchWriter>)>,
    releases: Vec<(BranchId, u64)>,
    /// The reason why the last attempt to release rights failed.
    release_error: Option<StoreError>,
}

impl WriteBatch {
    /// Writes the group, reports to each branch, then releases rights.
    ///
    /// Rights that cannot be released stay in the batch, for the next attempt: the lease of this process is renewed as long as it
    /// holds another right, so they would not expire.
    fn commit(&mut self, backend: &dyn StoreBackend, rows: &StepPlaces, failure: &mut Option<StoreError>) {
        let writes = std::mem::take(&mut self.writes);
        if !writes.is_empty() {
            write_group(backend, rows, writes, failure);
        }
        if !self.releases.is_empty() && failure.is_none() {
            match catch_panic(|| backend.release(&self.releases)) {
                Ok(()) => (self.releases, self.release_error) = (Vec::new(), None),
                Err(error) => self.release_error = Some(error),
            }
        }
    }
}

fn write_group(
    backend: &dyn StoreBackend,
    rows: &StepPlaces,
    group: Vec<(Write, Arc<BranchWriter>)>,
    failure: &mut Option<StoreError>,
) {
    let (writes, branches): (Vec<Write>, Vec<Arc<BranchWriter>>) = group.into_iter().unzip();
    let answers = match failure {
        Some(error) => Err(error.duplicate()),
        None => catch_panic(|| backend.write(&writes, rows)),
    };
    let answers = answers.unwrap_or_else(|error| {
        // Any place that the backend has noted may be that of a row which was not written.
        writes.iter().flat_map(|write| &write.steps).for_each(|step| rows.set(step, StorageState::NotStored));
        let answers = writes.iter().map(|_| Err(error.duplicate())).collect();
        failure.get_or_insert(error);
        answers
    });
    for ((write, branch), answer) in writes.iter().zip(branches).zip(answers) {
        if let Err(error) = answer {
            rows.unmark_pending(&write.steps);
            branch.fail(error);
        }
    }
}

/// Creates the error for rights that could not be released.
fn not_released(rights: &[(BranchId, u64)], error: &StoreError) -> StoreError {
    let ids: Vec<_> = rights.iter().map(|(branch, _)| branch.short()).collect();
    let message = format!("the right to append to {} could not be released: {}", ids.join(", "), error.message());
    StoreError::new(error.kind(), message)
        .with_hint("the next process gets it when this one has ended; nothing is lost")
}

/// Creates the error for a job that the thread did not do.
fn closed(_: oneshot::error::RecvError) -> StoreError {
    StoreError::new(StoreErrorKind::Store, "the store was closed before it could answer")
}

/// Turns a panic of a backend into an error: the thread goes on.
fn catch_panic<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        Err(StoreError::new(StoreErrorKind::Store, "the store panicked; nothing further is written"))
    })
}
