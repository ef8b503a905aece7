//! Capturing the output of a command: head and tail in memory, and all of it in a file if it is long.

use std::fs::File;
use std::future::poll_fn;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use rustix::fs::{AtFlags, Mode, OFlags, openat, renameat, unlinkat};
use tokio::task::{JoinHandle, spawn_blocking};

use crate::CapturedStream;
use crate::blocking::drop_on_pool;
use crate::error::{Error, ErrorKind, Result};
use crate::files::Digest;
use crate::temp_dir::{TempDir, is_same_file};

/// The size in bytes of the head and of the tail that stay in memory. Output of up to twice this size has no file.
const HEAD_BYTES: usize = 256 * 1024;

/// The size in bytes of the output that waits for the disk. A command that prints more waits as well.
const MAX_PENDING_BYTES: usize = 1024 * 1024;

/// A directory for output that is too much for memory. Each file is named by the digest of its content.
///
/// See [`crate::backend`] for an example.
#[derive(Debug)]
pub struct Spool {
    /// The directory that the user chose.
    chosen: Option<PathBuf>,
    /// The directory, from its first use on.
    directory: OnceLock<SpoolDir>,
}

/// An open directory. A command that puts a link in its place does not change where the files are.
#[derive(Debug)]
struct SpoolDir {
    open: OwnedFd,
    path: PathBuf,
    /// Removed on drop.
    temporary: Option<TempDir>,
}

impl Spool {
    /// Creates a spool in a directory that stays, or in a temporary one that is removed on drop.
    pub fn new(chosen: Option<PathBuf>) -> Self {
        Spool { chosen, directory: OnceLock::new() }
    }

    /// Returns the file with this digest, if there is one and its path leads to it. Blocks.
    pub fn find(&self, digest: Digest) -> Option<PathBuf> {
        let directory = match (self.directory.get(), &self.chosen) {
            (None, None) => return None,
            // An earlier process may have stored it.
            _ => self.directory().ok()?,
        };
        let name = digest.to_string();
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(openat(&directory.open, &name, flags, Mode::empty()).ok()?);
        let path = directory.path.join(name);
        (file.metadata().is_ok_and(|file| file.is_file()) && is_same_file(&file, &path)).then_some(path)
    }

    /// Returns the directory, and creates it if it is missing. Blocks.
    fn directory(&self) -> std::io::Result<&SpoolDir> {
        if let Some(directory) = self.directory.get() {
            return Ok(directory);
        }
        let created = SpoolDir::create(self.chosen.clone())?;
        // If another command has just created one, this one is removed.
        Ok(self.directory.get_or_init(|| created))
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        self.directory.take().and_then(|directory| directory.temporary).into_iter().for_each(drop_on_pool);
    }
}

impl SpoolDir {
    fn create(chosen: Option<PathBuf>) -> std::io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let (path, temporary, flags) = match chosen {
            Some(path) => {
                std::fs::create_dir_all(&path)?;
                (path, None, flags)
            }
            None => {
                let temporary = TempDir::create_blocking("spool")?;
                (temporary.path().to_owned(), Some(temporary), flags | OFlags::NOFOLLOW)
            }
        };
        Ok(SpoolDir { open: rustix::fs::open(&path, flags, Mode::empty())?, path, temporary })
    }
}

/// The output on one stream so far.
///
/// See [`crate::backend`] for an example.
#[derive(Default)]
pub struct StreamCapture {
    /// All of the output, or its first [`HEAD_BYTES`] once there is a file.
    head: Vec<u8>,
    /// The last [`HEAD_BYTES`], and up to as many bytes before them, which are dropped later.
    tail: Vec<u8>,
    total_bytes: u64,
    file: Option<SpoolWriter>,
}

