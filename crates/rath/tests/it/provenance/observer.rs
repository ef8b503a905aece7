//! An outside observer that walks a directory and reads every file, and the record translated into its terms.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rath::Digest;
use rath::chunk::{Change, Effect};

/// The content of a directory, by path.
pub(crate) type State = BTreeMap<Vec<u8>, Thing>;

#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Thing {
    File {
        content: Vec<u8>,
        executable: bool,
    },
    Link(Vec<u8>),
    Directory {
        is_empty: bool,
    },
    /// A path that a `.gitignore` names: the record says only that something about it changed.
    Ignored([i64; 7]),
}

/// For people: bytes as text.
impl fmt::Debug for Thing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Thing::File { content, executable } => {
                let mark = if *executable { "*" } else { "" };
                write!(f, "file{mark} {}", content.escape_ascii())
            }
            Thing::Link(to) => write!(f, "link {}", to.escape_ascii()),
            Thing::Directory { is_empty } => write!(f, "directory{}", if *is_empty { ", empty" } else { "" }),
            Thing::Ignored(_) => write!(f, "ignored"),
        }
    }
}

/// The rules of the `.gitignore` that is in every directory of these tests.
pub(crate) const RULES: &str = "*.log\nout/\n";

/// Returns true if those rules name a path, or the name is one of rath's.
pub(crate) fn is_ignored(path: &[u8]) -> bool {
    let is_ours = |name: &[u8]| name == b".rath" || name.starts_with(b".rath-") && name.ends_with(b".tmp");
    path.ends_with(b".log") || path.split(|byte| *byte == b'/').any(|name| name == b"out" || is_ours(name))
}

/// Walks a directory and reads all of it.
pub(crate) fn walk(root: &Path) -> State {
    let mut state = State::new();
    let mut rest = vec![root.to_owned()];
    while let Some(dir) = rest.pop() {
        for entry in fs::read_dir(&dir).expect("a list") {
            let path = entry.expect("an entry").path();
            let name = path.strip_prefix(root).expect("below").as_os_str().as_bytes().to_vec();
            if name == b".rath" {
                continue;
            }
            let found = fs::symlink_metadata(&path).expect("metadata");
            let thing = if found.is_dir() {
                let is_empty = fs::read_dir(&path).expect("a list").next().is_none();
                rest.push(path);
                if is_empty && is_ignored(&name) { Thing::Ignored([0; 7]) } else { Thing::Directory { is_empty } }
            } else if is_ignored(&name) {
                let times = [found.mtime(), found.mtime_nsec(), found.ctime(), found.ctime_nsec()];
                let [inode, size] = [found.ino(), found.size()].map(|number| number as i64);
                let [a, b, c, d] = times;
                Thing::Ignored([inode, size, i64::from(found.mode()), a, b, c, d])
            } else if found.is_symlink() {
                Thing::Link(fs::read_link(&path).expect("a link").into_os_string().into_vec())
            } else {
                Thing::File { content: fs::read(&path).expect("a file"), executable: found.mode() & 0o100 != 0 }
            };
            state.insert(name, thing);
        }
    }
    state
}

/// Returns the entries of which versions are kept.
pub(crate) fn kept(state: &State) -> State {
    let kept = state.iter().filter(|(_, thing)| matches!(thing, Thing::File { .. } | Thing::Link(_)));
    kept.map(|(path, thing)| (path.clone(), thing.clone())).collect()
}

/// That two states are the same; what is not is named.
pub(crate) fn assert_same(told: &State, seen: &State, what: &str) {
    let differs = |path: &&Vec<u8>| told.get(*path) != seen.get(*path);
    let paths: BTreeSet<_> = told.keys().chain(seen.keys()).filter(differs).collect();
    let differing: Vec<_> = paths.iter().map(|path| (shown(path), told.get(*path), seen.get(*path))).collect();
    assert!(differing.is_empty(), "{what}, as it is told and as it was seen: {differing:#?}");
}

/// The change of a path: presence before and after, and its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Happened {
    was: bool,
    is: bool,
    before: Option<Digest>,
    after: Option<Digest>,
    unkept: bool,
}

/// By path, as text: what is no text is easier to read so.
pub(crate) type Changes = BTreeMap<String, Happened>;

