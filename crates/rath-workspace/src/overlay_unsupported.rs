//! The overlay module for systems without overlay mounts: forks are copies.

use std::path::Path;
use std::sync::Arc;

use super::checkout::CopySource;
use super::dir::Dir;
use super::index;
use super::objects::Objects;
use super::tree::ObjectId;
use crate::error::Result;

/// A type without values: no overlay is ever mounted.
#[derive(Debug)]
pub(super) enum OverlayMount {}

pub(crate) fn can_mount(_folder: &Path) -> bool {
    false
}

pub(super) fn is_complete(_directory: &Path) -> bool {
    true
}

pub(super) fn clear(_directory: &Path) {}

pub(super) fn fork(
    _objects: &Objects,
    _tree: ObjectId,
    _into: &Path,
    _about: &index::IndexKey,
    _source: Option<CopySource>,
) -> Result<Option<(OverlayMount, Option<Arc<Dir>>)>> {
    Ok(None)
}

impl OverlayMount {
    pub(super) fn open(_objects: &Objects, _directory: &Path) -> Result<Option<Self>> {
        Ok(None)
    }
}
