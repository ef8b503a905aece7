//! The directories that git ignores, in forks and in bisections: tools see them there, and nothing of them leaves the fork.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use expect_test::expect;
use rath::chunk::Verdict;
use rath::policy::{Mode, Permission, Policy, Rule};
use rath::prelude::*;
use rath_test_support::TempDir;

use crate::files::{effects, work};
use crate::support::{block_on, close, folder, put};

/// A project with dependencies that git ignores, a repository, and a test that needs the dependencies.
fn project() -> TempDir {
    let project = folder(&[
        (".gitignore", "node_modules/\nbuild/\n.env\n__pycache__/\n"),
        ("a.txt", "one\n"),
        ("test.sh", "grep -q module node_modules/dep/index.js && grep -q one a.txt\n"),
        ("node_modules/dep/index.js", "module\n"),
        ("node_modules/dep/other.js", "other\n"),
        ("packages/a/build/out", "built\n"),
        ("packages/a/lib.txt", "lib\n"),
        ("__pycache__/x.pyc", "compiled\n"),
        (".env", "KEY=1\n"),
    ]);
    std::os::unix::fs::symlink("../packages/a", project.path().join("node_modules/a")).expect("a link");
    let absolute = project.path().canonicalize().expect("a path").join("packages/a/lib.txt");
    std::os::unix::fs::symlink(absolute, project.path().join("node_modules/absolute")).expect("a link");
    for words in [&["init", "-q", "-b", "main"][..], &["add", "."], &["commit", "-qm", "One."]] {
        git(project.path(), words);
    }
    project
}

fn git(directory: &Path, words: &[&str]) -> String {
    let mut git = rath_test_support::git();
    git.args(["-c", "user.name=Ann", "-c", "user.email=ann@example.invalid"]).args(words).current_dir(directory);
    printed(&mut git)
}

