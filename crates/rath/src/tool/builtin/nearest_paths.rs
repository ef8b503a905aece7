//! Finding the paths that a model may have meant by one where nothing is.

use std::collections::VecDeque;

use super::tree::{Directory, MAX_DEPTH};
use crate::sandbox::{FileKind, Sandbox};
use crate::session::{Error, Result};

/// The number of paths that an error names.
const MAX_NAMED_PATHS: usize = 3;
/// The number of entries of directories that are looked at.
const MAX_LOOKED_ENTRIES: usize = 5_000;
/// The number of bytes of the longest name that is compared letter by letter.
const MAX_COMPARED_BYTES: usize = 100;

/// Adds the nearest paths to the error of an operation, if nothing is at its path.
pub(super) async fn with_nearest_paths(sandbox: &Sandbox, path: &str, error: Error) -> Error {
    if !matches!(sandbox.stat(path).await, Ok(None)) {
        return error;
    }
    let paths: Vec<_> = nearest_paths(sandbox, path).await.iter().map(|path| format!("`{path}`")).collect();
    match paths.is_empty() {
        true => error,
        false => Error::new(error.kind(), format_args!("{}; nearest: {}", error.message(), paths.join(", "))),
    }
}

/// Adds the nearest paths to the error of a result: see [`with_nearest_paths`].
pub(super) async fn or_nearest_paths<T>(sandbox: &Sandbox, path: &str, result: Result<T>) -> Result<T> {
    match result {
        Ok(value) => Ok(value),
        Err(error) => Err(with_nearest_paths(sandbox, path, error).await),
    }
}

/// Returns the paths that are most like one where nothing is: those with a similar name beside it, and those with its name elsewhere.
async fn nearest_paths(sandbox: &Sandbox, path: &str) -> Vec<String> {
    let parts: Vec<_> = path.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
    let Some(last) = parts.last().filter(|_| !parts.contains(&"..") && !path.starts_with('/')) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    // The first name that is missing, in the directories that are there.
    for (nth, missing) in parts.iter().enumerate() {
        let above = parts[..nth].join("/");
        let Ok(entries) = sandbox.list(&above).await else { break };
        if entries.iter().any(|entry| entry.name == **missing) {
            continue;
        }
        let mut near: Vec<_> = entries
            .iter()
            .take(MAX_LOOKED_ENTRIES)
            .filter_map(|entry| Some((name_distance(&entry.name, missing)?, &entry.name)))
            .collect();
        near.sort();
        for (_, name) in near.into_iter().take(MAX_NAMED_PATHS) {
            let beside: Vec<_> = parts[..nth].iter().copied().chain([name.as_str()]).collect();
            let whole: Vec<_> = beside.iter().copied().chain(parts[nth + 1..].iter().copied()).collect();
            let whole = whole.join("/");
            // Below a directory with a similar name, the rest of the path may be right.
            let is_there = matches!(sandbox.stat(&whole).await, Ok(Some(_)));
            found.push(if is_there { whole } else { beside.join("/") });
        }
        break;
    }
    if found.len() < MAX_NAMED_PATHS {
        for path in paths_with_name(sandbox, last).await {
            if !found.contains(&path) {
                found.push(path);
            }
        }
    }
    found.truncate(MAX_NAMED_PATHS);
    found
}

/// Returns paths anywhere in the workspace whose last name is this one, except in directories that ignore rules exclude.
async fn paths_with_name(sandbox: &Sandbox, name: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut waiting = VecDeque::from([Directory::open(sandbox, "").await]);
    let mut looked = 0;
    while let Some(mut directory) = waiting.pop_front() {
        let Ok(children) = directory.children(sandbox).await else { continue };
        for child in children {
            looked += 1;
            if looked > MAX_LOOKED_ENTRIES || found.len() == MAX_NAMED_PATHS {
                return found;
            }
            if child.entry.name.eq_ignore_ascii_case(name) {
                found.push(child.path.clone());
            }
            if child.entry.kind == FileKind::Directory && !child.ignored && directory.depth < MAX_DEPTH {
                waiting.push_back(directory.below(&child));
            }
        }
        tokio::task::yield_now().await;
    }
    found
}

/// Returns the number of letters in which two names differ; none if the names are not similar.
fn name_distance(one: &str, other: &str) -> Option<usize> {
    let (one, other) = (one.to_lowercase(), other.to_lowercase());
    if one.len().max(other.len()) > MAX_COMPARED_BYTES {
        return (one == other).then_some(0);
    }
    let stem = |name: &str| name.rsplit_once('.').map_or(name.to_owned(), |(stem, _)| stem.to_owned());
    if stem(&one) == stem(&other) && !stem(&one).is_empty() {
        return Some(usize::from(one != other));
    }
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (nth, a) in one.iter().enumerate() {
        let mut above_left = row[0];
        row[0] = nth + 1;
        for (at, b) in other.iter().enumerate() {
            let changed = above_left + usize::from(a != b);
            above_left = row[at + 1];
            row[at + 1] = changed.min(row[at] + 1).min(above_left + 1);
        }
    }
    // Two letters that are swapped are one mistake.
    let is_swapped = row[other.len()] == 2
        && one.len() == other.len()
        && {
            let mut differing = (0..one.len()).filter(|at| one[*at] != other[*at]);
            matches!((differing.next(), differing.next()), (Some(a), Some(b)) if b == a + 1 && one[a] == other[b] && one[b] == other[a])
        };
    let distance = if is_swapped { 1 } else { row[other.len()] };
    (distance <= (one.len().max(other.len()) / 3).max(1)).then_some(distance)
}

#[cfg(test)]
mod tests {
    use super::name_distance;

    #[test]
    fn names_are_similar_that_differ_in_few_letters() {
        for (one, other, expected) in [
            ("main.rs", "main.rs", Some(0)),
            ("main.rs", "Main.rs", Some(0)),
            ("main.rs", "main.ts", Some(1)),
            ("main.rs", "mian.rs", Some(1)),
            ("long", "none", None),
            ("config.toml", "config", Some(1)),
            ("src", "scr", Some(1)),
            ("tests", "test", Some(1)),
            ("a", "b", Some(1)),
            ("readme.md", "main.rs", None),
            (".git", ".env", None),
            ("äöü", "äüö", Some(1)),
        ] {
            assert_eq!(name_distance(one, other), expected, "{one} {other}");
        }
    }
}
