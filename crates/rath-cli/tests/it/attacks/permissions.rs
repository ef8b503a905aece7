//! Calls that the modes and rules of the user do not allow.

use std::net::TcpListener;

use rath_test_support::Terminal;
use serde_json::{Value, json};

use super::place::{CANARY, EVIL, Place, printed, results, shell, tool, with_guard};
use super::{Attack, Guard, HoldsIn, Observation, Plane, SandboxKind, Trial};

pub(super) fn attacks() -> Vec<Attack> {
    let row =
        |name, holds_in, attempt: fn(Trial) -> Observation| Attack::new(name, Plane::Permissions, holds_in, attempt);
    let mut all = vec![
        row("a command in mode read-only", HoldsIn::Both, |trial| {
            try_mode(trial, "read-only", &shell("echo EVIL-4711 > file"))
        }),
        row("a file written in mode read-only", HoldsIn::Both, |trial| try_mode(trial, "read-only", &write("file"))),
        row("a file edited in mode read-only", HoldsIn::Both, |trial| {
            try_mode(trial, "read-only", &edit("file", "harmless"))
        }),
        row("code in mode read-only", HoldsIn::Both, |trial| {
            let code = json!({"language": "bash", "code": "echo EVIL-4711 > file"});
            try_mode(trial, "read-only", &tool("run_code", code))
        }),
        row("a check in mode read-only", HoldsIn::Both, |trial| {
            try_mode(trial, "read-only", &tool("check", json!({"command": "echo EVIL-4711 > file"})))
        }),
        row("a command that no person can be asked about", HoldsIn::Both, |trial| {
            try_mode(trial, "ask", &shell("echo EVIL-4711 > file"))
        }),
        row("a file written that no person can be asked about", HoldsIn::Both, |trial| {
            try_mode(trial, "ask", &write("file"))
        }),
        row("two calls of which one may be made", HoldsIn::Both, |trial| {
            let place = Place::new();
            let calls = json!({"calls": [tool("read_file", json!({"path": "file"})), write("file")]});
            let [model, script] = place.script(&[calls]);
            let mode = with_guard(trial.guard, &["--mode", "ask"], &["--mode", "full"]);
            let run = [&["run", "Go.", &model, &script, "--sandbox", trial.sandbox.uri()], &mode[..]].concat();
            let output = place.rath(&run);
            Observation::new(place.read("work/file").contains(EVIL), printed(&output))
        }),
        row("an unwalled command in mode workspace", HoldsIn::None, |trial| {
            try_mode(trial, "workspace", &shell("echo EVIL-4711 > file"))
        }),
        row("a path outside that was not allowed", HoldsIn::Isolated, try_outside),
        row("a path outside by a link and dots", HoldsIn::Isolated, try_outside_by_link),
        row("a host that was not allowed", HoldsIn::Isolated, try_host),
        row("a host allowed by a wildcard that means this machine", HoldsIn::Isolated, try_host_by_wildcard),
        row("a project that allows its own commands", HoldsIn::Both, |trial| {
            try_project(trial, "[permissions]\nallow = [\"command *\", \"write *\"]\n")
        }),
        row("a project that chooses its own mode", HoldsIn::Both, |trial| {
            try_project(trial, "[permissions]\nmode = \"full\"\n")
        }),
        row("a project whose rules changed after they were trusted", HoldsIn::Both, try_changed_project),
        row("a configuration that tools can write", HoldsIn::Both, try_configuration_inside),
        row("the default configuration in the directory of tools", HoldsIn::Both, |trial| {
            try_own_files(trial, ".config", "rath/config.toml")
        }),
        row("a configuration that is a link into the directory of tools", HoldsIn::Both, |trial| {
            try_own_files(trial, "dotfiles", "config.toml")
        }),
        row("the key of the user in the directory of tools", HoldsIn::Both, |trial| {
            try_own_files(trial, ".local/share", "rath/user.key")
        }),
        row("a project that is named by a link", HoldsIn::Both, try_linked_project),
        row("a file store that a command reads", HoldsIn::Isolated, try_file_store),
        row("a resumed session with more rights", HoldsIn::Both, try_resume),
        row("an answer typed before the question", HoldsIn::Both, try_typed_before),
        row("a hook that runs with a commit", HoldsIn::Isolated, try_commit_hook),
        row("a message of a commit that is a command", HoldsIn::Isolated, try_commit_message),
        row("a filter of a repository below that runs with a commit", HoldsIn::Isolated, try_commit_filter),
    ];
    let denied = DENIED_READS.iter().map(|(name, holds_in, rule, calls)| {
        Attack::new(name, Plane::Permissions, *holds_in, move |trial| try_denied_read(trial, rule, &calls()))
    });
    all.extend(denied);
    let written = DENIED_WRITES.iter().map(|(name, call)| {
        Attack::new(name, Plane::Permissions, HoldsIn::Both, move |trial| try_denied_write(trial, &call()))
    });
    all.extend(written);
    all
}

