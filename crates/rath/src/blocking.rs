//! Work that touches the disk, on threads that may block.

use tokio::runtime::Handle;
use tokio::task::{JoinHandle, spawn_blocking};

/// Runs work on the blocking pool. If the future is dropped before the work has begun, the work is not done.
pub(crate) async fn run_blocking<T, E>(work: impl FnOnce() -> Result<T, E> + Send + 'static) -> Result<T, E>
where
    T: Send + 'static,
    E: From<std::io::Error> + Send + 'static,
{
    let mut task = BlockingTask(spawn_blocking(work));
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

/// A task that is cancelled on drop, unless it has begun.
struct BlockingTask<T>(JoinHandle<T>);

impl<T> Drop for BlockingTask<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
