//! `rath import`: a session file taken into a store.

use std::path::{Path, PathBuf};

use rath::interchange::{Imported, atif, openrath};
use rath::record::Record;
use rath::record::draw::count;
use rath::record::lineage::Lineage;
use rath::{BranchId, ErrorKind, Session, Store};

use crate::agent;
use crate::output::{self, Done, Exit, Failure};
use crate::sessions::{self, StoreArg};

/// Take a session file into the store
///
/// All of its steps are kept, and the session's id is printed. What is there already is not kept twice.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A session file (`rath export --as bundle`), a session of the Python OpenRath (v1 JSONL), or an ATIF trajectory
    file: PathBuf,
    #[command(flatten)]
    store: StoreArg,
    /// Take in what is good of a damaged file
    #[arg(long)]
    anyway: bool,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Done {
    let (lineage, exit) = read(args)?;
    let store = args.store.make()?;
    let kept = agent::block_on(keep_all(&store, &lineage))?;
    let Some(branch) = kept.newest else {
        let what = format!("{} holds no step", args.file.display());
        return Err(Failure::told(what, "a session file that was cut at its beginning holds none"));
    };
    if args.json {
        let json =
            serde_json::json!({"session": branch, "short": branch.short(), "steps": kept.steps, "new": kept.new});
        output::data(|out| output::json_line(out, &json))?;
    } else {
        output::text(|out| writeln!(out, "{}", branch.short()))?;
        let told = if kept.new { count(kept.steps, "step") } else { "it is there already".to_owned() };
        let option = args.store.again();
        anstream::eprintln!("{told}; `rath log {}{option}` shows what happened", branch.short());
    }
    Ok(exit)
}

/// What the file holds.
fn read(args: &Args) -> Result<(Lineage, Exit), Failure> {
    // The one place where files of others are told from ours.
    match Format::of(&args.file) {
        Format::OpenRath => return foreign(openrath::read(&bytes(&args.file)?)?),
        Format::Atif => return foreign(atif::read(&bytes(&args.file)?)?),
        Format::Ours => {}
    }
    let named = sessions::read_file(&args.file).map_err(|failure| failure.hint(TAKEN))?;
    let exit = named.warn();
    if exit == Exit::Differs && !args.anyway {
        let what = format!("{} is damaged", args.file.display());
        return Err(Failure::told(what, "`--anyway` takes in what is good").exit(Exit::Differs));
    }
    Ok((named.lineage, exit))
}

/// What can be taken in.
const TAKEN: &str = "it takes what `rath export --as bundle`, `--as openrath` or `--as atif` writes";

fn bytes(path: &Path) -> Result<Vec<u8>, Failure> {
    let read = std::fs::read(path);
    read.map_err(|error| Failure::told(format!("cannot read {}: {error}", path.display()), "name a file"))
}

/// What others wrote, with what is missing from it.
fn foreign(imported: Imported) -> Result<(Lineage, Exit), Failure> {
    imported.notes.iter().for_each(|note| output::note(note));
    Ok((imported.session.lineage(), Exit::Fine))
}

enum Format {
    Ours,
    OpenRath,
    Atif,
}

impl Format {
    /// What a file seems to be, from how it begins.
    fn of(path: &Path) -> Self {
        use std::io::Read;
        let mut start = Vec::new();
        // Only of a file is the beginning looked at: from a pipe it would be gone.
        if path.is_file()
            && let Ok(file) = std::fs::File::open(path)
        {
            let _ = file.take(4096).read_to_end(&mut start);
        }
        let start = String::from_utf8_lossy(&start);
        let start: String = start.chars().filter(|c| !c.is_whitespace()).collect();
        if start.starts_with("{\"seal\":") {
            Format::Ours
        } else if start.contains("\"record_type\":\"header\"") {
            Format::OpenRath
        } else if start.contains("\"schema_version\":\"ATIF-") {
            Format::Atif
        } else {
            Format::Ours
        }
    }
}

/// What was taken in.
pub(crate) struct Kept {
    /// The session with the newest step.
    pub(crate) newest: Option<BranchId>,
    pub(crate) steps: u64,
    /// Whether something was not there before.
    pub(crate) new: bool,
}

/// Takes everything in, the newest first.
pub(crate) async fn keep_all(store: &Store, lineage: &Lineage) -> Result<Kept, Failure> {
    let mut kept = Kept { newest: None, steps: lineage.walk().len() as u64, new: false };
    for pieces in pieces(lineage) {
        let branch = pieces[0].id();
        kept.newest = kept.newest.or(Some(branch));
        if is_there(store, branch, &pieces)? {
            continue;
        }
        let mut whole = pieces[0].clone();
        pieces[1..].iter().for_each(|older| whole.keep_aside(older));
        whole.record(store).await.map_err(|error| match error.kind() {
            ErrorKind::Conflict => other_steps(store, branch, error),
            _ => error.into(),
        })?;
        kept.new = true;
    }
    Ok(kept)
}

/// Why a session that is there with other steps cannot be taken in: it may be written, or be another telling of the same.
fn other_steps(store: &Store, branch: BranchId, error: rath::Error) -> Failure {
    if store.read(branch).is_ok_and(|found| found.summary.holder.is_none()) {
        let what = format!("the session {} is in {} already, with other steps", branch.short(), store.uri());
        return Failure::told(what, "`--store` names another store to take it into");
    }
    sessions::held(error)
}

/// What ends where, by branch, the newest first. Of a branch that damage parted there are several pieces.
fn pieces(lineage: &Lineage) -> Vec<Vec<Session>> {
    let mut branches: Vec<Vec<Session>> = Vec::new();
    for head in lineage.heads().iter().rev() {
        let session = Session::resume(Record::at(head.clone()));
        match branches.iter_mut().find(|pieces| pieces[0].id() == session.id()) {
            Some(pieces) => pieces.push(session),
            None => branches.push(vec![session]),
        }
    }
    branches
}

/// Whether a store has all of a branch.
fn is_there(store: &Store, branch: BranchId, pieces: &[Session]) -> Result<bool, Failure> {
    let stored = match store.read(branch) {
        Ok(found) => found.session.lineage(),
        Err(error) if error.kind() == ErrorKind::NoSuchSession => return Ok(false),
        Err(error) => return Err(error.into()),
    };
    Ok(pieces.iter().filter_map(Session::head).all(|head| stored.find(head.id()).is_some()))
}
