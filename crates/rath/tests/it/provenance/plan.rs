//! Random edits: what a call is to do, given what is there. Every line that one writes names its call.

use serde_json::{Value, json};

use super::authors::{Moved, is_at, texts};
use super::observer::{State, Thing, is_ignored, lines};
use crate::store::common::Chance;

/// A call that is to be made.
#[derive(Clone, Debug)]
pub(crate) struct Planned {
    pub(crate) who: String,
    pub(crate) tool: &'static str,
    pub(crate) arguments: Value,
    pub(crate) moved: Moved,
    /// The content that it leaves at each path, for a call that runs beside others.
    pub(crate) leaves: Vec<(Vec<u8>, Option<String>)>,
}

pub(super) const NAMES: [&[u8]; 14] = [
    b"a.txt",
    b"b.txt",
    b"sub/c.txt",
    b"sub/d e.txt",
    b"sub/deep/f.txt",
    b"it's.txt",
    b"\"q\".txt",
    b"new\nline.txt",
    "\u{fc}n\u{ef}.txt".as_bytes(),
    b"caf\xe9.txt",
    b"lat\xefn/g.txt",
    b"-dash.txt",
    b"$HOME `x` *.txt",
    b"back\\slash",
];

pub(super) const DIRECTORIES: [&[u8]; 5] = [b"sub", b"other", b"lat\xefn", b"d d", b"sub/deep"];

/// The length of a line without its break: lines can be overwritten in place.
pub(crate) const WIDTH: usize = 36;

/// Creates lines of one author, all different.
pub(crate) fn written(chance: &mut Chance, who: &str, count: u64) -> Vec<String> {
    let line = |nth: u64| format!("{:.<WIDTH$}", format!("{who} line {nth} {:08x}", chance.below(1 << 32)));
    (0..count).map(line).collect()
}

/// The state from which a call is planned.
pub(crate) struct Planner<'a> {
    pub(crate) chance: &'a mut Chance,
    pub(crate) state: &'a State,
    pub(crate) who: String,
}

impl Planner<'_> {
    /// A call that runs by itself.
    pub(crate) fn plan(mut self) -> Planned {
        loop {
            let kind = self.chance.below(Planner::KINDS);
            if let Some(planned) = self.edit(kind) {
                return planned;
            }
        }
    }

    pub(super) fn one<T>(&mut self, list: &[T]) -> Option<T>
    where
        T: Clone,
    {
        if list.is_empty() { None } else { Some(list[self.chance.below(list.len() as u64) as usize].clone()) }
    }

    /// A file that holds at least so many lines.
    pub(super) fn file(&mut self, least: usize) -> Option<Vec<u8>> {
        let fits = |content: &[u8]| content.len() < 100_000 && lines(content).count() >= least;
        let files: Vec<_> =
            texts(self.state).filter(|(path, content)| *path != b".gitignore" && fits(content)).collect();
        let (path, _) = self.one(&files)?;
        Some(path.clone())
    }

    /// Picks such a path, except those that parallel calls write: their content is known, and they are no links.
    pub(super) fn apart(&mut self, least: usize) -> Option<Vec<u8>> {
        self.file(least).filter(|path| !path.starts_with(b"side") && !path.starts_with(b"\"side"))
    }

    pub(super) fn count(&self, path: &[u8]) -> u64 {
        self.content(path).map_or(0, |content| lines(content).count() as u64)
    }

    pub(super) fn content(&self, path: &[u8]) -> Option<&Vec<u8>> {
        texts(self.state).find(|(known, _)| *known == path).map(|(_, content)| content)
    }

    pub(super) fn free(&mut self, names: &[&[u8]]) -> Option<Vec<u8>> {
        let taken = |path: &[u8]| {
            let is_leaf = |known: &Vec<u8>| !matches!(self.state[known], Thing::Directory { .. });
            self.state.keys().any(|known| known == path || is_leaf(known) && is_at(path, known))
        };
        let free: Vec<_> = names.iter().filter(|path| !taken(path)).map(|path| path.to_vec()).collect();
        self.one(&free)
    }

    pub(super) fn directory(&mut self) -> Option<Vec<u8>> {
        let there = self.state.iter().filter(|(path, thing)| {
            matches!(thing, Thing::Directory { .. }) && !is_ignored(path) && !path.starts_with(b"side")
        });
        let there: Vec<_> = there.map(|(path, _)| path.clone()).collect();
        self.one(&there)
    }

    pub(super) fn line(&mut self) -> String {
        written(self.chance, &self.who, 1).remove(0)
    }

    pub(super) fn text(&mut self) -> String {
        let count = 1 + self.chance.below(6);
        written(self.chance, &self.who, count).iter().map(|line| format!("{line}\n")).collect()
    }

    pub(super) fn shell(&self, command: impl Into<String>) -> Option<Planned> {
        Some(self.call("shell", json!({ "command": command.into() })))
    }

    pub(super) fn call(&self, tool: &'static str, arguments: Value) -> Planned {
        Planned { who: self.who.clone(), tool, arguments, moved: Moved::default(), leaves: Vec::new() }
    }

    pub(super) fn python(&self, code: String) -> Option<Planned> {
        Some(self.call("run_code", json!({ "language": "python", "code": code })))
    }
}

impl Planned {
    pub(super) fn moves(mut self, from: &[u8], to: &[u8]) -> Option<Self> {
        self.moved.files.push((from.to_vec(), to.to_vec()));
        Some(self)
    }

    pub(super) fn anywhere(mut self) -> Option<Self> {
        self.moved.anywhere = true;
        Some(self)
    }
}

/// A path for a shell.
pub(super) fn sh(path: &[u8]) -> String {
    match std::str::from_utf8(path) {
        Ok(text) => format!("'./{}'", text.replace('\'', r"'\''")),
        Err(_) => {
            let octal: String = path.iter().map(|byte| format!("\\{byte:03o}")).collect();
            format!("\"./$(printf '{octal}')\"")
        }
    }
}

/// A path for Python.
pub(super) fn py(path: &[u8]) -> String {
    let hex: String = path.iter().map(|byte| format!("\\x{byte:02x}")).collect();
    format!("b'{hex}'")
}

/// Makes the directory that a path lies in.
pub(super) fn above(path: &[u8]) -> String {
    let at = path.iter().rposition(|byte| *byte == b'/');
    at.map_or_else(String::new, |at| format!("mkdir -p {}; ", sh(&path[..at])))
}

pub(super) fn here(path: &[u8], text: &str) -> String {
    format!("{}cat > {} <<'END'\n{text}END\n", above(path), sh(path))
}
