//! The tool that reads a file, or some of its lines.

use rath_record::chunk::ToolSpec;
use serde_json::{Value, json};

use super::nearest_paths::or_nearest_paths;
use super::{PATH_DESCRIPTION, file_error, spec, text};
use crate::sandbox::{ByteRange, Sandbox};
use crate::session::Result;
use crate::tool::{Nature, Output, Tool, ToolCx, Touch};

/// Reads a file.
///
/// Part of [`read_only`](super::read_only).
#[derive(Clone, Copy, Debug)]
pub struct ReadFile;

/// The number of bytes that are returned at once.
const MAX_TEXT_BYTES: usize = 1024 * 1024;
/// The number of bytes that are read at a time to find lines.
const READ_BYTES: u64 = 256 * 1024;
/// The number of bytes in which the lines that were asked for are looked for.
const MAX_SEARCHED_BYTES: u64 = 256 * 1024 * 1024;
/// The number of bytes in which further lines are counted once those are found.
const MAX_COUNTED_BYTES: u64 = 64 * 1024 * 1024;

impl Tool for ReadFile {
    fn spec(&self) -> ToolSpec {
        let properties = json!({
            "path": {"type": "string", "description": PATH_DESCRIPTION},
            "offset": {"type": "integer", "minimum": 1, "description": "The number of the first line to read; 1 if left out."},
            "limit": {"type": "integer", "minimum": 1, "description": "How many lines to read; all that follow if left out."},
        });
        let description = "Reads a text file as it is, without line numbers. Where it is only a part, the first line says \
                           which: `[lines 3 to 5 of 10]`. Files of more than 1 MiB are read in parts.";
        spec("read_file", description, properties, &["path"])
    }

    fn is_builtin(&self) -> bool {
        true
    }

    fn nature(&self, _: &Value) -> Nature {
        Nature::ReadOnly
    }

    fn touches(&self, arguments: &Value) -> Vec<Touch> {
        vec![Touch::read(text(arguments, "path"))]
    }

    async fn call(&self, cx: &ToolCx, arguments: Value) -> Result<Output> {
        let (sandbox, path) = (cx.sandbox().await?, text(&arguments, "path"));
        let text = match (arguments["offset"].as_u64(), arguments["limit"].as_u64()) {
            (None, None) => read_whole(&sandbox, path).await,
            (from, lines) => {
                let from = from.unwrap_or(1);
                let selection = LineSelection::new(from, from.saturating_add(lines.unwrap_or(u64::MAX)));
                read_lines(&sandbox, path, selection).await
            }
        };
        Ok(or_nearest_paths(&sandbox, path, text).await?.into())
    }
}

async fn read_lines(sandbox: &Sandbox, path: &str, mut selection: LineSelection) -> Result<String> {
    let mut at = 0;
    while !selection.is_enough(at) {
        let chunk = sandbox.read(path, ByteRange { offset: at, max_len: READ_BYTES }).await?;
        if chunk.is_empty() {
            selection.counted = true;
            break;
        }
        at += chunk.len() as u64;
        selection.add(&chunk);
        // The call can be cancelled between two reads of a long file.
        tokio::task::yield_now().await;
    }
    selection.into_text().map_err(|why| file_error("read", path, why))
}

async fn read_whole(sandbox: &Sandbox, path: &str) -> Result<String> {
    let bytes = sandbox.read(path, ByteRange { offset: 0, max_len: MAX_TEXT_BYTES as u64 + 1 }).await?;
    if bytes.len() > MAX_TEXT_BYTES {
        let bytes = sandbox.stat(path).await?.map_or(bytes.len() as u64, |entry| entry.bytes);
        let why =
            format!("it has {bytes} bytes, and at most {MAX_TEXT_BYTES} are read at once; give `offset` and `limit`");
        return Err(file_error("read", path, why));
    }
    String::from_utf8(bytes).map_err(|_| file_error("read", path, NOT_TEXT))
}

const NOT_TEXT: &str = "it is not UTF-8 text";

/// The lines of a file that were asked for, and the position up to which the file was read.
struct LineSelection {
    from: u64,
    /// The first line after those that were asked for.
    until: u64,
    text: Vec<u8>,
    /// True if the lines do not fit into `text`.
    cut: bool,
    /// The number of complete lines.
    ended: u64,
    /// True if an incomplete line follows them.
    begun: bool,
    /// True if the whole file was read.
    counted: bool,
}

impl LineSelection {
    fn new(from: u64, until: u64) -> Self {
        LineSelection { from, until, text: Vec::new(), cut: false, ended: 0, begun: false, counted: false }
    }

    fn is_enough(&self, read: u64) -> bool {
        read > MAX_SEARCHED_BYTES || read > MAX_COUNTED_BYTES && (self.cut || self.ended + 1 >= self.until)
    }

    fn add(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let end = memchr::memchr(b'\n', rest).map_or(rest.len(), |end| end + 1);
            let (line, after) = rest.split_at(end);
            if (self.from..self.until).contains(&(self.ended + 1)) && !self.cut {
                let room = MAX_TEXT_BYTES - self.text.len();
                self.cut = line.len() > room;
                self.text.extend_from_slice(&line[..line.len().min(room)]);
            }
            self.begun = !line.ends_with(b"\n");
            self.ended += u64::from(!self.begun);
            rest = after;
        }
    }

    /// Returns the text for the model, or the reason why there is none.
    fn into_text(mut self) -> Result<String, String> {
        let all = self.ended + u64::from(self.begun);
        if self.from > all && (self.from, all) != (1, 0) {
            let lines = if all == 1 { "1 line".to_owned() } else { format!("{all} lines") };
            let within = if self.counted { String::new() } else { format!(" in its first {MAX_SEARCHED_BYTES} bytes") };
            return Err(format!("it has {lines}{within}, and no line {}", self.from));
        }
        let mut to = self.until.saturating_sub(1).min(all);
        let mut note = "";
        if self.cut {
            note = ", as many as are read at once";
            match memchr::memrchr(b'\n', &self.text) {
                Some(end) => {
                    self.text.truncate(end + 1);
                    to = self.from + memchr::memchr_iter(b'\n', &self.text).count() as u64 - 1;
                }
                None => {
                    to = self.from;
                    note = ", its beginning: the line is longer than what is read at once";
                    let whole = std::str::from_utf8(&self.text).map_or_else(|error| error.valid_up_to(), str::len);
                    // An incomplete character at the end is left out. Other invalid bytes mean that the file is not text.
                    self.text.truncate(if self.text.len() - whole < 4 { whole } else { self.text.len() });
                }
            }
        }
        let text = String::from_utf8(self.text).map_err(|_| NOT_TEXT.to_owned())?;
        if self.counted && !self.cut && self.from == 1 && to == all {
            return Ok(text);
        }
        let which = if self.from == to { format!("line {to}") } else { format!("lines {} to {to}", self.from) };
        let of = if self.counted { all.to_string() } else { format!("more than {}", self.ended) };
        Ok(format!("[{which} of {of}{note}]\n{text}"))
    }
}
