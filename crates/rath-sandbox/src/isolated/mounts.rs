//! The mounts of isolated commands: which files of the machine they see.
//!
//! Everything is read-only except the workspace, `/tmp`, `/var/tmp`, `/dev/shm` and the home directory. All of these except the
//! workspace are empty at the start of each command, and removed at its end. Hidden are:
//!
//! - files of people: `/home`, `/root` and the home directory, except directories of toolchains in it and those on `PATH`;
//! - files of services: `/run` and everything in `/var`, such as mail, backups and logs, and with network all sockets that a service listens on
//!   (without network a command has no Unix sockets: see `seccomp.rs`);
//! - other disks: `/mnt` and `/media`;
//! - keys and passwords of the machine, such as `/etc/shadow`, if they could be read at all, and for root all files in `/etc` that
//!   ordinary users cannot read;
//! - devices except `null`, `zero`, `full`, `random`, `urandom`, `tty` and new terminals;
//! - the directories `.rath` in the workspace, at any depth, and the paths that the user hides.
//!
//! Every `.git` in the workspace is read-only by default: its hooks and its configuration run commands later, outside.

use std::collections::BTreeSet;
use std::ffi::{CString, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use rustix::mount::MountFlags;

use super::GitAccess;
use super::commit_dir::CommitDir;
use super::hidden::{HiddenPath, hidden_paths, kept_in_place, listening_sockets, private_places};
use super::namespace::{IfMissing, MAX_DETACHED_MOUNTS, MountOp, NO_DEVICES, NO_SETUID, OverlayLayers, Submounts};
use super::nested::NestedProjects;
use super::shown_dirs::ShownDirs;
use crate::capabilities::{HostAccess, Network};
use crate::error::{Error, ErrorKind, Result};
use crate::mount_table::MountTable;
use crate::private_paths::resolved;
use crate::process::SpawnStep;
use crate::root::{is_git_dir, is_rath_dir};

/// The input of [`plan`].
pub(super) struct MountRequest<'a> {
    /// The workspace on this machine.
    pub(super) directory: &'a Path,
    /// The path at which commands see the workspace.
    pub(super) mount_path: &'a Path,
    /// The home directory of commands.
    pub(super) home: Option<PathBuf>,
    /// All home directories of the user, and that of commands.
    pub(super) homes: &'a [PathBuf],
    pub(super) path: OsString,
    pub(super) host: HostAccess,
    pub(super) network: Network,
    pub(super) git: GitAccess,
    /// The `.git` of the workspace, relative to it and without links; none if it is elsewhere.
    pub(super) git_directory: Option<&'a Path>,
    /// The directory that stands for the `.git` of the workspace, if the command commits.
    pub(super) commit: Option<&'a CommitDir>,
    pub(super) nested: &'a NestedProjects,
    pub(super) hidden: &'a [PathBuf],
    pub(super) shown: &'a [PathBuf],
    /// Paths outside of the workspace that commands can write.
    pub(super) writable: &'a [PathBuf],
    /// Directories with the key and the configuration of the user.
    pub(super) own: &'a [PathBuf],
    pub(super) mounts: &'a MountTable,
    /// The directories of `writable`, without links, and the projects in them.
    pub(super) outside: &'a [(PathBuf, NestedProjects)],
    /// The directories of another workspace that are shown.
    pub(super) shared: Option<&'a ShownDirs>,
    /// The places of the workspace that this one is a fork of: commands see nothing there.
    pub(super) originals: &'a [PathBuf],
}

impl MountRequest<'_> {
    /// Returns true if a path is in the workspace that this one is a fork of.
    fn is_in_original(&self, path: &Path) -> bool {
        self.originals.iter().any(|original| path.starts_with(original))
    }
}

/// Directories with files of people and services. They are hidden.
const HIDDEN_DIRS: [&str; 15] = [
    "/run",
    "/home",
    "/root",
    "/tmp",
    "/var/tmp",
    "/var/lib",
    "/var/spool",
    "/var/log",
    "/var/mail",
    "/var/backups",
    "/var/cache",
    "/var/snap",
    "/mnt",
    "/media",
    "/lost+found",
];

