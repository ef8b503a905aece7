//! Opening a memory, and finding and printing its notes.

use std::collections::BTreeSet;
use std::path::Path;

use rath::interchange::parse_time;
use rath::memory::{LocalMemory, Lookup, MAX_ID_BYTES, Memory, Note, NoteId, NotePath, Position, Source};
use rath::provider::Embedder;
use rath::record::draw::{one_line, shorten};
use rath::record::{SHORT_ID_DIGITS, Timestamp};
use rath::store::path_within_reach;
use rath::{BranchId, StepId};
use serde::de::IgnoredAny;
use serde_json::Value;

use crate::output::{self, Exit, Failure, ID, hide_secrets};

/// The memory that is used where none is named.
const DEFAULT_MEMORY: &str = "local:.rath/memory";

/// The file of a memory in its directory.
const MEMORY_FILE: &str = "notes.db";

/// The fewest characters by which a session is found.
const MIN_PREFIX: usize = 4;

/// The number of notes that are named if several begin with a text.
const MAX_CANDIDATES: usize = 8;

/// The number of notes that are read at once.
const PAGE: usize = 1000;

/// The columns of a line with a note.
const COLUMNS: usize = 80;

/// The option that names a memory.
#[derive(clap::Args)]
pub(crate) struct MemoryArg {
    /// The memory: local:DIRECTORY
    #[arg(long, value_name = "MEMORY", default_value = DEFAULT_MEMORY)]
    memory: String,
}

impl MemoryArg {
    /// Opens the memory, which has to exist.
    pub(crate) async fn open(&self) -> Result<Memory, Failure> {
        self.check_exists()?;
        self.open_or_create().await
    }

    /// Opens the memory, which has to exist, and finds its notes by meaning if a model is named.
    pub(crate) async fn open_with(&self, embeddings: &EmbeddingsArg) -> Result<Memory, Failure> {
        self.check_exists()?;
        embeddings.open(&self.memory).await
    }

    /// Opens the memory, which has to exist, to give its notes vectors of a model.
    pub(crate) async fn open_for_vectors(&self, model: &str) -> Result<LocalMemory, Failure> {
        self.check_exists()?;
        open_with_vectors(&self.memory, model).await
    }

    /// To open a memory creates it.
    fn check_exists(&self) -> Result<(), Failure> {
        if let Some(directory) = self.memory.strip_prefix("local:").filter(|directory| !directory.is_empty()) {
            let file = Path::new(directory).join(MEMORY_FILE);
            let is_there = file.try_exists().map_err(|error| {
                let message = format!("cannot read the memory {}: {error}", output::path(&file));
                Failure::new(message, "`--memory local:DIRECTORY` names another one")
            })?;
            if !is_there {
                let message = format!("there is no memory here: {}", one_line(&self.memory));
                let example = format!("`rath memory remember 'Deploy on Mondays only.'{}`", self.option());
                return Err(Failure::new(message, format!("{example} begins one")));
            }
        }
        Ok(())
    }

    /// Opens the memory, and creates it if it does not exist.
    pub(crate) async fn open_or_create(&self) -> Result<Memory, Failure> {
        if self.memory.starts_with("process:") {
            let failure =
                Failure::new("a `process:` memory ends with this command", "write `--memory local:DIRECTORY`");
            return Err(failure.with_exit(Exit::Usage));
        }
        Ok(Memory::open(&self.memory).await?)
    }

    /// Returns the option that names this memory in a hint: empty for the default one.
    pub(crate) fn option(&self) -> String {
        match self.memory == DEFAULT_MEMORY {
            true => String::new(),
            false => format!(" --memory {}", output::quote(&self.memory)),
        }
    }
}

/// The option that names a model for vectors.
#[derive(clap::Args, Default, Clone)]
pub(crate) struct EmbeddingsArg {
    /// Find notes by their meaning too, by vectors of this model, such as openai:text-embedding-3-small
    ///
    /// The model reads the notes and the questions. OPENAI_API_KEY is its key, and OPENAI_BASE_URL its address if it is not
    /// OpenAI's.
    #[arg(long, value_name = "MODEL")]
    embeddings: Option<String>,
}

impl EmbeddingsArg {
    /// Opens a memory, whose notes are found by meaning if a model is named. The memory is created if it does not exist.
    pub(crate) async fn open(&self, uri: &str) -> Result<Memory, Failure> {
        match &self.embeddings {
            None => Ok(Memory::open(uri).await?),
            Some(model) => Ok(Memory::new(open_with_vectors(uri, model).await?)),
        }
    }

