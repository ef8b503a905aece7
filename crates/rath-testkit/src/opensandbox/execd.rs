//! The interface for commands and files in a sandbox.

use std::collections::BTreeMap;
use std::fs::{self, File, Metadata};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::{Answered, body, is_within, lock, modified, respond};
use crate::body::{Kind, Member, wrong_member};
use crate::http::{HttpAnswer, HttpRequest};

/// The time between two looks at the output of a command.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

const RUN: &[Member] = &[
    ("command", Kind::Name, true),
    ("cwd", Kind::Text, false),
    ("background", Kind::Bool, false),
    ("timeout", Kind::Number(0), false),
    ("uid", Kind::Number(0), false),
    ("gid", Kind::Number(0), false),
    ("envs", Kind::TextMap, false),
];
const METADATA: &[Member] = &[
    ("path", Kind::Name, true),
    ("owner", Kind::Text, false),
    ("group", Kind::Text, false),
    ("mode", Kind::Number(0), false),
];
const CONTEXT: &[Member] = &[("id", Kind::Text, false), ("language", Kind::Name, true)];
const CODE: &[Member] = &[("context", Kind::Object(CONTEXT), false), ("code", Kind::Text, true)];

/// The commands and files of one sandbox.
pub(super) struct Execd {
    home: PathBuf,
    env: BTreeMap<String, String>,
    /// The process groups of the commands that run, by id.
    running: Mutex<BTreeMap<String, u32>>,
    /// The code that ran in each context.
    contexts: Mutex<BTreeMap<String, String>>,
    count: Mutex<u32>,
    /// The directories for files of commands.
    directories: Mutex<Vec<PathBuf>>,
}

impl Execd {
    pub(super) fn new(home: &Path, env: BTreeMap<String, String>) -> Self {
        Execd {
            home: home.to_owned(),
            env,
            running: Mutex::default(),
            contexts: Mutex::default(),
            count: Mutex::default(),
            directories: Mutex::default(),
        }
    }

    /// Kills the processes of all commands, and removes their files.
    pub(super) fn end_all(&self) {
        lock(&self.running).values().for_each(|group| kill(*group));
        lock(&self.directories).drain(..).for_each(|directory| _ = fs::remove_dir_all(directory));
    }

    /// Returns the directories for files of commands that are still there.
    pub(super) fn command_dirs(&self) -> Vec<PathBuf> {
        lock(&self.directories).iter().filter(|directory| directory.exists()).cloned().collect()
    }

    /// Answers a request. Returns what is wrong with it, if it is not one that the description allows.
    pub(super) fn answer(
        &self,
        path: &[&str],
        request: &HttpRequest,
        answer: &mut HttpAnswer<'_>,
        is_cut: bool,
    ) -> Result<(), String> {
        let known: &[&str] = match (&*request.method, path) {
            ("GET", ["files", "search"]) => &["path", "pattern"],
            ("GET", ["directories", "list"]) => &["path", "depth"],
            ("GET" | "DELETE", ["files" | "directories", ..]) => &["path"],
            ("DELETE", ["command" | "code"]) => &["id"],
            ("GET" | "DELETE", ["code", "contexts"]) => &["language"],
            _ => &[],
        };
        if let Some((name, _)) = request.query.iter().find(|(name, _)| !known.contains(&name.as_str())) {
            return Err(format!("unknown parameter `{name}`"));
        }
        let answered: Answered = match (&*request.method, path) {
            ("GET", ["ping"]) => (200, None),
            ("POST", ["command"]) => {
                self.run(&body(request, RUN)?, answer, is_cut)?;
                return Ok(());
            }
            ("DELETE", ["command"]) => {
                let id = request.all("id").next().ok_or("`id` is missing")?;
                match lock(&self.running).get(id) {
                    Some(group) => kill(*group),
                    None => return failed(answer, 500, "RUNTIME_ERROR", "no such command runs"),
                }
                (200, None)
            }
            ("GET", ["command", "status", id]) => {
                let is_running = lock(&self.running).contains_key(*id);
                (200, Some(json!({"id": id, "running": is_running})))
            }
            ("POST", ["code", "context"]) => {
                let context = body(request, CONTEXT)?;
                let id = self.next_id();
                lock(&self.contexts).insert(id.clone(), String::new());
                (200, Some(json!({"id": id, "language": context["language"]})))
            }
            ("POST", ["code"]) => {
                self.run_code(&body(request, CODE)?, answer, is_cut);
                return Ok(());
            }
            ("DELETE", ["code"]) => {
                request.all("id").next().ok_or("`id` is missing")?;
                (200, None)
            }
            ("POST", ["files", "upload"]) => self.upload(request)?,
            ("GET", ["files", "info"]) => self.info(request)?,
            ("GET", ["files", "download"]) => return self.download(request, answer),
            ("DELETE", ["files"]) => self.remove(request)?,
            ("GET", ["directories", "list"]) => self.list(request)?,
            ("POST", ["directories"]) => self.make_dirs(request)?,
            (method, path) => return Err(format!("there is no such operation: {method} {}", path.join("/"))),
        };
        match is_cut {
            true => answer.cut(),
            false => respond(answer, answered),
        }
        Ok(())
    }

