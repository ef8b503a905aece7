//! Where the branches of a session work: each in a directory of its own.
//!
//! The directory that the user gave stays with the branch that was placed there. A fork gets one of its own when its first
//! tool runs. What comes of a merge goes on where its sides parted, if nobody went on there meanwhile: so what a fan of
//! branches did ends up where it began. Two branches never work in one directory at the same time.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use rath_record::chunk::{Chunk, Effect, Observed, Tree};
use rath_record::{BranchId, Record, Step, StepId, view};

use super::versions::{self, Versions};
use crate::error::ErrorKind;
use crate::sandbox::{OWN, Root, Sandbox};
use crate::session::{Error, Result};
use crate::workspace::{Snapshot, Workspace};

/// Where the branches of a session work. A session and all that leaves it share one.
pub(crate) struct Grounds {
    sandbox: Sandbox,
    objects: OnceLock<Versions>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Where each branch works, once it does.
    by_branch: HashMap<BranchId, Slot>,
    /// Who works in the directory that the user gave.
    root: Option<BranchId>,
    /// The first tree that anybody saw there: before that nobody had changed anything.
    first: Option<Tree>,
}

/// Filled by whoever comes first, while others wait.
type Slot = Arc<Mutex<Option<Arc<Ground>>>>;

/// Which branch wants to work, and what is known of it.
pub(crate) struct Wants<'a> {
    pub(crate) branch: BranchId,
    pub(crate) record: &'a Record,
    /// The branch that it may take over from, where it came of a merge, and what that one is known to have left.
    pub(crate) heir_of: Option<&'a (BranchId, Option<Tree>)>,
}

/// The directory that a branch works in.
pub(crate) struct Ground {
    sandbox: Sandbox,
    kept: Option<Mutex<Kept>>,
}

/// A directory whose versions are kept.
struct Kept {
    workspace: Workspace,
    /// As it was when it was looked at last.
    last: Option<Snapshot>,
    /// The newest step of the branch that works here.
    at: Option<StepId>,
}

impl Grounds {
    pub(crate) fn new(sandbox: Sandbox) -> Self {
        Grounds { sandbox, objects: OnceLock::new(), state: Mutex::default() }
    }

    /// The sandbox that the session was placed in.
    pub(crate) fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    /// Where a branch works. What takes time is done here: a fork's directory is made when it is first asked for.
    pub(crate) fn of(&self, wants: &Wants<'_>) -> Result<Arc<Ground>> {
        let slot = self.state().by_branch.entry(wants.branch).or_default().clone();
        let mut made = slot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(ground) = &*made {
            return Ok(ground.clone());
        }
        let ground = self.make(wants)?;
        *made = Some(ground.clone());
        Ok(ground)
    }

    /// The versions of the workspace; none where it is not a directory of this machine.
    pub(crate) fn objects(&self) -> Result<Option<&Versions>> {
        let Some(root) = self.sandbox.directory() else { return Ok(None) };
        if let Some(objects) = self.objects.get() {
            return Ok(Some(objects));
        }
        crate::store::make_folder(&root.join(OWN)).map_err(|error| unusable(root, error))?;
        let objects = Versions::open(&root.join(OWN).join("workspace"))?;
        Ok(Some(self.objects.get_or_init(|| objects)))
    }

    /// Makes durable whatever was kept.
    pub(crate) fn sync(&self) -> Result<()> {
        self.objects.get().map_or(Ok(()), Versions::sync)
    }

    fn make(&self, wants: &Wants<'_>) -> Result<Arc<Ground>> {
        let (Some(root), Some(objects)) = (self.sandbox.directory(), self.objects()?) else {
            if self.takes_root(wants) {
                return Ok(Arc::new(Ground { sandbox: self.sandbox.clone(), kept: None }));
            }
            let message =
                format!("the sandbox {} cannot be forked, and another branch works in it", self.sandbox.uri());
            return Err(
                Error::new(ErrorKind::Place, message).with_hint("place the fork elsewhere with `session.to(..)`")
            );
        };
        let own = self.own(root, wants.branch);
        if Workspace::is_fork(&own) {
            return self.open(&own, objects);
        }
        if let Some(ground) = self.inherited(wants, root, objects)? {
            return Ok(ground);
        }
        if self.takes_root(wants) {
            return self.open(root, objects);
        }
        let mut origin = self.workspace(root, objects)?;
        let tree = match view::tree(wants.record).or_else(|| self.state().first.clone()) {
            Some(tree) => tree,
            // Nobody has changed anything yet.
            None => versions::tree(origin.snapshot()?.tree),
        };
        let workspace = origin.fork(versions::tree_id(&tree)?, &own, &self.index(&own, objects))?;
        self.ground(&own, workspace)
    }

