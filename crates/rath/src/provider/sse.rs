//! A parser for server-sent events.

/// Parses a stream of server-sent events from chunks of bytes that are split anywhere.
///
/// Lines end in LF, CRLF or CR; comments and all fields but `data` are skipped. The data of an event is returned once the
/// blank line after it has arrived.
#[derive(Default)]
pub(crate) struct SseParser {
    /// The beginning of an incomplete line.
    line: Vec<u8>,
    /// The data of an incomplete event.
    data: Vec<u8>,
    /// True within an event, whose data may be empty.
    in_event: bool,
    /// True if the last byte was a CR, whose LF may follow.
    after_cr: bool,
    /// True once the first line was read, which may begin with a byte order mark.
    begun: bool,
}

impl SseParser {
    /// Parses more bytes, and passes the data of every complete event to `each`.
    pub(crate) fn feed<E>(&mut self, mut bytes: &[u8], mut each: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        // The last data line, while it is the only one of its event: most are, and need not be copied.
        let mut only_line: Option<&[u8]> = None;
        if self.after_cr && !bytes.is_empty() {
            self.after_cr = false;
            bytes = bytes.strip_prefix(b"\n").unwrap_or(bytes);
        }
        while let Some(end) = memchr::memchr2(b'\n', b'\r', bytes) {
            let (line, rest) = (&bytes[..end], &bytes[end + 1..]);
            self.after_cr = bytes[end] == b'\r' && rest.is_empty();
            bytes = if bytes[end] == b'\r' { rest.strip_prefix(b"\n").unwrap_or(rest) } else { rest };
            if !self.line.is_empty() {
                self.line.extend_from_slice(line);
                let line = std::mem::take(&mut self.line);
                self.push_data(only_line.take());
                self.parse_line(&line, &mut each)?;
                self.line = line;
                self.line.clear();
                continue;
            }
            match self.classify(line) {
                SseLine::Blank => match only_line.take() {
                    Some(data) => each(data)?,
                    None => self.dispatch(&mut each)?,
                },
                SseLine::Data(data) if only_line.is_none() && !self.in_event => only_line = Some(data),
                SseLine::Data(data) => {
                    self.push_data(only_line.take());
                    self.push_data(Some(data));
                }
                SseLine::Other => {}
            }
        }
        self.push_data(only_line);
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    /// Returns the data of the last event if the stream ended before its blank line.
    pub(crate) fn finish(&mut self) -> Vec<u8> {
        let line = std::mem::take(&mut self.line);
        if let SseLine::Data(data) = self.classify(&line) {
            self.push_data(Some(data));
        }
        std::mem::take(&mut self.data)
    }

    fn parse_line<E>(&mut self, line: &[u8], each: &mut impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        match self.classify(line) {
            SseLine::Blank => self.dispatch(each)?,
            SseLine::Data(data) => self.push_data(Some(data)),
            SseLine::Other => {}
        }
        Ok(())
    }

    fn dispatch<E>(&mut self, each: &mut impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        if self.in_event {
            self.in_event = false;
            each(&self.data)?;
            self.data.clear();
        }
        Ok(())
    }

    fn push_data(&mut self, data: Option<&[u8]>) {
        if let Some(data) = data {
            if self.in_event {
                self.data.push(b'\n');
            }
            self.in_event = true;
            self.data.extend_from_slice(data);
        }
    }

    fn classify<'a>(&mut self, mut line: &'a [u8]) -> SseLine<'a> {
        if !self.begun {
            self.begun = true;
            line = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line);
        }
        match line {
            [] => SseLine::Blank,
            [b'd', b'a', b't', b'a', b':', b' ', data @ ..] | [b'd', b'a', b't', b'a', b':', data @ ..] => {
                SseLine::Data(data)
            }
            _ => SseLine::Other,
        }
    }
}

enum SseLine<'a> {
    Blank,
    Data(&'a [u8]),
    Other,
}
