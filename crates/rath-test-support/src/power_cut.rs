//! Power cuts: the states of a directory that a cut may leave.
//!
//! A program is run below strace. From the calls that it makes, the states are built that its files may have after the power
//! goes: of everything that was not synced, any part may be on the disk.
//!
//! - The content of a file is durable once the file is synced. Of later writes, any sectors of 512 bytes may be there, in any
//!   order; the length of the file may be there without its content.
//! - A name is durable once its directory is synced. Of later changes to a directory, the first ones may be there. A rename is
//!   there or not.

mod trace;

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use self::trace::SysCall;
use crate::random::Chance;

/// The changes that a program made to the files in a directory.
pub struct PowerCuts {
    nodes: Vec<NodeKind>,
    /// The content before the program began, which is durable.
    first: Tree,
    changes: Vec<Change>,
}

/// A state that a power cut may leave.
pub struct CutState {
    /// The lines that the program had noted.
    pub notes: Vec<String>,
    /// The position in the recording, and the way in which the state was chosen, for messages.
    pub name: String,
    tree: Tree,
}

type NodeId = usize;

/// The number of the directory itself.
const ROOT: NodeId = 0;
const SECTOR_BYTES: usize = 512;
/// The ways to choose what is on the disk of all that was not synced.
const CHOICES: [&str; 5] =
    ["nothing that was not synced", "everything", "the first changes", "some sectors", "some sectors and all lengths"];

#[derive(Clone, Copy, PartialEq)]
enum NodeKind {
    Directory,
    File,
}

/// The files and directories, as far as they are on the disk.
#[derive(Clone, Default)]
struct Tree {
    names: HashMap<NodeId, BTreeMap<OsString, NodeId>>,
    contents: HashMap<NodeId, Vec<u8>>,
}

#[derive(Clone)]
enum Change {
    Write {
        file: NodeId,
        offset: usize,
        bytes: Vec<u8>,
    },
    Resize {
        file: NodeId,
        length: usize,
    },
    /// New meanings of names, all at once: a file, or nothing.
    Names(Vec<(NodeId, OsString, Option<NodeId>)>),
    Sync {
        node: NodeId,
    },
    /// Everything that was changed before is durable.
    SyncAll,
    Note(String),
}

/// An open file of the program.
#[derive(Clone)]
struct Descriptor {
    node: NodeId,
    offset: usize,
    appends: bool,
}

impl PowerCuts {
    /// Runs a program and records its changes in a directory. The lines that it appends to the file `notes`, which is
    /// elsewhere, become notes.
    ///
    /// Returns `None` if this machine has no strace.
    #[track_caller]
    pub fn record(command: &Command, directory: &Path, notes: &Path) -> Option<Self> {
        let mut recorder = Recorder::new(directory, notes);
        let log = notes.with_extension("strace");
        let calls = trace::run(command, &log)?;
        let _ = std::fs::remove_file(&log);
        calls.iter().for_each(|call| recorder.add(call));
        recorder.check();
        Some(PowerCuts { nodes: recorder.nodes, first: recorder.first, changes: recorder.changes })
    }

    /// Writes `count` states to the directory, spread over the whole run, and fails if `check` rejects one of them.
    #[track_caller]
    pub fn check_states(
        &self,
        name: &str,
        count: usize,
        directory: &Path,
        mut check: impl FnMut(&CutState) -> Result<(), String>,
    ) {
        let (mut states, mut wrong) = (0, Vec::new());
        self.each_state(count, crate::seed(), |state| {
            states += 1;
            state.write_to(directory).expect("a state");
            if let Err(why) = check(state) {
                wrong.push(format!("{name}, {}: {why}", state.name));
            }
        });
        println!("{name}: {} of {states} states are wrong", wrong.len());
        let shown: Vec<_> = wrong.iter().take(20).map(String::as_str).collect();
        assert!(wrong.is_empty(), "{} of {states} states are wrong:\n{}", wrong.len(), shown.join("\n"));
    }

