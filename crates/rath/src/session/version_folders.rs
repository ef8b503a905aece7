//! The folders in which the versions of a session's files are looked for.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use rath_record::{Chunk, Step};
use rath_workspace::Objects;

use super::versions::{self, Versions};
use super::{Error, Result, Session};
use crate::error::ErrorKind;
use crate::place::Place;
use crate::sandbox::{RATH_DIR, Sandbox};
use crate::store::{make_folder, rath_dir};

/// The folder of versions, in the `.rath` of a directory.
pub(super) const VERSIONS_DIR: &str = "workspace";

impl Session {
    /// Names the directory in whose `.rath` the versions of files are that came with the session: that of the [`Bundle`](crate::Bundle)
    /// which it was imported from. They are read there if the session has no place of its own, or its directory is gone.
    pub fn with_files_in(mut self, directory: impl AsRef<Path>) -> Self {
        self.live.place = self.live.place.with_files_in(directory.as_ref().to_owned());
        self
    }

    /// Returns the stored versions of the session's files.
    pub(super) fn versions(&self) -> Result<Versions> {
        if self.live.place.branch_dirs().is_none() && self.replaying().is_none() {
            if self.is_guest() {
                return self.guest_versions();
            }
            if let Some(versions) = self.forgotten_place().and_then(|place| self.versions_at(&place)) {
                return versions;
            }
            // A place whose kind is not known here may have copies beside the store.
            if let Some(place) = self.place()
                && self.open_place(&place).is_err()
                && let Some(versions) = self.versions_at(&place)
            {
                return versions;
            }
            if self.place().is_none()
                && let Some(versions) = self.imported_versions()
            {
                return versions;
            }
        }
        let branch_dirs = self.branch_dirs()?;
        if self.replaying().is_none()
            && let Some(folder) = &self.live.mirrors_in
        {
            branch_dirs.open_mirror(Some(folder))?;
        }
        // Where there are none, those of the recorded files are elsewhere.
        let has_files =
            self.tree().is_some() && self.replaying().is_none() && branch_dirs.sandbox().directory().is_some();
        if has_files && !branch_dirs.has_versions()? {
            return Err(missing_files().with_session(self));
        }
        let versions = branch_dirs.versions()?;
        versions.cloned().ok_or_else(|| {
            let message = format!("no versions of files are stored for {}", branch_dirs.sandbox().uri());
            Error::new(ErrorKind::Place, message).with_session(self)
        })
    }

    /// Returns the stored versions of the session's files, for reading. Creates nothing: if there are none at its place, those that came
    /// with the session are read, or those in the directory that it was moved to.
    pub(super) fn recorded_versions(&self) -> Result<Versions> {
        let is_unused = self.live.place.branch_dirs().is_none() && self.replaying().is_none() && !self.is_guest();
        let sandbox = self.place().filter(|_| is_unused).and_then(|place| self.open_place(&place).ok());
        match sandbox.as_ref().and_then(Sandbox::directory) {
            Some(root) if !root.join(RATH_DIR).join(VERSIONS_DIR).is_dir() => {
                self.imported_versions().unwrap_or_else(|| Err(missing_files().with_session(self)))
            }
            _ => self.versions(),
        }
    }

    /// Opens the versions of a guest's files for reading: those that it came with, or else those at the place that it names.
    fn guest_versions(&self) -> Result<Versions> {
        let tree = self.tree().and_then(|tree| versions::tree_id(&tree).ok());
        let has_files = |versions: &Versions| tree.is_none_or(|tree| versions.objects().has_tree(tree));
        let (mut imported, placed) =
            (self.imported_versions(), self.place().and_then(|place| self.versions_at(&place)));
        if matches!((&imported, &placed), (Some(Ok(versions)), Some(_)) if !has_files(versions)) {
            imported = None;
        }
        imported.or(placed).unwrap_or_else(|| Err(self.guest_error("read its files")))
    }

    /// Opens the versions in the directory of a recorded place for reading; none if there are none. Nothing is written or run there.
    fn versions_at(&self, place: &Place) -> Option<Result<Versions>> {
        versions_in(&self.files_dir(place)?)
    }

