//! A sandbox on the server, from its creation to its removal.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use rath_sandbox::{Error, ErrorKind, OutputFiles, Result};
use reqwest::header::HeaderMap;
use reqwest::{Method, Url};
use tokio::time::{Instant, sleep};

use super::command::{Script, run_script};
use super::group::{RemovalReason, SandboxGroup};
use super::http::{NoReply, Reply, Request};
use super::server::{CreateFailure, Execd, SandboxInfo, Server, State};
use super::settings::{Origin, Settings};

/// The time in which a sandbox has to be ready after it was created or resumed.
const READY_TIMEOUT: Duration = Duration::from_secs(300);
/// The pause between two looks at a sandbox that is not ready, at first and at most.
const READY_PAUSES: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(2)];
/// A timeout is renewed when this part of it is over.
const RENEWED_PARTS: u32 = 3;

/// A sandbox on the server.
pub(crate) struct Remote {
    pub(crate) server: Arc<Server>,
    pub(crate) settings: Settings,
    pub(crate) output_files: OutputFiles,
    /// Locked while the sandbox is created or found.
    attached: tokio::sync::Mutex<Option<Arc<RunningSandbox>>>,
    is_renewed: AtomicBool,
    group: Arc<SandboxGroup>,
}

/// A sandbox that was found to be running.
pub(crate) struct RunningSandbox {
    pub(crate) id: String,
    pub(crate) execd: Execd,
    /// The workspace in the sandbox, without links.
    pub(crate) root: String,
    /// The directory for temporary files in the sandbox.
    pub(crate) temporary: String,
    /// The directories in which programs are looked for.
    pub(crate) search: String,
}

