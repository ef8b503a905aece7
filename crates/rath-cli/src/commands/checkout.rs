//! `rath checkout`: write the files of a step to a new directory.

use std::path::PathBuf;

use rath::record::draw::{count, one_line};
use rath::{CheckoutReport, ErrorKind};
use serde_json::json;

use crate::hints;
use crate::output::{self, CommandResult, Exit, Failure};
use crate::sessions::{self, StoreArg};

/// Write the files of a session or step to a new directory
#[derive(clap::Args)]
pub(crate) struct CheckoutArgs {
    /// The session, and the step (default: its newest)
    #[arg(value_name = "SESSION[@STEP]")]
    session: String,
    /// The directory, which has to be new or empty
    directory: PathBuf,
    #[command(flatten)]
    store: StoreArg,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: &CheckoutArgs) -> CommandResult {
    let loaded = sessions::read_at(&args.session, &args.store).await?;
    let exit = loaded.warn();
    loaded.require_files()?;
    let report = loaded.session.checkout(&args.directory).await.map_err(|error| match (error.kind(), error.hint()) {
        (ErrorKind::Place | ErrorKind::Guest | ErrorKind::Approval, _) | (_, Some(_)) => loaded.explain(error),
        _ if hints::is_disk_full(&error) => Failure::from(error),
        _ => Failure::from(error).with_hint("name a directory that is new or empty"),
    });
    let CheckoutReport { files, forgotten, missing } = report?;
    let step = loaded.session.head().map(|step| step.id());
    if args.json {
        let (tree, directory) = (loaded.session.tree(), &args.directory);
        let json = json!({"shared": step, "tree": tree, "directory": directory, "files": files, "forgotten": forgotten, "missing": missing});
        output::data(|out| output::json_line(out, &json))?;
    } else {
        let of_step = step.map(|step| format!(" of step {}", output::short(&step))).unwrap_or_default();
        let directory = one_line(&args.directory.display().to_string());
        output::message!("wrote {}{of_step} to {directory}", count(files, "file"));
    }
    for path in &forgotten {
        output::warning(&format!("{} is left out: its content was removed with `rath forget`", one_line(path)));
    }
    for path in &missing {
        output::warning(&format!("{} is left out: its content is not in this copy", one_line(path)));
    }
    Ok(if missing.is_empty() { exit } else { Exit::Differs })
}
