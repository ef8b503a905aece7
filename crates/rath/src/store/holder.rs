//! The holder of a right to append.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rath_record::draw::one_line;
use serde::{Deserialize, Serialize};

/// The time for which a holder on another machine counts as alive after its last renewal.
pub(super) const LEASE: Duration = Duration::from_secs(30);

/// One opening of a store, in one process: the owner of rights to append.
///
/// Part of [`BranchSummary`](super::BranchSummary).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// The host name of the machine.
    pub host: String,
    /// The process id.
    pub pid: u32,
    /// The boot id of the machine, if it is known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    boot: String,
    /// The start time of the process, in ticks of the machine: process ids are reused.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    began: String,
    /// The PID namespace of the process, if it is known: a process id means nothing in another one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    namespace: String,
    /// The id of the opening.
    opening: String,
}

impl Holder {
    /// Returns a holder for a new opening in this process.
    pub fn this_process() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default();
        let pid = std::process::id();
        Holder {
            host: Some(read("/proc/sys/kernel/hostname")).filter(|name| !name.is_empty()).unwrap_or("here".to_owned()),
            pid,
            boot: read("/proc/sys/kernel/random/boot_id"),
            began: start_time(pid).unwrap_or_default(),
            namespace: pid_namespace(),
            opening: uuid::Uuid::now_v7().to_string(),
        }
    }

    /// Returns true if the process is known to have ended: it ran on this machine since its last boot, where this process can see
    /// it, and is gone.
    pub fn is_dead(&self) -> bool {
        let here = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        !self.boot.is_empty()
            && self.boot == here.trim()
            && (self.namespace.is_empty() || self.namespace == pid_namespace())
            && start_time(self.pid).is_none_or(|began| began != self.began)
    }

    /// Returns true if it is an opening of this process.
    pub fn is_this_process(&self) -> bool {
        let here = Holder::this_process();
        let process = |it: &Holder| (it.host.clone(), it.pid, it.boot.clone(), it.began.clone(), it.namespace.clone());
        process(self) == process(&here)
    }

    /// Returns the JSON that is stored.
    pub(super) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("strings and numbers are written as JSON")
    }

    pub(super) fn from_json(json: &str) -> Option<Self> {
        serde_json::from_str(json).ok()
    }
}

/// Prints the process and the machine, for people.
impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} on {}", self.pid, one_line(&self.host))
    }
}

/// Returns the name of the PID namespace of this process; empty if it is not known.
fn pid_namespace() -> String {
    let link = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    link.to_string_lossy().into_owned()
}

/// Returns the start time of a process, if it runs: the 22nd field of its `stat` file, whose second field is a name in
/// parentheses. A zombie does not run.
fn start_time(pid: u32) -> Option<String> {
    let fields = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = fields.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X") {
        return None;
    }
    fields.nth(18).map(str::to_owned)
}

/// Returns the current time, in microseconds since 1970.
pub(super) fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_cannot_be_seen_is_not_taken_for_dead() {
        let mut holder = Holder::this_process();
        assert!(!holder.is_dead());
        holder.pid = u32::MAX;
        assert!(holder.is_dead(), "a process that is gone");
        holder.namespace = "pid:[1]".to_owned();
        assert!(!holder.is_dead(), "a process in another PID namespace");
        let earlier =
            r#"{"host":"h","pid":4294967295,"boot":"BOOT","began":"1","opening":"o"}"#.replace("BOOT", &holder.boot);
        assert!(Holder::from_json(&earlier).expect("a holder").is_dead(), "as an earlier version wrote it");
    }
}
