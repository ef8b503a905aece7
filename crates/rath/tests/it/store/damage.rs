//! Any byte of a store may be lost or changed: an incomplete answer always comes with a report of damage.
//!
//! `RATH_EXHAUSTIVE` tries every byte; otherwise a part of them, spread over all.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rath::Usage;
use rath::chunk::User;
use rath::chunk::{Call, Image};
use rath::prelude::*;
use rath::store::{BranchSummary, Registry, Store};
use rath::{BranchId, Difference, store};

use super::common::{child as again, exhaustive, setting, uri};
use crate::support::{block_on, close};

/// A session with every kind of thing: its branches, the one that joins the others last.
async fn write(store: &Store) -> Result<Vec<Session>> {
    let mut session = Session::user("你好 \u{2028} \"quoted\" \\").by("test.writer").record(store).await?;
    let image = Image::new("image/png", *b"\x89PNG\0\xff dots");
    session.push(User::new("see").with_images(vec![image]));
    session.push_with_usage(Chunk::assistant("long ".repeat(3_400)), Usage::new(1_000, 7));
    let mut aside = session.aside("helper");
    aside.push(Chunk::user("beside"));
    session.keep_aside(&aside);
    let (mut left, mut right) = (session.fork_named("left ☀️"), session.fork());
    left.push(Chunk::calls([Call::new("c1", "look", "{}")]));
    left.push(Chunk::result("c1", "seen"));
    right.push(Chunk::user("on the right"));
    let mut joined = left.merge(&right).await?;
    joined.push(Chunk::assistant("both"));
    let all = vec![session, left, right, aside, joined];
    for session in &all {
        assert!(session.head().is_some());
        session.durable().await?;
    }
    Ok(all)
}

fn main_of(sessions: &[Session]) -> BranchId {
    sessions.last().expect("a session").id()
}

/// Everything that a store reports about its content.
#[derive(Clone, Debug, PartialEq, Eq)]
struct StoreContent {
    list: Vec<String>,
    branches: BTreeMap<BranchId, Vec<String>>,
}

fn row(listed: &BranchSummary) -> String {
    let store::BranchSummary { branch, family, head, totals, title, at, is_tip, holder } = listed;
    format!("{branch} {family} {head} {totals:?} {title} {at:?} {is_tip} {}", holder.is_some())
}

/// Every step: its name, its stamp, its words and what is beside them.
fn steps(session: &Session) -> Vec<String> {
    let lineage = session.lineage();
    let step = |step: &&rath::record::Step| {
        let beside = match step.chunk() {
            Chunk::User(user) => {
                format!("{:?} {:?}", user.text, user.images.iter().map(|it| it.blob.data()).collect::<Vec<_>>())
            }
            Chunk::Assistant(answer) => format!("{:?}", answer.text),
            _ => String::new(),
        };
        format!("{} {:?} {} {beside}", step.id(), step.stamp(), step.json())
    };
    lineage.walk().iter().map(step).collect()
}

impl StoreContent {
    fn by(store: &Store) -> Self {
        let list = block_on(store.list()).expect("a list");
        let branches = list
            .iter()
            .map(|it| (it.branch, steps(&block_on(store.read(it.branch)).expect("it is read").session)))
            .collect();
        StoreContent { list: list.iter().map(row).collect(), branches }
    }
}

