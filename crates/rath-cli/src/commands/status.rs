//! `rath status`: show how far a session is, where its files are, and what changed since its last turn.

use std::io::{self, Write};

use rath::chunk::Verdict;
use rath::record::Step;
use rath::record::draw::{one_line, preview};
use rath::view::{self, Freshness};
use rath::{BranchId, Certificate, Difference, Session, StoredSession, Usage};

use super::ls::{HolderCache, ListedSession};
use super::review::WaitingCall;
use crate::agent::{anyway_options, describe_change};
use crate::output::{self, BRANCH, CommandResult, Exit};
use crate::sessions::{self, LoadedSession, Source, StoreArg, model_option, spaced};
use crate::unwritten::UnwrittenFiles;

/// Show how far a session is, where its files are, and what changed since
///
/// The exit code is 3 if something changed since the last turn, and 4 if something is waiting for your decision.
#[derive(clap::Args)]
pub(crate) struct StatusArgs {
    /// The session (default: the newest)
    session: Option<String>,
    #[command(flatten)]
    store: StoreArg,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: &StatusArgs) -> CommandResult {
    let loaded = match args.session.as_deref() {
        Some(name) => sessions::read(name, &args.store).await?,
        None => sessions::read_or_newest(None, &args.store).await?,
    };
    let exit = loaded.warn();
    let Source::Store(store, summary, damage) = &loaded.source else {
        return Err(sessions::needs_store(loaded.path().unwrap_or("".as_ref()), &args.store));
    };
    let mut holders = HolderCache::default();
    let listed = ListedSession::of_loaded(&loaded, store, summary).await;
    // A fork is compared as its session is, and takes no right to write from the process that has it.
    let certificate = match listed.is_running(&mut holders) {
        true => None,
        false if loaded.session.head().map(Step::id) == Some(summary.head) => {
            let (session, summary, damage) = (loaded.session.clone(), (**summary).clone(), damage.clone());
            Some(StoredSession { session, summary, damage }.fork().await?.certificate().clone())
        }
        false => Some(store.fork(summary.branch).await?.certificate().clone()),
    };
    let unwritten = UnwrittenFiles::of(&loaded.session).await;
    let status = SessionStatus::new(&loaded, &listed, &mut holders, certificate.as_ref(), unwritten.as_ref()).await;
    match args.json {
        true => output::data(|out| output::json_line(out, &status))?,
        false => {
            output::text(|out| print(out, &status))?;
            // A conversation that asks for the status of its session goes on by itself.
            let is_open_here = listed.summary.holder.as_ref().is_some_and(|holder| holder.is_this_process());
            let hint = next_command(&loaded, &status, certificate.as_ref(), unwritten.as_ref());
            if let Some(hint) = hint.filter(|_| !is_open_here) {
                output::message!("hint: {hint}");
            }
        }
    }
    Ok(match exit {
        Exit::Success if status.needs_person() => Exit::Waiting,
        Exit::Success if !status.changes.is_empty() || status.unwritten.is_some() => Exit::Differs,
        exit => exit,
    })
}

/// A session as it is now.
#[derive(serde::Serialize)]
struct SessionStatus {
    session: BranchId,
    title: String,
    state: String,
    is_guest: bool,
    /// The sandbox that its tools run in.
    place: Option<String>,
    /// The sandbox that they ran in before a step was forgotten, which may have named another one.
    forgotten_place: Option<String>,
    /// The directory of this machine that its tools work in.
    directory: Option<String>,
    /// False if the files were not compared with the record: another process works on them, or there are none.
    is_compared: bool,
    /// False if the files are still to be written to the directory, as those of a fork before its first call.
    is_written: bool,
    /// The merged files that are not written, and the change that is in the way, as a short text.
    unwritten: Option<String>,
    /// The differences from the state in which the session was left, each as a short text.
    changes: Vec<String>,
    /// The calls that another process makes now, each as a short text.
    running: Vec<String>,
    /// The calls that wait for a decision, each as a short text.
    waiting: Vec<String>,
    conflicts: Vec<String>,
    /// The model that answered last, as `provider:model`.
    model: Option<String>,
    checks: Vec<CheckStatus>,
    usage: Usage,
}

/// The newest run of a check.
#[derive(serde::Serialize)]
struct CheckStatus {
    check: String,
    verdict: Verdict,
    /// False if the files could not be looked at.
    is_compared: bool,
    /// True if the files are as the check saw them.
    is_current: bool,
}

impl SessionStatus {
    /// Returns true if a call or a file waits for a decision.
    fn needs_person(&self) -> bool {
        !self.waiting.is_empty() || !self.conflicts.is_empty()
    }

