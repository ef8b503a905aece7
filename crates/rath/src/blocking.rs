//! Work that touches the disk, on threads that may block.

use tokio::runtime::Handle;
use tokio::task::spawn_blocking;

/// Runs work on the blocking pool. Work that has begun is not stopped if the future is dropped.
pub(crate) async fn run_blocking<T, E>(work: impl FnOnce() -> Result<T, E> + Send + 'static) -> Result<T, E>
where
    T: Send + 'static,
    E: From<std::io::Error> + Send + 'static,
{
    spawn_blocking(work).await.map_err(|error| E::from(error.into()))?
}

/// Drops a value whose drop touches the disk, on the blocking pool if the current thread belongs to a runtime.
///
/// A runtime that is shut down drops the value at once.
pub(crate) fn drop_on_pool(value: impl Send + 'static) {
    if let Ok(runtime) = Handle::try_current() {
        drop(runtime.spawn_blocking(move || drop(value)));
    }
}
