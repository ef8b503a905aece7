//! Steps that are loaded from a database on access.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rath_record::chunk::Chunk;
use rath_record::{LazyStep, Parent, Parents, Step, StepId, StepSource, StorageState, StoredChunk};
use rusqlite::Connection;

use super::super::StepPlaces;
use super::payload::{self, StoredPayload};
use super::salvage::PageScan;
use super::scan;
use super::schema::StoreConnection;
use super::step_row::StepRow;

/// The number of steps that are loaded at once.
const STEPS_PER_FETCH: usize = 64;

/// The most rows that are kept for the steps that are loaded after a check, and the most bytes of their JSON.
const MAX_CHECKED_ROWS: usize = 20_000;
const MAX_CHECKED_BYTES: usize = 32 << 20;

/// The rows of a short session that were read while it was checked, so that none is read twice. Those of a long one are not kept.
#[derive(Default)]
pub(super) struct CheckedRows {
    rows: HashMap<u64, StepRow>,
    bytes: usize,
    is_over: bool,
}

impl CheckedRows {
    pub(super) fn add(&mut self, row: StepRow) {
        if self.is_over {
            return;
        }
        self.bytes += row.json.len();
        self.rows.insert(row.place, row);
        if self.rows.len() > MAX_CHECKED_ROWS || self.bytes > MAX_CHECKED_BYTES {
            *self = CheckedRows { is_over: true, ..CheckedRows::default() };
        }
    }
}

/// Loads steps on access.
pub(super) struct StepLoader {
    connection: Arc<Mutex<StoreConnection>>,
    rows: Arc<StepPlaces>,
    /// The rows that were found in the file without SQLite, if SQLite cannot read all of them.
    scan: Option<PageScan>,
    checked: Mutex<CheckedRows>,
    /// A reference to itself, for the steps that it returns.
    own: Weak<StepLoader>,
}

impl StepLoader {
    pub(super) fn new(
        connection: &Arc<Mutex<StoreConnection>>,
        rows: &Arc<StepPlaces>,
        scan: Option<PageScan>,
        checked: CheckedRows,
    ) -> Arc<Self> {
        let (connection, rows, checked) = (connection.clone(), rows.clone(), Mutex::new(checked));
        Arc::new_cyclic(|own| StepLoader { connection, rows, scan, checked, own: own.clone() })
    }

    /// Reads a step and the steps before it, newest first, up to the first that has not one parent.
    ///
    /// An unreadable step ends the run; if it is the requested one, it is lost.
    fn read_run(&self, connection: &Connection, place: u64, id: StepId) -> Vec<StepRow> {
        let mut run = StepRun { rows: Vec::new(), next: Some((place, id)) };
        let mut checked = self.checked.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some((place, _)) = run.next {
            if let Some(row) = checked.rows.remove(&place) {
                run.add(row);
                continue;
            }
            // What SQLite cannot read may have been found without it.
            let _ = scan::rows_back(connection, place, |row| run.add(row));
            let found = run.next.and_then(|(place, _)| self.scan.as_ref()?.read(place));
            let Some(row) = found else { break };
            run.add(row);
        }
        run.rows
    }
}

/// Steps each of which is the only parent of the one before it.
struct StepRun {
    rows: Vec<StepRow>,
    /// The place and the id of the next one.
    next: Option<(u64, StepId)>,
}

impl StepRun {
    /// Adds the next step, and returns the place of the one after it. Another step ends the run.
    fn add(&mut self, row: StepRow) -> Option<u64> {
        self.next.take().filter(|next| *next == (row.place, row.id))?;
        self.next = match row.parents[..] {
            [(id, place)] if place > 0 && self.rows.len() + 1 < STEPS_PER_FETCH => Some((place, id)),
            _ => None,
        };
        self.rows.push(row);
        self.next.map(|(place, _)| place)
    }
}

impl StepSource for StepLoader {
    fn token(&self) -> u64 {
        self.rows.token()
    }

    /// Loads a step and some of its ancestors; earlier ones are loaded on access.
    fn fetch(&self, place: u64, id: StepId) -> Option<Step> {
        let step_source: Arc<dyn StepSource> = self.own.upgrade()?;
        let connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let mut step: Option<Step> = None;
        for row in self.read_run(&connection, place, id).into_iter().rev() {
            let mut links = row.parents.iter().map(|(id, place)| match (&step, place) {
                (Some(step), _) if step.id() == *id => Parent::Loaded(step.clone()),
                (_, 1..) => Parent::Lazy(Arc::new(LazyStep::new(*id, *place, step_source.clone()))),
                _ => Parent::Missing(Box::new(*id)),
            });
            let parents = match (links.next(), links.next()) {
                (None, _) => Parents::None,
                (Some(one), None) => Parents::One(one),
                (Some(ours), Some(theirs)) => Parents::Two([ours, theirs]),
            };
            let mut chunk = Chunk::decode(&row.json).ok()?;
            if !chunk.payload_digests().is_empty() || matches!(chunk, Chunk::Other(_)) {
                chunk.fill_payloads(|digest| match payload::read(&connection, digest) {
                    Ok(StoredPayload::Good(payload)) => Some(payload),
                    _ => None,
                });
            }
            let stored = StoredChunk { chunk, json: &row.json, withheld: row.withheld };
            let loaded = Step::from_store(row.id, parents, stored, row.stamp, &row.totals)?;
            self.rows.set(&loaded, StorageState::At(row.place));
            step = Some(loaded);
        }
        step.filter(|step| step.id() == id)
    }
}
