//! `rath forget`: remove the content of a step for good.

use rath::gc::{ForgetReport, ForgottenFiles, LostFiles, SameFile, SkipReason};
use rath::record::draw::{count, one_line};
use rath::store::Erased;
use rath::{BranchId, Store};

use crate::output::{self, CommandResult, Exit, Failure};
use crate::sessions::{self, NamedStep, Source, StepArg};

/// Remove the text and files of a step for good; the step itself stays
///
/// The content of files is removed from all versions, unless another step brought it in too. Files in your directory and
/// in those of forks stay as they are, and are named. Other steps that repeat a text keep it: the arguments of a call and its
/// result are two steps.
#[derive(clap::Args)]
pub(crate) struct ForgetArgs {
    #[command(flatten)]
    step: StepArg,
}

pub(crate) async fn run(args: &ForgetArgs) -> CommandResult {
    let NamedStep { loaded, step, .. } = args.step.read().await?;
    let (store, listed) = match &loaded.source {
        Source::Store(store, listed, _) => (store, listed),
        Source::File(path, _) => return Err(sessions::needs_store(path, args.step.store())),
    };
    loaded.warn();
    // All of a session is never meant by a name that happens to fit.
    let Some(step) = step.map(|step| step.id()) else {
        let hint = format!("{} lists the steps", loaded.command("log", " -v"));
        let message = format!("wanted a step, found the session {}", loaded.name());
        return Err(Failure::new(message, hint).with_exit(Exit::Usage));
    };
    let report = store.forget(listed.branch, step).await.map_err(sessions::explain_held)?;
    let removed: Vec<_> =
        report.directories.iter().flat_map(|files| &files.removed).map(|path| one_line(path)).collect();
    let (number, names) = (removed.len() as u64, shortened(&removed));
    let files = match number {
        0 => String::new(),
        1 => format!("; 1 file that it wrote is removed from the versions: {names}"),
        _ => format!("; {} that it wrote are removed from the versions: {names}", count(number, "file")),
    };
    // A step may be in the file of another session only, which a process writes.
    let lineage = store.read(listed.branch).await?.session.lineage();
    let what = match lineage.find(step).is_some_and(|step| step.withheld().is_some()) {
        true => "removed",
        false => "still there",
    };
    output::message!("the text of step {} is {what}{files}", output::short(&step));
    explain(&report, store, listed.branch, loaded.option());
    Ok(if report.is_complete() { Exit::Success } else { Exit::Failure })
}

/// The number of names in one list.
const MAX_NAMES: usize = 20;

fn shortened(names: &[String]) -> String {
    let more = names.len().saturating_sub(MAX_NAMES);
    let shown = names[..names.len() - more].join(", ");
    if more == 0 { shown } else { format!("{shown} and {more} more") }
}

/// Names what was not reached.
fn explain(report: &ForgetReport, store: &Store, session: BranchId, option: &str) {
    if report.erased == Erased::WhenIdle {
        output::warning(&log_keeps(store));
    }
    for (session, error) in &report.refused {
        output::warning(&format!("session {} may still have a copy of the step: {}", session.short(), error.message()));
    }
    match &report.lost_files {
        None => {}
        Some(LostFiles::NotHere { place }) => {
            let place = place.as_deref().map(|place| format!(" of {}", one_line(place))).unwrap_or_default();
            output::warning(&format!("the versions{place} are not here, and may have files of the step"));
        }
        Some(LostFiles::AtStart) => output::warning("the files that were there at the start stay in the versions"),
        Some(_) => output::warning("this version does not know this kind of step: files that it wrote may be stored"),
    }
    report.directories.iter().for_each(|files| explain_files(files, option));
    for step in &report.related {
        let (session, step) = (session.short(), output::short(step));
        output::note(&format!(
            "step {step} belongs to the same call and stays: `rath forget {session} {step}{option}`"
        ));
    }
}

/// Returns the option that names the store of a step.
fn store_option(file: &SameFile, own: &str) -> String {
    file.store.as_ref().map_or_else(|| own.to_owned(), |uri| format!(" --store {}", output::quote(uri)))
}

fn explain_files(files: &ForgottenFiles, option: &str) {
    let own = output::path(&files.directory.join(".rath"));
    match &files.skipped {
        None => {}
        Some(SkipReason::InUse) => {
            let message = format!("the versions in {own} were left alone: a process works there");
            output::warning(&format!("{message}\nhint: run this again when it is done"));
        }
        Some(SkipReason::ReplacedStore { uri }) => {
            let message = format!("the versions in {own} were left alone: another store lies at {uri}");
            let without = format!("`rath gc --without {}{option}`", output::quote(uri));
            output::warning(&format!(
                "{message}, and the earlier one may name them\nhint: put the earlier one back and run this again; if it is gone \
                 for good, {without} first"
            ));
        }
        Some(SkipReason::UnreadableStore { uri, why }) => {
            let message = format!("the versions in {own} were left alone: {uri} may name them, and cannot be read");
            let without = format!("`rath gc --without {}{option}`", output::quote(uri));
            output::warning(&format!(
                "{message}: {why}\nhint: run this again when it can be read; if it is gone for good, {without} first"
            ));
        }
        Some(SkipReason::Damaged { why }) => {
            output::warning(&format!("the versions in {own} are damaged, and may still have files of the step: {why}"));
        }
        Some(_) => output::warning(&format!("the versions in {own} were left alone")),
    }
    for kept in files.kept.iter().take(MAX_NAMES) {
        let (path, branch, step) = (one_line(&kept.path), kept.branch.short(), output::short(&kept.step));
        let message = format!("{path} stays in the versions: step {step} brought in the same content");
        output::warning(&format!(
            "{message}\nhint: `rath forget {branch} {step}{}` removes it, if no other step did",
            store_option(kept, option)
        ));
    }
    for later in files.later.iter().take(MAX_NAMES) {
        let (path, branch, step) = (one_line(&later.path), later.branch.short(), output::short(&later.step));
        let message = format!("step {step} changed {path} again: its version stays, and may have parts of the content");
        let option = store_option(later, option);
        output::note(&format!("{message}\nhint: `rath forget {branch} {step}{option}` removes it"));
    }
    for copy in files.still_in.iter().take(MAX_NAMES) {
        let whose = copy
            .branch
            .map_or_else(|| "your own file".to_owned(), |branch| format!("a file of branch {}", branch.short()));
        output::warning(&format!("still in: {} ({whose})", output::path(&copy.path)));
    }
    for path in files.untracked.iter().take(MAX_NAMES) {
        output::warning(&format!("may still be in: {} (no version of this file is stored)", output::path(path)));
    }
    let lengths = [files.kept.len(), files.later.len(), files.still_in.len(), files.untracked.len()];
    let more: usize = lengths.iter().map(|length| length.saturating_sub(MAX_NAMES)).sum();
    if more > 0 {
        output::warning(&format!("{} more like these", count(more as u64, "file")));
    }
    for uri in &files.other_stores {
        output::warning(&format!("the step is also in {}, with its text", one_line(uri)));
    }
}

/// Returns a warning about content that is removed and not yet erased.
pub(super) fn log_keeps(store: &Store) -> String {
    let log = store.path().map_or_else(|| "its log".to_owned(), |path| format!("{}-wal", output::path(path)));
    format!("other processes have the store open: {log} keeps a copy of what was removed until all of them are done")
}