fn printed(command: &mut Command) -> String {
    let done = command.output().expect("it runs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8_lossy(&done.stdout).into_owned()
}

/// The sandboxes that a fork is tried in.
fn sandboxes(project: &TempDir) -> [Sandbox; 2] {
    [Sandbox::isolated(project.path()), Sandbox::local(project.path())]
}

/// Returns every file of a directory, without rath's own, with its content and metadata.
fn state(root: &Path) -> BTreeMap<PathBuf, (u64, u32, i64, i64, Vec<u8>)> {
    let (mut found, mut below) = (BTreeMap::new(), vec![root.to_owned()]);
    while let Some(directory) = below.pop() {
        for entry in std::fs::read_dir(directory).expect("listed").flatten() {
            let (path, metadata) = (entry.path(), entry.metadata().expect("metadata"));
            if entry.file_name() == ".rath" {
                continue;
            }
            if metadata.is_dir() {
                below.push(path.clone());
            }
            let content = if metadata.is_file() { std::fs::read(&path).expect("read") } else { Vec::new() };
            // Git gives an object that it would write again a new time, also in a repository that it only reads.
            let is_object = path.starts_with(root.join(".git/objects"));
            let time = if is_object { (0, 0) } else { (metadata.mtime(), metadata.mtime_nsec()) };
            found.insert(path, (metadata.ino(), metadata.mode(), time.0, time.1, content));
        }
    }
    found
}

/// Returns the outputs of the calls of a session.
fn outputs(session: &Session) -> String {
    let results = session.as_record().steps().into_iter().filter_map(|step| match step.chunk() {
        Chunk::ToolResult(result) => Some(result.output.to_string()),
        _ => None,
    });
    results.collect::<Vec<_>>().join("\n")
}

#[test]
fn a_fork_has_the_dependencies_and_the_history_of_the_project() {
    for sandbox in sandboxes(&project()) {
        let uri = sandbox.uri().to_owned();
        let project = sandbox.directory().expect("a directory").to_owned();
        let session = work(Session::user("go").to(sandbox), &[&["true"]]);
        let mut fork = session.fork();
        let before = state(&project);
        let lines = [
            "sh test.sh && echo passed; cat packages/a/build/out node_modules/a/lib.txt; ls .env __pycache__ 2>&1 | wc -l",
            "git log --format=%s; git status --porcelain; git describe --always --all",
            "sed -i s/one/1/ a.txt; git diff --stat | tail -1",
        ];
        fork = work(fork, &[&lines]);
        let out = outputs(&fork);
        for wanted in ["passed", "built", "lib", "One.", "heads/main", "1 file changed"] {
            assert!(out.contains(wanted), "{uri}: {wanted} in {out}");
        }
        assert_eq!(block_on(fork.check("sh test.sh", &[])).expect("ran"), Verdict::Failed, "{uri}: the fork has 1");
        let unshared: Vec<_> = fork.unshared_paths().iter().map(|it| format!("{}: {}", it.path, it.reason)).collect();
        assert_eq!(unshared, [".env: a single file"], "{uri}");
        assert_eq!(state(&project), before, "{uri}");
        drop((session, fork));
    }
}

#[test]
fn nothing_that_a_fork_does_changes_the_project_through_what_it_shares() {
    let project = project();
    let rounds = [
        "echo x > node_modules/dep/index.js; : > node_modules/dep/other.js; chmod 777 node_modules/dep/other.js",
        "ln node_modules/dep/other.js node_modules/hard; echo x > node_modules/hard; echo x > node_modules/absolute",
        "echo x > node_modules/a/lib.txt; mv node_modules/dep node_modules/moved; touch -d @1 node_modules packages/a/build/out",
        "git config user.name Eve; git config user.email e@x; git commit -qam Evil; git branch evil; git gc -q; echo x > .git/HEAD",
        "rm -rf node_modules/* packages/a/build/* .git/*",
    ];
    for sandbox in sandboxes(&project) {
        let uri = sandbox.uri().to_owned();
        let session = work(Session::user("go").to(sandbox), &[&["true"]]);
        for line in rounds {
            let before = state(project.path());
            let fork = work(session.fork(), &[&[line]]);
            assert_eq!(state(project.path()), before, "{uri}: {line}");
            drop(fork);
        }
    }
}

#[test]
fn nothing_that_a_fork_shares_is_recorded_or_merged_even_if_a_command_stops_ignoring_it() {
    let project = project();
    for sandbox in sandboxes(&project) {
        let session = work(Session::user("go").to(sandbox), &[&["echo 2 >> a.txt"]]);
        let (one, two) = (session.fork(), session.fork());
        let one = work(
            one,
            &[&["echo '*.log' > .gitignore; echo new > node_modules/new; echo b > b.txt"], &["cat node_modules/new"]],
        );
        let two = work(two, &[&["echo c > c.txt; rm -rf node_modules/dep packages/a/build/out"]]);
        assert!(outputs(&one).contains("new"), "{}", outputs(&one));
        expect![[r#"
            tool_result: ~a.txt
            tool_result: ~.gitignore +b.txt
        "#]]
        .assert_eq(&effects(&one));
        let merged = block_on(one.merge(&two)).expect("merged");
        let merged = work(merged, &[&["ls; ls node_modules"]]);
        for path in ["b.txt", "c.txt", "node_modules/dep/index.js", "packages/a/build/out"] {
            assert!(project.path().join(path).exists(), "{path}");
        }
        assert!(!project.path().join("node_modules/new").exists());
        drop((session, one, two, merged));
        git(project.path(), &["checkout", "-q", "--", "."]);
        ["b.txt", "c.txt"].iter().for_each(|path| std::fs::remove_file(project.path().join(path)).expect("removed"));
    }
}

#[test]
fn a_bisection_runs_where_the_dependencies_are() {
    let project = project();
    for sandbox in sandboxes(&project) {
        let rounds: &[&[&str]] = &[&["echo 2 > b.txt"], &["sed -i s/one/1/ a.txt"], &["echo 3 > b.txt"]];
        let session = work(Session::user("go").to(sandbox), rounds);
        let before = state(&project.path().join("node_modules"));
        // What one run changes there, no other sees.
        let line =
            "test ! -e node_modules/ran && touch node_modules/ran && git log --format=%s | grep -q One && sh test.sh";
        let found = block_on(session.bisect(&["sh", "-c", line].map(str::to_owned))).expect("a search");
        let step = session.as_record().find(found.step.expect("found")).expect("a step");
        let (call, _) = rath::view::find_call(step).expect("a call");
        assert!(call.arguments.to_string().contains("sed -i"), "{call:?}");
        assert_eq!(found.unshared.len(), 1, "{:?}", found.unshared);
        assert_eq!(state(&project.path().join("node_modules")), before);
        drop(session);
        git(project.path(), &["checkout", "-q", "--", "."]);
    }
    let left = std::fs::read_dir(project.path().join(".rath/workspace")).expect("listed").flatten();
    assert!(left.into_iter().all(|entry| entry.file_name() != "tmp"), "the copies are removed");
}

#[test]
fn calls_that_are_made_again_see_the_dependencies_and_change_nothing_of_the_project() {
    for nth in 0..2 {
        let project = project();
        let [isolated, local] = sandboxes(&project);
        let (root, recorded) = (project.path().to_owned(), if nth == 0 { isolated } else { local });
        let lines = ["sh test.sh && echo passed; git log --format=%s", "cat node_modules/dep/index.js > b.txt"];
        let session =
            work(Session::user("go").to(recorded), &[&[lines[0]], &[lines[1], "rm node_modules/dep/other.js"]]);
        put(&root, "node_modules/dep/other.js", "other\n");
        let fork = work(session.fork(), &[&["echo 2 >> b.txt; cat b.txt packages/a/build/out"]]);
        let merged = block_on(session.fork().merge(&fork)).expect("merged");
        let before = state(&root);
        for is_isolated in [true, false] {
            let fresh = folder(&[]);
            let sandbox = if is_isolated { Sandbox::isolated(fresh.path()) } else { Sandbox::local(fresh.path()) };
            let report = block_on(merged.repeat(rath::tool::builtin::all(), sandbox)).expect("a report");
            let unshared: Vec<_> = report.unshared.iter().map(|it| format!("{}: {}", it.path, it.reason)).collect();
            assert_eq!(
                (report.to_string(), unshared),
                ("exact: 5 requests, 4 calls, 2 files".to_owned(), vec![".env: a single file".to_owned()]),
                "isolated: {is_isolated}"
            );
            assert_eq!(state(&root), before, "isolated: {is_isolated}");
            let beside = std::fs::read_dir(fresh.path().parent().expect("a parent")).expect("listed").flatten();
            let name = fresh.path().file_name().expect("a name").to_string_lossy().into_owned();
            let left: Vec<_> = beside.map(|it| it.file_name().to_string_lossy().into_owned()).collect();
            assert!(!left.iter().any(|it| it.starts_with(&name) && *it != name), "{left:?}");
        }
        std::fs::remove_dir_all(root.join("node_modules")).expect("removed");
        let fresh = folder(&[]);
        let report = block_on(merged.repeat(rath::tool::builtin::all(), Sandbox::isolated(fresh.path())));
        let report = report.expect("a report").to_string();
        assert!(report.contains("node_modules/dep/index.js: No such file"), "{report}");
        drop((session, fork, merged));
    }
}

#[test]
fn a_fork_does_not_see_the_project_itself() {
    for options in ["at=/tmp/w&show=ABOVE", "at=/tmp/w&write=ABOVE", "walls=landlock&show=ABOVE"] {
        let above = folder(&[]);
        let project = above.path().join("project");
        std::fs::create_dir(&project).expect("a directory");
        put(&project, "a.txt", "mine\n");
        let options = options.replace("ABOVE", &above.path().display().to_string());
        let sandbox = Sandbox::open(&format!("isolated:{}?{options}", project.display())).expect("a sandbox");
        let session = work(Session::user("go").to(sandbox), &[&["true"]]);
        let path = project.display();
        put(&project, "a.txt", "mine, changed\n");
        let fork = work(session.fork(), &[&[&format!("cat a.txt; cat '{path}/a.txt'; echo x > '{path}/a.txt'; :")]]);
        let out = outputs(&fork);
        assert!(out.contains("mine") && !out.contains("changed"), "{options}: {out}");
        assert_eq!(std::fs::read_to_string(project.join("a.txt")).expect("a file"), "mine, changed\n", "{options}");
    }
}

#[test]
fn rules_about_reading_hold_for_what_a_fork_shares() {
    let project = project();
    put(project.path(), "node_modules/dep/key.pem", "private\n");
    let policy = Policy::new(Mode::Full).rule(Rule::new(Permission::Deny, "read *.pem").expect("a rule"));
    let session = work(Session::user("go").to(Sandbox::isolated(project.path())), &[&["true"]]);
    let fork = work(session.fork().under(policy), &[&["cat node_modules/dep/key.pem; cat node_modules/dep/index.js"]]);
    let out = outputs(&fork);
    assert!(!out.contains("private") && out.contains("module"), "{out}");
}

#[test]
fn a_link_in_a_shared_directory_leads_around_no_rule() {
    let project = project();
    put(project.path(), "node_modules/dep/key.pem", "private\n");
    std::os::unix::fs::symlink("key.pem", project.path().join("node_modules/dep/note.txt")).expect("a link");
    std::os::unix::fs::symlink("dep", project.path().join("node_modules/other")).expect("a link");
    let policy = Policy::new(Mode::Full).rule(Rule::new(Permission::Deny, "read *.pem").expect("a rule"));
    let session = work(Session::user("go").to(Sandbox::isolated(project.path())), &[&["true"]]);
    let read = |path: &str| serde_json::json!({"name": "read_file", "arguments": {"path": path}});
    let paths = ["node_modules/dep/note.txt", "node_modules/other/note.txt", "node_modules/dep/index.js"];
    let calls = serde_json::json!({"calls": paths.map(read)}).to_string();
    let model = crate::support::script([calls.as_str(), r#"{"text": "done"}"#]);
    let mut fork = session.fork().under(policy);
    fork.push(Chunk::user("go on"));
    let agent = Agent::new("Read.", &model).tool(rath::tool::builtin::ReadFile);
    let out = outputs(&block_on(agent.run(fork)).expect("a run"));
    assert!(!out.contains("private") && out.contains("module"), "{out}");
}

#[test]
fn git_in_a_local_fork_finds_no_repository_above_it() {
    let repository = folder(&[("package/a.txt", "one\n")]);
    for words in [&["init", "-q", "-b", "main"][..], &["add", "."], &["commit", "-qm", "One."]] {
        git(repository.path(), words);
    }
    put(repository.path(), "package/a.txt", "mine, not committed\n");
    let package = repository.path().join("package");
    let session = work(Session::user("go").to(Sandbox::local(&package)), &[&["true"]]);
    let fork = work(session.fork(), &[&["git reset -q --hard; git rev-parse --show-toplevel; echo done"]]);
    let out = outputs(&fork);
    assert!(out.contains("fatal: not a git repository"), "{out}");
    let argv = ["sh", "-c", "git reset -q --hard; exit 1"].map(str::to_owned);
    block_on(session.bisect(&argv)).expect("a search");
    assert_eq!(std::fs::read_to_string(package.join("a.txt")).expect("a file"), "mine, not committed\n");
    assert_eq!(fork.unshared_paths().iter().map(|it| it.path.as_str()).collect::<Vec<_>>(), [".git"]);
    assert!(effects(&fork).is_empty(), "{}", effects(&fork));
}

#[test]
fn copies_in_a_local_fork_do_not_lead_back_to_the_project() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let folder = rath_test_support::temp_dir_without_blanks();
    let above = folder.path().canonicalize().expect("a path");
    let (project, alias) = (above.join("project"), above.join("alias"));
    std::fs::create_dir(&project).expect("a directory");
    symlink(&project, &alias).expect("a link");
    put(&project, ".gitignore", ".venv/\nnode_modules/\nother/\n");
    put(&project, "pk/a.txt", "mine\n");
    let (root, other) = (project.display(), alias.display());
    put(&project, ".venv/pyvenv.cfg", &format!("home = /usr/bin\ncommand = /usr/bin/python3 -m venv {root}/.venv\n"));
    put(&project, ".venv/lib/site.pth", &format!("{root}/pk\n"));
    put(&project, ".venv/bin/tool", &format!("#!{root}/.venv/bin/sh\necho x > {root}/.venv/installed\necho ran\n"));
    put(&project, "other/bin/tool", &format!("#!{other}/.venv/bin/sh\necho x > {other}/pk/a.txt\n"));
    put(&project, "node_modules/dep", "dep\n");
    symlink("/bin/sh", project.join(".venv/bin/sh")).expect("a link");
    for tool in [".venv/bin/tool", "other/bin/tool"] {
        std::fs::set_permissions(project.join(tool), std::fs::Permissions::from_mode(0o755)).expect("executable");
    }
    symlink(alias.join("pk"), project.join("node_modules/alias")).expect("a link");
    // Four levels above the directory in the fork is the project.
    symlink("../../../../pk", project.join("node_modules/up")).expect("a link");
    let session = work(Session::user("go").to(Sandbox::local(&project)), &[&["true"]]);
    let before = state(&project);
    let lines = [
        ".venv/bin/tool; cat .venv/installed",
        "echo x > node_modules/alias/a.txt; cat pk/a.txt; echo x > node_modules/up/a.txt",
        "cat $(cat .venv/lib/site.pth)/a.txt; ls other",
    ];
    let fork = work(session.fork(), &[&lines]);
    assert_eq!(state(&project), before);
    let out = outputs(&fork);
    assert!(out.contains("ran\nx") && !out.contains("mine") && out.contains("node_modules/up/a.txt: "), "{out}");
    let unshared: Vec<_> = fork.unshared_paths().iter().map(|it| format!("{}: {}", it.path, it.reason)).collect();
    assert_eq!(unshared, ["other: names the project's own path"]);
}

#[test]
fn a_directory_of_the_fork_itself_is_not_covered() {
    let project = folder(&[("vendor/a.txt", "tracked\n"), ("a.txt", "one\n")]);
    let session = work(Session::user("go").to(Sandbox::isolated(project.path())), &[&["echo 1 > a.txt"]]);
    put(project.path(), ".gitignore", "vendor/\n");
    put(project.path(), "vendor/b.txt", "untracked\n");
    let fork = work(session.fork(), &[&["ls vendor; echo more > vendor/c.txt"]]);
    assert!(outputs(&fork).contains("a.txt") && !outputs(&fork).contains("b.txt"), "{}", outputs(&fork));
    let unshared: Vec<_> = fork.unshared_paths().iter().map(|it| format!("{}: {}", it.path, it.reason)).collect();
    assert_eq!(unshared, ["vendor: the fork has files of its own there"]);
}

#[test]
fn a_directory_that_can_only_be_read_from_some_time_on_is_named() {
    let project = project();
    let session = work(Session::user("go").to(Sandbox::isolated(project.path())), &[&["true"]]);
    let fork = work(session.fork(), &[&["touch node_modules/new"]]);
    let before = fork.unshared_paths().len();
    // No overlay can be mounted without a directory for the kernel to work in.
    let folder = project.path().join(".rath/work").join(format!("{}.shared", fork.id())).join("node_modules/work");
    std::fs::remove_dir_all(&folder).expect("removed");
    let fork = work(fork, &[&["touch node_modules/other"]]);
    let unshared: Vec<_> = fork.unshared_paths().iter().map(|it| format!("{}: {}", it.path, it.reason)).collect();
    assert_eq!(unshared[before..], ["node_modules: read-only"]);
}

#[test]
fn a_directory_that_cannot_be_shown_any_more_is_named() {
    type Change = fn(&Path);
    let rows: [(Change, &str); 2] = [
        (|path| std::fs::remove_dir_all(path).expect("removed"), "node_modules: no longer in the project"),
        (
            |path| {
                std::fs::rename(path, path.with_file_name("moved")).expect("moved");
                std::os::unix::fs::symlink("moved", path).expect("a link");
            },
            "node_modules: a link in the project",
        ),
    ];
    for (change, wanted) in rows {
        let (project, kept) = (project(), folder(&[]));
        let uri = format!("sqlite:{}", kept.path().join("s.db").display());
        let store = block_on(Store::open(&uri)).expect("a store");
        let session = Session::user("go").to(Sandbox::isolated(project.path()));
        let session = work(block_on(session.record(&store)).expect("recorded"), &[&["true"]]);
        let fork = work(session.fork(), &[&["cat node_modules/dep/index.js"]]);
        let id = fork.id();
        close((session, fork), store);
        change(&project.path().join("node_modules"));
        let store = block_on(Store::open(&uri)).expect("a store");
        let fork = block_on(store.resume(id)).expect("a session").complete().expect("nothing recorded has changed");
        let fork = work(fork, &[&["ls node_modules"]]);
        let unshared: Vec<_> = fork.unshared_paths().iter().map(|it| format!("{}: {}", it.path, it.reason)).collect();
        assert!(unshared.contains(&wanted.to_owned()), "{unshared:?}");
        close(fork, store);
    }
}

#[test]
fn a_fork_that_is_opened_again_has_its_changes() {
    let project = project();
    for (nth, sandbox) in sandboxes(&project).into_iter().enumerate() {
        let kept = folder(&[]);
        let uri = format!("sqlite:{}", kept.path().join(format!("{nth}.db")).display());
        let store = block_on(Store::open(&uri)).expect("a store");
        let session = block_on(Session::user("go").to(sandbox).record(&store)).expect("recorded");
        let session = work(session, &[&["true"]]);
        let fork = work(session.fork(), &[&["echo kept > node_modules/kept; echo x > x.txt"]]);
        let id = fork.id();
        close((session, fork), store);
        let store = block_on(Store::open(&uri)).expect("a store");
        let fork = block_on(store.resume(id)).expect("a session").complete().expect("nothing has changed");
        let fork = work(fork, &[&["cat node_modules/kept node_modules/dep/index.js x.txt; rm x.txt"]]);
        assert!(outputs(&fork).contains("kept\nmodule\nx"), "{}", outputs(&fork));
        close(fork, store);
    }
}

/// A library from PyPI, whose tests need packages in a `.venv` that git ignores.
#[test]
#[ignore = "needs a Python project with a `.venv`, named by RATH_PROJECT: see CONTRIBUTING.md"]
fn the_tests_of_a_real_project_run_in_a_fork_and_in_a_bisection() {
    let original = std::env::var_os("RATH_PROJECT").expect("RATH_PROJECT names a directory");
    for is_isolated in [true, false] {
        let folder = rath_test_support::temp_dir();
        let project = folder.path().join("project");
        printed(rath_test_support::program("cp").arg("-a").arg(&original).arg(&project));
        std::fs::write(project.join(".gitignore"), ".venv/\n__pycache__/\n.pytest_cache/\n").expect("written");
        [&["init", "-q"][..], &["add", "."], &["commit", "-qm", "One."]]
            .iter()
            .for_each(|words| _ = git(&project, words));
        let sandbox = if is_isolated { Sandbox::isolated(&project) } else { Sandbox::local(&project) };
        let uri = sandbox.uri().to_owned();
        let rounds: &[&[&str]] = &[
            &["echo '# a note' >> sqlparse/sql.py"],
            &["sed -i 's/^def split(/def cut(/' sqlparse/__init__.py"],
            &["echo '# another note' >> sqlparse/sql.py"],
        ];
        let session = work(Session::user("go").to(sandbox), rounds);
        let before = state(&project.join(".venv"));
        let tests = "PYTHONDONTWRITEBYTECODE=1 .venv/bin/python -m pytest -q -p no:cacheprovider tests";
        let mended =
            format!("sed -i 's/^def cut(/def split(/' sqlparse/__init__.py; {tests} | tail -1; git status --short");
        let fork = work(session.fork(), &[&[&mended]]);
        let out = outputs(&fork);
        assert!(out.contains(" passed") && !out.contains(" failed"), "{uri}: {out}");
        assert!(!out.contains("sqlparse/__init__.py") && out.contains("M sqlparse/sql.py"), "{uri}: {out}");
        let found = block_on(session.bisect(&["sh", "-c", tests].map(str::to_owned))).expect("a search");
        let step = session.as_record().find(found.step.expect("found")).expect("a step");
        let (call, _) = rath::view::find_call(step).expect("a call");
        assert!(call.arguments.to_string().contains("def cut"), "{uri}: {call:?}");
        assert_eq!(state(&project.join(".venv")), before, "{uri}");
    }
}
