//! Tests of bundles: a session and its files in one file, opened elsewhere by another user.

use std::path::Path;
use std::process::Command;

use expect_test::{Expect, expect};
use serde_json::Value;

use crate::fixture::{Fixture, for_each_store};

/// An empty directory of another user, who has another home, key, language and time zone.
struct Elsewhere {
    folder: rath_test_support::TempDir,
    store: &'static str,
}

impl Elsewhere {
    fn new(store: &'static str) -> Self {
        let folder = rath_test_support::temp_dir();
        ["home", "project"].iter().for_each(|name| std::fs::create_dir(folder.path().join(name)).expect("made"));
        Elsewhere { folder, store }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join("project").join(name)
    }

    fn command(&self, args: &[&str]) -> Command {
        let (own, rest) = args.split_at(args.iter().position(|arg| *arg == "--").unwrap_or(args.len()));
        let mut command = rath_test_support::program(crate::program_path());
        command.args(own).args(["--store", self.store]).args(rest).current_dir(self.path(""));
        let home = self.folder.path().join("home");
        command.env("HOME", &home).env("XDG_DATA_HOME", home.join("data"));
        command.env("LANG", "de_DE.UTF-8").env("LC_ALL", "de_DE.UTF-8").env("TZ", "Asia/Tokyo");
        command
    }

    /// Returns both streams and the exit code. Ids that differ from run to run are replaced.
    fn printed(&self, args: &[&str]) -> String {
        let output = self.command(args).output().expect("rath runs");
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let err: String = err.lines().map(|line| format!("! {line}\n")).collect();
        let text = format!("{out}{err}exit {}\n", output.status.code().expect("an exit code"));
        without_ids(&crate::fixture::normalize(&self.folder.path().join("project"), &text)).replace(self.store, "STORE")
    }

    fn check(&self, args: &[&str], expected: &Expect) {
        expect_of_first(self.store, &self.printed(args), expected);
    }
}

/// Compares a text, which is the same for all stores.
fn expect_of_first(store: &str, text: &str, expected: &Expect) {
    if std::env::var_os("UPDATE_EXPECT").is_none() || store.starts_with("sqlite") {
        expected.assert_eq(text);
    }
}

/// Replaces ids of sessions, steps and versions.
fn without_ids(text: &str) -> String {
    let is_id = |word: &&str| matches!(word.len(), 8 | 40 | 64) && word.bytes().all(|it| it.is_ascii_hexdigit());
    let mut ids: Vec<_> = text.split(|it: char| !it.is_alphanumeric()).filter(is_id).map(str::to_owned).collect();
    ids.sort_by_key(|id| std::cmp::Reverse(id.len()));
    ids.iter().fold(text.to_owned(), |text, id| text.replace(id, "ID"))
}

/// Runs a session with two forks, and merges them with a conflict. Returns its short id.
fn merged_session(fixture: &Fixture) -> String {
    let main = fixture.work(None, "Count to three", "printf 'one\\ntwo\\nthree\\n' > n.txt; mkdir d; echo x > d/x.txt");
    let (ours, theirs) = (fixture.fork(&main), fixture.fork(&main));
    fixture.work(Some(&ours), "In capitals", "sed -i s/two/TWO/ n.txt; chmod +x d/x.txt");
    fixture.work(Some(&theirs), "In digits", "sed -i s/two/2/ n.txt; ln -s n.txt link");
    assert_eq!(fixture.code(&["merge", &ours, &theirs]), 4, "n.txt is in conflict");
    fixture.newest()
}