/// Returns the changes from one state to another. A directory counts only while it is empty.
pub(crate) fn changes(before: &State, after: &State) -> Changes {
    let mut changes = Changes::new();
    for path in before.keys().chain(after.keys()) {
        let (was, is) = (before.get(path), after.get(path));
        let directory = |thing: Option<&Thing>| matches!(thing, Some(Thing::Directory { .. }));
        if was == is || directory(was) && directory(is) {
            continue;
        }
        let leaf = |thing: Option<&Thing>| thing.is_some_and(|thing| *thing != Thing::Directory { is_empty: false });
        let digest = |thing: Option<&Thing>| match thing? {
            Thing::File { content, .. } | Thing::Link(content) => Some(Digest::compute(content)),
            Thing::Directory { .. } | Thing::Ignored(_) => None,
        };
        let (was_leaf, is_leaf) = (leaf(was), leaf(is));
        if !was_leaf && !is_leaf {
            continue;
        }
        let (before, after) = (digest(was), digest(is));
        let unkept = if is_leaf { after.is_none() } else { before.is_none() };
        changes.insert(shown(path), Happened { was: was_leaf, is: is_leaf, before, after, unkept });
    }
    changes
}

/// Translates recorded effects. A renamed file is gone from one path and new at another.
pub(crate) fn reported_changes(effects: &[Effect]) -> Changes {
    let mut changes = Changes::new();
    let mut tell = |path: &str, happened: Happened| {
        let path = shown(&bytes(path));
        assert!(changes.insert(path.clone(), happened).is_none(), "`{path}` is told twice: {effects:?}");
    };
    for effect in effects {
        let (before, after, unkept) = (effect.before, effect.after, effect.unkept.is_some());
        let (was, is) = match &effect.change {
            Change::Created => (false, true),
            Change::Modified => (true, true),
            Change::Deleted => (true, false),
            Change::Renamed { from } => {
                tell(from, Happened { was: true, is: false, before, after: None, unkept });
                tell(&effect.path, Happened { was: false, is: true, before: None, after, unkept });
                continue;
            }
            other => panic!("unknown change: {other:?}"),
        };
        tell(&effect.path, Happened { was, is, before, after, unkept });
    }
    changes
}

/// That what is told to be renamed is at least half of what it was.
pub(crate) fn check_renames(effects: &[Effect], before: &State, after: &State) {
    for effect in effects {
        let Change::Renamed { from } = &effect.change else { continue };
        let (was, is) = (&before[&bytes(from)], &after[&bytes(&effect.path)]);
        let (Thing::File { content: was, .. }, Thing::File { content: is, .. }) = (was, is) else {
            assert_eq!(was, is, "{effect:?}");
            continue;
        };
        let shared: usize =
            lines(is).filter(|line| lines(was).any(|old| old == *line)).map(|line| line.len() + 1).sum();
        assert!(2 * shared >= was.len().max(is.len()), "{effect:?}");
    }
}

/// The lines of a file, without their breaks.
pub(crate) fn lines(content: &[u8]) -> impl Iterator<Item = &[u8]> {
    content.split_inclusive(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\n").unwrap_or(line))
}

/// A path for people.
pub(crate) fn shown(path: &[u8]) -> String {
    path.escape_ascii().to_string()
}

/// The path that a text of the record stands for: as it is, or in quotes as git writes it.
pub(crate) fn bytes(text: &str) -> Vec<u8> {
    let Some(inside) = text.strip_prefix('"') else { return text.as_bytes().to_vec() };
    let inside = inside.strip_suffix('"').expect("a quote at the end").as_bytes();
    let (mut path, mut at) = (Vec::new(), 0);
    while at < inside.len() {
        match (inside[at], inside.get(at + 1)) {
            (b'\\', Some(b'0'..=b'7')) => {
                let digits = std::str::from_utf8(&inside[at + 1..at + 4]).expect("digits");
                path.push(u8::from_str_radix(digits, 8).expect("a byte"));
                at += 4;
            }
            (b'\\', Some(byte)) => {
                path.push(*byte);
                at += 2;
            }
            (byte, _) => {
                path.push(byte);
                at += 1;
            }
        }
    }
    path
}

/// The text by which the record knows a path.
pub(crate) fn recorded(path: &[u8]) -> String {
    match std::str::from_utf8(path) {
        Ok(text) if !text.starts_with('"') => text.to_owned(),
        _ => {
            let mut text = String::from("\"");
            for chunk in path.utf8_chunks() {
                text.push_str(&chunk.valid().replace('\\', "\\\\").replace('"', "\\\""));
                chunk.invalid().iter().for_each(|byte| text.push_str(&format!("\\{byte:03o}")));
            }
            text + "\""
        }
    }
}

pub(crate) fn path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}
