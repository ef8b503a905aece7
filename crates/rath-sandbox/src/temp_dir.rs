//! Temporary directories of this program.

use std::path::{Path, PathBuf};

/// A directory that only the user can read, and that is removed on drop.
#[derive(Debug)]
pub(crate) struct TempDir(PathBuf);

impl TempDir {
    /// Creates an empty directory with a name that begins with `prefix`. Blocks.
    pub(crate) fn create(prefix: &str) -> std::io::Result<Self> {
        let created = std::env::temp_dir().join(format!("{prefix}-{}", uuid::Uuid::now_v7()));
        let mut builder = std::fs::DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(&created)?;
        Ok(TempDir(created))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
