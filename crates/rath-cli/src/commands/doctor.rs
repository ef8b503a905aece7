//! `rath doctor`: say what works on this machine, and how to mend the rest.
//!
//! Nothing is called ok that a command would fail for: what commands read and open is read and opened here, by their code.

mod setup;

use std::io;
use std::path::{Path, PathBuf};

use rath::gc::Gc;
use rath::record::draw::{count, one_line};
use rath::sandbox::{Capabilities, Limit, Mechanism, left_temporaries_blocking, own_data_directory};
use rath::store::Create;
use rath::workspace::ForkMethod;
use serde_json::json;

use crate::keys;
use crate::output::{self, CommandResult, Exit, Failure};
use crate::sandboxes;
use crate::sessions::{self, DEFAULT_STORE};
use crate::styled::Line;

/// The columns of a terminal that rath's lines are made for.
const COLUMNS: usize = 80;
/// The variables with the keys of providers and services.
const KEY_VARIABLES: [&str; 6] = [
    "ANTHROPIC_API_KEY",
    "GEMINI_API_KEY",
    "GOOGLE_API_KEY",
    "OPENAI_API_KEY",
    "OPENVIKING_API_KEY",
    "OPEN_SANDBOX_API_KEY",
];
/// The programs that install others, with the beginning of the command.
const INSTALLERS: [(&str, &str); 6] = [
    ("apt-get", "sudo apt-get install"),
    ("dnf", "sudo dnf install"),
    ("pacman", "sudo pacman -S"),
    ("zypper", "sudo zypper install"),
    ("apk", "sudo apk add"),
    ("brew", "brew install"),
];

/// Say what works on this machine, and how to mend the rest
///
/// One line for each part: ok, missing (rath works without it) or wrong. The exit
/// code is 1 if something is wrong. Nothing is changed: what has to be tried is
/// tried in a temporary directory, and nothing is sent but a question to the
/// engine of containers on this machine.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct DoctorArgs {
    /// Print one JSON object per part
    #[arg(long)]
    json: bool,
}

/// The state of a part.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Ok,
    /// rath works without the part.
    Missing,
    Wrong,
}

impl State {
    fn name(self) -> &'static str {
        match self {
            State::Ok => "ok",
            State::Missing => "missing",
            State::Wrong => "wrong",
        }
    }
}

/// A part that was looked at.
struct Finding {
    part: &'static str,
    state: State,
    text: String,
    hint: Option<String>,
}

impl Finding {
    fn ok(part: &'static str, text: impl Into<String>) -> Self {
        Finding { part, state: State::Ok, text: text.into(), hint: None }
    }

    fn missing(part: &'static str, text: impl Into<String>, hint: impl Into<String>) -> Self {
        Finding { part, state: State::Missing, text: text.into(), hint: Some(hint.into()) }
    }

    fn wrong(part: &'static str, failure: &Failure) -> Self {
        let text = failure.to_string();
        let (text, hint) = text.split_once("\nhint: ").unwrap_or((&text, "`rath --help` lists the commands"));
        Finding { part, state: State::Wrong, text: one_line(text), hint: Some(one_line(hint)) }
    }

    /// Returns what is wrong with a part that rath works without.
    fn unusable(part: &'static str, failure: &Failure) -> Self {
        Finding { state: State::Missing, ..Finding::wrong(part, failure) }
    }

    /// Returns the lines of the finding, wrapped between words at the width of the terminal.
    fn lines(&self) -> Vec<Line> {
        const INDENT: &str = "         ";
        let head = format!("{:<8} {}: {}", self.state.name(), self.part, one_line(&self.text));
        let hint = self.hint.iter().map(|hint| format!("{INDENT}{}", one_line(hint)));
        let lines = std::iter::once(head).chain(hint).map(Line::from);
        match output::terminal_columns() {
            Some(columns) => lines.flat_map(|line| line.wrap(columns, &INDENT.into())).collect(),
            None => lines.collect(),
        }
    }
}

pub(crate) async fn run(args: &DoctorArgs) -> CommandResult {
    // Before anything is tried: that may make and remove temporaries.
    let temporaries = temporaries();
    let mut findings = Vec::new();
    match TrialDir::create() {
        Ok(trial) => findings.extend(sandbox(&trial.0).await),
        Err(error) => {
            let message = format!("cannot make a directory in {}: {error}", std::env::temp_dir().display());
            findings.push(Finding::wrong("sandbox", &Failure::new(message, "`export TMPDIR=/var/tmp` names another")));
        }
    }
    findings.push(match rath_container::find_engine().await {
        Ok(engine) => Finding::ok("containers", engine),
        Err(error) => {
            let hint = error.hint().unwrap_or("install podman to use `--sandbox container:IMAGE`").to_owned();
            Finding::missing("containers", one_line(&error.message()), one_line(&hint))
        }
    });
    findings.push(git());
    findings.push(user_key());
    findings.extend(setup::look().await);
    findings.push(keys());
    findings.push(store().await);
    findings.push(temporaries);
    findings.extend(terminal());
    match args.json {
        true => output::data(|out| {
            findings.iter().try_for_each(|finding| {
                let Finding { part, state, text, hint } = finding;
                let json = json!({"part": part, "state": state.name(), "text": text, "hint": hint});
                output::json_line(out, &json)
            })
        })?,
        false => output::text(|out| {
            let lines = findings.iter().flat_map(Finding::lines);
            lines.map(|line| line.styled()).try_for_each(|line| writeln!(out, "{line}"))
        })?,
    }
    let is_wrong = findings.iter().any(|finding| finding.state == State::Wrong);
    Ok(if is_wrong { Exit::Failure } else { Exit::Success })
}

