//! Finding and reading the session that an argument names: a session file, or a session in a store.

mod names;
mod steps;

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use rath::provider::Request;
use rath::record::codec::{Ending, Report};
use rath::record::draw::{count, one_line, preview};
use rath::record::lineage::{self, Lineage};
use rath::record::{Record, SHORT_ID_DIGITS, Step, StepId};
use rath::store::{BranchSummary, Create, Damage, Registry, StoreError};
use rath::turn::Next;
use rath::{BranchId, ErrorKind, Resumed, Session, SessionFile, Store, view};

use crate::agent::{anyway_options, secrets};
use crate::configuration;
use crate::output::{self, CommandResult, Exit, Failure};
use crate::{sandboxes, scripts};

pub(crate) use self::names::{find_branch, parse_fork_name};
use self::names::{hint_list, tips};
pub(crate) use self::steps::{NamedStep, SessionAtArg, StepArg, read_at, split_step};

/// The store that is used where none is named. It is in the current directory, or in one above it: see [`store_directory`].
pub(crate) const DEFAULT_STORE: &str = "sqlite:.rath/rath.db";
/// The name of the newest session.
pub(crate) const NEWEST: &str = "@";
const DEFAULT_STORE_FILE: &str = ".rath/rath.db";

/// Returns the directory whose `.rath` has the default store, and the files of imported sessions: the current directory, or else the
/// nearest one above it that has a store, up to the repository. A store of another user is passed over.
pub(crate) fn store_directory() -> PathBuf {
    let here = PathBuf::from(".");
    let Ok(current) = std::env::current_dir() else { return here };
    for directory in current.ancestors() {
        let file = directory.join(DEFAULT_STORE_FILE);
        if file.is_file() && !configuration::is_of_others(&file, &current) {
            return if directory == current { here } else { directory.to_owned() };
        }
        // A project ends at its repository.
        if directory.join(".git").exists() {
            break;
        }
    }
    here
}

/// The option that names a store.
#[derive(clap::Args, Clone)]
pub(crate) struct StoreArg {
    /// The store of sessions: sqlite:PATH, jsonl:DIRECTORY or memory:
    #[arg(long, value_name = "STORE", default_value = DEFAULT_STORE, value_parser = parse_store)]
    store: String,
}

/// The kinds of store, without that of one session.
const STORE_KINDS: [&str; 3] = ["sqlite", "jsonl", "memory"];

/// Reads the URI of a store.
pub(crate) fn parse_store(uri: &str) -> Result<String, String> {
    match uri.split_once(':') {
        Some((kind, _)) if STORE_KINDS.contains(&kind) => Ok(uri.to_owned()),
        Some(("file", path)) => {
            let path = output::quote(path);
            Err(format!("a session file is named by its path, {path}, in place of the session"))
        }
        _ => Err("wanted sqlite:PATH, jsonl:DIRECTORY or memory:".to_owned()),
    }
}

impl StoreArg {
    /// Opens the store, which has to exist.
    pub(crate) async fn open(&self) -> Result<Store, Failure> {
        open(&self.store, Create::Never).await
    }

    /// Opens the store, and creates it if it does not exist.
    pub(crate) async fn open_or_create(&self) -> Result<Store, Failure> {
        open(&self.store, Create::IfMissing).await
    }

    /// Opens the store, which has to exist, for a server: the caller closes it.
    pub(crate) async fn open_for_server(&self) -> Result<Store, StoreError> {
        open_store(&self.store, Create::Never).await
    }

    /// Returns the URI of the store.
    pub(crate) fn uri(&self) -> &str {
        &self.store
    }

    /// Returns true if this is the store with that URI.
    pub(crate) fn has_uri(&self, uri: &str) -> bool {
        self.store == uri
    }

    /// Returns the option that names this store in a hint.
    pub(crate) fn option(&self) -> String {
        store_option(&self.store)
    }
}

/// Returns the option that names a store in a hint: empty for the default store.
pub(crate) fn store_option(uri: &str) -> String {
    if uri == DEFAULT_STORE { String::new() } else { format!(" --store {}", output::quote(uri)) }
}

tokio::task_local! {
    /// The stores that the command has opened.
    static OPEN_STORES: RefCell<Vec<Store>>;
}

