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
fn every_text_is_rewritten_names_and_ids_too() {
    let spec = ToolSpec::new("x", "an x", json(r#"{"x":1}"#));
    check(
        Instructions::new("be x").with_tools(vec![spec]),
        expect![[
            r#"{"kind":"instructions","text":"be *","tools":[{"name":"*","description":"an *","parameters":{"*":1}}]}"#
        ]],
    );
    let answer = Assistant::new("a")
        .with_calls(vec![Call::new("x", "x", r#"{"x":"x"}"#)])
        .with_finish(Finish::Calls)
        .with_settings(json(r#"{"shape":"x"}"#))
        .with_facts(json(r#"["x"]"#))
        .with_sidecar(json(r#""s""#));
    check(
        answer.clone(),
        expect![[
            r#"{"kind":"assistant","text":"a","calls":[{"id":"*","tool":"*","arguments":"{\"*\":\"*\"}"}],"finish":"calls","settings":{"shape":"*"},"facts":["*"],"sidecar":"s"}"#
        ]],
    );
    check(Assistant::default().with_sidecar(json(r#""x""#)), expect![[r#"{"kind":"assistant","finish":"stop"}"#]]);
    check(
        Assistant::default().with_reasoning("x").with_sidecar(json(r#""s""#)),
        expect![[r#"{"kind":"assistant","reasoning":"*","finish":"stop"}"#]],
    );
    let effect = Effect::new("x", Change::Created);
    check(
        ToolResult::new("x", Outcome::Ok, "x").with_whole(Text::from("xx")).with_effects(vec![effect]),
        expect![[
            r#"{"kind":"tool_result","call":"*","outcome":"ok","output":"*","whole":"**","effects":[{"path":"*","change":"created"}]}"#
        ]],
    );
    let mut found = vec![RecalledEntry::new("x", "x")];
    (found[0].said_by, found[0].session, found[0].steps) = (Some("x".into()), Some("x".into()), vec!["x".into()]);
    check(
        Memory::new(
            "x:",
            MemoryEvent::Recall { query: "x".into(), found, position: Some(1), notice: Some("x".to_owned()) },
        ),
        expect![[
            r#"{"kind":"memory","memory":"*:","event":{"recall":{"query":"*","found":[{"entry":"*","text":"*","said_by":"*","session":"*","steps":["*"]}],"position":1,"notice":"*"}}}"#
        ]],
    );
    check(Forked::new(1).with_name("x".to_owned()), expect![[r#"{"kind":"forked","nth":1,"name":"*"}"#]]);
    check(Failed::new("x", "x"), expect![[r#"{"kind":"failed","error":"*","message":"*"}"#]]);
    check(
        Chunk::decode(r#"{"kind":"newer","text":"x"}"#).expect("a chunk"),
        expect![[r#"{"kind":"newer","te*t":"*"}"#]],
    );
}

#[test]
fn a_rewritten_text_that_is_no_json_becomes_a_string() {
    let mut chunk = Chunk::from(Assistant::default().with_facts(json(r#"{"n":12}"#)));
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
