//! The files that git ignores, in forks and in copies of recorded files.
//!
//! No tree holds them, so a fork would have no dependencies and no build results. Directories that git ignores in the user's directory
//! are therefore shared with its forks: an isolated sandbox shows them by mounts, and changes stay in the fork. In other sandboxes the fork
//! gets copies, up to a bound. Nothing of them is recorded, restored or merged, and the user's directory never changes by them.

use std::fmt;
use std::path::{Path, PathBuf};

use super::Session;
use crate::sandbox::{Sandbox, SharedDir, SharedDirs, private_paths_in};
use crate::session::Result;
use crate::workspace::{CopyBudget, CopyOutcome, ForkShare, IgnoredPaths, Objects};

/// A file or directory of the user's directory that git ignores, and that a fork does not have.
///
/// Returned by [`Session::unshared_paths`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnsharedPath {
    /// The path, relative to the directory.
    pub path: String,
    /// The reason.
    pub reason: UnsharedReason,
}

/// The reasons why a fork does not have an ignored file or directory.
///
/// Part of [`UnsharedPath`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UnsharedReason {
    /// It is a single file, such as `.env`: only directories are shared.
    SingleFile,
    /// It holds private files of the user.
    Private,
    /// The files of the fork itself are at its path.
    InTheWay,
    /// It is too large to be copied, and cannot be shown by a mount here.
    TooLarge,
    /// Scripts in it would use the files of the user's directory, and a copy of it too.
    NamesOriginal,
    /// There are too many such directories.
    TooMany,
    /// It is there, and commands can only read it: no overlay can be mounted over it, and if that was known before, it was too large to be
    /// copied.
    ReadOnly,
    /// It could not be shared.
    Failed(String),
}

impl fmt::Display for UnsharedReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UnsharedReason::SingleFile => f.write_str("a single file"),
            UnsharedReason::Private => f.write_str("private"),
            UnsharedReason::InTheWay => f.write_str("the fork has files of its own there"),
            UnsharedReason::TooLarge => f.write_str("too large to copy"),
            UnsharedReason::NamesOriginal => f.write_str("names the project's own path"),
            UnsharedReason::TooMany => write!(f, "more than {MAX_SHARED_DIRS} directories"),
            UnsharedReason::ReadOnly => f.write_str("read-only"),
            UnsharedReason::Failed(why) => f.write_str(why),
        }
    }
}

/// The most directories that a fork shares: each is a mount of every command.
const MAX_SHARED_DIRS: usize = 64;

/// The directories that are never shared: Python writes them anew, since it compares the times of the files that they belong to.
const COMPILED_DIR: &str = "__pycache__";

/// The directory of the repository.
const GIT_DIR: &str = ".git";

/// A sandbox over a directory with recorded files.
pub(super) struct SharingSandbox {
    pub(super) sandbox: Sandbox,
    /// The paths in the directory that no version is made of.
    pub(super) left_out: Vec<PathBuf>,
    pub(super) unshared: Vec<UnsharedPath>,
}

impl Session {
    /// Returns the files and directories of the user's directory that git ignores and that the fork of this session does not have.
    ///
    /// Directories that git ignores, such as those of dependencies, are shared with forks, together with `.git`. Empty for a session in
    /// the user's own directory, and before the first tool of a fork has run.
    ///
    /// ```no_run
    /// # fn show(fork: rath::Session) {
    /// for unshared in fork.unshared_paths() {
    ///     eprintln!("this fork does not have {}: {}", unshared.path, unshared.reason);
    /// }
    /// # }
    /// ```
    pub fn unshared_paths(&self) -> Vec<UnsharedPath> {
        self.assigned_dir().map(|dir| dir.unshared()).unwrap_or_default()
    }
}

impl SharingSandbox {
    /// Returns the sandbox over a fork of the directory `root`, or over a copy of recorded files, with the directories that git ignores in
    /// `root`. None if the sandbox cannot work in another directory. The path of the fork has no links. Blocks.
    pub(super) fn over(sandbox: &Sandbox, root: &Path, share: ForkShare, objects: &Objects) -> Result<Option<Self>> {
        let (root, fork) = (root.canonicalize()?, share.fork().to_owned());
        let shared = |directories| SharedDirs { original: root.clone(), directories };
        let plain = sandbox.with_shared(&fork, &shared(Vec::new())).or_else(|| sandbox.with_directory(&fork));
        let Some(plain) = plain else { return Ok(None) };
        let seen_at = plain.seen_at().unwrap_or(&fork);
        let share = share.seen_at(&seen_at.canonicalize().unwrap_or_else(|_| seen_at.to_owned()));
        let (shared_before, mut unshared) = (share.directories(), Vec::new());
        let mut ignored = IgnoredPaths::find(&root)?;
        // A directory cannot be shown in itself.
        let holds_fork = ignored.directories.extract_if(.., |path| fork.starts_with(root.join(path)));
        unshared.extend(holds_fork.map(|path| UnsharedPath::new(&path, UnsharedReason::InTheWay)));
        let chosen = choose(&root, &ignored, &shared_before, &mut unshared);
        let has_mounts = sandbox.can_show_dirs();
        let has_overlays = has_mounts && share.can_overlay();
        let mut sharing =
            Sharing { root: &root, fork: &fork, share, objects, has_overlays, budget: None, shown: Vec::new() };
        for path in chosen {
            // A sandbox leaves out what it cannot show.
            if let Some(why) = unshowable(&root.join(&path)).filter(|_| has_overlays) {
                unshared.push(UnsharedPath::new(&path, UnsharedReason::Failed(why)));
                continue;
            }
            let mut reason = sharing.add(&path).unwrap_or_else(|error| Some(UnsharedReason::Failed(error.message())));
            // A copy that was made before.
            reason = reason.filter(|it| *it != UnsharedReason::InTheWay || !shared_before.contains(&path));
            if has_mounts && reason == Some(UnsharedReason::TooLarge) && sharing.add_read_only(&path)? {
                reason = Some(UnsharedReason::ReadOnly);
            }
            unshared.extend(reason.map(|reason| UnsharedPath::new(&path, reason)));
        }
        let git = Path::new(GIT_DIR);
        if has_mounts {
            sharing.add_read_only(git)?;
        // In a directory with a `.git`, Landlock alone would not let commands create files.
        } else if sandbox.uri().starts_with("local:") {
            let is_in_repository = root.ancestors().any(|above| above.join(git).exists());
            let is_copied = root.join(git).exists() && sharing.share.copy_repository(objects, &root)?;
            let is_among_versions = objects.folder().canonicalize().is_ok_and(|folder| fork.starts_with(folder));
            // The fork is below the user's directory, and git would find the repository there; in a temporary copy, the versions.
            if !is_copied && (is_in_repository || is_among_versions) {
                sharing.share.close_repository(objects)?;
                let reason = UnsharedReason::Failed("a part of another repository".to_owned());
                unshared.extend(is_in_repository.then(|| UnsharedPath::new(git, reason)));
            }
        }
        let (left_out, directories) = (sharing.share.directories(), sharing.shown);
        let sandbox = match directories.is_empty() {
            true => plain,
            false => sandbox.with_shared(&fork, &shared(directories)).unwrap_or(plain),
        };
        Ok(Some(SharingSandbox { sandbox, left_out, unshared }))
    }
}

