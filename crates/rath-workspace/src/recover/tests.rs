//! Recovering single files.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;

use super::*;
use crate::limits::SnapshotLimits;
use crate::{ChangeKind, Objects};

/// A workspace with backups of the files whose names begin with `guarded`.
struct Fixture {
    folder: tempfile::TempDir,
    workspace: Workspace,
    before: Snapshot,
    backups: Backups,
}

fn is_wanted(path: &str) -> bool {
    path.rsplit('/').next().is_some_and(|name| name.starts_with("guarded"))
}

impl Fixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path().join("w");
        std::fs::create_dir_all(root.join("a/b")).expect("a directory");
        for (path, mode) in [("guarded", 0o600), ("a/b/guarded", 0o640), ("other", 0o644), ("guarded.ignored", 0o600)] {
            std::fs::write(root.join(path), "mine").expect("a file");
            std::fs::set_permissions(root.join(path), PermissionsExt::from_mode(mode)).expect("a mode");
        }
        std::fs::write(root.join("guarded.key"), "the secret").expect("a file");
        std::fs::write(root.join(".gitignore"), "*.ignored\n").expect("a file");
        symlink("other", root.join("guarded.link")).expect("a link");
        std::fs::set_permissions(root.join("a/b"), PermissionsExt::from_mode(0o750)).expect("a mode");
        let objects = Objects::open(&folder.path().join("objects")).expect("objects");
        let mut workspace = Workspace::open(&root, &objects, &folder.path().join("index")).expect("a workspace");
        workspace.secret_finder(Arc::new(|bytes| bytes.windows(6).any(|window| window == b"secret")));
        let before = workspace.snapshot().expect("a snapshot");
        let backups = workspace.back_up(&before, None, &is_wanted, &[]).expect("backups");
        Fixture { folder, workspace, before, backups }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join("w").join(name)
    }

    /// Recovers all files that changed, and returns their names.
    fn recover(&self) -> Vec<String> {
        let changed = self.workspace.changed_since(&self.backups).expect("they can be looked at");
        let aside = self.folder.path().join("aside").join(crate::temporaries::unique_name());
        let recover = |path: &str| self.workspace.recover(path, &self.before, &self.backups, &aside);
        changed.into_iter().filter(|(path, _)| recover(path).expect(path)).map(|(path, _)| path).collect()
    }

    /// Describes all files of the workspace.
    fn survey(&self) -> Vec<String> {
        let files = ["guarded", "a/b", "a/b/guarded", "guarded.ignored", "guarded.key", "guarded.link"];
        let describe = |name: &&str| {
            let path = self.path(name);
            let Ok(about) = path.symlink_metadata() else { return format!("{name}: none") };
            let content = match () {
                () if about.is_symlink() => std::fs::read_link(&path).expect("a link").display().to_string(),
                // A pipe would wait.
                () if about.is_file() => std::fs::read_to_string(&path).expect("a text"),
                () => String::new(),
            };
            format!("{name}: {content} {:?} {:o}", about.file_type(), about.permissions().mode())
        };
        files.iter().map(describe).collect()
    }
}

