//! `tracing` spans of runs, model calls and tool calls.
//!
//! Names and attributes follow OpenTelemetry's conventions for generative AI. Without a subscriber a span costs a comparison. What was
//! said becomes an attribute only if the subscriber enables the target [`CONTENT`] at the level DEBUG. Secrets are hidden in either case.

mod content;

use rath_record::Text;
use rath_record::chunk::{Call, Chunk, Finish, Outcome};
use serde_json::{Value, json};
use tracing::field::Empty;
use tracing::{Level, Span, enabled, info_span, warn};

use super::{Error, Result, Session};
use crate::error::ErrorKind;
use crate::provider::Request;

/// The target that a subscriber enables to get what was said.
const CONTENT: &str = "rath::content";

/// Returns the span of a run of a module that the session was just handed to. `outer` is the path of the module that runs it.
pub(crate) fn run_span(session: &Session, outer: Option<&str>, is_agent: bool) -> Span {
    // An attribute is worth computing only if a subscriber listens.
    if !enabled!(target: "rath", Level::INFO) {
        return Span::none();
    }
    let path = hidden(session, session.module().unwrap_or_default());
    let name = outer.and_then(|outer| path.strip_prefix(outer)?.strip_prefix('.')).unwrap_or(&path);
    let operation = if is_agent { "invoke_agent" } else { "invoke_workflow" };
    let span = info_span!(
        target: "rath",
        "run",
        "otel.name" = %format_args!("{operation} {name}"),
        "otel.status_code" = Empty,
        "otel.status_description" = Empty,
        "error.type" = Empty,
        "gen_ai.operation.name" = operation,
        "gen_ai.conversation.id" = %session.id(),
        "gen_ai.agent.name" = Empty,
        "gen_ai.workflow.name" = Empty,
        "rath.module" = %path,
    );
    span.record(if is_agent { "gen_ai.agent.name" } else { "gen_ai.workflow.name" }, name);
    span
}

/// Records the end of a run.
pub(crate) fn record_run(span: &Span, result: &Result<Session>) {
    if let Err(error) = result {
        record_error(span, error);
    }
}

/// Returns the span of a model call.
pub(super) fn model_span(session: &Session, request: &Request) -> Span {
    if !enabled!(target: "rath", Level::INFO) {
        return Span::none();
    }
    let model = hidden(session, &request.identity.model);
    let span = info_span!(
        target: "rath",
        "model call",
        "otel.name" = %format_args!("chat {model}"),
        "otel.kind" = "client",
        "otel.status_code" = Empty,
        "otel.status_description" = Empty,
        "error.type" = Empty,
        "gen_ai.operation.name" = "chat",
        "gen_ai.conversation.id" = %session.id(),
        "gen_ai.provider.name" = %hidden(session, &request.identity.provider),
        "gen_ai.request.model" = %model,
        "gen_ai.response.id" = Empty,
        "gen_ai.response.model" = Empty,
        "gen_ai.usage.input_tokens" = Empty,
        "gen_ai.usage.output_tokens" = Empty,
        "gen_ai.usage.cache_read.input_tokens" = Empty,
        "gen_ai.usage.cache_creation.input_tokens" = Empty,
        "gen_ai.usage.reasoning.output_tokens" = Empty,
        "gen_ai.system_instructions" = Empty,
        "gen_ai.input.messages" = Empty,
        "gen_ai.output.messages" = Empty,
        "rath.module" = session.module().map(|path| hidden(session, path)),
        "rath.request.digest" = %request.digest,
        "rath.finish" = Empty,
        "rath.step" = Empty,
    );
    if content_is_wanted() {
        let messages = session.messages();
        if let Some((_, instructions)) = messages.instructions {
            span.record("gen_ai.system_instructions", hidden(session, &content::instructions(&instructions.text)));
        }
        span.record("gen_ai.input.messages", hidden(session, &content::conversation(&messages.list)));
    }
    span
}

