//! The start of a server, once or twice.

use rath::Secrets;
use rath_sandbox::{Command, Sandbox};
use rmcp::service::ClientLifecycleMode;
use secrecy::ExposeSecret;
use tokio::time::Instant;

use crate::config::{ServerConfig, StdioServer, Transport, Walls};
use crate::connection::{Connection, may_be_older, newer_or_older};
use crate::error::{Error, ErrorKind, Result};
use crate::limits::Limits;
use crate::{http, watch_lists};

/// The advice for a program that cannot be found.
const WALLS_HINT: &str = "a program in your home directory cannot be seen from behind walls; in your own configuration, \
                          `\"walls\": \"none\"` takes them away";

/// All that the task that starts a server needs.
pub(crate) struct Start {
    pub(crate) config: ServerConfig,
    pub(crate) limits: Limits,
    pub(crate) sandbox: Option<Sandbox>,
    /// The values that are hidden in texts of the server.
    pub(crate) secrets: Secrets,
    /// True if the server is asked in the way of the older protocol at once.
    pub(crate) is_older: bool,
    /// True if the number of starts allows a second one.
    pub(crate) can_start_twice: bool,
}

/// The outcome of a start.
pub(crate) struct StartOutcome {
    pub(crate) result: Result<Connection>,
    /// The failure after which the server was started a second time.
    pub(crate) first_failure: Option<String>,
}

impl Start {
    /// Opens a connection.
    pub(crate) async fn run(&self) -> StartOutcome {
        let mut first_failure = None;
        let result = match (&self.config.transport, &self.sandbox) {
            (Transport::Stdio(process), Some(sandbox)) => {
                self.start_process(process, sandbox, &mut first_failure).await
            }
            (Transport::Stdio(_), None) => Err(Error::new(ErrorKind::Config, "it has no sandbox")),
            (Transport::Http(server), _) => http::connect(server, &self.limits, &self.secrets).await,
        };
        let result = result.map(|mut connection| {
            watch_lists::begin(&mut connection);
            connection
        });
        StartOutcome { result, first_failure }
    }

    /// Starts a process, and once more if it may be of an older version: it can end when it is asked in the way of a newer one.
    async fn start_process(
        &self,
        process: &StdioServer,
        sandbox: &Sandbox,
        first_failure: &mut Option<String>,
    ) -> Result<Connection> {
        let (command, deadline) = (command(process), Instant::now() + self.limits.start);
        let start =
            async |mode| Connection::stdio(sandbox, &command, &self.limits, &self.secrets, (mode, deadline)).await;
        let mode = if self.is_older { ClientLifecycleMode::Initialize } else { newer_or_older() };
        let result = match start(mode).await {
            Err(error) if may_be_older(&error) && self.can_start_twice && !self.is_older => {
                *first_failure = Some(error.message());
                start(ClientLifecycleMode::Initialize).await
            }
            result => result,
        };
        result.map_err(|error| match error.kind() {
            ErrorKind::Start if process.walls != Walls::Outside && error.hint().is_none() => {
                error.with_hint(WALLS_HINT)
            }
            _ => error,
        })
    }
}

fn command(process: &StdioServer) -> Command {
    let mut command = Command::argv([&process.command].into_iter().chain(&process.args).cloned());
    let env = process.env.iter().map(|(name, value)| (name.clone(), value.expose_secret().to_owned()));
    command.env = env.collect();
    command.cwd.clone_from(&process.cwd);
    command
}
