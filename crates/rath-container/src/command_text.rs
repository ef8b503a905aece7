//! A command as it is sent to a container, and the errors of one that cannot be started.

use std::path::Path;

use rath_sandbox::{Command, Error, ErrorKind, Result};
use rustix::io::Errno;

/// The most bytes of a command with its arguments and its environment, as the first process takes them.
const MAX_COMMAND_BYTES: usize = 16 << 20;

/// A command as a supervisor reads it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CommandText(pub(crate) Vec<u8>);

impl CommandText {
    /// Writes a command with its whole environment. `directory` is its working directory in the container.
    pub(crate) fn new(command: &Command, directory: &str, env: &[String]) -> Result<Self> {
        let Some(name) = command.argv.first().filter(|name| !name.is_empty()) else {
            return Err(Error::new(ErrorKind::Config, "wanted a program to run, found an empty command"));
        };
        let path = env.iter().find_map(|variable| variable.strip_prefix("PATH=")).unwrap_or_default();
        let in_path = || path.split(':').filter(|it| it.starts_with('/')).map(|it| format!("{it}/{name}"));
        let programs: Vec<_> = if name.contains('/') { vec![name.clone()] } else { in_path().collect() };
        let lists = [&programs, &command.argv, env];
        let strings = || [directory].into_iter().chain(lists.iter().flat_map(|list| list.iter()).map(String::as_str));
        if strings().any(|string| string.contains('\0')) {
            let message =
                format!("cannot run `{}`: there is a NUL byte in its arguments or its environment", name_of(command));
            return Err(Error::new(ErrorKind::Unavailable, message));
        }
        let bytes: usize = strings().map(|string| string.len() + 1).sum();
        if bytes > MAX_COMMAND_BYTES {
            return Err(explain(command, Failure::Program, Errno::TOOBIG));
        }
        let number = |number: usize| u32::try_from(number).unwrap_or(u32::MAX).to_le_bytes();
        let mut text = number(bytes).to_vec();
        lists.iter().for_each(|list| text.extend(number(list.len())));
        strings().for_each(|string| {
            text.extend(string.as_bytes());
            text.push(0);
        });
        Ok(CommandText(text))
    }
}

/// The step at which a command could not be started.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Failure {
    Process,
    Directory,
    Program,
}

/// Returns the name of the program for an error message.
pub(crate) fn name_of(command: &Command) -> String {
    command.argv.first().map(|name| name.replace('\0', "\u{fffd}")).unwrap_or_default()
}

/// Returns the error for a command that could not be started.
pub(crate) fn explain(command: &Command, failure: Failure, errno: Errno) -> Error {
    let name = name_of(command);
    let error = std::io::Error::from(errno).kind();
    let (what, hint) = match (failure, errno) {
        (Failure::Program, Errno::NOENT) => ("there is no such program".to_owned(), None),
        (Failure::Program, Errno::ACCESS) => ("permission denied".to_owned(), None),
        (Failure::Program, Errno::NOEXEC) => {
            let hint = "a script has to begin with `#!` and its interpreter, or be given to one: `sh script`";
            ("it is not a program that this machine can run".to_owned(), Some(hint))
        }
        (Failure::Program, Errno::TOOBIG) => ("its arguments and its environment are too long".to_owned(), None),
        (Failure::Program, _) => (error.to_string(), None),
        (Failure::Directory, _) => {
            let directory = if command.cwd.is_empty() { Path::new(".") } else { Path::new(&command.cwd) };
            (format!("cannot start in `{}`: {error}", directory.display()), None)
        }
        (Failure::Process, Errno::AGAIN | Errno::NOMEM) => {
            ("the limit of the container on processes or memory is reached".to_owned(), None)
        }
        (Failure::Process, _) => (error.to_string(), None),
    };
    let error = Error::new(ErrorKind::Io, format_args!("cannot run `{name}`: {what}"));
    match hint {
        Some(hint) => error.with_hint(hint),
        None => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_written_with_its_lists() {
        let mut command = Command::argv(["ls", "-l"]);
        let env = ["PATH=/bin:relative:/usr/bin".to_owned(), "A=b".to_owned()];
        let CommandText(text) = CommandText::new(&command, "/w", &env).expect("written");
        let strings = b"/w\0/bin/ls\0/usr/bin/ls\0ls\0-l\0PATH=/bin:relative:/usr/bin\0A=b\0";
        let head: Vec<u8> = [strings.len(), 2, 2, 2].iter().flat_map(|it| (*it as u32).to_le_bytes()).collect();
        assert_eq!(text, [&head, &strings[..]].concat());
        command.argv.push("x".repeat(MAX_COMMAND_BYTES));
        let error = CommandText::new(&command, "/w", &env).expect_err("too long");
        assert_eq!(error.to_string(), "cannot run `ls`: its arguments and its environment are too long");
    }
}
