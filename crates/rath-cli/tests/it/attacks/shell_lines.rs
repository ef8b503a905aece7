//! Lines of shell that try to pass a rule which allows another command.
//!
//! The rule is `allow command git status *`, and the harm is a file `pwned`. Without the guard the same line runs in mode full.

use super::place::{Place, printed, shell, with_guard};
use super::{Attack, HoldsIn, Observation, Plane, SandboxKind, Trial};

pub(super) fn attacks() -> Vec<Attack> {
    let is_dash = std::fs::read_link("/bin/sh").is_ok_and(|target| target.ends_with("dash"));
    let lines = LINES.iter().chain(DASH_LINES.iter().filter(|_| is_dash));
    let rows = lines.map(|(name, line)| {
        Attack::new(name, Plane::Permissions, HoldsIn::Both, move |trial| try_line(trial, &expand(line)))
    });
    let denied = DENIED_LINES
        .iter()
        .map(|(name, line)| Attack::new(name, Plane::Permissions, HoldsIn::Both, move |trial| try_denied(trial, line)));
    let hidden = HIDDEN_LINES
        .iter()
        .map(|(name, line)| Attack::new(name, Plane::Permissions, HoldsIn::Both, move |trial| try_hidden(trial, line)));
    rows.chain(denied).chain(hidden).collect()
}

type LineRow = (&'static str, &'static str);

/// `{many}` stands for more words than are read, `{deep}` and `{up}` for substitutions in substitutions.
const LINES: &[LineRow] = &[
    ("a second command", "git status; touch pwned"),
    ("a second command without a space", "git status;touch pwned"),
    ("a second command if the first fails", "git status || touch pwned"),
    ("a second command if the first succeeds", "git status -h && touch pwned; git --version && touch pwned"),
    ("a command behind a pipe", "git status | touch pwned"),
    ("a command beside the first", "git status & touch pwned; wait"),
    ("a command on the next line", "git status\ntouch pwned"),
    ("a command behind a comment", "git status #\ntouch pwned"),
    ("a command behind a comment with a backslash", "git status # \\\ntouch pwned"),
    ("a command in a substitution", "git status $(touch pwned)"),
    ("a command in backticks", "git status `touch pwned`"),
    ("a command in quotes", "git status \"$(touch pwned)\""),
    ("a command in backticks in quotes", "git status \"`touch pwned`\""),
    ("quotes in backticks that close elsewhere", "git status `git status \\'; touch pwned; git status \\'`"),
    ("a substitution cut by a line", "git status \"$\\\n(touch pwned)\""),
    ("a command in the default of a variable", "git status ${x:-$(touch pwned)}"),
    ("a command in a variable that is set", "git status ${x:=`touch pwned`}"),
    ("a command in a default in quotes", "git status \"${x-\"$(touch pwned)\"}\""),
    ("a command in a variable of the environment", "A=$(touch pwned) git status"),
    ("a command in an assignment alone", "A=`touch pwned`"),
    ("a command in a test", "[ -n \"$(touch pwned)\" ]"),
    ("substitutions nested deeper than is read", "git status {deep}touch pwned{up}"),
    ("a line longer than is read", "git status{many}; touch pwned"),
    ("a file behind an arrow", "git status > pwned"),
    ("a file behind two arrows", "git status >> pwned"),
    ("a file that is overwritten by force", "git status >| pwned"),
    ("a file for the messages", "git status 2> pwned"),
    ("a file for reading and writing", "git status 1<> pwned"),
    ("a file named by a variable", "git status > $PWD/pwned"),
    ("another program of the same name", "PATH=.:$PATH git status"),
    ("a program of the project", "./git status"),
    ("a function of the same name", "git() { touch pwned; }; git status"),
    ("another meaning of the name", "trap 'touch pwned' EXIT; git status"),
    ("a script of the project that is read", ". ./evil"),
    ("a command in a variable", "x=touch; $x pwned"),
    ("a command in the arguments", "set -- touch pwned; \"$@\""),
    ("a text that is evaluated", "eval 'touch pwned'"),
    ("another shell", "sh -c 'touch pwned'"),
    ("a text for another shell", "printf 'touch pwned' | sh"),
    ("a document for another shell", "cat <<E | sh\ntouch pwned\nE"),
    ("a substitution in a document", "git status <<E\n$(touch pwned)\nE"),
    ("a loop", "for x in a; do touch pwned; done"),
    ("a choice", "case a in a) touch pwned;; esac"),
    ("a condition", "if true; then touch pwned; fi"),
    ("a group", "{ touch pwned; }"),
    ("a subshell", "(touch pwned)"),
    ("a name cut by a line", "to\\\nuch pwned"),
    ("a name with quotes in it", "t''ouch pwned"),
    ("a name with a wildcard", "/usr/bin/touc? pwned"),
    ("a setting of the command that is a command", "git -c alias.x='!touch pwned' x"),
    ("a command that starts another", "env touch pwned"),
    ("a command that starts one for each file", "find . -maxdepth 0 -exec touch pwned ';'"),
    ("words that become arguments", "echo pwned | xargs touch"),
];

