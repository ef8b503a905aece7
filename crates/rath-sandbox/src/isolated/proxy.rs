//! A proxy through which isolated commands reach some hosts, and no others.
//!
//! The commands have a network namespace with a loopback interface only. The supervisor opens a socket in there and hands it to
//! this program, which accepts connections on it, compares the host that is asked for, and connects from its own namespace.
//! Names are resolved here, so the commands need no resolver. A connection leads to an address that was checked, even if the
//! name has another one a moment later.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener as StdListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType, bind, listen, recvmsg, sendmsg, socket_with, socketpair,
};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream, lookup_host};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;

use super::hosts::AllowedHosts;
use crate::process::register;

/// The port of the proxy. The network namespace of a command is new, so every port is free there.
const PORT: u16 = 4128;
/// The number of connections at the same time.
const MAX_CONNECTIONS: usize = 128;
/// The size of the largest request head, in bytes.
const MAX_HEAD_BYTES: usize = 32 * 1024;
/// The time in which a request has to arrive.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// The time in which a connection to one address has to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);

/// The variables that tell programs to use the proxy.
pub(super) fn variables() -> Vec<(String, String)> {
    let proxy = format!("http://127.0.0.1:{PORT}");
    let names = ["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"];
    let direct = ["no_proxy", "NO_PROXY"].map(|name| (name.to_owned(), "localhost,127.0.0.1,::1".to_owned()));
    names.into_iter().map(|name| (name.to_owned(), proxy.clone())).chain(direct).collect()
}

/// A proxy that is about to run. It ends when it is dropped.
pub(crate) struct Proxy {
    task: AbortHandle,
    /// The end of a pair of sockets through which the supervisor hands over the listening socket.
    supervisor_end: OwnedFd,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Proxy {
    /// Starts a proxy for one command.
    pub(crate) fn start(hosts: Arc<AllowedHosts>) -> io::Result<Self> {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?;
        // Above the descriptors of stdio, which the supervisor replaces.
        let theirs = rustix::io::fcntl_dupfd_cloexec(theirs.as_fd(), 3)?;
        let ours = register(ours, Interest::READABLE)?;
        let task = tokio::spawn(async move {
            // Without a listening socket the command was not started.
            if let Ok(Some(listener)) = receive(ours).await {
                serve(listener, hosts).await;
            }
        });
        Ok(Proxy { task: task.abort_handle(), supervisor_end: theirs })
    }

    pub(crate) fn supervisor_end(&self) -> BorrowedFd<'_> {
        self.supervisor_end.as_fd()
    }
}

/// Opens the listening socket, and hands it to this program. Called in the supervisor: system calls only.
pub(crate) fn offer_listener(socket: BorrowedFd<'_>) -> Result<(), Errno> {
    let listener = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    bind(&listener, &SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), PORT))?;
    listen(&listener, 64)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let listeners = [listener.as_fd()];
    control.push(SendAncillaryMessage::ScmRights(&listeners));
    sendmsg(socket, &[io::IoSlice::new(b"l")], &mut control, SendFlags::NOSIGNAL).map(drop)
}

/// Waits for the listening socket; none if the supervisor ended before.
async fn receive(socket: AsyncFd<OwnedFd>) -> io::Result<Option<TcpListener>> {
    loop {
        let mut ready = socket.readable().await?;
        let received = ready.try_io(|socket| {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            recvmsg(socket.get_ref(), &mut [IoSliceMut::new(&mut [0; 1])], &mut control, RecvFlags::CMSG_CLOEXEC)?;
            let listener = control.drain().find_map(|message| match message {
                RecvAncillaryMessage::ScmRights(mut listeners) => listeners.next(),
                _ => None,
            });
            Ok(listener)
        });
        match received {
            Err(_) => {}
            Ok(Err(error)) => return Err(error),
            Ok(Ok(None)) => return Ok(None),
            Ok(Ok(Some(listener))) => {
                let listener = StdListener::from(listener);
                listener.set_nonblocking(true)?;
                return TcpListener::from_std(listener).map(Some);
            }
        }
    }
}

