//! Ids and digests: each is a newtype with exactly one text form.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// The number of hexadecimal digits that are shown of an id.
pub const SHORT_ID_DIGITS: usize = 8;

/// A BLAKE3 digest of some bytes, written as 64 lower-case hexadecimal digits.
///
/// ```
/// use rath_record::Digest;
///
/// let digest = Digest::compute(b"hello");
/// assert_eq!(digest.to_string().parse(), Ok(digest));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// Computes the digest of `bytes`.
    pub fn compute(bytes: &[u8]) -> Self {
        Digest(*blake3::hash(bytes).as_bytes())
    }

    /// Parses the 64-digit form.
    ///
    /// Upper case is refused, so that a digest has only one text.
    pub fn from_hex(hex: &[u8]) -> Option<Self> {
        parse_hex(hex).map(Digest)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut hex = [0; 64];
        write_hex(&self.0, &mut hex);
        f.pad(ascii(&hex))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:.8}")
    }
}

/// The id of a step: a hash of its parents and its chunk, so that equal history has equal ids.
///
/// ```
/// # use rath_record::{BranchId, Chunk, Record, Stamp};
/// # let mut record = Record::new();
/// let id = record.push(Chunk::user("Hello"), Stamp::on(BranchId([1; 16]))).id();
/// assert_eq!(id.to_string().parse(), Ok(id));
/// assert_eq!(id.short(), id.to_string()[..8]);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StepId(pub [u8; 32]);

impl StepId {
    /// Computes the id of a step from its parents and the digest of its chunk's JSON.
    ///
    /// The chunk enters as a digest, so that its text can be withheld later and the id can still be checked.
    pub fn compute(parents: &[StepId], chunk: Digest) -> Self {
        const TAG: &[u8] = b"rath step 1\n";
        // In one piece: a hasher that is fed in pieces has 2 kB of state.
        let mut bytes = Vec::with_capacity(TAG.len() + 1 + size_of_val(parents) + chunk.0.len());
        bytes.extend_from_slice(TAG);
        bytes.push(parents.len() as u8);
        parents.iter().for_each(|parent| bytes.extend_from_slice(&parent.0));
        bytes.extend_from_slice(&chunk.0);
        StepId(*blake3::hash(&bytes).as_bytes())
    }

    /// Parses the 64-digit form; upper case is refused.
    pub fn from_hex(hex: &[u8]) -> Option<Self> {
        parse_hex(hex).map(StepId)
    }

    /// Returns the first [`SHORT_ID_DIGITS`] digits, enough for a person to tell steps apart.
    pub fn short(&self) -> String {
        format!("{self:.SHORT_ID_DIGITS$}")
    }
}

impl fmt::Display for StepId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Digest(self.0).fmt(f)
    }
}

impl fmt::Debug for StepId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:.SHORT_ID_DIGITS$}")
    }
}

/// The id of a version of a file or of a directory: the SHA-1 that git gives a blob or a tree, as 40 lower-case hexadecimal
/// digits.
///
/// ```
/// use rath_record::ObjectId;
///
/// let empty_tree: ObjectId = "4b825dc642cb6eb9a060e54bf8d69288fbee4904".parse()?;
/// assert_eq!(empty_tree.to_string(), "4b825dc642cb6eb9a060e54bf8d69288fbee4904");
/// # Ok::<(), rath_record::IdError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId(pub [u8; 20]);

impl ObjectId {
    /// The number of hexadecimal digits in the text form.
    pub const HEX_DIGITS: usize = 40;

    /// Parses the 40-digit form; upper case is refused.
    pub fn from_hex(hex: &[u8]) -> Option<Self> {
        parse_hex(hex).map(ObjectId)
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut hex = [0; Self::HEX_DIGITS];
        write_hex(&self.0, &mut hex);
        f.pad(ascii(&hex))
    }
}

