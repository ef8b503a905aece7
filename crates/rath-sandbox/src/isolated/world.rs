//! What is done in a new process so that a command runs in a world of its own.
//!
//! All of it runs in the supervisor and in the process that becomes the command, under the rules that stand there: system
//! calls only, nothing allocated. What is to be done is worked out beforehand, in `view.rs`.

use std::ffi::{CStr, CString, c_int};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, mkdirat, open, openat2, symlinkat};
use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, mount, mount_bind, mount_change, move_mount,
    open_tree,
};
use rustix::thread::{CapabilitiesSecureBits, CapabilitySet, CapabilitySets, set_capabilities, set_no_new_privs};
use seccompiler::BpfProgram;

use crate::capabilities::Network;
use crate::process::{Failure, Stage, last_errno};

/// A world for commands, the same for each.
pub(crate) struct World {
    pub(super) network: Network,
    /// Who the user is, inside and outside.
    pub(super) users: [(&'static CStr, Vec<u8>); 3],
    pub(super) pid_max: Option<Vec<u8>>,
    pub(super) acts: Vec<(Stage, Act)>,
    /// The workspace, where the command sees it.
    pub(super) workspace: CString,
    pub(super) filters: Vec<BpfProgram>,
    /// The highest number of a capability that this kernel knows.
    pub(super) last_capability: u32,
}

/// One thing to do to the mounts.
pub(super) enum Act {
    /// Takes hold of what is at a path, with what is mounted below it, to put it somewhere later.
    Take {
        nth: usize,
        from: CString,
        attributes: u64,
        below: Below,
    },
    /// Everything from here on down is read-only.
    ReadOnly,
    /// An empty file system in memory.
    Empty {
        at: CString,
        options: CString,
        flags: MountFlags,
    },
    /// The same as somewhere else, over what is at a path, if anything is.
    Same {
        from: CString,
        at: CString,
    },
    Folder(CString),
    File(CString),
    Link {
        to: CString,
        at: CString,
    },
    Put {
        nth: usize,
        at: CString,
    },
    Proc,
    Terminals,
}

/// Whether something is taken with what is mounted below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Below {
    Too,
    Not,
}

/// How many things can be taken hold of.
pub(super) const TAKES_MOST: usize = 64;

pub(super) const READ_ONLY: u64 = 1;
pub(super) const NO_SETUID: u64 = 2;
pub(super) const NO_DEVICES: u64 = 4;

const NAMESPACES: c_int = libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWCGROUP;

impl World {
    /// The namespaces that a command gets.
    pub(crate) fn flags(&self) -> c_int {
        match self.network {
            Network::Off => NAMESPACES | libc::CLONE_NEWNET,
            Network::On => NAMESPACES,
        }
    }

    /// Makes the world, as the first process in it.
    pub(crate) fn enter(&self) -> Result<(), Failure> {
        for (file, text) in &self.users {
            write(file, text).map_err(|errno| (Stage::Users, errno))?;
        }
        let _ = rustix::system::sethostname(b"rath");
        if let Some(most) = &self.pid_max {
            write(c"/proc/sys/kernel/pid_max", most).map_err(|errno| (Stage::ProcessLimit, errno))?;
        }
        let everything = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
        mount_change(c"/", everything).map_err(|errno| (Stage::Mounts, errno))?;
        let mut taken = [-1; TAKES_MOST];
        for (stage, act) in &self.acts {
            act.perform(&mut taken).map_err(|errno| (*stage, errno))?;
        }
        match self.network {
            Network::Off => loopback().map_err(|errno| (Stage::Network, errno)),
            Network::On => Ok(()),
        }
    }

    /// Goes to a directory below the workspace, and nowhere else.
    pub(crate) fn change_directory(&self, below: &CStr) -> Result<(), Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let workspace = open(&*self.workspace, flags, Mode::empty())?;
        if below.is_empty() {
            return rustix::process::fchdir(workspace);
        }
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        rustix::process::fchdir(openat2(workspace, below, flags, Mode::empty(), resolve)?)
    }

    /// Gives up every privilege, for good.
    pub(crate) fn confine(&self) -> Result<(), Failure> {
        drop_privileges(self.last_capability).map_err(|errno| (Stage::Privileges, errno))?;
        for filter in &self.filters {
            install(filter).map_err(|errno| (Stage::Filter, errno))?;
        }
        Ok(())
    }
}

