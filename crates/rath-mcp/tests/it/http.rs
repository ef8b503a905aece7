//! Servers that are reached by HTTP.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use rath::tool::ToolSource;
use rath_mcp::{McpServers, Places, ServerConfig};
use serde_json::{Value, json};

use super::{block_on, call};

/// The ways in which a server answers.
#[derive(Default)]
struct Behavior {
    /// The number of sessions so far. Only the last one is known.
    sessions: usize,
    /// The status of an answer to a session that is not known; 404 if it is 0.
    forgotten_status: u16,
    /// Answers of certain methods: the media type and the body, in which ID stands for the id of the request.
    answers: HashMap<&'static str, (&'static str, String)>,
    /// The status of these answers; 200 if it is 0.
    answer_status: u16,
    /// The methods that were asked for.
    asked: Vec<String>,
}

/// A server on a thread of its own. It runs until the test ends.
struct HttpFixture {
    port: u16,
    behavior: Arc<Mutex<Behavior>>,
}

impl HttpFixture {
    fn new(behavior: Behavior) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let behavior = Arc::new(Mutex::new(behavior));
        let shared = behavior.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = shared.clone();
                std::thread::spawn(move || answer(stream, &shared));
            }
        });
        HttpFixture { port, behavior }
    }

    fn servers(&self) -> McpServers {
        let config = ServerConfig::http("srv", format!("http://127.0.0.1:{}/mcp", self.port)).expect("valid");
        McpServers::new([config], Places::in_directory("./")).expect("valid")
    }

    fn with<T>(&self, act: impl FnOnce(&mut Behavior) -> T) -> T {
        act(&mut self.behavior.lock().expect("no panic"))
    }
}

/// Answers the one request of a connection.
fn answer(stream: TcpStream, behavior: &Mutex<Behavior>) {
    let mut reader = BufReader::new(stream);
    let (mut line, mut length, mut session) = (String::new(), 0, None);
    reader.read_line(&mut line).expect("a request");
    let is_post = line.starts_with("POST");
    loop {
        line.clear();
        reader.read_line(&mut line).expect("a header");
        let Some((name, value)) = line.trim().split_once(": ") else { break };
        match &*name.to_ascii_lowercase() {
            "content-length" => length = value.parse().expect("a number"),
            "mcp-session-id" => session = Some(value.to_owned()),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).expect("a body");
    let (status, media_type, body) = match serde_json::from_slice(&body) {
        Ok(request) if is_post => respond(&request, session.as_deref(), &mut behavior.lock().expect("no panic")),
        _ => (405, "text/plain", String::new()),
    };
    let session = behavior.lock().expect("no panic").sessions;
    let mut stream = reader.into_inner();
    let head = format!(
        "HTTP/1.1 {status} x\r\ncontent-type: {media_type}\r\nmcp-session-id: s{session}\r\ncontent-length: {}\r\n\
         connection: close\r\n\r\n",
        body.len()
    );
    let _ = stream.write_all(&[head.as_bytes(), body.as_bytes()].concat());
}

fn respond(request: &Value, session: Option<&str>, behavior: &mut Behavior) -> (u16, &'static str, String) {
    const JSON: &str = "application/json";
    let method = request["method"].as_str().unwrap_or_default();
    let id = &request["id"];
    behavior.asked.push(method.to_owned());
    let error = |message: &str| json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32000, "message": message}});
    if let Some(session) = session
        && session != format!("s{}", behavior.sessions)
    {
        return match behavior.forgotten_status {
            0 => (404, "text/plain", "not found".to_owned()),
            status => (status, JSON, error("Bad Request: No valid session ID provided").to_string()),
        };
    }
    if let Some((media_type, body)) = behavior.answers.get(method) {
        let status = if behavior.answer_status == 0 { 200 } else { behavior.answer_status };
        return (status, media_type, body.replace("ID", &id.to_string()));
    }
    let result = match method {
        "initialize" => {
            behavior.sessions += 1;
            json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {"listChanged": true}},
                "serverInfo": {"name": "test", "version": "1"}})
        }
        "tools/list" => json!({"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}),
        "tools/call" => json!({"content": [{"type": "text", "text": "echo"}]}),
        _ if id.is_null() => return (202, JSON, String::new()),
        _ => return (400, JSON, error("unknown method").to_string()),
    };
    (200, JSON, json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string())
}

#[test]
fn a_server_that_forgot_its_session_is_started_again() {
    for status in [0, 400] {
        let fixture = HttpFixture::new(Behavior { forgotten_status: status, ..Behavior::default() });
        let servers = fixture.servers();
        block_on(async {
            assert_eq!(call(&servers, "srv__echo", json!({})).await, "echo");
            fixture.with(|behavior| behavior.sessions += 1);
            let failed = call(&servers, "srv__echo", json!({})).await;
            assert_eq!(failed, "the server `srv`: it has ended (it does not know the session any more); []");
            let note = "the server `srv` was started again: it had ended (it does not know the session any more)";
            assert_eq!(servers.list().await.notes, [note]);
            assert_eq!(call(&servers, "srv__echo", json!({})).await, "echo");
        });
    }
}

