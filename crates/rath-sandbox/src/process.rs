//! Running a command and all its processes to their end.

#[cfg(target_os = "linux")]
mod long_lived;
mod output;
#[cfg(target_os = "linux")]
mod own_environment;
#[cfg(target_os = "linux")]
mod running;
#[cfg(target_os = "linux")]
mod spawn_step;
#[cfg(target_os = "linux")]
mod supervisor;
#[cfg(target_os = "linux")]
mod tag;

pub use self::output::{Spool, StreamCapture};
#[cfg(target_os = "linux")]
pub use self::own_environment::hide_environment;
#[cfg(target_os = "linux")]
pub(crate) use self::running::register;
#[cfg(target_os = "linux")]
pub(crate) use self::spawn_step::{SpawnFailure, SpawnStep};
#[cfg(target_os = "linux")]
pub(crate) use self::supervisor::{CHILDREN, last_errno};

use std::ffi::{CString, OsString};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::process::{Resource, Rlimit};

use super::Command;
use super::isolated::{AllowedHosts, Confinement, Namespace};

/// A command, and the settings of the sandbox that it runs in.
pub(crate) struct SpawnRequest<'a> {
    pub(crate) command: &'a Command,
    /// The complete environment of the command.
    pub(crate) env: Vec<(OsString, OsString)>,
    pub(crate) cwd: WorkingDir,
    pub(crate) rlimits: Vec<(Resource, Rlimit)>,
    /// The open `cgroup.procs` files of the control groups that the command joins.
    pub(crate) cgroups: &'a [OwnedFd],
    /// The namespace that the command runs in, if not that of this program.
    pub(crate) namespace: Option<Arc<Namespace>>,
    /// The restrictions that the command puts on itself.
    pub(crate) confinement: Option<Arc<Confinement>>,
    /// The hosts that the command can reach through a proxy.
    pub(crate) hosts: Option<Arc<AllowedHosts>>,
    /// The limit on the output, of both streams together.
    pub(crate) max_output_bytes: u64,
    pub(crate) spool: Arc<Spool>,
}

/// The directory that a command starts in.
pub(crate) enum WorkingDir {
    /// An open directory.
    Open(OwnedFd),
    /// A path below the workspace as the command sees it.
    InWorkspace(CString),
}

#[cfg(not(target_os = "linux"))]
impl SpawnRequest<'_> {
    /// Fails: only on Linux can all processes of a command be found and ended.
    pub(crate) async fn run(self, _: &mut super::Sink<'_>) -> crate::Result<super::Output> {
        let name = self.command.argv.first().cloned().unwrap_or_default();
        Err(crate::Error::needs_platform(format_args!("running `{name}`"), "Linux"))
    }

    /// Fails, for the same reason.
    pub(crate) fn start(self, _: impl Send + 'static) -> crate::Result<super::Process> {
        let name = self.command.argv.first().cloned().unwrap_or_default();
        Err(crate::Error::needs_platform(format_args!("starting `{name}`"), "Linux"))
    }
}
