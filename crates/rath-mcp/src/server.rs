//! One server: started when it is first needed, started again when it has ended.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt, Shared};
use rath::tool::Tools;
use rath_sandbox::{Command, Sandbox};
use rmcp::model::{ClientRequest, PaginatedRequestParams, ServerResult, Tool};
use secrecy::ExposeSecret;
use tokio::time::Instant;

use crate::config::{ServerConfig, StdioServer, Transport};
use crate::connection::Connection;
use crate::error::{Error, ErrorKind, Result};
use crate::limits::Limits;
use crate::naming::name_tools;
use crate::tool::McpTool;
use crate::watch_lists;

/// A server of a configuration.
pub(crate) struct Server {
    pub(crate) config: ServerConfig,
    pub(crate) limits: Limits,
    /// The sandbox of its process; none if it is reached by HTTP.
    sandbox: Option<Sandbox>,
    state: Mutex<ServerState>,
}

struct ServerState {
    phase: Phase,
    /// The times of the last starts.
    starts: VecDeque<Instant>,
    /// The tools of the last listing.
    listed: Option<ListedTools>,
}

/// The tools of a server at one time.
#[derive(Clone)]
struct ListedTools {
    tools: Tools,
    notes: Vec<String>,
    /// The connection that they came from, and the version of its list.
    connection: Weak<Connection>,
    version: u64,
}

enum Phase {
    NotStarted,
    Starting(StartFuture),
    Running(Arc<Connection>),
    /// It has ended, and is started again at its next use.
    Ended(String),
    /// It could not be started.
    Failed(Instant, Arc<Error>),
}

/// A start that all wait for who need the server.
type StartFuture = Shared<BoxFuture<'static, Result<Arc<Connection>, Arc<Error>>>>;

/// A connection, and the remarks for the record of the session that needed it.
pub(crate) struct Connected {
    pub(crate) connection: Arc<Connection>,
    pub(crate) notes: Vec<String>,
}

/// The time in which starts are counted.
const START_WINDOW: Duration = Duration::from_secs(600);
/// The time after a failed start in which the server is not started again.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(30);
/// The most pages of a list.
const MAX_PAGES: usize = 64;
/// The most bytes of the name, the description and the schema of a tool.
const MAX_TOOL_BYTES: usize = 72 * 1024;
/// The most bytes of all tools of a server: a model reads them with each request.
const MAX_LISTED_BYTES: usize = 512 * 1024;

impl Server {
    pub(crate) fn new(config: ServerConfig, limits: Limits, sandbox: Option<Sandbox>) -> Self {
        let state = ServerState { phase: Phase::NotStarted, starts: VecDeque::new(), listed: None };
        Server { config, limits, sandbox, state: Mutex::new(state) }
    }

    pub(crate) fn name(&self) -> &str {
        &self.config.name
    }

