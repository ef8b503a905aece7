//! Steps that are loaded from a database on access.

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

/// Loads steps on access.
pub(super) struct StepLoader {
    connection: Arc<Mutex<StoreConnection>>,
    rows: Arc<StepPlaces>,
    /// The rows that were found in the file without SQLite, if SQLite cannot read all of them.
    scan: Option<PageScan>,
    /// A reference to itself, for the steps that it returns.
    own: Weak<StepLoader>,
}

impl StepLoader {
    pub(super) fn new(
        connection: &Arc<Mutex<StoreConnection>>,
        rows: &Arc<StepPlaces>,
        scan: Option<PageScan>,
    ) -> Arc<Self> {
        let (connection, rows) = (connection.clone(), rows.clone());
        Arc::new_cyclic(|own| StepLoader { connection, rows, scan, own: own.clone() })
    }

    /// Reads a step and the steps before it, newest first, up to the first that has not one parent.
    fn read_run(&self, connection: &Connection, place: u64, id: StepId) -> Vec<StepRow> {
        let mut run: Vec<StepRow> = Vec::new();
        let (mut next, mut wanted) = (place, id);
        while run.len() < STEPS_PER_FETCH {
            let row = scan::step(connection, next).ok().and_then(Result::ok);
            let row = row.or_else(|| self.scan.as_ref()?.read(next)).filter(|row| row.id == wanted);
            // An unreadable step ends the run; if it is the requested one, it is lost.
            let Some(row) = row else { break };
            let only = match row.parents[..] {
                [(id, place)] if place > 0 => Some((place, id)),
                _ => None,
            };
            run.push(row);
            let Some(before) = only else { break };
            (next, wanted) = before;
        }
        run
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
            let loaded = Step::from_store(parents, stored, row.stamp, &row.totals)?;
            self.rows.set(&loaded, StorageState::At(row.place));
            step = Some(loaded);
        }
        step.filter(|step| step.id() == id)
    }
}
