//! Stores that lost a part: the rest is read, and what is lost is said.

use std::path::Path;

use expect_test::expect;
use rath::Store;
use rath::prelude::*;
use rusqlite::Connection;

use crate::{block_on, check, printed, rath};

/// A directory with a store of three sessions, the last one with a long text. Returns their ids too.
fn sessions() -> (rath_test_support::TempDir, Vec<String>) {
    let folder = rath_test_support::temp_dir();
    let ids = block_on(async {
        let store = Store::open(&format!("sqlite:{}", folder.path().join("s.db").display())).await?;
        let mut ids = Vec::new();
        for text in ["one".to_owned(), "two".to_owned(), "long ".repeat(5_000)] {
            let mut session = Session::user("begin").record(&store).await?;
            session.push(Chunk::assistant(text));
            session.durable().await?;
            ids.push(session.id().to_string());
        }
        store.close().await?;
        Ok::<_, Error>(ids)
    });
    (folder, ids.expect("sessions"))
}

fn execute(folder: &Path, sql: &str) {
    let connection = Connection::open(folder.join("s.db")).expect("a database");
    connection.execute_batch(sql).expect("executed");
}

/// Returns the exit code and the errors of a command.
fn outcome(folder: &Path, args: &[&str]) -> (i32, String) {
    let output = rath(folder, &[args, &["--store", "sqlite:s.db"]].concat());
    (output.status.code().expect("an exit code"), String::from_utf8(output.stderr).expect("UTF-8"))
}

#[test]
fn a_damaged_row_of_a_session_keeps_no_other_session_from_being_read() {
    for sql in ["UPDATE branches SET title = 'x' WHERE b = 2", "DELETE FROM branches WHERE b = 2"] {
        let (folder, ids) = sessions();
        let folder = folder.path();
        execute(folder, sql);
        let short = &ids[1][ids[1].len() - 8..];
        let (code, errors) = outcome(folder, &["ls"]);
        let hint = format!(
            "warning: 1 session is not listed because of damage: {short}\n\
             hint: `rath verify --store sqlite:s.db` names the damage; `rath salvage {short} copy.rath --store \
             sqlite:s.db` copies what is good\n"
        );
        assert_eq!((code, errors), (3, hint), "{sql}");
        let listed = printed(folder, &["ls", "--json", "--store", "sqlite:s.db"]);
        assert_eq!(listed.lines().count(), 2, "{listed}");
        for id in [&ids[0], &ids[2]] {
            for command in ["log", "verify", "export"] {
                assert_eq!(outcome(folder, &[command, &id[id.len() - 8..]]), (0, String::new()), "{sql}, {command}");
            }
            assert_eq!(outcome(folder, &["salvage", id, &format!("{id}.rath")]).0, 0);
        }
        assert_eq!(outcome(folder, &["salvage", short, "copy.rath"]).0, 3);
        assert_eq!(rath(folder, &["verify", "copy.rath"]).status.code(), Some(0));
    }
}

#[test]
fn an_import_restores_a_text_that_was_lost() {
    for sql in ["DELETE FROM payloads", "UPDATE payloads SET data = x'00'"] {
        let (folder, ids) = sessions();
        let folder = folder.path();
        assert_eq!(outcome(folder, &["export", &ids[2], "--as", "bundle", "-o", "kept.rath"]).0, 0);
        execute(folder, sql);
        assert_eq!(outcome(folder, &["verify", &ids[2]]).0, 3);
        // What is left can be copied, to a file and to a store.
        assert_eq!(outcome(folder, &["salvage", &ids[2], "lost.rath"]).0, 3);
        for store in ["sqlite:copy.db", "jsonl:copy"] {
            assert_eq!(outcome(folder, &["salvage", &ids[2], store]).0, 3);
            assert_eq!(rath(folder, &["verify", "--store", store]).status.code(), Some(0), "{store}");
        }
        let (code, errors) = (rath(folder, &["import", "kept.rath", "--store", "sqlite:copy.db"]), "sqlite:copy.db");
        assert_eq!(code.status.code(), Some(0), "{errors}");
        let shown = printed(folder, &["show", &ids[2], "head", "--store", "sqlite:copy.db"]);
        assert!(shown.contains("long long"), "{shown}");
        let (code, errors) = outcome(folder, &["import", "kept.rath"]);
        assert_eq!(code, 0, "{errors}");
        assert!(errors.contains("already in the store; 1 text restored that had been lost"), "{errors}");
        assert_eq!(outcome(folder, &["verify"]), (0, String::new()));
        let shown = printed(folder, &["show", &ids[2], "head", "--store", "sqlite:s.db"]);
        assert!(shown.contains("long long"), "{shown}");
        assert!(outcome(folder, &["import", "kept.rath"]).1.starts_with("already in the store; `rath log"));
    }
}

