//! Encoding chunks as JSON and decoding them, with their payloads.

use serde::Serialize;
use serde_json::value::RawValue;

use super::{Chunk, Image, MemoryEvent, Other, json};
use crate::id::Digest;
use crate::payload::{MAX_INLINE_BYTES, Payload, Text};

impl Chunk {
    /// Returns every payload that is stored outside the row and is present, with its digest.
    pub fn payloads(&self) -> Vec<(Digest, Payload)> {
        let texts = texts!(self, iter).into_iter().filter_map(|text| match text {
            Text::Present(content) => Some((text.payload_digest()?, Payload::Text(content.clone()))),
            Text::Missing(_) => None,
        });
        let blobs = self
            .blobs()
            .iter()
            .filter_map(|image| Some((image.blob.digest(), Payload::Bytes(image.blob.data()?.clone()))));
        let unread = match self {
            Chunk::Other(other) => &other.payloads[..],
            _ => &[],
        };
        texts.chain(blobs).chain(unread.iter().cloned()).collect()
    }

    /// Returns the digest of every payload that is stored outside the row, present or missing.
    pub fn payload_digests(&self) -> Vec<Digest> {
        let texts = texts!(self, iter).into_iter().filter_map(Text::payload_digest);
        texts.chain(self.blobs().iter().map(|image| image.blob.digest())).collect()
    }

    /// Fills in missing payloads, as far as `find` returns them.
    pub fn fill_payloads(&mut self, find: impl Fn(&Digest) -> Option<Payload>) {
        for text in texts!(self, iter_mut, mut) {
            if let Text::Missing(reference) = text
                && let Some(content) = find(&reference.digest).and_then(Payload::into_text)
            {
                *text = Text::Present(content);
            }
        }
        if let Chunk::Other(other) = self {
            let payloads = quoted_digests(&other.json).filter_map(|digest| Some((digest, find(&digest)?)));
            other.payloads = payloads.collect();
        }
        for image in self.blobs_mut() {
            if let Some(payload) = find(&image.blob.digest()) {
                image.blob.fill(payload.bytes());
            }
        }
    }

    /// The text that stands for a forgotten one. See [`Chunk::redacted`].
    pub const FORGOTTEN_TEXT: &'static str = "[forgotten]";

    /// Returns a copy without texts, images and provider data.
    ///
    /// The shape stays, so that calls keep their results.
    pub fn redacted(&self) -> Chunk {
        let mut redacted = self.clone();
        for text in texts!(&mut redacted, iter_mut, mut) {
            if !text.is_empty() {
                *text = Self::FORGOTTEN_TEXT.into();
            }
        }
        match &mut redacted {
            Chunk::Assistant(answer) => {
                answer.calls.iter_mut().for_each(|call| call.arguments = "{}".into());
                answer.sidecar = None;
                answer.facts = None;
            }
            Chunk::User(user) => user.images.clear(),
            Chunk::ToolResult(result) => {
                result.images.clear();
                result.structured = None;
            }
            Chunk::Other(_) => return Chunk::note(Self::FORGOTTEN_TEXT),
            _ => {}
        }
        redacted
    }

