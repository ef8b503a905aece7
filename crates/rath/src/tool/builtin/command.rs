//! Running a command, and the output that the model reads.

use crate::error::ErrorKind;
use crate::sandbox::{self, Command, ExitStatus, Stream};
use crate::session::{Error, Result};
use crate::tool::{Output, ToolCx};

/// Runs a command, and reports to the listeners of the run what it prints.
pub(super) async fn run(cx: &ToolCx, command: &Command) -> Result<sandbox::Output> {
    if command.argv.iter().any(|argument| argument.contains('\0')) {
        return Err(Error::new(ErrorKind::Arguments, "a command cannot contain a NUL byte"));
    }
    // The bytes of stdout and stderr that are not reported yet.
    let mut unreported = [Vec::new(), Vec::new()];
    let mut sink = |stream: Stream, bytes: &[u8]| {
        let waiting = &mut unreported[usize::from(stream == Stream::Stderr)];
        waiting.extend_from_slice(bytes);
        // Only whole characters are reported.
        let whole = match std::str::from_utf8(waiting) {
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            _ => waiting.len(),
        };
        let text: Vec<_> = waiting.drain(..whole).collect();
        cx.output(String::from_utf8_lossy(&text));
    };
    Ok(cx.sandbox().await?.run_streaming(command, &mut sink).await?)
}

/// Returns the output for the model: stdout, then stderr. A command that failed is an error that begins with how it ended.
pub(super) fn to_output(ran: &sandbox::Output, command: &Command) -> Result<Output> {
    let printed = ran.text();
    let (kind, end) = match ran.status {
        ExitStatus::Exit(0) => return Ok(printed.into()),
        ExitStatus::Exit(code) => (ErrorKind::Tool, format!("exit code {code}")),
        ExitStatus::Signal(signal) => (ErrorKind::Tool, format!("killed by signal {signal}")),
        ExitStatus::TimedOut => (ErrorKind::Timeout, format!("killed after {} s", command.timeout.as_secs())),
        ExitStatus::TooMuchOutput => (ErrorKind::Tool, "killed because it printed too much".to_owned()),
    };
    Err(Error::new(kind, if printed.is_empty() { end } else { format!("{end}\n{printed}") }))
}
