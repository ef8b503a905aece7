//! The changes that the calls of a round make to files.
//!
//! The directory is looked at before the first call that may write, and after each such call.

use std::ffi::OsStr;
use std::future::pending;
use std::sync::Arc;

use futures_util::stream::{FuturesUnordered, StreamExt};
use rath_record::Step;
use rath_record::chunk::{Change, Effect, Tree};

use super::{CallEnd, CallFuture, CallState, Round};
use crate::blocking::run_blocking;
use crate::sandbox::{self, Root};
use crate::session::{BranchDir, CallChanges, ChangedPaths, NameGuards, WorkLock, WriteGuard, WriteTurn, lossy_path};
use crate::session::{Result, Session};
use crate::tool::{Nature, Touch};
use crate::workspace;

/// The files that a round works on.
#[derive(Default)]
pub(super) struct RoundFiles {
    /// The directory that the calls work in.
    dir: Option<Arc<BranchDir>>,
    /// Keeps the directory with the session's branch while calls run.
    work_lock: Option<WorkLock>,
    root: Option<Arc<Root>>,
    /// The tree after the results that are appended.
    recorded: Option<Tree>,
    /// The tree that was seen last.
    seen: Option<Tree>,
    /// True if no call has ended since the files were looked at.
    is_current: bool,
    /// True if others may have written while a call ran: calls, or other processes. The changes are told apart by the touches of
    /// calls.
    has_concurrent_writers: bool,
    /// The turn to change files, which sub-agents that work in the directory take too.
    pub(super) turn: WriteTurn,
    /// The turn, while this round has it.
    pub(super) guard: Option<WriteGuard>,
    /// True if a call could start if the round had the turn.
    pub(super) wants_turn: bool,
    /// True from when the files could not be looked at after a call that may have changed them.
    pub(super) is_unseen: bool,
}

impl RoundFiles {
    /// Returns the directory whose symlinks decide which paths are the same file.
    pub(super) fn root(&self) -> Option<&Arc<Root>> {
        self.root.as_ref()
    }

    /// Returns true if calls that may change files have to wait for their turn.
    pub(super) fn lacks_turn(&self) -> bool {
        self.dir.is_some() && self.guard.is_none()
    }

    /// Waits until a call ends, or until it is the turn of this round.
    pub(super) async fn next_or_turn(&self, running: &mut FuturesUnordered<CallFuture>) -> Wake {
        // No call has to be waited for before the turn is taken, if none runs.
        let ended = async {
            match running.next().await {
                Some(ended) => ended,
                None => pending().await,
            }
        };
        tokio::select! {
            biased;
            ended = ended => Wake::Ended(ended),
            guard = self.turn.take() => Wake::Turn(guard),
        }
    }

    /// Opens the directory of the session.
    async fn open(&mut self, session: &Session) {
        self.turn = session.write_turn();
        let opened = session.with_dir(|_, dir| {
            let root = dir.sandbox().directory().and_then(|directory| Root::open(directory).ok());
            let work_lock = dir.work_lock();
            Ok((dir, root.map(Arc::new), work_lock))
        });
        // Tools that need no place run without one; the others report the error.
        if let Ok((dir, root, work_lock)) = opened.await {
            (self.dir, self.root, self.work_lock) = (Some(dir), root, work_lock);
        }
    }

    /// Looks at the files, and records the changes of others.
    async fn observe(&mut self, session: &mut Session) -> Result<()> {
        session.observe().await?;
        // The files of a sandbox elsewhere are tracked from the first look on.
        if self.dir.as_ref().is_some_and(|dir| !dir.is_tracked()) {
            let opened = session.with_dir(|_, dir| Ok((dir.work_lock(), Some(dir)))).await?;
            (self.work_lock, self.dir) = opened;
        }
        self.is_current = true;
        self.recorded = session.tree();
        Ok(())
    }

    /// Saves the head of the branch that works in the directory.
    pub(super) async fn save_progress(&self, session: &Session) -> Result<()> {
        let Some(dir) = self.dir.clone() else { return Ok(()) };
        let (branch, head) = (session.id(), session.head().map(Step::id));
        run_blocking(move || {
            dir.set_head(branch, head);
            Ok(())
        })
        .await
    }

    /// Returns the changes of a call that ends now.
    pub(super) fn changes(&self, effects: Vec<Effect>) -> Option<FileChanges> {
        self.seen.clone().map(|tree| FileChanges { effects, tree })
    }

    /// Returns the part of the changes that a call made itself.
    pub(super) async fn own_changes(&mut self, session: &Session, changes: FileChanges) -> Result<FileChanges> {
        let FileChanges { mut effects, mut tree } = changes;
        if let (Some(before), true) = (&self.recorded, self.has_concurrent_writers) {
            // The changes of calls that ran at the same time belong to the results of those calls.
            (tree, effects) = session.changes_of_call(before.clone(), tree, effects).await?;
        }
        self.recorded = Some(tree.clone());
        Ok(FileChanges { effects, tree })
    }
}

