//! A run of a workflow: awaiting it, and listening to its events.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::{join_all, select};
use futures_util::stream::Stream;

use crate::cancel::Cancel;
use crate::error::ErrorKind;
use crate::session::{Callback, Error, Event, EventQueue, Hub, Result, Session};

type RunFuture<'a> = Pin<Box<dyn Future<Output = Result<Session>> + Send + 'a>>;
type StartFn<'a> = Box<dyn FnOnce(Session) -> RunFuture<'a> + Send + 'a>;

/// A run of a workflow. Await it for the session.
///
/// Nothing happens until it is awaited. Dropping it ends the work and everything that the work started.
///
/// ```
/// use rath::prelude::*;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> rath::Result<()> {
/// # let provider = Provider::from(Script::of([r#"{"text": "The Seine."}"#])?);
/// # let agent = Agent::new("You know rivers.", &provider);
/// let mut events = agent.run(Session::user("Which river runs through Paris?")).events();
/// let mut text = String::new();
/// while let Some(event) = events.next().await {
///     if let EventKind::Text(piece) = event.kind {
///         text.push_str(&piece);
///     }
/// }
/// let session = events.finish().await?;
/// assert_eq!(session.text(), Some(text.as_str()));
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing is done until it is awaited"]
pub struct Running<'a> {
    state: RunState<'a>,
    /// The listeners before the run. They are restored afterwards, since the listeners of a run hear of that run only.
    outer: Hub,
    cancel: Option<Cancel>,
    callbacks: Vec<Arc<Callback>>,
}

enum RunState<'a> {
    Ready(Session, StartFn<'a>),
    Working(RunFuture<'a>),
    /// The work is done, and callbacks have events to handle.
    Notifying(Pin<Box<dyn Future<Output = ()> + Send>>, Result<Session>),
    Done,
}

impl<'a> Running<'a> {
    pub(crate) fn new(session: Session, start: impl FnOnce(Session) -> RunFuture<'a> + Send + 'a) -> Self {
        let (outer, cancel) = (session.hub().clone(), session.cancel().cloned());
        Running { state: RunState::Ready(session, Box::new(start)), outer, cancel, callbacks: Vec::new() }
    }

    /// Calls `listener` with every event, on a thread of its own.
    ///
    /// The work does not wait for a slow listener; the run returns when the listener has handled every event. A listener
    /// that panics is not called again, and the run continues. To follow thousands of runs at once, use
    /// [`events`](Running::events), which needs no threads.
    pub fn on_event(mut self, listener: impl FnMut(&Event) + Send + 'static) -> Self {
        match Callback::new(listener) {
            Ok(callback) => {
                self.subscribe(|hub| hub.with_callback(&callback));
                self.callbacks.push(callback);
            }
            Err(error) => {
                if let RunState::Ready(session, _) = &self.state {
                    let error = Error::new(ErrorKind::Io, "cannot start a thread for a listener").because(error);
                    let error = Err(error.with_session(session));
                    self.state = RunState::Notifying(Box::pin(std::future::ready(())), error);
                }
            }
        }
        self
    }

    /// Returns the events of the run as a stream. The work proceeds while the next event is awaited.
    pub fn events(mut self) -> Events<'a> {
        let queue = Arc::new(EventQueue::default());
        self.subscribe(|hub| hub.with_queue(&queue));
        Events { queue, run: self, result: None }
    }

    fn subscribe(&mut self, add: impl FnOnce(&Hub) -> Hub) {
        self.state = match std::mem::replace(&mut self.state, RunState::Done) {
            RunState::Ready(session, start) => {
                let hub = add(session.hub());
                RunState::Ready(session.heard_by(hub), start)
            }
            started => started,
        };
    }
}

impl Future for Running<'_> {
    type Output = Result<Session>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<Session>> {
        loop {
            self.state = match std::mem::replace(&mut self.state, RunState::Done) {
                RunState::Ready(session, start) => RunState::Working(start(session)),
                RunState::Working(mut work) => {
                    let Poll::Ready(result) = work.as_mut().poll(context) else {
                        self.state = RunState::Working(work);
                        return Poll::Pending;
                    };
                    // Everything that the work holds is dropped before the run reports its end.
                    drop(work);
                    let outer = self.outer.clone();
                    let result = match result {
                        Ok(session) => Ok(session.heard_by(outer)),
                        Err(error) => Err(error.map_session(|session| session.heard_by(outer))),
                    };
                    if self.callbacks.is_empty() {
                        return Poll::Ready(result);
                    }
                    let delivered = join_all(self.callbacks.iter().map(|callback| callback.end()));
                    RunState::Notifying(Box::pin(wait_for_callbacks(delivered, self.cancel.take())), result)
                }
                RunState::Notifying(mut delivered, result) => match delivered.as_mut().poll(context) {
                    Poll::Ready(()) => return Poll::Ready(result),
                    Poll::Pending => {
                        self.state = RunState::Notifying(delivered, result);
                        return Poll::Pending;
                    }
                },
                RunState::Done => panic!("a run was polled after its end"),
            };
        }
    }
}

/// Waits until callbacks have handled all events. Cancelling the run ends the wait, since a callback may never return.
async fn wait_for_callbacks(delivered: impl Future, cancel: Option<Cancel>) {
    match cancel {
        None => _ = delivered.await,
        Some(cancel) => _ = select(pin!(delivered), pin!(cancel.cancelled())).await,
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.callbacks.iter().for_each(|callback| drop(callback.end()));
    }
}

impl fmt::Debug for Running<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Running")
    }
}

/// The events of a run, as they happen.
///
/// [`next`](Events::next) returns them one by one, and [`finish`](Events::finish) returns the session. `Events` is a `Stream`
/// as well.
///
/// Returned by [`Running::events`]. See [`Running`] for an example.
#[must_use = "nothing is done until an event is awaited"]
pub struct Events<'a> {
    queue: Arc<EventQueue>,
    run: Running<'a>,
    result: Option<Result<Session>>,
}

impl Events<'_> {
    /// Waits for the next event. Returns `None` when the run is over.
    pub async fn next(&mut self) -> Option<Event> {
        poll_fn(|context| Pin::new(&mut *self).poll_next(context)).await
    }

    /// Runs to the end, drops further events, and returns the session.
    pub async fn finish(mut self) -> Result<Session> {
        loop {
            if let Some(result) = self.result.take() {
                return result;
            }
            self.next().await;
        }
    }
}

impl Stream for Events<'_> {
    type Item = Event;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Event>> {
        if let Poll::Ready(Some(event)) = self.queue.poll_pop(context) {
            return Poll::Ready(Some(event));
        }
        if self.result.is_none() {
            self.queue.register(context.waker());
            match Pin::new(&mut self.run).poll(context) {
                Poll::Ready(result) => self.result = Some(result),
                Poll::Pending => {
                    return match self.queue.poll_pop(context) {
                        Poll::Ready(Some(event)) => Poll::Ready(Some(event)),
                        _ => Poll::Pending,
                    };
                }
            }
        }
        self.queue.poll_pop(context)
    }
}
