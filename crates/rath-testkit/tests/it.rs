//! The stores, sandboxes and memories that rath brings keep what every one has to.

use std::path::{Path, PathBuf};

use rath::memory::{MemoryErrorKind, Note, OpenViking, Position};
use rath::sandbox::{
    ByteRange, Command, DirEntry, Error, ErrorKind, Isolated, Local, Output, Result, Sandbox, SandboxBackend, Sink,
};
use rath::{Memory, Store};
use rath_testkit::memory::{self, MemoryCase};
use rath_testkit::openviking::StandInViking;
use rath_testkit::sandbox;
use rath_testkit::store::{StoreCase, conforms};

/// A place of its own for each promise.
fn in_folder(kind: &'static str) {
    conforms(&mut || {
        let folder = rath_test_support::temp_dir();
        let uri = format!("{kind}:{}", folder.path().join("store").display());
        // The folder lasts as long as the case.
        StoreCase::new(move || {
            let _ = &folder;
            open(&uri)
        })
    });
}

fn open(uri: &str) -> Store {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(Store::open(uri)).expect("a store")
}

#[test]
fn sqlite_keeps_its_promises() {
    in_folder("sqlite");
}

#[test]
fn jsonl_keeps_its_promises() {
    in_folder("jsonl");
}

#[test]
fn memory_keeps_its_promises() {
    conforms(&mut || StoreCase::lasting(open("memory:")));
}

/// An empty workspace for each promise.
fn in_workspace(open: impl Fn(&Path) -> Sandbox) {
    sandbox::conforms(&mut || {
        let folder = rath_test_support::temp_dir();
        sandbox::SandboxCase::new(open(folder.path()), folder)
    });
}

#[test]
fn local_keeps_its_promises() {
    in_workspace(|folder| Local::new(folder).into());
}

#[test]
fn isolated_keeps_its_promises() {
    in_workspace(|folder| Isolated::new(folder).into());
}

#[test]
fn isolated_keeps_its_promises_over_another_directory() {
    let shown = rath_test_support::temp_dir();
    in_workspace(|folder| Sandbox::isolated(shown.path()).with_directory(folder).expect("it is on this machine"));
}

/// A directory that is reached through a backend without one, and whose files have marks.
struct Marked {
    root: PathBuf,
    inner: Sandbox,
    mark: fn(&Path) -> String,
}

impl Marked {
    fn sandbox(root: &Path, mark: fn(&Path) -> String) -> Sandbox {
        Sandbox::new(Marked { root: root.to_owned(), inner: Sandbox::local(root), mark })
    }
}

impl SandboxBackend for Marked {
    fn uri(&self) -> &str {
        "marked:"
    }

    async fn run(&self, command: &Command, sink: &mut Sink<'_>) -> Result<Output> {
        self.inner.run_streaming(command, sink).await
    }

    async fn read(&self, path: &str, range: ByteRange) -> Result<Vec<u8>> {
        self.inner.read(path, range).await
    }

    async fn write(&self, path: &str, bytes: &[u8]) -> Result<()> {
        self.inner.write(path, bytes).await
    }

    async fn remove(&self, path: &str) -> Result<()> {
        let file = self.root.join(self.inner.stat(path).await?.map_or(Err(missing(path)), |_| Ok(path))?);
        std::fs::remove_file(&file)?;
        let above = file.ancestors().skip(1).take_while(|above| *above != self.root);
        above.take_while(|above| std::fs::remove_dir(above).is_ok()).for_each(drop);
        Ok(())
    }

    async fn list(&self, path: &str) -> Result<Vec<DirEntry>> {
        let entries = self.inner.list(path).await?;
        let mark = |entry: DirEntry| match std::fs::read_link(self.root.join(path).join(&entry.name)) {
            Ok(_) => entry,
            Err(_) => {
                let mark = (self.mark)(&self.root.join(path).join(&entry.name));
                entry.with_mark(mark)
            }
        };
        Ok(entries.into_iter().map(mark).collect())
    }

    async fn stat(&self, path: &str) -> Result<Option<DirEntry>> {
        self.inner.stat(path).await
    }
}

fn missing(path: &str) -> Error {
    Error::new(ErrorKind::Io, format!("there is no file {path}"))
}

#[test]
fn marks_that_follow_the_content_conform() {
    in_workspace(|folder| Marked::sandbox(folder, digest_of));
}

#[test]
#[should_panic(expected = "and the content changed")]
fn a_mark_that_is_only_the_size_does_not_conform() {
    in_workspace(|folder| {
        Marked::sandbox(folder, |path| std::fs::metadata(path).map_or(0, |metadata| metadata.len()).to_string())
    });
}

