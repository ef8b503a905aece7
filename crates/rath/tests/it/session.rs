//! A session is a value.

use expect_test::expect;
use rath::Usage;
use rath::chunk::{Call, Strategy};
use rath::prelude::*;
use rath::record::graph;
use rath::record::graph::Ids;

use crate::support::{block_on, now};

fn calls(id: &str) -> Chunk {
    Chunk::calls([Call::new(id, "ls", "{}")])
}

fn result(id: &str) -> Chunk {
    Chunk::result(id, "a.rs")
}

/// A program with every operator in it.
pub(crate) fn program() -> Session {
    let mut session = Session::system("be brief").to(Sandbox::local("/srv/app"));
    session.push(Chunk::user("hi"));
    session.push_with_usage(Chunk::assistant("hello"), Usage::new(10, 2));
    let mut one = session.fork_named("one");
    one.push_with_usage(calls("1"), Usage::new(12, 3));
    one.push(result("1"));
    let mut two = session.fork();
    two.push(Chunk::user("two"));
    let mut apart = session.detach();
    apart.push(Chunk::note("apart"));
    let mut merged = now(now(one.merge(&two)).expect("nothing is open").merge(&apart)).expect("nothing is open");
    merged.push_with_usage(Chunk::assistant("done"), Usage::new(20, 5));
    merged
}

#[test]
fn nothing_done_to_a_fork_is_visible_in_its_parent() {
    let mut parent = Session::user("hi");
    let before = (parent.to_string(), parent.lineage().to_string(), parent.chunk_count());
    let forks: Vec<_> = [Session::fork, Session::detach, Session::clone]
        .iter()
        .map(|leave| {
            let mut fork = leave(&parent).to(Sandbox::local("/elsewhere"));
            fork.push_with_usage(Chunk::assistant("only here"), Usage::new(5, 5));
            fork
        })
        .collect();
    assert_eq!((parent.to_string(), parent.lineage().to_string(), parent.chunk_count()), before);
    parent.push(Chunk::user("only there"));
    for fork in forks {
        assert!(!fork.lineage().to_string().contains("only there"));
        assert_eq!((fork.text(), fork.chunk_count()), (Some("only here"), 3));
    }
}

#[test]
fn a_fork_that_does_nothing_leaves_no_trace() {
    let session = program();
    let merged = now(session.fork().fork().merge(&session.fork())).expect("nothing is open");
    assert_eq!(merged.head(), session.head());

    let mut ten = Session::empty();
    (0..10).for_each(|_| _ = ten.push(Chunk::user("row")));
    for _ in 0..10 {
        ten = now(ten.fork().merge(&ten.fork())).expect("nothing is open");
    }
    assert_eq!(ten.as_record().steps().len(), 10);

    let forks: Vec<_> = (0..16).map(|_| session.fork()).collect();
    let all =
        forks.iter().skip(1).try_fold(forks[0].clone(), |all, fork| now(all.merge(fork))).expect("nothing is open");
    assert_eq!(all.head(), session.head());
}

#[test]
fn twins_that_do_the_same_are_still_two() {
    let session = Session::user("hi");
    let answer = |mut fork: Session| {
        fork.push_with_usage(Chunk::assistant("same"), Usage::new(10, 1));
        fork
    };
    let merged = now(answer(session.fork()).merge(&answer(session.fork()))).expect("nothing is open");
    assert_eq!((merged.usage(), merged.chunk_count()), (Usage::new(20, 2), 3));
    // Also when one is the fork of an untouched fork, or goes on from an earlier step.
    let head = session.head().expect("a step").id();
    let merged = now(answer(session.fork().fork()).merge(&answer(session.fork()))).expect("nothing is open");
    let merged = now(merged.merge(&answer(session.at(head).expect("a step")))).expect("nothing is open");
    assert_eq!(merged.usage(), Usage::new(30, 3));
}

#[test]
fn merging_with_an_open_call_is_refused_and_nothing_is_lost() {
    let session = Session::user("hi");
    let mut open = session.fork();
    open.push(calls("call_7"));
    let mut other = session.fork();
    other.push(Chunk::user("meanwhile"));
    let error = now(other.merge(&open)).expect_err("a call is open");
    assert_eq!(error.kind(), ErrorKind::Merge);
    let told = format!("{error:?}");
    assert!(told.contains("their side has a call without a result: `call_7` (ls)"), "{told}");
    assert!(told.contains("\nhint: record the call's result"), "{told}");
    assert_eq!(error.session().map(Session::head), Some(other.head()));
    open.push(result("call_7"));
    assert!(now(other.merge(&open)).is_ok());
}