/// The file that changes, and the change.
type AttackRow = (&'static str, fn(&Fixture));

#[test]
fn each_file_has_its_earlier_type_content_and_permissions_again() {
    let attacks: [AttackRow; 8] = [
        ("guarded", |it| std::fs::write(it.path("guarded"), "evil").expect("written")),
        ("guarded", |it| {
            std::fs::set_permissions(it.path("guarded"), PermissionsExt::from_mode(0o666)).expect("a mode");
        }),
        ("guarded", |it| {
            std::fs::remove_file(it.path("guarded")).expect("removed");
            std::fs::create_dir_all(it.path("guarded/full")).expect("a directory");
            std::fs::write(it.path("guarded/full/file"), "evil").expect("written");
        }),
        ("guarded.link", |it| {
            std::fs::remove_file(it.path("guarded.link")).expect("removed");
            std::fs::write(it.path("guarded.link"), "evil").expect("written");
        }),
        ("a/b/guarded", |it| {
            std::fs::remove_dir_all(it.path("a")).expect("removed");
            symlink("/", it.path("a")).expect("a link");
        }),
        ("a/b/guarded", |it| std::fs::rename(it.path("a"), it.path("c")).expect("moved")),
        ("guarded.key", |it| std::fs::remove_file(it.path("guarded.key")).expect("removed")),
        ("guarded.ignored", |it| {
            std::fs::remove_file(it.path("guarded.ignored")).expect("removed");
            rustix::fs::mknodat(
                rustix::fs::CWD,
                it.path("guarded.ignored"),
                rustix::fs::FileType::Fifo,
                rustix::fs::Mode::from_raw_mode(0o600),
                0,
            )
            .expect("a pipe");
        }),
    ];
    for (nth, (path, attack)) in attacks.into_iter().enumerate() {
        let fixture = Fixture::new();
        let before = fixture.survey();
        attack(&fixture);
        assert_ne!(fixture.survey(), before, "{nth}");
        assert_eq!(fixture.recover(), [path], "{nth}");
        assert_eq!(fixture.survey(), before, "{nth}");
        assert_eq!(fixture.workspace.changed_since(&fixture.backups).expect("looked at"), [], "{nth}");
    }
}

#[test]
fn a_file_is_recovered_although_the_snapshot_fails() {
    let mut fixture = Fixture::new();
    let before = fixture.survey();
    std::fs::write(fixture.path("guarded"), "evil").expect("written");
    fixture.workspace.limits = SnapshotLimits { names: 1, bytes: 1 };
    assert!(fixture.workspace.snapshot().is_err());
    assert_eq!(fixture.recover(), ["guarded"]);
    assert_eq!(fixture.survey(), before);
    // New files are found by their names.
    std::fs::create_dir_all(fixture.path("new/guarded.d/deep")).expect("a directory");
    for name in ["a/guarded", "new/guarded", "new/other", "new/guarded.d/deep/guarded"] {
        std::fs::write(fixture.path(name), "evil").expect("written");
    }
    let mut found = fixture.workspace.new_paths(&fixture.before, &is_wanted).expect("listed");
    found.sort();
    assert_eq!(found, ["a/guarded", "new/guarded", "new/guarded.d"]);
}

#[test]
fn a_recovery_that_fails_leaves_everything_where_it_was() {
    let fixture = Fixture::new();
    std::fs::remove_dir_all(fixture.path("a")).expect("removed");
    std::fs::write(fixture.path("a"), "mine too").expect("written");
    // Nothing can be created here.
    let aside = fixture.path("other/aside");
    fixture.workspace.recover("a/b/guarded", &fixture.before, &fixture.backups, &aside).expect_err("no place");
    assert_eq!(std::fs::read_to_string(fixture.path("a")).expect("a file"), "mine too");
    // A file of which no content is known is left alone.
    let (before, backups) = (&fixture.before, &fixture.backups);
    let error = fixture.workspace.recover("new", before, backups, &aside).expect_err("nothing is known");
    assert_eq!(error.message(), "no earlier content is known");
}

#[test]
fn backups_of_unchanged_files_are_taken_from_earlier_ones() {
    let mut fixture = Fixture::new();
    std::fs::write(fixture.path("guarded.key"), "another secret").expect("written");
    let now = fixture.workspace.snapshot().expect("a snapshot");
    let again = fixture.workspace.back_up(&now, Some(&fixture.backups), &is_wanted, &[]).expect("backups");
    assert_eq!(fixture.workspace.changed_since(&again).expect("looked at"), []);
    let content = |backups: &Backups, name: &[u8]| match &backups.files[name].content {
        BackupContent::Memory(content) => String::from_utf8_lossy(content).into_owned(),
        BackupContent::Version(_) => "a version".to_owned(),
        BackupContent::Missing(_) => "missing".to_owned(),
    };
    let all = |backups: &Backups| [&b"guarded"[..], b"guarded.key", b"a/b/guarded"].map(|name| content(backups, name));
    assert_eq!(all(&fixture.backups), ["a version", "the secret", "a version"]);
    assert_eq!(all(&again), ["a version", "another secret", "a version"]);
    let changed = fixture.workspace.changed_since(&fixture.backups).expect("looked at");
    assert_eq!(changed, [("guarded.key".to_owned(), ChangeKind::Modified)]);
}
