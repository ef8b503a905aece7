//! Forgetting: a note leaves the tables, the index and the files.

use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};

use rusqlite::{OptionalExtension, Transaction, TransactionBehavior, params};

use super::segments::write_facts;
use super::{SqliteNotes, State, StoredNote, add_change, count, count_notes, set_count, size};
use crate::docs::DocFacts;
use crate::error::{NoteError, Result};
use crate::note::NoteId;
use crate::postings::{self, Doc};
use crate::ram::with_versions;
use crate::store::{Removal, Size};

/// The time to wait for readers of the WAL that stand in the way of emptying it.
const EMPTY_WAL_TIMEOUT: Duration = Duration::from_secs(20);
/// The number of notes, and the part of all notes, that is removed before a removal by a limit rewrites the file.
const MIN_REMOVED_NOTES: u64 = 64;
const REMOVED_PART: u64 = 8;
/// The count of the notes that were removed since the file was rewritten.
const REMOVED: &str = "removed";
/// The count of removed notes from which a removal by a limit tries again to rewrite the file.
const RETRY_REMOVED: &str = "retry_removed";

impl SqliteNotes {
    /// Removes notes, with versions of them, from the tables, the index and the files.
    pub(super) fn forget_for_good(&mut self, docs: &[Doc], removal: Removal, now: i64) -> Result<Vec<NoteId>> {
        let gone =
            self.take_out_of_file(docs, removal, now).inspect_err(|_| self.state = State::new(self.state.stored))?;
        // The WAL holds what was removed, also if the file cannot be rewritten.
        let rewritten = self.rewrite_if_due(removal);
        self.empty_wal()?;
        rewritten?;
        Ok(gone)
    }

    fn rewrite_if_due(&self, removal: Removal) -> Result<()> {
        // Also if there is nothing to forget: an earlier call may have been kept from it.
        let removed = count(&self.connection, REMOVED)?.max(0);
        if removal != Removal::ByLimit {
            return if removed > 0 { self.rewrite(removed) } else { Ok(()) };
        }
        let part = size(&self.connection)?.notes / REMOVED_PART;
        let retry = count(&self.connection, RETRY_REMOVED)?;
        // A write does not fail if the file cannot be rewritten. The file may be large: not each of the next writes tries again.
        if removed as u64 >= MIN_REMOVED_NOTES.max(part) && removed >= retry && self.rewrite(removed).is_err() {
            let _ = set_count(&self.connection, RETRY_REMOVED, removed.saturating_add(MIN_REMOVED_NOTES as i64));
        }
        Ok(())
    }

    /// Writes all pages of the file anew.
    ///
    /// SQLite zeroes what it deletes where it is. Where it was before other notes came or went, on the same page or on another
    /// one, its bytes stay.
    fn rewrite(&self, removed: i64) -> Result<()> {
        self.connection.execute_batch("VACUUM").map_err(|error| {
            let message = "the notes are forgotten, but the file cannot be rewritten, and may hold bytes of them";
            NoteError::Io(format!("{message}: {error}; forget once more"))
        })?;
        // Another process may have removed more meanwhile.
        self.connection
            .prepare_cached("UPDATE counts SET value = max(value - ?2, 0) WHERE name = ?1")?
            .execute(params![REMOVED, removed])?;
        self.connection.prepare_cached("DELETE FROM counts WHERE name = ?1")?.execute([RETRY_REMOVED])?;
        Ok(())
    }

    fn take_out_of_file(&mut self, docs: &[Doc], removal: Removal, now: i64) -> Result<Vec<NoteId>> {
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        self.state.refresh(&transaction)?;
        let mut docs = with_versions(docs.iter().copied().collect(), &self.state.lifetimes.replaced, removal);
        // Another process may have removed some.
        let mut bytes = 0;
        {
            let mut find = transaction.prepare_cached("SELECT octet_length(text) FROM notes WHERE doc = ?1")?;
            let mut there = HashSet::new();
            for doc in docs {
                if let Some(length) = find.query_row([doc], |row| Ok(row.get(0).unwrap_or(0_u32))).optional()? {
                    bytes += u64::from(length);
                    there.insert(doc);
                }
            }
            docs = there;
        }
        if docs.is_empty() {
            return Ok(Vec::new());
        }
        let mut gone: Vec<StoredNote> = Vec::new();
        for doc in &docs {
            gone.extend(self.state.read_notes(&transaction, doc.saturating_sub(1), *doc)?);
        }
        gone.sort_unstable_by_key(|stored| stored.doc);
        let change = add_change(&transaction)?;
        count_notes(&transaction, Size { notes: docs.len() as u64, bytes })?;
        let removed = count(&transaction, REMOVED)?.max(0).saturating_add(docs.len() as i64);
        set_count(&transaction, REMOVED, removed)?;
        take_out(&mut self.state, &transaction, &gone, now, change)?;
        // The terms of a damaged note are not known, so the index is made anew.
        let is_index_lost = gone.len() < docs.len() || gone.iter().any(|stored| stored.is_damaged);
        if is_index_lost {
            // Those whose ids cannot be read are known by their numbers alone.
            gone.iter().for_each(|stored| _ = docs.remove(&stored.doc));
            remove_unreadable(&transaction, &docs)?;
            transaction.execute_batch("DELETE FROM segments; DELETE FROM postings")?;
        }
        transaction.commit()?;
        self.state.changes = change;
        if is_index_lost {
            self.state = State::new(self.state.stored);
            // The notes are forgotten. If no segment can be written, the next search tries again.
            let _ = self.make_segment();
        } else {
            self.state.lifetimes.remove(&docs);
            self.state.models.remove(&docs);
        }
        let mut ids: Vec<NoteId> = gone.into_iter().map(|stored| stored.note.id).collect();
        ids.sort_unstable();
        Ok(ids)
    }

