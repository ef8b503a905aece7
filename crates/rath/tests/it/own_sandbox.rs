//! Sessions in a kind of sandbox that the program brings.

use std::path::Path;

use rath::BranchId;
use rath::chunk::{Call, Outcome};
use rath::prelude::*;
use rath::sandbox::{ByteRange, Command, DirEntry, Output, Registry, Result as SandboxResult, SandboxBackend, Sink};
use rath::tool::builtin::{ReadFile, Shell, WriteFile};
use rath::turn::Next;
use rath::view;

use crate::support::{block_on, close, folder, script};

/// A directory below another one, by its name.
struct Project {
    uri: String,
    inner: Sandbox,
}

impl Project {
    fn open(below: &Path, name: &str) -> Sandbox {
        Sandbox::new(Project { uri: format!("project:{name}"), inner: Sandbox::local(below.join(name)) })
    }

    /// Returns the kinds of a program that has its projects below a directory.
    fn kinds(below: &Path) -> Registry {
        let below = below.to_owned();
        Registry::new().with("project", move |name| Ok(Project::open(&below, name)))
    }
}

impl SandboxBackend for Project {
    fn uri(&self) -> &str {
        &self.uri
    }

    async fn run(&self, command: &Command, sink: &mut Sink<'_>) -> SandboxResult<Output> {
        self.inner.run_streaming(command, sink).await
    }

    async fn read(&self, path: &str, range: ByteRange) -> SandboxResult<Vec<u8>> {
        self.inner.read(path, range).await
    }

    async fn write(&self, path: &str, bytes: &[u8]) -> SandboxResult<()> {
        self.inner.write(path, bytes).await
    }

    async fn list(&self, path: &str) -> SandboxResult<Vec<DirEntry>> {
        self.inner.list(path).await
    }

    async fn stat(&self, path: &str) -> SandboxResult<Option<DirEntry>> {
        self.inner.stat(path).await
    }

    fn directory(&self) -> Option<&Path> {
        self.inner.directory()
    }

    fn with_directory(&self, directory: &Path) -> Option<Sandbox> {
        let inner = self.inner.with_directory(directory)?;
        Some(Sandbox::new(Project { uri: self.uri.clone(), inner }))
    }
}

fn agent<T: AsRef<str>>(turns: impl IntoIterator<Item = T>) -> Agent {
    Agent::new("Work.", &script(turns)).tool(WriteFile).tool(ReadFile).tool(Shell)
}

