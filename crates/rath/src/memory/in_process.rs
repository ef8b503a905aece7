//! A memory that lasts as long as the process.

use rath_memory::{Lookup, Note, NoteId, NotePath, NoteStore, Position, Query, Size};

use super::{Forget, Hits, MemoryBackend, MemoryError, MemoryErrorKind, NotePage, now};

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
        remember(&self.notes, notes, Size::UNLIMITED)
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

    async fn list(&self, under: &[NotePath], after: Position, limit: usize) -> Result<NotePage, MemoryError> {
        Ok(self.notes.list(under, after, limit)?.into())
    }

    async fn forget(&self, what: &Forget) -> Result<Vec<NoteId>, MemoryError> {
        forget(&self.notes, what)
    }
}

/// Writes notes to a store, and removes those whose time is over, and the oldest beyond a size.
pub(super) fn remember(store: &NoteStore, notes: &[Note], most: Size) -> Result<Option<Position>, MemoryError> {
    let size = Size { notes: notes.len() as u64, bytes: notes.iter().map(|note| note.text.len() as u64).sum() };
    if size.exceeds(most) {
        let (count, verb) = if size.notes == 1 { ("note", "does") } else { ("notes", "do") };
        let limits = [(most.notes, "notes"), (most.bytes, "bytes")].into_iter().filter(|(most, _)| *most != u64::MAX);
        let limits = limits.map(|(most, unit)| format!("{most} {unit}")).collect::<Vec<_>>().join(" and ");
        let Size { notes, bytes } = size;
        let message = format!("{notes} {count} of {bytes} bytes {verb} not fit in a memory of at most {limits}");
        return Err(MemoryError::new(MemoryErrorKind::Invalid, message));
    }
    store.forget_expired(now())?;
    let position = store.remember(notes)?;
    if most != Size::UNLIMITED {
        store.forget_beyond(most, now())?;
    }
    Ok(Some(position))
}

/// Removes notes from a store.
pub(super) fn forget(notes: &NoteStore, what: &Forget) -> Result<Vec<NoteId>, MemoryError> {
    let forgotten = match what {
        Forget::Notes(ids) => notes.forget(ids, now()),
        Forget::WithOlder(ids) => notes.forget_with_older(ids, now()),
        Forget::OfSession(session) => notes.forget_session(session, now()),
        Forget::SaidBefore(micros) => notes.forget_before(*micros, now()),
        Forget::Expired(micros) => notes.forget_expired(*micros),
        Forget::Beyond(size) => notes.forget_beyond(*size, now()),
    };
    let forgotten = forgotten?;
    // What was removed by a limit, now or at a write, leaves the files at once.
    if matches!(what, Forget::Expired(_) | Forget::Beyond(_)) {
        notes.forget(&[], now())?;
    }
    Ok(forgotten)
}
