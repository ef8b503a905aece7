//! `rath ls`: list the sessions in a store.

use std::io::{self, Write};

use rath::chunk::Call;
use rath::record::draw::{count, preview, shorten};
use rath::record::{BranchId, Step, StepId, Timestamp};
use rath::sandbox::Sandbox;
use rath::store::{BranchSummary, Holder, Store, StoreError};
use rath::turn::{Next, PendingCall, PendingWork, Progress};
use rath::{Session, Usage};

use crate::output::{self, BRANCH, CommandResult, Exit, Failure};
use crate::sandboxes;
use crate::sessions::{LoadedSession, StoreArg};

/// List the sessions in the store, newest last
#[derive(clap::Args)]
pub(crate) struct LsArgs {
    #[command(flatten)]
    store: StoreArg,
    /// List every branch, also those that another branch continues
    #[arg(long)]
    all: bool,
    /// Print one JSON object per session
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: &LsArgs) -> CommandResult {
    let store = args.store.open().await?;
    let mut list = Vec::new();
    for summary in summaries(&store, args.all).await? {
        list.push(ListedSession::read(&store, summary).await);
    }
    let mut holders = HolderCache::default();
    match args.json {
        true => output::data(|out| write_json(out, &list, &mut holders))?,
        false => output::text(|out| print(out, &list, &mut holders, output::terminal_columns()))?,
    }
    let others = store.list().await?.len().saturating_sub(list.len());
    if others > 0 && !args.json {
        let others = count(others as u64, "session");
        output::message!("`rath ls --all{}` also lists {others} that others go on from", args.store.option());
    }
    let misplaced = misplaced_files(&store, &args.store).await?;
    misplaced.iter().for_each(|text| output::warning(text));
    let unlisted = store.unlisted().await?;
    if unlisted.is_empty() {
        return Ok(if misplaced.is_some() { Exit::Differs } else { Exit::Success });
    }
    let names: Vec<_> = unlisted.iter().filter_map(|unlisted| unlisted.branch).map(|branch| branch.short()).collect();
    let option = args.store.option();
    let salvage = names.first().map(|name| format!("; `rath salvage {name} copy.rath{option}` copies what is good"));
    let names = if names.is_empty() { String::new() } else { format!(": {}", names.join(", ")) };
    output::warning(&format!(
        "{} not listed because of damage{names}\nhint: `rath verify{option}` names the damage{}",
        if unlisted.len() == 1 { "1 session is".to_owned() } else { format!("{} sessions are", unlisted.len()) },
        salvage.unwrap_or_default()
    ));
    Ok(Exit::Differs)
}

/// Returns the sessions of a store, newest last.
pub(super) async fn summaries(store: &Store, all: bool) -> Result<Vec<BranchSummary>, StoreError> {
    let mut list = store.list().await?;
    list.retain(|listed| all || listed.is_tip);
    list.sort_by_key(|listed| listed.at);
    Ok(list)
}

/// A session of the list, with the facts that its steps say.
pub(super) struct ListedSession {
    pub(super) summary: BranchSummary,
    /// The sandbox that its tools run in.
    place: Option<String>,
    /// The call at which the session is stopped, if it is.
    next_call: Option<(Progress, Call)>,
    /// The number of files that wait for a decision about a conflict.
    conflicts: usize,
    /// True if the files of a merge are not written to its directory.
    is_unwritten: bool,
    is_guest: bool,
}

impl ListedSession {
    pub(super) async fn read(store: &Store, summary: BranchSummary) -> Self {
        let session = store.read(summary.branch).await.ok().map(|stored| stored.session);
        ListedSession::of(session.as_ref(), summary).await
    }

    /// Returns the facts of a session that was loaded, reading it again only if an earlier step of it was.
    pub(super) async fn of_loaded(loaded: &LoadedSession, store: &Store, summary: &BranchSummary) -> Self {
        let is_newest = loaded.session.head().map(Step::id) == Some(summary.head);
        match is_newest {
            true => ListedSession::of(Some(&loaded.session), summary.clone()).await,
            false => ListedSession::read(store, summary.clone()).await,
        }
    }

    async fn of(session: Option<&Session>, summary: BranchSummary) -> Self {
        let place = session.and_then(|session| Some(session.place()?.to_string()));
        // Only the steps know the call, and few sessions of a store are stopped at one.
        let is_stopped = matches!(summary.totals.pending, PendingWork::Tools { .. });
        let next_call = session.filter(|_| is_stopped).and_then(next_call);
        let conflicts = session.map_or(0, |session| session.conflicts().len());
        let is_unwritten = match session {
            Some(session) if conflicts == 0 => session.unwritten_directory().await.is_some(),
            _ => false,
        };
        let is_guest = session.is_some_and(Session::is_guest);
        ListedSession { summary, place, next_call, conflicts, is_unwritten, is_guest }
    }