#[test]
fn a_text_that_was_forgotten_does_not_return_with_an_import() {
    let (folder, ids) = sessions();
    let folder = folder.path();
    assert_eq!(outcome(folder, &["export", &ids[2], "--as", "bundle", "-o", "kept.rath"]).0, 0);
    let head = block_on(async {
        let store = Store::open(&format!("sqlite:{}", folder.join("s.db").display())).await?;
        let branch = ids[2].parse().expect("an id");
        let head = store.read(branch).await?.summary.head;
        store.forget(branch, head).await?;
        store.close().await?;
        Ok::<_, Error>(head)
    });
    let head = head.expect("forgotten").to_string();
    let _ = outcome(folder, &["import", "kept.rath"]);
    let shown = printed(folder, &["show", &ids[2], &head, "--store", "sqlite:s.db"]);
    assert!(!shown.contains("long long"), "{shown}");
}

#[test]
fn a_store_is_not_salvaged_onto_itself() {
    let (folder, ids) = sessions();
    let before = std::fs::read(folder.path().join("s.db")).expect("a database");
    for name in ["sqlite:s.db", "sqlite:./s.db"] {
        let wanted = format!(
            "error: {name} is the store that the session is in\n\
             hint: name another one: a new file such as copy.rath, or a new store\n"
        );
        assert_eq!(outcome(folder.path(), &["salvage", &ids[0], name]), (1, wanted));
    }
    assert!(std::fs::read(folder.path().join("s.db")).expect("a database") == before);
}

#[test]
fn a_journal_of_another_database_is_not_rolled_back() {
    let (folder, ids) = sessions();
    let folder = folder.path();
    // A hot journal of a copy in which the sessions are gone.
    std::fs::copy(folder.join("s.db"), folder.join("other.db")).expect("copied");
    let other = Connection::open(folder.join("other.db")).expect("a database");
    let sql = "PRAGMA journal_mode = DELETE; PRAGMA cache_size = 1; DELETE FROM branches; BEGIN;
               UPDATE steps SET json = zeroblob(9000); UPDATE payloads SET data = zeroblob(90000);";
    other.execute_batch(sql).expect("executed");
    let journal = std::fs::read(folder.join("other.db-journal")).expect("a journal");
    assert!(journal.len() > 4096, "{}", journal.len());
    std::fs::write(folder.join("s.db-journal"), &journal).expect("written");
    drop(other);
    assert_eq!(outcome(folder, &["verify"]), (0, String::new()));
    assert_eq!(outcome(folder, &["ls"]), (0, String::new()));
    assert_eq!(outcome(folder, &["log", "-v", &ids[1]]), (0, String::new()));
    // It is kept, under another name.
    let names = std::fs::read_dir(folder).expect("a directory").map(|entry| entry.expect("an entry").file_name());
    let names: Vec<_> = names.map(|name| name.into_string().expect("UTF-8")).collect();
    let aside = names.iter().find(|name| name.starts_with("s.db-journal.foreign-")).expect("the journal");
    assert!(std::fs::read(folder.join(aside)).expect("the journal") == journal);
    assert!(!names.contains(&"s.db-journal".to_owned()));
}

