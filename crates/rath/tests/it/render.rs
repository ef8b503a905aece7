//! Random sessions, rendered for two providers with two models each.
//!
//! Every request has a shape that providers accept, begins with the request before it, and can be rebuilt from the record.
//! `RATH_CASES` sets the number of cases.

use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use proptest::strategy::Strategy;
use rath::Usage;
use rath::chunk::{
    Call, Compressed, Finish, Identity, Image, Instructions, Json, MemoryEvent, Outcome, RecalledEntry, ToolResult,
    ToolSpec,
};
use rath::prelude::*;
use rath::provider::{Answer, DeltaSink, ProviderBackend, ProviderError, Request, Settings, Shape};
use rath::record::view;
use rath::turn::Next;
use serde_json::Value;

use crate::shape::{MEMORY, OUTPUT, check_shape};
use crate::support::{block_on, now};

/// A provider of either shape that gives a preset answer.
struct PresetBackend {
    identity: Identity,
    settings: Arc<Settings>,
    answer: Arc<Mutex<Answer>>,
    sent: Arc<Mutex<Option<Request>>>,
}

impl ProviderBackend for PresetBackend {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn settings(&self) -> &Arc<Settings> {
        &self.settings
    }

    async fn send(&self, request: &Request, _: &mut DeltaSink<'_>) -> Result<Answer, ProviderError> {
        *self.sent.lock().expect("one thread") = Some(request.clone());
        Ok(self.answer.lock().expect("one thread").clone())
    }
}

/// The eight models, two of each shape, and the last request.
struct Models {
    providers: Vec<Provider>,
    answer: Arc<Mutex<Answer>>,
    sent: Arc<Mutex<Option<Request>>>,
}

impl Models {
    fn new() -> Self {
        let (answer, sent) = <(Arc<Mutex<Answer>>, Arc<Mutex<Option<Request>>>)>::default();
        let kinds = [
            ("openai", Shape::Chat),
            ("anthropic", Shape::Messages),
            ("responses", Shape::Responses),
            ("gemini", Shape::Gemini),
        ];
        let providers = kinds.iter().flat_map(|kind| [(kind, "a"), (kind, "b")]).map(|((provider, shape), model)| {
            let identity = Identity { provider: provider.to_string(), model: model.to_owned() };
            let mut settings = Settings::new(*shape);
            settings.set("thinking", serde_json::json!({ "type": "enabled" })).expect("it is an option");
            let choice = if *shape == Shape::Gemini { "toolConfig" } else { "tool_choice" };
            settings.set(choice, serde_json::json!("auto")).expect("it is an option");
            let settings = Arc::new(settings);
            Provider::new(PresetBackend { identity, settings, answer: answer.clone(), sent: sent.clone() })
        });
        Models { providers: providers.collect(), answer, sent }
    }

    /// Asks a model. Returns the session with the answer, and the request.
    fn ask(&self, model: usize, session: Session, answer: Answer) -> Result<(Session, Request)> {
        *self.answer.lock().expect("one thread") = answer;
        let session = poll_once(self.providers[model].ask(session).into_future())?;
        let sent = self.sent.lock().expect("one thread").take();
        Ok((session, sent.expect("it was asked")))
    }
}

/// Polls a future that does not wait. A runtime for each of a hundred thousand calls would be slow.
fn poll_once<T>(work: impl Future<Output = T>) -> T {
    let mut work = std::pin::pin!(work);
    match work.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop())) {
        std::task::Poll::Ready(done) => done,
        std::task::Poll::Pending => block_on(work),
    }
}

#[derive(Clone, Debug)]
enum Action {
    Say(usize, usize),
    Picture(usize),
    Recall(usize),
    Ask(usize, usize, usize),
    Results(usize, usize),
    Instruct(usize, usize),
    Compress(usize, usize),
    Fork(usize),
    Merge(usize, usize),
    Reopen(usize),
}

