//! Rename detection: finds new files that were deleted under another name, with git's rules and thresholds.

use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::error::{ErrorKind, Result};
use crate::objects::{ObjectKind, Objects};
use crate::tree::{Mode, ObjectId};

/// A deleted or a new file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Renamable<'a> {
    pub(crate) path: &'a [u8],
    pub(crate) mode: Mode,
    pub(crate) id: ObjectId,
}

/// A deleted file and the new file that it became, by their positions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RenamePair {
    pub(crate) source: usize,
    pub(crate) target: usize,
}

/// The renames that matter to a merge.
#[derive(Debug, Default)]
pub(crate) struct RenameQuery {
    /// The sources that matter: true if their content does, false if only the new place of their directory does.
    pub(crate) sources: HashMap<Vec<u8>, bool>,
    /// Removed directories, and the reason why their new place matters.
    pub(crate) directories: HashMap<Vec<u8>, Relevance>,
    /// For each directory, the number of its files that moved to each other directory.
    pub(crate) counts: HashMap<Vec<u8>, HashMap<Vec<u8>, usize>>,
}

/// The reason why the new place of a directory matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Relevance {
    None,
    ForAncestor,
    ForItself,
}

/// The score of equal files, as in git.
const MAX_SCORE: u64 = 60_000;
/// The smallest score of a rename.
const MIN_SCORE: u64 = 30_000;
/// The smallest score of a rename that keeps the file name; such a rename needs no comparison with other files.
const MIN_SCORE_SAME_NAME: u64 = MIN_SCORE + (MAX_SCORE - MIN_SCORE) / 2;
/// The number of sources that are remembered as candidates for each new file.
const MAX_CANDIDATES: usize = 4;

/// The empty blob: empty files are never renames of each other.
pub(crate) const EMPTY_BLOB: ObjectId = ObjectId([
    0xe6, 0x9d, 0xe2, 0x9b, 0xb2, 0xd1, 0xd6, 0x43, 0x4b, 0x8b, 0x29, 0xae, 0x77, 0x5a, 0xd8, 0xc2, 0xe4, 0x8c, 0x53,
    0x91,
]);

/// Finds renames.
///
/// With more pairs of candidates than the square of `limit`, finds only those with equal content or the same file name.
pub(crate) fn find(
    objects: &Objects,
    sources: &[Renamable<'_>],
    targets: &[Renamable<'_>],
    limit: usize,
    query: Option<&mut RenameQuery>,
) -> Result<Vec<RenamePair>> {
    if sources.is_empty() || targets.is_empty() {
        return Ok(Vec::new());
    }
    let source_of = vec![None; targets.len()];
    let used = vec![false; sources.len()];
    let mut search = RenameSearch { objects, sources, targets, spans: HashMap::new(), source_of, used };
    search.pair_identical();
    let mut remaining: Vec<usize> = (0..sources.len()).filter(|nth| !search.used[*nth]).collect();
    let mut query = query;
    search.pair_same_names(&remaining, query.as_deref_mut())?;
    remaining.retain(|nth| !search.used[*nth]);
    if let Some(query) = &mut query {
        remaining.retain(|nth| query.sources.contains_key(sources[*nth].path));
        let paths: Vec<&[u8]> = remaining.iter().map(|nth| sources[*nth].path).collect();
        query.downgrade_decided(&paths);
        remaining.retain(|nth| query.is_relevant(sources[*nth].path));
    }
    let open = search.source_of.iter().filter(|source_of| source_of.is_none()).count();
    if open.saturating_mul(remaining.len()) <= limit.saturating_mul(limit) {
        search.pair_similar(&remaining, query)?;
    }
    let source_of = search.source_of.iter().enumerate();
    Ok(source_of.filter_map(|(target, source)| Some(RenamePair { source: (*source)?, target })).collect())
}

/// One search for renames.
struct RenameSearch<'a> {
    objects: &'a Objects,
    sources: &'a [Renamable<'a>],
    targets: &'a [Renamable<'a>],
    spans: HashMap<ObjectId, Arc<Spans>>,
    /// For each target, its source.
    source_of: Vec<Option<usize>>,
    used: Vec<bool>,
}

