//! Which session a person means: one in a file, or one in a store.

use std::path::{Path, PathBuf};

use rath::StoredSession;
use rath::record::codec::{Ending, Report};
use rath::record::draw::count;
use rath::record::lineage::Lineage;
use rath::record::{Record, SHORT};
use rath::store::{BranchSummary, Create, Damage, Registry, StoreErrorKind};
use rath::{BranchId, ErrorKind, Session, Store};

use crate::commands::show;
use crate::output::{self, Exit, Failure};

/// Where sessions are kept if nobody says otherwise.
pub(crate) const STORE: &str = "sqlite:.rath/rath.db";

/// The option that names a store.
#[derive(clap::Args)]
pub(crate) struct StoreArg {
    /// Where sessions are kept
    #[arg(long, value_name = "sqlite:PATH | jsonl:DIRECTORY | memory:", default_value = STORE)]
    store: String,
}

impl StoreArg {
    /// The store, if it is there.
    pub(crate) fn open(&self) -> Result<Store, Failure> {
        open(&self.store, Create::Never)
    }

    /// The store, made if it is not there.
    pub(crate) fn make(&self) -> Result<Store, Failure> {
        open(&self.store, Create::IfMissing)
    }

    /// What has to be typed to name it again.
    pub(crate) fn again(&self) -> String {
        again(&self.store)
    }
}

/// What has to be typed to name a store again.
pub(crate) fn again(uri: &str) -> String {
    if uri == STORE { String::new() } else { format!(" --store {uri}") }
}

/// The store that a URI names.
pub(crate) fn open(uri: &str, create: Create) -> Result<Store, Failure> {
    let opened = Registry::new().open_as(uri, create).map_err(Failure::from);
    opened.map_err(|failure| match uri.starts_with("file:") {
        true => failure.hint("a session file is named by its path alone"),
        false => failure,
    })
}

/// The option that names a session, and where to look for it.
#[derive(clap::Args)]
pub(crate) struct SessionArg {
    /// A session in the store, by the first or last digits of its id, or the first of its newest step's; or a session file
    session: String,
    #[command(flatten)]
    store: StoreArg,
}

impl SessionArg {
    /// Reads the session.
    pub(crate) fn read(&self) -> Result<Named, Failure> {
        read(&self.session, &self.store)
    }

    /// The file that is meant, if it is one.
    pub(crate) fn file(&self) -> Option<&Path> {
        as_file(&self.session)
    }

    /// The session in the store that is meant, whether the store can be opened or not.
    pub(crate) fn stored(&self) -> Result<Stored, Failure> {
        if let Err(failure) = self.store.open() {
            let hint = "the store cannot be opened as a whole, and then no session can be read from it";
            // A hint to salvage is no help to whoever does.
            let is_told = failure.is_hinted() && failure.exit != Exit::Differs;
            return Err(if is_told { failure } else { failure.hint(hint) });
        }
        stored(&self.session, &self.store)
    }
}

/// The option that names a session in a store.
#[derive(clap::Args)]
pub(crate) struct StoredArg {
    /// A session in the store, by the first or last digits of its id, or the first of its newest step's
    session: String,
    #[command(flatten)]
    store: StoreArg,
}

impl StoredArg {
    /// The session that is meant.
    pub(crate) fn stored(&self) -> Result<Stored, Failure> {
        if as_file(&self.session).is_some_and(Path::exists) {
            let what = format!("{} is a file, and this is for sessions in a store", self.session);
            return Err(Failure::told(what, "`rath import FILE` takes it into one").exit(Exit::Misused));
        }
        stored(&self.session, &self.store)
    }

    /// Reads it.
    pub(crate) fn read(&self) -> Result<Named, Failure> {
        self.stored().and_then(read_stored)
    }
}

/// Reads the session that a person means, as it was at a step if one is named: `SESSION` or `SESSION@STEP`.
pub(crate) fn read_at(name: &str, store: &StoreArg) -> Result<Named, Failure> {
    let Some((name, step)) = name.rsplit_once('@').filter(|_| !Path::new(name).exists()) else {
        return read(name, store);
    };
    let mut named = read(name, store)?;
    let step = show::find(&named, step)?.clone();
    // One that is no longer behind the head, as in a damaged file, is its own end.
    named.session = named.session.at(step.id()).unwrap_or_else(|_| Session::resume(Record::at(step.clone())));
    named.lineage = Lineage::of([step]);
    Ok(named)
}

/// Reads the session that was written last, if nobody names one.
pub(crate) fn read_or_newest(name: Option<&str>, store: &StoreArg) -> Result<Named, Failure> {
    if let Some(name) = name {
        return read_at(name, store);
    }
    let option = store.again();
    let store = store.open()?;
    let newest = store.list()?.into_iter().filter(|listed| listed.is_tip).max_by_key(|listed| listed.at);
    let branch = newest.map(|listed| listed.branch);
    let branch =
        branch.ok_or_else(|| Failure::told(format!("no session in {}", store.uri()), "`rath run` makes one"))?;
    output::note(&format!("of the session {}, which was written last", branch.short()));
    read_stored(Stored { store, branch, option })
}

/// A session in a store, not read yet.
pub(crate) struct Stored {
    pub(crate) store: Store,
    pub(crate) branch: BranchId,
    /// What stands after its name, to name it again.
    pub(crate) option: String,
}

