//! Opening an isolated sandbox: its directory, its limits and its walls.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

#[cfg(target_os = "linux")]
use super::commit_dir::CommitDir;
#[cfg(target_os = "linux")]
use super::grants::Grants;
use super::hosts::AllowedHosts;
#[cfg(target_os = "linux")]
use super::landlock::{self, LandlockRules};
use super::nested::NestedProjects;
use super::options::IsolatedOptions;
#[cfg(target_os = "linux")]
use super::options::{GitAccess, MountPath, Walls};
#[cfg(target_os = "linux")]
use super::placeholders::{Placeholders, PrivatePath, keep_private, private_in};
use super::protected::with_files_beside;
#[cfg(target_os = "linux")]
use super::shown_dirs::ShownDirs;
use super::{Confinement, Namespace};
#[cfg(target_os = "linux")]
use super::{hidden, mounts, seccomp};
use crate::blocking::drop_on_pool;
use crate::capabilities::Capabilities;
#[cfg(target_os = "linux")]
use crate::capabilities::Network;
#[cfg(target_os = "linux")]
use crate::environment::environment;
#[cfg(target_os = "linux")]
use crate::error::ErrorKind;
use crate::error::{Error, Result};
use crate::files::{ByteRange, DirEntry};
use crate::limits::ActiveLimits;
#[cfg(target_os = "linux")]
use crate::limits::{Limits, PidScope};
use crate::mount_table::MountTable;
use crate::private_paths::resolved;
#[cfg(target_os = "linux")]
use crate::private_paths::{home_directories, homes_at, own_directories};
use crate::root::Root;
use crate::temp_dir::TempDir;

/// The state that all openings of a sandbox share.
#[derive(Debug, Default)]
pub(super) struct OpeningState {
    /// The projects in each directory that commands can write.
    projects: BTreeMap<PathBuf, Arc<NestedProjects>>,
    /// The shown directories that a command could only read, although there is a folder for changes.
    pub(super) read_only: BTreeSet<PathBuf>,
    #[cfg(target_os = "linux")]
    placeholders: Placeholders,
}

impl OpeningState {
    /// Returns the projects in a directory. They are looked for at the first use, and again if one of them has moved.
    fn projects_in(&mut self, directory: &Path, mounts: &MountTable) -> Result<Arc<NestedProjects>> {
        self.get_or_find(directory, || NestedProjects::find(directory, mounts))
    }

    fn get_or_find(
        &mut self,
        directory: &Path,
        find: impl FnOnce() -> Result<NestedProjects>,
    ) -> Result<Arc<NestedProjects>> {
        match self.projects.get(directory) {
            Some(known) if known.is_current(directory) => Ok(known.clone()),
            _ => {
                let found = Arc::new(find()?);
                self.projects.insert(directory.to_owned(), found.clone());
                Ok(found)
            }
        }
    }
}

/// The parts of an isolated sandbox that exist from its first use on.
pub(super) struct OpenIsolated {
    pub(super) root: Root,
    pub(super) nested: Arc<NestedProjects>,
    /// The other directories that commands can write, with the projects in them.
    outside: Vec<(PathBuf, NestedProjects)>,
    /// The private paths in directories that commands can write.
    #[cfg(target_os = "linux")]
    private: Vec<PrivatePath>,
    /// The path at which commands see the workspace.
    mount_path: PathBuf,
    hidden: FoundHidden,
    /// The directories of another workspace that are shown.
    #[cfg(target_os = "linux")]
    pub(super) shared: Option<ShownDirs>,
    pub(super) namespace: Option<Arc<Namespace>>,
    pub(super) confinement: Arc<Confinement>,
    /// The directory for temporary files of commands, if they have no `/tmp` of their own.
    pub(super) temp: Option<TempDir>,
    /// The directory that stands for `.git`, if a command commits.
    #[cfg(target_os = "linux")]
    pub(super) commit: Option<CommitDir>,
    pub(super) hosts: Arc<AllowedHosts>,
    pub(super) limits: ActiveLimits,
    pub(super) capabilities: OnceLock<Capabilities>,
}

