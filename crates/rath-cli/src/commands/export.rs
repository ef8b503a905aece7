//! `rath export`: write a session in another format.

use std::io::Write;
use std::path::{Path, PathBuf};

use rath::interchange::{Export, atif, openrath};
use rath::provider::Prices;
use rath::record::graph::{self, Ids};

use crate::output::{self, CommandResult, Failure};
use crate::sessions::SessionArg;

/// Write a session to a file, in one of several formats
#[derive(clap::Args)]
pub(crate) struct ExportArgs {
    #[command(flatten)]
    session: SessionArg,
    /// The format
    #[arg(long = "as", value_name = "FORMAT", default_value = "graph")]
    format: ExportFormat,
    /// The file to write (default: stdout)
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// For a graph: derive ids from what was recorded, so that two runs of one program can be compared
    #[arg(long)]
    canonical: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum ExportFormat {
    /// The graph of sessions, one JSON line each
    Graph,
    /// A session file: every step, with everything that steps refer to
    Bundle,
    /// A session file of the Python OpenRath
    Openrath,
    /// An ATIF trajectory
    Atif,
}

pub(crate) async fn run(args: &ExportArgs) -> CommandResult {
    let loaded = args.session.read().await?;
    let exit = loaded.warn();
    match (args.format, &args.output) {
        (ExportFormat::Graph, to) => {
            let ids = if args.canonical { Ids::Canonical } else { Ids::Original };
            write(graph::export(&loaded.lineage, ids).as_bytes(), to.as_deref())?;
        }
        (ExportFormat::Bundle, Some(path)) => loaded.session.save_unsigned(path).await?,
        (ExportFormat::Bundle, None) => write(&loaded.session.to_bytes()?, None)?,
        (ExportFormat::Openrath, to) => write_foreign(openrath::write(&loaded.session), to.as_deref())?,
        (ExportFormat::Atif, to) => write_foreign(atif::write_priced(&loaded.session, &Prices::list()), to.as_deref())?,
    }
    Ok(exit)
}

/// Writes a session in a format of another program, and notes on stderr what that format cannot hold.
fn write_foreign(exported: Export, to: Option<&Path>) -> Result<(), Failure> {
    exported.notes.iter().for_each(|note| output::note(note));
    write(&exported.bytes, to)
}

fn write(bytes: &[u8], to: Option<&Path>) -> Result<(), Failure> {
    match to {
        None => Ok(output::data(|out| out.write_all(bytes))?),
        Some(path) => std::fs::File::create(path).and_then(|mut file| file.write_all(bytes)).map_err(|error| {
            Failure::new(format!("cannot write {}: {error}", path.display()), "`-o FILE` names the file to write")
        }),
    }
}
