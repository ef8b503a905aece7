//! What is live around a session: who listens, what can stop it, what it hides, in whose hands it is.

use std::sync::Arc;

use super::Session;
use super::recorder::Recorder;
use super::workspace::Where;
use crate::cancel::Cancel;
use crate::event::{EventKind, Hub};
use crate::flow::Scope;
use crate::provider::Reuse;
use crate::replay::{self, Replay};
use crate::secrets::Secrets;

/// What is live around a session and no part of its record. A fork shares it.
#[derive(Clone, Default)]
pub(super) struct Live {
    pub(super) hub: Hub,
    pub(super) cancel: Option<Cancel>,
    /// What must not be recorded.
    pub(super) secrets: Secrets,
    /// The module that runs, and those below it.
    scope: Option<Arc<Scope>>,
    /// How many tools deep this work is. In one, nobody can be asked for a decision.
    nested: u32,
    /// Where its steps are kept.
    pub(super) recorder: Option<Recorder>,
    /// The recording that whatever is done is held against.
    pub(super) replay: Option<Arc<Replay>>,
    /// Where it works.
    pub(super) place: Where,
}

impl Live {
    /// What is live around a session that begins here.
    pub(super) fn here() -> Self {
        Live { replay: replay::current(), ..Live::default() }
    }
}

impl Session {
    /// The same for reading: it tells nobody what is done with it, and does not keep the last request from being reused.
    pub(crate) fn quiet(&self) -> Self {
        let live = Live { hub: Hub::default(), ..self.live.clone() };
        Session {
            record: self.record.clone(),
            branch: self.branch.clone(),
            by: self.by.clone(),
            purse: self.purse.clone(),
            rendered: Reuse::default(),
            placed: self.placed.clone(),
            live,
        }
    }

    /// The same for a tool, which may tell how it gets on.
    pub(crate) fn for_tool(&self) -> Self {
        self.quiet().heard_by(self.live.hub.clone())
    }

    /// Who listens.
    pub(crate) fn hub(&self) -> &Hub {
        &self.live.hub
    }

    /// The same with other listeners.
    pub(crate) fn heard_by(mut self, hub: Hub) -> Self {
        self.live.hub = hub;
        self
    }

    /// Tells whoever listens.
    pub(crate) fn emit(&self, kind: impl FnOnce() -> EventKind) {
        self.live.hub.emit(self, kind);
    }

    /// What must not be recorded.
    pub(crate) fn secrets(&self) -> &Secrets {
        &self.live.secrets
    }

    /// Hides these from here on too, as [`hiding`](Session::hiding) does.
    pub(crate) fn hide_also(&mut self, secrets: &Secrets) {
        self.live.secrets.join(secrets);
    }

    /// What can stop it.
    pub(crate) fn cancel(&self) -> Option<&Cancel> {
        self.live.cancel.as_ref()
    }

    /// The recording that whatever is done is held against.
    pub(crate) fn replaying(&self) -> Option<&Arc<Replay>> {
        self.live.replay.as_ref()
    }

    /// The module that runs, and those below it.
    pub(crate) fn scope(&self) -> Option<&Arc<Scope>> {
        self.live.scope.as_ref()
    }

    /// The same in the hands of another module.
    pub(crate) fn within_scope(mut self, by: Option<Arc<str>>, scope: Option<Arc<Scope>>) -> Self {
        self.by = by;
        self.live.scope = scope;
        self
    }

    /// Says on whose behalf steps are appended, and who it was before.
    pub(crate) fn set_by(&mut self, by: Option<Arc<str>>) -> Option<Arc<str>> {
        std::mem::replace(&mut self.by, by)
    }

    /// Where its steps are kept.
    pub(crate) fn recorder(&self) -> Option<&Recorder> {
        self.live.recorder.as_ref()
    }

    /// The same, kept elsewhere.
    pub(crate) fn recorded_by(mut self, recorder: Option<Recorder>) -> Self {
        self.live.recorder = recorder;
        self
    }

    /// Hands over what was appended, with its JSON where that is at hand.
    pub(super) fn keep(&mut self, json: Option<Vec<u8>>) {
        if let (Some(recorder), Some(head)) = (&mut self.live.recorder, self.record.head()) {
            recorder.write(self.branch.id, head, json);
        }
    }

    /// Tells the store which steps of another session it has already, though that session has them from elsewhere.
    pub(super) fn recognise(&self, theirs: &Session) {
        if let (Some(recorder), Some(ours), Some(theirs)) = (&self.live.recorder, self.head(), theirs.head()) {
            recorder.recognise(ours, theirs);
        }
    }

    /// Whether the store that it is recorded in was never given its newest step.
    pub(super) fn is_unkept(&self) -> bool {
        self.live.recorder.as_ref().zip(self.record.head()).is_some_and(|(recorder, head)| !recorder.has(head))
    }

    /// How many tools deep this work is.
    pub(crate) fn nesting(&self) -> u32 {
        self.live.nested
    }

    /// The same as the work of a tool.
    pub(crate) fn nested(mut self) -> Self {
        self.live.nested += 1;
        self
    }
}
