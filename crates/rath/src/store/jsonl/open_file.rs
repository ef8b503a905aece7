//! The files that a process writes: opening them, cutting an unfinished end off, and locking them.

use std::collections::{HashMap, HashSet};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rath_record::codec::{Encoder, Ending};
use rath_record::{BranchId, Digest, Step, StepId};
use rath_workspace::is_same_file;

use super::super::{Holder, Write, branch_held, sync_folder};
use super::contents::branches;
use super::{Jsonl, JsonlState, check_length};
use crate::store::error::{Result, StoreError};

/// The bytes of a file that are left for rows without steps: those of its writers, and of steps that are elsewhere or lost.
const ROOM_FOR_OTHER_ROWS: u64 = 1 << 20;

/// The most bytes that a byte of a payload has in a row.
const MAX_BYTES_ESCAPED: u64 = 6;

/// The bytes of a step without its payloads that are expected at most.
const MAX_BYTES_WITHOUT_PAYLOADS: u64 = 1 << 16;

/// A file that is being written.
pub(super) struct OpenFile {
    pub(super) file: File,
    /// The number of bytes that the file has, by what was read and written.
    length: u64,
    /// The lock, if it is not on `file` itself.
    lock: Option<File>,
    pub(super) encoder: Encoder,
    /// The branches that are held, each with its epoch and its head.
    pub(super) held: HashMap<BranchId, (u64, StepId)>,
    /// All branches in the file, with their heads.
    pub(super) branches: HashMap<BranchId, StepId>,
    /// The steps of other files that rows of this file name already.
    pub(super) elsewhere: HashSet<StepId>,
    /// The payloads that rows of this file name as lost.
    pub(super) lost: HashSet<Digest>,
    pub(super) dirty: bool,
    /// The name that a new file has until its first steps are durable.
    pub(super) unpublished: Option<PathBuf>,
}

impl OpenFile {
    fn new(file: File, lock: Option<File>, encoder: Encoder) -> io::Result<Self> {
        Ok(OpenFile {
            length: file.metadata()?.len(),
            file,
            lock,
            encoder,
            held: HashMap::new(),
            branches: HashMap::new(),
            elsewhere: HashSet::new(),
            lost: HashSet::new(),
            dirty: true,
            unpublished: None,
        })
    }

    /// Fails if the file would be too long with these steps: nothing is encoded that could not be written.
    pub(super) fn check_room(&self, steps: &[Step]) -> io::Result<()> {
        let length = self.length + self.encoder.buffered_bytes() as u64 + ROOM_FOR_OTHER_ROWS;
        let payloads = steps.iter().flat_map(|step| step.chunk().payloads());
        let payload_bytes: u64 = payloads.map(|(_, payload)| payload.bytes().len() as u64).sum();
        // Far from the limit, steps need not be encoded twice.
        let most = MAX_BYTES_ESCAPED * payload_bytes + MAX_BYTES_WITHOUT_PAYLOADS * steps.len() as u64;
        if check_length(length + most).is_ok() {
            return Ok(());
        }
        let mut encoder = Encoder::for_appending();
        steps.iter().try_for_each(|step| encoder.push_step(step)).map_err(io::Error::other)?;
        check_length(length + encoder.buffered_bytes() as u64)
    }

    /// Writes the rows that are encoded.
    pub(super) fn write(&mut self) -> io::Result<()> {
        let bytes = self.encoder.take_bytes();
        self.length += bytes.len() as u64;
        check_length(self.length)?;
        self.file.write_all(&bytes)
    }

    /// Returns true if the path leads to all that was written. Other programs do not ask for the lock.
    pub(super) fn is_as_written(&self, path: &Path) -> io::Result<bool> {
        Ok(is_current(&self.file, path) && self.file.metadata()?.len() == self.length)
    }

    /// Returns true if the file has steps, written or encoded. A file without any gets no name.
    pub(super) fn has_steps(&self) -> bool {
        !self.branches.is_empty()
    }

