//! The first process of a container, which starts its commands and kills all that they leave behind.
//!
//! `build.rs` compiles it for the kernel alone, without a standard library and without a C library, so that it runs in every image.
//! It is started with the path of a socket and a number of seconds:
//!
//! 1. It connects to the socket, on which rath listens. Each message is one byte: `c` comes with four descriptors (the channel of a
//!    command, its stdin, stdout and stderr) and starts a supervisor; `x` ends the container.
//! 2. When the connection ends without an `x`, rath has died: all commands are killed, and it connects again. After the number of seconds
//!    it gives up, and the container ends.
//! 3. A supervisor reads a command from its channel, starts it, and adopts what it leaves behind. When the command ends, and
//!    when the channel ends, the supervisor kills everything that is left, and reports the exit status.
//!
//! A command can kill its supervisor. Its processes then become children of the first process, which kills every child that is not a
//! supervisor; rath sees the end of the channel when that is done. The first process itself cannot be killed from inside.

#![no_std]
#![no_main]

mod kernel;

use core::arch::global_asm;
use core::ptr::null;

use kernel::{
    CLOEXEC, EACCES, EINTR, ENOENT, ENOTDIR, SIGCHLD, SIGKILL, WAIT_ALL, WNOHANG, call, close, exit, number, read,
    read_all,
};

global_asm!(".globl _start", "_start:", "mov rdi, rsp", "and rsp, -16", "call {start}", "ud2", start = sym start);

/// The most commands at the same time.
const MAX_COMMANDS: usize = 1024;
/// The most bytes of a command with its arguments and its environment.
const MAX_COMMAND_BYTES: usize = 16 << 20;
/// The pause between two attempts to reach rath, in nanoseconds.
const CONNECT_INTERVAL_NANOS: u64 = 50_000_000;
const CONNECTS_PER_SECOND: usize = 20;
/// The option of `prctl` that says if other processes can trace this one.
const SET_DUMPABLE: usize = 4;
/// The exit code when an argument is missing or the kernel lacks a part.
const EXIT_UNUSABLE: usize = 120;

/// Sends a report on the channel of a command: its kind and a number.
fn report(channel: usize, kind: u8, value: u32) {
    let value = value.to_le_bytes();
    let message = [kind, value[0], value[1], value[2], value[3]];
    call(number::WRITE, channel, message.as_ptr() as usize, message.len(), 0, 0);
}

/// The supervisors that run, with the channels of their commands.
struct Supervisors {
    pids: [u32; MAX_COMMANDS],
    channels: [u32; MAX_COMMANDS],
    count: usize,
}

impl Supervisors {
    fn add(&mut self, pid: u32, channel: usize) {
        self.pids[self.count] = pid;
        self.channels[self.count] = channel as u32;
        self.count += 1;
    }

    fn position(&self, pid: u32) -> Option<usize> {
        self.pids[..self.count].iter().position(|known| *known == pid)
    }

    fn remove(&mut self, at: usize) -> usize {
        let channel = self.channels[at];
        self.count -= 1;
        self.pids[at] = self.pids[self.count];
        self.channels[at] = self.channels[self.count];
        channel as usize
    }
}

/// Begins with the stack that the kernel made: the number of arguments and pointers to them.
///
/// # Safety
///
/// Called once, by `_start`.
unsafe extern "C" fn start(stack: *const usize) -> ! {
    // SAFETY: the kernel puts the number of arguments there, and then as many pointers.
    let (count, path, seconds) = unsafe { (*stack, *stack.add(2) as *const u8, *stack.add(3) as *const u8) };
    if count != 3 {
        exit(EXIT_UNUSABLE);
    }
    // No command can trace this process, which has the same user.
    call(number::PRCTL, SET_DUMPABLE, 0, 0, 0, 0);
    let mut grace = 0_usize;
    let mut at = 0;
    // SAFETY: an argument ends with a zero.
    while let digit @ b'0'..=b'9' = unsafe { *seconds.add(at) } {
        grace = grace.saturating_mul(10).saturating_add((digit - b'0') as usize);
        at += 1;
    }
    // Signals are read, not handled: a call that waits is never interrupted by one.
    let mask: u64 = 1 << (SIGCHLD - 1);
    call(number::SIGPROCMASK, 0, &raw const mask as usize, 0, 8, 0);
    let signals = call(number::SIGNALFD4, usize::MAX, &raw const mask as usize, 8, CLOEXEC | 0o4000, 0);
    if signals < 0 || call(number::OPEN, CHILDREN.as_ptr() as usize, CLOEXEC, 0, 0, 0) < 0 {
        exit(EXIT_UNUSABLE);
    }
    // The descriptor of the list of children stays open, to be sure that it can be read; each look opens it anew.
    let mut attempts = grace.saturating_mul(CONNECTS_PER_SECOND);
    let mut supervisors = Supervisors { pids: [0; MAX_COMMANDS], channels: [0; MAX_COMMANDS], count: 0 };
    loop {
        let connection = connect(path);
        if connection < 0 {
            if attempts == 0 {
                exit(0);
            }
            attempts -= 1;
            let pause = [0_u64, CONNECT_INTERVAL_NANOS];
            call(number::NANOSLEEP, pause.as_ptr() as usize, 0, 0, 0, 0);
            continue;
        }
        serve(connection as usize, signals as usize, &mut supervisors);
        close(connection as usize);
        // Everything but this process, again until nothing is left.
        loop {
            call(number::KILL, usize::MAX, SIGKILL, 0, 0, 0);
            let pid = call(number::WAIT4, usize::MAX, 0, WAIT_ALL, 0, 0);
            if pid < 0 && pid != -EINTR {
                break;
            }
        }
        while supervisors.count > 0 {
            close(supervisors.remove(0));
        }
        attempts = grace.saturating_mul(CONNECTS_PER_SECOND);
    }
}

