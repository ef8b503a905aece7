//! A service that stands in for OpenViking, on loopback.
//!
//! It is written from the published description of the interface (version 0.5), and checks every request against it: a request that the
//! description does not allow is answered with an error, and fails the test when the service is dropped. Its answers are like those of a
//! service of version 0.5.2. Instead of vectors it compares words: the score of a file is 0.5, and up to 1 by the words of the question that
//! it has.
//!
//! ```
//! use rath_testkit::openviking::StandInViking;
//!
//! let service = StandInViking::start();
//! assert!(service.address().starts_with("http://127.0.0.1:"));
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};

use crate::body::{Kind, Member, wrong_member};
use crate::http::{HttpAnswer, HttpRequest, HttpServer};

/// The key that the service wants.
const KEY: &str = "stand-in-viking-key-81c3";
/// The path of writes.
const WRITE_PATH: &str = "/api/v1/content/write";
/// The words that find nothing.
const COMMON: [&str; 12] = ["a", "an", "at", "does", "for", "in", "is", "of", "on", "the", "what", "when"];

/// A service that stands in for OpenViking. Dropping it stops it.
///
/// # Panics
///
/// When it is dropped, if a request was not as the description of the interface says.
pub struct StandInViking {
    server: Option<HttpServer>,
    address: String,
    state: Arc<Service>,
}

#[derive(Default)]
struct Service {
    /// The files by URI.
    files: Mutex<BTreeMap<String, String>>,
    violations: Mutex<Vec<String>>,
    writes: Mutex<u32>,
    reads: Mutex<u32>,
    /// The number of writes until the one whose answer is lost.
    lost_write: Mutex<Option<u32>>,
    failing: Mutex<Option<u16>>,
    vectors_fail: Mutex<bool>,
    /// The files that have no vector, and are not found.
    without_vector: Mutex<BTreeSet<String>>,
}

const WRITE: &[Member] = &[
    ("uri", Kind::Name, true),
    ("content", Kind::Text, true),
    ("mode", Kind::Text, false),
    ("wait", Kind::Bool, false),
    ("telemetry", Kind::Any, false),
    ("processing_mode", Kind::Text, false),
    ("tags", Kind::Texts, false),
    ("tag_mode", Kind::Text, false),
    ("acl", Kind::Any, false),
    ("edit_source", Kind::Text, false),
];
const FIND: &[Member] = &[
    ("query", Kind::Text, false),
    ("image_url", Kind::Any, false),
    ("target_uri", Kind::Any, false),
    ("context_type", Kind::Any, false),
    ("limit", Kind::Number(1), false),
    ("node_limit", Kind::Number(1), false),
    ("score_threshold", Kind::Any, false),
    ("filter", Kind::Any, false),
    ("include_provenance", Kind::Bool, false),
    ("tags", Kind::Texts, false),
    ("since", Kind::Text, false),
    ("until", Kind::Text, false),
    ("time_field", Kind::Text, false),
    ("level", Kind::Any, false),
    ("read_content", Kind::Bool, false),
    ("telemetry", Kind::Any, false),
    ("events_time_decay_protection", Kind::Text, false),
];
/// The parameters of a list.
const LIST: &[&str] = &[
    "uri",
    "simple",
    "recursive",
    "output",
    "abs_limit",
    "include_abstract",
    "include_overview",
    "overview_limit",
    "show_all_hidden",
    "node_limit",
    "offset",
    "limit",
    "sort_by",
    "sort_order",
    "extra_fields",
    "tags",
    "include_tags",
];
/// The most entries of a list, unless `node_limit` is there.
const LIST_ENTRIES: usize = 1_000;

impl StandInViking {
    /// Starts a service at a free port.
    pub fn start() -> Self {
        let state = Arc::<Service>::default();
        let handled = state.clone();
        let server = HttpServer::start(move |request, answer| handled.handle(request, answer));
        let address = format!("http://{}", server.address());
        StandInViking { server: Some(server), address, state }
    }

    /// Returns the address of the service.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Returns the key that the service wants.
    pub fn key(&self) -> &'static str {
        KEY
    }

    /// Returns the number of files that were written.
    pub fn writes(&self) -> u32 {
        *lock(&self.state.writes)
    }

    /// Returns the number of files that were read.
    pub fn reads(&self) -> u32 {
        *lock(&self.state.reads)
    }

    /// Cuts the connection instead of the answer to a write, after this number of other writes.
    pub fn lose_write(&self, after: u32) {
        *lock(&self.state.lost_write) = Some(after);
    }

    /// Answers all requests with this status from now on, and a message with the key; with none, as before.
    pub fn fail(&self, status: Option<u16>) {
        *lock(&self.state.failing) = status;
    }

    /// Makes no vectors from now on, or makes them again. Without one a file is written, and the answer is an error.
    pub fn fail_vectors(&self, fails: bool) {
        *lock(&self.state.vectors_fail) = fails;
    }

    /// Puts a file there, as another program could.
    pub fn put(&self, uri: &str, content: &str) {
        lock(&self.state.files).insert(uri.to_owned(), content.to_owned());
    }
}

