//! Lines that a person types, on systems other than Unix.

use std::io::BufRead;

/// Keeps what was typed before a question was asked: this system has no call to drop it.
pub(super) fn discard_typed() {}

/// Waits for a line; none at the end of input.
pub(super) fn read_line() -> Option<String> {
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).is_ok_and(|bytes| bytes > 0).then_some(line)
}
