//! What happens, while it happens.

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

use crate::budget::BudgetLimits;
use crate::secrets::Secrets;
use crate::session::Session;

/// Something that happens in a running session.
#[derive(Clone, Debug)]
pub struct Event {
    /// The session as it was at that moment, to be read: `event.session.module()` says who acts.
    pub session: Session,
    /// What happens.
    pub kind: EventKind,
}

impl Event {
    /// Waits until a step that it tells of is durable. False if it never will be.
    fn is_lasting(&self) -> bool {
        match (&self.kind, self.session.recorder()) {
            (EventKind::Step(step), Some(recorder)) => recorder.wait().is_ok() && recorder.has(step),
            _ => true,
        }
    }

    /// The same for whoever may not wait.
    fn poll_lasting(&self, context: &mut Context<'_>) -> Poll<bool> {
        match (&self.kind, self.session.recorder()) {
            (EventKind::Step(step), Some(recorder)) => {
                recorder.poll_durable(context).map(|kept| kept.is_ok() && recorder.has(step))
            }
            _ => Poll::Ready(true),
        }
    }
}

/// What happens in a running session.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum EventKind {
    /// A model is asked.
    Turn {
        /// For which time in this run, from 1.
        turn: u64,
    },
    /// The model says more.
    Text(String),
    /// The model thinks on.
    Reasoning(String),
    /// A model call failed: what came of it is void, and it is tried again after a while.
    Retry {
        /// Which attempt failed, from 1.
        attempt: u32,
        /// How many there may be.
        of: u32,
        /// What went wrong.
        error: String,
        /// How long until the next one.
        wait: Duration,
    },
    /// A tool starts to work.
    ToolStarted(Call),
    /// A tool says how it gets on.
    ToolOutput {
        /// The call.
        call: CallId,
        /// What it says.
        text: String,
    },
    /// A tool is done. Its result is appended when those before it are.
    ToolFinished {
        /// The call.
        call: Call,
        /// How it ended.
        outcome: Outcome,
    },
    /// A step was appended.
    Step(Step),
    /// A model call was paid for from a budget.
    Budget {
        /// Tokens used so far, by all who share it.
        tokens: u64,
        /// Model calls so far.
        turns: u64,
        /// What it allows.
        limits: BudgetLimits,
    },
    /// The subscriber was too slow, and this many events were left out. Steps are in the session all the same.
    Missed(u64),
}

