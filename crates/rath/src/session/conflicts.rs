//! What a person decides about files that two branches changed.

use rath_record::chunk::{Conflict, Decided, Resolution};
use rath_record::{StepId, view};

use super::Session;
use crate::error::ErrorKind;
use crate::session::{Error, Result};

impl Session {
    /// What both sides of a merge changed in ways that do not fit together, and nobody has decided on.
    pub fn conflicts(&self) -> Vec<&Conflict> {
        view::conflicts(self.as_record())
    }

    /// Takes one side's version of a file that both sides of a merge changed; or what the merge made of both, with marks.
    ///
    /// One that somebody wrote is given with [`decide_edited`](Session::decide_edited).
    pub fn decide(&mut self, path: &str, taken: Resolution) -> Result<StepId> {
        self.settle_conflict(path, taken, None)
    }

    /// Says that a file that both sides of a merge changed is to hold this.
    pub fn decide_edited(&mut self, path: &str, content: &[u8]) -> Result<StepId> {
        self.settle_conflict(path, Resolution::Edited, Some(content))
    }

    fn settle_conflict(&mut self, path: &str, taken: Resolution, content: Option<&[u8]>) -> Result<StepId> {
        let open = self.conflicts();
        let Some(conflict) = open.iter().find(|conflict| conflict.path == path) else {
            let names = open.iter().map(|conflict| format!("`{}`", conflict.path)).collect::<Vec<_>>().join(", ");
            let hint = if names.is_empty() { "nothing is undecided".to_owned() } else { format!("undecided: {names}") };
            let message = format!("no conflict about `{path}` waits for a decision");
            return Err(Error::new(ErrorKind::Approval, message).with_hint(hint).with_session(self));
        };
        let before = self.known_tree()?;
        let objects = self.objects()?;
        let tree = match (taken, content) {
            (Resolution::Markers, _) => before.clone(),
            (Resolution::Ours, _) => objects.with_version(&before, conflict, conflict.ours.as_ref())?,
            (Resolution::Theirs, _) => objects.with_version(&before, conflict, conflict.theirs.as_ref())?,
            (Resolution::Edited, Some(content)) => objects.with_content(&before, conflict, content)?,
            (Resolution::Edited, None) => {
                let message = format!("what `{path}` is to hold is not said");
                return Err(Error::new(ErrorKind::Approval, message)
                    .with_hint("`session.decide_edited(path, content)` says it")
                    .with_session(self));
            }
        };
        let effects = objects.diff(Some(&before), &tree)?;
        let path = conflict.path.clone();
        self.sync_versions()?;
        Ok(self.push(Decided { path, taken, tree, effects }))
    }

    /// An error while files are in conflict: whoever goes on would take marks for content.
    pub(crate) fn refuse_conflicts(&self) -> Result<()> {
        let open = self.conflicts();
        if open.is_empty() {
            return Ok(());
        }
        let names = open.iter().map(|conflict| format!("`{}` ({})", conflict.path, conflict.what));
        let message = format!("files are in conflict: {}", names.collect::<Vec<_>>().join(", "));
        Err(Error::new(ErrorKind::Approval, message)
            .with_hint("decide on each with `session.decide(path, ..)`, and run again")
            .with_session(self))
    }
}
