//! A branch that this process appends to.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rath_record::{BranchId, StepId};

use super::WriteRight;
use super::error::StoreError;
use super::writer_thread::WriterThread;

/// A branch that this process appends to.
///
/// All handles on the branch share it. Dropping the last one releases the right to write; that does not wait.
pub(crate) struct BranchWriter {
    writer_thread: Arc<WriterThread>,
    branch: BranchId,
    state: Mutex<BranchWriterState>,
}

/// The newest that was handed over, and the right it was handed over by.
pub(crate) struct BranchWriterState {
    pub(crate) right: WriteRight,
    /// The newest step that was handed to the writer thread.
    pub(crate) head: Option<StepId>,
    pub(crate) has_title: bool,
    /// The reason why the branch cannot be written any further.
    pub(crate) failure: Option<StoreError>,
}

impl BranchWriter {
    pub(crate) fn new(writer_thread: &Arc<WriterThread>, branch: BranchId, state: BranchWriterState) -> Arc<Self> {
        writer_thread.add_held_branch();
        Arc::new(BranchWriter { writer_thread: writer_thread.clone(), branch, state: Mutex::new(state) })
    }

    /// Wraps a right that was just claimed. The head is set by [`BranchWriter::set_head`].
    pub(crate) fn claimed(writer_thread: &Arc<WriterThread>, branch: BranchId, epoch: u64) -> Arc<Self> {
        let right = WriteRight::Held(epoch);
        BranchWriter::new(
            writer_thread,
            branch,
            BranchWriterState { right, head: None, has_title: false, failure: None },
        )
    }

    /// Sets where the branch stands in the store.
    pub(crate) fn set_head(&self, head: StepId, has_title: bool) {
        let mut state = self.lock();
        (state.head, state.has_title) = (Some(head), has_title);
    }

    pub(crate) fn branch(&self) -> BranchId {
        self.branch
    }

    /// Stops all further writes, for this reason.
    pub(super) fn fail(&self, error: StoreError) {
        self.lock().failure.get_or_insert(error);
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, BranchWriterState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for BranchWriter {
    fn drop(&mut self) {
        self.writer_thread.remove_held_branch();
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let (WriteRight::Held(epoch), None) = (&state.right, &state.failure) {
            self.writer_thread.release(self.branch, *epoch);
        }
    }
}
