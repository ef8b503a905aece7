//! Decisions about files that both sides of a merge changed.

use rath_record::chunk::{Conflict, Decided, Resolution};
use rath_record::{StepId, view};
use rath_workspace::TreeFile;

use super::Session;
use crate::error::ErrorKind;
use crate::secrets::Secrets;
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
        // Paths with keys may be equal on the record. Then the decision is about all of these files.
        let conflicts: Vec<Conflict> = open.iter().filter(|conflict| conflict.path == path).copied().cloned().collect();
        if conflicts.is_empty() {
            let names = open.iter().map(|conflict| format!("`{}`", conflict.path)).collect::<Vec<_>>().join(", ");
            let hint =
                if names.is_empty() { "no conflict is open".to_owned() } else { format!("open conflicts: {names}") };
            let message = format!("no open conflict in `{path}`");
            return Err(Error::new(ErrorKind::Approval, message).with_hint(hint).with_session(self));
        }
        if content.is_some_and(|content| self.secrets().has_known_value(&String::from_utf8_lossy(content))) {
            let message = format!("the content for `{path}` holds a secret, and no version is kept of such a file");
            let hint = "decide without the secret, and write it into the file afterwards";
            return Err(Error::new(ErrorKind::Approval, message).with_hint(hint).with_session(self));
        }
        let (before, path, content) = (self.known_tree()?, path.to_owned(), content.map(<[u8]>::to_vec));
        let decided = self.with_versions(move |session, versions| {
            let (files, mut tree) = (versions.files(&before)?, before.clone());
            for (nth, conflict) in conflicts.into_iter().enumerate() {
                let conflict = with_real_paths(conflict, nth, &files, session.secrets());
                tree = match (taken, &content) {
                    (Resolution::Markers, _) => tree,
                    (Resolution::Ours, _) => versions.with_version(&tree, &conflict, conflict.ours.as_ref())?,
                    (Resolution::Theirs, _) => versions.with_version(&tree, &conflict, conflict.theirs.as_ref())?,
                    (Resolution::Edited, Some(content)) => versions.with_content(&tree, &conflict, content)?,
                    (Resolution::Edited, None) => {
                        let message = format!("no content given for `{}`", conflict.path);
                        return Err(Error::new(ErrorKind::Approval, message)
                            .with_hint("use `session.decide_edited(path, content)`"));
                    }
                };
            }
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

/// Returns a conflict with the paths of its files: on the record, texts in a path that look like keys are hidden.
///
/// `nth` is the number of the conflict among those with the same path.
fn with_real_paths(mut conflict: Conflict, nth: usize, files: &[TreeFile], secrets: &Secrets) -> Conflict {
    let versions = [&mut conflict.base, &mut conflict.ours, &mut conflict.theirs].into_iter().flatten();
    for path in versions.map(|version| &mut version.path).chain([&mut conflict.path]) {
        // Nearly always the file has the path that is recorded.
        if files.iter().all(|file| file.path != *path)
            && let Some(file) = files.iter().filter(|file| secrets.hide(&file.path).as_ref() == Some(path)).nth(nth)
        {
            path.clone_from(&file.path);
        }
    }
    conflict
}
