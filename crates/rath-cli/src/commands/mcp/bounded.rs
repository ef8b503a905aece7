//! Backpressure on stdin and stdout: a client that reads no answers gets no further requests read.

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::sync::Arc;

use rmcp::RoleServer;
use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, ClientRequest, JsonRpcRequest, RequestId, ServerJsonRpcMessage,
};
use rmcp::transport::Transport;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The bytes that a request counts for in addition to its own: the work and the answer.
const REQUEST_BYTES: u32 = 64 << 10;
/// The bytes of the requests that are open at the same time: some 60 small ones.
const MAX_OPEN_BYTES: u32 = 64 * REQUEST_BYTES;

/// A transport that reads a request when there is room for it, until then not even what follows.
///
/// A request takes room until its answer was written, or until it was cancelled. rmcp itself starts a task for every request that it can read.
pub(super) struct BoundedTransport<T> {
    inner: T,
    room: Arc<Semaphore>,
    /// The requests that are not answered yet, with the room that they take.
    open: HashMap<RequestId, OwnedSemaphorePermit>,
    /// The request that was read and waits for room, and how much it needs.
    waiting: Option<(JsonRpcRequest<ClientRequest>, u32)>,
}

impl<T> BoundedTransport<T> {
    pub(super) fn new(inner: T) -> Self {
        let room = Arc::new(Semaphore::new(MAX_OPEN_BYTES as usize));
        BoundedTransport { inner, room, open: HashMap::new(), waiting: None }
    }
}

impl<T: Transport<RoleServer>> Transport<RoleServer> for BoundedTransport<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        message: ServerJsonRpcMessage,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let answered = match &message {
            ServerJsonRpcMessage::Response(response) => self.open.remove(&response.id),
            ServerJsonRpcMessage::Error(error) => error.id.as_ref().and_then(|id| self.open.remove(id)),
            _ => None,
        };
        let sending = self.inner.send(message);
        async move {
            let _until_written = answered;
            sending.await
        }
    }

    // Dropped between two polls without loss: a request that waits is part of the value.
    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        if self.waiting.is_none() {
            match self.inner.receive().await? {
                ClientJsonRpcMessage::Request(request) => {
                    let needed = needed_bytes(&request);
                    self.waiting = Some((request, needed));
                }
                message => {
                    if let ClientJsonRpcMessage::Notification(notification) = &message
                        && let ClientNotification::CancelledNotification(cancelled) = &notification.notification
                        && let Some(id) = &cancelled.params.request_id
                    {
                        // rmcp sends no answer to it.
                        self.open.remove(id);
                    }
                    return Some(message);
                }
            }
        }
        let (id, needed) = self.waiting.as_ref().map(|(request, needed)| (&request.id, *needed))?;
        if self.open.contains_key(id) {
            // rmcp would answer one of two requests with one id. It drops this future when it has an answer to send.
            return std::future::pending().await;
        }
        let room = self.room.clone().acquire_many_owned(needed).await.ok()?;
        let (request, _) = self.waiting.take()?;
        self.open.insert(request.id.clone(), room);
        Some(ClientJsonRpcMessage::Request(request))
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.inner.close().await
    }
}

/// Returns the room that a request takes. No request needs more than there is.
fn needed_bytes(request: &JsonRpcRequest<ClientRequest>) -> u32 {
    let mut bytes = ByteCount(0);
    // A count fails for no text.
    let _ = serde_json::to_writer(&mut bytes, request);
    u32::try_from(bytes.0).unwrap_or(u32::MAX).saturating_add(REQUEST_BYTES).min(MAX_OPEN_BYTES)
}

/// A writer that counts.
struct ByteCount(usize);

impl io::Write for ByteCount {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self.0.saturating_add(bytes.len());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::future::ready;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use serde_json::json;

    use super::*;

    /// A client that sends these messages.
    struct Messages(VecDeque<ClientJsonRpcMessage>);

    impl Transport<RoleServer> for Messages {
        type Error = io::Error;

        fn send(&mut self, _: ServerJsonRpcMessage) -> impl Future<Output = io::Result<()>> + Send + 'static {
            ready(Ok(()))
        }

        async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
            self.0.pop_front()
        }

        async fn close(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn request(id: u64, padding_bytes: usize) -> ClientJsonRpcMessage {
        let params = json!({"name": "a", "arguments": {"b": "c".repeat(padding_bytes)}});
        let message = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params});
        serde_json::from_value(message).expect("a request")
    }

    fn cancellation(id: u64) -> ClientJsonRpcMessage {
        let message = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}});
        serde_json::from_value(message).expect("a notification")
    }

    fn poll_once<T>(future: impl Future<Output = T>) -> Poll<T> {
        pin!(future).poll(&mut Context::from_waker(Waker::noop()))
    }

    /// Reads until the transport waits, and returns the number of messages.
    fn read(transport: &mut BoundedTransport<Messages>) -> usize {
        (0..).find(|_| !matches!(poll_once(transport.receive()), Poll::Ready(Some(_)))).expect("it waits")
    }

    fn answer(id: u64) -> ServerJsonRpcMessage {
        let answer = json!({"jsonrpc": "2.0", "id": id, "result": {}});
        serde_json::from_value(answer).expect("an answer")
    }

    #[test]
    fn requests_wait_for_room() {
        let small = |ids: std::ops::Range<u64>| ids.map(|id| request(id, 10)).collect::<Vec<_>>();
        for (messages, expected) in [
            (small(0..63), 63),
            (small(0..200), 63),
            ((0..9).map(|id| request(id, 1 << 20)).collect(), 3),
            ((0..3).map(|id| request(id, 5 << 20)).collect(), 1),
            // Two requests with one id.
            (vec![request(1, 0), request(1, 0), request(2, 0)], 1),
            // What does not take room is read, up to the request that waits.
            ([small(0..63), vec![cancellation(99), request(63, 0), cancellation(0)]].concat(), 64),
            ([small(0..63), vec![cancellation(0), request(63, 0), request(64, 0)]].concat(), 65),
            ([vec![request(1, 0), cancellation(1)], vec![request(1, 0)]].concat(), 3),
        ] {
            let mut transport = BoundedTransport::new(Messages(messages.into()));
            assert_eq!(read(&mut transport), expected);
        }
    }

    #[test]
    fn an_answer_makes_room_when_it_is_written() {
        let mut transport = BoundedTransport::new(Messages((0..65).map(|id| request(id, 10)).collect()));
        assert_eq!(read(&mut transport), 63);
        let sending = transport.send(answer(5));
        assert_eq!(read(&mut transport), 0, "the answer waits");
        assert!(poll_once(sending).is_ready());
        assert_eq!(read(&mut transport), 1);
        drop(transport.send(answer(6)));
        assert_eq!(read(&mut transport), 1, "it cannot be written");
        assert!(transport.open.len() <= 63 && transport.waiting.is_none());
    }
}
