//! The restrictions that are in force in a sandbox.

use std::fmt;
use std::path::PathBuf;

/// The restrictions that are in force in a sandbox on this machine, and the mechanisms behind them.
///
/// `Display` prints them on one line.
///
/// Returned by [`Sandbox::capabilities`](crate::Sandbox::capabilities).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// The separation of commands from the rest of the machine.
    pub isolation: Isolation,
    /// Network access of commands.
    pub network: Network,
    /// The hosts that commands can reach, if these are some.
    pub hosts: Vec<String>,
    /// The paths outside of the directory that commands can write.
    pub writable: Vec<PathBuf>,
    /// True if Landlock restricts writes, beneath namespaces or alone.
    pub landlock: bool,
    /// The limit on memory, in bytes.
    pub memory: Option<Limit>,
    /// The limit on the number of processes and threads.
    pub processes: Option<Limit>,
    /// The limit on the size of each file that is written, in bytes.
    pub file_size: Option<Limit>,
    /// The limit on the processor time of each process, in seconds.
    pub cpu_time: Option<Limit>,
    /// True if output reaches the sink while the command runs.
    pub streaming: bool,
}

/// The separation of commands from the rest of the machine.
///
/// Part of [`Capabilities`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Isolation {
    /// None: commands can do what the user can.
    None,
    /// Namespaces of their own, a seccomp filter, and no privileges.
    Namespaces(HostAccess),
    /// Landlock, a seccomp filter, and no privileges, on a machine without namespaces. See
    /// [`Isolated::without_namespaces`](crate::Isolated::without_namespaces) for what this does not restrict.
    Landlock(HostAccess),
    /// A container with an image of its own: commands see no file of the machine but the workspace.
    Container,
    /// Commands run on another machine, or the backend does not describe itself.
    Remote,
}

/// The part of the machine's files that commands can read.
///
/// Part of [`Isolation`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HostAccess {
    /// All files except private ones (home directories, data of services, keys), read-only.
    #[default]
    ReadOnly,
    /// Programs and libraries only, read-only.
    Hidden,
}

/// Network access of commands.
///
/// Part of [`Capabilities`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// A loopback interface that the processes of one command share, and nothing else.
    Off,
    /// Some hosts, through a proxy: see [`Capabilities::hosts`].
    Hosts,
    /// The network of this machine, including the services that listen on it.
    On,
}

/// A limit that is in force.
///
/// Part of [`Capabilities`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The largest allowed value.
    pub max: u64,
    /// The mechanism that enforces the limit.
    pub mechanism: Mechanism,
}

/// A mechanism of the kernel that enforces a limit.
///
/// Part of [`Limit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mechanism {
    /// A control group of version 2. It counts all processes of the sandbox together.
    CgroupV2,
    /// A control group of version 1. It counts all processes of the sandbox together.
    CgroupV1,
    /// The PID namespace of a command. It counts all processes of one command.
    PidNamespace,
    /// A resource limit of each process.
    ///
    /// The number of processes is counted per user; in a user namespace, per command.
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
    /// Returns the capabilities of a backend that does not describe itself: no restriction is promised.
    fn default() -> Self {
        Capabilities {
            isolation: Isolation::Remote,
            network: Network::On,
            hosts: Vec::new(),
            writable: Vec::new(),
            landlock: false,
            memory: None,
            processes: None,
            file_size: None,
            cpu_time: None,
            streaming: false,
        }
    }
}

impl fmt::Display for Capabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.isolation {
            Isolation::None => "no walls",
            Isolation::Namespaces(HostAccess::ReadOnly) => "reads this machine",
            Isolation::Namespaces(HostAccess::Hidden) => "sees programs and libraries only",
            Isolation::Landlock(HostAccess::ReadOnly) => "reads this machine, by Landlock",
            Isolation::Landlock(HostAccess::Hidden) => "sees programs and libraries only, by Landlock",
            Isolation::Container => "in a container",
            Isolation::Remote => "elsewhere",
        })?;
        for path in &self.writable {
            write!(f, ", writes in {}", path.display())?;
        }
        match self.network {
            Network::Off => f.write_str(", no network"),
            Network::Hosts => write!(f, ", network to {}", self.hosts.join(" ")),
            Network::On => f.write_str(", network"),
        }?;
        let limits = [
            ("memory", self.memory, format_bytes as fn(u64) -> String),
            ("processes", self.processes, |count| count.to_string()),
            ("files", self.file_size, format_bytes),
            ("cpu", self.cpu_time, |seconds| format!("{seconds} s")),
        ];
        for (name, limit, format) in limits {
            if let Some(Limit { max, mechanism }) = limit {
                write!(f, ", {name} {} by {mechanism}", format(max))?;
            }
        }
        Ok(())
    }
}

/// Formats a number of bytes in the largest unit that divides it.
fn format_bytes(bytes: u64) -> String {
    let units = [("TiB", 1_u64 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match units.iter().find(|(_, unit)| bytes > 0 && bytes.is_multiple_of(*unit)) {
        Some((name, unit)) => format!("{} {name}", bytes / unit),
        None => format!("{bytes} bytes"),
    }
}
