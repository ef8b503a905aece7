//! What is kept of a request for the next one.

use std::sync::{Arc, Mutex, PoisonError};

use rath_record::chunk::{Identity, Json};
use rath_record::view::{self, Continuation};
use rath_record::{Digest, Record, Step, turn};

use super::{Away, Page, Request, Role, TOKENS_PER_IMAGE, Target, tokens};
use crate::provider::settings::{Cache, Settings, Shape};

/// Where a session keeps what it can reuse of its last request. A copy has a place of its own, and shares what is in it.
#[derive(Default)]
pub(crate) struct Reuse(Mutex<Option<Arc<Prefix>>>);

impl Reuse {
    /// The request that asks `target` to go on from `record`, made from what is kept, which it then is.
    pub(crate) fn request(&self, record: &Record, target: Target<'_>, by: Option<Arc<str>>) -> Result<Request, Away> {
        // A result that comes later belongs before what would be written now.
        if matches!(turn::next(record), turn::Next::RunTools(_)) {
            return Ok(Prefix::of(record, target)?.request(target, by));
        }
        let earlier = self.lock().take();
        let prefix = Prefix::after(earlier, record, target)?;
        let request = prefix.request(target, by);
        *self.lock() = Some(Arc::new(prefix));
        Ok(request)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Arc<Prefix>>> {
        // Nothing but moves happens under the lock, so a panic elsewhere leaves it whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clone for Reuse {
    fn clone(&self) -> Self {
        Reuse(Mutex::new(self.lock().clone()))
    }
}

/// A request up to its last message.
///
/// It is nothing but a saving: the same bytes come of the record alone.
#[derive(Clone)]
pub(crate) struct Prefix {
    identity: Identity,
    shape: Shape,
    cache: Option<Cache>,
    /// The settings of the last request, and how they are stored.
    settings: (Arc<Settings>, Json),
    /// The head it reflects.
    at: Option<Step>,
    carry: Continuation,
    page: Page,
    /// Has read all of the page.
    hasher: blake3::Hasher,
}

impl Prefix {
    /// All of it, from the record.
    pub(super) fn of(record: &Record, target: Target<'_>) -> Result<Self, Away> {
        let view = view::messages(record);
        let mut page = Page::open(target, view.instructions)?;
        for message in &view.list {
            page.message(target, message)?;
        }
        let mut hasher = blake3::Hasher::new();
        hasher.update(&page.bytes);
        Ok(Prefix {
            identity: target.identity.clone(),
            shape: target.settings.shape,
            cache: target.settings.cache,
            settings: (target.settings.clone(), target.settings.to_json()),
            at: record.head().cloned(),
            carry: view.continuation,
            page,
            hasher,
        })
    }

    /// Goes on from an earlier request where this record does, and starts anew otherwise.
    fn after(earlier: Option<Arc<Self>>, record: &Record, target: Target<'_>) -> Result<Self, Away> {
        let earlier = earlier.filter(|earlier| earlier.is_for(target));
        let after = earlier.as_ref().and_then(|earlier| earlier.at.as_ref()).and_then(|at| record.steps_after(at));
        if let (Some(earlier), Some(steps)) = (earlier, after) {
            // The last handle on it writes where it stands; any other makes a copy.
            let mut prefix = Arc::unwrap_or_clone(earlier);
            if !Arc::ptr_eq(&prefix.settings.0, target.settings) {
                prefix.settings = (target.settings.clone(), target.settings.to_json());
            }
            if let Some((list, carry)) = view::messages_after(&steps, std::mem::take(&mut prefix.carry)) {
                prefix.carry = carry;
                prefix.at = record.head().cloned();
                let written = prefix.page.bytes.len();
                for message in &list {
                    prefix.page.message(target, message)?;
                }
                prefix.hasher.update(&prefix.page.bytes[written..]);
                return Ok(prefix);
            }
        }
        Prefix::of(record, target)
    }

    /// The whole request.
    pub(super) fn request(&self, target: Target<'_>, by: Option<Arc<str>>) -> Request {
        let mut tail = self.page.tail();
        if matches!(tail.last, None | Some(Role::Assistant)) {
            tail.go_on(target);
        }
        let messages_end = self.page.bytes.len() + tail.bytes.len();
        tail.close(target);
        let mut bytes = Vec::with_capacity(self.page.bytes.len() + tail.bytes.len());
        bytes.extend_from_slice(&self.page.bytes);
        bytes.extend_from_slice(&tail.bytes);
        let digest = Digest(*self.hasher.clone().update(&tail.bytes).finalize().as_bytes());
        let text = (bytes.len() as u64).saturating_sub(tail.image_bytes);
        Request {
            bytes: bytes.into(),
            digest,
            identity: target.identity.clone(),
            settings: target.settings.clone(),
            stored: self.settings.1.clone(),
            by,
            report: tail.report,
            tokens: tokens(text) + tail.images * TOKENS_PER_IMAGE,
            messages_end,
            refused: Arc::default(),
        }
    }

    /// What stands before the messages, and how each is written, depends on these and the instructions alone.
    fn is_for(&self, target: Target<'_>) -> bool {
        self.identity == *target.identity && self.shape == target.settings.shape && self.cache == target.settings.cache
    }
}
