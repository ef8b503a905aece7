//! Files in the user's own directory, where the system keeps other users out.

use std::io::{self, Read as _};
use std::path::Path;

pub(super) fn create_directory(path: &Path) -> io::Result<()> {
    std::fs::create_dir_all(path)
}

pub(super) fn create(path: &Path, content: &[u8]) -> io::Result<()> {
    std::fs::write(path, content)
}

pub(super) fn read(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    std::fs::File::open(path)?.take(limit).read_to_end(&mut content)?;
    Ok(content)
}
