//! Recorded responses of servers, one file for each case.
//!
//! A case is a title and four sections: the session (chunks, one on each line), the expected request, the expected answer,
//! and the response, whose bytes run to the end of the file. `UPDATE_EXPECT=1` writes the two expected sections.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use rath::prelude::*;
use rath::provider::Retry;
use rath::provider::{Answer, Assembler, Env, ProviderError, ProviderErrorKind, RetryAdvice, Shape};

use crate::server::{Reply, TestServer};
use crate::support::block_on;

/// The result of assembling a response, in a form that can be compared.
type Assembled = Result<(Answer, String), (ProviderErrorKind, String, RetryAdvice)>;

struct Case {
    path: PathBuf,
    title: String,
    provider: String,
    session: String,
    request: String,
    answer: String,
    /// The status with the content type, then further headers.
    head: Vec<String>,
    response: Vec<u8>,
}

impl Case {
    fn read(path: &Path) -> Self {
        let bytes = std::fs::read(path).expect("the case can be read");
        let mut sections = Vec::new();
        let mut rest = &bytes[..];
        while !sections.iter().any(|(name, _): &(String, _)| name.starts_with("response")) {
            let end =
                memchr::memmem::find(rest, b"--- ").unwrap_or_else(|| panic!("{} lacks a section", path.display()));
            let body = String::from_utf8_lossy(&rest[..end]).into_owned();
            if let Some((_, text)) = sections.last_mut() {
                *text = body;
            } else {
                sections.push(("title".to_owned(), body));
            }
            let line = rest[end..].iter().position(|byte| *byte == b'\n').expect("a section has a line") + end;
            sections.push((String::from_utf8_lossy(&rest[end + 4..line]).into_owned(), String::new()));
            rest = &rest[line + 1..];
        }
        let section = |prefix: &str| {
            let section = sections.iter().find(|(name, _)| name.starts_with(prefix));
            section.unwrap_or_else(|| panic!("{} has no section `{prefix}`", path.display()))
        };
        let head = section("response").0.trim_start_matches("response ").split(" | ").map(str::to_owned);
        Case {
            path: path.to_owned(),
            title: section("title").1.trim().to_owned(),
            provider: section("session").0.trim_start_matches("session ").to_owned(),
            session: section("session").1.clone(),
            request: section("request").1.trim_end().to_owned(),
            answer: section("answer").1.trim_end().to_owned(),
            head: head.collect(),
            response: rest.to_owned(),
        }
    }

    fn write(&self) {
        let mut text = format!("{}\n\n--- session {}\n{}", self.title, self.provider, self.session);
        write!(text, "--- request\n{}\n\n--- answer\n{}\n\n", self.request, self.answer).expect("a String takes it");
        writeln!(text, "--- response {}", self.head.join(" | ")).expect("a String takes it");
        let bytes = [text.as_bytes(), &self.response].concat();
        std::fs::write(&self.path, bytes).expect("the case can be written");
    }

    fn name(&self) -> String {
        self.path.file_stem().expect("a case has a name").to_string_lossy().into_owned()
    }

    fn shape(&self) -> Shape {
        match self.provider.split(':').next() {
            Some("anthropic") => Shape::Messages,
            Some("responses") => Shape::Responses,
            Some("gemini") => Shape::Gemini,
            _ => Shape::Chat,
        }
    }

    fn is_stream(&self) -> bool {
        self.head[0].contains("event-stream")
    }

    fn is_long_stream(&self) -> bool {
        self.is_stream() && !self.response.is_empty()
    }

    fn session(&self) -> Session {
        let mut session = Session::empty();
        for line in self.session.lines().filter(|line| !line.trim().is_empty()) {
            session.push(Chunk::decode(line).unwrap_or_else(|error| panic!("{}: {error}: {line}", self.name())));
        }
        session
    }

