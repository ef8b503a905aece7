//! The notes of a session: what a commit writes to a memory, and what a recall may find there.

use std::collections::HashSet;
use std::sync::Arc;

use rath_memory::{Note, NoteId, NotePath, Position, Query, Source};
use rath_record::chunk::{Chunk, MemoryEvent, RecalledEntry};
use rath_record::view::Message;
use rath_record::{BranchId, Digest, Parent, Step, StepId, Text};

use crate::session::{Session, is_aside};

/// The most bytes of a note that is made of a message. A longer message becomes several notes.
const MAX_NOTE_BYTES: usize = 2_000;

/// The name of the speaker of messages that the user wrote.
const USER: &str = "user";
/// The name of the speaker of answers that no named module asked for.
const ASSISTANT: &str = "assistant";

/// The part of a memory that a session may search, and what the session has for it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct MemoryView {
    /// The session, by the branch that it began with.
    pub(super) session: BranchId,
    /// The notes that this line of the session wrote.
    pub(super) own: Vec<NoteId>,
    /// The position up to which notes of others are known; None for all.
    pub(super) position: Option<Position>,
    /// The steps with a fact or a message that no commit wrote to the memory, oldest first.
    pub(super) uncommitted: Vec<Step>,
}

impl MemoryView {
    /// Reads the view from the record, in one walk.
    ///
    /// A fork knows what was known where it forked, and its own notes. A merge ends that: it knows all.
    pub(super) fn of(session: &Session, uri: &str) -> Self {
        let mut own = Vec::new();
        let mut position = None;
        let mut is_fork = session.is_unwritten_fork();
        let mut is_decided = is_fork;
        // Without a step, the session begins with its next one.
        let mut first_branch = session.id();
        let mut walked = Vec::new();
        let mut uncommitted: Vec<&Step> = Vec::new();
        for step in session.as_record().newest_first() {
            match step.chunk() {
                Chunk::Forked(_) if !is_decided => (is_fork, is_decided) = (true, true),
                Chunk::Merged(_) if !is_decided => is_decided = true,
                Chunk::Memory(chunk) if chunk.memory == uri => {
                    let known = match &chunk.event {
                        MemoryEvent::Commit { entries, position } => {
                            own.extend(entries.iter().filter_map(|entry| entry.parse().ok()));
                            position
                        }
                        MemoryEvent::Recall { position, .. } => position,
                        _ => &None,
                    };
                    if is_fork && position.is_none() {
                        position = known.map(Position);
                    }
                }
                _ => {}
            }
            if is_said(step) || pending_fact(step, uri).is_some() {
                uncommitted.push(step);
            }
            first_branch = step.stamp().branch;
            walked.push(step);
        }
        let committed = committed(&walked, uri);
        uncommitted.retain(|step| !committed.contains(&step.id()));
        let uncommitted = uncommitted.into_iter().rev().cloned().collect();
        MemoryView { session: first_branch, own, position, uncommitted }
    }

    /// Makes a question that finds what is in view.
    pub(super) fn query(&self, question: String) -> Query {
        let mut query = Query::new(question).session(self.session.to_string(), self.own.clone());
        query.as_of = self.position;
        query
    }
}

/// Returns the id of the note that a message becomes, by its number among the notes of its step.
///
/// Sessions that begin with the same words begin with the same step: the branch on which it was made tells them apart, and is the same
/// for all forks that have it.
fn message_id(step: &Step, nth: usize) -> NoteId {
    id_of(&format!("rath note {nth} of {} on {}", step.id(), step.stamp().branch))
}

/// Returns the id of the note that a fact becomes, by its number among the notes of its step.
///
/// It is on the record as soon as the fact is recalled, and the same program makes the same record: the branch is no part of it.
pub(super) fn fact_id(step: &Step, nth: usize) -> NoteId {
    id_of(&format!("rath note {nth} of {}", step.id()))
}

