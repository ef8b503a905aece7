//! The agent's methods on its memory, and what it recalls before it asks the model.

use std::borrow::Cow;
use std::collections::HashSet;
use std::time::Duration;

use rath_memory::{Hit, Note, NoteId, Position, Query};
use rath_record::chunk::{Chunk, Failed, Memory as MemoryChunk, MemoryEvent, RecalledEntry};
use rath_record::{Step, Text, Timestamp};

use super::agent::Agent;
use super::extract::{ExtractedFact, extract_facts};
use super::module::AuthorGuard;
use super::session_notes::{
    AlreadyVisible, MemoryView, fact_id, fact_sources, notes_of, pending_fact, said_text, session_of,
};
use crate::error::ErrorKind;
use crate::memory::{self, Hits, Memory, MemoryError, MemoryErrorKind};
use crate::provider::Provider;
use crate::session::{Error, Result, Session, within_limits};

/// The most notes that a model is shown for one message.
const MAX_RECALLED_NOTES: usize = 6;
/// The most bytes of notes that a model is shown for one message: about a thousand tokens.
const MAX_RECALLED_BYTES: usize = 4_000;
/// The time after which a memory is not waited for.
const MEMORY_TIMEOUT: Duration = Duration::from_secs(30);

impl Agent {
    /// Records a fact for the agent's memory. [`commit`](Agent::commit) writes it there.
    pub async fn remember(&self, session: &mut Session, fact: impl Into<Text>) -> Result<()> {
        let memory = self.require_memory(session)?;
        session.hide_also(&self.provider().secrets());
        let mut session = AuthorGuard::new(session, self);
        session.push(memory_chunk(memory, MemoryEvent::Remember { text: fact.into(), path: None, steps: vec![] }));
        session.finish(Ok(())).await
    }

    /// Asks the agent's memory a question, and records what it found. The model reads that with its next message.
    pub async fn recall(&self, session: &mut Session, question: impl Into<Text>) -> Result<Vec<RecalledEntry>> {
        let memory = self.require_memory(session)?;
        session.hide_also(&self.provider().secrets());
        let mut session = AuthorGuard::new(session, self);
        let question: Text = question.into();
        let hidden = question.as_str().and_then(|text| session.secrets().hide(text));
        let found = recall(&mut session, memory, hidden.map_or(question, Text::from)).await;
        session.finish(found).await
    }

    /// Writes to the agent's memory what was said since the last commit, and the facts that were recorded.
    ///
    /// Each message of the user and each answer of the model becomes a note, with its speaker, its time and its step. No model
    /// is asked, unless [`Agent::extract_facts`] names one. If that one fails, a step says so, and the messages are written.
    pub async fn commit(&self, session: &mut Session) -> Result<()> {
        let memory = self.require_memory(session)?;
        let mut session = AuthorGuard::new(session, self);
        let committed = commit(&mut session, memory, self.extractor.as_ref()).await;
        session.finish(committed).await
    }

    /// Removes notes from the agent's memory for good.
    pub async fn forget(&self, session: &mut Session, notes: &[NoteId]) -> Result<()> {
        let memory = self.require_memory(session)?;
        let mut session = AuthorGuard::new(session, self);
        let forgotten = call_memory(&mut session, memory.forget(notes), |event| match event {
            MemoryEvent::Forget { entries } => entries.iter().map(|entry| entry.parse().ok()).collect(),
            _ => None,
        });
        let forgotten = forgotten.await.map(|notes| {
            let entries = notes.iter().map(ToString::to_string).collect();
            session.push(memory_chunk(memory, MemoryEvent::Forget { entries }));
        });
        session.finish(forgotten).await
    }

    /// Returns the question that the agent would ask its memory for a session: limited to the notes that this line of the
    /// session knows. None without a memory.
    ///
    /// A session knows all notes of others and, of its own, those of this line. A fork knows what was known where it forked,
    /// and its own notes; a merge knows the notes of both sides.
    pub fn memory_query(&self, session: &Session, question: impl Into<String>) -> Option<Query> {
        let memory = self.memory.as_ref()?;
        Some(MemoryView::of(session, &recorded_uri(session, memory)).query(question.into()))
    }

