//! A stand-in until `local` is here: files beneath a directory of this machine, commands as ordinary processes.

use std::path::Path;
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};

use futures_util::future::join4;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::Child;

use super::{Command, Ended, Entry, Part, Printed, Ran, Root, SandboxBackend, Sink, Stream};
use crate::error::{Error, ErrorKind, Result};

/// A directory of this machine.
pub(crate) struct Plain {
    uri: String,
    root: Root,
}

/// How much of each stream is held.
const BYTES_MOST: usize = 1024 * 1024;

impl Plain {
    pub(crate) fn new(uri: &str, root: Root) -> Self {
        Plain { uri: uri.to_owned(), root }
    }
}

impl SandboxBackend for Plain {
    fn uri(&self) -> &str {
        &self.uri
    }

    async fn run(&self, command: &Command, sink: &mut Sink<'_>) -> Result<Ran> {
        let directory = self.root.directory(&command.cwd)?;
        let [program, arguments @ ..] = &command.argv[..] else {
            return Err(Error::new(ErrorKind::Arguments, "wanted a program to run, found none"));
        };
        let failed = |error: std::io::Error| {
            Error::new(ErrorKind::Io, format_args!("cannot run `{program}`: {}", error.kind())).because(error)
        };
        let mut process = tokio::process::Command::new(program);
        process.args(arguments);
        #[cfg(target_os = "linux")]
        process.current_dir(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&directory)));
        #[cfg(not(target_os = "linux"))]
        process.current_dir(self.root.path().join(self.root.name(&command.cwd).unwrap_or_default()));
        let kept = ["PATH", "HOME", "LANG", "TERM"].into_iter();
        process.env_clear().envs(kept.filter_map(|name| Some((name, std::env::var_os(name)?))));
        process.envs(command.env.iter().map(|(name, value)| (name, value)));
        process.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        process.process_group(0);
        let mut process = process.spawn().map_err(failed)?;
        drop(directory);
        let group = Group::of(&process);
        let (input, out, err) = (process.stdin.take(), process.stdout.take(), process.stderr.take());
        let kept = Mutex::new((Printed::default(), Printed::default(), sink));
        let ended = {
            let given = async {
                if let Some(mut input) = input {
                    let _ = input.write_all(&command.stdin).await;
                }
            };
            let ended = async {
                let status = process.wait().await;
                // What it left running would keep the pipes open, and outlive the call.
                drop(group);
                status
            };
            let all = join4(given, take(out, Stream::Out, &kept), take(err, Stream::Err, &kept), ended);
            tokio::time::timeout(command.time, all).await
        };
        let (out, err, _) = kept.into_inner().unwrap_or_else(PoisonError::into_inner);
        let ended = match ended {
            Err(_) => Ended::TimedOut,
            Ok((.., status)) => {
                let status = status.map_err(failed)?;
                let signal = std::os::unix::process::ExitStatusExt::signal(&status);
                signal.map_or(Ended::Exit(status.code().unwrap_or(-1)), Ended::Signal)
            }
        };
        Ok(Ran { ended, out, err })
    }

    async fn read(&self, path: &str, part: Part) -> Result<Vec<u8>> {
        self.root.read(path, part)
    }

    async fn write(&self, path: &str, bytes: &[u8]) -> Result<()> {
        self.root.write(path, bytes)
    }

    async fn list(&self, path: &str) -> Result<Vec<Entry>> {
        self.root.list(path)
    }

    async fn look(&self, path: &str) -> Result<Option<Entry>> {
        self.root.look(path)
    }

    fn directory(&self) -> Option<&Path> {
        Some(self.root.path())
    }
}

type Kept<'a, 'b> = Mutex<(Printed, Printed, &'a mut Sink<'b>)>;

/// Takes in what a process prints. What is too much is read and left out, lest the process wait for ever.
async fn take(from: Option<impl AsyncRead + Unpin>, stream: Stream, kept: &Kept<'_, '_>) {
    let Some(mut from) = from else { return };
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        let (out, err, sink) = &mut *kept.lock().unwrap_or_else(PoisonError::into_inner);
        let printed = if stream == Stream::Out { out } else { err };
        let bytes = &buffer[..read];
        printed.bytes += read as u64;
        let (beginning, rest) = bytes.split_at(read.min(BYTES_MOST.saturating_sub(printed.beginning.len())));
        printed.beginning.extend_from_slice(beginning);
        printed.end.extend_from_slice(rest);
        let too_much = printed.end.len().saturating_sub(BYTES_MOST);
        printed.end.drain(..too_much);
        sink(stream, bytes);
    }
}

/// Everything that a process started in its group, itself included. It ends with this.
struct Group(Option<u32>);

impl Group {
    fn of(process: &Child) -> Self {
        Group(process.id())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = self.0.and_then(|id| rustix::process::Pid::from_raw(id.cast_signed())) {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
    }
}
