//! The filter that keeps secrets out of everything that people read.

use std::io::{self, Write};

use rath::Secrets;
use rath::secrets::SecretStream;

/// A writer that hides secrets in a text.
pub(crate) struct HidingWriter<W> {
    out: W,
    stream: SecretStream,
    /// The beginning of a character, until more is written.
    pending: Vec<u8>,
}

impl<W: Write> HidingWriter<W> {
    pub(crate) fn new(out: W, secrets: &Secrets) -> Self {
        HidingWriter { out, stream: secrets.stream(), pending: Vec::new() }
    }

    /// Writes all that was held back, and returns the writer behind this one.
    pub(crate) fn finish(mut self) -> io::Result<W> {
        let rest = self.stream.finish();
        self.out.write_all(rest.as_bytes())?;
        self.out.write_all(&self.pending)?;
        Ok(self.out)
    }
}

impl<W: Write> Write for HidingWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.pending.extend_from_slice(bytes);
        let pending = std::mem::take(&mut self.pending);
        let mut rest = &pending[..];
        while !rest.is_empty() {
            let (text, error) = match std::str::from_utf8(rest) {
                Ok(text) => (text, None),
                Err(error) => (std::str::from_utf8(&rest[..error.valid_up_to()]).unwrap_or_default(), Some(error)),
            };
            let shown = self.stream.push(text);
            self.out.write_all(shown.as_bytes())?;
            rest = &rest[text.len()..];
            match error.map(|error| error.error_len()) {
                None => {}
                // The character is completed by the next bytes.
                Some(None) => {
                    self.pending = rest.to_vec();
                    break;
                }
                Some(Some(length)) => {
                    let held = self.stream.finish();
                    self.out.write_all(held.as_bytes())?;
                    self.out.write_all(&rest[..length])?;
                    rest = &rest[length..];
                }
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
