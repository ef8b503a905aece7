//! The cache of the last request, for the next one.

use std::sync::{Arc, Mutex, PoisonError};

use rath_record::chunk::{Identity, Json};
use rath_record::view::{self, Continuation};
use rath_record::{Digest, Record, Step, turn};

use super::{RenderError, Request, RequestBuilder, RequestTarget, Role, TOKENS_PER_IMAGE, add_length, estimate_tokens};
use crate::provider::settings::{PromptCache, Settings, Shape};

/// A session's cache of its last request up to the last message.
///
/// A clone is a cache of its own that shares the content.
#[derive(Default)]
pub(crate) struct RequestCache(Mutex<Option<Arc<RequestPrefix>>>);

impl RequestCache {
    /// Renders the request that asks `target` to continue `record`, from the cached prefix if it fits. The prefix of the
    /// new request replaces the cached one.
    pub(crate) fn render(
        &self,
        record: &Record,
        target: RequestTarget<'_>,
        by: Option<Arc<str>>,
    ) -> Result<Request, RenderError> {
        self.with_prefix(record, target, |prefix| prefix.request(target, by))
    }

    /// Returns the digest of the request that [`render`](RequestCache::render) returns, without its bytes: in a long session they
    /// are many.
    pub(crate) fn digest(&self, record: &Record, target: RequestTarget<'_>) -> Result<Digest, RenderError> {
        self.with_prefix(record, target, |prefix| prefix.digest(&prefix.tail(target)))
    }

