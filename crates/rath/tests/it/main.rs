//! What a session promises.

mod file;
mod session;