/// Runs a command, then closes the stores that it opened, also if it failed.
pub(crate) async fn closing_stores(command: impl Future<Output = CommandResult>) -> CommandResult {
    let closing = async {
        let result = command.await;
        for store in OPEN_STORES.with(RefCell::take) {
            // A write that failed was reported by the command that awaited it.
            let _ = store.close().await;
        }
        result
    };
    OPEN_STORES.scope(RefCell::default(), closing).await
}

/// Opens the store at `uri`, which is closed when the command ends.
pub(crate) async fn open(uri: &str, create: Create) -> Result<Store, Failure> {
    let store = open_store(uri, create).await?;
    OPEN_STORES.with(|stores| stores.borrow_mut().push(store.clone()));
    Ok(store)
}

/// Opens the store at `uri`, which the caller closes.
async fn open_store(uri: &str, create: Create) -> Result<Store, StoreError> {
    let above = Some(store_directory()).filter(|directory| uri == DEFAULT_STORE && directory != Path::new("."));
    let uri =
        &*above.map_or(uri.to_owned(), |directory| format!("sqlite:{}", directory.join(DEFAULT_STORE_FILE).display()));
    let opened = Registry::new().open_as(uri, create).await;
    Ok(opened?.hiding(&secrets()).sandboxes(sandboxes::kinds()))
}

/// Returns the problem with the user's key, if sessions cannot be signed with it: they would be guests later.
pub(crate) fn key_problem() -> Option<Failure> {
    let error = rath::store::UserKey::load_blocking().err()?;
    let message = format!("sessions cannot be recognised as yours later: {error}");
    Some(Failure::new(message, "the key is the file rath/user.key in ~/.local/share, or in $XDG_DATA_HOME"))
}

/// The arguments that name a session in a store or a session file.
#[derive(clap::Args)]
pub(crate) struct SessionArg {
    /// A session: the first digits of its id, a title, `@` for the newest, `@-1` for the one before it, or a session file
    #[arg(default_value = NEWEST)]
    session: String,
    #[command(flatten)]
    store: StoreArg,
}

impl SessionArg {
    /// Reads the session.
    pub(crate) async fn read(&self) -> Result<LoadedSession, Failure> {
        read(&self.session, &self.store).await
    }

    /// Returns the path, if the argument names a file.
    pub(crate) fn file(&self) -> Option<&Path> {
        as_file(&self.session)
    }

    /// Finds the session in the store, for a command that works on damaged stores.
    pub(crate) async fn find_in_store(&self) -> Result<StoredSession, Failure> {
        if let Err(failure) = self.store.open().await {
            // The hint of a damaged store is to salvage it, which is what the user just tried.
            let hint = "nothing can be copied from a store that cannot be opened";
            return Err(if failure.exit == Exit::Differs { failure.with_hint(hint) } else { failure });
        }
        find_stored(&self.session, &self.store).await
    }
}

/// The arguments that name a session in a store.
#[derive(clap::Args)]
pub(crate) struct StoredSessionArg {
    /// A session: the first digits of its id, a title, `@` for the newest, `@-1` for the one before it
    #[arg(default_value = NEWEST)]
    session: String,
    #[command(flatten)]
    store: StoreArg,
}

impl StoredSessionArg {
    /// Finds the session in the store.
    pub(crate) async fn find(&self) -> Result<StoredSession, Failure> {
        if let Some(path) = as_file(&self.session).filter(|path| path.exists()) {
            return Err(needs_store(path, &self.store));
        }
        find_stored(&self.session, &self.store).await
    }

    /// Finds the session, and its prompt if there is one. A text of several words that names no session is the prompt of the newest.
    pub(crate) async fn find_with<'a>(
        &'a self,
        prompt: Option<&'a str>,
    ) -> Result<(StoredSession, Option<&'a str>), Failure> {
        let is_text = prompt.is_none() && self.session.contains(char::is_whitespace);
        match self.find().await {
            Ok(stored) => Ok((stored, prompt)),
            // Several sessions may have the title.
            Err(failure) if is_text && failure.exit != Exit::Usage => {
                let newest = find_stored(NEWEST, &self.store).await?;
                output::note(&format!("using the newest session, {}", newest.branch.short()));
                Ok((newest, Some(&self.session)))
            }
            Err(failure) => Err(failure),
        }
    }
}

