//! The objects that one snapshot or merge writes: a few become files of their own, many become one pack.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use crate::error::Result;
use crate::objects::{ObjectKind, Objects, hash_object, io_error};
use crate::pack::{PackWriter, PackedObject};
use crate::tree::{EMPTY_TREE, ObjectId};

/// Objects that are written together. No object can be read before [`Batch::finish`].
pub(crate) struct Batch<'a> {
    objects: &'a Objects,
    state: Mutex<BatchState>,
}

/// The objects of a batch so far.
#[derive(Default)]
struct BatchState {
    seen: HashSet<ObjectId>,
    loose: Vec<(ObjectId, ObjectKind, Vec<u8>)>,
    bytes: usize,
    pack: Option<PackWriter>,
}

/// The number of objects from which on a batch becomes a pack: a file for each would cost more to write and to sync.
const MAX_LOOSE_OBJECTS: usize = 32;
/// The number of bytes from which on a batch becomes a pack.
const MAX_LOOSE_BYTES: usize = 4 << 20;

impl<'a> Batch<'a> {
    pub(crate) fn new(objects: &'a Objects) -> Self {
        Batch { objects, state: Mutex::default() }
    }

    /// Adds an object and returns its id; none if the content is part of a known SHA-1 collision attack.
    pub(crate) fn put(&self, kind: ObjectKind, content: &[u8]) -> Result<Option<ObjectId>> {
        let Some(id) = hash_object(kind, content) else { return Ok(None) };
        // The empty tree is not stored: git knows it without.
        if id != EMPTY_TREE && !self.objects.discards() && self.is_new(id, kind) {
            self.add(id, kind, content)?;
        }
        Ok(Some(id))
    }

    /// Writes the objects, or finishes the pack.
    pub(crate) fn finish(self) -> Result<()> {
        let state = self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        if state.seen.is_empty() {
            return Ok(());
        }
        self.objects.check_writable()?;
        self.objects.note_stored_again(&state.seen)?;
        if let Some(pack) = state.pack {
            self.objects.add_pack(pack.finish()?);
            state.seen.into_iter().for_each(|id| self.objects.mark_intact(id));
            return Ok(());
        }
        state.loose.iter().try_for_each(|(id, kind, content)| self.objects.put_loose(*id, *kind, content))
    }

    /// Returns true for the first call with an object that does not exist yet, or has another content than its id says.
    fn is_new(&self, id: ObjectId, kind: ObjectKind) -> bool {
        let lock = || self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if lock().seen.contains(&id) || self.objects.contains_intact(id, kind) {
            return false;
        }
        lock().seen.insert(id)
    }

    fn add(&self, id: ObjectId, kind: ObjectKind, content: &[u8]) -> Result<()> {
        let failed = |error| io_error(self.objects.folder(), "write versions to", error);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.pack.is_none()
            && state.loose.len() < MAX_LOOSE_OBJECTS
            && state.bytes + content.len() <= MAX_LOOSE_BYTES
        {
            state.bytes += content.len();
            state.loose.push((id, kind, content.to_vec()));
            return Ok(());
        }
        if state.pack.is_none() {
            self.objects.check_writable()?;
            let mut pack = PackWriter::create(self.objects).map_err(failed)?;
            for (id, kind, content) in std::mem::take(&mut state.loose) {
                pack.add(id, &PackedObject::new(kind, &content).map_err(failed)?).map_err(failed)?;
            }
            state.pack = Some(pack);
        }
        drop(state);
        // The lock is released so that other threads can compress at the same time.
        let object = PackedObject::new(kind, content).map_err(failed)?;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.pack.as_mut().map_or(Ok(()), |pack| pack.add(id, &object)).map_err(failed)
    }
}
