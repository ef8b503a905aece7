//! A table of attacks. Each is made twice: with its guard, where no harm is done, and without it, where the harm is done.
//!
//! The second run shows that the first is no empty promise: the attack is a real one, and the observation finds its harm. The
//! table is run as root and as an ordinary user, and in each sandbox in which the guard is promised to hold.

mod branches;
mod changed_links;
mod file_paths;
mod file_races;
mod fork_shares;
mod guarded_files;
mod guests;
mod hidden_commits;
mod hidden_edits;
mod home;
mod ignored_files;
mod key_place;
mod limits;
mod linked_names;
mod mounted_twice;
mod open_calls;
mod other_dirs;
mod permissions;
mod place;
mod planted;
mod put_back;
mod secrets;
mod shell_lines;
mod spool;
mod terminal;
mod wall_files;
mod wall_kernel;
mod wall_network;
mod wall_own;
mod wall_processes;
mod walls;

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::program_path;

/// An attack, and the guard that prevents its harm.
pub(super) struct Attack {
    name: &'static str,
    plane: Plane,
    holds_in: HoldsIn,
    users: Users,
    /// Makes the attack, and observes its harm. The observation is the same with and without the guard.
    attempt: Box<dyn Fn(Trial) -> Observation + Send + Sync>,
}

/// The part of the program whose guard an attack tries. Each has its own way to be without the guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Plane {
    /// Walls around commands. Without them: the same command in `local:`.
    Walls,
    /// File tools that stay in their directory. Without them: `std::fs` on the joined path.
    FileTools,
    /// Modes and rules. Without them: `--mode full`, or no such rule.
    Permissions,
    /// Sessions of others. Without the guard: the same session after `rath adopt`, or the user's own.
    Guests,
    /// Entries in `.rath` that came from elsewhere. Without the guard: a program that opens them by their path.
    Planted,
    /// Calls that were not started. Without the guard: the same call before the user said something else.
    OpenCalls,
    /// Text on the terminal. Without the guard: the bytes as they were sent.
    Terminal,
    /// Secrets. Without the guard: a value that rath does not know.
    Secrets,
    /// Bounds on what others send. Without them: the same shape below the bound, or the naive algorithm.
    Limits,
    /// Edits that an agent tries to hide. Without the guard: a file that was ignored from the beginning.
    HiddenEdits,
}

/// The sandboxes in which a guard is promised to hold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum HoldsIn {
    /// `isolated:`; in `local:` the promise is not made.
    Isolated,
    Both,
    /// No sandbox takes part.
    None,
}

/// The users that can make an attack without its guard.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Users {
    All,
    /// The reason is that the kernel refuses an ordinary user even without the guard.
    RootOnly(&'static str),
}

/// One run of an attack.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trial {
    guard: Guard,
    sandbox: SandboxKind,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Guard {
    On,
    Off,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum SandboxKind {
    Local,
    Isolated,
}

/// The outcome of a run: the harm that was observed, or none, and what a reader of a failure wants to see.
pub(super) struct Observation {
    harm: bool,
    details: String,
}

/// The number of characters of the details that are shown: the last ones, which have the errors.
const MAX_DETAILS: usize = 600;

impl Attack {
    fn new(
        name: &'static str,
        plane: Plane,
        holds_in: HoldsIn,
        attempt: impl Fn(Trial) -> Observation + Send + Sync + 'static,
    ) -> Self {
        Attack { name, plane, holds_in, users: Users::All, attempt: Box::new(attempt) }
    }

    /// Leaves the attack to root, for a reason.
    fn by(mut self, users: Users) -> Self {
        self.users = users;
        self
    }

    fn title(&self) -> String {
        format!("{:?}: {}", self.plane, self.name)
    }

    /// Makes the attack with and without the guard, and returns the reason if one of the observations is wrong.
    fn check(&self) -> Result<(), String> {
        if matches!(self.users, Users::RootOnly(_)) && !is_root() {
            return Ok(());
        }
        let sandboxes: &[SandboxKind] = match self.holds_in {
            HoldsIn::Isolated => &[SandboxKind::Isolated],
            HoldsIn::Both => &[SandboxKind::Local, SandboxKind::Isolated],
            HoldsIn::None => &[SandboxKind::Local],
        };
        for sandbox in sandboxes {
            let observe = |guard: Guard| {
                let attempt = || (self.attempt)(Trial { guard, sandbox: *sandbox });
                catch_unwind(AssertUnwindSafe(attempt)).map_err(|_| format!("{}: {guard:?} panicked", self.name))
            };
            let (with, without) = (observe(Guard::On)?, observe(Guard::Off)?);
            if with.harm || !without.harm {
                return Err(format!(
                    "{} ({sandbox:?}, {:?})\n  with the guard: {with}\n  without it: {without}\n",
                    self.title(),
                    self.users
                ));
            }
        }
        Ok(())
    }
}

impl std::fmt::Display for Observation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", if self.harm { "harm" } else { "no harm" }, self.details)
    }
}

impl Observation {
    pub(super) fn new(harm: bool, details: impl std::fmt::Debug) -> Self {
        let details = format!("{details:?}");
        let start = details.char_indices().rev().nth(MAX_DETAILS).map_or(0, |(at, _)| at);
        Observation { harm, details: details[start..].to_owned() }
    }
}

