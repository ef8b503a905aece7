//! The files that a forgotten step brought into the versions of one directory.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rath_record::chunk::{Change, Effect};
use rath_record::lineage::Lineage;
use rath_record::{BranchId, Chunk, Digest, Step, StepId, Timestamp};
use rath_workspace::{CollectMode, Collector, ObjectId, TreeFile, TreeId, TreeSearch, fork_of_layers};

use super::SkipReason;
use super::directory::{began, entries, forks_of};
use super::forget::{FileCopy, ForgetTarget, ForgottenFiles, SameFile, tree_of};
use super::names::VersionNames;
use super::sources::{Source, SourceReader, visit_unlisted_files};
use crate::blocking::run_blocking;
use crate::sandbox::RATH_DIR;
use crate::session::{Result, StoreUri, lossy_path};
use crate::store::{Store, StoreError, StoreErrorKind, rath_dir, sync_folder};

/// The removal of a step's files from the versions of one directory.
pub(super) struct ForgetInDirectory {
    pub(super) root: PathBuf,
    pub(super) store: Store,
    pub(super) target: ForgetTarget,
}

impl ForgetInDirectory {
    pub(super) async fn run(self) -> Result<ForgottenFiles> {
        let mut report = ForgottenFiles { directory: self.root.clone(), ..ForgottenFiles::default() };
        if !self.target.has_files() {
            // The versions have nothing of the step, and other processes may use them.
            match self.read_steps().await {
                Ok(steps) => report.other_stores = steps.with_target,
                Err(reason) => report.skipped = Some(reason),
            }
            return Ok(report);
        }
        let root = self.root.clone();
        let opened = run_blocking(move || -> Result<_> {
            rath_dir::check(&root.join(RATH_DIR))?;
            Ok(Collector::open(&root.join(RATH_DIR).join("workspace"), CollectMode::Remove))
        });
        let collector = match opened.await? {
            Ok(Some(collector)) => collector,
            Ok(None) => {
                report.skipped = Some(SkipReason::InUse);
                return Ok(report);
            }
            Err(error) => {
                report.skipped = Some(SkipReason::Damaged { why: error.message() });
                return Ok(report);
            }
        };
        // From here on no process works in the directory, so no store names more than it does now.
        match self.read_steps().await {
            Ok(steps) => {
                report.other_stores.clone_from(&steps.with_target);
                run_blocking(move || self.forget(collector, &steps, report)).await
            }
            Err(reason) => {
                report.skipped = Some(reason);
                Ok(report)
            }
        }
    }

    /// Reads the steps of all stores that may name versions of the directory.
    async fn read_steps(&self) -> Result<AllSteps, SkipReason> {
        let paths = self.target.new_files.iter().map(|file| file.path.clone()).collect();
        let steps = AllSteps::new(self.target.step.id(), paths);
        steps.add_all(&self.root, &self.store, |_| false).await
    }

    /// Removes the files, and all versions that no step names: a file that a call wrote for a moment is among these. Blocks.
    fn forget(self, mut collector: Collector, steps: &AllSteps, mut report: ForgottenFiles) -> Result<ForgottenFiles> {
        let new = self.target.new_files.clone();
        let mut search = collector.search(new.iter().map(|file| file.id));
        let others = steps.others_with(&mut search, &self.target);
        let (kept, removed): (Vec<_>, Vec<_>) = new.into_iter().partition(|file| others.contains_key(&file.id));
        // What was forgotten before is named by both steps, and is gone.
        let is_there = |file: &TreeFile| collector.objects().has_content(file.id);
        report.kept = kept.into_iter().filter(is_there).map(|file| others[&file.id].file(file.path)).collect();
        let stored = collector.forget(removed.iter().map(|file| file.id))?;
        report.later = steps.later_versions(&removed, &self.target.step);
        let is_unreadable = |file: &&TreeFile| !stored.contains(&file.id) && collector.objects().has_content(file.id);
        if let Some(file) = removed.iter().find(is_unreadable) {
            report.skipped = Some(SkipReason::Damaged { why: format!("{} cannot be read", file.path) });
        }
        report.removed = removed.into_iter().filter(|file| stored.contains(&file.id)).map(|file| file.path).collect();
        let forks = forks_of(&self.root);
        if let Err(error) = keep_named(&mut collector, steps, &forks) {
            // What the damaged version consists of is not known, so all else stays.
            collector.keep_all()?;
            report.skipped = Some(SkipReason::Damaged { why: error.message() });
        }
        for directory in self.put_back() {
            collector.remove_with_files(&directory)?;
            directory.parent().map_or(Ok(()), sync_folder)?;
        }
        collector.collect()?;
        let put_back = self.put_back_folders();
        for path in collector.copies_below(&self.root) {
            // A file that was moved aside is rath's own copy.
            if put_back.iter().any(|folder| path.starts_with(folder)) && remove_durably(&path).is_ok() {
                continue;
            }
            report.still_in.extend(self.describe_copy(path, &forks));
        }
        report.untracked = self.untracked();
        Ok(report)
    }

