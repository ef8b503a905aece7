//! Random lines, and what shells make of them: each program that really starts was found, or the line is marked.

use std::path::Path;

use proptest::prelude::*;
use rath_test_support::program;

use super::ShellLine;

/// Programs that write their name and arguments into a file.
const RECORDED: [&str; 6] = ["t0", "t1", "t2", "t3", "t4", "t5"];
/// Programs that start others.
const STARTERS: [&str; 13] =
    ["bash", "dash", "env", "find", "nice", "nohup", "setsid", "sh", "stdbuf", "strace", "time", "timeout", "xargs"];

/// A line that no other is part of.
fn simple() -> impl Strategy<Value = String> {
    let word = prop::sample::select(vec![
        "a",
        "'b c'",
        "\"d e\"",
        "f\\ g",
        "$x",
        "\"$y\"",
        "*",
        "'$(t4)'",
        "''",
        "A=1",
        "-c",
        "-v",
        "{}",
        "\"$(t2 k)\"",
        "`t3`",
        "<(t2)",
        "2>&1",
        ">f",
        "> >(t3)",
        "'; t5'",
    ]);
    let name = prop::sample::select(vec!["t0", "t1", "t2", "'t3'", "A=1 t0", "PATH=bin t0", ">f t1", "\\t2"]);
    let apart = (name.clone(), prop::collection::vec(word.clone(), 0..3))
        .prop_map(|(name, words)| [vec![name], words].concat().join(" "));
    // Pieces that touch each other: each shell has its own mind about where a word or an operator ends.
    let piece = prop_oneof![1 => word, 1 => name.clone(), 3 => prop::sample::select(TOUCHING.to_vec())];
    let pieces = |count| prop::collection::vec((piece.clone(), prop::sample::select(vec!["", "", " "])), count);
    let touching = (pieces(0..3), name, pieces(0..4)).prop_map(|(before, name, after)| {
        let text = |pieces: Vec<(&str, &str)>| pieces.iter().map(|(piece, blank)| format!("{piece}{blank}")).collect();
        let (before, after): (String, String) = (text(before), text(after));
        format!("{before}{name}{after}")
    });
    prop_oneof![apart, touching]
}

/// Operators, and parts of words that look like the end of one.
const TOUCHING: [&str; 33] = [
    " ", "#", "$", "$'a'", "$\"a\"", "&", "&>", "-", "1", "2>&-", ";", "<", "<&", "<&-", "<&1", "<(t2)", "<<<", "<>",
    "=", ">", ">&", ">&-", ">(t3)", ">>", ">|", "\\", "\\\n", "\n", "a[", "]", "{fd}>", "|", "!",
];

/// Lines that start programs in ways of their own.
const FIXED: [&str; 52] = [
    "<&-t4 t0",
    "<& -t4 t0",
    ">&'a$(t4)'",
    "HISTCMD='a[$(t4)]'",
    "RANDOM='a[$(t4)]'",
    "SRANDOM='a[$(t4)]'",
    "[ \"$(printf -- -v)\" 'a[$(t4)]' ]",
    "set -- -v 'a[$(t4)]'; test \"$@\"",
    "t0 <(t2)#; t4",
    "t0<(t2) a",
    "test \"\"$z",
    "x=-v; y='a[$(t4)]'; test \"$x\" \"$y\"",
    ". ./script",
    "BASH_ENV=script bash -c t0",
    "ENV=./script sh -ic t0",
    "[ -v 'a[$(t4)]' ]",
    "[ t0 = t1 ]",
    "[ $z ]",
    "a=(`t4`); t0",
    "bash --rcfile script -i",
    "builtin eval t0",
    "compgen -C t4",
    "coproc t4",
    "declare -i a='b[$(t4)]'",
    "env $y",
    "env 'BASH_FUNC_t0%%=() { t4; }' bash -c t0",
    "env -S 't4 a'",
    "eval \"t0 $x\"",
    "eval t0 $x",
    "exec -a n t4",
    "export A=1; t0",
    "export PATH=bin; t0",
    "find . -maxdepth 0 $w",
    "hash -p bin/t0 t1; t1",
    "jobs -x t4",
    "let 'a[$(t4)]=1'",
    "mapfile -C t4 -c 1 a <<< x",
    "printf %s 't4 a' | sh",
    "printf -v 'a[$(t4)]' x",
    "read 'a[$(t4)]' <<< 1",
    "set -- t4; \"$@\"",
    "set -- t4; t0 \"$@\"",
    "sh -c \"t0 $x\"",
    "sh -s < script",
    "sh /dev/stdin < script",
    "sh < script",
    "sh <<< t4",
    "sh <<E\nt4\nE",
    "source ./script",
    "t0 {PATH}>f; t1",
    "x=t4; $x",
    "xargs sh < script",
];