/// Checks that a changed store reports damage wherever its answer differs from the one before.
///
/// Returns true if damage was reported.
fn check(uri: &str, before: &StoreContent, main: BranchId, harm: Harm, last_write: usize) -> Result<bool, String> {
    // Where the end is missing, that its writer did not close it is all that can be known; and a store of no bytes is new. A change
    // in what was written last looks like a write that the power cut off.
    let (cut, empty) = match harm {
        Harm::Nothing => (false, false),
        Harm::Cut(at) => (true, at == 0),
        Harm::Flip(at, _) => (at >= last_write, false),
    };
    let Ok(store) = block_on(Registry::new().open_as(uri, store::Create::Never)) else { return Ok(true) };
    let mut told = false;
    let damaged = block_on(store.check()).map_or(true, |check| !check.damage.is_empty());
    told |= damaged;
    match block_on(store.list()) {
        Err(_) => told = true,
        Ok(list) => {
            let list: Vec<_> = list.iter().map(row).collect();
            let open = cut && list.iter().all(|row| row.ends_with("true"));
            if list != before.list && !damaged && !empty && !open {
                return Err(format!("the list is another one:\n{}", list.join("\n")));
            }
        }
    }
    for (branch, steps_before) in &before.branches {
        match block_on(store.read(*branch)) {
            Err(_) => told = true,
            Ok(found) if !found.damage.is_empty() => told = true,
            Ok(found) if steps(&found.session) == *steps_before => {}
            Ok(found) if cut && found.summary.holder.is_some() => told = true,
            Ok(found) => return Err(format!("read gives {:?}", found.session)),
        }
    }
    match block_on_one(store.resume(main)) {
        Err(_) => told = true,
        Ok(resumed) => {
            // A copy elsewhere is a guest, damaged or not.
            let certificate = resumed.certificate();
            let is_whole = certificate.differences().iter().all(|difference| *difference == Difference::Guest);
            if !is_whole || cut && certificate.left_open_by().is_some() {
                told = true;
            } else if resumed
                .complete()
                .err()
                .and_then(rath::Error::into_session)
                .map(|session| steps(&session))
                .as_ref()
                != before.branches.get(&main)
            {
                return Err("resume says that nothing changed and gives something else".to_owned());
            }
        }
    }
    Ok(told)
}

fn block_on_one<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(work)
}

/// A folder that costs little to write to, where there is one.
fn folder() -> rath_test_support::TempDir {
    rath_test_support::temp_dir_in_memory()
}

/// Files, by where they stand in a store's folder.
type Files = Vec<(PathBuf, Vec<u8>)>;

fn files(folder: &Path) -> Files {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files.extend(self::files(&path));
        } else if !path.to_string_lossy().ends_with("-shm") {
            files.push((path.clone(), std::fs::read(&path).expect("a file")));
        }
    }
    files.sort();
    files
}

/// A change to a file.
#[derive(Clone, Copy, Debug)]
enum Harm {
    Nothing,
    Cut(usize),
    Flip(usize, u32),
}

/// Does harm to one file at a time, and checks what the store says.
fn harm(
    kind: &str,
    name: &str,
    files: &Files,
    before: &StoreContent,
    main: BranchId,
    harms: impl Fn(&[u8]) -> Vec<Harm>,
) {
    let harmed: Vec<_> = files.iter().filter(|(path, _)| path.to_string_lossy().ends_with(name)).collect();
    assert!(!harmed.is_empty(), "a file {name}");
    let (mut tried, mut told, mut wrong) = (0_u64, 0_u64, Vec::new());
    for (path, bytes) in harmed {
        // The row that closes a file of lines is written after everything else is durable.
        let lines_end = bytes.iter().rev().skip(1).position(|byte| *byte == b'\n');
        let last_write = lines_end.filter(|_| name == ".jsonl").map_or(usize::MAX, |end| bytes.len() - 1 - end);
        for harm in [Harm::Nothing].into_iter().chain(harms(bytes)) {
            let mut bytes = bytes.clone();
            match harm {
                Harm::Nothing => {}
                Harm::Cut(at) => bytes.truncate(at),
                Harm::Flip(at, bit) => bytes[at] ^= 1 << bit,
            }
            let folder = folder();
            for (other, whole) in files {
                let place = folder.path().join(
                    other
                        .strip_prefix(other.ancestors().find(|it| it.join("root").exists()).expect("a root"))
                        .expect("below it"),
                );
                std::fs::create_dir_all(place.parent().expect("a folder")).expect("a folder");
                std::fs::write(&place, if other == path { &bytes } else { whole }).expect("a file");
            }
            tried += 1;
            let uri = uri(kind, folder.path());
            match std::panic::catch_unwind(|| check(&uri, before, main, harm, last_write)) {
                Ok(Ok(true)) if matches!(harm, Harm::Nothing) => wrong.push("told of nothing".to_owned()),
                Ok(Ok(said)) => told += u64::from(said),
                Ok(Err(why)) => wrong.push(format!("{harm:?} of {}: {why}", path.display())),
                Err(_) => wrong.push(format!("{harm:?} of {}: a panic", path.display())),
            }
        }
    }
    println!("{kind} {name}: {tried} tried, {told} told, {} wrong", wrong.len());
    assert!(wrong.is_empty(), "{}", wrong.iter().take(20).cloned().collect::<Vec<_>>().join("\n"));
}

