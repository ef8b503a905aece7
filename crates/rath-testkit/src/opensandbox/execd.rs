//! The interface for commands and files in a sandbox.

mod files;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::{StatusAndBody, body, lock, respond};
use crate::body::{Kind, Member};
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
        let answered: StatusAndBody = match (&*request.method, path) {
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
