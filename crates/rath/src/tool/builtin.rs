//! Tools for working in a directory: read, write and list files, and run commands.
//!
//! They work in the session's place, which for now has to be a directory on this machine. Paths stay inside it. Commands
//! are ordinary processes of the user who runs the program: they are killed with everything they started in their group when
//! their time is over or the run is stopped, and they see none of the environment but `PATH`, `HOME`, `LANG` and `TERM`.

use std::io::ErrorKind as Io;
use std::process::Stdio;
use std::time::Duration;

use rath_record::chunk::ToolSpec;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};

use super::{Nature, Output, Tool, ToolCx, Touch};
use crate::error::{Error, ErrorKind, Result};

/// Reads a file.
#[derive(Clone, Copy, Debug)]
pub struct ReadFile;

/// Writes a file.
#[derive(Clone, Copy, Debug)]
pub struct WriteFile;

/// Lists a directory.
#[derive(Clone, Copy, Debug)]
pub struct ListFiles;

/// Runs a command.
#[derive(Clone, Copy, Debug)]
pub struct Shell;

/// How much of a file or of a command's output is taken in.
const BYTES_MOST: u64 = 16 * 1024 * 1024;

/// What the model is told about a path.
const PATH: &str = "The path, relative to the workspace.";

fn spec(name: &str, description: &str, properties: Value, required: &[&str]) -> ToolSpec {
    let schema = json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    });
    ToolSpec::new(name, description, schema)
}

fn text<'a>(arguments: &'a Value, name: &str) -> &'a str {
    arguments[name].as_str().unwrap_or_default()
}

/// What went wrong with a path that the model named, without the path that it has on this machine.
fn cannot(what: &str, path: &str, error: &std::io::Error) -> Error {
    let why = match error.kind() {
        Io::NotFound => "there is no such file".to_owned(),
        Io::PermissionDenied => "permission denied".to_owned(),
        Io::IsADirectory => "it is a directory".to_owned(),
        Io::NotADirectory => "it is not a directory".to_owned(),
        kind => kind.to_string(),
    };
    Error::new(ErrorKind::Io, format_args!("cannot {what} `{path}`: {why}"))
}

/// A pipe or a device may never answer, and nobody could break off.
fn check_plain(what: &str, path: &str, about: &std::fs::Metadata) -> Result<()> {
    if about.is_file() {
        return Ok(());
    }
    let found = if about.is_dir() { "it is a directory" } else { "it is not an ordinary file" };
    Err(Error::new(ErrorKind::Io, format_args!("cannot {what} `{path}`: {found}")))
}

impl Tool for ReadFile {
    fn spec(&self) -> ToolSpec {
        let path = json!({"path": {"type": "string", "description": PATH}});
        spec("read_file", "Reads a text file.", path, &["path"])
    }

    fn nature(&self, _: &Value) -> Nature {
        Nature::ReadOnly
    }

    fn touches(&self, arguments: &Value) -> Vec<Touch> {
        vec![Touch::read(text(arguments, "path"))]
    }

    async fn call(&self, cx: &ToolCx, arguments: Value) -> Result<Output> {
        let path = text(&arguments, "path");
        let file = cx.path(path)?;
        let about = std::fs::metadata(&file).map_err(|error| cannot("read", path, &error))?;
        check_plain("read", path, &about)?;
        if about.len() > BYTES_MOST {
            let why = format!("cannot read `{path}`: it has {} bytes, and the most is {BYTES_MOST}", about.len());
            return Err(Error::new(ErrorKind::Io, why));
        }
        let bytes = std::fs::read(&file).map_err(|error| cannot("read", path, &error))?;
        let text = String::from_utf8(bytes);
        text.map(Output::from)
            .map_err(|_| Error::new(ErrorKind::Io, format_args!("cannot read `{path}`: it is not UTF-8 text")))
    }
}

impl Tool for WriteFile {
    fn spec(&self) -> ToolSpec {
        let properties = json!({
            "path": {"type": "string", "description": PATH},
            "text": {"type": "string", "description": "The whole of the file from now on."},
        });
        spec("write_file", "Writes a text file, and the directories that it lies in.", properties, &["path", "text"])
    }

    fn nature(&self, _: &Value) -> Nature {
        Nature::Idempotent { key: None }
    }

    fn touches(&self, arguments: &Value) -> Vec<Touch> {
        vec![Touch::write(text(arguments, "path"))]
    }

    async fn call(&self, cx: &ToolCx, arguments: Value) -> Result<Output> {
        let (path, text) = (text(&arguments, "path"), text(&arguments, "text"));
        let file = cx.path(path)?;
        if let Ok(about) = std::fs::metadata(&file) {
            check_plain("write", path, &about)?;
        }
        let written = file.parent().map_or(Ok(()), std::fs::create_dir_all).and_then(|()| std::fs::write(&file, text));
        written.map_err(|error| cannot("write", path, &error))?;
        Ok(format!("wrote {} bytes", text.len()).into())
    }
}