/// Lines that some shells read otherwise: they do harm where `sh` is dash.
const DASH_LINES: &[LineRow] = &[
    ("a carriage return before a comment", "git status \r#;touch pwned"),
    ("an arrow that ends a command", "git status &>/dev/null touch pwned; wait"),
    ("a sum with a comment in it", "git status $((#$(touch pwned)\n))"),
    ("a sum that is a command", "git status $(( git status '$(touch pwned)' ))"),
    ("quotes with a dollar that close elsewhere", "git status $'\\'; touch pwned #'"),
];

/// Lines that a rule which denies `touch` has to find.
const DENIED_LINES: &[LineRow] = &[
    ("a denied command", "touch pwned"),
    ("a denied command behind an allowed one", "git status; touch pwned"),
    ("a denied command in a substitution", "echo $(touch pwned)"),
    ("a denied command in another shell", "sh -c 'touch pwned'"),
    ("a denied command that is evaluated", "eval 'touch pwned'"),
    ("a denied command in a variable", "x=touch; $x pwned"),
    ("a denied command with quotes in its name", "to''uch pwned"),
    ("a denied command behind a variable", "A=1 touch pwned"),
    ("a denied command in a function", "f() { touch pwned; }; f"),
    ("a denied command in a shell with options", "bash -O extglob -c 'touch pwned'"),
    ("a denied command that a shell reads", "printf 'touch pwned' | sh"),
    ("a denied command in a script that is read", ". ./evil"),
    ("a denied command under another name", "alias x='touch pwned'\nx"),
    ("a denied command at the end", "trap 'touch pwned' EXIT"),
    ("a denied command before a shell begins", "BASH_ENV=./evil bash -c true"),
    ("a denied command that touches a closed input", "bash -c '<&-touch git pwned'"),
    ("a denied command that touches a closed output", "bash -c '>& -touch git pwned'"),
    ("a denied command that touches closed messages", "bash -c 'true; 2>&-touch git pwned'"),
    ("a denied command behind a word that looks like a comment", "bash -c 'echo <(true)#; touch pwned'"),
    ("a denied command in the subscript of a test", "bash -c 'test \"$(printf -- -v)\" \"a[\\$(touch pwned)]\"'"),
    ("a denied command in the name of a file", "bash -c 'echo >&\"a\\$(touch pwned)\"'"),
    ("a denied command in the subscript of a sum", "bash -c 'RANDOM=\"a[\\$(touch pwned)]\"'"),
];

