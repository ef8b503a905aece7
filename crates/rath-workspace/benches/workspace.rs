//! The cost of snapshots and forks, compared with git in the same directory: `cargo xtask bench`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rath_bench::{Table, medians};
use rath_sandbox::{Sandbox, SharedDir, SharedDirs};
use rath_workspace::TreeId;
use rath_workspace::{
    CollectMode, Collector, ForkMethod, ForkShare, IgnoreRules, IgnoredPaths, Objects, Snapshot, Workspace,
};

/// The number of files, in 500 directories.
const FILES: usize = 10_000;

/// A benchmark, by name.
type Case = (&'static str, fn(&mut Table, &BenchRepo));

fn main() {
    let wanted: Vec<_> = std::env::args().skip(1).filter(|case| !case.starts_with('-')).collect();
    let cases: [Case; 9] = [
        ("placing", placing),
        ("snapshots", snapshots),
        ("opens", opens),
        ("forks", forks),
        ("shared", shared),
        ("ignores", ignores),
        ("collections", collections),
        ("renames", renames),
        ("patches", patches),
    ];
    let mut table = Table::default();
    let repo = BenchRepo::new();
    for (_, case) in cases.iter().filter(|(name, _)| wanted.is_empty() || wanted.iter().any(|one| one == name)) {
        case(&mut table, &repo);
    }
    // Printing the table ends the program without dropping anything.
    drop(repo);
    table.print();
}

/// A git repository with many files, and a folder for versions of the same files.
struct BenchRepo {
    folder: tempfile::TempDir,
}

impl BenchRepo {
    fn new() -> Self {
        // In the project directory: the system's temporary directory may be in memory.
        let repo = BenchRepo { folder: tempfile::tempdir_in(".").expect("a folder") };
        for nth in 0..FILES {
            let directory = repo.root().join(format!("d{}/e{}/f{}", nth / 1000, nth / 100 % 10, nth / 20 % 5));
            fs::create_dir_all(&directory).expect("a directory");
            let lines = (0..20 + nth * 7 % 150).map(|line| format!("line {line} of {}\n", nth * 31 + line * 17));
            fs::write(directory.join(format!("file{nth}.py")), lines.collect::<String>()).expect("a file");
        }
        fs::write(repo.root().join(".gitignore"), "*.pyc\nbuild/\n/dist\n!keep.pyc\n").expect("a file");
        repo.git(&["init", "--quiet"]);
        repo.git(&["add", "."]);
        repo.git(&["-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "-m", "all"]);
        // Git reads files again as long as they may have changed while its index was written.
        std::thread::sleep(std::time::Duration::from_millis(1_100));
        repo.git(&["status", "--porcelain"]);
        repo
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("root")
    }

    fn git(&self, args: &[&str]) {
        let mut git = Command::new("git");
        git.arg("-C").arg(self.root()).args(args).stdout(Stdio::null()).stderr(Stdio::null());
        assert!(git.status().expect("git starts").success(), "git {args:?}");
    }

    fn workspace(&self, name: &str) -> Workspace {
        let folder = self.folder.path().join(name);
        let objects = Objects::open(&folder).expect("versions");
        Workspace::open(&self.root(), &objects, &folder.join("rath-index")).expect("a workspace")
    }
}

/// The first snapshot of a directory, which a session takes when it is placed there.
fn placing(table: &mut Table, repo: &BenchRepo) {
    let mut nth = 0;
    let place = || {
        nth += 1;
        repo.workspace(&format!("placed{nth}")).snapshot().expect("a snapshot");
    };
    let mut other = 0;
    let (ours, git) = medians(7, place, || {
        other += 1;
        let folder = repo.folder.path().join(format!("added{other}"));
        let folder = folder.to_str().expect("text");
        repo.git(&["--git-dir", folder, "--work-tree", ".", "init", "--quiet"]);
        repo.git(&["--git-dir", folder, "--work-tree", ".", "add", "."]);
    });
    eprintln!("  a first snapshot: {ours:.1?}, git add {git:.1?}");
    table.at_most("a first snapshot of 10,000 files, against git add", ratio(ours, git), 1.0);
}

fn snapshots(table: &mut Table, repo: &BenchRepo) {
    let mut workspace = repo.workspace("versions");
    let first = std::time::Instant::now();
    let mut last = workspace.snapshot().expect("a snapshot");
    eprintln!("  the first snapshot of {FILES} files took {:.1?}", first.elapsed());
    let unchanged = || {
        let next = workspace.snapshot().expect("a snapshot");
        assert_eq!(changed_files(&workspace, &last, &next), 0);
    };
    let (ours, git) = medians(41, unchanged, || repo.git(&["status", "--porcelain"]));
    eprintln!("  nothing changed: {ours:.1?}, git status {git:.1?}");
    table.at_most("snapshot of 10,000 files, nothing changed, against git status", ratio(ours, git), 0.7);

    let file = repo.root().join("d3/e3/f3/file3360.py");
    let mut nth = 0;
    let changed = || {
        edit(&file, &mut nth);
        let next = workspace.snapshot().expect("a snapshot");
        assert_eq!(changed_files(&workspace, &last, &next), 1);
        last = next;
    };
    let mut other = 1_000_000;
    let (ours, git) = medians(41, changed, || {
        edit(&file, &mut other);
        repo.git(&["status", "--porcelain"]);
    });
    eprintln!("  one file changed: {ours:.1?}, git status {git:.1?}");
    table.at_most("snapshot of 10,000 files, one changed, against git status", ratio(ours, git), 1.0);

    workspace.objects().sync().expect("synced");
    edit(&file, &mut nth);
    workspace.snapshot().expect("a snapshot");
    let sync = std::time::Instant::now();
    workspace.objects().sync().expect("synced");
    eprintln!("  one file changed: {:.1?} more until it is durable", sync.elapsed());
}

/// A `.gitignore` that is made to take long.
fn ignores(table: &mut Table, _: &BenchRepo) {
    // The path ends like the pattern: the end alone tells most others from it.
    let path = "aa/".repeat(40) + "x/bbb";
    let rules = |stars: usize| IgnoreRules::default().with_gitignore(b"", ("**/".repeat(stars) + "x/?b").as_bytes());
    let (hostile, ordinary) = (rules(18), rules(1));
    let check = |rules: &IgnoreRules| assert!(!rules.ignores(path.as_bytes(), false));
    let (hostile, ordinary) = medians(201, || check(&hostile), || check(&ordinary));
    eprintln!("  one path: {hostile:.1?} for a hostile rule, {ordinary:.1?} for an ordinary one");
    table.at_most("ignore rule of 18 `**/`, against one of 1", ratio(hostile, ordinary), 60.0);
}

/// Opening in a new process: it reads the index, and takes one snapshot.
fn opens(table: &mut Table, repo: &BenchRepo) {
    let mut workspace = repo.workspace("opened");
    workspace.snapshot().expect("a snapshot");
    // Files that were just written are read once more.
    std::thread::sleep(std::time::Duration::from_millis(50));
    workspace.snapshot().expect("a snapshot");
    drop(workspace);
    let open = || {
        let mut workspace = repo.workspace("opened");
        let before = workspace.last_snapshot().expect("a last snapshot");
        let next = workspace.snapshot().expect("a snapshot");
        assert_eq!(changed_files(&workspace, &before, &next), 0);
    };
    let (ours, git) = medians(21, open, || repo.git(&["status", "--porcelain"]));
    eprintln!("  opened, nothing changed: {ours:.1?}, git status {git:.1?}");
    table.at_most("opening, and a snapshot of 10,000 files, against git status", ratio(ours, git), 1.0);
}

fn forks(table: &mut Table, repo: &BenchRepo) {
    let mut other = 0;
    let mut worktree = || {
        other += 1;
        let into = repo.folder.path().join(format!("worktree{other}"));
        repo.git(&["worktree", "add", "--quiet", "--detach", into.to_str().expect("text")]);
    };
    // The first fork may create the base version of later ones: each of these is the first of its own folder.
    let first_forks: Vec<_> = (0..4)
        .map(|nth| {
            let mut workspace = repo.workspace(&format!("versions-{nth}"));
            let tree = workspace.snapshot().expect("a snapshot").tree;
            (workspace, tree)
        })
        .collect();
    let mut nth = 0;
    let first = || {
        let (workspace, tree) = &first_forks[nth];
        nth += 1;
        fork(repo, workspace, *tree, &format!("first{nth}"));
    };
    let (ours, git) = medians(3, first, &mut worktree);
    eprintln!("  a first fork: {ours:.1?}, git worktree add {git:.1?}");
    table.at_most("a first fork of 10,000 files, against git worktree add", ratio(ours, git), 1.0);
    let (workspace, tree) = &first_forks[0];
    let mut nth = 0;
    let further = || {
        nth += 1;
        fork(repo, workspace, *tree, &format!("further{nth}"));
    };
    let (ours, git) = medians(5, further, &mut worktree);
    eprintln!("  a further fork: {ours:.1?}, git worktree add {git:.1?}");
    let (method, bound) = if ForkMethod::detect(repo.folder.path()) == ForkMethod::Overlay {
        ("by overlay", 0.1)
    } else {
        ("by copy", 1.0)
    };
    table.at_most(&format!("a further fork, {method}, against git worktree add"), ratio(ours, git), bound);
    let mut fork = fork(repo, workspace, *tree, "last");
    let first = std::time::Instant::now();
    assert_eq!(fork.snapshot().expect("a snapshot").tree, *tree);
    eprintln!("  the first snapshot of a fork took {:.1?}", first.elapsed());
}

/// The number of files that git ignores, in 1,000 directories.
const IGNORED_FILES: usize = 50_000;

/// A fork, and what it shares with its directory, with and without many ignored files: up to the first command.
///
/// An isolated sandbox shows the ignored files to the command, by a mount that any user can make.
fn shared(table: &mut Table, repo: &BenchRepo) {
    let mut workspace = repo.workspace("shared-versions");
    let tree = workspace.snapshot().expect("a snapshot").tree;
    // The base version of both kinds.
    fork(repo, &workspace, tree, "shared-first");
    let with_ignored = repo.folder.path().join("with-ignored");
    for nth in 0..IGNORED_FILES {
        let directory = with_ignored.join(format!("node_modules/package{}/lib{}", nth / 500, nth / 50 % 10));
        fs::create_dir_all(&directory).expect("a directory");
        fs::write(directory.join(format!("{nth}.js")), format!("module {nth}\n")).expect("a file");
    }
    fs::write(with_ignored.join(".gitignore"), "node_modules/\n").expect("a file");
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let mut nth = 0;
    let mut share = |ignored: &[PathBuf], line: &str| {
        nth += 1;
        let name = format!("shared{nth}");
        let fork = fork(repo, &workspace, tree, &name);
        let share = ForkShare::of(fork.root());
        let prepare = |path: &PathBuf| SharedDir {
            path: path.clone(),
            changes: share.prepare(fork.objects(), path).expect("shared"),
        };
        let original = with_ignored.canonicalize().expect("a path");
        let shared = SharedDirs { original, directories: ignored.iter().map(prepare).collect() };
        let sandbox = Sandbox::isolated(&with_ignored).with_shared(fork.root(), &shared).expect("a sandbox");
        let output = runtime.block_on(sandbox.run(&rath_sandbox::Command::shell(line))).expect("it runs");
        assert_eq!(output.stdout.text(), "there\n", "{}", output.stderr.text());
    };
    let share = std::cell::RefCell::new(&mut share);
    let with = || {
        let ignored = IgnoredPaths::find(&with_ignored).expect("found").directories;
        (share.borrow_mut())(
            &ignored,
            "echo x > node_modules/new && test -e node_modules/package99/lib9/49999.js && echo there",
        );
    };
    let (with, without) = medians(9, with, || (share.borrow_mut())(&[], "echo there"));
    eprintln!("  a fork and its first command: {with:.1?} with {IGNORED_FILES} ignored files, {without:.1?} without");
    table.at_most("a fork with 50,000 ignored files, against one without", ratio(with, without), 2.0);
}

fn fork(repo: &BenchRepo, workspace: &Workspace, tree: TreeId, name: &str) -> Workspace {
    let (into, index) = (repo.folder.path().join(name), repo.folder.path().join(format!("{name}.index")));
    let fork = workspace.fork(tree, &into, &index).expect("a fork");
    assert!(fork.last_snapshot().is_some_and(|last| last.tree == tree) && into.join("d0").is_dir());
    fork
}

/// The number of files that are kept, and removed, in the smallest collection.
const COLLECTED_FILES: usize = 4_000;

/// Removing versions: the cost is that of what is kept and of what is removed.
fn collections(table: &mut Table, repo: &BenchRepo) {
    const RUNS: usize = 7;
    let [base, more_kept, more_removed] = [(1, 1), (4, 1), (1, 4)].map(|(kept, removed)| {
        let name = format!("collected-{kept}-{removed}");
        Collectable::new(repo, &name, kept * COLLECTED_FILES, removed * COLLECTED_FILES, 2 * (RUNS + 1))
    });
    let (many, few) = medians(RUNS, || more_kept.collect(), || base.collect());
    eprintln!("  4 times the versions kept: {many:.1?}, against {few:.1?}");
    table.at_most("removing versions, 4 times as many kept", ratio(many, few), 5.0);
    let (many, few) = medians(RUNS, || more_removed.collect(), || base.collect());
    eprintln!("  4 times the versions removed: {many:.1?}, against {few:.1?}");
    table.at_most("removing versions, 4 times as many removed", ratio(many, few), 5.0);
}

/// Comparing two trees in which files with equal content have other names: each of them could be any of the others.
fn renames(table: &mut Table, repo: &BenchRepo) {
    let compared = |files: usize| {
        let folder = repo.folder.path().join(format!("renamed-{files}"));
        let objects = Objects::open(&folder.join("versions")).expect("versions");
        let trees = ["a", "b"].map(|name| {
            let root = folder.join(name);
            fs::create_dir_all(&root).expect("a directory");
            (0..files).for_each(|nth| fs::write(root.join(format!("{name}{nth}")), "equal\n").expect("a file"));
            let mut workspace =
                Workspace::open(&root, &objects, &folder.join(format!("index-{name}"))).expect("a workspace");
            workspace.snapshot().expect("a snapshot").tree
        });
        move || assert_eq!(objects.diff(Some(trees[0]), trees[1]).expect("compared").len(), files)
    };
    let (many, few) = medians(7, compared(16_000), compared(4_000));
    eprintln!("  4 times the equal files renamed: {many:.1?}, against {few:.1?}");
    table.at_most("comparing trees, 4 times as many equal files renamed", ratio(many, few), 6.0);
}

/// A patch that creates many files in one directory.
fn patches(table: &mut Table, repo: &BenchRepo) {
    let written = |files: usize| {
        let folder = repo.folder.path().join(format!("patched-{files}"));
        let (root, objects) = (folder.join("root"), Objects::open(&folder.join("versions")).expect("versions"));
        fs::create_dir_all(&root).expect("a directory");
        let mut workspace = Workspace::open(&root, &objects, &folder.join("index")).expect("a workspace");
        let before = workspace.snapshot().expect("a snapshot").tree;
        (0..files).for_each(|nth| fs::write(root.join(format!("{nth}")), format!("{nth}\n")).expect("a file"));
        let after = workspace.snapshot().expect("a snapshot").tree;
        move || assert!(objects.patch(before, after).expect("a patch").len() > files)
    };
    let (many, few) = medians(7, written(8_000), written(2_000));
    eprintln!("  4 times the files in a patch: {many:.1?}, against {few:.1?}");
    table.at_most("a patch that creates 4 times as many files", ratio(many, few), 6.0);
}

/// A folder of objects of which a part is kept, in several copies: each is collected once.
struct Collectable {
    folder: PathBuf,
    kept: TreeId,
    used: std::cell::Cell<usize>,
}

impl Collectable {
    fn new(repo: &BenchRepo, name: &str, kept: usize, removed: usize, copies: usize) -> Self {
        let folder = repo.folder.path().join(name);
        let root = folder.join("root");
        for (part, files) in [("kept", kept), ("removed", removed)] {
            for nth in 0..files {
                let directory = root.join(part).join(format!("d{}", nth / 100));
                fs::create_dir_all(&directory).expect("a directory");
                fs::write(directory.join(format!("{nth}.txt")), format!("{part} {nth}\n").repeat(20)).expect("a file");
            }
        }
        let objects = Objects::open(&folder.join("0")).expect("versions");
        let snapshot = |root: &Path| {
            let mut workspace = Workspace::open(root, &objects, &folder.join("index")).expect("a workspace");
            workspace.snapshot().expect("a snapshot").tree
        };
        // One pack holds both.
        snapshot(&root);
        let kept = snapshot(&root.join("kept"));
        objects.sync().expect("synced");
        drop(objects);
        (1..copies).for_each(|nth| copy(&folder.join("0"), &folder.join(nth.to_string())));
        Collectable { folder, kept, used: std::cell::Cell::new(0) }
    }

    fn collect(&self) {
        let nth = self.used.replace(self.used.get() + 1);
        let collector = Collector::open(&self.folder.join(nth.to_string()), CollectMode::Remove);
        let mut collector = collector.expect("opened").expect("not in use");
        collector.keep_tree(self.kept).expect("kept");
        assert!(collector.collect().expect("collected").objects.files as usize >= COLLECTED_FILES);
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a directory");
    for entry in fs::read_dir(from).expect("listed") {
        let entry = entry.expect("an entry");
        match entry.file_type().expect("a type").is_dir() {
            true => copy(&entry.path(), &to.join(entry.file_name())),
            false => _ = fs::copy(entry.path(), to.join(entry.file_name())).expect("copied"),
        }
    }
}

/// Returns the number of changed files, without `.git`, which `git status` writes to.
fn changed_files(workspace: &Workspace, before: &Snapshot, after: &Snapshot) -> usize {
    let changes = workspace.changes(before, after).expect("changes");
    changes.iter().filter(|change| change.path != ".git").count()
}

fn edit(file: &Path, nth: &mut u32) {
    *nth += 1;
    fs::write(file, format!("line {nth}\n").repeat(100)).expect("written");
}

fn ratio(ours: std::time::Duration, theirs: std::time::Duration) -> f64 {
    ours.as_secs_f64() / theirs.as_secs_f64()
}
