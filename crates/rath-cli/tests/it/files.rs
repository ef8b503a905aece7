//! Forks that work apart on files, merges that bring them together, and what a person decides.

use expect_test::expect;

use crate::shop::each;

#[test]
fn forks_work_apart_and_a_merge_brings_their_files_where_they_parted() {
    each("", |shop| {
        let main = shop.work(None, "Count to five", "seq 5 > n.txt");
        shop.check(
            &["fork", &main],
            &expect![[r#"
            S2
            ! shared: 8 chunks, up to 1d700058
            ! new: nothing yet
            ! `rath resume S2 --model .. --store STORE` goes on there
            ! `rath ls` leaves S1 out until it goes on; `rath ls --all --store STORE` lists both
            exit 0
        "#]],
        );
        let ours = shop.newest();
        shop.check(&["fork", &main, "--json"], &expect![[r#"
            {"from":"1d700058c2da88f80e4255432a9d8dd4360ca304495c7768b8e40ee24efa9b83","session":"SESSION3","shared":8,"tree":"git:ff9b096b95a74585166364ab68778f6a4130bdd2"}
            exit 0
        "#]]);
        let theirs = shop.newest();
        shop.work(Some(&ours), "The first in words", "sed -i s/1/one/ n.txt; echo ours > ours.txt");
        shop.work(Some(&theirs), "The last in words", "sed -i s/5/five/ n.txt; rm a.txt");
        // Nobody saw the other, and the user's directory is as it was.
        shop.expect(
            &shop.files("work"),
            &expect![[r#"
            a.txt: hello
            n.txt: 1|2|3|4|5
        "#]],
        );
        shop.check(
            &["merge", &ours, &theirs],
            &expect![[r#"
            -a.txt
            ~n.txt
            S4
            ! shared: up to 3dd4e5fd
            ! new: 5 steps of ours, 5 steps of theirs
            ! its files are in work
            ! `rath resume S4 --model .. --store STORE` goes on there
            exit 0
        "#]],
        );
        shop.expect(
            &shop.files("work"),
            &expect![[r#"
            n.txt: one|2|3|4|five
            ours.txt: ours
        "#]],
        );
        let merged = shop.newest();
        shop.check(
            &["ls"],
            &expect![[r#"
            S4  TIME  18 chunks  9431 tokens  done  Count to five
            exit 0
        "#]],
        );
        shop.check(
            &["ls", "--all"],
            &expect![[r#"
            S1  TIME   8 chunks  3034 tokens  done  Count to five
            S2  TIME  13 chunks  6236 tokens  done  The first in words
            S3  TIME  13 chunks  6229 tokens  done  The last in words
            S4  TIME  18 chunks  9431 tokens  done  Count to five
            exit 0
        "#]],
        );
        // What comes of a merge can be forked and merged like anything else.
        let (left, right) = (shop.fork(&merged), shop.fork(&merged));
        shop.work(Some(&left), "Left", "echo left > left.txt");
        shop.work(Some(&right), "Right", "echo right > right.txt");
        shop.check(&["merge", &left, &right, "--json"], &expect![[r#"
            {"conflicts":[],"directory":"work","head":"3027fd8be3babb65000a14ad187d32aeb874d5500c8a45028ce6609de783ace5","ours":5,"session":"SESSION7","shared":"57527b994a0c458548db938778fa676e5edd8264de06f6042a8138794a88effc","theirs":5,"tree":"git:06453dc347fdd9ea484697e92fa42da081c70fd0"}
            exit 0
        "#]]);
        shop.expect(
            &shop.files("work"),
            &expect![[r#"
            left.txt: left
            n.txt: one|2|3|4|five
            ours.txt: ours
            right.txt: right
        "#]],
        );
        // The one that all of them left goes on by itself, with what it had.
        shop.work(Some(&main), "Go on", "ls > names.txt");
        assert!(!shop.path("work/names.txt").exists());
        shop.check(
            &["diff", &merged, &main, "--names"],
            &expect![[r#"
            +a.txt
            ~n.txt
            +names.txt
            -ours.txt
            ! shared: up to 1d700058
            ! new: 4 files changed
            exit 0
        "#]],
        );
    });
}

#[test]
fn a_merge_leaves_a_directory_alone_in_which_somebody_went_on() {
    each("", |shop| {
        let main = shop.work(None, "Begin", "echo 1 > n.txt");
        let forks: Vec<_> = (0..4).map(|_| shop.fork(&main)).collect();
        for (nth, id) in forks.iter().enumerate() {
            shop.work(Some(id), &format!("Part {nth}"), &format!("echo {nth} > part{nth}.txt"));
        }
        shop.work(Some(&main), "Go on", "echo 2 > n.txt");
        shop.check(
            &["merge", &forks[0], &forks[1]],
            &expect![[r#"
            +part1.txt
            S6
            ! shared: up to ba3d4b35
            ! new: 5 steps of ours, 5 steps of theirs
            ! its files are in work/.rath/work/SESSION6
            ! `rath resume S6 --model .. --store STORE` goes on there
            exit 0
        "#]],
        );
        shop.expect(
            &shop.files("work"),
            &expect![[r#"
            a.txt: hello
            n.txt: 2
        "#]],
        );
        let first = shop.newest();
        // Two merges of the same session work apart as well.
        assert_eq!(shop.code(&["merge", &forks[2], &forks[3]]), 0);
        let second = shop.newest();
        shop.work(Some(&first), "Go on", "ls > names.txt");
        shop.work(Some(&second), "Go on", "ls > names.txt");
        shop.check(
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
            ! shared: up to ba3d4b35
            ! new: 5 files changed
            exit 0
        "#]],
        );
    });
}

#[test]
fn what_was_changed_by_hand_is_in_nobodys_way_and_nobody_writes_over_it() {
    each("", |shop| {
        let main = shop.work(None, "Begin", "echo 1 > n.txt");
        shop.write("work/mine.txt", "by hand\n");
        shop.check(
            &["fork", &main],
            &expect![[r#"
            S2
            ! warning: the fork does not have what was changed in S1 since: +mine.txt
            ! shared: 8 chunks, up to 6b3aec78
            ! new: nothing yet
            ! `rath resume S2 --model .. --store STORE` goes on there
            ! `rath ls` leaves S1 out until it goes on; `rath ls --all --store STORE` lists both
            exit 0
        "#]],
        );
        let (ours, theirs) = (shop.newest(), shop.fork(&main));
        shop.work(Some(&ours), "Ours", "echo ours > mine.txt");
        shop.work(Some(&theirs), "Theirs", "echo 2 > n.txt");
        shop.check(&["merge", &ours, &theirs], &expect![[r#"
            ~n.txt
            S4
            ! shared: up to ba3d4b35
            ! new: 5 steps of ours, 5 steps of theirs
            ! error: `mine.txt` was changed in the workspace meanwhile, and by the merge as well
            ! hint: move your change away, and `rath resume S4 --model .. --store STORE` goes on there; or `rath checkout S4 DIRECTORY --store STORE` puts the files elsewhere
            exit 1
        "#]]);
        shop.expect(
            &shop.files("work"),
            &expect![[r#"
            a.txt: hello
            mine.txt: by hand
            n.txt: 1
        "#]],
        );
        let merged = shop.newest();
        std::fs::rename(shop.path("work/mine.txt"), shop.path("mine.txt")).expect("moved");
        shop.write("work/other.txt", "by hand\n");
        shop.work(Some(&merged), "Go on", "echo 3 > m.txt");
        shop.expect(
            &shop.files("work"),
            &expect![[r#"
            a.txt: hello
            m.txt: 3
            mine.txt: ours
            n.txt: 2
            other.txt: by hand
        "#]],
        );
    });
}

#[test]
fn a_conflict_waits_for_a_decision_and_then_the_session_goes_on() {
    each("", |shop| {
        let main = shop.work(None, "Begin", "echo one > x.txt; echo one > y.txt; echo one > z.txt");
        let (ours, theirs) = (shop.fork(&main), shop.fork(&main));
        shop.work(Some(&ours), "Ours", "echo ours > x.txt; rm y.txt; echo ours > z.txt; echo new > n.txt");
        shop.work(Some(&theirs), "Theirs", "echo theirs > x.txt; echo theirs > y.txt; echo theirs > z.txt");
        shop.check(
            &["merge", &ours, &theirs],
            &expect![[r#"
            ~x.txt
            +y.txt
            ~z.txt
            conflict: x.txt (content)
            conflict: y.txt (modified and deleted)
            conflict: z.txt (content)
            S4
            ! shared: up to 776bdc1d
            ! new: 5 steps of ours, 5 steps of theirs
            ! hint: `rath review S4 --store STORE --take ours|theirs|markers PATH` or `--edited PATH FILE` decides
            exit 4
        "#]],
        );
        let merged = shop.newest();
        shop.check(
            &["review", &merged],
            &expect![[r#"
            x.txt  in conflict (content)
            y.txt  in conflict (modified and deleted)
            z.txt  in conflict (content)
            ! hint: `--take ours|theirs|markers PATH` or `--edited PATH FILE` decides
            exit 4
        "#]],
        );
        let waiting = shop.json(&["review", &merged, "--json"]);
        assert_eq!(waiting.iter().map(|it| &it["conflict"]["path"]).collect::<Vec<_>>(), ["x.txt", "y.txt", "z.txt"]);
        // Nothing goes on meanwhile, and nothing is put anywhere.
        let before = shop.files("work");
        let resume = ["resume", &merged, "Go on", "--model", "script:script.jsonl"];
        assert_eq!(shop.code(&resume), 4);
        shop.check(
            &["check", "true", "--session", &merged],
            &expect![[r#"
            ! error: files are in conflict: `x.txt` (content), `y.txt` (modified and deleted), `z.txt` (content)
            ! hint: `rath review S4 --store STORE` decides
            exit 4
        "#]],
        );
        shop.check(
            &["restore", &format!("{merged}@{}", shop.step(&ours, "forked"))],
            &expect![[r#"
            ! error: files are in conflict: `x.txt` (content), `y.txt` (modified and deleted), `z.txt` (content)
            ! hint: `rath review S4 --store STORE` decides
            exit 4
        "#]],
        );
        shop.check(
            &["review", &merged, "--take", "mine", "x.txt"],
            &expect![[r#"
            ! error: wanted `ours`, `theirs` or `markers`, found `mine`
            ! hint: `--edited PATH FILE` takes your own version
            exit 2
        "#]],
        );
        // All of them or none.
        shop.check(
            &["review", &merged, "--take", "ours", "x.txt", "--take", "ours", "n.txt"],
            &expect![[r#"
            ! error: no conflict about `n.txt` waits for a decision
            ! hint: undecided: `y.txt`, `z.txt`
            exit 1
        "#]],
        );
        shop.check(
            &["review", &merged, "--edited", "x.txt", "none.txt"],
            &expect![[r#"
            ! error: cannot read none.txt: No such file or directory (os error 2)
            ! hint: it is what the file is to hold
            exit 1
        "#]],
        );
        assert_eq!(shop.files("work"), before);
        shop.check(
            &["review", &merged, "--take", "theirs", "y.txt", "--take", "markers", "z.txt"],
            &expect![[r#"
            x.txt  in conflict (content)
            ! 2 decisions recorded
            ! hint: `--take ours|theirs|markers PATH` or `--edited PATH FILE` decides
            exit 4
        "#]],
        );
        shop.write("both.txt", "ours and theirs\n");
        shop.check(
            &["review", &merged, "--edited", "x.txt", "both.txt"],
            &expect![[r#"
            ! its files are in work
            ! 1 decision recorded
            ! nothing waits for a decision; `rath resume S4 --model .. --store STORE` goes on
            exit 0
        "#]],
        );
        shop.expect(
            &shop.files("work"),
            &expect![[r#"
            a.txt: hello
            n.txt: new
            x.txt: ours and theirs
            y.txt: theirs
            z.txt: <<<<<<< ours|ours|=======|theirs|>>>>>>> theirs
        "#]],
        );
        shop.work(Some(&merged), "Go on", "cat x.txt > seen.txt");
        let seen = shop.files("work");
        assert!(seen.contains("seen.txt: ours and theirs\n"), "{seen}");
        shop.check(
            &["blame", "x.txt:1", &merged],
            &expect![[r#"
            675351bd merged                  1  ours and theirs
              checks: none that covers it
            exit 0
        "#]],
        );
    });
}
