//! The stream that a command or code in a sandbox answers with: frames of JSON, and what they say about its output and its end.

use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rath_sandbox::{ExitStatus, Stream};
use serde::Deserialize;
use serde_json::{Map, Value};

/// The most bytes of one frame.
const MAX_FRAME_BYTES: usize = 4 << 20;

/// The most bytes of frames that say nothing about a command.
const MAX_UNUSED_BYTES: usize = 16 << 20;

/// A frame.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Frame {
    /// The execution has begun, under this id.
    Init(String),
    /// A line of output, without its end.
    Output(Stream, String),
    /// A value, by media type.
    Value(Map<String, Value>),
    /// The execution has ended well.
    Complete,
    /// The execution has ended with an error.
    Failed(Failure),
    /// A frame of another kind, such as a ping.
    Other,
}

/// The error at the end of an execution.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub(crate) struct Failure {
    #[serde(default, rename = "ename")]
    pub(crate) name: String,
    /// The exit status of a command, as a number.
    #[serde(default, rename = "evalue")]
    pub(crate) value: String,
    #[serde(default)]
    pub(crate) traceback: Vec<String>,
}

#[derive(Deserialize)]
struct WireFrame {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    results: Option<Map<String, Value>>,
    #[serde(default)]
    error: Option<Failure>,
}

/// A stream that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameError(pub(crate) &'static str);

/// Splits a stream into frames: each is a line of JSON, with or without `data:` before it, and empty lines are between them.
#[derive(Default)]
pub(crate) struct FrameSplitter {
    line: Vec<u8>,
}

impl FrameSplitter {
    /// Adds bytes, and returns the frames that are complete.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<Vec<Frame>, FrameError> {
        let mut frames = Vec::new();
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(piece);
            if self.line.len() > MAX_FRAME_BYTES {
                return Err(FrameError("a frame is too long"));
            }
            if piece.ends_with(b"\n") {
                frames.extend(parse(&std::mem::take(&mut self.line))?);
            }
        }
        Ok(frames)
    }

    /// Returns the last frame, at the end of the stream. One that was cut is none.
    pub(crate) fn finish(self) -> Option<Frame> {
        parse(&self.line).ok().flatten()
    }
}

/// Parses a line; none for one without a frame.
fn parse(line: &[u8]) -> Result<Option<Frame>, FrameError> {
    let line = line.trim_ascii();
    let line = line.strip_prefix(b"data:").unwrap_or(line).trim_ascii_start();
    let is_field = [&b":"[..], b"event:", b"id:", b"retry:"].iter().any(|field| line.starts_with(field));
    if line.is_empty() || is_field {
        return Ok(None);
    }
    let frame: WireFrame = serde_json::from_slice(line).map_err(|_| FrameError("a frame is no JSON"))?;
    let text = frame.text.unwrap_or_default();
    Ok(Some(match frame.kind.as_str() {
        "init" => Frame::Init(text),
        "stdout" => Frame::Output(Stream::Stdout, text),
        "stderr" => Frame::Output(Stream::Stderr, text),
        "result" => Frame::Value(frame.results.unwrap_or_default()),
        "execution_complete" => Frame::Complete,
        "error" => Frame::Failed(frame.error.unwrap_or_default()),
        _ => Frame::Other,
    }))
}

/// The meaning of a frame for a command that `job.sh` runs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum JobEvent {
    Output(Stream, Vec<u8>),
    /// The command has ended, and all of its output was there.
    Ended(ExitStatus),
    /// The command was not started.
    Refused(Refusal),
    /// The script that runs the command has ended before the command did, or could not be started.
    Lost(Failure),
    /// A frame without a meaning.
    None,
}

/// The reason why a command was not started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    NoWorkspace,
    NoDirectory,
    Outside,
    MissingProgram,
    Denied,
    NotAProgram,
    NoPipes,
}

/// The frames of a command that `job.sh` runs, so far.
pub(crate) struct JobFrames {
    /// The mark before each line.
    job: String,
    end: Option<JobEvent>,
    unused_bytes: usize,
}

impl JobFrames {
    pub(crate) fn new(job: &str) -> Self {
        JobFrames { job: job.to_owned(), end: None, unused_bytes: 0 }
    }

    /// Returns the meaning of the next frame.
    pub(crate) fn next(&mut self, frame: Frame) -> Result<JobEvent, FrameError> {
        match frame {
            Frame::Output(_, line) => match line.strip_prefix(&self.job) {
                Some(line) => self.line(line),
                None => self.unused(line.len()),
            },
            Frame::Complete => Ok(self.end.take().unwrap_or_else(|| JobEvent::Lost(Failure::default()))),
            Frame::Failed(failure) => Ok(self.end.take().unwrap_or(JobEvent::Lost(failure))),
            Frame::Init(_) | Frame::Value(_) | Frame::Other => self.unused(64),
        }
    }

