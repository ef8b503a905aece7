//! System calls, and what the compiler expects of a C library.

use core::arch::asm;

/// The numbers of the system calls that are used.
pub mod number {
    pub const READ: usize = 0;
    pub const WRITE: usize = 1;
    pub const OPEN: usize = 2;
    pub const CLOSE: usize = 3;
    pub const POLL: usize = 7;
    pub const MMAP: usize = 9;
    pub const SIGACTION: usize = 13;
    pub const SIGPROCMASK: usize = 14;
    pub const NANOSLEEP: usize = 35;
    pub const SOCKET: usize = 41;
    pub const CONNECT: usize = 42;
    pub const RECVMSG: usize = 47;
    pub const FORK: usize = 57;
    pub const EXECVE: usize = 59;
    pub const WAIT4: usize = 61;
    pub const KILL: usize = 62;
    pub const CHDIR: usize = 80;
    pub const SETSID: usize = 112;
    pub const PRCTL: usize = 157;
    pub const EXIT_GROUP: usize = 231;
    pub const SIGNALFD4: usize = 289;
    pub const DUP3: usize = 292;
    pub const PIPE2: usize = 293;
}

pub const ENOENT: isize = 2;
pub const EINTR: isize = 4;
pub const EACCES: isize = 13;
pub const ENOTDIR: isize = 20;
pub const SIGKILL: usize = 9;
pub const SIGCHLD: usize = 17;
pub const CLOEXEC: usize = 0o2000000;
pub const WNOHANG: usize = 1;
/// Waits for children of every kind.
pub const WAIT_ALL: usize = 0x4000_0000;

pub fn call(number: usize, a: usize, b: usize, c: usize, d: usize, e: usize) -> isize {
    let result: isize;
    // SAFETY: the callers pass pointers to memory that lives as long as the call, with its size.
    unsafe {
        asm!("syscall", inlateout("rax") number as isize => result, in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d,
             in("r8") e, in("r9") 0_usize, lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    result
}

pub fn exit(code: usize) -> ! {
    loop {
        call(number::EXIT_GROUP, code, 0, 0, 0, 0);
    }
}

pub fn close(fd: usize) {
    call(number::CLOSE, fd, 0, 0, 0, 0);
}

pub fn read(fd: usize, buffer: &mut [u8]) -> isize {
    loop {
        let read = call(number::READ, fd, buffer.as_mut_ptr() as usize, buffer.len(), 0, 0);
        if read != -EINTR {
            return read;
        }
    }
}

/// Fills the buffer. Returns false if the stream ends before.
pub fn read_all(fd: usize, buffer: &mut [u8]) -> bool {
    let mut done = 0;
    while done < buffer.len() {
        match read(fd, &mut buffer[done..]) {
            count if count > 0 => done += count as usize,
            _ => return false,
        }
    }
    true
}

/// # Safety
///
/// As that of C.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, length: usize) -> *mut u8 {
    // SAFETY: the caller passes memory of that length.
    unsafe {
        asm!("rep movsb", inout("rcx") length => _, inout("rdi") to => _, inout("rsi") from => _, options(nostack))
    };
    to
}

/// # Safety
///
/// As that of C.
#[unsafe(no_mangle)]
unsafe extern "C" fn memset(to: *mut u8, byte: i32, length: usize) -> *mut u8 {
    // SAFETY: the caller passes memory of that length.
    unsafe { asm!("rep stosb", inout("rcx") length => _, inout("rdi") to => _, in("al") byte as u8, options(nostack)) };
    to
}

/// Named by the part of the core library that unwinds. A panic ends this program.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}
