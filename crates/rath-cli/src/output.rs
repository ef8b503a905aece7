//! Data goes to stdout, everything else to stderr; both read the same without colour.

use std::fmt;
use std::io::{self, Write};
use std::path::Path;

use anstyle::{AnsiColor, Style};
use rath::record::codec::{Ending, Report};
use rath::record::draw::count;
use rath::record::{SHORT, StepId, Timestamp};

/// How steps are named in colour.
pub(crate) const ID: Style = AnsiColor::Yellow.on_default();
/// How branches are named in colour.
pub(crate) const BRANCH: Style = AnsiColor::Cyan.on_default();
const WARNING: Style = AnsiColor::Yellow.on_default().bold();
const ERROR: Style = AnsiColor::Red.on_default().bold();

/// How a command ended when it did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    Fine,
    Damaged,
}

/// Why a command failed.
#[derive(Debug)]
pub(crate) enum Failure {
    Rath(rath::Error),
    Io(io::Error),
    /// What is wrong, and what to do.
    Told(String, String),
}

impl From<rath::Error> for Failure {
    fn from(error: rath::Error) -> Self {
        Failure::Rath(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Failure::Io(error)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Rath(error) => write!(f, "{error}"),
            Failure::Io(error) => write!(f, "cannot write the output: {error}"),
            Failure::Told(what, hint) => write!(f, "{what}\nhint: {hint}"),
        }
    }
}

pub(crate) type Done = Result<Status, Failure>;

/// Gives `write` the standard output for text that may be coloured.
pub(crate) fn text(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    to(anstream::stdout().lock(), write)
}

/// Gives `write` the standard output for data, which must arrive to the byte: what takes colours out takes other
/// control characters with them.
pub(crate) fn data(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    to(io::stdout().lock(), write)
}

/// A reader that has seen enough is no failure.
fn to(out: impl Write, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut out = io::BufWriter::new(out);
    match write(&mut out).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        done => done,
    }
}

/// Writes one JSON line.
pub(crate) fn json_line(out: &mut dyn Write, value: &impl serde::Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, value)?;
    out.write_all(b"\n")
}

pub(crate) fn error(failure: &Failure) {
    anstream::eprintln!("{ERROR}error{ERROR:#}: {failure}");
}

/// Says on stderr if a file is not as it was written.
pub(crate) fn warn(path: &Path, report: &Report) -> Status {
    let path = path.display();
    if !report.damage.is_empty() {
        let places = count(report.places(), "place");
        anstream::eprintln!(
            "{WARNING}warning{WARNING:#}: {path} is damaged in {places}; the rest was read\n\
             hint: `rath verify {path}` names them"
        );
        return Status::Damaged;
    }
    if report.ending != Ending::Closed {
        anstream::eprintln!("{WARNING}warning{WARNING:#}: {path}: {}", report.ending);
    }
    Status::Fine
}

pub(crate) fn short(id: &StepId) -> String {
    format!("{ID}{id:.SHORT$}{ID:#}")
}

/// A time as RFC 3339, in UTC; as a number if no calendar has it.
pub(crate) fn time(at: Timestamp) -> String {
    jiff::Timestamp::from_microsecond(at.0).map_or_else(|_| format!("{} µs", at.0), |time| time.to_string())
}
