//! Guests: sessions that this user did not make on this machine, and their adoption.
//!
//! A guest can be read, compared, forked and exported. Its place, its open calls, its checks and the directory of its files
//! are proposals of its author: nothing of it runs, and no file is written for it, before a person adopts it.

use rath_record::Step;
use rath_record::chunk::Adopted;

use super::{Error, Result, Session};
use crate::error::ErrorKind;

/// The relation of a session to the user who runs this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Ownership {
    /// The user made the session, or adopted it.
    #[default]
    Own,
    Guest,
}

impl Session {
    /// Returns true if this user did not make the session on this machine, and did not adopt it.
    ///
    /// That is so for sessions from files and formats of others, and for stored sessions without a signature of the user's
    /// key. Forks of a guest, and merges with one, are guests. A guest can be read; it cannot be run.
    pub fn is_guest(&self) -> bool {
        self.live.ownership == Ownership::Guest
    }

    /// Takes over a session that others made, as a decision of the person `by` that is recorded.
    ///
    /// The session has no place after this, until [`to`](Session::to) sets one. Its open calls wait to be
    /// [approved](Session::approve) or [denied](Session::deny), whatever its author decided. A session of the user's own
    /// does not change.
    ///
    /// If its store was moved, collections in the directory of its new place keep its versions from the first run of its tools on.
    /// [`gc::keep_versions_of`](crate::gc::keep_versions_of) makes them do that at once.
    ///
    /// ```
    /// use rath::prelude::*;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> rath::Result<()> {
    /// # let directory = tempfile::tempdir()?;
    /// let file = directory.path().join("theirs.rath");
    /// std::fs::write(&file, Session::user("hello").to(Sandbox::local("/")).to_bytes()?)?;
    ///
    /// let session = Session::open(&file).await?.session;
    /// assert!(session.is_guest());
    /// let session = session.adopt("Ann");
    /// assert!(!session.is_guest());
    /// assert_eq!(session.place(), None);
    /// # Ok(())
    /// # }
    /// ```
    pub fn adopt(mut self, by: impl Into<String>) -> Self {
        if self.is_guest() {
            self.live.ownership = Ownership::Own;
            self.live.place = self.live.place.without_dirs();
            self.push(Adopted::new(by));
        }
        self
    }

    /// Marks the session as the user's own, if `is_own` says so.
    pub(crate) fn owned_if(mut self, is_own: bool) -> Self {
        self.live.ownership = if is_own { Ownership::Own } else { self.live.ownership };
        self
    }

    /// Returns the ownership of this session as it was at one of its steps: before it was adopted, it was a guest.
    pub(super) fn ownership_at(&self, step: &Step) -> Ownership {
        let mut since = self.as_record().newest_first().take_while(|newer| newer.id() != step.id());
        if since.any(Step::voids_earlier_decisions) { Ownership::Guest } else { self.live.ownership }
    }

    /// Returns the ownership of a session that has the steps of this one and of another.
    pub(super) fn ownership_with(&self, other: &Session) -> Ownership {
        if other.is_guest() { Ownership::Guest } else { self.live.ownership }
    }

    /// Fails if the session is a guest. `action` says what was wanted: `run its calls`.
    pub(crate) fn require_own(&self, action: &str) -> Result<()> {
        if self.is_guest() { Err(self.guest_error(action)) } else { Ok(()) }
    }

    /// Creates the error for an action that a guest is refused.
    pub(super) fn guest_error(&self, action: &str) -> Error {
        let message = format!("cannot {action}: the session {} was made by others", self.id().short());
        Error::new(ErrorKind::Guest, message)
            .with_hint("look at it, then take it over with `session.adopt(name)` and place it with `session.to(..)`")
            .with_session(self)
    }
}
