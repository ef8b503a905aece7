//! Splitting a stream of bytes into server-sent events.

/// Finds the data of each event, however the bytes are split on their way.
///
/// Lines end in LF, CRLF or CR; comments and all fields but `data` are passed over. The data of an event is handed on
/// once the blank line after it has come.
#[derive(Default)]
pub(crate) struct Events {
    /// The beginning of a line whose end has not come.
    line: Vec<u8>,
    /// The data of an event whose end has not come.
    data: Vec<u8>,
    /// Whether there is such an event: its data may be empty.
    open: bool,
    /// Whether the last byte was a CR, whose LF may follow.
    cr: bool,
    /// Whether anything has come: a byte order mark may stand first.
    begun: bool,
}

impl Events {
    /// Takes in more bytes, and hands on the data of every event that is whole.
    pub(crate) fn feed<E>(&mut self, mut bytes: &[u8], mut each: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        // The data line that came last, while it is the only one of its event: most are, and need not be copied.
        let mut only: Option<&[u8]> = None;
        if self.cr && !bytes.is_empty() {
            self.cr = false;
            bytes = bytes.strip_prefix(b"\n").unwrap_or(bytes);
        }
        while let Some(end) = memchr::memchr2(b'\n', b'\r', bytes) {
            let (line, rest) = (&bytes[..end], &bytes[end + 1..]);
            self.cr = bytes[end] == b'\r' && rest.is_empty();
            bytes = if bytes[end] == b'\r' { rest.strip_prefix(b"\n").unwrap_or(rest) } else { rest };
            if !self.line.is_empty() {
                self.line.extend_from_slice(line);
                let line = std::mem::take(&mut self.line);
                self.keep(only.take());
                self.take(&line, &mut each)?;
                self.line = line;
                self.line.clear();
                continue;
            }
            match self.field(line) {
                Line::Blank => match only.take() {
                    Some(data) => each(data)?,
                    None => self.dispatch(&mut each)?,
                },
                Line::Data(data) if only.is_none() && !self.open => only = Some(data),
                Line::Data(data) => {
                    self.keep(only.take());
                    self.keep(Some(data));
                }
                Line::Other => {}
            }
        }
        self.keep(only);
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    /// What is left when no more comes: the data of an event that lacks its end.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        let line = std::mem::take(&mut self.line);
        if let Line::Data(data) = self.field(&line) {
            self.keep(Some(data));
        }
        std::mem::take(&mut self.data)
    }

    fn take<E>(&mut self, line: &[u8], each: &mut impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        match self.field(line) {
            Line::Blank => self.dispatch(each)?,
            Line::Data(data) => self.keep(Some(data)),
            Line::Other => {}
        }
        Ok(())
    }

    fn dispatch<E>(&mut self, each: &mut impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        if self.open {
            self.open = false;
            each(&self.data)?;
            self.data.clear();
        }
        Ok(())
    }

    fn keep(&mut self, data: Option<&[u8]>) {
        if let Some(data) = data {
            if self.open {
                self.data.push(b'\n');
            }
            self.open = true;
            self.data.extend_from_slice(data);
        }
    }

    fn field<'a>(&mut self, mut line: &'a [u8]) -> Line<'a> {
        if !self.begun {
            self.begun = true;
            line = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line);
        }
        match line {
            [] => Line::Blank,
            [b'd', b'a', b't', b'a', b':', b' ', data @ ..] | [b'd', b'a', b't', b'a', b':', data @ ..] => {
                Line::Data(data)
            }
            _ => Line::Other,
        }
    }
}

enum Line<'a> {
    Blank,
    Data(&'a [u8]),
    Other,
}