    fn require_memory(&self, session: &Session) -> Result<&Memory> {
        self.memory.as_ref().ok_or_else(|| {
            Error::new(ErrorKind::Memory, "this agent has no memory")
                .with_hint("give it one: `Agent::new(..).memory(&memory)`")
                .with_session(session)
        })
    }

    /// Asks the memory about the user's newest message, once for each message.
    ///
    /// A memory that fails leaves a step, and the run goes on without it.
    pub(super) async fn recall_for_message(&self, session: &mut Session) -> Result<()> {
        let Some(memory) = &self.memory else { return Ok(()) };
        let Some(question) = unrecalled_message(session, memory) else { return Ok(()) };
        unless_stopped(recall(session, memory, question).await.map(|_| ()))
    }

    /// Commits what was said, if the agent does so after each run.
    pub(super) async fn commit_after_run(&self, session: &mut Session) -> Result<()> {
        match &self.memory {
            Some(memory) if self.commits_on_run => {
                unless_stopped(commit(session, memory, self.extractor.as_ref()).await)
            }
            _ => Ok(()),
        }
    }
}

/// Returns true for an error by which a run has to end: it was cancelled, its budget is used up, or a replay diverged.
fn ends_run(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Cancelled | ErrorKind::Budget | ErrorKind::Replay)
}

/// Keeps only an error by which a run has to end.
fn unless_stopped(done: Result<()>) -> Result<()> {
    done.or_else(|error| if ends_run(&error) { Err(error) } else { Ok(()) })
}

async fn recall(session: &mut Session, memory: &Memory, question: Text) -> Result<Vec<RecalledEntry>> {
    let uri = recorded_uri(session, memory).into_owned();
    let text = question.as_str().unwrap_or_default().to_owned();
    let view = MemoryView::of(session, &uri);
    let query = view.query(text).limit(2 * MAX_RECALLED_NOTES).now(memory::now());
    let asked = async {
        // The position that a fork of this session goes by.
        let present = match query.as_of {
            None => memory.position().await?,
            fixed => fixed,
        };
        let Hits { list, notice } = memory.recall(query).await?;
        Ok((list.into_iter().map(recalled_entry).collect::<Vec<_>>(), present, notice))
    };
    let (known, position, notice) = call_memory(session, asked, |event| match event {
        MemoryEvent::Recall { found, position, notice, .. } => {
            Some((found.clone(), position.map(Position), notice.clone()))
        }
        _ => None,
    })
    .await?;
    // Facts that are not committed yet are known to this session only.
    let facts = view.uncommitted.iter().filter_map(|step| {
        let (text, _) = pending_fact(step, &uri)?;
        let mut entry = RecalledEntry::new(fact_id(step, 0).to_string(), text.clone());
        entry.steps = fact_sources(step, &uri).to_vec();
        Some(entry)
    });
    let visible = AlreadyVisible::of(session, &uri);
    let mut found: Vec<RecalledEntry> = Vec::new();
    let mut left = MAX_RECALLED_BYTES;
    for mut recalled in facts.chain(known) {
        let is_new = found.iter().all(|other| other.entry != recalled.entry && other.text != recalled.text);
        if !is_new || visible.contains(&recalled) || found.len() == MAX_RECALLED_NOTES {
            continue;
        }
        // Of a note that alone is too long, the beginning is better than nothing.
        if found.is_empty()
            && let Some(beginning) = recalled.text.as_str().and_then(beginning)
        {
            recalled.text = beginning.into();
        }
        let length = recalled.text.as_str().map_or(0, str::len);
        if length <= left {
            left -= length;
            found.push(recalled);
        }
    }
    let position = position.map(|position| position.0);
    let event = MemoryEvent::Recall { query: question, found: found.clone(), position, notice };
    session.push(memory_chunk(memory, event));
    Ok(found)
}

