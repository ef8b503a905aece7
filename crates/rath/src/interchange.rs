//! Sessions in the file formats of other programs.
//!
//! [`openrath`] reads and writes the session files of the Python OpenRath, [`atif`] the trajectories that many agents and
//! benchmarks exchange. An imported session is a guest, as every session that others made: once it is
//! [adopted](Session::adopt) it can be run. Calls and their results are paired, and a call without a result stays open. Exported files are read by other programs with their own code.
//!
//! Neither format has a place for everything that a session holds. Where a format lets a writer add members of its own, the
//! rest is written under the name `rath`, which other readers ignore, so that a session is read back as it was written.
//! Nothing is dropped silently: the notes of [`Import`] and [`Export`] list everything that is lost.
//!
//! ```
//! use rath::interchange::openrath;
//! use rath::prelude::*;
//!
//! let mut session = Session::user("hello");
//! session.push(Chunk::assistant("hi"));
//! let export = openrath::write(&session);
//! assert!(export.notes.is_empty());
//!
//! let import = openrath::read(&export.bytes)?;
//! assert_eq!(import.session.text(), Some("hi"));
//! assert_eq!(import.session.id(), session.id());
//! # Ok::<(), Error>(())
//! ```

pub mod atif;
mod builder;
mod extras;
mod notes;
mod object;
pub mod openrath;
mod time;

use crate::session::Session;

pub use notes::{Note, NoteCode};
pub use time::parse as parse_time;

/// A session read from a file of another program.
///
/// Returned by [`openrath::read`] and [`atif::read`].
#[derive(Debug)]
pub struct Import {
    /// The session, as far as it could be read.
    pub session: Session,
    /// Everything that is missing, damaged, changed or not imported.
    pub notes: Vec<Note>,
    /// True if the file is marked as complete.
    ///
    /// The writer of an unmarked file stopped early, and the last steps may be missing.
    pub closed: bool,
}

/// A session as a file of another program.
///
/// Returned by [`openrath::write`](fn@openrath::write) and [`atif::write`](fn@atif::write).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// The contents of the file.
    pub bytes: Vec<u8>,
    /// Everything that other programs do not find in the file, or find in another form.
    pub notes: Vec<Note>,
}
