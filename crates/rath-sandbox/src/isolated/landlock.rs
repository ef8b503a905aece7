//! Landlock: the second wall beneath the mounts where the kernel has it, and the first where there are no namespaces.
//!
//! The mounts say what is read-only. If a mount were missed, or undone by an error of the kernel, a command still cannot write
//! anywhere but in the directories that are listed here, nor without network reach abstract sockets of other programs. Alone,
//! Landlock also says what can be read, and keeps signals within the command.
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

// Rights to files, by the version that added them.
const READ: u64 = EXECUTE | READ_FILE | READ_DIRECTORY;
const EXECUTE: u64 = 1;
const READ_FILE: u64 = 1 << 2;
const READ_DIRECTORY: u64 = 1 << 3;
const WRITE_FILE: u64 = 1 << 1;
const REMOVE_AND_MAKE: u64 = 0b1_1111_1111 << 4;
const REFER: u64 = 1 << 13;
const TRUNCATE: u64 = 1 << 14;
const IOCTL_DEVICE: u64 = 1 << 15;
/// The rights that a file which is no directory can have.
const OF_FILES: u64 = EXECUTE | READ_FILE | WRITE_FILE | TRUNCATE | IOCTL_DEVICE;

/// The scope that keeps abstract Unix sockets of other programs out of reach.
const ABSTRACT_SOCKETS: u64 = 1;
/// The scope that keeps signals within the command.
const SIGNALS: u64 = 2;
/// The version of Landlock that can stand alone, in Linux 6.12: it has all rights and scopes above.
const VERSION_ALONE: i64 = 6;

/// The files that a command can reach, and the programs.
pub(super) struct LandlockRules {
    /// The files and directories that can be read; none if the mounts say that.
    readable: Option<Vec<CString>>,
    /// The files and directories that can be written.
    writable: Vec<CString>,
    scopes: u64,
}

impl LandlockRules {
    /// Returns the rules for a command whose mounts say what it can read.
    pub(super) fn beneath_mounts(writable: Vec<CString>, network: Network) -> Self {
        let scopes = if network == Network::On { 0 } else { ABSTRACT_SOCKETS };
        LandlockRules { readable: None, writable, scopes }
    }

    /// Returns the rules for a command that nothing else restricts. What can be written can be read if it is in both lists.
    pub(super) fn alone(readable: Vec<CString>, writable: Vec<CString>) -> Self {
        LandlockRules { readable: Some(readable), writable, scopes: ABSTRACT_SOCKETS | SIGNALS }
    }

    /// Applies the rules to this process and its children. Beneath mounts, a kernel without Landlock has the mounts only.
    pub(super) fn restrict(&self) -> Result<(), Errno> {
        let version = match (version(), &self.readable) {
            (Some(version), None) => version,
            (Some(version), Some(_)) if version >= VERSION_ALONE => version,
            (None, None) => return Ok(()),
            (_, Some(_)) => return Err(Errno::NOSYS),
        };
        let mut write = WRITE_FILE | REMOVE_AND_MAKE;
        for (since, right) in [(2, REFER), (3, TRUNCATE), (5, IOCTL_DEVICE)] {
            if version >= since {
                write |= right;
            }
        }
        let read = if self.readable.is_some() { READ } else { 0 };
        let scoped = if version >= 6 { self.scopes } else { 0 };
        let attributes = RulesetAttributes { handled_access_fs: read | write, handled_access_net: 0, scoped };
        let ruleset = create(&attributes, version)?;
        for path in self.readable.iter().flatten() {
            allow_below(&ruleset, path, read)?;
        }
        for path in &self.writable {
            allow_below(&ruleset, path, write)?;
        }
        restrict_self(&ruleset)
    }
}

/// Allows an access to a file, or to a directory and everything below it. A path that is not there needs no rule.
fn allow_below(ruleset: &OwnedFd, path: &CString, rights: u64) -> Result<(), Errno> {
    let file = match open(&**path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()) {
        Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS) => return Ok(()),
        file => file?,
    };
    let kind = rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode);
    match if kind.is_dir() { rights } else { rights & OF_FILES } {
        0 => Ok(()),
        // Entries of `/proc` and `/sys` may go away meanwhile, and pipes and sockets of the kernel have no rights.
        rights => match allow(ruleset, &file, rights) {
            Err(Errno::BADFD) => Ok(()),
            result => result,
        },
    }
}

/// Returns true if this kernel has Landlock.
pub(super) fn is_available() -> bool {
    version().is_some()
}

/// Returns true if the Landlock of this kernel can stand alone.
pub(super) fn can_stand_alone() -> bool {
    version().is_some_and(|version| version >= VERSION_ALONE)
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
