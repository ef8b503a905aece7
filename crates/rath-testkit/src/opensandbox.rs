//! A server that stands in for OpenSandbox, on loopback.
//!
//! It is written from the published descriptions of the two interfaces, and checks every request against them: a request that the
//! descriptions do not allow is answered with an error, and fails the test when the server is dropped. Commands and files are real,
//! in a temporary directory for each sandbox, which is the home directory of its commands; nothing confines them.
//!
//! ```
//! use rath_testkit::opensandbox::StandIn;
//!
//! let server = StandIn::start();
//! assert!(server.address().starts_with("http://127.0.0.1:"));
//! assert!(server.sandboxes().is_empty());
//! ```

mod execd;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rath::record::Timestamp;
use rath::sandbox::TempDir;
use serde_json::{Value, json};

use self::execd::Execd;
use crate::body::{Kind, Member, wrong_member};
use crate::http::{HttpAnswer, HttpRequest, HttpServer};

/// The key that the server wants.
const KEY: &str = "stand-in-key-5f2e91";
/// The port at which commands and files of a sandbox are reached.
const EXECD_PORT: &str = "44772";

/// A server that stands in for OpenSandbox. Dropping it stops it, with all processes of its sandboxes.
///
/// # Panics
///
/// When it is dropped, if a request was not as the descriptions of the interfaces say.
pub struct StandIn {
    server: Option<HttpServer>,
    address: String,
    state: Arc<State>,
}

/// A failure that a request meets.
///
/// Passed to [`StandIn::fail`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The request is done, and the connection is cut before the answer.
    NoAnswer,
    /// The connection is cut before anything is done.
    Cut,
    /// The request is done, and the connection is cut after so many bytes of the answer, if it is a stream.
    CutAfter(usize),
    /// Nothing is done, and the answer has this status.
    Status(u16),
    /// The request waits for so long before it is done.
    Wait(Duration),
}

/// A sandbox of the server, as a test sees it.
///
/// Returned by [`StandIn::sandboxes`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct StandInSandbox {
    /// The id.
    pub id: String,
    /// The state, such as `Running`.
    pub state: String,
    /// The home directory of its commands.
    pub home: PathBuf,
    /// The request that created it.
    pub request: Value,
    /// The number of times that its end was moved.
    pub renewals: u32,
}

struct State {
    sandboxes: Mutex<BTreeMap<String, SandboxEntry>>,
    faults: Mutex<Vec<(String, Fault)>>,
    violations: Mutex<Vec<String>>,
    log: Mutex<Vec<String>>,
    next_id: Mutex<u32>,
}

struct SandboxEntry {
    seen: StandInSandbox,
    expires: Option<SystemTime>,
    created: SystemTime,
    execd: Arc<Execd>,
    _directory: TempDir,
}

const CREATE: &[Member] = &[
    ("image", Kind::Object(&[("uri", Kind::Name, true), ("auth", Kind::Any, false)]), false),
    ("snapshotId", Kind::Text, false),
    ("platform", Kind::Object(&[("os", Kind::Text, true), ("arch", Kind::Text, true)]), false),
    ("timeout", Kind::Number(60), false),
    ("resourceLimits", Kind::TextMap, false),
    ("resourceRequests", Kind::TextMap, false),
    ("env", Kind::TextMap, false),
    ("metadata", Kind::TextMap, false),
    ("entrypoint", Kind::Texts, false),
    ("networkPolicy", Kind::Object(POLICY), false),
    ("secureAccess", Kind::Bool, false),
    ("volumes", Kind::Any, false),
    ("extensions", Kind::TextMap, false),
    ("lifecycle", Kind::Any, false),
    ("credentialProxy", Kind::Any, false),
];
const POLICY: &[Member] = &[
    ("defaultAction", Kind::Text, false),
    ("egress", Kind::Objects(&[("action", Kind::Text, true), ("target", Kind::Name, true)]), false),
];
const RENEW: &[Member] = &[("expiresAt", Kind::Name, true)];

/// An answer: its status, and its JSON if it has a body.
type StatusAndBody = (u16, Option<Value>);

impl StandIn {
    /// Starts a server at a free port.
    pub fn start() -> Self {
        let state = Arc::new(State {
            sandboxes: Mutex::default(),
            faults: Mutex::default(),
            violations: Mutex::default(),
            log: Mutex::default(),
            next_id: Mutex::default(),
        });
        let handled = state.clone();
        let server = HttpServer::start(move |request, answer| handled.handle(request, answer));
        let address = format!("http://{}", server.address());
        StandIn { server: Some(server), address, state }
    }

