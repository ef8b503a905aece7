//! Substitutes for the calls of Unix on a terminal.

use std::io;
use std::time::Duration;

pub(super) fn keep_line_breaks() {}

pub(super) fn stop() -> io::Result<()> {
    Ok(())
}

pub(super) fn wait_for_keys(most: Duration) -> io::Result<bool> {
    crossterm::event::poll(most)
}

pub(super) fn announce_keys() -> io::Result<()> {
    Ok(())
}
