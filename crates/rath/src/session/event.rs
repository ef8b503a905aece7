//! Events of a running session, and those who listen to them.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use rath_record::chunk::{Call, Outcome};
use rath_record::{CallId, Step};
use tokio::sync::oneshot;

use super::Session;
use crate::budget::BudgetLimits;
use crate::secrets::Secrets;

/// An event in a running session.
///
/// Passed to [`Running::on_event`](crate::flow::Running::on_event).
#[derive(Clone, Debug)]
pub struct Event {
    /// The session at that moment, for reading: `event.session.module()` is the path of the module that acts.
    pub session: Session,
    /// The kind of event, with its details.
    pub kind: EventKind,
}

impl Event {
    /// Blocks until the step of a [`EventKind::Step`] is durable. Returns false if the step was lost.
    fn wait_durable(&self) -> bool {
        match (&self.kind, self.session.recorder()) {
            (EventKind::Step(step), Some(recorder)) => recorder.wait().is_ok() && recorder.has(step),
            _ => true,
        }
    }

    /// Polls until the step of a [`EventKind::Step`] is durable. Gives false if the step was lost.
    fn poll_durable(&self, context: &mut Context<'_>) -> Poll<bool> {
        match (&self.kind, self.session.recorder()) {
            (EventKind::Step(step), Some(recorder)) => {
                recorder.poll_durable(context).map(|durable| durable.is_ok() && recorder.has(step))
            }
            _ => Poll::Ready(true),
        }
    }
}

/// The kinds of event in a running session.
///
/// Part of [`Event`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum EventKind {
    /// A model is asked.
    Turn {
        /// The number of the turn in this run, from 1.
        turn: u64,
    },
    /// The model wrote more text.
    Text(String),
    /// The model wrote more reasoning.
    Reasoning(String),
    /// A model call failed and will be tried again. Its text so far is void.
    Retry {
        /// The number of the attempt that failed, from 1.
        attempt: u32,
        /// The number of attempts that are allowed.
        of: u32,
        /// The error message.
        error: String,
        /// The time until the next attempt.
        wait: Duration,
    },
    /// A tool call started.
    ToolStarted(Call),
    /// A tool reported progress.
    ToolOutput {
        /// The call.
        call: CallId,
        /// The text of the report.
        text: String,
    },
    /// A tool call ended. Its result is appended after the results of earlier calls.
    ToolFinished {
        /// The call.
        call: Call,
        /// The outcome of the call.
        outcome: Outcome,
    },
    /// A step was appended.
    Step(Step),
    /// A model call was paid for from a budget.
    Budget {
        /// Tokens used so far, by all sessions that share the budget.
        tokens: u64,
        /// Model calls so far.
        turns: u64,
        /// The limits of the budget.
        limits: BudgetLimits,
    },
    /// The listener was too slow, and this many events were dropped. Steps are in the session nevertheless.
    Missed(u64),
}

impl EventKind {
    /// Removes secrets from texts that come straight from a model or a tool. Steps on the record hold none.
    fn without_secrets(mut self, secrets: &Secrets) -> Self {
        if let EventKind::Text(text)
        | EventKind::Reasoning(text)
        | EventKind::Retry { error: text, .. }
        | EventKind::ToolOutput { text, .. } = &mut self
            && let Some(hidden) = secrets.hide(text)
        {
            *text = hidden;
        }
        self
    }
}

/// The number of undelivered events from which on further events for a callback are dropped and counted.
const MAX_UNDELIVERED_EVENTS: u64 = 1 << 16;

/// The subscribers of a session.
#[derive(Clone, Default)]
pub(crate) struct Hub(Option<Arc<[Subscriber]>>);

#[derive(Clone)]
enum Subscriber {
    Callback(Arc<Callback>),
    Queue(Arc<EventQueue>),
    Tracker(Arc<ProgressTracker>),
}

