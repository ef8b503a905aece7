//! Capturing the output of a command that a backend runs elsewhere.

use std::future::poll_fn;
use std::path::PathBuf;
use std::sync::Arc;

use super::blocking::run_blocking;
use super::command::{ExitStatus, Output, Stream};
use super::files::Digest;
use super::process::{Spool, StreamCapture};
use crate::error::Result;

/// The directory for output that is too much for memory: a temporary one, made when it is needed and removed with the last handle.
///
/// Passed to [`OutputCapture::new`].
#[derive(Clone, Debug)]
pub struct OutputFiles(Arc<Spool>);

/// The output of a command so far, held as [`CapturedStream`](crate::CapturedStream) says: for backends that get it in pieces.
///
/// ```
/// use rath_sandbox::{ExitStatus, OutputCapture, OutputFiles, Stream};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> rath_sandbox::Result<()> {
/// let mut capture = OutputCapture::new(&OutputFiles::default());
/// capture.push(Stream::Stdout, b"one\n").await?;
/// capture.push(Stream::Stderr, b"oops\n").await?;
/// let output = capture.finish(ExitStatus::Exit(0)).await?;
/// assert_eq!(output.stdout.head, b"one\n");
/// # Ok(())
/// # }
/// ```
pub struct OutputCapture {
    files: Arc<Spool>,
    streams: [StreamCapture; 2],
    total_bytes: u64,
}

impl OutputFiles {
    /// Returns the file with this digest, if there is one.
    pub async fn find(&self, digest: Digest) -> Result<Option<PathBuf>> {
        let files = self.0.clone();
        run_blocking(move || Ok(files.find(digest))).await
    }
}

impl Default for OutputFiles {
    fn default() -> Self {
        OutputFiles(Arc::new(Spool::new(None)))
    }
}

impl OutputCapture {
    /// Creates a capture without output.
    pub fn new(files: &OutputFiles) -> Self {
        OutputCapture { files: files.0.clone(), streams: Default::default(), total_bytes: 0 }
    }

    /// Adds output. Waits while too much of it is on its way to the disk.
    pub async fn push(&mut self, stream: Stream, bytes: &[u8]) -> Result<()> {
        self.total_bytes += bytes.len() as u64;
        let capture = match stream {
            Stream::Stdout => &mut self.streams[0],
            Stream::Stderr => &mut self.streams[1],
        };
        capture.push(bytes, &self.files);
        poll_fn(|cx| capture.poll_room(cx)).await
    }

    /// Returns the number of bytes on both streams.
    pub fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    /// Returns the output of a command that has ended.
    pub async fn finish(self, status: ExitStatus) -> Result<Output> {
        let [stdout, stderr] = self.streams;
        Ok(Output { status, stdout: stdout.finish().await?, stderr: stderr.finish().await? })
    }
}
