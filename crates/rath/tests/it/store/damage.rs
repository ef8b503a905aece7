//! Every byte of a store can be lost or changed, and nobody is told less than all of it without being told so.
//!
//! `RATH_EXHAUSTIVE` tries every byte; otherwise a part of them, spread over all.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rath::Usage;
use rath::chunk::User;
use rath::chunk::{Call, Image};
use rath::prelude::*;
use rath::store::{BranchSummary, Registry, Store};
use rath::{BranchId, store};

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

/// What a store says of everything in it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Said {
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

impl Said {
    fn by(store: &Store) -> Self {
        let list = block_on(store.list()).expect("a list");
        let branches = list
            .iter()
            .map(|it| (it.branch, steps(&block_on(store.read(it.branch)).expect("it is read").session)))
            .collect();
        Said { list: list.iter().map(row).collect(), branches }
    }
}

/// Whether a store of which something was changed says so wherever it does not say what it said before.
///
/// Gives whether anybody was told anything.
fn check(uri: &str, before: &Said, main: BranchId, harm: Harm) -> Result<bool, String> {
    // Where the end is missing, that its writer did not close it is all that can be known; and a store of no bytes is new.
    let (cut, empty) = (matches!(harm, Harm::Cut(_)), matches!(harm, Harm::Cut(0)));
    let Ok(store) = block_on_one(Registry::new().open_as(uri, store::Create::Never)) else { return Ok(true) };
    let mut told = false;
    let damaged = block_on_one(store.check()).map_or(true, |check| !check.damage.is_empty());
    told |= damaged;
    match block_on_one(store.list()) {
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
        match block_on_one(store.read(*branch)) {
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
            let certificate = resumed.certificate();
            if !certificate.is_complete() || cut && certificate.left_open_by().is_some() {
                told = true;
            } else if resumed.complete().map(|session| steps(&session)).ok().as_ref() != before.branches.get(&main) {
                return Err("resume says that nothing has changed and gives something else".to_owned());
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

/// What is done to a file.
#[derive(Clone, Copy, Debug)]
enum Harm {
    Nothing,
    Cut(usize),
    Flip(usize, u32),
}

/// Does harm to one file at a time, and checks what the store says.
fn harm(kind: &str, name: &str, files: &Files, before: &Said, main: BranchId, harms: impl Fn(&[u8]) -> Vec<Harm>) {
    let harmed: Vec<_> = files.iter().filter(|(path, _)| path.to_string_lossy().ends_with(name)).collect();
    assert!(!harmed.is_empty(), "a file {name}");
    let (mut tried, mut told, mut wrong) = (0_u64, 0_u64, Vec::new());
    for (path, bytes) in harmed {
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
            match std::panic::catch_unwind(|| check(&uri, before, main, harm)) {
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
fn closed(kind: &str) -> (rath_test_support::TempDir, Said, BranchId) {
    let folder = folder();
    std::fs::write(folder.path().join("root"), "").expect("a file");
    let uri = uri(kind, folder.path());
    let store = block_on(Store::open(&uri)).expect("a store");
    let sessions = block_on(write(&store)).expect("it is written");
    let main = main_of(&sessions);
    close(sessions, store);
    let store = block_on(Store::open(&uri)).expect("a store");
    let said = Said::by(&store);
    close((), store);
    assert!(said.list.iter().all(|row| row.ends_with("false")), "{}", said.list.join("\n"));
    (folder, said, main)
}

#[test]
fn a_file_of_lines_that_is_cut_or_changed_anywhere_says_so() {
    let (folder, said, main) = closed("jsonl");
    let files = files(folder.path());
    harm("jsonl", ".jsonl", &files, &said, main, |bytes| places(bytes.len(), 23).map(Harm::Cut).collect());
    harm("jsonl", ".jsonl", &files, &said, main, |bytes| flips(bytes, 17));
}

#[test]
fn a_database_that_is_cut_or_changed_anywhere_says_so() {
    let (folder, said, main) = closed("sqlite");
    let files = files(folder.path());
    harm("sqlite", "store", &files, &said, main, |bytes| {
        let pages = (0..bytes.len()).step_by(4096).flat_map(|page| [page.saturating_sub(1), page, page + 1]);
        let more = (0..bytes.len()).step_by(if exhaustive() { 37 } else { 37 * 11 });
        pages.chain(more).map(Harm::Cut).collect()
    });
    harm("sqlite", "store", &files, &said, main, |bytes| flips(bytes, 29));
}

#[test]
fn steps_beside_a_database_that_are_cut_or_changed_anywhere_say_so() {
    let (folder, said, main) = closed("sqlite");
    let files = files(folder.path());
    harm("sqlite", "-steps", &files, &said, main, |bytes| places(bytes.len(), 13).map(Harm::Cut).collect());
    harm("sqlite", "-steps", &files, &said, main, |bytes| flips(bytes, 7));
}

#[test]
fn a_log_that_is_cut_or_changed_anywhere_says_so() {
    let folder = folder();
    std::fs::write(folder.path().join("root"), "").expect("a file");
    let main = folder.path().join("main");
    let uri = uri("sqlite", folder.path());
    let settings = [("RATH_STORE", &*uri), ("RATH_MAIN", main.to_str().expect("UTF-8"))];
    let ended = again("store::damage::child", &settings).output().expect("it ends");
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    let files = files(folder.path());
    let main = std::fs::read_to_string(main).expect("a file").parse().expect("a branch");
    // What it says is asked of a copy: to open it is to change it.
    let copy = self::folder();
    for (path, bytes) in &files {
        std::fs::write(copy.path().join(path.file_name().expect("a name")), bytes).expect("a file");
    }
    let said = Said::by(&block_on(Store::open(&self::uri("sqlite", copy.path()))).expect("a store"));
    assert!(said.list.iter().any(|row| row.ends_with("true")), "{}", said.list.join("\n"));
    // Nothing of it stands in the database yet.
    harm("sqlite", "-steps", &files, &said, main, |bytes| places(bytes.len(), 13).map(Harm::Cut).collect());
    harm("sqlite", "-steps", &files, &said, main, |bytes| flips(bytes, 7));
    harm("sqlite", "-wal", &files, &said, main, |bytes| places(bytes.len(), 211).map(Harm::Cut).collect());
    harm("sqlite", "-wal", &files, &said, main, |bytes| flips(bytes, 61));
}

/// A store that is put together of files that were copied before.
fn together(files: &[(&str, &Path)]) -> (rath_test_support::TempDir, String) {
    let folder = folder();
    for (name, from) in files {
        std::fs::copy(from, folder.path().join(name)).expect("a copy");
    }
    let uri = uri("sqlite", folder.path());
    (folder, uri)
}

fn add(uri: &str, words: &str) {
    let store = block_on(Store::open(uri)).expect("a store");
    close(block_on(Session::user(words).record(&store)).expect("recorded"), store);
}

#[test]
fn a_database_and_steps_that_do_not_belong_together_say_so() {
    let folders = [folder(), folder(), folder(), folder()];
    let [one, other, before, compacted] = folders.each_ref().map(rath_test_support::TempDir::path);
    let copy = |from: &Path, to: &Path| {
        for name in ["store", "store-steps"] {
            std::fs::copy(from.join(name), to.join(name)).expect("a copy");
        }
    };
    add(&uri("sqlite", one), "first");
    add(&uri("sqlite", other), "of another");
    copy(one, before);
    add(&uri("sqlite", one), "second");
    copy(one, compacted);
    let store = block_on(Store::open(&uri("sqlite", compacted))).expect("a store");
    block_on(store.compact()).expect("compacted");
    close((), store);
    let (database, steps) = (|of: &Path| of.join("store"), |of: &Path| of.join("store-steps"));
    let check = |name: &str, files: &[(&str, PathBuf)], wanted: &str| {
        let files: Vec<_> = files.iter().map(|(name, from)| (*name, from.as_path())).collect();
        for create in [store::Create::Never, store::Create::IfMissing] {
            let (_folder, uri) = together(&files);
            let told = match block_on(Registry::new().open_as(&uri, create)) {
                Err(error) => error.message(),
                Ok(store) => {
                    let damage = block_on(store.check()).map(|check| check.damage).expect("a check");
                    let told = damage.first().map(ToString::to_string);
                    let written = block_on(Session::user("more").record(&store));
                    assert!(written.is_err() || told.is_none(), "{name}: it was written to");
                    told.unwrap_or_else(|| format!("{} sessions", block_on(store.list()).expect("a list").len()))
                }
            };
            let wanted = if files.len() == 1 && create == store::Create::Never { "" } else { wanted };
            assert!(told.contains(wanted), "{name}: {told}");
        }
    };
    check("as they are", &[("store", database(one)), ("store-steps", steps(one))], "3 sessions");
    check("without its steps", &[("store", database(one))], "is missing");
    check("without its database", &[("store-steps", steps(one))], "the database beside it is missing");
    check("steps of another", &[("store", database(one)), ("store-steps", steps(other))], "is of another store");
    // What came after the database was copied is in the steps.
    check("an older database", &[("store", database(before)), ("store-steps", steps(one))], "3 sessions");
    check("older steps", &[("store", database(one)), ("store-steps", steps(before))], "more bytes should follow");
    let files = [("store", database(before)), ("store-steps", steps(compacted))];
    check("an older database, and steps that were compacted since", &files, "is newer than its database");
}

#[test]
fn what_a_crash_leaves_of_a_group_is_cut_and_no_damage() {
    let home = folder();
    let uri = uri("sqlite", home.path());
    let store = block_on(Store::open(&uri)).expect("a store");
    let [database, copy, steps] = ["store", "copy", "store-steps"].map(|name| home.path().join(name));
    // One that reflects nothing, however long this takes.
    std::fs::copy(&database, &copy).expect("a copy");
    let mut session = block_on(Session::user("one").record(&store)).expect("recorded");
    session.push(Chunk::user("two"));
    block_on(session.durable()).expect("durable");
    let before = std::fs::read(&steps).expect("a file").len();
    session.push(Chunk::user("three ".repeat(600)));
    block_on(session.durable()).expect("durable");
    let whole = std::fs::read(&steps).expect("a file");
    assert!(whole.len() > before + 3_600);
    let check = |name: &str, steps: &[u8], chunks: u64, damaged: bool| {
        let (folder, uri) = together(&[("store", &copy)]);
        std::fs::write(folder.path().join("store-steps"), steps).expect("a file");
        let store = block_on(Store::open(&uri)).expect("a store");
        let found = block_on(store.read(session.id())).expect("it is there");
        assert_eq!((found.session.chunk_count(), found.damage.is_empty()), (chunks, !damaged), "{name}");
        assert_eq!(block_on(store.check()).expect("a check").damage.is_empty(), !damaged, "{name}");
        // Whatever was left is written over.
        let added = block_on(Session::user("after it").record(&store)).expect("recorded");
        drop(store);
        let store = block_on(Store::open(&uri)).expect("a store");
        assert_eq!(block_on(store.read(added.id())).expect("it is there").session.chunk_count(), 1, "{name}");
        assert_eq!(block_on(store.check()).expect("a check").damage.is_empty(), !damaged, "{name}");
    };
    check("all of it", &whole, 3, false);
    for length in [before + 1, before + 39, before + 40, before + 100, whole.len() - 1] {
        check("cut", &whole[..length], 2, false);
    }
    // The size is there before what was written: a part of it never was.
    let hole = |from: usize, to: usize| {
        let mut steps = whole.clone();
        steps[from..to].fill(0);
        steps
    };
    let sector = (before / 512 + 2) * 512;
    check("a hole", &hole(sector, sector + 512), 2, false);
    check("nothing but a size", &hole(before, whole.len()), 2, false);
    check("the end is missing", &hole(sector, whole.len()), 2, false);
    let mut changed = whole.clone();
    changed[sector] ^= 1;
    check("a change", &changed, 2, true);
}
