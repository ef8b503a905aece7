//! One attempt of a model call: what is set aside for it, what arrives, and the step that records its end.

use std::collections::HashSet;

use rath_record::chunk::{Call, Chunk, Failed, Identity, Interrupted, Retry};
use rath_record::{CallId, StepId, Text, Usage};

use super::super::{Error, EventKind, Result, Session, StopReason, within_limits};
use crate::budget::{CallEstimate, InputEstimate, OutputRange, Reservation};
use crate::provider::{Answer, Delta, Provider, Request, RequestTarget, estimate_tokens};

/// Tokens are pieces of text: none is shorter than a byte, and requests are estimated by four bytes for each.
const MAX_TOKENS_PER_ESTIMATED: u64 = 4;
/// The tokens around new messages that an estimate from an earlier count may leave out.
const MAX_MARKUP_TOKENS: u64 = 1_000;

impl Provider {
    /// Sets aside what a request may use, if the session has a budget, and limits the answer to that.
    pub(super) async fn within_budget(
        &self,
        session: &mut Session,
        request: Request,
    ) -> Result<(Request, Option<Reservation>)> {
        let Some((budget, depth)) = session.budget_and_depth() else { return Ok((request, None)) };
        let limit = self.output_limit();
        let call = CallEstimate {
            identity: &request.identity,
            input: self.input_estimate(session, &request),
            output: OutputRange { least: limit.least.min(limit.most), most: limit.most },
            depth,
            prices: self.price_list(),
        };
        let reserved = within_limits(session, budget.reserve(&call)).await;
        let reserved = reserved.and_then(|reserved| reserved.map_err(StopReason::Budget));
        let reservation = reserved.map_err(|stopped| stopped.record(session))?;
        let lowered = reservation.max_output.filter(|tokens| *tokens < limit.most || !limit.is_in_force);
        let Some(tokens) = lowered else { return Ok((request, Some(reservation))) };
        let settings = self.settings_with_output_limit(tokens);
        let mut limited = session.render(RequestTarget { identity: self.identity(), settings: &settings })?;
        limited.rejected_keys = request.rejected_keys;
        Ok((limited, Some(reservation)))
    }

    fn input_estimate(&self, session: &Session, request: &Request) -> InputEstimate {
        let at_most = request.tokens.saturating_mul(MAX_TOKENS_PER_ESTIMATED);
        let Some((counted, bytes_since)) = self.counted_tokens(session) else {
            return InputEstimate { expected: request.tokens, at_most };
        };
        let at_most = at_most.min(counted.saturating_add(bytes_since).saturating_add(MAX_MARKUP_TOKENS));
        let expected = counted.saturating_add(estimate_tokens(bytes_since)).min(at_most);
        InputEstimate { expected, at_most }
    }
}

/// An attempt under way. Dropping it counts what has arrived, and gives the rest of its reservation back.
pub(super) struct Attempt {
    reservation: Option<Reservation>,
    /// The estimated number of tokens that were sent.
    input: u64,
    /// The text that has arrived.
    text: String,
    /// The bytes of everything that has arrived.
    bytes: u64,
    /// The usage that the provider reported so far.
    reported: Option<Usage>,
    provider: Identity,
}

impl Attempt {
    pub(super) fn new(request: &Request, reservation: Option<Reservation>) -> Self {
        let provider = request.identity.clone();
        Attempt { reservation, input: request.tokens, text: String::new(), bytes: 0, reported: None, provider }
    }

    /// Notes a piece of the answer.
    pub(super) fn note(&mut self, delta: &Delta<'_>) {
        match delta {
            Delta::Text(text) => {
                self.text.push_str(text);
                self.bytes += text.len() as u64;
            }
            Delta::Reasoning(text) => self.bytes += text.len() as u64,
            Delta::Call { arguments, tool, .. } => self.bytes += arguments.len().max(tool.len().min(4)) as u64,
            Delta::Usage(usage) => self.reported = Some(*usage),
            _ => return,
        }
        let used = self.usage();
        if let (Some(reservation), Some(used)) = (&mut self.reservation, used) {
            reservation.note(used);
        }
    }

    /// Returns the usage of an attempt that ends without an answer.
    ///
    /// The provider's report counts, and the pieces that arrived after it. Without a report nothing is known to have been used
    /// if nothing arrived; otherwise the input was read, and the pieces were written.
    fn usage(&self) -> Option<Usage> {
        let pieces = estimate_tokens(self.bytes);
        match self.reported {
            Some(reported) => Some(Usage { output: reported.output.max(pieces), ..reported }),
            None => (self.bytes > 0).then(|| Usage::new(self.input, pieces)),
        }
    }

    /// Appends the answer.
    pub(super) fn push_answer(self, session: &mut Session, request: Request, mut answer: Answer) {
        // Two ids may be equal once the secrets in them are hidden.
        for call in &mut answer.calls {
            session.secrets().hide(&call.id.0).into_iter().for_each(|id| call.id = CallId::from(id.as_str()));
        }
        make_call_ids_unique(&mut answer.calls);
        let usage = answer.usage_or_estimate(&request);
        let step = session.push_with_usage(answer.into_chunk(request), usage);
        if let Some(reservation) = self.reservation {
            reservation.commit(step, usage);
            emit_budget(session);
        }
    }

    /// Appends that the attempt failed and that another follows.
    pub(super) fn push_retry(self, session: &mut Session, retry: Retry) {
        self.push_end(session, |provider| retry.with_provider(provider).into());
    }

    /// Appends that the attempt failed, and what had arrived of an answer.
    pub(super) fn push_failure(self, session: &mut Session, failed: Failed) {
        let partial = self.partial(session);
        self.push_end(session, |provider| failed.with_partial(partial).with_provider(provider).into());
    }

    /// Appends that the attempt was stopped, and what had arrived of an answer. Returns the error.
    pub(super) fn push_stop(self, session: &mut Session, stopped: StopReason) -> Error {
        stopped.record_with(session, |session, interrupted: Interrupted| {
            let partial = self.partial(session);
            self.push_end(session, |provider| interrupted.with_partial(partial).with_provider(provider).into());
        })
    }

    /// Appends the end of an attempt without an answer, with the usage that counts.
    fn push_end(self, session: &mut Session, chunk: impl FnOnce(Option<Identity>) -> Chunk) {
        let step: StepId = match self.usage() {
            Some(usage) => session.push_with_usage(chunk(Some(self.provider)), usage),
            None => session.push(chunk(None)),
        };
        if let Some(reservation) = self.reservation {
            reservation.commit_attempt(step);
        }
    }

    /// Returns the part of an answer that can be recorded: what may be the beginning of a secret is left out.
    fn partial(&self, session: &Session) -> Option<Text> {
        Some(session.secrets().stream().push(&self.text)).filter(|text| !text.is_empty()).map(Text::from)
    }
}

fn emit_budget(session: &Session) {
    if let Some(budget) = session.budget() {
        let (tokens, turns, limits) = (budget.spent_tokens(), budget.spent_turns(), budget.limits());
        session.emit(|| EventKind::Budget { tokens, turns, limits });
    }
}

/// Renames calls whose id occurs earlier in the same answer, which some servers send: a decision about a call names it by
/// its id.
fn make_call_ids_unique(calls: &mut [Call]) {
    if calls.len() < 2 {
        return;
    }
    let mut ids = HashSet::with_capacity(calls.len());
    for call in calls {
        let id = call.id.clone();
        for nth in 2.. {
            if ids.insert(call.id.clone()) {
                break;
            }
            call.id = CallId::from(format!("{id}_{nth}").as_str());
        }
    }
}
