//! `rath resume`: continue a session in the store.

use crate::agent::{self, AgentArgs, OnDifference, ResumeMode};
use crate::output::{self, CommandResult};
use crate::sessions::StoredSessionArg;

/// Continue a session in the store
///
/// First the session is checked: its steps, its files, its tools, its model and its prompt have to be as they were
/// after the last turn. If something changed, it is listed, and the session continues only with --anyway. A session that
/// others made has to be adopted first: see `rath adopt`.
#[derive(clap::Args)]
pub(crate) struct ResumeArgs {
    #[command(flatten)]
    session: StoredSessionArg,
    /// The next prompt; `-` reads it from stdin. Default: finish the turn that was interrupted
    prompt: Option<String>,
    #[command(flatten)]
    agent: AgentArgs,
    /// Continue although something changed since the last turn (this is recorded)
    #[arg(long)]
    anyway: bool,
    /// Continue on a new branch, even while another process runs the session
    #[arg(long)]
    fork: bool,
}

pub(crate) async fn run(args: &ResumeArgs) -> CommandResult {
    let stored = args.session.find().await?;
    let mode = if args.fork { ResumeMode::Fork } else { ResumeMode::SameBranch };
    let on_difference = if args.anyway { OnDifference::Continue } else { OnDifference::Refuse };
    let prompt = args.prompt.as_deref();
    let (agent, mut session) = args.agent.reopen(&stored, mode, on_difference, prompt).await?;
    let (branch, options) = (stored.branch.short(), args.agent.options());
    let flags = [(args.anyway, " --anyway"), (args.fork, " --fork")];
    let flags: String = flags.into_iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag).collect();
    let example = format!("`rath resume {branch} 'Go on.' {options}{}{flags}`", stored.option);
    agent::push_prompt(&mut session, prompt, &example)?;
    let placed = args.agent.place(session).await?.record(&stored.store).await?;
    if args.fork {
        output::message!("forked as {}", placed.session().id().short());
    }
    args.agent.work(&agent, placed).await.finish_stored(&args.agent, &stored.option)
}
