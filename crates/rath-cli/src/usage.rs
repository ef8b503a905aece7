//! Errors of the argument parser, in the form of all other errors: a line of what is wrong, and a hint of what to do.

use std::num::{IntErrorKind, ParseIntError};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, Error};

use crate::output::{self, Exit, Failure};

/// Describes a wrong command line. `words` are those after the program's name.
pub(crate) fn failure<'a>(error: &Error, program: &Command, words: impl IntoIterator<Item = &'a str>) -> Failure {
    let words: Vec<_> = words.into_iter().collect();
    let (path, command) = named_command(program, words.iter().copied());
    let help = format!("`{path} --help`");
    let similar = |kind| match &texts(error, kind)[..] {
        [] => String::new(),
        [one] => format!("`{one}` is similar; "),
        several => format!("{} are similar; ", listed(several, "and")),
    };
    let argument: Vec<_> = texts(error, ContextKind::InvalidArg).iter().map(|name| plain_name(name)).collect();
    let value = texts(error, ContextKind::InvalidValue).concat();
    let (message, hint) = match (error.kind(), &argument[..]) {
        (ErrorKind::InvalidSubcommand, _)
            if is_prompt(program, &path, &texts(error, ContextKind::InvalidSubcommand)) =>
        {
            let unknown = texts(error, ContextKind::InvalidSubcommand).concat();
            (format!("there is no command `{path} {unknown}`"), run_hint(&words))
        }
        (ErrorKind::ArgumentConflict, [])
            if is_prompt(program, &path, &texts(error, ContextKind::InvalidSubcommand)) =>
        {
            let unknown = texts(error, ContextKind::InvalidSubcommand).concat();
            (format!("a conversation takes no prompt: `{unknown}`"), run_hint(&words))
        }
        (ErrorKind::InvalidSubcommand, _) => {
            let unknown = texts(error, ContextKind::InvalidSubcommand).concat();
            let known: Vec<_> = texts(error, ContextKind::SuggestedSubcommand);
            let known: Vec<_> = known.iter().map(|name| format!("{path} {name}")).collect();
            let similar =
                if known.is_empty() { String::new() } else { format!("{} is similar; ", listed(&known, "or")) };
            (format!("there is no command `{path} {unknown}`"), format!("{similar}{help} lists the commands"))
        }
        (ErrorKind::UnknownArgument, [option]) if option.starts_with('-') => {
            let similar = similar(ContextKind::SuggestedArg);
            (format!("`{path}` has no option `{option}`"), format!("{similar}{help} lists the options"))
        }
        (ErrorKind::UnknownArgument, [word]) if command.get_arguments().any(clap::Arg::is_last_set) => {
            let hint = format!("the command to run comes after `--`; {help} shows how");
            (format!("one argument too many for `{path}`: `{word}`"), hint)
        }
        (ErrorKind::UnknownArgument, [word]) => {
            let hint = format!("a text of several words needs quotes; {help} lists the arguments");
            (format!("one argument too many for `{path}`: `{word}`"), hint)
        }
        (ErrorKind::MissingRequiredArgument, [_, ..]) => {
            (format!("`{path}` wants {}", listed(&argument, "and")), format!("{help} describes it"))
        }
        (ErrorKind::MissingSubcommand | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand, _) => {
            let names: Vec<_> = command.get_subcommands().map(|it| it.get_name().to_owned()).collect();
            (format!("`{path}` wants a command: {}", listed(&names, "or")), format!("{help} describes them"))
        }
        (ErrorKind::InvalidValue, [argument]) => {
            let valid = listed(&texts(error, ContextKind::ValidValue), "or");
            let wanted = if valid.is_empty() { "a value".to_owned() } else { valid };
            let found = if value.is_empty() { "nothing".to_owned() } else { format!("`{value}`") };
            let similar = similar(ContextKind::SuggestedValue);
            (format!("`{argument}` wants {wanted}, found {found}"), format!("{similar}{help} describes it"))
        }
        (ErrorKind::ValueValidation, [argument]) => {
            let why = std::error::Error::source(error).map(|why| match why.downcast_ref::<ParseIntError>() {
                Some(number) if *number.kind() == IntErrorKind::Zero => ": wanted at least 1".to_owned(),
                Some(_) => ": wanted a whole number".to_owned(),
                None => format!(": {why}"),
            });
            let why = why.unwrap_or_default();
            (format!("invalid value `{value}` for `{argument}`{why}"), format!("{help} describes it"))
        }
        (ErrorKind::ArgumentConflict, [argument]) => {
            let others = texts(error, ContextKind::PriorArg);
            let message = match &others[..] {
                [other] if other == argument => format!("`{argument}` is there twice"),
                [] => format!("`{argument}` cannot be used with the other options"),
                others => format!("`{argument}` cannot be used with {}", listed(others, "and")),
            };
            (message, format!("leave one of them out; {help} describes them"))
        }
        (ErrorKind::ArgumentConflict, []) => {
            let command = texts(error, ContextKind::InvalidSubcommand).concat();
            let options = listed(&texts(error, ContextKind::PriorArg), "and");
            let hint = format!("`{path} {command} --help` lists the options of that command, which come after it");
            (format!("{options} cannot come before the command `{command}`"), hint)
        }
        _ => (first_paragraph(error), format!("{help} describes the command")),
    };
    Failure::new(message, hint).with_exit(Exit::Usage)
}

