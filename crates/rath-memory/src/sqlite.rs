//! Notes in a SQLite database, which any SQLite tool can open.
//!
//! A note is durable when its transaction is: SQLite writes and syncs its WAL with every one. The index is stored in segments, each
//! with the postings of a range of notes; the notes after the last segment are indexed in memory by each process. So a note is
//! written without an index, and a process starts by reading the segments' facts and at most a few thousand notes.
//!
//! Forgotten notes are overwritten: SQLite zeroes what it deletes, the postings of the note are taken out of its segment, all pages
//! are written anew, and the WAL is emptied.

mod forget;
mod rows;
mod schema;
mod segments;
mod vectors;

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::time::Duration;

use self::rows::{NOTE_COLUMNS, NameKind, Names, StoredNote};
pub use self::schema::MEMORY_FILE;
use self::vectors::LoadedModels;
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};

use crate::docs::{DocFacts, FACTS_BYTES};
use crate::error::{NoteError, Result};
use crate::index::Index;
use crate::note::{Note, NoteId, NotePath, is_under};
use crate::postings::{Doc, MAX_DOC};
use crate::store::{Hit, Lookup, Position, Query, Removal, Shelf, Size};
use crate::view::{Hits, Lifetimes, ViewRequest, search_limit};

/// Notes in a SQLite database.
pub(crate) struct SqliteNotes {
    connection: Connection,
    state: State,
    /// A segment could not be written, for another reason than that others write. Searches do not try again.
    segment_failed: bool,
}

/// The use that can be made of the index in the file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StoredIndex {
    Usable,
    /// It was made by other rules, and cannot be made anew where nothing can be written: all notes are indexed in memory.
    ByOtherRules,
}

/// The part of the database that this process has in memory.
struct State {
    stored: StoredIndex,
    index: Index,
    lifetimes: Lifetimes,
    /// The number of changes that have been taken in. A note that is written is none: it has the highest number.
    changes: i64,
    /// The newest note that is in the index.
    last: Doc,
    /// The last note of the newest segment.
    segmented: Doc,
    models: LoadedModels,
}

impl SqliteNotes {
    pub(crate) fn open(directory: &Path) -> Result<Self> {
        let (connection, stored) = schema::open(directory)?;
        let segment_failed = stored == StoredIndex::ByOtherRules;
        Ok(SqliteNotes { connection, state: State::new(stored), segment_failed })
    }

    /// Runs `work` in a transaction that sees one state of the database, with the index at that state.
    fn reading<T>(&mut self, work: impl FnOnce(&Transaction<'_>, &mut State) -> Result<T>) -> Result<T> {
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Deferred)?;
        self.state.refresh(&transaction)?;
        let done = work(&transaction, &mut self.state)?;
        transaction.commit()?;
        // The index was removed, to be made anew: without a segment every process would make it.
        if self.state.wants_segment() && !self.segment_failed {
            self.connection.busy_timeout(Duration::ZERO)?;
            self.segment_failed = self.make_segment().is_err_and(|error| !matches!(error, NoteError::Busy));
            self.connection.busy_timeout(schema::LOCK_TIMEOUT)?;
        }
        Ok(done)
    }
}

impl State {
    fn new(stored: StoredIndex) -> Self {
        State {
            stored,
            index: Index::new(),
            lifetimes: Lifetimes::default(),
            changes: 0,
            last: 0,
            segmented: 0,
            models: LoadedModels::default(),
        }
    }

    /// Takes in what this and other processes have written. After a failure all is read anew.
    fn refresh(&mut self, transaction: &Transaction<'_>) -> Result<()> {
        self.take_in_changes(transaction).inspect_err(|_| *self = State::new(self.stored))
    }

