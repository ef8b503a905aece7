//! Packs of which a part is removed: the rest is copied to a new pack, as it is stored.

use std::collections::HashSet;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use super::{CollectMode, unreadable_pack};
use crate::error::Result;
use crate::objects::{Objects, io_error};
use crate::pack::{self, Pack, PackWriter, PackedObject};
use crate::tree::ObjectId;

/// A pack, and where each of its objects begins and ends.
pub(super) struct StoredPack {
    pack: Arc<Pack>,
    /// The objects, in the order of the pack.
    ranges: Vec<PackRange>,
    bytes: u64,
}

/// The place of one object in a pack.
struct PackRange {
    id: ObjectId,
    start: u64,
    end: u64,
}

impl StoredPack {
    /// Opens all packs of a folder.
    pub(super) fn open_all(objects: &Objects) -> Result<Vec<Self>> {
        let packs = objects.packs();
        // The objects of a pack whose index is damaged are not known, and may be named.
        for entry in super::entries(&objects.folder().join("objects/pack"))? {
            let path = entry.path();
            if path.extension().is_some_and(|it| it == "idx") && !packs.iter().any(|pack| pack.index() == path) {
                return Err(unreadable_pack(&path));
            }
        }
        packs.into_iter().map(StoredPack::open).collect()
    }

    fn open(pack: Arc<Pack>) -> Result<Self> {
        let [index, path] = pack.files();
        let mut places = pack.places().ok_or_else(|| unreadable_pack(&path))?;
        places.sort_unstable_by_key(|(_, offset)| *offset);
        let end = pack.length().saturating_sub(pack::CHECKSUM_BYTES);
        let ends = places.iter().skip(1).map(|(_, offset)| *offset).chain([end]);
        let ranges: Vec<_> =
            places.iter().zip(ends).map(|((id, start), end)| PackRange { id: *id, start: *start, end }).collect();
        if ranges.iter().any(|range| range.start >= range.end) {
            return Err(unreadable_pack(&path));
        }
        let bytes = pack.length() + fs::metadata(&index).map_or(0, |metadata| metadata.len());
        Ok(StoredPack { pack, ranges, bytes })
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = ObjectId> + '_ {
        self.ranges.iter().map(|range| range.id)
    }

    /// Returns the number of bytes of each object.
    pub(super) fn sizes(&self) -> impl Iterator<Item = (ObjectId, u64)> + '_ {
        self.ranges.iter().map(|range| (range.id, range.end - range.start))
    }

    pub(super) fn count(&self) -> usize {
        self.ranges.len()
    }

    /// Returns the bytes of the pack and its index.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn files(&self) -> [PathBuf; 2] {
        self.pack.files()
    }

    /// Returns true if each object is stored as a whole. Git writes packs in which it is not, and they stay as they are.
    pub(super) fn can_be_split(&self) -> bool {
        self.ranges.iter().all(|range| self.pack.is_whole(range.start))
    }
}

/// Copies the kept objects of some packs to a new pack, which is durable on return. Returns the bytes of the pack and its index, or
/// those that it would have.
pub(super) fn rewrite(
    objects: &Objects,
    packs: &[StoredPack],
    kept: &HashSet<ObjectId>,
    mode: CollectMode,
) -> Result<u64> {
    let mut seen = HashSet::new();
    let mut ranges = Vec::new();
    for stored in packs {
        ranges.extend(
            stored.ranges.iter().filter(|it| kept.contains(&it.id) && seen.insert(it.id)).map(|it| (stored, it)),
        );
    }
    if ranges.is_empty() {
        return Ok(0);
    }
    let content: u64 = ranges.iter().map(|(_, range)| range.end - range.start).sum();
    let bytes = pack::pack_bytes(content) + pack::index_bytes(ranges.iter().map(|(_, range)| range.end - range.start));
    if mode == CollectMode::DryRun {
        return Ok(bytes);
    }
    let failed = |error| io_error(objects.folder(), "write a pack to", error);
    let mut writer = PackWriter::create(objects).map_err(failed)?;
    for (stored, range) in ranges {
        let object = PackedObject::copy(&stored.pack, range.start, range.end).map_err(failed)?;
        writer.add(range.id, &object).map_err(failed)?;
    }
    let written = writer.finish()?;
    let files = written.files();
    objects.add_pack(written);
    objects.sync_files(&files)?;
    Ok(bytes)
}
