//! `rath ls`: list the sessions in a store.

use std::io::{self, Write};

use rath::Usage;
use rath::chunk::Call;
use rath::record::draw::{count, preview};
use rath::record::{BranchId, StepId};
use rath::sandbox::Sandbox;
use rath::store::{BranchSummary, Holder, Store};
use rath::turn::{Next, PendingCall, PendingWork, Progress};

use crate::output::{self, BRANCH, CommandResult, Exit, Failure};
use crate::sessions::StoreArg;

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
    let mut list = store.list().await?;
    list.retain(|listed| args.all || listed.is_tip);
    list.sort_by_key(|listed| listed.at);
    let mut holders = HolderCache::default();
    let mut places = Vec::with_capacity(list.len());
    for listed in &list {
        places.push(place(&store, listed).await);
    }
    if args.json {
        output::data(|out| {
            let mut rows = list.iter().zip(&places);
            rows.try_for_each(|(listed, place)| output::json_line(out, &ListedJson::new(listed, place, &mut holders)))
        })?;
    } else {
        let mut states = Vec::with_capacity(list.len());
        for listed in &list {
            states.push(state(&store, listed, &mut holders).await);
        }
        let elsewhere: Vec<_> = places.iter().map(|place| place.as_deref().and_then(elsewhere)).collect();
        output::text(|out| print(out, &list, &states, &elsewhere))?;
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

fn print(
    out: &mut dyn Write,
    list: &[BranchSummary],
    states: &[String],
    elsewhere: &[Option<String>],
) -> io::Result<()> {
    let rows: Vec<_> = list
        .iter()
        .zip(states)
        .zip(elsewhere)
        .map(|((listed, state), elsewhere)| {
            let Usage { input, output, .. } = listed.totals.usage;
            (listed, output::grouped(input.saturating_add(output)), state, elsewhere)
        })
        .collect();
    let token_width = rows.iter().map(|(_, tokens, ..)| tokens.len()).max().unwrap_or_default();
    let state_width = rows.iter().map(|(_, _, state, _)| state.chars().count()).max().unwrap_or_default();
    rows.iter().try_for_each(|(listed, tokens, state, elsewhere)| {
        let at = listed.at.map(output::minute).unwrap_or_default();
        let place = elsewhere.as_ref().map(|place| format!("  in {place}")).unwrap_or_default();
        writeln!(
            out,
            "{BRANCH}{}{BRANCH:#}  {at:<20}  {tokens:>token_width$} tokens  {state:<state_width$}  {}{place}",
            listed.branch.short(),
            preview(&listed.title),
        )
    })
}

/// Returns the place of a session.
async fn place(store: &Store, listed: &BranchSummary) -> Option<String> {
    store.read(listed.branch).await.ok()?.session.place().map(|place| place.to_string())
}

/// Returns the directory of a place, or its URI, if it is not the current directory.
fn elsewhere(place: &str) -> Option<String> {
    let sandbox = Sandbox::open(place).ok();
    let Some(directory) = sandbox.as_ref().and_then(Sandbox::directory) else { return Some(preview(place)) };
    let is_current = std::env::current_dir().is_ok_and(|current| current == directory);
    (!is_current).then(|| output::home_path(directory))
}

/// Describes how far a session is: running, done, or stopped before or during which call.
async fn state(store: &Store, listed: &BranchSummary, holders: &mut HolderCache) -> String {
    match (&listed.holder, listed.totals.pending) {
        (Some(holder), _) if holders.is_alive(holder) => format!("running in {holder}"),
        (_, PendingWork::Nothing) => "done".to_owned(),
        (_, PendingWork::Model) => "stopped, waiting for the model".to_owned(),
        // Only the steps know the call, and few sessions of a store are stopped at one.
        (_, PendingWork::Tools { open }) => match next_call(store, listed).await {
            Some((progress, call)) if progress.is_in_doubt() => format!("stopped during: {}", describe(&call)),
            Some((Progress::Denied { .. }, _)) => "stopped, waiting for the model".to_owned(),
            Some((_, call)) => format!("stopped before: {}", describe(&call)),
            None => format!("stopped before {}", count(open, "call")),
        },
    }
}

/// Returns the call at which a session is stopped: the first that will run, or else a denied one.
async fn next_call(store: &Store, listed: &BranchSummary) -> Option<(Progress, Call)> {
    let Next::RunTools(calls) = store.read(listed.branch).await.ok()?.session.next() else { return None };
    let is_denied = |pending: &PendingCall| matches!(pending.progress, Progress::Denied { .. });
    calls.into_iter().min_by_key(is_denied).map(|pending| (pending.progress, pending.call))
}

/// Describes a call in few columns.
fn describe(call: &Call) -> String {
    const COLUMNS: usize = 24;
    let argument = output::main_argument(call.arguments.as_str().unwrap_or_default());
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
struct HolderCache(Vec<(Holder, bool)>);

impl HolderCache {
    fn is_alive(&mut self, holder: &Holder) -> bool {
        if let Some((_, alive)) = self.0.iter().rev().find(|(known, _)| known == holder) {
            return *alive;
        }
        let alive = !holder.is_dead();
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
    title: &'a str,
}

/// The process that writes a session, or that wrote it last and did not close it.
#[derive(serde::Serialize)]
struct WriterJson<'a> {
    process: u32,
    host: &'a str,
    is_alive: bool,
}

impl<'a> ListedJson<'a> {
    fn new(listed: &'a BranchSummary, place: &'a Option<String>, holders: &mut HolderCache) -> Self {
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
            title: &listed.title,
        }
    }
}