async fn commit(session: &mut Session, memory: &Memory, extractor: Option<&Provider>) -> Result<()> {
    let uri = recorded_uri(session, memory).into_owned();
    if let Some(provider) = extractor {
        remember_facts(session, memory, provider).await?;
    }
    let view = MemoryView::of(session, &uri);
    let notes: Vec<Note> = view.uncommitted.iter().flat_map(|step| notes_of(step, view.session, &uri)).collect();
    if notes.is_empty() {
        return Ok(());
    }
    let entries: Vec<String> = notes.iter().map(|note| note.id.to_string()).collect();
    let position = call_memory(session, memory.remember_all(&notes), |event| match event {
        MemoryEvent::Commit { position, .. } => Some(position.map(Position)),
        _ => None,
    });
    // A fork goes on by the position that it forked at.
    let position = position.await.map(|present| view.position.or(present))?;
    session.push(memory_chunk(memory, MemoryEvent::Commit { entries, position: position.map(|position| position.0) }));
    Ok(())
}

/// Records the facts that a model finds in what no commit wrote yet.
async fn remember_facts(session: &mut Session, memory: &Memory, provider: &Provider) -> Result<()> {
    let uri = recorded_uri(session, memory).into_owned();
    let steps = MemoryView::of(session, &uri).uncommitted;
    // Of a commit that failed, the facts are there already.
    let done: HashSet<&str> = steps.iter().flat_map(|step| fact_sources(step, &uri)).map(String::as_str).collect();
    let said = steps.iter().filter(|step| !done.contains(step.id().to_string().as_str()));
    let said: Vec<(Step, String)> = said.filter_map(|step| Some(((*step).clone(), said_text(step)?))).collect();
    if said.is_empty() {
        return Ok(());
    }
    session.hide_also(&provider.secrets());
    let facts = match extract_facts(session, provider, &said).await {
        Ok(facts) => facts,
        Err(error) if ends_run(&error) => return Err(error),
        Err(error) => {
            // Its work is aside, where no log shows it.
            session.push(Failed::new(error.kind().name(), format!("no facts were found: {}", error.message())));
            return Ok(());
        }
    };
    for ExtractedFact { text, steps } in facts {
        session.push(memory_chunk(memory, MemoryEvent::Remember { text, path: None, steps }));
    }
    Ok(())
}

/// Returns the beginning of a text that is longer than what a model is shown.
fn beginning(text: &str) -> Option<String> {
    const MARK: &str = " [..]";
    let most = MAX_RECALLED_BYTES - MARK.len();
    (text.len() > MAX_RECALLED_BYTES).then(|| text[..text.floor_char_boundary(most)].to_owned() + MARK)
}

/// Turns a note that was found into an entry on the record.
fn recalled_entry(hit: Hit) -> RecalledEntry {
    let mut entry = RecalledEntry::new(hit.note.id.to_string(), hit.note.text);
    entry.score = Some((hit.score * 1000.0).clamp(0.0, u32::MAX as f32) as u32);
    entry.said_by = hit.note.said_by;
    entry.at = Some(Timestamp(hit.note.at)).filter(|at| at.0 != 0);
    if let Some(source) = hit.note.source {
        entry.session = Some(session_of(hit.note.thread.as_deref(), &source));
        entry.steps = source.steps;
    }
    entry
}

fn memory_chunk(memory: &Memory, event: MemoryEvent) -> MemoryChunk {
    MemoryChunk::new(memory.uri(), event)
}

/// Returns the URI of a memory as it is on the record of a session: without secrets.
fn recorded_uri<'a>(session: &Session, memory: &'a Memory) -> Cow<'a, str> {
    session.secrets().hide(memory.uri()).map_or(memory.uri().into(), Cow::Owned)
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

/// Waits for a memory, within the session's limits, and records its failure.
///
/// In a replay the memory is not asked: `recorded` reads its reply from the event on the record.
async fn call_memory<T>(
    session: &mut Session,
    work: impl Future<Output = Result<T, MemoryError>>,
    recorded: impl Fn(&MemoryEvent) -> Option<T>,
) -> Result<T> {
    if let Some(replay) = session.replaying().cloned() {
        return Box::pin(replay.replay_memory(session, recorded)).await;
    }
    let in_time = async {
        let late = || MemoryError::new(MemoryErrorKind::Timeout, "the memory did not answer in time");
        tokio::time::timeout(MEMORY_TIMEOUT, work).await.unwrap_or_else(|_| Err(late()))
    };
    match within_limits(session, in_time).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(error)) => {
            let error = Error::from(error);
            session.push(Failed::new(error.kind().name(), error.message()));
            Err(error.with_session(session))
        }
        Err(stopped) => Err(stopped.record(session)),
    }
}
