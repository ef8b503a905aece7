//! A conversation in a terminal: `rath` without a command.

mod actions;
mod attachments;
mod editor;
mod keyboard;
mod markdown;
mod slash;
mod turn;

use std::collections::VecDeque;
use std::path::PathBuf;

use crossterm::event::{Event as TerminalEvent, KeyEventKind};
use rath::policy::{Question, Reply};
use rath::prelude::*;
use rath::provider::Prices;
use rath::record::draw::one_line;
use rath::record::{Money, StepId};
use rath::turn::Next;
use rath::view::Message;
use tokio::sync::{mpsc, oneshot};

use self::attachments::{BegunMention, Completion};
use self::editor::{Edit, Editor};
use self::keyboard::Keyboard;
use self::markdown::MarkdownStream;
use self::slash::Slash;
use crate::agent::{self, AgentArgs, OnDifference, ResumeMode};
use crate::asking::{self, PendingQuestion};
use crate::cards::Cards;
use crate::output::{self, CommandResult, Exit, Failure};
use crate::sessions::{self, StoreArg, StoredSession};
use crate::styled::{BOLD, FAINT, Line};
use crate::terminal::{self, ConversationTerminal, CursorPosition};

/// The options of a conversation.
#[derive(clap::Args)]
pub(crate) struct TalkArgs {
    #[command(flatten)]
    agent: AgentArgs,
    #[command(flatten)]
    store: StoreArg,
    /// Begin a new session. Default: go on with the newest one here, if there is one
    #[arg(long, conflicts_with_all = ["goes_on", "session"])]
    new: bool,
    /// Go on with the newest session
    #[arg(short = 'c', long = "continue", conflicts_with = "session")]
    goes_on: bool,
    /// Go on with this session
    #[arg(long, value_name = "SESSION")]
    session: Option<String>,
}

impl TalkArgs {
    /// Returns true if the session was chosen by the person.
    fn names_session(&self) -> bool {
        self.session.is_some() || self.goes_on
    }

    /// Opens the store. It is created only if a new session can begin.
    async fn open_store(&self) -> Result<Store, Failure> {
        match self.store.open().await {
            Err(_) if !self.names_session() => {
                self.agent.agent(None).await?;
                self.agent.require_directory()?;
                self.store.open_or_create().await
            }
            opened => opened,
        }
    }
}

/// A conversation.
struct Talk<'a> {
    args: AgentArgs,
    store_arg: &'a StoreArg,
    store: Store,
    /// The option that names the store in a hint.
    option: String,
    terminal: ConversationTerminal,
    keys: Keyboard,
    agent: Agent,
    /// The name of the model that the agent asks.
    model: String,
    /// The session; none while an agent works on it.
    session: Option<Session>,
    /// False until the first message of a new session: a session in which nothing was said is not kept.
    is_stored: bool,
    questions: Option<mpsc::UnboundedReceiver<PendingQuestion>>,
    question: Option<(Question, oneshot::Sender<Reply>)>,
    /// The directory of the project.
    project: PathBuf,
    /// The directory with the files of the session: that of the project, or that of a fork.
    directory: PathBuf,
    editor: Editor,
    /// The answer to a question, which is typed apart: what was typed before is no answer.
    answer: Editor,
    /// True while a line is typed that decides about a call.
    is_deciding: bool,
    /// The messages that wait until the agent is done.
    queue: VecDeque<String>,
    cards: Cards,
    markdown: MarkdownStream,
    /// True after a Ctrl-C that stopped a turn or had nothing to stop: the next one leaves.
    is_leaving: bool,
    /// True if a blank line separates what is printed next from what was printed before.
    needs_gap: bool,
    /// The tokens and the money up to a step.
    figures: (Option<StepId>, Figures),
}

pub(crate) async fn run(args: &TalkArgs) -> CommandResult {
    if !output::is_conversational() {
        let failure = Failure::new("a conversation needs a terminal", "`rath run 'Your words'` works in scripts");
        return Err(failure.with_exit(Exit::Usage));
    }
    args.agent.refuse_json()?;
    let mut talk = Talk::open(args).await?;
    let result = talk.converse().await;
    talk.close();
    result
}

/// A session that was set up for a conversation.
struct Setup {
    agent: Agent,
    session: Session,
    is_stored: bool,
}