/// Every place, or some of them, spread over all and other ones for every bit.
fn places(length: usize, stride: usize) -> impl Iterator<Item = usize> {
    let stride = if exhaustive() { 1 } else { stride };
    (0..length).filter(move |at| at % stride == (at / stride) % stride.min(7))
}

fn flips(bytes: &[u8], stride: usize) -> Vec<Harm> {
    places(bytes.len(), stride).map(|at| Harm::Flip(at, (at as u32 / 3 + at as u32) % 8)).collect()
}

#[test]
#[ignore = "what the tests here start"]
fn child() {
    let Ok(uri) = std::env::var("RATH_STORE") else { return };
    let store = block_on(Store::open(&uri)).expect("a store");
    let sessions = block_on(write(&store)).expect("it is written");
    std::fs::write(setting("RATH_MAIN"), main_of(&sessions).to_string()).expect("a file");
    // As if it were killed: nothing is closed.
    std::process::exit(0);
}

/// A store that was closed, what it says, and the session in it.
fn closed(kind: &str) -> (rath_test_support::TempDir, StoreContent, BranchId) {
    let folder = folder();
    std::fs::write(folder.path().join("root"), "").expect("a file");
    let uri = uri(kind, folder.path());
    let store = block_on(Store::open(&uri)).expect("a store");
    let sessions = block_on(write(&store)).expect("it is written");
    let main = main_of(&sessions);
    close(sessions, store);
    let store = block_on(Store::open(&uri)).expect("a store");
    let said = StoreContent::by(&store);
    close((), store);
    assert!(said.list.iter().all(|row| row.ends_with("false")), "{}", said.list.join("\n"));
    (folder, said, main)
}

#[test]
fn a_file_of_lines_that_is_cut_or_changed_anywhere_says_so() {
    let (folder, said, main) = closed("jsonl");
    let files = files(folder.path());
    harm("jsonl", ".jsonl", &files, &said, main, |bytes| places(bytes.len(), 199).map(Harm::Cut).collect());
    harm("jsonl", ".jsonl", &files, &said, main, |bytes| flips(bytes, 151));
}

#[test]
fn a_database_that_is_cut_or_changed_anywhere_says_so() {
    let (folder, said, main) = closed("sqlite");
    let files = files(folder.path());
    assert_eq!(files.iter().filter(|(path, _)| !path.ends_with("root")).count(), 1, "a closed store is one file");
    harm("sqlite", "store", &files, &said, main, |bytes| {
        let pages = (0..bytes.len()).step_by(4096).flat_map(|page| [page.saturating_sub(1), page, page + 1]);
        let more = (0..bytes.len()).step_by(if exhaustive() { 37 } else { 37 * 101 });
        pages.chain(more).map(Harm::Cut).collect()
    });
    harm("sqlite", "store", &files, &said, main, |bytes| flips(bytes, 149));
}

