//! Computing the index of a pack whose index is lost.

use std::io::{self, Read as _};
use std::path::Path;

use flate2::Crc;
use flate2::bufread::ZlibDecoder;

use super::{CHECKSUM_BYTES, COPY_BLOCK_BYTES, FileTail, HEADER_BYTES, Pack, PackEntry, encode_index, read_full_at};
use crate::disk;
use crate::objects::{MAX_OBJECT_BYTES, Objects};
use crate::tree::ObjectId;

/// The most bytes of the header of an object in a pack.
const MAX_ENTRY_HEADER_BYTES: usize = 10;

impl Pack {
    /// Reads a whole pack, and computes its index, which is not written. Fails if the pack is damaged, or holds objects as
    /// differences to others.
    pub(crate) fn reindex(path: &Path) -> io::Result<Self> {
        let file = disk::open_plain_file(path)?;
        let length = file.metadata()?.len();
        let mut header = [0; HEADER_BYTES as usize];
        read_full_at(&file, &mut header, 0)?;
        let count = u64::from(super::read_u32(&header, 8));
        // An object takes more than one byte: a number of others allocates nothing.
        if !header.starts_with(b"PACK\0\0\0\x02") || count > length {
            return Err(damaged());
        }
        let end = length.checked_sub(CHECKSUM_BYTES).ok_or_else(damaged)?;
        let mut sum = [0; CHECKSUM_BYTES as usize];
        read_full_at(&file, &mut sum, end)?;
        let mut hasher = sha1dc::Hasher::new();
        read_range(&file, 0, end, |block| hasher.update(block))?;
        let computed: [u8; CHECKSUM_BYTES as usize] = hasher.finalize().map_err(|_| damaged())?.into();
        if computed != sum {
            return Err(damaged());
        }
        let (mut objects, mut at) = (Vec::new(), HEADER_BYTES);
        for _ in 0..count {
            let (id, next) = read_object(&file, at)?;
            let mut crc = Crc::new();
            read_range(&file, at, next, |block| crc.update(block))?;
            objects.push(PackEntry { id, crc: crc.sum(), offset: at });
            at = next;
        }
        if at != end {
            return Err(damaged());
        }
        let bytes = encode_index(&mut objects, &sum);
        Ok(Pack { index: path.with_extension("idx"), bytes, file, length, count: objects.len() })
    }

    /// Writes the index, durably.
    pub(crate) fn write_index(&self, objects: &Objects) -> io::Result<()> {
        objects.temporaries().write_new(&self.index, &self.bytes)?;
        std::fs::File::open(&self.index)?.sync_all()?;
        self.index.parent().map_or(Ok(()), |folder| std::fs::File::open(folder)?.sync_all())
    }
}

/// Returns the id of the object at an offset, and the offset behind it.
fn read_object(file: &std::fs::File, offset: u64) -> io::Result<(ObjectId, u64)> {
    let mut start = [0; MAX_ENTRY_HEADER_BYTES];
    let got = read_full_at(file, &mut start, offset)?;
    let mut bytes = start[..got].iter();
    let mut byte = *bytes.next().ok_or_else(damaged)?;
    let kind = match byte >> 4 & 7 {
        1 => "commit",
        2 => "tree",
        3 => "blob",
        4 => "tag",
        _ => return Err(io::Error::other("its objects depend on each other")),
    };
    let (mut size, mut shift) = (u64::from(byte & 15), 4);
    while byte & 128 != 0 {
        byte = *bytes.next().filter(|_| shift < 60).ok_or_else(damaged)?;
        size |= u64::from(byte & 127) << shift;
        shift += 7;
    }
    if size > MAX_OBJECT_BYTES {
        return Err(damaged());
    }
    let content = offset + (got - bytes.len()) as u64;
    let mut decoder = ZlibDecoder::new(io::BufReader::new(FileTail { file, at: content }));
    let mut hasher = sha1dc::Hasher::new();
    hasher.update(format!("{kind} {size}\0").as_bytes());
    let (mut unpacked, mut block) = (0, vec![0; COPY_BLOCK_BYTES]);
    loop {
        match decoder.read(&mut block)? {
            0 => break,
            read => {
                unpacked += read as u64;
                hasher.update(&block[..read]);
            }
        }
        if unpacked > size {
            return Err(damaged());
        }
    }
    let id = hasher.finalize().map_err(|_| damaged())?;
    if unpacked == size { Ok((ObjectId(id.into()), content + decoder.total_in())) } else { Err(damaged()) }
}

/// Calls `each` with the bytes between two offsets, in blocks.
fn read_range(file: &std::fs::File, start: u64, end: u64, mut each: impl FnMut(&[u8])) -> io::Result<()> {
    let (mut at, mut block) = (start, vec![0; COPY_BLOCK_BYTES]);
    while at < end {
        let wanted = usize::try_from(end - at).unwrap_or(usize::MAX).min(block.len());
        match read_full_at(file, &mut block[..wanted], at)? {
            0 => return Err(damaged()),
            read => {
                each(&block[..read]);
                at += read as u64;
            }
        }
    }
    Ok(())
}

fn damaged() -> io::Error {
    io::Error::other("it is damaged")
}
