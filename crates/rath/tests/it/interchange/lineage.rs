//! Files of sessions that descend from one another.

use expect_test::expect;
use rath::Usage;
use rath::chunk::Call;
use rath::interchange::NoteCode;
use rath::interchange::openrath::{read_all, write, write_all};
use rath::prelude::*;

use super::openrath::{fixture, header};
use super::{log, notes, visible_state};
use crate::support::now;

/// Returns a session with forks, two merges, work aside and an open call, in a sandbox.
fn family() -> Session {
    let mut root = Session::system("You are terse.").to(Sandbox::local("./"));
    root.push(Chunk::user("one"));
    root.push_with_usage(Chunk::assistant("two"), Usage::new(10, 5));
    let (mut left, mut right) = (root.fork_named("left"), root.fork());
    left.push(Chunk::user("on the left"));
    left.push_with_usage(Chunk::assistant("yes"), Usage::new(20, 1));
    right.push(Chunk::user("on the right"));
    let mut merged = now(left.merge(&right)).expect("merged");
    merged.push(Chunk::user("both"));
    let mut helper = merged.aside("helper");
    helper.push_with_usage(Chunk::assistant("aside"), Usage::new(3, 3));
    merged.keep_aside(&helper);
    // The parent goes on after the fork.
    root.push(Chunk::user("three"));
    let mut all = now(merged.merge(&root)).expect("merged");
    all.push(Chunk::calls([Call::new("c", "ls", "{}")]));
    all.push(rath::chunk::ToolStarted::new("c"));
    all
}

#[test]
fn sessions_that_are_written_together_keep_their_lineage() {
    let session = family();
    let files = write_all(&session);
    let bytes: Vec<_> = files.iter().map(|(_, export)| export.bytes.clone()).collect();
    let imports = read_all(&bytes).expect("sessions");
    assert_eq!(imports.len(), 6);
    for ((id, file), import) in files.iter().zip(&imports) {
        assert_eq!(import.session.id(), *id);
        assert!(import.notes.iter().all(|note| note.code != NoteCode::Elsewhere), "{:?}", import.notes);
        // The origin is written again, and so is every row.
        let again = write(&import.session).bytes;
        assert_eq!(header(&again), header(&file.bytes));
    }
    let newest = &imports.last().expect("a session").session;
    assert_eq!(visible_state(newest), visible_state(&session));
    // The graph of sessions is the same, except for the work aside, which no model reads.
    let graph = |session: &Session| {
        let rows = session.export(rath::record::graph::Ids::Original);
        let rows = rows.lines().map(|row| serde_json::from_str::<serde_json::Value>(row).expect("JSON"));
        let rows = rows.map(|row| (row["id"].clone(), row["lineage_kind"].clone(), row["parent_session_ids"].clone()));
        rows.map(|row| format!("{row:?}")).collect::<std::collections::BTreeSet<_>>()
    };
    let aside = files
        .iter()
        .find(|(_, file)| String::from_utf8_lossy(&file.bytes).contains("\"aside\""))
        .expect("it is there")
        .0;
    let mut written = graph(&session);
    written.retain(|row| !row.contains(&format!("(String(\"{aside}\")")));
    assert_eq!(graph(newest), written);
    // A shared step is one step.
    let parents = imports[..3].iter().map(|import| import.session.as_record().steps()[2].id());
    assert_eq!(parents.collect::<std::collections::HashSet<_>>().len(), 1);
}

#[test]
fn the_order_of_files_and_missing_parents_do_not_matter() {
    let files: Vec<_> = write_all(&family()).into_iter().map(|(_, export)| export.bytes).collect();
    let ids = |files: &[Vec<u8>]| {
        let imports = read_all(files).expect("sessions");
        let heads = imports.iter().map(|import| import.session.head().map(|head| head.id()));
        heads.collect::<std::collections::BTreeSet<_>>()
    };
    let reversed: Vec<_> = files.iter().rev().cloned().collect();
    assert_eq!(ids(&reversed), ids(&files));
    for at in 0..files.len() {
        let mut some = files.clone();
        let removed = some.remove(at);
        for (import, file) in read_all(&some).expect("sessions").iter().zip(&some) {
            assert_eq!(header(&write(&import.session).bytes), header(file));
            let names_it = header(file)["parent_session_ids"]
                .to_string()
                .contains(header(&removed)["id"].as_str().expect("an id"));
            assert_eq!(import.notes.iter().any(|note| note.code == NoteCode::Elsewhere), names_it);
        }
    }
    // A session that names itself or its child as its parent is read all the same.
    let [first, second] = [0, 1].map(|at| header(&files[at])["id"].as_str().expect("an id").to_owned());
    let mut circle = files.clone();
    circle[0] = String::from_utf8(files[0].clone())
        .expect("text")
        .replacen("[]", &format!("[\"{second}\",\"{first}\"]"), 1)
        .into();
    assert_eq!(read_all(&circle).expect("sessions").len(), files.len());
}

#[test]
fn a_directory_of_the_python_openrath_is_read_with_its_lineage() {
    let files = ["fork", "chat", "compressed"].map(fixture);
    let imports = read_all(&files).expect("sessions");
    let text: String =
        imports.iter().map(|import| format!("{}{}\n", log(&import.session), notes(&import.notes))).collect();
    expect![[r#"
        note: came from the Python OpenRath: {"id":"692e1f43-9754-48d7-87…
        user: hello
        assistant: hi  (12 in, 3 out)
        forked
        note: came from the Python OpenRath: {"id":"d8df9441-3e50-4162-a0…
        - missing: the tokens that were used are not known: the trailer does not count them
        - missing: there is no system row: the Python OpenRath does not save the prompt of an agent

        note: came from the Python OpenRath: {"id":"692e1f43-9754-48d7-87…
        user: hello
        assistant: hi  (12 in, 3 out)
        - missing: there is no system row: the Python OpenRath does not save the prompt of an agent
        - elsewhere: derived by run_session_loop from other sessions, which are not in this file: 39d1ea40-3771-4d79-8f75-e74164afc0f2, 958093ad-4394-49ca-ac2e-9c8e14e0f5aa

        note: came from the Python OpenRath: {"id":"5c4a0dcd-183f-4fc9-89…
        user: They said hello.  (30 in, 6 out)
        - missing: there is no system row: the Python OpenRath does not save the prompt of an agent
        - elsewhere: derived by run_session_compress from other sessions, which are not in this file: 958093ad-4394-49ca-ac2e-9c8e14e0f5aa

    "#]].assert_eq(&text);
    for (import, file) in imports.iter().zip(&files) {
        assert_eq!(header(&write(&import.session).bytes), header(file));
    }
    // The fork goes on from the steps of its parent, whose tokens it counts once.
    assert_eq!(imports[0].session.usage(), imports[1].session.usage());
}
