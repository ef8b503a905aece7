//! The width of the terminal, on Unix.

use std::os::fd::AsFd;

use rustix::termios::tcgetwinsize;

/// Returns the number of columns of the terminal that `output` goes to; none if it is no terminal, or does not tell.
pub(super) fn of_terminal(output: impl AsFd) -> Option<usize> {
    let size = tcgetwinsize(output).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}