/// The directory with the data of services: mail, backups, logs, caches with passwords. Every directory in it is hidden, also one
/// that is not named above.
const SERVICE_DIR: &str = "/var";

/// Directories of programs, which stay visible if they are links into [`SERVICE_DIR`].
const LINKED_PROGRAM_DIRS: [&str; 2] = ["/opt", "/usr/local"];

/// The directories in `/` that stay visible when the machine is hidden.
const PROGRAM_DIRS: [&str; 12] =
    ["bin", "sbin", "lib", "lib32", "lib64", "libx32", "usr", "etc", "nix", "proc", "sys", "dev"];

/// Directories in hidden ones that are shown: libraries, public certificates and lists of fonts.
const VISIBLE_DIRS: [&str; 3] = ["/var/lib/ca-certificates", "/var/lib/gems", "/var/cache/fontconfig"];

/// Directories in a home directory that hold toolchains and no credentials.
const TOOLCHAIN_DIRS: [&str; 19] = [
    ".cargo/bin",
    ".cargo/registry",
    ".cargo/git",
    ".rustup",
    ".pyenv",
    ".rbenv",
    ".nvm",
    ".nodenv",
    ".volta",
    ".asdf",
    ".sdkman/candidates",
    ".local/bin",
    ".local/lib",
    ".local/share/uv",
    ".deno/bin",
    ".bun/bin",
    "go/bin",
    "go/pkg",
    ".elan",
];

/// The devices in `/dev` that commands get.
pub(super) const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// Candidates for the directory that is left empty and bound over hidden directories. The first that exists and holds no
/// path that is needed is taken.
const EMPTY_DIR_CANDIDATES: [&str; 4] = ["/run", "/mnt", "/media", "/var/log"];

/// The slots that stay free for what a sandbox shows of the machine.
const RESERVED_SLOTS: usize = 96;

/// Options of a tmpfs that only the user can write.
const TMPFS_OPTIONS: &str = "mode=0755,size=1g,nr_inodes=262144";
/// Options of a tmpfs that all users can write, such as `/tmp`.
const SHARED_TMPFS_OPTIONS: &str = "mode=1777,size=1g,nr_inodes=262144";

