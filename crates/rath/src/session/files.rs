//! Operations on the files of a session: changes, checkouts, restores, blame, bisection and checks.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rath_record::chunk::{Checked, Effect, Observed, Restored, Tree, Verdict};
use rath_record::view::{self, Freshness};
use rath_record::{Chunk, Record, Stamp, Step, StepId};

use super::Session;
use super::blame::{self, Blame};
use super::branch_dirs::{BranchDir, BranchDirs, OutdatedFiles};
use super::ignored_files::{SharingSandbox, UnsharedPath};
use super::seen_files::SeenFiles;
use super::update_note::{Attempt, Attempts, until_unchanged};
use super::versions::Versions;
use crate::blocking::{drop_on_pool, run_blocking};
use crate::error::ErrorKind;
use crate::sandbox::{self, Command, ExitStatus, Sandbox};
use crate::session::{Error, Result};
use crate::workspace::{self, Bisect, CheckedOut, ForkShare, TempCheckout};

/// The result of a checkout.
///
/// Returned by [`Session::checkout`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckoutReport {
    /// The number of files that were written.
    pub files: u64,
    /// The paths of the files that were not written, because their content was forgotten.
    pub forgotten: Vec<String>,
    /// The paths of the files and directories that were not written, because their content is missing or damaged.
    pub missing: Vec<String>,
}

/// The result of a bisection.
///
/// Returned by [`Session::bisect`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bisected {
    /// The first step after which the command fails; none if the command succeeds on the newest files.
    pub step: Option<StepId>,
    /// The number of trees.
    pub trees: u64,
    /// The number of runs of the command.
    pub runs: u64,
    /// The files and directories that git ignores in the session's directory, and that the command did not have.
    pub unshared: Vec<UnsharedPath>,
}

impl Session {
    /// Returns the newest tree of the workspace on the record.
    ///
    /// None before an agent with tools runs in a sandbox, and after a call whose changes were not observed.
    pub fn tree(&self) -> Option<Tree> {
        view::tree(self.as_record())
    }

    /// Returns the changes from the files of this session to those of another.
    pub async fn changes(&self, other: &Session) -> Result<Vec<Effect>> {
        let (ours, theirs) = (self.known_tree()?, other.known_tree()?);
        self.with_recorded_versions(move |_, versions| versions.diff(Some(&ours), &theirs)).await
    }

    /// Returns the changes from the files of this session to those of another as a patch that `git apply` takes.
    pub async fn patch(&self, other: &Session) -> Result<String> {
        let (ours, theirs) = (self.known_tree()?, other.known_tree()?);
        self.with_recorded_versions(move |_, versions| versions.patch(&ours, &theirs)).await
    }

    /// Writes the session's files to a new or empty directory, without those whose content was [forgotten](crate::Store::forget) or is
    /// not stored.
    pub async fn checkout(&self, into: impl AsRef<Path>) -> Result<CheckoutReport> {
        let (tree, into) = (self.known_tree()?, into.as_ref().to_owned());
        let written = self.with_recorded_versions(move |_, versions| {
            let CheckedOut { files, left_out } = versions.checkout(&tree, &into)?;
            let (forgotten, missing): (Vec<_>, Vec<_>) = left_out.into_iter().partition(|file| file.is_forgotten);
            let [forgotten, missing] =
                [forgotten, missing].map(|list| list.into_iter().map(|file| file.path).collect());
            Ok(CheckoutReport { files, forgotten, missing })
        });
        written.await
    }

