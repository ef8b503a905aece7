//! Moving files aside.

use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;
use crate::Objects;

#[test]
fn what_is_moved_aside_is_beneath_the_directory() {
    let folder = tempfile::tempdir().expect("a folder");
    let (root, outside, aside) = (folder.path().join("w"), folder.path().join("out"), folder.path().join("aside"));
    for directory in [root.join("a/b"), root.join("kept"), outside.join("b")] {
        std::fs::create_dir_all(directory).expect("a directory");
    }
    for file in [root.join("a/b/c"), root.join("kept/x"), root.join("kept/y"), outside.join("b/c")] {
        std::fs::write(file, "text").expect("a file");
    }
    std::fs::set_permissions(root.join("a/b/c"), PermissionsExt::from_mode(0o600)).expect("permissions");
    symlink(&outside, root.join("link")).expect("a link");
    let objects = Objects::open(&folder.path().join("objects")).expect("objects");
    let workspace = Workspace::open(&root, &objects, &folder.path().join("index")).expect("a workspace");
    let move_aside = |path: &str| workspace.move_aside(path, &aside).expect("it can be moved");
    // Nothing at the path, or a link on the way to it.
    assert_eq!([move_aside("none"), move_aside("a/none/x"), move_aside("link/b/c")], [None; 3]);
    assert!(outside.join("b/c").exists());
    let permissions = move_aside("a/b/c").expect("it is there");
    assert_eq!(permissions, Permissions(0o600));
    assert!(aside.join("a/b/c").exists() && !root.join("a").exists());
    // A directory that is not empty stays, and a link is moved as such.
    assert!(move_aside("kept/x").is_some() && root.join("kept/y").exists());
    assert!(move_aside("link").is_some() && outside.join("b/c").exists());
    workspace.set_permissions("kept/y", permissions).expect("permissions");
    let mode = std::fs::metadata(root.join("kept/y")).expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    symlink(&outside, root.join("link")).expect("a link");
    workspace.create_directory("link/new/deep").expect("nothing is done");
    workspace.create_directory("new/deep").expect("a directory");
    assert!(root.join("new/deep").is_dir() && !outside.join("new").exists());
}