impl Act {
    fn perform(&self, taken: &mut [RawFd; TAKES_MOST]) -> Result<(), Errno> {
        match self {
            Act::Take { nth, from, attributes, below } => {
                let mut flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
                let mut recursive = 0;
                if *below == Below::Too {
                    flags |= OpenTreeFlags::AT_RECURSIVE;
                    recursive = libc::AT_RECURSIVE;
                }
                let fd = open_tree(CWD, &**from, flags)?;
                if *attributes != 0 {
                    set_attributes(fd.as_raw_fd(), c"", libc::AT_EMPTY_PATH | recursive, *attributes)?;
                }
                if let Some(place) = taken.get_mut(*nth) {
                    *place = std::os::fd::IntoRawFd::into_raw_fd(fd);
                }
                Ok(())
            }
            Act::ReadOnly => {
                let attributes = READ_ONLY | NO_SETUID | NO_DEVICES;
                set_attributes(libc::AT_FDCWD, c"/", libc::AT_RECURSIVE, attributes)
            }
            Act::Empty { at, options, flags } => {
                mount(c"tmpfs", &**at, c"tmpfs", *flags | MountFlags::NOSUID | MountFlags::NODEV, Some(&**options))
            }
            Act::Same { from, at } => match mount_bind(&**from, &**at) {
                // What is not there needs no cover, and what cannot be reached is hidden.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS) => Ok(()),
                done => done,
            },
            Act::Folder(at) => match mkdirat(CWD, &**at, Mode::from_raw_mode(0o755)) {
                Err(Errno::EXIST) => Ok(()),
                done => done,
            },
            Act::File(at) => {
                open(&**at, OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC, Mode::from_raw_mode(0o644)).map(drop)
            }
            Act::Link { to, at } => symlinkat(&**to, CWD, &**at),
            Act::Put { nth, at } => {
                let fd = taken.get(*nth).copied().filter(|fd| *fd >= 0).ok_or(Errno::BADF)?;
                move_mount(borrow(fd), c"", CWD, &**at, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
            }
            Act::Proc => {
                // Read-only, since root outside is root to `/proc/sys` whatever it may otherwise do; and with nothing in it of
                // the supervisor, which has the memory of the whole program.
                let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
                mount(c"proc", c"/proc", c"proc", flags, Some(c"hidepid=ptraceable"))
            }
            Act::Terminals => {
                let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
                mount(c"devpts", c"/dev/pts", c"devpts", flags, Some(c"newinstance,ptmxmode=0666,mode=620"))
            }
        }
    }
}

fn write(file: &CStr, text: &[u8]) -> Result<(), Errno> {
    let file = open(file, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(file, text).map(drop)
}

#[allow(unsafe_code, reason = "rustix has no call for it")]
fn set_attributes(fd: RawFd, path: &CStr, flags: c_int, attributes: u64) -> Result<(), Errno> {
    let wanted = [attributes, 0, 0, 0];
    // SAFETY: `wanted` has the layout of `struct mount_attr`, of which the size is given: four numbers of 64 bits.
    let done = unsafe {
        libc::syscall(libc::SYS_mount_setattr, fd, path.as_ptr(), flags, wanted.as_ptr(), size_of_val(&wanted))
    };
    if done == 0 { Ok(()) } else { Err(last_errno()) }
}

/// Switches on the one interface that a new network has: programs talk to themselves over it.
#[allow(unsafe_code, reason = "rustix has no call for it")]
fn loopback() -> Result<(), Errno> {
    // SAFETY: the request is plain data, initialised, and named as the kernel wants it; the socket is ours alone.
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

#[allow(unsafe_code, reason = "rustix wants a name for each capability, and the kernel may know more of them")]
fn drop_privileges(last_capability: u32) -> Result<(), Errno> {
    for capability in 0..=last_capability {
        // SAFETY: it takes numbers.
        if unsafe { libc::prctl(libc::PR_CAPBSET_DROP, libc::c_ulong::from(capability), 0, 0, 0) } != 0 {
            return Err(last_errno());
        }
    }
    let root_is_nobody = CapabilitiesSecureBits::NO_ROOT
        | CapabilitiesSecureBits::NO_ROOT_LOCKED
        | CapabilitiesSecureBits::NO_SETUID_FIXUP
        | CapabilitiesSecureBits::NO_SETUID_FIXUP_LOCKED
        | CapabilitiesSecureBits::KEEP_CAPS_LOCKED
        | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE
        | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE_LOCKED;
    rustix::thread::set_capabilities_secure_bits(root_is_nobody)?;
    rustix::thread::clear_ambient_capability_set()?;
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?;
    set_no_new_privs(true)
}

#[allow(unsafe_code, reason = "rustix has no call for it")]
fn install(filter: &BpfProgram) -> Result<(), Errno> {
    let program = libc::sock_fprog {
        len: u16::try_from(filter.len()).map_err(|_| Errno::INVAL)?,
        filter: filter.as_ptr().cast_mut().cast(),
    };
    // SAFETY: the instructions have the layout that the kernel wants and live as long as the call, which copies them.
    let done = unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &program) };
    if done == 0 { Ok(()) } else { Err(last_errno()) }
}

#[allow(unsafe_code, reason = "a number becomes a descriptor again")]
fn borrow(fd: RawFd) -> BorrowedFd<'static> {
    // SAFETY: it was just taken hold of, and this process never closes it.
    unsafe { BorrowedFd::borrow_raw(fd) }
}