/// The paths that are to be hidden, as they are at one time.
#[derive(Debug, PartialEq, Eq)]
struct FoundHidden {
    /// Those that the user hides.
    named: Vec<FoundPath>,
    /// Those that are kept out besides, with the files beside them.
    kept_out: Vec<FoundPath>,
    /// Those that the user hides, in the workspace whose directories are shown.
    shared: Vec<FoundPath>,
}

/// A path without links, and true if it is a directory, or the reason why it cannot be looked at.
#[derive(Debug, PartialEq, Eq)]
struct FoundPath {
    path: PathBuf,
    is_dir: std::result::Result<bool, std::io::ErrorKind>,
}

impl FoundPath {
    fn find(path: &Path) -> Self {
        let path = resolved(path);
        let is_dir = path.metadata().map(|metadata| metadata.is_dir()).map_err(|error| error.kind());
        FoundPath { path, is_dir }
    }
}

impl Drop for OpenIsolated {
    fn drop(&mut self) {
        self.temp.take().into_iter().for_each(drop_on_pool);
        #[cfg(target_os = "linux")]
        self.commit.take().into_iter().for_each(drop_on_pool);
    }
}

impl std::fmt::Debug for OpenIsolated {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("OpenIsolated").field(&self.root.path()).finish()
    }
}

/// The default limit on the processes and threads of a command.
const DEFAULT_MAX_PROCESSES: u64 = 1024;

impl IsolatedOptions {
    /// Opens the directory, sets up the limits and prepares the namespace, once, and again if nested projects have moved or a path that
    /// is to be hidden has appeared or changed. Private paths that are missing by now are created again.
    pub(super) fn get_or_open(
        &self,
        state: &Mutex<OpeningState>,
        opened: &Mutex<Option<Arc<OpenIsolated>>>,
    ) -> Result<Arc<OpenIsolated>> {
        let mut opened = opened.lock().unwrap_or_else(PoisonError::into_inner);
        match &*opened {
            Some(opened) if opened.is_current(self) => {
                #[cfg(target_os = "linux")]
                keep_private(&opened.private, &mut state.lock().unwrap_or_else(PoisonError::into_inner).placeholders)?;
                Ok(opened.clone())
            }
            _ => Ok(opened.insert(Arc::new(self.open(state)?)).clone()),
        }
    }