impl Hub {
    /// Sends an event to all subscribers. The event is not built if there are none.
    pub(crate) fn emit(&self, session: &Session, kind: impl FnOnce() -> EventKind) {
        let Some(subscribers) = &self.0 else { return };
        let event = Event { session: session.quiet(), kind: kind().without_secrets(session.secrets()) };
        for subscriber in subscribers.iter() {
            match subscriber {
                Subscriber::Callback(callback) => callback.send(&event),
                Subscriber::Queue(queue) => queue.push(event.clone()),
                Subscriber::Tracker(tracker) => tracker.update(&event.session),
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    fn with(&self, subscriber: Subscriber) -> Self {
        let known = self.0.iter().flat_map(|known| known.iter()).cloned();
        Hub(Some(known.chain([subscriber]).collect()))
    }

    pub(crate) fn with_callback(&self, callback: &Arc<Callback>) -> Self {
        self.with(Subscriber::Callback(callback.clone()))
    }

    pub(crate) fn with_queue(&self, queue: &Arc<EventQueue>) -> Self {
        self.with(Subscriber::Queue(queue.clone()))
    }

    pub(crate) fn with_tracker(&self, tracker: &Arc<ProgressTracker>) -> Self {
        self.with(Subscriber::Tracker(tracker.clone()))
    }
}

/// A function that is called with every event, on a thread of its own.
///
/// A slow or panicking function does not affect the session: only the run that it listens to waits for it, at the end.
pub(crate) struct Callback {
    /// None once the run is over, so that events of a fork that outlives the run are not sent.
    sender: Mutex<Option<mpsc::Sender<Message>>>,
    /// The number of events that were sent and not delivered.
    undelivered: Arc<AtomicU64>,
    /// The number of events that were dropped and not reported, and the session at the first of them.
    missed: Mutex<Option<(u64, Session)>>,
}

/// A message to the thread of a callback.
enum Message {
    Event(Box<Event>),
    /// The last message, which is acknowledged when all before it are delivered.
    End(oneshot::Sender<()>),
}

impl Callback {
    pub(crate) fn new(mut call: impl FnMut(&Event) + Send + 'static) -> std::io::Result<Arc<Self>> {
        let (sender, receiver) = mpsc::channel();
        let undelivered = Arc::new(AtomicU64::new(0));
        let counter = undelivered.clone();
        let deliver = move || {
            let mut panicked = false;
            while let Ok(message) = receiver.recv() {
                match message {
                    Message::Event(event) => {
                        counter.fetch_sub(1, Ordering::Relaxed);
                        // A step is reported only once a crash cannot undo it.
                        if !event.wait_durable() {
                            continue;
                        }
                        // After a panic the function is not called again: its state may be inconsistent.
                        panicked = panicked || catch_unwind(AssertUnwindSafe(|| call(&event))).is_err();
                    }
                    Message::End(acknowledge) => {
                        // The run is over only when the values that the function captured are dropped.
                        drop(call);
                        let _ = acknowledge.send(());
                        return;
                    }
                }
            }
        };
        thread::Builder::new().name("rath events".to_owned()).spawn(deliver)?;
        Ok(Arc::new(Callback { sender: Mutex::new(Some(sender)), undelivered, missed: Mutex::default() }))
    }

    fn send(&self, event: &Event) {
        let mut missed = self.missed.lock().unwrap_or_else(PoisonError::into_inner);
        if self.undelivered.load(Ordering::Relaxed) >= MAX_UNDELIVERED_EVENTS {
            missed.get_or_insert_with(|| (0, event.session.clone())).0 += 1;
            return;
        }
        self.report_missed(missed.take());
        self.send_now(event.clone());
    }

    /// Sends the number of events that were dropped.
    fn report_missed(&self, missed: Option<(u64, Session)>) {
        if let Some((count, session)) = missed {
            self.send_now(Event { session, kind: EventKind::Missed(count) });
        }
    }

    fn send_now(&self, event: Event) {
        if let Some(sender) = &*self.sender.lock().unwrap_or_else(PoisonError::into_inner) {
            self.undelivered.fetch_add(1, Ordering::Relaxed);
            // The thread receives until `Message::End`, so this cannot fail before.
            let _ = sender.send(Message::Event(Box::new(event)));
        }
    }

    /// Stops sending. The returned future waits until everything sent so far is delivered.
    pub(crate) fn end(&self) -> impl Future<Output = ()> + Send + 'static {
        let missed = self.missed.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.report_missed(missed);
        let (acknowledge, acknowledged) = oneshot::channel();
        if let Some(sender) = self.sender.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = sender.send(Message::End(acknowledge));
        }
        async move { _ = acknowledged.await }
    }
}

/// Events that wait to be taken by the task that drives the run, and the waker of that task.
#[derive(Default)]
pub(crate) struct EventQueue(Mutex<(VecDeque<Event>, Option<Waker>)>);

impl EventQueue {
    fn push(&self, event: Event) {
        let waker = {
            let mut queue = self.lock();
            queue.0.push_back(event);
            queue.1.take()
        };
        waker.into_iter().for_each(Waker::wake);
    }