/// The list of the children of this process.
const CHILDREN: &[u8] = b"/proc/thread-self/children\0";

/// Connects to the socket at a path. Returns the descriptor, or a negative number.
fn connect(path: *const u8) -> isize {
    let mut address = [0_u8; 110];
    address[0] = 1;
    let mut length = 0;
    loop {
        // SAFETY: an argument ends with a zero.
        let byte = unsafe { *path.add(length) };
        if byte == 0 || length == 107 {
            break;
        }
        address[2 + length] = byte;
        length += 1;
    }
    let socket = call(number::SOCKET, 1, 1 | CLOEXEC, 0, 0, 0);
    if socket >= 0 && call(number::CONNECT, socket as usize, address.as_ptr() as usize, 3 + length, 0, 0) < 0 {
        close(socket as usize);
        return -1;
    }
    socket
}

#[repr(C)]
struct PollFd {
    fd: i32,
    events: i16,
    returned: i16,
}

/// Waits until one of two descriptors can be read. Returns which can.
fn wait_for(one: usize, two: usize) -> (bool, bool) {
    let mut fds =
        [PollFd { fd: one as i32, events: 1, returned: 0 }, PollFd { fd: two as i32, events: 1, returned: 0 }];
    call(number::POLL, fds.as_mut_ptr() as usize, 2, usize::MAX, 0, 0);
    (fds[0].returned != 0, fds[1].returned != 0)
}

#[repr(C)]
struct IoVec {
    base: *mut u8,
    length: usize,
}

#[repr(C)]
struct Message {
    name: *const u8,
    name_length: u32,
    parts: *mut IoVec,
    part_count: usize,
    control: *mut u8,
    control_length: usize,
    flags: i32,
}

/// A control message with four descriptors.
#[repr(C, align(8))]
struct Control {
    length: usize,
    level: i32,
    kind: i32,
    fds: [i32; 4],
}

/// Starts commands until the connection ends. Ends the container when rath asks for it.
fn serve(connection: usize, signals: usize, supervisors: &mut Supervisors) {
    loop {
        let (has_message, has_signal) = wait_for(connection, signals);
        if has_signal {
            reap(signals, supervisors);
        }
        if !has_message {
            continue;
        }
        let mut byte = [0_u8; 1];
        let mut part = IoVec { base: byte.as_mut_ptr(), length: 1 };
        let mut control = Control { length: 0, level: 0, kind: 0, fds: [-1; 4] };
        let mut message = Message {
            name: null(),
            name_length: 0,
            parts: &raw mut part,
            part_count: 1,
            control: (&raw mut control).cast(),
            control_length: size_of::<Control>(),
            flags: 0,
        };
        let received = call(number::RECVMSG, connection, &raw mut message as usize, CLOEXEC_MESSAGE, 0, 0);
        if received == -EINTR {
            continue;
        }
        if received <= 0 {
            return;
        }
        if byte[0] == b'x' {
            exit(0);
        }
        if byte[0] != b'c' || control.length != size_of::<Control>() || control.kind != 1 {
            continue;
        }
        let [channel, stdin, stdout, stderr] = control.fds.map(|fd| fd as usize);
        let pid = if supervisors.count < MAX_COMMANDS { call(number::FORK, 0, 0, 0, 0, 0) } else { -1 };
        if pid == 0 {
            close(connection);
            while supervisors.count > 0 {
                close(supervisors.remove(0));
            }
            supervise(channel, stdin, stdout, stderr, signals);
        }
        [stdin, stdout, stderr].into_iter().for_each(close);
        match pid > 0 {
            true => supervisors.add(pid as u32, channel),
            false => {
                report(channel, b'F', (-pid) as u32);
                close(channel);
            }
        }
    }
}

