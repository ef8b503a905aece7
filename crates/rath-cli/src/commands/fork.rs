//! `rath fork`: a branch that goes on by itself.

use rath::Difference;
use rath::record::draw::{count, printable};
use rath::store::Store;
use rath::{BranchId, Session};
use serde_json::json;

use crate::agent;
use crate::output::{self, Done, Exit, Failure};
use crate::sessions::{self, Named, Origin, StoreArg};

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
    let Origin::Store(store, listed, _) = &named.origin else {
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
    let is_newest = from == Some(listed.head);
    if is_newest {
        warn_of_changes(store, &named, listed.branch)?;
    }
    if args.json {
        let json = json!({"session": fork.id(), "from": from, "shared": shared, "tree": fork.tree()});
        output::data(|out| output::json_line(out, &json))?;
    } else {
        let up_to = from.map(|from| format!(", up to {}", output::short(&from))).unwrap_or_default();
        anstream::eprintln!("shared: {}{up_to}", count(shared, "chunk"));
        anstream::eprintln!("new: nothing yet");
        output::text(|out| writeln!(out, "{}", fork.id().short()))?;
        anstream::eprintln!("`rath resume {}` goes on there", named.again(fork.id(), "--model .."));
        if is_newest {
            let option = args.store.again();
            anstream::eprintln!(
                "`rath ls` leaves {} out until it goes on; `rath ls --all{option}` lists both",
                named.name()
            );
        }
    }
    Ok(exit)
}

/// A fork has the files that are on the record, and a person may have changed them since.
fn warn_of_changes(store: &Store, named: &Named, branch: BranchId) -> Result<(), Failure> {
    for difference in store.fork(branch)?.certificate().differences() {
        if let Difference::Files { paths } = difference {
            let changes = paths.join(", ");
            output::warning(&printable(&format!(
                "the fork does not have what was changed in {} since: {changes}",
                named.name()
            )));
        }
    }
    Ok(())
}
