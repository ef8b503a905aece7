//! Names of files through symlinks: those on the way from a path to its target, and those that lead to a target.
//!
//! A rule or a guard is about a file under all of its names. Names are found in pure code; [`SeenRoot`] reads the links.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Component, Path, PathBuf};

use crate::sandbox::{Root, Sandbox};

/// A directory, and the path at which commands see it.
pub(crate) struct SeenRoot {
    pub(crate) root: Root,
    seen_at: PathBuf,
}

/// A path, followed to its target.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FollowedPath {
    /// The path without links, relative to the directory if it is in it.
    pub(crate) target: String,
    /// The other names on the way that are in the directory, relative to it: as given, and behind each link.
    pub(crate) names: Vec<String>,
    /// The links in the directory that were followed.
    pub(crate) passed: Vec<String>,
}

/// A link of a directory, followed to its target.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FollowedLink {
    pub(crate) path: String,
    /// The other names on the way that are in the directory. The last is the target, if that is in the directory.
    pub(crate) names: Vec<String>,
    /// The path without links; none if it is not in the directory.
    pub(crate) target: Option<String>,
    /// The other links in the directory that were followed.
    pub(crate) passed: Vec<String>,
}

/// The largest path that a system call takes, in bytes.
const MAX_PATH_BYTES: usize = 4096;
/// The largest number of links that are followed.
const MAX_LINKS: usize = 40;
/// The largest number of names of a path through links that no rule fits.
const MAX_NAMES: usize = 64;

impl SeenRoot {
    /// Opens the directory of a sandbox; none if it has none on this machine. Blocks.
    pub(crate) fn of(sandbox: &Sandbox) -> Option<Self> {
        let (directory, seen_at) = (sandbox.directory()?, sandbox.seen_at()?);
        let root = Root::open(directory).ok()?;
        // The directory itself, without links; another path need not be there.
        let seen_at = if seen_at == directory { root.path() } else { seen_at };
        let seen_at = seen_at.canonicalize().unwrap_or_else(|_| seen_at.to_owned());
        Some(SeenRoot { root, seen_at })
    }

    /// Opens the workspace whose directories a sandbox shows, as if commands saw it as a whole; none if the sandbox shows none. Blocks.
    pub(crate) fn original_of(sandbox: &Sandbox) -> Option<Self> {
        let root = Root::open(&sandbox.shared()?.original).ok()?;
        let seen_at = SeenRoot::of(sandbox)?.seen_at;
        Some(SeenRoot { root, seen_at })
    }

    /// Follows links, and returns those that lead into the directory or through it.
    pub(crate) fn follow_links(&self, links: impl IntoIterator<Item = String>) -> Vec<FollowedLink> {
        let follow = |path: String| {
            let FollowedPath { target, mut names, mut passed } = follow(Some(self), &path);
            // A path through more links cannot be opened.
            if passed.len() >= MAX_LINKS {
                return None;
            }
            names.retain(|name| *name != path);
            passed.retain(|name| *name != path);
            let target = (!Path::new(&target).is_absolute() && target != path).then_some(target);
            names.extend(target.clone());
            (!names.is_empty()).then_some(FollowedLink { path, names, target, passed })
        };
        links.into_iter().filter_map(follow).collect()
    }

    fn relative(&self, path: &Path) -> Option<String> {
        Some(path.strip_prefix(&self.seen_at).ok()?.to_string_lossy().into_owned())
    }
}

/// Follows a path, as commands see it. A part of it that is missing stays as it is given. Blocks.
pub(crate) fn follow(seen: Option<&SeenRoot>, given: &str) -> FollowedPath {
    let canonical = seen.and_then(|seen| seen.root.canonical_name(given));
    let is_known = given.len() <= MAX_PATH_BYTES && !is_stream(given);
    if canonical.as_deref() == Some(given) || !is_known || (seen.is_none() && !Path::new(given).is_absolute()) {
        let target = canonical.unwrap_or_else(|| given.to_owned());
        return FollowedPath { target, names: Vec::new(), passed: Vec::new() };
    }
    let start = seen.map_or(Path::new("/"), |seen| &seen.seen_at);
    let (mut names, passed) = names_on_way(start, given, &|path| {
        let on_machine = seen.and_then(|seen| Some(seen.root.path().join(path.strip_prefix(&seen.seen_at).ok()?)));
        on_machine.as_deref().unwrap_or(path).read_link().ok()
    });
    let last = names.pop().unwrap_or_default();
    let relative = |path: &Path| seen.and_then(|seen| seen.relative(path));
    let target = canonical.or_else(|| relative(&last)).unwrap_or_else(|| last.to_string_lossy().into_owned());
    let names = names.iter().filter_map(|name| relative(name)).filter(|name| *name != target).collect();
    let passed = passed.iter().filter_map(|link| relative(link)).collect();
    FollowedPath { target, names, passed }
}

