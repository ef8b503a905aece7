//! Requests to stop, on systems other than Unix: Ctrl-C.

/// Waits until the program is asked to stop.
pub(crate) async fn stop_requested() {
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending().await
    }
}

/// Does nothing: an interrupt reaches all programs of a console.
pub(crate) fn outlive_interrupts() -> impl Sized {}
