//! Who writes.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// How long somebody who cannot be asked counts as alive after it was heard of last.
pub(super) const LEASE: Duration = Duration::from_secs(30);

/// One opening of a store, in one process: what holds the right to append.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// The machine.
    pub host: String,
    /// The process.
    pub pid: u32,
    /// Which start of the machine, where that is known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    boot: String,
    /// When the process began, in the machine's own count: process ids are used again.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    began: String,
    /// Which opening.
    opening: String,
}

impl Holder {
    /// This process, in an opening of its own.
    pub fn this_process() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default();
        let pid = std::process::id();
        Holder {
            host: Some(read("/proc/sys/kernel/hostname")).filter(|name| !name.is_empty()).unwrap_or("here".to_owned()),
            pid,
            boot: read("/proc/sys/kernel/random/boot_id"),
            began: began(pid).unwrap_or_default(),
            opening: uuid::Uuid::now_v7().to_string(),
        }
    }

    /// Whether it is known to have ended: a process of this start of this machine that is no longer there.
    pub fn is_dead(&self) -> bool {
        let here = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        !self.boot.is_empty() && self.boot == here.trim() && began(self.pid).is_none_or(|began| began != self.began)
    }

    /// As it is stored.
    pub(super) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("strings and numbers are written as JSON")
    }

    pub(super) fn from_json(json: &str) -> Option<Self> {
        serde_json::from_str(json).ok()
    }
}

/// In words for people.
impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} on {}", self.pid, self.host)
    }
}

/// When a process began, if it is there: the 22nd of its figures, of which the second is a name in brackets. One that has
/// ended and was not waited for yet is not there.
fn began(pid: u32) -> Option<String> {
    let figures = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut figures = figures.rsplit_once(')')?.1.split_whitespace();
    let state = figures.next()?;
    if matches!(state, "Z" | "X") {
        return None;
    }
    figures.nth(18).map(str::to_owned)
}

/// Now, in microseconds since 1970.
pub(super) fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}
