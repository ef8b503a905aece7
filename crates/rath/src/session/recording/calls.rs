//! Calls that are made again in a replay: the files that they start from, and the comparison of what they did.

use std::collections::HashSet;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use rath_record::chunk::{Call, Chunk, Effect, ToolResult, Tree};
use rath_record::{Step, StepId, draw};

use super::{Divergence, Replay, json_diff};
use crate::blocking::run_blocking;
use crate::sandbox::Sandbox;
use crate::session::update_note::{Attempt, until_unchanged};
use crate::session::version_folders::{holds_no_files, missing_files};
use crate::session::versions::{Versions, lossy_path};
use crate::session::{BranchDirs, Error, ForkCounter, Result, Session, UnsharedPath};

/// The directories in which the tools of a replay run again.
pub(crate) struct ReplayDirs {
    branch_dirs: Arc<BranchDirs>,
    /// The stored versions of the recording, if there are any.
    recorded: Option<Versions>,
    /// The files that the recording began with. They are restored before the first call, as later ones are before later calls; none
    /// if calls start from the files that are in the directory.
    first: Option<Tree>,
    /// The trees whose files were copied from the recording.
    copied: Mutex<HashSet<Tree>>,
}

impl ReplayDirs {
    /// Opens a sandbox for the calls of a recorded session.
    ///
    /// Recorded files are restored only in an empty directory: others may be the user's own.
    pub(crate) async fn open(session: &Session, sandbox: Sandbox) -> Result<Arc<Self>> {
        session.require_own("make its calls")?;
        sandbox.stat(".").await.map_err(|error| Error::from(error).with_session(session))?;
        let recording = session.quiet();
        let open = move || {
            let is_empty = sandbox.directory().is_some_and(|directory| holds_no_files(directory).unwrap_or(false));
            let steps = recording.lineage();
            let first = steps.walk().into_iter().find_map(|step| step.chunk().tree().cloned());
            let recorded = recording.recorded_versions();
            if let Some(first) = first.as_ref().filter(|_| is_empty) {
                let files = recorded.as_ref().map_or_else(|_| None, |versions| versions.files(first).ok());
                files.ok_or_else(missing_files)?;
            }
            let (recorded, first) = (recorded.ok(), first.filter(|_| is_empty));
            // No version holds the files that git ignores: the calls see those that are in the project now.
            let project = recorded.as_ref().and_then(Versions::project_dir).filter(|_| first.is_some());
            let is_other = |project: &&Path| {
                let directory = sandbox.directory().and_then(|directory| directory.canonicalize().ok());
                project.canonicalize().is_ok_and(|project| directory.is_none_or(|directory| directory != project))
            };
            let project = project.filter(is_other).map(Path::to_owned);
            let (branch_dirs, copied) = (Arc::new(BranchDirs::new(sandbox).sharing(project)), Mutex::default());
            Ok(Arc::new(ReplayDirs { branch_dirs, recorded, first, copied }))
        };
        run_blocking(open).await.map_err(|error: Error| error.with_session(session))
    }

    pub(crate) fn branch_dirs(&self) -> &Arc<BranchDirs> {
        &self.branch_dirs
    }

    /// Copies the files of trees from the recording. Blocks.
    pub(crate) fn copy(&self, trees: impl IntoIterator<Item = Tree>) -> Result<()> {
        let (Some(recorded), Some(versions)) = (&self.recorded, self.branch_dirs.versions()?) else { return Ok(()) };
        for tree in trees {
            let mut copied = self.copied.lock().unwrap_or_else(PoisonError::into_inner);
            if !copied.contains(&tree) {
                versions.take_from(recorded, &tree)?;
                copied.insert(tree);
            }
        }
        Ok(())
    }

    fn restores_files(&self) -> bool {
        self.first.is_some()
    }
}

/// The files after a call, and the changes that it made.
pub(crate) type FilesAfter = Option<(Tree, Vec<Effect>)>;

/// A difference between a recorded call and the same call made again.
///
/// Part of [`RepeatReport`](crate::replay::RepeatReport) and [`ReplayReport`](crate::replay::ReplayReport).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct CallDifference {
    /// The step that recorded the result.
    pub step: StepId,
    /// The call.
    pub call: Call,
    /// The part that differs: `outcome`, `output` or `files`.
    pub part: &'static str,
    /// The recorded value, in words.
    pub recorded: String,
    /// The value now.
    pub now: String,
}

