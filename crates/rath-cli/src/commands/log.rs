//! `rath log`: show the steps of a session as a graph.

use rath::record::draw::{self, BranchNames};

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
    let lineage = &loaded.lineage;
    let names = BranchNames::new(lineage);
    let limit = args.limit.unwrap_or(usize::MAX);
    if args.json {
        let mut newest = lineage.walk().into_iter().rev().take(limit);
        output::data(|out| newest.try_for_each(|step| output::json_line(out, &StepJson::new(step, Some(&names)))))?;
        return Ok(loaded.warn());
    }
    output::text(|out| {
        let mut rows = draw::rows(lineage, |step| {
            let branch = names.display_name(step);
            format!("{} {BRANCH}{branch}{BRANCH:#}  {}", output::short(&step.id()), draw::headline(step))
        });
        rows.by_ref().take(limit).try_for_each(|row| out.write_all(row.as_bytes()))?;
        // A tilde stands for the steps that were cut off.
        if rows.next().is_some() { out.write_all(b"~\n") } else { Ok(()) }
    })?;
    Ok(loaded.warn())
}
