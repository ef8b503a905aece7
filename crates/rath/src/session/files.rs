//! Views of a session's files: as they were at any step, how they differ, who wrote them, and what checks say of them.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use rath_record::chunk::{Checked, Effect, Observed, Tree, Verdict};
use rath_record::view::{self, Freshness};
use rath_record::{Record, StepId};

use super::Session;
use crate::error::ErrorKind;
use crate::sandbox::{Command, Ended, Ran};
use crate::session::{Error, Result};
use crate::workspace::{self, Bisect, Bisected, Blame};

impl Session {
    /// The newest tree of the workspace that is on the record.
    ///
    /// None where no tool that can write has run yet, or where something may have changed files that nobody saw.
    pub fn tree(&self) -> Option<Tree> {
        view::tree(self.as_record())
    }

    /// What differs between the files of this session and those of another, from here to there.
    pub fn changes(&self, other: &Session) -> Result<Vec<Effect>> {
        let (ours, theirs) = (self.known_tree()?, other.known_tree()?);
        self.objects()?.diff(Some(&ours), &theirs).map_err(|error| error.with_session(self))
    }

    /// The same line by line, as a patch.
    pub fn patch(&self, other: &Session) -> Result<String> {
        let (ours, theirs) = (self.known_tree()?, other.known_tree()?);
        self.objects()?.patch(&ours, &theirs).map_err(|error| error.with_session(self))
    }

    /// Puts the session's files into a directory, which has to be new or empty. Gives how many.
    pub fn checkout(&self, into: impl AsRef<Path>) -> Result<u64> {
        let (tree, objects) = (self.known_tree()?, self.objects()?);
        let written = objects.checkout(&tree, into.as_ref()).and_then(|()| objects.files(&tree));
        written.map(|files| files.len() as u64).map_err(|error| error.with_session(self))
    }

    /// Makes the session's own files what they were at an earlier step, and gives what that changed.
    ///
    /// What was changed meanwhile by others is recorded first. Files of which no version is kept stay as they are.
    pub async fn restore(&mut self, step: StepId) -> Result<Vec<Effect>> {
        self.refuse_conflicts()?;
        let tree = Session::resume(Record::at(self.find(step)?.clone())).known_tree()?;
        self.observe().await?;
        let (tree, effects) = self.at_work(move |_, ground| ground.restore(&tree)).await?;
        if !effects.is_empty() {
            self.push(Observed { tree, effects: effects.clone() });
        }
        self.durable().await?;
        Ok(effects)
    }

    /// Brings the directory that the session works in to what the record says: after a merge, to what came of it. Gives the
    /// directory, where it is one of this machine that is there whether or not somebody works in it.
    pub async fn settle_files(&self) -> Result<Option<PathBuf>> {
        self.refuse_conflicts()?;
        Ok(self.prepare().await?.lasting_directory().map(Path::to_owned))
    }

    /// Which step each line of a file came from; none if there is no such file.
    pub fn blame(&self, path: &str) -> Result<Option<Blame>> {
        let plain = path.trim_start_matches("./");
        workspace::blame(self.as_record(), &self.objects()?, plain).map_err(|error| error.with_session(self))
    }

    /// Finds the first step after which a command fails: it is run on recorded files, in a directory of its own, and no
    /// model is asked. The command has to fail on the newest files.
    pub async fn bisect(&self, argv: &[String]) -> Result<Bisected> {
        let trees = view::trees(self.as_record());
        let leading = trees.history();
        let (objects, grounds) = (self.objects()?, self.grounds()?);
        let mut bisect = Bisect::new(leading.iter().map(|tree| tree.before.clone()));
        // Files that were as they had been before are not looked at twice.
        let mut seen: HashMap<&Tree, workspace::Verdict> = HashMap::new();
        while let Some(at) = bisect.next() {
            let tree = leading[at].tree;
            let verdict = match seen.get(tree) {
                Some(verdict) => *verdict,
                None => {
                    let fresh = objects.fresh_checkout(tree)?;
                    let sandbox = grounds.sandbox().over(fresh.path()).ok_or_else(|| {
                        let message = format!("the sandbox {} cannot work elsewhere", grounds.sandbox().uri());
                        Error::new(ErrorKind::Place, message).with_session(self)
                    })?;
                    let ran = sandbox.run(&Command::argv(argv.iter().cloned()), &mut |_, _| {}).await?;
                    if ran.ended == Ended::Exit(0) { workspace::Verdict::Good } else { workspace::Verdict::Bad }
                }
            };
            seen.insert(tree, verdict);
            bisect.tell(at, verdict);
        }
        let step = bisect.first_bad().map(|at| leading[at].step.id());
        Ok(Bisected { step, trees: leading.len() as u64, runs: seen.len() as u64 })
    }

    /// Runs a command as a check, and records what it found, what it saw and what it depends on: files and directories, or
    /// everything where none is named.
    pub async fn check(&mut self, command: &str, inputs: &[String]) -> Result<Verdict> {
        self.refuse_conflicts()?;
        self.observe().await?;
        self.refuse_strange(inputs)?;
        let ground = self.prepare().await?;
        let ran = ground.sandbox().run(&Command::shell(command), &mut |_, _| {}).await;
        let checked = checked(command, inputs, self.tree(), &ran);
        let verdict = checked.verdict;
        self.push(checked);
        // What the check itself left behind is nobody's call.
        self.observe().await?;
        self.durable().await?;
        Ok(verdict)
    }

    /// An error if a check is to depend on what is not there: it would never go stale.
    fn refuse_strange(&self, inputs: &[String]) -> Result<()> {
        let Some(tree) = self.tree().filter(|_| !inputs.is_empty()) else { return Ok(()) };
        let files = self.objects()?.files(&tree)?;
        match inputs.iter().find(|input| !files.iter().any(|file| view::covers(input, &file.path))) {
            None => Ok(()),
            Some(input) => Err(Error::new(ErrorKind::Place, format_args!("there is no file `{input}` to depend on"))
                .with_hint("paths are relative to the workspace, and ignored files are not kept")
                .with_session(self)),
        }
    }

    /// An error unless a check passed, and covers what is there now.
    pub fn require_check(&self, name: &str) -> Result<()> {
        let checks = self.checks();
        let what = match checks.list.get(name) {
            None => "never ran",
            Some(check) if check.checked.verdict != Verdict::Passed => "did not pass",
            Some(check) if check.freshness == Freshness::Stale => "does not cover what changed since",
            Some(_) => return Ok(()),
        };
        let message = format!("the check `{name}` {what} in the session {}", self.id().short());
        Err(Error::new(ErrorKind::Merge, message).with_hint("run it again with `session.check(..)`").with_session(self))
    }
}

/// What a check found, for the record.
pub(crate) fn checked(command: &str, inputs: &[String], tree: Option<Tree>, ran: &Result<Ran>) -> Checked {
    let (verdict, output) = match ran {
        Ok(ran) => {
            let verdict = if ran.ended == Ended::Exit(0) { Verdict::Passed } else { Verdict::Failed };
            (verdict, ran.text())
        }
        Err(error) => (Verdict::Broken, error.message()),
    };
    Checked { check: command.to_owned(), verdict, output: output.into(), tree, inputs: inputs.to_vec() }
}
