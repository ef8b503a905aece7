//! Reading sessions from a store, and opening them to continue.

use rath_record::{BranchId, Record};

use super::certificate::Resumed;
use super::recorder::Recorder;
use super::{Result, Session};
use crate::store::{BranchSummary, Damage, Store, StoreBackend, StoredBranch};

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
    /// Check the certificate: [`Resumed::complete`] returns the session if nothing has changed since it was left.
    pub async fn resume(&self, branch: BranchId) -> Result<Resumed> {
        let holder = self.writer_thread().holder().clone();
        // On the writer thread: rights that this process released before are released by then.
        let claim = move |backend: &dyn StoreBackend| {
            let left_open_by = backend.summary(branch)?.and_then(|summary| summary.holder);
            Ok((left_open_by, backend.claim(branch, &holder)?))
        };
        let (left_open_by, epoch) = self.writer_thread().call(claim).await?;
        let stored = match self.read(branch) {
            Ok(stored) => stored,
            Err(error) => {
                self.writer_thread().release(branch, epoch);
                return Err(error);
            }
        };
        let recorder = Recorder::resumed(self, &stored.summary, epoch, stored.session.head());
        Ok(Resumed::new(stored, left_open_by, Some(recorder)))
    }

    /// Opens a session as a fork that continues from its newest step, even while another handle writes the session.
    ///
    /// The fork is not recorded before [`Session::record`] is called.
    pub fn fork(&self, branch: BranchId) -> Result<Resumed> {
        Ok(Resumed::new(self.read(branch)?, None, None).forked())
    }
}