    fn next_id(&self) -> String {
        let mut count = lock(&self.count);
        *count += 1;
        format!("{:032x}", *count)
    }

    /// Runs a command and streams its output, line by line, without what ends the lines.
    fn run(&self, body: &Value, answer: &mut HttpAnswer<'_>, is_cut: bool) -> Result<(), String> {
        if body["background"] == json!(true) {
            return Err("commands in the background are not played here".to_owned());
        }
        let id = self.next_id();
        let outputs = [1, 2].map(|stream| self.home.join(format!(".execd-{id}.{stream}")));
        let started = self.start(body, &outputs);
        let head = [("content-type", "text/event-stream"), ("cache-control", "no-cache"), ("x-accel-buffering", "no")];
        let mut child = match started {
            Ok(child) => child,
            Err(error) => {
                answer.begin(200, &head);
                write_frame(answer, &json!({"type": "init", "text": id}));
                write_error(answer, &error.to_string(), &error.to_string());
                answer.end();
                return Ok(());
            }
        };
        lock(&self.running).insert(id.clone(), child.id());
        if is_cut {
            answer.cut();
        } else {
            answer.begin(200, &head);
            write_frame(answer, &json!({"type": "init", "text": id}));
            write_frame(answer, &json!({"type": "ping", "text": "pong"}));
        }
        let mut tails = [("stdout", Tail::default()), ("stderr", Tail::default())];
        let deadline = body["timeout"].as_u64().map(|millis| Instant::now() + Duration::from_millis(millis));
        let status = loop {
            let ended = child.try_wait().map_err(|error| error.to_string())?;
            for ((kind, tail), path) in tails.iter_mut().zip(&outputs) {
                for line in tail.read(path, ended.is_some()) {
                    write_frame(answer, &json!({"type": kind, "text": line}));
                }
            }
            match ended {
                Some(status) => break status,
                None if deadline.is_some_and(|deadline| Instant::now() > deadline) => _ = child.kill(),
                None => std::thread::sleep(LOOK_INTERVAL),
            }
        };
        lock(&self.running).remove(&id);
        outputs.iter().for_each(|path| _ = fs::remove_file(path));
        match status.code() {
            Some(0) => write_frame(answer, &json!({"type": "execution_complete", "execution_time": 1})),
            Some(code) => write_error(answer, &code.to_string(), &format!("exit status {code}")),
            None => write_error(answer, "-1", &describe_signal(status)),
        }
        answer.end();
        Ok(())
    }

    fn start(&self, body: &Value, outputs: &[PathBuf; 2]) -> std::io::Result<Child> {
        let mut command = Command::new("bash");
        command.arg("-c").arg(body["command"].as_str().unwrap_or_default());
        command
            .env_clear()
            .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
            .env("HOME", &self.home);
        command.envs(&self.env);
        let envs = body["envs"].as_object().into_iter().flatten();
        command.envs(envs.map(|(name, value)| (name, value.as_str().unwrap_or_default())));
        command.current_dir(body["cwd"].as_str().map_or_else(|| self.home.clone(), |cwd| self.home.join(cwd)));
        command.stdin(Stdio::null()).stdout(File::create(&outputs[0])?).stderr(File::create(&outputs[1])?);
        command.process_group(0).spawn()
    }

