//! `rath fork`: a branch that goes on by itself.

use rath::Session;
use rath::record::draw::count;
use serde_json::json;

use crate::agent;
use crate::output::{self, Done, Exit, Failure};
use crate::sessions::{self, Origin, StoreArg};

/// Make a branch that goes on from a session by itself
///
/// It holds the same steps up to there, and the same files: its tools work in a directory of their own, made when the first
/// of them runs.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The session, and the step to go on from; its newest if none is named
    #[arg(value_name = "SESSION[@STEP]")]
    session: String,
    /// A name that the log shows
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    store: StoreArg,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Done {
    let named = sessions::read_at(&args.session, &args.store)?;
    let exit = named.warn();
    let Origin::Store(store, ..) = &named.origin else {
        let what = format!("{} is a file, and holds one session", named.name());
        return Err(Failure::told(what, "`rath import FILE` takes it into a store").exit(Exit::Misused));
    };
    let from = named.lineage.heads().last().map(|step| step.id());
    let shared = named.session.chunk_count();
    let fork = match &args.name {
        Some(name) => named.session.fork_named(name),
        None => Session::fork(&named.session),
    };
    let fork = agent::block_on(async { Ok(fork.record(store).await?) })?;
    if args.json {
        let json = json!({"session": fork.id(), "from": from, "shared": shared, "tree": fork.tree()});
        output::data(|out| output::json_line(out, &json))?;
    } else {
        let up_to = from.map(|from| format!(", up to {}", output::short(&from))).unwrap_or_default();
        anstream::eprintln!("shared: {}{up_to}", count(shared, "chunk"));
        anstream::eprintln!("new: nothing yet");
        output::text(|out| writeln!(out, "{}", fork.id().short()))?;
        anstream::eprintln!("`rath resume {} --model ..` goes on there", fork.id().short());
    }
    Ok(exit)
}
