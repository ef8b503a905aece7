//! Pack files: many objects in one file, with an index of their offsets.

mod reindex;

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use flate2::Crc;
use flate2::bufread::ZlibDecoder;
use flate2::write::ZlibEncoder;

use crate::disk;
use crate::error::{Error, ErrorKind, Result};
use crate::objects::{COMPRESSION_LEVEL, MAX_INDEX_BYTES, ObjectKind, Objects, checksum, io_error, too_large};
use crate::regular_file::read_at_most;
use crate::tree::ObjectId;

/// A pack that can be read.
///
/// All packs that git writes can be read, with deltas; packs of this crate contain none.
#[derive(Debug)]
pub(crate) struct Pack {
    index: PathBuf,
    bytes: Vec<u8>,
    file: File,
    length: u64,
    count: usize,
}

/// A pack that is being written, to a temporary file until it is complete.
pub(crate) struct PackWriter {
    home: Objects,
    folder: PathBuf,
    path: PathBuf,
    file: io::BufWriter<File>,
    at: u64,
    objects: Vec<PackEntry>,
}

/// One object of a pack, as its index lists it.
#[derive(Clone, Copy)]
struct PackEntry {
    id: ObjectId,
    crc: u32,
    offset: u64,
}

/// An object in the form that a pack stores: a header and compressed content.
pub(crate) struct PackedObject(Vec<u8>);

/// The offset of the fan-out table in an index.
const FANOUT_OFFSET: usize = 8;
/// The offset of the sorted ids in an index.
const IDS_OFFSET: usize = FANOUT_OFFSET + 256 * 4;
/// The bit of an offset that marks it as a position in the table of 64-bit offsets.
const LARGE_OFFSET_FLAG: u32 = 1 << 31;

/// The length of the checksum at the end of a pack.
pub(crate) const CHECKSUM_BYTES: u64 = 20;
/// The size of the blocks in which objects are copied from pack to pack.
const COPY_BLOCK_BYTES: usize = 1 << 18;
/// The length of the header of a pack.
const HEADER_BYTES: u64 = 12;

/// The longest chain of deltas that is followed; git writes none longer.
const MAX_DELTA_CHAIN: usize = 4096;

/// The number of an object's kind, the offset of its base if it is a delta, and its stored bytes.
type StoredObject = (u8, Option<u64>, Vec<u8>);

