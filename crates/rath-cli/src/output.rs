//! Printing: data goes to stdout, everything else to stderr, and both can be read without colour.
//!
//! Nothing else prints: what others wrote (a model, a server, a session file, the name of a file) must not control a terminal,
//! and a secret must not be seen on one.

#[cfg(unix)]
mod columns;
#[cfg(not(unix))]
#[path = "output/columns_unsupported.rs"]
mod columns;
pub(crate) mod pager;
pub(crate) mod patch;

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::LazyLock;
use std::time::{SystemTime, UNIX_EPOCH};

use anstyle::{AnsiColor, Style};
use rath::record::draw::{is_visible, one_line, preview, printable};
use rath::record::{SHORT_ID_DIGITS, StepId, Timestamp};
use rath::tool::builtin;
use rath::{ErrorKind, Secrets};

use crate::agent;
use crate::escape::{EscapingWriter, VisibleJson};
use crate::hidden::HidingWriter;
use crate::hints;
use crate::styled::Line;
use crate::terminal;
use crate::usage;

/// The style of step ids.
pub(crate) const ID: Style = AnsiColor::Yellow.on_default();
/// The style of branch and tool names.
pub(crate) const BRANCH: Style = AnsiColor::Cyan.on_default();
/// The style of what is read second.
pub(crate) const FAINT: Style = Style::new().dimmed();
const WARNING: Style = AnsiColor::Yellow.on_default().bold();
const ERROR: Style = AnsiColor::Red.on_default().bold();

/// The secrets of the user, which are not printed.
static SECRETS: LazyLock<Secrets> = LazyLock::new(agent::secrets);

/// Returns true if a text has secrets, which are not printed.
pub(crate) fn has_secrets(text: &str) -> bool {
    SECRETS.hide(text).is_some()
}

/// Returns the secrets of the user.
pub(crate) fn secrets() -> &'static Secrets {
    &SECRETS
}

/// Hides the secrets of the user in a text.
pub(crate) fn hide_secrets(text: String) -> String {
    SECRETS.hide(&text).unwrap_or(text)
}

/// The exit status of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Exit {
    Success,
    Failure,
    /// The command line was wrong.
    Usage,
    /// Damage was found, or something changed since it was recorded.
    Differs,
    /// A person has to decide.
    Waiting,
    Interrupted,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(match exit {
            Exit::Success => 0,
            Exit::Failure => 1,
            Exit::Usage => 2,
            Exit::Differs => 3,
            Exit::Waiting => 4,
            Exit::Interrupted => 130,
        })
    }
}

/// The last lines of `rath --help`.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0    success
  1    failure
  2    wrong usage
  3    damage or a difference was found (verify: or the file is not closed)
  4    waiting for your decision
  130  interrupted";

/// The reason why a command failed, what to do, and an exit status.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) message: String,
    hint: String,
    pub(crate) exit: Exit,
}

impl Failure {
    /// Returns a failure that says what is wrong and what to do.
    pub(crate) fn new(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Failure { message: message.into(), hint: hint.into(), exit: Exit::Failure }
    }

    /// Sets the exit status.
    pub(crate) fn with_exit(self, exit: Exit) -> Self {
        Failure { exit, ..self }
    }

    /// Replaces the hint.
    pub(crate) fn with_hint(self, hint: impl Into<String>) -> Self {
        Failure { hint: hint.into(), ..self }
    }

    /// Adds to the hint.
    pub(crate) fn add_hint(self, more: &str) -> Self {
        Failure { hint: format!("{}; {more}", self.hint), ..self }
    }
}

impl From<rath::Error> for Failure {
    fn from(error: rath::Error) -> Self {
        let exit = match error.kind() {
            ErrorKind::Damaged | ErrorKind::Differs => Exit::Differs,
            ErrorKind::Cancelled => Exit::Interrupted,
            ErrorKind::Guest => Exit::Waiting,
            _ => Exit::Failure,
        };
        if error.kind() == ErrorKind::Guest {
            let hint = "`rath adopt` takes over a session that others made; `rath adopt --help` tells how";
            return Failure::new(error.message(), hint).with_exit(exit);
        }
        Failure { message: error.message(), hint: hints::hint(&error), exit }
    }
}

impl From<rath::provider::ProviderError> for Failure {
    fn from(error: rath::provider::ProviderError) -> Self {
        rath::Error::from(error).into()
    }
}

impl From<rath::sandbox::Error> for Failure {
    fn from(error: rath::sandbox::Error) -> Self {
        rath::Error::from(error).into()
    }
}

impl From<rath::memory::MemoryError> for Failure {
    fn from(error: rath::memory::MemoryError) -> Self {
        rath::Error::from(error).into()
    }
}