    /// Returns the directories of files that were moved aside because the policy does not let the call change them.
    fn put_back(&self) -> Vec<PathBuf> {
        let Chunk::ToolResult(result) = self.target.step.chunk() else { return Vec::new() };
        let (Some(start), Some(end)) = (self.target.began_at, self.target.step.stamp().at) else { return Vec::new() };
        // Others may have given a step any time.
        if !self.target.is_own {
            return Vec::new();
        }
        let paths: Vec<_> = result.put_back.iter().chain(&result.not_put_back).map(|path| lossy_path(path)).collect();
        let millis = |at: Timestamp| u64::try_from(at.0 / 1000).unwrap_or_default();
        let is_of_call = |path: &PathBuf| {
            let id = path.file_name().and_then(|name| uuid::Uuid::try_parse(name.to_str()?).ok());
            let at = id.and_then(|id| began(id.into_bytes()));
            at.is_some_and(|at| (millis(start)..=millis(end)).contains(&at))
                && paths.iter().any(|file| path.join(file).symlink_metadata().is_ok())
        };
        self.put_back_folders().iter().flat_map(|folder| entries(folder)).filter(is_of_call).collect()
    }

    /// Returns the folders that hold files which were moved aside.
    fn put_back_folders(&self) -> Vec<PathBuf> {
        self.work_directories().into_iter().map(|directory| directory.join(RATH_DIR).join("put-back")).collect()
    }

    /// Returns the directories in which the step's branch may have worked: that of the user, and those of its fork.
    fn work_directories(&self) -> Vec<PathBuf> {
        let work = self.root.join(RATH_DIR).join("work");
        let branch = self.target.step.stamp().branch;
        vec![self.root.clone(), work.join(branch.to_string()), work.join(format!("{branch}.layers/upper"))]
    }

    /// Returns the files that the step changed and that no version is stored of.
    fn untracked(&self) -> Vec<PathBuf> {
        let is_untracked = |effect: &&Effect| effect.unkept.is_some() && effect.change != Change::Deleted;
        let paths: Vec<_> = self.target.step.chunk().effects().iter().filter(is_untracked).collect();
        let directories = self.work_directories();
        let candidates = directories
            .iter()
            .flat_map(|directory| paths.iter().map(|effect| directory.join(lossy_path(&effect.path))));
        candidates.filter(|path| path.is_file()).collect()
    }

    /// Names the forks that a file belongs to; several may share one.
    fn describe_copy(&self, path: PathBuf, forks: &[(Option<BranchId>, PathBuf)]) -> Vec<FileCopy> {
        let own = self.root.join(RATH_DIR);
        let name_below = |folder: PathBuf| {
            let rest = path.strip_prefix(folder).ok()?;
            rest.components().next().map(|name| name.as_os_str().to_string_lossy().into_owned())
        };
        let branches: Vec<Option<BranchId>> = if let Some(name) = name_below(own.join("work")) {
            let fork = fork_of_layers(Path::new(&name)).unwrap_or_else(|| name.into());
            vec![fork.to_str().and_then(|name| name.parse().ok())]
        } else if let Some(tree) = name_below(own.join("workspace").join("versions")) {
            let shares = |fork: &Path| Collector::base_of_fork(fork).is_some_and(|base| base.0.to_string() == tree);
            forks.iter().filter(|(_, fork)| shares(fork)).map(|(branch, _)| *branch).collect()
        } else {
            vec![None]
        };
        branches.into_iter().map(|branch| FileCopy { path: path.clone(), branch }).collect()
    }
}

