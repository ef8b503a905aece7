//! The promises of a session.

#[cfg(unix)]
mod apply_patch;
#[cfg(target_os = "linux")]
mod aside;
mod blocking;
mod budget;
#[cfg(unix)]
mod builtin;
#[cfg(unix)]
mod bundle;
#[cfg(target_os = "linux")]
mod canaries;
mod compile;
#[cfg(target_os = "linux")]
mod crash;
#[cfg(target_os = "linux")]
mod directories;
#[cfg(unix)]
mod escape;
mod file;
mod files;
mod flow;
#[cfg(target_os = "linux")]
mod forget;
mod gc;
#[cfg(target_os = "linux")]
mod hostile_answers;
#[cfg(unix)]
mod ignored;
mod interchange;
#[cfg(unix)]
mod large;
mod laws;
#[cfg(unix)]
mod links;
mod memory;
mod memory_vectors;
#[cfg(unix)]
mod old_arguments;
mod openrath;
#[cfg(unix)]
mod own_sandbox;
mod policy;
#[cfg(target_os = "linux")]
mod provenance;
mod provider;
mod real;
mod remote_sandbox;
mod render;
mod replay;
mod reservation;
mod running;
mod salvage;
mod script;
mod secrets;
mod server;
mod session;
mod shape;
#[cfg(target_os = "linux")]
mod shared_dirs;
mod spans;
mod store;
mod support;
mod tool;
#[cfg(target_os = "linux")]
mod unreadable;
mod wire;
