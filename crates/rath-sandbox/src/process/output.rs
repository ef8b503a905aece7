//! What a command prints: its beginning and its end in memory, all of it in a file where that is not enough.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::files::Digest;

use crate::Printed;
use crate::error::ErrorKind;
use crate::error::{Error, Result};

/// How much of a stream's beginning stays in memory, and how much of its end. What is no more than both is held whole.
pub(crate) const PART: usize = 256 * 1024;

/// A folder for what commands print and nobody can hold: each file is named by the digest of what is in it.
#[derive(Debug)]
pub(crate) struct Spool {
    given: Option<PathBuf>,
    made: OnceLock<PathBuf>,
}

impl Spool {
    /// A folder of the user's, which stays; or one of its own, which is made when it is needed and removed with this.
    pub(crate) fn new(given: Option<PathBuf>) -> Self {
        Spool { given, made: OnceLock::new() }
    }

    /// Where the bytes with this digest are, if they are here.
    pub(crate) fn find(&self, digest: Digest) -> Option<PathBuf> {
        let folder = self.made.get().or(self.given.as_ref())?;
        Some(folder.join(digest.to_string())).filter(|file| file.is_file())
    }

    fn folder(&self) -> std::io::Result<&Path> {
        if let Some(given) = &self.given {
            std::fs::create_dir_all(given)?;
            return Ok(given);
        }
        if let Some(made) = self.made.get() {
            return Ok(made);
        }
        let made = std::env::temp_dir().join(format!("rath-spool-{}", uuid::Uuid::now_v7()));
        let mut builder = std::fs::DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(&made)?;
        if let Err(second) = self.made.set(made) {
            // Two commands came to it at once.
            let _ = std::fs::remove_dir(second);
        }
        Ok(self.made.get().expect("it was just set"))
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        if let Some(made) = self.made.get() {
            let _ = std::fs::remove_dir_all(made);
        }
    }
}

/// What came on one stream so far.
#[derive(Default)]
pub(super) struct Output {
    /// All of it, or its beginning once there is a file.
    held: Vec<u8>,
    /// Its end, and up to as much again before that.
    end: Vec<u8>,
    bytes: u64,
    file: Option<Kept>,
}

impl Output {
    pub(super) fn push(&mut self, chunk: &[u8], spool: &Spool) -> Result<()> {
        self.bytes += chunk.len() as u64;
        if let Some(file) = &mut self.file {
            file.write(chunk).map_err(cannot)?;
            self.remember(chunk);
        } else if self.held.len() + chunk.len() <= 2 * PART {
            self.held.extend_from_slice(chunk);
        } else {
            let mut file = Kept::create(spool).map_err(cannot)?;
            file.write(&self.held).and_then(|()| file.write(chunk)).map_err(cannot)?;
            self.file = Some(file);
            let end = self.held.split_off(PART.min(self.held.len()));
            let room = PART - self.held.len();
            let (beginning, rest) = chunk.split_at(room.min(chunk.len()));
            self.held.extend_from_slice(beginning);
            self.remember(&end);
            self.remember(rest);
        }
        Ok(())
    }

    fn remember(&mut self, chunk: &[u8]) {
        self.end.extend_from_slice(chunk);
        if self.end.len() > 2 * PART {
            self.end.drain(..self.end.len() - PART);
        }
    }

    pub(super) fn finish(mut self) -> Result<Printed> {
        let spooled = self.file.take().map(|file| file.finish().map_err(cannot)).transpose()?;
        self.end.drain(..self.end.len().saturating_sub(PART));
        self.held.shrink_to_fit();
        Ok(Printed { beginning: self.held, end: self.end, bytes: self.bytes, spooled })
    }
}

fn cannot(error: std::io::Error) -> Error {
    Error::new(ErrorKind::Io, "cannot keep what the command prints").because(error)
}

/// A file that grows under a name of its own, until it has that of its digest.
struct Kept {
    file: File,
    folder: PathBuf,
    path: PathBuf,
    hasher: blake3::Hasher,
}

impl Kept {
    fn create(spool: &Spool) -> std::io::Result<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let folder = spool.folder()?.to_owned();
        let path = folder.join(format!("growing-{}-{}", std::process::id(), COUNT.fetch_add(1, Relaxed)));
        let mut options = File::options();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        Ok(Kept { file: options.open(&path)?, folder, path, hasher: blake3::Hasher::new() })
    }

    fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.hasher.update(bytes);
        self.file.write_all(bytes)
    }

    fn finish(self) -> std::io::Result<Digest> {
        let digest = Digest(*self.hasher.finalize().as_bytes());
        std::fs::rename(&self.path, self.folder.join(digest.to_string()))?;
        Ok(digest)
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // Once it has its name there is nothing here.
        let _ = std::fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_is_held_whole_or_as_beginning_and_end_and_a_file() {
        let bytes: Vec<u8> = (0..5 * PART).map(|nth| (nth % 251) as u8).collect();
        for (length, chunk) in [(0, 1), (1, 1), (PART, 7_777), (2 * PART, 65_536), (2 * PART + 1, 65_536)]
            .into_iter()
            .chain([1, 1_000, PART, 3 * PART, 5 * PART].map(|chunk| (5 * PART, chunk.max(100))))
        {
            let all = &bytes[..length];
            let spool = Spool::new(None);
            let mut output = Output::default();
            for chunk in all.chunks(chunk) {
                output.push(chunk, &spool).expect("there is room");
            }
            let printed = output.finish().expect("there is room");
            assert_eq!(printed.bytes, length as u64);
            if length <= 2 * PART {
                assert_eq!((&*printed.beginning, printed.end.len(), printed.spooled), (all, 0, None), "{length}");
                continue;
            }
            assert_eq!(printed.beginning, all[..PART], "{length} in {chunk}");
            assert_eq!(printed.end, all[length - PART.min(length - PART)..], "{length} in {chunk}");
            let digest = printed.spooled.expect("it is not all in memory");
            assert_eq!(digest, Digest::of(all));
            let file = spool.find(digest).expect("it is kept");
            assert_eq!(std::fs::read(&file).expect("it is there"), all);
            drop(spool);
            assert!(!file.exists(), "the folder was its own");
        }
    }
}
