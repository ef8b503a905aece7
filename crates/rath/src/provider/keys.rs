//! The keys for a server: choosing one, and hiding all of them.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};
use tokio::time::Instant;

use crate::secrets::Secrets;

/// The keys for a server.
pub(crate) struct Keys {
    keys: Vec<SecretString>,
    /// The index of the key to begin with: one that was not rejected when it was last tried.
    first: AtomicUsize,
    /// The time until which each key is not used, because it reached a rate limit.
    cooling: Mutex<Vec<Option<Instant>>>,
    /// Every secret in every form in which a server may repeat it, the longest first.
    secrets: Vec<SecretString>,
    /// The secrets that a session must not record.
    unrecorded: Secrets,
}

/// The keys that were rejected in the course of one call.
#[derive(Debug, Default)]
pub(crate) struct RejectedKeys(Mutex<HashSet<usize>>);

/// The next action after a rate limit.
#[derive(Debug, PartialEq)]
pub(crate) enum AfterRateLimit {
    /// Another key can be used at once.
    OtherKey,
    /// No key can be used now; the first is ready after this time, if that is known.
    Wait(Option<Duration>),
}

/// The length in bytes from which a secret is hidden in the words of a model. A shorter one may be an ordinary word.
const MIN_HIDDEN_IN_ANSWERS: usize = 16;
/// The time that a key is not used after a rate limit, if the server names none.
const DEFAULT_COOLDOWN: Duration = Duration::from_secs(1);

impl Keys {
    /// Creates a set of keys. `others` are further secrets that must not be shown.
    pub(crate) fn new(keys: Vec<SecretString>, others: impl IntoIterator<Item = String>) -> Self {
        let all: Vec<_> = keys.iter().map(|key| key.expose_secret().to_owned()).chain(others).collect();
        let mut unrecorded = Secrets::default();
        for secret in all.iter().filter(|secret| is_unlike_words(secret)) {
            // A key that is too short for this protects nothing, and is still hidden in the server's own messages.
            let _ = unrecorded.add("provider key", secret.as_str());
        }
        let forms = all.into_iter().flat_map(|secret| {
            let escaped = serde_json::to_string(&secret).unwrap_or_default();
            let escaped = escaped.trim_matches('"').to_owned();
            let encoded = secret.bytes().map(|byte| match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => char::from(byte).to_string(),
                byte => format!("%{byte:02X}"),
            });
            HashSet::from([encoded.collect(), escaped, secret])
        });
        let mut secrets: Vec<String> = forms.filter(|secret| is_secret(secret)).collect();
        // The longest first, because one secret may be a part of another.
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

    /// Returns the secrets that a session must not record.
    pub(crate) fn secrets(&self) -> &Secrets {
        &self.unrecorded
    }

    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Returns the key to use now: one that was not rejected, and of those one that is not cooling down.
    pub(crate) fn pick(&self, rejected: &RejectedKeys) -> Option<(usize, &str)> {
        let rejected = rejected.lock();
        let cooling = self.cooling();
        let first = self.first.load(Ordering::Relaxed);
        let usable = (0..self.len()).map(|ahead| (first + ahead) % self.len()).filter(|nth| !rejected.contains(nth));
        let nth = usable.min_by_key(|nth| cooling[*nth].filter(|until| *until > Instant::now()))?;
        Some((nth, self.keys[nth].expose_secret()))
    }

    /// Marks a key as rejected. Returns true if there is another.
    pub(crate) fn reject(&self, nth: usize, rejected: &RejectedKeys) -> bool {
        rejected.lock().insert(nth);
        let next = (1..self.len()).map(|ahead| (nth + ahead) % self.len()).find(|next| !rejected.lock().contains(next));
        if let Some(next) = next {
            // Other calls begin with this key as well, unless one of them has moved on already.
            let _ = self.first.compare_exchange(nth, next, Ordering::Relaxed, Ordering::Relaxed);
        }
        next.is_some()
    }

    /// Marks a key as rate limited, for `wait` if the server named a time.
    pub(crate) fn cool_down(&self, nth: usize, wait: Option<Duration>, rejected: &RejectedKeys) -> AfterRateLimit {
        let now = Instant::now();
        let rejected = rejected.lock();
        let mut cooling = self.cooling();
        if let Some(until) = cooling.get_mut(nth) {
            *until = Some(instant_after(wait.unwrap_or(DEFAULT_COOLDOWN)));
        }
        let ready_in = |nth: usize| cooling[nth].filter(|until| *until > now).map(|until| until - now);
        let waits: Vec<_> = (0..self.len()).filter(|nth| !rejected.contains(nth)).map(ready_in).collect();
        match waits.iter().min() {
            Some(None) => AfterRateLimit::OtherKey,
            Some(first) if wait.is_some() => AfterRateLimit::Wait(*first),
            _ => AfterRateLimit::Wait(wait),
        }
    }

    /// Removes every secret from a message of the server, which may repeat the key. Returns `None` if there is none.
    pub(crate) fn hide(&self, text: &str) -> Option<String> {
        self.hide_from_length(text, 0)
    }

    /// Removes long secrets from the words of a model. Returns `None` if there is none.
    ///
    /// A short key may be an ordinary word, since a local server takes any key, and is not touched.
    pub(crate) fn hide_long(&self, text: &str) -> Option<String> {
        self.hide_from_length(text, MIN_HIDDEN_IN_ANSWERS)
    }

    fn hide_from_length(&self, text: &str, min_length: usize) -> Option<String> {
        let secrets = self.secrets.iter().map(ExposeSecret::expose_secret);
        let present: Vec<_> = secrets.filter(|secret| secret.len() >= min_length && text.contains(*secret)).collect();
        (!present.is_empty())
            .then(|| present.iter().fold(text.to_owned(), |text, secret| text.replace(*secret, "[key]")))
    }

    fn cooling(&self) -> MutexGuard<'_, Vec<Option<Instant>>> {
        // Each time is set in one assignment, so a panic elsewhere leaves the list valid.
        self.cooling.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns true for a real key, and false for a placeholder such as `none`, `test` or `ollama`.
fn is_secret(key: &str) -> bool {
    key.len() >= 8 || (key.len() >= 4 && !key.bytes().all(|byte| byte.is_ascii_alphabetic()))
}

/// Returns true if a key can be hidden in any text, and not only in messages of the server. `lm-studio` cannot.
fn is_unlike_words(key: &str) -> bool {
    key.len() >= MIN_HIDDEN_IN_ANSWERS || key.bytes().any(|byte| byte.is_ascii_digit())
}

impl RejectedKeys {
    fn lock(&self) -> MutexGuard<'_, HashSet<usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the instant after a wait. A wait beyond the range of the clock is cut to a year.
pub(super) fn instant_after(wait: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(wait).unwrap_or_else(|| now + Duration::from_secs(365 * 24 * 3600))
}
