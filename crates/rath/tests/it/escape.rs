//! Paths that try to lead out of a workspace, and whether anything does.

#[cfg(target_os = "linux")]
mod race;
mod root;
mod tools;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// Content that no command in the sandbox may read.
const CANARY: &str = "CANARY-7f3a";

/// A workspace, and what lies around it.
pub(super) struct Yard {
    folder: rath_test_support::TempDir,
}

impl Yard {
    fn new() -> Self {
        let yard = Yard { folder: rath_test_support::temp_dir() };
        for directory in ["inside/a/b", "inside/.rath", "inside/.rathx", "inside/sub/.rath", "outside/sub", "insidex"] {
            fs::create_dir_all(yard.folder().join(directory)).expect("a directory");
        }
        for file in ["outside/secret", "outside/file", "outside/sub/secret", "insidex/secret", "inside/.rath/secret"] {
            yard.set(file, CANARY);
        }
        for file in ["inside/a/file", "inside/a/b/file", "inside/.rathx/file", "inside/sub/.rath/file", "outside/plain"]
        {
            yard.set(file, "harmless");
        }
        yard
    }

    /// The directory of all of it, without links.
    fn folder(&self) -> PathBuf {
        self.folder.path().canonicalize().expect("a folder")
    }

    fn inside(&self) -> PathBuf {
        self.folder().join("inside")
    }

    fn set(&self, file: &str, text: &str) {
        fs::write(self.folder().join(file), text).expect("a file");
    }

    /// A link in the workspace.
    fn link(&self, name: &str, target: &str) {
        symlink(self.described(target), self.inside().join(name)).expect("a link");
    }

    /// A path with what it stands for on this machine.
    fn described(&self, path: &str) -> String {
        let folder = self.folder();
        path.replace("{in}", &folder.join("inside").to_string_lossy())
            .replace("{out}", &folder.join("outside").to_string_lossy())
    }

    /// Returns everything that no command in the sandbox may change, as it is now.
    fn around(&self) -> BTreeMap<PathBuf, String> {
        let mut around = BTreeMap::new();
        for place in ["outside", "insidex", "inside/.rath/secret"] {
            survey(&self.folder().join(place), &mut around);
        }
        let own = fs::symlink_metadata(self.folder()).expect("a folder");
        around.insert(
            self.folder(),
            format!("{} {:?}", own.mtime_nsec(), fs::read_dir(self.folder()).map(Iterator::count)),
        );
        around
    }
}

/// Describes a path and everything below it: bytes, permissions, owner, inode, time of the last change.
fn survey(path: &Path, all: &mut BTreeMap<PathBuf, String>) {
    let about = fs::symlink_metadata(path).expect("it is there");
    let said = if about.is_file() { fs::read(path).expect("a file") } else { Vec::new() };
    let (mode, owner, when) =
        (about.permissions().mode(), (about.uid(), about.gid()), (about.mtime(), about.mtime_nsec()));
    all.insert(path.to_owned(), format!("{said:?} {mode:o} {owner:?} {} {when:?}", about.ino()));
    if about.is_dir() {
        for entry in fs::read_dir(path).expect("a directory") {
            survey(&entry.expect("an entry").path(), all);
        }
    }
}

/// The outcome for a path.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Ends {
    /// It is refused, since it leads out.
    Outside,
    /// It is refused, since it leads into rath's own folder.
    Own,
    /// It is a file inside, which says `harmless`.
    File,
    /// It is a directory inside.
    Directory,
    /// Nothing is there, and a file can be made.
    Nothing,
    /// Nothing is there, and nothing can be.
    Never,
    /// It is there and no file.
    Odd,
}
use Ends::*;

