//! Files that are put back after a call.

use rath_record::chunk::Effect;

use super::branch_dir::TrackedDir;
use super::*;
use crate::policy::{ActivePolicy, Mode, Policy};
use crate::session::changed_paths::ChangedPaths;
use crate::session::update_note::UpdateNote;
use crate::workspace::{Objects, Workspace};

/// A directory with a policy that denies to write `locked` and `large`.
struct Fixture {
    folder: rath_test_support::TempDir,
    dir: BranchDir,
    policy: Arc<ActivePolicy>,
}

impl Fixture {
    fn new(open: impl Fn(Workspace) -> Workspace) -> Self {
        let folder = rath_test_support::temp_dir();
        let root = folder.path().join("w");
        std::fs::create_dir(&root).expect("a directory");
        for name in [".envrc", "locked", "large"] {
            std::fs::write(root.join(name), "mine").expect("a file");
        }
        let objects = Objects::open(&folder.path().join("objects")).expect("objects");
        let workspace = open(Workspace::open(&root, &objects, &folder.path().join("index")).expect("a workspace"));
        let tracked = TrackedDir::new(workspace, UpdateNote::new(&objects, "root", crate::Session::user("go").id()));
        let rules = ["deny write locked", "deny write large"].map(|rule| rule.parse().expect("a rule"));
        let policy = Arc::new(ActivePolicy::new(Policy::new(Mode::Workspace).rules(rules)));
        let sandbox = Sandbox::local(&root);
        Fixture {
            folder,
            dir: BranchDir { sandbox, tracked: Some(Mutex::new(tracked)), mirror: None, unshared: Vec::new() },
            policy,
        }
    }

    fn observe(&self) {
        let dirs = BranchDirs::new(self.dir.sandbox.clone());
        dirs.observe(&self.dir, None, Some(&self.policy)).expect("a snapshot");
    }

    fn after_call(&self) -> CallChanges {
        let refuse = |effect: &Effect, paths: &ChangedPaths<'_>| {
            self.policy.refuses_change(&effect.path, paths.ignored_above(&effect.path).as_deref(), false)
        };
        self.dir.changes_except(Some(&self.policy), false, refuse).expect("it can be looked at")
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.folder.path().join("w").join(name), text).expect("a file");
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder.path().join("w").join(name)).unwrap_or("none".to_owned())
    }
}

fn paths(files: &[(String, String)]) -> Vec<&str> {
    files.iter().map(|(path, _)| path.as_str()).collect()
}

#[test]
fn files_are_put_back_although_the_directory_is_too_large() {
    let fixture = Fixture::new(|workspace| workspace.max_names(10));
    fixture.observe();
    for name in [".envrc", "locked", ".exrc"] {
        fixture.write(name, "evil");
    }
    (0..20).for_each(|nth| fixture.write(&nth.to_string(), ""));
    let after = fixture.after_call();
    assert!(after.changes.is_err_and(|error| error.message().contains("too large")));
    assert_eq!(paths(&after.put_back.restored), [".exrc", ".envrc", "locked"]);
    assert_eq!([".envrc", "locked", ".exrc"].map(|name| fixture.read(name)), ["mine", "mine", "none"]);
}

#[test]
fn a_file_that_cannot_be_put_back_is_named_and_the_others_are_put_back() {
    let fixture = Fixture::new(|workspace| workspace.max_file_size(10).expect("a limit"));
    // There is neither a version of this file nor memory for it.
    let large = std::fs::File::create(fixture.folder.path().join("w/large")).expect("a file");
    large.set_len(40 << 20).expect("a size");
    fixture.observe();
    for name in [".envrc", "locked", "large"] {
        fixture.write(name, "evil");
    }
    let CallChanges { put_back, changes } = fixture.after_call();
    let (_, effects) = changes.expect("a snapshot").expect("versions");
    let effects: Vec<_> = effects.iter().map(|effect| effect.path.as_str()).collect();
    assert_eq!((paths(&put_back.restored), effects), (vec![".envrc", "locked"], vec!["large"]));
    let failed =
        ("large".to_owned(), "deny write large; no earlier content is known, since it was too large".to_owned());
    assert_eq!(put_back.failed, [failed]);
    assert_eq!([".envrc", "locked", "large"].map(|name| fixture.read(name)), ["mine", "mine", "evil"]);
    // The next call begins with the files as they are.
    let CallChanges { put_back, .. } = fixture.after_call();
    assert!(put_back.is_empty());
}

#[test]
fn a_file_that_is_no_longer_ignored_is_put_back_only_if_a_call_wrote_it() {
    for writer in ["user", "call"] {
        let fixture = Fixture::new(|workspace| workspace);
        std::fs::create_dir(fixture.folder.path().join("w/target")).expect("a directory");
        fixture.write("target/a", "mine");
        fixture.write(".gitignore", "target/\n");
        fixture.observe();
        if writer == "call" {
            fixture.write("target/.envrc", "new");
            assert!(fixture.after_call().put_back.is_empty(), "it is ignored");
        } else {
            fixture.write("target/.envrc", "new");
            fixture.observe();
        }
        fixture.write(".gitignore", "");
        let CallChanges { put_back, .. } = fixture.after_call();
        let expected: &[&str] = if writer == "call" { &["target/.envrc"] } else { &[] };
        assert_eq!(paths(&put_back.restored), expected, "{writer}");
        assert_eq!(fixture.read("target/.envrc") == "new", writer == "user");
    }
}
