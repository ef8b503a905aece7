//! Hiding secrets.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use proptest::prelude::{Strategy, prop, prop_assert, prop_assert_eq, prop_assume, prop_oneof, proptest};
use rath::Event;
use rath::chunk::{Assistant, Call, Change, Effect, Identity, Json, Observed, Outcome, ToolResult, ToolStarted, Tree};
use rath::prelude::*;
use rath::provider::{
    Answer, DeltaSink, ProviderBackend, ProviderError, ProviderErrorKind, Request, Retry, Settings, Shape,
};
use rath::secrets::AddOutcome;
use rath::turn::Next;

use crate::server::{Reply, TestServer};
use crate::support::{block_on, now, script};

/// Replaces every number in braces by that many random letters and digits, so that this file contains no whole key.
fn expand(text: &str) -> String {
    const RANDOM: &[u8] = b"aB3dE5fG7hI9jK1lM2nO4pQ6rS8tU0vWxY";
    let mut pieces = text.split('{');
    let mut expanded = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        match piece.split_once('}').and_then(|(count, after)| Some((count.parse::<usize>().ok()?, after))) {
            Some((count, after)) => {
                expanded.extend((0..count).map(|nth| char::from(RANDOM[nth % RANDOM.len()])));
                expanded.push_str(after);
            }
            None => expanded.extend(["{", piece]),
        }
    }
    expanded
}

#[track_caller]
fn check(text: &str, expected: &str) {
    let hidden = Secrets::default().hide(&expand(text));
    assert_eq!(hidden.as_deref(), Some(expected), "{text}");
    assert_eq!(Secrets::default().hide(expected), None, "hiding twice: {text}");
    check_stream(&Secrets::default(), &expand(text));
}

#[track_caller]
fn check_unchanged(text: &str) {
    assert_eq!(Secrets::default().hide(&expand(text)), None, "{text}");
    check_stream(&Secrets::default(), &expand(text));
}

/// Passes a text through a stream, cut at these places.
pub(crate) fn streamed(secrets: &Secrets, text: &str, ends: impl IntoIterator<Item = usize>) -> String {
    let mut stream = secrets.stream();
    let mut from = 0;
    let mut shown = String::new();
    for end in ends.into_iter().chain([text.len()]) {
        shown += &stream.push(&text[from..end]);
        from = end;
    }
    shown + &stream.finish()
}

/// Checks that a stream hides what is hidden in the whole text: byte by byte, and cut in two anywhere.
#[track_caller]
fn check_stream(secrets: &Secrets, text: &str) {
    let whole = secrets.hide(text).unwrap_or_else(|| text.to_owned());
    let ends: Vec<_> = (1..text.len()).filter(|end| text.is_char_boundary(*end)).collect();
    assert_eq!(streamed(secrets, text, ends.iter().copied()), whole, "letter by letter: {text}");
    for end in ends {
        assert_eq!(streamed(secrets, text, [end]), whole, "{text} cut at {end}");
    }
}

