//! The file with the id of a store.

use std::io::{self, Write as _};
use std::path::PathBuf;

use rath_record::BranchId;
use rath_workspace::read_at_most;

use super::super::{StoreId, sync_folder};
use super::Jsonl;
use super::open_file::publish;
use crate::store::error::Result;

/// The most bytes of the file.
const MAX_ID_BYTES: u64 = 256;

impl Jsonl {
    fn id_path(&self) -> PathBuf {
        self.folder.join("id")
    }

    /// Reads the id. None if there is no file, or the file holds no id.
    pub(super) fn read_id(&self) -> Result<Option<StoreId>> {
        match read_at_most(&self.id_path(), MAX_ID_BYTES) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            read => {
                let bytes = read.map_err(|error| self.io_error("read", error))?;
                Ok(StoreId::from_stored(String::from_utf8_lossy(&bytes).trim()))
            }
        }
    }

    /// Gives the store an id, durably. If two processes do so at the same time, both return the id of the first.
    pub(super) fn make_id(&self) -> Result<StoreId> {
        // The name of a session that does not exist: what a killed process leaves is swept.
        let (temporary, mut file) = self.temporary_file(BranchId(uuid::Uuid::now_v7().into_bytes()), false)?;
        let id = StoreId::random();
        let make = || -> Result<StoreId> {
            let failed = |error| self.io_error("write to", error);
            writeln!(file, "{id}").and_then(|()| file.sync_all()).map_err(failed)?;
            if publish(&temporary, &self.id_path()).map_err(failed)? {
                return Ok(id);
            }
            let id = match self.read_id()? {
                Some(faster) => faster,
                None => {
                    // The file that is there was damaged.
                    std::fs::rename(&temporary, self.id_path()).map_err(failed)?;
                    id
                }
            };
            sync_folder(&self.folder).map_err(failed)?;
            Ok(id)
        };
        let made = make();
        let _ = std::fs::remove_file(&temporary);
        made
    }
}
