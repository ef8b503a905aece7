//! `rath adopt`: take over a session that others made.

use rath::record::draw::{count, one_line};
use rath::turn::Next;
use rath::{PlacedFiles, Sandbox, Session};

use crate::agent;
use crate::asking::known_user_name;
use crate::output::{self, CommandResult, Exit, Failure};
use crate::sandboxes;
use crate::sessions::{self, SessionArg, Source};

/// Take over a session that others made
///
/// A session that you did not make on this machine is a guest: it was imported, copied, or came with a directory. You
/// can read, fork and export it, but nothing of it runs. Look at it first: `rath review` shows the calls that are open,
/// `rath log -v` all steps. Adopting it is recorded with your name. Its tools then run in the sandbox that you name here,
/// and its open calls wait until you approve or deny each.
#[derive(clap::Args)]
#[command(mut_arg("session", |arg| arg.default_value(None::<&str>).required(true)))]
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
        uri => Some(sandboxes::open(uri).map_err(|error| Failure::from(error).with_exit(Exit::Usage))?),
    };
    if let Some(sandbox) = &sandbox {
        sandboxes::print_sandbox(sandbox, true).await?;
    }
    // From now on its versions in the directory that the user names are kept, also if the store was moved.
    if let (Source::Store(store, ..), Some(directory)) = (&loaded.source, sandbox.as_ref().and_then(Sandbox::directory))
    {
        rath::gc::keep_versions_of(store, directory).await?;
    }
    let place = async |session: Session| match sandbox {
        Some(sandbox) => session.with_files_in(sessions::store_directory()).to_with_files(sandbox).await,
        None => Ok((session, PlacedFiles::None)),
    };
    let session = match &loaded.source {
        Source::File(path, report) if report.has_files => {
            // Saving it would leave out the files in it.
            let message = format!("{} holds files, which need a store", path.display());
            return Err(Failure::new(message, format!("`rath import {}` stores them", output::quote(loaded.name()))));
        }
        Source::File(path, _) => {
            let session = loaded.session.clone().adopt(by.as_str()).hiding(agent::secrets());
            let (session, files) = place(session).await?;
            print_files(&files, &args.sandbox);
            session.save(path).await?;
            session
        }
        Source::Store(store, listed, _) => {
            let resumed = store.resume(listed.branch).await.map_err(sessions::explain_held)?;
            let session = resumed.adopt(by.as_str()).hiding(agent::secrets());
            let (session, files) = place(session).await?;
            print_files(&files, &args.sandbox);
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

/// Tells whether the files of the session are in the directory now.
fn print_files(files: &PlacedFiles, sandbox: &str) {
    match files {
        PlacedFiles::Written { files } => output::message!("wrote {} to {sandbox}", count(*files, "file")),
        PlacedFiles::NotEmpty => {
            output::note(&format!(
                "its files are not written to {sandbox}, which is not empty; `rath checkout` writes them"
            ));
        }
        PlacedFiles::Incomplete { path } => {
            let what = if path.is_empty() { "they are".to_owned() } else { format!("{} is", one_line(path)) };
            output::note(&format!("its files are not written: {what} not in this copy"));
        }
        _ => {}
    }
}
