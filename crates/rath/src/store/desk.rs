//! The one thread that writes to a store: whatever waits at once is written in one go.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rath_record::{BranchId, StorageState};
use tokio::sync::oneshot;

use super::recorder::Line;
use super::{Holder, Rows, StoreBackend, Write};
use crate::error::ErrorKind;
use crate::session::{Error, Result};

/// How many writes go in one group.
const GROUP_MOST: usize = 4096;

/// Takes in what is to be written, in order, and says when it is durable.
pub(super) struct Desk {
    state: Mutex<State>,
    /// Rung when there is something to do.
    work: Condvar,
    /// Rung when something is done.
    done: Condvar,
    holder: Arc<Holder>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    /// The number of the newest job, and up to which all are done.
    newest: u64,
    done: u64,
    waiting: Vec<(u64, Waker)>,
    /// Whether the thread has nothing to do and has to be woken.
    idle: bool,
    /// How many branches are held.
    held: u64,
    closing: bool,
}

/// How long nothing is to be written before there is time for something else.
const PAUSE: Duration = Duration::from_millis(250);

/// What is done beside writing.
struct Chores {
    /// When others were told last that this one is alive.
    renewed: Instant,
    /// Whether something was written since there was time to tidy up.
    untidy: bool,
}

/// Something to be done between writes.
type Errand = Box<dyn FnOnce(&dyn StoreBackend) + Send>;

enum Job {
    Write(Write, Arc<Line>),
    Release(BranchId, u64),
    Do(Errand),
}

impl Desk {
    pub(super) fn open(backend: Arc<dyn StoreBackend>, rows: Arc<Rows>) -> Result<Arc<Self>> {
        let desk = Arc::new(Desk {
            state: Mutex::default(),
            work: Condvar::new(),
            done: Condvar::new(),
            holder: Arc::new(Holder::this_process()),
            thread: Mutex::default(),
        });
        let at_desk = desk.clone();
        let work = move || at_desk.work(&*backend, &rows);
        let thread = thread::Builder::new().name("rath store".to_owned()).spawn(work)?;
        *desk.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
        Ok(desk)
    }

    /// Who writes.
    pub(super) fn holder(&self) -> &Arc<Holder> {
        &self.holder
    }

    /// Hands over steps. Gives the number to wait for.
    pub(super) fn write(&self, write: Write, line: Arc<Line>) -> u64 {
        self.put(Job::Write(write, line))
    }

    pub(super) fn release(&self, branch: BranchId, epoch: u64) {
        self.put(Job::Release(branch, epoch));
    }