/// Prepares a sandbox: makes the workspace, and prints its path, the directory for temporary files and the search path.
const PREPARE: &str = r#"
case $1 in '~/'*) root=$HOME/${1#'~/'} ;; *) root=$1 ;; esac
for program in base64 cat dd env grep kill mkfifo mv rm rmdir sleep tr; do
    command -v $program >/dev/null || { printf '%s' $program | base64; exit 3; }
done
mkdir -p "$root" && real=$(cd -P "$root" && pwd -P) || exit 4
for text in "$real" "${TMPDIR:-/tmp}" "$PATH"; do printf '%s' "$text" | base64 | tr -d '\n'; echo; done
"#;

impl Remote {
    pub(crate) fn new(server: Arc<Server>, settings: Settings, group: Arc<SandboxGroup>) -> Arc<Self> {
        let remote = Arc::new(Remote {
            server,
            settings,
            output_files: OutputFiles::default(),
            attached: tokio::sync::Mutex::default(),
            is_renewed: AtomicBool::new(false),
            group,
        });
        remote.group.add(&remote);
        remote
    }

    /// Runs work for the sandbox. If the caller stops waiting, the work is stopped too.
    pub(crate) async fn perform<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let mut task = AbortOnDrop(self.server.spawn(work)?);
        (&mut task.0).await.map_err(|error| Error::new(ErrorKind::Io, "the work was stopped").because(error))?
    }

    /// Asks the server whether it can be used, and whether a sandbox that is known is still there. Creates nothing.
    pub(crate) async fn probe(self: &Arc<Self>) -> Result<()> {
        let remote = self.clone();
        let work = async move {
            match &remote.settings.origin {
                Origin::New(name) => remote.server.find(name).await.map(drop),
                Origin::Known(_) | Origin::Foreign(_) => remote.find_or_create().await.map(drop),
            }
        };
        self.perform(work).await
    }

    /// Returns the running sandbox: creates it at the first use, or finds it, and resumes it if it is paused.
    ///
    /// Runs in a task of its own: a creation is not stopped half-way, so that the sandbox is known and can be removed.
    pub(crate) async fn attach(self: &Arc<Self>) -> Result<Arc<RunningSandbox>> {
        let remote = self.clone();
        let attach = self.server.spawn(async move { remote.attach_here().await })?;
        attach.await.map_err(|error| Error::new(ErrorKind::Io, "the sandbox could not be opened").because(error))?
    }

    /// Returns the running sandbox for work that changes it. [`SandboxGroup::close`] removes it then.
    pub(crate) async fn attach_to_work(self: &Arc<Self>) -> Result<Arc<RunningSandbox>> {
        let attached = self.attach().await?;
        if let Some(name) = self.name_to_remove() {
            self.group.note(name, &self.server, RemovalReason::Use);
        }
        Ok(attached)
    }

    /// Forgets the running sandbox: it is looked for again at the next use. Waits for a creation that is under way.
    pub(crate) async fn detach(&self) {
        *self.attached.lock().await = None;
    }

    /// Returns the name of the sandbox, if it may be removed: it is rath's, and not to stay.
    fn name_to_remove(&self) -> Option<&str> {
        match &self.settings.origin {
            Origin::New(name) | Origin::Known(name) if !self.settings.keep => Some(name),
            _ => None,
        }
    }

    async fn attach_here(self: &Arc<Self>) -> Result<Arc<RunningSandbox>> {
        let mut slot = self.attached.lock().await;
        if self.group.is_closed() {
            return Err(Error::new(ErrorKind::Unavailable, "the sandbox was closed"));
        }
        if let Some(attached) = &*slot {
            return Ok(attached.clone());
        }
        let found = self.find_or_create().await?;
        self.wait_until_running(&found).await?;
        let execd = self.server.execd(&found.id, self.settings.access).await?;
        let mut attached = RunningSandbox {
            id: found.id.clone(),
            execd,
            root: String::new(),
            temporary: String::new(),
            search: String::new(),
        };
        self.wait_for_execd(&attached).await?;
        self.prepare(&mut attached).await?;
        let attached = Arc::new(attached);
        *slot = Some(attached.clone());
        drop(slot);
        if !matches!(self.settings.origin, Origin::Foreign(_)) {
            self.keep_renewed(attached.id.clone())?;
        }
        Ok(attached)
    }

    async fn find_or_create(&self) -> Result<SandboxInfo> {
        match &self.settings.origin {
            // Created by an earlier attempt, perhaps.
            Origin::New(name) => match self.server.find(name).await? {
                Some(found) => Ok(found),
                None => self.create(name).await,
            },
            Origin::Known(name) => self.server.find(name).await?.ok_or_else(|| self.gone()),
            Origin::Foreign(id) => match self.server.get(id).await? {
                Some((found, _)) if found.status.state() != State::Ended => Ok(found),
                _ => Err(self.gone()),
            },
        }
    }

    async fn create(&self, name: &str) -> Result<SandboxInfo> {
        // Noted before the request is sent: if the answer is lost, there may be a sandbox all the same.
        let is_new =
            self.name_to_remove().is_some_and(|_| self.group.note(name, &self.server, RemovalReason::Creation));
        let created = self.server.create(name, &self.settings).await;
        created.map_err(|failure| match failure {
            CreateFailure::Refused(error) => {
                if is_new {
                    self.group.forget(name);
                }
                error
            }
            CreateFailure::Unknown(error) => error,
        })
    }

    async fn wait_until_running(&self, found: &SandboxInfo) -> Result<()> {
        let (deadline, mut status, mut was_resumed) = (Instant::now() + READY_TIMEOUT, found.status.clone(), false);
        let mut pause = READY_PAUSES[0];
        loop {
            match status.state() {
                State::Running => return Ok(()),
                State::Ended => {
                    return Err(Error::new(ErrorKind::Unavailable, format_args!("the sandbox does not run: {status}")));
                }
                State::Paused if !was_resumed => {
                    was_resumed = true;
                    self.server.change(&found.id, "resume").await?;
                }
                State::Paused | State::Changing => {}
            }
            if Instant::now() > deadline {
                let message = format!("the sandbox does not run after {} seconds: {status}", READY_TIMEOUT.as_secs());
                return Err(Error::new(ErrorKind::Unavailable, message));
            }
            sleep(pause).await;
            pause = (pause * 2).min(READY_PAUSES[1]);
            status = self.server.get(&found.id).await?.ok_or_else(|| self.gone())?.0.status;
        }
    }

    /// Waits until commands can be sent to the sandbox.
    async fn wait_for_execd(&self, attached: &RunningSandbox) -> Result<()> {
        let (deadline, mut pause) = (Instant::now() + READY_TIMEOUT, READY_PAUSES[0]);
        loop {
            let mut request = attached.request(Method::GET, "ping")?;
            request.timeout = Duration::from_secs(5);
            let reason = match self.server.clients.send(request).await {
                Ok(reply) if reply.is_success() => return Ok(()),
                Ok(reply) => reply.describe(),
                Err(no_reply) => no_reply.reason,
            };
            if Instant::now() > deadline {
                return Err(Error::new(
                    ErrorKind::Unavailable,
                    format_args!("the sandbox takes no commands: {reason}"),
                ));
            }
            sleep(pause).await;
            pause = (pause * 2).min(READY_PAUSES[1]);
        }
    }

    async fn prepare(self: &Arc<Self>, attached: &mut RunningSandbox) -> Result<()> {
        let script = Script { text: PREPARE, arguments: &[&self.settings.workdir] };
        let printed = run_script(self, attached, script).await?;
        let lines = printed.decoded_lines();
        match (printed.status, &lines[..]) {
            (0, [root, temporary, search]) => {
                (attached.root, attached.temporary, attached.search) =
                    (root.clone(), temporary.clone(), search.clone());
                Ok(())
            }
            (3, [program, ..]) => {
                let message = format!("the image has no `{program}`, which rath needs to run commands");
                Err(Error::new(ErrorKind::Unavailable, message)
                    .with_hint("use an image with the usual programs of Unix, or of busybox"))
            }
            (4, _) => {
                let message = format!("the directory `{}` cannot be made in the sandbox", self.settings.workdir);
                Err(Error::new(ErrorKind::Unavailable, message).with_hint("name another one with `workdir`"))
            }
            (status, _) => {
                let message = format!("the sandbox cannot be prepared: status {status}");
                Err(Error::new(ErrorKind::Unavailable, message).with_hint("the image has to have a shell"))
            }
        }
    }

    /// Renews the time of the sandbox as long as there is a handle, by one task however often the sandbox is attached.
    fn keep_renewed(self: &Arc<Self>, id: String) -> Result<()> {
        if self.is_renewed.swap(true, Relaxed) {
            return Ok(());
        }
        let (remote, pause) = (Arc::downgrade(self), self.settings.timeout / RENEWED_PARTS);
        self.server.spawn(async move {
            loop {
                sleep(pause).await;
                let Some(remote) = remote.upgrade() else { return };
                // After an error, the next one comes before the end of the time that is left.
                let is_gone = matches!(remote.server.renew(&id, remote.settings.timeout).await, Ok(None));
                if is_gone || remote.group.is_closed() {
                    remote.is_renewed.store(false, Relaxed);
                    return;
                }
            }
        })?;
        Ok(())
    }

    /// Returns the id of the sandbox on the server.
    pub(crate) async fn id(self: &Arc<Self>) -> Result<String> {
        Ok(self.attach().await?.id.clone())
    }

    /// Pauses the sandbox. The next use resumes it.
    pub(crate) async fn pause(self: &Arc<Self>) -> Result<()> {
        let id = self.id().await?;
        let remote = self.clone();
        self.perform(async move {
            let mut slot = remote.attached.lock().await;
            *slot = None;
            remote.server.change(&id, "pause").await
        })
        .await
    }

    /// Renews the time of the sandbox.
    pub(crate) async fn renew(self: &Arc<Self>) -> Result<()> {
        let (id, remote) = (self.id().await?, self.clone());
        self.perform(
            async move { remote.server.renew(&id, remote.settings.timeout).await?.ok_or_else(|| remote.gone()) },
        )
        .await
    }

    /// Returns the error of a request that the sandbox did not answer: after a look at the sandbox, which may be gone.
    pub(crate) async fn unreachable(&self, attached: &RunningSandbox, what: &str, no_reply: &NoReply) -> Error {
        match self.server.get(&attached.id).await {
            Ok(None) => self.gone(),
            Ok(Some((found, _))) if found.status.state() != State::Running => {
                Error::new(ErrorKind::Unavailable, format_args!("{what}: the sandbox does not run: {}", found.status))
            }
            _ => Error::new(ErrorKind::Io, format_args!("{what}: the sandbox cannot be asked: {}", no_reply.reason)),
        }
    }

    /// Returns the error for a sandbox that is not there any more.
    pub(crate) fn gone(&self) -> Error {
        let (what, hint) = match &self.settings.origin {
            Origin::New(name) | Origin::Known(name) => (
                format!("the sandbox {name} is gone"),
                format!(
                    "it expired, was removed, or was never made: place the session in a new one, with `rath resume --sandbox opensandbox:{}`, \
                     in a program `session.to(..)`; with `keep=on` a sandbox stays when its session ends",
                    self.settings.image
                ),
            ),
            Origin::Foreign(id) => {
                (format!("the sandbox with the id {id} is gone"), "it expired, or was removed".to_owned())
            }
        };
        Error::new(ErrorKind::Unavailable, what).with_hint(hint)
    }
}

