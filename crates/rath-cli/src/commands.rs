//! The commands of the program, one file each.

pub(crate) mod adopt;
pub(crate) mod bisect;
pub(crate) mod blame;
pub(crate) mod check;
pub(crate) mod checkout;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod cost;
pub(crate) mod demo;
pub(crate) mod diff;
pub(crate) mod doctor;
pub(crate) mod explain;
pub(crate) mod export;
pub(crate) mod forget;
pub(crate) mod fork;
pub(crate) mod gc;
pub(crate) mod import;
pub(crate) mod log;
pub(crate) mod ls;
pub(crate) mod man;
pub(crate) mod mcp;
pub(crate) mod memory;
pub(crate) mod merge;
pub(crate) mod render;
pub(crate) mod replay;
pub(crate) mod restore;
pub(crate) mod resume;
pub(crate) mod review;
pub(crate) mod run;
pub(crate) mod salvage;
pub(crate) mod show;
pub(crate) mod status;
pub(crate) mod verify;

use rath::chunk::Verdict;

/// Returns the verdict of a check in words.
pub(crate) fn verdict_text(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Passed => "passed",
        Verdict::Failed => "failed",
        _ => "could not run",
    }
}