/// Marks received descriptors as those that a program does not inherit.
const CLOEXEC_MESSAGE: usize = 0x4000_0000;

/// Removes ended children. If a supervisor has ended, everything that became a child of this process is killed before its channel ends.
fn reap(signals: usize, supervisors: &mut Supervisors) {
    let mut info = [0_u8; 128];
    while call(number::READ, signals, info.as_mut_ptr() as usize, info.len(), 0, 0) > 0 {}
    let mut ended = [0_u32; MAX_COMMANDS];
    let mut ended_count = 0;
    loop {
        let pid = call(number::WAIT4, usize::MAX, 0, WNOHANG | WAIT_ALL, 0, 0);
        if pid == -EINTR {
            continue;
        }
        if pid > 0 {
            if let Some(at) = supervisors.position(pid as u32) {
                ended[ended_count] = supervisors.remove(at) as u32;
                ended_count += 1;
            }
            continue;
        }
        if ended_count == 0 || kill_children(|child| supervisors.position(child).is_none()) == 0 {
            break;
        }
        // They end soon, and their children come next.
        let pause = [0_u64, 1_000_000];
        call(number::NANOSLEEP, pause.as_ptr() as usize, 0, 0, 0, 0);
    }
    ended[..ended_count].iter().for_each(|channel| close(*channel as usize));
}

/// Kills the children of this process that are chosen. Returns their number.
fn kill_children(is_chosen: impl Fn(u32) -> bool) -> usize {
    let list = call(number::OPEN, CHILDREN.as_ptr() as usize, CLOEXEC, 0, 0, 0);
    if list < 0 {
        exit(EXIT_UNUSABLE);
    }
    let (mut buffer, mut pid, mut killed) = ([0_u8; 4096], 0_u32, 0);
    loop {
        let read = read(list as usize, &mut buffer);
        if read <= 0 {
            break;
        }
        for byte in &buffer[..read as usize] {
            match byte {
                b'0'..=b'9' => pid = pid.wrapping_mul(10).wrapping_add((byte - b'0') as u32),
                _ => {
                    if pid > 1 && is_chosen(pid) {
                        call(number::KILL, pid as usize, SIGKILL, 0, 0, 0);
                        killed += 1;
                    }
                    pid = 0;
                }
            }
        }
    }
    close(list as usize);
    killed
}