impl StreamCapture {
    /// Adds output. Waiting for [`poll_room`](Self::poll_room) before keeps the memory bounded.
    pub fn push(&mut self, chunk: &[u8], spool: &Arc<Spool>) {
        self.total_bytes += chunk.len() as u64;
        if let Some(file) = &mut self.file {
            file.pending.extend_from_slice(chunk);
            self.push_tail(chunk);
        } else if self.head.len() + chunk.len() <= 2 * HEAD_BYTES {
            self.head.extend_from_slice(chunk);
        } else {
            self.file = Some(SpoolWriter::new(spool.clone(), [&self.head, chunk].concat()));
            let rest = self.head.split_off(HEAD_BYTES.min(self.head.len()));
            let room = HEAD_BYTES - self.head.len();
            let (head, tail) = chunk.split_at(room.min(chunk.len()));
            self.head.extend_from_slice(head);
            self.push_tail(&rest);
            self.push_tail(tail);
        }
    }

    fn push_tail(&mut self, chunk: &[u8]) {
        self.tail.extend_from_slice(chunk);
        if self.tail.len() > 2 * HEAD_BYTES {
            self.tail.drain(..self.tail.len() - HEAD_BYTES);
        }
    }

    /// Passes output on to the disk. Ready when there is room for more.
    pub fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        match &mut self.file {
            Some(file) => file.poll_written(cx, MAX_PENDING_BYTES).map_err(cannot_store),
            None => Poll::Ready(Ok(())),
        }
    }

    /// Returns the output, with its file written.
    pub async fn finish(mut self) -> Result<CapturedStream> {
        let spool_digest = match self.file.take() {
            Some(file) => Some(file.finish().await.map_err(cannot_store)?),
            None => None,
        };
        self.tail.drain(..self.tail.len().saturating_sub(HEAD_BYTES));
        self.head.shrink_to_fit();
        Ok(CapturedStream { head: self.head, tail: self.tail, total_bytes: self.total_bytes, spool_digest })
    }
}

/// A file that the blocking pool writes, one write at a time.
struct SpoolWriter {
    /// The output that no write has taken yet.
    pending: Vec<u8>,
    state: SpoolState,
}

enum SpoolState {
    New(Arc<Spool>),
    Idle(SpoolFile),
    Writing(JoinHandle<std::io::Result<SpoolFile>>),
    Ended,
}

impl SpoolWriter {
    fn new(spool: Arc<Spool>, pending: Vec<u8>) -> Self {
        SpoolWriter { pending, state: SpoolState::New(spool) }
    }

    /// Starts and ends writes. Ready when fewer than `max_pending` bytes wait for a write, and none if that is 0.
    fn poll_written(&mut self, cx: &mut Context<'_>, max_pending: usize) -> Poll<std::io::Result<()>> {
        loop {
            self.state = match std::mem::replace(&mut self.state, SpoolState::Ended) {
                SpoolState::Writing(mut write) => match Pin::new(&mut write).poll(cx) {
                    Poll::Ready(file) => SpoolState::Idle(file??),
                    Poll::Pending => {
                        self.state = SpoolState::Writing(write);
                        let has_room = self.pending.len() < max_pending;
                        return if has_room { Poll::Ready(Ok(())) } else { Poll::Pending };
                    }
                },
                state if self.pending.is_empty() => {
                    self.state = state;
                    return Poll::Ready(Ok(()));
                }
                state => {
                    let bytes = std::mem::take(&mut self.pending);
                    SpoolState::Writing(spawn_blocking(move || state.write(&bytes)))
                }
            }
        }
    }

    /// Writes the rest, and gives the file its name.
    async fn finish(mut self) -> std::io::Result<Digest> {
        poll_fn(|cx| self.poll_written(cx, 0)).await?;
        let state = std::mem::replace(&mut self.state, SpoolState::Ended);
        spawn_blocking(move || state.open()?.finish()).await?
    }
}

impl Drop for SpoolWriter {
    fn drop(&mut self) {
        if let SpoolState::Idle(file) = std::mem::replace(&mut self.state, SpoolState::Ended) {
            drop_on_pool(file);
        }
    }
}

