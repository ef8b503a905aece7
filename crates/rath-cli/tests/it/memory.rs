//! Notes that agents keep across runs: `rath memory`, and `rath run --memory`.

use std::io::Write;
use std::path::Path;
use std::process::{Output, Stdio};

use expect_test::{Expect, expect};
use serde_json::{Value, json};

use crate::fixture::{Fixture, for_each_store, normalize};

/// Runs commands, and compares the commands with what they print. Ids of notes are numbered, and days are left out.
fn check_story(folder: &Path, commands: &[&[&str]], ids: &mut Vec<String>, expected: &Expect) {
    let (mut story, began) = (String::new(), day());
    for args in commands {
        let args: Vec<String> = args.iter().map(|arg| with_ids(arg, ids)).collect();
        let words: Vec<&str> = args.iter().map(String::as_str).collect();
        let output = crate::rath(folder, &[&["memory"], &words[..]].concat());
        let out = String::from_utf8_lossy(&output.stdout);
        ids.extend(out.lines().filter(|line| is_id(line)).map(str::to_owned));
        let out: String = out.lines().map(|line| without_score(line) + "\n").collect();
        let err: String = String::from_utf8_lossy(&output.stderr).lines().map(|line| format!("! {line}\n")).collect();
        let code = output.status.code().expect("an exit code");
        story.push_str(&format!("$ {}\n{out}{err}", words.join(" ")));
        story.push_str(&if code == 0 { String::new() } else { format!("exit {code}\n") });
    }
    for (nth, id) in ids.iter().enumerate() {
        story = story.replace(id.as_str(), &format!("ID{}", nth + 1)).replace(&id[..8], &format!("NOTE{}", nth + 1));
    }
    expected.assert_eq(&normalize(folder, &story).replace(&began, "TODAY").replace(&day(), "TODAY"));
}

