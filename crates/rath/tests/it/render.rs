//! Random sessions, rendered for two providers with two models each. Whatever happened, a request has a shape that is
//! accepted, begins with what was sent before, and can be rebuilt from the record. `RATH_CASES` sets how many.

use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use proptest::strategy::Strategy;
use rath::chunk::{
    Call, Compressed, Finish, Identity, Image, Instructions, Json, MemoryEvent, RecalledEntry, ToolSpec,
};
use rath::prelude::*;
use rath::provider::{Answer, Failure, ProviderBackend, Request, Settings, Shape, Sink};
use rath::record::{Blob, view};
use serde_json::Value;

use crate::shape::{MEMORY, OUTPUT, check_shape};
use crate::support::{block_on, cases};

/// A provider of either shape that gives the answer it is told to give.
struct Told {
    identity: Identity,
    settings: Arc<Settings>,
    answer: Arc<Mutex<Answer>>,
    sent: Arc<Mutex<Option<Request>>>,
}

impl ProviderBackend for Told {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn settings(&self) -> &Arc<Settings> {
        &self.settings
    }

    async fn send(&self, request: &Request, _: &mut Sink<'_>) -> Result<Answer, Failure> {
        *self.sent.lock().expect("one thread") = Some(request.clone());
        Ok(self.answer.lock().expect("one thread").clone())
    }
}

/// The four models, and what the last one was sent.
struct House {
    models: Vec<Provider>,
    answer: Arc<Mutex<Answer>>,
    sent: Arc<Mutex<Option<Request>>>,
}

impl House {
    fn new() -> Self {
        let (answer, sent) = <(Arc<Mutex<Answer>>, Arc<Mutex<Option<Request>>>)>::default();
        let kinds = [("openai", Shape::Chat), ("anthropic", Shape::Messages)];
        let models = kinds.iter().flat_map(|kind| [(kind, "a"), (kind, "b")]).map(|((provider, shape), model)| {
            let identity = Identity { provider: provider.to_string(), model: model.to_owned() };
            let mut settings = Settings::new(*shape);
            settings.set("thinking", serde_json::json!({ "type": "enabled" })).expect("it is an option");
            settings.set("tool_choice", serde_json::json!("auto")).expect("it is an option");
            let settings = Arc::new(settings);
            Provider::new(Told { identity, settings, answer: answer.clone(), sent: sent.clone() })
        });
        House { models: models.collect(), answer, sent }
    }

    /// Asks a model, and gives back the session with its answer and what was sent.
    fn ask(&self, model: usize, session: Session, answer: Answer) -> Result<(Session, Request)> {
        *self.answer.lock().expect("one thread") = answer;
        let session = block_on_here(self.models[model].ask(session).into_future())?;
        let sent = self.sent.lock().expect("one thread").take();
        Ok((session, sent.expect("it was asked")))
    }
}

/// Nothing here waits, so no runtime is needed: one for each of a hundred thousand asks would be slow.
fn block_on_here<T>(work: impl Future<Output = T>) -> T {
    let mut work = std::pin::pin!(work);
    match work.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop())) {
        std::task::Poll::Ready(done) => done,
        std::task::Poll::Pending => block_on(work),
    }
}

