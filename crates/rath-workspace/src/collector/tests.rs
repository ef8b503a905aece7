//! A collection removes what is not kept, and nothing else.

use std::fs;
use std::path::Path;

use super::*;

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
}
