//! `rath checkout`: the files of a step in a directory.

use std::path::PathBuf;

use rath::record::draw::count;
use serde_json::json;

use crate::output::{self, Done};
use crate::sessions::{self, StoreArg};

/// Put the files of a session, as they were at a step, into a new or empty directory
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The session, and the step; its newest if none is named
    #[arg(value_name = "SESSION[@STEP]")]
    session: String,
    /// The directory
    directory: PathBuf,
    #[command(flatten)]
    store: StoreArg,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Done {
    let named = sessions::read_at(&args.session, &args.store)?;
    let exit = named.warn();
    let files = named.session.checkout(&args.directory)?;
    if args.json {
        let json = json!({"tree": named.session.tree(), "directory": args.directory, "files": files});
        output::data(|out| output::json_line(out, &json))?;
    } else {
        anstream::eprintln!("{} in {}", count(files, "file"), args.directory.display());
    }
    Ok(exit)
}
