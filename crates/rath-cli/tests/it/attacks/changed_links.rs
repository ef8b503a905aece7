//! Links that commands make, change or remove, so that a guarded name leads to another file, or a file loses its rule.
//!
//! Each call changes no guarded file by itself. Without the guard the same calls are made without the rule, or in mode full.

use super::place::{CANARY, EVIL, Place, printed, results, shell, tool, with_guard};
use super::{Attack, Guard, HoldsIn, Observation, Plane, Trial};

pub(super) fn attacks() -> Vec<Attack> {
    let listed = LISTED.iter().map(|(name, guarded, lines)| {
        Attack::new(name, Plane::Permissions, HoldsIn::Isolated, move |trial| try_listed(trial, guarded, lines))
    });
    let written = WRITTEN.iter().map(|(name, rule, guarded, lines)| {
        Attack::new(name, Plane::Permissions, HoldsIn::Both, move |trial| try_written(trial, rule, guarded, lines))
    });
    let read = READ.iter().map(|(name, rule, lines)| {
        Attack::new(name, Plane::Permissions, HoldsIn::Both, move |trial| try_read(trial, rule, lines))
    });
    listed.chain(written).chain(read).collect()
}

/// Returns a directory with links to links, through links, to missing files and back up.
fn place() -> Place {
    let place = Place::new();
    place.write("work/.gitignore", "target/\n/now\n");
    for (path, text) in
        [("conf/env.sh", "mine\n"), ("r42/env", CANARY), ("d/keep", "mine\n"), ("x", "mine\n"), ("gh/keep", "mine\n")]
    {
        place.write(&format!("work/{path}"), text);
    }
    for (link, target) in [
        (".envrc", "a"),
        ("a", "conf/env.sh"),
        (".profile", "current/env"),
        (".env", "current/env"),
        ("current", "r42"),
        // An ignored link has no version.
        (".bashrc", "now/env"),
        ("now", "r42"),
        (".npmrc", "missing/b/npm"),
        (".vimrc", "d/../x"),
        ("spare", "gh"),
        ("vault", "current"),
    ] {
        place.link(link, target);
    }
    place
}

type ListedRow = (&'static str, &'static str, &'static [&'static str]);

/// Lines by which a name that other programs run leads to a file of the attacker.
const LISTED: &[ListedRow] = &[
    ("a link behind a guarded link replaced", ".envrc", &["echo EVIL-4711 > new.sh", "ln -sfn new.sh a"]),
    ("a link behind a guarded link replaced at once", ".envrc", &["echo EVIL-4711 > new.sh; ln -sfn new.sh a"]),
    ("a link behind a guarded link that is a file now", ".envrc", &["rm a; echo EVIL-4711 > a"]),
    (
        "a directory on the way of a guarded link replaced",
        ".profile",
        &["mkdir r43; echo EVIL-4711 > r43/env", "ln -sfn r43 current"],
    ),
    (
        "a link on the way that is a directory now",
        ".profile",
        &["rm current; mkdir current; echo EVIL-4711 > current/env"],
    ),
    (
        "a link on the way that is removed first",
        ".profile",
        &["mkdir r43; echo EVIL-4711 > r43/env", "rm current", "ln -s r43 current"],
    ),
    ("an ignored link on the way replaced", ".bashrc", &["mkdir r43; echo EVIL-4711 > r43/env", "ln -sfn r43 now"]),
    (
        "a missing directory on the way that is a link now",
        ".npmrc",
        &["mkdir -p evil/b; echo EVIL-4711 > evil/b/npm", "ln -s evil missing"],
    ),
    ("a missing directory on the way created", ".npmrc", &["mkdir -p missing/b; echo EVIL-4711 > missing/b/npm"]),
    (
        "a directory below which a guarded link goes up",
        ".vimrc",
        &["mkdir -p evil/deep; echo EVIL-4711 > evil/x", "rm -r d; ln -s evil/deep d"],
    ),
    (
        "a guarded directory by a new link",
        ".github/workflows/x.yml",
        &["mkdir gh/workflows; echo EVIL-4711 > gh/workflows/x.yml", "ln -s gh .github"],
    ),
    (
        "a guarded directory by a new link, at once",
        ".github/workflows/x.yml",
        &["mkdir gh/workflows; echo EVIL-4711 > gh/workflows/x.yml; ln -s gh .github"],
    ),
    (
        "a guarded directory by a new link, filled later",
        ".github/workflows/x.yml",
        &["ln -s gh .github", "mkdir gh/workflows; echo EVIL-4711 > gh/workflows/x.yml"],
    ),
    (
        "a guarded directory by a renamed link",
        ".github/workflows/x.yml",
        &["mkdir gh/workflows; echo EVIL-4711 > gh/workflows/x.yml", "mv spare .github"],
    ),
    (
        "a guarded directory by a link in a new link",
        ".github/workflows/x.yml",
        &["mkdir one two; echo EVIL-4711 > two/x.yml; ln -s ../two one/workflows", "ln -s one .github"],
    ),
    (
        "a guarded directory by a hundred links before it",
        ".github/workflows/x.yml",
        &[
            "for n in $(seq 100); do ln -s gh ..$n; done; ln -s gh .github",
            "mkdir gh/workflows; echo EVIL-4711 > gh/workflows/x.yml",
        ],
    ),
    (
        "a listed file among build results by a new link",
        "sub/.envrc",
        &["mkdir -p target; touch target/one; echo EVIL-4711 > target/.envrc", "ln -s target sub"],
    ),
    (
        "a listed file among many build results by a new link",
        "sub/.envrc",
        &[
            "mkdir -p target/debug; cd target/debug; touch $(seq 11000); echo EVIL-4711 > .envrc",
            "ln -s target/debug sub",
        ],
    ),
];

