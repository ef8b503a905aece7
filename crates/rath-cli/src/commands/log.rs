//! `rath log`: show the steps of a session as a graph.

use std::io::{self, Write};

use rath::record::draw::{self, BranchNames};
use rath::record::lineage::Lineage;

use crate::json::StepJson;
use crate::output::{self, BRANCH, CommandResult};
use crate::sessions::SessionArg;

/// Show the steps of a session, newest first
#[derive(clap::Args)]
pub(crate) struct LogArgs {
    #[command(flatten)]
    session: SessionArg,
    /// Show only the newest N steps
    #[arg(short = 'n', long, value_name = "N")]
    limit: Option<usize>,
    /// Print one JSON object per step
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: &LogArgs) -> CommandResult {
    let loaded = args.session.read().await?;
    let limit = args.limit.unwrap_or(usize::MAX);
    match args.json {
        true => output::data(|out| write_json(out, &loaded.lineage, limit))?,
        false => output::text(|out| print(out, &loaded.lineage, limit))?,
    }
    Ok(loaded.warn())
}

/// Prints the graph of the newest steps.
pub(super) fn print(out: &mut dyn Write, lineage: &Lineage, limit: usize) -> io::Result<()> {
    let names = BranchNames::new(lineage);
    let mut rows = draw::rows(lineage, |step| {
        let branch = names.display_name(step);
        format!("{} {BRANCH}{branch}{BRANCH:#}  {}", output::short(&step.id()), draw::headline(step))
    });
    rows.by_ref().take(limit).try_for_each(|row| out.write_all(row.as_bytes()))?;
    // A tilde stands for the steps that were cut off.
    if rows.next().is_some() { out.write_all(b"~\n") } else { Ok(()) }
}

/// Writes the newest steps, one JSON line for each.
pub(super) fn write_json(out: &mut dyn Write, lineage: &Lineage, limit: usize) -> io::Result<()> {
    let names = BranchNames::new(lineage);
    let mut newest = lineage.walk().into_iter().rev().take(limit);
    newest.try_for_each(|step| output::json_line(out, &StepJson::new(step, Some(&names))))
}
