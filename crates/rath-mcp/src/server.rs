//! One server: started when it is first needed, started again when it has ended.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt, Shared};
use rath::Secrets;
use rath::tool::Tools;
use rath_sandbox::Sandbox;
use rmcp::model::{ClientRequest, ListToolsRequest, PaginatedRequestParams, ServerResult, Tool};
use secrecy::ExposeSecret;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::config::{ServerConfig, Transport};
use crate::connection::Connection;
use crate::error::{Error, ErrorKind, Result};
use crate::limits::Limits;
use crate::naming::name_tools;
use crate::start::Start;
use crate::tool::McpTool;

/// A server of a configuration.
pub(crate) struct Server {
    pub(crate) config: ServerConfig,
    pub(crate) limits: Limits,
    /// The sandbox of its process, none if it is reached by HTTP; or the reason why it cannot be started.
    sandbox: Result<Option<Sandbox>, &'static str>,
    /// The values that are hidden in texts of the server.
    pub(crate) secrets: Secrets,
    /// Shared with the task that starts the server, which does not keep it alive.
    state: Arc<Mutex<ServerState>>,
}

struct ServerState {
    phase: Phase,
    /// The times of the last starts.
    starts: VecDeque<Instant>,
    /// The number of all starts.
    start_count: u64,
    /// True if a process of this server ended when it was asked in the way of the newer protocol.
    is_older: bool,
    /// The tools of the last listing.
    listed: Option<ListedTools>,
    /// Remarks that are not on a record yet.
    notes: Vec<String>,
}

/// The tools of a server at one time.
#[derive(Clone)]
struct ListedTools {
    tools: Tools,
    notes: Vec<String>,
    /// The connection that they came from, and the version of its list.
    connection: Weak<Connection>,
    version: u64,
    /// The reason why the list could not be read, and the time to ask again.
    failure: Option<(Arc<Error>, Instant)>,
}

enum Phase {
    NotStarted,
    Starting(StartTask),
    Running(Arc<Connection>),
    /// It has ended, and is started again at its next use.
    Ended(String),
    /// It could not be started.
    Failed(Instant, Arc<Error>),
}

/// A task that starts the server: a start goes on if the one who asked for it gives up. Dropping the value ends it.
struct StartTask {
    /// The number of the start.
    number: u64,
    result: StartResult,
    task: AbortHandle,
}

/// The result of a start that all wait for who need the server.
type StartResult = Shared<BoxFuture<'static, Result<Arc<Connection>, Arc<Error>>>>;

/// The time in which starts are counted.
const START_WINDOW: Duration = Duration::from_secs(600);
/// The time after a failed start in which the server is not started again.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(30);
/// The time after which a list that could not be read is asked for again, if the server does not say earlier that it has changed.
const PAUSE_AFTER_FAILED_LIST: Duration = Duration::from_secs(600);
/// The most pages of a list.
pub(crate) const MAX_PAGES: usize = 64;
/// The most bytes of the name, the description and the schema of a tool.
const MAX_TOOL_BYTES: usize = 72 * 1024;
/// The most bytes of a list of a server: a model reads that of its tools with each request.
pub(crate) const MAX_LISTED_BYTES: usize = 512 * 1024;
/// The most remarks that are held until there is a record for them.
const MAX_NOTES: usize = 16;
/// The most time for anything. A longer one cannot be added to a time.
const MAX_LIMIT: Duration = Duration::from_secs(365 * 24 * 60 * 60);

impl Server {
    pub(crate) fn new(config: ServerConfig, limits: Limits, sandbox: Result<Option<Sandbox>, &'static str>) -> Self {
        let [start, call, request] = [limits.start, limits.call, limits.request].map(|limit| limit.min(MAX_LIMIT));
        let state = ServerState {
            phase: Phase::NotStarted,
            starts: VecDeque::new(),
            start_count: 0,
            is_older: false,
            listed: None,
            notes: Vec::new(),
        };
        let mut secrets = Secrets::default();
        for (name, value) in config.secrets() {
            // A value that is too short would be found in ordinary text.
            let _ = secrets.add(&name, value.expose_secret());
        }
        let limits = Limits { start, call, request, ..limits };
        Server { config, limits, sandbox, secrets, state: Arc::new(Mutex::new(state)) }
    }

    pub(crate) fn name(&self) -> &str {
        &self.config.name
    }

    /// Returns the connection, and starts the server if there is none.
    pub(crate) async fn connect(&self) -> Result<Arc<Connection>> {
        self.note_end().await;
        match self.next_step() {
            Ok(Step::Running(connection)) => Ok(connection),
            Ok(Step::Wait(result)) => result.await.map_err(|error| self.named(&error)),
            Err(error) => Err(self.named(&error)),
        }
    }

