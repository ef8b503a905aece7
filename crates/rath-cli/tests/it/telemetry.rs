//! Traces that the program sends to a server.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Output;
use std::sync::{Arc, Mutex};

use expect_test::{Expect, expect};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::{Span, span::SpanKind, status::StatusCode};
use prost::Message;

use crate::fixture::Fixture;

const SCRIPT: &str = r#"{"calls": [{"name": "shell", "arguments": {"command": "exit 3"}}], "usage": {"input": 7, "output": 5}}
{"text": "It fails.", "usage": {"input": 20, "output": 4}}
"#;

#[test]
fn a_run_is_sent_as_spans_and_what_was_said_only_if_asked_for() {
    let fixture = Fixture::in_folder(crate::workshop(SCRIPT), "sqlite:.rath/s.db");
    let server = TraceServer::start("200 OK");
    let output = run(&fixture, &[("OTEL_EXPORTER_OTLP_ENDPOINT", &server.url)]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "It fails.\n");
    expect![[r#"
        invoke_agent agent
          - gen_ai.agent.name: agent
          - gen_ai.conversation.id: ..
          - gen_ai.operation.name: invoke_agent
          - rath.module: agent
          chat script (client)
            - gen_ai.conversation.id: ..
            - gen_ai.operation.name: chat
            - gen_ai.provider.name: script
            - gen_ai.request.model: script
            - gen_ai.usage.input_tokens: 7
            - gen_ai.usage.output_tokens: 5
            - rath.finish: tool_call
            - rath.module: agent
            - rath.request.digest: ..
            - rath.step: ..
          execute_tool shell: error
            - error.type: failed
            - gen_ai.conversation.id: ..
            - gen_ai.operation.name: execute_tool
            - gen_ai.tool.call.id: call_1_1
            - gen_ai.tool.name: shell
            - gen_ai.tool.type: function
            - rath.module: agent
          chat script (client)
            - gen_ai.conversation.id: ..
            - gen_ai.operation.name: chat
            - gen_ai.provider.name: script
            - gen_ai.request.model: script
            - gen_ai.usage.input_tokens: 20
            - gen_ai.usage.output_tokens: 4
            - rath.finish: stop
            - rath.module: agent
            - rath.request.digest: ..
            - rath.step: ..
    "#]]
    .assert_eq(&server.draw());

    let server = TraceServer::start("200 OK");
    let content = ("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "true");
    run(&fixture, &[("OTEL_EXPORTER_OTLP_ENDPOINT", &server.url), content]);
    let drawn = server.draw();
    for said in ["Try it.", "exit 3", "It fails."] {
        assert!(drawn.contains(said), "{said} is not in\n{drawn}");
    }
}

#[test]
fn a_run_does_not_fail_because_of_its_traces() {
    let fixture = Fixture::in_folder(crate::workshop(SCRIPT), "sqlite:.rath/s.db");
    let server = TraceServer::start("403 Forbidden");
    let closed = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
    let closed = format!("http://ann:geheim-wort-1@{closed}");
    let endpoint = "OTEL_EXPORTER_OTLP_ENDPOINT";
    let rows: [(&[(&str, &str)], Expect); 7] = [
        (&[], expect![""]),
        (&[(endpoint, "")], expect![""]),
        (&[(endpoint, &server.url), ("OTEL_SDK_DISABLED", "true")], expect![""]),
        (
            &[(endpoint, &server.url)],
            expect![[r#"
            warning: traces were not sent to http://127.0.0.1:PORT: HTTP export failed with status code: 403
        "#]],
        ),
        (
            &[(endpoint, &closed)],
            expect![[r#"
            warning: traces were not sent to http://127.0.0.1:PORT: HTTP export failed: network error
        "#]],
        ),
        (
            &[(endpoint, "http://ann:geheim-wort-1@[nowhere")],
            expect![[r#"
            warning: no traces are sent to http://[nowhere: invalid exporter configuration: OTEL_EXPORTER_OTLP_ENDPOINT: invalid endpoint 'http://[nowhere': invalid authority
        "#]],
        ),
        (
            &[(endpoint, &closed), ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")],
            expect![[r#"
            warning: no traces are sent to http://127.0.0.1:PORT: the protocol grpc is not supported; use http/protobuf, at port 4318 of most servers
        "#]],
        ),
    ];
    for (variables, expected) in rows {
        let output = run(&fixture, variables);
        assert_eq!(String::from_utf8_lossy(&output.stdout), "It fails.\n");
        let printed = String::from_utf8_lossy(&output.stderr);
        assert!(!printed.contains("geheim"), "{printed}");
        let warnings = printed.lines().filter(|line| line.contains("trace")).map(|line| format!("{line}\n"));
        expected.assert_eq(&without_ports(&warnings.collect::<String>()));
    }
}

/// Runs the scripted model with these variables, and no other of OpenTelemetry.
fn run(fixture: &Fixture, variables: &[(&str, &str)]) -> Output {
    let mut command = fixture.command(&["run", "Try it.", "--sandbox", "local:work", "--model", "script:script.jsonl"]);
    let set = std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("OTEL_"));
    set.for_each(|(name, _)| _ = command.env_remove(name));
    let output = command.envs(variables.iter().copied()).output().expect("rath runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output
}

/// Replaces the ports of a text.
fn without_ports(text: &str) -> String {
    let mut parts = text.split("127.0.0.1:");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |all, part| {
        format!("{all}127.0.0.1:PORT{}", part.trim_start_matches(|c: char| c.is_ascii_digit()))
    })
}

/// A server on loopback that keeps the spans that it is sent.
struct TraceServer {
    url: String,
    spans: Arc<Mutex<Vec<Span>>>,
}

impl TraceServer {
    /// Starts a server that answers every request with this status.
    fn start(status: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let spans = Arc::<Mutex<Vec<Span>>>::default();
        let kept = spans.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let Some(request) = receive(stream, status) else { continue };
                let all = request.resource_spans.into_iter().flat_map(|resource| resource.scope_spans);
                kept.lock().expect("no panic").extend(all.flat_map(|scope| scope.spans));
            }
        });
        TraceServer { url, spans }
    }

    /// Draws the spans as a tree, with their attributes. Ids are left out.
    fn draw(&self) -> String {
        let mut spans = self.spans.lock().expect("no panic").clone();
        spans.sort_by_key(|span| span.start_time_unix_nano);
        let mut out = String::new();
        draw_below(&mut out, &spans, &[], 0);
        out
    }
}

fn draw_below(out: &mut String, spans: &[Span], parent: &[u8], depth: usize) {
    for span in spans.iter().filter(|span| span.parent_span_id == parent) {
        assert!(span.end_time_unix_nano >= span.start_time_unix_nano, "the span ends");
        let indent = "  ".repeat(depth);
        let kind = if span.kind() == SpanKind::Client { " (client)" } else { "" };
        let is_error = span.status.as_ref().is_some_and(|status| status.code() == StatusCode::Error);
        let error = if is_error { ": error" } else { "" };
        out.push_str(&format!("{indent}{}{kind}{error}\n", span.name));
        let mut attributes: Vec<_> = span.attributes.iter().collect();
        attributes.sort_by(|a, b| a.key.cmp(&b.key));
        for attribute in attributes {
            let value = match attribute.value.as_ref().and_then(|value| value.value.as_ref()) {
                _ if ["gen_ai.conversation.id", "rath.step", "rath.request.digest"].contains(&&*attribute.key) => {
                    "..".to_owned()
                }
                Some(Value::StringValue(text)) => text.clone(),
                Some(Value::IntValue(number)) => number.to_string(),
                other => format!("{other:?}"),
            };
            out.push_str(&format!("{indent}  - {}: {value}\n", attribute.key));
        }
        draw_below(out, spans, &span.span_id, depth + 1);
    }
}

/// Reads one request and answers it.
fn receive(mut stream: TcpStream, status: &str) -> Option<ExportTraceServiceRequest> {
    let (mut received, mut buffer) = (Vec::new(), [0; 4096]);
    let request = loop {
        let end = received.windows(4).position(|bytes| bytes == b"\r\n\r\n").map(|at| at + 4);
        let head = String::from_utf8_lossy(&received[..end.unwrap_or_default()]).to_ascii_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
        if let (Some(end), Some(length)) = (end, length)
            && received.len() >= end + length
        {
            assert!(head.starts_with("post /v1/traces "), "{head}");
            break ExportTraceServiceRequest::decode(&received[end..end + length]).expect("spans");
        }
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => return None,
            Ok(bytes) => received.extend_from_slice(&buffer[..bytes]),
        }
    };
    let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    stream.write_all(answer.as_bytes()).ok()?;
    Some(request)
}
