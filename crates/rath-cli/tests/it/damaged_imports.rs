//! Tests of `rath import --anyway`: the damage that was accepted stays visible.

use expect_test::{Expect, expect};

use crate::fixture::{Fixture, STORES};

/// Imports a damaged bundle into each kind of store, and compares what the commands say of the session.
fn check(damage: impl Fn(Vec<u8>) -> Vec<u8>, [ls, status, log]: [&Expect; 3]) {
    for store in STORES {
        let first = Fixture::in_folder(crate::workshop(""), "sqlite:.rath/first.db");
        let session = first.work(None, "start", "echo x > f");
        assert_eq!(first.code(&["export", &session, "--as", "bundle", "-o", "one.rath"]), 0);
        let bytes = std::fs::read(first.path("one.rath")).expect("a bundle");
        std::fs::write(first.path("one.rath"), damage(bytes)).expect("written");
        let fixture = Fixture::with_store(&first, store);
        assert_eq!(fixture.code(&["import", "one.rath"]), 3, "it is not imported unasked");
        assert_eq!(fixture.code(&["import", "one.rath", "--anyway"]), 3);
        fixture.check(&["ls"], ls);
        fixture.check(&["status", &session], status);
        fixture.check(&["log", &session, "-n", "1"], log);
        assert_eq!(fixture.json(&["ls", "--json"])[0]["is_incomplete"], true);
        assert_eq!(fixture.json(&["ls", "--json"])[0]["is_guest"], true);
        assert_eq!(fixture.code(&["import", "one.rath", "--anyway"]), 3);
        fixture.check(&["log", &session, "-n", "1"], log);
        // It does also when the session was taken over.
        assert_eq!(fixture.code(&["adopt", &session, "--sandbox", "local:work", "--by", "me"]), 0);
        let list = fixture.out(&["ls"]);
        assert!(list.contains("(incomplete)") && !list.contains("not made by you"), "{list}");
    }
}

#[test]
fn a_session_from_a_file_with_a_changed_row_says_so() {
    let change = |bytes: Vec<u8>| {
        let text = String::from_utf8(bytes).expect("UTF-8");
        text.replacen("You are a careful", "You are a sareful", 1).into_bytes()
    };
    check(
        change,
        [
            &expect![[r#"
        S1  TIME  4,018 tokens  done  start  (not made by you)  (incomplete)
        exit 0
    "#]],
            &expect![[r#"
        S1  start  (not made by you)
        state     done
        files     none: its agents have no tools
                  parts of it were lost before it was stored here
        tokens    4,018
        ! hint: `rath adopt S1 --store STORE --sandbox isolated:.` takes it over
        exit 3
    "#]],
            &expect![[r#"
        ○  STEP1  now      copied from a damaged file: 1 place could not be read
        ~
        exit 0
    "#]],
        ],
    );
}

#[test]
fn a_session_from_a_file_that_was_cut_off_says_so() {
    let cut = |mut bytes: Vec<u8>| {
        let at = bytes.windows(15).position(|it| it == b"\"kind\":\"instruc").expect("the instructions");
        bytes.truncate(at);
        bytes
    };
    check(
        cut,
        [
            &expect![[r#"
        S1  TIME  0 tokens  stopped, waiting for the model  start  in FOLDER/work  (not made by you)  (incomplete)
        exit 0
    "#]],
            &expect![[r#"
        S1  start  (not made by you)
        state     stopped, waiting for the model
        files     local:FOLDER/work
                  parts of it were lost before it was stored here
                  not compared with the record
        tokens    0
        ! hint: `rath adopt S1 --store STORE --sandbox isolated:.` takes it over
        exit 3
    "#]],
            &expect![[r#"
        ○  STEP1  now      copied from a damaged file: 1 place could not be read; cu…
        ~
        exit 0
    "#]],
        ],
    );
}
