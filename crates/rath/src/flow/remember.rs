//! What an agent remembers.

use std::collections::HashSet;

use rath_record::chunk::{Chunk, Failed, Memory as MemoryChunk, MemoryEvent, RecalledEntry};
use rath_record::view::Message;
use rath_record::{Record, Step, StepId, Text};

use super::agent::Agent;
use super::module::Acting;
use crate::error::ErrorKind;
use crate::limits::within_limits;
use crate::memory::{self, Memory};
use crate::session::Session;
use crate::session::{Error, Result};

/// How much of what a memory knows is shown to a model.
const RECALLED_MOST: usize = 4;

impl Agent {
    /// Hands a fact over to the agent's memory. It gets there when it is committed.
    pub async fn remember(&self, session: &mut Session, fact: impl Into<Text>) -> Result<()> {
        let memory = self.known_memory(session)?;
        session.hide_also(&self.provider().secrets());
        let mut session = Acting::new(session, self);
        session.push(event(memory, MemoryEvent::Remember { text: fact.into() }));
        session.done(Ok(())).await
    }

    /// Makes durable what was handed over since the last time.
    pub async fn commit(&self, session: &mut Session) -> Result<()> {
        let memory = self.known_memory(session)?;
        let facts: Vec<String> = pending(session, memory).iter().map(ToString::to_string).collect();
        if facts.is_empty() {
            return Ok(());
        }
        let mut session = Acting::new(session, self);
        let committed = in_time(&mut session, memory.commit(&facts), |event| match event {
            MemoryEvent::Commit { entries } => Some(entries.clone()),
            _ => None,
        });
        let committed = committed.await;
        let committed = committed.map(|entries| session.push(event(memory, MemoryEvent::Commit { entries })));
        session.done(committed).await.map(|_| ())
    }

    /// Removes entries from the agent's memory.
    pub async fn forget(&self, session: &mut Session, entries: &[String]) -> Result<()> {
        let memory = self.known_memory(session)?;
        let mut session = Acting::new(session, self);
        let forgotten = in_time(&mut session, memory.forget(entries), |event| match event {
            MemoryEvent::Forget { entries } => Some(entries.clone()),
            _ => None,
        });
        let forgotten = forgotten.await;
        let forgotten = forgotten.map(|entries| session.push(event(memory, MemoryEvent::Forget { entries })));
        session.done(forgotten).await.map(|_| ())
    }

    fn known_memory(&self, session: &Session) -> Result<&Memory> {
        self.memory.as_ref().ok_or_else(|| {
            Error::new(ErrorKind::Memory, "this agent has no memory")
                .with_hint("give it one: `Agent::new(..).memory(&memory)`")
                .with_session(session)
        })
    }

    /// Asks the memory about what the user said, once for each time the user spoke.
    pub(super) async fn recall(&self, session: &mut Session) -> Result<()> {
        let Some(memory) = &self.memory else { return Ok(()) };
        let Some(query) = question(session, memory) else { return Ok(()) };
        let known = memory.recall(query.as_str().unwrap_or_default(), RECALLED_MOST);
        let known = in_time(session, known, |event| match event {
            MemoryEvent::Recall { found, .. } => Some(found.clone()),
            _ => None,
        });
        let known = known.await?;
        // What this session is still to hand over is known here too, if nowhere else.
        let own = pending(session, memory).into_iter().map(|fact| {
            let text = fact.as_str().unwrap_or_default();
            RecalledEntry { entry: memory::entry(text), text: fact.clone() }
        });
        let seen = recalled(session, memory);
        let mut found: Vec<RecalledEntry> = Vec::new();
        for one in own.chain(known) {
            if !seen.contains(one.entry.as_str()) && found.iter().all(|other| other.entry != one.entry) {
                found.push(one);
            }
        }
        session.push(event(memory, MemoryEvent::Recall { query, found }));
        Ok(())
    }
}

fn event(memory: &Memory, event: MemoryEvent) -> MemoryChunk {
    MemoryChunk { memory: memory.uri().to_owned(), event }
}

/// What happened to a memory on a record, newest first.
fn events<'a>(record: &'a Record, memory: &'a Memory) -> impl Iterator<Item = (&'a Step, &'a MemoryEvent)> {
    record.newest_first().filter_map(|step| match step.chunk() {
        Chunk::Memory(chunk) if chunk.memory == memory.uri() => Some((step, &chunk.event)),
        _ => None,
    })
}

/// The facts that were handed over and not committed, oldest first.
fn pending<'a>(session: &'a Session, memory: &'a Memory) -> Vec<&'a Text> {
    // A commit takes what was handed over before it on its own line, and nothing that a merge put before it since.
    let mut committed: HashSet<StepId> = HashSet::new();
    let mut facts = Vec::new();
    for (step, event) in events(session.as_record(), memory) {
        match event {
            MemoryEvent::Commit { .. } => {
                let before = Record::at(step.clone());
                let taken = events(&before, memory).filter(|(_, event)| matches!(event, MemoryEvent::Remember { .. }));
                committed.extend(taken.map(|(step, _)| step.id()));
            }
            MemoryEvent::Remember { text } => facts.push((step.id(), text)),
            MemoryEvent::Recall { .. } | MemoryEvent::Forget { .. } => {}
        }
    }
    facts.iter().rev().filter(|(step, _)| !committed.contains(step)).map(|(_, fact)| *fact).collect()
}

/// The entries that the model sees.
fn recalled<'a>(session: &'a Session, memory: &Memory) -> HashSet<&'a str> {
    let seen = session.messages().list.into_iter().filter_map(|message| match (&message, message.step().chunk()) {
        (Message::Recalled(_, found), Chunk::Memory(chunk)) if chunk.memory == memory.uri() => Some(*found),
        _ => None,
    });
    seen.flatten().map(|one| one.entry.as_str()).collect()
}

/// What the user said last, unless the memory has been asked about it.
fn question(session: &Session, memory: &Memory) -> Option<Text> {
    session.as_record().newest_first().find_map(|step| match step.chunk() {
        Chunk::User(user) => Some(Some(user.text.clone())),
        Chunk::Memory(chunk) if chunk.memory == memory.uri() => match chunk.event {
            MemoryEvent::Recall { .. } => Some(None),
            _ => None,
        },
        _ => None,
    })?
}

/// Waits for a memory, within the session's limits. One that fails stops the run: what it would have said is missing, and
/// nobody would know.
///
/// In a replay nobody is asked: `recorded` reads what was said from what is recorded of it.
async fn in_time<T>(
    session: &mut Session,
    work: impl Future<Output = Result<T>>,
    recorded: impl Fn(&MemoryEvent) -> Option<T>,
) -> Result<T> {
    if let Some(replay) = session.replaying().cloned() {
        return Box::pin(replay.remembered(session, recorded)).await;
    }
    match within_limits(session, work).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(error)) => {
            session.push(Failed { error: error.kind().name().to_owned(), message: error.message().into() });
            Err(error.with_session(session))
        }
        Err(stopped) => Err(stopped.record(session)),
    }
}
