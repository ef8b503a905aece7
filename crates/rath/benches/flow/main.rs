//! What it costs to run an agent, against a bare client that sends the same bytes: `cargo xtask bench`.
//!
//! Given the names of cases and the address of a model server in `MOCK_URL`, it prints what it measured as JSON lines, so
//! that other programs can be measured on the same server: `loop`, and `concurrent:SESSIONS,MODEL,TURNS,shared|own`.

mod server;

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use rath::prelude::*;
use rath_bench::{Table, cpu_time, memory};
use reqwest::Client;
use tokio::runtime::{Builder, Runtime};

use server::Server;

const PROMPT: &str = "Add numbers with the tool, then answer.";

/// Add two integers.
#[tool(read_only)]
async fn add(
    /// The first.
    a: i64,
    /// The second.
    b: i64,
) -> i64 {
    a + b
}

fn main() {
    if std::env::args().nth(1).as_deref() == Some(server::ARGUMENT) {
        return server::serve();
    }
    rath_bench::many_files();
    let cases: Vec<_> = std::env::args().skip(1).filter(|case| !case.starts_with('-')).collect();
    match std::env::var("MOCK_URL") {
        Ok(url) => cases.iter().for_each(|case| peer(&url, case)),
        Err(_) => table(),
    }
}

fn table() {
    let server = Server::start();
    let mut table = Table::default();
    turns(&mut table, &server.url);
    long(&mut table, &server.url);
    many(&mut table, &server.url);
    drop(server);
    table.print();
}

/// A session of 20 tool turns, again and again, one at a time.
fn turns(table: &mut Table, url: &str) {
    const SESSIONS: usize = 200;
    let runtime = one_thread();
    let (agent, bare) = (agent(url, 20), Bare::of(url, 20));
    let rounds: Vec<_> = (0..7)
        .map(|_| {
            let ours = cpu_time(|| {
                runtime.block_on(async {
                    for _ in 0..SESSIONS {
                        run(&agent).await;
                    }
                })
            });
            let theirs = cpu_time(|| {
                runtime.block_on(async {
                    for _ in 0..SESSIONS {
                        bare.send_all().await;
                    }
                })
            });
            ours.as_secs_f64() / theirs.as_secs_f64()
        })
        .collect();
    table.at_most("CPU of a tool turn against a bare client that sends the same bytes", median(rounds), 1.5);
}

/// One session of 4,000 tool turns: what is sent grows, what it costs beside that does not.
fn long(table: &mut Table, url: &str) {
    const TURNS: usize = 4_000;
    let runtime = one_thread();
    let bare = Bare::of(url, TURNS);
    // What the agent costs at each turn, from one event that a model is asked to the next.
    let ours = runtime.block_on(async {
        let agent = agent(url, TURNS);
        let mut events = agent.run(Session::user(PROMPT)).events();
        let mut asked = Vec::with_capacity(TURNS + 2);
        while let Some(event) = events.next().await {
            if let EventKind::Turn { .. } = event.kind {
                asked.push(rath_bench::cpu_now());
            }
        }
        events.finish().await.expect("a run");
        asked
    });
    let theirs = runtime.block_on(async {
        let mut asked = Vec::with_capacity(TURNS + 2);
        for body in &bare.bodies {
            asked.push(rath_bench::cpu_now());
            bare.send(body.clone()).await;
        }
        asked
    });
    let near = |asked: &[std::time::Duration], turn: usize| {
        let mut turns: Vec<_> = asked[turn - 8..turn + 8].windows(2).map(|at| (at[1] - at[0]).as_secs_f64()).collect();
        turns.sort_by(f64::total_cmp);
        turns[turns.len() / 2]
    };
    for turn in [10, 4_000 - 8] {
        let ratio = near(&ours, turn) / near(&theirs, turn);
        table.at_most(
            &format!("the same at turn {turn} of a long session, whoever listens to it included"),
            ratio,
            1.5,
        );
    }
}

/// 10,000 sessions of 20 tool turns at once, on two threads.
fn many(table: &mut Table, url: &str) {
    const SESSIONS: usize = 10_000;
    let runtime = two_threads();
    let (agent, bare) = (Arc::new(agent(url, 20)), Arc::new(Bare::of(url, 20)));
    let before = memory();
    let begun = Instant::now();
    let sessions = runtime.block_on(async {
        let work: Vec<_> = (0..SESSIONS)
            .map(|_| {
                let agent = agent.clone();
                tokio::spawn(async move { run(&agent).await })
            })
            .collect();
        let mut sessions = Vec::with_capacity(SESSIONS);
        for session in work {
            sessions.push(session.await.expect("it does not panic"));
        }
        sessions
    });
    let ours = begun.elapsed();
    let held = memory().saturating_sub(before) / SESSIONS;
    assert!(sessions.iter().all(|session| session.next() == Next::Done));
    drop(sessions);
    let begun = Instant::now();
    runtime.block_on(async {
        let work: Vec<_> = (0..SESSIONS)
            .map(|_| {
                let bare = bare.clone();
                tokio::spawn(async move { bare.send_all().await })
            })
            .collect();
        for sent in work {
            sent.await.expect("it does not panic");
        }
    });
    let theirs = begun.elapsed();
    let ratio = theirs.as_secs_f64() / ours.as_secs_f64();
    table.at_least("turns a second of 10,000 sessions at once, against the bare client", ratio, 0.7);
    table.bytes("memory of each of them, connections included", held, 100_000);
}

