//! Rewriting the texts of a chunk before it becomes a step, to take secrets out.

use std::sync::Arc;

use serde_json::Value;

use super::{
    Adopted, Approved, Asked, Assistant, Call, Change, Checked, Choice, Chunk, Compressed, Conflict, Decided, Denied,
    Detached, Effect, Failed, FileVersion, Forked, Identity, Image, Instructions, Interrupted, Json, Memory,
    MemoryEvent, Merged, Note, Observed, Other, Placed, RecalledEntry, Restored, Resumed, Retry, Route, Selected,
    ToolResult, ToolSpec, ToolStarted, Tree, User,
};
use crate::id::CallId;
use crate::payload::Text;

/// The kind of a text that [`Chunk::rewrite_texts`] visits.
///
/// ```
/// use rath_record::chunk::{Chunk, TextKind};
///
/// let mut chunk = Chunk::user("the password is hunter2");
/// chunk.rewrite_texts(|kind, text| match kind {
///     TextKind::Plain => Some(text.replace("hunter2", "***")),
///     _ => None,
/// });
/// assert_eq!(chunk, Chunk::user("the password is ***"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextKind {
    /// Text or JSON that can be replaced.
    Plain,
    /// State of a provider, which is sent back byte for byte or not at all.
    Sidecar,
}

