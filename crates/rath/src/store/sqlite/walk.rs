//! Reading steps, checking them, and listing branches.

use std::collections::{BTreeMap, BinaryHeap, HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};

use rath_record::chunk::Chunk;
use rath_record::{
    BranchId, Digest, LazyStep, Parent, Parents, Payload, Step, StepId, StepSource, StorageState, StoredChunk,
};
use rusqlite::{Connection, OptionalExtension, params};

use super::super::{BranchSummary, CheckReport, Damage, StepPlaces};
use super::branch::BranchRow;
use super::change::TransactionError;
use super::entry::{EntryFault, LogEntry, StepRow};
use super::index::writer_of;
use super::log::Log;
use super::log_reader::{FIRST_PLACE, LogReader, scan};
use super::schema;
use crate::store::error::{Result, StoreError, StoreErrorKind};

/// The number of steps that are loaded at once.
const STEPS_PER_FETCH: usize = 64;
/// The number of damaged places that are reported.
const MAX_DAMAGE_LISTED: usize = 1_000;

/// The database and the log that steps are loaded from.
pub(super) struct ReadHandles {
    pub(super) connection: Arc<Mutex<Connection>>,
    pub(super) log: RwLock<Arc<Log>>,
}

impl ReadHandles {
    pub(super) fn log(&self) -> Arc<Log> {
        self.log.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set_log(&self, log: Arc<Log>) {
        *self.log.write().unwrap_or_else(PoisonError::into_inner) = log;
    }

    fn payload(&self, digest: &Digest) -> Option<Payload> {
        payload(&self.connection.lock().unwrap_or_else(PoisonError::into_inner), digest).ok().flatten()
    }
}

/// Loads steps on access.
pub(super) struct StepLoader {
    source: Arc<ReadHandles>,
    rows: Arc<StepPlaces>,
    /// A reference to itself, for the steps that it returns.
    own: Weak<StepLoader>,
}

impl StepLoader {
    pub(super) fn new(source: Arc<ReadHandles>, rows: Arc<StepPlaces>) -> Arc<Self> {
        Arc::new_cyclic(|own| StepLoader { source, rows, own: own.clone() })
    }
}

impl StepSource for StepLoader {
    fn token(&self) -> u64 {
        self.rows.token()
    }

