//! Patches between two trees, in git's format.

use std::fmt::Write as _;
use std::io::Write as _;

use flate2::Compression;
use flate2::write::ZlibEncoder;

use crate::change::{ChangeKind, FileChange};
use crate::error::{ErrorKind, Result};
use crate::lines::{Hunk, LineIds, diff, is_binary, lines};
use crate::objects::{ObjectKind, Objects};
use crate::queries::TreeReader;
use crate::tree::{Mode, TreeId};
use crate::{ObjectId, forgotten, paths};

/// The number of unchanged lines around a change.
const CONTEXT_LINES: usize = 3;

/// A file on one side; none if it does not exist there.
type PatchSide = Option<PatchFile>;

/// A file of a patch.
struct PatchFile {
    mode: Mode,
    id: ObjectId,
    /// None if it was removed on purpose.
    content: Option<Vec<u8>>,
}

impl Objects {
    /// Returns a patch from one tree to another, which `git apply` accepts.
    pub fn patch(&self, before: TreeId, after: TreeId) -> Result<String> {
        let mut text = String::new();
        let (mut before_files, mut after_files) = (TreeReader::new(self, before), TreeReader::new(self, after));
        for FileChange { path, kind: change, .. } in self.diff(Some(before), after)? {
            let from = match change {
                ChangeKind::Renamed { from } => from,
                _ => path.clone(),
            };
            let (old, new) = (self.side(&mut before_files, &from)?, self.side(&mut after_files, &path)?);
            let is_link = |side: &PatchSide| side.as_ref().is_some_and(|file| file.mode == Mode::Link);
            let is_renamed_link = from != path && is_link(&old);
            if old.is_some() && new.is_some() && (is_link(&old) != is_link(&new) || is_renamed_link) {
                // Git describes a file that becomes a link as a deletion and a creation. A renamed link is described in the
                // same way: a rename does not say that it is a link, and git then creates no file below its old path.
                write(&mut text, (&from, &old), (&from, &None));
                write(&mut text, (&path, &None), (&path, &new));
            } else {
                write(&mut text, (&from, &old), (&path, &new));
            }
        }
        Ok(text)
    }

    /// Reads a file of a tree.
    fn side(&self, files: &mut TreeReader<'_>, path: &str) -> Result<PatchSide> {
        let Some((mode, id)) = files.version(&paths::parse_path(path)?)? else { return Ok(None) };
        let content = match self.get(id, ObjectKind::Blob) {
            Err(error) if error.kind() == ErrorKind::Forgotten => None,
            content => Some(content?),
        };
        Ok(Some(PatchFile { mode, id, content }))
    }
}

/// Writes the patch of one file.
fn write(text: &mut String, (from, old): (&str, &PatchSide), (to, new): (&str, &PatchSide)) {
    let (a, b) = (paths::patch_path("a", from), paths::patch_path("b", to));
    let is_forgotten = |side: &PatchSide| side.as_ref().is_some_and(|file| file.content.is_none());
    let id = |side: &PatchSide| side.as_ref().map_or_else(|| "0".repeat(40), |file| file.id.to_string());
    let name = |side: &PatchSide, name: &str| if side.is_some() { name.to_owned() } else { "/dev/null".to_owned() };
    let has_changed = id(old) != id(new);
    if has_changed {
        // Git skips lines before the first header.
        for (path, _) in [(from, old), (to, new)].into_iter().filter(|(_, side)| is_forgotten(side)) {
            let _ = writeln!(text, "{}", forgotten::forgotten_file(path));
        }
    }
    let _ = writeln!(text, "diff --git {a} {b}");
    let _ = match (old, new) {
        (None, Some(new)) => writeln!(text, "new file mode {}", new.mode.octal()),
        (Some(old), None) => writeln!(text, "deleted file mode {}", old.mode.octal()),
        (Some(old), Some(new)) if old.mode != new.mode => {
            writeln!(text, "old mode {}\nnew mode {}", old.mode.octal(), new.mode.octal())
        }
        _ => Ok(()),
    };
    if from != to {
        let _ = writeln!(text, "rename from {}\nrename to {}", paths::patch_path("", from), paths::patch_path("", to));
    }
    if has_changed && (is_forgotten(old) || is_forgotten(new)) {
        // A patch that git refuses to apply, instead of one that would write another content.
        let names = (name(old, &a), name(new, &b));
        let _ = writeln!(text, "index {}..{}\nBinary files {} and {} differ", id(old), id(new), names.0, names.1);
        return;
    }
    let (old_content, new_content) = (content(old), content(new));
    if old_content == new_content {
        return;
    }
    let is_text = |content: &[u8]| !is_binary(content) && std::str::from_utf8(content).is_ok();
    if !is_text(old_content) || !is_text(new_content) {
        let _ = writeln!(text, "index {}..{}\nGIT binary patch", id(old), id(new));
        // A binary patch contains both directions.
        write_binary(text, new_content);
        write_binary(text, old_content);
        return;
    }
    write_texts(text, (&name(old, &a), old_content), (&name(new, &b), new_content));
}

