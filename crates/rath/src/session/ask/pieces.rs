//! The pieces of an answer on their way to those who listen: without secrets, and as they arrive.

use super::super::{EventKind, Hub, Session};
use crate::provider::{Delta, DeltaSink};
use crate::secrets::{SecretStream, Secrets};

/// The callback and the listeners that get the pieces of an answer.
pub(super) struct Audience<'a> {
    sink: Option<Box<DeltaSink<'a>>>,
    /// The session when the attempt began, for events.
    pub(super) session: Session,
    hub: Hub,
}

impl<'a> Audience<'a> {
    /// Returns `None` if there is neither a callback nor a listener.
    pub(super) fn new(session: &Session, sink: Option<Box<DeltaSink<'a>>>) -> Option<Self> {
        let hub = session.hub().clone();
        (sink.is_some() || !hub.is_empty()).then(|| Audience { sink, session: session.quiet(), hub })
    }

    pub(super) fn show(&mut self, delta: Delta<'_>) {
        self.sink.iter_mut().for_each(|sink| sink(delta));
        let event = match delta {
            Delta::Text(text) => EventKind::Text(text.to_owned()),
            Delta::Reasoning(text) => EventKind::Reasoning(text.to_owned()),
            Delta::Retry { attempt, of, error, wait } => {
                EventKind::Retry { attempt, of, error: error.to_owned(), wait }
            }
            _ => return,
        };
        self.hub.emit(&self.session, || event);
    }
}

/// The pieces of an answer without secrets: a key may arrive letter by letter.
pub(super) struct HiddenPieces {
    text: SecretStream,
    reasoning: SecretStream,
    /// The arguments of each call.
    calls: Vec<CallPieces>,
    secrets: Secrets,
}

/// The arguments of a call while they arrive.
struct CallPieces {
    nth: usize,
    /// The id and the name of the tool as they arrived.
    given: (String, String),
    /// Both without secrets.
    id: String,
    tool: String,
    arguments: SecretStream,
    is_shown: bool,
}

impl HiddenPieces {
    pub(super) fn new(secrets: &Secrets) -> Self {
        HiddenPieces {
            text: secrets.stream(),
            reasoning: secrets.stream(),
            calls: Vec::new(),
            secrets: secrets.clone(),
        }
    }

    /// Passes a piece on, as far as it can be shown.
    pub(super) fn push(&mut self, delta: Delta<'_>, show: &mut dyn FnMut(Delta<'_>)) {
        match delta {
            Delta::Text(piece) => {
                show_reasoning(&self.reasoning.release_short(), show);
                show_text(&self.text.push(piece), show);
            }
            Delta::Reasoning(piece) => {
                show_text(&self.text.release_short(), show);
                show_reasoning(&self.reasoning.push(piece), show);
            }
            Delta::Call { nth, id, tool, arguments } => {
                show_text(&self.text.release_short(), show);
                show_reasoning(&self.reasoning.release_short(), show);
                let given = &self.call(nth).given;
                let is_known = given.0 == id && given.1 == tool;
                if !is_known || arguments.is_empty() {
                    let hide = |name: &str| self.secrets.hide(name).unwrap_or_else(|| name.to_owned());
                    let hidden = (hide(id), hide(tool));
                    // The name of a tool may arrive in pieces too, before the arguments.
                    let may_continue = arguments.is_empty() && self.secrets.stream().push(tool) != hidden.1;
                    let call = self.call(nth);
                    (call.id, call.tool) = hidden;
                    (call.given, call.is_shown) = ((id.to_owned(), tool.to_owned()), !may_continue);
                }
                let call = self.call(nth);
                call.is_shown |= !arguments.is_empty();
                let arguments = call.arguments.push(arguments);
                if call.is_shown {
                    show(Delta::Call { nth, id: &call.id, tool: &call.tool, arguments: &arguments });
                }
            }
            _ => {
                self.finish(show);
                show(delta);
            }
        }
    }

    /// Returns the pieces of a call, which is nearly always the newest.
    fn call(&mut self, nth: usize) -> &mut CallPieces {
        let known = self.calls.iter().rposition(|call| call.nth == nth);
        let position = known.unwrap_or_else(|| {
            let (id, tool, arguments) = (String::new(), String::new(), self.secrets.stream());
            self.calls.push(CallPieces { nth, given: Default::default(), id, tool, arguments, is_shown: false });
            self.calls.len() - 1
        });
        &mut self.calls[position]
    }

    /// Shows everything that was held back.
    pub(super) fn finish(&mut self, show: &mut dyn FnMut(Delta<'_>)) {
        show_reasoning(&self.reasoning.finish(), show);
        show_text(&self.text.finish(), show);
        for CallPieces { nth, id, tool, mut arguments, is_shown, .. } in std::mem::take(&mut self.calls) {
            let arguments = arguments.finish();
            if !arguments.is_empty() || !is_shown {
                show(Delta::Call { nth, id: &id, tool: &tool, arguments: &arguments });
            }
        }
    }
}

fn show_text(text: &str, show: &mut dyn FnMut(Delta<'_>)) {
    if !text.is_empty() {
        show(Delta::Text(text));
    }
}

fn show_reasoning(text: &str, show: &mut dyn FnMut(Delta<'_>)) {
    if !text.is_empty() {
        show(Delta::Reasoning(text));
    }
}
