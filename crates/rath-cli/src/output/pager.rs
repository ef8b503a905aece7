//! The program that shows long output in a terminal, page by page.

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::{Child, Command, Stdio};

use crate::output;
use crate::signals;

/// The pager where no variable names one: it ends at once if everything fits, lets colours pass and leaves the text on the screen.
const DEFAULT_PAGER: [&str; 2] = ["less", "-FRX"];

/// The variables that a pager gets: those of the terminal and the language, and its own settings. All others may hold secrets.
const PASSED_ON: [&str; 22] = [
    "COLORTERM",
    "COLUMNS",
    "HOME",
    "LANG",
    "LANGUAGE",
    "LINES",
    "LOGNAME",
    "LV",
    "MORE",
    "NO_COLOR",
    "PATH",
    "SHELL",
    "TERM",
    "TERMINFO",
    "TERMINFO_DIRS",
    "TMPDIR",
    "TZ",
    "USER",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_STATE_HOME",
];
const PASSED_ON_PREFIXES: [&str; 3] = ["LC_", "LESS", "BAT_"];

/// The option that turns the pager off.
#[derive(clap::Args)]
pub(crate) struct PagerArg {
    /// Print everything at once, in a terminal too
    ///
    /// In a terminal the output goes through the program that RATH_PAGER or PAGER names, or else through `less -FRX`.
    #[arg(long)]
    no_pager: bool,
}

impl PagerArg {
    /// Calls `write` with the input of the pager in a terminal, and with the standard output elsewhere, for text that may be
    /// coloured.
    pub(crate) fn text(&self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
        match if self.no_pager { None } else { start()? } {
            None => output::text(write),
            Some((name, child)) => feed(&name, child, write),
        }
    }
}

/// Starts the pager; none if the output is no terminal, or there is no pager.
fn start() -> io::Result<Option<(String, Child)>> {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    // A terminal that cannot move its cursor has no use for pages.
    let is_plain = !is_set("TERM") || std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    if !output::is_terminal() || is_plain {
        return Ok(None);
    }
    let named = std::env::var("RATH_PAGER").or_else(|_| std::env::var("PAGER")).ok();
    let words: Vec<&str> = match &named {
        None => DEFAULT_PAGER.to_vec(),
        // Empty, or with nothing that a shell has to read, it needs no shell.
        Some(pager) if pager.chars().all(|c| c.is_ascii_alphanumeric() || " _-./=+,:".contains(c)) => {
            pager.split_whitespace().collect()
        }
        Some(pager) => vec!["sh", "-c", pager],
    };
    let Some((program, args)) = words.split_first().filter(|(program, _)| **program != "cat") else { return Ok(None) };
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::piped()).env_clear().envs(environment());
    if !is_set("LESS") {
        command.env("LESS", "FRX");
    }
    match command.spawn() {
        Ok(child) => Ok(Some((named.unwrap_or_else(|| DEFAULT_PAGER.join(" ")), child))),
        Err(error) => {
            if let Some(pager) = named {
                output::warning(&format!("cannot start the pager `{}`: {error}", super::one_line(&pager)));
            }
            Ok(None)
        }
    }
}

/// Returns the variables for the pager.
fn environment() -> impl Iterator<Item = (OsString, OsString)> {
    std::env::vars_os().filter(|(name, value)| {
        let name = name.to_string_lossy();
        let is_passed_on =
            PASSED_ON.contains(&&*name) || PASSED_ON_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
        is_passed_on && !output::has_secrets(&value.to_string_lossy())
    })
}

/// Writes to a pager, and waits until the user leaves it.
fn feed(name: &str, mut pager: Child, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    // In a pager, Ctrl-C ends a search and not the program that writes.
    let _kept = signals::outlive_interrupts();
    let written = match pager.stdin.take() {
        Some(mut input) => output::styled_text(&mut input, write),
        None => Ok(()),
    };
    let status = pager.wait()?;
    match status.code() {
        // The shell found no such program.
        Some(126 | 127) => {
            let message =
                format!("the pager `{}` cannot be started; --no-pager prints without one", super::one_line(name));
            Err(io::Error::new(io::ErrorKind::NotFound, message))
        }
        _ => written,
    }
}
