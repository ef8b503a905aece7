//! One file a command.

pub(crate) mod export;
pub(crate) mod log;
pub(crate) mod show;
pub(crate) mod verify;