    /// Loads a step and some of its ancestors; earlier ones are loaded on access.
    fn fetch(&self, place: u64, id: StepId) -> Option<Step> {
        let step_source: Arc<dyn StepSource> = self.own.upgrade()?;
        load(&self.source, &self.rows, place, id, &step_source)
    }
}

fn load(
    source: &ReadHandles,
    rows: &StepPlaces,
    place: u64,
    id: StepId,
    step_source: &Arc<dyn StepSource>,
) -> Option<Step> {
    let log = source.log();
    let mut reader = LogReader::back(&log);
    let mut run: Vec<StepRow> = Vec::new();
    let (mut next, mut wanted) = (place, id);
    while run.len() < STEPS_PER_FETCH {
        // An unreadable step ends the run; if it is the requested one, it is lost.
        let Some(row) = reader.step(next).ok().filter(|row| row.id == wanted) else { break };
        let only = match row.parents[..] {
            [(id, place)] if place > 0 => Some((place, id)),
            _ => None,
        };
        run.push(row);
        let Some(before) = only else { break };
        (next, wanted) = before;
    }
    let mut step: Option<Step> = None;
    for row in run.into_iter().rev() {
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
        let mut chunk = Chunk::decode(&row.chunk).ok()?;
        if !chunk.payload_digests().is_empty() || matches!(chunk, Chunk::Other(_)) {
            chunk.fill_payloads(|digest| source.payload(digest));
        }
        let said = StoredChunk { chunk, json: &row.chunk, withheld: row.withheld };
        let loaded = Step::from_store(parents, said, row.stamp, &row.totals)?;
        rows.set(&loaded, StorageState::At(row.place));
        step = Some(loaded);
    }
    step.filter(|step| step.id() == id)
}

/// Reads a payload, if its digest fits.
fn payload(connection: &Connection, digest: &Digest) -> rusqlite::Result<Option<Payload>> {
    let found = stored_payload(connection, digest)?;
    let Some((is_text, Some(data))) = found else { return Ok(None) };
    if Digest::compute(&data) != *digest {
        return Ok(None);
    }
    let bytes = |data: Vec<u8>| Payload::Bytes(data.into());
    Ok(Some(match is_text {
        true => {
            String::from_utf8(data).map_or_else(|error| bytes(error.into_bytes()), |text| Payload::Text(text.into()))
        }
        false => bytes(data),
    }))
}

/// Returns those of the payloads that any step refers to, except the step at `but`.
pub(super) fn referenced_payloads(
    log: &Log,
    digests: &[Digest],
    but: u64,
) -> Result<HashSet<Digest>, TransactionError> {
    let mut named = HashSet::new();
    if digests.is_empty() {
        return Ok(named);
    }
    let texts: Vec<_> = digests.iter().map(|digest| (*digest, digest.to_string())).collect();
    scan(log, FIRST_PLACE, |place, entry| {
        if let Ok((LogEntry::Step(row), _)) = entry
            && place != but
        {
            let found =
                texts.iter().filter(|(_, text)| memchr::memmem::find(row.chunk.as_bytes(), text.as_bytes()).is_some());
            named.extend(found.map(|(digest, _)| *digest));
        }
    })?;
    Ok(named)
}

/// Finds a step among the ancestors of a head.
pub(super) fn find(log: &Log, head: u64, id: StepId) -> Option<StepRow> {
    let mut found = None;
    walk_back(log, [head], |_, row| {
        if let Ok(row) = row
            && row.id == id
        {
            found = Some(row);
        }
    });
    found
}

/// Calls `each` with all ancestors of some places, each once, newest first.
///
/// A step always has a higher place than its parents: a heap of the places to visit is enough.
fn walk_back(log: &Log, heads: impl IntoIterator<Item = u64>, mut each: impl FnMut(u64, Result<StepRow, EntryFault>)) {
    let mut reader = LogReader::back(log);
    let mut open: BinaryHeap<u64> = heads.into_iter().collect();
    while let Some(place) = open.pop() {
        while open.peek() == Some(&place) {
            open.pop();
        }
        let row = reader.step(place);
        if let Ok(row) = &row {
            open.extend(row.parents.iter().map(|(_, parent)| *parent).filter(|parent| (1..place).contains(parent)));
        }
        each(place, row);
    }
}

/// Returns the newest step, with its place, of every readable piece of a session, oldest first. `head` is none if the row of
/// the branch is damaged.
pub(super) fn pieces(
    log: &Log,
    head: Option<u64>,
    relatives: &HashSet<BranchId>,
) -> Result<Vec<(u64, StepId)>, TransactionError> {
    let mut found: BTreeMap<u64, StepId> = BTreeMap::new();
    let mut followed: HashSet<u64> = HashSet::new();
    let mut take = |row: &StepRow| {
        found.insert(row.place, row.id);
        followed.extend(row.parents.iter().map(|(_, parent)| *parent));
    };
    let mut parted = head.is_none();
    walk_back(log, head, |_, row| match &row {
        Ok(row) => take(row),
        Err(_) => parted = true,
    });
    // Steps before an unreadable entry are found by the branch that they name.
    if parted {
        scan(log, FIRST_PLACE, |_, entry| {
            if let Ok((LogEntry::Step(row), _)) = entry
                && relatives.contains(&row.stamp.branch)
            {
                take(&row);
            }
        })?;
    }
    Ok(found.into_iter().filter(|(place, _)| !followed.contains(place)).collect())
}

/// The damage found so far.
#[derive(Default)]
struct CheckProgress {
    damage: Vec<Damage>,
    steps: u64,
}

impl CheckProgress {
    fn add(&mut self, place: u64, step: Option<StepId>, what: impl Into<String>) {
        if self.damage.len() < MAX_DAMAGE_LISTED {
            self.damage.push(Damage { place: format!("byte {place} of the log"), step, what: what.into() });
        }
    }

