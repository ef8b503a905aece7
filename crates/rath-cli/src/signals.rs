//! Requests to stop: Ctrl-C, a service manager that ends the program, a terminal that is closed.

use tokio::signal::unix::{SignalKind, signal};

/// Waits until the program is asked to stop.
pub(crate) async fn stop_requested() {
    let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
    let [Ok(mut interrupt), Ok(mut terminate), Ok(mut hangup)] = kinds.map(signal) else {
        // Without a handler a signal ends the program at once.
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        _ = hangup.recv() => {}
    }
}

/// Keeps Ctrl-C from ending this program as long as the returned value lives, and after it: a handler stays installed.
pub(crate) fn outlive_interrupts() -> impl Sized {
    signal(SignalKind::interrupt()).ok()
}
