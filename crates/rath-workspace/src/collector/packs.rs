//! Packs of which a part is removed: the rest is copied to a new pack, as it is stored.

use std::collections::HashSet;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use super::{CollectMode, entries, unreadable_pack};
use crate::error::Result;
use crate::objects::{MAX_OBJECT_BYTES, ObjectKind, Objects, io_error};
use crate::pack::{self, Pack, PackWriter, PackedObject};
use crate::tree::ObjectId;

/// A pack, and where each of its objects begins and ends.
pub(super) struct StoredPack {
    pack: Arc<Pack>,
    /// The objects, in the order of the pack.
    ranges: Vec<PackRange>,
    bytes: u64,
}

/// The most bytes that an object takes in a pack: text that cannot be compressed grows a little.
const MAX_STORED_BYTES: u64 = MAX_OBJECT_BYTES + MAX_OBJECT_BYTES / 1000 + 1024;

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
        for entry in entries(&objects.folder().join("objects/pack"))? {
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
        let is_wrong = |range: &PackRange| range.start >= range.end || range.end - range.start > MAX_STORED_BYTES;
        if ranges.iter().any(is_wrong) {
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

    /// Returns true if the pack has no index on the disk.
    pub(super) fn is_unindexed(&self) -> bool {
        !self.pack.index().exists()
    }

    /// Writes the index of a pack that has none.
    pub(super) fn write_index(&self, objects: &Objects) -> Result<()> {
        let path = self.pack.index();
        self.pack.write_index(objects).map_err(|error| io_error(path, "write", error))
    }

    /// Returns an object that is stored as a difference to another, as a whole.
    fn unpack(&self, range: &PackRange) -> Result<PackedObject> {
        let [_, path] = self.pack.files();
        let (kind, content) = self.pack.read(range.start, u64::MAX)?;
        let kind = [ObjectKind::Blob, ObjectKind::Tree].into_iter().find(|known| known.name() == kind);
        let kind = kind.ok_or_else(|| unreadable_pack(&path))?;
        PackedObject::new(kind, &content).map_err(|error| io_error(&path, "read", error))
    }

    /// Returns true if each object is stored as a whole. Git writes packs in which it is not, and they stay as they are, unless they
    /// hold a file that is forgotten.
    pub(super) fn can_be_split(&self) -> bool {
        self.ranges.iter().all(|range| self.pack.is_whole(range.start))
    }
}

/// Reads the packs without an index, so that their objects are found: a process was killed before it wrote or after it removed the
/// index, or the index was lost. Returns the packs that cannot be read.
pub(super) fn read_unindexed(objects: &Objects) -> Result<Vec<PathBuf>> {
    let mut unreadable = Vec::new();
    for entry in entries(&objects.folder().join("objects/pack"))? {
        let path = entry.path();
        if path.extension().is_some_and(|extension| extension == "pack") && !path.with_extension("idx").exists() {
            match Pack::reindex(&path) {
                Ok(pack) => objects.add_pack(pack),
                Err(_) => unreadable.push(path),
            }
        }
    }
    unreadable.sort();
    Ok(unreadable)
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
        let written = match stored.pack.is_whole(range.start) {
            true => writer.copy(range.id, &stored.pack, range.start, range.end),
            false => writer.add(range.id, &stored.unpack(range)?),
        };
        written.map_err(failed)?;
    }
    let written = writer.finish()?;
    let files = written.files();
    objects.add_pack(written);
    objects.sync_files(&files)?;
    Ok(bytes)
}