    /// Gives a new file its name, unless it has it. Returns false if another process was faster.
    pub(super) fn publish(&mut self, path: &Path) -> io::Result<bool> {
        let Some(temporary) = &self.unpublished else { return Ok(true) };
        let is_published = publish(temporary, path)?;
        if is_published {
            self.unpublished = None;
        }
        Ok(is_published)
    }
}

/// Gives a durable temporary file its name. Returns false, and leaves it as it is, if another process was faster.
pub(super) fn publish(temporary: &Path, path: &Path) -> io::Result<bool> {
    // Unlike a rename, a link does not replace a file.
    match std::fs::hard_link(temporary, path) {
        Ok(()) => std::fs::remove_file(temporary)?,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(false),
        Err(error) if !has_no_links(&error) => return Err(error),
        Err(_) if path.try_exists()? => return Ok(false),
        Err(_) => std::fs::rename(temporary, path)?,
    }
    path.parent().map_or(Ok(()), sync_folder).map(|()| true)
}

/// Returns true if an open file is still the one that its path names.
fn is_current(file: &File, path: &Path) -> bool {
    is_same_file(file, path) || path.canonicalize().is_ok_and(|path| is_same_file(file, &path))
}

/// Returns true if a link could not be made because the file system has none.
fn has_no_links(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::Unsupported | io::ErrorKind::PermissionDenied)
}

/// Removes a new file that did not get its name, and releases the lock.
impl Drop for OpenFile {
    fn drop(&mut self) {
        // Closing the file is not enough: a process that another thread is just starting has a copy of it.
        let _ = self.lock.as_ref().unwrap_or(&self.file).unlock();
        if let Some(temporary) = &self.unpublished {
            let _ = std::fs::remove_file(temporary);
        }
    }
}

/// The number of attempts to take a lock, and the pause between them.
const LOCK_TRIES: u32 = 8;
const LOCK_RETRY_PAUSE: Duration = Duration::from_millis(3);

impl Jsonl {
    /// Opens the file of a session and locks it for writing. None if another process writes it.
    pub(super) fn open_file(&self, family: BranchId, holder: &Holder) -> Result<Option<OpenFile>> {
        let path = self.path(family);
        let (file, lock) = loop {
            let file = OpenOptions::new().read(true).append(true).open(&path);
            let file = file.map_err(|error| self.io_error("open", error))?;
            let lock = self.separate_lock(family)?;
            if !self.lock_file(lock.as_ref().unwrap_or(&file))? {
                return Ok(None);
            }
            // Before it was locked, a process that rewrites the session may have replaced it.
            if is_current(&file, &path) {
                break (file, lock);
            }
        };
        let opened = self.read_file(family)?;
        let branches: HashMap<_, _> = branches(&opened).into_iter().map(|(branch, head)| (branch, head.id())).collect();
        let length = opened.position.map_or(0, |position| position.length);
        let cut = || -> io::Result<()> {
            if file.metadata()?.len() > length {
                // Windows does not shorten a file that was opened for appending.
                OpenOptions::new().write(true).open(&path)?.set_len(length)?;
            }
            // The last writer may have been killed before it synced what it wrote.
            file.sync_data()
        };
        cut().map_err(|error| self.io_error("write to", error))?;
        let encoder = match opened.position {
            Some(position) => Encoder::append_at(position, holder.to_json(), opened.payloads),
            None => self.begin_file(&file, holder)?,
        };
        let mut open = OpenFile::new(file, lock, encoder).map_err(|error| self.io_error("open", error))?;
        open.branches = branches;
        Ok(Some(open))
    }

    /// Opens the file that is locked instead of the file of a session, on systems that need one.
    pub(super) fn separate_lock(&self, family: BranchId) -> Result<Option<File>> {
        let path = lock_path(&self.path(family)).map(|path| File::options().append(true).create(true).open(path));
        path.transpose().map_err(|error| self.io_error("lock", error))
    }

