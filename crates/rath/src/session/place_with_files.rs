//! Placing a session together with the files that came with it.

use std::path::Path;

use rath_record::chunk::{Placed, Tree};
use rath_record::view;
use rath_workspace::{ObjectKind, Objects, WalkedContent, Workspace};

use super::placement::Placement;
use super::version_folders::holds_no_files;
use super::versions::{self, Versions};
use super::{Error, Result, Session};
use crate::blocking::run_blocking;
use crate::sandbox::Sandbox;
use crate::session::open_versions;

/// The files of a session that was placed in another directory.
///
/// Returned by [`Session::to_with_files`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PlacedFiles {
    /// The session has no files, or none of them are here.
    None,
    /// The files were written to the directory.
    Written {
        /// The number of files.
        files: u64,
    },
    /// There are files in the directory. It was left as it is.
    NotEmpty,
    /// A file is missing or damaged. Nothing was written.
    Incomplete {
        /// The path of the file; empty if all are missing.
        path: String,
    },
}

impl Session {
    /// Places the session in a sandbox, as [`to`](Session::to) does, and writes its newest files there, if the directory is empty:
    /// those that came with it, in the directory that [`with_files_in`](Session::with_files_in) names. Their versions are copied too.
    pub async fn to_with_files(self, sandbox: impl Into<Sandbox>) -> Result<(Self, PlacedFiles)> {
        let sandbox = sandbox.into();
        let (session, root) = (self.quiet(), sandbox.directory().map(Path::to_owned));
        let written = run_blocking(move || match (session.tree(), root) {
            (Some(tree), Some(root)) => session.write_files(&tree, &root).map(|files| (files, tree)),
            _ => Ok((PlacedFiles::None, Tree(String::new()))),
        });
        let (files, tree) = written.await.map_err(|error: Error| error.with_session(&self))?;
        if !matches!(files, PlacedFiles::Written { .. }) {
            return Ok((self.to(sandbox), files));
        }
        let mut session = self.with(Placed::new(sandbox.uri()).with_tree(tree));
        session.live.place = Placement::placed(sandbox);
        Ok((session, files))
    }

    /// Writes the files of a tree to an empty directory, and copies all versions of the session's files. Blocks.
    fn write_files(&self, tree: &Tree, root: &Path) -> Result<PlacedFiles> {
        let Some(source) = self.imported_versions().transpose()? else { return Ok(PlacedFiles::None) };
        let id = versions::tree_id(tree)?;
        if !source.objects().has_tree(id) {
            return Ok(PlacedFiles::None);
        }
        if !holds_no_files(root)? {
            return Ok(PlacedFiles::NotEmpty);
        }
        let folders = [source.objects().clone()];
        let lost = Objects::walk(&folders, [(id.0, ObjectKind::Tree)])
            .find(|walked| !matches!(walked.content, WalkedContent::Intact(_)));
        if let Some(lost) = lost {
            return Ok(PlacedFiles::Incomplete { path: lost.path });
        }
        let objects = open_versions(root)?;
        if objects.folder().canonicalize()? != source.objects().folder().canonicalize()? {
            let target = Versions::from(objects.clone());
            for recorded in view::trees(self.as_record()).list {
                // An older version that is not here stays missing.
                let _ = target.take_from(&source, recorded.tree);
            }
        }
        let index = objects.temp_directory()?.join("index");
        let mut workspace = Workspace::open(root, &objects, &index)?;
        let empty = workspace.snapshot()?;
        workspace.restore(&empty, id)?;
        objects.sync()?;
        Ok(PlacedFiles::Written { files: objects.files(id)?.len() as u64 })
    }
}
