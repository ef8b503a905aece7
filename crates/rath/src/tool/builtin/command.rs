//! Running a command, and what the model reads of it.

use crate::error::ErrorKind;
use crate::sandbox::{Command, Ended, Ran, Stream};
use crate::session::{Error, Result};
use crate::tool::{Output, ToolCx};

/// Runs a command, and tells whoever listens what it prints.
pub(super) async fn run(cx: &ToolCx, command: &Command) -> Result<Ran> {
    if command.argv.iter().any(|argument| argument.contains('\0')) {
        return Err(Error::new(ErrorKind::Arguments, "no command holds a NUL"));
    }
    let mut heard = [Vec::new(), Vec::new()];
    let mut sink = |stream: Stream, bytes: &[u8]| {
        let waiting = &mut heard[usize::from(stream == Stream::Err)];
        waiting.extend_from_slice(bytes);
        // Whoever listens is told whole characters.
        let whole = match std::str::from_utf8(waiting) {
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            _ => waiting.len(),
        };
        let told: Vec<_> = waiting.drain(..whole).collect();
        cx.output(String::from_utf8_lossy(&told));
    };
    Ok(cx.sandbox()?.run(command, &mut sink).await?)
}

/// What the model reads: what was printed, then what was printed as errors, and how it ended where that is not well.
pub(super) fn said(ran: &Ran, command: &Command) -> Result<Output> {
    let said = ran.text();
    let (kind, ended) = match ran.ended {
        Ended::Exit(0) => return Ok(said.into()),
        Ended::Exit(code) => (ErrorKind::Tool, format!("exit code {code}")),
        Ended::Signal(signal) => (ErrorKind::Tool, format!("killed by signal {signal}")),
        Ended::TimedOut => (ErrorKind::Timeout, format!("it was ended after {} s", command.time.as_secs())),
        Ended::TooMuchOutput => (ErrorKind::Tool, "it was ended, since it printed too much".to_owned()),
    };
    Err(Error::new(kind, if said.is_empty() { ended } else { format!("{ended}\n{said}") }))
}
