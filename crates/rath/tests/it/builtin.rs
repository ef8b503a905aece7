//! The built-in tools: their specifications and their outputs.

use std::path::Path;

use expect_test::{Expect, expect};
use rath::prelude::*;
use rath::tool::{Nature, builtin};
use rath::view;
use serde_json::{Value, json};

use crate::support::{block_on, script};

/// Creates a workspace with these files.
pub(crate) fn workspace(files: &[(&str, &str)]) -> rath_test_support::TempDir {
    let folder = rath_test_support::temp_dir();
    for (path, text) in files {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a directory");
        std::fs::write(path, text).expect("a file");
    }
    folder
}

/// Makes these calls one after the other, and returns the results that the model reads.
pub(crate) fn transcript(folder: &Path, calls: &[(&str, Value)]) -> String {
    let place = Sandbox::local(folder);
    let turn =
        |(name, arguments): &(&str, Value)| json!({"calls": [{"name": name, "arguments": arguments}]}).to_string();
    let provider = script(calls.iter().map(turn).chain([r#"{"text": "done"}"#.to_owned()]));
    let agent = Agent::new("Go.", &provider).tools(builtin::all());
    let session = block_on(agent.run(Session::user("go").to(place))).expect("a run");
    let results = session.chunks().filter_map(|chunk| match chunk {
        Chunk::ToolResult(result) => Some(format!("{:?}: {}\n", result.outcome, result.output)),
        _ => None,
    });
    let told = results.collect::<String>().replace('\r', "\\r");
    assert!(!told.contains(folder.to_str().expect("UTF-8")), "a path of this machine: {told}");
    told
}

pub(crate) fn check(folder: &Path, calls: &[(&str, Value)], expected: Expect) {
    expected.assert_eq(&transcript(folder, calls));
}

#[test]
fn the_specification_of_each_tool() {
    let provider = script([r#"{"text": "done"}"#]);
    let names = |tools: rath::tool::Tools| tools.names().map(str::to_owned).collect::<Vec<_>>().join(" ");
    expect!["read_file list_files file_exists search_files"].assert_eq(&names(builtin::read_only()));
    expect!["read_file list_files file_exists search_files write_file edit_file apply_patch"]
        .assert_eq(&names(builtin::files()));
    expect![
        "read_file list_files file_exists search_files write_file edit_file apply_patch shell run_code check commit"
    ]
    .assert_eq(&names(builtin::all()));
    let agent = Agent::new("Go.", &provider).tools(builtin::all());
    let session = block_on(agent.run(Session::user("go"))).expect("a run");
    let (_, told) = view::instructions(session.as_record()).expect("instructions");
    // Their tokens are paid for with every request.
    let bytes: usize = told.tools.iter().map(|tool| tool.description.len() + tool.parameters.as_str().len()).sum();
    assert!(bytes < 7_000, "{bytes} bytes");
    let nothing = json!({});
    assert_eq!(builtin::SearchFiles.nature(&nothing), Nature::ReadOnly);
    assert_eq!(builtin::WriteFile.nature(&nothing), Nature::Idempotent { key: None });
    assert_eq!(builtin::EditFile.nature(&nothing), Nature::Effectful);
    assert_eq!(builtin::RunCode.nature(&nothing), Nature::Effectful);
}

#[test]
fn the_guide_has_the_arguments_of_each_tool() {
    let guide = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/agents.md");
    let guide = std::fs::read_to_string(guide).expect("the guide");
    let arguments = |spec: &rath::chunk::ToolSpec| {
        let schema: Value = serde_json::from_str(spec.parameters.as_str()).expect("JSON");
        let is_required = |name: &str| schema["required"].as_array().is_some_and(|all| all.iter().any(|it| it == name));
        let name = |name: &String| match is_required(name) {
            true => format!("`{name}`"),
            false => format!("`[{name}]`"),
        };
        let mut names: Vec<_> = schema["properties"].as_object().expect("an object").keys().map(name).collect();
        names.sort();
        names
    };
    let rows = guide.lines().filter(|line| line.starts_with('|')).map(|line| line.split('|').map(str::trim).collect());
    let rows: Vec<Vec<&str>> = rows.collect();
    let known: Vec<_> = builtin::all()
        .specs()
        .map(|spec| {
            let named = format!("`{}`", spec.name);
            let row = rows.iter().find(|row| row.get(2) == Some(&named.as_str()) && row.len() == 6);
            let row = row.unwrap_or_else(|| panic!("the guide has no row for {named}"));
            let mut told: Vec<_> = row[3].split(", ").map(str::to_owned).collect();
            told.sort();
            assert_eq!(told, arguments(spec), "{named}");
            named
        })
        .collect();
    let table = rows.iter().filter(|row| row.len() == 6 && row[2].starts_with('`')).map(|row| row[2]);
    assert_eq!(table.collect::<Vec<_>>(), known, "the order of the sets");
}

#[test]
fn a_file_is_read_whole_or_in_lines() {
    let folder = workspace(&[("a", "one\ntwo\nthree\n"), ("open", "one\ntwo"), ("empty", ""), ("crlf", "a\r\nb\r\n")]);
    std::fs::write(folder.path().join("latin"), b"gr\xfc\xdfe").expect("a file");
    let read = |path: &str| ("read_file", json!({"path": path}));
    let lines =
        |path: &str, from: u64, lines: u64| ("read_file", json!({"path": path, "offset": from, "limit": lines}));
    check(
        folder.path(),
        &[
            read("a"),
            read("empty"),
            read("crlf"),
            read("latin"),
            lines("a", 1, 1),
            lines("a", 2, 2),
            lines("a", 2, 99),
            lines("a", 1, 3),
            lines("a", 4, 1),
            lines("open", 2, 1),
            lines("open", 3, 1),
            lines("empty", 1, 1),
            lines("empty", 2, 1),
            lines("latin", 1, 1),
            ("read_file", json!({"path": "a", "offset": 3})),
            ("read_file", json!({"path": "a", "limit": 2})),
            ("read_file", json!({"path": "a", "offset": 0})),
        ],
        expect![[r#"
            Ok: one
            two
            three

            Ok: 
            Ok: a\r
            b\r

            Failed: failed: cannot read `latin`: it is not UTF-8 text
            Ok: [line 1 of 3]
            one

            Ok: [lines 2 to 3 of 3]
            two
            three

            Ok: [lines 2 to 3 of 3]
            two
            three

            Ok: one
            two
            three

            Failed: failed: cannot read `a`: it has 3 lines, and no line 4
            Ok: [line 2 of 2]
            two
            Failed: failed: cannot read `open`: it has 2 lines, and no line 3
            Ok: 
            Failed: failed: cannot read `empty`: it has 0 lines, and no line 2
            Failed: failed: cannot read `latin`: it is not UTF-8 text
            Ok: [line 3 of 3]
            three

            Ok: [lines 1 to 2 of 3]
            one
            two

            BadArguments: bad arguments: `offset`: wanted at least 1, found 0
        "#]],
    );
}

#[test]
fn a_file_of_any_length_is_read_in_parts() {
    let folder = workspace(&[]);
    let line = "x".repeat(99);
    std::fs::write(folder.path().join("long"), format!("{line}\n").repeat(20_000)).expect("a file");
    std::fs::write(folder.path().join("wide"), format!("a\n{}\nb\n", "ä".repeat(2_000_000))).expect("a file");
    let huge = std::fs::File::create(folder.path().join("huge")).expect("a file");
    huge.set_len(1 << 40).expect("a terabyte of nothing");
    check(
        folder.path(),
        &[
            ("read_file", json!({"path": "long"})),
            ("read_file", json!({"path": "long", "offset": 20_000, "limit": 5})),
            ("read_file", json!({"path": "wide", "offset": 3})),
            ("read_file", json!({"path": "huge"})),
            ("read_file", json!({"path": "huge", "offset": 2, "limit": 1})),
        ],
        expect![[r#"
            Failed: failed: cannot read `long`: it has 2000000 bytes, and at most 1048576 are read at once; give `offset` and `limit`
            Ok: [line 20000 of 20000]
            xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx

            Ok: [line 3 of 3]
            b

            Failed: failed: cannot read `huge`: it has 1099511627776 bytes, and at most 1048576 are read at once; give `offset` and `limit`
            Failed: failed: cannot read `huge`: it has 1 line in its first 268435456 bytes, and no line 2
        "#]],
    );
    let long = transcript(folder.path(), &[("read_file", json!({"path": "long", "offset": 3}))]);
    assert!(long.starts_with("Ok: [lines 3 to 10487 of 20000, as many as are read at once]\nxxx"), "{}", &long[..99]);
    let wide = transcript(folder.path(), &[("read_file", json!({"path": "wide", "offset": 2}))]);
    assert!(wide.starts_with("Ok: [line 2 of 3, its beginning: the line is longer"), "{}", &wide[..99]);
}

#[test]
fn a_file_is_written_edited_and_looked_for() {
    let folder = workspace(&[("a", "one\ntwo\ntwo\n"), ("crlf", "a\r\nb\r\n")]);
    let edit =
        |path: &str, old: &str, new: &str| ("edit_file", json!({"path": path, "old_string": old, "new_string": new}));
    check(
        folder.path(),
        &[
            ("write_file", json!({"path": "new/dir/file", "content": "hello\n"})),
            ("file_exists", json!({"path": "new/dir/file"})),
            ("file_exists", json!({"path": "new"})),
            ("file_exists", json!({"path": "none"})),
            ("file_exists", json!({"path": "a/none"})),
            ("write_file", json!({"path": "new", "content": ""})),
            ("write_file", json!({"path": "a/b", "content": ""})),
            edit("a", "two", "2"),
            ("edit_file", json!({"path": "a", "old_string": "two", "new_string": "2", "replace_all": true})),
            edit("a", "one\n  2", "x"),
            edit("crlf", "a\nb\n", "x\ny\nz\n"),
            edit("none", "a", "b"),
            edit("new", "a", "b"),
            edit("a", "", "b"),
            edit("a", "2\n2", "2\n2"),
        ],
        expect![[r#"
            Ok: wrote 6 bytes
            Ok: yes, a file of 6 bytes
            Ok: yes, a directory
            Ok: no
            Ok: no
            Failed: failed: cannot write `new`: it is a directory
            Failed: failed: cannot write `a/b`: it is not a directory
            Failed: failed: cannot edit `a`: `old_string` is there 2 times, in lines 2 and 3; add lines around it, or set `replace_all`
            Ok: replaced it 2 times, in lines 2 and 3
            Failed: failed: cannot edit `a`: `old_string` is not there; lines 1 to 2 are the same but for white space: line 2 begins with no white space, and with 2 spaces in `old_string`:
            one
            2
            Ok: replaced it in line 1
            Failed: failed: cannot read `none`: there is no such file
            Failed: failed: cannot read `new`: it is a directory
            BadArguments: bad arguments: `old_string`: wanted at least 1 character, found a string: ""
            Failed: failed: cannot edit `a`: `old_string` and `new_string` are the same
        "#]],
    );
    let left = |path: &str| std::fs::read_to_string(folder.path().join(path)).expect("a file");
    assert_eq!((left("a").as_str(), left("crlf").as_str()), ("one\n2\n2\n", "x\r\ny\r\nz\r\n"));
}

#[test]
fn a_directory_is_listed_as_deep_as_is_asked() {
    let folder = workspace(&[
        ("b.txt", ""),
        ("src/main.rs", ""),
        ("src/deep/er/file", ""),
        ("target/debug/out", ""),
        (".git/config", ""),
        (".rath/rath.db", ""),
        (".gitignore", "target/\n"),
    ]);
    std::os::unix::fs::symlink("src", folder.path().join("link")).expect("a link");
    check(
        folder.path(),
        &[
            ("list_files", json!({})),
            ("list_files", json!({"path": "src", "depth": 2})),
            ("list_files", json!({"depth": 64})),
            ("list_files", json!({"path": "target", "depth": 2})),
            ("list_files", json!({"path": "link"})),
            ("list_files", json!({"path": "b.txt"})),
            ("list_files", json!({"path": "none"})),
            ("list_files", json!({"path": ".rath"})),
            ("list_files", json!({"depth": 65})),
        ],
        expect![[r#"
            Ok: .git/
            .gitignore
            b.txt
            link@
            src/
            target/
            Ok: deep/
            deep/er/
            main.rs
            Ok: .git/
            .gitignore
            b.txt
            link@
            src/
            src/deep/
            src/deep/er/
            src/deep/er/file
            src/main.rs
            target/
            Ok: debug/
            debug/out
            Ok: deep/
            main.rs
            Failed: failed: cannot list `b.txt`: it is not a directory
            Failed: failed: cannot list `none`: there is no such directory
            Failed: failed: `.rath` is in the reserved directory `.rath`
            BadArguments: bad arguments: `depth`: wanted at most 64, found 65
        "#]],
    );
    let many = workspace(&[("sub/file", "")]);
    for nth in 0..1_500 {
        std::fs::write(many.path().join(format!("{nth:04}")), "").expect("a file");
    }
    let listed = transcript(many.path(), &[("list_files", json!({"depth": 2}))]);
    assert_eq!(listed.lines().count(), 1_001);
    assert!(listed.ends_with("\n0999\n[502 more are left out; list a directory further down]\n"), "{listed}");
}

#[test]
fn files_are_searched_by_the_rules_of_the_workspace() {
    let long = format!("{}needle{}", "x".repeat(1_000), "y".repeat(1_000));
    let folder = workspace(&[
        ("a.rs", "fn one() {}\nfn two() {}\n\nfn three() {}\n"),
        ("src/b.rs", "// needle\r\nfn four() {}\n"),
        ("src/c.md", "needle and Needle\n"),
        ("src/.gitignore", "/ignored.md\n*.log\n!keep.log\n"),
        ("src/ignored.md", "needle\n"),
        ("src/x.log", "needle\n"),
        ("src/keep.log", "needle\n"),
        ("target/out.rs", "needle\n"),
        ("long", &long),
        ("binary", "needle\0"),
        (".git/config", "needle\n"),
        (".rath/db", "needle\n"),
        (".github/ci.yml", "needle\n"),
        (".gitignore", "target\n"),
    ]);
    std::fs::write(folder.path().join("latin"), b"needle gr\xfc\xdfe\n").expect("a file");
    std::fs::write(folder.path().join("big"), "needle\n".repeat(1_000_000)).expect("a file");
    std::os::unix::fs::symlink("..", folder.path().join("up")).expect("a link");
    let search = |pattern: &str| ("search_files", json!({"pattern": pattern}));
    check(
        folder.path(),
        &[
            search("needle"),
            search(r"^fn t\w+"),
            search("(?i)NEEDLE and"),
            search("nowhere"),
            search("^$"),
            search("("),
            search(&format!("({})", "a{1000}".repeat(1_000))),
            ("search_files", json!({"pattern": "needle", "glob": "*.{md,rs}"})),
            ("search_files", json!({"pattern": "needle", "glob": "src/*.rs"})),
            ("search_files", json!({"pattern": "needle", "glob": "!*.*"})),
            ("search_files", json!({"pattern": "needle", "glob": "["})),
            ("search_files", json!({"pattern": "needle", "path": "src"})),
            ("search_files", json!({"pattern": "needle", "path": "target"})),
            ("search_files", json!({"pattern": "needle", "path": "src/ignored.md"})),
            ("search_files", json!({"pattern": "needle", "path": "none"})),
            ("search_files", json!({"pattern": "two|three", "path": "a.rs", "context": 1})),
            ("search_files", json!({"pattern": "fn", "glob": "*.rs", "context": 1})),
        ],
        expect![[r#"
            Ok: .github/ci.yml:1: needle
            latin:1: needle gr��e
            long:1: …xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxneedleyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy…
            src/b.rs:1: // needle
            src/c.md:1: needle and Needle
            src/keep.log:1: needle
            [1 file of more than 4194304 bytes not searched]
            Ok: a.rs:2: fn two() {}
            a.rs:4: fn three() {}
            [1 file of more than 4194304 bytes not searched]
            Ok: src/c.md:1: needle and Needle
            [1 file of more than 4194304 bytes not searched]
            Ok: no match in 10 files
            [1 file of more than 4194304 bytes not searched]
            Ok: a.rs:3: 
            [1 file of more than 4194304 bytes not searched]
            BadArguments: bad arguments: `pattern`: regex parse error:
                (
                ^
            error: unclosed group
            BadArguments: bad arguments: `pattern`: Compiled regex exceeds size limit of 4194304 bytes.
            Ok: src/b.rs:1: // needle
            src/c.md:1: needle and Needle
            Ok: src/b.rs:1: // needle
            Ok: latin:1: needle gr��e
            long:1: …xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxneedleyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy…
            [1 file of more than 4194304 bytes not searched]
            Ok: no match in 0 files
            Ok: src/b.rs:1: // needle
            src/c.md:1: needle and Needle
            src/keep.log:1: needle
            Ok: target/out.rs:1: needle
            Ok: src/ignored.md:1: needle
            Failed: failed: cannot search `none`: there is no such file
            Ok: a.rs-1- fn one() {}
            a.rs:2: fn two() {}
            a.rs-3- 
            a.rs:4: fn three() {}
            Ok: a.rs:1: fn one() {}
            a.rs:2: fn two() {}
            a.rs-3- 
            a.rs:4: fn three() {}
            --
            src/b.rs-1- // needle
            src/b.rs:2: fn four() {}
        "#]],
    );
    let many = workspace(&[("many", &"needle\n".repeat(300))]);
    let found = transcript(many.path(), &[search("needle")]);
    assert_eq!(found.lines().count(), 201);
    assert!(
        found.ends_with("many:200: needle\n[more matches are left out; narrow the pattern, the path or the glob]\n"),
        "{found}"
    );
}

#[test]
fn a_command_returns_its_output_and_exit_status() {
    let folder = workspace(&[("sub/file", "hello\n")]);
    let shell = |command: &str| ("shell", json!({"command": command}));
    check(
        folder.path(),
        &[
            shell("echo out; echo err >&2"),
            shell("printf out; echo err >&2; exit 3"),
            shell("exit 4"),
            shell("kill -9 $$"),
            ("shell", json!({"command": "cat file; basename \"$(pwd)\"", "cwd": "sub"})),
            ("shell", json!({"command": "true", "cwd": "none"})),
            ("shell", json!({"command": "true", "cwd": ".."})),
            ("shell", json!({"command": "true", "timeout": 601})),
            shell("cat"),
            shell("a\0b"),
            shell("printf '\\377\\n'"),
        ],
        expect![[r#"
            Ok: out
            err

            Failed: failed: exit code 3
            out
            err

            Failed: failed: exit code 4
            Failed: failed: killed by signal 9
            Ok: hello
            sub

            Failed: failed: cannot enter `none`: there is no such directory
            Failed: failed: `..` is outside the workspace
            BadArguments: bad arguments: `timeout`: wanted at most 600, found 601
            Ok: 
            BadArguments: bad arguments: a command cannot contain a NUL byte
            Ok: �

        "#]],
    );
}

#[test]
fn code_runs_and_no_file_is_left() {
    let folder = workspace(&[("mine.py", "def hello():\n    return 'hello'\n")]);
    let run = |language: &str, code: &str| ("run_code", json!({"language": language, "code": code}));
    check(
        folder.path(),
        &[
            run("python", "import mine\nprint(mine.hello(), \"it's\", 'a \"quote\"', '$HOME')"),
            run("python", "import sys\nprint('before')\nsys.exit(127)"),
            run("bash", "for i in 1 2; do echo $i; done; cat; exit 127"),
            run("node", "console.log([1, 2].map(x => `${x}!`).join())"),
            run("ruby", "puts 1"),
            run("bash", &"x".repeat(100_001)),
        ],
        expect![[r#"
            Ok: hello it's a "quote" $HOME

            Failed: failed: exit code 127
            before

            Failed: failed: exit code 127
            1
            2

            Ok: 1!,2!

            BadArguments: bad arguments: `language`: wanted one of "python", "bash", "node", found a string: "ruby"
            BadArguments: bad arguments: `code` has 100001 bytes, and the limit is 100000; write it to a file and run that
        "#]],
    );
    let left = std::fs::read_dir(folder.path()).expect("a folder").map(|entry| entry.expect("an entry").file_name());
    assert_eq!(left.filter(|name| name != ".rath").collect::<Vec<_>>(), ["mine.py"]);
}

#[test]
fn what_takes_too_long_is_ended_and_says_what_it_printed() {
    let folder = workspace(&[]);
    let rows = [
        ("shell", json!({"command": "echo begun; sleep 100"})),
        ("run_code", json!({"language": "python", "code": "print('begun', flush=True)\nwhile True: pass"})),
    ];
    for (tool, mut arguments) in rows {
        let (told, seconds) = rath_test_support::with_enough_time(std::time::Duration::from_secs(1), |time| {
            arguments["timeout"] = time.as_secs().into();
            let told = transcript(folder.path(), &[(tool, arguments.clone())]);
            told.contains("begun").then_some((told, time.as_secs()))
        });
        assert_eq!(told, format!("TimedOut: timed out: killed after {seconds} s\nbegun\n\n"));
    }
}

#[test]
fn a_missing_language_is_an_error_that_lists_the_installed_ones() {
    const WITHOUT: &str = "RATH_WITHOUT_PYTHON";
    if std::env::var_os(WITHOUT).is_some() {
        let folder = workspace(&[]);
        let run = |language: &str, code: &str| ("run_code", json!({"language": language, "code": code}));
        check(
            folder.path(),
            &[run("python", "print(1)"), run("node", "1"), run("bash", "echo 1")],
            expect![[r#"
                Failed: failed: `python` is not installed; installed: bash
                Failed: failed: `node` is not installed; installed: bash
                Ok: 1

            "#]],
        );
        return;
    }
    // This test again, in a process whose PATH has no other programs.
    let folder = rath_test_support::temp_dir();
    for program in ["sh", "bash"] {
        std::os::unix::fs::symlink(format!("/bin/{program}"), folder.path().join(program)).expect("a link");
    }
    let own = std::env::current_exe().expect("this program");
    let name = "builtin::a_missing_language_is_an_error_that_lists_the_installed_ones";
    let ran =
        rath_test_support::program(own).args(["--exact", name]).env("PATH", folder.path()).env(WITHOUT, "1").output();
    let ran = ran.expect("it runs");
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success() && said.contains("1 passed"), "{said}{}", String::from_utf8_lossy(&ran.stderr));
}
