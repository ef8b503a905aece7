//! The signatures under the steps of a session, in a file beside the session's own.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use rath_record::{BranchId, StepId};
use rath_workspace::read_at_most;

use super::super::Signature;

/// The length of a branch's id, a step's id and a signature, in bytes.
const ENTRY_BYTES: usize = 80;
/// The most bytes of a file that are read: three million steps of one run.
const MAX_BYTES: u64 = 256 << 20;

/// The signatures that are added to the file of a session.
///
/// The file is not synced: after a power cut the newest steps may lack their signatures. Then the session is a guest until its
/// user adopts it, and nothing is lost.
pub(super) struct SignatureFile {
    path: PathBuf,
    file: Option<File>,
    entries: Vec<u8>,
}

impl SignatureFile {
    /// Returns the path of the signatures for the file of a session.
    pub(super) fn path(session: &Path) -> PathBuf {
        session.with_extension("signed")
    }

    /// Creates the signatures for the file of a session that this process has locked.
    pub(super) fn new(session: &Path) -> Self {
        SignatureFile { path: SignatureFile::path(session), file: None, entries: Vec::new() }
    }

    /// Removes all signatures but those of the heads.
    pub(super) fn reduce(&mut self, branches: &HashMap<BranchId, StepId>) {
        let Ok(known) = read_at_most(&self.path, MAX_BYTES) else { return };
        for (branch, head) in branches {
            self.add(*branch, *head, find(&known, *branch, *head));
        }
        if self.entries.len() < known.len() {
            let temporary = self.path.with_extension(format!("{}.tmp", uuid::Uuid::now_v7().simple()));
            let reduced = std::fs::write(&temporary, &self.entries);
            if reduced.and_then(|()| std::fs::rename(&temporary, &self.path)).is_err() {
                let _ = std::fs::remove_file(&temporary);
            }
        }
        (self.file, self.entries) = (None, Vec::new());
    }

    /// Adds a signature, which the next write stores.
    pub(super) fn add(&mut self, branch: BranchId, step: StepId, signature: Option<Signature>) {
        if let Some(signature) = signature {
            self.entries.extend_from_slice(&branch.0);
            self.entries.extend_from_slice(&step.0);
            self.entries.extend_from_slice(&signature.0);
        }
    }

    /// Stores the signatures that were added.
    pub(super) fn write(&mut self) -> io::Result<()> {
        if self.entries.is_empty() {
            return Ok(());
        }
        let file = match &mut self.file {
            Some(file) => file,
            None => {
                let file = OpenOptions::new().append(true).create(true).open(&self.path)?;
                // An entry that was cut off would shift all later ones.
                let length = file.metadata()?.len();
                if !length.is_multiple_of(ENTRY_BYTES as u64) {
                    file.set_len(length - length % ENTRY_BYTES as u64)?;
                }
                self.file.insert(file)
            }
        };
        file.write_all(&std::mem::take(&mut self.entries))
    }

    /// Returns the signature under the newest step of a branch.
    pub(super) fn find(session: &Path, branch: BranchId, head: StepId) -> Option<Signature> {
        find(&read_at_most(&SignatureFile::path(session), MAX_BYTES).ok()?, branch, head)
    }
}

fn find(entries: &[u8], branch: BranchId, head: StepId) -> Option<Signature> {
    let (entries, _) = entries.as_chunks::<ENTRY_BYTES>();
    // Equal forks begin with the same step.
    let rest = |entry: &[u8]| entry.strip_prefix(&branch.0)?.strip_prefix(&head.0)?.try_into().ok().map(Signature);
    entries.iter().rev().find_map(|entry| rest(entry))
}