#[test]
fn a_store_whose_database_is_lost_is_read_from_its_wal_or_says_so() {
    let (folder, copy) = (rath_test_support::temp_dir(), rath_test_support::temp_dir());
    let ids = block_on(async {
        let store = Store::open(&format!("sqlite:{}", folder.path().join("s.db").display())).await?;
        let mut session = Session::user("begin").record(&store).await?;
        loop {
            session.push(Chunk::assistant("more"));
            session.durable().await?;
            std::fs::copy(folder.path().join("s.db-wal"), copy.path().join("s.db-wal"))?;
            if std::fs::metadata(copy.path().join("s.db-wal"))?.len() > 0 {
                return Ok::<_, Error>(session.id().to_string());
            }
        }
    });
    let (id, copy) = (ids.expect("a session"), copy.path());
    for args in [&["ls"][..], &["log", &id], &["verify"], &["export", &id], &["salvage", &id, "copy.rath"]] {
        assert_eq!(outcome(copy, args), (0, String::new()), "{args:?}");
    }
    let lost = "error: sqlite:s.db is missing or empty, and the file that ends in `-wal` beside it holds its newest \
                steps\nhint: put the database back beside it\n";
    assert_eq!(outcome(copy, &["fork", &id]), (3, lost.to_owned()));
    assert!(copy.join("s.db-wal").exists() && !copy.join("s.db").exists());
    // A part of the WAL is not enough.
    let wal = std::fs::read(copy.join("s.db-wal")).expect("a WAL");
    std::fs::write(copy.join("s.db-wal"), &wal[..5_000]).expect("written");
    for args in [&["ls"][..], &["log", "-v", &id]] {
        assert_eq!(outcome(copy, args), (3, lost.to_owned()));
    }
}

#[test]
fn a_lost_store_beside_versions_of_files_says_that_they_are_kept() {
    let folder = rath_test_support::temp_dir();
    std::fs::create_dir_all(folder.path().join(".rath/workspace/objects")).expect("a directory");
    check(
        folder.path(),
        &["ls"],
        expect![[r#"
            ! error: there is no store at .rath/rath.db
            ! hint: if it was lost, put a copy of it back before you run or collect anything here; until then the versions of files that it named stay, and `git --git-dir 'FOLDER/.rath/workspace' cat-file --batch-check --batch-all-objects` lists them
            exit 1
        "#]],
    );
}

/// The seals are no signatures: a row whose totals were changed and sealed anew is read.
#[test]
fn forged_totals_in_a_database_stop_neither_ls_nor_gc() {
    let (folder, _) = sessions();
    let folder = folder.path();
    let connection = Connection::open(folder.join("s.db")).expect("a database");
    let sql = "SELECT id, family, title, state FROM branches WHERE b = 1";
    let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?));
    let (id, family, title, state): (Vec<u8>, Vec<u8>, String, Vec<u8>) =
        connection.query_row(sql, [], row).expect("a session");
    // Before the totals are four numbers, a time and the id of a step, and at the end are the signature and the seal.
    let (totals, sealed) = (4 * 8 + 8 + 32, state.len() - 16);
    let mut listed = 0;
    for at in (totals..sealed).step_by(4) {
        for byte in [0x7f, 0xff] {
            let mut forged = state[..sealed].to_vec();
            forged[at..(at + 8).min(sealed)].fill(byte);
            let lengths = [1_i64.to_le_bytes(), (title.len() as u64).to_le_bytes()].concat();
            let seal = rath::record::Seal::compute(&[&id, &family, &forged, &lengths, title.as_bytes()].concat());
            forged.extend(seal.0);
            connection.execute("UPDATE branches SET state = ? WHERE b = 1", [forged]).expect("forged");
            let rows = printed(folder, &["ls", "--all", "--json", "--store", "sqlite:s.db"]).lines().count();
            listed += usize::from(rows == 3);
            for args in [&["ls"][..], &["gc", "--dry-run"], &["gc", "--dry-run", "--older-than", "0s"]] {
                let (code, errors) = outcome(folder, args);
                assert!((0..=3).contains(&code) && !errors.contains("panicked"), "{at}: {args:?} {code} {errors}");
            }
        }
    }
    assert!(listed > 5, "the totals are read");
}