/// Plans the mount operations that show commands what they may see.
pub(super) fn plan(request: &MountRequest<'_>) -> Result<Vec<(SpawnStep, MountOp)>> {
    let mut plan = MountPlan { ops: Vec::new(), used_slots: 0, writable_dirs: Vec::new(), pinned: BTreeSet::new() };
    let covers = hidden_dirs(request);
    let workspace = plan.detach(SpawnStep::Workspace, request.directory, NO_SETUID | NO_DEVICES, Submounts::Include)?;
    let writable = request.outside.iter().map(|(path, _)| {
        Ok((plan.detach(SpawnStep::Workspace, path, NO_SETUID | NO_DEVICES, Submounts::Include)?, path.clone()))
    });
    let writable = writable.collect::<Result<Vec<_>>>()?;
    let shared = plan.share(request)?;
    // The parts of the repository that a commit writes, and the directory that they are mounted in.
    let mut commit = Vec::new();
    if let (Some(directory), Some(git)) = (request.commit, request.git_directory) {
        let at = request.mount_path.join(git);
        let attributes = NO_SETUID | NO_DEVICES;
        let slot = plan.detach(SpawnStep::Workspace, directory.path(), attributes, Submounts::Exclude)?;
        commit.push((slot, at.clone()));
        for name in directory.written_dirs() {
            let from = directory.repository().join(name);
            commit.push((plan.detach(SpawnStep::Workspace, &from, attributes, Submounts::Include)?, at.join(name)));
        }
    }
    let devices = DEVICES.map(|name| Path::new("/dev").join(name)).map(|device| {
        let exists = device.exists();
        exists
            .then(|| plan.detach(SpawnStep::Device, &device, 0, Submounts::Exclude).map(|slot| (slot, device)))
            .transpose()
    });
    plan.push(SpawnStep::ReadOnly, MountOp::ReadOnly);
    if let (Some(directory), Some(git)) = (request.commit, request.git_directory) {
        for name in directory.read_dirs() {
            let slot = plan.detach(SpawnStep::Cover, &directory.repository().join(name), 0, Submounts::Include)?;
            commit.push((slot, request.mount_path.join(git).join(name)));
        }
    }
    let shown = visible_dirs(request, &covers);
    let shown = shown.into_iter().map(|path| Ok((plan.detach(SpawnStep::Cover, &path, 0, Submounts::Include)?, path)));
    let shown = shown.collect::<Result<Vec<_>>>()?;
    let attached = shown.iter().chain(&writable).map(|(_, path)| &**path);
    let needed: Vec<_> = attached.chain([request.mount_path]).chain(request.home.as_deref()).collect();
    let is_unused = |directory: &&&Path| directory.is_dir() && !needed.iter().any(|path| path.starts_with(directory));
    let candidates = EMPTY_DIR_CANDIDATES.map(Path::new);
    let Some(empty_dir) = candidates.iter().find(is_unused).copied() else {
        return Err(Error::new(
            ErrorKind::Unavailable,
            "this machine has no directory that can be left empty, such as `/run`",
        ));
    };
    plan.tmpfs(empty_dir, "mode=0755,size=4k,nr_inodes=2", MountFlags::RDONLY)?;
    for cover in covers.iter().filter(|cover| *cover != empty_dir) {
        let is_shared = [Path::new("/tmp"), Path::new("/var/tmp")].contains(&&**cover);
        if is_shared || needed.iter().any(|path| path.starts_with(cover)) {
            plan.tmpfs(cover, if is_shared { SHARED_TMPFS_OPTIONS } else { TMPFS_OPTIONS }, MountFlags::empty())?;
            plan.writable_dirs.push(cover.clone());
        } else {
            plan.cover(empty_dir, cover)?;
        }
    }
    plan.devices(devices)?;
    plan.push(SpawnStep::Proc, MountOp::Proc);
    if let Some(home) = &request.home {
        plan.create_dirs(home)?;
    }
    let shown_paths: Vec<PathBuf> = shown.iter().map(|(_, path)| path.clone()).collect();
    for (slot, path) in shown {
        plan.attach(SpawnStep::Cover, slot, &path)?;
    }
    for (slot, path) in &writable {
        plan.attach_file(SpawnStep::Workspace, *slot, path)?;
    }
    // The workspace stays where it is, also if commands can write the directories above it.
    for path in [request.directory, request.mount_path] {
        let above = writable.iter().find_map(|(_, above)| Some((above, path.strip_prefix(above).ok()?)));
        above.map_or(Ok(()), |(above, inside)| plan.pin_parents(above, inside))?;
    }
    // What is covered in the workspace would be seen at its own path.
    if !request.directory.starts_with(request.mount_path) {
        plan.cover(empty_dir, request.directory)?;
    }
    plan.attach(SpawnStep::Workspace, workspace, request.mount_path)?;
    for (slot, at) in shared {
        plan.push(SpawnStep::Workspace, MountOp::AttachShared { slot, at: c_path(&at)? });
    }
    let sockets = if request.network == Network::On { listening_sockets() } else { Vec::new() };
    let sockets = sockets.into_iter().filter(|path| !path.starts_with(request.mount_path)).collect();
    let mut hidden_dirs: Vec<PathBuf> = Vec::new();
    // The last, since the directory of a fork may be in it.
    let originals = request.originals.iter().cloned().map(|path| HiddenPath { path, if_missing: IfMissing::Skip });
    for HiddenPath { path, if_missing } in hidden_paths(request, sockets)?.into_iter().chain(originals) {
        // What is in a hidden directory is hidden with it.
        if hidden_dirs.iter().any(|hidden| path.starts_with(hidden)) {
            continue;
        }
        let is_dir = path.is_dir();
        let cover = if is_dir { empty_dir } else { Path::new("/dev/null") };
        let workspace = (request.directory, request.mount_path);
        let roots = [workspace].into_iter().chain(writable.iter().map(|(_, above)| (&**above, &**above)));
        let mut roots = roots.filter_map(|(root, at)| Some((at, path.strip_prefix(root).ok()?)));
        let shown = request.shared.and_then(|shared| shared.relative(&path));
        match roots.next().or(shown.as_deref().map(|inside| (request.mount_path, inside))) {
            Some((at, inside)) => {
                plan.pin_parents(at, inside)?;
                plan.cover_or(if_missing, cover, &at.join(inside))?;
            }
            // A directory in the home directory may be shown, because it is on `PATH`.
            None if shown_paths.iter().any(|shown| path.starts_with(shown)) => plan.cover(cover, &path)?,
            None if covers.iter().any(|cover| path.starts_with(cover)) || path.starts_with("/dev") => {}
            None => plan.cover(cover, &path)?,
        }
        hidden_dirs.extend(is_dir.then_some(path));
    }
    for path in kept_in_place(request).into_iter().filter(|path| !request.is_in_original(path)) {
        let workspace = (request.directory, request.mount_path);
        let roots = [workspace].into_iter().chain(writable.iter().map(|(_, above)| (&**above, &**above)));
        for (at, inside) in roots.filter_map(|(root, at)| Some((at, path.strip_prefix(root).ok()?))).take(1) {
            plan.pin(at, inside)?;
        }
    }
    if let (None, Some(git)) = (request.commit, request.git_directory) {
        plan.protect_git(request, git, IfMissing::Skip)?;
    }
    let is_replaced = |path: &Path| request.commit.is_some() && request.git_directory == Some(path);
    if request.git != GitAccess::Writable {
        plan.protect_projects(request.mount_path, request.nested, is_replaced)?;
    }
    for (slot, at) in commit {
        plan.push(SpawnStep::Workspace, MountOp::Attach { slot, at: c_path(&at)? });
    }
    let rath = request.nested.rath.iter().map(|rath| &*rath.path);
    let mut own: Vec<_> = rath.map(|path| (request.directory, request.mount_path, path)).collect();
    let shown = request.shared.into_iter().flat_map(|shared| shared.rath_dirs().map(|path| (shared.original(), path)));
    own.extend(shown.map(|(original, path)| (original, request.mount_path, path)));
    for (above, nested) in request.outside {
        // Those of a workspace that is in there are treated above.
        let is_workspace = |path: &Path| {
            let path = above.join(path);
            path.starts_with(request.directory) || path.starts_with(request.mount_path) || request.is_in_original(&path)
        };
        let (at, if_missing) = (c_path(&above.join(".git"))?, IfMissing::Skip);
        plan.push(SpawnStep::Cover, MountOp::Protect { at, if_missing });
        plan.cover(empty_dir, &above.join(crate::RATH_DIR))?;
        plan.protect_projects(above, nested, is_workspace)?;
        let rath = nested.rath.iter().map(|rath| &*rath.path).filter(|path| !is_workspace(path));
        own.extend(rath.map(|path| (&**above, &**above, path)));
    }
    for (root, at, path) in own {
        plan.pin_parents(at, path)?;
        let cover = if root.join(path).is_dir() { empty_dir } else { Path::new("/dev/null") };
        plan.cover_or(IfMissing::Fail, cover, &at.join(path))?;
    }
    // Covered even if it is missing now: it may be created before a later command.
    plan.cover(empty_dir, &request.mount_path.join(crate::RATH_DIR))?;
    Ok(plan.ops)
}

