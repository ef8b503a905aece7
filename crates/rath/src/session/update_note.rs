//! Updates of a directory: all its files become those of another tree, even if the process is killed meanwhile.
//!
//! Both trees are noted before the first file changes, with the session, and the note is removed when the record has the new tree. The
//! next opening by that session brings the files to the one of the two trees that is on the record. Changes of others meanwhile stay. A merge
//! that takes over the directory compares first, as if the update had not begun, and changes no file if one of them is in conflict.
//! Another session that works in the directory leaves the note alone, unless files that the update is about were changed since.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::Write;
use std::path::PathBuf;

use rath_record::BranchId;
use rath_record::chunk::Tree;
use rath_workspace::{Objects, Snapshot, TreeFile, TreeId, Workspace, read_at_most};

use super::versions::{self, Versions};
use super::{Error, Result};
use crate::error::ErrorKind;

/// The most bytes of a note.
const MAX_NOTE_BYTES: u64 = 1 << 10;

/// The note about the update of one directory.
pub(super) struct UpdateNote {
    path: PathBuf,
    /// The first branch of the session that works in the directory.
    session: BranchId,
    /// Locked while an update of this process is not over.
    file: Option<File>,
}

impl UpdateNote {
    /// Returns the note of the directory that has this name among those of a session.
    pub(super) fn new(objects: &Objects, name: &str, session: BranchId) -> Self {
        UpdateNote { path: objects.folder().join("updates").join(name), session, file: None }
    }

    /// Makes the files equal to `wanted`: those of the tree after the update, merged with changes of others. The note stays until
    /// [`remove`](UpdateNote::remove).
    pub(super) fn update(
        &mut self,
        workspace: &mut Workspace,
        found: &Snapshot,
        [before, after, wanted]: [&Tree; 3],
    ) -> Result<Attempt<()>> {
        self.write(before, after).map_err(|error| {
            let message = format!("cannot write the note {}", self.path.display());
            Error::new(ErrorKind::Place, message).because(error)
        })?;
        let restored = versions::tree_id(wanted).and_then(|wanted| restore_unless_changed(workspace, found, wanted));
        if !matches!(restored, Ok(Attempt::Done(()))) {
            // The files are as they were.
            self.remove();
        }
        restored
    }

    fn write(&mut self, before: &Tree, after: &Tree) -> std::io::Result<()> {
        self.path.parent().map_or(Ok(()), std::fs::create_dir_all)?;
        let mut file = OpenOptions::new().create(true).write(true).truncate(false).open(&self.path)?;
        file.lock()?;
        file.set_len(0)?;
        file.write_all(format!("{} {} {}\n", before.0, after.0, self.session).as_bytes())?;
        self.file = Some(file);
        Ok(())
    }

    /// Removes the note: the record has the new tree.
    pub(super) fn remove(&mut self) {
        // If this fails, the next opening finds the files as the record says.
        let _ = std::fs::remove_file(&self.path);
        self.file = None;
    }

    /// Finishes an update of this session that was interrupted, if a recorded tree is the new one, or undoes it, if one is the old one. The
    /// first tree of the list that is one of them counts.
    pub(super) fn complete(&mut self, workspace: &mut Workspace, recorded: &[&Tree]) -> Result<()> {
        until_unchanged(|| {
            match self.state(workspace, recorded)? {
                NoteState::OfOthers => return Ok(Attempt::Done(())),
                NoteState::Void => {}
                NoteState::Interrupted { found, completed } => {
                    let completed = versions::tree_id(&completed)?;
                    let restored = restore_unless_changed(workspace, &found, completed)?;
                    if matches!(restored, Attempt::Changed(_)) {
                        return Ok(restored);
                    }
                }
            }
            self.remove();
            Ok(Attempt::Done(()))
        })
    }

    /// Returns the tree of the files as [`complete`](UpdateNote::complete) would leave them; none if it would change none. Changes
    /// nothing.
    pub(super) fn completed(&self, workspace: &mut Workspace, recorded: &[&Tree]) -> Result<Option<Tree>> {
        Ok(match self.state(workspace, recorded)? {
            NoteState::Interrupted { completed, .. } => Some(completed),
            NoteState::OfOthers | NoteState::Void => None,
        })
    }