    /// Calls `check` with `count` states, spread over the whole run.
    pub fn each_state(&self, count: usize, seed: u64, mut check: impl FnMut(&CutState)) {
        let mut disk = Disk::new(self);
        let mut chance = Chance(seed);
        let (mut notes, moments) = (Vec::new(), self.changes.len() + 1);
        for moment in 0..moments {
            for nth in 0..count * (moment + 1) / moments - count * moment / moments {
                // With few states for each change, the first ways would be the only ones.
                let nth =
                    if count < CHOICES.len() * moments { chance.below(CHOICES.len() as u64) as usize } else { nth };
                let (choice, tree) = disk.cut(nth, &mut chance);
                let name = format!("cut {moment} of {moments}, {choice}");
                check(&CutState { notes: notes.clone(), name, tree });
            }
            match self.changes.get(moment) {
                Some(Change::Note(note)) => notes.push(note.clone()),
                Some(change) => disk.apply(change),
                None => {}
            }
        }
    }
}

impl CutState {
    /// Writes the state to a directory, which is emptied first.
    pub fn write_to(&self, directory: &Path) -> io::Result<()> {
        match std::fs::remove_dir_all(directory) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => self.tree.write_to(directory, ROOT),
        }
    }
}

impl Tree {
    fn write_to(&self, directory: &Path, node: NodeId) -> io::Result<()> {
        std::fs::create_dir(directory)?;
        for (name, child) in self.names.get(&node).into_iter().flatten() {
            let path = directory.join(name);
            match self.contents.get(child) {
                Some(content) => std::fs::write(&path, content)?,
                None => self.write_to(&path, *child)?,
            }
        }
        Ok(())
    }

    fn set(&mut self, names: &[(NodeId, OsString, Option<NodeId>)]) {
        for (directory, name, node) in names {
            let entries = self.names.entry(*directory).or_default();
            match node {
                Some(node) => entries.insert(name.clone(), *node),
                None => entries.remove(name),
            };
        }
    }

    fn write(&mut self, file: NodeId, offset: usize, bytes: &[u8]) {
        let content = self.contents.entry(file).or_default();
        content.resize(content.len().max(offset + bytes.len()), 0);
        content[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    fn resize(&mut self, file: NodeId, length: usize) {
        self.contents.entry(file).or_default().resize(length, 0);
    }

    fn apply(&mut self, change: &Change) {
        match change {
            Change::Write { file, offset, bytes } => self.write(*file, *offset, bytes),
            Change::Resize { file, length } => self.resize(*file, *length),
            Change::Names(names) => self.set(names),
            Change::Sync { .. } | Change::SyncAll | Change::Note(_) => {}
        }
    }
}

/// The content that is durable, and the changes that may or may not be.
struct Disk<'a> {
    nodes: &'a [NodeKind],
    durable: Tree,
    /// The changes since the last sync of each file.
    files: BTreeMap<NodeId, Vec<&'a Change>>,
    names: Vec<&'a [(NodeId, OsString, Option<NodeId>)]>,
}

impl<'a> Disk<'a> {
    fn new(cuts: &'a PowerCuts) -> Self {
        Disk { nodes: &cuts.nodes, durable: cuts.first.clone(), files: BTreeMap::new(), names: Vec::new() }
    }

    fn apply(&mut self, change: &'a Change) {
        match change {
            Change::Write { file, .. } | Change::Resize { file, .. } => {
                self.files.entry(*file).or_default().push(change);
            }
            Change::Names(names) => {
                // A new file or directory is empty until something is written to it.
                for node in names.iter().filter_map(|(.., node)| *node) {
                    match self.nodes[node] {
                        NodeKind::Directory => _ = self.durable.names.entry(node).or_default(),
                        NodeKind::File => _ = self.durable.contents.entry(node).or_default(),
                    }
                }
                self.names.push(names);
            }
            Change::Sync { node } => match self.nodes[*node] {
                NodeKind::File => {
                    let changes = self.files.remove(node).unwrap_or_default();
                    changes.into_iter().for_each(|change| self.durable.apply(change));
                }
                NodeKind::Directory => {
                    let touches =
                        |names: &&[(NodeId, OsString, _)]| names.iter().any(|(directory, ..)| directory == node);
                    let (synced, pending): (Vec<_>, Vec<_>) =
                        std::mem::take(&mut self.names).into_iter().partition(touches);
                    synced.iter().for_each(|names| self.durable.set(names));
                    self.names = pending;
                }
            },
            Change::SyncAll => {
                let files = std::mem::take(&mut self.files);
                files.into_values().flatten().for_each(|change| self.durable.apply(change));
                std::mem::take(&mut self.names).into_iter().for_each(|names| self.durable.set(names));
            }
            Change::Note(_) => {}
        }
    }

