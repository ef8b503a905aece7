//! The objects of one snapshot or merge: a few are files of their own, many are a pack.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use super::objects::{Kind, Objects, at, hash};
use super::pack::{Compressed, Packing};
use super::tree::{EMPTY, ObjectId};
use crate::error::Result;

/// Objects that are written together. Nothing is there to be read before [`Batch::finish`].
pub(super) struct Batch<'a> {
    objects: &'a Objects,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    seen: HashSet<ObjectId>,
    waiting: Vec<(ObjectId, Kind, Vec<u8>)>,
    bytes: usize,
    pack: Option<Packing>,
}

/// With more objects or bytes than these, they become a pack: a file for each would cost more to write and to sync.
const FEW: usize = 32;
const SMALL: usize = 4 << 20;

impl<'a> Batch<'a> {
    pub(super) fn new(objects: &'a Objects) -> Self {
        Batch { objects, state: Mutex::default() }
    }

    /// Adds an object and names it; none where its bytes are made to collide with others.
    pub(super) fn put(&self, kind: Kind, content: &[u8]) -> Result<Option<ObjectId>> {
        let Some(id) = hash(kind, content) else { return Ok(None) };
        // The empty tree need not be there: git knows it.
        if id != EMPTY && self.is_new(id) {
            self.add(id, kind, content)?;
        }
        Ok(Some(id))
    }

    /// Writes what is left.
    pub(super) fn finish(self) -> Result<()> {
        let state = self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        if let Some(pack) = state.pack {
            self.objects.add_pack(pack.finish()?);
            return Ok(());
        }
        state.waiting.iter().try_for_each(|(id, kind, content)| self.objects.put_loose(*id, *kind, content))
    }

    fn is_new(&self, id: ObjectId) -> bool {
        let lock = || self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if lock().seen.contains(&id) || self.objects.contains(id) {
            return false;
        }
        lock().seen.insert(id)
    }

    fn add(&self, id: ObjectId, kind: Kind, content: &[u8]) -> Result<()> {
        let failed = |error| at(self.objects.folder(), "write versions to", error);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.pack.is_none() && state.waiting.len() < FEW && state.bytes + content.len() <= SMALL {
            state.bytes += content.len();
            state.waiting.push((id, kind, content.to_vec()));
            return Ok(());
        }
        if state.pack.is_none() {
            let mut pack = Packing::begin(&self.objects.folder().join("objects")).map_err(failed)?;
            for (id, kind, content) in std::mem::take(&mut state.waiting) {
                pack.add(id, &Compressed::new(kind, &content).map_err(failed)?).map_err(failed)?;
            }
            state.pack = Some(pack);
        }
        drop(state);
        // Others compress meanwhile.
        let object = Compressed::new(kind, content).map_err(failed)?;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.pack.as_mut().map_or(Ok(()), |pack| pack.add(id, &object)).map_err(failed)
    }
}
