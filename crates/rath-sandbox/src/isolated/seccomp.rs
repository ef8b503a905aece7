//! Seccomp filters: the system calls that isolated commands cannot use.

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen as Len, SeccompCmpOp as Op, SeccompCondition as Condition,
    SeccompFilter, SeccompRule as Rule, TargetArch, sock_filter,
};

use super::{GitAccess, Walls};
use crate::capabilities::Network;
use crate::error::{Error, ErrorKind, Result};

/// Calls that fail with `EPERM`: access to other namespaces, to the memory, code and keys of the kernel, and administration.
const DENIED_CALLS: &[i64] = &[
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_open_by_handle_at,
    libc::SYS_fanotify_init,
    libc::SYS_lookup_dcookie,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_reboot,
    libc::SYS_acct,
    libc::SYS_syslog,
    libc::SYS_vhangup,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_modify_ldt,
];

/// Calls that fail with `ENOSYS`, so that programs use others: a filter cannot see the arguments of these.
const MISSING_CALLS: &[i64] = &[
    libc::SYS_clone3,
    libc::SYS_openat2,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
];

/// Calls that set the mode of a file, each with the number of that argument.
const MODE_CALLS: &[(i64, u8)] = &[
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_chmod, 1),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_creat, 1),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_mknod, 1),
    (libc::SYS_fchmod, 1),
    (libc::SYS_fchmodat, 2),
    (libc::SYS_fchmodat2, 2),
    (libc::SYS_mknodat, 2),
];
/// Calls that open a file, each with the number of the argument for its flags. The mode follows, and counts if the file is created.
const OPEN_CALLS: &[(i64, u8)] = &[
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, 1),
    (libc::SYS_openat, 2),
];
/// The flags that create a file. The second is the bit that only `O_TMPFILE` has.
const CREATE_FLAGS: [i32; 2] = [libc::O_CREAT, libc::O_TMPFILE & !libc::O_DIRECTORY];
/// The bits of a mode by which a program runs as the owner or the group of its file. What a command leaves in the workspace stays there
/// for others to run.
const SETUID_BITS: [u64; 2] = [0o4000, 0o2000];

/// Namespaces that a command may not create with `clone`.
const DENIED_CLONE_FLAGS: [i32; 7] = [
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWNET,
];

/// Calls that start a process, besides `clone`.
const FORK_CALLS: &[i64] = &[
    #[cfg(target_arch = "x86_64")]
    libc::SYS_fork,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_vfork,
];

/// Calls that fail with `EPERM` where there are no namespaces: objects of other programs that have no path, and the owner and the attributes
/// of files, which Landlock does not know. Those set by path reach any file of the user's.
const DENIED_WITHOUT_NAMESPACES: &[i64] = &[
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_semctl,
    libc::SYS_msgget,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_msgctl,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    libc::SYS_fchownat,
    libc::SYS_fchown,
    libc::SYS_fchmodat,
    libc::SYS_fchmodat2,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lchown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chmod,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utime,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utimes,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_futimesat,
    // By their numbers, which are the same everywhere: setxattrat, removexattrat and file_setattr.
    463,
    466,
    469,
];
/// Calls that change another process, each with the number of the argument for it; 0 there is the caller itself.
const PROCESS_CALLS: &[(i64, u8)] = &[
    (libc::SYS_prlimit64, 0),
    (libc::SYS_sched_setaffinity, 0),
    (libc::SYS_sched_setscheduler, 0),
    (libc::SYS_sched_setparam, 0),
    (libc::SYS_sched_setattr, 0),
    (libc::SYS_migrate_pages, 0),
    (libc::SYS_move_pages, 0),
    (libc::SYS_setpriority, 0),
    (libc::SYS_setpriority, 1),
    (libc::SYS_ioprio_set, 1),
];
/// Requests of `ioctl` that set attributes of a file: `FS_IOC_SETFLAGS`, `FS_IOC_FSSETXATTR`, `FS_IOC_SETVERSION` and
/// `EXT4_IOC_SETVERSION`, each with its 32-bit form, and `FS_IOC_ENABLE_VERITY`.
const DENIED_FILE_IOCTLS: [u64; 8] =
    [0x4008_6602, 0x4004_6602, 0x401c_5820, 0x4008_7602, 0x4004_7602, 0x4008_6604, 0x4004_6604, 0x4080_6685];