/// The reason why a round goes on.
pub(super) enum Wake {
    /// A call has ended.
    Ended((usize, CallEnd)),
    /// It is the turn of the round to change files.
    Turn(WriteGuard),
}

/// The changes that a call made to files.
pub(super) struct FileChanges {
    /// The changes that were seen while the call ran and belong to it, in the order in which they were seen.
    pub(super) effects: Vec<Effect>,
    /// The files when the call ended; of calls that ran at the same time, with the changes of this one and of those before it.
    pub(super) tree: Tree,
}

impl Round {
    /// Opens the directory that the calls work in, if one of them may need it. The directory of a fork is created here.
    pub(super) async fn prepare(&mut self, session: &Session) {
        let is_needed = self.slots.iter().any(|slot| match &slot.state {
            CallState::Waiting { ready, .. } => ready.nature != Nature::ReadOnly || !ready.touches.is_empty(),
            _ => false,
        });
        if is_needed && session.place().is_some() {
            // In a box, as all that a round does with files: most rounds of sessions without a place do none of it.
            Box::pin(self.files.open(session)).await;
        }
    }

    /// Lets other rounds change files, if no call of this one is about to or does.
    pub(super) fn give_up_turn(&mut self) {
        let writes = |nth: usize| self.may_write(nth) && !self.runs_workflows(nth);
        if self.files.guard.is_some() && !(0..self.slots.len()).any(writes) {
            self.files.guard = None;
        }
    }

    /// Looks at the files if a call that may write is about to start and no such call runs.
    ///
    /// Takes the turn, if there is one to take. Otherwise nothing starts that may write, and there is nothing to look at.
    pub(super) async fn snapshot_before(&mut self, session: &mut Session) -> Result<()> {
        let may_write =
            |state: &CallState| matches!(state, CallState::Waiting { ready, .. } if ready.nature != Nature::ReadOnly);
        let is_about_to_write = self.slots.iter().any(|slot| may_write(&slot.state));
        if is_about_to_write && self.files.lacks_turn() {
            self.files.guard = self.files.turn.try_take();
        }
        let is_first = is_about_to_write && self.files.guard.is_some() && self.first_writer().is_none();
        match is_first && !self.files.is_current && self.files.dir.is_some() {
            true => Box::pin(self.files.observe(session)).await,
            false => Ok(()),
        }
    }

    /// Looks at the files when a call has ended.
    ///
    /// A change belongs to that call, unless another call that runs has declared that it touches the path. If all of them have
    /// declared other paths, it belongs to none, and the next look records it as made by others.
    pub(super) async fn snapshot_after(&mut self, session: &Session, nth: usize) -> Result<()> {
        self.files.is_current = false;
        if !self.may_write(nth) {
            return Ok(());
        }
        if self.runs_workflows(nth) && !self.may_look_after_work(nth) {
            self.take_tree_of_work(nth);
            return Ok(());
        }
        Box::pin(self.assign_changes(session, nth)).await
    }

    /// Takes the turn to look at the files after workflows, unless others work in the directory.
    fn may_look_after_work(&mut self, nth: usize) -> bool {
        if (0..self.slots.len()).any(|other| other != nth && self.may_write(other)) {
            return false;
        }
        self.files.guard = self.files.guard.take().or_else(|| self.files.turn.try_take());
        self.files.guard.is_some()
    }

    /// Takes over the files as the workflows of a call left them. Looking now, one would see half of what others do.
    fn take_tree_of_work(&mut self, nth: usize) {
        if let CallState::Running { cx, .. } = &self.slots[nth].state {
            let of_work = cx.workflow_sessions().iter().rev().find_map(Session::tree);
            self.files.seen = of_work.or_else(|| self.files.recorded.clone());
            self.files.has_concurrent_writers = true;
        }
    }