    /// The ground of the branch that this one may take over from, if nobody went on there meanwhile, with this one's files.
    fn inherited(&self, wants: &Wants<'_>, root: &Path, objects: &Versions) -> Result<Option<Arc<Ground>>> {
        let Some((from, left)) = wants.heir_of else { return Ok(None) };
        let slot = self.state().by_branch.get(from).cloned();
        let mut held = slot.as_ref().map(|slot| slot.lock().unwrap_or_else(PoisonError::into_inner));
        let ground = match held.as_ref().and_then(|held| (**held).clone()) {
            Some(ground) => {
                let at = ground.kept().and_then(|kept| kept.at);
                if at.is_some_and(|at| wants.record.find(at).is_none()) {
                    return Ok(None);
                }
                ground
            }
            None if self.is_left(root, *from, wants) => self.open(root, objects)?,
            None => return Ok(None),
        };
        if let Some(tree) = view::tree(wants.record) {
            ground.bring_to(&tree, left.as_ref(), objects)?;
        }
        // From here on it is this one's: where it could not be brought there, it stays with whoever had it.
        held.iter_mut().for_each(|held| **held = None);
        if ground.sandbox.directory() == Some(root) {
            self.state().root = Some(wants.branch);
            note_tenant(root, wants)?;
        }
        Ok(Some(ground))
    }

    /// Whether a branch worked last in the directory that the user gave, and did nothing there that this one does not know of.
    fn is_left(&self, root: &Path, from: BranchId, wants: &Wants<'_>) -> bool {
        let is_kin = |tenant: &Tenant| Some(tenant.family) == family(wants.record);
        let was_last = match tenant_of(root).filter(is_kin) {
            Some(tenant) => tenant.branch == from && tenant.at.is_none_or(|at| wants.record.find(at).is_some()),
            None => placed_on(wants.record) == Some(from),
        };
        was_last && self.state().root.is_none_or(|tenant| tenant == from)
    }

    /// Whether a branch works in the directory that the user gave; it does from then on.
    fn takes_root(&self, wants: &Wants<'_>) -> bool {
        let root = self.sandbox.directory();
        let entitled =
            root.map_or_else(|| placed_on(wants.record) == Some(wants.branch), |root| self.is_entitled(root, wants));
        let mut state = self.state();
        if entitled && state.root.is_none_or(|tenant| tenant == wants.branch) {
            state.root = Some(wants.branch);
            drop(state);
            // Where it cannot be noted, whoever comes later is told that files are different.
            let _ = root.map(|root| note_tenant(root, wants));
            return true;
        }
        false
    }

    fn open(&self, directory: &Path, objects: &Versions) -> Result<Arc<Ground>> {
        let workspace = self.workspace(directory, objects)?;
        self.ground(directory, workspace)
    }

    fn workspace(&self, directory: &Path, objects: &Versions) -> Result<Workspace> {
        let index = self.index(directory, objects);
        match Some(directory) == self.sandbox.directory() {
            true => Ok(Workspace::open(directory, objects.objects(), &index)?),
            false => Ok(Workspace::open_fork(directory, objects.objects(), &index)?),
        }
    }

    /// The file that holds what is known of a directory's files.
    fn index(&self, directory: &Path, objects: &Versions) -> PathBuf {
        let name = directory.file_name().filter(|_| Some(directory) != self.sandbox.directory());
        let name = name.map_or_else(|| "root".to_owned(), |name| name.to_string_lossy().into_owned());
        objects.objects().folder().join("index").join(name)
    }