impl<'a> Talk<'a> {
    async fn open(args: &'a TalkArgs) -> Result<Self, Failure> {
        if let Some(problem) = sessions::key_problem() {
            output::warning(&problem.message);
        }
        args.agent.refuse_store(args.store.uri())?;
        let store = args.open_store().await?;
        let option = args.store.option();
        let wanted = match (&args.session, args.new) {
            (Some(name), _) => Some(sessions::find_branch(&store, name, &option).await?),
            (None, true) => None,
            (None, false) => sessions::newest_own(&store).await?,
        };
        if wanted.is_none() && args.goes_on {
            return Err(Failure::new("there is no session to go on with", "`rath` begins one"));
        }
        let opened = match wanted {
            None => None,
            Some(branch) => {
                let stored = StoredSession { store: store.clone(), branch, option: option.clone() };
                match args.agent.reopen(&stored, ResumeMode::SameBranch, OnDifference::Refuse, None).await {
                    Ok((agent, session)) => Some(Setup { agent, session, is_stored: true }),
                    Err(failure) if args.names_session() => return Err(failure),
                    // Nobody asked for this session by name.
                    Err(failure) => {
                        output::note(&format!("session {} is left as it is: {}", branch.short(), failure.message));
                        None
                    }
                }
            }
        };
        let setup = match opened {
            Some(setup) => setup,
            None => new_setup(&args.agent).await?,
        };
        let Setup { agent, session, is_stored } = setup;
        let earlier = sent_messages(&session);
        let mut talk = Talk {
            args: args.agent.clone(),
            store_arg: &args.store,
            store,
            option,
            terminal: ConversationTerminal::default(),
            keys: Keyboard::open(),
            agent,
            model: args.agent.model_name(Some(&session))?,
            session: Some(session),
            is_stored,
            questions: None,
            question: None,
            project: PathBuf::from("."),
            directory: PathBuf::from("."),
            editor: Editor::with_earlier(earlier),
            answer: Editor::default(),
            is_deciding: false,
            queue: VecDeque::new(),
            cards: Cards::default(),
            markdown: MarkdownStream::default(),
            is_leaving: false,
            needs_gap: false,
            figures: (None, Figures::default()),
        };
        talk.place().await?;
        talk.terminal.enter().map_err(|error| {
            Failure::new(format!("cannot use the terminal: {error}"), "`rath run 'Your words'` works without one")
        })?;
        talk.introduce();
        Ok(talk)
    }

    /// Puts the session in its sandbox and under the user's policy. One that has begun is stored, with the servers of its agent.
    async fn place(&mut self) -> Result<(), Failure> {
        let Some(session) = self.session.take() else { return Ok(()) };
        let placed = self.args.place(session).await?;
        let placed = if self.is_stored { placed.record(&self.store).await? } else { placed };
        (self.session, self.questions, self.project) = placed.into_parts();
        self.directory = self.find_directory().await;
        Ok(())
    }

    /// Returns the directory with the files of the session. A fork gets its own.
    async fn find_directory(&self) -> PathBuf {
        let Some(session) = &self.session else { return self.project.clone() };
        let is_fork = session.working_directory().await.is_some_and(|directory| directory != self.project);
        // Files that are mounted only while a tool works are not read here.
        let own = if is_fork { session.update_files().await.ok().flatten() } else { None };
        own.unwrap_or_else(|| self.project.clone())
    }

    /// Stores a new session at its first message, and starts the servers of its agent.
    async fn begin(&mut self) -> Result<(), Failure> {
        let Some(session) = self.session.clone() else { return Ok(()) };
        let session = session.record(&self.store).await?;
        session.check_directory().await?;
        self.is_stored = true;
        // A person may be asked about servers, in lines.
        let agent = self.args.with_servers(self.agent.clone(), &session, ResumeMode::SameBranch, None);
        let agent = outside(&self.keys, &mut self.terminal, agent).await;
        self.session = Some(session);
        self.agent = agent?;
        Ok(())
    }

