//! Files that other programs run unasked: hooks, settings of shells, editors and CI.
//!
//! A command leaves them behind, or a file tool writes them. Without the guard the same call is made in mode full.

use serde_json::json;

use super::place::{EVIL, Place, printed, shell, tool, with_guard};
use super::{Attack, Guard, HoldsIn, Observation, Plane, SandboxKind, Trial};

pub(super) fn attacks() -> Vec<Attack> {
    let left = LEFT_BEHIND.iter().map(|(name, file, line)| {
        Attack::new(name, Plane::Permissions, HoldsIn::Isolated, move |trial| try_command(trial, file, line))
    });
    let written = WRITTEN
        .iter()
        .map(|(name, file)| Attack::new(name, Plane::Permissions, HoldsIn::Both, move |trial| try_tool(trial, file)));
    let existing = OTHER_SPELLINGS
        .iter()
        .map(|(name, file)| Attack::new(name, Plane::Walls, HoldsIn::Isolated, move |trial| try_existing(trial, file)));
    let named = Attack::new("a build file that no one looks at", Plane::Permissions, HoldsIn::Both, try_build_file);
    let first = Attack::new("a build file behind many others", Plane::Permissions, HoldsIn::Both, try_decoys);
    left.chain(written).chain(existing).chain([named, first]).collect()
}

