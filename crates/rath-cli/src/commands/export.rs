//! `rath export`: the graph of sessions as data.

use std::path::PathBuf;

use rath::Session;
use rath::record::graph::{self, Ids};

use crate::output::{self, Done};

/// Print the graph of sessions in a file, one JSON line per session
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A session file
    file: PathBuf,
    /// Give ids that follow from what was recorded, so that two runs of one program can be compared
    #[arg(long)]
    canonical: bool,
}

pub(crate) fn run(args: &Args) -> Done {
    let opened = Session::open(&args.file)?;
    let ids = if args.canonical { Ids::Canonical } else { Ids::Given };
    let rows = graph::export(&opened.lineage, ids);
    output::data(|out| out.write_all(rows.as_bytes()))?;
    Ok(output::warn(&args.file, &opened.report))
}
