//! Other words for what a chunk says, before it becomes a step.

use serde_json::Value;

use super::{Chunk, Json, MemoryEvent};
use crate::payload::Text;

/// Which kind of text it is that stands in a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Words or JSON that anybody may read.
    Open,
    /// State of a provider's, which goes back byte for byte or not at all.
    Sidecar,
}

impl Chunk {
    /// Puts every text for which `rewrite` has other words into those; `None` leaves it as it is.
    ///
    /// What others are found by stays: ids, the names of tools, routes and models, entries of a memory, paths of files, and
    /// so do images, texts that are away, and chunks that this version cannot read. A sidecar for which there are other
    /// words is dropped, and so is one that speaks for words that are no longer there: changed, it would be refused.
    pub fn rewrite(&mut self, mut rewrite: impl FnMut(Part, &str) -> Option<String>) {
        let mut open = |text: &str| rewrite(Part::Open, text);
        match self {
            Chunk::Instructions(it) => {
                mend(&mut it.text, &mut open);
                for tool in &mut it.tools {
                    mend(&mut tool.description, &mut open);
                    mend(&mut tool.parameters, &mut open);
                }
            }
            Chunk::User(it) => mend(&mut it.text, &mut open),
            Chunk::Assistant(it) => {
                let spoken = [&mut it.text, &mut it.reasoning].map(|text| text.mend(&mut open));
                it.calls.iter_mut().for_each(|call| mend(&mut call.arguments, &mut open));
                [&mut it.settings, &mut it.facts].into_iter().flatten().for_each(|json| mend(json, &mut open));
                let stale = |sidecar: &Json| rewrite(Part::Sidecar, sidecar.as_str()).is_some();
                if spoken.contains(&Mended::Yes) || it.sidecar.as_ref().is_some_and(stale) {
                    it.sidecar = None;
                }
            }
            Chunk::ToolStarted(it) => it.key.iter_mut().for_each(|key| mend(key, &mut open)),
            Chunk::ToolResult(it) => {
                mend(&mut it.output, &mut open);
                it.whole.iter_mut().for_each(|whole| mend(whole, &mut open));
            }
            Chunk::Placed(it) => mend(&mut it.place, &mut open),
            Chunk::Memory(it) => match &mut it.event {
                MemoryEvent::Remember { text } => mend(text, &mut open),
                MemoryEvent::Recall { query, found } => {
                    mend(query, &mut open);
                    found.iter_mut().for_each(|found| mend(&mut found.text, &mut open));
                }
                MemoryEvent::Commit { .. } | MemoryEvent::Forget { .. } => {}
            },
            Chunk::Compressed(it) => mend(&mut it.summary, &mut open),
            Chunk::Selected(it) => {
                it.menu.iter_mut().for_each(|route| mend(&mut route.description, &mut open));
                mend(&mut it.reply, &mut open);
            }
            Chunk::Checked(it) => {
                mend(&mut it.check, &mut open);
                mend(&mut it.output, &mut open);
            }
            Chunk::Forked(it) => it.name.iter_mut().for_each(|name| mend(name, &mut open)),
            Chunk::Resumed(it) => it.differences.iter_mut().for_each(|one| mend(one, &mut open)),
            Chunk::Retry(it) => mend(&mut it.error, &mut open),
            Chunk::Interrupted(it) => mend(&mut it.reason, &mut open),
            Chunk::Denied(it) => mend(&mut it.reason, &mut open),
            Chunk::Failed(it) => mend(&mut it.message, &mut open),
            Chunk::Note(it) => mend(&mut it.text, &mut open),
            Chunk::Merged(_)
            | Chunk::Detached(_)
            | Chunk::Observed(_)
            | Chunk::Decided(_)
            | Chunk::Approved(_)
            | Chunk::Other(_) => {}
        }
    }
}

/// Whether there were other words.
#[derive(Clone, Copy, PartialEq)]
enum Mended {
    Yes,
    No,
}

/// Something that says words.
trait Words {
    fn words(&self) -> Option<&str>;
    fn say(&mut self, words: String);

    fn mend(&mut self, rewrite: &mut impl FnMut(&str) -> Option<String>) -> Mended {
        match self.words().and_then(rewrite) {
            Some(words) => {
                self.say(words);
                Mended::Yes
            }
            None => Mended::No,
        }
    }
}

fn mend(words: &mut impl Words, rewrite: &mut impl FnMut(&str) -> Option<String>) {
    words.mend(rewrite);
}

impl Words for Text {
    fn words(&self) -> Option<&str> {
        self.as_str()
    }

    fn say(&mut self, words: String) {
        *self = words.into();
    }
}

impl Words for String {
    fn words(&self) -> Option<&str> {
        Some(self)
    }

    fn say(&mut self, words: String) {
        *self = words;
    }
}

impl Words for Json {
    fn words(&self) -> Option<&str> {
        Some(self.as_str())
    }

    /// Words that are no JSON, because a number or a brace was among what was replaced, become a string.
    fn say(&mut self, words: String) {
        *self = Json::parse(&words).unwrap_or_else(|_| Value::String(words).into());
    }
}