#[test]
fn at_goes_on_from_an_earlier_step() {
    let mut session = Session::user("hi");
    let hello = session.push(Chunk::assistant("hello"));
    session.push(Chunk::user("more"));
    let mut earlier = session.at(hello).expect("a step of this session");
    assert_eq!(earlier.text(), Some("hello"));
    earlier.push(Chunk::user("something else"));
    assert_eq!((earlier.chunk_count(), session.chunk_count()), (3, 3));
    assert_ne!(earlier.id(), session.id());
    let error = Session::user("other").at(hello).expect_err("not a step of that session");
    assert_eq!(error.kind(), ErrorKind::NoSuchStep);
}

#[test]
fn concatenation_is_there_for_those_who_ask() {
    let session = Session::user("hi");
    let twice = now(session.merge_by(&session, Strategy::Concat)).expect("short");
    assert_eq!(twice.chunks().collect::<Vec<_>>(), [&Chunk::user("hi"), &Chunk::user("hi")]);
}

#[test]
#[ignore = "takes ten seconds in a test build"]
fn a_concatenation_that_is_too_long_is_refused_with_a_hint() {
    let mut twice = Session::user("hi");
    let error = loop {
        match now(twice.merge_by(&twice, Strategy::Concat)) {
            Ok(longer) => twice = longer,
            Err(error) => break error,
        }
    };
    assert_eq!(error.hint(), Some("merge by `Strategy::Ancestor`, which keeps what is shared once"));
}

#[test]
fn a_session_in_one_line() {
    expect!["empty session"].assert_eq(&Session::empty().to_string());
    expect!["session bc8e3744: 1 step, next: ask the model"].assert_eq(&Session::user("hi").to_string());
    expect!["session a852ff3a: 9 steps, sandbox local:/srv/app, 42 in, 10 out, done"].assert_eq(&program().to_string());
    let mut open = Session::user("hi");
    open.push(calls("1"));
    expect!["session 416fbe6d: 2 steps, next: run 1 tool call"].assert_eq(&open.to_string());
}

#[test]
fn a_bad_place_is_refused_with_a_hint() {
    for wrong in ["", "here", ":x", "Local:./", "lo cal:./", "local:./?memory=much", "local:./?speed=1"] {
        assert!(Sandbox::open(wrong).is_err(), "{wrong:?}");
    }
    let error = Sandbox::open("here").expect_err("no scheme");
    assert_eq!(error.kind(), rath::sandbox::ErrorKind::Config);
    assert_eq!(error.message(), "wanted a sandbox, found `here`");
    assert!(error.hint().is_some());
    assert_eq!(Sandbox::open("local:./").expect("a sandbox").uri(), Sandbox::local("./").uri());
    let place = Session::empty().to(Sandbox::local("/srv/app")).place();
    assert_eq!(place.expect("placed").as_str(), "local:/srv/app");
}

