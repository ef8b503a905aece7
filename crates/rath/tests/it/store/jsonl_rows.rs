//! Rows of a `jsonl:` store that others may have written: signatures, and names of steps in other files.

use rath::BranchId;
use rath::prelude::*;
use rath::record::{Record, Stamp};

use super::common::uri;
use crate::support::{block_on, close};

/// The steps before an adoption are those of others, also in a file that was cut off before it.
#[test]
fn what_others_said_before_an_adoption_is_never_taken_for_the_users_own() {
    let folder = rath_test_support::temp_dir();
    let (mut record, branch) = (Record::new(), BranchId([7; 16]));
    ["one", "two", "three"].iter().for_each(|text| _ = record.push(Chunk::user(*text), Stamp::on(branch)));
    let store = block_on(Store::open(&uri("jsonl", folder.path()))).expect("a store");
    let mut session = block_on(Session::resume(record).adopt("Ann").record(&store)).expect("recorded");
    session.push(Chunk::user("four"));
    block_on(session.durable()).expect("durable");
    let id = session.id();
    close(session, store);
    let mut files = std::fs::read_dir(folder.path().join("store")).expect("a folder").flatten().map(|it| it.path());
    let file = files.find(|path| path.extension().is_some_and(|it| it == "jsonl")).expect("the file of the session");
    let whole = std::fs::read_to_string(&file).expect("text");
    let lines: Vec<&str> = whole.split_inclusive('\n').collect();
    let adopted = lines.iter().position(|line| line.contains(r#""kind":"adopted""#)).expect("the adoption");
    let (mut own, mut guests) = (0, 0);
    for count in 2..=lines.len() {
        std::fs::write(&file, lines[..count].concat()).expect("written");
        let store = block_on(Store::open(&uri("jsonl", folder.path()))).expect("a store");
        let Ok(read) = block_on(store.read(id)) else { continue };
        assert_eq!(read.session.is_guest(), count <= adopted, "{count} of {} lines", lines.len());
        *if read.session.is_guest() { &mut guests } else { &mut own } += 1;
    }
    assert!(own > 1 && guests > 1, "{own}, {guests}");
}

/// Files that name each other's steps cost no more than their length, and no other session.
#[test]
fn files_that_depend_on_themselves_or_on_many_others_are_read() {
    use rath::record::codec::Encoder;
    use rath::record::{Digest, Step};
    let folder = rath_test_support::temp_dir();
    let store = block_on(Store::open(&uri("jsonl", folder.path()))).expect("a store");
    let good = block_on(Session::user("good").record(&store)).expect("recorded");
    block_on(good.durable()).expect("durable");
    let id = good.id();
    close(good, store);
    let branch = |nth: u32| {
        let mut id = [7; 16];
        id[..4].copy_from_slice(&nth.to_be_bytes());
        BranchId(id)
    };
    let step = |nth: u32| -> Step {
        let mut record = Record::new();
        record.push(Chunk::user(format!("step {nth}")), Stamp::on(branch(nth))).clone()
    };
    let write = |nth: u32, gone: &[(Digest, BranchId)]| {
        let mut encoder = Encoder::for_appending().with_writer("test");
        gone.iter().for_each(|(id, branch)| encoder.push_gone(*id, Some(*branch)));
        encoder.push_step(&step(nth)).expect("short");
        let path = folder.path().join("store").join(format!("{}.jsonl", branch(nth)));
        std::fs::write(path, encoder.finish()).expect("written");
    };
    // Each of many files names two steps of the next one that are not there; the last one names its own and those of the first.
    let count = 400;
    for nth in 0..count {
        let next = branch((nth + 1) % count);
        let own = if nth + 1 == count { branch(nth) } else { next };
        write(nth, &[(Digest([1; 32]), next), (Digest([2; 32]), own), (Digest(step((nth + 1) % count).id().0), next)]);
    }
    let store = block_on(Store::open(&uri("jsonl", folder.path()))).expect("a store");
    let list = block_on(store.list()).expect("a list");
    assert_eq!(list.len(), count as usize + 1);
    assert_eq!(block_on(store.read(id)).expect("a session").session.text(), None);
    assert!(block_on(store.read(branch(0))).expect("a session").session.head().is_some());
}

/// The number of a writer cannot grow further.
#[test]
fn a_file_whose_last_writer_has_the_largest_number_is_continued() {
    use rath::record::Seal;
    let folder = rath_test_support::temp_dir();
    let open = || block_on(Store::open(&uri("jsonl", folder.path()))).expect("a store");
    let store = open();
    let session = block_on(Session::user("first").record(&store)).expect("recorded");
    block_on(session.durable()).expect("durable");
    let id = session.id();
    close(session, store);
    let path = folder.path().join("store").join(format!("{id}.jsonl"));
    let text = std::fs::read_to_string(&path).expect("text");
    let lines: Vec<&str> = text.lines().collect();
    // Rows that are changed are sealed anew, and so are all that follow.
    let (mut forged, mut prev) = (String::new(), None::<String>);
    for line in lines {
        let mut sealed = line[r#"{"seal":""#.len() + Seal::HEX_DIGITS + 2..]
            .replace(r#""open":1,"#, &format!(r#""open":{},"#, i64::MAX));
        if let Some(prev) = &prev {
            let start = r#""prev":""#.len();
            sealed.replace_range(start..start + Seal::HEX_DIGITS, prev);
        }
        let seal = Seal::compute(sealed.as_bytes()).to_string();
        forged += &format!("{{\"seal\":\"{seal}\",{sealed}\n");
        prev = Some(seal);
    }
    assert!(forged.contains(&format!(r#""open":{}"#, i64::MAX)), "{forged}");
    std::fs::write(&path, forged).expect("written");
    for text in ["second", "third"] {
        let store = open();
        let mut session = block_on(store.resume(id)).expect("resumed").complete().expect("complete");
        session.push(Chunk::user(text));
        block_on(session.durable()).expect("durable");
        close(session, store);
        let store = open();
        assert!(block_on(store.check()).expect("checked").damage.is_empty());
        assert!(block_on(store.list()).expect("a list")[0].holder.is_none());
    }
    assert_eq!(block_on(open().read(id)).expect("read").session.chunk_count(), 3);
}