fn id_of(text: &str) -> NoteId {
    let digest = Digest::compute(text.as_bytes());
    format!("{digest:.32}").parse().expect("hexadecimal digits are an id")
}

/// Returns the steps before a commit to the memory, among all steps of a record, newest first.
///
/// A commit wrote what was before it on its own branch, not what a later merge put before it.
fn committed(walked: &[&Step], uri: &str) -> HashSet<StepId> {
    let mut committed: HashSet<StepId> = HashSet::new();
    loop {
        let before = committed.len();
        for step in walked {
            if is_commit(step, uri) || committed.contains(&step.id()) {
                // A branch that is kept aside is not read.
                let read = if is_aside(step.chunk()) { 1 } else { 2 };
                committed.extend(step.parents().iter().take(read).map(Parent::id));
            }
        }
        // A merge that repeats shared steps reads them before the commit of its other line.
        if committed.len() == before {
            return committed;
        }
    }
}

fn is_commit(step: &Step, uri: &str) -> bool {
    matches!(step.chunk(), Chunk::Memory(chunk) if chunk.memory == uri && matches!(chunk.event, MemoryEvent::Commit { .. }))
}

/// Returns true for a message of the user or an answer of the model.
fn is_said(step: &Step) -> bool {
    match step.chunk() {
        // A message that a module wrote is a part of its work.
        Chunk::User(user) => step.stamp().by.is_none() && has_words(&user.text),
        Chunk::Assistant(answer) => has_words(&answer.text),
        _ => false,
    }
}

fn has_words(text: &Text) -> bool {
    text.as_str().is_some_and(|text| !text.trim().is_empty())
}

/// Returns the fact that a step records for this memory, and its path.
pub(super) fn pending_fact<'a>(step: &'a Step, uri: &str) -> Option<(&'a Text, Option<&'a str>)> {
    match step.chunk() {
        Chunk::Memory(chunk) if chunk.memory == uri => match &chunk.event {
            MemoryEvent::Remember { text, path, .. } => Some((text, path.as_deref())),
            _ => None,
        },
        _ => None,
    }
}

/// Returns the steps in which a fact was found, for a step that records a fact for this memory.
pub(super) fn fact_sources<'a>(step: &'a Step, uri: &str) -> &'a [String] {
    match step.chunk() {
        Chunk::Memory(chunk) if chunk.memory == uri => match &chunk.event {
            MemoryEvent::Remember { steps, .. } => steps,
            _ => &[],
        },
        _ => &[],
    }
}

/// Returns the speaker and the text of a message of the user or an answer of the model.
pub(super) fn said_text(step: &Step) -> Option<String> {
    let (speaker, text) = said(step).filter(|_| is_said(step))?;
    Some(format!("{speaker}: {}", text.as_str()?))
}

fn said(step: &Step) -> Option<(&str, &Text)> {
    match step.chunk() {
        Chunk::User(user) => Some((USER, &user.text)),
        Chunk::Assistant(answer) => Some((step.stamp().by.as_deref().unwrap_or(ASSISTANT), &answer.text)),
        _ => None,
    }
}

/// Makes the notes of a step: a fact, or a message in pieces. Their thread begins with the branch of the step.
pub(super) fn notes_of(step: &Step, session: BranchId, uri: &str) -> Vec<Note> {
    let steps = match fact_sources(step, uri) {
        [] => vec![step.id().to_string()],
        steps => steps.to_vec(),
    };
    let source = Source::new(session.to_string(), steps);
    let branch = step.stamp().branch;
    let make = |id: NoteId, path: NotePath, text: &str, thread: String| {
        let note = Note::with_id(id, path, text).source(source.clone());
        note.at(step.stamp().at.map_or(0, |at| at.0)).thread(thread)
    };
    if let Some((text, path)) = pending_fact(step, uri) {
        let path = path.unwrap_or("memory://user").parse().unwrap_or_else(|_| user_path());
        return pieces(text.as_str().unwrap_or_default())
            .enumerate()
            // A fact is understood alone: it is no neighbour of what was said around it.
            .map(|(nth, text)| make(fact_id(step, nth), path.clone(), text, format!("{branch}/{}", step.id())))
            .collect();
    }
    let Some((speaker, text)) = said(step) else { return Vec::new() };
    let path: NotePath = format!("memory://session/{session}").parse().unwrap_or_else(|_| user_path());
    let notes = pieces(text.as_str().unwrap_or_default()).enumerate();
    notes
        .map(|(nth, text)| make(message_id(step, nth), path.clone(), text, branch.to_string()).said_by(speaker))
        .collect()
}

