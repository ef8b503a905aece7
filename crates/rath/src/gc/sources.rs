//! The stores and session files whose steps may name versions of a directory.

use std::collections::HashSet;
use std::io;
use std::path::Path;

use rath_record::chunk::NamedObjects;
use rath_record::codec::Report;
use rath_record::lineage::Lineage;
use rath_workspace::{ObjectId, ObjectKind};

use super::SkipReason;
use crate::blocking::run_blocking;
use crate::sandbox::RATH_DIR;
use crate::session::{Error, Result, Session, StoreList, StoreUri};
use crate::store::{Create, Registry, Store, StoreId, UnlistedFile, rath_dir};

/// A store or a session file whose steps may name versions of a directory.
pub(super) enum Source {
    /// The store that was asked to remove something.
    OwnStore(Store),
    Store(StoreUri, Store),
    File(StoreUri, Lineage),
}

impl Source {
    /// Returns the URI; none if the store ends with the process.
    pub(super) fn uri(&self) -> Option<StoreUri> {
        match self {
            Source::OwnStore(store) => StoreUri::of(store),
            Source::Store(uri, _) | Source::File(uri, _) => Some(uri.clone()),
        }
    }

    /// Returns the id, if it has one. Blocks.
    pub(super) fn id(&self) -> Result<Option<StoreId>> {
        match self {
            Source::OwnStore(store) | Source::Store(_, store) => Ok(store.id()?),
            Source::File(_, lineage) => Ok(StoreUri::file_id(lineage)),
        }
    }

    /// Returns true if this is what a list with these ids means, and not another store or session at its place. Blocks.
    fn is_listed_as(&self, ids: &[StoreId]) -> Result<bool> {
        let id = self.id()?;
        Ok(match self {
            Source::OwnStore(_) | Source::Store(..) => ids.iter().all(|listed| Some(listed) == id.as_ref()),
            // Saving another session in a file replaces the earlier one on purpose.
            Source::File(..) => ids.is_empty() || id.is_some_and(|id| ids.contains(&id)),
        })
    }
}

/// Collects facts from stores and session files.
pub(super) trait SourceReader: Send + Sized + 'static {
    /// Adds the facts of one of them. Fails if it cannot be read as a whole. Blocks.
    fn add(&mut self, source: &Source) -> Result<()>;

    /// Adds the facts of all stores and session files that may name versions of a directory. Fails with the reason to keep all
    /// versions if one of them cannot be read, or another is at its place, unless it is known to be gone.
    async fn add_all(
        mut self,
        root: &Path,
        own: &Store,
        is_gone: impl Fn(&StoreUri) -> bool + Send,
    ) -> Result<Self, SkipReason> {
        let (own_uri, mut listed) = (StoreUri::of(own), listed(root).await?);
        let own_at = listed.iter().position(|(uri, _)| Some(uri) == own_uri.as_ref());
        let own_ids = own_at.map(|at| listed.swap_remove(at).1).unwrap_or_default();
        let mut doubt;
        (self, doubt) = self.add_one(&own.uri(), Ok(Source::OwnStore(own.clone())), own_ids).await?;
        match doubt {
            // This store is there: only an earlier one can be gone.
            Some(SkipReason::ReplacedStore { .. }) if own_uri.as_ref().is_some_and(&is_gone) => {}
            Some(reason) => return Err(reason),
            None => {}
        }
        for (uri, ids) in listed {
            (self, doubt) = self.add_one(&uri, open(&uri).await, ids).await?;
            if let Some(reason) = doubt.filter(|_| !is_gone(&uri)) {
                return Err(reason);
            }
        }
        Ok(self)
    }

    /// Adds the facts of a source that was opened, and closes it. Returns the reason if it is not known what the store named that the
    /// list means; `ids` are those in the list.
    async fn add_one(
        mut self,
        uri: &(dyn std::fmt::Display + Sync),
        opened: Result<Source>,
        ids: Vec<StoreId>,
    ) -> Result<(Self, Option<SkipReason>), SkipReason> {
        let unreadable = |why: Error| SkipReason::UnreadableStore { uri: uri.to_string(), why: why.message() };
        let source = match opened {
            Ok(source) => source,
            Err(error) => return Ok((self, Some(unreadable(error)))),
        };
        let (reader, added, source) = run_blocking(move || {
            let added = self.add(&source).and_then(|()| source.is_listed_as(&ids));
            Ok::<_, Error>((self, added, source))
        })
        .await
        .map_err(unreadable)?;
        if let Source::Store(_, store) = source {
            let _ = store.close().await;
        }
        let doubt = match added {
            Ok(true) => None,
            Ok(false) => Some(SkipReason::ReplacedStore { uri: uri.to_string() }),
            Err(error) => Some(unreadable(error)),
        };
        Ok((reader, doubt))
    }
}

