//! Where a session works on its files: found when it is needed, looked at around every call, joined by merges.

use std::collections::HashSet;
use std::sync::{Arc, OnceLock};

use rath_record::chunk::{Chunk, Effect, Merged, Strategy, Tree};
use rath_record::{BranchId, Record, Step, lineage, view};

use super::Session;
use crate::error::ErrorKind;
use crate::place::Place;
use crate::sandbox::{Ground, Grounds, Sandbox, Wants};
use crate::session::{Error, Result};
use crate::workspace::{self, Labels, Objects};

/// Where a session works. A fork shares what there is to share, and finds its own directory.
#[derive(Clone, Default)]
pub(super) struct Where {
    /// Made when somebody asks for it, where the session was opened again.
    grounds: Arc<OnceLock<Arc<Grounds>>>,
    /// The session whose directory this one works in: what is done for a call is done where the call is made.
    within: Option<Arc<Session>>,
    /// Whose directory may be taken over, where this one came of a merge. Found when it is needed, where the session was
    /// opened again.
    heir_of: Arc<OnceLock<Option<HeirOf>>>,
}

/// A branch, and what is known to be in its directory.
type HeirOf = (BranchId, Option<Tree>);

impl Where {
    pub(super) fn placed(sandbox: Sandbox) -> Self {
        let grounds = Arc::new(OnceLock::from(Arc::new(Grounds::new(sandbox))));
        Where { grounds, ..Where::default() }
    }

    /// The same for a branch that leaves.
    pub(super) fn left(&self) -> Self {
        Where { grounds: self.grounds.clone(), ..Where::default() }
    }

    /// The same for work that is done for a call.
    pub(super) fn within(&self, session: &Session) -> Self {
        Where { grounds: self.grounds.clone(), within: Some(Arc::new(session.quiet())), ..Where::default() }
    }

    /// The same for what comes of a merge.
    pub(super) fn merged(&self, ours: &Session, theirs: &Session) -> Self {
        let heir_of = ours.head().zip(theirs.head()).and_then(|(ours, theirs)| heir_of(ours, theirs));
        Where { heir_of: Arc::new(OnceLock::from(heir_of)), ..self.clone() }
    }
}

impl Session {
    /// Where its tools run: the sandbox over the directory that its branch works in. A fork's directory is made here.
    pub(crate) fn ground(&self) -> Result<Arc<Ground>> {
        if let Some(session) = &self.live.place.within {
            return session.ground();
        }
        let grounds = self.grounds()?;
        let heir_of = self.live.place.heir_of.get_or_init(|| self.came_of_merging());
        let wants = Wants { branch: self.branch.id, record: &self.record, heir_of: heir_of.as_ref() };
        grounds.of(&wants).map_err(|error| error.with_session(self))
    }

    /// Whose directory may be taken over, where this branch began with a merge and nothing ran on it since: what ran has a
    /// directory already.
    fn came_of_merging(&self) -> Option<HeirOf> {
        let merge = self.record.find_newest(|step| match step.chunk() {
            _ if step.stamp().branch != self.branch.id => Some(None),
            Chunk::Merged(merged) if merged.strategy != Strategy::Aside => Some(Some(step.clone())),
            Chunk::ToolStarted(_) => Some(None),
            _ => None,
        });
        let merge = merge.flatten()?;
        let [ours, theirs] = merge.parents() else { return None };
        heir_of(ours.step()?, theirs.step()?)
    }

    /// The sandbox that the session was placed in, with all that is known of it.
    pub(crate) fn grounds(&self) -> Result<Arc<Grounds>> {
        if let Some(replay) = self.replaying() {
            return replay.grounds().ok_or_else(|| Error::new(ErrorKind::Place, "nothing runs in a replay"));
        }
        if let Some(grounds) = self.live.place.grounds.get() {
            return Ok(grounds.clone());
        }
        let place = self.place().ok_or_else(|| {
            Error::new(ErrorKind::Place, "the session has no place to work in")
                .with_hint("place it with `session.to(..)`")
        })?;
        let sandbox = Sandbox::open(place.as_str())?;
        Ok(self.live.place.grounds.get_or_init(|| Arc::new(Grounds::new(sandbox))).clone())
    }

