//! One command of a line: its words, and the texts by which rules know it.

use super::started::starts_others;

/// One command: a program and its arguments, without quotes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::policy) struct SimpleCommand {
    pub(super) words: Vec<String>,
    /// The words as they would be typed: with quotes where these make a difference.
    pub(super) typed: Vec<String>,
}

/// The number of words of a command that are looked at.
pub(super) const MAX_WORDS: usize = 500;
/// The number of words at which the command that another one runs may begin.
const MAX_STARTS: usize = 32;

impl SimpleCommand {
    /// Creates a command from words that no shell reads.
    pub(in crate::policy) fn new(words: Vec<String>) -> Self {
        let typed = words.iter().map(|word| quote(word, '\'')).collect();
        SimpleCommand { words, typed }
    }

    /// Returns the whole command, with one space between words and quotes where they make a difference.
    pub(in crate::policy) fn text(&self) -> String {
        self.typed.join(" ")
    }

    /// Returns the texts by which a rule can forbid the command: itself, its end without variables that are set for it and
    /// without programs that run others (`sudo`, `env`), and each of these without the directory of the program.
    pub(in crate::policy) fn forms(&self) -> Vec<String> {
        let mut forms = vec![self.text()];
        let mut add_from = |start: usize| {
            let (words, typed) = (&self.words[start..], &self.typed[start..]);
            let Some((program, rest)) = words.split_first() else { return };
            // Without quotes too: a rule that forbids should not depend on how a word is written.
            let without_directory = [&[base_name(program).to_owned()], rest].concat().join(" ");
            forms.extend([typed.join(" "), words.join(" "), without_directory]);
        };
        let first = self.words.iter().position(|word| !is_assignment(word)).unwrap_or(self.words.len());
        add_from(first);
        if self.words.get(first).is_some_and(|word| starts_others(base_name(word))) {
            (first + 1..self.words.len()).take(MAX_STARTS).for_each(add_from);
        }
        forms
    }
}

/// Returns the name of a program without its directory.
pub(super) fn base_name(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or_default()
}

/// Returns a word with quotes around it, if it needs them.
pub(super) fn quote(word: &str, with: char) -> String {
    let needs = |it: char| it.is_whitespace() || "'\"\\;&|<>()`".contains(it) || (with == '\'' && is_special(it));
    match word.is_empty() || word.contains(needs) {
        true if with == '\'' => format!("'{}'", word.replace('\'', r"'\''")),
        true => format!("\"{word}\""),
        false => word.to_owned(),
    }
}

/// Returns true if a shell replaces the character, or what follows it, unless it is quoted.
pub(super) fn is_special(character: char) -> bool {
    "*?[]$~{}#!^=".contains(character)
}

pub(super) fn is_assignment(word: &str) -> bool {
    word.contains('=') && is_variable(assigned_name(word))
}

/// Returns true if a word sets a variable by which a shell or the loader finds or runs other programs, or a number of bash: its
/// value is calculated, which may run commands (`a[$(..)]`).
pub(super) fn sets_special_variable(word: &str) -> bool {
    const NAMES: [&str; 32] = [
        "BASHOPTS",
        "BASHPID",
        "CDPATH",
        "ENV",
        "EPOCHREALTIME",
        "EPOCHSECONDS",
        "EXECIGNORE",
        "FPATH",
        "GCONV_PATH",
        "GLIBC_TUNABLES",
        "GLOBIGNORE",
        "HISTCMD",
        "HOME",
        "IFS",
        "LINENO",
        "LOCPATH",
        "NLSPATH",
        "OPTIND",
        "PATH",
        "POSIXLY_CORRECT",
        "PROMPT_COMMAND",
        "PS0",
        "PS1",
        "PS2",
        "PS3",
        "PS4",
        "RANDOM",
        "SECONDS",
        "SHELL",
        "SHELLOPTS",
        "SRANDOM",
        "ZDOTDIR",
    ];
    const PREFIXES: [&str; 2] = ["BASH_", "LD_"];
    let name = assigned_name(word);
    NAMES.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Returns true if a shell takes a word for the name of a variable.
pub(super) fn is_variable(name: &str) -> bool {
    name.starts_with(|it: char| it.is_ascii_alphabetic() || it == '_')
        && name.chars().all(|it| it.is_ascii_alphanumeric() || it == '_')
}

/// Returns the name in `name=value` and `name+=value`, or the whole word.
pub(super) fn assigned_name(word: &str) -> &str {
    word.split_once('=').map_or(word, |(name, _)| name.trim_end_matches('+'))
}