impl Chunk {
    /// Replaces every text for which `rewrite` returns a new one; `None` leaves the text unchanged.
    ///
    /// Every member that holds text is visited, names and ids too, so `rewrite` must return the same text for the same name:
    /// several steps hold it. Bytes of images, missing texts and payloads of chunks that this version cannot read stay. A
    /// sidecar is dropped if `rewrite` returns a text for it, or if the text or reasoning that it belongs to was replaced: a
    /// provider would refuse a changed one.
    pub fn rewrite_texts(&mut self, mut rewrite: impl FnMut(TextKind, &str) -> Option<String>) {
        let plain = &mut |text: &str| rewrite(TextKind::Plain, text);
        // Without `..`: a new member does not compile before it is decided here.
        match self {
            Chunk::Instructions(Instructions { text, tools, provider }) => {
                text.rewrite(plain);
                for ToolSpec { name, description, parameters } in tools {
                    name.rewrite(plain);
                    description.rewrite(plain);
                    parameters.rewrite(plain);
                }
                provider.rewrite(plain);
            }
            Chunk::User(User { text, images }) => {
                text.rewrite(plain);
                images.iter_mut().for_each(|Image { media_type, blob: _ }| media_type.rewrite(plain));
            }
            Chunk::Assistant(answer) => {
                let Assistant { text, reasoning, calls, finish: _, request: _, settings, provider, facts, sidecar } =
                    answer;
                let was_replaced = [text, reasoning].map(|text| text.replace(plain));
                for Call { id, tool, arguments } in calls {
                    id.rewrite(plain);
                    tool.rewrite(plain);
                    arguments.rewrite(plain);
                }
                settings.rewrite(plain);
                provider.rewrite(plain);
                facts.rewrite(plain);
                let is_rewritten = |sidecar: &Json| rewrite(TextKind::Sidecar, sidecar.as_str()).is_some();
                if was_replaced.contains(&true) || sidecar.as_ref().is_some_and(is_rewritten) {
                    *sidecar = None;
                }
            }
            Chunk::ToolStarted(ToolStarted { call, key, rule }) => {
                call.rewrite(plain);
                key.rewrite(plain);
                rule.rewrite(plain);
            }
            Chunk::ToolResult(ToolResult {
                call,
                outcome: _,
                output,
                whole,
                effects,
                tree,
                put_back,
                not_put_back,
                images,
                structured,
            }) => {
                call.rewrite(plain);
                output.rewrite(plain);
                whole.rewrite(plain);
                effects.rewrite(plain);
                tree.rewrite(plain);
                put_back.rewrite(plain);
                not_put_back.rewrite(plain);
                images.iter_mut().for_each(|Image { media_type, blob: _ }| media_type.rewrite(plain));
                structured.rewrite(plain);
            }
            Chunk::Placed(Placed { place, tree }) => {
                place.rewrite(plain);
                tree.rewrite(plain);
            }
            Chunk::Memory(Memory { memory, event }) => {
                memory.rewrite(plain);
                match event {
                    MemoryEvent::Remember { text, path, steps } => {
                        text.rewrite(plain);
                        steps.rewrite(plain);
                        path.rewrite(plain);
                    }
                    MemoryEvent::Recall { query, found, position: _, notice } => {
                        query.rewrite(plain);
                        notice.rewrite(plain);
                        for RecalledEntry { entry, text, score: _, said_by, at: _, session, steps } in found {
                            entry.rewrite(plain);
                            text.rewrite(plain);
                            said_by.rewrite(plain);
                            session.rewrite(plain);
                            steps.rewrite(plain);
                        }
                    }
                    MemoryEvent::Commit { entries, position: _ } | MemoryEvent::Forget { entries } => {
                        entries.rewrite(plain);
                    }
                }
            }
            Chunk::Compressed(Compressed { hidden: _, kept: _, summary }) => summary.rewrite(plain),
            Chunk::Selected(Selected { menu, reply, choice, request: _ }) => {
                for Route { name, description } in menu {
                    name.rewrite(plain);
                    description.rewrite(plain);
                }
                reply.rewrite(plain);
                match choice {
                    Choice::Chosen { route } => route.rewrite(plain),
                    Choice::Done | Choice::OutOfRange | Choice::Unparseable | Choice::Empty => {}
                }
            }
            Chunk::Checked(Checked { check, verdict: _, output, tree, inputs }) => {
                check.rewrite(plain);
                output.rewrite(plain);
                tree.rewrite(plain);
                inputs.rewrite(plain);
            }
            Chunk::Forked(Forked { nth: _, counter: _, from: _, merges: _, name }) => name.rewrite(plain),
            Chunk::Merged(Merged { strategy: _, nth: _, counter: _, from: _, tree, effects, conflicts, call }) => {
                tree.rewrite(plain);
                effects.rewrite(plain);
                conflicts.rewrite(plain);
                call.rewrite(plain);
            }
            Chunk::Decided(Decided { path, taken: _, tree, effects }) => {
                path.rewrite(plain);
                tree.rewrite(plain);
                effects.rewrite(plain);
            }
            Chunk::Restored(Restored { to: _, tree, effects }) => {
                tree.rewrite(plain);
                effects.rewrite(plain);
            }
            Chunk::Observed(Observed { tree, effects, calls }) => {
                tree.rewrite(plain);
                effects.rewrite(plain);
                calls.rewrite(plain);
            }
            Chunk::Retry(Retry { attempt: _, of: _, error, provider }) => {
                error.rewrite(plain);
                provider.rewrite(plain);
            }
            Chunk::Interrupted(Interrupted { reason, partial, provider }) => {
                reason.rewrite(plain);
                partial.rewrite(plain);
                provider.rewrite(plain);
            }
            Chunk::Asked(Asked { call, why, rule, subject: _ }) => {
                call.rewrite(plain);
                why.rewrite(plain);
                rule.rewrite(plain);
            }
            Chunk::Approved(Approved { call, origin: _, subject: _, by, rules }) => {
                call.rewrite(plain);
                by.rewrite(plain);
                rules.rewrite(plain);
            }
            Chunk::Denied(Denied { call, origin: _, reason, by, rule }) => {
                call.rewrite(plain);
                reason.rewrite(plain);
                by.rewrite(plain);
                rule.rewrite(plain);
            }
            Chunk::Failed(Failed { error, message, partial, provider }) => {
                partial.rewrite(plain);
                provider.rewrite(plain);
                error.rewrite(plain);
                message.rewrite(plain);
            }
            Chunk::Resumed(Resumed { differences, is_incomplete: _ }) => differences.rewrite(plain),
            Chunk::Adopted(Adopted { by }) => by.rewrite(plain),
            Chunk::Note(Note { text }) => text.rewrite(plain),
            Chunk::Detached(Detached { nth: _, counter: _, from: _ }) => {}
            Chunk::Other(Other { kind: _, json, payloads: _ }) => {
                if let Some(text) = plain(json) {
                    // A text that is no longer a chunk, because a number or a brace was replaced, becomes a note.
                    *self = Chunk::decode(&text).unwrap_or_else(|_| Chunk::note(text));
                }
            }
        }
    }
}

