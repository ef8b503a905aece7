//! `rath import`: copy a session file into a store.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use rath::chunk::Resumed;
use rath::interchange::{Import, Note, atif, openrath};
use rath::record::codec::Ending;
use rath::record::draw::count;
use rath::record::lineage::Lineage;
use rath::record::{Parent, Record, Step};
use rath::{BranchId, Bundle, ErrorKind, ImportedFiles, Secrets, Session, StepId, Store};

use crate::agent;
use crate::json;
use crate::output::{self, CommandResult, Exit, Failure};
use crate::sandboxes;
use crate::sessions::{self, Source, StoreArg};

/// Copy a session file into the store
///
/// The id of the session is printed. Steps that are in the store already are not copied again. Nothing of an imported
/// session runs before `rath adopt` takes it over.
#[derive(clap::Args)]
pub(crate) struct ImportArgs {
    /// A session file (`rath export --as bundle`), a session of the Python OpenRath (v1 JSONL) or a directory of such sessions,
    /// or an ATIF trajectory
    file: PathBuf,
    #[command(flatten)]
    store: StoreArg,
    /// Copy the undamaged part of a damaged file
    #[arg(long)]
    anyway: bool,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: &ImportArgs) -> CommandResult {
    let ReadFile { lineage, files, notes, damage } = read(args).await?;
    let exit = if damage.is_empty() { Exit::Success } else { Exit::Differs };
    let store = args.store.open_or_create().await?;
    // From here on collections keep the files, which the steps name as soon as they are recorded.
    rath::gc::keep_versions_of(&store, &std::path::absolute(sessions::store_directory())?).await?;
    let imported = import_all(&store, &lineage, &damage).await?;
    let Some(branch) = imported.newest else {
        let message = format!("there are no steps in {}", args.file.display());
        return Err(Failure::new(message, "the file may have been cut off at its beginning"));
    };
    if args.json {
        let json = serde_json::json!({"session": branch, "short": branch.short(), "sessions": imported.sessions, "steps": imported.steps, "new": imported.is_new, "restored": imported.restored, "files": files.stored + files.known, "missing_files": files.absent, "notes": json::notes(&notes)});
        output::data(|out| output::json_line(out, &json))?;
    } else {
        output::text(|out| match args.file.is_dir() {
            true => imported.sessions.iter().try_for_each(|branch| writeln!(out, "{}", branch.short())),
            false => writeln!(out, "{}", branch.short()),
        })?;
        let copied = match (imported.is_new, imported.restored) {
            (true, _) => format!("{} imported", count(imported.steps, "step")),
            (false, 0) => "already in the store".to_owned(),
            (false, restored) => {
                format!("already in the store; {} restored that had been lost", count(restored, "text"))
            }
        };
        let option = args.store.option();
        let short = branch.short();
        print_files(&files);
        output::message!("{copied}; `rath log {short}{option}` shows the steps");
        if store.read(branch).await?.session.is_guest() {
            output::message!("`rath adopt {short}{option} --sandbox isolated:.` takes it over, to continue it");
        }
    }
    Ok(exit)
}

/// Notes which files came with a session.
fn print_files(files: &ImportedFiles) {
    if files.stored + files.known > 0 {
        output::message!("its files are in .rath/workspace");
    }
    if files.forgotten_here > 0 {
        let stay = count(files.forgotten_here, "file");
        output::note(&format!("{stay} without content: you removed it here with `rath forget`"));
    }
    if files.absent > 0 {
        let absent = count(files.absent, "file version");
        output::note(&format!("{absent} that its steps name did not come with it"));
    }
}

/// The contents of a file.
struct ReadFile {
    lineage: Lineage,
    files: ImportedFiles,
    /// Everything that a file of another program lost on the way.
    notes: Vec<Note>,
    /// The damage that the user accepted, each as a short text.
    damage: Vec<String>,
}

/// Reads the file, in the format that it seems to have, and stores the files that come with it.
async fn read(args: &ImportArgs) -> Result<ReadFile, Failure> {
    let secrets = agent::secrets();
    match ImportFormat::detect(&args.file) {
        _ if args.file.is_dir() => return read_directory(&args.file, &secrets),
        ImportFormat::OpenRath => {
            return Ok(read_foreign(vec![openrath::read_hiding(&read_bytes(&args.file)?, &secrets)?]));
        }
        ImportFormat::Atif => return Ok(read_foreign(vec![atif::read_hiding(&read_bytes(&args.file)?, &secrets)?])),
        ImportFormat::Rath => {}
    }
    let bundle = Bundle::read(&args.file, sessions::store_directory(), &secrets).await;
    let bundle = bundle.map_err(|error| {
        let is_format = error.kind() == ErrorKind::Format || error.hint().is_none();
        let failure = Failure::from(error);
        if is_format { failure.with_hint(FORMATS_HINT) } else { failure }
    })?;
    // A bundle is written as a whole. Another session file may be that of a session that runs.
    let is_cut = bundle.file.report.has_files && bundle.file.report.ending != Ending::Closed;
    let loaded = sessions::loaded_file(&args.file, bundle.file);
    let mut damage = Vec::new();
    if loaded.warn() == Exit::Differs {
        damage.push(format!("{} could not be read", count(loaded.damaged_places(), "place")));
    }
    if let Source::File(_, report) = &loaded.source
        && is_cut
    {
        damage.push(report.ending.to_string());
    }
    if !damage.is_empty() && !args.anyway {
        let (message, file) = (format!("{} is damaged", args.file.display()), args.file.display().to_string());
        let command = format!("rath import {} --anyway{}", output::quote(&file), args.store.option());
        return Err(Failure::new(message, format!("`{command}` copies the undamaged part")).with_exit(Exit::Differs));
    }
    refuse_secrets(&loaded.lineage, &secrets)?;
    Ok(ReadFile { lineage: loaded.lineage, files: bundle.files.store().await?, notes: Vec::new(), damage })
}

