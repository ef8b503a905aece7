//! Renames of files and directories on one side, applied to the changes of the other.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::{BASE, ConflictKind, MERGE_RENAME_LIMIT, Merge, PathInfo, renamable};
use crate::changes::Version;
use crate::error::Result;
use crate::rename::{self, Relevance};

/// A file that has another path on one side, because it or its directory was renamed.
#[derive(Clone, Debug)]
pub(super) struct PathMove {
    /// 1 for ours, 2 for theirs.
    pub(super) side: usize,
    /// The path in the base; for a new file, the path where that side added it.
    pub(super) from: Vec<u8>,
    pub(super) to: Vec<u8>,
}

/// The new paths of renamed directories.
type DirectoryRenames = BTreeMap<Vec<u8>, Vec<u8>>;

/// The path that files of one side would be moved to.
#[derive(Default)]
struct MoveTarget {
    /// The paths of these files.
    sources: HashSet<Vec<u8>>,
    reported: bool,
}

impl Merge<'_> {
    /// Finds the renames of both sides, sorted by the old path.
    pub(super) fn find_moves(&mut self) -> Result<Vec<PathMove>> {
        for side in &mut self.sides {
            let pairs = {
                let (sources, targets) = (renamable(&side.deleted), renamable(&side.added));
                // Without a relevant source, no rename matters.
                if side.renames.sources.is_empty() {
                    Vec::new()
                } else {
                    rename::find(self.objects, &sources, &targets, MERGE_RENAME_LIMIT, Some(&mut side.renames))?
                }
            };
            let moved = |pair: rename::RenamePair| PathMove {
                side: 0,
                from: side.deleted[pair.source].0.clone(),
                to: side.added[pair.target].0.clone(),
            };
            side.moves = pairs.into_iter().map(moved).collect();
        }
        let mut directories = [self.directory_renames(0), self.directory_renames(1)];
        // A directory that both sides renamed moves no files.
        let both: Vec<_> = directories[0].keys().filter(|path| directories[1].contains_key(*path)).cloned().collect();
        for path in both {
            directories[0].remove(&path);
            directories[1].remove(&path);
        }
        let mut targets = [self.targets(0, &directories[1]), self.targets(1, &directories[0])];
        let mut all = Vec::new();
        for side in [0, 1] {
            let from: HashMap<Vec<u8>, Vec<u8>> =
                self.sides[side].moves.iter().map(|moved| (moved.to.clone(), moved.from.clone())).collect();
            let added: Vec<_> = self.sides[side].added.clone();
            for (to, version) in added {
                let target = self.follow_directory_rename(side, &to, &directories, &mut targets);
                let source = from.get(&to);
                if let Some(target) = &target {
                    self.move_stage(side, &to, target, version);
                }
                match (source, target) {
                    (None, None) => {}
                    (Some(from), None) => all.push(PathMove { side: side + 1, from: from.clone(), to }),
                    (Some(from), Some(target)) => all.push(PathMove { side: side + 1, from: from.clone(), to: target }),
                    // A new file that was moved with its directory needs no further rename.
                    (None, Some(target)) => all.push(PathMove { side: side + 1, from: to, to: target }),
                }
            }
        }
        all.sort_by(|one, other| one.from.cmp(&other.from));
        Ok(all)
    }

    /// Returns the directories that a side renamed: the new path is where most of their files went.
    fn directory_renames(&mut self, side: usize) -> DirectoryRenames {
        let mut directories = DirectoryRenames::new();
        let counts: BTreeMap<_, _> = std::mem::take(&mut self.sides[side].renames.counts).into_iter().collect();
        for (from, counts) in counts {
            let relevance = self.sides[side].renames.directories.get(&from).copied().unwrap_or(Relevance::None);
            let Some(most) = counts.values().max().filter(|_| relevance != Relevance::None) else { continue };
            let mut best = counts.iter().filter(|(_, count)| *count == most).map(|(to, _)| to);
            match (best.next(), best.next()) {
                (Some(to), None) => drop(directories.insert(from, to.clone())),
                _ => self.add_conflict(&from, ConflictKind::Unmoved, None),
            }
        }
        directories
    }

    /// Returns the paths that files of a side would get if they followed the directory renames of the other.
    fn targets(&self, side: usize, directories: &DirectoryRenames) -> HashMap<Vec<u8>, MoveTarget> {
        let mut targets: HashMap<Vec<u8>, MoveTarget> = HashMap::new();
        for (path, _) in &self.sides[side].added {
            if let Some((_, target)) = renamed_path(path, directories) {
                targets.entry(target).or_default().sources.insert(path.clone());
            }
        }
        targets
    }

    /// Returns the new path of a file whose directory was renamed by the other side.
    fn follow_directory_rename(
        &mut self,
        side: usize,
        path: &[u8],
        directories: &[DirectoryRenames; 2],
        targets: &mut [HashMap<Vec<u8>, MoveTarget>; 2],
    ) -> Option<Vec<u8>> {
        if directories[1 - side].is_empty() || targets[1 - side].contains_key(path) {
            return None;
        }
        let (to, target) = renamed_path(path, &directories[1 - side])?;
        // A file is not moved into a directory that its own side renamed: it would have to move again.
        if directories[side].contains_key(to) {
            return None;
        }
        let move_target = targets[side].get_mut(&target)?;
        let in_the_way =
            self.paths.get(&target).is_some_and(|info| {
                info.resolved.is_some() || (info.files() | info.directories) & (1 << (side + 1)) != 0
            }) || self.unchanged_dirs.contains_key(&target);
        if in_the_way || move_target.sources.len() > 1 {
            if !std::mem::replace(&mut move_target.reported, true) {
                self.add_conflict(&target, ConflictKind::Unmoved, None);
            }
            return None;
        }
        Some(target)
    }

    /// Moves the version of one side to another path.
    fn move_stage(&mut self, side: usize, from: &[u8], to: &[u8], version: Version) {
        let stage = side + 1;
        let mut names = [to.to_vec(), to.to_vec(), to.to_vec()];
        if let Some(info) = self.paths.get_mut(from) {
            names = info.names.clone();
            info.stages[stage] = None;
            // Only a directory can be left at the old path.
            if info.directories == 0 {
                self.paths.remove(from);
            } else {
                info.stages = [None, None, None];
                info.resolved = Some(None);
            }
        }
        match self.paths.get_mut(to) {
            Some(info) => {
                info.stages[stage] = Some(version);
                info.names[stage] = names[stage].clone();
                info.path_conflict = Some(ConflictKind::Moved);
            }
            None => {
                let mut info = PathInfo { names, path_conflict: Some(ConflictKind::Moved), ..PathInfo::default() };
                info.stages[stage] = Some(version);
                self.paths.insert(to.to_vec(), info);
            }
        }
    }

    /// Combines the versions of each renamed file under one path.
    pub(super) fn apply_moves(&mut self, moves: Vec<PathMove>) -> Result<()> {
        let mut moves = moves.into_iter().peekable();
        while let Some(one) = moves.next() {
            let Some(old) = self.paths.get(&one.from) else { continue };
            if old.resolved.is_some() {
                continue;
            }
            if let Some(two) = moves.next_if(|next| next.from == one.from) {
                self.renamed_by_both(&one, &two)?;
            } else {
                self.renamed_by_one(&one)?;
            }
        }
        Ok(())
    }

    /// Applies renames of one file by both sides.
    fn renamed_by_both(&mut self, one: &PathMove, two: &PathMove) -> Result<()> {
        let Some(base) = self.paths.get(&one.from).and_then(|info| info.stages[BASE]) else { return Ok(()) };
        if one.to == two.to {
            if let Some(info) = self.paths.get_mut(&one.to) {
                info.stages[BASE] = Some(base);
            }
            self.mark_removed(&one.from);
            return Ok(());
        }
        let stage = |merge: &Self, path: &[u8], side: usize| merge.paths.get(path).and_then(|info| info.stages[side]);
        let (Some(ours), Some(theirs)) = (stage(self, &one.to, 1), stage(self, &two.to, 2)) else { return Ok(()) };
        let names = [&one.from, &one.to, &two.to];
        let merged = self.merge_contents(Some(base), ours, theirs, names.map(|name| &**name), 1)?;
        // Binary files cannot be merged: each path gets its own version.
        let both = if !merged.clean && merged.version == ours { [ours, theirs] } else { [merged.version; 2] };
        for ((path, side), version) in [(&one.to, 1), (&two.to, 2)].into_iter().zip(both) {
            if let Some(info) = self.paths.get_mut(path) {
                info.stages[side] = Some(version);
                info.path_conflict = Some(ConflictKind::RenamedApart);
            }
        }
        if let Some(info) = self.paths.get_mut(&one.from) {
            info.path_conflict = Some(ConflictKind::RenamedApart);
        }
        Ok(())
    }

    /// Applies a rename by one side.
    fn renamed_by_one(&mut self, moved: &PathMove) -> Result<()> {
        let (side, other) = (moved.side, 3 - moved.side);
        let (Some(old), Some(new)) = (self.paths.get(&moved.from).cloned(), self.paths.get(&moved.to).cloned()) else {
            return Ok(());
        };
        let deleted = old.files() == 1;
        let is_file = |version: Option<Version>| version.is_some_and(|(mode, _)| mode.is_file());
        let other_type = !deleted && is_file(old.stages[other]) != is_file(new.stages[side]);
        let collides = new.stages[other].is_some() && !other_type;
        let mut new = new;
        if collides && !deleted {
            let (Some(base), Some(theirs), Some(ours)) = (old.stages[BASE], old.stages[other], new.stages[side]) else {
                return Ok(());
            };
            let (first, second) = if side == 1 { (ours, theirs) } else { (theirs, ours) };
            let mut names = [&*moved.from; 3];
            names[side] = &moved.to;
            let merged = self.merge_contents(Some(base), first, second, names, 1)?;
            new.stages[side] = Some(merged.version);
            if !merged.clean {
                new.path_conflict = new.path_conflict.or(Some(ConflictKind::RenamedTogether));
            }
        } else if collides {
            new.path_conflict = Some(ConflictKind::RenamedDeleted);
        } else {
            new.stages[BASE] = old.stages[BASE];
            new.names[BASE] = moved.from.clone();
            if other_type {
                if let Some(old) = self.paths.get_mut(&moved.from) {
                    old.stages[BASE] = None;
                }
            } else if deleted {
                new.path_conflict = Some(ConflictKind::RenamedDeleted);
            } else {
                new.stages[other] = old.stages[other];
                new.names[other] = moved.from.clone();
            }
        }
        self.paths.insert(moved.to.clone(), new);
        if !other_type {
            self.mark_removed(&moved.from);
        }
        Ok(())
    }

    /// Marks a path as removed by a rename.
    fn mark_removed(&mut self, path: &[u8]) {
        if let Some(info) = self.paths.get_mut(path) {
            info.resolved = Some(None);
        }
    }
}

/// Returns the new path of the nearest renamed directory, and of a file in it.
fn renamed_path<'d>(path: &[u8], directories: &'d DirectoryRenames) -> Option<(&'d Vec<u8>, Vec<u8>)> {
    let mut at = rename::directory(path);
    while !at.is_empty() {
        if let Some(to) = directories.get(at) {
            let rest = &path[at.len() + usize::from(to.is_empty())..];
            return Some((to, [to, rest].concat()));
        }
        at = rename::directory(at);
    }
    None
}