    /// Looks at the paths that are to be hidden, for the workspace in a directory that commands see at `mount_path`.
    fn find_hidden(&self, directory: &Path, mount_path: &Path) -> FoundHidden {
        // In a fork, an absolute path in the original is one in the fork too, where commands see it.
        let in_fork = |path: &PathBuf| path.strip_prefix(mount_path).map(|path| directory.join(path));
        let named = self.hidden.iter().flat_map(|path| in_fork(path).into_iter().chain([directory.join(path)]));
        // What is in a `.rath` of the workspace is hidden with it.
        let is_apart = |path: &&PathBuf| match path.strip_prefix(directory) {
            Ok(inside) => inside.iter().all(|name| name != crate::RATH_DIR),
            Err(_) => true,
        };
        let kept_out = self.kept_out();
        let kept_out = kept_out.iter().filter(is_apart).flat_map(|path| with_files_beside(path));
        let relative = |path: &PathBuf| path.strip_prefix(mount_path).unwrap_or(path).to_owned();
        let in_original = |path: &PathBuf| self.shared.as_ref().map(|shared| shared.original.join(relative(path)));
        FoundHidden {
            named: named.map(|path| FoundPath::find(&path)).collect(),
            kept_out: kept_out.map(|path| FoundPath::find(&path)).collect(),
            shared: self.hidden.iter().filter_map(in_original).map(|path| FoundPath::find(&path)).collect(),
        }
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn open(&self, _: &Mutex<OpeningState>) -> Result<OpenIsolated> {
        Err(Error::needs_platform("a sandbox `isolated:`", "Linux"))
    }

    #[cfg(target_os = "linux")]
    pub(super) fn open(&self, state: &Mutex<OpeningState>) -> Result<OpenIsolated> {
        let root = Root::open(&self.directory)?;
        let scope = match self.walls {
            Walls::Namespaces => PidScope::Namespace,
            Walls::Landlock => PidScope::Host,
        };
        let limits = match self.limits.processes {
            Some(_) => self.limits.enforce(scope)?,
            // The default limit is dropped on a machine that cannot enforce it; the capabilities show that.
            None => {
                let with_default = Limits { processes: Some(DEFAULT_MAX_PROCESSES), ..self.limits.clone() };
                with_default.enforce(scope).or_else(|_| self.limits.enforce(scope))?
            }
        };
        let mount_path = match &self.mount_path {
            _ if self.walls == Walls::Landlock => root.path().to_owned(),
            Some(MountPath::SameAs(path)) => path.canonicalize().unwrap_or_else(|_| path.clone()),
            Some(MountPath::Given(path)) if path.is_absolute() => path.clone(),
            Some(MountPath::Given(path)) => {
                let message = format!("wanted an absolute path as `at`, found `{}`", path.display());
                return Err(Error::new(ErrorKind::Unavailable, message));
            }
            None => root.path().to_owned(),
        };
        if [root.path(), &*mount_path].contains(&Path::new("/")) {
            return Err(Error::new(ErrorKind::Config, "wanted a workspace other than `/` for an isolated sandbox"));
        }
        let original =
            self.original.as_ref().map(|original| resolved(original)).filter(|it| !it.starts_with(root.path()));
        let is_inside =
            |above: &Path| mount_path != above && mount_path.starts_with(above) && mount_path != root.path();
        if is_inside(root.path()) || original.as_deref().is_some_and(is_inside) {
            let message = format!("wanted a path outside of the workspace as `at`, found `{}`", mount_path.display());
            return Err(Error::new(ErrorKind::Config, message));
        }
        let mounts = MountTable::read().map_err(|error| {
            Error::new(ErrorKind::Unavailable, "cannot read the mounts of this machine").because(error)
        })?;
        let found = self.find_hidden(root.path(), &mount_path);
        let root = root.hiding(found.named.iter().flat_map(|found| mounts.places_with_parts(&found.path)));
        let projects_in =
            |directory: &Path| state.lock().unwrap_or_else(PoisonError::into_inner).projects_in(directory, &mounts);
        let nested = projects_in(root.path())?;
        let shared = match self.shared.as_ref().filter(|_| self.walls == Walls::Namespaces) {
            Some(shared) => {
                self.refuse_commit(shared)?;
                let hidden = found.shared.iter().flat_map(|found| mounts.places_with_parts(&found.path));
                let original = Root::open(&shared.original)?.hiding(hidden);
                let rath_dirs_in = |directory: &Path| {
                    let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
                    state.get_or_find(directory, || NestedProjects::find_rath_dirs(directory))
                };
                Some(ShownDirs::find(shared, original, rath_dirs_in))
            }
            None => None,
        };
        let env = environment(std::env::vars_os(), &self.env);
        let variable = |name: &str| env.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone());
        let mut homes = home_directories();
        let named = variable("HOME").map(PathBuf::from).filter(|home| home.is_absolute()).map(|home| resolved(&home));
        // In a container it may be `/`: then its private files are hidden, and commands get none.
        let home = named.or_else(|| homes.first().cloned()).filter(|home| home != Path::new("/"));
        homes.extend(home.clone().filter(|home| !homes.contains(home)));
        let homes = homes_at(&mounts, homes);
        // The user's key and configuration, if they are not in the home directory, which is hidden.
        let own: Vec<PathBuf> = own_directories().flat_map(|path| [resolved(&path), path]).collect();
        let is_shown = |found: &&FoundPath| shared.as_ref().is_some_and(|it| it.relative(&found.path).is_some());
        let in_shared = found.shared.iter().filter(is_shown);
        let hidden = found.named.iter().chain(&found.kept_out).chain(in_shared).map(|found| found.path.clone());
        let hidden: Vec<PathBuf> = hidden.chain(own.iter().cloned()).collect();
        // A link to a directory in the workspace is followed once, here.
        let git = root.path().join(".git");
        let git = git.canonicalize().unwrap_or(git);
        let commit = match self.git {
            GitAccess::Commit if git.starts_with(root.path()) => CommitDir::prepare(&git)?,
            _ => None,
        };
        // What is shown at its path is the fork.
        let mut originals = original.map(|original| mounts.places_with_parts(&original)).unwrap_or_default();
        originals.retain(|place| !place.starts_with(&mount_path));
        let mut request = mounts::MountRequest {
            directory: root.path(),
            mount_path: &mount_path,
            home,
            homes: &homes,
            path: variable("PATH").unwrap_or_default(),
            host: self.host,
            network: self.network,
            git: self.git,
            git_directory: git.strip_prefix(root.path()).ok(),
            commit: commit.as_ref(),
            nested: &nested,
            hidden: &hidden,
            shown: &self.shown,
            writable: &self.writable,
            own: &own,
            mounts: &mounts,
            outside: &[],
            shared: shared.as_ref(),
            originals: &originals,
        };
        let writable = mounts::writable_paths(&request)?;
        refuse_in_writable(&self.kept_out(), &request, &writable)?;
        let roots: Vec<&Path> = [root.path()].into_iter().chain(writable.iter().map(|path| &**path)).collect();
        let private = private_in(&roots, &homes, &own)?;
        keep_private(&private, &mut state.lock().unwrap_or_else(PoisonError::into_inner).placeholders)?;
        let outside = writable.iter().map(|path| Ok((path.clone(), projects_in(path)?)));
        let outside = outside.collect::<Result<Vec<_>>>()?;
        // A repository may name hooks that are in another directory.
        let all: Vec<_> = [&*nested].into_iter().chain(outside.iter().map(|(_, projects)| &**projects)).collect();
        let with_named = |(path, projects): &(PathBuf, Arc<NestedProjects>)| {
            (path.clone(), (**projects).clone().named_by(path, &all))
        };
        let nested = Arc::new((*nested).clone().named_by(root.path(), &all));
        let outside: Vec<_> = outside.iter().map(with_named).collect();
        (request.nested, request.outside) = (&nested, &outside);
        let (namespace, landlock, temp) = match self.walls {
            Walls::Namespaces => {
                let landlock = LandlockRules::beneath_mounts(mounts::writable_dirs(&request)?, self.network);
                (Some(Arc::new(self.namespace(&request, &limits)?)), landlock, None)
            }
            Walls::Landlock => {
                self.refuse_without_namespaces()?;
                let temp = TempDir::create_blocking("tmp").map_err(|error| {
                    Error::new(ErrorKind::Io, "cannot create a temporary directory for commands").because(error)
                })?;
                let Grants { readable, writable } = Grants::new(&request, &temp.path().canonicalize()?)?;
                let paths = |paths: Vec<PathBuf>| paths.iter().map(|path| mounts::c_path(path)).collect::<Result<_>>();
                (None, LandlockRules::alone(paths(readable)?, paths(writable)?), Some(temp))
            }
        };
        let last_capability = std::fs::read_to_string("/proc/sys/kernel/cap_last_cap").unwrap_or_default();
        let confinement = Confinement {
            walls: self.walls,
            landlock,
            filters: seccomp::filters(self.network, self.walls, self.git)?,
            last_capability: last_capability.trim().parse().unwrap_or(40),
        };
        let hosts = if self.network == Network::Hosts { self.hosts.clone() } else { AllowedHosts::default() };
        let (confinement, hosts) = (Arc::new(confinement), Arc::new(hosts));
        Ok(OpenIsolated {
            root,
            nested,
            outside,
            private,
            mount_path,
            hidden: found,
            shared,
            namespace,
            confinement,
            temp,
            commit,
            hosts,
            limits,
            capabilities: OnceLock::new(),
        })
    }

