//! Calls that only Unix has are made in modules that only Unix compiles, so that the libraries build elsewhere.

use std::path::Path;

use rath_test_support::{ModuleDeclaration, module_declarations, source_files};

/// Texts that stand for calls of Unix.
const UNIX_ONLY: [&str; 5] = ["os::unix", "os::fd", "rustix", "libc::", "seccompiler"];

/// The packages that build on every platform, with the first file of each.
const ROOTS: [&str; 7] = [
    "rath-record/src/lib.rs",
    "rath-workspace/src/lib.rs",
    "rath-sandbox/src/lib.rs",
    "rath-macros/src/lib.rs",
    "rath/src/lib.rs",
    "rath-testkit/src/lib.rs",
    "rath-cli/src/main.rs",
];

#[test]
fn calls_of_unix_are_behind_a_cfg() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let (mut seen, mut wrong) = (0, Vec::new());
    for root in ROOTS {
        for file in source_files(&crates.join(root), is_portable) {
            check_file(&file.path, &file.text, &mut wrong);
            seen += 1;
        }
    }
    assert!(seen > 200, "the sources are there: {seen}");
    assert!(wrong.is_empty(), "\n{}", wrong.concat());
}

/// Checks a file that every platform compiles. A call is allowed right below an attribute for Unix or Linux.
fn check_file(path: &Path, text: &str, wrong: &mut Vec<String>) {
    let mut above = "";
    for (nth, line) in text.lines().map(str::trim).enumerate() {
        if !line.starts_with("//") && UNIX_ONLY.iter().any(|call| line.contains(call)) && !is_guard(above) {
            wrong.push(format!("{}:{}: put this in a module under `cfg(unix)`\n", path.display(), nth + 1));
        }
        above = line;
    }
}

/// Returns true for a module that every platform compiles. Modules of tests are left out.
fn is_portable(module: &ModuleDeclaration<'_>) -> bool {
    !module.attributes.iter().any(|line| is_guard(line) || line.contains("cfg(test)"))
}

/// Returns true for an attribute that leaves out what follows on platforms other than Unix.
fn is_guard(line: &str) -> bool {
    let is_platform = line.contains("unix") || line.contains("target_os = \"linux\"");
    line.starts_with("#[cfg(") && is_platform && !line.contains("not(") && !line.contains("any(")
}

#[test]
fn a_call_without_a_cfg_is_found() {
    let wrong = |text: &str| {
        let mut wrong = Vec::new();
        check_file(Path::new("lib.rs"), text, &mut wrong);
        wrong.len()
    };
    assert_eq!(wrong("use std::os::fd::OwnedFd;\nlet id = rustix::process::getpid();\n"), 2);
    assert_eq!(wrong("#[cfg(not(unix))]\nuse std::os::fd::OwnedFd;\n"), 1);
    assert_eq!(wrong("// rustix\n#[cfg(unix)]\nstd::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);\n"), 0);
    let text = "mod all;\n#[cfg(unix)]\nmod disk;\n#[cfg(not(unix))]\n#[path = \"disk_unsupported.rs\"]\npub(crate) mod disk;\n\
                #[cfg(all(unix, feature = \"process\"))]\nmod local;\n#[cfg(test)]\nmod tests;\nmod tests {\n";
    let found = module_declarations(text).into_iter().filter(is_portable);
    let found: Vec<_> = found.map(|found| found.file(Path::new("src/lib.rs"), Path::new("src"))).collect();
    assert_eq!(found, [Path::new("src/all.rs"), Path::new("src/disk_unsupported.rs")]);
}
