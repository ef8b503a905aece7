//! The strictness of a session: the modes of permissions and the sandboxes that its record shows.
//!
//! A session goes on in the mode and in the sandbox that it was in last. A branch from an earlier step and a merge go on at least as
//! strictly as all of the sessions that they are taken from, also as their later steps: [`Strictness`] puts on the branch what it
//! lacks. Where a step is gone that may have named a mode or a sandbox, changes are refused until the user chooses a mode.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use rath::chunk::{Placed, Strategy};
use rath::prelude::*;
use rath::record::{Parent, Record, Step};
use rath::sandbox::resolved;
use rath::view;

use crate::agent::has_begun;
use crate::output::{self, Exit, Failure};
use crate::sandboxes::{self, DEFAULT_PROCESSES, usable_sandbox};
use crate::sessions::LoadedSession;

/// The beginning of the name of a mode, in decisions and in the note that a run begins with.
const MODE_PREFIX: &str = "mode ";

/// A mode on a record. A stricter one is less than a looser one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RecordedMode {
    /// A step is gone that may have named any mode.
    Forgotten,
    Named(Mode),
}

impl RecordedMode {
    /// Returns the mode in force.
    pub(crate) fn mode(self) -> Mode {
        match self {
            RecordedMode::Forgotten => Mode::ReadOnly,
            RecordedMode::Named(mode) => mode,
        }
    }

    /// Says how to go on, if the mode is not known.
    pub(crate) fn explain(self) {
        if self == RecordedMode::Forgotten {
            let message = "a step that may have named the mode or the sandbox was removed with `rath forget`, or lost";
            output::note(&format!(
                "{message}: changes are refused\nhint: `--mode workspace` lets the agent change files"
            ));
        }
    }
}

/// Returns the note with which a run in a mode begins.
pub(crate) fn mode_note(mode: Mode) -> Chunk {
    Chunk::note(format!("{MODE_PREFIX}{}", mode.name()))
}

/// Returns the mode that a session was in last: that of its last run, or of its last call that a mode decided about. A merge is in the
/// stricter mode of both sides.
pub(crate) fn last_mode(session: &Session) -> Option<RecordedMode> {
    let (mut strictest, mut seen) = (None, HashSet::new());
    let mut lines: Vec<&Step> = session.head().into_iter().collect();
    while let Some(step) = lines.pop() {
        if !seen.insert(step.id()) {
            continue;
        }
        let mut modes = Vec::from_iter(mode_of(step));
        if modes.is_empty() {
            let is_aside = matches!(step.chunk(), Chunk::Merged(merged) if merged.strategy == Strategy::Aside);
            for parent in step.parents().iter().take(if is_aside { 1 } else { 2 }) {
                match parent.step() {
                    Some(step) => lines.push(step),
                    None => modes.push(RecordedMode::Forgotten),
                }
            }
        }
        strictest = strictest.into_iter().chain(modes).min();
    }
    strictest
}

/// Returns the mode that a step names.
fn mode_of(step: &Step) -> Option<RecordedMode> {
    let mode = match step.chunk() {
        Chunk::ToolStarted(started) => started.rule.as_deref(),
        Chunk::Denied(denied) => denied.rule.as_deref(),
        Chunk::Asked(asked) => asked.rule.as_deref(),
        Chunk::Note(note) => note.text.as_str(),
        Chunk::Placed(_) => None,
        _ => return None,
    };
    // The id of a forgotten step does not show what it said.
    if step.withheld().is_some() {
        return Some(RecordedMode::Forgotten);
    }
    mode?.strip_prefix(MODE_PREFIX)?.parse().ok().map(RecordedMode::Named)
}

/// The strictest mode and all sandboxes of the sessions that a branch is taken from, also of their steps after it.
pub(crate) struct Strictness {
    mode: Option<RecordedMode>,
    /// True if a session was in mode workspace without walls, where it asks before commands.
    asked_before_commands: bool,
    places: Vec<RecordedPlace>,
    last_place: Option<RecordedPlace>,
}