/// Fails if a step holds a secret of the user. It cannot be hidden: the id of a step is a hash of its content.
fn refuse_secrets(lineage: &Lineage, secrets: &Secrets) -> Result<(), Failure> {
    for step in lineage.walk() {
        let payloads = step.chunk().payloads();
        let long_texts = payloads.iter().map(|(_, payload)| String::from_utf8_lossy(payload.bytes()));
        let mut texts =
            [step.json(), step.stamp().by.as_deref().unwrap_or_default().into()].into_iter().chain(long_texts);
        if texts.any(|text| secrets.has_known_value(&text)) {
            let message = format!("step {} of this session holds a secret of yours", step.id().short());
            let hint = "nothing is imported; it can be without the variable of the environment that has the secret";
            return Err(Failure::new(message, hint));
        }
    }
    Ok(())
}

const FORMATS_HINT: &str = "import reads what `rath export --as bundle`, openrath or atif writes";

fn read_bytes(path: &Path) -> Result<Vec<u8>, Failure> {
    let read = std::fs::read(path);
    read.map_err(|error| Failure::new(format!("cannot read {}: {error}", path.display()), FORMATS_HINT))
}

/// Reads the sessions in a directory of the Python OpenRath. Other files in it are left out.
fn read_directory(directory: &Path, secrets: &Secrets) -> Result<ReadFile, Failure> {
    let failed = |error| Failure::new(format!("cannot read {}: {error}", directory.display()), FORMATS_HINT);
    let entries = std::fs::read_dir(directory).map_err(failed)?;
    let mut paths = entries.map(|entry| Ok(entry.map_err(failed)?.path())).collect::<Result<Vec<_>, Failure>>()?;
    paths.sort();
    paths.retain(|path| matches!(ImportFormat::detect(path), ImportFormat::OpenRath));
    if paths.is_empty() {
        let message = format!("there is no session of the Python OpenRath in {}", directory.display());
        return Err(Failure::new(message, FORMATS_HINT));
    }
    let files = paths.iter().map(|path| read_bytes(path)).collect::<Result<Vec<_>, Failure>>()?;
    Ok(read_foreign(openrath::read_all_hiding(&files, secrets)?))
}

/// Takes sessions that another program wrote, and notes on stderr what is missing from them.
fn read_foreign(imported: Vec<Import>) -> ReadFile {
    let heads = imported.iter().filter_map(|import| import.session.head()).cloned();
    let (lineage, files) = (Lineage::new(heads), ImportedFiles::default());
    let notes: Vec<Note> = imported.into_iter().flat_map(|import| import.notes).collect();
    notes.iter().for_each(|note| output::note(&note.text));
    ReadFile { lineage, files, notes, damage: Vec::new() }
}

enum ImportFormat {
    Rath,
    OpenRath,
    Atif,
}

impl ImportFormat {
    /// Guesses the format of a file from its beginning.
    fn detect(path: &Path) -> Self {
        use std::io::Read;
        let mut start = Vec::new();
        // The beginning of a pipe is not read, since it could not be read again.
        if path.is_file()
            && let Ok(file) = std::fs::File::open(path)
        {
            let _ = file.take(4096).read_to_end(&mut start);
        }
        let start = String::from_utf8_lossy(&start);
        let start: String = start.chars().filter(|c| !c.is_whitespace()).collect();
        if start.starts_with("{\"seal\":") {
            ImportFormat::Rath
        } else if start.contains("\"record_type\":\"header\"") {
            ImportFormat::OpenRath
        } else if start.contains("\"schema_version\":\"ATIF-") {
            ImportFormat::Atif
        } else {
            ImportFormat::Rath
        }
    }
}

/// The result of an import.
pub(crate) struct ImportSummary {
    /// The session with the newest step.
    pub(crate) newest: Option<BranchId>,
    /// All sessions of the file.
    sessions: Vec<BranchId>,
    pub(crate) steps: u64,
    /// Set if the store lacked a step.
    pub(crate) is_new: bool,
    /// The number of long texts and pictures that the store had lost.
    pub(crate) restored: u64,
}