    /// Returns the remarks for a record, each once.
    pub(crate) fn take_notes(&self) -> Vec<String> {
        std::mem::take(&mut self.lock().notes)
    }

    /// Adds a remark for a record, unless it waits for one already.
    pub(crate) fn note(&self, note: String) {
        let notes = &mut self.lock().notes;
        if notes.len() < MAX_NOTES && !notes.contains(&note) {
            notes.push(note);
        }
    }

    /// Returns the remarks that are not on a record yet.
    pub(crate) fn pending_notes(&self) -> Vec<String> {
        self.lock().notes.clone()
    }

    /// Notes the end of a connection that was closed meanwhile.
    async fn note_end(&self) {
        let closed = match &self.lock().phase {
            Phase::Running(connection) if connection.is_closed() => Some(connection.clone()),
            _ => None,
        };
        if let Some(connection) = closed {
            let end = connection.describe_end().await;
            self.has_ended(&connection, end);
        }
    }

    /// Decides what has to be waited for.
    fn next_step(&self) -> Result<Step, Arc<Error>> {
        let sandbox = self.sandbox.clone().map_err(|problem| Arc::new(Error::new(ErrorKind::Config, problem)))?;
        let mut state = self.lock();
        let now = Instant::now();
        let ended = match &state.phase {
            Phase::Running(connection) if !connection.is_closed() => return Ok(Step::Running(connection.clone())),
            // A task that has ended without a result was on a runtime that is no more.
            Phase::Starting(start) if !start.task.is_finished() => return Ok(Step::Wait(start.result.clone())),
            Phase::Failed(at, error) if now.duration_since(*at) < PAUSE_AFTER_FAILURE => return Err(error.clone()),
            Phase::Running(connection) => Some(connection.end_so_far()),
            Phase::Ended(end) => Some(end.clone()),
            Phase::NotStarted | Phase::Starting(_) | Phase::Failed(..) => None,
        };
        while state.starts.front().is_some_and(|start| now.duration_since(*start) > START_WINDOW) {
            state.starts.pop_front();
        }
        if state.starts.len() >= self.limits.starts {
            let minutes = START_WINDOW.as_secs() / 60;
            let message =
                format!("it was started {} times in {minutes} minutes, and is left alone", self.limits.starts);
            return Err(Arc::new(Error::new(ErrorKind::Limit, message)));
        }
        state.starts.push_back(now);
        state.start_count += 1;
        let number = state.start_count;
        let start = Start {
            config: self.config.clone(),
            limits: self.limits,
            sandbox,
            secrets: self.secrets.clone(),
            is_older: state.is_older,
            can_start_twice: state.starts.len() < self.limits.starts,
        };
        let (sender, receiver) = oneshot::channel();
        let shared = Arc::downgrade(&self.state);
        let task = tokio::spawn(async move {
            let outcome = start.run().await;
            let result = outcome.result.map(Arc::new).map_err(Arc::new);
            if let Some(state) = shared.upgrade() {
                let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
                state.has_started(number, &start.config.name, &result, (ended, outcome.first_failure));
            }
            let _ = sender.send(result);
        });
        let result = receiver.map(|result| {
            result.unwrap_or_else(|_| Err(Arc::new(Error::new(ErrorKind::Closed, "its start was given up"))))
        });
        let result = result.boxed().shared();
        let start = StartTask { number, result: result.clone(), task: task.abort_handle() };
        let before = std::mem::replace(&mut state.phase, Phase::Starting(start));
        drop(state);
        // It may hold the last handle to a process, which takes time to kill.
        drop(before);
        Ok(Step::Wait(result))
    }

    /// Notes that a connection has ended, so that the next use starts the server again.
    pub(crate) fn has_ended(&self, connection: &Arc<Connection>, end: String) {
        let mut state = self.lock();
        if matches!(&state.phase, Phase::Running(current) if Arc::ptr_eq(current, connection)) {
            // The caller has a handle too, so no process is killed under the lock.
            state.phase = Phase::Ended(end);
        }
    }

    /// Sends a request, and returns its answer.
    pub(crate) async fn request(&self, request: ClientRequest) -> Result<ServerResult> {
        self.request_within(request, self.limits.request).await
    }

    /// Sends a request, and returns its answer, which has to come within a time.
    pub(crate) async fn request_within(&self, request: ClientRequest, limit: Duration) -> Result<ServerResult> {
        let connection = self.connect().await?;
        match connection.request(request, limit, |_| {}).await {
            Ok(answer) => Ok(answer),
            Err(error) => Err(self.failed(&connection, error).await),
        }
    }

    /// Returns the error for a failed request with the name of the server, after noting the end of the connection.
    pub(crate) async fn failed(&self, connection: &Arc<Connection>, error: Error) -> Error {
        if connection.is_closed() {
            self.has_ended(connection, connection.describe_end().await);
        }
        self.named(&error)
    }

