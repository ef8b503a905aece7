//! Calls that only Unix has are made in modules that only Unix compiles, so that the libraries build elsewhere.

use std::path::{Path, PathBuf};

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
        let root = crates.join(root);
        let mut rest = vec![(root.parent().expect("it is in a folder").to_owned(), root)];
        while let Some((modules, path)) = rest.pop() {
            let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            check_file(&path, &text, &mut wrong);
            rest.extend(portable_modules(&path, &modules, &text));
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

/// Returns the modules that a file declares and that every platform compiles: the folder of their own modules, and their
/// file. Modules of tests are left out.
fn portable_modules(path: &Path, modules: &Path, text: &str) -> Vec<(PathBuf, PathBuf)> {
    let (mut found, mut attributes) = (Vec::new(), Vec::new());
    for line in text.lines() {
        if line.starts_with("#[") {
            attributes.push(line);
            continue;
        }
        let name = line.rsplit_once("mod ").and_then(|(before, name)| {
            let is_declaration = before.is_empty() || before.starts_with("pub");
            name.strip_suffix(';').filter(|_| is_declaration)
        });
        let is_left_out = attributes.iter().any(|line| is_guard(line) || line.contains("cfg(test)"));
        if let Some(name) = name.filter(|_| !is_left_out) {
            let named = attributes.iter().find_map(|line| line.strip_prefix("#[path = \"")?.strip_suffix("\"]"));
            let file = match named {
                Some(file) => path.parent().expect("it is in a folder").join(file),
                None => modules.join(format!("{name}.rs")),
            };
            found.push((modules.join(name), file));
        }
        attributes.clear();
    }
    found
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
    let found = portable_modules(Path::new("src/lib.rs"), Path::new("src"), text);
    let found: Vec<_> = found.iter().map(|(_, file)| file.display().to_string()).collect();
    assert_eq!(found, ["src/all.rs", "src/disk_unsupported.rs"]);
}
