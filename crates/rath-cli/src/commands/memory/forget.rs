//! `rath memory forget`: remove notes for good.

use std::collections::{HashMap, HashSet};

use rath::Memory;
use rath::memory::{Forget, Hit, Note, NoteId, Query, Source};
use rath::record::Timestamp;
use rath::record::draw::{count, one_line};
use serde_json::json;

use super::{Moment, branch};
use crate::asking::confirm;
use crate::memories::{self, FoundNote, MemoryArg, find_note, now, short_id};
use crate::output::{self, CommandResult, Exit, Failure};

/// Remove notes for good, with all their versions
///
/// With --before, --expired and --keep, newer versions stay. Notes that are not named by their ids are shown first, and you are asked. The steps that notes came from stay: see `rath forget`.
#[derive(clap::Args)]
#[command(group(clap::ArgGroup::new("what").required(true).args(["ids", "query", "session", "before", "expired", "keep"])))]
pub(super) struct ForgetNotesArgs {
    /// The ids of notes, or their first digits
    #[arg(value_name = "ID")]
    ids: Vec<String>,
    #[command(flatten)]
    memory: MemoryArg,
    /// Remove the notes that have words of a question, best first, and all with the same texts
    #[arg(long, value_name = "QUESTION")]
    query: Option<String>,
    /// The most texts that a question removes
    #[arg(long, value_name = "N", default_value_t = 8, requires = "query")]
    limit: usize,
    /// Remove the notes that came from a session, a fork or a merge
    #[arg(long)]
    session: Option<String>,
    /// Remove the notes that were said before this date, or are older than this: 2026-01-31, 90d. Those whose time is not known stay
    #[arg(long, value_name = "DATE")]
    before: Option<Moment>,
    /// Remove the notes whose time is over
    #[arg(long)]
    expired: bool,
    /// Remove all but the newest N notes
    #[arg(long, value_name = "N")]
    keep: Option<usize>,
    /// Do not ask
    #[arg(long)]
    yes: bool,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

pub(super) async fn run(args: &ForgetNotesArgs) -> CommandResult {
    let memory = args.memory.open().await?;
    let notes = args.select(&memory).await?;
    if !args.ids.is_empty() || args.yes || notes.is_empty() {
        return args.forget(&memory, &notes).await;
    }
    // Exactly what was shown is forgotten, and not what others write meanwhile.
    args.print("would forget ", &notes, &[])?;
    let these = match notes.len() as u64 {
        1 => "this note".to_owned(),
        number => format!("these {}", count(number, "note")),
    };
    if !args.json && output::is_interactive() {
        if confirm(&format!("forget {these} for good?")).await {
            return args.forget(&memory, &notes).await;
        }
        output::message!("nothing is forgotten");
        return Ok(Exit::Success);
    }
    let command = format!("`rath memory forget {}{} --yes`", args.options(), args.memory.option());
    Err(Failure::new("nothing is forgotten yet", format!("{command} forgets {these}")).with_exit(Exit::Waiting))
}

/// Returns a memory with the notes that no question finds: old versions, and those whose time is over.
async fn hidden_notes(memory: &Memory) -> Result<Memory, Failure> {
    let mut notes = Vec::new();
    memories::each_note(memory, &[], |note| notes.push(note)).await?;
    let replaced: HashSet<NoteId> = notes.iter().filter_map(|note| note.replaces.clone()).collect();
    let now = now();
    notes.retain(|note| replaced.contains(&note.id) || note.expires.is_some_and(|expires| expires <= now));
    for note in &mut notes {
        (note.replaces, note.expires) = (None, None);
    }
    let hidden = Memory::in_process("hidden");
    hidden.remember_all(&notes).await?;
    Ok(hidden)
}

/// Adds the versions that are removed with the notes, so that all of them are shown before.
async fn add_versions(memory: &Memory, notes: &mut Vec<Note>, with_newer: bool) -> Result<(), Failure> {
    let mut others = Vec::new();
    memories::each_note(memory, &[], |note| others.push(note)).await?;
    let there: HashSet<NoteId> = others.iter().map(|note| note.id.clone()).collect();
    let mut removed: HashSet<NoteId> = notes.iter().map(|note| note.id.clone()).collect();
    loop {
        let before = notes.len();
        for note in &others {
            if let Some(old) = note.replaces.as_ref().filter(|old| there.contains(*old)) {
                if removed.contains(&note.id) {
                    removed.insert(old.clone());
                } else if with_newer && removed.contains(old) {
                    removed.insert(note.id.clone());
                }
            }
        }
        let known: HashSet<NoteId> = notes.iter().map(|note| note.id.clone()).collect();
        notes.extend(others.iter().filter(|note| removed.contains(&note.id) && !known.contains(&note.id)).cloned());
        if notes.len() == before {
            return Ok(());
        }
    }
}

impl ForgetNotesArgs {
    /// Returns the notes that are to be forgotten.
    async fn select(&self, memory: &Memory) -> Result<Vec<Note>, Failure> {
        let mut notes: Vec<Note> = Vec::new();
        for wanted in &self.ids {
            match find_note(memory, wanted, &self.memory.option()).await? {
                FoundNote::Note(note) if notes.iter().any(|known| known.id == note.id) => {}
                FoundNote::Note(note) => notes.push(*note),
                FoundNote::Forgotten(id, at) => {
                    let (id, day) = (one_line(id.as_str()), output::day(at));
                    output::note(&format!("{id} was forgotten on {day} already"));
                }
            }
        }
        if let Some(question) = &self.query {
            let query = Query::new(question.as_str()).limit(self.limit).now(now());
            // No question finds old versions and notes whose time is over, and their words are there all the same.
            let hidden = hidden_notes(memory).await?;
            let mut hits: Vec<Hit> = memory.recall(query.clone()).await?.into_iter().collect();
            hits.extend(hidden.recall(query).await?);
            // A note that is found by its neighbours alone is not what the question is about.
            hits.retain(|hit| hit.has_words);
            hits.sort_by(|one, other| other.score.total_cmp(&one.score));
            let mut places: HashMap<String, usize> = HashMap::new();
            for hit in hits {
                let place = places.len();
                if place < self.limit {
                    places.entry(hit.note.text).or_insert(place);
                }
            }
            // A question names as many copies of a text as it happens to find.
            memories::each_note(memory, &[], |note| {
                if places.contains_key(&note.text) {
                    notes.push(note);
                }
            })
            .await?;
            notes.sort_by_key(|note| places.get(&note.text).copied());
        }
        let (before, now) = (self.before.as_ref().map(Moment::ago), now());
        if before.is_some() || self.expired || self.session.is_some() {
            memories::each_note(memory, &[], |note| {
                let is_old = note.at != 0 && before.is_some_and(|before| note.at < before);
                let is_over = self.expired && note.expires.is_some_and(|expires| expires <= now);
                if is_old || is_over || (self.session.is_some() && note.source.is_some()) {
                    notes.push(note);
                }
            })
            .await?;
        }
        if let Some(keep) = self.keep {
            memories::each_note(memory, &[], |note| notes.push(note)).await?;
            notes.truncate(notes.len().saturating_sub(keep));
        }
        if let Some(wanted) = &self.session {
            // A fork and a merge are sessions too, by their own ids.
            let branches = notes.iter().filter_map(|note| {
                let source = Source::new(branch(note)?.to_string(), Vec::new());
                Some(Note::with_id(note.id.clone(), note.path.clone(), "").source(source))
            });
            let branches: Vec<Note> = branches.collect();
            let session = memories::find_session(&[&notes[..], &branches].concat(), wanted)?.ok_or_else(|| {
                let message = format!("no note came from the session `{}`", one_line(wanted));
                let list = format!("`rath memory ls --json{}`", self.memory.option());
                Failure::new(message, format!("{list} lists the notes with their sessions"))
            })?;
            notes.retain(|note| {
                let source = note.source.as_ref().map(|source| &source.session);
                source == Some(&session) || branch(note).is_some_and(|branch| branch.to_string() == session)
            });
        }
        if self.ids.is_empty() && !notes.is_empty() {
            add_versions(memory, &mut notes, !self.is_by_limit()).await?;
        }
        Ok(notes)
    }

