//! Segments: the postings of a range of notes, in the file.

use rusqlite::{OptionalExtension, Transaction, TransactionBehavior, params};

use super::{SqliteNotes, State, add_change, count_notes};
use crate::docs::FACTS_BYTES;
use crate::error::Result;
use crate::postings::Doc;
use crate::store::Size;

/// The number of notes from which those that are indexed in memory become a segment.
const MIN_SEGMENT_NOTES: Doc = 2_048;
/// The number of notes from which small segments become one.
const LARGE_SEGMENT_NOTES: Doc = 16 * MIN_SEGMENT_NOTES;

/// Returns true if there are enough notes after the newest segment for another one.
pub(super) fn is_due(transaction: &Transaction<'_>, last: Doc) -> Result<bool> {
    let mut newest = transaction.prepare_cached("SELECT last FROM segments ORDER BY first DESC LIMIT 1")?;
    let segmented: Doc = newest.query_row([], |row| row.get(0)).optional()?.unwrap_or(0);
    Ok(last.saturating_sub(segmented) >= MIN_SEGMENT_NOTES)
}

impl SqliteNotes {
    /// Makes a segment of the notes that are indexed in memory.
    pub(super) fn make_segment(&mut self) -> Result<()> {
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let made = self.state.make_segment(&transaction).and_then(|()| Ok(transaction.commit()?));
        // The postings are in memory no more.
        made.inspect_err(|_| self.state = State::new(self.state.stored))
    }
}

impl State {
    /// Returns true if there are enough notes in memory for a segment.
    pub(super) fn wants_segment(&self) -> bool {
        self.last - self.segmented >= MIN_SEGMENT_NOTES
    }

    fn make_segment(&mut self, transaction: &Transaction<'_>) -> Result<()> {
        self.refresh(transaction)?;
        // Another process may have made the segment.
        if self.wants_segment() {
            self.write_segment(transaction)?;
            count_notes(transaction, Size::default())?;
            join_small_segments(transaction)?;
            self.changes = add_change(transaction)?;
        }
        Ok(())
    }

    fn write_segment(&mut self, transaction: &Transaction<'_>) -> Result<()> {
        let (first, last) = (self.segmented + 1, self.last);
        let mut insert = transaction.prepare_cached("INSERT INTO postings(term, first, list) VALUES (?1, ?2, ?3)")?;
        for (term, list) in self.index.take_recent() {
            insert.execute(params![term, first, list])?;
        }
        write_facts(self, transaction, first, last)?;
        self.segmented = last;
        Ok(())
    }
}

/// Writes the facts about the notes of a segment.
pub(super) fn write_facts(state: &State, transaction: &Transaction<'_>, first: Doc, last: Doc) -> Result<()> {
    let mut facts = Vec::with_capacity((last - first + 1) as usize * FACTS_BYTES);
    (first..=last).for_each(|doc| facts.extend(state.index.docs.get(doc).to_bytes()));
    let mut insert =
        transaction.prepare_cached("INSERT OR REPLACE INTO segments(first, last, facts) VALUES (?1, ?2, ?3)")?;
    insert.execute(params![first, last, facts])?;
    Ok(())
}

/// Joins the small segments at the end, once they are as large as a large one. Their lists follow each other.
fn join_small_segments(transaction: &Transaction<'_>) -> Result<()> {
    let mut query = transaction.prepare_cached("SELECT first, last FROM segments ORDER BY first DESC")?;
    let segments = query.query_map([], |row| Ok((row.get::<_, Doc>(0)?, row.get::<_, Doc>(1)?)))?;
    let mut small: Vec<(Doc, Doc)> = Vec::new();
    for segment in segments {
        let (first, last) = segment?;
        if last - first >= LARGE_SEGMENT_NOTES {
            break;
        }
        small.push((first, last));
    }
    let (Some((_, last)), Some((first, _))) = (small.first(), small.last()) else { return Ok(()) };
    if small.len() < 2 || last - first < LARGE_SEGMENT_NOTES {
        return Ok(());
    }
    let mut lists =
        transaction.prepare_cached("SELECT term, list FROM postings WHERE first >= ?1 ORDER BY term, first")?;
    let mut joined: Vec<(String, Vec<u8>)> = Vec::new();
    let mut rows = lists.query([first])?;
    while let Some(row) = rows.next()? {
        let (term, list): (String, Vec<u8>) = (row.get(0)?, row.get(1)?);
        match joined.last_mut().filter(|(other, _)| *other == term) {
            Some((_, all)) => all.extend(list),
            None => joined.push((term, list)),
        }
    }
    drop(rows);
    transaction.prepare_cached("DELETE FROM postings WHERE first >= ?1")?.execute([first])?;
    let mut insert = transaction.prepare_cached("INSERT INTO postings(term, first, list) VALUES (?1, ?2, ?3)")?;
    for (term, list) in joined {
        insert.execute(params![term, first, list])?;
    }
    let mut facts = transaction.prepare_cached("SELECT facts FROM segments WHERE first >= ?1 ORDER BY first")?;
    let facts: Vec<Vec<u8>> = facts.query_map([first], |row| row.get(0))?.collect::<Result<_, _>>()?;
    transaction.prepare_cached("DELETE FROM segments WHERE first >= ?1")?.execute([first])?;
    let mut insert = transaction.prepare_cached("INSERT INTO segments(first, last, facts) VALUES (?1, ?2, ?3)")?;
    insert.execute(params![first, last, facts.concat()])?;
    Ok(())
}
