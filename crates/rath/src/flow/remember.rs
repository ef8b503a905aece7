//! The agent's methods on its memory, and what it recalls before it asks the model.

use std::borrow::Cow;
use std::collections::HashSet;

use rath_record::chunk::{Chunk, Failed, Memory as MemoryChunk, MemoryEvent, RecalledEntry};
use rath_record::view::Message;
use rath_record::{Record, Step, StepId, Text};

use super::agent::Agent;
use super::module::AuthorGuard;
use crate::error::ErrorKind;
use crate::memory::{self, Memory, MemoryError};
use crate::session::{Error, Result, Session, within_limits};

/// The number of entries of a memory that a model is shown.
const MAX_RECALLED_ENTRIES: usize = 4;

impl Agent {
    /// Records a fact for the agent's memory. [`commit`](Agent::commit) writes it there.
    pub async fn remember(&self, session: &mut Session, fact: impl Into<Text>) -> Result<()> {
        let memory = self.require_memory(session)?;
        session.hide_also(&self.provider().secrets());
        let mut session = AuthorGuard::new(session, self);
        session.push(memory_chunk(memory, MemoryEvent::Remember { text: fact.into() }));
        session.finish(Ok(())).await
    }

    /// Writes the facts that were recorded since the last commit to the agent's memory.
    pub async fn commit(&self, session: &mut Session) -> Result<()> {
        let memory = self.require_memory(session)?;
        let facts: Vec<String> = pending(session, memory).iter().map(ToString::to_string).collect();
        if facts.is_empty() {
            return Ok(());
        }
        let mut session = AuthorGuard::new(session, self);
        let committed = call_memory(&mut session, memory.commit(&facts), |event| match event {
            MemoryEvent::Commit { entries } => Some(entries.clone()),
            _ => None,
        });
        let committed = committed.await;
        let committed = committed.map(|entries| session.push(memory_chunk(memory, MemoryEvent::Commit { entries })));
        session.finish(committed).await.map(|_| ())
    }

    /// Removes entries from the agent's memory.
    pub async fn forget(&self, session: &mut Session, entries: &[String]) -> Result<()> {
        let memory = self.require_memory(session)?;
        let mut session = AuthorGuard::new(session, self);
        let forgotten = call_memory(&mut session, memory.forget(entries), |event| match event {
            MemoryEvent::Forget { entries } => Some(entries.clone()),
            _ => None,
        });
        let forgotten = forgotten.await;
        let forgotten = forgotten.map(|entries| session.push(memory_chunk(memory, MemoryEvent::Forget { entries })));
        session.finish(forgotten).await.map(|_| ())
    }

    fn require_memory(&self, session: &Session) -> Result<&Memory> {
        self.memory.as_ref().ok_or_else(|| {
            Error::new(ErrorKind::Memory, "this agent has no memory")
                .with_hint("give it one: `Agent::new(..).memory(&memory)`")
                .with_session(session)
        })
    }

    /// Asks the memory about the user's newest message, once for each message.
    pub(super) async fn recall(&self, session: &mut Session) -> Result<()> {
        let Some(memory) = &self.memory else { return Ok(()) };
        let Some(query) = unrecalled_message(session, memory) else { return Ok(()) };
        let known = memory.recall(query.as_str().unwrap_or_default(), MAX_RECALLED_ENTRIES);
        let known = call_memory(session, known, |event| match event {
            MemoryEvent::Recall { found, .. } => Some(found.clone()),
            _ => None,
        });
        let known = known.await?;
        // Facts that are not committed yet are known to this session only.
        let uncommitted = pending(session, memory).into_iter().map(|fact| {
            let text = fact.as_str().unwrap_or_default();
            RecalledEntry::new(memory::entry_name(text), fact.clone())
        });
        let visible = visible_entries(session, memory);
        let mut found: Vec<RecalledEntry> = Vec::new();
        for recalled in uncommitted.chain(known) {
            let is_new = found.iter().all(|other| other.entry != recalled.entry);
            if is_new && !visible.contains(recalled.entry.as_str()) {
                found.push(recalled);
            }
        }
        session.push(memory_chunk(memory, MemoryEvent::Recall { query, found }));
        Ok(())
    }
}

