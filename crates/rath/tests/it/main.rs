//! What a session promises.

mod budget;
mod file;
mod laws;
mod openrath;
mod provider;
mod real;
mod render;
mod script;
mod server;
mod session;
mod support;
mod wire;