    fn with_prefix<T>(
        &self,
        record: &Record,
        target: RequestTarget<'_>,
        complete: impl FnOnce(&RequestPrefix) -> T,
    ) -> Result<T, RenderError> {
        RenderError::check_chunks(record)?;
        // A result that arrives later stands before what would be written now, so nothing is cached.
        if matches!(turn::next(record), turn::Next::RunTools(_)) {
            return Ok(complete(&RequestPrefix::render(record, target)?));
        }
        let earlier = self.lock().take();
        let prefix = RequestPrefix::extend(earlier, record, target)?;
        let completed = complete(&prefix);
        *self.lock() = Some(prefix);
        Ok(completed)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Arc<RequestPrefix>>> {
        // Only moves happen under the lock, so a panic elsewhere leaves the content valid.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clone for RequestCache {
    fn clone(&self) -> Self {
        RequestCache(Mutex::new(self.lock().clone()))
    }
}

/// A request up to its last message.
///
/// A prefix only saves time: rendering the record alone gives the same bytes.
#[derive(Clone)]
pub(crate) struct RequestPrefix {
    identity: Identity,
    shape: Shape,
    cache: Option<PromptCache>,
    /// The settings of the last request, and their JSON.
    settings: (Arc<Settings>, Json),
    /// The head of the rendered record.
    head: Option<Step>,
    continuation: Continuation,
    /// The bytes of text and pictures in the messages, before they were rendered.
    raw_bytes: u64,
    builder: RequestBuilder,
    /// A hasher that has read all bytes of the builder.
    hasher: blake3::Hasher,
}

impl RequestPrefix {
    /// Renders a record from its beginning.
    pub(super) fn render(record: &Record, target: RequestTarget<'_>) -> Result<Self, RenderError> {
        let view = view::messages(record);
        let raw_bytes = add_length(0, &view.list)?;
        let mut builder = RequestBuilder::open(target, view.instructions)?;
        for message in &view.list {
            builder.message(target, message)?;
        }
        let mut hasher = blake3::Hasher::new();
        hasher.update(&builder.bytes);
        Ok(RequestPrefix {
            identity: target.identity.clone(),
            shape: target.settings.shape,
            cache: target.settings.cache,
            settings: (target.settings.clone(), target.settings.to_json()),
            head: record.head().cloned(),
            continuation: view.continuation,
            raw_bytes,
            builder,
            hasher,
        })
    }

    /// Extends an earlier prefix if this record continues the earlier one, and otherwise renders the record from its
    /// beginning.
    fn extend(
        earlier: Option<Arc<Self>>,
        record: &Record,
        target: RequestTarget<'_>,
    ) -> Result<Arc<Self>, RenderError> {
        let earlier = earlier.filter(|earlier| earlier.fits(target));
        let new_steps =
            earlier.as_ref().and_then(|earlier| earlier.head.as_ref()).and_then(|head| record.steps_after(head));
        if let (Some(mut earlier), Some(steps)) = (earlier, new_steps) {
            // The last handle extends the prefix in place; any other makes a copy.
            let prefix = Arc::make_mut(&mut earlier);
            if !Arc::ptr_eq(&prefix.settings.0, target.settings) {
                prefix.settings = (target.settings.clone(), target.settings.to_json());
            }
            if let Some((list, continuation)) = view::messages_after(&steps, std::mem::take(&mut prefix.continuation)) {
                prefix.continuation = continuation;
                prefix.head = record.head().cloned();
                let old_length = prefix.builder.bytes.len();
                prefix.raw_bytes = add_length(prefix.raw_bytes, &list)?;
                for message in &list {
                    prefix.builder.message(target, message)?;
                }
                prefix.hasher.update(&prefix.builder.bytes[old_length..]);
                return Ok(earlier);
            }
        }
        RequestPrefix::render(record, target).map(Arc::new)
    }

    /// Returns the rest of the request, with the end of its messages.
    fn tail(&self, target: RequestTarget<'_>) -> Tail {
        let mut builder = self.builder.tail();
        if matches!(builder.last_role, None | Some(Role::Assistant)) {
            builder.push_go_on(target);
        }
        let messages_end = self.builder.bytes.len() + builder.bytes.len();
        builder.close(target);
        Tail { builder, messages_end }
    }

    fn digest(&self, tail: &Tail) -> Digest {
        Digest(*self.hasher.clone().update(&tail.builder.bytes).finalize().as_bytes())
    }

    /// Completes the request.
    pub(super) fn request(&self, target: RequestTarget<'_>, by: Option<Arc<str>>) -> Request {
        let tail = self.tail(target);
        let digest = self.digest(&tail);
        let Tail { builder: tail, messages_end } = tail;
        let mut bytes = Vec::with_capacity(self.builder.bytes.len() + tail.bytes.len());
        bytes.extend_from_slice(&self.builder.bytes);
        bytes.extend_from_slice(&tail.bytes);
        let text_bytes = (bytes.len() as u64).saturating_sub(tail.image_bytes);
        Request {
            bytes: bytes.into(),
            digest,
            identity: target.identity.clone(),
            settings: target.settings.clone(),
            settings_json: self.settings.1.clone(),
            by,
            report: tail.report,
            tokens: estimate_tokens(text_bytes) + tail.image_count * TOKENS_PER_IMAGE,
            messages_end,
            rejected_keys: Arc::default(),
        }
    }

    /// Returns true if the prefix can be extended for this target.
    ///
    /// The bytes before the messages, and those of each message, depend on these fields and the instructions alone.
    fn fits(&self, target: RequestTarget<'_>) -> bool {
        self.identity == *target.identity && self.shape == target.settings.shape && self.cache == target.settings.cache
    }
}

/// The end of a request, after a prefix.
struct Tail {
    builder: RequestBuilder,
    /// The length of the request up to the end of its messages.
    messages_end: usize,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Chunk, Session};

    /// A request would be refused by its length or not, depending on the cache.
    #[test]
    fn a_request_that_continues_another_is_as_long_as_one_that_does_not() {
        let identity = Identity { provider: "script".to_owned(), model: "script".to_owned() };
        let settings = Arc::new(Settings::new(Shape::Chat));
        let target = RequestTarget { identity: &identity, settings: &settings };
        let mut session = Session::user("\"".repeat(100));
        let first = RequestPrefix::render(session.as_record(), target).expect("it is rendered");
        assert!(first.raw_bytes == 100 && first.builder.bytes.len() > 200);
        session.push(Chunk::assistant("hi"));
        session.push(Chunk::user("more"));
        let extended = RequestPrefix::extend(Some(Arc::new(first)), session.as_record(), target);
        let whole = RequestPrefix::render(session.as_record(), target).expect("it is rendered");
        assert_eq!((extended.expect("it is rendered").raw_bytes, whole.raw_bytes), (106, 106));
    }
}
