//! Setting up the namespaces of a command, from inside.
//!
//! This code runs in the supervisor and in the process that becomes the command, under the rules of `process::supervisor`:
//! system calls only, no allocation. The mounts are planned beforehand, in `mounts.rs`.

use std::ffi::{CStr, CString, c_int};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, chmodat, mkdirat, open, openat2, symlinkat, unlinkat};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags,
    fsconfig_create, fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, mount, mount_bind, mount_change,
    move_mount, open_tree,
};

use crate::capabilities::Network;
use crate::process::{SpawnFailure, SpawnStep, last_errno};

/// The namespaces of the commands of a sandbox. Each command gets new namespaces like this.
pub(crate) struct Namespace {
    pub(super) network: Network,
    /// The files that map the user and the group into the user namespace, and their contents.
    pub(super) id_maps: [(&'static CStr, Vec<u8>); 3],
    /// The text for `/proc/sys/kernel/pid_max`.
    pub(super) pid_max: Option<Vec<u8>>,
    pub(super) mount_ops: Vec<(SpawnStep, MountOp)>,
    /// The path of the workspace as the command sees it.
    pub(super) workspace: CString,
}

/// A change of the mount namespace.
pub(super) enum MountOp {
    /// Clones the mount at a path, detached, to be attached later by its slot.
    Detach {
        slot: usize,
        from: CString,
        attributes: u64,
        submounts: Submounts,
    },
    /// Shows a directory, detached, to be attached later by its slot: with changes that go to the layers, if it has some and the
    /// system can mount an overlay, otherwise read-only. Nothing if the directory is not there.
    Share {
        slot: usize,
        from: CString,
        layers: Option<OverlayLayers>,
    },
    /// Attaches what is shown in a slot, if there is something, and the path is there without links.
    AttachShared {
        slot: usize,
        at: CString,
    },
    /// Makes all mounts read-only.
    ReadOnly,
    /// Mounts an empty file system in memory.
    Tmpfs {
        at: CString,
        options: CString,
        flags: MountFlags,
    },
    /// Binds one path over another.
    Cover {
        from: CString,
        at: CString,
        if_missing: IfMissing,
    },
    /// Makes one path read-only.
    Protect {
        at: CString,
        if_missing: IfMissing,
    },
    /// Makes one directory a mount of its own, which cannot be renamed.
    Pin(CString),
    /// Creates a directory, if it is missing.
    Directory(CString),
    /// Creates an empty file.
    File(CString),
    Symlink {
        target: CString,
        at: CString,
    },
    /// Attaches a detached mount.
    Attach {
        slot: usize,
        at: CString,
    },
    /// Mounts `/proc` of the PID namespace.
    Proc,
    /// Mounts `/dev/pts` with terminals of its own.
    Devpts,
}

/// The directories in which an overlay stores changes.
pub(super) struct OverlayLayers {
    pub(super) upper: CString,
    pub(super) work: CString,
    /// The directory that the overlay is over, relative to the workspace.
    pub(super) path: PathBuf,
    /// True if the last command could not mount it.
    pub(super) has_failed: AtomicBool,
}

/// The treatment of a path that is to be covered or protected, and that is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IfMissing {
    Skip,
    /// It was there a moment ago: another command moved it, and would have it unprotected.
    Fail,
}

/// The treatment of mounts below a mount that is cloned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Submounts {
    Include,
    Exclude,
}

/// The number of slots for detached mounts.
pub(super) const MAX_DETACHED_MOUNTS: usize = 256;

// Attributes of mounts, as `mount_setattr` takes them.
pub(super) const READ_ONLY: u64 = 1;
pub(super) const NO_SETUID: u64 = 2;
pub(super) const NO_DEVICES: u64 = 4;

const NAMESPACES: c_int = libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWCGROUP;

impl Namespace {
    /// Returns the flags of `clone` for the namespaces.
    pub(crate) fn clone_flags(&self) -> c_int {
        match self.network {
            Network::Off | Network::Hosts => NAMESPACES | libc::CLONE_NEWNET,
            Network::On => NAMESPACES,
        }
    }

