//! Notes that are found by their meaning, with vectors of a model.

use std::path::Path;
use std::time::Duration;

use expect_test::expect;
use rath::chunk::{Chunk, MemoryEvent};
use rath::memory::{LocalMemory, Note, Query};
use rath::prelude::*;
use rath::provider::{Retry, Timeouts};
use rath_test_support::Chance;
use serde_json::{Value, json};

use crate::server::{AfterBody, Reply, TestServer};
use crate::support::{block_on, folder, log, script};

/// Texts with one of these words point in one direction.
const SUBJECTS: [&[&str]; 2] = [&["python", "programming language"], &["tea", "drink"]];

/// Returns a vector that points anywhere, the same for each text, or to the subject of the text.
fn vector(text: &str) -> Vec<f32> {
    let text = text.to_lowercase();
    let random = |seed: u64| {
        let mut chance = Chance(seed);
        (0..64).map(move |_| chance.below(2_001) as f32 / 1_000.0 - 1.0)
    };
    let own = random(text.bytes().fold(7, |seed, byte| seed * 31 % 1_000_003 + u64::from(byte)));
    match SUBJECTS.iter().position(|words| words.iter().any(|word| text.contains(word))) {
        Some(subject) => own.zip(random(subject as u64 + 1)).map(|(own, subject)| 0.3 * own + subject).collect(),
        None => own.collect(),
    }
}

fn vectors_reply(body: &str) -> Reply {
    let body: Value = serde_json::from_str(body).expect("JSON");
    let texts = body["input"].as_array().expect("texts").iter();
    let data = texts.map(|text| json!({"embedding": vector(text.as_str().expect("a text"))})).collect::<Vec<_>>();
    Reply::json(200, &json!({"data": data}).to_string())
}

async fn open(directory: &Path, server: &TestServer) -> Memory {
    open_with(directory, server, Timeouts::for_answer(rath_test_support::LIMIT)).await
}

async fn open_with(directory: &Path, server: &TestServer, timeouts: Timeouts) -> Memory {
    let memory = LocalMemory::open(directory.to_str().expect("text")).await.expect("a memory");
    let model = OpenAi::new("m").base_url(&format!("{}/v1", server.url)).expect("a URL").timeouts(timeouts);
    Memory::new(memory.embedder(model.embedder().retry(Retry::never())))
}

async fn remember(memory: &Memory) {
    for text in ["The user works mostly in Python.", "Deploy on Mondays only.", "Ann likes tea best."] {
        memory.remember(Note::new(text)).await.expect("written");
    }
}

