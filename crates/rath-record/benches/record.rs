//! Benchmarks of the record: `cargo xtask bench`.

use std::fs::File;
use std::hint::black_box;
use std::io::{BufRead, BufReader, Read, Seek, Write};
use std::time::Duration;

use rath_bench::{self as table, Counting, Table};
use rath_record::chunk::{Assistant, Call, Chunk, Finish, Outcome, Strategy, ToolResult};
use rath_record::codec::{Encoder, Reader, Verifier};
use rath_record::lineage::Lineage;
use rath_record::{BranchId, Record, Stamp, Timestamp, Usage, view};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const LONG_STEPS: usize = 1_000_000;
const SHORT_STEPS: usize = 1_000;

fn main() {
    let mut table = Table::default();
    append_and_merge(&mut table);
    walk(&mut table);
    verify(&mut table);
    table.print();
}

/// Makes a record of turns like those of a coding agent.
fn turns(steps: usize) -> Record {
    let mut record = Record::new();
    (0..steps).for_each(|nth| push_turn(&mut record, nth));
    record
}

fn push_turn(record: &mut Record, nth: usize) {
    let stamp = Stamp::on(BranchId([7; 16])).at(Timestamp(1_767_225_600_000_000 + nth as i64));
    let words = "the quick brown fox jumps over the lazy dog and reads the file again ".repeat(1 + nth % 5);
    let (chunk, stamp) = match nth % 4 {
        0 => (Chunk::user(format!("{nth}: {words}")), stamp),
        1 => {
            let call = Call::new(
                format!("call_{nth}"),
                "read_file",
                format!(r#"{{"path":"src/file_{nth}.rs","from":1,"to":{nth}}}"#),
            );
            let answer = Assistant::default().with_calls(vec![call]).with_finish(Finish::Calls);
            (answer.into(), stamp.by("coder.agent").usage(Usage::new(1_000, 50)))
        }
        2 => {
            let output = format!("{words}\nline \"{nth}\"\n");
            let call = format!("call_{}", nth - 1);
            (ToolResult::new(call, Outcome::Ok, output).into(), stamp)
        }
        _ => (Chunk::assistant(words), stamp.by("coder.agent").usage(Usage::new(1_100, 80))),
    };
    record.push(chunk, stamp);
}

fn append_and_merge(table: &mut Table) {
    let (long, short) = (turns(LONG_STEPS), turns(SHORT_STEPS));

    let append = |record: &Record| {
        let mut record = record.clone();
        (0..1_000).for_each(|nth| push_turn(&mut record, nth));
        black_box(record);
    };
    let (at_long, at_short) = table::medians(51, || append(&long), || append(&short));
    table.at_most("append at 1,000,000 steps against 1,000", ratio(at_long, at_short), 2.0);

    let fork = |record: &Record, branch: u8| {
        let mut fork = record.clone();
        for nth in 0..10 {
            fork.push(Chunk::note(format!("{branch} {nth}")), Stamp::on(BranchId([branch; 16])));
        }
        fork
    };
    let merge = |forks: &(Record, Record)| {
        for _ in 0..100 {
            let stamp = Stamp::on(BranchId([3; 16]));
            black_box(forks.0.merge(&forks.1, Strategy::Ancestor, stamp).expect("nothing is open"));
        }
    };
    let on_long = (fork(&long, 1), fork(&long, 2));
    let on_short = (fork(&short, 1), fork(&short, 2));
    let (at_long, at_short) = table::medians(51, || merge(&on_long), || merge(&on_short));
    table.at_most("merge of two forks of 10 steps on 1,000,000 against 1,000", ratio(at_long, at_short), 3.0);

    // A turn with tool calls far back, and only notes after it.
    let after_tools = |notes: usize| {
        let mut record = turns(3);
        (0..notes).for_each(|_| _ = record.push(Chunk::note("x"), Stamp::on(BranchId([7; 16]))));
        (fork(&record, 1), fork(&record, 2))
    };
    let (on_long, on_short) = (after_tools(LONG_STEPS), after_tools(SHORT_STEPS));
    let (at_long, at_short) = table::medians(51, || merge(&on_long), || merge(&on_short));
    table.at_most("the same after a turn of tools and nothing but notes since", ratio(at_long, at_short), 3.0);
}

fn walk(table: &mut Table) {
    // A walk of 100,000 diamonds must cost the same per diamond as one of 20,000; neither fits a cache.
    let diamonds = |count: usize| {
        let mut record = turns(1);
        for nth in 0..count {
            let side = |branch: u8| {
                let mut side = record.clone();
                side.push(Chunk::note(format!("{branch} {nth}")), Stamp::on(BranchId([branch; 16])));
                side
            };
            let stamp = Stamp::on(BranchId([3; 16]));
            record = side(1).merge(&side(2), Strategy::Ancestor, stamp).expect("nothing is open");
        }
        record
    };
    let (few, many) = (diamonds(20_000), diamonds(100_000));
    let walk = |record: &Record, times: usize| {
        for _ in 0..times {
            black_box(record.steps().len() + record.newest_first().count() + record.lineage().walk().len());
        }
    };
    let (at_many, at_few) = table::medians(11, || walk(&many, 1), || walk(&few, 5));
    table.at_most("walk of 100,000 diamonds against 5 walks of 20,000", ratio(at_many, at_few), 2.0);

    // Reading the end of a line that many forks were merged into must not cost a comparison for each fork.
    let fan = |forks: usize| {
        let mut all = turns(4);
        let base = all.clone();
        for nth in 0..forks {
            let mut fork = base.clone();
            fork.push(Chunk::note(nth.to_string()), Stamp::on(BranchId([1; 16])));
            all = all.merge(&fork, Strategy::Ancestor, Stamp::on(BranchId([3; 16]))).expect("nothing is open");
        }
        all
    };
    let fanned = fan(1_000);
    let (backwards, forwards) =
        table::medians(11, || _ = black_box(fanned.newest_first().count()), || _ = black_box(fanned.steps().len()));
    table.at_most("reading 1,000 merged forks backwards against forwards", ratio(backwards, forwards), 20.0);

    let record = turns(100_000);
    let (views, steps) = table::medians(
        11,
        || _ = black_box((view::messages(&record).list.len(), view::spending(&record).total.calls)),
        || _ = black_box(Lineage::new(record.head().cloned()).walk().len()),
    );
    table.at_most("messages and usage of 100,000 steps against walking them", ratio(views, steps), 20.0);
}

fn verify(table: &mut Table) {
    let mut file = write_file(LONG_STEPS);
    let blocks = |file: &mut File, take: &mut dyn FnMut(&[u8])| {
        let mut block = vec![0; 256 * 1024];
        file.rewind().expect("a file");
        loop {
            match file.read(&mut block).expect("a file") {
                0 => break,
                count => take(&block[..count]),
            }
        }
    };
    let verify = |file: &mut File| {
        let mut verifier = Verifier::new();
        let report = loop {
            blocks(file, &mut |block| verifier.feed(block));
            if let Some(report) = verifier.end().expect("a file of ours") {
                break report;
            }
        };
        assert!(report.is_whole());
    };
    let lines = |file: &mut File, take: &mut dyn FnMut(&[u8])| {
        file.rewind().expect("a file");
        let mut reader = BufReader::with_capacity(256 * 1024, file);
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line).expect("a file") > 0 {
            take(&line);
            line.clear();
        }
    };
    let build = |file: &mut File| {
        lines(file, &mut |line| {
            black_box(blake3::hash(line));
            black_box(serde_json::from_slice::<serde_json::Value>(line).expect("JSON"));
        });
    };
    let skim = |file: &mut File| {
        lines(file, &mut |line| {
            black_box(blake3::hash(line));
            black_box(serde_json::from_slice::<serde::de::IgnoredAny>(line).expect("JSON"));
        });
    };
    let mut same = file.try_clone().expect("a file");
    let (ours, theirs) = table::medians(3, || verify(&mut file), || build(&mut same));
    table.at_least(
        "speed of verifying 1,000,000 rows against hashing and parsing them",
        ratio(theirs, ours),
        1.0 / 3.0,
    );
    let (ours, theirs) = table::medians(3, || verify(&mut file), || skim(&mut same));
    table.at_least("the same against hashing them and only skimming the JSON", ratio(theirs, ours), 1.0 / 3.0);

    let mut some = write_file(LONG_STEPS / 5);
    let mut same = some.try_clone().expect("a file");
    let read = |file: &mut File| {
        let mut reader = Reader::new();
        blocks(file, &mut |block| reader.feed(block));
        assert!(black_box(reader.finish()).expect("a file of ours").report.is_whole());
    };
    let (ours, theirs) = table::medians(5, || read(&mut some), || build(&mut same));
    table.at_least("speed of reading 200,000 rows into a record, likewise", ratio(theirs, ours), 1.0 / 3.0);

    let mut small = write_file(LONG_STEPS / 100);
    let (long, short) = (table::peak(|| verify(&mut file)), table::peak(|| verify(&mut small)));
    table.at_most("peak memory of verifying 1,000,000 rows against 10,000", long as f64 / short as f64, 1.1);
}

fn write_file(steps: usize) -> File {
    let mut file = tempfile::tempfile().expect("a temporary file");
    let mut encoder = Encoder::new();
    let mut record = Record::new();
    for nth in 0..steps {
        push_turn(&mut record, nth);
        encoder.push_step(record.head().expect("a step")).expect("short rows");
        if nth % 1_000 == 0 {
            file.write_all(&encoder.take_bytes()).expect("a file");
        }
    }
    file.write_all(&encoder.finish()).expect("a file");
    file
}

fn ratio(one: Duration, other: Duration) -> f64 {
    one.as_secs_f64() / other.as_secs_f64()
}
