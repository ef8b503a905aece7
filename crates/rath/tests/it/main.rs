//! What a session promises.

mod budget;
mod compile;
mod file;
mod flow;
mod laws;
mod openrath;
mod provider;
mod real;
mod render;
mod running;
mod salvage;
mod script;
mod server;
mod session;
mod store;
mod support;
mod tool;
mod wire;
