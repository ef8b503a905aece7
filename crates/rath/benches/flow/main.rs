//! The cost of running an agent, compared with a bare loop that sends the same bytes: `cargo xtask bench`.
//!
//! `cargo bench -p openrath --bench flow -- turns` measures one part: `turns`, `long` or `many`.
//!
//! Given the names of cases and the address of a model server in `MOCK_URL`, it prints its measurements as JSON lines, so
//! that other programs can be measured on the same server: `loop`, `concurrent:SESSIONS,MODEL,TURNS,shared|own`, and `bare`
//! for the bare loop.

mod bare;
mod server;

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use rath::prelude::*;
use rath::turn::Next;
use rath_bench::{Table, cpu_time, memory};
use tokio::runtime::{Builder, Runtime};

use bare::Bare;
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
        Err(_) => table(&cases),
    }
}

/// Measures the parts that are named, or all.
fn table(wanted: &[String]) {
    type Part = (&'static str, fn(&mut Table, &str));
    const PARTS: [Part; 3] = [("turns", turns), ("long", long), ("many", many)];
    let server = Server::start();
    let mut table = Table::default();
    for (name, measure) in PARTS {
        if wanted.is_empty() || wanted.iter().any(|wanted| wanted == name) {
            measure(&mut table, &server.url);
        }
    }
    drop(server);
    table.print();
}

/// Measures sessions of 20 tool turns, one at a time.
///
/// The time of a turn that mostly waits varies by a third from one moment to the next, so both loops take turns in many
/// short rounds, and the quickest quarter of the rounds of each is compared.
fn turns(table: &mut Table, url: &str) {
    const ROUNDS: usize = 60;
    const SESSIONS: usize = 40;
    let runtime = one_thread();
    for answers in [Answers::Whole, Answers::InPieces] {
        let agent = with(url, "mock-20", answers);
        let bare = Bare::like(url, &agent);
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            ours.push(cpu_time(|| repeat(&runtime, SESSIONS, || run(&agent))).as_secs_f64());
            theirs.push(cpu_time(|| repeat(&runtime, SESSIONS, || bare.run())).as_secs_f64());
        }
        let (how, bound) = if answers == Answers::Whole { ("in one piece", 2.0) } else { ("in pieces", 1.5) };
        table.at_most(
            &format!("CPU of a tool turn, answers {how}, against a bare loop that sends the same bytes"),
            quickest_quarter(ours) / quickest_quarter(theirs),
            bound,
        );
    }
}

/// Returns the mean of the lowest quarter.
fn quickest_quarter(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    let quarter = &times[..times.len().div_ceil(4)];
    quarter.iter().sum::<f64>() / quarter.len() as f64
}

/// Measures one session of 4,000 tool turns: the requests grow, the cost beside sending them must not.
fn long(table: &mut Table, url: &str) {
    const TURNS: usize = 4_000;
    let runtime = one_thread();
    let bare = Bare::like(url, &agent(url, TURNS));
    // The cost of each turn: the time between two events that a model is asked.
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
    let mut theirs = Vec::with_capacity(TURNS + 2);
    let mut bodies = Vec::new();
    runtime.block_on(bare.run_with(
        || theirs.push(rath_bench::cpu_now()),
        |body| {
            bodies.push(Bytes::copy_from_slice(body));
            if bodies.len() > MEASURED_TURNS {
                bodies.remove(0);
            }
        },
    ));
    let sent = runtime.block_on(async {
        let mut sent = vec![rath_bench::cpu_now()];
        for body in &bodies {
            bare.send(body.clone()).await;
            sent.push(rath_bench::cpu_now());
        }
        sent
    });
    let last = |at: &[std::time::Duration]| {
        let turns = at[at.len() - MEASURED_TURNS..].windows(2).map(|at| (at[1] - at[0]).as_secs_f64());
        median(turns.collect())
    };
    table.at_most("the same after 4,000 turns", last(&ours) / last(&theirs), 1.5);
    table.at_most(
        "the same after 4,000 turns, against sending bytes that are there already",
        last(&ours) / last(&sent),
        3.0,
    );
}

