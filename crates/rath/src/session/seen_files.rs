//! Looking at the files of a session: what is seen is compared with the record, and goes on it.

use std::sync::Arc;

use rath_record::chunk::{Chunk, Effect, Observed, Tree};
use rath_record::view;

use super::Session;
use super::branch_dirs::{BranchDir, BranchDirs, CallChanges, DirRequest, OutdatedFiles, placed_branch};
use super::changed_paths::ChangedPaths;
use super::mirror::is_unseen_note;
use super::put_back::PutBackReport;
use super::versions::{self, Versions};
use crate::blocking::run_blocking;
use crate::session::Result;

/// The files of a session, compared with its record.
pub(super) enum SeenFiles {
    AsRecorded,
    Changed(Observed),
    /// They could not be looked at.
    Unseen,
}

impl SeenFiles {
    /// Adds changes that the trees do not show. `recorded` is the tree on the record.
    pub(super) fn add(&mut self, recorded: Tree, changes: Vec<Effect>) {
        let mut observed = match std::mem::replace(self, SeenFiles::Unseen) {
            SeenFiles::Unseen => return,
            SeenFiles::AsRecorded => Observed::new(recorded),
            SeenFiles::Changed(observed) => observed,
        };
        let is_new = |effect: &Effect| !observed.effects.iter().any(|known| known.path == effect.path);
        let new: Vec<_> = changes.into_iter().filter(is_new).collect();
        observed.effects.extend(new);
        observed.effects.sort_by(|one, other| one.path.cmp(&other.path));
        *self = SeenFiles::Changed(observed);
    }
}

impl Session {
    /// Returns the newest tree of the directory before the next call: that of this record, or of the one that this session works
    /// within.
    pub(crate) fn tree_before_call(&self) -> Option<Tree> {
        let known = self.tree().or_else(|| view::unobserved(&self.record)?.since);
        known.or_else(|| self.live.place.within.as_ref()?.tree_before_call())
    }

    /// Returns the part of a change that one of several parallel calls made: the tree with that part alone, and its effects.
    ///
    /// The given effects were collected whenever one of the calls ended, so they may name files that were temporary.
    pub(crate) async fn changes_of_call(
        &self,
        before: Tree,
        after: Tree,
        effects: Vec<Effect>,
    ) -> Result<(Tree, Vec<Effect>)> {
        self.with_versions(move |session, versions| {
            let tree = versions.with_changes(&before, &after, &effects)?;
            let changes = all_changes(versions, &before, &tree, &effects)?;
            session.sync_versions().map(|()| (tree, changes))
        })
        .await
    }

    /// Returns the changes from one tree to another, with the given effects on files that have no version.
    pub(crate) async fn changes_between(&self, before: Tree, after: Tree, effects: Vec<Effect>) -> Result<Vec<Effect>> {
        self.with_versions(move |_, versions| all_changes(versions, &before, &after, &effects)).await
    }

    /// Returns the changes that calls on this record made, if they were made in the directory of the session that this one works
    /// within.
    pub(crate) fn effects_in_this_directory(&self) -> Vec<Effect> {
        if self.live.place.within.is_none() {
            return Vec::new();
        }
        let steps = self.as_record().steps().into_iter();
        // Changes that were observed between calls are those of others: of another sub-agent, or of the user.
        let by_calls = steps.filter(|step| !matches!(step.chunk(), Chunk::Observed(_)));
        by_calls.flat_map(|step| step.chunk().effects()).cloned().collect()
    }

    /// Takes a snapshot before a tool may change files, and records changes that no call on this record is known to have made.
    pub(crate) async fn observe(&mut self) -> Result<()> {
        let seen = self.see_files().await?;
        self.record_seen(seen);
        Ok(())
    }

    /// Takes a snapshot, and returns the step to record, if the files are not as the record says.
    pub(super) async fn see_files(&self) -> Result<SeenFiles> {
        let unobserved = view::unobserved(&self.record);
        let (since, calls) = unobserved.map_or((None, Vec::new()), |it| (it.since, it.calls));
        let known = since.or_else(|| self.tree());
        let policy = self.policy().cloned();
        let observe = move |branch_dirs: &BranchDirs, dir: Arc<BranchDir>| {
            branch_dirs.observe(&dir, known.as_ref(), policy.as_ref())
        };
        Ok(match Box::pin(self.with_files(observe)).await? {
            Some(Some(observed)) => SeenFiles::Changed(observed.with_calls(calls)),
            Some(None) => SeenFiles::AsRecorded,
            None => SeenFiles::Unseen,
        })
    }

    pub(super) fn record_seen(&mut self, seen: SeenFiles) {
        match seen {
            SeenFiles::Changed(observed) => _ = self.push(observed),
            SeenFiles::AsRecorded => {}
            SeenFiles::Unseen => self.record_unseen(),
        }
    }

