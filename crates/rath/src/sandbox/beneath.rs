//! A stand-in.
use super::files::{Entry, Kind, Part};
use crate::error::{Error, ErrorKind, Result};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
/// The folder in a workspace that is rath's own.
pub(crate) const OWN: &str = ".rath";
/// A directory.
pub struct Root {
    path: PathBuf,
}
impl Root {
    /// Opens.
    pub fn open(path: &Path) -> Result<Root> {
        path.canonicalize().map(|path| Root { path }).map_err(|error| {
            Error::new(ErrorKind::Place, format_args!("cannot work in `{}`: {error}", path.display()))
                .with_hint("the directory has to be there")
                .because(error)
        })
    }
    /// Path.
    pub fn path(&self) -> &Path {
        &self.path
    }
    fn find(&self, path: &str) -> Result<PathBuf> {
        let found = self.path.join(path);
        let real = found.canonicalize().or_else(|_| Ok::<_, Error>(found.clone()))?;
        if real.starts_with(&self.path) && !path.contains("..") {
            Ok(real)
        } else {
            Err(Error::new(ErrorKind::Place, format_args!("`{path}` leads out of the workspace")))
        }
    }
    /// Read.
    pub fn read(&self, path: &str, part: Part) -> Result<Vec<u8>> {
        let bytes = std::fs::read(self.find(path)?)?;
        Ok(bytes.into_iter().skip(part.from as usize).take(part.most as usize).collect())
    }
    /// Write.
    pub fn write(&self, path: &str, bytes: &[u8]) -> Result<()> {
        let path = self.find(path)?;
        if let Some(above) = path.parent() {
            std::fs::create_dir_all(above)?;
        }
        Ok(std::fs::write(path, bytes)?)
    }
    /// List.
    pub fn list(&self, path: &str) -> Result<Vec<Entry>> {
        let mut all = Vec::new();
        for entry in std::fs::read_dir(self.find(path)?)? {
            let entry = entry?;
            let about = entry.metadata()?;
            let kind = if about.is_dir() { Kind::Directory } else { Kind::File };
            all.push(Entry { name: entry.file_name().to_string_lossy().into_owned(), kind, bytes: about.len() });
        }
        all.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(all)
    }
    /// Look.
    pub fn look(&self, path: &str) -> Result<Option<Entry>> {
        let Ok(about) = std::fs::metadata(self.find(path)?) else { return Ok(None) };
        let kind = if about.is_dir() { Kind::Directory } else { Kind::File };
        Ok(Some(Entry { name: path.to_owned(), kind, bytes: about.len() }))
    }
    /// Directory.
    pub fn directory(&self, path: &str) -> Result<OwnedFd> {
        let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC;
        rustix::fs::open(self.find(path)?, flags, rustix::fs::Mode::empty()).map_err(|errno| {
            Error::new(ErrorKind::Io, format_args!("cannot enter `{path}`: {}", std::io::Error::from(errno).kind()))
        })
    }
    /// Name.
    pub fn name(&self, path: &str) -> Option<String> {
        Some(self.find(path).ok()?.strip_prefix(&self.path).ok()?.to_string_lossy().into_owned())
    }
}
