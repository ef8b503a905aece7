//! What a session promises.

mod file;
mod laws;
mod openrath;
mod session;
