//! The keys that a person presses, as they come.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crossterm::event::{Event, poll, read};
use tokio::sync::mpsc;

use crate::terminal;

/// The time after which the reader looks whether it has to pause.
const PAUSE_CHECK: Duration = Duration::from_millis(50);

/// Reads keys until it is dropped.
pub(super) struct Keyboard {
    events: mpsc::UnboundedReceiver<Event>,
    pause: Arc<Pause>,
}

/// Keeps the reader from the keys while another part of the program reads lines.
#[derive(Default)]
struct Pause {
    is_wanted: AtomicBool,
    /// Locked by the reader while it waits for keys.
    reading: Mutex<()>,
}

/// The reader waits until this is dropped.
pub(super) struct PausedKeyboard<'a> {
    pause: &'a Pause,
    _reading: MutexGuard<'a, ()>,
}

impl Keyboard {
    pub(super) fn open() -> Self {
        let (sender, events) = mpsc::unbounded_channel();
        let pause = Arc::<Pause>::default();
        let reader = Keyboard { events, pause: pause.clone() };
        // A thread of its own, and not one of the runtime: the program ends while it waits.
        std::thread::spawn(move || {
            while let Ok(event) = pause.next() {
                if event.is_some_and(|event| sender.send(event).is_err()) {
                    break;
                }
            }
        });
        reader
    }

    /// Waits for the next event. None if the terminal is gone.
    pub(super) async fn next(&mut self) -> Option<Event> {
        self.events.recv().await
    }

    /// Returns the next event, if there is one already.
    pub(super) fn next_now(&mut self) -> Option<Event> {
        self.events.try_recv().ok()
    }

    /// Returns true if another event is there already.
    pub(super) fn has_more(&self) -> bool {
        !self.events.is_empty()
    }

    /// Keeps the reader from the keys.
    pub(super) fn pause(&self) -> PausedKeyboard<'_> {
        self.pause.is_wanted.store(true, Ordering::SeqCst);
        PausedKeyboard { pause: &self.pause, _reading: self.pause.lock() }
    }
}

impl Pause {
    /// Waits for an event for a short time.
    fn next(&self) -> io::Result<Option<Event>> {
        if self.is_wanted.load(Ordering::SeqCst) {
            std::thread::sleep(PAUSE_CHECK);
            return Ok(None);
        }
        let _reading = self.lock();
        // The library would try for ever to read from a terminal that is gone.
        let is_ready = terminal::wait_for_keys(Duration::ZERO)?;
        // The library reads many keys at once: those that it holds are not waited for.
        if poll(Duration::ZERO)? {
            return read().map(Some);
        }
        match is_ready {
            // It reads a kilobyte, and looks for the rest when it is told of more.
            true => terminal::announce_keys()?,
            false => _ = terminal::wait_for_keys(PAUSE_CHECK)?,
        }
        Ok(None)
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.reading.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for PausedKeyboard<'_> {
    fn drop(&mut self) {
        self.pause.is_wanted.store(false, Ordering::SeqCst);
    }
}
