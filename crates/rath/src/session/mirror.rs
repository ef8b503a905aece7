//! Versions of files that are in no directory of this machine, as in a container or on another machine.
//!
//! Before and after each call that may write, the files of the sandbox are copied to a directory of this machine, the mirror, by `list`
//! and `read`; snapshots are taken of the mirror. A file with the same mark as before is not read again. When a session gets the
//! files of another version, the mirror gets them first, and the changed files are written to the sandbox after that.
//!
//! The sandbox is what counts: a copy that differs from it is replaced by the next fetch. If the files cannot be listed or read, or are too
//! many, nothing is said about them: see `Session::record_unseen`.

mod copies;
mod folders;
mod of_session;
mod plan;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::{self, FuturesUnordered};

use self::copies::{CopiesDir, MirrorLock, NewCopy, Strays, digest_of};
use self::folders::mirror_path;
pub(crate) use self::folders::{dir_of_stored_place, mirrors_folder, remove_copies};
pub(crate) use self::of_session::is_unseen_note;
use self::plan::{
    ExceededLimit, FileStat, GITIGNORE, KnownFile, KnownFiles, ListedDir, Listing, MirrorLimits, Walk, join,
    plan_fetch, plan_send,
};
use super::{Error, Result};
use crate::blocking::run_blocking;
use crate::error::ErrorKind;
use crate::sandbox::{ByteRange, DirEntry, FileKind, Sandbox, TempDir};
use crate::store::{make_folder, rath_dir};

/// The time that a fetch may take.
const MAX_FETCH_TIME: Duration = Duration::from_secs(300);

/// The number of directories and files that are listed and read at a time.
const MAX_PARALLEL_READS: usize = 8;

/// The number of bytes from which on files that were read are written to the disk.
const MAX_UNWRITTEN_BYTES: usize = 16 << 20;

/// A directory of this machine with copies of the files of a sandbox.
pub(crate) struct Mirror {
    sandbox: Sandbox,
    copies: CopiesDir,
    limits: MirrorLimits,
    state: Mutex<MirrorState>,
    /// The directory, if it ends with the session.
    temporary: Option<TempDir>,
}

/// The files that a new sandbox begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MirrorStart {
    /// Those of the mirror.
    Files,
    /// Those that it has by itself.
    AsMade,
}

#[derive(Default)]
struct MirrorState {
    known: KnownFiles,
    /// The list of known files on the disk, as it was read or written last. Another process may have written it since.
    list: Option<FileStat>,
    /// True while the mirror is locked and has the files of the sandbox.
    is_current: bool,
    /// The reason why the files could not be seen when they were last looked at.
    unseen: Option<UnseenFiles>,
}

/// The reason why files are not seen.
#[derive(Clone, Debug)]
struct UnseenFiles {
    reason: String,
    /// True if they are not looked at again: it would take as long as before.
    is_final: bool,
}

impl UnseenFiles {
    fn failed(reason: impl ToString) -> Self {
        UnseenFiles { reason: reason.to_string(), is_final: false }
    }
}

impl From<ExceededLimit> for UnseenFiles {
    fn from(limit: ExceededLimit) -> Self {
        UnseenFiles { reason: limit.to_string(), is_final: true }
    }
}

impl From<Error> for UnseenFiles {
    fn from(error: Error) -> Self {
        UnseenFiles::failed(error.message())
    }
}

impl From<std::io::Error> for UnseenFiles {
    fn from(error: std::io::Error) -> Self {
        UnseenFiles::failed(error)
    }
}

/// The files of a sandbox and the content of those that were read with the listing.
type ListedFiles = (Listing, HashMap<String, Vec<u8>>);

impl Mirror {
    /// Opens the mirror of a sandbox: in a folder of mirrors, or in a temporary directory. Blocks.
    pub(super) fn open(sandbox: &Sandbox, folder: Option<&Path>) -> Result<Self> {
        let cannot_open = |error| {
            let message = format!("cannot make a directory for versions of the files in {}", sandbox.uri());
            Error::new(ErrorKind::Place, message).because(error)
        };
        let (root, temporary) = match folder {
            Some(folder) => {
                rath_dir::check(folder).map_err(cannot_open)?;
                (mirror_path(folder, sandbox.uri()), None)
            }
            None => {
                let temporary = TempDir::create_blocking("mirror").map_err(cannot_open)?;
                (temporary.path().to_owned(), Some(temporary))
            }
        };
        make_folder(&root).map_err(cannot_open)?;
        let (sandbox, copies) = (sandbox.clone(), CopiesDir::new(root));
        Ok(Mirror { sandbox, copies, limits: MirrorLimits::DEFAULT, state: Mutex::default(), temporary })
    }