    /// Returns the tools, from the server if they may have changed, and the notes for the record. A list that cannot be read is a note.
    pub(crate) async fn list_tools(self: &Arc<Self>) -> (Tools, Vec<String>) {
        match self.try_list_tools().await {
            Ok((tools, mut notes, failure)) => {
                notes.extend(failure.map(|error| error.message()));
                (tools, notes)
            }
            Err(error) => (Tools::default(), vec![error.message()]),
        }
    }

    /// Returns the tools, the notes for the record, and the reason why a list could not be read whose tools are those of before.
    pub(crate) async fn try_list_tools(self: &Arc<Self>) -> Result<(Tools, Vec<String>, Option<Arc<Error>>)> {
        // A model must not be told of tools that cannot be called.
        self.list_connected().await.inspect_err(|_| self.lock().listed = None)
    }

    async fn list_connected(self: &Arc<Self>) -> Result<(Tools, Vec<String>, Option<Arc<Error>>)> {
        let connection = self.connect().await?;
        let version = connection.inbox.tools_version();
        let is_current = |listed: &ListedTools| {
            listed.version == version
                && listed.connection.as_ptr() == Arc::as_ptr(&connection)
                && listed.failure.as_ref().is_none_or(|(_, retry_at)| Instant::now() < *retry_at)
        };
        if let Some(listed) = self.lock().listed.clone().filter(is_current) {
            return Ok((listed.tools, listed.notes, listed.failure.map(|(error, _)| error)));
        }
        let (tools, notes, failure) = match self.fetch_tools(&connection).await {
            Ok((tools, notes)) => (tools, notes, None),
            // To ask again would cost the time limit once more, at each request to a model. The server still has the tools that it
            // listed before, most likely.
            Err(error) if matches!(error.kind(), ErrorKind::Timeout | ErrorKind::Answer) => {
                let is_same = |listed: &ListedTools| listed.connection.as_ptr() == Arc::as_ptr(&connection);
                let before = self.lock().listed.clone().filter(is_same);
                let tools = before.map(|listed| listed.tools).unwrap_or_default();
                (tools, Vec::new(), Some((Arc::new(error), Instant::now() + PAUSE_AFTER_FAILED_LIST)))
            }
            Err(error) => return Err(error),
        };
        let connection = Arc::downgrade(&connection);
        let error = failure.as_ref().map(|(error, _)| error.clone());
        let listed = ListedTools { tools: tools.clone(), notes: notes.clone(), connection, version, failure };
        self.lock().listed = Some(listed);
        Ok((tools, notes, error))
    }

    /// Asks the server for its tools, page by page.
    async fn fetch_tools(self: &Arc<Self>, connection: &Arc<Connection>) -> Result<(Tools, Vec<String>)> {
        let has_tools = connection.peer().peer_info().is_some_and(|info| info.capabilities.tools.is_some());
        if !has_tools {
            return Ok((Tools::default(), Vec::new()));
        }
        let ToolPages { mut fetched, is_whole, mut notes } = match fetch_pages(connection, &self.limits).await {
            Ok(pages) => pages,
            Err(error) => return Err(self.failed(connection, error).await),
        };
        if fetched.len() > self.limits.list_items || !is_whole {
            fetched.truncate(self.limits.list_items);
            notes.push(format!("lists more tools than {}", fetched.len()));
        }
        notes.iter_mut().for_each(|note| *note = format!("the server `{}` {note}", self.name()));
        let (named, naming_notes) = name_tools(self.name(), fetched, &self.secrets);
        notes.extend(naming_notes);
        let tools = named.into_iter().fold(Tools::default(), |tools, named| tools.tool(McpTool::new(self, named)));
        Ok((tools, notes))
    }

    /// Returns the tools of the last listing.
    pub(crate) fn last_listed(&self) -> Tools {
        self.lock().listed.as_ref().map(|listed| listed.tools.clone()).unwrap_or_default()
    }

    /// Returns the connection if there is one.
    pub(crate) fn connected(&self) -> Option<Arc<Connection>> {
        match &self.lock().phase {
            Phase::Running(connection) if !connection.is_closed() => Some(connection.clone()),
            _ => None,
        }
    }

    /// Ends the server: a process is given some time to end by itself.
    pub(crate) async fn close(&self) {
        // A start that is under way is ended.
        let phase = std::mem::replace(&mut self.lock().phase, Phase::NotStarted);
        if let Phase::Running(connection) = phase
            && let Ok(connection) = Arc::try_unwrap(connection)
        {
            connection.close().await;
        }
    }

    /// Returns an error with the name of the server, and with advice.
    fn named(&self, error: &Error) -> Error {
        let named = Error::new(error.kind(), format!("the server `{}`: {}", self.name(), error.message()));
        match error.hint().or_else(|| self.advice(error.kind())) {
            Some(hint) => named.with_hint(hint),
            None => named,
        }
    }

