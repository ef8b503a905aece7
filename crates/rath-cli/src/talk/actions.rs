//! The effects of the commands of a conversation.

use std::collections::{BTreeMap, HashSet};

use rath::Cancel;
use rath::chunk::{Compressed, Effect};
use rath::prelude::*;
use rath::record::draw::{count, describe_effect, one_line, preview};
use rath::record::{BranchId, Record, SHORT_ID_DIGITS, Step, StepId};
use rath::turn::{Next, PendingCall, Progress};
use rath::view::{self, Message};

use super::slash::{self, Slash};
use super::{Setup, Talk, markdown, new_setup, outside, print_lines, sent_messages};
use crate::agent::{self, OnDifference, ResumeMode, describe_paths};
use crate::asking::user_name;
use crate::output::{self, BRANCH, Failure};
use crate::sessions::{self, StoredSession, parse_fork_name};
use crate::styled::{FAINT, Line};
use crate::terminal;

/// The summaries that a model reads in the place of what was taken back, with and without calls.
const TAKEN_BACK: &str =
    "The user took back what was said and done here. The files were changed back to those before it.";
const UNSAID: &str = "The user took back what was said here.";
/// The fewest digits that name a step: fewer are the number of a message.
const MIN_STEP_DIGITS: usize = 4;
/// The number of changed files that a question names.
const MAX_NAMED_FILES: usize = 5;
/// The lines of the output of a check that are shown.
const CHECK_LINES: usize = 12;
/// The number of steps that /log shows.
const LOG_STEPS: &str = "20";

