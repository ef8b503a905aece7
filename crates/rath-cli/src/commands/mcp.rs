//! `rath mcp`: the Model Context Protocol.

mod answers;
mod arguments;
mod bounded;
mod handler;
mod http;
mod list;
mod page;
mod serve;
mod session_list;

use crate::output::CommandResult;

/// Let other programs ask about sessions, and list the servers that agents use (MCP)
#[derive(clap::Args)]
pub(crate) struct McpArgs {
    #[command(subcommand)]
    action: McpAction,
}

#[derive(clap::Subcommand)]
enum McpAction {
    Serve(serve::ServeArgs),
    Ls(list::McpLsArgs),
}

pub(crate) async fn run(args: &McpArgs) -> CommandResult {
    match &args.action {
        McpAction::Serve(args) => serve::run(args).await,
        McpAction::Ls(args) => list::run(args).await,
    }
}
