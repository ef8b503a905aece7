//! One file a command.

pub(crate) mod cost;
pub(crate) mod demo;
pub(crate) mod export;
pub(crate) mod log;
pub(crate) mod render;
pub(crate) mod run;
pub(crate) mod show;
pub(crate) mod verify;