impl SpoolState {
    /// Returns the file, and creates it if there is none. Blocks.
    fn open(self) -> std::io::Result<SpoolFile> {
        match self {
            SpoolState::New(spool) => SpoolFile::create(spool),
            SpoolState::Idle(file) => Ok(file),
            SpoolState::Writing(_) | SpoolState::Ended => Err(std::io::Error::other("an earlier write failed")),
        }
    }

    fn write(self, bytes: &[u8]) -> std::io::Result<SpoolFile> {
        let mut file = self.open()?;
        file.write(bytes)?;
        Ok(file)
    }
}

fn cannot_store(error: std::io::Error) -> Error {
    Error::new(ErrorKind::Io, "cannot store the output of the command").because(error)
}

/// A file that is being written under a temporary name. At the end it is renamed to its digest.
struct SpoolFile {
    file: File,
    spool: Arc<Spool>,
    name: String,
    hasher: Box<blake3::Hasher>,
}

impl SpoolFile {
    fn create(spool: Arc<Spool>) -> std::io::Result<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let name = format!("growing-{}-{}", std::process::id(), COUNT.fetch_add(1, Relaxed));
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&spool.directory()?.open, &name, flags, Mode::RUSR | Mode::WUSR)?;
        Ok(SpoolFile { file: file.into(), spool, name, hasher: Box::default() })
    }

    fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.hasher.update(bytes);
        self.file.write_all(bytes)
    }

    fn finish(self) -> std::io::Result<Digest> {
        let digest = Digest(*self.hasher.finalize().as_bytes());
        let directory = &self.spool.directory()?.open;
        renameat(directory, &self.name, directory, digest.to_string())?;
        Ok(digest)
    }
}

impl Drop for SpoolFile {
    fn drop(&mut self) {
        // Fails after the rename, since the name is gone.
        if let Ok(directory) = self.spool.directory() {
            let _ = unlinkat(&directory.open, &self.name, AtFlags::empty());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn output_is_held_whole_or_as_head_and_tail_and_a_file() {
        let bytes: Vec<u8> = (0..5 * HEAD_BYTES).map(|nth| (nth % 251) as u8).collect();
        for (length, chunk) in
            [(0, 1), (1, 1), (HEAD_BYTES, 7_777), (2 * HEAD_BYTES, 65_536), (2 * HEAD_BYTES + 1, 65_536)]
                .into_iter()
                .chain(
                    [1, 1_000, HEAD_BYTES, 3 * HEAD_BYTES, 5 * HEAD_BYTES]
                        .map(|chunk| (5 * HEAD_BYTES, chunk.max(100))),
                )
        {
            let all = &bytes[..length];
            let spool = Arc::new(Spool::new(None));
            let mut capture = StreamCapture::default();
            for chunk in all.chunks(chunk) {
                capture.push(chunk, &spool);
                poll_fn(|cx| capture.poll_room(cx)).await.expect("there is room");
            }
            let captured = capture.finish().await.expect("there is room");
            assert_eq!(captured.total_bytes, length as u64);
            if length <= 2 * HEAD_BYTES {
                assert_eq!((&*captured.head, captured.tail.len(), captured.spool_digest), (all, 0, None), "{length}");
                continue;
            }
            assert_eq!(captured.head, all[..HEAD_BYTES], "{length} in {chunk}");
            assert_eq!(captured.tail, all[length - HEAD_BYTES.min(length - HEAD_BYTES)..], "{length} in {chunk}");
            let digest = captured.spool_digest.expect("it is not all in memory");
            assert_eq!(digest, Digest::from_content(all));
            let file = spool.find(digest).expect("it is stored");
            assert_eq!(std::fs::read(&file).expect("it is there"), all);
            // Here there is no runtime that could take over the removal.
            std::thread::spawn(move || drop(spool)).join().expect("it is removed");
            assert!(!file.exists(), "the directory was temporary");
        }
    }
}
