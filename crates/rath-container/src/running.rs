//! A command in a container, as its caller sees it: pipes, time, and the reports of its supervisor.

use std::future::poll_fn;
use std::io::ErrorKind as IoErrorKind;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdStream;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use rath_sandbox::backend::{Spool, StreamCapture};
use rath_sandbox::{Command, Error, ErrorKind, ExitStatus, Output, Result, Sink, Stream};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::net::UnixStream;
use tokio::net::unix::pipe::{Receiver, Sender};

use crate::command_text::{CommandText, Failure, explain, name_of};
use crate::live::{COMMAND_FDS, LiveContainer, borrowed};

/// The longest timeout that is set: tokio's timers do not take any duration.
const MAX_TIMEOUT: Duration = Duration::from_secs(60 * 60 * 24 * 365);
/// The time that a supervisor is given to kill its command, and then the container to end.
const MAX_KILL_TIME: Duration = Duration::from_secs(5);
/// The size of the buffer for output.
const READ_BYTES: usize = 64 * 1024;
/// The number of reads from a stream before the task yields to others.
const MAX_READS_PER_POLL: usize = 32;
/// The size in bytes of a report: its kind and a number.
const REPORT_BYTES: usize = 5;

/// A report of a supervisor.
#[derive(Clone, Copy, Debug)]
enum Report {
    Failed(Failure, Errno),
    Running,
    Ended(ExitStatus),
}

impl Report {
    /// Parses a report; none if a supervisor does not write such a one.
    fn parse(bytes: [u8; REPORT_BYTES]) -> Option<Self> {
        let [kind, number @ ..] = bytes;
        let number = i32::from_le_bytes(number);
        let errno = Errno::from_raw_os_error(number.clamp(1, 4095));
        Some(match kind {
            b'F' => Report::Failed(Failure::Process, errno),
            b'D' => Report::Failed(Failure::Directory, errno),
            b'P' => Report::Failed(Failure::Program, errno),
            b'R' => Report::Running,
            b'S' => Report::Ended(match number & 0x7f {
                0 => ExitStatus::Exit((number >> 8) & 0xff),
                signal => ExitStatus::Signal(signal),
            }),
            _ => return None,
        })
    }
}

/// The limits on the output of a command, and the directory for long output.
pub(crate) struct OutputLimits {
    pub(crate) max_bytes: u64,
    pub(crate) spool: Arc<Spool>,
}

/// Runs a command in a container to its end; none if the container had ended before, so that nothing was started.
pub(crate) async fn run(
    container: &LiveContainer,
    command: &Command,
    text: &CommandText,
    limits: OutputLimits,
    sink: &mut Sink<'_>,
) -> Result<Option<Output>> {
    let Some(mut running) = RunningCommand::start(container, command, text, limits)? else { return Ok(None) };
    let mut timeout = pin!(tokio::time::sleep(command.timeout.min(MAX_TIMEOUT)));
    let ended = poll_fn(|cx| running.poll(cx, timeout.as_mut(), sink)).await?;
    if let WaitEnd::NotInTime = ended {
        // A command that has stopped its supervisor: the kernel kills everything with the first process.
        container.end();
        if !running.wait_for_end(MAX_KILL_TIME).await {
            container.remove().await?;
        }
    }
    running.finish(command, sink).await.map(Some)
}

/// The way in which waiting for a command ended.
enum WaitEnd {
    InTime,
    /// Its supervisor does not answer.
    NotInTime,
}

/// A running command.
struct RunningCommand<'a> {
    /// The channel to the supervisor. It ends when all processes of the command have.
    channel: UnixStream,
    /// The part of the command that is not sent yet.
    unsent: &'a [u8],
    report: Vec<u8>,
    failure: Option<(Failure, Errno)>,
    status: Option<ExitStatus>,
    has_ended: bool,
    stdin: Option<(Sender, &'a [u8])>,
    out: Option<Receiver>,
    err: Option<Receiver>,
    captures: [StreamCapture; 2],
    /// The number of bytes that may still be printed.
    remaining_output_bytes: u64,
    /// The reason why the command was killed, if it was.
    stopped: Option<ExitStatus>,
    /// The end of the time for that.
    deadline: Option<Pin<Box<tokio::time::Sleep>>>,
    buffer: Vec<u8>,
    spool: Arc<Spool>,
    container: &'a LiveContainer,
}