    /// Returns a state after a cut, and how it was chosen.
    fn cut(&self, nth: usize, chance: &mut Chance) -> (&'static str, Tree) {
        let mut tree = self.durable.clone();
        let choice = CHOICES[if nth < 2 { nth } else { chance.below(CHOICES.len() as u64 - 2) as usize + 2 }];
        // Names in the order in which they changed, from each directory the first ones.
        let mut kept: HashMap<NodeId, usize> = HashMap::new();
        for names in &self.names {
            let (directory, ..) = names[0];
            let left = kept.entry(directory).or_insert_with(|| match choice {
                "everything" => usize::MAX,
                "nothing that was not synced" => 0,
                _ => chance.below(self.names.len() as u64 + 2) as usize,
            });
            if *left > 0 {
                *left -= 1;
                tree.set(names);
            }
        }
        for (file, changes) in &self.files {
            match choice {
                "nothing that was not synced" => {}
                "everything" => changes.iter().for_each(|change| tree.apply(change)),
                "the first changes" => {
                    let count = chance.below(changes.len() as u64 + 1) as usize;
                    changes[..count].iter().for_each(|change| tree.apply(change));
                    if let Some(Change::Write { file, offset, bytes }) = changes.get(count) {
                        // Up to a sector of the next one.
                        let end = chance.below(bytes.len() as u64 + 1) as usize;
                        let end = end.saturating_sub((offset + end) % SECTOR_BYTES);
                        if end > 0 {
                            tree.write(*file, *offset, &bytes[..end]);
                        }
                    }
                }
                _ => {
                    let likely = [1, 5, 9][chance.below(3) as usize];
                    let whole =
                        changes.iter().fold(
                            tree.contents.get(file).map_or(0, Vec::len),
                            |length, change| match change {
                                Change::Write { offset, bytes, .. } => length.max(offset + bytes.len()),
                                Change::Resize { length, .. } => *length,
                                _ => length,
                            },
                        );
                    for change in changes {
                        match change {
                            Change::Write { file, offset, bytes } => {
                                let mut from = 0;
                                while from < bytes.len() {
                                    let end = bytes.len().min(from + SECTOR_BYTES - (offset + from) % SECTOR_BYTES);
                                    if chance.below(10) < likely {
                                        tree.write(*file, offset + from, &bytes[from..end]);
                                    }
                                    from = end;
                                }
                            }
                            change if chance.below(10) < likely => tree.apply(change),
                            _ => {}
                        }
                    }
                    if choice == "some sectors and all lengths" {
                        tree.resize(*file, whole);
                    }
                }
            }
        }
        (choice, tree)
    }
}

/// Follows the calls of a program.
struct Recorder {
    directory: PathBuf,
    notes: PathBuf,
    nodes: Vec<NodeKind>,
    first: Tree,
    now: Tree,
    changes: Vec<Change>,
    /// The descriptors in the directory, and those of directories elsewhere.
    descriptors: HashMap<i64, Descriptor>,
    elsewhere: HashMap<i64, PathBuf>,
    note_files: HashMap<i64, ()>,
}

impl Recorder {
    fn new(directory: &Path, notes: &Path) -> Self {
        let (nodes, first) = (Vec::new(), Tree::default());
        let mut recorder = Recorder {
            directory: directory.to_owned(),
            notes: notes.to_owned(),
            nodes,
            first,
            now: Tree::default(),
            changes: Vec::new(),
            descriptors: HashMap::new(),
            elsewhere: HashMap::new(),
            note_files: HashMap::new(),
        };
        recorder.read(directory);
        recorder.first = recorder.now.clone();
        recorder
    }

