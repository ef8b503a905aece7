//! The promises that every store keeps.

use rath::Difference;
use rath::StepId;
use rath::chunk::Call;
use rath::chunk::{Image, ToolStarted, User};
use rath::prelude::*;
use rath::store::BranchSummary;

/// An empty store for one promise, which can be opened again and again.
pub struct StoreCase(Box<dyn FnMut() -> Store>);

impl StoreCase {
    /// A store that outlives its handles: `open` opens the same one each time.
    pub fn new(open: impl FnMut() -> Store + 'static) -> Self {
        StoreCase(Box::new(open))
    }

    /// A store that lasts as long as a handle on it.
    pub fn lasting(store: Store) -> Self {
        StoreCase::new(move || store.clone())
    }

    fn open(&mut self) -> Store {
        (self.0)()
    }
}

/// Goes through every promise, each with an empty store of its own, and panics at the first that is not kept.
pub fn conforms(case: &mut dyn FnMut() -> StoreCase) {
    for (name, promise) in PROMISES {
        eprintln!("store: {name}");
        promise(&mut case());
    }
}

/// A promise, and the test that shows it.
type Promise = (&'static str, fn(&mut StoreCase));

const PROMISES: [Promise; 14] = [
    ("a store with nothing in it lists nothing, and knows no session", empty),
    ("what was recorded is there when it is opened again", is_there_again),
    ("a fork is a branch of the same session, and what it shares is kept once", forks),
    ("a merge and what is kept aside come back as they were", merges),
    ("long texts and pictures come back", payloads),
    ("only one writes a branch, and the other is told who does", one_writer),
    ("two handles on one branch cannot both go on", two_handles),
    ("a refused writer continues on a fork", refused),
    ("a call without a result is in doubt", in_doubt),
    ("what is recorded twice is kept once", twice),
    ("what is forgotten is gone, and the rest still checks", forgets),
    ("what is deleted is gone", deletes),
    ("what another session needs is not deleted, and what is deleted is named", deletes_together),
    ("a session of others stays one until it is adopted", guests),
];

fn empty(case: &mut StoreCase) {
    let store = case.open();
    assert!(wait(store.list()).expect("a list").is_empty());
    let unknown = Session::user("never recorded").id();
    let error = wait(store.read(unknown)).expect_err("it was not recorded");
    assert_eq!(error.kind(), ErrorKind::NoSuchSession);
    let error = wait(store.resume(unknown)).expect_err("it was not recorded");
    assert_eq!(error.kind(), ErrorKind::NoSuchSession);
    assert!(wait(store.check()).expect("a check").damage.is_empty());
}

fn is_there_again(case: &mut StoreCase) {
    let mut session = recorded(case, "hello");
    session.push(Chunk::assistant("hi"));
    wait(session.durable()).expect("durable");
    let (id, head) = (session.id(), head(&session));
    drop(session);
    let store = case.open();
    wait_until_released(&store, id);
    let listed = only(&store);
    assert_eq!((listed.branch, listed.family, listed.head, &*listed.title), (id, id, head, "hello"));
    assert!(listed.is_tip && listed.totals.chunks == 2);
    let resumed = wait(store.resume(id)).expect("it has no writer");
    assert!(resumed.certificate().is_complete(), "{}", resumed.certificate());
    assert!(resumed.certificate().left_open_by().is_none(), "{}", resumed.certificate());
    let mut session = resumed.complete().expect("complete");
    session.push(Chunk::user("and now?"));
    wait(session.durable()).expect("durable");
    assert_eq!(wait(case.open().read(id)).expect("it is there").session.head(), session.head());
}

fn forks(case: &mut StoreCase) {
    let session = recorded(case, "one question");
    let branches: Vec<_> = (0..8)
        .map(|nth| {
            let mut fork = session.fork_named(format!("way {nth}"));
            fork.push(Chunk::assistant(format!("answer {nth}")));
            wait(fork.durable()).expect("durable");
            fork
        })
        .collect();
    let store = case.open();
    let list = wait(store.list()).expect("a list");
    assert_eq!(list.len(), 9);
    assert!(list.iter().all(|listed| listed.family == session.id()));
    assert_eq!(list.iter().filter(|listed| listed.is_tip).count(), 8, "the first one is gone on from");
    for fork in &branches {
        let found = wait(store.read(fork.id())).expect("it is there");
        assert_eq!(found.session.head(), fork.head());
        assert_eq!(found.session.chunk_count(), 2);
    }
    // The question once, and a mark and an answer for each branch.
    assert_eq!(wait(store.check()).expect("a check").steps, 1 + 2 * 8);
}

fn merges(case: &mut StoreCase) {
    let session = recorded(case, "two ways");
    let answer = |name: &str| {
        let mut fork = session.fork_named(name);
        fork.push(Chunk::assistant(name));
        fork
    };
    let mut merged = wait(answer("left").merge(&answer("right"))).expect("nothing is open");
    let mut aside = merged.aside("helper");
    aside.push(Chunk::user("look it up"));
    merged.keep_aside(&aside);
    // What was never recorded comes in with a merge.
    let merged = wait(merged.merge(&Session::user("from elsewhere"))).expect("nothing is open");
    wait(merged.durable()).expect("durable");
    let found = wait(case.open().read(merged.id())).expect("it is there");
    assert_eq!(found.session.lineage().to_string(), merged.lineage().to_string());
    assert_eq!(found.session.chunk_count(), merged.chunk_count());
    assert!(found.damage.is_empty());
}

fn payloads(case: &mut StoreCase) {
    let mut session = recorded(case, "look");
    let long = "ł".repeat(100_000);
    session.push(Chunk::user(long.as_str()));
    session.push(User::new("this").with_images(vec![Image::new("image/png", *b"\x89PNG\0\xff")]));
    wait(session.durable()).expect("durable");
    let found = wait(case.open().read(session.id())).expect("it is there").session;
    let chunks: Vec<_> = found.chunks().collect();
    assert!(matches!(chunks[1], Chunk::User(user) if user.text.as_str() == Some(&long)));
    assert!(matches!(chunks[2], Chunk::User(user) if user.images[0].blob.data().is_some_and(|data| data.len() == 6)));
}

fn one_writer(case: &mut StoreCase) {
    let session = recorded(case, "mine");
    let other = case.open();
    let error = wait(other.resume(session.id())).expect_err("it has a writer");
    assert_eq!(error.kind(), ErrorKind::Conflict);
    let who = format!("process {}", std::process::id());
    assert!(error.message().contains(&who), "{error}");
    assert!(wait(other.read(session.id())).is_ok(), "reading needs no right");
    let id = session.id();
    drop(session);
    wait_until_released(&other, id);
    assert!(wait(other.resume(id)).is_ok(), "it was given back");
    assert!(wait(other.resume(id)).is_ok(), "and again");
}

fn two_handles(case: &mut StoreCase) {
    let mut session = recorded(case, "one branch");
    let mut other = session.clone();
    session.push(Chunk::assistant("this way"));
    other.push(Chunk::assistant("that way"));
    wait(session.durable()).expect("it was first");
    let error = wait(other.durable()).expect_err("it was not");
    assert_eq!(error.kind(), ErrorKind::Conflict);
    let left = error.into_session().expect("it carries the session");
    assert_eq!(left.text(), Some("that way"), "nothing of it is lost");
    assert_eq!(wait(case.open().read(session.id())).expect("it is there").session.text(), Some("this way"));
}

fn refused(case: &mut StoreCase) {
    let mut session = recorded(case, "one branch");
    let mut other = session.clone();
    session.push(Chunk::assistant("this way"));
    other.push(Chunk::assistant("that way"));
    wait(session.durable()).expect("it was first");
    let mut fork = wait(other.durable()).expect_err("it was not").into_session().expect("the session").fork();
    fork.push(Chunk::user("further"));
    wait(fork.durable()).expect("it has no other writer");
    let found = wait(case.open().read(fork.id())).expect("it is there").session;
    assert_eq!((found.text(), found.chunk_count()), (Some("that way"), 3));
}

fn in_doubt(case: &mut StoreCase) {
    let mut session = recorded(case, "send it");
    session.push(Chunk::calls([Call::new("c1", "send", "{}")]));
    session.push(ToolStarted::new("c1"));
    wait(session.durable()).expect("durable");
    let id = session.id();
    drop(session);
    let store = case.open();
    wait_until_released(&store, id);
    let resumed = wait(store.resume(id)).expect("it has no writer");
    assert!(
        matches!(resumed.certificate().differences(), [Difference::InDoubt { tool, .. }] if tool == "send"),
        "{}",
        resumed.certificate()
    );
    let mut session = resumed.to_decide().expect("there is nothing else");
    wait(session.skip("c1")).expect("it is open");
    wait(session.durable()).expect("durable");
    drop(session);
    let store = case.open();
    wait_until_released(&store, id);
    let resumed = wait(store.resume(id)).expect("it has no writer");
    assert!(resumed.certificate().is_complete(), "{}", resumed.certificate());
}

fn twice(case: &mut StoreCase) {
    let plain = {
        let mut session = Session::user("hello");
        session.push(Chunk::assistant("hi"));
        session
    };
    let first = wait(plain.clone().record(&case.open())).expect("recorded");
    drop(first);
    let store = case.open();
    wait_until_released(&store, plain.id());
    let mut again = wait(plain.record(&store)).expect("recorded");
    assert_eq!(wait(store.check()).expect("a check").steps, 2);
    again.push(Chunk::user("more"));
    wait(again.durable()).expect("durable");
    assert_eq!(wait(store.check()).expect("a check").steps, 3);
    assert_eq!(only(&store).head, head(&again));
}

fn forgets(case: &mut StoreCase) {
    let mut session = recorded(case, "my number is 4711");
    let step = head(&session);
    session.push(Chunk::assistant("I will keep it to myself"));
    wait(session.durable()).expect("durable");
    let (id, newest) = (session.id(), head(&session));
    drop(session);
    let store = case.open();
    wait_until_released(&store, id);
    wait(store.forget(id, step)).expect("it is there");
    let found = wait(store.read(id)).expect("it is there");
    assert!(found.damage.is_empty(), "{:?}", found.damage);
    assert_eq!(head(&found.session), newest, "the rest is as it was");
    let words = format!("{:?}", found.session.chunks().collect::<Vec<_>>());
    assert!(!words.contains("number is 4711") && words.contains("myself"), "{words}");
    assert!(wait(store.check()).expect("a check").damage.is_empty());
    let listed = format!("{:?}", wait(store.list()).expect("a list"));
    assert!(!listed.contains("number is 4711"), "{listed}");
    assert!(wait(store.forget(id, StepId([0; 32]))).is_err(), "there is no such step");
    // Sessions that begin alike have the same step. What another step says as well stays there.
    let long = "the same long words ".repeat(2_000);
    let [one, alike] = [(); 2].map(|()| {
        let session = recorded(case, &long);
        (session.id(), head(&session))
    });
    assert_eq!(one.1, alike.1);
    let mut session = recorded(case, "first something else");
    session.push(Chunk::user(&*long));
    wait(session.durable()).expect("durable");
    let other = session.id();
    drop(session);
    let store = case.open();
    [one.0, alike.0, other].iter().for_each(|id| wait_until_released(&store, *id));
    let report = wait(store.forget(one.0, one.1)).expect("it has no writer");
    assert!(report.refused.is_empty(), "{report:?}");
    let said = |id| format!("{:?}", wait(store.read(id)).expect("it is there").session.chunks().collect::<Vec<_>>());
    assert!(!said(one.0).contains("the same long words"));
    assert!(!said(alike.0).contains("the same long words"), "it is the same step");
    assert!(said(other).contains(&long), "it was another's");
    wait(store.forget(one.0, one.1)).expect("once more does no harm");
    assert!(wait(store.check()).expect("a check").damage.is_empty());
}

fn deletes(case: &mut StoreCase) {
    let gone = recorded(case, "to be deleted").id();
    let kept = recorded(case, "to be kept").id();
    let store = case.open();
    [gone, kept].iter().for_each(|id| wait_until_released(&store, *id));
    wait(store.delete(gone)).expect("it has no writer");
    wait(store.compact()).expect("there is room");
    assert_eq!(wait(store.read(gone)).expect_err("it is gone").kind(), ErrorKind::NoSuchSession);
    assert_eq!(only(&store).branch, kept);
    let check = wait(store.check()).expect("a check");
    assert!(check.damage.is_empty() && check.steps == 1, "{check:?}");
    assert!(wait(store.delete(gone)).is_err(), "it is gone already");
}

fn deletes_together(case: &mut StoreCase) {
    let store = case.open();
    let one = wait(Session::user("one").record(&store)).expect("recorded");
    let other = wait(Session::user("other").record(&store)).expect("recorded");
    let mut forked = one.fork();
    forked.push(Chunk::user("a fork"));
    wait(forked.durable()).expect("durable");
    // The merge is a branch of the session that it continues, and needs the one that it takes in.
    let merged = wait(other.merge(&one)).expect("nothing is open");
    wait(merged.durable()).expect("durable");
    let third = wait(Session::user("third").record(&store)).expect("recorded");
    let [a, b, c] = [&one, &other, &third].map(Session::id);
    let (fork, merge) = (forked.id(), merged.id());
    let busy = wait(store.delete_all(&[a, b, c])).expect("no failure");
    assert_eq!((busy.deleted.len(), busy.refused.len()), (0, 3), "all of them are being written: {busy:?}");
    drop((one, other, forked, merged, third));
    let whole = wait(store.list()).expect("a list");
    let family = |branch| whole.iter().find(|listed| listed.branch == branch).expect("it is listed").family;
    assert_eq!([a, b, c, fork, merge].map(family), [a, b, c, a, b]);
    [a, b, c, fork, merge].iter().for_each(|id| wait_until_released(&store, *id));
    let told = |deletion: &rath::store::Deletion| {
        let mut branches = deletion.branches.clone();
        branches.sort();
        let refused: Vec<_> = deletion.refused.iter().map(|it| (it.family, it.needed_by.clone())).collect();
        (deletion.deleted.clone(), branches, refused)
    };
    let sorted = |mut branches: Vec<rath::BranchId>| {
        branches.sort();
        branches
    };
    let delete = |families: &[rath::BranchId], expected| {
        let planned = wait(store.measure_delete(families)).expect("counted");
        assert_eq!(told(&planned), expected, "a dry run");
        let deletion = wait(store.delete_all(families)).expect("deleted");
        assert_eq!(told(&deletion), expected);
        for refusal in &deletion.refused {
            assert_eq!(refusal.error.kind(), rath::store::StoreErrorKind::Conflict);
        }
        wait(store.compact()).expect("there is room");
        let check = wait(store.check()).expect("a check");
        assert!(check.damage.is_empty(), "{check:?}");
    };
    delete(&[a, c], (vec![c], vec![c], vec![(a, vec![b])]));
    assert_eq!(wait(store.read(merge)).expect("it is there").session.chunk_count(), 2);
    assert!(wait(store.read(fork)).is_ok(), "it is a branch of what stays");
    let error = wait(store.delete(a)).expect_err("the merge needs it");
    assert_eq!(error.kind(), rath::store::StoreErrorKind::Conflict);
    assert!(wait(store.delete_all(&[a, b, c])).is_err(), "one of them is gone");
    delete(&[a, b], (vec![b, a], sorted(vec![a, fork, b, merge]), vec![]));
    // Two sessions that need each other.
    let [left, right] = ["left", "right"].map(|words| wait(Session::user(words).record(&store)).expect("recorded"));
    let merges = [(&left, &right), (&right, &left)].map(|(ours, theirs)| wait(ours.merge(theirs)).expect("merged"));
    merges.iter().for_each(|merged| wait(merged.durable()).expect("durable"));
    let (a, b) = (left.id(), right.id());
    let [in_a, in_b] = merges.each_ref().map(Session::id);
    drop((left, right, merges));
    [a, b, in_a, in_b].iter().for_each(|id| wait_until_released(&store, *id));
    delete(&[a], (vec![], vec![], vec![(a, vec![b])]));
    let both = wait(store.delete_all(&[a, b])).expect("deleted");
    assert!(both.refused.is_empty() && both.deleted.len() == 2 && both.branches.len() == 4, "{both:?}");
    assert!(wait(store.list()).expect("a list").is_empty());
}

fn guests(case: &mut StoreCase) {
    let store = case.open();
    let own = wait(Session::user("mine").record(&store)).expect("recorded");
    let guest = Session::resume(Session::user("theirs").as_record().clone());
    let mut guest = wait(guest.record(&store)).expect("recorded");
    guest.push(Chunk::assistant("more of theirs"));
    let mut fork = guest.fork();
    fork.push(Chunk::user("on a branch"));
    // Forks that begin with equal steps, made by processes that do not know of each other.
    let twins = [0, 1].map(|_| {
        let parent = wait(store.read(own.id())).expect("it is there").session;
        wait(parent.fork().record(&store)).expect("recorded")
    });
    let mixed = wait(wait(own.merge(&fork)).expect("merged").record(&store)).expect("recorded");
    let mut adopted = wait(guest.fork().adopt("Ann").record(&store)).expect("recorded");
    adopted.push(Chunk::user("go on"));
    let [left, right] = twins;
    let sessions = [own, guest, fork, mixed, adopted, left, right];
    let known = sessions.each_ref().map(|session| (session.id(), session.is_guest()));
    sessions.iter().for_each(|session| wait(session.durable()).expect("durable"));
    assert_eq!(known.map(|(_, is_guest)| is_guest), [false, true, true, true, false, false, false]);
    drop((sessions, store));
    let store = case.open();
    for (nth, (id, is_guest)) in known.into_iter().enumerate() {
        wait_until_released(&store, id);
        let read = wait(store.read(id)).unwrap_or_else(|error| panic!("session {nth}: {error}"));
        assert_eq!(read.session.is_guest(), is_guest, "session {nth}");
    }
}

/// A session that was just recorded.
fn recorded(case: &mut StoreCase, words: &str) -> Session {
    wait(Session::user(words).record(&case.open())).expect("recorded")
}

/// Blocks until the handle that wrote a branch has given it back. Dropping a session asks for that; the thread that writes
/// for its handle does it a little later.
fn wait_until_released(store: &Store, branch: rath::BranchId) {
    let start = std::time::Instant::now();
    let is_held = |listed: &BranchSummary| listed.branch == branch && listed.holder.is_some();
    while wait(store.list()).expect("a list").iter().any(is_held) {
        assert!(start.elapsed() < std::time::Duration::from_secs(120), "it is still held");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

fn head(session: &Session) -> StepId {
    session.head().expect("it has steps").id()
}

/// The one branch that there is.
fn only(store: &Store) -> BranchSummary {
    let mut list = wait(store.list()).expect("a list");
    assert_eq!(list.len(), 1, "{list:?}");
    list.remove(0)
}

fn wait<T, E>(work: impl Future<Output = Result<T, E>>) -> Result<T, E> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(work)
}
