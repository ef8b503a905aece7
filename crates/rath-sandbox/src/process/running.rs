//! A running command, as its caller sees it.

use std::ffi::{CString, OsString};
use std::future::poll_fn;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::output::StreamCapture;
use super::supervisor::{CStrings, Cwd, SpawnPlan, SpawnReport, Supervisor};
use super::tag::ProcessTag;
use super::{SpawnFailure, SpawnRequest, SpawnStep, Spool, WorkingDir};
use crate::error::{Error, ErrorKind, Result};
use crate::isolated::Proxy;
use crate::{Command, ExitStatus, Output, Sink, Stream};

impl SpawnRequest<'_> {
    /// Runs the command to its end.
    pub(crate) async fn run(self, sink: &mut Sink<'_>) -> Result<Output> {
        let mut running = RunningCommand::start(&self)?;
        let mut timeout = pin!(tokio::time::sleep(self.command.timeout.min(MAX_TIMEOUT)));
        poll_fn(|cx| running.poll(cx, timeout.as_mut(), sink)).await?;
        running.finish(self.command, sink).await
    }
}

/// The longest timeout that is set: tokio's timers do not take any duration.
const MAX_TIMEOUT: Duration = Duration::from_secs(60 * 60 * 24 * 365);
/// The size of the buffer for output.
const READ_BYTES: usize = 64 * 1024;
/// The number of reads from a stream before the task yields to others.
const MAX_READS_PER_POLL: usize = 32;

/// The time between two signals that continue the supervisor.
const WAKE_INTERVAL: Duration = Duration::from_secs(1);
/// The number of such signals that a supervisor is given to kill its command.
const MAX_WAKES_SINCE_STOP: usize = 5;

/// The processes of a command and the pipes to them.
pub(super) struct StartedCommand {
    pub(super) supervisor: Supervisor,
    /// Ends with the command.
    _proxy: Option<Proxy>,
    exited: AsyncFd<OwnedFd>,
    /// None if stdin is empty.
    pub(super) stdin: Option<AsyncFd<OwnedFd>>,
    pub(super) out: Option<AsyncFd<OwnedFd>>,
    pub(super) err: Option<AsyncFd<OwnedFd>>,
    /// The time at which the supervisor is continued again, in case that its command has stopped it.
    wake: tokio::time::Interval,
}

/// The stdin of a command that starts.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum StdinKind {
    Empty,
    Pipe,
}

/// A command that runs to its end, with its input and its captured output.
struct RunningCommand<'a> {
    started: StartedCommand,
    /// The part of stdin that is not written yet.
    remaining_input: &'a [u8],
    captures: [StreamCapture; 2],
    /// The number of bytes that may still be printed.
    remaining_output_bytes: u64,
    /// The reason why the command was killed, if it was.
    stopped: Option<ExitStatus>,
    /// The number of times that the supervisor was continued since the command was killed.
    wakes_since_stop: usize,
    buffer: Vec<u8>,
    spool: Arc<Spool>,
}