    /// Compares the note with the files and the recorded trees.
    fn state(&self, workspace: &mut Workspace, recorded: &[&Tree]) -> Result<NoteState> {
        let Ok(text) = read_at_most(&self.path, MAX_NOTE_BYTES) else { return Ok(NoteState::OfOthers) };
        let is_locked = |file: File| matches!(file.try_lock(), Err(TryLockError::WouldBlock));
        // The update of another process is not over.
        if self.file.is_none() && File::open(&self.path).is_ok_and(is_locked) {
            return Ok(NoteState::OfOthers);
        }
        let text = String::from_utf8_lossy(&text);
        let [before, after, session] = text.split_whitespace().collect::<Vec<_>>()[..] else {
            return Ok(NoteState::Void);
        };
        let trees = [before, after].map(|tree| Tree(tree.to_owned()));
        let versions = Versions::from(workspace.objects().clone());
        let is_stored = |tree: &Tree| versions::tree_id(tree).is_ok_and(|tree| workspace.objects().has_tree(tree));
        // Without its trees, the note says nothing.
        if !trees.iter().all(is_stored) {
            return Ok(NoteState::Void);
        }
        let snapshot = workspace.snapshot()?;
        let found = versions::tree(snapshot.tree);
        let UpdatedPaths { pending, has_others } = UpdatedPaths::find(&versions, &trees, &found)?;
        if session.parse() != Ok(self.session) {
            return Ok(if has_others { NoteState::Void } else { NoteState::OfOthers });
        }
        let Some(to) = recorded.iter().find(|tree| trees.contains(tree)) else { return Ok(NoteState::Void) };
        let completed = versions.with_paths_of(&found, to, &pending)?;
        Ok(NoteState::Interrupted { found: snapshot, completed })
    }
}

/// The number of times that files are looked at again because others change them.
const MAX_ATTEMPTS: usize = 5;

/// The result of work on files that others may change meanwhile.
pub(crate) enum Attempt<T> {
    Done(T),
    /// Others changed a file since it was looked at. All files are as they were.
    Changed(rath_workspace::Error),
}

impl<T> Attempt<T> {
    pub(super) fn map<U>(self, change: impl FnOnce(T) -> U) -> Attempt<U> {
        match self {
            Attempt::Done(done) => Attempt::Done(change(done)),
            Attempt::Changed(error) => Attempt::Changed(error),
        }
    }

    /// Returns the result, if there is one.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        match self {
            Attempt::Done(done) => Some(done).into_iter(),
            Attempt::Changed(_) => None.into_iter(),
        }
    }
}

/// Counts attempts: a program that changes files all the time is not waited for.
pub(super) struct Attempts(usize);

impl Attempts {
    pub(super) fn new() -> Self {
        Attempts(MAX_ATTEMPTS)
    }

    /// Returns the result of an attempt; none if there is to be another one.
    pub(super) fn check<T>(&mut self, attempt: Attempt<T>) -> Result<Option<T>> {
        match attempt {
            Attempt::Done(done) => Ok(Some(done)),
            Attempt::Changed(_) if self.0 > 1 => {
                self.0 -= 1;
                Ok(None)
            }
            Attempt::Changed(error) => Err(Error::new(ErrorKind::Conflict, format!("{error}, again and again"))
                .with_hint("no file was overwritten; stop the program that writes it, and try again")),
        }
    }
}

/// Calls `work` until others no longer change files since it looked at them.
pub(super) fn until_unchanged<T>(mut work: impl FnMut() -> Result<Attempt<T>>) -> Result<T> {
    let mut attempts = Attempts::new();
    loop {
        if let Some(done) = attempts.check(work()?)? {
            return Ok(done);
        }
    }
}

/// Makes the files equal to a tree, unless others changed one of them since they were found.
fn restore_unless_changed(workspace: &mut Workspace, found: &Snapshot, tree: TreeId) -> Result<Attempt<()>> {
    match workspace.restore(found, tree) {
        Err(error) if error.kind() == rath_workspace::ErrorKind::Changed => Ok(Attempt::Changed(error)),
        restored => Ok(Attempt::Done(restored.map(drop)?)),
    }
}

/// The state of an update that a note is about.
enum NoteState {
    /// There is no note, or the update is another process's or another session's.
    OfOthers,
    /// The note is of no use any more.
    Void,
    /// The files are partly those of both trees.
    Interrupted {
        found: Snapshot,
        /// The files of the recorded one of the two trees, with those that others changed meanwhile: the next look records them.
        completed: Tree,
    },
}