    /// Plays an interpreter of shell: code that ran before in the context has run before this.
    fn run_code(&self, body: &Value, answer: &mut HttpAnswer<'_>, is_cut: bool) {
        let context = body["context"]["id"].as_str().unwrap_or_default().to_owned();
        let code = body["code"].as_str().unwrap_or_default();
        let before = lock(&self.contexts).get(&context).cloned().unwrap_or_default();
        let line = format!("{{ :\n{before}\n}} >/dev/null 2>&1\n{code}");
        let output = Command::new("bash")
            .arg("-c")
            .arg(&line)
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .current_dir(&self.home)
            .output();
        if is_cut {
            return answer.cut();
        }
        answer.begin(200, &[("content-type", "text/event-stream")]);
        write_frame(answer, &json!({"type": "init", "text": context}));
        match output {
            Ok(output) if output.status.success() => {
                lock(&self.contexts).insert(context, format!("{before}\n{code}"));
                for (kind, bytes) in [("stdout", output.stdout), ("stderr", output.stderr)]
                    .into_iter()
                    .filter(|(_, bytes)| !bytes.is_empty())
                {
                    write_frame(answer, &json!({"type": kind, "text": String::from_utf8_lossy(&bytes)}));
                }
                write_frame(answer, &json!({"type": "result", "results": {"text/plain": code.len().to_string()}}));
                write_frame(answer, &json!({"type": "execution_complete", "execution_time": 1}));
            }
            Ok(output) => write_error(answer, &String::from_utf8_lossy(&output.stderr), "line 1"),
            Err(error) => write_error(answer, &error.to_string(), "line 1"),
        }
        answer.end();
    }

    /// Returns the path that a request names.
    fn path(&self, path: &str) -> Result<PathBuf, String> {
        let path = Path::new(path);
        match path.is_absolute() && is_within(&self.home, path) {
            true => Ok(path.to_owned()),
            false => Err(format!("the path {} is not in the sandbox", path.display())),
        }
    }

    fn paths(&self, request: &HttpRequest) -> Result<Vec<(String, PathBuf)>, String> {
        let paths = request.all("path").map(|path| Ok((path.to_owned(), self.path(path)?)));
        let paths = paths.collect::<Result<Vec<_>, String>>()?;
        if paths.is_empty() { Err("`path` is missing".to_owned()) } else { Ok(paths) }
    }

    fn upload(&self, request: &HttpRequest) -> Result<Answered, String> {
        let kind = request.header("content-type").unwrap_or_default();
        let boundary = kind.strip_prefix("multipart/form-data").and_then(|rest| rest.split_once("boundary="));
        let boundary = boundary.ok_or_else(|| format!("the content type is {kind}"))?.1.trim_matches('"');
        let parts = parts(&request.body, boundary)?;
        if parts.is_empty() || parts.len() % 2 != 0 {
            return Err(format!("there are {} parts", parts.len()));
        }
        for pair in parts.chunks(2) {
            let [metadata, file] = pair else { return Err("a part is missing".to_owned()) };
            for (part, name) in [(metadata, "metadata"), (file, "file")] {
                if !part.head.contains(&format!("name=\"{name}\"")) || !part.head.contains("filename=") {
                    return Err(format!("wanted the file `{name}`, found the part {}", part.head));
                }
            }
            let metadata: Value = serde_json::from_slice(metadata.body).map_err(|error| error.to_string())?;
            if let Some(wrong) = wrong_member(&metadata, METADATA) {
                return Err(wrong);
            }
            let path = self.path(metadata["path"].as_str().unwrap_or_default())?;
            if let Some(directory) = path.parent() {
                if !path.starts_with(&self.home) {
                    lock(&self.directories).push(directory.to_owned());
                }
                if let Err(error) = fs::create_dir_all(directory).and_then(|()| fs::write(&path, file.body)) {
                    return Ok((500, Some(json!({"code": "RUNTIME_ERROR", "message": error.to_string()}))));
                }
            }
            // The octal digits are read as a decimal number.
            let mode = metadata["mode"].as_u64().unwrap_or_default().to_string();
            let mode = u32::from_str_radix(&mode, 8).map_err(|_| format!("`mode` is {mode}"))?;
            if mode != 0 {
                fs::set_permissions(&path, fs::Permissions::from_mode(mode)).map_err(|error| error.to_string())?;
            }
        }
        Ok((200, None))
    }

