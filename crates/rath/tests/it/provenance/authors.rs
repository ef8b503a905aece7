//! The possible authors of a line. Every line names its author, so no diff is needed to know.
//!
//! A line is of the call that it names. One that a call copied to another file is of that call. One that went with its file
//! to another path stays whose it was. Where lines or whole files changed places with each other, a line may be of the call
//! that moved it or stay whose it was, and nobody else's.

use std::collections::{BTreeMap, BTreeSet};

use super::observer::{State, Thing, lines};

/// By path and line: who may have written it.
pub(crate) type Authors = BTreeMap<Vec<u8>, BTreeMap<Vec<u8>, BTreeSet<String>>>;

/// The effect of a call on lines that it did not write.
#[derive(Clone, Debug, Default)]
pub(crate) struct Moved {
    /// Files, and directories with all that is in them, that went from one path to another.
    pub(crate) files: Vec<(Vec<u8>, Vec<u8>)>,
    /// Lines may have gone anywhere.
    pub(crate) anywhere: bool,
}

/// Returns true if a line names its author.
fn names(line: &[u8], who: &str) -> bool {
    line.strip_prefix(who.as_bytes()).is_some_and(|rest| rest.starts_with(b" "))
}

/// The authors of what is there at first.
pub(crate) fn begin(state: &State, who: &str) -> Authors {
    after(&Authors::new(), state, who, &Moved::default())
}

/// Returns the authors after an author has left the files as they are now.
pub(crate) fn after(before: &Authors, state: &State, who: &str, moved: &Moved) -> Authors {
    let me = || BTreeSet::from([who.to_owned()]);
    let anybody = |line: &[u8]| -> BTreeSet<String> {
        before.values().filter_map(|lines| lines.get(line)).flatten().cloned().collect()
    };
    let mut authors = Authors::new();
    for (path, content) in texts(state) {
        let old = before.get(path);
        let sources: Vec<_> = moved.files.iter().filter(|(_, to)| is_at(path, to)).map(|(from, _)| from).collect();
        let known = authors.entry(path.clone()).or_default();
        for line in lines(content) {
            let mut set = if names(line, who) {
                me()
            } else {
                // Of two that are the same, and moved at once, either may be the one that came here.
                let came = before.iter().filter(|(path, _)| sources.iter().any(|from| is_at(path, from)));
                let came = came.filter_map(|(_, lines)| lines.get(line));
                old.and_then(|old| old.get(line)).into_iter().chain(came).flatten().cloned().collect()
            };
            if moved.anywhere && !names(line, who) {
                set.extend(me().into_iter().chain(anybody(line)));
            }
            known.insert(line.to_vec(), if set.is_empty() { me() } else { set });
        }
    }
    authors
}

/// The authors of what came of a merge.
pub(crate) fn joined(sides: [(&State, &Authors); 2], state: &State) -> Authors {
    let mut authors = Authors::new();
    for (path, content) in texts(state) {
        // A file that is as one side left it is that side's.
        let has_it = |side: &State| matches!(side.get(path), Some(Thing::File { content: had, .. }) if had == content);
        let whose: Vec<_> = sides.iter().filter(|(side, _)| has_it(side)).collect();
        let sides: Vec<_> = if whose.is_empty() { sides.iter().collect() } else { whose };
        let known = authors.entry(path.clone()).or_default();
        for line in lines(content) {
            // Where one side moved the file, the other may have written in it where it was.
            let of = |side: &Authors| -> Vec<String> {
                match side.get(path) {
                    Some(lines) => lines.get(line).into_iter().flatten().cloned().collect(),
                    None => side.values().filter_map(|lines| lines.get(line)).flatten().cloned().collect(),
                }
            };
            known.insert(line.to_vec(), sides.iter().flat_map(|(_, side)| of(side)).collect());
        }
    }
    authors
}

/// Returns true if a path is this one, or below it.
pub(crate) fn is_at(path: &[u8], above: &[u8]) -> bool {
    path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

/// The files that hold text.
pub(crate) fn texts(state: &State) -> impl Iterator<Item = (&Vec<u8>, &Vec<u8>)> {
    state.iter().filter_map(|(path, thing)| match thing {
        Thing::File { content, .. } => Some((path, content)),
        _ => None,
    })
}