/// The bytes of a file, counted by the hash of the piece that they are in.
struct Spans {
    size: u64,
    counts: Vec<(u32, u32)>,
}

/// A pair that may be a rename.
#[derive(Clone, Copy)]
struct Candidate {
    score: u64,
    same_name: bool,
    source: usize,
    target: usize,
}

impl RenameSearch<'_> {
    fn pair(&mut self, source: usize, target: usize) {
        self.source_of[target] = Some(source);
        self.used[source] = true;
    }

    /// Pairs files with equal content.
    fn pair_identical(&mut self) {
        // An executable file is renamed to one that is not.
        let content = |file: &Renamable<'_>| (file.id, if file.mode.is_file() { Mode::File } else { file.mode });
        // The sources with equal content, in order, and those of them with equal names: each is looked at once.
        let (mut by_content, mut by_name) =
            (HashMap::<_, VecDeque<usize>>::new(), HashMap::<_, VecDeque<usize>>::new());
        for (nth, source) in self.sources.iter().enumerate() {
            by_content.entry(content(source)).or_default().push_back(nth);
            by_name.entry((content(source), last_name(source.path))).or_default().push_back(nth);
        }
        for (target, file) in self.targets.iter().enumerate() {
            if file.id == EMPTY_BLOB {
                continue;
            }
            let same_name = by_name.get_mut(&(content(file), last_name(file.path)));
            let mut next = |queue: &mut VecDeque<usize>| {
                std::iter::from_fn(|| queue.pop_front()).find(|source| !self.used[*source])
            };
            let source = same_name.and_then(&mut next);
            let source = source.or_else(|| by_content.get_mut(&content(file)).and_then(&mut next));
            if let Some(source) = source {
                self.pair(source, target);
            }
        }
    }

    /// Pairs files that keep their file name, if the name is unique on both sides, or their directory was renamed.
    fn pair_same_names(&mut self, remaining: &[usize], mut query: Option<&mut RenameQuery>) -> Result<()> {
        let mut likely_moves = HashMap::new();
        if let Some(query) = &mut query {
            for (target, source) in self.source_of.iter().enumerate() {
                if let Some(source) = source {
                    query.count_rename(self.sources[*source].path, self.targets[target].path);
                }
            }
            likely_moves = query.likely_moves();
        }
        let mut sources: HashMap<&[u8], Option<usize>> = HashMap::new();
        for nth in remaining {
            sources.entry(last_name(self.sources[*nth].path)).and_modify(|it| *it = None).or_insert(Some(*nth));
        }
        let mut targets: HashMap<&[u8], Option<usize>> = HashMap::new();
        let mut paths: HashMap<&[u8], usize> = HashMap::new();
        for (nth, target) in self.targets.iter().enumerate().filter(|(nth, _)| self.source_of[*nth].is_none()) {
            targets.entry(last_name(target.path)).and_modify(|it| *it = None).or_insert(Some(nth));
            paths.insert(target.path, nth);
        }
        for source in remaining.iter().copied() {
            let path = self.sources[source].path;
            if query.as_deref().is_some_and(|query| !query.sources.contains_key(path)) {
                continue;
            }
            let name = last_name(path);
            let Some(one) = targets.get(name) else { continue };
            let only = sources.get(name).copied().flatten().is_some();
            let target = one.filter(|_| only).or_else(|| {
                let mut moved = likely_moves.get(directory(path))?.clone();
                moved.push(b'/');
                moved.extend_from_slice(name);
                paths.get(&*moved).copied()
            });
            let Some(target) = target.filter(|target| self.source_of[*target].is_none()) else { continue };
            if self.score(source, target, MIN_SCORE_SAME_NAME)? >= MIN_SCORE_SAME_NAME {
                self.pair(source, target);
                if let Some(query) = &mut query {
                    query.count_rename(path, self.targets[target].path);
                }
            }
        }
        Ok(())
    }

    /// Pairs the remaining files by similarity.
    fn pair_similar(&mut self, remaining: &[usize], mut query: Option<&mut RenameQuery>) -> Result<()> {
        let mut candidates: Vec<Option<Candidate>> = Vec::new();
        for target in (0..self.targets.len()).filter(|target| self.source_of[*target].is_none()).collect::<Vec<_>>() {
            let mut best = [None; MAX_CANDIDATES];
            for source in remaining.iter().copied() {
                let score = self.score(source, target, MIN_SCORE)?;
                let same_name = last_name(self.sources[source].path) == last_name(self.targets[target].path);
                let one = Some(Candidate { score, same_name, source, target });
                let mut worst = 0;
                for nth in 1..MAX_CANDIDATES {
                    if is_better(&best[worst], &best[nth]) {
                        worst = nth;
                    }
                }
                if is_better(&one, &best[worst]) {
                    best[worst] = one;
                }
            }
            candidates.extend(best);
        }
        candidates.sort_by(|one, other| is_better(other, one).cmp(&is_better(one, other)));
        for candidate in candidates.into_iter().flatten().take_while(|candidate| candidate.score >= MIN_SCORE) {
            if self.source_of[candidate.target].is_none() && !self.used[candidate.source] {
                self.pair(candidate.source, candidate.target);
                if let Some(query) = &mut query {
                    query.count_rename(self.sources[candidate.source].path, self.targets[candidate.target].path);
                }
            }
        }
        Ok(())
    }

    /// Returns the similarity of two files; 0 if it is certainly less than `min_score`.
    fn score(&mut self, source: usize, target: usize, min_score: u64) -> Result<u64> {
        let (source, target) = (&self.sources[source], &self.targets[target]);
        if !source.mode.is_file() || !target.mode.is_file() {
            return Ok(0);
        }
        let (source, target) = match (self.spans(source.id), self.spans(target.id)) {
            // Of a file whose content was removed it is not known what it is like.
            (Err(error), _) | (_, Err(error)) if error.kind() == ErrorKind::Forgotten => return Ok(0),
            (source, target) => (source?, target?),
        };
        let (larger, smaller) = (source.size.max(target.size), source.size.min(target.size));
        if larger * (MAX_SCORE - min_score) < (larger - smaller) * MAX_SCORE || target.size == 0 {
            return Ok(0);
        }
        Ok(source.common_bytes(&target) * MAX_SCORE / larger)
    }

    fn spans(&mut self, id: ObjectId) -> Result<Arc<Spans>> {
        if let Some(spans) = self.spans.get(&id) {
            return Ok(spans.clone());
        }
        let spans = Arc::new(Spans::new(&self.objects.get(id, ObjectKind::Blob)?));
        self.spans.insert(id, spans.clone());
        Ok(spans)
    }
}

