//! The state of a repository, from its files alone: git is not run, and no setting or hook of a project has an effect.

use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use rath::record::draw::{count, one_line};

use super::read_beginning;

/// The most directories above the current one in which a repository is looked for.
const MAX_PARENTS: usize = 64;
const MAX_HEAD_BYTES: usize = 4096;
const SHORT_COMMIT_DIGITS: usize = 12;
/// The largest index that is read, in bytes: about 100,000 files.
const MAX_INDEX_BYTES: usize = 16 << 20;
/// The most changed files that are named.
const MAX_NAMED_FILES: usize = 20;

/// Returns the root of the repository that a directory belongs to.
pub(super) fn repository_root(directory: &Path) -> Option<PathBuf> {
    directory.ancestors().take(MAX_PARENTS).find(|above| above.join(".git").exists()).map(Path::to_owned)
}

/// Describes the branch and the changed files of the repository that a directory belongs to, each on a line.
pub(super) fn git_state(directory: &Path) -> Vec<String> {
    let Some((root, folder)) = repository_root(directory).and_then(|root| Some((root.clone(), git_folder(&root)?)))
    else {
        return Vec::new();
    };
    head(&folder).into_iter().chain(changed_files(&root, &folder)).collect()
}

/// Returns the folder of the repository, which is elsewhere for a further worktree.
fn git_folder(root: &Path) -> Option<PathBuf> {
    let dot_git = root.join(".git");
    match dot_git.is_dir() {
        true => Some(dot_git),
        false => Some(root.join(read_text(&dot_git)?.strip_prefix("gitdir:")?.trim())),
    }
}

fn head(folder: &Path) -> Option<String> {
    let head = read_text(&folder.join("HEAD"))?;
    Some(match head.strip_prefix("ref: refs/heads/") {
        Some(branch) => format!("git branch: {}", one_line(branch)),
        None => format!("git commit: {}", one_line(head.get(..SHORT_COMMIT_DIGITS)?)),
    })
}

fn read_text(path: &Path) -> Option<String> {
    Some(String::from_utf8_lossy(&read_beginning(path, MAX_HEAD_BYTES).ok()?).trim().to_owned())
}

/// Describes the tracked files that are not as they were when git saw them last; none if that cannot be told.
fn changed_files(root: &Path, folder: &Path) -> Option<String> {
    let index = read_beginning(&folder.join("index"), MAX_INDEX_BYTES).ok()?;
    let entries = read_index(&index)?;
    let changed: Vec<&IndexEntry> = entries.iter().filter(|entry| entry.is_changed(root)).collect();
    if changed.is_empty() {
        return None;
    }
    let named: Vec<_> = changed.iter().take(MAX_NAMED_FILES).map(|entry| one_line(&entry.path)).collect();
    let more = changed.len().saturating_sub(MAX_NAMED_FILES) as u64;
    let more = if more > 0 { format!(" and {}", count(more, "other file")) } else { String::new() };
    Some(format!("changed since git saw them: {}{more}", named.join(", ")))
}

/// A tracked file, as git saw it last.
struct IndexEntry {
    path: String,
    seconds: u32,
    nanoseconds: u32,
    /// The lower 32 bits of its size.
    size: u32,
}

impl IndexEntry {
    fn is_changed(&self, root: &Path) -> bool {
        let Ok(metadata) = root.join(&self.path).symlink_metadata() else { return true };
        let modified = metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let is_at = |seconds: u64, nanoseconds: u32| {
            // Some programs write no nanoseconds.
            seconds as u32 == self.seconds && (self.nanoseconds == 0 || nanoseconds == self.nanoseconds)
        };
        metadata.len() as u32 != self.size || !modified.is_some_and(|time| is_at(time.as_secs(), time.subsec_nanos()))
    }
}

/// Reads an index of version 2 or 3 with SHA-1; none if it is of another kind or damaged.
fn read_index(bytes: &[u8]) -> Option<Vec<IndexEntry>> {
    const HEADER_BYTES: usize = 12;
    const FIXED_BYTES: usize = 62;
    const MODE_OF_REPOSITORIES: u32 = 0o160_000;
    let number = |at: usize| Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let version = number(4)?;
    if bytes.get(..4)? != b"DIRC" || ![2, 3].contains(&version) {
        return None;
    }
    let (mut entries, mut at) = (Vec::new(), HEADER_BYTES);
    for _ in 0..number(8)? {
        let flags = u16::from_be_bytes(bytes.get(at + 60..at + 62)?.try_into().ok()?);
        let is_extended = version == 3 && flags & 0x4000 != 0;
        let name = at + FIXED_BYTES + if is_extended { 2 } else { 0 };
        let length = bytes.get(name..)?.iter().position(|byte| *byte == 0)?;
        let path = std::str::from_utf8(&bytes[name..name + length]).ok()?.to_owned();
        // Files that are checked out nowhere, and repositories inside this one, have nothing to compare.
        let is_left_out = flags & 0x8000 != 0 || is_extended && bytes.get(name - 2)? & 0x40 != 0;
        if !is_left_out && number(at + 24)? & 0o170_000 != MODE_OF_REPOSITORIES {
            entries.push(IndexEntry {
                path,
                seconds: number(at + 8)?,
                nanoseconds: number(at + 12)?,
                size: number(at + 36)?,
            });
        }
        // Each entry is a multiple of 8 bytes long, with at least one zero at its end.
        at += (name - at + length + 8) / 8 * 8;
    }
    Some(entries)
}
