//! A store in a directory, with one append-only file for each session.
//!
//! The files have the format of `docs/format.md`; each holds all branches of its session. One process writes a file at a time,
//! under a file lock that the system releases when the process ends. A step of another session is not copied: a row names
//! the file that holds it.

mod contents;
mod delete;
mod id_file;
mod open_file;
mod step_finder;
mod sweep;
mod unlisted_files;

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, ErrorKind as IoKind, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use rath_record::codec::{CodecError, Encoder, FileContents, ROW_START, Reader};
use rath_record::lineage::Lineage;
use rath_record::{BranchId, Digest, Step, StepId, StorageState};

use self::contents::{advances, branches, damage, summaries};
use self::open_file::{OpenFile, is_locked};
use self::step_finder::{StepFinder, session_file, session_named};
pub(crate) use self::unlisted_files::has_session_files;
use super::registry::Create;
use super::user_key::location_of;
use super::{
    BranchSummary, CheckReport, Damage, Deletion, Erased, ErasedStep, FIRST_EPOCH, FreedSpace, Holder, NO_STORE_HINT,
    StepPlaces, StoreBackend, StoreId, StoredBranch, UnlistedBranch, UnlistedFile, Write, WriteRight, branch_held,
    branch_moved, failed, make_folder, missing_parent, parent_not_stored, rath_dir, right_lost, shell_word,
    unwritable_hint,
};
use crate::store::error::{Result, StoreError, StoreErrorKind};

/// The most bytes of a session file: reading one takes memory in proportion.
const MAX_FILE_BYTES: u64 = 4 << 30;

/// A store in a directory.
///
/// ```
/// use rath::Store;
/// use rath::store::{Create, Jsonl};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> rath::Result<()> {
/// # let directory = tempfile::tempdir()?;
/// let path = directory.path().join("sessions").display().to_string();
/// let store = Store::new(Jsonl::open(&path, Create::IfMissing)?)?;
/// assert!(store.list().await?.is_empty());
/// assert!(Jsonl::open(&format!("{path}-elsewhere"), Create::Never).is_err());
/// # Ok(())
/// # }
/// ```
pub struct Jsonl {
    uri: String,
    folder: PathBuf,
    location: String,
    state: Mutex<JsonlState>,
}

#[derive(Default)]
struct JsonlState {
    /// The files that this process writes.
    open: HashMap<BranchId, OpenFile>,
    /// The sessions whose files steps refer to, by number.
    numbers: Vec<BranchId>,
    /// The list of each file as it was read last.
    known: HashMap<BranchId, CachedList>,
    /// The reason why nothing further is written: after a failure the content of the files is unknown.
    broken: Option<StoreError>,
    /// The sessions whose file another process created while a group was written.
    created_elsewhere: Vec<BranchId>,
    /// True after what killed processes left was removed.
    is_swept: bool,
    /// The space that deletions have freed since the last compaction.
    freed: FreedSpace,
}

#[derive(Clone)]
struct CachedList {
    length: u64,
    at: Option<SystemTime>,
    list: Vec<BranchSummary>,
}

