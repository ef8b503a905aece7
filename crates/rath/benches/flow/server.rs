//! A mock model server: it asks for as many calls as the name of its model says, and then answers.
//!
//! It runs in a process of its own, so that its cost is not measured.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// The argument that makes the program the server.
pub(crate) const ARGUMENT: &str = "serve";

pub(crate) struct Server {
    process: Child,
    pub(crate) url: String,
}

impl Server {
    pub(crate) fn start() -> Self {
        let program = std::env::current_exe().expect("this program");
        let mut process = Command::new(program).arg(ARGUMENT).stdout(Stdio::piped()).spawn().expect("a process");
        let mut url = String::new();
        BufReader::new(process.stdout.as_mut().expect("its output")).read_line(&mut url).expect("its address");
        Server { process, url: url.trim().to_owned() }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Serves until it is killed.
pub(crate) fn serve() {
    rath_bench::many_files();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        println!("http://{}", listener.local_addr().expect("an address"));
        loop {
            let (stream, _) = listener.accept().await.expect("a connection");
            tokio::spawn(connection(stream));
        }
    });
}

async fn connection(mut stream: TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = Vec::with_capacity(16 << 10);
    loop {
        let head = loop {
            match find(&buffer, b"\r\n\r\n") {
                Some(end) => break end + 4,
                None if stream.read_buf(&mut buffer).await? == 0 => return Ok(()),
                None => {}
            }
        };
        let lines = String::from_utf8_lossy(&buffer[..head]).to_ascii_lowercase();
        let length = lines.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
        let end = head + length.unwrap_or(0_usize);
        while buffer.len() < end {
            if stream.read_buf(&mut buffer).await? == 0 {
                return Ok(());
            }
        }
        stream.write_all(&answer(&buffer[head..end])).await?;
        buffer.drain(..end);
    }
}

fn answer(request: &[u8]) -> Vec<u8> {
    let calls: usize = find(request, b"\"mock-")
        .map(|at| request[at + 6..].iter().take_while(|byte| byte.is_ascii_digit()))
        .and_then(|digits| String::from_utf8(digits.copied().collect()).ok()?.parse().ok())
        .unwrap_or_default();
    let made = memchr::memmem::find_iter(request, b"\"role\":\"tool\"").count();
    let (delta, finish) = if made < calls {
        let arguments = format!(r#"{{\"a\":{made},\"b\":1}}"#);
        let call = format!(
            r#"{{"index":0,"id":"call_{made}","type":"function","function":{{"name":"add","arguments":"{arguments}"}}}}"#
        );
        (format!(r#"{{"role":"assistant","content":null,"tool_calls":[{call}]}}"#), "tool_calls")
    } else {
        (format!(r#"{{"role":"assistant","content":"{made} calls were made."}}"#), "stop")
    };
    if memchr::memmem::find(request, b"\"stream\":true").is_none() {
        let usage = r#"{"prompt_tokens":100,"completion_tokens":12,"total_tokens":112}"#;
        let choice = format!(r#"{{"index":0,"message":{delta},"finish_reason":"{finish}"}}"#);
        let body = format!(r#"{{"id":"c","model":"mock","choices":[{choice}],"usage":{usage}}}"#);
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n";
        return format!("{head}content-length: {}\r\n\r\n{body}", body.len()).into_bytes();
    }
    let usage = format!(r#"{{"prompt_tokens":{},"completion_tokens":12,"total_tokens":{}}}"#, 100 + made, 112 + made);
    let events = [
        format!(r#"{{"id":"c","model":"mock","choices":[{{"index":0,"delta":{delta},"finish_reason":null}}]}}"#),
        format!(r#"{{"id":"c","model":"mock","choices":[{{"index":0,"delta":{{}},"finish_reason":"{finish}"}}]}}"#),
        format!(r#"{{"id":"c","model":"mock","choices":[],"usage":{usage}}}"#),
        "[DONE]".to_owned(),
    ];
    let body: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n";
    format!("{head}content-length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    memchr::memmem::find(bytes, wanted)
}