/// Socket families that no namespace confines: to the hypervisor, and into the crypto code of the kernel.
const DENIED_SOCKET_FAMILIES: [i32; 2] = [libc::AF_VSOCK, libc::AF_ALG];

/// Requests of `ioctl` that simulate input on a terminal: `TIOCSTI` and `TIOCLINUX`.
const DENIED_IOCTLS: [u64; 2] = [0x5412, 0x541c];

/// The types of Unix socket in a pair that can be connected to another socket: datagrams, also under the name of raw ones.
const CONNECTABLE_PAIR_TYPES: [i32; 2] = [libc::SOCK_DGRAM, libc::SOCK_RAW];
/// The bits of the type of a socket, without its flags.
const SOCKET_TYPE_MASK: u64 = 0xf;

/// Builds the filters, one for each error code.
///
/// Without network there are no Unix sockets, except pairs that are connected to each other. No mount and no network namespace keeps a
/// command from a socket of the machine that has a path: one may be created later, or in the workspace. Without namespaces there are no
/// sockets at all, or with network none of Unix.
///
/// A command that commits starts no other program: git would run those that the settings of any repository in the workspace name, such
/// as filters. Threads are not affected.
pub(super) fn filters(network: Network, walls: Walls, git: GitAccess) -> Result<Vec<BpfProgram>> {
    let failed = |error: &dyn std::fmt::Display| {
        Error::new(ErrorKind::Unavailable, format_args!("cannot filter system calls on this machine: {error}"))
    };
    let equal = |nth, value| Condition::new(nth, Len::Dword, Op::Eq, value);
    let masked = |nth, flag: i32| {
        let flag = u64::from(flag.unsigned_abs());
        Condition::new(nth, Len::Qword, Op::MaskedEq(flag), flag)
    };
    let rules = |conditions: Vec<Result<Condition, _>>| -> Result<Vec<Rule>, seccompiler::BackendError> {
        conditions.into_iter().map(|condition| Rule::new(vec![condition?])).collect()
    };
    let build = || {
        let mut denied: std::collections::BTreeMap<_, _> =
            DENIED_CALLS.iter().map(|call| (*call, Vec::new())).collect();
        let namespaces = DENIED_CLONE_FLAGS.map(|flag| masked(0, flag));
        denied.insert(libc::SYS_clone, rules(namespaces.into())?);
        if git == GitAccess::Commit {
            let thread = u64::from(libc::CLONE_THREAD.unsigned_abs());
            let processes = Condition::new(0, Len::Qword, Op::MaskedEq(thread), 0);
            let conditions = DENIED_CLONE_FLAGS.map(|flag| masked(0, flag)).into_iter().chain([processes]);
            denied.insert(libc::SYS_clone, rules(conditions.collect())?);
            denied.extend(FORK_CALLS.iter().map(|call| (*call, Vec::new())));
        }
        denied.insert(libc::SYS_ioctl, rules(DENIED_IOCTLS.map(|request| equal(1, request)).into())?);
        let families = DENIED_SOCKET_FAMILIES.map(|family| equal(0, u64::from(family.unsigned_abs())));
        denied.insert(libc::SYS_socket, rules(families.into())?);
        for (call, nth) in MODE_CALLS {
            let is_set = |bit: u64| Condition::new(*nth, Len::Dword, Op::MaskedEq(bit), bit);
            denied.insert(*call, rules(SETUID_BITS.map(is_set).into())?);
        }
        for (call, nth) in OPEN_CALLS {
            let pairs = CREATE_FLAGS.iter().flat_map(|flag| SETUID_BITS.map(|bit| (*flag, bit)));
            let rules = pairs.map(|(flag, bit)| {
                let is_set = Condition::new(nth + 1, Len::Dword, Op::MaskedEq(bit), bit)?;
                Rule::new(vec![masked(*nth, flag)?, is_set])
            });
            denied.insert(*call, rules.collect::<Result<_, seccompiler::BackendError>>()?);
        }
        if walls == Walls::Landlock {
            denied.extend(DENIED_WITHOUT_NAMESPACES.iter().map(|call| (*call, Vec::new())));
            if rustix::process::geteuid().is_root() {
                // The programs of the machine belong to root.
                denied.insert(libc::SYS_fchmod, Vec::new());
            }
            let ioctls = DENIED_IOCTLS.iter().chain(&DENIED_FILE_IOCTLS).map(|request| equal(1, *request));
            denied.insert(libc::SYS_ioctl, rules(ioctls.collect())?);
            // With a path the times of any file of the user's could be set; without, those of an open file.
            let by_path = Condition::new(1, Len::Qword, Op::Ne, 0);
            denied.insert(libc::SYS_utimensat, rules(vec![by_path])?);
            let mut of_others = std::collections::BTreeMap::<i64, Vec<Rule>>::new();
            for (call, nth) in PROCESS_CALLS {
                let other = Condition::new(*nth, Len::Dword, Op::Ne, 0);
                of_others.entry(*call).or_default().extend(rules(vec![other])?);
            }
            // Of I/O priorities, 1 stands for a process.
            let group = Condition::new(0, Len::Dword, Op::Ne, 1);
            of_others.entry(libc::SYS_ioprio_set).or_default().extend(rules(vec![group])?);
            denied.extend(of_others);
        }
        let missing = MISSING_CALLS.iter().map(|call| (*call, Vec::new())).collect();
        let unix = || equal(0, u64::from(libc::AF_UNIX.unsigned_abs()));
        let pairs = CONNECTABLE_PAIR_TYPES.map(|kind| {
            let kind = u64::from(kind.unsigned_abs());
            Rule::new(vec![unix()?, Condition::new(1, Len::Dword, Op::MaskedEq(SOCKET_TYPE_MASK), kind)?])
        });
        let pairs = pairs.into_iter().collect::<Result<Vec<_>, _>>()?;
        // A call without rules is refused whatever its arguments.
        let is_without_any = network == Network::Off && walls == Walls::Landlock;
        let sockets = if is_without_any { Vec::new() } else { rules(vec![unix()])? };
        let sockets = [(libc::SYS_socket, sockets), (libc::SYS_socketpair, pairs)].into();
        let arch = TargetArch::try_from(std::env::consts::ARCH)?;
        let errno = |errno: i32| SeccompAction::Errno(errno.unsigned_abs());
        let mut filters = vec![(denied, libc::EPERM), (missing, libc::ENOSYS)];
        if network != Network::On || walls == Walls::Landlock {
            filters.push((sockets, libc::EAFNOSUPPORT));
        }
        filters
            .into_iter()
            .map(|(rules, error)| SeccompFilter::new(rules, SeccompAction::Allow, errno(error), arch)?.try_into())
            .collect::<Result<Vec<BpfProgram>, seccompiler::BackendError>>()
    };
    let mut filters = build().map_err(|error| failed(&error))?;
    if cfg!(target_arch = "x86_64")
        && let Some(first) = filters.first_mut()
    {
        first.splice(..0, refuse_x32());
    }
    Ok(filters)
}

/// Returns instructions that refuse the x32 ABI: on x86-64 it gives each call a second number, which the rules do not know.
fn refuse_x32() -> [sock_filter; 3] {
    let return_enosys = 0x0005_0000 | libc::ENOSYS.unsigned_abs();
    [
        // Load the number of the call; skip the next instruction if it is below the first x32 number; return ENOSYS.
        sock_filter { code: 0x20, jt: 0, jf: 0, k: 0 },
        sock_filter { code: 0x35, jt: 0, jf: 1, k: 0x4000_0000 },
        sock_filter { code: 0x06, jt: 0, jf: 0, k: return_enosys },
    ]
}
