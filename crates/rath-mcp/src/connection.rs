//! A connection to a server: from its start to its end.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use rath::Secrets;
use rath_sandbox::{Command, ExitStatus, Process, Sandbox};
use rmcp::model::{
    ClientCapabilities, ClientConfig, ClientRequest, Implementation, ProgressNotificationParam, ProtocolVersion,
    ServerResult,
};
use rmcp::service::{
    ClientCacheConfig, ClientInitializeError, ClientLifecycleMode, ClientServiceExt, Peer, PeerRequestOptions,
    RequestHandle, RoleClient, RunningService, ServiceError,
};
use rmcp::transport::{DynamicTransportError, Transport};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout, timeout_at};

use crate::error::{Error, ErrorKind, Result};
use crate::inbox::{Inbox, InboxTransport};
use crate::limits::Limits;
use crate::stdio::{Diagnostics, StdioTransport, drain_stderr};
use crate::{http, message};

/// The time that a process is given to end after its stdin was closed.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// The time to wait for the end of a process whose stdout has ended, so that an error can tell of it.
const END_TIMEOUT: Duration = Duration::from_millis(500);
/// The bytes of a server's error message that are kept.
const MAX_MESSAGE_BYTES: usize = 2000;

/// A connection on which both sides have agreed on a version of the protocol. Dropping it ends a process.
pub(crate) struct Connection {
    service: RunningService<RoleClient, ClientConfig>,
    pub(crate) inbox: Arc<Inbox>,
    diagnostics: Arc<Diagnostics>,
    process: Option<RunningServer>,
    /// Tasks that end with the connection.
    tasks: Vec<JoinHandle<()>>,
}

/// The process of a server. The task that waits for its end shares it.
pub(crate) struct RunningServer(Arc<Mutex<Option<Process>>>);

impl Connection {
    /// Starts a process and agrees on a version with it.
    pub(crate) async fn stdio(
        sandbox: &Sandbox,
        command: &Command,
        limits: &Limits,
        secrets: &Secrets,
        (mode, deadline): (ClientLifecycleMode, tokio::time::Instant),
    ) -> Result<Self> {
        let diagnostics = Arc::new(Diagnostics::new(secrets.clone()));
        let Ok(started) = timeout_at(deadline, sandbox.start(command)).await else {
            return Err(Error::new(ErrorKind::Timeout, "it could not be started in time"));
        };
        let mut process = started.map_err(start_failed)?;
        let missing = || Error::new(ErrorKind::Start, "a pipe of the process is missing");
        let stdin = process.stdin.take().ok_or_else(missing)?;
        let stdout = process.stdout.take().ok_or_else(missing)?;
        let stderr = process.stderr.take().ok_or_else(missing)?;
        let transport = StdioTransport::new(stdin, stdout, *limits, diagnostics.clone());
        let draining = tokio::spawn(drain_stderr(stderr, diagnostics.clone()));
        let process = RunningServer(Arc::new(Mutex::new(Some(process))));
        let waiting = tokio::spawn(process.wait(diagnostics.clone()));
        let tasks = vec![draining, waiting];
        Connection::agree(transport, diagnostics, Some(process), tasks, (mode, deadline)).await
    }

