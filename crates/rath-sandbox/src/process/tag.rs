//! A tag that every process of a command carries, by which they are found if their supervisor is killed or stopped.
//!
//! The tag is a limit on real-time processor time (`RLIMIT_RTTIME`) of tens of thousands of years: a number that no process
//! reaches, that every process inherits, daemons included, and that every process can be asked for. A process group or an
//! environment variable would be lost with `setsid` or `env -i`.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Resource, Rlimit, Signal, getrlimit, pidfd_open, pidfd_send_signal};

/// A number that the processes of one command have in common, and no others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProcessTag(u64);

/// The largest tag: not the number that stands for no limit.
const MAX_TAG: u64 = 1 << 62;
/// The number of bits that tell tags apart. A command that runs this program again has a smaller tag for each level.
const RANDOM_BITS: u32 = 40;
/// The pause before the processes are listed again.
const KILL_RETRY_INTERVAL: Duration = Duration::from_millis(5);
/// The number of times that the processes are listed. Each time all that are found are killed.
const MAX_KILL_PASSES: usize = 1000;

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
    pub(super) fn kill_all(self) {
        for _ in 0..MAX_KILL_PASSES {
            let mut found = false;
            for process in self.processes() {
                found = true;
                let _ = pidfd_send_signal(&process, Signal::KILL);
            }
            if !found {
                return;
            }
            std::thread::sleep(KILL_RETRY_INTERVAL);
        }
    }

    /// Lists the processes that have the tag, except those that have ended.
    fn processes(self) -> impl Iterator<Item = OwnedFd> {
        let tag = self.0.to_string();
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        entries.filter_map(move |entry| {
            let pid = entry.file_name().to_str()?.parse().ok().and_then(Pid::from_raw)?;
            // Opened before it is looked at: later the number may be that of another process.
            let process = pidfd_open(pid, PidfdFlags::empty()).ok()?;
            let limits = std::fs::read_to_string(entry.path().join("limits")).ok()?;
            let line = limits.lines().find(|line| line.starts_with("Max realtime timeout"))?;
            let has_tag = line.split_whitespace().any(|word| word == tag);
            // A process that has ended and that its parent has not reaped cannot be killed.
            let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
            let has_ended = stat.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with(['Z', 'X']));
            (has_tag && !has_ended).then_some(process)
        })
    }
}