#[test]
fn a_bundle_carries_a_session_and_its_files_to_another_machine() {
    for_each_store("", |fixture| {
        let id = merged_session(fixture);
        fixture.check(
            &["export", &id, "--as", "bundle", "-o", "b.rath"],
            &expect![[r#"
            ! the bundle has 21 steps and 7 file versions
            exit 0
        "#]],
        );
        let there = Elsewhere::new(fixture.store);
        std::fs::rename(fixture.path("b.rath"), there.path("b.rath")).expect("moved");
        // The author's machine is out of reach.
        std::fs::rename(fixture.path("work"), fixture.path("gone")).expect("moved");
        there.check(
            &["verify", "b.rath"],
            &expect![[r#"
                intact: 37 rows, 21 steps, 7 file versions, N bytes
                exit 0
            "#]],
        );
        there.check(
            &["import", "b.rath"],
            &expect![[r#"
            ID
            ! its files are in .rath/workspace
            ! 21 steps imported; `rath log ID --store STORE` shows the steps
            ! `rath adopt ID --store STORE --sandbox isolated:.` takes it over, to continue it
            exit 0
        "#]],
        );
        std::fs::remove_file(there.path("b.rath")).expect("removed");
        there.check(
            &["verify"],
            &expect![[r#"
            intact: 4 branches, 21 steps, 7 file versions
            exit 0
        "#]],
        );
        // It can be read as it is.
        there.check(
            &["checkout", &id, "files"],
            &expect![[r#"
            ! wrote 4 files of step ID to files
            exit 0
        "#]],
        );
        let read = |name: &str| std::fs::read_to_string(there.path(name)).expect("a file");
        assert_eq!(read("files/n.txt"), "one\n<<<<<<< ours\nTWO\n=======\n2\n>>>>>>> theirs\nthree\n");
        assert_eq!((read("files/a.txt"), read("files/d/x.txt")), ("hello\n".to_owned(), "x\n".to_owned()));
        {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(std::fs::read_link(there.path("files/link")).expect("a link"), Path::new("n.txt"));
            let mode = std::fs::metadata(there.path("files/d/x.txt")).expect("a file").permissions().mode();
            assert_ne!(mode & 0o100, 0, "it is executable");
        }
        std::fs::remove_dir_all(there.path("files")).expect("removed");
        there.check(
            &["blame", "n.txt", &id],
            &expect![[r#"
                ID during shell            1  one
                ID merged                  2  <<<<<<< ours
                ID during shell            3  TWO
                ID merged                  4  =======
                ID during shell            5  2
                ID merged                  6  >>>>>>> theirs
                ID during shell            7  three
                exit 0
            "#]],
        );
        let sessions = there.command(&["ls", "--all", "--json"]).output().expect("rath runs").stdout;
        let first: Value =
            serde_json::from_slice(sessions.split(|byte| *byte == b'\n').next().expect("a line")).expect("JSON");
        let first = first["session"].as_str().expect("an id").to_owned();
        there.check(
            &["diff", &first, &id],
            &expect![[r#"
            diff --git a/d/x.txt b/d/x.txt
            old mode 100644
            new mode 100755
            diff --git a/link b/link
            new file mode 120000
            --- /dev/null
            +++ b/link
            @@ -0,0 +1,1 @@
            +n.txt
            \ No newline at end of file
            diff --git a/n.txt b/n.txt
            --- a/n.txt
            +++ b/n.txt
            @@ -1,3 +1,7 @@
             one
            -two
            +<<<<<<< ours
            +TWO
            +=======
            +2
            +>>>>>>> theirs
             three
            ! 3 files changed; the last common step is ID
            exit 0
        "#]],
        );
        there.check(
            &["replay", &id],
            &expect![[r#"
            exact: 6 requests
            exit 0
        "#]],
        );
        // Nothing of it runs before it is adopted.
        there.check(
            &["bisect", &id, "--sandbox", "local:", "--", "grep", "-q", "two", "n.txt"],
            &expect![[r#"
                ! error: session ID was not made by you here (it was imported, copied or moved): nothing of it runs
                !   its tools would run in local:OTHER/work
                ! hint: `rath adopt ID --store STORE --sandbox isolated:.` takes it over
                exit 4
            "#]],
        );
        there.check(
            &["adopt", &id, "--sandbox", "local:.", "--by", "Bob"],
            &expect![[r#"
                ! no sandbox: tools start in FOLDER and can do anything you can
                ! wrote 4 files to local:.
                ! session ID is yours now, adopted by Bob
                ! `rath resume ID 'Go on.' --model script:FILE --store STORE` continues it
                exit 0
            "#]],
        );
        assert_eq!(read("d/x.txt"), "x\n");
        there.check(
            &["bisect", &id, "--sandbox", "local:", "--", "grep", "-q", "two", "n.txt"],
            &expect![[r#"
                ! no sandbox: tools start in copies of the recorded files and can do anything you can
                ! error: files are in conflict: `n.txt` (content)
                ! hint: `rath review ID --store STORE` shows what is waiting for you
                exit 4
            "#]],
        );
        there.check(
            &["review", &id, "--take", "theirs", "n.txt"],
            &expect![[r#"
            ! merged files are in .
            ! 1 decision recorded
            ! nothing is waiting for you
            exit 0
        "#]],
        );
        assert_eq!(read("n.txt"), "one\n2\nthree\n");
        there.check(
            &["bisect", &id, "--sandbox", "local:", "--", "grep", "-q", "two", "n.txt"],
            &expect![[r#"
                ID  tool result: call_1_1 ok ~d/x.txt ~n.txt  [agent]
                  call: shell {"command":"sed -i s/two/TWO/ n.txt; chmod +x d/x.txt"}
                  by: agent
                  answer: ID
                ! no sandbox: tools start in copies of the recorded files and can do anything you can
                ! tested 5 versions of the files in 3 runs
                exit 0
            "#]],
        );
        std::fs::write(there.folder.path().join("script.jsonl"), SCRIPT).expect("written");
        there.check(
            &["resume", &id, "Add a line", "--model", "script:../script.jsonl"],
            &expect![[r#"
                Done.
                ! nothing changed since the last turn
                ! no sandbox: tools start in FOLDER and can do anything you can
                ! ✓ shell echo four >> n.txt
                !   n.txt
                !   @@ -1,3 +1,4 @@
                !    one
                !    2
                !    three
                !   +four
                ! done in TIME: 1 file changed, 4,526 tokens
                ! saved as ID; `rath log ID --store STORE` shows the steps
                exit 0
            "#]],
        );
        assert_eq!(read("n.txt"), "one\n2\nthree\nfour\n");
        there.check(
            &["blame", "n.txt", &id],
            &expect![[r#"
                ID during shell            1  one
                ID during shell            2  2
                ID during shell            3  three
                ID during shell            4  four
                exit 0
            "#]],
        );
        there.check(
            &["replay", &id],
            &expect![[r#"
                exact: 8 requests
                exit 0
            "#]],
        );
        there.check(
            &["gc"],
            &expect![[r#"
            deleted 0 sessions; freed 0 steps, 0 bytes
            removed in .rath: 1 index file; 602 bytes
            exit 0
        "#]],
        );
        there.check(
            &["verify"],
            &expect![[r#"
            intact: 4 branches, 29 steps, 8 file versions
            exit 0
        "#]],
        );
        // It can travel on.
        there.check(
            &["export", &id, "--as", "bundle", "-o", "on.rath"],
            &expect![[r#"
            ! the bundle has 29 steps and 8 file versions
            exit 0
        "#]],
        );
        there.check(
            &["verify", "on.rath"],
            &expect![[r#"
                intact: 48 rows, 29 steps, 8 file versions, N bytes
                exit 0
            "#]],
        );
    });
}

const SCRIPT: &str = r#"{"calls": [{"name": "shell", "arguments": {"command": "echo four >> n.txt"}}]}
{"text": "Done."}
"#;

#[test]
fn a_bundle_without_files_says_so_everywhere() {
    for_each_store("", |fixture| {
        let id = fixture.work(None, "Begin", "echo 1 > n.txt");
        fixture.check(
            &["export", &id, "--as", "bundle", "--without-files", "-o", "b.rath"],
            &expect![[r#"
            ! note: the files are left out: only the steps are in the bundle
            exit 0
        "#]],
        );
        fixture.check(
            &["verify", "b.rath"],
            &expect![[r#"
                intact: 10 rows, 8 steps, N bytes
                files not checked: the steps name some, and the file holds none
                exit 0
            "#]],
        );
        let there = Elsewhere::new(fixture.store);
        std::fs::rename(fixture.path("b.rath"), there.path("b.rath")).expect("moved");
        // The author's machine is out of reach.
        std::fs::rename(fixture.path("work"), fixture.path("gone")).expect("moved");
        there.check(
            &["import", "b.rath"],
            &expect![[r#"
            ID
            ! note: 2 file versions that its steps name did not come with it
            ! 8 steps imported; `rath log ID --store STORE` shows the steps
            ! `rath adopt ID --store STORE --sandbox isolated:.` takes it over, to continue it
            exit 0
        "#]],
        );
        there.check(
            &["verify"],
            &expect![[r#"
                2 file versions not checked: never in this copy
                intact: 1 branch, 8 steps, 0 file versions
                exit 0
            "#]],
        );
        there.check(
            &["checkout", &id, "files"],
            &expect![[r#"
                ! error: these files are not in this copy: tree ID is missing
                ! hint: run this in the project's directory
                exit 3
            "#]],
        );
        assert_eq!(there.printed(&["gc"]).lines().last(), Some("exit 0"));
        there.check(
            &["verify"],
            &expect![[r#"
                2 file versions not checked: never in this copy
                intact: 1 branch, 8 steps, 0 file versions
                exit 0
            "#]],
        );
        // The files come later.
        std::fs::rename(fixture.path("gone"), fixture.path("work")).expect("moved");
        assert_eq!(fixture.code(&["export", &id, "--as", "bundle", "-o", "b.rath"]), 0);
        std::fs::rename(fixture.path("b.rath"), there.path("b.rath")).expect("moved");
        there.check(
            &["import", "b.rath"],
            &expect![[r#"
            ID
            ! its files are in .rath/workspace
            ! already in the store; `rath log ID --store STORE` shows the steps
            ! `rath adopt ID --store STORE --sandbox isolated:.` takes it over, to continue it
            exit 0
        "#]],
        );
        there.check(
            &["verify"],
            &expect![[r#"
            intact: 1 branch, 8 steps, 2 file versions
            exit 0
        "#]],
        );
        there.check(
            &["checkout", &id, "files"],
            &expect![[r#"
                ! wrote 2 files of step ID to files
                exit 0
            "#]],
        );
    });
}

/// Returns the path of the object with the content of a file.
fn object_of(fixture: &Fixture, content: &[u8]) -> std::path::PathBuf {
    let mut git = rath_test_support::git();
    git.args(["hash-object", "--stdin"]).stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut child = git.spawn().expect("git runs");
    std::io::Write::write_all(&mut child.stdin.take().expect("an input"), content).expect("written");
    let hex = String::from_utf8(child.wait_with_output().expect("it ends").stdout).expect("text");
    fixture.path("work/.rath/workspace/objects").join(&hex[..2]).join(hex[2..].trim())
}

#[test]
fn verify_reads_every_file_that_a_step_names() {
    for_each_store("", |fixture| {
        let id = fixture.work(None, "Begin", "mkdir d; echo 1 > d/n.txt; echo 2 > m.txt");
        fixture.work(Some(&id), "Go on", "echo 3 > d/n.txt");
        fixture.check(
            &["verify"],
            &expect![[r#"
            intact: 1 branch, 13 steps, 4 file versions
            exit 0
        "#]],
        );
        fixture.check(
            &["verify", &id],
            &expect![[r#"
            intact: 13 steps, 4 file versions
            exit 0
        "#]],
        );
        fixture.check(
            &["verify", "--quick"],
            &expect![[r#"
            intact: 1 branch, 13 steps; files not checked
            exit 0
        "#]],
        );
        fixture.check(&["verify", &id, "--json"], &expect![[r#"
            {"damage":[],"files":{"absent":0,"bytes":299,"checked":4,"damage":[],"directories":5,"forgotten":0,"unlisted":0},"session":"SESSION1","steps":13,"whole":true}
            exit 0
        "#]]);
        // A version of a file is replaced by another, as a whole.
        let [one, two] = [&b"1\n"[..], b"2\n"].map(|content| object_of(fixture, content));
        let kept = std::fs::read(&one).expect("an object");
        std::fs::set_permissions(&one, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("writable");
        std::fs::write(&one, std::fs::read(&two).expect("an object")).expect("written");
        fixture.check(
            &["verify"],
            &expect![[r#"
                step STEP1, d/n.txt: its version is damaged
                damaged: 1 branch, 13 steps, 3 file versions
                exit 3
            "#]],
        );
        fixture.check(
            &["verify", "--quick"],
            &expect![[r#"
            intact: 1 branch, 13 steps; files not checked
            exit 0
        "#]],
        );
        // What is undamaged stays readable.
        fixture.check(
            &["checkout", &id, "files"],
            &expect![[r#"
                ! wrote 3 files of step STEP1 to files
                exit 0
            "#]],
        );
        let begun = format!("{id}@{}", fixture.step(&id, "tool result: call_1_1 ok +d/n.txt"));
        fixture.check(
            &["checkout", &begun, "begun"],
            &expect![[r#"
                ! wrote 2 files of step STEP1 to begun
                ! warning: d/n.txt is left out: its content is not in this copy
                exit 3
            "#]],
        );
        assert!(fixture.path("begun/m.txt").exists() && !fixture.path("begun/d/n.txt").exists());
        fixture.check(
            &["export", &id, "--as", "bundle", "-o", "b.rath"],
            &expect![[r#"
                ! warning: not in the bundle: d/n.txt of step STEP1 (damaged)
                ! the bundle has 13 steps and 3 file versions
                exit 3
            "#]],
        );
        std::fs::write(&one, kept).expect("written");
        // A file is lost, then all of them.
        std::fs::remove_file(&two).expect("removed");
        fixture.check(&["verify", "--json"], &expect![[r#"
            {"branches":1,"damage":[],"files":{"absent":0,"bytes":297,"checked":3,"damage":[{"fault":"missing","path":"m.txt","step":"STEP1","version":"0cfbf08886fca9a91cb753ec8734c84fcbe52c9f","why":null}],"directories":5,"forgotten":0,"unlisted":0},"steps":13,"whole":false}
            exit 3
        "#]]);
        std::fs::remove_dir_all(fixture.path("work/.rath/workspace")).expect("removed");
        fixture.check(
            &["verify"],
            &expect![[r#"
                step STEP1: its files are missing
                step STEP2: its files are missing
                step STEP3: its files are missing
                damaged: 1 branch, 13 steps, 0 file versions
                exit 3
            "#]],
        );
    });
}

#[test]
fn forgotten_and_missing_files_do_not_travel_and_the_rest_does() {
    for_each_store("", |fixture| {
        let id = fixture.work(None, "Begin", "echo kept > kept.txt; echo lost > lost.txt");
        fixture.work(Some(&id), "Go on", "echo 4711 > secret.txt");
        let secret = fixture.step(&id, "+secret.txt");
        fixture.work(Some(&id), "And", "echo more > more.txt");
        assert_eq!(fixture.code(&["forget", &id, &secret]), 0);
        std::fs::remove_file(object_of(fixture, b"lost\n")).expect("removed");
        fixture.check(
            &["export", &id, "--as", "bundle", "-o", "b.rath"],
            &expect![[r#"
                ! note: 1 file without content: removed with `rath forget`
                ! warning: not in the bundle: lost.txt of step STEP1 (not stored here)
                ! the bundle has 18 steps and 3 file versions
                exit 0
            "#]],
        );
        let bundle = std::fs::read_to_string(fixture.path("b.rath")).expect("text");
        let hex = object_of(fixture, b"4711\n").display().to_string().replace('/', "");
        let row = bundle.lines().find(|line| line.contains(&hex[hex.len() - 40..])).expect("a row");
        assert!(row.contains(r#""forgotten":5,"digest":""#), "{row}");
        let there = Elsewhere::new(fixture.store);
        std::fs::rename(fixture.path("b.rath"), there.path("b.rath")).expect("moved");
        there.check(
            &["verify", "b.rath"],
            &expect![[r#"
                1 step without its text: removed by `rath forget`
                2 file versions left out when it was written, or removed by `rath forget`
                intact: 29 rows, 18 steps, 3 file versions, N bytes
                exit 0
            "#]],
        );
        there.check(
            &["import", "b.rath"],
            &expect![[r#"
            ID
            ! its files are in .rath/workspace
            ! note: 1 file version that its steps name did not come with it
            ! 18 steps imported; `rath log ID --store STORE` shows the steps
            ! `rath adopt ID --store STORE --sandbox isolated:.` takes it over, to continue it
            exit 0
        "#]],
        );
        there.check(
            &["verify"],
            &expect![[r#"
            1 file version without content: removed with `rath forget`
            1 file version not checked: never in this copy
            intact: 1 branch, 18 steps, 3 file versions
            exit 0
        "#]],
        );
        there.check(
            &["checkout", &id, "files"],
            &expect![[r#"
            ! wrote 3 files of step ID to files
            ! warning: secret.txt is left out: its content was removed with `rath forget`
            ! warning: lost.txt is left out: its content is not in this copy
            exit 3
        "#]],
        );
        assert!(there.path("files/more.txt").exists() && !there.path("files/secret.txt").exists());
        there.check(
            &["adopt", &id, "--sandbox", "local:.", "--by", "Bob"],
            &expect![[r#"
            ! no sandbox: tools start in FOLDER and can do anything you can
            ! note: its files are not written to local:., which is not empty; `rath checkout` writes them
            ! session ID is yours now, adopted by Bob
            ! `rath resume ID 'Go on.' --model script:FILE --store STORE` continues it
            exit 0
        "#]],
        );
    });
}

const OWN_SCRIPT: &str = r#"{"calls": [{"name": "shell", "arguments": {"command": "echo same > own.txt"}}]}
{"text": "Done."}
"#;

#[test]
fn nothing_in_a_bundle_hides_that_a_file_of_the_user_is_lost() {
    for_each_store("", |fixture| {
        let id = fixture.work(None, "Begin", "echo kept > kept.txt");
        fixture.work(Some(&id), "Go on", "mkdir d; echo same > d/same.txt");
        let object = object_of(fixture, b"same\n");
        let relative = object.strip_prefix(fixture.path("work")).expect("below").to_owned();
        let kept = std::fs::read(&object).expect("an object");
        std::fs::remove_file(&object).expect("removed");
        assert_eq!(fixture.code(&["export", &id, "--as", "bundle", "-o", "missing.rath"]), 0);
        std::fs::write(&object, kept).expect("written");
        let same = fixture.step(&id, "+d/same.txt");
        assert_eq!(fixture.code(&["forget", &id, &same]), 0);
        assert_eq!(fixture.code(&["export", &id, "--as", "bundle", "-o", "forgotten.rath"]), 0);
        for (bundle, is_first) in
            [("missing.rath", true), ("missing.rath", false), ("forgotten.rath", true), ("forgotten.rath", false)]
        {
            let there = Elsewhere::new(fixture.store);
            std::fs::copy(fixture.path(bundle), there.path(bundle)).expect("copied");
            std::fs::write(there.folder.path().join("script.jsonl"), OWN_SCRIPT).expect("written");
            let code = |args: &[&str]| there.printed(args).lines().last().map(str::to_owned).expect("an exit code");
            let import = || assert_eq!(code(&["import", bundle]), "exit 0", "{bundle}");
            if is_first {
                import();
                assert_eq!(code(&["verify"]), "exit 0", "{bundle}: what never was here is no damage");
            }
            let run = ["run", "Go.", "--sandbox", "local:.", "--model", "script:../script.jsonl", "--json"];
            let ran = there.command(&run).output().expect("rath runs");
            assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
            let listed = there.command(&["ls", "--json"]).output().expect("rath runs").stdout;
            let listed = String::from_utf8(listed).expect("text");
            let ids = listed.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON")["session"].clone());
            let ids = ids.map(|id| id.as_str().expect("an id").to_owned());
            let own = &ids.into_iter().find(|own| !own.replace('-', "").contains(&id)).expect("the user's session");
            assert_eq!(code(&["verify"]), "exit 0", "{bundle}");
            std::fs::remove_file(there.path("").join(&relative)).expect("removed");
            assert_eq!(code(&["verify"]), "exit 3", "{bundle}, first: {is_first}");
            if !is_first {
                import();
            }
            let verified = there.printed(&["verify", own]);
            assert!(verified.contains("own.txt: its version is missing"), "{bundle}, first: {is_first}: {verified}");
            let written = there.printed(&["checkout", own, "files"]);
            assert!(written.contains("own.txt is left out: its content is not in this copy"), "{bundle}: {written}");
            assert!(written.ends_with("exit 3\n"), "{bundle}: {written}");
        }
    });
}

#[test]
fn a_bundle_that_was_cut_off_anywhere_is_imported_on_demand_only() {
    for_each_store("", |fixture| {
        let id = fixture.work(None, "Begin", "echo 1 > n.txt");
        assert_eq!(fixture.code(&["export", &id, "--as", "bundle", "-o", "b.rath"]), 0);
        let whole = std::fs::read(fixture.path("b.rath")).expect("a bundle");
        let ends: Vec<_> = (0..whole.len()).filter(|at| whole[*at] == b'\n').collect();
        // After a step, in a step, among the files, before the end.
        for cut in [ends[3] + 1, ends[3] + 50, ends[ends.len() - 3] + 1, ends[ends.len() - 2] + 1] {
            let there = Elsewhere::new(fixture.store);
            std::fs::write(there.path("b.rath"), &whole[..cut]).expect("written");
            let code = |args: &[&str]| there.printed(args).lines().last().map(str::to_owned).expect("an exit code");
            assert_eq!(code(&["verify", "b.rath"]), "exit 3", "{cut}");
            let refused = there.printed(&["import", "b.rath"]);
            assert!(refused.contains("error: b.rath is damaged") && refused.ends_with("exit 3\n"), "{cut}: {refused}");
            assert_eq!(code(&["import", "b.rath", "--anyway"]), "exit 3", "{cut}");
            assert_eq!(code(&["log", "-v", &id]), "exit 0", "{cut}: the rest is there");
        }
        // A session file without files may be that of a session that runs.
        let without = ["export", &id, "--as", "bundle", "--without-files", "-o", "s.rath"];
        assert_eq!(fixture.code(&without), 0);
        let whole = std::fs::read(fixture.path("s.rath")).expect("a file");
        let there = Elsewhere::new(fixture.store);
        std::fs::write(there.path("s.rath"), &whole[..whole.len() - 10]).expect("written");
        assert!(there.printed(&["import", "s.rath"]).ends_with("exit 0\n"));
    });
}

#[test]
fn a_file_that_no_tool_may_read_does_not_leave_in_a_bundle() {
    for_each_store("", |fixture| {
        fixture.write("work/.env", "PASSWORD=4711\n");
        fixture.write("work/rath.toml", "[permissions]\ndeny = [\"read .env\"]\n");
        let id = fixture.work(None, "Begin", "echo 1 > n.txt");
        assert!(object_of(fixture, b"PASSWORD=4711\n").exists(), "a version of it is stored");
        fixture.check(
            &["export", &id, "--as", "bundle", "-o", "b.rath"],
            &expect![[r#"
                ! warning: not in the bundle: .env of step STEP1 (a rule forbids to read it)
                ! the bundle has 8 steps and 3 file versions
                exit 0
            "#]],
        );
        let there = Elsewhere::new(fixture.store);
        std::fs::rename(fixture.path("b.rath"), there.path("b.rath")).expect("moved");
        there.check(
            &["verify", "b.rath"],
            &expect![[r#"
                1 file version left out when it was written, or removed by `rath forget`
                intact: 16 rows, 8 steps, 3 file versions, N bytes
                exit 0
            "#]],
        );
        assert_eq!(there.printed(&["import", "b.rath"]).lines().last(), Some("exit 0"));
        there.check(
            &["checkout", &id, "files"],
            &expect![[r#"
            ! wrote 3 files of step ID to files
            ! warning: .env is left out: its content is not in this copy
            exit 3
        "#]],
        );
        assert!(there.path("files/n.txt").exists() && !there.path("files/.env").exists());
    });
}

#[test]
fn a_damaged_bundle_is_imported_as_far_as_it_is_undamaged() {
    for_each_store("", |fixture| {
        let id = fixture.work(None, "Begin", "echo first > n.txt");
        fixture.work(Some(&id), "Go on", "echo second > m.txt");
        assert_eq!(fixture.code(&["export", &id, "--as", "bundle", "-o", "b.rath"]), 0);
        let there = Elsewhere::new(fixture.store);
        // The last object is the version of a file.
        let bundle = std::fs::read_to_string(fixture.path("b.rath")).expect("text");
        let at = bundle.rfind("\"zlib\":\"").expect("an object") + 12;
        let mut changed = bundle.into_bytes();
        changed[at] ^= 1;
        std::fs::write(there.path("b.rath"), changed).expect("written");
        there.check(
            &["import", "b.rath"],
            &expect![[r#"
            ! warning: b.rath is damaged in 1 place; the rest was read
            ! hint: `rath verify b.rath` lists the damage
            ! error: b.rath is damaged
            ! hint: `rath import b.rath --anyway --store STORE` copies the undamaged part
            exit 3
        "#]],
        );
        assert!(
            !there.path(".rath/workspace/objects/pack").exists() || {
                std::fs::read_dir(there.path(".rath/workspace/objects/pack")).expect("a folder").count() == 0
            }
        );
        there.check(
            &["salvage", "b.rath", "copy.rath"],
            &expect![[r#"
                line 20 (from byte N), row 19: the row was changed: its seal does not match its bytes
                copied 13 steps to copy.rath: the copy marks what is lost
                ! note: its files are not copied; `rath import b.rath --anyway` stores them
                exit 3
            "#]],
        );
        there.check(
            &["import", "b.rath", "--anyway"],
            &expect![[r#"
            ID
            ! warning: b.rath is damaged in 1 place; the rest was read
            ! hint: `rath verify b.rath` lists the damage
            ! its files are in .rath/workspace
            ! note: 1 file version that its steps name did not come with it
            ! 13 steps imported; `rath log ID --store STORE` shows the steps
            ! `rath adopt ID --store STORE --sandbox isolated:.` takes it over, to continue it
            exit 3
        "#]],
        );
        there.check(
            &["verify"],
            &expect![[r#"
                1 file version not checked: never in this copy
                intact: 1 branch, 14 steps, 2 file versions
                exit 0
            "#]],
        );
        there.check(
            &["checkout", &id, "files"],
            &expect![[r#"
            ! wrote 2 files of step ID to files
            ! warning: m.txt is left out: its content is not in this copy
            exit 3
        "#]],
        );
        // A bundle is no store: saving the session in it would lose its files.
        there.check(
            &["adopt", "b.rath", "--sandbox", "local:.", "--by", "Bob"],
            &expect![[r#"
            ! warning: b.rath is damaged in 1 place; the rest was read
            ! hint: `rath verify b.rath` lists the damage
            ! error: b.rath is damaged
            ! hint: `rath salvage b.rath copy.rath` copies what can be read
            exit 3
        "#]],
        );
        assert_eq!(fixture.code(&["export", &id, "--as", "bundle", "-o", "c.rath"]), 0);
        std::fs::rename(fixture.path("c.rath"), there.path("c.rath")).expect("moved");
        there.check(
            &["adopt", "c.rath", "--sandbox", "local:.", "--by", "Bob"],
            &expect![[r#"
            ! no sandbox: tools start in FOLDER and can do anything you can
            ! error: c.rath holds files, which need a store
            ! hint: `rath import c.rath` stores them
            exit 1
        "#]],
        );
        there.check(
            &["import", "c.rath"],
            &expect![[r#"
            ID
            ! its files are in .rath/workspace
            ! already in the store; `rath log ID --store STORE` shows the steps
            ! `rath adopt ID --store STORE --sandbox isolated:.` takes it over, to continue it
            exit 0
        "#]],
        );
        there.check(
            &["verify"],
            &expect![[r#"
            intact: 1 branch, 14 steps, 3 file versions
            exit 0
        "#]],
        );
    });
}