#[test]
fn texts_with_the_pattern_of_a_key_are_hidden() {
    check("sk-{48}", "[secret: openai key]");
    check("OPENAI_API_KEY=sk-proj-{30}-{30}_{9}", "OPENAI_API_KEY=[secret: openai key]");
    check("sk-svcacct-{40}", "[secret: openai key]");
    check("(sk-ant-api03-{60}-{20}AA), and more", "([secret: anthropic key]), and more");
    check("id AKIAIOSFODNN7EXAMPLE.", "id [secret: aws key id].");
    check("ASIAIOSFODNN7EXAMPLE", "[secret: aws key id]");
    check("aws_secret_access_key = {40}\nregion", "aws_secret_access_key = [secret: aws secret key]\nregion");
    check("export AWS_SECRET_ACCESS_KEY='{40}'", "export AWS_SECRET_ACCESS_KEY='[secret: aws secret key]'");
    check(r#"{"SecretAccessKey": "{40}"}"#, r#"{"SecretAccessKey": "[secret: aws secret key]"}"#);
    check("set aws_secret_access_key {20}/{18}+", "set aws_secret_access_key [secret: aws secret key]");
    for kind in ["ghp", "gho", "ghu", "ghs", "ghr"] {
        check(&format!("token {kind}_{{36}}"), "token [secret: github token]");
    }
    check("github_pat_{22}_{59}", "[secret: github token]");
    check("glpat-{9}_{10}", "[secret: gitlab token]");
    check("xoxb-123456789012-1234567890123-{24}", "[secret: slack token]");
    check("xoxp-{30}", "[secret: slack token]");
    check("?key=AIza{20}-{14}&q=1", "?key=[secret: google key]&q=1");
    check("sk_live_{24}", "[secret: stripe key]");
    check("rk_live_{24}", "[secret: stripe key]");
    check("//registry.npmjs.org/:_authToken=npm_{36}", "//registry.npmjs.org/:_authToken=[secret: npm token]");
    check("pypi-AgEIcHlwaS5vcmc{60}-{20}", "[secret: pypi token]");
    check("hf_{34}", "[secret: hugging face token]");
    check("cookie=eyJ{20}.eyJ{40}.{43};", "cookie=[secret: jwt];");
    check("Authorization: Bearer {12}.{5}", "Authorization: Bearer [secret: authorization]");
    check(r#"-H "authorization: token {20}""#, r#"-H "authorization: token [secret: authorization]""#);
    check(r#"{"Authorization":"Basic bWU6cGFzcw=="}"#, r#"{"Authorization":"Basic [secret: authorization]"}"#);
    check(r#"("AUTHORIZATION", "BASIC bWU6cGFzcw")"#, r#"("AUTHORIZATION", "BASIC [secret: authorization]")"#);
    check("postgres://me:hunter2@db:5432/x", "postgres://me:[secret: url password]@db:5432/x");
    check("redis://:p@ss:w0rd@cache", "redis://:[secret: url password]@cache");
    check("https://me:пароль@host/?a=b@c", "https://me:[secret: url password]@host/?a=b@c");
    check("git+https://x-access-token:ghs_{36}@h/r", "git+https://x-access-token:[secret: url password]@h/r");
}

#[test]
fn a_key_is_found_after_an_escape_and_among_other_text() {
    check(r#"{"text":"line\nghp_{36}\n"}"#, r#"{"text":"line\n[secret: github token]\n"}"#);
    check(r"a\u003dghp_{36}", r"a\u003d[secret: github token]");
    check("a%3Dghp_{36}%20", "a%3D[secret: github token]%20");
    check("\u{1b}[01;31mghp_{36}\u{1b}[m", "\u{1b}[01;31m[secret: github token]\u{1b}[m");
    // Escapes that not all writers use, also inside of the key.
    check(r#"{"c":"curl https://me:\u0024(run)@h"}"#, r#"{"c":"curl https://me:[secret: url password]@h"}"#);
    check(r#"{"c":"\u0067hp\u005f{36}"}"#, r#"{"c":"[secret: github token]"}"#);
    check(r#"{"c":"a\\u003d\\u0067hp_{36}"}"#, r#"{"c":"a\\u003d[secret: github token]"}"#);
    check("https%3A%2F%2Fme%3Apass%40host", "https%3A%2F%2Fme%3A[secret: url password]%40host");
    check("鍵はsk-{48}です", "鍵は[secret: openai key]です");
    check("🔑AKIAIOSFODNN7EXAMPLE🔑", "🔑[secret: aws key id]🔑");
    check("ghp_{36} ghp_{36}", "[secret: github token] [secret: github token]");
}

#[test]
fn a_private_key_is_hidden_as_a_whole() {
    let (begin, end) = ("-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----");
    check(&format!("a\n{begin}\n{{64}}\n{{20}}==\n{end}\nb"), "a\n[secret: private key]\nb");
    check(&format!("\"{begin}\\n{{64}}\\n{{20}}==\\n{end}\\n\""), "\"[secret: private key]\\n\"");
    check(&format!("  1\t{begin}\r\n  2\t{{64}}\r\n  3\t{end}"), "  1\t[secret: private key]");
    let headers = "Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,0123456789ABCDEF0123456789ABCDEF";
    check(
        &format!("-----BEGIN RSA PRIVATE KEY-----\n{headers}\n\n{{64}}\n{{64}}\n-----END RSA PRIVATE KEY-----"),
        "[secret: private key]",
    );
    check(
        "-----BEGIN PGP PRIVATE KEY BLOCK-----\nVersion: 1\n\n{64}\n=abcd\n-----END PGP PRIVATE KEY BLOCK-----",
        "[secret: private key]",
    );
    // A key whose end was cut off.
    check(&format!("{begin}\n{{64}}\n{{64}}\n{{30}}\n\nand so on"), "[secret: private key]\n\nand so on");
    check(&format!("{begin}\n{{64}}\n{{64}}"), "[secret: private key]");
    check_unchanged(&format!("if text.starts_with(\"{begin}\") {{ return; }}"));
    check_unchanged(&format!("const BEGIN: &str = \"{begin}\";\nconst END: &str = \"{end}\";"));
    check_unchanged("-----BEGIN PUBLIC KEY-----\n{64}\n{64}\n-----END PUBLIC KEY-----");
    check_unchanged("-----BEGIN CERTIFICATE-----\n{64}\n-----END CERTIFICATE-----");
    check_unchanged("the PRIVATE KEY of the server");
    check_unchanged("PRIVATE KEY-----");
}

#[test]
fn texts_that_only_resemble_a_key_are_unchanged() {
    for text in [
        "sk-learn, scikit-learn, task-{48}, disk-0123456789abcdef0123456789",
        "sk-based-approach-to-something-that-is-longer-than-any-key-could-be",
        "sk-container-id-1 sk-toggleable__label-arrow sk-estimator-doc-link2",
        "sk-SomeVeryLongCamelCaseComponent",
        "sk-ant-colony-optimisation-2024-implementation-notes",
        "sk-proj-setup-of-the-year-2025-and-2026",
        "sk-...",
        "sk-xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
        "AKIA, AKIA1234, ASIA_PACIFIC_REGION_CODES, XAKIAIOSFODNN7EXAMPLE, AKIAIOSFODNN7EXAMPLEX",
        "AKIAiosfodnn7example",
        "aws_secret_access_key = $SECRET",
        "aws_secret_access_key is what it is called, and it has forty letters",
        "aws_secret_access_key = {39}",
        "aws_secret_access_key = {41}",
        "ghp_import_something_from_somewhere_with_a_long_name",
        "ghp_{35}",
        "github_pat_tokens_are_longer_than_this_name_which_is_made_of_words",
        "glpat-xxxxxxxxxxxxxxxxxxxx glpat-token-for-the-runner-of-2024",
        "xoxb-not-a-real-token-at-all xoxo-hugs xox{20}",
        "AIza{34} AIza{36} AIzaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        "sk_live_mode_is_what_you_use_in_production sk_test_{24}",
        "npm_config_registry_is_a_variable npm_{35} npm_{37}",
        "npm_lifecycle_event_of_a_package_x_y",
        "pypi-server pypi-Agent-of-the-package-index-that-is-a-long-name-2024-x",
        "hf_hub_download hf_transformers_cache_directory_name hf_{20}",
        "eyJhbGciOiJIUzI1NiJ9 eyJ.eyJ.abc eyJ{20}.{20}.{20} eyJ{20}.eyJ{20}",
        "Authorization: Bearer $TOKEN, Authorization: Bearer <token>, Authorization: Bearer YOUR_API_KEY",
        "Authorization: Basic authentication is simple; authorization, basic ideas, bearer bonds",
        "authorization: Bearer tokens-of-the-2012-specification",
        "https://example.com:8080/a@b http://[::1]:80/ mailto:me:you@example.com ssh://git@github.com:22/x",
        "postgres://me:$PASSWORD@db postgres://me:${PASSWORD}@db postgres://me:{password}@db https://me:***@db",
        "https://me@host see https://host: or me@host",
        "d41d8cd98f00b204e9800998ecf8427e da39a3ee5e6b4b0d3255bfef95601890afd80709",
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "123e4567-e89b-12d3-a456-426614174000",
        "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==",
        "[secret: openai key] [secret OPENAI_API_KEY]",
        "",
    ] {
        check_unchanged(text);
    }
}

#[test]
fn a_known_value_is_hidden_in_every_form() {
    let value = "pass/word \"é\" & <more>";
    let mut secrets = Secrets::default();
    assert_eq!(secrets.add("DB", value), AddOutcome::Added);
    let json = |value: &str| serde_json::to_string(value).expect("a string is JSON").trim_matches('"').to_owned();
    let forms = [
        value.to_owned(),
        json(value),
        r#"pass\/word \"\u00e9\" & <more>"#.to_owned(),
        r#"pass/word \"é\" \u0026 \u003cmore\u003e"#.to_owned(),
        json(&json(value)),
        "pass%2Fword%20%22%C3%A9%22%20%26%20%3Cmore%3E".to_owned(),
        "pass%2fword%20%22%c3%a9%22%20%26%20%3cmore%3e".to_owned(),
        "pass%2Fword+%22%C3%A9%22+%26+%3Cmore%3E".to_owned(),
        "pass/word%20%22%C3%A9%22%20&%20%3Cmore%3E".to_owned(),
        "pass/word+%22%C3%A9%22+&+%3Cmore%3E".to_owned(),
        "pass%2Fword+\"é\"+%26+<more>".to_owned(),
        STANDARD.encode(value),
        URL_SAFE_NO_PAD.encode(value),
    ];
    for form in forms {
        assert_eq!(secrets.hide(&format!("a {form} b")).as_deref(), Some("a [secret DB] b"), "{form}");
    }
    for before in ["", "u", "us", "user:"] {
        let encoded = STANDARD.encode(format!("{before}{value}:and more"));
        let hidden = secrets.hide(&encoded).unwrap_or_else(|| panic!("{encoded} is left"));
        assert!(hidden.contains("[secret DB]") && hidden.len() < encoded.len(), "{hidden}");
    }
}

#[test]
fn a_known_value_is_hidden_in_lines_of_base64_however_they_end() {
    let mut secrets = Secrets::default();
    assert_eq!(secrets.add("KEY", "hunter2-4711-abcdefghijkl"), AddOutcome::Added);
    let encoded = STANDARD.encode(format!("{}hunter2-4711-abcdefghijkl{}", "p".repeat(45), " tail".repeat(12)));
    for end in ["\n", "\r\n", "\\n", "\\r\\n", "\\\\r\\\\n"] {
        let lines = encoded.as_bytes().chunks(76).map(|line| String::from_utf8_lossy(line) + end).collect::<String>();
        assert!(secrets.has_known_value(&lines), "{end:?}");
        check_stream(&secrets, &lines);
    }
}

#[test]
fn overlapping_values_are_hidden_completely() {
    let mut secrets = Secrets::default();
    for (name, value) in [("A", "abcdefgh"), ("B", "abcdefghijkl"), ("C", "efghijklmnop")] {
        assert_eq!(secrets.add(name, value), AddOutcome::Added);
    }
    assert_eq!(secrets.hide("xabcdefghijklmnopx").as_deref(), Some("x[secret B]x"));
    // Also if they come from different sets.
    let [mut one, mut other] = [Secrets::default(), Secrets::default()];
    assert_eq!((one.add("A", "abcdefgh"), other.add("B", "abcdefghijkl")), (AddOutcome::Added, AddOutcome::Added));
    assert_eq!(one.clone().with(&other).hide("xabcdefghijklx").as_deref(), Some("x[secret B]x"));
    assert_eq!(one.clone().with(&one).with(&other).with(&other).hide("abcdefgh").as_deref(), Some("[secret A]"));
    // The key is a pattern only after the value behind it is replaced.
    assert_eq!(one.hide("AKIAIOSFODNN7EXAMPLEabcdefgh").as_deref(), Some("[secret: aws key id][secret A]"));
}

#[test]
fn short_values_are_not_added_and_names_reveal_nothing() {
    let mut secrets = Secrets::default();
    for value in ["", "short", "       ", " hunter2 \n", "[secret]"] {
        assert_eq!(secrets.add("X", value), AddOutcome::TooShort, "{value}");
    }
    assert_eq!(secrets.hide("short hunter2"), None);
    assert_eq!(secrets.add("DB_PASSWORD", " PASSWORD\n"), AddOutcome::Added);
    assert_eq!(secrets.add("a\"]\\\n", "0123456789"), AddOutcome::Added);
    assert_eq!(secrets.hide("it is PASSWORD").as_deref(), Some("it is [secret]"));
    assert_eq!(secrets.hide("it is 0123456789").as_deref(), Some("it is [secret a____]"));
    assert_eq!(format!("{secrets:?}"), r#"Secrets{"DB_PASSWORD", "a____"}"#);
}

/// Generates texts from pieces of patterns and other text.
fn pieces() -> impl Strategy<Value = String> {
    const HINTS: &[&str] = &[
        "sk-",
        "sk-ant-",
        "AKIA",
        "aws_secret_access_key = ",
        "ghp_",
        "github_pat_",
        "glpat-",
        "xoxb-",
        "AIza",
        "npm_",
        "pypi-Ag",
        "hf_",
        "eyJ",
        ".eyJ",
        "-----BEGIN ",
        "RSA PRIVATE KEY",
        "-----",
        "-----END ",
        "Authorization: Bearer ",
        "authorization=basic ",
        "https://",
        ":",
        "@",
        "[secret",
        "\\n",
        "%20",
        "\u{1b}[31m",
        "é",
        "🔑",
    ];
    let piece = prop_oneof![
        prop::sample::select(HINTS).prop_map(|hint| hint.to_string()),
        "[A-Za-z0-9]{0,60}",
        "[A-Za-z0-9+/=_-]{0,40}",
        "\\PC{0,8}",
    ];
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(rath_test_support::property(1_000))]

    #[test]
    fn hiding_twice_is_hiding_once(text in pieces()) {
        if let Some(hidden) = Secrets::default().hide(&text) {
            prop_assert_eq!(Secrets::default().hide(&hidden), None);
        }
    }

    #[test]
    fn a_known_value_is_never_left(
        value in prop_oneof!["[!-~]{8,40}", "\\PC{8,30}", "[a-c]{8,12}"],
        form in 0..5,
        (before, after) in (pieces(), pieces()),
        padding in "\\PC{0,3}",
    ) {
        let mut secrets = Secrets::default();
        prop_assume!(secrets.add("V", value.as_str()) == AddOutcome::Added);
        let value = value.trim();
        let planted = match form {
            0 => value.to_owned(),
            1 => serde_json::to_string(value).expect("a string is JSON"),
            2 => reqwest::Url::parse_with_params("http://h/", [("q", value)]).expect("a URL").to_string(),
            3 => STANDARD.encode(format!("{padding}{value}{padding}")),
            _ => URL_SAFE_NO_PAD.encode(format!("{padding}{value}")),
        };
        let text = format!("{before}{planted}{after}");
        let hidden = secrets.hide(&text);
        prop_assert!(hidden.is_some(), "{text} is left");
        let hidden = hidden.unwrap_or_default();
        prop_assert!(!hidden.contains(value) && !hidden.contains(&planted), "{hidden}");
        prop_assert_eq!(secrets.hide(&hidden), None);
    }

    #[test]
    fn a_stream_hides_what_is_hidden_in_the_whole(
        text in pieces(),
        value in prop_oneof!["[!-~]{8,40}", "\\PC{8,30}", "[a-c]{8,12}"],
        at in prop::collection::vec(prop::num::usize::ANY, 0..20),
    ) {
        let mut secrets = Secrets::default();
        prop_assume!(secrets.add("V", value.as_str()) == AddOutcome::Added);
        let middle = (0..=text.len() / 2).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default();
        let text = format!("{}{value}{}", &text[..middle], &text[middle..]);
        let boundaries: Vec<_> = (0..=text.len()).filter(|end| text.is_char_boundary(*end)).collect();
        let mut ends: Vec<_> = at.iter().map(|at| boundaries[at % boundaries.len()]).collect();
        ends.sort_unstable();
        let whole = secrets.hide(&text).expect("the value is in it");
        let shown = streamed(&secrets, &text, ends);
        prop_assert!(!shown.contains(value.trim()), "{shown}");
        // A replacement can complete the pattern of another secret, which only the whole text shows.
        prop_assert_eq!(secrets.hide(&shown).unwrap_or(shown), whole);
    }

    #[test]
    fn ordinary_text_is_unchanged(text in "([a-z]{1,12}[ ,.\n]{1,2}){0,40}", hex in "[0-9a-f]{32,64}") {
        let mut secrets = Secrets::default();
        prop_assert_eq!(secrets.add("V", "correct horse battery"), AddOutcome::Added);
        prop_assert_eq!(secrets.hide(&text), None);
        prop_assert_eq!(secrets.hide(&hex), None);
    }
}

/// A key without a pattern.
const KEY: &str = "the-key-of-the-house-4711";
const AWS: &str = "AKIAIOSFODNN7EXAMPLE";

/// Prints the key.
#[tool]
async fn print_key(cx: &ToolCx) -> String {
    cx.output(format!("it is {KEY}"));
    format!("the key is {KEY}, in Base64 {}", STANDARD.encode(KEY))
}

/// Fails with a key.
#[tool]
async fn fail_with_key() -> Result<String> {
    Err(Error::new(ErrorKind::Tool, format_args!("cannot sign in with {AWS}")))
}

/// Prints a key where the output is cut.
#[tool(output_limit = 64)]
async fn print_much() -> String {
    format!("{}{KEY}{}", "x".repeat(50), "y".repeat(500))
}

#[test]
fn no_key_is_recorded_sent_or_shown() {
    block_on(async {
        let call = |nth: usize, name: &str, arguments: &str| {
            let call = serde_json::json!({"id": format!("c{nth}"), "type": "function", "function": {"name": name, "arguments": arguments}});
            let answer = serde_json::json!({"id": "1", "model": "m", "choices": [{"index": 0, "finish_reason": "tool_calls", "message": {"role": "assistant", "tool_calls": [call]}}]});
            Reply::json(200, &answer.to_string())
        };
        let server = TestServer::start(move |nth, _| match nth {
            0 => call(0, "print_key", "{}"),
            1 => call(1, "fail_with_key", "{}"),
            2 => call(2, "print_much", "{}"),
            3 => call(3, "nothing", &format!("{{\"id\": \"{AWS}\"}}")),
            _ => Reply::json(400, &format!(r#"{{"error":{{"message":"{AWS} is not allowed to do that"}}}}"#)),
        })
        .await;
        let openai =
            OpenAi::new("m").key(KEY).base_url(&format!("{}/v1", server.url)).expect("it is a URL").without_streaming();
        let provider = Provider::from(openai).retry(Retry::never());
        let prompt = format!("You are {AWS}.");
        let agent = Agent::new(prompt.as_str(), &provider).tool(print_key).tool(fail_with_key).tool(print_much);
        let events = Arc::new(Mutex::new(String::new()));
        let log = events.clone();
        let each = move |event: &Event| *log.lock().expect("no thread panics") += &format!("{:?}\n", event.kind);
        let session = Session::user(format!("log in as {AWS}")).fork_named(AWS);
        let error = agent.run(session).on_event(each).await.expect_err("the last is refused");
        let session = error.session().expect("it is kept");

        let folder = rath_test_support::temp_dir();
        let path = folder.path().join("session.rath");
        session.save_blocking(&path).expect("it can be saved");
        let saved = std::fs::read_to_string(&path).expect("it can be read");
        let requests: Vec<String> = server.requests().into_iter().map(|request| request.body).collect();
        let events = events.lock().expect("no thread panics").clone();
        assert_eq!(requests.len(), 5);
        for (what, text) in [
            ("file", &saved),
            ("requests", &requests.concat()),
            ("events", &events),
            ("error", &format!("{error}{error:?}{session}{}", session.lineage())),
        ] {
            for secret in [KEY, AWS, &STANDARD.encode(KEY), &KEY[..12]] {
                assert!(!text.contains(secret), "{secret} is in the {what}: {text}");
            }
            assert!(text.contains("[secret: aws key id]"), "{what}: {text}");
        }
        let output = "the key is [secret provider key], in Base64 [secret provider key]";
        assert!(
            saved.contains(output) && requests[1].contains(output) && events.contains("it is [secret provider key]")
        );

        // A record with hidden secrets is undamaged, and its requests can be rebuilt.
        let opened = Session::open_blocking(&path).expect("it can be opened");
        assert!(opened.report.damage.is_empty(), "{:?}", opened.report);
        let answers = opened.session.as_record().steps();
        let answers: Vec<_> = answers.iter().filter(|step| matches!(step.chunk(), Chunk::Assistant(_))).collect();
        assert_eq!(answers.len(), 4);
        for (answer, sent) in answers.iter().zip(&requests) {
            let request = opened.session.request(answer.id()).expect("it can be rebuilt");
            assert_eq!(String::from_utf8_lossy(request.body()), *sent);
        }
        // The agent recognizes its instructions, although a secret in them is hidden.
        let instructions =
            |session: &Session| session.chunks().filter(|chunk| matches!(chunk, Chunk::Instructions(_))).count();
        let before = instructions(session);
        let error = agent.run(session.clone()).await.expect_err("it is refused again");
        assert_eq!(instructions(error.session().expect("it is kept")), before);
    });
}

/// Prints the key in two reports.
#[tool]
async fn print_half_and_half(cx: &ToolCx) {
    let (first, second) = KEY.split_at(9);
    cx.output(format!("it is {first}"));
    cx.output(format!("{second}, is it not"));
}

#[test]
fn a_key_that_arrives_letter_by_letter_is_not_shown() {
    let mut secrets = Secrets::default();
    assert_eq!(secrets.add("KEY", KEY), AddOutcome::Added);
    let text = format!("It is {KEY}. Amazon's is {AWS}, and that is all.");
    let shown = "It is [secret KEY]. Amazon's is [secret: aws key id], and that is all.".to_owned();
    let turns = [
        serde_json::json!({"calls": [{"name": "print_half_and_half", "arguments": {}}]}),
        serde_json::json!({"text": text, "reasoning": text, "chunks": text.len()}),
    ];
    let agent = Agent::new("Go.", &script(turns.map(|turn| turn.to_string()))).tool(print_half_and_half);
    let (answer, reports) = (Arc::new(Mutex::new(String::new())), Arc::new(Mutex::new(Vec::new())));
    let (heard, reported) = (answer.clone(), reports.clone());
    let each = move |event: &Event| match &event.kind {
        EventKind::Text(piece) => *heard.lock().expect("no thread panics") += piece,
        EventKind::ToolOutput { text, .. } => reported.lock().expect("no thread panics").push(text.clone()),
        _ => {}
    };
    block_on(agent.run(Session::user("go").hiding(secrets.clone())).on_event(each).into_future()).expect("a run");
    assert_eq!(*answer.lock().expect("no thread panics"), shown);
    assert_eq!(*reports.lock().expect("no thread panics"), ["it is ", "[secret KEY], is it not"]);

    // The callback of a single call gets the same pieces.
    let turn = serde_json::json!({"text": text, "reasoning": text, "chunks": text.len()});
    let (mut said, mut thought) = (String::new(), String::new());
    let session = Session::user("go").hiding(secrets);
    let ask =
        Provider::from(Script::of([turn.to_string()]).expect("a script")).ask(session).each(|delta| match delta {
            Delta::Text(piece) => said += piece,
            Delta::Reasoning(piece) => thought += piece,
            _ => {}
        });
    block_on(ask.into_future()).expect("an answer");
    assert_eq!((said, thought), (shown.clone(), shown));
}

/// A model that fails once, and then sends a text that ends like the beginning of a key, without saying that it ends.
struct Abrupt {
    identity: Identity,
    settings: Arc<Settings>,
    attempts: AtomicUsize,
}

impl ProviderBackend for Abrupt {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn settings(&self) -> &Arc<Settings> {
        &self.settings
    }

    async fn send(&self, _: &Request, sink: &mut DeltaSink<'_>) -> Result<Answer, ProviderError> {
        sink(Delta::Text("it is sk-"));
        if self.attempts.fetch_add(1, Ordering::Relaxed) == 0 {
            return Err(ProviderError::new(ProviderErrorKind::Busy, "busy"));
        }
        Ok(Answer { text: "it is sk-".to_owned(), ..Answer::default() })
    }
}

#[test]
fn what_is_held_back_is_shown_at_the_end_with_the_session_of_that_moment() {
    let identity = Identity { provider: "abrupt".to_owned(), model: "m".to_owned() };
    let backend = Abrupt { identity, settings: Arc::new(Settings::new(Shape::Chat)), attempts: AtomicUsize::new(0) };
    let provider = Provider::new(backend).retry(Retry { first: Duration::ZERO, ..Retry::default() });
    let heard = Arc::new(Mutex::new(Vec::new()));
    let log = heard.clone();
    let each = move |event: &Event| {
        let what = match &event.kind {
            EventKind::Text(piece) => piece.clone(),
            EventKind::Retry { .. } => "retry".to_owned(),
            _ => return,
        };
        log.lock().expect("no thread panics").push((what, event.session.chunk_count()));
    };
    let agent = Agent::new("Go.", &provider);
    block_on(agent.run(Session::user("go")).on_event(each).into_future()).expect("a run");
    // The second attempt is made after the step of the first.
    let expected = [("it is ", 2), ("retry", 2), ("it is ", 3), ("sk-", 3)];
    assert_eq!(*heard.lock().expect("no thread panics"), expected.map(|(what, at)| (what.to_owned(), at)));
}

#[test]
fn names_that_a_model_or_a_tool_chose_are_hidden_and_still_fit() {
    let mut secrets = Secrets::default();
    assert_eq!(secrets.add("KEY", KEY), AddOutcome::Added);
    let mut session = Session::user("go").hiding(secrets);
    session.push(Chunk::calls([Call::new(KEY, KEY, "{}"), Call::new(format!("{KEY}-2"), AWS, "{}")]));
    session.push(ToolStarted::new(KEY));
    let moved = Effect::new(format!("{KEY}/new.txt"), Change::Renamed { from: format!("{KEY}/old.txt") });
    session.push(ToolResult::new(KEY, Outcome::Ok, "done").with_effects(vec![moved.clone()]));
    let tree = Tree("git:4b825dc642cb6eb9a060e54bf8d69288fbee4904".to_owned());
    let mut observed = Observed::new(tree);
    observed.effects = vec![moved];
    session.push(observed);
    let Next::RunTools(open) = session.next() else { panic!("a call is open") };
    assert_eq!(open.iter().map(|open| open.call.id.to_string()).collect::<Vec<_>>(), ["[secret KEY]-2"]);
    session.deny("[secret KEY]-2", KEY).expect("it waits");
    session.push(ToolResult::new(format!("{KEY}-2"), Outcome::Denied, "denied"));
    assert_eq!(session.next(), Next::AskModel);
    let steps = session.as_record().steps();
    let json = steps.iter().map(|step| step.json().into_owned() + "\n").collect::<String>();
    assert!(!json.contains(KEY) && !json.contains(AWS), "{json}");
    assert!(json.contains("[secret KEY]/new.txt") && json.contains("[secret KEY]/old.txt"), "{json}");
}

#[test]
fn a_memory_with_a_password_in_its_uri_is_recognised() {
    let memory = Memory::in_process("//me:hunter2@db/facts");
    let agent = Agent::new("Work.", &script([r#"{"text": "Done."}"#])).memory(&memory);
    let mut session = Session::user("What is new?");
    block_on(agent.remember(&mut session, "the sky is green")).expect("a fact");
    block_on(agent.commit(&mut session)).expect("a commit");
    let found = block_on(memory.recall("sky")).expect("a search");
    assert_eq!(found.len(), 1, "the fact is committed");
    let json: String = session.as_record().steps().iter().map(|step| step.json().into_owned()).collect();
    assert!(json.contains("process://me:[secret: url password]@db/facts") && !json.contains("hunter2"), "{json}");
}

#[test]
fn forks_asides_and_merges_hide_what_their_session_hides() {
    let hiding = |name: &str, value: &str| {
        let mut secrets = Secrets::default();
        assert_eq!(secrets.add(name, value), AddOutcome::Added);
        secrets
    };
    let recorded = |mut session: Session| {
        session.push(Chunk::note("red herring, blue moon"));
        match session.head().expect("it was pushed").chunk() {
            Chunk::Note(note) => note.text.to_string(),
            chunk => panic!("{chunk:?}"),
        }
    };
    let red = Session::user("hi").hiding(hiding("RED", "red herring"));
    for session in
        [red.clone(), red.fork(), red.detach(), red.aside("x"), red.at(red.head().expect("one").id()).expect("it")]
    {
        assert_eq!(recorded(session), "[secret RED], blue moon");
    }
    let mut blue = Session::user("ho").hiding(hiding("BLUE", "blue moon"));
    assert_eq!(recorded(now(red.merge(&blue)).expect("nothing is open")), "[secret RED], [secret BLUE]");
    blue.keep_aside(&red);
    assert_eq!(recorded(blue), "[secret RED], [secret BLUE]");
    assert_eq!(recorded(Session::user("hi")), "red herring, blue moon");
}

#[test]
fn an_error_hides_secrets_in_everything_that_it_prints() {
    let mut secrets = Secrets::default();
    assert_eq!(secrets.add("RED", "red herring"), AddOutcome::Added);
    let session = Session::user("hi").hiding(secrets);
    let io = |text: &str| std::io::Error::new(std::io::ErrorKind::TimedOut, text.to_owned());
    let nested = Error::new(ErrorKind::Io, "cannot fish").because(io("no red herring here"));
    let error = Error::new(ErrorKind::Store, "lost a red herring").with_hint("buy a red herring").because(nested);
    let error = error.with_session(&session);
    let shown = "lost a [secret RED]: cannot fish: no [secret RED] here";
    assert_eq!(format!("{error:?}"), format!("{shown}\nhint: buy a [secret RED]"));
    assert_eq!(error.message(), shown);
    let error = Error::from(io("red herring")).with_session(&session);
    assert_eq!((error.message(), error.is_temporary()), ("[secret RED]".to_owned(), true));
}

#[test]
fn a_sidecar_is_dropped_with_the_text_that_it_belongs_to() {
    let mut secrets = Secrets::default();
    assert_eq!(secrets.add("KEY", KEY), AddOutcome::Added);
    let is_kept = |text: &str, sidecar: &str| {
        let mut session = Session::user("hi").hiding(secrets.clone());
        let sidecar = Json::parse(sidecar).expect("it is JSON");
        session.push(Assistant::new(text).with_sidecar(sidecar));
        match session.head().expect("it was pushed").chunk() {
            Chunk::Assistant(answer) => answer.sidecar.is_some(),
            chunk => panic!("{chunk:?}"),
        }
    };
    assert!(is_kept("hello", r#"{"signature":"abc"}"#));
    assert!(is_kept("hello", &format!(r#"{{"signature":"{AWS}"}}"#)));
    assert!(!is_kept("hello", &format!(r#"{{"signature":"{KEY}"}}"#)));
    assert!(!is_kept(AWS, r#"{"signature":"abc"}"#));
}

#[test]
fn an_agent_without_known_keys_hides_patterns() {
    let agent = Agent::new("x", &script([r#"{"text": "AKIAIOSFODNN7EXAMPLE"}"#]));
    let session = block_on(agent.run(Session::user("hi"))).expect("it is answered");
    assert_eq!(session.text(), Some("[secret: aws key id]"));
}

#[test]
fn a_file_with_a_known_value_has_no_stored_version() {
    const VALUE: &str = "hunter2-correct-horse";
    let folder = crate::support::folder(&[("plain.txt", "nothing"), ("before.txt", VALUE)]);
    let mut secrets = Secrets::default();
    let _ = secrets.add("PASSWORD", VALUE);
    // In two parts: a whole value would not reach the command.
    let value = "v=$(printf hunter2-); v=${v}correct-horse";
    let agent = crate::support::worker(&[
        [format!("{value}; printf \"a $v b\" > after.txt; printf x > \"name $v\"; mkdir d; printf y > d/y")],
        [format!("{value}; printf %s \"$v\" | base64 > encoded.txt; rm before.txt; mv after.txt d/moved.txt")],
    ]);
    let session = Session::user("go").hiding(secrets).to(Sandbox::isolated(folder.path()));
    let session = block_on(agent.run(session)).expect("a run");
    assert_eq!(std::fs::read_to_string(folder.path().join("d/moved.txt")).expect("a file"), format!("a {VALUE} b"));
    // Every object, unpacked: by its own reader, since objects are compressed.
    let copy = rath_test_support::temp_dir();
    block_on(session.checkout(copy.path().join("copy"))).expect("a tree");
    let git = |words: &[&str]| {
        let output = rath_test_support::git().args(words).current_dir(folder.path()).output().expect("git runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let list = git(&["--git-dir", ".rath/workspace", "cat-file", "--batch-all-objects", "--batch-check"]);
    assert!(list.lines().count() > 3, "{list}");
    let encoded = "aHVudGVyMi1jb3JyZWN0LWhvcnNl";
    for line in list.lines() {
        let id = line.split(' ').next().expect("an id");
        let kind = line.split(' ').nth(1).expect("a kind");
        let content =
            git(&["--git-dir", ".rath/workspace", "cat-file", if kind == "tree" { "-p" } else { "blob" }, id]);
        assert!(!content.contains(VALUE) && !content.contains(encoded), "{content}");
    }
    let text = session.lineage().to_string();
    assert!(!text.contains(VALUE), "{text}");
    assert!(copy.path().join("copy/d/y").exists() && !copy.path().join("copy/d/moved.txt").exists());
}
