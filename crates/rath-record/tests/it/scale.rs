//! Long lines and many diamonds: nothing recurses, and nothing is visited twice.
//!
//! A stack overflow or an exponential walk would end the test run; the benchmarks measure the time.

use rath_record::chunk::ToolStarted;
use rath_record::codec::{Encoder, Verifier};
use rath_record::turn::{self, Next};
use rath_record::view::{self, CallResult, Message};
use rath_record::{Chunk, Record, Stamp};

use crate::support::{branch, calls, merge, record, result};

/// `RATH_STEPS` sets how many.
#[test]
fn many_steps_are_walked_verified_and_dropped() {
    let count = rath_test_support::count("RATH_STEPS", 100_000);
    let mut long = Record::new();
    for _ in 0..count {
        long.push(Chunk::note("x"), Stamp::on(branch("main")));
    }
    assert_eq!(long.steps().len() as u64, count);
    assert_eq!(long.newest_first().count() as u64, count);

    let mut verifier = Verifier::new();
    let mut encoder = Encoder::new();
    for step in long.steps() {
        encoder.push_step(step).expect("short rows");
        verifier.feed(&encoder.take_bytes());
    }
    verifier.feed(&encoder.finish());
    let report = verifier.end().expect("a file of ours").expect("a straight line needs one pass");
    assert!(report.is_whole());
    assert_eq!(report.steps, count);
    drop(long);
}

#[test]
fn sixty_diamonds_in_a_row_are_walked_in_linear_time() {
    let mut diamonds = record("user start");
    for nth in 0..60 {
        let side = |name: &str| {
            let mut side = diamonds.clone();
            side.push(Chunk::note(format!("{name} {nth}")), Stamp::on(branch(name)));
            side
        };
        diamonds = merge(&side("left"), &side("right")).expect("nothing is open");
    }
    assert_eq!(diamonds.steps().len(), 1 + 60 * 3);
    assert_eq!(diamonds.newest_first().count(), 1 + 60 * 3);
    assert_eq!(diamonds.lineage().walk().len(), 1 + 60 * 3);
    assert_eq!(diamonds.lineage().to_string().lines().filter(|line| line.contains("merged")).count(), 60);
}

#[test]
fn a_turn_of_a_hundred_thousand_calls_takes_linear_time() {
    let count = 100_000;
    let ids: Vec<_> = (0..count).map(|nth| format!("t#{}", nth / 2)).collect();
    let mut record = record("user start");
    let mut push = |chunk| _ = record.push(chunk, Stamp::on(branch("main")));
    push(calls(&ids.join(" ")));
    for nth in 0..count {
        push(ToolStarted::new((nth / 2).to_string()).into());
    }
    for nth in 1..count {
        push(result(&(nth / 2).to_string(), "", vec![]));
    }
    let Next::RunTools(open) = turn::next(&record) else { panic!("one call is open") };
    assert_eq!((open.len(), open[0].call.id.to_string()), (1, "0".to_owned()));
    let seen = view::messages(&record).list;
    let [_, Message::Assistant(_, _, exchanges)] = &seen[..] else { panic!("a question and an answer") };
    assert_eq!(exchanges.iter().filter(|exchange| exchange.result == CallResult::Missing).count(), 1);
}

#[test]
fn a_call_that_is_never_closed_does_not_slow_down_later_turns() {
    let mut record = record("user start; calls t#lost; user go on");
    for nth in 0..50_000 {
        let id = nth.to_string();
        record.push(calls(&format!("t#{id}")), Stamp::on(branch("main")));
        record.push(result(&id, "", vec![]), Stamp::on(branch("main")));
    }
    let Next::RunTools(open) = turn::next(&record) else { panic!("one call is open") };
    assert_eq!(open.len(), 1);
}