    fn info(&self, request: &HttpRequest) -> Result<Answered, String> {
        let mut infos = serde_json::Map::new();
        for (name, path) in self.paths(request)? {
            match fs::symlink_metadata(&path) {
                Ok(metadata) => _ = infos.insert(name, describe(&path, &metadata)),
                Err(error) => return Ok(file_error(&error)),
            }
        }
        Ok((200, Some(Value::Object(infos))))
    }

    fn download(&self, request: &HttpRequest, answer: &mut HttpAnswer<'_>) -> Result<(), String> {
        let [(_, path)] = &self.paths(request)?[..] else { return Err("wanted one path".to_owned()) };
        let mut file = match File::open(path) {
            Ok(file) => file,
            Err(error) => {
                respond(answer, file_error(&error));
                return Ok(());
            }
        };
        let size = file.metadata().map_err(|error| error.to_string())?.len();
        let range = match request.header("range") {
            None => None,
            Some(range) => {
                let bounds = range.strip_prefix("bytes=").and_then(|range| range.split_once('-'));
                let (first, last) = bounds.ok_or_else(|| format!("the range is {range}"))?;
                let first: u64 = first.parse().map_err(|_| format!("the range is {range}"))?;
                let last: u64 = if last.is_empty() {
                    u64::MAX
                } else {
                    last.parse().map_err(|_| format!("the range is {range}"))?
                };
                (first <= last).then_some(()).ok_or_else(|| format!("the range is {range}"))?;
                Some((first, last.min(size.saturating_sub(1)))).filter(|(first, _)| *first < size)
            }
        };
        let mut content = Vec::new();
        let (first, last) = range.unwrap_or((0, size.saturating_sub(1)));
        let read =
            file.seek(SeekFrom::Start(first)).and_then(|_| file.take(last - first + 1).read_to_end(&mut content));
        read.map_err(|error| error.to_string())?;
        let kind = ("content-type", "application/octet-stream");
        match range {
            Some((first, last)) => {
                answer.whole(206, &[kind, ("content-range", &format!("bytes {first}-{last}/{size}"))], &content);
            }
            None => answer.whole(200, &[kind], &content),
        }
        Ok(())
    }

    fn remove(&self, request: &HttpRequest) -> Result<Answered, String> {
        for (_, path) in self.paths(request)? {
            match fs::metadata(&path) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Ok(metadata) if metadata.is_dir() => {
                    return Ok((500, Some(json!({"code": "RUNTIME_ERROR", "message": "path is a directory"}))));
                }
                _ => _ = fs::remove_file(&path),
            }
        }
        Ok((200, None))
    }

    fn list(&self, request: &HttpRequest) -> Result<Answered, String> {
        let [(_, path)] = &self.paths(request)?[..] else { return Err("wanted one path".to_owned()) };
        if request.all("depth").any(|depth| depth != "1") {
            return Err("only one level is played here".to_owned());
        }
        match fs::symlink_metadata(path) {
            Ok(metadata) if metadata.is_dir() => {}
            Ok(_) => return Ok((400, Some(json!({"code": "INVALID_REQUEST", "message": "path is not a directory"})))),
            Err(error) => return Ok(file_error(&error)),
        }
        let entries = fs::read_dir(path).map_err(|error| error.to_string())?.flatten();
        let entries = entries.filter_map(|entry| Some((entry.path(), entry.metadata().ok()?)));
        let mut entries: Vec<_> = entries.collect();
        entries.sort_by(|(one, _), (other, _)| one.cmp(other));
        let list = entries.iter().map(|(path, metadata)| describe(path, metadata)).collect();
        Ok((200, Some(Value::Array(list))))
    }

    fn make_dirs(&self, request: &HttpRequest) -> Result<Answered, String> {
        let value: Value = serde_json::from_slice(&request.body).map_err(|error| error.to_string())?;
        for path in value.as_object().ok_or("wanted an object")?.keys() {
            fs::create_dir_all(self.path(path)?).map_err(|error| error.to_string())?;
        }
        Ok((200, None))
    }
}

/// A part of a form.
struct Part<'a> {
    head: String,
    body: &'a [u8],
}

