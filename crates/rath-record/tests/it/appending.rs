//! Files that are continued: writers, cut rows, steps in other files, redacted steps.

use expect_test::expect;
use rath_record::chunk::Chunk;
use rath_record::codec::{self, Encoder, Ending, Reader, Signature};
use rath_record::lineage::Lineage;
use rath_record::{Digest, Parent, Parents, Record, Stamp, Step};

use crate::codec::reseal;
use crate::support::branch;

fn push_user(record: &mut Record, text: &str) -> Step {
    record.push(Chunk::user(text), Stamp::on(branch("main"))).clone()
}

/// Returns a file that was closed, continued, cut in the middle of a row, and continued again.
pub(crate) fn file() -> Vec<u8> {
    let mut record = Record::new();
    let mut encoder = Encoder::for_appending().with_writer("one");
    encoder.push_step(&push_user(&mut record, "first")).expect("short");
    encoder.close();
    let mut file = encoder.take_bytes();
    let mut encoder = continue_file(&mut file, "two");
    let signature = Some(Signature([0xfb; Signature::BYTES]));
    encoder.push_signed_step(&push_user(&mut record, "second").redacted(), signature).expect("short");
    let whole = file.len() + encoder.buffered_bytes();
    file.append(&mut encoder.take_bytes());
    let lost = record.clone();
    encoder.push_step(&push_user(&mut record, "never kept")).expect("short");
    file.append(&mut encoder.take_bytes());
    file.truncate(whole + 100);
    let mut record = lost;
    let mut encoder = continue_file(&mut file, "three");
    encoder.push_signed_step(&push_user(&mut record, "third"), signature).expect("short");
    encoder.push_gone(Digest([7; 32]), None);
    let parents = Parents::One(Parent::Missing(Box::new(rath_record::StepId([7; 32]))));
    encoder.push_step(&Step::new(parents, Chunk::note("after what is lost"), Stamp::on(branch("b1")))).expect("short");
    encoder.push_gone(Digest([9; 32]), Some(branch("main")));
    encoder.close();
    file.append(&mut encoder.take_bytes());
    file
}

fn continue_file(file: &mut Vec<u8>, who: &str) -> Encoder {
    let opened = codec::read(file).expect("a file of ours");
    let position = opened.position.expect("it has rows");
    file.truncate(position.length as usize);
    Encoder::append_at(position, who, opened.payloads)
}