    /// Returns the connection, and starts the server if there is none.
    pub(crate) async fn connect(&self) -> Result<Connected> {
        let mut notes = Vec::new();
        self.note_end().await;
        let starting = match self.starting(&mut notes) {
            Ok(Step::Running(connection)) => return Ok(Connected { connection, notes }),
            Ok(Step::Wait(starting)) => starting,
            Err(error) => return Err(self.named(&error)),
        };
        let started = starting.clone().await;
        let mut state = self.lock();
        // All who waited come here; the first one counts.
        if matches!(&state.phase, Phase::Starting(current) if current.ptr_eq(&starting)) {
            state.phase = match &started {
                Ok(connection) => Phase::Running(connection.clone()),
                Err(error) => Phase::Failed(Instant::now(), error.clone()),
            };
        }
        drop(state);
        match started {
            Ok(connection) => Ok(Connected { connection, notes }),
            Err(error) => Err(self.named(&error)),
        }
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
    fn starting(&self, notes: &mut Vec<String>) -> Result<Step, Arc<Error>> {
        let mut state = self.lock();
        let now = Instant::now();
        let ended = match &state.phase {
            Phase::Running(connection) if !connection.is_closed() => return Ok(Step::Running(connection.clone())),
            Phase::Starting(starting) => return Ok(Step::Wait(starting.clone())),
            Phase::Failed(at, error) if now.duration_since(*at) < PAUSE_AFTER_FAILURE => return Err(error.clone()),
            Phase::Running(connection) => Some(connection.end_so_far()),
            Phase::Ended(end) => Some(end.clone()),
            Phase::NotStarted | Phase::Failed(..) => None,
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
        if let Some(end) = ended {
            notes.push(format!("the server `{}` was started again: it had ended{end}", self.name()));
        }
        state.starts.push_back(now);
        let (config, sandbox, limits) = (self.config.clone(), self.sandbox.clone(), self.limits);
        let starting = async move { open(&config, sandbox, &limits).await.map(Arc::new).map_err(Arc::new) };
        let starting = starting.boxed().shared();
        state.phase = Phase::Starting(starting.clone());
        Ok(Step::Wait(starting))
    }

    /// Notes that a connection has ended, so that the next use starts the server again.
    pub(crate) fn has_ended(&self, connection: &Arc<Connection>, end: String) {
        let mut state = self.lock();
        if matches!(&state.phase, Phase::Running(current) if Arc::ptr_eq(current, connection)) {
            state.phase = Phase::Ended(end);
        }
    }

    /// Sends a request, and returns its answer with the notes about the connection.
    pub(crate) async fn request(&self, request: ClientRequest) -> Result<(ServerResult, Vec<String>)> {
        let Connected { connection, notes } = self.connect().await?;
        let answer = connection.request(request, self.limits.request, |_| {}).await;
        match answer {
            Ok(answer) => Ok((answer, notes)),
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

    /// Returns the tools, from the server if they may have changed, and the notes for the record.
    pub(crate) async fn list_tools(self: &Arc<Self>) -> (Tools, Vec<String>) {
        match self.try_list_tools().await {
            Ok((tools, notes)) => (tools, notes),
            Err(error) => {
                // A model must not be told of tools that cannot be called.
                self.lock().listed = None;
                (Tools::default(), vec![error.message()])
            }
        }
    }

    async fn try_list_tools(self: &Arc<Self>) -> Result<(Tools, Vec<String>)> {
        let Connected { connection, mut notes } = self.connect().await?;
        let version = connection.inbox.tools_version();
        let known = self
            .lock()
            .listed
            .clone()
            .filter(|listed| listed.version == version && listed.connection.as_ptr() == Arc::as_ptr(&connection));
        let listed = match known {
            Some(listed) => listed,
            None => {
                let (tools, list_notes) = self.fetch_tools(&connection).await?;
                let connection = Arc::downgrade(&connection);
                let listed = ListedTools { tools, notes: list_notes, connection, version };
                self.lock().listed.insert(listed).clone()
            }
        };
        notes.extend(listed.notes);
        Ok((listed.tools, notes))
    }

    /// Asks the server for its tools, page by page.
    async fn fetch_tools(self: &Arc<Self>, connection: &Arc<Connection>) -> Result<(Tools, Vec<String>)> {
        let has_tools = connection.peer().peer_info().is_some_and(|info| info.capabilities.tools.is_some());
        if !has_tools {
            return Ok((Tools::default(), Vec::new()));
        }
        // One time limit for all pages: a server can always name another one.
        let pages = tokio::time::timeout(self.limits.request, fetch_pages(connection, self.limits.list_items)).await;
        let ToolPages { mut fetched, is_whole, mut notes } = match pages {
            Ok(Ok(pages)) => pages,
            Ok(Err(error)) => {
                let error = connection.failed(error).await;
                return Err(self.failed(connection, error).await);
            }
            Err(_) => {
                let message = "it has not listed its tools in time";
                return Err(self.failed(connection, Error::new(ErrorKind::Timeout, message)).await);
            }
        };
        if fetched.len() > self.limits.list_items || !is_whole {
            fetched.truncate(self.limits.list_items);
            notes.push(format!("lists more tools than {}", fetched.len()));
        }
        notes.iter_mut().for_each(|note| *note = format!("the server `{}` {note}", self.name()));
        let (named, naming_notes) = name_tools(self.name(), fetched);
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
        let phase = std::mem::replace(&mut self.lock().phase, Phase::NotStarted);
        if let Phase::Running(connection) = phase
            && let Ok(connection) = Arc::try_unwrap(connection)
        {
            connection.close().await;
        }
    }

    /// Returns an error with the name of the server.
    fn named(&self, error: &Error) -> Error {
        let named = Error::new(error.kind(), format!("the server `{}`: {}", self.name(), error.message()));
        match error.hint() {
            Some(hint) => named.with_hint(hint),
            None => named,
        }
    }

    fn lock(&self) -> MutexGuard<'_, ServerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The next event for a caller that needs the server.
enum Step {
    Running(Arc<Connection>),
    Wait(StartFuture),
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
async fn fetch_pages(connection: &Connection, max_tools: usize) -> Result<ToolPages, rmcp::ServiceError> {
    let (mut pages, mut cursor, mut bytes) = (ToolPages::default(), None, 0);
    for _ in 0..MAX_PAGES {
        let params = Some(PaginatedRequestParams::default().with_cursor(cursor.take()));
        let page = connection.peer().list_tools(params).await?;
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
        if pages.is_whole || pages.fetched.len() > max_tools {
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

/// Opens a connection.
async fn open(config: &ServerConfig, sandbox: Option<Sandbox>, limits: &Limits) -> Result<Connection> {
    let mut connection = match (&config.transport, sandbox) {
        (Transport::Stdio(process), Some(sandbox)) => Connection::stdio(&sandbox, &command(process), limits).await?,
        (Transport::Stdio(_), None) => return Err(Error::new(ErrorKind::Config, "it has no sandbox")),
        (Transport::Http(server), _) => crate::http::connect(server, limits).await?,
    };
    watch_lists::begin(&mut connection);
    Ok(connection)
}

fn command(process: &StdioServer) -> Command {
    let mut command = Command::argv([&process.command].into_iter().chain(&process.args).cloned());
    let env = process.env.iter().map(|(name, value)| (name.clone(), value.expose_secret().to_owned()));
    command.env = env.collect();
    command.cwd.clone_from(&process.cwd);
    command
}
