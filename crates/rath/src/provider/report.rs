//! What becomes of a record on its way to a model.

use std::collections::BTreeMap;
use std::fmt;

use rath_record::{StepId, draw};

/// What becomes of the parts of a record that belong to one provider, or that another would refuse.
///
/// What goes to every model as it is, which is most of it, is not listed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Each part, in order.
    pub parts: Vec<(StepId, Part, Fate)>,
}

/// A part of an answer or a message that does not go everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Part {
    /// Reasoning, and what signs it.
    Reasoning,
    /// A provider's name for a call.
    CallId,
    /// The name of a tool.
    ToolName,
    /// The arguments of a call, which were not a JSON object.
    Arguments,
    /// The schema of a tool's arguments, which was not one of an object.
    Schema,
    /// A second tool of the same name.
    Tool,
    /// An answer that said nothing.
    EmptyAnswer,
    /// A message that said nothing.
    EmptyMessage,
    /// An image of a kind that models do not read.
    Image,
    /// The option that asks for reasoning: it cannot begin in the middle of a turn.
    Thinking,
}

/// What becomes of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    /// Sent as it was received.
    Kept,
    /// Sent in another form.
    Rewritten,
    /// Not sent.
    Dropped,
}

impl Report {
    /// How many parts met this fate.
    pub fn count(&self, fate: Fate) -> usize {
        self.parts.iter().filter(|(_, _, met)| *met == fate).count()
    }

    /// Whether everything is sent as it was received.
    pub fn is_lossless(&self) -> bool {
        self.parts.iter().all(|(_, _, fate)| *fate == Fate::Kept)
    }
}

/// One line a fate: `dropped: 2 reasoning blocks, 1 empty answer`.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut counts: BTreeMap<(Fate, Part), u64> = BTreeMap::new();
        for (_, part, fate) in &self.parts {
            *counts.entry((*fate, *part)).or_default() += 1;
        }
        let lines = [Fate::Kept, Fate::Rewritten, Fate::Dropped].into_iter().filter_map(|fate| {
            let parts: Vec<_> = counts
                .iter()
                .filter(|((met, _), _)| *met == fate)
                .map(|((_, part), count)| draw::count(*count, part.name()))
                .collect();
            (!parts.is_empty()).then(|| format!("{}: {}", fate.name(), parts.join(", ")))
        });
        let lines: Vec<_> = lines.collect();
        f.write_str(if lines.is_empty() { "everything is sent as it is" } else { "" })?;
        f.write_str(&lines.join("\n"))
    }
}

impl Part {
    /// In words, so that an `s` makes the plural.
    pub fn name(self) -> &'static str {
        match self {
            Part::Reasoning => "reasoning block",
            Part::CallId => "call id",
            Part::ToolName => "tool name",
            Part::Arguments => "argument text",
            Part::Schema => "tool schema",
            Part::Tool => "repeated tool",
            Part::EmptyAnswer => "empty answer",
            Part::EmptyMessage => "empty message",
            Part::Image => "unreadable image",
            Part::Thinking => "thinking option",
        }
    }
}

impl Fate {
    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Fate::Kept => "kept",
            Fate::Rewritten => "rewritten",
            Fate::Dropped => "dropped",
        }
    }
}
