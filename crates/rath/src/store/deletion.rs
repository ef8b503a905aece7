//! Deleting several sessions, of which one may rest on another.

use std::collections::HashSet;

use rath_record::BranchId;

use super::FreedSpace;
use super::error::{Result, StoreError, StoreErrorKind};

/// The sessions that are deleted together, and those that cannot be deleted.
///
/// Returned by [`Store::delete_all`](super::Store::delete_all) and [`Store::measure_delete`](super::Store::measure_delete).
#[derive(Debug, Default)]
pub struct Deletion {
    /// The sessions that are deleted, those first that rest on others.
    pub deleted: Vec<BranchId>,
    /// The sessions that cannot be deleted, each with the reason.
    pub refused: Vec<(BranchId, StoreError)>,
    /// The space that is freed. A deletion frees none before the store is compacted.
    pub freed: FreedSpace,
}

impl Deletion {
    /// Calls `delete` with each session, again and again as long as that deletes one: a session that others rest on can be deleted
    /// after those.
    pub(crate) fn in_rounds(families: &[BranchId], mut delete: impl FnMut(BranchId) -> Result<()>) -> Result<Self> {
        let mut deletion = Deletion::default();
        let mut seen = HashSet::new();
        let mut rest: Vec<BranchId> = families.iter().copied().filter(|family| seen.insert(*family)).collect();
        loop {
            let before = deletion.deleted.len();
            deletion.refused.clear();
            for family in std::mem::take(&mut rest) {
                match delete(family) {
                    Ok(()) => deletion.deleted.push(family),
                    Err(error) if error.kind() == StoreErrorKind::Conflict => deletion.refused.push((family, error)),
                    Err(error) => return Err(error),
                }
            }
            if deletion.refused.is_empty() || deletion.deleted.len() == before {
                return Ok(deletion);
            }
            rest = deletion.refused.iter().map(|(family, _)| *family).collect();
        }
    }
}