    /// Returns true if a model is named.
    pub(crate) fn is_given(&self) -> bool {
        self.embeddings.is_some()
    }

    /// Returns the option in a hint: empty if no model is named.
    pub(crate) fn option(&self) -> String {
        self.embeddings.iter().map(|model| format!(" --embeddings {}", output::quote(model))).collect()
    }

    /// Fails if a model is named where there is no memory.
    pub(crate) fn check_unused(&self) -> Result<(), Failure> {
        match &self.embeddings {
            None => Ok(()),
            Some(_) => {
                let failure = Failure::new("`--embeddings` is for a memory", "add `--memory local:.rath/memory`");
                Err(failure.with_exit(Exit::Usage))
            }
        }
    }
}

/// Opens a memory in a directory, whose notes are found by vectors of a model too.
async fn open_with_vectors(uri: &str, model: &str) -> Result<LocalMemory, Failure> {
    let Some(directory) = uri.strip_prefix("local:") else {
        let failure = Failure::new("`--embeddings` is for a memory in a directory", "write `--memory local:DIRECTORY`");
        return Err(failure.with_exit(Exit::Usage));
    };
    let embedder = Embedder::open(model)?;
    Ok(LocalMemory::open(directory).await?.embedder(embedder).hide(output::secrets()))
}

/// Opens the memory of an agent whose tools work in `directory`, and creates it if it does not exist.
pub(crate) async fn open_for_agent(
    uri: &str,
    directory: Option<&Path>,
    embeddings: &EmbeddingsArg,
) -> Result<Memory, Failure> {
    refuse_within_reach(uri, directory)?;
    embeddings.open(uri).await
}

/// Returns true if a memory is in a directory that has none yet.
pub(crate) fn is_new(uri: &str) -> bool {
    let directory = uri.strip_prefix("local:").filter(|directory| !directory.is_empty());
    directory.is_some_and(|directory| Path::new(directory).join(MEMORY_FILE).symlink_metadata().is_err())
}

/// Fails if tools that work in `directory` could write the memory.
pub(crate) fn refuse_within_reach(uri: &str, directory: Option<&Path>) -> Result<(), Failure> {
    let path = uri.strip_prefix("local:").filter(|path| !path.is_empty()).map(Path::new);
    if let (Some(path), Some(directory)) = (path, directory)
        && let Some(inside) = path_within_reach(path, directory)
    {
        let inside = output::quote(&format!("local:.rath/{}", inside.display()));
        let message = format!("tools could write the memory {}, which is in their directory", output::path(path));
        return Err(Failure::new(message, format!("`--memory {inside}` is out of their reach")));
    }
    Ok(())
}

/// Reads all notes below these paths, or all, oldest first.
pub(crate) async fn each_note(memory: &Memory, under: &[NotePath], mut each: impl FnMut(Note)) -> Result<(), Failure> {
    let (mut after, mut notice) = (Position::default(), None);
    loop {
        let page = memory.list(under, after, PAGE).await?;
        if page.notice.is_some() && page.notice != notice {
            notice.clone_from(&page.notice);
            page.notice.iter().for_each(|notice| output::note(&one_line(notice)));
        }
        let Some((last, _)) = page.last() else { return Ok(()) };
        after = *last;
        page.into_iter().for_each(|(_, note)| each(note));
    }
}

/// A note that was looked for.
pub(crate) enum FoundNote {
    Note(Box<Note>),
    /// The note was forgotten, at this time.
    Forgotten(NoteId, Timestamp),
}

/// Finds a note by its id, or by the beginning of what is shown of it.
pub(crate) async fn find_note(memory: &Memory, wanted: &str, option: &str) -> Result<FoundNote, Failure> {
    let usage = |message| {
        let hint = format!("`rath memory ls{option}` lists the notes");
        Failure::new(message, hint).with_exit(Exit::Usage)
    };
    let id = parse_id("id", wanted.to_owned()).map_err(usage)?;
    match memory.read(&id).await? {
        Lookup::Note(note) => return Ok(FoundNote::Note(note)),
        Lookup::Forgotten(at) => return Ok(FoundNote::Forgotten(id, Timestamp(at))),
        Lookup::Unknown => {}
    }
    let mut found = Vec::new();
    each_note(memory, &[], |note| {
        // An id with invisible characters is shown with escapes.
        if note.id.as_str().starts_with(wanted) || one_line(note.id.as_str()).starts_with(wanted) {
            found.push(note);
        }
    })
    .await?;
    match found.len() {
        0 => {
            let message = format!("there is no note `{}`", one_line(wanted));
            let list = format!("`rath memory ls{option}` lists the notes");
            Err(Failure::new(message, format!("{list}; one that was forgotten is known by its whole id only")))
        }
        1 => Ok(FoundNote::Note(Box::new(found.remove(0)))),
        number => {
            let shown = found.iter().take(MAX_CANDIDATES).map(|note| one_line(note.id.as_str())).collect::<Vec<_>>();
            let more = match number.saturating_sub(MAX_CANDIDATES) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let message = format!("several notes begin with `{}`: {}{more}", one_line(wanted), shown.join(", "));
            Err(Failure::new(message, "write more of the id"))
        }
    }
}

