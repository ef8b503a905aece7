//! `rath checkout`: the files of a step in a directory.

use std::path::PathBuf;

use rath::record::draw::{count, printable};
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
    named.has_files()?;
    let files = named.session.checkout(&args.directory)?;
    let step = named.session.head().map(|step| step.id());
    if args.json {
        let (tree, directory) = (named.session.tree(), &args.directory);
        let json = json!({"shared": step, "tree": tree, "directory": directory, "files": files});
        output::data(|out| output::json_line(out, &json))?;
    } else {
        step.iter().for_each(|step| anstream::eprintln!("shared: up to {}", output::short(step)));
        anstream::eprintln!("new: {} in {}", count(files, "file"), printable(&args.directory.display().to_string()));
    }
    Ok(exit)
}
