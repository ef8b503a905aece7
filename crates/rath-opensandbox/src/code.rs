//! Running code in an interpreter of the sandbox, which keeps its state from one run to the next.

use std::sync::Arc;
use std::time::Duration;

use rath_sandbox::{Error, ErrorKind, Result, Stream};
use reqwest::Method;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::time::{Instant, timeout_at};

use super::command::{Cut, Frames};
use super::frames::Frame;
use super::http::{Request, one_line};
use super::remote::{Remote, RunningSandbox, UndoRequest, refused};

/// The most bytes of output and values of one run.
const MAX_RUN_BYTES: usize = 16 << 20;
/// The most characters of a language's name and of the id of an interpreter.
const MAX_NAME_CHARS: usize = 128;

/// An interpreter in a sandbox: the state of one run is there in the next.
///
/// Returned by [`OpenSandbox::interpreter`](crate::OpenSandbox::interpreter).
pub struct Interpreter {
    remote: Arc<Remote>,
    attached: Arc<RunningSandbox>,
    context: Context,
}

/// The result of running code.
///
/// Returned by [`Interpreter::run`].
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct CodeOutput {
    /// The text on stdout.
    pub stdout: String,
    /// The text on stderr.
    pub stderr: String,
    /// The values that the code returned, each by media type.
    pub values: Vec<Map<String, Value>>,
    /// The error that ended the code, with its name, its message and where it happened.
    pub error: Option<CodeError>,
}

/// An error that ended code.
///
/// Part of [`CodeOutput`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeError {
    /// The name of the error, such as `NameError`.
    pub name: String,
    /// The message.
    pub message: String,
    /// The places in the code, in the words of the interpreter.
    pub traceback: Vec<String>,
}

#[derive(Clone, Deserialize)]
struct Context {
    #[serde(default)]
    id: String,
    language: String,
}

impl Interpreter {
    pub(crate) async fn start(remote: &Arc<Remote>, language: &str) -> Result<Self> {
        if language.is_empty() || language.chars().count() > MAX_NAME_CHARS {
            return Err(Error::new(ErrorKind::Config, "wanted a language such as `python`"));
        }
        let attached = remote.attach_to_work().await?;
        let request = attached.request(Method::POST, "code/context")?.json(&json!({"language": language}));
        let (remote, language) = (remote.clone(), language.to_owned());
        let (in_task, attached_in_task) = (remote.clone(), attached.clone());
        let context = remote.perform(async move {
            let what = format!("an interpreter for {} cannot be started", one_line(&language));
            match in_task.server.clients.send(request).await {
                Ok(reply) if reply.is_success() => reply.json::<Context>(),
                Ok(reply) => Err(refused(what, &reply)),
                Err(no_reply) => Err(in_task.unreachable(&attached_in_task, &what, &no_reply).await),
            }
        });
        let context = context.await?;
        if context.id.is_empty() || context.id.chars().count() > MAX_NAME_CHARS {
            return Err(Error::new(ErrorKind::Io, "the sandbox names no interpreter"));
        }
        Ok(Interpreter { remote, attached, context })
    }

    /// Runs code once. At the timeout, and if the future is dropped, it is interrupted.
    ///
    /// If the connection breaks, the outcome is unknown, and the code is not run again.
    pub async fn run(&self, code: &str, timeout: Duration) -> Result<CodeOutput> {
        let body = json!({"context": {"id": self.context.id, "language": self.context.language}, "code": code});
        let mut request = self.attached.request(Method::POST, "code")?.json(&body);
        request.timeout = timeout;
        let (remote, interrupt) = (self.remote.clone(), self.interrupt()?);
        self.remote.perform(async move { run(&remote, request, interrupt, timeout).await }).await
    }

    fn interrupt(&self) -> Result<Request> {
        let mut url = self.attached.url("code")?;
        url.query_pairs_mut().append_pair("id", &self.context.id);
        let mut request = Request::new(Method::DELETE, url);
        request.headers = self.attached.headers();
        Ok(request)
    }
}

/// Runs code, and interrupts it unless it has ended.
async fn run(remote: &Arc<Remote>, request: Request, interrupt: Request, timeout: Duration) -> Result<CodeOutput> {
    const WHAT: &str = "the code";
    let deadline = Instant::now().checked_add(timeout);
    let interrupt = UndoRequest::new(remote, interrupt);
    let response = match remote.server.clients.stream(request).await {
        Ok(response) if response.status().is_success() => response,
        Ok(response) => {
            let reply = remote.server.clients.read_error(response).await;
            if reply.status >= 500 {
                return Err(refused("the outcome of the code is unknown", &reply));
            }
            // Other code may run in the interpreter.
            interrupt.cancel();
            return Err(refused("the code was not started", &reply));
        }
        Err(no_reply) if no_reply.was_not_sent => {
            interrupt.cancel();
            return Err(Error::new(ErrorKind::Io, format_args!("the code was not started: {}", no_reply.reason)));
        }
        Err(no_reply) => return Err(Cut::Connection(no_reply.reason).into_error(WHAT)),
    };
    let (mut frames, mut output, mut bytes) = (Frames::new(response), CodeOutput::default(), 0);
    loop {
        let next = match deadline {
            Some(deadline) => timeout_at(deadline, frames.next()).await.unwrap_or(Err(Cut::Timeout)),
            None => frames.next().await,
        };
        match next.map_err(|cut| cut.into_error(WHAT))? {
            Frame::Output(stream, text) => {
                bytes += text.len();
                match stream {
                    Stream::Stdout => output.stdout.push_str(&text),
                    Stream::Stderr => output.stderr.push_str(&text),
                }
            }
            Frame::Value(values) => {
                bytes += values.values().map(|value| value.to_string().len()).sum::<usize>();
                output.values.push(values);
            }
            Frame::Complete => {
                interrupt.cancel();
                return Ok(output);
            }
            Frame::Failed(failure) => {
                interrupt.cancel();
                let (name, message, traceback) = (failure.name, failure.value, failure.traceback);
                output.error = Some(CodeError { name, message, traceback });
                return Ok(output);
            }
            Frame::Init(_) | Frame::Other => bytes += 64,
        }
        if bytes > MAX_RUN_BYTES {
            return Err(Error::new(
                ErrorKind::Io,
                format_args!("the code printed more than {MAX_RUN_BYTES} bytes, and was interrupted"),
            ));
        }
    }
}