/// Returns true if a path names a device, or a stream that each process has its own of.
fn is_stream(given: &str) -> bool {
    const NAMES: [&str; 9] = ["null", "zero", "full", "random", "urandom", "tty", "stdin", "stdout", "stderr"];
    let Some(name) = given.strip_prefix("/dev/") else { return false };
    NAMES.contains(&name) || name == "fd" || name.strip_prefix("fd/").is_some_and(|fd| fd.parse::<u32>().is_ok())
}

/// Returns the names of a path: as it is given below `start`, behind each link that is followed, and at last the target. Returns the
/// links besides.
///
/// Names are followed one by one: what stands above the directory, and where a link leads, depends on where commands see it. A
/// `..` leads to the directory above the target of a link.
fn names_on_way(
    start: &Path,
    given: &str,
    read_link: &dyn Fn(&Path) -> Option<PathBuf>,
) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let parts = |path: &Path| path.components().rev().map(|part| part.as_os_str().to_owned()).collect::<Vec<_>>();
    let (mut at, mut rest) = (start.to_owned(), parts(Path::new(given)));
    let (mut names, mut passed) = (Vec::new(), Vec::new());
    let mut is_new = true;
    loop {
        if is_new && !rest.iter().any(|part| part == "..") {
            let name = rest.iter().rev().filter(|part| *part != ".").fold(at.clone(), |name, part| name.join(part));
            names.push(name);
            is_new = false;
        }
        let Some(part) = rest.pop() else { break };
        let path = match Path::new(&part).components().next() {
            Some(Component::CurDir) | None => continue,
            Some(Component::ParentDir) => {
                at.pop();
                continue;
            }
            // The root replaces what stands before it.
            Some(_) => at.join(&part),
        };
        match read_link(&path) {
            Some(link) if passed.len() < MAX_LINKS => {
                passed.push(path);
                is_new = true;
                rest.extend(parts(&link));
            }
            _ => at = path,
        }
    }
    names.dedup();
    (names, passed)
}

/// A rule or a guard that fits the name of a link.
///
/// Two links to one target with an equal guard give equal guards to the files there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum LinkGuard {
    /// The rule with this number.
    Rule(usize),
    /// The rule with this number, which may fit names below: so many of its names are those of the link.
    RuleBelow(usize, usize),
    /// The list of files that other programs run.
    Listed,
    /// A directory of that list, by its number, whose first name is that of the link.
    ListedBelow(usize),
}

/// The links of a directory, and the names that they give to files.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Links {
    /// The first links that lead to a path, by that path.
    by_target: BTreeMap<String, Vec<String>>,
    /// The names of such links that rules or guards fit, by the path that they lead to.
    fitting: BTreeMap<String, Vec<String>>,
    /// The targets of links.
    targets: BTreeMap<String, String>,
    /// The links on whose way a link is, by that link.
    passing: BTreeMap<String, Vec<String>>,
    max_names: usize,
}

impl Links {
    /// Creates the links of a directory. `guards_of` returns all guards that fit a name. If a guard can fit a name below a link
    /// although it does not fit the link, `fits_below` is true.
    pub(crate) fn new(followed: &[FollowedLink], fits_below: bool, guards_of: &dyn Fn(&str) -> Vec<LinkGuard>) -> Self {
        let mut links = Links { max_names: if fits_below { MAX_NAMES } else { 1 }, ..Links::default() };
        let targets = followed.iter().filter_map(|link| Some((link.path.clone(), link.target.clone()?)));
        links.targets = targets.collect();
        for (passed, link) in followed.iter().flat_map(|link| link.passed.iter().map(|passed| (passed, &link.path))) {
            links.passing.entry(passed.clone()).or_default().push(link.clone());
        }
        let pairs = || followed.iter().flat_map(|link| link.names.iter().map(|name| (&link.path, name)));
        for (link, target) in pairs() {
            let to_target = links.by_target.entry(target.clone()).or_default();
            if to_target.len() < MAX_NAMES {
                to_target.push(link.clone());
            }
        }
        let mut known = BTreeSet::new();
        // One name for each guard is enough. A link may be guarded because another link leads to a directory above it.
        for _ in 0..MAX_LINKS {
            let before = known.len();
            for link in followed {
                for name in links.fitting_names(&link.path) {
                    let guards = guards_of(&name);
                    for target in &link.names {
                        let new = guards.iter().filter(|guard| known.insert((target, **guard))).count();
                        if new > 0 {
                            links.fitting.entry(target.clone()).or_default().push(name.clone());
                        }
                    }
                }
            }
            if known.len() == before {
                break;
            }
        }
        links
    }

