//! What becomes of one path.

use super::text::{self, Marks};
use super::{ConflictKind, Info, Merge, collides};
use crate::changes::Version;
use crate::error::Result;
use crate::lines::is_binary;
use crate::objects::Kind;
use crate::quote;
use crate::tree::Mode;

/// What came of two versions and the one that both came from.
pub(super) struct Contents {
    pub(super) version: Version,
    pub(super) clean: bool,
}

/// How long marks are in a text.
const MARK: usize = 7;

impl Merge<'_> {
    /// Decides every path, what is in a directory before the directory.
    pub(super) fn process(&mut self) -> Result<()> {
        let paths: Vec<Vec<u8>> = self.paths.keys().rev().cloned().collect();
        for path in paths {
            let Some(info) = self.paths.get(&path).cloned() else { continue };
            match info.clean {
                None => self.decide(path, info)?,
                // Something was moved to below a file that nobody touched.
                Some(version @ Some(_)) if self.is_directory(&path) => {
                    let aside = self.beside(&path, 1);
                    self.end(aside, &info, version, Some(ConflictKind::FileAndDirectory))?;
                }
                Some(version) => self.put(path, version),
            }
        }
        Ok(())
    }

    fn put(&mut self, path: Vec<u8>, version: Option<Version>) {
        if let Some(version) = version {
            self.done.insert(path, version);
        }
    }

    fn decide(&mut self, mut path: Vec<u8>, mut info: Info) -> Result<()> {
        if info.files() == 0 {
            return Ok(());
        }
        let mut gave_way = None;
        // A directory that was moved to here counts like one that is here. Git does not see it, and loses what is in there.
        let stays = self.is_directory(&path);
        if info.directories != 0 || stays {
            if stays && info.files() == 1 {
                return Ok(());
            }
            if stays {
                let side = if info.directories & 2 != 0 || info.stages[1].is_none() { 2 } else { 1 };
                gave_way = Some(side);
                path = self.beside(&path, side);
            }
            // Without those that are directories, nothing is the same as them.
            info.same &= !info.directories;
            if info.same.count_ones() < 2 {
                info.same = 0;
            }
        }
        let misplaced = info.misplaced.or(gave_way.map(|_| ConflictKind::FileAndDirectory));
        let files = info.files();
        let [base, ours, theirs] = info.stages;
        if info.same != 0 {
            let version = match info.same {
                6 => ours,
                3 => theirs,
                _ => ours.filter(|_| info.same == 5),
            };
            return self.end(path, &info, version, misplaced.filter(|_| version.is_some()));
        }
        match (ours, theirs) {
            (Some(ours), Some(theirs)) if ours.0.is_file() != theirs.0.is_file() => {
                self.two_kinds(path, &info, ours, theirs)
            }
            (Some(ours), Some(theirs)) => {
                let names = info.names.clone();
                let merged = self.merge_contents(base, ours, theirs, [&names[0], &names[1], &names[2]], 0)?;
                let kind = match (merged.clean, base) {
                    (true, _) => misplaced,
                    (false, _) if misplaced.is_some() => misplaced,
                    (false, None) => Some(ConflictKind::BothAdded),
                    (false, Some(_)) => Some(ConflictKind::Content),
                };
                if let Some(side) = gave_way.filter(|_| merged.clean) {
                    info.stages = [None, None, None];
                    info.stages[side] = Some(merged.version);
                }
                self.end(path, &info, Some(merged.version), kind)
            }
            (one, other) if base.is_some() && files != 1 => {
                let kind = misplaced.or(Some(ConflictKind::ModifiedDeleted));
                self.end(path, &info, one.or(other), kind)
            }
            (one, other) => self.end(path, &info, one.or(other), misplaced),
        }
    }

    fn end(&mut self, path: Vec<u8>, info: &Info, version: Option<Version>, kind: Option<ConflictKind>) -> Result<()> {
        if let Some(kind) = kind {
            self.report(&path, kind, Some(info));
        }
        self.put(path, version);
        Ok(())
    }

    /// A file on one side, a link on the other: the file goes under another name.
    fn two_kinds(&mut self, path: Vec<u8>, info: &Info, ours: Version, theirs: Version) -> Result<()> {
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
            (self.beside(&path, 1), path)
        } else {
            let beside = self.beside(&path, 2);
            (path, beside)
        };
        self.end(their_path, &their_info, Some(theirs), Some(ConflictKind::FileAndLink))?;
        self.end(our_path, &our_info, Some(ours), Some(ConflictKind::FileAndLink))
    }

    /// Whether anything of a directory is in the result.
    fn is_directory(&self, path: &[u8]) -> bool {
        let mut inside = path.to_vec();
        inside.push(b'/');
        let below = |first: Option<&Vec<u8>>| first.is_some_and(|first| first.starts_with(&inside));
        below(self.done.range(inside.clone()..).next().map(|(path, _)| path))
            || below(self.whole.range(inside.clone()..).next().map(|(path, _)| path))
    }

    /// A name beside a path that nothing has.
    fn beside(&self, path: &[u8], side: usize) -> Vec<u8> {
        let label = if side == 1 { self.labels.ours } else { self.labels.theirs };
        let mut name = path.to_vec();
        name.push(b'~');
        name.extend(label.bytes().map(|byte| if byte == b'/' { b'_' } else { byte }));
        let taken = |name: &[u8]| {
            self.paths.contains_key(name) || self.done.contains_key(name) || self.whole.contains_key(name)
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

    /// Joins two versions of what is of one kind on both sides.
    pub(super) fn merge_contents(
        &mut self,
        base: Option<Version>,
        ours: Version,
        theirs: Version,
        names: [&[u8]; 3],
        longer: usize,
    ) -> Result<Contents> {
        let mut clean = true;
        let mode = if ours.0 == theirs.0 || Some(ours.0) == base.map(|base| base.0) {
            theirs.0
        } else {
            clean = Some(theirs.0) == base.map(|base| base.0);
            ours.0
        };
        let base_id = base.map(|base| base.1);
        if ours.1 == theirs.1 || Some(ours.1) == base_id {
            return Ok(Contents { version: (mode, theirs.1), clean });
        }
        if Some(theirs.1) == base_id {
            return Ok(Contents { version: (mode, ours.1), clean });
        }
        if ours.0 == Mode::Link {
            return Ok(Contents { version: (mode, ours.1), clean: false });
        }
        // A file that was a link before has nothing in common with it.
        let before = match base {
            Some((mode, id)) if mode.is_file() => self.content(id)?,
            _ => Vec::new(),
        };
        let (one, other) = (self.content(ours.1)?, self.content(theirs.1)?);
        if [&before, &one, &other].into_iter().any(|content| is_binary(content)) {
            return Ok(Contents { version: (mode, ours.1), clean: false });
        }
        let same_names = names[0] == names[1] && names[1] == names[2];
        let label = |label: &str, name: &[u8]| {
            if same_names { label.to_owned() } else { format!("{label}:{}", quote::shown(name)) }
        };
        let (our_label, their_label) = (label(self.labels.ours, names[1]), label(self.labels.theirs, names[2]));
        let marks = Marks { ours: &our_label, theirs: &their_label, size: MARK + longer };
        let merged = text::merge(&before, &one, &other, &marks);
        let id = self.batch.put(Kind::Blob, &merged.text)?.ok_or_else(collides)?;
        self.fresh.insert(id, merged.text);
        Ok(Contents { version: (mode, id), clean: clean && !merged.conflicts })
    }
}
