//! A temporary directory with a store, a scripted model and a directory to work in.

use std::cell::RefCell;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use expect_test::Expect;
use serde_json::{Value, json};

pub(crate) const STORES: [&str; 2] = ["sqlite:.rath/s.db", "jsonl:.rath/s"];

/// Runs a test on each kind of store.
pub(crate) fn for_each_store(script: &str, test: impl Fn(&Fixture)) {
    for store in STORES {
        test(&Fixture::in_folder(crate::workshop(script), store));
    }
}

/// A temporary directory with a script, a directory to work in, and a store.
pub(crate) struct Fixture {
    folder: std::rc::Rc<rath_test_support::TempDir>,
    pub(crate) store: &'static str,
    /// The ids of all sessions that the store ever had.
    known: RefCell<Vec<String>>,
}

impl Fixture {
    pub(crate) fn in_folder(folder: rath_test_support::TempDir, store: &'static str) -> Self {
        Fixture { folder: folder.into(), store, known: RefCell::default() }
    }

    /// Returns the same directory with another store.
    pub(crate) fn with_store(other: &Fixture, store: &'static str) -> Self {
        Fixture { folder: other.folder.clone(), store, known: RefCell::default() }
    }

    pub(crate) fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).expect("written");
    }

    /// Replaces the answers of the scripted model.
    pub(crate) fn script(&self, turns: &str) {
        self.write("script.jsonl", turns);
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = rath_test_support::program(crate::program_path());
        // Arguments after `--` belong to another program.
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

    /// Returns the ids of the sessions in the store, oldest first.
    fn ids(&self) -> Vec<String> {
        let list = self.json(&["ls", "--all", "--json"]);
        let mut ids: Vec<_> = list.iter().map(|it| it["session"].as_str().expect("an id").to_owned()).collect();
        ids.sort();
        ids
    }

    /// Returns the short id of the newest session.
    pub(crate) fn newest(&self) -> String {
        let ids = self.ids();
        ids.last().map(|id| id[id.len() - 8..].to_owned()).expect("a session")
    }

    /// Lets an agent run one command, in `session` or in a new session. Returns the session's short id.
    pub(crate) fn work(&self, session: Option<&str>, prompt: &str, command: &str) -> String {
        let Some(id) = session else { return self.work_in("local:work", prompt, command) };
        self.script_command(command);
        let output = self.rath(&["resume", id, prompt, "--model", "script:script.jsonl"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        id.to_owned()
    }

    /// Lets an agent run one command in a new session. Returns the session's short id.
    pub(crate) fn work_in(&self, sandbox: &str, prompt: &str, command: &str) -> String {
        self.script_command(command);
        let output = self.rath(&["run", prompt, "--sandbox", sandbox, "--model", "script:script.jsonl"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        self.newest()
    }

    /// Writes a script of a model that calls one command.
    pub(crate) fn script_command(&self, command: &str) {
        let call = json!({"calls": [{"name": "shell", "arguments": {"command": command}}]});
        self.script(&format!("{call}\n{}\n", json!({"text": "Done."})));
    }

    /// Forks a session. Returns the short id of the fork.
    pub(crate) fn fork(&self, of: &str) -> String {
        self.out(&["fork", of]).trim().to_owned()
    }

    /// Returns the step of a session whose line in the log contains `text`.
    pub(crate) fn step(&self, session: &str, text: &str) -> String {
        let log = self.out(&["log", "-v", session]);
        let line = log.lines().find(|line| line.contains(text)).expect("a step");
        line.split_whitespace().find(|word| word.len() == 8).expect("an id").to_owned()
    }

    /// Returns the files of a directory with their content, without `.rath`.
    pub(crate) fn files(&self, directory: &str) -> String {
        let entries = std::fs::read_dir(self.path(directory)).expect("a directory");
        let names = entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8"));
        let mut names: Vec<_> = names.filter(|name| name != ".rath").collect();
        names.sort();
        let text = |name: &String| std::fs::read_to_string(self.path(directory).join(name)).expect("text");
        names.iter().map(|name| format!("{name}: {}\n", text(name).trim_end().replace('\n', "|"))).collect()
    }

    /// Runs `rath` and compares its output on both streams and its exit code. All that differs between runs or stores is
    /// replaced by a placeholder.
    pub(crate) fn check(&self, args: &[&str], expected: &Expect) {
        self.expect(&with_numbered_steps(&self.printed(args)), expected);
    }

    /// Compares a text about the store, in which all that differs between runs or stores is replaced by a placeholder.
    pub(crate) fn check_text(&self, text: &str, expected: &Expect) {
        self.learn();
        self.expect(&with_numbered_steps(&self.with_placeholders(text)), expected);
    }

    fn printed(&self, args: &[&str]) -> String {
        self.learn();
        let output = self.rath(args);
        self.learn();
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let err: String = err.lines().map(|line| format!("! {line}\n")).collect();
        let code = output.status.code().expect("an exit code");
        self.with_placeholders(&format!("{out}{err}exit {code}\n"))
    }

    /// Compares a text. The expected text is the same for all stores, and is updated from the first.
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

    fn with_placeholders(&self, text: &str) -> String {
        let mut text = normalize(self.folder.path(), text).replace(self.store, "STORE");
        for (nth, id) in self.known.borrow().iter().enumerate() {
            text = text.replace(id.as_str(), &format!("SESSION{}", nth + 1));
            text = text.replace(&id[id.len() - 8..], &format!("S{}", nth + 1));
        }
        let words = text.split_inclusive([' ', '\n']).collect::<Vec<_>>();
        let mut replaced = String::new();
        for (nth, word) in words.iter().enumerate() {
            let bare = word.trim_end_matches([' ', '\n', ',', ':', ')']);
            let after = |before: &[&str]| nth >= before.len() && words[nth - before.len()..nth] == *before;
            let name = match () {
                () if after(&["process "]) => "N",
                () if nth >= 3 && words[nth - 3] == "process " && words[nth - 1] == "on " => "HOST",
                () => bare,
            };
            replaced.push_str(name);
            replaced.push_str(&word[bare.len()..]);
        }
        replaced
    }

    /// Replaces `from` in the files of the store.
    pub(crate) fn damage(&self, from: &str, to: &str) {
        let path = match self.store.split_once(':') {
            // No process has the store open: there is no WAL.
            Some(("sqlite", path)) => self.path(path),
            _ => {
                let files = std::fs::read_dir(self.path(".rath/s")).expect("a folder");
                let mut paths = files.map(|entry| entry.expect("an entry").path());
                paths.find(|path| path.extension().is_some_and(|it| it == "jsonl")).expect("a session")
            }
        };
        replace(&path, from, to);
    }
}

/// Replaces the ids of steps, which depend on the temporary directory, by numbers in the order of the text.
pub(crate) fn with_numbered_steps(text: &str) -> String {
    let is_id = |word: &&str| matches!(word.len(), 8 | 64) && word.bytes().all(|it| it.is_ascii_hexdigit());
    let words = text.split(|it: char| !it.is_alphanumeric()).filter(is_id);
    let mut ids: Vec<&str> = Vec::new();
    for word in words {
        if ids.iter().all(|id| id[..8] != word[..8]) {
            ids.push(word);
        }
    }
    let names: Vec<_> = ids.iter().enumerate().map(|(nth, id)| (&id[..8], format!("STEP{}", nth + 1))).collect();
    let is_end = |it: char| !it.is_alphanumeric();
    let replaced = text.split_inclusive(is_end).map(|part| {
        let word = part.trim_end_matches(is_end);
        match names.iter().find(|(id, _)| is_id(&word) && word.starts_with(id)) {
            Some((_, name)) => format!("{name}{}", &part[word.len()..]),
            None => part.to_owned(),
        }
    });
    replaced.collect()
}

/// Leaves out the time that a call took, which its card has if the machine is slow.
pub(crate) fn without_call_times(text: &str) -> String {
    let lines = text.split_inclusive('\n').map(|line| {
        let card = line.trim_end_matches('\n');
        let is_card = card.trim_start_matches(['!', ' ']).starts_with(['✓', '✗']);
        match card.rsplit_once("  ").filter(|(_, time)| is_card && time.ends_with(" s")) {
            Some((call, _)) => format!("{call}\n"),
            None => line.to_owned(),
        }
    });
    lines.collect()
}

/// Replaces all that differs from run to run: times, durations and the path of the temporary directory.
pub(crate) fn normalize(folder: &Path, text: &str) -> String {
    let mut text = text.to_owned();
    let absolute = folder.display().to_string();
    if let Some(home) = std::env::var_os("HOME")
        && let Ok(rest) = folder.strip_prefix(home)
    {
        text = text.replace(&format!("~/{}", rest.display()), "FOLDER");
    }
    text = text.replace(&absolute, "FOLDER");
    let is_temporary =
        |path: &&Path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("rath test "));
    if let Some(above) = folder.ancestors().find(is_temporary).and_then(Path::parent) {
        text = replace_shape(&text, &format!("{}/rath test ??????", above.display()), "OTHER");
    }
    for (shape, placeholder) in [
        // Recorded paths are longer or shorter.
        ("##### bytes", "N bytes"),
        ("from byte #####", "from byte N"),
        ("2###-##-## ##:## UTC", "TIME"),
        (" ##:## UTC", " TIME"),
        ("done in #.# s", "done in TIME"),
        ("done in ##.# s", "done in TIME"),
    ] {
        text = replace_shape(&text, shape, placeholder);
    }
    without_call_times(&replace_times(&text))
}

/// Replaces each text of the same shape; `#` stands for a digit, `?` for any character.
fn replace_shape(text: &str, shape: &str, placeholder: &str) -> String {
    let fits = |part: &[u8]| {
        let mut pairs = shape.bytes().zip(part);
        pairs.all(|(wanted, byte)| match wanted {
            b'#' => byte.is_ascii_digit(),
            b'?' => true,
            wanted => wanted == *byte,
        })
    };
    let (mut rest, mut replaced) = (text, String::new());
    while let Some(at) = rest.as_bytes().windows(shape.len()).position(fits) {
        replaced.push_str(&rest[..at]);
        replaced.push_str(placeholder);
        rest = &rest[at + shape.len()..];
    }
    replaced + rest
}

/// Replaces times in RFC 3339.
fn replace_times(text: &str) -> String {
    let (mut rest, mut replaced) = (text, String::new());
    let is_time = |at: &str| at.get(..11).is_some_and(|it| it.as_bytes()[4] == b'-' && it.ends_with('T'));
    while let Some((nth, _)) =
        rest.char_indices().find(|(nth, _)| rest[*nth..].starts_with("20") && is_time(&rest[*nth..]))
    {
        replaced.push_str(&rest[..nth]);
        replaced.push_str("TIME");
        rest = rest[nth..].split_once('Z').map_or("", |(_, after)| after);
    }
    replaced + rest
}

/// Replaces every occurrence of `from` in a file by `to`, which has the same length: a database may have copies in unused space.
pub(crate) fn replace(path: &Path, from: &str, to: &str) {
    let mut bytes = std::fs::read(path).expect("read");
    let places: Vec<_> = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(from.as_bytes())).collect();
    assert!(!places.is_empty(), "`{from}` is there");
    for at in places {
        bytes[at..at + from.len()].copy_from_slice(to.as_bytes());
    }
    std::fs::write(path, bytes).expect("written");
}
