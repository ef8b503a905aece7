//! Checking steps and branches, listing branches, and finding the readable pieces of a session.

use std::collections::{BTreeMap, HashMap, HashSet};

use rath_record::{BranchId, Digest, StepId};
use rusqlite::{Connection, OptionalExtension};

use super::super::{BranchSummary, CheckReport, Damage, UnlistedBranch};
use super::branch_row::BranchRow;
use super::loader::CheckedRows;
use super::payload::{self, StoredPayload};
use super::salvage::PageScan;
use super::scan::{self, BRANCHES, STEPS};
use super::schema::{self, number};
use super::step_row::{RowFault, StepRow};
use super::transaction::{TransactionError, holder_of};
use crate::store::error::{StoreError, StoreErrorKind};

/// The number of damaged places that are reported.
const MAX_DAMAGE_LISTED: usize = 1_000;
/// The number of newest steps whose ids a check of all steps has at hand.
const IDS_AT_HAND: usize = 1 << 16;
/// The initial capacity of a list.
const MAX_LIST_CAPACITY: usize = 1 << 20;

/// The damage found so far.
#[derive(Default)]
struct CheckProgress {
    damage: Vec<Damage>,
    steps: u64,
}

impl CheckProgress {
    fn add(&mut self, place: String, step: Option<StepId>, what: impl Into<String>) {
        if self.damage.len() < MAX_DAMAGE_LISTED {
            self.damage.push(Damage { place, step, what: what.into() });
        }
    }

    fn add_step(&mut self, place: u64, step: Option<StepId>, what: impl Into<String>) {
        self.add(format!("row {place} of the steps"), step, what);
    }

    /// Checks the payloads of a step, and the order of its parents. The parents themselves are checked by the caller.
    fn row(&mut self, connection: &Connection, row: &StepRow) -> rusqlite::Result<()> {
        self.steps += 1;
        if row.parents.len() > 2 || row.parents.iter().any(|(_, parent)| *parent >= row.place) {
            self.add_step(row.place, Some(row.id), "it names the wrong row for its parent");
        }
        for digest in payload::digests(&row.json) {
            let what = match payload::read(connection, &digest)? {
                StoredPayload::Good(_) | StoredPayload::Erased | StoredPayload::Lost => continue,
                StoredPayload::Changed => format!("its payload {digest:.8} was changed"),
                StoredPayload::Missing => format!("its payload {digest:.8} is missing"),
                StoredPayload::Unreadable(error) => format!("its payload {digest:.8} cannot be read: {error}"),
            };
            self.add_step(row.place, Some(row.id), what);
        }
        Ok(())
    }
}

/// Checks all ancestors of the head of a branch, and adds their rows to `checked`.
pub(super) fn branch(
    connection: &Connection,
    branch: &BranchRow,
    checked: &mut CheckedRows,
) -> rusqlite::Result<Vec<Damage>> {
    let mut checking = CheckProgress::default();
    let mut failed = Ok(());
    // The id that the step at a place must have according to its children.
    let mut wanted = HashMap::from([(branch.head, branch.head_id)]);
    scan::walk_back(connection, [branch.head], |place, row| {
        let wanted_here = wanted.remove(&place);
        match row {
            Err(RowFault { step, what }) => checking.add_step(place, wanted_here.or(step), what),
            Ok(row) => {
                if wanted_here.is_some_and(|wanted| wanted != row.id) {
                    checking.add_step(place, wanted_here, "another step stands in its row");
                }
                for (id, parent) in row.parents.iter().filter(|(_, parent)| *parent > 0) {
                    if wanted.insert(*parent, *id).is_some_and(|known| known != *id) {
                        checking.add_step(place, Some(row.id), "it names the wrong row for its parent");
                    }
                }
                if failed.is_ok() {
                    failed = checking.row(connection, &row);
                }
                checked.add(row);
            }
        }
    })?;
    checking.damage.reverse();
    failed.map(|()| checking.damage)
}

/// Checks the whole store.
pub(super) fn all(connection: &Connection) -> rusqlite::Result<CheckReport> {
    report(connection, &|_| true)
}

/// Checks all that a compaction keeps. What damage has left of sessions that were deleted is not looked at.
pub(super) fn kept(connection: &Connection) -> rusqlite::Result<CheckReport> {
    let (mut heads, mut kept) = (Vec::new(), HashSet::new());
    scan::each_row(connection, BRANCHES, |_, row| {
        heads.extend(row.ok().and_then(BranchRow::read).map(|row| row.head));
    })?;
    scan::walk_back(connection, heads, |place, _| _ = kept.insert(place))?;
    report(connection, &|place| kept.contains(&place))
}