    /// Opens the mirror of the sandbox of a fork, whose copies are in this directory.
    pub(super) fn of_fork(sandbox: Sandbox, root: PathBuf) -> Self {
        let (copies, limits) = (CopiesDir::new(root), MirrorLimits::DEFAULT);
        Mirror { sandbox, copies, limits, state: Mutex::default(), temporary: None }
    }

    /// Returns the sandbox.
    pub(super) fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    /// Returns true if there is a mirror in a directory that was fetched, or sent, as a whole before. Blocks.
    pub(super) fn is_complete_in(root: &Path) -> bool {
        CopiesDir::new(root.to_owned()).list_stat().is_some()
    }

    /// Gives a new sandbox the files that the mirror has, and no others, unless that was done before.
    pub(super) async fn fill(&self, start: MirrorStart) -> Result<()> {
        let copies = self.copies.clone();
        let _lock = run_blocking(move || Ok::<_, Error>(copies.lock()?)).await?;
        let root = self.root().to_owned();
        if run_blocking(move || Ok::<_, Error>(Mirror::is_complete_in(&root))).await? {
            return Ok(());
        }
        let cannot_see = |unseen: UnseenFiles| Error::new(ErrorKind::Place, unseen.reason);
        if start == MirrorStart::Files {
            let nothing = KnownFiles::default();
            let listed = tokio::time::timeout(MAX_FETCH_TIME, self.list_files(&nothing)).await;
            let (listing, _) = listed
                .map_err(|_| Error::new(ErrorKind::Place, "its files cannot be listed in time"))?
                .map_err(cannot_see)?;
            self.state().known = KnownFiles::unread(&listing);
            self.send().await?;
        }
        let known = self.state().known.clone();
        self.save(known, &KnownFiles::default()).await.map_err(cannot_see)
    }

    /// Returns the directory with the copies, in whose `.rath` the versions are.
    pub(super) fn root(&self) -> &Path {
        self.copies.root()
    }

    /// Returns true if the mirror is removed with the session.
    fn is_temporary(&self) -> bool {
        self.temporary.is_some()
    }

    /// Returns true while the mirror has the files of the sandbox.
    pub(super) fn is_current(&self) -> bool {
        self.state().is_current
    }

    /// Returns the reason why the files could not be seen when they were last looked at.
    pub(super) fn unseen_reason(&self) -> Option<String> {
        self.state().unseen.as_ref().map(|unseen| unseen.reason.clone())
    }

    fn state(&self) -> MutexGuard<'_, MirrorState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Brings the copies to the files of the sandbox, as far as these can be seen. No other fetch changes them before the result is
    /// dropped.
    async fn fetch(self: &Arc<Self>) -> FetchedFiles {
        let (known, list) = {
            let mut state = self.state();
            if let Some(unseen) = state.unseen.clone().filter(|unseen| unseen.is_final) {
                return FetchedFiles { mirror: self.clone(), lock: None, unseen: Some(unseen) };
            }
            // If the fetch is dropped, the list is read again.
            (std::mem::take(&mut state.known), state.list.take())
        };
        let copies = self.copies.clone();
        let (lock, unseen) = match run_blocking(move || copies.lock()).await {
            Err(error) => (None, Some(UnseenFiles::from(error))),
            Ok(lock) => {
                let fetched = tokio::time::timeout(MAX_FETCH_TIME, self.fetch_files(known, list)).await;
                let fetched = fetched.unwrap_or_else(|_| {
                    let reason = format!("they could not be read in {} seconds", MAX_FETCH_TIME.as_secs());
                    Err(UnseenFiles { reason, is_final: true })
                });
                (Some(lock), fetched.err())
            }
        };
        let mut state = self.state();
        (state.is_current, state.unseen) = (unseen.is_none(), unseen.clone());
        drop(state);
        FetchedFiles { mirror: self.clone(), lock, unseen }
    }

