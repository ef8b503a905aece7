//! The files that come with the program: completions and manual pages.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::rath;

/// Returns the commands that `rath --help` lists.
fn commands(folder: &Path) -> BTreeSet<String> {
    let help = String::from_utf8(rath(folder, &["--help"]).stdout).expect("UTF-8");
    let list = help.split("Commands:\n").nth(1).and_then(|rest| rest.split("\n\n").next()).expect("a list");
    let names = list.lines().filter_map(|line| line.strip_prefix("  ").filter(|line| !line.starts_with(' ')));
    names.filter_map(|line| line.split(' ').next()).filter(|name| *name != "help").map(str::to_owned).collect()
}

#[test]
fn completions_of_every_shell_know_every_command() {
    let folder = rath_test_support::temp_dir();
    let commands = commands(folder.path());
    assert!(commands.contains("doctor") && commands.len() > 20, "{commands:?}");
    for shell in ["bash", "zsh", "fish"] {
        let output = rath(folder.path(), &["completions", shell]);
        let script = String::from_utf8(output.stdout).expect("UTF-8");
        assert!(output.status.success() && output.stderr.is_empty());
        for command in &commands {
            assert!(script.contains(command.as_str()), "{shell} does not complete {command}");
        }
    }
    assert_eq!(rath(folder.path(), &["completions", "tcsh"]).status.code(), Some(2));
}

#[cfg(target_os = "linux")]
#[test]
fn bash_completes_commands_and_options() {
    let folder = rath_test_support::temp_dir();
    let script = rath(folder.path(), &["completions", "bash"]).stdout;
    std::fs::write(folder.path().join("rath.bash"), script).expect("written");
    for (words, expected) in [
        ("rath re", "render replay restore resume review"),
        ("rath check --in", "--input"),
        ("rath mcp s", "serve"),
        ("rath completions ''", "--help -h bash fish zsh"),
    ] {
        let complete = format!(
            "source rath.bash; COMP_WORDS=({words}); COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 )); \
             _rath rath \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD-1]}}\"; \
             printf '%s\\n' \"${{COMPREPLY[@]}}\" | LC_ALL=C sort | tr '\\n' ' '"
        );
        let output = rath_test_support::program("bash").args(["-c", &complete]).current_dir(folder.path()).output();
        let output = output.expect("bash runs");
        let found = String::from_utf8(output.stdout).expect("UTF-8");
        assert_eq!(found.trim(), expected, "{words}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn every_command_has_a_manual_page() {
    let folder = rath_test_support::temp_dir();
    let output = rath(folder.path(), &["man", "pages/man1"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut pages = BTreeMap::new();
    for entry in std::fs::read_dir(folder.path().join("pages/man1")).expect("a directory") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        pages.insert(name, std::fs::read_to_string(&path).expect("UTF-8"));
    }
    for command in commands(folder.path()) {
        let page = pages.get(&format!("rath-{command}.1")).unwrap_or_else(|| panic!("no page for {command}"));
        assert!(page.contains(&format!(".TH rath-{command} 1")) && page.contains(".SH OPTIONS"), "{page}");
    }
    assert!(pages["rath.1"].contains("waiting for your decision"), "the exit codes are there");
    assert!(pages.contains_key("rath-mcp-serve.1"), "{:?}", pages.keys());
    // The same program writes the same pages.
    assert!(rath(folder.path(), &["man", "again"]).status.success());
    for (name, page) in &pages {
        assert_eq!(std::fs::read_to_string(folder.path().join("again").join(name)).expect("UTF-8"), *page);
    }
    std::fs::write(folder.path().join("file"), "").expect("written");
    let refused = rath(folder.path(), &["man", "file"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("hint: name a directory"));
}
