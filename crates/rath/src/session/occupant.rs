//! The branch that works in the user's directory, for the next process.

use std::path::{Path, PathBuf};

use rath_record::{BranchId, StepId};

use crate::sandbox::RATH_DIR;
use crate::session::Result;
use crate::workspace::Objects;

/// The branch that worked last in the user's directory, as the file `.rath/workspace/tenant` says.
pub(super) struct Occupant {
    pub(super) branch: BranchId,
    /// The first branch of its session.
    pub(super) first_branch: BranchId,
    /// The newest step of the branch.
    pub(super) head: Option<StepId>,
}

impl Occupant {
    pub(super) fn write(&self, root: &Path, objects: &Objects) -> Result<()> {
        let head = self.head.map(|head| format!(" {head}")).unwrap_or_default();
        let text = format!("{} {}{head}\n", self.branch, self.first_branch);
        Ok(objects.write_file(&occupant_file(root), text.as_bytes())?)
    }
}

/// The most bytes of the file that names the branch in a directory.
const MAX_OCCUPANT_BYTES: u64 = 1 << 10;

/// Returns the branch that works in the user's directory.
pub(crate) fn occupant_branch(root: &Path) -> Option<BranchId> {
    read_occupant(root).map(|occupant| occupant.branch)
}

pub(crate) fn occupant_file(root: &Path) -> PathBuf {
    root.join(RATH_DIR).join("workspace").join("tenant")
}

pub(super) fn read_occupant(root: &Path) -> Option<Occupant> {
    let text = crate::workspace::read_at_most(&occupant_file(root), MAX_OCCUPANT_BYTES).ok()?;
    let text = String::from_utf8(text).ok()?;
    let mut words = text.split_whitespace();
    let (branch, first_branch) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    Some(Occupant { branch, first_branch, head: words.next().and_then(|at| at.parse().ok()) })
}
