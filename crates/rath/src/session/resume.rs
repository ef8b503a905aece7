//! Reading sessions from a store, and opening them to continue.

use rath_record::{BranchId, Record};

use super::certificate::Resumed;
use super::recorder::Recorder;
use super::{Result, Session};
use crate::blocking::run_blocking;
use crate::store::{BranchSummary, Damage, Store, StoredBranch, has_message};

/// A session as it was read from a store.
///
/// Returned by [`Store::read`].
#[derive(Debug)]
pub struct StoredSession {
    /// The session. Steps that are appended to it are not recorded.
    pub session: Session,
    /// The entry of the branch in the list.
    pub summary: BranchSummary,
    /// Damage to the steps that the session descends from.
    pub damage: Vec<Damage>,
}

impl Store {
    /// Reads a session, as far as it is readable. Steps that are appended to it are not recorded.
    pub async fn read(&self, branch: BranchId) -> Result<StoredSession> {
        let store = self.clone();
        run_blocking(move || StoredSession::read(&store, branch)).await
    }

    /// Opens a session to continue it. Until the session is dropped, no other handle can append to it.
    ///
    /// Check the certificate: [`Resumed::complete`] returns the session if nothing has changed since it was left. Dropping the
    /// future, or the value that it returns, releases the right to append.
    pub async fn resume(&self, branch: BranchId) -> Result<Resumed> {
        // The right stays in this future: when the future is dropped, the right is released at once, and not when the read
        // is done.
        let (branch_writer, left_open_by) = self.writer_thread().claim(branch).await?;
        let store = self.clone();
        let read = move || -> Result<_> {
            let stored = StoredSession::read(&store, branch)?;
            stored.session.list_moved(&store)?;
            Ok(stored)
        };
        let stored = run_blocking(read).await?;
        let (session, summary) = (stored.session.quiet(), stored.summary.clone());
        let compare = move || {
            let has_title = has_message(branch, stored.session.head());
            Ok((Resumed::new(stored, left_open_by), has_title))
        };
        let (resumed, has_title) = session.with_fetched_files(compare).await?;
        branch_writer.set_head(summary.head, has_title);
        Ok(resumed.recorded_by(Recorder::resumed(self, summary.family, branch_writer)))
    }

    /// Opens a session as a fork that continues from its newest step, even while another handle writes the session.
    ///
    /// The fork is not recorded before [`Session::record`] is called.
    pub async fn fork(&self, branch: BranchId) -> Result<Resumed> {
        self.read(branch).await?.fork().await
    }
}

impl StoredSession {
    /// Opens the session as [`Store::fork`] does, without reading it again.
    pub async fn fork(self) -> Result<Resumed> {
        let session = self.session.quiet();
        session.with_fetched_files(move || Ok(Resumed::new(self, None).forked())).await
    }

    /// Reads a session. Blocks.
    pub(crate) fn read(store: &Store, branch: BranchId) -> Result<Self> {
        let stored = store.read_branch(branch)?;
        let is_own = store.is_own(&stored);
        let StoredBranch { summary, head, damage, .. } = stored;
        let record = head.map(Record::at).unwrap_or_default();
        let mut session = Session::resume(record).owned_if(is_own).hiding(store.secrets().clone());
        session.use_sandboxes_of(store);
        Ok(StoredSession { session, summary, damage })
    }
}