fn write(path: &str) -> Value {
    tool("write_file", json!({"path": path, "text": EVIL}))
}

fn edit(path: &str, old: &str) -> Value {
    tool("edit_file", json!({"path": path, "old": old, "new": EVIL}))
}

fn read(path: &str) -> Value {
    tool("read_file", json!({"path": path}))
}

/// Makes a call in a mode, and without the guard in mode full. The harm is a changed file.
fn try_mode(trial: Trial, mode: &'static str, call: &Value) -> Observation {
    let place = Place::new();
    let mode = with_guard(trial.guard, &["--mode", mode], &["--mode", "full"]);
    let output = place.agent(trial.sandbox, std::slice::from_ref(call), &mode);
    Observation::new(place.read("work/file").contains(EVIL), printed(&output))
}

/// Writes the rules of the user if the guard is on, or others if it is off.
fn set_rules(place: &Place, rules: &str) {
    place.write("home/.config/rath/config.toml", &format!("[permissions]\n{rules}\n"));
}

type ReadRow = (&'static str, HoldsIn, &'static str, fn() -> Vec<Value>);

/// Ways to read a file that a rule keeps from every tool: the rule, and the calls.
const DENIED_READS: &[ReadRow] = &[
    ("a denied file", HoldsIn::Both, "read .env", || vec![read(".env")]),
    ("a denied file by a link", HoldsIn::Both, "read .env", || vec![read("link")]),
    ("a denied file with dots", HoldsIn::Both, "read .env", || vec![read("below/.././.env")]),
    ("a denied file by a search", HoldsIn::Both, "read one", || {
        vec![tool("search_files", json!({"pattern": "CANARY", "path": "keys"}))]
    }),
    ("a file in a denied directory", HoldsIn::Both, "read keys/", || vec![read("keys/one")]),
    ("a denied file by a command", HoldsIn::Isolated, "read .env", || vec![shell("cat .env")]),
    ("a denied file by a wildcard", HoldsIn::Isolated, "read .env", || vec![shell("cat .e*")]),
    ("a denied file by code", HoldsIn::Isolated, "read .env", || {
        vec![tool("run_code", json!({"language": "bash", "code": "cat .e*"}))]
    }),
    ("a denied file by a link of a command", HoldsIn::Isolated, "read .env", || {
        vec![shell("ln -s .env l; cat l"), read("l")]
    }),
    ("another name of a denied file", HoldsIn::Isolated, "read .env", || {
        vec![shell("ln .env h; cat h"), shell("cat h")]
    }),
    ("a denied file copied with its directory", HoldsIn::Isolated, "read one", || {
        vec![shell("cp -r keys k; cat k/one"), read("k/one")]
    }),
    ("a denied file moved with its directory", HoldsIn::Isolated, "read keys/one", || {
        vec![shell("mv keys k"), shell("cat k/one")]
    }),
    ("a denied file moved while it is ignored", HoldsIn::Isolated, "read keys/one", || {
        vec![shell("echo one > .gitignore"), shell("mv keys k"), shell("cat k/one")]
    }),
    ("another name of a denied file, from before", HoldsIn::Isolated, "read .env", || vec![shell("cat a-name")]),
    ("another name of a denied file, for a tool", HoldsIn::Both, "read .env", || vec![read("a-name")]),
    ("another name of a file in a denied directory", HoldsIn::Isolated, "read keys/", || vec![shell("cat a-key")]),
    ("a denied file in a directory that cannot be listed", HoldsIn::Isolated, "read one", || {
        vec![shell("chmod 311 keys"), shell("chmod 755 keys; cat keys/one")]
    }),
];

