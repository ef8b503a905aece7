//! The live state around a session: listeners, cancellation, secrets, the recorder, the replay.

use std::path::PathBuf;
use std::sync::Arc;

use super::event::{EventKind, Hub};
use super::guest::Ownership;
use super::mirror::mirrors_folder;
use super::placement::Placement;
use super::recorder::Recorder;
use super::recording::{self, Replay};
use super::scope::Scope;
use super::{Result, Session};
use crate::cancel::Cancel;
use crate::place::{Place, SandboxKinds};
use crate::policy::ActivePolicy;
use crate::provider::RequestCache;
use crate::sandbox::Sandbox;
use crate::secrets::Secrets;
use crate::store::Store;

/// The state around a session that is not part of its record. A fork shares it.
#[derive(Clone, Default)]
pub(super) struct Live {
    pub(super) hub: Hub,
    pub(super) cancel: Option<Cancel>,
    /// Values that must not be recorded.
    pub(super) secrets: Secrets,
    /// The module that runs, with its children.
    scope: Option<Arc<Scope>>,
    /// The number of tool calls around this session.
    nested: u32,
    /// The writer that stores its steps.
    pub(super) recorder: Option<Recorder>,
    /// The recording that a replay compares with.
    pub(super) replay: Option<Arc<Replay>>,
    /// The directory that it works in.
    pub(super) place: Placement,
    /// The kinds of sandbox that its place is opened with.
    pub(super) sandboxes: SandboxKinds,
    /// The folder for copies of files that are in no directory of this machine, beside the store; none without such a store.
    pub(super) mirrors_in: Option<PathBuf>,
    /// Files that commands must not reach, besides the store.
    pub(super) kept_out: Vec<PathBuf>,
    /// The directories of the memories of agents that worked with the session.
    pub(super) memories: Vec<PathBuf>,
    /// The policy that decides about calls.
    pub(super) policy: Option<Arc<ActivePolicy>>,
    /// The name under which decisions are recorded.
    pub(super) person: Option<Arc<str>>,
    /// The relation of the session to the user.
    pub(super) ownership: Ownership,
}

impl Live {
    /// Returns the live state of a session that begins in the current task.
    pub(super) fn here() -> Self {
        Live { replay: recording::current(), ..Live::default() }
    }
}

impl Session {
    /// Returns a copy for reading: it emits no events and does not share the request cache.
    pub(crate) fn quiet(&self) -> Self {
        let live = Live { hub: Hub::default(), ..self.live.clone() };
        Session {
            record: self.record.clone(),
            branch: self.branch.clone(),
            by: self.by.clone(),
            budget: self.budget.clone(),
            rendered: RequestCache::default(),
            placed: self.placed.clone(),
            live,
        }
    }

    /// Returns a copy for a tool, which may emit progress events.
    pub(crate) fn for_tool(&self) -> Self {
        self.quiet().heard_by(self.live.hub.clone())
    }

    /// Returns the listeners.
    pub(crate) fn hub(&self) -> &Hub {
        &self.live.hub
    }

    /// Replaces the listeners.
    pub(crate) fn heard_by(mut self, hub: Hub) -> Self {
        self.live.hub = hub;
        self
    }

    /// Emits an event to the listeners.
    pub(crate) fn emit(&self, kind: impl FnOnce() -> EventKind) {
        self.live.hub.emit(self, kind);
    }

    /// Values that must not be recorded.
    pub(crate) fn secrets(&self) -> &Secrets {
        &self.live.secrets
    }

    /// Adds values that must not be recorded, as [`hiding`](Session::hiding) does.
    pub(crate) fn hide_also(&mut self, secrets: &Secrets) {
        self.live.secrets.add_all(secrets);
        self.set_by(self.by.clone());
    }

    /// Opens the sandbox at a recorded place. The place of a guest is what others say, so no code of the program is run for it.
    pub(super) fn open_place(&self, place: &Place) -> Result<Sandbox> {
        let sandboxes = if self.is_guest() { &SandboxKinds::default() } else { &self.live.sandboxes };
        Ok(sandboxes.open(place.as_str())?)
    }

    /// Adds the kinds of sandbox of a store, unless the program gave the session some, and its folder of mirrors.
    pub(super) fn use_sandboxes_of(&mut self, store: &Store) {
        self.live.mirrors_in = mirrors_folder(store);
        self.live.sandboxes = std::mem::take(&mut self.live.sandboxes).or(store.sandbox_kinds());
    }

    /// Returns the policy that decides about calls; none if all are made.
    pub(crate) fn policy(&self) -> Option<&Arc<ActivePolicy>> {
        self.live.policy.as_ref()
    }

    /// Returns the switch that cancels the session.
    pub(crate) fn cancel(&self) -> Option<&Cancel> {
        self.live.cancel.as_ref()
    }

    /// Returns true if the session repeats a recording.
    pub(crate) fn is_replaying(&self) -> bool {
        self.live.replay.is_some()
    }

    /// The recording that a replay compares with.
    pub(crate) fn replaying(&self) -> Option<&Arc<Replay>> {
        self.live.replay.as_ref()
    }

    /// The module that runs, with its children.
    pub(crate) fn scope(&self) -> Option<&Arc<Scope>> {
        self.live.scope.as_ref()
    }

    /// Hands the session to another module.
    pub(crate) fn within_scope(mut self, by: Option<Arc<str>>, scope: Option<Arc<Scope>>) -> Self {
        self.set_by(by);
        self.live.scope = scope;
        self
    }

    /// Sets the module path for new steps, without secrets, and returns the previous one.
    pub(crate) fn set_by(&mut self, by: Option<Arc<str>>) -> Option<Arc<str>> {
        let by = by.map(|by| self.live.secrets.hide(&by).map_or(by, Arc::from));
        std::mem::replace(&mut self.by, by)
    }

    /// Returns the writer that stores its steps.
    pub(crate) fn recorder(&self) -> Option<&Recorder> {
        self.live.recorder.as_ref()
    }

    /// Replaces the writer that stores its steps.
    pub(crate) fn recorded_by(mut self, recorder: Option<Recorder>) -> Self {
        self.live.recorder = recorder;
        self
    }

    /// Hands the newest step to the recorder, with its JSON if there is one.
    pub(super) fn hand_to_recorder(&mut self, json: Option<Vec<u8>>) {
        if let (Some(recorder), Some(head)) = (&mut self.live.recorder, self.record.head()) {
            recorder.write(self.branch.id, head, json, self.live.ownership);
        }
    }

    /// Tells the recorder which steps of another session are already stored, although that session has its own copies.
    pub(super) fn recognise(&self, theirs: &Session) {
        if let (Some(recorder), Some(ours), Some(theirs)) = (&self.live.recorder, self.head(), theirs.head()) {
            recorder.recognise(ours, theirs);
        }
    }

    /// Returns true if the session is recorded and its newest step was never handed to the store.
    pub(super) fn is_head_unrecorded(&self) -> bool {
        self.live.recorder.as_ref().zip(self.record.head()).is_some_and(|(recorder, head)| !recorder.has(head))
    }

    /// Returns the number of tool calls around this session.
    pub(crate) fn nesting(&self) -> u32 {
        self.live.nested
    }

    /// Marks the session as the work of a tool call.
    pub(crate) fn nested(mut self) -> Self {
        self.live.nested += 1;
        self
    }
}