    async fn new(
        loaded: &LoadedSession,
        listed: &ListedSession,
        holders: &mut HolderCache,
        certificate: Option<&Certificate>,
        unwritten: Option<&UnwrittenFiles>,
    ) -> Self {
        let session = &loaded.session;
        let differences = certificate.map(Certificate::differences).unwrap_or_default();
        // Damage and guests are said elsewhere, and calls in doubt are among those that wait.
        let is_change =
            |it: &&Difference| !matches!(it, Difference::Damage(_) | Difference::Guest | Difference::InDoubt { .. });
        let describe = |it: &Difference| one_line(&describe_change(it));
        let instructions = view::instructions(session.as_record()).map(|(_, instructions)| instructions);
        let changes: Vec<String> = differences.iter().filter(is_change).map(describe).collect();
        let calls = WaitingCall::all(session);
        // A call without a result is under way as long as the process lives that makes it.
        let is_running = listed.is_running(holders);
        let (running, others): (Vec<_>, Vec<_>) = calls.iter().partition(|call| is_running && call.is_interrupted());
        let waiting = others.into_iter().filter(|call| call.needs_person() && !session.is_guest()).map(|call| {
            let state = if call.is_interrupted() { "interrupted, may have finished" } else { "not started" };
            format!("{state}: {}", call.describe())
        });
        let directory = if session.is_guest() { None } else { session.working_directory().await };
        let is_written = directory.is_none() || session.has_working_directory().await;
        SessionStatus {
            session: session.id(),
            title: listed.summary.title.to_string(),
            state: listed.state(holders),
            is_guest: session.is_guest(),
            place: session.place().map(|place| place.to_string()),
            forgotten_place: session.forgotten_place().map(|place| place.to_string()),
            directory: directory.as_ref().map(|directory| directory.display().to_string()),
            is_compared: certificate.is_some()
                && session.place().is_some()
                && session.tree().is_some()
                && !session.is_guest()
                && is_written,
            is_written,
            unwritten: unwritten.map(UnwrittenFiles::describe),
            running: running.into_iter().map(WaitingCall::describe).collect(),
            waiting: waiting.collect(),
            conflicts: session.conflicts().iter().map(|conflict| conflict.path.clone()).collect(),
            model: instructions.and_then(|instructions| Some(instructions.provider.as_ref()?.to_string())),
            checks: checks(session, certificate.is_some()).await,
            usage: session.usage(),
            changes,
        }
    }
}

/// Returns the newest run of each check. If the files can be looked at, they are compared with those that the check saw.
async fn checks(session: &Session, can_look: bool) -> Vec<CheckStatus> {
    if session.checks().list.is_empty() {
        return Vec::new();
    }
    let can_look = can_look && session.place().is_some();
    let found = if can_look { session.record_of_now().await.ok() } else { None };
    let is_compared = found.is_some();
    let record = found.unwrap_or_else(|| session.as_record().clone());
    let newest = view::checks(&record).list.into_iter();
    let checks = newest.map(|(check, run)| CheckStatus {
        check: check.to_string(),
        verdict: run.checked.verdict,
        is_compared,
        is_current: is_compared && run.freshness == Freshness::Fresh,
    });
    checks.collect()
}

fn print(out: &mut dyn Write, status: &SessionStatus) -> io::Result<()> {
    let guest = if status.is_guest { "  (not made by you)" } else { "" };
    writeln!(out, "{BRANCH}{}{BRANCH:#}  {}{guest}", status.session.short(), preview(&status.title))?;
    let mut row = |name: &str, value: &str| writeln!(out, "{name:<9} {value}");
    row("state", &status.state)?;
    match (&status.directory, &status.place) {
        (Some(directory), _) => row("files", &output::home_path(directory.as_ref()))?,
        (None, Some(place)) => row("files", &preview(place))?,
        (None, None) if status.forgotten_place.is_some() => row("files", "unknown, since a step was forgotten")?,
        (None, None) => row("files", "none: its agents have no tools")?,
    }
    for change in &status.changes {
        row("", change)?;
    }
    if status.is_compared && status.changes.is_empty() {
        row("", "nothing changed since the last turn")?;
    } else if let Some(unwritten) = &status.unwritten {
        row("", unwritten)?;
    } else if !status.is_written && !status.conflicts.is_empty() {
        row("", "not written there yet: conflicts are to be decided first")?;
    } else if !status.is_written {
        row("", "not written there yet: the next turn does it")?;
    } else if !status.is_compared && status.place.as_ref().or(status.forgotten_place.as_ref()).is_some() {
        row("", "not compared with the record")?;
    }
    for path in &status.conflicts {
        row("conflict", &one_line(path))?;
    }
    for call in &status.running {
        row("running", call)?;
    }
    for call in &status.waiting {
        row("decide", call)?;
    }
    if let Some(model) = &status.model {
        row("model", &preview(model))?;
    }
    for check in &status.checks {
        let verdict = super::verdict_text(check.verdict);
        let stale = match check.is_current {
            true => "",
            false if check.is_compared => ", before files changed",
            false => ", not compared with the files",
        };
        row("check", &format!("{}: {verdict}{stale}", preview(&check.check)))?;
    }
    row("tokens", &output::grouped(status.usage.input.saturating_add(status.usage.output)))
}

/// Returns the command that goes on with the session, and its effect.
fn next_command(
    loaded: &LoadedSession,
    status: &SessionStatus,
    certificate: Option<&Certificate>,
    unwritten: Option<&UnwrittenFiles>,
) -> Option<String> {
    // Another process writes a session that was not compared.
    let certificate = certificate?;
    let has_changed = !status.changes.is_empty();
    Some(match () {
        () if status.is_guest => format!("{} takes it over", loaded.resume_command()),
        () if status.needs_person() => format!("{} shows what is waiting for you", loaded.command("review", "")),
        () if unwritten.is_some() => unwritten?.hint(loaded.name(), loaded.option()),
        () if has_changed => {
            let (options, effect) = anyway_options(certificate);
            let options = spaced(&[model_option(&loaded.session), &options]);
            format!("{} {effect}", loaded.resume_other(&loaded.session, &options))
        }
        () => format!("{} continues", loaded.resume_command()),
    })
}
