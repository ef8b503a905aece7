//! What a sandbox can do on this machine.

use std::fmt;

/// What a sandbox can do on this machine, found by trying it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// What keeps commands from the rest of the machine.
    pub isolation: Isolation,
    /// Whether they reach the network.
    pub network: Network,
    /// The most memory, in bytes.
    pub memory: Option<Limit>,
    /// The most processes and threads.
    pub processes: Option<Limit>,
    /// The largest file that can be written, in bytes.
    pub file_size: Option<Limit>,
    /// The most processor time of a process, in seconds.
    pub cpu_time: Option<Limit>,
    /// Whether what commands print is told as it comes.
    pub streaming: bool,
}

/// What keeps commands from the rest of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Isolation {
    /// Nothing: they can do what the user can.
    None,
    /// Namespaces, a filter of system calls, and no privileges.
    Namespaces(Host),
    /// They run somewhere else.
    Elsewhere,
}

/// How much of the machine commands see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Host {
    /// All of it but for what is nobody's business, read-only.
    #[default]
    ReadOnly,
    /// Programs and libraries, read-only, and nothing else.
    Hidden,
}

/// Whether commands reach the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// They reach nothing but themselves.
    Off,
    /// They have the network of this machine, with all that listens on it.
    On,
}

/// A limit, and what sees to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The most.
    pub most: u64,
    /// What sees to it.
    pub by: Mechanism,
}

/// What sees to a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mechanism {
    /// A control group of version 2: all processes of the sandbox together.
    CgroupV2,
    /// Control groups of version 1: all processes of the sandbox together.
    CgroupV1,
    /// The namespace of the command's processes: all that one command starts.
    PidNamespace,
    /// What the system allows each process. Of the number of processes: each user, or in a namespace of its own all that one
    /// command starts.
    Rlimit,
}

impl fmt::Display for Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mechanism::CgroupV2 => "cgroup v2",
            Mechanism::CgroupV1 => "cgroup v1",
            Mechanism::PidNamespace => "pid namespace",
            Mechanism::Rlimit => "rlimit",
        })
    }
}

impl Default for Capabilities {
    /// What is known of a sandbox that says nothing: it is not here, and no more than that.
    fn default() -> Self {
        Capabilities {
            isolation: Isolation::Elsewhere,
            network: Network::On,
            memory: None,
            processes: None,
            file_size: None,
            cpu_time: None,
            streaming: false,
        }
    }
}

/// On one line, for people.
impl fmt::Display for Capabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.isolation {
            Isolation::None => "as the user",
            Isolation::Namespaces(Host::ReadOnly) => "host read-only",
            Isolation::Namespaces(Host::Hidden) => "host hidden",
            Isolation::Elsewhere => "elsewhere",
        })?;
        f.write_str(match self.network {
            Network::Off => ", network off",
            Network::On => ", network on",
        })?;
        let limits = [
            ("memory", self.memory, size as fn(u64) -> String),
            ("processes", self.processes, |most| most.to_string()),
            ("files", self.file_size, size),
            ("cpu", self.cpu_time, |most| format!("{most} s")),
        ];
        for (name, limit, amount) in limits {
            if let Some(Limit { most, by }) = limit {
                write!(f, ", {name} {} by {by}", amount(most))?;
            }
        }
        Ok(())
    }
}

fn size(bytes: u64) -> String {
    let units = [("TiB", 1_u64 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match units.iter().find(|(_, unit)| bytes > 0 && bytes.is_multiple_of(*unit)) {
        Some((name, unit)) => format!("{} {name}", bytes / unit),
        None => format!("{bytes} bytes"),
    }
}