    /// Reads and does what the person types, until they leave.
    async fn converse(&mut self) -> CommandResult {
        loop {
            self.draw(Activity::Idle);
            let line = match self.queue.pop_front() {
                Some(line) => line,
                None => match self.idle_line().await {
                    Some(line) => line,
                    None => return Ok(Exit::Success),
                },
            };
            let done = match Slash::parse(&line) {
                Some(Ok(Slash::Quit)) => return Ok(Exit::Success),
                Some(Ok(command)) => {
                    self.echo(&line);
                    self.command(command).await
                }
                Some(Err(failure)) => Err(failure),
                None if line.trim().is_empty() => self.go_on().await,
                None => self.message(&line).await,
            };
            if let Err(failure) = done {
                output::error(&failure);
                self.needs_gap = true;
            }
            if self.session.is_none() {
                return Err(Failure::new("the session was lost", "`rath` opens it again, up to its last stored step"));
            }
        }
    }

    /// Waits for a line while no agent works. None if the person leaves.
    async fn idle_line(&mut self) -> Option<String> {
        let stop = crate::signals::stop_requested();
        let mut stop = std::pin::pin!(stop);
        loop {
            let event = tokio::select! {
                event = self.keys.next() => event?,
                () = &mut stop => return None,
            };
            let edit = self.edit(event);
            let was_leaving = self.is_leaving;
            self.is_leaving &= edit == Edit::Nothing;
            match edit {
                Edit::Sent(line) => return Some(line),
                Edit::End => return None,
                Edit::Stop if was_leaving => return None,
                Edit::Stop if self.is_deciding => return Some(String::new()),
                Edit::Stop => {
                    // A draft is not lost by the second Ctrl-C of two.
                    self.is_leaving = self.editor.is_empty();
                    self.editor.set("");
                }
                _ => {}
            }
            self.draw_after_keys(Activity::Idle);
        }
    }

    /// Returns true if what is typed answers a question.
    fn is_asking(&self) -> bool {
        self.question.is_some() || self.is_deciding
    }

    /// Applies an event of the terminal to the line that is typed.
    fn edit(&mut self, event: TerminalEvent) -> Edit {
        let editor = if self.is_asking() { &mut self.answer } else { &mut self.editor };
        let edit = match event {
            TerminalEvent::Key(key) if key.kind != KeyEventKind::Release => editor.key(key),
            TerminalEvent::Paste(text) => {
                if text.is_empty() {
                    output::note("a terminal passes no image of the clipboard: save it in a file, and type @FILE");
                }
                let image = attachments::pasted_image(&text, &self.directory);
                if !editor.paste(image.as_deref().unwrap_or(&text)) {
                    let message =
                        format!("the text is longer than {} characters", output::grouped(editor::MAX_CHARS as u64));
                    output::error(&Failure::new(message, "save it in a file, and attach that with @FILE"));
                }
                Edit::Changed
            }
            TerminalEvent::Resize(..) => {
                terminal::redraw();
                Edit::Changed
            }
            _ => Edit::Nothing,
        };
        match edit {
            Edit::Complete => {
                self.complete();
                Edit::Changed
            }
            Edit::Clear => {
                terminal::clear();
                Edit::Changed
            }
            Edit::Suspend => {
                if let Err(error) = self.terminal.suspend() {
                    output::warning(&format!("cannot stop: {error}"));
                }
                Edit::Changed
            }
            edit => edit,
        }
    }

    /// Completes the word before the cursor: a command, or a path after `@`.
    fn complete(&mut self) {
        if self.is_asking() {
            return;
        }
        let (before, _) = self.editor.around_cursor();
        let completion = match BegunMention::find(&before) {
            Some(mention) => mention.complete(&before, &self.directory),
            None if before.starts_with('/') && !before.contains(char::is_whitespace) => slash::complete(&before),
            None => return,
        };
        match completion {
            Completion::Text(text) => self.editor.replace_before(&text),
            Completion::Choices(names) => {
                let list: Vec<_> = names.iter().map(|name| one_line(name)).collect();
                print_lines(&Line::default().with(FAINT, list.join("  ")).wrap(terminal::columns(), &Line::default()));
            }
        }
    }

    /// Prints what the session is, and the end of what was said.
    fn introduce(&mut self) {
        let Some(session) = self.session.clone() else { return };
        if !self.is_stored {
            output::message!("a new session; /help lists the commands");
            return;
        }
        let id = session.id().short();
        output::message!("session {id}; /new begins another one, /help lists the commands");
        let (message, answer) = newest_turn(&session);
        if let Some(message) = message {
            self.print_gap();
            self.echo(&message);
        }
        if let Some(text) = answer {
            let lines = markdown::render(&text, terminal::columns());
            print_lines(&lines);
        }
        self.needs_gap = true;
        if session.next() != Next::Done {
            output::message!("{FAINT}the last turn was not finished: Enter goes on with it{FAINT:#}");
        }
    }

