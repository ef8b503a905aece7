//! `rath memory`: the notes that agents keep across runs.

mod forget;
mod import;

use std::collections::{HashSet, VecDeque};
use std::io::{self, Read};
use std::str::FromStr;

use rath::BranchId;
use rath::interchange::parse_time;
use rath::memory::{Hit, Note, NoteId, NotePath, Query};
use rath::record::Timestamp;
use rath::record::draw::{one_line, printable};
use serde_json::json;

use crate::memories::{self, EmbeddingsArg, FoundNote, MemoryArg, NoteJson, find_note, now, short_id};
use crate::output::{self, CommandResult, Exit, Failure, hide_secrets};
use crate::retention::Age;

/// Show, write and remove the notes that agents keep across runs
///
/// `rath run --memory local:.rath/memory` gives an agent this memory. Notes are found by the words of a question and, with
/// --embeddings, by its meaning.
#[derive(clap::Args)]
pub(crate) struct MemoryArgs {
    #[command(subcommand)]
    action: MemoryAction,
}

#[derive(clap::Subcommand)]
enum MemoryAction {
    Ls(ListArgs),
    Remember(RememberArgs),
    Recall(RecallArgs),
    Read(ReadArgs),
    Forget(forget::ForgetNotesArgs),
    Import(import::ImportNotesArgs),
    Embed(EmbedArgs),
}

pub(crate) async fn run(args: &MemoryArgs) -> CommandResult {
    match &args.action {
        MemoryAction::Ls(args) => list(args).await,
        MemoryAction::Remember(args) => remember(args).await,
        MemoryAction::Recall(args) => recall(args).await,
        MemoryAction::Read(args) => read(args).await,
        MemoryAction::Forget(args) => forget::run(args).await,
        MemoryAction::Import(args) => import::run(args).await,
        MemoryAction::Embed(args) => embed(args).await,
    }
}

/// List the notes, newest last
///
/// With --json, `rath memory import` reads what is printed.
#[derive(clap::Args)]
struct ListArgs {
    #[command(flatten)]
    memory: MemoryArg,
    /// List the notes below this path, such as memory://user; may be repeated
    #[arg(long, value_name = "PATH")]
    under: Vec<NotePath>,
    /// List only the newest N notes
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Print one JSON object per note
    #[arg(long)]
    json: bool,
}

async fn list(args: &ListArgs) -> CommandResult {
    let memory = args.memory.open().await?;
    let mut notes = VecDeque::new();
    memories::each_note(&memory, &args.under, |note| {
        notes.push_back(note);
        if args.limit.is_some_and(|limit| notes.len() > limit) {
            notes.pop_front();
        }
    })
    .await?;
    match args.json {
        true => output::data(|out| notes.iter().try_for_each(|note| output::json_line(out, &PrintedNote::new(note))))?,
        false => {
            let (now, replaced) =
                (now(), notes.iter().filter_map(|note| note.replaces.clone()).collect::<HashSet<_>>());
            output::text(|out| {
                notes.iter().try_for_each(|note| {
                    let mark = match note.expires.is_some_and(|expires| expires <= now) {
                        true => "expired: ",
                        false if replaced.contains(&note.id) => "replaced: ",
                        false => "",
                    };
                    writeln!(out, "{}", memories::line_with_mark("", mark, note))
                })
            })?;
        }
    }
    Ok(Exit::Success)
}