/// Finds the session with notes that `wanted` means: by its id, or by the first or last digits of it.
pub(crate) fn find_session(notes: &[Note], wanted: &str) -> Result<Option<String>, Failure> {
    let sessions: BTreeSet<&str> = notes.iter().filter_map(|note| Some(&*note.source.as_ref()?.session)).collect();
    if sessions.contains(wanted) {
        return Ok(Some(wanted.to_owned()));
    }
    if wanted.chars().count() < MIN_PREFIX {
        let message = format!("wanted at least {MIN_PREFIX} digits of a session, found `{}`", one_line(wanted));
        return Err(Failure::new(message, "`rath ls` lists the sessions").with_exit(Exit::Usage));
    }
    let mut matching = sessions.iter().filter(|session| session.starts_with(wanted) || session.ends_with(wanted));
    match (matching.next(), matching.next()) {
        (Some(one), Some(two)) => {
            let (wanted, one, two) = (one_line(wanted), one_line(one), one_line(two));
            Err(Failure::new(
                format!("several sessions have the digits `{wanted}`: {one}, {two}, .."),
                "give more digits",
            ))
        }
        (found, _) => Ok(found.map(|session| (*session).to_owned())),
    }
}

/// Returns the first digits of a note's id, or all of an id that has others than digits.
pub(crate) fn short_id(id: &NoteId) -> String {
    let is_digits = id.as_str().bytes().all(|byte| byte.is_ascii_hexdigit());
    let short = if is_digits { format!("{id:.SHORT_ID_DIGITS$}") } else { one_line(id.as_str()) };
    format!("{ID}{short}{ID:#}")
}

/// Returns a note on one line, after `before`: its id, the day, the speaker and as much of the text as fits.
pub(crate) fn line(before: &str, note: &Note) -> String {
    line_with_mark(before, "", note)
}

/// Returns a note on one line, with a mark before its speaker and text.
pub(crate) fn line_with_mark(before: &str, mark: &str, note: &Note) -> String {
    let day = Some(note.at).filter(|at| *at != 0).map(|at| output::day(Timestamp(at))).unwrap_or_default();
    let speaker = note.said_by.as_ref().map(|speaker| format!("{}: ", shorten(speaker, 20))).unwrap_or_default();
    let used = before.chars().count() + SHORT_ID_DIGITS + 2 + 10 + 2;
    let damaged = if note.is_damaged { "damaged: " } else { "" };
    let text = shorten(&format!("{damaged}{mark}{speaker}{}", note.text), COLUMNS.saturating_sub(used));
    format!("{before}{}  {day:<10}  {text}", short_id(&note.id))
}

/// Returns the command that shows the step which a note came from, if it came from one.
pub(crate) fn source_command(note: &Note) -> Option<String> {
    let source = note.source.as_ref()?;
    // The thread of what was said begins with the branch on which it was, and a session may have several.
    let branch = note.thread.as_ref().and_then(|thread| thread.split('/').next()?.parse::<BranchId>().ok());
    let branch = branch.or_else(|| source.session.parse().ok());
    let session = branch.map_or_else(|| output::quote(&source.session), |branch| branch.short());
    Some(match source.steps.first() {
        None => format!("rath log {session}"),
        Some(step) => {
            let step = step.parse::<StepId>().map_or_else(|_| output::quote(step), |step| step.short());
            format!("rath show {session} {step}")
        }
    })
}

/// Returns the present time, in microseconds since 1970.
pub(crate) fn now() -> i64 {
    output::now().0
}

/// A note as a JSON object, as it is printed and imported.
#[derive(serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NoteJson {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    text: String,
    #[serde(alias = "speaker", skip_serializing_if = "Option::is_none")]
    said_by: Option<String>,
    /// A time as RFC 3339 has it, or microseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thread: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    replaces: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<SourceJson>,
    /// The session and the step that `rath show` opens. They are printed, and follow from the rest.
    #[serde(rename = "from", skip_serializing)]
    _from: Option<IgnoredAny>,
    /// A part of the note could not be read. It is printed, and a note that is imported is whole.
    #[serde(rename = "damaged", skip_serializing)]
    _damaged: Option<IgnoredAny>,
}