    fn reply(&self) -> Reply {
        let (status, content_type) = self.head[0].split_once(' ').expect("a status and a content type");
        let reply = Reply::new(status.parse().expect("a status"), content_type, self.response.clone());
        self.head[1..].iter().fold(reply, |reply, header| reply.header(header))
    }

    /// Assembles the answer and the text of its deltas from pieces of the response that end at `ends`.
    fn assemble(&self, ends: &[usize]) -> Assembled {
        self.try_assemble(ends).map_err(|error| (error.kind(), error.message(), error.retry()))
    }

    fn try_assemble(&self, ends: &[usize]) -> Result<(Answer, String), ProviderError> {
        let mut shown = String::new();
        let mut sink = |delta: Delta<'_>| match delta {
            Delta::Text(text) => shown.push_str(text),
            Delta::Reasoning(text) => shown.push_str(text),
            _ => {}
        };
        let mut assembler = Assembler::new(self.shape());
        let mut begin = 0;
        for end in ends.iter().copied().chain([self.response.len()]) {
            assembler.feed(&self.response[begin..end], &mut sink)?;
            begin = end;
        }
        let answer = assembler.finish(&mut sink)?;
        Ok((answer, shown))
    }
}

fn corpus() -> Vec<Case> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/wire");
    let mut paths: Vec<_> = std::fs::read_dir(folder)
        .expect("the corpus is there")
        .map(|entry| entry.expect("the corpus can be listed").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "wire"))
        .collect();
    paths.sort();
    paths.iter().map(|path| Case::read(path)).collect()
}

/// Prints an answer or an error with all its parts.
fn describe(asked: &Result<Session>, deltas: &str) -> String {
    let mut out = String::new();
    let mut line = |name: &str, text: &str| {
        if !text.is_empty() {
            writeln!(out, "{name}: {}", text.replace('\n', "\\n")).expect("a String takes it");
        }
    };
    let session = match asked {
        Ok(session) => session,
        Err(error) => {
            line("error", &format!("{:?}: {error:?}", error.kind()));
            let steps = error.session().map(|session| session.chunks().map(Chunk::kind).collect::<Vec<_>>().join(", "));
            line("kept", &steps.unwrap_or_else(|| "nothing".to_owned()));
            return out;
        }
    };
    let head = session.head().expect("there is an answer");
    let Chunk::Assistant(answer) = head.chunk() else { panic!("the answer is the last step") };
    line("text", &answer.text.to_string());
    line("reasoning", &answer.reasoning.to_string());
    for call in &answer.calls {
        line("call", &format!("{} {} {}", call.id, call.tool, call.arguments));
    }
    line("finish", &format!("{:?}", answer.finish));
    line("usage", &serde_json::to_string(&head.stamp().usage).expect("usage is JSON"));
    line("facts", &answer.facts.as_ref().map(|facts| facts.as_str().to_owned()).unwrap_or_default());
    line("sidecar", &answer.sidecar.as_ref().map(|sidecar| sidecar.as_str().to_owned()).unwrap_or_default());
    line("deltas", deltas);
    out
}