/// Write a note, and print its id
#[derive(clap::Args)]
struct RememberArgs {
    /// The text; `-` reads it from stdin
    text: String,
    #[command(flatten)]
    memory: MemoryArg,
    /// The place of the note among others, below memory://user, memory://agent, memory://session or memory://shared
    #[arg(long, value_name = "PATH", default_value = "memory://user")]
    path: NotePath,
    /// The name of the person who said it
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
    /// The age at which the note is forgotten, such as 30d, or a date
    #[arg(long, value_name = "AGE")]
    expires: Option<Moment>,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

async fn remember(args: &RememberArgs) -> CommandResult {
    let usage = |message: String, hint: &str| Failure::new(message, hint).with_exit(Exit::Usage);
    let mut note = Note::with_id(NoteId::random(), args.path.clone(), hide_secrets(text(&args.text)?)).at(now());
    let by = args.by.clone().map(|name| memories::plain("by", name)).transpose();
    note.said_by = by.map_err(|message| usage(message, "`--by` is a name"))?.map(hide_secrets);
    note.expires = args.expires.as_ref().map(Moment::ahead);
    if note.expires.is_some_and(|expires| expires <= now()) {
        return Err(usage("`--expires` is in the past".to_owned(), "write an age such as 30d, or a date to come"));
    }
    memories::refuse_secrets(&note).map_err(|message| usage(message, "write it in the text, where it is hidden"))?;
    // Before the memory is created.
    note.check().map_err(|error| {
        usage(error.to_string(), "write the text, or `-` to read it from stdin; `rath memory import` takes many notes")
    })?;
    let id = args.memory.open_or_create().await?.remember(note).await?;
    match args.json {
        true => output::data(|out| output::json_line(out, &json!({"id": id.as_str()})))?,
        false => output::text(|out| writeln!(out, "{id}"))?,
    }
    Ok(Exit::Success)
}

/// The most bytes that are read for one note: more than it can have, so that the error can say how many there are.
const MAX_READ_BYTES: u64 = 1 << 20;

/// Returns a text; `-` reads it from stdin.
fn text(text: &str) -> Result<String, Failure> {
    if text != "-" {
        return Ok(text.to_owned());
    }
    let mut text = String::new();
    io::stdin().take(MAX_READ_BYTES).read_to_string(&mut text).map_err(|error| {
        Failure::new(format!("cannot read the note from stdin: {error}"), "a note is text in UTF-8")
    })?;
    Ok(text.trim_end().to_owned())
}

/// Find the notes that answer a question, best first
#[derive(clap::Args)]
struct RecallArgs {
    /// The question
    question: String,
    #[command(flatten)]
    memory: MemoryArg,
    #[command(flatten)]
    embeddings: EmbeddingsArg,
    /// The most notes to find
    #[arg(long, value_name = "N", default_value_t = 8)]
    limit: usize,
    /// Find notes below this path, such as memory://user; may be repeated
    #[arg(long, value_name = "PATH")]
    under: Vec<NotePath>,
    /// Print a JSON array
    #[arg(long)]
    json: bool,
}

/// A note that was found, as JSON.
#[derive(serde::Serialize)]
struct HitJson {
    score: f32,
    has_words: bool,
    similarity: Option<f32>,
    #[serde(flatten)]
    note: PrintedNote,
    duplicates: Vec<String>,
}

/// A note as JSON, with the session and the step that `rath show` opens.
#[derive(serde::Serialize)]
struct PrintedNote {
    #[serde(flatten)]
    note: NoteJson,
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<Origin>,
    /// Present, and true, if a part of the note could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    damaged: Option<bool>,
}

#[derive(serde::Serialize)]
struct Origin {
    session: String,
    step: String,
}

impl PrintedNote {
    fn new(note: &Note) -> Self {
        let origin = |note: &Note| {
            let source = note.source.as_ref()?;
            let session = branch(note).map_or_else(|| source.session.clone(), |branch| branch.to_string());
            Some(Origin { session, step: source.steps.first()?.clone() })
        };
        PrintedNote { note: NoteJson::new(note), from: origin(note), damaged: note.is_damaged.then_some(true) }
    }
}

/// Returns the branch on which a session made a note: its source names the branch that the session began with.
fn branch(note: &Note) -> Option<BranchId> {
    note.source.as_ref()?;
    note.thread.as_ref()?.split('/').next()?.parse().ok()
}

async fn recall(args: &RecallArgs) -> CommandResult {
    let memory = args.memory.open_with(&args.embeddings).await?;
    let query = Query::new(hide_secrets(args.question.clone())).limit(args.limit).now(now());
    let hits = memory.recall(args.under.iter().cloned().fold(query, Query::under)).await?;
    if let Some(notice) = &hits.notice {
        output::message!("{}", one_line(notice));
    }
    if args.json {
        let json = |hit: &Hit| HitJson {
            score: hit.score,
            has_words: hit.has_words,
            similarity: hit.similarity,
            note: PrintedNote::new(&hit.note),
            duplicates: hit.duplicates.iter().map(NoteId::to_string).collect(),
        };
        output::data(|out| output::json_line(out, &hits.iter().map(json).collect::<Vec<_>>()))?;
        return Ok(Exit::Success);
    }
    if hits.is_empty() {
        match args.embeddings.is_given() {
            true => output::message!("nothing found"),
            false => output::message!("nothing found by words; `--embeddings MODEL` finds notes by their meaning too"),
        }
    }
    output::text(|out| {
        hits.iter().try_for_each(|hit| {
            let score = format!("{:>6.2}  ", hit.score);
            writeln!(out, "{}", memories::line(&score, &hit.note))?;
            let source = memories::source_command(&hit.note);
            source.iter().try_for_each(|command| writeln!(out, "{:8}from `{command}`", ""))
        })
    })?;
    Ok(Exit::Success)
}

/// Give a vector to each note that has none
///
/// `rath memory recall --embeddings MODEL` does so for a few hundred of the newest notes.
#[derive(clap::Args)]
struct EmbedArgs {
    /// The model, such as openai:text-embedding-3-small
    model: String,
    #[command(flatten)]
    memory: MemoryArg,
    /// Remove its vectors first: the model has changed
    #[arg(long)]
    anew: bool,
}

async fn embed(args: &EmbedArgs) -> CommandResult {
    let memory = args.memory.open_for_vectors(&args.model).await?;
    if args.anew {
        memory.remove_vectors().await?;
    }
    output::message!("asking {} for vectors", one_line(&args.model));
    let added = memory.add_vectors().await?;
    output::message!("{added} {} got a vector", if added == 1 { "note" } else { "notes" });
    Ok(Exit::Success)
}

/// Show a note in full
///
/// The exit code is 1 for a note that was forgotten, and 3 for one of which a part cannot be read.
#[derive(clap::Args)]
struct ReadArgs {
    /// The id of the note, or its first digits
    id: String,
    #[command(flatten)]
    memory: MemoryArg,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

async fn read(args: &ReadArgs) -> CommandResult {
    let option = args.memory.option();
    let memory = args.memory.open().await?;
    let note = match find_note(&memory, &args.id, &option).await? {
        FoundNote::Note(note) => note,
        FoundNote::Forgotten(id, at) => {
            if args.json {
                let json = json!({"id": id.as_str(), "forgotten": output::time(at)});
                output::data(|out| output::json_line(out, &json))?;
            }
            let message = format!("note {} was forgotten on {}", one_line(id.as_str()), output::day(at));
            let hint = "its text is gone for good; a session that it came from has its own copy";
            return Err(Failure::new(message, hint));
        }
    };
    if args.json {
        output::data(|out| output::json_line(out, &PrintedNote::new(&note)))?;
        return unless_damaged(&note, &option);
    }
    let time = |micros: i64| output::minute(Timestamp(micros));
    output::text(|out| {
        writeln!(out, "note     {}", one_line(note.id.as_str()))?;
        writeln!(out, "path     {}", one_line(&note.path.to_string()))?;
        let ended = |micros: i64| if micros <= now() { " (over)" } else { "" };
        let fields = [
            ("said by", note.said_by.as_deref().map(one_line)),
            ("at", Some(note.at).filter(|at| *at != 0).map(time)),
            ("expires", note.expires.map(|micros| format!("{}{}", time(micros), ended(micros)))),
            ("thread", note.thread.as_deref().map(one_line)),
            ("replaces", note.replaces.as_ref().map(short_id)),
            ("from", memories::source_command(&note).map(|command| format!("`{command}`"))),
        ];
        for (name, value) in fields {
            value.iter().try_for_each(|value| writeln!(out, "{name:<8} {value}"))?;
        }
        writeln!(out, "\n{}", printable(&note.text))
    })?;
    unless_damaged(&note, &option)
}

/// Fails for a note of which a part could not be read.
fn unless_damaged(note: &Note, option: &str) -> CommandResult {
    if !note.is_damaged {
        return Ok(Exit::Success);
    }
    let (id, path) = (one_line(note.id.as_str()), one_line(&note.path.to_string()));
    let message = format!("note {id} at {path} is damaged: a part of it cannot be read");
    let forget = format!("`rath memory forget {}{option}` removes it", output::quote(&id));
    Err(Failure::new(message, format!("what is left of it is shown; {forget}")).with_exit(Exit::Differs))
}

/// A moment, as a date or by its distance from now.
#[derive(Clone, Debug)]
enum Moment {
    At(Timestamp),
    Distance(Age),
}

impl FromStr for Moment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let distance = text.parse().map(Moment::Distance);
        distance.or_else(|_| {
            parse_time(text)
                .map(Moment::At)
                .ok_or_else(|| format!("wanted an age such as `30d`, or a date such as `2026-01-31`, found `{text}`"))
        })
    }
}

impl Moment {
    /// Returns the moment, in microseconds since 1970; a distance is counted from now on.
    fn ahead(&self) -> i64 {
        self.micros(i64::saturating_add)
    }

    /// Returns the moment, in microseconds since 1970; a distance is counted back from now.
    fn ago(&self) -> i64 {
        self.micros(i64::saturating_sub)
    }

    fn micros(&self, add: fn(i64, i64) -> i64) -> i64 {
        match self {
            Moment::At(at) => at.0,
            Moment::Distance(age) => add(now(), i64::try_from(age.duration().as_micros()).unwrap_or(i64::MAX)),
        }
    }
}
