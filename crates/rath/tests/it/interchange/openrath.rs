//! Session files of the Python OpenRath.

use expect_test::{Expect, expect};
use rath::StepId;
use rath::Usage;
use rath::chunk::{Call, Image};
use rath::interchange::openrath::{read, write};
use rath::prelude::*;

use super::{log, next, notes, sessions, visible_state};

pub(super) fn fixture(name: &str) -> Vec<u8> {
    std::fs::read(format!("{}/tests/interchange/{name}.jsonl", env!("CARGO_MANIFEST_DIR"))).expect("a fixture")
}

/// Returns the header of a file, without what rath adds to it.
pub(super) fn header(bytes: &[u8]) -> serde_json::Value {
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let mut header: serde_json::Value = serde_json::from_slice(line).expect("JSON");
    header.as_object_mut().expect("an object").remove("rath");
    header
}

/// Reads a file that the Python OpenRath wrote and compares steps, usage, next action and notes.
fn check(name: &str, expected: Expect) {
    let import = read(&fixture(name)).expect("a session");
    let (session, closed) = (&import.session, import.closed);
    let notes = notes(&import.notes);
    expected.assert_eq(&format!(
        "{}closed: {closed}, {}, next: {}\n{notes}",
        log(session),
        session.usage(),
        next(session)
    ));
}