impl EventKind {
    /// The same without what must not be shown. What is on the record holds none of it.
    fn without(mut self, secrets: &Secrets) -> Self {
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

/// A subscriber that is this many events behind is told later how many it missed.
const BEHIND_MOST: u64 = 1 << 16;

/// Everybody who listens to a session.
#[derive(Clone, Default)]
pub(crate) struct Hub(Option<Arc<[Subscriber]>>);

#[derive(Clone)]
enum Subscriber {
    Callback(Arc<Callback>),
    Queue(Arc<Queue>),
    Newest(Arc<Newest>),
}

impl Hub {
    /// Tells everybody, if there is anybody.
    pub(crate) fn emit(&self, session: &Session, kind: impl FnOnce() -> EventKind) {
        let Some(subscribers) = &self.0 else { return };
        let event = Event { session: session.quiet(), kind: kind().without(session.secrets()) };
        for subscriber in subscribers.iter() {
            match subscriber {
                Subscriber::Callback(callback) => callback.send(&event),
                Subscriber::Queue(queue) => queue.push(event.clone()),
                Subscriber::Newest(newest) => newest.see(&event.session),
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    fn and(&self, subscriber: Subscriber) -> Self {
        let known = self.0.iter().flat_map(|known| known.iter()).cloned();
        Hub(Some(known.chain([subscriber]).collect()))
    }

    pub(crate) fn with_callback(&self, callback: &Arc<Callback>) -> Self {
        self.and(Subscriber::Callback(callback.clone()))
    }

    pub(crate) fn with_queue(&self, queue: &Arc<Queue>) -> Self {
        self.and(Subscriber::Queue(queue.clone()))
    }

    pub(crate) fn with_newest(&self, newest: &Arc<Newest>) -> Self {
        self.and(Subscriber::Newest(newest.clone()))
    }
}

/// A function that is called with every event, on a thread of its own: however slow it is, and even if it panics, no
/// session but the one that waits for it in the end takes notice.
pub(crate) struct Callback {
    /// None when the run is over: a fork that outlives it tells nobody.
    to: Mutex<Option<mpsc::Sender<Letter>>>,
    /// How many events it is behind.
    behind: Arc<AtomicU64>,
    /// How many were left out since it was told, and the session at that moment.
    missed: Mutex<Option<(u64, Session)>>,
}

enum Letter {
    Event(Box<Event>),
    /// The last one: all that was sent before has been read.
    Over(oneshot::Sender<()>),
}

impl Callback {
    pub(crate) fn new(mut call: impl FnMut(&Event) + Send + 'static) -> std::io::Result<Arc<Self>> {
        let (to, from) = mpsc::channel();
        let behind = Arc::new(AtomicU64::new(0));
        let read = behind.clone();
        let listen = move || {
            let mut broken = false;
            while let Ok(letter) = from.recv() {
                match letter {
                    Letter::Event(event) => {
                        read.fetch_sub(1, Ordering::Relaxed);
                        // Nobody hears of a step that a crash could take back.
                        if !event.is_lasting() {
                            continue;
                        }
                        // One that has panicked once is not called again: what it holds may be half done.
                        broken = broken || catch_unwind(AssertUnwindSafe(|| call(&event))).is_err();
                    }
                    Letter::Over(told) => {
                        // What the listener holds is let go before anybody hears that it is over.
                        drop(call);
                        let _ = told.send(());
                        return;
                    }
                }
            }
        };
        thread::Builder::new().name("rath events".to_owned()).spawn(listen)?;
        Ok(Arc::new(Callback { to: Mutex::new(Some(to)), behind, missed: Mutex::default() }))
    }

    fn send(&self, event: &Event) {
        let mut missed = self.missed.lock().unwrap_or_else(PoisonError::into_inner);
        if self.behind.load(Ordering::Relaxed) >= BEHIND_MOST {
            missed.get_or_insert_with(|| (0, event.session.clone())).0 += 1;
            return;
        }
        self.own_up(missed.take());
        self.post(event.clone());
    }

    /// Says how many events were left out.
    fn own_up(&self, missed: Option<(u64, Session)>) {
        if let Some((count, session)) = missed {
            self.post(Event { session, kind: EventKind::Missed(count) });
        }
    }

    fn post(&self, event: Event) {
        if let Some(to) = &*self.to.lock().unwrap_or_else(PoisonError::into_inner) {
            self.behind.fetch_add(1, Ordering::Relaxed);
            // The thread listens until it is told that it is over.
            let _ = to.send(Letter::Event(Box::new(event)));
        }
    }

    /// Sends nothing further, and waits until it has read what was sent so far.
    pub(crate) fn end(&self) -> impl Future<Output = ()> + Send + 'static {
        let missed = self.missed.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.own_up(missed);
        let (told, caught) = oneshot::channel();
        if let Some(to) = self.to.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = to.send(Letter::Over(told));
        }
        async move { _ = caught.await }
    }
}

/// Events that wait to be taken by whoever drives the run.
#[derive(Default)]
pub(crate) struct Queue(Mutex<(VecDeque<Event>, Option<Waker>)>);

impl Queue {
    fn push(&self, event: Event) {
        let waker = {
            let mut queue = self.lock();
            queue.0.push_back(event);
            queue.1.take()
        };
        waker.into_iter().for_each(Waker::wake);
    }

    /// The next event, once a step that it tells of is durable: nobody hears of one that a crash could take back.
    pub(crate) fn poll_take(&self, context: &mut Context<'_>) -> Poll<Option<Event>> {
        loop {
            let next = {
                let mut queue = self.lock();
                match queue.0.front() {
                    None => return Poll::Ready(None),
                    Some(event) if event.session.recorder().is_none() => return Poll::Ready(queue.0.pop_front()),
                    Some(event) => event.clone(),
                }
            };
            let lasting = std::task::ready!(next.poll_lasting(context));
            let taken = self.lock().0.pop_front();
            if lasting {
                return Poll::Ready(taken);
            }
        }
    }

    /// Wakes whoever waits when the next event comes, which a thread of a tool's own may bring.
    pub(crate) fn wait(&self, waker: &Waker) {
        self.lock().1 = Some(waker.clone());
    }

    fn lock(&self) -> MutexGuard<'_, (VecDeque<Event>, Option<Waker>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps the newest state of everything that is done with a session and what forks from it, so that it is there even if
/// the work is dropped.
pub(crate) struct Newest {
    begun: Session,
    /// One for each branch, in the order in which they were last seen.
    seen: Mutex<Vec<Session>>,
}

impl Newest {
    pub(crate) fn of(session: &Session) -> Arc<Self> {
        Arc::new(Newest { begun: session.quiet(), seen: Mutex::default() })
    }

    pub(crate) fn see(&self, session: &Session) {
        let mut seen = self.lock();
        // Nearly always the one that was seen last.
        if let Some(last) = seen.last_mut().filter(|last| last.id() == session.id()) {
            *last = session.quiet();
            return;
        }
        seen.retain(|known| known.id() != session.id());
        seen.push(session.quiet());
    }

    /// The newest state of every branch, those that were seen last first.
    pub(crate) fn all(&self) -> Vec<Session> {
        self.lock().iter().rev().cloned().collect()
    }

    /// Whether a session goes on from the one that it began with.
    pub(crate) fn is_behind(&self, session: &Session) -> bool {
        let begun = self.begun.head();
        session.nesting() == self.begun.nesting()
            && begun.is_none_or(|begun| session.as_record().find(begun.id()).is_some())
    }

    /// How far the session itself came, with everything else that was done kept aside.
    pub(crate) fn whole(&self) -> Session {
        let all = self.all();
        let mut whole = all.iter().find(|session| self.is_behind(session)).unwrap_or(&self.begun).clone();
        all.iter().for_each(|work| whole.keep_aside(work));
        whole
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Session>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hub({})", self.0.as_ref().map_or(0, |subscribers| subscribers.len()))
    }
}
