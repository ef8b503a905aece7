//! The channels of a session: every way by which a text gets into it, and the place where it would be seen.

/// A way by which a text gets into a session.
pub(super) struct Channel {
    pub(super) name: &'static str,
    /// The place where the texts of this channel are seen if they are not hidden.
    pub(super) medium: Medium,
    pub(super) holds: Holds,
}

/// The texts that a channel takes.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Holds {
    Text,
    /// Names of files.
    Name,
    /// Text, in which only known values are hidden: random text, and files of the user.
    KnownOnly,
}

/// A place where a canary may be seen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Medium {
    /// Files of stores and of sessions, and all rows and payloads as a store returns them.
    Store,
    /// Stored versions of files.
    Objects,
    /// Events and the pieces of an answer.
    Events,
    /// Errors, with everything that they print.
    Errors,
    /// Sessions in the formats of other programs.
    Exports,
}

const fn stored(name: &'static str) -> Channel {
    Channel { name, medium: Medium::Store, holds: Holds::Text }
}

const fn shown(name: &'static str) -> Channel {
    Channel { name, medium: Medium::Events, holds: Holds::Text }
}

const fn file_name(name: &'static str) -> Channel {
    Channel { name, medium: Medium::Store, holds: Holds::Name }
}

const fn file_content(name: &'static str) -> Channel {
    Channel { name, medium: Medium::Objects, holds: Holds::KnownOnly }
}

/// All channels.
pub(super) const CHANNELS: &[Channel] = &[
    // Steps, by kind and member.
    stored("instructions: text"),
    stored("instructions: tool name"),
    stored("instructions: tool description"),
    stored("instructions: tool parameters"),
    stored("instructions: provider"),
    stored("instructions: model"),
    stored("user: text, which is the title"),
    stored("user: media type of an image"),
    stored("assistant: text"),
    stored("assistant: reasoning"),
    stored("assistant: call id"),
    stored("assistant: tool name"),
    stored("assistant: argument name"),
    stored("assistant: nested argument"),
    stored("assistant: long arguments"),
    stored("assistant: settings"),
    stored("assistant: provider"),
    stored("assistant: model"),
    stored("assistant: facts"),
    Channel { name: "assistant: sidecar", medium: Medium::Store, holds: Holds::KnownOnly },
    stored("tool_started: key"),
    stored("tool_started: rule"),
    stored("tool_result: output"),
    stored("tool_result: whole output"),
    stored("tool_result: path"),
    stored("tool_result: old path"),
    stored("tool_result: path that is put back"),
    stored("tool_result: path that is not put back"),
    stored("tool_result: media type of an image"),
    stored("tool_result: structured value"),
    stored("placed: URI"),
    stored("placed: tree"),
    stored("observed: path"),
    stored("observed: tree"),
    stored("memory: URI"),
    stored("memory: fact"),
    stored("memory: question"),
    stored("memory: notice"),
    stored("memory: entry"),
    stored("memory: entry text"),
    stored("memory: entry that is committed"),
    stored("memory: entry that is forgotten"),
    stored("compressed: summary"),
    stored("selected: route name"),
    stored("selected: route description"),
    stored("selected: reply"),
    stored("selected: choice"),
    stored("checked: command"),
    stored("checked: output"),
    stored("checked: input"),
    stored("forked: branch name"),
    stored("merged: path"),
    stored("merged: path of a conflict"),
    stored("merged: kind of a conflict"),
    stored("merged: version in a conflict"),
    stored("restored: changed path"),
    stored("decided: path"),
    stored("decided: changed path"),
    stored("retry: error"),
    stored("interrupted: reason"),
    stored("interrupted: answer"),
    stored("failed: answer"),
    stored("asked: reason"),
    stored("asked: rule"),
    stored("approved: person"),
    stored("approved: rule"),
    stored("denied: words"),
    stored("denied: person"),
    stored("denied: rule"),
    stored("failed: kind"),
    stored("failed: message"),
    stored("resumed: difference"),
    stored("adopted: person"),
    stored("note: text"),
    stored("kind of a newer version"),
    stored("module of a step"),
    // A conversation with a server.
    shown("text, letter by letter"),
    shown("text, in pieces"),
    shown("reasoning, in pieces"),
    shown("id of a streamed call"),
    shown("tool of a streamed call"),
    shown("arguments, in pieces"),
    shown("error of a server, tried again"),
    Channel { name: "error of a server", medium: Medium::Errors, holds: Holds::Text },
    file_name("header of an answer"),
    shown("agent name"),
    shown("report of a tool, in two pieces"),
    stored("output of a tool"),
    stored("long output of a tool"),
    stored("error of a tool"),
    stored("name of a sub-agent"),
    stored("summary of a compressor"),
    stored("reply to a selector"),
    stored("fact of an agent"),
    stored("name of an aside"),
    Channel { name: "hint of an error", medium: Medium::Errors, holds: Holds::Text },
    Channel { name: "cause of an error", medium: Medium::Errors, holds: Holds::Text },
    Channel { name: "export", medium: Medium::Exports, holds: Holds::Text },
    // Files and commands.
    file_name("new file"),
    file_name("new directory"),
    file_name("renamed file"),
    file_name("deleted file"),
    file_name("new link"),
    file_name("file that others made"),
    file_name("conflicting file"),
    file_content("target of a link"),
    file_content("content of a file before a call"),
    file_content("content of a file after a call"),
    file_content("content of a conflict"),
    file_content("content of a resolution"),
    stored("stdout"),
    stored("stdout, in two writes"),
    stored("stdout, long"),
    stored("stderr"),
    stored("output of a check"),
];