    /// Returns the address of the server.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Returns the key that the server wants.
    pub fn key(&self) -> &'static str {
        KEY
    }

    /// Lets the next request fail whose method and path contain this text, such as `POST /command`. Faults for one text are met one after
    /// the other.
    pub fn fail(&self, request: &str, fault: Fault) {
        lock(&self.state.faults).push((request.to_owned(), fault));
    }

    /// Returns the sandboxes that there are.
    pub fn sandboxes(&self) -> Vec<StandInSandbox> {
        lock(&self.state.sandboxes).values().map(|entry| entry.seen.clone()).collect()
    }

    /// Returns the directories for files of commands that were not removed, in all sandboxes.
    pub fn command_dirs(&self) -> Vec<PathBuf> {
        lock(&self.state.sandboxes).values().flat_map(|entry| entry.execd.command_dirs()).collect()
    }

    /// Removes all sandboxes, as if their time were over.
    pub fn expire(&self) {
        self.state.remove(None);
    }

    /// Returns the requests so far, each as its method and path.
    pub fn log(&self) -> Vec<String> {
        lock(&self.state.log).clone()
    }

    /// Returns what was wrong with requests, and forgets it.
    pub fn take_violations(&self) -> Vec<String> {
        std::mem::take(&mut *lock(&self.state.violations))
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        self.state.remove(None);
        drop(self.server.take());
        let violations = self.take_violations();
        if !std::thread::panicking() {
            assert!(violations.is_empty(), "requests that OpenSandbox does not describe: {violations:#?}");
        }
    }
}

impl State {
    fn handle(&self, request: &HttpRequest, answer: &mut HttpAnswer<'_>) {
        let line = format!("{} {}", request.method, request.path);
        lock(&self.log).push(line.clone());
        let fault = {
            let mut faults = lock(&self.faults);
            let nth = faults.iter().position(|(text, _)| line.contains(text));
            nth.map(|nth| faults.remove(nth).1)
        };
        match fault {
            Some(Fault::Cut) => return answer.cut(),
            Some(Fault::Status(status)) => {
                return respond(
                    answer,
                    (status, Some(json!({"code": "FAULT", "message": format!("as asked for, with {KEY}")}))),
                );
            }
            Some(Fault::Wait(time)) => std::thread::sleep(time),
            Some(Fault::CutAfter(bytes)) => answer.cut_after = Some(bytes),
            Some(Fault::NoAnswer) | None => {}
        }
        let parts: Vec<&str> = request.path.trim_start_matches('/').split('/').collect();
        let answered = match parts[..] {
            ["direct", id, "proxy", EXECD_PORT, ..] => return self.execd(id, &parts[4..], request, answer, fault),
            ["v1", "sandboxes", id, "proxy", EXECD_PORT, ..] if has_key(request) => {
                return self.execd(id, &parts[5..], request, answer, fault);
            }
            ["health"] => Ok((200, Some(json!({"status": "healthy"})))),
            ["v1", ..] if !has_key(request) => Ok((
                401,
                Some(json!({"code": "MISSING_API_KEY", "message": "Provide API key via OPEN-SANDBOX-API-KEY header."})),
            )),
            // What a client counts.
            ["v1", "metrics", "events"] if request.method == "POST" => Ok((204, None)),
            ["v1", "sandboxes", ..] => self.manage(&parts[2..], request),
            _ => Err(format!("there is no path {}", request.path)),
        };
        match answered {
            Ok(_) if fault == Some(Fault::NoAnswer) => answer.cut(),
            Ok(answered) => respond(answer, answered),
            Err(wrong) => self.violation(request, &wrong, answer),
        }
    }

    fn violation(&self, request: &HttpRequest, wrong: &str, answer: &mut HttpAnswer<'_>) {
        lock(&self.violations).push(format!("{} {}: {wrong}", request.method, request.path));
        respond(answer, (400, Some(json!({"code": "INVALID_REQUEST", "message": wrong}))));
    }

    /// Answers a request to the interface for commands and files of a sandbox.
    fn execd(&self, id: &str, path: &[&str], request: &HttpRequest, answer: &mut HttpAnswer<'_>, fault: Option<Fault>) {
        let execd = lock(&self.sandboxes)
            .get(id)
            .filter(|entry| entry.seen.state == "Running")
            .map(|entry| entry.execd.clone());
        // The port is closed then.
        let Some(execd) = execd else { return answer.cut() };
        if request.path.starts_with("/direct") && request.header("open-sandbox-api-key").is_some() {
            lock(&self.violations).push("the key was sent to a sandbox".to_owned());
        }
        if let Err(wrong) = execd.answer(path, request, answer, fault == Some(Fault::NoAnswer)) {
            self.violation(request, &wrong, answer);
        }
    }