/// A session that was read, and where it is from.
pub(crate) struct Named {
    pub(crate) session: Session,
    /// Everything that was read with it.
    pub(crate) lineage: Lineage,
    pub(crate) origin: Origin,
    /// What a person types to name it, and what stands after that.
    name: String,
    option: String,
}

pub(crate) enum Origin {
    File(PathBuf, Report),
    Store(Store, Box<BranchSummary>, Vec<Damage>),
}

impl Named {
    /// What it is called.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// A command line on it, with what stands after its name.
    pub(crate) fn command(&self, command: &str, rest: &str) -> String {
        format!("`rath {command} {}{rest}{}`", self.name, self.option)
    }

    /// What names another session of the same store, with options.
    pub(crate) fn again(&self, branch: BranchId, options: &str) -> String {
        format!("{} {options}{}", branch.short(), self.option)
    }

    /// An error unless it says what its files were.
    pub(crate) fn has_files(&self) -> Result<(), Failure> {
        let (session, name) = (&self.session, &self.name);
        if session.tree().is_some() {
            return Ok(());
        }
        let at = session.head().map(|step| format!(" at step {:.SHORT$}", step.id())).unwrap_or_default();
        let what = format!("the session {name} does not say what its files were{at}");
        Err(Failure::told(what, "files are on the record from the first call on that can write"))
    }

    /// Why something that is done where it works was refused, in the words of the command line.
    pub(crate) fn refused(&self, error: rath::Error) -> Failure {
        let kind = error.kind();
        let failure = Failure::from(error);
        match kind {
            ErrorKind::Approval => failure.hint(format!("{} decides", self.command("review", ""))).exit(Exit::Waiting),
            ErrorKind::Differs => {
                let resume = self.command("resume", " --model .. --anyway");
                failure.hint(format!("{resume} goes on all the same, and puts on the record that you chose to"))
            }
            _ => failure,
        }
    }

    /// Whether something that it rests on is damaged.
    pub(crate) fn is_damaged(&self) -> bool {
        match &self.origin {
            Origin::File(_, report) => !report.damage.is_empty(),
            Origin::Store(_, _, damage) => !damage.is_empty(),
        }
    }

    /// Says on stderr if it is not as it was written.
    pub(crate) fn warn(&self) -> Exit {
        let places = match &self.origin {
            Origin::File(_, report) => report.places(),
            Origin::Store(_, _, damage) => damage.len() as u64,
        };
        if self.is_damaged() {
            let (name, places) = (&self.name, count(places, "place"));
            let hint = self.command("verify", "");
            output::warning(&format!("{name} is damaged in {places}; the rest was read\nhint: {hint} names them"));
            return Exit::Differs;
        }
        if let Origin::File(path, report) = &self.origin
            && report.ending != Ending::Closed
        {
            output::warning(&format!("{}: {}", path.display(), report.ending));
        }
        Exit::Fine
    }
}

/// Reads the session that a person means.
pub(crate) fn read(name: &str, store: &StoreArg) -> Result<Named, Failure> {
    if let Some(path) = as_file(name) {
        return read_file(path);
    }
    stored(name, store).and_then(read_stored)
}

fn read_stored(stored: Stored) -> Result<Named, Failure> {
    let Stored { store, branch, option } = stored;
    let StoredSession { session, summary: listed, damage } = store.read(branch)?;
    let (lineage, name) = (session.lineage(), branch.short());
    Ok(Named { session, lineage, origin: Origin::Store(store, Box::new(listed), damage), name, option })
}

/// Reads a session file.
pub(crate) fn read_file(path: &Path) -> Result<Named, Failure> {
    let opened = Session::open(path).map_err(|error| match path.exists() {
        true => error.into(),
        false => Failure::from(error).hint("a session in a store is named by digits of its id; `rath ls` lists them"),
    })?;
    let origin = Origin::File(path.to_owned(), opened.report);
    let (name, option) = (path.display().to_string(), String::new());
    Ok(Named { session: opened.session, lineage: opened.lineage, origin, name, option })
}

/// The session in a store that a person means.
pub(crate) fn stored(name: &str, store: &StoreArg) -> Result<Stored, Failure> {
    let option = store.again();
    let store = store.open()?;
    let branch = find(&store, name, &option)?;
    Ok(Stored { store, branch, option })
}

/// Why something cannot be done to a session; if somebody writes it, what is left is to wait.
pub(crate) fn held(error: impl Into<rath::Error>) -> Failure {
    let error = error.into();
    let is_held = error.kind() == ErrorKind::Conflict;
    let failure = Failure::from(error);
    if is_held { failure.hint("wait until it is done, or end that process") } else { failure }
}

/// The branch that a person means.
pub(crate) fn find(store: &Store, name: &str, option: &str) -> Result<BranchId, Failure> {
    store.find(name).map_err(|error| {
        let is_none = error.kind() == StoreErrorKind::NoSuchSession && error.message().starts_with("no session");
        let failure = Failure::from(error);
        if is_none { failure.hint(format!("`rath ls --all{option}` lists them")) } else { failure }
    })
}

/// The file that a name means. What cannot be an id is the name of a file, whether that is there or not.
pub(crate) fn as_file(name: &str) -> Option<&Path> {
    let path = Path::new(name);
    let is_id = name.chars().all(|c| c.is_ascii_hexdigit() || c == '-');
    (!is_id || (path.exists() && !path.is_dir())).then_some(path)
}
