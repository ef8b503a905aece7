//! A collection removes what is not kept, and nothing else.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::*;
use crate::{CopyBudget, CopyOutcome, ForkShare, Workspace};

/// A directory with versions.
struct Project {
    folder: tempfile::TempDir,
}

impl Project {
    fn new() -> Self {
        let project = Project { folder: tempfile::tempdir().expect("a folder") };
        fs::create_dir(project.root()).expect("a directory");
        project
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("root")
    }

    fn versions(&self) -> PathBuf {
        self.folder.path().join("versions")
    }

    /// Writes files with this content, and stores the version.
    fn version(&self, files: usize, content: &str) -> TreeId {
        for nth in 0..files {
            let directory = self.root().join(format!("d{}", nth / 50));
            fs::create_dir_all(&directory).expect("a directory");
            fs::write(directory.join(format!("{nth}.txt")), format!("{content} {nth}\n")).expect("written");
        }
        let objects = Objects::open(&self.versions()).expect("versions");
        let mut workspace =
            Workspace::open(&self.root(), &objects, &self.versions().join("index/root")).expect("a workspace");
        let tree = workspace.snapshot().expect("a snapshot").tree;
        objects.sync().expect("synced");
        tree
    }

    fn collect(&self, mode: CollectMode, keep: &[TreeId]) -> Garbage {
        let mut collector = Collector::open(&self.versions(), mode).expect("opened").expect("not in use");
        keep.iter().for_each(|tree| collector.keep_tree(*tree).expect("kept"));
        collector.collect().expect("collected")
    }

    /// Returns the number of files of a tree, all of which are read.
    fn read_all(&self, tree: TreeId) -> Result<usize> {
        let objects = Objects::open(&self.versions())?;
        let files = objects.files(tree)?;
        for file in &files {
            objects.read(tree, &file.path)?;
        }
        Ok(files.len())
    }

    /// Returns all paths below the folder of versions, with their lengths and times.
    fn listing(&self) -> Vec<(PathBuf, u64, std::time::SystemTime)> {
        let (mut found, mut rest) = (Vec::new(), vec![self.versions()]);
        while let Some(directory) = rest.pop() {
            for entry in fs::read_dir(&directory).expect("listed") {
                let entry = entry.expect("an entry");
                let metadata = entry.metadata().expect("metadata");
                if metadata.is_dir() {
                    rest.push(entry.path());
                }
                found.push((entry.path(), metadata.len(), metadata.modified().expect("a time")));
            }
        }
        found.sort();
        found
    }
}

fn bytes_of(folder: &Path) -> u64 {
    count_files(folder).bytes
}

#[test]
fn what_is_kept_can_be_read_and_the_rest_is_gone() {
    // The first versions are packs, the last ones are files.
    let project = Project::new();
    let trees = [project.version(200, "one"), project.version(200, "two"), project.version(3, "three")];
    let before = bytes_of(&project.versions());
    let counted = project.collect(CollectMode::DryRun, &trees[1..2]);
    let removed = project.collect(CollectMode::Remove, &trees[1..2]);
    assert_eq!(counted, removed, "a dry run says exactly what is removed");
    assert_eq!(before - bytes_of(&project.versions()), removed.objects.bytes + removed.indexes.bytes);
    assert_eq!(project.read_all(trees[1]).expect("read"), 200);
    assert!(project.read_all(trees[0]).is_err() && project.read_all(trees[2]).is_err());
    assert_eq!(project.collect(CollectMode::Remove, &trees[1..2]), Garbage::default(), "nothing more to remove");
}

#[test]
fn a_dry_run_changes_nothing() {
    let project = Project::new();
    project.version(200, "one");
    let before = project.listing();
    let counted = project.collect(CollectMode::DryRun, &[]);
    assert_eq!((counted.objects.files, counted.indexes.files), (205, 1));
    assert_eq!(project.listing(), before);
}

