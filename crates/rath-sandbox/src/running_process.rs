//! Processes that run until they are dropped, with open pipes.

use std::fmt;
use std::future::poll_fn;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite};

use crate::ExitStatus;
use crate::error::Result;

/// A process with open pipes, which runs until it ends or the value is dropped.
///
/// Nothing is captured and no amount of output is too much: the process waits until its output is read. Dropping the value kills the
/// process and all processes that it started, and waits until they are dead, for 5 seconds at most. They die with this program, too,
/// however it ends.
///
#[cfg_attr(all(feature = "process", target_os = "linux"), doc = "```")]
#[cfg_attr(not(all(feature = "process", target_os = "linux")), doc = "```ignore")]
/// use rath_sandbox::{Command, ExitStatus, Sandbox};
/// use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> rath_sandbox::Result<()> {
/// # let directory = tempfile::tempdir()?;
/// let sandbox = Sandbox::local(directory.path());
/// let mut process = sandbox.start(&Command::argv(["cat"])).await?;
/// let (mut stdin, stdout) = (process.stdin.take().expect("new"), process.stdout.take().expect("new"));
/// let mut lines = BufReader::new(stdout).lines();
/// for word in ["one", "two"] {
///     stdin.write_all(format!("{word}\n").as_bytes()).await?;
///     assert_eq!(lines.next_line().await?.as_deref(), Some(word));
/// }
/// drop(stdin);
/// assert_eq!(process.wait().await?, ExitStatus::Exit(0));
/// # Ok(())
/// # }
/// ```
pub struct Process {
    /// The stdin of the process, until it is taken. Dropping it closes it.
    pub stdin: Option<ProcessInput>,
    /// The stdout of the process, until it is taken.
    pub stdout: Option<ProcessOutput>,
    /// The stderr of the process, until it is taken. A process whose stderr is not read waits when the pipe is full.
    pub stderr: Option<ProcessOutput>,
    control: Box<dyn ProcessControl>,
}

/// The write end of a pipe to a process.
pub type ProcessInput = Box<dyn AsyncWrite + Send + Unpin>;

/// The read end of a pipe from a process.
pub type ProcessOutput = Box<dyn AsyncRead + Send + Unpin>;

/// The part of a [`Process`] that its backend implements.
///
/// Dropping it kills the process and all processes that it started. Passed to [`Process::new`].
pub trait ProcessControl: Send + 'static {
    /// Ready when the process and all processes that it started have ended. Not called again after that.
    fn poll_wait(&mut self, cx: &mut Context<'_>) -> Poll<Result<ExitStatus>>;
}

impl Process {
    /// Creates a process from its pipes.
    pub fn new(
        stdin: ProcessInput,
        stdout: ProcessOutput,
        stderr: ProcessOutput,
        control: impl ProcessControl,
    ) -> Self {
        Process { stdin: Some(stdin), stdout: Some(stdout), stderr: Some(stderr), control: Box::new(control) }
    }

    /// Waits until the process has ended, and returns the way in which it did.
    ///
    /// A program that could not be started is an error here. After the first result, this waits forever.
    pub async fn wait(&mut self) -> Result<ExitStatus> {
        poll_fn(|cx| self.control.poll_wait(cx)).await
    }
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Process")
    }
}
