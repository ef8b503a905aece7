//! A small HTTP server on loopback, for servers that stand in for others.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use percent_encoding::percent_decode_str;

/// The most bytes of the head and of the body of a request.
const MAX_HEAD_BYTES: u64 = 64 << 10;
const MAX_BODY_BYTES: usize = 256 << 20;

/// A request.
#[derive(Clone, Debug, Default)]
pub(crate) struct HttpRequest {
    pub(crate) method: String,
    /// The path, decoded, without the query.
    pub(crate) path: String,
    pub(crate) query: Vec<(String, String)>,
    /// By names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

/// The answer to a request, which is written as it is made.
pub(crate) struct HttpAnswer<'a> {
    stream: &'a mut TcpStream,
    is_open: bool,
    /// The number of bytes of a streamed body after which the connection is cut.
    pub(crate) cut_after: Option<usize>,
}

type Handler = dyn Fn(&HttpRequest, &mut HttpAnswer<'_>) + Send + Sync;

/// A server that is stopped when it is dropped.
pub(crate) struct HttpServer {
    address: SocketAddr,
    is_stopped: Arc<AtomicBool>,
    connections: Arc<Mutex<Vec<TcpStream>>>,
    accepting: Option<JoinHandle<()>>,
}

impl HttpServer {
    /// Starts a server at a free port. Each connection has a thread.
    pub(crate) fn start(handler: impl Fn(&HttpRequest, &mut HttpAnswer<'_>) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it has an address");
        let (is_stopped, connections) = (Arc::<AtomicBool>::default(), Arc::<Mutex<Vec<TcpStream>>>::default());
        let handler: Arc<Handler> = Arc::new(handler);
        let (stopped, open) = (is_stopped.clone(), connections.clone());
        let accepting = std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if stopped.load(SeqCst) {
                    return;
                }
                let handler = handler.clone();
                if let Ok(copy) = stream.try_clone() {
                    open.lock().unwrap_or_else(PoisonError::into_inner).push(copy);
                }
                std::thread::spawn(move || serve(stream, &*handler));
            }
        });
        HttpServer { address, is_stopped, connections, accepting: Some(accepting) }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.is_stopped.store(true, SeqCst);
        let _ = TcpStream::connect(self.address);
        self.accepting.take().map(JoinHandle::join);
        for connection in self.connections.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }
}

impl HttpRequest {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Returns the values of a parameter of the query.
    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.query.iter().filter(move |(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

impl HttpAnswer<'_> {
    /// Writes a whole answer.
    pub(crate) fn whole(&mut self, status: u16, headers: &[(&str, &str)], body: &[u8]) {
        let length = body.len().to_string();
        let _ = self.head(status, headers, Some(&length)).and_then(|()| self.stream.write_all(body));
    }

    /// Begins an answer whose body follows in pieces.
    pub(crate) fn begin(&mut self, status: u16, headers: &[(&str, &str)]) {
        let _ = self.head(status, headers, None);
    }

    /// Writes a piece of the body. Returns false if the client is gone, or the connection was cut.
    pub(crate) fn piece(&mut self, bytes: &[u8]) -> bool {
        if !self.is_open || bytes.is_empty() {
            return self.is_open;
        }
        let allowed = self.cut_after.map_or(bytes.len(), |rest| rest.min(bytes.len()));
        let piece = [format!("{allowed:x}\r\n").as_bytes(), &bytes[..allowed], b"\r\n"].concat();
        if (allowed > 0 && self.stream.write_all(&piece).is_err()) || allowed < bytes.len() {
            self.cut();
        }
        self.cut_after = self.cut_after.map(|rest| rest - allowed);
        self.is_open
    }

    /// Ends a body in pieces.
    pub(crate) fn end(&mut self) {
        if self.is_open {
            let _ = self.stream.write_all(b"0\r\n\r\n");
        }
    }

    /// Closes the connection.
    pub(crate) fn cut(&mut self) {
        self.is_open = false;
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    fn head(&mut self, status: u16, headers: &[(&str, &str)], length: Option<&str>) -> std::io::Result<()> {
        let mut head = format!("HTTP/1.1 {status} Status\r\n");
        headers.iter().for_each(|(name, value)| head.push_str(&format!("{name}: {value}\r\n")));
        head.push_str(&match length {
            Some(length) => format!("Content-Length: {length}\r\n\r\n"),
            None => "Transfer-Encoding: chunked\r\n\r\n".to_owned(),
        });
        self.stream.write_all(head.as_bytes())
    }
}

/// Answers the requests of one connection.
fn serve(mut stream: TcpStream, handler: &Handler) {
    let Ok(reading) = stream.try_clone() else { return };
    let mut reading = BufReader::new(reading);
    while let Some(request) = read_request(&mut reading) {
        let mut answer = HttpAnswer { stream: &mut stream, is_open: true, cut_after: None };
        handler(&request, &mut answer);
        if !answer.is_open {
            return;
        }
    }
}

/// Reads a request; none at the end of the connection.
fn read_request(reading: &mut BufReader<TcpStream>) -> Option<HttpRequest> {
    let mut line = String::new();
    let mut next_line = |reading: &mut BufReader<TcpStream>| {
        line.clear();
        reading.by_ref().take(MAX_HEAD_BYTES).read_line(&mut line).ok().filter(|read| *read > 0)?;
        Some(line.trim_end().to_owned())
    };
    let first = next_line(reading)?;
    let mut words = first.split(' ');
    let (method, target) = (words.next()?.to_owned(), words.next()?);
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let parameters = query.split('&').filter(|parameter| !parameter.is_empty());
    let query = parameters.map(|parameter| {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        (decode(&name.replace('+', " ")), decode(&value.replace('+', " ")))
    });
    let mut request = HttpRequest { method, path: decode(path), query: query.collect(), ..HttpRequest::default() };
    loop {
        let line = next_line(reading)?;
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_once(':')?;
        request.headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    if request.header("transfer-encoding").is_some_and(|kind| kind.eq_ignore_ascii_case("chunked")) {
        loop {
            let length = usize::from_str_radix(next_line(reading)?.split(';').next()?.trim(), 16).ok()?;
            let mut piece = vec![0; length.min(MAX_BODY_BYTES)];
            reading.read_exact(&mut piece).ok()?;
            request.body.extend_from_slice(&piece);
            next_line(reading)?;
            if length == 0 {
                return Some(request);
            }
        }
    }
    let length = request.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0_usize);
    request.body = vec![0; length.min(MAX_BODY_BYTES)];
    reading.read_exact(&mut request.body).ok()?;
    Some(request)
}

/// Decodes the escapes of a URL.
fn decode(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}
