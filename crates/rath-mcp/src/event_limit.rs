//! The bound on the size of one event of a stream.

use std::io;

/// Counts the bytes since the last end of an event.
pub(crate) struct EventLimit {
    max_bytes: usize,
    bytes: usize,
    /// True if the last line was empty so far. Ends of lines are `\n`, `\r` or both.
    is_line_empty: bool,
    last: u8,
}

impl EventLimit {
    pub(crate) fn new(max_bytes: usize) -> Self {
        EventLimit { max_bytes, bytes: 0, is_line_empty: true, last: b'\n' }
    }

    /// Counts the bytes of a piece. Fails if an event is too large.
    pub(crate) fn add(&mut self, piece: &[u8]) -> io::Result<()> {
        for byte in piece {
            self.bytes += 1;
            match byte {
                b'\n' if self.last == b'\r' => {}
                b'\n' | b'\r' => {
                    if self.is_line_empty {
                        self.bytes = 0;
                    }
                    self.is_line_empty = true;
                }
                _ => self.is_line_empty = false,
            }
            self.last = *byte;
            if self.bytes > self.max_bytes {
                return Err(io::Error::other(format!("a message of more than {} bytes", self.max_bytes)));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_event_is_bounded_and_their_number_is_not() {
        let rows: [(&[&str], bool); 6] = [
            (&["data: 1\n\n", "data: 2\n\n", "data: 3\n\n"], true),
            (&["data: 1\r\n\r\n", "data: 2\r\n\r", "\ndata: 3\r\n\r\n"], true),
            (&["data: 1\r\rdata: 2\r\r"], true),
            (&["data: 1\n", "data: 2\n", "data: 3\n"], false),
            (&["data: 0123456789"], false),
            (&["data", ": 0", "123", "456", "789"], false),
        ];
        for (pieces, fits) in rows {
            let mut limit = EventLimit::new(12);
            assert_eq!(pieces.iter().all(|piece| limit.add(piece.as_bytes()).is_ok()), fits, "{pieces:?}");
        }
    }
}
