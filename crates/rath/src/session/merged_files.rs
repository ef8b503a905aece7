//! The files of merged sessions, and the directory that a merged session may take over.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use rath_record::chunk::{Chunk, Forked, Merged, Outcome, Strategy, Tree};
use rath_record::{Record, Step, lineage, view};

use super::Session;
use super::placement::TakeOver;
use super::versions::Versions;
use crate::blocking::run_blocking;
use crate::place::Place;
use crate::session::{Error, Result};

impl Session {
    /// Returns the place of this session, if the other session has files in another place.
    pub(super) fn place_after_merge(&self, theirs: &Session) -> Option<Place> {
        let here = self.place()?;
        let differs = theirs.place().map(|there| there != here && theirs.tree().is_some());
        // Theirs is read after ours, and would void the place of ours.
        let voids = || theirs.as_record().newest_first().any(Step::voids_earlier_decisions);
        differs.unwrap_or_else(voids).then_some(here)
    }

    /// Merges the files of two sessions, and returns the step that records it.
    pub(super) async fn merge_files(&self, theirs: &Session, strategy: Strategy) -> Result<Merged> {
        let plain = Merged::from(strategy);
        let (Some(our_head), Some(their_head)) = (self.head(), theirs.head()) else { return Ok(plain) };
        if strategy == Strategy::Aside {
            return Ok(plain);
        }
        if let Some(replay) = self.replaying() {
            return Ok(replay.recorded_merge(our_head.id(), their_head.id(), strategy).unwrap_or(plain));
        }
        let Some(their_tree) = theirs.tree() else {
            // The files are ours, whatever their steps did to files that are not known.
            let ours = self.tree().filter(|_| self.place() == theirs.place());
            return Ok(plain.with_tree(ours));
        };
        let base = lineage::merge_base(our_head, their_head).map(|step| Record::at(step.clone()));
        let base_tree = base.as_ref().and_then(view::tree);
        if base_tree.as_ref() == Some(&their_tree) {
            return Ok(plain.with_tree(self.tree()));
        }
        self.require_own("merge files into it")?;
        let theirs = theirs.quiet();
        self.with_versions(move |ours, versions| ours.merge_trees(versions, &theirs, base_tree, their_tree, plain))
            .await
    }

    /// Merges the trees of two sessions, and adds the result to the step that records it. Blocks.
    fn merge_trees(
        &self,
        versions: &Versions,
        theirs: &Session,
        base_tree: Option<Tree>,
        their_tree: Tree,
        plain: Merged,
    ) -> Result<Merged> {
        // The first tree of theirs is the base if the two never had a tree in common, as when they worked in different places.
        let their_first = || view::trees(theirs.as_record()).list.first().map(|first| first.tree.clone());
        if self.place() != theirs.place() {
            versions.take_from(&theirs.versions()?, &their_tree)?;
            their_first().iter().try_for_each(|tree| versions.take_from(&theirs.versions()?, tree))?;
        }
        let Some(our_tree) = self.tree() else {
            self.sync_versions()?;
            return Ok(plain.with_tree(their_tree));
        };
        let base = base_tree
            .filter(|_| self.place() == theirs.place())
            .or_else(their_first)
            .unwrap_or_else(|| our_tree.clone());
        let (tree, conflicts) = versions.merge(&base, &our_tree, &their_tree)?;
        let ours = versions.diff(Some(&our_tree), &tree)?;
        let mut effects = versions.diff(Some(&their_tree), &tree)?;
        effects.retain(|effect| ours.iter().any(|change| change.path == effect.path));
        self.sync_versions()?;
        Ok(plain.with_tree(tree).with_effects(effects).with_conflicts(conflicts))
    }

    /// Returns the directory that the files of a merge are still to be written to; none if they are there. The files of a fork are no
    /// such files: its first tool makes their directory.
    ///
    /// [`update_files`](Session::update_files) writes them, and so does the next run of an agent with tools, before it asks the model.
    pub async fn unwritten_directory(&self) -> Option<PathBuf> {
        if !self.may_await_directory() {
            return None;
        }
        let session = self.quiet();
        let find = move || {
            let dirs = session.branch_dirs()?;
            Ok::<_, Error>(dirs.awaited_root(&session.dir_request()).map(Path::to_owned))
        };
        run_blocking(find).await.ok().flatten()
    }

