//! Damage is detected and located, and loses only the rows that it hit.

use std::collections::BTreeSet;

use expect_test::{Expect, expect};
use rath_record::chunk::{Chunk, Image, User};
use rath_record::codec::{self, CodecError, Ending, Fault, FileContents, Report, Verifier};
use rath_record::lineage::Lineage;
use rath_record::{Parent, Parents, Record, Stamp, Step, StepId, Timestamp, Usage};

use crate::codec::{encode, reseal};
use crate::support::{branch, merge, scenario};

/// A small file with every kind of row: a merge, a payload, an unknown kind.
fn file() -> Vec<u8> {
    let scenario = scenario(
        "user hi; calls ls#1; result 1 x; fork b1; user ours; on main; fork b2; assistant theirs; note \u{2028}",
    );
    let mut record = merge(scenario.branch("b1"), scenario.branch("b2")).expect("nothing is open");
    let image = Image::new("image/png", *b"png");
    record.push(User::new("look").with_images(vec![image]).into(), Stamp::on(branch("main")));
    record.push(Chunk::decode(r#"{"kind":"hologram"}"#).expect("a chunk"), Stamp::on(branch("main")));
    encode(&record)
}

fn lines(file: &[u8]) -> Vec<String> {
    String::from_utf8(file.to_vec()).expect("UTF-8").lines().map(str::to_owned).collect()
}

fn joined(lines: &[String]) -> Vec<u8> {
    lines.iter().flat_map(|line| [line.as_bytes(), b"\n"].concat()).collect()
}

fn steps(opened: &FileContents) -> BTreeSet<StepId> {
    Lineage::new(opened.heads.clone()).walk().into_iter().map(|step| step.id()).collect()
}

/// The step that each line holds, if it holds one.
fn step_of(line: &str) -> Option<StepId> {
    line.split_once(r#","id":""#).map(|(_, rest)| rest[..64].parse().expect("a step id"))
}

fn verified(file: &[u8]) -> Result<Report, CodecError> {
    let mut verifier = Verifier::new();
    loop {
        for block in file.chunks(37) {
            verifier.feed(block);
        }
        if let Some(report) = verifier.end()? {
            return Ok(report);
        }
    }
}

/// Reads a damaged file and checks that reader and verifier report the same damage.
fn read(file: &[u8]) -> FileContents {
    let opened = codec::read(file).expect("a file of ours, damaged or not");
    let report = verified(file).expect("a file of ours, damaged or not");
    let faults = |report: &Report| report.damage.iter().map(|damage| damage.fault.to_string()).collect::<BTreeSet<_>>();
    assert_eq!(faults(&opened.report), faults(&report));
    assert_eq!((opened.report.rows, opened.report.ending), (report.rows, report.ending));
    opened
}

#[test]
fn flipping_any_byte_is_detected_and_located_and_loses_one_row_at_most() {
    let file = file();
    let lines = lines(&file);
    let all = steps(&read(&file));
    for at in 0..file.len() {
        let row = file[..at].iter().filter(|byte| **byte == b'\n').count();
        let masks = [0x01, 0x20, 0x80, file[at] ^ b'\n', file[at] ^ b'"'];
        let tried = if rath_test_support::exhaustive() { &masks[..] } else { &masks[at % 5..][..1] };
        for mask in tried.iter().copied().filter(|mask| *mask != 0) {
            let mut damaged = file.clone();
            damaged[at] ^= mask;
            let opened = read(&damaged);
            assert!(!opened.report.is_whole(), "byte {at} ^ {mask:#x}");
            let placed = opened.report.damage.iter().any(|damage| damage.row == Some(row as u64));
            assert!(placed, "byte {at} ^ {mask:#x} of row {row}: {:?}", opened.report.damage);
            let mut expected = all.clone();
            // A line break is no part of a row: both rows around it are intact.
            if file[at] != b'\n'
                && let Some(lost) = step_of(&lines[row])
            {
                expected.remove(&lost);
            }
            assert_eq!(steps(&opened), expected, "byte {at} ^ {mask:#x}");
        }
    }
}

#[test]
fn a_file_cut_at_any_byte_opens_up_to_its_last_whole_row() {
    let file = file();
    let lines = lines(&file);
    for at in 0..file.len() {
        let opened = read(&file[..at]);
        let mut whole = 0;
        let mut start = 0;
        for line in &lines {
            whole += usize::from(start + line.len() <= at);
            start += line.len() + 1;
        }
        let expected: BTreeSet<_> = lines[..whole].iter().filter_map(|line| step_of(line)).collect();
        assert_eq!(steps(&opened), expected, "cut at {at}");
        assert!(opened.report.damage.is_empty(), "cut at {at}: {:?}", opened.report.damage);
        // Only the last line break may be missing from a whole file.
        let closed = at == file.len() - 1;
        assert_eq!(opened.report.ending == Ending::Closed, closed, "cut at {at}");
    }
}

#[test]
fn dropping_repeating_and_swapping_rows_is_detected_and_located() {
    let file = file();
    let lines = lines(&file);
    let all = steps(&read(&file));
    for row in 0..lines.len() {
        let mut dropped = lines.clone();
        dropped.remove(row);
        let opened = read(&joined(&dropped));
        assert!(!opened.report.is_whole(), "row {row} dropped");
        let named = opened.report.damage.iter().any(|damage| match damage.fault {
            Fault::Missing { first, last } => (first..=last).contains(&(row as u64)),
            Fault::NoHeader => row == 0,
            _ => false,
        });
        assert!(named || (row == lines.len() - 1 && opened.report.ending == Ending::Open), "row {row} dropped");
        let mut expected = all.clone();
        step_of(&lines[row]).map(|lost| expected.remove(&lost));
        assert_eq!(steps(&opened), expected, "row {row} dropped");

        for again in [row + 1, lines.len()] {
            let mut repeated = lines.clone();
            repeated.insert(again, lines[row].clone());
            let opened = read(&joined(&repeated));
            let placed = opened.report.damage.iter().any(|damage| damage.line == again as u64 + 1);
            assert!(placed, "row {row} repeated at {again}: {:?}", opened.report.damage);
            assert_eq!(steps(&opened), all, "row {row} repeated at {again}");
        }

        for other in row + 1..lines.len() {
            let mut swapped = lines.clone();
            swapped.swap(row, other);
            let opened = read(&joined(&swapped));
            for line in [row, other] {
                let placed = opened.report.damage.iter().any(|damage| damage.line == line as u64 + 1);
                assert!(placed, "rows {row} and {other} swapped: {:?}", opened.report.damage);
            }
            assert_eq!(steps(&opened), all, "rows {row} and {other} swapped");
        }
    }
}

fn check(lines: &[String], expected: Expect) {
    let opened = read(&joined(lines));
    let damage: Vec<_> = opened.report.damage.iter().map(ToString::to_string).collect();
    expected.assert_eq(&damage.join("\n"));
}

#[test]
fn an_edit_that_was_sealed_anew_is_still_detected() {
    let whole = lines(&file());
    let edit = |row: usize, from: &str, to: &str| {
        let mut edited = whole.clone();
        assert!(edited[row].contains(from), "{}", edited[row]);
        edited[row] = reseal(&edited[row].replace(from, to));
        edited
    };
    // The content: the id no longer matches, and the next row has another seal as its previous one.
    check(
        &edit(1, "hi", "ho"),
        expect![[r#"
            line 2 (from byte 79), row 1, step bc8e3744: the step's id does not match its parents and its chunk
            line 3 (from byte 340), row 2, step 416fbe6d: the row does not follow the row before it: one of the two was replaced or sealed anew
            line 3 (from byte 340), row 2, step 416fbe6d: parent bc8e3744 is not in the file before it"#]],
    );
    // The usage.
    check(
        &edit(2, r#""input":10"#, r#""input":1"#),
        expect![
            "line 4 (from byte 776), row 3, step e865167a: the row does not follow the row before it: one of the two was replaced or sealed anew"
        ],
    );
    // The parents.
    let id = |row: usize| step_of(&whole[row]).expect("a step").to_string();
    check(
        &edit(3, &id(2), &id(1)),
        expect![[r#"
            line 4 (from byte 777), row 3, step e865167a: the step's id does not match its parents and its chunk
            line 5 (from byte 1138), row 4, step 679fd880: the row does not follow the row before it: one of the two was replaced or sealed anew
            line 5 (from byte 1138), row 4, step 679fd880: parent e865167a is not in the file before it
            line 7 (from byte 1792), row 6, step 0460bc9c: parent e865167a is not in the file before it"#]],
    );
    // A payload.
    check(
        &edit(10, "cG5n", "cG5m"),
        expect![[r#"
            line 11 (from byte 3248), row 10: the payload does not match its digest
            line 12 (from byte 3434), row 11, step b69ef0b0: the row does not follow the row before it: one of the two was replaced or sealed anew
            line 12 (from byte 3434), row 11, step b69ef0b0: payload bad7c9a3 is not in the file before it"#]],
    );
    // The number of steps.
    check(
        &edit(13, r#""end":11"#, r#""end":12"#),
        expect!["line 14 (from byte 4217), row 13: the closing row counts 12 steps, the file has 11"],
    );
}

#[test]
fn rows_of_another_file_are_detected() {
    let whole = lines(&file());
    let other = lines(&encode(&scenario("user someone; user else").branches[0].1));
    let mut mixed = whole.clone();
    mixed[2] = other[2].clone();
    check(
        &mixed,
        expect![[r#"
            line 3 (from byte 340), row 2, step 47c6ef8e: the row does not follow the row before it: one of the two was replaced or sealed anew
            line 3 (from byte 340), row 2, step 47c6ef8e: parent dec50901 is not in the file before it
            line 4 (from byte 669), row 3, step e865167a: the row does not follow the row before it: one of the two was replaced or sealed anew
            line 4 (from byte 669), row 3, step e865167a: parent 416fbe6d is not in the file before it"#]],
    );
    let mut longer = whole.clone();
    longer.extend(other[1..].iter().cloned());
    check(
        &longer,
        expect![[r#"
            line 15 (from byte 4319), row 1, step dec50901: the row stands after the closing row
            line 16 (from byte 4585), row 2, step 47c6ef8e: the row stands after the closing row
            line 17 (from byte 4914), row 3: the row stands after the closing row"#]],
    );
}

#[test]
fn random_bytes_between_rows_lose_no_row() {
    let whole = lines(&file());
    let all = steps(&read(&joined(&whole)));
    for nonsense in ["", "x", "{}", "null", "{\"seal\":\"", "\u{feff}", &"{\"seal\":\"".repeat(1000)] {
        for at in 0..=whole.len() {
            let mut lines = whole.clone();
            lines.insert(at, nonsense.to_owned());
            let opened = read(&joined(&lines));
            assert_eq!(opened.report.damage.len(), 1, "{nonsense:?} at {at}: {:?}", opened.report.damage);
            assert_eq!(opened.report.damage[0].line, at as u64 + 1);
            assert_eq!(steps(&opened), all);
        }
    }
}

#[test]
fn a_row_that_is_out_of_order_hides_no_damage_around_it() {
    let mut lines = lines(&file());
    lines[3] = lines[3].replace("\"x\"", "\"y\"");
    lines.insert(4, lines[1].clone());
    check(
        &lines,
        expect![[r#"
            line 4 (from byte 777), row 3: the row was changed: its seal does not match its bytes
            line 5 (from byte 1138), row 1, step bc8e3744: the row is out of order: row 2 stands before it
            line 6 (from byte 1399), row 4, step 679fd880: parent e865167a is not in the file before it
            line 8 (from byte 2053), row 6, step 0460bc9c: parent e865167a is not in the file before it"#]],
    );
}

#[test]
fn a_report_of_endless_damage_stays_short() {
    let mut lines = lines(&file());
    lines.splice(3..3, (0..5_000).map(|nth| format!("nonsense {nth}")));
    let opened = read(&joined(&lines));
    assert_eq!(opened.report.damage.len(), codec::MAX_LISTED_DAMAGE);
    assert_eq!(opened.report.unlisted, 4_000);
}

#[test]
fn a_step_before_its_parent_is_damage() {
    let record = scenario("user one; user two").branches[0].1.clone();
    let steps = record.steps();
    let mut encoder = codec::Encoder::new();
    encoder.push_step(steps[1]).expect("short rows");
    encoder.push_step(steps[0]).expect("short rows");
    let opened = read(&encoder.finish());
    let damage: Vec<_> = opened.report.damage.iter().map(|damage| damage.fault.clone()).collect();
    assert_eq!(damage, [Fault::MissingParent(steps[0].id())]);
    assert_eq!(self::steps(&opened).len(), 2, "and still both can be read");
}

#[test]
#[ignore = "takes fifteen seconds in a test build"]
fn parents_from_far_above_are_found_in_memory_that_does_not_grow() {
    // More forks from the same few steps than are searched for in one pass.
    let base = scenario("user a; user b; user c").branches[0].1.clone();
    let points: Vec<_> = base.steps().into_iter().cloned().collect();
    let mut encoder = codec::Encoder::new();
    for step in &points {
        encoder.push_step(step).expect("short rows");
    }
    let mut tips: Vec<_> = (0..70_000_u32)
        .map(|nth| {
            let mut fork = Record::at(points[nth as usize % 3].clone());
            fork.push(Chunk::note(nth.to_string()), Stamp::on(branch("b")));
            fork
        })
        .collect();
    for fork in &tips {
        encoder.push_step(fork.head().expect("a step")).expect("short rows");
    }
    // Each head becomes a distant parent itself.
    for fork in &mut tips {
        fork.push(Chunk::note("more"), Stamp::on(branch("b")));
        encoder.push_step(fork.head().expect("a step")).expect("short rows");
    }
    let file = encoder.finish();
    let mut verifier = Verifier::new();
    let mut passes = 0;
    let report = loop {
        verifier.feed(&file);
        passes += 1;
        if let Some(report) = verifier.end().expect("a file of ours") {
            break report;
        }
    };
    assert_eq!(passes, 3, "one to check the rows, two to look for names");
    assert!(report.is_whole());

    let mut lines = lines(&file);
    let lost = step_of(&lines.remove(2)).expect("a step");
    let report = verified(&joined(&lines)).expect("a file of ours");
    assert!(report.damage.iter().any(|damage| damage.fault == Fault::MissingParent(lost)));
}

#[test]
fn a_row_has_one_spelling() {
    let mut record = Record::new();
    let stamp = Stamp::on(branch("main")).by("x").usage(Usage::new(1, 2)).at(Timestamp(5));
    record.push(Chunk::user("hi"), stamp);
    let whole = lines(&encode(&record));
    for (from, to) in [
        (r#""by":"x""#, r#""by": "x""#),
        (r#""by":"x""#, r#""by":"\u0078""#),
        (r#""at":5"#, r#""at": 5"#),
        (r#""at":5"#, r#""at":05"#),
        (r#""at":5"#, r#""at":5.0"#),
        (r#"{"input":1,"output":2}"#, r#"{"output":2,"input":1}"#),
        (r#"{"input":1,"output":2}"#, "[1,2,0,0,0]"),
        (r#""hi"}}"#, r#""hi"} }"#),
        (r#""n":1,"#, r#""n":9223372036854775808,"#),
    ] {
        let mut lines = whole.clone();
        assert!(lines[1].contains(from), "{}", lines[1]);
        lines[1] = reseal(&lines[1].replacen(from, to, 1));
        assert!(!read(&joined(&lines)).report.is_whole(), "{to}");
    }
    let mut lines = whole;
    lines[0] = reseal(&lines[0].replace("\"version\":1", "\"version\":0"));
    assert!(!read(&joined(&lines)).report.is_whole());
}

#[test]
fn a_recovered_record_merges_with_an_undamaged_one() {
    let mut whole = scenario("user a; user b; assistant c; user d; assistant e").branches[0].1.clone();
    let mut lines = lines(&encode(&whole));
    lines.remove(2);
    let mut recovered = read(&joined(&lines)).record;
    whole.push(Chunk::user("ours"), Stamp::on(branch("ours")));
    recovered.push(Chunk::user("theirs"), Stamp::on(branch("theirs")));
    for (ours, theirs) in [(&whole, &recovered), (&recovered, &whole)] {
        let merged = merge(ours, theirs).expect("nothing is open");
        assert_eq!(merged.usage(), Usage::new(20, 2));
    }
}

#[test]
fn a_file_with_too_many_concatenations_can_be_read() {
    let mut record = scenario("user a").branches[0].1.clone();
    let mut encoder = codec::Encoder::new();
    encoder.push_step(record.head().expect("a step")).expect("short rows");
    for _ in 0..60 {
        let head = record.head().expect("a step").clone();
        let chunk = Chunk::decode(r#"{"kind":"merged","strategy":"concat"}"#).expect("a chunk");
        let parents = Parents::Two([Parent::Loaded(head.clone()), Parent::Loaded(head)]);
        record = Record::at(Step::new(parents, chunk, Stamp::on(branch("main"))));
        encoder.push_step(record.head().expect("a step")).expect("short rows");
    }
    let opened = read(&encoder.finish());
    assert!(opened.report.is_whole());
    assert!(opened.record.chunk_count() <= rath_record::MAX_CONCAT_STEPS);
    assert_eq!(opened.record.newest_first().take(100).count(), 100);
    assert_eq!(opened.record.head(), record.head());
}

#[test]
fn every_row_that_can_be_read_is_reachable() {
    // A child before its parent, and the grandparent lost.
    let record = scenario("user a; user b; user c").branches[0].1.clone();
    let steps = record.steps();
    let mut encoder = codec::Encoder::new();
    encoder.push_step(steps[2]).expect("short rows");
    encoder.push_step(steps[1]).expect("short rows");
    let opened = read(&encoder.finish());
    assert_eq!(self::steps(&opened).len(), 2);
}
