//! Removing a file.

use std::path::{Path, PathBuf};

use rustix::fs::AtFlags;
use rustix::io::Errno;

use super::resolve::{PathError, Target, race_or_errno};
use super::{Root, check_file};
use crate::error::Result;

impl Root {
    /// Removes a file, and the directories above it that are empty then. A symlink is not removed, and neither is the file that it
    /// leads to.
    pub fn remove(&self, path: &str) -> Result<()> {
        self.attempt("remove", path, || {
            let resolved = self.find_to_write(path)?;
            let Target::Entry { directory, name, stat } = resolved.target else {
                return Err(Errno::NOENT.into());
            };
            check_file(&stat)?;
            if self.is_link(path, &resolved.names.iter().collect::<PathBuf>())? {
                return Err(PathError::NotAFile);
            }
            rustix::fs::unlinkat(&directory, &name, AtFlags::empty()).map_err(race_or_errno)?;
            let mut above = resolved.names;
            above.pop();
            while let Some(name) = above.pop() {
                let Ok(parent) = self.walk(&above.iter().collect::<PathBuf>()) else { break };
                let Target::Directory(parent) = parent.target else { break };
                // The first that is not empty ends it; another process may have removed one.
                if rustix::fs::unlinkat(&parent, &name, AtFlags::REMOVEDIR).is_err() {
                    break;
                }
            }
            Ok(())
        })
    }

    /// Returns true if the last name of a path is that of a symlink: then the path leads to a file with another name.
    fn is_link(&self, path: &str, resolved: &Path) -> Result<bool, PathError> {
        let (above, Some(name)) = (Path::new(path).parent().unwrap_or(Path::new("")), Path::new(path).file_name())
        else {
            return Ok(true);
        };
        let above: PathBuf = self.walk(above)?.names.iter().collect();
        Ok(above.join(name) != resolved)
    }
}
