//! `.gitignore` files mean the same to git, to snapshots and to the tools that walk through directories.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use rath::prelude::*;
use rath::tool::builtin;
use rath::workspace::{Objects, Workspace};
use serde_json::json;

use crate::support::{block_on, script};

/// The files of every workspace. Each holds one line.
const FILES: [&str; 24] = [
    "1.log",
    "12.log",
    "!bang",
    "#hash",
    "A.LOG",
    "a b",
    "a.log",
    "a.{md,rs}",
    "[x]",
    "build/out",
    "doc/a.md",
    "doc/b.rs",
    "doc/build",
    "doc/x/1/deep.md",
    "end ",
    "keep/a.log",
    "keep/keep.log",
    "ä.log",
    "src/build/out",
    "src/a-b",
    "src/a]b",
    "src/main.rs",
    "src/x1y",
    "src/x_y",
];

/// Rules at the top, and rules in `src`.
const RULES: &[(&str, &str)] = &[
    ("", ""),
    ("*.log\n", ""),
    ("[[:digit:]].log\n", ""),
    ("[[:digit:]]*\n", ""),
    ("[![:digit:]].log\n", ""),
    ("[[:alpha:][:digit:]].log\n", ""),
    ("x[[:alnum:]_]y\n", ""),
    ("x[[:punct:]]y\n", ""),
    ("[[:upper:]].*\n", ""),
    ("[[:lower:]].*\n", ""),
    ("[[:xdigit:]]*.log\n", ""),
    ("a[[:space:]]b\na[[:blank:]]b\n", ""),
    ("[[:print:]].log\n[[:graph:]]-b\n[[:cntrl:]]\n", ""),
    ("[[:nothing:]]*\n", ""),
    ("[[:digit:]\n", ""),
    ("a[]-]b\n", ""),
    ("a[+--]b\n", ""),
    ("*.{md,rs}\n", ""),
    ("\\[x\\]\n\\!bang\n\\#hash\n", ""),
    ("!bang\n#hash\n", ""),
    ("end\\ \n", ""),
    ("end \n", ""),
    ("build\n", ""),
    ("build/\n", ""),
    ("/build\n", ""),
    ("doc/*\n!doc/x\n", ""),
    ("doc/**/deep.md\n", ""),
    ("**/build/**\n", ""),
    ("doc/x/**\n", ""),
    ("*\n!*/\n!*.md\n", ""),
    ("keep/\n!keep/keep.log\n", ""),
    ("keep/*\n!keep/keep.log\n", ""),
    ("?.log\n", ""),
    ("*.rs\n", "!main.rs\n/x*y\n"),
    ("\u{feff}*.md\r\n*.rs\r\n", "[[:alpha:]]?[[:alpha:]]\n"),
    ("[a-\n", "*[\n"),
];

#[test]
fn git_snapshots_and_tools_ignore_the_same_files() {
    let folder = rath_test_support::temp_dir();
    let repository = folder.path().join("git");
    run(rath_test_support::git().args(["init", "--quiet", "--bare"]).arg(&repository));
    for (nth, (top, source)) in RULES.iter().enumerate() {
        let root = folder.path().join(format!("{nth}"));
        for file in FILES {
            let path = root.join(file);
            fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
            fs::write(path, "line\n").expect("written");
        }
        for (path, rules) in [(".gitignore", top), ("src/.gitignore", source)] {
            if !rules.is_empty() {
                fs::write(root.join(path), rules).expect("written");
            }
        }
        let rules = format!("{top:?} {source:?}");
        let ignored = ignored_by_git(&repository, &root);
        let is_inside = |path: &str| path.match_indices('/').any(|(at, _)| ignored.contains(&path[..at]));
        let wanted: BTreeSet<_> =
            FILES.into_iter().filter(|file| !ignored.contains(*file)).map(str::to_owned).collect();
        assert_eq!(searched(&root), wanted, "search_files: {rules}");
        let wanted: BTreeSet<_> = FILES.into_iter().filter(|file| !is_inside(file)).map(str::to_owned).collect();
        assert_eq!(listed(&root), wanted, "list_files: {rules}");
        let wanted: BTreeSet<_> =
            FILES.into_iter().filter(|file| !ignored.contains(*file)).map(str::to_owned).collect();
        assert_eq!(kept(folder.path(), &root, nth), wanted, "a snapshot: {rules}");
    }
}

