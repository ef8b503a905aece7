//! The confinement of a command by itself, just before it starts: no privileges, Landlock, and filters of system calls.
//!
//! This code runs in the process that becomes the command, under the rules of `process::supervisor`: system calls only.

use rustix::io::Errno;
use rustix::thread::{CapabilitiesSecureBits, CapabilitySet, CapabilitySets, set_capabilities, set_no_new_privs};
use seccompiler::BpfProgram;

use super::Walls;
use super::landlock::LandlockRules;
use crate::process::{SpawnFailure, SpawnStep, last_errno};

/// The restrictions that the commands of a sandbox put on themselves.
pub(crate) struct Confinement {
    pub(super) walls: Walls,
    pub(super) landlock: LandlockRules,
    pub(super) filters: Vec<BpfProgram>,
    /// The highest capability that this kernel knows.
    pub(super) last_capability: u32,
}

impl Confinement {
    /// Drops all privileges and installs the filters. Neither can be undone.
    pub(crate) fn apply(&self) -> Result<(), SpawnFailure> {
        let privileges = |errno| (SpawnStep::Privileges, errno);
        match (forbid_capabilities(self.last_capability), self.walls) {
            // An ordinary user may not, outside of a user namespace, and has no capabilities to forbid.
            (Ok(()), _) | (Err(Errno::PERM), Walls::Landlock) => {}
            (Err(errno), _) => return Err(privileges(errno)),
        }
        drop_capabilities().map_err(privileges)?;
        self.landlock.restrict().map_err(|errno| (SpawnStep::Landlock, errno))?;
        for filter in &self.filters {
            install(filter).map_err(|errno| (SpawnStep::Filter, errno))?;
        }
        Ok(())
    }
}

/// Forbids all capabilities, also to programs that would have them.
#[allow(unsafe_code, reason = "rustix has names for capabilities only, and the kernel may know more of them")]
fn forbid_capabilities(last_capability: u32) -> Result<(), Errno> {
    for capability in 0..=last_capability {
        // SAFETY: the call takes numbers only.
        if unsafe { libc::prctl(libc::PR_CAPBSET_DROP, libc::c_ulong::from(capability), 0, 0, 0) } != 0 {
            return Err(last_errno());
        }
    }
    let no_special_root = CapabilitiesSecureBits::NO_ROOT
        | CapabilitiesSecureBits::NO_ROOT_LOCKED
        | CapabilitiesSecureBits::NO_SETUID_FIXUP
        | CapabilitiesSecureBits::NO_SETUID_FIXUP_LOCKED
        | CapabilitiesSecureBits::KEEP_CAPS_LOCKED
        | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE
        | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE_LOCKED;
    rustix::thread::set_capabilities_secure_bits(no_special_root)
}

/// Drops all capabilities for good: a process that may get no new privileges does not get them back either.
fn drop_capabilities() -> Result<(), Errno> {
    rustix::thread::clear_ambient_capability_set()?;
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?;
    set_no_new_privs(true)
}

/// Installs a seccomp filter.
#[allow(unsafe_code, reason = "rustix has no call for it")]
fn install(filter: &BpfProgram) -> Result<(), Errno> {
    let program = libc::sock_fprog {
        len: u16::try_from(filter.len()).map_err(|_| Errno::INVAL)?,
        filter: filter.as_ptr().cast_mut().cast(),
    };
    // SAFETY: `program` points to `len` instructions in the layout of the kernel, which live as long as the call; the kernel
    // copies them.
    let result = unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &program) };
    if result == 0 { Ok(()) } else { Err(last_errno()) }
}
