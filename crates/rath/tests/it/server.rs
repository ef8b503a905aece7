//! A test server that sends given bytes and stores the requests it received.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// A request that the server received.
#[derive(Clone, Debug)]
pub(crate) struct ReceivedRequest {
    pub(crate) path: String,
    /// The headers as they were received, one on each line.
    pub(crate) headers: String,
    pub(crate) body: String,
}

/// A reply of the server.
#[derive(Clone)]
pub(crate) struct Reply {
    head: String,
    body: Vec<u8>,
    after: AfterBody,
}

/// The behaviour after the last byte of the body.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum AfterBody {
    /// The body is complete, as its length says.
    End,
    /// The connection breaks before the promised length.
    Break,
    /// Nothing more is sent, and the connection stays open.
    Hang,
    /// Only keep-alives are sent.
    Ping,
    /// Only blank lines are sent.
    Blank,
    /// One piece of text after another is sent.
    Trickle,
}

impl Reply {
    pub(crate) fn new(status: u16, content_type: &str, body: impl Into<Vec<u8>>) -> Self {
        let head = format!("HTTP/1.1 {status} Status\r\ncontent-type: {content_type}\r\nconnection: close\r\n");
        Reply { head, body: body.into(), after: AfterBody::End }
    }

    pub(crate) fn json(status: u16, body: &str) -> Self {
        Reply::new(status, "application/json", body)
    }

    pub(crate) fn stream(body: impl Into<Vec<u8>>) -> Self {
        Reply::new(200, "text/event-stream", body)
    }

    pub(crate) fn header(mut self, line: &str) -> Self {
        self.head.push_str(&format!("{line}\r\n"));
        self
    }

    pub(crate) fn then(mut self, after: AfterBody) -> Self {
        self.after = after;
        self
    }
}

/// A server on a free port. It stops when dropped.
pub(crate) struct TestServer {
    pub(crate) url: String,
    requests: Arc<Mutex<Vec<ReceivedRequest>>>,
    /// The number of hanging connections that the client has closed.
    closed: watch::Receiver<usize>,
    task: JoinHandle<()>,
}

impl TestServer {
    /// Starts a server that answers the nth request with `reply`.
    pub(crate) async fn start(reply: impl Fn(usize, &ReceivedRequest) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("it is bound"));
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (closed_in, closed) = watch::channel(0);
        let (log, reply) = (requests.clone(), Arc::new(reply));
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (log, reply, closed) = (log.clone(), reply.clone(), closed_in.clone());
                tokio::spawn(async move {
                    if serve(stream, &log, &*reply).await == Some(AfterBody::Hang) {
                        closed.send_modify(|count| *count += 1);
                    }
                });
            }
        });
        TestServer { url, requests, closed, task }
    }

    /// Starts a server that always sends the same reply.
    pub(crate) async fn always(reply: Reply) -> Self {
        TestServer::start(move |_, _| reply.clone()).await
    }

    pub(crate) fn requests(&self) -> Vec<ReceivedRequest> {
        self.requests.lock().expect("no test panics while it holds this").clone()
    }

    /// Waits until the client has closed a connection that hangs.
    pub(crate) async fn wait_closed(&mut self) {
        let waited = tokio::time::timeout(rath_test_support::LIMIT, self.closed.wait_for(|count| *count > 0)).await;
        waited.expect("the connection is closed").expect("the server runs");
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(
    mut stream: TcpStream,
    log: &Mutex<Vec<ReceivedRequest>>,
    reply: &(dyn Fn(usize, &ReceivedRequest) -> Reply + Send + Sync),
) -> Option<AfterBody> {
    let request = read_request(&mut stream).await?;
    let nth = {
        let mut log = log.lock().expect("no test panics while it holds this");
        log.push(request.clone());
        log.len() - 1
    };
    let Reply { head, body, after } = reply(nth, &request);
    let length = body.len() + if after == AfterBody::End { 0 } else { 1 << 20 };
    let head = format!("{head}content-length: {length}\r\n\r\n");
    // The client may be gone, which its test will notice.
    let _ = stream.write_all(head.as_bytes()).await;
    let _ = stream.write_all(&body).await;
    let _ = stream.flush().await;
    let repeated: Option<&[u8]> = match after {
        AfterBody::Ping => Some(b": still here\n\n"),
        AfterBody::Blank => Some(b"\n"),
        AfterBody::Trickle => Some(b"data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\n"),
        AfterBody::End | AfterBody::Break | AfterBody::Hang => None,
    };
    while let Some(repeated) = repeated
        && stream.write_all(repeated).await.is_ok()
    {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    if after == AfterBody::Hang {
        let mut rest = [0; 64];
        while matches!(stream.read(&mut rest).await, Ok(read) if read > 0) {}
    }
    Some(after)
}

async fn read_request(stream: &mut TcpStream) -> Option<ReceivedRequest> {
    let mut bytes = Vec::new();
    let mut more = [0; 4096];
    loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
            let (first, headers) = head.split_once("\r\n").unwrap_or((&head, ""));
            let length = headers.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
            let body = &bytes[end + 4..];
            if body.len() >= length.unwrap_or_default() {
                return Some(ReceivedRequest {
                    path: first.split(' ').nth(1).unwrap_or_default().to_owned(),
                    headers: headers.to_owned(),
                    body: String::from_utf8_lossy(body).into_owned(),
                });
            }
        }
        match stream.read(&mut more).await {
            Ok(read) if read > 0 => bytes.extend_from_slice(&more[..read]),
            _ => return None,
        }
    }
}
