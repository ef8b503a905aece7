//! `rath mcp serve`: answer questions of other programs about the sessions of a store.

use std::net::SocketAddr;
use std::sync::Arc;

use rath::record::draw::one_line;
use rath::store::StoreErrorKind;
use rmcp::ServiceExt;
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::stdio_pipes;

use super::answers::Answers;
use super::bounded::BoundedTransport;
use super::handler::Handler;
use super::http;
use crate::output::{self, CommandResult, Exit, Failure};
use crate::sessions::StoreArg;

/// Answer questions of other programs about the sessions of a store
///
/// The server speaks the Model Context Protocol on stdin and stdout, so that a coding agent can list, search, read and
/// explain sessions, its own past ones too. It only reads. An answer has 2,000 bytes unless more is asked for, and a cursor for
/// the rest. A client is set up with, for example:
///
///   {"mcpServers": {"rath": {"command": "rath", "args": ["mcp", "serve"]}}}
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    store: StoreArg,
    /// Serve by HTTP at this address of this machine, such as 127.0.0.1:8808; port 0 chooses one
    ///
    /// The URL that is printed has a secret, since every user and every program of this machine can connect. Where RATH_MCP_TOKEN
    /// is set, its value is the secret: at least 16 letters, digits, `-`, `.`, `_` and `~`. A client can also send it as
    /// `Authorization: Bearer`.
    #[arg(long, value_name = "ADDRESS", value_parser = parse_address)]
    http: Option<SocketAddr>,
}

/// The most bytes of one message of a client.
pub(super) const MAX_MESSAGE_BYTES: usize = 1 << 20;

fn parse_address(text: &str) -> Result<SocketAddr, String> {
    match text.parse::<SocketAddr>() {
        Ok(address) if address.ip().is_loopback() => Ok(address),
        Ok(_) => Err("wanted an address of this machine, such as `127.0.0.1:8808`: sessions are private".to_owned()),
        Err(_) => Err("wanted an address and a port, such as `127.0.0.1:8808`".to_owned()),
    }
}

pub(crate) async fn run(args: &ServeArgs) -> CommandResult {
    let answers = Arc::new(Answers::new(args.store.clone()));
    match answers.store().await {
        // The first session may come later.
        Err(error) if error.kind() == StoreErrorKind::Missing => {
            output::message!("waiting for the first session: {}", one_line(&error.message()));
        }
        opened => _ = opened?,
    }
    let handler = Handler::new(answers.clone());
    let served = match args.http {
        Some(address) => http::serve(address, handler).await,
        None => serve_stdio(handler).await,
    };
    if let Some(answers) = Arc::into_inner(answers) {
        answers.close().await;
    }
    served
}

/// Serves one client on stdin and stdout, until it closes stdin. Signals end the program as they are: nothing is written.
async fn serve_stdio(handler: Handler) -> CommandResult {
    let (stdin, stdout) = stdio_pipes();
    let transport = AsyncRwTransport::new_server(stdin, stdout).with_max_line_length(MAX_MESSAGE_BYTES);
    let transport = BoundedTransport::new(transport);
    let failed = |error: &dyn std::fmt::Display| {
        Failure::new(
            format!("cannot talk to the client: {error}"),
            "an MCP client starts this command and writes to its stdin",
        )
    };
    let running = match handler.serve(transport).await {
        Ok(running) => running,
        // A client that goes before it has said anything.
        Err(rmcp::service::ServerInitializeError::ConnectionClosed(_)) => return Ok(Exit::Success),
        Err(error) => return Err(failed(&error)),
    };
    running.waiting().await.map_err(|error| failed(&error))?;
    Ok(Exit::Success)
}