    /// Sets up the namespaces, as their first process.
    pub(crate) fn enter(&self) -> Result<(), SpawnFailure> {
        for (file, text) in &self.id_maps {
            write(file, text).map_err(|errno| (SpawnStep::Users, errno))?;
        }
        let _ = rustix::system::sethostname(b"rath");
        if let Some(max) = &self.pid_max {
            write(c"/proc/sys/kernel/pid_max", max).map_err(|errno| (SpawnStep::ProcessLimit, errno))?;
        }
        let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
        mount_change(c"/", private).map_err(|errno| (SpawnStep::Mounts, errno))?;
        let mut slots = [-1; MAX_DETACHED_MOUNTS];
        for (step, op) in &self.mount_ops {
            op.perform(&mut slots).map_err(|errno| (*step, errno))?;
        }
        match self.network {
            Network::Off | Network::Hosts => enable_loopback().map_err(|errno| (SpawnStep::Network, errno)),
            Network::On => Ok(()),
        }
    }

    /// Returns the directories that the last command could only read, since their overlays could not be mounted.
    pub(super) fn failed_overlays(&self) -> impl Iterator<Item = &Path> {
        self.mount_ops.iter().filter_map(|(_, op)| match op {
            MountOp::Share { layers: Some(layers), .. } => layers.has_failed.load(SeqCst).then_some(&*layers.path),
            _ => None,
        })
    }

    /// Changes to a directory below the workspace. Fails if the path leads out.
    pub(crate) fn change_directory(&self, path: &CStr) -> Result<(), Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let workspace = open(&*self.workspace, flags, Mode::empty())?;
        if path.is_empty() {
            return rustix::process::fchdir(workspace);
        }
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        rustix::process::fchdir(openat2(workspace, path, flags, Mode::empty(), resolve)?)
    }
}