/// Checks the store, with those of its steps for which `is_kept` returns true.
fn report(connection: &Connection, is_kept: &dyn Fn(u64) -> bool) -> rusqlite::Result<CheckReport> {
    let mut checking = CheckProgress::default();
    let branches = check_branches(connection, &mut checking)?;
    let unlisted = check_steps(connection, &mut checking, &branches, is_kept)?;
    let mut add_table = |what: String| checking.add("table branches".to_owned(), None, what);
    let found = branches.rows;
    match schema::missing_branches(connection, found, branches.highest) {
        Ok(0) => {}
        Ok(missing) => add_table(format!("{found} rows are there, and {} should be", found.saturating_add(missing))),
        Err(error) => add_table(format!("the rows cannot be counted: {error}")),
    }
    for branch in unlisted {
        add_table(format!("there are steps of the session {}, and no row", branch.short()));
    }
    let strange = "SELECT (SELECT count(*) FROM steps WHERE s <= 0) + (SELECT count(*) FROM counts WHERE
                       typeof(rows) <> 'integer' OR typeof(newest) <> 'integer' OR rows NOT BETWEEN 0 AND newest
                       OR newest > ?)";
    match connection.query_row(strange, [schema::MAX_ROWID], |row| row.get::<_, i64>(0)) {
        Ok(0) => {}
        Ok(_) => checking.add("the tables".to_owned(), None, "the numbers of rows were changed"),
        Err(error) => checking.add("the tables".to_owned(), None, format!("rows cannot be counted: {error}")),
    }
    let whole = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0));
    let whole: String = whole.unwrap_or_else(|error| error.to_string());
    if whole != "ok" {
        checking.add("the file".to_owned(), None, whole);
    }
    Ok(CheckReport { branches: found.unsigned_abs(), steps: checking.steps, damage: checking.damage })
}

/// The branches that a check has found.
#[derive(Default)]
struct CheckedBranches {
    /// The number of rows, undamaged or not, and the highest rowid.
    rows: i64,
    highest: i64,
    ids: HashSet<BranchId>,
    heads: Vec<(StepId, u64)>,
}

/// Checks the rows of all branches, and that the index leads to them.
fn check_branches(connection: &Connection, checking: &mut CheckProgress) -> rusqlite::Result<CheckedBranches> {
    let (mut branches, mut failed) = (CheckedBranches::default(), Ok(()));
    scan::each_row(connection, BRANCHES, |b, row| {
        let place = format!("row {b} of the branches");
        let row = match row.map(BranchRow::read) {
            Err(error) => return checking.add(place, None, RowFault::unreadable(error).what),
            Ok(row) => row,
        };
        (branches.rows, branches.highest) = (branches.rows + 1, b);
        let Some(row) = row else {
            return checking.add(place, None, "the row of the branch was changed: its seal does not match");
        };
        branches.heads.push((row.head_id, row.head));
        branches.ids.insert(row.id);
        match branch_number(connection, row.id) {
            Ok(indexed) if indexed == Some(b) => {}
            Ok(_) => checking.add(place, None, "the index does not lead to the row"),
            Err(error) if scan::is_damage(&error) => {
                checking.add(place, None, format!("the index cannot be read: {error}"));
            }
            Err(error) => failed = Err(error),
        }
    })?;
    failed.map(|()| branches)
}

