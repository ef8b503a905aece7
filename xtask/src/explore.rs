//! Random tests with fresh seeds, again and again. What fails is written to a file with the command that runs it again.

use std::hash::{BuildHasher as _, RandomState};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The random tests: the package, and a part of the test's name.
const RANDOM: [(&str, &str); 11] = [
    ("rath-record", "laws::"),
    ("rath-record", "fuzz::"),
    ("rath-workspace", "laws::"),
    ("rath-workspace", "merge::"),
    ("openrath", "laws::every_call_is_counted_once"),
    ("openrath", "render::"),
    ("openrath", "secrets::"),
    ("openrath", "wire::"),
    ("openrath", "provenance::"),
    ("openrath", "store::laws::"),
    ("openrath", "store::kill::"),
];

const USAGE: &str = "cargo xtask explore [FILTER] [--seconds N]";

/// Runs the random tests whose names contain the filter until the time is over, and fails if a test did.
pub(crate) fn explore(args: &[String]) -> Result<(), String> {
    let Options { filter, time } = Options::parse(args)?;
    let tests: Vec<_> =
        RANDOM.into_iter().filter(|(package, name)| format!("{package} {name}").contains(&filter)).collect();
    if tests.is_empty() {
        let names: Vec<_> = RANDOM.iter().map(|(package, name)| format!("{package} {name}")).collect();
        return Err(format!("no random test contains `{filter}`; there are:\n{}", names.join("\n")));
    }
    let mut packages: Vec<_> = tests.iter().map(|(package, _)| package).collect();
    packages.dedup();
    for package in packages {
        crate::cargo(&["test", "--package", package, "--test", "it", "--no-run"], &[])?;
    }
    let begun = Instant::now();
    let (mut runs, mut failures) = (0, 0);
    for (package, name) in tests.iter().cycle() {
        if runs > 0 && begun.elapsed() >= time {
            break;
        }
        runs += 1;
        // A seed of 32 bits is random enough, and can be typed.
        let seed = RandomState::new().hash_one(runs) >> 32;
        eprint!("RATH_SEED={seed} {package} {name} ");
        match run(package, name, seed)? {
            None => eprintln!("ok"),
            Some(file) => {
                failures += 1;
                eprintln!("FAILED, see {}", file.display());
            }
        }
    }
    eprintln!("{runs} runs in {} s, {failures} failed", begun.elapsed().as_secs());
    if failures == 0 { Ok(()) } else { Err(format!("{failures} of {runs} runs failed")) }
}

struct Options {
    filter: String,
    time: Duration,
}

impl Options {
    fn parse(args: &[String]) -> Result<Self, String> {
        let mut options = Options { filter: String::new(), time: Duration::from_secs(600) };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            match &**arg {
                "--seconds" => {
                    let seconds = args.next().and_then(|seconds| seconds.parse().ok());
                    let seconds = seconds.ok_or(format!("`--seconds` wants a number: {USAGE}"))?;
                    options.time = Duration::from_secs(seconds);
                }
                flag if flag.starts_with('-') => return Err(format!("no option `{flag}`: {USAGE}")),
                filter => options.filter = filter.to_owned(),
            }
        }
        Ok(options)
    }
}

/// Runs a test with a seed. Returns the file with its output if it failed: the seed, the minimal input and the message.
fn run(package: &str, name: &str, seed: u64) -> Result<Option<PathBuf>, String> {
    let output = Command::new(env!("CARGO"))
        .args(["test", "--quiet", "--package", package, "--test", "it", "--", name])
        .env("RATH_SEED", seed.to_string())
        .current_dir(root())
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("cannot start cargo: {error}"))?;
    let texts = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    let passed = texts[0].split_once("test result: ok. ").map(|(_, count)| count);
    if output.status.success() {
        return match passed {
            Some(count) if !count.starts_with("0 ") => Ok(None),
            _ => Err(format!("{package} has no test `{name}`")),
        };
    }
    // Cargo itself may fail: then no other seed helps.
    if !texts[0].contains("test result: FAILED") {
        return Err(format!("cargo failed:\n{}", texts[1]));
    }
    let again = format!("RATH_SEED={seed} cargo test --package {package} --test it -- {name}");
    let folder = root().join("target/explore");
    let file = folder.join(format!("{}{seed}.txt", name.replace("::", "-")));
    std::fs::create_dir_all(&folder)
        .and_then(|()| std::fs::write(&file, format!("run it again:\n{again}\n\n{}", texts.concat())))
        .map_err(|error| format!("cannot write {}: {error}", file.display()))?;
    eprintln!("\nrun it again: {again}");
    Ok(Some(file))
}

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}
