//! A few threads that work on a heap of jobs, each of which may add more.

use std::sync::{Condvar, Mutex, PoisonError};

use crate::error::{Error, Result};

/// More threads than this do not make one file system faster.
const THREADS: usize = 4;

struct Heap<J> {
    jobs: Vec<J>,
    /// How many are at work, and may add jobs.
    busy: usize,
    /// How many wait for jobs.
    waiting: usize,
    failed: Option<Error>,
}

/// Does all jobs and those that they add, the newest first, until none is left or one fails.
///
/// Each thread has scratch space of its own.
pub(super) fn run<J: Send, S: Default>(
    first: Vec<J>,
    work: impl Fn(J, &mut S, &mut Vec<J>) -> Result<()> + Sync,
) -> Result<()> {
    let heap = Mutex::new(Heap { jobs: first, busy: 0, waiting: 0, failed: None });
    let wake = Condvar::new();
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS);
    let one = || one_thread(&heap, &wake, &work);
    std::thread::scope(|scope| {
        for _ in 1..threads {
            // Where no thread can be had, this one does the work alone.
            if std::thread::Builder::new().spawn_scoped(scope, one).is_err() {
                break;
            }
        }
        one();
    });
    heap.into_inner().unwrap_or_else(PoisonError::into_inner).failed.map_or(Ok(()), Err)
}

fn one_thread<J, S: Default>(
    heap: &Mutex<Heap<J>>,
    wake: &Condvar,
    work: &impl Fn(J, &mut S, &mut Vec<J>) -> Result<()>,
) {
    let mut scratch = S::default();
    let mut more = Vec::new();
    let mut here = heap.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        if let Some(job) = here.jobs.pop() {
            here.busy += 1;
            drop(here);
            let leaving = Leaving { heap, wake };
            let done = work(job, &mut scratch, &mut more);
            std::mem::forget(leaving);
            here = heap.lock().unwrap_or_else(PoisonError::into_inner);
            here.busy -= 1;
            here.jobs.append(&mut more);
            if let Err(error) = done {
                here.failed.get_or_insert(error);
            }
            if here.failed.is_some() {
                here.jobs.clear();
            }
            // One of the jobs is for this thread.
            if here.waiting > 0 && (here.jobs.len() > 1 || here.jobs.is_empty() && here.busy == 0) {
                wake.notify_all();
            }
        } else if here.busy == 0 {
            return;
        } else {
            here.waiting += 1;
            here = wake.wait(here).unwrap_or_else(PoisonError::into_inner);
            here.waiting -= 1;
        }
    }
}

/// A thread at work. If it panics, the others must not wait for what it would have added.
struct Leaving<'a, J> {
    heap: &'a Mutex<Heap<J>>,
    wake: &'a Condvar,
}

impl<J> Drop for Leaving<'_, J> {
    fn drop(&mut self) {
        let mut heap = self.heap.lock().unwrap_or_else(PoisonError::into_inner);
        heap.busy -= 1;
        heap.jobs.clear();
        self.wake.notify_all();
    }
}