impl Drop for StandInViking {
    fn drop(&mut self) {
        drop(self.server.take());
        let violations = std::mem::take(&mut *lock(&self.state.violations));
        if !std::thread::panicking() {
            assert!(violations.is_empty(), "requests that OpenViking does not describe: {violations:#?}");
        }
    }
}

impl Service {
    fn handle(&self, request: &HttpRequest, answer: &mut HttpAnswer<'_>) {
        let respond = |answer: &mut HttpAnswer<'_>, status: u16, body: Value| {
            answer.whole(status, &[("content-type", "application/json")], body.to_string().as_bytes());
        };
        let failed = |code: &str, message: &str, details: Value| {
            let error = json!({"code": code, "message": message, "details": details});
            json!({"status": "error", "result": null, "error": error})
        };
        if let Some(status) = *lock(&self.failing) {
            return respond(answer, status, failed("INTERNAL", &format!("as asked for,\u{7} with {KEY}"), json!({})));
        }
        // An address that is not that of the interface.
        if !request.path.starts_with("/api/") {
            return respond(
                answer,
                404,
                json!({"status": "error", "error": {"code": "NOT_FOUND", "message": "Not Found"}}),
            );
        }
        if request.header("x-api-key") != Some(KEY) {
            return respond(answer, 401, failed("UNAUTHENTICATED", "Invalid API key", json!({})));
        }
        match self.answer(request) {
            Ok(Some(_)) if request.path == WRITE_PATH && self.is_lost() => answer.cut(),
            Ok(Some(_)) if request.path == WRITE_PATH && *lock(&self.vectors_fail) => {
                respond(answer, 500, failed("PROCESSING_ERROR", "Failed to generate embedding", json!({})));
            }
            Ok(Some(result)) => respond(answer, 200, json!({"status": "ok", "result": result})),
            Ok(None) => {
                let details = json!({"type": "file", "resource": request.all("uri").next()});
                respond(answer, 404, failed("NOT_FOUND", "File not found", details));
            }
            Err(wrong) => {
                lock(&self.violations).push(format!("{} {}: {wrong}", request.method, request.path));
                respond(answer, 400, failed("INVALID_ARGUMENT", &wrong, json!({})));
            }
        }
    }

    /// Returns true for a write whose answer is to be lost.
    fn is_lost(&self) -> bool {
        let mut lost = lock(&self.lost_write);
        let is_lost = *lost == Some(0);
        *lost = lost.and_then(|after| after.checked_sub(1));
        is_lost
    }

    /// Answers a request; none if there is no such file. Returns what is wrong with it, if it is not one that the description allows.
    fn answer(&self, request: &HttpRequest) -> Result<Option<Value>, String> {
        let (known, needed): (&[&str], &[&str]) = match &*request.path {
            "/api/v1/content/read" => (&["uri", "offset", "limit", "raw"], &["uri"]),
            "/api/v1/fs/ls" => (LIST, &["uri"]),
            _ => (&[], &[]),
        };
        if let Some((name, _)) = request.query.iter().find(|(name, _)| !known.contains(&name.as_str())) {
            return Err(format!("unknown parameter `{name}`"));
        }
        if let Some(name) = needed.iter().find(|name| request.all(name).next().is_none()) {
            return Err(format!("`{name}` is missing"));
        }
        let uri = request.all("uri").next().unwrap_or_default();
        let mut files = lock(&self.files);
        match (&*request.method, &*request.path) {
            ("GET", "/api/v1/content/read") => {
                *lock(&self.reads) += 1;
                Ok(files.get(uri).map(|content| json!(content)))
            }
            ("GET", "/api/v1/fs/ls") => {
                let below = format!("{}/", uri.trim_end_matches('/'));
                let names = files.keys().filter_map(|uri| uri.strip_prefix(&below)?.split('/').next());
                let limit = request.all("node_limit").next().map_or(Ok(LIST_ENTRIES), str::parse);
                let limit = limit.map_err(|error| format!("`node_limit`: {error}"))?;
                let entries: BTreeSet<String> = names.map(|name| format!("{below}{name}")).collect();
                Ok((!entries.is_empty()).then(|| entries.into_iter().take(limit).collect()))
            }
            ("POST", WRITE_PATH) => {
                let body = body(request, WRITE)?;
                let [uri, content] = ["uri", "content"].map(|name| body[name].as_str().unwrap_or_default().to_owned());
                if !uri.starts_with("viking://") {
                    return Err(format!("`uri` is {uri}"));
                }
                if !uri.ends_with(".md") {
                    return Err(format!("creating a new file does not allow extension: {uri}"));
                }
                // Both make a file that is not there, and replace one that is.
                match body["mode"].as_str().unwrap_or("replace") {
                    "create" | "replace" => {}
                    mode => return Err(format!("unsupported write mode: {mode}")),
                }
                files.insert(uri.clone(), content);
                match *lock(&self.vectors_fail) {
                    true => lock(&self.without_vector).insert(uri.clone()),
                    false => lock(&self.without_vector).remove(&uri),
                };
                *lock(&self.writes) += 1;
                Ok(Some(json!({"uri": uri})))
            }
            ("POST", "/api/v1/search/find") => {
                let body = body(request, FIND)?;
                let query = body["query"].as_str().unwrap_or_default();
                if query.trim().is_empty() {
                    return Err("Search query or image_url must not be empty unless a filter is provided.".to_owned());
                }
                let (question, target) = (words(query), body["target_uri"].as_str().unwrap_or_default());
                let (limit, least) =
                    (body["limit"].as_u64().unwrap_or(10), body["score_threshold"].as_f64().unwrap_or(0.0));
                let score = |content: &str| {
                    let shared = words(content).intersection(&question).count();
                    (1.0 + shared as f64 / question.len().max(1) as f64) / 2.0
                };
                let below = format!("{}/", target.trim_end_matches('/'));
                let without_vector = lock(&self.without_vector);
                let is_below = |uri: &String| target.is_empty() || uri.starts_with(&below);
                let is_searched = |uri: &String| is_below(uri) && !without_vector.contains(uri);
                let found =
                    files.iter().filter(|(uri, _)| is_searched(uri)).map(|(uri, content)| (score(content), uri));
                let mut found: Vec<_> = found.filter(|(score, _)| *score > least).collect();
                found.sort_by(|one, other| other.0.total_cmp(&one.0));
                let item =
                    |(score, uri): &(f64, &String)| json!({"uri": uri, "level": 2, "score": score, "abstract": ""});
                let mut resources: Vec<Value> =
                    found.iter().take(usize::try_from(limit).unwrap_or(10)).map(item).collect();
                // The summary of a directory, which another program asked for, is found too.
                resources.push(json!({"uri": format!("{below}.abstract.md"), "level": 0, "score": 0.9}));
                Ok(Some(json!({"memories": [], "resources": resources, "skills": [], "total": resources.len()})))
            }
            (method, path) => Err(format!("there is no such operation: {method} {path}")),
        }
    }
}

