//! Nothing is left of a process that is killed: the next one to open the folder removes it.

use std::fs;
use std::path::{Path, PathBuf};

use rath_test_support::{Chance, count, seed, this_test, wait_until};
use rath_workspace::{Objects, Workspace};

use super::support::restore;

/// The directory of a child process, in its environment.
const FOLDER: &str = "RATH_TEST_FOLDER";

/// Writes, forks, restores and checks out until the process is killed.
#[test]
#[ignore = "a child process of the test below"]
fn child() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let objects = Objects::open(&folder.join("versions")).expect("versions");
    let work = folder.join("work");
    objects.sweep_forks(&work);
    fs::create_dir_all(&work).expect("a directory");
    let mut workspace = Workspace::open(&folder.join("root"), &objects, &folder.join("index")).expect("a workspace");
    let first = workspace.snapshot().expect("a snapshot").tree;
    for nth in 0_u64.. {
        for file in 0..60 {
            fs::write(folder.join(format!("root/d{}/{file}.txt", file % 12)), format!("{nth} {file}\n"))
                .expect("written");
        }
        let tree = workspace.snapshot().expect("a snapshot").tree;
        let name = format!("{}-{nth}", std::process::id());
        let fork = workspace.fork(tree, &work.join(&name), &folder.join(format!("{name}.index")));
        let mut fork = fork.expect("a fork");
        restore(&mut fork, first).expect("restored");
        let checkout = objects.temp_checkout(tree).expect("a checkout");
        fs::write(folder.join("progress"), format!("{}\n", nth + 1)).expect("written");
        restore(&mut workspace, first).expect("restored");
        drop((checkout, fork));
    }
}

/// Returns all files below a directory that are temporary by their name, and all directories of processes that ended.
fn left_behind(folder: &Path) -> Vec<PathBuf> {
    let (mut found, mut rest) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(directory) = rest.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let is_own = directory.ends_with("versions/tmp");
            if is_own || name.starts_with("tmp_") || name.starts_with(".rath-") {
                found.push(entry.path());
            }
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                rest.push(entry.path());
            }
        }
    }
    found
}

/// Returns the mounts below a directory.
fn mounts(folder: &Path) -> Vec<String> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    // A space in a path is written as an octal number.
    let path = folder.display().to_string().replace(' ', "\\040");
    mounts.lines().filter(|line| line.contains(&path)).map(str::to_owned).collect()
}

#[test]
fn the_next_opening_removes_all_that_a_killed_process_left() {
    let temp = rath_test_support::temp_dir();
    let folder = temp.path();
    for nth in 0..1_200 {
        let directory = folder.join(format!("root/d{}", nth % 12));
        fs::create_dir_all(&directory).expect("a directory");
        fs::write(directory.join(format!("{nth}.txt")), format!("file {nth}\n")).expect("written");
    }
    let mut chance = Chance(seed());
    let path = folder.to_str().expect("text");
    for round in 0..count("RATH_KILLS", 6) {
        let _ = fs::remove_file(folder.join("progress"));
        let mut process = this_test("sweep::child", &[(FOLDER, path)]).spawn().expect("a process");
        let wanted = 1 + chance.below(4);
        let progress = || fs::read_to_string(folder.join("progress")).ok().and_then(|text| text.trim().parse().ok());
        wait_until("the child works", || progress().is_some_and(|done: u64| done >= wanted));
        // Another process that is alive keeps its own.
        let live = Objects::open(&folder.join("versions")).expect("versions");
        let own = live.temp_directory().expect("a directory");
        process.kill().expect("killed");
        process.wait().expect("ended");

        let next = Objects::open(&folder.join("versions")).expect("versions");
        next.sweep_forks(&folder.join("work"));
        assert!(own.is_dir(), "round {round}");
        drop((live, next));
        assert_eq!(left_behind(folder), Vec::<PathBuf>::new(), "round {round}");
        assert_eq!(mounts(folder), Vec::<String>::new(), "round {round}");
        for entry in fs::read_dir(folder.join("work")).expect("listed").flatten() {
            let path = entry.path();
            let is_layers = path.extension().is_some_and(|extension| extension == "layers");
            assert!(is_layers || Workspace::is_fork(&path), "round {round}: {} is unfinished", path.display());
        }
    }
}
