//! Benchmarks of rendering requests and assembling answers: `cargo xtask bench`.

use std::hint::black_box;
use std::sync::Arc;

use rath::Text;
use rath::chunk::{Call, Identity};
use rath::prelude::*;
use rath::provider::{
    Answer, Assembler, DeltaSink, ProviderBackend, ProviderError, ProviderErrorKind, Request, Settings, Shape,
};
use rath_bench::{self as table, Counting, Table};
use serde::Serialize;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() {
    let mut table = Table::default();
    let shapes = [
        ("chat", Shape::Chat, chat_stream()),
        ("messages", Shape::Messages, messages_stream()),
        ("responses", Shape::Responses, responses_stream()),
        ("gemini", Shape::Gemini, gemini_stream()),
    ];
    for (name, shape, _) in &shapes {
        requests(&mut table, name, *shape);
    }
    for (name, shape, stream) in shapes {
        answers(&mut table, name, shape, &stream);
    }
    table.print();
}

/// Measures the request of a new turn in a session of 10,000 messages, with its digest, against a copy of its bytes and
/// against writing all its messages.
fn requests(table: &mut Table, name: &str, shape: Shape) {
    let provider = Provider::new(UnusedBackend::new(shape));
    let mut session = conversation(10_000);
    let mut request = provider.request(&session).expect("it can be rendered");
    let messages = plain(&session);

    let turn = |session: &mut Session, request: &mut Request| {
        session.push(Chunk::user("And what does the next file say about it?"));
        *request = provider.request(session).expect("it can be rendered");
    };
    let bytes = request.body().to_vec();
    let (made, copied) =
        table::medians(101, || turn(&mut session, &mut request), || _ = black_box(black_box(&bytes).to_vec()));
    table.at_most(
        &format!("{name}: request of a new turn after 10,000 messages against a copy of its bytes"),
        made.as_secs_f64() / copied.as_secs_f64(),
        5.0,
    );
    let (made, anew) = table::medians(
        101,
        || turn(&mut session, &mut request),
        || _ = black_box(serde_json::to_vec(black_box(&messages)).expect("they are JSON")),
    );
    table.at_least(
        &format!("{name}: writing 10,000 messages anew with serde_json against that"),
        anew.as_secs_f64() / made.as_secs_f64(),
        5.0,
    );
}

/// Measures assembling a streamed answer, in pieces of a usual size, against 200 MB a second.
fn answers(table: &mut Table, name: &str, shape: Shape, stream: &[u8]) {
    let assemble = || {
        let mut assembler = Assembler::new(shape);
        let mut seen = 0;
        for bytes in stream.chunks(16 << 10) {
            let fed = assembler.feed(bytes, &mut |delta| {
                if let Delta::Text(text) = delta {
                    seen += text.len();
                }
            });
            fed.expect("it is a stream");
        }
        let answer = assembler.finish(&mut |_| {}).expect("it is whole");
        assert_eq!(answer.text.len(), seen);
        black_box(answer);
    };
    let mut times: Vec<_> = (0..11).map(|_| table::time(assemble)).collect();
    times.sort();
    let assembled = times[times.len() / 2];
    let rate = stream.len() as f64 / 1e6 / assembled.as_secs_f64();
    table.at_least(&format!("{name}: taking in a streamed answer against 200 MB a second"), rate / 200.0, 1.0);
}

