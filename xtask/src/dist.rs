//! A release for this machine: the program with its completions, manual pages and licences, in one archive.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cargo;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// The target for which a program needs no library of the machine that it runs on.
const MUSL: &str = "x86_64-unknown-linux-musl";

/// The way in which the program is linked.
struct Linking {
    target: String,
    /// Flags for the compiler.
    flags: &'static str,
    /// True if the program needs no library of the machine that it runs on.
    is_static: bool,
}

/// Builds the archive and the file with its checksum.
pub(crate) fn dist() -> Result<(), String> {
    let linking = Linking::choose()?;
    let Linking { target, flags, is_static } = &linking;
    eprintln!("target {target}, {}", if *is_static { "static" } else { "with the libraries of this machine" });
    let flags = [std::env::var("RUSTFLAGS").unwrap_or_default().as_str(), flags].join(" ");
    let env = [("RUSTFLAGS", flags.trim()), ("CARGO_PROFILE_RELEASE_STRIP", "symbols")];
    cargo(&["build", "--release", "--locked", "--package", "rath-cli", "--target", target], &env)?;
    let built = target_dir().join(target).join("release/rath");
    let name = format!("rath-{}-{target}", env!("CARGO_PKG_VERSION"));
    let folder = target_dir().join("dist");
    let files = folder.join(&name);
    match fs::remove_dir_all(&files) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(cannot("remove", &files, &error)),
        _ => {}
    }
    let make = |path: &str| {
        let directory = files.join(path);
        fs::create_dir_all(&directory).map(|()| directory.clone()).map_err(|error| cannot("create", &directory, &error))
    };
    copy(&built, &make("bin")?.join("rath"))?;
    let rath = |args: &[&str]| output(Command::new(&built).args(args));
    for (shell, directory, file) in [
        ("bash", "share/bash-completion/completions", "rath"),
        ("zsh", "share/zsh/site-functions", "_rath"),
        ("fish", "share/fish/vendor_completions.d", "rath.fish"),
    ] {
        write(&make(directory)?.join(file), &rath(&["completions", shell])?)?;
    }
    rath(&["man", &make("share/man/man1")?.to_string_lossy()])?;
    let doc = make("share/doc/rath")?;
    for licence in ["LICENSE-APACHE", "LICENSE-MIT"] {
        copy(&Path::new(ROOT).join(licence), &doc.join(licence))?;
    }
    write(&doc.join("THIRD-PARTY-LICENSES"), licences(target)?.as_bytes())?;
    let archive = format!("{name}.tar.gz");
    pack(&folder, &name, &archive)?;
    let sum = output(Command::new("sha256sum").arg(&archive).current_dir(&folder))?;
    write(&folder.join(format!("{archive}.sha256")), &sum)?;
    println!("{}", folder.join(archive).display());
    Ok(())
}

impl Linking {
    fn choose() -> Result<Self, String> {
        let about = output(Command::new("rustc").arg("-vV"))?;
        let about = String::from_utf8_lossy(&about);
        let host = about.lines().find_map(|line| line.strip_prefix("host: ")).ok_or("rustc does not say its host")?;
        let is_linux = host == "x86_64-unknown-linux-gnu" || host == MUSL;
        let libraries = output(Command::new("rustc").args(["--print", "target-libdir", "--target", MUSL]));
        let has_std = || libraries.is_ok_and(|path| Path::new(String::from_utf8_lossy(&path).trim()).is_dir());
        // SQLite and ring are C, which needs the headers of musl.
        let has_compiler = || ["x86_64-linux-musl-gcc", "musl-gcc"].iter().any(|name| is_program(name));
        if is_linux && has_std() && has_compiler() {
            return Ok(Linking { target: MUSL.to_owned(), flags: "", is_static: true });
        }
        let flags = "-C target-feature=+crt-static";
        let is_static = host.ends_with("-linux-gnu") && can_link(host, flags);
        Ok(Linking { target: host.to_owned(), flags: if is_static { flags } else { "" }, is_static })
    }
}

/// Returns true if a program can be linked with these flags: the C library may be there as a shared one only.
fn can_link(target: &str, flags: &str) -> bool {
    let folder = target_dir().join("dist");
    let (source, program) = (folder.join("trial.rs"), folder.join("trial"));
    let compile = || {
        let mut rustc = Command::new("rustc");
        rustc.args(["--target", target]).args(flags.split(' ')).arg("-o").arg(&program).arg(&source);
        output(&mut rustc)
    };
    let is_linked =
        fs::create_dir_all(&folder).is_ok() && fs::write(&source, "fn main() {}\n").is_ok() && compile().is_ok();
    let runs = is_linked && output(&mut Command::new(&program)).is_ok();
    [source, program].iter().for_each(|path| _ = fs::remove_file(path));
    runs
}