#[test]
fn a_folder_without_anything_kept_is_nearly_empty() {
    let project = Project::new();
    project.version(300, "one");
    project.collect(CollectMode::Remove, &[]);
    assert!(bytes_of(&project.versions()) < 1_000, "{:?}", project.listing());
    // The next version is stored as a whole.
    let again = project.version(3, "two");
    assert_eq!(project.read_all(again).expect("read"), 300);
}

#[test]
fn a_folder_in_use_is_left_alone() {
    let project = Project::new();
    project.version(3, "one");
    let user = Objects::open(&project.versions()).expect("versions");
    assert!(Collector::open(&project.versions(), CollectMode::Remove).expect("opened").is_none());
    drop(user);
    let reader = Objects::open_read_only(&project.versions()).expect("versions");
    assert!(Collector::open(&project.versions(), CollectMode::Remove).expect("opened").is_none());
    drop(reader);
    assert!(Collector::open(&project.versions(), CollectMode::Remove).expect("opened").is_some());
}

#[test]
fn a_damaged_tree_that_is_kept_is_an_error() {
    let project = Project::new();
    let tree = project.version(3, "one");
    let hex = tree.0.to_string();
    let path = project.versions().join("objects").join(&hex[..2]).join(&hex[2..]);
    fs::write(&path, "damaged").expect("written");
    let mut collector = Collector::open(&project.versions(), CollectMode::Remove).expect("opened").expect("not in use");
    assert!(collector.keep_tree(tree).is_err());
    assert!(collector.keep_tree(tree).is_err(), "again, although it was looked at");
    assert!(collector.collect().is_err(), "nothing is removed");
}

/// Removes the indexes of all packs, and returns the packs.
fn lose_indexes(project: &Project) -> Vec<PathBuf> {
    let folder = project.versions().join("objects/pack");
    let files: Vec<_> = fs::read_dir(folder).expect("listed").map(|entry| entry.expect("an entry").path()).collect();
    let (indexes, packs): (Vec<_>, Vec<_>) =
        files.into_iter().partition(|path| path.extension().is_some_and(|it| it == "idx"));
    indexes.iter().for_each(|index| fs::remove_file(index).expect("removed"));
    packs
}

#[test]
fn a_pack_whose_index_is_lost_gets_a_new_one() {
    let project = Project::new();
    let trees = [project.version(200, "one"), project.version(200, "two")];
    let whole = project.version(200, "three");
    lose_indexes(&project);
    assert!(project.read_all(trees[1]).is_err(), "without an index, no object is found");
    let keep = [trees[1], whole];
    let counted = project.collect(CollectMode::DryRun, &keep);
    assert_eq!(project.collect(CollectMode::Remove, &keep), counted, "a dry run says exactly what is removed");
    assert_eq!(keep.map(|tree| project.read_all(tree).expect("read")), [200, 200]);
    assert!(project.read_all(trees[0]).is_err());
    assert_eq!(project.collect(CollectMode::Remove, &keep), Garbage::default(), "nothing more to remove");
    // Git reads the new indexes too.
    for entry in fs::read_dir(project.versions().join("objects/pack")).expect("listed").flatten() {
        if entry.path().extension().is_some_and(|extension| extension == "idx") {
            let checked = rath_test_support::git().arg("verify-pack").arg(entry.path()).output().expect("git runs");
            assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
        }
    }
}

#[test]
fn a_pack_that_cannot_be_read_stays_and_is_named() {
    let project = Project::new();
    let tree = project.version(200, "one");
    let packs = lose_indexes(&project);
    let content = fs::read(&packs[0]).expect("read");
    fs::write(&packs[0], &content[..content.len() / 2]).expect("written");
    let mut collector = Collector::open(&project.versions(), CollectMode::Remove).expect("opened").expect("not in use");
    collector.keep_tree(tree).expect("what is stored is kept");
    collector.collect().expect("collected");
    assert_eq!(collector.unreadable_packs(), packs);
    assert!(packs[0].exists());
}

