//! The stores and sandboxes that rath brings keep what every one has to.

use rath::Store;
use rath::sandbox::{Isolated, Local, Sandbox};
use rath_testkit::sandbox;
use rath_testkit::store::{StoreCase, conforms};

/// A place of its own for each promise.
fn in_folder(kind: &'static str) {
    conforms(&mut || {
        let folder = rath_test_support::temp_dir();
        let uri = format!("{kind}:{}", folder.path().join("store").display());
        // The folder lasts as long as the case.
        StoreCase::new(move || {
            let _ = &folder;
            open(&uri)
        })
    });
}

fn open(uri: &str) -> Store {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(Store::open(uri)).expect("a store")
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
    conforms(&mut || StoreCase::lasting(open("memory:")));
}

/// An empty workspace for each promise.
fn in_workspace(open: impl Fn(&std::path::Path) -> Sandbox) {
    sandbox::conforms(&mut || {
        let folder = rath_test_support::temp_dir();
        sandbox::SandboxCase::new(open(folder.path()), folder)
    });
}

#[test]
fn local_keeps_its_promises() {
    in_workspace(|folder| Local::new(folder).into());
}

#[test]
fn isolated_keeps_its_promises() {
    in_workspace(|folder| Isolated::new(folder).into());
}

#[test]
fn isolated_keeps_its_promises_over_another_directory() {
    let shown = rath_test_support::temp_dir();
    in_workspace(|folder| Sandbox::isolated(shown.path()).with_directory(folder).expect("it is on this machine"));
}