impl From<rath::store::StoreError> for Failure {
    fn from(error: rath::store::StoreError) -> Self {
        rath::Error::from(error).into()
    }
}

impl From<rath_mcp::Error> for Failure {
    fn from(error: rath_mcp::Error) -> Self {
        let hint = error.hint().unwrap_or("`rath mcp ls` shows the servers, and what is wrong with them");
        Failure::new(error.message(), hint)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Failure::new(format!("cannot write the output: {error}"), "see if there is space, and if you may write there")
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A line of a message that a server wrote must not look like a hint.
        let indented = |text: &str| printable(text.trim_end()).replace('\n', "\n  ");
        f.write_str(&indented(&self.message))?;
        write!(f, "\nhint: {}", indented(&self.hint))
    }
}

/// The result of a command: its exit status, or the reason why it failed.
pub(crate) type CommandResult = Result<Exit, Failure>;

/// Calls `write` with the standard output, for text that may be coloured.
pub(crate) fn text(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    terminal::around(|| write_escaped(EscapingWriter::with_styles(anstream::stdout().lock()), write))
}

/// Calls `write` with the standard output, for data. Data arrives byte for byte, except on a terminal.
pub(crate) fn data(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let out = io::stdout().lock();
    if out.is_terminal() {
        drop(out);
        return terminal::around(|| write_escaped(EscapingWriter::without_styles(io::stdout().lock()), write));
    }
    let mut out = io::BufWriter::new(out);
    unless_closed(write(&mut out).and_then(|()| out.flush()))
}

/// Calls `write` with a buffer around `out`.
fn write_escaped<W: Write>(
    out: EscapingWriter<W>,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let mut out = io::BufWriter::new(HidingWriter::new(out, &SECRETS));
    let written = write(&mut out).and_then(|()| out.into_inner().map_err(io::IntoInnerError::into_error)?.finish());
    unless_closed(written.and_then(EscapingWriter::finish))
}

