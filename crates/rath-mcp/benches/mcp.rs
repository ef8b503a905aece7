//! The cost of a call over stdio, beside a bare line to the same server and back: `cargo xtask bench`.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use rath::Session;
use rath::chunk::Call;
use rath::tool::{ToolCx, ToolSource};
use rath_bench::{Table, medians};
use rath_mcp::{McpServers, Places, ServerConfig, Transport, Walls};

/// The number of calls.
const ROUNDS: usize = 2000;
/// The time that a call may add at the median.
const BOUND: Duration = Duration::from_micros(500);

/// A server that answers each line at once.
const SERVER: &str = r#"
$| = 1;
while (my $line = <STDIN>) {
    my ($id) = $line =~ /"id":(\d+)/ or next;
    my $result = $line =~ /"tools\/call"/ ? '{"content":[{"type":"text","text":"echo"}]}'
        : $line =~ /"tools\/list"/ ? '{"tools":[{"name":"echo","inputSchema":{"type":"object"}}]}'
        : $line =~ /"initialize"/ ? '{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"echo","version":"1"}}'
        : '';
    print $result ? qq({"jsonrpc":"2.0","id":$id,"result":$result}\n)
        : qq({"jsonrpc":"2.0","id":$id,"error":{"code":-32601,"message":"unknown"}}\n);
}
"#;

const CALL: &str =
    r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":{"text":"hello"}}}"#;

fn main() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut bare = Command::new("perl");
    let mut bare =
        bare.args(["-e", SERVER]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("perl is here");
    let mut stdin = bare.stdin.take().expect("a pipe");
    let mut stdout = BufReader::new(bare.stdout.take().expect("a pipe"));
    let mut line = String::new();

    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let mut config = ServerConfig::stdio("srv", "perl", ["-e", SERVER]).expect("a name");
    let Transport::Stdio(process) = &mut config.transport else { unreachable!("it is a process") };
    process.walls = Walls::Outside;
    let servers = McpServers::new([config], Places::in_directory(directory.path())).expect("valid");
    let tools = runtime.block_on(servers.list()).tools;
    let cx = ToolCx::new(Session::user("Go."), Call::new("c1", "srv__echo", r#"{"text":"hello"}"#));

    let (call, bare_line) = medians(
        ROUNDS,
        || assert_eq!(runtime.block_on(tools.call(&cx)).expect("an answer").text, "echo"),
        || {
            writeln!(stdin, "{CALL}").expect("it reads");
            line.clear();
            stdout.read_line(&mut line).expect("it writes");
            assert!(line.contains("echo"));
        },
    );
    drop(stdin);
    bare.wait().expect("it ends");
    let added = call.saturating_sub(bare_line);
    eprintln!("  a call {call:.2?}, a bare line {bare_line:.2?}, added {added:.2?}");
    let mut table = Table::default();
    let what = "the time that a call of a tool of a server adds, against 0.5 ms";
    table.at_most(what, added.as_secs_f64() / BOUND.as_secs_f64(), 1.0);
    drop(servers);
    table.print();
}