    /// Takes the next event. A step is reported only once it is durable, so that a crash cannot undo it.
    pub(crate) fn poll_pop(&self, context: &mut Context<'_>) -> Poll<Option<Event>> {
        loop {
            let next = {
                let mut queue = self.lock();
                match queue.0.front() {
                    None => return Poll::Ready(None),
                    Some(event) if event.session.recorder().is_none() => return Poll::Ready(queue.0.pop_front()),
                    Some(event) => event.clone(),
                }
            };
            let is_durable = std::task::ready!(next.poll_durable(context));
            let event = self.lock().0.pop_front();
            if is_durable {
                return Poll::Ready(event);
            }
        }
    }

    /// Registers the task to wake at the next event, which may come from a thread that a tool started.
    pub(crate) fn register(&self, waker: &Waker) {
        self.lock().1 = Some(waker.clone());
    }

    fn lock(&self) -> MutexGuard<'_, (VecDeque<Event>, Option<Waker>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The newest state of a session and of everything that forks from it.
///
/// The tracker outlives the future that works on the session, so the state is there even if that future is dropped.
pub(crate) struct ProgressTracker {
    /// The session at the beginning.
    start: Session,
    /// The newest state of each branch, the branch that was updated last at the end.
    branches: Mutex<Vec<Session>>,
}

impl ProgressTracker {
    pub(crate) fn new(session: &Session) -> Arc<Self> {
        Arc::new(ProgressTracker { start: session.quiet(), branches: Mutex::default() })
    }

    pub(crate) fn update(&self, session: &Session) {
        let mut branches = self.lock();
        // Nearly always the branch that was updated last.
        if let Some(last) = branches.last_mut().filter(|last| last.id() == session.id()) {
            *last = session.quiet();
            return;
        }
        branches.retain(|known| known.id() != session.id());
        branches.push(session.quiet());
    }

    /// Returns the newest state of every branch, the branch that was updated last first.
    pub(crate) fn branches(&self) -> Vec<Session> {
        self.lock().iter().rev().cloned().collect()
    }

    /// Returns true if a session continues the tracked session.
    pub(crate) fn is_continued_by(&self, session: &Session) -> bool {
        let start = self.start.head();
        session.nesting() == self.start.nesting()
            && start.is_none_or(|start| session.as_record().find(start.id()).is_some())
    }

    /// Returns the newest state of the tracked session, with the work of all other branches kept aside.
    pub(crate) fn latest(&self) -> Session {
        let branches = self.branches();
        let newest = branches.iter().find(|session| self.is_continued_by(session));
        let mut latest = newest.unwrap_or(&self.start).clone();
        branches.iter().for_each(|work| latest.keep_aside(work));
        latest
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Session>> {
        self.branches.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hub({})", self.0.as_ref().map_or(0, |subscribers| subscribers.len()))
    }
}
