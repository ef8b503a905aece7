//! Reading sessions from a store, and opening them to continue.

use rath_record::{BranchId, Record};

use super::certificate::Resumed;
use super::recorder::Recorder;
use super::{Error, Result, Session};
use crate::error::ErrorKind;
use crate::store::{BranchSummary, Damage, Store, StoredBranch, has_message};

/// A session as it was read from a store.
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
    pub fn read(&self, branch: BranchId) -> Result<StoredSession> {
        let StoredBranch { summary, head, damage } = self.read_branch(branch)?;
        let record = head.map(Record::at).unwrap_or_default();
        Ok(StoredSession { session: Session::resume(record), summary, damage })
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
        let (resumed, summary, has_title) = run_blocking(move || {
            let stored = store.read(branch)?;
            let (summary, has_title) = (stored.summary.clone(), has_message(branch, stored.session.head()));
            Ok((Resumed::new(stored, left_open_by), summary, has_title))
        })
        .await?;
        branch_writer.set_head(summary.head, has_title);
        Ok(resumed.recorded_by(Recorder::resumed(self, summary.family, branch_writer)))
    }

    /// Opens a session as a fork that continues from its newest step, even while another handle writes the session.
    ///
    /// The fork is not recorded before [`Session::record`] is called.
    pub fn fork(&self, branch: BranchId) -> Result<Resumed> {
        Ok(Resumed::new(self.read(branch)?, None).forked())
    }
}

/// Runs work that touches the disk on a thread where it may block.
pub(super) async fn run_blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let result = tokio::task::spawn_blocking(work).await;
    result.map_err(|error| Error::wrap(ErrorKind::Other, error))?
}
