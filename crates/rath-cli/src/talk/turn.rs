//! One turn of a conversation: an agent works, and the person types meanwhile.

use std::time::Instant;

use rath::prelude::*;
use rath::record::draw::describe_effect;
use rath::turn::{Next, Progress};
use rath::{Cancel, Event};

use super::editor::{Edit, Editor};
use super::{Activity, Talk, attachments, print_lines};
use crate::agent::describe_paths;
use crate::asking;
use crate::output::{self, Failure};
use crate::project_context::{push_attached_files, push_changed_files};
use crate::styled::Line;
use crate::terminal;

impl Talk<'_> {
    /// Sends a message, and lets the agent work on it.
    pub(super) async fn message(&mut self, text: &str) -> Result<(), Failure> {
        let attached = attachments::message(text, &self.directory)?;
        if self.has_calls_in_doubt() && !self.decide_calls().await? {
            self.editor.set(text);
            return Ok(());
        }
        self.print_gap();
        self.echo(text);
        attached.not_attached.iter().for_each(|why| output::note(why));
        self.needs_gap = true;
        if !self.is_stored {
            self.begin().await?;
        }
        match self.tell_changed_files().await {
            Err(error) if error.kind() == ErrorKind::Store => return Err(error.into()),
            // Where the files cannot be looked at, the next call says so.
            _ => {}
        }
        if let Some(session) = &mut self.session {
            session.push(attached.message);
            push_attached_files(session, attached.texts);
        }
        self.work().await
    }

    /// Records which files the person changed since the last turn, and tells the model.
    pub(super) async fn tell_changed_files(&mut self) -> rath::Result<()> {
        let Some(session) = &mut self.session else { return Ok(()) };
        let changes = session.record_files().await?;
        let paths: Vec<_> = changes.iter().map(describe_effect).collect();
        if !paths.is_empty() {
            let line = Line::from(format!("{} since the last turn", describe_paths(&paths)));
            print_lines(&line.wrap(terminal::columns(), &"  ".into()));
            push_changed_files(session, &paths);
        }
        Ok(())
    }

    /// Goes on with a turn that was not finished.
    pub(super) async fn go_on(&mut self) -> Result<(), Failure> {
        match self.session.as_ref().map(Session::next) {
            None | Some(Next::Done) => Ok(()),
            Some(_) => self.work().await,
        }
    }

    /// Lets the agent work until it is done, or is stopped.
    async fn work(&mut self) -> Result<(), Failure> {
        let Some(session) = self.session.take() else { return Ok(()) };
        self.args.keep_script(&session);
        let cancel = Cancel::new();
        let (agent, since) = (self.agent.clone(), Instant::now());
        let mut shown = session.clone();
        let mut events = agent.run(session.until(&cancel)).events();
        let mut tick = tokio::time::interval(terminal::REDRAW_EVERY);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        let mut stop = std::pin::pin!(crate::signals::stop_requested());
        let (mut leaves, mut is_connected) = (false, true);
        loop {
            let event = tokio::select! {
                biased;
                event = self.keys.next(), if is_connected => {
                    match event.map(|event| self.edit(event)) {
                        Some(Edit::Sent(line)) => self.typed(line),
                        Some(Edit::Stop) if cancel.is_cancelled() => leaves = true,
                        Some(Edit::Stop) => cancel.cancel(),
                        // The terminal is gone.
                        None => {
                            (leaves, is_connected) = (true, false);
                            cancel.cancel();
                        }
                        Some(_) => {}
                    }
                    if cancel.is_cancelled() {
                        self.question = None;
                    }
                    self.draw_after_keys(Activity::Working { since, session: &shown });
                    continue;
                }
                () = &mut stop, if !leaves => {
                    leaves = true;
                    cancel.cancel();
                    continue;
                }
                event = events.next() => event,
                question = next_question(&mut self.questions), if self.question.is_none() => {
                    let (question, answer) = question;
                    // What was typed before the question is no answer to it.
                    while let Some(event) = self.keys.next_now() {
                        if let Edit::Sent(line) = self.edit(event) {
                            self.typed(line);
                        }
                    }
                    match asking::show_question(&question) {
                        Some(refusal) => _ = answer.send(refusal),
                        None => {
                            self.answer = Editor::default();
                            self.question = Some((question, answer));
                        }
                    }
                    self.draw(Activity::Working { since, session: &shown });
                    continue;
                }
                _ = tick.tick() => {
                    self.draw(Activity::Working { since, session: &shown });
                    continue;
                }
            };
            let Some(event) = event else { break };
            shown = event.session.clone();
            self.show(&event).await;
        }
        self.question = None;
        let result = events.finish().await;
        self.end_turn(result, leaves).await
    }

    /// Does work of a command, and shows its time. Ctrl-C cancels it; lines that are sent meanwhile are for later.
    pub(super) async fn while_shown<T>(&mut self, cancel: &Cancel, work: impl Future<Output = T>) -> T {
        let (since, shown) = (Instant::now(), self.session.clone());
        let mut work = std::pin::pin!(work);
        let mut tick = tokio::time::interval(terminal::REDRAW_EVERY);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        let mut is_connected = true;
        loop {
            let activity = || match &shown {
                Some(session) => Activity::Working { since, session },
                None => Activity::Idle,
            };
            tokio::select! {
                biased;
                event = self.keys.next(), if is_connected => {
                    match event.map(|event| self.edit(event)) {
                        Some(Edit::Sent(line)) => self.typed(line),
                        Some(Edit::Stop) => cancel.cancel(),
                        None => {
                            is_connected = false;
                            cancel.cancel();
                        }
                        Some(_) => {}
                    }
                    self.draw_after_keys(activity());
                }
                done = &mut work => return done,
                _ = tick.tick() => self.draw(activity()),
            }
        }
    }

    /// Takes a line that was typed while the agent works: an answer to a question, or a message for later.
    fn typed(&mut self, line: String) {
        let Some((question, answer)) = self.question.take() else {
            if !line.trim().is_empty() {
                self.queue.push_back(line);
            }
            return;
        };
        self.echo_answer(&line);
        match asking::reply(&question, &line, &self.project) {
            Some(reply) => _ = answer.send(reply),
            None => self.question = Some((question, answer)),
        }
    }

    /// Prints what an event adds.
    async fn show(&mut self, event: &Event) {
        let columns = terminal::columns();
        // The blocks of one answer are separated by the answer itself.
        let goes_on = self.markdown.has_blocks();
        let lines = match &event.kind {
            EventKind::Text(text) => self.markdown.push(text, columns),
            EventKind::Retry { attempt, of, error, .. } => {
                self.markdown.clear();
                let error = rath::record::draw::preview(error);
                let void = if goes_on { "; the text above is void" } else { "" };
                vec![format!("attempt {attempt} of {of} failed: {error}{void}").as_str().into()]
            }
            EventKind::Step(step) if matches!(step.chunk(), Chunk::Assistant(_)) => self.markdown.finish(columns),
            _ => self.cards.follow(event, &self.project, columns).await,
        };
        if !lines.is_empty() {
            if !goes_on {
                self.print_gap();
            }
            let cut = |line: &Line| line.cut(columns);
            print_lines(&lines.iter().map(cut).collect::<Vec<_>>());
            self.needs_gap = true;
        }
    }

    /// Takes the session back, and says how the turn ended if it was not done.
    async fn end_turn(&mut self, result: rath::Result<Session>, leaves: bool) -> Result<(), Failure> {
        let rest = self.markdown.finish(terminal::columns());
        print_lines(&rest);
        self.cards.clear();
        self.needs_gap = true;
        let error = match result {
            Ok(session) => {
                self.session = Some(session);
                return Ok(());
            }
            Err(error) => error,
        };
        self.session = error.session().cloned();
        let (kind, failure) = (error.kind(), Failure::from(error));
        // What waits was for after this turn.
        if !self.queue.is_empty() {
            let waiting: Vec<_> = self.queue.drain(..).chain([self.editor.text().to_owned()]).collect();
            self.editor.set(waiting.join("\n").trim_end());
        }
        if kind != ErrorKind::Cancelled {
            let hint = match kind {
                ErrorKind::Approval => "/approve shows what waits for you; another message goes on without it",
                _ => "Enter tries again; another message goes on from here",
            };
            return Err(failure.add_hint(hint));
        }
        self.close_stopped_calls().await?;
        if leaves {
            self.queue.clear();
            self.is_leaving = true;
            self.queue.push_back("/quit".to_owned());
        } else {
            self.is_leaving = self.editor.is_empty();
            output::message!("stopped; say what to do instead, or press Enter to go on");
        }
        Ok(())
    }

    /// Closes the calls that were stopped while they ran: the model reads that it is not known what they did.
    async fn close_stopped_calls(&mut self) -> Result<(), Failure> {
        let Some(session) = &mut self.session else { return Ok(()) };
        let Next::RunTools(calls) = session.next() else { return Ok(()) };
        for pending in calls.iter().filter(|pending| pending.progress == Progress::Unknown) {
            session.skip(pending.call.id.clone()).await?;
            let tool = rath::record::draw::preview(&pending.call.tool);
            output::message!("{tool} was stopped and may have done a part of its work; the model is told");
        }
        Ok(session.durable().await?)
    }
}

/// Waits for the next question; for ever if nobody asks.
async fn next_question(
    questions: &mut Option<tokio::sync::mpsc::UnboundedReceiver<asking::PendingQuestion>>,
) -> asking::PendingQuestion {
    match questions {
        Some(questions) => match questions.recv().await {
            Some(question) => question,
            None => std::future::pending().await,
        },
        None => std::future::pending().await,
    }
}
