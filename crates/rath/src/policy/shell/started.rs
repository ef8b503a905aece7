//! The commands that another command starts: `env`, `sh -c`, `eval` and their like.
//!
//! Only words of short lists are understood here. Any other option of such a command makes the line one that no rule allows.

use super::Word;
use super::simple_command::{assigned_name, base_name, is_assignment, is_variable, sets_special_variable};

/// The commands that a command starts.
pub(super) enum Started {
    /// A line of shell.
    Line(String),
    /// Commands, each as its words; none if the command only does its own work.
    Commands(Vec<Vec<Word>>),
    /// Commands that are only known when the line runs. Also a change after which names may mean something else.
    Unknown,
}

const NOTHING: Started = Started::Commands(Vec::new());

/// Shells that read lines as they are read here.
const SHELLS: [&str; 4] = ["ash", "bash", "dash", "sh"];

/// Shells that read lines otherwise.
const OTHER_SHELLS: [&str; 19] = [
    "bash-static",
    "csh",
    "elvish",
    "es",
    "fish",
    "ksh",
    "ksh93",
    "lksh",
    "mksh",
    "nu",
    "osh",
    "pdksh",
    "posh",
    "pwsh",
    "rbash",
    "tcsh",
    "xonsh",
    "yash",
    "zsh",
];

/// Commands after which names may mean something else, or that run a text at another time.
const CHANGES_NAMES: [&str; 25] = [
    ".",
    "alias",
    "autoload",
    "bind",
    "compgen",
    "complete",
    "compopt",
    "declare",
    "emulate",
    "enable",
    "fc",
    "getopts",
    "hash",
    "history",
    "let",
    "local",
    "mapfile",
    "readarray",
    "shopt",
    "source",
    "trap",
    "typeset",
    "unalias",
    "zle",
    "zmodload",
];

/// Programs that start the one among their arguments, in ways that are not looked into; and words that begin a command.
const UNKNOWN_STARTERS: [&str; 24] = [
    "bwrap", "capsh", "chroot", "chrt", "coproc", "fakeroot", "firejail", "flock", "function", "ionice", "ltrace",
    "nsenter", "parallel", "prlimit", "runuser", "script", "setarch", "setpriv", "strace", "su", "taskset", "toybox",
    "unshare", "watch",
];

/// A program that starts the command behind its own options.
struct Prefix {
    name: &'static str,
    flags: &'static [&'static str],
    /// Options with a value in the next word.
    valued: &'static [&'static str],
    /// The number of words between the options and the command.
    positional: usize,
}

const PREFIXES: [Prefix; 14] = [
    Prefix::plain("builtin"),
    Prefix::plain("busybox"),
    Prefix { flags: &["-p"], ..Prefix::plain("command") },
    Prefix::plain("doas"),
    Prefix::plain("env"),
    Prefix::plain("exec"),
    Prefix { valued: &["-n"], ..Prefix::plain("nice") },
    Prefix::plain("nohup"),
    Prefix { flags: &["-w", "--wait"], ..Prefix::plain("setsid") },
    Prefix { flags: &["-i0", "-o0", "-oL", "-e0", "-eL"], valued: &["-i", "-o", "-e"], ..Prefix::plain("stdbuf") },
    Prefix::plain("sudo"),
    Prefix { flags: &["-p", "-v"], ..Prefix::plain("time") },
    Prefix {
        flags: &["--foreground", "--preserve-status", "-v"],
        valued: &["-k", "-s"],
        positional: 1,
        ..Prefix::plain("timeout")
    },
    Prefix { flags: &["-0", "-r", "-t", "-x"], valued: &["-L", "-P", "-d", "-n", "-s"], ..Prefix::plain("xargs") },
];

/// Returns true if a program is one that starts others, by its name without a directory.
pub(super) fn starts_others(name: &str) -> bool {
    name == "find" || UNKNOWN_STARTERS.contains(&name) || PREFIXES.iter().any(|prefix| prefix.name == name)
}

/// Returns the commands that a command starts. Its first word is the program.
pub(super) fn started(words: &[Word]) -> Started {
    let Some((program, arguments)) = words.split_first() else { return NOTHING };
    let first = arguments.first();
    let unknown_if = |is_unknown: bool| if is_unknown { Started::Unknown } else { NOTHING };
    let is_option = |word: &Word| word.is_open() || word.text.starts_with('-');
    match base_name(&program.text) {
        "eval" => evaluated(arguments),
        "find" => found(arguments),
        "set" => unknown_if(!sets_known_options(arguments)),
        "export" | "readonly" => unknown_if(!are_plain_variables(arguments)),
        "read" if first.is_some_and(|word| word.text == "-r") => unknown_if(!are_plain_variables(&arguments[1..])),
        "read" | "unset" => unknown_if(!are_plain_variables(arguments)),
        // In bash, the subscript of an array that these name may be a command: `a[$(..)]`. Any word that is only known when the
        // line runs may be the option that says so.
        "printf" => unknown_if(first.is_some_and(|word| word.is_open() || word.text.starts_with("-v"))),
        "test" | "[" => unknown_if(
            arguments
                .iter()
                .any(|word| (word.is_open() && word.text != "]") || matches!(word.text.as_str(), "-v" | "-R")),
        ),
        "jobs" | "wait" => unknown_if(arguments.iter().any(is_option)),
        "command" if first.is_some_and(|word| matches!(word.text.as_str(), "-v" | "-V")) => NOTHING,
        name if SHELLS.contains(&name) => shell(arguments),
        name if OTHER_SHELLS.contains(&name) || CHANGES_NAMES.contains(&name) || UNKNOWN_STARTERS.contains(&name) => {
            Started::Unknown
        }
        name => match PREFIXES.iter().find(|prefix| prefix.name == name) {
            Some(prefix) => prefix.started(arguments),
            None => shell_among(arguments),
        },
    }
}