/// Checks the rows of the steps for which `is_kept` returns true, and that rows refer to the right ones. Returns the branches that
/// have steps and are not listed.
fn check_steps(
    connection: &Connection,
    checking: &mut CheckProgress,
    branches: &CheckedBranches,
    is_kept: &dyn Fn(u64) -> bool,
) -> rusqlite::Result<HashSet<BranchId>> {
    let last_deletion = newest_deleted_step(connection).unwrap_or(i64::MAX);
    let (mut unlisted, mut failed) = (HashSet::new(), Ok(()));
    let mut ids = IdsAtHand { connection, ids: HashMap::new() };
    let mut check = |checking: &mut CheckProgress, row: &StepRow| {
        if row.place.cast_signed() > last_deletion && !branches.ids.contains(&row.stamp.branch) {
            unlisted.insert(row.stamp.branch);
        }
        if !is_kept(row.place) {
            return Ok(());
        }
        row.parents.iter().try_for_each(|parent| ids.check(checking, *parent))?;
        ids.add(row.place, row.id);
        checking.row(connection, row)
    };
    scan::each_row(connection, STEPS, |place, row| {
        let place = place.cast_unsigned();
        match row.map_err(RowFault::unreadable).and_then(|row| scan::decode(place, row)) {
            Ok(row) if failed.is_ok() => failed = check(checking, &row),
            Err(RowFault { step, what }) if is_kept(place) => checking.add_step(place, step, what),
            Ok(_) | Err(_) => {}
        }
    })?;
    failed?;
    branches.heads.iter().try_for_each(|head| ids.check(checking, *head))?;
    // A row that several others refer to is reported once.
    let mut seen: HashSet<(String, Option<StepId>)> = HashSet::new();
    checking.damage.retain(|damage| seen.insert((damage.place.clone(), damage.step)));
    Ok(unlisted)
}

/// Returns the highest rowid of a step at the last deletion: deleted branches leave their steps until the store is compacted.
fn newest_deleted_step(connection: &Connection) -> rusqlite::Result<i64> {
    number(connection, "SELECT coalesce(sum(newest), 0) FROM counts WHERE name = 'steps'")
}

/// Returns false if the newest step is of a branch that has no row. The number of rows does not tell that the last of them are lost.
fn newest_step_is_listed(connection: &Connection, listed: &HashSet<BranchId>) -> rusqlite::Result<bool> {
    let newest = number(connection, "SELECT coalesce(max(s), 0) FROM steps")?;
    if newest <= newest_deleted_step(connection)? {
        return Ok(true);
    }
    let found = scan::id_and_branch(connection, newest.cast_unsigned())?;
    Ok(found.is_none_or(|(_, branch)| listed.contains(&branch)))
}

/// Returns the number of a branch according to the index.
fn branch_number(connection: &Connection, id: BranchId) -> rusqlite::Result<Option<i64>> {
    let sql = "SELECT b FROM branches INDEXED BY branch_ids WHERE id = ?";
    connection.prepare_cached(sql)?.query_row([&id.0[..]], |row| row.get(0)).optional()
}

/// The ids of the steps that were checked last: most parents are among them.
struct IdsAtHand<'a> {
    connection: &'a Connection,
    ids: HashMap<u64, StepId>,
}

impl IdsAtHand<'_> {
    fn add(&mut self, place: u64, id: StepId) {
        if self.ids.len() >= IDS_AT_HAND {
            self.ids.clear();
        }
        self.ids.insert(place, id);
    }

    /// Checks that the row of a step that others refer to has that step.
    fn check(&self, checking: &mut CheckProgress, (id, place): (StepId, u64)) -> rusqlite::Result<()> {
        let found = match self.ids.get(&place) {
            Some(id) => Some(*id),
            None if place == 0 => return Ok(()),
            None => scan::id_and_branch(self.connection, place)?.map(|(id, _)| id),
        };
        if found != Some(id) {
            checking.add_step(place, Some(id), "the row is missing or unreadable, and other rows refer to it");
        }
        Ok(())
    }
}

/// Lists all branches whose rows are undamaged, in the order in which they began.
pub(super) fn list(connection: &Connection) -> rusqlite::Result<Vec<BranchSummary>> {
    let rows = number(connection, "SELECT coalesce(max(b), 0) FROM branches").unwrap_or_default();
    let mut list = Vec::with_capacity(usize::try_from(rows).unwrap_or_default().min(MAX_LIST_CAPACITY));
    let mut writers = Vec::new();
    scan::each_row(connection, BRANCHES, |_, row| {
        if let Ok(Some((_, writer, summary))) = row.map(BranchRow::read_summary) {
            if writer > 0 {
                writers.push((list.len(), writer));
            }
            list.push(summary);
        }
    })?;
    let mut holders = HashMap::new();
    for (nth, writer) in writers {
        if let std::collections::hash_map::Entry::Vacant(entry) = holders.entry(writer) {
            entry.insert(holder_of(connection, writer)?);
        }
        list[nth].holder = holders.get(&writer).cloned().flatten();
    }
    Ok(list)
}