    /// Returns true if the newer versions of the notes stay.
    fn is_by_limit(&self) -> bool {
        // A limit on number or age says nothing about the new versions of what is too old.
        self.keep.is_some() || self.before.is_some() || self.expired
    }

    async fn forget(&self, memory: &Memory, notes: &[Note]) -> CommandResult {
        let ids: Vec<NoteId> = notes.iter().map(|note| note.id.clone()).collect();
        let what = if self.is_by_limit() { Forget::WithOlder(ids.clone()) } else { Forget::Notes(ids.clone()) };
        let mut versions = memory.forget_where(&what).await?;
        let named: HashSet<&NoteId> = ids.iter().collect();
        versions.retain(|id| !named.contains(id));
        if !self.json && notes.is_empty() {
            output::message!("nothing to forget");
        }
        self.print("forgot ", notes, &versions)?;
        Ok(Exit::Success)
    }

    /// Prints notes, and the ids of other versions of them.
    fn print(&self, verb: &str, notes: &[Note], versions: &[NoteId]) -> std::io::Result<()> {
        if self.json {
            let ids: Vec<_> = notes.iter().map(|note| &note.id).chain(versions).map(NoteId::as_str).collect();
            let name = if verb == "forgot " { "forgotten" } else { "would_forget" };
            return output::data(|out| output::json_line(out, &json!({name: ids})));
        }
        output::text(|out| {
            notes.iter().try_for_each(|note| writeln!(out, "{}", memories::line(verb, note)))?;
            versions.iter().try_for_each(|id| writeln!(out, "{verb}{} (another version)", short_id(id)))
        })
    }

    /// Returns the options that choose the same notes, for a hint.
    fn options(&self) -> String {
        let value = |name: &str, value: &Option<String>| {
            // What begins with a hyphen would be read as another option.
            let between = |value: &String| if value.starts_with('-') { "=" } else { " " };
            value.as_ref().map(|value| format!("--{name}{}{}", between(value), output::quote(value)))
        };
        // An age means another moment when the hint is used.
        let before = self.before.as_ref().map(|before| output::time(Timestamp(before.ago())));
        let keep = self.keep.map(|keep| keep.to_string());
        let options = [
            value("query", &self.query),
            value("session", &self.session),
            value("before", &before),
            value("keep", &keep),
        ];
        let what = options.into_iter().flatten().next().unwrap_or_else(|| "--expired".to_owned());
        let limit = self.query.as_ref().map(|_| format!(" --limit {}", self.limit)).unwrap_or_default();
        format!("{what}{limit}{}", if self.json { " --json" } else { "" })
    }
}