impl Strictness {
    pub(crate) fn of<'a>(sessions: impl IntoIterator<Item = &'a LoadedSession>) -> Self {
        let mut strictness =
            Strictness { mode: None, asked_before_commands: false, places: Vec::new(), last_place: None };
        for loaded in sessions {
            let steps = loaded.whole.walk();
            let is_lost = steps.iter().flat_map(|step| step.parents()).any(|parent| Parent::step(parent).is_none());
            let modes = steps.iter().filter_map(|step| mode_of(step)).chain(is_lost.then_some(RecordedMode::Forgotten));
            strictness.mode = strictness.mode.into_iter().chain(modes).min();
            let mut without_walls = HashSet::new();
            for step in &steps {
                let placed = match step.chunk() {
                    Chunk::Placed(placed) => RecordedPlace::parse(&placed.place),
                    _ => None,
                };
                let is_local = match &placed {
                    Some(place) => place.kind == PlaceKind::Local,
                    None => step.parents().first().is_some_and(|parent| without_walls.contains(&parent.id())),
                };
                if is_local {
                    without_walls.insert(step.id());
                    strictness.asked_before_commands |= mode_of(step) == Some(RecordedMode::Named(Mode::Workspace));
                }
                strictness.places.extend(placed);
            }
            let newest = loaded.whole.heads().last().map(|head| Session::resume(Record::at(head.clone())));
            let place = newest.and_then(|session| session.place());
            strictness.last_place = strictness.last_place.or_else(|| RecordedPlace::parse(place?.as_str()));
        }
        strictness
    }

    /// Puts the mode on a branch that is not in one as strict. The sandbox of the branch is known by then.
    pub(crate) fn keep_mode(&self, branch: &mut Session) {
        let Some(mut mode) = self.mode else { return };
        // In walls, mode workspace does not ask before commands.
        let has_walls = branch.place().is_none_or(|place| !place.as_str().starts_with("local:"));
        if self.asked_before_commands && has_walls {
            mode = mode.min(RecordedMode::Named(Mode::Ask));
        }
        if mode < last_mode(branch).unwrap_or(RecordedMode::Named(Mode::Full)) {
            mode.explain();
            branch.push(mode_note(mode.mode()));
        }
    }

    /// Puts a sandbox on a branch that is not in one as strict: in the same directory, isolated if the session was once, with every
    /// restriction that one of its sandboxes had, and only with the access that all of them had.
    pub(crate) async fn keep_place(&self, branch: &mut Session) -> Result<(), Failure> {
        let own = branch.place();
        // The user names the sandbox of a session that others made; an agent that had no tools does not get any.
        let is_settled = own.is_none() && has_begun(branch);
        let base = match &own {
            _ if is_settled || branch.is_guest() || self.places.is_empty() => return Ok(()),
            Some(place) => RecordedPlace::parse(place.as_str()),
            // A place that is forgotten does not say where tools run, but the restrictions stay.
            None => self.last_place.clone().or_else(|| RecordedPlace::parse("isolated:.")),
        };
        let Some(base) = base else { return Ok(()) };
        // A branch from before the first sandbox is isolated, as a new session is.
        let least = if own.is_none() { PlaceKind::Isolated } else { PlaceKind::Local };
        let sandbox = self.open(&self.uri_for(&base, least, Access::Shared)).await?;
        let own = own.and_then(|place| sandboxes::open(place.as_str()).ok());
        if own.is_none_or(|own| own.uri() != sandbox.uri()) {
            let tree = branch.tree().or_else(|| view::unobserved(branch.as_record())?.since);
            branch.push(Placed::new(sandbox.uri()).with_tree(tree));
        }
        Ok(())
    }

    /// Opens an isolated sandbox in `directory`, or a container if one of the sandboxes was one, with every restriction that one of them
    /// had, and no more access than the default.
    pub(crate) async fn isolate(&self, directory: &Path) -> Result<Sandbox, Failure> {
        let uri = Sandbox::isolated(directory).uri().to_owned();
        let base = RecordedPlace::parse(&uri);
        let uri = base.map(|base| self.uri_for(&base, PlaceKind::Isolated, Access::Default)).unwrap_or(uri);
        self.open(&uri).await
    }

    /// Returns the URI of a sandbox in the directory of `base`: of the strictest kind that one of the sandboxes had, and at least of the
    /// kind `least`, with every restriction that one of them had.
    fn uri_for(&self, base: &RecordedPlace, least: PlaceKind, access: Access) -> String {
        let places = || [base].into_iter().chain(&self.places);
        let kind = places().map(|place| place.kind).chain([least]).max().unwrap_or(least);
        // The container of the branch itself, or else the last one.
        let image = base.image.as_ref().or_else(|| self.places.iter().rev().find_map(|place| place.image.as_ref()));
        let mut options = self.strict_options(base);
        if access == Access::Shared && kind != PlaceKind::Local {
            options.extend(self.shared_access());
            options.extend(base.values("at").map(|path| format!("at={path}")));
        }
        options.retain(|option| kind.has_option(option));
        let directory = &base.directory;
        let start = match (kind, image) {
            (PlaceKind::Container, Some(image)) => format!("container:{image}?directory={directory}"),
            (PlaceKind::Local, _) => format!("local:{directory}"),
            (PlaceKind::Isolated | PlaceKind::Container, _) => format!("isolated:{directory}"),
        };
        with_options(start, &options)
    }

    /// Opens a sandbox; on a machine without namespaces, one that does without them, unless one of the sandboxes had them.
    async fn open(&self, uri: &str) -> Result<Sandbox, Failure> {
        let sandbox = sandboxes::open(uri).map_err(|error| Failure::from(error).with_exit(Exit::Usage))?;
        let has_namespaces = |place: &RecordedPlace| {
            place.kind == PlaceKind::Isolated && !place.values("walls").any(|walls| walls == "landlock")
        };
        let had_namespaces = self.places.iter().any(has_namespaces);
        Ok(if had_namespaces { sandbox } else { usable_sandbox(sandbox).await })
    }

    /// Returns the options of all sandboxes that restrict more than the default does, for a sandbox in the directory of `base`.
    fn strict_options(&self, base: &RecordedPlace) -> Vec<String> {
        /// The limits, and what is allowed without them.
        const LIMITS: [(&str, u64); 5] = [
            ("memory", u64::MAX),
            ("processes", DEFAULT_PROCESSES),
            ("file_size", u64::MAX),
            ("cpu_time", u64::MAX),
            ("output", 256 << 20),
        ];
        let places = || [base].into_iter().chain(&self.places);
        let mut options = Vec::new();
        let is_hidden = |place: &RecordedPlace| place.values("host").any(|host| host == "hidden");
        if places().any(is_hidden) {
            options.push("host=hidden".to_owned());
        }
        for (name, default) in LIMITS {
            let limits = self.places.iter().map(|place| place.values(name).last());
            let smallest = limits.clone().flatten().min_by_key(|limit| amount(limit));
            let is_default = |limit: &str| amount(limit) >= default && limits.clone().any(|limit| limit.is_none());
            options.extend(smallest.filter(|limit| !is_default(limit)).map(|limit| format!("{name}={limit}")));
        }
        let cpus = self.places.iter().flat_map(|place| place.values("cpu"));
        let least_cpus = cpus.min_by(|one, other| processors(one).total_cmp(&processors(other)));
        options.extend(least_cpus.map(|cpus| format!("cpu={cpus}")));
        for place in places() {
            for path in place.values("hide") {
                options.push(format!("hide={path}"));
                // A file that was hidden in one directory is hidden there, and in the files that are copied from there.
                if place.path() != base.path() {
                    options.extend(place.other_names(path).iter().map(|path| format!("hide={path}")));
                }
            }
        }
        let mut seen = HashSet::new();
        options.retain(|option| seen.insert(option.clone()));
        options
    }

    /// Returns the options that allow more than the default does, as far as all sandboxes with walls had them.
    fn shared_access(&self) -> Vec<String> {
        const ACCESS: [&str; 5] = ["network", "git", "show", "write", "walls"];
        let mut isolated = self.places.iter().filter(|place| place.kind != PlaceKind::Local);
        let Some(first) = isolated.next() else { return Vec::new() };
        let is_shared = |option: &&String| isolated.clone().all(|place| place.options.contains(option));
        let is_access = |option: &&String| ACCESS.iter().any(|name| option.split('=').next() == Some(name));
        first.options.iter().filter(is_access).filter(is_shared).cloned().collect()
    }
}