    fn ground(&self, directory: &Path, workspace: Workspace) -> Result<Arc<Ground>> {
        let sandbox = if Some(directory) == self.sandbox.directory() {
            self.sandbox.clone()
        } else {
            let other = self.sandbox.over(directory);
            other
                .ok_or_else(|| Error::new(ErrorKind::Place, format_args!("{} cannot be forked", self.sandbox.uri())))?
        };
        let kept = Kept { workspace, last: None, at: None };
        Ok(Arc::new(Ground { sandbox, kept: Some(Mutex::new(kept)) }))
    }

    /// What differs between a branch's files and what the record says of them, where it has files: nothing is made.
    pub(crate) fn differ(&self, wants: &Wants<'_>) -> Result<Vec<Effect>> {
        let Some(root) = self.sandbox.directory() else { return Ok(Vec::new()) };
        Root::open(root)?;
        let Some(tree) = view::tree(wants.record) else { return Ok(Vec::new()) };
        let own = self.own(root, wants.branch);
        let directory = match Workspace::is_fork(&own) {
            true => &own,
            false if self.is_entitled(root, wants) => root,
            false => return Ok(Vec::new()),
        };
        let Some(objects) = self.objects()? else { return Ok(Vec::new()) };
        let found = versions::tree(self.workspace(directory, objects)?.snapshot()?.tree);
        if found == tree { Ok(Vec::new()) } else { objects.diff(Some(&tree), &found) }
    }

    /// The directory of a branch's own.
    fn own(&self, root: &Path, branch: BranchId) -> PathBuf {
        root.join(OWN).join("work").join(branch.to_string())
    }

    /// Whether a branch is one that works in the directory that the user gave.
    fn is_entitled(&self, root: &Path, wants: &Wants<'_>) -> bool {
        let tenant = tenant_of(root);
        let was_mine = tenant.as_ref().is_some_and(|tenant| tenant.branch == wants.branch);
        // One of its kin took over there: it has all that this one did, and went on.
        let was_kins = !was_mine && tenant.is_some_and(|tenant| Some(tenant.family) == family(wants.record));
        was_mine || (placed_on(wants.record) == Some(wants.branch) && !was_kins)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at the workspace before something is done in it: what is to be recorded, if anything is.
    pub(crate) fn observe(&self, ground: &Ground, known: Option<&Tree>) -> Result<Option<Observed>> {
        let Some(mut kept) = ground.kept() else { return Ok(None) };
        let now = kept.workspace.snapshot()?;
        let tree = versions::tree(now.tree);
        self.state().first.get_or_insert_with(|| tree.clone());
        let last = kept.last.replace(now.clone());
        let Some(known) = known else { return Ok(Some(Observed { tree, effects: Vec::new() })) };
        let effects = match last {
            Some(last) if versions::tree(last.tree) == *known => {
                versions::effects(kept.workspace.changes(&last, &now)?)
            }
            _ if *known == tree => Vec::new(),
            _ => versions::effects(kept.workspace.objects().diff(Some(versions::tree_id(known)?), now.tree)?),
        };
        // What is not kept may have changed where the tree did not.
        if *known == tree && effects.is_empty() {
            return Ok(None);
        }
        Ok(Some(Observed { tree, effects }))
    }
}

impl Ground {
    /// The sandbox over this directory.
    pub(crate) fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    /// The directory, where it is there whether or not somebody works in it.
    pub(crate) fn lasting_directory(&self) -> Option<&Path> {
        let is_mounted = self.kept().is_some_and(|kept| kept.workspace.is_mounted());
        self.sandbox.directory().filter(|_| !is_mounted)
    }

    /// Looks at the workspace after something was done in it: the tree, and what changed since it was looked at last.
    pub(crate) fn look(&self) -> Result<Option<(Tree, Vec<Effect>)>> {
        let Some(mut kept) = self.kept() else { return Ok(None) };
        let now = kept.workspace.snapshot()?;
        let effects = match &kept.last {
            Some(last) => versions::effects(kept.workspace.changes(last, &now)?),
            None => Vec::new(),
        };
        let tree = versions::tree(now.tree);
        kept.last = Some(now);
        Ok(Some((tree, effects)))
    }

