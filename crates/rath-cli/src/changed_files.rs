//! The files that a run changed, and which of them other programs run.

use std::collections::{BTreeMap, BTreeSet};

use rath::policy::{RunsLater, runs_later};
use rath::prelude::*;
use rath::record::chunk::Change;
use rath::record::draw::one_line;
use rath::{CallId, StepId};

/// The existence of a changed file before a run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WasThere {
    Yes,
    No,
}

/// Returns the files that a run changed, which began after a step.
pub(crate) fn changed_files(session: &Session, start: Option<StepId>) -> BTreeMap<String, WasThere> {
    let steps = session.as_record().newest_first().take_while(|step| Some(step.id()) != start);
    let (mut results, mut commits) = (Vec::new(), BTreeSet::new());
    for step in steps {
        match step.chunk() {
            Chunk::ToolResult(result) => results.push(result),
            Chunk::Assistant(answer) => {
                commits.extend(answer.calls.iter().filter(|call| &*call.tool == "commit").map(|call| &call.id));
            }
            _ => {}
        }
    }
    // A commit changes `.git`, as the person who approved it expects.
    let is_expected = |call: &CallId, path: &str| path == ".git" && commits.contains(call);
    let mut changed = BTreeMap::new();
    // The oldest first: the first change of a file says whether it was there.
    for result in results.iter().rev() {
        for effect in result.effects.iter().filter(|effect| !is_expected(&result.call, &effect.path)) {
            // A file that was renamed is new at its path.
            let was_there = match effect.change {
                Change::Modified | Change::Deleted => WasThere::Yes,
                _ => WasThere::No,
            };
            changed.entry(effect.path.to_string()).or_insert(was_there);
        }
    }
    changed
}

/// Lists the changed files that other programs run; none if there are none.
///
/// Those that are run unasked come first and are all named, up to a limit. Of the others, files that were there before the run come
/// first, then those of few directories: a run cannot hide a file behind new ones.
pub(crate) fn list_run_later(changed: BTreeMap<String, WasThere>) -> Option<String> {
    const SHOWN_UNASKED: usize = 100;
    let (mut unasked, mut on_build) = (Vec::new(), Vec::new());
    for (path, was_there) in changed {
        let key = (was_there, path.matches('/').count(), one_line(&path));
        match runs_later(&path) {
            Some(RunsLater::Unasked) => unasked.push(key),
            Some(_) => on_build.push(key),
            None => {}
        }
    }
    let names = |mut files: Vec<(WasThere, usize, String)>| {
        files.sort();
        files.into_iter().map(|(_, _, name)| name).collect::<Vec<_>>()
    };
    let lists = [shorten_to(&names(unasked), SHOWN_UNASKED), shorten_list(&names(on_build))];
    let lists: Vec<_> = lists.into_iter().filter(|list| !list.is_empty()).collect();
    (!lists.is_empty()).then(|| lists.join(", "))
}

/// Joins the first words of a list, and counts the others.
pub(crate) fn shorten_list(words: &[String]) -> String {
    const SHOWN_WORDS: usize = 10;
    shorten_to(words, SHOWN_WORDS)
}

fn shorten_to(words: &[String], most: usize) -> String {
    let mut shown: Vec<_> = words.iter().take(most).cloned().collect();
    if words.len() > most {
        shown.push(format!("and {} more", words.len() - most));
    }
    shown.join(", ")
}
