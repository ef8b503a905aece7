//! The way in which this machine can fork a directory.

use std::path::Path;

/// The way in which a copy of a workspace is made for a fork.
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
    /// Finds the method for a directory by trying: an overlay mount of empty directories, then a reflink between two
    /// files without a name.
    pub fn detect(directory: &Path) -> Self {
        let own = directory.join(".rath");
        if crate::overlay::can_mount(if own.is_dir() { &own } else { directory }) {
            return ForkMethod::Overlay;
        }
        #[cfg(target_os = "linux")]
        {
            use rustix::fs::{Mode, OFlags, ioctl_ficlone, open};
            let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
            let file = || open(directory, flags, Mode::from_raw_mode(0o600));
            if let (Ok(from), Ok(to)) = (file(), file())
                && rustix::io::write(&from, &[1; 4096]).is_ok()
                && ioctl_ficlone(&to, &from).is_ok()
            {
                return ForkMethod::Reflink;
            }
        }
        ForkMethod::Copy
    }
}