/// A sandbox on a record. Its parts are as in its URI, with escapes.
#[derive(Clone)]
struct RecordedPlace {
    kind: PlaceKind,
    /// The image of a container.
    image: Option<String>,
    directory: String,
    options: Vec<String>,
}

/// The kinds of sandbox, the strictest last: a container shows nothing of the machine but the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum PlaceKind {
    Local,
    Isolated,
    Container,
}

impl PlaceKind {
    /// Returns true for an option of a sandbox of this kind. A container hides the machine as a whole, and reaches no single hosts.
    fn has_option(self, option: &str) -> bool {
        let name = option.split('=').next().unwrap_or_default();
        match self {
            PlaceKind::Local | PlaceKind::Isolated => name != "cpu",
            PlaceKind::Container if name == "network" => option == "network=on",
            PlaceKind::Container => !["host", "show", "write", "walls"].contains(&name),
        }
    }
}

/// The access of a sandbox beyond the default.
#[derive(Clone, Copy, PartialEq)]
enum Access {
    /// None.
    Default,
    /// The restrictions that all sandboxes with walls had.
    Shared,
}

impl RecordedPlace {
    /// Returns the parts of a URI; none if it is of a kind that this program does not open.
    fn parse(uri: &str) -> Option<Self> {
        let (kind, rest) = uri.split_once(':')?;
        let kind = match kind {
            "isolated" => PlaceKind::Isolated,
            "local" => PlaceKind::Local,
            "container" => PlaceKind::Container,
            _ => return None,
        };
        let (target, options) = rest.split_once('?').unwrap_or((rest, ""));
        let options = options.split('&').filter(|option| !option.is_empty()).map(str::to_owned);
        let (image, directory, options) = match kind {
            PlaceKind::Container => {
                let (directory, options): (Vec<_>, Vec<_>) = options.partition(|it| it.starts_with("directory="));
                let directory = directory.last().and_then(|it| it.strip_prefix("directory=")).unwrap_or("./");
                (Some(target.to_owned()), directory.to_owned(), options)
            }
            PlaceKind::Isolated | PlaceKind::Local => (None, target.to_owned(), options.collect()),
        };
        Some(RecordedPlace { kind, image, directory, options })
    }

