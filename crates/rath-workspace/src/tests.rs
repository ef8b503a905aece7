//! Tests of workspaces that need their inner state.

use super::*;

/// Returns a copy of a directory with changed entries.
fn altered(dir: &Dir, change: impl Fn(&mut dir::DirEntry)) -> Arc<Dir> {
    let mut copy = Dir::default();
    for entry in &dir.entries {
        let mut entry = *entry;
        change(&mut entry);
        copy.push(dir.name(&entry), entry);
    }
    Arc::new(copy)
}

#[test]
fn a_directory_that_is_too_large_is_rejected() {
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path().join("root");
    std::fs::create_dir_all(root.join("ignored")).expect("a directory");
    std::fs::write(root.join(".gitignore"), "ignored\n").expect("written");
    for nth in 0..20 {
        std::fs::write(root.join("ignored").join(format!("{nth}")), "1234").expect("written");
    }
    let objects = Objects::open(&folder.path().join("versions")).expect("versions");
    let snapshot = |names, bytes| {
        let mut workspace = Workspace::open(&root, &objects, &folder.path().join("index")).expect("a workspace");
        workspace.limits = SnapshotLimits { names, bytes };
        workspace.snapshot().map(|_| ()).map_err(|error| error.message())
    };
    assert_eq!(snapshot(2, 8), Ok(()));
    std::fs::write(root.join("file"), "12345678\n").expect("written");
    let rejected =
        Err("the directory is too large for a workspace: found more than 2 files and directories".to_owned());
    assert_eq!(snapshot(2, 100), rejected);
    let rejected =
        Err("the directory is too large for a workspace: found more than 0 MiB in new or changed files".to_owned());
    assert_eq!(snapshot(3, 8), rejected);
    assert_eq!(snapshot(3, 17), Ok(()));
}

#[test]
fn a_file_that_may_have_changed_without_a_trace_is_read_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let (root, versions) = (folder.path().join("root"), folder.path().join("versions"));
    std::fs::create_dir(&root).expect("a directory");
    let objects = Objects::open(&versions).expect("versions");
    let mut workspace = Workspace::open(&root, &objects, &folder.path().join("index")).expect("a workspace");
    // A write and a snapshot within one tick of the clock happen soon on any machine.
    let racy = (0..1_000).any(|nth| {
        std::fs::write(root.join("file"), format!("{nth}")).expect("written");
        workspace.snapshot().expect("a snapshot").dir.entries[0].racy
    });
    assert!(racy);
    disk::wait_for_tick();
    disk::wait_for_tick();
    let sure = workspace.snapshot().expect("a snapshot");
    assert!(!sure.dir.entries[0].racy);
    let wrong = ObjectId([7; 20]);
    for racy in [true, false] {
        workspace.known = Some(altered(&sure.dir, |entry| (entry.id, entry.racy) = (wrong, racy)));
        let id = workspace.snapshot().expect("a snapshot").dir.entries[0].id;
        assert_eq!(id, if racy { sure.dir.entries[0].id } else { wrong });
    }
    workspace.known = Some(altered(&sure.dir, |entry| {
        (entry.id, entry.racy, entry.stat.changed) = (wrong, false, entry.stat.changed - 1);
    }));
    assert_eq!(workspace.snapshot().expect("a snapshot").tree, sure.tree);
}

#[cfg(target_os = "linux")]
#[test]
fn after_a_restart_a_file_that_was_changed_shortly_before_is_read_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let (root, index) = (folder.path().join("root"), folder.path().join("index"));
    std::fs::create_dir(&root).expect("a directory");
    std::fs::write(root.join("file"), "one").expect("written");
    let objects = Objects::open(&folder.path().join("versions")).expect("versions");
    let open = || Workspace::open(&root, &objects, &index).expect("a workspace");
    let mut workspace = open();
    disk::wait_for_tick();
    disk::wait_for_tick();
    let sure = workspace.snapshot().expect("a snapshot");
    objects.sync().expect("synced");
    let wrong = ObjectId([7; 20]);
    workspace.known = Some(altered(&sure.dir, |entry| entry.id = wrong));
    workspace.unsaved = true;
    workspace.save().expect("saved");
    let id = || open().snapshot().expect("a snapshot").dir.entries[0].id;
    // A power cut may leave the metadata of a file without its content.
    let mut bytes = std::fs::read(&index).expect("an index");
    assert_eq!(id(), wrong);
    let boot = index::boot_id().expect("an id");
    let at = bytes.windows(boot.len()).position(|window| window == boot).expect("the id is in the index");
    bytes[at..at + boot.len()].fill(b'0');
    let end = bytes.len() - 32;
    let checksum = *blake3::hash(&bytes[..end]).as_bytes();
    bytes[end..].copy_from_slice(&checksum);
    std::fs::write(&index, bytes).expect("an index");
    assert_eq!(id(), sure.dir.entries[0].id);
}

#[test]
fn a_temporary_checkout_outlives_the_handle_that_wrote_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let project = folder.path().join("project");
    std::fs::create_dir(&project).expect("a directory");
    std::fs::write(project.join("a.txt"), "one").expect("written");
    let objects = Objects::open(&folder.path().join("versions")).expect("versions");
    let mut workspace = Workspace::open(&project, &objects, &folder.path().join("index")).expect("a workspace");
    let tree = workspace.snapshot().expect("a snapshot").tree;
    let checkout = objects.temp_checkout(tree).expect("a checkout");
    drop((workspace, objects));
    assert_eq!(std::fs::read_to_string(checkout.path().join("a.txt")).expect("read"), "one");
    let path = checkout.path().to_owned();
    drop(checkout);
    assert!(!path.exists());
}
