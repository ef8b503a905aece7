//! `rath bisect`: which step broke it.

use rath::record::draw::{self, count};
use serde_json::json;

use crate::agent;
use crate::output::{self, Done, Exit};
use crate::sessions::{self, StoreArg};

/// Find the first step after which a command fails
///
/// The command is run on the recorded files, in a directory of its own: it has to fail at the newest step. No model is asked.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The session, and the step that is known to be bad; its newest if none is named
    #[arg(value_name = "SESSION[@STEP]")]
    session: String,
    /// The command; exit code 0 is good, any other is bad
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<String>,
    #[command(flatten)]
    store: StoreArg,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Done {
    let named = sessions::read_at(&args.session, &args.store)?;
    let exit = named.warn();
    let found = agent::block_on(async { Ok(named.session.bisect(&args.command).await?) })?;
    let step = found.step.and_then(|step| named.session.as_record().find(step));
    if args.json {
        let json = json!({"step": found.step, "trees": found.trees, "runs": found.runs});
        output::data(|out| output::json_line(out, &json))?;
    } else {
        anstream::eprintln!("{} of {}", count(found.runs, "run"), count(found.trees, "tree"));
        match step {
            Some(step) => output::text(|out| writeln!(out, "{}  {}", output::short(&step.id()), draw::headline(step)))?,
            None => anstream::eprintln!("the command succeeds at the newest step: nothing is broken"),
        }
    }
    Ok(if step.is_none() && exit == Exit::Fine { Exit::Failed } else { exit })
}
