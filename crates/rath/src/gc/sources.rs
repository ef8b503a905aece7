//! The stores and session files whose steps may name versions of a directory.

use std::io;
use std::path::Path;

use rath_record::lineage::Lineage;

use super::SkipReason;
use crate::blocking::run_blocking;
use crate::session::{Error, Result, Session, StoreList, StoreUri};
use crate::store::{Create, Registry, Store};

/// A store or a session file whose steps may name versions of a directory.
pub(super) enum Source {
    /// The store that was asked to remove something.
    OwnStore(Store),
    Store(StoreUri, Store),
    File(StoreUri, Lineage),
}

/// Collects facts from stores and session files.
pub(super) trait SourceReader: Send + Sized + 'static {
    /// Adds the facts of one of them. Fails if it cannot be read as a whole. Blocks.
    fn add(&mut self, source: &Source) -> Result<()>;

    /// Adds the facts of all stores and session files that may name versions of a directory, but those to leave out. Fails with the
    /// reason to keep all versions if one of them cannot be read.
    async fn add_all(
        mut self,
        root: &Path,
        own: &Store,
        is_left_out: impl Fn(&StoreUri) -> bool + Send,
    ) -> Result<Self, SkipReason> {
        self = self.add_one(&own.uri(), Ok(Source::OwnStore(own.clone()))).await?;
        let own = StoreUri::of(own);
        for uri in listed(root).await? {
            if Some(&uri) != own.as_ref() && !is_left_out(&uri) {
                self = self.add_one(&uri, open(&uri).await).await?;
            }
        }
        Ok(self)
    }

    /// Adds the facts of a source that was opened, and closes it.
    async fn add_one(
        mut self,
        uri: &(dyn std::fmt::Display + Sync),
        opened: Result<Source>,
    ) -> Result<Self, SkipReason> {
        let unreadable = |why: Error| SkipReason::UnreadableStore { uri: uri.to_string(), why: why.message() };
        let source = opened.map_err(unreadable)?;
        let (read, source) = run_blocking(move || {
            let added = self.add(&source);
            Ok::<_, Error>((added.map(|()| self), source))
        })
        .await
        .map_err(unreadable)?;
        if let Source::Store(_, store) = source {
            let _ = store.close().await;
        }
        read.map_err(unreadable)
    }
}

/// Opens a store or a session file of the list.
async fn open(uri: &StoreUri) -> Result<Source> {
    let Some(path) = uri.session_file().map(Path::to_owned) else {
        let store = Registry::new().open_as(&uri.to_string(), Create::Never).await?;
        return Ok(Source::Store(uri.clone(), store));
    };
    let file = run_blocking(move || Session::open_regular_blocking(&path)).await?;
    // A file is written as a whole: one that was cut off may have named more.
    match file.report.is_whole() {
        true => Ok(Source::File(uri.clone(), file.lineage)),
        false => Err(Error::new(crate::ErrorKind::Damaged, "the file is damaged, or was cut off")),
    }
}

/// Returns the stores and files that may name versions of a directory, or the reason to keep all of its versions.
async fn listed(root: &Path) -> Result<Vec<StoreUri>, SkipReason> {
    let (list, directory) = (StoreList::of(root), root.to_owned());
    let read = move || Ok::<_, io::Error>((list.read()?, StoreList::find_unlisted(&directory)?));
    let (listed, unlisted) = run_blocking(read).await.map_err(|error| {
        let why = format!("the stores that may name them cannot be found: {error}");
        SkipReason::Damaged { why }
    })?;
    let mut stores: Vec<StoreUri> = listed.iter().map(|uri| StoreUri::from_list(uri, root)).collect();
    for uri in unlisted {
        if !stores.contains(&uri) {
            stores.push(uri);
        }
    }
    Ok(stores)
}