    /// The versions of its files.
    pub(super) fn objects(&self) -> Result<Objects> {
        let grounds = self.grounds()?;
        let objects = grounds.objects()?;
        objects.cloned().ok_or_else(|| {
            let message = format!("no versions of files are kept in {}", grounds.sandbox().uri());
            Error::new(ErrorKind::Place, message).with_session(self)
        })
    }

    pub(super) fn known_tree(&self) -> Result<Tree> {
        self.tree().ok_or_else(|| {
            let at = self.head().map(|step| format!(" at step {}", step.id().short())).unwrap_or_default();
            Error::new(ErrorKind::Place, format_args!("the session does not say what its files were{at}"))
                .with_hint("files are on the record from the first call on that can write")
                .with_session(self)
        })
    }

    /// Does something with the files where the session works. It may take a while, and does not hold up others.
    pub(super) async fn at_work<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Grounds, Arc<Ground>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let session = self.quiet();
        let work = move || {
            let done = work(&*session.grounds()?, session.ground()?)?;
            session.sync_versions().map(|()| done)
        };
        let done = tokio::task::spawn_blocking(work).await;
        done.map_err(|error| Error::new(ErrorKind::Other, error))?.map_err(|error| error.with_session(self))
    }

    /// Makes durable the versions of its files that steps are about to name, where those steps will be durable.
    pub(super) fn sync_versions(&self) -> Result<()> {
        match self.live.place.grounds.get() {
            Some(grounds) if self.recorder().is_some() => grounds.sync(),
            _ => Ok(()),
        }
    }

    /// The same without holding up others.
    pub(crate) async fn versions_are_durable(&self) -> Result<()> {
        if self.live.place.grounds.get().is_none() {
            return Ok(());
        }
        let session = self.quiet();
        let done = tokio::task::spawn_blocking(move || session.sync_versions()).await;
        done.map_err(|error| Error::new(ErrorKind::Other, error))?.map_err(|error| error.with_session(self))
    }

    /// Finds where its tools run. A fork's directory is made now.
    pub(crate) async fn prepare(&self) -> Result<Arc<Ground>> {
        self.at_work(|_, ground| Ok(ground)).await
    }

    /// What one of several calls changed that ran side by side: a tree with what is its work, and how that differs.
    ///
    /// Its effects are as they were seen whenever one of the calls ended, so they may tell of what was on its way only.
    pub(crate) fn told_apart(&self, before: &Tree, left: &Tree, effects: &[Effect]) -> Result<(Tree, Vec<Effect>)> {
        let objects = self.objects()?;
        let tree = objects.with_changes(before, left, effects)?;
        let mut told = workspace::unkept(effects);
        let kept = objects.diff(Some(before), &tree)?;
        let is_new = |effect: &Effect| !told.iter().any(|known| known.path == effect.path);
        let kept: Vec<_> = kept.into_iter().filter(is_new).collect();
        told.extend(kept);
        told.sort_by(|one, other| one.path.cmp(&other.path));
        self.sync_versions()?;
        Ok((tree, told))
    }

    /// Looks at the files before a tool may change them, and records what nobody on this record did.
    pub(crate) async fn observe(&mut self) -> Result<()> {
        let known = self.tree();
        let found = self.at_work(move |grounds, ground| grounds.observe(&ground, known.as_ref())).await?;
        found.into_iter().for_each(|found| _ = self.push(found));
        Ok(())
    }

    /// Looks at the files after a tool may have changed them.
    pub(crate) async fn look(&self) -> Result<Option<(Tree, Vec<Effect>)>> {
        self.at_work(|_, ground| ground.look()).await
    }

    /// What differs between its files and what the record says of them. Nothing is made or taken over.
    ///
    /// What a call did of which nobody saw the end cannot be told from what others did: then nothing is said to differ.
    pub(crate) fn files_differ(&self) -> Result<Vec<Effect>> {
        let grounds = self.grounds()?;
        let wants = Wants { branch: self.branch.id, record: &self.record, heir_of: None };
        let found = grounds.differ(&wants)?;
        Ok(if self.has_unseen_call() { Vec::new() } else { found })
    }

    /// Whether a call was started since the files were seen last, and did not come to an end that was seen.
    fn has_unseen_call(&self) -> bool {
        let mut ended = HashSet::new();
        for step in self.record.newest_first() {
            match step.chunk() {
                // What a person says that came of a call was not seen.
                Chunk::ToolResult(result) if step.stamp().by.is_some() => _ = ended.insert(&result.call),
                Chunk::ToolStarted(started) if !ended.contains(&started.call) => return true,
                _ => {}
            }
            if step.chunk().tree().is_some() {
                return false;
            }
        }
        false
    }

    /// Where this session works, if the other works elsewhere and has files there.
    pub(super) fn place_to_come_back_to(&self, theirs: &Session) -> Option<Place> {
        let (here, there) = (self.place()?, theirs.place()?);
        (here != there && theirs.tree().is_some()).then_some(here)
    }

    /// What a merge makes of the files of both.
    pub(super) fn join_files(&self, theirs: &Session, strategy: Strategy) -> Result<Merged> {
        let how = Merged::from(strategy);
        let (Some(our_head), Some(their_head)) = (self.head(), theirs.head()) else { return Ok(how) };
        if strategy == Strategy::Aside {
            return Ok(how);
        }
        if let Some(replay) = self.replaying() {
            return Ok(replay.recorded_merge(our_head.id(), their_head.id(), strategy).unwrap_or(how));
        }
        let Some(their_tree) = theirs.tree() else { return Ok(how) };
        let base = lineage::common_ancestor(our_head, their_head).map(|step| Record::at(step.clone()));
        let parted = base.as_ref().and_then(view::tree);
        if parted.as_ref() == Some(&their_tree) {
            return Ok(Merged { tree: self.tree(), ..how });
        }
        let objects = self.objects()?;
        // What they went on from, where the two never had a tree in common: they may have worked elsewhere.
        let began = || view::trees(theirs.as_record()).list.first().map(|first| first.tree.clone());
        if self.place() != theirs.place() {
            objects.take_from(&theirs.objects()?, &their_tree)?;
            began().iter().try_for_each(|tree| objects.take_from(&theirs.objects()?, tree))?;
        }
        let Some(our_tree) = self.tree() else {
            self.sync_versions()?;
            return Ok(Merged { tree: Some(their_tree), ..how });
        };
        let base = parted.filter(|_| self.place() == theirs.place()).or_else(began).unwrap_or_else(|| our_tree.clone());
        let joined = objects.merge(&base, &our_tree, &their_tree, Labels::SIDES)?;
        let ours = objects.diff(Some(&our_tree), &joined.tree)?;
        let mut effects = objects.diff(Some(&their_tree), &joined.tree)?;
        effects.retain(|effect| ours.iter().any(|change| change.path == effect.path));
        let conflicts = joined.conflicts.into_iter().map(|conflict| conflict.recorded()).collect();
        self.sync_versions()?;
        Ok(Merged { tree: Some(joined.tree), effects, conflicts, ..how })
    }
}