#[test]
fn every_case_sends_the_expected_request_and_reads_the_expected_answer() {
    let update = std::env::var_os("UPDATE_EXPECT").is_some();
    let corpus = corpus();
    assert!(corpus.len() >= 30, "the corpus has {} cases", corpus.len());
    for mut case in corpus {
        let (answer, request) = block_on(async {
            let server = TestServer::always(case.reply()).await;
            let env = Env::from_values([
                ("OPENAI_BASE_URL", &*format!("{}/v1", server.url)),
                ("ANTHROPIC_BASE_URL", &*server.url),
                ("OPENAI_API_KEY", "sk-wire"),
                ("ANTHROPIC_API_KEY", "sk-wire"),
                ("GEMINI_BASE_URL", &*server.url),
                ("GEMINI_API_KEY", "sk-wire"),
            ]);
            let (kind, model) = case.provider.split_once(':').expect("a provider has a kind");
            let model = model.trim_end_matches(" whole");
            let whole = case.provider.ends_with(" whole");
            let provider: Provider = match kind {
                "openai" | "responses" => {
                    let openai = OpenAi::from_env(model, &env).expect("the environment is complete");
                    let responses = format!("{}/v1/responses", server.url);
                    let at_responses = |openai: OpenAi| openai.base_url(&responses).expect("an address");
                    let openai = if kind == "responses" { at_responses(openai) } else { openai };
                    if whole { openai.without_streaming().into() } else { openai.into() }
                }
                "gemini" => {
                    let gemini = Gemini::from_env(model, &env).expect("the environment is complete");
                    if whole { gemini.without_streaming().into() } else { gemini.into() }
                }
                _ => {
                    let anthropic = Anthropic::from_env(model, &env).expect("the environment is complete");
                    if whole { anthropic.without_streaming().into() } else { anthropic.into() }
                }
            };
            let mut deltas = String::new();
            let session = case.session();
            let each = |delta: Delta<'_>| write!(deltas, "{delta:?} ").expect("a String takes it");
            let asked = provider.retry(Retry::never()).ask(session).each(each).await;
            let request = server.requests().first().map(|request| request.body.clone()).unwrap_or_default();
            if let Ok(session) = &asked {
                let rebuilt = session.request(session.head().expect("it answered").id()).expect("it can be rebuilt");
                assert_eq!(String::from_utf8_lossy(rebuilt.body()), request, "{} is rebuilt", case.name());
            }
            (describe(&asked, deltas.trim_end()).replace(&server.url, "http://server"), request)
        });
        let (answer, request) = (answer.trim_end().to_owned(), request.trim_end().to_owned());
        if update {
            (case.answer, case.request) = (answer, request);
            case.write();
            continue;
        }
        assert_eq!(case.request, request, "the request of {}: {}", case.name(), case.title);
        assert_eq!(case.answer, answer, "the answer of {}: {}", case.name(), case.title);
    }
}

#[test]
fn a_stream_cut_at_any_byte_is_never_a_shorter_answer() {
    for case in corpus().iter().filter(|case| case.is_stream()) {
        let whole = case.assemble(&[]);
        for cut in 0..case.response.len() {
            let mut assembler = Assembler::new(case.shape());
            let fed = assembler.feed(&case.response[..cut], &mut |_| {});
            if let Ok(answer) = fed.and_then(|()| assembler.finish(&mut |_| {})) {
                let whole = whole.as_ref().ok().map(|(answer, _)| answer);
                assert_eq!(Some(&answer), whole, "{} cut at byte {cut}", case.name());
            }
        }
    }
}

#[test]
fn a_stream_split_in_two_anywhere_or_into_bytes_gives_the_same_answer() {
    for case in corpus().iter().filter(|case| case.is_stream()) {
        let whole = case.assemble(&[]);
        for end in 0..case.response.len() {
            assert_eq!(case.assemble(&[end]), whole, "{} split at byte {end}", case.name());
        }
        let bytes: Vec<_> = (1..case.response.len()).collect();
        assert_eq!(case.assemble(&bytes), whole, "{} byte by byte", case.name());
    }
}

proptest! {
    #![proptest_config(rath_test_support::property(250))]

    #[test]
    fn any_split_of_a_stream_gives_the_same_answer(
        case in any::<prop::sample::Index>(),
        ends in prop::collection::vec(any::<prop::sample::Index>(), 0..40),
    ) {
        thread_local!(static STREAMS: Vec<Case> = corpus().into_iter().filter(Case::is_long_stream).collect());
        STREAMS.with(|streams| {
            let case = case.get(streams);
            let mut ends: Vec<_> = ends.iter().map(|end| end.index(case.response.len())).collect();
            ends.sort_unstable();
            prop_assert_eq!(case.assemble(&ends), case.assemble(&[]));
            Ok(())
        })?;
    }
}
