//! `rath merge`: join two sessions and their files.

use rath::chunk::Strategy;
use rath::record::draw::{count, describe_effect, preview};
use rath::store::Store;
use serde_json::json;

use crate::output::{self, CommandResult, Exit, Failure};
use crate::sessions::{self, LoadedSession, Source, StoreArg};
use crate::strictness::Strictness;
use crate::unwritten;

/// Join two sessions and their files
///
/// The id of the result is printed. The result has the shared steps once, then ours, then theirs. Files are merged as git does it, and written to the
/// directory of the session that both were forked from, unless that session continued meanwhile. If both sides changed
/// a file in ways that do not fit together, both versions are kept until `rath review` decides; the exit code is then 4.
#[derive(clap::Args)]
pub(crate) struct MergeArgs {
    /// Our session
    #[arg(value_name = "SESSION[@STEP]")]
    ours: String,
    /// Their session
    #[arg(value_name = "SESSION[@STEP]")]
    theirs: String,
    /// The way to join steps: `ancestor` has the shared ones once, `concat` has all of theirs after all of ours
    #[arg(long, default_value = "ancestor")]
    strategy: MergeStrategy,
    /// Refuse unless this check passed on both sides and is not stale; may be repeated
    #[arg(long, value_name = "CHECK")]
    require: Vec<String>,
    #[command(flatten)]
    store: StoreArg,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum MergeStrategy {
    Ancestor,
    Concat,
}

pub(crate) async fn run(args: &MergeArgs) -> CommandResult {
    let (ours, theirs) =
        (sessions::read_at(&args.ours, &args.store).await?, sessions::read_at(&args.theirs, &args.store).await?);
    for loaded in [&ours, &theirs] {
        if loaded.warn() == Exit::Differs {
            return Err(loaded.damaged());
        }
        // The merge would be a session of others too, whose files are not written.
        loaded.require_own()?;
    }
    let store: Store = match &ours.source {
        Source::Store(store, ..) => store.clone(),
        Source::File(..) => args.store.open_or_create().await?,
    };
    for loaded in [&ours, &theirs] {
        for check in &args.require {
            require(loaded, check).await?;
        }
    }
    let strictness = Strictness::of([&ours, &theirs]);
    let (loaded, names) = (&ours, (ours.name(), theirs.name()));
    let (ours, theirs) = (&ours.session, &theirs.session);
    let compared = ours.compare(theirs);
    let is_same = compared.ours.is_empty() && compared.theirs.is_empty();
    if let (true, MergeStrategy::Ancestor, Source::Store(..)) = (is_same, args.strategy, &loaded.source) {
        return print_same(args, loaded);
    }
    if !args.json {
        let new = |name: &str, steps: usize| format!("{} of {name}", count(steps as u64, "step"));
        let (ours, theirs) = (new(names.0, compared.ours.len()), new(names.1, compared.theirs.len()));
        let base = match compared.base {
            Some(base) => format!("since step {}", output::short(&base.id())),
            None => "which have no step in common".to_owned(),
        };
        output::message!("merging {ours} and {theirs}, {base}");
    }
    let strategy = match args.strategy {
        MergeStrategy::Ancestor => Strategy::Ancestor,
        MergeStrategy::Concat => Strategy::Concat,
    };
    let mut merged = ours.merge_by(theirs, strategy).await.map_err(|error| loaded.explain(error))?;
    strictness.keep_place(&mut merged).await?;
    strictness.keep_mode(&mut merged);
    let merged = merged.record(&store).await?;
    let can_write = merged.conflicts().is_empty() && merged.tree().is_some();
    let written = if can_write { merged.update_files().await } else { Ok(None) };
    let conflicts = merged.conflicts();
    if args.json {
        let head = merged.head().map(|step| step.id());
        let json = json!({
            "session": merged.id(), "head": head, "shared": compared.base.map(|step| step.id()),
            "ours": compared.ours.len(), "theirs": compared.theirs.len(),
            "tree": merged.tree(), "directory": written.as_ref().ok(), "conflicts": conflicts,
        });
        output::data(|out| output::json_line(out, &json))?;
    } else {
        let changes = match ours.tree().and(merged.tree()) {
            Some(_) => ours.changes(&merged).await?,
            None => Vec::new(),
        };
        output::text(|out| writeln!(out, "{}", merged.id().short()))?;
        changes.iter().for_each(|effect| output::message!("{}", describe_effect(effect)));
        for conflict in &conflicts {
            output::message!("conflict: {} ({})", preview(&conflict.path), conflict.what);
        }
    }
    let (branch, option) = (merged.id().short(), args.store.option());
    if let Some(conflict) = conflicts.first() {
        let path = output::quote(&conflict.path);
        output::message!("hint: `rath review {branch}{option} --take ours {path}` takes our version");
        output::message!("hint: `rath review --help` shows the other ways to decide");
        return Ok(Exit::Waiting);
    }
    let resume = sessions::resume_command(&merged, sessions::model_option(&merged), &option);
    // The merged session is stored even if its files cannot be written.
    let directory = written.map_err(|error| unwritten::explain(error, &branch, &option))?;
    if !args.json {
        directory.iter().for_each(|directory| output::message!("merged files are in {}", output::path(directory)));
        output::message!("{resume} continues it");
    }
    Ok(Exit::Success)
}

/// Prints the result of merging a session with itself, which is that session.
fn print_same(args: &MergeArgs, loaded: &LoadedSession) -> CommandResult {
    let session = &loaded.session;
    let head = session.head().map(|step| step.id());
    if args.json {
        let json = json!({
            "session": session.id(), "head": head, "shared": head, "ours": 0, "theirs": 0, "tree": session.tree(),
            "directory": null, "conflicts": session.conflicts(),
        });
        output::data(|out| output::json_line(out, &json))?;
    } else {
        output::message!("both are the same: there is nothing to merge");
        output::text(|out| writeln!(out, "{}", loaded.name()))?;
    }
    Ok(Exit::Success)
}

async fn require(loaded: &LoadedSession, check: &str) -> Result<(), Failure> {
    loaded.session.require_check(check).await.map_err(|error| {
        let command = loaded.command(&format!("check {} --session", output::quote(check)), "");
        Failure::from(error).with_hint(format!("{command} runs it"))
    })
}
