//! The file with the id of a store.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::PathBuf;

use rath_record::BranchId;
use rath_workspace::read_at_most;

use super::super::{StoreId, sync_folder};
use super::Jsonl;
use super::open_file::publish;
use crate::store::error::{Result, StoreError, StoreErrorKind};

/// The name of the file.
pub(super) const ID_FILE: &str = "rath-store-id";

/// The most bytes of the file.
const MAX_ID_BYTES: u64 = 256;

impl Jsonl {
    fn id_path(&self) -> PathBuf {
        self.folder.join(ID_FILE)
    }

    /// Reads the id. None if there is no file, or it was cut off. Fails if the file holds something else, which is not replaced.
    pub(super) fn read_id(&self) -> Result<Option<StoreId>> {
        let bytes = match read_at_most(&self.id_path(), MAX_ID_BYTES) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read.map_err(|error| self.io_error("read", error))?,
        };
        let id = StoreId::from_stored(String::from_utf8_lossy(&bytes).trim());
        if id.is_none() && !bytes.iter().all(|byte| byte.is_ascii_hexdigit() || b"-\n\0".contains(byte)) {
            let message = format!("{} holds no id of a store", self.id_path().display());
            return Err(StoreError::new(StoreErrorKind::Damaged, message).with_hint("move that file away"));
        }
        Ok(id)
    }

    /// Gives the store an id, durably. If two processes do so at the same time, both return the same.
    pub(super) fn make_id(&self) -> Result<StoreId> {
        // The name of a session that does not exist: what a killed process leaves is swept.
        let (temporary, mut file) = self.temporary_file(BranchId(uuid::Uuid::now_v7().into_bytes()), false)?;
        let id = StoreId::random();
        let mut make = || -> Result<StoreId> {
            let failed = |error| self.io_error("write to", error);
            writeln!(file, "{id}").and_then(|()| file.sync_all()).map_err(failed)?;
            if !publish(&temporary, &self.id_path()).map_err(failed)? {
                // Of those who find a file that was cut off, the first replaces it.
                let there = File::open(self.id_path()).map_err(failed)?;
                there.lock().map_err(failed)?;
                if self.read_id()?.is_none() {
                    std::fs::rename(&temporary, self.id_path()).map_err(failed)?;
                }
                sync_folder(&self.folder).map_err(failed)?;
            }
            // Without links, the file of another process may have replaced this one.
            self.read_id()?.ok_or_else(|| failed(io::ErrorKind::NotFound.into()))
        };
        let made = make();
        let _ = std::fs::remove_file(&temporary);
        made
    }
}