/// Returns the digest of a file.
fn digest_of(path: &Path) -> String {
    let content = std::fs::read(path).unwrap_or_default();
    rath::sandbox::Digest::from_content(&content).to_string()
}

#[test]
fn a_local_memory_keeps_its_promises() {
    memory::conforms(&mut || {
        let folder = rath_test_support::temp_dir();
        let uri = format!("local:{}", folder.path().join("memory").display());
        MemoryCase::new(move || {
            let _ = &folder;
            open_memory(&uri)
        })
    });
}

#[test]
fn a_memory_in_the_process_keeps_its_promises() {
    memory::conforms(&mut || MemoryCase::lasting(open_memory("process:notes")));
}

fn open_memory(uri: &str) -> Memory {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(Memory::open(uri)).expect("a memory")
}

#[test]
fn a_memory_in_openviking_keeps_its_promises() {
    memory::conforms(&mut || {
        let service = StandInViking::start();
        MemoryCase::new(move || viking(&service))
    });
}

fn viking(service: &StandInViking) -> Memory {
    Memory::new(OpenViking::new(service.address()).expect("an address").key(service.key()))
}

#[test]
fn what_openviking_refuses_is_said_without_the_key() {
    let runtime = runtime();
    let service = StandInViking::start();
    let wrong = Memory::new(OpenViking::new(service.address()).expect("an address").key("wrong-key-17"));
    let error = runtime.block_on(wrong.recall("gate")).expect_err("refused");
    assert!(
        error.message().contains("401") && error.hint().is_some_and(|hint| hint.contains("OPENVIKING_API_KEY")),
        "{error:?}"
    );
    let memory = viking(&service);
    let kinds = [
        (500, MemoryErrorKind::Other),
        (503, MemoryErrorKind::Busy),
        (409, MemoryErrorKind::Busy),
        (400, MemoryErrorKind::Invalid),
    ];
    for (status, kind) in kinds {
        service.fail(Some(status));
        let error = runtime.block_on(memory.remember(Note::new("The gate opens at nine."))).expect_err("refused");
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.message().contains("[key]") && !format!("{error:?}").contains(service.key()), "{error:?}");
        assert!(!error.message().contains('\u{7}'), "{error:?}");
    }
    service.fail(None);
    // Another server is no empty memory.
    let elsewhere =
        OpenViking::new(&format!("{}/elsewhere", service.address())).expect("an address").key(service.key());
    let error = runtime.block_on(Memory::new(elsewhere).recall("gate")).expect_err("there is no service");
    assert!(error.hint().is_some_and(|hint| hint.contains("address")), "{error:?}");
    // A file of another program is no note, and one of a newer version is not lost.
    runtime.block_on(memory.remember(Note::new("The gate opens at nine."))).expect("durable");
    for name in ["readme.md", "texts/readme.md", "texts/0123456789abcdef0123456789abcdef.md"] {
        service.put(&format!("viking://resources/rath-notes/{name}"), "The gate of others.");
    }
    let found = runtime.block_on(memory.recall("gate")).expect("an answer");
    assert_eq!(found.len(), 1);
    let as_of = rath::memory::Query::new("gate").as_of(rath::memory::Position(1));
    let error = runtime.block_on(memory.recall(as_of)).expect_err("it has no positions");
    assert_eq!(error.kind(), MemoryErrorKind::Unsupported);
    assert_eq!(service.writes(), 2, "a text and a note");
    drop(service);
    let error = runtime.block_on(memory.recall("gate")).expect_err("it is gone");
    assert_eq!(error.kind(), MemoryErrorKind::Connection, "{error}");
    for address in ["", "x", "ftp://a", "http://user:pw@a", "http://a?key=secret"] {
        let error = runtime.block_on(Memory::open(&format!("openviking:{address}"))).expect_err("refused");
        assert!(!format!("{error:?}").contains("secret") && error.kind() == MemoryErrorKind::Invalid, "{error:?}");
    }
}

