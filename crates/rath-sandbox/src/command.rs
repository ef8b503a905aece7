//! A command, and what came of it.

use std::time::Duration;

use crate::files::Digest;

/// A command to run in a sandbox.
#[derive(Clone, Debug)]
pub struct Command {
    /// The program and what it is given.
    pub argv: Vec<String>,
    /// What it reads.
    pub stdin: Vec<u8>,
    /// Where it starts, relative to the workspace.
    pub cwd: String,
    /// What it finds in its environment beside what the sandbox lets through.
    pub env: Vec<(String, String)>,
    /// How long it may take.
    pub time: Duration,
}

/// What came of a command.
#[derive(Clone, Debug)]
pub struct Ran {
    /// How it ended.
    pub ended: Ended,
    /// What it printed.
    pub out: Printed,
    /// What it printed as errors.
    pub err: Printed,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// By itself, with this exit code.
    Exit(i32),
    /// By a signal.
    Signal(i32),
    /// Its time was over.
    TimedOut,
    /// It printed more than may be kept.
    TooMuchOutput,
}

/// What a command printed on one stream.
#[derive(Clone, Debug, Default)]
pub struct Printed {
    /// As much of it as is held in memory: its beginning and, where that is not all, its end.
    pub beginning: Vec<u8>,
    /// Its end, where something is left out between the two.
    pub end: Vec<u8>,
    /// How many bytes it was.
    pub bytes: u64,
    /// The digest of all of it, and of the file that it is kept in, where it is not all here.
    pub spooled: Option<Digest>,
}

/// Which of its two streams a command printed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// What it printed.
    Out,
    /// What it printed as errors.
    Err,
}

/// Is told what a command prints, as it comes.
pub type Sink<'a> = dyn FnMut(Stream, &[u8]) + Send + 'a;

impl Ran {
    /// What it printed, as text: what it printed as errors comes last.
    pub fn text(&self) -> String {
        let mut said = self.out.text();
        let errors = self.err.text();
        if !errors.is_empty() && !said.is_empty() && !said.ends_with('\n') {
            said.push('\n');
        }
        said + &errors
    }
}

impl Printed {
    /// As text, with a note where something is left out: by the digest in it, [`Sandbox::spooled`](super::Sandbox::spooled)
    /// finds all of it.
    pub fn text(&self) -> String {
        let mut text = String::from_utf8_lossy(&self.beginning).into_owned();
        let left_out = self.bytes.saturating_sub((self.beginning.len() + self.end.len()) as u64);
        if left_out > 0 {
            let whole = self.spooled.map(|digest| format!("; the whole is {digest}")).unwrap_or_default();
            text.push_str(&format!("\n[{left_out} bytes are left out here{whole}]\n"));
        }
        text + &String::from_utf8_lossy(&self.end)
    }
}

impl Command {
    /// How long a command may take, unless told otherwise.
    pub const TIME: Duration = Duration::from_secs(600);

    /// A program and what it is given.
    pub fn argv(argv: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let argv = argv.into_iter().map(Into::into).collect();
        Command { argv, stdin: Vec::new(), cwd: String::new(), env: Vec::new(), time: Self::TIME }
    }

    /// A line for the shell.
    pub fn shell(line: &str) -> Self {
        Command::argv(["sh", "-c", line])
    }
}
