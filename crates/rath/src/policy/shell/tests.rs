//! Lines of shell, taken apart.

use expect_test::{Expect, expect};

use super::ShellLine;

fn check(line: &str, expected: Expect) {
    let ShellLine { commands, writes, is_opaque, .. } = ShellLine::parse(line);
    let mut text: Vec<_> = commands.iter().map(|command| command.text()).collect();
    text.extend(writes.iter().map(|path| format!("> {path}")));
    text.extend(is_opaque.then(|| "(opaque)".to_owned()));
    expected.assert_eq(&text.join("\n"));
}

#[test]
fn the_commands_of_a_line_are_found() {
    check("cargo  test --workspace", expect!["cargo test --workspace"]);
    check(
        "cd a && make; rm -rf b | tee c &",
        expect![[r#"
        cd a
        make
        rm -rf b
        tee c"#]],
    );
    check(
        "echo $(rm x) `rm y` \"$(rm z)\"",
        expect![[r#"
            rm x
            rm y
            rm z
            echo "$(..)" "$(..)" "$(..)""#]],
    );
    check("echo 'a b' \"c d\" e\\ f", expect!["echo 'a b' 'c d' 'e f'"]);
    check(
        "ls 2>&1 >/dev/null > out.txt 2>err.txt &>all.txt >>more >|forced",
        expect![[r#"
            ls
            > out.txt
            > err.txt
            > all.txt
            > more
            > forced
            (opaque)"#]],
    );
    check(
        "if test -f a; then rm a; else rm b; fi",
        expect![[r#"
        test -f a
        rm a
        rm b"#]],
    );
    check(
        "{ rm a; }; ! rm b; (rm c; (rm d))",
        expect![[r#"
        rm a
        rm b
        rm c
        rm d"#]],
    );
    check(
        "A=1 B=2 cargo test # rm x\nrm y",
        expect![[r#"
        A=1 B=2 cargo test
        rm y"#]],
    );
    check(
        "bash -c 'rm a; rm b'",
        expect![[r#"
            bash -c 'rm a; rm b'
            rm a
            rm b"#]],
    );
    check(
        "/bin/sh -ec \"eval 'rm a'\"",
        expect![[r#"
            /bin/sh -ec 'eval 'rm a''
            eval 'rm a'
            rm a"#]],
    );
    check(
        "diff <(rm a) <(rm b)",
        expect![[r#"
        rm a
        rm b
        diff"#]],
    );
    check("cat <<< 'rm a'", expect!["cat"]);
    check(
        "r''m a; \\rm b",
        expect![[r#"
        rm a
        rm b"#]],
    );
    check("rm '*' \"*\" * \\* a=* 'a=b'", expect!["rm '*' '*' * '*' a=* 'a=b'"]);
    check("echo \"a $x\" 'a $x' \"$x\" '$x' $x", expect![[r#"echo "a $x" 'a $x' $x '$x' $x"#]]);
    check(
        "a >&2 2>&1 >&2b >&- >& c",
        expect![[r#"
        a
        > 2b
        > c"#]],
    );
    check("echo $HOME $1 $? a$", expect!["echo $HOME $1 $? a$"]);
    check("", expect![[""]]);
}

#[test]
fn a_line_that_is_only_known_when_it_runs_is_marked() {
    for line in [
        "$x a",
        "`which rm` a",
        "$(which rm) a",
        "\"$x\" a",
        "echo ${x:-$(rm a)}",
        "echo $'a'",
        "for x in a; do rm $x; done",
        "case a in a) rm a;; esac",
        "function f { rm a; }; f",
        "cat <<E\nrm a\nE",
        "((git status '$(touch a)'))",
        "! ((git status #$(touch a)\n))",
        "git status \r#;touch a",
        "git status &>/dev/null touch a",
        "git status `git status \\'; touch a; git status \\'`",
        "git status \"$\\\n(touch a)\"",
        "git status $((#$(touch a)\n))",
        "git status $(( git status '$(touch a)' ))",
        "git status $[ #$(touch a)\ngit status ]",
        "ca\\\nt a",
        "/bin/r? a",
        "~/x a",
        "rm 'a*'*",
        "git status > src/*",
        "echo 'a",
        "echo \"a",
        "echo $(rm a",
        "echo a)",
        "rm a > $x",
        "echo \\",
        "eval \"$x\"",
        "bash -c \"$x\"",
        &"(".repeat(50),
        &"a ".repeat(100_000),
    ] {
        assert!(ShellLine::parse(line).is_opaque, "{}", &line[..line.len().min(80)]);
    }
    for line in ["cargo test", "echo $HOME", "a && b", "f() { rm a; }", "echo \"$HOME\" '$x' \\$x"] {
        assert!(!ShellLine::parse(line).is_opaque, "{line}");
    }
}

#[test]
fn redirections_are_looked_for_in_the_directories_that_a_line_changes_to() {
    let check = |line: &str, writes: &[&str], directories: &[&str]| {
        let found = ShellLine::parse(line);
        assert_eq!(found.writes, writes, "{line}");
        assert_eq!(found.directories, directories, "{line}");
        assert!(found.is_unclear(), "no rule allows {line}");
    };
    check("cd d; echo x > f", &["f", "d/f"], &["d"]);
    check("cd d && echo x > f", &["f", "d/f"], &["d"]);
    check("(cd d; echo x > f); echo y > g", &["f", "g", "d/f", "d/g"], &["d"]);
    check("pushd 'd e' > f", &["f", "d e/f"], &["d e"]);
    check("command cd -P -- d; echo x > f", &["f", "d/f"], &["d"]);
    check("eval 'cd d'; sh -c 'cd e; echo x > f'", &["f", "d/f", "e/f", "d/e/f"], &["d", "e", "d/e"]);
    check("X=1 cd d; echo x > f", &["f", "d/f"], &["d"]);
    check("command -p cd d; echo x > f", &["f", "d/f"], &["d"]);
    check("sh -o errexit -c 'cd d; echo x > f'", &["f", "d/f"], &["d"]);
    check("sh +e -c 'cd d; echo x > f'", &["f", "d/f"], &["d"]);
    check("cd /tmp; echo x > f", &["f", "/tmp/f"], &["/tmp"]);
    check("cd d; cd ..; echo x > f", &["f", "d/f", "../f", "f", "d/../f"], &["d", "..", "", "d/.."]);
    for unknown in ["cd", "cd -", "cd $x", "cd ~", "cd d*", "cd \"$(pwd)\"", "cd ''"] {
        check(&format!("{unknown}; echo x > f"), &["f"], &[]);
    }
    let many = ShellLine::parse(&format!("{}{}", "cd a; ".repeat(4000), "echo >f ".repeat(4000)));
    assert!(many.writes.len() < 10_000, "{}", many.writes.len());
}
