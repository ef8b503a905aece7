//! Reading a file, or some of its lines.

use rath_record::chunk::ToolSpec;
use serde_json::{Value, json};

use super::{PATH, cannot, spec, text};
use crate::sandbox::{Part, Sandbox};
use crate::session::Result;
use crate::tool::{Nature, Output, Tool, ToolCx, Touch};

/// Reads a file.
#[derive(Clone, Copy, Debug)]
pub struct ReadFile;

/// How much is taken in of a file.
const BYTES_MOST: usize = 1024 * 1024;
/// How much of a file is read at a time to find lines in it.
const CHUNK: u64 = 256 * 1024;
/// How far lines are looked for, and how far they are counted once they are found.
const SOUGHT_MOST: u64 = 256 * 1024 * 1024;
const COUNTED_MOST: u64 = 64 * 1024 * 1024;

impl Tool for ReadFile {
    fn spec(&self) -> ToolSpec {
        let properties = json!({
            "path": {"type": "string", "description": PATH},
            "from_line": {"type": "integer", "minimum": 1, "description": "The first line to read; 1 if left out."},
            "lines": {"type": "integer", "minimum": 1, "description": "How many lines to read; all that follow if left out."},
        });
        let description = "Reads a text file as it is, without line numbers. Where it is only a part, the first line says \
                           which: `[lines 3 to 5 of 10]`. Files of more than 1 MiB are read in parts.";
        spec("read_file", description, properties, &["path"])
    }

    fn nature(&self, _: &Value) -> Nature {
        Nature::ReadOnly
    }

    fn touches(&self, arguments: &Value) -> Vec<Touch> {
        vec![Touch::read(text(arguments, "path"))]
    }

    async fn call(&self, cx: &ToolCx, arguments: Value) -> Result<Output> {
        let (sandbox, path) = (cx.sandbox()?, text(&arguments, "path"));
        let (from, lines) = (arguments["from_line"].as_u64(), arguments["lines"].as_u64());
        let said = match (from, lines) {
            (None, None) => whole(&sandbox, path).await?,
            _ => {
                let from = from.unwrap_or(1);
                let mut picked = Picked::new(from, from.saturating_add(lines.unwrap_or(u64::MAX)));
                let mut at = 0;
                while !picked.is_enough(at) {
                    let chunk = sandbox.read(path, Part { from: at, most: CHUNK }).await?;
                    if chunk.is_empty() {
                        picked.counted = true;
                        break;
                    }
                    at += chunk.len() as u64;
                    picked.add(&chunk);
                    // A file may be long, and the call may be cancelled.
                    tokio::task::yield_now().await;
                }
                picked.said().map_err(|why| cannot("read", path, why))?
            }
        };
        Ok(said.into())
    }
}

async fn whole(sandbox: &Sandbox, path: &str) -> Result<String> {
    let bytes = sandbox.read(path, Part { from: 0, most: BYTES_MOST as u64 + 1 }).await?;
    if bytes.len() > BYTES_MOST {
        let bytes = sandbox.look(path).await?.map_or(bytes.len() as u64, |entry| entry.bytes);
        let why =
            format!("it has {bytes} bytes, and at most {BYTES_MOST} are read at once; give `from_line` and `lines`");
        return Err(cannot("read", path, why));
    }
    String::from_utf8(bytes).map_err(|_| cannot("read", path, NO_TEXT))
}

const NO_TEXT: &str = "it is not UTF-8 text";

/// The lines of a file that were asked for, as far as the file is known.
struct Picked {
    from: u64,
    /// The first line after them.
    until: u64,
    text: Vec<u8>,
    /// Whether there was more of them than is taken in.
    cut: bool,
    /// How many lines have ended, and whether another has begun.
    ended: u64,
    begun: bool,
    /// Whether that is all of the file.
    counted: bool,
}

impl Picked {
    fn new(from: u64, until: u64) -> Self {
        Picked { from, until, text: Vec::new(), cut: false, ended: 0, begun: false, counted: false }
    }

    fn is_enough(&self, read: u64) -> bool {
        read > SOUGHT_MOST || read > COUNTED_MOST && (self.cut || self.ended + 1 >= self.until)
    }

    fn add(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let end = memchr::memchr(b'\n', rest).map_or(rest.len(), |end| end + 1);
            let (line, after) = rest.split_at(end);
            if (self.from..self.until).contains(&(self.ended + 1)) && !self.cut {
                let room = BYTES_MOST - self.text.len();
                self.cut = line.len() > room;
                self.text.extend_from_slice(&line[..line.len().min(room)]);
            }
            self.begun = !line.ends_with(b"\n");
            self.ended += u64::from(!self.begun);
            rest = after;
        }
    }

    /// What the model reads, or what is wrong.
    fn said(mut self) -> Result<String, String> {
        let all = self.ended + u64::from(self.begun);
        if self.from > all && (self.from, all) != (1, 0) {
            let lines = if all == 1 { "1 line".to_owned() } else { format!("{all} lines") };
            let within = if self.counted { String::new() } else { format!(" in its first {SOUGHT_MOST} bytes") };
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
                    // A character that is cut is left out; what is no character is no text.
                    self.text.truncate(if self.text.len() - whole < 4 { whole } else { self.text.len() });
                }
            }
        }
        let text = String::from_utf8(self.text).map_err(|_| NO_TEXT.to_owned())?;
        if self.counted && !self.cut && self.from == 1 && to == all {
            return Ok(text);
        }
        let which = if self.from == to { format!("line {to}") } else { format!("lines {} to {to}", self.from) };
        let of = if self.counted { all.to_string() } else { format!("more than {}", self.ended) };
        Ok(format!("[{which} of {of}{note}]\n{text}"))
    }
}
