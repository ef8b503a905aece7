//! Stopping a run from outside.

use std::fmt;
use std::sync::Arc;

use tokio::sync::watch;

/// A switch that stops every session it was given to, wherever they are.
///
/// A run that is stopped ends with an error of kind [`Cancelled`](crate::ErrorKind::Cancelled), which carries the session
/// as far as it came: run it again to go on. Dropping a run stops it as well, and leaves nothing to go on with but what
/// was recorded elsewhere.
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
    /// A switch that is off.
    pub fn new() -> Self {
        Cancel(Arc::new(watch::Sender::new(false)))
    }

    /// Stops everything that it was given to. There is no way back.
    pub fn cancel(&self) {
        self.0.send_replace(true);
    }

    /// Whether it was stopped.
    pub fn is_cancelled(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until it is stopped.
    pub async fn cancelled(&self) {
        // The sender is in our hand, so the channel cannot be closed.
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