fn memory_chunk(memory: &Memory, event: MemoryEvent) -> MemoryChunk {
    MemoryChunk::new(memory.uri(), event)
}

/// Returns the URI of a memory as it is on the record of a session: without secrets.
fn recorded_uri<'a>(session: &Session, memory: &'a Memory) -> Cow<'a, str> {
    session.secrets().hide(memory.uri()).map_or(memory.uri().into(), Cow::Owned)
}

/// Returns the events of a memory on a record, newest first.
fn memory_events<'a>(record: &'a Record, uri: &str) -> impl Iterator<Item = (&'a Step, &'a MemoryEvent)> {
    record.newest_first().filter_map(move |step| match step.chunk() {
        Chunk::Memory(chunk) if chunk.memory == uri => Some((step, &chunk.event)),
        _ => None,
    })
}

/// Returns the facts that are recorded and not committed, oldest first.
fn pending<'a>(session: &'a Session, memory: &Memory) -> Vec<&'a Text> {
    let uri = recorded_uri(session, memory);
    // A commit wrote the facts before it on its own branch, not those that a later merge put before it.
    let mut committed: HashSet<StepId> = HashSet::new();
    let mut facts = Vec::new();
    for (step, event) in memory_events(session.as_record(), &uri) {
        match event {
            MemoryEvent::Commit { .. } => {
                let before = Record::at(step.clone());
                let taken =
                    memory_events(&before, &uri).filter(|(_, event)| matches!(event, MemoryEvent::Remember { .. }));
                committed.extend(taken.map(|(step, _)| step.id()));
            }
            MemoryEvent::Remember { text } => facts.push((step.id(), text)),
            _ => {}
        }
    }
    facts.iter().rev().filter(|(step, _)| !committed.contains(step)).map(|(_, fact)| *fact).collect()
}

/// Returns the entries that the model sees already.
fn visible_entries<'a>(session: &'a Session, memory: &Memory) -> HashSet<&'a str> {
    let uri = recorded_uri(session, memory);
    let seen = session.messages().list.into_iter().filter_map(|message| match (&message, message.step().chunk()) {
        (Message::Recalled(_, found), Chunk::Memory(chunk)) if chunk.memory == uri => Some(*found),
        _ => None,
    });
    seen.flatten().map(|recalled| recalled.entry.as_str()).collect()
}

/// Returns the user's newest message, unless the memory has been asked about it.
fn unrecalled_message(session: &Session, memory: &Memory) -> Option<Text> {
    let uri = recorded_uri(session, memory);
    session.as_record().newest_first().find_map(|step| match step.chunk() {
        Chunk::User(user) => Some(Some(user.text.clone())),
        Chunk::Memory(chunk) if chunk.memory == uri => match chunk.event {
            MemoryEvent::Recall { .. } => Some(None),
            _ => None,
        },
        _ => None,
    })?
}

/// Waits for a memory, within the session's limits.
///
/// A failure stops the run: without the entries the model would answer from less, and the record would not show it. In a
/// replay the memory is not asked: `recorded` reads its reply from the event on the record.
async fn call_memory<T>(
    session: &mut Session,
    work: impl Future<Output = Result<T, MemoryError>>,
    recorded: impl Fn(&MemoryEvent) -> Option<T>,
) -> Result<T> {
    if let Some(replay) = session.replaying().cloned() {
        return Box::pin(replay.replay_memory(session, recorded)).await;
    }
    match within_limits(session, work).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(error)) => {
            let error = Error::from(error);
            session.push(Failed::new(error.kind().name(), error.message()));
            Err(error.with_session(session))
        }
        Err(stopped) => Err(stopped.record(session)),
    }
}