    /// Makes the files in the session's directory equal to those of an earlier step, and returns the changes.
    ///
    /// Changes that were made outside the session meanwhile are recorded first. Untracked files stay as they are.
    pub async fn restore(&mut self, step: StepId) -> Result<Vec<Effect>> {
        self.refuse_conflicts()?;
        let tree = Session::resume(Record::at(self.find(step)?.clone())).known_tree()?;
        let mut attempts = Attempts::new();
        let (dir, (found, effects)) = loop {
            // What is overwritten is on the record: a file that others change after this look is looked at again.
            self.observe().await?;
            let wanted = tree.clone();
            let restore = move |_: &BranchDirs, dir: Arc<BranchDir>| Ok(dir.restore(&wanted)?.map(|done| (dir, done)));
            let tried = self.with_files(restore).await?.ok_or_else(|| self.unseen_error())?;
            if let Some(done) = attempts.check(tried)? {
                break done;
            }
        };
        // What another program saved after its file was restored is no part of the restore.
        let (restored, meanwhile) = match found == tree {
            true => (effects, None),
            false => {
                let (before, wanted, now) = (self.known_tree()?, tree.clone(), found.clone());
                let compare = move |_: &Session, versions: &Versions| {
                    Ok((versions.diff(Some(&before), &wanted)?, versions.diff(Some(&wanted), &now)?))
                };
                let (restored, meanwhile) = self.with_recorded_versions(compare).await?;
                (restored, Some(Observed::new(found).with_effects(meanwhile)))
            }
        };
        if !restored.is_empty() {
            self.push(Restored::new(step, tree).with_effects(restored.clone()));
        }
        meanwhile.into_iter().for_each(|observed| _ = self.push(observed));
        self.durable().await?;
        dir.updated();
        Ok(restored)
    }

    /// Makes the files in the session's directory equal to the record, as after a merge, and returns the directory.
    ///
    /// None if the session works outside this machine, or in an overlay that is mounted only while it is in use.
    pub async fn update_files(&self) -> Result<Option<PathBuf>> {
        self.refuse_conflicts()?;
        let (tree, before) = (self.tree(), self.tree_before_decisions());
        let update = move |dirs: &BranchDirs, dir: Arc<BranchDir>| {
            // A directory that has the files from before the decisions gets them. One with other files is the user's.
            if let (Some(tree), Some(before)) = (tree, before) {
                until_unchanged(|| {
                    let observed = dirs.observe(&dir, Some(&tree), None)?;
                    if observed.is_some_and(|observed| observed.tree == before) {
                        let restored = dir.restore(&tree)?;
                        restored.iter().for_each(|_| dir.updated());
                        return Ok(restored.map(drop));
                    }
                    Ok(Attempt::Done(()))
                })?;
            }
            Ok(dir.permanent_path().map(Path::to_owned))
        };
        self.with_files(update).await?.ok_or_else(|| self.unseen_error())
    }

    /// Returns the tree before the decisions about conflicts that are the newest steps; none if there are none.
    fn tree_before_decisions(&self) -> Option<Tree> {
        let is_decision = |step: &&Step| matches!(step.chunk(), Chunk::Decided(_));
        let first = self.as_record().newest_first().take_while(is_decision).last()?;
        view::tree(&Record::at(first.parents().first()?.step()?.clone()))
    }

    /// Returns the step that wrote each line of a file; none if there is no such file.
    pub async fn blame(&self, path: &str) -> Result<Option<Blame>> {
        let plain = path.trim_start_matches("./").to_owned();
        self.with_recorded_versions(move |session, versions| blame::blame(session.as_record(), versions, &plain)).await
    }

    /// Finds the first step after which a command fails, by a binary search over the recorded trees.
    ///
    /// The command runs on copies of recorded files in temporary directories, with the directories that git ignores in the
    /// session's directory; no model is asked. It has to fail on the newest files. Versions with undecided conflicts are left out, and the newest may have none.
    pub async fn bisect(&self, argv: &[String]) -> Result<Bisected> {
        self.require_own("run a command on its files")?;
        self.bisect_in(self.branch_dirs()?.sandbox(), argv).await
    }

