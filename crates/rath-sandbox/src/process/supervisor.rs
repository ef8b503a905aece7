//! The supervisor: a process between this program and a command, which ends all processes of the command.
//!
//! The supervisor is cloned without a copy of memory (`CLONE_VM`), as `posix_spawn` does for a moment: a fork of a large
//! process costs far more than the command. So it runs in the memory of this program, on its own stack, next to the threads
//! of this program. It makes system calls only: it allocates nothing, takes no lock, and uses thread-local storage (`errno`)
//! only if the call has failed anyway. All its data is prepared in a [`SpawnPlan`], which lives until the supervisor has ended.
//!
//! The supervisor adopts orphans of the command (it is a child subreaper, or the first process of a PID namespace), so a
//! daemon that forks twice and calls `setsid` is still one of its descendants. When the command ends, or when the stop pipe
//! is closed because the call was dropped or this program died, the supervisor kills until no process is left, and ends.
//!
//! A control group for each command could do the same, but only privileged users can create one, moving a process into one
//! takes milliseconds, and a group is not killed when this program dies.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU8, Ordering::SeqCst};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::process::{
    Pid, Resource, Rlimit, Signal, WaitId, WaitIdOptions, WaitOptions, WaitStatus, kill_process, kill_process_group,
    setrlimit, setsid, wait, waitid,
};

use super::spawn_step::{SpawnFailure, SpawnStep};
use super::tag::ProcessTag;
use crate::ExitStatus;
use crate::isolated::{Confinement, Namespace, offer_listener};

/// The data of the supervisor and the command, prepared before they start.
pub(super) struct SpawnPlan {
    /// The paths at which the program may be, in the order of search.
    pub(super) programs: Vec<CString>,
    pub(super) argv: CStrings,
    pub(super) env: CStrings,
    pub(super) cwd: Cwd,
    /// The descriptors that become stdin, stdout and stderr.
    pub(super) stdio: [RawFd; 3],
    /// The read end of the stop pipe. This program closes the other end to stop the command.
    pub(super) stop_pipe: RawFd,
    /// The socket on which this program waits for the listening socket of a proxy.
    pub(super) proxy_socket: Option<RawFd>,
    pub(super) rlimits: Vec<(Resource, Rlimit)>,
    /// The open `cgroup.procs` files of the control groups that the command joins.
    pub(super) cgroups: Vec<RawFd>,
    pub(super) namespace: Option<Arc<Namespace>>,
    pub(super) confinement: Option<Arc<Confinement>>,
    /// The tag of the command's processes. In a namespace they need none.
    pub(super) tag: Option<ProcessTag>,
    /// Written by the supervisor and the command.
    pub(super) report: SpawnReport,
}

/// The directory that the command starts in.
pub(super) enum Cwd {
    Open(RawFd),
    /// A path relative to the workspace as the command sees it.
    InWorkspace(CString),
}

/// Strings and the null-terminated array of pointers to them that `execve` takes.
pub(super) struct CStrings {
    pointers: Vec<*const c_char>,
    _strings: Vec<CString>,
}

impl CStrings {
    pub(super) fn new(strings: Vec<CString>) -> Self {
        let pointers = strings.iter().map(|string| string.as_ptr()).chain([std::ptr::null()]).collect();
        CStrings { pointers, _strings: strings }
    }
}

/// The results of a command, in atomics that are shared with the supervisor.
#[derive(Default)]
pub(super) struct SpawnReport {
    /// The number of the step that failed, or 0.
    failed_step: AtomicU8,
    errno: AtomicI32,
    code: AtomicI32,
    signal: AtomicI32,
    /// 1 when `code` and `signal` are set.
    has_ended: AtomicU8,
    /// The PID of the command while its processes may be alive, or 0.
    live_pid: AtomicI32,
}

impl SpawnReport {
    fn fail(&self, (step, errno): SpawnFailure) {
        self.errno.store(errno.raw_os_error(), SeqCst);
        self.failed_step.store(step.number(), SeqCst);
    }

