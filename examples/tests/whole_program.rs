//! The guide tells the truth: its program is a rung of the ladder, and prints what it says.

use std::path::Path;
use std::process::Command;

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// The page with the whole program.
const PAGE: &str = "docs/guide/agents.md";

fn page(name: &str) -> String {
    std::fs::read_to_string(root().join(name)).expect("the page")
}

/// The first fenced block of a language.
fn block<'a>(page: &'a str, language: &str) -> &'a str {
    let (_, rest) = page.split_once(&format!("```{language}\n")).expect("a block of that language");
    rest.split_once("```").expect("the end of the block").0
}

/// Runs an example, which cargo built beside this test.
fn run(example: &str) -> String {
    let test = std::env::current_exe().expect("the path of this test");
    let folder = test.ancestors().nth(2).expect("the folder that cargo builds in");
    let path = folder.join("examples").join(example).with_extension(std::env::consts::EXE_EXTENSION);
    let output = Command::new(&path).output().unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

#[test]
fn the_program_in_the_guide_is_a_rung() {
    assert_eq!(block(&page(PAGE), "rust"), page("examples/13_workflow.rs"));
}

#[test]
fn the_program_in_the_guide_prints_what_the_guide_says() {
    let printed = run("13_workflow");
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        let told = page(PAGE);
        let told = told.replacen(&format!("```text\n{}", block(&told, "text")), &format!("```text\n{printed}"), 1);
        std::fs::write(root().join(PAGE), told).expect("the page");
    }
    assert_eq!(without_ids(block(&page(PAGE), "text")), without_ids(&printed));
}

#[test]
fn the_readme_is_a_front_page() {
    assert!(page("README.md").lines().count() <= 120);
}

/// Replaces the ids of steps: from a commit on they differ each time, since its notes are those of this session.
fn without_ids(text: &str) -> String {
    let is_id = |word: &str| word.len() == 8 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    text.split_inclusive([' ', ':', '\n'])
        .map(|word| match is_id(word.trim_end_matches([' ', ':', '\n'])) {
            true => word.replace(|c: char| c.is_ascii_hexdigit(), "0"),
            false => word.to_owned(),
        })
        .collect()
}

#[test]
fn the_file_that_the_readme_shows_is_what_the_program_would_save() {
    let opened = rath::Session::open_blocking(root().join("examples/paris.rath")).expect("the file");
    assert!(opened.report.is_whole());
    let printed = run("02_lineage");
    assert!(printed.starts_with(&format!("{}\n\n", opened.lineage)), "{printed}");
}
