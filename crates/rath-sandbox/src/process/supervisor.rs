//! A process between us and a command, which outlives neither and leaves nothing behind.
//!
//! The supervisor is cloned from this process without a copy of its memory, as `posix_spawn` does for a moment: a fork of a
//! large process costs far more than the command. So it runs beside us in our own memory, on a stack of its own, and makes
//! nothing but system calls: it allocates nothing, takes no lock and calls nothing that uses thread-local storage unless the
//! call is lost anyway. All that it needs is prepared in a [`Plan`], which lives until the supervisor has ended.
//!
//! It adopts whatever the command leaves (it is a "child subreaper", or the first process of a PID namespace), so that a
//! daemon that forks twice and starts a session of its own is still below it. When the command ends, or when the pipe that
//! leads here is closed because the call was given up or this process died, it kills until nothing is left, and ends.
//!
//! A control group of its own for each command would do as well, but belongs to those who may make one, moving a process
//! into one takes milliseconds, and none is killed when this process dies.

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

use super::stage::{Failure, Stage};
use crate::Ended;
use crate::isolated::World;

/// All that the supervisor and the command need, prepared before they start.
pub(super) struct Plan {
    /// Where the program may be, in the order in which it is looked for.
    pub(super) programs: Vec<CString>,
    pub(super) argv: Strings,
    pub(super) env: Strings,
    pub(super) cwd: Cwd,
    /// What it reads from, prints on and prints errors on.
    pub(super) stdio: [RawFd; 3],
    /// Closed on our side when the command has to end.
    pub(super) life: RawFd,
    pub(super) rlimits: Vec<(Resource, Rlimit)>,
    /// Where to write that the command belongs to a control group.
    pub(super) groups: Vec<RawFd>,
    pub(super) world: Option<Arc<World>>,
    /// Told by the supervisor.
    pub(super) report: Report,
}

/// Where the command starts.
pub(super) enum Cwd {
    Opened(RawFd),
    /// Relative to the workspace as the command sees it.
    Inside(CString),
}

/// Strings as the kernel wants them.
pub(super) struct Strings {
    pointers: Vec<*const c_char>,
    _strings: Vec<CString>,
}

impl Strings {
    pub(super) fn new(strings: Vec<CString>) -> Self {
        let pointers = strings.iter().map(|string| string.as_ptr()).chain([std::ptr::null()]).collect();
        Strings { pointers, _strings: strings }
    }
}

/// What the supervisor leaves behind.
#[derive(Default)]
pub(super) struct Report {
    stage: AtomicU8,
    errno: AtomicI32,
    code: AtomicI32,
    signal: AtomicI32,
    known: AtomicU8,
    /// The command, while nothing has seen to its end.
    left: AtomicI32,
}

impl Report {
    fn fail(&self, (stage, errno): Failure) {
        self.errno.store(errno.raw_os_error(), SeqCst);
        self.stage.store(stage.number(), SeqCst);
    }

    fn end(&self, status: WaitStatus) {
        self.code.store(status.exit_status().unwrap_or(-1), SeqCst);
        self.signal.store(status.terminating_signal().unwrap_or(0), SeqCst);
        self.known.store(1, SeqCst);
    }

    fn has_failed(&self) -> bool {
        self.stage.load(SeqCst) != 0
    }

    /// How the command ended; none if it was killed before that was known.
    pub(super) fn read(&self) -> Result<Option<Ended>, Failure> {
        if let Some(stage) = Stage::numbered(self.stage.load(SeqCst)) {
            return Err((stage, Errno::from_raw_os_error(self.errno.load(SeqCst))));
        }
        Ok((self.known.load(SeqCst) == 1).then(|| match self.signal.load(SeqCst) {
            0 => Ended::Exit(self.code.load(SeqCst)),
            signal => Ended::Signal(signal),
        }))
    }
}

/// How much room each of the two processes has. Neither needs a tenth of it.
const STACK: usize = 64 * 1024;

/// What is shared with a supervisor that runs.
struct Shared {
    plan: Plan,
    stacks: [Vec<u8>; 2],
}

/// Nobody changes the plan while it is shared, and its pointers lead into itself.
#[allow(unsafe_code, reason = "raw pointers are not Send by themselves")]
// SAFETY: the pointers in `Strings` lead to heap memory that the same value owns and that is never written again.
unsafe impl Send for Shared {}
#[allow(unsafe_code, reason = "raw pointers are not Sync by themselves")]
// SAFETY: as above; what is written while it is shared is atomic.
unsafe impl Sync for Shared {}