impl<'a> RunningCommand<'a> {
    /// Hands the command to the container; none if that has ended.
    fn start(
        container: &'a LiveContainer,
        command: &'a Command,
        text: &'a CommandText,
        limits: OutputLimits,
    ) -> Result<Option<Self>> {
        let failed = |error: std::io::Error| {
            Error::new(ErrorKind::Io, format_args!("cannot run `{}`: {}", name_of(command), error.kind()))
        };
        let pipe = || pipe_with(PipeFlags::CLOEXEC).map_err(|errno| failed(errno.into()));
        let (channel, far_channel) = StdStream::pair().map_err(failed)?;
        channel.set_nonblocking(true).map_err(failed)?;
        let (stdin, input) = match command.stdin.is_empty() {
            true => {
                let null = std::fs::File::open("/dev/null").map_err(failed)?;
                (OwnedFd::from(null), None)
            }
            false => {
                let (reader, writer) = pipe()?;
                (reader, Some((Sender::from_owned_fd(writer).map_err(failed)?, &*command.stdin)))
            }
        };
        let ((out, stdout), (err, stderr)) = (pipe()?, pipe()?);
        let (out, err) = (Receiver::from_owned_fd(out).map_err(failed)?, Receiver::from_owned_fd(err).map_err(failed)?);
        let fds: [OwnedFd; COMMAND_FDS] = [far_channel.into(), stdin, stdout, stderr];
        let channel = UnixStream::from_std(channel).map_err(failed)?;
        if !container.send_command(borrowed(&fds)).map_err(failed)? {
            return Ok(None);
        }
        Ok(Some(RunningCommand {
            channel,
            unsent: &text.0,
            report: Vec::new(),
            failure: None,
            status: None,
            has_ended: false,
            stdin: input,
            out: Some(out),
            err: Some(err),
            captures: Default::default(),
            remaining_output_bytes: limits.max_bytes,
            stopped: None,
            deadline: None,
            buffer: vec![0; READ_BYTES],
            spool: limits.spool,
            container,
        }))
    }

    /// Moves input and output. Ready when all processes of the command have ended, or are not killed in time.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        timeout: Pin<&mut tokio::time::Sleep>,
        sink: &mut Sink<'_>,
    ) -> Poll<Result<WaitEnd>> {
        if self.stopped.is_none() && timeout.poll(cx).is_ready() {
            self.stop(ExitStatus::TimedOut);
        }
        self.write_command(cx);
        if self.read_reports(cx).is_ready() {
            return Poll::Ready(Ok(WaitEnd::InTime));
        }
        self.write_stdin(cx);
        for stream in [Stream::Stdout, Stream::Stderr] {
            self.read_stream(cx, stream, sink)?;
        }
        let is_late = self.deadline.as_mut().is_some_and(|deadline| deadline.as_mut().poll(cx).is_ready());
        if is_late { Poll::Ready(Ok(WaitEnd::NotInTime)) } else { Poll::Pending }
    }

    /// Tells the supervisor to kill the command. The first reason counts.
    fn stop(&mut self, reason: ExitStatus) {
        if self.stopped.is_none() {
            self.stopped = Some(reason);
            self.stdin = None;
            self.deadline = Some(Box::pin(tokio::time::sleep(MAX_KILL_TIME)));
            self.hang_up();
        }
    }

    /// Ends this side of the channel, which is how a supervisor is told to kill its command.
    fn hang_up(&mut self) {
        self.unsent = &[];
        let _ = rustix::net::shutdown(&self.channel, rustix::net::Shutdown::Write);
    }

    /// Sends as much of the command as the channel takes.
    fn write_command(&mut self, cx: &mut Context<'_>) {
        while !self.unsent.is_empty() {
            let Poll::Ready(Ok(())) = self.channel.poll_write_ready(cx) else { return };
            match self.channel.try_write(self.unsent) {
                Ok(written) => self.unsent = &self.unsent[written..],
                Err(error) if error.kind() == IoErrorKind::WouldBlock => {}
                // The supervisor has ended, which the other direction shows.
                Err(_) => self.unsent = &[],
            }
        }
    }

    /// Reads the reports of the supervisor. Ready after the last one, and at the end of the channel.
    fn read_reports(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            if self.has_ended {
                return Poll::Ready(());
            }
            let Poll::Ready(ready) = self.channel.poll_read_ready(cx) else { return Poll::Pending };
            let mut bytes = [0_u8; REPORT_BYTES];
            let wanted = REPORT_BYTES - self.report.len();
            match ready.and_then(|()| self.channel.try_read(&mut bytes[..wanted])) {
                Ok(read @ 1..) => self.take_report(&bytes[..read]),
                Err(error) if error.kind() == IoErrorKind::WouldBlock => {}
                Ok(_) | Err(_) => self.has_ended = true,
            }
        }
    }

    /// Adds bytes to the report, and acts on it when it is complete.
    fn take_report(&mut self, bytes: &[u8]) {
        self.report.extend_from_slice(bytes);
        let Ok(report) = <[u8; REPORT_BYTES]>::try_from(&*self.report) else { return };
        self.report.clear();
        match Report::parse(report) {
            Some(Report::Running) => {}
            Some(Report::Failed(failure, errno)) => (self.failure, self.has_ended) = (Some((failure, errno)), true),
            Some(Report::Ended(status)) => (self.status, self.has_ended) = (Some(status), true),
            None => self.has_ended = true,
        }
    }

    /// Waits for the end of the channel. Returns false if it does not end in time.
    async fn wait_for_end(&mut self, time: Duration) -> bool {
        tokio::time::timeout(time, poll_fn(|cx| self.read_reports(cx))).await.is_ok()
    }

    /// Writes as much of stdin as the pipe takes.
    fn write_stdin(&mut self, cx: &mut Context<'_>) {
        while let Some((pipe, remaining)) = &mut self.stdin {
            let Poll::Ready(ready) = pipe.poll_write_ready(cx) else { return };
            match ready.and_then(|()| pipe.try_write(remaining)) {
                Ok(written) if written < remaining.len() => *remaining = &remaining[written..],
                Err(error) if error.kind() == IoErrorKind::WouldBlock => {}
                // All is written, or the other end is closed.
                Ok(_) | Err(_) => self.stdin = None,
            }
        }
    }

    /// Reads the output that is there.
    fn read_stream(&mut self, cx: &mut Context<'_>, stream: Stream, sink: &mut Sink<'_>) -> Result<()> {
        for _ in 0..MAX_READS_PER_POLL {
            // While the disk is behind, the command waits.
            let Poll::Ready(()) = self.captures[stream as usize].poll_room(cx)? else { return Ok(()) };
            let Some(open) = self.pipe(stream) else { return Ok(()) };
            let Poll::Ready(_) = open.poll_read_ready(cx) else { return Ok(()) };
            match self.read_now(stream) {
                Some(0) => self.close(stream),
                Some(read) => self.capture(stream, read, sink),
                None => {}
            }
        }
        // The pipe may hold more, and its readiness is not reported again.
        cx.waker().wake_by_ref();
        Ok(())
    }

    fn pipe(&self, stream: Stream) -> Option<&Receiver> {
        match stream {
            Stream::Stdout => self.out.as_ref(),
            Stream::Stderr => self.err.as_ref(),
        }
    }

    fn close(&mut self, stream: Stream) {
        match stream {
            Stream::Stdout => self.out = None,
            Stream::Stderr => self.err = None,
        }
    }

    /// Reads what a pipe holds into the buffer. Returns the number of bytes, 0 at its end; none if there is nothing now.
    fn read_now(&mut self, stream: Stream) -> Option<usize> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let read = self.pipe(stream).map_or(Ok(0), |pipe| pipe.try_read(&mut buffer));
        self.buffer = buffer;
        match read {
            Ok(read) => Some(read),
            Err(error) if error.kind() == IoErrorKind::WouldBlock => None,
            Err(_) => Some(0),
        }
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
        self.has_ended = true;
        for stream in [Stream::Stdout, Stream::Stderr] {
            // Only what is in the pipe now: a process of another command may have been given the other end, and keep it open.
            while let (true, None) = (self.pipe(stream).is_some(), self.stopped) {
                match self.drain(stream) {
                    Some(read @ 1..) => self.capture(stream, read, sink),
                    _ => break,
                }
                poll_fn(|cx| self.captures[stream as usize].poll_room(cx)).await?;
            }
        }
        if let (Some((failure, errno)), None) = (self.failure, self.stopped) {
            return Err(explain(command, failure, errno));
        }
        let [stdout, stderr] = std::mem::take(&mut self.captures);
        // Without a status, the supervisor or the container was killed.
        let status = self.stopped.or(self.status).unwrap_or(ExitStatus::Signal(9));
        Ok(Output { status, stdout: stdout.finish().await?, stderr: stderr.finish().await? })
    }

    /// Reads what a pipe holds, also if its readiness has not been noticed.
    fn drain(&mut self, stream: Stream) -> Option<usize> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let read = self.pipe(stream).map(|pipe| rustix::io::read(pipe, &mut buffer));
        self.buffer = buffer;
        read?.ok()
    }
}

