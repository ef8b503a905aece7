//! Calls of one round that run in parallel: the changes of each are known, in any order of their ends.

use serde_json::{Value, json};

use super::authors::{Moved, texts};
use super::observer::{State, Thing};
use super::plan::{Planned, written};
use crate::store::common::Chance;

/// Paths that only such calls write to; two that begin with the same path wait for each other.
const NAMES: [&str; 6] =
    ["side/1.txt", "side/2.txt", "side/\u{fc} 3.txt", "\"side\" 4.txt", "side 5.txt", "side/6/7.txt"];

/// Two to four calls, each with a path or two.
pub(crate) fn plan(chance: &mut Chance, state: &State, names: [String; 4]) -> Vec<Planned> {
    let is_there = |state: &State, path: &str| matches!(state.get(path.as_bytes()), Some(Thing::File { .. }));
    // In directories that exist: a directory that such a call makes has no known author.
    let free = |path: &&str| {
        let above = path.rfind('/').map(|at| state.get(&path.as_bytes()[..at]));
        above.is_none_or(|above| matches!(above, Some(Thing::Directory { .. })))
            && matches!(state.get(path.as_bytes()), None | Some(Thing::File { .. }))
    };
    let usable: Vec<&str> = NAMES.into_iter().filter(free).collect();
    let count = 2 + chance.below(3) as usize;
    let mut state = state.clone();
    let mut calls = Vec::new();
    for who in names.into_iter().take(count) {
        let pick = |chance: &mut Chance| usable[chance.below(usable.len() as u64) as usize];
        let (at, other) = (pick(chance), pick(chance));
        let lines = 1 + chance.below(4);
        let text: String = written(chance, &who, lines).iter().map(|line| format!("{line}\n")).collect();
        let old = texts(&state).find(|(path, _)| *path == at.as_bytes()).map(|(_, content)| content.clone());
        let old = old.and_then(|old| String::from_utf8(old).ok()).filter(|old| !old.is_empty());
        let wait = |chance: &mut Chance| json!({ "wait": chance.below(40) });
        let stages = |list: Vec<Value>| ("stages", json!({ "stages": list }));
        let mut moved = Moved::default();
        let ((tool, arguments), leaves) = match (chance.below(7), old) {
            (0, Some(old)) => {
                let first = old.lines().next().unwrap_or_default();
                let new = old.replacen(first, text.trim_end(), 1);
                (
                    ("edit_file", json!({ "path": at, "old_string": first, "new_string": text.trim_end() })),
                    vec![(at, Some(new))],
                )
            }
            (1, Some(_)) => (stages(vec![wait(chance), json!({ "remove": at })]), vec![(at, None)]),
            (2, Some(old)) if !is_there(&state, other) => {
                moved.files.push((at.into(), other.into()));
                let list = vec![wait(chance), json!({ "rename": at, "to": other }), wait(chance)];
                (stages(list), vec![(at, None), (other, Some(old))])
            }
            // There and back again.
            (3, old) => {
                let back = match &old {
                    Some(old) => json!({ "write": at, "text": old }),
                    None if !is_there(&state, at) => json!({ "remove": at }),
                    None => json!({ "write": at, "text": "" }),
                };
                let left = is_there(&state, at).then(|| old.unwrap_or_default());
                let list = vec![json!({ "write": at, "text": text }), wait(chance), back];
                (stages(list), vec![(at, left)])
            }
            // Made under another name, as careful programs do.
            (4, _) if at != other && !is_there(&state, other) => {
                let list = vec![
                    json!({ "write": other, "text": text }),
                    wait(chance),
                    json!({ "rename": other, "to": at }),
                    wait(chance),
                ];
                (stages(list), vec![(at, Some(text)), (other, None)])
            }
            (5 | 6, _) => {
                let list = vec![wait(chance), json!({ "write": at, "text": text }), wait(chance)];
                (stages(list), vec![(at, Some(text))])
            }
            _ => (("write_file", json!({ "path": at, "content": text })), vec![(at, Some(text))]),
        };
        let leaves: Vec<_> = leaves.into_iter().map(|(path, text)| (path.as_bytes().to_vec(), text)).collect();
        state = left(&state, &leaves);
        calls.push(Planned { who, tool, arguments, moved, leaves });
    }
    calls
}

/// A state in which some paths are as a call leaves them.
pub(crate) fn left(state: &State, leaves: &[(Vec<u8>, Option<String>)]) -> State {
    let mut state = state.clone();
    for (path, text) in leaves {
        match text {
            None => _ = state.remove(path),
            Some(text) => {
                let executable = matches!(state.get(path), Some(Thing::File { executable: true, .. }));
                state.insert(path.clone(), Thing::File { content: text.clone().into_bytes(), executable });
            }
        }
    }
    state
}