#[test]
fn a_broken_answer_is_described_without_the_names_of_types() {
    for (media_type, body, expected) in [
        ("text/html", "<p>", "its answer is not JSON but `text/html`"),
        ("application/json", "{", "its answer is not valid: EOF while parsing an object at line 1 column 1"),
    ] {
        let answers = HashMap::from([("tools/call", (media_type, body.to_owned()))]);
        let fixture = HttpFixture::new(Behavior { answers, ..Behavior::default() });
        let text = block_on(call(&fixture.servers(), "srv__echo", json!({})));
        assert_eq!(text, format!("the server `srv`: {expected}; []"));
    }
    let config = ServerConfig::http("srv", "http://127.0.0.1:1/mcp").expect("valid");
    let servers = McpServers::new([config], Places::in_directory("./")).expect("valid");
    let error = block_on(servers.connect()).remove(0).protocol.expect_err("nothing listens");
    let expected = "the server `srv`: it could not be started: it cannot be reached: Connection refused (os error 111)";
    assert_eq!(error.to_string(), format!("{expected} at 127.0.0.1:1"));
}

/// The call would wait for its time limit: nothing else can answer it.
#[test]
fn a_response_without_the_answer_is_an_error_at_once() {
    let result = r#"{"content": []}"#;
    for (status, body) in [
        (202, String::new()),
        (204, String::new()),
        (200, format!(r#"{{"jsonrpc": "2.0", "id": 4711, "result": {result}}}"#)),
        (200, format!(r#"{{"jsonrpc": "2.0", "id": "ID", "result": {result}}}"#)),
        (200, r#"{"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}"#.to_owned()),
        (200, r#"{"jsonrpc": "2.0", "id": ID, "method": "ping"}"#.to_owned()),
    ] {
        let answers = HashMap::from([("tools/call", ("application/json", body.clone()))]);
        let fixture = HttpFixture::new(Behavior { answers, answer_status: status, ..Behavior::default() });
        let text = block_on(call(&fixture.servers(), "srv__echo", json!({})));
        assert_eq!(text, "the server `srv`: its response holds no answer to the request; []", "{status} {body}");
    }
}

#[test]
fn an_event_that_cannot_be_read_is_an_error_at_once() {
    let many = format!(r#"{{"jsonrpc":"2.0","id":ID,"result":{{"content":[{}0]}}}}"#, "0,".repeat(300_000));
    for (answer, expected) in [
        (r#"{"jsonrpc":"2.0","id":ID,"result":7,"error":8}"#, "its answer is not valid: "),
        (&many, "its answer has more than 262144 values"),
    ] {
        for media_type in ["text/event-stream", "application/json"] {
            let body =
                if media_type == "text/event-stream" { format!("data: {answer}\n\n") } else { answer.to_owned() };
            let answers = HashMap::from([("tools/call", (media_type, body))]);
            let fixture = HttpFixture::new(Behavior { answers, ..Behavior::default() });
            let text = block_on(call(&fixture.servers(), "srv__echo", json!({})));
            assert!(text.starts_with(&format!("the server `srv`: {expected}")), "{media_type}: {text}");
        }
    }
}

/// An error is the answer to its request, whatever id it has, and ends the connection only if the session is not known.
#[test]
fn an_error_with_a_status_is_the_answer_to_its_request() {
    let forgotten = "it has ended (it does not know the session any more)";
    for (status, id, code, message, expected) in [
        (400, "null", -32602, "wrong", "it refuses: wrong (error -32602)"),
        (400, r#""another""#, -32602, "wrong", "it refuses: wrong (error -32602)"),
        (500, "null", -32603, "wrong", "it refuses: wrong (error -32603)"),
        (200, "null", -32603, "wrong", "it refuses: wrong (error -32603)"),
        (400, "ID", -32602, "unknown session", "it refuses: unknown session (error -32602)"),
        (400, "ID", -32000, "the session is busy", "it refuses: the session is busy (error -32000)"),
        (400, "null", -32000, "Bad Request: No valid session ID provided", forgotten),
        (400, "ID", -32001, "Session not found", forgotten),
        (400, "null", -32600, "the session has expired", forgotten),
    ] {
        let error = json!({"code": code, "message": message});
        let body = format!(r#"{{"jsonrpc": "2.0", "id": {id}, "error": {error}}}"#);
        let answers = HashMap::from([("tools/call", ("application/json", body))]);
        let fixture = HttpFixture::new(Behavior { answers, answer_status: status, ..Behavior::default() });
        let config = ServerConfig::http("srv", format!("http://127.0.0.1:{}/mcp", fixture.port)).expect("valid");
        let mut places = Places::in_directory("./");
        places.limits.call = std::time::Duration::from_secs(20);
        let servers = McpServers::new([config], places).expect("valid");
        let text = block_on(call(&servers, "srv__echo", json!({})));
        assert_eq!(text, format!("the server `srv`: {expected}; []"), "{status} {id} {code} {message}");
    }
}