    /// Answers a request to the interface for sandboxes. Returns what is wrong with it, if it is not one that the description allows.
    fn manage(&self, path: &[&str], request: &HttpRequest) -> Result<StatusAndBody, String> {
        let known: &[&str] = match (&*request.method, path) {
            ("GET", []) => &["state", "metadata", "page", "pageSize"],
            ("GET", [_, "endpoints", _]) => &["use_server_proxy", "expires"],
            _ => &[],
        };
        if let Some((name, _)) = request.query.iter().find(|(name, _)| !known.contains(&name.as_str())) {
            return Err(format!("unknown parameter `{name}`"));
        }
        match (&*request.method, path) {
            ("POST", []) => self.create(&body(request, CREATE)?),
            ("GET", []) => self.list(request),
            ("GET", [id]) => Ok(self.with(id, |entry| (200, Some(describe(entry))))),
            ("DELETE", [id]) => Ok(if self.remove(Some(id)) { (204, None) } else { not_found(id) }),
            ("POST", [id, "pause"]) => Ok(self.change(id, "Running", "Paused")),
            ("POST", [id, "resume"]) => Ok(self.change(id, "Paused", "Running")),
            ("POST", [id, "renew-expiration"]) => {
                let body = body(request, RENEW)?;
                let text = body["expiresAt"].as_str().unwrap_or_default();
                let expires = parse_time(text).ok_or_else(|| format!("`expiresAt` is {text}"))?;
                if expires <= SystemTime::now() {
                    return Ok((400, Some(json!({"code": "INVALID_EXPIRATION", "message": "it is in the past"}))));
                }
                Ok(self.with(id, |entry| {
                    (entry.expires, entry.seen.renewals) = (Some(expires), entry.seen.renewals + 1);
                    (200, Some(json!({"expiresAt": text})))
                }))
            }
            ("GET", [id, "endpoints", port]) => {
                port.parse::<u16>().map_err(|_| format!("the port is {port}"))?;
                let host = request.header("host").unwrap_or_default();
                let through_server = request.all("use_server_proxy").any(|value| value == "true");
                let endpoint = match through_server {
                    true => format!("{host}/v1/sandboxes/{id}/proxy/{port}"),
                    false => format!("{host}/direct/{id}/proxy/{port}"),
                };
                Ok(self.with(id, |_| (200, Some(json!({"endpoint": endpoint})))))
            }
            (method, _) => Err(format!("there is no such operation: {method}")),
        }
    }

    fn create(&self, body: &Value) -> Result<StatusAndBody, String> {
        if body["image"].is_null() == body["snapshotId"].is_null() {
            return Err("wanted an image or a snapshot".to_owned());
        }
        if !body["image"].is_null()
            && (body["entrypoint"].as_array().is_none_or(Vec::is_empty) || body["resourceLimits"].is_null())
        {
            return Err("an image needs an entrypoint and limits".to_owned());
        }
        let is_label = |text: &str| {
            text.len() <= 63 && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        };
        let labels = body["metadata"].as_object().into_iter().flatten();
        if let Some((name, value)) =
            labels.into_iter().find(|(name, value)| !is_label(name) || !value.as_str().is_some_and(is_label))
        {
            return Err(format!("metadata `{name}` is {value}"));
        }
        let id = {
            let mut next = lock(&self.next_id);
            *next += 1;
            format!("5a9d0000-0000-4000-8000-{:012}", *next)
        };
        let directory = TempDir::create_blocking("opensandbox").map_err(|error| error.to_string())?;
        let home = directory.path().to_owned();
        let created = SystemTime::now();
        let env = body["env"].as_object().into_iter().flatten();
        let env = env.map(|(name, value)| (name.clone(), value.as_str().unwrap_or_default().to_owned())).collect();
        let entry = SandboxEntry {
            seen: StandInSandbox {
                id: id.clone(),
                state: "Running".to_owned(),
                home: home.clone(),
                request: body.clone(),
                renewals: 0,
            },
            expires: body["timeout"].as_u64().map(|seconds| created + Duration::from_secs(seconds)),
            created,
            execd: Arc::new(Execd::new(&home, env)),
            _directory: directory,
        };
        let mut described = describe(&entry);
        described.as_object_mut().into_iter().for_each(|object| _ = object.remove("image"));
        lock(&self.sandboxes).insert(id, entry);
        Ok((202, Some(described)))
    }

