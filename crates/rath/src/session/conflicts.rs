//! Decisions about files that both sides of a merge changed.

use rath_record::chunk::{Conflict, Decided, Resolution};
use rath_record::{StepId, view};

use super::Session;
use crate::error::ErrorKind;
use crate::session::{Error, Result};

impl Session {
    /// Returns the conflicts of merges that are not decided yet.
    pub fn conflicts(&self) -> Vec<&Conflict> {
        view::conflicts(self.as_record())
    }

    /// Decides a conflict: takes the version of one side, or the text with conflict markers that the merge left.
    ///
    /// [`decide_edited`](Session::decide_edited) takes content of your own.
    pub async fn decide(&mut self, path: &str, taken: Resolution) -> Result<StepId> {
        self.record_decision(path, taken, None).await
    }

    /// Decides a conflict with new content for the file.
    pub async fn decide_edited(&mut self, path: &str, content: &[u8]) -> Result<StepId> {
        self.record_decision(path, Resolution::Edited, Some(content)).await
    }

    async fn record_decision(&mut self, path: &str, taken: Resolution, content: Option<&[u8]>) -> Result<StepId> {
        let open = self.conflicts();
        let Some(conflict) = open.iter().find(|conflict| conflict.path == path).copied().cloned() else {
            let names = open.iter().map(|conflict| format!("`{}`", conflict.path)).collect::<Vec<_>>().join(", ");
            let hint =
                if names.is_empty() { "no conflict is open".to_owned() } else { format!("open conflicts: {names}") };
            let message = format!("no open conflict in `{path}`");
            return Err(Error::new(ErrorKind::Approval, message).with_hint(hint).with_session(self));
        };
        let (before, path, content) = (self.known_tree()?, conflict.path.clone(), content.map(<[u8]>::to_vec));
        let decided = self.with_versions(move |session, versions| {
            let tree = match (taken, content) {
                (Resolution::Markers, _) => before.clone(),
                (Resolution::Ours, _) => versions.with_version(&before, &conflict, conflict.ours.as_ref())?,
                (Resolution::Theirs, _) => versions.with_version(&before, &conflict, conflict.theirs.as_ref())?,
                (Resolution::Edited, Some(content)) => versions.with_content(&before, &conflict, &content)?,
                (Resolution::Edited, None) => {
                    let message = format!("no content given for `{}`", conflict.path);
                    return Err(Error::new(ErrorKind::Approval, message)
                        .with_hint("use `session.decide_edited(path, content)`"));
                }
            };
            let effects = versions.diff(Some(&before), &tree)?;
            session.sync_versions().map(|()| (tree, effects))
        });
        let (tree, effects) = decided.await?;
        Ok(self.push(Decided::new(path, taken, tree).with_effects(effects)))
    }

    /// Fails while files are in conflict: a model or a tool would take conflict markers for content.
    pub(crate) fn refuse_conflicts(&self) -> Result<()> {
        let open = self.conflicts();
        if open.is_empty() {
            return Ok(());
        }
        let names = open.iter().map(|conflict| format!("`{}` ({})", conflict.path, conflict.what));
        let message = format!("files are in conflict: {}", names.collect::<Vec<_>>().join(", "));
        Err(Error::new(ErrorKind::Approval, message)
            .with_hint("decide each with `session.decide(path, ..)`, then run again")
            .with_session(self))
    }
}