/// Returns the files and directories that commands can write, as they see them.
pub(super) fn writable_dirs(request: &MountRequest<'_>) -> Result<Vec<CString>> {
    let own = ["/tmp", "/var/tmp", "/dev"].map(PathBuf::from).map(|path| path.canonicalize().unwrap_or(path));
    let paths = own.into_iter().chain([request.mount_path.to_owned()]).chain(request.home.clone());
    paths.chain(request.outside.iter().map(|(path, _)| path.clone())).map(|path| c_path(&path)).collect()
}

/// Returns the paths outside of the workspace that commands can write, without links.
pub(super) fn writable_paths(request: &MountRequest<'_>) -> Result<Vec<PathBuf>> {
    let wrong = |path: &Path, why: &str| {
        let message =
            format!("wanted an absolute path of a file or directory to write, found `{}`{why}", path.display());
        Error::new(ErrorKind::Config, message)
    };
    let private = private_places(request);
    let mut paths: Vec<PathBuf> = Vec::new();
    for path in request.writable {
        let path = match path.canonicalize() {
            Ok(canonical) if path.is_absolute() => canonical,
            Ok(_) => return Err(wrong(path, "")),
            Err(_) => return Err(wrong(path, ", which is not there; name the directory in which it is to be")),
        };
        // What the namespace itself is made of.
        let is_system = ["/", "/proc", "/dev", "/sys"].iter().any(|system| path == Path::new(system))
            || ["/proc", "/dev", "/sys"].iter().any(|system| path.starts_with(system));
        if is_system {
            return Err(wrong(&path, ", which belongs to the system"));
        }
        let is_own = path.iter().any(|name| is_git_dir(name) || is_rath_dir(name));
        if is_own || private.iter().any(|private| path.starts_with(private)) {
            return Err(wrong(&path, ", which is private"));
        }
        // Of paths in each other, the outermost: the mount of the other would be covered.
        let is_in = |above: &PathBuf| path.starts_with(above);
        if !path.starts_with(request.directory) && !request.is_in_original(&path) && !paths.iter().any(is_in) {
            paths.retain(|inner| !inner.starts_with(&path));
            paths.push(path);
        }
    }
    Ok(paths)
}

