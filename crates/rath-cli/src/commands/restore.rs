//! `rath restore`: a session's own files, as they were.

use rath::record::draw::{changed, count};
use serde_json::json;

use super::show;
use crate::agent;
use crate::output::{self, Done, Failure};
use crate::sessions::{self, Origin, StoreArg};

/// Make a session's own files what they were at a step
///
/// Files that are ignored or not kept stay as they are. What was changed by hand since is recorded first, so nothing is lost.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The session, and the step
    #[arg(value_name = "SESSION@STEP")]
    session: String,
    #[command(flatten)]
    store: StoreArg,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Done {
    let (name, step) = args.session.rsplit_once('@').unwrap_or((&args.session, "head"));
    let named = sessions::read_at(name, &args.store)?;
    let step = show::find(&named, step)?.id();
    let Origin::Store(store, listed, _) = &named.origin else {
        return Err(Failure::told(
            format!("{} is a file, and has no files of its own", named.name()),
            "`rath checkout` puts its files into a directory",
        ));
    };
    let effects = agent::block_on(async {
        let resumed = store.resume(listed.branch).await.map_err(sessions::held)?;
        // What is different in the files is what this is for.
        let mut session = resumed.whatever_files_say()?;
        Ok(session.restore(step).await?)
    })?;
    if args.json {
        output::data(|out| output::json_line(out, &json!({"step": step, "effects": effects})))?;
    } else {
        anstream::eprintln!("{} changed", count(effects.len() as u64, "file"));
        output::text(|out| effects.iter().try_for_each(|effect| writeln!(out, "{}", changed(effect))))?;
    }
    Ok(named.warn())
}