#[test]
fn a_pack_that_a_killed_collection_left_goes() {
    let project = Project::new();
    let trees = [project.version(200, "one"), project.version(3, "two")];
    let lost = lose_indexes(&project);
    let removed = project.collect(CollectMode::Remove, &[]);
    assert!(removed.objects.bytes > 0 && !lost[0].exists(), "{trees:?}");
}

#[test]
fn a_pack_that_claims_too_much_is_refused() {
    let project = Project::new();
    project.version(200, "one");
    let files = fs::read_dir(project.versions().join("objects/pack")).expect("listed").flatten();
    let is_pack = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "pack");
    let pack = files.map(|entry| entry.path()).find(is_pack).expect("a pack");
    // The last object seems to fill a file that is nearly all hole.
    let file = fs::File::options().write(true).open(pack).expect("opened");
    file.set_len(1 << 40).expect("a sparse file");
    assert!(Collector::open(&project.versions(), CollectMode::Remove).is_err());
}

#[test]
fn files_that_no_tree_holds_are_named() {
    let project = Project::new();
    fs::write(project.root().join(".gitignore"), "target\n*.log\n").expect("written");
    let tree = project.version(3, "one");
    let objects = Objects::open(&project.versions()).expect("versions");
    let workspace =
        Workspace::open(&project.root(), &objects, &project.versions().join("index/root")).expect("a workspace");
    let fork = project.folder.path().join("fork");
    drop(workspace.fork(tree, &fork, &project.versions().join("index/fork")).expect("a fork"));
    drop((workspace, objects));
    let files = || {
        let collector = Collector::open(&project.versions(), CollectMode::DryRun).expect("opened").expect("not in use");
        collector.fork_files(&fork).expect("read")
    };
    assert_eq!(files(), ForkFiles { tree, untracked: Vec::new(), untracked_count: 0 });
    fs::create_dir_all(fork.join("target/empty")).expect("a directory");
    fs::create_dir_all(fork.join("d0/nothing")).expect("a directory");
    assert_eq!(files().untracked_count, 0, "a directory without files is lost without loss");
    fs::write(fork.join("target/program"), "built").expect("written");
    std::os::unix::fs::symlink("elsewhere", fork.join("d0/a.log")).expect("a link");
    fs::create_dir_all(fork.join(".rath/below")).expect("a directory");
    fs::write(fork.join(".rath/below/rath.db"), "sessions").expect("written");
    let found = files();
    assert_eq!((found.tree, found.untracked_count), (tree, 3));
    assert_eq!(found.untracked, ["d0/a.log", "target/program", ".rath/below/rath.db"]);
}