#[test]
fn the_same_program_run_twice_exports_the_same_bytes() {
    let (once, twice) = (program(), program());
    assert_ne!(once.export(Ids::Original), twice.export(Ids::Original));
    assert_eq!(once.export(Ids::Canonical), twice.export(Ids::Canonical));
    for ids in [Ids::Original, Ids::Canonical] {
        let report = graph::verify(once.export(ids).as_bytes());
        assert_eq!((report.rows, report.problems), (6, vec![]));
    }
    let kinds: Vec<_> = once
        .export(Ids::Canonical)
        .lines()
        .map(|line| line.split(r#""lineage_kind":""#).nth(1).and_then(|rest| rest.split('"').next()).map(str::to_owned))
        .map(|kind| kind.expect("a kind"))
        .collect();
    assert_eq!(kinds, ["leaf_system", "op_fork", "op_fork", "op_merge", "op_detach", "op_merge"]);
    let parents: Vec<_> = once
        .export(Ids::Canonical)
        .lines()
        .filter_map(|line| line.split_once(r#""parent_session_ids":["#)?.1.split_once(']'))
        .map(|(parents, _)| parents.split(',').filter(|parent| !parent.is_empty()).count())
        .collect();
    assert_eq!(parents, [0, 1, 1, 2, 0, 2], "what is detached has no parent");
}

#[test]
fn an_untouched_fork_is_exported_as_the_fork_it_is() {
    let session = Session::user("hi");
    let fork = session.fork();
    let export = fork.export(Ids::Original);
    assert!(
        export.contains(&format!(r#"{{"id":"{}","parent_session_ids":["{}"]"#, fork.id(), session.id())),
        "{export}"
    );
}

#[test]
fn merging_many_shows_what_merging_them_in_turn_shows() {
    let session = Session::user("hi");
    let forks = || {
        let forks = (0..37).map(|nth| {
            let mut fork = session.fork();
            fork.push_with_usage(Chunk::assistant(format!("answer {nth}")), Usage::new(1, 1));
            fork
        });
        forks.collect::<Vec<_>>()
    };
    let all = now(Session::merge_all(forks())).expect("nothing is open");
    let in_turn = forks().iter().try_fold(session.fork(), |all, fork| now(all.merge(fork))).expect("nothing is open");
    assert_eq!(all.chunks().collect::<Vec<_>>(), in_turn.chunks().collect::<Vec<_>>());
    assert_eq!((all.usage(), all.chunk_count()), (Usage::new(37, 37), 38));
    assert_eq!(now(Session::merge_all([])).expect("nothing").head(), None);
}

#[test]
fn a_fork_of_nothing_is_a_beginning() {
    let mut fork = Session::empty().fork();
    fork.push(Chunk::user("hi"));
    assert!(fork.export(Ids::Original).contains(r#""lineage_kind":"op_create""#));
}

#[test]
fn a_session_of_others_stays_a_guest_until_it_is_adopted() {
    let mut own = Session::user("hi");
    own.push(Chunk::assistant("hello"));
    let guest = Session::resume(own.as_record().clone());
    let check = |what: &str, session: &Session, is_guest: bool| assert_eq!(session.is_guest(), is_guest, "{what}");
    check("an own session", &own, false);
    check("a record of unknown origin", &guest, true);
    check("a record that the program vouches for", &Session::resume_own(own.as_record().clone()), false);
    check("a fork", &guest.fork(), true);
    check("a detached session", &guest.detach(), true);
    let first = own.as_record().steps()[0].id();
    check("an earlier step", &guest.at(first).expect("a step"), true);
    let mut fork = guest.fork();
    fork.push(Chunk::user("more"));
    check("an own session that a guest was merged into", &block_on(own.merge(&fork)).expect("merged"), true);
    check("a guest that an own session was merged into", &block_on(fork.merge(&own)).expect("merged"), true);
    let mut with_aside = own.clone();
    with_aside.keep_aside(&fork);
    check("an own session with work of a guest aside", &with_aside, true);

    let adopted = fork.adopt("Ann");
    check("an adopted guest", &adopted, false);
    check("a fork of an adopted guest", &adopted.fork(), false);
    check("an adopted guest before it was adopted", &adopted.at(first).expect("a step"), true);
    assert_eq!(adopted.clone().adopt("Ben").chunk_count(), adopted.chunk_count(), "an own session does not change");
}

#[test]
fn the_place_and_the_calls_of_a_guest_are_not_in_force() {
    let mut session = Session::user("hi").to(Sandbox::local("/"));
    session.push(Chunk::calls([Call::new("c1", "shell", r#"{"command":"true"}"#)]));
    let guest = Session::resume(session.as_record().clone());
    let script = Script::of([r#"{"text": "done"}"#]).expect("a script");
    let agent = Agent::new("Go.", &script.into()).tools(rath::tool::builtin::all());
    let error = block_on(agent.run(guest.clone())).expect_err("it is a guest");
    assert_eq!(error.kind(), ErrorKind::Guest);
    assert_eq!(guest.clone().approve("c1").expect_err("it is a guest").kind(), ErrorKind::Guest);
    let adopted = guest.adopt("Ann");
    assert_eq!(adopted.place(), None);
    let error = block_on(agent.run(adopted)).expect_err("the call waits");
    assert_eq!(error.kind(), ErrorKind::Approval);
}

#[test]
fn a_forgotten_step_puts_nothing_into_force() {
    let mut session = Session::user("hi").to(Sandbox::local("/"));
    session.push(Chunk::calls([Call::new("c1", "shell", r#"{"command":"true"}"#)]));
    session.approve("c1").expect("it is open");
    let progress = |session: &Session| match session.next() {
        rath::turn::Next::RunTools(calls) => format!("{:?}", calls[0].progress),
        other => format!("{other:?}"),
    };
    assert_eq!((progress(&session).as_str(), session.place().is_some()), ("Approved", true));
    let head = session.head().expect("a step").redacted();
    let forgotten = Session::resume_own(rath::record::Record::at(head));
    assert_eq!((progress(&forgotten).as_str(), forgotten.place()), ("HeldUnknown", None));
    let first = forgotten.as_record().steps()[0].id();
    assert!(forgotten.at(first).expect("a step").is_guest());
    // In a merge it voids no place but its own.
    let placed = Session::user("here").to(Sandbox::local("/"));
    for voided in [Session::user("x"), Session::resume(Session::user("x").as_record().clone()).adopt("Ann")] {
        let head = voided.head().expect("a step").redacted();
        let theirs = Session::resume_own(rath::record::Record::at(head));
        assert_eq!(block_on(placed.merge(&theirs)).expect("merged").place(), placed.place());
    }
}
