//! Steps in the files of other sessions.
//!
//! Two files may continue from each other's steps, and a file of others may claim anything. So no file is read while another waits
//! on the stack: what a file needs is noted, found first, and then the file is read again.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rath_record::codec::Reader;
use rath_record::{BranchId, Step, StepId};

use super::open_bounded;

/// A step, by the session in whose file it is.
pub(super) type StepPlace = (BranchId, StepId);

/// Finds steps in the files of a directory, each once.
#[derive(Clone, Default)]
pub(super) struct StepFinder {
    state: Arc<Mutex<FinderState>>,
}

#[derive(Default)]
struct FinderState {
    /// The steps that were looked for; none for one that is not there.
    known: HashMap<StepPlace, Option<Step>>,
    /// The steps that a reader asked for and that were not looked for yet.
    wanted: Vec<StepPlace>,
}

impl StepFinder {
    /// Returns a reader that gets the steps of other files from here, as far as they are known.
    pub(super) fn reader(&self) -> Reader {
        let finder = self.clone();
        Reader::new().with_step_finder(move |id, family| finder.known(family, id))
    }

    /// Finds the steps that readers asked for, and all that these depend on. Returns false if there was nothing to find.
    pub(super) fn find_wanted(&self, folder: &Path) -> bool {
        let mut open = self.take_wanted();
        let is_needed = !open.is_empty();
        let mut begun = HashSet::new();
        while let Some(place) = open.last().copied() {
            if self.lock().known.contains_key(&place) {
                open.pop();
                continue;
            }
            begun.insert(place);
            let found = self.read_up_to(folder, place);
            // A step that depends on itself does not exist.
            let wanted: Vec<_> = self.take_wanted().into_iter().filter(|wanted| !begun.contains(wanted)).collect();
            if wanted.is_empty() {
                self.lock().known.insert(place, found);
            }
            open.extend(wanted);
        }
        is_needed
    }

    /// Returns the steps that were looked for and are not there.
    pub(super) fn missing(&self) -> BTreeSet<StepPlace> {
        self.lock().known.iter().filter(|(_, step)| step.is_none()).map(|(place, _)| *place).collect()
    }

    fn known(&self, family: BranchId, id: StepId) -> Option<Step> {
        let mut state = self.lock();
        match state.known.get(&(family, id)) {
            Some(known) => known.clone(),
            None => {
                state.wanted.push((family, id));
                None
            }
        }
    }

    /// Reads the file of a session, no further than a step.
    fn read_up_to(&self, folder: &Path, (family, id): StepPlace) -> Option<Step> {
        let mut file = BufReader::new(open_bounded(&session_file(folder, family)).ok()?);
        let (mut reader, mut line) = (self.reader(), Vec::new());
        while file.read_until(b'\n', &mut line).ok()? > 0 {
            reader.feed(&line);
            line.clear();
            if let Some(step) = reader.step(id) {
                return Some(step.clone());
            }
        }
        None
    }

    fn take_wanted(&self) -> Vec<StepPlace> {
        std::mem::take(&mut self.lock().wanted)
    }

    fn lock(&self) -> MutexGuard<'_, FinderState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the session whose file has this name.
pub(super) fn session_named(name: &OsStr) -> Option<BranchId> {
    let id = name.to_str()?.strip_suffix(".jsonl")?;
    // An id may be written in other ways, which lead to no file.
    id.parse().ok().filter(|parsed: &BranchId| parsed.to_string() == id)
}

/// Returns the path of the file of a session.
pub(super) fn session_file(folder: &Path, family: BranchId) -> PathBuf {
    folder.join(format!("{family}.jsonl"))
}
