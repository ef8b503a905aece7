//! Rewriting the texts of chunks.

use expect_test::{Expect, expect};
use rath_record::chunk::*;
use rath_record::{Chunk, Text};

/// Replaces every `x`, and compares the chunk's JSON.
#[track_caller]
fn check(chunk: impl Into<Chunk>, expected: Expect) {
    let mut chunk = chunk.into();
    let before = chunk.clone();
    chunk.rewrite_texts(|_, _| None);
    assert_eq!(chunk, before, "nothing changes where there are no other words");
    chunk.rewrite_texts(|_, text| text.contains('x').then(|| text.replace('x', "*")));
    let mut json = Vec::new();
    chunk.encode(&mut json);
    expected.assert_eq(&String::from_utf8(json).expect("JSON is UTF-8"));
}

fn json(text: &str) -> Json {
    Json::parse(text).expect("it is JSON")
}

#[test]
fn texts_are_rewritten_and_names_stay() {
    let spec = ToolSpec::new("x", "an x", json(r#"{"x":1}"#));
    check(
        Instructions { text: "be x".into(), tools: vec![spec], provider: None },
        expect![[
            r#"{"kind":"instructions","text":"be *","tools":[{"name":"x","description":"an *","parameters":{"*":1}}]}"#
        ]],
    );
    let answer = Assistant {
        text: "a".into(),
        calls: vec![Call::new("x", "x", r#"{"x":"x"}"#)],
        finish: Finish::Calls,
        settings: Some(json(r#"{"shape":"x"}"#)),
        facts: Some(json(r#"["x"]"#)),
        sidecar: Some(json(r#""s""#)),
        ..Assistant::default()
    };
    check(
        answer.clone(),
        expect![[
            r#"{"kind":"assistant","text":"a","calls":[{"id":"x","tool":"x","arguments":"{\"*\":\"*\"}"}],"finish":"calls","settings":{"shape":"*"},"facts":["*"],"sidecar":"s"}"#
        ]],
    );
    check(
        Assistant { sidecar: Some(json(r#""x""#)), ..Assistant::default() },
        expect![[r#"{"kind":"assistant","finish":"stop"}"#]],
    );
    check(
        Assistant { reasoning: "x".into(), sidecar: Some(json(r#""s""#)), ..Assistant::default() },
        expect![[r#"{"kind":"assistant","reasoning":"*","finish":"stop"}"#]],
    );
    let effect = Effect { path: "x".to_owned(), change: Change::Created, before: None, after: None, unkept: None };
    check(
        ToolResult { whole: Some("xx".into()), effects: vec![effect], ..ToolResult::new("x", Outcome::Ok, "x") },
        expect![[
            r#"{"kind":"tool_result","call":"x","outcome":"ok","output":"*","whole":"**","effects":[{"path":"x","change":"created"}]}"#
        ]],
    );
    let found = vec![RecalledEntry { entry: "x".to_owned(), text: "x".into() }];
    check(
        Memory { memory: "x:".to_owned(), event: MemoryEvent::Recall { query: "x".into(), found } },
        expect![[
            r#"{"kind":"memory","memory":"x:","event":{"recall":{"query":"*","found":[{"entry":"x","text":"*"}]}}}"#
        ]],
    );
    check(
        Forked { nth: 1, from: None, name: Some("x".to_owned()) },
        expect![[r#"{"kind":"forked","nth":1,"name":"*"}"#]],
    );
    check(
        Failed { error: "x".to_owned(), message: "x".into() },
        expect![[r#"{"kind":"failed","error":"x","message":"*"}"#]],
    );
    check(
        Chunk::decode(r#"{"kind":"newer","text":"x"}"#).expect("a chunk"),
        expect![[r#"{"kind":"newer","text":"x"}"#]],
    );
}

#[test]
fn a_rewritten_text_that_is_no_json_becomes_a_string() {
    let mut chunk = Chunk::from(Assistant { facts: Some(json(r#"{"n":12}"#)), ..Assistant::default() });
    chunk.rewrite_texts(|_, text| text.contains("12").then(|| text.replace("12", "[two]")));
    let Chunk::Assistant(answer) = chunk else { panic!("its kind stays") };
    assert_eq!(answer.facts.expect("they stay").as_str(), r#""{\"n\":[two]}""#);
}

#[test]
fn a_missing_text_stays_missing() {
    let long = Text::from("x".repeat(20_000));
    let mut json = Vec::new();
    Chunk::note(long).encode(&mut json);
    let mut chunk = Chunk::decode(std::str::from_utf8(&json).expect("UTF-8")).expect("a chunk");
    let before = chunk.clone();
    chunk.rewrite_texts(|_, _| Some(String::new()));
    assert_eq!(chunk, before);
}
