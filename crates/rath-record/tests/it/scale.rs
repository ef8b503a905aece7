//! Long lines and many diamonds: nothing recurses, nothing is visited twice. A stack overflow or an exponential walk
//! would end the test run; how long it takes is for the benchmarks.

use rath_record::codec::{Encoder, Verifier};
use rath_record::{Chunk, Record, Stamp};

use crate::support::{branch, merge, record};

#[test]
fn a_million_steps_are_walked_verified_and_dropped() {
    let mut long = Record::new();
    for _ in 0..1_000_000 {
        long.push(Chunk::note("x"), Stamp::on(branch("main")));
    }
    assert_eq!(long.steps().len(), 1_000_000);
    assert_eq!(long.newest_first().count(), 1_000_000);

    let mut verifier = Verifier::new();
    let mut encoder = Encoder::new();
    for step in long.steps() {
        encoder.step(step).expect("short rows");
        verifier.feed(&encoder.take());
    }
    verifier.feed(&encoder.finish());
    assert!(!verifier.again().expect("a file of ours"), "a straight line needs one pass");
    let report = verifier.report();
    assert!(report.is_whole());
    assert_eq!(report.steps, 1_000_000);
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