/// A directory in which sandboxes are tried, and which is removed then.
struct TrialDir(PathBuf);

impl TrialDir {
    fn create() -> io::Result<Self> {
        let path = std::env::temp_dir().join(format!("rath-doctor-{}", std::process::id()));
        std::fs::create_dir(&path)?;
        Ok(TrialDir(path.canonicalize()?))
    }
}

impl Drop for TrialDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Looks at the walls of commands, their limits, and the way in which forks are made.
async fn sandbox(directory: &Path) -> Vec<Finding> {
    let options = "memory=64m&processes=64";
    let open = |options: &str| sandboxes::open(&format!("isolated:{}?{options}", directory.display()));
    let capabilities = |options: &str| {
        let sandbox = open(options);
        async move { sandbox?.capabilities().await }
    };
    let with_namespaces = capabilities(options).await;
    let with_landlock = match &with_namespaces {
        Ok(_) => None,
        Err(_) => capabilities(&format!("{options}&walls=landlock")).await.ok(),
    };
    let mut findings = Vec::new();
    findings.push(match (&with_namespaces, &with_landlock) {
        (Ok(_), _) => Finding::ok("namespaces", "commands run behind walls"),
        (Err(error), landlock) => {
            let hint = error.hint().unwrap_or("`rath run --sandbox local:.` works without walls").to_owned();
            let message = one_line(&error.message());
            match landlock {
                Some(_) => Finding::missing("namespaces", format!("{message}; Landlock is used"), one_line(&hint)),
                None => Finding::wrong("namespaces", &Failure::new(message, hint)),
            }
        }
    });
    let has_landlock = with_namespaces.as_ref().ok().or(with_landlock.as_ref()).is_some_and(|it| it.landlock);
    findings.push(match has_landlock {
        true => Finding::ok("Landlock", "a second wall beneath the first"),
        false => Finding::missing("Landlock", "this kernel has none", "`uname -r` should say 5.13 or later"),
    });
    findings.push(limits(with_namespaces.as_ref().ok().or(with_landlock.as_ref())));
    // Where forks will be, if there are some already: elsewhere nothing is tried.
    let own = sessions::store_directory().join(".rath");
    findings.push(match ForkMethod::detect(if own.is_dir() { &own } else { directory }) {
        ForkMethod::Overlay => Finding::ok("forks", "overlay mounts, which share files"),
        ForkMethod::Reflink => Finding::ok("forks", "copies that share blocks"),
        _ => {
            let text = "plain copies of all files: neither overlay mounts nor shared blocks work";
            Finding::missing("forks", text, "a directory on ext4, xfs or btrfs makes them fast: `df -T .` shows yours")
        }
    });
    findings
}

/// Tells what enforces the limits of commands.
fn limits(capabilities: Option<&Capabilities>) -> Finding {
    let limit = |limit: Option<Limit>| limit.map(|limit| limit.mechanism);
    let Some(capabilities) = capabilities else {
        let text = "not known, since no sandbox works";
        return Finding::missing("limits", text, "mend the line above about namespaces");
    };
    let is_group = |mechanism| matches!(mechanism, Some(Mechanism::CgroupV1 | Mechanism::CgroupV2));
    match limit(capabilities.memory) {
        Some(mechanism) if is_group(Some(mechanism)) => Finding::ok("limits", format!("by {mechanism}")),
        other => {
            let by = other.map_or_else(|| "nothing".to_owned(), |mechanism| mechanism.to_string());
            let text = format!("memory is limited by {by}: there is no control group to write to");
            Finding::missing(
                "limits",
                text,
                "`systemd-run --user --scope -p Delegate=yes rath doctor` runs rath in one",
            )
        }
    }
}

/// Looks for git, which rath does not need, and agents do.
fn git() -> Finding {
    let version = std::process::Command::new("git").arg("--version").stdin(std::process::Stdio::null()).output();
    match version {
        Ok(version) if version.status.success() => {
            let text = String::from_utf8_lossy(&version.stdout).trim().to_owned();
            Finding::ok("git", text.strip_prefix("git version ").unwrap_or(&text).to_owned())
        }
        _ => Finding::missing("git", "rath does not need it, and agents do", install("git")),
    }
}

/// Returns the command that installs a program.
fn install(program: &str) -> String {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = |name: &str| std::env::split_paths(&path).any(|directory| directory.join(name).is_file());
    match INSTALLERS.iter().find(|(name, _)| is_there(name)) {
        Some((_, command)) => format!("`{command} {program}`"),
        None => format!("install {program}"),
    }
}

