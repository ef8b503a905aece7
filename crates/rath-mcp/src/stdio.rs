//! Messages over the stdin and stdout of a process: one line of JSON each.

use std::future::Future;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rath::Secrets;
use rath_sandbox::{ProcessInput, ProcessOutput};
use rmcp::RoleClient;
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::Transport;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};

use crate::limits::Limits;
use crate::message;
use crate::text::one_line;

/// The number of lines in a row that may be no messages, such as those of a server that prints a log there.
const MAX_OTHER_LINES: usize = 1000;
/// The bytes of a line that are shown in an error.
const MAX_SHOWN_BYTES: usize = 200;
/// The bytes of a line that is shown in part: to hide the secrets of a longer one would cost too much.
const MAX_LINE_BYTES: usize = 64 * 1024;
/// The bytes of stderr that are shown.
const MAX_STDERR_BYTES: usize = 2000;
/// The bytes of stderr that are held: secrets are hidden in them before a part is shown.
const MAX_HELD_BYTES: usize = 128 * 1024;
/// The bytes of the longest secret, as it may be written. What is held of stderr can begin in the middle of one.
const MAX_SECRET_BYTES: usize = 64 * 1024;
/// The bytes that are read at once.
const READ_BYTES: usize = 64 * 1024;

/// Facts about a server beside its answers, for error messages.
///
/// All texts of the server go through it, so that secrets are hidden in them.
pub(crate) struct Diagnostics {
    secrets: Secrets,
    findings: Mutex<Findings>,
}

#[derive(Default)]
struct Findings {
    /// The end of what was printed to stderr.
    stderr: Vec<u8>,
    /// True if there was more before it.
    is_stderr_cut: bool,
    /// True once stderr was read to its end.
    is_stderr_read: bool,
    /// The last line that was no message.
    other_line: Option<String>,
    /// The reason why the connection was closed, or the way in which the process ended.
    end: Option<String>,
    /// True once the process has ended.
    is_process_over: bool,
    /// True if there was never a process.
    could_not_start: bool,
}

impl Diagnostics {
    pub(crate) fn new(secrets: Secrets) -> Self {
        Diagnostics { secrets, findings: Mutex::default() }
    }

    /// Returns a text of the server as one line for a message.
    pub(crate) fn one_line(&self, text: &str, max_bytes: usize) -> String {
        one_line(&self.secrets, text, max_bytes)
    }

    /// Notes why the connection ends. The first reason counts.
    pub(crate) fn set_end(&self, end: impl Into<String>) {
        self.lock().end.get_or_insert(end.into());
    }

    /// Notes in which way the process has ended.
    pub(crate) fn set_process_end(&self, end: String) {
        self.lock().is_process_over = true;
        self.set_end(end);
    }

    /// Notes that the program could not be started.
    pub(crate) fn set_could_not_start(&self, why: String) {
        let mut findings = self.lock();
        findings.end.get_or_insert(why);
        findings.could_not_start = true;
    }

    pub(crate) fn could_not_start(&self) -> bool {
        self.lock().could_not_start
    }

    /// Returns the reason of the end, if there is one.
    pub(crate) fn end(&self) -> Option<String> {
        self.lock().end.clone()
    }

    /// Returns true if the reason of the end is known, and all that a process that has ended printed to stderr.
    pub(crate) fn is_complete(&self) -> bool {
        let findings = self.lock();
        findings.end.is_some() && (findings.is_stderr_read || !findings.is_process_over)
    }

    /// Returns the rest of a sentence about a server that does not answer as it should.
    pub(crate) fn describe(&self) -> String {
        let findings = self.lock();
        let mut text = findings.end.as_ref().map(|end| format!(" ({end})")).unwrap_or_default();
        if let Some(line) = &findings.other_line {
            text.push_str(&format!("; it printed a line that is no message: `{line}`"));
        }
        let stderr = self.one_line(&String::from_utf8_lossy(&findings.stderr), usize::MAX);
        let from = if findings.is_stderr_cut { MAX_SECRET_BYTES } else { 0 };
        let from = from.max(stderr.len().saturating_sub(MAX_STDERR_BYTES)).min(stderr.len());
        let stderr = stderr[stderr.ceil_char_boundary(from)..].trim();
        if !stderr.is_empty() {
            text.push_str(&format!("; the end of its stderr: {stderr}"));
        }
        text
    }

