//! Servers that answer, misbehave and end, with the sessions that use them.
#![cfg(target_os = "linux")]

mod hostile;
mod http;
mod kill;
mod real;
mod sessions;
mod starts;

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use rath::Session;
use rath::chunk::Call;
use rath::tool::{ToolCx, ToolListing, ToolSource};
use rath_mcp::{McpServers, Places, ServerConfig, Transport, Walls};
use rath_test_support::TempDir;

/// Runs a future on a runtime of its own.
fn block_on<T>(work: impl IntoFuture<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime starts").block_on(work.into_future())
}

/// A workspace with the server.
struct Fixture {
    directory: TempDir,
    mark: String,
}

impl Fixture {
    fn new() -> Self {
        let directory = rath_test_support::temp_dir();
        std::fs::write(directory.path().join("server.pl"), include_str!("server.pl")).expect("a file");
        Fixture { directory, mark: mark() }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Returns the configuration of a server that starts in this way.
    fn config(&self, name: &str, mode: &str, walls: Walls) -> ServerConfig {
        let mut config = ServerConfig::stdio(name, "perl", ["server.pl", mode, &self.mark]).expect("a name");
        if let Transport::Stdio(process) = &mut config.transport {
            process.walls = walls;
        }
        config
    }

    /// Returns the handle to one server, without walls.
    fn server(&self, mode: &str) -> McpServers {
        self.servers([self.config("srv", mode, Walls::Outside)])
    }

    /// Returns the handle to some servers, which have a second for a call.
    fn servers(&self, configs: impl IntoIterator<Item = ServerConfig>) -> McpServers {
        McpServers::new(configs, self.places()).expect("valid")
    }

    fn places(&self) -> Places {
        Places::in_directory(self.path())
    }
}

/// Calls a tool, and returns its output or error as text.
async fn call(servers: &McpServers, tool: &str, arguments: serde_json::Value) -> String {
    let ToolListing { tools, notes } = servers.list().await;
    let cx = ToolCx::new(Session::user("Do it."), Call::new("c1", tool, arguments.to_string()));
    match tools.call(&cx).await {
        Ok(output) => output.text,
        Err(error) => format!("{}; {notes:?}", error.message()),
    }
}

/// Returns a number of seconds that no other process of this machine sleeps for.
fn mark() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("86402.{:010}{:04}", std::process::id(), COUNT.fetch_add(1, Relaxed))
}

/// Counts the processes of this machine with a mark in their command line.
fn count_marked(mark: &str) -> usize {
    let entries = std::fs::read_dir("/proc").expect("processes").flatten();
    let lines = entries.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines.filter(|line| String::from_utf8_lossy(line).contains(mark)).count()
}
