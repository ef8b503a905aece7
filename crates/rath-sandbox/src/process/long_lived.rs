//! Processes that run until they are dropped.

use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::SpawnRequest;
use super::running::{StartedCommand, StdinKind, explain};
use crate::error::{Error, ErrorKind, Result};
use crate::{Command, ExitStatus, Process, ProcessControl};

impl SpawnRequest<'_> {
    /// Starts the command with open pipes. `kept` is dropped when the process has ended.
    pub(crate) fn start(self, kept: impl Send + 'static) -> Result<Process> {
        if !self.command.stdin.is_empty() {
            let message = "a process that is started has an open stdin, so the command cannot bring its own";
            return Err(Error::new(ErrorKind::Config, message));
        }
        let mut started = StartedCommand::start(&self, StdinKind::Pipe)?;
        let missing = || Error::new(ErrorKind::Io, "a pipe of the process is missing");
        let stdin = started.stdin.take().ok_or_else(missing)?;
        let stdout = started.out.take().ok_or_else(missing)?;
        let stderr = started.err.take().ok_or_else(missing)?;
        // The rest may be a secret, and is not needed for errors.
        let command = Command { cwd: self.command.cwd.clone(), ..Command::argv(self.command.argv.first().cloned()) };
        let control = RunningProcess { started: Some((started, Box::new(kept))), command };
        Ok(Process::new(
            Box::new(PipeWriter(stdin)),
            Box::new(PipeReader(stdout)),
            Box::new(PipeReader(stderr)),
            control,
        ))
    }
}

/// A process that runs.
struct RunningProcess {
    /// None after the end. The processes die before the rest is dropped.
    started: Option<(StartedCommand, Box<dyn Send>)>,
    /// The name and the directory of the command, for errors.
    command: Command,
}

impl ProcessControl for RunningProcess {
    fn poll_wait(&mut self, cx: &mut Context<'_>) -> Poll<Result<ExitStatus>> {
        let Some((started, _)) = &mut self.started else { return Poll::Pending };
        started.poll_wake(cx);
        ready!(started.poll_exited(cx));
        let Some((started, _kept)) = self.started.take() else { return Poll::Pending };
        let status = started.supervisor.finish().map_err(|failure| explain(&self.command, failure));
        // Without a status, the supervisor was killed from outside.
        Poll::Ready(status.map(|status| status.unwrap_or(ExitStatus::Signal(9))))
    }
}

/// The read end of a pipe.
struct PipeReader(AsyncFd<OwnedFd>);

impl AsyncRead for PipeReader {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut ready = ready!(self.0.poll_read_ready(cx))?;
            let read = ready.try_io(|pipe| Ok(rustix::io::read(pipe.get_ref(), buffer.initialize_unfilled())?));
            match read {
                Ok(Ok(read)) => {
                    buffer.advance(read);
                    return Poll::Ready(Ok(()));
                }
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(Err(error)) => return Poll::Ready(Err(error)),
                Err(_) => {}
            }
        }
    }
}

/// The write end of a pipe.
struct PipeWriter(AsyncFd<OwnedFd>);

impl AsyncWrite for PipeWriter {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            let mut ready = ready!(self.0.poll_write_ready(cx))?;
            match ready.try_io(|pipe| Ok(rustix::io::write(pipe.get_ref(), bytes)?)) {
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(written) => return Poll::Ready(written),
                Err(_) => {}
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Does nothing: the pipe is closed when it is dropped.
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