    /// Returns the values of an option.
    fn values(&self, name: &str) -> impl Iterator<Item = &str> {
        self.options.iter().filter_map(move |option| option.strip_prefix(name)?.strip_prefix('='))
    }

    /// Returns the absolute path of the directory, as it is in a URI.
    fn path(&self) -> Option<String> {
        let sandbox = crate::sandboxes::open(&format!("local:{}", self.directory)).ok()?;
        // It may be gone by now.
        in_uri(resolved(sandbox.directory()?))
    }

    /// Returns the absolute paths of a relative one, and the relative paths of an absolute one in the directory, as they are in a URI.
    fn other_names(&self, path: &str) -> Vec<String> {
        let Some(directory) = self.path() else { return Vec::new() };
        if !path.starts_with('/') {
            return vec![format!("{directory}/{path}")];
        }
        let Ok(sandbox) = crate::sandboxes::open(&format!("isolated:{directory}?hide={path}")) else {
            return Vec::new();
        };
        let names = sandbox.hidden().iter().flat_map(|path| [path.clone(), resolved(path)]);
        let below = |path: PathBuf| Some(in_uri(path)?.strip_prefix(&directory)?.strip_prefix('/')?.to_owned());
        names.filter_map(below).collect()
    }
}

/// Returns an absolute path as it is in a URI.
fn in_uri(path: PathBuf) -> Option<String> {
    Some(Sandbox::isolated(path).uri().strip_prefix("isolated:")?.to_owned())
}

/// Returns a URI with more options.
fn with_options(uri: String, options: &[String]) -> String {
    options.iter().fold(uri, |uri, option| {
        let separator = if uri.contains('?') { '&' } else { '?' };
        format!("{uri}{separator}{option}")
    })
}

