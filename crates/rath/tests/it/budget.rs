//! Budgets that branches share.

use std::time::Duration;

use expect_test::{Expect, expect};
use rath::Usage;
use rath::prelude::*;
use rath::provider::Price;
use rath::provider::{Money, Prices};
use rath::turn::Next;

use crate::support::{block_on, now};

const TURN: &str = r#"{"text":"ok","usage":{"input":100,"output":50}}"#;

fn provider(turns: usize) -> Provider {
    let script = Script::of(std::iter::repeat_n(TURN, turns)).expect("it is a script");
    Provider::from(script).prices(Prices::none().set("script:script", Price::new(1000.0, 2000.0)))
}

/// Asks until the budget stops it. Returns the number of answers and the error.
fn until_stopped(mut session: Session, provider: &Provider) -> (u32, Error) {
    for answered in 0.. {
        session.push(Chunk::user("go on"));
        match block_on(provider.ask(session.clone()).into_future()) {
            Ok(next) => session = next,
            Err(error) => return (answered, error),
        }
    }
    unreachable!("it is stopped")
}

#[track_caller]
fn check(budget: Budget, answered: u32, expected: Expect) {
    let (count, error) = until_stopped(Session::empty().within(budget), &provider(20));
    assert_eq!((error.kind(), count), (ErrorKind::Budget, answered), "{error}");
    assert_eq!(error.hint().map(|hint| hint.starts_with("raise the limit")), Some(true));
    let head = error.session().and_then(Session::head).expect("it is kept").chunk().clone();
    let Chunk::Interrupted(interrupted) = head else { panic!("the stop is on record") };
    expected.assert_eq(&interrupted.reason.to_string());
}

#[test]
fn every_limit_stops_before_the_call() {
    check(Budget::new().turns(3), 3, expect!["the budget of 3 turns is used up"]);
    check(
        Budget::new().tokens(350),
        2,
        expect!["300 of the budget's 350 tokens are used, and the next request has about 152"],
    );
    check(
        Budget::new().money(Money::dollars(0.45)),
        2,
        expect!["$0.40 of the budget of $0.45 is used, and the next request costs $0.152"],
    );
    check(Budget::new().time(Duration::ZERO), 0, expect!["the time of the budget is over: 0ns"]);
    check(Budget::new().turns(0), 0, expect!["the budget of 0 turns is used up"]);
}

#[test]
fn a_model_without_a_price_is_not_asked_if_money_is_limited() {
    let provider = provider(1).prices(Prices::none());
    let (_, error) = until_stopped(Session::empty().within(Budget::new().money(Money::dollars(9.0))), &provider);
    assert_eq!(format!("{error:?}").lines().next(), Some("the budget limits money, and `script:script` has no price"));
}

#[test]
fn forks_of_any_depth_share_one_budget() {
    let provider = provider(20);
    let root = Session::user("hi").within(Budget::new().turns(5));
    let (a, b) = (root.fork(), root.fork().fork().detach());
    let a = block_on(provider.ask(a).into_future()).expect("it is within");
    let b = block_on(provider.ask(b).into_future()).expect("it is within");
    let merged = now(a.merge(&b)).expect("they can be merged");
    assert_eq!(merged.budget().expect("it is inherited").spent_turns(), 2);
    let (answered, _) = until_stopped(merged, &provider);
    assert_eq!(answered, 3);
    assert!(until_stopped(root, &provider).1.kind() == ErrorKind::Budget, "the root is stopped too");
}

#[test]
fn branches_that_ask_concurrently_do_not_exceed_a_limit_together() {
    let slow = r#"{"text":"ok","delay_ms":20,"usage":{"input":1,"output":1}}"#;
    let provider = Provider::from(Script::of(std::iter::repeat_n(slow, 64)).expect("it is a script"));
    let root = Session::user("hi").within(Budget::new().turns(10));
    let answered = block_on(async {
        let asks: Vec<_> = (0..64).map(|_| tokio::spawn(provider.ask(root.fork()).into_future())).collect();
        let mut answered = 0;
        for ask in asks {
            answered += u32::from(ask.await.expect("it does not panic").is_ok());
        }
        answered
    });
    assert_eq!(answered, 10);
}

#[test]
fn a_branch_beyond_the_depth_limit_is_not_asked() {
    let provider = provider(20);
    let root = Session::user("hi").within(Budget::new().depth(1));
    assert!(block_on(provider.ask(root.fork()).into_future()).is_ok());
    let error = block_on(provider.ask(root.fork().fork()).into_future()).expect_err("it lies too deep");
    assert_eq!(format!("{error:?}").lines().next(), Some("the budget allows branches 1 fork deep, and this one is 2"));
}

