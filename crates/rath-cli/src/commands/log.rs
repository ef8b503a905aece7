//! `rath log`: show what happened in a session, one line a turn or one line a step.

mod filter;
mod line;

use std::io::{self, Write};

use rath::record::Step;
use rath::record::draw::{self, BranchNames, entries, entry_rows};
use rath::record::lineage::Lineage;

use self::filter::{Filter, Since};
pub(crate) use self::line::Turn;
use self::line::{EntryLine, cut_row};
use crate::json::StepJson;
use crate::output::pager::PagerArg;
use crate::output::{self, BRANCH, CommandResult};
use crate::sessions::{SessionAtArg, Source};
use crate::unwritten::{self, UnwrittenFiles};

/// Show what happened in a session, newest first
///
/// A line is a turn: its newest step, its age, what the user said, the answer, and in brackets the calls and the number of changed
/// files. Forks, merges, checks and restores have lines of their own. With -v every step has a line.
#[derive(clap::Args)]
pub(crate) struct LogArgs {
    #[command(flatten)]
    session: SessionAtArg,
    /// Show every step on a line of its own
    #[arg(short, long)]
    verbose: bool,
    /// Show only the newest N lines; with -v or --json, the newest N steps
    #[arg(short = 'n', long, value_name = "N")]
    limit: Option<usize>,
    /// Show only turns in which this tool was called; with -v or --json, only the steps of those calls
    #[arg(long, value_name = "NAME")]
    tool: Option<String>,
    /// Show only what changed this file, or a file in this directory
    #[arg(long, value_name = "PATH")]
    file: Option<String>,
    /// Show only what happened since: a duration such as 2h or 3d, or a time in UTC such as 2026-11-19 or 2026-11-19T14:00
    #[arg(long, value_name = "TIME")]
    since: Option<Since>,
    #[command(flatten)]
    pager: PagerArg,
    /// Print one JSON object per step
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: &LogArgs) -> CommandResult {
    let loaded = args.session.read().await?;
    let lineage = &loaded.lineage;
    let limit = args.limit.unwrap_or(usize::MAX);
    let filter = Filter::new(args.tool.as_deref(), args.file.as_deref(), args.since.as_ref());
    match (args.json, args.verbose, &filter) {
        (true, _, None) => output::data(|out| write_json(out, lineage, limit))?,
        (false, true, None) => args.pager.text(|out| print(out, lineage, limit, output::terminal_columns()))?,
        (false, false, None) => args.pager.text(|out| print_entries(out, lineage, limit))?,
        (true, _, Some(filter)) => {
            let steps = filter.steps(lineage);
            let names = BranchNames::new(lineage);
            let mut newest = steps.iter().rev().take(limit);
            output::data(|out| newest.try_for_each(|step| output::json_line(out, &StepJson::new(step, Some(&names)))))?;
        }
        (false, true, Some(filter)) => {
            let (steps, all) = (filter.steps(lineage), lineage.walk().len());
            output::note(&filter.describe(steps.len(), all, "step"));
            args.pager.text(|out| print_steps(out, &steps, lineage, limit))?;
        }
        (false, false, Some(filter)) => {
            let all = entries(lineage);
            let fitting: Vec<_> = all.iter().filter(|entry| filter.fits(&entry.steps)).collect();
            output::note(&filter.describe(fitting.len(), all.len(), "line"));
            let line = EntryLine::new(lineage);
            args.pager.text(|out| {
                let mut newest = fitting.iter().rev().take(limit);
                // The lines between those that fit are left out, and the graph with them.
                newest.try_for_each(|entry| writeln!(out, "{}", line.draw(entry, 0)))?;
                if fitting.len() > limit { out.write_all(b"~\n") } else { Ok(()) }
            })?;
        }
    }
    if let (Source::Store(..), Some(unwritten)) = (&loaded.source, UnwrittenFiles::of(&loaded.session).await) {
        unwritten::note(&unwritten, loaded.name(), loaded.option());
    }
    Ok(loaded.warn())
}

/// Prints the graph of the newest turns and events.
fn print_entries(out: &mut dyn Write, lineage: &Lineage, limit: usize) -> io::Result<()> {
    let (entries, line) = (entries(lineage), EntryLine::new(lineage));
    let mut rows = entry_rows(&entries, |entry, graph| line.draw(entry, graph));
    rows.by_ref().take(limit).try_for_each(|row| out.write_all(cut_row(&row, line.columns()).as_bytes()))?;
    // A tilde stands for the lines that were cut off.
    if rows.next().is_some() { out.write_all(b"~\n") } else { Ok(()) }
}

/// Prints the graph of the newest steps, cut to a number of columns if there is one.
pub(super) fn print(out: &mut dyn Write, lineage: &Lineage, limit: usize, columns: Option<usize>) -> io::Result<()> {
    let names = BranchNames::new(lineage);
    let rows = draw::rows(lineage, |step| describe(step, &names));
    let mut rows = rows.map(|row| columns.map_or(row.clone(), |columns| cut_row(&row, columns)));
    rows.by_ref().take(limit).try_for_each(|row| out.write_all(row.as_bytes()))?;
    // A tilde stands for the steps that were cut off.
    if rows.next().is_some() { out.write_all(b"~\n") } else { Ok(()) }
}

/// Prints the newest of some steps, without the graph.
fn print_steps(out: &mut dyn Write, steps: &[&Step], lineage: &Lineage, limit: usize) -> io::Result<()> {
    let names = BranchNames::new(lineage);
    let columns = output::terminal_columns();
    steps.iter().rev().take(limit).try_for_each(|step| {
        let line = describe(step, &names);
        writeln!(out, "{}", columns.map_or(line.clone(), |columns| cut_row(&line, columns)))
    })?;
    if steps.len() > limit { out.write_all(b"~\n") } else { Ok(()) }
}

/// Returns the line of a step.
fn describe(step: &Step, names: &BranchNames) -> String {
    let branch = names.display_name(step);
    format!("{} {BRANCH}{branch}{BRANCH:#}  {}", output::short(&step.id()), draw::headline(step))
}

/// Writes the newest steps, one JSON line for each.
pub(super) fn write_json(out: &mut dyn Write, lineage: &Lineage, limit: usize) -> io::Result<()> {
    let names = BranchNames::new(lineage);
    let mut newest = lineage.walk().into_iter().rev().take(limit);
    newest.try_for_each(|step| output::json_line(out, &StepJson::new(step, Some(&names))))
}
