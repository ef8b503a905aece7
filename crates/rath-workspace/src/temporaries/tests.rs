//! Temporaries of processes that were killed are removed, and those of live processes stay.

use std::fs;

use super::*;
use crate::Objects;

#[test]
fn temporaries_of_a_dead_process_are_swept_and_those_of_a_live_one_stay() {
    let folder = tempfile::tempdir().expect("a folder");
    let (versions, project) = (folder.path().join("versions"), folder.path().join("project"));
    fs::create_dir_all(&project).expect("a directory");
    let live = Objects::open(&versions).expect("versions");
    let kept = live.temporaries().path().expect("a path");
    fs::write(&kept, "kept").expect("written");

    // As a process leaves it that is killed: nothing is dropped, and the lock is free.
    let dead = Temporaries::new(&versions);
    let file = dead.path().expect("a path");
    fs::write(&file, "half").expect("written");
    fs::create_dir_all(dead.path().expect("a path").join("below/deep")).expect("a directory");
    let noted = dead.path_in(&project).expect("a path");
    fs::write(noted.path(), "half").expect("written");
    let beside = noted.path().to_owned();
    std::mem::forget(noted);
    let own = dead.own.lock().expect("a lock").take().expect("a directory");
    let (path, lock_path) = (own.path.clone(), own.lock_path.clone());
    own._lock.unlock().expect("unlocked");
    std::mem::forget(own);
    assert!(path.exists() && lock_path.exists() && beside.exists());

    drop(Objects::open(&versions).expect("versions"));
    assert!(!path.exists() && !lock_path.exists(), "the directory of the dead process is gone");
    assert!(!beside.exists(), "the noted temporary is gone");
    assert_eq!(fs::read_to_string(&kept).expect("read"), "kept", "the live process keeps its own");
    drop(live);
    assert!(!versions.join("tmp").exists(), "an opening that ends leaves nothing");
}

#[test]
fn a_note_from_elsewhere_cannot_name_other_files() {
    let folder = tempfile::tempdir().expect("a folder");
    let versions = folder.path().join("versions");
    let own = folder.path().join("notes.txt");
    fs::write(&own, "mine").expect("written");
    let planted = versions.join("tmp").join(unique_name());
    fs::create_dir_all(&planted).expect("a directory");
    fs::write(planted.join("0.note"), own.as_os_str().as_encoded_bytes()).expect("written");
    std::os::unix::fs::symlink(folder.path(), planted.join("1")).expect("a link");
    drop(Objects::open(&versions).expect("versions"));
    assert!(!planted.exists());
    assert_eq!(fs::read_to_string(&own).expect("read"), "mine");
}

#[test]
fn a_file_of_another_file_system_is_written_through_a_noted_temporary() {
    let folder = tempfile::tempdir().expect("a folder");
    let Ok(other) = tempfile::tempdir_in("/dev/shm") else { return };
    let objects = Objects::open(&folder.path().join("versions")).expect("versions");
    let path = other.path().join("index");
    objects.temporaries().write_new(&path, b"one").expect("written");
    objects.temporaries().write_new(&path, b"two").expect("written");
    assert_eq!(fs::read_to_string(&path).expect("read"), "two");
    assert_eq!(fs::read_dir(other.path()).expect("listed").count(), 1);
    let own = objects.temp_directory().expect("a directory");
    assert_eq!(fs::read_dir(own).expect("listed").count(), 0, "no note is left");
}
