//! `rath restore`: change a session's files back to an earlier step.

use rath::ErrorKind;
use rath::record::draw::{count, describe_effect};
use rath::record::{SHORT_ID_DIGITS, Step};
use serde_json::json;

use crate::output::{self, CommandResult, Exit, Failure};
use crate::sessions::{self, Source, StoreArg};
use crate::unwritten;

/// Change a session's files back to what they were at a step
///
/// Changes that you made since the last turn are recorded first, so that nothing is lost. Files that are
/// ignored or not recorded stay as they are.
#[derive(clap::Args)]
pub(crate) struct RestoreArgs {
    /// The session, and the step (default: its newest)
    #[arg(value_name = "SESSION[@STEP]")]
    session: String,
    #[command(flatten)]
    store: StoreArg,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: &RestoreArgs) -> CommandResult {
    let (name, step) = sessions::split_step(&args.session);
    let step = step.unwrap_or("head");
    let loaded = sessions::read_at(name, &args.store).await?;
    let step = loaded.find_step(step)?.id();
    let Source::Store(store, listed, _) = &loaded.source else {
        let message = format!("wanted a session in a store, found the file {}", loaded.name());
        let checkout = loaded.command("checkout", " files");
        let hint = format!("{checkout} writes its files to the directory files");
        return Err(Failure::new(message, hint).with_exit(Exit::Usage));
    };
    loaded.require_own()?;
    sessions::read_at(&format!("{}@{step}", loaded.name()), &args.store).await?.require_files()?;
    let resumed = store.resume(listed.branch).await.map_err(sessions::explain_held)?;
    // The files may differ from the record: restoring them is the purpose of this command.
    let mut session = loaded.accept_file_changes(resumed)?;
    let unwritten = session.unwritten_directory().await;
    let explain = |error: rath::Error| match error.kind() {
        ErrorKind::Conflict if unwritten.is_some() => unwritten::explain(error, loaded.name(), loaded.option()),
        _ => loaded.explain(error),
    };
    let effects = session.restore(step).await.map_err(explain)?;
    // Changes by the user were recorded before they were undone.
    let new = session.as_record().newest_first().take_while(|step| step.id() != listed.head);
    let before = new.skip(usize::from(!effects.is_empty())).map(Step::id).next();
    if args.json {
        let json = json!({"shared": step, "before": before, "effects": effects});
        output::data(|out| output::json_line(out, &json))?;
    } else {
        unwritten.iter().for_each(|directory| output::message!("merged files are in {}", output::path(directory)));
        let files = count(effects.len() as u64, "file");
        // A session that another one took the directory over from has files of its own.
        let directory =
            session.working_directory().await.filter(|_| unwritten.is_none()).map(|path| output::path(&path));
        let elsewhere = directory.filter(|path| path != ".").map(|path| format!(" in {path}")).unwrap_or_default();
        output::message!("restored step {}: {files} changed{elsewhere}", output::short(&step));
        output::text(|out| effects.iter().try_for_each(|effect| writeln!(out, "{}", describe_effect(effect))))?;
        if let Some(before) = before {
            let undo = loaded.command("restore", &format!("@{before:.SHORT_ID_DIGITS$}"));
            output::message!("your changes were recorded first: {undo} brings them back");
        }
    }
    Ok(loaded.warn())
}