    /// Returns what to do about a failure that has no hint of its own.
    fn advice(&self, kind: ErrorKind) -> Option<&'static str> {
        let is_process = matches!(self.config.transport, Transport::Stdio(_));
        match kind {
            ErrorKind::Start | ErrorKind::Closed | ErrorKind::Limit if is_process => {
                Some("run its command in a terminal to see why it ends")
            }
            ErrorKind::Start | ErrorKind::Closed | ErrorKind::Limit => {
                Some("check its `url`, and that the server runs there")
            }
            ErrorKind::Timeout => Some("try again; `rath mcp ls` tells whether it answers"),
            ErrorKind::Answer => Some("update the server, or take it out of the file that names it"),
            // The server, or the message, says what is wanted.
            ErrorKind::Refused | ErrorKind::Config => None,
        }
    }

    fn lock(&self) -> MutexGuard<'_, ServerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ServerState {
    /// Notes the result of a start, unless it was given up meanwhile, and what a record has to say of it: the end of the connection
    /// before, and the failure that led to a second start.
    fn has_started(
        &mut self,
        number: u64,
        name: &str,
        result: &Result<Arc<Connection>, Arc<Error>>,
        (ended, first_failure): (Option<String>, Option<String>),
    ) {
        if !matches!(&self.phase, Phase::Starting(current) if current.number == number) {
            return;
        }
        if first_failure.is_some() {
            self.starts.push_back(Instant::now());
        }
        match result {
            Ok(connection) => {
                self.is_older |= first_failure.is_some();
                let ended = ended.map(|end| format!("the server `{name}` was started again: it had ended{end}"));
                let older = first_failure.map(|failure| {
                    format!(
                        "the server `{name}` was started a second time, for an older version of the protocol: {failure}"
                    )
                });
                self.notes.extend(ended.into_iter().chain(older));
                self.notes.truncate(MAX_NOTES);
                self.phase = Phase::Running(connection.clone());
            }
            Err(error) => self.phase = Phase::Failed(Instant::now(), error.clone()),
        }
    }
}

impl Drop for StartTask {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The next event for a caller that needs the server.
enum Step {
    Running(Arc<Connection>),
    Wait(StartResult),
}

/// The tools that a server lists.
#[derive(Default)]
struct ToolPages {
    fetched: Vec<Tool>,
    /// False if the server lists more.
    is_whole: bool,
    /// The reasons why some are left out.
    notes: Vec<String>,
}

/// Asks a server for its tools, page by page. Of a page that is too large nothing is kept when the next one is asked for.
///
/// The list of the client library is not used: it may be one of before, which the library holds for as long as the server lets it.
async fn fetch_pages(connection: &Connection, limits: &Limits) -> Result<ToolPages> {
    let (mut pages, mut cursor, mut bytes) = (ToolPages::default(), None, 0);
    // One time limit for all pages: a server can always name another one.
    let end = Instant::now() + limits.request;
    for _ in 0..MAX_PAGES {
        let params = PaginatedRequestParams::default().with_cursor(cursor.take());
        let request = ClientRequest::ListToolsRequest(ListToolsRequest::with_param(params));
        let time_left = end.saturating_duration_since(Instant::now());
        let page = match connection.request(request, time_left, |_| {}).await {
            Ok(ServerResult::ListToolsResult(page)) => page,
            Ok(_) => return Err(Error::new(ErrorKind::Answer, "its answer is of another kind")),
            Err(error) if error.kind() == ErrorKind::Timeout => {
                let message = format!("it has not listed its tools in time{}", connection.end_so_far());
                return Err(Error::new(ErrorKind::Timeout, message));
            }
            Err(error) => return Err(error),
        };
        for tool in page.tools {
            let size = tool_bytes(&tool);
            if size > MAX_TOOL_BYTES {
                pages.notes.push(format!("describes a tool with more than {MAX_TOOL_BYTES} bytes, which is left out"));
                continue;
            }
            bytes += size;
            if bytes > MAX_LISTED_BYTES {
                return Ok(pages);
            }
            pages.fetched.push(tool);
        }
        cursor = page.next_cursor.filter(|cursor| !cursor.is_empty());
        pages.is_whole = cursor.is_none();
        if pages.is_whole || pages.fetched.len() > limits.list_items {
            break;
        }
    }
    Ok(pages)
}

/// Returns the number of bytes that a model would read of a tool.
fn tool_bytes(tool: &Tool) -> usize {
    let schema = serde_json::to_string(&*tool.input_schema).map_or(usize::MAX / 2, |schema| schema.len());
    schema + tool.name.len() + tool.description.as_ref().map_or(0, |description| description.len())
}
