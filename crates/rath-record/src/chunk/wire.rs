//! Chunks as JSON, and the payloads that stand beside them.

use serde::Serialize;
use serde_json::value::RawValue;

use super::{Chunk, Image, MemoryEvent, Other, json};
use crate::id::Digest;
use crate::payload::{INLINE_MAX, Payload, Text};

impl Chunk {
    /// Every payload that stands beside the row and is at hand, with its digest.
    pub fn payloads(&self) -> Vec<(Digest, Payload)> {
        let texts = texts!(self, iter).into_iter().filter_map(|text| match text {
            Text::Here(here) => Some((text.beside()?, Payload::Text(here.clone()))),
            Text::Away(_) => None,
        });
        let blobs = self
            .blobs()
            .iter()
            .filter_map(|image| Some((image.blob.digest(), Payload::Bytes(image.blob.data()?.clone()))));
        let kept = match self {
            Chunk::Other(other) => &other.payloads[..],
            _ => &[],
        };
        texts.chain(blobs).chain(kept.iter().cloned()).collect()
    }

    /// The digest of every payload that stands beside the row, at hand or not.
    pub fn references(&self) -> Vec<Digest> {
        let texts = texts!(self, iter).into_iter().filter_map(Text::beside);
        texts.chain(self.blobs().iter().map(|image| image.blob.digest())).collect()
    }

    /// Puts payloads that are away back in place, as far as `find` knows them.
    pub fn fill(&mut self, find: impl Fn(&Digest) -> Option<Payload>) {
        for text in texts!(self, iter_mut, mut) {
            if let Text::Away(away) = text
                && let Some(found) = find(&away.digest).and_then(Payload::into_text)
            {
                *text = Text::Here(found);
            }
        }
        if let Chunk::Other(other) = self {
            let named = quoted_digests(&other.json).filter_map(|digest| Some((digest, find(&digest)?)));
            other.payloads = named.collect();
        }
        if let Chunk::User(user) = self {
            for image in &mut user.images {
                if let Some(found) = find(&image.blob.digest()) {
                    image.blob.fill(found.bytes());
                }
            }
        }
    }

    /// What is left of the chunk when what it says is to be forgotten: its shape, so that calls keep their results.
    pub fn forgotten(&self) -> Chunk {
        let mut left = self.clone();
        for text in texts!(&mut left, iter_mut, mut) {
            if !text.is_empty() {
                *text = FORGOTTEN.into();
            }
        }
        match &mut left {
            Chunk::Assistant(answer) => {
                answer.calls.iter_mut().for_each(|call| call.arguments = "{}".into());
                answer.sidecar = None;
                answer.facts = None;
            }
            Chunk::User(user) => user.images.clear(),
            Chunk::Other(_) => return Chunk::note(FORGOTTEN),
            _ => {}
        }
        left
    }

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

    /// About how long its JSON is, where most of that is one text.
    pub(crate) fn size_hint(&self) -> usize {
        let text = match self {
            Chunk::User(it) => &it.text,
            Chunk::Assistant(it) => &it.text,
            Chunk::ToolResult(it) => &it.output,
            _ => return 256,
        };
        let length = text.as_str().map_or(0, str::len);
        256 + if length <= INLINE_MAX { length + length / 32 } else { 0 }
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

    /// Reads a chunk's JSON.
    ///
    /// What is a chunk but not one this version understands comes back as [`Chunk::Other`].
    pub fn decode(json: &str) -> Result<Self, ChunkError> {
        let kind = json
            .strip_prefix(r#"{"kind":""#)
            .and_then(|rest| rest.split_once('"'))
            .map(|(kind, _)| kind)
            .filter(|kind| !kind.is_empty() && !kind.contains('\\'))
            .ok_or(ChunkError::NoKind)?;
        if json.contains('\n') || !json.ends_with('}') {
            return Err(ChunkError::NotJson("a chunk stands on one line and ends with its brace".to_owned()));
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
            _ => &[],
        }
    }
}

/// Why a text is not a chunk.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChunkError {
    /// Its first member is not a kind.
    #[error("a chunk is a JSON object whose first member is `kind`")]
    NoKind,
    /// It is not JSON.
    #[error("a chunk is JSON: {0}")]
    NotJson(String),
}

/// Every digest that stands between quotes.
fn quoted_digests(json: &str) -> impl Iterator<Item = Digest> {
    json.split('"').filter_map(|between| Digest::from_hex(between.as_bytes()))
}

/// What stands where something was to be forgotten.
const FORGOTTEN: &str = "[forgotten]";

fn encode_tagged(head: &str, it: &impl Serialize, out: &mut Vec<u8>) {
    out.extend_from_slice(head.as_bytes());
    if json::members(out, it) {
        return out.push(b'}');
    }
    let at = out.len();
    serde_json::to_writer(&mut *out, it).expect("chunks have string keys and a Vec takes every write");
    // `{"kind":"note"` and `{"text":..}` become one object.
    out[at] = b',';
}

/// Every text in a chunk that may be long enough to stand beside the row, shared or mutable.
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
                MemoryEvent::Remember { text } => vec![text],
                MemoryEvent::Recall { query, found } => {
                    [query].into_iter().chain(found.$iter().map(|found| &$($mut)? found.text)).collect()
                }
                MemoryEvent::Commit { .. } | MemoryEvent::Forget { .. } => vec![],
            },
            Chunk::Compressed(it) => vec![&$($mut)? it.summary],
            Chunk::Selected(it) => vec![&$($mut)? it.reply],
            Chunk::Checked(it) => vec![&$($mut)? it.output],
            Chunk::Retry(it) => vec![&$($mut)? it.error],
            Chunk::Interrupted(it) => vec![&$($mut)? it.reason],
            Chunk::Denied(it) => vec![&$($mut)? it.reason],
            Chunk::Failed(it) => vec![&$($mut)? it.message],
            Chunk::Note(it) => vec![&$($mut)? it.text],
            Chunk::ToolStarted(_)
            | Chunk::Placed(_)
            | Chunk::Observed(_)
            | Chunk::Decided(_)
            | Chunk::Forked(_)
            | Chunk::Merged(_)
            | Chunk::Detached(_)
            | Chunk::Approved(_)
            | Chunk::Resumed(_)
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
            Retry "retry", Interrupted "interrupted", Approved "approved", Denied "denied", Failed "failed",
            Resumed "resumed", Observed "observed", Decided "decided", Note "note",
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