impl Talk<'_> {
    pub(super) async fn command(&mut self, command: Slash) -> Result<(), Failure> {
        self.needs_gap = true;
        match command {
            Slash::Help => print_lines(&slash::help(terminal::columns())),
            Slash::Quit => {}
            Slash::New => self.switch(None).await?,
            Slash::Open(name) => {
                let branch = sessions::find_branch(&self.store, &name, &self.option).await?;
                self.switch(Some(branch)).await?;
            }
            Slash::Sessions => self.list_sessions().await?,
            Slash::Status => self.on_session(&["status"]).await?,
            Slash::Log => self.on_session(&["log", "-n", LOG_STEPS]).await?,
            Slash::Cost => self.on_session(&["cost"]).await?,
            Slash::Diff(since) => self.diff(since).await?,
            Slash::Undo => self.undo().await?,
            Slash::Rewind(None) => self.list_messages()?,
            Slash::Rewind(Some(nth)) => self.rewind(&nth).await?,
            Slash::Fork(name) => self.fork(name).await?,
            Slash::Check(command) => self.check(&command).await?,
            Slash::Approve => self.approve().await?,
            Slash::Model(None) => output::message!("{}", one_line(&self.model)),
            Slash::Model(Some(model)) => self.model(model).await?,
            Slash::Compact => self.compact().await?,
        }
        Ok(())
    }

    fn session_mut(&mut self) -> Result<&mut Session, Failure> {
        self.session.as_mut().filter(|_| self.is_stored).ok_or_else(nothing_said)
    }

    /// Runs a command of the program on the session.
    async fn on_session(&mut self, words: &[&str]) -> Result<(), Failure> {
        let session = self.session_mut()?;
        session.durable().await?;
        let id = session.id().to_string();
        self.program(words, Some(&id)).await
    }

    /// Runs a command of the program, which may start a pager.
    async fn program(&mut self, words: &[&str], session: Option<&str>) -> Result<(), Failure> {
        let (name, rest) = words.split_first().unwrap_or((&"help", &[]));
        let words = [*name].into_iter().chain(session).chain(rest.iter().copied());
        let work = crate::run_words(words.chain(["--store", self.store_arg.uri()]));
        outside(&self.keys, &mut self.terminal, work).await
    }

    /// Lists the newest sessions, and says how to go back to the one that this one was forked from.
    async fn list_sessions(&mut self) -> Result<(), Failure> {
        self.program(&["ls"], None).await?;
        let origin = self.session.as_ref().filter(|_| self.is_stored).and_then(origin_of);
        if let Some(origin) = origin {
            output::message!("/open {} goes back to the session that this one was forked from", origin.short());
        }
        Ok(())
    }

    /// Goes on with another session, or a new one.
    async fn switch(&mut self, branch: Option<rath::BranchId>) -> Result<(), Failure> {
        let Setup { agent, session, is_stored } = match branch {
            None => new_setup(&self.args).await?,
            Some(branch) => {
                if self.session.as_ref().is_some_and(|session| session.id() == branch) {
                    output::message!("this is that session");
                    return Ok(());
                }
                let stored = StoredSession { store: self.store.clone(), branch, option: self.option.clone() };
                let opened = self.args.reopen(&stored, ResumeMode::SameBranch, OnDifference::Refuse, None);
                let (agent, session) = opened.await?;
                Setup { agent, session, is_stored: true }
            }
        };
        let before = self.session.replace(session);
        let was_stored = std::mem::replace(&mut self.is_stored, is_stored);
        if let Err(failure) = self.place().await {
            (self.session, self.is_stored) = (before, was_stored);
            return Err(failure);
        }
        self.agent = agent;
        self.model = self.args.model_name(self.session.as_ref())?;
        if let Some(before) = before.filter(|_| was_stored) {
            output::message!("session {} is kept: /open {0} goes on with it", before.id().short());
        }
        let earlier = self.session.as_ref().map(sent_messages).unwrap_or_default();
        self.editor = super::Editor::with_earlier(earlier);
        self.introduce();
        Ok(())
    }

    /// Shows what changed since the beginning of the last turn, or since a step.
    async fn diff(&mut self, since: Option<String>) -> Result<(), Failure> {
        let session = self.session_mut()?;
        session.durable().await?;
        let id = session.id();
        let last_turn = turns(&session.as_record().steps()).pop();
        let from = match since {
            Some(step) => {
                let found = sessions::read_at(&format!("{id}@{step}"), self.store_arg).await;
                found.map_err(|failure| failure.with_hint("/log lists the steps"))?;
                step
            }
            None => match last_turn {
                Some(turn) => turn.before.to_string(),
                None => {
                    output::message!("nothing was changed in the last turn");
                    return Ok(());
                }
            },
        };
        let (from, to) = (format!("{id}@{from}"), id.to_string());
        self.program(&["diff", &from, &to], None).await
    }

    /// Changes the files back to before the newest turn that changed files and was not taken back.
    async fn undo(&mut self) -> Result<(), Failure> {
        let now = self.session_mut()?.record_of_now().await?;
        let tree = view::tree(&now);
        let differs =
            |turn: &CallingTurn| now.find(turn.before).and_then(|step| view::tree(&Record::at(step.clone()))) != tree;
        let turns = turns(&steps_of_files(&now)).into_iter().rev();
        match turns.filter(|turn| turn.has_changes).find(differs) {
            Some(turn) => _ = self.restore(turn.before).await?,
            None => output::message!("there is nothing to undo"),
        }
        Ok(())
    }

    /// Changes the files back to those of a step. Returns false if the person keeps what they changed since.
    async fn restore(&mut self, step: StepId) -> Result<bool, Failure> {
        let paths = self.changed_outside(step).await?;
        if !paths.is_empty() && !self.confirm(&paths).await {
            output::message!("no file was changed");
            return Ok(false);
        }
        let session = self.session_mut()?;
        let effects = session.restore(step).await?;
        let is_restored = |step: &&Step| matches!(step.chunk(), Chunk::Restored(_));
        let before = session.as_record().newest_first().skip_while(|step| !is_restored(step)).nth(1);
        let before = before.map(|step| format!("{}@{:.SHORT_ID_DIGITS$}", session.id().short(), step.id()));
        output::message!("{} changed back", count(effects.len() as u64, "file"));
        effects.iter().for_each(|effect| output::message!("  {}", describe_effect(effect)));
        if let Some(before) = before.filter(|_| !paths.is_empty()) {
            output::message!("after /quit, `rath restore {before}{}` brings them back", self.option);
        }
        Ok(true)
    }

    /// Returns what changed outside the agent since a step, and would be changed back with the files of that step.
    async fn changed_outside(&mut self, step: StepId) -> Result<Vec<String>, Failure> {
        let now = self.session_mut()?.record_of_now().await?;
        let kept = steps_of_files(&now);
        let later = kept.iter().skip_while(|it| it.id() != step);
        let observed = later.skip(1).filter_map(|step| match step.chunk() {
            Chunk::Observed(observed) => Some(observed.effects.iter()),
            _ => None,
        });
        let newest: BTreeMap<&str, &Effect> = observed.flatten().map(|effect| (effect.path.as_str(), effect)).collect();
        let then = now.find(step).map(|step| Session::resume(Record::at(step.clone())));
        let changes = match &then {
            Some(then) => Session::resume(now.clone()).with_files_in(&self.project).changes(then).await.ok(),
            None => None,
        };
        // Where the versions cannot be compared, all of them may differ.
        let differs = |path: &str| changes.as_ref().is_none_or(|all| all.iter().any(|effect| effect.path == path));
        Ok(newest.iter().filter(|(path, _)| differs(path)).map(|(_, effect)| describe_effect(effect)).collect())
    }

    /// Asks if files that changed outside the agent are changed back too.
    async fn confirm(&mut self, paths: &[String]) -> bool {
        let more = paths.len().saturating_sub(MAX_NAMED_FILES);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let named = describe_paths(&paths[..paths.len().min(MAX_NAMED_FILES)]);
        let question = format!("this also changes back what changed outside the agent: {named}{more}");
        print_lines(&Line::from(question).wrap(terminal::columns(), &"  ".into()));
        output::message!("y: change it back too, and say how to bring it back  n: change no file");
        self.decision().await.is_some_and(|answer| answer.trim_start().starts_with('y'))
    }

    fn list_messages(&mut self) -> Result<(), Failure> {
        let messages = user_messages(self.session_mut()?);
        for (nth, (_, text)) in messages.iter().enumerate() {
            output::message!("{:>3}  {}", nth + 1, preview(text));
        }
        output::message!("/rewind N goes back to before message N, with the files; so does a step of /log");
        Ok(())
    }

    /// Takes back a message and all that came after it: the files are changed back, and the model does not read it any more.
    async fn rewind(&mut self, wanted: &str) -> Result<(), Failure> {
        let session = self.session_mut()?;
        let messages = user_messages(session);
        let Some(nth) = chosen_message(session, &messages, wanted) else {
            let message =
                format!("wanted the number of a message, from 1 to {}, or a step, found `{wanted}`", messages.len());
            return Err(Failure::new(message, "/rewind lists the messages, /log the steps"));
        };
        let (message, text) = messages[nth].clone();
        if matches!(session.next(), Next::RunTools(_)) {
            return Err(Failure::new("calls wait for a decision", "/approve decides about them"));
        }
        let hidden = steps_from(session, message).ok_or_else(|| {
            let message = "a summary stands for that message and others before it";
            Failure::new(message, "/fork goes on in a branch; `rath fork SESSION@STEP` begins one at an earlier step")
        })?;
        let summary = match files_before(session.as_record(), message) {
            Some(step) => {
                if !self.restore(step).await? {
                    return Ok(());
                }
                TAKEN_BACK
            }
            None => UNSAID,
        };
        let session = self.session_mut()?;
        session.push(Compressed::new(hidden, summary));
        session.durable().await?;
        output::message!("back to before message {}; it is in the line below, and Enter sends it again", nth + 1);
        self.editor.set(text);
        Ok(())
    }

    /// Goes on in a fork, which has files of its own.
    async fn fork(&mut self, name: Option<String>) -> Result<(), Failure> {
        self.session_mut()?;
        if let Some(problem) = name.as_deref().and_then(|name| parse_fork_name(name).err()) {
            return Err(Failure::new(problem, "/fork NAME takes a word, and /fork alone needs none"));
        }
        if let Err(error) = self.tell_changed_files().await {
            let why = error.message();
            output::warning(&format!("the fork has the files of the last turn, without later changes: {why}"));
        }
        let session = self.session_mut()?;
        session.durable().await?;
        let origin = session.id();
        // As it is read from the store it has no step that is stored already, and is written with its first one.
        let stored = self.store.read(origin).await?.session.hiding(agent::secrets()).decided_by(user_name());
        let fork = match name {
            Some(name) => stored.fork_named(name),
            None => stored.fork(),
        };
        let fork = fork.record(&self.store).await?;
        let before = self.session.replace(fork);
        if let Err(failure) = self.place().await {
            self.session = before;
            return Err(failure);
        }
        let id = self.session_mut()?.id().short();
        output::message!("now in the fork {id}, with files of its own; /open {} goes back", origin.short());
        Ok(())
    }

    /// Runs a check on the files.
    async fn check(&mut self, command: &str) -> Result<(), Failure> {
        let (mut session, cancel) = (self.session_mut()?.clone(), Cancel::new());
        let verdict = {
            let check = async {
                tokio::select! {
                    verdict = session.check(command, &[]) => Some(verdict),
                    () = cancel.cancelled() => None,
                }
            };
            self.while_shown(&cancel, check).await
        };
        // A check that was stopped may have recorded the files.
        let session = self.session.insert(session);
        let Some(verdict) = verdict else {
            output::message!("{BRANCH}{}{BRANCH:#}: stopped", one_line(command));
            return Ok(());
        };
        let verdict = verdict?;
        session.durable().await?;
        output::message!("{BRANCH}{}{BRANCH:#}: {}", one_line(command), crate::commands::verdict_text(verdict));
        let newest = session.as_record().newest_first().find_map(|step| match step.chunk() {
            Chunk::Checked(checked) => Some(checked.output.as_str().unwrap_or_default().to_owned()),
            _ => None,
        });
        print_lines(&crate::cards::last_lines(&newest.unwrap_or_default(), CHECK_LINES));
        Ok(())
    }

    /// Asks another model from now on.
    async fn model(&mut self, model: String) -> Result<(), Failure> {
        let args = self.args.with_model(model.clone());
        self.agent = args.agent(self.session.as_ref()).await?;
        self.args = args;
        self.model = model;
        output::message!("the next answer is from {}", one_line(&self.model));
        Ok(())
    }

    /// Replaces the older part of the conversation by a summary, for the model.
    async fn compact(&mut self) -> Result<(), Failure> {
        let provider = self.args.provider(self.session.as_ref()).await?;
        let cancel = Cancel::new();
        let session = self.session_mut()?.clone().until(&cancel);
        let before = session.folds().len();
        let compressor = Compressor::new(&provider);
        let result = self.while_shown(&cancel, compressor.run(session)).await;
        let error = match result {
            Ok(session) => {
                let folds = session.folds();
                match folds.last().filter(|_| folds.len() > before) {
                    Some(fold) => {
                        let steps = count(fold.hidden.len() as u64, "step");
                        output::message!("{steps} are now this summary, for the model:");
                        let summary = fold.compressed.summary.as_str().unwrap_or_default();
                        print_lines(&markdown::render(summary, terminal::columns()));
                    }
                    None => output::message!("the conversation is too short for a summary"),
                }
                self.session = Some(session);
                return Ok(());
            }
            Err(error) => error,
        };
        if let Some(session) = error.session() {
            self.session = Some(session.clone());
        }
        Err(error.into())
    }

    /// Asks about the calls that wait, and says how the turn goes on.
    async fn approve(&mut self) -> Result<(), Failure> {
        let waits = !waiting_calls(self.session_mut()?).is_empty();
        if self.decide_calls().await? && waits {
            output::message!("{FAINT}Enter goes on with the turn{FAINT:#}");
        }
        Ok(())
    }

    pub(super) fn has_calls_in_doubt(&self) -> bool {
        let calls = self.session.as_ref().map(waiting_calls).unwrap_or_default();
        calls.iter().any(|call| call.progress.is_in_doubt())
    }

    /// Asks about each call that waits for a decision. Returns false if one was left undecided.
    pub(super) async fn decide_calls(&mut self) -> Result<bool, Failure> {
        let session = self.session_mut()?;
        *session = session.clone().decided_by(user_name());
        let calls = waiting_calls(session);
        if calls.is_empty() {
            output::message!("nothing waits for you");
        }
        for pending in calls {
            let (tool, call) = (preview(&pending.call.tool), pending.call.id.clone());
            let arguments = one_line(pending.call.arguments.as_str().unwrap_or_default());
            let is_in_doubt = pending.progress.is_in_doubt();
            let state = if is_in_doubt {
                "was interrupted and may or may not have finished"
            } else {
                "was asked for and not started"
            };
            output::message!("{BRANCH}{tool}{BRANCH:#} {arguments}\n  {state}");
            match is_in_doubt {
                true => output::message!("y: run it again  n: do not; the model reads that its end is unknown"),
                false => output::message!("y: run it  n WHY: no"),
            }
            let Some(answer) = self.decision().await else { return Ok(false) };
            let (word, why) = answer.trim().split_once(char::is_whitespace).unwrap_or((answer.trim(), ""));
            let session = self.session_mut()?;
            match (word, is_in_doubt) {
                ("y" | "yes", _) => _ = session.approve(call)?,
                (_, true) => _ = session.skip(call).await?,
                _ => {
                    let why = if why.trim().is_empty() { "the user refused it" } else { why.trim() };
                    session.deny(call, why)?;
                }
            }
            session.durable().await?;
        }
        Ok(true)
    }

    /// Waits for yes or no. None if the person gives neither.
    async fn decision(&mut self) -> Option<String> {
        self.answer = super::Editor::default();
        self.is_deciding = true;
        let answer = loop {
            self.draw(super::Activity::Idle);
            match self.idle_line().await {
                Some(line) if !line.trim().is_empty() => {
                    self.echo_answer(&line);
                    if ["y", "yes", "n", "no"].contains(&line.split_whitespace().next().unwrap_or_default()) {
                        break Some(line);
                    }
                    output::message!("not understood; y or n?");
                }
                _ => break None,
            }
        };
        self.is_deciding = false;
        answer
    }
}