    /// Agrees on a version over a transport.
    pub(crate) async fn agree<T: Transport<RoleClient> + 'static>(
        transport: T,
        diagnostics: Arc<Diagnostics>,
        process: Option<RunningServer>,
        tasks: Vec<JoinHandle<()>>,
        (mode, deadline): (ClientLifecycleMode, tokio::time::Instant),
    ) -> Result<Self> {
        let mut starting = StartGuard { process, tasks };
        let inbox = Arc::new(Inbox::default());
        let client = ClientConfig::new(ClientCapabilities::default(), identity());
        let transport = InboxTransport::new(transport, inbox.clone());
        let agreed = timeout_at(deadline, client.serve_with_lifecycle(transport, mode)).await;
        let error = match agreed {
            Ok(Ok(service)) => {
                check_version(service.peer(), &diagnostics)?;
                inbox.set_connected();
                // The library would hold every list, and answer from there while the server says that its list has changed.
                service.peer().set_response_cache_config(ClientCacheConfig::disabled()).await;
                let StartGuard { process, tasks } = &mut starting;
                let (process, tasks) = (process.take(), std::mem::take(tasks));
                return Ok(Connection { service, inbox, diagnostics, process, tasks });
            }
            Ok(Err(error)) => error,
            Err(_) => {
                let message = format!("it has not answered in time{}", diagnostics.describe());
                return Err(Error::new(ErrorKind::Timeout, message));
            }
        };
        let is_closed = inbox.is_closed() || matches!(error, ClientInitializeError::TransportError { .. });
        if is_closed && starting.process.is_some() {
            wait_for_end(&diagnostics).await;
        }
        let kind = match (is_closed, diagnostics.could_not_start()) {
            (_, true) => ErrorKind::Start,
            (true, _) => ErrorKind::Closed,
            _ => ErrorKind::Answer,
        };
        let why = match (&error, diagnostics.end()) {
            // The end of the process says more.
            (_, Some(_)) if is_closed => String::new(),
            (error, _) => format!(": {}", diagnostics.one_line(&describe(error), MAX_MESSAGE_BYTES)),
        };
        Err(Error::new(kind, format!("it could not be started{why}{}", diagnostics.describe())))
    }

    pub(crate) fn peer(&self) -> &Peer<RoleClient> {
        self.service.peer()
    }

    /// Adds a task that ends with the connection.
    pub(crate) fn keep(&mut self, task: JoinHandle<()>) {
        self.tasks.push(task);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.inbox.is_closed() || self.diagnostics.end().is_some() || self.peer().is_transport_closed()
    }

    /// Describes the end of the connection, as far as it is known.
    pub(crate) fn end_so_far(&self) -> String {
        self.diagnostics.describe()
    }

    /// Describes the end of the connection.
    pub(crate) async fn describe_end(&self) -> String {
        if self.process.is_some() {
            wait_for_end(&self.diagnostics).await;
        }
        self.diagnostics.describe()
    }

    /// Sends a request, and waits for its answer. Dropping the future cancels the request.
    pub(crate) async fn request(
        &self,
        request: ClientRequest,
        limit: Duration,
        mut on_progress: impl FnMut(ProgressNotificationParam),
    ) -> Result<ServerResult> {
        let mut waiting = pin!(sleep(limit));
        let sent = self.peer().send_cancellable_request(request, PeerRequestOptions::no_options());
        let handle = match timeout(limit, sent).await {
            Ok(Ok(handle)) => handle,
            Ok(Err(error)) => return Err(self.failed(error).await),
            Err(_) => return Err(self.too_slow(limit)),
        };
        let mut reports = self.inbox.progress_of(handle.progress_token.clone());
        let mut pending = PendingRequest(Some(handle));
        loop {
            let Some(handle) = &mut pending.0 else { return Err(Error::new(ErrorKind::Closed, "it was cancelled")) };
            tokio::select! {
                answer = &mut handle.rx => {
                    pending.0 = None;
                    // They came before the answer.
                    reports.waiting().for_each(&mut on_progress);
                    return match answer {
                        Ok(Ok(result)) => Ok(result),
                        Ok(Err(error)) => Err(self.failed(error).await),
                        Err(_) => Err(self.failed(ServiceError::TransportClosed).await),
                    };
                }
                report = reports.next() => on_progress(report),
                () = &mut waiting => return Err(self.too_slow(limit)),
            }
        }
    }

    fn too_slow(&self, limit: Duration) -> Error {
        let message = format!("it has not answered within {} ms{}", limit.as_millis(), self.diagnostics.describe());
        Error::new(ErrorKind::Timeout, message)
    }

    /// Returns the error for a request that failed.
    pub(crate) async fn failed(&self, error: ServiceError) -> Error {
        match error {
            ServiceError::McpError(error) => {
                let message = self.diagnostics.one_line(&error.message, MAX_MESSAGE_BYTES);
                if error.code == message::UNREADABLE {
                    return Error::new(ErrorKind::Answer, message);
                }
                Error::new(ErrorKind::Refused, format!("it refuses: {message} (error {})", error.code.0))
            }
            ServiceError::UnexpectedResponse => Error::new(ErrorKind::Answer, "its answer is of another kind"),
            error if self.is_closed() => {
                let _ = error;
                Error::new(ErrorKind::Closed, format!("it has ended{}", self.describe_end().await))
            }
            ServiceError::TransportSend(error) => {
                Error::new(ErrorKind::Closed, self.diagnostics.one_line(&describe_transport(&error), MAX_MESSAGE_BYTES))
            }
            error => Error::new(ErrorKind::Closed, self.diagnostics.one_line(&error.to_string(), MAX_MESSAGE_BYTES)),
        }
    }

    /// Ends the connection: a process is given some time to end by itself.
    pub(crate) async fn close(mut self) {
        let deadline = tokio::time::Instant::now() + CLOSE_TIMEOUT;
        let closing = self.service.close_with_timeout(CLOSE_TIMEOUT).await;
        if closing.is_ok() && self.process.is_some() {
            let ended = async {
                while self.diagnostics.end().is_none() {
                    sleep(Duration::from_millis(5)).await;
                }
            };
            let _ = timeout_at(deadline, ended).await;
        }
        // To kill a process takes time, in which others are closed.
        let _ = tokio::task::spawn_blocking(move || drop(self)).await;
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
        self.process = None;
    }
}

