//! Asking a provider: attempts, keys, time limits, bad servers, cancellation.

use std::time::Duration;

use expect_test::{Expect, expect};
use rath::chunk::Call;
use rath::chunk::{Finish, Image};
use rath::prelude::*;
use rath::provider::Retry;
use rath::provider::{Env, ProviderRegistry, Timeouts};
use rath::turn::Next;
use rath::{StepId, Usage};
use serde_json::json;

use crate::server::{AfterBody, Reply, TestServer};
use crate::support::block_on;

const KEY: &str = "sk-very-secret";
const PIECES: &str = "data: {\"id\":\"1\",\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hel\"}}]}\n\n\
    data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"lo.\"},\"finish_reason\":\"stop\"}]}\n\n\
    data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":2}}\n\ndata: [DONE]\n\n";

fn openai(server: &TestServer) -> OpenAi {
    OpenAi::new("m").key(KEY).base_url(&format!("{}/v1", server.url)).expect("it is a URL")
}

fn quick(attempts: u32) -> Retry {
    Retry { attempts, first: Duration::from_millis(1), longest: Duration::from_millis(20) }
}

/// Prints the steps after the user's message.
fn steps(session: &Session) -> String {
    let kinds = session.chunks().skip(1).map(|chunk| match chunk {
        Chunk::Retry(retry) => format!("retry {} of {}: {}", retry.attempt, retry.of, retry.error),
        Chunk::Failed(failed) => format!("failed: {}: {}", failed.error, failed.message),
        Chunk::Interrupted(interrupted) => format!("interrupted: {}", interrupted.reason),
        Chunk::Assistant(answer) => format!("assistant: {}", answer.text),
        chunk => chunk.kind().to_owned(),
    });
    kinds.collect::<Vec<_>>().join("\n")
}

/// Asks once, and compares the error and the recorded steps.
#[track_caller]
fn check_error(reply: Reply, make: impl FnOnce(OpenAi) -> OpenAi, expected: Expect) {
    expected.assert_eq(&shown_error(reply, make));
}

fn shown_error(reply: Reply, make: impl FnOnce(OpenAi) -> OpenAi) -> String {
    block_on(async {
        let server = TestServer::always(reply).await;
        let provider = Provider::from(make(openai(&server))).retry(Retry::never());
        let error = provider.ask(Session::user("hi")).await.expect_err("it cannot be answered");
        let session = error.session().expect("the session is kept");
        assert!(matches!(session.next(), Next::AskModel), "it can be asked again");
        format!("{:?}, temporary: {}\n{error:?}\n{}\n", error.kind(), error.is_temporary(), steps(session))
            .replace(&server.url, "http://server")
    })
}

/// Asks a server that sends no progress, and compares likewise. The phrase is in the error if the machine was fast
/// enough to come to the point where the server stalls.
#[track_caller]
fn check_timeout(reply: Reply, phrase: &str, expected: Expect) {
    let shown = rath_test_support::with_enough_time(Duration::from_millis(500), |time| {
        let shown = shown_error(reply.clone(), |openai| openai.timeouts(Timeouts::for_answer(time)));
        shown.contains(phrase).then(|| shown.replace(&format!("{time:?}"), "500ms"))
    });
    expected.assert_eq(&shown);
}

#[test]
fn no_provider_can_ask_for_more_than_a_thousand_calls() {
    let ask = |calls: usize| {
        let turn = json!({"calls": vec![json!({"name": "look"}); calls]}).to_string();
        block_on(Provider::from(Script::of([turn]).expect("a script")).ask(Session::user("hi")))
    };
    assert!(matches!(ask(1_000).expect("an answer").next(), Next::RunTools(calls) if calls.len() == 1_000));
    assert_eq!(ask(1_001).expect_err("too many calls").kind(), ErrorKind::Answer);
}

#[test]
fn no_provider_can_send_arguments_that_are_too_large_to_parse() {
    let ask = |calls: usize, numbers: usize| {
        let call = json!({"name": "look", "arguments": {"a": vec![0; numbers]}});
        let turn = json!({"calls": vec![call; calls]}).to_string();
        block_on(Provider::from(Script::of([turn]).expect("a script")).ask(Session::user("hi")))
    };
    assert!(matches!(ask(10, 19_000).expect("an answer").next(), Next::RunTools(calls) if calls.len() == 10));
    let error = ask(10, 20_000).expect_err("too many values");
    assert_eq!(
        (error.kind(), error.message()),
        (ErrorKind::Answer, "the arguments of the calls have more than 200000 JSON values".to_owned(),)
    );
}