    fn take_in_changes(&mut self, transaction: &Transaction<'_>) -> Result<()> {
        let changes = count(transaction, "changes")?;
        if changes == self.changes && newest_note(transaction)? <= self.last {
            return Ok(());
        }
        // The index was removed, to be made anew.
        let mut newest = transaction.prepare_cached("SELECT coalesce(max(last), 0) FROM segments")?;
        if newest.query_row([], |row| row.get::<_, i64>(0))? < i64::from(self.segmented) {
            *self = State::new(self.stored);
        }
        self.take_out_forgotten(transaction)?;
        self.load_segments(transaction)?;
        self.load_recent(transaction)?;
        self.changes = changes;
        Ok(())
    }

    fn take_out_forgotten(&mut self, transaction: &Transaction<'_>) -> Result<()> {
        let mut query = transaction.prepare_cached("SELECT doc FROM forgotten WHERE change > ?1 AND doc <= ?2")?;
        let gone: HashSet<Doc> =
            query.query_map(params![self.changes, self.last], |row| row.get(0))?.collect::<Result<_, _>>()?;
        if gone.is_empty() {
            return Ok(());
        }
        gone.iter().for_each(|doc| {
            self.index.docs.remove(*doc);
        });
        self.lifetimes.remove(&gone);
        self.models.remove(&gone);
        // The terms of these notes are not known any more, so the recent postings are made anew from what is left.
        if gone.iter().any(|doc| *doc > self.segmented) {
            self.index_recent_anew(transaction, self.segmented)?;
        }
        Ok(())
    }

    /// Makes the postings in memory anew: those of the notes after `segmented`.
    fn index_recent_anew(&mut self, transaction: &Transaction<'_>, segmented: Doc) -> Result<()> {
        self.index.take_recent();
        for StoredNote { doc, note, .. } in self.read_notes(transaction, segmented, self.last)? {
            self.index.add_postings(doc, self.index.analyze(&note));
        }
        Ok(())
    }

    fn load_segments(&mut self, transaction: &Transaction<'_>) -> Result<()> {
        if self.stored == StoredIndex::ByOtherRules {
            return Ok(());
        }
        let mut query =
            transaction.prepare_cached("SELECT first, last, facts FROM segments WHERE last > ?1 ORDER BY first")?;
        let mut rows = query.query([self.segmented])?;
        let mut segmented = self.segmented;
        while let Some(row) = rows.next()? {
            let (first, last): (Doc, Doc) = (row.get(0)?, row.get(1)?);
            let facts = row.get_ref(2)?.as_blob().map_err(|error| NoteError::Damaged(error.to_string()))?;
            // Segments follow each other, and have the facts of all their notes. One that was joined begins earlier.
            let notes = u64::from(last) + 1 - u64::from(first.min(last));
            if first > segmented + 1
                || first > last
                || last > MAX_DOC
                || notes * FACTS_BYTES as u64 != facts.len() as u64
            {
                return Err(NoteError::Damaged("the index of the memory is damaged".to_owned()));
            }
            for (doc, facts) in (first..=last).zip(facts.chunks_exact(FACTS_BYTES)) {
                let Ok(facts) = facts.try_into() else { continue };
                let facts = DocFacts::from_bytes(facts);
                if doc > self.last && facts.path != 0 {
                    self.index.docs.insert(doc, facts);
                }
            }
            segmented = last;
        }
        drop(rows);
        if segmented == self.segmented {
            return Ok(());
        }
        let old_last = self.last;
        self.last = old_last.max(segmented);
        // Notes of the new segments that were indexed in memory are in the file now.
        self.index_recent_anew(transaction, segmented)?;
        self.segmented = segmented;
        self.load_lifetimes(transaction, old_last, self.last)
    }

    fn load_recent(&mut self, transaction: &Transaction<'_>) -> Result<()> {
        let notes = self.read_notes(transaction, self.last, Doc::MAX)?;
        let old_last = self.last;
        for StoredNote { doc, note, facts, .. } in notes {
            let terms = self.index.analyze(&note);
            self.index.docs.insert(doc, DocFacts { length: terms.length, ..facts });
            self.index.add_postings(doc, terms);
            self.last = doc;
        }
        self.load_lifetimes(transaction, old_last, self.last)
    }

