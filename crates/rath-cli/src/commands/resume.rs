//! `rath resume`: a stored session goes on.

use crate::agent::{self, GoOn, IfDifferent, Setup};
use crate::output::Done;
use crate::sessions::StoredArg;

/// Go on with a session in the store
///
/// First it is compared with how it was left: its steps, its place, its tools, its model and its prompt. `COMPLETE` says
/// that nothing is different; otherwise what is different is listed, and it goes on only with --anyway.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    session: StoredArg,
    /// What to do next; `-` reads it from stdin. Left out, it goes on where it stopped
    prompt: Option<String>,
    #[command(flatten)]
    setup: Setup,
    /// Go on whatever is different, and put on the record that you chose to
    #[arg(long)]
    anyway: bool,
    /// Go on as a branch of your own, whoever writes the session meanwhile
    #[arg(long)]
    fork: bool,
}

pub(crate) fn run(args: &Args) -> Done {
    let stored = args.session.stored()?;
    let how = if args.fork { GoOn::AsFork } else { GoOn::Itself };
    let different = if args.anyway { IfDifferent::GoOn } else { IfDifferent::Refuse };
    agent::block_on(async {
        let (agent, mut session) = args.setup.reopen(&stored, how, different).await?;
        agent::say(&mut session, args.prompt.as_deref())?;
        let session = args.setup.placed(session).await?.record(&stored.store).await?;
        if args.fork {
            anstream::eprintln!("forked as {}", session.id().short());
        }
        args.setup.work(&agent, session).await.end_stored(&args.setup, &stored.option)
    })
}
