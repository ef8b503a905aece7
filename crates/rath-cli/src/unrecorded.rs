//! Changes to the files of a session that no step records yet, as a person makes them between two turns.

use rath::record::draw::describe_effect;
use rath::{BranchId, Chunk, Difference, ErrorKind, Session, Store};

use crate::agent::describe_paths;
use crate::output::{self, Failure};
use crate::project_context::push_changed_files;

/// The state of a session's directory when the session is forked.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum FilesOfFork {
    /// The directory was as its record says.
    AsRecorded,
    /// Changes were recorded now.
    Recorded,
    /// Changes were not recorded, and the fork is without them.
    WithoutChanges,
}

/// Records what changed in the directory of a session since its last turn, and tells the model, so that a fork has the changes.
///
/// They cannot be recorded while another process writes the session, or if a call may have made them: that is said.
pub(crate) async fn record_before_fork(store: &Store, branch: BranchId) -> Result<FilesOfFork, Failure> {
    let looked = store.fork(branch).await?;
    let changed = looked.certificate().differences().iter().find_map(|difference| match difference {
        Difference::Files { paths } | Difference::Unobserved { paths, .. } => Some(paths.clone()),
        _ => None,
    });
    let Some(paths) = changed else { return Ok(FilesOfFork::AsRecorded) };
    if let Some(mut session) = open_to_record(store, branch).await? {
        let is_observed = |step: &&rath::record::Step| matches!(step.chunk(), Chunk::Observed(_));
        let observed = session.head().filter(is_observed).map(|step| step.chunk().effects().to_vec());
        let paths: Vec<_> = observed.unwrap_or_default().iter().map(describe_effect).collect();
        output::message!("{} since the last turn", describe_paths(&paths));
        push_changed_files(&mut session, &paths);
        session.durable().await?;
        return Ok(FilesOfFork::Recorded);
    }
    let (name, changes) = (branch.short(), describe_paths(&paths));
    output::warning(&format!("the fork does not have what changed in {name} since the last turn: {changes}"));
    Ok(FilesOfFork::WithoutChanges)
}

/// Opens a session with the changes to its files on the record. None if another process writes it, or if not only its files differ.
async fn open_to_record(store: &Store, branch: BranchId) -> Result<Option<Session>, Failure> {
    match store.resume(branch).await {
        Ok(resumed) => {
            let is_by_person = |it: &Difference| matches!(it, Difference::Files { .. } | Difference::InDoubt { .. });
            let is_recordable = resumed.certificate().differences().iter().all(is_by_person);
            Ok(if is_recordable { Some(resumed.accept_file_changes()?) } else { None })
        }
        Err(error) if error.kind() == ErrorKind::Conflict => Ok(None),
        Err(error) => Err(error.into()),
    }
}