/// Calls a function with the steps of every session file of a store that is not in its list. Fails if one cannot be read as a whole.
/// Blocks.
pub(super) fn visit_unlisted_files(store: &Store, mut visit: impl FnMut(&Lineage)) -> Result<()> {
    for UnlistedFile { path, .. } in store.find_unlisted_files()? {
        let damaged = |report: &Report| report.damage.first().map(|damage| format!("{}: {damage}", path.display()));
        match Session::open_regular_blocking(&path) {
            Err(_) if !path.exists() => {}
            Err(error) => return Err(error),
            Ok(file) => match damaged(&file.report) {
                None => visit(&file.lineage),
                Some(damage) => return Err(Error::new(crate::ErrorKind::Damaged, damage)),
            },
        }
    }
    Ok(())
}

/// Returns the trees and files that steps name which are recorded for a directory, as far as these can be read.
pub(crate) async fn named_versions(root: &Path) -> HashSet<(ObjectId, ObjectKind)> {
    let mut names = HashSet::new();
    if rath_dir::check(&root.join(RATH_DIR)).is_err() {
        return names;
    }
    for (uri, _) in listed(root).await.unwrap_or_default() {
        match open(&uri).await {
            Ok(Source::File(_, lineage)) => lineage.walk().iter().for_each(|step| add_names(&mut names, &step.json())),
            Ok(Source::Store(_, store) | Source::OwnStore(store)) => {
                let list = store.list().await.unwrap_or_default();
                let families: HashSet<_> = list.into_iter().map(|summary| summary.family).collect();
                let read = store.clone();
                let visit = move || {
                    let mut names = HashSet::new();
                    // A session that is damaged keeps no other from being read.
                    for family in families {
                        let _ = read.visit_json(&[family], |_, json| add_names(&mut names, json));
                    }
                    Ok::<_, Error>(names)
                };
                names.extend(run_blocking(visit).await.unwrap_or_default());
                let _ = store.close().await;
            }
            Err(_) => {}
        }
    }
    names
}

fn add_names(names: &mut HashSet<(ObjectId, ObjectKind)>, json: &str) {
    let NamedObjects { tree, files } = NamedObjects::of(json);
    names.extend(tree.map(|tree| (ObjectId(tree.0), ObjectKind::Tree)));
    names.extend(files.into_iter().map(|file| (ObjectId(file.0), ObjectKind::Blob)));
}

/// Returns true if a store is a copy of one that a directory lists and that is still at its place: the directory is that one's.
pub(super) async fn is_of_original(root: &Path, copy: &Store) -> Result<bool> {
    let (list, own) = (StoreList::of(root), copy.clone());
    let (listed, id) = run_blocking(move || Ok::<_, Error>((list.read().unwrap_or_default(), own.id()?))).await?;
    let own_uri = StoreUri::of(copy);
    let listed: Vec<_> = listed.into_iter().map(|listed| (listed.uri(root), listed)).collect();
    if id.is_none() || listed.iter().any(|(uri, _)| Some(uri) == own_uri.as_ref()) {
        return Ok(false);
    }
    for (uri, _) in listed.into_iter().filter(|(_, listed)| listed.id() == id.as_ref()) {
        let Ok(Source::Store(_, store)) = open(&uri).await else { continue };
        let (other, id, copy) = (store.clone(), id.clone(), copy.clone());
        let is_original = move || Ok::<_, Error>(other.id()? == id && !is_same_file(other.path(), copy.path()));
        let is_original = run_blocking(is_original).await;
        let _ = store.close().await;
        if is_original? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns true if two paths lead to one file. Blocks.
fn is_same_file(one: Option<&Path>, other: Option<&Path>) -> bool {
    let canonical = |path: Option<&Path>| path.and_then(|path| path.canonicalize().ok());
    canonical(one).is_some_and(|one| canonical(other) == Some(one))
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

/// Returns the stores and files that may name versions of a directory, each with its ids in the list, or the reason to keep all
/// versions of the directory.
pub(super) async fn listed(root: &Path) -> Result<Vec<(StoreUri, Vec<StoreId>)>, SkipReason> {
    let (list, directory) = (StoreList::of(root), root.to_owned());
    let read = move || Ok::<_, io::Error>((list.read()?, StoreList::find_unlisted(&directory)?));
    let (listed, unlisted) = run_blocking(read).await.map_err(|error| {
        let why = format!("the stores that may name them cannot be found: {error}");
        SkipReason::Damaged { why }
    })?;
    let mut stores: Vec<(StoreUri, Vec<StoreId>)> = Vec::new();
    let listed = listed.iter().map(|store| (store.uri(root), store.id().cloned()));
    for (uri, id) in listed.chain(unlisted.into_iter().map(|uri| (uri, None))) {
        match stores.iter_mut().find(|(known, _)| *known == uri) {
            Some((_, ids)) => ids.extend(id),
            None => stores.push((uri, id.into_iter().collect())),
        }
    }
    Ok(stores)
}
