//! Running commands in a sandbox: each is sent once.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rath_sandbox::{Command, Error, ErrorKind, ExitStatus, Output, OutputCapture, Result, Sink, Stream};
use reqwest::{Method, Response};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::frames::{Frame, FrameError, FrameSplitter, JobEvent, JobFrames, Refusal};
use super::http::{NoReply, one_line};
use super::remote::{Remote, RunningSandbox, refused};
use super::upload::{Upload, upload};

/// The script that runs a command.
const JOB: &str = include_str!("command/job.sh");
/// The time that a command has to begin, and after its timeout to end.
const GRACE: Duration = Duration::from_secs(60);
/// The time that ending a command may take.
const END_TIMEOUT: Duration = Duration::from_secs(20);
/// The number of times that the script which ends a command is sent, and the pause between two.
const END_ATTEMPTS: u32 = 3;
const END_PAUSE: Duration = Duration::from_millis(500);
/// The time that a script of rath's own may take.
const SCRIPT_TIMEOUT: Duration = Duration::from_secs(60);
/// The most lines that such a script prints.
const MAX_SCRIPT_LINES: usize = 4_096;
/// The number of pieces of output that wait for the caller.
const MAX_WAITING_PIECES: usize = 16;

/// The hint for a command of which it is not known what it did.
const UNKNOWN_HINT: &str = "look at what it did before it is run again: it was not sent a second time";

/// A script of rath's own, with its arguments.
pub(crate) struct Script<'a> {
    pub(crate) text: &'a str,
    pub(crate) arguments: &'a [&'a str],
}

/// The result of a script.
pub(crate) struct ScriptOutput {
    pub(crate) status: i32,
    pub(crate) lines: Vec<String>,
}

impl ScriptOutput {
    /// Returns the lines, each decoded from Base64.
    pub(crate) fn decoded_lines(&self) -> Vec<String> {
        let decode = |line: &String| STANDARD.decode(line.trim()).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        self.lines.iter().map(|line| decode(line).unwrap_or_default()).collect()
    }
}

/// Runs a script in a sandbox, and returns the lines that it prints on stdout.
pub(crate) async fn run_script(remote: &Remote, attached: &RunningSandbox, script: Script<'_>) -> Result<ScriptOutput> {
    let words = script.arguments.iter().map(|argument| quote(argument)).collect::<Vec<_>>().join(" ");
    let line = format!("sh -c {} rath {words}", quote(script.text));
    let what = "a script for the sandbox";
    let mut frames = start(remote, attached, &line, SCRIPT_TIMEOUT, what).await?;
    let (deadline, mut lines) = (Instant::now() + SCRIPT_TIMEOUT, Vec::new());
    loop {
        let next = timeout_at(deadline, frames.next()).await.unwrap_or(Err(Cut::Timeout));
        let status = match next.map_err(|cut| cut.into_error(what))? {
            Frame::Output(Stream::Stdout, line) if lines.len() < MAX_SCRIPT_LINES => {
                lines.push(line);
                continue;
            }
            Frame::Complete => 0,
            Frame::Failed(failure) => match failure.value.parse() {
                Ok(status) => status,
                Err(_) => {
                    let message = format!("{what} was not run: {}", one_line(&failure.value));
                    return Err(Error::new(ErrorKind::Io, message));
                }
            },
            _ => continue,
        };
        return Ok(ScriptOutput { status, lines });
    }
}

/// A piece of output.
pub(crate) type Piece = (Stream, Vec<u8>);

/// A command that runs in a sandbox. Its end is the result of the task.
pub(crate) struct RunningCommand {
    pub(crate) output: mpsc::Receiver<Piece>,
    pub(crate) end: tokio::task::JoinHandle<Result<ExitStatus>>,
}

impl RunningCommand {
    /// Returns the output of the command, up to a limit. A command that prints more is ended.
    pub(crate) async fn finish(
        mut self,
        mut capture: OutputCapture,
        max_bytes: u64,
        sink: &mut Sink<'_>,
    ) -> Result<Output> {
        let mut is_cut = false;
        while let Some((stream, bytes)) = self.output.recv().await {
            let room = max_bytes.saturating_sub(capture.total_bytes());
            let allowed = &bytes[..bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX))];
            sink(stream, allowed);
            capture.push(stream, allowed).await?;
            if allowed.len() < bytes.len() {
                is_cut = true;
                // The task ends the command then.
                self.output.close();
                while self.output.try_recv().is_ok() {}
            }
        }
        let end = (&mut self.end).await;
        let status = end.map_err(|error| Error::new(ErrorKind::Io, "the command was stopped").because(error))??;
        // The command may have ended before it was noticed that its output is too much.
        capture.finish(if is_cut { ExitStatus::TooMuchOutput } else { status }).await
    }
}

