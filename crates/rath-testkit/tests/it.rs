//! The stores that rath brings keep what every store has to.

use rath::Store;
use rath_testkit::store::{Case, conforms};

/// A place of its own for each promise.
fn in_folder(kind: &'static str) {
    conforms(&mut || {
        let folder = tempfile::tempdir().expect("a folder");
        let uri = format!("{kind}:{}", folder.path().join("store").display());
        // The folder lasts as long as the case.
        Case::new(move || {
            let _ = &folder;
            Store::open(&uri).expect("a store")
        })
    });
}

#[test]
fn sqlite_keeps_its_promises() {
    in_folder("sqlite");
}

#[test]
fn jsonl_keeps_its_promises() {
    in_folder("jsonl");
}

#[test]
fn memory_keeps_its_promises() {
    conforms(&mut || Case::lasting(Store::open("memory:").expect("a store")));
}
