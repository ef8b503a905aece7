//! Moving files aside.

use std::os::unix::fs::symlink;

use super::*;
use crate::Objects;

#[test]
fn what_is_moved_aside_is_beneath_the_directory() {
    let folder = tempfile::tempdir().expect("a folder");
    let (root, outside, aside) = (folder.path().join("w"), folder.path().join("out"), folder.path().join("aside"));
    for directory in [root.join("kept"), root.join("empty"), outside.join("b")] {
        std::fs::create_dir_all(directory).expect("a directory");
    }
    let objects = Objects::open(&folder.path().join("objects")).expect("objects");
    let mut workspace = Workspace::open(&root, &objects, &folder.path().join("index")).expect("a workspace");
    let before = workspace.snapshot().expect("a snapshot");
    std::fs::create_dir_all(root.join("a/b")).expect("a directory");
    let files =
        [root.join("a/b/c"), root.join("kept/x"), root.join("kept/y"), root.join("empty/z"), outside.join("b/c")];
    for file in files {
        std::fs::write(file, "text").expect("a file");
    }
    symlink(&outside, root.join("link")).expect("a link");
    let move_aside = |path: &str| workspace.move_aside(path, &before, &aside).expect("it can be moved");
    // Nothing at the path, or a link on the way to it.
    assert_eq!([move_aside("none"), move_aside("a/none/x"), move_aside("link/b/c")], [false; 3]);
    assert!(outside.join("b/c").exists());
    assert!(move_aside("a/b/c") && aside.join("a/b/c").exists() && !root.join("a").exists());
    // A directory that is not empty or was there before stays, and a link is moved as such.
    assert!(move_aside("kept/x") && root.join("kept/y").exists());
    assert!(move_aside("empty/z") && root.join("empty").is_dir());
    assert!(move_aside("link") && outside.join("b/c").exists());
    // What was moved before is not replaced.
    std::fs::write(root.join("a"), "other").expect("a file");
    assert!(move_aside("a") && aside.join("a/b/c").exists());
    let again: Vec<_> = std::fs::read_dir(&aside).expect("a directory").flatten().map(|entry| entry.path()).collect();
    assert!(again.iter().any(|path| std::fs::read_to_string(path.join("a")).is_ok_and(|text| text == "other")));
}