/// Packs a folder so that equal files make an equal archive.
fn pack(folder: &Path, name: &str, archive: &str) -> Result<(), String> {
    let at = output(Command::new("git").args(["log", "-1", "--format=%ct"]).current_dir(ROOT)).unwrap_or_default();
    let at = String::from_utf8_lossy(&at).trim().parse::<u64>().unwrap_or_default();
    let mut tar = Command::new("tar");
    tar.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--mode=u+rw,go+r,go-w"]);
    tar.args([&format!("--mtime=@{at}"), "--use-compress-program=gzip -9n", "-cf", archive, name]);
    output(tar.current_dir(folder)).map(drop)
}

/// Returns the licences of all crates that are in the program, each text once.
fn licences(target: &str) -> Result<String, String> {
    let tree = ["tree", "--locked", "--package", "rath-cli", "--edges", "normal", "--prefix", "none"];
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(tree).args(["--format", "{p}|{l}", "--target", target]).current_dir(ROOT);
    let listed = String::from_utf8_lossy(&output(&mut cargo)?).into_owned();
    let mut crates: Vec<(String, &str)> = Vec::new();
    for line in listed.lines() {
        let (package, licence) =
            line.trim_end_matches(" (*)").split_once('|').ok_or("cargo tree says something else")?;
        let mut words = package.split(' ');
        let (Some(name), Some(version)) = (words.next(), words.next()) else { continue };
        // A package with a path is one of this repository.
        if !package.contains(" (/") {
            crates.push((format!("{name}-{}", version.trim_start_matches('v')), licence));
        }
    }
    crates.sort();
    crates.dedup();
    let (mut texts, mut list): (Vec<(Vec<String>, String)>, String) = Default::default();
    for (name, licence) in crates {
        _ = writeln!(list, "{name}: {licence}");
        for text in licence_files(&name)? {
            match texts.iter_mut().find(|(_, known)| *known == text) {
                Some((names, _)) => names.push(name.clone()),
                None => texts.push((vec![name.clone()], text)),
            }
        }
    }
    let mut all = format!("rath contains these crates, under these licences:\n\n{list}");
    for (names, text) in texts {
        _ = write!(all, "\n{}\n{}:\n\n{text}\n", "-".repeat(80), names.join(", "));
    }
    Ok(all)
}

/// Reads the licences of a crate, without spaces at the ends of lines.
fn licence_files(name: &str) -> Result<Vec<String>, String> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(std::env::home_dir()?.join(".cargo"))).ok_or("there is no home directory")?;
    let sources = home.join("registry/src");
    let registries = fs::read_dir(&sources).map_err(|error| cannot("list", &sources, &error))?;
    let found = registries.flatten().map(|registry| registry.path().join(name)).find(|path| path.is_dir());
    let directory = found.ok_or_else(|| format!("the source of {name} is not in {}", sources.display()))?;
    let is_licence = |path: &Path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_uppercase();
        path.is_file() && ["LICENSE", "LICENCE", "COPYING", "NOTICE", "UNLICENSE"].iter().any(|it| name.starts_with(it))
    };
    let entries = fs::read_dir(&directory).map_err(|error| cannot("list", &directory, &error))?;
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).filter(|path| is_licence(path)).collect();
    paths.sort();
    let read = |path: &PathBuf| {
        let text = fs::read(path).map_err(|error| cannot("read", path, &error))?;
        Ok(String::from_utf8_lossy(&text).lines().map(|line| line.trim_end().to_owned() + "\n").collect())
    };
    paths.iter().map(read).collect()
}

fn target_dir() -> PathBuf {
    let named = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    named.unwrap_or_else(|| Path::new(ROOT).canonicalize().unwrap_or_else(|_| ROOT.into()).join("target"))
}

fn is_program(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(name).is_file())
}

/// Runs a program, and returns its output.
fn output(command: &mut Command) -> Result<Vec<u8>, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| format!("cannot start {name}: {error}"))?;
    match output.status.success() {
        true => Ok(output.stdout),
        false => Err(format!("`{name}` failed: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}

fn write(path: &Path, content: &[u8]) -> Result<(), String> {
    fs::write(path, content).map_err(|error| cannot("write", path, &error))
}

fn copy(from: &Path, to: &Path) -> Result<(), String> {
    fs::copy(from, to).map(drop).map_err(|error| cannot("copy", from, &error))
}

fn cannot(what: &str, path: &Path, error: &std::io::Error) -> String {
    format!("cannot {what} {}: {error}", path.display())
}
