//! No file is opened, read or written on the thread that runs the tasks.
//!
//! A story runs on a runtime of one thread. That thread stands in an empty directory, and the threads of the blocking pool
//! stand in the project's, so [`OWN_DIRECTORY`] leads somewhere on the pool only. What is reached through an open directory
//! instead is counted: the kernel keeps the number of reads and writes of every thread.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rath::chunk::{Outcome, Resolution, Verdict};
use rath::prelude::*;
use rath::sandbox::{ByteRange, Command};
use rath::store::Store;
use rath::tool::builtin;
use rath::view;
use rustix::thread::{UnshareFlags, unshare_unsafe};
use serde_json::json;

use crate::support::{put, script};

/// A path that leads each thread to the directory that it stands in.
const OWN_DIRECTORY: &str = "/proc/thread-self/cwd";

/// The calls that a thread made to read and write, and their bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Traffic {
    reads: u64,
    writes: u64,
    bytes_read: u64,
    bytes_written: u64,
}

impl Traffic {
    /// Returns the traffic of the current thread so far.
    fn now() -> Self {
        let text = std::fs::read_to_string("/proc/thread-self/io").expect("the kernel counts");
        let number = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("a line");
            line.trim().parse::<u64>().expect("a number")
        };
        let (reads, writes) = (number("syscr:"), number("syscw:"));
        Traffic { reads, writes, bytes_read: number("rchar:"), bytes_written: number("wchar:") }
    }

    /// Returns the traffic since an earlier look, without that look's own.
    fn since(self, start: Self) -> Self {
        let empty = Traffic::now_twice();
        Traffic {
            reads: (self.reads - start.reads).saturating_sub(empty.reads),
            writes: self.writes - start.writes,
            bytes_read: (self.bytes_read - start.bytes_read).saturating_sub(empty.bytes_read + 16),
            bytes_written: self.bytes_written - start.bytes_written,
        }
    }

    /// Fails if something was written. To wake the runtime is a write of 8 bytes.
    #[track_caller]
    fn assert_no_write(self) {
        assert_eq!(self.bytes_written, 8 * self.writes, "{self:?}");
    }

    /// Returns the traffic that a look itself makes.
    fn now_twice() -> Self {
        let (one, other) = (Traffic::now(), Traffic::now());
        Traffic { reads: other.reads - one.reads, bytes_read: other.bytes_read - one.bytes_read, ..Traffic::default() }
    }
}

/// Lets the current thread, and those that it starts from now on, stand in a directory of its own.
#[allow(unsafe_code, reason = "a thread of its own can have a current directory of its own")]
fn stand_in(directory: &Path) {
    // SAFETY: only the current directory and the umask are no longer shared, and nothing depends on either.
    unsafe { unshare_unsafe(UnshareFlags::FS) }.expect("a thread may stand elsewhere");
    std::env::set_current_dir(directory).expect("a directory");
}

/// Runs a story in a project, and returns what the runtime's own thread read and wrote.
fn tell<S>(project: &Path, story: impl FnOnce() -> S + Send) -> Traffic
where
    S: Future<Output = Result<()>>,
{
    let nowhere = rath_test_support::temp_dir();
    let home: Arc<Path> = project.into();
    let traffic = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            stand_in(nowhere.path());
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = runtime.enable_all().on_thread_start(move || stand_in(&home)).build().expect("a runtime");
            // The first regex of a process reads how many processors there are.
            regex::Regex::new("once").expect("a pattern");
            runtime.block_on(async {
                let start = Traffic::now();
                story().await.unwrap_or_else(|error| panic!("{error:?}"));
                Traffic::now().since(start)
            })
        });
        thread.join().expect("the story is told")
    });
    assert_eq!(std::fs::read_dir(nowhere.path()).expect("a directory").count(), 0, "something was written there");
    traffic
}

fn project() -> rath_test_support::TempDir {
    let project = rath_test_support::temp_dir();
    put(project.path(), "trip.txt", "to: Paris\nby: train\nday: Friday\nfor: two\n");
    put(project.path(), "src/main.rs", "fn main() {}\n");
    project
}