/// A supervisor that runs. It ends with this, and with it everything that the command started.
pub(super) struct Supervisor {
    shared: Option<Box<Shared>>,
    life: Option<OwnedFd>,
    /// Readable once it has ended.
    pub(super) pidfd: OwnedFd,
    reaped: bool,
}

impl Supervisor {
    /// Starts the command of a plan. `life` is the other end of the plan's.
    pub(super) fn start(plan: Plan, life: OwnedFd) -> Result<Self, Failure> {
        let stacks = [Vec::with_capacity(STACK), Vec::with_capacity(STACK)];
        let mut shared = Box::new(Shared { plan, stacks });
        let flags = libc::CLONE_VM | libc::CLONE_PIDFD | shared.plan.world.as_ref().map_or(0, |world| world.flags());
        let pidfd = start(&mut shared, flags).map_err(|errno| (Stage::Clone, errno))?;
        Ok(Supervisor { shared: Some(shared), life: Some(life), pidfd, reaped: false })
    }

    /// Tells it to kill everything. It has ended when [`pidfd`](Self::pidfd) is readable.
    pub(super) fn stop(&mut self) {
        self.life = None;
        // The first process of a namespace takes everything in it along, whatever it is doing. Another one must not be
        // killed: it is what knows the rest.
        if self.is_first_of_namespace() {
            let _ = rustix::process::pidfd_send_signal(&self.pidfd, Signal::KILL);
        }
    }

    fn is_first_of_namespace(&self) -> bool {
        self.shared.as_ref().is_some_and(|shared| shared.plan.world.is_some())
    }

    /// How the command ended, once the supervisor has.
    pub(super) fn finish(mut self) -> Result<Option<Ended>, Failure> {
        self.reap();
        self.shared.as_ref().map_or(Ok(None), |shared| shared.plan.report.read())
    }

    fn reap(&mut self) {
        if !self.reaped {
            wait_for(&self.pidfd);
            self.reaped = true;
            if !self.is_first_of_namespace() {
                self.kill_what_is_left();
            }
        }
    }

    /// A supervisor that somebody killed has left its work undone. What is still in the command's own group goes with it;
    /// what is not can no longer be found.
    fn kill_what_is_left(&self) {
        let left = self.shared.as_ref().map_or(0, |shared| shared.plan.report.left.load(SeqCst));
        if let Some(command) = Pid::from_raw(left) {
            let _ = kill_process_group(command, Signal::KILL);
        }
    }
}

/// How long a call that is given up waits for everything to be dead. A process that hangs in the kernel can take longer.
const PATIENCE: rustix::time::Timespec = rustix::time::Timespec { tv_sec: 5, tv_nsec: 0 };

impl Drop for Supervisor {
    fn drop(&mut self) {
        if self.reaped {
            return;
        }
        self.stop();
        let ended = poll(&mut [PollFd::new(&self.pidfd, PollFlags::IN)], Some(&PATIENCE));
        if matches!(ended, Ok(1..)) {
            return self.reap();
        }
        // It still uses what it shares with us, which must not be freed even if nobody can wait for it.
        let shared = ManuallyDrop::new(self.shared.take());
        if let Ok(pidfd) = self.pidfd.try_clone() {
            let _ = std::thread::Builder::new().name("rath-reaper".to_owned()).spawn(move || {
                wait_for(&pidfd);
                drop(ManuallyDrop::into_inner(shared));
            });
        }
    }
}

/// Those count too that send no signal when they end, as the supervisor does: `__WALL`.
const ANY_CHILD: u32 = 0x4000_0000;

fn wait_for(pidfd: &OwnedFd) {
    let options = WaitIdOptions::EXITED | WaitIdOptions::from_bits_retain(ANY_CHILD);
    while let Err(Errno::INTR) = waitid(WaitId::PidFd(pidfd.as_fd()), options) {}
}

/// Clones the supervisor.
#[allow(unsafe_code, reason = "there is no safe way to clone a process")]
fn start(shared: &mut Shared, flags: c_int) -> Result<OwnedFd, Errno> {
    let stack = top(&mut shared.stacks[0]);
    let argument = std::ptr::from_mut(shared).cast::<c_void>();
    let mut pidfd: c_int = -1;
    // SAFETY: the masks are initialised by the calls that take them. The new process runs `supervise` on a stack that is
    // nobody else's, in memory that `Supervisor` keeps until it has ended. All signals are blocked in it for good, so that no
    // handler of this program runs there. No exit signal: whoever waits for any child of this process does not get it.
    let id = unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &all, &mut before);
        let id = libc::clone(supervise, stack, flags, argument, &mut pidfd);
        let error = std::io::Error::last_os_error();
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        if id < 0 {
            return Err(Errno::from_io_error(&error).unwrap_or(Errno::AGAIN));
        }
        id
    };
    debug_assert!(id > 0 && pidfd >= 0);
    // SAFETY: the kernel has just made it, for us alone, and marked it to be closed on exec.
    Ok(unsafe { OwnedFd::from_raw_fd(pidfd) })
}

