//! The report of what a request keeps, rewrites and drops of a record.

use std::collections::BTreeMap;
use std::fmt;

use rath_record::{StepId, draw};

/// The treatment of those parts of a record that belong to one provider, or that others would refuse.
///
/// Parts that every model gets unchanged, which are most, are not listed.
///
/// Part of [`Request`](super::Request).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RenderReport {
    /// Each part, in order.
    pub parts: Vec<(StepId, ReportPart, Treatment)>,
}

/// A part of an answer or a message that cannot be sent to every provider.
///
/// Part of [`RenderReport`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ReportPart {
    /// Reasoning and its signature.
    Reasoning,
    /// A provider's id of a call.
    CallId,
    /// The name of a tool.
    ToolName,
    /// The arguments of a call that were not a JSON object.
    Arguments,
    /// The schema of a tool's arguments that was not the schema of an object.
    Schema,
    /// A second tool of the same name.
    Tool,
    /// An answer without content.
    EmptyAnswer,
    /// A message without content.
    EmptyMessage,
    /// An image of a type that models do not read.
    Image,
    /// An image in the result of a call, for a model that reads text there only.
    ToolImage,
    /// The option that asks for reasoning: reasoning cannot begin in the middle of a turn.
    Thinking,
}

/// The treatment of a part in a request.
///
/// Part of [`RenderReport`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Treatment {
    /// Sent as it was received.
    Kept,
    /// Sent in another form.
    Rewritten,
    /// Not sent.
    Dropped,
}

impl RenderReport {
    /// Returns the number of parts with this treatment.
    pub fn count(&self, treatment: Treatment) -> usize {
        self.parts.iter().filter(|(_, _, other)| *other == treatment).count()
    }

    /// Returns true if every part is sent as it was received.
    pub fn is_lossless(&self) -> bool {
        self.parts.iter().all(|(_, _, treatment)| *treatment == Treatment::Kept)
    }
}

/// Prints one line for each treatment: `dropped: 2 reasoning blocks, 1 empty answer`.
impl fmt::Display for RenderReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut counts: BTreeMap<(Treatment, ReportPart), u64> = BTreeMap::new();
        for (_, part, treatment) in &self.parts {
            *counts.entry((*treatment, *part)).or_default() += 1;
        }
        let lines = [Treatment::Kept, Treatment::Rewritten, Treatment::Dropped].into_iter().filter_map(|treatment| {
            let parts: Vec<_> = counts
                .iter()
                .filter(|((other, _), _)| *other == treatment)
                .map(|((_, part), count)| draw::count(*count, part.name()))
                .collect();
            (!parts.is_empty()).then(|| format!("{}: {}", treatment.name(), parts.join(", ")))
        });
        let lines: Vec<_> = lines.collect();
        f.write_str(if lines.is_empty() { "everything is sent as it is" } else { "" })?;
        f.write_str(&lines.join("\n"))
    }
}

// These names stand in recorded notes, and must not change.

impl ReportPart {
    /// Returns the name in words. An `s` at the end makes the plural.
    pub fn name(self) -> &'static str {
        match self {
            ReportPart::Reasoning => "reasoning block",
            ReportPart::CallId => "call id",
            ReportPart::ToolName => "tool name",
            ReportPart::Arguments => "argument text",
            ReportPart::Schema => "tool schema",
            ReportPart::Tool => "repeated tool",
            ReportPart::EmptyAnswer => "empty answer",
            ReportPart::EmptyMessage => "empty message",
            ReportPart::Image => "unreadable image",
            ReportPart::ToolImage => "tool image",
            ReportPart::Thinking => "thinking option",
        }
    }
}

impl Treatment {
    /// Returns the name in words.
    pub fn name(self) -> &'static str {
        match self {
            Treatment::Kept => "kept",
            Treatment::Rewritten => "rewritten",
            Treatment::Dropped => "dropped",
        }
    }
}