    /// Returns true if a process writes the session now.
    pub(super) fn is_running(&self, holders: &mut HolderCache) -> bool {
        self.summary.holder.as_ref().is_some_and(|holder| holders.is_alive(holder))
    }

    /// Describes how far the session is: running, done, or stopped before or during which call.
    pub(super) fn state(&self, holders: &mut HolderCache) -> String {
        match (&self.summary.holder, self.summary.totals.pending) {
            (Some(holder), _) if holders.is_alive(holder) => format!("running in {holder}"),
            (_, PendingWork::Nothing | PendingWork::Model) if self.conflicts > 0 => {
                format!("waiting for you: {}", count(self.conflicts as u64, "conflict"))
            }
            (_, PendingWork::Nothing) if self.is_unwritten => "merged files not written".to_owned(),
            (_, PendingWork::Nothing) => "done".to_owned(),
            (_, PendingWork::Model) => "stopped, waiting for the model".to_owned(),
            (_, PendingWork::Tools { open }) => match &self.next_call {
                Some((progress, call)) if progress.is_in_doubt() => format!("stopped during: {}", describe(call)),
                Some((Progress::Denied { .. }, _)) => "stopped, waiting for the model".to_owned(),
                Some((_, call)) => format!("stopped before: {}", describe(call)),
                None => format!("stopped before {}", count(open, "call")),
            },
        }
    }
}

/// The columns from which on times are shown in full.
const COLUMNS_FOR_TIMES: usize = 120;
/// The fewest columns of a title.
const MIN_TITLE_COLUMNS: usize = 12;
/// The number of files that a warning names.
const MAX_NAMED_FILES: usize = 5;

/// Returns a warning about the session files that are not listed because of their names or places, if there are any.
pub(super) async fn misplaced_files(store: &Store, arg: &StoreArg) -> Result<Option<String>, Failure> {
    let mut files = store.unlisted_files().await?;
    files.retain(|file| file.is_misplaced);
    let names: Vec<_> = files.iter().take(MAX_NAMED_FILES).map(|file| output::path(&file.path)).collect();
    let (option, names) = (arg.option(), names.join(", "));
    Ok(match files.len() {
        0 => None,
        1 => Some(format!(
            "1 session file is not listed because of its name or place, and all that it names is kept: {names}\n\
             hint: `rath verify{option}` says where it belongs"
        )),
        number => {
            let more = number.saturating_sub(MAX_NAMED_FILES);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            Some(format!(
                "{number} session files are not listed because of their names or places, and all that they name is kept: \
                 {names}{more}\nhint: `rath verify{option}` says where they belong"
            ))
        }
    })
}

/// Prints sessions, one line for each, which is fitted to a number of columns if there is one.
pub(super) fn print(
    out: &mut dyn Write,
    list: &[ListedSession],
    holders: &mut HolderCache,
    columns: Option<usize>,
) -> io::Result<()> {
    let now = output::now();
    // As in `rath log`.
    let (describe_time, time_width): (fn(Timestamp, Timestamp) -> String, usize) = match columns {
        Some(columns) if columns < COLUMNS_FOR_TIMES => (output::age, "52w ago".len()),
        _ => (|at, _| output::minute(at), 20),
    };
    let rows: Vec<_> = list
        .iter()
        .map(|listed| {
            let Usage { input, output, .. } = listed.summary.totals.usage;
            (listed, output::grouped(input.saturating_add(output)), listed.state(holders))
        })
        .collect();
    let token_width = rows.iter().map(|(_, tokens, _)| tokens.len()).max().unwrap_or_default();
    let state_width = rows.iter().map(|(.., state)| state.chars().count()).max().unwrap_or_default();
    rows.iter().try_for_each(|(listed, tokens, state)| {
        let at = listed.summary.at.map(|at| describe_time(at, now)).unwrap_or_default();
        let place = listed.place.as_deref().and_then(elsewhere);
        let place = place.map(|place| format!("  in {place}")).unwrap_or_default();
        let guest = if listed.is_guest { "  (not made by you)" } else { "" };
        let lost = if listed.summary.totals.gap { "  (incomplete)" } else { "" };
        let id = listed.summary.branch.short();
        let facts = format!("{at:<time_width$}  {tokens:>token_width$} tokens  {state:<state_width$}");
        let mut title = preview(&listed.summary.title);
        // In a terminal the title gives way.
        if let Some(columns) = columns {
            let others = [&id, &facts, &place, guest, lost].iter().map(|text| text.chars().count()).sum::<usize>() + 4;
            title = shorten(&title, columns.saturating_sub(others).max(MIN_TITLE_COLUMNS));
        }
        writeln!(out, "{BRANCH}{id}{BRANCH:#}  {facts}  {title}{place}{guest}{lost}")
    })
}