/// A copy of the files that a killed process left, beside one database, and what is read from them.
fn left_by_a_kill() -> (rath_test_support::TempDir, Files, BranchId) {
    let folder = folder();
    std::fs::write(folder.path().join("root"), "").expect("a file");
    let main = folder.path().join("main");
    let uri = uri("sqlite", folder.path());
    let settings = [("RATH_STORE", &*uri), ("RATH_MAIN", main.to_str().expect("UTF-8"))];
    let ended = again("store::damage::child", &settings).output().expect("it ends");
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    let main = std::fs::read_to_string(main).expect("a file").parse().expect("a branch");
    let files = files(folder.path());
    (folder, files, main)
}

/// A store that is put together of the files that a killed process left.
fn together(files: &Files) -> (rath_test_support::TempDir, String) {
    let folder = folder();
    for (path, bytes) in files {
        std::fs::write(folder.path().join(path.file_name().expect("a name")), bytes).expect("a file");
    }
    let uri = uri("sqlite", folder.path());
    (folder, uri)
}

#[test]
fn a_wal_that_is_cut_or_changed_anywhere_leaves_a_state_that_was_committed() {
    let (_folder, files, main) = left_by_a_kill();
    let said = StoreContent::by(&block_on(Store::open(&together(&files).1)).expect("a store"));
    assert!(said.list.iter().any(|row| row.ends_with("true")), "{}", said.list.join("\n"));
    let wal = files.iter().position(|(path, _)| path.to_string_lossy().ends_with("-wal")).expect("a WAL");
    let bytes = files[wal].1.clone();
    let cuts = places(bytes.len(), 1_511).map(Harm::Cut);
    let (mut whole, mut states) = (0, 0);
    for harm in [Harm::Nothing].into_iter().chain(cuts).chain(flips(&bytes, 509)) {
        let mut files = files.clone();
        match harm {
            Harm::Nothing => {}
            Harm::Cut(at) => files[wal].1.truncate(at),
            Harm::Flip(at, bit) => files[wal].1[at] ^= 1 << bit,
        }
        let (_folder, uri) = together(&files);
        let store = block_on(Store::open(&uri)).expect("SQLite reads a WAL up to its damage");
        assert_eq!(block_on(store.check()).expect("a check").damage, [], "{harm:?}");
        let list = block_on(store.list()).expect("a list");
        for listed in &list {
            let found = block_on(store.read(listed.branch)).expect("it is there");
            assert_eq!(found.damage, [], "{harm:?}");
            // Each branch is as it was at some time: a beginning of what it became.
            let (now, later) = (steps(&found.session), &said.branches[&listed.branch]);
            assert!(now.iter().all(|step| later.contains(step)), "{harm:?}");
        }
        whole += u64::from(list.iter().map(row).collect::<Vec<_>>() == said.list);
        states += 1;
        // It can be gone on with.
        if list.iter().any(|listed| listed.branch == main) {
            let mut session = block_on_one(store.resume(main)).expect("resumed").adopt("a tester");
            session.push(Chunk::user("on"));
            block_on_one(session.durable()).expect("durable");
        }
    }
    println!("sqlite -wal: {states} tried, {whole} whole");
    assert!(whole > 0);
}