    /// Reads the notes after `after`, up to `last`.
    fn read_notes(&self, transaction: &Transaction<'_>, after: Doc, last: Doc) -> Result<Vec<StoredNote>> {
        let sql = format!("SELECT {NOTE_COLUMNS} FROM notes n WHERE n.doc > ?1 AND n.doc <= ?2 ORDER BY n.doc");
        let mut query = transaction.prepare_cached(&sql)?;
        let mut notes = Vec::new();
        Names::new(transaction).each_note(query.query([after, last])?, after, |stored| {
            notes.push(stored);
            true
        })?;
        Ok(notes)
    }

    fn load_lifetimes(&mut self, transaction: &Transaction<'_>, after: Doc, last: Doc) -> Result<()> {
        let mut query = transaction.prepare_cached(
            "SELECT doc, expires, (SELECT old.doc FROM notes old WHERE old.id = n.replaces) FROM notes n \
             WHERE n.has_lifetime = 1 AND n.doc > ?1 AND n.doc <= ?2",
        )?;
        let mut rows = query.query([after, last])?;
        while let Some(row) = rows.next()? {
            let doc: Doc = row.get(0)?;
            // What is damaged is as if it were not there: the other notes are found.
            let (expires, old): (Option<i64>, Option<Doc>) = (row.get(1).unwrap_or(None), row.get(2).unwrap_or(None));
            self.lifetimes.expiring.extend(expires.map(|expires| (expires, doc)));
            self.lifetimes.replaced.extend(old.map(|old| (old, doc)));
        }
        Ok(())
    }
}

impl Shelf for SqliteNotes {
    fn remember(&mut self, notes: &[Note]) -> Result<Position> {
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut last = position(&transaction)?;
        {
            let mut is_known = transaction.prepare_cached(
                "SELECT 1 FROM notes WHERE id = ?1 UNION ALL SELECT 1 FROM forgotten WHERE id = ?1 LIMIT 1",
            )?;
            let mut insert = transaction.prepare_cached(
                "INSERT INTO notes(doc, id, path, session, thread, before, at, expires, replaces, has_lifetime, said_by, steps, text) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
            )?;
            let mut names = Names::new(&transaction);
            let mut threads: HashMap<u32, Doc> = HashMap::new();
            for note in notes {
                if is_known.exists([note.id.as_str()])? {
                    continue;
                }
                last += 1;
                if last > MAX_DOC {
                    return Err(NoteError::Invalid(format!("the memory is full: {MAX_DOC} notes were written to it")));
                }
                let path = names.number(NameKind::Path, note.path.as_str())?;
                let session = note.source.as_ref().map(|source| names.number(NameKind::Session, &source.session));
                let thread = note.thread.as_ref().map(|thread| names.number(NameKind::Thread, thread)).transpose()?;
                let in_thread = thread.map(|thread| match threads.insert(thread, last) {
                    Some(before) => Ok(before),
                    None => newest_of_thread(&transaction, thread),
                });
                let steps = note.source.as_ref().map(|source| source.steps.join(" "));
                insert.execute(params![
                    last,
                    note.id.as_str(),
                    path,
                    session.transpose()?.unwrap_or(0),
                    thread.unwrap_or(0),
                    in_thread.transpose()?.unwrap_or(0),
                    note.at,
                    note.expires,
                    note.replaces.as_ref().map(NoteId::as_str),
                    (note.expires.is_some() || note.replaces.is_some()).then_some(1),
                    note.said_by,
                    steps,
                    note.text,
                ])?;
            }
        }
        let wants_segment = segments::is_due(&transaction, last)?;
        transaction.commit()?;
        if wants_segment {
            // The notes are durable now. If their segment cannot be written, the next writer tries again.
            let _ = self.make_segment();
        }
        Ok(Position(last))
    }