/// Returns the directories that are hidden, without those inside others.
pub(super) fn hidden_dirs(request: &MountRequest<'_>) -> Vec<PathBuf> {
    let named = HIDDEN_DIRS.iter().map(PathBuf::from).chain(request.homes.iter().cloned());
    let mut covers: Vec<_> = named.flat_map(|path| request.mounts.places(&resolved(&path))).collect();
    let programs: Vec<_> = LINKED_PROGRAM_DIRS.iter().filter_map(|path| Path::new(path).canonicalize().ok()).collect();
    covers.extend(directories_in(SERVICE_DIR).filter(|path| !programs.contains(path)));
    if request.host == HostAccess::Hidden {
        let is_program = |path: &PathBuf| PROGRAM_DIRS.iter().any(|name| path.ends_with(name));
        covers.extend(directories_in("/").filter(|path| !is_program(path)));
    }
    let mut outermost: Vec<PathBuf> = Vec::new();
    covers.sort();
    for cover in covers {
        let Ok(cover) = cover.canonicalize() else { continue };
        // A directory in a hidden one is hidden with it.
        if cover.is_dir() && cover != Path::new("/") && !outermost.iter().any(|above| cover.starts_with(above)) {
            outermost.push(cover);
        }
    }
    outermost
}

/// Returns the directories in a directory, without links.
fn directories_in(path: &str) -> impl Iterator<Item = PathBuf> {
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path())
}

/// Returns the directories that are shown although they are in hidden ones.
pub(super) fn visible_dirs(request: &MountRequest<'_>, covers: &[PathBuf]) -> Vec<PathBuf> {
    let tools = request.home.iter().flat_map(|home| TOOLCHAIN_DIRS.map(|name| home.join(name)));
    let path = std::env::split_paths(&request.path).filter(|path| path.is_absolute());
    let all = VISIBLE_DIRS.iter().map(PathBuf::from).chain(tools).chain(path).chain(request.shown.iter().cloned());
    let mut visible: Vec<PathBuf> = Vec::new();
    for path in all {
        let Ok(path) = path.canonicalize() else { continue };
        let is_hidden = covers.iter().any(|cover| path.starts_with(cover) && path != *cover);
        // A home directory on `PATH` would be shown with all its files.
        let is_home = request.homes.iter().any(|home| home.starts_with(&path));
        let is_visible = path.starts_with(request.mount_path) || visible.iter().any(|above| path.starts_with(above));
        if is_hidden && !is_home && !is_visible && !request.is_in_original(&path) && path.is_dir() {
            visible.push(path);
        }
    }
    visible
}