async fn serve(listener: TcpListener, hosts: Arc<AllowedHosts>) {
    let mut connections = JoinSet::new();
    loop {
        while connections.len() >= MAX_CONNECTIONS {
            connections.join_next().await;
        }
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((client, _)) => _ = connections.spawn(handle(client, hosts.clone())),
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Serves one connection of a command: one request, or one tunnel.
async fn handle(mut client: TcpStream, hosts: Arc<AllowedHosts>) {
    let answer = match timeout(HEAD_TIMEOUT, read_head(&mut client)).await {
        Ok(Ok(Some((head, rest)))) => match Request::parse(&head) {
            Some(request) => request.forward(&mut client, rest, &hosts).await,
            None => Err(Refusal { status: "400 Bad Request", why: "this is a proxy for HTTP".to_owned() }),
        },
        _ => return,
    };
    if let Err(Refusal { status, why }) = answer {
        let body = format!("rath: {why}\n");
        let head = format!("HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n", body.len());
        let _ = client.write_all(format!("{head}Connection: close\r\n\r\n{body}").as_bytes()).await;
        let _ = client.shutdown().await;
    }
}

/// Reads the head of a request, and what follows it already.
async fn read_head(client: &mut TcpStream) -> io::Result<Option<(String, Vec<u8>)>> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            let rest = bytes.split_off(end + 4);
            return Ok(String::from_utf8(bytes).ok().map(|head| (head, rest)));
        }
        if bytes.len() > MAX_HEAD_BYTES {
            return Ok(None);
        }
        match client.read(&mut buffer).await? {
            0 => return Ok(None),
            read => bytes.extend_from_slice(&buffer[..read]),
        }
    }
}

/// A request that is not forwarded.
struct Refusal {
    status: &'static str,
    why: String,
}

impl Refusal {
    fn gateway(error: impl std::fmt::Display) -> Self {
        Refusal { status: "502 Bad Gateway", why: error.to_string() }
    }
}

/// The head of a request to the proxy.
///
/// The server gets a head that is written from these parts alone, and no part contains the end of a line: the server reads the
/// request that was compared, and one request only.
#[derive(Debug, PartialEq)]
struct Request<'a> {
    method: &'a str,
    host: &'a str,
    port: u16,
    /// The path of a plain request; none for a tunnel.
    path: Option<String>,
    headers: Vec<(&'a str, &'a str)>,
}

impl<'a> Request<'a> {
    fn parse(head: &'a str) -> Option<Self> {
        let mut lines = head.strip_suffix("\r\n\r\n")?.split("\r\n");
        let mut words = lines.next()?.split(' ');
        let (method, target, version) = (words.next()?, words.next()?, words.next()?);
        if !["HTTP/1.0", "HTTP/1.1"].contains(&version) || words.next().is_some() {
            return None;
        }
        let header = |line: &'a str| line.split_once(':').map(|(name, value)| (name, value.trim_matches([' ', '\t'])));
        let headers: Vec<(&str, &str)> = lines.map(header).collect::<Option<_>>()?;
        // Servers differ in what they take for the end of a line, and in what they make of other controls.
        let is_value = |value: &str| !value.chars().any(|it| it.is_control() && it != '\t');
        let is_target = !target.is_empty() && target.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_token(method) || !is_target || !headers.iter().all(|(name, value)| is_token(name) && is_value(value)) {
            return None;
        }
        let (authority, path, default_port) = match target.strip_prefix("http://") {
            _ if method == "CONNECT" => (target, None, None),
            Some(rest) => {
                let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
                // A fragment is not for the server.
                let path = rest[end..].split('#').next().unwrap_or_default();
                let slash = if path.starts_with('/') { "" } else { "/" };
                (&rest[..end], Some(format!("{slash}{path}")), Some(80))
            }
            None => return None,
        };
        let (host, port) = split_authority(authority)?;
        let port = port.or(default_port)?;
        Some(Request { method, host, port, path, headers })
    }

    /// Returns the number of bytes that follow the head; none if the request does not say it plainly.
    fn body_bytes(&self) -> Option<u64> {
        let values = |wanted: &'static str| {
            self.headers.iter().filter(move |(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| *value)
        };
        if values("transfer-encoding").next().is_some() {
            return None;
        }
        let mut lengths = values("content-length");
        match (lengths.next(), lengths.next()) {
            (None, _) => Some(0),
            // Digits alone: `+5` is a number to some, and an error to others.
            (Some(length), None) if length.bytes().all(|byte| byte.is_ascii_digit()) => length.parse().ok(),
            _ => None,
        }
    }