    fn end(&self, status: WaitStatus) {
        self.code.store(status.exit_status().unwrap_or(-1), SeqCst);
        self.signal.store(status.terminating_signal().unwrap_or(0), SeqCst);
        self.has_ended.store(1, SeqCst);
    }

    fn has_failed(&self) -> bool {
        self.failed_step.load(SeqCst) != 0
    }

    /// Returns how the command ended; `None` if the supervisor was killed before.
    pub(super) fn read(&self) -> Result<Option<ExitStatus>, SpawnFailure> {
        if let Some(step) = SpawnStep::from_number(self.failed_step.load(SeqCst)) {
            return Err((step, Errno::from_raw_os_error(self.errno.load(SeqCst))));
        }
        Ok((self.has_ended.load(SeqCst) == 1).then(|| match self.signal.load(SeqCst) {
            0 => ExitStatus::Exit(self.code.load(SeqCst)),
            signal => ExitStatus::Signal(signal),
        }))
    }
}

/// The size of the stack of the supervisor, and of the command before `execve`. Neither needs a tenth of it.
const STACK_BYTES: usize = 64 * 1024;

/// The memory that a running supervisor uses.
struct SupervisorMemory {
    plan: SpawnPlan,
    stacks: [Vec<u8>; 2],
}

#[allow(unsafe_code, reason = "raw pointers are not Send by themselves")]
// SAFETY: the pointers in `CStrings` point to heap memory that the same value owns, and that is not written after its
// creation.
unsafe impl Send for SupervisorMemory {}
#[allow(unsafe_code, reason = "raw pointers are not Sync by themselves")]
// SAFETY: as above; only the atomics of `SpawnReport` and of the mounts are written while the value is shared.
unsafe impl Sync for SupervisorMemory {}

/// A running supervisor. Dropping it ends the supervisor and all processes of the command.
pub(super) struct Supervisor {
    shared: Option<Box<SupervisorMemory>>,
    /// The write end of the stop pipe.
    stop_pipe: Option<OwnedFd>,
    /// Readable when the supervisor has ended.
    pub(super) pidfd: OwnedFd,
    reaped: bool,
}

impl Supervisor {
    /// Starts the command of a plan. `stop_pipe` is the write end of the pipe in the plan.
    pub(super) fn start(plan: SpawnPlan, stop_pipe: OwnedFd) -> Result<Self, SpawnFailure> {
        let stacks = [Vec::with_capacity(STACK_BYTES), Vec::with_capacity(STACK_BYTES)];
        let mut shared = Box::new(SupervisorMemory { plan, stacks });
        let namespaces = shared.plan.namespace.as_ref().map_or(0, |namespace| namespace.clone_flags());
        let flags = libc::CLONE_VM | libc::CLONE_PIDFD | namespaces;
        let pidfd = clone_supervisor(&mut shared, flags).map_err(|errno| (SpawnStep::Clone, errno))?;
        Ok(Supervisor { shared: Some(shared), stop_pipe: Some(stop_pipe), pidfd, reaped: false })
    }

    /// Asks the supervisor to kill everything. It has ended when [`pidfd`](Self::pidfd) is readable.
    pub(super) fn stop(&mut self) {
        self.stop_pipe = None;
        // The kernel kills a PID namespace together with its first process. Without a namespace, the supervisor must live:
        // only it can find the other processes at once.
        if self.is_first_of_namespace() {
            let _ = rustix::process::pidfd_send_signal(&self.pidfd, Signal::KILL);
        } else {
            self.wake();
        }
    }

    /// Continues a supervisor that its command has stopped. In a namespace no command can stop it.
    pub(super) fn wake(&self) {
        if !self.is_first_of_namespace() {
            let _ = rustix::process::pidfd_send_signal(&self.pidfd, Signal::CONT);
        }
    }

    /// Kills the processes of the command and the supervisor, without its help.
    pub(super) fn kill(&self) {
        // The supervisor comes first: it is stopped by a process that may still be alive, and knows nothing that the tag does not.
        let _ = rustix::process::pidfd_send_signal(&self.pidfd, Signal::KILL);
        self.kill_orphans();
    }