/// Returns the amount that a limit such as `512m` or `30s` means: zero, if it means none, so that the sandbox refuses it.
fn amount(limit: &str) -> u64 {
    const UNITS: [(char, u64); 5] = [('s', 1), ('k', 1 << 10), ('m', 1 << 20), ('g', 1 << 30), ('t', 1 << 40)];
    let limit = limit.to_ascii_lowercase();
    let (number, unit) =
        UNITS.iter().find_map(|(unit, size)| Some((limit.strip_suffix(*unit)?, *size))).unwrap_or((&limit, 1));
    number.parse().map_or(0, |number: u64| number.saturating_mul(unit))
}

/// Returns the number of processors that a limit such as `1.5` means: zero, if it means none, so that the sandbox refuses it.
fn processors(limit: &str) -> f64 {
    limit.parse().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_branch_is_in_a_container_if_one_of_its_sessions_was() {
        let rows: [(&[&str], &str); 6] = [
            (&["container:a?directory=/w&network=on"], "container:a?directory=/w&network=on"),
            (
                &["container:a?directory=/w&cpu=2", "container:b?directory=/x&cpu=0.5&memory=1g"],
                "container:a?directory=/w&memory=1g&cpu=0.5",
            ),
            (
                &["isolated:/w?host=hidden&hide=.env&walls=landlock", "container:a?directory=/w"],
                "container:a?directory=/w&hide=.env",
            ),
            (&["local:/w", "container:a?directory=/w&git=write"], "container:a?directory=/w&git=write"),
            (&["isolated:/w?network=a.com", "container:a?directory=/w&network=a.com"], "container:a?directory=/w"),
            (&["container:a?directory=/w&network=on", "isolated:/w"], "container:a?directory=/w"),
        ];
        for (places, expected) in rows {
            let places: Vec<_> = places.iter().filter_map(|place| RecordedPlace::parse(place)).collect();
            let base = places[0].clone();
            let strictness = Strictness { mode: None, asked_before_commands: false, places, last_place: None };
            assert_eq!(strictness.uri_for(&base, PlaceKind::Local, Access::Shared), expected);
        }
    }

    #[test]
    fn a_branch_has_all_restrictions_and_only_the_access_that_all_sandboxes_had() {
        let rows: [(&[&str], &str); 9] = [
            (&["isolated:.", "isolated:.?hide=a&memory=1g"], "memory=1g&hide=a"),
            (&["isolated:.?memory=1g&hide=a", "isolated:.?memory=900m&hide=b"], "memory=900m&hide=a&hide=b"),
            (&["isolated:.?cpu_time=90s", "local:.?cpu_time=8s&file_size=2k"], "file_size=2k&cpu_time=8s"),
            (&["isolated:.?processes=2000&output=1g", "isolated:."], ""),
            (&["isolated:.?processes=2000", "isolated:.?processes=3000"], "processes=2000"),
            (&["isolated:.?network=on&git=write", "isolated:.?git=write"], "git=write"),
            (&["isolated:.?network=on", "isolated:.?network=example.com"], ""),
            (&["isolated:.?write=/w&show=/s", "isolated:.?show=/s&write=/w", "local:."], "write=/w&show=/s"),
            (&["isolated:.?host=hidden&walls=landlock", "isolated:."], "host=hidden"),
        ];
        for (places, expected) in rows {
            let places: Vec<_> = places.iter().filter_map(|place| RecordedPlace::parse(place)).collect();
            let base = places[0].clone();
            let strictness = Strictness { mode: None, asked_before_commands: false, places, last_place: None };
            let options = [strictness.strict_options(&base), strictness.shared_access()].concat().join("&");
            assert_eq!(options, expected);
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_file_hidden_in_another_directory_is_hidden_there_too() {
        let hidden = RecordedPlace::parse("isolated:/?hide=a").expect("a place");
        let base = RecordedPlace::parse("isolated:/usr").expect("a place");
        let places = vec![hidden];
        let strictness = Strictness { mode: None, asked_before_commands: false, places, last_place: None };
        assert_eq!(strictness.strict_options(&base), ["hide=a", "hide=//a"]);
    }
}