#[test]
fn every_page_that_is_lost_leaves_the_other_sessions_readable() {
    let folder = folder();
    std::fs::write(folder.path().join("root"), "").expect("a file");
    let uri = uri("sqlite", folder.path());
    let ids: Vec<BranchId> = block_on(async {
        let store = Store::open(&uri).await.expect("a store");
        let mut ids = Vec::new();
        for nth in 0..40 {
            let mut session = Session::user(format!("session {nth}")).record(&store).await.expect("recorded");
            for step in 0..40 {
                session.push(Chunk::user(format!("{nth} {step}: {}", "words ".repeat(30))));
            }
            session.durable().await.expect("durable");
            ids.push(session.id());
        }
        store.close().await.expect("closed");
        ids
    });
    let store = block_on(Store::open(&uri)).expect("a store");
    let said = StoreContent::by(&store);
    close((), store);
    let files = files(folder.path());
    let database = files.iter().position(|(path, _)| path.ends_with("store")).expect("a database");
    let pages = files[database].1.len() / 4096;
    let mut worst = 0;
    for page in (1..pages).step_by(if exhaustive() { 1 } else { 23 }) {
        let mut files = files.clone();
        files[database].1[page * 4096..][..4096].fill(0xa5);
        let (_folder, uri) = together(&files);
        // A page that a checked table begins with may be needed to open the file.
        let Ok(store) = block_on(Store::open(&uri)) else { continue };
        assert!(!block_on(store.check()).expect("a check").damage.is_empty(), "page {page} is not missed");
        let mut lost = 0;
        for id in &ids {
            let whole = match block_on(store.read(*id)) {
                Ok(found) if found.damage.is_empty() => {
                    assert_eq!(steps(&found.session), said.branches[id], "page {page}");
                    true
                }
                _ => false,
            };
            // Rows that SQLite cannot find are found in the pages that are left.
            let pieces = block_on(store.pieces(*id)).expect("most of it is there");
            let mut left: Vec<_> = pieces.walk().into_iter().map(rath::record::Step::id).collect();
            left.sort();
            left.dedup();
            assert!(!whole || left.len() == 41, "page {page}: {} of {id}", left.len());
            lost += 41 - left.len();
        }
        worst = worst.max(lost);
    }
    println!("{pages} pages of {} steps: at most {worst} lost with one", 41 * ids.len());
    assert!(worst > 0 && worst < 30, "{worst} steps were lost with one page");
}

#[test]
fn a_row_that_is_deleted_is_missed() {
    let rows: [(&str, &str); 5] = [
        ("DELETE FROM steps WHERE s = 2", "row 2 of the steps"),
        ("DELETE FROM steps WHERE s = (SELECT max(s) FROM steps)", "of the steps"),
        ("DELETE FROM branches WHERE b = 2", "table branches"),
        ("DELETE FROM branches WHERE b = (SELECT max(b) FROM branches)", "table branches"),
        ("DELETE FROM payloads WHERE p = 1", "of the steps"),
    ];
    for (sql, place) in rows {
        let (folder, _, _) = closed("sqlite");
        let database = rusqlite::Connection::open(folder.path().join("store")).expect("a database");
        assert_eq!(database.execute(sql, []).expect("deleted"), 1, "{sql}");
        drop(database);
        let store = block_on(Store::open(&uri("sqlite", folder.path()))).expect("a store");
        let damage = block_on(store.check()).expect("a check").damage;
        assert!(damage.iter().any(|damage| damage.place.contains(place)), "{sql}: {damage:?}");
    }
}

#[test]
fn what_is_deleted_on_purpose_is_not_missed() {
    let folder = folder();
    let uri = uri("sqlite", folder.path());
    let store = block_on(Store::open(&uri)).expect("a store");
    let add = |words: &str| block_on(Session::user(words).record(&store)).expect("recorded").id();
    let ids: Vec<_> = (0..6).map(|nth| add(&format!("session {nth}"))).collect();
    for (nth, compacts) in [(5, false), (2, true), (0, false), (4, true)] {
        block_on(store.delete(ids[nth])).expect("deleted");
        assert_eq!(block_on(store.check()).expect("a check").damage, []);
        if compacts {
            block_on(store.compact()).expect("compacted");
            assert_eq!(block_on(store.check()).expect("a check").damage, []);
        }
        let added = add("another");
        assert_eq!(block_on(store.check()).expect("a check").damage, []);
        assert!(block_on(store.list()).expect("a list").iter().any(|listed| listed.branch == added));
    }
    assert_eq!(block_on(store.list()).expect("a list").len(), 6);
    close((), store);
    // A row that is deleted otherwise is missed all the same.
    for sql in ["DELETE FROM branches WHERE b = 4", "DELETE FROM branches WHERE b = (SELECT max(b) FROM branches)"] {
        let (_folder, uri) = together(&files(folder.path()));
        let database = rusqlite::Connection::open(uri.trim_start_matches("sqlite:")).expect("a database");
        assert_eq!(database.execute(sql, []).expect("deleted"), 1, "{sql}");
        drop(database);
        let store = block_on(Store::open(&uri)).expect("a store");
        let damage = block_on(store.check()).expect("a check").damage;
        assert!(damage.iter().any(|damage| damage.place == "table branches"), "{sql}: {damage:?}");
    }
}

