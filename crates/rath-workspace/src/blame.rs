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
    /// True if the content of the file in that revision was forgotten: the line came from there, or from a later revision.
    pub is_forgotten: bool,
}

impl Objects {
    /// Returns the revision that wrote each line of a file, as the file is in the revision `head`; none if there is no
    /// such file.
    pub fn blame(&self, revisions: &[Revision], head: usize, path: &str) -> Result<Option<Vec<BlamedLine>>> {
        let Some(content) = read_lines(self, revisions[head].tree, path)? else { return Ok(None) };
        let texts: Vec<String> = lines(&content).map(|line| String::from_utf8_lossy(line).into_owned()).collect();
        let origins = trace(revisions, head, self, path, texts.len())?;
        let line = |(text, (revision, is_forgotten))| BlamedLine { text, revision, is_forgotten };
        let lines = texts.into_iter().zip(origins).map(line);
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

/// A file that is traced at a revision.
#[derive(Clone, PartialEq, Eq, Hash)]
struct TracedFile {
    path: String,
    /// If the content of the file at the revision was forgotten: the tree and path of a later version, whose lines are traced instead.
    later: Option<(TreeId, String)>,
}

/// Returns the revision that each line of a file came from, and true if the content of the file there was forgotten.
fn trace(
    revisions: &[Revision],
    head: usize,
    objects: &Objects,
    path: &str,
    count: usize,
) -> Result<Vec<(usize, bool)>> {
    let forgotten = objects.forgotten_files();
    let mut origins = vec![(head, false); count];
    // By revision: the files that are traced there, each with its lines.
    let mut pending: HashMap<usize, HashMap<TracedFile, Vec<TracedLine>>> = HashMap::new();
    let file = TracedFile { path: path.to_owned(), later: None };
    pending.entry(head).or_default().insert(file, (0..count).map(|line| (line, line)).collect());
    for at in (0..=head).rev() {
        for (file, mut open) in pending.remove(&at).unwrap_or_default() {
            let mut parents = revisions[at].parents.clone();
            if parents.len() > 1 {
                // In a merge, a parent with the same version of the file is traced first: all lines came from it. One whose content was
                // forgotten is traced last: all lines may have come from it.
                let version = |at: usize| objects.version(revisions[at].tree, &file.path);
                let now = version(at)?;
                let rank = |parent: usize| -> Result<u8> {
                    let then = version(parent)?;
                    let is_forgotten = then.is_some_and(|(_, id)| forgotten.contains_key(&id));
                    Ok(if then == now { 0 } else { 1 + u8::from(is_forgotten) })
                };
                let mut ranked: Vec<_> =
                    parents.into_iter().map(|parent| Ok((rank(parent)?, parent))).collect::<Result<_>>()?;
                ranked.sort_by_key(|(rank, _)| *rank);
                parents = ranked.into_iter().map(|(_, parent)| parent).collect();
            }
            for parent in parents {
                let (before, traced) =
                    trace_to_parent(objects, revisions[parent].tree, revisions[at].tree, &file, &open)?;
                let traced_ends: HashSet<usize> = traced.iter().map(|(_, end)| *end).collect();
                open.retain(|(_, end)| !traced_ends.contains(end));
                pending.entry(parent).or_default().entry(before).or_default().extend(traced);
            }
            open.into_iter().for_each(|(_, end)| origins[end] = (at, file.later.is_some()));
        }
    }
    Ok(origins)
}

/// Returns the file in the previous tree, and those lines that were there.
fn trace_to_parent(
    objects: &Objects,
    before: TreeId,
    after: TreeId,
    file: &TracedFile,
    lines: &[TracedLine],
) -> Result<(TracedFile, Vec<TracedLine>)> {
    let path = &file.path;
    if before == after || lines.is_empty() {
        return Ok((file.clone(), lines.to_vec()));
    }
    let changes = objects.diff(Some(before), after)?;
    let Some(change) = changes.iter().find(|change| change.path == *path) else {
        return Ok((file.clone(), lines.to_vec()));
    };
    let name = match &change.kind {
        ChangeKind::Modified => {
            // A file that was moved unchanged to the path of another file.
            let moved =
                changes.iter().find(|deleted| deleted.kind == ChangeKind::Deleted && deleted.before == change.after);
            moved.map_or(&**path, |deleted| &*deleted.path).to_owned()
        }
        ChangeKind::Renamed { from } => from.clone(),
        ChangeKind::Created | ChangeKind::Deleted => return Ok((file.clone(), Vec::new())),
    };
    let (tree, known) = file.later.as_ref().map_or((after, path), |(tree, path)| (*tree, path));
    let old = match read_lines(objects, before, &name) {
        // The lines are looked for in the versions before it.
        Err(error) if error.kind() == ErrorKind::Forgotten => {
            return Ok((TracedFile { path: name, later: Some((tree, known.clone())) }, lines.to_vec()));
        }
        old => old?,
    };
    let traced_file = TracedFile { path: name, later: None };
    let (Some(old), Some(new)) = (old, read_lines(objects, tree, known)?) else {
        return Ok((traced_file, Vec::new()));
    };
    let same = unchanged(&old, &new);
    let traced = lines.iter().filter_map(|(line, end)| Some((*same.get(line)?, *end))).collect();
    Ok((traced_file, traced))
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
