//! The commands in a line of shell, as far as they can be known without running it.
//!
//! Rules are compared with these commands. A line with a part that is only known when it runs (a variable as the name of a
//! command, a here-document), or in which names may mean something else (a function, an alias, another `PATH`), is marked: no
//! rule allows it, and a rule that may forbid it asks.

mod simple_command;
mod started;

use std::path::{Component, Path};

pub(super) use self::simple_command::SimpleCommand;
use self::simple_command::{MAX_WORDS, is_assignment, is_special, quote, sets_special_variable};
use self::started::{Started, started};

/// The number of lines inside of lines (`$(..)`, `sh -c ..`) that are looked into.
const MAX_DEPTH: u32 = 8;
/// The number of paths of redirections, each in a directory that a line may change to, that are looked for.
const MAX_WRITES_BEHIND_CD: usize = 256;
/// The number of directories that a line may change to, and of redirections that are looked for in them.
const MAX_DIRECTORIES: usize = 64;
/// The longest line that is looked into, in bytes.
const MAX_LINE_BYTES: usize = 64 * 1024;

/// The text that stands for the output of a command.
const SUBSTITUTED: &str = "$(..)";

/// The commands of a line of shell.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ShellLine {
    pub(super) commands: Vec<SimpleCommand>,
    /// The files that output is redirected to: first as they are written, then in the directories that the line may change to.
    pub(super) writes: Vec<String>,
    /// The number of redirections.
    pub(super) redirections: usize,
    /// The directories that the line may change to, as far as they are known.
    pub(super) directories: Vec<String>,
    /// True if a part of the line is only known when it runs, or if names in it may mean something else.
    pub(super) is_opaque: bool,
    /// True if this is no line of shell, but one program with its arguments.
    pub(super) is_program: bool,
}

/// Returns true if a path without links is in the workspace.
pub(crate) fn is_inside(path: &str) -> bool {
    Path::new(path).components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
}

impl ShellLine {
    /// Returns true if no rule about commands or paths can tell what the line does.
    pub(super) fn is_unclear(&self) -> bool {
        let changes_directory =
            self.commands.iter().any(|command| command.words.iter().any(|word| word == "cd" || word == "pushd"));
        self.is_opaque || self.commands.is_empty() || (changes_directory && self.redirections > 0)
    }

    /// Replaces the paths that the line writes by those that they lead to. No rule allows one that leads out of the workspace.
    pub(super) fn lead_writes_to(&mut self, targets: &mut impl Iterator<Item = String>) {
        for (nth, (given, target)) in std::mem::take(&mut self.writes).into_iter().zip(targets).enumerate() {
            self.is_opaque |= nth < self.redirections && !is_inside(&target);
            self.writes.extend([target, given].into_iter().find(|path| is_inside(path)));
        }
    }

    /// Returns true if rules can describe the line so that a person understands them later.
    pub(super) fn can_be_a_rule(&self) -> bool {
        let is_substituted = |command: &SimpleCommand| command.words.iter().any(|word| word.contains(SUBSTITUTED));
        !self.is_unclear() && !self.is_program && !self.commands.iter().any(is_substituted)
    }

    /// Finds the commands of a line.
    pub(super) fn parse(line: &str) -> Self {
        let mut found = ShellLine::default();
        parse_line(line, 0, &mut found);
        found.redirections = found.writes.len();
        // A change of directory may fail, or end with a subshell: any of the directories may be the one of a redirection.
        let in_directories = |path: &String| -> Vec<String> {
            found.directories.iter().map(|directory| join(directory, path)).collect()
        };
        let behind_cd: Vec<_> = found.writes.iter().flat_map(in_directories).take(MAX_WRITES_BEHIND_CD + 1).collect();
        found.is_opaque |= behind_cd.len() > MAX_WRITES_BEHIND_CD;
        found.writes.extend(behind_cd);
        found
    }

