//! The commands of a conversation, which begin with a slash.

use super::attachments::{Completion, common_begin};
use crate::output::Failure;
use crate::styled::{BOLD, Line};

/// A command of a conversation.
#[derive(Debug, PartialEq)]
pub(crate) enum Slash {
    Help,
    New,
    Sessions,
    Open(String),
    Status,
    Log,
    Diff(Option<String>),
    Undo,
    Rewind(Option<String>),
    Fork(Option<String>),
    Check(String),
    Approve,
    Cost,
    Model(Option<String>),
    Compact,
    Quit,
}

/// The names of the commands, their arguments, and their effects.
const COMMANDS: [(&str, &str, &str); 16] = [
    ("help", "", "show this list"),
    ("new", "", "begin a new session"),
    ("sessions", "", "list the newest sessions"),
    ("open", "SESSION", "go on with another session"),
    ("status", "", "show where the session is, and what changed since"),
    ("log", "", "show what happened, newest first"),
    ("diff", "[STEP]", "show what the last turn changed, or all since a step"),
    ("undo", "", "change the files back to before the last turn"),
    ("rewind", "[N or STEP]", "go back to before a message, with the files"),
    ("fork", "[NAME]", "go on in a branch with files of its own"),
    ("check", "COMMAND", "run a command on the files, and record its result"),
    ("approve", "", "decide about the calls that wait for you"),
    ("cost", "", "show tokens and money by model"),
    ("model", "[MODEL]", "show the model, or ask another one from now on"),
    ("compact", "", "replace the older part by a summary for the model"),
    ("quit", "", "leave; so does Ctrl-D"),
];

impl Slash {
    /// Reads a line as a command. None if it is a message for the agent: a message that begins with a slash has a blank before it.
    pub(crate) fn parse(line: &str) -> Option<Result<Slash, Failure>> {
        let (name, argument) = split(line.strip_prefix('/')?);
        // The path of a file is no command.
        if name.contains('/') {
            return None;
        }
        let argument = (!argument.is_empty()).then(|| argument.to_owned());
        let Some((name, wanted, _)) = COMMANDS.iter().find(|(known, ..)| *known == name).copied() else {
            let message = format!("there is no command /{name}");
            return Some(Err(Failure::new(
                message,
                "/help lists the commands; with a blank before it, it is a message",
            )));
        };
        if wanted.is_empty() && argument.is_some() {
            return Some(Err(Failure::new(format!("/{name} takes nothing"), format!("type /{name}"))));
        }
        if argument.is_none() && !wanted.is_empty() && !wanted.starts_with('[') {
            return Some(Err(Failure::new(format!("/{name} wants {wanted}"), format!("type /{name} {wanted}"))));
        }
        let required = argument.clone().unwrap_or_default();
        Some(Ok(match name {
            "help" => Slash::Help,
            "new" => Slash::New,
            "sessions" => Slash::Sessions,
            "open" => Slash::Open(required),
            "status" => Slash::Status,
            "log" => Slash::Log,
            "diff" => Slash::Diff(argument),
            "undo" => Slash::Undo,
            "rewind" => Slash::Rewind(argument),
            "fork" => Slash::Fork(argument),
            "check" => Slash::Check(required),
            "approve" => Slash::Approve,
            "cost" => Slash::Cost,
            "model" => Slash::Model(argument),
            "compact" => Slash::Compact,
            _ => Slash::Quit,
        }))
    }
}

fn split(text: &str) -> (&str, &str) {
    let (name, argument) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    (name, argument.trim())
}

/// Returns the list of the commands, in lines of at most this number of columns.
pub(crate) fn help(columns: usize) -> Vec<Line> {
    let usage = |name: &str, argument: &str| format!("/{name} {argument}");
    let width = COMMANDS.iter().map(|(name, argument, _)| usage(name, argument).len()).max().unwrap_or_default();
    let commands = COMMANDS.iter().map(|(name, argument, effect)| {
        let usage = usage(name, argument);
        let line = Line::default().with(BOLD, format!("{usage:<width$}  "));
        line.with(anstyle::Style::new(), *effect).wrap(columns, &" ".repeat(width + 2).as_str().into())
    });
    let keys = [
        "@PATH or @\"A PATH\" attaches a file or image; Tab completes commands and paths.",
        "A backslash before Enter, or Alt-Enter, begins a new line. Up shows old ones.",
        "While the agent works, Enter queues a message, and Ctrl-C stops the turn.",
    ];
    let keys = keys.iter().flat_map(|line| Line::from(*line).wrap(columns, &Line::default()));
    commands.flatten().chain([Line::default()]).chain(keys).collect()
}

/// Completes the name of a command, with its slash.
pub(crate) fn complete(begin: &str) -> Completion {
    let names = COMMANDS.iter().map(|(name, ..)| format!("/{name}"));
    let found: Vec<_> = names.filter(|name| name.starts_with(begin)).collect();
    match (&found[..], common_begin(&found)) {
        ([name], _) => Completion::Text(format!("{name} ")),
        (_, common) if common.len() > begin.len() => Completion::Text(common),
        _ => Completion::Choices(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_commands_or_messages() {
        for (line, expected) in [("hello", None), (" /help", None), ("/etc/passwd is odd", None), ("", None)] {
            assert!(
                Slash::parse(line).is_none() == expected.is_none()
                    && expected.is_none_or(|it: Slash| it == Slash::Help)
            );
        }
        for (line, expected) in [
            ("/help", Slash::Help),
            ("/fork", Slash::Fork(None)),
            ("/fork  try it ", Slash::Fork(Some("try it".to_owned()))),
            ("/check cargo test", Slash::Check("cargo test".to_owned())),
            ("/rewind 2", Slash::Rewind(Some("2".to_owned()))),
        ] {
            assert_eq!(Slash::parse(line).and_then(Result::ok), Some(expected), "{line}");
        }
        for line in ["/", "/nothing", "/check", "/open", "/help me", "/quit now"] {
            assert!(Slash::parse(line).is_some_and(|parsed| parsed.is_err()), "{line}");
        }
    }

    #[test]
    fn every_command_of_the_list_can_be_typed_and_completed() {
        for (name, argument, _) in COMMANDS {
            assert!(
                Slash::parse(format!("/{name} {argument}").trim_end()).is_some_and(|parsed| parsed.is_ok()),
                "{name}"
            );
            assert_eq!(complete(&format!("/{name}")), Completion::Text(format!("/{name} ")));
        }
        for columns in [40, 80] {
            assert!(help(columns).iter().all(|line| line.columns() <= columns));
        }
        assert_eq!(help(80).len(), COMMANDS.len() + 4, "no line is wrapped in 80 columns");
    }

    #[test]
    fn the_guide_lists_the_commands() {
        let guide = include_str!("../../../../docs/guide/conversations.md");
        for (name, argument, effect) in COMMANDS {
            let usage = format!("/{name} {argument}");
            assert!(guide.contains(&format!("| `{}` | {effect} |", usage.trim_end())), "{name}");
        }
    }
}