    /// Reads what is in a directory before the program begins.
    fn read(&mut self, path: &Path) -> NodeId {
        let metadata = std::fs::symlink_metadata(path).expect("it is there");
        let node = self.nodes.len();
        if metadata.is_dir() {
            self.nodes.push(NodeKind::Directory);
            self.now.names.entry(node).or_default();
            for entry in std::fs::read_dir(path).expect("a directory") {
                let entry = entry.expect("an entry");
                let child = self.read(&entry.path());
                self.now.names.entry(node).or_default().insert(entry.file_name(), child);
            }
        } else {
            self.nodes.push(NodeKind::File);
            self.now.contents.insert(node, std::fs::read(path).expect("a file"));
        }
        node
    }

    /// Fails if the files are not as the recording says: then a call was not understood.
    #[track_caller]
    fn check(&self) {
        self.check_directory(&self.directory, ROOT);
    }

    #[track_caller]
    fn check_directory(&self, path: &Path, node: NodeId) {
        let mut found: Vec<OsString> =
            std::fs::read_dir(path).expect("a directory").map(|entry| entry.expect("an entry").file_name()).collect();
        found.sort();
        let names: Vec<OsString> = self.now.names[&node].keys().cloned().collect();
        assert_eq!(found, names, "the recording of {} is not what is there", path.display());
        for (name, child) in &self.now.names[&node] {
            let path = path.join(name);
            match self.now.contents.get(child) {
                None => self.check_directory(&path, *child),
                // It is mapped into memory, and has no meaning after a cut.
                Some(_) if is_shared_memory(name) => {}
                Some(content) => {
                    let is_same = std::fs::read(&path).expect("a file") == *content;
                    assert!(is_same, "the recording of {} is not what is there", path.display());
                }
            }
        }
    }

    fn change(&mut self, change: Change) {
        self.now.apply(&change);
        self.changes.push(change);
    }

    fn add_node(&mut self, kind: NodeKind) -> NodeId {
        let node = self.nodes.len();
        self.nodes.push(kind);
        match kind {
            NodeKind::Directory => _ = self.now.names.entry(node).or_default(),
            NodeKind::File => _ = self.now.contents.entry(node).or_default(),
        }
        node
    }

    /// Returns the absolute path of a directory in which names are looked up.
    fn base(&self, descriptor: &str) -> Option<PathBuf> {
        match descriptor.parse() {
            // Programs are started in a directory elsewhere and use no relative names there.
            Err(_) => Some(PathBuf::from("/")),
            Ok(number) => match self.descriptors.get(&number) {
                Some(open) => self.path_of(open.node),
                None => self.elsewhere.get(&number).cloned(),
            },
        }
    }

    fn path_of(&self, node: NodeId) -> Option<PathBuf> {
        if node == ROOT {
            return Some(self.directory.clone());
        }
        let holds = |entries: &BTreeMap<OsString, NodeId>| {
            entries.iter().find(|(_, child)| **child == node).map(|(name, _)| name.clone())
        };
        let (parent, name) = self.now.names.iter().find_map(|(parent, entries)| Some((*parent, holds(entries)?)))?;
        Some(self.path_of(parent)?.join(name))
    }

    /// Returns the directory and the name that a path leads to, if that is in the directory.
    fn place(&self, base: &str, path: &[u8]) -> Option<(NodeId, OsString)> {
        let path = self.base(base)?.join(OsString::from_vec(path.to_vec()));
        let mut parts = path.strip_prefix(&self.directory).ok()?.components().peekable();
        let mut node = ROOT;
        while let Some(part) = parts.next() {
            let name = part.as_os_str().to_owned();
            if parts.peek().is_none() {
                return Some((node, name));
            }
            node = *self.now.names.get(&node)?.get(&name)?;
        }
        // The directory itself.
        Some((ROOT, OsString::new()))
    }

    fn find(&self, (directory, name): &(NodeId, OsString)) -> Option<NodeId> {
        if name.is_empty() { Some(*directory) } else { self.now.names.get(directory)?.get(name).copied() }
    }