/// The mount operations so far.
struct MountPlan {
    ops: Vec<(SpawnStep, MountOp)>,
    used_slots: usize,
    /// The new file systems, in which directories can be created.
    writable_dirs: Vec<PathBuf>,
    /// The directories that cannot be renamed.
    pinned: BTreeSet<PathBuf>,
}

impl MountPlan {
    fn push(&mut self, step: SpawnStep, op: MountOp) {
        self.ops.push((step, op));
    }

    /// Adds a detached clone of the mount at a path, and returns its slot.
    fn detach(&mut self, step: SpawnStep, from: &Path, attributes: u64, submounts: Submounts) -> Result<usize> {
        let slot = self.used_slots;
        if slot == MAX_DETACHED_MOUNTS {
            let message = format!("cannot show more than {MAX_DETACHED_MOUNTS} directories");
            return Err(Error::new(ErrorKind::Unavailable, message));
        }
        self.used_slots += 1;
        self.push(step, MountOp::Detach { slot, from: c_path(from)?, attributes, submounts });
        Ok(slot)
    }

    /// Adds the directories of another workspace, detached, and returns their slots with the paths at which they are seen.
    fn share(&mut self, request: &MountRequest<'_>) -> Result<Vec<(usize, PathBuf)>> {
        let Some(shown) = request.shared else { return Ok(Vec::new()) };
        let free = MAX_DETACHED_MOUNTS - RESERVED_SLOTS - self.used_slots;
        let mut slots = Vec::new();
        for shared in shown.directories().take(free) {
            let slot = self.used_slots;
            self.used_slots += 1;
            let layers = match (shared.upper(), shared.work()) {
                (Some(upper), Some(work)) => Some(OverlayLayers {
                    upper: c_path(&upper)?,
                    work: c_path(&work)?,
                    path: shared.path.clone(),
                    has_failed: AtomicBool::new(false),
                }),
                _ => None,
            };
            let from = c_path(&shown.original().join(&shared.path))?;
            self.push(SpawnStep::Workspace, MountOp::Share { slot, from, layers });
            slots.push((slot, request.mount_path.join(&shared.path)));
        }
        Ok(slots)
    }

    /// Mounts an empty file system in memory.
    fn tmpfs(&mut self, at: &Path, options: &str, flags: MountFlags) -> Result<()> {
        let options = c_path(Path::new(options))?;
        self.push(SpawnStep::Cover, MountOp::Tmpfs { at: c_path(at)?, options, flags });
        Ok(())
    }

    /// Hides a path, if it exists, under a bind mount of another.
    fn cover(&mut self, with: &Path, at: &Path) -> Result<()> {
        self.cover_or(IfMissing::Skip, with, at)
    }

    /// Hides a path under a bind mount of another.
    fn cover_or(&mut self, if_missing: IfMissing, with: &Path, at: &Path) -> Result<()> {
        let (from, at) = (c_path(with)?, c_path(at)?);
        self.push(SpawnStep::Cover, MountOp::Cover { from, at, if_missing });
        Ok(())
    }

    /// Keeps the directories above a path from being renamed, up to a directory that commands can write: a later command would see the
    /// path under another name, or another in its place.
    fn pin_parents(&mut self, above: &Path, path: &Path) -> Result<()> {
        path.parent().map_or(Ok(()), |parent| self.pin(above, parent))
    }

    /// Keeps a path and the directories above it from being renamed or removed.
    fn pin(&mut self, above: &Path, path: &Path) -> Result<()> {
        let mut parents: Vec<_> = path.ancestors().filter(|parent| !parent.as_os_str().is_empty()).collect();
        parents.reverse();
        for parent in parents {
            let parent = above.join(parent);
            if !self.pinned.contains(&parent) {
                self.push(SpawnStep::Cover, MountOp::Pin(c_path(&parent)?));
                self.pinned.insert(parent);
            }
        }
        Ok(())
    }

    /// Makes a `.git` of the workspace read-only, unless the request says otherwise.
    fn protect_git(&mut self, request: &MountRequest<'_>, git: &Path, if_missing: IfMissing) -> Result<()> {
        if request.git != GitAccess::Writable {
            let at = c_path(&request.mount_path.join(git))?;
            self.push(SpawnStep::Cover, MountOp::Protect { at, if_missing });
        }
        Ok(())
    }