/// Splits a form into its parts.
fn parts<'a>(body: &'a [u8], boundary: &str) -> Result<Vec<Part<'a>>, String> {
    let (mut parts, marker) = (Vec::new(), format!("--{boundary}"));
    let find = |text: &[u8], wanted: &[u8]| text.windows(wanted.len()).position(|window| window == wanted);
    let mut rest = body.strip_prefix(marker.as_bytes()).ok_or("the form has no beginning")?;
    while let Some(part) = rest.strip_prefix(b"\r\n") {
        let head = find(part, b"\r\n\r\n").ok_or("a part has no head")?;
        let content = &part[head + 4..];
        let end = find(content, format!("\r\n{marker}").as_bytes()).ok_or("a part has no end")?;
        parts.push(Part { head: String::from_utf8_lossy(&part[..head]).into_owned(), body: &content[..end] });
        rest = &content[end + 2 + marker.len()..];
    }
    if rest.starts_with(b"--") { Ok(parts) } else { Err("the form has no end".to_owned()) }
}

/// The output of a command that was read so far: whole lines.
#[derive(Default)]
struct Tail {
    position: u64,
    line: Vec<u8>,
    was_return: bool,
}

impl Tail {
    /// Returns the lines that were written since, and the rest if the command has ended.
    fn read(&mut self, path: &Path, has_ended: bool) -> Vec<String> {
        let mut bytes = Vec::new();
        let read = File::open(path).and_then(|mut file| {
            file.seek(SeekFrom::Start(self.position))?;
            file.read_to_end(&mut bytes)
        });
        self.position += read.unwrap_or_default() as u64;
        let mut lines = Vec::new();
        for byte in bytes {
            if !matches!(byte, b'\n' | b'\r') {
                self.line.push(byte);
                self.was_return = false;
                continue;
            }
            match self.line.is_empty() {
                false => lines.push(String::from_utf8_lossy(&std::mem::take(&mut self.line)).into_owned()),
                true if byte == b'\n' && self.was_return => {}
                true => lines.push("\n".to_owned()),
            }
            self.was_return = byte == b'\r';
        }
        if has_ended && !self.line.is_empty() {
            lines.push(String::from_utf8_lossy(&std::mem::take(&mut self.line)).into_owned());
        }
        lines
    }
}

fn write_frame(answer: &mut HttpAnswer<'_>, frame: &Value) {
    let mut frame = frame.clone();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    frame["timestamp"] = json!(u64::try_from(now.as_millis()).unwrap_or_default());
    answer.piece(format!("{frame}\n\n").as_bytes());
}

fn write_error(answer: &mut HttpAnswer<'_>, value: &str, traceback: &str) {
    let error = json!({"ename": "CommandExecError", "evalue": value, "traceback": [traceback]});
    write_frame(answer, &json!({"type": "error", "error": error}));
}

fn failed(answer: &mut HttpAnswer<'_>, status: u16, code: &str, message: &str) -> Result<(), String> {
    respond(answer, (status, Some(json!({"code": code, "message": message}))));
    Ok(())
}

fn file_error(error: &std::io::Error) -> Answered {
    match error.kind() {
        std::io::ErrorKind::NotFound => {
            (404, Some(json!({"code": "FILE_NOT_FOUND", "message": format!("file not found. {error}")})))
        }
        _ => {
            let message = format!("error accessing file: {}", error.to_string().to_lowercase());
            (500, Some(json!({"code": "RUNTIME_ERROR", "message": message})))
        }
    }
}

fn describe(path: &Path, metadata: &Metadata) -> Value {
    let kind = match metadata.file_type() {
        kind if kind.is_symlink() => "symlink",
        kind if kind.is_dir() => "directory",
        kind if kind.is_file() => "file",
        _ => "other",
    };
    let mode: u32 = format!("{:o}", metadata.mode() & 0o777).parse().unwrap_or_default();
    let time = modified(metadata);
    json!({
        "path": path, "type": kind, "size": metadata.len(), "modified_at": time, "created_at": time,
        "owner": "root", "group": "root", "mode": mode,
    })
}

fn describe_signal(status: ExitStatus) -> String {
    match status.signal() {
        Some(9) => "signal: killed".to_owned(),
        Some(15) => "signal: terminated".to_owned(),
        signal => format!("signal: {}", signal.unwrap_or_default()),
    }
}

/// Kills a process group.
fn kill(group: u32) {
    let _ = Command::new("kill").args(["-9", "--", &format!("-{group}")]).stderr(Stdio::null()).status();
}