    fn add(&mut self, call: &SysCall) {
        if call.result < 0 {
            return;
        }
        let number = |nth: usize| call.argument(nth).parse::<i64>().unwrap_or(-1);
        match &*call.name {
            "openat" => self.open(call.argument(0), &call.text(1), call.argument(2), call.result),
            "open" => self.open("AT_FDCWD", &call.text(0), call.argument(1), call.result),
            "creat" => self.open("AT_FDCWD", &call.text(0), "O_WRONLY|O_CREAT|O_TRUNC", call.result),
            "openat2" => {
                let flags = call.argument(2).to_owned();
                self.open(call.argument(0), &call.text(1), &flags, call.result);
            }
            "close" => {
                self.descriptors.remove(&number(0));
                self.elsewhere.remove(&number(0));
                self.note_files.remove(&number(0));
            }
            "dup" | "dup2" | "dup3" => self.duplicate(number(0), call.result),
            "fcntl" if call.argument(1).starts_with("F_DUPFD") => self.duplicate(number(0), call.result),
            "lseek" => {
                if let Some(open) = self.descriptors.get_mut(&number(0)) {
                    open.offset = call.result as usize;
                }
            }
            "write" | "writev" => {
                let mut bytes = call.bytes();
                bytes.truncate(call.result as usize);
                if self.note_files.contains_key(&number(0)) {
                    let text = String::from_utf8(bytes).expect("notes are text");
                    text.lines().for_each(|line| self.changes.push(Change::Note(line.to_owned())));
                } else if let Some(open) = self.descriptors.get(&number(0)).cloned() {
                    let offset = if open.appends { self.now.contents[&open.node].len() } else { open.offset };
                    let end = offset + bytes.len();
                    self.change(Change::Write { file: open.node, offset, bytes });
                    self.descriptors.entry(number(0)).and_modify(|open| open.offset = end);
                }
            }
            "pwrite64" => {
                if let Some(open) = self.descriptors.get(&number(0)).cloned() {
                    let mut bytes = call.bytes();
                    bytes.truncate(call.result as usize);
                    let offset = call.last().parse().expect("an offset");
                    self.change(Change::Write { file: open.node, offset, bytes });
                }
            }
            "ftruncate" => {
                if let Some(open) = self.descriptors.get(&number(0)).cloned() {
                    self.change(Change::Resize { file: open.node, length: number(1) as usize });
                }
            }
            "copy_file_range" => self.copy(call, (number(0), number(2))),
            "syncfs" | "sync" => self.changes.push(Change::SyncAll),
            "fallocate" | "sendfile" | "pwritev" | "pwritev2" | "truncate" | "symlink" | "symlinkat" => {
                let is_here = (0..3).any(|nth| self.descriptors.contains_key(&number(nth)));
                assert!(!is_here, "the recording does not know {call:?}");
            }
            "fsync" | "fdatasync" => {
                if let Some(open) = self.descriptors.get(&number(0)) {
                    self.changes.push(Change::Sync { node: open.node });
                }
            }
            "mkdir" => self.make_directory("AT_FDCWD", &call.text(0)),
            "mkdirat" => self.make_directory(call.argument(0), &call.text(1)),
            "unlink" | "rmdir" => self.remove("AT_FDCWD", &call.text(0)),
            "unlinkat" => self.remove(call.argument(0), &call.text(1)),
            "rename" => self.rename(("AT_FDCWD", &call.text(0)), ("AT_FDCWD", &call.text(1))),
            "renameat" | "renameat2" => {
                let (from, to) = (call.text(1), call.text(3));
                let (from, to) = ((call.argument(0), &*from), (call.argument(2), &*to));
                if call.last().contains("EXCHANGE") { self.exchange(from, to) } else { self.rename(from, to) }
            }
            "link" => self.link(("AT_FDCWD", &call.text(0)), ("AT_FDCWD", &call.text(1))),
            "linkat" => self.link((call.argument(0), &call.text(1)), (call.argument(2), &call.text(3))),
            _ => {}
        }
    }

