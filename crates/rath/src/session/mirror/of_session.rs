//! The mirror of a session: looking at its files and changing them, and saying that they cannot be seen.

use std::collections::HashSet;
use std::sync::Arc;

use rath_record::chunk::{Chunk, Placed};
use rath_record::view;

use super::Mirror;
use crate::blocking::{run_blocking, run_task};
use crate::error::ErrorKind;
use crate::session::branch_dirs::{BranchDir, BranchDirs};
use crate::session::placement::Placement;
use crate::session::{Error, Result, Session};

/// The texts of a note about files that cannot be seen, around the place and before the reason.
const UNSEEN_START: &str = "the files in ";
const UNSEEN_MIDDLE: &str = " are not versioned: ";

/// Returns true for a note about files that cannot be seen.
pub(crate) fn is_unseen_note(chunk: &Chunk) -> bool {
    let Chunk::Note(note) = chunk else { return false };
    note.text.as_str().is_some_and(|text| text.starts_with(UNSEEN_START) && text.contains(UNSEEN_MIDDLE))
}

impl Session {
    /// Runs `work` on the session's directory like [`with_dir`](Session::with_dir), with its files as they are now, and none if they
    /// cannot be seen. Files that the work changes are changed in the sandbox.
    pub(crate) async fn with_files<T: Send + 'static>(
        &self,
        work: impl FnOnce(&BranchDirs, Arc<BranchDir>) -> Result<T> + Send + 'static,
    ) -> Result<Option<T>> {
        let Some(mirror) = self.mirror().await? else { return self.with_dir(work).await.map(Some) };
        let session = self.quiet();
        // A call that is not polled while this one waits for the lock may hold it.
        let fetch_and_work = async move {
            let fetched = mirror.fetch().await;
            if !fetched.are_seen() {
                // A call whose beginning was not seen has no changes that could be told.
                session.assigned_dir().into_iter().for_each(|dir| dir.forget_last_look());
                return Ok(None);
            }
            let done = session.work_in_dir(work).await?;
            fetched.send().await.map(|()| Some(done))
        };
        run_task(fetch_and_work).await.map_err(|error| error.with_session(self))
    }

    /// Runs `work` on the session's directory, which may be taken over from another branch. Files elsewhere are changed if their copies
    /// are.
    pub(in crate::session) async fn work_in_taken_dir<T: Send + 'static>(
        &self,
        work: impl FnOnce(&BranchDirs, Arc<BranchDir>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let Some(mirror) = self.mirror().await? else { return self.work_in_dir(work).await };
        let session = self.quiet();
        let fetch_and_work = async move {
            let fetched = mirror.fetch().await;
            let done = session.work_in_dir(work).await?;
            fetched.send().await.map(|()| done)
        };
        run_task(fetch_and_work).await.map_err(|error| error.with_session(self))
    }

    /// Runs `work` in the blocking pool, with the files of the session as they are now, if some are on the record and they can be seen.
    pub(in crate::session) async fn with_fetched_files<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let has_files =
            self.tree().is_some() || view::unobserved(self.as_record()).is_some_and(|it| it.since.is_some());
        // The work finds an error by itself.
        let mirror = if has_files { self.mirror().await.ok().flatten() } else { None };
        let Some(mirror) = mirror else { return run_blocking(work).await };
        let fetch_and_work = async move {
            let fetched = mirror.fetch().await;
            let done = run_blocking(work).await?;
            fetched.send().await.map(|()| done)
        };
        run_task(fetch_and_work).await
    }

    /// Returns the mirror of the session's files; none if they are in a directory of this machine, or in a replay.
    pub(in crate::session) async fn mirror(&self) -> Result<Option<Arc<Mirror>>> {
        if self.replaying().is_some() {
            return Ok(None);
        }
        self.require_own("use its files")?;
        if let Some(branch_dirs) = self.live.place.branch_dirs()
            && branch_dirs.sandbox().directory().is_some()
        {
            return Ok(None);
        }
        let session = self.quiet();
        let open = move || {
            let dirs = session.session_dirs()?;
            let mirror = dirs.open_mirror(session.live.mirrors_in.as_deref())?;
            // The work of a call is done where the call was made.
            let branch = session.outermost();
            Ok::<_, Error>((mirror, dirs.open_fork(&branch.dir_request())?))
        };
        let (mirror, fork) = run_blocking(open).await.map_err(|error| error.with_session(self))?;
        let Some((dirs, start)) = fork else { return Ok(mirror) };
        let Some(mirror) = dirs.mirror().cloned() else { return Ok(mirror) };
        let filled = mirror.clone();
        run_task(async move { filled.fill(start).await }).await.map_err(|error: Error| error.with_session(self))?;
        Ok(Some(mirror))
    }

    /// Puts on the record that the files are not known from here on, if they could not be seen when they were last looked at.
    pub(crate) fn record_unseen(&mut self) {
        let reason = self.unseen_reason();
        let Some((reason, place)) = reason.zip(self.place()) else { return };
        let note = format!("{UNSEEN_START}{place}{UNSEEN_MIDDLE}{reason}");
        let note = self.secrets().hide(&note).unwrap_or(note);
        let is_noted = self.as_record().find_newest(|step| match step.chunk() {
            Chunk::Note(known) if known.text.as_str() == Some(&note) => Some(true),
            chunk => (chunk.tree().is_some() || matches!(chunk, Chunk::Placed(_))).then_some(false),
        });
        let has_tree = self.tree().is_some() || view::unobserved(self.as_record()).is_some_and(|it| it.since.is_some());
        if has_tree {
            // At a place that is recorded anew, no file is known.
            self.push(Placed::new(place.as_str()));
        }
        if has_tree || is_noted != Some(true) {
            self.push(Chunk::note(note));
        }
    }

    /// Returns the reason why the files could not be seen when they were last looked at; none if they were seen, or are on this machine.
    pub(in crate::session) fn unseen_reason(&self) -> Option<String> {
        self.opened_dirs()?.mirror()?.unseen_reason()
    }

    /// Returns the error of an operation on files that cannot be seen.
    pub(in crate::session) fn unseen_error(&self) -> Error {
        let reason = self.unseen_reason().unwrap_or_else(|| "they were not looked at".to_owned());
        let place = self.place().map(|place| place.to_string()).unwrap_or_default();
        Error::new(ErrorKind::Place, format_args!("the files in {place} cannot be seen: {reason}")).with_session(self)
    }

    /// Moves a mirror that ends with the session to the folder of mirrors beside its store, with all versions.
    pub(in crate::session) async fn move_mirror(&mut self) -> Result<()> {
        let temporary = self.live.place.branch_dirs().and_then(|dirs| dirs.mirror());
        if temporary.is_none_or(|mirror| !mirror.is_temporary()) {
            return Ok(());
        }
        let session = self.quiet();
        let moved = run_blocking(move || session.copy_mirror()).await.map_err(|error| error.with_session(self))?;
        moved.into_iter().for_each(|dirs| self.live.place = Placement::in_dirs(dirs));
        Ok(())
    }

    /// Copies all versions of a mirror that ends with the session to the one beside the store; none if there is no such store. Blocks.
    fn copy_mirror(&self) -> Result<Option<BranchDirs>> {
        let (from, Some(folder)) = (self.branch_dirs()?, self.live.mirrors_in.as_deref()) else { return Ok(None) };
        let dirs = BranchDirs::new(from.sandbox().clone());
        dirs.open_mirror(Some(folder))?;
        if let (Some(versions), Some(target)) = (from.versions()?, dirs.versions()?) {
            let lineage = self.lineage();
            let trees = lineage.walk().into_iter().filter_map(|step| step.chunk().tree());
            trees.collect::<HashSet<_>>().into_iter().try_for_each(|tree| target.take_from(versions, tree))?;
        }
        Ok(Some(dirs))
    }
}
