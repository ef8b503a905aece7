//! The tools of an agent during a run: its own, and those that its sources list.

use std::sync::Arc;

use rath_record::chunk::{Chunk, Instructions, ToolSpec};
use rath_record::view;

use super::Agent;
use crate::session::{Replay, Result, Session, within_limits};
use crate::tool::{
    ErasedSource, READ_OUTPUT, ReadOutput, RecordedTool, TOOLS_NOTE, ToolHandle, add_listed, describe_changes,
    is_added_by_update, is_update,
};

/// The tools of an agent at one time of a run.
pub(super) struct ListedTools {
    /// The agent's own tools, then those of its sources.
    tools: Vec<ToolHandle>,
    has_read_output: bool,
    /// The notes of the last listing, which are not recorded again.
    notes: Vec<String>,
    /// True once the sources were asked.
    is_listed: bool,
}

impl ListedTools {
    /// Begins with the agent's own tools.
    pub(super) fn new(own: &[ToolHandle], has_read_output: bool) -> Self {
        ListedTools { tools: own.to_vec(), has_read_output, notes: Vec::new(), is_listed: false }
    }

    /// Returns the agent's own tools and those that its sources listed last, without asking them.
    pub(super) fn last(own: &[ToolHandle], sources: &[Arc<dyn ErasedSource>]) -> Vec<ToolHandle> {
        let mut tools = own.to_vec();
        for source in sources {
            add_listed(&mut tools, source.last_listed());
        }
        tools
    }

    /// Returns the tools in the order in which a model is told of them.
    pub(super) fn tools(&self) -> Vec<ToolHandle> {
        let read_output = self.has_read_output.then(|| ToolHandle::new(ReadOutput));
        self.tools.iter().cloned().chain(read_output).collect()
    }

    /// Adds the tool that reads the rest of an output. Returns false if it is there already.
    pub(super) fn add_read_output(&mut self) -> bool {
        !std::mem::replace(&mut self.has_read_output, true)
    }

    /// Asks the sources for their tools, and records its notes and the changes. Returns true if the tools are others than before.
    pub(super) async fn update(&mut self, agent: &Agent, session: &mut Session) -> Result<bool> {
        if agent.sources.is_empty() {
            return Ok(false);
        }
        let (mut tools, mut notes) = (agent.tools.clone(), Vec::new());
        match session.replaying().cloned() {
            Some(replay) => add_recorded(&mut tools, agent, session, &replay),
            None => {
                let listings = futures_util::future::join_all(agent.sources.iter().map(|source| source.list()));
                // Where a limit ends the wait, the model is not asked, and that is recorded.
                let Ok(listings) = within_limits(session, listings).await else { return Ok(false) };
                for listing in listings {
                    notes.extend(listing.notes);
                    notes.extend(add_listed(&mut tools, listing.tools));
                }
            }
        }
        for note in notes.iter().filter(|note| !self.notes.contains(note)) {
            session.push(Chunk::note(format!("{TOOLS_NOTE}{note}")));
        }
        self.notes = notes;
        let changes = describe_changes(&self.tools, &tools);
        if self.is_listed && session.replaying().is_none() {
            changes.iter().for_each(|changes| _ = session.push(Chunk::note(format!("{TOOLS_NOTE}{changes}"))));
        }
        // The order alone may have changed, which changes the request too.
        let is_other = !self.tools.iter().map(ToolHandle::spec).eq(tools.iter().map(ToolHandle::spec));
        (self.tools, self.is_listed) = (tools, true);
        Ok(is_other)
    }
}

/// Adds the tools that the sources listed in the recorded run, after the notes that it took about them.
fn add_recorded(tools: &mut Vec<ToolHandle>, agent: &Agent, session: &mut Session, replay: &Replay) {
    let is_note = |chunk: &Chunk| match chunk {
        Chunk::Note(note) => note.text.as_str().is_some_and(|text| text.starts_with(TOOLS_NOTE)),
        _ => false,
    };
    while let Some(note) = replay.next_like(session, is_note) {
        session.append_recorded(&note);
    }
    let next = replay.next_like(session, |chunk| matches!(chunk, Chunk::Instructions(_)));
    let known = match next.as_ref().map(|step| step.chunk()) {
        Some(Chunk::Instructions(instructions)) => Some(instructions),
        _ => view::instructions(session.as_record()).map(|(_, instructions)| instructions),
    };
    let recorded = known.iter().flat_map(|instructions| &instructions.tools);
    let from_sources =
        recorded.filter(|spec| spec.name != READ_OUTPUT && agent.sources.iter().any(|source| source.owns(&spec.name)));
    let added: Vec<_> = from_sources
        .filter(|spec| agent.tools.iter().all(|tool| tool.name() != spec.name))
        .map(|spec| ToolHandle::new(RecordedTool(spec.clone())))
        .collect();
    tools.extend(added);
}

/// Returns instructions with the tools of the recorded run, if this is a replay of one in which an earlier version of rath told a model
/// of its built-in tools: calls in that form are still understood.
pub(super) fn as_recorded(instructions: Instructions, session: &Session) -> Instructions {
    let Some(replay) = session.replaying() else { return instructions };
    let next = replay.next_like(session, |chunk| matches!(chunk, Chunk::Instructions(_)));
    let recorded = match next.as_ref().map(|step| step.chunk()) {
        Some(Chunk::Instructions(recorded)) => recorded,
        _ => match view::instructions(session.as_record()) {
            Some((_, recorded)) => recorded,
            None => return instructions,
        },
    };
    let find = |name: &str| recorded.tools.iter().find(|then| then.name == name);
    let is_same = |now: &ToolSpec| match find(&now.name) {
        Some(then) => then == now || is_update(then, now),
        None => is_added_by_update(now, &recorded.tools),
    };
    let names = |tools: &[ToolSpec]| tools.iter().map(|tool| tool.name.clone()).collect::<Vec<_>>();
    let known: Vec<_> = instructions.tools.iter().filter(|now| find(&now.name).is_some()).cloned().collect();
    match instructions.tools.iter().all(is_same) && names(&known) == names(&recorded.tools) {
        true => instructions.with_tools(recorded.tools.clone()),
        false => instructions,
    }
}