    /// Prints a line that the person sent.
    fn echo(&self, text: &str) {
        self.echo_behind(MESSAGE_PROMPT, text);
    }

    /// Prints a line with which the person answered a question.
    fn echo_answer(&self, text: &str) {
        self.echo_behind(ANSWER_PROMPT, text);
    }

    fn echo_behind(&self, prompt: &str, text: &str) {
        let lines: Vec<_> = text.lines().collect();
        for (nth, line) in lines.iter().enumerate() {
            let mark = if nth == 0 { prompt } else { "  " };
            let whole = Line::default().with(BOLD, format!("{mark}{}", one_line(line)));
            print_lines(&whole.wrap(terminal::columns(), &"  ".into()));
        }
    }

    /// Prints a blank line, if something was printed before.
    fn print_gap(&mut self) {
        if std::mem::take(&mut self.needs_gap) {
            output::message!("");
        }
    }

    /// Draws the area, once all keys are applied that are there.
    fn draw_after_keys(&mut self, activity: Activity<'_>) {
        if !self.keys.has_more() {
            self.draw(activity);
        }
    }

    /// Draws the area at the bottom of the terminal.
    fn draw(&mut self, activity: Activity<'_>) {
        let columns = terminal::columns();
        let mut lines = Vec::new();
        if let Activity::Working { .. } = activity {
            let text = self.markdown.incomplete(columns);
            let skipped = text.len().saturating_sub(MAX_LIVE_LINES);
            lines.extend(text.into_iter().skip(skipped));
            lines.extend(self.cards.live(columns.saturating_sub(1)));
        }
        lines.extend(self.queue.iter().map(|text| editor::waiting_row(text)));
        lines.push(Line::default());
        let prompt = Line::default().with(BOLD, if self.is_asking() { ANSWER_PROMPT } else { MESSAGE_PROMPT });
        let editor = if self.is_asking() { &self.answer } else { &self.editor };
        let (rows, at) = editor.rows(&prompt, columns);
        let cursor = CursorPosition { line: lines.len() + at.line, column: at.column };
        lines.extend(rows);
        lines.push(self.status(&activity, columns));
        terminal::show(lines, cursor);
    }

    /// Returns the last row: what the agent does or the model, the tokens and the money so far, and the directory.
    fn status(&mut self, activity: &Activity<'_>, columns: usize) -> Line {
        let (first, session) = match activity {
            Activity::Idle if self.is_leaving => {
                return Line::default().with(FAINT, "Ctrl-C again leaves; the session is kept");
            }
            Activity::Idle => (self.model.clone(), self.session.as_ref()),
            Activity::Working { since, session } => {
                let time = crate::cards::duration(since.elapsed());
                (format!("working {time}, Ctrl-C stops"), Some(*session))
            }
        };
        // The bill of a long session takes longer than a drawing.
        let head = session.and_then(Session::head).map(|step| step.id());
        if self.figures.0 != head {
            self.figures = (head, session.map(Figures::of).unwrap_or_default());
        }
        let directory = matches!(activity, Activity::Idle).then(|| output::home_path(&self.directory));
        let parts: Vec<_> =
            [Some(first)].into_iter().chain(self.figures.1.parts()).chain([directory]).flatten().collect();
        status_row(&parts, columns)
    }

    /// Releases the terminal, and says where the session is.
    fn close(mut self) {
        self.terminal.leave();
        let id = self.session.as_ref().filter(|_| self.is_stored).map(|session| session.id().short());
        match id {
            Some(id) => output::message!("saved as {id}; `rath{}` goes on with it", self.option),
            None => output::message!("nothing was said, so nothing was saved"),
        }
    }
}

/// The activity of the agent while the area is drawn.
#[derive(Clone, Copy)]
enum Activity<'a> {
    Idle,
    Working { since: std::time::Instant, session: &'a Session },
}

/// The text before the line that is typed: for a message or a command, and for the answer to a question.
const MESSAGE_PROMPT: &str = "> ";
const ANSWER_PROMPT: &str = "? ";
/// The lines of an answer that is not complete which are shown.
const MAX_LIVE_LINES: usize = 8;