impl RunningServer {
    /// Waits for the end of the process and notes it.
    fn wait(&self, diagnostics: Arc<Diagnostics>) -> impl Future<Output = ()> + Send + use<> {
        let process = self.0.clone();
        async move {
            let ended = poll_fn(|cx| match &mut *process.lock().unwrap_or_else(PoisonError::into_inner) {
                Some(process) => pin!(process.wait()).poll(cx).map(Some),
                None => Poll::Ready(None),
            });
            match ended.await {
                Some(Ok(status)) => diagnostics.set_process_end(describe_status(status)),
                Some(Err(error)) => diagnostics.set_could_not_start(error.message()),
                None => {}
            }
        }
    }
}

impl Drop for RunningServer {
    /// Kills the process.
    fn drop(&mut self) {
        let process = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        // This takes time, so the lock is free by now.
        drop(process);
    }
}

/// Fails if a server answers with a version of the protocol that is not known.
fn check_version(peer: &Peer<RoleClient>, diagnostics: &Diagnostics) -> Result<()> {
    let known = ProtocolVersion::KNOWN_VERSIONS;
    match peer.peer_info() {
        Some(info) if !known.contains(&info.protocol_version) => {
            let version = diagnostics.one_line(info.protocol_version.as_str(), MAX_MESSAGE_BYTES);
            let known = known.iter().map(ProtocolVersion::as_str).collect::<Vec<_>>().join(", ");
            Err(Error::new(ErrorKind::Answer, format!("it speaks version {version} of the protocol; known: {known}")))
        }
        _ => Ok(()),
    }
}

/// A process that is being started, and ends if that fails or is given up.
struct StartGuard {
    process: Option<RunningServer>,
    tasks: Vec<JoinHandle<()>>,
}

impl Drop for StartGuard {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// A request without an answer. Dropping it cancels the request.
struct PendingRequest(Option<RequestHandle<RoleClient>>);

impl Drop for PendingRequest {
    fn drop(&mut self) {
        if let (Some(handle), Ok(runtime)) = (self.0.take(), tokio::runtime::Handle::try_current()) {
            runtime.spawn(handle.cancel(Some("the caller does not wait any more".to_owned())));
        }
    }
}

/// Returns true if a server may be of an older version: it may end, or answer anything, when it is asked in the way of a newer one.
pub(crate) fn may_be_older(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Closed | ErrorKind::Answer)
}

/// Waits for a moment until the end of the process is known, and what it printed last.
async fn wait_for_end(diagnostics: &Diagnostics) {
    let complete = async {
        while !diagnostics.is_complete() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    let _ = timeout(END_TIMEOUT, complete).await;
}

fn describe_status(status: ExitStatus) -> String {
    match status {
        ExitStatus::Exit(code) => format!("exit status {code}"),
        ExitStatus::Signal(signal) => format!("killed by signal {signal}"),
        ExitStatus::TimedOut | ExitStatus::TooMuchOutput => "killed".to_owned(),
    }
}

/// Returns the message of a failed handshake without the message that failed, which may be large.
fn describe(error: &ClientInitializeError) -> String {
    match error {
        ClientInitializeError::ExpectedInitResponse(_) | ClientInitializeError::ExpectedInitResult(_) => {
            "its first answer is of another kind".to_owned()
        }
        ClientInitializeError::JsonRpcError(error) if error.code == message::UNREADABLE => error.message.to_string(),
        ClientInitializeError::JsonRpcError(error) => format!("it refuses: {}", error.message),
        ClientInitializeError::ConnectionClosed(_) => "it closed the connection".to_owned(),
        ClientInitializeError::TransportError { error, .. } => describe_transport(error),
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => describe(fallback),
        error => error.to_string(),
    }
}

/// Returns the message of a transport without the types of the library that its own text names.
fn describe_transport(error: &DynamicTransportError) -> String {
    match error.error.downcast_ref() {
        Some(error) => http::describe(error),
        None => error.error.to_string(),
    }
}

fn start_failed(error: rath_sandbox::Error) -> Error {
    let hint = error.hint().map(str::to_owned);
    let failed = Error::new(ErrorKind::Start, format!("it could not be started: {}", error.message()));
    match hint {
        Some(hint) => failed.with_hint(hint),
        None => failed,
    }
}

/// Returns the way to ask a server: with the versions without a handshake, newest first, then with one.
pub(crate) fn newer_or_older() -> ClientLifecycleMode {
    let versions = ProtocolVersion::KNOWN_VERSIONS.iter().rev().filter(|version| !version.has_initialize());
    ClientLifecycleMode::Auto { preferred_versions: versions.cloned().collect(), legacy_version: None }
}

fn identity() -> Implementation {
    Implementation::new("rath", env!("CARGO_PKG_VERSION"))
}