fn conversation(messages: usize) -> Session {
    let mut session = Session::system("You read files and say what is in them. Be brief, and quote what matters.");
    for nth in 0..messages / 4 {
        session.push(Chunk::user(format!("What does file {nth} say about \"lineage\", and is it the same as before?")));
        let id = format!("call_{nth}");
        session.push(Chunk::calls([Call::new(&*id, "read", format!(r#"{{"path":"src/file_{nth}.rs"}}"#))]));
        session.push(Chunk::result(
            &*id,
            format!("//! File {nth}.\n\nfn lineage() -> usize {{\n    {nth}\n}}\n").repeat(4),
        ));
        session.push(Chunk::assistant(format!(
            "It says that lineage is a number, {nth}, which is new. The rest is as it was."
        )));
    }
    session.push(Chunk::user("Thanks."));
    session
}

#[derive(Serialize)]
struct Plain {
    role: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<PlainCall>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<String>,
}

#[derive(Serialize)]
struct PlainCall {
    id: String,
    r#type: &'static str,
    name: String,
    arguments: String,
}

/// Returns the messages as plain structs, as a program without this renderer would keep them.
fn plain(session: &Session) -> Vec<Plain> {
    let plain = |role, content: &Text| Plain {
        role,
        content: content.as_str().map(str::to_owned),
        tool_calls: vec![],
        tool_call_id: None,
    };
    let messages = session.chunks().filter_map(|chunk| match chunk {
        Chunk::Instructions(instructions) => Some(plain("system", &instructions.text)),
        Chunk::User(user) => Some(plain("user", &user.text)),
        Chunk::Assistant(answer) => {
            let calls = answer.calls.iter().map(|call| PlainCall {
                id: call.id.to_string(),
                r#type: "function",
                name: call.tool.to_string(),
                arguments: call.arguments.to_string(),
            });
            Some(Plain { tool_calls: calls.collect(), ..plain("assistant", &answer.text) })
        }
        Chunk::ToolResult(result) => {
            Some(Plain { tool_call_id: Some(result.call.to_string()), ..plain("tool", &result.output) })
        }
        _ => None,
    });
    messages.collect()
}

/// Returns a stream in OpenAI's format, one word in each piece.
fn chat_stream() -> Vec<u8> {
    let mut stream = String::new();
    for nth in 0..80_000 {
        let word = [" the", " lineage", " of", " a", " session", ",", " \\\"quoted\\\"", " 你好", ".\\n"][nth % 9];
        stream.push_str(&format!(
            "data: {{\"id\":\"chatcmpl-B9MHDbslfkBeAs8l4bebGdFOJ6PeG\",\"object\":\"chat.completion.chunk\",\
             \"created\":1741570283,\"model\":\"gpt-4o-2024-08-06\",\"service_tier\":\"default\",\
             \"system_fingerprint\":\"fp_fc9f1d7035\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{word}\"}},\
             \"logprobs\":null,\"finish_reason\":null}}],\"usage\":null}}\n\n"
        ));
    }
    stream.push_str("data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n");
    stream.into_bytes()
}

/// Returns a stream in Anthropic's format.
fn messages_stream() -> Vec<u8> {
    let mut stream = String::from(
        "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_1\",\"model\":\"claude\",\
         \"usage\":{\"input_tokens\":9}}}\n\nevent: content_block_start\ndata: {\"type\":\"content_block_start\",\
         \"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n",
    );
    for nth in 0..80_000 {
        let words = [" the lineage of", " a session,", " \\\"quoted\\\" and", " 你好, said", " somebody.\\n"][nth % 5];
        stream.push_str(&format!(
            "event: content_block_delta\ndata: {{\"type\":\"content_block_delta\",\"index\":0,\
             \"delta\":{{\"type\":\"text_delta\",\"text\":\"{words}\"}}}}\n\n"
        ));
    }
    stream.push_str(
        "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\
         \"usage\":{\"output_tokens\":9}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
    );
    stream.into_bytes()
}

fn responses_stream() -> Vec<u8> {
    let event = |kind: &str, rest: &str| format!("event: {kind}\ndata: {{\"type\":\"{kind}\",{rest}}}\n\n");
    let item = r#""output_index":0,"item":{"id":"msg_1","type":"message","role":"assistant","content":[]}"#;
    let mut stream = event("response.output_item.added", item);
    for nth in 0..80_000 {
        let words = [" the lineage of", " a session,", " \\\"quoted\\\" and", " 你好, said", " somebody.\\n"][nth % 5];
        let delta = format!(
            r#""item_id":"msg_1","output_index":0,"content_index":0,"delta":"{words}","sequence_number":{nth},"logprobs":[]"#
        );
        stream.push_str(&event("response.output_text.delta", &delta));
    }
    let usage = r#""response":{"status":"completed","output":[],"usage":{"input_tokens":9,"output_tokens":9}}"#;
    stream.push_str(&event("response.completed", usage));
    stream.into_bytes()
}

/// Returns a stream in Gemini's format, which counts the tokens with every piece.
fn gemini_stream() -> Vec<u8> {
    let mut stream = String::new();
    for nth in 0..80_000 {
        let words = [" the lineage of", " a session,", " \\\"quoted\\\" and", " 你好, said", " somebody.\\n"][nth % 5];
        let finish = if nth == 79_999 { "\"finishReason\":\"STOP\"," } else { "" };
        stream.push_str(&format!(
            "data: {{\"candidates\":[{{\"content\":{{\"parts\":[{{\"text\":\"{words}\"}}],\"role\":\"model\"}},{finish}\
             \"index\":0}}],\"usageMetadata\":{{\"promptTokenCount\":9,\"candidatesTokenCount\":{nth},\
             \"totalTokenCount\":{},\"promptTokensDetails\":[{{\"modality\":\"TEXT\",\"tokenCount\":9}}]}},\
             \"modelVersion\":\"gemini-3-flash-preview\",\"responseId\":\"bOUaaYDsLMbs7M8Pj6mx4AQ\"}}\r\n\r\n",
            nth + 9
        ));
    }
    stream.into_bytes()
}

/// A backend that is never asked.
struct UnusedBackend {
    identity: Identity,
    settings: Arc<Settings>,
}

impl UnusedBackend {
    fn new(shape: Shape) -> Self {
        let identity = Identity { provider: "nobody".to_owned(), model: "none".to_owned() };
        UnusedBackend { identity, settings: Arc::new(Settings::new(shape)) }
    }
}

impl ProviderBackend for UnusedBackend {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn settings(&self) -> &Arc<Settings> {
        &self.settings
    }

    async fn send(&self, _: &Request, _: &mut DeltaSink<'_>) -> Result<Answer, ProviderError> {
        Err(ProviderError::new(ProviderErrorKind::Refused, "this backend cannot be asked"))
    }
}