/// Returns true if the first candidate is better; a missing one never is.
fn is_better(one: &Option<Candidate>, other: &Option<Candidate>) -> bool {
    match (one, other) {
        (None, _) => false,
        (Some(_), None) => true,
        (Some(one), Some(other)) => (one.score, one.same_name) > (other.score, other.same_name),
    }
}

impl Spans {
    /// Splits a file into lines, and longer lines into pieces of 64 bytes.
    fn new(content: &[u8]) -> Self {
        let is_text = memchr::memchr(0, &content[..content.len().min(8000)]).is_none();
        let mut counts: HashMap<u32, u32> = HashMap::new();
        let (mut length, mut one, mut two) = (0, 0_u32, 0_u32);
        for (at, byte) in content.iter().enumerate() {
            if is_text && *byte == b'\r' && content.get(at + 1) == Some(&b'\n') {
                continue;
            }
            (one, two) = ((one << 7) ^ (two >> 25), (two << 7) ^ (one >> 25));
            one = one.wrapping_add(u32::from(*byte));
            length += 1;
            if length == 64 || *byte == b'\n' {
                *counts.entry(Self::hash(one, two)).or_default() += length;
                (length, one, two) = (0, 0, 0);
            }
        }
        if length > 0 {
            *counts.entry(Self::hash(one, two)).or_default() += length;
        }
        let mut counts: Vec<_> = counts.into_iter().collect();
        counts.sort_unstable();
        Spans { size: content.len() as u64, counts }
    }