impl StartedCommand {
    /// Starts the supervisor, which starts the command.
    pub(super) fn start(request: &SpawnRequest<'_>, stdin: StdinKind) -> Result<Self> {
        let command = request.command;
        let failed = |errno: Errno| cannot_start(command, &errno.into());
        let (stdin, input) = match stdin {
            StdinKind::Empty => {
                let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
                (above_stdio(rustix::fs::open("/dev/null", flags, rustix::fs::Mode::empty())).map_err(failed)?, None)
            }
            StdinKind::Pipe => {
                let (reader, writer) = pipe().map_err(failed)?;
                (reader, Some(writer))
            }
        };
        let (out, stdout) = pipe().map_err(failed)?;
        let (err, stderr) = pipe().map_err(failed)?;
        let (stop_reader, stop_writer) = pipe().map_err(failed)?;
        let proxy = request.hosts.clone().map(Proxy::start).transpose();
        let proxy = proxy.map_err(|error| cannot_start(command, &error))?;
        let tag = if request.namespace.is_none() { ProcessTag::new() } else { None };
        let plan = SpawnPlan {
            programs: programs(command, &request.env)?,
            argv: CStrings::new(strings(command, command.argv.iter().map(|word| word.clone().into_bytes()))?),
            env: CStrings::new(strings(command, request.env.iter().map(variable))?),
            cwd: match &request.cwd {
                WorkingDir::Open(directory) => Cwd::Open(directory.as_raw_fd()),
                WorkingDir::InWorkspace(path) => Cwd::InWorkspace(path.clone()),
            },
            stdio: [stdin.as_raw_fd(), stdout.as_raw_fd(), stderr.as_raw_fd()],
            stop_pipe: stop_reader.as_raw_fd(),
            proxy_socket: proxy.as_ref().map(|proxy| proxy.supervisor_end().as_raw_fd()),
            rlimits: request.rlimits.iter().cloned().chain(tag.map(ProcessTag::rlimit)).collect(),
            cgroups: request.cgroups.iter().map(AsRawFd::as_raw_fd).collect(),
            namespace: request.namespace.clone(),
            confinement: request.confinement.clone(),
            tag,
            report: SpawnReport::default(),
        };
        let supervisor = Supervisor::start(plan, stop_writer).map_err(|failure| explain(command, failure))?;
        let failed = |error: std::io::Error| cannot_start(command, &error);
        let input = input.map(|pipe| register(pipe, Interest::WRITABLE)).transpose().map_err(failed)?;
        let exited = supervisor.pidfd.try_clone().map_err(failed)?;
        let mut wake = tokio::time::interval_at(tokio::time::Instant::now() + WAKE_INTERVAL, WAKE_INTERVAL);
        wake.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        Ok(StartedCommand {
            exited: register(exited, Interest::READABLE).map_err(failed)?,
            supervisor,
            _proxy: proxy,
            stdin: input,
            out: Some(register(out, Interest::READABLE).map_err(failed)?),
            err: Some(register(err, Interest::READABLE).map_err(failed)?),
            wake,
        })
    }

    /// Ready when all processes of the command have ended.
    pub(super) fn poll_exited(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.exited.poll_read_ready(cx).map(|_| ())
    }

    /// Continues the supervisor when it is time to. Returns the number of times.
    pub(super) fn poll_wake(&mut self, cx: &mut Context<'_>) -> usize {
        let mut wakes = 0;
        while self.wake.poll_tick(cx).is_ready() {
            self.supervisor.wake();
            wakes += 1;
        }
        wakes
    }
}

impl<'a> RunningCommand<'a> {
    fn start(request: &SpawnRequest<'a>) -> Result<Self> {
        let stdin = if request.command.stdin.is_empty() { StdinKind::Empty } else { StdinKind::Pipe };
        Ok(RunningCommand {
            started: StartedCommand::start(request, stdin)?,
            remaining_input: &request.command.stdin,
            captures: Default::default(),
            remaining_output_bytes: request.max_output_bytes,
            stopped: None,
            wakes_since_stop: 0,
            buffer: vec![0; READ_BYTES],
            spool: request.spool.clone(),
        })
    }

