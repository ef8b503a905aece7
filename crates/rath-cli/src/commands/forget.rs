//! `rath forget`: remove the text of a step for good.

use crate::output::{self, CommandResult, Exit};
use crate::sessions::{self, Source, StoredSessionArg};

/// Remove the text of a step for good; the step itself stays
#[derive(clap::Args)]
pub(crate) struct ForgetArgs {
    #[command(flatten)]
    session: StoredSessionArg,
    /// The step, as for `show`
    step: String,
}

pub(crate) async fn run(args: &ForgetArgs) -> CommandResult {
    let loaded = args.session.read().await?;
    loaded.warn();
    let step = loaded.find_step(&args.step)?.id();
    if let Source::Store(store, listed, _) = &loaded.source {
        store.forget(listed.branch, step).await.map_err(sessions::explain_held)?;
        output::message!("the text of step {} is removed", output::short(&step));
    }
    Ok(Exit::Success)
}