#[test]
fn a_merge_keeps_the_budget_and_the_depth_of_our_side() {
    let provider = provider(20);
    let mut session = Session::user("hi").within(Budget::new().depth(1));
    for _ in 0..5 {
        let fork = block_on(provider.ask(session.fork()).into_future()).expect("it lies one fork deep");
        session = now(session.merge(&fork)).expect("nothing is open");
        session.push(Chunk::user("again"));
    }
    // The budget may be on either side, and either side may be the result.
    let free = Session::user("hi");
    let mut onwards = free.fork();
    onwards.push(Chunk::assistant("hello"));
    let limited = free.clone().within(Budget::new().turns(1));
    for merged in [limited.merge(&onwards), onwards.merge(&limited), Session::empty().merge(&limited)] {
        assert!(block_on(merged).expect("nothing is open").budget().is_some());
    }
}

#[test]
fn each_answer_is_counted_once_on_all_branches() {
    let provider = provider(20);
    let budget = Budget::new();
    let session = block_on(provider.ask(Session::user("hi").within(budget.clone())).into_future()).expect("answered");
    let again = Session::resume_own(session.as_record().clone()).within(budget.clone());
    assert_eq!((budget.spent_turns(), budget.spent_tokens()), (1, 150));
    let free = Session::resume_own(session.as_record().clone());
    let both = [free.fork().within(budget.clone()), free.fork().within(budget.clone())];
    assert_eq!((budget.spent_turns(), budget.spent_tokens()), (1, 150));
    drop((again, both));

    // Two calls count twice, even if both answers are the same step.
    let session = Session::user("hi").within(Budget::new().turns(2));
    let ask = || block_on(provider.ask(session.clone()).into_future());
    assert_eq!(ask().expect("answered").head(), ask().expect("answered").head());
    assert_eq!(ask().expect_err("it is used up").kind(), ErrorKind::Budget);
}

#[test]
fn a_stopped_session_continues_with_a_higher_limit() {
    let provider = provider(20);
    let (_, error) = until_stopped(Session::empty().within(Budget::new().turns(1)), &provider);
    let stopped = error.session().expect("it is kept").clone();
    assert_eq!(stopped.next(), Next::AskModel);

    // The same budget with a higher limit, for all sessions that share it.
    stopped.budget().expect("it has one").clone().turns(2);
    let raised = block_on(provider.ask(stopped.clone()).into_future()).expect("it may go on");
    assert_eq!(raised.usage(), Usage::new(200, 100));

    // Another budget after the session was saved: earlier usage counts.
    let folder = rath_test_support::temp_dir();
    let path = folder.path().join("session.rath");
    stopped.save_blocking(&path).expect("it can be saved");
    let opened = Session::open_blocking(&path).expect("it can be opened").session.within(Budget::new().tokens(320));
    assert_eq!(opened.budget().expect("it has one").spent_tokens(), 150);
    let (answered, error) = until_stopped(opened, &provider);
    assert_eq!(answered, 1, "{error}");
}

#[test]
fn a_call_is_cancelled_when_time_is_over() {
    let provider = Provider::from(Script::of([r#"{"text":"late","delay_ms":60000}"#]).expect("it is a script"));
    let error = rath_test_support::with_enough_time(Duration::from_millis(20), |time| {
        let session = Session::user("hi").within(Budget::new().time(time));
        let error = block_on(provider.ask(session).into_future()).expect_err("it takes too long");
        // On a loaded machine, time may be over before the call has begun.
        (error.session().expect("it is kept").chunk_count() == 2).then_some(error)
    });
    assert_eq!(error.kind(), ErrorKind::Budget);
}

#[test]
fn a_failed_call_uses_no_turn() {
    let provider =
        Provider::from(Script::of([r#"{"error":{"status":400,"message":"no"}}"#, TURN]).expect("it is a script"));
    let session = Session::user("hi").within(Budget::new().turns(1));
    assert!(block_on(provider.ask(session.clone()).into_future()).is_err());
    assert!(block_on(provider.ask(session).into_future()).is_ok());
}

#[test]
fn cost_is_a_view_and_counts_each_call_once() {
    let provider = provider(20);
    let root = block_on(provider.ask(Session::user("hi")).into_future()).expect("it is answered");
    let fork = |name: &str| {
        let mut fork = root.fork_named(name);
        fork.push(Chunk::user("go on"));
        block_on(provider.ask(fork).into_future()).expect("it is answered")
    };
    let merged = now(fork("a").merge(&fork("b"))).expect("they can be merged");
    let prices = Prices::none().set("script:script", Price::new(1000.0, 2000.0));
    let cost = merged.cost(&prices);
    assert_eq!(cost.total, Money::dollars(0.6));
    assert_eq!(cost.by_branch.iter().map(|(_, money)| money.to_string()).collect::<Vec<_>>(), ["$0.20"; 3]);
    let [(Some(identity), usage, Some(money))] = &cost.by_model[..] else { panic!("there is one model") };
    assert_eq!((identity.to_string(), *usage, *money), ("script:script".to_owned(), Usage::new(300, 150), cost.total));
    let unknown = merged.cost(&Prices::none());
    assert_eq!((unknown.total, unknown.by_model[0].2), (Money::default(), None));
}