/// The files and directories that git ignores.
fn ignored_by_git(repository: &Path, root: &Path) -> BTreeSet<String> {
    let directories = FILES.into_iter().flat_map(|file| file.match_indices('/').map(move |(at, _)| &file[..at]));
    let paths: BTreeSet<_> = directories.chain(FILES).collect();
    let mut git = rath_test_support::git();
    git.arg("--git-dir").arg(repository).arg("--work-tree").arg(root);
    git.args(["-c", "core.excludesFile=", "-c", "core.bare=false", "-c", "core.quotePath=false"]);
    git.args(["check-ignore", "--no-index", "--"]).args(paths).current_dir(root);
    let output = git.output().expect("git starts");
    // It ends with 1 where nothing is ignored.
    assert!(output.status.code().is_some_and(|code| code <= 1), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text").lines().map(str::to_owned).collect()
}

/// The files that `search_files` finds a line in.
fn searched(root: &Path) -> BTreeSet<String> {
    let found = call(root, "search_files", json!({"pattern": "^line$"}));
    found.lines().filter_map(|line| line.strip_suffix(":1: line")).map(str::to_owned).collect()
}

/// The files that `list_files` shows.
fn listed(root: &Path) -> BTreeSet<String> {
    let shown = call(root, "list_files", json!({"depth": 9}));
    shown
        .lines()
        .filter(|line| !line.ends_with(['/', '@']) && !line.ends_with(".gitignore"))
        .map(str::to_owned)
        .collect()
}

/// The files that a snapshot keeps.
fn kept(folder: &Path, root: &Path, nth: usize) -> BTreeSet<String> {
    let objects = Objects::open(&folder.join("versions")).expect("versions");
    let index = folder.join(format!("index-{nth}"));
    let mut workspace = Workspace::open(root, &objects, &index).expect("a workspace");
    let tree = workspace.snapshot().expect("a snapshot").tree;
    let tree = tree.0.to_string();
    let mut git = rath_test_support::git();
    let listed = run(git.arg("--git-dir").arg(objects.folder()).args(["ls-tree", "-r", "-z", "--name-only", &tree]));
    let paths = listed.split('\0').filter(|path| !path.is_empty() && !path.ends_with(".gitignore"));
    paths.map(str::to_owned).collect()
}

fn call(root: &Path, tool: &str, arguments: serde_json::Value) -> String {
    let turn = json!({"calls": [{"name": tool, "arguments": arguments}]}).to_string();
    let provider = script([turn, r#"{"text": "done"}"#.to_owned()]);
    let agent = Agent::new("Go.", &provider).tools(builtin::all());
    let session = block_on(agent.run(Session::user("go").to(Sandbox::local(root)))).expect("a run");
    let mut outputs = session.chunks().filter_map(|chunk| match chunk {
        Chunk::ToolResult(result) => Some(result.output.to_string()),
        _ => None,
    });
    outputs.next().expect("a result")
}

fn run(command: &mut Command) -> String {
    let output = command.output().expect("git starts");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn an_agent_cannot_hide_its_edits_by_ignoring_files() {
    let hides =
        ["echo '*' > .gitignore", "echo '*' > .git/info/exclude; echo /src > .gitignore", "echo '*' > src/.gitignore"];
    for hide in hides {
        let folder = rath_test_support::temp_dir();
        fs::create_dir_all(folder.path().join("src")).expect("made");
        fs::create_dir_all(folder.path().join(".git/info")).expect("made");
        fs::write(folder.path().join("src/a.txt"), "one\n").expect("written");
        let call = |command: &str| json!({"calls": [{"name": "shell", "arguments": {"command": command}}]}).to_string();
        let turns = [call(hide), call("echo evil > src/a.txt"), json!({"text": "done"}).to_string()];
        let agent = |turns: &[String]| {
            Agent::new("Go.", &script(turns.iter().map(String::as_str).collect::<Vec<_>>())).tools(builtin::all())
        };
        let session = Session::user("go").to(Sandbox::local(folder.path()));
        let session = block_on(agent(&turns).run(session)).expect("a run");
        let changed =
            |session: &Session| session.files().list.keys().map(|path| path.to_string()).collect::<Vec<_>>().join(" ");
        assert!(changed(&session).contains("src/a.txt"), "{hide}: {}", changed(&session));
        let first = session.as_record().steps().into_iter().find(|step| step.chunk().tree().is_some()).expect("a tree");
        let before = session.at(first.id()).expect("a step");
        let patch = block_on(before.patch(&session)).expect("a patch");
        assert!(patch.contains("-one\n+evil\n"), "{hide}: {patch}");
    }
}