/// The end of a stack, where it begins, as every architecture wants it aligned.
fn top(stack: &mut Vec<u8>) -> *mut c_void {
    let end = stack.as_mut_ptr().wrapping_add(stack.capacity());
    end.wrapping_sub(end as usize % 64).cast()
}

/// What the supervisor does, from beginning to end.
extern "C" fn supervise(shared: *mut c_void) -> c_int {
    #[allow(unsafe_code, reason = "what comes through clone is a raw pointer")]
    // SAFETY: it is the `Shared` that `start` was given, which nobody changes or frees until this process has ended. Its
    // second stack is used by one process at a time.
    let shared = unsafe { &*shared.cast::<Shared>() };
    let plan = &shared.plan;
    match watch(shared) {
        Ok(()) => 0,
        Err(failure) => {
            plan.report.fail(failure);
            1
        }
    }
}

fn watch(shared: &Shared) -> Result<(), Failure> {
    let plan = &shared.plan;
    let _ = setsid();
    let descriptors = |errno| (Stage::Descriptors, errno);
    take_descriptors(plan).map_err(descriptors)?;
    let children = children_end().map_err(descriptors)?;
    match &plan.world {
        Some(world) => world.enter()?,
        None => rustix::process::set_child_subreaper(Some(Pid::INIT)).map_err(|errno| (Stage::Start, errno))?,
    }
    let command = begin(shared).map_err(|errno| (Stage::Start, errno))?;
    // What is ours alone must not look as if the command still held it.
    let _ = close(0, 2);
    loop {
        let life = borrow(plan.life);
        let mut events = [PollFd::new(&life, PollFlags::IN), PollFd::new(&children, PollFlags::IN)];
        let _ = poll(&mut events, None);
        let (told, ended) = (!events[0].revents().is_empty(), !events[1].revents().is_empty());
        if ended {
            let mut info = [0_u8; 128];
            let _ = rustix::io::read(&children, &mut info);
            while let Ok(Some((pid, status))) = next_dead() {
                if pid == command {
                    plan.report.end(status);
                }
            }
        }
        if told || ended && (plan.report.known.load(SeqCst) == 1 || plan.report.has_failed()) {
            break;
        }
    }
    // In a namespace of its own everything dies with its first process.
    if plan.world.is_none() {
        kill_all(command, &children);
    }
    plan.report.left.store(0, SeqCst);
    Ok(())
}

const MOMENT: rustix::time::Timespec = rustix::time::Timespec { tv_sec: 0, tv_nsec: 10_000_000 };