    /// Returns a path without links, and its names through links that guards fit.
    fn fitting_names(&self, path: &str) -> Vec<String> {
        let mut names = vec![path.to_owned()];
        for (above, rest) in parts_above(path) {
            names.extend(self.fitting.get(above).into_iter().flatten().map(|name| join(name, rest)));
        }
        names
    }

    /// Returns true if a link leads to a path below a name, or passes one.
    pub(crate) fn lead_below(&self, name: &str) -> bool {
        let below = format!("{name}/");
        self.by_target.range(below.clone()..).next().is_some_and(|(target, _)| target.starts_with(&below))
    }

    /// Returns the target of a link; none if it is not in the directory.
    pub(crate) fn target(&self, link: &str) -> Option<&str> {
        self.targets.get(link).map(String::as_str)
    }

    /// Returns the links on whose way a link is.
    pub(crate) fn passing(&self, link: &str) -> &[String] {
        self.passing.get(link).map_or(&[], Vec::as_slice)
    }

    /// Returns true if no file has another name that a guard may fit.
    pub(crate) fn is_plain(&self) -> bool {
        self.fitting.is_empty() && (self.max_names <= 1 || self.by_target.is_empty())
    }

    /// Returns the names of a path without links: the path itself, and the names through links, those that guards fit first.
    pub(crate) fn names(&self, path: &str) -> Vec<String> {
        if self.by_target.is_empty() {
            return vec![path.to_owned()];
        }
        let mut names = self.fitting_names(path);
        let max_names = names.len() + self.max_names - 1;
        let mut known: HashSet<String> = names.iter().cloned().collect();
        let mut next = 0;
        while next < names.len() && names.len() < max_names {
            let name = names[next].clone();
            for (above, rest) in parts_above(&name) {
                for link in self.by_target.get(above).into_iter().flatten() {
                    // Through a link to a directory above it, a name would become longer without end.
                    let is_through = parts_above(&name).any(|(above, _)| above == link);
                    let longer = join(link, rest);
                    if !is_through && known.insert(longer.clone()) {
                        names.push(longer);
                    }
                    if names.len() >= max_names {
                        return names;
                    }
                }
            }
            next += 1;
        }
        names
    }
}

/// Returns the path and the directories above it, the top first, each with the rest of the path.
fn parts_above(path: &str) -> impl Iterator<Item = (&str, &str)> {
    let inner = path.match_indices('/').map(|(at, _)| (&path[..at], &path[at + 1..]));
    let top = (!path.is_empty()).then_some(("", path));
    top.into_iter().chain(inner).chain([(path, "")])
}

fn join(above: &str, rest: &str) -> String {
    match (above, rest) {
        ("", path) | (path, "") => path.to_owned(),
        (above, rest) => format!("{above}/{rest}"),
    }
}

#[cfg(test)]
mod tests {
    #[cfg(unix)]
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_path_of_any_length_is_followed() {
        let target = |seen, given: &str| follow(seen, given).target;
        let long = format!("/none/{}", "a/".repeat(40_000));
        assert_eq!(target(None, &long), long);
        let folder = rath_test_support::temp_dir();
        let root = Root::open(folder.path()).expect("a directory");
        let seen = SeenRoot { root, seen_at: PathBuf::from("/seen") };
        assert!(target(Some(&seen), &"a/".repeat(40_000)).ends_with("a/a/"));
        assert_eq!(target(Some(&seen), "/seen/a/b"), "a/b");
        assert_eq!(target(Some(&seen), "../seen/a"), "a");
        assert_eq!(target(Some(&seen), "../other/a"), "/other/a");
        assert_eq!(target(Some(&seen), "/dev/stderr"), "/dev/stderr");
    }

    #[cfg(unix)]
    #[test]
    fn a_link_is_followed_where_commands_see_it() {
        let folder = rath_test_support::temp_dir();
        for (link, to) in
            [("out", "../other"), ("up", ".."), ("back", "../seen/a"), ("own", "/seen/a"), ("far", "/none")]
        {
            symlink(to, folder.path().join(link)).expect("a link");
        }
        let root = Root::open(folder.path()).expect("a directory");
        let seen = SeenRoot { root, seen_at: PathBuf::from("/seen") };
        for (given, expected) in [
            ("out/x", "/other/x"),
            ("./out/../x", "/x"),
            ("up/other/x", "/other/x"),
            ("up/seen/x", "x"),
            ("back/x", "a/x"),
            ("own/x", "a/x"),
            ("/seen/out/x", "/other/x"),
            ("far/x", "/none/x"),
        ] {
            assert_eq!(follow(Some(&seen), given).target, expected, "{given}");
        }
    }