impl Jsonl {
    /// Opens the directory, and creates it if `create` allows that.
    pub fn open(path: &str, create: Create) -> Result<Self> {
        let uri = format!("jsonl:{path}");
        if path.is_empty() {
            return Err(
                StoreError::new(StoreErrorKind::Store, "no folder is named").with_hint("write `jsonl:.rath/sessions`")
            );
        }
        let folder = PathBuf::from(path);
        let checked = rath_dir::check(&folder).and_then(|()| rath_dir::check_entries(&folder));
        checked.map_err(|error| failed(&uri, "open", error))?;
        // A folder that cannot be reached is not taken for a missing one.
        let is_there = folder.try_exists().map_err(|error| failed(&uri, "open", error))?;
        if is_there && !folder.is_dir() {
            let message = format!("wanted a directory for {uri}, found a file");
            return Err(StoreError::new(StoreErrorKind::Store, message).with_hint("write `jsonl:.rath/sessions`"));
        }
        if !is_there {
            if create == Create::Never {
                return Err(StoreError::new(StoreErrorKind::Missing, format_args!("there is no store at {path}"))
                    .with_hint(NO_STORE_HINT));
            }
            make_folder(&folder).map_err(|error| failed(&uri, "make", error))?;
        }
        let location = location_of(&folder);
        Ok(Jsonl { uri, folder, location, state: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, JsonlState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the state, unless a write has failed before.
    fn lock_for_write(&self) -> Result<MutexGuard<'_, JsonlState>> {
        let state = self.lock();
        match &state.broken {
            Some(error) => Err(error.duplicate()),
            None => Ok(state),
        }
    }

    fn path(&self, family: BranchId) -> PathBuf {
        session_file(&self.folder, family)
    }

    fn file_name(&self, family: BranchId) -> String {
        self.path(family).file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    fn io_error(&self, action: &str, error: io::Error) -> StoreError {
        let hint = unwritable_hint(error.kind()).filter(|_| action != "read");
        let failed = failed(&self.uri, action, error);
        hint.into_iter().fold(failed, StoreError::with_hint)
    }

    /// Lists all sessions, in the order in which they began.
    fn families(&self) -> Result<Vec<BranchId>> {
        let entries = std::fs::read_dir(&self.folder).map_err(|error| self.io_error("read", error))?;
        let mut families = Vec::new();
        for entry in entries {
            families.extend(session_named(&entry.map_err(|error| self.io_error("read", error))?.file_name()));
        }
        families.sort();
        Ok(families)
    }

    /// Reads a whole file.
    fn read_file(&self, family: BranchId) -> Result<FileContents> {
        self.read_with_damage(family).map(|(contents, _)| contents)
    }

    /// Reads a whole file. Returns also its damage, and that of files with steps that it continues from.
    fn read_with_damage(&self, family: BranchId) -> Result<(FileContents, Vec<Damage>)> {
        let (path, finder) = (self.path(family), StepFinder::default());
        let contents = loop {
            let contents = self.read_by(&path, finder.reader())?;
            // If it continues from steps of other files, it is read again with these.
            if !finder.find_wanted(&self.folder) {
                break self.require_own(family, contents)?;
            }
        };
        let mut damage = damage(&path, &contents);
        for (other, step) in finder.missing() {
            let (place, step_name, file) = (self.file_name(family), step.short(), self.file_name(other));
            let what = format!("it continues from step {step_name}, which is not in {file}; put that file back");
            damage.push(Damage { place, step: None, what });
        }
        // A process that deletes both files removes this one first.
        if !damage.is_empty() && !path.try_exists().map_err(|error| self.io_error("read", error))? {
            return Err(self.io_error("read", IoKind::NotFound.into()));
        }
        Ok((contents, damage))
    }

    /// Fails for a whole file without a step of the branch in its name, which every session begins with: it is that of another session.
    fn require_own(&self, family: BranchId, contents: FileContents) -> Result<FileContents> {
        let is_own = |step: &Step| step.stamp().branch == family;
        match contents.steps.first() {
            Some(first) if contents.report.damage.is_empty() && !contents.steps.iter().any(is_own) => {
                let other = first.stamp().branch.short();
                let what = format!("its steps are of the session {other}, not of the one in its name");
                let hint = format!("put the file of the session back; {}", self.removal(family));
                Err(StoreError::new(StoreErrorKind::Damaged, what).with_hint(hint))
            }
            _ => Ok(contents),
        }
    }

    /// Reads a whole file, and the sessions that it names for steps which it does not have itself.
    fn read_with_needs(&self, path: &Path) -> Result<(FileContents, Vec<BranchId>)> {
        let needs = Arc::new(Mutex::new(Vec::new()));
        let noted = needs.clone();
        let reader = Reader::new().with_step_finder(move |_, other| {
            noted.lock().unwrap_or_else(PoisonError::into_inner).push(other);
            None
        });
        let contents = self.read_by(path, reader)?;
        let needs = std::mem::take(&mut *needs.lock().unwrap_or_else(PoisonError::into_inner));
        Ok((contents, needs))
    }

    fn read_by(&self, path: &Path, mut reader: Reader) -> Result<FileContents> {
        let mut file = open_bounded(path).map_err(|error| self.io_error("read", error))?;
        let mut block = vec![0; 256 * 1024];
        loop {
            match file.read(&mut block) {
                Ok(0) => break,
                Ok(count) => reader.feed(&block[..count]),
                Err(error) if error.kind() == IoKind::Interrupted => {}
                Err(error) => return Err(self.io_error("read", error)),
            }
        }
        reader.finish().map_err(|error| codec_error(path, &error))
    }

    /// Reads a whole file, and its damage. None if another process has deleted it.
    fn read_if_there(&self, family: BranchId) -> Result<Option<(FileContents, Vec<Damage>)>> {
        match self.read_with_damage(family) {
            Err(_) if !self.path(family).exists() => Ok(None),
            // Another process may have created it just now.
            Err(_) => self.read_with_damage(family).map(Some),
            read => read.map(Some),
        }
    }

    /// Lists the branches in the file of a session.
    fn list_file(&self, family: BranchId) -> Result<Vec<BranchSummary>> {
        let path = self.path(family);
        let facts = std::fs::metadata(&path).map_err(|error| self.io_error("read", error))?;
        let (length, at) = (facts.len(), facts.modified().ok());
        let known = self.lock().known.get(&family).filter(|known| (known.length, known.at) == (length, at)).cloned();
        let mut list = match known {
            Some(known) => known.list,
            None => {
                let opened = self.read_file(family)?;
                let list = summaries(family, &opened);
                self.lock().known.insert(family, CachedList { length, at, list: list.clone() });
                list
            }
        };
        // The lock tells whether a process still writes the file.
        if list.iter().any(|summary| summary.holder.is_none()) && is_locked(&path) {
            let writer = self.read_file(family)?.writer.and_then(|writer| Holder::from_json(&writer.by)).map(Arc::new);
            list.iter_mut().for_each(|summary| summary.holder = writer.clone());
        }
        Ok(list)
    }

    /// Finds the session whose file holds a branch.
    fn family_of(&self, branch: BranchId) -> Result<Option<BranchId>> {
        if self.path(branch).exists() {
            return Ok(Some(branch));
        }
        let open =
            self.lock().open.iter().find(|(_, open)| open.branches.contains_key(&branch)).map(|(family, _)| *family);
        if open.is_some() {
            return Ok(open);
        }
        let holds = |family: &BranchId| {
            // A file that is no session file, or was deleted meanwhile, has no branches.
            self.list_file(*family).is_ok_and(|list| list.iter().any(|summary| summary.branch == branch))
        };
        Ok(self.families()?.into_iter().find(holds))
    }

    /// Describes a file without a step. It is damaged: a file gets its name when its first steps are durable.
    fn lost_steps(&self, family: BranchId) -> Damage {
        let what = format!("no step of the session is left in the file; {}", self.removal(family));
        Damage { place: self.file_name(family), step: None, what }
    }

    /// Returns the advice to delete a session.
    fn removal(&self, family: BranchId) -> String {
        format!("`rath gc --delete {} --store {}` removes it", family.short(), shell_word(&self.uri))
    }

    /// Describes a file that cannot be read.
    fn unreadable(&self, family: BranchId, error: &StoreError) -> Damage {
        Damage { place: self.file_name(family), step: None, what: error.message() }
    }

    fn no_such(&self, branch: BranchId) -> StoreError {
        StoreError::new(StoreErrorKind::NoSuchSession, format_args!("no session {branch} in {}", self.uri))
            .with_hint("`rath ls` lists them")
    }

    /// Encodes the steps of a write. Returns the session whose file they go to, if there are steps.
    fn append(&self, state: &mut JsonlState, write: &Write, rows: &StepPlaces) -> Result<Result<Option<BranchId>>> {
        let Some(head) = write.steps.last() else { return Ok(Ok(None)) };
        if let Some(parent) = missing_parent(write, rows) {
            return Ok(Err(parent_not_stored(parent)));
        }
        let (home, epoch) = match &write.right {
            WriteRight::New(holder) => {
                if !state.open.contains_key(&write.branch)
                    && self.read_if_there(write.branch)?.is_some_and(|(file, _)| !file.steps.is_empty())
                {
                    return Ok(Err(branch_moved(write.branch)));
                }
                (self.file_for(state, write, holder)?, FIRST_EPOCH)
            }
            WriteRight::Held(epoch) => {
                let home = state.open.iter().find(|(_, open)| open.held.contains_key(&write.branch));
                let Some((home, open)) = home else { return Ok(Err(right_lost(write.branch, None))) };
                match open.held.get(&write.branch) {
                    Some((known, head)) if known == epoch && Some(*head) == write.after => (*home, *epoch),
                    _ => return Ok(Err(branch_moved(write.branch))),
                }
            }
        };
        let number = file_number(&mut state.numbers, home);
        for link in write.steps.iter().flat_map(Step::parents) {
            let StorageState::At(place) = rows.lookup(link) else { continue };
            let is_named = || state.open.get(&home).is_some_and(|open| open.elsewhere.contains(&link.id()));
            if place == number {
                continue;
            }
            // Another process can delete the file of another session, with the steps that this write continues from.
            let is_there = |family: &BranchId| state.open.contains_key(family) || self.path(*family).exists();
            let family = family_at(&state.numbers, place).filter(is_there);
            if let Some(family) = family.filter(|_| !is_named()) {
                self.make_durable(state, family)?;
            }
            // If another process created the file first, it may lack the step.
            if family.is_none_or(|family| state.created_elsewhere.contains(&family)) && !write.includes(link) {
                state.open.retain(|family, open| *family != home || !open.held.is_empty());
                return Ok(Err(parent_not_stored(link.id())));
            }
        }
        let JsonlState { open, numbers, .. } = state;
        let elsewhere = |place: u64| family_at(numbers, place);
        let Some(open) = open.get_mut(&home) else { return Ok(Err(branch_moved(write.branch))) };
        if matches!(write.right, WriteRight::New(_)) && open.branches.contains_key(&write.branch) {
            return Ok(Err(branch_moved(write.branch)));
        }
        if let Err(error) = open.check_room(&write.steps) {
            state.open.retain(|family, open| *family != home || !open.held.is_empty());
            return Ok(Err(self.io_error("write to", error)));
        }
        for step in &write.steps {
            for link in step.parents() {
                let elsewhere = match rows.lookup(link) {
                    StorageState::At(place) if place != number => elsewhere(place),
                    StorageState::At(_) | StorageState::Pending => continue,
                    StorageState::NotStored => None,
                };
                if open.elsewhere.insert(link.id()) {
                    open.encoder.push_gone(Digest(link.id().0), elsewhere);
                }
            }
            // What was lost before the step came here is no damage of this file.
            let present = step.chunk().payloads();
            let digests = step.chunk().payload_digests().into_iter();
            for digest in digests.filter(|digest| present.iter().all(|(known, _)| known != digest)) {
                if open.lost.insert(digest) {
                    open.encoder.push_gone(digest, None);
                }
            }
            // Each step: a write that is cut off may end at any of them.
            let signature = write.signature(step.stamp().branch, step);
            let pushed = open.encoder.push_signed_step(step, signature);
            pushed.map_err(|error| StoreError::wrap(StoreErrorKind::Format, error))?;
            rows.set(step, StorageState::At(number));
            let at = open.branches.entry(step.stamp().branch).or_insert(step.id());
            if advances(*at, step) {
                *at = step.id();
            }
        }
        open.held.insert(write.branch, (epoch, head.id()));
        open.dirty = true;
        Ok(Ok(Some(home)))
    }

    /// Writes and syncs all encoded rows, except those of a file that another process has created meanwhile.
    ///
    /// Fails if another program has replaced, removed or cut a file: rows that no path leads to are not stored.
    fn sync(&self, state: &mut JsonlState) -> Result<()> {
        let mut sync = || -> Result<()> {
            let write_error = |error| self.io_error("write to", error);
            let (mut written, mut elsewhere) = (Vec::new(), Vec::new());
            for (family, open) in state.open.iter_mut().filter(|(_, open)| open.dirty && open.has_steps()) {
                open.dirty = false;
                open.write().map_err(write_error)?;
                written.push((*family, open));
            }
            for (family, open) in written {
                let path = self.path(family);
                open.file.sync_data().map_err(write_error)?;
                open.encoder.mark_synced();
                if !open.publish(&path).map_err(write_error)? {
                    elsewhere.push(family);
                } else if !open.is_as_written(&path).map_err(write_error)? {
                    return Err(changed_by_others(family, &path));
                }
            }
            elsewhere.iter().for_each(|family| _ = state.open.remove(family));
            state.created_elsewhere.extend(elsewhere);
            Ok(())
        };
        let done = sync();
        done.inspect_err(|error| state.broken = Some(error.duplicate()))
    }

    /// Rewrites a file that no process writes.
    fn rewrite(&self, family: BranchId, map: impl Fn(&Step) -> Option<(Step, Vec<Digest>)>) -> Result<()> {
        let path = self.path(family);
        let _locked = self.lock_idle(family)?;
        let (opened, damage) = self.read_with_damage(family)?;
        if !damage.is_empty() {
            let message = format!("{} is damaged, and rewriting it would lose what cannot be read", path.display());
            return Err(
                StoreError::new(StoreErrorKind::Damaged, message).with_hint("`rath salvage` copies what is good")
            );
        }
        let mut encoder = Encoder::for_appending();
        let mut known = HashSet::new();
        // In the order of the rows: where two steps continue from one, the branch follows the first.
        for step in &opened.steps {
            for link in step.parents().iter().filter(|link| !known.contains(&link.id())) {
                let elsewhere = link.step().map(|parent| self.family_of(parent.stamp().branch)).transpose()?.flatten();
                encoder.push_gone(Digest(link.id().0), elsewhere.filter(|elsewhere| *elsewhere != family));
            }
            known.insert(step.id());
            let (step, withheld) = map(step).unwrap_or_else(|| (step.clone(), Vec::new()));
            withheld.into_iter().for_each(|digest| encoder.push_gone(digest, None));
            let signature = opened.signatures.get(&(step.stamp().branch, step.id())).copied();
            encoder.push_signed_step(&step, signature).map_err(|error| codec_error(&path, &error))?;
        }
        let beside = path.with_extension(format!("{}.tmp", uuid::Uuid::now_v7().simple()));
        let write = || -> io::Result<()> {
            let mut file = File::create_new(&beside)?;
            file.write_all(&encoder.finish())?;
            file.sync_all()?;
            std::fs::rename(&beside, &path)?;
            super::sync_folder(&self.folder)
        };
        write().map_err(|error| {
            let _ = std::fs::remove_file(&beside);
            self.io_error("write to", error)
        })
    }
}

impl StoreBackend for Jsonl {
    fn uri(&self) -> &str {
        &self.uri
    }

    fn path(&self) -> Option<&Path> {
        Some(&self.folder)
    }

    fn location(&self) -> Option<String> {
        Some(self.location.clone())
    }

    fn id(&self, create: Create) -> Result<Option<StoreId>> {
        match self.read_id()? {
            None if create == Create::IfMissing => self.make_id().map(Some),
            id => Ok(id),
        }
    }

    fn write(&self, group: &[Write], rows: &StepPlaces) -> Result<Vec<Result<()>>> {
        let mut state = self.lock_for_write()?;
        let answers = group.iter().map(|write| self.append(&mut state, write, rows)).collect::<Result<Vec<_>>>();
        // StepPlaces of an incomplete group must never be written.
        let answers = answers.inspect_err(|error| state.broken = Some(error.duplicate()))?;
        self.sync(&mut state)?;
        let created_elsewhere = std::mem::take(&mut state.created_elsewhere);
        let answer = |(write, home): (&Write, Result<Option<BranchId>>)| match home? {
            Some(home) if created_elsewhere.contains(&home) => {
                write.steps.iter().for_each(|step| rows.set(step, StorageState::NotStored));
                Err(branch_moved(write.branch))
            }
            _ => Ok(()),
        };
        Ok(group.iter().zip(answers).map(answer).collect())
    }

    fn claim(&self, branch: BranchId, holder: &Holder) -> Result<u64> {
        let family = self.family_of(branch)?.ok_or_else(|| self.no_such(branch))?;
        let mut state = self.lock_for_write()?;
        self.sweep_once(&mut state);
        if !state.open.contains_key(&family) {
            let Some(open) = self.open_file(family, holder)? else {
                drop(state);
                return Err(self.held_error(branch, family, holder)?);
            };
            state.open.insert(family, open);
        }
        let open = state.open.get_mut(&family).expect("it was found or opened above");
        let head = match open.held.get(&branch) {
            Some(_) => return Err(branch_held(branch, holder)),
            None => *open.branches.get(&branch).ok_or_else(|| self.no_such(branch))?,
        };
        // Higher than the epoch of a branch that was begun in this process.
        let epoch = FIRST_EPOCH + 1;
        open.held.insert(branch, (epoch, head));
        self.sync(&mut state)?;
        Ok(epoch)
    }

    fn release(&self, rights: &[(BranchId, u64)]) -> Result<()> {
        let mut state = self.lock_for_write()?;
        let mut over = Vec::new();
        for (branch, epoch) in rights {
            for (family, open) in &mut state.open {
                if open.held.get(branch).is_some_and(|(known, _)| known == epoch) {
                    open.held.remove(branch);
                    if open.held.is_empty() {
                        open.encoder.close();
                        open.dirty = true;
                        over.push(*family);
                    }
                }
            }
        }
        self.sync(&mut state)?;
        over.iter().for_each(|family| _ = state.open.remove(family));
        Ok(())
    }

    /// Does nothing: the system releases the lock of a process that has ended.
    fn renew(&self, _: &Holder) -> Result<()> {
        Ok(())
    }

    fn list(&self) -> Result<Vec<BranchSummary>> {
        // A file that cannot be read costs its own session only: `check` names it.
        Ok(self.families()?.into_iter().filter_map(|family| self.list_file(family).ok()).flatten().collect())
    }

    fn unlisted(&self) -> Result<Vec<UnlistedBranch>> {
        let mut unlisted = Vec::new();
        for family in self.families()? {
            let damage = match self.list_file(family) {
                Ok(list) if list.is_empty() => self.lost_steps(family),
                Ok(_) => continue,
                Err(error) => self.unreadable(family, &error),
            };
            if self.path(family).exists() {
                unlisted.push(UnlistedBranch { branch: Some(family), damage });
            }
        }
        Ok(unlisted)
    }

    fn unlisted_files(&self) -> Result<Vec<UnlistedFile>> {
        self.find_unlisted()
    }

    fn summary(&self, branch: BranchId) -> Result<Option<BranchSummary>> {
        let Some(family) = self.family_of(branch)? else { return Ok(None) };
        Ok(self.list_file(family)?.into_iter().find(|summary| summary.branch == branch))
    }

    fn read(&self, branch: BranchId, rows: &Arc<StepPlaces>) -> Result<StoredBranch> {
        let family = self.family_of(branch)?.ok_or_else(|| self.no_such(branch))?;
        // One read for the list and the steps: another process may be writing.
        let (opened, damage) = self.read_with_damage(family)?;
        let list = summaries(family, &opened);
        if list.is_empty() {
            return Err(StoreError::new(StoreErrorKind::Damaged, self.lost_steps(family)));
        }
        let mut summary =
            list.into_iter().find(|summary| summary.branch == branch).ok_or_else(|| self.no_such(branch))?;
        if summary.holder.is_none() && is_locked(&self.path(family)) {
            let writer = opened.writer.as_ref().and_then(|writer| Holder::from_json(&writer.by));
            summary.holder = writer.map(Arc::new);
        }
        let head = branches(&opened).into_iter().find(|(id, _)| *id == branch).map(|(_, head)| head);
        // Once for each branch: finding the file of a branch may read all files.
        let mut homes: HashMap<BranchId, u64> = HashMap::new();
        for step in Lineage::new(head.clone()).walk() {
            let number = match homes.entry(step.stamp().branch) {
                Entry::Occupied(known) => *known.get(),
                Entry::Vacant(unknown) => {
                    let home = self.family_of(*unknown.key())?.unwrap_or(family);
                    *unknown.insert(file_number(&mut self.lock().numbers, home))
                }
            };
            rows.set(step, StorageState::At(number));
        }
        let signature = opened.signatures.get(&(branch, summary.head)).copied();
        Ok(StoredBranch { summary, head, signature, damage })
    }

    fn pieces(&self, branch: BranchId, rows: &Arc<StepPlaces>) -> Result<Vec<Step>> {
        let read = self.read(branch, rows)?;
        match &read.damage[..] {
            [] => Ok(read.head.into_iter().collect()),
            _ => Ok(self.read_file(read.summary.family)?.heads),
        }
    }

    fn visit_json(
        &self,
        families: &[BranchId],
        _: &Arc<StepPlaces>,
        visit: &mut dyn FnMut(BranchId, &str),
    ) -> Result<()> {
        for family in families {
            let Some((opened, damage)) = self.read_if_there(*family)? else { continue };
            if let Some(damage) = damage.first() {
                return Err(StoreError::new(StoreErrorKind::Damaged, damage));
            }
            opened.steps.iter().for_each(|step| visit(*family, &step.json()));
        }
        Ok(())
    }

    fn check(&self) -> Result<CheckReport> {
        let mut check = CheckReport::default();
        for family in self.families()? {
            match self.read_if_there(family) {
                Ok(Some((opened, damage))) => {
                    check.branches += branches(&opened).len() as u64;
                    check.steps += opened.report.steps;
                    check.damage.extend(damage);
                    check.damage.extend(opened.steps.is_empty().then(|| self.lost_steps(family)));
                }
                Ok(None) => {}
                Err(error) => check.damage.push(self.unreadable(family, &error)),
            }
        }
        check.damage.extend(self.misplaced()?);
        Ok(check)
    }

    fn forget(&self, branch: BranchId, step: StepId) -> Result<ErasedStep> {
        let family = self.family_of(branch)?.ok_or_else(|| self.no_such(branch))?;
        let opened = self.read_file(family)?;
        if Lineage::new(opened.heads.clone()).find(step).is_none() {
            let message = format!("no step {} in the session {}", step.short(), branch.short());
            return Err(StoreError::new(StoreErrorKind::NoSuchStep, message));
        }
        let erase = |family| {
            self.rewrite(family, |found| {
                (found.id() == step).then(|| (found.redacted(), found.chunk().payload_digests()))
            })
        };
        // The session that is named comes first: if it cannot be changed, nothing is.
        let is_copy = |opened: &FileContents| opened.steps.iter().any(|found| found.id() == step);
        let mut refused = Vec::new();
        if is_copy(&opened) {
            erase(family)?;
        }
        // The step may be in the file of a session that this one continues, and in those of sessions that begin alike.
        for other in self.families()?.into_iter().filter(|other| *other != family) {
            let erased = self.read_if_there(other).and_then(|opened| match opened {
                Some((opened, _)) if is_copy(&opened) => erase(other).map(|_| ()),
                _ => Ok(()),
            });
            // Another process may have deleted the session meanwhile. A file that is no session file has no step.
            let failed = erased.err().filter(|_| begins_with_a_row(&self.path(other)));
            refused.extend(failed.map(|error| (other, error)));
        }
        refused.extend(self.copies_in_unlisted(step)?.into_iter().map(|error| (branch, error)));
        self.sweep()?;
        Ok(ErasedStep { erased: Erased::Completely, refused })
    }

    fn delete(&self, families: &[BranchId]) -> Result<Deletion> {
        let (mut deletion, mut rest) = (Deletion::default(), families.to_vec());
        while !rest.is_empty() {
            let (plan, mut files) = self.plan_delete(&rest)?;
            rest.clear();
            let mut planned = plan.deleted.into_iter();
            for family in planned.by_ref() {
                match self.remove_file(family) {
                    Ok(()) => files.remove(&family).into_iter().for_each(|file| file.add_to(&mut deletion, family)),
                    // A process has begun to write it since: what it needs has to stay.
                    Err(error) if error.kind() == StoreErrorKind::Conflict => {
                        rest.push(family);
                        break;
                    }
                    Err(error) => return Err(error),
                }
            }
            if rest.is_empty() {
                deletion.refused = plan.refused;
            } else {
                rest.extend(planned.chain(plan.refused.into_iter().map(|refusal| refusal.family)));
            }
        }
        let freed = &mut self.lock().freed;
        freed.bytes += deletion.freed.bytes;
        freed.steps += deletion.freed.steps;
        deletion.freed = FreedSpace::default();
        Ok(deletion)
    }

    /// Returns what deletions have freed: the files hold nothing that could be compacted. Removes what a killed process left.
    fn compact(&self) -> Result<FreedSpace> {
        self.sweep()?;
        Ok(std::mem::take(&mut self.lock().freed))
    }

    fn measure_delete(&self, families: &[BranchId]) -> Result<Deletion> {
        let (mut deletion, mut files) = self.plan_delete(families)?;
        for family in std::mem::take(&mut deletion.deleted) {
            files.remove(&family).into_iter().for_each(|file| file.add_to(&mut deletion, family));
        }
        Ok(deletion)
    }
}

/// Returns the session whose file steps refer to by a number.
fn family_at(numbers: &[BranchId], number: u64) -> Option<BranchId> {
    number.checked_sub(1).and_then(|at| numbers.get(usize::try_from(at).ok()?)).copied()
}

/// Returns the number by which steps refer to the file of a session.
fn file_number(numbers: &mut Vec<BranchId>, family: BranchId) -> u64 {
    let at = numbers.iter().position(|known| *known == family).unwrap_or_else(|| {
        numbers.push(family);
        numbers.len() - 1
    });
    at as u64 + 1
}

/// Opens the file of a session, up to the length that it has now: a file that grows all the time is not followed.
fn open_bounded(path: &Path) -> io::Result<io::Take<File>> {
    let file = File::open(path)?;
    let length = file.metadata()?.len();
    check_length(length).map(|()| file.take(length))
}

/// Fails for a file that is too long to be read again.
fn check_length(bytes: u64) -> io::Result<()> {
    if bytes <= MAX_FILE_BYTES {
        return Ok(());
    }
    let message = format!("a session file of {bytes} bytes is too long, the limit is {MAX_FILE_BYTES}");
    Err(io::Error::new(IoKind::FileTooLarge, message))
}

/// Returns true if a file begins as session files of all versions do.
fn begins_with_a_row(path: &Path) -> bool {
    let mut start = [0; ROW_START.len()];
    File::open(path).and_then(|mut file| file.read_exact(&mut start)).is_ok() && start == ROW_START.as_bytes()
}

/// Creates the error for a file that another program has changed while this process wrote it.
fn changed_by_others(family: BranchId, path: &Path) -> StoreError {
    let (session, path) = (family.short(), path.display());
    let message =
        format!("another program replaced, removed or cut the file of session {session} while it was written: {path}");
    StoreError::new(StoreErrorKind::Store, message)
        .with_hint("let no other program write there; put the file back, or go on with the steps that are in it now")
}

fn codec_error(path: &Path, error: &CodecError) -> StoreError {
    StoreError::new(StoreErrorKind::Format, format_args!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests;