    async fn fetch_files(&self, known: KnownFiles, list: Option<FileStat>) -> Result<(), UnseenFiles> {
        let copies = self.copies.clone();
        let open = move || {
            let is_same = list.is_some() && copies.list_stat() == list;
            let known = if is_same { known } else { copies.read_known(&known) };
            Ok::<_, UnseenFiles>((known, copies.read_copies(Strays::Remove)?))
        };
        let (mut known, found) = run_blocking(open).await?;
        let before = known.clone();
        let (listing, mut contents) = self.list_files(&known).await?;
        let plan = plan_fetch(&listing, &found, &known);
        let copies = self.copies.clone();
        let prepare = move || {
            copies.prepare(&plan, &mut known)?;
            Ok::<_, UnseenFiles>((plan, known))
        };
        let (plan, known) = run_blocking(prepare).await?;
        let mut known = known;
        let (mut unwritten, mut unwritten_bytes, mut total_bytes) = (Vec::new(), 0, 0);
        let known_before = &before;
        let mut reads = stream::iter(plan.read)
            .map(|(path, mark)| {
                let read_before = contents.remove(&path);
                async move {
                    let content = match read_before {
                        Some(content) => Ok(Some(content)),
                        None => self.read_file(&path, known_before).await,
                    };
                    (path, mark, content)
                }
            })
            .buffer_unordered(MAX_PARALLEL_READS);
        while let Some((path, mark, content)) = reads.next().await {
            let content = content?;
            let bytes = content.as_ref().map_or(0, Vec::len);
            total_bytes += bytes as u64;
            if total_bytes > self.limits.total_bytes {
                return Err(ExceededLimit::TotalBytes(self.limits.total_bytes).into());
            }
            unwritten_bytes += bytes;
            unwritten.push((path, mark, content));
            if unwritten_bytes > MAX_UNWRITTEN_BYTES {
                known = self.write_copies(std::mem::take(&mut unwritten), known).await?;
                unwritten_bytes = 0;
            }
        }
        drop(reads);
        known = self.write_copies(unwritten, known).await?;
        self.save(known, &before).await
    }

    /// Lists the files of the sandbox, without those that are ignored and were never seen.
    async fn list_files(&self, known: &KnownFiles) -> Result<ListedFiles, UnseenFiles> {
        let (mut walk, mut contents) = (Walk::new(self.limits, known), HashMap::new());
        let (mut waiting, mut running) = (vec![Walk::top()], FuturesUnordered::new());
        loop {
            while running.len() < MAX_PARALLEL_READS
                && let Some(directory) = waiting.pop()
            {
                running.push(async move { (self.list_dir(&directory, known).await, directory) });
            }
            let Some((listed, directory)) = running.next().await else { break };
            let Some((entries, gitignore)) = listed? else {
                walk.remove(&directory);
                continue;
            };
            waiting.extend(walk.add(&directory, entries, gitignore.as_deref())?);
            contents.extend(gitignore.map(|content| (join(&directory.path, GITIGNORE), content)));
        }
        Ok((walk.finish(), contents))
    }

    /// Returns the entries of a directory and the content of its `.gitignore`; none if it is gone, or was never seen and cannot be listed.
    async fn list_dir(
        &self,
        directory: &ListedDir,
        known: &KnownFiles,
    ) -> Result<Option<(Vec<DirEntry>, Option<Vec<u8>>)>, UnseenFiles> {
        let path = &directory.path;
        let entries = match self.sandbox.list(path).await {
            Ok(entries) => entries,
            Err(error) => {
                let is_gone = !path.is_empty() && matches!(self.sandbox.stat(path).await, Ok(None));
                return match is_gone || !path.is_empty() && !known.has_below(path) {
                    true => Ok(None),
                    false if path.is_empty() => Err(UnseenFiles::failed(error.message())),
                    false => Err(UnseenFiles::failed(format!("`{path}` cannot be listed: {}", error.message()))),
                };
            }
        };
        let is_rules = |entry: &&DirEntry| entry.name == GITIGNORE && entry.kind == FileKind::File;
        let Some(rules) = entries.iter().find(is_rules).filter(|entry| entry.bytes <= self.limits.file_bytes) else {
            return Ok(Some((entries, None)));
        };
        let path = join(path, GITIGNORE);
        let copied = known.files.get(&path).filter(|known| rules.mark.is_some() && known.mark == rules.mark);
        if let Some(digest) = copied.and_then(|known| known.digest.clone()) {
            let (copies, path) = (self.copies.clone(), path.clone());
            let copy = run_blocking(move || copies.read(&path)).await;
            if let Some(content) = copy.ok().filter(|content| digest_of(content) == digest) {
                return Ok(Some((entries, Some(content))));
            }
        }
        let content = self.read_file(&path, known).await?;
        Ok(Some((entries, content)))
    }

