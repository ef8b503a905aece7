//! The overlay module for systems without overlay mounts: forks are copies.

use std::path::Path;

use crate::checkout::CopySource;
use crate::error::Result;
use crate::fork_method::MountedFork;
use crate::index;
use crate::objects::Objects;
use crate::tree::ObjectId;

/// The end of the name of the layers directory.
pub(crate) const LAYERS_SUFFIX: &str = ".layers";

/// A type without values: no overlay is ever mounted.
#[derive(Debug)]
pub(crate) enum OverlayMount {}

pub(crate) fn can_mount(_trial: &Path) -> bool {
    false
}

pub(crate) fn unmount_trial(_trial: &Path) {}

pub(crate) fn sweep(_directory: &Path) {}

pub(crate) fn path_in_layer(_path: &Path) -> Option<std::path::PathBuf> {
    None
}

pub(crate) fn is_complete(_directory: &Path) -> bool {
    true
}

pub(crate) fn unmount_fork(_directory: &Path) {}

pub(crate) fn base_of(_directory: &Path) -> Option<ObjectId> {
    None
}

pub(crate) fn upper_layer(_directory: &Path) -> Option<std::path::PathBuf> {
    None
}

pub(crate) fn layers_dir(directory: &Path) -> std::path::PathBuf {
    directory.with_extension("layers")
}

pub(crate) fn clear(_directory: &Path) {}

pub(crate) fn fork(
    _objects: &Objects,
    _tree: ObjectId,
    _into: &Path,
    _about: &index::IndexKey,
    _source: Option<CopySource>,
) -> Result<Option<MountedFork>> {
    Ok(None)
}

impl OverlayMount {
    pub(crate) fn open(_objects: &Objects, _directory: &Path) -> Result<Option<Self>> {
        Ok(None)
    }
}