    /// Finds the first step after which a command fails, as [`bisect`](Session::bisect) does, with the restrictions of this
    /// sandbox instead of the session's own. Its directory is not used.
    pub async fn bisect_in(&self, sandbox: &Sandbox, argv: &[String]) -> Result<Bisected> {
        self.require_own("run a command on its files")?;
        self.refuse_conflicts()?;
        let trees = view::trees(self.as_record());
        let leading = trees.history();
        let mut bisect = Bisect::new(leading.iter().map(|tree| tree.before.clone()));
        // A tree that occurs twice is tried once.
        let mut seen: HashMap<&Tree, workspace::Verdict> = HashMap::new();
        let mut unshared = Vec::new();
        while let Some(at) = bisect.next() {
            let tree = leading[at].tree;
            let verdict = match seen.get(tree) {
                Some(verdict) => *verdict,
                None => {
                    let mut checkout = self.check_out(sandbox, tree.clone()).await?;
                    let ran = checkout.sandbox.run(&Command::argv(argv.iter().cloned())).await?;
                    let missing = std::mem::take(&mut checkout.unshared);
                    unshared = UnsharedPath::with_read_only(missing, &checkout.sandbox);
                    if ran.status == ExitStatus::Exit(0) { workspace::Verdict::Good } else { workspace::Verdict::Bad }
                }
            };
            seen.insert(tree, verdict);
            bisect.report(at, verdict);
        }
        let step = bisect.first_bad().map(|at| leading[at].step.id());
        Ok(Bisected { step, trees: leading.len() as u64, runs: seen.len() as u64, unshared })
    }