    /// Returns the content of a file; none if it is gone, or was never seen and cannot be read.
    async fn read_file(&self, path: &str, known: &KnownFiles) -> Result<Option<Vec<u8>>, UnseenFiles> {
        // One byte more, to tell a file that has grown.
        let range = ByteRange { offset: 0, max_len: self.limits.file_bytes.saturating_add(1) };
        match self.sandbox.read(path, range).await {
            Ok(content) => Ok(Some(content)),
            Err(error) => {
                let is_gone = matches!(self.sandbox.stat(path).await, Ok(None));
                match is_gone || !known.files.contains_key(path) {
                    true => Ok(None),
                    false => Err(UnseenFiles::failed(format!("`{path}` cannot be read: {}", error.message()))),
                }
            }
        }
    }

    /// Writes copies of files that were read, and removes those of files that are gone.
    async fn write_copies(
        &self,
        files: Vec<(String, Option<String>, Option<Vec<u8>>)>,
        mut known: KnownFiles,
    ) -> Result<KnownFiles, UnseenFiles> {
        let (copies, limit) = (self.copies.clone(), self.limits.file_bytes);
        let write = move || {
            let mut new = Vec::new();
            for (path, mark, content) in files {
                match content {
                    None => copies.remove(&path, &mut known)?,
                    Some(content) if content.len() as u64 > limit => {
                        copies.write_large(&path, content.len() as u64, mark, &mut known)?;
                    }
                    Some(content) => new.push(NewCopy { path, mark, content }),
                }
            }
            copies.write_copies(new, &mut known)?;
            Ok::<_, UnseenFiles>(known)
        };
        run_blocking(write).await
    }

    /// Keeps the known files, also for later processes if they are not those from before.
    async fn save(&self, known: KnownFiles, before: &KnownFiles) -> Result<(), UnseenFiles> {
        let (copies, has_changed) = (self.copies.clone(), known != *before);
        let save = move || {
            if has_changed || copies.list_stat().is_none() {
                copies.write_known(&known)?;
            }
            Ok::<_, UnseenFiles>((known, copies.list_stat()))
        };
        let (known, list) = run_blocking(save).await?;
        let mut state = self.state();
        (state.known, state.list) = (known, list);
        Ok(())
    }

    /// Writes the files to the sandbox that are not as they were fetched, and removes those that are gone.
    async fn send(&self) -> Result<()> {
        let (known, copies) = (self.state().known.clone(), self.copies.clone());
        let before = known.clone();
        let plan = run_blocking(move || Ok::<_, Error>(plan_send(&copies.read_copies(Strays::List)?, &known)));
        let plan = plan.await?.map_err(|path| {
            let message = format!("`{path}` cannot be written to {}: it is no ordinary file", self.sandbox.uri());
            Error::new(ErrorKind::Place, message).with_hint("nothing was changed there")
        })?;
        if plan.remove.is_empty() && plan.write.is_empty() {
            return Ok(());
        }
        let mut known = before.clone();
        // First: a sandbox that cannot remove files has none of the new ones then.
        for path in plan.remove {
            self.sandbox.remove(&path).await?;
            known.remove(&path);
        }
        for path in plan.write {
            let (copies, of_path) = (self.copies.clone(), path.clone());
            let content = run_blocking(move || Ok::<_, Error>(copies.read(&of_path)?)).await?;
            self.sandbox.write(&path, &content).await?;
            let (copies, digest, mut noted) = (self.copies.clone(), Some(digest_of(&content)), known);
            let note = move || {
                copies.note(&path, KnownFile { mark: None, digest, copy: None }, &mut noted)?;
                Ok::<_, Error>(noted)
            };
            known = run_blocking(note).await?;
        }
        self.save(known, &before).await.map_err(|unseen| Error::new(ErrorKind::Place, unseen.reason))
    }
}

/// A mirror that has the files of its sandbox, unless these could not be seen. Until it is dropped, no other fetch changes the mirror.
struct FetchedFiles {
    mirror: Arc<Mirror>,
    lock: Option<MirrorLock>,
    unseen: Option<UnseenFiles>,
}

impl FetchedFiles {
    fn are_seen(&self) -> bool {
        self.unseen.is_none()
    }

    /// Gives the sandbox the changes that were made to the mirror meanwhile.
    async fn send(self) -> Result<()> {
        if self.are_seen() { self.mirror.send().await } else { Ok(()) }
    }
}

impl Drop for FetchedFiles {
    fn drop(&mut self) {
        self.mirror.state().is_current = false;
        drop(self.lock.take());
    }
}

#[cfg(test)]
mod tests;