/// The steps of all stores of a directory, each once, parents before children.
struct AllSteps {
    list: Vec<StepFacts>,
    known: HashSet<StepId>,
    names: VersionNames,
    /// The step that is forgotten.
    target: StepId,
    /// The paths of the files that the target brought in.
    paths: HashSet<String>,
    /// The other stores and files that have the target with its texts.
    with_target: Vec<String>,
}

/// The facts about a step that decide which files it brought in.
struct StepFacts {
    id: StepId,
    branch: BranchId,
    parents: Vec<StepId>,
    trees: Vec<TreeId>,
    at: Option<Timestamp>,
    /// True if the step itself changed files, and did not find them changed.
    is_act: bool,
    is_forgotten: bool,
    /// The files that the step wrote, among those that the target wrote, with the digests of their contents.
    written: Vec<(String, Option<Digest>)>,
    /// The URI of the store that has the step; none for the own one.
    store: Option<Arc<str>>,
}

impl StepFacts {
    fn of(step: &Step, paths: &HashSet<String>, store: Option<Arc<str>>) -> Self {
        let trees = match step.chunk() {
            Chunk::Other(_) => {
                let mut names = VersionNames::default();
                names.add_step(&step.json());
                names.trees.into_iter().collect()
            }
            _ => tree_of(step).into_iter().collect(),
        };
        StepFacts {
            id: step.id(),
            branch: step.stamp().branch,
            parents: step.parents().iter().map(rath_record::Parent::id).collect(),
            trees,
            at: step.stamp().at,
            is_act: matches!(
                step.chunk(),
                Chunk::ToolResult(_) | Chunk::Merged(_) | Chunk::Decided(_) | Chunk::Restored(_)
            ),
            is_forgotten: step.withheld().is_some(),
            written: written_files(step).filter(|(path, _)| paths.contains(path)).collect(),
            store,
        }
    }

    fn file(&self, path: String) -> SameFile {
        SameFile { path, step: self.id, branch: self.branch, store: self.store.as_deref().map(str::to_owned) }
    }
}

impl SourceReader for AllSteps {
    fn add(&mut self, source: &Source) -> Result<()> {
        let (uri, has_target) = match source {
            Source::OwnStore(store) => return self.add_store(store, None).map(|_| ()),
            Source::Store(uri, store) => (uri, self.add_store(store, Some(uri))?),
            Source::File(uri, lineage) => (uri, self.add_lineage(lineage, Some(uri))),
        };
        self.with_target.extend(has_target.then(|| uri.to_string()));
        Ok(())
    }
}

impl AllSteps {
    fn new(target: StepId, paths: HashSet<String>) -> Self {
        let (list, known, names, with_target) = (Vec::new(), HashSet::new(), VersionNames::default(), Vec::new());
        AllSteps { list, known, names, target, paths, with_target }
    }

    /// Adds the steps of a store. Returns true if the target is there with its texts.
    fn add_store(&mut self, store: &Store, uri: Option<&StoreUri>) -> Result<bool> {
        let mut heads = Vec::new();
        for summary in store.list_whole(&HashSet::new())? {
            let stored = match store.read_branch(summary.branch) {
                // Another process has deleted it since, and it names nothing any more.
                Err(error) if error.kind() == StoreErrorKind::NoSuchSession => continue,
                stored => stored?,
            };
            if let Some(damage) = stored.damage.first() {
                return Err(StoreError::new(StoreErrorKind::Damaged, damage).into());
            }
            heads.extend(stored.head);
        }
        let mut has_target = self.add_lineage(&Lineage::new(heads), uri);
        visit_unlisted_files(store, |lineage| has_target |= self.add_lineage(lineage, uri))?;
        Ok(has_target)
    }

    /// Adds steps. Returns true if the target is among them with its texts.
    fn add_lineage(&mut self, lineage: &Lineage, uri: Option<&StoreUri>) -> bool {
        let (mut has_target, store) = (false, uri.map(|uri| Arc::from(uri.to_string())));
        for step in lineage.walk() {
            has_target |= step.id() == self.target && step.withheld().is_none();
            self.names.add_step(&step.json());
            if self.known.insert(step.id()) {
                self.list.push(StepFacts::of(step, &self.paths, store.clone()));
            }
        }
        has_target
    }