/// Kills until there is nothing left to adopt.
///
/// What a killed process had started becomes a child of this one, so nothing can hide for longer than its parent lives, and
/// "no children" means that nothing is left, however fast it forks. Whole process groups go first: they die at once.
fn kill_all(command: Pid, children: &OwnedFd) {
    let _ = kill_process_group(command, Signal::KILL);
    loop {
        loop {
            match next_dead() {
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
            // Without the list there is only the command itself to kill; it was checked when the sandbox was opened.
            let _ = kill_process(command, Signal::KILL);
        }
        // Not every child tells when it ends.
        let _ = poll(&mut [PollFd::new(children, PollFlags::IN)], Some(&MOMENT));
        let _ = rustix::io::read(children, &mut [0_u8; 128]);
    }
}

/// A child that has ended, if there is one; an error if there are no children at all.
fn next_dead() -> Result<Option<(Pid, WaitStatus)>, Errno> {
    wait(WaitOptions::NOHANG | WaitOptions::from_bits_retain(ANY_CHILD))
}

/// The list of this process's children.
pub(crate) const CHILDREN: &CStr = c"/proc/thread-self/children";

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

/// Makes what the command reads and prints on its first three descriptors, and closes all that are not needed: others'
/// pipes must not stay open here.
fn take_descriptors(plan: &Plan) -> Result<(), Errno> {
    let [stdin, stdout, stderr] = plan.stdio.map(borrow);
    rustix::stdio::dup2_stdin(stdin)?;
    rustix::stdio::dup2_stdout(stdout)?;
    rustix::stdio::dup2_stderr(stderr)?;
    let opened = match plan.cwd {
        Cwd::Opened(fd) => fd,
        Cwd::Inside(_) => plan.life,
    };
    // All that is kept, from the lowest up: each time the gap before it is closed.
    let mut from = 3;
    loop {
        let kept = plan.groups.iter().copied().chain([plan.life, opened]).filter(|fd| *fd >= from).min();
        match kept {
            Some(fd) if fd > from => close(from, fd - 1)?,
            Some(_) => {}
            None => return close(from, RawFd::MAX),
        }
        from = kept.unwrap_or(from) + 1;
    }
}

#[allow(unsafe_code, reason = "rustix has no call for it")]
fn close(first: RawFd, last: RawFd) -> Result<(), Errno> {
    // SAFETY: it takes three numbers; this process has no other owner of a descriptor in that range.
    let done = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    if done == 0 { Ok(()) } else { Err(last_errno()) }
}

/// A descriptor that is readable when a child has ended. Every signal starts from its default from here on.
#[allow(unsafe_code, reason = "rustix has no call for signals")]
fn children_end() -> Result<OwnedFd, Errno> {
    // SAFETY: both structures are plain data and initialised; handlers belong to this process alone, since they are not
    // shared by clone. A signal whose handling cannot be changed is left as it is.
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

/// Starts the command. This process stands still until the other has become the program or has given up.
#[allow(unsafe_code, reason = "there is no safe way to clone a process")]
fn begin(shared: &Shared) -> Result<Pid, Errno> {
    let stack = &shared.stacks[1];
    let end = stack.as_ptr().wrapping_add(stack.capacity());
    let top = end.wrapping_sub(end as usize % 64).cast_mut().cast();
    let plan = std::ptr::from_ref(&shared.plan).cast_mut().cast();
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: the stack is used for nothing else, and the plan is not changed. All signals are blocked, and nothing handles
    // any.
    let id = unsafe { libc::clone(command, top, flags, plan) };
    if id < 0 { Err(last_errno()) } else { Pid::from_raw(id).ok_or(Errno::AGAIN) }
}

/// Becomes the command.
extern "C" fn command(plan: *mut c_void) -> c_int {
    #[allow(unsafe_code, reason = "what comes through clone is a raw pointer")]
    // SAFETY: it is the plan that `begin` was given, which outlives this process.
    let plan = unsafe { &*plan.cast::<Plan>() };
    plan.report.fail(become_command(plan));
    127
}

/// Comes back only if something went wrong.
fn become_command(plan: &Plan) -> Failure {
    let prepared = || {
        let _ = setsid();
        if plan.world.is_none() {
            // Should somebody kill the supervisor, at least the command goes with it, and its group is known: the supervisor
            // may have been killed before it could say so.
            plan.report.left.store(rustix::process::getpid().as_raw_nonzero().get(), SeqCst);
            let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
        }
        for group in &plan.groups {
            rustix::io::write(borrow(*group), b"0").map_err(|errno| (Stage::Group, errno))?;
        }
        for (resource, limit) in &plan.rlimits {
            setrlimit(*resource, *limit).map_err(|errno| (Stage::Limit, errno))?;
        }
        match (&plan.cwd, &plan.world) {
            (Cwd::Opened(fd), _) => rustix::process::fchdir(borrow(*fd)),
            (Cwd::Inside(path), Some(world)) => world.change_directory(path),
            (Cwd::Inside(path), None) => rustix::process::chdir(&**path),
        }
        .map_err(|errno| (Stage::Directory, errno))?;
        plan.world.as_ref().map_or(Ok(()), |world| world.confine())
    };
    match prepared() {
        Ok(()) => (Stage::Program, execute(plan)),
        Err(failure) => failure,
    }
}

#[allow(unsafe_code, reason = "rustix has no public call for it")]
fn execute(plan: &Plan) -> Errno {
    // SAFETY: the mask is initialised; every signal has its default, so what is pending ends this process or nothing.
    unsafe {
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
    }
    let mut why = Errno::NOENT;
    for program in &plan.programs {
        // Looking first keeps the usual failure away from `errno`, which we share with the thread that called.
        match rustix::fs::access(&**program, rustix::fs::Access::EXEC_OK) {
            Ok(()) => {
                // SAFETY: all three are terminated as they have to be, and live as long as the plan.
                unsafe { libc::execve(program.as_ptr(), plan.argv.pointers.as_ptr(), plan.env.pointers.as_ptr()) };
                why = last_errno();
            }
            // As a shell does: what may not be run is said if nothing better is found.
            Err(Errno::NOENT | Errno::NOTDIR) => {}
            Err(errno) => why = errno,
        }
    }
    why
}

#[allow(unsafe_code, reason = "a number becomes a descriptor again")]
fn borrow(fd: RawFd) -> BorrowedFd<'static> {
    // SAFETY: descriptors of a plan stay open until the supervisor closes them itself, after their last use.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

pub(crate) fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}