/// Returns the session that a fork began from.
fn origin_of(session: &Session) -> Option<BranchId> {
    let own = session.as_record().newest_first().take_while(|step| step.stamp().branch == session.id());
    let forked = own.filter(|step| matches!(step.chunk(), Chunk::Forked(_))).last();
    let before = match forked {
        Some(step) => step.parents().first()?.step(),
        // The first step of a fork is written with the next one.
        None => session.head().filter(|step| step.stamp().branch != session.id()),
    };
    before.map(|step| step.stamp().branch)
}

fn nothing_said() -> Failure {
    Failure::new("nothing was said yet", "type a message first")
}

/// Returns the calls that do not run before a person decides.
fn waiting_calls(session: &Session) -> Vec<PendingCall> {
    let Next::RunTools(calls) = session.next() else { return Vec::new() };
    let waits = |progress: &Progress| progress.is_in_doubt() || matches!(progress, Progress::New | Progress::Held);
    calls.into_iter().filter(|call| waits(&call.progress)).collect()
}

/// Returns the messages of the user that the model reads, each with its step.
fn user_messages(session: &Session) -> Vec<(StepId, String)> {
    let messages = session.messages().list;
    let texts = messages.iter().filter_map(|message| match message {
        Message::User(step, user) => Some((step.id(), user.text.as_str()?.to_owned())),
        _ => None,
    });
    texts.collect()
}