/// Records the end of a model call. An answer is the newest step of the session.
pub(super) fn record_answer(span: &Span, session: &Session, result: &Result<()>) {
    if span.is_disabled() {
        return;
    }
    if let Err(error) = result {
        return record_error(span, error);
    }
    let Some(step) = session.head() else { return };
    let Chunk::Assistant(answer) = step.chunk() else { return };
    let facts = answer.facts.as_ref().and_then(|facts| serde_json::from_str::<Value>(facts.as_str()).ok());
    for (fact, attribute) in [("id", "gen_ai.response.id"), ("model", "gen_ai.response.model")] {
        span.record(attribute, facts.as_ref().and_then(|facts| facts.get(fact)?.as_str()));
    }
    if let Some(usage) = step.stamp().usage {
        let counts = [
            ("gen_ai.usage.input_tokens", Some(usage.input)),
            ("gen_ai.usage.output_tokens", Some(usage.output)),
            ("gen_ai.usage.cache_read.input_tokens", Some(usage.cached_read).filter(|count| *count > 0)),
            ("gen_ai.usage.cache_creation.input_tokens", Some(usage.cache_write).filter(|count| *count > 0)),
            ("gen_ai.usage.reasoning.output_tokens", Some(usage.reasoning).filter(|count| *count > 0)),
        ];
        counts.into_iter().for_each(|(attribute, count)| _ = span.record(attribute, count));
    }
    span.record("rath.finish", finish_name(answer.finish));
    span.record("rath.step", step.id().to_string().as_str());
    if content_is_wanted() {
        span.record("gen_ai.output.messages", hidden(session, &content::answer(answer)));
    }
}

/// Emits that an attempt of a model call failed and that another follows, within the span of the call.
pub(super) fn retry_event(session: &Session, attempt: u32, attempts: u32, error: &str) {
    warn!(target: "rath", attempt, attempts, reason = hidden(session, error), "retry");
}

/// Returns the span of a tool call that starts.
pub(crate) fn tool_span(session: &Session, call: &Call) -> Span {
    if !enabled!(target: "rath", Level::INFO) {
        return Span::none();
    }
    let tool = hidden(session, &call.tool);
    let span = info_span!(
        target: "rath",
        "tool call",
        "otel.name" = %format_args!("execute_tool {tool}"),
        "otel.status_code" = Empty,
        "otel.status_description" = Empty,
        "error.type" = Empty,
        "gen_ai.operation.name" = "execute_tool",
        "gen_ai.conversation.id" = %session.id(),
        "gen_ai.tool.name" = %tool,
        "gen_ai.tool.type" = "function",
        "gen_ai.tool.call.id" = %call.id,
        "gen_ai.tool.call.arguments" = Empty,
        "gen_ai.tool.call.result" = Empty,
        "rath.module" = session.module().map(|path| hidden(session, path)),
    );
    if content_is_wanted() {
        span.record("gen_ai.tool.call.arguments", hidden(session, call.arguments.as_str().unwrap_or_default()));
    }
    span
}

/// Records the end of a tool call. `shown` returns what the model is shown of the output.
pub(crate) fn record_call(span: &Span, outcome: Outcome, shown: impl FnOnce() -> Text) {
    if span.is_disabled() {
        return;
    }
    if outcome != Outcome::Ok {
        span.record("error.type", json!(outcome).as_str());
        span.record("otel.status_code", "ERROR");
    }
    if content_is_wanted() {
        span.record("gen_ai.tool.call.result", shown().as_str());
    }
}

fn record_error(span: &Span, error: &Error) {
    if span.is_disabled() {
        return;
    }
    span.record("error.type", error.kind().name());
    // A call that waits for a person has not failed.
    if error.kind() != ErrorKind::Approval {
        span.record("otel.status_code", "ERROR");
        // Only a session knows the secrets that a message may have.
        span.record("otel.status_description", error.session().map(|session| hidden(session, &error.message())));
    }
}

fn content_is_wanted() -> bool {
    enabled!(target: CONTENT, Level::DEBUG)
}

fn hidden(session: &Session, text: &str) -> String {
    session.secrets().hide(text).unwrap_or_else(|| text.to_owned())
}

fn finish_name(finish: Finish) -> &'static str {
    match finish {
        Finish::Calls => "tool_call",
        Finish::Length => "length",
        Finish::Filtered => "content_filter",
        _ => "stop",
    }
}