/// Returns the failure of a command on a session file that works on sessions in a store only.
pub(crate) fn needs_store(path: &Path, store: &StoreArg) -> Failure {
    let message = format!("wanted a session in a store, found the file {}", path.display());
    let import = format!("`rath import {}{}`", output::quote(&path.display().to_string()), store.option());
    Failure::new(message, format!("{import} copies it into the store")).with_exit(Exit::Usage)
}

/// Reads the session that `name` means, or the newest session of the store where there is no name.
pub(crate) async fn read_or_newest(name: Option<&str>, store: &StoreArg) -> Result<LoadedSession, Failure> {
    let loaded = read_at(name.unwrap_or(NEWEST), store).await?;
    if name.is_none() {
        output::note(&format!("using the newest session, {}", loaded.name()));
    }
    Ok(loaded)
}

/// Returns the newest session of a store that this user made and no process writes, if it is the newest of all.
pub(crate) async fn newest_own(store: &Store) -> Result<Option<BranchId>, Failure> {
    let newest = tips(store).await?.pop();
    let Some(newest) = newest else { return Ok(None) };
    let name = newest.branch.short();
    if newest.holder.as_ref().is_some_and(|holder| !holder.is_dead()) {
        output::note(&format!("session {name} is open in another process"));
        return Ok(None);
    }
    let is_guest = store.read(newest.branch).await?.session.is_guest();
    if is_guest {
        output::note(&format!("session {name} was not made by you"));
    }
    Ok((!is_guest).then_some(newest.branch))
}

/// A session in a store that was found, but not read.
pub(crate) struct StoredSession {
    pub(crate) store: Store,
    pub(crate) branch: BranchId,
    /// The option that names the store in a hint.
    pub(crate) option: String,
}

/// A session that was read, with its source.
pub(crate) struct LoadedSession {
    pub(crate) session: Session,
    /// All steps that were read with the session.
    pub(crate) lineage: Lineage,
    /// All steps of the session that was named, also those after the step that was named with it.
    pub(crate) whole: Lineage,
    pub(crate) source: Source,
    /// The name of the session on a command line.
    name: String,
    /// The option that names its store in a hint.
    option: String,
}

/// The place that a session was read from.
pub(crate) enum Source {
    File(PathBuf, Report),
    Store(Store, Box<BranchSummary>, Vec<Damage>),
}

impl LoadedSession {
    /// Returns the session as it was at one of its steps.
    pub(crate) fn at(mut self, step: Step) -> Self {
        // In a damaged file the head may no longer lead back to the step: the step is then the head of what is read.
        let damaged = || Session::resume(Record::at(step.clone())).hiding(secrets()).with_files_in(store_directory());
        self.session = self.session.at(step.id()).unwrap_or_else(|_| damaged());
        self.lineage = Lineage::new([step]);
        self
    }

    /// Returns the file or directory that the session was read from.
    pub(crate) fn path(&self) -> Option<&Path> {
        match &self.source {
            Source::File(path, _) => Some(path),
            Source::Store(store, ..) => store.path(),
        }
    }

    /// Returns the name of the session on a command line.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the option that names its store in a hint.
    pub(crate) fn option(&self) -> &str {
        &self.option
    }

    /// Returns a command line on this session, for a hint. `rest` follows the session's name.
    pub(crate) fn command(&self, command: &str, rest: &str) -> String {
        format!("`rath {command} {}{rest}{}`", output::quote(&self.name), self.option)
    }

    /// Returns a command line that continues this session, for a hint.
    pub(crate) fn resume_command(&self) -> String {
        continue_command(self, &self.session)
    }

    /// Returns a command line that continues another session of the same store, for a hint.
    pub(crate) fn resume_other(&self, session: &Session, options: &str) -> String {
        resume_command(session, options, &self.option)
    }

    /// Returns true if a word can name a step of the session: [`Self::find_step`] then finds it, or says why not.
    fn may_name_step(&self, word: &str) -> bool {
        let digits = word.to_lowercase();
        let is_prefix = |id: StepId| !digits.is_empty() && id.to_string().starts_with(&digits);
        let walk = self.lineage.walk();
        word == "head"
            || lineage::branches(&walk).iter().any(|branch| branch.name == word)
            || walk.iter().any(|step| is_prefix(step.id()))
            || self.lineage.missing().into_iter().any(is_prefix)
    }