    fn list(&self, request: &HttpRequest) -> Result<StatusAndBody, String> {
        let filter: Vec<(String, String)> = request
            .all("metadata")
            .flat_map(|pairs| pairs.split('&'))
            .filter_map(|pair| pair.split_once('='))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        let number = |name: &str, default: usize| match request.all(name).next() {
            None => Ok(default),
            Some(text) => text
                .parse()
                .ok()
                .filter(|number| (1..=200).contains(number))
                .ok_or_else(|| format!("`{name}` is {text}")),
        };
        let (page, size) = (number("page", 1)?, number("pageSize", 20)?);
        let sandboxes = lock(&self.sandboxes);
        let fits = |entry: &&SandboxEntry| {
            filter.iter().all(|(name, value)| entry.seen.request["metadata"][name] == json!(value))
        };
        let all: Vec<Value> = sandboxes.values().filter(fits).map(describe).collect();
        let (total, pages) = (all.len(), all.len().div_ceil(size));
        let items: Vec<Value> = all.into_iter().skip((page - 1) * size).take(size).collect();
        let pagination = json!({"page": page, "pageSize": size, "totalItems": total, "totalPages": pages, "hasNextPage": page < pages});
        Ok((200, Some(json!({"items": items, "pagination": pagination}))))
    }

    fn change(&self, id: &str, from: &str, to: &str) -> StatusAndBody {
        self.with(id, |entry| {
            if entry.seen.state != from {
                return (
                    409,
                    Some(json!({"code": "CONFLICT", "message": format!("the sandbox is {}", entry.seen.state)})),
                );
            }
            entry.seen.state = to.to_owned();
            (202, None)
        })
    }

    fn with(&self, id: &str, work: impl FnOnce(&mut SandboxEntry) -> StatusAndBody) -> StatusAndBody {
        lock(&self.sandboxes).get_mut(id).map_or_else(|| not_found(id), work)
    }

    /// Removes a sandbox, or all, with their processes. Returns true if there was one.
    fn remove(&self, id: Option<&str>) -> bool {
        let mut sandboxes = lock(&self.sandboxes);
        let gone: Vec<SandboxEntry> = match id {
            Some(id) => sandboxes.remove(id).into_iter().collect(),
            None => std::mem::take(&mut *sandboxes).into_values().collect(),
        };
        drop(sandboxes);
        gone.iter().for_each(|entry| entry.execd.end_all());
        !gone.is_empty()
    }
}

fn has_key(request: &HttpRequest) -> bool {
    request.header("open-sandbox-api-key") == Some(KEY)
}

fn not_found(id: &str) -> StatusAndBody {
    (404, Some(json!({"code": "DOCKER::SANDBOX_NOT_FOUND", "message": format!("Sandbox {id} not found.")})))
}

/// Returns the JSON of a request, which has to have exactly these members.
fn body(request: &HttpRequest, members: &[Member]) -> Result<Value, String> {
    if request.header("content-type").is_none_or(|kind| !kind.starts_with("application/json")) {
        return Err("the content type is not JSON".to_owned());
    }
    let value: Value = serde_json::from_slice(&request.body).map_err(|error| error.to_string())?;
    wrong_member(&value, members).map_or(Ok(value), Err)
}

fn describe(entry: &SandboxEntry) -> Value {
    let request = &entry.seen.request;
    json!({
        "id": entry.seen.id,
        "image": request["image"],
        "status": {"state": entry.seen.state, "reason": "CONTAINER", "message": "", "lastTransitionAt": format_time(entry.created)},
        "metadata": request["metadata"],
        "entrypoint": request["entrypoint"],
        "expiresAt": entry.expires.map(format_time),
        "createdAt": format_time(entry.created),
    })
}

fn respond(answer: &mut HttpAnswer<'_>, (status, body): StatusAndBody) {
    let body = body.map(|body| body.to_string()).unwrap_or_default();
    answer.whole(status, &[("content-type", "application/json")], body.as_bytes());
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn format_time(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_micros()).unwrap_or_default()).to_rfc3339().unwrap_or_default()
}

/// Parses a time in UTC, to the second.
fn parse_time(text: &str) -> Option<SystemTime> {
    let numbers: Vec<i64> = text
        .strip_suffix('Z')
        .or_else(|| text.strip_suffix("+00:00"))?
        .split(['-', 'T', ':', '.'])
        .map(|number| number.parse().ok())
        .collect::<Option<_>>()?;
    let [year, month, day, hour, minute, second] = *numbers.get(..6)? else { return None };
    // Years that begin in March.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day - 1 - 719_468;
    let seconds = ((days * 24 + hour) * 60 + minute) * 60 + second;
    Some(UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).ok()?))
}

/// Returns the modification time of a file as the server reports it.
fn modified(metadata: &std::fs::Metadata) -> String {
    metadata.modified().map(format_time).unwrap_or_default()
}

/// Returns true if the server works on a path: in the directory of its sandbox, or on files of a command that is about to run.
fn is_within(home: &Path, path: &Path) -> bool {
    let is_plain = path.components().all(|part| !matches!(part, std::path::Component::ParentDir));
    is_plain && (path.starts_with(home) || path.to_string_lossy().starts_with("/tmp/.rath-"))
}