#[test]
fn a_write_whose_answer_was_lost_can_be_made_again() {
    // The text, the note, and the old version.
    for (lost, writes) in [(0, 6), (1, 5), (2, 5)] {
        let service = StandInViking::start();
        let (memory, runtime) = (viking(&service), runtime());
        let old = runtime.block_on(memory.remember(Note::new("The gate opens at nine."))).expect("durable");
        let mut note = Note::new("The gate opens at ten.");
        note.replaces = Some(old);
        service.lose_write(lost);
        let error = runtime.block_on(memory.remember(note.clone())).expect_err("its answer is lost");
        assert_eq!(error.kind(), MemoryErrorKind::Connection, "{lost}: {error}");
        runtime.block_on(memory.remember(note.clone())).expect("durable");
        let found = runtime.block_on(memory.recall("gate")).expect("an answer");
        let found: Vec<_> = found.iter().map(|hit| &hit.note.id).collect();
        assert_eq!(found, [&note.id], "{lost}: the old version is not found any more");
        assert_eq!(service.writes(), writes, "{lost}: only a text without a note is written twice");
    }
}

#[test]
fn a_note_without_a_vector_is_found_once_it_is_written_again() {
    let service = StandInViking::start();
    let (memory, runtime) = (viking(&service), runtime());
    let note = Note::new("The gate opens at nine.");
    service.fail_vectors(true);
    let error = runtime.block_on(memory.remember(note.clone())).expect_err("it has no vector");
    assert!(error.message().contains("embedding"), "{error}");
    service.fail_vectors(false);
    runtime.block_on(memory.remember(note.clone())).expect("durable");
    let found = runtime.block_on(memory.recall("gate")).expect("an answer");
    assert_eq!(found.iter().map(|hit| &hit.note.id).collect::<Vec<_>>(), [&note.id]);
}

#[test]
fn a_damaged_file_hides_no_note() {
    let service = StandInViking::start();
    let (memory, runtime) = (viking(&service), runtime());
    for text in ["The gate opens at nine.", "The gate is red."] {
        runtime.block_on(memory.remember(Note::new(text))).expect("durable");
    }
    let damaged = "viking://resources/rath-notes/0123456789abcdef0123456789abcdef.md";
    service.put(damaged, "The gate of");
    service.put(&damaged.replace("rath-notes", "rath-notes/texts"), "The gate of others.");
    let hits = runtime.block_on(memory.recall("gate")).expect("an answer");
    let page = runtime.block_on(memory.list(&[], Position::default(), 9)).expect("a list");
    assert_eq!((hits.len(), page.len()), (2, 2));
    for notice in [hits.notice, page.notice] {
        let notice = notice.expect("a notice");
        assert!(notice.contains(damaged), "{notice}");
    }
}

#[test]
fn a_page_of_a_list_reads_the_files_of_its_notes() {
    let service = StandInViking::start();
    let (memory, runtime) = (viking(&service), runtime());
    let texts: Vec<String> = (0..9).map(|nth| format!("Gate {nth} opens at nine.")).collect();
    for text in &texts {
        runtime.block_on(memory.remember(Note::new(text))).expect("durable");
    }
    let (mut listed, mut reads, mut after) = (Vec::new(), Vec::new(), Position::default());
    loop {
        let before = service.reads();
        let page = runtime.block_on(memory.list(&[], after, 4)).expect("a list");
        reads.push(service.reads() - before);
        let Some((last, _)) = page.last() else { break };
        after = *last;
        listed.extend(page.into_iter().map(|(_, note)| note.text));
    }
    // The first page has to find out in which order they were written.
    assert_eq!((listed, &reads[..]), (texts, &[9, 4, 1, 0][..]));
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// The variables that tell a client where its service is.
const ADDRESS: &str = "RATH_TEST_ADDRESS";
const KEY: &str = "RATH_TEST_KEY";

#[test]
fn a_service_on_this_machine_is_reached_without_a_proxy() {
    let service = StandInViking::start();
    // Nothing listens there.
    let proxy = "http://127.0.0.1:9";
    let proxies = [("HTTP_PROXY", proxy), ("http_proxy", proxy), ("ALL_PROXY", proxy), ("NO_PROXY", "")];
    let settings = [&proxies[..], &[(ADDRESS, service.address()), (KEY, service.key())]].concat();
    let output = rath_test_support::this_test("a_client_behind_a_proxy", &settings).output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(service.writes(), 2);
}

#[test]
#[ignore = "run by `a_service_on_this_machine_is_reached_without_a_proxy`"]
fn a_client_behind_a_proxy() {
    // Among all ignored tests it has no parent.
    let [Ok(address), Ok(key)] = [ADDRESS, KEY].map(std::env::var) else { return };
    let runtime = runtime();
    let memory = Memory::new(OpenViking::new(&address).expect("an address").key(key));
    runtime.block_on(memory.remember(Note::new("The gate opens at nine."))).expect("durable");
}
