//! The key by which rath recognises the sessions that this user recorded on this machine.
//!
//! A session is the user's own if the user's key signed its newest step, in the store or file that holds it. The id of that
//! step covers everything before it. Any other session is a guest: imported, copied, or part of a directory that came from
//! elsewhere. The key is outside every project, and the signature names the path of the store, so that a copy is a guest.

#[cfg(unix)]
mod private_file;
#[cfg(not(unix))]
#[path = "user_key/private_file_unsupported.rs"]
mod private_file;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rath_record::codec::Signature;
use rath_record::{BranchId, StepId};

use super::rath_dir::home_file_within_reach;
use crate::sandbox::{own_data_directory, resolved};

/// The length of a key, in bytes.
pub(crate) const KEY_BYTES: usize = 32;

/// The key by which stores recognise the sessions of a user.
///
/// Programs need not know it: a store reads the key of the user who runs the process, from `rath/user.key` in the user's
/// data directory, and creates it on first use. A service without a home directory brings its own.
///
/// ```
/// use rath::prelude::*;
/// use rath::store::{Sqlite, UserKey};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> rath::Result<()> {
/// let store = Store::signed_with(Sqlite::in_memory()?, UserKey::from_bytes([7; 32]))?;
/// let id = Session::user("hello").record(&store).await?.id();
/// assert!(!store.read(id).await?.session.is_guest());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct UserKey([u8; KEY_BYTES]);

impl UserKey {
    /// Creates a key from random bytes that the caller keeps secret.
    pub fn from_bytes(bytes: [u8; KEY_BYTES]) -> Self {
        UserKey(bytes)
    }

    /// Reads the key of the user who runs this process, and creates it on first use. Blocks.
    pub fn load_blocking() -> io::Result<Self> {
        let directory = own_data_directory().ok_or_else(|| io::Error::other("there is no home directory"))?;
        let path = directory.join("user.key");
        match read_key(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            read => return read,
        }
        private_file::create_directory(&directory)?;
        // Two processes may create the key at the same time: the first to name it wins.
        let temporary = directory.join(format!("user.key.{}", uuid::Uuid::now_v7().simple()));
        let created = private_file::create(&temporary, &UserKey::random()?.0).and_then(|()| {
            match std::fs::hard_link(&temporary, &path) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
                _ => read_key(&path),
            }
        });
        let _ = std::fs::remove_file(&temporary);
        created
    }

    /// Returns a new random key.
    fn random() -> io::Result<Self> {
        let mut bytes = [0; KEY_BYTES];
        getrandom::fill(&mut bytes).map_err(io::Error::other)?;
        Ok(UserKey(bytes))
    }

    fn sign(&self, location: &str, branch: BranchId, head: StepId) -> Signature {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(&branch.0).update(&head.0).update(location.as_bytes());
        let mut signature = Signature([0; Signature::BYTES]);
        hasher.finalize_xof().fill(&mut signature.0);
        signature
    }
}

impl fmt::Debug for UserKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UserKey(..)")
    }
}

/// Signs the steps in one store or file, and recognises its own signatures.
pub(crate) struct Signer {
    /// The path of the store or file. Part of what is signed: a copy elsewhere is a guest.
    location: String,
    /// The key, read on first use; none if the user has none.
    key: OnceLock<Option<UserKey>>,
}

impl Signer {
    /// Creates a signer with the key of the user who runs this process.
    pub(crate) fn at(location: String) -> Self {
        Signer { location, key: OnceLock::new() }
    }

    /// Creates a signer with this key.
    pub(crate) fn with_key(location: String, key: UserKey) -> Self {
        Signer { location, key: OnceLock::from(Some(key)) }
    }

    /// Creates a signer for a store that ends with the process.
    pub(crate) fn in_memory() -> Self {
        Signer { location: String::new(), key: OnceLock::from(UserKey::random().ok()) }
    }

    /// Creates a signer for a file, which need not exist.
    pub(crate) fn for_file(path: &Path) -> Self {
        Signer::at(location_of(path))
    }

    /// Returns the key, if the user has one. Blocks: it may have to be read.
    pub(crate) fn load_key(&self) -> Option<&UserKey> {
        self.key.get_or_init(|| UserKey::load_blocking().ok()).as_ref()
    }

    /// Signs a step. Blocks: the key may have to be read.
    pub(crate) fn sign(&self, branch: BranchId, head: StepId) -> Option<Signature> {
        self.load_key().map(|key| key.sign(&self.location, branch, head))
    }

    /// Returns true if a signature is this user's. Blocks: the key may have to be read.
    pub(crate) fn is_own(&self, branch: BranchId, head: StepId, signature: Option<Signature>) -> bool {
        signature.is_some() && self.sign(branch, head) == signature
    }
}

/// Returns the name of a file or directory that no other on this machine has, by its canonical path.
pub(crate) fn location_of(path: &Path) -> String {
    let canonical = std::fs::canonicalize(path).or_else(|_| {
        let path = std::path::absolute(path)?;
        let directory = path.parent().map(std::fs::canonicalize).unwrap_or_else(|| Ok(PathBuf::new()))?;
        Ok::<_, io::Error>(directory.join(path.file_name().unwrap_or_default()))
    });
    // Escaped, so that two paths that are not Unicode stay two.
    format!("{:?}", canonical.unwrap_or_else(|_| path.to_owned()))
}

/// Returns the path of the user's key if tools that write in a directory could reach it, or if the directory is in that of the key.
pub(crate) fn key_within_reach(directory: &Path) -> Option<PathBuf> {
    let own = own_data_directory()?;
    let data = own.parent()?;
    let key = own.join("user.key");
    // Sandboxes hide the directory of the key: the usual one in a workspace that has the home directory, and one that `XDG_DATA_HOME`
    // names in every workspace above it.
    let home = std::env::home_dir().filter(|home| data == home.join(".local/share"));
    let (above, hidden) = match &home {
        Some(home) => (home.as_path(), Path::new(".local/share/rath")),
        None => (data, Path::new("rath")),
    };
    let is_in_own = resolved(directory).starts_with(resolved(&own));
    (is_in_own || home_file_within_reach(&key, above, hidden, directory)).then_some(key)
}

fn read_key(path: &Path) -> io::Result<UserKey> {
    let bytes = private_file::read(path, KEY_BYTES as u64 + 1)?;
    let key = bytes.try_into().map_err(|_| io::Error::other("the user's key has another length"))?;
    Ok(UserKey(key))
}
