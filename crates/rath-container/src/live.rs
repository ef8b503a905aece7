//! A container that runs: starting it, taking it over from a process that has died, and removing what dead processes left.

use std::io::{Error as IoError, ErrorKind as IoErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use bollard::models::ContainerSummary;
use rath_sandbox::backend::run_blocking;
use rath_sandbox::{Error, ErrorKind, Result};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, recv, sendmsg};
use uuid::Uuid;

use crate::control::{ControlDir, is_left, parse_id, sweep};
use crate::engine::{Engine, is_container_id};
use crate::spec::{ContainerSpec, ID_LABEL, OWNER_LABEL, SPEC_LABEL, SpecLimits};

/// The messages to the first process of a container.
const MESSAGE_COMMAND: u8 = b'c';
const MESSAGE_END: u8 = b'x';
/// The number of descriptors that come with a command: its channel, stdin, stdout and stderr.
pub(crate) const COMMAND_FDS: usize = 4;

/// The time in which the first process of a container connects.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// A container that this process owns. It ends when this value is dropped, and is removed by the engine then.
#[derive(Debug)]
pub(crate) struct LiveContainer {
    engine: Engine,
    id: String,
    /// The connection to its first process.
    connection: UnixStream,
    _control: ControlDir,
    /// The environment that the image gives commands.
    pub(crate) env: Vec<String>,
    pub(crate) limits: SpecLimits,
}

impl LiveContainer {
    /// Takes over the container of a process that has died, or starts one. Containers that nothing uses are removed first.
    pub(crate) async fn start(engine: Engine, spec: ContainerSpec) -> Result<Self> {
        let label = format!("{OWNER_LABEL}={}", rustix::process::geteuid().as_raw());
        let (running, ended) =
            (engine.list(&label, &["running"]).await?, engine.list(&label, &["created", "exited"]).await?);
        let is_complete = running.is_some() && ended.is_some();
        let running: Vec<_> = KnownContainer::of(&running.unwrap_or_default()).collect();
        let ended: Vec<_> = KnownContainer::of(&ended.unwrap_or_default()).collect();
        let digest = spec.digest.clone();
        let (own, left) = run_blocking(move || {
            if is_complete {
                sweep(|id| running.iter().chain(&ended).any(|it| it.control == id));
            }
            let own = running.into_iter().find(|it| it.spec == digest && is_left(it.control));
            Ok((own, ended.into_iter().filter(|it| is_left(it.control)).collect::<Vec<_>>()))
        })
        .await?;
        // Those that never ran, or that the engine has not removed. One that it cannot remove keeps no other from starting.
        for left in left {
            if engine.remove(&left.id).await.is_ok() {
                // Its removal is that of the directory.
                let _removed = run_blocking(move || Ok(ControlDir::take_over(left.control))).await?;
            }
        }
        if let Some(own) = own
            && let Some(taken) = LiveContainer::take_over(&engine, &own).await
        {
            let (connection, control) = taken;
            let ContainerSpec { env, limits, .. } = spec;
            return Ok(LiveContainer { engine, id: own.id, connection, _control: control, env, limits });
        }
        LiveContainer::create(engine, spec).await
    }

    /// Takes over a container whose process has died. One that does not answer is removed.
    async fn take_over(engine: &Engine, known: &KnownContainer) -> Option<(UnixStream, ControlDir)> {
        let id = known.control;
        let taken = run_blocking(move || {
            let Some(control) = ControlDir::take_over(id) else { return Ok(None) };
            let listener = control.listen()?;
            Ok(Some((control, listener)))
        });
        let (control, listener) = taken.await.ok().flatten()?;
        match accept(listener).await {
            Ok(connection) => {
                let control = run_blocking(move || {
                    control.stop_listening();
                    Ok(control)
                });
                Some((connection, control.await.ok()?))
            }
            Err(_) => {
                let _ = engine.remove(&known.id).await;
                None
            }
        }
    }

