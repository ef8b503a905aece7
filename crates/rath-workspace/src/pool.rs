//! A small thread pool for jobs that may add more jobs.

use std::sync::{Condvar, Mutex, PoisonError};

use crate::error::{Error, Result};

/// The largest number of threads: more do not make one file system faster.
const MAX_THREADS: usize = 4;

/// The jobs, and the threads that work on them.
struct JobQueue<J> {
    jobs: Vec<J>,
    /// The number of threads that run a job, which may add jobs.
    busy: usize,
    /// The number of threads that wait for jobs.
    waiting: usize,
    failed: Option<Error>,
}

/// Runs all jobs and those that they add, the newest first, until none is left or one fails.
///
/// Each thread has scratch space of its own.
pub(crate) fn run<J: Send, S: Default>(
    first: Vec<J>,
    work: impl Fn(J, &mut S, &mut Vec<J>) -> Result<()> + Sync,
) -> Result<()> {
    let queue = Mutex::new(JobQueue { jobs: first, busy: 0, waiting: 0, failed: None });
    let wake = Condvar::new();
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS);
    let worker = || run_worker(&queue, &wake, &work);
    std::thread::scope(|scope| {
        for _ in 1..threads {
            // If no thread can be started, this one does all the work.
            if std::thread::Builder::new().spawn_scoped(scope, worker).is_err() {
                break;
            }
        }
        worker();
    });
    queue.into_inner().unwrap_or_else(PoisonError::into_inner).failed.map_or(Ok(()), Err)
}

/// Runs jobs until none is left and no other thread can add one.
fn run_worker<J, S: Default>(
    queue: &Mutex<JobQueue<J>>,
    wake: &Condvar,
    work: &impl Fn(J, &mut S, &mut Vec<J>) -> Result<()>,
) {
    let mut scratch = S::default();
    let mut more = Vec::new();
    let mut state = queue.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        if let Some(job) = state.jobs.pop() {
            state.busy += 1;
            drop(state);
            let guard = BusyGuard { queue, wake };
            let result = work(job, &mut scratch, &mut more);
            std::mem::forget(guard);
            state = queue.lock().unwrap_or_else(PoisonError::into_inner);
            state.busy -= 1;
            state.jobs.append(&mut more);
            if let Err(error) = result {
                state.failed.get_or_insert(error);
            }
            if state.failed.is_some() {
                state.jobs.clear();
            }
            // One of the jobs is for this thread.
            if state.waiting > 0 && (state.jobs.len() > 1 || state.jobs.is_empty() && state.busy == 0) {
                wake.notify_all();
            }
        } else if state.busy == 0 {
            return;
        } else {
            state.waiting += 1;
            state = wake.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.waiting -= 1;
        }
    }
}

/// Marks a thread as busy. If its job panics, the other threads stop waiting for the jobs that it would have added.
struct BusyGuard<'a, J> {
    queue: &'a Mutex<JobQueue<J>>,
    wake: &'a Condvar,
}

impl<J> Drop for BusyGuard<'_, J> {
    fn drop(&mut self) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.busy -= 1;
        queue.jobs.clear();
        self.wake.notify_all();
    }
}
