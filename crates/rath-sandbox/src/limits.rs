//! Limits on the resources of commands, and their enforcement.

use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::process::{Resource, Rlimit};

use super::capabilities::{Limit, Mechanism};
use super::cgroups::Cgroups;
use crate::error::{Error, ErrorKind, Result};

/// The requested limits.
///
/// Returned by [`UriOptions::limits`](crate::backend::UriOptions::limits).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of memory: of all processes of the sandbox in a control group, otherwise of each process.
    pub memory: Option<u64>,
    /// Processes and threads at the same time.
    pub processes: Option<u64>,
    /// Bytes of each file that is written.
    pub file_size: Option<u64>,
    /// Processor time of each process.
    pub cpu_time: Option<Duration>,
}

/// The limits that are in force.
pub(crate) struct ActiveLimits {
    cgroups: Option<Cgroups>,
    pub(crate) rlimits: Vec<(Resource, Rlimit)>,
    /// The highest PID in the namespace of a command.
    pub(crate) pid_max: Option<u64>,
    pub(crate) memory: Option<Limit>,
    pub(crate) processes: Option<Limit>,
    pub(crate) file_size: Option<Limit>,
    pub(crate) cpu_time: Option<Limit>,
}

/// The PID namespace that commands run in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PidScope {
    /// That of this program.
    Host,
    /// A new one for each command.
    Namespace,
}

impl Limits {
    /// Sets up each limit with the best mechanism of this machine. Fails if there is no mechanism for a limit.
    pub(crate) fn enforce(&self, scope: PidScope) -> Result<ActiveLimits> {
        let mut active = ActiveLimits {
            cgroups: None,
            rlimits: vec![(Resource::Core, hard_limit(0))],
            pid_max: None,
            memory: None,
            processes: None,
            file_size: None,
            cpu_time: None,
        };
        let is_root = rustix::process::geteuid().is_root();
        let by_namespace = self
            .processes
            .filter(|max| scope == PidScope::Namespace && *max >= MIN_PID_MAX && has_own_pid_max())
            .inspect(|_| active.pid_max = self.processes);
        let by_cgroup = self.processes.filter(|_| by_namespace.is_none() && (scope == PidScope::Host || is_root));
        active.cgroups = Cgroups::new(self.memory, by_cgroup);
        let groups = active.cgroups.as_ref();
        active.memory = self.memory.map(|max| match groups.and_then(Cgroups::memory) {
            Some(mechanism) => Limit { max, mechanism },
            None => {
                // Not RLIMIT_AS: many programs reserve far more address space than they use.
                active.rlimits.push((Resource::Data, hard_limit(max)));
                Limit { max, mechanism: Mechanism::Rlimit }
            }
        });
        active.processes = match (self.processes, by_namespace, groups.and_then(Cgroups::processes)) {
            (None, ..) => None,
            (Some(max), Some(_), _) => Some(Limit { max, mechanism: Mechanism::PidNamespace }),
            (Some(max), None, Some(mechanism)) => Some(Limit { max, mechanism }),
            // RLIMIT_NPROC does not apply to root.
            (Some(_), None, None) if is_root => {
                return Err(Error::new(ErrorKind::Unavailable, "cannot limit the number of processes on this machine")
                    .with_hint(
                        "as root this needs a control group with the controller `pids`, \
                         or Linux 6.14 and a limit of at least 512",
                    ));
            }
            (Some(max), None, None) => {
                active.rlimits.push((Resource::Nproc, hard_limit(max)));
                Some(Limit { max, mechanism: Mechanism::Rlimit })
            }
        };
        active.file_size = self.file_size.map(|max| {
            active.rlimits.push((Resource::Fsize, hard_limit(max)));
            Limit { max, mechanism: Mechanism::Rlimit }
        });
        active.cpu_time = self.cpu_time.map(|time| {
            let max = time.as_secs().max(1);
            // SIGXCPU at the soft limit, SIGKILL a second later.
            active.rlimits.push((Resource::Cpu, Rlimit { current: Some(max), maximum: Some(max + 1) }));
            Limit { max, mechanism: Mechanism::Rlimit }
        });
        for (resource, limit) in &mut active.rlimits {
            // A command cannot be allowed more than this program.
            let own = rustix::process::getrlimit(*resource).maximum.unwrap_or(u64::MAX);
            limit.current = limit.current.map(|max| max.min(own));
            limit.maximum = limit.maximum.map(|max| max.min(own));
        }
        Ok(active)
    }
}

impl ActiveLimits {
    /// Returns the open `cgroup.procs` files that a command has to be written to.
    pub(crate) fn cgroups(&self) -> &[OwnedFd] {
        self.cgroups.as_ref().map_or(&[], Cgroups::procs)
    }
}

/// The smallest `pid_max` that is used. The kernel does not reuse PIDs below 300, so a smaller one would leave almost none.
const MIN_PID_MAX: u64 = 512;

/// Returns true if each PID namespace has its own `pid_max`, as since Linux 6.14. Before, setting it sets the machine's.
fn has_own_pid_max() -> bool {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split(|char: char| !char.is_ascii_digit()).map(|number| number.parse::<u32>().ok());
    matches!((numbers.next().flatten(), numbers.next().flatten()), (Some(major), Some(minor)) if (major, minor) >= (6, 14))
}

fn hard_limit(max: u64) -> Rlimit {
    Rlimit { current: Some(max), maximum: Some(max) }
}