fn try_denied_read(trial: Trial, rule: &str, calls: &[Value]) -> Observation {
    let place = Place::new();
    for name in ["work/.env", "work/keys/one"] {
        place.write(name, CANARY);
    }
    place.link("link", ".env");
    for (name, other) in [("work/.env", "work/a-name"), ("work/keys/one", "work/a-key")] {
        std::fs::hard_link(place.path(name), place.path(other)).expect("another name");
    }
    if trial.guard == Guard::On {
        set_rules(&place, &format!("deny = [\"{rule}\"]"));
    }
    let output = place.agent(trial.sandbox, calls, &["--mode", "full"]);
    let text = results(&output);
    assert!(output.status.success(), "all calls were decided: {text}");
    Observation::new(text.contains(CANARY), text)
}

type WriteRow = (&'static str, fn() -> Value);

/// Ways to change a file that a rule protects.
const DENIED_WRITES: &[WriteRow] = &[
    ("a protected file written", || write("file")),
    ("a protected file edited", || edit("file", "harmless")),
    ("a protected file written by a link", || write("link")),
    ("a protected file written by a command", || shell("echo EVIL-4711 > file")),
    ("a protected file replaced by a rename", || shell("echo EVIL-4711 > x; mv x file")),
    ("a protected file removed", || shell("rm file")),
    ("a protected file exchanged for a link", || shell("echo EVIL-4711 > x; ln -sf x file")),
    ("a protected file written and ignored", || shell("echo file > .gitignore; echo EVIL-4711 > file")),
];

fn try_denied_write(trial: Trial, call: &Value) -> Observation {
    let place = Place::new();
    place.link("link", "file");
    if trial.guard == Guard::On {
        set_rules(&place, "deny = [\"write file\"]");
    }
    let output = place.agent(trial.sandbox, std::slice::from_ref(call), &["--mode", "full"]);
    Observation::new(place.read("work/file") != "harmless\n", printed(&output))
}

fn try_outside(trial: Trial) -> Observation {
    let place = Place::new();
    let outside = place.text("outside");
    if trial.guard == Guard::Off {
        set_rules(&place, &format!("allow = [\"outside {outside}\"]"));
    }
    let call = json!({"command": format!("echo EVIL-4711 > '{outside}/file'"), "outside": [outside]});
    let output = place.agent(trial.sandbox, &[tool("shell", call)], &["--mode", "full"]);
    Observation::new(place.read("outside/file").contains(EVIL), printed(&output))
}

/// The rule allows another directory, and the path leads from there to this one.
fn try_outside_by_link(trial: Trial) -> Observation {
    let place = Place::new();
    place.write("allowed/x", "");
    std::os::unix::fs::symlink(place.path("outside"), place.path("allowed/link")).expect("a link");
    let allowed = if trial.guard == Guard::On { "allowed" } else { "outside" };
    set_rules(&place, &format!("allow = [\"outside {}\"]", place.text(allowed)));
    let (outside, by_link) = (place.text("outside"), place.text("allowed/../allowed/link"));
    let call = json!({"command": format!("echo EVIL-4711 > '{outside}/file'"), "outside": [by_link]});
    let output = place.agent(trial.sandbox, &[tool("shell", call)], &["--mode", "full"]);
    Observation::new(place.read("outside/file").contains(EVIL), printed(&output))
}

fn try_host(trial: Trial) -> Observation {
    try_host_with(trial, "allow = [\"command *\"]")
}

fn try_host_by_wildcard(trial: Trial) -> Observation {
    try_host_with(trial, "allow = [\"command *\", \"host *\"]")
}

fn try_host_with(trial: Trial, rules: &str) -> Observation {
    let place = Place::new();
    let server = TcpListener::bind("127.0.0.1:0").expect("a port");
    server.set_nonblocking(true).expect("a socket");
    let host = format!("localhost:{}", server.local_addr().expect("bound").port());
    match trial.guard {
        Guard::On => set_rules(&place, rules),
        Guard::Off => set_rules(&place, &format!("allow = [\"host {host}\"]")),
    }
    let line = format!(
        "bash -c 'exec 3<>/dev/tcp/127.0.0.1/4128; printf \"CONNECT {host} HTTP/1.1\\r\\n\\r\\n\" >&3; head -1 <&3'"
    );
    let call = json!({"command": line, "hosts": [host]});
    let output = place.agent(trial.sandbox, &[tool("shell", call)], &["--mode", "full"]);
    Observation::new(server.accept().is_ok(), printed(&output))
}

fn try_project(trial: Trial, rules: &str) -> Observation {
    let place = Place::new();
    place.write("work/rath.toml", rules);
    // The mode of the user is the stricter one, as long as the project is not trusted.
    let trust = if trial.guard == Guard::Off { printed(&place.rath(&["config", "trust"])) } else { String::new() };
    let is_mode = rules.contains("mode");
    let mode: &[&str] = if is_mode && trial.guard == Guard::Off { &["--mode", "full"] } else { &["--mode", "ask"] };
    let output = place.agent(trial.sandbox, &[shell("echo EVIL-4711 > file")], mode);
    Observation::new(place.read("work/file").contains(EVIL), format!("{trust}{}", printed(&output)))
}

fn try_changed_project(trial: Trial) -> Observation {
    let place = Place::new();
    let broad = "[permissions]\nallow = [\"command *\", \"write *\"]\n";
    place.write(
        "work/rath.toml",
        if trial.guard == Guard::On { "[permissions]\nallow = [\"command ls\"]\n" } else { broad },
    );
    let trust = printed(&place.rath(&["config", "trust"]));
    place.write("work/rath.toml", broad);
    let output = place.agent(trial.sandbox, &[shell("echo EVIL-4711 > file")], &["--mode", "ask"]);
    Observation::new(place.read("work/file").contains(EVIL), format!("{trust}{}", printed(&output)))
}

/// The first run writes rules that allow everything, the second makes use of them.
fn try_configuration_inside(trial: Trial) -> Observation {
    let place = Place::new();
    let inside = if trial.guard == Guard::On { "work/config" } else { "elsewhere" };
    let rules = "[permissions]\nallow = [\"command *\", \"write *\"]\n";
    place.write(&format!("{inside}/rath/config.toml"), rules);
    let turn = json!({"calls": [shell("echo EVIL-4711 > file")]});
    let [model, script] = place.script(&[turn]);
    let run = ["run", "Go.", &model, &script, "--sandbox", trial.sandbox.uri(), "--mode", "ask"];
    let output = place.command(&run).env("XDG_CONFIG_HOME", place.path(inside)).output().expect("rath runs");
    Observation::new(place.read("work/file").contains(EVIL), printed(&output))
}

/// Lets a tool write the user's own files, which give permissions. Without the guard they are another user's.
fn try_own_files(trial: Trial, directory: &str, file: &str) -> Observation {
    let place = Place::new();
    place.write("home/.config/rath/config.toml", "[permissions]\nmode = \"workspace\"\n");
    place.write(&format!("home/{directory}/{file}"), "mine");
    if directory == "dotfiles" {
        let link = place.path("home/.config/rath/config.toml");
        place.write("home/dotfiles/config.toml", "[permissions]\nmode = \"workspace\"\n");
        std::fs::remove_file(&link).expect("removed");
        std::os::unix::fs::symlink(place.path("home/dotfiles/config.toml"), link).expect("a link");
    }
    let turn = json!({"calls": [write(file)]});
    let [model, script] = place.script(&[turn]);
    let store = format!("sqlite:{}", place.text("outside/rath.db"));
    let run = ["run", "Go.", &model, &script, "--sandbox", trial.sandbox.uri(), "--mode", "full", "--store", &store];
    let mut command = place.command(&run);
    command.current_dir(place.path("home").join(directory)).env_remove("XDG_DATA_HOME");
    if trial.guard == Guard::Off {
        command.env("HOME", place.path("outside"));
    }
    let output = command.output().expect("rath runs");
    Observation::new(place.read(&format!("home/{directory}/{file}")).contains(EVIL), printed(&output))
}

/// Names the directory of a project by a link. Without the guard the project has no rules.
fn try_linked_project(trial: Trial) -> Observation {
    let place = Place::new();
    std::fs::create_dir_all(place.path("work/.git")).expect("made");
    if trial.guard == Guard::On {
        place.write("work/rath.toml", "[permissions]\ndeny = [\"tool write_file\"]\n");
    }
    std::os::unix::fs::symlink(place.path("work/below"), place.path("linked")).expect("a link");
    let kind = trial.sandbox.uri().trim_end_matches('.');
    let sandbox = format!("{kind}{}", place.text("linked"));
    let [model, script] = place.script(&[json!({"calls": [write("file")]})]);
    let output = place.rath(&["run", "Go.", &model, &script, "--sandbox", &sandbox, "--mode", "full"]);
    Observation::new(place.read("work/below/file").contains(EVIL), printed(&output))
}

/// Reads the file that a session is saved in. Without the guard the session is in a store, and the file is any other.
fn try_file_store(trial: Trial) -> Observation {
    let place = Place::new();
    let session = place.text("work/session.rath");
    let first = place.agent(trial.sandbox, &[], &["--store", &format!("file:{session}")]);
    assert!(first.status.success(), "{}", printed(&first));
    let (file, other) = (format!("file:{session}"), format!("sqlite:{}", place.text("outside/rath.db")));
    let store = if trial.guard == Guard::On { file } else { other };
    let output = place.agent(trial.sandbox, &[shell(&format!("cat '{session}'"))], &["--store", &store]);
    let text = results(&output);
    Observation::new(text.contains("rath record"), text)
}

fn try_resume(trial: Trial) -> Observation {
    let place = Place::new();
    let first = with_guard(trial.guard, &["--mode", "read-only"], &["--mode", "full"]);
    let before = place.agent(trial.sandbox, &[shell("true")], &first);
    let session = place.session();
    let [model, script] = place.script(&[json!({"calls": [shell("echo EVIL-4711 > file")]})]);
    let output = place.rath(&["resume", &session, "More.", &model, &script]);
    Observation::new(place.read("work/file").contains(EVIL), printed(&before) + &printed(&output))
}

fn try_typed_before(trial: Trial) -> Observation {
    let place = Place::new();
    let calls = ["one", "two"].map(|name| json!({"calls": [shell(&format!("echo x > {name}"))]}));
    let [model, script] = place.script(&calls);
    let run = ["run", "Go.", &model, &script, "--sandbox", trial.sandbox.uri(), "--mode", "ask"];
    let mut terminal = Terminal::start(place.command(&run));
    match trial.guard {
        Guard::On => {
            terminal.answer("allow it?", 1, "y\ny\ny");
            terminal.answer("allow it?", 2, "n");
        }
        Guard::Off => {
            terminal.answer("allow it?", 1, "y");
            terminal.answer("allow it?", 2, "y");
        }
    }
    let (screen, _) = terminal.finish();
    Observation::new(place.path("work/two").exists(), screen)
}

/// Makes a repository with a hook, and returns its project.
fn repository() -> Place {
    use std::os::unix::fs::PermissionsExt as _;
    let place = Place::new();
    for words in
        [&["init", "-q"][..], &["config", "user.name", "Ann"], &["config", "user.email", "ann@example.invalid"]]
    {
        let done = rath_test_support::git().args(words).current_dir(place.path("work")).status();
        assert!(done.expect("git runs").success());
    }
    place.write("work/.git/hooks/pre-commit", "#!/bin/sh\ntouch pwned\n");
    let hook = place.path("work/.git/hooks/pre-commit");
    std::fs::set_permissions(hook, std::fs::Permissions::from_mode(0o755)).expect("a mode");
    place
}

fn try_commit_hook(trial: Trial) -> Observation {
    let place = repository();
    set_rules(&place, "allow = [\"tool commit\"]");
    let text = match trial.guard {
        Guard::On => {
            printed(&place.agent(trial.sandbox, &[tool("commit", json!({"message": "All."}))], &["--mode", "full"]))
        }
        Guard::Off => {
            let line = "git add . && git commit -qm All.";
            let mut program = rath_test_support::git();
            let done = program.args(["-c", &format!("alias.x=!{line}"), "x"]).current_dir(place.path("work")).output();
            printed(&done.expect("git runs"))
        }
    };
    let log = rath_test_support::git().args(["log", "--format=%s"]).current_dir(place.path("work")).output();
    assert!(printed(&log.expect("git runs")).contains("All."), "it was committed: {text}");
    Observation::new(place.path("work/pwned").exists(), text)
}

fn try_commit_message(trial: Trial) -> Observation {
    let place = repository();
    set_rules(&place, "allow = [\"tool commit\"]");
    let message = "$(touch injected) `touch injected`";
    let call = match trial.guard {
        Guard::On => tool("commit", json!({"message": message})),
        Guard::Off => shell(&format!("echo \"{message}\"")),
    };
    let output = place.agent(trial.sandbox, &[call], &["--mode", "full"]);
    Observation::new(place.path("work/injected").exists(), printed(&output))
}

/// A filter of a repository below changes the settings of the repository above, whose next command of git runs a program outside.
fn try_commit_filter(trial: Trial) -> Observation {
    let place = repository();
    set_rules(&place, "allow = [\"tool commit\", \"tool shell\"]");
    let prepare = "printf '#!/bin/sh\\nprintf ../evil > ../.git/commondir; cat\\n' > filter.sh; chmod +x filter.sh; \
         mkdir evil; cp -r .git/objects .git/refs .git/HEAD .git/config evil; \
         git config -f evil/config core.fsmonitor 'touch ../pwned;false'; \
         git init -q sub; cd sub; echo one > file; echo 'file filter=x' > .gitattributes; \
         git config user.name x; git config user.email x@x; git add .; git commit -qm x; \
         git config filter.x.clean ../filter.sh";
    let commit = |arguments: Value| match trial.guard {
        Guard::On => tool("commit", arguments),
        Guard::Off => shell("git -c core.hooksPath=/dev/null add -A; git -c core.hooksPath=/dev/null commit -qm x"),
    };
    let change = shell("echo two > sub/file; echo two > file");
    let sandbox = if trial.guard == Guard::On { trial.sandbox } else { SandboxKind::Local };
    let (all, one) = (json!({"message": "One."}), json!({"message": "Two.", "paths": ["file"]}));
    let calls = [shell(prepare), commit(all.clone()), change, commit(all), commit(one)];
    let text = printed(&place.agent(sandbox, &calls, &["--mode", "full"]));
    let git = |words: &[&str]| {
        let done = rath_test_support::git().args(words).current_dir(place.path("work")).output();
        printed(&done.expect("git runs"))
    };
    let status = git(&["status"]);
    if trial.guard == Guard::On {
        let log = git(&["log", "--format=%s"]);
        assert!(log.contains("Two."), "it was committed: {log}{status}{text}");
    }
    Observation::new(place.path("pwned").exists(), text + &status)
}