    /// The names of all kinds that this version reads, as in JSON.
    pub const KINDS: &'static [&'static str] = {
        macro_rules! names {
            ($($variant:ident $kind:literal,)*) => {
                &[$($kind),*]
            };
        }
        every_kind!(names)
    };

    /// The name of the chunk's kind in JSON.
    pub fn kind(&self) -> &str {
        macro_rules! kind {
            ($($variant:ident $kind:literal,)*) => {
                match self {
                    $(Chunk::$variant(_) => $kind,)*
                    Chunk::Other(other) => &other.kind,
                }
            };
        }
        every_kind!(kind)
    }

    /// Estimates the length of the JSON; exact enough to allocate once if most of it is one text.
    pub(crate) fn size_hint(&self) -> usize {
        let text = match self {
            Chunk::User(it) => &it.text,
            Chunk::Assistant(it) => &it.text,
            Chunk::ToolResult(it) => &it.output,
            _ => return 256,
        };
        let length = text.as_str().map_or(0, str::len);
        256 + if length <= MAX_INLINE_BYTES { length + length / 32 } else { 0 }
    }

    /// Appends the chunk's JSON to `out`: the bytes that are hashed and stored.
    pub fn encode(&self, out: &mut Vec<u8>) {
        macro_rules! encode {
            ($($variant:ident $kind:literal,)*) => {
                match self {
                    $(Chunk::$variant(it) => encode_tagged(concat!(r#"{"kind":""#, $kind, r#"""#), it, out),)*
                    Chunk::Other(other) => out.extend_from_slice(other.json.as_bytes()),
                }
            };
        }
        every_kind!(encode);
    }

    /// Decodes a chunk from its JSON.
    ///
    /// A chunk that this version does not understand is returned as [`Chunk::Other`].
    pub fn decode(json: &str) -> Result<Self, ChunkError> {
        let kind = json
            .strip_prefix(r#"{"kind":""#)
            .and_then(|rest| rest.split_once('"'))
            .map(|(kind, _)| kind)
            .filter(|kind| !kind.is_empty() && !kind.contains('\\'))
            .ok_or(ChunkError::NoKind)?;
        if json.contains('\n') || !json.ends_with('}') {
            return Err(ChunkError::NotJson("it is not one line that ends with `}`".to_owned()));
        }
        macro_rules! decode {
            ($($variant:ident $kind:literal,)*) => {
                match kind {
                    $($kind => serde_json::from_str(json).ok().map(Chunk::$variant),)*
                    _ => None,
                }
            };
        }
        if let Some(chunk) = every_kind!(decode) {
            return Ok(chunk);
        }
        serde_json::from_str::<&RawValue>(json).map_err(|error| ChunkError::NotJson(error.to_string()))?;
        Ok(Chunk::Other(Other { kind: kind.to_owned(), json: json.to_owned(), payloads: Vec::new() }))
    }

    fn blobs(&self) -> &[Image] {
        match self {
            Chunk::User(user) => &user.images,
            Chunk::ToolResult(result) => &result.images,
            _ => &[],
        }
    }

    fn blobs_mut(&mut self) -> &mut [Image] {
        match self {
            Chunk::User(user) => &mut user.images,
            Chunk::ToolResult(result) => &mut result.images,
            _ => &mut [],
        }
    }
}

/// The reason why a text is not a chunk.
///
/// Returned by [`Chunk::decode`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChunkError {
    /// The first member is not a kind.
    #[error("the chunk is not a JSON object whose first member is `kind`")]
    NoKind,
    /// The text is not JSON.
    #[error("the chunk is not valid JSON: {0}")]
    NotJson(String),
}

/// Returns every digest that stands between quotes.
fn quoted_digests(json: &str) -> impl Iterator<Item = Digest> {
    json.split('"').filter_map(|between| Digest::from_hex(between.as_bytes()))
}

fn encode_tagged(head: &str, it: &impl Serialize, out: &mut Vec<u8>) {
    out.extend_from_slice(head.as_bytes());
    if json::write_members(out, it) {
        return out.push(b'}');
    }
    let at = out.len();
    serde_json::to_writer(&mut *out, it).expect("chunks have string keys and a Vec takes every write");
    // `{"kind":"note"` and `{"text":..}` become one object.
    out[at] = b',';
}

/// Returns every text of a chunk that may be long enough to be stored as a payload, as shared or mutable references.
macro_rules! texts {
    ($chunk:expr, $iter:ident $(, $mut:tt)?) => {
        match $chunk {
            Chunk::Instructions(it) => vec![&$($mut)? it.text],
            Chunk::User(it) => vec![&$($mut)? it.text],
            Chunk::Assistant(it) => {
                let calls = it.calls.$iter().map(|call| &$($mut)? call.arguments);
                [&$($mut)? it.text, &$($mut)? it.reasoning].into_iter().chain(calls).collect()
            }
            Chunk::ToolResult(it) => [&$($mut)? it.output].into_iter().chain(it.whole.$iter()).collect(),
            Chunk::Memory(it) => match &$($mut)? it.event {
                MemoryEvent::Remember { text, .. } => vec![text],
                MemoryEvent::Recall { query, found, .. } => {
                    [query].into_iter().chain(found.$iter().map(|entry| &$($mut)? entry.text)).collect()
                }
                MemoryEvent::Commit { .. } | MemoryEvent::Forget { .. } => vec![],
            },
            Chunk::Compressed(it) => vec![&$($mut)? it.summary],
            Chunk::Selected(it) => vec![&$($mut)? it.reply],
            Chunk::Checked(it) => vec![&$($mut)? it.output],
            Chunk::Retry(it) => vec![&$($mut)? it.error],
            Chunk::Interrupted(it) => [&$($mut)? it.reason].into_iter().chain(it.partial.$iter()).collect(),
            Chunk::Denied(it) => vec![&$($mut)? it.reason],
            Chunk::Failed(it) => [&$($mut)? it.message].into_iter().chain(it.partial.$iter()).collect(),
            Chunk::Note(it) => vec![&$($mut)? it.text],
            Chunk::ToolStarted(_)
            | Chunk::Placed(_)
            | Chunk::Observed(_)
            | Chunk::Decided(_)
            | Chunk::Restored(_)
            | Chunk::Forked(_)
            | Chunk::Merged(_)
            | Chunk::Detached(_)
            | Chunk::Asked(_)
            | Chunk::Approved(_)
            | Chunk::Resumed(_)
            | Chunk::Adopted(_)
            | Chunk::Other(_) => vec![],
        }
    };
}
use texts;

/// Calls `$then!` with every kind that this version reads, as `Variant "kind"` pairs.
macro_rules! every_kind {
    ($then:ident) => {
        $then! {
            Instructions "instructions", User "user", Assistant "assistant", ToolStarted "tool_started",
            ToolResult "tool_result", Placed "placed", Memory "memory", Compressed "compressed",
            Selected "selected", Checked "checked", Forked "forked", Merged "merged", Detached "detached",
            Retry "retry", Interrupted "interrupted", Asked "asked", Approved "approved", Denied "denied", Failed "failed",
            Resumed "resumed", Adopted "adopted", Observed "observed", Decided "decided", Restored "restored", Note "note",
        }
    };
}
use every_kind;

macro_rules! into_chunk {
    ($($variant:ident $kind:literal,)*) => {
        $(impl From<super::$variant> for Chunk {
            fn from(it: super::$variant) -> Self {
                Chunk::$variant(it)
            }
        })*
    };
}
every_kind!(into_chunk);
