//! Vectors in the database, and their signs in memory.

use std::collections::{HashMap, HashSet};

use rusqlite::{OptionalExtension, Transaction, TransactionBehavior, params};

use super::{SqliteNotes, State, add_change, count, set_count};
use crate::docs::Visible;
use crate::error::{NoteError, Result};
use crate::note::{Note, NoteId};
use crate::postings::Doc;
use crate::search::Match;
use crate::store::QuestionVector;
use crate::vectors::{Calibration, SignIndex, not_usable};

/// The vectors of the models that this process has asked for.
#[derive(Default)]
pub(super) struct LoadedModels {
    models: HashMap<String, LoadedModel>,
    /// The number of times that a model was removed.
    removals: i64,
}

struct LoadedModel {
    number: i64,
    index: SignIndex,
    /// The newest change that is in the index.
    last_change: i64,
}

impl LoadedModels {
    /// Takes the vectors of these notes out.
    pub(super) fn remove(&mut self, gone: &HashSet<Doc>) {
        for model in self.models.values_mut() {
            gone.iter().for_each(|doc| model.index.remove(*doc));
        }
    }

    /// Returns a model with all its vectors; None if it has not been measured. `last` is the newest note.
    fn get(&mut self, transaction: &Transaction<'_>, name: &str, last: Doc) -> Result<Option<&LoadedModel>> {
        let removals = count(transaction, "models")?;
        if removals != self.removals {
            *self = LoadedModels { models: HashMap::new(), removals };
        }
        if !self.models.contains_key(name) {
            let Some((number, calibration)) = find_model(transaction, name)? else { return Ok(None) };
            let model = LoadedModel { number, index: SignIndex::new(calibration), last_change: 0 };
            self.models.insert(name.to_owned(), model);
        }
        let Some(model) = self.models.get_mut(name) else { return Ok(None) };
        let mut rows =
            transaction.prepare_cached("SELECT change, doc, vector FROM vectors WHERE model = ?1 AND change > ?2")?;
        let mut rows = rows.query([model.number, model.last_change])?;
        let mut last_change = model.last_change;
        while let Some(row) = rows.next()? {
            let doc: Doc = row.get(1)?;
            let vector = row.get_ref(2)?.as_blob().map_err(|error| NoteError::Damaged(error.to_string()))?;
            if !(1..=last).contains(&doc) || vector.len() != model.index.calibration.dimensions() {
                return Err(NoteError::Damaged("a vector of the memory is damaged".to_owned()));
            }
            model.index.insert(doc, &to_numbers(vector));
            last_change = last_change.max(row.get(0)?);
        }
        model.last_change = last_change;
        Ok(Some(model))
    }
}

impl State {
    /// Adds the notes in view that are similar to a question to those that were found by words.
    pub(super) fn add_similar(
        &mut self,
        transaction: &Transaction<'_>,
        visible: &Visible,
        question: &QuestionVector,
        found: Vec<Match>,
        limit: usize,
    ) -> Result<Vec<Match>> {
        let Some(model) = self.models.get(transaction, &question.model, self.last)? else { return Ok(found) };
        let number = model.number;
        let mut read = transaction.prepare_cached("SELECT vector FROM vectors WHERE model = ?1 AND doc = ?2")?;
        model.index.add_similar(&self.index.docs, visible, question, found, limit, |doc| {
            let vector = read.query_row([number, i64::from(doc)], |row| row.get::<_, Vec<u8>>(0)).optional()?;
            Ok(vector.map(|vector| to_numbers(&vector)))
        })
    }
}

impl SqliteNotes {
    pub(super) fn find_models(&mut self) -> Result<Vec<String>> {
        let mut query = self.connection.prepare_cached("SELECT name FROM models ORDER BY model")?;
        let names = query.query_map([], |row| row.get(0))?;
        Ok(names.collect::<Result<_, _>>()?)
    }

    pub(super) fn write_calibration(&mut self, model: &str, vectors: &[Vec<f32>]) -> Result<()> {
        let (mean, spread) = Calibration::measure(vectors)?.parts();
        // Another process may have been faster; then its measure counts.
        let mut insert =
            self.connection.prepare_cached("INSERT OR IGNORE INTO models(name, mean, spread) VALUES (?1, ?2, ?3)")?;
        insert.execute(params![model, mean, spread])?;
        Ok(())
    }

    pub(super) fn delete_model(&mut self, model: &str) -> Result<()> {
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        if let Some(number) = transaction
            .query_row("SELECT model FROM models WHERE name = ?1", [model], |row| row.get::<_, i64>(0))
            .optional()?
        {
            transaction.execute("DELETE FROM vectors WHERE model = ?1", [number])?;
            transaction.execute("DELETE FROM models WHERE model = ?1", [number])?;
            // Other processes have its signs in memory.
            set_count(&transaction, "models", count(&transaction, "models")?.wrapping_add(1))?;
            add_change(&transaction)?;
        }
        transaction.commit()?;
        Ok(())
    }

    pub(super) fn notes_without_vector(&mut self, model: &str, limit: usize) -> Result<Vec<Note>> {
        self.reading(|transaction, state| {
            let model = state.models.get(transaction, model, state.last)?;
            let without =
                state.index.docs.iter().rev().filter(|doc| model.is_none_or(|model| !model.index.contains(*doc)));
            let without: Vec<Doc> = without.take(limit).collect();
            let mut notes = Vec::new();
            for doc in without {
                let found = state.read_notes(transaction, doc - 1, doc)?;
                notes.extend(found.into_iter().map(|stored| stored.note));
            }
            Ok(notes)
        })
    }

    pub(super) fn write_vectors(&mut self, model: &str, vectors: &[(NoteId, Vec<f32>)]) -> Result<()> {
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let change = add_change(&transaction)?;
        {
            let (number, calibration) =
                find_model(&transaction, model)?.ok_or_else(|| not_usable("the model was not measured"))?;
            let mut find = transaction.prepare_cached("SELECT doc FROM notes WHERE id = ?1")?;
            let mut insert = transaction
                .prepare_cached("INSERT OR REPLACE INTO vectors(model, doc, change, vector) VALUES (?1, ?2, ?3, ?4)")?;
            for (id, vector) in vectors {
                let vector = calibration.code(vector)?;
                // A note that was forgotten meanwhile gets no vector.
                if let Some(doc) = find.query_row([id.as_str()], |row| row.get::<_, Doc>(0)).optional()? {
                    let bytes: Vec<u8> = vector.iter().map(|x| x.cast_unsigned()).collect();
                    insert.execute(params![number, doc, change, bytes])?;
                }
            }
        }
        transaction.commit()?;
        Ok(())
    }
}

fn find_model(transaction: &Transaction<'_>, name: &str) -> Result<Option<(i64, Calibration)>> {
    let mut query = transaction.prepare_cached("SELECT model, mean, spread FROM models WHERE name = ?1")?;
    let found = query.query_row([name], |row| Ok((row.get(0)?, row.get::<_, Vec<u8>>(1)?, row.get(2)?))).optional()?;
    let Some((number, mean, spread)) = found else { return Ok(None) };
    let calibration = Calibration::from_parts(&mean, spread)
        .ok_or_else(|| NoteError::Damaged("the measure of a model in the memory is damaged".to_owned()))?;
    Ok(Some((number, calibration)))
}

fn to_numbers(bytes: &[u8]) -> Vec<i8> {
    bytes.iter().map(|byte| byte.cast_signed()).collect()
}