    /// Connects to the host, if it is allowed, and passes on the request and the answer.
    async fn forward(&self, client: &mut TcpStream, rest: Vec<u8>, hosts: &AllowedHosts) -> Result<(), Refusal> {
        let mut server = self.connect(hosts).await?;
        let Some(path) = &self.path else {
            client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await.map_err(Refusal::gateway)?;
            server.write_all(&rest).await.map_err(Refusal::gateway)?;
            let _ = copy_bidirectional(client, &mut server).await;
            return Ok(());
        };
        let length = "the length of a request has to be in `Content-Length`";
        let length = self.body_bytes().ok_or(Refusal { status: "411 Length Required", why: length.to_owned() })?;
        let head = self.plain_head(path);
        let pass_on = async {
            server.write_all(head.as_bytes()).await?;
            // Not a byte more than this request: the next one might be for another host.
            let first = rest.len().min(usize::try_from(length).unwrap_or(usize::MAX));
            server.write_all(&rest[..first]).await?;
            let mut body = (&mut *client).take(length - first as u64);
            tokio::io::copy(&mut body, &mut server).await?;
            tokio::io::copy(&mut server, client).await?;
            client.shutdown().await
        };
        let _: io::Result<()> = pass_on.await;
        Ok(())
    }

    /// Returns the head for the server: for its host alone, and for one request.
    fn plain_head(&self, path: &str) -> String {
        let own = ["host", "connection", "proxy-connection", "proxy-authorization", "keep-alive", "upgrade"];
        let kept = self.headers.iter().filter(|(name, _)| !own.iter().any(|own| name.eq_ignore_ascii_case(own)));
        let kept: String = kept.map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.to_owned() };
        let port = if self.port == 80 { String::new() } else { format!(":{}", self.port) };
        format!("{} {path} HTTP/1.1\r\nHost: {host}{port}\r\nConnection: close\r\n{kept}\r\n", self.method)
    }

    async fn connect(&self, hosts: &AllowedHosts) -> Result<TcpStream, Refusal> {
        let (host, port) = (self.host, self.port);
        let reach = hosts.reach(host, port).ok_or_else(|| {
            let allowed = hosts.names().join(", ");
            Refusal { status: "403 Forbidden", why: format!("{host}:{port} is not among the allowed hosts: {allowed}") }
        })?;
        let addresses = lookup_host((host, port)).await.map_err(Refusal::gateway)?;
        let mut last = Refusal { status: "403 Forbidden", why: format!("{host} has no address that may be reached") };
        for address in addresses.filter(|address| reach.includes(address.ip())) {
            match timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await {
                Ok(Ok(server)) => return Ok(server),
                Ok(Err(error)) => last = Refusal::gateway(format_args!("cannot connect to {host}:{port}: {error}")),
                Err(_) => last = Refusal::gateway(format_args!("{host}:{port} does not answer")),
            }
        }
        Err(last)
    }
}

/// Returns true for the characters of a method or of the name of a header (`token` in RFC 9110).
fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

