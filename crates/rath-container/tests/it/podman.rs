//! Containers of podman. These tests need its socket, so they are ignored, and run by `.ci/run`.

mod conformance;
mod kill;
mod sessions;
mod support;
mod walls;
