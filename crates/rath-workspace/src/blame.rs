//! The revision that each line of a file came from.
//!
//! Lines are followed back from tree to tree as long as they are found there unchanged. The revision where a line is not
//! found in any parent is the one that wrote it.
//!
//! A file that is renamed, or moved to the path of another file, keeps the authors of its lines. A copy belongs to the
//! revision that made it. Lines that change places within a file are followed as far as a diff of lines finds them.

use std::collections::{HashMap, HashSet};

use crate::change::ChangeKind;
use crate::error::{Error, ErrorKind, Result};
use crate::lines::{LineIds, common};
use crate::objects::Objects;
use crate::tree::TreeId;

/// One version in a history: its tree, and the positions of the versions that it came from.
///
/// ```
/// use rath_workspace::Revision;
/// # use rath_workspace::{Objects, Workspace};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let temp = tempfile::tempdir()?;
/// # let project = temp.path().join("project");
/// # std::fs::create_dir(&project)?;
/// # let objects = Objects::open(&temp.path().join("versions"))?;
/// # let mut workspace = Workspace::open(&project, &objects, &temp.path().join("index"))?;
/// std::fs::write(project.join("notes.txt"), "one\n")?;
/// let first = Revision { tree: workspace.snapshot()?.tree, parents: vec![] };
/// std::fs::write(project.join("notes.txt"), "one\ntwo\n")?;
/// let second = Revision { tree: workspace.snapshot()?.tree, parents: vec![0] };
///
/// let lines = objects.blame(&[first, second], 1, "notes.txt")?.expect("the file exists");
/// assert_eq!((lines[0].text.as_str(), lines[0].revision), ("one", 0));
/// assert_eq!((lines[1].text.as_str(), lines[1].revision), ("two", 1));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Revision {
    /// The tree.
    pub tree: TreeId,
    /// The positions of its parents, each before its own.
    pub parents: Vec<usize>,
}

/// One line of a file, and the revision that wrote it.
///
/// Returned by [`Objects::blame`]. See [`Revision`] for an example.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlamedLine {
    /// The text, without the line break.
    pub text: String,
    /// The position of the revision in the history.
    pub revision: usize,
}

impl Objects {
    /// Returns the revision that wrote each line of a file, as the file is in the revision `head`; none if there is no
    /// such file.
    pub fn blame(&self, revisions: &[Revision], head: usize, path: &str) -> Result<Option<Vec<BlamedLine>>> {
        let Some(content) = read_lines(self, revisions[head].tree, path)? else { return Ok(None) };
        let texts: Vec<String> = lines(&content).map(|line| String::from_utf8_lossy(line).into_owned()).collect();
        let origins = trace(revisions, head, self, path, texts.len())?;
        let lines = texts.into_iter().zip(origins).map(|(text, revision)| BlamedLine { text, revision });
        Ok(Some(lines.collect()))
    }
}

/// The most bytes of a file whose lines are traced.
const MAX_BLAME_BYTES: u64 = 32 << 20;

/// Reads a version of a file. Fails if it is too large for its lines to be traced.
fn read_lines(objects: &Objects, tree: TreeId, path: &str) -> Result<Option<Vec<u8>>> {
    objects.read_at_most(tree, path, MAX_BLAME_BYTES).map_err(|error| match error.kind() {
        ErrorKind::TooLarge => {
            let message = format!("`{path}` has more than {} MiB: its lines are not traced", MAX_BLAME_BYTES >> 20);
            Error::new(ErrorKind::TooLarge, message)
        }
        _ => error,
    })
}

/// A line: its number in one version of the file, and its number in the final version.
type TracedLine = (usize, usize);

/// Returns the revision that each line of a file came from.
fn trace(revisions: &[Revision], head: usize, objects: &Objects, path: &str, count: usize) -> Result<Vec<usize>> {
    let mut origins = vec![head; count];
    // By revision: the paths that are traced there, each with its lines.
    let mut pending: HashMap<usize, HashMap<String, Vec<TracedLine>>> = HashMap::new();
    pending.entry(head).or_default().insert(path.to_owned(), (0..count).map(|line| (line, line)).collect());
    for at in (0..=head).rev() {
        for (path, mut open) in pending.remove(&at).unwrap_or_default() {
            // In a merge, a parent with the same version of the file is traced first: all lines came from it.
            let version = |at: usize| objects.version(revisions[at].tree, &path);
            let mut parents = revisions[at].parents.clone();
            if parents.len() > 1 {
                let now = version(at)?;
                let same: Vec<bool> =
                    parents.iter().map(|parent| Ok(version(*parent)? == now)).collect::<Result<_>>()?;
                let (first, rest): (Vec<_>, Vec<_>) = parents.into_iter().zip(same).partition(|(_, same)| *same);
                parents = first.into_iter().chain(rest).map(|(parent, _)| parent).collect();
            }
            for parent in parents {
                let (name, traced) =
                    trace_to_parent(objects, revisions[parent].tree, revisions[at].tree, &path, &open)?;
                let traced_ends: HashSet<usize> = traced.iter().map(|(_, end)| *end).collect();
                open.retain(|(_, end)| !traced_ends.contains(end));
                pending.entry(parent).or_default().entry(name).or_default().extend(traced);
            }
            open.into_iter().for_each(|(_, end)| origins[end] = at);
        }
    }
    Ok(origins)
}

/// Returns the path of the file in the previous tree, and those lines that were there.
fn trace_to_parent(
    objects: &Objects,
    before: TreeId,
    after: TreeId,
    path: &str,
    lines: &[TracedLine],
) -> Result<(String, Vec<TracedLine>)> {
    if before == after || lines.is_empty() {
        return Ok((path.to_owned(), lines.to_vec()));
    }
    let changes = objects.diff(Some(before), after)?;
    let Some(change) = changes.iter().find(|change| change.path == path) else {
        return Ok((path.to_owned(), lines.to_vec()));
    };
    let name = match &change.kind {
        ChangeKind::Modified => {
            // A file that was moved unchanged to the path of another file.
            let moved =
                changes.iter().find(|deleted| deleted.kind == ChangeKind::Deleted && deleted.before == change.after);
            moved.map_or(path, |deleted| &*deleted.path).to_owned()
        }
        ChangeKind::Renamed { from } => from.clone(),
        ChangeKind::Created | ChangeKind::Deleted => return Ok((path.to_owned(), Vec::new())),
    };
    let (Some(old), Some(new)) = (read_lines(objects, before, &name)?, read_lines(objects, after, path)?) else {
        return Ok((name, Vec::new()));
    };
    let same = unchanged(&old, &new);
    let traced = lines.iter().filter_map(|(line, end)| Some((*same.get(line)?, *end))).collect();
    Ok((name, traced))
}

/// Returns the lines of a file, without line breaks.
fn lines(content: &[u8]) -> impl Iterator<Item = &[u8]> {
    let text = content.strip_suffix(b"\n").unwrap_or(content);
    let count = if content.is_empty() { 0 } else { usize::MAX };
    text.split(|byte| *byte == b'\n').take(count)
}

/// Returns the lines of the new text that are in the old text too, with their numbers there.
fn unchanged(old: &[u8], new: &[u8]) -> HashMap<usize, usize> {
    let mut ids = LineIds::default();
    let (old, new): (Vec<_>, Vec<_>) = (lines(old).collect(), lines(new).collect());
    common(&ids.assign(&old), &ids.assign(&new)).into_iter().map(|(old, new)| (new, old)).collect()
}
