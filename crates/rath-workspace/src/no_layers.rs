//! Where nothing can be mounted, forks are copies.

use std::path::Path;
use std::sync::Arc;

use super::checkout::Live;
use super::dir::Dir;
use super::index;
use super::objects::Objects;
use super::tree::ObjectId;
use crate::error::Result;

/// Never there.
#[derive(Debug)]
pub(super) enum Layers {}

pub(crate) fn can(_folder: &Path) -> bool {
    false
}

pub(super) fn is_whole(_directory: &Path) -> bool {
    true
}

pub(super) fn clear(_directory: &Path) {}

pub(super) fn fork(
    _objects: &Objects,
    _tree: ObjectId,
    _into: &Path,
    _about: &index::About,
    _live: Option<Live>,
) -> Result<Option<(Layers, Option<Arc<Dir>>)>> {
    Ok(None)
}

impl Layers {
    pub(super) fn open(_objects: &Objects, _directory: &Path) -> Result<Option<Self>> {
        Ok(None)
    }
}
