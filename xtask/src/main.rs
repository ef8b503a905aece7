//! The chores of this repository. `cargo xtask` lists them; none but `dist`, which packs files, needs a tool beyond cargo.

mod dist;
mod explore;

use std::process::{Command, ExitCode};

const HELP: &str = "\
cargo xtask ci         what has to pass: format, lints, docs, tests, examples
cargo xtask bench      the benchmarks, as a table; ends with 1 if a bound is missed
cargo xtask examples   every example, one after the other
cargo xtask explore [FILTER] [--seconds N]
                       the random tests with fresh seeds, for ten minutes unless told; failures go to target/explore/
cargo xtask dist       a release for this machine, with completions and manual pages: target/dist/*.tar.gz";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match words[..] {
        [] | ["help", ..] => help(),
        _ if words.iter().any(|word| ["--help", "-h"].contains(word)) => help(),
        ["ci"] => ci(),
        ["bench"] => bench(),
        ["examples"] => examples(),
        ["dist"] => dist::dist(),
        ["explore", ..] => explore::explore(&args[1..]),
        ["ci" | "bench" | "dist" | "examples", unknown, ..] => Err(format!("unknown argument `{unknown}`\n{HELP}")),
        [other, ..] => Err(format!("no task `{other}`; there are:\n{HELP}")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn help() -> Result<(), String> {
    println!("{HELP}");
    Ok(())
}

fn ci() -> Result<(), String> {
    cargo(&["fmt", "--all", "--check"], &[])?;
    cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"], &[])?;
    // The smallest library: no C, no TLS, no HTTP.
    cargo(&["clippy", "--package", "openrath", "--no-default-features", "--", "-D", "warnings"], &[])?;
    // The program without the sender of traces.
    cargo(&["clippy", "--package", "rath-cli", "--no-default-features", "--", "-D", "warnings"], &[])?;
    cargo(&["doc", "--workspace", "--no-deps"], &[("RUSTDOCFLAGS", "-D warnings")])?;
    cargo(&["test", "--workspace"], &[])?;
    examples()
}

/// Runs all benchmarks. One that misses a bound does not keep the others from running.
fn bench() -> Result<(), String> {
    // The last two measure the disk more than the code.
    const BENCHES: [&str; 11] = [
        "record",
        "session",
        "provider",
        "flow",
        "sandbox",
        "mcp",
        "policy",
        "memory",
        "commands",
        "store",
        "workspace",
    ];
    // A package by itself is built with other features than the whole workspace, and would be built again.
    let run = |bench| cargo(&["bench", "--quiet", "--workspace", "--bench", bench], &[]);
    let failed: Vec<_> = BENCHES.into_iter().filter_map(|bench| run(bench).err()).collect();
    if failed.is_empty() { Ok(()) } else { Err(failed.join("\n")) }
}

fn examples() -> Result<(), String> {
    let mut rungs: Vec<_> = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../examples"))
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| format!("cannot list the examples: {error}"))?
        .into_iter()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()))
        .collect();
    rungs.sort();
    // Without the name of a package, since one by itself is built with other features than the whole workspace, and so again.
    rungs
        .iter()
        .map(String::as_str)
        .chain(["versions", "walls"])
        .try_for_each(|name| cargo(&["run", "--quiet", "--example", name], &[]))
}

fn cargo(args: &[&str], env: &[(&str, &str)]) -> Result<(), String> {
    eprintln!("\n$ cargo {}", args.join(" "));
    let status = Command::new(env!("CARGO"))
        .args(args)
        .envs(env.iter().copied())
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
        .status()
        .map_err(|error| format!("cannot start cargo: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("`cargo {}` failed", args.join(" "))) }
}
