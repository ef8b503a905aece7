//! `rath gc`: room that nothing needs.

use rath::record::draw::count;

use crate::agent;
use crate::output::{self, Done, Exit, Failure};
use crate::sessions::{self, StoreArg};

/// Delete sessions, and give back the room that nothing needs
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    store: StoreArg,
    /// Delete a session with all of its branches; may be given several times
    #[arg(long, value_name = "SESSION")]
    delete: Vec<String>,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Done {
    let store = args.store.open()?;
    let mut deleted = Vec::new();
    let list = if args.delete.is_empty() { Vec::new() } else { store.list()? };
    for name in &args.delete {
        let branch = sessions::find(&store, name, &args.store.again())?;
        let family = list.iter().find(|listed| listed.branch == branch).map_or(branch, |listed| listed.family);
        if family != branch {
            let (own, whole) = (branch.short(), family.short());
            let what = format!("{own} is a branch of the session {whole}, which is deleted as a whole or not at all");
            return Err(Failure::told(what, format!("`rath gc --delete {whole}{}`", args.store.again())));
        }
        deleted.push(family);
    }
    let freed = agent::block_on(async {
        for family in &deleted {
            store.delete(*family).await.map_err(sessions::held)?;
        }
        Ok(store.compact().await?)
    })?;
    if args.json {
        let json = serde_json::json!({"deleted": deleted, "steps": freed.steps, "bytes": freed.bytes});
        output::data(|out| output::json_line(out, &json))?;
    } else {
        let (sessions, steps) = (count(deleted.len() as u64, "session"), count(freed.steps, "step"));
        output::text(|out| writeln!(out, "{sessions} deleted; freed: {steps}, {}", count(freed.bytes, "byte")))?;
    }
    Ok(Exit::Fine)
}