#[test]
fn a_file_that_cannot_be_opened_says_why() {
    let (folder, _, _) = closed("sqlite");
    let path = folder.path().join("store");
    let whole = std::fs::read(&path).expect("a file");
    let told = |bytes: &[u8]| {
        std::fs::write(&path, bytes).expect("a file");
        let error = block_on(Store::open(&uri("sqlite", folder.path()))).expect_err("it is not whole");
        assert!(!error.hint().unwrap_or_default().contains("wal"), "{error}");
        error.message().replace(&path.display().to_string(), "PATH")
    };
    let length = whole.len();
    let cut = |found: usize, wanted: usize| {
        format!("sqlite:PATH is damaged: the file was cut off, and {found} of at least {wanted} bytes are there")
    };
    assert_eq!(told(&whole[..50]), cut(50, 100));
    assert_eq!(told(&whole[..8192]), cut(8192, length));
    assert_eq!(told(&whole[..length - 1]), cut(length - 1, length));
    let changed = |at: usize, to: &[u8]| [&whole[..at], to, &whole[at + to.len()..]].concat();
    assert_eq!(told(&changed(0, b"sqlite")), "sqlite:PATH is not a database, or its beginning is damaged");
    let header = "sqlite:PATH is damaged: its header or the definitions of its tables were changed";
    let pages = (length / 4096) as u8 - 1;
    for (at, to) in [(20, &[8][..]), (31, &[pages]), (52, &[0, 0, 0, 9])] {
        assert_eq!(told(&changed(at, to)), header, "byte {at}");
    }
    let version = |version: u8| told(&changed(60, &[0, 0, 0, version]));
    assert_eq!(version(1), "sqlite:PATH has version 1, which kept its steps in a second file and was never released");
    assert_eq!(version(3), "sqlite:PATH has version 3; this program reads version 2");
    std::fs::write(folder.path().join("store-wal"), "the newest").expect("a file");
    assert!(told(b"").ends_with("holds its newest steps"));
    std::fs::remove_file(&path).expect("removed");
    assert!(block_on(Store::open(&uri("sqlite", folder.path()))).is_err());
    assert!(folder.path().join("store-wal").exists(), "it is not deleted");
    std::fs::create_dir(&path).expect("a folder");
    let error = block_on(Store::open(&uri("sqlite", folder.path()))).expect_err("it is a directory");
    assert!(error.message().ends_with("found a directory"), "{error}");
}

#[test]
fn a_store_that_cannot_be_written_to_is_read() {
    use std::os::unix::fs::PermissionsExt;
    let (folder, said, main) = closed("sqlite");
    let path = folder.path().join("store");
    let set = |path: &Path, mode: u32| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("permissions");
    };
    set(&path, 0o444);
    set(folder.path(), 0o555);
    if std::fs::write(folder.path().join("new"), "").is_ok() {
        set(folder.path(), 0o755);
        return println!("skipped: this user writes everywhere");
    }
    let store = block_on(Store::open(&uri("sqlite", folder.path()))).expect("it can be read");
    assert_eq!(StoreContent::by(&store), said);
    let error = block_on(store.resume(main)).expect_err("it cannot be written");
    assert!(error.message().starts_with("cannot write to "), "{error}");
    set(folder.path(), 0o755);
}
