//! A tag that every process of a command carries, by which they are found if their supervisor is killed or stopped.
//!
//! The tag is a limit on real-time processor time (`RLIMIT_RTTIME`) of tens of thousands of years: a number that no process
//! reaches, that every process inherits, daemons included, and that every process can be asked for. A process group or an
//! environment variable would be lost with `setsid` or `env -i`.

use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Resource, Rlimit, Signal, getrlimit, pidfd_open, pidfd_send_signal};

use super::last_errno;

/// A number that the processes of one command have in common, and no others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProcessTag(u64);

/// The largest tag: not the number that stands for no limit.
const MAX_TAG: u64 = 1 << 62;
/// The number of bits that tell tags apart. A command that runs this program again has a smaller tag for each level.
const RANDOM_BITS: u32 = 40;
/// The time for which processes are looked for and killed, at most.
const MAX_KILL_TIME: Duration = Duration::from_secs(5);
/// The number of passes in a row that find no process, after which there is none.
const QUIET_PASSES: u32 = 4;
/// The pause between two passes.
const PASS_INTERVAL: Duration = Duration::from_millis(2);
/// The time of a pass in which new processes are looked at as soon as they have a number, since the last that was killed.
const WATCH_TIME: Duration = Duration::from_millis(3);
/// The time of a pass in which new processes are looked at.
const MAX_WATCH_TIME: Duration = Duration::from_millis(50);
/// The number of the newest processes that are looked at again and again. A number is given before its process can be found.
const WATCHED_NUMBERS: i32 = 6;
/// The most numbers between two looks that are looked at one by one.
const MAX_UNSEEN_NUMBERS: i32 = 256;

/// The result of looking at one number of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    /// A process with the tag, which was killed.
    Tagged,
    /// Another process, or one that has ended, or a thread.
    Other,
    /// No process: not yet, or no longer.
    Missing,
}

impl ProcessTag {
    /// Makes a tag; none if this program is limited itself, so that there are no numbers left.
    pub(super) fn new() -> Option<Self> {
        let own = getrlimit(Resource::Rttime).maximum.unwrap_or(MAX_TAG).min(MAX_TAG);
        let random = RandomState::new().build_hasher().finish() >> (u64::BITS - RANDOM_BITS);
        own.checked_sub(1 << RANDOM_BITS)
            .filter(|least| *least > 1 << RANDOM_BITS)
            .map(|least| ProcessTag(least + random))
    }

    /// Returns the limit that carries the tag.
    pub(super) fn rlimit(self) -> (Resource, Rlimit) {
        (Resource::Rttime, Rlimit { current: Some(self.0), maximum: Some(self.0) })
    }

    /// Kills all processes with the tag, and those that they start meanwhile.
    ///
    /// A process that forks and exits has another number whenever it is looked for. So a pass also follows the numbers that the
    /// kernel gives, and is quiet only if each process that it knows of was seen to be without the tag.
    pub(super) fn kill_all(self) {
        let start = Instant::now();
        let mut quiet_passes = 0;
        let newest = NewestNumber::open();
        while quiet_passes < QUIET_PASSES && start.elapsed() < MAX_KILL_TIME {
            let before = newest.read().unwrap_or_default();
            let is_quiet = self.kill_listed() & self.kill_newest(before, &newest);
            quiet_passes = if is_quiet { quiet_passes + 1 } else { 0 };
            std::thread::sleep(PASS_INTERVAL);
        }
    }

    /// Kills the processes in the list of the kernel. Returns true if none of them has the tag.
    fn kill_listed(self) -> bool {
        let mut is_quiet = true;
        for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
            is_quiet &= number.is_none_or(|number| self.look(number) != Look::Tagged);
        }
        is_quiet
    }

    /// Kills processes that are newer than a number, for a moment. Returns true if all that began meanwhile were seen, and have no
    /// tag.
    fn kill_newest(self, mut seen: i32, newest: &NewestNumber) -> bool {
        let (start, mut last_killed, mut is_quiet) = (Instant::now(), Instant::now(), true);
        while last_killed.elapsed() < WATCH_TIME && start.elapsed() < MAX_WATCH_TIME {
            let Some(last) = newest.read() else { return false };
            // The numbers begin anew after the largest. Those that are left out here are in the list of the next pass.
            let is_complete = (0..=MAX_UNSEEN_NUMBERS).contains(&(last - seen));
            let first = if is_complete { seen + 1 } else { last - MAX_UNSEEN_NUMBERS };
            is_quiet &= is_complete;
            // The newest first: it has had the least time to fork.
            for number in (first.min(last - WATCHED_NUMBERS).max(1)..=last).rev() {
                let look = self.look(number);
                if look == Look::Tagged {
                    last_killed = Instant::now();
                }
                is_quiet &= look != Look::Tagged && (number < first || look != Look::Missing);
            }
            seen = last;
        }
        is_quiet
    }

    /// Looks at the process with a number, and kills it if it has the tag.
    fn look(self, number: i32) -> Look {
        let Some(pid) = Pid::from_raw(number) else { return Look::Other };
        // Opened before it is looked at: later the number may be that of another process.
        let process = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(process) => process,
            Err(Errno::SRCH) => return Look::Missing,
            Err(_) => return Look::Other,
        };
        match limit_of(number) {
            Ok(limit) if limit == self.0 => {}
            // A program that runs as its owner, which can be killed and not be asked.
            Err(Errno::PERM) if self.is_listed_for(number) => {}
            Err(Errno::SRCH) => return Look::Missing,
            Ok(_) | Err(_) => return Look::Other,
        }
        let _ = pidfd_send_signal(&process, Signal::KILL);
        // A process that has ended and that its parent has not reaped cannot be killed.
        let has_ended = poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&Timespec::default())) == Ok(1);
        if has_ended { Look::Other } else { Look::Tagged }
    }

    /// Returns true if the list of limits of a process, which all users can read, has the tag.
    fn is_listed_for(self, number: i32) -> bool {
        let limits = std::fs::read_to_string(format!("/proc/{number}/limits")).unwrap_or_default();
        let line = limits.lines().find(|line| line.starts_with("Max realtime timeout")).unwrap_or_default();
        line.split_whitespace().any(|word| word == self.0.to_string())
    }
}

/// The number that the kernel gave last, to a process or a thread.
struct NewestNumber(Option<File>);

impl NewestNumber {
    fn open() -> Self {
        NewestNumber(File::open("/proc/loadavg").ok())
    }

    fn read(&self) -> Option<i32> {
        let mut line = [0; 128];
        let length = self.0.as_ref()?.read_at(&mut line, 0).ok()?;
        std::str::from_utf8(&line[..length]).ok()?.split_whitespace().last()?.parse().ok()
    }
}

/// Returns the limit of a process that carries the tag.
#[allow(unsafe_code, reason = "rustix can set the limits of another process, and not read them alone")]
fn limit_of(number: i32) -> Result<u64, Errno> {
    let mut limit = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: nothing is set, and `limit` has the layout of the kernel's structure.
    let result = unsafe { libc::prlimit64(number, libc::RLIMIT_RTTIME, std::ptr::null(), &raw mut limit) };
    if result == 0 { Ok(limit.rlim_max) } else { Err(last_errno()) }
}