    /// Fails if a commit is wanted where `.git` is that of another workspace.
    #[cfg(target_os = "linux")]
    fn refuse_commit(&self, shared: &crate::SharedDirs) -> Result<()> {
        if self.git == GitAccess::Commit && shared.find(Path::new(".git")).is_some() {
            let message = "a fork cannot commit: its `.git` is that of your directory, read-only";
            return Err(Error::new(ErrorKind::Unavailable, message).with_hint("commit once the fork is merged"));
        }
        Ok(())
    }

    /// Prepares the namespaces of commands.
    #[cfg(target_os = "linux")]
    fn namespace(&self, request: &mounts::MountRequest<'_>, limits: &ActiveLimits) -> Result<Namespace> {
        let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        Ok(Namespace {
            network: self.network,
            id_maps: [
                (c"/proc/self/setgroups", b"deny".to_vec()),
                (c"/proc/self/uid_map", format!("{user} {user} 1").into_bytes()),
                (c"/proc/self/gid_map", format!("{group} {group} 1").into_bytes()),
            ],
            pid_max: limits.pid_max.map(|max| max.to_string().into_bytes()),
            mount_ops: mounts::plan(request)?,
            workspace: mounts::c_path(request.mount_path)?,
        })
    }

    /// Fails if something was asked for that needs namespaces, or if Landlock cannot stand alone here.
    #[cfg(target_os = "linux")]
    fn refuse_without_namespaces(&self) -> Result<()> {
        let needs = |what: &str| {
            let message = format!("{what} needs namespaces, which `walls=landlock` does without");
            Err(Error::new(ErrorKind::Unavailable, message))
        };
        if !landlock::can_stand_alone() {
            let message = "this machine cannot isolate commands by Landlock alone";
            return Err(Error::new(ErrorKind::Unavailable, message)
                .with_hint("this needs Linux 6.12 or newer, with `landlock` in `/sys/kernel/security/lsm`"));
        }
        match (&self.mount_path, self.network, self.git) {
            (Some(MountPath::Given(_)), ..) => needs("another path for the workspace (`at`)"),
            (_, Network::Hosts, _) => needs("a network of some hosts only"),
            (.., GitAccess::Commit) => needs("committing without changing hooks and settings"),
            _ => Ok(()),
        }
    }
}

