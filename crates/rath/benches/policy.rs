//! The cost of a command that an agent runs, with its permissions and the look for changed files: `cargo xtask bench`.

use std::process::Command;

use rath::prelude::*;
use rath::provider::Script;
use rath::tool::builtin;
use rath_bench::{Table, bubblewrap, medians};

/// The number of commands that are measured together.
const CALLS: usize = 50;
const ROUNDS: usize = 9;

fn main() {
    let mut table = Table::default();
    let directory = tempfile::tempdir().expect("a directory");
    match bubblewrap(directory.path()) {
        Some(bwrap) => isolated(&mut table, directory.path(), bwrap),
        None => eprintln!("  left out: a call in `isolated` against bwrap, which is not here or cannot do it"),
    }
    table.print();
}

/// Compares calls of the tool `shell` in `isolated`, decided by rules, with as many commands in bubblewrap.
fn isolated(table: &mut Table, directory: &std::path::Path, mut bwrap: Command) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let call = r#"{"calls": [{"name": "shell", "arguments": {"command": "true"}}]}"#;
    let turns: Vec<_> = std::iter::repeat_n(call, CALLS).chain([r#"{"text": "Done."}"#]).collect();
    let rules = (0..20).map(|nth| format!("allow command tool{nth} *")).chain(["allow command true".to_owned()]);
    let policy = Policy::new(Mode::Ask).rules(rules.map(|rule| rule.parse().expect("a rule")));
    let sandbox = Sandbox::isolated(directory);
    let ours = || {
        let provider: Provider = Script::of(&turns).expect("a script").into();
        let agent = Agent::new("Run.", &provider).turns(CALLS as u64 + 1).tools(builtin::all());
        let session = Session::user("Go.").to(sandbox.clone()).under(policy.clone());
        let session = runtime.block_on(agent.run(session)).expect("a run");
        assert_eq!(session.next(), rath::turn::Next::Done);
    };
    let theirs = || (0..CALLS).for_each(|_| assert!(bwrap.output().expect("it runs").status.success()));
    let (ours, theirs) = medians(ROUNDS, ours, theirs);
    eprintln!("  {CALLS} calls {ours:.2?}, bwrap {theirs:.2?}");
    let what = "a call of `shell` in `isolated`, decided by 21 rules and its files looked at, against bwrap";
    table.at_most(what, ours.as_secs_f64() / theirs.as_secs_f64(), 1.5);
}
