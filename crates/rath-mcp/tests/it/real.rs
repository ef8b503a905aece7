//! Servers that others wrote.
//!
//! `RATH_NODE_MODULES` says where the packages of npm are, `RATH_PYTHON` which Python has the packages of PyPI.

use std::net::TcpListener;
use std::process::{Child, Stdio};

use rath::tool::{Output, ToolCx, ToolSource};
use rath::{Session, chunk::Call};
use rath_mcp::{McpServers, Places, ServerConfig, Speaker, Transport, Walls};
use rath_test_support::{program, temp_dir, wait_until};
use serde_json::{Value, json};

use super::{block_on, call};

/// Returns the path of the program of a package of npm.
fn node_program(name: &str) -> String {
    let modules = std::env::var("RATH_NODE_MODULES").expect("`RATH_NODE_MODULES` names a directory");
    format!("{modules}/.bin/{name}")
}

fn python() -> String {
    std::env::var("RATH_PYTHON").expect("`RATH_PYTHON` names a program")
}

/// Returns the handle to a process that runs without walls: its program may be in a home directory.
fn stdio(directory: &std::path::Path, argv: &[&str]) -> McpServers {
    let mut config = ServerConfig::stdio("srv", argv[0], argv[1..].iter().copied()).expect("a name");
    let Transport::Stdio(process) = &mut config.transport else { panic!("a process") };
    process.walls = Walls::Outside;
    McpServers::new([config], Places::in_directory(directory)).expect("valid")
}

/// A server process that listens on a port. It is killed on drop.
struct HttpProcess {
    child: Child,
    port: u16,
}