impl RunningSandbox {
    /// Returns a request to the interface for commands and files.
    pub(crate) fn request(&self, method: Method, path: &str) -> Result<Request> {
        let mut request = Request::new(method, self.url(path)?);
        request.headers = self.headers();
        Ok(request)
    }

    /// Returns the URL of a path below the interface.
    pub(crate) fn url(&self, path: &str) -> Result<Url> {
        let mut url = self.execd.base.clone();
        let segments = url.path_segments_mut();
        let mut segments =
            segments.map_err(|()| Error::new(ErrorKind::Io, "the address of the sandbox has no path"))?;
        segments.pop_if_empty().extend(path.split('/'));
        drop(segments);
        Ok(url)
    }

    pub(crate) fn headers(&self) -> HeaderMap {
        self.execd.headers.clone()
    }

    /// Returns the absolute path of a file in the workspace.
    pub(crate) fn path(&self, path: &str) -> String {
        if path.is_empty() { self.root.clone() } else { format!("{}/{path}", self.root) }
    }
}

/// A request that is sent when this is dropped, to undo what may have been begun: also if the caller stops waiting.
pub(crate) struct UndoRequest {
    remote: Arc<Remote>,
    request: Option<Request>,
}

impl UndoRequest {
    pub(crate) fn new(remote: &Arc<Remote>, request: Request) -> Self {
        UndoRequest { remote: remote.clone(), request: Some(request) }
    }

    /// Sends nothing: there is nothing to undo.
    pub(crate) fn cancel(mut self) {
        self.request = None;
    }
}

impl Drop for UndoRequest {
    fn drop(&mut self) {
        if let Some(request) = self.request.take() {
            let remote = self.remote.clone();
            let _ = self.remote.server.spawn(async move { remote.server.clients.send(request).await.is_ok() });
        }
    }
}

/// Returns the error for an answer of a sandbox that reports one.
pub(crate) fn refused(what: impl fmt::Display, reply: &Reply) -> Error {
    Error::new(ErrorKind::Io, format_args!("{what}: the sandbox answered with {}", reply.describe()))
}

/// A task that is stopped when its caller stops waiting.
struct AbortOnDrop<T>(tokio::task::JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
