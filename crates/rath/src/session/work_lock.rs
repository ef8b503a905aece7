//! The lock that keeps the user's directory with its branch while calls run there.

use std::fs::File;

use rath_workspace::Objects;

/// A lock on the work in the user's directory. Those who work there share it; a branch that takes the directory over has it alone.
///
/// Released when it is dropped, and at the end of the process.
pub(crate) struct WorkLock(File);

impl WorkLock {
    /// Locks the directory for work. Blocks while it is being taken over. None if the file system has no locks.
    pub(crate) fn shared(objects: &Objects) -> Option<Self> {
        let file = open(objects)?;
        file.lock_shared().ok()?;
        Some(WorkLock(file))
    }

    /// Locks the directory against all work; none while calls run there.
    pub(crate) fn try_exclusive(objects: &Objects) -> Option<Self> {
        let file = open(objects)?;
        file.try_lock().ok()?;
        Some(WorkLock(file))
    }
}

impl Drop for WorkLock {
    fn drop(&mut self) {
        // Closing the file is not enough: a process that another thread is just starting has a copy of it.
        let _ = self.0.unlock();
    }
}

fn open(objects: &Objects) -> Option<File> {
    let path = objects.folder().join("work.lock");
    File::options().read(true).write(true).create(true).truncate(false).open(path).ok()
}