fn action() -> impl Strategy<Value = Action> {
    let at = 0_usize..64;
    prop_oneof![
        4 => (at.clone(), at.clone()).prop_map(|(at, text)| Action::Say(at, text)),
        1 => at.clone().prop_map(Action::Picture),
        1 => at.clone().prop_map(Action::Recall),
        8 => (at.clone(), at.clone(), at.clone()).prop_map(|(at, model, answer)| Action::Ask(at, model, answer)),
        4 => (at.clone(), at.clone()).prop_map(|(at, output)| Action::Results(at, output)),
        1 => (at.clone(), at.clone()).prop_map(|(at, which)| Action::Instruct(at, which)),
        1 => (at.clone(), at.clone()).prop_map(|(at, back)| Action::Compress(at, back)),
        2 => at.clone().prop_map(Action::Fork),
        2 => (at.clone(), at.clone()).prop_map(|(ours, theirs)| Action::Merge(ours, theirs)),
        1 => at.prop_map(Action::Reopen),
    ]
}

const TEXTS: [&str; 6] = ["hello", "", " \n", "quote \" and \\ and \u{2028}", "☀️ 你好", "{\"role\":\"system\"}"];

/// Returns valid and invalid answers of every kind.
fn answer(which: usize, shape: Shape) -> Answer {
    let call = |id: &str, tool: &str, arguments: &str| Call::new(id, tool, arguments);
    let signed = r#"{"content":[{"type":"thinking","thinking":"hm","signature":"c2ln"},{"type":"text","bytes":5},
        {"type":"tool_use"}]}"#;
    let named = r#"{"reasoning":"reasoning_content"}"#;
    let sealed = r#"{"items":[{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"c2ln"},
        {"type":"message","phase":"commentary","parts":[{"bytes":5}]},{"type":"function_call"}]}"#;
    let marked = r#"{"parts":[{"text":2,"thought":true},{"executableCode":{"code":"1"}},{"text":5,"x":1},
        {"functionCall":{"id":true},"thoughtSignature":"c2ln"},{"text":0,"thoughtSignature":"ZW5k"}]}"#;
    let sidecar = |json: &str| Json::parse(json).ok();
    let text = |text: &str| Answer { text: text.to_owned(), ..Answer::default() };
    let calls = |calls: Vec<Call>| Answer { calls, finish: Finish::Calls, ..Answer::default() };
    match which % 8 {
        0 => text("fine"),
        1 => text("  "),
        2 => calls(vec![call("call_1", "look", "{\"at\": 1}")]),
        3 => calls(vec![call("call_1", "look", ""), call("call_1", "no such tool!", "{oops"), call("", "", "[1]")]),
        4 => Answer {
            text: "hello".to_owned(),
            reasoning: "hm".to_owned(),
            calls: vec![call("toolu_1", "look", r#"{"lone": "\ud800"}"#)],
            finish: Finish::Calls,
            sidecar: sidecar(match shape {
                Shape::Chat => named,
                Shape::Messages => signed,
                Shape::Responses => sealed,
                Shape::Gemini => marked,
            }),
            ..Answer::default()
        },
        // An answer with reasoning only is empty; a sidecar that does not fit is ignored.
        5 => Answer { reasoning: "hm".to_owned(), sidecar: sidecar(signed), ..Answer::default() },
        6 => Answer { sidecar: sidecar(signed), ..text("other") },
        _ => Answer { finish: Finish::Length, ..calls(vec![call(&"x".repeat(80), &"y".repeat(80), "{\"cut\":")]) },
    }
}

fn instructions(which: usize) -> Instructions {
    let tool =
        |name: &str, parameters: &str| ToolSpec::new(name, "Looks.", Json::parse(parameters).expect("it is JSON"));
    let tools = match which % 3 {
        0 => vec![],
        1 => vec![tool("look", r#"{"type":"object","properties":{}}"#)],
        _ => vec![
            tool("look", "{}"),
            tool("look", "null"),
            tool("no good", r#"{"properties":{}}"#),
            tool("no_good", r#"{"type":["object","null"],"properties":{"a":{"type":"string"}}}"#),
            tool("no:good", r#"{"anyOf":[{"properties":{"b":{"type":"string"}},"required":["b"]}]}"#),
            tool(
                "shape",
                r##"{"oneOf":[{"$ref":"#/$defs/Circle"},{"properties":{"kind":{"const":"square"},"a":{}},
                "required":["kind","a"]}],"$defs":{"Circle":{"properties":{"kind":{"const":"circle"},"r":{}},
                "required":["kind","r"]}}}"##,
            ),
            tool("plain", r#"{"type":"object", "properties":{"c":{"anyOf":[{"type":"string"}]}}, "required":["c"]}"#),
        ],
    };
    Instructions::new(["be brief", " ", "be \"kind\""][which % 3]).with_tools(tools)
}

/// A session with the last request to each model that the next request must begin with.
#[derive(Clone)]
struct Branch {
    session: Session,
    sent: [Option<Request>; 8],
}

impl Branch {
    fn forget(&mut self) {
        self.sent = Default::default();
    }
}

fn open_calls(session: &Session) -> Vec<rath::turn::PendingCall> {
    match session.next() {
        Next::RunTools(calls) => calls,
        _ => vec![],
    }
}

fn run(actions: &[Action]) -> Result<(), TestCaseError> {
    let models = Models::new();
    let folder = rath_test_support::temp_dir();
    let mut pool = vec![Branch { session: Session::user("hi"), sent: Default::default() }];
    for action in actions {
        let size = pool.len();
        let index = |at: usize| at % size;
        match *action {
            Action::Say(at, text) => {
                pool[index(at)].session.push(Chunk::user(TEXTS[text % TEXTS.len()]));
            }
            Action::Picture(at) => {
                let image = |kind: &str| Image::new(kind, *b"dots");
                let images = vec![image("image/png"), image("image/tiff")];
                pool[index(at)].session.push(rath::chunk::User::new("").with_images(images));
            }
            Action::Recall(at) => {
                let found = vec![RecalledEntry::new("1", MEMORY)];
                let event = MemoryEvent::Recall { query: "?".into(), found, position: None, notice: None };
                pool[index(at)].session.push(rath::chunk::Memory::new("house:", event));
            }
            Action::Results(at, output) => {
                let session = &mut pool[index(at)].session;
                let calls = open_calls(session);
                for (nth, pending) in calls.iter().enumerate() {
                    // Some results are not in the order of the calls.
                    let pending = if output % 2 == 0 { pending } else { &calls[calls.len() - 1 - nth] };
                    let text = if output % 3 == 0 { "" } else { OUTPUT };
                    let image = |kind: &str| Image::new(kind, *b"dots");
                    let images = if output % 4 == 1 { vec![image("image/png"), image("image/tiff")] } else { vec![] };
                    session.push(ToolResult::new(pending.call.id.clone(), Outcome::Ok, text).with_images(images));
                }
                if output % 5 == 0 {
                    session.push(Chunk::result("no such call", OUTPUT));
                }
            }
            Action::Instruct(at, which) => {
                let branch = &mut pool[index(at)];
                branch.session.push(instructions(which));
                branch.forget();
            }
            Action::Compress(at, back) => {
                // A summary may name a step of another session.
                let elsewhere = pool[index(back)].session.head().map(|head| head.id());
                let branch = &mut pool[index(at)];
                if open_calls(&branch.session).is_empty() {
                    let steps: Vec<_> = branch.session.as_record().steps().iter().map(|step| step.id()).collect();
                    let mut hidden = steps[..back % steps.len()].to_vec();
                    hidden.extend(elsewhere);
                    branch.session.push(Compressed::new(hidden, "before"));
                    branch.forget();
                }
            }
            Action::Fork(at) => {
                let branch = &pool[index(at)];
                pool.push(Branch { session: branch.session.fork(), ..branch.clone() });
            }
            Action::Merge(ours, theirs) => {
                let (ours, theirs) = (&pool[index(ours)], &pool[index(theirs)]);
                // Steps that their side hides are hidden after the merge, which changes the beginning of the request.
                let hides = theirs.session.chunks().any(|chunk| matches!(chunk, Chunk::Compressed(_)));
                let has_instructions = ours.session.messages().instructions.is_some();
                if let Ok(session) = now(ours.session.merge(&theirs.session)) {
                    // A merge that adds nothing to their side is their side.
                    let fast_forward = session.head() == theirs.session.head();
                    let parent = if fast_forward { theirs } else { ours };
                    let mut merged = Branch { session, ..parent.clone() };
                    if !fast_forward
                        && (hides || (!has_instructions && merged.session.messages().instructions.is_some()))
                    {
                        merged.forget();
                    }
                    pool.push(merged);
                }
            }
            Action::Reopen(at) => {
                let branch = &mut pool[index(at)];
                let path = folder.path().join("session.rath");
                branch.session.save_blocking(&path).expect("it can be saved");
                branch.session = Session::open_blocking(&path).expect("it can be opened").session;
            }
            Action::Ask(at, model, which) => {
                let model = model % 8;
                let branch = &mut pool[index(at)];
                let shape = [Shape::Chat, Shape::Messages, Shape::Responses, Shape::Gemini][model / 2];
                let asked = models.ask(model, branch.session.clone(), answer(which, shape));
                let (session, sent) = match asked {
                    Ok(asked) => asked,
                    Err(error) => {
                        prop_assert_eq!(error.kind(), ErrorKind::Turn);
                        continue;
                    }
                };
                check_shape(&sent, shape)?;
                let head = session.head().expect("there is an answer").id();
                let rebuilt = session.request(head).expect("it can be rebuilt");
                prop_assert_eq!(rebuilt.body(), sent.body());
                prop_assert_eq!(&rebuilt.report, &sent.report);
                if let Some(before) = &branch.sent[model] {
                    check_begins_with(&sent, before)?;
                }
                branch.session = session;
                branch.sent[model] = Some(sent);
            }
        }
    }
    Ok(())
}

/// Checks that a request begins with the one before, up to the last message of that.
fn check_begins_with(sent: &Request, before: &Request) -> Result<(), TestCaseError> {
    let [sent, before] = [sent, before].map(|request| std::str::from_utf8(request.body()).expect("JSON is UTF-8"));
    let shared = sent.bytes().zip(before.bytes()).take_while(|(ours, theirs)| ours == theirs).count();
    let list = |json: &str| -> Vec<Value> {
        let mut request: Value = serde_json::from_str(json).expect("a request is JSON");
        let names = ["input", "messages", "contents"];
        let name = names.into_iter().find(|name| request[name].is_array()).expect("a list");
        let Value::Array(list) = request[name].take() else { panic!("a list") };
        if name != "contents" {
            return list;
        }
        // The user's last content may get further parts, so the parts are compared.
        let parts = |mut content: Value| match content["parts"].take() {
            Value::Array(parts) => parts.into_iter().map(move |part| serde_json::json!([content["role"], part])),
            _ => panic!("a content has parts"),
        };
        list.into_iter().flat_map(parts).collect()
    };
    let (ours, theirs) = (list(sent), list(before));
    prop_assert!(ours.starts_with(&theirs), "\n{}\ndoes not go on from\n{}", sent, before);
    // The bytes differ where the list of the earlier one ends.
    let (rest, earlier_rest) = (&sent[shared..], &before[shared..]);
    let is_continued = sent == before || earlier_rest.starts_with(']') && rest.starts_with(',');
    prop_assert!(is_continued, "\n{}\ndiffers too early from\n{}", rest, earlier_rest);
    Ok(())
}

proptest! {
    #![proptest_config(rath_test_support::property(500))]

    #[test]
    fn every_request_is_accepted_begins_as_before_and_can_be_rebuilt(actions in prop::collection::vec(action(), 1..40)) {
        run(&actions)?;
    }
}

#[test]
fn opaque_state_is_sent_only_to_the_model_it_came_from() {
    let models = Models::new();
    let (session, _) = models.ask(2, Session::user("look"), answer(4, Shape::Messages)).expect("it is asked");
    let mut session = session;
    session.push(Chunk::result("toolu_1", "seen"));
    let sent = |model: usize| models.providers[model].request(&session).expect("it is rendered");
    let body = |request: &Request| String::from_utf8_lossy(request.body()).into_owned();

    // The same model: the signature and the provider's id of the call are kept.
    let same = sent(2);
    assert!(body(&same).contains(r#""signature":"c2ln""#) && body(&same).contains("toolu_1"));
    assert_eq!(same.report.to_string(), "kept: 1 reasoning block, 1 call id\nrewritten: 1 argument text");
    // Another model of the same provider, which may be another server: neither is sent.
    let other_model = sent(3);
    assert!(!body(&other_model).contains("c2ln") && !body(&other_model).contains("toolu_1"));
    assert!(!body(&other_model).contains("thinking"), "reasoning cannot begin in the middle of a turn");
    assert_eq!(
        other_model.report.to_string(),
        "rewritten: 1 call id, 1 argument text\ndropped: 1 reasoning block, 1 thinking option"
    );
    // Another provider.
    let other_provider = sent(0);
    assert!(!body(&other_provider).contains("c2ln") && !body(&other_provider).contains("toolu_1"));
    assert_eq!(other_provider.report.to_string(), "rewritten: 1 call id, 1 argument text\ndropped: 1 reasoning block");
    // Asking the first model again, nothing was lost.
    let (mut session, _) = models.ask(0, session, answer(0, Shape::Chat)).expect("it is asked");
    let noted = session.chunks().any(|chunk| {
        matches!(chunk, Chunk::Note(note) if note.text.as_str().is_some_and(|text|
        text == "from anthropic:a to openai:a: rewritten: 1 call id, 1 argument text; dropped: 1 reasoning block"))
    });
    assert!(noted, "the loss is on the record");
    session.push(Chunk::user("again"));
    assert!(body(&models.providers[2].request(&session).expect("it is rendered")).contains(r#""signature":"c2ln""#));
}

#[test]
fn signatures_of_gemini_are_sent_back_where_they_were_and_to_their_model_only() {
    let models = Models::new();
    let (session, _) = models.ask(6, Session::user("look"), answer(4, Shape::Gemini)).expect("it is asked");
    let mut session = session;
    session.push(Chunk::result("toolu_1", "seen"));
    let contents = |model: usize| {
        let request = models.providers[model].request(&session).expect("it is rendered");
        let body: Value = serde_json::from_slice(request.body()).expect("JSON");
        format!("{}\n{}\n{}\n", body["contents"][1], body["contents"][2], request.report)
    };
    // The same model, another model of the same provider.
    expect_test::expect![[r#"
        {"parts":[{"executableCode":{"code":"1"}},{"text":"hello","x":1},{"functionCall":{"args":{"arguments":"{\"lone\": \"\\ud800\"}"},"id":"toolu_1","name":"look"},"thoughtSignature":"c2ln"},{"text":"","thoughtSignature":"ZW5k"}],"role":"model"}
        {"parts":[{"functionResponse":{"id":"toolu_1","name":"look","response":{"output":"seen"}}}],"role":"user"}
        kept: 1 reasoning block, 1 call id
        rewritten: 1 argument text
    "#]].assert_eq(&contents(6));
    expect_test::expect![[r#"
        {"parts":[{"text":"hello"},{"functionCall":{"args":{"arguments":"{\"lone\": \"\\ud800\"}"},"name":"look"},"thoughtSignature":"skip_thought_signature_validator"}],"role":"model"}
        {"parts":[{"functionResponse":{"name":"look","response":{"output":"seen"}}}],"role":"user"}
        rewritten: 1 argument text
        dropped: 1 reasoning block, 1 call id
    "#]]
    .assert_eq(&contents(7));
}

#[test]
fn images_of_a_tool_are_shown_where_they_can_be_and_named_elsewhere() {
    let models = Models::new();
    let mut session = Session::user("look");
    session.push(Chunk::calls([Call::new("a", "look", "{}")]));
    let images = vec![Image::new("image/png", *b"dots"), Image::new("image/tiff", *b"lines")];
    session.push(ToolResult::new("a", Outcome::Ok, "two").with_images(images));
    let sent = |model: usize| models.providers[model].request(&session).expect("it is rendered");
    let list = |request: &Request| serde_json::from_slice::<Value>(request.body()).expect("JSON")["messages"].take();
    let (chat, messages) = (sent(0), sent(2));
    assert_eq!(
        list(&messages)[2]["content"][0]["content"],
        serde_json::json!([
            {"type": "text", "text": "two"},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "ZG90cw=="}},
            {"type": "text", "text": "[an image of type image/tiff, which models do not read]"},
        ])
    );
    let items = serde_json::from_slice::<Value>(sent(4).body()).expect("JSON")["input"].take();
    assert_eq!(
        items[2]["output"],
        serde_json::json!([
            {"type": "input_text", "text": "two"},
            {"type": "input_image", "image_url": "data:image/png;base64,ZG90cw=="},
            {"type": "input_text", "text": "[an image of type image/tiff, which models do not read]"},
        ])
    );
    let contents = serde_json::from_slice::<Value>(sent(6).body()).expect("JSON")["contents"].take();
    assert_eq!(
        contents[2]["parts"],
        serde_json::json!([{"functionResponse": {
            "name": "look",
            "parts": [{"inlineData": {"mimeType": "image/png", "data": "ZG90cw=="}}],
            "response": {"output": "two\n[an image of type image/tiff, which models do not read]"},
        }}])
    );
    let lines = "two\n[image: image/png, 4 bytes, not shown to this model]\n\
                 [image: image/tiff, 5 bytes, not shown to this model]";
    assert_eq!(list(&chat)[2]["content"], lines);
    assert!(chat.report.to_string().contains("2 tool images"), "{}", chat.report);
}

#[test]
fn gemini_gets_the_images_that_it_reads_and_older_models_get_those_of_tools_beside_the_results() {
    let image = |kind: &str| Image::new(kind, *b"dots");
    let mut session = Session::empty();
    session.push(rath::chunk::User::new("see").with_images(vec![image("image/heic"), image("image/gif")]));
    session.push(Chunk::calls([Call::new("a", "look", "{}"), Call::new("b", "look", "{}")]));
    session.push(ToolResult::new("a", Outcome::Ok, "").with_images(vec![image("image/gif"), image("image/jpg")]));
    session.push(ToolResult::new("b", Outcome::Failed, "none"));
    let request = Provider::from(Gemini::new("gemini-2.5-flash")).request(&session).expect("it is rendered");
    let contents = serde_json::from_slice::<Value>(request.body()).expect("JSON")["contents"].take();
    assert_eq!(
        contents,
        serde_json::json!([
            {"role": "user", "parts": [
                {"text": "see"},
                {"inlineData": {"mimeType": "image/heic", "data": "ZG90cw=="}},
                {"text": "[an image of type image/gif, which models do not read]"},
            ]},
            {"role": "model", "parts": [
                {"functionCall": {"name": "look", "args": {}}},
                {"functionCall": {"name": "look", "args": {}}},
            ]},
            {"role": "user", "parts": [
                {"functionResponse": {
                    "name": "look",
                    "response": {"output": "[an image of type image/gif, which models do not read]"},
                }},
                {"functionResponse": {"name": "look", "response": {"error": "none"}}},
                {"inlineData": {"mimeType": "image/jpeg", "data": "ZG90cw=="}},
            ]},
        ])
    );
}

#[test]
fn a_missing_payload_is_an_error_and_not_left_out() {
    let long = "x".repeat(20_000);
    let mut session = Session::user(&*long);
    let image = Image::new("image/png", *b"dots");
    session.push(rath::chunk::User::new("see").with_images(vec![image]));
    let mut without_payloads = Session::empty();
    for chunk in session.chunks() {
        let mut json = Vec::new();
        chunk.encode(&mut json);
        without_payloads
            .push(Chunk::decode(std::str::from_utf8(&json).expect("JSON is UTF-8")).expect("it is a chunk"));
    }
    let error = Models::new().providers[0].request(&without_payloads).expect_err("a payload is missing");
    assert_eq!(error.kind(), ErrorKind::Payload);
    assert!(format!("{error:?}").contains("is missing: 20000 bytes"), "{error}");
}

#[test]
fn an_extended_view_equals_the_view_of_the_whole() {
    let mut session = Session::user("one");
    let earlier = session.as_record().clone();
    session.push(Chunk::calls([Call::new("a", "look", "{}"), Call::new("a", "look", "{}")]));
    session.push(Chunk::result("a", "seen"));
    session.push(Chunk::result("a", "seen again"));
    let (whole, start) = (session.messages(), view::messages(&earlier));
    let steps = session.as_record().steps_after(earlier.head().expect("it has one")).expect("it goes on from it");
    let (more, carry) = view::messages_after(&steps, start.continuation).expect("nothing else changes");
    assert_eq!([&start.list[..], &more].concat(), whole.list);
    assert_eq!(carry, whole.continuation);
}

#[test]
fn a_forecast_counts_the_tokens_that_were_sent_before() {
    let models = Models::new();
    let answer = Answer { text: "fine".to_owned(), usage: Some(Usage::new(2_000, 10)), ..Answer::default() };
    let long = "words ".repeat(1_500);
    for (model, cached) in [(0, 1_920), (2, 2_000)] {
        let forecast = |session: &Session| models.providers[model].forecast(session).expect("it is rendered");
        let first = Session::user(&*long);
        assert_eq!((forecast(&first).after, forecast(&first).cached_tokens), (None, 0));
        let (session, sent) = models.ask(model, first, answer.clone()).expect("it is asked");
        let mut more = session.fork();
        more.push(Chunk::user("more"));
        let next = forecast(&more);
        assert_eq!(next.after, session.head().map(|head| head.id()));
        assert_eq!((next.cached_tokens, next.shared_bytes), (cached, sent.messages_end() as u64));
        assert!(next.tokens > 2_000 && next.tokens < 2_100, "{next:?}");

        // The other side of a merge comes after ours, so the next request begins with ours.
        let mut other = session.fork();
        other.push(Chunk::user("other"));
        let (other, _) = models.ask(model, other, answer.clone()).expect("it is asked");
        let (ours, _) = models.ask(model, more, answer.clone()).expect("it is asked");
        let mut merged = now(ours.merge(&other)).expect("nothing is open");
        merged.push(Chunk::user("both"));
        assert_eq!(forecast(&merged).after, ours.head().map(|head| head.id()));

        // New instructions change the beginning, and another model has seen nothing.
        let mut instructed = session.clone();
        instructed.push(Chunk::instructions("be brief"));
        assert_eq!(forecast(&instructed).cached_tokens, 0);
        assert_eq!(models.providers[model + 1].forecast(&session).expect("it is rendered").cached_tokens, 0);
    }
}

#[test]
fn tools_keep_their_names_and_the_meaning_of_their_schemas() {
    let mut session = Session::empty();
    session.push(instructions(2));
    session.push(Chunk::user("look"));
    let request = Models::new().providers[0].request(&session).expect("it is rendered");
    let body: Value = serde_json::from_slice(request.body()).expect("it is JSON");
    let tools: Vec<_> =
        body["tools"].as_array().expect("tools").iter().map(|tool| tool["function"].to_string()).collect();
    expect_test::expect![[r#"
        {"description":"Looks.","name":"look","parameters":{"properties":{},"type":"object"}}
        {"description":"Looks.","name":"no_good_2","parameters":{"properties":{},"type":"object"}}
        {"description":"Looks.","name":"no_good","parameters":{"properties":{"a":{"type":"string"}},"type":"object"}}
        {"description":"Looks.","name":"no_good_3","parameters":{"properties":{"b":{"type":"string"}},"required":["b"],"type":"object"}}
        {"description":"Looks.","name":"shape","parameters":{"$defs":{"Circle":{"properties":{"kind":{"const":"circle"},"r":{}},"required":["kind","r"]}},"properties":{"a":{},"kind":{"anyOf":[{"const":"circle"},{"const":"square"}]},"r":{}},"required":["kind"],"type":"object"}}
        {"description":"Looks.","name":"plain","parameters":{"properties":{"c":{"anyOf":[{"type":"string"}]}},"required":["c"],"type":"object"}}"#]].assert_eq(&tools.join("\n"));
    expect_test::expect![[r#"
        rewritten: 2 tool names, 5 tool schemas
        dropped: 1 repeated tool"#]]
    .assert_eq(&request.report.to_string());
}

#[test]
fn a_forged_sidecar_is_not_sent() {
    let models = Models::new();
    let call = || vec![Call::new("toolu_1", "look", "{}")];
    let forged = [
        (2, r#"{"content":[{"type":"text","text":""},{"type":"tool_use"}]}"#),
        (2, r#"{"content":[{"type":"tool_result","tool_use_id":"x"},{"type":"tool_use"}]}"#),
        (2, r#"{"content":[{"type":"thinking","thinking":"hm"},{"type":"tool_use"}]}"#),
        (2, r#"{"content":[{"type":"hologram","cache_control":{}},{"type":"tool_use"}]}"#),
        (2, r#"{"content":[{"type":"tool_use"},{"type":"tool_use"}]}"#),
        (2, r#"{"content":[{"type":"text","bytes":99},{"type":"tool_use"}]}"#),
        (0, r#"{"reasoning":"role"}"#),
        (0, r#"{"reasoning_details":5}"#),
        (0, r#"{"signature":{"a":1},"calls":["x"]}"#),
        (0, r#"{"calls":[{"google":{}},{"google":{}}]}"#),
        (6, r#"{"parts":[{"text":2,"thought":true},{"functionCall":{}},{"text":"more"}]}"#),
        (6, r#"{"parts":[{"text":2,"thought":true},{"functionCall":{}},{"functionResponse":{},"x":1}]}"#),
        (6, r#"{"parts":[{"text":2,"thought":true},{"functionCall":{"name":"other"},"x":1}]}"#),
        (6, r#"{"parts":[{"text":2,"thought":true},{"functionCall":{}},{"functionCall":{}}]}"#),
        (6, r#"{"parts":[{"text":1,"thought":true},{"functionCall":{},"x":1}]}"#),
        (6, r#"{"parts":[{"text":2,"thought":true},{"functionCall":{},"x":1},{"text":1}]}"#),
        (6, r#"{"parts":[{"text":2,"thought":true},{"functionCall":{},"x":1},{"thought":true}]}"#),
    ];
    for (model, json) in forged {
        let sidecar = Json::parse(json).ok();
        let answer = Answer { reasoning: "hm".to_owned(), calls: call(), sidecar, ..Answer::default() };
        let (mut session, _) = models.ask(model, Session::user("look"), answer).expect("it is asked");
        session.push(Chunk::result("toolu_1", "seen"));
        let request = models.providers[model].request(&session).expect("it is rendered");
        assert_eq!(
            request.report.to_string().lines().last(),
            Some("dropped: 1 reasoning block, 1 thinking option")
                .filter(|_| model == 2)
                .or(Some("dropped: 1 reasoning block")),
            "{json}"
        );
    }
    // Reasoning at the end of an answer that was cut off is left out, and the rest is sent.
    let json = r#"{"content":[{"type":"text","bytes":4},{"type":"thinking","thinking":"hm","signature":"c2ln"}]}"#;
    let answer = Answer { text: "well".to_owned(), sidecar: Json::parse(json).ok(), ..Answer::default() };
    let (mut session, _) = models.ask(2, Session::user("look"), answer).expect("it is asked");
    session.push(Chunk::user("go on"));
    let request = models.providers[2].request(&session).expect("it is rendered");
    assert!(
        String::from_utf8_lossy(request.body())
            .contains(r#"{"role":"assistant","content":[{"type":"text","text":"well"}]}"#)
    );
}

#[test]
fn a_call_has_the_name_under_which_its_tool_was_declared() {
    let models = Models::new();
    let mut session = Session::empty();
    session.push(instructions(2));
    session.push(Chunk::user("look"));
    let calls =
        vec![Call::new("c1", "no good", "{}"), Call::new("c2", "no:good", "{}"), Call::new("c3", "no_good", "{}")];
    let (mut session, _) = models.ask(0, session, Answer { calls, ..Answer::default() }).expect("it is asked");
    ["c1", "c2", "c3"].iter().for_each(|call| _ = session.push(Chunk::result(*call, "seen")));
    let request = models.providers[0].request(&session).expect("it is rendered");
    let body: Value = serde_json::from_slice(request.body()).expect("it is JSON");
    let declared: Vec<_> =
        body["tools"].as_array().expect("tools").iter().map(|tool| &tool["function"]["name"]).collect();
    let called = body["messages"][2]["tool_calls"].as_array().expect("calls");
    let called: Vec<_> = called.iter().map(|call| &call["function"]["name"]).collect();
    assert_eq!(declared[1..4], [called[0], called[2], called[1]]);
}

/// A small file can hold merges that repeat its steps without end.
#[test]
fn a_session_that_is_too_long_for_a_request_is_refused_before_it_is_built() {
    let doubled = |text: String, times: u32| {
        (0..times).fold(Session::user(text), |session, _| {
            block_on(session.merge_by(&session, rath::chunk::Strategy::Concat)).expect("merged")
        })
    };
    let provider = crate::support::script([r#"{"text": "hi"}"#]);
    for (session, message) in [
        (doubled("short".into(), 22), "a request is made of at most 2097152 chunks, and the session has 4194304"),
        (
            doubled("x".repeat(1 << 20), 9),
            "a request has at most 268435456 bytes of text and pictures, and the session has 536870912",
        ),
    ] {
        let error = provider.request(&session).expect_err("it is too long");
        assert_eq!((error.kind(), &*error.message()), (ErrorKind::Request, message));
    }
    assert!(provider.request(&doubled("x".repeat(1 << 10), 9)).is_ok());
}
