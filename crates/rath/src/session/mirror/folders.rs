//! The folders in which mirrors are.

use std::path::{Path, PathBuf};

use super::copies::{CopiesDir, digest_of};
use crate::place::Place;
use crate::sandbox::{RATH_DIR, Sandbox};
use crate::session::Session;
use crate::store::Store;

/// The name of the folder of mirrors, in a `.rath`.
const MIRRORS_DIR: &str = "remote";

/// The number of hexadecimal digits of the name of a mirror.
const MIRROR_NAME_DIGITS: usize = 32;

impl Session {
    /// Returns the directory that has the files of a recorded place or copies of them, if there is one. Blocks.
    pub(in crate::session) fn files_dir(&self, place: &Place) -> Option<PathBuf> {
        let sandbox = self.open_place(place).ok();
        dir_of_place(sandbox.as_ref(), place.as_str(), self.live.mirrors_in.as_deref())
    }
}

/// Returns the folder in which the mirrors of a store's sessions are; none for a store that is not in a file of this machine.
pub(crate) fn mirrors_folder(store: &Store) -> Option<PathBuf> {
    let path = std::path::absolute(store.path()?).ok()?;
    let is_rath_dir = |path: &&Path| path.file_name().is_some_and(|name| name == RATH_DIR);
    let own = path.ancestors().find(is_rath_dir).map(Path::to_owned);
    Some(own.or_else(|| Some(path.parent()?.join(RATH_DIR)))?.join(MIRRORS_DIR))
}

/// Returns the directory that has the files of a place that sessions of a store name, or copies of them, if there is one. Blocks.
pub(crate) fn dir_of_stored_place(store: &Store, place: &str) -> Option<PathBuf> {
    dir_of_place(store.sandbox_kinds().open(place).ok().as_ref(), place, mirrors_folder(store).as_deref())
}

/// Returns the directory of a sandbox, or else its mirror if that exists. The sandbox is none if its kind is not known here.
fn dir_of_place(sandbox: Option<&Sandbox>, place: &str, mirrors: Option<&Path>) -> Option<PathBuf> {
    let directory = sandbox.and_then(Sandbox::directory).map(Path::to_owned);
    directory.or_else(|| mirrors.map(|folder| mirror_path(folder, place)).filter(|mirror| mirror.is_dir()))
}

/// Removes the copies of files in a mirror, if a directory is one. Blocks.
pub(crate) fn remove_copies(root: &Path) -> std::io::Result<()> {
    let mut names = root.iter().rev().map(|name| name.to_str().unwrap_or_default());
    let [name, folder, own] = [(); 3].map(|()| names.next().unwrap_or_default());
    let is_digest = name.len() == MIRROR_NAME_DIGITS && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_digest || folder != MIRRORS_DIR || own != RATH_DIR {
        return Ok(());
    }
    let copies = CopiesDir::new(root.to_owned());
    let _lock = copies.lock()?;
    copies.clear()
}

/// Returns the path of the mirror of a sandbox.
pub(super) fn mirror_path(folder: &Path, uri: &str) -> PathBuf {
    folder.join(&digest_of(uri.as_bytes())[..MIRROR_NAME_DIGITS])
}