    /// Has something done between writes.
    pub(super) async fn ask<T: Send + 'static>(
        &self,
        what: impl FnOnce(&dyn StoreBackend) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (tell, told) = oneshot::channel();
        self.put(Job::Do(Box::new(move |backend| _ = tell.send(what(backend)))));
        let gone = |_| Error::new(ErrorKind::Store, "the store was closed before it could answer");
        told.await.map_err(gone)?
    }

    /// Comes when everything up to a number has been dealt with.
    pub(super) fn settled(&self, number: u64) -> impl Future<Output = ()> + Send + '_ {
        poll_fn(move |context| self.poll_settled(number, context))
    }

    pub(super) fn poll_settled(&self, number: u64, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.lock();
        if state.done >= number {
            return Poll::Ready(());
        }
        // Whoever asks again before it is done is woken once.
        let asked = |(known, waker): &(u64, Waker)| *known == number && waker.will_wake(context.waker());
        if !state.waiting.last().is_some_and(asked) {
            state.waiting.push((number, context.waker().clone()));
        }
        Poll::Pending
    }

    /// The same for a thread that may wait.
    pub(super) fn wait(&self, number: u64) {
        let state = self.lock();
        drop(self.done.wait_while(state, |state| state.done < number).unwrap_or_else(PoisonError::into_inner));
    }

    /// Takes nothing further in, and comes back when all is written.
    pub(super) fn close(&self) {
        self.lock().closing = true;
        self.work.notify_all();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        // The last handle may be let go by the thread itself, with what a job held.
        if let Some(thread) = thread.filter(|thread| thread.thread().id() != thread::current().id()) {
            let _ = thread.join();
        }
    }

    fn put(&self, job: Job) -> u64 {
        let mut state = self.lock();
        state.jobs.push_back(job);
        state.newest += 1;
        let number = state.newest;
        if std::mem::take(&mut state.idle) {
            drop(state);
            self.work.notify_one();
        }
        number
    }

    /// What the thread does until the store is closed and nothing is left.
    fn work(&self, backend: &dyn StoreBackend, rows: &Rows) {
        // Once something failed nobody knows what is durable: nothing further is written.
        let mut broken: Option<Error> = None;
        let mut chores = Chores { renewed: Instant::now(), untidy: false };
        while let Some((jobs, number)) = self.next(backend, &mut chores) {
            let mut batch = Batch::default();
            for job in jobs {
                match job {
                    Job::Write(write, line) => {
                        // What is released was written before, and nothing goes on from there.
                        batch.writes.push((write, line));
                        if batch.writes.len() >= GROUP_MOST {
                            batch.carry_out(backend, rows, &mut broken);
                        }
                    }
                    Job::Release(branch, epoch) => batch.rights.push((branch, epoch)),
                    Job::Do(what) => {
                        batch.carry_out(backend, rows, &mut broken);
                        let _ = catch_unwind(AssertUnwindSafe(|| what(backend)));
                    }
                }
            }
            batch.carry_out(backend, rows, &mut broken);
            self.finish(number);
        }
    }

    /// All that waits, once there is something; none when the store is closed.
    fn next(&self, backend: &dyn StoreBackend, chores: &mut Chores) -> Option<(VecDeque<Job>, u64)> {
        let mut state = self.lock();
        loop {
            // However busy it is: if nobody hears that it is alive, its rights may be taken, and it is told when it writes.
            if chores.renewed.elapsed() >= backend.lease() / 3 {
                let held = state.held;
                drop(state);
                chores.renewed = Instant::now();
                if held > 0 {
                    let _ = guarded(|| backend.renew(&self.holder));
                }
                state = self.lock();
            }
            if !state.jobs.is_empty() {
                chores.untidy = true;
                return Some((std::mem::take(&mut state.jobs), state.newest));
            }
            if state.closing {
                return None;
            }
            let patience = if chores.untidy { PAUSE } else { backend.lease() / 3 };
            state.idle = true;
            let (woken, timeout) = self.work.wait_timeout(state, patience).unwrap_or_else(PoisonError::into_inner);
            state = woken;
            state.idle = false;
            if timeout.timed_out() && std::mem::take(&mut chores.untidy) && state.jobs.is_empty() {
                drop(state);
                let _ = guarded(|| backend.rest());
                state = self.lock();
            }
        }
    }

    fn finish(&self, number: u64) {
        let mut state = self.lock();
        state.done = number;
        let woken: Vec<_> = state.waiting.extract_if(.., |(wanted, _)| *wanted <= number).collect();
        drop(state);
        self.done.notify_all();
        woken.into_iter().for_each(|(_, waker)| waker.wake());
    }

    /// One branch more is written.
    pub(super) fn hold(&self) {
        self.lock().held += 1;
    }

    /// One branch less is.
    pub(super) fn let_go(&self) {
        let mut state = self.lock();
        state.held = state.held.saturating_sub(1);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What has gathered.
#[derive(Default)]
struct Batch {
    writes: Vec<(Write, Arc<Line>)>,
    rights: Vec<(BranchId, u64)>,
}

impl Batch {
    /// Writes it, and tells each line what became of its part; then gives back rights.
    fn carry_out(&mut self, backend: &dyn StoreBackend, rows: &Rows, broken: &mut Option<Error>) {
        let Batch { writes, rights } = std::mem::take(self);
        if !writes.is_empty() {
            write_group(backend, rows, writes, broken);
        }
        if !rights.is_empty() && broken.is_none() {
            // What is not released expires.
            let _ = guarded(|| backend.release(&rights));
        }
    }
}

fn write_group(backend: &dyn StoreBackend, rows: &Rows, group: Vec<(Write, Arc<Line>)>, broken: &mut Option<Error>) {
    let (writes, lines): (Vec<Write>, Vec<Arc<Line>>) = group.into_iter().unzip();
    let answers = match broken {
        Some(error) => Err(again(error)),
        None => guarded(|| backend.write(&writes, rows)),
    };
    let answers = answers.unwrap_or_else(|error| {
        let answers = writes.iter().map(|_| Err(again(&error))).collect();
        broken.get_or_insert(error);
        answers
    });
    for ((write, line), answer) in writes.iter().zip(lines).zip(answers) {
        if let Err(error) = answer {
            write.steps.iter().for_each(|step| rows.set(step, StorageState::NotStored));
            line.lose(error);
        }
    }
}

/// The same for another who asks.
pub(super) fn again(error: &Error) -> Error {
    let told = Error::new(error.kind(), error.message());
    match error.hint() {
        Some(hint) => told.with_hint(hint),
        None => told,
    }
}

/// A backend that panics has failed, and nothing else has.
fn guarded<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|_| Err(Error::new(ErrorKind::Store, "the store panicked; nothing further is written")))
}
