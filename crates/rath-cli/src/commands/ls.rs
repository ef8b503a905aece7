//! `rath ls`: which sessions a store holds.

use std::io::{self, Write};

use rath::Usage;
use rath::record::draw::{count, preview};
use rath::record::{BranchId, StepId};
use rath::store::{BranchSummary, Holder};
use rath::turn::Due;

use crate::output::{self, BRANCH, Done, Exit};
use crate::sessions::StoreArg;

/// List the sessions in the store, the newest last
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    store: StoreArg,
    /// List every branch, those that others go on from as well
    #[arg(long)]
    all: bool,
    /// Print one JSON object per session
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Done {
    let mut list = args.store.open()?.list()?;
    list.retain(|listed| args.all || listed.is_tip);
    list.sort_by_key(|listed| listed.at);
    let mut holders = Holders::default();
    if args.json {
        output::data(|out| {
            list.iter().try_for_each(|listed| output::json_line(out, &ListedJson::of(listed, &mut holders)))
        })?;
    } else {
        output::text(|out| print(out, &list, &mut holders))?;
    }
    Ok(Exit::Fine)
}

fn print(out: &mut dyn Write, list: &[BranchSummary], holders: &mut Holders) -> io::Result<()> {
    let rows: Vec<_> = list.iter().map(|listed| (listed, state(listed, holders))).collect();
    let digits = |number: u64| number.checked_ilog10().unwrap_or(0) as usize + 1;
    let chunks = list.iter().map(|listed| digits(listed.totals.chunks)).max().unwrap_or_default();
    let tokens = list.iter().map(|listed| digits(tokens(listed))).max().unwrap_or_default();
    let width = rows.iter().map(|(_, state)| state.len()).max().unwrap_or_default();
    rows.iter().try_for_each(|(listed, state)| {
        let at = listed.at.map(output::second).unwrap_or_default();
        writeln!(
            out,
            "{BRANCH}{}{BRANCH:#}  {at:<20}  {:>chunks$} chunks  {:>tokens$} tokens  {state:<width$}  {}",
            listed.branch.short(),
            listed.totals.chunks,
            self::tokens(listed),
            preview(&listed.title),
        )
    })
}

fn tokens(listed: &BranchSummary) -> u64 {
    let Usage { input, output, .. } = listed.totals.usage;
    input.saturating_add(output)
}

fn state(listed: &BranchSummary, holders: &mut Holders) -> String {
    match (&listed.holder, listed.totals.due) {
        (Some(holder), _) if holders.is_alive(holder) => format!("being written by {holder}"),
        (_, Due::Nothing) => "done".to_owned(),
        (_, Due::Model) => "model's turn".to_owned(),
        (_, Due::Tools { open }) => format!("{} open", count(open, "call")),
    }
}

/// Who is known to be alive: the same few write many sessions, and the system is asked once about each.
#[derive(Default)]
struct Holders(Vec<(Holder, bool)>);

impl Holders {
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
    title: &'a str,
}

/// Who writes a session, or wrote it last and did not close it.
#[derive(serde::Serialize)]
struct WriterJson<'a> {
    process: u32,
    host: &'a str,
    is_alive: bool,
}

impl<'a> ListedJson<'a> {
    fn of(listed: &'a BranchSummary, holders: &mut Holders) -> Self {
        let (next, open_calls) = match listed.totals.due {
            Due::Nothing => ("done", 0),
            Due::Model => ("model", 0),
            Due::Tools { open } => ("tools", open),
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
            title: &listed.title,
        }
    }
}
