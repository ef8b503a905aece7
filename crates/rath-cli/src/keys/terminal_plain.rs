//! Reading a line where the terminal cannot be told not to show it.

use std::io;

/// Fails: what is typed would be shown.
pub(super) fn read_hidden(_: impl FnOnce()) -> io::Result<Option<String>> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "this terminal would show it"))
}