    fn is_first_of_namespace(&self) -> bool {
        self.shared.as_ref().is_some_and(|shared| shared.plan.namespace.is_some())
    }

    /// Waits for the supervisor, and returns how the command ended.
    pub(super) fn finish(mut self) -> Result<Option<ExitStatus>, SpawnFailure> {
        self.reap();
        self.shared.as_ref().map_or(Ok(None), |shared| shared.plan.report.read())
    }

    fn reap(&mut self) {
        if !self.reaped {
            wait_for(&self.pidfd);
            self.reaped = true;
            self.kill_orphans();
        }
    }

    /// Kills the processes that a supervisor left which was killed before it could: by the command, or from outside.
    fn kill_orphans(&self) {
        let Some(plan) = self.shared.as_ref().map(|shared| &shared.plan) else { return };
        let command = Pid::from_raw(plan.report.live_pid.load(SeqCst));
        if let (None, Some(command)) = (&plan.namespace, command) {
            let _ = kill_process_group(command, Signal::KILL);
            if let Some(tag) = plan.tag {
                tag.kill_all();
            }
        }
    }

    /// Waits until the supervisor has ended, or for some time. Returns true if it has ended.
    fn wait_awake(&self) -> bool {
        (0..MAX_DROP_WAITS).any(|_| {
            self.wake();
            matches!(poll(&mut [PollFd::new(&self.pidfd, PollFlags::IN)], Some(&DROP_WAIT)), Ok(1..))
        })
    }
}

/// The time that a dropped call waits for its processes to die before it continues the supervisor again.
const DROP_WAIT: rustix::time::Timespec = rustix::time::Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
/// The number of such waits. A process that hangs in the kernel can take longer.
const MAX_DROP_WAITS: usize = 50;

impl Drop for Supervisor {
    fn drop(&mut self) {
        if self.reaped {
            return;
        }
        self.stop();
        if self.wait_awake() {
            return self.reap();
        }
        self.kill();
        // The supervisor still uses the shared memory, which must not be freed before it ends, even if no thread can wait for it.
        let shared = ManuallyDrop::new(self.shared.take());
        if let Ok(pidfd) = self.pidfd.try_clone() {
            let _ = std::thread::Builder::new().name("rath-reaper".to_owned()).spawn(move || {
                wait_for(&pidfd);
                drop(ManuallyDrop::into_inner(shared));
            });
        }
    }
}

/// `__WALL`: also wait for children without an exit signal, such as the supervisor.
const ANY_CHILD: u32 = 0x4000_0000;

/// Waits for a child to end, and reaps it.
fn wait_for(pidfd: &OwnedFd) {
    let options = WaitIdOptions::EXITED | WaitIdOptions::from_bits_retain(ANY_CHILD);
    while let Err(Errno::INTR) = waitid(WaitId::PidFd(pidfd.as_fd()), options) {}
}

/// Clones the supervisor, and returns its pidfd.
#[allow(unsafe_code, reason = "there is no safe way to clone a process")]
fn clone_supervisor(shared: &mut SupervisorMemory, flags: c_int) -> Result<OwnedFd, Errno> {
    let stack = stack_top(&mut shared.stacks[0]);
    let argument = std::ptr::from_mut(shared).cast::<c_void>();
    let mut pidfd: c_int = -1;
    // SAFETY: the masks are initialised by the calls that take them. The new process runs `supervisor_main` on a stack that
    // no other process uses, in memory that `Supervisor` keeps until the process has ended. All signals stay blocked in it,
    // so that no signal handler of this program runs there. It has no exit signal, so code of this program that waits for
    // any child does not reap it.
    let id = unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut previous: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &all, &mut previous);
        let id = libc::clone(supervisor_main, stack, flags, argument, &mut pidfd);
        let error = std::io::Error::last_os_error();
        libc::pthread_sigmask(libc::SIG_SETMASK, &previous, std::ptr::null_mut());
        if id < 0 {
            return Err(Errno::from_io_error(&error).unwrap_or(Errno::AGAIN));
        }
        id
    };
    debug_assert!(id > 0 && pidfd >= 0);
    // SAFETY: the kernel has just created the descriptor, close-on-exec, and no other code knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(pidfd) })
}