#[derive(Clone, Debug)]
enum Act {
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

fn act() -> impl Strategy<Value = Act> {
    let at = 0_usize..64;
    prop_oneof![
        4 => (at.clone(), at.clone()).prop_map(|(at, text)| Act::Say(at, text)),
        1 => at.clone().prop_map(Act::Picture),
        1 => at.clone().prop_map(Act::Recall),
        8 => (at.clone(), at.clone(), at.clone()).prop_map(|(at, model, answer)| Act::Ask(at, model, answer)),
        4 => (at.clone(), at.clone()).prop_map(|(at, output)| Act::Results(at, output)),
        1 => (at.clone(), at.clone()).prop_map(|(at, which)| Act::Instruct(at, which)),
        1 => (at.clone(), at.clone()).prop_map(|(at, back)| Act::Compress(at, back)),
        2 => at.clone().prop_map(Act::Fork),
        2 => (at.clone(), at.clone()).prop_map(|(ours, theirs)| Act::Merge(ours, theirs)),
        1 => at.prop_map(Act::Reopen),
    ]
}

const TEXTS: [&str; 6] = ["hello", "", " \n", "quote \" and \\ and \u{2028}", "☀️ 你好", "{\"role\":\"system\"}"];

/// Answers of every kind, sane and not.
fn answer(which: usize, shape: Shape) -> Answer {
    let call = |id: &str, tool: &str, arguments: &str| Call::new(id, tool, arguments);
    let signed = r#"{"content":[{"type":"thinking","thinking":"hm","signature":"c2ln"},{"type":"text","bytes":5},
        {"type":"tool_use"}]}"#;
    let named = r#"{"reasoning":"reasoning_content"}"#;
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
            sidecar: sidecar(if shape == Shape::Messages { signed } else { named }),
            ..Answer::default()
        },
        // What only thinks says nothing; a sidecar that does not fit is not believed.
        5 => Answer { reasoning: "hm".to_owned(), sidecar: sidecar(signed), ..Answer::default() },
        6 => Answer { sidecar: sidecar(signed), ..text("other") },
        _ => Answer { finish: Finish::Length, ..calls(vec![call(&"x".repeat(80), &"y".repeat(80), "{\"cut\":")]) },
    }
}

fn instructions(which: usize) -> Instructions {
    let tool = |name: &str, parameters: &str| ToolSpec {
        name: name.to_owned(),
        description: "Looks.".to_owned(),
        parameters: Json::parse(parameters).expect("it is JSON"),
    };
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
    Instructions { text: ["be brief", " ", "be \"kind\""][which % 3].into(), tools, provider: None }
}

/// A session, with what each model was last sent on its line and has not been told otherwise since.
#[derive(Clone)]
struct Known {
    session: Session,
    sent: [Option<Request>; 4],
}

