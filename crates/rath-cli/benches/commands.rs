//! The commands that look back on a session, on one of 10,000 steps: `cargo xtask bench`.
//!
//! Each is held to a tenth of a second of CPU, and to a time that grows no faster than the session. The start of the program is held to
//! 10 ms, and so is what a turn with one call takes beyond one without.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use rath::prelude::*;
use rath::tool::builtin::{ReadFile, WriteFile};
use rath_bench::{Table, medians};

/// The turns of a session of 10,000 steps.
const TURNS: usize = 1_000;
/// The turns of a session that is compared with it.
const FEW_TURNS: usize = TURNS / 5;
/// The files that the session writes in turn.
const FILES: usize = 50;
/// The CPU time of an answer that a person does not wait for.
const BOUND: Duration = Duration::from_millis(100);
/// Five times the steps may take so many times the time.
const GROWTH: f64 = 7.0;
const ROUNDS: u32 = 10;
/// The time that the program may take to start, and a call in a turn beyond its own.
const START_BOUND: Duration = Duration::from_millis(10);

/// The commands, with the arguments that follow the session.
const COMMANDS: [(&str, &[&str]); 14] = [
    ("log", &["--no-pager"]),
    ("log", &["-v"]),
    ("log", &["--json"]),
    ("log", &["--tool", "read_file", "--file", "file7.txt"]),
    ("show", &["head"]),
    ("explain", &[]),
    ("cost", &["--tree"]),
    ("status", &[]),
    ("replay", &[]),
    ("diff", &[]),
    ("blame", &[]),
    ("ls", &[]),
    ("bisect", &["--sandbox", "local:", "--", "false"]),
    ("resume", &["Once more.", "--model", "script:answer.jsonl"]),
];

fn main() {
    let (long, short) = (rath_test_support::temp_dir(), rath_test_support::temp_dir());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let [long_id, short_id] = [(&long, TURNS), (&short, FEW_TURNS)].map(|(directory, turns)| {
        let work = record(directory.path(), turns);
        runtime.block_on(work).expect("a session")
    });
    let mut table = Table::default();
    for (name, options) in COMMANDS {
        let run = |directory: &Path, id: &str| {
            let mut args = match name {
                "blame" => vec!["blame", "file7.txt", id],
                "ls" => vec!["ls"],
                _ => vec![name, id],
            };
            args.extend(options);
            run_rath(directory, &args);
        };
        let cpu = |directory: &Path, id: &str| {
            let before = rath_bench::children_cpu();
            (0..ROUNDS).for_each(|_| run(directory, id));
            (rath_bench::children_cpu() - before) / ROUNDS
        };
        let (time, few) = (cpu(long.path(), &long_id), cpu(short.path(), &short_id));
        assert!(!few.is_zero(), "the CPU time of a process is known here");
        eprintln!("  {name} {}: {time:.2?}, with a fifth of the steps {few:.2?}", options.join(" "));
        let what = format!("`rath {name} {}` on 10,000 steps", options.join(" "));
        table.at_most(&format!("CPU of {what}, against 0.1 s"), time.as_secs_f64() / BOUND.as_secs_f64(), 1.0);
        table.at_most(&format!("CPU of {what}, against 2,000"), time.as_secs_f64() / few.as_secs_f64(), GROWTH);
    }
    let directory = long.path().join("work");
    let (start, _) = medians(ROUNDS as usize, || run_rath(&directory, &["--version"]), || ());
    eprintln!("  start: {start:.2?}");
    table.at_most("`rath --version`, against 10 ms", start.as_secs_f64() / START_BOUND.as_secs_f64(), 1.0);
    let turn = |script| {
        run_rath(&directory, &["run", "Go.", "--sandbox", "local:.", "--store", "sqlite:../t.db", "--model", script]);
    };
    let (with, without) = medians(ROUNDS as usize, || turn("script:../call.jsonl"), || turn("script:../answer.jsonl"));
    let call = with.saturating_sub(without);
    eprintln!("  a turn: {without:.2?}, with a call of `true` {with:.2?}");
    table.at_most("a call of `true` in a turn, against 10 ms", call.as_secs_f64() / START_BOUND.as_secs_f64(), 1.0);
    // The end of the program drops nothing.
    drop((long, short));
    table.print();
}

/// Runs the program in a directory. Nobody reads its output.
fn run_rath(directory: &Path, args: &[&str]) {
    let mut command = rath_test_support::program(env!("CARGO_BIN_EXE_rath"));
    command.args(args).current_dir(directory).stdout(Stdio::null()).stderr(Stdio::null());
    let status = command.status().expect("rath runs");
    assert!(status.success(), "{args:?}: {status}");
}

/// Lets an agent work in a directory for some turns of ten steps, and returns the id of its session.
async fn record(directory: &Path, turns: usize) -> Result<String> {
    let work = directory.join("work");
    std::fs::create_dir(&work)?;
    let answer = r#"{"text": "Done."}"#;
    std::fs::write(directory.join("answer.jsonl"), answer)?;
    let call = r#"{"calls": [{"name": "shell", "arguments": {"command": "true"}}]}"#;
    std::fs::write(directory.join("call.jsonl"), format!("{call}\n{answer}"))?;
    let lines = (0..turns).flat_map(|turn| {
        let path = format!("file{}.txt", turn % FILES);
        let text = format!("line {turn}\n").repeat(20);
        let write = serde_json::json!({"name": "write_file", "arguments": {"path": path, "text": text}});
        let read = serde_json::json!({"name": "read_file", "arguments": {"path": path}});
        let usage = serde_json::json!({"input": 1000, "output": 100});
        let calls = serde_json::json!({"calls": [write, read, read], "usage": usage});
        let text = serde_json::json!({"text": format!("Wrote {path}, as you said."), "usage": usage});
        [calls.to_string(), text.to_string()]
    });
    let model = Provider::from(Script::of(lines)?);
    let agent = Agent::new("You write files.", &model).tool(WriteFile).tool(ReadFile);
    let store = Store::open(&format!("sqlite:{}", directory.join(".rath/rath.db").display())).await?;
    let mut session = Session::user("Write the file.").to(Sandbox::local(&work)).record(&store).await?;
    for turn in 0..turns {
        if turn > 0 {
            session.push(Chunk::user(format!("Write the next file, please. It is number {turn}.")));
        }
        session = agent.run(session).await?;
    }
    let id = session.id().to_string();
    drop(session);
    store.close().await?;
    Ok(id)
}
