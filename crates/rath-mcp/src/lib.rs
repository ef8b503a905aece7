//! Servers of the Model Context Protocol, for sessions of rath.
//!
//! [`Config`] reads the servers that a configuration names, in the form that other programs write too. [`McpServers`] is the handle to
//! them: an agent gets their tools, a program their resources and prompts.

mod config;
mod connection;
mod content;
mod error;
mod event_limit;
mod http;
mod inbox;
mod limits;
mod message;
mod naming;
mod resources;
mod server;
mod servers;
mod start;
mod stdio;
mod text;
mod tool;
mod watch_lists;

/// The programs in the guide are compiled and run with the tests.
#[cfg(doctest)]
mod guide {
    #[doc = include_str!("../../../docs/guide/mcp.md")]
    struct McpPage;
}

pub use self::config::{Config, HttpServer, Origin, ServerConfig, ServerOutline, StdioServer, Transport, Walls};
pub use self::error::{Error, ErrorKind, Result};
pub use self::limits::Limits;
pub use self::resources::{Prompt, PromptArgument, PromptMessage, Resource, Speaker};
pub use self::servers::{McpServers, Places, ServerStatus};
