//! The changes of a patch to the files of a sandbox.

use std::collections::BTreeMap;

use rath_workspace::text_patch;

use super::fit::apply_hunks;
use super::parse::{FilePatch, Patch};
use crate::blocking::run_blocking;
use crate::error::ErrorKind;
use crate::sandbox::{ByteRange, FileKind, Root, Sandbox};
use crate::session::{Error, Result};
use crate::tool::builtin::count;
use crate::tool::builtin::edit_file::MAX_FILE_BYTES;
use crate::tool::builtin::nearest_paths::with_nearest_paths;
use crate::tool::schedule::normalize_path;

/// The number of bytes that the files of one patch may have, before and after it.
const MAX_TOTAL_BYTES: u64 = 64 << 20;

/// The files that a patch changes, before and after, in the order of the patch.
pub(super) struct PatchChanges {
    files: Vec<PatchFile>,
    /// The change in words, for the model.
    report: Vec<String>,
}

struct PatchFile {
    path: String,
    /// The content before the patch; none if there is no file.
    before: Option<Vec<u8>>,
    /// The content after the changes so far.
    after: Option<Vec<u8>>,
}

impl PatchChanges {
    /// Reads the files of a patch and applies it to what they say, or fails with the first part that does not fit. Nothing is written.
    pub(super) async fn of(sandbox: &Sandbox, patch: Patch) -> Result<Self> {
        refuse_two_names(sandbox, &patch).await?;
        let mut changes = PatchChanges { files: Vec::new(), report: Vec::new() };
        let mut known = BTreeMap::new();
        for file in patch.files {
            changes
                .add(sandbox, &mut known, file)
                .await
                .map_err(|error| Error::new(error.kind(), format_args!("nothing was changed: {}", error.message())))?;
        }
        let total = |file: &PatchFile| [&file.before, &file.after].into_iter().flatten().map(Vec::len).sum::<usize>();
        if changes.files.iter().map(total).sum::<usize>() as u64 > MAX_TOTAL_BYTES {
            let message =
                format!("nothing was changed: the files have more than {MAX_TOTAL_BYTES} bytes; give several patches");
            return Err(Error::new(ErrorKind::Tool, message));
        }
        Ok(changes)
    }

    /// Adds the change of one file.
    async fn add(&mut self, sandbox: &Sandbox, known: &mut BTreeMap<String, usize>, file: FilePatch) -> Result<()> {
        match file {
            FilePatch::Add { path, content } => {
                let at = self.load(sandbox, known, &path, FileRole::New).await?;
                self.refuse_existing(at, "add")?;
                self.report.push(format!("added {path}: {}", count(content.lines().count(), "line")));
                self.files[at].after = Some(content.into_bytes());
            }
            FilePatch::Delete { path } => {
                let at = self.load(sandbox, known, &path, FileRole::Existing).await?;
                self.require_existing(sandbox, at, "delete").await?;
                self.report.push(format!("deleted {path}"));
                self.files[at].after = None;
            }
            FilePatch::Update { path, to, hunks } => {
                let at = self.load(sandbox, known, &path, FileRole::Existing).await?;
                let before = self.require_existing(sandbox, at, "change").await?.to_vec();
                let wrong = |why: &str| problem("change", &path, why);
                let before = String::from_utf8(before).map_err(|_| wrong("it is not UTF-8 text"))?;
                let number = hunks.len();
                let applied = run_blocking(move || -> Result<_> { Ok(apply_hunks(&before, &hunks)) });
                let after = applied.await?.map_err(|why| wrong(&why))?.into_bytes();
                if after.len() as u64 > MAX_FILE_BYTES {
                    return Err(wrong(&format!("it would have more than {MAX_FILE_BYTES} bytes")));
                }
                let Some(to) = to.filter(|to| normalize_path(to) != normalize_path(&path)) else {
                    self.report.push(format!("changed {path}: {}", count(number, "hunk")));
                    self.files[at].after = Some(after);
                    return Ok(());
                };
                let target = self.load(sandbox, known, &to, FileRole::New).await?;
                self.refuse_existing(target, "move a file to")?;
                let hunks = if number == 0 { String::new() } else { format!(": {}", count(number, "hunk")) };
                self.report.push(format!("moved {path} to {to}{hunks}"));
                (self.files[at].after, self.files[target].after) = (None, Some(after));
            }
        }
        Ok(())
    }

    /// Returns the position of a file, which is read when it is first named.
    async fn load(
        &mut self,
        sandbox: &Sandbox,
        known: &mut BTreeMap<String, usize>,
        path: &str,
        role: FileRole,
    ) -> Result<usize> {
        let name = normalize_path(path);
        if let Some(at) = known.get(&name) {
            return Ok(*at);
        }
        let before = read_file(sandbox, path, role).await?;
        known.insert(name, self.files.len());
        self.files.push(PatchFile { path: path.to_owned(), after: before.clone(), before });
        Ok(self.files.len() - 1)
    }

    fn refuse_existing(&self, at: usize, action: &str) -> Result<()> {
        let PatchFile { path, after, .. } = &self.files[at];
        match after {
            Some(_) => Err(problem(action, path, "it exists already; use `*** Update File`, or delete it first")),
            None => Ok(()),
        }
    }

    async fn require_existing(&self, sandbox: &Sandbox, at: usize, action: &str) -> Result<&[u8]> {
        let PatchFile { path, after, .. } = &self.files[at];
        match after {
            Some(content) => Ok(content),
            None => Err(with_nearest_paths(sandbox, path, problem(action, path, "there is no such file")).await),
        }
    }

