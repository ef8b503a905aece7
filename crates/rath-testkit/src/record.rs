//! The record of a session without what depends on the place where it ran.
//!
//! A script that plays the same turns makes the same calls in every sandbox. [`normalized_record`] is then the same text for each, and
//! [`record_digest`] the same digest: the differences between sandboxes are in their effects on files and in what tools print.
//!
//! # Definition
//!
//! The normalised record has one line for each step, in reading order: the positions of its parents in brackets, a blank, and its
//! chunk as JSON with sorted members. In each string of the JSON,
//!
//! - the URI of a place that the session was in is replaced by `<place N>`, numbered from 0 by first occurrence;
//! - the id of a step by `<step N>`, its position;
//! - another id, which is a UUID, by `<id N>`, numbered from 0 by first occurrence.
//!
//! The `key` of a started call follows from the id of a step, and is replaced by `<key>`. The digest of a request stays: a model reads
//! nothing of the place. So do the digests of files, and the trees.
//!
//! Author, usage, cost and time of a step are beside its chunk and no part of it. The digest is that of [`Digest`] over the bytes of
//! the text, in hexadecimal digits.

use std::collections::HashMap;

use rath::chunk::Chunk;
use rath::prelude::{Agent, Result, Run, Sandbox, Script, Session};
use rath::sandbox::Digest;
use rath::tool::builtin::{EditFile, ReadFile, Shell, WriteFile};
use serde_json::Value;

/// The answers of a model that makes calls of every kind which reads or changes files.
const WORK: [&str; 6] = [
    r#"{"calls": [{"name": "write_file", "arguments": {"path": "src/a.txt", "content": "one\ntwo\n"}}]}"#,
    r#"{"calls": [{"name": "edit_file", "arguments": {"path": "src/a.txt", "old_string": "two", "new_string": "three"}}]}"#,
    r#"{"calls": [{"name": "shell", "arguments": {"command": "cat src/a.txt; wc -l < src/a.txt; mkdir b; mv src/a.txt b/c.txt; exit 3"}}]}"#,
    r#"{"calls": [{"name": "shell", "arguments": {"command": "printf x > d; cp d e; rm d; echo to stderr >&2"}}]}"#,
    r#"{"calls": [{"name": "read_file", "arguments": {"path": "b/c.txt"}}]}"#,
    r#"{"text": "done"}"#,
];

/// Runs an agent in an empty sandbox that makes the same calls each time. The record is the same in every sandbox: see
/// [`record_digest`].
///
/// ```no_run
/// use rath::prelude::*;
/// use rath_testkit::record::{record_digest, work_in};
///
/// # async fn example() -> rath::Result<()> {
/// let (local, isolated) = (work_in(Sandbox::local("one")).await?, work_in(Sandbox::isolated("two")).await?);
/// assert_eq!(record_digest(&local), record_digest(&isolated));
/// # Ok(())
/// # }
/// ```
pub async fn work_in(sandbox: impl Into<Sandbox>) -> Result<Session> {
    let agent = Agent::new("Work.", &Script::of(WORK)?.into());
    let agent = agent.tool(WriteFile).tool(ReadFile).tool(EditFile).tool(Shell);
    agent.run(Session::user("work").to(sandbox)).await
}

/// Returns the digest of the [normalised record](normalized_record) of a session.
///
/// ```
/// use rath::chunk::Placed;
/// use rath::prelude::*;
/// use rath_testkit::record::record_digest;
///
/// let [one, two] = ["local:/one", "local:/two"].map(|place| {
///     let mut session = Session::user("hello");
///     session.push(Placed::new(place));
///     session
/// });
/// assert_ne!(one.head().map(|step| step.id()), two.head().map(|step| step.id()));
/// assert_eq!(record_digest(&one), record_digest(&two));
/// ```
pub fn record_digest(session: &Session) -> String {
    Digest::from_content(normalized_record(session).as_bytes()).to_string()
}

/// Returns the record of a session as text without what depends on the place: see the [definition](self#definition).
///
/// ```
/// use rath::prelude::*;
/// use rath_testkit::record::normalized_record;
///
/// let text = normalized_record(&Session::user("hello"));
/// assert_eq!(text, "[] {\"kind\":\"user\",\"text\":\"hello\"}\n");
/// ```
pub fn normalized_record(session: &Session) -> String {
    let steps = session.as_record().steps();
    let mut names = Names::default();
    for (position, step) in steps.iter().enumerate() {
        names.add(step.id().to_string(), format!("<step {position}>"));
        if let Chunk::Placed(placed) = step.chunk() {
            let nth = names.places;
            names.places += usize::from(names.add(placed.place.clone(), format!("<place {nth}>")));
        }
    }
    let mut text = String::new();
    for step in &steps {
        let parents: Vec<_> = step.parents().iter().map(|parent| names.of(&parent.id().to_string())).collect();
        let mut json = Vec::new();
        step.chunk().encode(&mut json);
        // A chunk that cannot be read stands for itself.
        let mut chunk: Value =
            serde_json::from_slice(&json).unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&json).into()));
        if let (Chunk::ToolStarted(_), Some(key)) = (step.chunk(), chunk.get_mut("key")) {
            *key = "<key>".into();
        }
        text.push_str(&format!("[{}] {}\n", parents.join(" "), names.replace_in(chunk)));
    }
    text
}

/// The texts that stand for what depends on the place.
#[derive(Default)]
struct Names {
    of: HashMap<String, String>,
    places: usize,
    ids: usize,
}

impl Names {
    /// Adds a name, unless there is one. Returns true if it is new.
    fn add(&mut self, text: String, name: String) -> bool {
        let is_new = !self.of.contains_key(&text);
        self.of.entry(text).or_insert(name);
        is_new
    }

    /// Returns what stands for a text.
    fn of(&mut self, text: &str) -> String {
        if is_uuid(text) {
            let nth = self.ids;
            self.ids += usize::from(self.add(text.to_owned(), format!("<id {nth}>")));
        }
        self.of.get(text).cloned().unwrap_or_else(|| text.to_owned())
    }

    /// Replaces the strings in a value. Values nest no deeper than those that a record holds.
    fn replace_in(&mut self, value: Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.of(&text)),
            Value::Array(values) => values.into_iter().map(|value| self.replace_in(value)).collect(),
            Value::Object(members) => {
                let mut members: Vec<_> = members.into_iter().collect();
                members.sort_by(|(one, _), (other, _)| one.cmp(other));
                members.into_iter().map(|(name, value)| (name, self.replace_in(value))).collect()
            }
            other => other,
        }
    }
}

/// Returns true for a UUID as ids are written.
fn is_uuid(text: &str) -> bool {
    let is_dash = |at: usize| [8, 13, 18, 23].contains(&at);
    text.len() == 36
        && text
            .bytes()
            .enumerate()
            .all(|(at, byte)| is_dash(at) == (byte == b'-') && (is_dash(at) || byte.is_ascii_hexdigit()))
}