    /// Locks a file for writing. False if another process writes it.
    pub(super) fn lock_file(&self, file: &File) -> Result<bool> {
        // A process that tests for the lock holds it for a moment.
        for _ in 0..LOCK_TRIES {
            match file.try_lock() {
                Ok(()) => return Ok(true),
                Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_RETRY_PAUSE),
                Err(TryLockError::Error(error)) => return Err(self.io_error("lock", error)),
            }
        }
        Ok(false)
    }

    /// Creates the error for a claim of a branch whose file another process writes.
    pub(super) fn held_error(&self, branch: BranchId, family: BranchId, holder: &Holder) -> Result<StoreError> {
        // A process that has just locked the file is about to write its name. Until then the file names an earlier writer.
        for _ in 0..LOCK_TRIES {
            let opened = self.read_file(family)?;
            let writer = opened.writer.and_then(|writer| Holder::from_json(&writer.by));
            let is_open = opened.report.ending != Ending::Closed;
            if let Some(writer) = writer.filter(|writer| is_open && writer != holder && !writer.is_dead()) {
                return Ok(branch_held(branch, &writer));
            }
            std::thread::sleep(LOCK_RETRY_PAUSE);
        }
        Ok(branch_held(branch, &"another process"))
    }

    /// Creates the file of a session, locked. It gets its name with its first steps: a power cut leaves all of them or none.
    fn new_file(&self, family: BranchId, holder: &Holder) -> Result<OpenFile> {
        let lock = self.separate_lock(family)?;
        if let Some(lock) = &lock {
            lock.try_lock().map_err(|error| self.io_error("lock", error.into()))?;
        }
        let (temporary, file) = self.temporary_file(family, lock.is_some())?;
        let encoder = self.begin_file(&file, holder).inspect_err(|_| _ = std::fs::remove_file(&temporary))?;
        let open = OpenFile::new(file, lock, encoder).inspect_err(|_| _ = std::fs::remove_file(&temporary));
        let mut open = open.map_err(|error| self.io_error("write to", error))?;
        open.unpublished = Some(temporary);
        Ok(open)
    }

    /// Creates a temporary file, and locks it unless `is_locked` already.
    pub(super) fn temporary_file(&self, family: BranchId, is_locked: bool) -> Result<(PathBuf, File)> {
        loop {
            let path = self.path(family).with_extension(format!("{}.tmp", uuid::Uuid::now_v7().simple()));
            let made = OpenOptions::new().read(true).append(true).create_new(true).open(&path);
            let file = made.map_err(|error| self.io_error("write to", error))?;
            // Before it was locked, a process that sweeps may have removed it.
            if is_locked || (self.lock_file(&file)? && path.exists()) {
                return Ok((path, file));
            }
        }
    }

    /// Writes the header of an empty file. It is durable before any other row is written: by the header a file is recognised.
    fn begin_file(&self, mut file: &File, holder: &Holder) -> Result<Encoder> {
        let mut encoder = Encoder::for_appending();
        let written = file.write_all(&encoder.take_bytes()).and_then(|()| file.sync_all());
        written.map_err(|error| self.io_error("write to", error))?;
        encoder.mark_synced();
        Ok(encoder.with_writer(holder.to_json()))
    }

    /// Returns the session whose file gets a new branch: the own one, unless another process writes that file.
    pub(super) fn file_for(&self, state: &mut JsonlState, write: &Write, holder: &Holder) -> Result<BranchId> {
        if state.open.contains_key(&write.family) {
            return Ok(write.family);
        }
        self.sweep_once(state);
        let open = match self.path(write.family).exists() {
            true => self.open_file(write.family, holder)?,
            false => Some(self.new_file(write.family, holder)?),
        };
        let (home, open) = match open {
            Some(open) => (write.family, open),
            None => (write.branch, self.new_file(write.branch, holder)?),
        };
        state.open.insert(home, open);
        Ok(home)
    }

    /// Locks the file of a session that no process writes.
    pub(super) fn lock_idle(&self, family: BranchId) -> Result<IdleLock> {
        loop {
            let (lock, is_separate) = match self.separate_lock(family)? {
                Some(lock) => (lock, true),
                None => (File::open(self.path(family)).map_err(|error| self.io_error("open", error))?, false),
            };
            if !self.lock_file(&lock)? {
                return Err(self.held_error(family, family, &Holder::this_process())?);
            }
            if is_separate || is_current(&lock, &self.path(family)) {
                return Ok(IdleLock(lock));
            }
        }
    }

    /// Makes the steps in a file durable before a step in another file continues from them.
    pub(super) fn make_durable(&self, state: &mut JsonlState, family: BranchId) -> Result<()> {
        match state.open.get(&family) {
            Some(open) if open.dirty => self.sync(state),
            Some(_) => Ok(()),
            // Another process writes the file, or did, and may not have come to its sync.
            None => {
                let synced = OpenOptions::new().append(true).open(self.path(family)).and_then(|file| file.sync_all());
                let synced = synced.and_then(|()| sync_folder(&self.folder));
                synced.map_err(|error| self.io_error("write to", error))
            }
        }
    }
}

