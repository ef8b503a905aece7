//! Forgetting a step: its texts in the store, and the content of the files that it brought into the versions.
//!
//! A step that is forgotten keeps its tree and the paths of its files. So the work can be done again after a process was killed:
//! the texts first, then the content of the files, which is on a list before it is removed.

use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};

use rath_record::chunk::ToolResult;
use rath_record::lineage::Lineage;
use rath_record::{BranchId, Chunk, Parent, Step, StepId, Timestamp, view};
use rath_workspace::{ObjectId, Objects, TreeFile, TreeId};

use super::forgotten_files::ForgetInDirectory;
use super::names::VersionNames;
use super::{SkipReason, has_versions, is_listed};
use crate::blocking::run_blocking;
use crate::sandbox::RATH_DIR;
use crate::session::{Result, StoreUri, dir_of_stored_place};
use crate::store::{Erased, ErasedStep, Store, StoreError, rath_dir};

/// The result of forgetting a step: what was removed, and what could not be reached.
///
/// Returned by [`Store::forget`].
#[derive(Debug, Default)]
pub struct ForgetReport {
    /// The extent to which the texts are erased from the files of the store.
    pub erased: Erased,
    /// The sessions of the store whose own copy of the step still has its texts, each with the reason.
    pub refused: Vec<(BranchId, StoreError)>,
    /// The files that the step brought in, by directory.
    pub directories: Vec<ForgottenFiles>,
    /// Steps of the same calls, which still have their content: the answer with the arguments, or the results.
    pub related: Vec<StepId>,
    /// The reason why files of the step may be stored that were not found, if that is so.
    pub lost_files: Option<LostFiles>,
}

/// The reason why files of a forgotten step were not found.
///
/// Part of [`ForgetReport`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LostFiles {
    /// The step is of a kind that this version does not know.
    UnknownKind,
    /// The step is the first that names files: they were there before, and stay in the versions.
    AtStart,
    /// The versions of the files are not in a directory that this store has worked in: the session came from elsewhere, or its
    /// directory was moved.
    NotHere {
        /// The place that the session names.
        place: Option<String>,
    },
}

/// The files that a forgotten step brought into the versions of one directory.
///
/// Part of [`ForgetReport`].
#[derive(Debug, Default)]
pub struct ForgottenFiles {
    /// The directory that holds `.rath`.
    pub directory: PathBuf,
    /// The paths of the files whose content was removed from the versions.
    pub removed: Vec<String>,
    /// The files whose content stays in the versions, because another step brought it in too.
    pub kept: Vec<SameFile>,
    /// Later versions of these files, which other steps wrote. They stay, and may have parts of the content.
    pub later: Vec<SameFile>,
    /// Files that still have the content. They are left as they are.
    pub still_in: Vec<FileCopy>,
    /// Files that the step changed and that no version is stored of, such as ignored ones. They may have what it wrote.
    pub untracked: Vec<PathBuf>,
    /// The URIs of other stores, and of session files, that have the step with its texts.
    pub other_stores: Vec<String>,
    /// The reason why the versions were left as they are, if that is so.
    pub skipped: Option<SkipReason>,
}

/// A version of a file that another step brought in: with the same content, or a later one.
///
/// Part of [`ForgottenFiles`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SameFile {
    /// The path of the file.
    pub path: String,
    /// The other step.
    pub step: StepId,
    /// The branch of the other step.
    pub branch: BranchId,
    /// The URI of the store, or of the session file, that has the other step, if it is not the store that was asked.
    pub store: Option<String>,
}

/// A file that has the content of a file that was forgotten.
///
/// Part of [`ForgottenFiles`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileCopy {
    /// The path of the file.
    pub path: PathBuf,
    /// The fork that works with the file; none for a file in the user's own directory.
    pub branch: Option<BranchId>,
}

impl ForgetReport {
    /// Returns true if nothing kept the call from removing what it removes. Copies that it names and leaves do not count.
    pub fn is_complete(&self) -> bool {
        let is_left = |files: &ForgottenFiles| files.skipped.is_some();
        self.refused.is_empty() && self.lost_files.is_none() && !self.directories.iter().any(is_left)
    }
}