    fn open(&mut self, base: &str, path: &[u8], flags: &str, descriptor: i64) {
        let Some(place) = self.place(base, path) else {
            if let Some(base) = self.base(base) {
                let path = base.join(OsString::from_vec(path.to_vec()));
                if path == self.notes {
                    self.note_files.insert(descriptor, ());
                }
                self.elsewhere.insert(descriptor, path);
            }
            return;
        };
        let node = match self.find(&place) {
            Some(node) => {
                if flags.contains("O_TRUNC") && !self.now.contents.get(&node).is_none_or(Vec::is_empty) {
                    self.change(Change::Resize { file: node, length: 0 });
                }
                node
            }
            None => {
                let node = self.add_node(NodeKind::File);
                self.change(Change::Names(vec![(place.0, place.1, Some(node))]));
                node
            }
        };
        self.descriptors.insert(descriptor, Descriptor { node, offset: 0, appends: flags.contains("O_APPEND") });
    }

    /// Copies bytes from one open file to another.
    fn copy(&mut self, call: &SysCall, (from, to): (i64, i64)) {
        let Some(target) = self.descriptors.get(&to).cloned() else { return };
        let is_known = call.argument(1) == "NULL" && call.argument(3) == "NULL";
        let source = self.descriptors.get(&from).cloned().filter(|_| is_known);
        let source = source.unwrap_or_else(|| panic!("the recording does not know {call:?}"));
        let length = call.result as usize;
        let bytes = self.now.contents[&source.node][source.offset..source.offset + length].to_vec();
        self.change(Change::Write { file: target.node, offset: target.offset, bytes });
        self.descriptors.entry(from).and_modify(|open| open.offset += length);
        self.descriptors.entry(to).and_modify(|open| open.offset += length);
    }

    fn duplicate(&mut self, from: i64, to: i64) {
        if let Some(open) = self.descriptors.get(&from).cloned() {
            self.descriptors.insert(to, open);
        }
        if let Some(path) = self.elsewhere.get(&from).cloned() {
            self.elsewhere.insert(to, path);
        }
    }

    fn make_directory(&mut self, base: &str, path: &[u8]) {
        if let Some((directory, name)) = self.place(base, path) {
            let node = self.add_node(NodeKind::Directory);
            self.change(Change::Names(vec![(directory, name, Some(node))]));
        }
    }

    fn remove(&mut self, base: &str, path: &[u8]) {
        if let Some((directory, name)) = self.place(base, path) {
            self.change(Change::Names(vec![(directory, name, None)]));
        }
    }

    fn rename(&mut self, (base, from): (&str, &[u8]), (to_base, to): (&str, &[u8])) {
        match (self.place(base, from), self.place(to_base, to)) {
            (Some(from), Some(to)) => {
                let node = self.find(&from).expect("it was renamed");
                self.change(Change::Names(vec![(to.0, to.1, Some(node)), (from.0, from.1, None)]));
            }
            (None, None) => {}
            _ => panic!("a file was moved into the directory or out of it"),
        }
    }

    fn exchange(&mut self, (base, one): (&str, &[u8]), (other_base, other): (&str, &[u8])) {
        match (self.place(base, one), self.place(other_base, other)) {
            (Some(one), Some(other)) => {
                let nodes = [&one, &other].map(|place| self.find(place).expect("it was exchanged"));
                self.change(Change::Names(vec![(other.0, other.1, Some(nodes[0])), (one.0, one.1, Some(nodes[1]))]));
            }
            (None, None) => {}
            _ => panic!("a file was moved into the directory or out of it"),
        }
    }

    fn link(&mut self, (base, from): (&str, &[u8]), (to_base, to): (&str, &[u8])) {
        match (self.place(base, from), self.place(to_base, to)) {
            (Some(from), Some(to)) => {
                let node = self.find(&from).expect("it was linked");
                self.change(Change::Names(vec![(to.0, to.1, Some(node))]));
            }
            (None, None) => {}
            _ => panic!("a file was linked into the directory or out of it"),
        }
    }
}

/// Returns true for the file in which SQLite shares its index of the WAL between processes.
fn is_shared_memory(name: &std::ffi::OsStr) -> bool {
    name.as_encoded_bytes().ends_with(b"-shm")
}