/// Runs the command that the channel names, and everything that it leaves behind, to the end.
fn supervise(channel: usize, stdin: usize, stdout: usize, stderr: usize, signals: usize) -> ! {
    const SET_CHILD_SUBREAPER: usize = 36;
    // Other processes of the container cannot open its descriptors or trace it.
    call(number::PRCTL, SET_DUMPABLE, 0, 0, 0, 0);
    let adopts = call(number::PRCTL, SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    let Some(command) = CommandText::read(channel) else { exit(0) };
    let mut pipe = [0_i32; 2];
    if adopts < 0 || call(number::PIPE2, pipe.as_mut_ptr() as usize, CLOEXEC, 0, 0, 0) < 0 {
        exit(EXIT_UNUSABLE);
    }
    let [errors, error_end] = pipe.map(|fd| fd as usize);
    let child = call(number::FORK, 0, 0, 0, 0, 0);
    if child == 0 {
        become_command(&command, [stdin, stdout, stderr], error_end);
    }
    [stdin, stdout, stderr, error_end].into_iter().for_each(close);
    let mut failure = [0_u8; 5];
    if child < 0 {
        report(channel, b'F', (-child) as u32);
        exit(0);
    }
    if read_all(errors, &mut failure) {
        call(number::WAIT4, child as usize, 0, WAIT_ALL, 0, 0);
        call(number::WRITE, channel, failure.as_ptr() as usize, failure.len(), 0, 0);
        exit(0);
    }
    close(errors);
    report(channel, b'R', 0);
    let (mut status, mut has_status) = (0_u32, false);
    while !has_status {
        let (is_stopped, has_signal) = wait_for(channel, signals);
        if is_stopped {
            break;
        }
        if has_signal {
            let mut info = [0_u8; 128];
            call(number::READ, signals, info.as_mut_ptr() as usize, info.len(), 0, 0);
            loop {
                let mut ended = 0_u32;
                let pid = call(number::WAIT4, usize::MAX, &raw mut ended as usize, WNOHANG | WAIT_ALL, 0, 0);
                if pid == child {
                    (status, has_status) = (ended, true);
                }
                if pid <= 0 && pid != -EINTR {
                    break;
                }
            }
        }
    }
    // A process that is killed leaves its children to this one.
    loop {
        let killed = kill_children(|_| true);
        let mut ended = 0_u32;
        let flags = if killed > 0 { WAIT_ALL } else { WAIT_ALL | WNOHANG };
        let pid = call(number::WAIT4, usize::MAX, &raw mut ended as usize, flags, 0, 0);
        if pid == child && !has_status {
            (status, has_status) = (ended, true);
        }
        if pid < 0 && pid != -EINTR {
            break;
        }
    }
    report(channel, b'S', status);
    exit(0)
}

/// A command as rath sends it: three numbers of strings, the directory, and strings that end with a zero.
struct CommandText {
    bytes: &'static [u8],
    /// The pointers to the strings, with a null behind each list.
    pointers: *mut *const u8,
    /// The numbers of paths at which the program may be, and of arguments.
    programs: usize,
    arguments: usize,
}

impl CommandText {
    fn read(channel: usize) -> Option<Self> {
        let mut head = [0_u8; 16];
        if !read_all(channel, &mut head) {
            return None;
        }
        let number = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]) as usize;
        let (length, programs, arguments, variables) = (number(0), number(4), number(8), number(12));
        let count = programs.checked_add(arguments)?.checked_add(variables)?;
        if length == 0 || length > MAX_COMMAND_BYTES || count > length {
            return None;
        }
        let pointer_bytes = (count + 3) * size_of::<usize>();
        const READ_WRITE: usize = 3;
        const PRIVATE_ANONYMOUS: usize = 0x22;
        let map = |length| call_mmap(length, READ_WRITE, PRIVATE_ANONYMOUS);
        let (text, pointers) = (map(length), map(pointer_bytes));
        if text < 0 || pointers < 0 {
            return None;
        }
        // SAFETY: the kernel has just mapped as many bytes there, for this process alone.
        let bytes = unsafe { core::slice::from_raw_parts_mut(text as *mut u8, length) };
        if !read_all(channel, bytes) || bytes[length - 1] != 0 {
            return None;
        }
        let command = CommandText { bytes, pointers: pointers as *mut *const u8, programs, arguments };
        // Behind the directory.
        let mut at = command.end_of(0)?;
        let mut slot = 0;
        for list in [programs, arguments, variables] {
            for _ in 0..list {
                // SAFETY: there is a slot for each string and for the null behind each list.
                unsafe { *command.pointers.add(slot) = command.bytes.as_ptr().add(at) };
                at = command.end_of(at)?;
                slot += 1;
            }
            // SAFETY: as above.
            unsafe { *command.pointers.add(slot) = null() };
            slot += 1;
        }
        Some(command)
    }

    /// Returns the position behind the string at a position.
    fn end_of(&self, at: usize) -> Option<usize> {
        Some(at + self.bytes.get(at..)?.iter().position(|byte| *byte == 0)? + 1)
    }
}

fn call_mmap(length: usize, protection: usize, flags: usize) -> isize {
    // The descriptor is not used, and the sixth argument is zero.
    call(number::MMAP, 0, length, protection, flags, usize::MAX)
}

/// Becomes the command. Sends the failed step and the error number otherwise.
fn become_command(command: &CommandText, stdio: [usize; 3], errors: usize) -> ! {
    let fail = |step: u8, error: isize| -> ! {
        report(errors, step, (-error) as u32);
        exit(0)
    };
    call(number::SETSID, 0, 0, 0, 0, 0);
    for (number, fd) in stdio.into_iter().enumerate() {
        // The received descriptors are above these three, which the engine opened.
        let copied = call(number::DUP3, fd, number, 0, 0, 0);
        if copied < 0 {
            fail(b'F', copied);
        }
    }
    let entered = call(number::CHDIR, command.bytes.as_ptr() as usize, 0, 0, 0, 0);
    if entered < 0 {
        fail(b'D', entered);
    }
    // The default action of every signal, and none blocked.
    let action = [0_usize; 4];
    for signal in 1..=64 {
        call(number::SIGACTION, signal, action.as_ptr() as usize, 0, 8, 0);
    }
    let mask = 0_u64;
    call(number::SIGPROCMASK, 2, &raw const mask as usize, 0, 8, 0);
    let mut error = -ENOENT;
    for nth in 0..command.programs {
        // SAFETY: the lists follow each other, each with a null behind it.
        let (program, arguments, variables) = unsafe {
            let arguments = command.pointers.add(command.programs + 1);
            (*command.pointers.add(nth), arguments, arguments.add(command.arguments + 1))
        };
        match call(number::EXECVE, program as usize, arguments as usize, variables as usize, 0, 0) {
            failed if failed == -ENOENT || failed == -ENOTDIR => {}
            // Another directory may have a program that can be run.
            failed if failed == -EACCES => error = failed,
            failed => fail(b'P', failed),
        }
    }
    fail(b'P', error)
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    exit(EXIT_UNUSABLE + 1)
}
