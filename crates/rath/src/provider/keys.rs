//! Several keys for one server, and what must never be shown.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};
use tokio::time::Instant;

use super::http::in_time;
use crate::secrets::Secrets;

/// The keys for a server.
pub(crate) struct Keys {
    keys: Vec<SecretString>,
    /// Which one to begin with: one that was not refused when it was last tried.
    first: AtomicUsize,
    /// Until when each is not to be used, because it was used too much.
    cooling: Mutex<Vec<Option<Instant>>>,
    /// Everything that is secret, in every form in which a server may repeat it, the longest first.
    secrets: Vec<SecretString>,
    /// What of it a session must not record.
    unrecorded: Secrets,
}

/// The keys that were refused in the course of one call.
#[derive(Debug, Default)]
pub(crate) struct Refused(Mutex<HashSet<usize>>);

/// What is left to do after too many requests.
#[derive(Debug, PartialEq)]
pub(crate) enum Then {
    /// Another key can be used at once.
    OtherKey,
    /// All keys are to rest; the first is ready after this time, where that is known.
    Wait(Option<Duration>),
}

/// How long a secret is that is hidden wherever it stands; a shorter one may be a word that a model says.
const LONG: usize = 16;
/// How long a key rests where the server does not say.
const REST: Duration = Duration::from_secs(1);

impl Keys {
    /// The keys, and what else must not be shown.
    pub(crate) fn new(keys: Vec<SecretString>, others: impl IntoIterator<Item = String>) -> Self {
        let known: Vec<_> = keys.iter().map(|key| key.expose_secret().to_owned()).chain(others).collect();
        let mut unrecorded = Secrets::default();
        for secret in known.iter().filter(|secret| is_no_word(secret)) {
            // What is too short stays out of what the server says, and is no key that lets anybody in.
            let _ = unrecorded.known("provider key", secret.as_str());
        }
        let forms = known.into_iter().flat_map(|secret| {
            let escaped = serde_json::to_string(&secret).unwrap_or_default();
            let escaped = escaped.trim_matches('"').to_owned();
            let encoded = secret.bytes().map(|byte| match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => char::from(byte).to_string(),
                byte => format!("%{byte:02X}"),
            });
            HashSet::from([encoded.collect(), escaped, secret])
        });
        let mut secrets: Vec<String> = forms.filter(|secret| is_secret(secret)).collect();
        // One may be a part of another.
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        let cooling = Mutex::new(vec![None; keys.len()]);
        Keys {
            keys,
            first: AtomicUsize::new(0),
            cooling,
            secrets: secrets.into_iter().map(SecretString::from).collect(),
            unrecorded,
        }
    }

    /// What a session must not record.
    pub(crate) fn secrets(&self) -> &Secrets {
        &self.unrecorded
    }

    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    /// The key to use now: one that was not refused, and of those one that need not rest.
    pub(crate) fn pick(&self, refused: &Refused) -> Option<(usize, &str)> {
        let refused = refused.lock();
        let cooling = self.cooling();
        let now = Instant::now();
        let first = self.first.load(Ordering::Relaxed);
        let left = (0..self.len()).map(|ahead| (first + ahead) % self.len()).filter(|nth| !refused.contains(nth));
        let nth = left.min_by_key(|nth| cooling[*nth].filter(|until| *until > now))?;
        Some((nth, self.keys[nth].expose_secret()))
    }

    /// A key was refused. Says whether there is another.
    pub(crate) fn refuse(&self, nth: usize, refused: &Refused) -> bool {
        refused.lock().insert(nth);
        let left = (1..self.len()).map(|ahead| (nth + ahead) % self.len()).find(|next| !refused.lock().contains(next));
        if let Some(next) = left {
            // Others begin with it too, unless they have found a better one.
            let _ = self.first.compare_exchange(nth, next, Ordering::Relaxed, Ordering::Relaxed);
        }
        left.is_some()
    }

    /// A key was used too much, and is to rest.
    pub(crate) fn rest(&self, nth: usize, wait: Option<Duration>, refused: &Refused) -> Then {
        let now = Instant::now();
        let refused = refused.lock();
        let mut cooling = self.cooling();
        if let Some(until) = cooling.get_mut(nth) {
            *until = Some(in_time(wait.unwrap_or(REST)));
        }
        let ready = |nth: usize| cooling[nth].filter(|until| *until > now).map(|until| until - now);
        let waits: Vec<_> = (0..self.len()).filter(|nth| !refused.contains(nth)).map(ready).collect();
        match waits.iter().min() {
            Some(None) => Then::OtherKey,
            Some(first) if wait.is_some() => Then::Wait(*first),
            _ => Then::Wait(wait),
        }
    }

    /// What a server says of itself without what is secret, if any is in it: it may say the key that it was shown.
    pub(crate) fn hide(&self, text: &str) -> Option<String> {
        self.hide_from(text, 0)
    }

    /// The same of what a model says, which is not touched for a word that happens to be a key: a local server takes any.
    pub(crate) fn hide_long(&self, text: &str) -> Option<String> {
        self.hide_from(text, LONG)
    }

    fn hide_from(&self, text: &str, shortest: usize) -> Option<String> {
        let secrets = self.secrets.iter().map(ExposeSecret::expose_secret);
        let found: Vec<_> = secrets.filter(|secret| secret.len() >= shortest && text.contains(*secret)).collect();
        (!found.is_empty()).then(|| found.iter().fold(text.to_owned(), |text, secret| text.replace(*secret, "[key]")))
    }

    fn cooling(&self) -> MutexGuard<'_, Vec<Option<Instant>>> {
        // A time is set in one go, so a panic elsewhere leaves it whole.
        self.cooling.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a key is one, and not a word that stands in for one: `none`, `test`, `ollama`.
fn is_secret(key: &str) -> bool {
    key.len() >= 8 || (key.len() >= 4 && !key.bytes().all(|byte| byte.is_ascii_alphabetic()))
}

/// Whether a key can be hidden wherever it stands, and not only where a server speaks of itself: `lm-studio` cannot.
fn is_no_word(key: &str) -> bool {
    key.len() >= LONG || key.bytes().any(|byte| byte.is_ascii_digit())
}

impl Refused {
    fn lock(&self) -> MutexGuard<'_, HashSet<usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