/// Returns the position of the message that a person means: its number, or the id of a step in its turn.
fn chosen_message(session: &Session, messages: &[(StepId, String)], wanted: &str) -> Option<usize> {
    if let Some(nth) =
        wanted.parse::<usize>().ok().and_then(|nth| nth.checked_sub(1)).filter(|nth| *nth < messages.len())
    {
        return Some(nth);
    }
    let digits = wanted.trim_start_matches('@').to_ascii_lowercase();
    let steps = session.as_record().steps();
    let mut fitting = (0..steps.len()).filter(|at| steps[*at].id().to_string().starts_with(&digits));
    let at = fitting.next().filter(|_| digits.len() >= MIN_STEP_DIGITS && fitting.next().is_none())?;
    // A message that was taken back already is none to go back to, and neither is the one before it.
    let message = steps[..=at].iter().rev().find(|step| matches!(step.chunk(), Chunk::User(_)))?;
    messages.iter().position(|(step, _)| *step == message.id())
}

/// Returns the steps from a message on that a model can read. None if a summary among them stands for earlier ones too.
fn steps_from(session: &Session, message: StepId) -> Option<Vec<StepId>> {
    let steps = session.as_record().steps();
    let at = steps.iter().position(|step| step.id() == message)?;
    let later: HashSet<StepId> = steps[at..].iter().map(|step| step.id()).collect();
    let mut hidden = Vec::new();
    for step in &steps[at..] {
        match step.chunk() {
            Chunk::Instructions(_) => continue,
            Chunk::Compressed(fold) if fold.hidden.iter().any(|step| !later.contains(step)) => return None,
            _ => hidden.push(step.id()),
        }
    }
    Some(hidden)
}