    /// Makes the repositories below a directory read-only, with the hooks and settings that they name. The directories above them cannot be
    /// renamed: others would take their place.
    fn protect_projects(
        &mut self,
        above: &Path,
        projects: &NestedProjects,
        is_left_out: impl Fn(&Path) -> bool,
    ) -> Result<()> {
        let protected = projects.git.iter().chain(&projects.settings).map(|nested| &*nested.path);
        let protected: Vec<_> = protected.filter(|path| !is_left_out(path)).collect();
        for path in &protected {
            self.pin_parents(above, path)?;
        }
        for path in protected {
            let (at, if_missing) = (c_path(&above.join(path))?, IfMissing::Fail);
            self.push(SpawnStep::Cover, MountOp::Protect { at, if_missing });
        }
        Ok(())
    }

    /// Creates the directories above a path and the path itself, if they are in one of the new file systems.
    fn create_dirs(&mut self, path: &Path) -> Result<()> {
        let Some(base) = self.writable_dirs.iter().find(|base| path.starts_with(base)) else { return Ok(()) };
        let base = base.clone();
        let mut above: Vec<_> = path.ancestors().take_while(|above| *above != base).collect();
        above.reverse();
        for directory in above {
            self.push(SpawnStep::Cover, MountOp::Directory(c_path(directory)?));
        }
        Ok(())
    }

    /// Attaches a detached mount, and creates the directory for it.
    fn attach(&mut self, step: SpawnStep, slot: usize, at: &Path) -> Result<()> {
        self.create_dirs(at)?;
        self.push(step, MountOp::Attach { slot, at: c_path(at)? });
        Ok(())
    }

    /// Attaches a detached mount of a file or a directory, and creates what it is mounted on.
    fn attach_file(&mut self, step: SpawnStep, slot: usize, at: &Path) -> Result<()> {
        if at.is_dir() {
            return self.attach(step, slot, at);
        }
        if let Some(parent) = at.parent() {
            self.create_dirs(parent)?;
        }
        if self.writable_dirs.iter().any(|base| at.starts_with(base)) {
            self.push(SpawnStep::Cover, MountOp::File(c_path(at)?));
        }
        self.push(step, MountOp::Attach { slot, at: c_path(at)? });
        Ok(())
    }

    /// Mounts a new `/dev` with these devices.
    fn devices<const N: usize>(&mut self, devices: [Result<Option<(usize, PathBuf)>>; N]) -> Result<()> {
        self.ops.push((
            SpawnStep::Device,
            MountOp::Tmpfs {
                at: c"/dev".into(),
                options: c_path(Path::new(TMPFS_OPTIONS))?,
                flags: MountFlags::empty(),
            },
        ));
        for device in devices {
            if let Some((slot, device)) = device? {
                self.push(SpawnStep::Device, MountOp::File(c_path(&device)?));
                self.push(SpawnStep::Device, MountOp::Attach { slot, at: c_path(&device)? });
            }
        }
        for (at, target) in [
            (c"/dev/fd", c"/proc/self/fd"),
            (c"/dev/stdin", c"/proc/self/fd/0"),
            (c"/dev/stdout", c"/proc/self/fd/1"),
            (c"/dev/stderr", c"/proc/self/fd/2"),
            (c"/dev/ptmx", c"pts/ptmx"),
        ] {
            self.push(SpawnStep::Device, MountOp::Symlink { target: target.into(), at: at.into() });
        }
        self.push(SpawnStep::Device, MountOp::Directory(c"/dev/shm".into()));
        self.push(SpawnStep::Device, MountOp::Directory(c"/dev/pts".into()));
        self.push(SpawnStep::Device, MountOp::Devpts);
        self.writable_dirs.push("/dev".into());
        Ok(())
    }
}

/// Converts a path for a system call.
pub(super) fn c_path(path: &Path) -> Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| {
        let shown = path.display().to_string().replace('\0', "\u{fffd}");
        Error::new(ErrorKind::Config, format_args!("wanted a path, found a NUL byte in `{shown}`"))
    })
}