    fn lock(&self) -> MutexGuard<'_, Findings> {
        self.findings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads stderr to its end, and holds the last part of it.
pub(crate) async fn drain_stderr(mut stderr: ProcessOutput, diagnostics: Arc<Diagnostics>) {
    let mut buffer = vec![0; READ_BYTES];
    while let Ok(read @ 1..) = stderr.read(&mut buffer).await {
        let findings = &mut *diagnostics.lock();
        findings.stderr.extend_from_slice(&buffer[..read]);
        let excess = findings.stderr.len().saturating_sub(MAX_HELD_BYTES);
        findings.stderr.drain(..excess);
        findings.is_stderr_cut |= excess > 0;
    }
    diagnostics.lock().is_stderr_read = true;
}

/// The messages of a process.
pub(crate) struct StdioTransport {
    stdout: BufReader<ProcessOutput>,
    /// The part of a line that was read.
    line: Vec<u8>,
    limits: Limits,
    /// The number of lines since the last message.
    other_lines: usize,
    /// None once it is closed.
    stdin: Arc<tokio::sync::Mutex<Option<ProcessInput>>>,
    diagnostics: Arc<Diagnostics>,
}

impl StdioTransport {
    pub(crate) fn new(
        stdin: ProcessInput,
        stdout: ProcessOutput,
        limits: Limits,
        diagnostics: Arc<Diagnostics>,
    ) -> Self {
        StdioTransport {
            stdout: BufReader::with_capacity(READ_BYTES, stdout),
            line: Vec::new(),
            limits,
            other_lines: 0,
            stdin: Arc::new(tokio::sync::Mutex::new(Some(stdin))),
            diagnostics,
        }
    }

    /// Reads up to the end of a line, which stays in `line`. Returns false if there is no more, or too much.
    ///
    /// If the future is dropped, what was read stays there.
    async fn read_line(&mut self) -> bool {
        loop {
            let Ok(available) = self.stdout.fill_buf().await else { return false };
            if available.is_empty() {
                return false;
            }
            let end = available.iter().position(|byte| *byte == b'\n');
            let taken = end.map_or(available.len(), |end| end + 1);
            let max_bytes = self.limits.message_bytes;
            if self.line.len() + taken > max_bytes {
                self.diagnostics.set_end(format!("it sent a message of more than {max_bytes} bytes"));
                return false;
            }
            self.line.extend_from_slice(&available[..taken]);
            self.stdout.consume(taken);
            if end.is_some() {
                return true;
            }
        }
    }

    /// Takes the line that was read. Returns the message in it, or none if it is no message.
    fn take_message(&mut self) -> Option<ServerJsonRpcMessage> {
        let line = self.line.trim_ascii();
        let message = match message::read(line) {
            Ok(message) => Some(message),
            Err(_) if line.is_empty() => None,
            Err(error) => {
                self.other_lines += 1;
                let shown = match line.len() <= MAX_LINE_BYTES {
                    true => self.diagnostics.one_line(&String::from_utf8_lossy(line), MAX_SHOWN_BYTES),
                    false => format!("{} bytes", line.len()),
                };
                self.diagnostics.lock().other_line = Some(shown);
                error.answer()
            }
        };
        self.line.clear();
        // One large message must not cost its memory for ever.
        self.line.shrink_to(READ_BYTES);
        if message.is_some() {
            self.other_lines = 0;
        }
        message
    }
}

impl Transport<RoleClient> for StdioTransport {
    type Error = io::Error;

    fn send(&mut self, message: ClientJsonRpcMessage) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let (stdin, diagnostics, limit) = (self.stdin.clone(), self.diagnostics.clone(), self.limits.call);
        async move {
            let mut line = serde_json::to_vec(&message)?;
            line.push(b'\n');
            // The lock orders messages, and is held while one is written: half a message would spoil the next.
            let mut stdin = stdin.lock().await;
            let Some(pipe) = &mut *stdin else { return Err(io::ErrorKind::NotConnected.into()) };
            match tokio::time::timeout(limit, pipe.write_all(&line)).await {
                Ok(written) => written,
                Err(_) => {
                    // The messages that wait for the lock would pile up.
                    diagnostics.set_end("it does not read its stdin");
                    *stdin = None;
                    Err(io::ErrorKind::TimedOut.into())
                }
            }
        }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        while self.read_line().await {
            if let Some(message) = self.take_message() {
                return Some(message);
            }
            if self.other_lines > MAX_OTHER_LINES {
                self.diagnostics.set_end(format!("it sent {MAX_OTHER_LINES} lines that are no messages"));
                break;
            }
        }
        None
    }

    async fn close(&mut self) -> io::Result<()> {
        // A write that hangs holds the lock; the process is killed then.
        if let Ok(mut stdin) = self.stdin.try_lock() {
            *stdin = None;
        }
        Ok(())
    }
}