impl HttpProcess {
    fn start(command: impl FnOnce(u16) -> std::process::Command) -> Self {
        let free = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = free.local_addr().expect("bound").port();
        drop(free);
        let child = command(port).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
        wait_until("the server listens", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
        HttpProcess { child, port }
    }

    fn servers(&self) -> McpServers {
        let config = ServerConfig::http("srv", format!("http://127.0.0.1:{}/mcp", self.port)).expect("valid");
        McpServers::new([config], Places::in_directory("./")).expect("valid")
    }
}

impl Drop for HttpProcess {
    fn drop(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it is a child");
    }
}

/// Calls a tool and returns all of its output.
async fn output(servers: &McpServers, tool: &str, arguments: Value) -> Output {
    let tools = servers.list().await.tools;
    let cx = ToolCx::new(Session::user("Do it."), Call::new("c1", tool, arguments.to_string()));
    tools.call(&cx).await.expect("it succeeds")
}

/// Uses all that the server of the protocol's authors offers.
async fn use_everything(servers: &McpServers) {
    let status = servers.connect().await.remove(0);
    assert_eq!(status.protocol.expect("it is there"), "2025-11-25");
    assert!(status.tools.len() >= 10, "{:?}", status.tools);
    assert_eq!(call(servers, "srv__echo", json!({"message": "hello"})).await, "Echo: hello");
    assert!(call(servers, "srv__get-sum", json!({"a": 2, "b": 3})).await.contains('5'));
    let image = output(servers, "srv__get-tiny-image", json!({})).await;
    assert_eq!(image.images.len(), 1);
    assert_eq!(image.images[0].media_type, "image/png");
    let value = output(servers, "srv__get-structured-content", json!({"location": "Chicago"})).await;
    let value: Value = serde_json::from_str(value.structured.expect("a value").as_str()).expect("JSON");
    assert!(value["temperature"].is_number(), "{value}");
    let slow = json!({"duration": 0.2, "steps": 2});
    assert!(call(servers, "srv__trigger-long-running-operation", slow).await.contains("completed"));
    let wrong = call(servers, "srv__get-sum", json!({"a": "x", "b": 3})).await;
    assert!(wrong.contains("wanted"), "the schema is checked first: {wrong}");
    let resources = servers.resources("srv").await.expect("a list");
    let text = servers.read_resource("srv", &resources[0].uri).await.expect("it is there").text;
    assert!(text.len() > 100, "{text}");
    let listed = call(servers, "mcp_list_resources", json!({"server": "srv"})).await;
    assert!(listed.contains(&resources[0].uri), "{listed}");
    assert_eq!(call(servers, "mcp_read_resource", json!({"server": "srv", "uri": resources[0].uri})).await, text);
    let prompts = servers.prompts("srv").await.expect("a list");
    assert!(prompts.iter().any(|prompt| prompt.name == "args-prompt" && prompt.arguments[0].required));
    let messages = servers.get_prompt("srv", "args-prompt", [("city", "Paris")]).await.expect("it is there");
    assert_eq!(messages[0].speaker, Speaker::User);
    assert!(messages[0].content.text.contains("Paris"), "{messages:?}");
    assert!(servers.read_resource("srv", "demo://no/such").await.is_err());
}

#[test]
#[ignore = "needs packages of npm"]
fn everything_by_stdio() {
    let directory = temp_dir();
    block_on(async {
        let servers = stdio(directory.path(), &["node", &node_program("mcp-server-everything"), "stdio"]);
        use_everything(&servers).await;
        servers.close().await;
    });
}

#[test]
#[ignore = "needs packages of npm"]
fn everything_by_http() {
    let process = HttpProcess::start(|port| {
        let mut command = program("node");
        command.arg(node_program("mcp-server-everything")).arg("streamableHttp").env("PORT", port.to_string());
        command
    });
    block_on(async {
        let servers = process.servers();
        use_everything(&servers).await;
        servers.close().await;
    });
}

#[test]
#[ignore = "needs packages of npm"]
fn files_and_notes() {
    let directory = temp_dir();
    let path = directory.path().to_str().expect("text");
    std::fs::write(directory.path().join("a.txt"), "words\n").expect("a file");
    block_on(async {
        let servers = stdio(directory.path(), &["node", &node_program("mcp-server-filesystem"), path]);
        let read = call(&servers, "srv__read_text_file", json!({"path": format!("{path}/a.txt")})).await;
        assert_eq!(read, "words\n");
        let outside = call(&servers, "srv__read_text_file", json!({"path": "/etc/hostname"})).await;
        assert!(outside.contains("denied"), "{outside}");
        let servers = stdio(directory.path(), &["node", &node_program("mcp-server-memory")]);
        let entities = json!({"entities": [{"name": "rath", "entityType": "program", "observations": ["records"]}]});
        call(&servers, "srv__create_entities", entities).await;
        let found = call(&servers, "srv__search_nodes", json!({"query": "records"})).await;
        assert!(found.contains("rath"), "{found}");
    });
}

/// A server of the newer protocol.
const PYTHON_SERVER: &str = r#"
import sys
from mcp.server import MCPServer

server = MCPServer("test")

@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b

@server.tool()
def fail() -> str:
    """Fail."""
    raise ValueError("no such row")

@server.resource("notes://first")
def first() -> str:
    """The first note."""
    return "remember"

@server.prompt()
def greet(name: str) -> str:
    """Greet a person."""
    return f"Greet {name}."

if sys.argv[1] == "stdio":
    server.run("stdio")
else:
    server.run("streamable-http", port=int(sys.argv[1]))
"#;

async fn use_python(servers: &McpServers) {
    let status = servers.connect().await.remove(0);
    assert_eq!(status.protocol.expect("it is there"), "2026-07-28");
    let sum = output(servers, "srv__add", json!({"a": 2, "b": 3})).await;
    assert_eq!(sum.text, "5");
    assert_eq!(sum.structured.expect("a value").as_str(), r#"{"result":5}"#);
    let failed = call(servers, "srv__fail", json!({})).await;
    assert!(failed.contains("Error executing tool fail"), "{failed}");
    let text = servers.read_resource("srv", "notes://first").await.expect("it is there").text;
    assert_eq!(text, "[resource notes://first]\nremember");
    let messages = servers.get_prompt("srv", "greet", [("name", "Ada")]).await.expect("it is there");
    assert_eq!(messages[0].content.text, "Greet Ada.");
}

#[test]
#[ignore = "needs packages of PyPI"]
fn the_newer_protocol_by_stdio() {
    let directory = temp_dir();
    std::fs::write(directory.path().join("server.py"), PYTHON_SERVER).expect("a file");
    block_on(async {
        let servers = stdio(directory.path(), &[&python(), "server.py", "stdio"]);
        use_python(&servers).await;
        servers.close().await;
    });
}

#[test]
#[ignore = "needs packages of PyPI"]
fn the_newer_protocol_by_http() {
    let directory = temp_dir();
    let file = directory.path().join("server.py");
    std::fs::write(&file, PYTHON_SERVER).expect("a file");
    let process = HttpProcess::start(|port| {
        let mut command = program(python());
        command.arg(&file).arg(port.to_string());
        command
    });
    block_on(async {
        let servers = process.servers();
        use_python(&servers).await;
        servers.close().await;
    });
}
