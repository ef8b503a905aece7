//! The part of questions whose evidence a memory finds: `cargo run --release -p openrath --example locomo -- FILE`.
//!
//! FILE has one conversation a line: `turns` (`id`, `session`, `date`, `speaker`, `text`) and `questions` (`question`,
//! `category`, `evidence`: ids of turns). Each turn is a note; each question is asked once, and counts as answered within k if
//! one of its turns is among the first k notes. The result is one line of JSON.
//!
//! A second argument names a model for vectors, such as `openai:minilm`; `OPENAI_BASE_URL` is the address of its server.

use std::collections::BTreeMap;

use rath::Memory;
use rath::memory::{LocalMemory, MemoryBackend, MemoryError, Note, NoteId, Query};
use rath::provider::Embedder;
use serde::Deserialize;
use serde_json::json;

/// The numbers of notes within which evidence is looked for.
const RANKS: [usize; 4] = [1, 4, 8, 20];

#[derive(Deserialize)]
struct Conversation {
    turns: Vec<Turn>,
    questions: Vec<Question>,
}

#[derive(Deserialize)]
struct Turn {
    id: String,
    session: u32,
    date: String,
    speaker: String,
    text: String,
}

#[derive(Deserialize)]
struct Question {
    question: String,
    category: u32,
    evidence: Vec<String>,
}

/// The questions of a category, and those whose evidence was found within each rank.
#[derive(Default)]
struct Tally {
    questions: u32,
    found: [u32; RANKS.len()],
}

impl Tally {
    fn add(&mut self, rank: Option<usize>) {
        self.questions += 1;
        for (found, limit) in self.found.iter_mut().zip(RANKS) {
            *found += u32::from(rank.is_some_and(|rank| rank < limit));
        }
    }

    fn json(&self) -> serde_json::Value {
        let part = |found: u32| (f64::from(found) / f64::from(self.questions.max(1)) * 1e4).round() / 1e4;
        let mut line = serde_json::Map::from_iter([("questions".to_owned(), json!(self.questions))]);
        line.extend(RANKS.iter().zip(self.found).map(|(rank, found)| (format!("hit@{rank}"), json!(part(found)))));
        line.into()
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file = std::env::args().nth(1).ok_or("name the file of conversations")?;
    let (mut all, mut categories) = (Tally::default(), BTreeMap::<u32, Tally>::new());
    for line in std::fs::read_to_string(file)?.lines() {
        let conversation: Conversation = serde_json::from_str(line)?;
        let folder = tempfile::tempdir()?;
        let mut memory = LocalMemory::open(folder.path().to_str().ok_or("the path is no text")?).await?;
        memory.remember(&conversation.turns.iter().map(note).collect::<Result<Vec<_>, _>>()?).await?;
        if let Some(model) = std::env::args().nth(2) {
            memory = memory.embedder(Embedder::open(&model)?);
            memory.add_vectors().await?;
        }
        let memory = Memory::new(memory);
        for question in &conversation.questions {
            let rank = evidence_rank(&memory, question).await?;
            all.add(rank);
            categories.entry(question.category).or_default().add(rank);
        }
    }
    let categories: BTreeMap<u32, _> = categories.iter().map(|(category, tally)| (*category, tally.json())).collect();
    println!("{}", json!({ "all": all.json(), "categories": categories }));
    Ok(())
}

fn note(turn: &Turn) -> Result<Note, Box<dyn std::error::Error>> {
    let path = "memory://session".parse()?;
    let note = Note::with_id(turn.id.parse::<NoteId>()?, path, turn.text.as_str()).said_by(turn.speaker.as_str());
    Ok(note.thread(turn.session.to_string()).at(day(&turn.date).unwrap_or(0)))
}

/// Returns the place of the first note that is evidence.
async fn evidence_rank(memory: &Memory, question: &Question) -> Result<Option<usize>, MemoryError> {
    let hits = memory.recall(Query::new(question.question.as_str()).limit(RANKS[RANKS.len() - 1])).await?;
    if let Some(notice) = &hits.notice {
        eprintln!("{notice}");
    }
    let is_evidence = |id: &NoteId| question.evidence.iter().any(|evidence| evidence == id.as_str());
    Ok(hits.iter().position(|hit| is_evidence(&hit.note.id) || hit.duplicates.iter().any(is_evidence)))
}

/// Reads a date such as `1:56 pm on 8 May, 2023`, as microseconds since 1970.
fn day(date: &str) -> Option<i64> {
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let mut words = date.split_once(" on ")?.1.split([' ', ',']).filter(|word| !word.is_empty());
    let day: i64 = words.next()?.parse().ok()?;
    let month = words.next()?;
    let month = MONTHS.iter().position(|name| month.starts_with(name))? as i64;
    let year: i64 = words.next()?.parse().ok()?;
    // Years begin in March, so that the day of a leap year is the last.
    let (year, month) = if month < 2 { (year - 1, month + 10) } else { (year, month - 2) };
    let of_year = (153 * month + 2) / 5 + day - 1;
    let days = year * 365 + year / 4 - year / 100 + year / 400 + of_year - 719_468;
    Some(days * 86_400_000_000)
}