    fn line(&mut self, line: &str) -> Result<JobEvent, FrameError> {
        let line = line.trim_end();
        let (kind, rest) = (line.chars().next(), line.get(1..).unwrap_or_default());
        let output = |stream| {
            let bytes = STANDARD.decode(rest).map_err(|_| FrameError("output is no Base64"))?;
            Ok(JobEvent::Output(stream, bytes))
        };
        match kind {
            Some('o') => return output(Stream::Stdout),
            Some('e') => return output(Stream::Stderr),
            Some('x') => {
                let status = parse_status(rest).ok_or(FrameError("an exit status is no number"))?;
                self.end = Some(JobEvent::Ended(status));
            }
            Some('f') => {
                self.end = Some(JobEvent::Refused(match rest {
                    "root" => Refusal::NoWorkspace,
                    "directory" => Refusal::NoDirectory,
                    "outside" => Refusal::Outside,
                    "missing" => Refusal::MissingProgram,
                    "denied" => Refusal::Denied,
                    "format" => Refusal::NotAProgram,
                    _ => Refusal::NoPipes,
                }));
            }
            _ => return self.unused(line.len()),
        }
        Ok(JobEvent::None)
    }

    fn unused(&mut self, bytes: usize) -> Result<JobEvent, FrameError> {
        self.unused_bytes += bytes;
        match self.unused_bytes > MAX_UNUSED_BYTES {
            true => Err(FrameError("there is too much in the stream that is no output")),
            false => Ok(JobEvent::None),
        }
    }
}

/// Returns the end of a command. A shell adds 128 to the number of a signal, so that a program which exits with such a status by itself
/// is taken for one that a signal ended.
fn parse_status(text: &str) -> Option<ExitStatus> {
    if text == "late" {
        return Some(ExitStatus::TimedOut);
    }
    match i32::from_str(text).ok()? {
        status @ 129..=192 => Some(ExitStatus::Signal(status - 128)),
        status => Some(ExitStatus::Exit(status)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAPTURED: &str = "{\"type\":\"init\",\"text\":\"f87f\",\"timestamp\":1}\n\n{\"type\":\"ping\",\"text\":\"pong\"}\n\n\
        {\"type\":\"stderr\",\"text\":\"jeZXJyCg==\"}\n\n{\"type\":\"stdout\",\"text\":\"joYQD/\"}\n\n{\"type\":\"stdout\",\"text\":\"jx3\"}\n\n\
        {\"type\":\"execution_complete\",\"execution_time\":5}\n\n";

    /// Returns the events of a stream that arrives in pieces of this size; an error for one that cannot be read.
    fn events(stream: &[u8], size: usize) -> Result<Vec<JobEvent>, FrameError> {
        let (mut splitter, mut job, mut events) = (FrameSplitter::default(), JobFrames::new("j"), Vec::new());
        for piece in stream.chunks(size) {
            for frame in splitter.push(piece)? {
                events.push(job.next(frame)?);
            }
        }
        if let Some(frame) = splitter.finish() {
            events.push(job.next(frame)?);
        }
        events.retain(|event| *event != JobEvent::None);
        Ok(events)
    }

    #[test]
    fn a_stream_means_the_same_in_pieces_of_any_size_and_with_fields() {
        let wanted = [
            JobEvent::Output(Stream::Stderr, b"err\n".to_vec()),
            JobEvent::Output(Stream::Stdout, b"a\0\xff".to_vec()),
            JobEvent::Ended(ExitStatus::Exit(3)),
        ];
        let with_fields = CAPTURED.replace("{\"type\"", "event: x\r\nid: 7\r\n: note\ndata: {\"type\"");
        for stream in [CAPTURED, with_fields.as_str()] {
            for size in 1..stream.len() {
                assert_eq!(events(stream.as_bytes(), size).expect("readable"), wanted, "{size}");
            }
        }
    }

    #[test]
    fn a_stream_that_is_cut_has_no_end() {
        let whole = CAPTURED.trim_end().len();
        for end in 0..CAPTURED.len() {
            let events = events(&CAPTURED.as_bytes()[..end], 7).expect("readable");
            let has_end = events.iter().any(|event| !matches!(event, JobEvent::Output(..)));
            assert_eq!(has_end, end >= whole, "{end}");
        }
    }

    #[test]
    fn what_a_stream_must_not_have_is_an_error() {
        let line = |text: &str| format!("{{\"type\":\"stdout\",\"text\":\"{text}\"}}\n");
        for stream in
            ["<html>\n".to_owned(), "[]\n".to_owned(), line("jo!"), line("jxmany"), line(&"-".repeat(MAX_FRAME_BYTES))]
        {
            assert!(events(stream.as_bytes(), 1 << 20).is_err(), "{}", &stream[..stream.len().min(60)]);
        }
        assert!(events(line(&"-".repeat(1 << 20)).repeat(20).as_bytes(), 1 << 20).is_err());
        let lost = "{\"type\":\"error\",\"error\":{\"ename\":\"CommandExecError\",\"evalue\":\"-1\",\"traceback\":[\"signal: killed\"]}}\n";
        assert!(
            matches!(&events(lost.as_bytes(), 9).expect("readable")[..], [JobEvent::Lost(Failure { value, .. })] if value == "-1")
        );
    }

    #[test]
    fn statuses_of_shells_are_ends_of_commands() {
        for (text, end) in [
            ("0", Some(ExitStatus::Exit(0))),
            ("127", Some(ExitStatus::Exit(127))),
            ("128", Some(ExitStatus::Exit(128))),
            ("137", Some(ExitStatus::Signal(9))),
            ("192", Some(ExitStatus::Signal(64))),
            ("193", Some(ExitStatus::Exit(193))),
            ("255", Some(ExitStatus::Exit(255))),
            ("late", Some(ExitStatus::TimedOut)),
            ("", None),
            ("1 2", None),
        ] {
            assert_eq!(parse_status(text), end, "{text}");
        }
    }
}
