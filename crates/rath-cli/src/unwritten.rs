//! Merged sessions whose files are still to be written to their directory.

use std::path::PathBuf;

use rath::{ErrorKind, Session};

use crate::output::{self, Failure};

/// The files of a merge that are not written.
pub(crate) struct UnwrittenFiles {
    pub(crate) directory: PathBuf,
    /// The change in the directory that is in the way, if there is one.
    pub(crate) obstacle: Option<rath::Error>,
}

impl UnwrittenFiles {
    /// Finds the files of a merge that are not written; none if they are, or if conflicts are to be decided first.
    pub(crate) async fn of(session: &Session) -> Option<Self> {
        if !session.conflicts().is_empty() {
            return None;
        }
        let directory = session.unwritten_directory().await?;
        let obstacle = session.check_update().await.err();
        Some(UnwrittenFiles { directory, obstacle })
    }

    /// Describes them on one line.
    pub(crate) fn describe(&self) -> String {
        let reason = self.obstacle.as_ref().map(|error| format!(": {}", error.message())).unwrap_or_default();
        format!("merged files not written there{reason}")
    }

    /// Returns the command that writes them, for a hint.
    pub(crate) fn hint(&self, branch: &str, option: &str) -> String {
        match &self.obstacle {
            None => format!("`rath restore {branch}{option}` writes the merged files"),
            Some(_) => hint_in_the_way(branch, option),
        }
    }
}

/// Turns an error of writing the files of a merge into a failure with a hint.
pub(crate) fn explain(error: rath::Error, branch: &str, option: &str) -> Failure {
    let is_in_the_way = error.kind() == ErrorKind::Conflict;
    let failure = Failure::from(error);
    if is_in_the_way { failure.with_hint(hint_in_the_way(branch, option)) } else { failure }
}

fn hint_in_the_way(branch: &str, option: &str) -> String {
    format!(
        "move your change away, then `rath restore {branch}{option}` writes the merged files; or `rath checkout {branch} \
         merged{option}` writes them to the directory merged"
    )
}

/// Prints on stderr that the files of a merge are not written.
pub(crate) fn note(unwritten: &UnwrittenFiles, branch: &str, option: &str) {
    let directory = output::path(&unwritten.directory);
    let reason = unwritten.obstacle.as_ref().map(|error| format!(": {}", error.message())).unwrap_or_default();
    output::note(&format!("the merged files are not written to {directory}{reason}"));
    output::message!("hint: {}", unwritten.hint(branch, option));
}
