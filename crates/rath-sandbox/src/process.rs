//! Running a command to its end.

mod output;
#[cfg(target_os = "linux")]
mod running;
#[cfg(target_os = "linux")]
mod stage;
#[cfg(target_os = "linux")]
mod supervisor;

pub(crate) use self::output::Spool;
#[cfg(target_os = "linux")]
pub(crate) use self::stage::{Failure, Stage};
#[cfg(target_os = "linux")]
pub(crate) use self::supervisor::{CHILDREN, last_errno};

use std::ffi::{CString, OsString};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::process::{Resource, Rlimit};

use super::Command;
use super::isolated::World;

/// What a sandbox adds to a command.
pub(crate) struct Errand<'a> {
    pub(crate) command: &'a Command,
    /// All that the command finds in its environment.
    pub(crate) env: Vec<(OsString, OsString)>,
    pub(crate) start: Start,
    pub(crate) rlimits: Vec<(Resource, Rlimit)>,
    /// The `cgroup.procs` of the groups that it belongs to.
    pub(crate) groups: &'a [OwnedFd],
    pub(crate) world: Option<Arc<World>>,
    /// How much it may print, on both streams together.
    pub(crate) output: u64,
    pub(crate) spool: &'a Spool,
}

/// Where a command starts.
pub(crate) enum Start {
    /// In a directory that is open.
    In(OwnedFd),
    /// Below the workspace as the command sees it.
    Below(CString),
}

#[cfg(not(target_os = "linux"))]
impl Errand<'_> {
    /// Says that it cannot be done: without Linux, nothing here could see to it that all processes of a command end.
    pub(crate) async fn run(self, _: &mut super::Sink<'_>) -> crate::Result<super::Ran> {
        let name = self.command.argv.first().cloned().unwrap_or_default();
        let why = format_args!("cannot run `{name}` on this machine: sandboxes run commands on Linux only").to_string();
        Err(crate::Error::new(crate::ErrorKind::Unavailable, why))
    }
}