impl Tool for ListFiles {
    fn spec(&self) -> ToolSpec {
        let path =
            json!({"path": {"type": "string", "description": "The directory; the workspace itself if left out."}});
        spec("list_files", "Lists a directory: one name a line, directories with a slash.", path, &[])
    }

    fn nature(&self, _: &Value) -> Nature {
        Nature::ReadOnly
    }

    fn touches(&self, arguments: &Value) -> Vec<Touch> {
        vec![Touch::read(text(arguments, "path"))]
    }

    async fn call(&self, cx: &ToolCx, arguments: Value) -> Result<Output> {
        let path = Some(text(&arguments, "path")).filter(|path| !path.is_empty()).unwrap_or(".");
        let directory = cx.path(path)?;
        let entries = std::fs::read_dir(&directory).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let entries = entries.map_err(|error| cannot("list", path, &error))?;
        let name = |entry: &std::fs::DirEntry| {
            let slash = if entry.path().is_dir() { "/" } else { "" };
            format!("{}{slash}", entry.file_name().to_string_lossy())
        };
        let mut names: Vec<_> = entries.iter().map(name).collect();
        names.sort();
        Ok(names.join("\n").into())
    }
}

impl Tool for Shell {
    fn spec(&self) -> ToolSpec {
        let command = json!({"command": {"type": "string", "description": "The command, as for `sh -c`."}});
        spec("shell", "Runs a command in the workspace and gives what it prints.", command, &["command"])
    }

    fn touches(&self, _: &Value) -> Vec<Touch> {
        vec![Touch::everything()]
    }

    fn time_limit(&self) -> Duration {
        Duration::from_secs(600)
    }

    async fn call(&self, cx: &ToolCx, arguments: Value) -> Result<Output> {
        let mut command = Command::new("sh");
        command.arg("-c").arg(text(&arguments, "command")).current_dir(cx.local()?.root());
        let kept = ["PATH", "HOME", "LANG", "TERM"].into_iter();
        command.env_clear().envs(kept.filter_map(|name| Some((name, std::env::var_os(name)?))));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        #[cfg(unix)]
        command.process_group(0);
        let failed =
            |error: std::io::Error| Error::new(ErrorKind::Io, format_args!("cannot run `sh`: {}", error.kind()));
        let mut process = command.spawn().map_err(failed)?;
        let group = Group::of(&process);
        let (out, err) = (process.stdout.take(), process.stderr.take());
        let ended = async {
            let status = process.wait().await;
            // What it left running would keep the pipes open, and outlive the call.
            drop(group);
            status
        };
        let (out, err, status) = futures_util::future::join3(take(out, cx), take(err, cx), ended).await;
        let status = status.map_err(failed)?;
        let mut said = out;
        if !err.is_empty() {
            if !said.is_empty() && !said.ends_with('\n') {
                said.push('\n');
            }
            said.push_str(&err);
        }
        match status.code() {
            Some(0) => Ok(said.into()),
            Some(code) => Err(Error::new(ErrorKind::Tool, format_args!("exit code {code}\n{said}"))),
            None => Err(Error::new(ErrorKind::Tool, format_args!("killed by a signal\n{said}"))),
        }
    }
}

/// Takes in what a process prints. What is too much is read and left out, lest the process wait for ever.
async fn take(from: Option<impl AsyncRead + Unpin>, cx: &ToolCx) -> String {
    let Some(mut from) = from else { return String::new() };
    let (mut taken, mut told, mut left_out) = (Vec::new(), 0, 0_u64);
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        let room = usize::try_from(BYTES_MOST).unwrap_or(usize::MAX).saturating_sub(taken.len());
        taken.extend_from_slice(&buffer[..read.min(room)]);
        left_out += read.saturating_sub(room) as u64;
        // Whoever listens is told whole characters.
        let whole = match std::str::from_utf8(&taken[told..]) {
            Err(error) if error.error_len().is_none() => told + error.valid_up_to(),
            _ => taken.len(),
        };
        cx.output(String::from_utf8_lossy(&taken[told..whole]));
        told = whole;
    }
    let mut text = String::from_utf8_lossy(&taken).into_owned();
    if left_out > 0 {
        text.push_str(&format!("\n[{left_out} further bytes were not kept]"));
    }
    text
}

/// Everything that a process started in its group, itself included. It ends with this.
struct Group(Option<u32>);

impl Group {
    fn of(process: &Child) -> Self {
        Group(process.id())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        #[cfg(unix)]
        if let Some(group) = self.0.and_then(|id| rustix::process::Pid::from_raw(id.cast_signed())) {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
    }
}
