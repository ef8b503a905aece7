//! `rath restore`: a session's own files, as they were.

use rath::record::draw::{changed, count};
use rath::record::{SHORT, Step};
use serde_json::json;

use super::show;
use crate::agent;
use crate::output::{self, Done, Exit, Failure};
use crate::sessions::{self, Origin, StoreArg};

/// Make a session's own files what they were at a step
///
/// Files that are ignored or not kept stay as they are. What was changed by hand since is recorded first, so nothing is lost.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The session, and the step; its newest if none is named
    #[arg(value_name = "SESSION[@STEP]")]
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
        let what = format!("{} is a file, and works nowhere", named.name());
        return Err(Failure::told(what, "`rath checkout` puts its files into a directory").exit(Exit::Misused));
    };
    sessions::read_at(&format!("{}@{step}", named.name()), &args.store)?.has_files()?;
    let (session, effects) = agent::block_on(async {
        let resumed = store.resume(listed.branch).await.map_err(sessions::held)?;
        // What is different in the files is what this is for.
        let mut session = resumed.accept_file_changes().map_err(|error| named.refused(error))?;
        let effects = session.restore(step).await.map_err(|error| named.refused(error))?;
        Ok((session, effects))
    })?;
    // What a person did meanwhile was recorded before it was undone.
    let new = session.as_record().newest_first().take_while(|step| step.id() != listed.head);
    let before = new.skip(usize::from(!effects.is_empty())).map(Step::id).next();
    if args.json {
        let json = json!({"shared": step, "before": before, "effects": effects});
        output::data(|out| output::json_line(out, &json))?;
    } else {
        anstream::eprintln!("shared: up to {}", output::short(&step));
        anstream::eprintln!("new: {} changed", count(effects.len() as u64, "file"));
        output::text(|out| effects.iter().try_for_each(|effect| writeln!(out, "{}", changed(effect))))?;
        if let Some(before) = before {
            let again = named.command("restore", &format!("@{before:.SHORT$}"));
            anstream::eprintln!("what was changed by hand is kept: {again} brings it back");
        }
    }
    Ok(named.warn())
}