    /// Fails if a file in the directory keeps [`update_files`](Session::update_files) from writing the files of a merge: it was changed
    /// there meanwhile, and by the merge as well. Writes none of them.
    pub async fn check_update(&self) -> Result<()> {
        if !self.may_await_directory() {
            return Ok(());
        }
        let session = self.quiet();
        let check = move || session.branch_dirs()?.check_take_over(&session.dir_request());
        run_blocking(check).await.map_err(|error| error.with_session(self))
    }

    /// Writes the files of a merge that are still to be written.
    pub(crate) async fn write_merged_files(&self) -> Result<()> {
        match self.unwritten_directory().await {
            Some(_) => self.prepare_dir().await.map(drop),
            None => Ok(()),
        }
    }

    fn may_await_directory(&self) -> bool {
        let is_own = !self.is_guest() && self.replaying().is_none() && self.live.place.within.is_none();
        is_own && self.place().is_some() && self.takes_over_from().is_some()
    }

    /// Finds the branch whose directory this one may take over, if this one began with a merge and no tool has run in a directory
    /// since.
    pub(super) fn find_take_over(&self) -> Option<TakeOver> {
        let mut without_files = HashSet::new();
        let merge = self.record.find_newest(|step| match step.chunk() {
            _ if step.stamp().branch != self.branch.id => Some(None),
            Chunk::Merged(merged) if merged.strategy != Strategy::Aside => Some(Some(step.clone())),
            Chunk::Forked(Forked { merges: Some(_), .. }) => Some(Some(step.clone())),
            // A call that got no directory failed, and its result has no tree.
            Chunk::ToolResult(result) if result.outcome == Outcome::Failed && result.tree.is_none() => {
                without_files.insert(result.call.clone());
                None
            }
            Chunk::ToolStarted(started) if !without_files.remove(&started.call) => Some(None),
            _ => None,
        });
        let merge = merge.flatten()?;
        match (merge.chunk(), merge.parents()) {
            (Chunk::Forked(Forked { merges: Some(other), .. }), [whole]) => {
                find_take_over(self.record.find(*other)?, whole.step()?)
            }
            (_, [ours, theirs]) => find_take_over(ours.step()?, theirs.step()?),
            _ => None,
        }
    }
}

/// Returns the branch whose directory a merged session may take over: the one that both sides forked from.
pub(super) fn find_take_over(ours: &Step, theirs: &Step) -> Option<TakeOver> {
    let fork_point = fork_point(ours, theirs)?;
    let branch = fork_point.stamp().branch;
    let last = [ours, theirs].into_iter().find(|side| side.stamp().branch == branch).unwrap_or(&fork_point);
    let tree = view::tree(&Record::at(last.clone()));
    // If that branch never looked at its directory, the first fork of it that did found the files there.
    let first_tree = |side: &Step| view::trees(&Record::at(side.clone())).list.first().map(|first| first.tree.clone());
    Some((branch, tree.or_else(|| first_tree(ours)).or_else(|| first_tree(theirs))))
}

/// Returns the step where one side forked from the other, or both forked from a third branch.
fn fork_point(ours: &Step, theirs: &Step) -> Option<Step> {
    let split = lineage::diff(ours, theirs);
    let base = lineage::merge_base(ours, theirs)?;
    let is_fork = |step: &Step| matches!(step.chunk(), Chunk::Forked(_));
    // Forks made in different processes may begin with equal steps, which are then shared without being their parent's.
    let are_twins = [&split.ours, &split.theirs].iter().all(|side| side.first().is_some_and(|step| !is_fork(step)));
    if !are_twins {
        return Some(base.clone());
    }
    let mut passed_fork = false;
    Record::at(base.clone()).find_newest(|step| {
        let found = passed_fork.then(|| step.clone());
        passed_fork |= is_fork(step);
        found
    })
}
