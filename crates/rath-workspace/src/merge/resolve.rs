//! Deciding the result for each path.

use super::text::{self, ConflictMarkers};
use super::{ConflictKind, Merge, PathInfo, collides};
use crate::changes::Version;
use crate::error::Result;
use crate::lines::is_binary;
use crate::objects::ObjectKind;
use crate::tree::Mode;
use crate::{forgotten, paths};

/// The merged version of a file.
pub(super) struct MergedContent {
    pub(super) version: Version,
    /// True if there is no conflict.
    pub(super) clean: bool,
}

/// The length of conflict markers.
const MARKER_LENGTH: usize = 7;

impl Merge<'_> {
    /// Decides all paths, those in a directory before the directory.
    pub(super) fn resolve_all(&mut self) -> Result<()> {
        let paths: Vec<Vec<u8>> = self.paths.keys().rev().cloned().collect();
        for path in paths {
            let Some(info) = self.paths.get(&path).cloned() else { continue };
            match info.resolved {
                None => self.resolve(path, info)?,
                // A directory was moved to the path of a file that neither side changed.
                Some(version @ Some(_)) if self.is_directory(&path) => {
                    let sibling = self.sibling_path(&path, 1);
                    self.finish_path(sibling, &info, version, Some(ConflictKind::FileAndDirectory))?;
                }
                Some(version) => self.put(path, version),
            }
        }
        Ok(())
    }

    /// Adds a version to the result.
    fn put(&mut self, path: Vec<u8>, version: Option<Version>) {
        if let Some(version) = version {
            self.result.insert(path, version);
        }
    }

    /// Decides one path.
    fn resolve(&mut self, mut path: Vec<u8>, mut info: PathInfo) -> Result<()> {
        if info.files() == 0 {
            return Ok(());
        }
        let mut renamed_side = None;
        // A directory that was moved here counts like one that was here before. Git overlooks this case, and loses the
        // files in the directory.
        let stays = self.is_directory(&path);
        if info.directories != 0 || stays {
            if stays && info.files() == 1 {
                return Ok(());
            }
            if stays {
                let side = if info.directories & 2 != 0 || info.stages[1].is_none() { 2 } else { 1 };
                renamed_side = Some(side);
                path = self.sibling_path(&path, side);
            }
            // Sides where the path is a directory do not count as equal.
            info.same &= !info.directories;
            if info.same.count_ones() < 2 {
                info.same = 0;
            }
        }
        let path_conflict = info.path_conflict.or(renamed_side.map(|_| ConflictKind::FileAndDirectory));
        let files = info.files();
        let [base, ours, theirs] = info.stages;
        if info.same != 0 {
            let version = match info.same {
                6 => ours,
                3 => theirs,
                _ => ours.filter(|_| info.same == 5),
            };
            return self.finish_path(path, &info, version, path_conflict.filter(|_| version.is_some()));
        }
        match (ours, theirs) {
            (Some(ours), Some(theirs)) if ours.0.is_file() != theirs.0.is_file() => {
                self.split_file_and_link(path, &info, ours, theirs)
            }
            (Some(ours), Some(theirs)) => {
                let names = info.names.clone();
                let merged = self.merge_contents(base, ours, theirs, [&names[0], &names[1], &names[2]], 0)?;
                let kind = match (merged.clean, base) {
                    (true, _) => path_conflict,
                    (false, _) if path_conflict.is_some() => path_conflict,
                    (false, None) => Some(ConflictKind::BothAdded),
                    (false, Some(_)) => Some(ConflictKind::Content),
                };
                if let Some(side) = renamed_side.filter(|_| merged.clean) {
                    info.stages = [None, None, None];
                    info.stages[side] = Some(merged.version);
                }
                self.finish_path(path, &info, Some(merged.version), kind)
            }
            (one, other) if base.is_some() && files != 1 => {
                let kind = path_conflict.or(Some(ConflictKind::ModifiedDeleted));
                self.finish_path(path, &info, one.or(other), kind)
            }
            (one, other) => self.finish_path(path, &info, one.or(other), path_conflict),
        }
    }

    /// Adds a version to the result, with a conflict if there is one.
    fn finish_path(
        &mut self,
        path: Vec<u8>,
        info: &PathInfo,
        version: Option<Version>,
        kind: Option<ConflictKind>,
    ) -> Result<()> {
        if let Some(kind) = kind {
            self.add_conflict(&path, kind, Some(info));
        }
        self.put(path, version);
        Ok(())
    }

    /// Resolves a file on one side and a link on the other: the file gets another name.
    fn split_file_and_link(&mut self, path: Vec<u8>, info: &PathInfo, ours: Version, theirs: Version) -> Result<()> {
        let alone = |stage: usize, version: Version| {
            let mut info = info.clone();
            info.stages[3 - stage] = None;
            if info.stages[0].is_some_and(|(mode, _)| mode.is_file() != version.0.is_file()) {
                info.stages[0] = None;
            }
            info
        };
        let (our_info, their_info) = (alone(1, ours), alone(2, theirs));
        let (our_path, their_path) = if ours.0.is_file() {
            (self.sibling_path(&path, 1), path)
        } else {
            let sibling = self.sibling_path(&path, 2);
            (path, sibling)
        };
        self.finish_path(their_path, &their_info, Some(theirs), Some(ConflictKind::FileAndLink))?;
        self.finish_path(our_path, &our_info, Some(ours), Some(ConflictKind::FileAndLink))
    }

    /// Returns true if the result contains files below a path.
    fn is_directory(&self, path: &[u8]) -> bool {
        let mut inside = path.to_vec();
        inside.push(b'/');
        let is_inside = |first: Option<&Vec<u8>>| first.is_some_and(|first| first.starts_with(&inside));
        is_inside(self.result.range(inside.clone()..).next().map(|(path, _)| path))
            || is_inside(self.unchanged_dirs.range(inside.clone()..).next().map(|(path, _)| path))
    }

    /// Returns an unused path next to another one.
    fn sibling_path(&self, path: &[u8], side: usize) -> Vec<u8> {
        let label = if side == 1 { self.labels.ours } else { self.labels.theirs };
        let mut name = path.to_vec();
        name.push(b'~');
        name.extend(label.bytes().map(|byte| if byte == b'/' { b'_' } else { byte }));
        let taken = |name: &[u8]| {
            self.paths.contains_key(name) || self.result.contains_key(name) || self.unchanged_dirs.contains_key(name)
        };
        let mut unique = name.clone();
        for nth in 0.. {
            if !taken(&unique) {
                break;
            }
            unique = [&name, format!("_{nth}").as_bytes()].concat();
        }
        unique
    }

    /// Merges two versions of the same type.
    pub(super) fn merge_contents(
        &mut self,
        base: Option<Version>,
        ours: Version,
        theirs: Version,
        names: [&[u8]; 3],
        extra_marker_length: usize,
    ) -> Result<MergedContent> {
        let mut clean = true;
        let mode = if ours.0 == theirs.0 || Some(ours.0) == base.map(|base| base.0) {
            theirs.0
        } else {
            clean = Some(theirs.0) == base.map(|base| base.0);
            ours.0
        };
        let base_id = base.map(|base| base.1);
        if ours.1 == theirs.1 || Some(ours.1) == base_id {
            return Ok(MergedContent { version: (mode, theirs.1), clean });
        }
        if Some(theirs.1) == base_id {
            return Ok(MergedContent { version: (mode, ours.1), clean });
        }
        if ours.0 == Mode::Link {
            return Ok(MergedContent { version: (mode, ours.1), clean: false });
        }
        let named = |error, side: usize| forgotten::with_path(error, &paths::path_text(names[side]));
        // A link in the base has no content in common with a file.
        let before = match base {
            Some((mode, id)) if mode.is_file() => self.content(id).map_err(|error| named(error, 0))?,
            _ => Vec::new(),
        };
        let one = self.content(ours.1).map_err(|error| named(error, 1))?;
        let other = self.content(theirs.1).map_err(|error| named(error, 2))?;
        if [&before, &one, &other].into_iter().any(|content| is_binary(content)) {
            return Ok(MergedContent { version: (mode, ours.1), clean: false });
        }
        let same_names = names[0] == names[1] && names[1] == names[2];
        let label = |label: &str, name: &[u8]| {
            if same_names { label.to_owned() } else { format!("{label}:{}", paths::path_text(name)) }
        };
        let (our_label, their_label) = (label(self.labels.ours, names[1]), label(self.labels.theirs, names[2]));
        let markers =
            ConflictMarkers { ours: &our_label, theirs: &their_label, size: MARKER_LENGTH + extra_marker_length };
        let merged = text::merge(&before, &one, &other, &markers);
        let id = self.batch.put(ObjectKind::Blob, &merged.text)?.ok_or_else(collides)?;
        self.new_blobs.insert(id, merged.text);
        Ok(MergedContent { version: (mode, id), clean: clean && !merged.conflicts })
    }
}
