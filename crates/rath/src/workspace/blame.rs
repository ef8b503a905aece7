//! Which step each line of a file came from.
//!
//! Lines are passed back from tree to tree as long as they are found there unchanged. Where one is not found any further,
//! the step that left the tree wrote it. What a shell command wrote is found like anything else: trees are what was observed.
//!
//! A file that is renamed, or moved as it is to where another was, brings its lines with it. A copy is the work of the call
//! that made it. Lines that change places within a file are found as far as a diff of lines finds them; the others are of the
//! call that moved them.

use std::collections::{HashMap, HashSet};

use rath_record::chunk::{Call, Change, Chunk, Tree};
use rath_record::view::{self, Freshness, Trees};
use rath_record::{Digest, Record, Step, StepId};

use super::lines::{Numbers, common};
use super::objects::Objects;
use crate::session::Result;

/// Where every line of a file came from.
#[derive(Clone, Debug)]
pub struct Blame {
    /// The path.
    pub path: String,
    /// Its lines, in order.
    pub lines: Vec<Line>,
}

/// One line of a file, and where it came from.
#[derive(Clone, Debug)]
pub struct Line {
    /// What it says, without the line break.
    pub text: String,
    /// The step that left it so.
    pub step: StepId,
    /// What it came from.
    pub origin: Origin,
    /// The checks that saw it and still hold, by name.
    pub checks: Vec<String>,
}

/// What a line came from.
#[derive(Clone, Debug, PartialEq)]
pub enum Origin {
    /// It was there when the workspace was first looked at.
    Before,
    /// Somebody else wrote it: no call on this record did.
    Outside,
    /// A call wrote it.
    Call(Author),
    /// It came of a merge, or of a decision on a conflict.
    Merge,
}

/// The call that wrote a line, and who asked for it.
#[derive(Clone, Debug, PartialEq)]
pub struct Author {
    /// The call.
    pub call: Call,
    /// The module that made it.
    pub by: Option<String>,
    /// The answer that asked for it.
    pub answer: StepId,
    /// The digest of the request that the answer came of.
    pub request: Option<Digest>,
}

/// Where every line of a file came from, as it is at the head of a record; none if there is no such file.
pub(crate) fn blame(record: &Record, objects: &Objects, path: &str) -> Result<Option<Blame>> {
    let trees = view::trees(record);
    let Some(head) = trees.head.and_then(|head| trees.at(head)) else { return Ok(None) };
    let Some(content) = objects.read(trees.list[head].tree, path)? else { return Ok(None) };
    let texts: Vec<String> = lines(&content).map(|line| String::from_utf8_lossy(line).into_owned()).collect();
    let found = trace(&trees, head, objects, path, texts.len())?;
    let depends = |inputs: &[String]| inputs.is_empty() || inputs.iter().any(|input| view::covers(input, path));
    let fresh = view::checks(record).list.into_iter();
    let fresh = fresh.filter(|(_, it)| it.freshness == Freshness::Fresh && depends(&it.checked.inputs));
    let checks: Vec<_> = fresh.filter_map(|(name, check)| Some((name, trees.at(check.step.id())?))).collect();
    // Many lines come from few places.
    let mut known: HashMap<usize, (Origin, Vec<String>)> = HashMap::new();
    let lines = texts.into_iter().zip(found).map(|(text, at)| {
        let (origin, checks) = known.entry(at).or_insert_with(|| {
            let saw =
                checks.iter().filter(|(_, saw)| trees.descends_from(*saw, at)).map(|(name, _)| (*name).to_owned());
            (origin(&trees, at), saw.collect())
        });
        Line { text, step: trees.list[at].step.id(), origin: origin.clone(), checks: checks.clone() }
    });
    Ok(Some(Blame { path: path.to_owned(), lines: lines.collect() }))
}

fn origin(trees: &Trees<'_>, at: usize) -> Origin {
    let step = trees.list[at].step;
    match step.chunk() {
        Chunk::Observed(_) if trees.list[at].before.is_empty() => Origin::Before,
        Chunk::ToolResult(_) => author(step).map_or(Origin::Outside, Origin::Call),
        Chunk::Merged(_) | Chunk::Decided(_) => Origin::Merge,
        _ => Origin::Outside,
    }
}