    fn recall(&mut self, query: &Query) -> Result<Vec<Hit>> {
        self.reading(|transaction, state| {
            let request = view_request(transaction, query, state.last)?;
            let visible = state.lifetimes.visible(&state.index.docs, &request);
            let mut lists = transaction.prepare_cached("SELECT list FROM postings WHERE term = ?1 ORDER BY first")?;
            let limit = search_limit(query);
            let is_usable = state.stored == StoredIndex::Usable;
            let mut found = state.index.search(&query.text, &visible, limit, |term| {
                if !is_usable {
                    return Ok(Vec::new());
                }
                lists.query_map([term], |row| row.get(0))?.collect::<Result<Vec<Vec<u8>>, rusqlite::Error>>()
            })?;
            if let Some(vector) = &query.vector {
                found = state.add_similar(transaction, &visible, vector, found, limit)?;
            }
            let mut read =
                transaction.prepare_cached(&format!("SELECT {NOTE_COLUMNS} FROM notes n WHERE n.doc = ?1"))?;
            let mut names = Names::new(transaction);
            let mut hits = Hits::new(query.limit);
            for found in found {
                if hits.is_full() {
                    break;
                }
                names.each_note(read.query([found.doc])?, 0, |stored| {
                    hits.add(stored.note, found);
                    false
                })?;
            }
            Ok(hits.finish())
        })
    }

    fn read(&mut self, id: &NoteId) -> Result<Lookup> {
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Deferred)?;
        let mut read = transaction.prepare_cached(&format!("SELECT {NOTE_COLUMNS} FROM notes n WHERE n.id = ?1"))?;
        let mut note = None;
        Names::new(&transaction).each_note(read.query([id.as_str()])?, 0, |stored| {
            note = Some(stored.note);
            false
        })?;
        if let Some(note) = note {
            return Ok(Lookup::Note(Box::new(note)));
        }
        let mut forgotten = transaction.prepare_cached("SELECT at FROM forgotten WHERE id = ?1")?;
        let at = forgotten.query_row([id.as_str()], |row| row.get(0)).optional()?;
        Ok(at.map_or(Lookup::Unknown, Lookup::Forgotten))
    }

    fn list(&mut self, under: &[NotePath], after: Position, limit: usize) -> Result<Vec<(Position, Note)>> {
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Deferred)?;
        let sql = format!("SELECT {NOTE_COLUMNS} FROM notes n WHERE n.doc > ?1 ORDER BY n.doc");
        let mut read = transaction.prepare_cached(&sql)?;
        let mut notes = Vec::new();
        if limit == 0 {
            return Ok(notes);
        }
        Names::new(&transaction).each_note(read.query([after.0])?, after.0, |StoredNote { doc, note, .. }| {
            if under.is_empty() || under.iter().any(|under| note.path.is_under(under)) {
                notes.push((Position(doc), note));
            }
            notes.len() < limit
        })?;
        Ok(notes)
    }

    fn numbers(&mut self, ids: &[NoteId]) -> Result<Vec<Doc>> {
        let mut find = self.connection.prepare_cached("SELECT doc FROM notes WHERE id = ?1")?;
        let mut docs = Vec::new();
        for id in ids {
            docs.extend(find.query_row([id.as_str()], |row| row.get::<_, Doc>(0)).optional()?);
        }
        Ok(docs)
    }

    fn forget(&mut self, docs: &[Doc], removal: Removal, now: i64) -> Result<Vec<NoteId>> {
        self.forget_for_good(docs, removal, now)
    }

    fn of_session(&mut self, session: &str) -> Result<Vec<Doc>> {
        self.docs_where("session != 0 AND session = (SELECT name FROM names WHERE kind = 2 AND text = ?1)", session)
    }

    fn said_before(&mut self, micros: i64) -> Result<Vec<Doc>> {
        self.docs_where("at < ?1", micros)
    }

    fn expired(&mut self, now: i64) -> Result<Vec<Doc>> {
        self.docs_where("has_lifetime = 1 AND expires <= ?1", now)
    }

    fn position(&mut self) -> Result<Position> {
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Deferred)?;
        Ok(Position(position(&transaction)?))
    }

    fn size(&mut self) -> Result<Size> {
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Deferred)?;
        size(&transaction)
    }

    fn oldest_beyond(&mut self, most: Size) -> Result<Vec<Doc>> {
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Deferred)?;
        let mut query = transaction.prepare_cached("SELECT doc, octet_length(text) FROM notes ORDER BY doc DESC")?;
        let mut rows = query.query([])?;
        let (mut size, mut beyond, mut before) = (Size::default(), Vec::new(), i64::MAX);
        while let Some(row) = rows.next()? {
            let number: i64 = row.get(0)?;
            // The pages of a damaged file may lead in a circle.
            if number >= before {
                break;
            }
            before = number;
            size = Size { notes: size.notes + 1, bytes: size.bytes + u64::from(row.get::<_, u32>(1).unwrap_or(0)) };
            if size.exceeds(most) {
                beyond.extend(Doc::try_from(number).ok());
            }
        }
        Ok(beyond)
    }

    fn models(&mut self) -> Result<Vec<String>> {
        self.find_models()
    }

    fn calibrate(&mut self, model: &str, vectors: &[Vec<f32>]) -> Result<()> {
        self.write_calibration(model, vectors)
    }

    fn without_vector(&mut self, model: &str, limit: usize) -> Result<Vec<Note>> {
        self.notes_without_vector(model, limit)
    }

    fn add_vectors(&mut self, model: &str, vectors: &[(NoteId, Vec<f32>)]) -> Result<()> {
        self.write_vectors(model, vectors)
    }

    fn remove_model(&mut self, model: &str) -> Result<()> {
        self.delete_model(model)
    }
}