/// Starts a command. It is ended if the output is not received any more.
pub(crate) fn start_command(remote: &Arc<Remote>, command: &Command) -> Result<RunningCommand> {
    check(command)?;
    let (sender, output) = mpsc::channel(MAX_WAITING_PIECES);
    let (remote_in_task, command) = (remote.clone(), command.clone());
    let end = remote.server.spawn(async move {
        let attached = tokio::select! {
            biased;
            () = sender.closed() => return Ok(ExitStatus::TooMuchOutput),
            attached = remote_in_task.attach_to_work() => attached?,
        };
        Job::new(&attached).run(&remote_in_task, &attached, &command, sender).await
    })?;
    Ok(RunningCommand { output, end })
}

/// Fails on a command that no sandbox can run.
fn check(command: &Command) -> Result<()> {
    let invalid = |message: String| Err(Error::new(ErrorKind::Config, message));
    if command.argv.first().is_none_or(String::is_empty) {
        return invalid("empty command".to_owned());
    }
    let texts = command.argv.iter().chain(command.env.iter().flat_map(|(name, value)| [name, value]));
    if texts.chain([&command.cwd]).any(|text| text.contains('\0')) {
        return invalid("the command contains a NUL byte".to_owned());
    }
    if let Some((name, _)) = command.env.iter().find(|(name, _)| name.is_empty() || name.contains('=')) {
        return invalid(format!("wanted the name of an environment variable, found `{name}`"));
    }
    if command.argv[0].contains('=') {
        return invalid(format!("the name of the program `{}` has a `=`", command.argv[0]));
    }
    super::files::check_path(&command.cwd).map(drop)
}

/// The report of the script that runs a command: the command runs no more, and its files are removed.
enum JobReport {
    Ended(ExitStatus),
    Refused(Refusal),
}

/// One run of a command.
struct Job {
    /// The mark that its processes carry.
    mark: String,
    /// The directory for its files in the sandbox.
    directory: String,
}

impl Job {
    fn new(attached: &RunningSandbox) -> Self {
        let mark = super::settings::new_name();
        Job { directory: format!("{}/.rath-{mark}", attached.temporary.trim_end_matches('/')), mark }
    }

    /// Runs the command. If it is left before its script has reported its end, it is ended first: after an error it may be running all the same.
    async fn run(
        self,
        remote: &Remote,
        attached: &RunningSandbox,
        command: &Command,
        output: mpsc::Sender<Piece>,
    ) -> Result<ExitStatus> {
        let followed = tokio::select! {
            biased;
            () = output.closed() => None,
            followed = self.follow(remote, attached, command, &output) => Some(followed),
        };
        let status = match followed {
            Some(Ok(JobReport::Ended(status))) => return Ok(status),
            Some(Ok(JobReport::Refused(refusal))) => return Err(describe(refusal, command)),
            Some(Err(error)) => Err(error),
            None => Ok(ExitStatus::TooMuchOutput),
        };
        self.end(remote, attached).await;
        status
    }

    /// Starts the command, and returns the report of its script.
    async fn follow(
        &self,
        remote: &Remote,
        attached: &RunningSandbox,
        command: &Command,
        output: &mpsc::Sender<Piece>,
    ) -> Result<JobReport> {
        let script = self.script(attached, command);
        let script_path = format!("{}/job", self.directory);
        let input_path = format!("{}/in", self.directory);
        let mut files = vec![Upload { path: &script_path, content: script.as_bytes(), mode: 600 }];
        if !command.stdin.is_empty() {
            files.push(Upload { path: &input_path, content: &command.stdin, mode: 600 });
        }
        upload(remote, attached, &files).await?;
        let what = "the command";
        let deadline = instant_after(command.timeout.saturating_add(GRACE));
        let line = format!("sh {}", quote(&script_path));
        // From here on the command may run. It is never sent again.
        let mut frames = start(remote, attached, &line, command.timeout.saturating_add(GRACE * 2), what).await?;
        let mut meaning = JobFrames::new(&self.mark);
        loop {
            let next = timeout_at(deadline, frames.next()).await.unwrap_or(Err(Cut::Timeout));
            let event = next.and_then(|frame| meaning.next(frame).map_err(Cut::from));
            match event.map_err(|cut| cut.into_error(what))? {
                JobEvent::None => {}
                JobEvent::Output(stream, bytes) => {
                    // A caller that is gone is noticed by `run`.
                    let _ = output.send((stream, bytes)).await;
                }
                JobEvent::Ended(status) => return Ok(JobReport::Ended(status)),
                JobEvent::Refused(refusal) => return Ok(JobReport::Refused(refusal)),
                JobEvent::Lost(failure) => {
                    let reason = failure.traceback.first().cloned().unwrap_or(failure.value);
                    let message = format!(
                        "the shell that ran the command ended before it ({}): its outcome is unknown",
                        one_line(&reason)
                    );
                    return Err(Error::new(ErrorKind::Io, message).with_hint(UNKNOWN_HINT));
                }
            }
        }
    }

