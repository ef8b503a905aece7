//! The sandboxes of a session and its forks: those that are removed, and when.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rath_sandbox::{Error, ErrorKind, Result};

use super::remote::Remote;
use super::server::Server;

/// The sandboxes of a session and its forks. It removes those that it created when its last handle is dropped.
///
/// A sandbox is noted here before anything is done for which it has to be removed, and forgotten when the server has confirmed that it is
/// gone. One that was only looked at is never noted: another session may use it.
#[derive(Default)]
pub(crate) struct SandboxGroup {
    is_closed: AtomicBool,
    members: Mutex<Vec<Weak<Remote>>>,
    /// The sandboxes to be removed, by name. The id of one whose creation was not answered is not known.
    removals: Mutex<BTreeMap<String, Removal>>,
}

#[derive(Clone)]
struct Removal {
    server: Arc<Server>,
    reason: RemovalReason,
}

/// The reason why a sandbox is to be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RemovalReason {
    /// It was found by its name, and worked in. Others may use it: it is removed by [`SandboxGroup::close`] alone.
    Use,
    /// Its creation was asked for.
    Creation,
}

impl SandboxGroup {
    pub(crate) fn add(&self, remote: &Arc<Remote>) {
        let mut members = lock(&self.members);
        members.retain(|member| member.strong_count() > 0);
        members.push(Arc::downgrade(remote));
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Relaxed)
    }

    /// Notes a sandbox that is to be removed. Returns true if it was not noted before.
    pub(crate) fn note(&self, name: &str, server: &Arc<Server>, reason: RemovalReason) -> bool {
        let mut removals = lock(&self.removals);
        if let Some(known) = removals.get_mut(name) {
            known.reason = known.reason.max(reason);
            return false;
        }
        removals.insert(name.to_owned(), Removal { server: server.clone(), reason });
        true
    }

    /// Forgets a sandbox that is not there.
    pub(crate) fn forget(&self, name: &str) {
        lock(&self.removals).remove(name);
    }

    /// Removes the sandboxes that were created or worked in, and waits for it.
    pub(crate) async fn close(self: &Arc<Self>) -> Result<()> {
        self.is_closed.store(true, Relaxed);
        let members: Vec<Arc<Remote>> = lock(&self.members).iter().filter_map(Weak::upgrade).collect();
        for member in members {
            // A creation that is under way is waited for.
            member.detach().await;
        }
        let (removals, mut result) = (lock(&self.removals).clone(), Ok(()));
        for (name, Removal { server, .. }) in removals {
            let (group, at) = (self.clone(), server.clone());
            let removed = server.spawn(async move { at.remove(&name).await.map(|()| group.forget(&name)) })?;
            let removed =
                removed.await.map_err(|error| Error::new(ErrorKind::Io, "the sandbox was not removed").because(error));
            result = result.and(removed.and_then(|removed| removed));
        }
        result
    }
}

/// Removes the sandboxes that were created, in the background. What is left then is removed when its time is over.
impl Drop for SandboxGroup {
    fn drop(&mut self) {
        let removals = std::mem::take(self.removals.get_mut().unwrap_or_else(PoisonError::into_inner));
        for (name, Removal { server, .. }) in
            removals.into_iter().filter(|(_, it)| it.reason == RemovalReason::Creation)
        {
            let at = server.clone();
            // Without a thread there is none that created it either.
            let _ = server.spawn(async move { at.remove(&name).await });
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