    /// Checks the payloads of a step, and the order of its parents. The parents themselves are checked by the caller.
    fn row(&mut self, connection: &Connection, row: &StepRow) {
        self.steps += 1;
        if row.parents.len() > 2 || row.parents.iter().any(|(_, parent)| *parent >= row.place) {
            self.add(row.place, Some(row.id), "it names the wrong row for its parent");
        }
        // Only a chunk with a payload has a digest.
        if memchr::memmem::find(row.chunk.as_bytes(), b"\"digest\":").is_none() {
            return;
        }
        let Ok(chunk) = Chunk::decode(&row.chunk) else {
            return self.add(row.place, Some(row.id), "the row cannot be read");
        };
        for digest in chunk.payload_digests() {
            let what = match payload_state(connection, &digest) {
                Ok(PayloadState::Good | PayloadState::Forgotten) => continue,
                Ok(PayloadState::Changed) => format!("its payload {digest:.8} was changed"),
                Ok(PayloadState::Missing) => format!("its payload {digest:.8} is missing"),
                Err(error) => format!("its payload {digest:.8} cannot be read: {error}"),
            };
            self.add(row.place, Some(row.id), what);
        }
    }
}

enum PayloadState {
    Good,
    Changed,
    Missing,
    Forgotten,
}

fn payload_state(connection: &Connection, digest: &Digest) -> rusqlite::Result<PayloadState> {
    Ok(match stored_payload(connection, digest)? {
        None => PayloadState::Missing,
        Some((_, None)) => PayloadState::Forgotten,
        Some((_, Some(data))) if Digest::compute(&data) == *digest => PayloadState::Good,
        Some((_, Some(_))) => PayloadState::Changed,
    })
}

/// Reads a payload: true for a text, and its bytes unless it was erased.
///
/// Reading and checking use this one query, so that both agree on what is damaged.
fn stored_payload(connection: &Connection, digest: &Digest) -> rusqlite::Result<Option<(bool, Option<Vec<u8>>)>> {
    connection
        .prepare_cached("SELECT is_text, data FROM payloads WHERE digest = ?")?
        .query_row(params![&digest.0[..]], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()
}

/// Checks all ancestors of the head of a branch.
pub(super) fn check(connection: &Connection, log: &Log, branch: &BranchRow) -> Result<Vec<Damage>, TransactionError> {
    let mut checking = CheckProgress::default();
    // The id that the step at a place must have according to its children.
    let mut wanted = HashMap::from([(branch.head, branch.head_id)]);
    walk_back(log, [branch.head], |place, row| {
        let wanted_here = wanted.remove(&place);
        match row {
            Err(EntryFault { step, what }) => checking.add(place, wanted_here.or(step), what),
            Ok(row) => {
                if wanted_here.is_some_and(|wanted| wanted != row.id) {
                    checking.add(place, wanted_here, "another step stands in its row");
                }
                for (id, parent) in row.parents.iter().filter(|(_, parent)| *parent > 0) {
                    if wanted.insert(*parent, *id).is_some_and(|known| known != *id) {
                        checking.add(place, Some(row.id), "it names the wrong row for its parent");
                    }
                }
                checking.row(connection, &row);
            }
        }
    });
    checking.damage.reverse();
    // The branch of these entries is unknown.
    for place in unreadable_places(connection)? {
        checking.add(place, None, "what was written there cannot be read, and may be of any session");
    }
    Ok(checking.damage)
}

/// Returns the places of entries that were unreadable when the database was brought up to date.
fn unreadable_places(connection: &Connection) -> Result<Vec<u64>, TransactionError> {
    let mut statement = connection.prepare_cached("SELECT place FROM wounds ORDER BY place")?;
    let places = statement.query_map([], |row| row.get::<_, i64>(0))?.collect::<rusqlite::Result<Vec<_>>>()?;
    Ok(places.into_iter().map(i64::cast_unsigned).collect())
}

/// Checks the whole store.
pub(super) fn check_all(connection: &Connection, log: &Log) -> Result<CheckReport, TransactionError> {
    let mut damage = Vec::new();
    let mut heads = Vec::new();
    let mut known = HashSet::new();
    let mut branches: (i64, i64) = (0, 0);
    BranchRow::every(connection, |row| {
        branches.0 += 1;
        match row {
            Some((b, row)) => {
                branches.1 = branches.1.max(b);
                heads.push((row.head, row.head_id));
                known.insert(row.id);
            }
            None => {
                branches.1 += 1;
                let what = "what is said of the session was changed: its seal does not match".to_owned();
                damage.push(Damage { place: format!("branch {}", branches.1), step: None, what });
            }
        }
    })?;
    let mut checking = CheckProgress::default();
    let (reflected, end) = (schema::log_state(connection)?.reflected, log.end()?);
    if end < reflected {
        checking.add(end, None, format!("it ends here, and {} more bytes should follow", reflected - end));
    }
    let mut unlisted: HashSet<BranchId> = HashSet::new();
    let mut reader = LogReader::back(log);
    let mut same = |checking: &mut CheckProgress, place: u64, (id, parent): (StepId, u64)| {
        let found = reader.step_and_branch(parent).map(|(id, _)| id);
        if parent > 0 && found != Some(id) {
            checking.add(place, Some(id), "the row of a step that others rest on is missing");
        }
    };
    scan(log, FIRST_PLACE, |place, entry| match entry {
        Ok((LogEntry::Step(row), _)) => {
            if !known.contains(&row.stamp.branch) {
                unlisted.insert(row.stamp.branch);
            }
            row.parents.iter().for_each(|parent| same(&mut checking, parent.1, *parent));
            checking.row(connection, &row);
        }
        Ok(_) => {}
        Err(EntryFault { step, what }) => checking.add(place, step, what),
    })?;
    for (head, id) in heads {
        same(&mut checking, head, (id, head));
    }
    let mut seen: HashSet<(String, Option<StepId>)> = HashSet::new();
    checking.damage.retain(|damage| seen.insert((damage.place.clone(), damage.step)));
    damage.append(&mut checking.damage);
    let missing = schema::missing(connection, branches.0, branches.1)?;
    if missing != 0 {
        let what = format!("{} rows are there, and {} should be", branches.0, branches.0 + missing);
        damage.push(Damage { place: "table branches".to_owned(), step: None, what });
    }
    // Deleted branches leave their steps in the log until the store is compacted.
    if schema::missing(connection, 0, 0)? == 0 {
        for branch in unlisted {
            let what = format!("it has steps of the session {}, and does not list it", branch.short());
            damage.push(Damage { place: "table branches".to_owned(), step: None, what });
        }
    }
    let whole: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if whole != "ok" {
        damage.push(Damage { place: "the file".to_owned(), step: None, what: whole });
    }
    Ok(CheckReport { branches: branches.0.unsigned_abs(), steps: checking.steps, damage })
}

/// The initial capacity of a list.
const MAX_LIST_CAPACITY: usize = 1 << 20;

/// Lists all branches, in the order in which they began.
pub(super) fn list(connection: &Connection) -> Result<Vec<BranchSummary>, TransactionError> {
    let rows: i64 = connection.query_row("SELECT coalesce(max(b), 0) FROM branches", [], |row| row.get(0))?;
    let mut list = Vec::with_capacity(usize::try_from(rows).unwrap_or_default().min(MAX_LIST_CAPACITY));
    let mut wrong = None;
    let mut last = 0;
    let mut writers = Vec::new();
    BranchRow::list(connection, |row| match row {
        Some((b, writer, summary)) => {
            last = last.max(b);
            if writer > 0 {
                writers.push((list.len(), writer));
            }
            list.push(summary);
        }
        None => _ = wrong.get_or_insert("what is said of a session was changed"),
    })?;
    let mut holders = HashMap::new();
    for (nth, writer) in writers {
        if let std::collections::hash_map::Entry::Vacant(entry) = holders.entry(writer) {
            entry.insert(writer_of(connection, writer)?.map(|(holder, _)| Arc::new(holder)));
        }
        list[nth].holder = holders.get(&writer).cloned().flatten();
    }
    if schema::missing(connection, list.len() as i64, last)? != 0 {
        wrong.get_or_insert("sessions are missing");
    }
    match wrong {
        None => Ok(list),
        Some(what) => {
            Err(StoreError::new(StoreErrorKind::Damaged, format_args!("the list of sessions is damaged: {what}"))
                .with_hint("`rath verify` names what is damaged, `rath salvage` copies what is good")
                .into())
        }
    }
}

/// Returns the places of all steps that branches descend from, ascending, and the payloads that those steps refer to.
pub(super) fn referenced(connection: &Connection, log: &Log) -> Result<(Vec<u64>, HashSet<Digest>), TransactionError> {
    let mut heads = Vec::new();
    let mut failed = None;
    BranchRow::every(connection, |row| match row {
        Some((_, row)) => heads.push(row.head),
        None => _ = failed.get_or_insert_with(|| "what is said of a session was changed".to_owned()),
    })?;
    let (mut places, mut named) = (Vec::new(), HashSet::new());
    walk_back(log, heads, |place, row| {
        places.push(place);
        match row {
            Ok(row) => match Chunk::decode(&row.chunk) {
                Ok(Chunk::Other(other)) => {
                    named.extend(other.json().split('"').filter_map(|it| Digest::from_hex(it.as_bytes())));
                }
                Ok(chunk) => named.extend(chunk.payload_digests()),
                Err(_) => {}
            },
            Err(fault) => _ = failed.get_or_insert(fault.what),
        }
    });
    // An unreadable step may refer to any payload: nothing is removed then.
    if let Some(why) = failed {
        return Err(damaged(&why).into());
    }
    places.reverse();
    Ok((places, named))
}

/// Creates the error for rewriting a damaged store.
pub(super) fn damaged(why: &str) -> StoreError {
    let message = format!("the store is damaged, and writing it anew would lose what cannot be read: {why}");
    StoreError::new(StoreErrorKind::Damaged, message).with_hint("`rath salvage` copies what is good")
}