impl OpenIsolated {
    /// Returns true if the projects that are protected, and the paths that these settings hide, are as they were found.
    fn is_current(&self, options: &IsolatedOptions) -> bool {
        let mut outside = self.outside.iter();
        self.nested.is_current(self.root.path())
            && outside.all(|(above, nested)| nested.is_current(above))
            && self.hidden == options.find_hidden(self.root.path(), &self.mount_path)
            && self.shares_as_found()
    }
}

impl OpenIsolated {
    #[cfg(target_os = "linux")]
    fn shares_as_found(&self) -> bool {
        self.shared.as_ref().is_none_or(ShownDirs::is_current)
    }

    #[cfg(not(target_os = "linux"))]
    fn shares_as_found(&self) -> bool {
        true
    }

    /// Returns a path without links, and the directories of another workspace that it may be in.
    #[cfg(target_os = "linux")]
    fn in_shared(&self, path: &str) -> Option<(&ShownDirs, PathBuf)> {
        self.shared.as_ref().zip(self.root.resolve(path).ok())
    }

    /// Reads a part of a file.
    pub(super) fn read(&self, path: &str, range: ByteRange) -> Result<Vec<u8>> {
        #[cfg(target_os = "linux")]
        if let Some(read) = self.in_shared(path).and_then(|(shared, path)| shared.read(&path, range)) {
            return read;
        }
        self.root.read(path, range)
    }