/// Does work that has the terminal for itself: it may read lines, or start a pager.
async fn outside<T>(
    keys: &Keyboard,
    terminal: &mut ConversationTerminal,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let paused = keys.pause();
    terminal.leave();
    let done = work.await;
    let entered = terminal.enter();
    drop(paused);
    entered?;
    done
}

async fn new_setup(args: &AgentArgs) -> Result<Setup, Failure> {
    let agent = args.agent(None).await?;
    args.require_directory()?;
    let mut session = Session::empty().hiding(agent::secrets()).decided_by(asking::user_name());
    args.begin(&mut session)?;
    Ok(Setup { agent, session, is_stored: false })
}

/// Returns the messages that the user sent, oldest first.
fn sent_messages(session: &Session) -> Vec<String> {
    let texts = session.chunks().filter_map(|chunk| match chunk {
        Chunk::User(user) => Some(user.text.as_str()?.to_owned()),
        _ => None,
    });
    texts.collect()
}

/// Returns the newest message of the person that the model still reads, and the answer to it.
fn newest_turn(session: &Session) -> (Option<String>, Option<String>) {
    let (mut sent, mut answer) = (None, None);
    for message in &session.messages().list {
        match message {
            Message::User(step, user) if step.stamp().by.is_none() => {
                (sent, answer) = (user.text.as_str().map(str::to_owned), None);
            }
            Message::Assistant(_, assistant, _) => {
                let text = assistant.text.as_str().filter(|text| !text.trim().is_empty());
                answer = text.map(str::to_owned).or(answer);
            }
            _ => {}
        }
    }
    (sent, answer)
}

/// The usage of a session, as the last row shows it.
#[derive(Default)]
struct Figures {
    tokens: Option<String>,
    money: Option<String>,
    /// The part of the tokens that came from the provider's cache.
    cached: Option<String>,
}

impl Figures {
    fn of(session: &Session) -> Self {
        let usage = session.usage();
        let tokens = usage.input.saturating_add(usage.output);
        let cost = session.cost(&Prices::list()).total;
        let has_cached = usage.cached_read > 0 && usage.input > 0;
        Figures {
            tokens: (tokens > 0).then(|| format!("{} tokens", output::grouped(tokens))),
            money: (cost > Money::default()).then(|| cost.to_string()),
            cached: has_cached
                .then(|| format!("{}% from the cache", usage.cached_read.saturating_mul(100) / usage.input)),
        }
    }

    /// Returns the figures that there are, the more important ones first.
    fn parts(&self) -> [Option<String>; 3] {
        [self.tokens.clone(), self.money.clone(), self.cached.clone()]
    }
}

/// Returns the last row: as many of these parts as fit, the first of them at least, if it has to be cut.
fn status_row(parts: &[String], columns: usize) -> Line {
    // The last column stays free, as in all rows of the area.
    let columns = columns.saturating_sub(1);
    let row = |parts: &[String]| Line::default().with(FAINT, one_line(&parts.join(" · ")));
    let fitting = (1..=parts.len()).rev().map(|shown| row(&parts[..shown])).find(|row| row.columns() <= columns);
    fitting.unwrap_or_else(|| row(&parts[..parts.len().min(1)]).cut(columns))
}

fn print_lines(lines: &[Line]) {
    lines.iter().for_each(|line| output::message!("{}", line.styled()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_row_has_the_whole_width_and_gives_up_the_directory_first() {
        let parts = ["openai:gpt-5", "12,345 tokens", "$0.12", "80% from the cache", "~/a/long/directory/of/a/project"];
        let parts: Vec<_> = parts.map(str::to_owned).into();
        for (columns, expected) in [
            (120, "openai:gpt-5 · 12,345 tokens · $0.12 · 80% from the cache · ~/a/long/directory/of/a/project"),
            (80, "openai:gpt-5 · 12,345 tokens · $0.12 · 80% from the cache"),
            (57, "openai:gpt-5 · 12,345 tokens · $0.12"),
            (30, "openai:gpt-5 · 12,345 tokens"),
            (10, "openai:g…"),
        ] {
            assert_eq!(status_row(&parts, columns).plain(), expected, "{columns}");
        }
    }
}
