//! Histories that are searched for where something broke, and forks that work at the same time.

use std::path::Path;

use futures_util::future::join_all;
use rath::chunk::Outcome;
use rath::prelude::*;
use rath::view;
use serde_json::json;

use super::observer::walk;
use rath_test_support::seeds;

use super::{checked_out, texts};
use crate::store::common::Chance;
use crate::support::{block_on, folder, worker};

/// A round for each.
fn one_by_one(commands: &[String]) -> Vec<[&str; 1]> {
    commands.iter().map(|command| [command.as_str()]).collect()
}

fn placed(folder: &Path) -> Session {
    Session::user("go").to(Sandbox::local(folder))
}

#[test]
fn the_call_that_broke_something_is_found_wherever_it_is() {
    for seed in seeds(5) {
        let mut chance = Chance(seed);
        let folder = folder(&[("a.txt", "good\n")]);
        let count = 1 + chance.below(14);
        let bad = chance.below(count);
        let commands: Vec<_> = (0..count)
            .map(|nth| {
                let edit = match chance.below(6) {
                    0 => "true".to_owned(),
                    1 => format!("cp a.txt copy{}.txt", nth % 3),
                    2 => "rm -f copy*.txt".to_owned(),
                    3 => "sort -o a.txt a.txt".to_owned(),
                    4 => "mv a.txt b.txt; cat b.txt > a.txt".to_owned(),
                    _ => format!("echo line {nth} >> a.txt"),
                };
                if nth == bad { format!("{edit}; echo broken >> a.txt") } else { edit }
            })
            .collect();
        let session = block_on(worker(&one_by_one(&commands)).run(placed(folder.path()))).expect("a run");
        let check = ["sh", "-c", "! grep -q broken a.txt"].map(str::to_owned);
        let found = block_on(session.bisect(&check)).expect("a search");
        let told = format!("seed {seed}, call {bad} of {commands:#?}: {found:?}");
        let step = session.as_record().find(found.step.expect(&told)).expect("a step");
        let (call, _) = view::find_call(step).expect("a call");
        let asked = json!({ "command": commands[bad as usize] }).to_string();
        assert_eq!(call.arguments.to_string(), asked, "{told}");
        assert!(found.runs <= 2 + u64::from(found.trees.max(1).ilog2()) + 1, "{told}");
    }
}

#[test]
fn forks_that_work_at_the_same_time_find_only_what_is_their_own() {
    let folder = folder(&[("shared.txt", "base\n"), ("dir/same.txt", "base\n")]);
    let session = block_on(worker(&[["true"]]).run(placed(folder.path()))).expect("a run");
    let before = walk(folder.path());
    let forks: Vec<Session> = block_on(async {
        let work = (0..6).map(|nth| {
            let mut fork = session.fork();
            fork.push(Chunk::user("go on"));
            // A fork that finds a line that is neither its own nor older reports it.
            let round = |round: u64| format!(
                "for i in 1 2 3 4 5 6 7 8; do echo fork {nth} >> shared.txt; echo fork {nth} > new{round}.txt; \
                 echo fork {nth} > dir/same.txt; ! grep -vh -e 'fork {nth}' -e base shared.txt new*.txt dir/* || exit 9; done"
            );
            let commands: Vec<_> = (0..8).map(round).collect();
            tokio::spawn(async move { worker(&one_by_one(&commands)).run(fork).await.expect("a run") })
        });
        join_all(work).await.into_iter().map(|done| done.expect("no panic")).collect()
    });
    for (nth, fork) in forks.iter().enumerate() {
        let failed =
            fork.chunks().filter(|chunk| matches!(chunk, Chunk::ToolResult(result) if result.outcome != Outcome::Ok));
        assert_eq!(failed.count(), 0, "fork {nth}");
        let own = format!("fork {nth}\n");
        for (path, content) in texts(&checked_out(fork)) {
            let expected = if path == b"shared.txt" { format!("base\n{}", own.repeat(64)) } else { own.clone() };
            assert_eq!(String::from_utf8_lossy(content), expected);
        }
    }
    assert_eq!(walk(folder.path()), before, "what the user gave");
}
