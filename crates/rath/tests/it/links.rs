//! Links and guarded names: after every call, a name that a rule or the list guards leads to the content that it led to before.
//!
//! `RATH_SCRIPTS` sets how many programs are made up and run, and `RATH_SEED` the seed of the first.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use rath::prelude::*;
use rath_test_support::{Chance, seeds};

use crate::support::{block_on, script};

/// Names that make up the paths of a program: two that are guarded by themselves or together, or that exempt from that.
const NAMES: [[&str; 4]; 3] =
    [["a", "b", ".github", "workflows"], ["a", "b", ".envrc", "out"], ["a", "b", "config", "prod.yml"]];
/// For each of them, two changes by which a content that a call wrote gets a guarded name. Others are made before and between.
const SCHEMES: [[&str; 2]; 3] = [
    ["write a/workflows/b evil", "link .github a"],
    ["write out/.envrc evil", "link b out"],
    ["write a/prod.yml evil", "link config a"],
];
/// The longest name through links that is looked at, in names.
const MAX_DEPTH: usize = 4;

/// Change files in a directory: a line of words for each change.
#[tool]
async fn change(root: String, lines: String) -> &'static str {
    lines.lines().for_each(|line| make(Path::new(&root), line));
    "changed"
}

/// Makes one change, in place of what stands in its way. One that is not possible changes nothing.
fn make(root: &Path, line: &str) {
    let words: Vec<_> = line.split(' ').collect();
    let path = |nth: usize| root.join(words[nth]);
    let remove = |path: &Path| drop(fs::remove_file(path).or_else(|_| fs::remove_dir_all(path)));
    let make_dirs = |path: &Path| {
        if let Some(file) = path.ancestors().find(|above| above.is_file() && above.starts_with(root)) {
            remove(file);
        }
        drop(fs::create_dir_all(path));
    };
    match words[0] {
        "mkdir" => make_dirs(&path(1)),
        "remove" => remove(&path(1)),
        kind => {
            let to = if kind == "rename" { path(2) } else { path(1) };
            make_dirs(to.parent().expect("a directory"));
            match kind {
                "write" => drop(fs::write(to, words[2])),
                "link" => {
                    remove(&to);
                    drop(symlink(words[2], to));
                }
                _ => drop(fs::rename(path(1), to)),
            }
        }
    }
}

/// A program that is made up.
struct Program {
    chance: Chance,
    names: [&'static str; 4],
}

impl Program {
    fn path(&mut self) -> String {
        let names = 1 + self.chance.below(8) / 4 + self.chance.below(8) / 7;
        (0..names).map(|_| self.names[self.chance.below(4) as usize]).collect::<Vec<_>>().join("/")
    }

    fn change(&mut self, text: &str) -> String {
        let (path, other) = (self.path(), self.path());
        match self.chance.below(10) {
            0..4 => format!("write {path} {text}"),
            4 => format!("mkdir {path}"),
            5..8 => {
                let up = ["", "", "../", "a/../"][self.chance.below(4) as usize];
                format!("link {path} {up}{other}")
            }
            8 => format!("rename {path} {other}"),
            _ => format!("remove {path}"),
        }
    }

