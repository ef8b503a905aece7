//! The mode of permissions that a session was in.

use std::collections::HashSet;

use rath::prelude::*;
use rath::record::Step;
use rath::record::chunk::Strategy;

/// The beginning of the name of a mode, in decisions and in the note that a run begins with.
const MODE_PREFIX: &str = "mode ";

/// Returns the note with which a run in a mode begins.
pub(crate) fn mode_note(mode: Mode) -> Chunk {
    Chunk::note(format!("{MODE_PREFIX}{}", mode.name()))
}

/// Returns the mode that a session was in last: that of its last run, or of its last call that a mode decided about. A merge is in the
/// stricter mode of both sides.
pub(crate) fn last_mode(session: &Session) -> Option<Mode> {
    let (mut strictest, mut seen) = (None, HashSet::new());
    let mut lines: Vec<&Step> = session.head().into_iter().collect();
    while let Some(step) = lines.pop() {
        if !seen.insert(step.id()) {
            continue;
        }
        match mode_of(step.chunk()) {
            Some(mode) => strictest = strictest.into_iter().chain([mode]).min(),
            None => {
                let is_aside = matches!(step.chunk(), Chunk::Merged(merged) if merged.strategy == Strategy::Aside);
                let parents = step.parents().iter().take(if is_aside { 1 } else { 2 });
                lines.extend(parents.filter_map(rath::record::Parent::step));
            }
        }
    }
    strictest
}

/// Returns the mode that a step names.
fn mode_of(chunk: &Chunk) -> Option<Mode> {
    let mode = match chunk {
        Chunk::ToolStarted(started) => started.rule.as_deref(),
        Chunk::Denied(denied) => denied.rule.as_deref(),
        Chunk::Asked(asked) => asked.rule.as_deref(),
        Chunk::Note(note) => note.text.as_str(),
        _ => None,
    };
    mode?.strip_prefix(MODE_PREFIX)?.parse().ok()
}
