//! Each rung of the ladder prints what it printed before, and the sessions that it records are replayed.

use std::path::{Path, PathBuf};

use expect_test::expect_file;

/// The rung that is the program of the README, with not a word more: it keeps no session for the tests.
const README_RUNG: &str = "13_workflow";

/// The rungs in whose sessions no model answers.
const WITHOUT_MODEL: [&str; 2] = ["02_lineage", "03_sandbox"];

/// Returns the names of the programs in the directory, in order.
fn rungs() -> Vec<String> {
    let entries = std::fs::read_dir(env!("CARGO_MANIFEST_DIR")).expect("the directory of the examples");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let programs = paths.filter(|path| path.extension().is_some_and(|extension| extension == "rs"));
    let mut rungs: Vec<_> = programs.map(|path| path.file_stem().expect("a name").to_string_lossy().into()).collect();
    rungs.sort();
    rungs
}

/// Runs a rung as its first lines say, from the root of the repository, and returns what it prints.
fn run(rung: &str, sessions: &Path) -> String {
    let test = std::env::current_exe().expect("the path of this test");
    let folder = test.ancestors().nth(2).expect("the folder that cargo builds in");
    let path = folder.join("examples").join(rung).with_extension(std::env::consts::EXE_EXTENSION);
    let mut command = rath_test_support::program(&path);
    command.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).env(rath_examples::KEEP_IN, sessions);
    let output = command.output().unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert!(output.status.success(), "{rung}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// Replaces the ids of steps: those of sessions with a directory or a memory differ each time.
fn without_ids(text: &str) -> String {
    let is_id = |word: &str| word.len() == 8 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    let end = |c: char| !c.is_ascii_alphanumeric();
    text.split_inclusive(end)
        .map(|word| match is_id(word.trim_end_matches(end)) {
            true => word.replace(|c: char| c.is_ascii_hexdigit(), "0"),
            false => word.to_owned(),
        })
        .collect()
}

#[test]
fn the_numbers_of_the_rungs_have_no_gap_and_cargo_knows_each() {
    let rungs = rungs();
    let numbers: Vec<_> = rungs.iter().map(|rung| rung.split('_').next().expect("a number").to_owned()).collect();
    let expected: Vec<_> = (1..=rungs.len()).map(|nth| format!("{nth:02}")).collect();
    assert_eq!(numbers, expected);
    let manifest = include_str!("../Cargo.toml");
    let known: Vec<_> = manifest.lines().filter_map(|line| line.strip_prefix("path = \"")).collect();
    assert_eq!(known, rungs.iter().map(|rung| format!("{rung}.rs\"")).collect::<Vec<_>>());
}

#[test]
fn each_rung_is_short_and_says_what_it_is_about() {
    for rung in rungs() {
        let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("{rung}.rs")));
        let text = text.expect("a source is text");
        assert!(text.starts_with("//! "), "{rung} begins with a sentence for its reader");
        assert!(text.lines().count() <= 80, "{rung} has more than 80 lines");
    }
}

/// `UPDATE_EXPECT=1` writes `tests/expected/NAME.txt` for a new rung.
#[test]
fn each_rung_prints_what_is_expected_and_its_sessions_are_exact() {
    for rung in rungs() {
        let kept = rath_test_support::temp_dir();
        let printed = run(&rung, kept.path());
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/expected/{rung}.txt"));
        expect_file![path].assert_eq(&without_ids(&printed));

        let entries = std::fs::read_dir(kept.path()).expect("the sessions");
        let sessions: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
        assert_eq!(sessions.is_empty(), rung == README_RUNG, "{rung} calls `rath_examples::keep`");
        for path in sessions {
            let opened = rath::Session::open_blocking(&path).expect("a session");
            assert!(opened.report.is_whole(), "{rung}");
            let report = opened.session.rebuild();
            assert!(report.is_exact(), "{rung}: {report}");
            assert_eq!(report.requests == 0, WITHOUT_MODEL.contains(&&*rung), "{rung}: {report}");
        }
    }
}