/// Writes sessions, one JSON line for each.
pub(super) fn write_json(out: &mut dyn Write, list: &[ListedSession], holders: &mut HolderCache) -> io::Result<()> {
    list.iter().try_for_each(|listed| output::json_line(out, &ListedJson::new(listed, holders)))
}

/// Returns the directory of a place, or its URI, if it is not the current directory.
fn elsewhere(place: &str) -> Option<String> {
    let sandbox = sandboxes::open(place).ok();
    let Some(directory) = sandbox.as_ref().and_then(Sandbox::directory) else { return Some(preview(place)) };
    let is_current = std::env::current_dir().is_ok_and(|current| current == directory);
    (!is_current).then(|| output::home_path(directory))
}

/// Returns the call at which a session is stopped: the first that will run, or else a denied one.
fn next_call(session: &Session) -> Option<(Progress, Call)> {
    let Next::RunTools(calls) = session.next() else { return None };
    let is_denied = |pending: &PendingCall| matches!(pending.progress, Progress::Denied { .. });
    calls.into_iter().min_by_key(is_denied).map(|pending| (pending.progress, pending.call))
}

/// Describes a call in few columns.
fn describe(call: &Call) -> String {
    const COLUMNS: usize = 24;
    let argument = output::main_argument(&call.tool, call.arguments.as_str().unwrap_or_default());
    let line = format!("{} {argument}", preview(&call.tool));
    match line.char_indices().nth(COLUMNS) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

/// Remembers which holders are alive.
///
/// Few processes write many sessions, and the system is asked once for each.
#[derive(Default)]
pub(super) struct HolderCache(Vec<(Holder, bool)>);

impl HolderCache {
    fn is_alive(&mut self, holder: &Holder) -> bool {
        if let Some((_, alive)) = self.0.iter().rev().find(|(known, _)| known == holder) {
            return *alive;
        }
        // A conversation that lists sessions makes no call while it does.
        let alive = !holder.is_dead() && !holder.is_this_process();
        self.0.push((holder.clone(), alive));
        alive
    }
}

#[derive(serde::Serialize)]
struct ListedJson<'a> {
    session: BranchId,
    /// The branch that the session began with.
    family: BranchId,
    head: StepId,
    at: Option<String>,
    chunks: u64,
    usage: Usage,
    next: &'static str,
    open_calls: u64,
    is_tip: bool,
    written_by: Option<WriterJson<'a>>,
    /// The sandbox that its tools run in.
    place: Option<&'a str>,
    is_guest: bool,
    /// True if parts of it were lost before it came to this store.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    is_incomplete: bool,
    #[serde(skip_serializing_if = "is_zero")]
    conflicts: usize,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    is_unwritten: bool,
    title: &'a str,
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// The process that writes a session, or that wrote it last and did not close it.
#[derive(serde::Serialize)]
struct WriterJson<'a> {
    process: u32,
    host: &'a str,
    is_alive: bool,
}

impl<'a> ListedJson<'a> {
    fn new(session: &'a ListedSession, holders: &mut HolderCache) -> Self {
        let ListedSession { summary: listed, place, is_guest, conflicts, is_unwritten, .. } = session;
        let (next, open_calls) = match listed.totals.pending {
            PendingWork::Nothing => ("done", 0),
            PendingWork::Model => ("model", 0),
            PendingWork::Tools { open } => ("tools", open),
        };
        let written_by = listed.holder.as_ref().map(|holder| WriterJson {
            process: holder.pid,
            host: &holder.host,
            is_alive: holders.is_alive(holder),
        });
        ListedJson {
            session: listed.branch,
            family: listed.family,
            head: listed.head,
            at: listed.at.map(output::time),
            chunks: listed.totals.chunks,
            usage: listed.totals.usage,
            next,
            open_calls,
            is_tip: listed.is_tip,
            written_by,
            place: place.as_deref(),
            is_guest: *is_guest,
            is_incomplete: listed.totals.gap,
            conflicts: *conflicts,
            is_unwritten: *is_unwritten,
            title: &listed.title,
        }
    }
}