/// Returns the upper end of a stack, where it begins, aligned for every architecture.
fn stack_top(stack: &mut Vec<u8>) -> *mut c_void {
    let end = stack.as_mut_ptr().wrapping_add(stack.capacity());
    end.wrapping_sub(end as usize % 64).cast()
}

/// The entry point of the supervisor.
extern "C" fn supervisor_main(shared: *mut c_void) -> c_int {
    #[allow(unsafe_code, reason = "clone passes a raw pointer")]
    // SAFETY: the pointer is the argument of `clone_supervisor`, which is neither freed nor changed (except its atomics)
    // until this process has ended. Its second stack is used by one process at a time.
    let shared = unsafe { &*shared.cast::<SupervisorMemory>() };
    let plan = &shared.plan;
    match supervise(shared) {
        Ok(()) => 0,
        Err(failure) => {
            plan.report.fail(failure);
            1
        }
    }
}

/// Starts the command, waits for its end or for the stop pipe, and kills what is left.
fn supervise(shared: &SupervisorMemory) -> Result<(), SpawnFailure> {
    let plan = &shared.plan;
    let _ = setsid();
    let descriptors = |errno| (SpawnStep::Descriptors, errno);
    set_up_descriptors(plan).map_err(descriptors)?;
    let children = child_signalfd().map_err(descriptors)?;
    match &plan.namespace {
        Some(namespace) => namespace.enter()?,
        None => rustix::process::set_child_subreaper(Some(Pid::INIT)).map_err(|errno| (SpawnStep::Start, errno))?,
    }
    if let Some(socket) = plan.proxy_socket {
        offer_listener(borrow(socket)).map_err(|errno| (SpawnStep::Network, errno))?;
        let _ = close_range(socket, socket);
    }
    let command = clone_command(shared).map_err(|errno| (SpawnStep::Start, errno))?;
    // The copies of stdio here would keep the pipes open after the command has closed them.
    let _ = close_range(0, 2);
    loop {
        let stop_pipe = borrow(plan.stop_pipe);
        let mut events = [PollFd::new(&stop_pipe, PollFlags::IN), PollFd::new(&children, PollFlags::IN)];
        let _ = poll(&mut events, None);
        let (stopped, child_ended) = (!events[0].revents().is_empty(), !events[1].revents().is_empty());
        if child_ended {
            let mut info = [0_u8; 128];
            let _ = rustix::io::read(&children, &mut info);
            while let Ok(Some((pid, status))) = reap_child() {
                if pid == command {
                    plan.report.end(status);
                }
            }
        }
        if stopped || child_ended && (plan.report.has_ended.load(SeqCst) == 1 || plan.report.has_failed()) {
            break;
        }
    }
    // The kernel kills all processes of a PID namespace when this process, its first, ends.
    if plan.namespace.is_none() {
        kill_all(command, &children);
    }
    plan.report.live_pid.store(0, SeqCst);
    Ok(())
}

/// The pause before the list of children is read again.
const KILL_RETRY_INTERVAL: rustix::time::Timespec = rustix::time::Timespec { tv_sec: 0, tv_nsec: 10_000_000 };

/// Kills children until there are none.
///
/// The children of a killed process become children of this one, so no process can hide longer than its parent lives, and
/// "no children" means that no process is left, however fast they fork. Whole process groups are killed first, since all
/// their processes die at once.
fn kill_all(command: Pid, children: &OwnedFd) {
    let _ = kill_process_group(command, Signal::KILL);
    loop {
        loop {
            match reap_child() {
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(Errno::INTR) => {}
                Err(_) => return,
            }
        }
        if for_each_child(|child| {
            let _ = kill_process_group(child, Signal::KILL);
            let _ = kill_process(child, Signal::KILL);
        })
        .is_err()
        {
            // Without the list, only the command itself can be killed. That the list exists is checked when a sandbox is opened.
            let _ = kill_process(command, Signal::KILL);
        }
        // Not every child sends SIGCHLD when it ends, hence the timeout.
        let _ = poll(&mut [PollFd::new(children, PollFlags::IN)], Some(&KILL_RETRY_INTERVAL));
        let _ = rustix::io::read(children, &mut [0_u8; 128]);
    }
}

