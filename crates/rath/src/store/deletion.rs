//! Deleting sessions, of which one may need steps of another.

use std::collections::{HashMap, HashSet};

use rath_record::BranchId;

use super::FreedSpace;
use super::error::{Result, StoreError, StoreErrorKind};

/// The sessions that are deleted together, and those that cannot be deleted.
///
/// Returned by [`Store::delete_all`](super::Store::delete_all) and [`Store::measure_delete`](super::Store::measure_delete).
#[derive(Debug, Default)]
pub struct Deletion {
    /// The sessions that are deleted, those first that need steps of others.
    pub deleted: Vec<BranchId>,
    /// All branches of these sessions.
    pub branches: Vec<BranchId>,
    /// The sessions that cannot be deleted.
    pub refused: Vec<DeletionRefusal>,
    /// The space that is freed. A deletion frees none before the store is compacted.
    pub freed: FreedSpace,
}

/// A session that cannot be deleted.
///
/// Part of [`Deletion`].
#[derive(Debug)]
pub struct DeletionRefusal {
    /// The session.
    pub family: BranchId,
    /// The reason.
    pub error: StoreError,
    /// The sessions that need steps of this one, directly or by others: deleted with all of them, it can go. Empty if a process
    /// writes it.
    pub needed_by: Vec<BranchId>,
}

impl Deletion {
    /// Decides which sessions are deleted: those that no process writes, and that no session needs which stays.
    ///
    /// A session that a process writes is `busy`, with the error to report. Each pair of `needs` is a session, and another one of
    /// which it needs steps. See [`StoreBackend::delete`](super::StoreBackend::delete), which calls this.
    ///
    /// ```
    /// use rath::BranchId;
    /// use rath::store::Deletion;
    ///
    /// let [one, two, merged] = [1, 2, 3].map(|nth| BranchId([nth; 16]));
    /// let needs = [(merged, one), (merged, two)].into();
    /// let deletion = Deletion::plan(&[one], vec![], &needs);
    /// assert_eq!(deletion.refused[0].needed_by, [merged]);
    /// let deletion = Deletion::plan(&[one, merged], vec![], &needs);
    /// assert_eq!(deletion.deleted, [merged, one]);
    /// ```
    pub fn plan(
        families: &[BranchId],
        busy: Vec<(BranchId, StoreError)>,
        needs: &HashSet<(BranchId, BranchId)>,
    ) -> Self {
        let (mut needed, mut needing) = (SessionGraph::new(), SessionGraph::new());
        for (session, other) in needs.iter().filter(|(session, other)| session != other) {
            needed.entry(*session).or_default().push(*other);
            needing.entry(*other).or_default().push(*session);
        }
        let busy_now: HashSet<BranchId> = busy.iter().map(|(family, _)| *family).collect();
        let wanted: HashSet<BranchId> = families.iter().copied().filter(|family| !busy_now.contains(family)).collect();
        let staying = needed.keys().copied().filter(|family| !wanted.contains(family));
        let staying: HashSet<BranchId> = reach(staying, &needed).into_iter().collect();
        let mut deletion = Deletion::default();
        let mut seen = HashSet::new();
        let refusal = |(family, error)| DeletionRefusal { family, error, needed_by: Vec::new() };
        deletion.refused.extend(busy.into_iter().filter(|(family, _)| seen.insert(*family)).map(refusal));
        for family in families.iter().copied().filter(|family| wanted.contains(family)) {
            if staying.contains(&family) {
                if seen.insert(family) {
                    let mut needed_by = reach([family], &needing);
                    needed_by.retain(|other| *other != family);
                    needed_by.sort_unstable();
                    deletion.refused.push(DeletionRefusal {
                        family,
                        error: needed_error(family, &needed_by),
                        needed_by,
                    });
                }
                continue;
            }
            // A session that needs another goes before it.
            let mut stack = vec![(family, false)];
            while let Some((family, is_done)) = stack.pop() {
                if is_done {
                    deletion.deleted.push(family);
                } else if seen.insert(family) {
                    stack.push((family, true));
                    let others = needing.get(&family).into_iter().flatten();
                    stack.extend(others.map(|other| (*other, false)));
                }
            }
        }
        deletion
    }