impl fmt::Debug for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:.SHORT_ID_DIGITS$}")
    }
}

/// The checksum of one stored row: the first 16 bytes of a BLAKE3 digest.
///
/// It protects against damage and accidental edits, not against forgery: a whole file can be sealed anew.
///
/// ```
/// use rath_record::Seal;
///
/// let seal = Seal::compute(b"a row");
/// assert_eq!(seal.to_string().len(), Seal::HEX_DIGITS);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Seal(pub [u8; 16]);

impl Seal {
    /// The number of hexadecimal digits in the text form.
    pub const HEX_DIGITS: usize = 32;

    /// Computes the seal of `bytes`.
    pub fn compute(bytes: &[u8]) -> Self {
        let mut seal = [0; 16];
        seal.copy_from_slice(&blake3::hash(bytes).as_bytes()[..16]);
        Seal(seal)
    }

    /// Parses the 32-digit form; upper case is refused.
    pub fn from_hex(hex: &[u8]) -> Option<Self> {
        parse_hex(hex).map(Seal)
    }
}

impl fmt::Display for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut hex = [0; Self::HEX_DIGITS];
        write_hex(&self.0, &mut hex);
        f.pad(ascii(&hex))
    }
}

impl fmt::Debug for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:.SHORT_ID_DIGITS$}")
    }
}

/// The stable id of a branch: a UUID, chosen when the branch is started.
///
/// It is outside the content hash: two runs of one program have equal steps on different branches.
///
/// ```
/// use rath_record::BranchId;
///
/// let branch: BranchId = "01980a5e-7a40-7cc2-8d4e-3f2b1c0d9e8f".parse()?;
/// assert_eq!(branch.short(), "1c0d9e8f");
/// # Ok::<(), rath_record::IdError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BranchId(pub [u8; 16]);

impl BranchId {
    /// Derives a branch id from the first step of the branch, for canonical exports.
    pub fn canonical(first_step: StepId) -> Self {
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&first_step.0[..16]);
        BranchId(uuid::Builder::from_custom_bytes(bytes).into_uuid().into_bytes())
    }

    /// Returns the last [`SHORT_ID_DIGITS`] digits, enough for a person to tell branches apart.
    ///
    /// The first digits encode the time, so that they are similar for branches started together.
    pub fn short(&self) -> String {
        let text = self.to_string();
        text[text.len() - SHORT_ID_DIGITS..].to_owned()
    }
}

impl fmt::Display for BranchId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&uuid::Uuid::from_bytes(self.0), f)
    }
}

impl fmt::Debug for BranchId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The id of a count of branches: those that left one head while one program had it open.
///
/// A head that was read from a store or a file can be open in several programs at once, each of which counts from one.
///
/// ```
/// use rath_record::CounterId;
/// use rath_record::chunk::Forked;
///
/// let fork = |counter| Forked::new(1).with_counter(Some(CounterId([counter; 16])));
/// assert_ne!(fork(1), fork(2));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CounterId(pub [u8; 16]);

impl fmt::Display for CounterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&uuid::Uuid::from_bytes(self.0), f)
    }
}

impl fmt::Debug for CounterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The id of a tool call, as the provider gave it.
///
/// It is unique within a turn, not within a session.
///
/// Part of [`Call`](crate::chunk::Call).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CallId(pub Arc<str>);

impl From<&str> for CallId {
    fn from(id: &str) -> Self {
        CallId(id.into())
    }
}

impl From<String> for CallId {
    fn from(id: String) -> Self {
        CallId(id.into())
    }
}

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// A point in time, in microseconds since 1970-01-01T00:00:00Z.
///
/// ```
/// use rath_record::Timestamp;
///
/// assert_eq!(Timestamp(1_500_000).to_rfc3339().as_deref(), Some("1970-01-01T00:00:01.5Z"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub i64);

