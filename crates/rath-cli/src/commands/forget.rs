//! `rath forget`: remove the text of a step for good.

use rath::store::Erased;

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
        let erased = store.forget(listed.branch, step).await.map_err(sessions::explain_held)?;
        output::message!("the text of step {} is removed", output::short(&step));
        if erased == Erased::WhenIdle {
            output::warning(LOG_KEEPS);
        }
    }
    Ok(Exit::Success)
}

/// A warning about content that is removed and not yet erased.
pub(super) const LOG_KEEPS: &str =
    "other processes have the store open: its log keeps a copy of what was removed until all of them are done";