/// Copies all branches into the store. The damage of the file that they are from is recorded in those that no other continues.
pub(crate) async fn import_all(store: &Store, lineage: &Lineage, damage: &[String]) -> Result<ImportSummary, Failure> {
    let all = lineage.walk();
    let steps = all.len() as u64;
    let continued: HashSet<StepId> = all.into_iter().flat_map(Step::parents).map(Parent::id).collect();
    let mut summary = ImportSummary { newest: None, sessions: Vec::new(), steps, is_new: false, restored: 0 };
    let stored: HashSet<BranchId> = store.list().await?.into_iter().map(|listed| listed.branch).collect();
    let mut new = Vec::new();
    for pieces in pieces(lineage) {
        let branch = pieces[0].id();
        summary.newest = summary.newest.or(Some(branch));
        summary.sessions.push(branch);
        if stored.contains(&branch) && is_stored(store, branch, &pieces).await? {
            summary.restored += restore(store, branch, &pieces).await?;
            continue;
        }
        if stored.contains(&branch) && !store.read(branch).await?.session.is_guest() {
            // The steps of the file would make a guest of it.
            let message = format!("session {} is yours, and the file has other steps for it", branch.short());
            return Err(Failure::new(message, "`--store` names another store to import it into"));
        }
        let mut whole = pieces[0].clone();
        pieces[1..].iter().for_each(|older| whole.keep_aside(older));
        let is_tip = whole.head().is_some_and(|head| !continued.contains(&head.id()));
        if !damage.is_empty() && (is_tip || pieces.len() > 1) {
            whole.push(Resumed::from_damaged(damage));
        }
        summary.is_new = true;
        match stored.contains(&branch) {
            false => new.push(whole),
            true => match whole.record(store).await {
                Err(error) if error.kind() == ErrorKind::Conflict => {
                    return Err(explain_conflict(store, branch, error).await);
                }
                recorded => _ = recorded?,
            },
        }
    }
    keep_versions(store, &new).await?;
    store.record_all(new).await?;
    Ok(summary)
}

/// Lets collections keep the versions that copies of sessions name, in the directories below the current one.
async fn keep_versions(store: &Store, sessions: &[Session]) -> Result<(), Failure> {
    let here = std::env::current_dir()?.canonicalize()?;
    let places: HashSet<_> = sessions.iter().filter_map(Session::place).map(|place| place.to_string()).collect();
    for sandbox in places.iter().filter_map(|place| sandboxes::open(place).ok()) {
        let directory = sandbox.directory().and_then(|directory| directory.canonicalize().ok());
        if let Some(directory) = directory.filter(|directory| directory.starts_with(&here)) {
            rath::gc::keep_versions_of(store, &directory).await?;
        }
    }
    Ok(())
}

/// Explains why a session that the store has with other steps cannot be imported.
///
/// Either another process writes it now, or the file was made by another program from the same session.
async fn explain_conflict(store: &Store, branch: BranchId, error: rath::Error) -> Failure {
    if let Ok(read) = store.read(branch).await
        && read.summary.holder.is_none()
    {
        let message = format!("session {} is in {} already, with other steps", branch.short(), store.uri());
        let hint = match read.summary.totals.gap {
            true => "it is incomplete there: delete it with `rath gc --delete`, and import it again",
            false => "`--store` names another store to import it into",
        };
        return Failure::new(message, hint);
    }
    sessions::explain_held(error)
}

/// Returns the sessions of a lineage by branch, the newest first. A branch that damage split has several pieces.
fn pieces(lineage: &Lineage) -> Vec<Vec<Session>> {
    let (mut branches, mut index): (Vec<Vec<Session>>, HashMap<BranchId, usize>) = Default::default();
    for head in lineage.heads().iter().rev() {
        let session = Session::resume(Record::at(head.clone()));
        match index.entry(session.id()) {
            Entry::Occupied(known) => branches[*known.get()].push(session),
            Entry::Vacant(unknown) => {
                unknown.insert(branches.len());
                branches.push(vec![session]);
            }
        }
    }
    branches
}

/// Stores the long texts and pictures of a branch again that the store has lost. Returns their number.
async fn restore(store: &Store, branch: BranchId, pieces: &[Session]) -> Result<u64, Failure> {
    let is_incomplete = |step: &&Step| step.chunk().payload_digests().len() > step.chunk().payloads().len();
    let mut restored = 0;
    if store.read(branch).await?.session.lineage().walk().iter().any(is_incomplete) {
        for piece in pieces {
            restored += store.restore_payloads(&piece.lineage()).await?;
        }
    }
    let damage = store.read(branch).await?.damage;
    if let Some(first) = damage.first() {
        let message =
            format!("session {} is in {} already, and is damaged there: {first}", branch.short(), store.uri());
        return Err(Failure::new(message, "`--store` names another store to import it into").with_exit(Exit::Differs));
    }
    Ok(restored)
}

/// Returns `true` if the store has all of a branch.
async fn is_stored(store: &Store, branch: BranchId, pieces: &[Session]) -> Result<bool, Failure> {
    let stored = match store.read(branch).await {
        Ok(read) => read.session.lineage(),
        Err(error) if error.kind() == ErrorKind::NoSuchSession => return Ok(false),
        Err(error) => return Err(error.into()),
    };
    Ok(pieces.iter().filter_map(Session::head).all(|head| stored.find(head.id()).is_some()))
}
