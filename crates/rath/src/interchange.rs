//! Sessions from others, and for others.
//!
//! [`openrath`] reads and writes the session files of the Python OpenRath, [`atif`] the trajectories that many agents and
//! benchmarks exchange. What comes in is a [`Session`] that goes on like any other: calls and their results are paired,
//! and a call without a result stays open. What goes out is read by the programs of others with their own code.
//!
//! Neither format has a place for everything that a session holds. Where it lets a writer add members of its own, what is
//! left stands under the name `rath`, which other readers pass over, so that a session comes back as it left. What is lost
//! all the same is told, here and on the way in: nothing is dropped silently.
//!
//! ```
//! use rath::interchange::openrath;
//! use rath::prelude::*;
//!
//! let mut session = Session::user("hello");
//! session.push(Chunk::assistant("hi"));
//! let exported = openrath::write(&session);
//! assert!(exported.notes.is_empty());
//!
//! let imported = openrath::read(&exported.bytes)?;
//! assert_eq!(imported.session.text(), Some("hi"));
//! assert_eq!(imported.session.id(), session.id());
//! # Ok::<(), Error>(())
//! ```

pub mod atif;
mod beside;
mod members;
pub mod openrath;
mod rebuild;
mod time;

use crate::session::Session;

/// A session that others wrote, and what it is like.
#[derive(Debug)]
pub struct Imported {
    /// The session, as far as it could be read.
    pub session: Session,
    /// What is missing, damaged, or not carried over, one line each, for a person to read.
    pub notes: Vec<String>,
    /// Whether it is marked as ended. One that is not was left off by its writer, and may lack what came last.
    pub closed: bool,
}

/// A session as others read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exported {
    /// The file.
    pub bytes: Vec<u8>,
    /// What is not in it, one line each, for a person to read.
    pub notes: Vec<String>,
}
