//! A server that says exactly the bytes it is told to say, and remembers what it was asked.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// What was asked.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) path: String,
    /// As they came, one a line.
    pub(crate) headers: String,
    pub(crate) body: String,
}

/// What is said in return.
#[derive(Clone)]
pub(crate) struct Reply {
    head: String,
    body: Vec<u8>,
    then: Then,
}

/// What happens after the last byte.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Then {
    /// The answer is complete, as its length says.
    End,
    /// The connection breaks before the promised length.
    Break,
    /// Nothing more comes, and the connection stays.
    Hang,
    /// Nothing more comes but signs of life.
    Ping,
    /// Nothing more comes but blank lines.
    Blank,
}

impl Reply {
    pub(crate) fn new(status: u16, content_type: &str, body: impl Into<Vec<u8>>) -> Self {
        let head = format!("HTTP/1.1 {status} Status\r\ncontent-type: {content_type}\r\nconnection: close\r\n");
        Reply { head, body: body.into(), then: Then::End }
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

    pub(crate) fn then(mut self, then: Then) -> Self {
        self.then = then;
        self
    }
}

/// A server on a free port. It stops when dropped.
pub(crate) struct Server {
    pub(crate) url: String,
    asked: Arc<Mutex<Vec<Asked>>>,
    /// How many connections the other side has closed while they hung.
    closed: watch::Receiver<usize>,
    task: JoinHandle<()>,
}

impl Server {
    /// Answers the nth request by what `reply` makes of it.
    pub(crate) async fn start(reply: impl Fn(usize, &Asked) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("it is bound"));
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (closed_in, closed) = watch::channel(0);
        let (log, reply) = (asked.clone(), Arc::new(reply));
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (log, reply, closed) = (log.clone(), reply.clone(), closed_in.clone());
                tokio::spawn(async move {
                    if serve(stream, &log, &*reply).await == Some(Then::Hang) {
                        closed.send_modify(|count| *count += 1);
                    }
                });
            }
        });
        Server { url, asked, closed, task }
    }

    /// Always answers the same.
    pub(crate) async fn always(reply: Reply) -> Self {
        Server::start(move |_, _| reply.clone()).await
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().expect("no test panics while it holds this").clone()
    }

    /// Waits until the other side has closed a connection that hangs.
    pub(crate) async fn closed(&mut self) {
        let waited = tokio::time::timeout(rath_test_support::LIMIT, self.closed.wait_for(|count| *count > 0)).await;
        waited.expect("the connection is closed").expect("the server runs");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(
    mut stream: TcpStream,
    log: &Mutex<Vec<Asked>>,
    reply: &(dyn Fn(usize, &Asked) -> Reply + Send + Sync),
) -> Option<Then> {
    let asked = read(&mut stream).await?;
    let nth = {
        let mut log = log.lock().expect("no test panics while it holds this");
        log.push(asked.clone());
        log.len() - 1
    };
    let Reply { head, body, then } = reply(nth, &asked);
    let promised = body.len() + if then == Then::End { 0 } else { 1 << 20 };
    let head = format!("{head}content-length: {promised}\r\n\r\n");
    // The other side may be gone: that is for its test to notice.
    let _ = stream.write_all(head.as_bytes()).await;
    let _ = stream.write_all(&body).await;
    let _ = stream.flush().await;
    let sign: &[u8] = if then == Then::Blank { b"\n" } else { b": still here\n\n" };
    while matches!(then, Then::Ping | Then::Blank) && stream.write_all(sign).await.is_ok() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    if then == Then::Hang {
        let mut rest = [0; 64];
        while matches!(stream.read(&mut rest).await, Ok(read) if read > 0) {}
    }
    Some(then)
}

async fn read(stream: &mut TcpStream) -> Option<Asked> {
    let mut bytes = Vec::new();
    let mut more = [0; 4096];
    loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
            let (first, headers) = head.split_once("\r\n").unwrap_or((&head, ""));
            let length = headers.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
            let body = &bytes[end + 4..];
            if body.len() >= length.unwrap_or_default() {
                return Some(Asked {
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