    /// Kills what the command left running and removes its files, if the sandbox can be reached.
    async fn end(&self, remote: &Remote, attached: &RunningSandbox) {
        // The functions of the script without its end: nothing is started.
        let functions = JOB.split("\nexec 9>&2").next().unwrap_or_default();
        // A command that is just being started has no process with its mark yet, and must not start any more. One that is just being sent
        // may have files only after a while.
        let text = format!("rm -rf \"$2\"\njob=$1\n{functions}\nend_all\nsleep 0.2 || sleep 1\nend_all\nrm -rf \"$2\"");
        let arguments = [&*self.mark, &*self.directory];
        // This script can run twice, so it is sent again if its end is not seen.
        let end = async {
            for _ in 0..END_ATTEMPTS {
                match run_script(remote, attached, Script { text: &text, arguments: &arguments }).await {
                    Err(error) if error.kind() != ErrorKind::Unavailable => sleep(END_PAUSE).await,
                    // It has ended, or there is no sandbox any more.
                    _ => return,
                }
            }
        };
        let _ = timeout(END_TIMEOUT, end).await;
    }

    /// Returns the script that runs the command.
    fn script(&self, attached: &RunningSandbox, command: &Command) -> String {
        let search =
            command.env.iter().rev().find(|(name, _)| name == "PATH").map_or(&attached.search, |(_, path)| path);
        let input = if command.stdin.is_empty() { "/dev/null".to_owned() } else { format!("{}/in", self.directory) };
        // Sleeping programs round down.
        let limit = format!("{}.{:03}", command.timeout.as_secs(), command.timeout.subsec_millis().max(1));
        let values = [
            ("job", &*self.mark),
            ("here", &self.directory),
            ("root", &attached.root),
            ("directory", &command.cwd),
            ("search", search),
            ("input", &input),
            ("limit", &limit),
        ];
        let values: String = values.iter().map(|(name, value)| format!("{name}={}\n", quote(value))).collect();
        let words: String = command.argv.iter().map(|word| format!(" {}", quote(word))).collect();
        let env: String =
            command.env.iter().map(|(name, value)| format!(" {}", quote(&format!("{name}={value}")))).collect();
        format!("{values}set --{words}\nlaunch() {{ exec env RATH_COMMAND=\"$job\"{env} \"$@\"; }}\n{JOB}")
    }
}

/// The frames of an execution that has begun.
pub(crate) struct Frames {
    response: Response,
    splitter: Option<FrameSplitter>,
    ready: std::collections::VecDeque<Frame>,
}

/// The reason why no more frames arrive.
#[derive(Debug)]
pub(crate) enum Cut {
    Connection(String),
    Timeout,
    FrameError(FrameError),
    /// The stream ended without saying how the execution ended.
    NoEnd,
}

impl From<FrameError> for Cut {
    fn from(unreadable: FrameError) -> Self {
        Cut::FrameError(unreadable)
    }
}

impl Cut {
    /// Returns the error for an execution whose end was not seen.
    pub(crate) fn into_error(self, what: &str) -> Error {
        let reason = match self {
            Cut::Connection(reason) => format!("the connection to the sandbox broke ({reason})"),
            Cut::Timeout => "the sandbox did not report its end in time".to_owned(),
            Cut::FrameError(FrameError(reason)) => format!("what the sandbox reports cannot be read ({reason})"),
            Cut::NoEnd => "the connection to the sandbox ended before it did".to_owned(),
        };
        Error::new(ErrorKind::Io, format_args!("the outcome of {what} is unknown: {reason}")).with_hint(UNKNOWN_HINT)
    }
}

impl Frames {
    pub(crate) fn new(response: Response) -> Self {
        Frames { response, splitter: Some(FrameSplitter::default()), ready: std::collections::VecDeque::new() }
    }