/// Writes the call and the part that differs, then both values, on three lines.
impl fmt::Display for CallDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let arguments = self.call.arguments.as_str().unwrap_or_default();
        let call = draw::preview(&format!("{} {arguments}", self.call.tool));
        write!(f, "step {}: {call}", self.step.short())?;
        self.write_values(f)
    }
}

impl CallDifference {
    fn write_values(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = if self.part == "files" { "differ" } else { "differs" };
        let (recorded, now) = json_diff::preview_pair(&self.recorded, &self.now);
        write!(f, "\n  {} {verb}\n  recorded: {recorded}\n  now:      {now}", self.part)
    }

    /// Writes differences, each call once.
    pub(crate) fn write_all(differences: &[CallDifference], f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for calls in differences.chunk_by(|one, next| one.step == next.step) {
            if let [first, others @ ..] = calls {
                write!(f, "{first}")?;
                others.iter().try_for_each(|other| other.write_values(f))?;
                writeln!(f)?;
            }
        }
        Ok(())
    }
}

impl Replay {
    /// Returns the session at a recorded step, in the directory that it worked in.
    pub(crate) fn session_at(self: &Arc<Self>, step: &Step) -> Session {
        let session = Session::replayed(Some(step), ForkCounter::default(), None, self);
        // Work aside begins with the step of the session that it is aside from.
        let outer = session.as_record().steps().first().and_then(|first| match first.chunk() {
            Chunk::Forked(forked) => self.steps.get(&forked.from?),
            _ => None,
        });
        match outer {
            Some(outer) => session.placed_within(&self.session_at(outer)),
            None => session,
        }
    }

    /// Makes the files equal to those that a call found when it was recorded, or looks at the files that are there.
    pub(crate) async fn before_call(&self, session: &Session) -> Result<()> {
        let Some(dirs) = self.dirs.clone().filter(|_| had_place(session)) else { return Ok(()) };
        let tree = dirs.restores_files().then(|| session.tree_before_call().or_else(|| dirs.first.clone())).flatten();
        let restore = move |branch_dirs: &BranchDirs, dir: Arc<crate::session::BranchDir>| {
            let Some(tree) = tree else { return branch_dirs.observe(&dir, None, None).map(drop) };
            dirs.copy([tree.clone()])?;
            until_unchanged(|| {
                let observed = branch_dirs.observe(&dir, Some(&tree), None)?;
                match observed.is_some_and(|observed| observed.tree != tree) {
                    true => Ok(dir.restore(&tree)?.map(drop)),
                    false => Ok(Attempt::Done(())),
                }
            })
        };
        session.with_dir(restore).await
    }

    /// Returns the files after a call, if its changes were recorded.
    pub(crate) async fn after_call(&self, session: &Session, recorded: &ToolResult) -> Result<FilesAfter> {
        if self.dirs.is_none() || !had_place(session) || recorded.tree.is_none() {
            return Ok(None);
        }
        session.with_dir(|_, dir| dir.changes_except(None, true, |_, _| None)?.changes).await
    }