    /// Finds a step by the first digits of its id, by the name of a branch, or as `head`.
    pub(crate) fn find_step(&self, wanted: &str) -> Result<&Step, Failure> {
        let (lineage, name) = (&self.lineage, &self.name);
        let fail = |message: String, hint: &str| Err(Failure::new(message, hint));
        let list = format!("{} lists the steps", self.command("log", ""));
        let Some(newest) = lineage.heads().last() else {
            return fail(format!("there are no steps in {name}"), "the file may have been cut off at its beginning");
        };
        if wanted == "head" {
            return Ok(newest);
        }
        let walk = lineage.walk();
        if let Some(branch) = lineage::branches(&walk).into_iter().find(|branch| branch.name == wanted) {
            return Ok(branch.head);
        }
        let digits = wanted.to_lowercase();
        if digits.is_empty() || !digits.chars().all(|c| c.is_ascii_hexdigit()) {
            let message = format!("wanted the first digits of a step's id, a branch, or `head`, found `{wanted}`");
            return fail(message, &list);
        }
        let has_prefix = |id: StepId| id.to_string().starts_with(&digits);
        let mut matching = walk.iter().filter(|step| has_prefix(step.id()));
        match (matching.next(), matching.next()) {
            (Some(step), None) => Ok(step),
            (Some(first), Some(second)) => fail(
                format!("several step ids begin with `{wanted}`: {:.12}, {:.12}, ..", first.id(), second.id()),
                "give more digits",
            ),
            (None, _) => match lineage.missing().into_iter().find(|id| has_prefix(*id)) {
                Some(lost) => fail(
                    format!("step {lost:.SHORT_ID_DIGITS$} is damaged or missing"),
                    &format!("{} lists the damage", self.command("verify", "")),
                ),
                None => fail(format!("there is no step `{wanted}` in {name}"), &list),
            },
        }
    }

    /// Returns the request that the model's answer in `step` came from.
    ///
    /// `typed` is the step as the user named it, after a space, or empty: it is repeated in a hint.
    pub(crate) fn sent_request(&self, step: &Step, typed: &str) -> Result<Request, Failure> {
        let session = Session::resume(Record::at(step.clone()));
        session.request(step.id()).map_err(|error| {
            // A step that is no answer can still be rendered for a model that is named.
            let hint = (error.kind() == ErrorKind::Request).then(|| self.render_hint(typed));
            let failure = Failure::from(error);
            hint.into_iter().fold(failure, Failure::with_hint)
        })
    }

    /// Returns a hint that renders a step for a model that the user names.
    pub(crate) fn render_hint(&self, typed: &str) -> String {
        let command = self.command("render", &format!("{typed} --to openai:gpt-5"));
        format!("{command} shows the request that would be sent now")
    }

    /// Fails if the session was made by others: nothing of it runs. The message shows what it would run, and where.
    pub(crate) fn require_own(&self) -> Result<(), Failure> {
        match self.session.is_guest() {
            false => Ok(()),
            true => Err(guest_failure(&self.session, &self.name, &self.option)),
        }
    }

    /// Fails unless the files of the session are on its record.
    pub(crate) fn require_files(&self) -> Result<(), Failure> {
        if self.session.tree().is_some() {
            return Ok(());
        }
        let at =
            self.session.head().map(|step| format!(" at step {:.SHORT_ID_DIGITS$}", step.id())).unwrap_or_default();
        let message = format!("no files are recorded in session {}{at}", self.name);
        Err(Failure::new(message, "files are recorded when an agent with tools runs in a sandbox"))
    }

    /// Takes the session if only its files differ from the record: the caller records them.
    pub(crate) fn accept_file_changes(&self, resumed: Resumed) -> Result<Session, Failure> {
        let (options, effect) = anyway_options(resumed.certificate());
        resumed.accept_file_changes().map_err(|error| match error.kind() {
            ErrorKind::Differs => {
                let options = spaced(&[model_option(&self.session), &options]);
                Failure::from(error).with_hint(format!("{} {effect}", self.resume_other(&self.session, &options)))
            }
            _ => self.explain(error),
        })
    }