    /// Adds the directories that a command changes to, from each in which it may run.
    fn change_directory(&mut self, words: &[Word]) {
        let mut words = words.iter();
        if !words.next().is_some_and(|word| matches!(word.text.as_str(), "cd" | "pushd")) {
            return;
        }
        let is_option = |word: &&Word| word.text.starts_with('-') && word.text.len() > 1;
        // Any other directory is only known when the line runs.
        let target = words.find(|word| !is_option(word)).filter(|word| {
            let is_named = !matches!(word.text.as_str(), "" | "-");
            is_named && !word.is_open()
        });
        let Some(target) = target else { return };
        let from = std::iter::once(String::new()).chain(self.directories.clone());
        for directory in from.map(|from| join(&from, &target.text)) {
            // A shell takes `link/..` for the directory that holds the link; the system takes it for the one above its target.
            for directory in [without_parents(&directory), directory] {
                if self.directories.contains(&directory) {
                    continue;
                }
                match self.directories.len() < MAX_DIRECTORIES {
                    true => self.directories.push(directory),
                    false => self.is_opaque = true,
                }
            }
        }
    }
}

/// Returns a path in a directory.
fn join(directory: &str, path: &str) -> String {
    Path::new(directory).join(path).to_string_lossy().into_owned()
}

/// Returns a path in which each `..` has taken away the name before it, if there is one.
fn without_parents(path: &str) -> String {
    let mut parts = Vec::new();
    for part in Path::new(path).components() {
        match (part, parts.last()) {
            (Component::ParentDir, Some(Component::Normal(_))) => _ = parts.pop(),
            (Component::CurDir, _) => {}
            _ => parts.push(part),
        }
    }
    parts.iter().collect::<std::path::PathBuf>().to_string_lossy().into_owned()
}

fn parse_line(line: &str, depth: u32, found: &mut ShellLine) {
    if depth > MAX_DEPTH || line.len() > MAX_LINE_BYTES {
        found.is_opaque = true;
        return;
    }
    // Characters that one program takes for a blank or an end, and another for a letter.
    if line.chars().any(|it| it.is_control() && !matches!(it, '\n' | '\t')) {
        found.is_opaque = true;
    }
    let mut parser = Parser { rest: line, depth, found };
    parser.list(End::Text);
    // What follows a closing parenthesis that was never opened.
    if !parser.rest.is_empty() {
        parser.found.is_opaque = true;
    }
}

/// The character that ends a list of commands.
#[derive(Clone, Copy, PartialEq)]
enum End {
    Text,
    Parenthesis,
}

struct Parser<'a, 'b> {
    rest: &'a str,
    depth: u32,
    found: &'b mut ShellLine,
}

/// A word of a command.
#[derive(Clone, Default)]
struct Word {
    text: String,
    /// True if there is a word, which may be empty: `''`.
    is_there: bool,
    /// True if a part of it was quoted: then it is no reserved word.
    is_quoted: bool,
    /// True if a part of it is only known when the line runs.
    is_unknown: bool,
    /// True if a character that a shell would replace is quoted.
    has_quoted_special: bool,
    /// True if a character that a shell replaces is not quoted.
    has_bare_special: bool,
}

impl Word {
    /// Creates the word that stands for the output of a command.
    fn substituted() -> Self {
        Word { text: SUBSTITUTED.to_owned(), is_there: true, is_unknown: true, ..Word::default() }
    }

    /// Returns true if a shell replaces the word, or a part of it: it may become another word, several or none.
    fn is_open(&self) -> bool {
        self.is_unknown || self.has_bare_special
    }

    fn push_quoted(&mut self, character: char) {
        self.is_quoted = true;
        self.has_quoted_special |= is_special(character);
        self.text.push(character);
    }

    fn push_bare(&mut self, character: char) {
        self.has_bare_special |= is_special(character) && character != '=';
        self.text.push(character);
    }

    /// Returns the word as it would be typed.
    fn typed(&self) -> String {
        // Without quotes the shell replaces it, with quotes it does not: the two are not the same word.
        match (self.is_open(), self.has_quoted_special) {
            (true, _) => quote(&self.text, '"'),
            (false, true) => format!("'{}'", self.text.replace('\'', r"'\''")),
            (false, false) => quote(&self.text, '"').replace('"', "'"),
        }
    }
}