    /// Moves input and output. Ready when all processes of the command have ended.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        timeout: Pin<&mut tokio::time::Sleep>,
        sink: &mut Sink<'_>,
    ) -> Poll<Result<()>> {
        if self.stopped.is_none() && timeout.poll(cx).is_ready() {
            self.stop(ExitStatus::TimedOut);
        }
        if self.started.poll_exited(cx).is_ready() {
            return Poll::Ready(Ok(()));
        }
        let wakes = self.started.poll_wake(cx);
        self.count_wakes(wakes);
        self.write_stdin(cx);
        for stream in [Stream::Stdout, Stream::Stderr] {
            self.read_stream(cx, stream, sink)?;
        }
        Poll::Pending
    }

    /// Kills the command. The first reason counts.
    fn stop(&mut self, reason: ExitStatus) {
        self.stopped = self.stopped.or(Some(reason));
        self.started.stdin = None;
        self.started.supervisor.stop();
    }

    /// Counts how often the supervisor was continued, and after some time kills what it should have killed.
    fn count_wakes(&mut self, wakes: usize) {
        if self.stopped.is_some() {
            self.wakes_since_stop += wakes;
            if self.wakes_since_stop > MAX_WAKES_SINCE_STOP && wakes > 0 {
                self.started.supervisor.kill();
            }
        }
    }

    /// Writes as much of stdin as the pipe takes.
    fn write_stdin(&mut self, cx: &mut Context<'_>) {
        while let Some(pipe) = &mut self.started.stdin {
            let Poll::Ready(Ok(mut ready)) = pipe.poll_write_ready(cx) else { return };
            match ready.try_io(|pipe| Ok(rustix::io::write(pipe.get_ref(), self.remaining_input)?)) {
                Ok(Ok(written)) if written < self.remaining_input.len() => {
                    self.remaining_input = &self.remaining_input[written..];
                }
                Err(_) => {}
                // All is written, or the other end is closed.
                Ok(_) => self.started.stdin = None,
            }
        }
    }

    /// Reads the output that is there.
    fn read_stream(&mut self, cx: &mut Context<'_>, stream: Stream, sink: &mut Sink<'_>) -> Result<()> {
        for _ in 0..MAX_READS_PER_POLL {
            let pipe = match stream {
                Stream::Stdout => &mut self.started.out,
                Stream::Stderr => &mut self.started.err,
            };
            let Some(open) = pipe else { return Ok(()) };
            // While the disk is behind, the command waits.
            let Poll::Ready(()) = self.captures[stream as usize].poll_room(cx)? else { return Ok(()) };
            let Poll::Ready(Ok(mut ready)) = open.poll_read_ready(cx) else { return Ok(()) };
            match ready.try_io(|pipe| Ok(rustix::io::read(pipe.get_ref(), &mut self.buffer)?)) {
                Ok(Ok(read @ 1..)) => self.capture(stream, read, sink),
                Err(_) => {}
                Ok(_) => *pipe = None,
            }
        }
        // The pipe may hold more, and its readiness is not reported again.
        cx.waker().wake_by_ref();
        Ok(())
    }

    /// Captures the first `read` bytes of the buffer, up to the output limit.
    fn capture(&mut self, stream: Stream, read: usize, sink: &mut Sink<'_>) {
        let allowed = usize::try_from(self.remaining_output_bytes).map_or(read, |max| read.min(max));
        self.remaining_output_bytes -= allowed as u64;
        let chunk = &self.buffer[..allowed];
        if allowed > 0 {
            self.captures[stream as usize].push(chunk, &self.spool);
            sink(stream, chunk);
        }
        if allowed < read {
            self.stop(ExitStatus::TooMuchOutput);
        }
    }

    /// Returns the output, after all processes have ended.
    async fn finish(mut self, command: &Command, sink: &mut Sink<'_>) -> Result<Output> {
        for stream in [Stream::Stdout, Stream::Stderr] {
            let pipe = match stream {
                Stream::Stdout => self.started.out.take(),
                Stream::Stderr => self.started.err.take(),
            };
            // Only what is in the pipe now: a process outside may have been given the other end, and keep it open.
            while let (Some(pipe), None) = (&pipe, self.stopped) {
                match rustix::io::read(pipe.get_ref(), &mut self.buffer) {
                    Ok(read @ 1..) => self.capture(stream, read, sink),
                    _ => break,
                }
                poll_fn(|cx| self.captures[stream as usize].poll_room(cx)).await?;
            }
        }
        let status = self.started.supervisor.finish().map_err(|failure| explain(command, failure))?;
        let [stdout, stderr] = self.captures;
        // Without a status, the supervisor was killed from outside.
        let status = self.stopped.or(status).unwrap_or(ExitStatus::Signal(9));
        Ok(Output { status, stdout: stdout.finish().await?, stderr: stderr.finish().await? })
    }
}

/// Registers a descriptor with the reactor.
#[allow(unsafe_code, reason = "the descriptor has to stay the same while it is registered")]
pub(crate) fn register(fd: OwnedFd, interest: Interest) -> std::io::Result<AsyncFd<OwnedFd>> {
    rustix::fs::fcntl_setfl(&fd, rustix::fs::OFlags::NONBLOCK)?;
    // SAFETY: an `OwnedFd` refers to the same descriptor until it is dropped, and the `AsyncFd` that owns it deregisters it
    // before that.
    unsafe { AsyncFd::register_with_interest(fd, interest) }.map_err(Into::into)
}

