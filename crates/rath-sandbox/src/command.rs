//! Commands and their output.

use std::time::Duration;

use crate::files::Digest;

/// A command to run in a sandbox.
///
#[cfg_attr(all(feature = "process", target_os = "linux"), doc = "```")]
#[cfg_attr(not(all(feature = "process", target_os = "linux")), doc = "```ignore")]
/// use std::time::Duration;
///
/// use rath_sandbox::{Command, ExitStatus, Sandbox};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> rath_sandbox::Result<()> {
/// # let directory = tempfile::tempdir()?;
/// let mut command = Command::argv(["sort", "-r"]);
/// command.stdin = b"a\nb\n".to_vec();
/// command.timeout = Duration::from_secs(60);
/// let output = Sandbox::local(directory.path()).run(&command).await?;
/// assert_eq!(output.status, ExitStatus::Exit(0));
/// assert_eq!(output.stdout.text(), "b\na\n");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Command {
    /// The program and its arguments.
    ///
    /// A program without a `/` is looked up in the directories of `PATH`.
    pub argv: Vec<String>,
    /// The bytes that the command reads on stdin.
    pub stdin: Vec<u8>,
    /// The working directory, relative to the workspace.
    pub cwd: String,
    /// Environment variables, in addition to those of the sandbox. The last value of a name wins.
    pub env: Vec<(String, String)>,
    /// The time after which the command and all its processes are killed.
    pub timeout: Duration,
    /// Access beyond that of the sandbox.
    pub extra: ExtraAccess,
    /// Files and directories that the command cannot see, relative to the workspace, as far as the sandbox can hide them.
    pub hidden: Vec<std::path::PathBuf>,
}

/// Access that one command has beyond that of its sandbox.
///
/// A sandbox that cannot give it runs the command without.
///
/// Part of [`Command`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExtraAccess {
    /// Hosts on the network, such as `example.com`, `*.example.com` and `localhost:8080`.
    pub hosts: Vec<String>,
    /// Files and directories outside of the workspace that the command can write, by their absolute paths.
    pub writable: Vec<String>,
    /// True if the command commits: it can write the history in the `.git` of the workspace, and no hooks and settings. It is a single
    /// program, such as `git`, that can start no other.
    pub git: bool,
}

/// The result of a command.
///
/// A command that was started always has an output, even if it failed or was killed: see [`status`](Self::status).
///
/// Returned by [`Sandbox::run`](crate::Sandbox::run). See [`Command`] for an example.
#[derive(Clone, Debug)]
pub struct Output {
    /// The way in which the command ended.
    pub status: ExitStatus,
    /// The bytes that it wrote to stdout.
    pub stdout: CapturedStream,
    /// The bytes that it wrote to stderr.
    pub stderr: CapturedStream,
}

/// The end of a command.
///
/// Part of [`Output`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitStatus {
    /// The command exited with this code.
    Exit(i32),
    /// The command was ended by this signal.
    Signal(i32),
    /// The command was killed at its [`timeout`](Command::timeout).
    TimedOut,
    /// The command was killed because it printed more than the sandbox allows.
    TooMuchOutput,
}

/// The output of a command on one stream.
///
/// Up to 512 KiB are held in memory. Of more, the first and the last 256 KiB are held, and a file holds all of it.
///
/// Part of [`Output`].
#[derive(Clone, Debug, Default)]
pub struct CapturedStream {
    /// All of the output, or its beginning if that is too much for memory.
    pub head: Vec<u8>,
    /// The end of the output. Empty if `head` is all of it.
    pub tail: Vec<u8>,
    /// The size of the whole output in bytes.
    pub total_bytes: u64,
    /// The digest of the whole output, if that is too much for memory.
    ///
    /// [`Sandbox::spool_path`](super::Sandbox::spool_path) returns the file with this digest.
    pub spool_digest: Option<Digest>,
}

/// An output stream of a command.
///
/// Passed to [`Sink`] by [`Sandbox::run_streaming`](crate::Sandbox::run_streaming).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// A callback that receives the output of a command while the command runs.
pub type Sink<'a> = dyn FnMut(Stream, &[u8]) + Send + 'a;

impl Output {
    /// Returns stdout, then stderr, as text. Invalid UTF-8 is replaced.
    pub fn text(&self) -> String {
        let mut text = self.stdout.text();
        let errors = self.stderr.text();
        if !errors.is_empty() && !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text + &errors
    }
}

impl CapturedStream {
    /// Returns the output as text. Invalid UTF-8 is replaced.
    ///
    /// A note between head and tail gives the number of bytes that are left out, and the digest for
    /// [`Sandbox::spool_path`](super::Sandbox::spool_path).
    pub fn text(&self) -> String {
        let mut text = String::from_utf8_lossy(&self.head).into_owned();
        let omitted = self.total_bytes.saturating_sub((self.head.len() + self.tail.len()) as u64);
        if omitted > 0 {
            let whole = self.spool_digest.map(|digest| format!("; the whole is {digest}")).unwrap_or_default();
            text.push_str(&format!("\n[{omitted} bytes are left out here{whole}]\n"));
        }
        text + &String::from_utf8_lossy(&self.tail)
    }
}

impl Command {
    /// The timeout of a new command: ten minutes.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(600);

    /// Creates a command from a program and its arguments.
    pub fn argv(argv: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let argv = argv.into_iter().map(Into::into).collect();
        Command {
            argv,
            stdin: Vec::new(),
            cwd: String::new(),
            env: Vec::new(),
            timeout: Self::DEFAULT_TIMEOUT,
            extra: ExtraAccess::default(),
            hidden: Vec::new(),
        }
    }

    /// Creates a command that runs a line of shell, with `sh -c`.
    pub fn shell(line: &str) -> Self {
        Command::argv(["sh", "-c", line])
    }
}