#[test]
fn a_note_without_a_word_of_the_question_is_found_by_its_meaning() {
    let folder = folder(&[]);
    block_on(async {
        let server = TestServer::start(|_, request| vectors_reply(&request.body)).await;
        let words = Memory::open(&format!("local:{}", folder.path().join("m").display())).await.expect("a memory");
        remember(&words).await;
        assert!(words.recall("preferred programming language").await.expect("an answer").is_empty());

        let memory = open(&folder.path().join("m"), &server).await;
        let mut found = String::new();
        for question in ["preferred programming language", "What does Ann drink?", "quantum physics", "deployments"] {
            let hits = memory.recall(question).await.expect("an answer");
            assert_eq!(hits.notice, None);
            found += &format!("{question}:\n");
            for hit in hits {
                let how = (hit.has_words, hit.similarity.is_some_and(|similarity| similarity > 0.5));
                found += &format!("  {} {how:?}\n", hit.note.text);
            }
        }
        expect![[r#"
            preferred programming language:
              The user works mostly in Python. (false, true)
            What does Ann drink?:
              Ann likes tea best. (true, true)
            quantum physics:
            deployments:
              Deploy on Mondays only. (true, false)
        "#]]
        .assert_eq(&found);
        // Each text was sent once: those that measure the model, the notes, and the questions.
        let sent: usize = server.requests().iter().map(|request| request.body.matches("\",\"").count()).sum();
        assert!(sent < 2 * 32, "{sent}");

        let hits = memory.recall("programming language").await.expect("an answer");
        memory.forget(&[hits[0].note.id.clone()]).await.expect("forgotten");
        assert!(memory.recall("programming language").await.expect("an answer").is_empty());
    });
}

#[test]
fn if_the_model_fails_notes_are_found_by_words_and_the_record_says_so() {
    for (name, reply) in [
        ("down", Reply::json(500, r#"{"error":"down"}"#)),
        ("no vectors", Reply::json(200, r#"{"data":[]}"#)),
        ("zeros", Reply::json(200, &json!({"data": vec![json!({"embedding": vec![0.0; 8]}); 32]}).to_string())),
        ("huge", Reply::json(200, &json!({"data": vec![json!({"embedding": vec![1.0; 9_000]}); 32]}).to_string())),
    ] {
        let folder = folder(&[]);
        block_on(async {
            let server = TestServer::always(reply).await;
            let memory = open(&folder.path().join("m"), &server).await;
            remember(&memory).await;
            let agent = Agent::new("Answer.", &script([r#"{"text": "On Mondays."}"#; 2])).memory(&memory);
            let session = agent.run(Session::user("When do we deploy?")).await.expect("a run");
            let recall = session.chunks().find_map(|chunk| match chunk {
                Chunk::Memory(memory) => Some(memory.event.clone()),
                _ => None,
            });
            let Some(MemoryEvent::Recall { found, notice, .. }) = recall else { panic!("a recall: {}", log(&session)) };
            assert_eq!(found.len(), 1, "{name}");
            let notice = notice.expect("a notice");
            assert!(notice.starts_with("notes were found by words alone: the "), "{name}: {notice}");
            assert!(log(&session).contains("1 found; notes were found by words"), "{}", log(&session));
            // A replay asks neither the model nor the memory.
            let asked = server.requests().len();
            let replayed = session.replay(&agent).await.expect("a replay").to_string();
            assert!(replayed.starts_with("exact: 1 request"), "{name}: {replayed}");
            assert_eq!(server.requests().len(), asked);
        });
    }
}

#[test]
fn a_model_that_changes_its_vectors_or_hangs_does_not_stop_an_answer() {
    let folder = folder(&[]);
    block_on(async {
        let server = TestServer::start(|nth, request| match nth {
            0..3 => vectors_reply(&request.body),
            3 => Reply::json(200, r#"{"data":[{"embedding":[1,2,3]}]}"#),
            _ => vectors_reply(&request.body).then(AfterBody::Hang),
        })
        .await;
        let memory = open(&folder.path().join("m"), &server).await;
        remember(&memory).await;
        assert_eq!(memory.recall("programming language").await.expect("an answer").len(), 1);
        let impatient =
            open_with(&folder.path().join("m"), &server, Timeouts::for_answer(Duration::from_millis(50))).await;
        for (memory, reason) in [(&memory, "numbers"), (&impatient, "the model for vectors failed")] {
            let hits = memory.recall(Query::new("deployments")).await.expect("an answer");
            assert_eq!(hits.len(), 1);
            assert!(hits.notice.as_ref().is_some_and(|notice| notice.contains(reason)), "{:?}", hits.notice);
        }
    });
}

/// A note may be older than the variable that makes a text of it a secret.
#[test]
fn no_secret_of_a_note_or_a_question_reaches_the_model_for_vectors() {
    let folder = folder(&[]);
    block_on(async {
        let server = TestServer::start(|_, request| vectors_reply(&request.body)).await;
        let directory = folder.path().join("m");
        let words = Memory::open(&format!("local:{}", directory.display())).await.expect("a memory");
        // It is cut in the middle of the secret.
        let long = format!("{} correct-horse-battery", "x".repeat(1_990));
        let key = format!("sk-ant-api03-{}", "Ab1".repeat(30));
        for text in ["The key is correct-horse-battery.", &long, &format!("Another key is {key}.")] {
            words.remember(Note::new(text).said_by("correct-horse-battery")).await.expect("written");
        }
        let mut secrets = Secrets::default();
        let _ = secrets.add("DOOR_KEY", "correct-horse-battery");
        let model = OpenAi::new("m").base_url(&format!("{}/v1", server.url)).expect("a URL");
        let memory = LocalMemory::open(directory.to_str().expect("text")).await.expect("a memory");
        let memory = memory.embedder(model.embedder().retry(Retry::never())).hide(&secrets);
        assert_eq!(memory.add_vectors().await.expect("vectors"), 3);
        Memory::new(memory).recall("Is correct-horse-battery the key?").await.expect("an answer");
        let sent: String = server.requests().iter().map(|request| request.body.clone()).collect();
        assert!(!sent.contains("correct") && !sent.contains("sk-ant"), "{sent}");
        assert_eq!(sent.matches("[secret DOOR_KEY]").count(), 5, "{sent}");
    });
}

#[test]
fn a_model_for_vectors_that_hangs_is_named_when_its_time_is_over() {
    let folder = folder(&[]);
    block_on(async {
        let server = TestServer::start(|_, request| vectors_reply(&request.body).then(AfterBody::Hang)).await;
        let model = OpenAi::new("m").base_url(&format!("{}/v1", server.url)).expect("a URL");
        let memory = LocalMemory::open(folder.path().join("m").to_str().expect("text")).await.expect("a memory");
        let memory = memory.embedder(model.embedder()).vector_timeout(Duration::from_millis(200));
        let error = memory.add_vectors().await.expect_err("it hangs");
        assert_eq!(error.message(), "the model for vectors openai:m did not answer within 200ms");
        assert!(error.hint().is_some_and(|hint| hint.contains("OPENAI_BASE_URL")), "{error:?}");
    });
}
