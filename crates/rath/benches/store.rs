//! What it costs that a session outlives its process, against the same bytes appended to a file: `cargo xtask bench`.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rath::prelude::*;
use rath::record::Step;
use rath::store::{Check, Create, Freed, Holder, Jsonl, Listed, Read, Rows, Sqlite, Store, StoreBackend, Write};
use rath::{BranchId, StepId};
use rath_bench::{Table, cpu_time, peak};
use tokio::runtime::{Builder, Runtime};

#[global_allocator]
static ALLOCATOR: rath_bench::Counting = rath_bench::Counting;

/// How long what a step says is, as in the table of what the peers' disk does.
const WORDS: usize = 4096;

/// What is measured, by name.
type Case = (&'static str, fn(&mut Table));

fn main() {
    let wanted: Vec<_> = std::env::args().skip(1).filter(|case| !case.starts_with('-')).collect();
    let cases: [Case; 5] = [("alone", alone), ("many", many), ("runs", runs), ("lists", lists), ("opens", opens)];
    let mut table = Table::default();
    for (_, case) in cases.iter().filter(|(name, _)| wanted.is_empty() || wanted.iter().any(|one| one == name)) {
        case(&mut table);
    }
    table.print();
}

/// A store that remembers which steps were written together: what they weigh is found out when nobody looks at the clock.
struct Counted<B> {
    backend: B,
    groups: Groups,
}

type Groups = Arc<Mutex<Vec<Vec<Step>>>>;

/// How many bytes a group says.
fn bytes(group: &[Step]) -> usize {
    group.iter().map(|step| step.json().len()).sum()
}

impl<B: StoreBackend> StoreBackend for Counted<B> {
    fn write(&self, group: &[Write], rows: &Rows) -> Result<Vec<Result<()>>> {
        let steps = group.iter().flat_map(|write| &write.steps).cloned().collect();
        self.groups.lock().expect("nobody panics").push(steps);
        self.backend.write(group, rows)
    }

    fn uri(&self) -> &str {
        self.backend.uri()
    }

    fn claim(&self, branch: BranchId, holder: &Holder) -> Result<u64> {
        self.backend.claim(branch, holder)
    }

    fn release(&self, rights: &[(BranchId, u64)]) -> Result<()> {
        self.backend.release(rights)
    }

    fn rest(&self) -> Result<()> {
        self.backend.rest()
    }

    fn renew(&self, holder: &Holder) -> Result<()> {
        self.backend.renew(holder)
    }

    fn list(&self) -> Result<Vec<Listed>> {
        self.backend.list()
    }

    fn listed(&self, branch: BranchId) -> Result<Option<Listed>> {
        self.backend.listed(branch)
    }

    fn read(&self, branch: BranchId, rows: &Arc<Rows>) -> Result<Read> {
        self.backend.read(branch, rows)
    }

    fn check(&self) -> Result<Check> {
        self.backend.check()
    }

    fn forget(&self, branch: BranchId, step: StepId) -> Result<()> {
        self.backend.forget(branch, step)
    }

    fn delete(&self, family: BranchId) -> Result<()> {
        self.backend.delete(family)
    }

    fn compact(&self) -> Result<Freed> {
        self.backend.compact()
    }
}

fn counted(backend: impl StoreBackend) -> (Store, Groups) {
    let groups = Groups::default();
    (Store::new(Counted { backend, groups: groups.clone() }).expect("a store"), groups)
}

fn sqlite(folder: &Path) -> Sqlite {
    Sqlite::open(folder.join("rath.db").to_str().expect("a path"), Create::IfMissing).expect("a store")
}

fn jsonl(folder: &Path) -> Jsonl {
    Jsonl::open(folder.join("sessions").to_str().expect("a path"), Create::IfMissing).expect("a store")
}

/// One session, one step at a time, each durable before the next.
fn alone(table: &mut Table) {
    const STEPS: usize = 1_000;
    let runtime = one_thread();
    let text = "x".repeat(WORDS);
    for kind in ["sqlite", "jsonl"] {
        let folder = tempfile::tempdir_in(".").expect("a folder");
        let (store, groups) = match kind {
            "sqlite" => counted(sqlite(folder.path())),
            _ => counted(jsonl(folder.path())),
        };
        // In turns of a few, so that what disturbs the disk disturbs both.
        let mut session = runtime.block_on(Session::user("hello").record(&store)).expect("recorded");
        let mut file = File::create(folder.path().join("plain")).expect("a file");
        let (mut ours, mut plain) = (Vec::new(), Vec::new());
        for _ in 0..STEPS {
            let start = Instant::now();
            runtime.block_on(async {
                session.push(Chunk::user(text.as_str()));
                session.durable().await.expect("durable");
            });
            ours.push(start.elapsed());
            let said = bytes(groups.lock().expect("nobody panics").last().expect("a group"));
            plain.push(append(&mut file, said));
        }
        let ratio = median(&mut ours) / median(&mut plain);
        table.at_most(&format!("one session's step, durable, in {kind}, against append and sync"), ratio, 1.5);
    }
}

/// A thousand sessions at once, each waiting for its step before it goes on with the next.
fn many(table: &mut Table) {
    const SESSIONS: usize = 1_000;
    const STEPS: usize = 40;
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let text: Text = "x".repeat(WORDS).into();
    // What this disk does changes from one second to the next: rounds, and all of them together.
    let rounds: Vec<(Duration, Duration)> = (0..5)
        .map(|_| {
            let folder = tempfile::tempdir_in(".").expect("a folder");
            let (store, groups) = counted(sqlite(folder.path()));
            let sessions: Vec<Session> = runtime.block_on(async {
                let recorded = (0..SESSIONS).map(|_| Session::user("hello").record(&store));
                futures_util::future::try_join_all(recorded).await.expect("recorded")
            });
            groups.lock().expect("nobody panics").clear();
            let start = Instant::now();
            let written = runtime.block_on(async {
                let tasks = sessions.into_iter().map(|mut session| {
                    let text = text.clone();
                    tokio::spawn(async move {
                        for _ in 0..STEPS {
                            session.push(Chunk::user(text.clone()));
                            session.durable().await.expect("durable");
                        }
                        session
                    })
                });
                futures_util::future::try_join_all(tasks.collect::<Vec<_>>()).await.expect("no task panics")
            });
            let ours = start.elapsed();
            drop(written);
            let mut file = File::create(folder.path().join("plain")).expect("a file");
            let groups = groups.lock().expect("nobody panics").clone();
            let plain: Duration = groups.iter().map(|group| append(&mut file, bytes(group))).sum();
            eprintln!("  {} groups, {:.2?} against {plain:.2?}", groups.len(), ours);
            (ours, plain)
        })
        .collect();
    let ours: Duration = rounds.iter().map(|(ours, _)| ours).sum();
    let plain: Duration = rounds.iter().map(|(_, plain)| plain).sum();
    let what = "a thousand sessions' steps a second, durable, against one writer of the same groups";
    table.at_least(what, plain.as_secs_f64() / ours.as_secs_f64(), 0.5);
}

/// Runs of one model call, all of it durable: one at a time, and a hundred.
///
/// The Python OpenRath's durable runtime does 8 to 11 such runs a second, one at a time or many, as its own benchmark
/// found it on a disk of 3 to 4 ms a sync; here, each of its syncs would cost what this disk takes.
fn runs(table: &mut Table) {
    const PEER: f64 = 11.0;
    let runtime = one_thread();
    for (at_once, runs, bound) in [(1, 200, 5.0), (100, 4_000, 100.0)] {
        let folder = tempfile::tempdir_in(".").expect("a folder");
        let store = Store::new(sqlite(folder.path())).expect("a store");
        let script = Script::of((0..runs).map(|_| r#"{"text": "hi", "usage": {"input": 3, "output": 1}}"#));
        let agent = Agent::new("Answer briefly.", &Provider::from(script.expect("a script")));
        let start = Instant::now();
        runtime.block_on(async {
            for _ in 0..runs / at_once {
                let work = (0..at_once).map(|_| async {
                    let session = Session::user("hello").record(&store).await?;
                    agent.run(session).await
                });
                futures_util::future::try_join_all(work).await.expect("every run succeeds");
            }
        });
        let rate = f64::from(runs) / start.elapsed().as_secs_f64();
        eprintln!("  {rate:.0} runs a second, {at_once} at a time");
        table.at_least(
            &format!("durable runs of one step, {at_once} at a time, against 11 a second"),
            rate / PEER,
            bound,
        );
    }
}

/// A hundred thousand sessions in a list.
fn lists(table: &mut Table) {
    const SESSIONS: usize = 100_000;
    let runtime = one_thread();
    let folder = tempfile::tempdir_in(".").expect("a folder");
    let store = Store::new(sqlite(folder.path())).expect("a store");
    runtime.block_on(async {
        for nth in 0..SESSIONS / 1_000 {
            let recorded = (0..1_000).map(|one| Session::user(format!("question {one} of {nth}")).record(&store));
            futures_util::future::try_join_all(recorded).await.expect("recorded");
        }
    });
    drop(store);
    let store = Store::new(sqlite(folder.path())).expect("a store");
    let taken = (0..20).map(|_| cpu_time(|| assert_eq!(store.list().expect("a list").len(), SESSIONS))).min();
    let taken = taken.unwrap_or_default();
    table.at_most("CPU of listing 100,000 sessions, against 100 ms", taken.as_secs_f64() / 0.1, 1.0);
}

/// Opening a long session to go on with it.
fn opens(table: &mut Table) {
    let runtime = one_thread();
    let folder = tempfile::tempdir_in(".").expect("a folder");
    let store = Store::new(sqlite(folder.path())).expect("a store");
    let mut peaks = Vec::new();
    for steps in [10_000, 1_000_000] {
        let id = runtime.block_on(async {
            let mut session = Session::user("hello").record(&store).await.expect("recorded");
            for nth in 0..steps / 2 {
                session.push(Chunk::assistant(format!("answer {nth}")));
                session.push(Chunk::user(format!("question {nth}")));
                if nth % 1_000 == 0 {
                    session.durable().await.expect("durable");
                }
            }
            session.durable().await.expect("durable");
            session.id()
        });
        let fresh = Store::new(sqlite(folder.path())).expect("a store");
        let start = Instant::now();
        peaks.push(peak(|| {
            let found = fresh.read(id).expect("found");
            assert_eq!(found.session.chunk_count(), steps + 1);
            assert!(found.session.text().is_some());
        }));
        eprintln!("  opened {steps} steps in {:.2?}", start.elapsed());
    }
    let what = "memory of opening a session of 1,000,000 steps, against one of 10,000";
    table.at_most(what, peaks[1] as f64 / peaks[0] as f64, 2.0);
}

fn append(file: &mut File, bytes: usize) -> Duration {
    let bytes = vec![b'x'; bytes];
    let start = Instant::now();
    file.write_all(&bytes).expect("written");
    file.sync_data().expect("synced");
    start.elapsed()
}

fn median(times: &mut [Duration]) -> f64 {
    times.sort();
    times[times.len() / 2].as_secs_f64()
}

fn one_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}
