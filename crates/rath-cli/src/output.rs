//! Data goes to stdout, everything else to stderr; both read the same without colour.

use std::fmt;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use anstyle::{AnsiColor, Style};
use rath::ErrorKind;
use rath::record::draw::printable;
use rath::record::{SHORT, StepId, Timestamp};

/// How steps are named in colour.
pub(crate) const ID: Style = AnsiColor::Yellow.on_default();
/// How branches are named in colour.
pub(crate) const BRANCH: Style = AnsiColor::Cyan.on_default();
const WARNING: Style = AnsiColor::Yellow.on_default().bold();
const ERROR: Style = AnsiColor::Red.on_default().bold();

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Exit {
    Fine,
    Failed,
    /// Held wrong.
    Misused,
    /// Something is damaged, or is not as it was.
    Differs,
    /// A person has to decide.
    Waiting,
    Interrupted,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(match exit {
            Exit::Fine => 0,
            Exit::Failed => 1,
            Exit::Misused => 2,
            Exit::Differs => 3,
            Exit::Waiting => 4,
            Exit::Interrupted => 130,
        })
    }
}

/// What every command tells with its help.
pub(crate) const EXIT_CODES: &str = "Exit codes: 0 fine, 1 failed, 2 wrong use, 3 a difference or damage was found \
                                     (verify: or the file is not closed), 4 waiting for a decision, 130 interrupted";

/// Why a command failed.
#[derive(Debug)]
pub(crate) struct Failure {
    what: String,
    hint: Option<String>,
    pub(crate) exit: Exit,
}

impl Failure {
    /// What is wrong, and what to do.
    pub(crate) fn told(what: impl Into<String>, hint: impl Into<String>) -> Self {
        Failure { what: what.into(), hint: Some(hint.into()), exit: Exit::Failed }
    }

    /// The same with another end.
    pub(crate) fn exit(self, exit: Exit) -> Self {
        Failure { exit, ..self }
    }

    /// Whether it says what to do.
    pub(crate) fn is_hinted(&self) -> bool {
        self.hint.is_some()
    }

    /// The same with one more hint.
    pub(crate) fn also(self, hint: &str) -> Self {
        let hints = self.hint.iter().map(String::as_str).chain([hint]).collect::<Vec<_>>().join("\nhint: ");
        self.hint(hints)
    }

    /// The same with another hint.
    pub(crate) fn hint(self, hint: impl Into<String>) -> Self {
        Failure { hint: Some(hint.into()), ..self }
    }
}

impl From<rath::Error> for Failure {
    fn from(error: rath::Error) -> Self {
        let exit = match error.kind() {
            ErrorKind::Damaged | ErrorKind::Differs => Exit::Differs,
            ErrorKind::Cancelled => Exit::Interrupted,
            _ => Exit::Failed,
        };
        Failure { what: error.message(), hint: error.hint().map(str::to_owned), exit }
    }
}

impl From<rath::store::StoreError> for Failure {
    fn from(error: rath::store::StoreError) -> Self {
        rath::Error::from(error).into()
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Failure { what: format!("cannot write the output: {error}"), hint: None, exit: Exit::Failed }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        self.hint.iter().try_for_each(|hint| write!(f, "\nhint: {hint}"))
    }
}

pub(crate) type Done = Result<Exit, Failure>;

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

/// Says something on stderr that is worth knowing.
pub(crate) fn note(text: &str) {
    anstream::eprintln!("note: {}", printable(text));
}

pub(crate) fn warning(what: &str) {
    anstream::eprintln!("{WARNING}warning{WARNING:#}: {what}");
}

pub(crate) fn short(id: &StepId) -> String {
    format!("{ID}{id:.SHORT$}{ID:#}")
}

/// A path as a person here would write it.
pub(crate) fn path(path: &Path) -> String {
    let here = std::env::current_dir().unwrap_or_default();
    let near = path.strip_prefix(here).unwrap_or(path);
    let near = near.strip_prefix(".").unwrap_or(near);
    printable(&if near.as_os_str().is_empty() { Path::new(".") } else { near }.display().to_string())
}

/// A time as RFC 3339, in UTC; as a number if no calendar has it.
pub(crate) fn time(at: Timestamp) -> String {
    jiff::Timestamp::from_microsecond(at.0).map_or_else(|_| format!("{} µs", at.0), |time| time.to_string())
}

/// The same to the second.
pub(crate) fn second(at: Timestamp) -> String {
    let second = jiff::Timestamp::from_second(at.0.div_euclid(1_000_000));
    second.map_or_else(|_| format!("{} µs", at.0), |time| time.to_string())
}