impl Pack {
    /// Opens a pack by its index.
    pub(crate) fn open(index: &Path) -> Result<Self> {
        let path = index.with_extension("pack");
        let damaged = || Error::new(ErrorKind::Damaged, format_args!("the index `{}` is damaged", index.display()));
        let bytes = read_at_most(index, MAX_INDEX_BYTES).map_err(|error| io_error(index, "read", error))?;
        let file = File::open(&path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => damaged(),
            _ => io_error(&path, "read", error),
        })?;
        let length = file.metadata().map_err(|error| io_error(&path, "read", error))?.len();
        if bytes.get(..FANOUT_OFFSET) != Some(b"\xfftOc\0\0\0\x02") || bytes.len() < IDS_OFFSET + 40 {
            return Err(damaged());
        }
        let end = bytes.len() - 20;
        if checksum(&[&bytes[..end]]) != bytes[end..] {
            return Err(damaged());
        }
        let pack =
            Pack { index: index.to_owned(), count: read_u32(&bytes, IDS_OFFSET - 4) as usize, bytes, file, length };
        let fan_rises = (1..256).all(|first| pack.fan(first - 1) <= pack.fan(first));
        let fits = pack.count.checked_mul(28).is_some_and(|table| pack.bytes.len() >= IDS_OFFSET + table + 40);
        if fan_rises && fits { Ok(pack) } else { Err(damaged()) }
    }

    /// Returns the path of the index.
    pub(crate) fn index(&self) -> &Path {
        &self.index
    }

    /// Returns the paths of the index and of the pack.
    pub(crate) fn files(&self) -> [PathBuf; 2] {
        [self.index.clone(), self.index.with_extension("pack")]
    }

    /// Returns the offset of an object; none if the pack does not contain it.
    pub(crate) fn offset_of(&self, id: ObjectId) -> Option<u64> {
        let first = usize::from(id.0[0]);
        let (mut low, mut high) = (if first == 0 { 0 } else { self.fan(first - 1) }, self.fan(first));
        while low < high {
            let middle = usize::midpoint(low, high);
            let at = IDS_OFFSET + middle * 20;
            match self.bytes[at..at + 20].cmp(&id.0) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal => return self.offset(middle),
            }
        }
        None
    }

    /// Returns the ids and offsets of all objects; none if the index is damaged.
    pub(crate) fn places(&self) -> Option<Vec<(ObjectId, u64)>> {
        let id = |nth: usize| self.bytes[IDS_OFFSET + nth * 20..][..20].try_into().ok().map(ObjectId);
        (0..self.count).map(|nth| Some((id(nth)?, self.offset(nth)?))).collect()
    }

    /// Returns the length of the pack in bytes.
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// Returns true if the object at an offset is stored as a whole, and not as a difference to another.
    pub(crate) fn is_whole(&self, offset: u64) -> bool {
        let mut first = [0];
        disk::read_at(&self.file, &mut first, offset)
            .is_ok_and(|read| read == 1 && (1..=4).contains(&(first[0] >> 4 & 7)))
    }

    /// Returns the kind and the content of the object at an offset. It and its bases have at most `max` bytes each.
    pub(crate) fn read(&self, offset: u64, max: u64) -> Result<(&'static str, Vec<u8>)> {
        let damaged = || {
            let path = self.index.with_extension("pack");
            Error::new(ErrorKind::Damaged, format_args!("the pack `{}` is damaged at byte {offset}", path.display()))
        };
        let mut deltas = Vec::new();
        let mut at = offset;
        let (kind, mut content) = loop {
            let stored = self.read_stored(at, max).map_err(|error| damaged().because(error))?;
            let (number, base, content) = stored.ok_or_else(|| too_large(max))?;
            match number {
                1 => break ("commit", content),
                2 => break ("tree", content),
                3 => break ("blob", content),
                4 => break ("tag", content),
                _ if deltas.len() == MAX_DELTA_CHAIN => return Err(damaged()),
                _ => deltas.push(content),
            }
            at = base.ok_or_else(damaged)?;
        };
        while let Some(delta) = deltas.pop() {
            if delta_size(&delta).is_some_and(|size| size as u64 > max) {
                return Err(too_large(max));
            }
            content = apply_delta(&content, &delta).ok_or_else(damaged)?;
        }
        Ok((kind, content))
    }

    /// Returns the number of objects whose id begins with a byte up to `first`.
    fn fan(&self, first: usize) -> usize {
        read_u32(&self.bytes, FANOUT_OFFSET + first * 4) as usize
    }

    /// Returns the offset of the object at a position of the index.
    fn offset(&self, nth: usize) -> Option<u64> {
        let offsets = IDS_OFFSET + self.count * 24;
        let offset = read_u32(&self.bytes, offsets + nth * 4);
        if offset & LARGE_OFFSET_FLAG == 0 {
            return Some(offset.into());
        }
        let at = offsets + self.count * 4 + (offset & !LARGE_OFFSET_FLAG) as usize * 8;
        let large = self.bytes.get(at..at + 8)?;
        Some(u64::from_be_bytes(large.try_into().ok()?))
    }

    /// Returns what is stored at an offset; none if it has more than `max` bytes.
    fn read_stored(&self, offset: u64, max: u64) -> io::Result<Option<StoredObject>> {
        let unreadable = || io::Error::other("the object cannot be read");
        // Most objects are small: one read gets the header and the content.
        let mut start = vec![0; 8192];
        let got = read_full_at(&self.file, &mut start, offset)?;
        start.truncate(got);
        let mut bytes = start.iter().copied();
        let first = bytes.next().ok_or_else(unreadable)?;
        let (number, mut size, mut shift, mut more) = (first >> 4 & 7, u64::from(first & 15), 4, first & 128 != 0);
        let mut used = 1;
        while more {
            let byte = bytes.next().filter(|_| shift < 60).ok_or_else(unreadable)?;
            size |= u64::from(byte & 127) << shift;
            (shift, more, used) = (shift + 7, byte & 128 != 0, used + 1);
        }
        let base = match number {
            6 => {
                let mut byte = bytes.next().ok_or_else(unreadable)?;
                let mut back = u64::from(byte & 127);
                used += 1;
                while byte & 128 != 0 {
                    byte = bytes.next().ok_or_else(unreadable)?;
                    back = back.checked_add(1).and_then(|back| back.checked_mul(128)).ok_or_else(unreadable)?;
                    back |= u64::from(byte & 127);
                    used += 1;
                }
                Some(offset.checked_sub(back).filter(|_| back > 0).ok_or_else(unreadable)?)
            }
            7 => {
                let id = start.get(used..used + 20).and_then(|id| id.try_into().ok()).ok_or_else(unreadable)?;
                used += 20;
                Some(self.offset_of(ObjectId(id)).ok_or_else(unreadable)?)
            }
            _ => None,
        };
        // A damaged length must not allocate more memory than the file can expand to: deflate expands a byte to 1032 at
        // most.
        if size / 1100 > self.length {
            return Err(unreadable());
        }
        if size > max {
            return Ok(None);
        }
        let size = usize::try_from(size).map_err(|_| unreadable())?;
        let mut content = Vec::with_capacity(size);
        let rest = FileTail { file: &self.file, at: offset + start.len() as u64 };
        let input = io::BufReader::with_capacity(1 << 16, start[used..].chain(rest));
        ZlibDecoder::new(input).take(size as u64 + 1).read_to_end(&mut content)?;
        if content.len() == size { Ok(Some((number, base, content))) } else { Err(unreadable()) }
    }
}