/// The session and the steps that a note came from.
#[derive(serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct SourceJson {
    session: String,
    #[serde(default)]
    steps: Vec<String>,
}

impl NoteJson {
    pub(crate) fn new(note: &Note) -> Self {
        let time = |micros: i64| Timestamp(micros).to_rfc3339().map_or_else(|| Value::from(micros), Value::from);
        let source = note.source.as_ref();
        NoteJson {
            id: Some(note.id.to_string()),
            path: Some(note.path.to_string()),
            text: note.text.clone(),
            said_by: note.said_by.clone(),
            at: Some(note.at).filter(|at| *at != 0).map(time),
            thread: note.thread.clone(),
            expires: note.expires.map(time),
            replaces: note.replaces.as_ref().map(NoteId::to_string),
            source: source.map(|it| SourceJson { session: it.session.clone(), steps: it.steps.clone() }),
            _from: None,
            _damaged: None,
        }
    }

    /// Returns the note, or what is wrong with it. `default_id` is the id of one that names none.
    pub(crate) fn note(self, default_id: impl FnOnce() -> NoteId) -> Result<Note, String> {
        let time = |name: &str, value: &Value| {
            let micros = value.as_i64().or_else(|| value.as_str().and_then(parse_time).map(|time| time.0));
            let wanted = "wanted a time such as \"2026-01-31T12:00:00Z\", or microseconds since 1970";
            micros.ok_or_else(|| format!("`{name}`: {wanted}, found {}", shorten(&value.to_string(), 40)))
        };
        let invalid = |error: &dyn std::fmt::Display| error.to_string();
        let id = self.id.map(|id| parse_id("id", id)).transpose()?;
        let path = plain("path", self.path.unwrap_or_else(|| "memory://user".to_owned()))?;
        let path = path.parse().map_err(|error| invalid(&error))?;
        let mut note = Note::with_id(id.unwrap_or_else(default_id), path, self.text);
        note.at = self.at.map(|at| time("at", &at)).transpose()?.unwrap_or_default();
        note.expires = self.expires.map(|expires| time("expires", &expires)).transpose()?;
        note.replaces = self.replaces.map(|id| parse_id("replaces", id)).transpose()?;
        note.said_by = self.said_by.map(|name| plain("said_by", name)).transpose()?;
        note.thread = self.thread.map(|name| plain("thread", name)).transpose()?;
        if let Some(SourceJson { session, steps }) = self.source {
            let steps = steps.into_iter().map(|step| plain("steps", step)).collect::<Result<_, _>>()?;
            note.source = Some(Source::new(plain("session", session)?, steps));
        }
        note.check().map_err(|error| invalid(&error))?;
        Ok(note)
    }
}

/// Fails if a name in a note holds a secret of the environment. In its text and its speaker, secrets are hidden.
pub(crate) fn refuse_secrets(note: &Note) -> Result<(), String> {
    let source = note.source.as_ref();
    let steps = source.iter().flat_map(|source| &source.steps).map(|step| ("steps", step.as_str()));
    let names = [
        ("id", Some(note.id.as_str())),
        ("path", Some(note.path.as_str())),
        ("thread", note.thread.as_deref()),
        ("replaces", note.replaces.as_ref().map(NoteId::as_str)),
        ("session", source.map(|source| source.session.as_str())),
    ];
    let mut names = names.into_iter().filter_map(|(what, name)| Some((what, name?))).chain(steps);
    match names.find(|(_, name)| hide_secrets((*name).to_owned()) != *name) {
        Some((what, _)) => Err(format!("`{what}` holds a secret of your environment")),
        None => Ok(()),
    }
}

/// The most bytes of a name.
const MAX_NAME_BYTES: usize = 512;

fn parse_id(what: &str, id: String) -> Result<NoteId, String> {
    id.parse::<NoteId>()
        .map_err(|_| format!("`{what}`: wanted 1 to {MAX_ID_BYTES} bytes without spaces, found `{}`", shorten(&id, 40)))
}

/// Returns a name, or what is wrong with it.
pub(crate) fn plain(what: &str, name: String) -> Result<String, String> {
    if name.is_empty() || name.len() > MAX_NAME_BYTES || name.chars().any(char::is_control) {
        let name = shorten(&name, 40);
        return Err(format!("`{what}`: wanted 1 to {MAX_NAME_BYTES} bytes without control characters, found `{name}`"));
    }
    Ok(name)
}
