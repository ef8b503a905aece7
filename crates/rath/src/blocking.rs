//! Work that touches the disk, on threads that may block.

use tokio::runtime::Handle;
use tokio::task::{JoinHandle, spawn_blocking};

/// Runs work on the blocking pool. If the future is dropped before the work has begun, the work is not done.
pub(crate) async fn run_blocking<T, E>(work: impl FnOnce() -> Result<T, E> + Send + 'static) -> Result<T, E>
where
    T: Send + 'static,
    E: From<std::io::Error> + Send + 'static,
{
    let mut task = CancelledTask(spawn_blocking(work));
    (&mut task.0).await.map_err(|error| E::from(error.into()))?
}

/// Runs work as a task of its own, which goes on while the caller is not polled. If the future is dropped, the work ends where it waits.
pub(crate) async fn run_task<T, E>(work: impl Future<Output = Result<T, E>> + Send + 'static) -> Result<T, E>
where
    T: Send + 'static,
    E: From<std::io::Error> + Send + 'static,
{
    let mut task = CancelledTask(tokio::spawn(work));
    (&mut task.0).await.map_err(|error| E::from(error.into()))?
}

/// Drops a value whose drop touches the disk, on the blocking pool if the current thread belongs to a runtime.
///
/// A runtime that is shut down drops the value at once.
pub(crate) fn drop_on_pool(value: impl Send + 'static) {
    if let Ok(runtime) = Handle::try_current() {
        drop(runtime.spawn_blocking(move || drop(value)));
    }
}

/// A task that is cancelled on drop. Blocking work that has begun goes on.
struct CancelledTask<T>(JoinHandle<T>);

impl<T> Drop for CancelledTask<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
