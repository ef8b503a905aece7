//! Stopping a run from outside.

use std::fmt;
use std::sync::Arc;

use tokio::sync::watch;

/// A switch that cancels every session that it was given to.
///
/// A cancelled run ends with an error of kind [`Cancelled`](crate::ErrorKind::Cancelled), which carries the session as far
/// as it came: run that session again to continue. Dropping a run ends it as well, but then only a store that recorded the
/// session has what was done.
///
/// ```
/// use rath::prelude::*;
///
/// let cancel = Cancel::new();
/// let session = Session::user("hello").until(&cancel);
/// cancel.cancel(); // from anywhere, at any time
/// assert!(cancel.is_cancelled());
/// # drop(session);
/// ```
#[derive(Clone)]
pub struct Cancel(Arc<watch::Sender<bool>>);

impl Cancel {
    /// Creates a switch that is off.
    pub fn new() -> Self {
        Cancel(Arc::new(watch::Sender::new(false)))
    }

    /// Cancels all sessions that the switch was given to. This cannot be undone.
    pub fn cancel(&self) {
        self.0.send_replace(true);
    }

    /// Returns true if the switch was used.
    pub fn is_cancelled(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until the switch is used.
    pub async fn cancelled(&self) {
        // `self` holds the sender, so the channel cannot be closed.
        let _ = self.0.subscribe().wait_for(|cancelled| *cancelled).await;
    }
}

impl Default for Cancel {
    fn default() -> Self {
        Cancel::new()
    }
}

impl fmt::Debug for Cancel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Cancel").field(&self.is_cancelled()).finish()
    }
}