    /// Turns an error of an operation on the session's files into a failure with a hint for the command line.
    pub(crate) fn explain(&self, error: rath::Error) -> Failure {
        let kind = error.kind();
        let failure = Failure::from(error);
        match kind {
            ErrorKind::Place if self.session.forgotten_place().is_some() => {
                failure.with_hint(format!("{} gives it one", self.resume_command()))
            }
            ErrorKind::Guest => guest_failure(&self.session, &self.name, &self.option),
            ErrorKind::Approval => {
                let review = self.command("review", "");
                failure.with_hint(format!("{review} shows what is waiting for you")).with_exit(Exit::Waiting)
            }
            _ => failure,
        }
    }

    /// Returns the number of damaged places among the steps that the session needs.
    pub(crate) fn damaged_places(&self) -> u64 {
        match &self.source {
            Source::File(_, report) => report.damaged_places(),
            Source::Store(_, _, damage) => damage.len() as u64,
        }
    }

    /// Warns on stderr if the session is damaged or its file not closed.
    pub(crate) fn warn(&self) -> Exit {
        let places = self.damaged_places();
        if places > 0 {
            let (name, places) = (&self.name, count(places, "place"));
            let verify = self.command("verify", "");
            output::warning(&format!(
                "{name} is damaged in {places}; the rest was read\nhint: {verify} lists the damage"
            ));
            return Exit::Differs;
        }
        if let Source::File(path, report) = &self.source
            && report.ending != Ending::Closed
        {
            output::warning(&format!("{}: {}", path.display(), report.ending));
        }
        Exit::Success
    }

    /// Returns the failure of a command that works on undamaged sessions only.
    pub(crate) fn damaged(&self) -> Failure {
        let hint = format!("{} copies what can be read", self.command("salvage", " copy.rath"));
        Failure::new(format!("{} is damaged", self.name), hint).with_exit(Exit::Differs)
    }
}

/// Returns the failure of a command that would run something of a session that others made.
pub(crate) fn guest_failure(session: &Session, name: &str, option: &str) -> Failure {
    let mut message =
        format!("session {name} was not made by you here (it was imported, copied or moved): nothing of it runs");
    if let Some(place) = session.place() {
        message.push_str(&format!("\nits tools would run in {}", one_line(place.as_str())));
    }
    let mut effect = "takes it over";
    if let Next::RunTools(calls) = session.next() {
        const SHOWN_CALLS: usize = 10;
        effect = "takes it over; its open calls wait for you";
        for pending in calls.iter().take(SHOWN_CALLS) {
            let arguments = preview(&pending.call.arguments.to_string());
            message.push_str(&format!("\nit would call: {} {arguments}", preview(&pending.call.tool)));
        }
        if calls.len() > SHOWN_CALLS {
            message.push_str(&format!("\nand {} more", calls.len() - SHOWN_CALLS));
        }
    }
    Failure::new(message, format!("{} {effect}", adopt_command(name, option))).with_exit(Exit::Waiting)
}

/// Returns a command line that takes over a session which others made, for a hint. One in a file is imported first.
fn adopt_command(name: &str, option: &str) -> String {
    match as_file(name) {
        Some(_) => format!("`rath import {}`", output::quote(name)),
        None => format!("`rath adopt {}{option} --sandbox isolated:.`", output::quote(name)),
    }
}

/// Returns a command line that continues a session which was read before, for a hint.
pub(crate) fn continue_command(loaded: &LoadedSession, session: &Session) -> String {
    let model = model_option(session);
    match &loaded.source {
        Source::Store(..) => loaded.resume_other(session, model),
        Source::File(..) if session.is_guest() => adopt_command(&loaded.name, ""),
        Source::File(..) => {
            let prompt = if session.next() == Next::Done { " 'Go on.'" } else { "" };
            format!(
                "`rath run{prompt} --store {}{}`",
                output::quote(&format!("file:{}", loaded.name)),
                spaced(&[model])
            )
        }
    }
}

/// Returns the option without which a session does not find its model, for a hint: empty if the record names it.
///
/// The record holds the name of a script, but not its path, which is kept in the user's data directory.
pub(crate) fn model_option(session: &Session) -> &'static str {
    let instructions = view::instructions(session.as_record()).map(|(_, instructions)| instructions);
    match instructions.and_then(|instructions| instructions.provider.as_ref()) {
        Some(identity) if crate::keys::PROVIDERS.contains(&identity.provider.as_str()) => "",
        Some(identity) if identity.provider == "script" => match scripts::of_session(session) {
            Some(_) => "",
            None => "--model script:FILE",
        },
        _ => "--model MODEL",
    }
}