/// Creates a pipe, read end first, whose descriptors are above those of stdio.
fn pipe() -> Result<(OwnedFd, OwnedFd), Errno> {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
    Ok((above_stdio(Ok(read))?, above_stdio(Ok(write))?))
}

/// Moves a descriptor above those of stdio, which the supervisor replaces.
fn above_stdio(fd: Result<OwnedFd, Errno>) -> Result<OwnedFd, Errno> {
    match fd? {
        low if low.as_raw_fd() < 3 => rustix::io::fcntl_dupfd_cloexec(low.as_fd(), 3),
        fd => Ok(fd),
    }
}

/// Returns the paths at which the program may be: its own, or those in the directories of `PATH`.
fn programs(command: &Command, env: &[(OsString, OsString)]) -> Result<Vec<CString>> {
    let Some(name) = command.argv.first().filter(|name| !name.is_empty()) else {
        return Err(Error::new(ErrorKind::Config, "wanted a program to run, found an empty command"));
    };
    if name.contains('/') {
        return strings(command, [name.clone().into_bytes()]);
    }
    let path = env.iter().find(|(variable, _)| variable == "PATH").map(|(_, path)| path.clone()).unwrap_or_default();
    let directories = std::env::split_paths(&path).filter(|directory| directory.is_absolute());
    strings(command, directories.map(|directory| directory.join(name).into_os_string().into_vec()))
}

/// Formats an environment variable as the kernel wants it.
fn variable((name, value): &(OsString, OsString)) -> Vec<u8> {
    [name.as_bytes(), b"=", value.as_bytes()].concat()
}

fn strings(command: &Command, words: impl IntoIterator<Item = Vec<u8>>) -> Result<Vec<CString>> {
    let strings: Result<_, _> = words.into_iter().map(CString::new).collect();
    strings.map_err(|_| {
        let name = name(command);
        let message = format!("cannot run `{name}`: there is a NUL byte in its arguments or its environment");
        Error::new(ErrorKind::Unavailable, message)
    })
}

/// Returns the name of the program for an error message.
fn name(command: &Command) -> String {
    command.argv.first().map(|name| name.replace('\0', "\u{fffd}")).unwrap_or_default()
}

/// Returns the error for a system call that failed before the supervisor started.
fn cannot_start(command: &Command, error: &std::io::Error) -> Error {
    Error::new(ErrorKind::Io, format_args!("cannot run `{}`: {}", name(command), error.kind()))
}

/// Returns the error for a command that could not be started.
pub(super) fn explain(command: &Command, (step, errno): SpawnFailure) -> Error {
    let name = name(command);
    let error = std::io::Error::from(errno);
    let (kind, what, hint) = match (step, errno) {
        (SpawnStep::Program, Errno::NOENT) => (
            ErrorKind::Io,
            "there is no such program".to_owned(),
            Some("name a program that is installed, or its path"),
        ),
        (SpawnStep::Program, Errno::ACCESS) => (ErrorKind::Io, "permission denied".to_owned(), None),
        (SpawnStep::Program, Errno::NOEXEC) => {
            let hint = "a script has to begin with `#!` and its interpreter, or be given to one: `sh script`";
            (ErrorKind::Io, "it is not a program that this machine can run".to_owned(), Some(hint))
        }
        (SpawnStep::Program, Errno::TOOBIG) => {
            (ErrorKind::Io, "its arguments and its environment are too long".to_owned(), None)
        }
        (SpawnStep::Program, _) => (ErrorKind::Io, error.kind().to_string(), None),
        (SpawnStep::Directory, _) => {
            let what = format!("cannot start in `{}`: {}", command.cwd.replace('\0', "\u{fffd}"), error.kind());
            (ErrorKind::Io, what, None)
        }
        _ => {
            let (what, hint) = step.explain(errno);
            (ErrorKind::Unavailable, format!("{what}: {error}"), hint)
        }
    };
    let error = Error::new(kind, format_args!("cannot run `{name}`: {what}"));
    match hint {
        Some(hint) => error.with_hint(hint),
        None => error,
    }
}