/// Returns the last step before the first call after a message of the user: its files are those at the beginning of the turn.
fn files_before(record: &Record, message: StepId) -> Option<StepId> {
    let steps = record.steps();
    let at = steps.iter().position(|step| step.id() == message)?;
    let begins = |step: &&Step| matches!(step.chunk(), Chunk::ToolStarted(_) | Chunk::ToolResult(_));
    let first = at + steps[at..].iter().position(begins)?;
    Some(steps[first.checked_sub(1)?].id())
}

/// A turn that has calls.
struct CallingTurn {
    /// The step before its first call: its files are those at the beginning of the turn.
    before: StepId,
    has_changes: bool,
}

/// Returns the turns that have calls, oldest first.
fn turns(steps: &[&Step]) -> Vec<CallingTurn> {
    let (mut turns, mut last, mut is_begun) = (Vec::<CallingTurn>::new(), None, false);
    for step in steps {
        match step.chunk() {
            Chunk::User(_) => is_begun = false,
            Chunk::ToolStarted(_) | Chunk::ToolResult(_) if !is_begun => {
                turns.extend(last.map(|before| CallingTurn { before, has_changes: false }));
                is_begun = true;
            }
            _ => {}
        }
        if let (Chunk::ToolResult(result), Some(turn)) = (step.chunk(), turns.last_mut()) {
            turn.has_changes |= !result.effects.is_empty();
        }
        last = Some(step.id());
    }
    turns
}

/// Returns the steps whose changes are in the files, oldest first: those before the step that was restored last, and those after that.
fn steps_of_files(record: &Record) -> Vec<&Step> {
    let steps = record.steps();
    let (mut found, mut rest) = (Vec::new(), &steps[..]);
    while let Some((step, earlier)) = rest.split_last() {
        found.push(*step);
        let restored = match step.chunk() {
            Chunk::Restored(restored) => earlier.iter().position(|step| step.id() == restored.to),
            _ => None,
        };
        rest = restored.map_or(earlier, |at| &earlier[..=at]);
    }
    found.reverse();
    found
}