    /// Returns the error of a deletion of one session, if it was refused.
    pub(super) fn into_result(self) -> Result<()> {
        self.refused.into_iter().next().map_or(Ok(()), |refusal| Err(refusal.error))
    }
}

type SessionGraph = HashMap<BranchId, Vec<BranchId>>;

/// Returns some sessions and all that can be reached from them, each once.
fn reach(from: impl IntoIterator<Item = BranchId>, graph: &SessionGraph) -> Vec<BranchId> {
    let mut reached = Vec::new();
    let (mut open, mut seen): (Vec<BranchId>, _) = (from.into_iter().collect(), HashSet::new());
    while let Some(family) = open.pop() {
        if seen.insert(family) {
            reached.push(family);
            open.extend(graph.get(&family).into_iter().flatten());
        }
    }
    reached
}

fn needed_error(family: BranchId, needed_by: &[BranchId]) -> StoreError {
    let ids: Vec<_> = needed_by.iter().map(|other| other.short()).collect();
    let (family, ids, verb) = (family.short(), ids.join(", "), if ids.len() == 1 { "needs" } else { "need" });
    StoreError::new(StoreErrorKind::Conflict, format_args!("{ids} {verb} steps of the session {family}"))
        .with_hint("delete them together, or keep them")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(nth: u8) -> BranchId {
        BranchId([nth; 16])
    }

    /// Plans a deletion. Each need is a session and the one that it needs.
    fn check(delete: &[u8], busy: &[u8], needs: &[(u8, u8)], deleted: &[u8], refused: &[(u8, &[u8])]) {
        let ids = |ids: &[u8]| ids.iter().copied().map(id).collect::<Vec<_>>();
        let busy = ids(busy).into_iter().map(|it| (it, StoreError::new(StoreErrorKind::Conflict, "busy"))).collect();
        let needs = needs.iter().map(|(session, other)| (id(*session), id(*other))).collect();
        let plan = Deletion::plan(&ids(delete), busy, &needs);
        assert_eq!(plan.deleted, ids(deleted));
        let found: Vec<_> = plan.refused.iter().map(|it| (it.family, it.needed_by.clone())).collect();
        assert_eq!(found, refused.iter().map(|(family, by)| (id(*family), ids(by))).collect::<Vec<_>>());
    }

    #[test]
    fn no_session_goes_that_another_needs_which_stays() {
        check(&[1, 2], &[], &[], &[1, 2], &[]);
        check(&[1, 1], &[], &[], &[1], &[]);
        check(&[1], &[], &[(2, 1)], &[], &[(1, &[2])]);
        check(&[2], &[], &[(2, 1)], &[2], &[]);
        check(&[1, 2], &[], &[(2, 1)], &[2, 1], &[]);
        // By others, and in a circle.
        check(&[1, 2], &[], &[(2, 1), (3, 2)], &[], &[(1, &[2, 3]), (2, &[3])]);
        check(&[1, 3], &[], &[(2, 1), (3, 2)], &[3], &[(1, &[2, 3])]);
        check(&[1, 2, 3], &[], &[(2, 1), (3, 2)], &[3, 2, 1], &[]);
        check(&[1], &[], &[(2, 1), (1, 2)], &[], &[(1, &[2])]);
        check(&[1, 2], &[], &[(2, 1), (1, 2), (1, 1)], &[2, 1], &[]);
        // A session that is busy stays, and so does what it needs.
        check(&[1, 2, 3], &[2], &[(2, 1)], &[3], &[(2, &[]), (1, &[2])]);
        check(&[1, 1], &[1, 1], &[], &[], &[(1, &[])]);
    }
}