/// The use of the next word.
#[derive(Clone, Copy, PartialEq)]
enum WordRole {
    Argument,
    /// The file of `> file`.
    WriteTarget,
    /// The file of `< file`, or the text of `<<< text`.
    ReadSource,
    /// The descriptor or the file of `>& word` and `<& word`.
    DescriptorOrFile,
}

impl Parser<'_, '_> {
    fn next(&mut self) -> Option<char> {
        let mut chars = self.rest.chars();
        let next = chars.next()?;
        self.rest = chars.as_str();
        Some(next)
    }

    fn take(&mut self, prefix: &str) -> bool {
        self.rest.strip_prefix(prefix).map(|rest| self.rest = rest).is_some()
    }

    /// Reads commands up to the end of the text, or past the parenthesis that closes them.
    fn list(&mut self, end: End) {
        let (mut words, mut word, mut role) = (Vec::new(), Word::default(), WordRole::Argument);
        let mut begins_with_redirection = false;
        while let Some(next) = self.next() {
            match next {
                ' ' | '\t' => self.end_word(&mut word, &mut role, &mut words),
                '\n' | ';' | '&' | '|' | '(' | ')' => {
                    // One shell reads `&>file` as a redirection, another as the end of a command and a redirection.
                    self.found.is_opaque |= next == '&' && self.rest.starts_with('>');
                    self.end_word(&mut word, &mut role, &mut words);
                    let is_command = self.end_command(&mut words, std::mem::take(&mut begins_with_redirection));
                    role = WordRole::Argument;
                    match next {
                        '(' => {
                            // A function, after which a name means something else; in bash also an array or a pattern. And `((`
                            // begins arithmetic there, in which quotes and comments mean something else.
                            self.found.is_opaque |= is_command || self.rest.starts_with('(');
                            self.nested();
                        }
                        ')' if end == End::Parenthesis => return,
                        ')' => self.found.is_opaque = true,
                        _ => {}
                    }
                }
                '#' if !word.is_there => {
                    let line = self.rest.find('\n').unwrap_or(self.rest.len());
                    self.rest = &self.rest[line..];
                }
                '<' | '>' => {
                    let is_descriptor = word.text.bytes().all(|byte| byte.is_ascii_digit()) && !word.is_quoted;
                    // One shell reads `12>` and `{name}>` as a descriptor, another as a word and a redirection.
                    self.found.is_opaque |= word.text.starts_with('{') || (is_descriptor && word.text.len() > 1);
                    let follows_word = word.is_there;
                    if is_descriptor {
                        word = Word::default();
                    }
                    self.end_word(&mut word, &mut role, &mut words);
                    if self.take("(") {
                        self.nested();
                        // The substitution is part of a word that it touches.
                        let ends_word =
                            self.rest.is_empty() || self.rest.starts_with([' ', '\t', '\n', ';', '&', '|', ')']);
                        self.found.is_opaque |= follows_word || !ends_word;
                        let is_argument = std::mem::replace(&mut role, WordRole::Argument) == WordRole::Argument;
                        words.extend(is_argument.then(Word::substituted));
                    } else {
                        begins_with_redirection |= words.is_empty();
                        role = self.redirection(next);
                    }
                }
                _ => self.part_of_word(next, &mut word),
            }
        }
        self.end_word(&mut word, &mut role, &mut words);
        self.end_command(&mut words, begins_with_redirection);
        if end == End::Parenthesis {
            self.found.is_opaque = true;
        }
    }

    /// Reads the rest of a redirection operator, and returns the use of the next word.
    fn redirection(&mut self, first: char) -> WordRole {
        if first == '<' {
            if self.take("<<") {
                return WordRole::ReadSource;
            }
            // The text of a here-document is data, and is read as commands here: no rule may allow such a line.
            if self.take("<") {
                self.found.is_opaque = true;
                return WordRole::ReadSource;
            }
            if self.take(">") {
                return WordRole::WriteTarget;
            }
        }
        if self.take("&") {
            return WordRole::DescriptorOrFile;
        }
        if first == '<' {
            return WordRole::ReadSource;
        }
        let _ = self.take(">") || self.take("|");
        WordRole::WriteTarget
    }