/// Lines whose commands are allowed as they are written, and that start another one.
const HIDDEN_LINES: &[LineRow] = &[
    ("a shell with a setting", "bash -O extglob -c 'touch pwned'"),
    ("a shell with two settings in one word", "bash -oc pipefail 'touch pwned'"),
    ("a shell that reads a line", "printf 'touch pwned' | sh"),
    ("a shell that reads a text", "bash -c 'bash <<< \"touch pwned\"'"),
    ("a shell that begins with a script", "bash --rcfile evil -i"),
    ("a shell that a variable gives a script", "BASH_ENV=./evil bash -c true"),
    ("a shell whose line a variable ends", "x=';touch pwned'; bash -c \"git status $x\""),
    ("a text whose end a variable is", "x=';touch pwned'; eval \"git status $x\""),
    ("a program of another program", "env touch pwned"),
    ("a program with a text of arguments", "env -S 'touch pwned'"),
    ("a program for each file", "find . -maxdepth 0 -exec touch pwned ';'"),
    ("another name for a command", "alias x='touch pwned'\nx"),
    ("a command for the end", "trap 'touch pwned' EXIT"),
    ("a script that is read", ". ./evil"),
    ("a script that is no word", "bash -c 'bash -x <(echo touch pwned) git'"),
    ("another place for programs", "export PATH=.:$PATH; git status"),
    ("a place for programs behind a variable", "A=1 PATH=.:$PATH git status"),
    ("a closed input that touches a command", "bash -c '<&-touch git status pwned'"),
    ("a comment that is part of a word", "bash -c 'echo <(true)#; touch pwned'"),
    ("a comment that is part of the name of a file", "bash -c 'echo > >(true)#; touch pwned'"),
    ("a program whose name a substitution ends", "bash -c 'echo<(true) a'"),
    ("a test that a substitution makes another", "bash -c 'test \"$(printf -- -v)\" \"a[\\$(touch pwned)]\"'"),
    ("a test that the arguments make another", "bash -c 'test \"$@\"' git -v 'a[$(touch pwned)]'"),
    ("a variable that is a sum", "bash -c 'RANDOM=\"a[\\$(touch pwned)]\"'"),
];

fn expand(line: &str) -> String {
    let many = " a".repeat(35_000);
    line.replace("{many}", &many).replace("{deep}", &("$(echo ".repeat(9) + "$(")).replace("{up}", &")".repeat(10))
}

fn place_with(rules: &str) -> Place {
    use std::os::unix::fs::PermissionsExt as _;
    let place = Place::new();
    place.write("home/.config/rath/config.toml", &format!("[permissions]\n{rules}\n"));
    // The second is the program that `echo<(..)` names.
    for program in ["work/git", "work/echo/dev/fd/63"] {
        place.write(program, "#!/bin/sh\ntouch pwned\n");
        std::fs::set_permissions(place.path(program), std::fs::Permissions::from_mode(0o755)).expect("a mode");
    }
    place.write("work/evil", "touch pwned\n");
    place
}

const ALLOWS_STATUS: &str = "allow = [\"command git status *\"]";

fn try_line(trial: Trial, line: &str) -> Observation {
    let place = place_with(ALLOWS_STATUS);
    let mode = with_guard(trial.guard, &["--mode", "ask"], &["--mode", "full"]);
    let output = place.agent(trial.sandbox, &[shell(line)], &mode);
    Observation::new(place.path("work/pwned").exists(), printed(&output))
}

fn try_hidden(trial: Trial, line: &str) -> Observation {
    const NAMES: &str =
        "git status|bash|sh|env|find|alias|trap|eval|.|export|printf|true|A=1|x|'x=|BASH_ENV=|echo|test|'RANDOM=";
    let rules: Vec<_> = NAMES.split('|').map(|name| format!("\"command {name}*\"")).collect();
    let place = place_with(&format!("allow = [{}]", rules.join(", ")));
    let mode = with_guard(trial.guard, &["--mode", "ask"], &["--mode", "full"]);
    let output = place.agent(trial.sandbox, &[shell(line)], &mode);
    Observation::new(place.path("work/pwned").exists(), printed(&output))
}

fn try_denied(trial: Trial, line: &str) -> Observation {
    let place = place_with(with_guard(trial.guard, &["deny = [\"command touch *\"]"], &[""])[0]);
    let output = place.agent(trial.sandbox, &[shell(line)], &["--mode", "full"]);
    Observation::new(place.path("work/pwned").exists(), printed(&output))
}

/// The lines are refused for what they add: the command that the rule names runs.
#[test]
fn the_rule_lets_its_own_command_pass() {
    for sandbox in [SandboxKind::Local, SandboxKind::Isolated] {
        let place = place_with(ALLOWS_STATUS);
        let output = place.agent(sandbox, &[shell("git status --short")], &["--mode", "ask"]);
        assert!(output.status.success(), "{}", printed(&output));
    }
}