fn is_id(line: &str) -> bool {
    line.len() == 32 && line.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Replaces the score at the beginning of a line: the search may learn to weigh words otherwise.
fn without_score(line: &str) -> String {
    let rest = line.trim_start_matches(' ');
    match rest.split_once(' ') {
        Some((score, rest)) if line.starts_with(' ') && score.parse::<f32>().is_ok() => format!("  SCORE {rest}"),
        _ => line.to_owned(),
    }
}

/// Replaces `ID1` by the first id, and `NOTE1` by its first digits.
fn with_ids(arg: &str, ids: &[String]) -> String {
    let number = |name: &str| arg.strip_prefix(name)?.parse::<usize>().ok().map(|number| &ids[number - 1]);
    match (number("ID"), number("NOTE")) {
        (Some(id), _) => id.clone(),
        (_, Some(id)) => id[..8].to_owned(),
        _ => arg.to_owned(),
    }
}

/// Returns the present day.
fn day() -> String {
    let since = std::time::UNIX_EPOCH.elapsed().expect("after 1970").as_micros();
    let now = rath::record::Timestamp(i64::try_from(since).expect("a time"));
    now.to_rfc3339().expect("a time")[..10].to_owned()
}

fn json_lines(output: &Output) -> Vec<Value> {
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[test]
fn a_note_is_remembered_found_read_and_forgotten() {
    let folder = rath_test_support::temp_dir();
    let mut ids = Vec::new();
    check_story(
        folder.path(),
        &[
            &["remember", "Deploy on Mondays only.", "--by", "Ann", "--path", "memory://shared/deploy"],
            &["remember", "The user works mostly\nin Python.", "--expires", "30d"],
            &["ls"],
            &["ls", "--under", "memory://shared"],
            &["ls", "--limit", "1"],
            &["recall", "When do we deploy?"],
            &["recall", "When do we deploy?", "--under", "memory://user"],
            &["recall", "favourite food", "--json"],
            &["read", "NOTE1"],
            &["read", "ID2"],
            &["forget", "--query", "deployment"],
            &["forget", "NOTE1"],
            &["read", "ID1"],
            &["read", "NOTE1"],
            &["forget", "ID1"],
            &["recall", "When do we deploy?"],
            &["forget", "--before", "1d"],
            &["forget", "--expired"],
            &["forget", "--before", "0s"],
            &["forget", "--before", "0s", "--yes"],
            &["ls"],
        ],
        &mut ids,
        &expect![[r#"
            $ remember Deploy on Mondays only. --by Ann --path memory://shared/deploy
            ID1
            $ remember The user works mostly
            in Python. --expires 30d
            ID2
            $ ls
            NOTE1  TODAY  Ann: Deploy on Mondays only.
            NOTE2  TODAY  The user works mostly in Python.
            $ ls --under memory://shared
            NOTE1  TODAY  Ann: Deploy on Mondays only.
            $ ls --limit 1
            NOTE2  TODAY  The user works mostly in Python.
            $ recall When do we deploy?
              SCORE  NOTE1  TODAY  Ann: Deploy on Mondays only.
            $ recall When do we deploy? --under memory://user
            ! nothing found by words; `--embeddings MODEL` finds notes by their meaning too
            $ recall favourite food --json
            []
            $ read NOTE1
            note     ID1
            path     memory://shared/deploy
            said by  Ann
            at       TIME

            Deploy on Mondays only.
            $ read ID2
            note     ID2
            path     memory://user
            at       TIME
            expires  TIME

            The user works mostly
            in Python.
            $ forget --query deployment
            would forget NOTE1  TODAY  Ann: Deploy on Mondays only.
            ! error: nothing is forgotten yet
            ! hint: `rath memory forget --query deployment --limit 8 --yes` forgets this note
            exit 4
            $ forget NOTE1
            forgot NOTE1  TODAY  Ann: Deploy on Mondays only.
            $ read ID1
            ! error: note ID1 was forgotten on TODAY
            ! hint: its text is gone for good; a session that it came from has its own copy
            exit 1
            $ read NOTE1
            ! error: there is no note `NOTE1`
            ! hint: `rath memory ls` lists the notes; one that was forgotten is known by its whole id only
            exit 1
            $ forget ID1
            ! note: ID1 was forgotten on TODAY already
            ! nothing to forget
            $ recall When do we deploy?
            ! nothing found by words; `--embeddings MODEL` finds notes by their meaning too
            $ forget --before 1d
            ! nothing to forget
            $ forget --expired
            ! nothing to forget
            $ forget --before 0s
            would forget NOTE2  TODAY  The user works mostly in Python.
            ! error: nothing is forgotten yet
            ! hint: `rath memory forget --before TIME --yes` forgets this note
            exit 4
            $ forget --before 0s --yes
            forgot NOTE2  TODAY  The user works mostly in Python.
            $ ls
        "#]],
    );
}

#[test]
fn only_writing_creates_a_memory() {
    let folder = rath_test_support::temp_dir();
    let reading: [&[&str]; 5] =
        [&["ls"], &["recall", "deploy"], &["read", "1234"], &["forget", "1234"], &["forget", "--expired", "--yes"]];
    check_story(
        folder.path(),
        &reading,
        &mut Vec::new(),
        &expect![[r#"
        $ ls
        ! error: there is no memory here: local:.rath/memory
        ! hint: `rath memory remember 'Deploy on Mondays only.'` begins one
        exit 1
        $ recall deploy
        ! error: there is no memory here: local:.rath/memory
        ! hint: `rath memory remember 'Deploy on Mondays only.'` begins one
        exit 1
        $ read 1234
        ! error: there is no memory here: local:.rath/memory
        ! hint: `rath memory remember 'Deploy on Mondays only.'` begins one
        exit 1
        $ forget 1234
        ! error: there is no memory here: local:.rath/memory
        ! hint: `rath memory remember 'Deploy on Mondays only.'` begins one
        exit 1
        $ forget --expired --yes
        ! error: there is no memory here: local:.rath/memory
        ! hint: `rath memory remember 'Deploy on Mondays only.'` begins one
        exit 1
    "#]],
    );
    let elsewhere = &["ls", "--memory", "local:notes"][..];
    check_story(
        folder.path(),
        &[elsewhere],
        &mut Vec::new(),
        &expect![[r#"
        $ ls --memory local:notes
        ! error: there is no memory here: local:notes
        ! hint: `rath memory remember 'Deploy on Mondays only.' --memory local:notes` begins one
        exit 1
    "#]],
    );
    for args in [&["remember", " "][..], &["remember", "a", "--by", "\n"], &["import", "none.jsonl"]] {
        assert!(!crate::rath(folder.path(), &[&["memory"], args].concat()).status.success(), "{args:?}");
    }
    let entries = std::fs::read_dir(folder.path()).expect("a directory").count();
    assert_eq!(entries, 0, "nothing is created");
}

/// The shown part of an id names its note, and so does each beginning of it that no other note has.
#[test]
fn a_note_is_named_by_any_beginning_of_what_is_shown() {
    let ids = ["ab", "abc", "0123456789abcdef", "0123456799abcdef", "x\u{202e}y-1", "fedcba9876543210"];
    let several = |start: &str, ids: &str| format!("error: several notes begin with `{start}`: {ids}");
    for (start, expected) in [
        ("ab", "ab"),
        ("abc", "abc"),
        ("a", &several("a", "ab, abc")),
        ("0", &several("0", "0123456789abcdef, 0123456799abcdef")),
        ("01234567", &several("01234567", "0123456789abcdef, 0123456799abcdef")),
        ("012345678", "0123456789abcdef"),
        ("f", "fedcba9876543210"),
        ("fedcba98", "fedcba9876543210"),
        ("x", "x\u{202e}y-1"),
        (r"x\u{202e}y-1", "x\u{202e}y-1"),
        ("z", "error: there is no note `z`"),
    ] {
        let folder = rath_test_support::temp_dir();
        let lines: String = ids.iter().map(|id| json!({"id": id, "text": "a text"}).to_string() + "\n").collect();
        assert!(import(folder.path(), lines.as_bytes()).status.success());
        let output = crate::rath(folder.path(), &["memory", "forget", start, "--json"]);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        let found = match json_lines(&output).first() {
            Some(json) => json["forgotten"][0].as_str().expect("an id").to_owned(),
            None => errors.lines().next().expect("an error").to_owned(),
        };
        assert_eq!(found, expected, "{start}: {errors}");
    }
}

/// A note of which a part cannot be read is named with its path, and its exit code is another one than that of a forgotten note.
#[test]
fn a_damaged_note_is_named_and_not_taken_for_a_whole_or_a_forgotten_one() {
    for damage in [
        "UPDATE notes SET text = zeroblob(30) WHERE id = 'gate'",
        "UPDATE notes SET at = 'x' WHERE id = 'gate'",
        "UPDATE notes SET expires = 'x' WHERE id = 'gate'",
        "UPDATE notes SET thread = 77 WHERE id = 'gate'",
        "UPDATE notes SET path = 77 WHERE id = 'gate'",
        "UPDATE names SET text = x'ff' WHERE name = (SELECT path FROM notes WHERE id = 'gate')",
    ] {
        let folder = rath_test_support::temp_dir();
        let lines = "{\"id\": \"gate\", \"text\": \"The gate is red.\", \"path\": \"memory://shared/gate\"}
            {\"id\": \"door\", \"text\": \"The door is green.\"}\n";
        assert!(import(folder.path(), lines.as_bytes()).status.success());
        let file = rusqlite::Connection::open(folder.path().join(".rath/memory/notes.db")).expect("a database");
        file.execute_batch(damage).expect("it is a statement");
        drop(file);
        let rath = |args: &[&str]| {
            let output = crate::rath(folder.path(), &[&["memory"], args].concat());
            let [out, err] = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
            (out, err, output.status.code())
        };
        let (listed, _, code) = rath(&["ls"]);
        let marked = listed.lines().filter(|line| line.contains("damaged: ")).collect::<Vec<_>>();
        assert!(code == Some(0) && marked.len() == 1 && marked[0].starts_with("gate "), "{damage}: {listed}");
        let (_, error, code) = rath(&["read", "gate"]);
        let path = if damage.contains("path") { "memory://user" } else { "memory://shared/gate" };
        let expected = format!(
            "error: note gate at {path} is damaged: a part of it cannot be read\n\
             hint: what is left of it is shown; `rath memory forget gate` removes it\n"
        );
        assert_eq!((error, code), (expected, Some(3)), "{damage}");
        let printed: Value = serde_json::from_str(&rath(&["read", "gate", "--json"]).0).expect("JSON");
        assert_eq!(printed["damaged"], true, "{damage}");
        assert_eq!(rath(&["read", "door"]).2, Some(0), "{damage}");
        assert_eq!(rath(&["recall", "green door"]).2, Some(0), "{damage}");
        assert_eq!(rath(&["forget", "gate"]).2, Some(0), "{damage}");
        assert_eq!(rath(&["read", "gate"]).2, Some(1), "{damage}: it was forgotten");
    }
}

/// No message has the words of SQLite, and each says what to do.
#[test]
fn a_damaged_memory_says_so_in_its_own_words() {
    for damage in [
        "UPDATE counts SET value = 'x' WHERE name = 'analysis'",
        "UPDATE counts SET value = x'ff'; INSERT OR REPLACE INTO counts VALUES ('position', x'ff')",
        "INSERT INTO segments VALUES (1, 'x', x'ff')",
        "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET rootpage = 3 WHERE name = 'notes'",
    ] {
        let folder = rath_test_support::temp_dir();
        assert!(crate::rath(folder.path(), &["memory", "remember", "The gate is red."]).status.success());
        let file = rusqlite::Connection::open(folder.path().join(".rath/memory/notes.db")).expect("a database");
        file.execute_batch(damage).expect("it is a statement");
        drop(file);
        for args in [&["ls"][..], &["recall", "gate"], &["remember", "a door"]] {
            let output = crate::rath(folder.path(), &[&["memory"], args].concat());
            let errors = String::from_utf8_lossy(&output.stderr).into_owned();
            if output.status.success() {
                continue;
            }
            assert_eq!(output.status.code(), Some(3), "{damage}, {args:?}: {errors}");
            let raw = ["column", "database disk image", "malformed", "SQLite", "Blob"];
            assert!(raw.iter().all(|word| !errors.contains(word)), "{damage}, {args:?}: {errors}");
            assert!(
                errors.contains("notes.db: ") && errors.contains("\nhint: put a copy"),
                "{damage}, {args:?}: {errors}"
            );
        }
    }
}

/// Runs an import of these lines from stdin.
fn import(folder: &Path, lines: &[u8]) -> Output {
    let mut command = rath_test_support::program(crate::program_path());
    command.args(["memory", "import", "-"]).current_dir(folder);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("rath runs");
    // The program may end before it has read all.
    let _ = child.stdin.take().expect("a pipe").write_all(lines);
    child.wait_with_output().expect("rath ends")
}

#[test]
fn a_file_of_notes_is_imported_once_and_whole() {
    let folder = rath_test_support::temp_dir();
    let lines = [
        json!({"text": "Caroline goes to a support group.", "speaker": "Caroline", "at": "2023-05-07T13:56:00Z"}),
        json!({"text": "Melanie paints sunsets.", "said_by": "Melanie", "at": 1_683_467_820_000_000_i64, "thread": "one"}),
        json!({"text": "Deploy on Mondays.", "id": "deploy-1", "path": "memory://shared/docs", "expires": "2999-01-01"}),
        json!({"text": "Ship on Fridays.", "id": "deploy-2"}),
    ];
    let file = lines.map(|line| format!("{line}\n\n")).concat();
    std::fs::write(folder.path().join("notes.jsonl"), file).expect("written");
    check_story(
        folder.path(),
        &[
            &["import", "notes.jsonl"],
            &["import", "notes.jsonl"],
            &["read", "deploy"],
            &["read", "dep"],
            &["forget", "deploy-1"],
            &["import", "notes.jsonl"],
            &["import", "notes.jsonl", "--json"],
            &["recall", "sunset painting", "--limit", "1"],
        ],
        &mut Vec::new(),
        &expect![[r#"
            $ import notes.jsonl
            4 notes written, 0 known already
            $ import notes.jsonl
            0 notes written, 4 known already
            $ read deploy
            ! error: several notes begin with `deploy`: deploy-1, deploy-2
            ! hint: write more of the id
            exit 1
            $ read dep
            ! error: several notes begin with `dep`: deploy-1, deploy-2
            ! hint: write more of the id
            exit 1
            $ forget deploy-1
            forgot deploy-1              Deploy on Mondays.
            $ import notes.jsonl
            0 notes written, 3 known already
            ! note: 1 note left out: forgotten before
            $ import notes.jsonl --json
            {"forgotten":1,"known":3,"written":0}
            $ recall sunset painting --limit 1
              SCORE  19630a05  2023-05-07  Melanie: Melanie paints sunsets.
        "#]],
    );
    // The notes that are printed can be imported elsewhere.
    let printed = crate::rath(folder.path(), &["memory", "ls", "--json"]);
    let other = rath_test_support::temp_dir();
    assert!(import(other.path(), &printed.stdout).status.success());
    assert_eq!(crate::rath(other.path(), &["memory", "ls", "--json"]).stdout, printed.stdout);
    let times: Vec<_> = json_lines(&printed).iter().map(|note| note["at"].clone()).collect();
    assert_eq!(times, [json!("2023-05-07T13:56:00Z"), json!("2023-05-07T13:57:00Z"), Value::Null]);
}

#[test]
fn a_bad_line_is_named_and_nothing_is_imported() {
    let folder = rath_test_support::temp_dir();
    let long = "a".repeat(70_000);
    let rows: [(String, &str); 13] = [
        (r#"{"text": "a", "text": "b", "from": {"session": "s", "step": "t"}}"#.to_owned(), "duplicate field `text`"),
        (r#"{"from": null, "id": "a", "text": "b", "id": "c"}"#.to_owned(), "duplicate field `id`"),
        ("nonsense".to_owned(), "wanted a JSON object"),
        (r#"[null, null, "a"]"#.to_owned(), "wanted a JSON object"),
        (r#"{"text": 3}"#.to_owned(), "invalid type: integer `3`, expected a string at column 10"),
        (r#"{"txt": "a"}"#.to_owned(), "unknown field `txt`"),
        (r#"{"text": " "}"#.to_owned(), "a note needs a text"),
        (r#"{"text": "a", "at": "yesterday"}"#.to_owned(), "`at`: wanted a time such as"),
        (r#"{"text": "a", "id": "\u001b[31m"}"#.to_owned(), r"without spaces, found `\u{1b}[31m`"),
        (r#"{"text": "a", "path": "memory://other"}"#.to_owned(), "is no path of a note"),
        (format!(r#"{{"text": "{long}"}}"#), "a note has at most 65536 bytes of text, found 70000"),
        (format!(r#"{{"text": "a", "id": "{long}"}}"#), "wanted 1 to 128 bytes"),
        ("a".repeat(3 << 20), "it has more than 1048576 bytes"),
    ];
    for (line, wanted) in rows {
        let output = import(folder.path(), format!("{{\"text\": \"good\"}}\n\n{line}\n").as_bytes());
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        let is_named = said.starts_with("error: stdin, line 3: ") && said.contains(wanted);
        assert!(is_named && said.contains("hint: nothing is imported") && said.len() < 1000, "{wanted}: {said}");
    }
    assert!(!folder.path().join(".rath").exists(), "nothing is created");
}

#[test]
fn no_note_holds_a_secret_of_the_user() {
    let folder = rath_test_support::temp_dir();
    let line = json!({"text": "canary-8d1f0c7e again", "said_by": "canary-8d1f0c7e"}).to_string();
    std::fs::write(folder.path().join("notes.jsonl"), line).expect("written");
    for args in [["remember", "The key is canary-8d1f0c7e."], ["import", "notes.jsonl"]] {
        let mut command = rath_test_support::program(crate::program_path());
        command.arg("memory").args(args).env("SERVICE_TOKEN", "canary-8d1f0c7e").current_dir(folder.path());
        assert!(command.output().expect("rath runs").status.success(), "{args:?}");
    }
    let printed = crate::printed(folder.path(), &["memory", "ls", "--json"]);
    assert!(printed.lines().count() == 2 && !printed.contains("canary"), "{printed}");
}

/// Runs an agent that answers once, with a memory.
fn run_with_memory(fixture: &Fixture, prompt: &str, answer: &Value) -> Output {
    fixture.script(&format!("{answer}\n"));
    let model = ["--model", "script:script.jsonl", "--sandbox", "none", "--memory", "local:.rath/memory"];
    fixture.rath(&[&["run", prompt], &model[..]].concat())
}

#[test]
fn an_agent_knows_in_the_next_process_what_was_said_in_this_one() {
    for_each_store("", |fixture| {
        let output = run_with_memory(fixture, "We deploy on Mondays only.", &json!({"text": "I see."}));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let first = fixture.newest();
        let knows = json!({"text": "On Mondays.", "expect": {"contains": ["We deploy on Mondays only."]}});
        let output = run_with_memory(fixture, "When do we deploy?", &knows);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let second = fixture.newest();
        assert_eq!(fixture.code(&["replay", &second]), 0);

        // A note leads to the step that it came from.
        let memory = |args: &[&str]| crate::rath(&fixture.path(""), &[&["memory"], args].concat());
        let recalled = memory(&["recall", "deploy on Mondays only", "--limit", "1"]);
        let text = String::from_utf8_lossy(&recalled.stdout).into_owned();
        let command = text.split('`').nth(1).and_then(|command| command.strip_prefix("rath ")).expect("a command");
        let step = fixture.out(&command.split(' ').collect::<Vec<_>>());
        assert!(step.contains("kind     user") && step.ends_with("\nWe deploy on Mondays only.\n"), "{text}{step}");

        // It goes on with its memory, and no other session is forgotten with it.
        fixture.script(&json!({"text": "Yes."}).to_string());
        let model = ["--model", "script:script.jsonl", "--memory", "local:.rath/memory"];
        assert_eq!(fixture.code(&[&["resume", &second, "Is Friday a holiday?"], &model[..]].concat()), 0);
        assert_eq!(json_lines(&memory(&["ls", "--json"])).len(), 6);
        assert_eq!(memory(&["forget", "--session", &first]).status.code(), Some(4));
        let forgotten = memory(&["forget", "--session", &first, "--yes", "--json"]);
        assert_eq!(json_lines(&forgotten)[0]["forgotten"].as_array().map(Vec::len), Some(2));
        assert_eq!(json_lines(&memory(&["ls", "--json"])).len(), 4);
    });
}

#[test]
fn an_agent_without_the_option_has_no_memory() {
    for_each_store("", |fixture| {
        fixture.script(&json!({"text": "Hello."}).to_string());
        assert_eq!(fixture.code(&["run", "Hi", "--model", "script:script.jsonl", "--sandbox", "none"]), 0);
        assert!(!fixture.path(".rath/memory").exists());
    });
}

#[test]
fn tools_cannot_write_the_memory() {
    for_each_store("{\"text\": \"Hello.\"}", |fixture| {
        let args = ["run", "Hi", "--model", "script:script.jsonl", "--sandbox", "local:work", "--memory"];
        fixture.check(
            &[&args[..], &["local:work/notes"]].concat(),
            &expect![[r#"
                ! error: tools could write the memory work/notes, which is in their directory
                ! hint: `--memory local:.rath/notes` is out of their reach
                exit 1
            "#]],
        );
        assert!(!fixture.path("work/notes").exists());
    });
}

/// A hint that is pasted forgets the notes that were shown, and no others.
#[test]
fn the_hint_of_forget_forgets_what_was_shown() {
    let folder = rath_test_support::temp_dir();
    let rath = |args: &[&str]| crate::rath(folder.path(), &[&["memory"], args].concat());
    let line = |nth: usize| json!({"text": format!("zebra number {nth}"), "at": format!("2026-01-{:02}", nth + 1)});
    let notes: String = (0..12).map(|nth| line(nth).to_string() + "\n").collect();
    std::fs::write(folder.path().join("notes.jsonl"), notes).expect("written");
    for (options, shown) in [
        (&["--query", "zebra", "--limit", "2"][..], 2),
        (&["--query", "zebra", "--limit", "20"], 10),
        (&["--query=-zebra", "--limit", "2"], 2),
        (&["--before", "2026-01-05"], 4),
        (&["--before", "1d"], 12),
        (&["--keep", "3"], 9),
    ] {
        if options != ["--query", "zebra", "--limit", "20"] {
            let _ = std::fs::remove_dir_all(folder.path().join(".rath"));
            assert!(rath(&["import", "notes.jsonl"]).status.success());
        }
        let output = rath(&[&["forget"], options].concat());
        assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), shown, "{options:?}");
        let hint = String::from_utf8_lossy(&output.stderr).into_owned();
        let command = hint.split('`').nth(1).expect("a command").replace("rath memory ", "");
        let pasted = rath(&command.split(' ').collect::<Vec<_>>());
        let forgot = |line: &&str| line.starts_with("forgot ");
        let text = String::from_utf8_lossy(&pasted.stdout).into_owned();
        assert_eq!(text.lines().filter(forgot).count(), shown, "{command}");
    }
}

/// Old versions, and notes whose time is over, are found by no question; forgetting finds them.
#[test]
fn forgetting_by_a_question_finds_versions_that_questions_do_not() {
    let folder = rath_test_support::temp_dir();
    let notes = [
        json!({"id": "o1", "text": "old: the quetzal lives here"}),
        json!({"id": "o2", "text": "new: nothing of it", "replaces": "o1"}),
        json!({"id": "c1", "text": "a quetzal in a circle", "replaces": "c2"}),
        json!({"id": "c2", "text": "another quetzal in it", "replaces": "c1"}),
        json!({"id": "k", "text": "a zebra"}),
    ];
    let lines: String = notes.iter().map(|note| format!("{note}\n")).collect();
    std::fs::write(folder.path().join("notes.jsonl"), lines).expect("written");
    let rath = |args: &[&str]| crate::rath(folder.path(), &[&["memory"], args].concat());
    assert!(rath(&["import", "notes.jsonl"]).status.success());
    // All that would be removed is shown, and a text may be that of an old version.
    for (question, shown) in [("quetzal", "c1 c2 o1 o2"), ("new nothing", "o1 o2"), ("old", "o1 o2"), ("zebra", "k")] {
        let output = rath(&["forget", "--query", question, "--limit", "3", "--json"]);
        let listed = json_lines(&output)[0]["would_forget"].clone();
        let mut listed: Vec<&str> = listed.as_array().expect("ids").iter().filter_map(Value::as_str).collect();
        listed.sort_unstable();
        assert_eq!(listed.join(" "), shown, "{question}");
    }
    let output = rath(&["forget", "--query", "old quetzal", "--limit", "1", "--json"]);
    assert_eq!(json_lines(&output)[0]["would_forget"], json!(["o1", "o2"]));
    assert!(rath(&["forget", "--query", "quetzal", "--yes"]).status.success());
    let left = String::from_utf8_lossy(&rath(&["ls"]).stdout).into_owned();
    assert!(left.contains("zebra") && left.lines().count() == 1, "{left}");
    let files = std::fs::read_dir(folder.path().join(".rath/memory")).expect("files");
    let bytes: Vec<u8> = files.flat_map(|file| std::fs::read(file.expect("a file").path()).expect("read")).collect();
    assert!(!String::from_utf8_lossy(&bytes).contains("quetzal"));
}

#[test]
fn a_run_whose_memory_fails_says_so() {
    let folder = rath_test_support::temp_dir();
    std::fs::write(folder.path().join("script.jsonl"), "{\"text\": \"Hello.\"}\n").expect("written");
    assert!(crate::rath(folder.path(), &["memory", "remember", "x"]).status.success());
    let file = rusqlite::Connection::open(folder.path().join(".rath/memory/notes.db")).expect("a database");
    file.execute_batch("INSERT OR REPLACE INTO counts(name, value) VALUES ('position', -1)").expect("damaged");
    let run = ["run", "Hi", "--model", "script:script.jsonl", "--sandbox", "none", "--memory", "local:.rath/memory"];
    let output = crate::rath(folder.path(), &run);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && errors.contains("warning: memory: "), "{errors}");
}

/// A note that is forgotten in the session too does not make its replay fail.
#[test]
fn a_replay_says_that_a_recalled_note_was_forgotten() {
    let folder = rath_test_support::temp_dir();
    let rath = |args: &[&str]| crate::rath(folder.path(), args);
    let out = |args: &[&str]| String::from_utf8_lossy(&rath(args).stdout).into_owned();
    std::fs::write(folder.path().join("script.jsonl"), "{\"text\": \"Ada.\"}\n").expect("written");
    let run = ["--model", "script:script.jsonl", "--sandbox", "none", "--memory", "local:.rath/memory"];
    assert!(rath(&[&["run", "Hi"], &run[..]].concat()).status.success());
    assert!(rath(&["memory", "remember", "Ada breeds alpacas."]).status.success());
    let listed: Value = serde_json::from_str(out(&["ls", "--json"]).lines().next().expect("a line")).expect("JSON");
    let session = listed["session"].as_str().expect("an id");
    std::fs::write(folder.path().join("script.jsonl"), "{\"text\": \"Ada.\"}\n".repeat(2)).expect("written");
    assert!(rath(&[&["resume", session, "Who has alpacas?"], &run[..]].concat()).status.success());
    assert_eq!(out(&["replay", session]), "exact: 2 requests\n");
    assert!(rath(&["memory", "forget", "--query", "alpacas", "--yes"]).status.success());
    assert_eq!(out(&["replay", session]), "exact: 2 requests\n");
    let log = out(&["log", "-v", session]);
    let recall = log.lines().find(|line| line.contains("recall: Who has alpacas? (1 found")).expect("a recall");
    let step = recall.split_whitespace().nth(1).expect("an id");
    assert!(rath(&["forget", session, step]).status.success());
    let replayed = rath(&["replay", session]);
    let text = "exact: 1 request; 1 request cannot be compared: a text was forgotten\n";
    assert_eq!((String::from_utf8_lossy(&replayed.stdout).as_ref(), replayed.status.code()), (text, Some(0)));
    assert!(out(&["replay", session, "--json"]).contains(r#""forgotten_requests":1"#));
}

#[test]
fn a_secret_is_stored_in_no_part_of_a_note() {
    let folder = rath_test_support::temp_dir();
    let secret = "correct-horse-4711-battery";
    let run = |args: &[&str]| {
        let mut command = rath_test_support::program(env!("CARGO_BIN_EXE_rath"));
        command.current_dir(folder.path()).env("MY_API_KEY", secret).arg("memory").args(args);
        command.output().expect("rath runs")
    };
    assert!(run(&["remember", &format!("the key is {secret}"), "--by", secret]).status.success());
    let path = format!("memory://user/{secret}");
    assert_eq!(run(&["remember", "x", "--path", &path]).status.code(), Some(2));
    let whole = json!({"text": "x", "id": secret, "thread": secret, "source": {"session": secret, "steps": [secret]}});
    for name in ["id", "thread", "source"] {
        let line = json!({"text": "x", name: whole[name]});
        std::fs::write(folder.path().join("notes.jsonl"), line.to_string()).expect("written");
        let output = run(&["import", "notes.jsonl"]);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(errors.contains("holds a secret") && !errors.contains(secret), "{name}: {errors}");
    }
    let files = std::fs::read_dir(folder.path().join(".rath/memory")).expect("files");
    let bytes: Vec<u8> = files.flat_map(|file| std::fs::read(file.expect("a file").path()).expect("read")).collect();
    assert!(!String::from_utf8_lossy(&bytes).contains(secret));
}

/// Imports notes, and returns the ids that are left after a command, with its exit code.
fn left_after(notes: &[Value], args: &[&str]) -> (String, Option<i32>) {
    let folder = rath_test_support::temp_dir();
    let lines: String = notes.iter().map(|note| format!("{note}\n")).collect();
    assert!(import(folder.path(), lines.as_bytes()).status.success());
    let code = crate::rath(folder.path(), &[&["memory"], args].concat()).status.code();
    let left = json_lines(&crate::rath(folder.path(), &["memory", "ls", "--json"]));
    let left: Vec<&str> = left.iter().filter_map(|note| note["id"].as_str()).collect();
    (left.join(" "), code)
}

#[test]
fn forgetting_by_a_question_leaves_no_copy_of_a_text() {
    let copies =
        (0..40).map(|nth| json!({"id": format!("c{nth}"), "text": "a zebra sleeps", "thread": format!("t{nth}")}));
    let others = [json!({"id": "o", "text": "a zebra runs"}), json!({"id": "p", "text": "a plant"})];
    let notes: Vec<Value> = copies.chain(others).collect();
    assert_eq!(
        left_after(&notes, &["forget", "--query", "zebra sleeps", "--limit", "1", "--yes"]),
        ("o p".to_owned(), Some(0))
    );
    // The limit is for notes that questions find, and for others, together.
    let notes = [
        json!({"id": "there", "text": "a zebra sleeps"}),
        json!({"id": "over", "text": "a zebra runs about", "expires": 1}),
        json!({"id": "p", "text": "a plant"}),
    ];
    assert_eq!(
        left_after(&notes, &["forget", "--query", "zebra sleeps", "--limit", "1", "--yes"]),
        ("over p".to_owned(), Some(0))
    );
}

/// The session of a note is the one that its fork and its merge began with; they are named by their own ids.
#[test]
fn a_fork_is_a_session_whose_notes_are_forgotten_and_cited() {
    let [root, fork] = ["0197f3a2-8c1d-7e44-b1f0-2023a97c11d5", "0197f3a2-9999-7e44-b1f0-2023a97c11d6"];
    let source = json!({"session": root, "steps": ["ab12"]});
    let notes = [
        json!({"id": "root", "text": "one", "thread": root, "source": source}),
        json!({"id": "fork", "text": "two", "thread": fork, "source": source}),
        json!({"id": "fact", "text": "three", "thread": format!("{fork}/ab12"), "source": source}),
        json!({"id": "other", "text": "four", "thread": fork}),
    ];
    for (session, left, code) in [
        (fork, "root other", 0),
        ("c11d6", "root other", 0),
        (root, "other", 0),
        ("0197f3a2", "root fork fact other", 1),
        ("0197dddd", "root fork fact other", 1),
    ] {
        let wanted = (left.to_owned(), Some(code));
        assert_eq!(left_after(&notes, &["forget", "--session", session, "--yes"]), wanted, "{session}");
    }
    let folder = rath_test_support::temp_dir();
    assert!(import(folder.path(), notes.map(|note| format!("{note}\n")).concat().as_bytes()).status.success());
    let cited: Vec<Value> = [&["ls", "--json"][..], &["read", "fork", "--json"]]
        .iter()
        .flat_map(|args| json_lines(&crate::rath(folder.path(), &[&["memory"], *args].concat())))
        .map(|note| note["from"].clone())
        .collect();
    let from = |session: &str| json!({"session": session, "step": "ab12"});
    assert_eq!(cited, [from(root), from(fork), from(fork), Value::Null, from(fork)]);
    let recalled = json_lines(&crate::rath(folder.path(), &["memory", "recall", "three", "--json"]));
    assert_eq!(recalled[0][0]["from"], from(fork));
}

#[test]
fn a_limit_on_age_or_number_keeps_newer_versions() {
    let notes = [
        json!({"id": "v1", "text": "port 80", "at": "2026-01-01", "expires": "2026-01-02"}),
        json!({"id": "v2", "text": "port 81", "at": "2026-02-01", "replaces": "v1"}),
    ];
    for (args, left) in [
        (&["--before", "2026-01-15"][..], "v2"),
        (&["--keep", "1"], "v2"),
        (&["--expired"], "v2"),
        (&["--query", "80"], ""),
    ] {
        let args = [&["forget", "--yes"], args].concat();
        assert_eq!(left_after(&notes, &args), (left.to_owned(), Some(0)), "{args:?}");
    }
}

#[test]
fn what_is_over_before_it_begins_is_no_note_and_a_byte_order_mark_is_no_text() {
    let folder = rath_test_support::temp_dir();
    assert!(import(folder.path(), b"\xef\xbb\xbf{\"text\": \"one\"}\n{\"text\": \"two\"}\n").status.success());
    let remember = ["memory", "remember", "late", "--expires", "2001-01-01"];
    let output = crate::rath(folder.path(), &remember);
    assert_eq!(String::from_utf8_lossy(&output.stderr).lines().next(), Some("error: `--expires` is in the past"));
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(json_lines(&crate::rath(folder.path(), &["memory", "ls", "--json"])).len(), 2);
}

/// A memory that is named is wanted: the run does not begin without it.
#[test]
fn a_memory_that_cannot_be_opened_is_an_error_before_anything_starts() {
    for_each_store("{\"text\": \"Hello.\"}", |fixture| {
        std::fs::create_dir_all(fixture.path("bad")).expect("a directory");
        std::fs::write(fixture.path("bad/notes.db"), "no database, but a text of some length").expect("written");
        let model = ["--model", "script:script.jsonl", "--sandbox", "none", "--memory", "local:bad"];
        let output = fixture.rath(&[&["run", "Hi"], &model[..]].concat());
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            !output.status.success() && errors.starts_with("error: ") && errors.contains("bad/notes.db: "),
            "{errors}"
        );
        assert_eq!(fixture.out(&["ls", "--json"]), "");
    });
}