const WRITE: [&str; 2] = [
    r#"{"calls": [{"name": "write_file", "arguments": {"path": "a.txt", "content": "one\n"}}]}"#,
    r#"{"text": "written"}"#,
];
const READ: [&str; 2] =
    [r#"{"calls": [{"name": "read_file", "arguments": {"path": "a.txt"}}]}"#, r#"{"text": "read"}"#];

/// Returns the directories of the stores, below a directory that has the project `p`.
fn stores(root: &Path) -> [String; 2] {
    [format!("sqlite:{}", root.join("s.db").display()), format!("jsonl:{}", root.join("s").display())]
}

/// Lets an agent write a file in the project `p`, and returns the stored session.
fn work(root: &Path, store: &str) -> BranchId {
    let store = block_on(Store::open(store)).expect("a store");
    let session = Session::user("write").to(Project::open(root, "p"));
    let session = block_on(async { agent(WRITE).run(session.record(&store).await?).await }).expect("it runs");
    let id = session.id();
    close(session, store);
    id
}

fn opened(store: &str, kinds: Option<Registry>) -> Store {
    let store = block_on(Store::open(store)).expect("a store");
    kinds.into_iter().fold(store, Store::sandboxes)
}

fn results(session: &Session) -> Vec<(Outcome, String)> {
    let results = session.chunks().filter_map(|chunk| match chunk {
        Chunk::ToolResult(result) => Some((result.outcome, result.output.to_string())),
        _ => None,
    });
    results.collect()
}

#[test]
fn a_session_in_a_sandbox_of_the_program_goes_on_where_it_was() {
    let folder = folder(&[("p/b.txt", "two\n")]);
    let root = folder.path();
    for uri in stores(root) {
        let id = work(root, &uri);
        let store = opened(&uri, Some(Project::kinds(root)));
        let mut session = block_on(store.resume(id)).expect("stored").complete().expect("nothing has changed");
        session.push(Chunk::user("read it"));
        let session = block_on(agent(READ).run(session)).expect("it goes on");
        let (outcome, text) = results(&session).pop().expect("a result");
        assert_eq!((outcome, text.contains("one")), (Outcome::Ok, true), "{text}");
        // A fork works in a directory of its own, with the same files.
        let append =
            [r#"{"calls": [{"name": "shell", "arguments": {"command": "echo more >> a.txt"}}]}"#, r#"{"text": "ok"}"#];
        let mut fork = session.fork();
        fork.push(Chunk::user("append"));
        let fork = block_on(agent(append).run(fork)).expect("it runs");
        assert_ne!(view::tree(fork.as_record()), view::tree(session.as_record()));
        assert_eq!(std::fs::read_to_string(root.join("p/a.txt")).expect("a file"), "one\n");
        close((session, fork), store);
    }
}

#[test]
fn changes_in_a_sandbox_of_the_program_are_seen_when_a_session_is_opened() {
    let folder = folder(&[("p/b.txt", "two\n")]);
    let [uri, _] = stores(folder.path());
    let id = work(folder.path(), &uri);
    std::fs::write(folder.path().join("p/b.txt"), "three\n").expect("written");
    let store = opened(&uri, Some(Project::kinds(folder.path())));
    let resumed = block_on(store.resume(id)).expect("stored");
    assert_eq!(resumed.certificate().to_string(), "files changed since the last turn: ~b.txt");
    close(resumed, store);
}

#[test]
fn a_saved_session_is_opened_with_the_kinds_of_the_program() {
    let folder = folder(&[("p/b.txt", "two\n")]);
    let (root, path) = (folder.path(), folder.path().join("s.rath"));
    let session = Session::user("write").to(Project::open(root, "p"));
    let session = block_on(agent(WRITE).run(session)).expect("it runs");
    block_on(session.save(&path)).expect("saved");
    let open = || block_on(Session::open(&path)).expect("a file").session;
    let mut session = open().sandboxes(Project::kinds(root));
    session.push(Chunk::user("read it"));
    let session = block_on(agent(READ).run(session)).expect("it goes on");
    assert_eq!(results(&session).last().map(|(outcome, _)| *outcome), Some(Outcome::Ok));
}

#[test]
fn an_unknown_kind_of_sandbox_is_an_error_of_the_run() {
    let folder = folder(&[("p/b.txt", "two\n")]);
    let root = folder.path();
    for uri in stores(root) {
        let id = work(root, &uri);
        let store = opened(&uri, None);
        let mut session = block_on(store.resume(id)).expect("stored").anyway();
        // A call that waits stays open: the model gets no error that only a person can mend.
        session.push(Chunk::calls([Call::new("c", "read_file", r#"{"path": "a.txt"}"#)]));
        let before = results(&session);
        let error = block_on(agent(READ).run(session)).expect_err("the kind is unknown");
        assert_eq!(error.kind(), ErrorKind::Place);
        assert_eq!(error.message(), "unknown kind of sandbox `project`; known: local, isolated");
        assert!(error.hint().is_some_and(|hint| hint.contains("store.sandboxes(")), "{error:?}");
        let session = error.into_session().expect("the session");
        assert_eq!(results(&session), before);
        assert!(matches!(session.next(), Next::RunTools(_)));
        // An agent without tools needs no place.
        let mut asked = session;
        asked.push(Chunk::result("c", "one"));
        let asked = block_on(Agent::new("Talk.", &script([r#"{"text": "hi"}"#])).run(asked)).expect("it runs");
        assert_eq!(asked.text(), Some("hi"));
        close(asked, store);
    }
}

#[test]
fn the_place_of_a_guest_is_not_opened_with_the_kinds_of_the_program() {
    let mut record = rath::record::Record::new();
    let stamp = rath::record::Stamp::on(Session::empty().id());
    record.push(rath::chunk::Placed::new("project:p").into(), stamp.clone());
    record.push(rath::chunk::Observed::new(rath::chunk::Tree("t".to_owned())).into(), stamp);
    let kinds = Registry::new().with("project", |_| panic!("a guest chose this place"));
    let session = Session::resume(record).sandboxes(kinds);
    assert!(block_on(session.checkout("/nowhere")).is_err());
}