    /// Returns the next frame.
    pub(crate) async fn next(&mut self) -> Result<Frame, Cut> {
        loop {
            if let Some(frame) = self.ready.pop_front() {
                return Ok(frame);
            }
            let Some(splitter) = &mut self.splitter else { return Err(Cut::NoEnd) };
            let read = self.response.chunk().await;
            match read.map_err(|error| Cut::Connection(NoReply::from(&error).reason)) {
                Ok(Some(bytes)) => self.ready.extend(splitter.push(&bytes)?),
                Ok(None) => self.ready.extend(self.splitter.take().and_then(FrameSplitter::finish)),
                Err(cut) => {
                    // The last line may be whole.
                    match self.splitter.take().and_then(FrameSplitter::finish) {
                        Some(frame) => self.ready.push_back(frame),
                        None => return Err(cut),
                    }
                }
            }
        }
    }
}

/// Sends a command to a sandbox, once. `what` names it in errors, which say whether it may have run.
pub(crate) async fn start(
    remote: &Remote,
    attached: &RunningSandbox,
    line: &str,
    limit: Duration,
    what: &str,
) -> Result<Frames> {
    let limit_ms = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX).min(i64::MAX as u64);
    let mut request = attached.request(Method::POST, "command")?.json(&json!({"command": line, "timeout": limit_ms}));
    request.timeout = GRACE;
    match remote.server.clients.stream(request).await {
        Ok(response) if response.status().is_success() => Ok(Frames::new(response)),
        Ok(response) => {
            let reply = remote.server.clients.read_error(response).await;
            Err(match reply.status {
                // It was understood, and not done.
                400..=499 => refused(format_args!("{what} was not started"), &reply),
                _ => refused(format_args!("the outcome of {what} is unknown"), &reply).with_hint(UNKNOWN_HINT),
            })
        }
        Err(no_reply) if no_reply.was_not_sent => {
            Err(remote.unreachable(attached, &format!("{what} was not started"), &no_reply).await)
        }
        Err(no_reply) => Err(Cut::Connection(no_reply.reason).into_error(what)),
    }
}

/// Returns the error for a command that was not started.
fn describe(refusal: Refusal, command: &Command) -> Error {
    let program = &command.argv[0];
    let (kind, message) = match refusal {
        Refusal::NoWorkspace => (ErrorKind::Unavailable, "the workspace is not there any more".to_owned()),
        Refusal::NoDirectory => {
            (ErrorKind::Io, format!("cannot run a command in `{}`: there is no such directory", command.cwd))
        }
        Refusal::Outside => (ErrorKind::OutsideWorkspace, format!("`{}` leads out of the workspace", command.cwd)),
        Refusal::MissingProgram => (ErrorKind::Io, format!("cannot run `{program}`: there is no such program")),
        Refusal::Denied => (ErrorKind::Io, format!("cannot run `{program}`: permission denied")),
        Refusal::NotAProgram => (ErrorKind::Io, format!("cannot run `{program}`: it is not a program")),
        Refusal::NoPipes => {
            (ErrorKind::Io, "cannot make pipes for the output of the command in the sandbox".to_owned())
        }
    };
    Error::new(kind, message)
}

/// Returns a text as one word of a shell.
pub(crate) fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Returns the instant after a time. A time beyond the range of the clock is cut to a year.
fn instant_after(time: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(time).unwrap_or_else(|| now + Duration::from_secs(366 * 24 * 3600))
}

#[cfg(test)]
mod tests {
    use rath_sandbox::OutputFiles;

    use super::*;

    #[tokio::test]
    async fn output_that_was_cut_is_never_a_success() {
        for (printed, max_bytes, status) in [
            (&["abc"][..], 3, ExitStatus::Exit(0)),
            (&["abcd"], 3, ExitStatus::TooMuchOutput),
            (&["abc", "d"], 3, ExitStatus::TooMuchOutput),
            (&["a"], 0, ExitStatus::TooMuchOutput),
        ] {
            let (sender, output) = mpsc::channel(MAX_WAITING_PIECES);
            for piece in printed {
                sender.send((Stream::Stdout, piece.as_bytes().to_vec())).await.expect("there is room");
            }
            // The command has ended before its output was looked at.
            drop(sender);
            let end = tokio::spawn(async { Ok(ExitStatus::Exit(0)) });
            let capture = OutputCapture::new(&OutputFiles::default());
            let output = RunningCommand { output, end }.finish(capture, max_bytes, &mut |_, _| {}).await;
            let output = output.expect("it was captured");
            assert_eq!((output.status, output.stdout.total_bytes), (status, max_bytes), "{printed:?}");
        }
    }
}
