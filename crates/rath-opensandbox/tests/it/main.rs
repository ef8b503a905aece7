//! Sandboxes on a server that stands in for OpenSandbox, and on a real one.

#![cfg(unix)]

mod conformance;
mod lifecycle;
mod once;
mod real;
mod session;
mod support;