#[test]
fn what_a_fork_shares_is_removed_with_it_and_its_own_files_are_named() {
    let project = Project::new();
    fs::write(project.root().join(".gitignore"), "target\nvendor\n").expect("written");
    let tree = project.version(3, "one");
    for (path, text) in [("target/program", "built"), ("vendor/a", "copied"), ("vendor/b", "copied")] {
        fs::create_dir_all(project.root().join(path).parent().expect("a directory")).expect("a directory");
        fs::write(project.root().join(path), text).expect("written");
    }
    // In the copy, the path is that of the fork.
    fs::create_dir(project.root().join("vendor/bin")).expect("a directory");
    fs::write(project.root().join("vendor/bin/run"), format!("cd {}\n", project.root().display())).expect("written");
    let objects = Objects::open(&project.versions()).expect("versions");
    let workspace =
        Workspace::open(&project.root(), &objects, &project.versions().join("index/root")).expect("a workspace");
    let fork = project.root().join(".rath/work/fork");
    drop(workspace.fork(tree, &fork, &project.versions().join("index/fork")).expect("a fork"));
    let share = ForkShare::of(&fork);
    let changes = share.prepare(&objects, Path::new("target")).expect("prepared").expect("free");
    let mut budget = CopyBudget::detect(&fork);
    let copied = share.copy(&objects, &project.root(), Path::new("vendor"), &mut budget).expect("copied");
    assert_eq!(copied, CopyOutcome::Copied);
    // The kernel leaves a directory that its owner cannot list.
    fs::create_dir_all(changes.join("work/work")).expect("a directory");
    fs::set_permissions(changes.join("work/work"), PermissionsExt::from_mode(0o000)).expect("permissions");
    drop((workspace, objects));
    let collector = || Collector::open(&project.versions(), CollectMode::Remove).expect("opened").expect("not in use");
    let files = || collector().fork_files(&fork).expect("read");
    assert_eq!(files(), ForkFiles { tree, untracked: Vec::new(), untracked_count: 0 });
    // Neither is part of a tree, also if git ignores it no longer.
    fs::write(changes.join("upper/new"), "new").expect("written");
    fs::write(fork.join("vendor/a"), "changed").expect("written");
    let found = files();
    assert_eq!((found.tree, found.untracked), (tree, ["target/new", "vendor/a"].map(str::to_owned).to_vec()));
    fs::write(fork.join(".gitignore"), "").expect("written");
    assert_eq!(files().untracked_count, 2);
    collector().remove_fork(&fork).expect("removed");
    assert!(!fork.exists() && !share.folder().exists());
    // As a collection leaves it that is killed before the end.
    fs::create_dir_all(share.folder()).expect("a directory");
    assert!(Collector::is_remnant(&fork));
    collector().remove_fork(&fork).expect("removed");
    assert!(!share.folder().exists());
}

#[test]
fn a_directory_that_is_too_large_is_not_copied_and_no_copy_leads_to_the_original() {
    let project = Project::new();
    let (root, fork) = (project.root(), project.folder.path().join("fork"));
    for directory in [root.join("large"), root.join("small/below"), fork.clone()] {
        fs::create_dir_all(directory).expect("a directory");
    }
    let file = fs::File::create(root.join("large/file")).expect("a file");
    file.set_len(CopyBudget::MAX_BYTES + 1).expect("a sparse file");
    fs::write(root.join("small/below/file"), "one").expect("written");
    fs::hard_link(root.join("small/below/file"), root.join("small/hard")).expect("a link");
    std::os::unix::fs::symlink(root.join("small/below/file"), root.join("small/absolute")).expect("a link");
    std::os::unix::fs::symlink("below/file", root.join("small/relative")).expect("a link");
    let _socket = std::os::unix::net::UnixListener::bind(root.join("small/socket")).expect("a socket");
    let objects = Objects::open(&project.versions()).expect("versions");
    let (share, mut budget) = (ForkShare::of(&fork), CopyBudget::detect(&fork));
    let mut copy = |path: &str| share.copy(&objects, &root, Path::new(path), &mut budget).expect("tried");
    if !disk::can_share_blocks(&fork) {
        assert_eq!(copy("large"), CopyOutcome::TooLarge);
    }
    assert_eq!(copy("small"), CopyOutcome::Copied);
    assert_eq!(copy("small"), CopyOutcome::InTheWay);
    for name in ["hard", "absolute", "relative", "below/file"] {
        fs::write(fork.join("small").join(name), "two").expect("written");
        assert_eq!(fs::read_to_string(root.join("small/below/file")).expect("read"), "one", "{name}");
    }
    assert!(!fork.join("small/socket").exists() && !fork.join("large").exists());
    assert_eq!(share.directories(), [PathBuf::from("small")]);
}

#[test]
fn a_folder_in_use_is_measured_beside_its_user() {
    let project = Project::new();
    let tree = project.version(3, "one");
    let user = Objects::open(&project.versions()).expect("versions");
    let mut measured = Collector::open_shared(&project.versions()).expect("opened");
    measured.keep_tree(tree).expect("kept");
    assert!(measured.kept_bytes() > 0);
    drop(user);
}