/// A member of a chunk that holds texts.
trait RewriteAll {
    fn rewrite(&mut self, rewrite: &mut impl FnMut(&str) -> Option<String>);
}

impl<T: Rewrite> RewriteAll for T {
    fn rewrite(&mut self, rewrite: &mut impl FnMut(&str) -> Option<String>) {
        self.replace(rewrite);
    }
}

impl<T: RewriteAll> RewriteAll for Option<T> {
    fn rewrite(&mut self, rewrite: &mut impl FnMut(&str) -> Option<String>) {
        self.iter_mut().for_each(|it| it.rewrite(rewrite));
    }
}

impl<T: RewriteAll> RewriteAll for Vec<T> {
    fn rewrite(&mut self, rewrite: &mut impl FnMut(&str) -> Option<String>) {
        self.iter_mut().for_each(|it| it.rewrite(rewrite));
    }
}

impl RewriteAll for Identity {
    fn rewrite(&mut self, rewrite: &mut impl FnMut(&str) -> Option<String>) {
        let Identity { provider, model } = self;
        provider.rewrite(rewrite);
        model.rewrite(rewrite);
    }
}

impl RewriteAll for Effect {
    fn rewrite(&mut self, rewrite: &mut impl FnMut(&str) -> Option<String>) {
        let Effect { path, change, before: _, after: _, unkept: _ } = self;
        path.rewrite(rewrite);
        match change {
            Change::Renamed { from } => from.rewrite(rewrite),
            Change::Created | Change::Modified | Change::Deleted => {}
        }
    }
}

impl RewriteAll for Conflict {
    fn rewrite(&mut self, rewrite: &mut impl FnMut(&str) -> Option<String>) {
        let Conflict { path, what, base, ours, theirs } = self;
        path.rewrite(rewrite);
        what.rewrite(rewrite);
        for FileVersion { path, object, mode } in [base, ours, theirs].into_iter().flatten() {
            path.rewrite(rewrite);
            object.rewrite(rewrite);
            mode.rewrite(rewrite);
        }
    }
}

/// A member of a chunk that is one text.
trait Rewrite {
    /// The text, unless it is missing.
    fn text(&self) -> Option<&str>;

    fn set_text(&mut self, text: String);

    /// Replaces the text if `rewrite` returns a new one, and returns whether it did.
    fn replace(&mut self, rewrite: &mut impl FnMut(&str) -> Option<String>) -> bool {
        match self.text().and_then(rewrite) {
            Some(text) => {
                self.set_text(text);
                true
            }
            None => false,
        }
    }
}

impl Rewrite for Text {
    fn text(&self) -> Option<&str> {
        self.as_str()
    }

    fn set_text(&mut self, text: String) {
        *self = text.into();
    }
}

impl Rewrite for String {
    fn text(&self) -> Option<&str> {
        Some(self)
    }

    fn set_text(&mut self, text: String) {
        *self = text;
    }
}

impl Rewrite for CallId {
    fn text(&self) -> Option<&str> {
        Some(&self.0)
    }

    fn set_text(&mut self, text: String) {
        self.0 = text.into();
    }
}

impl Rewrite for Tree {
    fn text(&self) -> Option<&str> {
        Some(&self.0)
    }

    fn set_text(&mut self, text: String) {
        self.0 = text;
    }
}

impl Rewrite for Arc<str> {
    fn text(&self) -> Option<&str> {
        Some(self)
    }

    fn set_text(&mut self, text: String) {
        *self = text.into();
    }
}

impl Rewrite for Json {
    fn text(&self) -> Option<&str> {
        Some(self.as_str())
    }

    /// A text that is no longer JSON, because a number or a brace was replaced, becomes a JSON string.
    fn set_text(&mut self, text: String) {
        *self = Json::parse(&text).unwrap_or_else(|_| Value::String(text).into());
    }
}