/// The same bytes as an agent sends, ready to be sent, and nothing else.
struct Bare {
    client: Client,
    url: String,
    bodies: Vec<Bytes>,
}

impl Bare {
    fn of(url: &str, turns: usize) -> Self {
        let session = one_thread().block_on(run(&agent(url, turns)));
        let answers = session.record().steps().into_iter().filter(|step| matches!(step.chunk(), Chunk::Assistant(_)));
        let bodies = if turns <= 100 {
            answers.map(|step| session.request(step.id()).expect("its request").bytes).collect()
        } else {
            // Rebuilt from one record as it grows: each request goes on from the one before.
            let mut growing = Session::empty();
            let provider = agent(url, turns).provider().clone();
            let mut bodies = Vec::new();
            for step in session.record().steps() {
                if let Chunk::Assistant(_) = step.chunk() {
                    bodies.push(provider.request(&growing).expect("a request").bytes);
                }
                growing.push(step.chunk().clone());
            }
            bodies
        };
        let client = Client::builder().no_proxy().build().expect("a client");
        Bare { client, url: format!("{url}/v1/chat/completions"), bodies }
    }

    async fn send_all(&self) {
        for body in &self.bodies {
            self.send(body.clone()).await;
        }
    }

    async fn send(&self, body: Bytes) {
        let request = self.client.post(&self.url).header("content-type", "application/json").bearer_auth("sk-mock");
        let answer = request.body(body).send().await.expect("an answer");
        assert!(answer.status().is_success());
        std::hint::black_box(answer.bytes().await.expect("a body"));
    }
}

fn agent(url: &str, turns: usize) -> Agent {
    with(url, &format!("mock-{turns}"), Answers::InPieces)
}

#[derive(Clone, Copy, PartialEq)]
enum Answers {
    InPieces,
    Whole,
}

fn with(url: &str, model: &str, answers: Answers) -> Agent {
    let provider = OpenAi::new(model).base_url(&format!("{url}/v1")).expect("an address").keys(["sk-mock"]);
    let provider = if answers == Answers::Whole { provider.whole() } else { provider };
    Agent::new("You are a calculator.", &provider.into()).tool(add).turns(10_000)
}

async fn run(agent: &Agent) -> Session {
    agent.run(Session::user(PROMPT)).await.expect("a run")
}

fn one_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

fn two_threads() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

fn median(mut ratios: Vec<f64>) -> f64 {
    ratios.sort_by(f64::total_cmp);
    ratios[ratios.len() / 2]
}

/// One case of those that others are measured on too.
fn peer(url: &str, case: &str) {
    let say = |op: &str, sessions: usize, turns: usize, wall: f64, cpu: f64, extra: serde_json::Value| {
        let mut line = serde_json::json!({
            "suite": std::env::var("BENCH_SUITE").unwrap_or_else(|_| "rath".to_owned()),
            "op": op,
            "sessions": sessions,
            "turns": turns,
            "wall_s": wall,
            "turns_per_s": turns as f64 / wall,
            "us_per_turn": wall / turns as f64 * 1e6,
            "cpu_us_per_turn": cpu / turns as f64 * 1e6,
            "peak_rss_mb": rath_bench::peak_memory() as f64 / (1 << 20) as f64,
        });
        for (name, value) in extra.as_object().into_iter().flatten() {
            line[name] = value.clone();
        }
        println!("{line}");
    };
    if case == "loop" {
        let runtime = two_threads();
        for answers in [Answers::Whole, Answers::InPieces] {
            let agent = with(url, "mock-20", answers);
            let stream = answers == Answers::InPieces;
            let sessions = |count: usize| {
                runtime.block_on(async {
                    for _ in 0..count {
                        run(&agent).await;
                    }
                })
            };
            sessions(3);
            let begun = Instant::now();
            let cpu = cpu_time(|| sessions(100));
            say(
                "loop20",
                1,
                2_100,
                begun.elapsed().as_secs_f64(),
                cpu.as_secs_f64(),
                serde_json::json!({"stream": stream}),
            );
        }
    } else if let Some((sessions, model, turns, shared)) = case.strip_prefix("concurrent:").and_then(|case| {
        let mut parts = case.split(',');
        Some((
            parts.next()?.parse().ok()?,
            parts.next()?,
            parts.next()?.parse::<usize>().ok()?,
            parts.next()? == "shared",
        ))
    }) {
        let sessions: usize = sessions;
        let runtime = two_threads();
        let all = Arc::new(with(url, model, Answers::Whole));
        runtime.block_on(run(&all));
        let begun = Instant::now();
        let cpu = cpu_time(|| {
            runtime.block_on(async {
                let work: Vec<_> = (0..sessions)
                    .map(|_| {
                        let agent = if shared { all.clone() } else { Arc::new(with(url, model, Answers::Whole)) };
                        tokio::spawn(async move { run(&agent).await })
                    })
                    .collect();
                for session in work {
                    session.await.expect("it does not panic");
                }
            });
        });
        let extra = serde_json::json!({"model": model, "session": if shared { "one shared Agent" } else { "an Agent per session" }});
        say("concurrent", sessions, sessions * (turns + 1), begun.elapsed().as_secs_f64(), cpu.as_secs_f64(), extra);
    } else {
        eprintln!("no case `{case}`; there are: loop, concurrent:SESSIONS,MODEL,TURNS,shared|own");
        std::process::exit(2);
    }
}
