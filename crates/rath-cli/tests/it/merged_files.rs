//! Tests of merges whose files are not written: a change in the directory is in the way.

use expect_test::expect;

use crate::fixture::{Fixture, for_each_store};

/// Makes two forks of a session that change the file `a.txt` on line 2, or only one of them. Returns the ids of both.
fn forks(fixture: &Fixture, theirs: &str) -> [String; 2] {
    std::fs::write(fixture.path("work/a.txt"), "one\ntwo\nthree\n").expect("written");
    let session = fixture.work(None, "start", "echo base > b.txt");
    let [one, other] = [(); 2].map(|()| fixture.fork(&session));
    fixture.work(Some(&one), "ours", "sed -i s/two/ours/ a.txt");
    fixture.work(Some(&other), "theirs", theirs);
    [one, other]
}

const HERS: &str = "one\nmine\nthree\n";

#[test]
fn a_decision_is_recorded_only_if_its_files_can_be_written() {
    for_each_store("", |fixture| {
        let [one, other] = forks(fixture, "sed -i s/two/theirs/ a.txt");
        let id = fixture.out(&["merge", &one, &other]);
        let merged = id.trim();
        assert_eq!(merged.len(), 8, "stdout has the id alone: {id}");
        let before = fixture.out(&["log", "-v", merged]);
        std::fs::write(fixture.path("work/a.txt"), HERS).expect("written");
        fixture.check(
            &["review", merged, "--take", "ours", "a.txt"],
            &expect![[r#"
                ! error: `a.txt` was changed in the directory meanwhile, and by the merge as well
                ! hint: nothing was decided; move your change away, and run this again
                exit 1
            "#]],
        );
        assert_eq!(fixture.out(&["log", "-v", merged]), before, "nothing is recorded");
        assert_eq!(std::fs::read_to_string(fixture.path("work/a.txt")).expect("a file"), HERS);
        let ls = fixture.out(&["ls"]);
        assert!(ls.contains("  waiting for you: 1 conflict  "), "{ls}");
        std::fs::write(fixture.path("work/a.txt"), "one\ntwo\nthree\n").expect("written");
        assert_eq!(fixture.code(&["review", merged, "--take", "ours", "a.txt"]), 0);
        assert_eq!(fixture.files("work"), "a.txt: one|ours|three\nb.txt: base\n");
    });
}

#[test]
fn a_merge_whose_files_are_not_written_says_so_everywhere() {
    for_each_store("", |fixture| {
        let [one, other] = forks(fixture, "echo new > n.txt");
        std::fs::write(fixture.path("work/a.txt"), HERS).expect("written");
        fixture.check(&["merge", &one, &other], &expect![[r#"
            S4
            ! merging 6 steps of S2 and 6 steps of S3, since step STEP1
            ! +n.txt
            ! error: `a.txt` was changed in the directory meanwhile, and by the merge as well
            ! hint: move your change away, then `rath restore S4 --store STORE` writes the merged files; or `rath checkout S4 merged --store STORE` writes them to the directory merged
            exit 1
        "#]]);
        let merged = fixture.newest();
        let steps = fixture.out(&["log", "-v", &merged]);
        fixture.check(&["status", &merged], &expect![[r#"
            S4  start
            state     merged files not written
            files     FOLDER/work
                      merged files not written there: `a.txt` was changed in the directory meanwhile, and by the merge as well
            model     script:script
            tokens    12,359
            ! hint: move your change away, then `rath restore S4 --store STORE` writes the merged files; or `rath checkout S4 merged --store STORE` writes them to the directory merged
            exit 3
        "#]]);
        fixture.check(&["log", "-n", "1", &merged], &expect![[r#"
            ◆    STEP1  now      b3  merged b2
            ├─╮
            ~
            ! note: the merged files are not written to work: `a.txt` was changed in the directory meanwhile, and by the merge as well
            ! hint: move your change away, then `rath restore S4 --store STORE` writes the merged files; or `rath checkout S4 merged --store STORE` writes them to the directory merged
            exit 0
        "#]]);
        fixture.check(&["review", &merged], &expect![[r#"
            ! note: the merged files are not written to work: `a.txt` was changed in the directory meanwhile, and by the merge as well
            ! hint: move your change away, then `rath restore S4 --store STORE` writes the merged files; or `rath checkout S4 merged --store STORE` writes them to the directory merged
            ! nothing is waiting for you
            exit 0
        "#]]);
        let ls = fixture.out(&["ls"]);
        assert!(ls.contains("  merged files not written  "), "{ls}");
        assert_eq!(fixture.json(&["ls", "--json"])[0]["is_unwritten"], true);
        // No model is asked, and nothing is recorded.
        fixture.script_command("echo more > m.txt");
        fixture.check(&["resume", &merged, "go on", "--model", "script:script.jsonl"], &expect![[r#"
            ! error: `a.txt` was changed in the directory meanwhile, and by the merge as well
            ! hint: move your change away, then `rath restore S4 --store STORE` writes the merged files; or `rath checkout S4 merged --store STORE` writes them to the directory merged
            exit 1
        "#]]);
        assert_eq!(fixture.code(&["restore", &merged]), 1);
        assert_eq!(fixture.out(&["log", "-v", &merged]), steps);
        assert_eq!(std::fs::read_to_string(fixture.path("work/a.txt")).expect("a file"), HERS);
        // The command of the hint finishes it.
        assert_eq!(fixture.code(&["checkout", &merged, "merged"]), 0);
        std::fs::write(fixture.path("work/a.txt"), "one\ntwo\nthree\n").expect("written");
        fixture.check(
            &["status", &merged],
            &expect![[r#"
            S4  start
            state     merged files not written
            files     FOLDER/work
                      merged files not written there
            model     script:script
            tokens    12,359
            ! hint: `rath restore S4 --store STORE` writes the merged files
            exit 3
        "#]],
        );
        fixture.check(
            &["restore", &merged],
            &expect![[r#"
            ! merged files are in work
            ! restored step STEP1: 0 files changed
            exit 0
        "#]],
        );
        assert_eq!(fixture.files("work"), "a.txt: one|ours|three\nb.txt: base\nn.txt: new\n");
        let ls = fixture.out(&["ls"]);
        assert!(ls.contains("  done  "), "{ls}");
        assert_eq!(fixture.code(&["status", &merged]), 0);
    });
}

#[test]
fn a_merge_with_a_session_that_did_not_go_on_writes_its_files_or_says_that_it_did_not() {
    for_each_store("", |fixture| {
        std::fs::write(fixture.path("work/a.txt"), "one\ntwo\nthree\n").expect("written");
        let session = fixture.work(None, "start", "echo base > b.txt");
        let side = fixture.fork(&session);
        fixture.work(Some(&side), "theirs", "sed -i s/two/theirs/ a.txt");
        std::fs::write(fixture.path("work/a.txt"), HERS).expect("written");
        assert_eq!(fixture.code(&["merge", &session, &side]), 1);
        let merged = fixture.newest();
        let ls = fixture.out(&["ls"]);
        assert!(ls.contains("  merged files not written  "), "{ls}");
        assert_eq!(fixture.code(&["status", &merged]), 3);
        fixture.script_command("echo more > m.txt");
        assert_eq!(fixture.code(&["resume", &merged, "go on", "--model", "script:script.jsonl"]), 1);
        assert_eq!(std::fs::read_to_string(fixture.path("work/a.txt")).expect("a file"), HERS);
        // The change is moved away, and the command of the hint writes the files.
        std::fs::write(fixture.path("work/a.txt"), "one\ntwo\nthree\n").expect("written");
        assert_eq!(fixture.code(&["restore", &merged]), 0);
        assert_eq!(fixture.files("work"), "a.txt: one|theirs|three\nb.txt: base\n");
        assert!(fixture.out(&["ls"]).contains("  done  "));
    });
}
