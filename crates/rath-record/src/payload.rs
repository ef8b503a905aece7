//! Payloads: the texts and bytes of a chunk that are too long for its row and are stored by digest.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::id::Digest;

/// The length of the longest text that stands in its row; a longer text is stored as a payload, by digest.
///
/// This is part of the format: a text must always be written the same way, or equal chunks would get different ids.
pub const MAX_INLINE_BYTES: usize = 16 * 1024;

/// Text in a chunk.
///
/// ```
/// use rath_record::{MAX_INLINE_BYTES, Text};
///
/// let text = Text::from("short");
/// assert_eq!(text.as_str(), Some("short"));
/// assert_eq!(text.payload_digest(), None);
/// assert!(Text::from("x".repeat(MAX_INLINE_BYTES + 1)).payload_digest().is_some());
/// ```
#[derive(Clone, PartialEq, Eq)]
pub enum Text {
    /// The text is in memory.
    Present(Arc<str>),
    /// Only the reference is known: the payload was withheld, lost, or has not been loaded.
    ///
    /// Boxed, since nearly every text is present.
    Missing(Box<Reference>),
}

impl Text {
    /// Returns the text, unless it is missing.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Text::Present(text) => Some(text),
            Text::Missing(_) => None,
        }
    }

    /// Returns whether the text is present and empty.
    pub fn is_empty(&self) -> bool {
        self.as_str() == Some("")
    }

    /// Returns the digest under which the text is stored, if it is too long for its row.
    pub fn payload_digest(&self) -> Option<Digest> {
        match self {
            Text::Present(text) => (text.len() > MAX_INLINE_BYTES).then(|| Digest::compute(text.as_bytes())),
            Text::Missing(reference) => Some(reference.digest),
        }
    }
}

impl Default for Text {
    fn default() -> Self {
        Text::Present("".into())
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Text::Present(text.into())
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Text::Present(text.into())
    }
}

/// Shows the text, or its length and digest if it is missing.
impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Text::Present(text) => f.pad(text),
            Text::Missing(reference) => {
                write!(f, "[{} bytes missing, digest {:.8}]", reference.bytes, reference.digest)
            }
        }
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Text::Present(text) => fmt::Debug::fmt(text, f),
            Text::Missing(_) => fmt::Display::fmt(self, f),
        }
    }
}

/// Bytes in a chunk, for example an image. They are always stored as a payload.
///
/// ```
/// use rath_record::{Blob, Digest};
///
/// let blob = Blob::new(*b"GIF89a");
/// assert_eq!((blob.bytes(), blob.digest()), (6, Digest::compute(b"GIF89a")));
/// ```
#[derive(Clone)]
pub struct Blob {
    reference: Reference,
    data: Option<Arc<[u8]>>,
}

impl Blob {
    /// Takes ownership of bytes and computes their digest.
    pub fn new(data: impl Into<Arc<[u8]>>) -> Self {
        let data = data.into();
        Blob { reference: Reference { digest: Digest::compute(&data), bytes: data.len() as u64 }, data: Some(data) }
    }

    /// The digest of the bytes.
    pub fn digest(&self) -> Digest {
        self.reference.digest
    }

    /// The number of bytes.
    pub fn bytes(&self) -> u64 {
        self.reference.bytes
    }

    /// The bytes, if they are in memory.
    pub fn data(&self) -> Option<&Arc<[u8]>> {
        self.data.as_ref()
    }

    /// Sets the bytes, if they match the digest.
    pub(crate) fn fill(&mut self, data: &[u8]) {
        if self.data.is_none() && Digest::compute(data) == self.reference.digest {
            self.data = Some(data.into());
        }
    }
}

/// Two blobs are equal if their references are, whether or not the bytes are in memory.
impl PartialEq for Blob {
    fn eq(&self, other: &Self) -> bool {
        self.reference == other.reference
    }
}

impl Eq for Blob {}

impl fmt::Debug for Blob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{} bytes, digest {:.8}]", self.reference.bytes, self.reference.digest)
    }
}

/// The content of a payload.
///
/// Returned by [`Chunk::payloads`](crate::Chunk::payloads).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Payload {
    /// Text that was too long for its row.
    Text(Arc<str>),
    /// Bytes.
    Bytes(Arc<[u8]>),
}

impl Payload {
    /// The bytes that the digest was computed from.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Payload::Text(text) => text.as_bytes(),
            Payload::Bytes(bytes) => bytes,
        }
    }

    /// Returns the payload as text, if it is valid UTF-8.
    ///
    /// One payload may serve as text in one chunk and as bytes in another, and is stored in either form.
    pub fn into_text(self) -> Option<Arc<str>> {
        match self {
            Payload::Text(text) => Some(text),
            Payload::Bytes(bytes) => std::str::from_utf8(&bytes).ok().map(Arc::from),
        }
    }
}

/// The reference to a payload, as it stands in a row.
///
/// Part of [`Text::Missing`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reference {
    /// The digest of the payload's bytes; for a text, of its UTF-8 form.
    pub digest: Digest,
    /// The length of the payload in bytes.
    pub bytes: u64,
}

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Text::Present(text) if text.len() <= MAX_INLINE_BYTES => serializer.serialize_str(text),
            Text::Present(text) => {
                Reference { digest: Digest::compute(text.as_bytes()), bytes: text.len() as u64 }.serialize(serializer)
            }
            Text::Missing(reference) => reference.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Text;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string, or an object with `digest` and `bytes`")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Text, E> {
                if text.len() > MAX_INLINE_BYTES {
                    Err(E::custom("too long to be stored in its row"))
                } else {
                    Ok(text.into())
                }
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(self, map: A) -> Result<Text, A::Error> {
                let reference = Reference::deserialize(serde::de::value::MapAccessDeserializer::new(map))?;
                if reference.bytes <= MAX_INLINE_BYTES as u64 {
                    return Err(serde::de::Error::custom("short enough to be stored in its row"));
                }
                Ok(Text::Missing(Box::new(reference)))
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

impl Serialize for Blob {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.reference.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Blob {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Blob { reference: Reference::deserialize(deserializer)?, data: None })
    }
}
