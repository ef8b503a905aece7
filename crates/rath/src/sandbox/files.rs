//! What sandboxes say of files.

/// Which part of a file is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// From which byte.
    pub from: u64,
    /// At most how many.
    pub most: u64,
}

/// Something in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// How many bytes, for a file.
    pub bytes: u64,
}

/// What something in a directory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A file.
    File,
    /// A directory.
    Directory,
    /// A link, wherever it leads.
    Link,
    /// A pipe, a socket or a device.
    Other,
}