impl PackWriter {
    /// Creates a pack in a folder of objects.
    pub(crate) fn create(objects: &Objects) -> io::Result<Self> {
        let folder = objects.folder().join("objects/pack");
        let path = objects.temporaries().path()?;
        let file = File::options().read(true).write(true).create_new(true).open(&path)?;
        let mut file = io::BufWriter::with_capacity(1 << 18, file);
        // The number of objects is filled in at the end.
        file.write_all(b"PACK\0\0\0\x02\0\0\0\0")?;
        Ok(PackWriter { home: objects.clone(), folder, path, file, at: 12, objects: Vec::new() })
    }

    /// Adds an object.
    pub(crate) fn add(&mut self, id: ObjectId, object: &PackedObject) -> io::Result<()> {
        let mut crc = Crc::new();
        crc.update(&object.0);
        self.file.write_all(&object.0)?;
        self.objects.push(PackEntry { id, crc: crc.sum(), offset: self.at });
        self.at += object.0.len() as u64;
        Ok(())
    }

    /// Copies an object from another pack, as it is stored there. It is copied in blocks: the index of a pack may come from elsewhere,
    /// and may name any length.
    pub(crate) fn copy(&mut self, id: ObjectId, pack: &Pack, start: u64, end: u64) -> io::Result<()> {
        let (mut crc, mut at, mut block) = (Crc::new(), start, vec![0; COPY_BLOCK_BYTES]);
        while at < end {
            let wanted = usize::try_from(end - at).unwrap_or(usize::MAX).min(block.len());
            let read = read_full_at(&pack.file, &mut block[..wanted], at)?;
            if read < wanted {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            crc.update(&block[..read]);
            self.file.write_all(&block[..read])?;
            at += read as u64;
        }
        self.objects.push(PackEntry { id, crc: crc.sum(), offset: self.at });
        self.at += end - start;
        Ok(())
    }

    /// Writes the index, and renames both files to their final names.
    pub(crate) fn finish(mut self) -> Result<Pack> {
        let path = self.path.clone();
        self.write_files()
            .map_err(|error| io_error(&path, "write the pack", error))
            .and_then(|index| Pack::open(&index))
    }

    fn write_files(&mut self) -> io::Result<PathBuf> {
        let count = u32::try_from(self.objects.len()).map_err(io::Error::other)?;
        self.file.flush()?;
        let file = self.file.get_mut();
        disk::write_all_at(file, &count.to_be_bytes(), 8)?;
        file.seek(SeekFrom::Start(0))?;
        let mut hasher = sha1dc::Hasher::new();
        let mut buffer = vec![0; 1 << 18];
        loop {
            match file.read(&mut buffer)? {
                0 => break,
                read => hasher.update(&buffer[..read]),
            }
        }
        let sum: [u8; 20] = match hasher.finalize() {
            Ok(digest) => digest.into(),
            Err(collision) => collision.digest().into(),
        };
        disk::write_all_at(file, &sum, self.at)?;
        let name = format!("pack-{}", ObjectId(sum));
        std::fs::rename(&self.path, self.folder.join(format!("{name}.pack")))?;
        let index = self.folder.join(format!("{name}.idx"));
        let bytes = encode_index(&mut self.objects, &sum);
        self.home.temporaries().write_new(&index, &bytes)?;
        Ok(index)
    }
}

/// Removes the temporary file of a pack that was not finished.
impl Drop for PackWriter {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Returns the bytes of the index of a pack with these objects and this checksum.
fn encode_index(objects: &mut [PackEntry], sum: &[u8; 20]) -> Vec<u8> {
    objects.sort_unstable_by_key(|object| object.id);
    let objects = &*objects;
    let mut bytes = Vec::with_capacity(IDS_OFFSET + objects.len() * 28 + 40);
    bytes.extend_from_slice(b"\xfftOc\0\0\0\x02");
    for first in 0..=255_u8 {
        let until = objects.partition_point(|object| object.id.0[0] <= first);
        bytes.extend_from_slice(&(until as u32).to_be_bytes());
    }
    objects.iter().for_each(|object| bytes.extend_from_slice(&object.id.0));
    objects.iter().for_each(|object| bytes.extend_from_slice(&object.crc.to_be_bytes()));
    let mut large = Vec::new();
    for object in objects {
        let offset = match u32::try_from(object.offset) {
            Ok(offset) if offset < LARGE_OFFSET_FLAG => offset,
            _ => {
                large.extend_from_slice(&object.offset.to_be_bytes());
                LARGE_OFFSET_FLAG | (large.len() / 8 - 1) as u32
            }
        };
        bytes.extend_from_slice(&offset.to_be_bytes());
    }
    bytes.extend_from_slice(&large);
    bytes.extend_from_slice(sum);
    let own = checksum(&[&bytes]);
    bytes.extend_from_slice(&own);
    bytes
}

/// Returns the length of a pack whose objects take this many bytes.
pub(crate) fn pack_bytes(content: u64) -> u64 {
    HEADER_BYTES + content + CHECKSUM_BYTES
}

/// Returns the length of the index of a pack with objects of these lengths, in the order of the pack.
pub(crate) fn index_bytes(lengths: impl Iterator<Item = u64>) -> u64 {
    let (mut at, mut bytes) = (HEADER_BYTES, IDS_OFFSET as u64 + 2 * CHECKSUM_BYTES);
    for length in lengths {
        bytes += if at < LARGE_OFFSET_FLAG.into() { 28 } else { 36 };
        at += length;
    }
    bytes
}

impl PackedObject {
    pub(crate) fn new(kind: ObjectKind, content: &[u8]) -> io::Result<Self> {
        let mut bytes = Vec::with_capacity(content.len() / 2 + 32);
        push_header(&mut bytes, kind, content.len());
        let mut encoder = ZlibEncoder::new(bytes, COMPRESSION_LEVEL);
        encoder.write_all(content)?;
        encoder.finish().map(PackedObject)
    }