/// Returns the session that has the steps of a note: the branch on which it was made, if a session made it.
pub(super) fn session_of(thread: Option<&str>, source: &Source) -> String {
    let branch = thread.and_then(|thread| thread.split('/').next()).filter(|branch| branch.parse::<BranchId>().is_ok());
    branch.unwrap_or(&source.session).to_owned()
}

fn user_path() -> NotePath {
    "memory://user".parse().expect("a scope is a path")
}

/// Cuts a text into pieces of at most [`MAX_NOTE_BYTES`]: between paragraphs, else between lines, words or characters.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text.trim();
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        if rest.len() <= MAX_NOTE_BYTES {
            return Some(std::mem::take(&mut rest));
        }
        let most = rest.floor_char_boundary(MAX_NOTE_BYTES);
        let cut = ["\n\n", "\n", " "].iter().find_map(|between| rest[..most].rfind(between).filter(|at| *at > 0));
        let (piece, after) = rest.split_at(cut.unwrap_or(most));
        rest = after.trim_start();
        Some(piece.trim_end())
    })
    .filter(|piece| !piece.is_empty())
}

/// The steps, the entries and the texts that the model reads already.
pub(super) struct AlreadyVisible {
    steps: HashSet<String>,
    entries: HashSet<String>,
    texts: HashSet<Arc<str>>,
}

impl AlreadyVisible {
    pub(super) fn of(session: &Session, uri: &str) -> Self {
        let (mut steps, mut entries, mut texts) = (HashSet::new(), HashSet::new(), HashSet::new());
        let mut add_text = |text: &Text| match text {
            Text::Present(text) => _ = texts.insert(text.clone()),
            Text::Missing(_) => {}
        };
        for message in session.messages().list {
            steps.insert(message.step().id().to_string());
            match (&message, message.step().chunk()) {
                (Message::Recalled(_, found), Chunk::Memory(chunk)) => {
                    found.iter().for_each(|recalled| add_text(&recalled.text));
                    if chunk.memory == uri {
                        entries.extend(found.iter().map(|recalled| recalled.entry.clone()));
                    }
                }
                _ => said(message.step()).into_iter().for_each(|(_, text)| add_text(text)),
            }
        }
        AlreadyVisible { steps, entries, texts }
    }

    /// Returns true if the model reads the entry, its text, or all the steps that it came from.
    pub(super) fn contains(&self, RecalledEntry { entry, text, steps, .. }: &RecalledEntry) -> bool {
        self.entries.contains(entry)
            || text.as_str().is_some_and(|text| self.texts.contains(text))
            || !steps.is_empty() && steps.iter().all(|step| self.steps.contains(step))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut_between_paragraphs_and_nothing_is_lost() {
        let paragraph = "word ".repeat(150);
        let text = format!("{paragraph}\n\n{paragraph}\n\n{paragraph}\n\n{}", "字".repeat(3_000));
        let pieces: Vec<&str> = pieces(&text).collect();
        assert!(pieces.iter().all(|piece| piece.len() <= MAX_NOTE_BYTES && !piece.is_empty()));
        let characters = |text: &str| text.chars().filter(|c| !c.is_whitespace()).collect::<String>();
        assert_eq!(pieces.iter().map(|piece| characters(piece)).collect::<String>(), characters(&text));
        assert_eq!(pieces[0].len(), 2 * 750 - 1 + 2);
    }
}