    /// Opens the versions for reading that came with the session; none if there are none.
    pub(super) fn imported_versions(&self) -> Option<Result<Versions>> {
        self.live.place.files_in().and_then(versions_in)
    }

    /// Opens all folders for reading that may have versions of the session's files. Blocks.
    pub(crate) fn version_folders(&self) -> Vec<Objects> {
        let opened = self.version_dirs().into_iter().filter_map(|directory| versions_in(&directory)?.ok());
        opened.map(|versions| versions.objects().clone()).collect()
    }

    /// Returns the directories in whose `.rath` versions of the session's files may be: its place, the places that it had since it
    /// is the user's own, and that of the files that it came with. Of a guest, the one in which they are read. Blocks.
    pub(crate) fn version_dirs(&self) -> Vec<PathBuf> {
        if self.is_guest() {
            let read = self.guest_versions().ok();
            return read.and_then(|versions| versions.project_dir()?.canonicalize().ok()).into_iter().collect();
        }
        let mut directories: Vec<_> = self.live.place.files_in().map(Path::to_owned).into_iter().collect();
        let open = self.live.place.branch_dirs().filter(|_| !self.is_guest());
        directories.extend(open.and_then(|dirs| dirs.root().map(Path::to_owned)));
        let mut add = |place: &Place| directories.extend(self.files_dir(place));
        self.place().iter().chain(&self.forgotten_place()).for_each(&mut add);
        let is_adoption = |step: &&Step| matches!(step.chunk(), Chunk::Adopted(_));
        for step in self.as_record().newest_first().take_while(|step| !is_adoption(step)) {
            if let Chunk::Placed(placed) = step.chunk() {
                add(&Place::from_record(&placed.place));
            }
        }
        let mut canonical: Vec<_> = directories.into_iter().filter_map(|path| path.canonicalize().ok()).collect();
        let mut seen = HashSet::new();
        canonical.retain(|path| seen.insert(path.clone()));
        canonical
    }

    /// Returns the place that the session had before a step was forgotten, if it has none since.
    ///
    /// The step may have been one that gave it another place, so [`to`](Session::to) has to name the place again. Versions of
    /// files can still be read there. See [`Store::forget`](crate::Store::forget).
    pub fn forgotten_place(&self) -> Option<Place> {
        if self.place().is_some() {
            return None;
        }
        let find = |step: &Step| match step.chunk() {
            Chunk::Adopted(_) => Some(None),
            Chunk::Placed(placed) => Some(Some(Place::from_record(&placed.place))),
            _ => None,
        };
        self.as_record().find_newest(find).flatten()
    }
}

/// Returns the error for files that are not where the session is read.
pub(super) fn missing_files() -> Error {
    Error::new(ErrorKind::Damaged, "the recorded files of this session are not in this copy")
        .with_hint("run this in the project's directory, or in a sandbox that has the files")
}

/// Opens the folder of versions of a directory, and creates it if it is missing. Blocks.
pub(crate) fn open_versions(directory: &Path) -> Result<Objects> {
    let own = std::path::absolute(directory)?.join(RATH_DIR);
    let failed = |error: std::io::Error| {
        Error::new(ErrorKind::Io, format_args!("cannot store files in {}", own.display())).because(error)
    };
    rath_dir::check(&own).map_err(failed)?;
    make_folder(&own).map_err(failed)?;
    Ok(Objects::open(&own.join(VERSIONS_DIR))?)
}

/// Opens the versions in a directory for reading; none if there are none.
pub(crate) fn versions_in(directory: &Path) -> Option<Result<Versions>> {
    let folder = directory.join(RATH_DIR).join(VERSIONS_DIR);
    let open = || {
        rath_dir::check(&folder)?;
        Versions::open_read_only(&folder)
    };
    folder.is_dir().then(open)
}

/// Returns true if there is nothing in a directory but rath's own.
pub(super) fn holds_no_files(directory: &Path) -> std::io::Result<bool> {
    for entry in std::fs::read_dir(directory)? {
        if entry?.file_name() != RATH_DIR {
            return Ok(false);
        }
    }
    Ok(true)
}