type LeftRow = (&'static str, &'static str, &'static str);

/// The file that is left, and the line that leaves it.
const LEFT_BEHIND: &[LeftRow] = &[
    ("settings of a shell for a directory", ".envrc", "cp b .envrc"),
    ("settings of a shell in capitals", ".Envrc", "cp b .Envrc"),
    ("settings of a shell deep below", "x/y/z/.envrc", "mkdir -p x/y/z; cp b x/y/z/.envrc"),
    ("attributes of git", ".gitattributes", "cp b .gitattributes"),
    ("modules of git", ".gitmodules", "cp b .gitmodules"),
    ("tasks of an editor", ".vscode/tasks.json", "mkdir .vscode; cp b .vscode/tasks.json"),
    ("a workspace of an editor", ".idea/workspace.xml", "mkdir .idea; cp b .idea/workspace.xml"),
    ("settings of an editor for a directory", ".exrc", "cp b .exrc"),
    ("local variables of an editor", ".dir-locals.el", "cp b .dir-locals.el"),
    ("a workflow of CI", ".github/workflows/ci.yml", "mkdir -p .github/workflows; cp b .github/workflows/ci.yml"),
    ("a pipeline of CI", ".gitlab-ci.yml", "cp b .gitlab-ci.yml"),
    ("a hook that a package manager installs", ".husky/pre-commit", "mkdir .husky; cp b .husky/pre-commit"),
    ("a list of hooks", ".pre-commit-config.yaml", "cp b .pre-commit-config.yaml"),
    (
        "a container of an editor",
        ".devcontainer/devcontainer.json",
        "mkdir .devcontainer; cp b .devcontainer/devcontainer.json",
    ),
    ("another linker", ".cargo/config.toml", "mkdir .cargo; cp b .cargo/config.toml"),
    ("another registry", ".npmrc", "cp b .npmrc"),
    ("servers of an assistant", ".mcp.json", "cp b .mcp.json"),
    ("settings of an assistant", ".claude/settings.json", "mkdir .claude; cp b .claude/settings.json"),
    ("commands of a debugger", ".gdbinit", "cp b .gdbinit"),
    ("rules of rath for the project", "rath.toml", "cp b rath.toml"),
    (
        "a new repository with a hook",
        ".git/hooks/pre-commit",
        "git init -q .; mkdir -p .git/hooks; cp b .git/hooks/pre-commit",
    ),
    (
        "a new repository below with a hook",
        "sub/.git/hooks/pre-commit",
        "mkdir sub; git init -q sub; mkdir -p sub/.git/hooks; cp b sub/.git/hooks/pre-commit",
    ),
    ("a repository of another program", ".hg/hgrc", "mkdir .hg; cp b .hg/hgrc"),
    ("a file that is ignored at once", ".envrc", "echo .envrc > .gitignore; cp b .envrc"),
    (
        "a directory that ignores itself",
        ".vscode/tasks.json",
        "mkdir .vscode; echo '*' > .vscode/.gitignore; cp b .vscode/tasks.json",
    ),
    (
        "a directory below that ignores all",
        "a/.husky/pre-push",
        "mkdir -p a/.husky; echo '*' > a/.gitignore; cp b a/.husky/pre-push",
    ),
    ("a file too large to be stored", ".envrc", "cp b .envrc; truncate -s 51M .envrc"),
    ("a pipe in the place of a file", ".envrc", "mkfifo .envrc"),
    ("a link in the place of a file", ".envrc", "ln -s b .envrc"),
    ("another name of a file", ".envrc", "ln b .envrc"),
    ("a directory moved into its place", ".vscode/tasks.json", "mkdir v; cp b v/tasks.json; mv v .vscode"),
    ("a file in a directory that cannot be listed", "x/.envrc", "mkdir x; cp b x/.envrc; chmod 311 x"),
    (
        "a file in directories that cannot be listed",
        "x/y/z/.envrc",
        "mkdir -p x/y/z; cp b x/y/z/.envrc; chmod 311 x/y/z x/y x",
    ),
    ("a file in a directory that can no longer be listed", "old/.envrc", "cp b old/.envrc; chmod 311 old"),
    ("a file in a directory that can be listed and not entered", "x/.envrc", "mkdir x; cp b x/.envrc; chmod 444 x"),
    (
        "a file below a directory that can be listed and not entered",
        "x/y/.envrc",
        "mkdir -p x/y; cp b x/y/.envrc; chmod 444 x",
    ),
    ("a directory whose name is no text", "found", "d=$(printf '\\377'); mkdir \"$d\"; cp b \"$d/.envrc\""),
];

fn try_command(trial: Trial, file: &str, line: &str) -> Observation {
    let place = Place::new();
    place.write("work/b", EVIL);
    place.write("work/old/file", "as before");
    let mode = with_guard(trial.guard, &["--mode", "workspace"], &["--mode", "full"]);
    let output = place.agent(trial.sandbox, &[shell(line)], &mode);
    let is_left = match file {
        // A name that is no text is looked for by its bytes.
        "found" => {
            let name: &std::ffi::OsStr = std::os::unix::ffi::OsStrExt::from_bytes(b"\xff");
            place.path("work").join(name).join(".envrc").exists()
        }
        file => place.path("work").join(file).symlink_metadata().is_ok(),
    };
    Observation::new(is_left, printed(&output))
}

/// Files in directories that are a `.git` or `.rath` on a file system that does not tell capitals from small letters.
const OTHER_SPELLINGS: &[WrittenRow] = &[
    ("settings of a shell in a repository in capitals", ".GIT/.envrc"),
    ("a hook in a repository in capitals below", "sub/.Git/hooks/pre-commit"),
    ("settings of a shell in a .rath in capitals", ".RATH/.envrc"),
    ("settings of a shell in a .rath in capitals below", "sub/.Rath/.envrc"),
];

/// Changes a file that is there, and leaves others beside it.
fn try_existing(trial: Trial, file: &str) -> Observation {
    let place = Place::new();
    place.write("work/b", EVIL);
    place.write(&format!("work/{file}"), "as before");
    let (directory, _) = file.rsplit_once('/').expect("a directory");
    let sandbox = if trial.guard == Guard::On { trial.sandbox } else { SandboxKind::Local };
    let line = format!("cp b {file}; cp b {directory}/.zshrc; mkdir {directory}/d; cp b {directory}/d/.envrc");
    let output = place.agent(sandbox, &[shell(&line)], &["--mode", "full"]);
    let is_changed = place.read(&format!("work/{file}")) != "as before";
    let is_left = [".zshrc", "d/.envrc"].iter().any(|name| place.path("work").join(directory).join(name).exists());
    Observation::new(is_changed || is_left, printed(&output))
}

type WrittenRow = (&'static str, &'static str);

/// Files that a file tool writes.
const WRITTEN: &[WrittenRow] = &[
    ("settings of a shell written by a tool", ".envrc"),
    ("a workflow of CI written by a tool", ".github/workflows/ci.yml"),
    ("tasks of an editor written by a tool", "below/.vscode/tasks.json"),
    ("rules of rath written by a tool", "rath.toml"),
    ("a guarded file written by a link", "link"),
];

fn try_tool(trial: Trial, file: &str) -> Observation {
    let place = Place::new();
    place.write("work/.zshrc", "# mine\n");
    place.link("link", ".zshrc");
    let mode = with_guard(trial.guard, &["--mode", "workspace"], &["--mode", "full"]);
    let call = tool("write_file", json!({"path": file, "text": EVIL}));
    let output = place.agent(trial.sandbox, &[call], &mode);
    Observation::new(place.read(&format!("work/{file}")).contains(EVIL), printed(&output))
}

/// A changed build file is named at the end of the run. Without the guard it is a file of another name.
fn try_build_file(trial: Trial) -> Observation {
    let place = Place::new();
    let file = if trial.guard == Guard::On { "Makefile" } else { "plain.txt" };
    let output = place.agent(trial.sandbox, &[shell(&format!("echo x > {file}"))], &["--mode", "full"]);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(place.path("work").join(file).exists(), "{error}");
    Observation::new(!error.contains(&format!("run these changed files: {file}")), error)
}

/// The one file that was there before is among those that are named, and so are the ones that are run unasked. Without the guard the
/// file is new, and in a directory as the others.
fn try_decoys(trial: Trial) -> Observation {
    let place = Place::new();
    let file = if trial.guard == Guard::On { "src/Makefile" } else { "zzz/Makefile" };
    place.write("work/src/Makefile", "as before");
    let decoys = "for i in 0 1 2 3 4 5 6 7 8 9 10 11; do mkdir \"#$i\"; echo x > \"#$i/Makefile\"; done";
    let line = format!("mkdir zzz; {decoys}; echo x > {file}; echo x > zzz/.envrc");
    let output = place.agent(trial.sandbox, &[shell(&line)], &["--mode", "full"]);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    let list = error.split("run these changed files: ").nth(1).unwrap_or_default();
    assert!(list.starts_with("zzz/.envrc, "), "{error}");
    Observation::new(!list.contains(file), error)
}