    /// Returns the changes as a diff for a person.
    pub(super) fn as_diff(&self) -> String {
        let text = |content: &Option<Vec<u8>>| content.as_ref().map(|bytes| String::from_utf8(bytes.clone()));
        let diff = |file: &PatchFile| match (text(&file.before).transpose(), text(&file.after).transpose()) {
            (Ok(before), Ok(after)) if before != after => text_patch(&file.path, before.as_deref(), after.as_deref()),
            (Ok(_), Ok(_)) => String::new(),
            _ => format!("--- {}: not UTF-8 text\n", file.path),
        };
        let moved = self.report.iter().filter(|line| line.starts_with("moved ")).map(|line| format!("{line}\n"));
        moved.chain(self.files.iter().map(diff)).collect()
    }

    /// Returns what was done, for the model.
    pub(super) fn describe(&self) -> String {
        self.report.join("\n")
    }

    /// Writes all files, or puts back those that are written if one cannot be.
    pub(super) async fn write(&self, sandbox: &Sandbox) -> Result<()> {
        let changed: Vec<_> = self.files.iter().filter(|file| file.before != file.after).collect();
        // Before the first is written: what others write meanwhile must not be lost.
        for file in &changed {
            file.require_unchanged(sandbox)
                .await
                .map_err(|error| Error::new(error.kind(), format_args!("nothing was changed: {}", error.message())))?;
        }
        // A file that cannot be written is noticed before one is deleted.
        let (written, deleted): (Vec<_>, Vec<_>) = changed.into_iter().partition(|file| file.after.is_some());
        let mut done: Vec<&PatchFile> = Vec::new();
        for file in written.into_iter().chain(deleted) {
            let Err(error) = set_content(sandbox, &file.path, file.after.as_deref()).await else {
                done.push(file);
                continue;
            };
            let mut lost = Vec::new();
            for file in done.iter().rev() {
                if set_content(sandbox, &file.path, file.before.as_deref()).await.is_err() {
                    lost.push(format!("`{}`", file.path));
                }
            }
            let message = match lost.is_empty() {
                true => format!("nothing was changed: {}", error.message()),
                false => format!(
                    "{}; these files are changed, and could not be put back: {}",
                    error.message(),
                    lost.join(", ")
                ),
            };
            return Err(Error::new(error.kind(), message));
        }
        Ok(())
    }
}

impl PatchFile {
    /// Fails if the file is not as it was when it was read.
    async fn require_unchanged(&self, sandbox: &Sandbox) -> Result<()> {
        let role = if self.before.is_some() { FileRole::Existing } else { FileRole::New };
        match read_file(sandbox, &self.path, role).await? == self.before {
            true => Ok(()),
            false => Err(problem("change", &self.path, "it changed meanwhile; read it again")),
        }
    }
}

/// The part of a file in a patch.
#[derive(Clone, Copy, PartialEq)]
enum FileRole {
    /// The patch changes or deletes the file.
    Existing,
    /// The patch creates the file.
    New,
}

/// Reads a file; none if there is none.
async fn read_file(sandbox: &Sandbox, path: &str, role: FileRole) -> Result<Option<Vec<u8>>> {
    match sandbox.stat(path).await? {
        None => return Ok(None),
        // It is in the way, so its content does not count.
        Some(entry) if role == FileRole::New && entry.kind != FileKind::Directory => return Ok(Some(Vec::new())),
        Some(_) => {}
    }
    let bytes = sandbox.read(path, ByteRange { offset: 0, max_len: MAX_FILE_BYTES + 1 }).await?;
    match bytes.len() as u64 > MAX_FILE_BYTES {
        true => Err(problem("change", path, &format!("it has more than {MAX_FILE_BYTES} bytes"))),
        false => Ok(Some(bytes)),
    }
}

/// Writes a file, or removes it.
async fn set_content(sandbox: &Sandbox, path: &str, content: Option<&[u8]>) -> Result<()> {
    match content {
        Some(bytes) => sandbox.write(path, bytes).await?,
        None => sandbox.remove(path).await?,
    }
    Ok(())
}

/// Fails if two paths of a patch lead to one file, through symlinks or otherwise: one change would undo the other.
async fn refuse_two_names(sandbox: &Sandbox, patch: &Patch) -> Result<()> {
    let paths: Vec<_> = patch.paths().into_iter().map(str::to_owned).collect();
    let Some(directory) = sandbox.directory().map(ToOwned::to_owned) else { return Ok(()) };
    let names = run_blocking(move || -> Result<_> {
        let root = Root::open(&directory)?;
        Ok(paths.into_iter().map(|path| (root.canonical_name(&path), path)).collect::<Vec<_>>())
    });
    let mut seen: BTreeMap<String, String> = BTreeMap::new();
    for (name, path) in names.await? {
        // One that leads out of the workspace is refused when it is read.
        let Some(name) = name else { continue };
        if let Some(first) = seen.insert(name, path.clone())
            && normalize_path(&first) != normalize_path(&path)
        {
            let message = format!("nothing was changed: `{first}` and `{path}` are the same file; use one name");
            return Err(Error::new(ErrorKind::Tool, message));
        }
    }
    Ok(())
}

fn problem(action: &str, path: &str, why: &str) -> Error {
    crate::tool::builtin::file_error(action, path, why)
}
