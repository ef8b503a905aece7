//! The commands in the guide work: blocks that begin with "```sh test" are run, page by page, in an empty directory. There are no other
//! blocks of shell: what cannot run here, such as on another machine, is a text.
//!
//! A block is run by `sh -e` where the block before it ended. `rath` is this program. A model of OpenAI is a server of this
//! test, which gives the answers in the page's comment `<!-- answers .. -->`, in order, written like those of a script. An
//! id of eight digits stands for a session: the first on the page for the oldest in the directory, and so on.

use std::collections::VecDeque;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::demo::path_with_program;
use crate::model_server::read_request;

const BLOCK_START: &str = "```sh test\n";
const BLOCK_END: &str = "```";
const ANSWERS_START: &str = "<!-- answers\n";
const ANSWERS_END: &str = "-->";

/// A page of the guide.
struct Page {
    name: String,
    /// The blocks of commands that are run.
    blocks: Vec<String>,
    /// The answers of its model.
    answers: VecDeque<Value>,
}

impl Page {
    fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).expect("a page is text");
        let answers = texts_between(&text, ANSWERS_START, ANSWERS_END).concat();
        let answers = answers.lines().map(|line| serde_json::from_str(line).expect("an answer is JSON"));
        Page {
            name: path.file_name().expect("a name").to_string_lossy().into(),
            blocks: texts_between(&text, BLOCK_START, BLOCK_END),
            answers: answers.collect(),
        }
    }

    /// Returns the words of all blocks that stand for sessions, in the order in which they come first.
    fn ids(&self) -> Vec<&str> {
        let is_id = |word: &&str| word.len() == 8 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
        let mut ids = Vec::new();
        for word in self.blocks.iter().flat_map(|block| block.split(|c: char| !c.is_alphanumeric())).filter(is_id) {
            if !ids.contains(&word) {
                ids.push(word);
            }
        }
        ids
    }

    /// Runs the blocks, each where the one before ended.
    fn run(self) {
        let folder = rath_test_support::temp_dir();
        let last_directory = folder.path().join("last-directory");
        let (mut directory, home) = (folder.path().join("empty"), folder.path().join("home"));
        [&directory, &home].into_iter().for_each(|path| std::fs::create_dir(path).expect("a directory"));
        let unused = Arc::new(Mutex::new(self.answers.clone()));
        let url = serve(unused.clone());
        for block in &self.blocks {
            let block = with_sessions(block, &self.ids(), &directory);
            let mut shell = rath_test_support::program("sh");
            // What runs is shown, so that a failure names its command.
            let script = format!("set -x\ntrap 'pwd > \"$LAST_DIRECTORY\"' EXIT\n{block}");
            shell.args(["-e", "-c", &script]).current_dir(&directory).env("PATH", path_with_program());
            shell
                .env("HOME", &home)
                .env("USER", "ann")
                .env("LAST_DIRECTORY", &last_directory)
                .env("OPENAI_BASE_URL", &url)
                .env("OPENAI_API_KEY", "sk-test");
            let output = shell.output().expect("sh runs");
            let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
            assert!(output.status.success(), "{}: {block}\n{out}\n{err}", self.name);
            directory = std::fs::read_to_string(&last_directory).expect("a directory").trim_end().into();
        }
        let unused = unused.lock().expect("no panic");
        assert!(unused.is_empty(), "{}: answers that no command asked for: {unused:?}", self.name);
    }
}

/// Returns the texts that stand between two marks.
fn texts_between(text: &str, start: &str, end: &str) -> Vec<String> {
    let parts = text.split(start).skip(1);
    parts.map(|part| part.split_once(end).expect("the end of a block").0.to_owned()).collect()
}

/// Replaces the ids of a page by those of the sessions in a directory, as far as there are any.
fn with_sessions(block: &str, ids: &[&str], directory: &Path) -> String {
    let list = crate::printed(directory, &["ls", "--all", "--json"]);
    let sessions = list.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let mut sessions: Vec<_> = sessions.map(|it| it["session"].as_str().expect("an id").to_owned()).collect();
    sessions.sort();
    ids.iter().zip(&sessions).fold(block.to_owned(), |block, (id, session)| block.replace(id, session))
}

/// Starts a server that gives these answers, and returns its URL.
pub(crate) fn serve(answers: Arc<Mutex<VecDeque<Value>>>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/v1", listener.local_addr().expect("an address"));
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let answers = answers.clone();
            std::thread::spawn(move || answer_all(stream, &answers));
        }
    });
    url
}

/// Answers the requests of one connection. Without an answer the connection ends, and the command fails.
fn answer_all(mut stream: TcpStream, answers: &Mutex<VecDeque<Value>>) {
    while let Some(request) = read_request(&mut stream) {
        let Some(answer) = answers.lock().expect("no panic").pop_front() else { return };
        let turn = request["messages"].as_array().map_or(0, Vec::len);
        let call = |(nth, call): (usize, &Value)| {
            let function = json!({"name": call["name"], "arguments": call["arguments"].to_string()});
            json!({"id": format!("call_{turn}_{nth}"), "type": "function", "function": function})
        };
        let calls: Vec<_> = answer["calls"].as_array().into_iter().flatten().enumerate().map(call).collect();
        let (message, finish) = match calls.is_empty() {
            true => (json!({"role": "assistant", "content": answer["text"]}), "stop"),
            false => (json!({"role": "assistant", "content": null, "tool_calls": calls}), "tool_calls"),
        };
        let usage = json!({"prompt_tokens": 90, "completion_tokens": 10, "total_tokens": 100});
        let choice = json!({"index": 0, "message": message, "finish_reason": finish});
        let body = json!({"id": "1", "model": request["model"], "choices": [choice], "usage": usage}).to_string();
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n";
        let response = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
        if stream.write_all(response.as_bytes()).is_err() {
            return;
        }
    }
}

/// Returns the paths of all pages.
fn pages() -> impl Iterator<Item = PathBuf> {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide");
    let entries = std::fs::read_dir(guide).expect("the guide");
    let pages = entries.map(|entry| entry.expect("an entry").path());
    pages.filter(|path| path.extension().is_some_and(|it| it == "md"))
}

#[test]
fn all_blocks_of_shell_are_run() {
    let mut unmarked = String::new();
    for path in pages() {
        let text = std::fs::read_to_string(&path).expect("a page is text");
        let is_shell = |line: &&str| ["```sh", "```bash", "```shell"].iter().any(|start| line.starts_with(start));
        for line in text.lines().filter(is_shell).filter(|line| *line != BLOCK_START.trim_end()) {
            unmarked.push_str(&format!("{}: {line}\n", path.display()));
        }
    }
    assert!(unmarked.is_empty(), "write \"```sh test\", or \"```text\" for what cannot run here:\n{unmarked}");
}

#[test]
fn the_commands_in_the_guide_work() {
    let pages: Vec<_> = pages().map(|path| Page::read(&path)).filter(|page| !page.blocks.is_empty()).collect();
    assert!(pages.iter().any(|page| page.name == "getting-started.md"), "its commands are marked");
    pages.into_iter().for_each(Page::run);
}