    /// Records the files that a session begins with, if its record has none: those of its directory, or those that the directory
    /// of a fork will be made from. A replay records what was recorded.
    pub(crate) async fn record_first_tree(&mut self) -> Result<()> {
        if self.place().is_none() || self.tree().is_some() || view::unobserved(&self.record).is_some() {
            return Ok(());
        }
        if let Some(replay) = self.replaying() {
            let recorded = replay.next_look(self);
            recorded.into_iter().for_each(|step| self.append_recorded(&step));
            return Ok(());
        }
        if self.live.place.within.is_some() || self.is_guest() {
            return Ok(());
        }
        if self.mirror().await?.is_some() {
            // If a sandbox elsewhere cannot be forked, the tools of a fork report the error.
            let is_own = self.opened_dirs().is_some_and(|dirs| dirs.is_of_fork());
            let is_fork = placed_branch(&self.record) != Some(self.branch.id);
            return if is_fork && !is_own { Ok(()) } else { self.observe().await };
        }
        let (session, policy) = (self.quiet(), self.policy().cloned());
        let observe = move || {
            let observed = session.with_dir_request(|dirs, request| dirs.observe_first(request, policy.as_ref()))?;
            session.sync_versions().map(|()| observed)
        };
        let observed = run_blocking(observe).await.map_err(|error| error.with_session(self))?;
        observed.into_iter().for_each(|observed| _ = self.push(observed));
        Ok(())
    }

    /// Looks at the files if calls were started whose end was not observed, and records the state that they are in.
    ///
    /// Called before such a call is closed. If the directory is not there, the record goes on to say that it was not
    /// observed.
    pub(crate) async fn look(&mut self) -> Result<()> {
        if view::unobserved(&self.record).is_none() {
            return Ok(());
        }
        let observed = self.find_unrecorded(OutdatedFiles::New).await?;
        observed.into_iter().for_each(|observed| _ = self.push(observed));
        Ok(())
    }

    /// Returns the state of the files, if it is not the one on the record and can be seen.
    pub(super) async fn find_unrecorded(&self, listed: OutdatedFiles) -> Result<Option<Observed>> {
        if self.place().is_none() || self.is_guest() || self.replaying().is_some() {
            return Ok(None);
        }
        let session = self.quiet();
        let look = move || {
            if session.branch_dirs()?.is_there() { session.changes_since_record(listed) } else { Ok(None) }
        };
        Box::pin(self.with_fetched_files(look)).await.map_err(|error| error.with_session(self))
    }

    /// Takes a snapshot after a tool may have changed files, and puts back those for which `refuse` returns a reason.
    pub(crate) async fn changes_except(
        &self,
        is_approved: bool,
        refuse: impl Fn(&Effect, &ChangedPaths<'_>) -> Option<String> + Send + 'static,
    ) -> Result<CallChanges> {
        let policy = self.policy().cloned();
        let look = move |_: &BranchDirs, dir: Arc<BranchDir>| dir.changes_except(policy.as_ref(), is_approved, refuse);
        let unseen = || CallChanges { put_back: PutBackReport::default(), changes: Ok(None) };
        Ok(Box::pin(self.with_files(look)).await?.unwrap_or_else(unseen))
    }

    /// Returns the state of the files, with the changes since the tree on the record. None if there are no changes and no call
    /// may have made some, or if nothing is known about the files. Blocks; creates and takes over nothing.
    ///
    /// The state is stored, and can be recorded.
    pub(crate) fn changes_since_record(&self, listed: OutdatedFiles) -> Result<Option<Observed>> {
        if let Some(session) = &self.live.place.within {
            return session.changes_since_record(listed);
        }
        let branch_dirs = self.branch_dirs()?;
        let (branch, record, secrets) = (self.branch.id, &self.record, self.secrets());
        let request = DirRequest { branch, record, takes_over_from: None, secrets };
        let observed = branch_dirs.changes_since_record(&request, listed)?;
        if observed.is_some() {
            branch_dirs.sync()?;
        }
        Ok(observed)
    }
}

/// Returns the changes from one tree to another by path, with the given effects on files that have no version.
fn all_changes(versions: &Versions, before: &Tree, after: &Tree, effects: &[Effect]) -> Result<Vec<Effect>> {
    let mut changes = versions::untracked(effects);
    let tracked = versions.diff(Some(before), after)?;
    let is_new = |effect: &Effect| !changes.iter().any(|known| known.path == effect.path);
    let tracked: Vec<_> = tracked.into_iter().filter(is_new).collect();
    changes.extend(tracked);
    changes.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(changes)
}

/// Returns true for chunks that record an observation of the workspace, or that it could not be observed.
pub(crate) fn is_of_workspace(chunk: &Chunk) -> bool {
    matches!(chunk, Chunk::Observed(_) | Chunk::Restored(_) | Chunk::Checked(_) | Chunk::Placed(_))
        || is_unseen_note(chunk)
}
