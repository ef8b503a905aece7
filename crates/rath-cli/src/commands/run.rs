//! `rath run`: an agent at work.

use std::path::{Path, PathBuf};

use rath::prelude::*;
use rath::store::Create;

use crate::agent::{self, GoOn, IfDifferent, Setup};
use crate::output::{Done, Exit, Failure};
use crate::sessions::{self, STORE, Stored};

/// Let an agent work on a prompt
///
/// Its answer goes to stdout as it comes, and what it does on the way to stderr. The session is kept in the store step by
/// step, however it ends. Ctrl-C stops the agent, and `rath resume` goes on. What has the shape of a
/// key is hidden wherever it turns up, and so are the values of variables whose names end in _KEY, _TOKEN, _SECRET,
/// _PASSWORD, _PASSWD or _CREDENTIALS.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// What to do; `-` reads it from stdin. Left out, a stored session goes on where it stopped
    prompt: Option<String>,
    #[command(flatten)]
    setup: Setup,
    /// Where the session is kept. A file holds one session, and the run goes on from it if it is there
    #[arg(long, value_name = "sqlite:PATH | jsonl:DIRECTORY | memory: | file:PATH", default_value = STORE)]
    store: Kept,
    /// Go on with this session of the store
    #[arg(long, value_name = "SESSION")]
    session: Option<String>,
    /// Let a call go ahead that waits for a decision; may be given several times
    #[arg(long, value_name = "CALL")]
    approve: Vec<String>,
    /// Refuse such a call; may be given several times
    #[arg(long, value_name = "CALL")]
    deny: Vec<String>,
}

/// Where a session is kept.
#[derive(Clone)]
enum Kept {
    /// In a file of its own, written before the run and after it.
    File(PathBuf),
    /// In a store, step by step.
    Store(String),
}

impl std::str::FromStr for Kept {
    type Err = String;

    fn from_str(uri: &str) -> Result<Self, String> {
        match uri.split_once(':') {
            Some(("file", "")) | None => Err(format!("wanted a store such as `{STORE}` or `file:session.rath`")),
            Some(("file", path)) => Ok(Kept::File(path.into())),
            Some(_) => Ok(Kept::Store(uri.to_owned())),
        }
    }
}

pub(crate) fn run(args: &Args) -> Done {
    match (&args.store, &args.session) {
        (Kept::File(path), None) => in_file(args, path),
        (Kept::File(_), Some(_)) => {
            let what = "a session file holds one session, and `--session` names one of many";
            Err(Failure::told(what, "leave `--session` out, or name a store").exit(Exit::Misused))
        }
        (Kept::Store(uri), session) => agent::block_on(in_store(args, uri, session.as_deref())),
    }
}

async fn in_store(args: &Args, uri: &str, named: Option<&str>) -> Done {
    let option = sessions::again(uri);
    let (agent, session, store) = match named {
        None => {
            let agent = args.setup.agent(None)?;
            let mut session = Session::empty().hiding(agent::secrets());
            args.decide(&mut session)?;
            agent::say(&mut session, args.prompt.as_deref())?;
            (agent, session, sessions::open(uri, Create::IfMissing)?)
        }
        Some(name) => {
            let store = sessions::open(uri, Create::Never)?;
            let stored = Stored { branch: sessions::find(&store, name, &option)?, store, option: option.clone() };
            let (agent, mut session) = args.setup.reopen(&stored, GoOn::Itself, IfDifferent::Refuse).await?;
            args.decide(&mut session)?;
            agent::say(&mut session, args.prompt.as_deref())?;
            (agent, session, stored.store)
        }
    };
    // What cannot be kept is not begun.
    let session = args.setup.placed(session).await?.record(&store).await?;
    args.setup.work(&agent, session).await.end_stored(&args.setup, &option)
}

fn in_file(args: &Args, path: &Path) -> Done {
    let agent = args.setup.agent(None)?;
    let mut session = match path.exists() {
        false => Session::empty(),
        true => open(path)?,
    }
    .hiding(agent::secrets());
    args.decide(&mut session)?;
    agent::say(&mut session, args.prompt.as_deref())?;
    session = agent::block_on(args.setup.placed(session))?;
    // What cannot be kept is not begun.
    session.save(path)?;
    let worked = agent::block_on(async { Ok(args.setup.work(&agent, session).await) })?;
    worked.session().map_or(Ok(()), |session| session.save(path))?;
    match worked.end()? {
        Ok(session) => {
            anstream::eprintln!("{session}\n`rath log {}` shows what happened", path.display());
            Ok(Exit::Fine)
        }
        Err(error) => Err(told(error, args, path)),
    }
}

fn open(path: &Path) -> Result<Session, Failure> {
    let named = sessions::read_file(path)?;
    if named.warn() == Exit::Differs {
        let what = format!("{} is damaged, and saving it again would lose what cannot be read", path.display());
        let hint = format!("`rath salvage {} NEW` copies what is good", path.display());
        return Err(Failure::told(what, hint).exit(Exit::Differs));
    }
    Ok(named.session)
}

impl Args {
    fn decide(&self, session: &mut Session) -> Result<(), Failure> {
        for call in &self.approve {
            session.approve(call.as_str())?;
        }
        for call in &self.deny {
            session.deny(call.as_str(), "the user refused it")?;
        }
        Ok(())
    }
}

/// An error in the words of the command line.
fn told(error: rath::Error, args: &Args, path: &Path) -> Failure {
    let again = format!("rath run {} --store file:{}", args.setup.again(), path.display());
    let kind = error.kind();
    let failure = Failure::from(error);
    match kind {
        ErrorKind::Approval => {
            let hint = format!("`{again} --approve CALL` or `--deny CALL` decides, and goes on");
            failure.hint(hint).exit(Exit::Waiting)
        }
        ErrorKind::Cancelled | ErrorKind::Limit => failure.hint(format!("`{again}` goes on from there")),
        _ => failure,
    }
}