/// The paths that differ between the trees of an update that was interrupted.
struct UpdatedPaths {
    /// Those that the update may have left as they are: as in one of the trees, or missing. An update removes a file before it writes
    /// another one under a new name.
    pending: Vec<String>,
    /// True if others changed one of the rest.
    has_others: bool,
}

impl UpdatedPaths {
    fn find(versions: &Versions, [one, other]: &[Tree; 2], found: &Tree) -> Result<Self> {
        let files = |tree: &Tree| -> Result<BTreeMap<String, TreeFile>> {
            Ok(versions.files(tree)?.into_iter().map(|file| (file.path.clone(), file)).collect())
        };
        let (one, other, found) = (files(one)?, files(other)?, files(found)?);
        let is_of_update = |path: &str| {
            found.get(path).is_none_or(|file| [&one, &other].iter().any(|tree| tree.get(path) == Some(file)))
        };
        let differing = one.keys().chain(other.keys()).filter(|path| one.get(*path) != other.get(*path));
        let (mut pending, mut has_others) = (BTreeSet::new(), false);
        for path in differing {
            // A file of others may be in the place of a directory, and the other way round.
            let above = path.match_indices('/').map(|(at, _)| &path[..at]);
            let start = format!("{path}/");
            let mut below =
                found.range(start.clone()..).map(|(path, _)| path).take_while(|path| path.starts_with(&start));
            if is_of_update(path) && above.into_iter().all(is_of_update) && below.all(|path| is_of_update(path)) {
                pending.insert(path.clone());
            } else {
                has_others = true;
            }
        }
        Ok(UpdatedPaths { pending: pending.into_iter().collect(), has_others })
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    /// The files of a directory before an update, after it, and half-way; then as others left them.
    const BEFORE: [(&str, &str); 4] = [("a", "1\n"), ("b", "1\n"), ("c", "1\n"), ("d/e", "1\n")];
    const AFTER: [(&str, &str); 3] = [("a", "2\n"), ("b", "2\n"), ("c", "2\n")];
    const INTERRUPTED: [(&str, &str); 4] = [("a", "2\n"), ("b", "1\n"), ("c", "1\n"), ("d/e", "1\n")];

    struct InterruptedUpdate {
        folder: rath_test_support::TempDir,
        workspace: Workspace,
        before: Tree,
        after: Tree,
        owner: BranchId,
    }

    impl InterruptedUpdate {
        /// Interrupts an update, and then changes files.
        fn interrupted(changes: &[(&str, &str)]) -> Self {
            let fixture = InterruptedUpdate::of([&BEFORE, &AFTER, &INTERRUPTED]);
            let root = fixture.folder.path().join("project");
            changes.iter().for_each(|(path, content)| std::fs::write(root.join(path), content).expect("a file"));
            fixture
        }

        /// Interrupts an update, with the files before it, after it and now.
        fn of([before, after, now]: [&[(&str, &str)]; 3]) -> Self {
            let folder = rath_test_support::temp_dir();
            let root = folder.path().join("project");
            std::fs::create_dir(&root).expect("a directory");
            let objects = Objects::open(&folder.path().join("versions")).expect("versions");
            let index = folder.path().join("index");
            let mut workspace = Workspace::open(&root, &objects, &index).expect("a workspace");
            let mut tree = |files: &[(&str, &str)]| {
                put_only(&root, files);
                versions::tree(workspace.snapshot().expect("a snapshot").tree)
            };
            let (before, after) = (tree(before), tree(after));
            put_only(&root, now);
            let owner = session(1);
            UpdateNote::new(&objects, "root", owner).write(&before, &after).expect("a note");
            InterruptedUpdate { folder, workspace, before, after, owner }
        }

        fn complete(&mut self, session: BranchId, recorded: &Tree) {
            let mut note = UpdateNote::new(self.workspace.objects(), "root", session);
            note.complete(&mut self.workspace, &[recorded]).expect("completed");
        }

        fn has_note(&self) -> bool {
            self.folder.path().join("versions/updates/root").exists()
        }

        /// Returns the files, in one line.
        fn files(&self) -> String {
            let read = |path: &str| std::fs::read_to_string(self.folder.path().join("project").join(path));
            let names = ["a", "b", "c", "d/e", "lib/a", "lib/b", "src/a", "src/b"];
            let files = names.iter().filter_map(|path| Some(format!("{path}={}", read(path).ok()?)));
            files.collect::<String>().replace('\n', " ").trim_end().to_owned()
        }
    }

    fn session(nth: u8) -> BranchId {
        BranchId([nth; 16])
    }

    fn put_only(root: &std::path::Path, files: &[(&str, &str)]) {
        std::fs::remove_dir_all(root).expect("removed");
        std::fs::create_dir(root).expect("a directory");
        for (path, content) in files {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
            std::fs::write(path, content).expect("a file");
        }
    }

    #[test]
    fn the_session_itself_finishes_or_undoes_an_update() {
        for (is_recorded, files) in [(true, "a=2 b=2 c=2"), (false, "a=1 b=1 c=1 d/e=1")] {
            let mut fixture = InterruptedUpdate::interrupted(&[]);
            let recorded = if is_recorded { fixture.after.clone() } else { fixture.before.clone() };
            fixture.complete(fixture.owner, &recorded);
            assert_eq!((&*fixture.files(), fixture.has_note()), (files, false));
        }
    }

    #[test]
    fn a_file_that_was_changed_meanwhile_stays_and_all_others_are_finished() {
        for (is_recorded, files) in [(true, "a=2 b=mine c=2"), (false, "a=1 b=mine c=1 d/e=1")] {
            let mut fixture = InterruptedUpdate::interrupted(&[("b", "mine\n")]);
            let recorded = if is_recorded { fixture.after.clone() } else { fixture.before.clone() };
            fixture.complete(fixture.owner, &recorded);
            assert_eq!((&*fixture.files(), fixture.has_note()), (files, false));
        }
    }

    #[test]
    fn no_kill_between_the_removals_and_the_writes_of_renames_loses_a_file() {
        let (before, after) = ([("lib/a", "1\n"), ("lib/b", "2\n")], [("src/a", "1\n"), ("src/b", "2\n")]);
        let all = [before, after].concat();
        for state in 0..1 << all.len() {
            let now: Vec<_> = (0..all.len()).filter(|nth| state >> nth & 1 == 1).map(|nth| all[nth]).collect();
            for (is_recorded, files) in [(true, "src/a=1 src/b=2"), (false, "lib/a=1 lib/b=2")] {
                let mut fixture = InterruptedUpdate::of([&before, &after, &now]);
                fixture.complete(session(2), &fixture.before.clone());
                assert!(fixture.has_note(), "{now:?}: it is left to its own session");
                let recorded = if is_recorded { fixture.after.clone() } else { fixture.before.clone() };
                fixture.complete(fixture.owner, &recorded);
                assert_eq!((&*fixture.files(), fixture.has_note()), (files, false), "{now:?}");
            }
        }
    }

    #[test]
    fn a_note_whose_trees_are_gone_is_dropped() {
        for owner in [1, 2] {
            let mut fixture = InterruptedUpdate::of([&BEFORE, &AFTER, &INTERRUPTED]);
            let lost = Tree(format!("git:{:040x}", 7));
            UpdateNote::new(fixture.workspace.objects(), "root", fixture.owner).write(&lost, &lost).expect("a note");
            fixture.complete(session(owner), &lost);
            assert_eq!((&*fixture.files(), fixture.has_note()), ("a=2 b=1 c=1 d/e=1", false));
        }
    }

    #[test]
    fn another_session_leaves_the_update_to_its_own() {
        let mut fixture = InterruptedUpdate::interrupted(&[("other", "3\n")]);
        let (owner, other) = (fixture.owner, session(2));
        let recorded = fixture.before.clone();
        fixture.complete(other, &recorded);
        assert_eq!((&*fixture.files(), fixture.has_note()), ("a=2 b=1 c=1 d/e=1", true));
        let recorded = fixture.after.clone();
        fixture.complete(owner, &recorded);
        assert_eq!((&*fixture.files(), fixture.has_note()), ("a=2 b=2 c=2", false));
    }

    #[test]
    fn another_session_drops_an_update_of_files_that_were_changed_since() {
        let mut fixture = InterruptedUpdate::interrupted(&[("b", "3\n")]);
        let recorded = fixture.before.clone();
        fixture.complete(session(2), &recorded);
        assert_eq!((&*fixture.files(), fixture.has_note()), ("a=2 b=3 c=1 d/e=1", false));
    }
}
