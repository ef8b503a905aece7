//! Tests of forks and merges of files, and of decisions about conflicts.

use std::path::Path;
use std::process::Output;
use std::time::Duration;

use expect_test::expect;

use crate::fixture::{Fixture, for_each_store};

#[test]
fn a_session_works_in_its_own_directory_wherever_it_is_resumed_from() {
    for_each_store("", |fixture| {
        let session = fixture.work(None, "Count to five", "seq 5 > n.txt");
        let place = format!("local:{}", fixture.path("work").display());
        assert_eq!(fixture.json(&["ls", "--json"])[0]["place"], place);
        assert!(fixture.out(&["log", "-v", &session]).contains(&format!("sandbox: {place}")));
        let elsewhere = rath_test_support::temp_dir();
        fixture.script_command("echo 6 >> n.txt");
        let model = format!("script:{}", fixture.path("script.jsonl").display());
        let rath = |args: &[&str]| {
            let output = rath_in(fixture, elsewhere.path(), args);
            assert!(output.status.success(), "{args:?}: {output:?}");
            String::from_utf8(output.stdout).expect("text")
        };
        assert!(rath(&["ls"]).trim_end().ends_with(&format!("in {}", fixture.path("work").display())));
        rath(&["resume", &session, "One more", "--model", &model]);
        fixture.expect(
            &fixture.files("work"),
            &expect![[r#"
                a.txt: hello
                n.txt: 1|2|3|4|5|6
            "#]],
        );
        assert_eq!(std::fs::read_dir(elsewhere.path()).expect("a directory").count(), 0);
    });
}

#[test]
fn a_directory_that_was_moved_is_found_and_not_created_again() {
    for_each_store("", |fixture| {
        let session = fixture.work(None, "Count to five", "seq 5 > n.txt");
        let (old, new) = (fixture.path("work"), fixture.path("moved"));
        std::fs::rename(&old, &new).expect("moved");
        fixture.script_command("echo 6 >> n.txt");
        let model = format!("script:{}", fixture.path("script.jsonl").display());
        let resume = ["resume", &session, "One more", "--model", &model];
        for args in [&["checkout", &session, "files"][..], &["blame", "n.txt", &session], &resume] {
            assert!(!rath_in(fixture, &fixture.path(""), args).status.success(), "{args:?}");
            assert!(!old.exists(), "{args:?}");
        }
        for args in [&["checkout", &session, "files"][..], &["blame", "n.txt", &session], &["verify"]] {
            let output = rath_in(fixture, &new, args);
            assert!(output.status.success() && !old.exists(), "{args:?}: {output:?}");
        }
        std::fs::remove_dir_all(new.join("files")).expect("removed");
        let refused = rath_in(fixture, &new, &resume);
        let said = String::from_utf8_lossy(&refused.stderr);
        let hint = said.split('`').find_map(|part| part.strip_prefix("rath resume ")).expect("a hint");
        let pasted = format!("'{}' resume {hint}", crate::program_path().display());
        let mut shell = rath_test_support::program("sh");
        let output = shell.args(["-c", &pasted]).current_dir(&new).output().expect("a shell runs");
        assert!(output.status.success() && !old.exists(), "{hint}: {output:?}");
        fixture.expect(
            &fixture.files("moved"),
            &expect![[r#"
                a.txt: hello
                n.txt: 1|2|3|4|5|6
            "#]],
        );
        // It stays there.
        assert!(rath_in(fixture, fixture.path("").as_path(), &resume).status.success());
    });
}

/// Runs `rath` with the store of a fixture in a directory.
fn rath_in(fixture: &Fixture, directory: &Path, args: &[&str]) -> Output {
    let (kind, path) = fixture.store.split_once(':').expect("a kind");
    let store = format!("{kind}:{}", fixture.path(path).display());
    let mut command = rath_test_support::program(crate::program_path());
    command.args(args).args(["--store", &store]).current_dir(directory).output().expect("rath runs")
}

#[test]
fn forks_have_their_own_files_and_a_merge_writes_them_to_the_shared_directory() {
    for_each_store("", |fixture| {
        let main = fixture.work(None, "Count to five", "seq 5 > n.txt");
        fixture.check(
            &["fork", &main],
            &expect![[r#"
                S2
                ! forked from S1 at step STEP1
                ! `rath resume S2 'Go on.' --store STORE` continues it
                ! S1 is now listed only by `rath ls --all --store STORE`, until it continues too
                exit 0
            "#]],
        );
        let ours = fixture.newest();
        fixture.check(
            &["fork", &main, "--json"],
            &expect![[r#"
            {"from":"STEP1","session":"SESSION3","shared":8,"tree":"git:ff9b096b95a74585166364ab68778f6a4130bdd2"}
            exit 0
        "#]],
        );
        let theirs = fixture.newest();
        fixture.work(Some(&ours), "The first in words", "sed -i s/1/one/ n.txt; echo ours > ours.txt");
        fixture.work(Some(&theirs), "The last in words", "sed -i s/5/five/ n.txt; rm a.txt");
        // No fork saw another, and the user's directory is as it was.
        fixture.expect(
            &fixture.files("work"),
            &expect![[r#"
            a.txt: hello
            n.txt: 1|2|3|4|5
        "#]],
        );
        fixture.check(
            &["merge", &ours, &theirs],
            &expect![[r#"
                S4
                ! merging 6 steps of S2 and 6 steps of S3, since step STEP1
                ! -a.txt
                ! ~n.txt
                ! merged files are in work
                ! `rath resume S4 'Go on.' --store STORE` continues it
                exit 0
            "#]],
        );
        fixture.expect(
            &fixture.files("work"),
            &expect![[r#"
            n.txt: one|2|3|4|five
            ours.txt: ours
        "#]],
        );
        let merged = fixture.newest();
        fixture.check(
            &["ls"],
            &expect![[r#"
                S4  TIME  12,396 tokens  done  Count to five  in FOLDER/work
                ! `rath ls --all --store STORE` also lists 3 sessions that others go on from
                exit 0
            "#]],
        );
        fixture.check(
            &["ls", "--all"],
            &expect![[r#"
                S1  TIME   4,022 tokens  done  Count to five  in FOLDER/work
                S2  TIME   8,212 tokens  done  The first in words  in FOLDER/work
                S3  TIME   8,206 tokens  done  The last in words  in FOLDER/work
                S4  TIME  12,396 tokens  done  Count to five  in FOLDER/work
                exit 0
            "#]],
        );
        // A merged session can be forked and merged like any other.
        let (left, right) = (fixture.fork(&merged), fixture.fork(&merged));
        fixture.work(Some(&left), "Left", "echo left > left.txt");
        fixture.work(Some(&right), "Right", "echo right > right.txt");
        fixture.check(&["merge", &left, &right, "--json"], &expect![[r#"
            {"conflicts":[],"directory":"FOLDER/work","head":"STEP1","ours":6,"session":"SESSION7","shared":"STEP2","theirs":6,"tree":"git:06453dc347fdd9ea484697e92fa42da081c70fd0"}
            exit 0
        "#]]);
        fixture.expect(
            &fixture.files("work"),
            &expect![[r#"
            left.txt: left
            n.txt: one|2|3|4|five
            ours.txt: ours
            right.txt: right
        "#]],
        );
        // The one that all of them left goes on by itself, with what it had.
        fixture.work(Some(&main), "Go on", "ls > names.txt");
        assert!(!fixture.path("work/names.txt").exists());
        fixture.check(
            &["diff", &merged, &main, "--names"],
            &expect![[r#"
                +a.txt
                ~n.txt
                +names.txt
                -ours.txt
                ! 4 files changed; the last common step is STEP1
                exit 0
            "#]],
        );
    });
}

#[test]
fn a_merge_does_not_write_where_the_parent_session_continued() {
    for_each_store("", |fixture| {
        let main = fixture.work(None, "Begin", "echo 1 > n.txt");
        let forks: Vec<_> = (0..4).map(|_| fixture.fork(&main)).collect();
        for (nth, id) in forks.iter().enumerate() {
            fixture.work(Some(id), &format!("Part {nth}"), &format!("echo {nth} > part{nth}.txt"));
        }
        fixture.work(Some(&main), "Go on", "echo 2 > n.txt");
        fixture.check(
            &["merge", &forks[0], &forks[1]],
            &expect![[r#"
                S6
                ! merging 6 steps of S2 and 6 steps of S3, since step STEP1
                ! +part1.txt
                ! merged files are in work/.rath/work/SESSION6
                ! `rath resume S6 'Go on.' --store STORE` continues it
                exit 0
            "#]],
        );
        fixture.expect(
            &fixture.files("work"),
            &expect![[r#"
            a.txt: hello
            n.txt: 2
        "#]],
        );
        let first = fixture.newest();
        // Two merges of the same session work apart as well.
        assert_eq!(fixture.code(&["merge", &forks[2], &forks[3]]), 0);
        let second = fixture.newest();
        fixture.work(Some(&first), "Go on", "ls > names.txt");
        fixture.work(Some(&second), "Go on", "ls > names.txt");
        fixture.check(
            &["diff", &first, &second],
            &expect![[r#"
                diff --git a/names.txt b/names.txt
                --- a/names.txt
                +++ b/names.txt
                @@ -1,5 +1,5 @@
                 a.txt
                 n.txt
                 names.txt
                -part0.txt
                -part1.txt
                +part2.txt
                +part3.txt
                diff --git a/part0.txt b/part0.txt
                deleted file mode 100644
                --- a/part0.txt
                +++ /dev/null
                @@ -1,1 +0,0 @@
                -0
                diff --git a/part1.txt b/part1.txt
                deleted file mode 100644
                --- a/part1.txt
                +++ /dev/null
                @@ -1,1 +0,0 @@
                -1
                diff --git a/part2.txt b/part2.txt
                new file mode 100644
                --- /dev/null
                +++ b/part2.txt
                @@ -0,0 +1,1 @@
                +2
                diff --git a/part3.txt b/part3.txt
                new file mode 100644
                --- /dev/null
                +++ b/part3.txt
                @@ -0,0 +1,1 @@
                +3
                ! 5 files changed; the last common step is STEP1
                exit 0
            "#]],
        );
    });
}

#[test]
fn changes_by_hand_are_not_overwritten() {
    for_each_store("", |fixture| {
        let main = fixture.work(None, "Begin", "echo 1 > n.txt");
        fixture.write("work/first.txt", "by hand\n");
        fixture.check(
            &["fork", &main],
            &expect![[r#"
                S2
                ! first.txt added since the last turn
                ! forked from S1 at step STEP1
                ! `rath resume S2 'Go on.' --store STORE` continues it
                ! S1 is now listed only by `rath ls --all --store STORE`, until it continues too
                exit 0
            "#]],
        );
        let (ours, theirs) = (fixture.newest(), fixture.fork(&main));
        fixture.write("work/mine.txt", "by hand\n");
        fixture.work(Some(&ours), "Ours", "echo ours > mine.txt");
        fixture.work(Some(&theirs), "Theirs", "echo 2 > n.txt");
        fixture.check(&["merge", &ours, &theirs], &expect![[r#"
            S4
            ! merging 6 steps of S2 and 6 steps of S3, since step STEP1
            ! ~n.txt
            ! error: `mine.txt` was changed in the directory meanwhile, and by the merge as well
            ! hint: move your change away, then `rath restore S4 --store STORE` writes the merged files; or `rath checkout S4 merged --store STORE` writes them to the directory merged
            exit 1
        "#]]);
        fixture.expect(
            &fixture.files("work"),
            &expect![[r#"
                a.txt: hello
                first.txt: by hand
                mine.txt: by hand
                n.txt: 1
            "#]],
        );
        let merged = fixture.newest();
        let status = fixture.out(&["status", &merged]);
        assert!(status.contains("merged files not written there: `mine.txt` was changed"), "{status}");
        std::fs::rename(fixture.path("work/mine.txt"), fixture.path("mine.txt")).expect("moved");
        fixture.write("work/other.txt", "by hand\n");
        fixture.work(Some(&merged), "Go on", "echo 3 > m.txt");
        fixture.expect(
            &fixture.files("work"),
            &expect![[r#"
                a.txt: hello
                first.txt: by hand
                m.txt: 3
                mine.txt: ours
                n.txt: 2
                other.txt: by hand
            "#]],
        );
    });
}

#[test]
fn a_conflict_waits_for_a_decision_and_then_the_session_continues() {
    for_each_store("", |fixture| {
        let main = fixture.work(None, "Begin", "echo one > x.txt; echo one > y.txt; echo one > z.txt");
        let (ours, theirs) = (fixture.fork(&main), fixture.fork(&main));
        fixture.work(Some(&ours), "Ours", "echo ours > x.txt; rm y.txt; echo ours > z.txt; echo new > n.txt");
        fixture.work(Some(&theirs), "Theirs", "echo theirs > x.txt; echo theirs > y.txt; echo theirs > z.txt");
        fixture.check(
            &["merge", &ours, &theirs],
            &expect![[r#"
                S4
                ! merging 6 steps of S2 and 6 steps of S3, since step STEP1
                ! ~x.txt
                ! +y.txt
                ! ~z.txt
                ! conflict: x.txt (content)
                ! conflict: y.txt (modified and deleted)
                ! conflict: z.txt (content)
                ! hint: `rath review S4 --store STORE --take ours x.txt` takes our version
                ! hint: `rath review --help` shows the other ways to decide
                exit 4
            "#]],
        );
        let merged = fixture.newest();
        fixture.check(
            &["review", &merged],
            &expect![[r#"
                x.txt  conflict (content)
                y.txt  conflict (modified and deleted)
                z.txt  conflict (content)
                ! hint: `rath review S4 --take ours x.txt --store STORE` takes our version
                ! hint: `rath review --help` shows the other ways to decide
                exit 4
            "#]],
        );
        let waiting = fixture.json(&["review", &merged, "--json"]);
        assert_eq!(waiting.iter().map(|it| &it["conflict"]["path"]).collect::<Vec<_>>(), ["x.txt", "y.txt", "z.txt"]);
        // Nothing goes on meanwhile, and nothing is put anywhere.
        let before = fixture.files("work");
        let resume = ["resume", &merged, "Go on", "--model", "script:script.jsonl"];
        assert_eq!(fixture.code(&resume), 4);
        fixture.check(
            &["check", "true", "--session", &merged],
            &expect![[r#"
                ! no sandbox: tools start in FOLDER/work and can do anything you can
                ! error: files are in conflict: `x.txt` (content), `y.txt` (modified and deleted), `z.txt` (content)
                ! hint: `rath review S4 --store STORE` shows what is waiting for you
                exit 4
            "#]],
        );
        fixture.check(
            &["restore", &format!("{merged}@{}", fixture.step(&ours, "forked"))],
            &expect![[r#"
                ! error: files are in conflict: `x.txt` (content), `y.txt` (modified and deleted), `z.txt` (content)
                ! hint: `rath review S4 --store STORE` shows what is waiting for you
                exit 4
            "#]],
        );
        fixture.check(
            &["review", &merged, "--take", "mine", "x.txt"],
            &expect![[r#"
                ! error: wanted `ours`, `theirs` or `markers`, found `mine`
                ! hint: `--edited PATH FILE` takes a file of yours
                exit 2
            "#]],
        );
        // All of them or none.
        fixture.check(
            &["review", &merged, "--take", "ours", "x.txt", "--take", "ours", "n.txt"],
            &expect![[r#"
                ! error: no open conflict in `n.txt`
                ! hint: open conflicts: `y.txt`, `z.txt`; `rath review S4 --store STORE` shows what is waiting for you
                exit 1
            "#]],
        );
        fixture.check(
            &["review", &merged, "--edited", "x.txt", "none.txt"],
            &expect![[r#"
                ! error: cannot read none.txt: No such file or directory (os error 2)
                ! hint: `--edited PATH FILE` names a file with the new content
                exit 1
            "#]],
        );
        assert_eq!(fixture.files("work"), before);
        fixture.check(
            &["review", &merged, "--take", "theirs", "y.txt", "--take", "markers", "z.txt"],
            &expect![[r#"
                x.txt  conflict (content)
                ! 2 decisions recorded
                ! hint: `rath review S4 --take ours x.txt --store STORE` takes our version
                ! hint: `rath review --help` shows the other ways to decide
                exit 4
            "#]],
        );
        fixture.write("both.txt", "ours and theirs\n");
        fixture.check(
            &["review", &merged, "--edited", "x.txt", "both.txt"],
            &expect![[r#"
                ! merged files are in work
                ! 1 decision recorded
                ! nothing is waiting for you; `rath resume S4 --store STORE` continues
                exit 0
            "#]],
        );
        fixture.expect(
            &fixture.files("work"),
            &expect![[r#"
            a.txt: hello
            n.txt: new
            x.txt: ours and theirs
            y.txt: theirs
            z.txt: <<<<<<< ours|ours|=======|theirs|>>>>>>> theirs
        "#]],
        );
        fixture.work(Some(&merged), "Go on", "cat x.txt > seen.txt");
        let seen = fixture.files("work");
        assert!(seen.contains("seen.txt: ours and theirs\n"), "{seen}");
        fixture.check(
            &["blame", "x.txt:1", &merged],
            &expect![[r#"
                STEP1 merged                  1  ours and theirs
                  checks: none covers this line
                exit 0
            "#]],
        );
    });
}

#[test]
fn a_restore_that_is_killed_is_finished_or_undone() {
    for_each_store("", |fixture| {
        let make = |text: &str| format!("mkdir -p d; for i in $(seq 1000); do echo {text} $i > d/$i.txt; done");
        let id = fixture.work(None, "One", &make("one"));
        let [one, two] = ["one", "two"].map(|text| {
            fixture.work(Some(&id), text, &make(text));
            fixture.json(&["log", &id, "--json"])[0]["id"].as_str().expect("an id").to_owned()
        });
        let texts = || -> std::collections::BTreeSet<String> {
            let files = (1..=1000).map(|nth| std::fs::read_to_string(fixture.path(&format!("work/d/{nth}.txt"))));
            files.map(|text| text.expect("text").split(' ').next().expect("a word").to_owned()).collect()
        };
        let mut interrupted = 0;
        let steps = [one, two];
        for nth in 0..8 {
            let mut child = fixture.start(&["restore", &format!("{id}@{}", steps[nth % 2])]);
            // Killed when the first file has changed, or a little later.
            let before = texts();
            let first = fixture.path("work/d/1.txt");
            let text = std::fs::read_to_string(&first).expect("text");
            while child.try_wait().expect("a status").is_none()
                && std::fs::read_to_string(&first).is_ok_and(|it| it == text)
            {}
            std::thread::sleep(Duration::from_micros(700 * (nth as u64 / 2)));
            child.kill().expect("killed");
            child.wait().expect("ended");
            interrupted += usize::from(texts().len() == 2);
            fixture.work(Some(&id), "look", "cat d/1.txt");
            assert_eq!(texts().len(), 1, "{before:?}");
            let log = fixture.out(&["log", "-v", &id]);
            assert!(!log.contains("outside the agent"), "{log}");
        }
        assert!(interrupted > 0, "no restore was interrupted");
    });
}
