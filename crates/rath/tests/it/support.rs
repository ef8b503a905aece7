//! Helpers that several tests use.

use std::path::Path;

use rath::memory::{
    Forget, Hits, Lookup, MemoryBackend, MemoryError, MemoryErrorKind, Note, NoteId, NotePage, NotePath, Position,
    Query,
};
use rath::prelude::*;
use rath::record::draw;
use rath::tool::builtin::{Shell, WriteFile};
use serde_json::json;

/// Runs a test's own runtime.
pub(crate) fn block_on<T>(work: impl IntoFuture<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime starts").block_on(work.into_future())
}

/// Drops the sessions that hold a store, and waits until the store is closed.
pub(crate) fn close<T>(sessions: T, store: Store) {
    drop(sessions);
    block_on(store.close()).expect("it is closed");
}

/// A provider that plays these turns.
pub(crate) fn script<T: AsRef<str>>(turns: impl IntoIterator<Item = T>) -> Provider {
    Script::of(turns).expect("a script").into()
}

/// An agent that makes these rounds of shell commands, each a list of calls side by side.
pub(crate) fn worker<R: AsRef<[S]>, S: AsRef<str>>(rounds: &[R]) -> Agent {
    let calls = |commands: &R| {
        let call = |command: &S| json!({"name": "shell", "arguments": {"command": command.as_ref()}});
        json!({"calls": commands.as_ref().iter().map(call).collect::<Vec<_>>()}).to_string()
    };
    let turns: Vec<String> = rounds.iter().map(calls).chain([r#"{"text": "done"}"#.to_owned()]).collect();
    Agent::new("Work.", &script(turns)).tool(Shell).tool(WriteFile)
}

/// A folder with these files.
pub(crate) fn folder(files: &[(&str, &str)]) -> rath_test_support::TempDir {
    let folder = rath_test_support::temp_dir();
    files.iter().for_each(|(path, text)| put(folder.path(), path, text));
    folder
}

/// Puts a file there, and the folders that it lies in.
pub(crate) fn put(root: &Path, path: &str, text: &str) {
    let file = root.join(path);
    std::fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
    std::fs::write(file, text).expect("a file");
}

/// Draws messages, calls and results, oldest first, one line each.
pub(crate) fn log(session: &Session) -> String {
    let steps = session.as_record().steps();
    let told = steps.iter().filter(|step| !step.chunk().is_marker()).map(|step| format!("{}\n", draw::headline(step)));
    told.collect()
}

/// The result of work that has nothing to wait for, such as merging sessions without files.
#[track_caller]
pub(crate) fn now<T>(work: impl Future<Output = T>) -> T {
    futures_util::FutureExt::now_or_never(work).expect("it waits for nothing")
}

/// The way in which a [`TestMemory`] answers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum MemoryAnswer {
    /// It is written to and finds nothing.
    Empty,
    /// It fails.
    Fails,
    /// It never answers.
    Hangs,
    /// It must not be asked.
    Panics,
}

/// A memory for tests: how it answers when it is written to, and when it is asked.
pub(crate) struct TestMemory {
    pub(crate) writes: MemoryAnswer,
    pub(crate) reads: MemoryAnswer,
}

impl TestMemory {
    async fn answer<T: Default>(&self, answer: MemoryAnswer) -> Result<T, MemoryError> {
        match answer {
            MemoryAnswer::Empty => Ok(T::default()),
            MemoryAnswer::Fails => Err(MemoryError::new(MemoryErrorKind::Other, "the disk is full")),
            MemoryAnswer::Hangs => std::future::pending().await,
            MemoryAnswer::Panics => panic!("a memory was used"),
        }
    }
}

impl MemoryBackend for TestMemory {
    fn uri(&self) -> &str {
        "process:notes"
    }

    async fn remember(&self, _: &[Note]) -> Result<Option<Position>, MemoryError> {
        self.answer(self.writes).await
    }

    async fn position(&self) -> Result<Option<Position>, MemoryError> {
        self.answer(self.reads).await
    }

    async fn recall(&self, _: &Query) -> Result<Hits, MemoryError> {
        self.answer(self.reads).await
    }

    async fn read(&self, _: &NoteId) -> Result<Lookup, MemoryError> {
        self.answer::<()>(self.reads).await.map(|()| Lookup::Unknown)
    }

    async fn list(&self, _: &[NotePath], _: Position, _: usize) -> Result<NotePage, MemoryError> {
        self.answer(self.reads).await
    }

    async fn forget(&self, _: &Forget) -> Result<Vec<NoteId>, MemoryError> {
        self.answer(self.writes).await
    }
}
