//! The compiler's messages for programs that use the macros and traits wrongly.
//!
//! `UPDATE_EXPECT=1` writes the expected messages anew.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The version whose messages are compared: those around ours differ from compiler to compiler.
const RUSTC: &str = "rustc 1.95.";

const PROGRAMS: &str = "tests/compile_fail";

#[test]
fn misuse_is_reported_where_it_is_with_a_remedy() {
    let version = rustc().arg("--version").output().expect("the compiler that built this test");
    let version = String::from_utf8_lossy(&version.stdout);
    if !version.starts_with(RUSTC) {
        eprintln!("skipped: the messages are those of {RUSTC}x, and this is {version}");
        return;
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(PROGRAMS);
    let entries = std::fs::read_dir(folder).expect("the programs").map(|entry| entry.expect("an entry").path());
    let mut programs: Vec<PathBuf> = entries.filter(|path| path.extension().is_some_and(|it| it == "rs")).collect();
    programs.sort();
    assert!(programs.len() > 10, "the programs are there");
    let (first, second) = programs.split_at(programs.len() / 2);
    let wrong: Vec<String> = std::thread::scope(|scope| {
        let halves = [first, second].map(|half| scope.spawn(|| half.iter().filter_map(|it| check(it)).collect()));
        halves.into_iter().flat_map(|half| -> Vec<String> { half.join().expect("it ends") }).collect()
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Compiles a program, and returns the difference if the messages are not the expected ones.
fn check(program: &Path) -> Option<String> {
    let name = program.file_name().expect("a name").to_str().expect("UTF-8");
    let out = rath_test_support::temp_dir();
    let deps = deps();
    let mut rustc = rustc();
    rustc.args(["--edition=2024", "--crate-type=bin", "--emit=metadata", "--color=never", "--out-dir"]).arg(out.path());
    rustc.arg("-L").arg(format!("dependency={}", deps.display()));
    rustc.arg("--extern").arg(format!("rath={}", newest_library(&deps).display()));
    let output = rustc.arg(format!("{PROGRAMS}/{name}")).output().expect("the compiler runs");
    let found = normalized(&String::from_utf8_lossy(&output.stderr));
    if output.status.success() {
        return Some(format!("{name} compiles, and must not"));
    }
    let expected_path = program.with_extension("stderr");
    let expected = std::fs::read_to_string(&expected_path).unwrap_or_default();
    if without_margin(&found) == without_margin(&normalized(&expected)) {
        return None;
    }
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(expected_path, found).expect("written");
        return None;
    }
    Some(format!("{name}: expected\n{expected}\nfound\n{found}\nUPDATE_EXPECT=1 writes the expected messages anew"))
}

/// The compiler of the cargo that built this test: rustup's would depend on the home directory.
fn rustc() -> Command {
    let beside = Path::new(env!("CARGO")).with_file_name("rustc");
    let mut rustc = rath_test_support::program(if beside.exists() { beside } else { "rustc".into() });
    rustc.current_dir(env!("CARGO_MANIFEST_DIR"));
    rustc
}

/// The directory of the libraries that cargo linked this test with.
fn deps() -> PathBuf {
    std::env::current_exe().expect("this program has a path").parent().expect("a folder").to_owned()
}

/// The library `rath` that was built last. This test was linked with it, or with one from the same source.
fn newest_library(deps: &Path) -> PathBuf {
    let entries = std::fs::read_dir(deps).expect("a folder").map(|entry| entry.expect("an entry").path());
    let is_rath = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with("librath-") && name.ends_with(".rlib")
    };
    let built = |path: &PathBuf| std::fs::metadata(path).and_then(|it| it.modified()).expect("a time");
    entries.filter(is_rath).max_by_key(built).expect("the library is built")
}

/// The messages without what differs from machine to machine and from version to version: the code and the line numbers of
/// other sources, which the compiler may not find, counts, the summary at the end.
fn normalized(messages: &str) -> String {
    let mut lines = Vec::new();
    let mut is_elsewhere = false;
    for line in messages.lines() {
        if line.starts_with("error: aborting due to") || line.starts_with("For more information") {
            break;
        }
        let trimmed = line.trim_start();
        let margin = &line[..line.len() - trimmed.len()];
        let place = ["--> ", "::: "].into_iter().find_map(|arrow| Some((arrow, trimmed.strip_prefix(arrow)?)));
        if let Some((arrow, place)) = place {
            is_elsewhere = !place.starts_with(PROGRAMS);
            if !is_elsewhere {
                lines.push(line.to_owned());
            } else if arrow == "--> " {
                lines.push(format!("{margin}{arrow}{}", source(place)));
            }
            continue;
        }
        let code = trimmed.trim_start_matches(|it: char| it.is_ascii_digit()).trim_start();
        is_elsewhere &= code.starts_with(['|', '.']);
        if trimmed.starts_with("and ") && trimmed.ends_with(" others") {
            lines.push(format!("{margin}and $N others"));
        } else if !is_elsewhere {
            lines.push(line.to_owned());
        }
    }
    lines.join("\n").trim_end().to_owned() + "\n"
}

/// A source file that is no program of this test: below this package, or in a package of the registry.
fn source(place: &str) -> String {
    let path = place.split(':').next().unwrap_or(place);
    if let Some((_, inside)) = path.split_once("/registry/src/") {
        let inside = inside.split_once('/').map_or(inside, |(_, inside)| inside);
        let (package, file) = inside.split_once('/').unwrap_or((inside, ""));
        let package = package.rsplit_once('-').map_or(package, |(package, _)| package);
        return format!("$CARGO/{package}-$VERSION/{file}");
    }
    path.rsplit_once("crates/rath/").map_or(path, |(_, inside)| inside).to_owned()
}

/// The lines without the margin, whose width is that of the longest line number, and without those that are nothing else.
fn without_margin(messages: &str) -> Vec<String> {
    let mark = |line: &str| {
        let marked = line.trim_start().trim_start_matches(|it: char| it.is_ascii_digit()).trim_start();
        if marked.starts_with(['|', '=', '+']) { marked.to_owned() } else { line.trim().to_owned() }
    };
    messages.lines().map(mark).filter(|line| !line.is_empty() && line != "|").collect()
}