/// Returns the branches that damage keeps out of the list.
pub(super) fn unlisted(connection: &Connection) -> rusqlite::Result<Vec<UnlistedBranch>> {
    let (mut unlisted, mut ids, mut rows, mut highest) = (Vec::new(), HashSet::new(), 0, 0);
    let entry = |branch: Option<BranchId>, place: String, what: String| UnlistedBranch {
        branch,
        damage: Damage { place, step: None, what },
    };
    scan::each_row(connection, BRANCHES, |b, row| {
        let place = format!("row {b} of the branches");
        let row = match row {
            Ok(row) => row,
            Err(error) => return unlisted.push(entry(None, place, RowFault::unreadable(error).what)),
        };
        (rows, highest) = (rows + 1, b);
        let id = row.get_ref(1).ok().and_then(|id| id.as_blob().ok()?.try_into().ok()).map(BranchId);
        ids.extend(id);
        if BranchRow::read(row).is_none() {
            unlisted.push(entry(id, place, "the row of the branch was changed: its seal does not match".to_owned()));
        }
    })?;
    let is_missing = !matches!(schema::missing_branches(connection, rows, highest), Ok(0))
        || !matches!(newest_step_is_listed(connection, &ids), Ok(true));
    if !is_missing && unlisted.is_empty() {
        return Ok(unlisted);
    }
    // The branches that lost their rows are known from their steps.
    let listed = CheckedBranches { ids, ..CheckedBranches::default() };
    let mut lost: Vec<_> =
        check_steps(connection, &mut CheckProgress::default(), &listed, &|_| true)?.into_iter().collect();
    lost.sort();
    if !lost.is_empty() {
        unlisted.retain(|unlisted| unlisted.branch.is_some());
    }
    let no_row = |branch: BranchId| format!("there are steps of the session {}, and no row", branch.short());
    unlisted.extend(lost.into_iter().map(|id| entry(Some(id), "table branches".to_owned(), no_row(id))));
    if unlisted.is_empty() {
        unlisted.push(entry(None, "table branches".to_owned(), "sessions are missing".to_owned()));
    }
    Ok(unlisted)
}

/// The readable steps of a session.
#[derive(Default)]
pub(super) struct Pieces {
    found: BTreeMap<u64, StepId>,
    followed: HashSet<u64>,
    /// True if a step is missing or unreadable.
    pub(super) is_damaged: bool,
}

impl Pieces {
    /// Finds the steps that SQLite can read. `head` is none if the row of the branch is damaged.
    pub(super) fn read(
        connection: &Connection,
        head: Option<u64>,
        relatives: &HashSet<BranchId>,
    ) -> rusqlite::Result<Self> {
        let mut pieces = Pieces { is_damaged: head.is_none(), ..Pieces::default() };
        scan::walk_back(connection, head, |_, row| match &row {
            Ok(row) => pieces.add(row),
            Err(_) => pieces.is_damaged = true,
        })?;
        // Steps before an unreadable row are found by the branch that they name.
        if pieces.is_damaged {
            scan::each_row(connection, STEPS, |place, row| {
                if let Some(Ok(row)) = row.ok().map(|row| scan::decode(place.cast_unsigned(), row)) {
                    pieces.add_if_related(&row, relatives);
                }
            })?;
        }
        Ok(pieces)
    }

    /// Adds the steps that were found in the file without SQLite.
    pub(super) fn add_scan(&mut self, scan: &PageScan, relatives: &HashSet<BranchId>) {
        scan.steps().for_each(|row| self.add_if_related(&row, relatives));
    }

    fn add_if_related(&mut self, row: &StepRow, relatives: &HashSet<BranchId>) {
        if relatives.contains(&row.stamp.branch) {
            self.add(row);
        }
    }

    fn add(&mut self, row: &StepRow) {
        self.found.insert(row.place, row.id);
        self.followed.extend(row.parents.iter().map(|(_, parent)| *parent));
    }

    /// Returns the newest step of every piece, with its place, oldest first.
    pub(super) fn heads(self) -> Vec<(u64, StepId)> {
        self.found.into_iter().filter(|(place, _)| !self.followed.contains(place)).collect()
    }
}

/// The rows that branches refer to.
pub(super) struct ReferencedRows {
    /// The places of all steps that branches descend from, ascending.
    pub(super) places: Vec<u64>,
    /// The payloads that those steps refer to.
    pub(super) digests: HashSet<Digest>,
    /// The branches that are marked as followed, and that no remaining branch continues from.
    pub(super) unfollowed: Vec<BranchId>,
}

