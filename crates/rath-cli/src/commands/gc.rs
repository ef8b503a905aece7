//! `rath gc`: delete sessions and free space.

use rath::record::draw::count;

use crate::output::{self, CommandResult, Exit, Failure};
use crate::sessions::{self, StoreArg};

/// Delete sessions, and free the space that is no longer needed
#[derive(clap::Args)]
pub(crate) struct GcArgs {
    #[command(flatten)]
    store: StoreArg,
    /// Delete a session with all of its branches; may be repeated
    #[arg(long, value_name = "SESSION")]
    delete: Vec<String>,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: &GcArgs) -> CommandResult {
    let store = args.store.open().await?;
    let mut deleted = Vec::new();
    let list = if args.delete.is_empty() { Vec::new() } else { store.list().await? };
    for name in &args.delete {
        let branch = sessions::find_branch(&store, name, &args.store.option()).await?;
        let family = list.iter().find(|listed| listed.branch == branch).map_or(branch, |listed| listed.family);
        if family != branch {
            let (own, whole) = (branch.short(), family.short());
            let message = format!("{own} is a branch of session {whole}, and cannot be deleted alone");
            let hint = format!("`rath gc --delete {whole}{}` deletes the session", args.store.option());
            return Err(Failure::new(message, hint));
        }
        deleted.push(family);
    }
    for family in &deleted {
        store.delete(*family).await.map_err(sessions::explain_held)?;
    }
    let freed = store.compact().await?;
    if args.json {
        let json = serde_json::json!({"deleted": deleted, "steps": freed.steps, "bytes": freed.bytes});
        output::data(|out| output::json_line(out, &json))?;
    } else {
        let (sessions, steps) = (count(deleted.len() as u64, "session"), count(freed.steps, "step"));
        output::text(|out| writeln!(out, "deleted {sessions}; freed {steps}, {}", count(freed.bytes, "byte")))?;
    }
    Ok(Exit::Success)
}