    /// Finds the changes since the last look, and assigns each to the call that made it.
    pub(super) async fn assign_changes(&mut self, session: &Session, nth: usize) -> Result<()> {
        // Workflows that run wait for their turn.
        let others = (0..self.slots.len()).filter(|other| *other != nth && self.may_write(*other));
        let (workflows, others): (Vec<usize>, Vec<usize>) = others.partition(|other| self.runs_workflows(*other));
        let policy = match &self.slots[nth].state {
            // While others write, a change may be theirs.
            CallState::Running { policy: Some(policy), .. } if others.is_empty() => Some(policy.clone()),
            _ => None,
        };
        let is_approved = policy.as_ref().is_none_or(|(_, is_approved)| *is_approved);
        let is_refused = move |effect: &Effect, paths: &ChangedPaths<'_>| {
            let (policy, is_approved) = policy.as_ref()?;
            // Of a file under all its names.
            let find = |path: &str, names: Vec<String>, reason: &dyn Fn(&str) -> Option<String>| {
                names.iter().find_map(|name| match reason(name)? {
                    reason if *name == path => Some(reason),
                    reason => Some(format!("{reason}, as {name}")),
                })
            };
            let refuses = |name: &str| policy.refuses_change(name, paths.ignored_above(name).as_deref(), *is_approved);
            let guards = NameGuards {
                all: &|name| policy.hides(name).into_iter().chain(refuses(name)).collect(),
                rules: &|name| policy.denies(name),
                fitting: &|name| policy.name_guards(name),
            };
            let by_link = |path: &str| paths.guard_by_link(path, &guards);
            let refuse = |path: &str| {
                let name = lossy_path(path);
                find(&name, paths.names(&name), &refuses).or_else(|| by_link(path))
            };
            // A file that is gone has the names that it had. One that may not be read must not be moved to where it may.
            let refuse_removal = |path: &str| {
                let name = lossy_path(path);
                let reason = |name: &str| policy.hides(name).or_else(|| refuses(name));
                find(&name, paths.names_before(&name), &reason).or_else(|| by_link(path))
            };
            match &effect.change {
                Change::Renamed { from } => refuse_removal(from).or_else(|| refuse(&effect.path)),
                Change::Deleted => refuse_removal(&effect.path),
                _ => refuse(&effect.path),
            }
        };
        let CallChanges { put_back: report, changes } = session.changes_except(is_approved, is_refused).await?;
        if let CallState::Running { put_back, .. } = &mut self.slots[nth].state {
            put_back.add(report);
        }
        // After an error, no tree is known that the call left.
        self.files.seen = None;
        let Some((tree, effects)) = changes? else { return Ok(()) };
        self.files.seen = Some(tree);
        self.files.is_current = true;
        self.files.has_concurrent_writers |= !others.is_empty() || !workflows.is_empty();
        let mut has_foreign_changes = false;
        for effect in effects {
            // A temporary file of a call that runs is not its final file, and the removal of one is no change.
            if is_temporary(&effect.path) && (effect.change == Change::Deleted || !others.is_empty()) {
                continue;
            }
            let running = || [nth].into_iter().chain(others.iter().copied());
            let touches = |slot: usize| match &self.slots[slot].state {
                CallState::Running { touches, .. } => &touches[..],
                _ => &[],
            };
            let owner = |path: &str| {
                let path = workspace::path_bytes(path);
                let declared = running().find(|slot| touches(*slot).iter().any(|touch| touch.covers(&path)));
                // A call that declares no path may change any.
                declared.or_else(|| running().find(|slot| !touches(*slot).iter().any(Touch::changes_path)))
            };
            for (owner, effect) in split_rename(effect, owner) {
                match owner.map(|owner| &mut self.slots[owner].state) {
                    Some(CallState::Running { effects, .. }) => effects.push(effect),
                    _ => has_foreign_changes = true,
                }
            }
        }
        if has_foreign_changes {
            self.files.has_concurrent_writers = true;
            self.files.is_current = false;
        }
        Ok(())
    }

    /// Returns the first call that runs and may write.
    pub(super) fn first_writer(&self) -> Option<usize> {
        (0..self.slots.len()).find(|nth| self.may_write(*nth))
    }

    fn runs_workflows(&self, nth: usize) -> bool {
        matches!(self.slots[nth].state, CallState::Running { runs_workflows: true, .. })
    }

    pub(super) fn may_write(&self, nth: usize) -> bool {
        let runs_and_writes =
            matches!(&self.slots[nth].state, CallState::Running { nature, .. } if *nature != Nature::ReadOnly);
        runs_and_writes && self.files.dir.is_some()
    }
}

/// Returns true for the path of a temporary file that a tool is about to rename to its final name.
fn is_temporary(path: &str) -> bool {
    sandbox::is_temporary_name(OsStr::new(path.rsplit('/').next().unwrap_or(path)))
}

/// Assigns an effect to its call, if it has one. A rename whose two paths belong to two calls is a deletion and a creation.
fn split_rename(effect: Effect, owner: impl Fn(&str) -> Option<usize>) -> Vec<(Option<usize>, Effect)> {
    let to = owner(&effect.path);
    match &effect.change {
        Change::Renamed { from } if owner(from) != to => {
            let deletion =
                Effect::new(from.clone(), Change::Deleted).with_before(effect.before).with_unkept(effect.unkept);
            vec![
                (owner(from), deletion),
                (
                    to,
                    Effect::new(effect.path.clone(), Change::Created)
                        .with_after(effect.after)
                        .with_unkept(effect.unkept),
                ),
            ]
        }
        _ => vec![(to, effect)],
    }
}