/// Returns what `write` writes as [`text`] prints it where there are no colours: all of it, or at least the first `bytes`.
pub(crate) fn plain_text(bytes: usize, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<String> {
    let mut beginning = Beginning::new(bytes);
    // All escape sequences that are left are this program's styles.
    let plain = anstream::StripStream::new(&mut beginning as &mut dyn Write);
    write_escaped(EscapingWriter::with_styles(plain), write)?;
    Ok(beginning.into_text())
}

/// Returns the data that `write` writes: all of it, or at least the first `bytes`.
pub(crate) fn data_text(bytes: usize, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<String> {
    let mut beginning = Beginning::new(bytes);
    unless_closed(write(&mut beginning))?;
    Ok(beginning.into_text())
}

/// A writer that closes, as a pipe does, once it has so many bytes.
struct Beginning {
    text: Vec<u8>,
    bytes: usize,
}

impl Beginning {
    fn new(bytes: usize) -> Self {
        Beginning { text: Vec::new(), bytes }
    }

    fn into_text(self) -> String {
        String::from_utf8_lossy(&self.text).into_owned()
    }
}

impl Write for Beginning {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.text.len() >= self.bytes {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Turns the error of a closed pipe into success: its reader has seen enough.
fn unless_closed(written: io::Result<()>) -> io::Result<()> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

/// Returns true if a person at a terminal reads messages and can answer them.
pub(crate) fn is_interactive() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Returns true if a person sees messages as they come, on a terminal whose lines can be drawn again.
pub(crate) fn is_watched() -> bool {
    io::stderr().is_terminal() && std::env::var_os("TERM").is_some_and(|kind| kind != "dumb")
}

/// Returns true if a person can hold a conversation: they type and read at one terminal.
pub(crate) fn is_conversational() -> bool {
    is_interactive() && io::stdout().is_terminal()
}

/// Writes one JSON line, without secrets.
pub(crate) fn json_line(out: &mut dyn Write, value: &impl serde::Serialize) -> io::Result<()> {
    let mut line = Vec::new();
    value.serialize(&mut serde_json::Serializer::with_formatter(&mut line, VisibleJson))?;
    let line = String::from_utf8(line).map_err(io::Error::other)?;
    let Some(hidden) = SECRETS.hide(&line) else { return writeln!(out, "{line}") };
    // A value of digits may be a number, in the place of which JSON has no room for a name. Then all of the line is one text.
    match serde_json::from_str::<serde::de::IgnoredAny>(&hidden) {
        Ok(_) => writeln!(out, "{hidden}"),
        Err(_) => writeln!(out, "{}", serde_json::to_string(&hidden)?),
    }
}

/// Prints a message on stderr, with a line break.
pub(crate) fn print_message(text: impl fmt::Display) {
    // Nobody reads messages if stderr is closed.
    let print = || write_escaped(EscapingWriter::with_styles(anstream::stderr().lock()), |out| writeln!(out, "{text}"));
    let _ = terminal::around(print);
}

/// Prints a text on stderr, without a line break.
pub(crate) fn prompt(text: &str) {
    let _ = write_escaped(EscapingWriter::with_styles(anstream::stderr().lock()), |out| write!(out, "{text}"));
}

/// Prints a message on stderr: `message!("saved as {name}")`.
macro_rules! message {
    ($($part:tt)*) => { $crate::output::print_message(format_args!($($part)*)) };
}
pub(crate) use message;

/// Moves the cursor of the terminal and draws there, with the sequences of this program alone. Texts come from [`shown`].
pub(crate) fn control(write: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> io::Result<()> {
    let mut sequences = Vec::new();
    write(&mut sequences)?;
    // What a run prints on stdout may go elsewhere.
    let mut out = io::stderr().lock();
    out.write_all(&sequences)?;
    out.flush()
}

/// Returns true if the terminal shows colours.
pub(crate) fn has_colour() -> bool {
    anstream::AutoStream::choice(&io::stdout()) != anstream::ColorChoice::Never
}

/// Returns a line as it is printed, for a place on the terminal: escaped, without secrets, in colours if the terminal has them.
pub(crate) fn shown(line: &Line) -> String {
    let has_colour = anstream::AutoStream::choice(&io::stderr()) != anstream::ColorChoice::Never;
    let text = if has_colour { line.styled() } else { line.plain() };
    let mut escaped = Vec::new();
    // Nothing fails in memory.
    let _ = write_escaped(EscapingWriter::with_styles(&mut escaped), |out| write!(out, "{text}"));
    String::from_utf8_lossy(&escaped).into_owned()
}

/// Prints an error on stderr.
pub(crate) fn error(failure: &Failure) {
    message!("{ERROR}error{ERROR:#}: {failure}");
}

/// Prints a note on stderr.
pub(crate) fn note(text: &str) {
    message!("note: {text}");
}

/// Prints a warning on stderr.
pub(crate) fn warning(text: &str) {
    message!("{WARNING}warning{WARNING:#}: {text}");
}

/// Prints help, the version, or an error in the command line, and returns the exit status.
pub(crate) fn usage<'a>(
    problem: &clap::Error,
    program: &clap::Command,
    words: impl IntoIterator<Item = &'a str>,
) -> Exit {
    if problem.use_stderr() {
        let failure = usage::failure(problem, program, words);
        error(&failure);
        return failure.exit;
    }
    let shown = problem.render();
    match text(|out| write!(out, "{}", shown.ansi())) {
        Ok(()) => Exit::Success,
        Err(_) => Exit::Failure,
    }
}

/// Returns the first digits of a step's id, coloured.
pub(crate) fn short(id: &StepId) -> String {
    format!("{ID}{id:.SHORT_ID_DIGITS$}{ID:#}")
}

/// Returns a path relative to the current directory, if it lies in there.
pub(crate) fn path(path: &Path) -> String {
    let current = std::env::current_dir().unwrap_or_default();
    let relative = path.strip_prefix(current).unwrap_or(path);
    let relative = relative.strip_prefix(".").unwrap_or(relative);
    one_line(&if relative.as_os_str().is_empty() { Path::new(".") } else { relative }.display().to_string())
}

/// Returns the whole path of a directory, with `~` for the home directory.
pub(crate) fn home_path(path: &Path) -> String {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty()).map(PathBuf::from);
    let in_home = home.as_deref().and_then(|home| absolute.strip_prefix(home).ok());
    one_line(&match in_home {
        Some(rest) if rest.as_os_str().is_empty() => "~".to_owned(),
        Some(rest) => format!("~/{}", rest.display()),
        None => absolute.display().to_string(),
    })
}

/// Returns `text` as one word of a shell's command line, quoted if it has to be.
pub(crate) fn quote(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=@%+,".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    if text == one_line(text) {
        return format!("'{}'", text.replace('\'', r"'\''"));
    }
    // On one line, without anything that a terminal would not show, and still a word that a shell reads back.
    let mut previous = None;
    let escaped = text.chars().map(|c| {
        let is_plain = is_visible(c, previous.replace(c)) && !matches!(c, '\\' | '\'');
        match is_plain {
            true => c.to_string(),
            false => c.to_string().bytes().map(|byte| format!("\\x{byte:02x}")).collect(),
        }
    });
    format!("$'{}'", escaped.collect::<String>())
}

/// Returns the main argument of a tool call on one line; all arguments, as JSON, where none is the main one.
pub(crate) fn main_argument(tool: &str, arguments: &str) -> String {
    preview(builtin::main_argument(tool, arguments).as_deref().unwrap_or(arguments))
}

/// Returns a number with commas between groups of three digits.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (nth, digit) in digits.chars().enumerate() {
        if nth > 0 && (digits.len() - nth).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Returns a time as RFC 3339, in UTC; as a number if it is outside the calendar.
pub(crate) fn time(at: Timestamp) -> String {
    at.to_rfc3339().unwrap_or_else(|| format!("{} µs", at.0))
}

/// Returns a time to the minute, for people; as a number if it is outside the calendar.
pub(crate) fn minute(at: Timestamp) -> String {
    let to_minute = |time: &str| Some(format!("{} {} UTC", time.get(..10)?, time.get(11..16)?));
    let text = at.to_rfc3339().as_deref().and_then(to_minute);
    text.unwrap_or_else(|| format!("{} µs", at.0))
}

/// Returns the day of a time; as a number if it is outside the calendar.
pub(crate) fn day(at: Timestamp) -> String {
    at.to_rfc3339().and_then(|time| Some(time.get(..10)?.to_owned())).unwrap_or_else(|| format!("{} µs", at.0))
}

/// Returns the present time.
pub(crate) fn now() -> Timestamp {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
    Timestamp(i64::try_from(now).unwrap_or_default())
}

/// Returns a time to the minute, without the date if it is today's.
pub(crate) fn recent(at: Timestamp) -> String {
    let (text, now) = (minute(at), minute(now()));
    match (text.split_once(' '), now.split_once(' ')) {
        (Some((date, time)), Some((today, _))) if date == today => time.to_owned(),
        _ => text,
    }
}

/// The width of text that is not shown in a terminal.
const COLUMNS: usize = 80;
/// The narrowest terminal that text is fitted to.
const MIN_COLUMNS: usize = 40;

/// Returns true if the output goes to a terminal.
pub(crate) fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Returns the number of columns that a line may take.
pub(crate) fn columns() -> usize {
    terminal_columns().unwrap_or(COLUMNS).max(MIN_COLUMNS)
}

/// Returns the number of columns of the terminal that messages go to; none if it is no terminal, or does not tell.
pub(crate) fn message_columns() -> Option<usize> {
    Some(columns::of_terminal(io::stderr())?.max(MIN_COLUMNS))
}

/// Returns the number of columns of the terminal; none if it does not tell.
pub(crate) fn terminal_columns() -> Option<usize> {
    columns::of_terminal(io::stdout())
}

/// Calls `write` with a writer for text that another program shows on the terminal, as [`text`] prints it.
fn styled_text(
    out: &mut (dyn Write + 'static),
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    match anstream::AutoStream::choice(&io::stdout()) {
        anstream::ColorChoice::Never => {
            write_escaped(EscapingWriter::with_styles(anstream::StripStream::new(out)), write)
        }
        _ => write_escaped(EscapingWriter::with_styles(out), write),
    }
}

/// Returns a text without this program's styles.
pub(crate) fn without_styles(text: &str) -> String {
    anstream::adapter::strip_str(text).to_string()
}

/// Returns the time since a moment in few columns: `now`, `5m ago`, `3h ago`, `12d ago`, `1y ago`.
pub(crate) fn age(at: Timestamp, now: Timestamp) -> String {
    const UNITS: [(i64, &str); 5] = [(365 * 86_400, "y"), (7 * 86_400, "w"), (86_400, "d"), (3600, "h"), (60, "m")];
    let seconds = now.0.saturating_sub(at.0) / 1_000_000;
    // One week is clearer in days.
    let unit = UNITS.iter().find(|(length, name)| seconds >= length * if *name == "w" { 2 } else { 1 });
    match unit {
        Some((length, name)) => format!("{}{name} ago", seconds / length),
        None => "now".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_has_one_unit() {
        let day = 86_400;
        for (seconds, expected) in [
            (-5, "now"),
            (59, "now"),
            (60, "1m ago"),
            (3599, "59m ago"),
            (3600, "1h ago"),
            (day, "1d ago"),
            (13 * day, "13d ago"),
            (14 * day, "2w ago"),
            (364 * day, "52w ago"),
            (365 * day, "1y ago"),
        ] {
            assert_eq!(age(Timestamp(0), Timestamp(seconds * 1_000_000)), expected);
        }
    }

    #[test]
    fn a_quoted_word_is_one_visible_line() {
        for (text, expected) in [
            ("plain-1.txt", "plain-1.txt"),
            ("", "''"),
            ("two words", "'two words'"),
            ("it's", r"'it'\''s'"),
            ("a\nhint: it's \u{202e}\\", r"$'a\x0ahint: it\x27s \xe2\x80\xae\x5c'"),
        ] {
            assert_eq!(quote(text), expected);
        }
    }
}