#[test]
fn files_of_the_python_openrath_are_read() {
    check(
        "chat",
        expect![[r#"
            note: came from the Python OpenRath: {"id":"692e1f43-9754-48d7-87…
            user: hello
            assistant: hi  (12 in, 3 out)
            closed: true, 12 in, 3 out, next: done
            - missing: there is no system row: the Python OpenRath does not save the prompt of an agent
            - elsewhere: derived by run_session_loop from other sessions, which are not in this file: 39d1ea40-3771-4d79-8f75-e74164afc0f2, 958093ad-4394-49ca-ac2e-9c8e14e0f5aa
        "#]],
    );
    check(
        "tools",
        expect![[r#"
            note: came from the Python OpenRath: {"id":"3724bcc1-2ee1-44e7-97…
            user: How many words are in `to be or not`, and in nothing?
            assistant: Let me count. calls word_count({"text": "to be or not"}), word_count()
            tool result: call_1 ok: {"words": 4}
            tool result: call_2 bad JSON: {"ok": false, "error_kind": "invalid_tool_arguments", "mess…
            assistant calls no_such_tool({})
            tool result: call_3 unknown tool: {"ok": false, "error_kind": "unknown_tool", "message": "unk…
            assistant: Four, and none.  (120 in, 18 out)
            closed: true, 120 in, 18 out, next: done
            - changed: tokens are counted for the whole run: all of them are assigned to its last answer
            - missing: there is no system row: the Python OpenRath does not save the prompt of an agent
            - elsewhere: derived by run_session_loop from other sessions, which are not in this file: 9d48828a-960c-4a3d-8923-1310ab1edd81, 958093ad-4394-49ca-ac2e-9c8e14e0f5aa
        "#]],
    );
    check(
        "fork",
        expect![[r#"
            note: came from the Python OpenRath: {"id":"d8df9441-3e50-4162-a0…
            user: hello
            assistant: hi
            closed: true, 0 in, 0 out, next: done
            - missing: the tokens that were used are not known: the trailer does not count them
            - missing: there is no system row: the Python OpenRath does not save the prompt of an agent
            - elsewhere: derived by Session.fork from other sessions, which are not in this file: 692e1f43-9754-48d7-873e-d5db210ff98b
        "#]],
    );
    check(
        "separators",
        expect![[r#"
            note: came from the Python OpenRath: {"id":"65e74253-f056-4b98-a9…
            user: one two three four
            assistant:   (5 in, 1 out)
            closed: true, 5 in, 1 out, next: done
            - missing: there is no system row: the Python OpenRath does not save the prompt of an agent
            - elsewhere: derived by run_session_loop from other sessions, which are not in this file: 367b88e2-8c37-4b3f-ac26-c2279367b426, 958093ad-4394-49ca-ac2e-9c8e14e0f5aa
        "#]],
    );
    check(
        "compressed",
        expect![[r#"
            note: came from the Python OpenRath: {"id":"5c4a0dcd-183f-4fc9-89…
            user: They said hello.  (30 in, 6 out)
            closed: true, 30 in, 6 out, next: ask
            - missing: there is no system row: the Python OpenRath does not save the prompt of an agent
            - elsewhere: derived by run_session_compress from other sessions, which are not in this file: 692e1f43-9754-48d7-873e-d5db210ff98b, 958093ad-4394-49ca-ac2e-9c8e14e0f5aa
        "#]],
    );
    check(
        "system",
        expect![[r#"
            note: came from the Python OpenRath: {"id":"bc3c9dfb-91ce-4f1d-b7…
            instructions: You count words.
            user: hello
            closed: true, 0 in, 0 out, next: ask
            - elsewhere: derived by Session.merge from other sessions, which are not in this file: 958093ad-4394-49ca-ac2e-9c8e14e0f5aa, 38ffdbb3-3812-47ea-a4b3-ccb1500335b5
        "#]],
    );
    check(
        "crashed",
        expect![[r#"
            note: came from the Python OpenRath: {"id":"5c9012b6-e281-4af9-85…
            user: stop
            assistant: Stopping. calls word_count({"text": "a"}), stop({})
            note: there is no trailer: the session was not closed, and what c…
            tool started: call_1
            tool started: call_2
            closed: false, 0 in, 0 out, next: run call_1 Unknown, call_2 Unknown
            - missing: the tokens that were used are not known: the trailer, which counts them, is missing
            - missing: there is no system row: the Python OpenRath does not save the prompt of an agent
            - elsewhere: derived by run_session_loop from other sessions, which are not in this file: 6ae2a9e5-1b05-4ccd-8830-a0a623d6dfc8, 7dc1a047-19e0-4922-ae59-fb5b499af93c
            - missing: there is no trailer: the session was not closed, and what came last may be missing
            - in_doubt: call `call_1` (word_count) has no result: it stays open, and whether it took effect is not known
            - in_doubt: call `call_2` (stop) has no result: it stays open, and whether it took effect is not known
        "#]],
    );
}

#[test]
fn a_session_is_read_back_as_it_was_written() {
    for (name, session) in sessions() {
        let export = write(&session);
        let import = read(&export.bytes).expect(name);
        // The id of a call is unique in a file.
        let written = visible_state(&session)
            .replace(r#"id: a, tool: "ls", arguments: "not json""#, r#"id: a~2, tool: "ls", arguments: "not json""#);
        let read_back = visible_state(&import.session).replace("call: a~2", "call: a");
        assert_eq!(read_back, written, "{name}");
        assert!(import.closed, "{name}");
        assert_eq!(import.session.id(), session.id(), "{name}");
        // Writing it again gives the same file, except for `closed_at`: the starts of open calls are newer.
        let rows = |bytes: Vec<u8>| {
            let text = String::from_utf8(bytes).expect("text");
            let (before, rest) = text.split_once(r#""closed_at":"#).expect("a trailer");
            format!("{before}{}", rest.split_once(',').expect("more members").1)
        };
        assert_eq!(rows(write(&import.session).bytes), rows(export.bytes), "{name}");
    }
}

#[test]
fn what_the_format_cannot_hold_is_noted() {
    let mut session = Session::user("look").to(Sandbox::local("/srv/app"));
    session.push(rath::chunk::User::new("a picture").with_images(vec![Image::new("image/png", *b"png")]));
    session.push(Chunk::note("a remark"));
    session.push_with_usage(Chunk::assistant("I see."), Usage::new(10, 1));
    let mut aside = session.aside("helper");
    aside.push_with_usage(Chunk::assistant("done"), Usage::new(5, 1));
    session.keep_aside(&aside);
    let hidden: Vec<StepId> = session.as_record().steps().iter().map(|step| step.id()).take(2).collect();
    session.push(rath::chunk::Compressed::new(hidden, "They looked."));
    session.push(Chunk::calls([Call::new("c", "ls", "{}")]));
    let export = write(&session);
    expect![[r#"
        - in_doubt: call `c` (ls) has no result: most models refuse such a conversation, rath can resume it
        - changed: 1 summary written as a user message: what it replaces is left out
        - left_out: 1 picture left out: the format holds text only
        - left_out: 1 note left out: the format holds only what a model reads
        - left_out: 1 aside left out, except for its tokens
    "#]]
    .assert_eq(&notes(&export.notes));
    let import = read(&export.bytes).expect("a session");
    // The origin has the id of the session.
    let is_origin = |line: &&str| line.starts_with("note: came from the Python OpenRath: ");
    let read_back: String =
        log(&import.session).lines().filter(|line| !is_origin(line)).map(|line| format!("{line}\n")).collect();
    expect![[r#"
        user: They looked.
        sandbox: local:/srv/app
        user: a picture
        assistant: I see.  (10 in, 1 out)
        assistant calls ls({})
        note: tokens that the file counts and no row of it used  (5 in, 1 out)
    "#]]
    .assert_eq(&(read_back + &notes(&import.notes)));
    // The tokens of steps that are not in the file still count.
    assert_eq!(import.session.usage(), session.usage());
}

#[test]
fn a_renamed_call_is_in_doubt_and_not_repeated() {
    let mut session = Session::user("go");
    session.push(Chunk::calls([Call::new("0", "rm", "{}")]));
    session.push(Chunk::result("0", "gone"));
    session.push(Chunk::calls([Call::new("0", "rm", "{}")]));
    session.push(rath::chunk::ToolStarted::new("0"));
    let import = read(&write(&session).bytes).expect("a session");
    assert_eq!(next(&import.session), "run 0~2 Unknown");
}

#[test]
fn the_origin_of_a_session_is_written_again() {
    for name in ["chat", "fork", "compressed"] {
        let first = fixture(name);
        let again = write(&read(&first).expect(name).session).bytes;
        assert_eq!(header(&again), header(&first));
    }
}

#[test]
fn a_file_cut_anywhere_gives_its_whole_rows_and_notes_the_rest() {
    for name in ["chat", "tools", "separators", "crashed"] {
        let file = fixture(name);
        let whole = read(&file).expect(name);
        let messages = |session: &Session| {
            let chunks = session.chunks().filter(|chunk| !matches!(chunk, Chunk::Note(_) | Chunk::ToolStarted(_)));
            chunks.map(|chunk| format!("{chunk:?}")).collect::<Vec<_>>()
        };
        let all = messages(&whole.session);
        for cut in 0..file.len() {
            let rows = file[..cut].iter().filter(|byte| **byte == b'\n').count();
            // A row that lacks only its line break is whole.
            let rows = rows + usize::from(file[cut] == b'\n');
            match read(&file[..cut]) {
                Err(error) => {
                    assert!(rows == 0 && error.kind() == ErrorKind::Format && error.hint().is_some(), "{cut}: {error}");
                }
                Ok(part) => {
                    assert_eq!(messages(&part.session), all[..(rows - 1).min(all.len())], "{name} cut at {cut}");
                    let closed = whole.closed && rows == all.len() + 2;
                    assert_eq!(part.closed, closed, "{name} cut at {cut}");
                    assert!(
                        closed || part.notes.iter().any(|note| note.text.contains("no trailer")),
                        "{name} cut at {cut}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_flipped_bit_is_noted_wherever_it_can_be_detected() {
    for file in [fixture("tools"), write(&sessions().remove(2).1).bytes] {
        let whole = read(&file).expect("a session");
        let (before, structure) = (visible_state(&whole.session), shape(&file));
        for at in 0..file.len() {
            // Bits that change the case, a digit, or punctuation, or make invalid UTF-8.
            let bits = [0, 1, 5, 7];
            for bit in if rath_test_support::exhaustive() { &bits[..] } else { &bits[at % 4..][..1] } {
                let mut flipped = file.clone();
                flipped[at] ^= 1 << bit;
                let Ok(read) = read(&flipped) else { continue };
                let is_noted = || read.notes != whole.notes;
                let is_same = || visible_state(&read.session) == before;
                // A changed word, name or number cannot be detected.
                assert!(is_noted() || is_same() || shape(&flipped) == structure, "bit {bit} of byte {at}");
            }
        }
    }
}

/// Returns the structure of a file: its rows and members, with every value replaced by its type.
fn shape(file: &[u8]) -> Option<Vec<String>> {
    fn shape_of(value: &serde_json::Value) -> String {
        match value {
            serde_json::Value::Object(members) => {
                format!("{:?}", members.iter().map(|(name, value)| (name.clone(), shape_of(value))).collect::<Vec<_>>())
            }
            serde_json::Value::Array(list) => format!("{:?}", list.iter().map(shape_of).collect::<Vec<_>>()),
            serde_json::Value::String(_) => "text".to_owned(),
            serde_json::Value::Number(_) => "number".to_owned(),
            other => other.to_string(),
        }
    }
    let lines = file.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| Some(shape_of(&serde_json::from_slice(line).ok()?))).collect()
}

#[test]
fn other_files_are_refused_with_a_hint() {
    let check =
        |file: &str, expected: Expect| expected.assert_eq(&format!("{:?}\n", read(file.as_bytes()).expect_err(file)));
    check(
        "",
        expect![[r#"
            wanted a session file of the Python OpenRath, found an empty file
            hint: its first row, the header, is written when a session begins
        "#]],
    );
    check(
        "hello\n",
        expect![[r#"
            wanted a session file of the Python OpenRath, found hello
            hint: its first row, the header, is cut off or damaged, and there is no other
        "#]],
    );
    check(
        "{\"seal\":\"00\"}\n",
        expect![[r#"
            wanted a session file of the Python OpenRath, found {"seal":"00"}
            hint: this looks like a session file of rath: open it with `Session::open`
        "#]],
    );
    check(
        "{\"a\": 1}\n",
        expect![[r#"
            wanted a session file of the Python OpenRath, found {"a": 1}
            hint: such a file begins with `{"record_type": "header"`
        "#]],
    );
    check(
        "{\"record_type\": \"header\", \"schema_version\": 2}\n",
        expect![[r#"
            wanted a session file of version 1, found version 2
            hint: read it with a newer rath
        "#]],
    );
    check(
        "{\"record_type\": \"trailer\"}\n",
        expect![[r#"
            wanted a session file of the Python OpenRath, found {"record_type": "trailer"}
            hint: such a file begins with `{"record_type": "header"`
        "#]],
    );
}

#[test]
fn damage_in_the_middle_is_noted_at_its_position() {
    let check = |edit: fn(&mut Vec<String>), expected: Expect| {
        let text = String::from_utf8(fixture("tools")).expect("text");
        let mut lines: Vec<String> = text.lines().map(|line| format!("{line}\n")).collect();
        edit(&mut lines);
        let import = read(lines.concat().as_bytes()).expect("a session");
        let own = import
            .notes
            .iter()
            .filter(|note| !note.text.contains("from other sessions") && !note.text.contains("system row"));
        expected.assert_eq(&format!(
            "{}{}\n",
            log(&import.session),
            own.map(|note| format!("- {note}\n")).collect::<String>()
        ));
    };
    check(
        |lines| lines[2] = "garbage\n".to_owned(),
        expect![[r#"
            note: came from the Python OpenRath: {"id":"3724bcc1-2ee1-44e7-97…
            user: How many words are in `to be or not`, and in nothing?
            note: row 3 cannot be read: expected value at line 1 column 1
            note: 1 chunk missing before the one with index 2
            tool result: call_1 ok: {"words": 4}
            tool result: call_2 bad JSON: {"ok": false, "error_kind": "invalid_tool_arguments", "mess…
            assistant calls no_such_tool({})
            tool result: call_3 unknown tool: {"ok": false, "error_kind": "unknown_tool", "message": "unk…
            assistant: Four, and none.  (120 in, 18 out)
            - row 3 cannot be read: expected value at line 1 column 1
            - 1 chunk missing before the one with index 2
            - row 9: counts 7 chunks, and 6 could be read
            - tokens are counted for the whole run: all of them are assigned to its last answer
            - a result for `call_1` matches no open call: it is kept and not shown
            - a result for `call_2` matches no open call: it is kept and not shown

        "#]],
    );
    check(
        |lines| drop(lines.drain(3..5)),
        expect![[r#"
            note: came from the Python OpenRath: {"id":"3724bcc1-2ee1-44e7-97…
            user: How many words are in `to be or not`, and in nothing?
            assistant: Let me count. calls word_count({"text": "to be or not"}), word_count()
            note: 2 chunks missing before the one with index 4
            assistant calls no_such_tool({})
            tool result: call_3 unknown tool: {"ok": false, "error_kind": "unknown_tool", "message": "unk…
            assistant: Four, and none.  (120 in, 18 out)
            tool started: call_1
            tool started: call_2
            - 2 chunks missing before the one with index 4
            - row 7: counts 7 chunks, and 5 could be read
            - tokens are counted for the whole run: all of them are assigned to its last answer
            - call `call_1` (word_count) has no result: it stays open, and whether it took effect is not known
            - call `call_2` (word_count) has no result: it stays open, and whether it took effect is not known

        "#]],
    );
    check(
        |lines| drop(lines.remove(0)),
        expect![[r#"
            user: How many words are in `to be or not`, and in nothing?
            assistant: Let me count. calls word_count({"text": "to be or not"}), word_count()
            tool result: call_1 ok: {"words": 4}
            tool result: call_2 bad JSON: {"ok": false, "error_kind": "invalid_tool_arguments", "mess…
            assistant calls no_such_tool({})
            tool result: call_3 unknown tool: {"ok": false, "error_kind": "unknown_tool", "message": "unk…
            assistant: Four, and none.  (120 in, 18 out)
            - there is no header: the session gets a new id, and its origin is not known
            - tokens are counted for the whole run: all of them are assigned to its last answer

        "#]],
    );
    // A writer that appends to the file of one that died begins a new session. A header alone does not.
    check(
        |lines| {
            let again = lines.clone();
            lines.truncate(3);
            lines.extend(again);
        },
        expect![[r#"
            note: came from the Python OpenRath: {"id":"3724bcc1-2ee1-44e7-97…
            user: How many words are in `to be or not`, and in nothing?
            assistant: Let me count. calls word_count({"text": "to be or not"}), word_count()
            tool result: call_1 ok: {"words": 4}
            tool result: call_2 bad JSON: {"ok": false, "error_kind": "invalid_tool_arguments", "mess…
            assistant calls no_such_tool({})
            tool result: call_3 unknown tool: {"ok": false, "error_kind": "unknown_tool", "message": "unk…
            assistant: Four, and none.  (120 in, 18 out)
            - row 4: is a second header
            - row 5: begins another session: 2 chunks of the one before left out
            - tokens are counted for the whole run: all of them are assigned to its last answer

        "#]],
    );
    check(
        |lines| lines.insert(3, lines[0].clone()),
        expect![[r#"
            note: came from the Python OpenRath: {"id":"3724bcc1-2ee1-44e7-97…
            user: How many words are in `to be or not`, and in nothing?
            assistant: Let me count. calls word_count({"text": "to be or not"}), word_count()
            tool result: call_1 ok: {"words": 4}
            tool result: call_2 bad JSON: {"ok": false, "error_kind": "invalid_tool_arguments", "mess…
            assistant calls no_such_tool({})
            tool result: call_3 unknown tool: {"ok": false, "error_kind": "unknown_tool", "message": "unk…
            assistant: Four, and none.  (120 in, 18 out)
            - row 4: is a second header
            - tokens are counted for the whole run: all of them are assigned to its last answer

        "#]],
    );
}

/// Loads files with the code of the Python OpenRath, and returns what it printed.
fn load(files: &[(&str, Vec<u8>)]) -> String {
    let python = std::env::var_os("RATH_PYTHON").expect("RATH_PYTHON names a Python that has openrath");
    let folder = rath_test_support::temp_dir();
    for (name, file) in files {
        std::fs::write(folder.path().join(name), file).expect("written");
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/interchange/load_openrath.py");
    let names = files.iter().map(|(name, _)| name);
    let output =
        rath_test_support::program(python).arg(script).args(names).current_dir(folder.path()).output().expect("Python");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

#[test]
#[ignore = "needs Python with the package openrath, named by RATH_PYTHON: see CONTRIBUTING.md"]
fn the_python_openrath_loads_what_rath_writes() {
    let files: Vec<_> = sessions().iter().map(|(name, session)| (*name, write(session).bytes)).collect();
    expect![[r#"
        nothing op_create 0 None closed=True
            None
        a question leaf_user 0 None closed=True
            user 'hello' 
            None
        a chat leaf_system 0 None closed=True
            system 'You are terse.' 
            system 'You are terse.' 
            user 'one\u2028two\u2029three\x85four\nfive "six" \\ \U0001f600 \x00' 
            assistant 'hi' 
            (10, 5, 15)
        results to answer leaf_system 0 None closed=True
            system 'You work.' 
            system 'You work.' 
            user 'look around' 
            assistant 'Looking.' ('a', 'ls', '{"z": 1, "a": [1.50, "x"]}') ('b', 'pwd', '') ('a~2', 'ls', 'not json') 
            tool 'x.txt' a
            tool 'no' b
            tool '' a~2
            (100, 20, 120)
        a tool loop leaf_system 0 None closed=True
            system 'You work.' 
            system 'You work.' 
            user 'look around' 
            assistant 'Looking.' ('a', 'ls', '{"z": 1, "a": [1.50, "x"]}') ('b', 'pwd', '') ('a~2', 'ls', 'not json') 
            tool 'x.txt' a
            tool 'no' b
            tool '' a~2
            assistant 'There is' 
            (300, 22, 322)
        open calls leaf_system 0 None closed=True
            system 'You work.' 
            system 'You work.' 
            user 'look around' 
            assistant 'Looking.' ('a', 'ls', '{"z": 1, "a": [1.50, "x"]}') ('b', 'pwd', '') ('a~2', 'ls', 'not json') 
            tool 'x.txt' a
            tool 'no' b
            tool '' a~2
            assistant None ('new', 'rm', '{}') ('begun', 'rm', '{}') ('refused', 'rm', '{}') ('allowed', 'rm', '{}') 
            (100, 20, 120)
        long texts leaf_user 0 None closed=True
            user 'word word word word word word word word word word word word word word 
            assistant 'word word word word word word word word word word word word word word 
            None
        a fork op_fork 1 None closed=True
            system 'You are terse.' 
            system 'You are terse.' 
            user 'one\u2028two\u2029three\x85four\nfive "six" \\ \U0001f600 \x00' 
            assistant 'hi' 
            user 'and now?' 
            (10, 5, 15)
        an untouched fork op_fork 1 None closed=True
            system 'You are terse.' 
            system 'You are terse.' 
            user 'one\u2028two\u2029three\x85four\nfive "six" \\ \U0001f600 \x00' 
            assistant 'hi' 
            (10, 5, 15)
        a merge op_merge 2 None closed=True
            system 'You are terse.' 
            system 'You are terse.' 
            user 'one\u2028two\u2029three\x85four\nfive "six" \\ \U0001f600 \x00' 
            assistant 'hi' 
            user 'meanwhile' 
            user 'and now?' 
            (10, 5, 15)
    "#]]
    .assert_eq(&load(&files));
}

#[test]
#[ignore = "needs Python with the package openrath, named by RATH_PYTHON: see CONTRIBUTING.md"]
fn the_python_openrath_loads_its_own_sessions_written_by_rath() {
    // The Python OpenRath cannot load files with line separators, not even its own.
    let first: Vec<_> =
        ["chat", "tools", "fork", "compressed", "system", "crashed"].map(|name| (name, fixture(name))).into();
    let again = first.iter().map(|(name, file)| (*name, write(&read(file).expect(name).session).bytes));
    let again = load(&again.collect::<Vec<_>>());
    // A file that rath writes is always closed.
    assert_eq!(again, load(&first).replace("closed=False", "closed=True"));
}
