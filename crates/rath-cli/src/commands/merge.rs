//! `rath merge`: two sessions become one, files and all.

use rath::ErrorKind;
use rath::chunk::Strategy;
use rath::record::draw::{changed, count, preview};
use rath::store::Store;
use serde_json::json;

use crate::agent;
use crate::output::{self, Done, Exit, Failure};
use crate::sessions::{self, Named, Origin, StoreArg};

/// Join two sessions: what they share once, then ours, then theirs
///
/// Files are joined as git joins them, and put where the two parted, unless somebody went on there meanwhile. What both
/// changed in ways that do not fit together is kept with both versions, and `rath review` decides; until then nothing goes
/// on, and the exit code is 4.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Ours
    #[arg(value_name = "SESSION[@STEP]")]
    ours: String,
    /// Theirs
    #[arg(value_name = "SESSION[@STEP]")]
    theirs: String,
    /// How: `ancestor` keeps what they share once, `concat` puts all of theirs after all of ours
    #[arg(long, default_value = "ancestor")]
    strategy: How,
    /// Refuse unless this check passed on both, and covers what is there now; may be given several times
    #[arg(long, value_name = "CHECK")]
    require: Vec<String>,
    #[command(flatten)]
    store: StoreArg,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum How {
    Ancestor,
    Concat,
}

pub(crate) fn run(args: &Args) -> Done {
    let (ours, theirs) = (sessions::read_at(&args.ours, &args.store)?, sessions::read_at(&args.theirs, &args.store)?);
    if ours.warn() == Exit::Differs || theirs.warn() == Exit::Differs {
        return Err(
            Failure::told("what is damaged is not merged", "`rath salvage` copies what is good").exit(Exit::Differs)
        );
    }
    let store: Store = match &ours.origin {
        Origin::Store(store, ..) => store.clone(),
        Origin::File(..) => args.store.make()?,
    };
    for named in [&ours, &theirs] {
        args.require.iter().try_for_each(|check| require(named, check))?;
    }
    let (ours, theirs) = (&ours.session, &theirs.session);
    let compared = ours.compare(theirs);
    if !args.json {
        match compared.base {
            Some(base) => anstream::eprintln!("shared: up to {}", output::short(&base.id())),
            None => anstream::eprintln!("shared: nothing"),
        }
        let steps = |steps: usize| count(steps as u64, "step");
        anstream::eprintln!("new: {} of ours, {} of theirs", steps(compared.ours.len()), steps(compared.theirs.len()));
    }
    let strategy = match args.strategy {
        How::Ancestor => Strategy::Ancestor,
        How::Concat => Strategy::Concat,
    };
    let (merged, settled) = agent::block_on(async {
        let merged = ours.merge_by(theirs, strategy)?.record(&store).await?;
        let is_settled = merged.conflicts().is_empty() && merged.tree().is_some();
        let settled = if is_settled { merged.update_files().await } else { Ok(None) };
        Ok((merged, settled))
    })?;
    let conflicts = merged.conflicts();
    if args.json {
        let head = merged.head().map(|step| step.id());
        let json = json!({
            "session": merged.id(), "head": head, "shared": compared.base.map(|step| step.id()),
            "ours": compared.ours.len(), "theirs": compared.theirs.len(),
            "tree": merged.tree(), "directory": settled.as_ref().ok(), "conflicts": conflicts,
        });
        output::data(|out| output::json_line(out, &json))?;
    } else {
        let changes = ours.tree().and(merged.tree()).map(|_| ours.changes(&merged)).transpose()?.unwrap_or_default();
        output::text(|out| {
            changes.iter().try_for_each(|effect| writeln!(out, "{}", changed(effect)))?;
            let clash = |out: &mut dyn std::io::Write, path: &str, what: &str| {
                writeln!(out, "conflict: {} ({what})", preview(path))
            };
            conflicts.iter().try_for_each(|conflict| clash(out, &conflict.path, &conflict.what))?;
            writeln!(out, "{}", merged.id().short())
        })?;
    }
    let (branch, option) = (merged.id().short(), args.store.again());
    if !conflicts.is_empty() {
        anstream::eprintln!(
            "hint: `rath review {branch}{option} --take ours|theirs|markers PATH` or `--edited PATH FILE` decides"
        );
        return Ok(Exit::Waiting);
    }
    // What could not be put there is kept all the same.
    let directory = settled.map_err(|error| {
        let hint = format!(
            "move your change away, and `rath resume {branch} --model ..{option}` goes on there; or \
                            `rath checkout {branch} DIRECTORY{option}` puts the files elsewhere"
        );
        let is_in_the_way = error.kind() == ErrorKind::Conflict;
        let failure = Failure::from(error);
        if is_in_the_way { failure.hint(hint) } else { failure }
    })?;
    if !args.json {
        directory.iter().for_each(|directory| anstream::eprintln!("its files are in {}", output::path(directory)));
        anstream::eprintln!("`rath resume {branch} --model ..{option}` goes on there");
    }
    Ok(Exit::Fine)
}

fn require(named: &Named, check: &str) -> Result<(), Failure> {
    named.session.require_check(check).map_err(|error| {
        let quoted = check.replace('\'', r"'\''");
        let again = named.command(&format!("check '{quoted}' --session"), "");
        Failure::from(error).hint(format!("{again} runs it"))
    })
}
