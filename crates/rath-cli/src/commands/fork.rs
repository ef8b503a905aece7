//! `rath fork`: start a new branch from a session.

use rath::Session;
use serde_json::json;

use crate::output::{self, CommandResult};
use crate::sessions::{self, Source, StoreArg, parse_fork_name};
use crate::strictness::Strictness;
use crate::unrecorded::{FilesOfFork, record_before_fork};

/// Start a new branch from a session, or from one of its steps
///
/// The branch has the same steps up to there, and the same files: its tools work in a directory of their own, which is
/// created when the first of them runs.
#[derive(clap::Args)]
pub(crate) struct ForkArgs {
    /// The session, and the step to start from (default: its newest)
    #[arg(value_name = "SESSION[@STEP]")]
    session: String,
    /// A name for the branch, shown by `rath log`
    #[arg(long, value_name = "NAME", value_parser = parse_fork_name)]
    name: Option<String>,
    #[command(flatten)]
    store: StoreArg,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: &ForkArgs) -> CommandResult {
    let mut loaded = sessions::read_at(&args.session, &args.store).await?;
    // A step that is named is forked as it is.
    if let (Source::Store(store, listed, _), (_, None)) = (&loaded.source, sessions::split_step(&args.session))
        && record_before_fork(store, listed.branch).await? == FilesOfFork::Recorded
    {
        loaded = sessions::read_at(&args.session, &args.store).await?;
    }
    let exit = loaded.warn();
    let (store, listed) = match &loaded.source {
        Source::Store(store, listed, _) => (store, listed),
        Source::File(path, _) => return Err(sessions::needs_store(path, &args.store)),
    };
    let from = loaded.lineage.heads().last().map(|step| step.id());
    let shared = loaded.session.chunk_count();
    let mut fork = match &args.name {
        Some(name) => loaded.session.fork_named(name),
        None => Session::fork(&loaded.session),
    };
    let is_newest = from == Some(listed.head);
    if !is_newest {
        let strictness = Strictness::of([&loaded]);
        strictness.keep_place(&mut fork).await?;
        strictness.keep_mode(&mut fork);
    }
    let fork = fork.record(store).await?;
    if args.json {
        let json = json!({"session": fork.id(), "from": from, "shared": shared, "tree": fork.tree()});
        output::data(|out| output::json_line(out, &json))?;
    } else {
        let at = from.map(|from| format!(" at step {}", output::short(&from))).unwrap_or_default();
        output::message!("forked from {}{at}", loaded.name());
        output::text(|out| writeln!(out, "{}", fork.id().short()))?;
        let resume = loaded.resume_other(&fork, sessions::model_option(&fork));
        output::message!("{resume} continues it");
        if is_newest {
            let (name, option) = (loaded.name(), args.store.option());
            output::message!("{name} is now listed only by `rath ls --all{option}`, until it continues too");
        }
    }
    Ok(exit)
}