/// Kills the command and waits until its processes are dead.
impl Drop for RunningCommand<'_> {
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        self.hang_up();
        if !self.has_ended_before(Instant::now() + MAX_KILL_TIME / 2) {
            self.container.end();
            self.has_ended_before(Instant::now() + MAX_KILL_TIME / 2);
        }
    }
}

impl RunningCommand<'_> {
    /// Blocks until the channel ends, or the time is over. Returns true if it has ended.
    fn has_ended_before(&self, deadline: Instant) -> bool {
        let mut bytes = [0_u8; 64];
        loop {
            match rustix::net::recv(&self.channel, &mut bytes[..], rustix::net::RecvFlags::DONTWAIT) {
                Ok((0, _)) => return true,
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    let Ok(timeout) = Timespec::try_from(left) else { return false };
                    let mut fds = [PollFd::new(&self.channel, PollFlags::IN)];
                    if left.is_zero() || poll(&mut fds, Some(&timeout)).is_ok_and(|ready| ready == 0) {
                        return false;
                    }
                }
                Err(_) => return true,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_of_no_supervisor_are_none() {
        for report in [[0; 5], [b'X', 1, 2, 3, 4], [255; 5]] {
            assert!(Report::parse(report).is_none(), "{report:?}");
        }
        // No number of an error makes a panic.
        for kind in [b'F', b'D', b'P', b'R', b'S'] {
            for byte in [0, 1, 127, 128, 255] {
                assert!(Report::parse([kind, byte, byte, byte, byte]).is_some());
            }
        }
    }
}