impl Store {
    /// Removes the content of a step for good. The step keeps its place in the record, and the record still verifies.
    ///
    /// The texts of the step are erased in all sessions of this store that have it. The content of the files that the step brought
    /// in is removed from the stored versions, also from those of later steps. Content that another step brought in too stays, until
    /// that one is forgotten: a call or a merge that wrote it by itself, or an observation from before. Files in the user's
    /// directory and in the directories of forks are left as they are, and are named in the report.
    ///
    /// Other steps that repeat a text keep it. A step that was forgotten before is looked at again, so what could not be reached is
    /// removed by a later call.
    ///
    /// ```
    /// use rath::prelude::*;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> rath::Result<()> {
    /// let store = Store::open("memory:").await?;
    /// let session = Session::user("my number is 4711").record(&store).await?;
    /// session.durable().await?;
    /// let (id, step) = (session.id(), session.head().expect("a step").id());
    /// drop(session);
    ///
    /// let report = store.forget(id, step).await?;
    /// assert!(report.is_complete());
    /// assert_ne!(store.read(id).await?.session.text(), Some("my number is 4711"));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn forget(&self, branch: BranchId, step: StepId) -> Result<ForgetReport> {
        let store = self.clone();
        let target = run_blocking(move || ForgetTarget::read(&store, branch, step)).await?;
        let ErasedStep { erased, refused } = self.erase_step(branch, step).await?;
        let mut report = ForgetReport { erased, refused, ..ForgetReport::default() };
        let Some(target) = target else {
            report.lost_files = Some(LostFiles::NotHere { place: None });
            return Ok(report);
        };
        report.related.clone_from(&target.related);
        report.lost_files.clone_from(&target.lost_files);
        for root in &target.roots {
            let work = ForgetInDirectory { root: root.clone(), store: self.clone(), target: target.clone() };
            // The texts are erased by now: an error of one directory must not hide that.
            let files = work.run().await.unwrap_or_else(|error| {
                let skipped = Some(SkipReason::Damaged { why: error.message() });
                ForgottenFiles { directory: root.clone(), skipped, ..ForgottenFiles::default() }
            });
            report.directories.push(files);
        }
        Ok(report)
    }
}

/// The step that is forgotten.
#[derive(Clone)]
pub(super) struct ForgetTarget {
    pub(super) step: Step,
    /// The time at which the call began whose result the step is, if it is known.
    pub(super) began_at: Option<Timestamp>,
    /// The files that were not there before the step.
    pub(super) new_files: Vec<TreeFile>,
    /// True if the user made the step. Others may have given theirs any time and any tree.
    pub(super) is_own: bool,
    related: Vec<StepId>,
    lost_files: Option<LostFiles>,
    /// The directories that may hold files of the step.
    roots: BTreeSet<PathBuf>,
}

impl ForgetTarget {
    /// Returns true if the step changed files, or found them changed.
    pub(super) fn has_files(&self) -> bool {
        let chunk = self.step.chunk();
        let was_put_back = |result: &ToolResult| !result.put_back.is_empty() || !result.not_put_back.is_empty();
        !self.new_files.is_empty()
            || !chunk.effects().is_empty()
            || matches!(chunk, Chunk::ToolResult(result) if was_put_back(result))
    }

    /// Reads the step. None if the session has no such step. Blocks.
    fn read(store: &Store, branch: BranchId, step: StepId) -> Result<Option<Self>> {
        let stored = store.read_branch(branch)?;
        let lineage = Lineage::new(stored.head.clone());
        let Some(step) = lineage.find(step).cloned() else { return Ok(None) };
        let places = places(&lineage);
        let is_own = store.is_own(&stored);
        // The directories of this session, and those of all others: a merge copies versions from one to another.
        let mut roots = directories(store, &places, is_own);
        let all = directories(store, &all_places(store), is_own);
        let found = roots.iter().chain(&all).find_map(|root| find_new_files(root, &step));
        let has_files = step.chunk().effects().iter().any(|effect| effect.after.is_some());
        let lost_files = match (step.chunk(), &found) {
            (Chunk::Other(_), _) => Some(LostFiles::UnknownKind),
            (_, None) if has_files => Some(LostFiles::NotHere { place: places.last().cloned() }),
            (_, Some(_)) if trees_before(&step).is_empty() => Some(LostFiles::AtStart),
            _ => None,
        };
        let new_files = found.unwrap_or_default();
        roots.extend(all.into_iter().filter(|root| has_one_of(root, &new_files)));
        let (began_at, related) = (began_at(&step), related(&lineage, &step));
        let is_adopted = || lineage.descendants(step.id()).iter().any(|step| matches!(step.chunk(), Chunk::Adopted(_)));
        let is_own = is_own && !is_adopted();
        Ok(Some(ForgetTarget { step, began_at, new_files, is_own, related, lost_files, roots }))
    }
}

/// The blob of an empty file. Nothing is lost with it, and all empty files have it.
const EMPTY_FILE: &str = "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391";

/// Returns the files of a step that were not there before it; none if its files are not stored in a directory. Blocks.
fn find_new_files(root: &Path, step: &Step) -> Option<Vec<TreeFile>> {
    let objects = open_versions(root)?;
    let files = objects.files(tree_of(step)?).ok()?;
    let before = trees_before(step);
    if before.is_empty() {
        return Some(Vec::new());
    }
    // A directory that lacks one of the trees cannot tell what is new.
    let known: Vec<Vec<TreeFile>> = before.into_iter().map(|tree| objects.files(tree).ok()).collect::<Option<_>>()?;
    let known: HashSet<ObjectId> = known.into_iter().flatten().map(|file| file.id).collect();
    let is_new = |file: &TreeFile| !known.contains(&file.id) && file.id.to_string() != EMPTY_FILE;
    Some(files.into_iter().filter(is_new).collect())
}

