//! Work that is under way.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::{join_all, select};
use futures_util::stream::Stream;

use crate::cancel::Cancel;
use crate::error::ErrorKind;
use crate::session::{Callback, Error, Event, Hub, Queue, Result, Session};

type Work<'a> = Pin<Box<dyn Future<Output = Result<Session>> + Send + 'a>>;
type Begin<'a> = Box<dyn FnOnce(Session) -> Work<'a> + Send + 'a>;

/// A session whose work is still to be done. Awaiting it is the only way to read it.
///
/// Nothing happens until it is awaited. Dropping it ends the work and what the work started.
#[must_use = "nothing is done until it is awaited"]
pub struct Running<'a> {
    state: State<'a>,
    /// Who listened before: whoever listens to this run only is told nothing of what is done with its session later.
    outer: Hub,
    cancel: Option<Cancel>,
    callbacks: Vec<Arc<Callback>>,
}

enum State<'a> {
    Ready(Session, Begin<'a>),
    Working(Work<'a>),
    /// The work is done, and listeners are still being told.
    Telling(Pin<Box<dyn Future<Output = ()> + Send>>, Result<Session>),
    Over,
}

impl<'a> Running<'a> {
    pub(crate) fn new(session: Session, begin: impl FnOnce(Session) -> Work<'a> + Send + 'a) -> Self {
        let (outer, cancel) = (session.hub().clone(), session.cancel().cloned());
        Running { state: State::Ready(session, Box::new(begin)), outer, cancel, callbacks: Vec::new() }
    }

    /// Calls `listener` with everything that happens, on a thread of its own.
    ///
    /// However slow it is, nobody waits for it but this run, in the end: what is awaited comes back when the listener has
    /// been told everything. One that panics is not called again, and the run goes on. To follow thousands of runs at
    /// once, take [`events`](Running::events), which needs no threads.
    pub fn on_event(mut self, listener: impl FnMut(&Event) + Send + 'static) -> Self {
        match Callback::new(listener) {
            Ok(callback) => {
                self.listen(|hub| hub.with_callback(&callback));
                self.callbacks.push(callback);
            }
            Err(error) => {
                if let State::Ready(session, _) = &self.state {
                    let error = Error::new(ErrorKind::Io, format_args!("no thread for a listener: {error}"));
                    let error = Err(error.with_session(session));
                    self.state = State::Telling(Box::pin(std::future::ready(())), error);
                }
            }
        }
        self
    }

    /// Everything that happens, to be taken one by one. The work goes on while the next event is waited for.
    pub fn events(mut self) -> Events<'a> {
        let queue = Arc::new(Queue::default());
        self.listen(|hub| hub.with_queue(&queue));
        Events { queue, run: self, result: None }
    }

    fn listen(&mut self, add: impl FnOnce(&Hub) -> Hub) {
        self.state = match std::mem::replace(&mut self.state, State::Over) {
            State::Ready(session, begin) => {
                let hub = add(session.hub());
                State::Ready(session.heard_by(hub), begin)
            }
            begun => begun,
        };
    }
}

impl Future for Running<'_> {
    type Output = Result<Session>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<Session>> {
        loop {
            self.state = match std::mem::replace(&mut self.state, State::Over) {
                State::Ready(session, begin) => State::Working(begin(session)),
                State::Working(mut work) => {
                    let Poll::Ready(result) = work.as_mut().poll(context) else {
                        self.state = State::Working(work);
                        return Poll::Pending;
                    };
                    // What the work held on to is let go before anybody hears that it is over.
                    drop(work);
                    let outer = self.outer.clone();
                    let result = match result {
                        Ok(session) => Ok(session.heard_by(outer)),
                        Err(error) => Err(error.map_session(|session| session.heard_by(outer))),
                    };
                    if self.callbacks.is_empty() {
                        return Poll::Ready(result);
                    }
                    let told: Vec<_> = self.callbacks.iter().map(|callback| callback.end()).collect();
                    let (told, cancel) = (join_all(told), self.cancel.take());
                    State::Telling(Box::pin(tell(told, cancel)), result)
                }
                State::Telling(mut told, result) => match told.as_mut().poll(context) {
                    Poll::Ready(()) => return Poll::Ready(result),
                    Poll::Pending => {
                        self.state = State::Telling(told, result);
                        return Poll::Pending;
                    }
                },
                State::Over => panic!("a run was polled after it was over"),
            };
        }
    }
}

/// Waits until listeners have been told everything, but not for one that never returns once the run is cancelled.
async fn tell(told: impl Future, cancel: Option<Cancel>) {
    match cancel {
        None => _ = told.await,
        Some(cancel) => _ = select(pin!(told), pin!(cancel.cancelled())).await,
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

/// What happens in a run, as it happens.
///
/// Take the events one by one with [`next`](Events::next), then the session with [`finish`](Events::finish). It is a
/// `Stream` as well.
#[must_use = "nothing is done until an event is waited for"]
pub struct Events<'a> {
    queue: Arc<Queue>,
    run: Running<'a>,
    result: Option<Result<Session>>,
}

impl Events<'_> {
    /// The next event; none when the run is over.
    pub async fn next(&mut self) -> Option<Event> {
        poll_fn(|context| Pin::new(&mut *self).poll_next(context)).await
    }

    /// Goes on to the end, and gives the session that came of it.
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
        if let Poll::Ready(Some(event)) = self.queue.poll_take(context) {
            return Poll::Ready(Some(event));
        }
        if self.result.is_none() {
            self.queue.wait(context.waker());
            match Pin::new(&mut self.run).poll(context) {
                Poll::Ready(result) => self.result = Some(result),
                Poll::Pending => {
                    return match self.queue.poll_take(context) {
                        Poll::Ready(Some(event)) => Poll::Ready(Some(event)),
                        _ => Poll::Pending,
                    };
                }
            }
        }
        self.queue.poll_take(context)
    }
}
