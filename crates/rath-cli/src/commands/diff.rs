//! `rath diff`: show the differences between the files of two steps.

use std::io::{self, Write};

use rath::StepId;
use rath::chunk::{Effect, Tree};
use rath::record::draw::{count, describe_effect};

use crate::output::{self, CommandResult, Failure};
use crate::sessions::{self, LoadedSession, StoreArg};

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
    let differences = Differences::find(&from, &to).await?;
    if args.json {
        output::data(|out| output::json_line(out, &differences))?;
        return Ok(exit);
    }
    output::message!("{}", differences.summary());
    if args.names {
        output::text(|out| differences.print_names(out))?;
    } else {
        let text = from.session.patch(&to.session).await?;
        output::data(|out| out.write_all(text.as_bytes()))?;
    }
    Ok(exit)
}

/// The differences between the files of two sessions.
#[derive(serde::Serialize)]
pub(super) struct Differences {
    /// The last step that both sessions have.
    shared: Option<StepId>,
    from: Option<Tree>,
    to: Option<Tree>,
    effects: Vec<Effect>,
}

impl Differences {
    pub(super) async fn find(from: &LoadedSession, to: &LoadedSession) -> Result<Self, Failure> {
        from.require_files().and_then(|()| to.require_files())?;
        let (from, to) = (&from.session, &to.session);
        let shared = from.compare(to).base.map(|step| step.id());
        Ok(Differences { shared, from: from.tree(), to: to.tree(), effects: from.changes(to).await? })
    }

    pub(super) fn summary(&self) -> String {
        let base = match self.shared {
            Some(base) => format!("the last common step is {}", output::short(&base)),
            None => "there is no common step".to_owned(),
        };
        format!("{} changed; {base}", count(self.effects.len() as u64, "file"))
    }

    pub(super) fn print_names(&self, out: &mut dyn Write) -> io::Result<()> {
        self.effects.iter().try_for_each(|effect| writeln!(out, "{}", describe_effect(effect)))
    }
}
