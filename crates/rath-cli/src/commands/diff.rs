//! `rath diff`: show the differences between the files of two steps.

use std::io::{self, Write};

use rath::chunk::{Effect, Tree};
use rath::record::Step;
use rath::record::draw::{count, describe_effect};
use rath::{Session, StepId, view};

use crate::output::pager::PagerArg;
use crate::output::{self, CommandResult, Failure, patch};
use crate::sessions::{self, LoadedSession, StoreArg};

/// Show what a session changed, or the differences between the files of two sessions or steps
///
/// With one session, the files at its start are compared with those that it left; without any, those of the newest session. The
/// output is a patch that `git apply` accepts.
#[derive(clap::Args)]
pub(crate) struct DiffArgs {
    /// The old side; the new one, if it is the only one (default: the newest session)
    #[arg(value_name = "SESSION[@STEP]")]
    from: Option<String>,
    /// The new side
    #[arg(value_name = "SESSION[@STEP]")]
    to: Option<String>,
    /// Print only the names of the files
    #[arg(long)]
    names: bool,
    #[command(flatten)]
    store: StoreArg,
    #[command(flatten)]
    pager: PagerArg,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: &DiffArgs) -> CommandResult {
    let (from, loaded, exit) = match (&args.from, &args.to) {
        (Some(from), Some(to)) => {
            let from = sessions::read_at(from, &args.store).await?;
            let to = sessions::read_at(to, &args.store).await?;
            from.require_files().and_then(|()| to.require_files())?;
            let exit = from.warn().max(to.warn());
            (from.session.clone(), to, exit)
        }
        (only, _) => {
            let loaded = sessions::read_or_newest(only.as_deref(), &args.store).await?;
            let exit = loaded.warn();
            loaded.require_files()?;
            (at_start(&loaded.session)?, loaded, exit)
        }
    };
    let to = &loaded.session;
    let differences = Differences::between(&from, to).await.map_err(|error| loaded.explain(error))?;
    if args.json {
        output::data(|out| output::json_line(out, &differences))?;
        return Ok(exit);
    }
    match &args.to {
        Some(_) => output::message!("{}", differences.summary()),
        None => {
            let files = count(differences.effects.len() as u64, "file");
            output::message!("session {} changed {files}", loaded.name());
        }
    }
    if args.names {
        output::text(|out| differences.print_names(out))?;
        return Ok(exit);
    }
    let text = from.patch(to).await.map_err(|error| loaded.explain(error))?;
    match output::is_terminal() {
        true => args.pager.text(|out| patch::print(out, &text))?,
        // Byte for byte, for `git apply`.
        false => output::data(|out| out.write_all(text.as_bytes()))?,
    }
    Ok(exit)
}

/// Returns a session as it was when its files were first recorded.
fn at_start(session: &Session) -> Result<Session, Failure> {
    let first = view::trees(session.as_record()).list.first().map(|tree| tree.step.id());
    Ok(first.map(|step| session.at(step)).transpose()?.unwrap_or_else(|| session.clone()))
}

/// The differences between the files of two sessions.
#[derive(serde::Serialize)]
pub(super) struct Differences {
    /// The last step that both sessions have.
    shared: Option<StepId>,
    /// True if both sides are steps of one session.
    #[serde(skip)]
    is_one_session: bool,
    from: Option<Tree>,
    to: Option<Tree>,
    effects: Vec<Effect>,
}

impl Differences {
    pub(super) async fn find(from: &LoadedSession, to: &LoadedSession) -> Result<Self, Failure> {
        from.require_files().and_then(|()| to.require_files())?;
        Differences::between(&from.session, &to.session).await.map_err(|error| to.explain(error))
    }

    async fn between(from: &Session, to: &Session) -> rath::Result<Self> {
        let shared = from.compare(to).base.map(|step| step.id());
        let branch = |side: &Session| side.head().map(|step| step.stamp().branch);
        let is_one_session =
            branch(from) == branch(to) && [from, to].iter().any(|side| side.head().map(Step::id) == shared);
        Ok(Differences { shared, is_one_session, from: from.tree(), to: to.tree(), effects: from.changes(to).await? })
    }

    pub(super) fn summary(&self) -> String {
        let base = match self.shared {
            Some(_) if self.is_one_session => String::new(),
            Some(base) => format!("; the last common step is {}", output::short(&base)),
            None => "; there is no common step".to_owned(),
        };
        format!("{} changed{base}", count(self.effects.len() as u64, "file"))
    }

    pub(super) fn print_names(&self, out: &mut dyn Write) -> io::Result<()> {
        self.effects.iter().try_for_each(|effect| writeln!(out, "{}", describe_effect(effect)))
    }
}