    /// Writes a file.
    pub(super) fn write(
        &self,
        path: &str,
        bytes: &[u8],
        is_cancelled: &AtomicBool,
        staging: Option<&Path>,
    ) -> Result<()> {
        #[cfg(target_os = "linux")]
        if let Some(written) = self.in_shared(path).and_then(|(shared, path)| shared.write(&path, bytes, is_cancelled))
        {
            return written;
        }
        self.root.write_unless(path, bytes, is_cancelled, staging)
    }

    /// Removes a file. In a directory of another workspace only a command can: it leaves a mark there that the file is gone.
    pub(super) fn remove(&self, path: &str) -> Result<()> {
        #[cfg(target_os = "linux")]
        if let Some((shared, resolved)) = self.in_shared(path)
            && shared.stat(&resolved).is_some()
        {
            let message = format!("cannot remove `{path}`: in this directory only a command can");
            return Err(Error::new(ErrorKind::Io, message));
        }
        self.root.remove(path)
    }

    /// Returns the entries of a directory.
    pub(super) fn list(&self, path: &str) -> Result<Vec<DirEntry>> {
        #[cfg(target_os = "linux")]
        if let Some(listed) = self.in_shared(path).and_then(|(shared, path)| shared.list(&path)) {
            return listed;
        }
        self.root.list(path)
    }

    /// Returns the file or directory at a path.
    pub(super) fn stat(&self, path: &str) -> Result<Option<DirEntry>> {
        #[cfg(target_os = "linux")]
        if let Some(found) = self.in_shared(path).and_then(|(shared, path)| shared.stat(&path)) {
            return found;
        }
        self.root.stat(path)
    }
}

/// Fails if a file that is kept from commands lies in a directory outside of the workspace that they can write.
///
/// A file can be covered, and a name beside it that is not taken cannot: SQLite would read the `-journal` that a command creates
/// beside a database. A directory is covered with all names in it.
#[cfg(target_os = "linux")]
fn refuse_in_writable(kept_out: &[PathBuf], request: &mounts::MountRequest<'_>, writable: &[PathBuf]) -> Result<()> {
    let hidden = request.hidden.iter().map(|path| request.directory.join(path));
    let hidden = hidden.flat_map(|path| request.mounts.places_with_parts(&resolved(&path)));
    let hidden: Vec<_> = hidden.chain(hidden::private_places(request)).filter(|path| path.is_dir()).collect();
    let kept_out = kept_out.iter().filter(|path| !path.is_dir());
    let parents = |path: &PathBuf| request.mounts.places(&resolved(path.parent().unwrap_or(path)));
    for (path, parent) in kept_out.flat_map(|path| parents(path).into_iter().map(move |parent| (path, parent))) {
        let Some(above) = writable.iter().find(|above| parent.starts_with(above)) else { continue };
        let is_hidden = parent.iter().any(|name| name == crate::RATH_DIR)
            || hidden.iter().any(|hidden| parent.starts_with(hidden))
            || parent.starts_with(request.directory);
        if !is_hidden {
            let (path, above) = (path.display(), above.display());
            let message =
                format!("`{path}` is kept from commands, and lies in a directory that commands can write: `{above}`");
            let hint = "put the store elsewhere, such as in `.rath`, or let commands write another directory";
            return Err(Error::new(ErrorKind::Config, message).with_hint(hint));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn projects_are_looked_for_again_only_where_one_has_moved() {
        let folder = tempfile::tempdir().expect("a directory");
        let [one, two] = ["one", "two"].map(|name| folder.path().join(name));
        for directory in [&one, &two] {
            std::fs::create_dir_all(directory.join("a/.git")).expect("a directory");
        }
        let (mut state, mounts) = (OpeningState::default(), MountTable::default());
        let mut find = |directory: &Path| state.projects_in(directory, &mounts).expect("found");
        let before = [find(&one), find(&two)];
        std::fs::rename(two.join("a"), two.join("b")).expect("renamed");
        let after = [find(&one), find(&two)];
        assert!(Arc::ptr_eq(&before[0], &after[0]));
        assert_eq!(after[1].git.len(), 1);
        assert_ne!(before[1], after[1]);
    }
}