/// Returns the reason why a sandbox cannot show a directory by a mount, if there is one.
fn unshowable(directory: &Path) -> Option<String> {
    match directory.canonicalize() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Some("no longer in the project".to_owned()),
        Err(error) => Some(error.to_string()),
        Ok(path) if path != directory => Some("a link in the project".to_owned()),
        Ok(_) => std::fs::read_dir(directory).err().map(|error| error.to_string()),
    }
}

/// The directories that a fork shares so far.
struct Sharing<'a> {
    root: &'a Path,
    fork: &'a Path,
    share: ForkShare,
    objects: &'a Objects,
    has_overlays: bool,
    /// The budget for copies, from the first one on.
    budget: Option<CopyBudget>,
    /// The directories that the sandbox shows by mounts.
    shown: Vec<SharedDir>,
}

impl Sharing<'_> {
    /// Shares a directory, and returns the reason if it cannot be shared.
    fn add(&mut self, path: &Path) -> Result<Option<UnsharedReason>> {
        if self.has_overlays {
            let Some(changes) = self.share.prepare(self.objects, path)? else {
                return Ok(Some(UnsharedReason::InTheWay));
            };
            self.shown.push(SharedDir { path: path.to_owned(), changes: Some(changes) });
            return Ok(None);
        }
        let budget = self.budget.get_or_insert_with(|| CopyBudget::detect(self.fork));
        Ok(match self.share.copy(self.objects, self.root, path, budget)? {
            CopyOutcome::Copied => None,
            CopyOutcome::InTheWay => Some(UnsharedReason::InTheWay),
            CopyOutcome::TooLarge => Some(UnsharedReason::TooLarge),
            CopyOutcome::NamesOriginal => Some(UnsharedReason::NamesOriginal),
        })
    }

    /// Shows a file or a directory that nothing can change, and returns false if that is not possible.
    fn add_read_only(&mut self, path: &Path) -> Result<bool> {
        let is_prepared = self.share.prepare_read_only(self.objects, self.root, path)?;
        if is_prepared {
            self.shown.push(SharedDir { path: path.to_owned(), changes: None });
        }
        Ok(is_prepared)
    }
}

impl UnsharedPath {
    /// Returns paths that are not shared, and with them the shared ones that the commands of a sandbox could only read.
    pub(super) fn with_read_only(mut unshared: Vec<UnsharedPath>, sandbox: &Sandbox) -> Vec<UnsharedPath> {
        let read_only = sandbox.read_only_dirs();
        unshared.extend(read_only.iter().map(|path| UnsharedPath::new(path, UnsharedReason::ReadOnly)));
        unshared
    }

    fn new(path: &Path, reason: UnsharedReason) -> Self {
        UnsharedPath { path: path.to_string_lossy().into_owned(), reason }
    }
}

/// Returns the ignored directories that a fork shares: those that were shared before, and others by the rules. The rest is added to the
/// list of those that are left out.
fn choose(
    root: &Path,
    ignored: &IgnoredPaths,
    shared_before: &[PathBuf],
    unshared: &mut Vec<UnsharedPath>,
) -> Vec<PathBuf> {
    let private = private_paths_in(root);
    let is_private = |path: &Path| private.iter().any(|it| it.starts_with(path) || path.starts_with(it));
    let mut chosen: Vec<PathBuf> =
        shared_before.iter().filter(|path| *path != Path::new(GIT_DIR) && !is_private(path)).cloned().collect();
    for path in &ignored.directories {
        if path.ends_with(COMPILED_DIR) || chosen.iter().any(|known| path.starts_with(known) || known.starts_with(path))
        {
            continue;
        }
        if is_private(path) {
            unshared.push(UnsharedPath::new(path, UnsharedReason::Private));
        } else if chosen.len() == MAX_SHARED_DIRS {
            unshared.push(UnsharedPath::new(path, UnsharedReason::TooMany));
        } else {
            chosen.push(path.clone());
        }
    }
    unshared.extend(ignored.files.iter().map(|path| UnsharedPath::new(path, UnsharedReason::SingleFile)));
    chosen
}