/// The number of turns at the end of a session that are measured.
const MEASURED_TURNS: usize = 33;

/// Measures 10,000 concurrent sessions of 20 tool turns, on two threads.
fn many(table: &mut Table, url: &str) {
    const SESSIONS: usize = 10_000;
    let (mut ratios, mut held) = (Vec::new(), 0);
    // Alternately, so that neither has the advantage of a warm machine; each time with new connections.
    for _ in 0..3 {
        let before = memory();
        let agent = Arc::new(with(url, "mock-20", Answers::Whole));
        let (ours, sessions) = run_concurrently(SESSIONS, || {
            let agent = agent.clone();
            async move { run(&agent).await }
        });
        held = held.max(memory().saturating_sub(before) / SESSIONS);
        assert!(sessions.iter().all(|session| session.next() == Next::Done));
        drop((sessions, agent));
        let bare = Arc::new(Bare::like(url, &with(url, "mock-20", Answers::Whole)));
        let (theirs, _) = run_concurrently(SESSIONS, || {
            let bare = bare.clone();
            async move { bare.run().await }
        });
        ratios.push(theirs / ours);
    }
    table.at_least("turns a second of 10,000 sessions at once, against the bare loop", median(ratios), 0.7);
    table.bytes("memory of each of them, with what the allocator keeps", held, 128 << 10);
}

/// Does some work concurrently, and returns the seconds that it took and the results. Connections are closed afterwards.
fn run_concurrently<F: Future<Output: Send> + Send + 'static>(
    times: usize,
    work: impl Fn() -> F,
) -> (f64, Vec<F::Output>) {
    let runtime = two_threads();
    let begun = Instant::now();
    let done = runtime.block_on(async {
        let work: Vec<_> = (0..times).map(|_| tokio::spawn(work())).collect();
        let mut done = Vec::with_capacity(times);
        for one in work {
            done.push(one.await.expect("it does not panic"));
        }
        done
    });
    (begun.elapsed().as_secs_f64(), done)
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
    let provider = if answers == Answers::Whole { provider.without_streaming() } else { provider };
    Agent::new("You are a calculator.", &provider.into()).tool(add).turns(10_000)
}

async fn run(agent: &Agent) -> Session {
    agent.run(Session::user(PROMPT)).await.expect("a run")
}

/// Does some work several times, one after the other.
fn repeat<F: Future>(runtime: &Runtime, count: usize, work: impl Fn() -> F) {
    runtime.block_on(async {
        for _ in 0..count {
            work().await;
        }
    });
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

/// Measures one case that other programs are measured on too.
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
        // One session needs one thread.
        let runtime = one_thread();
        for answers in [Answers::Whole, Answers::InPieces] {
            let agent = with(url, "mock-20", answers);
            let stream = answers == Answers::InPieces;
            let sessions = |count: usize| repeat(&runtime, count, || run(&agent));
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
    } else if case == "bare" {
        let runtime = two_threads();
        let bare = Bare::like(url, &with(url, "mock-20", Answers::Whole));
        repeat(&runtime, 3, || bare.run());
        let begun = Instant::now();
        let cpu = cpu_time(|| repeat(&runtime, 100, || bare.run()));
        say("bare20", 1, 2_100, begun.elapsed().as_secs_f64(), cpu.as_secs_f64(), serde_json::json!({"stream": false}));
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
        let all = Arc::new(with(url, model, Answers::Whole));
        two_threads().block_on(run(&all));
        let begun = Instant::now();
        let cpu = cpu_time(|| {
            run_concurrently(sessions, || {
                let agent = if shared { all.clone() } else { Arc::new(with(url, model, Answers::Whole)) };
                async move { run(&agent).await }
            });
        });
        let extra = serde_json::json!({"model": model, "session": if shared { "one shared Agent" } else { "an Agent per session" }});
        say("concurrent", sessions, sessions * (turns + 1), begun.elapsed().as_secs_f64(), cpu.as_secs_f64(), extra);
    } else {
        eprintln!("no case `{case}`; there are: loop, bare, concurrent:SESSIONS,MODEL,TURNS,shared|own");
        std::process::exit(2);
    }
}