    fn changes(&mut self, most: u64, text: &str) -> Vec<String> {
        (0..1 + self.chance.below(most)).map(|nth| self.change(&format!("{text}{nth}"))).collect()
    }
}

/// Returns true if a rule or the list guards a name.
fn is_guarded(name: &str) -> bool {
    let names: Vec<_> = name.split('/').collect();
    // What is listed runs nowhere below a directory that git ignores.
    let listed = &names[..names.iter().position(|name| *name == "out").unwrap_or(names.len())];
    let is_in_workflows = listed.windows(2).any(|pair| pair == [".github", "workflows"]);
    let is_listed = names.len() == listed.len() && names.last() == Some(&".envrc");
    is_listed || is_in_workflows || name == "config/prod.yml"
}

/// Returns the names of all files in the directory, also through links, with their contents.
fn contents(root: &Path) -> BTreeMap<String, String> {
    let top = root.canonicalize().expect("a directory");
    let is_inside = |path: &Path| path.canonicalize().is_ok_and(|path| path.starts_with(&top));
    let (mut found, mut rest) = (BTreeMap::new(), vec![String::new()]);
    while let Some(above) = rest.pop() {
        for entry in fs::read_dir(root.join(&above)).into_iter().flatten().flatten() {
            let name = entry.file_name().into_string().expect("text");
            let name = if above.is_empty() { name } else { format!("{above}/{name}") };
            let path = root.join(&name);
            if name == ".rath" || !is_inside(&path) {
            } else if path.is_dir() && name.split('/').count() < MAX_DEPTH {
                rest.push(name);
            } else if let Ok(text) = fs::read_to_string(path) {
                found.insert(name, text);
            }
        }
    }
    found
}

/// Runs calls of `change` in a directory, each a turn.
fn run_calls(root: &Path, calls: &[String]) -> Session {
    let turns = calls.iter().map(|lines| {
        let arguments = serde_json::json!({"root": root, "lines": lines});
        serde_json::json!({"calls": [{"name": "change", "arguments": arguments}]}).to_string()
    });
    let agent = Agent::new("Go.", &script(turns.chain([r#"{"text": "done"}"#.to_owned()]))).tool(change);
    let policy = Policy::new(Mode::Workspace)
        .rule("allow tool change".parse().expect("a rule"))
        .rule("deny write /config/prod.yml".parse().expect("a rule"));
    let session = block_on(agent.run(Session::user("go").to(Sandbox::local(root)).under(policy)));
    session.unwrap_or_else(|error| panic!("{error}: {calls:#?}"))
}

#[test]
fn links_by_which_no_file_gains_or_loses_a_guard_stay() {
    let folder = rath_test_support::temp_dir();
    let root = folder.path();
    for file in [".git/HEAD", ".git/COMMIT_EDITMSG", ".envrc", ".github/workflows/ci.yml", "vendor/lib/.git/config"] {
        make(root, &format!("write {file} mine"));
    }
    make(root, "write .gitignore node_modules/");
    let mut links = vec!["link here .", "link packages/up ..", "link node_modules/own ..", "link lib vendor/lib"]
        .into_iter()
        .map(str::to_owned)
        .collect::<Vec<_>>();
    // Each of twenty packages has links to others, which have links to others.
    for package in 0..20 {
        links.push(format!("write packages/p{package}/index.js text"));
        let others = (1..7).map(|other| (package + other * 3) % 20);
        links.extend(others.map(|other| format!("link packages/p{package}/node_modules/p{other} ../../p{other}")));
    }
    let session = run_calls(root, &[links.join("\n"), "write done text".to_owned()]);
    let log = crate::support::log(&session);
    assert!(!log.contains("put back"), "{log}");
    assert!(root.join("packages/p3/node_modules/p6/index.js").is_file() && root.join("here/done").is_file());
}

#[test]
fn a_guarded_name_leads_to_the_same_content_after_every_call() {
    let mut put_back = 0;
    for seed in seeds(100) {
        let names = NAMES[(seed % NAMES.len() as u64) as usize];
        let mut program = Program { chance: Chance(seed), names };
        let folder = rath_test_support::temp_dir();
        let root = folder.path();
        let setup = program.changes(10, "mine");
        fs::write(root.join(".gitignore"), "out/\n").expect("a file");
        setup.iter().for_each(|line| make(root, line));
        let mut calls: Vec<_> = (0..4).map(|_| program.changes(3, "evil").join("\n")).collect();
        let scheme = SCHEMES[(seed % NAMES.len() as u64) as usize];
        calls.insert(program.chance.below(3) as usize, scheme[0].to_owned());
        calls.insert(3 + program.chance.below(3) as usize, scheme[1].to_owned());
        let before = contents(root);
        let session = run_calls(root, &calls);
        put_back += usize::from(crate::support::log(&session).contains("(put back: "));
        for (name, text) in contents(root).iter().filter(|(name, _)| is_guarded(name)) {
            // A guarded name that led nowhere may lead to a file of the user's now, and never to one of a call.
            let is_same = before.get(name) == Some(text);
            let is_new = || !before.contains_key(name) && text.starts_with("mine");
            assert!(is_same || is_new(), "seed {seed}: {name} is {text}\n{setup:#?}\n{calls:#?}");
        }
    }
    let programs = seeds(100).count();
    assert!(put_back * 2 > programs || programs < 100, "only {put_back} programs had something put back");
}
