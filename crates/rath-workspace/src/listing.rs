//! The names in a directory.

use std::io;

use crate::dir::FileType;

/// The names in a directory, sorted.
///
/// All names are stored one after the other in `names`; an entry holds the start and the length of its name, and its
/// file type as far as the file system returned it.
#[derive(Default)]
pub(crate) struct Listing {
    pub(crate) names: Vec<u8>,
    pub(crate) entries: Vec<(u32, u16, FileType)>,
    /// Memory for reading a directory.
    #[cfg(target_os = "linux")]
    pub(crate) buffer: Vec<std::mem::MaybeUninit<u8>>,
}

#[cfg_attr(not(unix), allow(dead_code, reason = "directories are read on Unix only"))]
impl Listing {
    /// Returns the name of an entry.
    pub(crate) fn name(&self, nth: usize) -> &[u8] {
        let (start, length, _) = self.entries[nth];
        &self.names[start as usize..][..usize::from(length)]
    }

    /// Removes all entries.
    pub(crate) fn clear(&mut self) {
        self.names.clear();
        self.entries.clear();
    }

    /// Adds an entry, unless it is `.` or `..`.
    pub(crate) fn add(&mut self, name: &[u8], kind: FileType) -> io::Result<()> {
        if name == b"." || name == b".." {
            return Ok(());
        }
        let start = u32::try_from(self.names.len()).map_err(io::Error::other)?;
        let length = u16::try_from(name.len()).map_err(io::Error::other)?;
        self.names.extend_from_slice(name);
        self.entries.push((start, length, kind));
        Ok(())
    }

    /// Sorts the entries by name.
    pub(crate) fn sort(&mut self) {
        let names = &self.names;
        let name = |(start, length, _): &(u32, u16, FileType)| &names[*start as usize..][..usize::from(*length)];
        self.entries.sort_unstable_by(|one, other| name(one).cmp(name(other)));
    }
}
