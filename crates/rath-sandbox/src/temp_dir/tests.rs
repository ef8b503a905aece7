//! Temporary directories of killed processes go, and all others stay.

use rath_test_support::{this_test, wait_until};

use super::*;

#[test]
#[ignore = "a process that another test kills"]
fn child() {
    let folder = std::env::var("RATH_TEST_FOLDER").expect("a folder");
    let directory = TempDir::create_in(Path::new(&folder), "spool").expect("created");
    fs::create_dir(directory.path().join("below")).expect("a directory");
    fs::write(directory.path().join("below/output"), "long").expect("written");
    loop {
        std::thread::sleep(Duration::from_secs(1));
    }
}

#[test]
fn the_directory_of_a_killed_process_goes_and_that_of_a_live_one_stays() {
    let folder = tempfile::tempdir().expect("a folder");
    let text = folder.path().to_str().expect("UTF-8");
    let is_there = || {
        let entries = fs::read_dir(folder.path()).expect("listed").flatten();
        entries.map(|entry| entry.path()).find(|path| path.join("below/output").exists())
    };
    let mut child = this_test("temp_dir::tests::child", &[("RATH_TEST_FOLDER", text)]).spawn().expect("it runs");
    wait_until("the child has a directory", || is_there().is_some());
    let left = is_there().expect("a directory");
    let own = TempDir::create_in(folder.path(), "tmp").expect("created");
    sweep(folder.path());
    assert!(left.exists() && own.path().exists(), "both processes are alive");
    child.kill().expect("killed");
    child.wait().expect("ended");
    sweep(folder.path());
    assert!(!left.exists() && !lock_path(&left).exists(), "the process is dead");
    assert!(own.path().exists());
    drop(own);
    assert_eq!(fs::read_dir(folder.path()).expect("listed").count(), 0);
}

#[test]
fn nothing_of_others_is_removed() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let [linked, new, old] = [
        "01980a5e-7a40-7cc2-8d4e-3f2b1c0d9e8f",
        &*uuid::Uuid::now_v7().to_string(),
        "01880a5e-7a40-7cc2-8d4e-3f2b1c0d9e8f",
    ]
    .map(|id| format!("rath-spool-{id}"));
    let kept = ["target", "rath-spool", "rath-spool-notes", "rath-Spool-01980a5e-7a40-7cc2-8d4e-3f2b1c0d9e8f"];
    kept.iter().chain([&&*new, &&*old]).for_each(|name| fs::create_dir(at(name)).expect("a directory"));
    fs::write(at("target/mine.txt"), "mine").expect("written");
    // A link in the place of a directory, and one in the place of a lock file.
    std::os::unix::fs::symlink(at("target"), at(&linked)).expect("a link");
    fs::write(lock_path(&at(&linked)), "").expect("written");
    std::os::unix::fs::symlink(at("target/mine.txt"), lock_path(&at(&old))).expect("a link");
    sweep(folder.path());
    assert_eq!(fs::read_to_string(at("target/mine.txt")).expect("read"), "mine");
    for name in kept.into_iter().chain([&*new, &old, &linked]) {
        assert!(fs::symlink_metadata(at(name)).is_ok(), "{name}");
    }
    // Without a lock file it is of an earlier version, and goes by its age.
    fs::remove_file(lock_path(&at(&old))).expect("removed");
    let long_ago = SystemTime::now() - 2 * MAX_UNLOCKED_AGE;
    File::open(at(&old)).and_then(|file| file.set_modified(long_ago)).expect("a time");
    sweep(folder.path());
    assert!(!at(&old).exists() && at(&new).exists());
}

#[test]
fn a_disk_that_is_nearly_full_is_left_for_one_with_more_room() {
    let full = Some(MIN_FREE_BYTES - 1);
    for (own, shared, expected) in [
        (Some(MIN_FREE_BYTES), Some(u64::MAX), true),
        (full, Some(MIN_FREE_BYTES), false),
        (full, full, true),
        (Some(0), Some(0), true),
        (full, None, true),
        (None, Some(u64::MAX), true),
    ] {
        assert_eq!(has_room(own, || shared), expected, "{own:?} {shared:?}");
    }
}
