//! `rath bisect`: find the step that broke something.

use std::path::Path;

use rath::record::draw::{self, count};
use rath::{Sandbox, view};
use serde_json::json;

use super::blame;
use crate::output::{self, CommandResult, Exit};
use crate::sandboxes;
use crate::sessions::{self, StoreArg};

/// Find the first step after which a command fails
///
/// The command runs on the recorded files, in a directory of its own with the directories that git ignores, and has to fail at
/// the newest step. No model is asked.
#[derive(clap::Args)]
pub(crate) struct BisectArgs {
    /// The session, and a step at which the command fails (default: its newest)
    #[arg(value_name = "SESSION[@STEP]")]
    session: String,
    /// The command; exit code 0 means good, any other bad
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<String>,
    /// The sandbox of the command: isolated: or local:, with the options of such a sandbox (default: isolated:)
    #[arg(long, value_name = "SANDBOX")]
    sandbox: Option<String>,
    #[command(flatten)]
    store: StoreArg,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: &BisectArgs) -> CommandResult {
    let loaded = sessions::read_at(&args.session, &args.store).await?;
    let exit = loaded.warn();
    loaded.require_files()?;
    loaded.require_own()?;
    // Commands see each copy at the path of the session's directory.
    let place = loaded.session.place().and_then(|place| sandboxes::open(place.as_str()).ok());
    let directory = place.as_ref().and_then(Sandbox::directory).unwrap_or(Path::new("."));
    let sandbox = sandboxes::strict_sandbox(&loaded, args.sandbox.as_deref(), directory).await?;
    sandboxes::print_sandbox_in(&sandbox, "copies of the recorded files", args.sandbox.is_some()).await?;
    let bisected = loaded.session.bisect_in(&sandbox, &args.command).await.map_err(|error| loaded.explain(error))?;
    sandboxes::note_unshared("the command ran", &bisected.unshared);
    let record = loaded.session.as_record();
    let step = bisected.step.and_then(|step| record.find(step));
    let asked = step.and_then(view::find_call);
    if args.json {
        let (call, answer) = asked.map(|(call, answer)| (call, answer.id())).unzip();
        let json = json!({
            "step": bisected.step, "call": call, "answer": answer, "trees": bisected.trees, "runs": bisected.runs
        });
        output::data(|out| output::json_line(out, &json))?;
    } else {
        let (trees, runs) = (count(bisected.trees, "version"), count(bisected.runs, "run"));
        output::message!("tested {trees} of the files in {runs}");
        match step {
            Some(step) => output::text(|out| {
                writeln!(out, "{}  {}", output::short(&step.id()), draw::headline(step))?;
                let Some((call, answer)) = asked else { return Ok(()) };
                blame::print_call(out, call, answer.stamp().by.as_deref(), answer.id())
            })?,
            None => output::message!("the command succeeds at the newest step, so there is nothing to find"),
        }
    }
    let first = view::trees(record).list.first().map(|first| first.step.id());
    if bisected.step.is_some() && bisected.step == first {
        output::note("the command fails already on the files from before the session");
    }
    Ok(if step.is_none() && exit == Exit::Success { Exit::Failure } else { exit })
}
