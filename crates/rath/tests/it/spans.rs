//! Spans of runs, as a subscriber of `tracing` gets them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use expect_test::{Expect, expect};
use rath::prelude::*;
use rath::secrets::AddOutcome;
use serde_json::json;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

use crate::support::script;

/// Count the words in a text.
#[tool(read_only)]
async fn word_count(
    /// The text.
    text: String,
) -> usize {
    text.split_whitespace().count()
}

/// Fails always.
#[tool]
async fn send() -> Result<String> {
    Err(Error::new(ErrorKind::Tool, "no one listens at sk-very-secret-value"))
}

#[derive(Module)]
struct Office {
    writer: Agent,
    critic: Agent,
}

impl Workflow for Office {
    async fn forward(&self, session: Session) -> Result<Session> {
        let session = self.writer.run(session).await?;
        self.critic.run(session).await
    }
}

fn call(name: &str, arguments: serde_json::Value) -> String {
    json!({"calls": [{"name": name, "arguments": arguments}]}).to_string()
}

fn office() -> Office {
    let helper =
        Agent::new("You help.", &script([call("word_count", json!({"text": "to be"})), r#"{"text": "Two."}"#.into()]));
    let writer =
        script([call("help", json!({"task": "Count."})), call("send", json!({})), r#"{"text": "Done."}"#.to_owned()]);
    let critic = script([
        r#"{"error": {"status": 503, "message": "the model rests"}}"#,
        r#"{"error": {"status": 400, "message": "the model knows sk-very-secret-value"}}"#,
    ]);
    Office {
        writer: Agent::new("You write.", &writer).delegate("help", helper.tool(word_count)).tool(send),
        critic: Agent::new("You correct.", &critic),
    }
}

#[test]
fn runs_model_calls_and_tool_calls_are_spans_below_each_other() {
    check(
        &[("rath", Level::INFO)],
        &expect![[r#"
        invoke_workflow office
          - error.type: refused
          - gen_ai.conversation.id: ..
          - gen_ai.operation.name: invoke_workflow
          - gen_ai.workflow.name: office
          - otel.status_code: ERROR
          - otel.status_description: the model knows [secret KEY] (400)
          - rath.module: office
          invoke_agent writer
            - gen_ai.agent.name: writer
            - gen_ai.conversation.id: ..
            - gen_ai.operation.name: invoke_agent
            - rath.module: office.writer
            chat script
              - gen_ai.conversation.id: ..
              - gen_ai.operation.name: chat
              - gen_ai.provider.name: script
              - gen_ai.request.model: script
              - gen_ai.usage.input_tokens: 160
              - gen_ai.usage.output_tokens: 6
              - otel.kind: client
              - rath.finish: tool_call
              - rath.module: office.writer
              - rath.request.digest: ..
              - rath.step: ..
            execute_tool help
              - gen_ai.conversation.id: ..
              - gen_ai.operation.name: execute_tool
              - gen_ai.tool.call.id: call_1_1
              - gen_ai.tool.name: help
              - gen_ai.tool.type: function
              - rath.module: office.writer
              invoke_agent help
                - gen_ai.agent.name: help
                - gen_ai.conversation.id: ..
                - gen_ai.operation.name: invoke_agent
                - rath.module: office.writer.help
                chat script
                  - gen_ai.conversation.id: ..
                  - gen_ai.operation.name: chat
                  - gen_ai.provider.name: script
                  - gen_ai.request.model: script
                  - gen_ai.usage.input_tokens: 103
                  - gen_ai.usage.output_tokens: 7
                  - otel.kind: client
                  - rath.finish: tool_call
                  - rath.module: office.writer.help
                  - rath.request.digest: ..
                  - rath.step: ..
                execute_tool word_count
                  - gen_ai.conversation.id: ..
                  - gen_ai.operation.name: execute_tool
                  - gen_ai.tool.call.id: call_1_1
                  - gen_ai.tool.name: word_count
                  - gen_ai.tool.type: function
                  - rath.module: office.writer.help
                chat script
                  - gen_ai.conversation.id: ..
                  - gen_ai.operation.name: chat
                  - gen_ai.provider.name: script
                  - gen_ai.request.model: script
                  - gen_ai.usage.input_tokens: 156
                  - gen_ai.usage.output_tokens: 1
                  - otel.kind: client
                  - rath.finish: stop
                  - rath.module: office.writer.help
                  - rath.request.digest: ..
                  - rath.step: ..
            chat script
              - gen_ai.conversation.id: ..
              - gen_ai.operation.name: chat
              - gen_ai.provider.name: script
              - gen_ai.request.model: script
              - gen_ai.usage.input_tokens: 212
              - gen_ai.usage.output_tokens: 2
              - otel.kind: client
              - rath.finish: tool_call
              - rath.module: office.writer
              - rath.request.digest: ..
              - rath.step: ..
            execute_tool send
              - error.type: failed
              - gen_ai.conversation.id: ..
              - gen_ai.operation.name: execute_tool
              - gen_ai.tool.call.id: call_2_1
              - gen_ai.tool.name: send
              - gen_ai.tool.type: function
              - otel.status_code: ERROR
              - rath.module: office.writer
            chat script
              - gen_ai.conversation.id: ..
              - gen_ai.operation.name: chat
              - gen_ai.provider.name: script
              - gen_ai.request.model: script
              - gen_ai.usage.input_tokens: 268
              - gen_ai.usage.output_tokens: 2
              - otel.kind: client
              - rath.finish: stop
              - rath.module: office.writer
              - rath.request.digest: ..
              - rath.step: ..
          invoke_agent critic
            - error.type: refused
            - gen_ai.agent.name: critic
            - gen_ai.conversation.id: ..
            - gen_ai.operation.name: invoke_agent
            - otel.status_code: ERROR
            - otel.status_description: the model knows [secret KEY] (400)
            - rath.module: office.critic
            chat script
              - error.type: refused
              - gen_ai.conversation.id: ..
              - gen_ai.operation.name: chat
              - gen_ai.provider.name: script
              - gen_ai.request.model: script
              - otel.kind: client
              - otel.status_code: ERROR
              - otel.status_description: the model knows [secret KEY] (400)
              - rath.module: office.critic
              - rath.request.digest: ..
              event retry
                - attempt: 1
                - attempts: 4
                - reason: the model rests (503)
    "#]],
    );
}

#[test]
fn what_was_said_is_in_spans_only_if_it_is_asked_for() {
    check(
        &[("rath", Level::INFO), ("rath::content", Level::DEBUG)],
        &expect![[r#"
        invoke_workflow office
          - error.type: refused
          - gen_ai.conversation.id: ..
          - gen_ai.operation.name: invoke_workflow
          - gen_ai.workflow.name: office
          - otel.status_code: ERROR
          - otel.status_description: the model knows [secret KEY] (400)
          - rath.module: office
          invoke_agent writer
            - gen_ai.agent.name: writer
            - gen_ai.conversation.id: ..
            - gen_ai.operation.name: invoke_agent
            - rath.module: office.writer
            chat script
              - gen_ai.conversation.id: ..
              - gen_ai.input.messages: [{"parts":[{"content":"Write to [secret KEY].","type":"text"}],"role":"user"}]
              - gen_ai.operation.name: chat
              - gen_ai.output.messages: [{"finish_reason":"tool_call","parts":[{"arguments":{"task":"Count."},"id":"call_1_1","name":"help","type":"tool_call"}],"role":"assistant"}]
              - gen_ai.provider.name: script
              - gen_ai.request.model: script
              - gen_ai.system_instructions: [{"content":"You write.","type":"text"}]
              - gen_ai.usage.input_tokens: 160
              - gen_ai.usage.output_tokens: 6
              - otel.kind: client
              - rath.finish: tool_call
              - rath.module: office.writer
              - rath.request.digest: ..
              - rath.step: ..
            execute_tool help
              - gen_ai.conversation.id: ..
              - gen_ai.operation.name: execute_tool
              - gen_ai.tool.call.arguments: {"task":"Count."}
              - gen_ai.tool.call.id: call_1_1
              - gen_ai.tool.call.result: Two.
              - gen_ai.tool.name: help
              - gen_ai.tool.type: function
              - rath.module: office.writer
              invoke_agent help
                - gen_ai.agent.name: help
                - gen_ai.conversation.id: ..
                - gen_ai.operation.name: invoke_agent
                - rath.module: office.writer.help
                chat script
                  - gen_ai.conversation.id: ..
                  - gen_ai.input.messages: [{"parts":[{"content":"Count.","type":"text"}],"role":"user"}]
                  - gen_ai.operation.name: chat
                  - gen_ai.output.messages: [{"finish_reason":"tool_call","parts":[{"arguments":{"text":"to be"},"id":"call_1_1","name":"word_count","type":"tool_call"}],"role":"assistant"}]
                  - gen_ai.provider.name: script
                  - gen_ai.request.model: script
                  - gen_ai.system_instructions: [{"content":"You help.","type":"text"}]
                  - gen_ai.usage.input_tokens: 103
                  - gen_ai.usage.output_tokens: 7
                  - otel.kind: client
                  - rath.finish: tool_call
                  - rath.module: office.writer.help
                  - rath.request.digest: ..
                  - rath.step: ..
                execute_tool word_count
                  - gen_ai.conversation.id: ..
                  - gen_ai.operation.name: execute_tool
                  - gen_ai.tool.call.arguments: {"text":"to be"}
                  - gen_ai.tool.call.id: call_1_1
                  - gen_ai.tool.call.result: 2
                  - gen_ai.tool.name: word_count
                  - gen_ai.tool.type: function
                  - rath.module: office.writer.help
                chat script
                  - gen_ai.conversation.id: ..
                  - gen_ai.input.messages: [{"parts":[{"content":"Count.","type":"text"}],"role":"user"},{"parts":[{"arguments":{"text":"to be"},"id":"call_1_1","name":"word_count","type":"tool_call"}],"role":"assistant"},{"parts":[{"id":"call_1_1","response":"2","type":"tool_call_response"}],"role":"tool"}]
                  - gen_ai.operation.name: chat
                  - gen_ai.output.messages: [{"finish_reason":"stop","parts":[{"content":"Two.","type":"text"}],"role":"assistant"}]
                  - gen_ai.provider.name: script
                  - gen_ai.request.model: script
                  - gen_ai.system_instructions: [{"content":"You help.","type":"text"}]
                  - gen_ai.usage.input_tokens: 156
                  - gen_ai.usage.output_tokens: 1
                  - otel.kind: client
                  - rath.finish: stop
                  - rath.module: office.writer.help
                  - rath.request.digest: ..
                  - rath.step: ..
            chat script
              - gen_ai.conversation.id: ..
              - gen_ai.input.messages: [{"parts":[{"content":"Write to [secret KEY].","type":"text"}],"role":"user"},{"parts":[{"arguments":{"task":"Count."},"id":"call_1_1","name":"help","type":"tool_call"}],"role":"assistant"},{"parts":[{"id":"call_1_1","response":"Two.","type":"tool_call_response"}],"role":"tool"}]
              - gen_ai.operation.name: chat
              - gen_ai.output.messages: [{"finish_reason":"tool_call","parts":[{"arguments":{},"id":"call_2_1","name":"send","type":"tool_call"}],"role":"assistant"}]
              - gen_ai.provider.name: script
              - gen_ai.request.model: script
              - gen_ai.system_instructions: [{"content":"You write.","type":"text"}]
              - gen_ai.usage.input_tokens: 212
              - gen_ai.usage.output_tokens: 2
              - otel.kind: client
              - rath.finish: tool_call
              - rath.module: office.writer
              - rath.request.digest: ..
              - rath.step: ..
            execute_tool send
              - error.type: failed
              - gen_ai.conversation.id: ..
              - gen_ai.operation.name: execute_tool
              - gen_ai.tool.call.arguments: {}
              - gen_ai.tool.call.id: call_2_1
              - gen_ai.tool.call.result: failed: no one listens at [secret KEY]
              - gen_ai.tool.name: send
              - gen_ai.tool.type: function
              - otel.status_code: ERROR
              - rath.module: office.writer
            chat script
              - gen_ai.conversation.id: ..
              - gen_ai.input.messages: [{"parts":[{"content":"Write to [secret KEY].","type":"text"}],"role":"user"},{"parts":[{"arguments":{"task":"Count."},"id":"call_1_1","name":"help","type":"tool_call"}],"role":"assistant"},{"parts":[{"id":"call_1_1","response":"Two.","type":"tool_call_response"}],"role":"tool"},{"parts":[{"arguments":{},"id":"call_2_1","name":"send","type":"tool_call"}],"role":"assistant"},{"parts":[{"id":"call_2_1","response":"failed: no one listens at [secret KEY]","type":"tool_call_response"}],"role":"tool"}]
              - gen_ai.operation.name: chat
              - gen_ai.output.messages: [{"finish_reason":"stop","parts":[{"content":"Done.","type":"text"}],"role":"assistant"}]
              - gen_ai.provider.name: script
              - gen_ai.request.model: script
              - gen_ai.system_instructions: [{"content":"You write.","type":"text"}]
              - gen_ai.usage.input_tokens: 268
              - gen_ai.usage.output_tokens: 2
              - otel.kind: client
              - rath.finish: stop
              - rath.module: office.writer
              - rath.request.digest: ..
              - rath.step: ..
          invoke_agent critic
            - error.type: refused
            - gen_ai.agent.name: critic
            - gen_ai.conversation.id: ..
            - gen_ai.operation.name: invoke_agent
            - otel.status_code: ERROR
            - otel.status_description: the model knows [secret KEY] (400)
            - rath.module: office.critic
            chat script
              - error.type: refused
              - gen_ai.conversation.id: ..
              - gen_ai.input.messages: [{"parts":[{"content":"Write to [secret KEY].","type":"text"}],"role":"user"},{"parts":[{"arguments":{"task":"Count."},"id":"call_1_1","name":"help","type":"tool_call"}],"role":"assistant"},{"parts":[{"id":"call_1_1","response":"Two.","type":"tool_call_response"}],"role":"tool"},{"parts":[{"arguments":{},"id":"call_2_1","name":"send","type":"tool_call"}],"role":"assistant"},{"parts":[{"id":"call_2_1","response":"failed: no one listens at [secret KEY]","type":"tool_call_response"}],"role":"tool"},{"parts":[{"content":"Done.","type":"text"}],"role":"assistant"}]
              - gen_ai.operation.name: chat
              - gen_ai.provider.name: script
              - gen_ai.request.model: script
              - gen_ai.system_instructions: [{"content":"You correct.","type":"text"}]
              - otel.kind: client
              - otel.status_code: ERROR
              - otel.status_description: the model knows [secret KEY] (400)
              - rath.module: office.critic
              - rath.request.digest: ..
              event retry
                - attempt: 1
                - attempts: 4
                - reason: the model rests (503)
    "#]],
    );
}

#[test]
fn nothing_is_traced_that_is_not_asked_for() {
    check(&[("rath", Level::ERROR)], &expect![""]);
}

#[track_caller]
fn check(targets: &[(&str, Level)], expected: &Expect) {
    let spans = Spans::default();
    let targets = targets.iter().fold(Targets::new(), |all, (target, level)| all.with_target(*target, *level));
    let subscriber = tracing_subscriber::registry().with(targets).with(spans.clone());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    tracing::subscriber::with_default(subscriber, || {
        let mut secrets = Secrets::default();
        assert_eq!(secrets.add("KEY", "sk-very-secret-value"), AddOutcome::Added);
        let session = Session::user("Write to sk-very-secret-value.").hiding(secrets);
        runtime.block_on(async { office().run(session).await }).expect_err("the critic's model fails")
    });
    let drawn = spans.draw();
    assert!(!drawn.contains("sk-very"), "{drawn}");
    expected.assert_eq(&drawn);
}

/// The spans that were made, each with its parent.
#[derive(Clone, Default)]
struct Spans(Arc<Mutex<Vec<Spanned>>>);

struct Spanned {
    id: u64,
    parent: Option<u64>,
    is_open: bool,
    fields: Fields,
}

#[derive(Clone, Default)]
struct Fields(BTreeMap<&'static str, String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Spans {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        let parent = context.span(id).and_then(|span| Some(span.parent()?.id().into_u64()));
        self.0.lock().expect("no panic").push(Spanned { id: id.into_u64(), parent, is_open: true, fields });
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, _: Context<'_, S>) {
        let mut spans = self.0.lock().expect("no panic");
        let span = spans.iter_mut().rfind(|span| span.id == id.into_u64()).expect("a span");
        values.record(&mut span.fields);
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let name = fields.0.remove("message").unwrap_or_default();
        fields.0.insert("otel.name", format!("event {name}"));
        let parent = context.event_span(event).map(|span| span.id().into_u64());
        self.0.lock().expect("no panic").push(Spanned { id: 0, parent, is_open: false, fields });
    }

    fn on_close(&self, id: Id, _: Context<'_, S>) {
        let mut spans = self.0.lock().expect("no panic");
        spans.iter_mut().rfind(|span| span.id == id.into_u64()).expect("a span").is_open = false;
    }
}

impl Spans {
    /// Draws the spans as a tree, with their attributes. Ids are replaced by their lengths.
    fn draw(&self) -> String {
        let spans = self.0.lock().expect("no panic");
        let mut out = String::new();
        draw_below(&mut out, &spans, None, 0);
        out
    }
}

fn draw_below(out: &mut String, spans: &[Spanned], parent: Option<u64>, depth: usize) {
    for span in spans.iter().filter(|span| span.parent == parent) {
        assert!(!span.is_open, "the span ends");
        let mut fields = span.fields.0.clone();
        let indent = "  ".repeat(depth);
        out.push_str(&format!("{indent}{}\n", fields.remove("otel.name").expect("a name")));
        for (name, value) in fields {
            let is_id = ["gen_ai.conversation.id", "rath.step", "rath.request.digest"].contains(&name);
            let value = if is_id { "..".to_owned() } else { value };
            out.push_str(&format!("{indent}  - {name}: {value}\n"));
        }
        if span.id != 0 {
            draw_below(out, spans, Some(span.id), depth + 1);
        }
    }
}
