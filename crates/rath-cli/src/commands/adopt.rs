//! `rath adopt`: take over a session that others made.

use rath::Sandbox;
use rath::Session;
use rath::record::draw::count;
use rath::turn::Next;

use crate::agent;
use crate::asking::known_user_name;
use crate::output::{self, CommandResult, Exit, Failure};
use crate::sandboxes;
use crate::sessions::{self, SessionArg, Source};

/// Take over a session that others made
///
/// A session that you did not make on this machine is a guest: it was imported, copied, or came with a directory. You
/// can read, fork and export it, but nothing of it runs. Look at it first: `rath review` shows the calls that are open,
/// `rath log` all steps. Adopting it is recorded with your name. Its tools then run in the sandbox that you name here,
/// and its open calls wait until you approve or deny each.
#[derive(clap::Args)]
pub(crate) struct AdoptArgs {
    #[command(flatten)]
    session: SessionArg,
    /// The sandbox of its tools: isolated:DIRECTORY, local:DIRECTORY or none
    #[arg(long, value_name = "SANDBOX")]
    sandbox: String,
    /// Your name, which is recorded. Default: your user name
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
}

pub(crate) async fn run(args: &AdoptArgs) -> CommandResult {
    let loaded = args.session.read().await?;
    if loaded.warn() == Exit::Differs {
        return Err(loaded.damaged());
    }
    let by = args.by.clone().or_else(known_user_name).ok_or_else(|| {
        Failure::new("your user name is not known", "`--by NAME` gives the name to record").with_exit(Exit::Usage)
    })?;
    if let Some(failure) = sessions::key_problem() {
        return Err(failure);
    }
    if !loaded.session.is_guest() {
        output::message!("session {} is yours already", loaded.name());
        return Ok(Exit::Success);
    }
    let sandbox = match args.sandbox.as_str() {
        "none" => None,
        uri => Some(Sandbox::open(uri).map_err(|error| Failure::from(error).with_exit(Exit::Usage))?),
    };
    if let Some(sandbox) = &sandbox {
        sandboxes::print_sandbox(sandbox, true).await?;
    }
    // From now on its versions in the directory that the user names are kept, also if the store was moved.
    if let (Source::Store(store, ..), Some(directory)) = (&loaded.source, sandbox.as_ref().and_then(Sandbox::directory))
    {
        rath::gc::keep_versions_of(store, directory).await?;
    }
    let place = |session: Session| sandbox.into_iter().fold(session.hiding(agent::secrets()), Session::to);
    let session = match &loaded.source {
        Source::File(path, _) => {
            let session = place(loaded.session.clone().adopt(by.as_str()));
            session.save(path).await?;
            session
        }
        Source::Store(store, listed, _) => {
            let resumed = store.resume(listed.branch).await.map_err(sessions::explain_held)?;
            let session = place(resumed.adopt(by.as_str()));
            session.durable().await?;
            session
        }
    };
    output::message!("session {} is yours now, adopted by {by}", loaded.name());
    match session.next() {
        Next::RunTools(calls) => {
            let review = loaded.command("review", "");
            output::message!("waiting for you: {}; {review} shows what is", count(calls.len() as u64, "call"));
        }
        Next::AskModel | Next::Done => {
            output::message!("{} continues it", sessions::continue_command(&loaded, &session));
        }
    }
    Ok(Exit::Success)
}
