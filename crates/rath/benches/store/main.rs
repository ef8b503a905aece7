//! The cost of recording a session, against the same bytes in a bare table of SQLite and in a file: `cargo xtask bench`.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rath::Text;
use rath::chunk::{Observed, Tree};
use rath::prelude::*;
use rath::record::Step;
use rath::store::{
    self, BranchSummary, CheckReport, Create, Deletion, FreedSpace, Holder, Jsonl, Sqlite, StepPlaces, Store,
    StoreBackend, StoredBranch, Write,
};
use rath::workspace::{Objects, Workspace};
use rath::{BranchId, StepId};
use rath_bench::{Table, cpu_time, peak};
use rusqlite::Connection;
use tokio::runtime::{Builder, Runtime};

#[global_allocator]
static ALLOCATOR: rath_bench::Counting = rath_bench::Counting;

/// The length of the text of a step, in bytes, as in the table of the peers.
const WORDS: usize = 4096;

/// A measurement and its name.
type Case = (&'static str, fn(&mut Table));

fn main() {
    let wanted: Vec<_> = std::env::args().skip(1).filter(|case| !case.starts_with('-')).collect();
    let cases: [Case; 6] =
        [("alone", alone), ("many", many), ("runs", runs), ("lists", lists), ("opens", opens), ("files", files)];
    let mut table = Table::default();
    for (_, case) in cases.iter().filter(|(name, _)| wanted.is_empty() || wanted.iter().any(|one| one == name)) {
        case(&mut table);
    }
    table.print();
}

/// A store that remembers which steps were written together: their length is computed when no clock runs.
struct Counted<B> {
    backend: B,
    groups: Groups,
}

type Groups = Arc<Mutex<Vec<Vec<Step>>>>;

impl<B: StoreBackend> StoreBackend for Counted<B> {
    fn write(&self, group: &[Write], rows: &StepPlaces) -> store::Result<Vec<store::Result<()>>> {
        let steps = group.iter().flat_map(|write| &write.steps).cloned().collect();
        self.groups.lock().expect("no thread panics").push(steps);
        self.backend.write(group, rows)
    }

    fn uri(&self) -> &str {
        self.backend.uri()
    }

    fn claim(&self, branch: BranchId, holder: &Holder) -> store::Result<u64> {
        self.backend.claim(branch, holder)
    }

    fn release(&self, rights: &[(BranchId, u64)]) -> store::Result<()> {
        self.backend.release(rights)
    }

    fn idle(&self) -> store::Result<()> {
        self.backend.idle()
    }

    fn renew(&self, holder: &Holder) -> store::Result<()> {
        self.backend.renew(holder)
    }

    fn list(&self) -> store::Result<Vec<BranchSummary>> {
        self.backend.list()
    }

    fn summary(&self, branch: BranchId) -> store::Result<Option<BranchSummary>> {
        self.backend.summary(branch)
    }

    fn read(&self, branch: BranchId, rows: &Arc<StepPlaces>) -> store::Result<StoredBranch> {
        self.backend.read(branch, rows)
    }

    fn check(&self) -> store::Result<CheckReport> {
        self.backend.check()
    }

    fn forget(&self, branch: BranchId, step: StepId) -> store::Result<store::ErasedStep> {
        self.backend.forget(branch, step)
    }

    fn delete(&self, families: &[BranchId]) -> store::Result<Deletion> {
        self.backend.delete(families)
    }

    fn measure_delete(&self, families: &[BranchId]) -> store::Result<Deletion> {
        self.backend.measure_delete(families)
    }

    fn compact(&self) -> store::Result<FreedSpace> {
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

/// A store under measurement, with the time and the CPU time that its turns took.
struct Contender {
    name: &'static str,
    store: Store,
    groups: Groups,
    times: Vec<Duration>,
    cpu: Duration,
}

impl Contender {
    fn new(name: &'static str, backend: impl StoreBackend) -> Self {
        let (store, groups) = counted(backend);
        Contender { name, store, groups, times: Vec::new(), cpu: Duration::ZERO }
    }

    /// Has a turn. Returns the lengths of the steps of each group that was written in it, in bytes.
    fn turn(&mut self, work: impl FnOnce()) -> Vec<Vec<usize>> {
        self.groups.lock().expect("no thread panics").clear();
        let start = Instant::now();
        self.cpu += cpu_time(work);
        self.times.push(start.elapsed());
        let groups = self.groups.lock().expect("no thread panics");
        groups.iter().map(|group| group.iter().map(|step| step.json().len()).collect()).collect()
    }

    fn total(&self) -> f64 {
        total(&self.times)
    }
}

/// The least work by which the bytes of a group become durable, to compare the stores with.
struct Baselines {
    file: File,
    database: Connection,
    /// The time of each group, appended to a file and synced.
    appended: Vec<Duration>,
    /// The time of each group in a table of SQLite that has no other column.
    inserted: Vec<Duration>,
}

impl Baselines {
    fn new(folder: &Path) -> Self {
        let database = Connection::open(folder.join("bare.db")).expect("a database");
        database
            .execute_batch(
                "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 16384;
                 CREATE TABLE steps(s INTEGER PRIMARY KEY, json BLOB NOT NULL)",
            )
            .expect("a table");
        let file = File::create(folder.join("plain")).expect("a file");
        Baselines { file, database, appended: Vec::new(), inserted: Vec::new() }
    }

    /// Writes a group in both ways.
    fn write(&mut self, group: &[usize]) {
        let steps: Vec<_> = group.iter().map(|length| vec![b'x'; *length]).collect();
        let all = steps.concat();
        self.appended.push(rath_bench::time(|| {
            self.file.write_all(&all).expect("written");
            self.file.sync_data().expect("synced");
        }));
        self.inserted.push(rath_bench::time(|| {
            let transaction = self.database.unchecked_transaction().expect("a transaction");
            let mut insert = transaction.prepare_cached("INSERT INTO steps(json) VALUES (?)").expect("a statement");
            steps.iter().for_each(|step| assert_eq!(insert.execute([step]).expect("inserted"), 1));
            drop(insert);
            transaction.commit().expect("committed");
        }));
    }
}

/// One session, one step at a time, each durable before the next.
///
/// A store hands each step to its writer thread and back, which costs a fixed time. On a disk whose sync takes milliseconds
/// that is lost in the sync; where a sync takes 0.1 ms it shows. SQLite writes whole pages: four for a step of 4 KiB.
fn alone(table: &mut Table) {
    const BLOCKS: usize = 8;
    const STEPS: usize = 250;
    let runtime = one_thread();
    let text = "x".repeat(WORDS);
    let folder = tempfile::tempdir_in(".").expect("a folder");
    let mut contenders =
        [Contender::new("sqlite", sqlite(folder.path())), Contender::new("jsonl", jsonl(folder.path()))];
    let record = |one: &Contender| runtime.block_on(Session::user("hello").record(&one.store)).expect("recorded");
    let mut sessions: Vec<Session> = contenders.iter().map(record).collect();
    let mut baselines = Baselines::new(folder.path());
    // In turns of one step, so that what disturbs the disk disturbs all.
    for nth in 0..BLOCKS * STEPS {
        let mut groups = Vec::new();
        for turn in 0..contenders.len() {
            // Each of them comes after each other one: a sync may find work that the one before left.
            let turn = (turn + nth) % contenders.len();
            let (one, session) = (&mut contenders[turn], &mut sessions[turn]);
            groups = one.turn(|| {
                runtime.block_on(async {
                    session.push(Chunk::user(text.as_str()));
                    session.durable().await.expect("durable");
                });
            });
        }
        groups.iter().for_each(|group| baselines.write(group));
    }
    let [sqlite, jsonl] = contenders.map(|one| {
        eprintln!("  {}: median {:.0} µs, CPU {:.2} s", one.name, median(&one.times) * 1e6, one.cpu.as_secs_f64());
        one.times
    });
    // Of the blocks, the one in which the machine was disturbed least.
    let ratio = |times: &[Duration], baseline: &[Duration]| {
        let blocks = times.chunks(STEPS).zip(baseline.chunks(STEPS));
        blocks.map(|(times, baseline)| median(times) / median(baseline)).fold(f64::INFINITY, f64::min)
    };
    let Baselines { appended, inserted, .. } = &baselines;
    table.at_most("one step, durable, in sqlite, against a bare table of SQLite", ratio(&sqlite, inserted), 1.5);
    table.at_most("one step, durable, in jsonl, against append and sync", ratio(&jsonl, appended), 1.5);
    table.informative("one step, durable, in sqlite, against append and sync", ratio(&sqlite, appended));
    table.informative("one step in a bare table of SQLite, against append and sync", ratio(inserted, appended));
}

/// A thousand sessions at once, each waiting for its step before it goes on with the next.
///
/// For comparison, the groups are written to a bare table of SQLite and appended to a file. SQLite writes every page twice, to its WAL and
/// later to the database.
fn many(table: &mut Table) {
    const SESSIONS: usize = 1_000;
    const ROUNDS: usize = 20;
    const STEPS: usize = 10;
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let text: Text = "x".repeat(WORDS).into();
    let folder = tempfile::tempdir_in(".").expect("a folder");
    let mut one = Contender::new("sqlite", sqlite(folder.path()));
    let recorded = (0..SESSIONS).map(|_| Session::user("hello").record(&one.store));
    let mut sessions = runtime.block_on(futures_util::future::try_join_all(recorded)).expect("recorded");
    let mut baselines = Baselines::new(folder.path());
    let mut groups = 0;
    // What this disk does changes from one second to the next: short turns, and all of them together.
    for _ in 0..ROUNDS {
        let working = std::mem::take(&mut sessions);
        let written = one.turn(|| {
            sessions = runtime.block_on(async {
                let tasks = working.into_iter().map(|mut session| {
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
        });
        groups += written.len();
        written.iter().for_each(|group| baselines.write(group));
    }
    let steps = (SESSIONS * ROUNDS * STEPS) as f64;
    let (taken, cpu) = (one.total(), one.cpu.as_secs_f64());
    eprintln!("  {:.0} steps a second, {:.0} in a group, CPU {cpu:.2} s", steps / taken, steps / groups as f64);
    let (appended, inserted) = (total(&baselines.appended), total(&baselines.inserted));
    let what = "a thousand sessions' steps a second, durable, against a bare table of SQLite, same groups";
    table.at_least(what, inserted / taken, 0.5);
    let what = "a thousand sessions' steps a second, durable, against one writer that appends the groups";
    table.informative(what, appended / taken);
    let what = "the groups in a bare table of SQLite a second, against one writer that appends them";
    table.informative(what, appended / inserted);
}

/// Runs of one model call, all of it durable: one at a time, and a hundred.
///
/// The Python OpenRath's durable runtime does 8 to 11 such runs a second, one at a time or many, as its own benchmark
/// found it on a disk of 3 to 4 ms a sync; here, each of its syncs would cost what this disk takes.
fn runs(table: &mut Table) {
    const PEER: f64 = 11.0;
    const TURNS: usize = 10;
    let runtime = one_thread();
    for (at_once, runs, bound) in [(1, 20, 5.0), (100, 400, 100.0)] {
        let folder = tempfile::tempdir_in(".").expect("a folder");
        let mut one = Contender::new("sqlite", sqlite(folder.path()));
        for _ in 0..TURNS {
            let script = Script::of((0..runs).map(|_| r#"{"text": "hi", "usage": {"input": 3, "output": 1}}"#));
            let agent = Agent::new("Answer briefly.", &Provider::from(script.expect("a script")));
            let store = one.store.clone();
            one.turn(|| {
                runtime.block_on(async {
                    for _ in 0..runs / at_once {
                        let work = (0..at_once).map(|_| async {
                            let session = Session::user("hello").record(&store).await?;
                            agent.run(session).await
                        });
                        futures_util::future::try_join_all(work).await.expect("every run succeeds");
                    }
                });
            });
        }
        let rate = (TURNS * runs) as f64 / one.total();
        eprintln!("  {rate:.0} runs a second, {at_once} at a time");
        table.at_least(
            &format!("durable runs of one step, {at_once} at a time, against 11 a second"),
            rate / PEER,
            bound,
        );
    }
}

/// All versions of files that a session names, checked. They are read from a cache of the system, so the work itself is compared.
fn files(table: &mut Table) {
    const FILES: usize = 5_000;
    let runtime = one_thread();
    let folder = tempfile::tempdir_in(".").expect("a folder");
    let (root, own) = (folder.path(), folder.path().join(".rath"));
    for nth in 0..FILES {
        let directory = root.join(format!("d{}", nth / 100));
        std::fs::create_dir_all(&directory).expect("a directory");
        let lines = (0..20 + nth * 7 % 150).map(|line| format!("line {line} of {}\n", nth * 31 + line * 17));
        std::fs::write(directory.join(format!("file{nth}.py")), lines.collect::<String>()).expect("a file");
    }
    let objects = Objects::open(&own.join("workspace")).expect("versions");
    let tree =
        Workspace::open(root, &objects, &own.join("index")).expect("a workspace").snapshot().expect("a snapshot").tree;
    let ids: Vec<_> = objects.files(tree).expect("a tree").into_iter().map(|file| file.id).collect();
    let store = Store::new(sqlite(root)).expect("a store");
    let mut session = runtime.block_on(Session::user("hello").record(&store)).expect("recorded");
    session.push(Observed::new(Tree(tree.to_string())));
    runtime.block_on(session.durable()).expect("durable");
    let verify = || {
        let check = runtime.block_on(store.check_files(root)).expect("a check");
        assert_eq!((check.is_whole(), check.files), (true, FILES as u64));
    };
    let read = || assert!(ids.iter().all(|id| objects.has_content(*id)));
    let (verified, read) = rath_bench::medians(11, verify, read);
    eprintln!("  {FILES} file versions: checked in {verified:.1?}, read and hashed in {read:.1?}");
    let ratio = read.as_secs_f64() / verified.as_secs_f64();
    table.at_least("verify of 5,000 file versions, against reading and hashing the same objects", ratio, 0.33);
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
    let list = || cpu_time(|| assert_eq!(runtime.block_on(store.list()).expect("a list").len(), SESSIONS));
    let least = (0..20).map(|_| list()).min().unwrap_or_default().as_secs_f64();
    table.at_most("CPU of listing 100,000 sessions, against 100 ms", least / 0.1, 1.0);
}

/// Opening a long session to go on with it.
fn opens(table: &mut Table) {
    let runtime = one_thread();
    let folder = tempfile::tempdir_in(".").expect("a folder");
    let store = Store::new(sqlite(folder.path())).expect("a store");
    let peaks = [10_000, 1_000_000].map(|steps| {
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
        let mut cpu = Duration::ZERO;
        let peak = peak(|| {
            cpu = cpu_time(|| {
                let found = runtime.block_on(fresh.read(id)).expect("found");
                assert_eq!(found.session.chunk_count(), steps + 1);
                assert!(found.session.text().is_some());
            });
        });
        eprintln!("  opened {steps} steps in {:.2?}, CPU {cpu:.2?}, {peak} bytes", start.elapsed());
        peak as f64
    });
    let what = "memory of opening a session of 1,000,000 steps, against one of 10,000";
    table.at_most(what, peaks[1] / peaks[0], 2.0);
}

fn median(times: &[Duration]) -> f64 {
    let mut times = times.to_vec();
    times.sort();
    times[times.len() / 2].as_secs_f64()
}

fn total(times: &[Duration]) -> f64 {
    times.iter().sum::<Duration>().as_secs_f64()
}

fn one_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}
