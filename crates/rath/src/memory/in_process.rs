//! A memory that lasts as long as the process.

use rath_memory::{Lookup, Note, NoteId, NotePath, NoteStore, Position, Query};

use super::{Forget, Hits, MemoryBackend, MemoryError, now};

pub(super) struct InProcess {
    uri: String,
    notes: NoteStore,
}

impl InProcess {
    pub(super) fn new(name: &str) -> Self {
        InProcess { uri: format!("process:{name}"), notes: NoteStore::in_process() }
    }
}

impl MemoryBackend for InProcess {
    fn uri(&self) -> &str {
        &self.uri
    }

    async fn remember(&self, notes: &[Note]) -> Result<Option<Position>, MemoryError> {
        remember(&self.notes, notes)
    }

    async fn position(&self) -> Result<Option<Position>, MemoryError> {
        Ok(Some(self.notes.position()?))
    }

    async fn recall(&self, query: &Query) -> Result<Hits, MemoryError> {
        Ok(self.notes.recall(query)?.into())
    }

    async fn read(&self, id: &NoteId) -> Result<Lookup, MemoryError> {
        Ok(self.notes.read(id)?)
    }

    async fn list(
        &self,
        under: &[NotePath],
        after: Position,
        limit: usize,
    ) -> Result<Vec<(Position, Note)>, MemoryError> {
        Ok(self.notes.list(under, after, limit)?)
    }

    async fn forget(&self, what: &Forget) -> Result<Vec<NoteId>, MemoryError> {
        forget(&self.notes, what)
    }
}

/// Writes notes to a store, and removes those whose time is over.
pub(super) fn remember(store: &NoteStore, notes: &[Note]) -> Result<Option<Position>, MemoryError> {
    store.forget_expired(now())?;
    Ok(Some(store.remember(notes)?))
}

/// Removes notes from a store.
pub(super) fn forget(notes: &NoteStore, what: &Forget) -> Result<Vec<NoteId>, MemoryError> {
    let forgotten = match what {
        Forget::Notes(ids) => notes.forget(ids, now()),
        Forget::OfSession(session) => notes.forget_session(session, now()),
        Forget::SaidBefore(micros) => notes.forget_before(*micros, now()),
        Forget::Expired(micros) => notes.forget_expired(*micros),
    };
    Ok(forgotten?)
}