fn try_listed(trial: Trial, guarded: &str, lines: &[&str]) -> Observation {
    let place = place();
    let calls: Vec<_> = lines.iter().map(|line| shell(line)).collect();
    let mode = with_guard(trial.guard, &["--mode", "workspace"], &["--mode", "full"]);
    let output = place.agent(trial.sandbox, &calls, &mode);
    Observation::new(found_at(&place, guarded).contains(EVIL), printed(&output))
}

type WrittenRow = (&'static str, &'static str, &'static str, &'static [&'static str]);

/// Lines by which a path that a rule protects has another content.
const WRITTEN: &[WrittenRow] = &[
    (
        "a protected path by a link that leads back",
        "write /config/sub/prod.yml",
        "config/sub/prod.yml",
        &["mkdir e; echo EVIL-4711 > e/prod.yml; ln -s . e/sub", "ln -s e config"],
    ),
    (
        "a protected path by a dozen links",
        "write /config/**/prod.yml",
        "config/n/n/n/n/n/n/n/n/n/n/n/prod.yml",
        &[
            "for n in $(seq 0 11); do mkdir d$n; ln -s ../d$((n+1)) d$n/n; done; echo EVIL-4711 > d11/prod.yml",
            "ln -s d0 config",
        ],
    ),
    (
        "a protected path by a new link",
        "write /config/prod.yml",
        "config/prod.yml",
        &["mkdir e; echo EVIL-4711 > e/prod.yml", "ln -s e config"],
    ),
    (
        "a protected path by a new link, filled later",
        "write /config/prod.yml",
        "config/prod.yml",
        &["mkdir e; ln -s e config", "echo EVIL-4711 > e/prod.yml"],
    ),
    (
        "a protected path by a hundred links before it",
        "write /config/prod.yml",
        "config/prod.yml",
        &["mkdir e; for n in $(seq 100); do ln -s e a$n; done; ln -s e config", "echo EVIL-4711 > e/prod.yml"],
    ),
    (
        "a protected file that loses its link first",
        "write .env",
        "r42/env",
        &["mkdir none; ln -sfn none current", "echo EVIL-4711 > r42/env"],
    ),
    (
        "a protected file below a link that is removed first",
        "write /vault/env",
        "r42/env",
        &["rm vault", "echo EVIL-4711 > r42/env"],
    ),
    (
        "a protected file below a link that is renamed first",
        "write /vault/env",
        "r42/env",
        &["mv vault other", "echo EVIL-4711 > r42/env"],
    ),
];

fn try_written(trial: Trial, rule: &str, guarded: &str, lines: &[&str]) -> Observation {
    let place = place();
    deny(&place, trial.guard, rule);
    let calls: Vec<_> = lines.iter().map(|line| shell(line)).collect();
    let output = place.agent(trial.sandbox, &calls, &["--mode", "full"]);
    Observation::new(found_at(&place, guarded).contains(EVIL), printed(&output))
}

type ReadRow = (&'static str, &'static str, &'static [&'static str]);

/// Lines after which a later run may read a file that a rule names by a link.
const READ: &[ReadRow] = &[
    ("a denied file that loses a directory on the way", "read .env", &["mkdir none; ln -sfn none current"]),
    ("a denied file whose link is a directory now", "read .env", &["rm current; mkdir current; touch current/env"]),
    ("a denied file below a link that is removed", "read /vault/env", &["rm vault"]),
    ("a denied file below a link that is renamed", "read /vault/env", &["mv vault other"]),
];

fn try_read(trial: Trial, rule: &str, lines: &[&str]) -> Observation {
    let place = place();
    deny(&place, trial.guard, rule);
    let calls: Vec<_> = lines.iter().map(|line| shell(line)).collect();
    place.agent(trial.sandbox, &calls, &["--mode", "full"]);
    let read = tool("read_file", serde_json::json!({"path": "r42/env"}));
    let text = results(&place.agent(trial.sandbox, &[read], &["--mode", "full"]));
    Observation::new(text.contains(CANARY), text)
}

fn deny(place: &Place, guard: Guard, rule: &str) {
    if guard == Guard::On {
        place.write("home/.config/rath/config.toml", &format!("[permissions]\ndeny = [\"{rule}\"]\n"));
    }
}

/// Returns the content that a program finds by a name in the project.
fn found_at(place: &Place, name: &str) -> String {
    std::fs::read_to_string(place.path("work").join(name)).unwrap_or_default()
}