impl Known {
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

fn run(acts: &[Act]) -> Result<(), TestCaseError> {
    let house = House::new();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut pool = vec![Known { session: Session::user("hi"), sent: Default::default() }];
    for act in acts {
        let size = pool.len();
        let known = |at: usize| at % size;
        match *act {
            Act::Say(at, text) => {
                pool[known(at)].session.push(Chunk::user(TEXTS[text % TEXTS.len()]));
            }
            Act::Picture(at) => {
                let image = |kind: &str| Image { media_type: kind.to_owned(), blob: Blob::new(&b"dots"[..]) };
                let images = vec![image("image/png"), image("image/tiff")];
                pool[known(at)].session.push(rath::chunk::User { text: "".into(), images });
            }
            Act::Recall(at) => {
                let found = vec![RecalledEntry { entry: "1".to_owned(), text: MEMORY.into() }];
                let event = MemoryEvent::Recall { query: "?".into(), found };
                pool[known(at)].session.push(rath::chunk::Memory { memory: "house:".to_owned(), event });
            }
            Act::Results(at, output) => {
                let session = &mut pool[known(at)].session;
                let calls = open_calls(session);
                for (nth, pending) in calls.iter().enumerate() {
                    // Not in the order of the calls.
                    let pending = if output % 2 == 0 { pending } else { &calls[calls.len() - 1 - nth] };
                    let text = if output % 3 == 0 { "" } else { OUTPUT };
                    session.push(Chunk::result(pending.call.id.clone(), text));
                }
                if output % 5 == 0 {
                    session.push(Chunk::result("no such call", OUTPUT));
                }
            }
            Act::Instruct(at, which) => {
                let known = &mut pool[known(at)];
                known.session.push(instructions(which));
                known.forget();
            }
            Act::Compress(at, back) => {
                // A step of another session may be among those that are named.
                let elsewhere = pool[known(back)].session.head().map(|head| head.id());
                let known = &mut pool[known(at)];
                if open_calls(&known.session).is_empty() {
                    let steps: Vec<_> = known.session.as_record().steps().iter().map(|step| step.id()).collect();
                    let mut hidden = steps[..back % steps.len()].to_vec();
                    hidden.extend(elsewhere);
                    known.session.push(Compressed { hidden, kept: vec![], summary: "before".into() });
                    known.forget();
                }
            }
            Act::Fork(at) => {
                let known = &pool[known(at)];
                pool.push(Known { session: known.session.fork(), ..known.clone() });
            }
            Act::Merge(ours, theirs) => {
                let (ours, theirs) = (&pool[known(ours)], &pool[known(theirs)]);
                // What theirs hid is hidden, and then the request begins otherwise.
                let hides = theirs.session.chunks().any(|chunk| matches!(chunk, Chunk::Compressed(_)));
                let told = ours.session.messages().instructions.is_some();
                if let Ok(session) = ours.session.merge(&theirs.session) {
                    // What theirs goes on from is theirs already.
                    let forward = session.head() == theirs.session.head();
                    let parent = if forward { theirs } else { ours };
                    let mut merged = Known { session, ..parent.clone() };
                    if !forward && (hides || (!told && merged.session.messages().instructions.is_some())) {
                        merged.forget();
                    }
                    pool.push(merged);
                }
            }
            Act::Reopen(at) => {
                let known = &mut pool[known(at)];
                let path = folder.path().join("session.rath");
                known.session.save(&path).expect("it can be saved");
                known.session = Session::open(&path).expect("it can be opened").session;
            }
            Act::Ask(at, model, which) => {
                let model = model % 4;
                let known = &mut pool[known(at)];
                let shape = if model < 2 { Shape::Chat } else { Shape::Messages };
                let asked = house.ask(model, known.session.clone(), answer(which, shape));
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
                prop_assert_eq!(&rebuilt.bytes, &sent.bytes);
                prop_assert_eq!(&rebuilt.report, &sent.report);
                if let Some(before) = &known.sent[model] {
                    check_begins_with(&sent, before)?;
                }
                known.session = session;
                known.sent[model] = Some(sent);
            }
        }
    }
    Ok(())
}

/// A request begins with all that the one before had, up to its last message.
fn check_begins_with(sent: &Request, before: &Request) -> Result<(), TestCaseError> {
    let [sent, before] = [sent, before].map(|request| std::str::from_utf8(&request.bytes).expect("JSON is UTF-8"));
    let shared = sent.bytes().zip(before.bytes()).take_while(|(ours, theirs)| ours == theirs).count();
    let list =
        |json: &str| -> Value { serde_json::from_str::<Value>(json).expect("a request is JSON")["messages"].take() };
    let (ours, theirs) = (list(sent), list(before));
    let (ours, theirs) = (ours.as_array().expect("a list"), theirs.as_array().expect("a list"));
    prop_assert!(ours.starts_with(theirs), "\n{}\ndoes not go on from\n{}", sent, before);
    // The bytes part where the list of the earlier one closes.
    let (rest, closes) = (&sent[shared..], &before[shared..]);
    let ended = sent == before || closes.starts_with(']') && rest.starts_with(',');
    prop_assert!(ended, "\n{}\nparts too early from\n{}", rest, closes);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases(2_000)) })]

    #[test]
    fn every_request_is_accepted_begins_as_before_and_can_be_rebuilt(acts in prop::collection::vec(act(), 1..40)) {
        run(&acts)?;
    }
}

