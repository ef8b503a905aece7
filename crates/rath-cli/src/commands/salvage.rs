//! `rath salvage`: copy the undamaged part of a session.

use std::path::Path;

use rath::record::draw::count;
use rath::record::lineage::Lineage;
use rath::store::Create;
use rath::{SalvageReport, Session};

use super::import;
use crate::output::{self, CommandResult, Exit, Failure};
use crate::sessions::{self, SessionArg};

/// Copy the undamaged part of a session, and mark what is lost
///
/// The copy is intact, and says which steps and payloads are missing. The exit code is 3 if something is lost.
#[derive(clap::Args)]
#[command(allow_missing_positional = true)]
pub(crate) struct SalvageArgs {
    #[command(flatten)]
    session: SessionArg,
    /// The destination of the copy: a new session file, sqlite:PATH or jsonl:DIRECTORY
    #[arg(value_name = "DESTINATION")]
    to: String,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: &SalvageArgs) -> CommandResult {
    let mut source = None;
    let (lineage, damage) = match args.session.file().filter(|path| path.exists()) {
        Some(path) => {
            let opened = Session::open(path).await?;
            let report = &opened.report;
            let mut damage: Vec<String> = report.damage.iter().map(ToString::to_string).collect();
            damage.extend((report.unlisted > 0).then(|| format!("and {} more", report.unlisted)));
            // A file that is not closed may have lost its end.
            damage.extend((damage.is_empty() && !report.is_whole()).then(|| report.ending.to_string()));
            if report.has_files {
                let file = output::quote(&path.display().to_string());
                output::note(&format!("its files are not copied; `rath import {file} --anyway` stores them"));
            }
            (opened.lineage, damage)
        }
        None => {
            let stored = args.session.find_in_store().await?;
            let damage = match stored.store.read(stored.branch).await {
                Ok(read) => read.damage.iter().map(ToString::to_string).collect(),
                Err(error) if error.kind() == rath::ErrorKind::Damaged => vec![error.message()],
                Err(error) if error.kind() == rath::ErrorKind::NoSuchSession => {
                    let unlisted = stored.store.unlisted().await?;
                    let own = unlisted.iter().filter(|unlisted| unlisted.branch == Some(stored.branch));
                    own.map(|unlisted| unlisted.damage.to_string()).collect()
                }
                Err(error) => return Err(error.into()),
            };
            source = stored.store.path().map(Path::to_owned);
            (stored.store.pieces(stored.branch).await?, damage)
        }
    };
    let copied = match is_store(&args.to) {
        true => copy_to_store(&args.to, &lineage, source.as_deref()).await?,
        false => rath::salvage(&lineage, &args.to).await?,
    };
    let is_whole = damage.is_empty() && copied.is_whole();
    if args.json {
        let json = serde_json::json!({
            "steps": copied.steps,
            "lost_steps": copied.lost_steps,
            "lost_payloads": copied.lost_payloads.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "damage": damage,
        });
        output::data(|out| output::json_line(out, &json))?;
    } else {
        output::text(|out| {
            damage.iter().try_for_each(|damage| writeln!(out, "{damage}"))?;
            copied.lost_steps.iter().try_for_each(|step| writeln!(out, "lost: step {}", output::short(step)))?;
            copied.lost_payloads.iter().try_for_each(|digest| writeln!(out, "lost: payload {digest:.8}"))?;
            let verdict = if is_whole { "nothing is lost" } else { "the copy marks what is lost" };
            writeln!(out, "copied {} to {}: {verdict}", count(copied.steps, "step"), args.to)
        })?;
    }
    Ok(if is_whole { Exit::Success } else { Exit::Differs })
}

/// Returns `true` for the name of a store: a kind and a colon, unless there is a file of that name.
fn is_store(name: &str) -> bool {
    let scheme = name.split_once(':').map(|(scheme, _)| scheme);
    scheme.is_some_and(|scheme| scheme.len() > 1 && scheme.chars().all(|c| c.is_ascii_lowercase()))
        && !Path::new(name).exists()
}

/// Copies a session to another store than `source`, which it is from.
async fn copy_to_store(uri: &str, lineage: &Lineage, source: Option<&Path>) -> Result<SalvageReport, Failure> {
    let store = sessions::open(uri, Create::IfMissing).await?;
    let is_same = |source: &Path| {
        let canonical = store.path().and_then(|path| path.canonicalize().ok());
        canonical.is_some() && canonical == source.canonicalize().ok()
    };
    if source.is_some_and(is_same) {
        let message = format!("{uri} is the store that the session is in");
        return Err(Failure::new(message, "name another one: a new file such as copy.rath, or a new store"));
    }
    import::import_all(&store, lineage, &[]).await?;
    Ok(SalvageReport::new(lineage))
}