type Prepare = fn(&Yard);
type Row = (&'static str, Ends, Prepare);

const NONE: Prepare = |_| {};

/// Paths, their outcomes, and the preparation of each.
const ROWS: &[Row] = &[
    // Up and out.
    ("..", Outside, NONE),
    ("../", Outside, NONE),
    ("../.", Outside, NONE),
    ("../outside/secret", Outside, NONE),
    ("../outside", Outside, NONE),
    ("../outside/new", Outside, NONE),
    ("../../../../../../../../etc/passwd", Outside, NONE),
    ("a/../../outside/secret", Outside, NONE),
    ("a/b/../../../outside/secret", Outside, NONE),
    ("./../outside/secret", Outside, NONE),
    (".//..//outside//secret", Outside, NONE),
    ("a/./.././../outside/secret", Outside, NONE),
    ("none/../../outside/secret", Outside, NONE),
    ("none/none/../../../outside/new", Outside, NONE),
    ("../inside/a/file", Outside, NONE),
    ("../insidex/secret", Outside, NONE),
    ("../outside/secret\n", Outside, NONE),
    ("a/file/../../../outside/secret", Never, NONE),
    // From the top.
    ("/", Outside, NONE),
    ("//", Outside, NONE),
    ("/etc/passwd", Outside, NONE),
    ("//etc/passwd", Outside, NONE),
    ("///etc///passwd", Outside, NONE),
    ("/dev/zero", Outside, NONE),
    ("/dev/stdin", Outside, NONE),
    ("/proc/self/environ", Outside, NONE),
    ("/proc/self/cwd/Cargo.toml", Outside, NONE),
    ("/proc/self/root/etc/passwd", Outside, NONE),
    ("/proc/self/fd/0", Outside, NONE),
    ("{out}/secret", Outside, NONE),
    ("{out}/new", Outside, NONE),
    ("{in}x/secret", Outside, NONE),
    ("{in}/../outside/secret", Outside, NONE),
    ("{in}/a/../../outside/secret", Outside, NONE),
    ("{in}/a/file", File, NONE),
    ("/.{in}/a/file", File, NONE),
    ("{in}", Directory, NONE),
    // Links out.
    ("l", Outside, |yard| yard.link("l", "../outside/secret")),
    ("l", Outside, |yard| yard.link("l", "{out}/secret")),
    ("l", Outside, |yard| yard.link("l", ".//..//outside//secret")),
    ("l/secret", Outside, |yard| yard.link("l", "../outside")),
    ("l/secret", Outside, |yard| yard.link("l", "../outside/")),
    ("l/secret", Outside, |yard| yard.link("l", "{out}")),
    ("l/new", Outside, |yard| yard.link("l", "{out}")),
    ("l/sub/secret", Outside, |yard| yard.link("l", "../outside")),
    ("l", Outside, |yard| yard.link("l", "../outside")),
    ("l/", Outside, |yard| yard.link("l", "../outside")),
    ("l/.", Outside, |yard| yard.link("l", "../outside")),
    ("l/..", Outside, |yard| yard.link("l", "../outside/sub")),
    ("l/../secret", Outside, |yard| yard.link("l", "../outside/sub")),
    ("a/l/secret", Outside, |yard| yard.link("a/l", "../../outside")),
    ("a/l/sub/../secret", Outside, |yard| yard.link("a/l", "../../outside")),
    ("l/outside/secret", Outside, |yard| yard.link("l", "..")),
    ("l/../outside/secret", Outside, |yard| yard.link("l", ".")),
    ("l/l/l/../outside/secret", Outside, |yard| yard.link("l", ".")),
    ("l/etc/passwd", Outside, |yard| yard.link("l", "/")),
    (".../secret", Outside, |yard| yard.link("...", "../outside")),
    ("l", Outside, |yard| yard.link("l", "../inside/a/file")),
    ("one", Outside, |yard| {
        yard.link("one", "two");
        yard.link("two", "a/three");
        yard.link("a/three", "../../outside/secret");
    }),
    ("one/secret", Outside, |yard| {
        yard.link("one", "a/two");
        yard.link("a/two", "../three");
        yard.link("three", "{out}");
    }),
    ("one/../../secret", Outside, |yard| {
        yard.link("one", "a/two");
        yard.link("a/two", "../../outside/sub");
    }),
    ("l", Outside, |yard| yard.link("l", "/proc/self/environ")),
    ("l/Cargo.toml", Outside, |yard| yard.link("l", "/proc/self/cwd")),
    ("l/etc/passwd", Outside, |yard| yard.link("l", "/proc/self/root")),
    ("l/etc/passwd", Outside, |yard| yard.link("l", "/proc/1/root")),
    ("l/0", Outside, |yard| yard.link("l", "/proc/self/fd")),
    ("l", Outside, |yard| yard.link("l", "/proc/thread-self/fd/1")),
    ("l", Outside, |yard| yard.link("l", "/dev/fd/0")),
    ("l", Outside, |yard| yard.link("l", "/dev/stdin")),
    ("l", Outside, |yard| yard.link("l", "/dev/zero")),
    // Links to what is not there.
    ("l", Outside, |yard| yard.link("l", "../outside/new")),
    ("l", Outside, |yard| yard.link("l", "{out}/new")),
    ("l", Outside, |yard| yard.link("l", "../new")),
    ("l/new", Outside, |yard| yard.link("l", "../outside/none")),
    ("l/new/file", Outside, |yard| yard.link("l", "{out}/none")),
    ("l", Outside, |yard| yard.link("l", "none/../../outside/new")),
    ("l", Nothing, |yard| yard.link("l", "a/new")),
    ("l/new", Nothing, |yard| yard.link("l", "a/none")),
    ("l", Nothing, |yard| yard.link("l", "{in}/a/none/new")),
    // Links that stay inside.
    ("l", File, |yard| yard.link("l", "a/file")),
    ("l", File, |yard| yard.link("l", "{in}/a/file")),
    ("a/l", File, |yard| yard.link("a/l", "../a/b/../file")),
    ("l/file", File, |yard| yard.link("l", "a/b")),
    ("l/../file", File, |yard| yard.link("l", "a/b")),
    ("l", Directory, |yard| yard.link("l", "a/b")),
    ("0", File, |yard| chain(yard, 40)),
    // Links to nowhere.
    ("0", Never, |yard| chain(yard, 41)),
    ("l", Never, |yard| yard.link("l", "l")),
    ("l/file", Never, |yard| yard.link("l", "l")),
    ("l", Never, |yard| yard.link("l", "./l/../l")),
    ("l", Never, |yard| {
        yard.link("l", "a/m");
        yard.link("a/m", "../l");
    }),
    // Names that look like something else.
    ("", Directory, NONE),
    (".", Directory, NONE),
    ("./", Directory, NONE),
    ("././/.", Directory, NONE),
    ("a/b/..", Directory, NONE),
    ("a//file", File, NONE),
    ("./a/./file", File, NONE),
    ("none/../a/file", File, NONE),
    ("a/file/", Never, NONE),
    ("a/file/.", Never, NONE),
    ("a/file/none", Never, NONE),
    ("a/new/", Never, NONE),
    ("..\\outside\\secret", Nothing, NONE),
    ("..%2foutside%2fsecret", Nothing, NONE),
    ("\u{ff0e}\u{ff0e}/outside/secret", Nothing, NONE),
    ("..\u{2215}outside\u{2215}secret", Nothing, NONE),
    ("\u{202e}terces", Nothing, NONE),
    (".. /outside/secret", Nothing, NONE),
    (" ../outside/secret", Nothing, NONE),
    ("~/secret", Nothing, NONE),
    ("$HOME/secret", Nothing, NONE),
    ("file:{out}/secret", Nothing, NONE),
    ("C:\\outside\\secret", Nothing, NONE),
    ("a/fil?", Nothing, NONE),
    ("a/file\r", Nothing, NONE),
    // Elsewhere the two may be one name.
    #[cfg(target_os = "linux")]
    ("e\u{301}", Nothing, |yard| yard.set("inside/\u{e9}", "harmless")),
    ("a/file\0/../../../outside/secret", Never, NONE),
    ("\0", Never, NONE),
    ("{255}", Nothing, NONE),
    ("{256}", Never, NONE),
    ("{256}/../a/file", Never, NONE),
    ("{deep}", Never, NONE),
    ("{round}a/file", File, NONE),
    ("{round}../outside/secret", Outside, NONE),
    // No files.
    ("odd", Odd, |yard| pipe(&yard.inside().join("odd"))),
    ("l", Odd, |yard| {
        pipe(&yard.inside().join("odd"));
        yard.link("l", "a/../odd");
    }),
    ("odd", Odd, |yard| {
        // The path of a socket has at most 108 bytes, wherever the directory for temporary files is.
        let inside = fs::File::open(yard.inside()).expect("a directory");
        let short = format!("/proc/self/fd/{}/odd", std::os::fd::AsRawFd::as_raw_fd(&inside));
        std::os::unix::net::UnixListener::bind(short).expect("a socket");
    }),
    // A file outside that has another name inside.
    ("other", File, |yard| {
        fs::hard_link(yard.folder().join("outside/plain"), yard.inside().join("other")).expect("another name");
    }),
    // What is rath's own.
    (".rath", Own, NONE),
    (".rath/", Own, NONE),
    (".rath/secret", Own, NONE),
    (".rath/new", Own, NONE),
    (".RATH/secret", Own, NONE),
    ("./.rath//secret", Own, NONE),
    ("a/../.rath/secret", Own, NONE),
    ("none/../.rath/secret", Own, NONE),
    (".rath/../a/file", Own, NONE),
    ("{in}/.rath/secret", Own, NONE),
    ("l/secret", Own, |yard| yard.link("l", ".rath")),
    ("l", Own, |yard| yard.link("l", "{in}/.rath/secret")),
    ("a/l", Own, |yard| yard.link("a/l", "../.rath/new")),
    (".rathx/file", File, NONE),
    ("sub/.rath/file", Own, NONE),
    ("sub/.rath", Own, NONE),
    ("sub/.RATH/new", Own, NONE),
    ("none/.rath/new", Own, NONE),
    ("l", Own, |yard| yard.link("l", "sub/.rath/file")),
];

/// A chain of so many links that ends at a file.
fn chain(yard: &Yard, links: usize) {
    for nth in 0..links {
        let next = if nth + 1 == links { "a/file".to_owned() } else { (nth + 1).to_string() };
        yard.link(&nth.to_string(), &next);
    }
}

fn pipe(path: &Path) {
    let made = rath_test_support::program("mkfifo").arg(path).status();
    assert!(made.expect("mkfifo").success());
}

/// The path of a row in a yard.
fn path(yard: &Yard, row: &Row) -> String {
    yard.described(row.0)
        .replace("{255}", &"x".repeat(255))
        .replace("{256}", &"x".repeat(256))
        .replace("{deep}", &"x/".repeat(3_000))
        .replace("{round}", &"a/../".repeat(1_000))
}

/// Returns true if a text holds anything from outside.
fn leaks(text: &str) -> bool {
    [CANARY, "root:", "PATH="].iter().any(|secret| text.contains(secret))
}
