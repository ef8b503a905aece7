//! A second wall beneath the mounts: Landlock, where the kernel has it.
//!
//! The mounts say what is read-only. If a mount were missed, or undone by an error of the kernel, a command still cannot write
//! anywhere but in the directories that are listed here, nor without network reach abstract sockets of other programs.
//!
//! This code runs in the process that becomes the command, under the rules of `process::supervisor`: system calls only.

use std::ffi::CString;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;

use crate::capabilities::Network;
use crate::process::last_errno;

/// The argument of `landlock_create_ruleset`.
#[repr(C)]
struct RulesetAttributes {
    handled_access_fs: u64,
    handled_access_net: u64,
    scoped: u64,
}

/// The argument of `landlock_add_rule` for files. The kernel's structure has no padding.
#[repr(C, packed)]
struct PathBeneath {
    allowed_access: u64,
    parent_fd: RawFd,
}

const RULE_PATH_BENEATH: u32 = 1;
/// The flag of `landlock_create_ruleset` that asks for the version.
const ASK_VERSION: u32 = 1;

// Rights to files, by the version that added them. Rights to read and execute are left to the mounts.
const WRITE_FILE: u64 = 1 << 1;
const REMOVE_AND_MAKE: u64 = 0b1_1111_1111 << 4;
const REFER: u64 = 1 << 13;
const TRUNCATE: u64 = 1 << 14;
const IOCTL_DEVICE: u64 = 1 << 15;
/// The rights that a file which is no directory can have.
const OF_FILES: u64 = WRITE_FILE | TRUNCATE | IOCTL_DEVICE;

/// The scope that keeps abstract Unix sockets of other programs out of reach.
const ABSTRACT_SOCKETS: u64 = 1;

/// Lets this process and its children write only below these paths, and without network reach no abstract sockets of others.
/// Does nothing on a kernel without Landlock.
pub(super) fn restrict(paths: &[CString], network: Network) -> Result<(), Errno> {
    let Some(version) = version() else { return Ok(()) };
    let mut rights = WRITE_FILE | REMOVE_AND_MAKE;
    for (since, right) in [(2, REFER), (3, TRUNCATE), (5, IOCTL_DEVICE)] {
        if version >= since {
            rights |= right;
        }
    }
    let scoped = if version >= 6 && network != Network::On { ABSTRACT_SOCKETS } else { 0 };
    let ruleset = create(&RulesetAttributes { handled_access_fs: rights, handled_access_net: 0, scoped }, version)?;
    for path in paths {
        let file = match open(&**path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS) => continue,
            file => file?,
        };
        let is_directory = rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode).is_dir();
        allow(&ruleset, &file, if is_directory { rights } else { rights & OF_FILES })?;
    }
    restrict_self(&ruleset)
}

/// Returns true if this kernel has Landlock.
pub(super) fn is_available() -> bool {
    version().is_some()
}

/// Returns the version of Landlock in this kernel; none if it is missing or switched off.
#[allow(unsafe_code, reason = "rustix has no call for it")]
fn version() -> Option<i64> {
    // SAFETY: with this flag the call takes no pointer.
    let version = unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<RulesetAttributes>(), 0_usize, ASK_VERSION)
    };
    (version > 0).then_some(version)
}

#[allow(unsafe_code, reason = "rustix has no call for it")]
fn create(attributes: &RulesetAttributes, version: i64) -> Result<OwnedFd, Errno> {
    // An older kernel knows a shorter structure.
    let size: usize = match version {
        ..4 => 8,
        4..6 => 16,
        _ => 24,
    };
    // SAFETY: the structure has the layout of the kernel's, and at least `size` bytes.
    let fd = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::from_ref(attributes), size, 0_u32) };
    let fd = RawFd::try_from(fd).map_err(|_| Errno::INVAL)?;
    if fd < 0 {
        return Err(last_errno());
    }
    // SAFETY: the kernel has just created the descriptor, close-on-exec, and no other code knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[allow(unsafe_code, reason = "rustix has no call for it")]
fn allow(ruleset: &OwnedFd, file: &OwnedFd, rights: u64) -> Result<(), Errno> {
    let rule = PathBeneath { allowed_access: rights, parent_fd: file.as_raw_fd() };
    // SAFETY: the structure has the layout of the kernel's, and both descriptors are open.
    let result = unsafe {
        libc::syscall(
            libc::SYS_landlock_add_rule,
            ruleset.as_raw_fd(),
            RULE_PATH_BENEATH,
            std::ptr::from_ref(&rule),
            0_u32,
        )
    };
    if result == 0 { Ok(()) } else { Err(last_errno()) }
}

#[allow(unsafe_code, reason = "rustix has no call for it")]
fn restrict_self(ruleset: &OwnedFd) -> Result<(), Errno> {
    // SAFETY: the call takes numbers only.
    let result = unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0_u32) };
    if result == 0 { Ok(()) } else { Err(last_errno()) }
}