impl MountOp {
    fn perform(&self, slots: &mut [RawFd; MAX_DETACHED_MOUNTS]) -> Result<(), Errno> {
        match self {
            MountOp::Detach { slot, from, attributes, submounts } => {
                let mut flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
                let mut recursive = 0;
                if *submounts == Submounts::Include {
                    flags |= OpenTreeFlags::AT_RECURSIVE;
                    recursive = libc::AT_RECURSIVE;
                }
                // The path was decided on without links. One that has become a link leads elsewhere. Devices may be links.
                let fd = if *submounts == Submounts::Include {
                    let path_flags = OFlags::PATH | OFlags::CLOEXEC;
                    let found = openat2(CWD, &**from, path_flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)?;
                    open_tree(found, c"", flags | OpenTreeFlags::AT_EMPTY_PATH)?
                } else {
                    open_tree(CWD, &**from, flags)?
                };
                if *attributes != 0 {
                    set_attributes(fd.as_raw_fd(), c"", libc::AT_EMPTY_PATH | recursive, *attributes)?;
                }
                if let Some(slot) = slots.get_mut(*slot) {
                    *slot = std::os::fd::IntoRawFd::into_raw_fd(fd);
                }
                Ok(())
            }
            MountOp::Share { slot, from, layers } => {
                // A path that has become a link leads elsewhere.
                let Ok(from) = open_without_links(from) else { return Ok(()) };
                let overlay = layers.as_ref().and_then(|layers| {
                    let mounted = layers.mount(&from);
                    layers.has_failed.store(mounted.is_err(), SeqCst);
                    mounted.ok()
                });
                let fd = overlay.map_or_else(|| clone_read_only(&from), Ok)?;
                if let Some(slot) = slots.get_mut(*slot) {
                    *slot = std::os::fd::IntoRawFd::into_raw_fd(fd);
                }
                Ok(())
            }
            MountOp::AttachShared { slot, at } => {
                let fd = slots.get(*slot).copied().filter(|fd| *fd >= 0);
                let (Some(fd), Ok(at)) = (fd, open_without_links(at)) else { return Ok(()) };
                let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
                move_mount(borrow(fd), c"", at, c"", flags)
            }
            MountOp::Protect { at, if_missing } => {
                let flags = OpenTreeFlags::OPEN_TREE_CLONE
                    | OpenTreeFlags::OPEN_TREE_CLOEXEC
                    | OpenTreeFlags::AT_RECURSIVE
                    | OpenTreeFlags::AT_SYMLINK_NOFOLLOW;
                let fd = match open_tree(CWD, &**at, flags) {
                    Err(Errno::NOENT | Errno::NOTDIR) if *if_missing == IfMissing::Skip => return Ok(()),
                    fd => fd?,
                };
                let attributes = READ_ONLY | NO_SETUID | NO_DEVICES;
                set_attributes(fd.as_raw_fd(), c"", libc::AT_EMPTY_PATH | libc::AT_RECURSIVE, attributes)?;
                move_mount(&fd, c"", CWD, &**at, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
            }
            MountOp::Pin(at) => {
                let flags = OpenTreeFlags::OPEN_TREE_CLONE
                    | OpenTreeFlags::OPEN_TREE_CLOEXEC
                    | OpenTreeFlags::AT_RECURSIVE
                    | OpenTreeFlags::AT_SYMLINK_NOFOLLOW;
                let fd = open_tree(CWD, &**at, flags)?;
                move_mount(&fd, c"", CWD, &**at, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
            }
            MountOp::ReadOnly => {
                let attributes = READ_ONLY | NO_SETUID | NO_DEVICES;
                set_attributes(libc::AT_FDCWD, c"/", libc::AT_RECURSIVE, attributes)
            }
            MountOp::Tmpfs { at, options, flags } => {
                mount(c"tmpfs", &**at, c"tmpfs", *flags | MountFlags::NOSUID | MountFlags::NODEV, Some(&**options))
            }
            MountOp::Cover { from, at, if_missing } => match mount_bind(&**from, &**at) {
                // A missing path needs no cover, and an unreachable one is hidden already.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS) if *if_missing == IfMissing::Skip => Ok(()),
                result => result,
            },
            MountOp::Directory(at) => match mkdirat(CWD, &**at, Mode::from_raw_mode(0o755)) {
                Err(Errno::EXIST) => Ok(()),
                result => result,
            },
            MountOp::File(at) => {
                open(&**at, OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC, Mode::from_raw_mode(0o644)).map(drop)
            }
            MountOp::Symlink { target, at } => symlinkat(&**target, CWD, &**at),
            MountOp::Attach { slot, at } => {
                let fd = slots.get(*slot).copied().filter(|fd| *fd >= 0).ok_or(Errno::BADF)?;
                move_mount(borrow(fd), c"", CWD, &**at, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
            }
            MountOp::Proc => {
                // Read-only, since `/proc/sys` lets the outer root write even without capabilities. `hidepid` hides the
                // supervisor, which has the memory of the whole program.
                let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
                mount(c"proc", c"/proc", c"proc", flags, Some(c"hidepid=ptraceable"))
            }
            MountOp::Devpts => {
                let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
                mount(c"devpts", c"/dev/pts", c"devpts", flags, Some(c"newinstance,ptmxmode=0666,mode=620"))
            }
        }
    }
}

impl OverlayLayers {
    /// Mounts an overlay over a directory, detached.
    ///
    /// The three directories are named by their descriptors: a link that takes the place of one of them meanwhile is not followed.
    fn mount(&self, lower: &OwnedFd) -> Result<OwnedFd, Errno> {
        let (upper, work) = (open_without_links(&self.upper)?, open_without_links(&self.work)?);
        remove_volatile_mark(&work);
        let overlay = fsopen(c"overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
        for (name, fd) in [(c"lowerdir", lower), (c"upperdir", &upper), (c"workdir", &work)] {
            fsconfig_set_string(overlay.as_fd(), name, DescriptorPath::new(fd.as_raw_fd()).as_c_str())?;
        }
        // The user of a user namespace can set no other attributes.
        fsconfig_set_flag(overlay.as_fd(), c"userxattr")?;
        // Without it, the end of each command would wait until the whole file system is synced.
        fsconfig_set_flag(overlay.as_fd(), c"volatile")?;
        fsconfig_create(overlay.as_fd())?;
        let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
        let mount = fsmount(overlay.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
        make_removable(&work);
        Ok(mount)
    }
}

/// The path of an open file in `/proc`, written without allocation.
struct DescriptorPath([u8; DescriptorPath::MAX_BYTES]);

impl DescriptorPath {
    const PREFIX: &'static [u8] = b"/proc/self/fd/";
    /// The prefix, the digits of a number, and a NUL byte.
    const MAX_BYTES: usize = 32;

    fn new(fd: RawFd) -> Self {
        let mut bytes = [0; Self::MAX_BYTES];
        bytes[..Self::PREFIX.len()].copy_from_slice(Self::PREFIX);
        let digits = fd.checked_ilog10().unwrap_or(0) as usize + 1;
        let mut rest = fd;
        for at in (Self::PREFIX.len()..Self::PREFIX.len() + digits).rev() {
            bytes[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        DescriptorPath(bytes)
    }

    fn as_c_str(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.0).unwrap_or_default()
    }
}

/// Lets the user read and remove the directories and the file that the kernel has just created without any permission.
fn make_removable(work: &OwnedFd) {
    for path in [c"work", c"work/incompat", c"work/incompat/volatile", c"work/incompat/volatile/dirty"] {
        let _ = chmodat(work, path, Mode::RWXU, AtFlags::empty());
    }
}

/// Removes the mark by which the kernel notices an overlay that was mounted before without syncing. Only a power failure can have
/// lost something then, and no version is made of these files.
fn remove_volatile_mark(work: &OwnedFd) {
    let open = |above: &OwnedFd, name: &CStr| {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(above, name, flags, Mode::empty())
    };
    let Ok(inner) = open(work, c"work") else { return };
    let Ok(incompatible) = open(&inner, c"incompat") else { return };
    if let Ok(volatile) = open(&incompatible, c"volatile") {
        let _ = unlinkat(&volatile, c"dirty", AtFlags::empty());
    }
    let _ = unlinkat(&incompatible, c"volatile", AtFlags::REMOVEDIR);
    let _ = unlinkat(&inner, c"incompat", AtFlags::REMOVEDIR);
}

/// Opens a file or directory by a path in which no name is a link. Nothing can be read through the descriptor.
fn open_without_links(path: &CStr) -> Result<OwnedFd, Errno> {
    openat2(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::NO_SYMLINKS)
}

/// Clones the mount at an open file or directory, read-only.
fn clone_read_only(from: &OwnedFd) -> Result<OwnedFd, Errno> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE
        | OpenTreeFlags::AT_EMPTY_PATH;
    let fd = open_tree(from, c"", flags)?;
    let attributes = READ_ONLY | NO_SETUID | NO_DEVICES;
    set_attributes(fd.as_raw_fd(), c"", libc::AT_EMPTY_PATH | libc::AT_RECURSIVE, attributes)?;
    Ok(fd)
}

/// Writes to a file that exists.
fn write(file: &CStr, text: &[u8]) -> Result<(), Errno> {
    let file = open(file, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(file, text).map(drop)
}

/// Sets attributes of a mount.
#[allow(unsafe_code, reason = "rustix has no call for it")]
fn set_attributes(fd: RawFd, path: &CStr, flags: c_int, attributes: u64) -> Result<(), Errno> {
    let mount_attr = [attributes, 0, 0, 0];
    // SAFETY: the path is null-terminated, and `mount_attr` has the layout of the kernel's `struct mount_attr`, four 64-bit
    // numbers, whose size is passed.
    let result = unsafe {
        libc::syscall(libc::SYS_mount_setattr, fd, path.as_ptr(), flags, mount_attr.as_ptr(), size_of_val(&mount_attr))
    };
    if result == 0 { Ok(()) } else { Err(last_errno()) }
}

/// Enables the loopback interface, the only one of a new network namespace.
#[allow(unsafe_code, reason = "rustix has no call for it")]
fn enable_loopback() -> Result<(), Errno> {
    // SAFETY: the request is plain data and initialised, its name is null-terminated, and no other code knows the socket.
    unsafe {
        let socket = libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
        if socket < 0 {
            return Err(last_errno());
        }
        let socket = OwnedFd::from_raw_fd(socket);
        let mut request: libc::ifreq = std::mem::zeroed();
        request.ifr_name[0] = b'l' as _;
        request.ifr_name[1] = b'o' as _;
        request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as _;
        if libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as _, &request) == 0 { Ok(()) } else { Err(last_errno()) }
    }
}

#[allow(unsafe_code, reason = "slots hold raw descriptors")]
fn borrow(fd: RawFd) -> BorrowedFd<'static> {
    // SAFETY: the descriptor was stored by `Detach`, and this process never closes it.
    unsafe { BorrowedFd::borrow_raw(fd) }
}