    /// Reads the commands in parentheses.
    fn nested(&mut self) {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            self.found.is_opaque = true;
            self.rest = "";
        } else {
            self.list(End::Parenthesis);
        }
        self.depth -= 1;
    }

    fn part_of_word(&mut self, next: char, word: &mut Word) {
        word.is_there = true;
        match next {
            '\\' => match self.next() {
                // A line that goes on could be cut anywhere, even in the middle of an operator.
                Some('\n') | None => self.found.is_opaque = true,
                Some(next) => word.push_quoted(next),
            },
            '\'' => {
                word.is_quoted = true;
                match self.rest.split_once('\'') {
                    Some((text, rest)) => {
                        text.chars().for_each(|next| word.push_quoted(next));
                        self.rest = rest;
                    }
                    None => self.unfinished(),
                }
            }
            '"' => {
                word.is_quoted = true;
                self.double_quoted(word);
            }
            '`' => self.backquoted(word),
            '$' => self.dollar(word),
            other => word.push_bare(other),
        }
    }

    fn double_quoted(&mut self, word: &mut Word) {
        loop {
            match self.next() {
                Some('"') => return,
                Some('\\') => match self.next() {
                    Some('\n') => self.found.is_opaque = true,
                    Some(next @ ('$' | '`' | '"' | '\\')) => word.push_quoted(next),
                    Some(next) => ['\\', next].into_iter().for_each(|next| word.push_quoted(next)),
                    None => return self.unfinished(),
                },
                Some('`') => self.backquoted(word),
                Some('$') => self.dollar(word),
                Some(next) => word.push_quoted(next),
                None => return self.unfinished(),
            }
        }
    }

    /// Reads a command between backquotes.
    fn backquoted(&mut self, word: &mut Word) {
        word.is_unknown = true;
        word.text.push_str(SUBSTITUTED);
        let mut line = String::new();
        loop {
            match self.next() {
                Some('`') => break,
                // The rules for backslashes in backquotes are not worth knowing.
                Some('\\') => {
                    self.found.is_opaque = true;
                    line.extend(self.next());
                }
                Some(next) => line.push(next),
                None => return self.unfinished(),
            }
        }
        parse_line(&line, self.depth + 1, self.found);
    }

    /// Reads a variable or a command whose output is used.
    fn dollar(&mut self, word: &mut Word) {
        // In arithmetic, quotes and comments mean something else.
        self.found.is_opaque |= self.rest.starts_with("((") || self.rest.starts_with('[');
        if self.take("(") {
            word.is_unknown = true;
            word.text.push_str(SUBSTITUTED);
            return self.nested();
        }
        let is_value = |it: char| it.is_alphanumeric() || "_{'\"@*#?$!-".contains(it);
        if self.rest.starts_with(is_value) {
            word.is_unknown = true;
            // The inside of `${..}` may run commands too, and of `$'..'` be anything: neither is looked into.
            if self.rest.starts_with(['{', '\'', '"']) {
                self.found.is_opaque = true;
            }
        }
        word.push_bare('$');
    }

    fn unfinished(&mut self) {
        self.found.is_opaque = true;
        self.rest = "";
    }

    fn end_word(&mut self, word: &mut Word, role: &mut WordRole, words: &mut Vec<Word>) {
        let word = std::mem::take(word);
        if !word.is_there {
            return;
        }
        let role = std::mem::replace(role, WordRole::Argument);
        match role {
            WordRole::Argument => words.push(word),
            WordRole::ReadSource => {}
            WordRole::DescriptorOrFile
                if !word.is_quoted && (word.text == "-" || word.text.bytes().all(|byte| byte.is_ascii_digit())) => {}
            WordRole::WriteTarget | WordRole::DescriptorOrFile if word.is_open() => {
                self.found.is_opaque = true;
            }
            WordRole::WriteTarget | WordRole::DescriptorOrFile if word.text == "/dev/null" => {}
            WordRole::WriteTarget | WordRole::DescriptorOrFile => {
                // In bash `>&-` is an operator, and what touches it is another word. The name of a file is expanded twice there.
                self.found.is_opaque |= role == WordRole::DescriptorOrFile;
                let parts = word
                    .text
                    .split('/')
                    .enumerate()
                    .filter(|(nth, part)| *part != "." && (*nth == 0 || !part.is_empty()));
                self.found.writes.push(parts.map(|(_, part)| part).collect::<Vec<_>>().join("/"));
            }
        }
    }

    /// Adds a command, and returns true if there is one beside the words that a command follows.
    fn end_command(&mut self, words: &mut Vec<Word>, begins_with_redirection: bool) -> bool {
        /// Words that a command follows.
        const BEFORE_COMMAND: [&str; 10] = ["if", "then", "else", "elif", "while", "until", "do", "!", "{", "time"];
        /// Words that begin what is not looked into.
        const COMPOUND: [&str; 6] = ["for", "case", "select", "function", "coproc", "[["];
        const CLOSING: [&str; 4] = ["fi", "done", "}", "esac"];
        let mut words: &[Word] = &std::mem::take(words);
        while let [first, rest @ ..] = words
            && !first.is_quoted
            && (BEFORE_COMMAND.contains(&first.text.as_str()) || CLOSING.contains(&first.text.as_str()))
        {
            // Behind a redirection it is the name of a program.
            self.found.is_opaque |= begins_with_redirection;
            words = rest;
        }
        let Some(first) = words.first() else { return false };
        self.found.is_opaque |=
            words.len() > MAX_WORDS || (!first.is_quoted && COMPOUND.contains(&first.text.as_str()));
        self.command(&words[..words.len().min(MAX_WORDS)]);
        true
    }

    /// Adds a command and those that it starts.
    fn command(&mut self, words: &[Word]) {
        let start = words.iter().position(|word| !is_assignment(&word.text)).unwrap_or(words.len());
        let (assignments, program) = words.split_at(start);
        for word in assignments.iter().filter(|word| sets_special_variable(&word.text)) {
            self.maybe_line(word);
        }
        // The program itself has to be known: `/bin/r?` is one, and `~/x` another.
        let is_odd = |name: &Word| name.is_open() || name.text.starts_with('-') || name.text.contains('=');
        self.found.is_opaque |= program.first().is_some_and(is_odd);
        self.found.is_opaque |= words.iter().any(|word| word.has_bare_special && word.has_quoted_special);
        self.found.change_directory(program);
        self.found.commands.push(SimpleCommand {
            words: words.iter().map(|word| word.text.clone()).collect(),
            typed: words.iter().map(Word::typed).collect(),
        });
        // In the order in which they run: what follows may run in the directory that this one changes to.
        match started(program) {
            Started::Line(line) => parse_line(&line, self.depth + 1, self.found),
            Started::Commands(commands) => commands.iter().for_each(|words| self.started_command(words)),
            Started::Unknown => {
                self.found.is_opaque = true;
                program.iter().skip(1).for_each(|word| self.maybe_line(word));
            }
        }
    }

    /// Adds the commands of a word that may be a line, or the value of a variable that is one: a rule that forbids finds them.
    fn maybe_line(&mut self, word: &Word) {
        self.found.is_opaque = true;
        let value = word.text.split_once('=').filter(|_| is_assignment(&word.text)).map(|(_, value)| value);
        parse_line(value.unwrap_or(&word.text), self.depth + 1, self.found);
    }

    fn started_command(&mut self, words: &[Word]) {
        if self.depth >= MAX_DEPTH {
            self.found.is_opaque = true;
            return;
        }
        self.depth += 1;
        self.command(words);
        self.depth -= 1;
    }
}

#[cfg(test)]
mod tests;
