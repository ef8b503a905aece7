//! `rath resume`: continue a session in the store.

use rath::Session;
use rath::turn::Next;

use crate::agent::{self, AgentArgs, OnDifference, ResumeMode};
use crate::output::{self, CommandResult};
use crate::prompts::{CheckArg, ImageArgs};
use crate::sessions::StoredSessionArg;

/// Continue a session in the store
///
/// Changes since the last turn are told first: files that you changed, the tools, the model or the prompt of the agent.
/// If steps or the directory of the session are missing, it continues only with --anyway. A session that
/// others made has to be adopted first: see `rath adopt`.
#[derive(clap::Args)]
pub(crate) struct ResumeArgs {
    #[command(flatten)]
    session: StoredSessionArg,
    /// The next prompt; `-` reads it from stdin. Default: finish the turn that was interrupted. Without a session, a prompt of
    /// several words is for the newest one
    prompt: Option<String>,
    #[command(flatten)]
    agent: AgentArgs,
    #[command(flatten)]
    images: ImageArgs,
    #[command(flatten)]
    check: CheckArg,
    /// Continue although steps or the directory are missing (this is recorded)
    #[arg(long)]
    anyway: bool,
    /// Continue on a new branch, even while another process runs the session
    #[arg(long)]
    fork: bool,
}

pub(crate) async fn run(args: &ResumeArgs) -> CommandResult {
    let (stored, prompt) = args.session.find_with(args.prompt.as_deref()).await?;
    let flags = [(args.anyway, " --anyway"), (args.fork, " --fork")];
    let flags: String = flags.into_iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag).collect();
    let example = |session: &Session| {
        let options = args.agent.options_for(Some(session));
        format!("`rath resume {} 'Go on.'{options}{}{flags}` continues it", stored.branch.short(), stored.option)
    };
    if prompt.is_none() {
        // Before anything else is said.
        let session = stored.store.read(stored.branch).await?.session;
        if session.next() == Next::Done && !session.is_guest() && session.forgotten_place().is_none() {
            args.agent.provider(Some(&session)).await?;
            return Err(agent::nothing_to_do(example(&session)));
        }
    }
    let mode = if args.fork { ResumeMode::Fork } else { ResumeMode::SameBranch };
    let on_difference = if args.anyway { OnDifference::Continue } else { OnDifference::Refuse };
    let (agent, mut session) = args.agent.reopen(&stored, mode, on_difference, prompt).await?;
    let example = example(&session);
    agent::push_prompt(&mut session, prompt, &args.images, &example)?;
    let placed = args.agent.place(session).await?.record(&stored.store).await?;
    if args.fork {
        output::message!("forked as {}", placed.session().id().short());
    }
    let outcome = args.agent.work(&agent, placed).await;
    let mut session = outcome.session().cloned();
    let exit = outcome.finish_stored(&args.agent, &stored.option)?;
    Ok(exit.max(args.check.run(session.as_mut()).await?))
}
