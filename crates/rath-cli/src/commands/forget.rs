//! `rath forget`: what a step says, removed for good.

use super::show;
use crate::agent;
use crate::output::{self, Done, Exit};
use crate::sessions::{self, Origin, StoredArg};

/// Remove what a step says, for good; its place in the session stays
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    session: StoredArg,
    /// The step, as for `show`
    step: String,
}

pub(crate) fn run(args: &Args) -> Done {
    let named = args.session.read()?;
    named.warn();
    let step = show::find(&named, &args.step)?.id();
    if let Origin::Store(store, listed, _) = &named.origin {
        agent::block_on(async { store.forget(listed.branch, step).await.map_err(sessions::held) })?;
        anstream::eprintln!("what step {} said is forgotten", output::short(&step));
    }
    Ok(Exit::Fine)
}
