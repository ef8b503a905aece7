//! A command that commits: it changes the history of the repository, and nothing that git runs later.

use std::collections::BTreeMap;
use std::path::Path;

use rath_sandbox::{Command, ExitStatus, Sandbox};

use super::walls::Fixture;
use super::{printed, run};

/// Runs git outside of every sandbox, and returns what it prints.
fn git(fixture: &Fixture, words: &[&str]) -> String {
    let done = rath_test_support::git().args(words).current_dir(fixture.path("work")).output().expect("git runs");
    assert!(done.status.success(), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8_lossy(&done.stdout).into_owned()
}

fn repository() -> Fixture {
    let fixture = Fixture::new();
    for words in [
        &["init", "-q", "-b", "main", "--template="][..],
        &["config", "user.name", "Ann"],
        &["config", "user.email", "ann@example.invalid"],
        &["add", "file"],
        &["commit", "-qm", "One."],
    ] {
        git(&fixture, words);
    }
    for path in ["hooks", "info"] {
        std::fs::create_dir_all(fixture.path("work/.git").join(path)).expect("a directory");
    }
    fixture
}

/// Describes the files of a repository, without the parts that a commit changes.
fn settings(git: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut below = vec![git.to_owned()];
    while let Some(directory) = below.pop() {
        for entry in std::fs::read_dir(directory).expect("a directory").flatten() {
            let path = entry.path();
            let name = path.strip_prefix(git).expect("below").display().to_string();
            if ["objects", "refs", "logs", "index", "HEAD"].contains(&&*name) {
                continue;
            }
            let content = match entry.file_type().expect("a kind") {
                kind if kind.is_dir() => {
                    below.push(path);
                    String::new()
                }
                kind if kind.is_symlink() => format!("-> {}", std::fs::read_link(&path).expect("a link").display()),
                _ => String::from_utf8_lossy(&std::fs::read(&path).expect("a file")).into_owned(),
            };
            found.insert(name, content);
        }
    }
    found
}

/// Returns a command that commits: a line of shell that starts no other program but by `exec`.
fn committing(line: &str) -> Command {
    let mut command = Command::shell(line);
    command.extra.git = true;
    command
}

#[test]
fn a_commit_changes_the_history_and_nothing_that_git_runs_later() {
    // Each tries to leave something in `.git`. The first program of a line is the only one that it can start.
    let rows = [
        "echo ../evil > .git/commondir",
        "echo evil > .git/hooks/pre-commit",
        "echo evil >> .git/config",
        "echo evil > .git/config.worktree",
        "echo evil > .git/info/attributes",
        "exec mkdir -p .git/new/directory",
        "exec rm -rf .git/hooks",
        "exec rm .git/config",
        "exec mv .git/config .git/other",
        "exec ln -s / .git/link",
        "exec ln -sf ../../evil .git/HEAD",
        "echo ref: ../../evil > .git/HEAD",
        "exec mkfifo .git/index.pipe",
        "exec mv .git moved",
        "exec perl -e 'rename(\"file\", \".git/commondir\")'",
        "echo evil > .git/modules/x/config",
        "echo evil > sub/.git/config",
        "exec mkdir sub/.git/hooks",
    ];
    for without_hooks in [false, true] {
        for row in rows {
            let fixture = repository();
            let repository = fixture.path("work/.git");
            if without_hooks {
                std::fs::remove_dir_all(repository.join("hooks")).expect("removed");
                std::fs::remove_dir_all(repository.join("info")).expect("removed");
            }
            for path in ["work/sub/.git", "work/.git/modules/x"] {
                std::fs::create_dir_all(fixture.path(path)).expect("a directory");
                std::fs::write(fixture.path(path).join("config"), "[core]\n").expect("a file");
            }
            let all = |fixture: &Fixture| (settings(&repository), settings(&fixture.path("work/sub/.git")));
            let before = all(&fixture);
            let output = crate::block_on(Sandbox::from(fixture.isolated()).run(&committing(row)));
            assert_eq!(all(&fixture), before, "{row}: {:?}", output.as_ref().map(printed));
            assert_eq!(git(&fixture, &["log", "--format=%s"]), "One.\n", "{row}");
            assert_eq!(git(&fixture, &["symbolic-ref", "HEAD"]), "refs/heads/main\n", "{row}");
        }
    }
}

#[test]
fn a_command_that_commits_starts_no_other_program() {
    let fixture = repository();
    let sandbox = Sandbox::from(fixture.isolated());
    for line in ["exec git status", "exec perl -MPOSIX -e 'exit 0'", "read line < file"] {
        let output = run(&sandbox, &committing(line));
        assert_eq!(output.status, ExitStatus::Exit(0), "{line}: {}", printed(&output));
    }
    for line in [
        "ls | cat",
        "(exec true)",
        "exec perl -e 'defined(fork) or exit 1'",
        "exec perl -e 'syscall(57) >= 0 or exit 1'",
        "exec perl -e 'syscall(56, 17, 0, 0, 0, 0) >= 0 or exit 1'",
        "exec git -c alias.x='!true' x",
    ] {
        let output = run(&sandbox, &committing(line));
        assert_ne!(output.status, ExitStatus::Exit(0), "{line}: {}", printed(&output));
        assert_eq!(run(&sandbox, &Command::shell(line)).status, ExitStatus::Exit(0), "another command can: {line}");
    }
}

#[test]
fn git_commits_in_every_kind_of_repository() {
    let commit = "exec git -c maintenance.auto=false commit -qm Two. -- file";
    type Prepare = fn(&Fixture);
    let rows: [(&str, Prepare); 6] = [
        ("a branch", |_| {}),
        ("no branch", |fixture| drop(git(fixture, &["checkout", "-q", "--detach"]))),
        ("packed refs", |fixture| drop(git(fixture, &["pack-refs", "--all"]))),
        ("a split index", |fixture| drop(git(fixture, &["update-index", "--split-index"]))),
        ("no logs", |fixture| std::fs::remove_dir_all(fixture.path("work/.git/logs")).expect("removed")),
        ("a link to the repository", |fixture| {
            std::fs::rename(fixture.path("work/.git"), fixture.path("work/repository")).expect("moved");
            std::os::unix::fs::symlink("repository", fixture.path("work/.git")).expect("a link");
        }),
    ];
    for (name, prepare) in rows {
        let fixture = repository();
        prepare(&fixture);
        std::fs::write(fixture.path("work/file"), "two\n").expect("a file");
        let output = run(&Sandbox::from(fixture.isolated()), &committing(commit));
        assert_eq!(output.status, ExitStatus::Exit(0), "{name}: {}", printed(&output));
        assert_eq!(git(&fixture, &["log", "--format=%s"]), "Two.\nOne.\n", "{name}");
        assert_eq!(git(&fixture, &["status", "--short", "--untracked-files=no"]), "", "{name}");
        assert_eq!(git(&fixture, &["log", "-1", "-g", "--format=%gs"]), "commit: Two.\n", "{name}");
        git(&fixture, &["fsck", "--strict"]);
    }
    // The first commit of a repository.
    let fixture = Fixture::new();
    git(&fixture, &["init", "-q"]);
    let output = run(&Sandbox::from(fixture.isolated()), &committing("exec git add file"));
    assert_eq!(output.status, ExitStatus::Exit(0), "{}", printed(&output));
    assert_eq!(git(&fixture, &["diff", "--cached", "--name-only"]), "file\n");
}

#[test]
fn an_index_that_another_program_has_changed_or_locked_stays() {
    let fixture = repository();
    let sandbox = Sandbox::from(fixture.isolated());
    std::fs::write(fixture.path("work/file"), "two\n").expect("a file");
    let lock = fixture.path("work/.git/index.lock");
    std::fs::write(&lock, "").expect("a file");
    let error = crate::block_on(sandbox.run(&committing("exec git add file"))).expect_err("it is locked");
    assert_eq!(error.to_string(), "another git process has locked `.git/index`");
    assert!(lock.exists());
    std::fs::remove_file(&lock).expect("removed");
    // A command that fails changes nothing.
    let output = run(&sandbox, &committing("echo nonsense > .git/index; exit 1"));
    assert_eq!(output.status, ExitStatus::Exit(1));
    assert_eq!(git(&fixture, &["status", "--short", "--untracked-files=no"]), " M file\n");
}