/// Ways to start a command or a line: `@` is the command, and `%` the line in quotes.
const AROUND: [&str; 62] = [
    "! @",
    "$(@)",
    "(@)",
    "> f time @",
    "@ & wait",
    "@ 12>f",
    "A=1 eval %",
    "alias t0=%\nt0",
    "bash +e -c %",
    "bash --norc -c %",
    "bash -O extglob -c %",
    "bash -c % t1 t2",
    "bash -ceuo pipefail %",
    "bash -euo pipefail -c %",
    "bash -lc %",
    "bash -oc pipefail %",
    "builtin @",
    "command -- @",
    "command -p @",
    "command @",
    "command -v @",
    "env -i @",
    "env -S %",
    "env -u x @",
    "env @",
    "env A=1 @",
    "env A=$y @",
    "eval %",
    "eval -- %",
    "exec @",
    "find . -maxdepth 0 -exec @ ';'",
    "find . -maxdepth 0 -exec @ {} +",
    "find . -maxdepth 0 -exec @ + a ';'",
    "find . -maxdepth 0 -exec sh -c % ';'",
    "function t1 { @; }; t1",
    "if @; then t2; else t3; fi",
    "nice -n 5 @",
    "nice -5 @",
    "nohup @",
    "printf 'a b' | xargs @",
    "printf a | xargs -I{} @",
    "printf a | xargs -n 1 @",
    "printf t4 | xargs env @",
    "printf t4 | xargs sh -c %",
    "setsid -w @",
    "sh % a",
    "sh -c % -c t4",
    "sh -c -- %",
    "sh -c -e %",
    "sh -e -c %",
    "sh -ec %",
    "sh -xc %",
    "stdbuf -oL @",
    "t0() { @; }; t0",
    "time -p @",
    "time @",
    "timeout -k 1 5 @",
    "timeout 5 @",
    "trap % EXIT",
    "t2 \"$(@)\"",
    "{ @; }",
    "{ @; } 2>/dev/null > f",
];

fn line() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![4 => simple(), 1 => prop::sample::select(FIXED.to_vec()).prop_map(str::to_owned)];
    leaf.prop_recursive(4, 8, 2, |inner| {
        let around = (prop::sample::select(AROUND.to_vec()), inner.clone()).prop_map(|(around, inner)| {
            let quoted = format!("'{}'", inner.replace('\'', r"'\''"));
            around.replace('@', &inner).replace('%', &quoted)
        });
        let list = (inner.clone(), prop::sample::select(vec!["; ", " && ", " || ", " | ", "\n", " & "]), inner)
            .prop_map(|(left, between, right)| format!("{left}{between}{right}"));
        prop_oneof![3 => around, 1 => list]
    })
}

/// Runs a line in a shell, and returns each program that started, with its arguments.
fn programs_of(shell: &str, line: &str, folder: &Path) -> Vec<String> {
    let work = folder.join("work");
    std::fs::remove_dir_all(&work).ok();
    std::fs::create_dir_all(work.join("bin")).expect("a directory");
    std::fs::write(work.join("script"), "t5 script\n").expect("a file");
    std::os::unix::fs::symlink(folder.join("path/t5"), work.join("bin/t0")).expect("a link");
    // The program that `t0<(..)` names.
    std::fs::create_dir_all(work.join("t0/dev/fd")).expect("a directory");
    std::os::unix::fs::symlink(folder.join("path/t5"), work.join("t0/dev/fd/63")).expect("a link");
    let log = folder.join("log");
    std::fs::write(&log, "").expect("a file");
    let mut command = program("timeout");
    command.args(["20", shell, "-c", line]).current_dir(&work).env_clear();
    command.env("PATH", folder.join("path")).env("HOME", &work);
    // Values that are harmless as arguments, and commands elsewhere.
    command.envs([("x", "; t5"), ("y", "t5 b"), ("z", "-v a[$(t5)]"), ("w", "-exec t5 ;")]);
    command.output().expect("the shell runs");
    std::fs::read_to_string(&log).expect("a log").lines().map(|line| line.trim_end().to_owned()).collect()
}

fn recording_path(folder: &Path) {
    use std::os::unix::fs::PermissionsExt;
    let path = folder.join("path");
    std::fs::create_dir(&path).expect("a directory");
    for name in RECORDED {
        let text = format!(
            "#!/bin/sh\nprintf '%s\\n' \"{name} $*\" >> '{}'\nexit {}\n",
            folder.join("log").display(),
            u8::from(name == "t1")
        );
        std::fs::write(path.join(name), text).expect("a program");
        std::fs::set_permissions(path.join(name), PermissionsExt::from_mode(0o755)).expect("a mode");
    }
    for name in STARTERS {
        let real = ["/usr/bin", "/bin"].map(|directory| Path::new(directory).join(name));
        if let Some(real) = real.iter().find(|real| real.exists()) {
            std::os::unix::fs::symlink(real, path.join(name)).expect("a link");
        }
    }
}

/// Returns true if a program that started is one of the commands that were found.
fn was_found(found: &ShellLine, started: &str) -> bool {
    let name = |text: &str| text.split(' ').next().unwrap_or_default().to_owned();
    found.commands.iter().any(|command| {
        let words: Vec<_> =
            command.words.iter().skip_while(|word| super::super::is_assignment(word)).cloned().collect();
        let text = words.join(" ");
        // Words that a shell replaces are others when it runs.
        let is_open = text.contains(['$', '*', '{', '`']);
        text.trim_end() == started || (is_open && name(&text) == name(started))
    })
}

proptest! {
    #![proptest_config(rath_test_support::property(60))]

    #[test]
    fn every_program_that_a_shell_starts_is_found_or_the_line_is_marked(lines in prop::collection::vec(line(), 4)) {
        let folder = rath_test_support::temp_dir();
        recording_path(folder.path());
        for line in &lines {
            let found = ShellLine::parse(line);
            if found.is_opaque {
                continue;
            }
            for shell in ["bash", "dash"] {
                for started in programs_of(shell, line, folder.path()) {
                    prop_assert!(was_found(&found, &started), "{shell} starts `{started}` in\n{line}\n{:?}", found.commands);
                }
            }
        }
    }
}