#[test]
fn a_continued_file_is_whole() {
    let opened = codec::read(&file()).expect("a file of ours");
    assert!(opened.report.is_whole(), "{:?}", opened.report);
    let report = &opened.report;
    assert_eq!((report.steps, report.cuts, report.gone, report.withheld), (4, 0, 1, 1));
    assert_eq!(opened.writer.map(|writer| (writer.epoch, writer.by)), Some((3, "three".to_owned())));
    expect![[r#"
        ○  c9d41a9b b1  note: after what is lost
        │
        ~

        ○  3f7d1221 main  user: third
        ○  427e8b6e main  user: [forgotten]
        ○  5d3b5f47 main  user: first"#]]
    .assert_eq(&Lineage::new(opened.heads).to_string());
}

#[test]
fn a_cut_file_is_reported_until_a_writer_continues_it() {
    let file = file();
    for end in 0..file.len() {
        let opened = codec::read(&file[..end]).expect("a file of ours, cut");
        let in_a_row = end > 0 && !file[..end].ends_with(b"\n") && file[end] != b'\n';
        let is_cut = matches!(opened.report.ending, Ending::Cut { .. });
        assert!(is_cut || !in_a_row, "cut at {end}: {:?}", opened.report);
        assert!(opened.report.damage.len() <= 1, "cut at {end}: {:?}", opened.report.damage);
        // After any cut the file can be continued, and is whole then.
        if let Some(position) = opened.position {
            let mut encoder = Encoder::append_at(position, "another", opened.payloads);
            encoder.close();
            let mended = [&file[..position.length as usize], &encoder.take_bytes()].concat();
            let report = codec::read(&mended).expect("a file of ours").report;
            assert!(report.damage.is_empty() || !opened.report.damage.is_empty(), "cut at {end}: {:?}", report.damage);
            assert_eq!(report.ending, Ending::Closed, "cut at {end}");
            assert_eq!(report.steps, opened.report.steps, "cut at {end}");
        }
    }
}

/// Writes a file as a store does, in groups of rows of which each is durable before the next is written. Returns the length of
/// the file after each group.
pub(crate) fn grouped_file() -> (Vec<u8>, Vec<usize>) {
    let mut record = Record::new();
    let mut encoder = Encoder::for_appending();
    let (mut file, mut ends) = (Vec::new(), Vec::new());
    let mut write = |encoder: &mut Encoder| {
        file.append(&mut encoder.take_bytes());
        encoder.mark_synced();
        ends.push(file.len());
    };
    write(&mut encoder);
    encoder = encoder.with_writer("one");
    for group in 0..5 {
        for nth in 0..3 {
            let text = format!("step {nth} of group {group}").repeat(if nth == 1 { 900 } else { 1 });
            encoder.push_step(&push_user(&mut record, &text)).expect("short");
        }
        write(&mut encoder);
    }
    (file, ends)
}

#[test]
fn a_torn_last_group_is_an_unfinished_end_and_no_damage() {
    let (whole, ends) = grouped_file();
    for (group, pair) in ends.windows(2).enumerate() {
        let (durable, end) = (pair[0], pair[1]);
        let steps = codec::read(&whole[..durable]).expect("a file of ours").report.steps;
        for sector in (durable..end).step_by(512) {
            for torn in 1..=3 {
                // One, two or three sectors are not written; those behind them are.
                let mut file = whole[..end].to_vec();
                file[sector..end.min(sector + torn * 512)].fill(0);
                let opened = codec::read(&file).expect("a file of ours");
                assert_eq!(opened.report.damage, [], "group {group}, sector {sector}");
                assert!(matches!(opened.report.ending, Ending::Cut { .. }), "group {group}, sector {sector}");
                assert!((steps..steps + 3).contains(&opened.report.steps), "group {group}, sector {sector}");
                let mut verifier = codec::Verifier::new();
                let verified = loop {
                    verifier.feed(&file);
                    if let Some(report) = verifier.end().expect("a file of ours") {
                        break report;
                    }
                };
                assert_eq!(verified, opened.report, "group {group}, sector {sector}");
                assert_eq!(opened.steps.len() as u64, opened.report.steps);
                let mut encoder = continue_file(&mut file, "another");
                assert!((durable..end).contains(&file.len()));
                encoder.close();
                file.append(&mut encoder.take_bytes());
                assert!(codec::read(&file).expect("a file of ours").report.is_whole());
            }
        }
    }
}

#[test]
fn a_torn_group_before_the_last_is_damage() {
    let (whole, ends) = grouped_file();
    for (group, pair) in ends[..ends.len() - 1].windows(2).enumerate() {
        for sector in (pair[0]..pair[1]).step_by(512) {
            let mut file = whole.clone();
            file[sector..pair[1].min(sector + 512)].fill(0);
            let opened = codec::read(&file).expect("a file of ours");
            assert!(!opened.report.damage.is_empty(), "group {group}, sector {sector}");
            assert!(opened.report.steps >= 11, "what is undamaged is read");
        }
    }
}

#[test]
fn a_cut_row_that_an_earlier_version_kept_is_no_damage() {
    let mut record = Record::new();
    let mut encoder = Encoder::new().with_writer("one");
    encoder.push_step(&push_user(&mut record, "first")).expect("short");
    let mut file = encoder.take_bytes();
    let cut = br#"{"seal":"0123"#;
    let before = codec::read(&file).expect("a file of ours");
    let mut encoder = Encoder::append_at(before.position.expect("rows"), "two", []);
    let open = String::from_utf8(encoder.take_bytes()).expect("UTF-8");
    let open = reseal(open.trim_end().replace(r#""open":2,"#, &format!(r#""open":2,"cut":{},"#, cut.len())).as_str());
    file.extend_from_slice(cut);
    file.extend_from_slice(format!("\n{open}\n").as_bytes());
    let report = codec::read(&file).expect("a file of ours").report;
    assert_eq!((report.damage, report.cuts, report.steps), (vec![], 1, 1));
}

#[test]
fn any_flipped_byte_is_reported() {
    let file = file();
    let whole = codec::read(&file).expect("a file of ours").report;
    for at in 0..file.len() {
        let mut flipped = file.clone();
        flipped[at] ^= 1 << (at % 7);
        match codec::read(&flipped) {
            Err(_) => {}
            Ok(opened) if opened.report.is_whole() => {
                // Only a flip in the bytes of a cut row goes unseen; they hold nothing.
                assert_eq!(opened.report, whole, "byte {at}");
            }
            Ok(_) => {}
        }
    }
}

#[test]
fn a_step_in_the_file_of_another_session_is_found_there() {
    let mut record = Record::new();
    let base = push_user(&mut record, "in another file");
    let mut encoder = Encoder::new();
    encoder.push_gone(Digest(base.id().0), Some(branch("other")));
    encoder.push_step(&push_user(&mut record, "here")).expect("short");
    let file = encoder.finish();
    let mut reader = Reader::new().with_step_finder(move |id, file| {
        assert_eq!((id, file), (base.id(), branch("other")));
        Some(base.clone())
    });
    reader.feed(&file);
    let opened = reader.finish().expect("a file of ours");
    assert!(opened.report.is_whole());
    assert_eq!(opened.record.chunk_count(), 2);
    assert_eq!(opened.steps.len(), 1);
    // Without the other file it is whole as well: the missing steps are declared as absent.
    let alone = codec::read(&file).expect("a file of ours");
    assert!(alone.report.is_whole());
    assert_eq!(alone.record.chunk_count(), 1);
}

#[test]
fn a_redacted_step_keeps_its_id_and_its_parents() {
    let mut record = Record::new();
    let call = rath_record::chunk::Call::new("c1", "send", r#"{"to":"somebody"}"#);
    record.push(Chunk::calls([call]), Stamp::on(branch("main")));
    record.push(Chunk::result("c1", "sent to somebody"), Stamp::on(branch("main")));
    let head = record.head().expect("a step").clone();
    let steps: Vec<_> = record.steps().into_iter().map(Step::redacted).collect();
    let mut encoder = Encoder::new();
    steps.iter().for_each(|step| encoder.push_step(step).expect("short"));
    let file = encoder.finish();
    assert!(!String::from_utf8_lossy(&file).contains("somebody"));
    let opened = codec::read(&file).expect("a file of ours");
    assert!(opened.report.is_whole());
    assert_eq!(opened.record.head().map(Step::id), Some(head.id()));
    assert_eq!(rath_record::turn::next(&opened.record), rath_record::turn::Next::AskModel);
}
