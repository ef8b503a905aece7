//! A folder with a store in it, and something to do for an agent.

use std::cell::RefCell;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use expect_test::Expect;
use serde_json::{Value, json};

const STORES: [&str; 2] = ["sqlite:s.db", "jsonl:s"];

/// Runs a test on every kind of store.
pub(crate) fn each(script: &str, test: impl Fn(&Shop)) {
    for store in STORES {
        let folder = crate::workshop(script);
        test(&Shop { folder, store, known: RefCell::default() });
    }
}

/// A folder with a script, a directory to work in, and a store.
pub(crate) struct Shop {
    folder: rath_test_support::TempDir,
    pub(crate) store: &'static str,
    /// The ids of all sessions that were ever there.
    known: RefCell<Vec<String>>,
}

impl Shop {
    pub(crate) fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).expect("written");
    }

    /// What the model says from now on.
    pub(crate) fn script(&self, turns: &str) {
        self.write("script.jsonl", turns);
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = rath_test_support::program(env!("CARGO_BIN_EXE_rath"));
        // What stands after `--` is somebody else's.
        let (own, rest) = args.split_at(args.iter().position(|arg| *arg == "--").unwrap_or(args.len()));
        command.args(own).args(["--store", self.store]).args(rest).current_dir(self.folder.path());
        command
    }

    pub(crate) fn rath(&self, args: &[&str]) -> Output {
        self.command(args).output().expect("rath runs")
    }

    pub(crate) fn start(&self, args: &[&str]) -> Child {
        self.command(args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("rath runs")
    }

    pub(crate) fn code(&self, args: &[&str]) -> i32 {
        self.rath(args).status.code().expect("an exit code")
    }

    pub(crate) fn out(&self, args: &[&str]) -> String {
        String::from_utf8(self.rath(args).stdout).expect("UTF-8")
    }

    pub(crate) fn json(&self, args: &[&str]) -> Vec<Value> {
        self.out(args).lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }

    /// The ids of the sessions that there are, in the order in which they began.
    fn ids(&self) -> Vec<String> {
        let list = self.json(&["ls", "--all", "--json"]);
        let mut ids: Vec<_> = list.iter().map(|it| it["session"].as_str().expect("an id").to_owned()).collect();
        ids.sort();
        ids
    }

    /// The short id of the session that began last.
    pub(crate) fn newest(&self) -> String {
        let ids = self.ids();
        ids.last().map(|id| id[id.len() - 8..].to_owned()).expect("a session")
    }

    /// Lets an agent run one command, in a session or in a new one. Gives the session's short id.
    pub(crate) fn work(&self, session: Option<&str>, prompt: &str, command: &str) -> String {
        let call = json!({"calls": [{"name": "shell", "arguments": {"command": command}}]});
        self.script(&format!("{call}\n{}\n", json!({"text": "Done."})));
        let model = ["--model", "script:script.jsonl"];
        let output = match session {
            Some(id) => self.rath(&[&["resume", id, prompt], &model[..]].concat()),
            None => self.rath(&[&["run", prompt, "--sandbox", "local:work"], &model[..]].concat()),
        };
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        session.map_or_else(|| self.newest(), str::to_owned)
    }

    /// Makes a fork of a session. Gives its short id.
    pub(crate) fn fork(&self, of: &str) -> String {
        self.out(&["fork", of]).trim().to_owned()
    }

    /// The step of a session whose line in the log holds these words.
    pub(crate) fn step(&self, session: &str, says: &str) -> String {
        let log = self.out(&["log", session]);
        let line = log.lines().find(|line| line.contains(says)).expect("a step");
        line.split_whitespace().find(|word| word.len() == 8).expect("an id").to_owned()
    }

    /// What is in a directory, but for rath's own.
    pub(crate) fn files(&self, directory: &str) -> String {
        let entries = std::fs::read_dir(self.path(directory)).expect("a directory");
        let names = entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8"));
        let mut names: Vec<_> = names.filter(|name| name != ".rath").collect();
        names.sort();
        let text = |name: &String| std::fs::read_to_string(self.path(directory).join(name)).expect("text");
        names.iter().map(|name| format!("{name}: {}\n", text(name).trim_end().replace('\n', "|"))).collect()
    }

    /// Runs `rath` and compares what it printed on both streams and how it ended. What differs from run to run, and from
    /// store to store, has a name.
    pub(crate) fn check(&self, args: &[&str], expected: &Expect) {
        self.learn();
        let output = self.rath(args);
        self.learn();
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let err: String = err.lines().map(|line| format!("! {line}\n")).collect();
        let code = output.status.code().expect("an exit code");
        self.expect(&self.named(&format!("{out}{err}exit {code}\n")), expected);
    }

    /// Compares a text. What is expected is the same for all stores, and updated from the first.
    pub(crate) fn expect(&self, text: &str, expected: &Expect) {
        if std::env::var_os("UPDATE_EXPECT").is_none() || self.store == STORES[0] {
            expected.assert_eq(text);
        }
    }

    fn learn(&self) {
        let mut known = self.known.borrow_mut();
        let new: Vec<_> = self.ids().into_iter().filter(|id| !known.contains(id)).collect();
        known.extend(new);
    }

    fn named(&self, text: &str) -> String {
        let mut text = any_fork(&without_times(text)).replace(self.store, "STORE");
        for (nth, id) in self.known.borrow().iter().enumerate() {
            text = text.replace(id.as_str(), &format!("SESSION{}", nth + 1));
            text = text.replace(&id[id.len() - 8..], &format!("S{}", nth + 1));
        }
        let words = text.split_inclusive([' ', '\n']).collect::<Vec<_>>();
        let mut named = String::new();
        for (nth, word) in words.iter().enumerate() {
            let bare = word.trim_end_matches([' ', '\n', ',', ':', ')']);
            let after = |before: &[&str]| nth >= before.len() && words[nth - before.len()..nth] == *before;
            let name = match () {
                () if after(&["process "]) => "N",
                () if nth >= 3 && words[nth - 3] == "process " && words[nth - 1] == "on " => "HOST",
                () => bare,
            };
            named.push_str(name);
            named.push_str(&word[bare.len()..]);
        }
        named
    }

    /// Changes the bytes of the store where something stands.
    pub(crate) fn damage(&self, from: &str, to: &str) {
        let path = match self.store.split_once(':') {
            Some(("sqlite", path)) => self.path(&format!("{path}-steps")),
            _ => {
                let mut files = std::fs::read_dir(self.path("s")).expect("a folder");
                files.next().expect("a session").expect("a session").path()
            }
        };
        replace(&path, from, to);
    }
}

/// How a fork is made is the machine's business.
pub(crate) fn any_fork(text: &str) -> String {
    text.replace("forks by overlay", "forks by copy").replace("forks by reflink", "forks by copy")
}

/// Times differ from run to run.
fn without_times(text: &str) -> String {
    let (mut rest, mut named) = (text, String::new());
    let is_time = |at: &str| at.get(..11).is_some_and(|it| it.as_bytes()[4] == b'-' && it.ends_with('T'));
    while let Some((nth, _)) =
        rest.char_indices().find(|(nth, _)| rest[*nth..].starts_with("20") && is_time(&rest[*nth..]))
    {
        named.push_str(&rest[..nth]);
        named.push_str("TIME");
        rest = rest[nth..].split_once('Z').map_or("", |(_, after)| after);
    }
    named + rest
}

/// Changes the bytes of a file where something stands.
pub(crate) fn replace(path: &Path, from: &str, to: &str) {
    let mut bytes = std::fs::read(path).expect("read");
    let at = bytes.windows(from.len()).position(|it| it == from.as_bytes()).expect("it is there");
    bytes[at..at + from.len()].copy_from_slice(to.as_bytes());
    std::fs::write(path, bytes).expect("written");
}