    /// Compares a call that was made again with the recorded one. Fails if it differs and the replay stops there.
    pub(crate) async fn compare_call(
        &self,
        session: &Session,
        (step, call): (&Step, &Call),
        (recorded, now): (&ToolResult, &ToolResult),
        after: FilesAfter,
    ) -> Result<()> {
        let difference = |part, recorded: String, now: String| {
            let (step, call) = (step.id(), call.clone());
            CallDifference { step, call, part, recorded, now }
        };
        let text = |result: &ToolResult| result.whole.as_ref().unwrap_or(&result.output).to_string();
        let with_outcome = |result: &ToolResult| {
            let (outcome, text) = (draw::outcome_text(result.outcome), text(result));
            match text.trim() {
                "" => outcome.to_owned(),
                text if text.starts_with(outcome) => text.to_owned(),
                text => format!("{outcome}: {text}"),
            }
        };
        let mut differences = Vec::new();
        if recorded.outcome != now.outcome {
            differences.push(difference("outcome", with_outcome(recorded), with_outcome(now)));
        } else if (&recorded.output, &recorded.whole) != (&now.output, &now.whole)
            || (&recorded.images, &recorded.structured) != (&now.images, &now.structured)
        {
            differences.push(difference("output", text(recorded), text(now)));
        }
        let mut files = 0;
        if let (Some(tree), Some((found, effects))) = (&recorded.tree, after) {
            let effects = session.secrets().hide_in_effects(effects);
            let (ours, theirs) = (with_versions(&recorded.effects), with_versions(&effects));
            files = ours.len() as u64;
            let other_files = match self.dirs.as_ref().is_some_and(|dirs| dirs.restores_files()) {
                true if *tree == found => None,
                true => Some(self.other_files(session, tree.clone(), found).await?),
                false => (ours != theirs).then(Vec::new),
            };
            if let Some(other) = other_files {
                let (was, is) = (describe(&ours), describe(&theirs));
                let is =
                    if was == is && !other.is_empty() { format!("other content: {}", other.join(" ")) } else { is };
                differences.push(difference("files", was, is));
            }
        }
        let mut state = self.lock();
        state.differences.retain(|known| known.step != step.id());
        state.calls.insert(step.id(), files);
        let Some(first) = differences.first() else { return Ok(()) };
        let (part, was, is) = (first.part, first.recorded.clone().into(), first.now.clone().into());
        state.differences.extend(differences);
        match self.stops_at_difference {
            true => {
                drop(state);
                Err(self.diverge(session, Divergence::between_values(step, &format!("/{part}"), &was, &is)))
            }
            false => Ok(()),
        }
    }

    /// Returns the paths of the files that differ between two trees.
    async fn other_files(&self, session: &Session, recorded: Tree, found: Tree) -> Result<Vec<String>> {
        let dirs = self.dirs.clone();
        session
            .with_versions(move |_, versions| {
                dirs.iter().try_for_each(|dirs| dirs.copy([recorded.clone()]))?;
                let differing = versions.diff(Some(&recorded), &found)?;
                Ok(differing.iter().map(|effect| lossy_path(&effect.path)).collect())
            })
            .await
    }

    /// Copies the files that the directory of a session is made from. Blocks.
    pub(crate) fn copy_files_for(&self, session: &Session, others: Option<Tree>) -> Result<()> {
        let first = self.dirs.as_ref().and_then(|dirs| dirs.first.clone());
        let trees = session.tree_before_call().into_iter().chain(first).chain(others);
        self.dirs.iter().try_for_each(|dirs| dirs.copy(trees.clone()))
    }

    /// Returns the number of calls that did the same as when they were recorded, and of the files that they changed.
    pub(crate) fn same_calls(&self) -> (u64, u64) {
        let state = self.lock();
        let differing = |step: &StepId| state.differences.iter().any(|difference| difference.step == *step);
        let same = state.calls.iter().filter(|(step, _)| !differing(step));
        same.fold((0, 0), |(calls, files), (_, more)| (calls + 1, files + more))
    }

    /// Returns the files that git ignores in the project and that the calls did not see.
    pub(crate) fn unshared_paths(&self) -> Vec<UnsharedPath> {
        self.dirs.as_ref().map(|dirs| dirs.branch_dirs.unshared()).unwrap_or_default()
    }

    /// Returns the differences between recorded calls and those that were made again.
    pub(crate) fn call_differences(&self) -> Vec<CallDifference> {
        self.lock().differences.clone()
    }
}

/// Returns the effects on files of which versions are kept. The others are not restored, so they are not compared.
fn with_versions(effects: &[Effect]) -> Vec<&Effect> {
    effects.iter().filter(|effect| effect.unkept.is_none()).collect()
}

fn describe(effects: &[&Effect]) -> String {
    match effects {
        [] => "no change".to_owned(),
        effects => effects.iter().map(|effect| draw::describe_effect(effect)).collect::<Vec<_>>().join(" "),
    }
}

/// Returns true if calls were made in a place. One from before a forgotten step counts: in a replay no call is made there.
fn had_place(session: &Session) -> bool {
    session.place().or_else(|| session.forgotten_place()).is_some()
}
