//! Tests take what differs from machine to machine from this crate and from nowhere else.

use std::path::{Path, PathBuf};

/// A text that tests do not contain, and what to use instead.
const RULES: [(&str, &str); 10] = [
    ("tempfile::", "rath_test_support::temp_dir"),
    ("env::temp_dir", "rath_test_support::temp_dir"),
    ("\"/tmp", "rath_test_support::temp_dir"),
    ("process::Command::new(", "rath_test_support::program, or git"),
    ("Command::new(\"git\")", "rath_test_support::git"),
    ("Command::new(env!", "rath_test_support::program"),
    ("ProptestConfig::", "rath_test_support::property"),
    ("Config::with_cases", "rath_test_support::property"),
    ("env::var(\"RATH_SEED", "rath_test_support::seed"),
    ("RandomState", "rath_test_support::seed"),
];

#[test]
fn tests_go_around_no_helper() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut sources = Vec::new();
    for package in list(&crates) {
        sources_below(&package.join("tests"), &mut sources);
    }
    sources_below(&crates.join("../examples/tests"), &mut sources);
    assert!(sources.len() > 50, "the tests are there");
    let mut wrong = Vec::new();
    for path in sources.iter().filter(|path| !path.ends_with("rath-test-support/tests/rules.rs")) {
        let text = std::fs::read_to_string(path).expect("a source is text");
        for (nth, line) in text.lines().enumerate() {
            let broken = RULES.iter().filter(|(pattern, _)| line.contains(pattern));
            wrong.extend(broken.map(|(_, instead)| format!("{}:{}: use {instead}\n", path.display(), nth + 1)));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.concat());
}

/// A property without a configuration takes a random seed.
#[test]
fn every_property_has_a_fixed_seed() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut sources = Vec::new();
    for package in list(&crates) {
        sources_below(&package.join("tests"), &mut sources);
        sources_below(&package.join("src"), &mut sources);
    }
    for path in sources {
        let text = std::fs::read_to_string(&path).expect("a source is text");
        for (start, _) in text.match_indices(concat!("proptest", "! {")) {
            let end = text[start..].find("#[test]").map_or(text.len(), |end| start + end);
            let has_seed = text[start..end].contains("rath_test_support::property(");
            assert!(has_seed, "{}: a property uses `rath_test_support::property`", path.display());
        }
    }
}

/// Text of others must not control a terminal, so there is one way out of the program.
#[test]
fn the_program_prints_in_one_place() {
    let mut sources = Vec::new();
    sources_below(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../rath-cli/src"), &mut sources);
    assert!(sources.len() > 20, "the program is there");
    for path in sources.iter().filter(|path| !path.ends_with("output.rs")) {
        let text = std::fs::read_to_string(path).expect("a source is text");
        for way in ["println!", "eprint!", " print!", "dbg!", "stdout()", "stderr()", "anstream", "Cli::parse()"] {
            assert!(!text.contains(way), "{} has `{way}`: print with `output`", path.display());
        }
    }
}

fn list(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    entries.map(|entry| entry.expect("an entry").path()).collect()
}

fn sources_below(folder: &Path, sources: &mut Vec<PathBuf>) {
    for path in list(folder) {
        if path.is_dir() {
            sources_below(&path, sources);
        } else if path.extension().is_some_and(|it| it == "rs") {
            sources.push(path);
        }
    }
}