/// Returns the JSON of a request, which has to have exactly these members.
fn body(request: &HttpRequest, members: &[Member]) -> Result<Value, String> {
    let value: Value = serde_json::from_slice(&request.body).map_err(|error| error.to_string())?;
    wrong_member(&value, members).map_or(Ok(value), Err)
}

/// Returns the words of a text that can find it.
fn words(text: &str) -> BTreeSet<String> {
    let text = text.to_lowercase();
    let words =
        text.split(|char: char| !char.is_alphanumeric()).filter(|word| !word.is_empty() && !COMMON.contains(word));
    words.map(|word| word.trim_end_matches('s').to_owned()).collect()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use rath::Memory;
    use rath::memory::{OpenViking, Position};

    use crate::memory::{MemoryCase, conforms};

    /// A service that runs. Its notes are removed when it is dropped.
    struct RealViking {
        address: String,
    }

    impl RealViking {
        /// Returns the service at an address.
        ///
        /// # Panics
        ///
        /// If it has notes: they would be removed.
        fn at(address: &str) -> Self {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            let notes = runtime.block_on(open(address).list(&[], Position::default(), 1)).expect("a list");
            assert!(notes.is_empty() && notes.notice.is_none(), "the service has notes: name one that has none");
            RealViking { address: address.to_owned() }
        }
    }

    impl Drop for RealViking {
        fn drop(&mut self) {
            let host = self.address.trim_start_matches("http://").trim_end_matches('/');
            let mut stream = TcpStream::connect(host).expect("the service runs");
            let key =
                std::env::var("OPENVIKING_API_KEY").map(|key| format!("x-api-key: {key}\r\n")).unwrap_or_default();
            let path = "/api/v1/fs?uri=viking://resources/rath-notes&recursive=true&wait=true";
            let request = format!("DELETE {path} HTTP/1.1\r\nhost: {host}\r\n{key}connection: close\r\n\r\n");
            stream.write_all(request.as_bytes()).expect("sent");
            let mut answer = String::new();
            stream.read_to_string(&mut answer).expect("an answer");
            let status = answer.split(' ').nth(1).unwrap_or_default();
            // A promise need not write anything.
            if !std::thread::panicking() {
                assert!(["200", "404"].contains(&status), "the notes are still there: {answer}");
            }
        }
    }

    fn open(address: &str) -> Memory {
        Memory::new(OpenViking::from_env(address).expect("an address"))
    }

    #[test]
    #[ignore = "needs a running openviking-server without notes: RATH_OPENVIKING, and OPENVIKING_API_KEY if it has a key"]
    fn a_real_service_keeps_its_promises() {
        let address = std::env::var("RATH_OPENVIKING").expect("an address");
        conforms(&mut || {
            let service = RealViking::at(&address);
            MemoryCase::new(move || open(&service.address))
        });
    }
}