    fn hash(one: u32, two: u32) -> u32 {
        one.wrapping_add(two.wrapping_mul(0x61)) % 107_927
    }

    /// Returns the number of bytes that both files have.
    fn common_bytes(&self, other: &Spans) -> u64 {
        let (mut copied, mut other) = (0, other.counts.as_slice());
        for (hash, count) in &self.counts {
            while let Some((first, rest)) = other.split_first()
                && first.0 < *hash
            {
                other = rest;
            }
            if let Some((first, _)) = other.split_first()
                && first.0 == *hash
            {
                copied += u64::from(*count.min(&first.1));
            }
        }
        copied
    }
}

impl RenameQuery {
    fn relevance(&self, directory: &[u8]) -> Relevance {
        self.directories.get(directory).copied().unwrap_or(Relevance::None)
    }

    /// Counts a rename for its directory, and for the directories above as long as their names are equal.
    fn count_rename(&mut self, from: &[u8], to: &[u8]) {
        let (mut old, mut new) = (directory(from), directory(to));
        let mut first = true;
        while self.directories.contains_key(old) {
            let relevance = self.relevance(old);
            if first || relevance == Relevance::ForItself {
                *self.counts.entry(old.to_vec()).or_default().entry(new.to_vec()).or_default() += 1;
            }
            if relevance == Relevance::None || old.is_empty() || new.is_empty() || last_name(old) != last_name(new) {
                return;
            }
            (old, new) = (directory(old), directory(new));
            first = false;
        }
    }

    /// Lowers the relevance of directories whose new place is certain already, for any outcome for the remaining
    /// sources.
    fn downgrade_decided(&mut self, remaining: &[&[u8]]) {
        let mut unknown: HashMap<&[u8], usize> = HashMap::new();
        for path in remaining {
            let mut at = directory(path);
            while !at.is_empty() && self.relevance(at) != Relevance::None {
                *unknown.entry(at).or_default() += 1;
                at = directory(at);
            }
        }
        for (at, relevance) in &mut self.directories {
            let mut counts: Vec<usize> = self.counts.get(at).into_iter().flat_map(HashMap::values).copied().collect();
            counts.sort_unstable_by(|one, other| other.cmp(one));
            let nth = |nth: usize| counts.get(nth).copied().unwrap_or(0);
            if *relevance == Relevance::ForItself && nth(0) > nth(1) + unknown.get(&**at).copied().unwrap_or(0) {
                *relevance = Relevance::ForAncestor;
            }
        }
    }

    /// Returns true if a source has to be compared with all targets.
    fn is_relevant(&self, path: &[u8]) -> bool {
        if self.sources.get(path) == Some(&true) {
            return true;
        }
        // The source matters only for the new place of a directory above it, as long as that is open.
        let mut at = directory(path);
        loop {
            match self.relevance(at) {
                Relevance::None => return false,
                Relevance::ForItself => return true,
                Relevance::ForAncestor if at.is_empty() => return false,
                Relevance::ForAncestor => at = directory(at),
            }
        }
    }

    /// Returns the most frequent new place of each directory so far. Of equally frequent ones, the first by name is chosen.
    fn likely_moves(&self) -> HashMap<Vec<u8>, Vec<u8>> {
        let best = |counts: &HashMap<Vec<u8>, usize>| {
            let frequent = counts.iter().max_by_key(|(to, count)| (**count, Reverse(*to)))?;
            Some(frequent.0.clone())
        };
        self.counts.iter().filter_map(|(from, counts)| Some((from.clone(), best(counts)?))).collect()
    }
}

/// Returns the last name of a path.
pub(crate) fn last_name(path: &[u8]) -> &[u8] {
    &path[memchr::memrchr(b'/', path).map_or(0, |slash| slash + 1)..]
}

/// Returns the directory of a path; empty for a path at the root.
pub(crate) fn directory(path: &[u8]) -> &[u8] {
    &path[..memchr::memrchr(b'/', path).unwrap_or(0)]
}
