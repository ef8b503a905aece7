//! `rath log`: what happened, as a graph.

use rath::record::draw::{self, BranchNames};

use super::show::StepJson;
use crate::output::{self, BRANCH, Done};
use crate::sessions::SessionArg;

/// Show what happened, newest first
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    session: SessionArg,
    /// Show only the newest N steps
    #[arg(short = 'n', long, value_name = "N")]
    limit: Option<usize>,
    /// Print one JSON object per step
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Done {
    let named = args.session.read()?;
    let lineage = &named.lineage;
    let names = BranchNames::new(lineage);
    let limit = args.limit.unwrap_or(usize::MAX);
    if args.json {
        let mut newest = lineage.walk().into_iter().rev().take(limit);
        output::data(|out| newest.try_for_each(|step| output::json_line(out, &StepJson::of(step, Some(&names)))))?;
        return Ok(named.warn());
    }
    output::text(|out| {
        let mut rows = draw::rows(lineage, |step| {
            let branch = names.display_name(step);
            format!("{} {BRANCH}{branch}{BRANCH:#}  {}", output::short(&step.id()), draw::headline(step))
        });
        rows.by_ref().take(limit).try_for_each(|row| out.write_all(row.as_bytes()))?;
        // There is more below.
        if rows.next().is_some() { out.write_all(b"~\n") } else { Ok(()) }
    })?;
    Ok(named.warn())
}
