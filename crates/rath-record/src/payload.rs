//! Payloads: text and bytes that a chunk carries, in the row while short and beside it, by digest, when long.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::id::Digest;

/// Text of up to this many bytes stands in the row; longer text is stored beside it, by digest.
///
/// Part of the format: the same text must always be written the same way, or equal chunks would get different ids.
pub const INLINE_MAX: usize = 16 * 1024;

/// Text in a chunk.
#[derive(Clone, PartialEq, Eq)]
pub enum Text {
    /// The text itself.
    Here(Arc<str>),
    /// Only its name: the payload was withheld, lost, or has not been fetched. Boxed, since nearly every text is here.
    Away(Box<Reference>),
}

impl Text {
    /// The text, unless it is away.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Text::Here(text) => Some(text),
            Text::Away(_) => None,
        }
    }

    /// Whether there is no text: an empty one, not one that is away.
    pub fn is_empty(&self) -> bool {
        self.as_str() == Some("")
    }

    /// The digest under which this text is stored beside its row, if it is too long to stand in it.
    pub fn beside(&self) -> Option<Digest> {
        match self {
            Text::Here(text) => (text.len() > INLINE_MAX).then(|| Digest::of(text.as_bytes())),
            Text::Away(away) => Some(away.digest),
        }
    }
}

impl Default for Text {
    fn default() -> Self {
        Text::Here("".into())
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Text::Here(text.into())
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Text::Here(text.into())
    }
}

/// Shows the text, or says that it is away.
impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Text::Here(text) => f.pad(text),
            Text::Away(away) => write!(f, "[{} bytes not here, digest {:.8}]", away.bytes, away.digest),
        }
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Text::Here(text) => fmt::Debug::fmt(text, f),
            Text::Away(_) => fmt::Display::fmt(self, f),
        }
    }
}

/// Bytes in a chunk, an image for one: always stored beside the row, by digest.
#[derive(Clone)]
pub struct Blob {
    name: Reference,
    data: Option<Arc<[u8]>>,
}

impl Blob {
    /// Takes bytes in.
    pub fn new(data: impl Into<Arc<[u8]>>) -> Self {
        let data = data.into();
        Blob { name: Reference { digest: Digest::of(&data), bytes: data.len() as u64 }, data: Some(data) }
    }

    /// The digest of the bytes.
    pub fn digest(&self) -> Digest {
        self.name.digest
    }

    /// How many bytes it has.
    pub fn bytes(&self) -> u64 {
        self.name.bytes
    }

    /// The bytes, where they are at hand.
    pub fn data(&self) -> Option<&Arc<[u8]>> {
        self.data.as_ref()
    }

    /// Takes the bytes in, if they are its own.
    pub(crate) fn fill(&mut self, data: &[u8]) {
        if self.data.is_none() && Digest::of(data) == self.name.digest {
            self.data = Some(data.into());
        }
    }
}

/// Equal bytes, whether or not they are at hand.
impl PartialEq for Blob {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Blob {}

impl fmt::Debug for Blob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{} bytes, digest {:.8}]", self.name.bytes, self.name.digest)
    }
}

/// A payload that stands beside its row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Payload {
    /// Text that was too long for its row.
    Text(Arc<str>),
    /// Bytes.
    Bytes(Arc<[u8]>),
}

impl Payload {
    /// The bytes that its digest names.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Payload::Text(text) => text.as_bytes(),
            Payload::Bytes(bytes) => bytes,
        }
    }

    /// The text, if it is one: one payload may serve as both, and is stored in either form.
    pub fn into_text(self) -> Option<Arc<str>> {
        match self {
            Payload::Text(text) => Some(text),
            Payload::Bytes(bytes) => std::str::from_utf8(&bytes).ok().map(Arc::from),
        }
    }
}

/// How a payload beside the row is named in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reference {
    /// The digest of the payload's bytes; of a text, those of its UTF-8 form.
    pub digest: Digest,
    /// How many bytes it has.
    pub bytes: u64,
}

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Text::Here(text) if text.len() <= INLINE_MAX => serializer.serialize_str(text),
            Text::Here(text) => {
                Reference { digest: Digest::of(text.as_bytes()), bytes: text.len() as u64 }.serialize(serializer)
            }
            Text::Away(away) => away.serialize(serializer),
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
                if text.len() > INLINE_MAX { Err(E::custom("too long to stand in a row")) } else { Ok(text.into()) }
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(self, map: A) -> Result<Text, A::Error> {
                let away = Reference::deserialize(serde::de::value::MapAccessDeserializer::new(map))?;
                if away.bytes <= INLINE_MAX as u64 {
                    return Err(serde::de::Error::custom("short enough to stand in its row"));
                }
                Ok(Text::Away(Box::new(away)))
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

impl Serialize for Blob {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.name.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Blob {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Blob { name: Reference::deserialize(deserializer)?, data: None })
    }
}
