//! Detection of the way in which a directory can be forked.

use std::path::Path;

/// The ways to create the directory of a fork.
///
/// ```
/// use rath_workspace::ForkMethod;
///
/// # fn main() -> std::io::Result<()> {
/// # let temp = tempfile::tempdir()?;
/// let method = ForkMethod::detect(temp.path());
/// println!("a fork in this directory is made by {method:?}");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ForkMethod {
    /// An overlay mount, which shares all files until they are changed.
    Overlay,
    /// A copy of each file that shares its blocks with the original.
    Reflink,
    /// A plain copy of each file.
    Copy,
}

impl ForkMethod {
    /// Returns the best method for a directory, by trying: an overlay mount of empty directories, then a reflink
    /// between two unnamed files.
    pub fn detect(directory: &Path) -> Self {
        let own = directory.join(".rath");
        let folder = if own.is_dir() { &own } else { directory };
        // The trial leaves no mount if this process is killed, and the name is that of a temporary.
        if crate::overlay::can_mount(&folder.join(format!(".rath-{}.tmp", crate::temporaries::unique_name()))) {
            return ForkMethod::Overlay;
        }
        match crate::disk::can_share_blocks(directory) {
            true => ForkMethod::Reflink,
            false => ForkMethod::Copy,
        }
    }
}

/// A new fork that is mounted.
pub(crate) struct MountedFork {
    pub(crate) overlay: crate::overlay::OverlayMount,
    /// The known metadata of the files. For a base version that is only similar to the tree, it is that of the base version.
    pub(crate) known: Option<std::sync::Arc<crate::dir::Dir>>,
    /// The base version, if it was there before this process: its files may have come from elsewhere with the folder of objects, or
    /// have been changed. Nothing but its name says what they should be.
    pub(crate) unchecked_base: Option<crate::tree::ObjectId>,
}
