//! Sessions that fork in a workspace with many files.

use std::fs;

use rath::prelude::*;
use rath::tool::builtin::Shell;
use rath::workspace::Objects;
use serde_json::json;

use crate::support::{block_on, script};

/// Makes a directory with enough files that a fork shares them instead of copying them.
fn large() -> rath_test_support::TempDir {
    let folder = rath_test_support::temp_dir();
    for nth in 0..1_200 {
        let directory = folder.path().join(format!("d{}", nth / 100));
        fs::create_dir_all(&directory).expect("a directory");
        fs::write(directory.join(format!("{nth}.txt")), format!("file {nth}\n")).expect("written");
    }
    folder
}

#[test]
fn sessions_in_a_large_workspace_work_side_by_side_in_every_sandbox() {
    for uri in ["local", "isolated"] {
        let project = large();
        let place = format!("{uri}:{}", project.path().display());
        let Ok(sandbox) = Sandbox::open(&place).and_then(|it| block_on(it.capabilities()).map(|_| it)) else {
            eprintln!("skipped: {uri} cannot be had here");
            continue;
        };
        let work = |session: &Session, command: &str| {
            let call = json!({"calls": [{"name": "shell", "arguments": {"command": command}}]}).to_string();
            let agent = Agent::new("Work.", &script([call, r#"{"text": "done"}"#.to_owned()])).tool(Shell);
            let mut session = session.clone();
            session.push(Chunk::user("go"));
            block_on(agent.run(session)).expect("a run")
        };
        let session = work(&Session::empty().to(sandbox), "echo start > start.txt");
        // Both forks are mounted while the others work.
        let ours = work(&session.fork(), "echo ours > d3/300.txt; mv d4 d4.moved; ls -a > names.txt; pwd > where.txt");
        let theirs = work(&session.fork(), "echo theirs > d5/500.txt; rm -r d6");
        let session = work(&session, "echo main > d7/700.txt; test \"$(cat d3/300.txt)\" = 'file 300'");
        let read = |session: &Session, path: &str| {
            let objects = Objects::open(&project.path().join(".rath/workspace")).expect("versions");
            let found =
                objects.read(session.tree().expect("a tree").0.parse().expect("a tree id"), path).expect("readable");
            found.map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned())
        };
        let merged = block_on(block_on(ours.merge(&theirs)).expect("merged").merge(&session)).expect("merged");
        let merged = work(&merged, "true");
        assert!(merged.conflicts().is_empty());
        let found = ["d3/300.txt", "d5/500.txt", "d7/700.txt", "d4.moved/400.txt"].map(|path| read(&merged, path));
        assert_eq!(
            found.each_ref().map(Option::as_deref),
            [Some("ours"), Some("theirs"), Some("main"), Some("file 400")]
        );
        assert_eq!(read(&merged, "d6/600.txt"), None);
        assert!(!read(&merged, "names.txt").expect("a file").contains(".rath"));
        let seen = read(&merged, "where.txt").expect("a file");
        assert_eq!(seen == project.path().canonicalize().expect("a path").display().to_string(), uri == "isolated");
    }
}