/// A text that could not be parsed as an id.
///
/// Returned by [`parse`](str::parse) for an id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected {expected}, found `{found}`")]
pub struct IdError {
    expected: &'static str,
    found: String,
}

/// Implements `FromStr` for an id type, and serde as that text.
macro_rules! text_id {
    ($name:ident, $expected:literal, $parse:expr) => {
        impl FromStr for $name {
            type Err = IdError;

            fn from_str(text: &str) -> Result<Self, IdError> {
                $parse(text).ok_or_else(|| IdError { expected: $expected, found: text.chars().take(80).collect() })
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                <std::borrow::Cow<'de, str>>::deserialize(deserializer)?.parse().map_err(de::Error::custom)
            }
        }
    };
}

text_id!(Digest, "a digest of 64 lower-case hexadecimal digits", |t: &str| Digest::from_hex(t.as_bytes()));
text_id!(StepId, "a step id of 64 lower-case hexadecimal digits", |t: &str| StepId::from_hex(t.as_bytes()));
text_id!(Seal, "a seal of 32 lower-case hexadecimal digits", |t: &str| Seal::from_hex(t.as_bytes()));
text_id!(ObjectId, "an object id of 40 lower-case hexadecimal digits", |t: &str| ObjectId::from_hex(t.as_bytes()));
text_id!(BranchId, "a branch id: a lower-case UUID with hyphens", |t: &str| parse_uuid(t).map(BranchId));
text_id!(CounterId, "a counter id: a lower-case UUID with hyphens", |t: &str| parse_uuid(t).map(CounterId));

/// Parses a UUID. Refuses its other spellings (braces, upper case, no hyphens).
fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    uuid::Uuid::try_parse(text).ok().filter(|id| id.to_string() == text).map(uuid::Uuid::into_bytes)
}

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// Writes `bytes` as lower-case hexadecimal digits into `hex`, which is twice as long.
pub(crate) fn write_hex(bytes: &[u8], hex: &mut [u8]) {
    for (byte, pair) in bytes.iter().zip(hex.chunks_exact_mut(2)) {
        pair[0] = DIGITS[(byte >> 4) as usize];
        pair[1] = DIGITS[(byte & 15) as usize];
    }
}

fn parse_hex<const N: usize>(hex: &[u8]) -> Option<[u8; N]> {
    if hex.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    // One flag for the whole text: a branch on every digit would double the cost of reading a file.
    let mut bad = 0;
    for (byte, pair) in bytes.iter_mut().zip(hex.chunks_exact(2)) {
        let (high, low) = (DIGIT_VALUES[pair[0] as usize], DIGIT_VALUES[pair[1] as usize]);
        bad |= high | low;
        *byte = high << 4 | (low & 15);
    }
    (bad & 0xf0 == 0).then_some(bytes)
}

/// The value of each lower-case hexadecimal digit; 0xff for every other byte.
const DIGIT_VALUES: [u8; 256] = {
    let mut values = [0xff; 256];
    let mut i = 0;
    while i < 16 {
        values[DIGITS[i] as usize] = i as u8;
        i += 1;
    }
    values
};

fn ascii(hex: &[u8]) -> &str {
    std::str::from_utf8(hex).expect("hexadecimal digits are ASCII")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_has_exactly_one_text_form() {
        let digest = Digest::compute(b"rath");
        let text = digest.to_string();
        assert_eq!(text.parse(), Ok(digest));
        for invalid in
            [text.to_uppercase(), text[1..].to_owned(), format!("{text}0"), text.replacen(&text[..1], "g", 1)]
        {
            assert!(invalid.parse::<Digest>().is_err(), "{invalid}");
        }
        let branch = "0190a5c2-7b1e-7000-8000-0000000000ff";
        assert_eq!(branch.parse::<BranchId>().map(|id| id.to_string()), Ok(branch.to_owned()));
        assert!("0190A5C2-7B1E-7000-8000-0000000000FF".parse::<BranchId>().is_err());
    }
}
