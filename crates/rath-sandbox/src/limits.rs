//! How much commands may use, and what sees to it.

use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::process::{Resource, Rlimit};

use super::capabilities::{Limit, Mechanism};
use super::groups::Groups;
use crate::error::{Error, ErrorKind, Result};

/// How much commands may use; nothing set means no limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Bytes of memory, of everything that a command starts together.
    pub(crate) memory: Option<u64>,
    /// Processes and threads at the same time.
    pub(crate) processes: Option<u64>,
    /// Bytes of any one file that is written.
    pub(crate) file_size: Option<u64>,
    /// Processor time of any one process.
    pub(crate) cpu_time: Option<Duration>,
}

/// Limits that are in force.
pub(crate) struct Enforced {
    groups: Option<Groups>,
    pub(crate) rlimits: Vec<(Resource, Rlimit)>,
    /// The highest process number in the command's namespace.
    pub(crate) pid_max: Option<u64>,
    pub(crate) memory: Option<Limit>,
    pub(crate) processes: Option<Limit>,
    pub(crate) file_size: Option<Limit>,
    pub(crate) cpu_time: Option<Limit>,
}

/// Where commands run, as far as it matters for limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Namespace {
    /// Among all processes of the user.
    Shared,
    /// In a namespace of their own.
    Own,
}

impl Limits {
    /// Puts them in force, each by the best that this machine has, or says which of them nothing here can see to.
    pub(crate) fn enforce(&self, namespace: Namespace) -> Result<Enforced> {
        let mut enforced = Enforced {
            groups: None,
            rlimits: vec![(Resource::Core, exactly(0))],
            pid_max: None,
            memory: None,
            processes: None,
            file_size: None,
            cpu_time: None,
        };
        let is_root = rustix::process::geteuid().is_root();
        let by_namespace = self
            .processes
            .filter(|most| namespace == Namespace::Own && *most >= PID_MAX_LEAST && has_own_pid_max())
            .inspect(|_| enforced.pid_max = self.processes);
        let by_group = self.processes.filter(|_| by_namespace.is_none() && (namespace == Namespace::Shared || is_root));
        enforced.groups = Groups::new(self.memory, by_group);
        let groups = enforced.groups.as_ref();
        enforced.memory = self.memory.map(|most| match groups.and_then(Groups::memory) {
            Some(by) => Limit { most, by },
            None => {
                // Not the address space: many programs reserve far more of that than they use.
                enforced.rlimits.push((Resource::Data, exactly(most)));
                Limit { most, by: Mechanism::Rlimit }
            }
        });
        enforced.processes = match (self.processes, by_namespace, groups.and_then(Groups::processes)) {
            (None, ..) => None,
            (Some(most), Some(_), _) => Some(Limit { most, by: Mechanism::PidNamespace }),
            (Some(most), None, Some(by)) => Some(Limit { most, by }),
            // The system does not count root's.
            (Some(_), None, None) if is_root => {
                return Err(Error::new(ErrorKind::Unavailable, "cannot limit the number of processes on this machine")
                    .with_hint("for root this needs a control group with `pids`, or Linux 6.14 and at least 512"));
            }
            (Some(most), None, None) => {
                enforced.rlimits.push((Resource::Nproc, exactly(most)));
                Some(Limit { most, by: Mechanism::Rlimit })
            }
        };
        enforced.file_size = self.file_size.map(|most| {
            enforced.rlimits.push((Resource::Fsize, exactly(most)));
            Limit { most, by: Mechanism::Rlimit }
        });
        enforced.cpu_time = self.cpu_time.map(|time| {
            let most = time.as_secs().max(1);
            // A signal first, and a second later the end.
            enforced.rlimits.push((Resource::Cpu, Rlimit { current: Some(most), maximum: Some(most + 1) }));
            Limit { most, by: Mechanism::Rlimit }
        });
        for (resource, limit) in &mut enforced.rlimits {
            // What the program itself may not, the command cannot be allowed.
            let own = rustix::process::getrlimit(*resource).maximum.unwrap_or(u64::MAX);
            limit.current = limit.current.map(|most| most.min(own));
            limit.maximum = limit.maximum.map(|most| most.min(own));
        }
        Ok(enforced)
    }
}

impl Enforced {
    /// The `cgroup.procs` that a command has to be written to.
    pub(crate) fn groups(&self) -> &[OwnedFd] {
        self.groups.as_ref().map_or(&[], Groups::procs)
    }
}

/// Numbers below 300 are used only once, so fewer would leave next to none.
const PID_MAX_LEAST: u64 = 512;

/// Since Linux 6.14 a namespace has a highest process number of its own. Before, setting it would set the machine's.
fn has_own_pid_max() -> bool {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split(|char: char| !char.is_ascii_digit()).map(|number| number.parse::<u32>().ok());
    matches!((numbers.next().flatten(), numbers.next().flatten()), (Some(major), Some(minor)) if (major, minor) >= (6, 14))
}

fn exactly(most: u64) -> Rlimit {
    Rlimit { current: Some(most), maximum: Some(most) }
}