/// The lock on a file that no process writes.
pub(super) struct IdleLock(File);

impl Drop for IdleLock {
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

/// Returns the path of the file that is locked instead of the file of a session. Windows needs one: it denies reading a
/// locked file.
pub(super) fn lock_path(session: &Path) -> Option<PathBuf> {
    cfg!(windows).then(|| session.with_extension("lock"))
}

/// Returns true if a process writes the file.
pub(super) fn is_locked(path: &Path) -> bool {
    File::open(lock_path(path).as_deref().unwrap_or(path))
        .is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

#[cfg(test)]
mod tests {
    use super::super::super::registry::Create;
    use super::super::super::{StepPlaces, StoreBackend as _, WriteRight};
    use super::super::MAX_FILE_BYTES;
    use super::*;
    use crate::Session;

    #[cfg(unix)]
    #[test]
    fn a_closed_file_can_be_locked_while_a_process_that_is_being_started_has_a_copy_of_it() {
        let folder = rath_test_support::temp_dir();
        let store = Jsonl::open(&folder.path().display().to_string(), Create::Never).expect("a store");
        let family = BranchId([1; 16]);
        let mut open = store.new_file(family, &Holder::this_process()).expect("a file");
        std::fs::rename(open.unpublished.take().expect("a name"), store.path(family)).expect("renamed");
        let copy = open.file.try_clone().expect("a copy");
        assert!(store.lock_idle(family).is_err(), "it is being written");
        drop(open);
        assert!(store.lock_idle(family).is_ok(), "it was closed");
        drop(copy);
    }

    #[test]
    fn a_session_that_is_too_long_costs_no_other_one_its_store() {
        let folder = rath_test_support::temp_dir();
        let store = Jsonl::open(&folder.path().display().to_string(), Create::Never).expect("a store");
        let rows = StepPlaces::new();
        let write = |session: &Session, right, after: Option<StepId>| {
            let steps: Vec<Step> = session.lineage().walk().into_iter().cloned().collect();
            let new = after.map_or(0, |after| steps.iter().position(|step| step.id() == after).expect("a step") + 1);
            let (branch, steps) = (session.id(), steps[new..].to_vec());
            Write {
                family: branch,
                branch,
                right,
                after,
                steps,
                title: None,
                newest_json: None,
                signer: None,
                unsigned: HashSet::new(),
            }
        };
        let mut long = Session::user("one");
        let head = long.head().expect("a step").id();
        let mut answers =
            store.write(&[write(&long, WriteRight::New(Holder::this_process().into()), None)], &rows).expect("written");
        answers.remove(0).expect("stored");
        store.lock().open.get_mut(&long.id()).expect("open").length = MAX_FILE_BYTES - 10;

        long.push(rath_record::Chunk::assistant("two"));
        let other = Session::user("another");
        let group = [
            write(&long, WriteRight::Held(super::super::FIRST_EPOCH), Some(head)),
            write(&other, WriteRight::New(Holder::this_process().into()), None),
        ];
        let answers = store.write(&group, &rows).expect("the store can be written");
        let message = answers[0].as_ref().expect_err("it is too long").message();
        assert!(message.contains("is too long, the limit is 4294967296"), "{message}");
        assert!(answers[1].is_ok());
        let third = Session::user("a third");
        let answers = store
            .write(&[write(&third, WriteRight::New(Holder::this_process().into()), None)], &rows)
            .expect("written");
        assert!(answers[0].is_ok());
    }
}
