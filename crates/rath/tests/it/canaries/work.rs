//! Commands and files whose names, contents and output have canaries.

use std::collections::BTreeSet;
use std::path::Path;

use rath::chunk::Resolution;
use rath::prelude::*;
use rath::turn::Next;

use super::channels::Medium;
use super::plant::Round;
use super::search::all_objects;
use super::{Evidence, describe_error};
use crate::support::{put, worker};

/// Runs commands in a directory, on two branches that are merged.
pub(super) async fn work_in_files(round: &Round, secrets: Secrets, folder: &Path, evidence: &mut Evidence) -> Session {
    put(folder, "plain.txt", "one\n");
    // Outside of the workspace, and of the commands: a known value does not reach a command.
    let lists = rath_test_support::temp_dir();
    write_lists(round, lists.path());
    for (nth, text) in round.pieces("content of a file before a call").iter().enumerate() {
        put(folder, &format!("before-{nth}.txt"), text);
    }
    let list = lists.path().display();
    let each = |list_name: &str, command: &str| format!("while read -r n; do {command}; done < '{list}/{list_name}'");
    let make = [
        each("new", "echo x > \"$n.txt\""),
        each("directories", "mkdir \"$n\" && echo y > \"$n/inner.txt\""),
        each("renamed", "echo \"$n\" | md5sum > \"$n\""),
        each("deleted", "echo \"$n\" | md5sum > \"$n\""),
        each("links", "ln -s -- nowhere \"$n\""),
        format!("for f in '{list}'/target-*; do ln -s -- \"$(cat \"$f\")\" \"$(basename \"$f\")\"; done"),
        format!("for f in '{list}'/after-*; do cp \"$f\" .; done"),
    ];
    let print = [
        format!("cat '{list}/stdout'; cat '{list}/stderr' >&2"),
        format!("head -c 30 '{list}/two'; tail -c +31 '{list}/two'"),
        format!("cat '{list}/long'"),
    ];
    let change = [each("renamed", "mv \"$n\" \"$n.moved\""), each("deleted", "rm \"$n\"")];
    let session = Session::user("go").hiding(secrets).to(Sandbox::local(folder));
    let session = run(session, &[make.to_vec(), print.to_vec()]).await;
    for name in round.pieces("file that others made") {
        put(folder, &name, "theirs\n");
    }
    let mut session = run(session, &[change.to_vec()]).await;
    session.check(&format!("cat '{list}/check'"), &[]).await.expect("a check");

    let side = |word: &str| {
        let names = each("conflicting", &format!("echo {word} > \"$n\""));
        vec![format!("{names}; echo {word} > plain.txt; cat '{list}/{word}' > both.txt")]
    };
    let left = run(session.fork(), &[side("left")]).await;
    let right = run(session.fork(), &[side("right")]).await;
    let mut merged = left.merge(&right).await.expect("nothing is open");
    let resolution = round.text("content of a resolution");
    // Two paths with keys may be equal on the record.
    let paths: BTreeSet<_> = merged.conflicts().iter().map(|conflict| conflict.path.clone()).collect();
    for path in paths {
        if let Err(error) = merged.decide_edited(&path, resolution.as_bytes()).await {
            evidence.add(Medium::Errors, "the error of a decision", describe_error(&error));
            merged.decide(&path, Resolution::Ours).await.expect("it is decided");
        }
    }
    evidence.add(Medium::Objects, "versions of files", all_objects(folder));
    let patch = session.patch(&merged).await.unwrap_or_default();
    evidence.add(Medium::Objects, "the patch of a session", patch);
    merged
}

async fn run(mut session: Session, rounds: &[Vec<String>]) -> Session {
    if session.next() == Next::Done {
        session.push(Chunk::user("go on"));
    }
    worker(rounds).run(session).await.expect("a run")
}

/// Writes the names and texts for the commands.
fn write_lists(round: &Round, lists: &Path) {
    for (list, channel) in [
        ("new", "new file"),
        ("directories", "new directory"),
        ("renamed", "renamed file"),
        ("deleted", "deleted file"),
        ("links", "new link"),
        ("conflicting", "conflicting file"),
    ] {
        put(lists, list, &(round.pieces(channel).join("\n") + "\n"));
    }
    for (start, channel) in [("target", "target of a link"), ("after", "content of a file after a call")] {
        for (nth, text) in round.pieces(channel).iter().enumerate() {
            put(lists, &format!("{start}-{nth}"), text);
        }
    }
    for (file, channel) in [
        ("stdout", "stdout"),
        ("two", "stdout, in two writes"),
        ("stderr", "stderr"),
        ("check", "output of a check"),
        ("left", "content of a conflict"),
    ] {
        put(lists, file, &round.text(channel));
    }
    put(lists, "right", "right\n");
    put(lists, "long", &format!("{}{}", "words ".repeat(8_000), round.text("stdout, long")));
}