impl SandboxKind {
    /// Returns the URI of a sandbox of this kind in the current directory.
    pub(super) fn uri(self) -> &'static str {
        match self {
            SandboxKind::Local => "local:.",
            SandboxKind::Isolated => "isolated:.",
        }
    }
}

/// Returns the table.
fn attacks() -> Vec<Attack> {
    let planes = [
        wall_files::attacks(),
        wall_own::attacks(),
        wall_network::attacks(),
        wall_processes::attacks(),
        wall_kernel::attacks(),
        file_paths::attacks(),
        file_races::attacks(),
        permissions::attacks(),
        shell_lines::attacks(),
        guarded_files::attacks(),
        ignored_files::attacks(),
        fork_shares::attacks(),
        linked_names::attacks(),
        changed_links::attacks(),
        put_back::attacks(),
        home::attacks(),
        mounted_twice::attacks(),
        other_dirs::attacks(),
        spool::attacks(),
        key_place::attacks(),
        hidden_commits::attacks(),
        guests::attacks(),
        planted::attacks(),
        open_calls::attacks(),
        terminal::attacks(),
        secrets::attacks(),
        limits::attacks(),
        hidden_edits::attacks(),
    ];
    planes.into_iter().flatten().collect()
}

pub(super) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The time after which an attack is named as a slow one.
const SLOW: std::time::Duration = std::time::Duration::from_secs(3);

/// Makes all attacks, as many at a time as there are processors. `RATH_ATTACK` chooses those with a text in their plane and name,
/// such as `Limits: ` or `a link`.
fn run_table() {
    let chosen = std::env::var("RATH_ATTACK").unwrap_or_default();
    let attacks: Vec<_> = attacks().into_iter().filter(|attack| attack.title().contains(&chosen)).collect();
    let (next, failures, times) = (AtomicUsize::new(0), Mutex::new(Vec::new()), Mutex::new(BTreeMap::new()));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from).max(2) {
            scope.spawn(|| {
                while let Some(attack) = attacks.get(next.fetch_add(1, Relaxed)) {
                    let start = std::time::Instant::now();
                    if let Err(failure) = attack.check() {
                        failures.lock().expect("no thread panics").push(failure);
                    }
                    if start.elapsed() > SLOW {
                        eprintln!("{} takes {:.1?}", attack.title(), start.elapsed());
                    }
                    let mut times = times.lock().expect("no thread panics");
                    let (count, time) = times.entry(attack.plane).or_insert((0, std::time::Duration::ZERO));
                    *count += 1;
                    *time += start.elapsed();
                }
            });
        }
    });
    for (plane, (count, time)) in times.into_inner().expect("no thread panics") {
        eprintln!("{plane:?}: {count} attacks in {time:.1?}");
    }
    let failures = failures.into_inner().expect("no thread panics");
    assert!(failures.is_empty(), "{} of {} attacks:\n{}", failures.len(), attacks.len(), failures.concat());
}

#[test]
fn the_table_has_two_hundred_attacks_with_names_of_their_own() {
    let attacks = attacks();
    let names: std::collections::BTreeSet<_> = attacks.iter().map(|attack| attack.name).collect();
    assert_eq!(names.len(), attacks.len(), "each name occurs once");
    let for_all = attacks.iter().filter(|attack| attack.users == Users::All).count();
    assert!(for_all >= 200, "{for_all} attacks that any user can make, {} in all", attacks.len());
}

#[test]
fn no_attack_does_harm_with_its_guard_and_each_does_without() {
    run_table();
}

/// The user and the group of the ordinary user, which own no file on most machines.
const ORDINARY_ID: u32 = 65_534;

#[test]
fn no_attack_on_an_ordinary_user_does_harm() {
    if !is_root() {
        return eprintln!("this is an ordinary user");
    }
    // The ordinary user has no way into the directory of the build.
    let folder = rath_test_support::temp_dir();
    let open_to_all = |path: &std::path::Path| {
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).expect("a mode");
    };
    open_to_all(folder.path());
    let copy = |from: PathBuf, name: &str| {
        let to = folder.path().join(name);
        std::fs::copy(from, &to).expect("copied");
        open_to_all(&to);
        to
    };
    let tests = copy(std::env::current_exe().expect("this program has a path"), "tests");
    let program = copy(program_path(), "rath");
    let home = folder.path().join("home");
    std::fs::create_dir(&home).expect("made");
    std::os::unix::fs::chown(&home, Some(ORDINARY_ID), Some(ORDINARY_ID)).expect("given away");
    let mut child = rath_test_support::program(tests);
    child.args(["--exact", "attacks::child", "--ignored", "--nocapture"]).current_dir(&home);
    child.env("HOME", &home).env("XDG_DATA_HOME", home.join("data")).env("RATH_TEST_PROGRAM", program);
    child.envs(std::env::var_os("RATH_ATTACK").map(|value| ("RATH_ATTACK", value)));
    let output = child.uid(ORDINARY_ID).gid(ORDINARY_ID).output().expect("it starts");
    let text = String::from_utf8_lossy(&output.stderr);
    eprintln!("{text}");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
#[ignore = "started by the test above, as an ordinary user"]
fn child() {
    if !is_root() {
        run_table();
    }
}