/// Damage costs the session that has it, and is gone with it.
#[test]
fn a_damaged_session_is_deleted_by_its_id_and_by_nothing_else() {
    for sql in [
        "UPDATE steps SET json = x'7b7d' WHERE s = 3",
        "UPDATE steps SET head = x'00' WHERE s = 3",
        "DELETE FROM steps WHERE s = 3",
        "UPDATE branches SET title = 'x' WHERE b = 2",
        "DELETE FROM branches WHERE b = 2",
    ] {
        let (folder, ids) = sessions();
        let folder = folder.path();
        execute(folder, sql);
        for args in [&["gc"][..], &["gc", "--delete", &ids[0]], &["gc", "--dry-run"]] {
            let (code, errors) = outcome(folder, args);
            assert!(code == 3 && errors.contains("damaged"), "{sql}, {args:?}: {code} {errors}");
        }
        let salvaged = outcome(folder, &["salvage", &ids[1], "copy.rath"]);
        assert_eq!(salvaged.0, 3, "{sql}: all that was good is there: {}", salvaged.1);
        let (code, errors) = outcome(folder, &["gc", "--delete", &ids[1]]);
        let short = &ids[1][ids[1].len() - 8..];
        assert!(code == 0 && errors.starts_with(&format!("note: {short} is damaged: ")), "{sql}: {code} {errors}");
        assert_eq!(outcome(folder, &["verify"]), (0, String::new()), "{sql}");
        assert_eq!(outcome(folder, &["log", "-v", &ids[2]]), (0, String::new()), "{sql}");
        assert_eq!(outcome(folder, &["gc", "--all"]).0, 0, "{sql}");
    }
}

/// Returns the commands in a text, each as its words.
fn commands(text: &str) -> Vec<Vec<&str>> {
    let quoted = text.split('`').skip(1).step_by(2).filter_map(|command| command.strip_prefix("rath "));
    quoted.map(|command| command.split(' ').collect()).collect()
}

#[test]
fn the_hint_of_a_deletion_that_damage_stops_works_when_it_is_pasted() {
    for sql in [
        "UPDATE branches SET title = 'x' WHERE b > 1",
        "DELETE FROM branches WHERE b = 2",
        // The rows that are left do not tell that the last ones are lost.
        "DELETE FROM branches WHERE b > 1",
    ] {
        let (folder, ids) = sessions();
        let folder = folder.path();
        execute(folder, sql);
        let (code, errors) = outcome(folder, &["gc", "--delete", &ids[0]]);
        assert_eq!(code, 3, "{sql}: {errors}");
        let commands = commands(&errors);
        let [delete, salvage] = &commands[..] else { panic!("{sql}: {errors}") };
        assert_eq!(rath(folder, salvage).status.code(), Some(3), "{sql}: {errors}");
        assert_eq!(rath(folder, delete).status.code(), Some(0), "{sql}: {errors}");
        assert_eq!(outcome(folder, &["gc", "--delete", &ids[0]]), (0, String::new()), "{sql}");
    }
}

#[test]
fn the_hint_of_a_deletion_names_no_session_if_none_is_known() {
    let (folder, ids) = sessions();
    let folder = folder.path();
    execute(folder, "DELETE FROM branches WHERE b = 2; DELETE FROM steps WHERE s IN (3, 4)");
    let (code, errors) = outcome(folder, &["gc", "--delete", &ids[0]]);
    assert!(code == 3 && errors.contains("table branches: sessions are missing"), "{code} {errors}");
    assert!(!errors.contains("--delete"), "{errors}");
    assert_eq!(rath(folder, &commands(&errors)[0]).status.code(), Some(3), "it names the damage: {errors}");
    assert_eq!(outcome(folder, &["salvage", &ids[0], "copy.rath"]).0, 0);
    let imported = rath(folder, &["import", "copy.rath", "--store", "sqlite:new.db"]);
    assert!(imported.status.success(), "{}", String::from_utf8_lossy(&imported.stderr));
}