/// Reaps a child that has ended, if there is one. Fails if there are no children.
fn reap_child() -> Result<Option<(Pid, WaitStatus)>, Errno> {
    wait(WaitOptions::NOHANG | WaitOptions::from_bits_retain(ANY_CHILD))
}

/// The list of the children of this process.
pub(crate) const CHILDREN: &CStr = c"/proc/thread-self/children";

/// Calls a function with each child of this process. Nothing is allocated.
fn for_each_child(mut each: impl FnMut(Pid)) -> Result<(), Errno> {
    let list = rustix::fs::open(CHILDREN, rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC, Mode::empty())?;
    let (mut buffer, mut number) = ([0_u8; 1024], 0_i32);
    loop {
        let read = rustix::io::read(&list, &mut buffer)?;
        if read == 0 {
            return Ok(());
        }
        for byte in buffer.iter().take(read) {
            match byte {
                b'0'..=b'9' => number = number.wrapping_mul(10).wrapping_add(i32::from(byte - b'0')),
                _ => {
                    if let Some(pid) = Pid::from_raw(std::mem::take(&mut number)) {
                        each(pid);
                    }
                }
            }
        }
    }
}

/// Installs stdin, stdout and stderr, and closes all descriptors that are not needed: pipes of other commands must not stay
/// open here.
fn set_up_descriptors(plan: &SpawnPlan) -> Result<(), Errno> {
    let [stdin, stdout, stderr] = plan.stdio.map(borrow);
    rustix::stdio::dup2_stdin(stdin)?;
    rustix::stdio::dup2_stdout(stdout)?;
    rustix::stdio::dup2_stderr(stderr)?;
    let cwd = match plan.cwd {
        Cwd::Open(fd) => fd,
        Cwd::InWorkspace(_) => plan.stop_pipe,
    };
    // Goes through the descriptors that stay, from the lowest up, and closes the gap before each.
    let mut from = 3;
    loop {
        let next = plan
            .cgroups
            .iter()
            .copied()
            .chain([plan.stop_pipe, cwd])
            .chain(plan.proxy_socket)
            .filter(|fd| *fd >= from)
            .min();
        match next {
            Some(fd) if fd > from => close_range(from, fd - 1)?,
            Some(_) => {}
            None => return close_range(from, RawFd::MAX),
        }
        from = next.unwrap_or(from) + 1;
    }
}

#[allow(unsafe_code, reason = "rustix has no call for it")]
fn close_range(first: RawFd, last: RawFd) -> Result<(), Errno> {
    // SAFETY: the call takes numbers only. The descriptor table is not shared with this program (no `CLONE_FILES`), and no
    // value in this process owns a descriptor in the range.
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    if result == 0 { Ok(()) } else { Err(last_errno()) }
}

/// Resets all signals to their defaults, and returns a descriptor that is readable when a child has ended.
#[allow(unsafe_code, reason = "rustix has no call for signals")]
fn child_signalfd() -> Result<OwnedFd, Errno> {
    // SAFETY: both structures are plain data and initialised. Signal handlers are not shared with this program (no
    // `CLONE_SIGHAND`). `sigaction` fails without effect for signals that cannot be changed. The descriptor is new.
    unsafe {
        let mut default: libc::sigaction = std::mem::zeroed();
        default.sa_sigaction = libc::SIG_DFL;
        for signal in (1..=31).filter(|signal| ![libc::SIGKILL, libc::SIGSTOP].contains(signal)) {
            libc::sigaction(signal, &default, std::ptr::null_mut());
        }
        for signal in libc::SIGRTMIN()..=libc::SIGRTMAX() {
            libc::sigaction(signal, &default, std::ptr::null_mut());
        }
        let mut child: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut child);
        libc::sigaddset(&mut child, libc::SIGCHLD);
        match libc::signalfd(-1, &child, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) {
            fd if fd >= 0 => Ok(OwnedFd::from_raw_fd(fd)),
            _ => Err(last_errno()),
        }
    }
}