    /// Takes content that is compressed already: `zlib` is one stream that stands for `size` bytes.
    pub(crate) fn from_zlib(kind: ObjectKind, size: usize, zlib: &[u8]) -> Self {
        let mut bytes = Vec::with_capacity(zlib.len() + 16);
        push_header(&mut bytes, kind, size);
        bytes.extend_from_slice(zlib);
        PackedObject(bytes)
    }
}

/// Writes the kind and the size of an object.
fn push_header(bytes: &mut Vec<u8>, kind: ObjectKind, mut size: usize) {
    let mut byte = kind.number() << 4 | (size & 15) as u8;
    size >>= 4;
    while size > 0 {
        bytes.push(byte | 128);
        byte = (size & 127) as u8;
        size >>= 7;
    }
    bytes.push(byte);
}

/// Reads a file from an offset on, without moving the position of the file.
struct FileTail<'a> {
    file: &'a File,
    at: u64,
}

impl io::Read for FileTail<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = disk::read_at(self.file, buffer, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

/// Reads bytes at an offset until the buffer is full or the file ends, and returns their number.
fn read_full_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut got = 0;
    while got < buffer.len() {
        match disk::read_at(file, &mut buffer[got..], offset + got as u64)? {
            0 => break,
            read => got += read,
        }
    }
    Ok(got)
}

fn read_u32(bytes: &[u8], at: usize) -> u32 {
    let four = bytes.get(at..at + 4).and_then(|four| four.try_into().ok()).unwrap_or_default();
    u32::from_be_bytes(four)
}

/// Returns the size of the content that a delta makes.
fn delta_size(mut delta: &[u8]) -> Option<usize> {
    read_length(&mut delta)?;
    read_length(&mut delta)
}

/// Returns the content that a delta produces from its base; none if the delta is damaged.
fn apply_delta(base: &[u8], mut delta: &[u8]) -> Option<Vec<u8>> {
    if read_length(&mut delta)? != base.len() {
        return None;
    }
    let size = read_length(&mut delta)?;
    let mut content = Vec::new();
    while let Some(op) = delta.split_off_first().copied() {
        if op & 128 != 0 {
            let (mut from, mut count) = (0, 0);
            for nth in 0..7 {
                if op & 1 << nth != 0 {
                    let byte = usize::from(*delta.split_off_first()?);
                    match nth {
                        0..4 => from |= byte << (nth * 8),
                        _ => count |= byte << ((nth - 4) * 8),
                    }
                }
            }
            let count = if count == 0 { 0x10000 } else { count };
            content.extend_from_slice(base.get(from..from + count)?);
        } else {
            let count = usize::from(op);
            content.extend_from_slice(delta.split_off(..count).filter(|_| count > 0)?);
        }
        if content.len() > size {
            return None;
        }
    }
    (content.len() == size).then_some(content)
}

/// Reads a length from the header of a delta.
fn read_length(bytes: &mut &[u8]) -> Option<usize> {
    let (mut length, mut shift) = (0, 0);
    loop {
        let byte = bytes.split_off_first().filter(|_| shift < 60)?;
        length |= usize::from(byte & 127) << shift;
        shift += 7;
        if byte & 128 == 0 {
            return Some(length);
        }
    }
}
