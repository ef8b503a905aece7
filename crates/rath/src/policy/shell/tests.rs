//! Lines of shell, taken apart.

use expect_test::{Expect, expect};

use super::ShellLine;

#[cfg(unix)]
mod law;

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
        diff "$(..)" "$(..)""#]],
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
        "a >&2 2>&1 <&0 >&- <&- >& /dev/null > c",
        expect![[r#"
        a
        > c"#]],
    );
    check(
        "a >&2b >&-c d",
        expect![[r#"
        a d
        > 2b
        > -c
        (opaque)"#]],
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
    for line in ["cargo test", "echo $HOME", "a && b", "(a) && (b)", "if (a); then b; fi", "echo \"$HOME\" '$x' \\$x"] {
        assert!(!ShellLine::parse(line).is_opaque, "{line}");
    }
}

#[test]
fn commands_that_another_one_starts_are_found_or_the_line_is_marked() {
    let check = |line: &str, wanted: &[&str]| {
        let found = ShellLine::parse(line);
        let texts: Vec<_> = found.commands.iter().map(|command| command.text()).collect();
        assert!(!found.is_opaque, "{line}: {texts:?}");
        wanted.iter().for_each(|wanted| assert!(texts.iter().any(|text| text == wanted), "{line}: {texts:?}"));
    };
    check("sh -ec 'rm a'", &["sh -ec 'rm a'", "rm a"]);
    check("bash -euo pipefail -c 'rm a | rm b' x y", &["rm a", "rm b"]);
    check("bash -ceuo pipefail 'rm a'", &["rm a"]);
    check("sh +e -c 'rm a'", &["rm a"]);
    check("bash scripts/test.sh -x", &["bash scripts/test.sh -x"]);
    check("env", &["env"]);
    check("env A=1 rm a", &["env A=1 rm a", "A=1 rm a"]);
    check("command -p rm a", &["rm a"]);
    check("command -v rm", &["command -v rm"]);
    check("builtin command exec rm a", &["command exec rm a", "exec rm a", "rm a"]);
    check("exec > a", &["exec"]);
    check("nohup rm a", &["rm a"]);
    check("nice -n 5 rm a", &["rm a"]);
    check("timeout --foreground -k 1 60 rm a", &["rm a"]);
    check("setsid -w stdbuf -oL rm a", &["stdbuf -oL rm a", "rm a"]);
    check("/usr/bin/time -v rm a", &["rm a"]);
    check("sudo sh -c 'rm a'", &["sh -c 'rm a'", "rm a"]);
    check("ls | xargs -0 -n 1 rm -f", &["rm -f \"$(..)\""]);
    check("ls | xargs", &["xargs"]);
    check("ls | xargs sh -c 'rm \"$1\"' sh", &["rm $1"]);
    check("find . -name a -exec rm {} + -exec rm b '{}' \\;", &["rm {}", "rm b {}"]);
    check("find . -name 'a*'", &["find . -name 'a*'"]);
    check("docker run x sh -c 'rm a'", &["rm a"]);
    check("which bash; apt install zsh -y", &["which bash", "apt install zsh -y"]);
    check("eval rm a", &["rm a"]);
    check("set -euo pipefail; set -- $x; export A=1 B; readonly C; unset D; read -r line", &["export A=1 B"]);
    check("test -f a && test a = b && printf '%s' \"$x\"; wait", &["wait"]);
    check("diff <(rm a) b > >(rm c)", &["rm a", "rm c", "diff \"$(..)\" b"]);
    check("(cat <(rm a)); cat <(rm b)|cat < <(rm c)&", &["rm a", "rm b", "rm c"]);
    check("rm a <&- >&- 2>&1 2>&-; rm b >&2>f", &["rm a", "rm b"]);
    for line in [
        "bash -O extglob -c 'rm a'",
        "bash -oc pipefail 'rm a'",
        "bash --rcfile f -i",
        "bash --init-file f -i",
        "bash --norc -c 'rm a'",
        "bash -lc 'rm a'",
        "bash -ic 'rm a'",
        "sh -c -- 'rm a'",
        "sh -c",
        "sh -c \"rm $x\"",
        "sh -c rm*",
        "sh",
        "sh -",
        "sh -s < f",
        "sh < f",
        "sh <<< 'rm a'",
        "sh /dev/stdin",
        "sh /proc/self/fd/0",
        "sh <(echo rm a)",
        "sh -x <(echo rm a) f",
        "sh $x",
        "printf 'rm a' | sh",
        "zsh -c 'rm a'",
        "fish -c 'rm a'",
        "docker run x bash -lc 'rm a'",
        "env -S 'rm a'",
        "env -i rm a",
        "env A=$x rm a",
        "env 'BASH_FUNC_ls%%=() { rm a; }' bash -c ls",
        "env $x",
        "alias x='rm a'",
        "unalias -a",
        "source f",
        ". ./f",
        "trap 'rm a' EXIT",
        "hash -p ./f ls",
        "enable -f ./f.so ls",
        "shopt -s expand_aliases",
        "set -o history",
        "set $x",
        "exec -a x rm a",
        "command -x rm a",
        "builtin . f",
        "time -p rm a",
        "> f time rm a",
        "> f { rm a; }",
        "coproc rm a",
        "jobs -x rm a",
        "mapfile -C 'rm a' b",
        "compgen -C 'rm a'",
        "declare PATH=.",
        "typeset -i x='a[$(rm a)]'",
        "let 'a[$(rm a)]=1'",
        "[ -v 'a[$(rm a)]' ]",
        "test $x",
        "test \"\"$x",
        "test \"$x\" = y",
        "test \"$@\"",
        "test \"$(printf -- -v)\" 'a[$(rm a)]'",
        "RANDOM='a[$(rm a)]'",
        "export SRANDOM=1",
        "read HISTCMD",
        "<&-rm ls a",
        "<& -rm ls a",
        ">&-rm ls a",
        "2>&-rm ls a",
        "ls >&-# b",
        "ls <&1-rm a",
        "ls >&1a",
        "ls >& a",
        "ls >&'a$(rm a)'",
        "ls <(b)# c",
        "ls <(b)''",
        "ls <(b)$x",
        "ls <(b)<(c)",
        "ls <(b)>c",
        "ls a<(b)",
        "ls 2<(b)",
        "ls ''<(b)",
        "ls<(b) c",
        "ls > >(b)# c",
        "ls > a>(b)",
        "printf -v 'a[$(rm a)]' b",
        "read 'a[$(rm a)]'",
        "unset 'a[$(rm a)]'",
        "unset -f ls",
        "read PATH",
        "export PATH=.",
        "export A=$x",
        "PATH=. ls",
        "PATH=.; ls",
        "PATH+=:.; ls",
        "IFS=x; ls",
        "LD_PRELOAD=./f ls",
        "BASH_ENV=f bash -c ls",
        "ENV=f sh -c ls",
        "PROMPT_COMMAND='rm a' bash f",
        "SHELLOPTS=xtrace PS4='$(rm a)' bash f",
        "BASH_FUNC_ls=1 ls",
        "f() { rm a; }",
        "f () ( rm a )",
        "ls !(a)",
        "a=(b c)",
        "ls {PATH}> f",
        "ls 12> f",
        "eval \"rm $x\"",
        "eval rm *",
        "xargs -I{} rm {}",
        "xargs sh",
        "xargs sh -c",
        "xargs env A=1",
        "xargs find",
        "find . -exec sh -c 'rm {}' ';'",
        "find . -exec {} ';'",
        "find . -exec rm a",
        "find $x",
        "find . \"$x\" rm a ';'",
        "timeout $x rm a",
        "timeout -k 5 --unknown 5 rm a",
        "nice -20 rm a",
        "sudo -u x rm a",
        "su -c 'rm a'",
        "watch rm a",
        "flock f -c 'rm a'",
        "strace -f rm a",
        "script -c 'rm a'",
        &format!("{}rm a", "env ".repeat(20)),
    ] {
        let found = ShellLine::parse(line);
        assert!(found.is_opaque, "{line}");
        let is_denied = |pattern: &str| {
            let mut forms = found.commands.iter().flat_map(|command| command.forms());
            forms.any(|form| super::super::rule::command_matches(pattern, &form))
        };
        // A rule that forbids the command finds it where the line names it.
        let names_it = line.contains("'rm a'") && !line.contains("printf 'rm a'") && !line.contains("<<<");
        assert!(!names_it || is_denied("rm a"), "{line}");
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