    /// Runs `work` on the stored versions of the session's files in the blocking pool. Fails if there are none.
    pub(super) async fn with_recorded_versions<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Session, &Versions) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let session = self.quiet();
        let work = move || work(&session, &session.recorded_versions()?);
        run_blocking(work).await.map_err(|error: Error| error.with_session(self))
    }

    /// Writes a tree to a temporary directory.
    async fn check_out(&self, sandbox: &Sandbox, tree: Tree) -> Result<TreeSandbox> {
        let sandbox = sandbox.clone();
        self.with_recorded_versions(move |_, versions| {
            let directory = versions.temp_checkout(&tree)?;
            let unable = || {
                let message = format!("the sandbox {} cannot work in another directory", sandbox.uri());
                Error::new(ErrorKind::Place, message)
            };
            let (sandbox, unshared) = match versions.project_dir() {
                Some(root) => {
                    let share = ForkShare::of(&directory.path().canonicalize()?);
                    let over = SharingSandbox::over(&sandbox, root, share, directory.objects())?;
                    over.map(|over| (over.sandbox, over.unshared)).ok_or_else(unable)?
                }
                None => (sandbox.with_directory(directory.path()).ok_or_else(unable)?, Vec::new()),
            };
            Ok(TreeSandbox { sandbox, directory: Some(directory), unshared })
        })
        .await
    }

    /// Runs a command as a check, and records its verdict, the tree that it saw and the paths that it depends on.
    ///
    /// `inputs` are files and directories; the check depends on all files if there are none.
    pub async fn check(&mut self, command: &str, inputs: &[String]) -> Result<Verdict> {
        self.refuse_conflicts()?;
        self.observe().await?;
        let inputs = &self.follow_inputs(inputs).await?;
        let dir = self.prepare_dir().await?;
        let _work_lock = dir.work_lock();
        let before = dir.last_look();
        let ran = dir.sandbox().run(&Command::shell(command)).await;
        let mut seen = self.see_files().await;
        let uncertain = run_blocking(move || before.map_or(Ok(Vec::new()), |before| dir.uncertain_since(&before)));
        let mut uncertain = uncertain.await.map_err(|error: Error| error.with_session(self))?;
        uncertain.retain(|effect| depends_on(inputs, effect));
        // The check may have seen some files before they changed and others after, or what nobody else saw.
        let is_certain = uncertain.is_empty();
        let tree = self.tree().filter(|tree| match &seen {
            Ok(SeenFiles::AsRecorded) => is_certain,
            Ok(SeenFiles::Changed(observed)) => is_certain && observed.tree == *tree,
            Ok(SeenFiles::Unseen) | Err(_) => false,
        });
        if let (Ok(found), Some(tree), false) = (&mut seen, self.tree(), is_certain) {
            found.add(tree, uncertain);
        }
        let checked = checked(command, inputs, tree, &ran);
        let verdict = checked.verdict;
        self.push(checked);
        // Files that the check itself changed belong to no call.
        self.record_seen(seen?);
        self.durable().await?;
        Ok(verdict)
    }

    /// Returns the record with the state that the files are in now, if that is not on it: as a step that is not stored.
    pub async fn record_of_now(&self) -> Result<Record> {
        let mut record = self.as_record().clone();
        // A check on a file that cannot be compared does not hold.
        let observed = self.find_unrecorded(OutdatedFiles::All).await?;
        observed.into_iter().for_each(|observed| _ = record.push(observed.into(), Stamp::on(self.id())));
        Ok(record)
    }

    /// Records what changed in the session's directory since its newest step about it, and returns the changes.
    ///
    /// An agent does this before each call that can write. A program does it before it tells a model of such changes, and before it
    /// forks a session: the files of a fork are those on the record.
    ///
    /// ```
    /// use rath::prelude::*;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> rath::Result<()> {
    /// # let project = tempfile::tempdir().expect("a directory");
    /// # let script = Script::of([r#"{"calls": [{"name": "list_files", "arguments": {}}]}"#, r#"{"text": "None."}"#])?;
    /// # let agent = Agent::new("Be brief.", &script.into()).tools(rath::tool::builtin::all());
    /// let mut session = agent.run(Session::user("Look around.").to(Sandbox::local(project.path()))).await?;
    /// std::fs::write(project.path().join("mine.txt"), "by hand").expect("written");
    /// let changes = session.record_files().await?;
    /// assert_eq!(changes[0].path, "mine.txt");
    /// assert_eq!(session.fork().tree(), session.tree());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn record_files(&mut self) -> Result<Vec<Effect>> {
        let Some(observed) = self.find_unrecorded(OutdatedFiles::New).await? else { return Ok(Vec::new()) };
        self.push(observed);
        self.durable().await?;
        // As they are on the record: without secrets.
        Ok(self.head().map(|step| step.chunk().effects().to_vec()).unwrap_or_default())
    }

    /// Fails unless a check has passed on the files as they are now.
    pub async fn require_check(&self, name: &str) -> Result<()> {
        let record = self.record_of_now().await?;
        let checks = view::checks(&record);
        // On the record, secrets in the command are hidden.
        let hidden = self.secrets().hide(name);
        let name = hidden.as_deref().unwrap_or(name);
        let what = match checks.list.get(name) {
            None => "never ran",
            Some(check) if check.checked.verdict != Verdict::Passed => "did not pass",
            Some(_) if self.place().is_none() => "passed, but there are no files to compare",
            Some(check) if check.freshness == Freshness::Stale => "passed on other files than there are now",
            Some(_) => return Ok(()),
        };
        let message = format!("the check `{name}` {what} (session {})", self.id().short());
        Err(Error::new(ErrorKind::Check, message)
            .with_hint("run the check with `session.check(..)`")
            .with_session(self))
    }
}

/// A sandbox over a temporary directory with the files of a tree.
struct TreeSandbox {
    sandbox: Sandbox,
    directory: Option<TempCheckout>,
    unshared: Vec<UnsharedPath>,
}

/// Removes the directory, on the blocking pool.
impl Drop for TreeSandbox {
    fn drop(&mut self) {
        self.directory.take().into_iter().for_each(drop_on_pool);
    }
}

/// Returns true if a check depends on a changed file: on all, if it names no inputs.
fn depends_on(inputs: &[String], effect: &Effect) -> bool {
    inputs.is_empty() || inputs.iter().any(|input| view::covers(input, &effect.path))
}

/// Returns the step that records a check.
pub(crate) fn checked(
    command: &str,
    inputs: &[String],
    tree: Option<Tree>,
    ran: &Result<sandbox::Output, sandbox::Error>,
) -> Checked {
    let (verdict, output) = match ran {
        Ok(ran) => {
            let verdict = if ran.status == ExitStatus::Exit(0) { Verdict::Passed } else { Verdict::Failed };
            (verdict, ran.text())
        }
        Err(error) => (Verdict::Broken, error.message()),
    };
    Checked::new(command, verdict).with_output(output).with_tree(tree).with_inputs(inputs.to_vec())
}
