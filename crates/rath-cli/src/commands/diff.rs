//! `rath diff`: show the differences between the files of two steps.

use rath::record::draw::{count, describe_effect};
use serde_json::json;

use crate::output::{self, CommandResult};
use crate::sessions::{self, StoreArg};

/// Show the differences between the files of two sessions or steps
///
/// The output is a patch that `git apply` accepts.
#[derive(clap::Args)]
pub(crate) struct DiffArgs {
    /// The old side
    #[arg(value_name = "SESSION[@STEP]")]
    from: String,
    /// The new side
    #[arg(value_name = "SESSION[@STEP]")]
    to: String,
    /// Print only the names of the files
    #[arg(long)]
    names: bool,
    #[command(flatten)]
    store: StoreArg,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: &DiffArgs) -> CommandResult {
    let (from, to) =
        (sessions::read_at(&args.from, &args.store).await?, sessions::read_at(&args.to, &args.store).await?);
    let exit = from.warn().max(to.warn());
    from.require_files().and_then(|()| to.require_files())?;
    let changes = from.session.changes(&to.session).await?;
    let compared = from.session.compare(&to.session);
    if args.json {
        let shared = compared.base.map(|step| step.id());
        let json = json!({"shared": shared, "from": from.session.tree(), "to": to.session.tree(), "effects": changes});
        output::data(|out| output::json_line(out, &json))?;
        return Ok(exit);
    }
    let base = match compared.base {
        Some(base) => format!("the last common step is {}", output::short(&base.id())),
        None => "there is no common step".to_owned(),
    };
    output::message!("{} changed; {base}", count(changes.len() as u64, "file"));
    if args.names {
        output::text(|out| changes.iter().try_for_each(|effect| writeln!(out, "{}", describe_effect(effect))))?;
    } else {
        let text = from.session.patch(&to.session).await?;
        output::data(|out| out.write_all(text.as_bytes()))?;
    }
    Ok(exit)
}