/// Returns the rows that branches refer to.
pub(super) fn referenced(connection: &Connection) -> Result<ReferencedRows, TransactionError> {
    let (mut heads, mut followed, mut failed) = (Vec::new(), HashMap::new(), None);
    scan::each_row(connection, BRANCHES, |_, row| match row.map(BranchRow::read) {
        Ok(Some(row)) => {
            heads.push(row.head);
            if row.followed == row.head {
                followed.insert(row.head, row.id);
            }
        }
        Ok(None) => _ = failed.get_or_insert_with(|| "the row of a session was changed".to_owned()),
        Err(error) => _ = failed.get_or_insert_with(|| error.to_string()),
    })?;
    let (mut places, mut digests) = (Vec::new(), HashSet::new());
    scan::walk_back(connection, heads, |place, row| match row {
        Ok(row) => {
            places.push(place);
            digests.extend(payload::digests(&row.json));
            for (_, parent) in &row.parents {
                if followed.get(parent).is_some_and(|branch| *branch != row.stamp.branch) {
                    followed.remove(parent);
                }
            }
        }
        Err(fault) => _ = failed.get_or_insert(fault.what),
    })?;
    // An unreadable step may refer to any payload: nothing is removed then.
    if let Some(why) = failed {
        let message = format!("the store is damaged, and compacting it would lose what cannot be read: {why}");
        let error = StoreError::new(StoreErrorKind::Damaged, message);
        return Err(error.with_hint("`rath salvage` copies what is good").into());
    }
    places.reverse();
    Ok(ReferencedRows { places, digests, unfollowed: followed.into_values().collect() })
}

/// Calls `visit` with the JSON of every step that the branches of some sessions descend from. A step that several sessions share is
/// passed once, with the first of them. A branch whose row is damaged is passed over: [`unlisted`] names it.
pub(super) fn visit_json(
    connection: &Connection,
    families: &[BranchId],
    visit: &mut dyn FnMut(BranchId, &str),
) -> Result<(), TransactionError> {
    let (mut heads, mut failed) = (HashMap::<BranchId, Vec<u64>>::new(), None);
    scan::each_row(connection, BRANCHES, |_, row| {
        let row = row.ok().and_then(BranchRow::read);
        row.into_iter().for_each(|row| heads.entry(row.family).or_default().push(row.head));
    })?;
    let mut visited = HashSet::new();
    for family in families {
        let heads = heads.remove(family).unwrap_or_default();
        scan::walk_back_new(connection, heads, &mut visited, |_, row| match row {
            Ok(row) => visit(*family, &row.json),
            Err(fault) => _ = failed.get_or_insert(fault.what),
        })?;
    }
    let damaged = |why: String| {
        let error = StoreError::new(StoreErrorKind::Damaged, format_args!("the store is damaged: {why}"));
        error.with_hint("`rath verify` names what is damaged, `rath salvage` copies what is good").into()
    };
    failed.map_or(Ok(()), |why| Err(damaged(why)))
}

/// Returns the pairs of a session and another one of which it needs steps. Rows that cannot be read are passed over: nothing is
/// compacted in a store that has some which are kept.
///
/// A row belongs to the session of its branch, if that refers to it, and otherwise to the first one that does: a session may have
/// its own copy of a step of another.
pub(super) fn needs(connection: &Connection) -> rusqlite::Result<HashSet<(BranchId, BranchId)>> {
    let mut families = HashMap::new();
    let mut referring = HashMap::<u64, Vec<BranchId>>::new();
    scan::each_row(connection, BRANCHES, |_, row| {
        if let Some(row) = row.ok().and_then(BranchRow::read) {
            families.insert(row.id, row.family);
            referring.entry(row.head).or_default().push(row.family);
        }
    })?;
    let heads: Vec<u64> = referring.keys().copied().collect();
    let mut needs = HashSet::new();
    // A step comes before its parents.
    scan::walk_back(connection, heads, |place, row| {
        let (Ok(row), Some(sessions)) = (row, referring.remove(&place)) else { return };
        let own = families.get(&row.stamp.branch).filter(|family| sessions.contains(family));
        let Some(home) = own.or(sessions.iter().min()).copied() else { return };
        needs.extend(sessions.into_iter().filter(|other| *other != home).map(|other| (other, home)));
        for (_, parent) in row.parents {
            let sessions = referring.entry(parent).or_default();
            if !sessions.contains(&home) {
                sessions.push(home);
            }
        }
    })?;
    Ok(needs)
}
