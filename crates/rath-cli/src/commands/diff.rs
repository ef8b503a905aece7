//! `rath diff`: what differs between the files of two steps.

use rath::record::draw::{count, describe_effect};
use serde_json::json;

use crate::output::{self, Done};
use crate::sessions::{self, StoreArg};

/// Show what differs between the files of two sessions, or of two steps
///
/// It is printed as a patch, which `git apply` takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// From here
    #[arg(value_name = "SESSION[@STEP]")]
    from: String,
    /// To there
    #[arg(value_name = "SESSION[@STEP]")]
    to: String,
    /// Only name the files
    #[arg(long)]
    names: bool,
    #[command(flatten)]
    store: StoreArg,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Done {
    let (from, to) = (sessions::read_at(&args.from, &args.store)?, sessions::read_at(&args.to, &args.store)?);
    let exit = from.warn().max(to.warn());
    from.has_files().and_then(|()| to.has_files())?;
    let changes = from.session.changes(&to.session)?;
    let compared = from.session.compare(&to.session);
    if args.json {
        let shared = compared.base.map(|step| step.id());
        let json = json!({"shared": shared, "from": from.session.tree(), "to": to.session.tree(), "effects": changes});
        output::data(|out| output::json_line(out, &json))?;
        return Ok(exit);
    }
    match compared.base {
        Some(base) => anstream::eprintln!("shared: up to {}", output::short(&base.id())),
        None => anstream::eprintln!("shared: nothing"),
    }
    anstream::eprintln!("new: {} changed", count(changes.len() as u64, "file"));
    if args.names {
        output::text(|out| changes.iter().try_for_each(|effect| writeln!(out, "{}", describe_effect(effect))))?;
    } else {
        let text = from.session.patch(&to.session)?;
        output::data(|out| out.write_all(text.as_bytes()))?;
    }
    Ok(exit)
}