/// Returns the difference between two versions of a text file, as in a patch. A file that did not exist has no version before, and one
/// that is deleted has none after.
///
/// ```
/// let patch = rath_workspace::text_patch("a.txt", None, Some("one\n"));
/// assert_eq!(patch, "--- /dev/null\n+++ b/a.txt\n@@ -0,0 +1,1 @@\n+one\n");
/// ```
pub fn text_patch(path: &str, before: Option<&str>, after: Option<&str>) -> String {
    let (a, b) = (paths::patch_path("a", path), paths::patch_path("b", path));
    let mut text = String::new();
    let a = if before.is_some() { &a } else { "/dev/null" };
    let b = if after.is_some() { &b } else { "/dev/null" };
    let (before, after) = (before.unwrap_or_default(), after.unwrap_or_default());
    write_texts(&mut text, (a, before.as_bytes()), (b, after.as_bytes()));
    text
}

/// Writes the changed lines of a text file.
fn write_texts(text: &mut String, (a, old): (&str, &[u8]), (b, new): (&str, &[u8])) {
    let _ = writeln!(text, "--- {a}\n+++ {b}");
    let (old, new) = (lines(old), lines(new));
    let mut ids = LineIds::default();
    let hunks = diff(&ids.assign(&old), &ids.assign(&new));
    // Hunks whose context lines would touch are written together.
    for group in hunks.chunk_by(|one, next| next.before.start - one.before.end <= 2 * CONTEXT_LINES) {
        write_hunks(text, group, &old, &new);
    }
}

fn content(side: &PatchSide) -> &[u8] {
    side.as_ref().and_then(|file| file.content.as_deref()).unwrap_or_default()
}

/// Writes hunks that are close to each other, with the context lines around them.
fn write_hunks(text: &mut String, hunks: &[Hunk], old: &[&[u8]], new: &[&[u8]]) {
    let (Some(first), Some(last)) = (hunks.first(), hunks.last()) else { return };
    let ahead = first.before.start.min(CONTEXT_LINES);
    let behind = (old.len() - last.before.end).min(CONTEXT_LINES);
    let (start, end) = (first.before.start - ahead, last.before.end + behind);
    let after = first.after.start - ahead..last.after.end + behind;
    let place = |start: usize, length: usize| format!("{},{length}", if length == 0 { start } else { start + 1 });
    let _ = writeln!(text, "@@ -{} +{} @@", place(start, end - start), place(after.start, after.len()));
    let mut at = start;
    for hunk in hunks {
        old[at..hunk.before.start].iter().for_each(|line| write_line(text, ' ', line));
        old[hunk.before.clone()].iter().for_each(|line| write_line(text, '-', line));
        new[hunk.after.clone()].iter().for_each(|line| write_line(text, '+', line));
        at = hunk.before.end;
    }
    old[at..end].iter().for_each(|line| write_line(text, ' ', line));
}

fn write_line(text: &mut String, mark: char, line: &[u8]) {
    text.push(mark);
    text.push_str(&String::from_utf8_lossy(line));
    if !line.ends_with(b"\n") {
        text.push_str("\n\\ No newline at end of file\n");
    }
}

/// Writes binary content in git's format: compressed, in base 85, up to 52 bytes a line.
fn write_binary(text: &mut String, content: &[u8]) {
    const DIGITS: &[u8; 85] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~";
    let mut packed = ZlibEncoder::new(Vec::new(), Compression::default());
    let packed = packed.write_all(content).and_then(|()| packed.finish()).expect("memory takes what is written to it");
    let _ = writeln!(text, "literal {}", content.len());
    for line in packed.chunks(52) {
        let length = line.len() as u8;
        text.push(char::from(if length <= 26 { b'A' + length - 1 } else { b'a' + length - 27 }));
        for group in line.chunks(4) {
            let mut bytes = [0; 4];
            bytes[..group.len()].copy_from_slice(group);
            let number = u32::from_be_bytes(bytes);
            let digit = |nth: u32| char::from(DIGITS[(number / 85_u32.pow(nth) % 85) as usize]);
            text.extend((0..5).rev().map(digit));
        }
        text.push('\n');
    }
    text.push('\n');
}
