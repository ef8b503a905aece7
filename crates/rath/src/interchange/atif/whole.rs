//! The whole session inside a trajectory that rath wrote, beside the steps that other programs read.

use rath_record::{Record, codec};
use serde::Deserialize;
use serde_json::Value;

use super::write::trajectory_value;
use crate::interchange::notes::{NoteCode, Notes};
use crate::secrets::Secrets;
use crate::session::Session;

/// Returns the session as the text that a document holds, a session file; none if there are no steps.
pub(super) fn encode(session: &Session, notes: &Notes) -> Option<String> {
    session.head()?;
    let text = session.to_bytes().map(|bytes| String::from_utf8(bytes).expect("a session file is lines of JSON"));
    text.inspect_err(|error| {
        notes.add(NoteCode::LeftOut, format!("only its steps are in the document: {}", error.message()));
    })
    .ok()
}

/// Reads the session that a document holds. None if there is no such session, or if it cannot be taken as it is:
///
/// - It is damaged.
/// - The steps of the document say something else, because another program has changed them. They are what a reader of the
///   document sees, so they are what is imported.
/// - A step holds a secret of the user. The id of a step is a hash of its content, so the secret cannot be hidden in it.
pub(super) fn read(document: &str, notes: &Notes, secrets: &Secrets) -> Option<Record> {
    const STEPS_ONLY: &str = "it is read step by step, and forks and merges are one line of steps";
    let text = embedded_text(document)?;
    let contents = codec::read(text.as_bytes()).ok().filter(|contents| contents.report.is_whole());
    let Some(record) = contents.map(|contents| contents.record).filter(|record| record.head().is_some()) else {
        notes.add(NoteCode::Damaged, format!("the session in the document is damaged: {STEPS_ONLY}"));
        return None;
    };
    let theirs = serde_json::from_str(document).ok();
    let ours = trajectory_value(&Session::resume(record.clone()));
    if !theirs.is_some_and(|theirs| says_the_same(&ours, &theirs)) {
        notes.add(NoteCode::Changed, format!("the document was changed after rath wrote it: {STEPS_ONLY}"));
        return None;
    }
    if holds_secret(&record, secrets) {
        notes.add(NoteCode::Changed, format!("a secret of yours is hidden in the session: {STEPS_ONLY}"));
        return None;
    }
    Some(record)
}

/// Returns the text of the session in a document.
fn embedded_text(document: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Document {
        extra: DocumentExtra,
    }
    #[derive(Deserialize)]
    struct DocumentExtra {
        rath: DocumentSession,
    }
    #[derive(Deserialize)]
    struct DocumentSession {
        session: String,
    }
    serde_json::from_str::<Document>(document).ok().map(|document| document.extra.rath.session)
}

fn holds_secret(record: &Record, secrets: &Secrets) -> bool {
    record.lineage().walk().into_iter().any(|step| {
        let mut chunk = step.chunk().clone();
        secrets.hide_in(&mut chunk);
        chunk != *step.chunk() || step.stamp().by.as_ref().is_some_and(|by| secrets.hide(by).is_some())
    })
}

/// Returns true if a document says what rath writes for a session.
///
/// Members that are `null` count as missing. The version of the writer and costs by a price list are not part of a session, and
/// the members that rath adds under `rath` repeat it.
fn says_the_same(ours: &Value, theirs: &Value) -> bool {
    match (ours, theirs) {
        (Value::Object(ours), Value::Object(theirs)) => {
            let names = ours.keys().chain(theirs.keys().filter(|name| !ours.contains_key(*name)));
            names.into_iter().all(|name| match (name.as_str(), ours.get(name), theirs.get(name)) {
                ("rath" | "version" | "total_cost_usd", ..) | ("cost_usd", None, _) => true,
                // Values of a model, whose members may have any name.
                ("arguments" | "parameters", Some(ours), Some(theirs)) => ours == theirs,
                (_, Some(ours), Some(theirs)) => says_the_same(ours, theirs),
                (_, one, other) => one.or(other).is_none_or(Value::is_null),
            })
        }
        (Value::Array(ours), Value::Array(theirs)) => {
            ours.len() == theirs.len() && ours.iter().zip(theirs).all(|(ours, theirs)| says_the_same(ours, theirs))
        }
        _ => ours == theirs,
    }
}
