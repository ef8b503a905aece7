//! An answer takes memory and time in proportion to its bytes, whatever they are.

use rath::prelude::*;
use rath::provider::Retry;
use rath_bench::cpu_time;
use rath_test_support::this_test;

use crate::server::{Reply, TestServer};
use crate::support::block_on;

/// The size of the answers.
const BYTES: usize = 4 << 20;
/// The most memory that an answer may take, as a multiple of its size. The server is in the same process, and holds it twice.
const MAX_MULTIPLE: u64 = 20;
/// The most processor time that an answer may take, in seconds. In time that grows with the square it would be hours.
const MAX_SECONDS: u64 = 15;

/// An answer by its name, the beginning of its bytes, the part that is repeated and the end.
type Case = (&'static str, Api, [&'static str; 3]);

#[derive(Clone, Copy, PartialEq)]
enum Api {
    Chat,
    ChatStream,
    Messages,
    MessagesStream,
    Gemini,
    GeminiStream,
}

use Api::{Chat, ChatStream, GeminiStream, Messages, MessagesStream};

const CASES: &[Case] = &[
    ("usage", Chat, [r#"{"choices":[{"message":{"content":"x"}}],"usage":{"a":[1"#, ",{}", "]}}"]),
    ("names in usage", Chat, [r#"{"choices":[{"message":{"content":"x"}}],"usage":{"a":1"#, r#","":1"#, "}}"]),
    ("choices", Chat, [r#"{"choices":[{}"#, ",{}", "]}"]),
    ("an unknown member", Chat, [r#"{"choices":[{"message":{"content":"x"}}],"a":[1"#, r#",{"":1}"#, "]}"]),
    ("an error", Chat, [r#"{"error":{"a":[1"#, r#",{"":1}"#, "]}}"]),
    ("an error without a name", Chat, [r#"{"message":"m","code":1,"a":[1"#, r#",{"":1}"#, "]}"]),
    ("parts", Chat, [r#"{"choices":[{"message":{"content":["x""#, r#",{"a":{}}"#, "]}}]}"]),
    ("a part", Chat, [r#"{"choices":[{"message":{"content":["x",{"a":[1"#, r#",{"":1}"#, "]}]}}]}"]),
    ("details", Chat, [r#"{"choices":[{"message":{"content":"x","reasoning_details":[1"#, ",1", "]}}]}"]),
    (
        "a detail",
        Chat,
        [r#"{"choices":[{"message":{"content":"x","reasoning_details":[{"a":[1"#, r#",{"":1}"#, "]}]}}]}"],
    ),
    ("calls", Chat, [r#"{"choices":[{"message":{"tool_calls":[{}"#, ",{}", "]}}]}"]),
    (
        "arguments that are an object",
        Chat,
        [
            r#"{"choices":[{"message":{"tool_calls":[{"function":{"name":"t","arguments":{"a":[1"#,
            r#",{"":1}"#,
            "]}}}]}}]}",
        ],
    ),
    (
        "arguments that are a string",
        Chat,
        [
            r#"{"choices":[{"message":{"tool_calls":[{"function":{"name":"t","arguments":"{\"a\":[1"#,
            r#",{\"\":1}"#,
            r#"]}"}}]}}]}"#,
        ],
    ),
    (
        "pieces of details",
        ChatStream,
        [
            "data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\n",
            "data: {\"choices\":[{\"delta\":{\"reasoning_details\":[1,2,3,4,5,6,7,8]}}]}\n\n",
            "data: [DONE]\n\n",
        ],
    ),
    (
        "pieces of a call that name its tool",
        ChatStream,
        [
            "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"function\":{\"name\":\"t\",\"arguments\":\"{\\\"a\\\":[{}\"}}]}}]}\n\n",
            "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"function\":{\"name\":\"t\",\"arguments\":\",{}\"}}]}}]}\n\n",
            "data: [DONE]\n\n",
        ],
    ),
    (
        "pieces of the name of a tool",
        ChatStream,
        [
            "",
            "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"name\":\"@\"}}]}}]}\n\n",
            "data: [DONE]\n\n",
        ],
    ),
    ("usage", Messages, [r#"{"type":"message","content":[],"usage":{"a":[1"#, r#",{"":1}"#, "]}}"]),
    ("blocks", Messages, [r#"{"type":"message","content":[1"#, ",1", "]}"]),
    ("a block", Messages, [r#"{"type":"message","content":[{"type":"x","a":[1"#, r#",{"":1}"#, "]}]}"]),
    (
        "an input",
        Messages,
        [
            r#"{"type":"message","content":[{"type":"tool_use","name":"t","input":{"a":[1"#,
            r#",{"":1}"#,
            "]}}],\"stop_reason\":\"tool_use\"}",
        ],
    ),
    ("an error", Messages, [r#"{"type":"error","error":{"a":[1"#, r#",{"":1}"#, "]}}"]),
    (
        "short blocks",
        MessagesStream,
        [
            "data: {\"type\":\"message_start\",\"message\":{}}\n\n",
            "data: {\"type\":\"content_block_start\",\"content_block\":{\"type\":\"text\",\"text\":\"x\"}}\n\n",
            "data: {\"type\":\"message_stop\"}\n\n",
        ],
    ),
    (
        "names in usage",
        MessagesStream,
        [
            "data: {\"type\":\"message_start\",\"message\":{}}\n\ndata: {\"type\":\"message_delta\",\"usage\":{\"a\":1",
            ",\"@\":1",
            "}}\n\ndata: {\"type\":\"message_stop\"}\n\n",
        ],
    ),
    ("parts", Api::Gemini, [r#"{"candidates":[{"content":{"parts":[{}"#, ",{}", "]}}]}"]),
    ("short parts", Api::Gemini, [r#"{"candidates":[{"content":{"parts":[{}"#, r#",{"text":"x","a":1}"#, "]}}]}"]),
    ("a part", Api::Gemini, [r#"{"candidates":[{"content":{"parts":[{"a":[1"#, r#",{"":1}"#, "]}]}}]}"]),
    ("members of a part", Api::Gemini, [r#"{"candidates":[{"content":{"parts":[{"text":"x""#, r#","":1"#, "}]}}]}"]),
    (
        "a member of a candidate",
        Api::Gemini,
        [r#"{"candidates":[{"a":[1"#, r#",{"":1}"#, r#"],"finishReason":"STOP"}]}"#],
    ),
    ("members of a candidate", Api::Gemini, [r#"{"candidates":[{"a":1"#, r#","@":1"#, "}]}"]),
    (
        "arguments",
        Api::Gemini,
        [
            r#"{"candidates":[{"content":{"parts":[{"functionCall":{"name":"t","args":{"a":[1"#,
            r#",{"":1}"#,
            r#"]}}}]},"finishReason":"STOP"}]}"#,
        ],
    ),
    (
        "pieces of text with signatures",
        GeminiStream,
        [
            "",
            "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"\",\"thoughtSignature\":\"a\"}]}}]}\n\n",
            "data: {\"candidates\":[{\"finishReason\":\"STOP\"}]}\n\n",
        ],
    ),
    ("members that change", GeminiStream, ["", "data: {\"a\":@}\n\n", "data: {\"candidates\":[]}\n\n"]),
];

#[test]
fn an_answer_takes_memory_and_time_in_proportion_to_its_bytes() {
    let mut failures = String::new();
    for (nth, (name, ..)) in CASES.iter().enumerate() {
        let child = this_test("hostile_answers::child", &[("RATH_CASE", &nth.to_string())]).output();
        let child = child.expect("this program starts");
        if !child.status.success() {
            failures.push_str(&format!("{nth} {name}: {}\n", String::from_utf8_lossy(&child.stderr)));
        }
    }
    assert!(failures.is_empty(), "{failures}");
}

#[test]
#[ignore = "what the test here starts"]
fn child() {
    let Ok(nth) = std::env::var("RATH_CASE") else { return };
    let (_, api, [begin, repeated, end]) = CASES[nth.parse::<usize>().expect("a number")];
    let mut body = begin.to_owned();
    for count in 0.. {
        if body.len() >= BYTES {
            break;
        }
        match repeated.split_once('@') {
            Some((before, after)) => body.push_str(&format!("{before}{count}{after}")),
            None => body.push_str(repeated),
        }
    }
    body.push_str(end);
    let is_stream = matches!(api, ChatStream | MessagesStream | GeminiStream);
    let reply = if is_stream { Reply::stream(body) } else { Reply::json(200, &body) };
    let before = peak();
    let ask = async {
        let server = TestServer::always(reply).await;
        let provider = if matches!(api, Chat | ChatStream) {
            Provider::from(OpenAi::new("m").base_url(&server.url).expect("a URL"))
        } else if matches!(api, Api::Gemini | GeminiStream) {
            Provider::from(Gemini::new("m").base_url(&server.url).expect("a URL"))
        } else {
            Provider::from(Anthropic::new("m").base_url(&server.url).expect("a URL").key("key"))
        };
        // Whether it is an answer is no matter here.
        let asked = provider.retry(Retry::never()).ask(Session::user("hi")).each(|_| {}).await;
        eprintln!("{}", asked.map_or_else(|error| error.to_string(), |_| "an answer".to_owned()));
    };
    let seconds = cpu_time(|| block_on(ask)).as_secs();
    let multiple = (peak() - before) / BYTES as u64;
    eprintln!("{multiple} times its bytes, {seconds} s");
    assert!(multiple <= MAX_MULTIPLE && seconds <= MAX_SECONDS, "too much");
}

/// Returns the most memory that this process ever had, in bytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("a process has one");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("it says so");
    line.trim().trim_end_matches("kB").trim().parse::<u64>().expect("a number") * 1024
}