/// Whose directory what comes of joining two sides may take over: that of the branch where they parted.
fn heir_of(ours: &Step, theirs: &Step) -> Option<HeirOf> {
    let parted = parted(ours, theirs)?;
    let branch = parted.stamp().branch;
    let left = [ours, theirs].into_iter().find(|side| side.stamp().branch == branch).unwrap_or(&parted);
    Some((branch, view::tree(&Record::at(left.clone()))))
}

/// Where one of two sides left the other, or both left a third.
fn parted(ours: &Step, theirs: &Step) -> Option<Step> {
    let split = lineage::diff(ours, theirs);
    let base = split.base?;
    let is_fork = |step: &Step| matches!(step.chunk(), Chunk::Forked(_));
    // Forks that were made in different processes may begin in the same way, and share steps that are of neither's parent.
    let are_twins = [&split.ours, &split.theirs].iter().all(|side| side.first().is_some_and(|step| !is_fork(step)));
    if !are_twins {
        return Some(base.clone());
    }
    let mut left = false;
    Record::at(base.clone()).find_newest(|step| {
        let found = left.then(|| step.clone());
        left |= is_fork(step);
        found
    })
}

/// Whether a step says where the workspace stood.
pub(crate) fn is_of_workspace(chunk: &Chunk) -> bool {
    matches!(chunk, Chunk::Observed(_) | Chunk::Checked(_))
}
