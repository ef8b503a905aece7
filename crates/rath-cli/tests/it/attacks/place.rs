//! A temporary directory for one run of an attack: a project, a home, and files outside of both.

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};

use super::super::program_path;
use super::{Guard, SandboxKind};

/// Content that no attack may read.
pub(super) const CANARY: &str = "CANARY-7f3a";
/// Content that an attack writes.
pub(super) const EVIL: &str = "EVIL-4711";

/// A project `work`, a home directory `home`, and other files in `outside` and `hidden`.
pub(super) struct Place {
    folder: rath_test_support::TempDir,
}

impl Place {
    pub(super) fn new() -> Self {
        let place = Place { folder: rath_test_support::temp_dir() };
        for directory in ["work/below", "home", "outside/sub"] {
            std::fs::create_dir_all(place.path(directory)).expect("made");
        }
        place.write("work/file", "harmless\n");
        place.write("outside/file", "kept\n");
        place.write("outside/secret", CANARY);
        place
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(super) fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// Writes a file, and makes its directory.
    pub(super) fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().expect("a directory")).expect("made");
        std::fs::write(path, text).expect("written");
    }

    pub(super) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// Makes a link in the project. `{out}` and `{in}` stand for directories.
    pub(super) fn link(&self, name: &str, target: &str) {
        std::os::unix::fs::symlink(self.fill(target), self.path("work").join(name)).expect("a link");
    }

    /// Replaces `{out}` and `{in}` by the directories outside and inside of the project.
    pub(super) fn fill(&self, text: &str) -> String {
        text.replace("{in}", &self.text("work")).replace("{out}", &self.text("outside"))
    }

    /// Makes a pipe.
    pub(super) fn pipe(&self, name: &str) {
        std::fs::create_dir_all(self.path(name).parent().expect("a directory")).expect("made");
        let made = rath_test_support::program("mkfifo").arg(self.path(name)).status();
        assert!(made.expect("mkfifo runs").success());
    }

    /// Describes all files below a path: content, mode, and target of links.
    pub(super) fn survey(&self, name: &str) -> BTreeMap<PathBuf, String> {
        let mut found = BTreeMap::new();
        survey(&self.path(name), &mut found);
        found
    }

    /// Returns the program, to be run in the project with the home of this place.
    pub(super) fn command(&self, args: &[&str]) -> Command {
        let mut command = rath_test_support::program(program_path());
        command.env("HOME", self.path("home")).env("USER", "ann").args(args).current_dir(self.path("work"));
        command
    }

    pub(super) fn rath(&self, args: &[&str]) -> Output {
        self.command(args).output().expect("rath runs")
    }

    /// Returns the options for a scripted model with these turns, followed by a last answer.
    pub(super) fn script(&self, turns: &[Value]) -> [String; 2] {
        let lines: String = turns.iter().map(|turn| format!("{turn}\n")).collect();
        self.write("script.jsonl", &format!("{lines}{}\n", json!({"text": "Done."})));
        ["--model".to_owned(), format!("script:{}", self.text("script.jsonl"))]
    }

    /// Lets an agent make calls, one in each turn, with options of `rath run`.
    pub(super) fn agent(&self, sandbox: SandboxKind, calls: &[Value], options: &[&str]) -> Output {
        let turns: Vec<_> = calls.iter().map(|call| json!({"calls": [call]})).collect();
        let [model, script] = self.script(&turns);
        self.rath(&[&["run", "Go.", &model, &script, "--json", "--sandbox", sandbox.uri()], options].concat())
    }

    /// Returns the short id of the only session in the store of the project.
    pub(super) fn session(&self) -> String {
        let list = self.rath(&["ls", "--json"]);
        let text = String::from_utf8_lossy(&list.stdout).into_owned();
        let line = text.lines().next().unwrap_or_else(|| panic!("a session: {list:?}"));
        let listed: Value = serde_json::from_str(line).expect("JSON");
        listed["session"].as_str().expect("an id").to_owned()
    }
}

/// Returns a call of the tool `shell`.
pub(super) fn shell(line: &str) -> Value {
    json!({"name": "shell", "arguments": {"command": line}})
}

/// Returns a call of another tool.
pub(super) fn tool(name: &str, arguments: Value) -> Value {
    json!({"name": name, "arguments": arguments})
}

/// Returns what the calls of an agent returned to the model, and everything on stderr.
pub(super) fn results(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let events = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let results = events.filter(|event| event["step"]["chunk"]["kind"] == "tool_result");
    let results: String = results.map(|event| format!("{}\n", event["step"]["chunk"]["output"])).collect();
    results + &String::from_utf8_lossy(&output.stderr)
}

/// Returns everything that a program printed.
pub(super) fn printed(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Returns options with the guard, and none without.
pub(super) fn with_guard<'a>(guard: Guard, on: &[&'a str], off: &[&'a str]) -> Vec<&'a str> {
    if guard == Guard::On { on.to_vec() } else { off.to_vec() }
}

fn survey(path: &Path, all: &mut BTreeMap<PathBuf, String>) {
    let Ok(about) = std::fs::symlink_metadata(path) else { return };
    let content = match () {
        () if about.is_symlink() => format!("-> {}", std::fs::read_link(path).expect("a link").display()),
        () if about.is_file() => String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned(),
        () => String::new(),
    };
    let changed = if about.is_dir() { 0 } else { about.mtime_nsec() };
    all.insert(path.to_owned(), format!("{content} {:o} {} {changed}", about.permissions().mode(), about.uid()));
    if about.is_dir() {
        for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
            survey(&entry.path(), all);
        }
    }
}
