//! A command that runs, from here.

use std::ffi::{CString, OsString};
use std::future::poll_fn;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::output::Output;
use super::supervisor::{Cwd, Plan, Report, Strings, Supervisor};
use super::{Errand, Failure, Spool, Stage, Start};
use crate::error::ErrorKind;
use crate::error::{Error, Result};
use crate::{Command, Ended, Ran, Sink, Stream};

impl Errand<'_> {
    /// Runs the command to its end.
    pub(crate) async fn run(self, sink: &mut Sink<'_>) -> Result<Ran> {
        let mut running = Running::start(&self)?;
        let mut time = pin!(tokio::time::sleep(self.command.time.min(FOR_EVER)));
        poll_fn(|cx| running.poll(cx, time.as_mut(), sink)).await?;
        running.finish(self.command, sink)
    }
}

/// More than a timer takes.
const FOR_EVER: Duration = Duration::from_secs(60 * 60 * 24 * 365);
/// How much is read at once.
const CHUNK: usize = 64 * 1024;
/// How many times something is read before others have their turn.
const TURNS: usize = 32;

/// A command that runs.
struct Running<'a> {
    supervisor: Supervisor,
    exited: AsyncFd<OwnedFd>,
    stdin: Option<Input<'a>>,
    out: Option<AsyncFd<OwnedFd>>,
    err: Option<AsyncFd<OwnedFd>>,
    printed: [Output; 2],
    /// How much may still be printed.
    room: u64,
    stopped: Option<Ended>,
    buffer: Vec<u8>,
    spool: &'a Spool,
}

/// What the command has not read yet.
struct Input<'a> {
    pipe: AsyncFd<OwnedFd>,
    left: &'a [u8],
}

impl<'a> Running<'a> {
    fn start(errand: &Errand<'a>) -> Result<Self> {
        let command = errand.command;
        let failed = |errno: Errno| cannot_start(command, &errno.into());
        let (stdin, input) = if command.stdin.is_empty() {
            let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
            (high(rustix::fs::open("/dev/null", flags, rustix::fs::Mode::empty())).map_err(failed)?, None)
        } else {
            let (theirs, ours) = pipe().map_err(failed)?;
            (theirs, Some(ours))
        };
        let (out, stdout) = pipe().map_err(failed)?;
        let (err, stderr) = pipe().map_err(failed)?;
        let (life, alive) = pipe().map_err(failed)?;
        let plan = Plan {
            programs: programs(command, &errand.env)?,
            argv: Strings::new(strings(command, command.argv.iter().map(|word| word.clone().into_bytes()))?),
            env: Strings::new(strings(command, errand.env.iter().map(variable))?),
            cwd: match &errand.start {
                Start::In(directory) => Cwd::Opened(directory.as_raw_fd()),
                Start::Below(path) => Cwd::Inside(path.clone()),
            },
            stdio: [stdin.as_raw_fd(), stdout.as_raw_fd(), stderr.as_raw_fd()],
            life: life.as_raw_fd(),
            rlimits: errand.rlimits.clone(),
            groups: errand.groups.iter().map(AsRawFd::as_raw_fd).collect(),
            world: errand.world.clone(),
            report: Report::default(),
        };
        let supervisor = Supervisor::start(plan, alive).map_err(|failure| explain(command, failure))?;
        let failed = |error: std::io::Error| cannot_start(command, &error);
        let input = input.map(|pipe| watch(pipe, Interest::WRITABLE)).transpose().map_err(failed)?;
        let exited = supervisor.pidfd.try_clone().map_err(failed)?;
        Ok(Running {
            exited: watch(exited, Interest::READABLE).map_err(failed)?,
            supervisor,
            stdin: input.map(|pipe| Input { pipe, left: &command.stdin }),
            out: Some(watch(out, Interest::READABLE).map_err(failed)?),
            err: Some(watch(err, Interest::READABLE).map_err(failed)?),
            printed: Default::default(),
            room: errand.output,
            stopped: None,
            buffer: vec![0; CHUNK],
            spool: errand.spool,
        })
    }