    /// Makes the files what a tree says: what they are then, and what that changed.
    pub(crate) fn restore(&self, tree: &Tree) -> Result<(Tree, Vec<Effect>)> {
        if let Some(mut kept) = self.kept() {
            kept.workspace.restore(versions::tree_id(tree)?)?;
        }
        Ok(self.look()?.unwrap_or_else(|| (tree.clone(), Vec::new())))
    }

    /// Notes the newest step of the branch that works here, for those that come later in other processes as well.
    pub(crate) fn reached(&self, step: Option<StepId>) {
        self.kept().into_iter().for_each(|mut kept| kept.at = step);
        // Where it cannot be noted, whoever comes later is told that files are different.
        if let Some((root, tenant)) = self.sandbox.directory().and_then(|root| Some((root, tenant_of(root)?))) {
            let _ = Tenant { at: step, ..tenant }.note(root);
        }
    }

    /// Makes the directory what a tree says, and keeps what somebody else changed in it meanwhile.
    fn bring_to(&self, tree: &Tree, left: Option<&Tree>, objects: &Versions) -> Result<()> {
        let Some(mut kept) = self.kept() else { return Ok(()) };
        let found = versions::tree(kept.workspace.snapshot()?.tree);
        let known = kept.last.as_ref().map(|last| versions::tree(last.tree)).or_else(|| left.cloned());
        let known = known.unwrap_or_else(|| tree.clone());
        let wanted = if found == *tree || found == known {
            tree.clone()
        } else {
            let (joined, conflicts) = objects.merge(&known, tree, &found)?;
            if let [first, ..] = &conflicts[..] {
                let message =
                    format!("`{}` was changed in the workspace meanwhile, and by the merge as well", first.path);
                return Err(Error::new(ErrorKind::Conflict, message)
                    .with_hint("move your change away and go on, or check the session out elsewhere"));
            }
            joined
        };
        if found != wanted {
            kept.workspace.restore(versions::tree_id(&wanted)?)?;
        }
        kept.last = Some(kept.workspace.snapshot()?);
        Ok(())
    }

    fn kept(&self) -> Option<MutexGuard<'_, Kept>> {
        self.kept.as_ref().map(|kept| kept.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The branch that was placed where the session's tools run.
fn placed_on(record: &Record) -> Option<BranchId> {
    record.find_newest(|step| matches!(step.chunk(), Chunk::Placed(_)).then_some(step.stamp().branch))
}

/// The branch that a session began with.
fn family(record: &Record) -> Option<BranchId> {
    record.steps().first().map(|step| step.stamp().branch)
}

/// Who worked last in the directory that the user gave, and how far it was.
struct Tenant {
    branch: BranchId,
    family: BranchId,
    at: Option<StepId>,
}

impl Tenant {
    fn note(&self, root: &Path) -> Result<()> {
        let at = self.at.map(|at| format!(" {at}")).unwrap_or_default();
        let text = format!("{} {}{at}\n", self.branch, self.family);
        std::fs::write(tenant_file(root), text).map_err(|error| unusable(root, error))
    }
}

fn tenant_file(root: &Path) -> PathBuf {
    root.join(OWN).join("workspace").join("tenant")
}

fn tenant_of(root: &Path) -> Option<Tenant> {
    let text = std::fs::read_to_string(tenant_file(root)).ok()?;
    let mut words = text.split_whitespace();
    let (branch, family) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    Some(Tenant { branch, family, at: words.next().and_then(|at| at.parse().ok()) })
}

fn note_tenant(root: &Path, wants: &Wants<'_>) -> Result<()> {
    let family = family(wants.record).unwrap_or(wants.branch);
    Tenant { branch: wants.branch, family, at: wants.record.head().map(Step::id) }.note(root)
}

fn unusable(root: &Path, error: std::io::Error) -> Error {
    Error::new(ErrorKind::Place, format_args!("cannot keep versions of `{}`", root.display())).because(error)
}