/// An agent that makes these calls, one round after the other.
fn worker(rounds: &[&[(&str, serde_json::Value)]]) -> Agent {
    let call = |(name, arguments): &(&str, serde_json::Value)| json!({"name": name, "arguments": arguments});
    let turns = rounds.iter().map(|calls| json!({"calls": calls.iter().map(call).collect::<Vec<_>>()}).to_string());
    let turns: Vec<_> = turns.chain([r#"{"text": "done"}"#.to_owned()]).collect();
    Agent::new("Work.", &script(turns)).tools(builtin::all())
}

/// Fails unless every call of a session succeeded.
fn assert_good(session: &Session) {
    for chunk in session.chunks() {
        if let Chunk::ToolResult(result) = chunk {
            assert_eq!(result.outcome, Outcome::Ok, "{result:?}");
        }
    }
}

fn shell(command: &str) -> (&'static str, serde_json::Value) {
    ("shell", json!({"command": command}))
}

#[test]
fn files_of_a_session_are_touched_on_the_blocking_pool() {
    let project = project();
    let traffic = tell(project.path(), || async {
        let session = Session::user("go").to(Sandbox::local(OWN_DIRECTORY));
        let rounds: &[&[_]] = &[
            &[
                ("write_file", json!({"path": "a.txt", "content": "one\n"})),
                ("write_file", json!({"path": "b.txt", "content": "two\n"})),
                ("read_file", json!({"path": "trip.txt"})),
            ],
            &[
                ("edit_file", json!({"path": "trip.txt", "old_string": "train", "new_string": "bus"})),
                ("search_files", json!({"pattern": "main"})),
                ("list_files", json!({"path": "."})),
                ("file_exists", json!({"path": "src/main.rs"})),
            ],
            &[shell("echo three > c.txt"), ("check", json!({"command": "test -e c.txt"}))],
        ];
        let session = worker(rounds).run(session).await?;
        let first = view::trees(session.as_record()).list[0].step.id();

        let fork = |words: &str| {
            let mut fork = session.fork();
            fork.push(Chunk::user(words));
            fork
        };
        let ours = worker(&[&[shell("sed -i s/Paris/Lyon/ trip.txt")]]);
        let theirs = worker(&[&[shell("sed -i s/Paris/Rome/ trip.txt; echo 4 > d.txt")]]);
        let (ours, theirs) = tokio::try_join!(ours.run(fork("ours")), theirs.run(fork("theirs")))?;
        let mut merged = ours.merge(&theirs).await?;
        assert_good(&merged);
        assert_eq!(merged.conflicts().len(), 1, "both went elsewhere");
        let mut edited = merged.fork();
        edited.decide_edited("trip.txt", b"to: Nice\n").await?;
        merged.decide("trip.txt", Resolution::Theirs).await?;
        assert!(merged.update_files().await?.is_some(), "it works in the project");
        assert!(!merged.changes(&edited).await?.is_empty());
        assert!(merged.patch(&edited).await?.contains("Nice"));
        assert!(merged.checkout("copy").await?.files > 5);
        assert_eq!(merged.blame("trip.txt").await?.map(|blame| blame.lines.len()), Some(4));
        let argv = ["grep", "-q", "Paris", "trip.txt"].map(str::to_owned);
        assert!(merged.bisect(&argv).await?.step.is_some(), "some call took Paris away");
        assert_eq!(merged.check("test -e d.txt", &["d.txt".to_owned()]).await?, Verdict::Passed);
        merged.require_check("test -e d.txt").await?;
        assert!(!merged.restore(first).await?.is_empty());
        Ok(())
    });
    println!("files of a session: {traffic:?}");
    // The commands' own output comes through pipes.
    assert!(traffic.bytes_read < 100, "{traffic:?}");
    traffic.assert_no_write();
}

/// Count the words of a text.
#[tool]
async fn count_words(text: String) -> usize {
    text.split_whitespace().count()
}

#[test]
fn a_run_without_a_place_uses_no_thread_of_the_blocking_pool() {
    let threads = Arc::new(AtomicUsize::new(0));
    let counter = threads.clone();
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let count_thread = move || _ = counter.fetch_add(1, Ordering::Relaxed);
    let runtime = runtime.enable_all().on_thread_start(count_thread).build().expect("a runtime");
    let call = r#"{"calls": [{"name": "count_words", "arguments": {"text": "to be or not"}}]}"#;
    let agent = Agent::new("You count words.", &script([call, call, r#"{"text": "Four."}"#])).tool(count_words);
    let session = runtime.block_on(async { agent.run(Session::user("How many?")).await }).expect("a run");
    assert_good(&session);
    assert_eq!(threads.load(Ordering::Relaxed), 0);
}

#[test]
fn a_store_is_touched_on_the_blocking_pool_and_its_own_thread() {
    for uri in ["sqlite:.rath/rath.db", "jsonl:.rath/sessions"] {
        let project = project();
        let traffic = tell(project.path(), || async {
            let store = Store::open(uri).await?;
            let session = Session::user("go").to(Sandbox::local(OWN_DIRECTORY)).record(&store).await?;
            let agent = worker(&[&[("write_file", json!({"path": "a.txt", "content": "one\n"}))]]);
            let session = agent.run(session).await?;
            assert_good(&session);
            let (id, head, long) = (session.id(), session.head().expect("a step").id(), "long ".repeat(30_000));
            let mut fork = session.fork();
            fork.push(Chunk::user(long));
            let merged = session.merge(&fork).await?;
            merged.durable().await?;
            drop((session, fork, merged));
            store.close().await?;

            let store = Store::open(uri).await?;
            assert_eq!(store.list().await?.len(), 2);
            assert_eq!(store.find(&id.short()).await?, id);
            assert_eq!(store.read(id).await?.summary.head, head);
            assert!(!store.pieces(id).await?.heads().is_empty());
            assert!(store.check().await?.damage.is_empty());
            assert!(store.fork(id).await?.certificate().is_complete());
            let mut session = store.resume(id).await?.complete()?;
            session.push(Chunk::user("and now?"));
            session.durable().await?;
            drop(session);
            store.forget(id, head).await?;
            store.compact().await?;
            store.close().await?;
            Ok(())
        });
        println!("{uri}: {traffic:?}");
        assert_eq!(traffic.reads, 0, "{uri}: {traffic:?}");
        traffic.assert_no_write();
    }
}

#[test]
fn session_files_are_touched_on_the_blocking_pool() {
    let project = project();
    let traffic = tell(project.path(), || async {
        let mut session = Session::user("hello");
        session.push(Chunk::assistant("hi ".repeat(50_000)));
        session.save("s.rath").await?;
        let opened = Session::open("s.rath").await?;
        assert!(rath::verify("s.rath").await?.is_whole());
        assert!(rath::salvage(&opened.lineage, "copy.rath").await?.is_whole());
        Ok(())
    });
    println!("session files: {traffic:?}");
    assert_eq!(traffic.reads, 0, "{traffic:?}");
    traffic.assert_no_write();
}

#[test]
fn files_of_a_sandbox_are_touched_on_the_blocking_pool() {
    for sandbox in [Sandbox::local(OWN_DIRECTORY), Sandbox::isolated(OWN_DIRECTORY)] {
        let project = project();
        let uri = sandbox.uri().to_owned();
        let traffic = tell(project.path(), || async {
            let all = ByteRange { offset: 0, max_len: u64::MAX };
            sandbox.capabilities().await?;
            sandbox.write("deep/er/a.txt", "one\n".repeat(10_000).as_bytes()).await?;
            assert_eq!(sandbox.read("deep/er/a.txt", all).await?.len(), 40_000);
            assert_eq!(sandbox.list("deep").await?.len(), 1);
            assert!(sandbox.stat("deep/er/a.txt").await?.is_some());
            let output = sandbox.run(&Command::shell("cat deep/er/a.txt; head -c 2M /dev/zero")).await?;
            let digest = output.stdout.spool_digest.expect("it is too much for memory");
            assert!(sandbox.spool_path(digest).await?.is_some());
            drop(sandbox);
            Ok(())
        });
        println!("{uri}: {traffic:?}");
        // What the command printed comes through a pipe, and goes to a file.
        assert!(traffic.bytes_read <= 40_000 + (2 << 20), "{uri}: {traffic:?}");
        traffic.assert_no_write();
    }
}
