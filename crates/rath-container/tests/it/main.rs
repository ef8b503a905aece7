//! Containers: with podman, and with engines that do not answer as they should.

#![cfg(target_os = "linux")]

mod engine;
mod podman;