/// Returns true if the versions of a directory have the content of one of some files. Blocks.
fn has_one_of(root: &Path, files: &[TreeFile]) -> bool {
    !files.is_empty()
        && open_versions(root).is_some_and(|objects| files.iter().any(|file| objects.has_content(file.id)))
}

fn open_versions(root: &Path) -> Option<Objects> {
    let folder = root.join(RATH_DIR).join("workspace");
    rath_dir::check(&folder).ok()?;
    Objects::open_read_only(&folder).ok()
}

/// Returns the tree that a step names.
pub(super) fn tree_of(step: &Step) -> Option<TreeId> {
    step.chunk().tree()?.0.parse().ok()
}

/// Returns the trees that a step continued from, one for each line that leads to it.
fn trees_before(step: &Step) -> Vec<TreeId> {
    let (mut trees, mut seen) = (Vec::new(), HashSet::new());
    let mut rest: Vec<&Step> = step.parents().iter().filter_map(Parent::step).collect();
    while let Some(step) = rest.pop() {
        if !seen.insert(step.id()) {
            continue;
        }
        match tree_of(step) {
            Some(tree) => trees.push(tree),
            None => rest.extend(step.parents().iter().filter_map(Parent::step)),
        }
    }
    trees
}

/// Returns the time at which the call was first started that a result closes.
fn began_at(result: &Step) -> Option<Timestamp> {
    let Chunk::ToolResult(closed) = result.chunk() else { return None };
    let (_, answer) = view::find_call(result)?;
    let lineage = Lineage::new([result.clone()]);
    let line = lineage.walk();
    let is_start = |step: &&&Step| matches!(step.chunk(), Chunk::ToolStarted(started) if started.call == closed.call);
    let since_answer = line.iter().rev().take_while(|step| step.id() != answer.id());
    since_answer.filter(is_start).last().map_or(answer.stamp().at, |start| start.stamp().at)
}

/// Returns the steps of the same calls that still have their content.
fn related(lineage: &Lineage, step: &Step) -> Vec<StepId> {
    let is_remembered = |step: &&Step| step.withheld().is_none();
    match step.chunk() {
        Chunk::ToolResult(_) => {
            let answer = view::find_call(step).map(|(_, answer)| answer).filter(is_remembered);
            answer.map(Step::id).into_iter().collect()
        }
        Chunk::Assistant(answer) if !answer.calls.is_empty() => {
            let is_result = |other: &&Step| view::find_call(other).is_some_and(|(_, answer)| answer.id() == step.id());
            lineage.walk().into_iter().filter(is_result).filter(is_remembered).map(Step::id).collect()
        }
        _ => Vec::new(),
    }
}

/// Returns the places that a session names, the newest last.
fn places(lineage: &Lineage) -> Vec<String> {
    let place = |step: &Step| match step.chunk() {
        Chunk::Placed(placed) => Some(placed.place.clone()),
        _ => None,
    };
    lineage.walk().into_iter().filter_map(place).collect()
}

/// Returns the places that all sessions of a store name, as far as they can be read. Blocks.
fn all_places(store: &Store) -> Vec<String> {
    let families: BTreeSet<BranchId> =
        store.list_whole(&HashSet::new()).unwrap_or_default().into_iter().map(|summary| summary.family).collect();
    let families: Vec<_> = families.into_iter().collect();
    let mut names = VersionNames::default();
    // A store that is damaged is named in the report of each directory.
    let _ = store.visit_json(&families, |_, json| names.add_place(json));
    names.places.into_iter().collect()
}

/// Returns the directories of some places, and the one whose `.rath` holds the store, as far as they have versions. Blocks.
///
/// A session of others may name any directory: one that this store has worked in has the store in its list. A store that ends with
/// the process is in no list, and its sessions count if they are the user's own.
fn directories(store: &Store, places: &[String], is_own: bool) -> BTreeSet<PathBuf> {
    let (own, id) = (StoreUri::of(store), store.id().ok().flatten());
    let is_used = |root: &PathBuf| own.as_ref().map_or(is_own, |own| is_listed(root, Some(own), id.as_ref()));
    let placed = places.iter().filter_map(|place| dir_of_stored_place(store, place));
    let path = store.path().and_then(|path| path.canonicalize().ok());
    let is_rath_dir = |path: &&Path| path.file_name().is_some_and(|name| name == RATH_DIR);
    let of_store = path.as_deref().and_then(|path| path.ancestors().find(is_rath_dir)?.parent());
    let roots = placed.filter(is_used).chain(of_store.map(Path::to_owned));
    roots.filter_map(|root| root.canonicalize().ok()).filter(|root| has_versions(root)).collect()
}
