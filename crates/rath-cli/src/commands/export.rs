//! `rath export`: a session as others read it.

use std::io::Write;
use std::path::{Path, PathBuf};

use rath::interchange::{Export, atif, openrath};
use rath::prelude::Prices;
use rath::record::graph::{self, Ids};

use crate::output::{self, Done, Failure};
use crate::sessions::SessionArg;

/// Write a session out: its graph, or all of it as one file
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    session: SessionArg,
    /// As what
    #[arg(long = "as", value_name = "FORMAT", default_value = "graph")]
    format: Format,
    /// Where to; stdout if it is left out
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Give ids that follow from what was recorded, so that two runs of one program can be compared; for a graph
    #[arg(long)]
    canonical: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Format {
    /// The graph of sessions, one JSON line each
    Graph,
    /// A session file: every step and everything that steps name
    Bundle,
    /// A session file of the Python OpenRath
    Openrath,
    /// An ATIF trajectory
    Atif,
}

pub(crate) fn run(args: &Args) -> Done {
    let named = args.session.read()?;
    let exit = named.warn();
    // The one place where the formats of others are written.
    match (args.format, &args.output) {
        (Format::Graph, to) => {
            let ids = if args.canonical { Ids::Canonical } else { Ids::Original };
            put(graph::export(&named.lineage, ids).as_bytes(), to.as_deref())?;
        }
        (Format::Bundle, Some(path)) => named.session.save(path)?,
        (Format::Bundle, None) => put(&named.session.to_bytes()?, None)?,
        (Format::Openrath, to) => foreign(openrath::write(&named.session), to.as_deref())?,
        (Format::Atif, to) => foreign(atif::write_priced(&named.session, &Prices::list()), to.as_deref())?,
    }
    Ok(exit)
}

/// Writes what others read, and says what they will not.
fn foreign(exported: Export, to: Option<&Path>) -> Result<(), Failure> {
    exported.notes.iter().for_each(|note| output::note(note));
    put(&exported.bytes, to)
}

fn put(bytes: &[u8], to: Option<&Path>) -> Result<(), Failure> {
    match to {
        None => Ok(output::data(|out| out.write_all(bytes))?),
        Some(path) => std::fs::File::create(path).and_then(|mut file| file.write_all(bytes)).map_err(|error| {
            Failure::told(format!("cannot write {}: {error}", path.display()), "`-o FILE` names a file to write")
        }),
    }
}