/// Clones the process that becomes the command. This process is suspended until that one has called `execve` or ended.
#[allow(unsafe_code, reason = "there is no safe way to clone a process")]
fn clone_command(shared: &SupervisorMemory) -> Result<Pid, Errno> {
    let stack = &shared.stacks[1];
    let end = stack.as_ptr().wrapping_add(stack.capacity());
    let top = end.wrapping_sub(end as usize % 64).cast_mut().cast();
    let plan = std::ptr::from_ref(&shared.plan).cast_mut().cast();
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: the stack is used by this process only, and the plan is not changed (except its atomics). All signals are
    // blocked, and none has a handler.
    let id = unsafe { libc::clone(command_main, top, flags, plan) };
    if id < 0 { Err(last_errno()) } else { Pid::from_raw(id).ok_or(Errno::AGAIN) }
}

/// The entry point of the process that becomes the command.
extern "C" fn command_main(plan: *mut c_void) -> c_int {
    #[allow(unsafe_code, reason = "clone passes a raw pointer")]
    // SAFETY: the pointer is to the plan that `clone_command` was given, which outlives this process.
    let plan = unsafe { &*plan.cast::<SpawnPlan>() };
    plan.report.fail(become_command(plan));
    127
}

/// Applies the limits and the confinement, and executes the program. Returns only on failure.
fn become_command(plan: &SpawnPlan) -> SpawnFailure {
    let prepare = || {
        let _ = setsid();
        if plan.namespace.is_none() {
            // If the supervisor is killed from outside, the command dies too, and `kill_orphans` needs its process group. The
            // PID is stored here, since the supervisor may be killed before it could store it.
            plan.report.live_pid.store(rustix::process::getpid().as_raw_nonzero().get(), SeqCst);
            let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
        }
        for group in &plan.cgroups {
            rustix::io::write(borrow(*group), b"0").map_err(|errno| (SpawnStep::Group, errno))?;
        }
        for (resource, limit) in &plan.rlimits {
            setrlimit(*resource, *limit).map_err(|errno| (SpawnStep::Limit, errno))?;
        }
        match (&plan.cwd, &plan.namespace) {
            (Cwd::Open(fd), _) => rustix::process::fchdir(borrow(*fd)),
            (Cwd::InWorkspace(path), Some(namespace)) => namespace.change_directory(path),
            (Cwd::InWorkspace(path), None) => rustix::process::chdir(&**path),
        }
        .map_err(|errno| (SpawnStep::Directory, errno))?;
        plan.confinement.as_ref().map_or(Ok(()), |confinement| confinement.apply())
    };
    match prepare() {
        Ok(()) => (SpawnStep::Program, execute(plan)),
        Err(failure) => failure,
    }
}

#[allow(unsafe_code, reason = "rustix has no public call for it")]
fn execute(plan: &SpawnPlan) -> Errno {
    // SAFETY: the mask is initialised. Every signal has its default action, so a pending signal runs no handler.
    unsafe {
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
    }
    let mut error = Errno::NOENT;
    for program in &plan.programs {
        // Checking first keeps the usual failure out of `errno`, which belongs to the thread that called `clone`.
        match rustix::fs::access(&**program, rustix::fs::Access::EXEC_OK) {
            Ok(()) => {
                // SAFETY: the path is null-terminated, both arrays end with a null pointer, and all live as long as the plan.
                unsafe { libc::execve(program.as_ptr(), plan.argv.pointers.as_ptr(), plan.env.pointers.as_ptr()) };
                error = last_errno();
            }
            // As in a shell, "permission denied" is reported if no other directory has the program.
            Err(Errno::NOENT | Errno::NOTDIR) => {}
            Err(errno) => error = errno,
        }
    }
    error
}

#[allow(unsafe_code, reason = "a plan holds raw descriptors")]
fn borrow(fd: RawFd) -> BorrowedFd<'static> {
    // SAFETY: the descriptors of a plan stay open until the supervisor closes them, after their last use.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

/// Returns the error of the last libc call.
pub(crate) fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}
