//! System calls that isolated commands do not have.

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen as Len, SeccompCmpOp as Op, SeccompCondition as Condition,
    SeccompFilter, SeccompRule as Rule, TargetArch, sock_filter,
};

use crate::error::{Error, ErrorKind, Result};

/// Refused: ways to other namespaces, to the kernel's own memory and code, to its keys, and what only an administrator needs.
const REFUSED: &[i64] = &[
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

/// Said not to exist, so that programs do without: what these would do cannot be seen by a filter.
const MISSING: &[i64] =
    &[libc::SYS_clone3, libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register];

/// Namespaces that a command may not make.
const NAMESPACES: [i32; 7] = [
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWNET,
];

/// Kinds of sockets that no namespace holds back: to the machine that this one runs on, and into the kernel's ciphers.
const FAMILIES: [i32; 2] = [libc::AF_VSOCK, libc::AF_ALG];

/// Characters typed into somebody's terminal: `TIOCSTI` and `TIOCLINUX`.
const TYPED: [u64; 2] = [0x5412, 0x541c];

/// The filters, as the kernel takes them.
pub(super) fn filters() -> Result<Vec<BpfProgram>> {
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
        let mut refused: std::collections::BTreeMap<_, _> = REFUSED.iter().map(|call| (*call, Vec::new())).collect();
        let namespaces = NAMESPACES.map(|flag| masked(0, flag));
        refused.insert(libc::SYS_clone, rules(namespaces.into())?);
        refused.insert(libc::SYS_ioctl, rules(TYPED.map(|request| equal(1, request)).into())?);
        let families = FAMILIES.map(|family| equal(0, u64::from(family.unsigned_abs())));
        refused.insert(libc::SYS_socket, rules(families.into())?);
        let missing = MISSING.iter().map(|call| (*call, Vec::new())).collect();
        let arch = TargetArch::try_from(std::env::consts::ARCH)?;
        let errno = |errno: i32| SeccompAction::Errno(errno.unsigned_abs());
        let filters = [(refused, libc::EPERM), (missing, libc::ENOSYS)];
        filters
            .into_iter()
            .map(|(rules, why)| SeccompFilter::new(rules, SeccompAction::Allow, errno(why), arch)?.try_into())
            .collect::<Result<Vec<BpfProgram>, seccompiler::BackendError>>()
    };
    let mut filters = build().map_err(|error| failed(&error))?;
    if cfg!(target_arch = "x86_64")
        && let Some(first) = filters.first_mut()
    {
        first.splice(..0, other_abi());
    }
    Ok(filters)
}

/// On x86-64 every call has a second number, for programs of the x32 kind, which the rest does not know.
fn other_abi() -> [sock_filter; 3] {
    let no_such_call = 0x0005_0000 | libc::ENOSYS.unsigned_abs();
    [
        // Loads the number; goes on if it is below the first of the others; refuses.
        sock_filter { code: 0x20, jt: 0, jf: 0, k: 0 },
        sock_filter { code: 0x35, jt: 0, jf: 1, k: 0x4000_0000 },
        sock_filter { code: 0x06, jt: 0, jf: 0, k: no_such_call },
    ]
}