/// Returns true if a text that is no command of the program was meant as a prompt: it has several words.
fn is_prompt(program: &Command, path: &str, unknown: &[String]) -> bool {
    let unknown = unknown.concat();
    path == program.get_name() && program.find_subcommand(&unknown).is_none() && unknown.contains(char::is_whitespace)
}

/// Returns a hint to give a prompt and its options to `rath run`.
fn run_hint(words: &[&str]) -> String {
    // A run without `--continue` begins a session.
    let words = words.iter().filter(|word| **word != "--new").map(|word| format!(" {}", output::quote(word)));
    format!("`rath run{}` asks the agent", words.collect::<String>())
}

/// Returns the command that a command line names, and its name with those of the commands that it is a part of.
fn named_command<'a, 'c>(program: &'c Command, words: impl IntoIterator<Item = &'a str>) -> (String, &'c Command) {
    let (mut path, mut command) = (program.get_name().to_owned(), program);
    for word in words {
        let Some(found) = command.find_subcommand(word) else { break };
        path = format!("{path} {}", found.get_name());
        command = found;
    }
    (path, command)
}

/// Returns the texts that an error has for a person, of one kind.
fn texts(error: &Error, kind: ContextKind) -> Vec<String> {
    match error.get(kind) {
        Some(ContextValue::String(text)) => vec![text.clone()],
        Some(ContextValue::Strings(texts)) => texts.clone(),
        _ => Vec::new(),
    }
}

/// Returns the name of an argument as a person reads it: `FILE`, `--store <STORE>`.
fn plain_name(name: &str) -> String {
    match name.strip_prefix('<').and_then(|name| name.trim_end_matches('.').strip_suffix('>')) {
        Some(name) => name.to_owned(),
        None => name.to_owned(),
    }
}

/// Returns words in code marks with commas, and a conjunction before the last.
fn listed(words: &[String], conjunction: &str) -> String {
    let marked: Vec<_> = words.iter().map(|word| format!("`{word}`")).collect();
    match &marked[..] {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} {conjunction} {last}", first.join(", ")),
    }
}

/// Returns the parser's own words on one line.
fn first_paragraph(error: &Error) -> String {
    let text = error.render().to_string();
    let first = text.split("\n\n").next().unwrap_or_default();
    let words: Vec<_> = first.trim_start_matches("error:").split_whitespace().collect();
    words.join(" ")
}
