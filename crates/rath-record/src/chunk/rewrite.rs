//! Rewriting the texts of a chunk before it becomes a step, to take secrets out.

use std::sync::Arc;

use serde_json::Value;

use super::{Change, Chunk, Effect, Json, MemoryEvent};
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
    /// That includes what a model or a tool can choose: ids of calls, names of tools in calls, paths of changed files. So
    /// `rewrite` must return the same text for the same name, since several steps hold it. Names that a program chooses stay:
    /// those of its tools, routes and models, entries of a memory, paths of conflicts. Images, missing texts and chunks that
    /// this version cannot read stay too. A sidecar is dropped if `rewrite` returns a text for it, or if the text or reasoning
    /// that it belongs to was replaced: a provider would refuse a changed one.
    pub fn rewrite_texts(&mut self, mut rewrite: impl FnMut(TextKind, &str) -> Option<String>) {
        let mut plain = |text: &str| rewrite(TextKind::Plain, text);
        match self {
            Chunk::Instructions(it) => {
                it.text.rewrite(&mut plain);
                for tool in &mut it.tools {
                    tool.description.rewrite(&mut plain);
                    tool.parameters.rewrite(&mut plain);
                }
            }
            Chunk::User(it) => it.text.rewrite(&mut plain),
            Chunk::Assistant(it) => {
                let was_replaced = [&mut it.text, &mut it.reasoning].map(|text| text.replace(&mut plain));
                for call in &mut it.calls {
                    call.id.0.rewrite(&mut plain);
                    call.tool.rewrite(&mut plain);
                    call.arguments.rewrite(&mut plain);
                }
                [&mut it.settings, &mut it.facts].into_iter().flatten().for_each(|json| json.rewrite(&mut plain));
                let is_rewritten = |sidecar: &Json| rewrite(TextKind::Sidecar, sidecar.as_str()).is_some();
                if was_replaced.contains(&true) || it.sidecar.as_ref().is_some_and(is_rewritten) {
                    it.sidecar = None;
                }
            }
            Chunk::ToolStarted(it) => {
                it.call.0.rewrite(&mut plain);
                it.key.iter_mut().chain(&mut it.rule).for_each(|text| text.rewrite(&mut plain));
            }
            Chunk::ToolResult(it) => {
                it.call.0.rewrite(&mut plain);
                it.output.rewrite(&mut plain);
                it.whole.iter_mut().for_each(|whole| whole.rewrite(&mut plain));
                rewrite_paths(&mut it.effects, &mut plain);
                it.put_back.iter_mut().for_each(|path| path.rewrite(&mut plain));
            }
            Chunk::Placed(it) => it.place.rewrite(&mut plain),
            Chunk::Memory(it) => match &mut it.event {
                MemoryEvent::Remember { text } => text.rewrite(&mut plain),
                MemoryEvent::Recall { query, found } => {
                    query.rewrite(&mut plain);
                    found.iter_mut().for_each(|entry| entry.text.rewrite(&mut plain));
                }
                MemoryEvent::Commit { .. } | MemoryEvent::Forget { .. } => {}
            },
            Chunk::Compressed(it) => it.summary.rewrite(&mut plain),
            Chunk::Selected(it) => {
                it.menu.iter_mut().for_each(|route| route.description.rewrite(&mut plain));
                it.reply.rewrite(&mut plain);
            }
            Chunk::Checked(it) => {
                it.check.rewrite(&mut plain);
                it.output.rewrite(&mut plain);
            }
            Chunk::Forked(it) => it.name.iter_mut().for_each(|name| name.rewrite(&mut plain)),
            Chunk::Resumed(it) => it.differences.iter_mut().for_each(|difference| difference.rewrite(&mut plain)),
            Chunk::Adopted(it) => it.by.rewrite(&mut plain),
            Chunk::Retry(it) => it.error.rewrite(&mut plain),
            Chunk::Interrupted(it) => it.reason.rewrite(&mut plain),
            Chunk::Asked(it) => {
                it.call.0.rewrite(&mut plain);
                it.why.rewrite(&mut plain);
                it.rule.iter_mut().for_each(|rule| rule.rewrite(&mut plain));
            }
            Chunk::Approved(it) => {
                it.call.0.rewrite(&mut plain);
                it.by.iter_mut().chain(&mut it.rules).for_each(|text| text.rewrite(&mut plain));
            }
            Chunk::Denied(it) => {
                it.call.0.rewrite(&mut plain);
                it.reason.rewrite(&mut plain);
                it.by.iter_mut().chain(&mut it.rule).for_each(|text| text.rewrite(&mut plain));
            }
            Chunk::Failed(it) => it.message.rewrite(&mut plain),
            Chunk::Note(it) => it.text.rewrite(&mut plain),
            Chunk::Merged(it) => {
                rewrite_paths(&mut it.effects, &mut plain);
                it.call.iter_mut().for_each(|call| call.0.rewrite(&mut plain));
            }
            Chunk::Observed(it) => rewrite_paths(&mut it.effects, &mut plain),
            Chunk::Decided(it) => rewrite_paths(&mut it.effects, &mut plain),
            Chunk::Detached(_) | Chunk::Other(_) => {}
        }
    }
}

fn rewrite_paths(effects: &mut [Effect], rewrite: &mut impl FnMut(&str) -> Option<String>) {
    for effect in effects {
        effect.path.rewrite(rewrite);
        if let Change::Renamed { from } = &mut effect.change {
            from.rewrite(rewrite);
        }
    }
}

/// A field of a chunk that holds text.
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

    fn rewrite(&mut self, rewrite: &mut impl FnMut(&str) -> Option<String>) {
        self.replace(rewrite);
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
