//! A tree with a few paths as somebody wants them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rath_record::chunk::{Change, Conflict, Effect, FileVersion, Tree};

use super::batch::Batch;
use super::objects::{Kind, Objects};
use super::quote;
use super::tree::{self, EMPTY, Entry, Mode, ObjectId};
use crate::error::ErrorKind;
use crate::session::{Error, Result};

/// What is to be at a path: a file, or nothing.
type Wanted = Option<(Mode, ObjectId)>;

/// What is wanted of one name in a directory, and below it.
#[derive(Default)]
struct Edits<'a> {
    here: Option<Wanted>,
    below: Vec<(&'a [u8], Wanted)>,
}

impl Objects {
    /// A tree in which what these effects changed is as in another, and everything else as it was.
    pub(crate) fn with_changes(&self, tree: &Tree, after: &Tree, effects: &[Effect]) -> Result<Tree> {
        let mut wanted = BTreeMap::new();
        let paths = effects.iter().flat_map(|effect| match &effect.change {
            Change::Renamed { from } => vec![from, &effect.path],
            _ => vec![&effect.path],
        });
        for path in paths {
            let path = quote::path(path)?;
            let found = self.entry(tree::id(after)?, &path)?;
            wanted.insert(path, found);
        }
        self.edit(tree, &wanted)
    }

    /// A tree in which a path that was in conflict is one of its versions, or gone.
    pub(crate) fn with_version(&self, tree: &Tree, conflict: &Conflict, version: Option<&FileVersion>) -> Result<Tree> {
        let mut wanted = self.without(tree, conflict)?;
        if let Some(FileVersion { path, object, mode }) = version {
            let odd = || Error::new(ErrorKind::Damaged, format_args!("a version of `{path}` cannot be read"));
            let id = ObjectId::from_hex(object).ok_or_else(odd)?;
            let mode = Mode::read(mode.as_bytes()).filter(|mode| *mode != Mode::Directory).ok_or_else(odd)?;
            wanted.insert(quote::path(path)?, Some((mode, id)));
        }
        self.edit(tree, &wanted)
    }

    /// A tree in which a path that was in conflict holds this.
    pub(crate) fn with_content(&self, tree: &Tree, conflict: &Conflict, content: &[u8]) -> Result<Tree> {
        let mut wanted = self.without(tree, conflict)?;
        let runs = [&conflict.ours, &conflict.theirs].into_iter().flatten().any(|version| version.mode == "100755");
        let batch = Batch::new(self);
        let id = batch.put(Kind::Blob, content)?.ok_or_else(collides)?;
        batch.finish()?;
        wanted.insert(quote::path(&conflict.path)?, Some((if runs { Mode::Executable } else { Mode::File }, id)));
        self.edit(tree, &wanted)
    }

    /// Everything that the merge put where a conflict is, to be taken out.
    fn without(&self, tree: &Tree, conflict: &Conflict) -> Result<BTreeMap<Vec<u8>, Wanted>> {
        let mut wanted = BTreeMap::from([(quote::path(&conflict.path)?, None)]);
        for version in [&conflict.ours, &conflict.theirs].into_iter().flatten() {
            // Where one side renamed it, the merge may have left it under both names.
            let path = quote::path(&version.path)?;
            if self.entry(tree::id(tree)?, &path)?.is_some_and(|(_, id)| id.to_string() == version.object) {
                wanted.insert(path, None);
            }
        }
        Ok(wanted)
    }

    /// Takes all that a tree holds from another folder.
    pub(crate) fn take_from(&self, other: &Objects, tree: &Tree) -> Result<()> {
        let batch = Batch::new(self);
        let mut rest = vec![(tree::id(tree)?, Kind::Tree)];
        while let Some((id, kind)) = rest.pop() {
            if self.contains(id) || id == EMPTY {
                continue;
            }
            let content = other.get(id, kind)?;
            if kind == Kind::Tree {
                let below = tree::entries(id, &content)?.into_iter();
                rest.extend(below.map(|entry| match entry.mode {
                    Mode::Directory => (entry.id, Kind::Tree),
                    _ => (entry.id, Kind::Blob),
                }));
            }
            batch.put(kind, &content)?;
        }
        batch.finish()
    }

    /// Writes a tree to a directory that is removed with what this gives.
    pub(crate) fn fresh_checkout(&self, tree: &Tree) -> Result<Fresh> {
        let folder = self.folder().join("fresh").join(uuid::Uuid::now_v7().to_string());
        let fresh = Fresh(folder);
        self.checkout(tree, fresh.path())?;
        Ok(fresh)
    }

    fn edit(&self, tree: &Tree, wanted: &BTreeMap<Vec<u8>, Wanted>) -> Result<Tree> {
        let batch = Batch::new(self);
        let wanted: Vec<_> = wanted.iter().map(|(path, wanted)| (&path[..], *wanted)).collect();
        let id = self.edit_in(&batch, tree::id(tree)?, &wanted)?;
        batch.finish()?;
        Ok(id.unwrap_or(EMPTY).tree())
    }

    /// A directory's tree with these paths below it as they are wanted; none where nothing is left.
    fn edit_in(&self, batch: &Batch<'_>, tree: ObjectId, wanted: &[(&[u8], Wanted)]) -> Result<Option<ObjectId>> {
        let bytes = self.get(tree, Kind::Tree)?;
        let found = tree::entries(tree, &bytes)?;
        let mut entries: BTreeMap<&[u8], Entry<'_>> = found.into_iter().map(|entry| (entry.name, entry)).collect();
        let mut names: BTreeMap<&[u8], Edits<'_>> = BTreeMap::new();
        for (path, wanted) in wanted {
            match memchr::memchr(b'/', path) {
                None => names.entry(path).or_default().here = Some(*wanted),
                Some(at) => names.entry(&path[..at]).or_default().below.push((&path[at + 1..], *wanted)),
            }
        }
        for (name, Edits { here, below }) in names {
            let known = entries.get(name).map(|entry| (entry.mode, entry.id));
            let directory = known.filter(|(mode, _)| *mode == Mode::Directory).map(|(_, id)| id);
            let needs_directory = below.iter().any(|(_, wanted)| wanted.is_some());
            let now = match (here, directory) {
                // One that is wanted takes the place of whatever is in its way.
                (Some(Some(file)), _) if !needs_directory => Some(file),
                _ if needs_directory || directory.is_some() => {
                    let tree = self.edit_in(batch, directory.unwrap_or(EMPTY), &below)?;
                    tree.map(|tree| (Mode::Directory, tree))
                }
                (Some(_), _) => None,
                (None, _) => known,
            };
            match now {
                Some((mode, id)) => _ = entries.insert(name, Entry { mode, name, id }),
                None => _ = entries.remove(name),
            }
        }
        let mut entries: Vec<_> = entries.into_values().collect();
        if entries.is_empty() {
            return Ok(None);
        }
        batch.put(Kind::Tree, &tree::encode(&mut entries))?.ok_or_else(collides).map(Some)
    }
}

fn collides() -> Error {
    Error::new(ErrorKind::Io, "the content is made to collide with another, and is not kept")
}

/// A directory that is removed with this.
pub(crate) struct Fresh(PathBuf);

impl Fresh {
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