/// Splits `host:port`. User names are refused: what stands before an `@` can look like the host.
fn split_authority(authority: &str) -> Option<(&str, Option<u16>)> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => match rest.split_once(']')? {
            (host, "") => (host, None),
            (host, port) => (host, Some(port.strip_prefix(':')?)),
        },
        None => authority.split_once(':').map_or((authority, None), |(host, port)| (host, Some(port))),
    };
    let is_plain = |it: char| it.is_ascii_alphanumeric() || "-._:".contains(it);
    if host.is_empty() || !host.chars().all(is_plain) {
        return None;
    }
    match port {
        None | Some("") => Some((host, None)),
        Some(port) if port.bytes().all(|byte| byte.is_ascii_digit()) => Some((host, Some(port.parse().ok()?))),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_names_one_host() {
        let host =
            |head: &str| Request::parse(head).map(|it| format!("{} {}:{} {:?}", it.method, it.host, it.port, it.path));
        for (head, expected) in [
            ("CONNECT a.com:443 HTTP/1.1\r\nHost: b.com\r\n\r\n", Some("CONNECT a.com:443 None")),
            ("CONNECT [::1]:443 HTTP/1.1\r\n\r\n", Some("CONNECT ::1:443 None")),
            ("GET http://a.com/x?y HTTP/1.1\r\nHost: b.com\r\n\r\n", Some("GET a.com:80 Some(\"/x?y\")")),
            ("GET http://a.com:81 HTTP/1.0\r\n\r\n", Some("GET a.com:81 Some(\"/\")")),
            ("GET http://a.com@b.com/ HTTP/1.1\r\n\r\n", None),
            ("GET http://a.com\\@b.com/ HTTP/1.1\r\n\r\n", None),
            ("GET /x HTTP/1.1\r\nHost: a.com\r\n\r\n", None),
            ("GET https://a.com/ HTTP/1.1\r\n\r\n", None),
            ("CONNECT a.com HTTP/1.1\r\n\r\n", None),
            ("CONNECT a.com:x HTTP/1.1\r\n\r\n", None),
            ("CONNECT a.com:443 b HTTP/1.1\r\n\r\n", None),
            ("GET http://a.com/ HTTP/1.1\r\n x: y\r\n\r\n", None),
            ("GET http://a.com/ HTTP/1.1\r\nx\r\n\r\n", None),
            ("GET http://a.com/ HTTP/2\r\n\r\n", None),
            ("\r\n\r\n", None),
            // What a server may read differently.
            ("GET http://a.com/ HTTP/1.1\r\nX: a\n\nGET /second HTTP/1.1\nHost: b.com\r\n\r\n", None),
            ("GET http://a.com/\nHost:b.com HTTP/1.1\r\n\r\n", None),
            ("GET http://a.com/ HTTP/1.1\r\nX: a\nTransfer-Encoding: chunked\r\n\r\n", None),
            ("GET http://a.com/ HTTP/1.1\r\nX: a\rHost: b.com\r\n\r\n", None),
            ("GET http://a.com/ HTTP/1.1\r\nX: a\0\r\n\r\n", None),
            ("GET http://a.com/ HTTP/1.1\r\nX: a\u{b}b\r\n\r\n", None),
            ("GET http://a.com/ HTTP/1.1\r\nX: a\u{7f}\r\n\r\n", None),
            ("GET http://a.com/ HTTP/1.1\r\nX: a\u{85}b\r\n\r\n", None),
            ("GET http://a.com/ HTTP/1.1\r\nX : a\r\n\r\n", None),
            ("GET http://a.com/ HTTP/1.1\r\nX\u{e9}: a\r\n\r\n", None),
            ("GET http://a.com/ HTTP/1.1\r\nX(): a\r\n\r\n", None),
            ("G\nX http://a.com/ HTTP/1.1\r\n\r\n", None),
            ("G,T http://a.com/ HTTP/1.1\r\n\r\n", None),
            (" http://a.com/ HTTP/1.1\r\n\r\n", None),
            ("GET http://a.com/\tx HTTP/1.1\r\n\r\n", None),
            ("GET http://a.com/\u{e9} HTTP/1.1\r\n\r\n", None),
            ("GET http://a.com/ HTTP/1.10\r\n\r\n", None),
            ("GET http://a.com/ HTTP/1.1\n\r\n\r\n", None),
            ("GET http://a.com:+80/ HTTP/1.1\r\n\r\n", None),
            ("GET http://[::1]x:80/ HTTP/1.1\r\n\r\n", None),
            ("CONNECT a.com:0443x HTTP/1.1\r\n\r\n", None),
            ("GET http://a.com/ HTTP/1.1\r\nX: a\tb\r\n\r\n", Some("GET a.com:80 Some(\"/\")")),
            ("GET http://a.com/ HTTP/1.1\r\nX:\r\n\r\n", Some("GET a.com:80 Some(\"/\")")),
            ("GET http://a.com?q#f HTTP/1.1\r\n\r\n", Some("GET a.com:80 Some(\"/?q\")")),
        ] {
            assert_eq!(host(head).as_deref(), expected, "{head:?}");
        }
    }

    #[test]
    fn the_server_is_told_the_host_that_was_compared() {
        let head = "GET http://a.com:81/x HTTP/1.1\r\nhost: b.com\r\nProxy-Authorization: x\r\nAccept: */*\r\n\r\n";
        let request = Request::parse(head).expect("a request");
        let expected = "GET /x HTTP/1.1\r\nHost: a.com:81\r\nConnection: close\r\nAccept: */*\r\n\r\n";
        assert_eq!(request.plain_head(request.path.as_deref().expect("a path")), expected);
        for (headers, bytes) in [
            ("", Some(0)),
            ("Content-Length: 5\r\n", Some(5)),
            ("Content-Length: 5\r\ncontent-length: 5\r\n", None),
            ("Content-Length: x\r\n", None),
            ("Content-Length: +5\r\n", None),
            ("Content-Length: 5, 5\r\n", None),
            ("Content-Length:\r\n", None),
            ("Content-Length: 99999999999999999999\r\n", None),
            ("Transfer-Encoding: chunked\r\n", None),
        ] {
            let head = format!("POST http://a.com/ HTTP/1.1\r\n{headers}\r\n");
            assert_eq!(Request::parse(&head).expect("a request").body_bytes(), bytes, "{headers}");
        }
    }
}