/// Looks at the key that sessions are signed with. It is created by the first session, and not here.
fn user_key() -> Finding {
    let Some(path) = own_data_directory().map(|directory| directory.join("user.key")) else {
        let failure = Failure::new("there is no home directory for it", "`export HOME=DIRECTORY` names one");
        return Finding::wrong("key", &failure);
    };
    match path.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Finding::ok("key", "none yet; the first session makes one")
        }
        _ => match sessions::key_problem() {
            None => Finding::ok("key", output::home_path(&path)),
            Some(failure) => Finding::wrong("key", &failure),
        },
    }
}

/// Looks for the keys of providers in the environment and in the user's file. Their values are not shown.
fn keys() -> Finding {
    let is_set = |name: &&str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let mut found: Vec<String> = KEY_VARIABLES.into_iter().filter(is_set).map(str::to_owned).collect();
    for provider in keys::PROVIDERS {
        match keys::key_of(provider) {
            Ok(Some(_)) => found.push(format!("{provider} in keys.toml")),
            Ok(None) => {}
            Err(failure) => return Finding::wrong("keys", &failure),
        }
    }
    match found.is_empty() {
        false => Finding::ok("keys", found.join(", ")),
        true => {
            let hint = "`rath config set-key anthropic` keeps one, or openai, or gemini";
            Finding::missing("keys", "there is no key of a provider", hint)
        }
    }
}

/// Looks at the store of this directory.
async fn store() -> Finding {
    let directory = sessions::store_directory();
    let path = DEFAULT_STORE.strip_prefix("sqlite:").unwrap_or(DEFAULT_STORE);
    // A link that leads nowhere is something that a command would stumble over.
    if directory.join(path).symlink_metadata().is_err() {
        return Finding::ok("store", "none here yet; `rath run` makes one");
    }
    let looked = async {
        let store = sessions::open(DEFAULT_STORE, Create::Never).await?;
        let (listed, unlisted) = (store.list().await?, store.unlisted().await?);
        let report = Gc::new().dry_run().run(&store, &[], &directory).await?;
        Ok::<_, Failure>((listed, unlisted.len(), report))
    };
    match looked.await {
        Err(failure) => Finding::wrong("store", &failure),
        Ok((_, damaged, _)) if damaged > 0 => {
            let text = format!("{} not listed because of damage", count(damaged as u64, "session"));
            Finding::wrong("store", &Failure::new(text, "`rath verify` names the damage"))
        }
        Ok((listed, _, report)) => {
            let sessions = count(listed.iter().filter(|branch| branch.is_tip).count() as u64, "session");
            let removed = report.directories.iter().map(|directory| directory.removed.total().bytes);
            let bytes = report.store.bytes + removed.sum::<u64>();
            match bytes {
                0 => Finding::ok("store", sessions),
                _ => {
                    let text = format!("{sessions}; {} no longer needed", count(bytes, "byte"));
                    Finding { hint: Some("`rath gc` frees the space".to_owned()), ..Finding::ok("store", text) }
                }
            }
        }
    }
}

/// Looks for what killed processes left behind.
fn temporaries() -> Finding {
    match left_temporaries_blocking().len() {
        0 => Finding::ok("temporary files", "none were left behind"),
        left => {
            let text = format!("{} left behind by killed processes", directories(left));
            Finding { hint: Some("the next session removes them".to_owned()), ..Finding::ok("temporary files", text) }
        }
    }
}

fn directories(number: usize) -> String {
    if number == 1 { "1 directory".to_owned() } else { format!("{number} directories") }
}

/// Looks at the terminal: its width, its colours and its characters.
fn terminal() -> Vec<Finding> {
    if !output::is_terminal() {
        return vec![Finding::ok("terminal", "the output is not a terminal: no colours")];
    }
    let mut findings = vec![match output::terminal_columns() {
        Some(columns) if columns < COLUMNS => {
            let hint = format!("make the window at least {COLUMNS} columns wide");
            Finding::missing("terminal", format!("{columns} columns: lines are wrapped"), hint)
        }
        Some(columns) => Finding::ok("terminal", format!("{columns} columns")),
        None => Finding::ok("terminal", "of unknown width"),
    }];
    findings.push(match output::has_colour() {
        false => {
            let hint = "`unset NO_COLOR; export TERM=xterm-256color` turns them on";
            Finding::missing("colours", "none, as the environment asks", hint)
        }
        true => Finding::ok("colours", "on"),
    });
    let value = |name: &&str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].iter().find_map(value).unwrap_or_default();
    let is_utf8 = locale.to_ascii_lowercase().replace('-', "").ends_with("utf8");
    findings.push(match is_utf8 || cfg!(windows) {
        true => Finding::ok("characters", "UTF-8"),
        false => {
            let text = "the locale does not say UTF-8: other characters than ASCII may look wrong";
            Finding::missing("characters", text, "`export LC_ALL=C.UTF-8`")
        }
    });
    findings
}