/// Returns the words that are not empty, each with a blank before it.
pub(crate) fn spaced(words: &[&str]) -> String {
    words.iter().filter(|word| !word.is_empty()).map(|word| format!(" {word}")).collect()
}

/// Returns a command line that continues a session in a store, for a hint.
///
/// A session that is done gets a prompt: without one there is nothing to do. One whose place was forgotten needs one.
pub(crate) fn resume_command(session: &Session, options: &str, store_option: &str) -> String {
    if session.is_guest() {
        return adopt_command(&session.id().short(), store_option);
    }
    let prompt = if session.next() == Next::Done { " 'Go on.'" } else { "" };
    let place = session.forgotten_place().map(|place| format!(" --sandbox {}", output::quote(place.as_str())));
    let options = spaced(&[options.trim()]);
    format!("`rath resume {}{prompt}{options}{}{store_option}`", session.id().short(), place.unwrap_or_default())
}

/// Reads the session that `name` means.
pub(crate) async fn read(name: &str, store: &StoreArg) -> Result<LoadedSession, Failure> {
    let Some(path) = as_file(name) else { return read_stored(find_stored(name, store).await?).await };
    if !path.exists() {
        match find_stored(name, store).await {
            Ok(found) => return read_stored(found).await,
            // Several sessions have the title.
            Err(failure) if failure.exit == Exit::Usage => return Err(failure),
            Err(_) => {}
        }
    }
    match path.exists() {
        true => read_file(path).await,
        false => {
            let message = format!("there is no session and no file `{}`", one_line(name));
            Err(Failure::new(message, hint_list(&store.option())))
        }
    }
}

/// Reads a session that was found in a store.
pub(crate) async fn read_stored(stored: StoredSession) -> Result<LoadedSession, Failure> {
    let StoredSession { store, branch, option } = stored;
    let rath::StoredSession { session, summary: listed, damage } = store.read(branch).await?;
    let session = session.with_files_in(store_directory());
    let (lineage, name) = (session.lineage(), branch.short());
    let (whole, source) = (lineage.clone(), Source::Store(store, Box::new(listed), damage));
    Ok(LoadedSession { session, lineage, whole, source, name, option })
}

/// Reads a session file.
pub(crate) async fn read_file(path: &Path) -> Result<LoadedSession, Failure> {
    Ok(loaded_file(path, Session::open(path).await?))
}

/// Returns the session of a file that was read.
pub(crate) fn loaded_file(path: &Path, opened: SessionFile) -> LoadedSession {
    let source = Source::File(path.to_owned(), opened.report);
    let (name, option) = (path.display().to_string(), String::new());
    let session = opened.session.hiding(secrets()).sandboxes(sandboxes::kinds()).with_files_in(store_directory());
    let lineage = opened.lineage;
    LoadedSession { session, whole: lineage.clone(), lineage, source, name, option }
}

/// Finds the session in the store that `name` means.
pub(crate) async fn find_stored(name: &str, store: &StoreArg) -> Result<StoredSession, Failure> {
    let option = store.option();
    let store = store.open().await?;
    let branch = find_branch(&store, name, &option).await?;
    Ok(StoredSession { store, branch, option })
}

/// Turns an error into a failure whose hint is to wait, if another process holds the session.
pub(crate) fn explain_held(error: impl Into<rath::Error>) -> Failure {
    let error = error.into();
    let is_held = error.kind() == ErrorKind::Conflict;
    let failure = Failure::from(error);
    if is_held { failure.with_hint("wait until that process is done, or stop it") } else { failure }
}

/// Returns the path that `name` means, unless it can be the id or the number of a session.
///
/// A name that can be neither is a path, even if there is no such file.
pub(crate) fn as_file(name: &str) -> Option<&Path> {
    let path = Path::new(name);
    let is_id = name.starts_with('@') || name.chars().all(|c| c.is_ascii_hexdigit() || c == '-');
    (!is_id || (path.exists() && !path.is_dir())).then_some(path)
}