impl SqliteNotes {
    fn docs_where(&self, condition: &str, value: impl rusqlite::ToSql) -> Result<Vec<Doc>> {
        let mut query =
            self.connection.prepare_cached(&format!("SELECT doc FROM notes WHERE {condition} ORDER BY doc"))?;
        let docs = query.query_map([value], |row| Ok(row.get(0).ok()))?.collect::<Result<Vec<_>, _>>()?;
        Ok(docs.into_iter().flatten().collect())
    }
}

fn newest_of_thread(transaction: &Transaction<'_>, thread: u32) -> Result<Doc> {
    let mut query = transaction.prepare_cached("SELECT max(doc) FROM notes WHERE thread = ?1 AND thread != 0")?;
    Ok(query.query_row([thread], |row| row.get::<_, Option<Doc>>(0))?.unwrap_or(0))
}

/// Turns the names and ids of a question into numbers.
fn view_request(transaction: &Transaction<'_>, query: &Query, last: Doc) -> Result<ViewRequest> {
    let session = match &query.session {
        Some(session) => Names::new(transaction).find(NameKind::Session, session)?.unwrap_or(0),
        None => 0,
    };
    let mut doc_of = transaction.prepare_cached("SELECT doc FROM notes WHERE id = ?1")?;
    let mut own = HashSet::new();
    for id in &query.own {
        own.extend(doc_of.query_row([id.as_str()], |row| row.get::<_, Doc>(0)).optional()?);
    }
    let mut paths = None;
    if !query.under.is_empty() {
        let mut all = transaction.prepare_cached("SELECT name, text FROM names WHERE kind = 1 ORDER BY name")?;
        let all = all.query_map([], |row| Ok(row.get::<_, u32>(0).ok().zip(row.get::<_, String>(1).ok())))?;
        let all: Vec<Option<(u32, String)>> = all.collect::<Result<_, _>>()?;
        let under = all.into_iter().flatten().filter(|(_, path)| query.under.iter().any(|under| is_under(path, under)));
        paths = Some(under.map(|(number, _)| number).collect());
    }
    let last = query.as_of.map_or(last, |position| position.0.min(last));
    Ok(ViewRequest { last, session, own, paths, now: query.now })
}

