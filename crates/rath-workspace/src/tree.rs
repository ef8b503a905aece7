//! Tree objects in git's format, and the ids of objects.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use crate::error::{Error, ErrorKind, Result};
use crate::objects::ObjectKind;

/// The id of an object: the SHA-1 of its kind, length and content, as git computes it.
///
/// Part of [`TreeFile`](crate::TreeFile).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId(pub [u8; 20]);

/// The id of a tree: one version of a directory.
///
/// Its text form is `git:` and 40 hexadecimal digits.
///
/// ```
/// use rath_workspace::TreeId;
///
/// let tree: TreeId = "git:4b825dc642cb6eb9a060e54bf8d69288fbee4904".parse()?;
/// assert_eq!(tree.to_string(), "git:4b825dc642cb6eb9a060e54bf8d69288fbee4904");
/// # Ok::<(), rath_workspace::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TreeId(pub ObjectId);

/// The mode of an entry in a tree.
///
/// Part of [`TreeFile`](crate::TreeFile).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// A file.
    File,
    /// An executable file.
    Executable,
    /// A symbolic link. Its content is the target.
    Link,
    /// A directory.
    Directory,
}

/// One entry of a tree object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TreeEntry<'a> {
    pub(crate) mode: Mode,
    pub(crate) name: &'a [u8],
    pub(crate) id: ObjectId,
}

/// The empty tree.
pub(crate) const EMPTY_TREE: ObjectId = ObjectId([
    0x4b, 0x82, 0x5d, 0xc6, 0x42, 0xcb, 0x6e, 0xb9, 0xa0, 0x60, 0xe5, 0x4b, 0xf8, 0xd6, 0x92, 0x88, 0xfb, 0xee, 0x49,
    0x04,
]);

impl TreeEntry<'_> {
    /// Returns the kind of the object that the entry names.
    pub(crate) fn kind(&self) -> ObjectKind {
        match self.mode {
            Mode::Directory => ObjectKind::Tree,
            Mode::File | Mode::Executable | Mode::Link => ObjectKind::Blob,
        }
    }
}

impl ObjectId {
    /// Parses an id of exactly 40 lower-case hexadecimal digits.
    pub fn from_hex(hex: &str) -> Option<Self> {
        let mut id = [0; 20];
        if hex.len() != 40 {
            return None;
        }
        for (byte, pair) in id.iter_mut().zip(hex.as_bytes().chunks_exact(2)) {
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Some(ObjectId(id))
    }
}

fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    }
}

impl FromStr for TreeId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        text.strip_prefix("git:").and_then(ObjectId::from_hex).map(TreeId).ok_or_else(|| {
            let start: String = text.chars().take(80).collect();
            Error::new(ErrorKind::Format, format_args!("wanted a tree id (`git:` and 40 digits), found `{start}`"))
        })
    }
}

impl fmt::Display for TreeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "git:{}", self.0)
    }
}

impl fmt::Debug for TreeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0[..4].iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl Mode {
    /// Returns the octal form that tree objects use.
    pub fn octal(self) -> &'static str {
        match self {
            Mode::File => "100644",
            Mode::Executable => "100755",
            Mode::Link => "120000",
            Mode::Directory => "40000",
        }
    }

    /// Parses the octal form that tree objects use.
    pub fn from_octal(octal: &[u8]) -> Option<Self> {
        match octal {
            // Trees that git wrote before 2005 contain files that are writable by their group.
            b"100644" | b"100664" => Some(Mode::File),
            b"100755" => Some(Mode::Executable),
            b"120000" => Some(Mode::Link),
            b"40000" => Some(Mode::Directory),
            _ => None,
        }
    }

    /// Returns true for a file, executable or not.
    pub(crate) fn is_file(self) -> bool {
        matches!(self, Mode::File | Mode::Executable)
    }
}

/// Returns the entries of a tree object. Fails for a name that a directory cannot hold, and for a wrong order.
pub(crate) fn entries(tree: ObjectId, bytes: &[u8]) -> Result<Vec<TreeEntry<'_>>> {
    let mut rest = bytes;
    let mut entries: Vec<TreeEntry<'_>> = Vec::with_capacity(bytes.len() / 36);
    while !rest.is_empty() {
        let entry = entry(&mut rest).ok_or_else(|| {
            Error::new(ErrorKind::Damaged, format_args!("tree {tree} is damaged: it cannot be parsed"))
        })?;
        if !is_valid_name(entry.name) {
            let name = crate::paths::path_text(entry.name);
            let message = format!("tree {tree} contains `{name}`, which is not allowed as a file name");
            return Err(Error::new(ErrorKind::Damaged, message));
        }
        if entries.last().is_some_and(|last| order(last, &entry) != Ordering::Less) {
            return Err(Error::new(
                ErrorKind::Damaged,
                format_args!("tree {tree} is damaged: its entries are not sorted"),
            ));
        }
        entries.push(entry);
    }
    Ok(entries)
}

/// Parses one entry; none if it is damaged.
fn entry<'a>(rest: &mut &'a [u8]) -> Option<TreeEntry<'a>> {
    let space = memchr::memchr(b' ', rest)?;
    let mode = Mode::from_octal(&rest[..space])?;
    let end = space + 1 + memchr::memchr(0, &rest[space + 1..])?;
    let name = &rest[space + 1..end];
    let id = ObjectId(rest.get(end + 1..end + 21)?.try_into().ok()?);
    *rest = &rest[end + 21..];
    Some(TreeEntry { mode, name, id })
}

/// Compares two entries in the order of tree objects: the name of a directory counts as if it ended with a slash.
pub(crate) fn order(one: &TreeEntry<'_>, other: &TreeEntry<'_>) -> Ordering {
    let end = |entry: &TreeEntry<'_>| (entry.mode == Mode::Directory).then_some(b'/');
    let common = one.name.len().min(other.name.len());
    one.name[..common].cmp(&other.name[..common]).then_with(|| {
        let one = one.name[common..].iter().copied().chain(end(one));
        one.cmp(other.name[common..].iter().copied().chain(end(other)))
    })
}

/// Sorts entries, and returns the bytes of their tree object.
pub(crate) fn encode(entries: &mut [TreeEntry<'_>]) -> Vec<u8> {
    entries.sort_unstable_by(order);
    let mut bytes = Vec::with_capacity(entries.iter().map(|entry| entry.name.len() + 28).sum());
    for entry in entries {
        bytes.extend_from_slice(entry.mode.octal().as_bytes());
        bytes.push(b' ');
        bytes.extend_from_slice(entry.name);
        bytes.push(0);
        bytes.extend_from_slice(&entry.id.0);
    }
    bytes
}

/// Returns true for a name that can be part of a tree, and be written to a directory without leaving it.
pub(crate) fn is_valid_name(name: &[u8]) -> bool {
    !name.is_empty()
        && name != b"."
        && name != b".."
        && !is_reserved_name(name)
        && memchr::memchr2(b'/', 0, name).is_none()
}

/// Returns true for `.git` and `.rath`, which are never part of a tree.
///
/// The comparison ignores case: on some file systems `.GIT` is the same directory as `.git`.
pub(crate) fn is_reserved_name(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b".git") || name.eq_ignore_ascii_case(b".rath")
}
