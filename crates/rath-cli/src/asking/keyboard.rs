//! Lines that a person types, on Unix.

use rustix::stdio::stdin;
use rustix::termios::{QueueSelector, tcflush};

/// The longest line that is read. A terminal hands over no longer one.
const MAX_LINE_BYTES: usize = 4096;

/// Drops what was typed before a question was asked: it is no answer to it.
pub(super) fn discard_typed() {
    let _ = tcflush(stdin(), QueueSelector::IFlush);
}

/// Waits for a line; none at the end of input.
pub(super) fn read_line() -> Option<String> {
    let mut line = vec![0; MAX_LINE_BYTES];
    // A terminal hands over one line at a time, and nothing is kept in a buffer of this program.
    let read = rustix::io::retry_on_intr(|| rustix::io::read(stdin(), &mut line)).ok().filter(|read| *read > 0)?;
    line.truncate(read);
    Some(String::from_utf8_lossy(&line).into_owned())
}