    /// The links of the tables: a link and its text.
    const LINKS: &[(&str, &str)] = &[
        (".env", "conf/real"),
        (".vscode", "cfg"),
        ("cfg/tasks.json", "../deep/tasks"),
        ("first", "./second"),
        ("second", "/w/third"),
        ("third", "missing/file"),
        ("deep/up", ".."),
        ("out", "/etc/passwd"),
        ("back", "/w/../w/.env"),
        ("loop", "loop"),
        ("app", "deep/app"),
    ];

    #[test]
    fn every_name_on_the_way_of_a_path_is_known() {
        let read_link = |path: &Path| {
            let path = path.strip_prefix("/w").ok()?.to_str()?;
            LINKS.iter().find(|(link, _)| *link == path).map(|(_, text)| PathBuf::from(text))
        };
        let check = |given: &str, expected: &str| {
            let (names, _) = names_on_way(Path::new("/w"), given, &read_link);
            let names: Vec<_> = names.iter().map(|name| name.to_str().expect("text")).collect();
            assert_eq!(names.join(" "), expected, "{given}");
        };
        check("plain", "/w/plain");
        check("./a/./b", "/w/a/b");
        check("a/../b", "/w/b");
        check(".env", "/w/.env /w/conf/real");
        check("/w/.env", "/w/.env /w/conf/real");
        check("a/../.env", "/w/.env /w/conf/real");
        check(".vscode/new/file", "/w/.vscode/new/file /w/cfg/new/file");
        check(".vscode/tasks.json", "/w/.vscode/tasks.json /w/cfg/tasks.json /w/deep/tasks");
        check("first", "/w/first /w/second /w/third /w/missing/file");
        check("deep/up/.env", "/w/deep/up/.env /w/.env /w/conf/real");
        check("app/../real", "/w/deep/real");
        check("out", "/w/out /etc/passwd");
        check("back", "/w/back /w/.env /w/conf/real");
        check("../x", "/x");
        check("", "/w");
        check("loop/x", "/w/loop/x");
    }

    #[test]
    fn a_file_has_the_names_that_links_give_it() {
        let pairs = |text: &str| -> Vec<FollowedLink> {
            let pair = |pair: &str| {
                let (path, target) = pair.split_once('>')?;
                let target = target.to_owned();
                Some(FollowedLink {
                    path: path.to_owned(),
                    names: vec![target.clone()],
                    target: Some(target),
                    passed: Vec::new(),
                })
            };
            text.split(' ').filter_map(pair).collect()
        };
        let check = |links: &str, path: &str, expected: &str| {
            let links = Links::new(&pairs(links), true, &|_| Vec::new());
            assert_eq!(links.names(path).join(" "), expected, "{path}");
        };
        check("", "a/b", "a/b");
        check(".env>conf/real", "conf/real", "conf/real .env");
        check(".env>conf/real", "conf/realm", "conf/realm");
        check(".vscode>cfg", "cfg/a/b", "cfg/a/b .vscode/a/b");
        check(".vscode>cfg cfg/t>deep/t", "deep/t", "deep/t cfg/t .vscode/t");
        check("a>x x/b>y", "y/c", "y/c x/b/c a/b/c");
        check("x/self>x", "x/a", "x/a x/self/a");
        check("sub/top>", "a", "a sub/top/a");
        check("sub/top>", "sub/a", "sub/a sub/top/sub/a");
        // However many links there are, a name that a guard fits is known.
        let many: Vec<_> = (0..1000).map(|nth| format!("l{nth}>conf/real")).collect();
        let links = pairs(&format!("{} .vscode>conf", many.join(" ")));
        let guards_of = |name: &str| if name.starts_with(".vscode") { vec![LinkGuard::Listed] } else { Vec::new() };
        for fits_below in [false, true] {
            let links = Links::new(&links, fits_below, &guards_of);
            assert_eq!(links.names("conf/real")[1], ".vscode/real");
            assert!(links.names("conf/real").len() <= MAX_NAMES + 1);
            assert!(!links.is_plain());
        }
        let dense: Vec<_> = (0..30).flat_map(|to| (0..to).map(move |from| format!("{from}/{to}>{to}"))).collect();
        let links = Links::new(&pairs(&format!("{} .idea>0 0/x>9", dense.join(" "))), true, &|name| match name {
            ".idea" => vec![LinkGuard::RuleBelow(1, 1)],
            ".idea/x" => vec![LinkGuard::Rule(1)],
            _ => Vec::new(),
        });
        assert_eq!(links.names("9/file")[1], ".idea/x/file");
    }
}
