//! `rath export`: write a session in another format.

use std::io::Write;
use std::path::{Path, PathBuf};

use rath::interchange::{Export, atif, openrath};
use rath::policy::Mode;
use rath::provider::Prices;
use rath::record::draw::{count, one_line};
use rath::record::graph::{self, Ids};
use rath::{BundleFiles, LeftOut, LeftOutReason, Policy, Sandbox, Session};

use crate::configuration::Permissions;
use crate::output::{self, CommandResult, Exit, Failure};
use crate::sandboxes;
use crate::sessions::{self, SessionAtArg};

/// Write a session to a file, in one of several formats
#[derive(clap::Args)]
pub(crate) struct ExportArgs {
    #[command(flatten)]
    session: SessionAtArg,
    /// The format
    #[arg(long = "as", value_name = "FORMAT", default_value = "graph")]
    format: ExportFormat,
    /// The file to write (default: stdout). With `--as openrath`, a directory gets a file for the session and for each session that
    /// it descends from
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// For a graph: derive ids from what was recorded, so that two runs of one program can be compared
    #[arg(long)]
    canonical: bool,
    /// For a bundle: leave out the files that its steps name
    #[arg(long)]
    without_files: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum ExportFormat {
    /// The graph of sessions, one JSON line each
    Graph,
    /// A session file: every step, and every version of a file that steps name
    Bundle,
    /// A session file of the Python OpenRath
    Openrath,
    /// An ATIF trajectory
    Atif,
}

/// The number of files that are named one by one.
const SHOWN_FILES: usize = 20;

pub(crate) async fn run(args: &ExportArgs) -> CommandResult {
    let loaded = args.session.read().await?;
    let exit = loaded.warn();
    match (args.format, &args.output) {
        (ExportFormat::Graph, to) => {
            let ids = if args.canonical { Ids::Canonical } else { Ids::Original };
            write(graph::export(&loaded.lineage, ids).as_bytes(), to.as_deref())?;
        }
        (ExportFormat::Bundle, to) => {
            let left_out = write_bundle(&loaded.session, to.as_deref(), args.without_files).await?;
            return Ok(if exit == Exit::Success { left_out } else { exit });
        }
        (ExportFormat::Openrath, Some(to)) if is_directory(to) => write_sessions(&loaded.session, to)?,
        (ExportFormat::Openrath, to) => write_foreign(openrath::write(&loaded.session), to.as_deref())?,
        (ExportFormat::Atif, to) => write_foreign(atif::write_priced(&loaded.session, &Prices::list()), to.as_deref())?,
    }
    Ok(exit)
}

/// Writes a bundle, and notes on stderr which files are not in it.
async fn write_bundle(session: &Session, to: Option<&Path>, without_files: bool) -> CommandResult {
    let files = if without_files { BundleFiles::LeaveOut } else { BundleFiles::Include };
    let session = &match files {
        BundleFiles::Include => session.clone().under(reading_policy(session)?),
        BundleFiles::LeaveOut => session.clone(),
    };
    let report = match to {
        Some(path) => session.export_bundle(path, files).await?,
        None => {
            let mut report = None;
            output::data(|out| {
                report = Some(session.export_bundle_to_blocking(out, files));
                Ok(())
            })?;
            report.transpose()?.unwrap_or_default()
        }
    };
    if without_files {
        output::note("the files are left out: only the steps are in the bundle");
        return Ok(Exit::Success);
    }
    if report.forgotten > 0 {
        let files = count(report.forgotten, "file");
        output::note(&format!("{files} without content: removed with `rath forget`"));
    }
    for left_out in report.left_out.iter().take(SHOWN_FILES) {
        let step = output::short(&left_out.step);
        let what = match &*left_out.path {
            "" => format!("the files of step {step}"),
            path => format!("{} of step {step}", one_line(path)),
        };
        let why = match left_out.reason {
            LeftOutReason::Secret => "a secret of yours is in it",
            LeftOutReason::Hidden => "a rule forbids to read it",
            LeftOutReason::Damaged => "damaged",
            LeftOutReason::TooLarge => "too large",
            _ => "not stored here",
        };
        output::warning(&format!("not in the bundle: {what} ({why})"));
    }
    if let Some(more) = report.left_out.len().checked_sub(SHOWN_FILES).filter(|more| *more > 0) {
        output::warning(&format!("not in the bundle: {more} more"));
    }
    let carried = format!("{} and {}", count(report.steps, "step"), count(report.files, "file version"));
    output::message!("the bundle has {carried}");
    let is_damaged = |left_out: &LeftOut| left_out.reason == LeftOutReason::Damaged;
    Ok(if report.left_out.iter().any(is_damaged) { Exit::Differs } else { Exit::Success })
}

/// Returns the user's rules about the directory of a session: what no tool may read does not leave in a bundle.
fn reading_policy(session: &Session) -> Result<Policy, Failure> {
    // The place of a session that others made is what they say.
    let place = session.place().filter(|_| !session.is_guest());
    let sandbox = place.and_then(|place| sandboxes::open(place.as_str()).ok());
    let files = sessions::store_directory();
    let directory = sandbox.as_ref().and_then(Sandbox::directory).unwrap_or(&files);
    let rules = Permissions::read(Some(directory))?.rules;
    Ok(Policy::new(Mode::ReadOnly).rules(rules.into_iter().map(|(rule, _)| rule)))
}

/// Returns true for an existing directory, and for a path that ends like one.
fn is_directory(path: &Path) -> bool {
    path.is_dir() || path.as_os_str().to_string_lossy().ends_with(std::path::MAIN_SEPARATOR)
}

/// Writes a session and those that it descends from to a directory of the Python OpenRath, each to the file `ID.jsonl`.
fn write_sessions(session: &Session, directory: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(directory).map_err(|error| {
        Failure::new(format!("cannot create {}: {error}", directory.display()), "`-o DIRECTORY` names the directory")
    })?;
    let files = openrath::write_all(session);
    let count = count(files.len() as u64, "session");
    for (id, exported) in files {
        write_foreign(exported, Some(&directory.join(format!("{id}.jsonl"))))?;
    }
    output::message!("{count} written to {}", directory.display());
    Ok(())
}

/// Writes a session in a format of another program, and notes on stderr what that format cannot hold.
fn write_foreign(exported: Export, to: Option<&Path>) -> Result<(), Failure> {
    exported.notes.iter().for_each(|note| output::note(&note.text));
    write(&exported.bytes, to)
}

fn write(bytes: &[u8], to: Option<&Path>) -> Result<(), Failure> {
    match to {
        None => Ok(output::data(|out| out.write_all(bytes))?),
        Some(path) => std::fs::File::create(path).and_then(|mut file| file.write_all(bytes)).map_err(|error| {
            Failure::new(format!("cannot write {}: {error}", path.display()), "`-o FILE` names the file to write")
        }),
    }
}