fn author(result: &Step) -> Option<Author> {
    let (call, answer) = view::find_call(result)?;
    let request = match answer.chunk() {
        Chunk::Assistant(answer) => answer.request,
        _ => None,
    };
    let by = answer.stamp().by.as_ref().map(|by| by.to_string());
    Some(Author { call: call.clone(), by, answer: answer.id(), request })
}

/// A line, by its number in one version of a file and by its number in the end.
type Followed = (usize, usize);

/// The tree that each line of a file came from.
fn trace(trees: &Trees<'_>, head: usize, objects: &Objects, path: &str, count: usize) -> Result<Vec<usize>> {
    let mut found = vec![head; count];
    // By tree: the paths that are followed there, each with its lines.
    let mut waiting: HashMap<usize, HashMap<String, Vec<Followed>>> = HashMap::new();
    waiting.entry(head).or_default().insert(path.to_owned(), (0..count).map(|line| (line, line)).collect());
    for at in (0..=head).rev() {
        for (path, mut left) in waiting.remove(&at).unwrap_or_default() {
            // Where sides were joined, one that had the file just so had it from nobody else.
            let version = |at: usize| objects.version(trees.list[at].tree, &path);
            let mut sides = trees.list[at].before.clone();
            if sides.len() > 1 {
                let now = version(at)?;
                let same: Vec<bool> = sides.iter().map(|side| Ok(version(*side)? == now)).collect::<Result<_>>()?;
                let (first, rest): (Vec<_>, Vec<_>) = sides.into_iter().zip(same).partition(|(_, same)| *same);
                sides = first.into_iter().chain(rest).map(|(side, _)| side).collect();
            }
            for before in sides {
                let (name, passed) = pass(objects, trees.list[before].tree, trees.list[at].tree, &path, &left)?;
                let gone: HashSet<usize> = passed.iter().map(|(_, end)| *end).collect();
                left.retain(|(_, end)| !gone.contains(end));
                waiting.entry(before).or_default().entry(name).or_default().extend(passed);
            }
            left.into_iter().for_each(|(_, end)| found[end] = at);
        }
    }
    Ok(found)
}

/// What of these lines was there before, and what the file was called then.
fn pass(
    objects: &Objects,
    before: &Tree,
    after: &Tree,
    path: &str,
    lines: &[Followed],
) -> Result<(String, Vec<Followed>)> {
    if before == after || lines.is_empty() {
        return Ok((path.to_owned(), lines.to_vec()));
    }
    let effects = objects.diff(Some(before), after)?;
    let Some(effect) = effects.iter().find(|effect| effect.path == path) else {
        return Ok((path.to_owned(), lines.to_vec()));
    };
    let name = match &effect.change {
        Change::Modified => {
            // A file that was moved as it was to where another had been.
            let moved = effects.iter().find(|gone| gone.change == Change::Deleted && gone.before == effect.after);
            moved.map_or(path, |gone| &*gone.path).to_owned()
        }
        Change::Renamed { from } => from.clone(),
        Change::Created | Change::Deleted => return Ok((path.to_owned(), Vec::new())),
    };
    let (Some(old), Some(new)) = (objects.read(before, &name)?, objects.read(after, path)?) else {
        return Ok((name, Vec::new()));
    };
    let same = unchanged(&old, &new);
    let passed = lines.iter().filter_map(|(line, end)| Some((*same.get(line)?, *end))).collect();
    Ok((name, passed))
}

fn lines(content: &[u8]) -> impl Iterator<Item = &[u8]> {
    let whole = content.strip_suffix(b"\n").unwrap_or(content);
    let most = if content.is_empty() { 0 } else { usize::MAX };
    whole.split(|byte| *byte == b'\n').take(most)
}

/// The lines of the new text that are in the old one too, with their numbers there.
fn unchanged(old: &[u8], new: &[u8]) -> HashMap<usize, usize> {
    let mut numbers = Numbers::default();
    let (old, new): (Vec<_>, Vec<_>) = (lines(old).collect(), lines(new).collect());
    common(&numbers.of(&old), &numbers.of(&new)).into_iter().map(|(old, new)| (new, old)).collect()
}