#[test]
fn an_answer_that_never_ends_is_given_up_on() {
    let total = Duration::from_secs(1);
    let shown = |reply: Reply| {
        let timeouts = Timeouts { total, ..Timeouts::default() };
        shown_error(reply, |openai| openai.timeouts(timeouts))
    };
    for reply in [
        Reply::stream("").then(AfterBody::Trickle),
        Reply::stream(PIECES.split_inclusive("\n\n").next().expect("an event")).then(AfterBody::Ping),
        Reply::json(200, r#"{"choices":"#).then(AfterBody::Blank),
    ] {
        let shown = shown(reply);
        assert!(shown.contains("Timeout") && shown.contains("the answer was not complete after 1s"), "{shown}");
    }
    let shown = shown(Reply::json(200, "").then(AfterBody::Hang));
    assert!(shown.contains("Timeout") && shown.contains("does not answer"), "{shown}");
}

#[test]
fn bad_servers_give_clear_errors_and_the_session_is_kept() {
    check_error(
        Reply::json(
            401,
            r#"{"error":{"message":"Incorrect API key provided: sk-very-secret","code":"invalid_api_key"}}"#,
        ),
        |openai| openai,
        expect![[r#"
            Key, temporary: false
            Incorrect API key provided: [key] (invalid_api_key, 401)
            hint: check the key, and that it is one for this provider
            failed: key: Incorrect API key provided: [key] (invalid_api_key, 401)
        "#]],
    );
    check_error(
        Reply::json(200, ""),
        |openai| openai,
        expect![[r#"
            Answer, temporary: false
            wanted JSON, found nothing
            hint: check the base URL: requests go below http://server/v1
            failed: answer: wanted JSON, found nothing
        "#]],
    );
    check_error(
        Reply::json(400, &format!(r#"{{"error":{{"message":"{}"}}}}"#, "long ".repeat(20_000))),
        |openai| openai,
        expect![[r#"
            Refused, temporary: false
            http://server/v1 answered with `{"error":{"message":"long long long long long long long lon…` (400)
            failed: refused: http://server/v1 answered with `{"error":{"message":"long long long long long long long lon…` (400)
        "#]],
    );
    let calls = vec![r#"{"function":{"name":"look","arguments":"{}"}}"#; 1_001].join(",");
    check_error(
        Reply::json(200, &format!(r#"{{"choices":[{{"message":{{"tool_calls":[{calls}]}}}}]}}"#)),
        |openai| openai,
        expect![[r#"
            Answer, temporary: false
            the answer asks for more than 1000 calls
            failed: answer: the answer asks for more than 1000 calls
        "#]],
    );
    check_error(
        Reply::json(200, &format!(r#"{{"choices":[{{"message":{{"content":"{}"}}}}]}}"#, "x".repeat(100_000))),
        |openai| openai.max_bytes(50_000),
        expect![[r#"
            Answer, temporary: false
            the answer has more than 50000 bytes
            failed: answer: the answer has more than 50000 bytes
        "#]],
    );
    check_timeout(
        Reply::stream("").then(AfterBody::Hang),
        "does not answer",
        expect![[r#"
        Timeout, temporary: true
        http://server/v1 accepts the request and does not answer
        failed: timeout: http://server/v1 accepts the request and does not answer
    "#]],
    );
    check_timeout(
        Reply::stream(&PIECES.as_bytes()[..90]).then(AfterBody::Hang),
        "stalled",
        expect![[r#"
        Timeout, temporary: true
        the answer stalled for 500ms
        failed: timeout: the answer stalled for 500ms
    "#]],
    );
    check_error(
        Reply::stream(&PIECES.as_bytes()[..90]).then(AfterBody::Break),
        |openai| openai,
        expect![[r#"
        Connection, temporary: true
        the answer was cut off: end of file before message length reached
        failed: connection: the answer was cut off: end of file before message length reached
    "#]],
    );
    check_timeout(
        Reply::stream(PIECES.split_inclusive("\n\n").next().expect("an event")).then(AfterBody::Ping),
        "keep-alives",
        expect![[r#"
            Timeout, temporary: true
            http://server/v1 sends nothing but keep-alives
            failed: timeout: http://server/v1 sends nothing but keep-alives
        "#]],
    );
    check_timeout(
        Reply::stream("\n").then(AfterBody::Blank),
        "keep-alives",
        expect![[r#"
        Timeout, temporary: true
        http://server/v1 sends nothing but keep-alives
        failed: timeout: http://server/v1 sends nothing but keep-alives
    "#]],
    );
    let half = Reply::json(200, r#"{"choices":[{"message":{"content":"Hel"#).then(AfterBody::Break);
    check_error(
        half,
        |openai| openai.without_streaming(),
        expect![[r#"
        Connection, temporary: true
        the answer was cut off: end of file before message length reached
        failed: connection: the answer was cut off: end of file before message length reached
    "#]],
    );
}

#[test]
fn the_error_for_an_unreachable_server_names_it() {
    let error = block_on(async {
        let server = TestServer::always(Reply::stream(PIECES)).await;
        let provider = Provider::from(openai(&server)).retry(quick(2));
        let url = server.url.clone();
        drop(server);
        let error = provider.ask(Session::user("hi")).await.expect_err("the server is gone");
        assert_eq!(error.session().expect("it is kept").chunk_count(), 3);
        format!("{error:?}").replace(&url, "http://server")
    });
    let (message, hint) = error.split_once('\n').expect("a hint");
    assert!(message.starts_with("cannot reach http://server/v1: "), "{message}");
    assert_eq!(hint, "hint: check the base URL, and that the server runs");
}

#[test]
fn the_allowed_attempts_are_made_and_each_is_a_step() {
    for attempts in [0, 1, 2, 5] {
        block_on(async {
            let server = TestServer::always(Reply::json(503, r#"{"error":{"message":"no"}}"#)).await;
            let provider = Provider::from(openai(&server)).retry(quick(attempts));
            let error = provider.ask(Session::user("hi")).await.expect_err("it is always busy");
            let made = attempts.max(1);
            assert_eq!(server.requests().len() as u32, made);
            let retries: String = (1..made).map(|nth| format!("retry {nth} of {made}: no (503)\n")).collect();
            assert_eq!(steps(error.session().expect("it is kept")), format!("{retries}failed: busy: no (503)"));
        });
    }
}

#[test]
fn a_failed_attempt_leaves_nothing_of_its_answer() {
    block_on(async {
        let server = TestServer::start(|nth, _| match nth {
            0 => Reply::stream(&PIECES.as_bytes()[..90]).then(AfterBody::Break),
            1 => Reply::stream("data: {\"error\":{\"message\":\"Overloaded\",\"type\":\"overloaded_error\"}}\n\n"),
            _ => Reply::stream(PIECES),
        })
        .await;
        let mut pieces = Vec::new();
        let provider = Provider::from(openai(&server)).retry(quick(3));
        let each = |delta: Delta<'_>| match delta {
            Delta::Text(text) => pieces.push(text.to_owned()),
            Delta::Retry { attempt, of, .. } => pieces.push(format!("<{attempt}/{of}>")),
            _ => {}
        };
        let session = provider.ask(Session::user("hi")).each(each).await.expect("the third is answered");
        assert_eq!(pieces, ["Hel", "<1/3>", "<2/3>", "Hel", "lo."]);
        assert_eq!(session.text(), Some("Hello."));
        // The first attempt is paid for as far as it came.
        let used: Vec<_> = session.as_record().steps().iter().filter_map(|step| step.stamp().usage).collect();
        assert_eq!(used, [Usage::new(28, 1), Usage::new(9, 2)]);
        // Every attempt sent the bytes that the record rebuilds.
        let sent = server.requests();
        let rebuilt = session.request(session.head().expect("it answered").id()).expect("it can be rebuilt");
        assert!(sent.iter().all(|asked| asked.body.as_bytes() == rebuilt.body()));
    });
}

#[test]
fn the_wait_that_the_server_asks_for_is_kept() {
    block_on(async {
        let soon = "retry-after-ms: 1";
        for header in ["retry-after: 0", soon, "retry-after: Sun, 06 Nov 1994 08:49:37 GMT"] {
            let server = TestServer::start(move |nth, _| match nth {
                0 => Reply::json(429, r#"{"error":{"message":"slow down"}}"#).header(header),
                _ => Reply::stream(PIECES),
            })
            .await;
            let mut waits = Vec::new();
            // Without the header the wait would be at least half an hour.
            let retry = Retry { attempts: 2, first: Duration::from_secs(3600), longest: Duration::from_secs(3600) };
            let provider = Provider::from(openai(&server)).retry(retry);
            let each = |delta: Delta<'_>| {
                if let Delta::Retry { wait, .. } = delta {
                    waits.push(wait);
                }
            };
            provider.ask(Session::user("hi")).each(each).await.expect("it is answered");
            assert!(waits[0] <= Duration::from_millis(2), "{header}: {waits:?}");
        }
    });
}

#[test]
fn after_a_rejected_key_the_next_is_tried_which_is_not_an_attempt() {
    block_on(async {
        let server = TestServer::start(|_, asked| {
            let key = asked.headers.lines().find_map(|line| line.strip_prefix("authorization: Bearer "));
            match key {
                Some("sk-good") => Reply::stream(PIECES),
                _ => Reply::json(401, r#"{"error":{"message":"wrong key"}}"#),
            }
        })
        .await;
        let provider = Provider::from(openai(&server).keys(["sk-bad1", "sk-bad2", "sk-good"])).retry(Retry::never());
        let session = provider.ask(Session::user("hi")).await.expect("the third key is good");
        assert_eq!(steps(&session), "retry 1 of 2: wrong key (401)\nretry 2 of 3: wrong key (401)\nassistant: Hello.");
        // The good key is used from then on.
        provider.ask(Session::user("again")).await.expect("the third key is good");
        assert_eq!(server.requests().len(), 4);

        let provider = Provider::from(openai(&server).keys(["sk-bad1", "sk-bad2"])).retry(quick(5));
        let error = provider.ask(Session::user("hi")).await.expect_err("no key is good");
        assert_eq!(error.hint(), Some("none of the 2 keys is accepted: check them"));
        assert_eq!(server.requests().len(), 6, "a rejected key is not tried twice");
    });
}

#[test]
fn a_rate_limit_of_one_key_does_not_affect_another() {
    block_on(async {
        let server = TestServer::start(|_, asked| match asked.headers.contains("sk-fresh") {
            true => Reply::stream(PIECES),
            false => Reply::json(429, r#"{"error":{"message":"slow down"}}"#).header("retry-after: 3600"),
        })
        .await;
        let provider = Provider::from(openai(&server).keys(["sk-tired", "sk-fresh"]));
        let session = provider.ask(Session::user("hi")).await.expect("the other key is fresh");
        assert_eq!(steps(&session), "retry 1 of 4: slow down (429)\nassistant: Hello.");
    });
}

#[test]
fn a_key_is_never_shown() {
    block_on(async {
        let server = TestServer::start(|nth, asked| {
            let key = asked.headers.lines().find_map(|line| line.strip_prefix("authorization: Bearer "));
            let key = key.unwrap_or_default();
            match nth {
                0 => Reply::json(500, &format!(r#"{{"error":{{"message":"boom: {key}"}}}}"#)),
                1 => Reply::new(502, "text/html", format!("<b>{key}</b>")),
                2 => Reply::stream(format!("data: {{\"error\":{{\"message\":\"what is {key}\"}}}}\n\n")),
                3 => Reply::stream(PIECES.replace("\"1\"", &format!("\"{key}\"")))
                    .header(&format!("x-request-id: {key}")),
                _ => Reply::json(401, &format!(r#"{{"error":{{"message":"bad {key}"}}}}"#)),
            }
        })
        .await;
        let openai = openai(&server);
        let mut shown = format!("{openai:?}");
        let provider = Provider::from(openai.clone()).retry(quick(4));
        shown += &format!("{provider:?}{:?}", openai.embedder());
        let mut session = provider.ask(Session::user("hi")).await.expect("the fourth is answered");
        session.push(Chunk::user("again"));
        let error = provider.ask(session).await.expect_err("it is refused");
        let session = error.session().expect("it is kept");
        let folder = rath_test_support::temp_dir();
        let path = folder.path().join("session.rath");
        session.save_blocking(&path).expect("it can be saved");
        shown += &format!("{error}{error:?}{session}{}", session.lineage());
        shown += &std::fs::read_to_string(path).expect("it can be read");
        assert!(!shown.contains(KEY), "{shown}");
        assert!(shown.matches("[key]").count() > 5, "{shown}");

        let env =
            Env::from_values([("OPENAI_API_KEY", KEY), ("OPENAI_BASE_URL", "http://user:sk-pass@127.0.0.1:9/v1")]);
        let openai = OpenAi::from_env("m", &env).expect("the environment is complete");
        let error = Provider::from(openai)
            .retry(Retry::never())
            .ask(Session::user("hi"))
            .await
            .expect_err("there is no server");
        assert!(!format!("{env:?}{error}").contains("sk-"), "{error}");
        let wrong = Env::from_values([("OPENAI_API_KEY", KEY), ("OPENAI_BASE_URL", "http//user:sk-pass@host")]);
        let error = OpenAi::from_env("m", &wrong).expect_err("it is no URL");
        assert!(!format!("{error:?}").contains("sk-"), "{error}");
    });
}

#[test]
fn keys_in_replies_are_hidden_in_every_form_and_before_the_text_is_cut() {
    // A quote and a slash, which JSON and URLs escape.
    let key = "sk-\"quo/ted\"-0123456789";
    let escaped = r#"sk-\"quo/ted\"-0123456789"#;
    let encoded = "sk-%22quo%2Fted%22-0123456789";
    let hex: String = key.bytes().map(|byte| format!("{byte:02x}")).collect();
    let long = "x".repeat(1_990);
    let cut = "x".repeat(1_930);
    let replies = [
        Reply::json(400, &format!(r#"{{"error":{{"message":"bad {escaped}"}}}}"#)),
        Reply::json(400, &format!(r#"{{"error":{{"message":"{long} {escaped}"}}}}"#)),
        Reply::new(500, "text/plain", format!("a long text about a credential that is {key} and more")),
        Reply::new(200, "text/html", format!("<html>a long text about a credential {key} and more")),
        Reply::new(307, "text/plain", "").header(&format!("location: http://elsewhere.example/{encoded}/x")),
        Reply::new(307, "text/plain", "").header(&format!("location: http://elsewhere.example/{cut}/{hex}/x")),
        Reply::json(401, r#"{"error":{"message":"azure-secret-0123456789"}}"#),
        Reply::json(401, r#"{"error":{"message":"cookie-secret-0123 query-secret-0123 user-secret-0123"}}"#),
        Reply::stream(PIECES.replace("Hel", escaped).replace("\"m\"", &format!("\"{escaped}\""))),
    ];
    block_on(async {
        for (nth, reply) in replies.into_iter().enumerate() {
            let server = TestServer::always(reply).await;
            let openai = OpenAi::new("m").key(key).header("api-key", "azure-secret-0123456789").expect("a header");
            let openai = openai.header("cookie", "a=b; session=cookie-secret-0123").expect("a header");
            let url = server.url.replace("http://", "http://user-secret-0123:hunter2-password@");
            let openai = openai.base_url(&format!("{url}/v1?code=query-secret-0123")).expect("it is a URL");
            let mut shown = format!("{openai:?}");
            let asked = Provider::from(openai).retry(Retry::never()).ask(Session::user("hi")).await;
            let session = match asked {
                Ok(session) => session,
                Err(error) => {
                    shown += &format!("{error:?}");
                    error.into_session().expect("it is kept")
                }
            };
            shown += &session.as_record().steps().iter().map(|step| step.json().into_owned()).collect::<String>();
            // The port may be one of the texts.
            let shown = shown.replace(&server.url, "http://server");
            for secret in ["0123", "hunter2", "query-secret", &hex[..10]] {
                assert!(!shown.contains(secret), "reply {nth}: {shown}");
            }
        }
    });
}

#[test]
fn answers_may_contain_a_word_that_serves_as_a_key() {
    block_on(async {
        let server = TestServer::always(Reply::stream(PIECES.replace("Hel", "ollama-interleaved"))).await;
        let openai = OpenAi::new("m").key("ollama").header("x-beta", "interleaved-thinking").expect("a header");
        let provider = Provider::from(openai.base_url(&server.url).expect("it is a URL"));
        let session = provider.ask(Session::user("hi")).await.expect("it is answered");
        assert_eq!(session.text(), Some("ollama-interleavedlo."));
    });
}

#[test]
fn a_provider_that_requires_a_key_is_not_asked_without_one() {
    let check = |provider: Provider, expected: &str| {
        let error = block_on(provider.ask(Session::user("hi")).into_future()).expect_err("there is no key");
        assert_eq!((error.kind(), format!("{error:?}")), (ErrorKind::Key, expected.to_owned()));
    };
    check(
        OpenAi::new("m").into(),
        "there is no key for api.openai.com\nhint: set it with `key`, or read it from OPENAI_API_KEY with `from_env`",
    );
    check(
        Anthropic::new("m").into(),
        "there is no key for api.anthropic.com\nhint: set it with `key`, or read it from ANTHROPIC_API_KEY with \
         `from_env`",
    );
}

#[test]
fn rate_limited_keys_are_not_used() {
    block_on(async {
        let slow = Reply::json(429, r#"{"error":{"message":"slow down"}}"#).header("retry-after: 7");
        let server = TestServer::always(slow).await;
        let provider = Provider::from(openai(&server).keys(["sk-one1", "sk-two2"])).retry(quick(3));
        let mut waits = Vec::new();
        let each = |delta: Delta<'_>| {
            if let Delta::Retry { wait, .. } = delta {
                waits.push(wait.as_millis());
            }
        };
        provider.ask(Session::user("hi")).each(each).await.expect_err("it is always too much");
        // The other key is used at once; then both are rate limited, for the longest wait of this policy.
        assert_eq!(waits, [0, 20]);
        let used: Vec<_> = server.requests().iter().map(|asked| asked.headers.contains("sk-one1")).collect();
        assert_eq!(used, [true, false, true]);
    });
}

#[test]
fn concurrent_calls_try_each_key_once() {
    block_on(async {
        let server = TestServer::always(Reply::json(401, r#"{"error":{"message":"wrong key"}}"#)).await;
        let keys: Vec<_> = (0..70).map(|nth| format!("sk-{nth:04}")).collect();
        let provider = Provider::from(openai(&server).keys(keys));
        let asks: Vec<_> = (0..4).map(|_| tokio::spawn(provider.ask(Session::user("hi")).into_future())).collect();
        for ask in asks {
            let error = ask.await.expect("it does not panic").expect_err("no key is good");
            assert_eq!(error.session().expect("it is kept").chunk_count(), 71);
        }
        assert_eq!(server.requests().len(), 4 * 70);
    });
}

#[test]
fn huge_waits_and_timeouts_do_not_overflow() {
    block_on(async {
        let late = Reply::json(429, r#"{"error":{"message":"later"}}"#).header("retry-after: 18000000000000000000");
        let server = TestServer::always(late).await;
        for _ in 0..8 {
            let provider =
                Provider::from(openai(&server).timeouts(Timeouts::for_answer(Duration::MAX))).retry(quick(2));
            assert!(provider.ask(Session::user("hi")).await.expect_err("it is busy").is_temporary());
        }
    });
}

#[test]
fn an_error_with_an_endless_body_is_still_an_error() {
    block_on(async {
        let server = TestServer::always(Reply::json(401, r#"{"error""#).then(AfterBody::Hang)).await;
        let provider = Provider::from(openai(&server)).retry(Retry::never());
        let error = provider.ask(Session::user("hi")).await.expect_err("it is refused");
        assert_eq!(error.kind(), ErrorKind::Key);
        // A finished answer is one, even if the server keeps sending.
        let server = TestServer::always(Reply::stream(PIECES).then(AfterBody::Ping)).await;
        let session = Provider::from(openai(&server)).ask(Session::user("hi")).await.expect("it is answered");
        assert_eq!(session.text(), Some("Hello."));
    });
}

#[test]
fn dropping_a_call_closes_its_connection() {
    block_on(async {
        let mut server = TestServer::always(Reply::stream(&PIECES.as_bytes()[..90]).then(AfterBody::Hang)).await;
        let provider = Provider::from(openai(&server));
        let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
        let before = Session::user("hi");
        let session = before.clone();
        let asking = tokio::spawn(async move {
            let each = move |_: Delta<'_>| sender.send(()).expect("the test listens");
            provider.ask(session).each(each).await
        });
        receiver.recv().await.expect("the answer begins");
        asking.abort();
        server.wait_closed().await;
        assert!(matches!(before.next(), Next::AskModel));
    });
}

#[test]
fn a_finished_answer_does_not_wait_for_the_connection_to_close() {
    // The end of the answer has arrived, and the server keeps the connection open.
    block_on(async {
        let server = TestServer::always(Reply::stream(PIECES).then(AfterBody::Hang)).await;
        let session = Provider::from(openai(&server)).ask(Session::user("hi")).await.expect("it is answered");
        assert_eq!(session.text(), Some("Hello."));
    });
}

#[test]
fn it_must_be_the_models_turn() {
    let provider = Provider::from(Script::of([r#"{"text":"no"}"#]).expect("it is a script"));
    let ask =
        |session: &Session| block_on(provider.ask(session.clone()).into_future()).expect_err("it is not its turn");
    let mut session = Session::user("hi");
    session.push(Chunk::calls([Call::new("call_1", "look", "{}")]));
    expect![[r#"
        the call `call_1` (look) has no result yet
        hint: run the tools, and push their results, before the model is asked again"#]]
    .assert_eq(&format!("{:?}", ask(&session)));
    session.push(Chunk::result("call_1", "seen"));
    session.push(Chunk::assistant("I see."));
    expect![[r#"
        there is nothing to answer: the last message is the model's
        hint: push what the user says"#]]
    .assert_eq(&format!("{:?}", ask(&session)));
    assert_eq!(ask(&Session::system("be brief")).kind(), ErrorKind::Turn);
    assert_eq!(ask(&Session::empty()).kind(), ErrorKind::Turn);
}

#[test]
fn a_provider_is_opened_by_its_uri_and_the_environment() {
    let open = |uri: &str, env: Env| match block_on(ProviderRegistry::new().open(uri, &env)) {
        Ok(provider) => provider.identity().to_string(),
        Err(error) => format!("{error:?}"),
    };
    let full = || {
        Env::from_values([
            ("OPENAI_API_KEY", "k"),
            ("OPENAI_DEFAULT_MODEL", "gpt-default"),
            ("ANTHROPIC_API_KEY", "k"),
            ("ANTHROPIC_DEFAULT_MODEL", "claude-default"),
            ("GOOGLE_API_KEY", "k"),
            ("GEMINI_DEFAULT_MODEL", "gemini-default"),
        ])
    };
    let none = || Env::from_values([]);
    let shown = [
        open("openai:gpt-5", full()),
        open("openai:", full()),
        open("anthropic:claude-x", full()),
        open("anthropic:", full()),
        open("gemini:models/gemini-x", full()),
        open("gemini:", full()),
        open("gemini:gemini-x", none()),
        open("openai:qwen3:8b", Env::from_values([("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")])),
        open("openai:gpt-5", none()),
        open("anthropic:", Env::from_values([("ANTHROPIC_API_KEY", "k")])),
        open("openai:m", Env::from_values([("OPENAI_API_KEY", "k"), ("OPENAI_BASE_URL", "localhost:8080")])),
        open("gpt-5", full()),
        open("opneai:gpt-5", full()),
        open("script:no/such/file.jsonl", none()),
    ];
    expect![[r#"
        openai:gpt-5

        openai:gpt-default

        anthropic:claude-x

        anthropic:claude-default

        gemini:gemini-x

        gemini:gemini-default

        there is no key for generativelanguage.googleapis.com
        hint: set GEMINI_API_KEY

        openai:qwen3:8b

        there is no key for api.openai.com
        hint: set OPENAI_API_KEY

        no model is named
        hint: write `anthropic:MODEL`, or set ANTHROPIC_DEFAULT_MODEL

        wanted a base URL such as `https://api.openai.com/v1`, found `localhost:8080`
        hint: check OPENAI_BASE_URL

        wanted a provider such as `openai:MODEL`, found `gpt-5`
        hint: write the kind of provider, a colon, and the model; kinds: anthropic, gemini, openai, script

        unknown kind of provider `opneai`; known: anthropic, gemini, openai, script
        hint: use anthropic:, gemini:, openai: or script:

        cannot read the script no/such/file.jsonl: No such file or directory (os error 2)"#]]
    .assert_eq(&shown.join("\n\n"));
}

#[test]
fn explicit_values_override_the_environment() {
    block_on(async {
        let server = TestServer::always(Reply::stream(PIECES)).await;
        let env = Env::from_values([("OPENAI_API_KEY", "sk-env"), ("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")]);
        let openai = OpenAi::from_env("m", &env).expect("the environment is complete");
        let url = format!("{}/v1/chat/completions/", server.url);
        let openai =
            openai.key("sk-own").base_url(&url).expect("it is a URL").header("x-team", "blue").expect("a header");
        Provider::from(openai).ask(Session::user("hi")).await.expect("it is answered");
        let asked = &server.requests()[0];
        assert_eq!(asked.path, "/v1/chat/completions");
        assert!(asked.headers.contains("authorization: Bearer sk-own") && asked.headers.contains("x-team: blue"));

        let anthropic =
            Anthropic::new("c").key("sk-own").base_url(&format!("{}/v1/", server.url)).expect("it is a URL");
        let _ = Provider::from(anthropic).retry(Retry::never()).ask(Session::user("hi")).await;
        let asked = &server.requests()[1];
        assert_eq!(asked.path, "/v1/messages");
        assert!(asked.headers.contains("x-api-key: sk-own") && asked.headers.contains("anthropic-version: 2023-06-01"));
        assert!(!asked.headers.contains("authorization"));

        let anthropic = Anthropic::new("c").key("sk-own").base_url(&server.url).expect("it is a URL");
        let anthropic = anthropic.header("x-api-key", "other").expect("a header");
        let anthropic = anthropic.header("anthropic-version", "2099-01-01").expect("a header");
        let _ = Provider::from(anthropic).retry(Retry::never()).ask(Session::user("hi")).await;
        let headers = &server.requests()[2].headers;
        assert!(headers.contains("x-api-key: other") && headers.contains("anthropic-version: 2099-01-01"), "{headers}");
        assert_eq!(headers.matches("x-api-key").count() + headers.matches("anthropic-version").count(), 2);
    });
}

#[test]
fn options_are_sent_and_reserved_members_are_refused() {
    block_on(async {
        let server = TestServer::always(Reply::stream(PIECES)).await;
        let openai = openai(&server).max_tokens(7).option("temperature", 0.5).expect("it is an option");
        let session = Provider::from(openai.clone()).ask(Session::user("hi")).await.expect("it is answered");
        expect![[r#"{"model":"m","messages":[{"role":"user","content":"hi"}],"max_tokens":7,"temperature":0.5,"stream":true,"stream_options":{"include_usage":true}}"#]]
            .assert_eq(&server.requests()[0].body);
        let head = session.head().expect("it answered").id();
        assert_eq!(session.request(head).expect("it can be rebuilt").body(), server.requests()[0].body.as_bytes());
        let error = openai.option("messages", 1).expect_err("it is the session's");
        assert_eq!(
            format!("{error:?}"),
            "`messages` cannot be an option: it follows from the session and the provider"
        );
    });
}

#[test]
fn a_request_is_rebuilt_only_for_the_answer_of_a_model() {
    let mut session = Session::user("hi");
    session.push(Chunk::assistant("hello"));
    let [user, answer] = session.as_record().steps()[..] else { panic!("there are two") };
    let error = |step: StepId| session.request(step).expect_err("there is none").to_string();
    assert_eq!(error(answer.id()), "this answer has no request: it did not come from a provider");
    assert!(error(user.id()).starts_with(&format!("step {} is not an answer of a model", user.id().short())));
    assert!(error(Session::user("other").head().expect("one").id()).starts_with("no step"));

    // An altered record does not rebuild a request that was never sent.
    let server_side = Provider::from(Script::of([r#"{"text":"hello"}"#]).expect("it is a script"));
    let asked = block_on(server_side.ask(Session::user("hi")).into_future()).expect("it is answered");
    let mut forged = Session::user("ho");
    forged.push(asked.head().expect("it answered").chunk().clone());
    let error = forged.request(forged.head().expect("it answered").id()).expect_err("it is another request");
    assert_eq!(error.kind(), ErrorKind::Request);
    assert!(format!("{error:?}").starts_with("the rebuilt request has digest "), "{error}");
}

#[test]
fn texts_become_vectors_in_batches_and_in_order() {
    block_on(async {
        let server = TestServer::start(|nth, asked| {
            let count = asked.body.matches("text ").count();
            let vectors = (0..count).rev().map(|at| format!(r#"{{"index":{at},"embedding":[{nth}.5,{at}]}}"#));
            let vectors = vectors.collect::<Vec<_>>().join(",");
            Reply::json(
                200,
                &format!(r#"{{"data":[{vectors}],"usage":{{"prompt_tokens":{count},"total_tokens":{count}}}}}"#),
            )
        })
        .await;
        let embedder = openai(&server).embedder().batch(2);
        let embedded = embedder.embed(&["text a", "text b", "text c"]).await.expect("they are embedded");
        assert_eq!(embedded.vectors, [[0.5, 0.0], [0.5, 1.0], [1.5, 0.0]]);
        assert_eq!(embedded.usage, Usage::new(3, 0));
        let asked = server.requests();
        assert_eq!(asked.iter().map(|asked| &*asked.path).collect::<Vec<_>>(), ["/v1/embeddings"; 2]);
        assert_eq!(asked[1].body, r#"{"encoding_format":"float","input":["text c"],"model":"m"}"#);
        assert_eq!(embedder.embed(&[] as &[&str]).await.expect("nothing to do").vectors.len(), 0);
    });
}

#[test]
fn bad_vectors_are_errors() {
    let check = |reply: Reply, expected: &str| {
        block_on(async {
            let server = TestServer::always(reply).await;
            let embedder = openai(&server).embedder().retry(quick(2));
            let error = embedder.embed(&["a", "b"]).await.expect_err("these are no vectors");
            assert_eq!(format!("{error:?}").lines().next(), Some(expected));
        });
    };
    check(Reply::json(200, r#"{"data":[{"index":0,"embedding":[1]}]}"#), "wanted 2 vectors, found 1");
    check(
        Reply::json(200, r#"{"data":[{"index":0,"embedding":[1]},{"index":1,"embedding":[1,2]}]}"#),
        "vectors of different lengths: 1 and 2",
    );
    check(Reply::json(200, r#"{"error":{"message":"no such model"}}"#), "no such model");
    check(Reply::json(500, r#"{"error":"down"}"#), "down (500)");
    check(Reply::new(200, "text/html", "<html>"), "wanted JSON, found `<html>`");
}

#[test]
fn an_image_is_described_and_everything_is_on_record() {
    block_on(async {
        let server = TestServer::always(Reply::stream(PIECES)).await;
        let image = Image::new("image/png", [137, 80, 78, 71]);
        let anthropic = Anthropic::new("c").base_url(&server.url).expect("it is a URL");
        let anthropic = Provider::from(anthropic).retry(Retry::never());
        let error = anthropic.describe(image.clone(), "What is this?").await.expect_err("this server has another API");
        assert_eq!(error.kind(), ErrorKind::Answer);
        let block = r#"[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"iVBORw=="}},{"type":"text","text":"What is this?"}]"#;
        assert!(server.requests()[0].body.contains(block));
        let session = Provider::from(openai(&server)).describe(image, "What is this?").await.expect("it is answered");
        assert_eq!(session.text(), Some("Hello."));
        assert_eq!(session.chunk_count(), 2);
        assert!(
            server.requests()[1]
                .body
                .contains(r#"{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBORw=="}}"#)
        );
        let Chunk::Assistant(answer) = session.head().expect("it answered").chunk() else { panic!("it is an answer") };
        assert_eq!(answer.finish, Finish::Stop);
    });
}

#[test]
fn the_address_says_which_api_of_openai_it_is() {
    let body = |model: OpenAi| {
        let provider = Provider::from(model.option("reasoning_effort", "low").expect("an option").max_tokens(9));
        String::from_utf8_lossy(provider.request(&Session::user("hi")).expect("it is rendered").body()).into_owned()
    };
    let at = |model: &str, url: &str| body(OpenAi::new(model).base_url(url).expect("it is a URL"));
    let responses = r#"{"model":"gpt-5","input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"hi"}]}],"include":["reasoning.encrypted_content"],"max_output_tokens":9,"reasoning":{"effort":"low"},"store":false,"stream":true}"#;
    let chat = r#"{"model":"gpt-5","messages":[{"role":"user","content":"hi"}],"max_tokens":9,"reasoning_effort":"low","stream":true,"stream_options":{"include_usage":true}}"#;
    let openais_chat = chat.replace("max_tokens", "max_completion_tokens");
    assert_eq!(body(OpenAi::new("gpt-5")), responses);
    for (url, expected) in [
        ("https://api.openai.com/v1", responses),
        ("https://api.openai.com/v1/chat/completions", &openais_chat),
        ("http://127.0.0.1:1/v1", chat),
        ("http://127.0.0.1:1/v1/chat/completions/", chat),
        ("http://127.0.0.1:1/v1/responses", responses),
        ("http://127.0.0.1:1/responses/v1", chat),
    ] {
        assert_eq!(at("gpt-5", url), expected, "{url}");
    }
    // They refuse to be asked for reasoning.
    for model in ["gpt-4.1-mini", "gpt-4o", "chatgpt-4o-latest", "ft:gpt-4o:us", "gpt-5-chat-latest"] {
        assert!(!at(model, "https://api.openai.com/v1").contains("include"), "{model}");
    }
    // What the user says holds.
    let model = OpenAi::new("gpt-5").option("include", [(); 0]).expect("an option");
    assert!(body(model).contains(r#""include":[],"#));
    for name in ["store", "input", "previous_response_id"] {
        assert!(OpenAi::new("gpt-5").option(name, true).is_err(), "{name}");
    }
}

#[test]
fn gemini_is_asked_at_the_address_of_its_model_with_options_by_its_names() {
    let answer = r#"{"candidates":[{"content":{"parts":[{"text":"Hello."}],"role":"model"},"finishReason":"STOP"}]}"#;
    block_on(async {
        let server = TestServer::start(move |_, asked| match asked.path.contains("stream") {
            true => Reply::stream(format!("data: {answer}\n\n")),
            false => Reply::json(200, answer),
        })
        .await;
        let at = |model: &str, path: &str| {
            Gemini::new(model).base_url(&format!("{}{path}", server.url)).expect("it is a URL").key("AIza-own")
        };
        let tuned = at("tunedModels/mine", "/v1/").without_streaming();
        let options = at("models/gemini-x", "")
            .max_tokens(9)
            .option("generationConfig", serde_json::json!({"temperature": 0.5, "topK": 3}))
            .and_then(|gemini| gemini.option("top_p", 0.9)?.option("stop", "END")?.option("reasoning_effort", "low"))
            .and_then(|gemini| gemini.option("toolConfig", 1)?.option("safetySettings", [0; 0]))
            .expect("they are options");
        for gemini in [at("gemini-x", "/v1beta/models"), tuned, options] {
            let session = Provider::from(gemini).ask(Session::user("hi")).await.expect("it is answered");
            assert_eq!(session.text(), Some("Hello."));
        }
        let requests = server.requests();
        let shown = requests.iter().map(|asked| format!("{}\n{}\n", asked.path, asked.body));
        expect![[r#"
            /v1beta/models/gemini-x:streamGenerateContent?alt=sse
            {"contents":[{"role":"user","parts":[{"text":"hi"}]}]}
            /v1/tunedModels/mine:generateContent
            {"contents":[{"role":"user","parts":[{"text":"hi"}]}]}
            /v1beta/models/gemini-x:streamGenerateContent?alt=sse
            {"contents":[{"role":"user","parts":[{"text":"hi"}]}],"safetySettings":[],"generationConfig":{"maxOutputTokens":9,"stopSequences":["END"],"temperature":0.5,"thinkingConfig":{"thinkingLevel":"low"},"topK":3,"topP":0.9}}
        "#]]
        .assert_eq(&shown.collect::<String>());
        assert!(requests.iter().all(|asked| asked.headers.contains("x-goog-api-key: AIza-own")));
        for name in ["contents", "systemInstruction", "model", "tools"] {
            assert!(at("gemini-x", "").option(name, 1).is_err(), "{name}");
        }
        assert!(at("gemini-x", "").option("generationConfig", 1).is_err());
    });
}

#[test]
fn an_answer_of_gemini_that_the_connection_cuts_after_its_reason_to_stop_is_tried_again() {
    let first = "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"Hel\"}]},\"finishReason\":\"STOP\"}]}\n\n";
    let whole =
        "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"Hello.\"}]},\"finishReason\":\"STOP\"}]}\n\n";
    block_on(async {
        let server = TestServer::start(move |nth, _| match nth {
            0 => Reply::stream(first).then(AfterBody::Break),
            _ => Reply::stream(whole),
        })
        .await;
        let gemini = Gemini::new("m").base_url(&server.url).expect("it is a URL");
        let session = Provider::from(gemini).retry(quick(2)).ask(Session::user("hi")).await.expect("it is answered");
        assert_eq!(session.text(), Some("Hello."));
    });
}
