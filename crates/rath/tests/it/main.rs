//! What a session promises.

mod file;
mod openrath;
mod session;