#[test]
fn opaque_state_goes_to_the_model_it_belongs_to_and_nowhere_else() {
    let house = House::new();
    let (session, _) = house.ask(2, Session::user("look"), answer(4, Shape::Messages)).expect("it is asked");
    let mut session = session;
    session.push(Chunk::result("toolu_1", "seen"));
    let sent = |model: usize| house.models[model].request(&session).expect("it is rendered");
    let body = |request: &Request| String::from_utf8_lossy(&request.bytes).into_owned();

    // Home: the signature and the provider's name for the call are kept.
    let home = sent(2);
    assert!(body(&home).contains(r#""signature":"c2ln""#) && body(&home).contains("toolu_1"));
    assert_eq!(home.report.to_string(), "kept: 1 reasoning block, 1 call id\nrewritten: 1 argument text");
    // Another model of the same provider, which may be another server: neither is its own.
    let cousin = sent(3);
    assert!(!body(&cousin).contains("c2ln") && !body(&cousin).contains("toolu_1"));
    assert!(!body(&cousin).contains("thinking"), "reasoning cannot begin in the middle of a turn");
    assert_eq!(
        cousin.report.to_string(),
        "rewritten: 1 call id, 1 argument text\ndropped: 1 reasoning block, 1 thinking option"
    );
    // Another provider.
    let stranger = sent(0);
    assert!(!body(&stranger).contains("c2ln") && !body(&stranger).contains("toolu_1"));
    assert_eq!(stranger.report.to_string(), "rewritten: 1 call id, 1 argument text\ndropped: 1 reasoning block");
    // And back home nothing was lost.
    let (mut session, _) = house.ask(0, session, answer(0, Shape::Chat)).expect("it is asked");
    let noted = session.chunks().any(|chunk| {
        matches!(chunk, Chunk::Note(note) if note.text.as_str().is_some_and(|text|
        text == "from anthropic:a to openai:a: rewritten: 1 call id, 1 argument text; dropped: 1 reasoning block"))
    });
    assert!(noted, "the loss is on the record");
    session.push(Chunk::user("again"));
    assert!(body(&house.models[2].request(&session).expect("it is rendered")).contains(r#""signature":"c2ln""#));
}

#[test]
fn what_is_not_at_hand_is_an_error_and_not_left_out() {
    let long = "x".repeat(20_000);
    let mut session = Session::user(&*long);
    let image = Image { media_type: "image/png".to_owned(), blob: Blob::new(&b"dots"[..]) };
    session.push(rath::chunk::User { text: "see".into(), images: vec![image] });
    let mut away = Session::empty();
    for chunk in session.chunks() {
        let mut json = Vec::new();
        chunk.encode(&mut json);
        away.push(Chunk::decode(std::str::from_utf8(&json).expect("JSON is UTF-8")).expect("it is a chunk"));
    }
    let error = House::new().models[0].request(&away).expect_err("a payload is missing");
    assert_eq!(error.kind(), ErrorKind::Payload);
    assert!(format!("{error:?}").contains("is not here: 20000 bytes"), "{error}");
}

#[test]
fn a_view_that_goes_on_is_the_view_of_the_whole() {
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
fn a_forecast_says_how_much_of_a_request_was_sent_before() {
    let house = House::new();
    let answer = Answer { text: "fine".to_owned(), usage: Some(Usage::new(2_000, 10)), ..Answer::default() };
    let long = "words ".repeat(1_500);
    for (model, cached) in [(0, 1_920), (2, 2_000)] {
        let forecast = |session: &Session| house.models[model].forecast(session).expect("it is rendered");
        let first = Session::user(&*long);
        assert_eq!((forecast(&first).after, forecast(&first).cached_tokens), (None, 0));
        let (session, sent) = house.ask(model, first, answer.clone()).expect("it is asked");
        let mut more = session.fork();
        more.push(Chunk::user("more"));
        let next = forecast(&more);
        assert_eq!(next.after, session.head().map(|head| head.id()));
        assert_eq!((next.cached_tokens, next.shared_bytes), (cached, sent.messages_end() as u64));
        assert!(next.tokens > 2_000 && next.tokens < 2_100, "{next:?}");

        // The other side of a merge comes after ours, whose request is the one that the next begins with.
        let mut other = session.fork();
        other.push(Chunk::user("other"));
        let (other, _) = house.ask(model, other, answer.clone()).expect("it is asked");
        let (ours, _) = house.ask(model, more, answer.clone()).expect("it is asked");
        let mut merged = ours.merge(&other).expect("nothing is open");
        merged.push(Chunk::user("both"));
        assert_eq!(forecast(&merged).after, ours.head().map(|head| head.id()));

        // New instructions change the beginning, and another model has seen nothing.
        let mut told = session.clone();
        told.push(Chunk::instructions("be brief"));
        assert_eq!(forecast(&told).cached_tokens, 0);
        assert_eq!(house.models[model + 1].forecast(&session).expect("it is rendered").cached_tokens, 0);
    }
}

#[test]
fn tools_keep_their_names_and_what_their_schemas_say() {
    let mut session = Session::empty();
    session.push(instructions(2));
    session.push(Chunk::user("look"));
    let request = House::new().models[0].request(&session).expect("it is rendered");
    let body: Value = serde_json::from_slice(&request.bytes).expect("it is JSON");
    let told: Vec<_> =
        body["tools"].as_array().expect("tools").iter().map(|tool| tool["function"].to_string()).collect();
    expect_test::expect![[r#"
        {"description":"Looks.","name":"look","parameters":{"properties":{},"type":"object"}}
        {"description":"Looks.","name":"no_good_2","parameters":{"properties":{},"type":"object"}}
        {"description":"Looks.","name":"no_good","parameters":{"properties":{"a":{"type":"string"}},"type":"object"}}
        {"description":"Looks.","name":"no_good_3","parameters":{"properties":{"b":{"type":"string"}},"required":["b"],"type":"object"}}
        {"description":"Looks.","name":"shape","parameters":{"$defs":{"Circle":{"properties":{"kind":{"const":"circle"},"r":{}},"required":["kind","r"]}},"properties":{"a":{},"kind":{"anyOf":[{"const":"circle"},{"const":"square"}]},"r":{}},"required":["kind"],"type":"object"}}
        {"description":"Looks.","name":"plain","parameters":{"properties":{"c":{"anyOf":[{"type":"string"}]}},"required":["c"],"type":"object"}}"#]].assert_eq(&told.join("\n"));
    expect_test::expect![[r#"
        rewritten: 2 tool names, 5 tool schemas
        dropped: 1 repeated tool"#]]
    .assert_eq(&request.report.to_string());
}

#[test]
fn a_sidecar_that_no_provider_gave_is_not_sent() {
    let house = House::new();
    let call = || vec![Call::new("toolu_1", "look", "{}")];
    let wrong = [
        (2, r#"{"content":[{"type":"text","text":""},{"type":"tool_use"}]}"#),
        (2, r#"{"content":[{"type":"tool_result","tool_use_id":"x"},{"type":"tool_use"}]}"#),
        (2, r#"{"content":[{"type":"thinking","thinking":"hm"},{"type":"tool_use"}]}"#),
        (2, r#"{"content":[{"type":"hologram","cache_control":{}},{"type":"tool_use"}]}"#),
        (2, r#"{"content":[{"type":"tool_use"},{"type":"tool_use"}]}"#),
        (2, r#"{"content":[{"type":"text","bytes":99},{"type":"tool_use"}]}"#),
        (0, r#"{"reasoning":"role"}"#),
        (0, r#"{"reasoning_details":5}"#),
    ];
    for (model, json) in wrong {
        let sidecar = Json::parse(json).ok();
        let answer = Answer { reasoning: "hm".to_owned(), calls: call(), sidecar, ..Answer::default() };
        let (mut session, _) = house.ask(model, Session::user("look"), answer).expect("it is asked");
        session.push(Chunk::result("toolu_1", "seen"));
        let request = house.models[model].request(&session).expect("it is rendered");
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
    let (mut session, _) = house.ask(2, Session::user("look"), answer).expect("it is asked");
    session.push(Chunk::user("go on"));
    let request = house.models[2].request(&session).expect("it is rendered");
    assert!(
        String::from_utf8_lossy(&request.bytes)
            .contains(r#"{"role":"assistant","content":[{"type":"text","text":"well"}]}"#)
    );
}

#[test]
fn a_call_is_told_under_the_name_that_its_tool_was_told_under() {
    let house = House::new();
    let mut session = Session::empty();
    session.push(instructions(2));
    session.push(Chunk::user("look"));
    let calls =
        vec![Call::new("c1", "no good", "{}"), Call::new("c2", "no:good", "{}"), Call::new("c3", "no_good", "{}")];
    let (mut session, _) = house.ask(0, session, Answer { calls, ..Answer::default() }).expect("it is asked");
    ["c1", "c2", "c3"].iter().for_each(|call| _ = session.push(Chunk::result(*call, "seen")));
    let request = house.models[0].request(&session).expect("it is rendered");
    let body: Value = serde_json::from_slice(&request.bytes).expect("it is JSON");
    let told: Vec<_> = body["tools"].as_array().expect("tools").iter().map(|tool| &tool["function"]["name"]).collect();
    let called = body["messages"][2]["tool_calls"].as_array().expect("calls");
    let called: Vec<_> = called.iter().map(|call| &call["function"]["name"]).collect();
    assert_eq!(told[1..4], [called[0], called[2], called[1]]);
}