impl Prefix {
    const fn plain(name: &'static str) -> Self {
        Prefix { name, flags: &[], valued: &[], positional: 0 }
    }

    fn started(&self, arguments: &[Word]) -> Started {
        let mut rest = arguments;
        while let Some((option, after)) = rest.split_first().filter(|(word, _)| word.text.starts_with('-')) {
            let option = option.text.as_str();
            rest = match after {
                _ if self.flags.contains(&option) => after,
                [value, after @ ..] if self.valued.contains(&option) && !value.is_open() => after,
                _ => return Started::Unknown,
            };
        }
        let Some((between, command)) = rest.split_at_checked(self.positional) else { return NOTHING };
        // A word that a shell replaces may become several, or none.
        let mut before = between.iter().chain(command.iter().take_while(|word| is_assignment(&word.text)));
        if before.any(Word::is_open) {
            return Started::Unknown;
        }
        let mut command = command.to_vec();
        if self.name == "xargs" && !command.is_empty() {
            command.push(Word::substituted());
        }
        Started::Commands(if command.is_empty() { Vec::new() } else { vec![command] })
    }
}

/// Returns the line that `eval` runs.
fn evaluated(words: &[Word]) -> Started {
    if words.iter().any(Word::is_open) {
        return Started::Unknown;
    }
    Started::Line(words.iter().map(|word| word.text.as_str()).collect::<Vec<_>>().join(" "))
}

/// Returns the line that a shell is given, or nothing if it runs the script in a file.
fn shell(arguments: &[Word]) -> Started {
    let Some((has_line, [first, ..])) = shell_options(arguments) else { return Started::Unknown };
    // Commands that come from elsewhere: the standard input, or another stream.
    let is_stream = || first.text.split('/').any(|name| matches!(name, "stdin" | "fd"));
    if first.is_open() || first.text.starts_with('-') || (!has_line && is_stream()) {
        return Started::Unknown;
    }
    if has_line { Started::Line(first.text.clone()) } else { NOTHING }
}

/// Returns true if the options of a shell say that a line follows, and the words behind them; none if one is not known.
fn shell_options(arguments: &[Word]) -> Option<(bool, &[Word])> {
    const LETTERS: &str = "Cefuvx";
    const NAMES: [&str; 7] = ["errexit", "noclobber", "noglob", "nounset", "pipefail", "verbose", "xtrace"];
    let (mut rest, mut has_line) = (arguments, false);
    while let Some((option, after)) = rest.split_first().filter(|(word, _)| word.text.starts_with(['-', '+'])) {
        if option.text == "--" {
            break;
        }
        let (sign, letters) = option.text.split_at(1);
        let (letters, name) = match letters.strip_suffix('o') {
            Some(letters) => (letters, Some(after.first()?)),
            None => (letters, None),
        };
        let is_letter = |letter: char| LETTERS.contains(letter) || (letter == 'c' && sign == "-");
        let is_name = |name: &Word| NAMES.contains(&name.text.as_str());
        if option.is_open() || option.text.len() < 2 || !letters.chars().all(is_letter) || !name.is_none_or(is_name) {
            return None;
        }
        has_line |= letters.contains('c');
        rest = if name.is_some() { &after[1..] } else { after };
    }
    Some((has_line, rest))
}

/// Returns true if `set` changes only known options, and the arguments.
fn sets_known_options(arguments: &[Word]) -> bool {
    shell_options(arguments).is_some_and(|(has_line, rest)| !has_line && !rest.first().is_some_and(Word::is_open))
}

/// Returns true if words name or set variables, and none of these changes what other names mean.
fn are_plain_variables(words: &[Word]) -> bool {
    let is_plain =
        |word: &Word| !word.is_open() && is_variable(assigned_name(&word.text)) && !sets_special_variable(&word.text);
    words.iter().all(is_plain)
}

/// Returns the commands that `find` runs.
fn found(arguments: &[Word]) -> Started {
    const ACTIONS: [&str; 4] = ["-exec", "-execdir", "-ok", "-okdir"];
    let is_name = |word: &Word| word.text == "{}";
    if arguments.iter().any(|word| word.is_open() && !is_name(word)) {
        return Started::Unknown;
    }
    let (mut rest, mut commands) = (arguments, Vec::new());
    while let Some(at) = rest.iter().position(|word| ACTIONS.contains(&word.text.as_str())) {
        let after = &rest[at + 1..];
        let ends =
            |at: &usize| after[*at].text == ";" || (after[*at].text == "+" && *at > 0 && is_name(&after[at - 1]));
        let Some(end) = (0..after.len()).find(ends) else { return Started::Unknown };
        let mut command = after[..end].to_vec();
        // The name of a file is only known when the line runs.
        command.iter_mut().for_each(|word| word.is_unknown |= word.text.contains("{}"));
        commands.push(command);
        rest = &after[end + 1..];
    }
    Started::Commands(commands)
}

/// Returns the command of a shell among the arguments of a program, such as `docker run IMAGE sh -c LINE`.
fn shell_among(arguments: &[Word]) -> Started {
    let has_line = |words: &[Word]| {
        let mut options = words.iter().take_while(|word| word.text.starts_with(['-', '+']));
        options.any(|word| !word.text.starts_with("--") && word.text.contains('c'))
    };
    let is_shell = |word: &Word| [&SHELLS[..], &OTHER_SHELLS].concat().contains(&base_name(&word.text));
    let at = (0..arguments.len()).find(|at| is_shell(&arguments[*at]) && has_line(&arguments[at + 1..]));
    Started::Commands(at.map(|at| arguments[at..].to_vec()).into_iter().collect())
}
