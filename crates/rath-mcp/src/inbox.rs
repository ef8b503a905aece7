//! Messages that a server sends without being asked, handled before it reaches the client library: each message of that kind would cost a task
//! there, and a server can send as many as it likes.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::StreamExt;
use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::FuturesUnordered;
use rmcp::RoleClient;
use rmcp::model::{
    ClientJsonRpcMessage, ClientResult, ErrorCode, ErrorData, ProgressNotificationParam, ProgressToken, RequestId,
    ServerJsonRpcMessage, ServerNotification, ServerRequest,
};
use rmcp::transport::Transport;
use tokio::sync::mpsc;

/// The state that a server changes by what it sends.
#[derive(Default)]
pub(crate) struct Inbox {
    /// Incremented when the list of tools has changed.
    tools_version: AtomicU64,
    /// True once the connection is closed.
    closed: AtomicBool,
    /// True once both sides have agreed on a version.
    is_connected: AtomicBool,
    /// The last request of the handshake: answers to earlier ones come too late.
    last_request: Mutex<Option<RequestId>>,
    progress: Mutex<ProgressState>,
}

#[derive(Default)]
struct ProgressState {
    calls: HashMap<ProgressToken, mpsc::Sender<ProgressNotificationParam>>,
    /// The last reports for calls that were not known yet: one may arrive before its call is registered.
    early: VecDeque<ProgressNotificationParam>,
}

/// The number of reports for unknown calls that are held.
const MAX_EARLY_REPORTS: usize = 16;
/// The number of reports that wait for their call. Further ones are dropped.
const MAX_WAITING_REPORTS: usize = 16;
/// The number of replies that wait to be written. A server that asks more than that and reads none gets no further ones.
const MAX_WAITING_REPLIES: usize = 16;

impl Inbox {
    /// Returns a number that grows with each change of the list of tools.
    pub(crate) fn tools_version(&self) -> u64 {
        self.tools_version.load(SeqCst)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(SeqCst)
    }

    pub(crate) fn set_connected(&self) {
        self.is_connected.store(true, SeqCst);
    }

    /// Returns the reports of progress of a call from now on.
    pub(crate) fn progress_of(self: &Arc<Self>, token: ProgressToken) -> ProgressReports {
        let (sender, receiver) = mpsc::channel(MAX_WAITING_REPORTS);
        let mut progress = self.progress();
        for report in progress.early.iter().filter(|report| report.progress_token == token) {
            let _ = sender.try_send(report.clone());
        }
        progress.early.retain(|report| report.progress_token != token);
        progress.calls.insert(token.clone(), sender);
        drop(progress);
        ProgressReports { receiver, token, inbox: self.clone() }
    }

    fn report(&self, report: ProgressNotificationParam) {
        let mut progress = self.progress();
        match progress.calls.get(&report.progress_token) {
            Some(call) => _ = call.try_send(report),
            None => {
                progress.early.push_back(report);
                if progress.early.len() > MAX_EARLY_REPORTS {
                    progress.early.pop_front();
                }
            }
        }
    }

    fn progress(&self) -> MutexGuard<'_, ProgressState> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_last_request(&self, id: &RequestId) {
        if !self.is_connected.load(SeqCst) {
            *self.last_request.lock().unwrap_or_else(PoisonError::into_inner) = Some(id.clone());
        }
    }

    /// Returns true for an answer to a request of the handshake that is not waited for any more.
    fn is_late(&self, id: &RequestId) -> bool {
        let last = self.last_request.lock().unwrap_or_else(PoisonError::into_inner);
        !self.is_connected.load(SeqCst) && last.as_ref().is_some_and(|last| last != id)
    }
}

/// The reports of progress of one call.
pub(crate) struct ProgressReports {
    receiver: mpsc::Receiver<ProgressNotificationParam>,
    token: ProgressToken,
    inbox: Arc<Inbox>,
}

impl ProgressReports {
    /// Waits for the next report.
    pub(crate) async fn next(&mut self) -> ProgressNotificationParam {
        match self.receiver.recv().await {
            Some(report) => report,
            None => std::future::pending().await,
        }
    }
}

impl ProgressReports {
    /// Returns the reports that wait.
    pub(crate) fn waiting(&mut self) -> impl Iterator<Item = ProgressNotificationParam> + '_ {
        std::iter::from_fn(|| self.receiver.try_recv().ok())
    }
}

impl Drop for ProgressReports {
    fn drop(&mut self) {
        self.inbox.progress().calls.remove(&self.token);
    }
}

/// A transport whose unasked messages go to an inbox.
pub(crate) struct InboxTransport<T> {
    inner: T,
    inbox: Arc<Inbox>,
    /// The replies to requests of the server that are being written. Messages are read meanwhile: a server may write before it reads.
    replies: FuturesUnordered<BoxFuture<'static, ()>>,
}

impl<T> InboxTransport<T> {
    pub(crate) fn new(inner: T, inbox: Arc<Inbox>) -> Self {
        InboxTransport { inner, inbox, replies: FuturesUnordered::new() }
    }
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for InboxTransport<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        if let ClientJsonRpcMessage::Request(request) = &message {
            self.inbox.set_last_request(&request.id);
        }
        self.inner.send(message)
    }

    // Dropped between two polls without loss: the replies and the unread rest are part of the value.
    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            let received = tokio::select! {
                Some(()) = self.replies.next() => continue,
                received = self.inner.receive() => received,
            };
            let Some(message) = received else {
                self.inbox.closed.store(true, SeqCst);
                return None;
            };
            match message {
                ServerJsonRpcMessage::Request(request) => {
                    let reply = match request.request {
                        ServerRequest::PingRequest(_) => {
                            ClientJsonRpcMessage::response(ClientResult::empty(()), request.id)
                        }
                        // No such capability was offered.
                        _ => {
                            let error = ErrorData::new(ErrorCode::METHOD_NOT_FOUND, "not supported", None);
                            ClientJsonRpcMessage::error(error, Some(request.id))
                        }
                    };
                    if self.replies.len() < MAX_WAITING_REPLIES {
                        self.replies.push(self.inner.send(reply).map(drop).boxed());
                    }
                }
                ServerJsonRpcMessage::Notification(mut message) => match message.notification {
                    ServerNotification::ProgressNotification(progress) => self.inbox.report(progress.params),
                    ServerNotification::LoggingMessageNotification(_)
                    | ServerNotification::ResourceUpdatedNotification(_)
                    | ServerNotification::TaskStatusNotification(_)
                    | ServerNotification::CustomNotification(_) => {}
                    notification => {
                        if matches!(notification, ServerNotification::ToolListChangedNotification(_)) {
                            self.inbox.tools_version.fetch_add(1, SeqCst);
                        }
                        message.notification = notification;
                        return Some(ServerJsonRpcMessage::Notification(message));
                    }
                },
                ServerJsonRpcMessage::Response(response) if self.inbox.is_late(&response.id) => {}
                ServerJsonRpcMessage::Error(error) if error.id.as_ref().is_some_and(|id| self.inbox.is_late(id)) => {}
                message => return Some(message),
            }
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.inbox.closed.store(true, SeqCst);
        self.inner.close().await
    }
}