    /// Ready once everything that the command started has ended.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        time: Pin<&mut tokio::time::Sleep>,
        sink: &mut Sink<'_>,
    ) -> Poll<Result<()>> {
        if self.stopped.is_none() && time.poll(cx).is_ready() {
            self.stop(Ended::TimedOut);
        }
        if self.exited.poll_read_ready(cx).is_ready() {
            return Poll::Ready(Ok(()));
        }
        self.feed(cx);
        for stream in [Stream::Out, Stream::Err] {
            self.take(cx, stream, sink)?;
        }
        Poll::Pending
    }

    fn stop(&mut self, why: Ended) {
        self.stopped = self.stopped.or(Some(why));
        self.stdin = None;
        self.supervisor.stop();
    }

    /// Gives the command what it still has to read, as far as it takes it.
    fn feed(&mut self, cx: &mut Context<'_>) {
        while let Some(input) = &mut self.stdin {
            let Poll::Ready(Ok(mut ready)) = input.pipe.poll_write_ready(cx) else { return };
            match ready.try_io(|pipe| Ok(rustix::io::write(pipe.get_ref(), input.left)?)) {
                Ok(Ok(written)) if written < input.left.len() => input.left = &input.left[written..],
                Err(_) => {}
                // All of it, or nobody reads any more.
                Ok(_) => self.stdin = None,
            }
        }
    }

    /// Takes in what has been printed.
    fn take(&mut self, cx: &mut Context<'_>, stream: Stream, sink: &mut Sink<'_>) -> Result<()> {
        for _ in 0..TURNS {
            let pipe = match stream {
                Stream::Out => &mut self.out,
                Stream::Err => &mut self.err,
            };
            let Some(open) = pipe else { return Ok(()) };
            let Poll::Ready(Ok(mut ready)) = open.poll_read_ready(cx) else { return Ok(()) };
            match ready.try_io(|pipe| Ok(rustix::io::read(pipe.get_ref(), &mut self.buffer)?)) {
                Ok(Ok(read @ 1..)) => self.keep(stream, read, sink)?,
                Err(_) => {}
                Ok(_) => *pipe = None,
            }
        }
        // Without this, nobody would come back to what is still there.
        cx.waker().wake_by_ref();
        Ok(())
    }

    /// Keeps what is at the beginning of the buffer, as far as there is room.
    fn keep(&mut self, stream: Stream, read: usize, sink: &mut Sink<'_>) -> Result<()> {
        let kept = usize::try_from(self.room).map_or(read, |room| read.min(room));
        self.room -= kept as u64;
        let chunk = &self.buffer[..kept];
        if kept > 0 {
            self.printed[stream as usize].push(chunk, self.spool)?;
            sink(stream, chunk);
        }
        if kept < read {
            self.stop(Ended::TooMuchOutput);
        }
        Ok(())
    }

    /// What came of it, once everything has ended.
    fn finish(mut self, command: &Command, sink: &mut Sink<'_>) -> Result<Ran> {
        for stream in [Stream::Out, Stream::Err] {
            let pipe = match stream {
                Stream::Out => self.out.take(),
                Stream::Err => self.err.take(),
            };
            // What is in the pipe, and no more: somebody outside may have been given the other end.
            while let (Some(pipe), None) = (&pipe, self.stopped) {
                match rustix::io::read(pipe.get_ref(), &mut self.buffer) {
                    Ok(read @ 1..) => self.keep(stream, read, sink)?,
                    _ => break,
                }
            }
        }
        let ended = self.supervisor.finish().map_err(|failure| explain(command, failure))?;
        let [out, err] = self.printed.map(Output::finish);
        // A supervisor that does not know was killed by somebody else.
        let ended = self.stopped.or(ended).unwrap_or(Ended::Signal(9));
        Ok(Ran { ended, out: out?, err: err? })
    }
}

/// A descriptor that is told about.
#[allow(unsafe_code, reason = "it has to stay the same descriptor as long as it is watched")]
fn watch(fd: OwnedFd, interest: Interest) -> std::io::Result<AsyncFd<OwnedFd>> {
    rustix::fs::fcntl_setfl(&fd, rustix::fs::OFlags::NONBLOCK)?;
    // SAFETY: an `OwnedFd` is one and the same until it is dropped, which happens inside the `AsyncFd`.
    unsafe { AsyncFd::register_with_interest(fd, interest) }.map_err(Into::into)
}

/// Two ends of a pipe, neither of which is one of the first three descriptors.
fn pipe() -> Result<(OwnedFd, OwnedFd), Errno> {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
    Ok((high(Ok(read))?, high(Ok(write))?))
}

fn high(fd: Result<OwnedFd, Errno>) -> Result<OwnedFd, Errno> {
    match fd? {
        low if low.as_raw_fd() < 3 => rustix::io::fcntl_dupfd_cloexec(low.as_fd(), 3),
        fd => Ok(fd),
    }
}

/// Where the program may be: as it is named, or in the directories of `PATH`.
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

fn variable((name, value): &(OsString, OsString)) -> Vec<u8> {
    [name.as_bytes(), b"=", value.as_bytes()].concat()
}

fn strings(command: &Command, words: impl IntoIterator<Item = Vec<u8>>) -> Result<Vec<CString>> {
    let strings: Result<_, _> = words.into_iter().map(CString::new).collect();
    strings.map_err(|_| {
        let why = format_args!("cannot run `{}`: there is a zero byte in its words or its environment", name(command))
            .to_string();
        Error::new(ErrorKind::Unavailable, why)
    })
}

/// The program, without what the system cannot say.
fn name(command: &Command) -> String {
    command.argv.first().map(|name| name.replace('\0', "\u{fffd}")).unwrap_or_default()
}

fn cannot_start(command: &Command, error: &std::io::Error) -> Error {
    Error::new(ErrorKind::Io, format_args!("cannot run `{}`: {}", name(command), error.kind()))
}

/// What went wrong in words.
fn explain(command: &Command, (stage, errno): Failure) -> Error {
    let name = name(command);
    let error = std::io::Error::from(errno);
    let (kind, what, hint) = match (stage, errno) {
        (Stage::Program, Errno::NOENT) => (ErrorKind::Io, "there is no such program".to_owned(), None),
        (Stage::Program, Errno::ACCESS) => (ErrorKind::Io, "permission denied".to_owned(), None),
        (Stage::Program, Errno::NOEXEC) => {
            let hint = "a script has to begin with `#!` and its interpreter, or be given to one: `sh script`";
            (ErrorKind::Io, "it is not a program that this machine can run".to_owned(), Some(hint))
        }
        (Stage::Program, Errno::TOOBIG) => {
            (ErrorKind::Io, "its words and its environment are too long".to_owned(), None)
        }
        (Stage::Program, _) => (ErrorKind::Io, error.kind().to_string(), None),
        (Stage::Directory, _) => {
            let what = format!("cannot start in `{}`: {}", command.cwd.replace('\0', "\u{fffd}"), error.kind());
            (ErrorKind::Io, what, None)
        }
        _ => {
            let (what, hint) = stage.explain(errno);
            (ErrorKind::Unavailable, format!("{what}: {error}"), hint)
        }
    };
    let error = Error::new(kind, format_args!("cannot run `{name}`: {what}"));
    match hint {
        Some(hint) => error.with_hint(hint),
        None => error,
    }
}
