//! The signatures in the rows of a `jsonl:` store.

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