fn count(connection: &Connection, name: &str) -> Result<i64> {
    let mut query = connection.prepare_cached("SELECT value FROM counts WHERE name = ?1")?;
    let value = query.query_row([name], |row| Ok(row.get(0).ok())).optional()?.unwrap_or(Some(0));
    value.ok_or_else(|| NoteError::Damaged(format!("the number of {name} in the memory is damaged")))
}

fn set_count(connection: &Connection, name: &str, value: i64) -> Result<()> {
    connection
        // Not `INSERT OR REPLACE`, which writes a page of the index of the names too.
        .prepare_cached("INSERT INTO counts(name, value) VALUES (?1, ?2) ON CONFLICT(name) DO UPDATE SET value = ?2")?
        .execute(params![name, value])?;
    Ok(())
}

/// Returns the number of the newest note that was ever written, or 0.
fn position(connection: &Connection) -> Result<Doc> {
    Ok(counted_notes(connection)?.max(newest_note(connection)?))
}

/// Returns the number of the newest note that is there, or 0.
fn newest_note(connection: &Connection) -> Result<Doc> {
    let mut newest = connection.prepare_cached("SELECT coalesce(max(doc), 0) FROM notes")?;
    valid_doc(newest.query_row([], |row| row.get(0))?)
}

/// Returns the number of the note up to which the counts of notes and bytes say the size.
///
/// A note is written without counting it, which would write one page more.
fn counted_notes(connection: &Connection) -> Result<Doc> {
    valid_doc(count(connection, "position")?)
}

fn valid_doc(number: i64) -> Result<Doc> {
    let doc = Doc::try_from(number).ok().filter(|doc| *doc <= MAX_DOC);
    doc.ok_or_else(|| NoteError::Damaged("the number of notes in the memory is damaged".to_owned()))
}

fn size(connection: &Connection) -> Result<Size> {
    let mut query =
        connection.prepare_cached("SELECT count(*), coalesce(sum(octet_length(text)), 0) FROM notes WHERE doc > ?1")?;
    let (notes, bytes): (i64, i64) =
        query.query_row([counted_notes(connection)?], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let add = |name, new: i64| Ok::<_, NoteError>(count(connection, name)?.saturating_add(new).try_into().unwrap_or(0));
    Ok(Size { notes: add("notes", notes)?, bytes: add("bytes", bytes)? })
}

/// Counts the notes that are not counted yet, without those that are about to be forgotten.
fn count_notes(connection: &Connection, leaving: Size) -> Result<()> {
    let (position, size) = (position(connection)?, size(connection)?);
    set_count(connection, "position", position.into())?;
    set_count(connection, "notes", size.notes.saturating_sub(leaving.notes) as i64)?;
    set_count(connection, "bytes", size.bytes.saturating_sub(leaving.bytes) as i64)
}

/// Tells other processes that something other than new notes changed, and returns the number of the change.
fn add_change(connection: &Connection) -> Result<i64> {
    let change = count(connection, "changes")?.checked_add(1);
    let change =
        change.ok_or_else(|| NoteError::Damaged("the number of changes in the memory is damaged".to_owned()))?;
    set_count(connection, "changes", change)?;
    Ok(change)
}

impl From<rusqlite::Error> for NoteError {
    fn from(error: rusqlite::Error) -> Self {
        use rusqlite::ErrorCode::{
            CannotOpen, DatabaseBusy, DatabaseCorrupt, DatabaseLocked, DiskFull, NotADatabase, ReadOnly,
        };
        match error.sqlite_error_code() {
            Some(DatabaseBusy | DatabaseLocked) => NoteError::Busy,
            Some(DatabaseCorrupt) => NoteError::Damaged("the pages of the memory are damaged".to_owned()),
            Some(NotADatabase) => {
                NoteError::Damaged("the file is no memory of rath, or its head is damaged".to_owned())
            }
            Some(CannotOpen | DiskFull | ReadOnly) => NoteError::Unwritable(error.to_string()),
            Some(_) => NoteError::Io(error.to_string()),
            // A value is of another kind than the tables say.
            None => NoteError::Damaged("a row of the memory cannot be read".to_owned()),
        }
    }
}