    async fn create(engine: Engine, spec: ContainerSpec) -> Result<Self> {
        let (control, listener) = run_blocking(|| {
            let control = ControlDir::create()?;
            let listener = control.listen()?;
            Ok((control, listener))
        })
        .await?;
        let id = control.id().to_string();
        let id = engine.create(format!("rath-{id}"), spec.body_in(control.path(), &id)).await?;
        let started = match engine.start(&id).await {
            Ok(()) => accept(listener).await,
            Err(error) => Err(error),
        };
        match started {
            Ok(connection) => {
                let control = run_blocking(move || {
                    control.stop_listening();
                    Ok(control)
                });
                let ContainerSpec { env, limits, .. } = spec;
                Ok(LiveContainer { engine, id, connection, _control: control.await?, env, limits })
            }
            Err(error) => {
                // The error of the start says more than one of the removal.
                let _ = engine.remove(&id).await;
                Err(error)
            }
        }
    }

    /// Returns true if the container runs.
    pub(crate) fn is_alive(&self) -> bool {
        let mut byte = [0_u8; 1];
        let peeked = recv(&self.connection, &mut byte[..], RecvFlags::PEEK | RecvFlags::DONTWAIT);
        peeked.is_err_and(|errno| errno == rustix::io::Errno::AGAIN)
    }

    /// Hands the descriptors of a command to the first process. Returns false if the container has ended, so that nothing was started.
    pub(crate) fn send_command(&self, fds: [BorrowedFd<'_>; COMMAND_FDS]) -> Result<bool, IoError> {
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(COMMAND_FDS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&fds));
        let message = [rustix::io::IoSlice::new(&[MESSAGE_COMMAND])];
        match sendmsg(&self.connection, &message, &mut control, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            Ok(_) => Ok(true),
            Err(rustix::io::Errno::PIPE | rustix::io::Errno::CONNRESET) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Ends the container: the kernel kills all of its processes.
    pub(crate) fn end(&self) {
        let _ = rustix::net::send(&self.connection, &[MESSAGE_END], SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
    }

    /// Removes the container by the engine: for one that does not end.
    pub(crate) async fn remove(&self) -> Result<()> {
        self.engine.remove(&self.id).await
    }
}

impl Drop for LiveContainer {
    fn drop(&mut self) {
        self.end();
    }
}

/// A container that a label names as one of this user.
#[derive(Clone, Debug, PartialEq, Eq)]
struct KnownContainer {
    id: String,
    control: Uuid,
    spec: String,
}

impl KnownContainer {
    /// Reads the entries of a list that rath made. Labels are text of others.
    fn of(list: &[ContainerSummary]) -> impl Iterator<Item = Self> {
        list.iter().filter_map(|entry| {
            let label = |name: &str| entry.labels.as_ref()?.get(name).cloned();
            Some(KnownContainer {
                id: entry.id.clone().filter(|id| is_container_id(id))?,
                control: parse_id(&label(ID_LABEL)?)?,
                spec: label(SPEC_LABEL)?,
            })
        })
    }
}

/// Waits until the first process of a container connects.
async fn accept(listener: UnixListener) -> Result<UnixStream> {
    let work = async {
        let listener = tokio::net::UnixListener::from_std(listener)?;
        let (stream, _) = listener.accept().await?;
        // The connection outlives this runtime.
        let stream = stream.into_std()?;
        stream.set_nonblocking(true)?;
        Ok(stream)
    };
    let accepted = tokio::time::timeout(CONNECT_TIMEOUT, work).await;
    accepted.unwrap_or_else(|_| Err(IoError::from(IoErrorKind::TimedOut))).map_err(|error| {
        let message = "the container has started, and its first process does not connect";
        Error::new(ErrorKind::Unavailable, message)
            .with_hint("the engine has to run on this machine, on the same kernel, with access to your data directory")
            .because(error)
    })
}

/// Returns the descriptors as they are sent.
pub(crate) fn borrowed(fds: &[OwnedFd; COMMAND_FDS]) -> [BorrowedFd<'_>; COMMAND_FDS] {
    [fds[0].as_fd(), fds[1].as_fd(), fds[2].as_fd(), fds[3].as_fd()]
}
