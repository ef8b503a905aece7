//! The properties that hold for any bytes. Shared by the fuzz target and the test that runs its corpus.

use rath_record::codec::{self, CodecError, Encoder, Report, Verifier};
use rath_record::graph::{self, Ids};
use rath_record::lineage::Lineage;
use rath_record::{BranchId, Parent, Parents, Record, Stamp, Step, turn, view};

/// Checks `data` as a file, and its lines as chunks.
pub(crate) fn codec(data: &[u8]) {
    check_file(data);
    check_chunks(data);
    graph::verify(data);
}

fn check_file(data: &[u8]) {
    let opened = codec::read(data);
    let verified = verify(data);
    match (&opened, &verified) {
        (Ok(opened), Ok(report)) => assert_eq!(opened.report.is_whole(), report.is_whole()),
        (Err(one), Err(other)) => assert_eq!(one, other),
        _ => panic!("the reader and the verifier disagree"),
    }
    let Ok(opened) = opened else { return };
    check_views(&opened.record);

    // The steps that were read can be written, and are the same when read again.
    let lineage = Lineage::new(opened.heads.clone());
    let reread = codec::read(&encode(&lineage)).expect("just written");
    assert_eq!(reread.heads, opened.heads);
}

/// Checks the lines of `data` as chunks: seals stop nearly every mutation of a file at its row.
fn check_chunks(data: &[u8]) {
    let mut steps: Vec<Step> = Vec::new();
    for line in data.split(|byte| *byte == b'\n') {
        let Ok(json) = std::str::from_utf8(line) else { continue };
        let parent = |back: usize| steps.len().checked_sub(back).map(|at| Parent::Loaded(steps[at].clone()));
        let parents = match (json.len() % 5, parent(1), parent(2)) {
            (0, Some(ours), Some(theirs)) => Parents::Two([ours, theirs]),
            (1, _, Some(earlier)) => Parents::One(earlier),
            (_, Some(last), _) => Parents::One(last),
            _ => Parents::None,
        };
        let branch = BranchId([json.len() as u8 % 3; 16]);
        steps.extend(Step::from_json(parents, json, Stamp::on(branch)));
    }
    let Some(head) = steps.last() else { return };
    let record = Record::at(head.clone());
    if record.chunk_count() < 10_000 {
        check_views(&record);
    }
    let lineage = record.lineage();
    let file = encode(&lineage);
    let opened = codec::read(&file).expect("just written");
    assert_eq!(opened.record.head(), record.head());
    assert_eq!(encode(&Lineage::new(opened.heads)), file);
}

fn check_views(record: &Record) {
    let messages = view::messages(record);
    assert_eq!(messages.head, record.head().map(Step::id));
    view::files(record);
    view::checks(record);
    assert_eq!(view::spending(record).total.usage, record.usage());
    turn::next(record);
    assert!(record.newest_first().eq(record.steps().into_iter().rev()));
    let _ = record.lineage().to_string();
    let export = graph::export(&record.lineage(), Ids::Canonical);
    assert_eq!(graph::verify(export.as_bytes()).problems, []);
}

fn encode(lineage: &Lineage) -> Vec<u8> {
    let mut encoder = Encoder::new();
    for step in lineage.walk() {
        encoder.push_step(step).expect("inputs are short");
    }
    encoder.finish()
}

fn verify(data: &[u8]) -> Result<Report, CodecError> {
    let mut verifier = Verifier::new();
    let mut passes = 0;
    loop {
        // Another block size in every pass: the size must not matter.
        for block in data.chunks([61, 1, 4096][passes % 3]) {
            verifier.feed(block);
        }
        passes += 1;
        assert!(passes < 10, "the verifier terminates");
        if let Some(report) = verifier.end()? {
            return Ok(report);
        }
    }
}
