//! Support for the tests of this workspace: fixed seeds, temporary directories, programs with a clean environment, waiting,
//! source files, power cuts.
//!
//! A test gives the same result on every machine because it takes these things from here and from nowhere else;
//! `tests/rules.rs` fails when a test goes around them.

#[cfg(target_os = "linux")]
mod power_cut;
mod process;
mod random;
mod sources;
#[cfg(unix)]
mod terminal;
#[cfg(target_os = "linux")]
mod user;
mod wait;

#[cfg(target_os = "linux")]
pub use power_cut::{CutState, PowerCuts};
pub use process::{git, program, this_test};
pub use random::{Chance, cases, count, exhaustive, property, seed, seeds};
pub use sources::{ModuleDeclaration, SourceFile, module_declarations, source_files};
pub use tempfile::TempDir;
#[cfg(unix)]
pub use terminal::Terminal;
#[cfg(target_os = "linux")]
pub use user::as_ordinary_user;
pub use wait::{LIMIT, wait_until, with_enough_time};

/// Makes an empty directory that is removed when the value is dropped.
///
/// Its path is canonical, so it can be compared with what a program prints, even if `TMPDIR` is a symlink. It contains a
/// space: a bug with such a path shows on every machine.
#[track_caller]
pub fn temp_dir() -> TempDir {
    let parent = std::env::temp_dir().canonicalize().expect("the directory for temporary files exists");
    temp_dir_in(&parent)
}

/// Makes a directory like [`temp_dir`] whose path has no blank: the first line of a script can name an interpreter in it.
#[track_caller]
pub fn temp_dir_without_blanks() -> TempDir {
    tempfile::Builder::new().prefix("rath-test-").tempdir().expect("a temporary directory can be made")
}

/// Makes a directory like [`temp_dir`] on a file system in memory, where there is one that this user may write to.
#[track_caller]
pub fn temp_dir_in_memory() -> TempDir {
    tempfile::Builder::new().prefix("rath test ").tempdir_in("/dev/shm").unwrap_or_else(|_| temp_dir())
}

/// Makes a directory like [`temp_dir`] in another place, such as `CARGO_TARGET_TMPDIR` or a file system in memory.
#[track_caller]
pub fn temp_dir_in(parent: &std::path::Path) -> TempDir {
    tempfile::Builder::new().prefix("rath test ").tempdir_in(parent).expect("a temporary directory can be made")
}