    /// Returns the files that steps other than the target brought in, each with the first of these steps.
    ///
    /// A step brings a file in if none before it on its lines has the content. A step that found its files as they are counts if it
    /// is not later than the target: a later one found what the target wrote. Beside a target that others made, every step counts:
    /// it may claim files that it never wrote.
    fn others_with(&self, search: &mut TreeSearch<'_>, target: &ForgetTarget) -> HashMap<ObjectId, &StepFacts> {
        let mut found = HashMap::new();
        // The files that a step, or one before it, has.
        let mut seen: HashMap<StepId, Arc<BTreeSet<ObjectId>>> = HashMap::new();
        for step in &self.list {
            let mut files: Arc<BTreeSet<ObjectId>> = Arc::default();
            let parents = step.parents.iter().filter_map(|parent| seen.get(parent));
            parents.for_each(|parent| files = union(&files, parent));
            let times = step.at.zip(target.step.stamp().at);
            let is_not_later = || !target.is_own || times.is_none_or(|(at, of_target)| at <= of_target);
            let brings_in = step.id != target.step.id() && !step.is_forgotten && (step.is_act || is_not_later());
            for tree in &step.trees {
                let own = search.files_in(*tree);
                if brings_in {
                    own.difference(&files).for_each(|file| _ = found.entry(*file).or_insert(step));
                }
                files = union(&files, &own);
            }
            seen.insert(step.id, files);
        }
        found
    }

    /// Returns the versions of some files that steps after the target wrote.
    fn later_versions(&self, files: &[TreeFile], target: &Step) -> Vec<SameFile> {
        let paths: HashSet<&str> = files.iter().map(|file| &*file.path).collect();
        // A step that wrote the same content again has no other version.
        let removed: HashSet<Option<Digest>> = written_files(target).map(|(_, digest)| digest).collect();
        let is_later =
            |written: &&(String, Option<Digest>)| paths.contains(&*written.0) && !removed.contains(&written.1);
        let mut after = HashSet::from([target.id()]);
        let mut later = Vec::new();
        for step in &self.list {
            if step.parents.iter().any(|parent| after.contains(parent)) {
                after.insert(step.id);
                let written = step.written.iter().filter(|written| !step.is_forgotten && is_later(written));
                later.extend(written.map(|(path, _)| step.file(path.clone())));
            }
        }
        later
    }
}

/// Removes a file so that a power cut does not bring it back.
fn remove_durably(path: &Path) -> std::io::Result<()> {
    fs::remove_file(path)?;
    path.parent().map_or(Ok(()), sync_folder)
}

/// Returns the paths of the files that a step gave another content, with the digests of the new contents.
fn written_files(step: &Step) -> impl Iterator<Item = (String, Option<Digest>)> {
    let is_written = |effect: &&Effect| effect.after.is_some() && effect.after != effect.before;
    step.chunk().effects().iter().filter(is_written).map(|effect| (effect.path.clone(), effect.after))
}

fn union(one: &Arc<BTreeSet<ObjectId>>, other: &Arc<BTreeSet<ObjectId>>) -> Arc<BTreeSet<ObjectId>> {
    match (other.is_subset(one), one.is_subset(other)) {
        (true, _) => one.clone(),
        (_, true) => other.clone(),
        _ => Arc::new(one.union(other).copied().collect()),
    }
}

/// Keeps all that steps name, and the forks.
fn keep_named(
    collector: &mut Collector,
    steps: &AllSteps,
    forks: &[(Option<BranchId>, PathBuf)],
) -> rath_workspace::Result<()> {
    // All forks first, also after an error: the files that a fork shares stay in any case.
    let kept: Vec<_> = forks.iter().map(|(_, fork)| collector.keep_fork(fork)).collect();
    kept.into_iter().collect::<rath_workspace::Result<()>>()?;
    steps.names.trees.iter().try_for_each(|tree| collector.keep_tree(*tree))?;
    steps.names.files.iter().for_each(|file| collector.keep_file(*file));
    Ok(())
}
