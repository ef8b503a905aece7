//! `rath bisect`: which step broke it.

use rath::record::draw::{self, count};
use rath::view;
use serde_json::json;

use super::blame;
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
    named.has_files()?;
    let found = agent::block_on(async { Ok(named.session.bisect(&args.command).await?) })?;
    let record = named.session.as_record();
    let step = found.step.and_then(|step| record.find(step));
    let asked = step.and_then(view::find_call);
    if args.json {
        let (call, answer) = asked.map(|(call, answer)| (call, answer.id())).unzip();
        let json = json!({
            "step": found.step, "call": call, "answer": answer, "trees": found.trees, "runs": found.runs
        });
        output::data(|out| output::json_line(out, &json))?;
    } else {
        let (trees, runs) = (count(found.trees, "version"), count(found.runs, "run"));
        anstream::eprintln!("{trees} of the files, {runs} of the command");
        match step {
            Some(step) => output::text(|out| {
                writeln!(out, "{}  {}", output::short(&step.id()), draw::headline(step))?;
                let Some((call, answer)) = asked else { return Ok(()) };
                blame::asked(out, call, answer.stamp().by.as_deref(), answer.id())
            })?,
            None => anstream::eprintln!("the command succeeds at the newest step: nothing is broken"),
        }
    }
    let first = view::trees(record).list.first().map(|first| first.step.id());
    if found.step.is_some() && found.step == first {
        output::note("it failed before the session changed anything");
    }
    Ok(if step.is_none() && exit == Exit::Fine { Exit::Failed } else { exit })
}