    /// Moves the WAL into the database and empties it: it holds older states of pages.
    fn empty_wal(&self) -> Result<()> {
        let start = Instant::now();
        loop {
            let is_busy: bool = self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))?;
            if !is_busy {
                return Ok(());
            }
            if start.elapsed() > EMPTY_WAL_TIMEOUT {
                let message = "the notes are forgotten, but another process keeps the log of changes from being emptied; forget once more";
                return Err(NoteError::Io(message.to_owned()));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Removes notes whose rows cannot be read.
fn remove_unreadable(transaction: &Transaction<'_>, docs: &HashSet<Doc>) -> Result<()> {
    for doc in docs {
        transaction.prepare_cached("DELETE FROM notes WHERE doc = ?1")?.execute([doc])?;
        transaction
            .prepare_cached("DELETE FROM vectors WHERE doc = ?1 AND model IN (SELECT model FROM models)")?
            .execute([doc])?;
    }
    Ok(())
}

fn take_out(
    state: &mut State,
    transaction: &Transaction<'_>,
    gone: &[StoredNote],
    now: i64,
    change: i64,
) -> Result<()> {
    let mut delete = transaction.prepare_cached("DELETE FROM notes WHERE doc = ?1")?;
    let mut delete_vectors =
        transaction.prepare_cached("DELETE FROM vectors WHERE doc = ?1 AND model IN (SELECT model FROM models)")?;
    let mut add =
        transaction.prepare_cached("INSERT OR REPLACE INTO forgotten(id, doc, at, change) VALUES (?1, ?2, ?3, ?4)")?;
    let mut relink = transaction.prepare_cached("UPDATE notes SET before = ?2 WHERE doc = ?1")?;
    let mut by_term: BTreeMap<String, Vec<Doc>> = BTreeMap::new();
    let mut changed: HashSet<Doc> = HashSet::new();
    let mut facts: Vec<DocFacts> = Vec::new();
    for StoredNote { doc, note, .. } in gone {
        let terms = state.index.analyze(note);
        if *doc <= state.segmented {
            terms.counts.into_keys().for_each(|term| by_term.entry(term).or_default().push(*doc));
        } else {
            state.index.remove_recent(*doc, &terms);
        }
        facts.push(state.index.docs.get(*doc));
        let before = state.index.docs.get(*doc).before;
        let after = state.index.docs.remove(*doc);
        if after != 0 {
            changed.insert(after);
            relink.execute([after, before])?;
        }
        changed.insert(*doc);
        delete.execute([doc])?;
        delete_vectors.execute([doc])?;
        add.execute(params![note.id.as_str(), doc, now, change])?;
    }
    let mut segments = transaction.prepare_cached("SELECT first, last FROM segments")?;
    let segments = segments.query_map([], |row| Ok((row.get::<_, Doc>(0)?, row.get::<_, Doc>(1)?)))?;
    let segments: Vec<(Doc, Doc)> = segments.collect::<Result<_, _>>()?;
    for (first, last) in segments {
        if changed.iter().any(|doc| (first..=last).contains(doc)) {
            write_facts(state, transaction, first, last)?;
        }
    }
    let mut lists = transaction.prepare_cached("SELECT first, list FROM postings WHERE term = ?1")?;
    let mut update = transaction.prepare_cached("UPDATE postings SET list = ?3 WHERE term = ?1 AND first = ?2")?;
    let mut remove = transaction.prepare_cached("DELETE FROM postings WHERE term = ?1 AND first = ?2")?;
    for (term, docs) in by_term {
        let stored = lists.query_map([&term], |row| Ok((row.get::<_, Doc>(0)?, row.get::<_, Vec<u8>>(1)?)))?;
        let stored: Vec<(Doc, Vec<u8>)> = stored.collect::<Result<_, _>>()?;
        for (first, list) in stored {
            match postings::without(&list, &docs) {
                None => {}
                Some(rest) if rest.is_empty() => {
                    remove.execute(params![term, first])?;
                }
                Some(rest) => {
                    update.execute(params![term, first, rest])?;
                }
            }
        }
    }
    let threads = gone.iter().filter_map(|stored| stored.note.thread.as_deref()).collect();
    remove_names(state, transaction, &facts, threads)
}

/// Removes the names that no note has any more: they may say as much as a note.
fn remove_names(state: &State, transaction: &Transaction<'_>, gone: &[DocFacts], threads: HashSet<&str>) -> Result<()> {
    let mut remove = transaction.prepare_cached("DELETE FROM names WHERE name = ?1")?;
    let paths: HashSet<u32> = gone.iter().map(|facts| facts.path).collect();
    let sessions: HashSet<u32> = gone.iter().map(|facts| facts.session).filter(|session| *session != 0).collect();
    for path in paths.into_iter().filter(|path| !state.index.docs.any(|facts| facts.path == *path)) {
        remove.execute([path])?;
    }
    for session in sessions.into_iter().filter(|session| !state.index.docs.any(|facts| facts.session == *session)) {
        remove.execute([session])?;
    }
    let mut remove_thread = transaction.prepare_cached(
        "DELETE FROM names WHERE kind = 3 AND text = ?1 \
         AND NOT EXISTS (SELECT 1 FROM notes WHERE thread = names.name AND thread != 0)",
    )?;
    for thread in threads {
        remove_thread.execute([thread])?;
    }
    Ok(())
}
