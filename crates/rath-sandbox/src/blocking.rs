//! Work that touches the disk, on threads that may block.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use tokio::runtime::Handle;
use tokio::task::{JoinHandle, spawn_blocking};

use crate::error::{Error, ErrorKind, Result};

/// Runs work on the blocking pool. If the future is dropped before the work has begun, the work is not done.
///
/// See [`crate::backend`] for an example.
pub async fn run_blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let mut task = BlockingTask(spawn_blocking(work));
    match (&mut task.0).await {
        Ok(result) => result,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(error) => Err(Error::new(ErrorKind::Io, "the runtime was shut down").because(error)),
        },
    }
}

/// Drops a value whose drop touches the disk, on the blocking pool if the current thread belongs to a runtime.
///
/// A runtime that is shut down drops the value at once.
///
/// See [`crate::backend`] for an example.
pub fn drop_on_pool(value: impl Send + 'static) {
    if let Ok(runtime) = Handle::try_current() {
        drop(runtime.spawn_blocking(move || drop(value)));
    }
}

/// A task that is cancelled on drop, unless it has begun.
struct BlockingTask<T>(JoinHandle<T>);

impl<T> Drop for BlockingTask<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Tells work on the blocking pool that its caller is gone: see [`Root::write_unless`](crate::Root::write_unless).
///
/// See [`crate::backend`] for an example.
#[derive(Default)]
pub struct CancelOnDrop(Arc<AtomicBool>);

impl CancelOnDrop {
    /// Returns the flag that is set on drop.
    pub fn flag(&self) -> Arc<AtomicBool> {
        self.0.clone()
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}
